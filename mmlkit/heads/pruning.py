"""Pruning of multiverse heads by MeanShift over each head's average loss (MML v2, Algorithm 1).

Notebook 04 builds it by hand. The printed algorithm has six problems, and five are corrected: the
new loss gets the weight 1 - momentum, not momentum; each head averages its own loss, not the
model's; the optimizer's step is subtracted; the cluster with the smallest centre is kept by
membership; dropped heads are no longer evaluated. The threshold is tested before the clustering
only, as printed.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from mmlkit.heads.clustering import cluster, resolve_bandwidth

__all__ = ["HeadPruner", "PruningEvent", "reset_optimizer_state"]


@dataclass(frozen=True)
class PruningEvent:
    """One clustering as plain values, from which a figure can be drawn.

    Attributes:
        step: the update after which the heads were clustered.
        head_ids: the heads that were active, in index order.
        averages: their average losses.
        bandwidth: MeanShift's bandwidth.
        centroids: the clusters' centres, ascending.
        labels: for each head, the index of its centroid.
        kept: head ids.
        dropped: head ids.
        note: why nothing was dropped, if nothing was.
    """

    step: int
    head_ids: list
    averages: list
    bandwidth: float
    centroids: list
    labels: list
    kept: list
    dropped: list
    note: str = ""


class HeadPruner:
    """Average each head's own loss and, every K updates, keep the cluster with the lowest centre.

    MML v2, Algorithm 1. As a hook of `fit` it follows one task: the task of its head. The arguments
    until and min_active are safeguards that are off by default.

    Args:
        head: a MultiverseHead.
        every: K, in updates.
        momentum: gamma, the share of the old average that is kept.
        threshold: the smallest number of active heads that are still clustered.
        bandwidth: see `cluster`.
        bin_seeding: see `cluster`.
        until: the last update after which heads are clustered, so that the survivors train on;
            None for no end.
        min_active: no clustering leaves fewer heads.

    Attributes:
        averages: the bias-corrected average loss of every head, [M]. A dropped head keeps its last
            one. NaN: the head was dropped before this pruner was made.
        observed: the number of updates that were averaged.
        events: a PruningEvent for every clustering.

    Raises:
        ValueError: the bandwidth is unknown (from a function that this one calls).

    Example::

        pruner = HeadPruner(head, every=1000)
        fit(model, data, hooks=[pruner])
        pruner.events[-1].kept      # after the last update; the best epoch may have more heads
    """

    def __init__(
        self,
        head,
        every=1000,
        momentum=0.99,
        threshold=5,
        bandwidth=None,
        *,
        bin_seeding=True,
        until=None,
        min_active=1,
    ):
        resolve_bandwidth(np.array([0.0, 1.0]), bandwidth)  # an unknown one raises here
        self.head, self.every, self.momentum, self.threshold = head, every, momentum, threshold
        self.bandwidth, self.bin_seeding = bandwidth, bin_seeding
        self.until, self.min_active = until, min_active
        averages = torch.zeros(head.num_heads, dtype=torch.float64)
        self.averages = averages.masked_fill(~head.active.cpu(), torch.nan)
        self.observed, self.events = torch.zeros((), dtype=torch.float64), []

    def observe(self, per_head_loss):
        """Update the averages with the losses of one update, on their device and without waiting.

        The average a of the t-th update is (1 - w) a + w L with w = (1 - gamma) / (1 - gamma^t),
        which equals the bias-corrected moving average. Losses that are not finite are left out: an
        update that fp16's scaler skipped has them.

        Args:
            per_head_loss: [A], the active heads' losses in index order.

        Raises:
            ValueError: the number of losses is not A.
        """
        losses, indices = torch.as_tensor(per_head_loss).detach(), self.head.active_indices
        if losses.shape != indices.shape:  # a single one would be that of every head
            raise ValueError(
                f"{list(losses.shape)} losses were given for {len(indices)} active heads; "
                "expected one each, in index order."
            )
        kind = torch.float32 if losses.device.type == "mps" else torch.float64  # MPS lacks float64
        averages, observed = (one.to(losses.device, kind) for one in (self.averages, self.observed))
        finite, old = losses.isfinite().all(), averages[indices]
        self.observed = observed + finite
        weight = (1 - self.momentum) / (1 - self.momentum**self.observed)
        new = torch.where(finite, old + weight * (losses - old), old)
        self.averages = averages.index_copy(0, indices, new)

    def maybe_prune(self, step):
        """Cluster the heads if the step is due, and drop all but the lowest cluster.

        Args:
            step: the number of updates so far.

        Returns:
            A PruningEvent, or None when the step is not due.
        """
        if step % self.every or (self.until is not None and step > self.until):
            return None
        ids = self.head.active_indices.tolist()
        if not self.observed or len(ids) < self.threshold:
            return None
        values = self.averages[ids].tolist()
        centroids, labels, width = cluster(values, self.bandwidth, bin_seeding=self.bin_seeding)
        kept, note = [head for head, label in zip(ids, labels) if label == 0], ""
        if len(centroids) < 2:
            note = "one cluster"
        elif len(kept) < self.min_active:
            note = f"only {len(kept)} heads would be left, min_active is {self.min_active}"
        if note:
            kept = ids
        dropped = sorted(set(ids) - set(kept))
        if dropped:
            mask = torch.zeros(self.head.num_heads, dtype=torch.bool)
            mask[kept] = True
            self.head.set_active(mask)
        self.events.append(
            PruningEvent(step, ids, values, width, centroids, labels, kept, dropped, note)
        )
        return self.events[-1]

    def after_step(self, event):
        """Observe one update of `fit`, prune if due, and reset dropped heads' optimizer state.

        Args:
            event: a StepEvent.
        """
        if event.model.heads[event.task] is not self.head:
            return
        self.observe(event.loss.per_head)
        pruned = self.maybe_prune(event.task_step)
        if pruned is not None:
            reset_optimizer_state(
                event.optimizer, (self.head.weight, self.head.bias), pruned.dropped
            )

    def to_config(self):
        """Return the keywords that build this pruner again; a checkpoint fits only these."""
        names = "every momentum threshold bandwidth bin_seeding until min_active"
        return {name: getattr(self, name) for name in names.split()}

    def state_dict(self):
        """Return the state for a checkpoint; the mask itself is in the model."""
        events = [dataclasses.asdict(event) for event in self.events]
        return {"observed": self.observed, "averages": self.averages, "events": events}

    def load_state_dict(self, state):
        """Continue from the state of a checkpoint."""
        self.observed, self.averages = (
            torch.as_tensor(state[name], dtype=torch.float64) for name in ("observed", "averages")
        )
        self.events = [PruningEvent(**event) for event in state["events"]]


def reset_optimizer_state(optimizer, parameters, rows):
    """Set the optimizer's moments of some rows to zero; otherwise Adam would go on moving them.

    Args:
        optimizer: any torch optimizer.
        parameters: the parameters that have these rows.
        rows: indices along the first dimension.
    """
    for parameter in parameters:
        for value in optimizer.state.get(parameter, {}).values():
            if torch.is_tensor(value) and value.shape == parameter.shape:
                value[rows] = 0
