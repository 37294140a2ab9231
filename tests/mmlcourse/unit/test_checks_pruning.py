"""The checks of notebook 04 accept the solution and name each known mistake."""

import math

import pytest
import torch

from mmlcourse.lessons.checks import (
    check_bandwidth,
    check_head_average,
)
from mmlkit.heads.clustering import cluster


def average(a, losses, active, t, gamma):
    """The solution of the notebook."""
    a = a.clone()
    a[active] = gamma * a[active] + (1 - gamma) * losses
    return a, a[active] / (1 - gamma**t)


def average_solution(
    update=lambda a, losses, gamma: gamma * a + (1 - gamma) * losses,
    corrected=lambda a, t, gamma: a / (1 - gamma**t),
    dropped=lambda a, gamma: a,
):
    """Return the solution. Each argument replaces one of its parts."""

    def function(a, losses, active, t, gamma):
        new = dropped(a, gamma).clone()
        new[active] = update(a[active], losses, gamma)
        return new, corrected(new[active], t, gamma)

    return function


def keeps_corrected_average(a, losses, active, t, gamma):
    a[active] = (gamma * a[active] + (1 - gamma) * losses) / (1 - gamma**t)
    return a, a[active]


def fills_the_first_heads(a, losses, active, t, gamma):
    a[: len(losses)] = gamma * a[: len(losses)] + (1 - gamma) * losses
    return a, a[active] / (1 - gamma**t)


AVERAGES = [
    (lambda *_: 3, "expected (a, corrected a), found 3."),
    (
        lambda a, *others: (a, "text"),
        "a: at [0] it returns 0.05, expected 0.095.",
    ),
    (lambda a, *others: (a.sum(), a), "a: expected numbers of shape [4], found shape []."),
    (
        lambda a, losses, active, t, gamma: average(a[active], losses, active[active], t, gamma),
        "a: expected numbers of shape [4], found shape [3].",
    ),
    (fills_the_first_heads, "a: the first heads are updated, not the active ones."),
    (
        average_solution(dropped=lambda a, gamma: gamma * a),
        "a: the averages of the dropped heads change too.",
    ),
    (
        average_solution(dropped=lambda a, gamma: 0 * a),
        "a: the averages of the dropped heads are lost.",
    ),
    (
        average_solution(lambda a, losses, gamma: (1 - gamma) * a + gamma * losses),
        "a: gamma stands at the new loss, as Algorithm 1 is printed.",
    ),
    (
        average_solution(lambda a, losses, gamma: gamma * a + (1 - gamma) * losses.sum()),
        "a: every head gets the sum of the losses, as Algorithm 1 is printed; take its own.",
    ),
    (
        average_solution(lambda a, losses, gamma: gamma * a + (1 - gamma) * losses.mean()),
        "a: every head gets the mean of the losses, not its own.",
    ),
    (
        average_solution(lambda a, losses, gamma: (1 - gamma) * a + gamma * losses.sum()),
        "a: every head gets the sum of the losses, as Algorithm 1 is printed; take its own, and",
    ),
    (
        average_solution(lambda a, losses, gamma: a + (1 - gamma) * losses),
        "a: at [0] it returns 0.1, expected 0.095.",
    ),
    (average_solution(corrected=lambda a, t, gamma: a), "corrected a: the correction is missing."),
    (
        average_solution(corrected=lambda a, t, gamma: a / (1 - gamma ** (t - 1))),
        "corrected a: the correction is one update behind.",
    ),
    (
        average_solution(corrected=lambda a, t, gamma: a * (1 - gamma**t)),
        "corrected a: the correction multiplies.",
    ),
    (
        average_solution(corrected=lambda a, t, gamma: a / gamma),
        "corrected a: at [0] it returns 0.105556, expected 0.5.",
    ),
    (keeps_corrected_average, "a: the averages of the active heads are corrected;"),
]


def test_the_average_worked_by_hand(capsys):
    """0.9 * 0.05 + 0.1 * 0.5 = 0.095, and 0.095 / (1 - 0.81) = 0.5; the dropped head keeps 0.07."""
    active = torch.tensor([True, False])
    a, corrected = average(torch.tensor([0.05, 0.07]), torch.tensor([0.5]), active, 2, 0.9)
    assert a.tolist() == pytest.approx([0.095, 0.07])
    assert corrected.tolist() == pytest.approx([0.5])
    assert check_head_average(average) and capsys.readouterr().out == "head average: right.\n"
    assert check_head_average(lambda *case: [value.tolist() for value in average(*case)])


@pytest.mark.parametrize("function, message", AVERAGES)
def test_mistakes_in_the_average_are_named(function, message, capsys):
    assert check_head_average(function) is False
    assert (out := capsys.readouterr().out).startswith(f"head average: not yet: {message}"), out


def survivors(averages, labels, centroids):
    lowest = centroids.index(min(centroids))
    return [head for head, label in enumerate(labels) if label == lowest]


def test_the_solution_agrees_with_the_pruner():
    """The solution gives the same averages and the same kept heads, also after a pruning."""
    from mmlkit.heads.multiverse import MultiverseHead
    from mmlkit.heads.pruning import HeadPruner

    pruner = HeadPruner(MultiverseHead(4, 2, num_heads=6), every=2, momentum=0.9, bandwidth=0.1)
    a = torch.zeros(6, dtype=torch.float64)
    for t, losses in enumerate(
        torch.tensor(
            [[0.5, 0.52, 0.9, 0.51, 0.92, 0.5], [0.51, 0.5, 0.91, 0.5, 0.9, 0.52]],
            dtype=torch.float64,
        ),
        start=1,
    ):
        pruner.observe(losses)
        a, corrected = average(a, losses, pruner.head.active, t, 0.9)
    assert corrected.tolist() == pytest.approx(pruner.averages.tolist()) and not math.isclose(
        a[0], corrected[0]
    )
    event = pruner.maybe_prune(2)
    assert survivors(event.averages, event.labels, event.centroids) == event.kept == [0, 1, 3, 5]
    losses = torch.tensor([0.4, 0.51, 0.5, 0.52], dtype=torch.float64)
    pruner.observe(losses)
    active, before = pruner.head.active, a[[2, 4]].tolist()
    a, corrected = average(a, losses, active, 3, 0.9)
    assert corrected.tolist() == pytest.approx(pruner.averages[active].tolist())
    assert a[[2, 4]].tolist() == before


def narrowest(samples, factors, limit):
    """The solution of the notebook."""
    for factor in sorted(factors):
        split = [len(cluster(sample, f"std:{factor}")[0]) > 1 for sample in samples]
        if sum(split) / len(split) <= limit:
            return factor


def absolute(samples, factors, limit):
    """The factor itself is the bandwidth: far too wide for losses that differ by 0.01."""
    for factor in sorted(factors):
        if sum(len(cluster(one, factor)[0]) > 1 for one in samples) <= limit * len(samples):
            return factor


WIDEST = "a narrower factor is wide enough too; this is the widest of all."
BANDWIDTHS = [
    (
        lambda samples, factors, limit: narrowest(samples, factors, limit - 1e-9),  # below it
        "a narrower factor is wide enough too.",
    ),
    (lambda *_: "std:1.5", "expected one number, found 'std:1.5'."),
    (lambda samples, factors, limit: max(factors), WIDEST),
    (lambda samples, factors, limit: factors[0], WIDEST),
    (lambda *_: 1.5, "it returns 1.5, expected 1.2."),  # right for the first limit only
    (lambda *_: 1.2, "this factor still splits 50% of the samples."),
    (absolute, "this is the narrowest of all; a sample is split if it has two clusters or more,"),
    (lambda *_: 0.9, "it returns 0.9, expected 1.5."),
]


def test_the_chosen_bandwidth(capsys):
    assert check_bandwidth(narrowest) and capsys.readouterr().out == "bandwidth: right.\n"


@pytest.mark.parametrize("function, message", BANDWIDTHS)
def test_mistakes_in_the_bandwidth_are_named(function, message, capsys):
    assert check_bandwidth(function) is False
    assert (out := capsys.readouterr().out).startswith(f"bandwidth: not yet: {message}"), out
