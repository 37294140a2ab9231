"""The prediction files of the CS224N default project (minBERT).

Names, headers and rows are those of the starter code, misspelling included: a header of `id`, tab
and column name, then rows `id , value`; every line ends in a space. Notebook 12 uses this module.
"""

import math
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmlcourse.studies.course_score import TASKS, overall_score
from mmlcourse.text import count
from mmlkit.data.files import find_files, read_rows
from mmlkit.data.loading import make_split
from mmlkit.data.tasks import get_task
from mmlkit.files import atomic_write, write_file
from mmlkit.training import metrics
from mmlkit.training.evaluation import predict_scores

__all__ = [
    "Problem",
    "check_submission",
    "header",
    "is_finite",
    "plain",
    "prediction_file",
    "write_course_files",
    "write_predictions",
    "write_submission",
]

HEADERS = {
    "sst": "Predicted_Sentiment",
    "cfimdb": "Predicted_Sentiment",
    "quora": "Predicted_Is_Paraphrase",
    "sts": "Predicted_Similiary",  # misspelled in the starter code, and expected by the grader
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


# ---- writing ----


def write_course_files(data, folder, *, limit=None):
    """Write data in the form of the course's files: tabs, and a first column without a name.

    Args:
        data: {task: TaskData} of "sst", "quora" or "sts". Where a task has no test rows, those of
            dev stand in.
        folder: the folder to write into.
        limit: the largest number of test rows, or None.

    Returns:
        The folder.
    """
    import pandas as pd

    folder = Path(folder).expanduser()
    for name, one in data.items():
        column = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}[name]
        for part in ("train", "dev", "test"):
            split = one.splits.get(part, one.dev)  # some data have no test split
            if part == "test" and limit:
                split = split.take(range(min(limit, len(split))))
            columns = {"id": [f"{name}{row}" for row in split.ids]}
            columns |= dict(zip(one.task.text_columns, zip(*split.texts)))
            if part != "test":
                kind = float if name == "quora" else split.labels.dtype
                columns[column] = split.labels.astype(kind)
            with atomic_write(folder / one.task.files[part]) as temporary:
                pd.DataFrame(columns).to_csv(temporary, sep="\t")
    return folder


def prediction_file(task, split, option=None):
    """Return the name of a prediction file.

    Args:
        task: "sst", "quora" or "sts"; with an option "sst" or "cfimdb".
        split: "dev" or "test".
        option: None for the multitask part, "pretrain" or "finetune" for the single-task part.

    Returns:
        Such as "para-dev-output.csv", or "finetune-cfimdb-dev-out.csv" with an option.
    """
    name = "para" if task == "quora" else task
    return f"{name}-{split}-output.csv" if option is None else f"{option}-{name}-{split}-out.csv"


def write_predictions(path, task, ids, scores):
    """Write one prediction file.

    Args:
        path: the file.
        task: "sst", "cfimdb", "quora" or "sts".
        ids: one per row.
        scores: [N, C]; the largest is the answer. For sts the scores themselves, [N] or [N, 1].

    Raises:
        ValueError: there are more or fewer ids than scores, scores have another number of columns,
            or a score is not finite.
    """
    scores = np.asarray(scores, dtype=np.float32).reshape(len(scores), -1)
    if not np.isfinite(scores).all():
        raise ValueError(f"{path}: some scores are not finite numbers; the model has diverged.")
    answers = _answers(task)
    if scores.shape[1] != (len(answers) or 1):  # one logit z of two labels: pass -z and z
        raise ValueError(
            f"{path}: scores has {count(scores.shape[1], 'column')}, expected {len(answers) or 1}."
        )
    values = [answers[i] for i in scores.argmax(axis=1)] if answers else scores[:, 0].tolist()
    rows = [f"{plain(one)} , {value} \n" for one, value in zip(ids, values, strict=True)]
    write_file(Path(path).expanduser(), "".join([f"{header(task)}\n", *rows]))


def plain(one):
    """Return an id as the starter code reads it.

    Args:
        one: the id.

    Returns:
        Its text in small letters, without spaces around it.
    """
    return str(one).strip().lower()


def header(task):
    """Return the first line of a prediction file.

    Args:
        task: "sst", "cfimdb", "quora" or "sts".

    Returns:
        The line, without its end.
    """
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
    """
    names = [name for name in TASKS[option] if name in model.heads]
    found = {}
    for name in names:
        for split in ("dev", "test"):
            if rows := _read(name, source, split):
                scores = predict_scores(model, rows, **keywords)
                path = Path(out).expanduser() / prediction_file(name, split, option)
                write_predictions(path, name, rows.ids, scores)
                if split == "dev":
                    score = metrics.compute(rows.task, scores, rows.labels)
                    metric = rows.task.metrics[0]
                    found[f"{name} {metric}"] = score[metric]
    if len(names) == 3:
        found["overall"] = overall_score(*found.values())
    return found


def _read(name, source, split):
    """The rows of dev or test, or None where there is no such file; train is not read."""
    task = get_task(name)
    path = find_files(source, task).get(split)
    return None if path is None else make_split(task, read_rows(path), place=path, name=split)


# ---- checking ----


def check_submission(folder, source, *, option=None):
    """Return the problems of a folder of predictions, ten per file; none where a grader accepts it.

    Args:
        folder: the folder to submit.
        source: the folder with the course's files, whose ids are compared.
        option: as in `write_submission`.

    Returns:
        A list of Problem. Where a file has more than ten, one more counts the rest.
    """
    folder = Path(folder).expanduser()
    problems = []
    for name in TASKS[option]:
        for split in ("dev", "test"):
            path = folder / prediction_file(name, split, option)
            found = [Problem(path.name, *one) for one in _faults(path, name, split, source)]
            problems += found[:10]
            if rest := len(found[10:]):
                problems.append(Problem(path.name, None, count(rest, "more problem"), "none"))
    return problems


def _faults(path, name, split, source):
    """Yield (row, found, expected) of one file."""
    if not path.is_file():
        yield None, "no such file", f"the {split} predictions of {name}"
        return
    text = path.read_bytes().decode("utf-8", errors="replace")
    lines = text.removesuffix("\n").split("\n")
    if not text.endswith("\n"):
        yield len(lines), f"{lines[-1][:80]!r} without a line end", "a line end after every line"
    if lines[0] != header(name):
        yield 1, repr(lines[0][:80]), repr(header(name))
    answers, rows = _answers(name), {}
    expected = f"one of {', '.join(answers)}" if answers else "a finite number"
    for row, line in enumerate(lines[1:], start=2):
        parts = re.fullmatch(r"(\S+) , (\S+) ", line)
        if parts is None:
            yield row, repr(line[:80]), "'id , value ', with a space at the end"
            continue
        one, value = parts.groups()
        if not (value in answers if answers else is_finite(value)):
            yield row, repr(value), expected
        if rows.setdefault(one, row) != row:
            yield row, f"id {one!r} again, already in row {rows[one]}", "every id once"
    yield from _wrong_ids(rows, name, split, source)


def is_finite(value):
    """Return whether a text is a finite number.

    Args:
        value: the text.

    Returns:
        True or False.
    """
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _wrong_ids(rows, name, split, source):
    """Yield what is wrong with the ids of a file. rows: {id: row}."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without a label; predicting warned about them
        data = _read(name, source, split)
    if data is None:
        return
    wanted = dict.fromkeys(map(plain, data.ids))
    whole = f"the {len(data)} ids of the {split} file"
    for one, row in rows.items():
        if one not in wanted:
            yield row, f"id {one!r}", f"one of {whole}"
    for one in wanted:
        if one not in rows:
            yield None, f"no row for id {one!r}", f"all {whole}"
