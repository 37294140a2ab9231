"""Rows and labels from anywhere: the mini data, the hub, or a folder of CS224N, GLUE, csv, jsonl or parquet files.

Every row is checked once, here. A fault names the file, the row, the column, what was found and what to do.
"""

import math
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmlkit.data.files import find_files, read_rows
from mmlkit.data.tasks import Task, get_task
from mmlkit.hub import load_hub_dataset

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


def load_task(name, source="mini", *, limit=None, seed=0, labels=None, on_bad_row="drop_unlabelled"):
    """A task's data.

    name: a name of `list_tasks()`. source: "mini" (in this repository), "hub", or a folder.
    limit: keep at most so many rows of each split, drawn from `seed`.
    labels: the names that integer labels stand for, in order, such as ("no", "yes"); or {label as found in the files: our name}.
    Integers alone do not tell what they mean, so a file that has them needs `labels`. The order is known of the hub's sets, of the
    CS224N course's files and of GLUE's .tsv files.
    on_bad_row: "drop_unlabelled" leaves out rows without a label, "drop" also lines with another number of columns than the header,
    each with a warning that counts them; "refuse" stops at both. Every other fault is always refused.
    Raises FileNotFoundError for a missing folder or file, ValueError for what is wrong inside one, OSError from the hub.

    Example::

        data = load_task("sst", "mini", limit=100)
        data.train[0]       # {'sentence': ..., 'label': 'very positive', 'id': ...}
    """
    task = get_task(name)
    if task.kind == "ranking":
        raise ValueError(f"{task.name!r} ranks rows of another task; use mmlkit.heads.ranking.rank_queries(load_task({task.name.removesuffix('_rank')!r})).")
    if on_bad_row not in ("drop_unlabelled", "drop", "refuse"):
        raise ValueError(f"on_bad_row is {on_bad_row!r}, expected 'drop_unlabelled', 'drop' or 'refuse'.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, expected at least 1 row, or None for all.")
    if source == "hub":
        tables = _hub_tables(task)
    else:
        folder = _mini_folder(task) if source == "mini" else Path(source).expanduser()
        tables = {split: read_rows(path, task.headerless, drop_ragged=on_bad_row == "drop") for split, path in find_files(folder, task).items()}
    splits = {}
    for split, (place, rows) in tables.items():
        made = make_split(task, rows, place=place, labels=labels, on_bad_row=on_bad_row, name=split)
        splits[split] = made if limit is None else _sample(made, limit, seed)
    named = {key: splits.pop(key, None) for key in ("train", "dev", "test")}
    return TaskData(task, **named, source=str(source), more=splits)


def make_split(task, rows, *, place="rows", labels=None, on_bad_row="drop_unlabelled", name="data"):
    """A Split from (row number, dict) pairs, every row checked.

    place: the file's name, for messages, and to recognise releases whose integer labels have a known order. labels, on_bad_row:
    see `load_task`. Raises ValueError at the first faulty row.
    """
    task, rows = get_task(task), list(rows)
    if not rows:
        raise ValueError(f"{place} holds no rows. Expected columns {list(task.text_columns)} and a label.")
    columns = {column: _find_column(task, column, rows[0][1], place) for column in task.text_columns}
    label_column = _find_column(task, "label", rows[0][1], place, required=name in ("train", "dev"))
    names = _label_names(task, labels, place)
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


def _label_names(task, labels, place):
    """{label as it may stand in the file: its place in task.labels}; integers are among them where their order is known."""
    names = {_plain(label): i for i, label in enumerate(task.labels)}
    translated = {**task.label_aliases, **(labels if isinstance(labels, dict) else {})}
    for found, ours in translated.items():
        if _plain(ours) not in names:
            raise ValueError(f"labels maps {found!r} to {ours!r}, which is not one of {list(task.labels)}.")
        names[_plain(found)] = names[_plain(ours)]
    order = _integer_order(task, labels, place)
    if order and sorted(names.get(_plain(name), -1) for name in order) != list(range(len(task.labels))):
        raise ValueError(f"labels is {order}, expected the names {list(task.labels)}, each once, in the order of the file's integers.")
    return {**names, **{str(i): names[_plain(name)] for i, name in enumerate(order)}}


def _integer_order(task, labels, place):
    """The names that the integers 0, 1, ... stand for, or [] where nothing says so."""
    if labels is not None:
        return [] if isinstance(labels, dict) else list(labels)
    file = Path(str(place)).name
    known = file in task.files.values() or (task.integers_in_tsv and file.endswith(".tsv"))
    return list(task.labels) if known else []


def _report_blank(blank, place, column, on_bad_row):
    places = ", ".join(map(str, blank[:5])) + (", ..." if len(blank) > 5 else "")
    what = f"{place}: rows without a label in column {column!r}: {len(blank)} (row {places})"
    if on_bad_row == "refuse":
        raise ValueError(f"{what}. Fill them in, remove the rows, or pass on_bad_row='drop_unlabelled'.")
    warnings.warn(f"{what}. They were left out; pass on_bad_row='refuse' to stop instead.", stacklevel=4)


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
    text = re.sub(r"^(\d+)\.0*$", r"\1", str(value).strip())        # the course's files have 1.0 for 1
    if _plain(text) in names:
        return names[_plain(text)]
    if text.isdigit() and "0" not in names:
        raise ValueError(f"{where}, column {column!r}: found the integer label {value!r}, and nothing says which of {list(task.labels)} it is. "
                         f"Pass the names in the order of the integers, for instance labels={task.labels} where 0 is {task.labels[0]!r}.")
    raise ValueError(f"{where}, column {column!r}: label {value!r} is not one of {list(task.labels)}. Labels are matched by name; rename "
                     f"it in the file or pass labels={{{str(value)!r}: ...}} to load_task.")


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
    here = Path(__file__).resolve().parents[1]
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
            if not names and "label_text" in data[theirs].features:        # SetFit's sets have the name in a column of its own
                rows = [{**row, "label": row["label_text"]} for row in rows]
            if names:
                rows = [{**row, "label": names[row["label"]] if row["label"] is not None and row["label"] >= 0 else None} for row in rows]
            tables[ours] = (f"{task.hub[0]}/{theirs}", list(enumerate(rows)))
    if "train" not in tables or "dev" not in tables:
        raise ValueError(f"{task.hub[0]} has splits {list(data)}, expected {list(task.hub_splits.values())}.")
    return tables
