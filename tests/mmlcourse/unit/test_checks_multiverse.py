"""The checks of notebook 03 accept the solution and name each known mistake."""

import pytest
import torch

from mmlcourse.lessons.checks import (
    check_collapse,
    check_free_directions,
    check_term_step,
)
from mmlkit.heads.multiverse import MultiverseHead


def term_step(F, lam, lr, gradient=None):
    """One step on lambda L_mv by autograd, pair by pair."""
    F = F.clone().requires_grad_()
    sum((F[r] @ F[s]).abs() for s in range(len(F)) for r in range(s)).backward()
    return F.detach() - lr * lam * F.grad


def step_with(change, factor=1.0):
    """The step with other signs; change gets the Gram matrix."""
    return lambda F, lam, lr: F - lr * lam * factor * change(F @ F.T) @ F


def off(G):
    return G - G.diag().diag()


STEPS = [
    (step_with(torch.sign), "the diagonal of sign(G) is not set to 0."),
    (step_with(off), "the dot products are used, not their signs."),
    (step_with(lambda G: off(torch.ones_like(G))), "the sign is missing, so all heads are added."),
    (step_with(lambda G: G.sign().triu(1)), "only the heads after r are counted;"),
    (step_with(lambda G: G.sign().tril(-1)), "only the heads before r are counted;"),
    (lambda F, lam, lr: term_step(F, 1, lr), "lambda is missing."),
    (lambda F, lam, lr: term_step(F, lam / 2, lr), "there is no factor 1/2, as a pair adds"),
    (lambda F, lam, lr: term_step(F, 2 * lam, lr), "the gradient is doubled."),
    (lambda F, lam, lr: term_step(F, lam / len(F), lr), "the gradient is divided by the number"),
    (
        lambda F, lam, lr: F - lr * lam * off((F @ F.T).sign()) @ (F / F.norm(dim=1)[:, None]),
        "the heads are normalised; L_mv has dot products.",
    ),
    (lambda F, lam, lr: term_step(F, lam, 1), "the learning rate is missing."),
    (lambda F, lam, lr: 2 * F - term_step(F, lam, lr), "the step goes uphill; subtract"),
    (lambda F, lam, lr: (F - term_step(F, lam, lr)) / lr, "this is the gradient, not the heads."),
    (lambda F, lam, lr: term_step(F, lam, lr) - F, "this is the change, not the heads."),
]


def test_the_step_of_the_term_by_hand(capsys):
    F = torch.tensor(
        [[1.0, 0.2], [0.9, 0.5]]
    )  # the product is 1, so each loses a part of the other
    torch.testing.assert_close(term_step(F, 1, 0.1), torch.tensor([[0.91, 0.15], [0.8, 0.48]]))
    assert check_term_step(term_step) and capsys.readouterr().out == "step of the term: right.\n"


@pytest.mark.parametrize("function, message", STEPS)
def test_mistakes_in_the_step_are_named(function, message, capsys):
    assert check_term_step(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"step of the term: not yet: {message}") and out.count("\n") == 1, out


def free(F):
    return F.shape[1] - torch.linalg.matrix_rank(F[1:] - F[0])


FREE = [
    (lambda F: torch.linalg.matrix_rank(F[1:] - F[0]), "this is the rank of the differences"),
    (lambda F: F.shape[1] - torch.linalg.matrix_rank(F), "this is D minus the rank of the heads"),
    (torch.linalg.matrix_rank, "this is the rank of the heads."),
    (lambda F: F.shape[1] - len(F) + 1, "this is D - M + 1, which holds only for independent"),
    (lambda F: F.shape[1] - len(F), "this is D - M."),
    (lambda F: len(F), "it returns 3, expected 4."),
    (lambda F: 4, "it returns 4, expected 5."),
    (lambda F: F.shape[1] - torch.linalg.matrix_rank(F) + 1, "it returns 6, expected 5."),
    (lambda F: F.shape[1] - len(torch.unique(F, dim=0)) + 1, "it returns 4, expected 5."),
]


def test_free_directions_by_hand():
    """x = (a, a, b) has equal products with the first two axes: two directions are free."""
    assert free(torch.eye(3)[:2]) == 2 and free(torch.eye(4)) == 1
    assert check_free_directions(free)
    assert check_free_directions(
        lambda F: torch.linalg.svdvals(F - F[:1]).lt(1e-4).sum() + (F.shape[1] - min(F.shape))
    )


@pytest.mark.parametrize("function, message", FREE)
def test_mistakes_in_the_free_directions_are_named(function, message, capsys):
    assert check_free_directions(function) is False
    assert (out := capsys.readouterr().out).startswith(f"free directions: not yet: {message}"), out


def collapse(weight, bias, active):
    return weight[active].mean(0), bias[active].mean(0)


def change_both(change):
    """Return a collapse with the same mistake in the weight and in the bias."""
    return lambda weight, bias, active: (change(weight, active), change(bias, active))


def change_bias(change):
    return lambda weight, bias, active: (weight[active].mean(0), change(bias, active))


COLLAPSES = [
    (lambda *_: (1, 2), "weight: expected numbers of shape [2, 3], found shape []."),
    (
        lambda weight, bias, active: weight[active].mean(0),
        (
            "expected (weight, bias), found tensor([[-0.4292, 0.4705, 0.9376], [ 0.5427, "
            "-0.3512, -0.9222]])."
        ),
    ),
    (change_bias(lambda bias, active: torch.zeros(2)), "bias: these are zeros."),
    (
        change_both(lambda values, active: values[active].mean(1)),
        "weight: expected numbers of shape [2, 3], found shape [3, 3].",
    ),
    (change_both(lambda values, active: values[active].sum(0)), "weight: this is the sum."),
    (change_bias(lambda bias, active: bias[active].sum(0)), "bias: this is the sum."),
    (change_both(lambda values, active: values.mean(0)), "weight: inactive heads are counted."),
    (change_bias(lambda bias, active: bias.mean(0)), "bias: inactive heads are counted."),
    (
        change_both(lambda values, active: values.sum(0) / active.sum()),
        "weight: inactive heads are in the sum.",
    ),
    (
        change_both(lambda values, active: values.sum(0)),
        "weight: inactive heads are counted, and this is the sum.",
    ),
    (
        change_both(lambda values, active: values[active].sum(0) / len(active)),
        "weight: the sum is divided by the number of all heads.",
    ),
    (change_both(lambda values, active: values[0]), "weight: this is the first head alone."),
    (
        change_both(lambda values, active: values[~active].mean(0)),
        ("weight: at [0, 0] it returns -0.279415, expected -0.429187."),
    ),
]


def test_the_collapse_equals_the_library(capsys):
    assert check_collapse(collapse) and capsys.readouterr().out == "collapse: right.\n"
    assert check_collapse(lambda *arguments: list(collapse(*arguments)))

    def with_the_library(weight, bias, active):
        head = MultiverseHead(3, 2, num_heads=4)
        head.weight.data, head.bias.data = weight, bias
        head.set_active(active)
        return head.collapse()

    assert check_collapse(with_the_library)


@pytest.mark.parametrize("function, message", COLLAPSES)
def test_mistakes_in_the_collapse_are_named(function, message, capsys):
    assert check_collapse(function) is False
    assert (out := capsys.readouterr().out).startswith(f"collapse: not yet: {message}"), out
