"""An encoder with one head per task. One task is the plain single-task case.

The batch carries its task, so there are no task numbers and no "current task".
"""

import contextlib
import json
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from mmlkit.heads import LinearHead, Loss, PairHead
from mmlkit.multiverse import MultiverseHead
from mmlkit.pals import load_pals, save_pals
from mmlkit.pretrained import load_pretrained, save_pretrained
from mmlkit.ranking import RankingHead
from mmlkit.runtime import replacing
from mmlkit.san import SANHead

__all__ = ["Head", "MultitaskModel", "load_model", "save_model"]


class Head(Protocol):
    """What a head has; no base class, any nn.Module with these.

    It may also say which `kinds` of task it is for, by default ("classification", "regression"), and that it
    `gives_probabilities`, not logits.
    """

    needs_tokens: bool      # False: the encoder may compute its last layer for [CLS] only
    num_labels: int
    pairs: str              # how it wants a pair of sentences: "packed" into one input, or "separate"

    def inputs(self, out, batch) -> tuple: ...
    def forward(self, *inputs) -> torch.Tensor: ...
    def loss(self, inputs, batch) -> Loss: ...
    def penalty(self) -> torch.Tensor | None: ...
    def spec(self) -> dict: ...


class MultitaskModel(nn.Module):
    """One shared encoder and a head for each task.

    heads: {task name: head}. tokenizer: the encoder's own when left out.
    Raises ValueError when there is no head or no tokenizer is known on first use.

    Example::

        encoder, tokenizer = load_pretrained("minilm")
        model = MultitaskModel(encoder, {"sst": LinearHead(384, 5)})
    """

    def __init__(self, encoder, heads, tokenizer=None):
        super().__init__()
        if not heads:
            raise ValueError("heads is empty; give one head per task, such as {'sst': LinearHead(384, 5)}.")
        self.encoder = encoder
        self.heads = nn.ModuleDict(heads)
        self._tokenizer = tokenizer
        self.frozen = False

    @property
    def tokenizer(self):
        """The tokenizer that belongs to the encoder."""
        found = self._tokenizer or getattr(self.encoder, "tokenizer", None)
        if found is None:
            raise ValueError("No tokenizer is known for this encoder: pass MultitaskModel(encoder, heads, tokenizer=...).")
        return found

    @property
    def device(self):
        """Where the parameters lie."""
        return next(self.parameters()).device

    def freeze_encoder(self, frozen=True):
        """Trains the heads alone (the handout's `pretrain` mode), or everything again. A frozen encoder has no dropout.

        PALs freeze with the encoder, unless they were added with stay_trainable=True.
        """
        self.frozen = frozen
        for name, parameter in self.encoder.named_parameters():
            if not (frozen and name.startswith("pals.") and self._pals_stay()):
                parameter.requires_grad_(not frozen)
        return self.train(self.training)

    @contextlib.contextmanager
    def encoder_frozen(self, frozen=True):
        """Freeze the encoder inside; afterwards each parameter requires a gradient, or not, as it did before.

        Args:
            frozen: False changes nothing.
        """
        if not frozen:
            yield
            return
        before, required = self.frozen, {name: one.requires_grad for name, one in self.encoder.named_parameters()}
        self.freeze_encoder()
        try:
            yield
        finally:
            self.frozen = before
            for name, parameter in self.encoder.named_parameters():
                parameter.requires_grad_(required[name])
            self.train(self.training)

    def train(self, mode=True):
        """As nn.Module.train, but a frozen encoder stays in eval mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
            if self._pals_stay():
                self.encoder.pals.train(mode)
        return self

    def _pals_stay(self):
        """Whether the encoder has PALs that are trained even where it is frozen."""
        pals = getattr(self.encoder, "pals", None)
        return pals is not None and pals.stay_trainable

    def head(self, task):
        """The head of a task. Raises ValueError naming the known ones, or when the head is for another kind of task."""
        if task.name not in self.heads:
            raise ValueError(f"This model has no head for task {task.name!r}; it has {list(self.heads)}.")
        head = self.heads[task.name]
        kinds = getattr(head, "kinds", ("classification", "regression"))
        if task.kind not in kinds:
            raise ValueError(f"Task {task.name!r} is a {task.kind} task, but its {type(head).__name__} is for {' or '.join(kinds)}; give it another head.")
        if head.pairs == "separate" and not task.is_pair:
            raise ValueError(f"The {type(head).__name__} of task {task.name!r} reads two sentences encoded apart, but this task has one text, "
                             f"{task.text_columns[0]!r}; give it a head that reads one, such as LinearHead.")
        return head

    def collapse(self):
        """The same model with every multiverse head as one LinearHead or PairHead (MML v2, Eq. 5): equal scores, and inference costs nothing."""
        plain = {}
        for task, head in self.heads.items():
            if hasattr(head, "collapse"):
                sizes = dict(hidden_size=head.hidden_size, num_labels=head.num_labels, dropout=head.dropout.p, reads=head.reads)
                single = LinearHead(**sizes) if head.pairs == "packed" else PairHead(**sizes)
                (single if head.pairs == "packed" else single.linear).dense = head.collapse()
                head = single
            plain[task] = head
        return MultitaskModel(self.encoder, plain, self._tokenizer).train(self.training)

    def _inputs(self, batch):
        head = self.head(batch.task)
        asked = dict(first_token_only=not head.needs_tokens)
        if getattr(self.encoder, "pals", None) is not None:
            asked["task"] = batch.task.name
        with torch.set_grad_enabled(torch.is_grad_enabled() and (not self.frozen or self._pals_stay())):
            inputs = [head.inputs(self.encoder(part.input_ids, part.attention_mask, part.token_type_ids, **asked), part)
                      for part in (batch, batch.second) if part is not None]
        return head, sum(inputs, ())        # two sentences encoded apart: what the head reads of the one, then of the other

    def forward(self, batch):
        """Scores [B,C] of a batch."""
        head, inputs = self._inputs(batch)
        return head(*inputs)

    def loss(self, batch):
        """The data part of the loss of a batch."""
        head, inputs = self._inputs(batch)
        return head.loss(inputs, batch)


_HEADS = {"linear": LinearHead, "pair": PairHead, "multiverse": MultiverseHead, "san": SANHead, "ranking": RankingHead}


def save_model(model, folder, about=None):
    """Writes encoder, tokenizer and heads into a folder that `load_model` and `mmlkit predict` open.

    about: plain values to keep beside it (seed, metrics). The encoder alone opens with transformers.AutoModel too.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    save_pretrained(model.encoder, model.tokenizer, folder)
    with replacing(folder / "heads.safetensors") as temporary:
        save_file({key: value.detach().contiguous().cpu() for key, value in model.heads.state_dict().items()}, temporary)
    pals = getattr(model.encoder, "pals", None) is not None
    if pals:
        save_pals(model.encoder, folder)
    described = {"heads": {task: head.spec() for task, head in model.heads.items()}, "pals": pals, "about": about or {}}
    with replacing(folder / "mmlkit.json") as temporary:
        temporary.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def load_model(folder):
    """The MultitaskModel that save_model wrote, in eval mode.

    Raises FileNotFoundError when the folder holds no heads, ValueError when a head is of an unknown type.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    if not (folder / "mmlkit.json").is_file():
        raise FileNotFoundError(f"{folder} holds no trained model: mmlkit.json is missing. Expected a folder written by save_model.")
    heads, described = {}, json.loads((folder / "mmlkit.json").read_text(encoding="utf-8"))
    for task, spec in described["heads"].items():
        kind = spec.pop("type")
        if kind not in _HEADS:
            raise ValueError(f"{folder}/mmlkit.json: head type {kind!r} of task {task!r} is not one of {list(_HEADS)}.")
        heads[task] = _HEADS[kind](**spec)
    encoder, tokenizer = load_pretrained(folder)
    if described.get("pals"):
        load_pals(encoder, folder)
    model = MultitaskModel(encoder, heads, tokenizer)
    model.heads.load_state_dict(load_file(folder / "heads.safetensors"))
    return model.eval()
