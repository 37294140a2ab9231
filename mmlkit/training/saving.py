"""Models in folders: encoder, tokenizer and heads, as safetensors and JSON."""

import json

import torch

from mmlkit.bert.pretrained import load_pretrained, write_pretrained
from mmlkit.data.tasks import task_from_config
from mmlkit.files import (
    COPY_AGAIN,
    check_model_folder,
    read_json_object,
    read_tensors,
    replace_folder,
    savable,
    tensor_mismatches,
)
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import load_pals, save_pals
from mmlkit.runtime import place, seeded
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
        TypeError: metadata or a head's configuration cannot be written as JSON (from json), or a
            head cannot be made from its configuration; nothing was written.
        ValueError: nobody could open the model again, because some numbers are not finite, it has
            no tokenizer, or it has weights that its configuration does not make, such as adapters
            of PEFT (from functions that this one calls); the folder is unchanged.
        OSError: a file could not be written; the folder is unchanged.
    """
    from safetensors.torch import save_file

    pals = getattr(model.encoder, "pals", None) is not None
    modules = {task: getattr(head, "_orig_mod", head) for task, head in model.heads.items()}
    content = {
        "heads": {
            task: {"type": type(head).__name__, **head.to_config()}
            for task, head in modules.items()
        },
        "tasks": {name: task.to_config() for name, task in model.tasks.items()},
        "pals": pals,
        "max_length": model.max_length,
        "metadata": metadata or {},
    }
    text = json.dumps(content, indent=2) + "\n"
    # copies: safetensors refuses tensors that share memory, as those of two tasks may
    classes = {type(head).__name__: type(head) for head in modules.values()}
    with seeded(0):
        again = {task: _head(classes, **one) for task, one in json.loads(text)["heads"].items()}
    state = torch.nn.ModuleDict(modules).state_dict()
    state = savable(state, torch.nn.ModuleDict(again).state_dict())
    state = {key: value.clone() for key, value in state.items()}
    with replace_folder(folder, FILES) as new:
        write_pretrained(model.encoder, model.tokenizer, new)
        save_file(state, new / "heads.safetensors")
        if pals:
            save_pals(model.encoder, new)
        (new / "mmlkit.json").write_text(text, encoding="utf-8")


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
        FileNotFoundError: a file of the folder is missing (from functions that this one calls).
        ValueError: a file is damaged, or the files do not fit together; the message names the file.

    Example::

        load_model("runs/my-model", custom_heads=[MyHead])
    """
    folder = check_model_folder(folder)
    path = folder / "mmlkit.json"
    content, tensors = read_json_object(path), read_tensors(folder / "heads.safetensors")
    # An absolute path, because "minilm" would be the bundled encoder.
    encoder, tokenizer = load_pretrained(folder.absolute(), device="cpu")
    classes = {head.__name__: head for head in (*HEADS, *custom_heads)}
    with seeded(0):  # the first values of new layers, which are replaced, draw random numbers
        try:
            if content["pals"]:
                load_pals(encoder, folder)
            heads = {task: _head(classes, **one) for task, one in content["heads"].items()}
            model = MultitaskModel(encoder, heads, tokenizer, content["max_length"])
            if found := tensor_mismatches(model.heads.state_dict(), tensors, path.name):
                raise ValueError(f"{'; '.join(found[:5])}.")
            model.heads.load_state_dict(tensors)
            for config in content["tasks"].values():
                model.set_task(task_from_config(config))
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} and heads.safetensors beside it cannot be opened: {error!s:.500} "
                f"{COPY_AGAIN}"
            ) from error
    return place(model.eval(), device)


def _head(classes, type, **config):
    if type not in classes:
        raise ValueError(
            f"head type {type!r:.80} is not one of {list(classes)}. For a class of your own pass "
            "load_model(folder, custom_heads=[...])."
        )
    return classes[type](**config)
