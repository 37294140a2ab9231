"""The checks of notebook 05's exercises."""

import math

import numpy as np

from mmlkit.checks.compare import exercise

__all__ = ["check_improvement", "check_profile"]

_ERRORS = np.array([[10.0, 12, 15], [20, 20, 30], [40, 30, 33], [8, 9, 6]])


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
    by_place = dict(zip(ours, baseline.values()))
    below = pick(baseline, {"sets are matched by place, not by name": by_place})
    others = [name for name in ours if name != own]
    names = pick(others, {"the set it was trained on is counted": list(ours)})
    a, b = (np.array([values[name] for name in names]) for values in (ours, below))
    ratio = np.mean(a / b)
    value = 100 * pick(
        100 * (ratio - 1),
        {
            "this is a share, not percent": ratio - 1,
            "1 is not subtracted": 100 * ratio,
            "this is the ratio of the means": 100 * (a.mean() / b.mean() - 1),
            "this is a difference in points": np.mean(a - b),
        },
    )
    cut = pick(
        math.trunc(value),
        {
            "the result is not cut to two decimals": value,
            "the result is rounded, not cut": round(value),
            "the result is rounded down, not cut towards zero": math.floor(value),
        },
    )
    return cut / 100


@exercise(
    "profile",
    [(_ERRORS, 1.0), (_ERRORS, 1.25)],
    "for each method (column) the share of rows with error <= tau * lowest error of the row",
)
def check_profile(pick, errors, tau):
    """Check a performance profile at one tau (Dolan and Moré, 2002).

    Args:
        pick: the choice between a right value and known mistakes.
        errors: a row per experiment and a column per method, [E, M].
        tau: the factor.

    Returns:
        The share of each method, [M].
    """
    best = errors.min(axis=1, keepdims=True)
    within = errors <= tau * best
    first = np.arange(errors.shape[1]) == errors.argmin(axis=1)[:, None]
    within = pick(
        within,
        {
            "an equal error does not count": errors < tau * best,
            "the lowest error is that of the column": errors <= tau * errors.min(axis=0),
            "the lowest error is that of all experiments": errors <= tau * errors.min(),
            "errors are compared with the first method": errors <= tau * errors[:, :1],
            "tau is added, not multiplied": errors <= best + tau - 1,
            "of two equal best methods only one counts": within & (first | (errors > best)),
        },
    )
    return pick(within.mean(0), {"the count is not divided by the experiments": within.sum(0)})
