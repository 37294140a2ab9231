"""The checks of notebook 02 accept the solution and name each known mistake."""

import pytest
import torch

from mmlkit.checks import check_adamw_step, check_learning_rate
from mmlkit.training.optimizers import AdamW, learning_rate


def stub(*arguments): ...


def raises(*arguments):
    raise TypeError("a draft")


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


def changed(**parts):
    """The solution with some parts replaced."""
    return lambda *arguments: step(*arguments, **parts)


BIAS = "theta: the bias correction sqrt(1 - beta2^t) / (1 - beta1^t) is missing"
DECAY = "weight decay is missing"
STEPS = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda *arguments: step(*arguments)[0], "expected (theta, m, v), found 0.4"),
    (lambda *arguments: step(*arguments)[:2], "expected (theta, m, v), found (0.4"),
    (lambda *arguments: ("a", *step(*arguments)[1:]), "theta: expected one number, found 'a'."),
    (changed(decayed=lambda before, after: 0), f"theta: {DECAY}."),
    (
        changed(decayed=lambda before, after: before),
        "theta: decay uses theta from before the step; the handout decays after it.",
    ),
    (changed(correction=lambda *_: 1), f"{BIAS}."),
    (
        changed(correction=lambda *_: 1, decayed=lambda before, after: 0),
        f"{BIAS}, and {DECAY}.",
    ),
    (
        changed(root=lambda v, eps: (v + eps) ** 0.5),
        "theta: eps belongs outside the square root.",
    ),
    (
        lambda theta, g, m, *rest: (*step(theta, g, m, *rest)[:1], m, 0),
        "m: for (0.5, 0.3, 0.02, 0.004, 2, 0.1, 0.9, 0.99, 0.01, 0.1) it returns 0.02, "
        "expected 0.048. The right answer is beta1 m + (1 - beta1) g.",
    ),
    (
        changed(squared=lambda g: g),
        "v: for (0.5, 0.3, 0.02, 0.004, 2, 0.1, 0.9, 0.99, 0.01, 0.1) it returns 0.00696, "
        "expected 0.00486. The right answer is beta2 v + (1 - beta2) g^2.",
    ),
    (lambda *arguments: (1.0, *step(*arguments)[1:]), "theta: for (0.5, 0.3, "),
]


def test_the_step_is_the_librarys(capsys):
    """Two steps of the optimizer from theta = 1 equal two of the function's."""
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


def rate(step, peak, warmup, total):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (total - step) / (total - warmup)


RATES = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda *_: "much", "expected one number, found 'much'."),
    (
        lambda step, peak, warmup, total: peak * step / warmup,
        "for (0, 2.0, 10, 100) it returns 0, expected 0.2. The right answer is the peak in the "
        "last warmup step, 0 at step total, and linear before and between.",
    ),
    (
        lambda step, peak, warmup, total: min(rate(0, peak, warmup, total) * (step + 1), peak),
        "for (11, 2.0, 10, 100) it returns 2, expected 1.97778.",
    ),
]


def test_the_learning_rate_is_the_librarys(capsys):
    """With 10 of 100 warmup steps it is 0.2 of 2 at step 0, 2 at steps 9 and 10, 1 at step 55."""
    assert [rate(step, 2.0, 10, 100) for step in (0, 9, 10, 55)] == [0.2, 2, 2, 1]
    assert check_learning_rate(rate) and capsys.readouterr().out == "learning rate: right.\n"
    assert check_learning_rate(
        lambda step, peak, warmup, total: learning_rate(step, peak=peak, warmup=warmup, total=total)
    )


@pytest.mark.parametrize(
    "check, name, function, said",
    [
        *((check_adamw_step, "AdamW", *case) for case in STEPS),
        *((check_learning_rate, "learning rate", *case) for case in RATES),
    ],
)
def test_mistakes_are_named(check, name, function, said, capsys):
    assert check(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: not yet: {said}") and out.count("\n") == 1, out
