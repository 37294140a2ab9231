"""The checks of notebook 08 accept the solution and name each known mistake."""

import math

import numpy as np
import pytest
import torch

from mmlcourse.lessons.checks import (
    check_loss_pull,
    check_reciprocal_rank,
)
from mmlkit.data.loading import load_task
from mmlkit.heads.ranking import rank_queries, ranking_loss
from mmlkit.training import metrics


def named(check, function, message, capsys):
    assert check(function) is False
    out = capsys.readouterr().out
    assert f": not yet: {message}" in out and out.count("\n") == 1, out


# The reciprocal rank.


def ranks(scores, relevant, groups):
    parts = zip(scores.split(groups), relevant.split(groups))
    return torch.tensor([1.0 + (e > e[right == 1]).sum() for e, right in parts])


def reciprocal_rank(scores, relevant, groups):
    return (1 / ranks(scores, relevant, groups)).mean()


def test_the_reciprocal_rank_is_the_metric_of_the_library(capsys):
    """The ranks 1 and 3 give (1 + 1/3) / 2 = 2/3."""
    scores = torch.tensor([2.0, 1.0, 5.0, 4.0, 3.0])
    relevant, groups = torch.tensor([1, 0, 0, 0, 1]), [2, 3]
    found = reciprocal_rank(scores, relevant, groups).item()
    assert found == pytest.approx(2 / 3)
    task = rank_queries(load_task("qnli")).task
    queries = np.repeat([0, 1], groups)
    library = metrics.compute(task, scores.numpy(), relevant.numpy(), queries)
    assert library["mrr"] == pytest.approx(found)
    assert check_reciprocal_rank(reciprocal_rank)
    assert capsys.readouterr().out == "reciprocal rank: right.\n"


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda *a: ranks(*a).mean(), "this is the mean rank."),
        (lambda *a: 1 / ranks(*a).mean(), "this is 1 over the mean rank."),
        (lambda *a: (ranks(*a) == 1).double().mean(), "this is the share of answers in the first"),
        (lambda *a: (1 / ranks(*a)).sum(), "this is the sum over queries."),
        (lambda *a: (1 / ranks(*a)).sum() / 9, "the sum is divided by the candidates."),
        (lambda *a: (1 / (1 + ranks(*a))).mean(), "the best rank is 2, not 1."),
        (
            lambda scores, *a: reciprocal_rank(-scores, *a),
            "the lowest score has rank 1.",
        ),
        (
            lambda e, right, groups: (1 / (1 + (e > e[right == 1][:, None]).sum(1))).mean(),
            "the ranks run over the whole batch.",
        ),
        (lambda *a: float("nan"), "it returns nan, expected 0."),
    ],
)
def test_mistakes_in_the_reciprocal_rank_are_named(function, message, capsys):
    named(check_reciprocal_rank, function, message, capsys)


# The pull.


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
