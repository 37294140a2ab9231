"""Loading a task's rows and labels: from the mini data, the hub, a folder, or memory.

Every row is checked once, here. An error names the file, the row, the column, what was found and
what was expected. Notebooks 00 and 02 use it.
"""

import dataclasses
import warnings
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path

import numpy as np

from mmlkit.data.files import (
    OTHER_SEPARATOR,
    as_frame,
    canonical_columns,
    find_files,
    read_rows,
)
from mmlkit.data.labels import SEVERAL, match_labels
from mmlkit.data.tasks import Task, get_task
from mmlkit.hub import load_hub_dataset

__all__ = ["Split", "TaskData", "load_task", "make_split", "task_data", "text_of"]

LABELLED = ("train", "dev")  # other splits may be without labels
IDS = ("id", "idx", "index", "test_id", "pairid", "guid")  # in small letters


@dataclass(frozen=True)
class Split:
    """The rows of one split; N is their number.

    Args:
        task: the `Task`.
        texts: a list of N tuples, each of one text or of the two texts of a pair.
        labels: an array [N] of label indices or scores, or None where they are unknown.
        ids: a list of N row ids.
        name: "train", "dev", "test" or another name.
        queries: for a ranking, an array [N]: the query that each row is a candidate of.
        columns: a dict of the file's other columns, such as "group" or "tier" of the mini data;
            each is a list of N values.
    """

    task: Task
    texts: list
    labels: np.ndarray | None
    ids: list
    name: str
    queries: np.ndarray | None = None
    columns: dict = field(default_factory=dict)

    def __len__(self):
        return len(self.texts)

    def __repr__(self):
        """Return a line without the texts."""
        return f"Split({self.task.name!r}, {self.name!r}, {len(self):,} rows)"

    def __getitem__(self, i):
        """Return row i as a dict: its text columns, label (a name, or a score), id and columns.

        A slice returns a Split of these rows.
        """
        if isinstance(i, slice):
            return self.take(range(*i.indices(len(self))))
        label = None if self.labels is None else self.labels[i]
        if label is not None:
            label = self.task.labels[label] if self.task.labels else float(label)
        texts = dict(zip(self.task.text_columns, self.texts[i]))
        others = {name: values[i] for name, values in self.columns.items()}
        return {**texts, "label": label, "id": self.ids[i], **others}

    def frame(self):
        """Return the rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame([self[i] for i in range(len(self))])

    def take(self, rows):
        """Select rows.

        Args:
            rows: row numbers, in the order wanted, or a mask with True for the rows to take.

        Returns:
            A `Split` of these rows.
        """
        rows = np.arange(len(self))[list(rows)].tolist()
        return dataclasses.replace(
            self,
            texts=[self.texts[i] for i in rows],
            labels=None if self.labels is None else self.labels[rows],
            ids=[self.ids[i] for i in rows],
            queries=None if self.queries is None else self.queries[rows],
            columns={name: [values[i] for i in rows] for name, values in self.columns.items()},
        )


@dataclass(frozen=True)
class TaskData:
    """The splits of a task.

    Args:
        task: the `Task`.
        train: the training `Split`.
        dev: the development `Split`.
        test: the test `Split`, or None.
        source: where the data come from, as `load_task` was told.
        more: a dict of other splits, such as "dev_mismatched" of MNLI.
    """

    task: Task
    train: Split
    dev: Split
    test: Split | None = None
    source: str = ""
    more: dict = field(default_factory=dict)

    @property
    def splits(self):
        """A dict from the name to the `Split`, of those that are there."""
        found = {"train": self.train, "dev": self.dev, "test": self.test, **self.more}
        return {name: split for name, split in found.items() if split is not None}

    def __repr__(self):
        """Return a line with the number of rows of each split."""
        rows = ", ".join(f"{name} {len(split):,}" for name, split in self.splits.items())
        return f"TaskData({self.task.name!r} from {self.source!r}, rows: {rows})"


def load_task(task, source="mini", *, limit=None, seed=0, labels=None):
    """Load the data of a task.

    Labels are matched by name. Integers alone do not say which label they mean, so a file with
    integer labels needs `labels`. Their order is known for the hub's data sets, the CS224N course's
    files and GLUE's .tsv files. Rows of a labelled split without a label or a text are dropped; a
    warning counts them.

    Args:
        task: a name of `list_tasks()`, or a `Task` of one's own.
        source: "mini" (in this repository), "hub", or a folder of csv, tsv, jsonl or parquet files
            named train, dev (or validation) and test, or of MT-DNN's canonical files
            (rte_train.tsv: id, label, text, perhaps second text; no header line). A canonical test
            file with one label in all rows counts as unlabelled, as GLUE's test sets are.
        limit: the largest number of rows of each split, or None for all. They are drawn at random.
        seed: the seed of that draw.
        labels: the label names in the order of the file's integers, such as ("no", "yes"); or a
            dict from a label in the file to its name in the task, or to None where it means that
            the label is unknown.

    Returns:
        A `TaskData`.

    Raises:
        FileNotFoundError: a folder or file is missing.
        ValueError: something inside a file, or an argument, is wrong.
        OSError: the hub does not have the data, or cannot be reached.

    Example::

        data = load_task("sst", "mini", limit=100)
        data.train[0]       # {'sentence': ..., 'label': 'very positive', 'id': ...}
    """
    task = get_task(task)
    if task.kind == "ranking":
        base = task.name.removesuffix("_rank")
        raise ValueError(
            f"{task.name!r} ranks rows of another task; use mmlkit.heads.ranking.rank_queries("
            f"load_task({base!r}, {str(source)!r}), positive={task.labels[1]!r})."
        )
    if source == "hub":
        tables = _hub_tables(task)
    else:
        files = find_files(source, task)
        tables = {name: (path, read_rows(path, task)) for name, path in files.items()}
    options = dict(labels=labels, limit=limit, seed=seed)
    splits = {
        name: make_split(task, rows, name=name, place=place, **options)
        for name, (place, rows) in tables.items()
    }
    train, dev, test = (splits.pop(name, None) for name in ("train", "dev", "test"))
    return TaskData(task, train, dev, test, source=str(source), more=splits)


def task_data(task, train, dev, test=None, *, labels=None):
    """Make the data of a task from tables in memory.

    Args:
        task: a name of `list_tasks()`, or a `Task` of one's own.
        train: the training rows with their labels: a pandas DataFrame, a datasets.Dataset, or a
            list of dicts. The columns are those of the task, or have other names that it knows.
        dev: the development rows.
        test: the test rows, which need no labels, or None.
        labels: see `load_task`.

    Returns:
        A `TaskData`.

    Raises:
        ValueError: a row or a column is wrong.

    Example::

        task = Task("mine", text_columns=("text",), labels=("no", "yes"))
        fit(model, task_data(task, train=frame[:900], dev=frame[900:]))
    """
    tables = {"train": train, "dev": dev, "test": test}
    splits = {
        name: None if rows is None else make_split(task, rows, name=name, labels=labels)
        for name, rows in tables.items()
    }
    return TaskData(get_task(task), **splits, source="memory")


def make_split(task, rows, *, name="data", place=None, labels=None, limit=None, seed=0):
    """Make a split of a table: find its columns, match its labels by name, check its texts.

    Args:
        task: a name of `list_tasks()`, or a `Task`.
        rows: a table, see `task_data`.
        name: the split. "train" and "dev" need labels.
        place: the file of the rows. Messages name it, and a known name tells the order of integer
            labels.
        labels: see `load_task`. False: they are not read, as where rows are to be predicted.
        limit: see `load_task`.
        seed: see `load_task`.

    Returns:
        A `Split`. Its labels are None where the table has none.

    Raises:
        ValueError: a row or a column is wrong. The message names the first one.
    """
    task, frame, place = get_task(task), as_frame(rows), place or name
    if labels is False:
        frame = frame.drop(columns=[one for one in task.names("label") if one in frame])
    *columns, column = _find_columns(task, frame, place, required=name in LABELLED)
    texts = frame[columns].map(text_of)
    faults, values = {}, None
    if column is not None:
        values, unknown = match_labels(task, frame[column], labels, place, name)
        alike = name == "test" and len(set(values)) == 1 < len(values)
        placeholder = alike and canonical_columns(place, task)  # MT-DNN's for unknown labels
        if name not in LABELLED and (placeholder or unknown.all()):
            values = None
        else:
            faults["label"] = unknown
    faults["text"] = (texts == "").any(axis=1).to_numpy()
    kept = _usable_rows(frame.index, values, faults, place)
    if limit is not None and limit < len(kept):
        drawn = np.random.default_rng(seed).permutation(len(kept))[:limit]
        kept = kept[np.sort(drawn)]
    if values is not None:
        values = values[kept].astype(np.int64 if task.labels else np.float32)
        absent = [one for i, one in enumerate(task.labels) if i not in {*values}]
        if name == "train" and absent and len(values) > 1:
            warnings.warn(f"{place}: no row is {', '.join(map(repr, absent))}.", stacklevel=4)
    texts = list(texts.iloc[kept].itertuples(index=False, name=None))
    ids, others = _other_columns(frame.iloc[kept], {*columns, column, *task.text_columns})
    return Split(task, texts, values, ids, name, columns=others)


def text_of(value):
    """Return the text of a cell: numbers are written out, and a missing value is "".

    Args:
        value: what a table or a list holds.

    Returns:
        The text without spaces at its ends.
    """
    is_text = isinstance(value, (str, Number)) and value == value  # NaN is not equal to itself
    return str(value).strip() if is_text else ""


def _find_columns(task, frame, place, *, required):
    """Return the names that the text columns and the label have in a table; None for no label."""
    names, found = list(frame.columns), []
    for column in (*task.text_columns, "label"):
        known = task.names(column)
        if column == "label" and {"label", "label_text"} <= set(names) - set(task.text_columns):
            known = ("label_text",)  # SetFit's data sets have both, and integers as the label
        one = next((name for name in known if name in names), None)
        if one is None and (required or column != "label"):
            several = f" {SEVERAL}" if {*task.labels} & {*names} else ""
            of_a_file = f", or add it where the first line is a row. {OTHER_SEPARATOR[:-1]}"
            of_a_file *= isinstance(place, (Path, list))  # not of rows in memory or on the hub
            raise ValueError(
                f"{place} has no column {column!r} (columns found: {names[:12]}). Expected "
                f"{list(task.text_columns)} and 'label' for task {task.name!r}: rename the column"
                f"{of_a_file}.{several}"
            )
        if one is not None and (names.count(one) > 1 or one in found):
            raise ValueError(
                f"{place}: it is unclear which column is {column!r} of {names[:12]}. Rename them."
            )
        found.append(one)
    return found


def _usable_rows(index, values, faults, place):
    """Return the numbers of the rows that have a text and, in a labelled split, a label."""
    kept = np.full(len(index), True)
    for what, bad in faults.items():
        bad = bad & kept  # a row is counted once
        if bad.any():
            rows = ", ".join(map(str, index[bad][:5])) + (", ..." if bad.sum() > 5 else "")
            found = f"{place}: rows without a {what}: {bad.sum()} of {len(index)} (row {rows})"
            if values is None:
                raise ValueError(f"{found}. Fill them in, because each row gets a prediction.")
            warnings.warn(f"{found}; they were dropped.", stacklevel=5)
            kept &= ~bad
    if values is not None:
        kept &= ~np.isnan(values)
    if not kept.any():
        raise ValueError(f"{place}: none of {len(index)} rows has a text and a label of the task.")
    return np.flatnonzero(kept)


def _other_columns(frame, known):
    """Return the ids of the rows, and a dict of the columns that are none of the known ones."""
    names = list(frame.columns)
    given = {str(name).lower(): name for name in names}
    own = next((given[name] for name in IDS if name in given), None)
    ids = (frame.index if own is None else frame[own]).tolist()
    known = {*known, *(given.get(name) for name in IDS), "label", ""}
    others = [name for name in names if name not in known and names.count(name) == 1]
    return ids, {name: frame[name].tolist() for name in others if not str(name).isdigit()}


def _hub_tables(task):
    """Return {split: (place, data set)} of a task's data on the hub."""
    if task.hub is None:
        raise ValueError(
            f"task {task.name!r} is not on the hub. Use a folder, or a Task with hub=..., an id."
        )
    repository, config = (task.hub, None) if isinstance(task.hub, str) else task.hub
    data = load_hub_dataset(repository, config)
    return {
        ours: (f"{repository}/{theirs}", data[theirs])
        for ours, theirs in task.hub_splits.items()
        if theirs in data or ours in LABELLED
    }
