"""The checks of notebook 03 accept the solution and name each known mistake."""

import pytest
import torch

from mmlkit.checks import check_collapse, check_multiverse_loss
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss


def loss(F):
    return (F @ F.T).triu(diagonal=1).abs().sum()


def stub(*arguments): ...


def raises(*arguments):
    raise TypeError("a draft")


LOSSES = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda F: "text", "expected one number, found 'text'."),
    (lambda F: F @ F.T, "expected one number, found shape [4, 4]."),
    (lambda F: (F @ F.T).triu().abs().sum(), "the diagonal is counted."),
    (lambda F: (F @ F.T).abs().sum() / 2, "half of the diagonal is counted."),
    (lambda F: (F @ F.T).fill_diagonal_(0).abs().sum(), "every pair is counted twice."),
    (lambda F: (F @ F.T).abs().sum(), "every pair is counted twice, and the diagonal is counted."),
    (lambda F: (F @ F.T).triu(1).sum(), "the absolute value is missing."),
    (
        lambda F: (F @ F.T).fill_diagonal_(0).sum(),
        "every pair is counted twice, and the absolute value is missing.",
    ),
    (
        lambda F: (F @ F.T).triu(1).sum().abs(),
        "the absolute value is taken of the sum, not of each product.",
    ),
    (lambda F: (F @ F.T).triu(1).square().sum(), "the products are squared."),
    (lambda F: (F.T @ F).triu(1).abs().sum(), "the products are those of the columns."),
    (
        lambda F: (F.T @ F).fill_diagonal_(0).abs().sum(),
        "the products are those of the columns, and every pair is counted twice.",
    ),
    (lambda F: loss(F) / 6, "this is the mean over pairs."),
    (lambda F: loss(F) + 1, "it returns 6.51214, expected 5.51214."),
    (lambda F: loss(F) * float("nan"), "it returns nan, expected 5.51214."),
]


def test_the_loss_worked_by_hand(capsys):
    assert loss(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, -1.0]])) == 3  # 0, 1 and |-2|
    assert check_multiverse_loss(loss) and capsys.readouterr().out == "multiverse loss: right.\n"
    assert check_multiverse_loss(lambda F: loss(F).item())
    assert check_multiverse_loss(lambda F: loss(F.requires_grad_()))
    assert check_multiverse_loss(lambda F: (F @ F.T).fill_diagonal_(0).abs().sum() / 2)
    assert check_multiverse_loss(lambda F: multiverse_loss(F[:, None])), (
        "the exercise asks for what the library computes"
    )


@pytest.mark.parametrize("function, message", LOSSES)
def test_mistakes_in_the_loss_are_named(function, message, capsys):
    assert check_multiverse_loss(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"multiverse loss: not yet: {message}") and out.count("\n") == 1, out


def test_changing_the_argument_in_place_does_not_pass():
    def function(F):
        F *= 0
        return loss(F)

    assert not check_multiverse_loss(function)


def collapse(weight, bias, active):
    return weight[active].mean(0), bias[active].mean(0)


def change_both(change):
    """Return a collapse with the same mistake in the weight and in the bias."""
    return lambda weight, bias, active: (change(weight, active), change(bias, active))


def change_bias(change):
    return lambda weight, bias, active: (weight[active].mean(0), change(bias, active))


COLLAPSES = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
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
        (
            "weight: it returns [[-0.279415, 0.656987, 0.989358], [0.412118, -0.544021, "
            "-0.99999]], expected [[-0.429187, 0.470505, 0.937617], [0.542688, -0.351186, "
            "-0.922181]]."
        ),
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
