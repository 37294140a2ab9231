"""The checks of notebook 05's exercises: improvement, price, and the error of groups."""

import math

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_group_error", "check_improvement", "check_price", "improvement"]


@exercise(
    "improvement",
    [
        (
            {"rte": 99.0, "mnli": 66.0, "qnli": 52.7, "snli": 81.3},
            {"rte": 90.0, "mnli": 60.0, "qnli": 51.0, "snli": 70.0},
            "rte",
        ),
        (
            {"qqp": 79.1, "mrpc": 69.0, "stsb_star": 49.3},
            {"stsb_star": 50.0, "mrpc": 70.0, "qqp": 80.0},
            "mrpc",
        ),
    ],
    "the mean of ours / baseline over the other sets, minus 1, in percent, cut to two decimals",
)
def check_improvement(pick, ours, baseline, own):
    """Check the relative improvement of MML v2, Tables 2 to 5.

    Args:
        pick: the choice between a right value and known mistakes.
        ours: {set: accuracy}.
        baseline: {set: accuracy} of the baseline.
        own: the set that both were trained on.

    Returns:
        The improvement in percent, cut to two decimals.
    """
    below = pick(
        baseline, {"sets are matched by place, not by name": dict(zip(ours, baseline.values()))}
    )
    value = 100 * improvement(pick, ours, below, own)
    cut = pick(
        math.trunc(value),
        {
            "the result is not cut to two decimals": value,
            "the result is rounded, not cut": round(value),
            "the result is rounded down, not cut towards zero": math.floor(value),
        },
    )
    return cut / 100


def improvement(pick, ours, baseline, own):
    """Return the relative improvement of MML v2 (Tables 2 to 5) with all its decimals.

    Args:
        pick: the choice between a right value and known mistakes.
        ours: {set: accuracy}.
        baseline: {set: accuracy} of the baseline.
        own: the set that both were trained on.

    Returns:
        The improvement in percent.
    """
    others = [name for name in ours if name != own]
    names = pick(others, {"the set it was trained on is counted": list(ours)})
    a, b = (np.array([values[name] for name in names]) for values in (ours, baseline))
    ratio = pick(
        np.mean(a / b),
        {
            "this is the ratio of the means": a.mean() / b.mean(),
            "the ratio is upside down": np.mean(b / a),
            "the sum is divided by the number of all sets": (a / b).sum() / len(ours),
            "the set's own ratio is in the sum, but not in its number": sum(
                ours[name] / baseline[name] for name in ours
            )
            / len(others),
        },
    )
    return pick(
        100 * (ratio - 1),
        {
            "this is a share, not percent": ratio - 1,
            "1 is not subtracted": 100 * ratio,
            "1 is subtracted after the factor 100; it belongs to the ratio": 100 * ratio - 1,
            "this is a difference in points, not a ratio": np.mean(a - b),
        },
    )


@exercise(
    "price",
    [
        ({"qqp": {"qqp": 0.8, "mrpc": 0.7}, "mrpc": {"qqp": 0.65, "mrpc": 0.85}},),
        (
            {
                "a": {"a": 0.9, "b": 0.6, "c": 0.5},
                "b": {"a": 0.7, "b": 0.8, "c": 0.55},
                "c": {"a": 0.6, "b": 0.75, "c": 0.7},
            },
        ),
    ],
    "for each evaluated set its own model's accuracy minus the mean of the other models on it",
)
def check_price(pick, accuracy):
    """Check the price of a sister set, for each set that is evaluated.

    Args:
        pick: the choice between a right value and known mistakes.
        accuracy: {trained on: {evaluated on: accuracy}}.

    Returns:
        {evaluated on: points}, from 0 to 100.
    """
    table = np.array([[row[name] for name in accuracy] for row in accuracy.values()])
    own = table.diagonal()
    less_others = lambda axis: own - (table.sum(axis) - own) / (len(own) - 1)
    price = pick(
        less_others(0),
        {
            "this compares one model on other sets, so it mixes in how hard a set is": less_others(
                1
            ),
            "the own model is counted among the sisters": own - table.mean(0),
            "this is sister minus own, of the other sign": -less_others(0),
            "this takes the best sister, not their mean": own - (table - np.diag(own)).max(0),
        },
    )
    return dict(zip(accuracy, price * pick(100, {"this is a share, not points": 1})))


@exercise(
    "group_error",
    [
        (np.array([1.0, 1, 1, 0, -1, 0, 0]), ["a", "a", "a", "b", "b", "c", "d"]),
        (np.array([0.0, 1, 1, 1, -1, 0]), [3, 1, 1, 2, 2, 1]),
    ],
    "sqrt(G/(G-1) * sum over groups of (sum of value - mean in the group)^2) / N",
)
def check_group_error(pick, values, groups):
    """Check the standard error of a mean whose rows come in groups.

    Args:
        pick: the choice between a right value and known mistakes.
        values: a number per row, [N].
        groups: the group of each row, [N].

    Returns:
        The standard error.
    """
    names, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    n, count, raw = len(values), len(names), np.bincount(place, values)
    sums, means = raw - sizes * values.mean(), raw / sizes
    corrected = math.sqrt(count / (count - 1) * (sums**2).sum()) / n
    return pick(
        corrected,
        {
            "every row counts as independent": values.std(ddof=1) / math.sqrt(n),
            "every group counts the same, however many rows it has": means.std(ddof=1)
            / math.sqrt(count),
            "the factor G/(G-1) is missing": math.sqrt((sums**2).sum()) / n,
            "the mean is not subtracted": math.sqrt(count / (count - 1) * (raw**2).sum()) / n,
            "the sum is divided by the groups, not by the rows": corrected * n / count,
            "this is the variance, without its root": corrected**2,
        },
    )
