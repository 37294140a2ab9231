"""The checks of notebook 04's exercises."""

import torch

from mmlkit.checks.compare import exercise

__all__ = ["check_head_average", "check_survivors"]


@exercise(
    "head average",
    [(torch.tensor([0.05, 0.08, 0.06]), torch.tensor([0.5, 0.9, 0.7]), 2, 0.9)],
    {"a": "gamma a + (1 - gamma) losses", "corrected a": "the new a / (1 - gamma^t)"},
)
def check_head_average(pick, a, losses, t, gamma):
    """Check one update of the heads' moving averages (MML v2, Algorithm 1).

    Args:
        pick: the choice between a right value and known mistakes.
        a: the averages after t - 1 updates, [A].
        losses: the losses of the heads, [A].
        t: the number of the update, from 1.
        gamma: the momentum.

    Returns:
        The new averages [A] and their bias-corrected values [A].
    """
    own = pick(
        losses,
        {
            "every head gets the sum of the losses, not its own": losses.sum(),
            "every head gets the mean of the losses, not its own": losses.mean(),
        },
    )
    kept = pick(gamma, {"the momentum is on the wrong side": 1 - gamma})
    new = kept * a + (1 - kept) * own
    bias = 1 - gamma**t
    corrected = pick(
        new / bias,
        {
            "the correction is missing": new,
            "the correction is one update behind": new / (1 - gamma ** (t - 1)),
            "the correction multiplies": new * bias,
        },
    )
    return pick(new, {"this is the corrected a; keep it uncorrected": new / bias}), corrected


@exercise(
    "survivors",
    [
        (
            [0.50, 0.38, 0.59, 0.51, 0.395, 0.71, 0.53, 0.61, 0.425, 0.54],
            [1, 2, 0, 1, 2, 3, 1, 0, 2, 1],
            [0.60, 0.52, 0.40, 0.71],
        )
    ],
    "all heads with the label of the smallest centroid",
    [(([0.5, 0.6], [0, 0], [0.55]), "With one cluster no head is dropped.")],
)
def check_survivors(pick, averages, labels, centroids):
    """Check which heads survive a pruning step (MML v2, Algorithm 1).

    Args:
        pick: the choice between a right value and known mistakes.
        averages: a list of the heads' average losses.
        labels: a list of the heads' clusters.
        centroids: a list of the clusters' centres.

    Returns:
        The numbers of the heads kept.
    """

    def cluster(number):
        return {head for head, label in enumerate(labels) if label == number}

    lowest = min(centroids)
    return pick(
        cluster(centroids.index(lowest)),
        {
            "the highest cluster is kept; a low loss is good": cluster(
                centroids.index(max(centroids))
            ),
            "the largest cluster is kept": cluster(max(labels, key=labels.count)),
            "cluster 0 is kept; clusters have no order": cluster(0),
            "no head is kept; averages rarely equal a centroid": set(),
            "heads are kept by value, at or below the centroid": {
                head for head, average in enumerate(averages) if average <= lowest
            },
            "only the best head is kept": {averages.index(min(averages))},
        },
    )
