"""Bring your own encoder: the multiverse head, its loss and its pruning on any AutoModel, trained by transformers' Trainer.

The head and the pruner are those of notebooks 03 and 04; here they meet another loop. This is the one module that needs
transformers on import.
"""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel, TrainerCallback
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_callback import ExportableState

from mmlkit.heads.linear import sentence_vector
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import forget

__all__ = ["MultiverseConfig", "MultiverseForSequenceClassification", "PruningCallback"]


class MultiverseConfig(PreTrainedConfig):
    """The encoder's own config and the keywords of MultiverseHead, as two dicts; written and read by transformers."""

    model_type = "mmlkit_multiverse"

    def __init__(self, encoder=None, head=None, **others):
        self.encoder, self.head = encoder or {}, head or {}
        super().__init__(**others)


class MultiverseForSequenceClassification(PreTrainedModel):
    """An encoder of any kind with a MultiverseHead (MML v2, Eqs. 2 to 5); labels in, loss and logits out.

    Make one with `on`; `save_pretrained` and `from_pretrained` keep the weights and the mask of active heads. num_labels=1
    is regression. The loss holds the orthogonality term while training, and the data's part alone in evaluation.
    """

    config_class = MultiverseConfig
    base_model_prefix = "encoder"
    accepts_loss_kwargs = False     # the Trainer then divides by its accumulation steps, so that the penalty counts once

    def __init__(self, config, encoder=None):
        super().__init__(config)
        if encoder is None:
            encoder = AutoConfig.for_model(**config.encoder)
            encoder = AutoModel.from_config(encoder, trust_remote_code=False)
        self.encoder = encoder
        self.head = MultiverseHead(**config.head)
        self.per_head = None        # [A], detached: losses of the last batch, for the pruner
        self.post_init()

    @classmethod
    def on(cls, encoder, num_labels, *, num_heads=None, reads="cls", **head):
        """A model with fresh heads on an encoder.

        encoder: a loaded AutoModel, or a name or folder that AutoModel.from_pretrained opens. num_heads: M, the encoder's
        hidden_size by default, as in the paper. reads: "cls", "mean", or "pooler" where the encoder has one. head: more
        keywords of MultiverseHead. Raises ValueError for an encoder without the pooler that was asked for.
        """
        if isinstance(encoder, (str, Path)):
            encoder = AutoModel.from_pretrained(encoder, trust_remote_code=False)
        if reads == "pooler" and getattr(encoder, "pooler", None) is None:
            raise ValueError(f"{type(encoder).__name__} has no pooler; pass reads='cls' or reads='mean'.")
        size = encoder.config.hidden_size
        head = {"hidden_size": size, "num_labels": num_labels, "num_heads": num_heads or size, "reads": reads, **head}
        return cls(MultiverseConfig(encoder.config.to_dict(), head, num_labels=num_labels), encoder)

    def _init_weights(self, module):
        """Nothing: the encoder brings its weights, and the head draws its own."""

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **inputs):
        """SequenceClassifierOutput of loss (when labels [B] are given) and logits [B,C]."""
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        out = self.encoder(**{name: value for name, value in given.items() if value is not None}, **inputs)
        if attention_mask is None:
            attention_mask = torch.ones(out.last_hidden_state.shape[:2], device=out.last_hidden_state.device)
        kind = "regression" if self.head.num_labels == 1 else "classification"
        batch = SimpleNamespace(attention_mask=attention_mask, task=SimpleNamespace(kind=kind), labels=labels)
        x = sentence_vector(out, batch, self.head.reads)
        if labels is None:
            return SequenceClassifierOutput(logits=self.head(x))
        loss, penalty = self.head.loss((x,), batch), self.head.penalty() if self.training else None
        self.per_head = loss.per_head
        return SequenceClassifierOutput(loss=loss.total if penalty is None else loss.total + penalty, logits=self.head(x))


class PruningCallback(TrainerCallback, ExportableState):
    """A HeadPruner in the Trainer: it observes every update, prunes when due, and is saved in every checkpoint.

    Its state lies in the checkpoint's trainer_state.json, so it is found wherever the Trainer resumes from. Leave the
    Trainer's restore_callback_states_from_checkpoint off, as it is by default: it would make a callback without a pruner.

    Args:
        pruner: HeadPruner(model.head, ...).

    Raises:
        ValueError: when training begins on several devices (each would see other losses and keep other heads), or resumes
            from a checkpoint that has no state of the pruner.
    """

    def __init__(self, pruner):
        self.pruner, self.seen, self.step = pruner, [], contextlib.ExitStack()

    def state(self):
        """Return what the Trainer writes into trainer_state.json."""
        state = {} if self.pruner is None else self.pruner.state_dict()
        return {"args": {}, "attributes": {key: value.tolist() if torch.is_tensor(value) else value for key, value in state.items()}}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Take up the pruner of the checkpoint from which the Trainer resumes."""
        if args.world_size > 1 or args.n_gpu > 1:
            raise ValueError(f"pruning follows the losses of one device, but this training runs on {max(args.world_size, args.n_gpu)}; "
                             "set CUDA_VISIBLE_DEVICES to one of them.")
        self.model, self.seen = model, []
        if state.global_step:
            saved = state.stateful_callbacks.get("PruningCallback")
            if not isinstance(saved, dict) or "sums" not in saved["attributes"]:
                raise ValueError(f"the checkpoint of step {state.global_step} has no state of the pruner in its trainer_state.json: it was "
                                 "written without PruningCallback, or by mmlkit 0.1 or older. Pruning would start afresh with heads that "
                                 "are trained already. Train from the start, or leave the callback out.")
            saved = saved["attributes"]
            self.pruner.load_state_dict({**saved, "sums": torch.tensor(saved["sums"], dtype=torch.float64)})

    def on_substep_end(self, args, state, control, **kwargs):
        """Keep the losses of one micro-batch of gradient accumulation."""
        self.seen.append(self.model.per_head)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Remember the dropped heads, which weight decay and momentum would move."""
        self.step.enter_context(self.pruner.head.dropped_heads_unmoved())

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Put the dropped heads back."""
        self.step.close()

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        """Observe an update, the mean over its micro-batches, and prune when due."""
        self.seen.append(self.model.per_head)
        self.pruner.observe(torch.stack(self.seen).mean(0))
        self.seen = []
        event = self.pruner.maybe_prune(state.global_step)
        if event is not None and event.dropped and optimizer is not None:
            forget(optimizer, (self.pruner.head.weight, self.pruner.head.bias), event.dropped)
