"""The checks of notebook 07 accept the solution and name each known mistake."""

import math

import numpy as np
import pytest
import torch

from mmlcourse.lessons.checks import (
    check_answer_step,
    check_kept_answers,
    check_san_parameters,
)
from mmlkit.heads.san import SANHead, kept_steps


def named(check, function, message, capsys):
    assert check(function) is False
    out = capsys.readouterr().out
    assert f": not yet: {message}" in out and out.count("\n") == 1, out


# A step of the answer module.


def step(s, x, M, gru, W_2, W_3, sign=torch.abs, last=lambda e: e.softmax(0)):
    s = gru(x, s)
    x = (M @ (W_2 @ s)).softmax(0) @ M
    return last(W_3 @ torch.cat([s, x, sign(s - x), s * x]))


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
    torch.testing.assert_close(ours, found.probabilities[0, 1])
    assert check_answer_step(step) and capsys.readouterr().out == "answer step: right.\n"


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda s, x, M, gru, *W: step(x, s, M, gru, *W), "the arguments of the GRU are swapped."),
        (lambda s, x, M, gru, *W: step(s, x, M, lambda x, s: s, *W), "the state stays the same."),
        (lambda s, x, M, gru, W, V: step(s, x, M, gru, torch.eye(3), V), "W_2 is missing."),
        (lambda *a: step(*a, sign=lambda d: d), "the absolute value is missing."),
        (lambda *a: step(*a, last=lambda e: e), "the softmax over the labels is missing."),
        (lambda *a: step(*a)[:1], "expected numbers of shape [2], found"),
    ],
)
def test_mistakes_in_the_step_are_named(function, message, capsys):
    named(check_answer_step, function, message, capsys)


# The size of the answer module.


def san_parameters(D, C, gru=lambda D: 6 * (D * D + D), width=4):
    return D + 1 + D * D + D + gru(D) + width * D * C + C


@pytest.mark.parametrize("D, C", [(6, 2), (10, 5)])
def test_the_size_is_that_of_the_library(D, C):
    assert san_parameters(D, C) == sum(one.numel() for one in SANHead(D, C).parameters())


def test_the_size_is_accepted(capsys):
    assert san_parameters(768, 3) == 4_144_132
    assert check_san_parameters(san_parameters)
    assert capsys.readouterr().out == "size of the answer module: right.\n"


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda D, C: D + D * D + 6 * D * D + 4 * D * C, "the biases are missing."),
        (lambda D, C: san_parameters(D, C) - D - 1, "the summary w_1 is missing."),
        (lambda D, C: san_parameters(D, C) - D * D - D, "the attention W_2 is missing."),
        (
            lambda D, C: san_parameters(D, C, lambda D: D * D + D),
            "the GRU is counted as one matrix.",
        ),
        (
            lambda D, C: san_parameters(D, C, lambda D: 3 * (D * D + D)),
            "the GRU has only its three matrices for x.",
        ),
        (
            lambda D, C: san_parameters(D, C, lambda D: 4 * (D * D + D)),
            "the GRU has only its two gates.",
        ),
        (
            lambda D, C: san_parameters(D, C, lambda D: 6 * D * D + 3 * D),
            "the GRU has one bias for each gate, not two.",
        ),
        (lambda D, C: san_parameters(D, C, width=1), "W_3 reads the state alone."),
        (lambda D, C: san_parameters(D, C, width=2), "W_3 reads two vectors, not four."),
        (
            lambda D, C: 5 * san_parameters(D, C),
            "the parameters are counted once for each of 5 steps.",
        ),
        (
            lambda D, C: D + D * D + 6 * D * D + 2 * D * C,
            "the biases are missing, and W_3 reads two vectors, not four.",
        ),
        (lambda D, C: san_parameters(D, C) + 1, "for (4, 5) it returns 231, expected 230."),
    ],
)
def test_mistakes_in_the_size_are_named(function, message, capsys):
    named(check_san_parameters, function, message, capsys)


# Kept answers.


def kept_answers(K, p):
    return [math.comb(K - 1, j - 1) * (1 - p) ** (j - 1) * p ** (K - j) for j in range(1, K + 1)]


def binomial(K, p):
    return [math.comb(K, j) * (1 - p) ** j * p ** (K - j) for j in range(1, K + 1)]


def test_kept_answers_worked_by_hand_and_drawn_by_the_library(capsys):
    """Of three answers at p = 1/2, one stays for sure: 1/4, 1/2 and 1/4."""
    assert kept_answers(3, 0.5) == [0.25, 0.5, 0.25]
    torch.manual_seed(0)
    drawn = kept_steps(40_000, 4, 0.3).sum(1).numpy()
    shares = np.bincount(drawn, minlength=5)[1:] / len(drawn)
    np.testing.assert_allclose(shares, kept_answers(4, 0.3), atol=0.01)
    assert check_kept_answers(kept_answers)
    assert capsys.readouterr().out == "kept answers: right.\n"


@pytest.mark.parametrize(
    "function, message",
    [
        (binomial, "no answer is kept for sure."),
        (
            lambda K, p: kept_answers(K, 1 - p),
            "p and 1 - p are exchanged, or the order is reversed.",
        ),
        (
            lambda K, p: binomial(K, 1 - p),
            "no answer is kept for sure, and p and 1 - p are exchanged",
        ),
        (
            lambda K, p: [(1 - p) ** (j - 1) * p ** (K - j) for j in range(1, K + 1)],
            "the number of ways to choose the kept answers is missing.",
        ),
        (lambda K, p: kept_answers(K, p)[::-1], "p and 1 - p are exchanged, or the order"),
        (lambda K, p: [0, *kept_answers(K, p)], "expected numbers of shape [5], found shape [6]."),
        (
            lambda K, p: kept_answers(K, p) if p else [float("nan")] * K,
            "for (3, 0.0) at [0] it returns nan, expected 0. Without dropout all",
        ),
    ],
)
def test_mistakes_in_kept_answers_are_named(function, message, capsys):
    named(check_kept_answers, function, message, capsys)
