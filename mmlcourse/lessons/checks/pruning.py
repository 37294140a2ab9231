"""The checks of notebook 04's exercises: head averages and bandwidth."""

import functools

import numpy as np
import torch

from mmlcourse.lessons.checks.compare import exercise
from mmlkit.heads.clustering import cluster

__all__ = [
    "check_bandwidth",
    "check_head_average",
    "head_average",
]


_ACTIVE = torch.tensor([True, False, True, True])


@exercise(
    "head average",
    [(torch.tensor([0.05, 0.07, 0.08, 0.06]), torch.tensor([0.5, 0.9, 0.7]), _ACTIVE, 2, 0.9)],
    {
        "a": "gamma a + (1 - gamma) losses for active heads, and the old a for dropped heads",
        "corrected a": "the new a of the active heads / (1 - gamma^t)",
    },
)
def check_head_average(pick, a, losses, active, t, gamma):
    """Check one update of the active heads' moving averages (MML v2, Algorithm 1).

    Args:
        pick: the choice between a right value and known mistakes.
        a: the averages of all heads after t - 1 updates, [M].
        losses: the losses of the active heads in index order, [A].
        active: which heads are active, [M], bool.
        t: the number of the update, from 1.
        gamma: the momentum.

    Returns:
        The new averages [M], and the bias-corrected values of the active heads [A].
    """
    new, corrected = head_average(pick, a, losses, active, t, gamma)
    return new, corrected[active]


def head_average(pick, averages, losses, active, t, gamma):
    """Return the moving averages after one update (MML v2, Algorithm 1).

    Args:
        pick: the choice between a right value and known mistakes.
        averages: those of all heads after t - 1 updates, [M].
        losses: the losses of the active heads in index order, [A].
        active: which heads are active, [M], bool.
        t: the number of the update, from 1.
        gamma: the momentum.

    Returns:
        The new averages [M], and their bias-corrected values [M].
    """
    start = torch.arange(len(averages)) < len(losses)
    active = pick(active, {"the first heads are updated, not the active ones": start})
    every, first = torch.zeros_like(averages), torch.zeros_like(averages)
    every[active], first[start] = losses, losses
    own = pick(
        every,
        {
            "every head gets the sum of the losses, as Algorithm 1 is printed; take its own": (
                losses.sum() + 0 * every
            ),
            "every head gets the mean of the losses, not its own": losses.mean() + 0 * every,
            "the active heads get the losses of the first heads": first,
        },
    )
    kept = pick(gamma, {"gamma stands at the new loss, as Algorithm 1 is printed": 1 - gamma})
    moved = kept * averages + (1 - kept) * own
    new = pick(
        moved.where(active, averages),
        {
            "the averages of the dropped heads change too": moved,
            "the averages of the dropped heads are lost": moved.where(active, 0 * moved),
        },
    )
    bias = lambda t: 1 - gamma**t
    corrected = pick(
        new / bias(t),
        {
            "the correction is missing": new,
            "the correction is one update behind": new / bias(t - 1),
            "the correction is one update ahead; t counts from 1": new / bias(t + 1),
            "the correction multiplies": new * bias(t),
        },
    )
    shown = new / bias(t)
    kept = {
        "this is the corrected average; keep it uncorrected": shown,
        "the averages of the active heads are corrected; keep them uncorrected": shown.where(
            active, new
        ),
    }
    return pick(new, kept), corrected


# Twenty samples of twelve heads that differ only by chance. Of them "std:1.5" splits two.
_SAMPLES = 0.5 + 0.01 * np.random.default_rng(4).normal(size=(20, 12))
_FACTORS = (1.8, 0.6, 1.5, 1.2, 0.9)


@functools.cache
def _share_split(factor):
    return np.mean([len(cluster(one, f"std:{factor}")[0]) > 1 for one in _SAMPLES])


@exercise(
    "bandwidth",
    [(_SAMPLES, _FACTORS, limit) for limit in (0.1, 0.5)],
    "the smallest factor that splits at most this share of the samples",
)
def check_bandwidth(pick, samples, factors, limit):
    """Check the choice of a bandwidth that does not split one normal distribution.

    Args:
        pick: the choice between a right value and known mistakes.
        samples: losses of heads that differ only by chance, [S, A].
        factors: numbers k of the rule "std:k", in no order.
        limit: the largest share of samples that may be split.

    Returns:
        The chosen factor.
    """
    enough = [factor for factor in factors if _share_split(factor) <= limit]
    narrower = [factor for factor in factors if factor < min(enough)]
    return pick(
        min(enough),
        {
            "a narrower factor is wide enough too": sorted(enough)[1],
            "a narrower factor is wide enough too; this is the widest of all": max(enough),
            f"this factor still splits {_share_split(max(narrower)):.0%} of the samples": max(
                narrower
            ),
            "this is the narrowest of all; a sample is split if it has two clusters or more, and "
            "the bandwidth is the factor times the standard deviation": min(factors),
        },
    )
