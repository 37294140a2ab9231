"""The checks of notebook 09's exercises: drawing rows, and counting labels."""

import itertools
import math

import numpy as np

from mmlcourse.lessons.checks.compare import call, exercise, read, require, verdict

__all__ = ["check_labels_needed", "check_share"]

_CURVE = [23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3]
_LABELS = np.where(np.arange(3000) % 5 < 2, 4, 2)  # 1,800 rows of label 2 and 1,200 of label 4
_COUNTS = {0.0005: (1, 1), 0.001: (1, 1), 0.01: (18, 12), 0.1: (180, 120), 1.0: (1800, 1200)}


def check_share(function, *, explain=False):
    """Check a random share of the rows of every label, nested for the same seed.

    Args:
        function: `function(labels, share, seed)` with labels [N] and a share from 0 to 1. It
            returns the numbers of the drawn rows.
        explain: as in the other checks; each message of this one says the wanted rows anyway.

    Returns:
        True if the answer is right. A line with the verdict is printed.
    """
    return verdict("share", _compare_shares, function)


def _compare_shares(function):
    first, again, other = (
        {share: _drawn(function, share, seed) for share in _COUNTS} for seed in (0, 0, 1)
    )
    require(first == again, "the same seed gives other rows when it is used again.")
    for small, large in itertools.pairwise(_COUNTS):
        nested = first[small] <= first[large]
        require(nested, f"the rows of share {small} are not among those of share {large}.")
    start = {
        row for one, n in ((2, 18), (4, 12)) for row in np.flatnonzero(one == _LABELS)[:n].tolist()
    }
    require(first[0.01] != start, "the first rows of each class are taken, not random ones.")
    require(first[0.01] != other[0.01], "every seed gives the same rows.")
    for one in (2, 4):
        drawn = np.isin(np.flatnonzero(one == _LABELS), [*first[0.1]])
        neighbours = (drawn & np.roll(drawn, 1)).sum()  # 10 % of random rows have a drawn neighbour
        require(neighbours < drawn.sum() / 2, "the drawn rows are neighbours, not random rows.")


def _drawn(function, share, seed):
    """Return the set of drawn rows, or say what is wrong with them."""
    answer = call(function, _LABELS, share, seed)
    rows = read(answer, set())
    known = rows.ndim == 1 and {*rows} <= {*range(3000)}
    require(known, f"expected row numbers from 0 to 2999, found {answer!r}.")
    drawn = set(rows.astype(int).tolist())
    require(len(drawn) == len(rows), "a row is drawn twice.")
    counts = tuple(np.bincount(_LABELS[[*drawn]], minlength=5)[[2, 4]].tolist())
    mistakes = {
        "the counts are rounded, not cut off": counts in ((2, 1), (2, 2)),
        "both classes have the same count": counts[0] == counts[1] > 1,
        "the share is one of all rows, not of each class": len(rows) == int(3000 * share),
        "the counts are wrong": True,
    }
    mistake = next(said for said, made in mistakes.items() if made)
    wanted = f"share {share} of 1800 and 1200 rows is {_COUNTS[share]}, at least 1 of each"
    require(counts == _COUNTS[share], f"{mistake}: {wanted}; found {counts}.")
    return drawn


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
