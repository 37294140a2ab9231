"""Checkpoints: tensors and plain values in one safetensors file, written whole or not at all.

The file holds a checksum of everything in it. The checkpoint before the last one is kept beside it.
"""

import hashlib
import json
import os
import re
import warnings
from pathlib import Path

import torch

from mmlkit.files import atomic_write

__all__ = ["fingerprint", "load_checkpoint", "load_latest", "save_checkpoint"]

TENSOR = "@tensor"  # the only key of a dict that stands in the place of a tensor
VERSION = "3"  # of the file format


def save_checkpoint(path, state):
    """Write a checkpoint. One that was there before becomes `previous.safetensors`.

    Args:
        path: the file.
        state: nested dicts and lists of tensors and plain values. Keys come back as texts.

    Raises:
        OSError: the file cannot be written, for example because the disk is full. The checkpoint
            that was there before is unchanged.
    """
    from safetensors.torch import save

    path, tensors = Path(path), {}
    plain = json.dumps(_plain(state, "", tensors))
    content = {"version": VERSION, "plain": plain, "checksum": _checksum(tensors, plain)}
    for unfinished in path.parent.glob(f".{path.name}.*.tmp"):  # of a process that was killed
        unfinished.unlink(missing_ok=True)
    with atomic_write(path) as temporary:
        # `save_file` would write to a temporary file of its own, which a killed process leaves.
        temporary.write_bytes(save(tensors, metadata=content))
        if path.is_file():
            os.replace(path, _previous(path))


def load_checkpoint(path):
    """Read one checkpoint and compare its content with its checksum.

    Args:
        path: the file.

    Returns:
        The state that `save_checkpoint` was given; tuples come back as lists.

    Raises:
        ValueError: the file is damaged, of another version, or no checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    def restore(part):
        return tensors[part[TENSOR]] if TENSOR in part else part

    try:
        with safe_open(str(path), framework="pt") as file:
            content = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if content["version"] != VERSION:
            raise ValueError(f"its format is {content['version']}, expected {VERSION}")
        if content["checksum"] != _checksum(tensors, content["plain"]):
            raise ValueError("its content does not match its checksum")
        return json.loads(content["plain"], object_hook=restore)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path} is not a readable checkpoint ({error}). Delete it to start the run again."
        ) from error


def load_latest(path):
    """Read the newest checkpoint that is readable: a file, or the one before it.

    Args:
        path: the file that `save_checkpoint` writes.

    Returns:
        The state, or None where there is no checkpoint. A warning names a damaged file.

    Raises:
        ValueError: no file is readable.
    """
    damaged = []
    for one in filter(Path.is_file, (Path(path), _previous(Path(path)))):
        try:
            state = load_checkpoint(one)
        except ValueError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(f"{damaged[0]} The run continues from {one}.", stacklevel=3)
        return state
    if damaged:
        raise ValueError(" ".join(damaged))
    return None


def fingerprint(*parts):
    """Return a short text that differs where any of the parts does.

    Args:
        *parts: bytes, or objects whose text is compared. Addresses in it are left out, because they
            differ between processes.

    Returns:
        16 hexadecimal digits.
    """
    found = hashlib.sha256()
    for part in parts:
        if not isinstance(part, bytes):
            part = re.sub(r" at 0x[0-9a-f]+", "", str(part)).encode()
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def _previous(path):
    return path.with_name(f"previous{path.suffix}")


def _plain(state, name, tensors):
    """Return the state with {"@tensor": name} for each tensor, which goes into `tensors`."""
    if isinstance(state, torch.Tensor):
        name = name.removeprefix(".")
        while name in tensors:  # "a.b" and "b" in "a"
            name += "'"
        tensors[name] = state.detach().cpu().contiguous().clone()
        return {TENSOR: name}
    if isinstance(state, dict):
        return {key: _plain(part, f"{name}.{key}", tensors) for key, part in state.items()}
    if isinstance(state, (list, tuple)):
        return [_plain(part, f"{name}.{i}", tensors) for i, part in enumerate(state)]
    return state


def _checksum(tensors, plain):
    """Return the SHA-256 of the plain part and of all tensors with their names and types."""
    found = hashlib.sha256(plain.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()
