"""Checkpoints: tensors and plain values in one safetensors file, written whole or not at all."""

import json
from pathlib import Path

import torch

from mmlkit.runtime import atomic_write

__all__ = ["save_checkpoint", "load_checkpoint", "flatten", "unflatten"]

TENSOR = "@"  # a text in the plain part that begins so is the place of a tensor


def save_checkpoint(path, state):
    """Write a checkpoint.

    Args:
        path: the file.
        state: nested dicts and lists of tensors and plain values.
    """
    from safetensors.torch import save_file

    tensors, plain = flatten(state)
    with atomic_write(path) as temporary:
        save_file(
            {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()},
            temporary,
            metadata={"plain": json.dumps(plain)},
        )


def load_checkpoint(path):
    """Read a checkpoint.

    Args:
        path: the file.

    Returns:
        The state that `save_checkpoint` was given; tuples come back as lists.

    Raises:
        ValueError: the file is damaged or no checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            plain = json.loads((file.metadata() or {})["plain"])
            names = file.keys()
            return unflatten({name: file.get_tensor(name) for name in names}, plain)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{Path(path)} is not a readable checkpoint ({error}). Delete it to start the run "
            "again."
        ) from error


def flatten(state, at=""):
    """Separate the tensors of a nested structure from its plain values.

    Args:
        state: nested dicts, lists, tensors and plain values.
        at: the path of `state` in a larger structure.

    Returns:
        ({path: tensor}, the same structure with "@path" in the place of each tensor).

    Raises:
        TypeError: a dict mixes integers and texts as keys.
    """
    if isinstance(state, torch.Tensor):
        return {at: state}, TENSOR + at
    if isinstance(state, dict):
        parts = {str(key): flatten(value, f"{at}/{key}") for key, value in state.items()}
        numbers = [key for key in state if isinstance(key, int)]
        if numbers and len(numbers) != len(state):
            raise TypeError(f"checkpoint dict at {at!r} mixes integer and text keys")
        plain = {key: part for key, (_, part) in parts.items()}
        return _merge(parts.values()), {"#": plain} if numbers else plain
    if isinstance(state, (list, tuple)):
        parts = [flatten(value, f"{at}/{i}") for i, value in enumerate(state)]
        return _merge(parts), [part for _, part in parts]
    return {}, state


def _merge(parts):
    return {key: tensor for tensors, _ in parts for key, tensor in tensors.items()}


def unflatten(tensors, plain):
    """Invert `flatten`; tuples come back as lists.

    Args:
        tensors: {path: tensor}.
        plain: the structure without tensors.

    Returns:
        The structure with its tensors.
    """
    if isinstance(plain, dict):
        if set(plain) == {"#"}:
            return {int(key): unflatten(tensors, value) for key, value in plain["#"].items()}
        return {key: unflatten(tensors, value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [unflatten(tensors, value) for value in plain]
    if isinstance(plain, str) and plain.startswith(TENSOR) and plain[1:] in tensors:
        return tensors[plain[1:]]
    return plain
