"""The labels of a table: each is matched with the task's labels by name, never by its place.

Notebook 00 uses it, through `load_task`.
"""

import re
import warnings
from pathlib import Path

import numpy as np

from mmlkit.data.tasks import label_key

__all__ = ["SEVERAL", "match_labels"]

LARGEST = 3.4e38  # of float32, the type of a score
# label_key of an empty label, of SNLI's "-" and of the hub's -1
UNKNOWN = ("", "_", "_1")
SEVERAL = "Several labels of a row (multi-label) are not supported."
HOW_LABELS = (
    "Labels are matched by name. Rename them, or pass labels: all names in the order of the "
    "integers, or a dict from its labels to names, such as {-1: 'no', 1: 'yes'} (None: the label "
    "is unknown)."
)


def match_labels(task, column, labels, place, name):
    """Return the label indices or scores of a column, and which of them are unknown.

    Args:
        task: a `Task`.
        column: the label column of a table, a pandas Series of N values.
        labels: see `load_task`.
        place: the file of the table, for messages; a known name tells the order of integers.
        name: the split. In "test", one word in all rows that is no label means unknown.

    Returns:
        (values, mask of unknown labels), arrays [N]. A row that belongs to none of the task's
        labels has the value NaN.

    Raises:
        ValueError: a label is none of the task's (the message names the row), or `labels` does not
            fit the task's names.
    """
    keys = column.map(label_key)
    if task.kind == "regression" or task.score_range:
        low, high = task.score_range or (-LARGEST, LARGEST)
        unknown = column.isna() | keys.isin(UNKNOWN[:-1] if low <= -1 else UNKNOWN)
        values, expected = column.map(_score).mask(unknown), f"from {low:g} to {high:g}"
        highest = values.max()
        values = values.where(values.between(low, high))
        if high < highest < np.inf:
            expected += f". The highest score is {highest:g}: divide them, if the scale is another"
        elif low <= highest <= low + (high - low) / 5:
            scale = f"{place}: the highest score is {highest:g}, expected scores {expected}."
            if task.labels:
                raise ValueError(f"{scale} Multiply them, else no row is {task.labels[1]!r}.")
            warnings.warn(f"{scale} Have they another scale?", stacklevel=4)
    else:
        indices = _label_indices(task, labels, place, column, name)
        values = keys.map(indices).astype(float)
        unknown = column.isna() | values.lt(0) | (keys.isin(UNKNOWN) & values.isna())
        other = " SST-2 with two labels is the task 'sst2'." * (task.name == "sst")
        expected = f"one of {list(task.labels)}.{other} {HOW_LABELS}"
    wrong = (values.isna() & ~unknown).to_numpy()
    if wrong.any():
        row, value = column.index[wrong.argmax()], column.iloc[wrong.argmax()]
        several, one = _has_several(value, task), (keys[wrong] == keys[wrong].iloc[0]).all()
        word = one and not several and np.isnan(_score(value))
        if not (name == "test" and word and (wrong | unknown).all()):
            raise ValueError(
                f"{place}, row {row}, column {column.name!r}: found {str(value)!r:.80}, expected "
                f"{f'one label. {SEVERAL}' if several else expected}"
            )
        warnings.warn(f"{place}: {str(value)!r:.80} in all rows: unknown labels.", stacklevel=4)
        unknown |= wrong
    values = values.mask(unknown)
    if task.labels and task.score_range:  # STS-B* of MML v2, section 4.2: none between 2 and 4
        values = values.gt(2).astype(float).where((values <= 2) | (values >= 4))
    return values.to_numpy(float), unknown.to_numpy(bool)


def _has_several(value, task):
    """Return whether a cell has a list of labels, also in a text such as "no,yes" or "[0, 1]"."""
    if not isinstance(value, str):
        return hasattr(value, "__len__")
    known = {*map(label_key, task.labels), *map(str, range(len(task.labels)))}
    parts = {label_key(one) for one in re.split(r"[][,;|'\"]+", value)} - {""}
    return parts <= known and (len(parts) > 1 or "[" in value)


def _score(value):
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _label_indices(task, labels, place, column, name):
    """Return {label_key of a label in a table: its index in task.labels, or -1 if it is unknown}.

    Integers are among the labels.
    """
    own = {label_key(name): i for i, name in enumerate(task.labels)}
    found, file, wrong = set(column.map(label_key)), Path(str(place)).name, False
    release = file in task.files.values() or (task.integers_in_tsv and file.endswith(".tsv"))
    known = labels is None and release
    if labels is None:
        labels = task.labels if known else {}
    if not isinstance(labels, dict):
        numbers = {int(key.replace("_", "-")) for key in found if re.fullmatch(r"_?\d+", key)}
        # -1 may be a label, as in -1 and 1. Beside 0 to C-1 or alone, it is the hub's for unknown.
        minus_one = -1 in numbers and numbers != {-1} and not {0, len(own) - 1} <= numbers
        wrong = minus_one or sorted(map(label_key, labels)) != sorted(own)
        if name == "train" and not (known or wrong) and min(numbers, default=0) > 0:
            warnings.warn(
                f"{place}: no row has 0, {labels[0]!r}. If the numbers begin at 1, pass "
                f"labels={{1: {labels[0]!r}, 2: {labels[1]!r}, ...}}.",
                stacklevel=5,
            )
        labels = dict(enumerate(labels))
    given = {**task.label_aliases, **labels}
    given = {
        label_key(theirs): -1 if ours is None else own.get(label_key(ours))
        for theirs, ours in given.items()
    }
    if wrong or None in given.values() or any(own.get(key, i) != i for key, i in given.items()):
        raise ValueError(
            f"{place}: labels={labels} does not fit the names {list(task.labels)} and the labels "
            f"in the table, {sorted({*map(str, column)})[:8]}. {HOW_LABELS}"
        )
    return {**given, **own}
