"""The multiverse head on any AutoModel, pruning in transformers' Trainer, and export.

The head and the pruner are those of notebooks 03 and 04. This is the one module that needs
transformers when it is imported.
"""

import contextlib
import copy
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    TrainerCallback,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_callback import ExportableState

from mmlkit.heads.linear import LinearHead, sentence_vector
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import reset_optimizer_state
from mmlkit.support.folders import is_encoder_file, replace_folder
from mmlkit.training.arguments import check_head

__all__ = [
    "MultiverseConfig",
    "MultiverseForSequenceClassification",
    "PruningCallback",
    "export_classifier",
]


class MultiverseConfig(PreTrainedConfig):
    """The configuration of an encoder with a multiverse head, written and read by transformers.

    Args:
        encoder: the encoder's configuration, a dict.
        head: the keywords of MultiverseHead, a dict.
        **others: see transformers.PreTrainedConfig.
    """

    model_type = "mmlkit_multiverse"

    def __init__(self, encoder=None, head=None, **others):
        self.encoder, self.head = encoder or {}, head or {}
        super().__init__(**others)


class MultiverseForSequenceClassification(PreTrainedModel):
    """An encoder of any kind with a MultiverseHead (MML v2, Eqs. 2 to 5).

    Make one with `on`. `save_pretrained` and `from_pretrained` keep the weights and the mask of
    active heads, and after `import mmlkit` transformers' AutoModelForSequenceClassification opens
    the folder too. num_labels=1 is a regression. The loss includes the orthogonality term in
    training only. With label_smoothing_factor or compute_loss_func the Trainer computes a loss of
    its own, without the heads' losses and that term.

    Args:
        config: a MultiverseConfig.
        encoder: the loaded encoder; by default one of the configuration, without weights.
    """

    config_class = MultiverseConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    # The Trainer then divides by its accumulation steps, so that the penalty counts once.
    accepts_loss_kwargs = False

    def __init__(self, config, encoder=None):
        super().__init__(config)
        if encoder is None:
            encoder = AutoConfig.for_model(**config.encoder)
            encoder = AutoModel.from_config(encoder, trust_remote_code=False)
        self.encoder = encoder
        self.head = MultiverseHead(**config.head)
        self.per_head = None  # [A], detached: losses of the last batch, for the pruner
        self.post_init()

    @classmethod
    def on(cls, encoder, num_labels=None, *, num_heads=None, pooling="cls", id2label=None, **head):
        """Put fresh heads on an encoder.

        Args:
            encoder: a loaded AutoModel, or a name or folder for AutoModel.from_pretrained.
            num_labels: C; the length of id2label by default.
            num_heads: M; the encoder's hidden_size by default, as in the paper.
            pooling: "cls", "mean", or "pooler" where the encoder has one.
            id2label: {index: label name}, kept in the configuration.
            **head: further keywords of MultiverseHead.

        Returns:
            The model.

        Raises:
            ValueError: the encoder has no pooler, or num_labels and id2label do not fit together.
        """
        if isinstance(encoder, (str, Path)):
            encoder = AutoModel.from_pretrained(encoder, trust_remote_code=False)
        if pooling == "pooler" and getattr(encoder, "pooler", None) is None:
            raise ValueError(
                f"{type(encoder).__name__} has no pooler; pass pooling='cls' or pooling='mean'."
            )
        num_labels = num_labels or len(id2label or ())
        if not num_labels or (id2label and set(id2label) != set(range(num_labels))):
            raise ValueError(
                f"num_labels is {num_labels} and id2label is {id2label}; expected num_labels, or "
                "id2label with a name for each index from 0, or both of the same size."
            )
        size = encoder.config.hidden_size
        shape = {
            "hidden_size": size,
            "num_labels": num_labels,
            "num_heads": size if num_heads is None else num_heads,
        }
        shape = {name: int(value) for name, value in shape.items()}  # also converts numpy numbers
        labels = _labels([id2label[i] for i in range(num_labels)]) if id2label else {}
        config = MultiverseConfig(
            encoder.config.to_dict(),
            {**shape, "pooling": pooling, **head},
            num_labels=int(num_labels),
            **labels,
        )
        model = cls(config, encoder)
        model.head.to(encoder.device)
        return model

    def resize_token_embeddings(self, *arguments, **options):
        """Resize the encoder's word table, and note the size in the encoder's configuration.

        Args:
            *arguments: see transformers.PreTrainedModel.resize_token_embeddings.
            **options: see the same.

        Returns:
            The new table.
        """
        return self.encoder.resize_token_embeddings(*arguments, **options)

    def save_pretrained(self, save_directory, **options):
        """Write the model with the encoder's present configuration.

        Args:
            save_directory: the folder.
            **options: see transformers.PreTrainedModel.save_pretrained.
        """
        self.config.encoder = self.encoder.config.to_dict()
        super().save_pretrained(save_directory, **options)

    def _init_weights(self, module):
        """Do nothing: the encoder brings its weights, and the head initialises its own."""

    def forward(
        self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **inputs
    ):
        """Compute logits, and with labels the loss.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T].
            token_type_ids: [B, T].
            labels: [B]; scores also [B, 1].
            **inputs: further inputs of the encoder.

        Returns:
            SequenceClassifierOutput with loss, logits [B, C], and the encoder's hidden_states and
            attentions where they were asked for; a tuple with return_dict=False.
        """
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
        }
        given = {name: value for name, value in given.items() if value is not None}
        whole = inputs.pop("return_dict", None) is not False
        out = self.encoder(**given, **inputs, return_dict=True)
        hidden_states = out.last_hidden_state
        if attention_mask is None:
            attention_mask = torch.ones(hidden_states.shape[:2], device=hidden_states.device)
        kind = "regression" if self.head.num_labels == 1 else "classification"
        task = SimpleNamespace(kind=kind)
        if labels is not None:
            labels = labels.reshape(-1)  # scores may come as [B, 1]
        batch = SimpleNamespace(attention_mask=attention_mask, task=task, labels=labels)
        x = sentence_vector(out, batch, self.head.pooling).to(self.head.weight.dtype)
        more = {name: getattr(out, name, None) for name in ("hidden_states", "attentions")}
        found = SequenceClassifierOutput(logits=self.head(x), **more)
        if labels is None:
            return found if whole else found.to_tuple()
        loss, penalty = self.head.loss((x,), batch), self.head.penalty() if self.training else None
        self.per_head = loss.per_head
        total = loss.total if penalty is None else loss.total + penalty
        found = SequenceClassifierOutput(loss=total, logits=found.logits, **more)
        return found if whole else found.to_tuple()


AutoConfig.register(MultiverseConfig.model_type, MultiverseConfig, exist_ok=True)
AutoModelForSequenceClassification.register(
    MultiverseConfig, MultiverseForSequenceClassification, exist_ok=True
)


def export_classifier(model, task, folder):
    """Write one task's classifier for transformers' pipeline("text-classification", folder).

    Multiverse heads are collapsed (MML v2, Eq. 5). A head with pooling="pooler" becomes
    transformers' BertForSequenceClassification and needs nothing of mmlkit. Any other becomes a
    MultiverseForSequenceClassification with one head, which opens after `import mmlkit`. The folder
    is written aside and renamed.

    Args:
        model: a MultitaskModel.
        task: a Task, or the name of one of `model.tasks` or of mmlkit's own.
        folder: the path of the folder.

    Raises:
        ValueError: transformers has no form for this head or encoder: a SAN or ranking head, a pair
            that is encoded separately, a sigmoid, or PALs; or the folder holds a model of
            `save_model`.

    Example::

        export_classifier(model, "rte", "rte-classifier")
        pipeline("text-classification", "rte-classifier")({"text": premise, "text_pair":
        hypothesis})
    """
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    if str(folder) and Path(str(folder), "mmlkit.json").expanduser().is_file():
        raise ValueError(
            f"{folder} holds a model of save_model (mmlkit.json), which an export would damage. "
            "Name another folder."
        )
    task = model.known_task(task)
    check_head(model, task)
    head, pals = model.head(task), getattr(model.encoder, "pals", None) is not None
    # A class of the user's own may compute anything, so it is not taken for its base class.
    known = type(head) in (LinearHead, MultiverseHead) and head.pairs == "packed"
    activation = getattr(head, "activation", None)
    if not known or activation or pals:
        raise ValueError(
            f"task {task.name!r} has a {type(head).__name__}"
            f"{f' with activation={activation!r}' if activation else ''}"
            f"{f' with pairs={head.pairs!r}' if head.pairs != 'packed' else ''}"
            f"{' on an encoder with PALs' if pals else ''}; expected a LinearHead or "
            "MultiverseHead on packed input, without activation and PALs. Use save_model instead."
        )
    if type(head) is MultiverseHead:
        head = model.collapse().head(task)
    config = BertConfig(**dataclasses.asdict(model.encoder.config), num_labels=task.num_labels)
    labels = {"num_labels": 1, "problem_type": "regression"}  # pipeline then applies no sigmoid
    if task.kind == "classification":
        labels = _labels(task.labels)
    weight, bias = head.dense.weight.detach(), head.dense.bias.detach()
    encoder = {key: value.detach() for key, value in model.encoder.state_dict().items()}
    if head.pooling == "pooler":
        config.update({**labels, "classifier_dropout": head.dropout.p})
        exported = BertForSequenceClassification(config)
        state = {f"bert.{key}": value for key, value in encoder.items()}
        exported.load_state_dict({**state, "classifier.weight": weight, "classifier.bias": bias})
    else:
        twin = BertModel(config)
        twin.load_state_dict(encoder)
        exported = MultiverseForSequenceClassification.on(
            twin, task.num_labels, num_heads=1, pooling=head.pooling, dropout=head.dropout.p
        )
        exported.config.update(labels)
        exported.head.load_state_dict(
            {"weight": weight[None], "bias": bias[None], "active": torch.tensor([True])}
        )
    with replace_folder(folder, is_encoder_file) as new:
        exported.save_pretrained(new)
        tokenizer = copy.deepcopy(model.tokenizer)
        tokenizer.model_max_length = model.cut()  # pipeline(..., truncation=True) cuts there
        tokenizer.save_pretrained(new)


def _labels(names):
    """The two mappings of transformers' configurations."""
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: i for i, name in enumerate(names)},
    }


class PruningCallback(TrainerCallback, ExportableState):
    """A HeadPruner in the Trainer: it observes every update and prunes when due.

    Its state is in the checkpoint's trainer_state.json, so it is found wherever the Trainer resumes
    from. Leave the Trainer's restore_callback_states_from_checkpoint off, as it is by default: it
    would make a callback without a pruner.

    Args:
        pruner: HeadPruner(model.head, ...).
    """

    def __init__(self, pruner):
        self.pruner, self.seen, self.step = pruner, [], contextlib.ExitStack()

    def state(self):
        """Return the part of trainer_state.json that belongs to the pruner."""
        state = {} if self.pruner is None else self.pruner.state_dict()
        return {
            "args": {},
            "attributes": {
                key: value.tolist() if torch.is_tensor(value) else value
                for key, value in state.items()
            },
        }

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Load the pruner's state if the Trainer resumes.

        Args:
            args: see transformers.TrainerCallback, also for the other methods.
            state: the Trainer's state.
            control: unused.
            model: the model.
            **kwargs: unused.

        Raises:
            ValueError: training runs on several devices, each of which would see other losses and
                keep other heads; the Trainer smooths labels, and so computes the loss itself; the
                pruner's head is not the model's; or the checkpoint has no state of the pruner.
        """
        if args.world_size > 1 or args.n_gpu > 1:
            raise ValueError(
                "pruning follows the losses of one device, but this training runs on "
                f"{max(args.world_size, args.n_gpu)}; set CUDA_VISIBLE_DEVICES to one of them."
            )
        if args.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor is {args.label_smoothing_factor}, with which the Trainer "
                "computes the loss itself, and the model no loss of each head. Leave it at 0."
            )
        if self.pruner is not None and all(one is not self.pruner.head for one in model.modules()):
            raise ValueError(
                "the pruner's head is not part of the model that is trained, so it would be pruned "
                "in place of that model's head. Make the pruner with HeadPruner(model.head, ...)."
            )
        self.model, self.seen = model, []
        model.per_head = None  # of an earlier training
        if state.global_step:
            saved = state.stateful_callbacks.get("PruningCallback")
            if not isinstance(saved, dict) or "sums" not in saved["attributes"]:
                raise ValueError(
                    f"the checkpoint of step {state.global_step} has no state of the pruner in its "
                    "trainer_state.json: it was written without PruningCallback, or by mmlkit 0.1 "
                    "or older. Pruning would start again with heads that are trained already. "
                    "Train from the start, or leave the callback out."
                )
            saved = saved["attributes"]
            self.pruner.load_state_dict(
                {**saved, "sums": torch.tensor(saved["sums"], dtype=torch.float64)}
            )

    def on_substep_end(self, args, state, control, **kwargs):
        """Keep the losses of one micro-batch of gradient accumulation."""
        self.seen.append(self.model.per_head)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Save the dropped heads, which weight decay and momentum would move."""
        self.step.enter_context(self.pruner.head.dropped_heads_unmoved())

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Restore the dropped heads."""
        self.step.close()

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        """Observe one update, the mean over its micro-batches, and prune when due.

        Raises:
            ValueError: the model got no labels, and has computed no losses.
        """
        self.seen.append(self.model.per_head)
        if any(one is None for one in self.seen):
            raise ValueError(
                "the model has no loss of each head, because the Trainer kept the labels from it. "
                "Leave out compute_loss_func."
            )
        self.pruner.observe(torch.stack(self.seen).mean(0))
        self.seen = []
        event = self.pruner.maybe_prune(state.global_step)
        if event is not None and event.dropped and optimizer is not None:
            reset_optimizer_state(
                optimizer, (self.pruner.head.weight, self.pruner.head.bias), event.dropped
            )
