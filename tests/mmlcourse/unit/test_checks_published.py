"""The checks of notebook 06 accept the solution and name each known mistake."""

import numpy as np
import pandas as pd
import pytest

from mmlcourse.lessons.checks import check_leave_one_out, check_profile, check_range
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


RANGES = [
    (lambda *_: 3.0, "expected numbers of shape [2], found shape []."),
    (
        lambda *case: improvement_range(*case, half=0.01),
        "a rounded number is off by at most half a hundredth, not by a whole one.",
    ),
    (
        lambda *case: improvement_range(*case, half=0.05),
        "two decimals are hundredths: the half of one is 0.005, not 0.05.",
    ),
    (
        lambda *case: improvement_range(*case, opposite=1),
        "ours and the baseline move together; the extremes need opposite directions.",
    ),
    (
        lambda *case: improvement_range(*case, opposite=0),
        "only ours moves, but the baseline is rounded too.",
    ),
    (lambda *case: improvement_range(*case, factor=1), "this is a share, not percent."),
    (lambda *case: improvement_range(*case)[::-1], "the highest comes first."),
    (
        lambda *case: improvement_range(*case, formula=lambda a, b: a.sum() / b.sum()),
        "this is the ratio of the means, not the mean of the ratios.",
    ),
]


def test_the_range_worked_by_hand(capsys):
    """60 against 50 is at most 60.005/49.995 - 1 = 20.022 %, at least 59.995/50.005 - 1."""
    low, high = improvement_range([60.0], [50.0])
    assert abs(high - 20.0220022) < 1e-6 and abs(low - 19.9780022) < 1e-6
    assert check_range(improvement_range) and capsys.readouterr().out == "range: right.\n"


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


@pytest.mark.parametrize("function, message", RANGES)
def test_mistakes_in_the_range_are_named(function, message, capsys):
    assert check_range(function) is False
    assert (out := capsys.readouterr().out).startswith(f"range: not yet: {message}"), out


def leave_one_out(improvements):
    values = pd.Series(improvements)
    return {name: values.drop(name).mean() for name in improvements}


def changed(formula):
    """Return a wrong solution; the formula takes all values and the name of one."""
    return lambda found: {name: formula(pd.Series(found), name) for name in found}


LEFT_OUT = [
    (
        lambda _: [1.0, 2, 3, 4],
        "expected a dict with a number for each of rte, mnli, qnli, snli, found [1.0, 2, 3, 4].",
    ),
    (
        changed(lambda values, name: values.drop(name).sum() / len(values)),
        "the sum of the others is divided by all sets.",
    ),
    (changed(lambda values, name: values.drop(name).sum()), "these are sums, not means."),
    (
        changed(lambda values, name: values.mean()),
        "nothing is left out: this is the mean of all sets.",
    ),
    (
        changed(lambda values, name: values.drop(name).mean() - values.mean()),
        "this is the change of the mean, not the mean without the set.",
    ),
    (changed(lambda values, name: values[name]), "this is the value of the set itself."),
]


def test_leave_one_out_worked_by_hand(capsys):
    """Without the first of 9, 0 and 3 the mean is 1.5, without the others 6 and 4.5."""
    assert leave_one_out({"a": 9.0, "b": 0.0, "c": 3.0}) == {"a": 1.5, "b": 6.0, "c": 4.5}
    assert check_leave_one_out(leave_one_out)
    assert capsys.readouterr().out == "leave_one_out: right.\n"


@pytest.mark.parametrize("function, message", LEFT_OUT)
def test_mistakes_in_leave_one_out_are_named(function, message, capsys):
    assert check_leave_one_out(function) is False
    assert (out := capsys.readouterr().out).startswith(f"leave_one_out: not yet: {message}"), out
