"""The checks of notebook 03 accept the solution and name each known mistake."""

import pytest
import torch

from mmlcourse.lessons.checks import (
    check_collapse,
    check_free_directions,
    check_mean_cosine,
)
from mmlkit.heads.multiverse import MultiverseHead


def alike(weight):
    """The mean |cos| of each class, pair by pair."""
    cosine = torch.nn.functional.cosine_similarity
    pairs = [
        [
            cosine(weight[r, k], weight[s, k], dim=0).abs()
            for s in range(len(weight))
            for r in range(s)
        ]
        for k in range(weight.shape[1])
    ]
    return torch.tensor(pairs).mean(1)


def unit(weight):
    rows = weight.transpose(0, 1)
    return rows / rows.norm(dim=-1, keepdim=True)


def table(rows):
    return (rows @ rows.transpose(1, 2)).abs()


ALIKE = [
    (lambda w: alike(w).mean(), "expected numbers of shape [2], found shape []."),
    (
        lambda w: table(w.transpose(0, 1)).triu(1).sum((1, 2)) / 6,
        "the vectors are not divided by their lengths.",
    ),
    (
        lambda w: (unit(w) @ unit(w).transpose(1, 2)).triu(1).sum((1, 2)) / 6,
        "the absolute value is missing.",
    ),
    (lambda w: table(unit(w)).mean((1, 2)), "every head is compared with itself too."),
    (
        lambda w: table(unit(w)).triu(1).mean((1, 2)),
        "the sum is divided by M², which counts more than the pairs.",
    ),
    (lambda w: 6 * alike(w), "this is the sum over pairs."),
    (
        lambda w: table(w.transpose(0, 1)).mean((1, 2)),
        "the vectors are not divided by their lengths, and every head is compared with itself too.",
    ),
    (lambda w: alike(w) + 1, "at [0] it returns 1.5856, expected 0.585604."),
]


def test_the_likeness_of_heads_by_hand():
    weight = torch.tensor([[[3.0, 4.0]], [[1.0, 0.0]], [[0.0, -2.0]]])  # |cos|: 0.6, 0.8 and 0
    torch.testing.assert_close(alike(weight), torch.tensor([1.4 / 3]))
    assert check_mean_cosine(alike)
    assert check_mean_cosine(lambda w: table(unit(w)).triu(1).sum((1, 2)) / 6)


@pytest.mark.parametrize("function, message", ALIKE)
def test_mistakes_in_the_likeness_are_named(function, message, capsys):
    assert check_mean_cosine(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"similarity of heads: not yet: {message}") and out.count("\n") == 1, out


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
