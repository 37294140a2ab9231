"""The check of notebook 09's exercise: counting labels."""

import math

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_labels_needed"]

_CURVE = [23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3]


@exercise(
    "labels needed",
    [(*_CURVE, wanted) for wanted in (88.3, 60.0, 82.2)],
    "10 to the power where the line over log10(rows) reaches the accuracy",
    [
        ((*_CURVE, 95.7), "No size in the list reaches 95.7, so it is math.inf."),
        ((*_CURVE, 94.3), "The largest size reaches 94.3."),
        ((*_CURVE, 40.0), "The smallest size reaches 40 already."),
    ],
)
def check_labels_needed(pick, rows, accuracies, wanted):
    """Check the number of rows at which a learning curve reaches an accuracy.

    Args:
        pick: the choice between a right value and known mistakes.
        rows: the numbers of rows, rising.
        accuracies: the accuracy for each, rising.
        wanted: the accuracy to reach.

    Returns:
        The number of rows, `math.inf` above the curve.
    """
    if wanted > accuracies[-1]:
        return math.inf
    log = np.interp(wanted, accuracies, np.log10(rows))
    before, after = (np.searchsorted(accuracies, wanted, side) for side in ("right", "left"))
    return pick(
        10**log,
        {
            "the line is straight in the rows": np.interp(wanted, accuracies, rows),
            "this is the log10 of the rows": log,
            "this is the natural logarithm of the rows": log * math.log(10),
            "this is the next size in the list": rows[after],
            "this is the size before in the list": rows[before - 1],
        },
    )
