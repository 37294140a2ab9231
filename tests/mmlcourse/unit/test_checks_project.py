"""The checks of notebook 12 accept the solution and name each known mistake."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from mmlcourse.lessons.checks import check_heads, check_overall, check_sign_test
from mmlcourse.studies.comparisons import Comparison, outcome_sentence
from mmlcourse.studies.course_score import overall_score


def overall_solution(
    rescale=lambda r: (r + 1) / 2,
    mean=lambda a, b, r: (a + b + r) / 3,
    nan=lambda r: 0.0 if math.isnan(r) else r,
):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda sst, quora, sts: mean(sst, quora, rescale(nan(sts)))


OVERALLS = [
    (lambda *_: "good", "expected one number, found 'good'."),
    (lambda *_: True, "expected one number, found True."),
    (lambda *_: (0.5, 0.5), "expected one number, found shape [2]."),
    (overall_solution(lambda r: r), "r is not brought from -1..1 to 0..1."),
    (overall_solution(lambda r: r / 2), "r is halved, but 1 is not added."),
    (overall_solution(lambda r: r + 1), "r + 1 is not halved."),
    (overall_solution(lambda r: (abs(r) + 1) / 2), "the absolute value of r is taken."),
    (overall_solution(lambda r: (max(r, 0) + 1) / 2), "a negative r is set to 0."),
    (overall_solution(mean=lambda a, b, r: a + b + r), "this is the sum of the tasks."),
    (
        overall_solution(mean=lambda a, b, r: ((a + b) / 2 + r) / 2),
        "the three tasks have different weights.",
    ),
    (overall_solution(mean=lambda a, b, r: 100 * (a + b + r) / 3), "this is in percent."),
    (
        overall_solution(nan=lambda r: r),
        (
            "for (0.25, 0.625, nan) it returns nan, expected 0.458333. A constant prediction has "
            "no correlation and counts as r = 0."
        ),
    ),
    (
        overall_solution(nan=lambda r: -1.0 if math.isnan(r) else r),
        (
            "for (0.25, 0.625, nan) it returns 0.291667, expected 0.458333. A constant "
            "prediction has no correlation and counts as r = 0."
        ),
    ),
    (lambda *_: 0.7, "for (0.5, 0.75, 0.2) it returns 0.7, expected 0.616667."),
]


def test_overall_worked_by_hand(capsys):
    """(0.5 + 0.75 + 0.6) / 3 = 0.61667; with nan it is (0.25 + 0.625 + 0.5) / 3 = 0.45833."""
    assert overall_solution()(0.5, 0.75, 0.2) == pytest.approx(1.85 / 3) and overall_solution()(
        0.25, 0.625, math.nan
    ) == pytest.approx(1.375 / 3)
    assert (
        check_overall(overall_solution()) and capsys.readouterr().out == "overall score: right.\n"
    )
    assert check_overall(overall_score) and check_overall(
        lambda *values: np.float64(overall_score(*values))
    )


def heads_solution(p, p_other, heads_other):
    return heads_other * (p_other / p) ** 2


HEADS = [
    (lambda *_: [25], "expected one number, found shape [1]."),
    (lambda p, o, A: A * (p / o) ** 2, "the ratio of the probabilities is inverted."),
    (
        lambda p, o, A: A * o / p,
        "equal gradients grow with the heads, random ones with their root.",
    ),
    (lambda p, o, A: A * (o / p) ** 0.5, "the root is taken, where a square is needed."),
    (lambda p, o, A: 2 * A * o / p, "the ratio appears twice, and its powers are added."),
    (lambda p, o, A: (o / p) ** 2, "the heads of the other task are missing."),
    (
        lambda p, o, A: (o / p) ** 2 / A,
        "the heads of the other task stand in the denominator.",
    ),
    (lambda p, o, A: o * A**0.5, "only the length is computed; solve for the heads."),
    (lambda p, o, A: A**0.5 * (o / p) ** 2, "the root of the other task's heads is left."),
    (lambda p, o, A: heads_solution(p, o, A) - A, "this is the number of heads to add."),
    (lambda *_: 25, "for (0.5, 0.25, 384) it returns 25, expected 96."),
]


def test_heads_worked_by_hand(capsys):
    """0.2 times the root of 25 is 1, and so is 0.5 times the root of 4."""
    assert heads_solution(0.2, 0.5, 4) == pytest.approx(25)
    assert check_heads(heads_solution) and capsys.readouterr().out == "number of heads: right.\n"


def sign_test_solution(
    tail=lambda k, n: sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n,
    side=max,
    two_sided=lambda p: min(1.0, 2 * p),
):
    """Return the solution. Each argument replaces one of its parts."""

    def function(differences):
        above = sum(value > 0 for value in differences)
        return two_sided(tail(side(above, len(differences) - above), len(differences)))

    return function


SIGN_TESTS = [
    (lambda _: [0.5], "expected one number, found shape [1]."),
    (lambda _: False, "expected one number, found False."),
    (
        sign_test_solution(two_sided=lambda p: p),
        "only one side is counted; a coin may fall to either.",
    ),
    (
        sign_test_solution(side=lambda a, b: a, two_sided=lambda p: p),
        (
            "only those above zero are counted, and only one side is counted; a coin may fall "
            "to either."
        ),
    ),
    (
        sign_test_solution(tail=lambda k, n: math.comb(n, k) / 2**n),
        "this is for exactly so many; add those further out.",
    ),
    (
        sign_test_solution(tail=lambda k, n: math.comb(n, k) / 2**n, two_sided=lambda p: p),
        (
            "this is for exactly so many; add those further out, and only one side is counted; "
            "a coin may fall to either."
        ),
    ),
    (
        sign_test_solution(
            tail=lambda k, n: sum(math.comb(n, i) for i in range(k + 1, n + 1)) / 2**n
        ),
        "this is for more than so many; add so many.",
    ),
    (sign_test_solution(two_sided=lambda p: 2 * p), "a probability is at most 1."),
    (lambda differences: 2 / 2 ** len(differences), "this is for all on one side."),
    (
        sign_test_solution(two_sided=lambda p: 1 - min(1.0, 2 * p)),
        "this is 1 minus the probability.",
    ),
    (sign_test_solution(side=lambda a, b: a), "only those above zero are counted."),
    (sign_test_solution(side=lambda a, b: b), "only those below zero are counted."),
    (
        lambda differences: 0.05,
        "for ([0.5, 0.5, 0.5, 0.5, 0.5, -0.25],) it returns 0.05, expected 0.21875.",
    ),
]


def test_sign_test_worked_by_hand(capsys):
    """6 of 6: 2 / 64. 5 of 6: 2 (6 + 1) / 64. 9 of 10: 2 (10 + 1) / 1024.

    For 3 of 6 the p-value is limited to 1.
    """
    cases = {(6, 0): 2 / 64, (5, 1): 14 / 64, (3, 3): 1.0, (1, 9): 22 / 1024}
    for (above, below), p_value in cases.items():
        assert (
            sign_test_solution()([1.0] * above + [-1.0] * below)
            == pytest.approx(p_value)
            == binomtest(above, above + below).pvalue
        )
    assert (
        check_sign_test(sign_test_solution()) and capsys.readouterr().out == "sign test: right.\n"
    )
    assert check_sign_test(
        lambda differences: (
            binomtest(sum(value > 0 for value in differences), len(differences)).pvalue
        )
    )


def test_the_verdict_and_the_sign_test_need_six_pairs():
    """Both need at least six pairs for a decision at 95 %.

    With six pairs, the probability that all differences have one sign is below 5 % for the first
    time.
    """
    for pairs in (4, 5, 6, 7):
        decided = "undecided" not in outcome_sentence(Comparison(1.0, 0.5, 1.5, 0.95, pairs), "x")
        assert decided == (sign_test_solution()([1.0] * pairs) < 0.05)


@pytest.mark.parametrize(
    "check, name, function, message",
    [
        *((check_overall, "overall score", *case) for case in OVERALLS),
        *((check_heads, "number of heads", *case) for case in HEADS),
        *((check_sign_test, "sign test", *case) for case in SIGN_TESTS),
    ],
)
def test_mistakes_are_named(check, name, function, message, capsys):
    assert check(function) is False
    assert (out := capsys.readouterr().out).startswith(f"{name}: not yet: {message}"), out
