"""Models in folders: encoder, tokenizer and heads, as safetensors and JSON."""

import json
import math

import torch

from mmlkit.bert.pretrained import load_pretrained, write_pretrained
from mmlkit.data.tasks import task_from_config
from mmlkit.files import (
    COPY_AGAIN,
    check_model_folder,
    is_encoder_file,
    read_json_object,
    read_tensors,
    replace_folder,
    tensor_mismatches,
)
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import load_pals, save_pals
from mmlkit.runtime import place, seeded, shapes_only
from mmlkit.training.arguments import check_model
from mmlkit.training.model import MultitaskModel

__all__ = ["load_model", "save_model"]

HEADS = (LinearHead, PairHead, MultiverseHead, SANHead, RankingHead)
FILES = ("mmlkit.json", "heads.safetensors", "pals.json", "pals.safetensors")


def save_model(model, folder, metadata=None):
    """Write encoder, tokenizer, heads and tasks into a folder that `load_model` opens.

    The folder is written aside and renamed, so it holds the old model or the new one, never a
    mixture. Files in it that belong to no model stay. A head of two tasks is written twice, and
    opens as two heads. Tasks are those of `model.tasks`. The encoder alone opens with
    transformers.AutoModel too. Do not open the folder with `pipeline`, which finds no classifier
    in it and makes a random one: `export_classifier` writes a folder for `pipeline`.

    Args:
        model: a MultitaskModel.
        folder: the path of the folder.
        metadata: plain values to keep with the model, such as the seed and metrics.

    Raises:
        TypeError: metadata or a head's configuration cannot be written as JSON; nothing was
            written.
        ValueError: the weights do not fit the configuration of the encoder or of a head, so that
            nobody could open the folder, which is unchanged (from functions that this one calls).
        OSError: a file could not be written; the folder is unchanged.
    """
    from safetensors.torch import save_file

    check_model(model)
    pals = getattr(model.encoder, "pals", None) is not None
    modules = {task: getattr(head, "_orig_mod", head) for task, head in model.heads.items()}
    heads = {
        task: {"type": type(head).__name__, **head.to_config()} for task, head in modules.items()
    }
    content = {
        "heads": heads,
        "tasks": {name: task.to_config() for name, task in model.tasks.items()},
        "pals": pals,
        "max_length": model.max_length,
        "metadata": metadata or {},
    }
    try:
        text = json.dumps(content, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"metadata={metadata!r} or a head's to_config() cannot be written as JSON ({error}). "
            "Expected plain values in dicts with texts as keys: write x.item() for a number of "
            "numpy or torch, and x.tolist() for an array."
        ) from error
    state = torch.nn.ModuleDict(modules).state_dict()
    _check_saved(modules, state)
    with replace_folder(folder, lambda name: is_encoder_file(name) or name in FILES) as new:
        write_pretrained(model.encoder, model.tokenizer, new)
        save_file(
            # copies: safetensors refuses tensors that share memory, as those of two tasks may
            {key: value.detach().cpu().contiguous().clone() for key, value in state.items()},
            new / "heads.safetensors",
        )
        if pals:
            save_pals(model.encoder, new)
        (new / "mmlkit.json").write_text(text, encoding="utf-8")


def _check_saved(heads, state):
    """Refuse weights of mmlkit's own heads that `load_model` would refuse."""
    own = {task: head for task, head in heads.items() if type(head) in HEADS}
    with shapes_only():
        rebuilt = {task: type(head)(**head.to_config()) for task, head in own.items()}
        expected = torch.nn.ModuleDict(rebuilt).state_dict()
    state = {key: value for key, value in state.items() if key.split(".")[0] in own}
    if found := tensor_mismatches(expected, state, "to_config()", ""):
        raise ValueError(
            f"the heads could not be opened again: {'; '.join(found[:3])}. Nothing was written. "
            "Undo the change of the head, or save a class of your own."
        )


def load_model(folder, *, custom_heads=(), device=None):
    """Open a folder that `save_model` wrote.

    Args:
        folder: the path of the folder.
        custom_heads: classes of heads that are not mmlkit's own. A head is found by the name of its
            class.
        device: a GPU where there is one by default; see `runtime.place`.

    Returns:
        The MultitaskModel in eval mode.

    Raises:
        FileNotFoundError: a file of the folder is missing (also from functions that this one
            calls).
        ValueError: a file is damaged, or the files do not fit together; the message names the file.

    Example::

        load_model("runs/my-model", custom_heads=[MyHead])
    """
    folder = check_model_folder(folder)
    path = folder / "mmlkit.json"
    content = read_json_object(path)
    configs, pals = content.get("heads"), content.get("pals", False)
    max_length = content.get("max_length")
    if not isinstance(configs, dict) or not configs or not isinstance(pals, bool):
        raise ValueError(
            f"{path}: heads is {str(configs)[:80]}, pals is {str(pals)[:80]}; expected an object "
            f"with one head per task, and true or false. {COPY_AGAIN}"
        )
    if max_length is not None and not (type(max_length) is int and max_length > 0):
        raise ValueError(
            f"{path}: max_length is {str(max_length)[:80]}, expected a positive whole number or "
            f"null. {COPY_AGAIN}"
        )
    # An absolute path, because "minilm" would be the bundled encoder.
    encoder, tokenizer = load_pretrained(folder.absolute(), device="cpu")
    with seeded(0):  # the first values of new layers, which are replaced, draw random numbers
        parts = load_pals(encoder, folder).pals.parts if pals else configs
    if without := sorted(set(configs) - set(parts)):
        raise ValueError(
            f"{folder / 'pals.json'} has parts for {list(parts)}, but mmlkit.json has a head for "
            f"{without} too. {COPY_AGAIN}"
        )
    tensors = read_tensors(folder / "heads.safetensors")
    classes = {head.__name__: head for head in (*HEADS, *custom_heads)}
    with seeded(0):
        heads = {
            task: _build_head(task, config, classes, encoder.config.hidden_size, tensors, path)
            for task, config in configs.items()
        }
    try:
        model = MultitaskModel(encoder, heads, tokenizer, max_length)
    except ValueError as error:
        raise ValueError(f"{path}: {error} {COPY_AGAIN}") from error
    expected = model.heads.state_dict()
    found = tensor_mismatches(expected, tensors, "mmlkit.json")
    found += [
        f"{key}: no head is active"
        for key, mask in tensors.items()
        if mask.dtype == torch.bool and not mask.any()
    ]
    if found:
        raise ValueError(
            f"{folder / 'heads.safetensors'} does not fit mmlkit.json: {'; '.join(found[:5])}. "
            f"{COPY_AGAIN}"
        )
    model.heads.load_state_dict(tensors)
    _set_tasks(model, content.get("tasks", {}), path)
    return place(model.eval(), device)


def _set_tasks(model, configs, path):
    """Note the tasks that mmlkit.json describes; each has a head."""
    try:
        if not isinstance(configs, dict):
            raise ValueError(f"tasks is {str(configs)[:80]}, expected an object.")
        for name, config in configs.items():
            task = task_from_config(config)
            if name != task.name:
                raise ValueError(f"tasks[{name!r:.80}] is the task {task.name!r:.80}.")
            model.set_task(task)
    except ValueError as error:
        raise ValueError(f"{path}: {error} {COPY_AGAIN}") from error


def _build_head(task, config, classes, hidden_size, tensors, path):
    """Build the head that a configuration describes."""
    where = f"{path}: the head of task {task!r}"
    config = dict(config) if isinstance(config, dict) else {"type": config}
    kind = config.pop("type", None)
    if not isinstance(kind, str) or kind not in classes:
        raise ValueError(
            f"{path}: head type {str(kind)[:80]!r} of task {task!r} is not one of {list(classes)}. "
            f"For a class of your own pass load_model(folder, custom_heads=[...]). {COPY_AGAIN}"
        )
    if classes[kind] in HEADS:
        _check_config(config, hidden_size, tensors, task, where)
    try:
        return classes[kind](**config)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{where} cannot be built from {str(config)[:200]}: {error} {COPY_AGAIN}"
        ) from error


def _check_config(config, hidden_size, tensors, task, where):
    """Check the values of mmlkit's own heads; their sizes decide about memory."""
    for name, value in config.items():
        number = type(value) in (int, float) and math.isfinite(value) and abs(value) <= 1e9
        if not (number or value is None or isinstance(value, str)):
            raise ValueError(
                f"{where} has {name} {str(value)[:80]!r}, expected a finite number or a word. "
                f"{COPY_AGAIN}"
            )
    if config.get("hidden_size") != hidden_size:
        raise ValueError(
            f"{where} has hidden_size {config.get('hidden_size')!r}, but the encoder of "
            f"config.json has {hidden_size}. {COPY_AGAIN}"
        )
    sizes = [config.get(name) for name in ("hidden_size", "num_labels", "num_heads")]
    wanted = math.prod(size for size in sizes if isinstance(size, int))
    there = sum(tensor.numel() for key, tensor in tensors.items() if key.startswith(f"{task}."))
    if wanted > there:
        raise ValueError(
            f"{where} asks for {wanted:,} weights or more, but heads.safetensors holds {there:,} "
            f"for it. {COPY_AGAIN}"
        )
