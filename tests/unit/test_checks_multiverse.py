"""The checks of notebook 03's exercises: silent about the solution, and right about each known mistake."""

import pytest
import torch

from mmlkit.checks.multiverse import check_collapse, check_multiverse_loss
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss


def loss(F):
    return (F @ F.T).triu(diagonal=1).abs().sum()


def stub(*arguments):
    ...


def raises(*arguments):
    raise TypeError("a draft")


LOSSES = [
    (stub, ["returns nothing"]), (raises, ["stopped with TypeError: a draft"]), (lambda F: "text", ["expected one number, found 'text'"]),
    (lambda F: F @ F.T, ["found shape [4, 4]"]),
    (lambda F: (F @ F.T).triu().abs().sum(), ["the diagonal is counted"]),
    (lambda F: (F @ F.T).abs().sum() / 2, ["the diagonal is counted"]),
    (lambda F: (F @ F.T).fill_diagonal_(0).abs().sum(), ["counted twice"]),
    (lambda F: (F @ F.T).abs().sum(), ["counted twice", "the diagonal is counted"]),
    (lambda F: (F @ F.T).triu(1).sum(), ["absolute value of each"]),
    (lambda F: (F @ F.T).fill_diagonal_(0).sum(), ["absolute value of each", "counted twice"]),
    (lambda F: (F @ F.T).triu(1).sum().abs(), ["taken of the sum"]),
    (lambda F: (F @ F.T).triu(1).square().sum(), ["squared"]),
    (lambda F: (F.T @ F).triu(1).abs().sum(), ["columns of F"]),
    (lambda F: (F.T @ F).fill_diagonal_(0).abs().sum(), ["columns of F", "counted twice"]),
    (lambda F: loss(F) / 6, ["mean over pairs"]),
    (lambda F: loss(F) + 1, ["the number differs"]),
    (lambda F: loss(F) * float("nan"), ["the number differs"]),
]


def test_the_loss_worked_by_hand(capsys):
    assert loss(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, -1.0]])) == 3       # 0, 1 and |-2|
    assert check_multiverse_loss(loss) and capsys.readouterr().out == "multiverse loss: right.\n"
    assert check_multiverse_loss(lambda F: loss(F).item())
    assert check_multiverse_loss(lambda F: loss(F.requires_grad_()))
    assert check_multiverse_loss(lambda F: (F @ F.T).fill_diagonal_(0).abs().sum() / 2)
    assert check_multiverse_loss(lambda F: multiverse_loss(F[:, None])), "the exercise asks for what the library computes"


@pytest.mark.parametrize("function, said", LOSSES)
def test_mistakes_in_the_loss_are_named(function, said, capsys):
    assert check_multiverse_loss(function) is False
    out = capsys.readouterr().out
    assert out.startswith("multiverse loss: not yet: ") and all(part in out for part in said), out
    assert out.count(" And ") == len(said) - 1, out


def test_the_reader_cannot_pass_by_changing_the_argument():
    def function(F):
        F *= 0
        return loss(F)
    assert not check_multiverse_loss(function)


def collapse(weight, bias, active):
    return weight[active].mean(0), bias[active].mean(0)


def both(change):
    """The same mistake in the weight and in the bias."""
    return lambda weight, bias, active: (change(weight, active), change(bias, active))


def bias_only(change):
    return lambda weight, bias, active: (weight[active].mean(0), change(bias, active))


COLLAPSES = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"), (lambda *_: (1, 2), "expected two tensors"),
    (lambda weight, bias, active: weight[active].mean(0), "the bias is forgotten; return"),
    (bias_only(lambda bias, active: torch.zeros(2)), "the bias is forgotten."),
    (both(lambda values, active: values[active].mean(1)), "the mean runs over heads, dim 0"),
    (both(lambda values, active: values[active].sum(0)), "weight: that is the sum"),
    (bias_only(lambda bias, active: bias[active].sum(0)), "bias: that is the sum"),
    (both(lambda values, active: values.mean(0)), "weight: heads that are no longer active are counted."),
    (bias_only(lambda bias, active: bias.mean(0)), "bias: heads that are no longer active are counted."),
    (both(lambda values, active: values.sum(0) / active.sum()), "no longer active"),
    (both(lambda values, active: values.sum(0)), "And it is a sum"),
    (both(lambda values, active: values[active].sum(0) / len(active)), "divide by the number of active heads"),
    (both(lambda values, active: values[0]), "the first head alone"),
    (both(lambda values, active: values[~active].mean(0)), "weight: it differs"),
]


def test_the_collapse_is_the_librarys(capsys):
    assert check_collapse(collapse) and capsys.readouterr().out == "collapse: right.\n"
    assert check_collapse(lambda *arguments: list(collapse(*arguments)))

    def with_the_library(weight, bias, active):
        head = MultiverseHead(3, 2, num_heads=4)
        head.weight.data, head.bias.data = weight, bias
        head.set_active(active)
        return head.collapse()
    assert check_collapse(with_the_library)


@pytest.mark.parametrize("function, said", COLLAPSES)
def test_mistakes_in_the_collapse_are_named(function, said, capsys):
    assert check_collapse(function) is False
    assert (out := capsys.readouterr().out).startswith("collapse: not yet: ") and said in out, out
