"""The prediction files and the score of the CS224N default project (minBERT).

Names, headers and rows are those of the starter code, misspelling included: a header of `id`, tab
and column name, then rows `id , value`; every line ends in a space. Notebook 12 uses this module.
"""

import math
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmlcourse.text import count
from mmlkit.data.files import find_files, read_rows
from mmlkit.data.loading import make_split
from mmlkit.data.tasks import get_task
from mmlkit.files import atomic_write, write_file
from mmlkit.heads.linear import PairHead
from mmlkit.runtime import seeded
from mmlkit.training import metrics
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.model import MultitaskModel

__all__ = [
    "Problem",
    "check_submission",
    "constant_accuracies",
    "header",
    "is_finite",
    "overall_score",
    "plain",
    "prediction_file",
    "score_table",
    "task_score",
    "untrained_scores",
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
TASKS = {  # by option: the multitask part, and the two modes of the single-task part
    None: ("sst", "quora", "sts"),
    "pretrain": ("sst", "cfimdb"),
    "finetune": ("sst", "cfimdb"),
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
    if not (0 <= sst_accuracy <= 1 and 0 <= paraphrase_accuracy <= 1 and -1 <= correlation <= 1):
        raise ValueError(
            f"the scores are {sst_accuracy}, {paraphrase_accuracy} and {correlation}, expected 0 "
            "to 1, 0 to 1 and -1 to 1; divide a percentage by 100."
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
    """
    names = split.task.labels
    counts = np.bincount(split.labels, minlength=len(names))
    return dict(zip(names, (counts / len(split)).tolist()))


def untrained_scores(encoder, tokenizer, splits):
    """Score dev rows without training: the majority class, or the cosine of the two sentences.

    Args:
        encoder: a BertModel, whose mean vectors are compared. It stays on its device.
        tokenizer: of the encoder.
        splits: {task: Split}. The majority class is that of the split itself.

    Returns:
        {task: scores [N, C]}, as from `predict_scores`.
    """
    found, device = {}, next(encoder.parameters()).device
    for name, split in splits.items():
        if split.task.labels:
            counts = np.bincount(split.labels, minlength=split.task.num_labels)
            found[name] = np.tile(counts == counts.max(), (len(split), 1)).astype(np.float32)
            continue
        with seeded(0):  # the caller's random numbers stay the same
            head = PairHead(encoder.config.hidden_size, 1, pooling="mean").eval()
        weight, D = head.dense.weight.data.zero_(), head.hidden_size
        weight[:, 3 * D :] = 1 / D  # the last of four parts: u * v, each of length sqrt(D)
        head.dense.bias.data.zero_()
        model = MultitaskModel(encoder, {name: head}, tokenizer)
        found[name] = predict_scores(model, split, device=device)
    return found


def score_table(scores, splits, *, baseline):
    """Return the course's scores of several systems, and their differences from one of them.

    Errors and intervals are those of other dev rows, not of other seeds: rows are drawn 300 times
    with replacement, the same ones for all systems.

    Args:
        scores: {system: {task: scores [N, C]}} of "sst", "quora" and "sts".
        splits: {task: Split} with the labels.
        baseline: the system that the others are compared with.

    Returns:
        A DataFrame with a row for each system: sst, quora, sts, overall, error (one standard error
        of overall), difference (the system minus the baseline), low, high (95 % interval).
    """
    import pandas as pd

    generator = np.random.default_rng(0)
    whole = {task: np.arange(len(split)) for task, split in splits.items()}
    drawn = [
        {task: generator.integers(len(rows), size=len(rows)) for task, rows in whole.items()}
        for _ in range(300)
    ]
    found, again = {}, {}
    for name, one in scores.items():
        parts = _course_scores(one, splits, whole)
        found[name] = [*parts, overall_score(*parts)]
        again[name] = [overall_score(*_course_scores(one, splits, rows)) for rows in drawn]
    table = pd.DataFrame.from_dict(found, orient="index", columns=[*TASKS[None], "overall"])
    again = pd.DataFrame(again)
    apart = again.sub(again[baseline], axis=0)
    return table.assign(
        error=again.std(),
        difference=table["overall"] - table.loc[baseline, "overall"],
        low=apart.quantile(0.025),
        high=apart.quantile(0.975),
    )


def _course_scores(scores, splits, rows):
    """Return two accuracies and a correlation on some rows."""
    found = []
    for name in TASKS[None]:
        given, split = scores[name][rows[name]], splits[name]
        given = given.argmax(1) if split.task.labels else given[:, 0]
        found.append(task_score(split.task, given, split.labels[rows[name]]))
    return found


def task_score(task, given, labels):
    """Return the course's score of some answers: the first metric of their task.

    Args:
        task: a Task.
        given: the answers, [N]: numbers of labels, or scores.
        labels: the right ones, [N].

    Returns:
        An accuracy or a correlation; that of a constant is 0.
    """
    score = metrics.METRICS[task.kind][task.metrics[0]]
    return float(np.nan_to_num(score(labels, np.asarray(given, dtype=float))))


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
            split = one.split(part) if part != "test" else one.test or one.dev
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
