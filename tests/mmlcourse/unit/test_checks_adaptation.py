"""The check of notebook 09 accepts the solution and names each known mistake."""

import math

import numpy as np
import pytest

from mmlcourse.lessons.checks import check_labels_needed

# The number of labels that an initialisation saves.


def labels_needed(rows, accuracies, target):
    return (
        math.inf if target > accuracies[-1] else 10 ** np.interp(target, accuracies, np.log10(rows))
    )


def labels_needed_solution(
    interpolate=lambda target, accuracies, rows: (
        10 ** np.interp(target, accuracies, np.log10(rows))
    ),
    above=math.inf,
    below=None,
):
    """Return the solution. Each argument replaces one of its parts."""

    def function(rows, accuracies, target):
        if target > accuracies[-1]:
            return above
        return (
            below
            if below is not None and target < accuracies[0]
            else interpolate(target, accuracies, rows)
        )

    return function


NEEDED = [
    (
        lambda rows, accuracies, target: (
            math.inf if target >= accuracies[-1] else labels_needed(rows, accuracies, target)
        ),
        "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 94.3) it returns inf, expected "
        "23596. The largest size reaches 94.3.",
    ),
    (lambda *_: [1, 2], "expected one number, found shape [2]."),
    (
        labels_needed_solution(
            lambda target, accuracies, rows: np.interp(target, accuracies, rows)
        ),
        "the line is straight in the rows.",
    ),
    (
        labels_needed_solution(
            lambda target, accuracies, rows: np.interp(target, accuracies, np.log10(rows))
        ),
        "this is the log10 of the rows.",
    ),
    (
        labels_needed_solution(
            lambda target, accuracies, rows: np.interp(target, accuracies, np.log(rows))
        ),
        "this is the natural logarithm of the rows.",
    ),
    (
        labels_needed_solution(
            lambda target, accuracies, rows: rows[np.searchsorted(accuracies, target)]
        ),
        "this is the next size in the list.",
    ),
    (
        labels_needed_solution(
            lambda target, accuracies, rows: rows[np.searchsorted(accuracies, target, "right") - 1]
        ),
        "this is the size before in the list.",
    ),
    (
        labels_needed_solution(above=23596),
        (
            "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 95.7) it returns 23596, "
            "expected inf. No size in the list reaches 95.7, so it is math.inf."
        ),
    ),
    (
        labels_needed_solution(above=math.nan),
        (
            "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 95.7) it returns nan, "
            "expected inf. No size in the list reaches 95.7, so it is math.inf."
        ),
    ),
    (
        labels_needed_solution(above=-math.inf),
        (
            "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 95.7) it returns -inf, "
            "expected inf. No size in the list reaches 95.7, so it is math.inf."
        ),
    ),
    (
        labels_needed_solution(below=math.inf),
        (
            "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 40.0) it returns inf, "
            "expected 23. The smallest size reaches 40 already."
        ),
    ),
    (
        lambda rows, accuracies, target: 100.0,
        (
            "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 88.3) it returns 100, "
            "expected 1280.05."
        ),
    ),
    (
        lambda rows, accuracies, target: math.nan,
        (
            "for ([23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3], 88.3) it returns nan, "
            "expected 1280.05."
        ),
    ),
]


def test_labels_needed_worked_by_hand(capsys):
    """Interpolation in log10: 1,000 rows lie half way from 100 to 10,000, as 70 from 60 to 80."""
    assert (
        labels_needed([100, 10_000], [60, 80], 70) == pytest.approx(1000)
        and labels_needed([100, 10_000], [60, 80], 81) == math.inf
    )
    assert (
        check_labels_needed(labels_needed) and capsys.readouterr().out == "labels needed: right.\n"
    )


@pytest.mark.parametrize("function, message", NEEDED)
def test_mistakes_in_the_labels_needed_are_named(function, message, capsys):
    assert check_labels_needed(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"labels needed: not yet: {message}") and out.count("\n") == 1, out
