"""Tests of the head pruner: averages and clusters by hand, guards, events and checkpoints.

One test shows that the algorithm, as it is printed in the paper, never prunes.
"""

import dataclasses
import json

import numpy as np
import pytest
import torch

from mmlkit.heads.clustering import cluster
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner, literal_average, reset_optimizer_state
from mmlkit.training.loop import fit


def make_head(count):
    return MultiverseHead(4, 2, num_heads=count)


def test_averages_by_hand():
    pruner = HeadPruner(make_head(2), momentum=0.9)
    pruner.observe(torch.tensor([1.0, 2.0]))
    pruner.observe(torch.tensor([3.0, 2.0]))
    # a = 0.9 (0.1 * 1) + 0.1 * 3 = 0.39; the bias correction divides by 1 - 0.81.
    assert pruner.averages.tolist() == pytest.approx([0.39 / 0.19, 2.0])


def test_two_distant_groups_are_two_clusters():
    centroids, labels, _ = cluster([1.0, 1.1, 5.0, 0.9, 5.1], 1.0)
    assert labels == [0, 0, 1, 0, 1] and centroids == pytest.approx([1.0, 5.05])


@pytest.mark.parametrize("values", [[2.0] * 7, [2.0, 2.0 + 1e-9], [0.0, 0.0], [3.0]])
@pytest.mark.parametrize("bandwidth", [None, 0.5, "std:1", "auto:0.1"])
def test_without_spread_there_is_one_cluster(values, bandwidth):
    centroids, labels, _ = cluster(values, bandwidth)
    assert len(centroids) == 1 and set(labels) == {0}


@pytest.mark.parametrize("bandwidth", [None, "auto:0.3", "std:0.5", 0.05])
def test_labels_belong_to_the_nearest_centroid(bandwidth):
    values = np.random.default_rng(0).gamma(2, 0.02, 300)
    centroids, labels, width = cluster(values, bandwidth)
    assert (
        centroids == sorted(centroids) and width > 0 and set(labels) == set(range(len(centroids)))
    )
    nearest = np.abs(values[:, None] - np.array(centroids)).argmin(1)
    assert (nearest == labels).all()


def test_a_bandwidth_of_zero_gives_one_cluster():
    """For 5 values, scikit-learn's quantile 0.3 selects one neighbour: the value itself."""
    centroids, labels, width = cluster([1.0, 1.1, 5.0, 0.9, 5.1])
    assert (len(centroids), set(labels), width) == (1, {0}, 0.0)


def test_bandwidths():
    values = np.array([0.0, 1.0, 2.0, 3.0])
    assert cluster(values, 0.4)[2] == 0.4
    assert cluster(values, "std:2")[2] == pytest.approx(2 * values.std())
    assert cluster(values, None)[2] == cluster(values, "auto:0.3")[2]
    assert cluster(values, np.float32(0.5))[2] == 0.5
    for wrong in ("wide", "std:-1", "auto:2", 0.0, -1, float("nan"), True):
        with pytest.raises(ValueError, match="bandwidth"):
            cluster(values, wrong)


def test_the_numbers_of_a_pruner_may_be_numpys():
    numbers = {"momentum": np.float32(0.5), "bandwidth": np.float32(0.5), "min_gap": np.float32(0)}
    numbers |= dict.fromkeys(("every", "threshold", "warmup", "until", "min_active"), np.int64(1))
    config = HeadPruner(MultiverseHead(4, 2, num_heads=3), **numbers).to_config()
    assert json.loads(json.dumps(config)) == {**numbers, "bin_seeding": True}


def test_pruning_keeps_the_lowest_cluster_and_never_revives():
    head = make_head(6)
    pruner = HeadPruner(head, every=2, threshold=3, bandwidth=1.0)
    losses = torch.tensor([1.0, 9.0, 1.1, 9.1, 1.05, 5.0])
    pruner.observe(losses)
    assert pruner.maybe_prune(1) is None  # no pruning at step 1
    event = pruner.maybe_prune(2)
    assert (
        event.kept == [0, 2, 4]
        and event.dropped == [1, 3, 5]
        and head.active.nonzero().flatten().tolist() == [0, 2, 4]
    )
    pruner.observe(torch.tensor([1.0, 1.0, 8.0]))
    assert pruner.averages[1] == pytest.approx(9.0)  # the average of a dropped head does not change
    again = pruner.maybe_prune(4)
    assert set(again.kept) <= {0, 2, 4} and again.head_ids == [0, 2, 4]
    assert (
        torch.equal(pruner.active_at(3), torch.tensor([True, False, True, False, True, False]))
        and pruner.active_at(0).all()
    )
    assert torch.equal(pruner.active_at(99), head.active)


@pytest.mark.parametrize(
    "guard, note",
    [
        ({"min_active": 4}, "only 2 heads would be left"),
        ({"min_gap": 9.0}, "the two lowest centroids differ by less"),
    ],
)
def test_guards_keep_all_heads_and_give_the_reason(guard, note):
    pruner = HeadPruner(make_head(5), every=1, bandwidth=1.0, **guard)
    pruner.observe(torch.tensor([1.0, 1.1, 5.0, 5.1, 5.2]))
    event = pruner.maybe_prune(1)
    assert event.dropped == [] and note in event.note and pruner.head.active.all()


def test_threshold_and_warmup_prevent_pruning():
    pruner = HeadPruner(make_head(4), every=1, threshold=5)
    pruner.observe(torch.tensor([1.0, 1.0, 9.0, 9.0]))
    assert pruner.maybe_prune(1) is None and pruner.events == []
    pruner = HeadPruner(make_head(5), every=1, threshold=5, warmup=3, bandwidth=1.0)
    pruner.observe(torch.tensor([1.0, 1.0, 9.0, 9.0, 9.0]))
    assert pruner.maybe_prune(3) is None and pruner.maybe_prune(4).dropped == [2, 3, 4]


def test_no_clustering_after_the_last_step():
    pruner = HeadPruner(make_head(5), every=2, bandwidth=1.0, until=4)
    for step in range(1, 9):
        pruner.observe(torch.ones(5))
        pruner.maybe_prune(step)
    assert [event.step for event in pruner.events] == [2, 4]


def test_events_are_json_and_a_checkpoint_restores_the_pruner():
    pruner = HeadPruner(make_head(5), every=1, bandwidth=1.0)
    pruner.observe(torch.tensor([1.0, 1.1, 5.0, 5.1, 5.2]))
    pruner.maybe_prune(1)
    assert json.loads(json.dumps([dataclasses.asdict(event) for event in pruner.events]))[0][
        "dropped"
    ] == [2, 3, 4]
    other = HeadPruner(make_head(5), every=1)
    other.load_state_dict(pruner.state_dict())
    assert other.events == pruner.events and torch.equal(other.averages, pruner.averages)


@pytest.mark.parametrize(
    "losses, error, message",
    [
        (torch.ones(3), ValueError, "losses were given for 5 active heads"),
        (
            torch.tensor([1, 2, float("nan"), 1, 1.0]),
            FloatingPointError,
            "the loss of head 2 is not finite",
        ),
    ],
)
def test_wrong_losses_are_refused(losses, error, message):
    with pytest.raises(error, match=message):
        HeadPruner(make_head(5)).observe(losses)


@pytest.mark.parametrize(
    "options",
    [
        {"every": 0},
        {"momentum": 1.0},
        {"threshold": 0},
        {"min_active": 0},
        {"warmup": -1},
        {"bandwidth": "wide"},
    ],
)
def test_wrong_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        HeadPruner(make_head(5), **options)


def test_the_printed_algorithm_never_prunes():
    averages, generator = torch.zeros(8), torch.Generator().manual_seed(0)
    for _ in range(50):
        averages = literal_average(averages, task_loss=torch.rand(8, generator=generator).sum())
    centroids, _, _ = cluster(averages.numpy())
    assert len(centroids) == 1 and averages.unique().numel() == 1
    # The momentum is on the wrong term too: the newest loss has the weight 0.99.
    assert literal_average(torch.tensor(0.0), 1.0).item() == pytest.approx(0.99)


@pytest.mark.parametrize("name", ["adamw", "adamax", "handout"])
def test_dropped_heads_do_not_change(make_model, make_toy, name):
    """Neither weight decay nor momentum changes the weights of a dropped head."""
    model = make_model("sst")
    model.heads["sst"] = head = MultiverseHead(32, 5, num_heads=9, dropout=0.0)
    pruner, at_pruning = HeadPruner(head, every=2, bandwidth="std:0.3", threshold=2), {}

    class SaveDroppedHeads:
        """Save the weights of each head after the step that dropped it."""

        def after_step(self, event):
            for number in (~head.active).nonzero().flatten().tolist():
                at_pruning.setdefault(
                    number,
                    (head.weight[number].detach().clone(), head.bias[number].detach().clone()),
                )

        def state_dict(self):
            return {}

    before = head.weight.detach().clone()
    fit(
        model,
        make_toy("sst"),
        epochs=4,
        lr=1e-2,
        batch_size=5,
        optimizer=name,
        hooks=[pruner, SaveDroppedHeads()],
    )
    assert pruner.events[0].step == 2 and 1 <= len(pruner.events[0].dropped) < 9
    for number in pruner.events[0].dropped:
        weight, bias = at_pruning[number]
        assert torch.equal(head.weight[number], weight) and torch.equal(head.bias[number], bias)
    left = head.active.nonzero().flatten().tolist()
    assert left and all(not torch.equal(head.weight[number], before[number]) for number in left)


class OnMPS(torch.Tensor):
    """A tensor that says that it is on another device, and counts how often it is read."""

    device, reads = torch.device("mps"), []

    def double(self):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self):
        self.reads.append(self.shape)
        return self.as_subclass(torch.Tensor)

    def detach(self):
        return self


def test_losses_are_moved_to_the_cpu_before_float64():
    """On MPS a conversion to float64 raises an error."""
    pruner = HeadPruner(make_head(3), every=2)
    pruner.observe(torch.tensor([1.0, 2.0, 4.0]).as_subclass(OnMPS))
    assert pruner.averages.tolist() == pytest.approx([1.0, 2.0, 4.0])


def test_losses_on_a_gpu_are_read_when_they_are_needed(monkeypatch):
    """The averages and events are those of a CPU. An update with an infinite loss counts nowhere.

    On a CPU `fit` does not call the pruner after such an update.
    """
    monkeypatch.setattr("mmlkit.heads.pruning.MOST_UNREAD", 3)
    OnMPS.reads.clear()
    pruners = [HeadPruner(make_head(5), every=2, bandwidth=1.0, threshold=2) for _ in range(2)]
    generator, reads = torch.Generator().manual_seed(0), []
    for step in range(1, 8):
        for pruner in pruners:
            head = pruner.head
            losses = torch.arange(5.0)[head.active] + torch.rand(
                len(head.active_indices), generator=generator.manual_seed(step)
            )
            pruner.observe(losses if pruner is pruners[0] else losses.as_subclass(OnMPS))
            if step == 3 and pruner is pruners[1]:
                pruner.observe(torch.full_like(losses, torch.inf).as_subclass(OnMPS))
            pruner.maybe_prune(step)
        reads.append(len(OnMPS.reads))
    assert pruners[0].events == pruners[1].events and pruners[0].events[0].dropped
    assert reads == [0, 1, 1, 2, 2, 3, 3]
    for _ in range(3):
        pruners[1].observe(torch.ones(len(head.active_indices)).as_subclass(OnMPS))
    assert len(OnMPS.reads) == 4  # the first two are read with that of step 7
    state = pruners[1].state_dict()
    assert len(OnMPS.reads) == 5 and state["observed"] == pruners[0].observed + 3


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.0),
        lambda p: torch.optim.Adamax(p, lr=0.1),
    ],
)
def test_rows_with_reset_optimizer_state_do_not_change(make_optimizer):
    weight = torch.nn.Parameter(torch.randn(4, 2, 3))
    optimizer = make_optimizer([weight])
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    reset_optimizer_state(optimizer, (weight,), [1, 3])
    before = weight.detach().clone()
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert torch.equal(weight[[1, 3]], before[[1, 3]]) and not torch.equal(
        weight[[0, 2]], before[[0, 2]]
    )


def test_a_pruner_of_a_head_that_was_pruned_before():
    """Its mask starts with the heads that there are, also after a checkpoint."""
    head = make_head(6)
    head.set_active(torch.arange(6) > 1)
    pruner = HeadPruner(head, every=1, bandwidth=0.1, threshold=2)
    pruner.observe(torch.tensor([0.3, 0.3, 0.3, 5.0]))
    assert pruner.maybe_prune(1).dropped == [5]
    assert pruner.active_at(0).tolist() == [False, False, True, True, True, True]
    assert (
        pruner.active_at(1).tolist() == head.active.tolist() == [False] * 2 + [True] * 3 + [False]
    )
    assert pruner.averages[:2].isnan().all() and pruner.averages[5] == pytest.approx(5.0)
    other = HeadPruner(head, every=1)  # a new process: the head is loaded with its last mask
    other.load_state_dict(pruner.state_dict())
    assert torch.equal(other.active_at(0), pruner.active_at(0))
