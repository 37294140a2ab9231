"""The checks of notebook 06 accept the solution and name each known mistake."""

import numpy as np
import pandas as pd
import pytest

from mmlcourse.lessons.checks import check_profile, check_suspects
from mmlcourse.studies import published
from mmlcourse.studies.cross_dataset import performance_profile


def profile(errors, points):
    return (errors <= errors.min(axis=1, keepdims=True) + points).mean(axis=0)


def first_best_only(errors, points):
    best = errors.min(axis=1, keepdims=True)
    first = np.arange(errors.shape[1]) == errors.argmin(axis=1)[:, None]
    return ((errors <= best + points) & (first | (errors > best))).mean(axis=0)


PROFILES = [
    (lambda *_: 3, "expected numbers of shape [3], found shape []."),
    (lambda errors, p: profile(errors.T, p), "expected numbers of shape [3], found shape [4]."),
    (
        lambda errors, p: (errors < errors.min(axis=1, keepdims=True) + p).mean(axis=0),
        "an equal error does not count.",
    ),
    (
        lambda errors, p: (errors <= errors.min(axis=0) + p).mean(axis=0),
        "the lowest error is that of the column.",
    ),
    (
        lambda errors, p: (errors <= errors.min() + p).mean(axis=0),
        "the lowest error is that of all experiments.",
    ),
    (
        lambda errors, p: (errors <= errors[:, :1] + p).mean(axis=0),
        "errors are compared with the first method.",
    ),
    (
        lambda errors, p: (errors <= errors.min(axis=1, keepdims=True) * (1 + p / 10)).mean(axis=0),
        "points are a factor here, not added.",
    ),
    (first_best_only, "of two equal best methods only one counts."),
    (lambda errors, p: 4 * profile(errors, p), "the count is not divided by the experiments."),
    (
        lambda errors, p: 4 * (errors < errors.min(axis=1, keepdims=True) + p).mean(axis=0),
        "an equal error does not count, and the count is not divided by the experiments.",
    ),
    (lambda errors, p: 100 * profile(errors, p), "at [0] it returns 50, expected 0.5."),
]


def test_the_profile_worked_by_hand(capsys):
    """The lowest errors are 10, 20, 30 and 6; three points above: 10 and 12, twice 20, 30 and 33.

    In the last experiment, 8, 9 and 6 are all within three points.
    """
    errors = np.array([[10.0, 12, 15], [20, 20, 30], [40, 30, 33], [8, 9, 6]])
    assert profile(errors, 0.0).tolist() == [0.5, 0.5, 0.25]
    assert profile(errors, 3.0).tolist() == [0.75, 1.0, 0.5]
    assert performance_profile(pd.DataFrame(errors), [1.0, 1.25]).to_numpy().tolist() == [
        [0.5, 0.5, 0.25],
        [0.5, 0.75, 0.5],
    ]
    assert check_profile(profile) and capsys.readouterr().out == "profile: right.\n"
    assert check_profile(lambda errors, points: list(profile(errors, points)))


@pytest.mark.parametrize("function, message", PROFILES)
def test_mistakes_in_the_profile_are_named(function, message, capsys):
    assert check_profile(function) is False
    assert (out := capsys.readouterr().out).startswith(f"profile: not yet: {message}"), out


def improvement_range(ours, baseline, half=0.005, opposite=-1, formula=None, factor=100):
    """Return the solution. Each argument from `half` on replaces one part."""
    a, b = np.array(ours), np.array(baseline)
    formula = formula or (lambda a, b: (a / b).mean())
    ends = [formula(a + side * half, b + opposite * side * half) for side in (-1, 1)]
    return [factor * (end - 1) for end in ends]


def test_cells_that_are_not_wrong_are_within_their_range():
    """A printed improvement that is not a misprint lies within the range of rounding."""
    cells = published.cross_dataset()
    accuracy = cells.query("metric == 'accuracy'")
    wide = accuracy.pivot(
        index=["trained_on", "split", "evaluated_on"], columns="method", values="printed"
    )
    ends = cells[(cells.metric == "improvement") & cells.evaluated_on.isna()]
    assert len(ends) == 70
    for one in ends.itertuples():
        pair = wide.loc[(one.trained_on, one.split)].drop(one.trained_on)
        low, high = improvement_range(pair[one.method], pair["bert"])
        if not one.wrong:  # the last digits are cut off, and 10.4 has one decimal
            assert low - 0.1 <= one.printed <= high + 0.01, one
        elif one.method == "mml":
            assert one.printed > high + 0.05  # -0.26, where -0.37 to -0.33 is possible


def suspects(ours, baseline, printed, width=0.005, places=slice(None), ratio=None):
    """Return the solution. Each argument from `width` on replaces one part."""
    found, ratio = [0] * len(ours), ratio or (lambda a, b: (a / b).mean())
    for i, text in enumerate(f"{value:.2f}" for value in ours):
        for k in range(len(text))[places]:
            for digit in "0123456789" if text[k] != "." else "":
                a = np.array(ours)
                a[i] = float(text[:k] + digit + text[k + 1 :])
                found[i] |= int(abs(100 * (ratio(a, np.array(baseline)) - 1) - printed) <= width)
    return found


SUSPECTS = [
    (lambda *_: 3.0, "expected"),
    (
        lambda *case: suspects(*case, width=1e-6),
        "only an exact agreement counts, but a printed number is rounded.",
    ),
    (
        lambda *case: suspects(*case, places=slice(-2, None)),
        "only the digits after the point are changed.",
    ),
    (lambda *case: suspects(*case, places=slice(-1, None)), "only the last digit is changed."),
    (
        lambda *case: suspects(*case, ratio=lambda a, b: a.sum() / b.sum()),
        "the improvement is the mean of the ratios.",
    ),
    (
        lambda *case: [1 - one for one in suspects(*case)],
        "these are the numbers that cannot be the misprint.",
    ),
]


def test_the_suspects_worked_by_hand(capsys):
    """61 against 50 is 22 %, one digit from 60; 23.4 % needs 61.70, two digits away."""
    assert suspects([60.0], [50.0], 22.0) == [1] and suspects([60.0], [50.0], 23.4) == [0]
    assert suspects([60.0, 80.0], [50.0, 80.0], 11.0) == [1, 0]
    assert check_suspects(suspects) and capsys.readouterr().out == "suspects: right.\n"


@pytest.mark.parametrize("function, message", SUSPECTS)
def test_mistakes_in_the_suspects_are_named(function, message, capsys):
    assert check_suspects(function) is False
    assert (out := capsys.readouterr().out).startswith(f"suspects: not yet: {message}"), out
