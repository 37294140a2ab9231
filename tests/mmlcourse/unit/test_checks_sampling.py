"""The checks of notebook 10 accept the solution and name each known mistake."""

import numpy as np
import pytest

from mmlcourse.lessons.checks import (
    check_exponent,
    check_exponent_for_passes,
    check_forgetting,
)

SIZES = {"quora": 1600, "sst": 400, "sts": 100}


def exponent(sizes, ratio):
    return np.log(ratio) / np.log(max(sizes.values()) / min(sizes.values()))


def first(sizes):
    return [*sizes.values()][0]


def second(sizes):
    return [*sizes.values()][1]


EXPONENTS = [
    (lambda *_: [0.5, 0.3], "expected one number, found shape [2]."),
    (
        lambda sizes, ratio: np.log(ratio) / (max(sizes.values()) / min(sizes.values())),
        "the sizes need a logarithm too.",
    ),
    (
        lambda sizes, ratio: np.log(ratio) / np.log(max(sizes.values())),
        "this takes the largest size alone, not its ratio to the smallest.",
    ),
    (
        lambda sizes, ratio: np.log(ratio) / np.log(sum(sizes.values()) / min(sizes.values())),
        "this takes the sum of the sizes, not the smallest.",
    ),
    (
        lambda sizes, ratio: np.log(ratio) / np.log(first(sizes) / second(sizes)),
        "this takes the first two sizes, not the largest and the smallest.",
    ),
    (
        lambda sizes, ratio: np.log(ratio) / np.log(first(sizes) / [*sizes.values()][-1]),
        "for ({'sts': 100, 'sst': 400, 'quora': 1600}, 4) it returns -0.5, expected 0.5.",
    ),
    (
        lambda sizes, ratio: np.log(ratio) / np.log(16),  # the ratio of one pair of sizes, fixed
        "for ({'qnli': 900, 'rte': 100}, 3) it returns 0.396241, expected 0.5.",
    ),
    (
        lambda sizes, ratio: ratio / np.log(max(sizes.values()) / min(sizes.values())),
        "the ratio needs a logarithm too.",
    ),
    (
        lambda sizes, ratio: ratio / (max(sizes.values()) / min(sizes.values())),
        "the sizes need a logarithm too, and the ratio needs a logarithm too.",
    ),
    (
        lambda sizes, ratio: (
            np.log(max(sizes.values()) / min(sizes.values())) / max(np.log(ratio), 1e-9)
        ),
        "the fraction is upside down.",
    ),
    (
        lambda sizes, ratio: 0.2,
        "for ({'quora': 1600, 'sst': 400, 'sts': 100}, 16) it returns 0.2, expected 1.",
    ),
]


@pytest.mark.parametrize(("ratio", "alpha"), [(16, 1), (4, 0.5), (2, 0.25), (1, 0)])
def test_the_exponent_worked_by_hand(ratio, alpha):
    """The sizes are 16 : 4 : 1, and 16^(1/4) = 2."""
    assert exponent(SIZES, ratio) == pytest.approx(alpha)
    p = {task: N**alpha for task, N in SIZES.items()}
    assert p["quora"] / p["sts"] == pytest.approx(ratio)


def test_the_solution_of_the_exponent_is_accepted(capsys):
    assert check_exponent(exponent) and capsys.readouterr().out == "exponent: right.\n"


def for_passes(sizes, times):
    return 1 - exponent(sizes, times)


PASSES = [
    (lambda *_: [0.5, 0.3], "expected one number, found shape [2]."),
    (exponent, "this is the exponent for a ratio of probabilities; passes also divide by N."),
    (lambda *case: 1 + exponent(*case), "the sign of the logarithm is wrong."),
    (
        lambda sizes, times: 1 - times / np.log(max(sizes.values()) / min(sizes.values())),
        "the factor needs a logarithm too.",
    ),
    (
        lambda sizes, times: 1 - np.log(times) / (max(sizes.values()) / min(sizes.values())),
        "the sizes need a logarithm too.",
    ),
    (
        lambda sizes, times: 1 - np.log(times) / np.log(first(sizes) / second(sizes)),
        "this takes the first two sizes, not the largest and the smallest.",
    ),
    (
        lambda *_: 0.0,
        "for ({'quora': 1600, 'sst': 400, 'sts': 100}, 1) it returns 0, expected 1.",
    ),
]


@pytest.mark.parametrize("times", [1, 2, 4, 16])
def test_the_exponent_gives_the_passes(times, capsys):
    """A row of a set with N rows is seen in proportion to the probability divided by N."""
    p = {task: N ** for_passes(SIZES, times) for task, N in SIZES.items()}
    assert p["sts"] / 100 == pytest.approx(times * p["quora"] / 1600)
    assert check_exponent_for_passes(for_passes)
    assert capsys.readouterr().out == "exponent for passes: right.\n"


def forgetting(history):
    return history[:-1].max(axis=0) - history[-1]


FORGETTINGS = [
    (lambda history: "much", "expected numbers of shape [3], found 'much'."),
    (lambda history: forgetting(history.T), "expected numbers of shape [3], found shape [4]."),
    (lambda history: forgetting(history).mean(), "expected numbers of shape [3], found shape []."),
    (lambda history: history.max(axis=0) - history[-1], "the last row is among those compared."),
    (lambda history: -forgetting(history), "the sign is wrong; a loss is positive."),
    (
        lambda history: history[-1] - history.max(axis=0),
        "the last row is among those compared, and the sign is wrong; a loss is positive.",
    ),
    (lambda history: history[0] - history[-1], "this is the first row minus the last."),
    (lambda history: history[-2] - history[-1], "only the row before the last is compared."),
    (
        lambda history: history[:-1].mean(axis=0) - history[-1],
        "this is the mean of the earlier rows, not the best.",
    ),
    (lambda history: history[:-1].max() - history[-1], "one best is used for all tasks."),
    (lambda history: 1 - history[-1] / history[:-1].max(axis=0), "this is a share of the best."),
    (
        lambda history: forgetting(history) + 1,
        "at [0] it returns 1.2, expected 0.2.",
    ),
]


def test_forgetting_worked_by_hand(capsys):
    """The best earlier accuracies are 0.6, 0.8 and 0.21; the last ones are 0.4, 0.7 and 0.6."""
    history = np.array(
        [[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]]
    )
    assert forgetting(history) == pytest.approx([0.2, 0.1, -0.39])
    assert check_forgetting(forgetting) and capsys.readouterr().out == "forgetting: right.\n"
    assert check_forgetting(lambda history: list(forgetting(history)))


@pytest.mark.parametrize(
    "check, name, function, message",
    [
        *((check_exponent, "exponent", *case) for case in EXPONENTS),
        *((check_exponent_for_passes, "exponent for passes", *case) for case in PASSES),
        *((check_forgetting, "forgetting", *case) for case in FORGETTINGS),
    ],
)
def test_mistakes_are_named(check, name, function, message, capsys):
    assert check(function) is False
    assert (out := capsys.readouterr().out).startswith(f"{name}: not yet: {message}"), out
