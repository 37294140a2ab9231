"""The check of notebook 08 accepts the solution and names each known mistake."""

import math

import pytest
import torch

from mmlcourse.lessons.checks import check_loss_pull
from mmlkit.heads.ranking import ranking_loss


def named(check, function, message, capsys):
    assert check(function) is False
    out = capsys.readouterr().out
    assert f": not yet: {message}" in out and out.count("\n") == 1, out


def pull(m, gamma):
    t = math.tanh(m / 4)
    return gamma * (1 - t * t) / 4 / (1 + math.exp(gamma * t))


@pytest.mark.parametrize("m, gamma", [(0, 1), (-6, 1), (3, 5)])
def test_the_pull_is_the_gradient_of_the_librarys_loss(m, gamma):
    margin = torch.tensor(float(m), dtype=torch.float64, requires_grad=True)
    scores = torch.stack([margin / 2, -margin / 2]).sigmoid()
    ranking_loss(scores, torch.tensor([1, 0]), (2,), gamma=gamma).backward()
    assert pull(m, gamma) == pytest.approx(-margin.grad.item())


def test_the_pull_is_accepted(capsys):
    """At m = 0 and gamma = 1 the pull is 1/2 times 1/4."""
    assert pull(0, 1) == 0.125
    assert check_loss_pull(pull) and capsys.readouterr().out == "pull of a loss: right.\n"


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda m, g: -pull(m, g), "this is the derivative, not the pull."),
        (lambda m, g: pull(m, g) / g, "the chain rule's gamma is missing."),
        (lambda m, g: pull(m, g) / 2, "only one of the two sigmoids is differentiated."),
        (lambda m, g: pull(2 * m, g), "the sigmoids read m and -m, not m/2 and -m/2."),
        (
            lambda m, g: g / (1 + math.exp(g * math.tanh(m / 4))),
            "the derivative of the sigmoids is missing.",
        ),
        (
            lambda m, g: pull(m, g) * math.exp(g * math.tanh(m / 4)),
            "this takes the probability of the answer, not of the other.",
        ),
        (
            lambda m, g: pull(m, g) / (1 + math.exp(-g * math.tanh(m / 4))),
            "this is the loss without its log, as Eq. 8 is printed.",
        ),
        (lambda m, g: pull(m, g) + 1, "for (0.0, 1.0) it returns 1.125, expected 0.125."),
    ],
)
def test_mistakes_in_the_pull_are_named(function, message, capsys):
    named(check_loss_pull, function, message, capsys)
