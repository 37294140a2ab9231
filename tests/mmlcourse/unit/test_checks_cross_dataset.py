"""The checks of notebook 05 accept the solution and name each known mistake."""

import math

import numpy as np
import pytest

from mmlcourse.lessons.checks import (
    check_group_error,
    check_improvement,
    check_price,
)
from mmlcourse.studies.cross_dataset import relative_improvement


def improvement(ours, baseline, own):
    ratios = [ours[name] / baseline[name] for name in ours if name != own]
    return math.trunc(10000 * (sum(ratios) / len(ratios) - 1)) / 100


def improvement_solution(
    formula=lambda a, b: 100 * (np.mean(a / b) - 1),
    round_result=lambda value: math.trunc(100 * value) / 100,
    names=lambda ours, own: [n for n in ours if n != own],
):
    """Return the solution. Each argument replaces one part; a is our accuracy, b the baseline's."""

    def function(ours, baseline, own):
        found = names(ours, own)
        return round_result(
            float(
                formula(
                    np.array([ours[name] for name in found]),
                    np.array([baseline[name] for name in found]),
                )
            )
        )

    return function


def matched_by_position(ours, baseline, own):
    ratios = [a / b for name, a, b in zip(ours, ours.values(), baseline.values()) if name != own]
    return math.trunc(10000 * (sum(ratios) / len(ratios) - 1)) / 100


IMPROVEMENTS = [
    (lambda *_: "9.82", "expected one number, found '9.82'."),
    (improvement_solution(round_result=float), "the result is not cut to two decimals."),
    (
        improvement_solution(round_result=lambda value: round(value, 2)),
        "the result is rounded, not cut.",
    ),
    (
        improvement_solution(round_result=lambda value: math.floor(100 * value) / 100),
        "the result is rounded down, not cut towards zero.",
    ),
    (improvement_solution(lambda a, b: np.mean(a / b) - 1), "this is a share, not percent."),
    (improvement_solution(lambda a, b: 100 * np.mean(a / b)), "1 is not subtracted."),
    (
        improvement_solution(lambda a, b: 100 * (a.mean() / b.mean() - 1)),
        "this is the ratio of the means.",
    ),
    (
        improvement_solution(lambda a, b: np.mean(a - b)),
        "this is a difference in points",
    ),
    (
        improvement_solution(names=lambda ours, own: list(ours)),
        "the set it was trained on is counted.",
    ),
    (matched_by_position, "sets are matched by place, not by name."),
    (
        improvement_solution(
            lambda a, b: 100 * (a.mean() / b.mean() - 1), float, lambda ours, own: list(ours)
        ),
        (
            "the set it was trained on is counted, and this is the ratio of the means, and the "
            "result is not cut to two decimals."
        ),
    ),
    (
        lambda *_: 3.0,
        (
            "for ({'rte': 99.0, 'mnli': 66.0, 'qnli': 52.7, 'snli': 81.3}, {'rte': 90.0, "
            "'mnli': 60.0, 'qnli': 51.0, 'snli': 70.0}, 'rte') it returns 3, expected 9.82."
        ),
    ),
]


def test_the_improvement_worked_by_hand(capsys):
    """The expected values are computed by hand.

    (66/60 + 52.7/51 + 81.3/70)/3 - 1 = 0.098254. (79.1/80 + 49.3/50)/2 - 1 = -0.012625, truncated
    towards zero.
    """
    ours, baseline = (
        {"rte": 99.0, "mnli": 66.0, "qnli": 52.7, "snli": 81.3},
        {"rte": 90.0, "mnli": 60.0, "qnli": 51.0, "snli": 70.0},
    )
    assert improvement(ours, baseline, "rte") == 9.82
    del ours["rte"], baseline["rte"]
    assert (
        relative_improvement(ours, baseline, truncate=True) == 9.82
        and relative_improvement([79.1, 49.3], [80, 50], truncate=True) == -1.26
    )
    assert check_improvement(improvement) and capsys.readouterr().out == "improvement: right.\n"


@pytest.mark.parametrize("function, message", IMPROVEMENTS)
def test_mistakes_in_the_improvement_are_named(function, message, capsys):
    assert check_improvement(function) is False
    assert (out := capsys.readouterr().out).startswith(f"improvement: not yet: {message}"), out


def price_solution(formula=lambda own, down, along: own - np.mean(down), factor=100):
    """Return the solution; the formula takes the own accuracy, its column and its row."""

    def function(accuracy):
        found = {}
        for name in accuracy:
            others = [one for one in accuracy if one != name]
            down = [accuracy[one][name] for one in others]
            along = [accuracy[name][one] for one in others]
            found[name] = factor * formula(accuracy[name][name], down, along)
        return found

    return function


PRICES = [
    (lambda _: 15.0, "expected a dict with a number for each of qqp, mrpc, found 15.0."),
    (
        price_solution(lambda own, down, along: own - np.mean(along)),
        "this compares one model on other sets, so it mixes in how hard a set is.",
    ),
    (
        price_solution(lambda own, down, along: own - np.mean([*down, own])),
        "the own model is counted among the sisters.",
    ),
    (price_solution(factor=-100), "this is sister minus own, of the other sign."),
    (
        price_solution(lambda own, down, along: own - max(down)),
        "this takes the best sister, not their mean.",
    ),
    (price_solution(factor=1), "this is a share, not points."),
]


def test_the_price_worked_by_hand(capsys):
    """On qqp 80 - 65 = 15 points, on mrpc 85 - 70 = 15; along the rows 10 and 20."""
    accuracy = {"qqp": {"qqp": 0.8, "mrpc": 0.7}, "mrpc": {"qqp": 0.65, "mrpc": 0.85}}
    found = price_solution()(accuracy)
    assert {name: round(value, 9) for name, value in found.items()} == {"qqp": 15, "mrpc": 15}
    assert check_price(price_solution()) and capsys.readouterr().out == "price: right.\n"


@pytest.mark.parametrize("function, message", PRICES)
def test_mistakes_in_the_price_are_named(function, message, capsys):
    assert check_price(function) is False
    assert (out := capsys.readouterr().out).startswith(f"price: not yet: {message}"), out


def group_error(values, groups):
    names = sorted(set(groups))
    sums = [sum(v - values.mean() for v, g in zip(values, groups) if g == name) for name in names]
    factor = len(names) / (len(names) - 1)
    return math.sqrt(factor * sum(one**2 for one in sums)) / len(values)


def mean_of_groups(values, groups):
    names = sorted(set(groups))
    means = [np.mean([v for v, g in zip(values, groups) if g == name]) for name in names]
    return np.std(means, ddof=1) / math.sqrt(len(names))


def uncorrected(values, groups):
    count = len(set(groups))
    return group_error(values, groups) * math.sqrt((count - 1) / count)


def uncentred(values, groups):
    names = sorted(set(groups))
    sums = [sum(v for v, g in zip(values, groups) if g == name) for name in names]
    factor = len(names) / (len(names) - 1)
    return math.sqrt(factor * sum(one**2 for one in sums)) / len(values)


GROUP_ERRORS = [
    (
        lambda values, groups: values.std(ddof=1) / math.sqrt(len(values)),
        "every row counts as independent.",
    ),
    (mean_of_groups, "every group counts the same, however many rows it has."),
    (uncorrected, "the factor G/(G-1) is missing."),
    (uncentred, "the mean is not subtracted."),
    (
        lambda values, groups: group_error(values, groups) * len(values) / len(set(groups)),
        "the sum is divided by the groups, not by the rows.",
    ),
    (lambda *case: group_error(*case) ** 2, "this is the variance, without its root."),
]


def test_the_error_of_groups_worked_by_hand(capsys):
    """Values 1, 1 and 0, 0 in two groups: the centred sums are 1 and -1, so sqrt(2 * 2) / 4.

    With a group per row it is the usual standard error.
    """
    assert group_error(np.array([1.0, 1, 0, 0]), [1, 1, 2, 2]) == 0.5
    values = np.random.default_rng(0).normal(size=9)
    assert abs(group_error(values, range(9)) - values.std(ddof=1) / 3) < 1e-12
    assert check_group_error(group_error)
    assert capsys.readouterr().out == "group_error: right.\n"


@pytest.mark.parametrize("function, message", GROUP_ERRORS)
def test_mistakes_in_the_error_of_groups_are_named(function, message, capsys):
    assert check_group_error(function) is False
    assert (out := capsys.readouterr().out).startswith(f"group_error: not yet: {message}"), out
