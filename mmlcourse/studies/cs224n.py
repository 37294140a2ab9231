"""The prediction files of the CS224N default project (minBERT).

Names, headers and rows are those of the starter code, misspelling included: a header of `id`, tab
and column name, then rows `id , value`; every line ends in a space. Notebook 12 uses this module.
"""

import contextlib
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
    "find_predictions",
    "header",
    "plain",
    "prediction_file",
    "read_predictions",
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
        option: None for the multitask part; for the single-task part "pretrain" or "finetune", and
            since 2024 "last-linear-layer" or "full-model".

    Returns:
        Such as "para-dev-output.csv", or "finetune-cfimdb-dev-out.csv" with an option.
    """
    name = "para" if task == "quora" else task
    return f"{name}-{split}-output.csv" if option is None else f"{option}-{name}-{split}-out.csv"


def find_predictions(folder, task, split, option=None):
    """Return the path of a prediction file: in a folder, or in its predictions/.

    Args:
        folder: the folder.
        task: as in `prediction_file`, also split and option.
        split: see there.
        option: see there.

    Returns:
        The path, in the folder itself where the file is in neither.
    """
    name = prediction_file(task, split, option)
    paths = [Path(folder, place, name).expanduser() for place in ("", "predictions")]
    return next((path for path in paths if path.is_file()), paths[0])


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
    columns = get_task(task).num_labels
    if scores.shape[1] != columns:  # one logit z of two labels: pass -z and z
        raise ValueError(
            f"{path}: scores has {count(scores.shape[1], 'column')}, expected {columns}."
        )
    values = scores[:, 0] if columns == 1 else scores.argmax(axis=1)
    values = values.astype(float if task in ("quora", "sts") else int).tolist()
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


def write_submission(model, source, out, *, option=None, **keywords):
    """Write the dev and test predictions of each course task that the model has a head for.

    A missing test file is no error here; `check_submission` reports it.

    Args:
        model: a MultitaskModel.
        source: the folder with the course's files, *-test-student.csv among them; or "mini".
        out: the folder to submit.
        option: see `prediction_file`.
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
    return None if path is None else make_split(task, read_rows(path, task), place=path, name=split)


# ---- checking ----


def check_submission(folder, source, *, option=None):
    """Return the problems of a folder of predictions, ten per file; none where a grader accepts it.

    Args:
        folder: the folder to submit. Its files may be in its predictions/.
        source: the folder with the course's files, whose ids are compared; or "mini".
        option: as in `write_submission`.

    Returns:
        A list of Problem. Where a file has more than ten, one more counts the rest.
    """
    problems = []
    for name in TASKS[option]:
        for split in ("dev", "test"):
            path = find_predictions(folder, name, split, option)
            if path.is_file():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # predicting warned of rows without a label
                    rows = _read(name, source, split)
                found = read_predictions(path, name, rows, exact=True)[1]
            else:
                expected = f"the {split} predictions of {name}"
                found = [Problem(path.name, None, "no such file", expected)]
            problems += found[:10]
            if rest := len(found[10:]):
                problems.append(Problem(path.name, None, count(rest, "more problem"), "none"))
    return problems


def read_predictions(path, name, rows, *, exact=False):
    """Read a prediction file, and compare its ids with those of a split.

    Args:
        path: the file.
        name: the task.
        rows: the Split, or None where there is nothing to compare with.
        exact: whether spaces, line ends and the case of ids have to be those of the starter code.

    Returns:
        ({id: the number of a label, or a score}, a list of Problem).
    """
    text = path.read_bytes().decode("utf-8" if exact else "utf-8-sig", errors="replace")
    lines, known = text.removesuffix("\n").split("\n"), _labels(name)
    expected = f"one of {', '.join(known)}" if known else "a finite number"
    form = r"(\S+) , (\S+) " if exact else r"(.+?)\s*,\s*(\S+)\s*"
    answers, places, problems = {}, {}, []
    note = lambda *fault: problems.append(Problem(path.name, *fault))
    if exact and not text.endswith("\n"):
        note(len(lines), f"{lines[-1][:80]!r} without a line end", "a line end after every line")
    if lines[0] != header(name) and (exact or lines[0].split() != header(name).split()):
        note(1, repr(lines[0][:80]), repr(header(name)))
    for row, line in enumerate(lines[1:], start=2):
        parts = re.fullmatch(form, line)
        if parts is None:
            note(row, repr(line[:80]), "'id , value ', with a space at the end")
            continue
        one, value = parts[1] if exact else plain(parts[1]), parts[2]
        label = known.get(value if exact else value.removesuffix(".0"))
        answers[one] = label if known else _number(value)
        if answers[one] is None:
            note(row, repr(value), expected)
        if places.setdefault(one, row) != row:
            note(row, f"id {one!r} again, already in row {places[one]}", "every id once")
    if rows is not None:
        wanted = dict.fromkeys(map(plain, rows.ids))
        whole = f"the {len(rows)} ids of the {rows.name} file"
        for one, row in places.items():
            if one not in wanted:
                note(row, f"id {one!r}", f"one of {whole}")
        for one in wanted:
            if one not in places:
                note(None, f"no row for id {one!r}", f"all {whole}")
    return answers, problems


def _labels(task):
    """Return {how a label is written: its number}; {} for a score."""
    found = {str(i): i for i in range(len(get_task(task).labels))}
    if task == "quora":  # its data have 0.0 and 1.0; since 2025 also GPT-2's tokens of no and yes
        found |= {"0.0": 0, "1.0": 1, "3919": 0, "8505": 1}
    return found


def _number(value):
    """Return a finite number, or None."""
    with contextlib.suppress(ValueError):
        return float(value) if math.isfinite(float(value)) else None
