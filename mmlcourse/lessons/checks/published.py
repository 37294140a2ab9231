"""The checks of notebook 06's exercises: profiles, rounding, and the weight of one row."""

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_leave_one_out", "check_profile", "check_range"]

_ERRORS = np.array([[10.0, 12, 15], [20, 20, 30], [40, 30, 33], [8, 9, 6]])


@exercise(
    "profile",
    [(_ERRORS, 0.0), (_ERRORS, 3.0)],
    "for each method (column) the share of rows with error <= lowest error of the row + points",
)
def check_profile(pick, errors, points):
    """Check a performance profile whose distance from the best method is in points.

    Args:
        pick: the choice between a right value and known mistakes.
        errors: a row per experiment and a column per method, [E, M].
        points: the distance that counts.

    Returns:
        The share of each method, [M].
    """
    best = errors.min(axis=1, keepdims=True)
    within = errors <= best + points
    first = np.arange(errors.shape[1]) == errors.argmin(axis=1)[:, None]
    within = pick(
        within,
        {
            "an equal error does not count": errors < best + points,
            "the lowest error is that of the column": errors <= errors.min(axis=0) + points,
            "the lowest error is that of all experiments": errors <= errors.min() + points,
            "errors are compared with the first method": errors <= errors[:, :1] + points,
            "points are a factor here, not added": errors <= best * (1 + points / 10),
            "of two equal best methods only one counts": within & (first | (errors > best)),
        },
    )
    return pick(within.mean(0), {"the count is not divided by the experiments": within.sum(0)})


@exercise(
    "range",
    [
        ([53.79, 63.85, 63.58], [48.73, 59.89, 60.03]),
        ([65.59, 88.20], [66.90, 88.34]),
    ],
    "(lowest, highest): each accuracy may be 0.005 lower or higher, ours and the baseline's apart",
)
def check_range(pick, ours, baseline):
    """Check the improvements that accuracies with two printed decimals allow.

    Args:
        pick: the choice between a right value and known mistakes.
        ours: accuracies in percent, rounded to two decimals.
        baseline: accuracies of the baseline, rounded in the same way.

    Returns:
        The lowest and the highest improvement in percent, [2].
    """
    a, b = np.array(ours), np.array(baseline)
    half = pick(
        0.005,
        {
            "a rounded number is off by at most half a hundredth, not by a whole one": 0.01,
            "two decimals are hundredths: the half of one is 0.005, not 0.05": 0.05,
        },
    )
    opposite = pick(
        -1.0,
        {
            "ours and the baseline move together; the extremes need opposite directions": 1.0,
            "only ours moves, but the baseline is rounded too": 0.0,
        },
    )
    means = [((a + side * half) / (b + opposite * side * half)).mean() for side in (-1, 1)]
    values = np.array(means) - 1
    pooled = [(a + s * half).sum() / (b + opposite * s * half).sum() for s in (-1, 1)]
    return pick(
        100 * values,
        {
            "this is a share, not percent": values,
            "the highest comes first": 100 * values[::-1],
            "this is the ratio of the means, not the mean of the ratios": 100
            * (np.array(pooled) - 1),
        },
    )


@exercise(
    "leave_one_out",
    [
        ({"rte": 9.5, "mnli": 0.3, "qnli": 7.6, "snli": -0.4},),
        ({"qqp": 0.2, "mrpc": 3.8, "stsb_star": 2.5},),
    ],
    "for each set the mean improvement of all other sets",
)
def check_leave_one_out(pick, improvements):
    """Check the mean improvement without each of the sets in turn.

    Args:
        pick: the choice between a right value and known mistakes.
        improvements: {trained on: improvement in percent}.

    Returns:
        {trained on: mean of the others}.
    """
    values = np.array([*improvements.values()])
    others, count = values.sum() - values, len(values)
    without = others / (count - 1)
    found = pick(
        without,
        {
            "the sum of the others is divided by all sets": others / count,
            "these are sums, not means": others,
            "nothing is left out: this is the mean of all sets": values.mean() + 0 * values,
            "this is the change of the mean, not the mean without the set": without - values.mean(),
            "this is the value of the set itself": values,
        },
    )
    return dict(zip(improvements, found))
