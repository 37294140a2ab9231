"""The prediction files and the score of the CS224N default project (minBERT).

Names, headers and rows are those of the starter code, misspelling included: a header of `id`, tab
and column name, then rows `id , value`; every line ends in a space. Notebook 10 uses this module.
"""

import math
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmlkit.data.files import find_files, read_rows
from mmlkit.data.loading import make_split
from mmlkit.data.tasks import get_task
from mmlkit.messages import count
from mmlkit.runtime import atomic_write
from mmlkit.training import metrics
from mmlkit.training.evaluation import predict_scores

__all__ = [
    "Problem",
    "check_submission",
    "constant_accuracies",
    "overall_score",
    "prediction_file",
    "write_predictions",
    "write_submission",
]

HEADERS = {
    "sst": "Predicted_Sentiment",
    "cfimdb": "Predicted_Sentiment",
    "quora": "Predicted_Is_Paraphrase",
    "sts": "Predicted_Similiary",  # misspelled in the starter code, and expected by the grader
}
TASKS = {  # by option: the multitask part, and the two modes of the single-task part
    None: ("sst", "quora", "sts"),
    "pretrain": ("sst", "cfimdb"),
    "finetune": ("sst", "cfimdb"),
}
ROWS = {
    ("sst", "dev"): 1101,
    ("sst", "test"): 2210,
    ("cfimdb", "dev"): 245,
    ("cfimdb", "test"): 488,
    ("quora", "dev"): 20212,  # without two rows that have no label
    ("sts", "dev"): 863,
    ("sts", "test"): 1725,
}


class Problem(NamedTuple):
    """A fault in a submission that a grader would reject.

    Attributes:
        file: the name of the file.
        row: the line of the file, where the header is 1, or None for the whole file.
        found: what is there.
        expected: what a grader expects.
    """

    file: str
    row: int | None
    found: str
    expected: str

    def __str__(self):
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{place}: found {self.found}, expected {self.expected}"


# ---- the score ----


def overall_score(sst_accuracy, paraphrase_accuracy, sts_correlation):
    """Return the mean of two accuracies and of the correlation scaled from -1..1 to 0..1.

    Args:
        sst_accuracy: from 0 to 1.
        paraphrase_accuracy: from 0 to 1.
        sts_correlation: Pearson's r. nan, of a constant prediction, counts as 0.

    Returns:
        The overall score, from 0 to 1.

    Raises:
        ValueError: an accuracy is outside 0 to 1 (a percentage, perhaps), or r outside -1 to 1.
    """
    correlation = 0.0 if math.isnan(sts_correlation) else sts_correlation
    for name, value, lowest in (
        ("sst_accuracy", sst_accuracy, 0),
        ("paraphrase_accuracy", paraphrase_accuracy, 0),
        ("sts_correlation", correlation, -1),
    ):
        if not lowest <= value <= 1:
            raise ValueError(
                f"{name} is {value}, expected {lowest} to 1; divide a percentage by 100."
            )
    return (sst_accuracy + paraphrase_accuracy + (correlation + 1) / 2) / 3


def constant_accuracies(split):
    """Return the accuracy of each constant prediction, the sign of a model that learned nothing.

    On the course's dev sets, always "positive" scores 279/1101 = 0.253 and always "not_duplicate"
    12,627/20,212 = 0.625. These are the report's SST accuracy with sequential PALs and with
    parallel PALs at 1e-4, and its lowest paraphrase accuracy. Its 0.262 is always "negative".

    Args:
        split: a labelled Split of a classification task.

    Returns:
        {label: accuracy}.

    Raises:
        ValueError: the split has no labels, or its task is not a classification.
    """
    names = split.task.labels
    if split.labels is None or not names:
        raise ValueError(
            f"{split.task.name} {split.name} has no labels to count; expected a labelled split of "
            "a classification task."
        )
    counts = np.bincount(split.labels, minlength=len(names))
    return dict(zip(names, (counts / len(split)).tolist()))


# ---- writing ----


def prediction_file(task, split, option=None):
    """Return the name of a prediction file.

    Args:
        task: "sst", "quora" or "sts"; with an option "sst" or "cfimdb".
        split: "dev" or "test".
        option: None for the multitask part, "pretrain" or "finetune" for the single-task part.

    Returns:
        Such as "para-dev-output.csv", or "finetune-cfimdb-dev-out.csv" with an option.

    Raises:
        ValueError: there is no such file.
    """
    if task not in _tasks(option) or split not in ("dev", "test"):
        raise ValueError(
            f"there is no prediction file for task {task!r}, split {split!r}, option {option!r}; "
            f"expected a task of {_tasks(option)}, 'dev' or 'test'."
        )
    name = "para" if task == "quora" else task
    return f"{name}-{split}-output.csv" if option is None else f"{option}-{name}-{split}-out.csv"


def _tasks(option):
    if option not in TASKS:
        raise ValueError(f"option is {option!r}, expected one of {list(TASKS)}.")
    return TASKS[option]


def write_predictions(path, task, ids, scores):
    """Write one prediction file.

    Args:
        path: the file.
        task: "sst", "cfimdb", "quora" or "sts".
        ids: one per row.
        scores: [N, C]; the largest is the answer. For sts the scores themselves, [N] or [N, 1].

    Raises:
        ValueError: the course does not have the task, ids are empty, duplicate or not as many as
            scores, or a score is not finite.
    """
    task, scores = get_task(task), np.asarray(scores, dtype=np.float32).reshape(len(scores), -1)
    ids = [_plain(one) for one in ids]
    if task.name not in HEADERS:
        raise ValueError(f"the course has no task {task.name!r}; it has {list(HEADERS)}.")
    if len(ids) != len(scores) or len(set(ids)) < len(ids) or not all(ids):
        raise ValueError(
            f"{path}: {len(ids)} ids, {len(set(ids))} of them different, for "
            f"{count(len(scores), 'row')} of scores; expected one each."
        )
    if not np.isfinite(scores).all():
        raise ValueError(f"{path}: some scores are not finite numbers; the model has diverged.")
    answers = _answers(task.name)
    values = [answers[i] for i in scores.argmax(axis=1)] if answers else scores[:, 0].tolist()
    lines = [_header(task.name), *(f"{one} , {value} " for one, value in zip(ids, values))]
    with atomic_write(path) as temporary:
        temporary.write_bytes("".join(f"{line}\n" for line in lines).encode())


def _plain(one):
    """An id as the starter code reads it."""
    return str(one).strip().lower()


def _header(task):
    return f"id \t {HEADERS[task]} "


def _answers(task):
    """How each label is written: 0, 1, ... or as in quora's data 0.0 and 1.0; [] for a score."""
    labels = range(len(get_task(task).labels))
    return [str(float(i) if task == "quora" else i) for i in labels]


def write_submission(model, source, out, *, option=None, **keywords):
    """Write the dev and test predictions of each course task that the model has a head for.

    A missing test file is no error here; `check_submission` reports it.

    Args:
        model: a MultitaskModel.
        source: the folder with the course's files, *-test-student.csv among them.
        out: the folder to submit.
        option: None for the multitask part, "pretrain" or "finetune" for the single-task part.
        **keywords: keywords of `predict`, such as batch_size and max_length.

    Returns:
        The dev scores, {"sst accuracy": ...}, with "overall" for all three tasks.

    Raises:
        ValueError: the option is unknown, or the model has none of its tasks.
        FileNotFoundError: a task has no train or dev file.
        NotADirectoryError: `out` is a file.
    """
    if Path(out).exists() and not Path(out).is_dir():
        raise NotADirectoryError(f"{out} is a file. Expected a folder for the predictions.")
    names = [name for name in _tasks(option) if name in model.heads]
    if not names:
        raise ValueError(
            f"the model has heads for {list(model.heads)}, expected at least one of "
            f"{_tasks(option)}."
        )
    found = {}
    for name in names:
        for split in ("dev", "test"):
            if rows := _read(name, source, split):
                scores = predict_scores(model, rows, **keywords)
                path = Path(out) / prediction_file(name, split, option)
                write_predictions(path, name, rows.ids, scores)
                if split == "dev":
                    computed = metrics.compute(rows.task, scores, rows.labels)
                    metric = rows.task.metrics[0]
                    found[f"{name} {metric}"] = computed[metric]
    if len(names) == 3:
        found["overall"] = overall_score(*found.values())
    return found


def _read(name, source, split):
    """The rows of dev or test, or None where there is no such file; train is not read."""
    task = get_task(name)
    path = find_files(source, task).get(split)
    return None if path is None else make_split(task, read_rows(path)[1], place=path, name=split)


# ---- checking ----


def check_submission(folder, source=None, *, option=None, limit=10):
    """Return every problem of a folder of predictions; none where a grader accepts it.

    Args:
        folder: the folder to submit.
        source: the folder with the course's files, whose ids are compared. Without it only the
            number of rows is checked, and not that of quora's test file.
        option: as in `write_submission`.
        limit: problems reported per file; one more counts the rest.

    Returns:
        A list of Problem.

    Raises:
        ValueError: the option is unknown.
        FileNotFoundError: folder or source is not a folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder. Give the one with "
            f"{prediction_file('sst', 'dev', option)} in it."
        )
    problems = []
    for name in _tasks(option):
        for split in ("dev", "test"):
            path = folder / prediction_file(name, split, option)
            found = [Problem(path.name, *one) for one in _faults(path, name, split, source)]
            problems += found[:limit]
            if rest := len(found[limit:]):
                problems.append(Problem(path.name, None, count(rest, "more problem"), "none"))
    return problems


def _faults(path, name, split, source):
    """Yield (row, found, expected) of one file."""
    if not path.is_file():
        there = sorted(one.name for one in path.parent.glob("*.csv"))[:8]
        yield None, f"no such file among {there}", f"the {split} predictions of {name}"
        return
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        yield None, f"byte {error.object[error.start]:#04x}, not UTF-8", "plain text in UTF-8"
        return
    lines = text.removesuffix("\n").split("\n")
    if not text.endswith("\n"):
        yield len(lines), f"{lines[-1][:80]!r} without a line end", "a line end after every line"
    if lines[0] != _header(name):
        yield 1, repr(lines[0][:80]), repr(_header(name))
    answers, rows = _answers(name), {}
    expected = f"one of {', '.join(answers)}" if answers else "a finite number"
    for row, line in enumerate(lines[1:], start=2):
        parts = re.fullmatch(r"(\S+) , (\S+) ", line)
        if parts is None:
            yield row, repr(line[:80]), "'id , value ', with a space at the end"
            continue
        one, value = parts.groups()
        if not (value in answers if answers else _is_finite(value)):
            yield row, repr(value), expected
        if rows.setdefault(one, row) != row:
            yield row, f"id {one!r} again, already in row {rows[one]}", "every id once"
    yield from _wrong_ids(rows, name, split, source)


def _is_finite(value):
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _wrong_ids(rows, name, split, source):
    """Yield what is wrong with the ids of a file. rows: {id: row}."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without a label; predicting warned about them
        data = None if source is None else _read(name, source, split)
    if data is None:
        expected = ROWS.get((name, split), len(rows))
        if len(rows) != expected:
            yield None, f"{len(rows)} ids", f"{expected}"
        return
    wanted = dict.fromkeys(map(_plain, data.ids))
    whole = f"the {len(data)} ids of the {split} file"
    for one, row in rows.items():
        if one not in wanted:
            yield row, f"id {one!r}", f"one of {whole}"
    for one in wanted:
        if one not in rows:
            yield None, f"no row for id {one!r}", f"all {whole}"
