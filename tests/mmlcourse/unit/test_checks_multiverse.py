"""The checks of notebook 03 accept the solution and name each known mistake."""

import pytest
import torch

from mmlcourse.lessons.checks import (
    check_collapse,
    check_free_directions,
    check_multiverse_loss,
    check_turning,
)
from mmlkit.heads.multiverse import MultiverseHead


def by_pairs(F):
    """Eq. 4 pair by pair."""
    M, C, _ = F.shape
    return sum((F[r, k] @ F[s, k]).abs() for k in range(C) for s in range(M) for r in range(s))


def size_of(G, own=False, factor=0.5):
    """The sum of the Gram matrices [C,M,M], with or without their diagonals."""
    return factor * (G.sum() - (0 if own else G.diagonal(dim1=1, dim2=2).sum()))


def gram(F):
    rows = F.transpose(0, 1)
    return rows @ rows.mT


LOSSES = [
    (lambda F: size_of((F @ F.mT).abs()), "the classes of one head are compared."),
    (lambda F: size_of(gram(F)), "the absolute value is missing."),
    (lambda F: size_of(gram(F).abs(), own=True), "the diagonal, |f|^2, is counted."),
    (lambda F: size_of(gram(F).abs(), factor=1), "every pair is counted twice."),
]


def test_the_loss_by_pairs(capsys):
    F = torch.tensor([[[1.0, 0.2]], [[0.9, 0.5]]])
    torch.testing.assert_close(by_pairs(F), torch.tensor(1.0))
    assert check_multiverse_loss(by_pairs)
    assert capsys.readouterr().out == "multiverse loss: right.\n"


@pytest.mark.parametrize("function, message", LOSSES)
def test_mistakes_in_the_loss_are_named(function, message, capsys):
    assert check_multiverse_loss(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"multiverse loss: not yet: {message}") and out.count("\n") == 1, out


def turning(F):
    """The gradient of the sum of |cos| by autograd, pair by pair."""
    F = F.clone().requires_grad_()
    n = F / F.norm(dim=1, keepdim=True)
    sum((n[r] @ n[s]).abs() for s in range(len(F)) for r in range(s)).backward()
    return F.grad


def turning_with(signs=torch.sign, others=None, across=True, divided=True):
    """The same by hand, with one change."""

    def gradient(F):
        length = F.norm(dim=1, keepdim=True)
        n = F / length
        g = signs(n @ n.T).fill_diagonal_(0) @ (F if others else n)
        g = g - (g * n).sum(1, keepdim=True) * n if across else g
        return g / length if divided else g

    return gradient


TURNS = [
    (turning_with(signs=torch.clone), "the cosines are used, not their signs."),
    (turning_with(signs=torch.ones_like), "the sign is missing, so all heads are added."),
    (turning_with(others="F"), "the other heads are not normalised."),
    (turning_with(across=False), "the part along f is left in."),
    (turning_with(divided=False), "the division by |f| is missing."),
    (lambda F: 2 * turning(F), "the gradient is doubled."),
    (lambda F: -turning(F), "this goes downhill."),
]


def test_the_turning_gradient_by_autograd(capsys):
    assert check_turning(turning) and capsys.readouterr().out == "turning: right.\n"
    assert check_turning(turning_with())
    F = torch.tensor([[3.0, 0.0], [1.0, 1.0]])  # cos = 1 / sqrt 2
    torch.testing.assert_close(turning(F)[0], torch.tensor([0.0, 0.5**0.5 / 3]))


@pytest.mark.parametrize("function, message", TURNS)
def test_mistakes_in_the_turning_gradient_are_named(function, message, capsys):
    assert check_turning(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"turning: not yet: {message}") and out.count("\n") == 1, out


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
