"""Which heads survive: Algorithm 1 of the multiverse papers, as meant, by MeanShift over each head's average loss.

Notebook 04 builds it by hand. Printed and mended: the new loss gets the weight 1 - momentum, not momentum; each head averages its *own*
loss, not the model's; the cluster with the smallest centre is kept by membership; dropped heads are no longer evaluated.
"""

import dataclasses
import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch

__all__ = ["HeadPruner", "PruningEvent", "cluster", "literal_average"]


@dataclass(frozen=True)
class PruningEvent:
    """One clustering. Plain values, so that a figure can be drawn from events alone, also from a json file."""

    step: int
    head_ids: list          # the heads that were active, in index order
    averages: list          # their average losses
    bandwidth: float
    centroids: list         # ascending
    labels: list            # for each head, which centroid
    kept: list              # head ids
    dropped: list
    note: str = ""          # why nothing was dropped, where that needs saying


def cluster(values, bandwidth=None, *, bin_seeding=True):
    """MeanShift on one axis. Returns (centroids ascending, label of each value, bandwidth used).

    bandwidth: a number; None or "auto:q" (scikit-learn's estimate at quantile q, 0.3 by default); "std:k" (k standard
    deviations). Values that are all equal form one cluster. Cost at 1,024 values: about 0.1 s with bin_seeding, seconds without.
    Raises ValueError for no values, values that are not finite, or a bandwidth that cannot be read.
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"expected at least one finite average per head, found {values[~np.isfinite(values)][:3] if values.size else 'none'}.")
    width = _bandwidth(values, bandwidth)
    # Below this spread or width there is nothing to tell apart, and scikit-learn fails on a width of zero.
    if max(np.ptp(values), 0) <= 1e-6 * max(np.abs(values).max(), 1e-12) or width <= 1e-6 * max(np.abs(values).max(), 1e-12):
        return [float(values.mean())], [0] * len(values), float(width)
    from sklearn.cluster import MeanShift

    with warnings.catch_warnings():     # where bins are as many as values, scikit-learn says so and starts from every value: right
        warnings.filterwarnings("ignore", message="Binning data failed")
        fitted = MeanShift(bandwidth=width, bin_seeding=bin_seeding).fit(values[:, None])
    centres = fitted.cluster_centers_[:, 0]
    order = np.argsort(centres, kind="stable")
    place = np.argsort(order, kind="stable")
    labels, centres = place[fitted.labels_], centres[order]
    used = np.unique(labels)        # a centre that no value is nearest to is no cluster
    return [float(centres[i]) for i in used], np.searchsorted(used, labels).tolist(), float(width)


def _bandwidth(values, bandwidth):
    if isinstance(bandwidth, (int, float)) and not isinstance(bandwidth, bool):
        if not (bandwidth > 0 and math.isfinite(bandwidth)):
            raise ValueError(f"bandwidth {bandwidth} must be a positive number.")
        return float(bandwidth)
    kind, _, number = str("auto:0.3" if bandwidth is None else bandwidth).partition(":")
    try:
        number = float(number)
    except ValueError:
        kind = None
    if kind == "std" and number > 0:
        return number * float(values.std())
    if kind == "auto" and 0 < number <= 1:
        from sklearn.cluster import estimate_bandwidth

        return float(estimate_bandwidth(values[:, None], quantile=number))
    raise ValueError(f"bandwidth {bandwidth!r} is not understood; give a positive number, None, 'auto:0.3' (a quantile) or 'std:1.0'.")


def literal_average(averages, task_loss, momentum=0.99):
    """Algorithm 1's average exactly as printed: (1-gamma) a_j + gamma L, with L the loss of the whole model.

    Every head gets the same L, so all a_j are equal, MeanShift finds one cluster, and nothing is ever pruned. Kept to show that.
    """
    return (1 - momentum) * averages + momentum * task_loss


class HeadPruner:
    """Averages each head's own loss and, every K updates, keeps the cluster of heads with the lowest (MML v2, Algorithm 1).

    head: a MultiverseHead. every: K. momentum: gamma, the share of the old average kept. threshold: cluster only while at
    least so many heads are active. bandwidth, bin_seeding: see `cluster`. Guards, off by default: warmup (updates before
    the first check), min_active (no check may leave fewer heads), min_gap (the two lowest centroids must differ by this
    share). As a hook of `fit` it follows one task: the one whose head it was given.
    Raises ValueError for numbers out of range.

    Example::

        pruner = HeadPruner(head, every=1000)
        fit(model, data, hooks=[pruner])
        pruner.events[-1].kept
    """

    def __init__(self, head, every=1000, momentum=0.99, threshold=5, bandwidth=None, *, bin_seeding=True, warmup=0, min_active=1, min_gap=0.0):
        if every < 1 or not 0 <= momentum < 1 or min(threshold, min_active) < 1 or min(warmup, min_gap) < 0:
            raise ValueError(f"every {every}, threshold {threshold} and min_active {min_active} must be at least 1, momentum {momentum} in [0, 1), "
                             f"warmup {warmup} and min_gap {min_gap} not negative.")
        _bandwidth(np.array([0.0, 1.0]), bandwidth)      # a mistyped bandwidth is told now, not after a thousand steps
        self.head, self.every, self.momentum, self.threshold = head, every, momentum, threshold
        self.bandwidth, self.bin_seeding, self.warmup, self.min_active, self.min_gap = bandwidth, bin_seeding, warmup, min_active, min_gap
        self.observed, self.events = 0, []
        self._sums = torch.zeros(head.num_heads, dtype=torch.float64)

    @property
    def averages(self):
        """Average loss of every head [M], freed of the zero it started from; a dropped head keeps its last."""
        return self._sums / max(1 - self.momentum**self.observed, 1e-12)

    def observe(self, per_head_loss):
        """Takes the losses [A] of the active heads of one update, in index order.

        Raises ValueError for the wrong number of losses, FloatingPointError when one is not a number.
        """
        losses = torch.as_tensor(per_head_loss).detach().cpu().double()        # first to the CPU: MPS has no float64
        active = self.head.active.cpu()
        if losses.shape != (int(active.sum()),):
            raise ValueError(f"{list(losses.shape)} losses were given for {int(active.sum())} active heads; expected one each, in index order.")
        if not torch.isfinite(losses).all():
            raise FloatingPointError(f"the loss of head {int(active.nonzero()[~torch.isfinite(losses)][0])} is not a number.")
        before = 1 - self.momentum**self.observed
        self.observed += 1
        new = self.momentum * self._sums[active] + (1 - self.momentum) * losses
        dropped = ~active       # kept in step with the factor in `averages`, so that a dropped head's figure stands still
        if before > 0:
            self._sums[dropped] *= (1 - self.momentum**self.observed) / before
        self._sums[active] = new

    def maybe_prune(self, step):
        """Clusters when `step` (counted from 1) is due; returns the PruningEvent, or None when it is not."""
        active = self.head.active.cpu()
        if step % self.every or step <= self.warmup or not self.observed or int(active.sum()) < self.threshold:
            return None
        ids = active.nonzero().flatten().tolist()
        values = self.averages[active].numpy()
        centroids, labels, width = cluster(values, self.bandwidth, bin_seeding=self.bin_seeding)
        kept = [head for head, label in zip(ids, labels) if label == 0]
        note = self._veto(centroids, kept)
        if note:
            kept = ids
        event = PruningEvent(step, ids, values.tolist(), width, centroids, labels, kept, [head for head in ids if head not in set(kept)], note)
        if event.dropped:
            mask = torch.zeros_like(active)
            mask[kept] = True
            self.head.set_active(mask)
        self.events.append(event)
        return event

    def _veto(self, centroids, kept):
        if len(centroids) < 2:
            return "one cluster"
        if len(kept) < self.min_active:
            return f"only {len(kept)} heads would be left, min_active is {self.min_active}"
        if centroids[1] - centroids[0] < self.min_gap * abs(centroids[0]):
            return f"the two lowest centroids differ by less than {self.min_gap:.3g} of the lower"
        return ""

    def active_at(self, step):
        """The mask [M] as it was after `step`, rebuilt from the events."""
        mask = torch.ones(self.head.num_heads, dtype=torch.bool)
        for event in self.events:
            if event.step <= step:
                mask[event.dropped] = False
        return mask

    def after_step(self, event):
        """As a hook of `fit`: observe, prune when due, and clear the optimizer's memory of the dropped heads."""
        if event.model.heads[event.task] is not self.head:
            return
        self.observe(event.loss.per_head)
        pruned = self.maybe_prune(event.task_step)
        if pruned is not None and pruned.dropped:
            forget(event.optimizer, (self.head.weight, self.head.bias), pruned.dropped)

    def state_dict(self):
        """What a checkpoint keeps; the mask itself is in the model."""
        return {"observed": self.observed, "sums": self._sums.clone(), "events": [dataclasses.asdict(event) for event in self.events]}

    def load_state_dict(self, state):
        """Takes up where a checkpoint left off."""
        self.observed, self._sums = state["observed"], state["sums"].clone()
        self.events = [PruningEvent(**event) for event in state["events"]]


def forget(optimizer, parameters, rows):
    """Zeroes the moments of these rows: with them, Adam would go on moving heads that no longer learn."""
    for parameter in parameters:
        for value in optimizer.state.get(parameter, {}).values():
            if torch.is_tensor(value) and value.shape == parameter.shape:
                value[rows] = 0
