"""The checks of notebook 02 accept the solution and name each known mistake."""

import numpy as np
import pytest
import torch

from mmlcourse.lessons.checks import (
    check_adamw_step,
    check_first_step,
    check_paired_error,
)
from mmlkit.training.optimizers import AdamW


def step(
    theta,
    g,
    m,
    v,
    t,
    lr,
    beta1,
    beta2,
    eps,
    weight_decay,
    correction=lambda t, beta1, beta2: (1 - beta2**t) ** 0.5 / (1 - beta1**t),
    root=lambda v, eps: v**0.5 + eps,
    decayed=lambda before, after: after,
    squared=lambda g: g * g,
):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * squared(g)
    moved = theta - lr * correction(t, beta1, beta2) * m / root(v, eps)
    return moved - lr * weight_decay * decayed(theta, moved), m, v


def adamw_solution(**parts):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda *arguments: step(*arguments, **parts)


BIAS = "theta: the bias correction sqrt(1 - beta2^t) / (1 - beta1^t) is missing"
DECAY = "weight decay is missing"
ADAMW = [
    (lambda *arguments: step(*arguments)[0], "expected (theta, m, v), found 0.4"),
    (lambda *arguments: step(*arguments)[:2], "expected (theta, m, v), found (0.4"),
    (lambda *arguments: ("a", *step(*arguments)[1:]), "theta: expected one number, found 'a'."),
    (adamw_solution(decayed=lambda before, after: 0), f"theta: {DECAY}."),
    (
        adamw_solution(decayed=lambda before, after: before),
        "theta: decay uses theta from before the step; the handout decays after it.",
    ),
    (adamw_solution(correction=lambda *_: 1), f"{BIAS}."),
    (
        adamw_solution(correction=lambda *_: 1, decayed=lambda before, after: 0),
        f"{BIAS}, and {DECAY}.",
    ),
    (
        adamw_solution(root=lambda v, eps: (v + eps) ** 0.5),
        "theta: eps belongs outside the square root.",
    ),
    (
        lambda theta, g, m, *rest: (*step(theta, g, m, *rest)[:1], m, 0),
        "m: for (0.5, 0.3, 0.02, 0.004, 2, 0.1, 0.9, 0.99, 0.01, 0.1) it returns 0.02, "
        "expected 0.048. The right answer is beta1 m + (1 - beta1) g.",
    ),
    (
        adamw_solution(squared=lambda g: g),
        "v: for (0.5, 0.3, 0.02, 0.004, 2, 0.1, 0.9, 0.99, 0.01, 0.1) it returns 0.00696, "
        "expected 0.00486. The right answer is beta2 v + (1 - beta2) g^2.",
    ),
    (lambda *arguments: (1.0, *step(*arguments)[1:]), "theta: for (0.5, 0.3, "),
]


def test_the_step_equals_the_library(capsys):
    """Two steps from theta = 1 give the same value as two steps of the library's optimizer."""
    theta = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = AdamW([theta], lr=0.1, betas=(0.9, 0.99), eps=0.01, weight_decay=0.1)
    value, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate((0.5, -0.2), start=1):
        theta.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        value, m, v = step(value, g, m, v, t, 0.1, 0.9, 0.99, 0.01, 0.1)
    assert value == pytest.approx(theta.item(), abs=1e-12)
    assert check_adamw_step(step) and capsys.readouterr().out == "AdamW: right.\n"
    assert check_adamw_step(lambda *arguments: list(map(torch.tensor, step(*arguments))))


def first_step(g, lr, beta2, eps, scale=lambda eps, beta2: eps / (1 - beta2) ** 0.5, size=abs):
    return -lr * g / (size(g) + scale(eps, beta2))


def step_solution(**parts):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda *arguments: first_step(*arguments, **parts)


TORCH = "eps is not divided by sqrt(1 - beta2); this is torch's rule"
STEPS = [
    (lambda *arguments: "far", "expected one number, found 'far'."),
    (step_solution(scale=lambda eps, beta2: eps), f"{TORCH}."),
    (
        step_solution(scale=lambda eps, beta2: eps / (1 - beta2)),
        "eps is divided by 1 - beta2, without the square root.",
    ),
    (
        step_solution(scale=lambda eps, beta2: eps * (1 - beta2) ** 0.5),
        "eps is multiplied by sqrt(1 - beta2), not divided by it.",
    ),
    (
        lambda g, lr, beta2, eps: -lr if g > 0 else lr,
        "eps is missing.",
    ),
    (
        step_solution(size=lambda g: g),
        "the gradient in the denominator has lost its absolute value.",
    ),
    (step_solution(size=lambda g: g * g), "the step is divided by g squared."),
    (
        lambda g, lr, beta2, eps: -lr * g,
        "this is the step of gradient descent, which grows with g.",
    ),
    (lambda *arguments: -first_step(*arguments), "the step goes uphill; its sign is wrong."),
    (lambda g, lr, *rest: first_step(g, 1, *rest), "the learning rate is missing."),
    (lambda *arguments: -abs(first_step(*arguments)), "the sign of the gradient is lost, so every"),
    (
        lambda *arguments: -step_solution(scale=lambda eps, beta2: eps)(*arguments),
        f"{TORCH}, and the step goes uphill; its sign is wrong.",
    ),
    (
        lambda g, *rest: first_step(g, *rest) if g else 1.0,
        "for (0.0, 0.1, 0.999, 1e-06) it returns 1, expected 0. A gradient of 0 moves nothing.",
    ),
    (lambda *arguments: 0.5, "for (1.0, 0.1, 0.999, 1e-06) it returns 0.5, expected -0.0999968."),
]


@pytest.mark.parametrize("g", [1.0, -100.0, 1e-5, -3e-6])
def test_the_first_step_equals_the_library(g):
    """beta1 cancels. At |g| = eps / sqrt(1 - beta2) = 3.16e-5 the step is half as long as lr."""
    theta = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    theta.grad = torch.tensor([g], dtype=torch.float64)
    AdamW([theta], lr=0.1, betas=(0.7, 0.999), eps=1e-6, weight_decay=0.0).step()
    assert first_step(g, 0.1, 0.999, 1e-6) == pytest.approx(theta.item(), rel=1e-9)
    assert first_step(1e-6 / 0.001**0.5, 0.1, 0.999, 1e-6) == pytest.approx(-0.05)


def test_the_solution_of_the_first_step_is_accepted(capsys):
    assert check_first_step(first_step) and capsys.readouterr().out == "first step: right.\n"
    assert check_first_step(lambda *arguments: torch.tensor(first_step(*arguments)))


def paired_error(first, second):
    return (first - second).std(ddof=1) / len(first) ** 0.5


ERRORS = [
    (lambda first, second: first - second, "expected one number, found shape [8]."),
    (
        lambda first, second: (first - second).std() / len(first) ** 0.5,
        "the variance is divided by N, not by N - 1.",
    ),
    (
        lambda first, second: ((first.var(ddof=1) + second.var(ddof=1)) / len(first)) ** 0.5,
        "the pairs are ignored: the two are treated as independent samples.",
    ),
    (
        lambda first, second: ((first.var() + second.var()) / len(first)) ** 0.5,
        "the variance is divided by N, not by N - 1, and the pairs are ignored",
    ),
    (
        lambda first, second: abs(first - second).std(ddof=1) / len(first) ** 0.5,
        "the rows that differ are counted without their sign.",
    ),
    (
        lambda first, second: (first - second).std(ddof=1),
        "this is the spread of one row; the mean of N rows has a smaller error.",
    ),
    (
        lambda first, second: paired_error(first, second) ** 2,
        "this is the variance, not its root.",
    ),
    (lambda first, second: (first - second).mean(), "this is the difference of the accuracies,"),
    (lambda first, second: 1.0, "it returns 1, expected 0.25"),
]


def test_the_paired_error_worked_by_hand(capsys):
    """The differences 0, 1, 0, 0, -1, 1, 1, 0 have the mean 1/4 and the variance (4 - 1/2) / 7."""
    first, second = np.array([1.0, 1, 0, 1, 0, 1, 1, 0]), np.array([1.0, 0, 0, 1, 1, 0, 0, 0])
    assert paired_error(first, second) == pytest.approx((0.5 / 8) ** 0.5)
    assert check_paired_error(paired_error)
    assert capsys.readouterr().out == "paired error: right.\n"


@pytest.mark.parametrize(
    "check, name, function, message",
    [
        *((check_adamw_step, "AdamW", *case) for case in ADAMW),
        *((check_first_step, "first step", *case) for case in STEPS),
        *((check_paired_error, "paired error", *case) for case in ERRORS),
    ],
)
def test_mistakes_are_named(check, name, function, message, capsys):
    assert check(function, explain=True) is False
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: not yet: {message}") and out.count("\n") == 1, out
