"""Loading a task's rows and labels: from the mini data, the hub, or a folder of files.

Every row is checked once, here. An error names the file, the row, the column, what was found and
what was expected. Notebooks 00 and 02 use it.
"""

import dataclasses
import math
import os
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mmlkit.data.files import canonical_columns, find_files, first_few, name_classes, read_rows
from mmlkit.data.tasks import Task, get_task, label_key
from mmlkit.hub import load_hub_dataset
from mmlkit.messages import check_number

__all__ = ["Split", "TaskData", "load_task", "make_split"]

ON_BAD_ROW = ("drop_unlabelled", "drop", "refuse")
LARGEST = 3.4e38  # of float32, the type of a score
# float() also reads 0_1 and the digits of other scripts, which nobody means in a table.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_BETWEEN = "between"  # STS-B*: neither similar nor dissimilar, so the row is dropped


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
        labels = "" if self.labels is not None else ", without labels"
        return f"Split({self.task.name!r}, {self.name!r}, {len(self):,} rows{labels})"

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

        Raises:
            ValueError: a mask has another length, or the values are no whole numbers.
        """
        rows = np.asarray(rows if hasattr(rows, "dtype") else list(rows))
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise ValueError(f"rows is a mask of {rows.size} values for {len(self)} rows.")
            rows = np.flatnonzero(rows)
        elif rows.size and not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(f"rows has {rows.dtype} values, expected row numbers or a mask.")
        rows = rows.astype(np.int64).tolist()
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

    def __repr__(self):
        """Return a line with the number of rows of each split."""
        parts = {"train": self.train, "dev": self.dev, "test": self.test, **self.more}
        rows = ", ".join(f"{name} {len(one):,}" for name, one in parts.items() if one is not None)
        return f"TaskData({self.task.name!r} from {self.source!r}, rows: {rows})"

    def split(self, name):
        """Return a split by its name.

        Args:
            name: "train", "dev", "test" or a key of `more`.

        Returns:
            The `Split`, or None where there is none.
        """
        return {"train": self.train, "dev": self.dev, "test": self.test, **self.more}.get(name)


def load_task(
    task, source="mini", *, limit=None, seed=0, labels=None, on_bad_row="drop_unlabelled"
):
    """Load the data of a task.

    Labels are matched by name. Integers alone do not say which label they mean, so a file with
    integer labels needs `labels`. Their order is known for the hub's data sets, the CS224N course's
    files and GLUE's .tsv files.

    Args:
        task: a name of `list_tasks()`, or a `Task` of one's own.
        source: "mini" (in this repository), "hub", or a folder of csv, tsv, jsonl or parquet files
            named train, dev (or validation) and test, or of MT-DNN's canonical files
            (rte_train.tsv: id, label, text, perhaps second text; no header line). A canonical test
            file with one label in all rows counts as unlabelled, as GLUE's test sets are.
        limit: the largest number of rows of each split, or None for all. They are drawn at random.
            The labels of all rows are checked, but only the texts of the drawn ones (from the hub,
            all rows are searched for missing texts).
        seed: the seed of that draw.
        labels: the label names in the order of the file's integers, such as ("no", "yes"); or a
            dict from a label in the file to its name in the task.
        on_bad_row: "drop_unlabelled" drops rows without a label. "drop" also drops lines that have
            more or fewer columns than the header. Warnings count the dropped rows. "refuse" stops
            at both. All other faults always stop, except that labelled rows without a text are
            dropped from data of the hub, where nobody can correct them (GLUE's QQP has two).

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
            f"{task.name!r} ranks rows of another task; use "
            f"mmlkit.heads.ranking.rank_queries(load_task({base!r}))."
        )
    if on_bad_row not in ON_BAD_ROW:
        raise ValueError(f"on_bad_row is {on_bad_row!r}, expected one of {ON_BAD_ROW}.")
    _check_draw(limit, seed)
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise ValueError(f"source is {source!r:.80}, expected 'mini', 'hub', or a folder's name.")
    if source == "hub":
        tables = _hub_tables(task)
    else:
        folder = _mini_folder(task) if source == "mini" else Path(source).expanduser()
        tables = {
            split: read_rows(path, task, drop_ragged=on_bad_row == "drop")
            for split, path in find_files(folder, task).items()
        }
    if hasattr(labels, "__next__"):
        labels = list(labels)  # an iterator gives them once, and each split needs them
    splits = {}
    for name, (place, rows) in tables.items():
        options = dict(labels=labels, on_bad_row=on_bad_row, limit=limit, seed=seed)
        options["drop_blank"] = source == "hub" and on_bad_row != "refuse"
        splits[name] = make_split(task, rows, place=place, name=name, **options)
    train, dev, test = (splits.pop(name, None) for name in ("train", "dev", "test"))
    return TaskData(task, train, dev, test, source=str(source), more=splits)


def make_split(
    task,
    rows,
    *,
    place="rows",
    labels=None,
    on_bad_row="drop_unlabelled",
    name="data",
    limit=None,
    seed=0,
    drop_blank=False,
):
    """Make a split of rows, and check them: all labels, then the texts of the rows that stay.

    Args:
        task: a name of `list_tasks()`, or a `Task`.
        rows: (row number, dict of the columns) pairs, as `read_rows` returns them.
        place: the file of the rows. Messages name it, and a known name tells the order of integer
            labels.
        labels: see `load_task`.
        on_bad_row: see `load_task`.
        name: the split. "train" and "dev" need labels.
        limit: see `load_task`.
        seed: see `load_task`.
        drop_blank: whether labelled rows without a text are dropped, with a warning.

    Returns:
        A `Split`. Its labels are None where the file has none.

    Raises:
        ValueError: a row or a column is wrong. The message names the first one.
    """
    task, rows = get_task(task), _pairs(rows)
    _check_draw(limit, seed)
    if not rows:
        raise ValueError(
            f"{place} holds no rows. Expected columns {list(task.text_columns)} and a label."
        )
    needed, keys = name in ("train", "dev"), dict.fromkeys(key for _, row in rows for key in row)
    columns = [_find_column(task, column, keys, place) for column in task.text_columns]
    column = _find_column(task, "label", keys, place, required=needed)
    _check_columns(task, (*columns, column), place)
    values = _labels(task, rows, column, _label_indices(task, labels, place), place)
    blank = [number for (number, _), value in zip(rows, values) if value is None]
    kept = [i for i, value in enumerate(values) if value not in (None, _BETWEEN)]
    same = column and name == "test" and len({values[i] for i in kept}) == 1 < len(kept)
    placeholder = same and canonical_columns(place, task)
    if placeholder:
        warnings.warn(
            f"{place}: all rows have the same label, which is MT-DNN's placeholder for unknown "
            "labels. The split has no labels.",
            stacklevel=3,
        )
    if placeholder or (not needed and len(blank) == len(rows)):
        without = [(i, {key: row[key] for key in row if key != column}) for i, row in rows]
        return make_split(task, without, place=place, name=name, limit=limit, seed=seed)
    if blank:
        count = f"{len(blank)} of {len(rows)} (row {first_few(blank)})"
        found = f"{place}: rows without a label in column {column!r}: {count}"
        if len(blank) == len(rows):
            raise ValueError(f"{found}. Expected labels in a {name} file.")
        if on_bad_row == "refuse":
            raise ValueError(f"{found}. Add the labels, or pass on_bad_row='drop_unlabelled'.")
        warnings.warn(f"{found}; they were dropped.", stacklevel=3)
    if drop_blank and column:
        empty = [i for i in kept if not all(_visible(rows[i][1].get(one)) for one in columns)]
        if empty:
            numbers = first_few([rows[i][0] for i in empty])
            found = f"{place}: rows without a text: {len(empty)} of {len(rows)} (row {numbers})"
            warnings.warn(f"{found}; they were dropped.", stacklevel=3)
            gone = set(empty)
            kept = [i for i in kept if i not in gone]
    if not kept:
        raise ValueError(
            f"{place}: no row is left of {len(rows)} for task {task.name!r}. Expected at least one "
            "with a label of the task."
        )
    if limit is not None and limit < len(kept):
        drawn = np.random.default_rng(seed).permutation(len(kept))[:limit]
        kept = [kept[i] for i in np.sort(drawn)]
    dtype = np.int64 if task.labels else np.float32
    array = np.array([values[i] for i in kept], dtype) if column else None
    known = {*columns, column, *task.text_columns, "label", "id", "idx", ""}
    others = [key for key in keys if key not in known and not str(key).isdigit()]
    rows = [rows[i] for i in kept]
    texts = [
        tuple(_text(row.get(one), f"{place}, row {number}, column {one!r}") for one in columns)
        for number, row in rows
    ]
    ids = [row.get("id", row.get("idx", number)) for number, row in rows]
    others = {key: [row.get(key) for _, row in rows] for key in others}
    return Split(task, texts, array, ids, name, columns=others)


def _check_draw(limit, seed):
    check_number("limit", limit, 1, whole=True, optional=True)
    check_number("seed", seed, 0, whole=True)


def _pairs(rows):
    """Return the (row number, dict of the columns) pairs of `make_split`, as a list."""
    rows = list(rows) if hasattr(rows, "__iter__") else [rows]
    for row in rows:
        if not (isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], dict)):
            raise ValueError(
                f"a row is {row!r:.80}; expected (row number, dict of the columns) pairs. For a "
                "list of dicts pass enumerate(rows), for a DataFrame "
                "enumerate(frame.to_dict('records'))."
            )
    return rows


def _labels(task, rows, column, indices, place):
    """Return `_label` of every row, or an empty text where the file has no labels."""
    if column is None:
        return [""] * len(rows)
    known, values = {}, []  # there are few different labels, but perhaps 400,000 rows
    for number, row in rows:
        key = repr(row.get(column))
        if key not in known:
            where = f"{place}, row {number}, column {column!r}"
            known[key] = _label(task, row.get(column), indices, where)
        values.append(known[key])
    return values


def _label_indices(task, labels, place):
    """Return {label as it may stand in the file: its index in task.labels}.

    Integers are among the keys where their order is known.
    """
    own = sorted(map(label_key, task.labels))
    indices = {label_key(_whole(label)): i for i, label in enumerate(task.labels)}
    indices |= {label_key(label): i for i, label in enumerate(task.labels)}
    file = Path(str(place)).name
    known = file in task.files.values() or (task.integers_in_tsv and file.endswith(".tsv"))
    given = (task.labels if known else ()) if labels is None else labels
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ValueError(
            f"labels is {given!r:.80}, expected the names in the order of the file's integers, "
            f"such as {task.labels}, or a dict from labels of the file to names."
        )
    if not isinstance(given, dict):
        given = list(given)
        named = labels is not None or given
        if named and sorted(map(label_key, given)) != own:
            raise ValueError(
                f"labels is {list(given)}, expected the names {list(task.labels)}, each once, in "
                "the order of the file's integers."
            )
        given = dict(enumerate(given))
        names = {i: indices.get(str(i), indices[label_key(one)]) for i, one in given.items()}
        clash = [i for i, one in given.items() if names[i] != indices[label_key(one)]]
        if clash and labels is not None:
            raise ValueError(
                f"labels says that {clash[0]} in the file means {given[clash[0]]!r}, but "
                f"{str(clash[0])!r} is itself a label of task {task.name!r}, and labels are "
                "matched by name. Leave labels out, or pass a dict from labels of the file to "
                "names."
            )
        given = {} if clash else given  # the names themselves are integers
    given = {**task.label_aliases, **given}
    for found, ours in given.items():
        if label_key(ours) not in indices:
            raise ValueError(
                f"labels maps {found!r} to {ours!r}, which is not one of {list(task.labels)}."
            )
    return indices | {label_key(found): indices[label_key(ours)] for found, ours in given.items()}


def _find_column(task, column, row, place, required=True):
    """Return the name under which a column stands in this file."""
    known = task.names(column)
    if column == "label" and {"label", "label_text"} <= set(row) - set(task.text_columns):
        known = ("label_text",)  # SetFit's data sets have both, and integers as the label
    found = next((one for one in known if one in row), None)
    if found is None and required:
        columns = [str(key) for key in row]
        alone = len(columns) == 1 and any(mark in columns[0] for mark in ",;\t|")
        hint = " The header is one column: the separator is not that of the file's ending." * alone
        raise ValueError(
            f"{place} has no column {column!r} (columns found: {columns}).{hint} Expected "
            f"{list(task.text_columns)} and 'label' for task {task.name!r}; rename the column in "
            "the file."
        )
    return found


def _check_columns(task, found, place):
    """Check that no two columns of a task are read from one column of the file."""
    ours = {}
    for name, one in zip((*task.text_columns, "label"), found):
        if one is not None and ours.setdefault(one, name) != name:
            raise ValueError(
                f"{place}: the columns {ours[one]!r} and {name!r} of task {task.name!r} would both "
                f"be read from {one!r}. Rename the file's columns, or pass a Task with aliases=..."
            )


def _visible(value):
    """Return whether a text has a letter; one of U+200B or of control codes has none."""
    return isinstance(value, str) and any(c.isprintable() and not c.isspace() for c in value)


def _text(value, where):
    if not _visible(value):
        raise ValueError(
            f"{where}: found {value!r}, expected some text. Fill it in or remove the row."
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: found {value!r:.80}, which has half of a UTF-16 pair. Save the file as "
            "UTF-8 again."
        ) from error
    if "\0" in value:
        raise ValueError(f"{where}: found {value!r:.80}, which has a NUL character. Remove it.")
    return value.strip()


def _whole(value):
    """Return a label as text, and 1 for 1.0, as the course's files write it."""
    return re.sub(r"^(-?\d+)\.0*$", r"\1", str(value).strip())


def _label(task, value, indices, where):
    """Return the label's index in task.labels, or its score; None where it is unknown."""
    if value is None or value != value:
        return None
    text = _whole(value)
    if task.kind != "regression" and not task.score_range:
        for form in (str(value).strip(), text):  # before -1 and - are taken for unknown
            if label_key(form) in indices:
                return indices[label_key(form)]
    low, high = task.score_range or (-LARGEST, LARGEST)
    negative = task.kind == "regression" and low <= -1
    if text in ("", "-") or (text == "-1" and not negative):
        return None
    if task.kind == "regression" or task.score_range:
        score = float(text) if NUMBER.fullmatch(text) else math.nan
        if not low <= score <= high:
            raise ValueError(
                f"{where}: found {text!r}, expected a number from {low:g} to {high:g}."
            )
        if task.kind == "regression":
            return score
        return 0 if score <= 2 else 1 if score >= 4 else _BETWEEN
    if text.isdigit() and "0" not in indices:
        raise ValueError(
            f"{where}: found the integer label {value!r}, and nothing says which of "
            f"{list(task.labels)} it is. Pass the names in the order of the integers, for instance "
            f"labels={task.labels} where 0 is {task.labels[0]!r}."
        )
    raise ValueError(
        f"{where}: label {value!r} is not one of {list(task.labels)}. Labels are matched by name; "
        f"rename it in the file or pass labels={{{str(value)!r}: ...}} to load_task."
    )


def _mini_folder(task):
    """Return the mini data of a task: inside an installed package, or beside it in a checkout."""
    here, name = Path(__file__).resolve().parents[1], task.mini or task.name
    places = (here / "mini", here.parent / "data" / "mini")
    found = next((place / name for place in places if (place / name).is_dir()), None)
    if found is None:
        have = sorted(path.parent.name for place in places for path in place.glob("*/train.csv"))
        raise FileNotFoundError(
            f"Task {task.name!r} has no mini data (found beside {here}: {', '.join(have)}). Use "
            "source='hub', or source=FOLDER with its files. Reinstall mmlkit if nothing was found."
        )
    return found


def _hub_tables(task):
    """Return {split: (place, rows)} of a data set on the hub, its labels by name."""
    if task.hub is None:
        raise ValueError(
            f"Task {task.name!r} is not on the hub. Use source='mini', or a folder with its files; "
            "or pass a Task with hub=..., the id of a data set."
        )
    repository, config = (task.hub, None) if isinstance(task.hub, str) else task.hub
    data = load_hub_dataset(repository, config)
    tables = {}
    for ours, theirs in task.hub_splits.items():
        if theirs in data:
            features = data[theirs].features.items()
            names = {column: one.names for column, one in features if hasattr(one, "names")}
            rows = name_classes(data[theirs].to_list(), names)
            tables[ours] = (f"{repository}/{theirs}", list(enumerate(rows)))
    if not {"train", "dev"} <= set(tables):
        raise ValueError(
            f"{repository} has splits {list(data)}, expected {list(task.hub_splits.values())}. "
            "For another name pass a Task with hub_splits={'train': ..., 'dev': ...}."
        )
    return tables
