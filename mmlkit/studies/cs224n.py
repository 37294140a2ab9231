"""The files and the score of the CS224N default project (minBERT): what is handed in, to the byte, and what it counts.

Known are the names, headers and rows of the starter code, misspelling included: `id`, tab, column name, and then `id , value`,
every line with a space at its end. Notebook 10 hands in.
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
from mmlkit.runtime import replacing
from mmlkit.training import metrics
from mmlkit.training.evaluation import predict

__all__ = ["Problem", "check_submission", "constant_accuracies", "overall_score", "prediction_file", "write_predictions", "write_submission"]

OPTIONS = (None, "pretrain", "finetune")
HEADERS = {"sst": "Predicted_Sentiment", "cfimdb": "Predicted_Sentiment", "quora": "Predicted_Is_Paraphrase",
           "sts": "Predicted_Similiary"}      # so spelled in the starter code, and what a grader looks for
ROWS = {("sst", "dev"): 1101, ("sst", "test"): 2210, ("cfimdb", "dev"): 245, ("cfimdb", "test"): 488, ("quora", "dev"): 20212,
        ("sts", "dev"): 863, ("sts", "test"): 1725}       # quora's dev file has two more rows, without a label


class Problem(NamedTuple):
    """Something about a file that a grader would not take. row: the line of the file, the header being 1, or None for the whole."""

    file: str
    row: int | None
    found: str
    expected: str

    def __str__(self):
        return f"{self.file}{'' if self.row is None else f', row {self.row}'}: found {self.found}, expected {self.expected}"


# ---- the score ----

def overall_score(sst_accuracy, paraphrase_accuracy, sts_correlation):
    """The mean of two accuracies and of the correlation brought from -1..1 to 0..1; nan, of a constant prediction, counts as 0.

    Raises ValueError for an accuracy outside 0 to 1 (per cent, perhaps) or a correlation outside -1 to 1.
    """
    for name, accuracy in (("sst_accuracy", sst_accuracy), ("paraphrase_accuracy", paraphrase_accuracy)):
        if not 0 <= accuracy <= 1:
            raise ValueError(f"{name} is {accuracy}, expected a share from 0 to 1; divide per cent by 100.")
    correlation = 0.0 if math.isnan(sts_correlation) else sts_correlation
    if not -1 <= correlation <= 1:
        raise ValueError(f"sts_correlation is {sts_correlation}, expected Pearson's r from -1 to 1, or nan.")
    return (sst_accuracy + paraphrase_accuracy + (correlation + 1) / 2) / 3


def constant_accuracies(split):
    """{label: accuracy of a model that always answers so}: the numbers that show a model has learned nothing.

    On the course's dev sets always "positive" scores 279/1101 = 0.253 and always "not_duplicate" 12,627/20,212 = 0.625. These are
    the report's SST accuracy with sequential PALs, at every learning rate, and with parallel ones at 1e-4, and its lowest
    paraphrase accuracy; the 0.262 at 1e-3 is always "negative", 289/1101.
    Raises ValueError for a split without labels, or of a task that has none.
    """
    if split.labels is None or not split.task.labels:
        raise ValueError(f"{split.task.name} {split.name} has no labels to count; expected a labelled split of a classification task.")
    counts = np.bincount(split.labels, minlength=split.task.num_labels)
    return dict(zip(split.task.labels, (counts / len(split)).tolist()))


# ---- writing ----

def prediction_file(task, split, option=None):
    """The name of a prediction file: "para-dev-output.csv" of the multitask part; with option "finetune" or "pretrain", of the
    single-task part, "finetune-cfimdb-dev-out.csv".

    task: "sst", "quora" or "sts"; with an option "sst" or "cfimdb". Raises ValueError for other words.
    """
    if option not in OPTIONS or task not in _tasks(option) or split not in ("dev", "test"):
        raise ValueError(f"there is no prediction file for task {task!r}, split {split!r}, option {option!r}; expected a task of {_tasks(option)}, "
                         f"'dev' or 'test', and an option of {list(OPTIONS)}.")
    name = {"quora": "para"}.get(task, task)
    return f"{name}-{split}-output.csv" if option is None else f"{option}-{name}-{split}-out.csv"


def _tasks(option):
    return ["sst", "quora", "sts"] if option is None else ["sst", "cfimdb"]


def write_predictions(path, task, ids, scores):
    """Writes one prediction file.

    ids: one per row. scores: [N,C], as `predict` gives them: the largest is the answer, or the score itself for sts.
    Raises ValueError for a task the course does not have, ids that are empty, twice there, or not as many as scores, and
    scores that are not finite.
    """
    task, scores = get_task(task), np.asarray(scores, dtype=np.float32).reshape(len(scores), -1)
    ids = [str(one).strip().lower() for one in ids]         # as the starter code reads them
    if task.name not in HEADERS:
        raise ValueError(f"the course has no task {task.name!r}; it has {list(HEADERS)}.")
    if len(ids) != len(scores) or len(set(ids)) < len(ids) or not all(ids):
        raise ValueError(f"{path}: {len(ids)} ids, {len(set(ids))} of them different, for {count(len(scores), 'row')} of scores; expected one each.")
    if not np.isfinite(scores).all():
        raise ValueError(f"{path}: some scores are not finite numbers; the model has diverged.")
    values = (scores[:, 0] if task.kind == "regression" else metrics.predicted_labels(scores)).tolist()
    if task.name == "quora":
        values = [float(value) for value in values]         # 0.0 and 1.0, as in the data
    lines = [f"id \t {HEADERS[task.name]} \n", *(f"{one} , {value} \n" for one, value in zip(ids, values))]
    with replacing(path) as temporary:
        temporary.write_bytes("".join(lines).encode())


def write_submission(model, source, out, *, option=None, batch_size=64, max_length=512):
    """Writes the dev and test predictions of each course task the model has a head for; returns its dev scores.

    source: the folder with the course's files, *-test-student.csv among them; where a test file is missing nothing is written for
    it, and `check_submission` says so. out: the folder to hand in. option: None, or "pretrain" or "finetune" for the single-task
    part. Returns {"sst accuracy": ..., "overall": ...}; overall where all three tasks are there.
    Raises ValueError when the model has none of the tasks, FileNotFoundError when a task has no train or dev file.
    """
    names = [name for name in _tasks(option) if name in model.heads]
    if not names:
        raise ValueError(f"the model has heads for {list(model.heads)}, none of them one of {_tasks(option)}.")
    found = {}
    for name in names:
        for split in ("dev", "test"):
            rows = _read(name, source, split)
            if rows is not None:
                scores = predict(model, rows, batch_size=batch_size, max_length=max_length)
                write_predictions(Path(out) / prediction_file(name, split, option), name, rows.ids, scores)
                if split == "dev":
                    metric, value = next(iter(metrics.compute(rows.task, scores, rows.labels).items()))
                    found[f"{name} {metric}"] = value
    if names == _tasks(None):
        found["overall"] = overall_score(*found.values())
    return found


def _read(name, source, split):
    """The rows of dev or test, or None where there is no such file; train is not read."""
    task = get_task(name)
    path = find_files(source, task).get(split)
    return None if path is None else make_split(task, read_rows(path)[1], place=path, name=split)


# ---- checking ----

def check_submission(folder, source=None, *, option=None, limit=10):
    """What is missing or wrong in a folder of predictions, as a list of Problem; empty when a grader will take it.

    source: the folder with the course's files, to compare ids with; without it only the number of rows is known, and of quora's
    test file not even that. option: as in `write_submission`. limit: problems told per file; one more then counts the rest.
    Raises FileNotFoundError when folder or source is none.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder. Give the one with {prediction_file('sst', 'dev', option)} in it.")
    problems = []
    for name in _tasks(option):
        for split in ("dev", "test"):
            found = _check_file(folder / prediction_file(name, split, option), name, split, source)
            problems += found[:limit]
            if rest := len(found[limit:]):
                problems.append(Problem(found[0].file, None, count(rest, "more problem"), "none"))
    return problems


def _check_file(path, name, split, source):
    """Every problem of one file."""
    if not path.is_file():
        there = sorted(one.name for one in path.parent.glob("*.csv"))
        return [Problem(path.name, None, f"no such file among {there[:8]}", f"the {split} predictions of {name}")]
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return [Problem(path.name, None, f"byte {error.object[error.start]:#04x}, not UTF-8", "plain text in UTF-8")]
    *lines, rest = text.split("\n")
    header, problems, where = f"id \t {HEADERS[name]} ", [], {}
    if rest or not lines:
        lines.append(rest)
        problems.append(Problem(path.name, len(lines), repr(rest[:80]) + " without a line end", "a line end after every line"))
    if lines[0] != header:
        problems.append(Problem(path.name, 1, repr(lines[0][:80]), repr(header)))
    for row, line in enumerate(lines[1:], start=2):
        parts = re.fullmatch(r"(\S+) , (\S+) ", line)
        if parts is None:
            problems.append(Problem(path.name, row, repr(line[:80]), "'id , value ', with a space at the end"))
            continue
        one, value = parts.groups()
        if not _fits(name, value):
            problems.append(Problem(path.name, row, repr(value), _wanted(name)))
        if one in where:
            problems.append(Problem(path.name, row, f"id {one!r} again, already in row {where[one]}", "every id once"))
        where.setdefault(one, row)
    return problems + _check_ids(path.name, where, name, split, source)


def _check_ids(file, where, name, split, source):
    """Problems of which ids there are. where: {id: row}."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # rows without a label: told when they were predicted
        rows = None if source is None else _read(name, source, split)
    if rows is None:
        count = ROWS.get((name, split), len(where))
        return [] if len(where) == count else [Problem(file, None, f"{len(where)} ids", f"{count}")]
    wanted = [str(one).strip().lower() for one in rows.ids]
    known = set(wanted)
    whole = f"the {len(wanted)} ids of the {split} file"
    strange = [Problem(file, row, f"id {one!r}", f"one of {whole}") for one, row in where.items() if one not in known]
    return strange + [Problem(file, None, f"no row for id {one!r}", f"all {whole}") for one in wanted if one not in where]


def _fits(name, value):
    if name == "sts":
        try:
            return math.isfinite(float(value))
        except ValueError:
            return False
    return value in [str(float(i) if name == "quora" else i) for i in range(get_task(name).num_labels)]


def _wanted(name):
    if name == "sts":
        return "a finite number"
    return "0.0 or 1.0" if name == "quora" else f"a whole number from 0 to {get_task(name).num_labels - 1}"
