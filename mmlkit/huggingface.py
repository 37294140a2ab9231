"""The multiverse head for users of transformers: any AutoModel, the Trainer, and export.

Notebooks 03 and 04 build the head and the pruner by hand; the code of both is in `mmlkit.heads`.
This module imports the models of transformers, which takes seconds, so `import mmlkit` leaves it
out. Once it is imported, transformers' Auto classes and `pipeline` open its models.
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
    AutoModelForTextEncoding,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedConfig,
    PreTrainedModel,
    TrainerCallback,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_callback import ExportableState
from transformers.utils import can_return_tuple

from mmlkit.bert.pretrained import refuse_model_folder
from mmlkit.files import replace_folder, savable
from mmlkit.heads.linear import POOLINGS, LinearHead, data_loss, sentence_vector
from mmlkit.heads.multiverse import IGNORED, MultiverseHead
from mmlkit.heads.pruning import reset_optimizer_state
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import in_eval_mode
from mmlkit.training.step import refuse_half_precision

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
        head: the keywords of MultiverseHead without num_labels, a dict.
        **others: see transformers.PreTrainedConfig.
    """

    model_type = "mmlkit_multiverse"

    def __init__(self, encoder=None, head=None, **others):
        self.encoder, self.head = encoder or {}, head or {}
        self.opens_after = "import mmlkit.huggingface"
        super().__init__(**others)


class MultiverseForSequenceClassification(PreTrainedModel):
    """An encoder of any kind with a MultiverseHead (MML v2, Eqs. 2 to 5).

    Make one with `on`. `save_pretrained` and `from_pretrained` keep the weights and the mask of
    active heads, and transformers' AutoModelForSequenceClassification opens the folder too.
    num_labels=1 is a regression. In training, the loss is the sum of the heads' losses and the
    orthogonality term; in evaluation it is that of the logits, which the number of active heads
    does not change. With label_smoothing_factor or compute_loss_func the Trainer computes a loss of
    its own, without the heads' losses and that term.

    Args:
        config: a MultiverseConfig.
        encoder: the loaded encoder; by default one of the configuration, without weights.

    Raises:
        ValueError: the configuration has no encoder: it is that of another model.
    """

    config_class = MultiverseConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    # The Trainer then divides by its accumulation steps, so that the penalty counts once.
    accepts_loss_kwargs = False

    def __init__(self, config, encoder=None):
        if config.num_labels == 1 and config.problem_type is None:
            config.problem_type = "regression"  # `pipeline` then applies no sigmoid
        attention = config._attn_implementation  # None where the user has not named one
        super().__init__(config)
        if encoder is None:
            if not config.encoder:
                raise ValueError(
                    "this folder has an encoder without heads of mmlkit: open it with "
                    "MultiverseForSequenceClassification.on(folder, num_labels=...)."
                )
            own = AutoConfig.for_model(**config.encoder)
            encoder = _auto_class(own).from_config(
                own,
                attn_implementation=attention,
                trust_remote_code=False,
            )
        self.encoder, self.num_labels = encoder, config.num_labels
        self.head = MultiverseHead(num_labels=config.num_labels, **config.head)
        self.per_head = None  # [A], detached: losses of the last batch, for the pruner
        self.post_init()

    @classmethod
    def on(cls, encoder, num_labels=None, *, num_heads=None, pooling="cls", id2label=None, **head):
        """Put fresh heads on an encoder.

        Args:
            encoder: a loaded AutoModel, or a name or folder for AutoModel.from_pretrained, which is
                loaded in fp32.
            num_labels: C; the length of id2label by default.
            num_heads: M; the encoder's hidden_size by default, as in the paper.
            pooling: "cls", "mean", or "pooler" where the encoder has one.
            id2label: {index: label name}, kept in the configuration.
            **head: further keywords of MultiverseHead.

        Returns:
            The model, in the encoder's mode: that of `from_pretrained` is eval.

        Raises:
            ValueError: the pooling would read a token that has seen no other one; or
                `from_pretrained` would not open this encoder again (from private functions).
        """
        if isinstance(encoder, (str, Path)):
            auto = _auto_class(AutoConfig.from_pretrained(encoder, trust_remote_code=False))
            encoder = auto.from_pretrained(encoder, dtype=torch.float32, trust_remote_code=False)
        _check_encoder(encoder)
        if not POOLINGS[pooling] and _is_causal(encoder):
            raise ValueError(
                f"pooling={pooling!r} reads the first token, which has seen no other one in this "
                "causal model. Use pooling='mean'."
            )
        size = encoder.config.hidden_size
        labels = _label_names(id2label) if id2label else {"num_labels": num_labels}
        config = MultiverseConfig(
            encoder.config.to_dict(),
            {"hidden_size": size, "num_heads": num_heads or size, "pooling": pooling, **head},
            **labels,
        )
        model = cls(config, encoder)
        model.head.to(encoder.device, torch.promote_types(encoder.dtype, torch.float32))
        return model.train(encoder.training)

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

    @can_return_tuple
    def forward(
        self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **inputs
    ):
        """Compute logits, and with labels the loss.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T].
            token_type_ids: [B, T].
            labels: [B]; scores also [B, 1]. A label below 0 is unknown, and has no part in the
                loss.
            **inputs: further inputs of the encoder.

        Returns:
            SequenceClassifierOutput with loss, logits [B, C], and the encoder's hidden_states and
            attentions where they were asked for; a tuple with return_dict=False.
        """
        if getattr(self.encoder.config, "type_vocab_size", 0) == 1:
            token_type_ids = None  # as in mmlkit's BertModel
        inputs |= {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
        }
        inputs = {name: value for name, value in inputs.items() if value is not None}
        out = self.encoder(**inputs, return_dict=True)
        if attention_mask is None:
            attention_mask = out.last_hidden_state.new_ones(out.last_hidden_state.shape[:2])
        kind = "regression" if self.num_labels == 1 else "classification"
        batch = SimpleNamespace(attention_mask=attention_mask, task=SimpleNamespace(kind=kind))
        x = sentence_vector(out, batch, self.head.pooling).to(self.head.weight.dtype)
        logits, loss = self.head(x), None
        if labels is not None:
            batch.labels = self._checked(labels.reshape(-1), len(x))  # scores may come as [B, 1]
            loss = self._loss(x, batch) if self.training else data_loss(logits, batch)
        more = {name: getattr(out, name, None) for name in ("hidden_states", "attentions")}
        return SequenceClassifierOutput(loss=loss, logits=logits, **more)

    def _checked(self, labels, rows):
        """Return labels of which torch leaves out the unknown ones, below 0 as on the hub."""
        if self.num_labels == 1:
            return labels
        if labels.is_floating_point() or len(labels) != rows:
            raise ValueError(
                f"{len(labels)} labels of {labels.dtype} came with {rows} rows, expected the index "
                "of one label for each row. Several labels of a row are not supported."
            )
        # A GPU would wait, and a wrong index ends the process there: it reads the first batch.
        if (labels.is_cpu or self.per_head is None) and labels.max() >= self.num_labels:
            raise ValueError(
                f"label {int(labels.max())} came, expected 0 to {self.num_labels - 1}, or below 0 "
                "where it is unknown."
            )
        return labels.where(labels >= 0, IGNORED)

    def _loss(self, x, batch):
        loss, penalty = self.head.loss((x,), batch), self.head.penalty()
        self.per_head = loss.per_head
        return loss.total if penalty is None else loss.total + penalty


def _auto_class(config):
    """Return the class of transformers that makes an encoder, that of T5 without its decoder."""
    if isinstance(config, MultiverseConfig):
        raise ValueError(
            "this encoder has multiverse heads already: open its folder with "
            "MultiverseForSequenceClassification.from_pretrained(folder)."
        )
    known = type(config) in AutoModelForTextEncoding._model_mapping
    return AutoModelForTextEncoding if known else AutoModel


def _is_causal(encoder):
    """Return whether the first token is the same beside other tokens, in Mamba as in GPT."""
    tokens = torch.tensor([[0, 1, 2], [0, 1, 3]], device=encoder.device)
    with in_eval_mode(encoder), torch.no_grad():
        first, other = encoder(input_ids=tokens).last_hidden_state[:, 0]
    return torch.allclose(first, other)


def _check_encoder(encoder):
    """Refuse an encoder in whose place `from_pretrained` would make another model."""
    auto, config = _auto_class(encoder.config), encoder.config
    made = auto._model_mapping.get(type(config), object)
    plain = getattr(encoder, "_orig_mod", encoder)  # of torch.compile
    if not isinstance(plain, made) or (config.is_encoder_decoder and auto is AutoModel):
        raise ValueError(
            f"{type(plain).__name__} is not the encoder that {auto.__name__} makes. Pass a "
            "T5EncoderModel in place of a T5Model, the base_model of a classifier, or a model "
            "without a decoder. PEFT comes after the heads: get_peft_model(model, ...)."
        )


AutoConfig.register(MultiverseConfig.model_type, MultiverseConfig)
AutoModelForSequenceClassification.register(MultiverseConfig, MultiverseForSequenceClassification)


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
        state = {
            key: value.tolist() if torch.is_tensor(value) else value
            for key, value in self.pruner.state_dict().items()
        }
        return {"args": {}, "attributes": state}

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
                keep other heads; the pruner's head is not trained; or weights are in half
                precision.
            KeyError: the Trainer resumes from a checkpoint without the state of a pruner.
        """
        if args.world_size > 1 or args.n_gpu > 1:
            raise ValueError(
                "pruning follows the losses of one device, but this training runs on "
                f"{max(args.world_size, args.n_gpu)}; set CUDA_VISIBLE_DEVICES to one of them."
            )
        parts = dict(model.named_modules())
        heads = {
            name: one
            for name, one in parts.items()
            if isinstance(one, MultiverseHead) and one.weight.requires_grad
        }
        if all(one is not self.pruner.head for one in heads.values()):  # PEFT trains a copy
            advice = "With PEFT, pass LoraConfig(modules_to_save=['head'], ...)."
            if heads:
                advice = (
                    "Make the pruner with HeadPruner(model.get_submodule(name), ...), name one of "
                    f"{list(heads)}, and give the Trainer model=model: model_init makes new heads."
                )
            raise ValueError(f"the pruner's head is none of those that are trained. {advice}")
        refuse_half_precision(model.parameters())
        self.seen = []
        self.model = next(  # inside PEFT's wrapper, for example
            one for one in parts.values() if isinstance(one, MultiverseForSequenceClassification)
        )
        self.model.per_head = None  # of an earlier training
        if state.global_step:
            saved = state.stateful_callbacks["PruningCallback"]
            self.pruner.load_state_dict(saved["attributes"])

    def on_substep_end(self, args, state, control, **kwargs):
        """Keep the losses of one micro-batch of gradient accumulation."""
        self._see()

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Save the dropped heads, which weight decay and momentum would move."""
        self.step.enter_context(self.pruner.head.dropped_heads_unmoved())

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Restore the dropped heads."""
        self.step.close()

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        """Observe one update, the mean over its micro-batches, and prune when due."""
        self._see()
        self.pruner.observe(torch.stack(self.seen).mean(0))
        self.seen = []
        event = self.pruner.maybe_prune(state.global_step)
        if event is not None and optimizer is not None:
            parameters = self.pruner.head.weight, self.pruner.head.bias
            reset_optimizer_state(optimizer, parameters, event.dropped)

    def _see(self):
        if self.model.per_head is None:
            raise ValueError(
                "the model got no labels, so that no head has a loss. Leave out "
                "label_smoothing_factor and compute_loss_func, which keep the labels from it."
            )
        self.seen.append(self.model.per_head)


def export_classifier(model, task, folder):
    """Write one task's classifier for transformers' pipeline("text-classification", folder).

    Multiverse heads are collapsed (MML v2, Eq. 5). A head with pooling="pooler" becomes
    transformers' BertForSequenceClassification and needs nothing of mmlkit. Any other becomes a
    MultiverseForSequenceClassification with one head, which opens after `import
    mmlkit.huggingface`. The folder is written aside and renamed. `pipeline` cuts a row as `predict`
    does if it is called with truncation=True.

    Args:
        model: a MultitaskModel.
        task: a Task, or the name of one of `model.tasks` or of mmlkit's own.
        folder: the path of the folder.

    Raises:
        ValueError: transformers has no form for this head or encoder: a SAN or ranking head, a pair
            that is encoded separately, a sigmoid, or PALs; the folder holds a model of
            `save_model` (from `refuse_model_folder`); or a weight is not finite (from `savable`).

    Example::

        export_classifier(model, "rte", "rte-classifier")
        classify = pipeline("text-classification", "rte-classifier")
        classify({"text": premise, "text_pair": hypothesis}, truncation=True)
    """
    refuse_model_folder(folder)
    task = model.known_task(task)
    # The originals, where torch.compile wrapped them.
    head, encoder = (getattr(one, "_orig_mod", one) for one in (model.head(task), model.encoder))
    # A class of the user's own may compute anything, so it is not taken for its base class.
    known = type(head) in (LinearHead, MultiverseHead) and head.pairs == "packed"
    if not known or getattr(head, "activation", None) or encoder.pals is not None:
        raise ValueError(
            f"task {task.name!r} has a {type(head).__name__}; expected a LinearHead or "
            "MultiverseHead on packed input, without activation, on an encoder without PALs. Use "
            "save_model instead."
        )
    with seeded(0):  # the first values of the layers, which are replaced, draw random numbers
        exported = _exported(encoder, task, model.collapse().head(task))
    savable(exported.state_dict())
    with replace_folder(folder) as new:
        exported.save_pretrained(new)
        tokenizer = copy.deepcopy(model.tokenizer)
        tokenizer.model_max_length = model.cut()  # pipeline(..., truncation=True) cuts there
        tokenizer.save_pretrained(new)


def _exported(encoder, task, head):
    """Return transformers' model with the weights of the encoder and of a LinearHead."""
    labels = {"num_labels": 1, "problem_type": "regression"}  # pipeline then applies no sigmoid
    if task.kind == "classification":
        labels = _label_names(dict(enumerate(task.labels)))
    config = BertConfig(**dataclasses.asdict(encoder.config))
    weight, bias, state = head.dense.weight.data, head.dense.bias.data, encoder.state_dict()
    if head.pooling == "pooler":
        config.update({**labels, "classifier_dropout": head.dropout.p})
        exported = BertForSequenceClassification(config)
        state = {f"bert.{key}": value for key, value in state.items()}
        exported.load_state_dict({**state, "classifier.weight": weight, "classifier.bias": bias})
        return exported
    twin = BertModel(config)
    twin.load_state_dict(state)
    exported = MultiverseForSequenceClassification.on(
        twin, task.num_labels, num_heads=1, pooling=head.pooling, dropout=head.dropout.p
    )
    exported.config.update(labels)
    exported.head.load_state_dict(
        {"weight": weight[None], "bias": bias[None], "active": torch.tensor([True])}
    )
    return exported


def _label_names(id2label):
    """Return the names of labels as transformers' configurations hold them."""
    return {"id2label": id2label, "label2id": {name: i for i, name in id2label.items()}}
