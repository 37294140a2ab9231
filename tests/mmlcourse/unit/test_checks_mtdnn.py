"""The checks of notebook 07 accept the solution and name each known mistake."""

import numpy as np
import pytest
import torch

from mmlcourse.lessons.checks import (
    check_answer_step,
    check_gain_parts,
)
from mmlkit.heads.san import SANHead


def named(check, function, message, capsys):
    assert check(function) is False
    out = capsys.readouterr().out
    assert f": not yet: {message}" in out and out.count("\n") == 1, out


# A step of the answer module.


def step(s, x, M, gru, W_2, W_3, sign=torch.abs, last=lambda e: e.softmax(0)):
    s = gru(x, s)
    x = (M @ (W_2 @ s)).softmax(0) @ M
    return s, x, last(W_3 @ torch.cat([s, x, sign(s - x), s * x]))


def test_the_step_is_the_librarys(capsys):
    torch.manual_seed(0)
    san, M = SANHead(4, 3, num_steps=2).eval(), torch.randn(1, 5, 4)
    for layer in (san.attention, san.dense):
        torch.nn.init.zeros_(layer.bias)
    premise = torch.tensor([[True, True, True, False, False]])
    with torch.no_grad():
        found = san.steps(M, premise, ~premise)
        s = (san.summary(M)[0, 3:, 0]).softmax(0) @ M[0, 3:]
        x = found.premise_weights[0, 0] @ M[0]
        ours = step(s, x, M[0, :3], san.cell, san.attention.weight, san.dense.weight)
    torch.testing.assert_close(ours[2], found.probabilities[0, 1])
    assert check_answer_step(step) and capsys.readouterr().out == "answer step: right.\n"


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda s, x, M, g, *W: step(x, s, M, g, *W), "s: the arguments of the GRU are swapped."),
        (lambda s, x, M, g, *W: step(s, x, M, lambda x, s: s, *W), "s: the state stays the same."),
        (lambda s, x, M, g, W, V: step(s, x, M, g, torch.eye(3), V), "x: W_2 is missing."),
        (lambda *a: step(*a, sign=lambda d: d), "P: the absolute value is missing."),
        (lambda *a: step(*a, last=lambda e: e), "P: the softmax over the labels is missing."),
        (lambda *a: step(*a)[2], "expected (s, x, P), found"),
    ],
)
def test_mistakes_in_the_step_are_named(function, message, capsys):
    named(check_answer_step, function, message, capsys)


# The parts of a gain.


def of_pairs(a, b, error=lambda d, a, b: d.std(ddof=1) / len(d) ** 0.5):
    a, b = np.array(a, float), np.array(b, float)
    return (a - b).mean(), error(a - b, a, b)


def parts(alone, longer, together, **how):
    return of_pairs(longer, alone, **how), of_pairs(together, longer, **how)


def test_the_parts_of_a_gain_worked_by_hand(capsys):
    """Differences 4, 3, 5 and 0, 4, 0: the deviations are 1 and 4 / sqrt(3)."""
    found = parts([1, 2, 4], [5, 5, 9], [5, 9, 9])
    np.testing.assert_allclose(found, [[4, 1 / 3**0.5], [4 / 3, 4 / 3]])
    assert check_gain_parts(parts) and capsys.readouterr().out == "parts of a gain: right.\n"


UNPAIRED = lambda d, a, b: ((a.var(ddof=1) + b.var(ddof=1)) / len(d)) ** 0.5


@pytest.mark.parametrize(
    "function, message",
    [
        (
            lambda a, b, c: (of_pairs(b, a), of_pairs(c, a)),
            "others: the second part is the difference from the short runs.",
        ),
        (lambda *a: parts(*a, error=UNPAIRED), "updates: the error is not that of the paired"),
        (
            lambda *a: parts(*a, error=lambda d, a, b: d.std(ddof=1)),
            "updates: it is the standard deviation, not the error of the mean.",
        ),
        (
            lambda *a: parts(*a, error=lambda d, a, b: d.std() / len(d) ** 0.5),
            "updates: the standard deviation divides by n, not by n - 1 (ddof=1).",
        ),
        (lambda *a: parts(*a)[0], "updates: expected numbers of shape [2], found"),
    ],
)
def test_mistakes_in_the_parts_are_named(function, message, capsys):
    named(check_gain_parts, function, message, capsys)
