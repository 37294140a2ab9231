"""Checkpoints: tensors and plain values in one safetensors file, written whole or not at all.

The file holds a checksum of everything in it. The checkpoint before the last one is kept beside it.
"""

import hashlib
import itertools
import json
import os
import re
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from mmlkit.files import atomic_write
from mmlkit.messages import OTHER_RUN

__all__ = [
    "CheckpointWriter",
    "fingerprints",
    "flatten",
    "load_checkpoint",
    "load_latest",
    "plain_values",
    "same_run",
    "save_checkpoint",
    "unflatten",
]

TENSOR = "@"  # a text in the plain part that begins so is the place of a tensor
VERSION = "2"  # of the file format; version 1 had no checksum
LATER = ("pals", "tasks")  # settings that earlier checkpoints lack; there they are not compared


def save_checkpoint(path, state):
    """Write a checkpoint. One that was there before becomes `previous.safetensors`.

    Args:
        path: the file.
        state: nested dicts and lists of tensors and plain values.

    Raises:
        OSError: the file cannot be written, for example because the disk is full. The checkpoint
            that was there before is unchanged.
    """
    from safetensors.torch import save

    path = Path(path)
    tensors, plain = flatten(state)
    tensors = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    plain = json.dumps(plain)
    about = {"version": VERSION, "plain": plain, "checksum": _checksum(tensors, plain)}
    try:
        with atomic_write(path) as temporary:
            # `save_file` would write to a temporary file of its own, which a killed process leaves.
            temporary.write_bytes(save(tensors, metadata=about))
            if path.is_file():
                os.replace(path, _previous(path))
    except OSError as error:
        if path.is_file():
            error.args = (f"{error} The checkpoint before it is unchanged.",)
        raise


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

    try:
        with safe_open(str(path), framework="pt") as file:
            about = file.metadata() or {}
            if about.get("version", VERSION) != VERSION:
                raise ValueError(f"its format is {about['version']}, expected {VERSION}")
            plain = about["plain"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about["checksum"] != _checksum(tensors, plain):
            raise ValueError("its content does not match its checksum")
        return unflatten(tensors, json.loads(plain))
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{Path(path)} is not a readable checkpoint ({error}). Delete it to start the run "
            "again."
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


def same_run(path, then, now, resume=True):
    """Compare the settings of a checkpoint with those of a run that wants to continue from it.

    Args:
        path: the file, for the message.
        then: {name: value} of the checkpoint.
        now: {name: value} of the run.
        resume: True, or "auto" for a run that starts again where the settings differ.

    Returns:
        Whether they are equal. If they are not, a warning names the differences.

    Raises:
        ValueError: they are not equal, and `resume` is not "auto".
    """
    known = {key: value for key, value in now.items() if key in then or key not in LATER}
    changed = {key: (then.get(key), one) for key, one in known.items() if then.get(key) != one}
    if not changed:
        return True
    found = f"{path} {OTHER_RUN}; different are (then, now): {changed}."
    if resume != "auto":
        raise ValueError(
            f"{found} Use the same settings and data, another checkpoint_dir, or resume=False."
        )
    warnings.warn(f"{found} This run starts again and replaces it.", stacklevel=4)
    return False


class CheckpointWriter:
    """Write checkpoints every few steps or minutes.

    Args:
        path: the file, or None for no checkpoints.
        steps: updates between two checkpoints, or None.
        minutes: between two checkpoints, where `steps` is None.
    """

    def __init__(self, path, steps, minutes):
        self.path, self.steps, self.minutes = path, steps, minutes
        self.written = time.monotonic()
        if path is not None:
            _remove_temporary_files(path)

    def due(self, step):
        """Return whether a checkpoint is to be written after an update.

        Args:
            step: updates so far.

        Returns:
            True or False.
        """
        if self.path is None:
            return False
        if self.steps is not None:
            return step % self.steps == 0
        return time.monotonic() - self.written >= 60 * self.minutes

    def write(self, state):
        """Write a checkpoint now; nothing happens where `path` is None.

        Args:
            state: a function that returns the state, see `save_checkpoint`. It reads values from a
                GPU, so it is called only where a checkpoint is written.
        """
        if self.path is not None:
            save_checkpoint(self.path, state())
            self.written = time.monotonic()


def fingerprints(model, *splits):
    """Describe model and data for a checkpoint, so that it is not resumed with others.

    Args:
        model: a MultitaskModel.
        *splits: {task name: Encoded}, each with the same names.

    Returns:
        A dict: the configurations of the heads in their order, which is that of the optimizer; a
        hash of the encoder's modules and configuration; the configuration of its PALs; and a hash
        of the tokens and labels of each task. The values of the weights are not compared.
    """
    pals = getattr(model.encoder, "pals", None)
    encoder = _text(f"{model.encoder} {getattr(model.encoder, 'config', None)}")
    return {
        "heads": [  # a head of one's own that is never saved needs no to_config
            [name, type(head).__name__, getattr(head, "to_config", dict)()]
            for name, head in model.heads.items()
        ],
        "encoder": hashlib.sha256(encoder.encode()).hexdigest()[:16],
        "pals": getattr(pals, "config", None),  # the modules do not print all of it
        "data": {name: _data_hash([split[name] for split in splits]) for name in splits[0]},
    }


def plain_values(settings):
    """Return settings as a checkpoint gives them back, so that the two can be compared.

    Args:
        settings: nested dicts, lists and tuples of plain values. Numbers of numpy and torch become
            those of Python, and any other object its text.

    Returns:
        The same with lists for tuples.
    """

    def convert(value):
        try:
            return value.item()
        except (AttributeError, ValueError, RuntimeError):  # no number, or many
            return _text(value)

    return json.loads(json.dumps(settings, default=convert))


def _text(value):
    """Return an object's text without addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _data_hash(splits):
    found = hashlib.sha256()
    for one in splits:
        for part in filter(None, (one, one.second)):
            found.update(np.fromiter(itertools.chain.from_iterable(part.input_ids), np.int64))
            found.update(part.lengths)
        for values in (one.labels, one.queries):
            found.update(b"" if values is None else np.ascontiguousarray(values))
    return found.hexdigest()[:16]


def _previous(path):
    return path.with_name(f"previous{path.suffix}")


def _remove_temporary_files(path):
    """Remove what killed processes were writing; see `atomic_write` for the name."""
    import psutil

    for left in path.parent.glob(f".{path.name}.*.tmp"):
        process = left.name.split(".")[-2]
        if not (process.isdigit() and psutil.pid_exists(int(process))):
            left.unlink(missing_ok=True)


def _checksum(tensors, plain):
    """Return the SHA-256 of the plain part and of all tensors with their names and types."""
    found = hashlib.sha256(plain.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def flatten(state, at=""):
    """Separate the tensors of a nested structure from its plain values.

    Args:
        state: nested dicts, lists, tensors and plain values.
        at: the path of `state` in a larger structure.

    Returns:
        ({path: tensor}, the same structure with "@path" in the place of each tensor).

    Raises:
        TypeError: the keys of a dict are not all texts or all integers.
    """
    if isinstance(state, torch.Tensor):
        return {at: state}, TENSOR + at
    if isinstance(state, dict):
        kinds = set(map(type, state))
        if kinds and kinds not in ({int}, {str}):
            found = sorted(kind.__name__ for kind in kinds)
            raise TypeError(f"checkpoint dict at {at!r} has keys of {found}, expected int or str.")
        parts = {key: flatten(value, f"{at}/{_step(key)}") for key, value in state.items()}
        plain = {_mark(str(key), "#"): part for key, (_, part) in parts.items()}
        return _merge(parts.values()), {"#": plain} if kinds == {int} else plain
    if isinstance(state, (list, tuple)):
        parts = [flatten(value, f"{at}/{i}") for i, value in enumerate(state)]
        return _merge(parts), [part for _, part in parts]
    return {}, _mark(state, TENSOR)


def _mark(value, mark):
    """Return a text that begins with a mark with one more of it, and everything else as it is."""
    return mark + value if isinstance(value, str) and value.startswith(mark) else value


def _step(key):
    """Return a key for the path of a tensor, so that a/b and b inside a are different."""
    return str(key).replace("~", "~0").replace("/", "~1")


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
        return {_unmark(key, "#"): unflatten(tensors, value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [unflatten(tensors, value) for value in plain]
    if isinstance(plain, str) and plain.startswith(TENSOR) and plain[1:] in tensors:
        return tensors[plain[1:]]
    return _unmark(plain, TENSOR)


def _unmark(value, mark):
    return value[1:] if isinstance(value, str) and value.startswith(2 * mark) else value
