"""Metrics of rows that are not independent, such as the pairs of one situation in the mini data.

Notebook 05 and data/README.md use it.
"""

import numpy as np

from mmlkit.training.metrics import compute

__all__ = ["bootstrap_interval", "group_error"]


def bootstrap_interval(task, scores, labels, groups, *, level=0.95):
    """Compute an interval of each metric by drawing whole groups of rows with replacement.

    Rows of one group, such as the pairs of one premise, are not independent items. An interval from
    single rows would be too narrow (the cluster bootstrap; Field and Welsh, 2007).

    Args:
        task: a Task of classification or regression.
        scores: [N, C], see `mmlkit.training.metrics.compute`.
        labels: [N].
        groups: [N], the group of each row, such as `split.columns["group"]` of the mini data.
        level: the level of the interval.

    Returns:
        {metric: (low, high)}. Samples in which a metric is undefined are left out.

    Example::

        bootstrap_interval(data.task, predict_scores(model, data), data.dev.labels,
                           data.dev.columns["group"])      # {'accuracy': (0.61, 0.72), ...}
    """
    scores, labels = np.asarray(scores), np.asarray(labels)
    _, place = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    members = [np.flatnonzero(place == i) for i in range(place.max() + 1)]
    generator, found = np.random.default_rng(0), []
    for drawn in generator.integers(len(members), size=(1000, len(members))):
        rows = np.concatenate([members[i] for i in drawn])
        found.append(compute(task, scores[rows], labels[rows]))
    tails = [(1 - level) / 2, (1 + level) / 2]
    return {
        name: tuple(map(float, np.nanquantile([one[name] for one in found], tails)))
        for name in task.metrics
    }


def group_error(values, groups):
    """Return the standard error of a mean over rows that come in groups.

    Args:
        values: a number per row, [N].
        groups: the group of each row, [N].

    Returns:
        The error sqrt(G / (G - 1) * sum of (sum of value - mean in a group)^2) / N.
    """
    _, place = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    sums = np.bincount(place, np.asarray(values, dtype=float) - np.mean(values))
    return np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(values)
