"""Rows and labels from anywhere: the mini data, the hub, or a folder of CS224N, GLUE, csv, jsonl or parquet files.

Every row is checked once, here. A fault names the file, the row, the column, what was found and what to do.
"""

import math
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmlkit.files import find_files, read_rows
from mmlkit.hub import load_hub_dataset
from mmlkit.tasks import Task, get_task

__all__ = ["Split", "TaskData", "load_task", "make_split"]


@dataclass(frozen=True)
class Split:
    """The rows of one split. `texts` holds a tuple per row, one string or the two of a pair; `labels` is None when unknown."""

    task: Task
    texts: list
    labels: np.ndarray | None
    ids: list
    name: str
    queries: np.ndarray | None = None       # [N], which query each row is a candidate of, where they are ranked

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        """Row i as a dict of its text columns, label (by name for classification) and id."""
        label = None if self.labels is None else self.labels[i]
        if label is not None:
            label = self.task.labels[label] if self.task.labels else float(label)
        return {**dict(zip(self.task.text_columns, self.texts[i])), "label": label, "id": self.ids[i]}

    def frame(self):
        """The rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame([self[i] for i in range(len(self))])

    def take(self, rows):
        """The split with only these row numbers, in this order."""
        return Split(self.task, [self.texts[i] for i in rows], None if self.labels is None else self.labels[list(rows)],
                     [self.ids[i] for i in rows], self.name, None if self.queries is None else self.queries[list(rows)])


@dataclass(frozen=True)
class TaskData:
    """A task's splits: train, dev, and test where there is one; `more` holds any others, such as dev_mismatched."""

    task: Task
    train: Split
    dev: Split
    test: Split | None = None
    source: str = ""
    more: dict = field(default_factory=dict)

    def split(self, name):
        """The split of that name, or None where there is none."""
        return self.more.get(name, getattr(self, name, None))


def load_task(name, source="mini", *, limit=None, seed=0, labels=None, on_bad_row="drop"):
    """A task's data.

    name: a name of `list_tasks()`. source: "mini" (in this repository), "hub", or a folder.
    limit: keep at most so many rows of each split, drawn from `seed`. labels: {label as found in the files: our name}.
    on_bad_row: rows without a label are dropped with a warning that counts them ("drop") or refused ("refuse");
    every other fault is always refused. Integer labels count in the order of `get_task(name).labels`, the hub's.
    Raises FileNotFoundError for a missing folder or file, ValueError for what is wrong inside one, OSError from the hub.

    Example::

        data = load_task("sst", "mini", limit=100)
        data.train[0]       # {'sentence': ..., 'label': 'very positive', 'id': ...}
    """
    task = get_task(name)
    if task.kind == "ranking":
        raise ValueError(f"{task.name!r} ranks rows of another task; use mmlkit.ranking.rank_queries(load_task({task.name.removesuffix('_rank')!r})).")
    if on_bad_row not in ("drop", "refuse"):
        raise ValueError(f"on_bad_row is {on_bad_row!r}, expected 'drop' or 'refuse'.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, expected at least 1 row, or None for all.")
    if source == "hub":
        tables = _hub_tables(task)
    else:
        folder = _mini_folder(task) if source == "mini" else Path(source).expanduser()
        tables = {split: read_rows(path, headerless=task.headerless) for split, path in find_files(folder, task).items()}
    splits = {}
    for split, (place, rows) in tables.items():
        made = make_split(task, rows, place=place, labels=labels, on_bad_row=on_bad_row, name=split)
        splits[split] = made if limit is None else _sample(made, limit, seed)
    named = {key: splits.pop(key, None) for key in ("train", "dev", "test")}
    return TaskData(task, **named, source=str(source), more=splits)


def make_split(task, rows, *, place="rows", labels=None, on_bad_row="drop", name="data"):
    """A Split from (row number, dict) pairs, every row checked.

    place: the file's name, for messages. Raises ValueError at the first faulty row.
    """
    task, rows = get_task(task), list(rows)
    if not rows:
        raise ValueError(f"{place} holds no rows. Expected columns {list(task.text_columns)} and a label.")
    columns = {column: _find_column(task, column, rows[0][1], place) for column in task.text_columns}
    label_column = _find_column(task, "label", rows[0][1], place, required=name in ("train", "dev"))
    names = {_plain(label): i for i, label in enumerate(task.labels)}
    for found, ours in {**task.label_aliases, **(labels or {})}.items():
        if _plain(ours) not in names:
            raise ValueError(f"labels maps {found!r} to {ours!r}, which is not one of {list(task.labels)}.")
        names[_plain(found)] = names[_plain(ours)]
    texts, values, ids, blank = [], [], [], []
    for number, row in rows:
        where = f"{place}, row {number}"
        value = None if label_column is None else _label(task, row.get(label_column), names, where, label_column)
        if label_column is not None and value is None:
            blank.append(number)
            continue
        if value == "between":          # STS-B*: neither similar nor dissimilar
            continue
        texts.append(tuple(_text(row.get(found), where, found) for found in columns.values()))
        values.append(value)
        ids.append(row.get("id", row.get("idx", number)))
    if len(blank) == len(rows) and name in ("train", "dev"):
        raise ValueError(f"{place}: no label in any of the {len(rows)} rows (column {label_column!r}); a {name} file needs them.")
    if len(blank) == len(rows):         # a test file: the column is there, the labels are not
        return make_split(task, [(n, {k: v for k, v in row.items() if k != label_column}) for n, row in rows], place=place, name="test")
    if blank:
        _report_blank(blank, place, label_column, on_bad_row)
    dtype = np.int64 if task.labels else np.float32
    return Split(task, texts, None if label_column is None else np.asarray(values, dtype=dtype), ids, name)


def _report_blank(blank, place, column, on_bad_row):
    what = (f"{place}: {len(blank)} row{'s have' if len(blank) > 1 else ' has'} no label in column {column!r} (row {', '.join(map(str, blank[:5]))}"
            f"{', ...' if len(blank) > 5 else ''})")
    if on_bad_row == "refuse":
        raise ValueError(f"{what}. Fill them in, remove the rows, or pass on_bad_row='drop'.")
    warnings.warn(f"{what}; they were dropped. Pass on_bad_row='refuse' to stop instead.", stacklevel=4)


def _find_column(task, column, row, place, required=True):
    """The name under which a column stands in this file."""
    for candidate in (column, *task.aliases.get(column, ())):
        if candidate in row:
            return candidate
    if not required:
        return None
    found = [str(key) for key in row]
    hint = ""
    if len(found) == 1 and any(mark in found[0] for mark in ",;\t|"):
        hint = " The whole header is one column: the file seems to be separated by something else than its name says."
    raise ValueError(f"{place} has no column {column!r} (columns found: {found}).{hint} Expected {list(task.text_columns)} and "
                     f"'label' for task {task.name!r}; rename the column in the file.")


def _text(value, where, column):
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}, column {column!r}: found {value!r}, expected some text. Fill it in or remove the row.")
    return value.strip()


def _plain(label):
    return str(label).strip().casefold().replace(" ", "_").replace("-", "_")


def _label(task, value, names, where, column):
    """The label's place in task.labels, or its score; None when blank."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value).strip() in ("", "-", "-1", "-1.0"):
        return None
    if task.score_range is not None:
        score = _score(task, value, where, column)
        if task.kind == "regression":
            return score
        return 0 if score <= 2 else 1 if score >= 4 else "between"
    if _plain(value) in names:
        return names[_plain(value)]
    whole = re.fullmatch(r"(\d+)(\.0*)?", str(value).strip())       # 1, or 1.0 as the course's files have it
    if whole and int(whole[1]) < len(task.labels):
        return int(whole[1])
    raise ValueError(f"{where}, column {column!r}: label {value!r} is not one of {list(task.labels)} (or 0 to {len(task.labels) - 1}, "
                     f"in that order). Labels are matched by name; rename it in the file or pass labels={{{str(value)!r}: ...}} to load_task.")


def _score(task, value, where, column):
    low, high = task.score_range
    try:
        score = float(value)
    except ValueError:
        score = math.nan
    if not low <= score <= high:
        raise ValueError(f"{where}, column {column!r}: found {value!r}, expected a number from {low:g} to {high:g}.")
    return score


def _sample(split, limit, seed):
    if len(split) <= limit:
        return split
    return split.take(np.sort(np.random.default_rng(seed).permutation(len(split))[:limit]))


def _mini_folder(task):
    """Where the mini data lies: inside an installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    folder = next((path for path in (here / "mini", here.parent / "data" / "mini") if path.is_dir()), None)
    if folder is None:
        raise FileNotFoundError(f"The mini data is not beside the package ({here}). Reinstall mmlkit, or name a folder as source.")
    if not (folder / (task.mini or task.name)).is_dir():
        have = sorted(path.name for path in folder.iterdir() if path.is_dir())
        raise FileNotFoundError(f"Task {task.name!r} has no mini data (there is: {', '.join(have)}). "
                                f"Use load_task({task.name!r}, source='hub'), or source=FOLDER with its files.")
    return folder / (task.mini or task.name)


def _hub_tables(task):
    """(place, rows) of every split on the hub, labels by name."""
    if task.hub is None:
        raise ValueError(f"Task {task.name!r} is not on the hub. Use source='mini', or a folder with its files.")
    data = load_hub_dataset(*task.hub)
    tables = {}
    for ours, theirs in task.hub_splits.items():
        if theirs in data:
            names = getattr(data[theirs].features.get("label"), "names", None)
            rows = data[theirs].to_list()
            if names:
                rows = [{**row, "label": names[row["label"]] if row["label"] is not None and row["label"] >= 0 else None} for row in rows]
            tables[ours] = (f"{task.hub[0]}/{theirs}", list(enumerate(rows)))
    if "train" not in tables or "dev" not in tables:
        raise ValueError(f"{task.hub[0]} has splits {list(data)}, expected {list(task.hub_splits.values())}.")
    return tables
