"""The checks of notebook 06's exercises: profiles, and misprints."""

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_profile", "check_suspects"]

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
    "suspects",
    [
        ([69.31, 76.37, 50.32], [70.03, 75.79, 50.72], -0.26),
        ([69.31, 76.37, 50.32], [70.03, 75.79, 50.72], -0.36),
        ([60.00, 80.00], [50.00, 80.00], 11.00),
    ],
    "1 for each of `ours` where another digit gives the printed improvement, within 0.005",
)
def check_suspects(pick, ours, baseline, printed):
    """Check which accuracies can be the misprint behind a printed improvement.

    Args:
        pick: the choice between a right value and known mistakes.
        ours: accuracies in percent, with two decimals.
        baseline: accuracies of the baseline.
        printed: the improvement in percent, with two decimals.

    Returns:
        1 for each of `ours` that can be the misprint, otherwise 0.
    """

    def suspects(width=0.005, places=slice(None), formula=lambda a, b: (a / b).mean()):
        found = np.zeros(len(ours), dtype=int)
        for i, text in enumerate(f"{value:.2f}" for value in ours):
            for k in range(len(text))[places]:
                for digit in "0123456789" if text[k] != "." else "":
                    a = np.array(ours)
                    a[i] = float(text[:k] + digit + text[k + 1 :])
                    improvement = 100 * (formula(a, np.array(baseline)) - 1)
                    found[i] |= int(abs(improvement - printed) <= width)
        return found.tolist()

    def pooled(a, b):
        return a.sum() / b.sum()

    found = suspects()
    return pick(
        found,
        {
            "only an exact agreement counts, but a printed number is rounded": suspects(1e-6),
            "only the digits after the point are changed": suspects(places=slice(-2, None)),
            "only the last digit is changed": suspects(places=slice(-1, None)),
            "the improvement is the mean of the ratios": suspects(formula=pooled),
            "these are the numbers that cannot be the misprint": [1 - one for one in found],
        },
    )
