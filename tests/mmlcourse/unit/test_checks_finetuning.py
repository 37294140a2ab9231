"""The checks of notebook 02 accept the solution and name each known mistake."""

import numpy as np
import pytest
import torch

from mmlcourse.lessons.checks import (
    check_adamw_step,
    check_paired_error,
    check_training_step,
)
from mmlkit.training import train_step
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


def training_step(model, batch, optimizer, zero=True, clip=1.0, update=True, reduction="mean"):
    if zero:
        model.zero_grad()
    out = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    head = model.head(batch.task)
    logits = head(*head.inputs(out, batch))
    loss = torch.nn.functional.cross_entropy(logits, batch.labels, reduction=reduction)
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    if update:
        optimizer.step()
    return loss.item()


def late_clip(model, batch, optimizer):
    loss = training_step(model, batch, optimizer, clip=None)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss


def step_with(**parts):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda *given: training_step(*given, **parts)


ZERO = "the gradients of the last step are not set to zero"
CLIP = "the gradient is not clipped, or only after the step"
STEPS = [
    (lambda *given: None, "it returns nothing so far."),
    (lambda *given: 1 / 0, "it stopped with ZeroDivisionError"),
    (step_with(zero=False), f"{ZERO}."),
    (step_with(clip=None), f"{CLIP}."),
    (late_clip, f"{CLIP}."),
    (step_with(zero=False, clip=None), f"{ZERO}, and {CLIP}."),
    (step_with(update=False), "no weight moves: optimizer.step() or backward() is missing."),
    (step_with(reduction="sum"), "the losses of the rows are added; take their mean."),
    (step_with(clip=0.5), "for (3,) at [1] it returns"),
]


def test_the_training_step_is_that_of_the_library(capsys):
    """The library's `train_step` passes the check, and so do the ten lines of the notebook."""
    assert check_training_step(training_step)
    assert capsys.readouterr().out == "training step: right.\n"
    assert check_training_step(lambda *given: train_step(*given, precision="fp32").total)


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
        *((check_training_step, "training step", *case) for case in STEPS),
        *((check_paired_error, "paired error", *case) for case in ERRORS),
    ],
)
def test_mistakes_are_named(check, name, function, message, capsys):
    assert check(function, explain=True) is False
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: not yet: {message}") and out.count("\n") == 1, out
