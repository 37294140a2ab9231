"""The right answers of assignment 2 equal the library, autograd and scikit-learn."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from common import code_questions

from mmlcourse.grading.questions import Draw, Edition
from mmlkit.data import get_task
from mmlkit.heads import HeadPruner, MultiverseHead, cluster, multiverse_loss

QUESTIONS = {one.name: one for one in code_questions("a2_multiverse")}
DEFAULT = {
    "pairs": "unordered",
    "similarity": "dot",
    "ties": "higher",
    "gate": "at_least",
    "vote": "logits",
}


def right(name, case, **variants):
    chosen = {key: variants.get(key, DEFAULT[key]) for key in QUESTIONS[name].variants}
    return QUESTIONS[name].right(lambda value, _: value, *case, **chosen)


def head_of(weight, bias, active):
    M, C, D = weight.shape
    head = MultiverseHead(D, C, num_heads=M, dropout=0.0)
    head.weight.data, head.bias.data = weight, bias
    head.set_active(active)
    return head


def test_the_heads_their_losses_and_the_collapse_equal_the_library():
    for x, weight, bias, active in QUESTIONS["head_logits"].cases(Draw("parity")):
        head = head_of(weight, bias, active)
        logits, probabilities = right("head_logits", (x, weight, bias, active))
        torch.testing.assert_close(logits, head.all_logits(x).detach())
        torch.testing.assert_close(probabilities, head(x).softmax(-1).detach())
        labels = torch.arange(len(x)) % 3
        expected = head.loss((x,), SimpleNamespace(task=get_task("mnli"), labels=labels))
        total, losses = right("task_losses", (logits, labels))
        torch.testing.assert_close(total, expected.total.detach())
        torch.testing.assert_close(losses, expected.per_head)
        layer = head.collapse()
        collapsed = right("collapse", (weight, bias, active, x))
        torch.testing.assert_close(collapsed[0], layer.weight.detach())
        torch.testing.assert_close(collapsed[2], layer(x).detach())


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_the_multiverse_loss_equals_the_library_and_its_gradient_equals_autograd(similarity):
    for (weight,) in QUESTIONS["multiverse_loss"].cases(Draw("parity")):
        weight.requires_grad_()
        loss = multiverse_loss(weight, similarity=similarity)
        loss.backward()
        for factor, pairs in ((1, "unordered"), (2, "ordered")):
            chosen = {"pairs": pairs, "similarity": similarity}
            found = right("multiverse_loss", (weight,), **chosen)
            torch.testing.assert_close(found, factor * loss)
            by_autograd = torch.autograd.grad(found, weight)[0]
            by_hand = right("multiverse_gradient", (weight.detach(),), **chosen)
            torch.testing.assert_close(by_hand, by_autograd)
            torch.testing.assert_close(by_hand, factor * weight.grad)


def test_the_averages_equal_the_pruner():
    head = head_of(torch.zeros(4, 2, 3), torch.zeros(4, 2), torch.tensor([1, 1, 0, 1]).bool())
    pruner, averages = HeadPruner(head, momentum=0.9), torch.zeros(4)
    for t in range(1, 5):
        losses = Draw(t).normal(3)
        pruner.observe(losses)
        case = (averages, losses, head.active, t, 0.9)
        averages, corrected = right("update_averages", case)
        found = pruner.averages[head.active].float()
        torch.testing.assert_close(corrected[head.active], found)
    assert averages[2] == 0


def test_mean_shift_and_merge_equal_scikit_learn():
    """Scikit-learn also lets the higher of two places with equal counts come first."""
    several = 0
    for seed in range(5):
        for values, _, bandwidth in QUESTIONS["merge"].cases(Draw(seed)):
            places = right("mean_shift", (values, bandwidth))
            found = right("merge", (values, places, bandwidth))
            centres, labels, _ = cluster(values.numpy(), bandwidth, bin_seeding=False)
            np.testing.assert_allclose(found, np.array(centres)[labels], atol=1e-3 * bandwidth)
            several += len(centres) > 2
    assert several > 20


def test_no_case_of_mean_shift_depends_on_rounding():
    for seed in range(5):
        for values, places, bandwidth in QUESTIONS["merge"].cases(Draw(seed)):
            distances = (torch.cat([values, places])[:, None] - torch.cat([values, places])).abs()
            assert (distances - bandwidth).abs().min() > 1e-8
            centres = right("merge", (values, places, bandwidth)).unique()
            near = (values[:, None] - centres).abs().sort(dim=1)[0]
            assert (near[:, 1] - near[:, 0]).min() > 1e-8


def test_a_cluster_by_hand():
    """Two places of three values each lie 7/15 apart: the tie decides which is a centre."""
    values = torch.tensor([0, 0.4, 1, 1.4], dtype=torch.float64)
    places = right("mean_shift", (values, 0.65))
    expected = torch.tensor([0.2, 1.4 / 3, 2.8 / 3, 1.2], dtype=torch.float64)
    torch.testing.assert_close(places, expected)
    case = (values, places, 0.65)
    higher, lower = (right("merge", case, ties=tie) for tie in ("higher", "lower"))
    torch.testing.assert_close(higher, expected[[0, 0, 2, 2]])
    torch.testing.assert_close(lower, expected[[1, 1, 3, 3]])


def test_pruning_equals_the_pruner_where_it_applies():
    pruned = 0
    for averages, active, scale, threshold in QUESTIONS["prune"].cases(Draw("parity")):
        if averages[active].min() == averages[active].max():
            continue
        M = len(averages)
        head = head_of(torch.zeros(M, 1, 1), torch.zeros(M, 1), active)
        options = {"every": 1, "threshold": threshold, "bin_seeding": False, "momentum": 0.0}
        pruner = HeadPruner(head, bandwidth=f"std:{scale}", **options)
        pruner.observe(averages[active])
        pruner.maybe_prune(1)
        found = right("prune", (averages, active, scale, threshold))
        assert found.tolist() == head.active.long().tolist()
        pruned += found.sum() < active.sum()
    assert pruned == 7
    equal = QUESTIONS["prune"].cases(Draw("parity"))[4]
    assert right("prune", equal).tolist() == equal[1].long().tolist()


def test_an_improvement_by_hand():
    """The ratios 1.1 and 0.8 of the two other sets have the mean 0.95."""
    ours, baseline = torch.tensor([[55.0, 90.0, 40.0]]), torch.tensor([[50.0, 60.0, 50.0]])
    found = right("improvements", (ours, baseline, torch.tensor([1])))
    assert found.tolist() == pytest.approx([-5.0])


def test_the_editions_of_the_tests_choose_every_variant():
    """The tests of every question run in the editions 0 to 3."""
    chosen = [Edition(seed).variants(QUESTIONS.values()).items() for seed in range(4)]
    known = {
        (key, one)
        for question in QUESTIONS.values()
        for key in question.variants
        for one in question.variants[key]
    }
    assert {pair for items in chosen for pair in items} == known and len(known) == 10
