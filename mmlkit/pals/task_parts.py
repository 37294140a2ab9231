"""Add, save and load the modules that each task has in a shared encoder.

Notebook 11 compares all kinds. The encoder holds them as `encoder.pals`, a `TaskParts`, and uses
the modules of the task that it is called with.
"""

import functools
import inspect
import json
from pathlib import Path

from torch import nn

from mmlkit.files import (
    COPY_AGAIN,
    read_json_object,
    read_tensors,
    savable,
    tensor_mismatches,
    write_file,
)
from mmlkit.pals.adapters import HoulsbyAdapters, LowRankLayers
from mmlkit.pals.projected import ProjectedAttention
from mmlkit.pals.sequential import SequentialAttention
from mmlkit.runtime import seeded

__all__ = ["TaskParts", "add_pals", "load_pals", "save_pals"]

_KINDS = {
    "pal": ProjectedAttention,
    "low_rank": LowRankLayers,
    "houlsby": HoulsbyAdapters,
    "sequential": SequentialAttention,
    "sequential_fixed": functools.partial(SequentialAttention, repaired=True),
}


class TaskParts(nn.Module):
    """Hold one `TaskPart` for each task.

    Args:
        encoder_config: the encoder's BertConfig.
        kind, tasks, init, stay_trainable, seed: see `add_pals`.
        options: keyword arguments of the kind.

    Attributes:
        parts: nn.ModuleDict from a task's name to its TaskPart.
        config: a dict of plain values from which `load_pals` builds the same modules again.
    """

    def __init__(self, encoder_config, kind, tasks, options, stay_trainable, init=None, seed=0):
        super().__init__()
        init = init or ("normal" if kind == "sequential" else "zero")
        from_zero = {"zero": True, "normal": False}[init]
        self.stay_trainable, std = stay_trainable, encoder_config.initializer_range
        call = inspect.signature(_KINDS[kind]).bind(encoder_config, **options)
        call.apply_defaults()  # so that a folder keeps its meaning when the defaults change
        options = {name: value for name, value in call.arguments.items() if name != "config"}
        self.config = {"kind": kind, "tasks": list(tasks), "options": options}
        self.config["stay_trainable"] = stay_trainable
        with seeded(seed):
            self.parts = nn.ModuleDict(
                {name: _KINDS[kind](encoder_config, **options) for name in tasks}
            )
            for name, module in self.parts.named_modules():
                if isinstance(module, nn.Linear):
                    zero = from_zero and name.endswith(".up")
                    nn.init.normal_(module.weight, std=0.0 if zero else std)
                    nn.init.zeros_(module.bias)

    def part(self, task):
        """Return the modules of a task.

        Args:
            task: its name.

        Returns:
            A TaskPart.

        Raises:
            ValueError: the task has none; the message names the known tasks.
        """
        if task not in self.parts:
            raise ValueError(
                f"task is {task!r}, but this encoder has modules for {list(self.parts)}. Name one "
                "of them, or set encoder.pals = None for the plain encoder."
            )
        return self.parts[task]


def add_pals(
    encoder,
    tasks,
    size=None,
    num_heads=None,
    *,
    kind="pal",
    gelu=None,
    init=None,
    stay_trainable=False,
    seed=0,
):
    """Give each task its own projected attention; the encoder is then called with task=.

    `make_optimizer(pal_lr=...)` sets a learning rate for these modules.

    Args:
        encoder: a BertModel.
        tasks: names of the tasks.
        size: S, by default 204 (low_rank: 100, houlsby: 50).
        num_heads: attention heads, by default 12.
        kind: "pal"; for comparison "low_rank" and "houlsby" (see `adapters`), "sequential" (the
            CS224N report's, on the last [CLS] vector) or "sequential_fixed" (with a residual, on
            all tokens).
        gelu: see `ProjectedAttention`; by default False.
        init: "zero" starts with V^D = 0, so that training begins at exactly the given encoder;
            "normal" draws V^D, like all other weights, from N(0, initializer_range²). By default
            "zero", but "normal" for "sequential", which has no residual.
        stay_trainable: train these modules while the encoder is frozen, see
            `MultitaskModel.freeze_encoder`. By default they freeze with it.
        seed: of the weights that are drawn.

    Returns:
        The same encoder.

    Raises:
        ValueError: the encoder has such modules already.

    Example::

        encoder = add_pals(encoder, tasks=["sst", "quora", "sts"], size=204, num_heads=12)
        encoder(input_ids, attention_mask, token_type_ids, task="sst")
    """
    if encoder.pals is not None:
        raise ValueError(
            f"this encoder already has modules for {list(encoder.pals.parts)}; set encoder.pals = "
            "None to remove them."
        )
    given = {"size": size, "num_heads": num_heads, "gelu": gelu}
    options = {name: value for name, value in given.items() if value is not None}
    pals = TaskParts(encoder.config, kind, tasks, options, stay_trainable, init, seed)
    return _attach(pals, encoder)


def save_pals(encoder, folder):
    """Write the tasks' modules alone, as pals.safetensors and pals.json.

    Args:
        encoder: a BertModel with `add_pals`.
        folder: where the files go.

    Raises:
        ValueError: some numbers are not finite (from `savable`); nothing was written.
    """
    from safetensors.torch import save

    folder, state = Path(folder).expanduser(), savable(encoder.pals.parts.state_dict())
    # Where it is killed, no file of an older encoder stands beside new ones.
    (folder / "pals.json").unlink(missing_ok=True)
    write_file(folder / "pals.safetensors", save(state))
    write_file(folder / "pals.json", json.dumps(encoder.pals.config, indent=2) + "\n")


def load_pals(encoder, folder):
    """Read what `save_pals` wrote into the same encoder, in place of any modules that it has.

    Args:
        encoder: a BertModel.
        folder: a folder that save_pals or save_model wrote.

    Returns:
        The same encoder.

    Raises:
        FileNotFoundError: a file is missing (from functions that this one calls).
        ValueError: a file is damaged, or belongs to an encoder of other sizes.
    """
    folder = Path(folder).expanduser()
    config = read_json_object(folder / "pals.json")
    tensors = read_tensors(folder / "pals.safetensors")
    try:
        pals = TaskParts(encoder.config, **config)
        if found := tensor_mismatches(pals.parts.state_dict(), tensors, "pals.json"):
            raise ValueError(f"{'; '.join(found[:5])}.")
        pals.parts.load_state_dict(tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder}: pals.safetensors does not fit pals.json and this encoder: {error!s:.500} "
            f"{COPY_AGAIN}"
        ) from error
    return _attach(pals, encoder)


def _attach(pals, encoder):
    """Put the modules into the encoder, with its device, dtype and mode."""
    encoder.pals = pals.to(next(encoder.parameters())).train(encoder.training)
    return encoder
