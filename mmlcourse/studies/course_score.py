"""The score of the CS224N default project (minBERT), also of answers without training.

Notebooks 11 and 12 use this module.
"""

import math

import numpy as np

from mmlkit.heads.linear import PairHead
from mmlkit.runtime import seeded
from mmlkit.training import metrics
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.model import MultitaskModel

__all__ = [
    "TASKS",
    "constant_accuracies",
    "overall_score",
    "score_table",
    "task_score",
    "untrained_scores",
]


TASKS = {  # by option: the multitask part, and the modes of the single-task part
    None: ("sst", "quora", "sts"),
    **dict.fromkeys(
        # the last two, since 2024, are the first two under other names
        ("pretrain", "finetune", "last-linear-layer", "full-model"),
        ("sst", "cfimdb"),
    ),
}


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
