"""Projected attention layers: a small attention per task beside every layer of a shared encoder (Stickland and Murray 2019).

Section 3.1 of the paper, and the CS224N report that took it up. Notebook 09 builds it by hand. Letters: B batch,
T tokens, Q queries (the tokens that are computed), D hidden size, S the projected size.
"""

import dataclasses
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.bert.attention import BertSelfAttention
from mmlkit.bert.model import BertModel
from mmlkit.pals.adapters import HoulsbyAdapters, LowRankLayers
from mmlkit.runtime import replacing, seeded

__all__ = ["ProjectedAttention", "SequentialAttention", "TaskParts", "add_pals", "load_pals", "save_pals"]


class ProjectedAttention(nn.Module):
    """TS(h) = V^D g(V^E h), one task's addition to every layer: h' = LayerNorm(a + FFN(a) + TS(h)) with a = LayerNorm(h + MH(h)).

    g is multi-head attention at the small size, without an output projection; V^E (`down`) and V^D (`up`) are one pair for
    all layers, query, key and value are each layer's own. TS reads the layer's input h and is added without dropout.
    config: the encoder's. size: S, a multiple of num_heads. gelu: put a GELU after V^D, as the authors' code does and no formula
    says. Their code has 6 heads, their paper 12; the number of parameters is the same.
    Raises ValueError when size is not a multiple of num_heads.
    """

    whole_sequence = False

    def __init__(self, config, size=204, num_heads=12, gelu=False):
        super().__init__()
        if num_heads < 1 or size < 1 or size % num_heads:
            raise ValueError(f"size {size} is not a multiple of num_heads {num_heads}: every head gets size / num_heads features. "
                             "204 goes with 12 and with 6.")
        small = dataclasses.replace(config, hidden_size=size, num_attention_heads=num_heads)
        self.down, self.up = nn.Linear(config.hidden_size, size), nn.Linear(size, config.hidden_size)
        self.attention = nn.ModuleList(BertSelfAttention(small) for _ in range(config.num_hidden_layers))
        self.gelu = gelu

    def forward(self, hidden_states, layer=0, mask=None, num_queries=None):
        """TS in this layer: hidden_states [B,T,D] to [B,Q,D]. mask: additive, [B,1,1,T], as BertModel makes it."""
        added = self.up(self.attention[layer](self.down(hidden_states), mask, num_queries))
        return F.gelu(added) if self.gelu else added

    def at_layer(self, layer, hidden_states, mask, num_queries):
        """What the layer adds before its last LayerNorm, [B,Q,D]."""
        return {"beside": self(hidden_states, layer, mask, num_queries)}

    def at_end(self, hidden_states, mask, num_queries):
        """Nothing more."""
        return hidden_states


class SequentialAttention(nn.Module):
    """Projected attention once, on top of the encoder (the CS224N report, section 3.4.2).

    As in the report it turns the last [CLS] vector into TS([CLS]) and nothing stands around it. One vector attends to itself
    alone, so its weight is 1 whatever query and key say: they get no gradient, and TS(x) = V^D (W_v (V^E x + b) + b') + b'', an
    affine map of rank S at most. In front of a linear head it can express nothing that the head cannot; a head that reads
    "pooler" has a tanh between the two. repaired: read all tokens, and add to them instead of replacing.
    """

    def __init__(self, config, size=204, num_heads=12, gelu=False, repaired=False):
        super().__init__()
        self.own = ProjectedAttention(dataclasses.replace(config, num_hidden_layers=1), size, num_heads, gelu)
        self.whole_sequence = repaired

    def at_layer(self, layer, hidden_states, mask, num_queries):
        """Nothing: the layers stay BERT's."""
        return {}

    def at_end(self, hidden_states, mask, num_queries):
        """hidden_states [B,T,D] to [B,Q,D]; as in the report, only the first token changes."""
        if self.whole_sequence:
            return hidden_states[:, :num_queries] + self.own(hidden_states, 0, mask, num_queries)
        return torch.cat([self.own(hidden_states[:, :1]), hidden_states[:, 1:]], dim=1)


_ATTENTION = {"size": 204, "num_heads": 12, "gelu": False}
_KINDS = {"pal": (ProjectedAttention, _ATTENTION), "low_rank": (LowRankLayers, {"size": 100}), "houlsby": (HoulsbyAdapters, {"size": 50}),
          "sequential": (SequentialAttention, _ATTENTION), "sequential_fixed": (SequentialAttention, {**_ATTENTION, "repaired": True})}


class TaskParts(nn.Module):
    """Every task's own part of an encoder; `add_pals` makes it and the encoder holds it as `pals`.

    parts: {task: its TaskPart}. about: what `save_pals` writes down, enough to build them again.
    """

    def __init__(self, parts, about):
        super().__init__()
        self.parts, self.about = nn.ModuleDict(parts), about

    @property
    def stay_trainable(self):
        """Whether a frozen encoder still trains these."""
        return self.about["stay_trainable"]

    def part(self, task):
        """The part of a task, by name. Raises ValueError naming the known ones."""
        if task is None or task not in self.parts:
            raise ValueError(f"task is {task!r}, but this encoder has parts for {list(self.parts)}. Call encoder(..., task=...) with one of them, "
                             "or set encoder.pals = None for the plain encoder.")
        return self.parts[task]


def add_pals(encoder, tasks, size=None, num_heads=None, *, kind="pal", gelu=None, init=None, stay_trainable=False, seed=0):
    """Gives each task projected attention of its own; returns the same encoder, from then on called with task=.

    tasks: names. size: S, by default 204 (low_rank: 100, houlsby: 50). num_heads: 12 by default. gelu: see ProjectedAttention.
    kind: "pal", or for comparison "low_rank", "houlsby" (see adapters.py), "sequential" (the report's, on the last [CLS] vector)
    or "sequential_fixed" (with a residual, on all tokens).
    init: "zero" starts with V^D at zero, so that training begins at exactly the encoder there was; "normal" draws V^D like
    everything else, from N(0, initializer_range). "zero" by default, but "normal" for "sequential", which no residual goes around.
    stay_trainable: `model.freeze_encoder()` and fit(mode="pretrain") leave these parameters trainable; otherwise they freeze with
    the encoder they live in. seed: of the draws. A rate of their own: `make_optimizer(pal_lr=...)`.
    Raises ValueError for an unknown kind or init, arguments the kind does not know, no tasks, or an encoder that has PALs already;
    TypeError for what is no BertModel.

    Example::

        encoder = add_pals(encoder, tasks=["sst", "quora", "sts"], size=204, num_heads=12)
        encoder(input_ids, attention_mask, token_type_ids, task="sst")
    """
    if not isinstance(encoder, BertModel):
        raise TypeError(f"encoder is a {type(encoder).__name__}, expected mmlkit's BertModel, as load_pretrained gives it (of a model, model.encoder).")
    if encoder.pals is not None:
        raise ValueError(f"this encoder already has parts for {list(encoder.pals.parts)}; set encoder.pals = None to take them out first.")
    given = {name: value for name, value in (("size", size), ("num_heads", num_heads), ("gelu", gelu)) if value is not None}
    about = {"kind": kind, "tasks": tasks if isinstance(tasks, str) else list(tasks), "options": given, "stay_trainable": stay_trainable}
    encoder.pals = _build(encoder, about, init, seed)
    return encoder


def _build(encoder, about, init=None, seed=0):
    """The TaskParts that `about` describes, with fresh weights, where the encoder lies."""
    kind, tasks, given = about["kind"], about["tasks"], about["options"]
    init = init or ("normal" if kind == "sequential" else "zero")
    if kind not in _KINDS:
        raise ValueError(f"kind {kind!r} is not one of {list(_KINDS)}.")
    if init not in ("zero", "normal"):
        raise ValueError(f"init {init!r} is not 'zero' (start at the encoder there was) or 'normal'.")
    if isinstance(tasks, str) or not tasks or len(set(tasks)) < len(tasks) or not all(isinstance(task, str) and task for task in tasks):
        raise ValueError(f"tasks is {tasks!r}, expected a list of different names, such as ['sst', 'quora', 'sts'].")
    make, options = _KINDS[kind]
    if not set(given) <= set(options):
        raise ValueError(f"kind {kind!r} takes {list(options)}, so {sorted(set(given) - set(options))} has no meaning; leave it out.")
    options = {**options, **given}
    with seeded(seed):
        parts = {task: make(encoder.config, **options) for task in tasks}
        for name, module in nn.ModuleDict(parts).named_modules():
            if isinstance(module, nn.Linear):
                zero = init == "zero" and name.endswith(".up")
                nn.init.normal_(module.weight, std=0.0 if zero else encoder.config.initializer_range)
                nn.init.zeros_(module.bias)
    return TaskParts(parts, {**about, "options": options}).to(next(encoder.parameters())).train(encoder.training)


def save_pals(encoder, folder):
    """Writes the tasks' own parameters alone, pals.safetensors and pals.json; `load_pals` puts them into the same encoder again.

    Raises ValueError when the encoder has none.
    """
    from safetensors.torch import save_file

    if getattr(encoder, "pals", None) is None:
        raise ValueError("this encoder has nothing of a task's own to save; call add_pals first.")
    folder = Path(folder)
    about = {**encoder.pals.about, "hidden_size": encoder.config.hidden_size, "num_hidden_layers": encoder.config.num_hidden_layers}
    with replacing(folder / "pals.safetensors") as temporary:
        save_file({key: value.detach().contiguous().cpu() for key, value in encoder.pals.parts.state_dict().items()}, temporary)
    with replacing(folder / "pals.json") as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def load_pals(encoder, folder):
    """Puts what `save_pals` wrote into an encoder, in place of any it has; returns the encoder.

    Raises FileNotFoundError when a file is missing, ValueError when one is damaged or belongs to an encoder of other sizes.
    """
    about, tensors = _read(Path(folder))
    ours = {name: getattr(encoder.config, name) for name in ("hidden_size", "num_hidden_layers")}
    sizes = {name: about.pop(name, None) for name in ours}
    if sizes != ours:
        raise ValueError(f"{folder}: these PALs are for an encoder with {sizes}, this one has {ours}. Load the encoder they were trained in.")
    try:
        pals = _build(encoder, about)
        pals.parts.load_state_dict(tensors)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{folder}: pals.json and pals.safetensors do not fit each other ({error}). Save them again.") from error
    encoder.pals = pals
    return encoder


def _read(folder):
    """What the two files hold: a dict, and tensors by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for name in ("pals.json", "pals.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} does not exist. Expected a folder that save_pals wrote, or save_model for an encoder with PALs.")
    try:
        about, tensors = json.loads((folder / "pals.json").read_text(encoding="utf-8")), load_file(folder / "pals.safetensors")
    except (ValueError, SafetensorError) as error:
        raise ValueError(f"{folder}: pals.json or pals.safetensors is damaged ({error}). Copy or save them again.") from error
    if not isinstance(about, dict):
        raise ValueError(f"{folder / 'pals.json'} holds a {type(about).__name__}, expected an object. Save it again.")
    return about, tensors
