"""The checks of notebook 09 accept the solution and name each known mistake."""

import math

import numpy as np
import pytest

from mmlcourse.lessons.checks import (
    check_labels_needed,
    check_share,
)

# The share of the rows of every label.


def first_rows(rows, share):
    return rows[: max(1, int(share * len(rows)))]


def share_of(labels, share, seed):
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.concatenate(
        [first_rows(order[labels[order] == label], share) for label in np.unique(labels)]
    )


def share_solution(
    count=lambda rows, share: max(1, int(share * rows)),
    order=lambda rows, seed: np.random.default_rng(seed).permutation(rows),
):
    """Return the solution. Each argument replaces one of its parts."""

    def function(labels, share, seed):
        rows = order(len(labels), seed)
        return np.concatenate(
            [
                rows[labels[rows] == label][: count(np.sum(labels == label), share)]
                for label in np.unique(labels)
            ]
        )

    return function


def independent_draws(labels, share, seed):
    """Draw shares of the right size, but each one independently of the others."""
    generator = np.random.default_rng([seed, int(share * 1000)])
    return np.concatenate(
        [
            first_rows(generator.permutation(np.flatnonzero(labels == label)), share)
            for label in np.unique(labels)
        ]
    )


def without_seed():
    generator = np.random.default_rng(0)
    return lambda labels, share, seed: share_of(labels, share, generator.integers(10**9))


def draws_with_replacement(labels, share, seed):
    generator = np.random.default_rng(seed)
    return np.concatenate(
        [
            generator.choice(
                np.flatnonzero(labels == label), max(1, int(share * np.sum(labels == label)))
            )
            for label in np.unique(labels)
        ]
    )


SHARES = [
    (lambda *_: "text", "expected a list of whole numbers such as [0, 3], found 'text'."),
    (
        lambda labels, share, seed: int(share * len(labels)),
        "expected a list of whole numbers such as [0, 3], found 1.",
    ),
    (lambda *_: [[1, 2]], "expected row numbers from 0 to 2999, found [[1, 2]]."),
    (
        lambda *_: [[1], [2, 3]],
        "expected a list of whole numbers such as [0, 3], found [[1], [2, 3]].",
    ),
    (
        lambda labels, share, seed: np.random.default_rng(seed).random(2),
        "expected row numbers from 0 to 2999, found array([0.63696169, 0.26978671]).",
    ),
    (
        lambda labels, share, seed: np.random.default_rng(seed).random(len(labels)) < share,
        (
            "expected a list of whole numbers such as [0, 3], found array([False, False, "
            "False, ..., False, False, False], shape=(3000,))."
        ),
    ),
    (
        lambda *_: [],
        (
            "the counts are wrong: share 0.0005 of 1800 and 1200 rows is (1, 1), at least 1 of "
            "each; found (0, 0)."
        ),
    ),
    (
        share_solution(count=lambda rows, share: max(1, round(share * rows))),
        (
            "the counts are rounded, not cut off: share 0.001 of 1800 and 1200 rows is (1, 1), "
            "at least 1 of each; found (2, 1)."
        ),
    ),
    (
        share_solution(count=lambda rows, share: math.ceil(share * rows)),
        (
            "the counts are rounded, not cut off: share 0.001 of 1800 and 1200 rows is (1, 1), "
            "at least 1 of each; found (2, 2)."
        ),
    ),
    (
        share_solution(count=lambda rows, share: max(1, int(share * 1500))),
        (
            "both classes have the same count: share 0.01 of 1800 and 1200 rows is (18, 12), at "
            "least 1 of each; found (15, 15)."
        ),
    ),
    (
        share_solution(count=lambda rows, share: max(1, int(share / 100 * rows))),
        (
            "the counts are wrong: share 0.01 of 1800 and 1200 rows is (18, 12), at least 1 of "
            "each; found (1, 1)."
        ),
    ),
    (
        lambda labels, share, seed: first_rows(
            np.random.default_rng(seed).permutation(len(labels)), share
        ),
        (
            "the share is one of all rows, not of each class: share 0.0005 of 1800 and 1200 "
            "rows is (1, 1), at least 1 of each; found (1, 0)."
        ),
    ),
    (draws_with_replacement, "a row is drawn twice."),
    (
        share_solution(order=lambda rows, seed: np.random.default_rng(seed).permutation(rows) - 1),
        "expected row numbers from 0 to 2999, found",
    ),
    (
        lambda *arguments: share_of(*arguments) + 1500,
        "expected row numbers from 0 to 2999, found",
    ),
    (independent_draws, "the rows of share 0.0005 are not among those of share 0.001."),
    (without_seed(), "the same seed gives other rows when it is used again."),
    (
        share_solution(order=lambda rows, seed: np.arange(rows)),
        "the first rows of each class are taken, not random ones.",
    ),
    (
        share_solution(order=lambda rows, seed: np.roll(np.arange(rows), -7 - 300 * seed)),
        "the drawn rows are neighbours, not random rows.",
    ),
    (
        share_solution(order=lambda rows, seed: np.random.default_rng(0).permutation(rows)),
        "every seed gives the same rows.",
    ),
    (
        share_solution(count=lambda rows, share: int(share * rows)),
        (
            "the counts are wrong: share 0.0005 of 1800 and 1200 rows is (1, 1), at least 1 of "
            "each; found (0, 0)."
        ),
    ),
    (
        lambda labels, share, seed: np.concatenate(
            [first_rows(np.flatnonzero(labels == label), share) for label in (0, 1)]
        ),
        (
            "the counts are wrong: share 0.0005 of 1800 and 1200 rows is (1, 1), at least 1 of "
            "each; found (0, 0)."
        ),
    ),
]


def test_a_share_worked_by_hand(capsys):
    """Worked example with 6 rows of one label and 4 rows of the other label.

    Half of them are 3 and 2 rows. A quarter, rounded down, is 1 and 1, and these rows are part of
    the half.
    """
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 0])
    half, quarter = (share_of(labels, share, 0).tolist() for share in (0.5, 0.25))
    assert (
        sorted(labels[half]) == [0, 0, 0, 1, 1]
        and sorted(labels[quarter]) == [0, 1]
        and set(quarter) < set(half)
    )
    assert check_share(share_of) and capsys.readouterr().out == "share: right.\n"
    assert check_share(lambda *arguments: sorted(share_of(*arguments).tolist())), "in any order"
    assert check_share(share_solution()), "the parts of the wrong ones below are right"


@pytest.mark.parametrize("function, message", SHARES)
def test_mistakes_in_the_share_are_named(function, message, capsys):
    assert check_share(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"share: not yet: {message}") and out.count("\n") == 1, out


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
