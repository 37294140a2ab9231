"""The checks of notebook 05 accept the solution and name each known mistake."""

import math

import numpy as np
import pandas as pd
import pytest

from mmlkit.checks import check_improvement, check_profile
from mmlkit.studies.cross_dataset import performance_profile, relative_improvement


def stub(*arguments): ...


def raises(*arguments):
    raise TypeError("a draft")


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
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
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
    (improvement_solution(lambda a, b: np.mean(a - b)), "this is a difference in points."),
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


def profile(errors, tau):
    return (errors <= tau * errors.min(axis=1, keepdims=True)).mean(axis=0)


def first_best_only(errors, tau):
    best = errors.min(axis=1, keepdims=True)
    first = np.arange(errors.shape[1]) == errors.argmin(axis=1)[:, None]
    return ((errors <= tau * best) & (first | (errors > best))).mean(axis=0)


PROFILES = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda *_: 3, "expected numbers of shape [3], found shape []."),
    (lambda errors, tau: profile(errors.T, tau), "expected numbers of shape [3], found shape [4]."),
    (
        lambda errors, tau: (errors < tau * errors.min(axis=1, keepdims=True)).mean(axis=0),
        "an equal error does not count.",
    ),
    (
        lambda errors, tau: (errors <= tau * errors.min(axis=0)).mean(axis=0),
        "the lowest error is that of the column.",
    ),
    (
        lambda errors, tau: (errors <= tau * errors.min()).mean(axis=0),
        "the lowest error is that of all experiments.",
    ),
    (
        lambda errors, tau: (errors <= tau * errors[:, :1]).mean(axis=0),
        "errors are compared with the first method.",
    ),
    (
        lambda errors, tau: (errors <= errors.min(axis=1, keepdims=True) + tau - 1).mean(axis=0),
        "tau is added, not multiplied.",
    ),
    (first_best_only, "of two equal best methods only one counts."),
    (lambda errors, tau: 4 * profile(errors, tau), "the count is not divided by the experiments."),
    (
        lambda errors, tau: 4 * (errors < tau * errors.min(axis=1, keepdims=True)).mean(axis=0),
        "an equal error does not count, and the count is not divided by the experiments.",
    ),
    (
        lambda errors, tau: 100 * profile(errors, tau),
        "it returns [50, 50, 25], expected [0.5, 0.5, 0.25].",
    ),
]


def test_the_profile_worked_by_hand(capsys):
    """The lowest errors of the four experiments are 10, 20, 30 and 6.

    Errors at most a quarter above the lowest: 10 and 12, 20 and 20, 30 and 33, and only 6.
    """
    errors = np.array([[10.0, 12, 15], [20, 20, 30], [40, 30, 33], [8, 9, 6]])
    assert profile(errors, 1.0).tolist() == [0.5, 0.5, 0.25] and profile(errors, 1.25).tolist() == [
        0.5,
        0.75,
        0.5,
    ]
    assert performance_profile(pd.DataFrame(errors), [1.0, 1.25]).to_numpy().tolist() == [
        [0.5, 0.5, 0.25],
        [0.5, 0.75, 0.5],
    ]
    assert check_profile(profile) and capsys.readouterr().out == "profile: right.\n"
    assert check_profile(lambda errors, tau: list(profile(errors, tau)))
    assert check_profile(
        lambda errors, tau: performance_profile(pd.DataFrame(errors), [tau]).iloc[0]
    )


@pytest.mark.parametrize("function, message", PROFILES)
def test_mistakes_in_the_profile_are_named(function, message, capsys):
    assert check_profile(function) is False
    assert (out := capsys.readouterr().out).startswith(f"profile: not yet: {message}"), out


@pytest.mark.parametrize("check", [check_improvement, check_profile])
def test_changing_the_arguments_in_place_does_not_pass(check, capsys):
    def function(first, *rest):
        if isinstance(first, dict):
            first.update(dict.fromkeys(first, 1.0))
            rest[0].update(first)
            return 0.0
        first[:] = 1.0
        return profile(first, rest[0])

    assert check(function) is False
