"""Pruning of multiverse heads by MeanShift over each head's average loss (MML v2, Algorithm 1).

Notebook 04 builds it by hand. The printed algorithm has six problems, and five are corrected: the
new loss gets the weight 1 - momentum, not momentum; each head averages its own loss, not the
model's; the optimizer's step is subtracted; the cluster with the smallest centre is kept by
membership; dropped heads are no longer evaluated. The threshold is tested before the clustering
only, as printed.
"""

import dataclasses
import numbers
from dataclasses import dataclass

import numpy as np
import torch

from mmlkit.heads.clustering import cluster, resolve_bandwidth
from mmlkit.messages import check_number

__all__ = ["HeadPruner", "PruningEvent", "literal_average", "reset_optimizer_state"]

# Updates whose losses may wait on a GPU: 4 MB for 1,024 heads.
MOST_UNREAD = 1000


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


def literal_average(averages, task_loss, momentum=0.99):
    """Update the averages exactly as Algorithm 1 is printed: (1 - gamma) a_j + gamma L.

    L is the loss of the whole model. All heads then have equal averages, MeanShift finds one
    cluster, and nothing is ever pruned. The function exists to show this.

    Args:
        averages: [M].
        task_loss: L, a scalar.
        momentum: gamma.

    Returns:
        The new averages [M].
    """
    return (1 - momentum) * averages + momentum * task_loss


class HeadPruner:
    """Average each head's own loss and, every K updates, keep the cluster with the lowest centre.

    MML v2, Algorithm 1. As a hook of `fit` it follows one task: the task of its head. The arguments
    warmup, until, min_active and min_gap are safeguards that are off by default.

    Args:
        head: a MultiverseHead.
        every: K, in updates.
        momentum: gamma, the share of the old average that is kept.
        threshold: the smallest number of active heads that are still clustered.
        bandwidth: see `cluster`.
        bin_seeding: see `cluster`.
        warmup: the number of updates before the first clustering.
        until: the last update after which heads are clustered, so that the survivors train on;
            None for no end.
        min_active: no clustering leaves fewer heads.
        min_gap: the relative difference that the two lowest centroids must have.

    Raises:
        ValueError: a number is out of range.

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
        warmup=0,
        until=None,
        min_active=1,
        min_gap=0.0,
    ):
        counts = {"every": every, "threshold": threshold, "min_active": min_active}
        for name, value in counts.items():
            check_number(name, value, 1, whole=True)
        check_number("momentum", momentum, 0, 0.999999)
        check_number("warmup", warmup, 0, whole=True)
        check_number("min_gap", min_gap, 0)
        check_number("until", until, 1, whole=True, optional=True)
        if not hasattr(head, "active_indices"):
            raise ValueError(
                f"head is a {type(head).__name__}, expected a MultiverseHead, such as "
                "model.heads['sst']."
            )
        resolve_bandwidth(np.array([0.0, 1.0]), bandwidth)  # an unknown bandwidth raises here
        # also converts numpy numbers, which JSON does not know
        every, threshold, warmup, min_active = map(int, (every, threshold, warmup, min_active))
        bandwidth = float(bandwidth) if isinstance(bandwidth, numbers.Real) else bandwidth
        self.head, self.every, self.threshold = head, every, threshold
        self.momentum, self.min_gap = float(momentum), float(min_gap)
        self.bandwidth, self.bin_seeding = bandwidth, bin_seeding
        self.warmup, self.min_active = warmup, min_active
        self.until = None if until is None else int(until)
        self.observed, self.events = 0, []
        self._start = head.active.cpu().clone()  # earlier prunings have no events here
        self._sums = torch.zeros(head.num_heads, dtype=torch.float64)
        self._unread = []  # per update on a GPU: the indices of the active heads, their losses

    @property
    def averages(self):
        """The bias-corrected average loss of every head, [M].

        A dropped head keeps its last one. NaN: the head was dropped before this pruner was made.
        """
        self._read()
        averages = self._sums / max(1 - self.momentum**self.observed, 1e-12)
        return averages.masked_fill(~self._start, torch.nan)

    def observe(self, per_head_loss):
        """Update the averages with the losses of one update.

        Losses on a GPU stay there until the averages are needed, so that the GPU need not wait.
        Losses that are not finite are then left out: an update that fp16's scaler skipped has them.

        Args:
            per_head_loss: [A], the active heads' losses in index order.

        Raises:
            ValueError: the number of losses is not A.
            FloatingPointError: a loss on a CPU is not finite.
        """
        losses, indices = torch.as_tensor(per_head_loss).detach(), self.head.active_indices
        if losses.shape != indices.shape:
            raise ValueError(
                f"{list(losses.shape)} losses were given for {len(indices)} active heads; "
                "expected one each, in index order."
            )
        if losses.device.type != "cpu":
            self._unread.append((indices, losses))
            if len(self._unread) == MOST_UNREAD:
                self._read()
        elif losses.isfinite().all():
            self._average(indices.cpu(), losses.cpu().double())
        else:
            number = int(indices.cpu()[~losses.isfinite()][0])
            raise FloatingPointError(f"the loss of head {number} is not finite.")

    def _read(self):
        """Update the averages with the losses that are still on a GPU, in two transfers."""
        if not self._unread:
            return
        indices, losses = zip(*self._unread)
        self._unread = []
        sizes = [len(one) for one in losses]
        # First to the CPU: MPS has no float64.
        indices, losses = (torch.cat(many).cpu().split(sizes) for many in (indices, losses))
        for which, values in zip(indices, losses):
            if values.isfinite().all():
                self._average(which, values.double())

    def _average(self, indices, losses):
        before = 1 - self.momentum**self.observed
        self.observed += 1
        if before > 0:  # the factor in `averages` changes; a dropped head's average must not
            dropped = torch.ones_like(self._sums, dtype=torch.bool)
            dropped[indices] = False
            self._sums[dropped] *= (1 - self.momentum**self.observed) / before
        self._sums[indices] = self.momentum * self._sums[indices] + (1 - self.momentum) * losses

    def maybe_prune(self, step):
        """Cluster the heads if the step is due, and drop all but the lowest cluster.

        Args:
            step: the number of updates so far.

        Returns:
            A PruningEvent, or None when the step is not due.
        """
        ended = self.until is not None and step > self.until
        if step % self.every or step <= self.warmup or ended:
            return None
        self._read()
        ids = self.head.active_indices.tolist()
        if not self.observed or len(ids) < self.threshold:
            return None
        values = self.averages[ids].numpy()
        centroids, labels, width = cluster(values, self.bandwidth, bin_seeding=self.bin_seeding)
        kept = [head for head, label in zip(ids, labels) if label == 0]
        if note := self._reason_to_keep_all(centroids, kept):
            kept = ids
        dropped = sorted(set(ids) - set(kept))
        event = PruningEvent(
            step, ids, values.tolist(), width, centroids, labels, kept, dropped, note
        )
        if dropped:
            mask = torch.zeros(self.head.num_heads, dtype=torch.bool)
            mask[kept] = True
            self.head.set_active(mask)
        self.events.append(event)
        return event

    def _reason_to_keep_all(self, centroids, kept):
        if len(centroids) < 2:
            return "one cluster"
        if len(kept) < self.min_active:
            return f"only {len(kept)} heads would be left, min_active is {self.min_active}"
        if centroids[1] - centroids[0] < self.min_gap * abs(centroids[0]):
            return f"the two lowest centroids differ by less than {self.min_gap:.3g} of the lower"
        return ""

    def active_at(self, step):
        """Rebuild the mask of active heads from the events.

        Args:
            step: the number of updates.

        Returns:
            The mask [M] after this step, bool.
        """
        mask = self._start.clone()
        for event in self.events:
            if event.step <= step:
                mask[event.dropped] = False
        return mask

    def after_step(self, event):
        """Observe one update of `fit`, prune if due, and reset dropped heads' optimizer state.

        Args:
            event: a StepEvent.
        """
        if event.model.heads[event.task] is not self.head:
            return
        self.observe(event.loss.per_head)
        pruned = self.maybe_prune(event.task_step)
        if pruned is not None and pruned.dropped:
            reset_optimizer_state(
                event.optimizer, (self.head.weight, self.head.bias), pruned.dropped
            )

    def to_config(self):
        """Return the keywords that build this pruner again; a checkpoint fits only these."""
        names = "every momentum threshold bandwidth bin_seeding warmup until min_active min_gap"
        return {name: getattr(self, name) for name in names.split()}

    def state_dict(self):
        """Return the state for a checkpoint; the mask itself is in the model."""
        self._read()
        events = [dataclasses.asdict(event) for event in self.events]
        state = {"observed": self.observed, "sums": self._sums.clone(), "events": events}
        return {**state, "start": self._start.clone()}

    def load_state_dict(self, state):
        """Continue from the state of a checkpoint."""
        self.observed, self._sums, self._unread = state["observed"], state["sums"].clone(), []
        self.events = [PruningEvent(**event) for event in state["events"]]
        start = state.get("start", self._start)  # earlier checkpoints lack it
        self._start = torch.as_tensor(start).clone()  # the Trainer's state has a list


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
