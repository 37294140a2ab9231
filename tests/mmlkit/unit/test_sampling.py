"""Tests of the task sampler: probabilities by their formulas, and properties of every order."""

import json
from collections import Counter

import numpy as np
import pytest

from mmlkit.training.sampling import TaskSampler

KINDS = ("proportional", "sqrt", "uniform", "annealed", "round_robin", "sequential", "merged")
SIZES = {"sst": 9, "quora": 16, "sts": 4}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("proportional", (9 / 29, 16 / 29, 4 / 29)),
        ("sqrt", (3 / 9, 4 / 9, 2 / 9)),
        ("uniform", (1 / 3, 1 / 3, 1 / 3)),
        ("round_robin", (1 / 3, 1 / 3, 1 / 3)),
        ("sequential", (9 / 29, 16 / 29, 4 / 29)),
        ("merged", (9 / 29, 16 / 29, 4 / 29)),
    ],
)
def test_probabilities_by_hand(kind, expected):
    found = TaskSampler(kind, sizes=SIZES).probabilities(1)
    assert found == pytest.approx(dict(zip(SIZES, expected, strict=True)))


@pytest.mark.parametrize(
    ("epoch", "epochs", "alpha"),
    [(1, 1, 1.0), (1, 3, 1.0), (2, 3, 0.6), (3, 3, 0.2), (1, 25, 1.0), (25, 25, 0.2)],
)
def test_annealed_exponent_falls_from_1_to_a_fifth(epoch, epochs, alpha):
    """Stickland and Murray (2019), section 4.1: alpha = 1 - 0.8 (e - 1) / (E - 1)."""
    expected = {
        task: size**alpha / sum(other**alpha for other in SIZES.values())
        for task, size in SIZES.items()
    }
    assert TaskSampler("annealed", sizes=SIZES, epochs=epochs).probabilities(
        epoch
    ) == pytest.approx(expected)


def test_annealed_by_hand():
    """For the sizes 32 and 1, the ratio in the last epoch is 32^0.2 = 2."""
    sampler = TaskSampler("annealed", sizes={"large": 32, "small": 1}, epochs=5)
    assert sampler.probabilities(1) == pytest.approx({"large": 32 / 33, "small": 1 / 33})
    assert sampler.probabilities(5) == pytest.approx({"large": 2 / 3, "small": 1 / 3})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [7])
def test_probabilities_do_not_depend_on_the_scale(kind, factor):
    larger = {task: size * factor for task, size in SIZES.items()}
    small, large = (
        TaskSampler(kind, sizes=sizes, epochs=4, steps_per_epoch=10) for sizes in (SIZES, larger)
    )
    for epoch in (1, 3):
        assert small.probabilities(epoch) == pytest.approx(large.probabilities(epoch))
        assert sum(small.probabilities(epoch).values()) == pytest.approx(1)


def fit_of(drawn, wanted):
    """Return the p-value of a chi-square test; both arguments are {task: count}."""
    from scipy import stats

    return stats.chisquare([drawn[task] for task in wanted], list(wanted.values())).pvalue


@pytest.mark.parametrize("kind", ["proportional", "sqrt", "uniform", "annealed"])
@pytest.mark.parametrize("epoch", [1, 3])
def test_draws_follow_the_probabilities(kind, epoch):
    """The reference is a chi-square test of 20,000 draws with a fixed seed."""
    sampler = TaskSampler(kind, sizes=SIZES, epochs=3, steps_per_epoch=20_000)
    drawn = Counter(sampler.order(epoch))
    wanted = {task: share * 20_000 for task, share in sampler.probabilities(epoch).items()}
    assert fit_of(drawn, wanted) > 0.001


def test_draws_follow_the_probabilities_of_the_authors():
    """The authors train 25 epochs of 2400 steps on eight tasks.

    The draws of the first and the last epoch pass a chi-square test; alpha falls from 1 to 0.2.
    """
    steps = dict(
        zip(
            ("cola", "mrpc", "mnli", "rte", "sts", "sst", "qqp", "qnli"),
            (6680, 2865, 306798, 1945, 4491, 52616, 284257, 84715),
        )
    )
    sampler = TaskSampler("annealed", sizes=steps, epochs=25, steps_per_epoch=2400)
    for epoch, alpha in ((1, 1.0), (25, 0.2)):
        shares = {
            task: count**alpha / sum(other**alpha for other in steps.values())
            for task, count in steps.items()
        }
        assert sampler.probabilities(epoch) == pytest.approx(shares)
        drawn = Counter(sampler.order(epoch))
        assert fit_of(drawn, {task: 2400 * share for task, share in shares.items()}) > 0.001
    assert sampler.probabilities(1)["rte"] == pytest.approx(
        0.00261, abs=1e-5
    ) and sampler.probabilities(25)["rte"] == pytest.approx(0.0711, abs=1e-4)
    assert sum(len(sampler.order(epoch)) for epoch in range(1, 26)) == 60_000


def test_numpy_sizes_can_be_saved_as_json():
    sampler = TaskSampler(
        "sqrt", sizes=dict(zip("ab", np.array([4, 9]))), steps_per_epoch=np.int64(5)
    )
    assert json.loads(json.dumps([sampler.sizes, sampler.steps_per_epoch])) == [{"a": 4, "b": 9}, 5]


def test_draws_are_independent():
    """A task follows itself as often as its probability predicts, so the order has no blocks."""
    order = TaskSampler("uniform", sizes=SIZES, steps_per_epoch=9_000).order(1)
    repeats = sum(a == b for a, b in zip(order, order[1:], strict=False))
    assert repeats == pytest.approx(3_000, abs=200)


def test_round_robin_continues_in_the_next_epoch():
    sampler = TaskSampler("round_robin", sizes=SIZES, epochs=3, steps_per_epoch=4)
    assert sampler.order(1) == ["sst", "quora", "sts", "sst"]
    assert sampler.order(2) == ["quora", "sts", "sst", "quora"]
    assert Counter(sampler.order(1) + sampler.order(2) + sampler.order(3)) == {
        "sst": 4,
        "quora": 4,
        "sts": 4,
    }


def test_sequential_is_one_task_after_another():
    assert TaskSampler("sequential", sizes={"b": 2, "a": 3}).order(1) == ["b", "b", "a", "a", "a"]


@pytest.mark.parametrize("kind", ["merged", "sequential"])
@pytest.mark.parametrize(
    "sizes", [SIZES, {"one": 5}, {"many": 1234, "few": 1}, {str(i): i + 1 for i in range(40)}]
)
def test_every_batch_occurs_exactly_once(kind, sizes):
    sampler = TaskSampler(kind, sizes=sizes, epochs=2)
    assert Counter(sampler.order(1)) == Counter(sampler.order(2)) == sizes


def test_merged_is_shuffled():
    order = TaskSampler("merged", sizes={"a": 200, "b": 200}).order(1)
    changes = sum(a != b for a, b in zip(order, order[1:], strict=False))
    assert changes == pytest.approx(200, abs=40)  # one change if in blocks, 399 if alternating


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [None, 1, 2, 30, 100])
def test_length_of_an_epoch(kind, steps):
    order = TaskSampler(kind, sizes=SIZES, steps_per_epoch=steps).order(1)
    assert len(order) == (steps or 29)
    assert set(order) <= set(SIZES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_depends_only_on_seed_and_epoch(kind):
    first = TaskSampler(kind, sizes=SIZES, epochs=3, seed=1, steps_per_epoch=50)
    orders = {epoch: first.order(epoch) for epoch in (1, 2, 3)}
    fresh = TaskSampler(kind, sizes=SIZES, epochs=3, seed=1, steps_per_epoch=50)
    assert {epoch: fresh.order(epoch) for epoch in (3, 1, 2)} == orders


@pytest.mark.parametrize("kind", ["proportional", "sqrt", "uniform", "annealed", "merged"])
def test_another_seed_or_epoch_gives_another_order(kind):
    def order(seed, epoch):
        return TaskSampler(kind, sizes=SIZES, epochs=2, seed=seed, steps_per_epoch=50).order(epoch)

    orders = {tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (1, 2)}
    assert len(orders) == 4


@pytest.mark.parametrize("epoch", [0, 4])
def test_epochs_count_from_one(epoch):
    """Annealing would give another exponent without an error."""
    with pytest.raises(ValueError, match=f"epoch {epoch} is not one of 1 to 3; epochs count from"):
        TaskSampler("annealed", sizes=SIZES, epochs=3).order(epoch)
