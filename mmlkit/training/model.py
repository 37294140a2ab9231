"""An encoder with one head per task. One task is the plain single-task case.

The batch carries its task, so there are no task numbers and no "current task".
"""

import contextlib
import json
import math
from typing import Protocol

import torch
from torch import nn

from mmlkit.bert.pretrained import load_pretrained, write_pretrained
from mmlkit.folders import check_model_folder, misfits, read_object, replacing_folder, stale_file
from mmlkit.heads.linear import LinearHead, Loss, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.projected import load_pals, save_pals

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
_FILES = ("mmlkit.json", "heads.safetensors", "pals.json", "pals.safetensors")
_AGAIN = "Copy the whole folder again, or save the model again."


def save_model(model, folder, about=None):
    """Write encoder, tokenizer and heads into a folder that `load_model` and `mmlkit predict` open.

    The folder is written aside and moved into place, so it holds the old model or the new one,
    never a mixture. Files in it that belong to no model stay. The encoder alone opens with
    transformers.AutoModel too.

    Args:
        model: a MultitaskModel.
        folder: where the files go.
        about: plain values to keep with the model (seed, metrics).

    Raises:
        TypeError: `about` holds a value that JSON has no form for; nothing was written.
        OSError: something could not be written; what was there before is unchanged.
    """
    from safetensors.torch import save_file

    pals = getattr(model.encoder, "pals", None) is not None
    described = {"heads": {task: head.spec() for task, head in model.heads.items()}, "pals": pals,
                 "about": about or {}}
    try:
        text = json.dumps(described, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise TypeError(f"about={about!r} cannot be written as JSON ({error}). Expected plain "
                        "values in dicts with texts as keys: write x.item() for a number of numpy "
                        "or torch, and x.tolist() for an array.") from error
    heads = {key: value.detach().contiguous().cpu()
             for key, value in model.heads.state_dict().items()}
    with replacing_folder(folder, lambda name: stale_file(name) or name in _FILES) as new:
        write_pretrained(model.encoder, model.tokenizer, new)
        save_file(heads, new / "heads.safetensors")
        if pals:
            save_pals(model.encoder, new)
        (new / "mmlkit.json").write_text(text, encoding="utf-8")


def load_model(folder):
    """Return the MultitaskModel that save_model wrote, in eval mode.

    Raises:
        FileNotFoundError: a file of the folder is missing.
        ValueError: a file is damaged, or the files do not belong together; the message names it.
    """
    folder = check_model_folder(folder)
    path = folder / "mmlkit.json"
    described = read_object(path)
    specs, pals = described.get("heads"), described.get("pals", False)
    if not isinstance(specs, dict) or not specs or not isinstance(pals, bool):
        raise ValueError(f"{path}: heads is {str(specs)[:80]}, pals is {str(pals)[:80]}; expected "
                         f"an object with one head per task, and true or false. {_AGAIN}")
    encoder, tokenizer = load_pretrained(folder)
    if pals:
        _load_pals(encoder, folder, specs)
    tensors = _read_heads(folder / "heads.safetensors")
    heads = {task: _build_head(task, spec, encoder.config.hidden_size, tensors, path)
             for task, spec in specs.items()}
    try:
        model = MultitaskModel(encoder, heads, tokenizer)
    except KeyError as error:       # nn.ModuleDict on a name such as "a.b" or "keys"
        raise ValueError(f"{path}: a task has a name that no module can have: {error}. "
                         f"{_AGAIN}") from error
    expected = model.heads.state_dict()
    found = [f"{key} is missing" for key in expected if key not in tensors]
    found += [f"{key} is of no head" for key in tensors if key not in expected]
    found += misfits(expected, tensors, "mmlkit.json")
    found += [f"{key}: no head is active" for key, mask in tensors.items()
              if mask.dtype == torch.bool and not mask.any()]
    if found:
        raise ValueError(f"{folder / 'heads.safetensors'} does not fit mmlkit.json: "
                         f"{'; '.join(found[:5])}. {_AGAIN}")
    model.heads.load_state_dict(tensors)
    return model.eval()


def _load_pals(encoder, folder, tasks):
    pals = load_pals(encoder, folder).pals
    if without := sorted(set(tasks) - set(pals.parts)):
        raise ValueError(f"{folder / 'pals.json'} has parts for {list(pals.parts)}, but "
                         f"mmlkit.json has a head for {without} too. {_AGAIN}")
    if found := misfits(pals.state_dict(), pals.state_dict(), "pals.json"):
        raise ValueError(f"{folder / 'pals.safetensors'}: {'; '.join(found[:5])}. {_AGAIN}")


def _read_heads(path):
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. Expected the weights of the heads. {_AGAIN}")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}): it is truncated or "
                         f"damaged. {_AGAIN}") from error


def _build_head(task, spec, hidden_size, tensors, path):
    """The head that a spec describes; its sizes are checked first, as they decide about memory."""
    where = f"{path}: the head of task {task!r}"
    spec = dict(spec) if isinstance(spec, dict) else {"type": spec}
    kind = spec.pop("type", None)
    if not isinstance(kind, str) or kind not in _HEADS:
        raise ValueError(f"{path}: head type {str(kind)[:80]!r} of task {task!r} is not one of "
                         f"{list(_HEADS)}. {_AGAIN}")
    for name, value in spec.items():
        number = type(value) in (int, float) and math.isfinite(value) and abs(value) <= 1e9
        if not (number or value is None or isinstance(value, str)):
            raise ValueError(f"{where} has {name} {str(value)[:80]!r}, expected a finite number "
                             f"or a word. {_AGAIN}")
    if spec.get("hidden_size") != hidden_size:
        raise ValueError(f"{where} has hidden_size {spec.get('hidden_size')!r}, but the encoder of "
                         f"config.json has {hidden_size}. {_AGAIN}")
    asked = math.prod(spec[name] for name in ("hidden_size", "num_labels", "num_heads")
                      if isinstance(spec.get(name), int))
    held = sum(tensor.numel() for key, tensor in tensors.items() if key.startswith(f"{task}."))
    if asked > held:
        raise ValueError(f"{where} asks for {asked:,} weights or more, but heads.safetensors holds "
                         f"{held:,} for it. {_AGAIN}")
    try:
        return _HEADS[kind](**spec)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where} cannot be built from {str(spec)[:200]}: {error} "
                         f"{_AGAIN}") from error
