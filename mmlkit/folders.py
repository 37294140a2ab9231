"""Model folders: written as a whole or not at all, and read with suspicion.

Nothing here needs torch, so that the command line can say at once that a folder holds no model.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import time
import warnings
from pathlib import Path

__all__ = ["check_model_folder", "misfits", "read_object", "replacing_folder", "stale_file",
           "whole_folder"]

_STALE = re.compile(r"(pytorch_)?model(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?|"
                    r"config\.json|vocab\.(txt|json)|merges\.txt|tokenizer(_config)?\.json|added_tokens\.json|"
                    r"special_tokens_map\.json|chat_template\.jinja")


def read_object(path):
    """Return the JSON object in a file. Raises ValueError when the file holds anything else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:       # of UTF-8, of JSON, of a 5,000-digit number
        raise ValueError(f"{path} is not valid JSON: {error}. "
                         "Copy or download it again.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}, expected an object {{...}}. "
                         "Copy or download it again.")
    return values


def check_model_folder(folder, hint=""):
    """Return the folder that holds the model, see `whole_folder`; FileNotFoundError when none does.

    Args:
        folder: a folder that save_model wrote.
        hint: a sentence on how to get one, for the message.
    """
    found = whole_folder(folder)
    if not (found / "mmlkit.json").is_file():
        raise FileNotFoundError(f"{folder} holds no trained model: mmlkit.json is missing. "
                                f"Expected a folder written by save_model.{hint and f' {hint}'}")
    return found


@contextlib.contextmanager
def replacing_folder(folder, replaces, keeps_model="config.json"):
    """Yield a temporary folder beside `folder`; on success it becomes `folder`, as a whole.

    An old folder that holds `keeps_model` is moved aside, the new one takes its place, then the old
    one is removed. `whole_folder` finds the old one when the process is killed between the moves.
    Any other folder has no model to lose, so the new files are moved into it, `keeps_model` last.

    Args:
        folder: where the files are to be in the end.
        replaces: a function of a file name; True for files of the old folder that the new ones
            replace. All other files stay: they are hard-linked into the new folder before the move.
        keeps_model: the file without which the folder is not complete.

    Raises:
        OSError: something could not be written; the message names the folder.
    """
    from safetensors import SafetensorError

    folder = Path(folder).resolve()
    old, new = _aside(folder), folder.with_name(f".{folder.name}.{os.getpid()}.new")
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.new"):   # of killed saves
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if old.is_dir() and not folder.exists():
            os.rename(old, folder)
        new.mkdir()
        yield new
        if (folder / keeps_model).is_file():
            _swap(folder, new, old, replaces)
        elif folder.is_dir():
            for path in sorted(new.iterdir(), key=lambda path: path.name == keeps_model):
                os.replace(path, folder / path.name)
        else:
            os.rename(new, folder)
    except (OSError, SafetensorError) as error:     # the second: save_file where the disk is full
        raise OSError(f"{folder} could not be written ({error}). A model that was there before is "
                      "unchanged. Free some space, or save into another folder.") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def whole_folder(folder):
    """Return `folder`, or the old folder that lies aside after a killed save; a warning says so."""
    folder = Path(folder)
    old = _aside(folder.resolve())
    if folder.exists() or not old.is_dir():
        return folder
    warnings.warn(f"{folder} is missing: a save was killed in its last step. The model before it "
                  f"is loaded from {old}. Rename that folder, or save again.", stacklevel=3)
    return old


def stale_file(name):
    """Return whether a file belongs to the encoder or tokenizer of a folder, and goes with it."""
    return _STALE.fullmatch(name) is not None


def _aside(folder):
    return folder.with_name(f".{folder.name}.old")


def _swap(folder, new, old, replaces):
    shutil.rmtree(old, ignore_errors=True)          # of a save that was killed after its moves
    for path in folder.iterdir():
        if not replaces(path.name) and not (new / path.name).exists():
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, new / path.name, symlinks=True, copy_function=_link)
            else:
                _link(path, new / path.name)
    here = Path.cwd()
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except BaseException:
        os.rename(old, folder)
        raise
    if here.is_relative_to(folder):         # the process is still in the old one
        os.chdir(here)
    shutil.rmtree(old, ignore_errors=True)


def _link(source, target):
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:         # a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)


def misfits(expected, tensors, by):
    """Return what does not fit, one text per tensor: another shape or type, or numbers not finite.

    Args:
        expected: tensors by name, as the module has them.
        tensors: tensors by name, as a file has them. Missing and additional ones are passed over.
        by: the file that says what is expected.
    """
    found = []
    for key, value in expected.items():
        tensor = tensors.get(key, value)
        both_floating = tensor.is_floating_point() and value.is_floating_point()
        if tensor.shape != value.shape:
            found.append(f"{key}: {list(tensor.shape)} in the file, {list(value.shape)} by {by}")
        elif tensor.dtype != value.dtype and not both_floating:
            found.append(f"{key}: {tensor.dtype} in the file, expected {value.dtype}")
        elif both_floating and not tensor.isfinite().all():
            found.append(f"{key}: some numbers are not finite (damaged, or training diverged)")
    return found
