"""Tests of the head pruner: averages and clusters by hand, guards, events and checkpoints."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from mmlkit.heads.clustering import cluster
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner, reset_optimizer_state
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
    for wrong in ("wide", "std:-1", "auto:2", 0.0, float("nan")):
        with pytest.raises(ValueError, match="bandwidth|quantile"):
            cluster(values, wrong)


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


def test_a_guard_keeps_all_heads_and_gives_the_reason():
    pruner = HeadPruner(make_head(5), every=1, bandwidth=1.0, min_active=4)
    pruner.observe(torch.tensor([1.0, 1.1, 5.0, 5.1, 5.2]))
    event = pruner.maybe_prune(1)
    assert (
        event.dropped == []
        and "only 2 heads would be left" in event.note
        and pruner.head.active.all()
    )


def test_the_threshold_prevents_pruning():
    pruner = HeadPruner(make_head(4), every=1, threshold=5)
    pruner.observe(torch.tensor([1.0, 1.0, 9.0, 9.0]))
    assert pruner.maybe_prune(1) is None and pruner.events == []


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


def test_wrong_use():
    with pytest.raises(ValueError, match="losses were given for 5 active heads"):
        HeadPruner(make_head(5)).observe(torch.ones(1))
    with pytest.raises(ValueError, match="bandwidth 'wide'"):
        HeadPruner(make_head(5), bandwidth="wide")


def test_an_update_whose_losses_are_not_finite_counts_nowhere():
    """fp16's scaler skips such an update."""
    pruners = [HeadPruner(make_head(3), momentum=0.9) for _ in range(2)]
    for losses in ([1.0, 2.0, torch.inf], [1.0, 2.0, 3.0], [torch.nan, 1.0, 1.0], [2.0, 2.0, 2.0]):
        pruners[1].observe(torch.tensor(losses))
        if np.isfinite(losses).all():
            pruners[0].observe(torch.tensor(losses))
    assert torch.equal(pruners[0].averages, pruners[1].averages)
    assert pruners[1].observed == 2


@pytest.mark.parametrize("name", ["adamw", "adamax"])
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
    assert head.active.tolist() == [False] * 2 + [True] * 3 + [False]
    assert pruner.averages[:2].isnan().all() and pruner.averages[5] == pytest.approx(5.0)
    other = HeadPruner(head, every=1)  # a new process: the head is loaded with its last mask
    other.load_state_dict(pruner.state_dict())
    torch.testing.assert_close(other.averages, pruner.averages, equal_nan=True)
