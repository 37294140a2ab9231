"""The right answers of assignment 4 equal mmlkit's own modules."""

import math

import numpy as np
import pytest
import torch
from common import code_questions, namespace
from torch.nn import functional as F

from mmlcourse.grading.a4_pals import HEADERS
from mmlcourse.grading.leaderboard import rank
from mmlcourse.grading.questions import Draw
from mmlcourse.studies import course_score, cs224n
from mmlkit.bert.model import BertConfig, BertLayer, BertModel
from mmlkit.data.loading import load_task
from mmlkit.pals.projected import ProjectedAttention
from mmlkit.pals.sequential import SequentialAttention
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import seeded
from mmlkit.training.sampling import TaskSampler

QUESTIONS = {one.name: one for one in code_questions("a4_pals")}


def right(name, case, **variants):
    return QUESTIONS[name].right(lambda value, _: value, *case, **variants)


def solution(name):
    return namespace("a4_pals", "solution")[name]


def tiny(D, L=2, H=1):
    return BertConfig.tiny(hidden_size=D, num_hidden_layers=L, num_attention_heads=H)


def in_layer_0(weights):
    """Return the names of a projected attention's weights in mmlkit, for its layer 0."""
    return {
        key if key.startswith(("down", "up")) else f"attention.0.{key}": one
        for key, one in weights.items()
    }


@pytest.mark.parametrize("gelu", ["none", "after"])
def test_the_projected_attention_equals_the_library(gelu):
    for h, mask, weights, H in QUESTIONS["projected_attention"].cases(Draw("parity")):
        S, D = weights["down.weight"].shape
        module = ProjectedAttention(tiny(D, L=1), S, H, gelu=gelu == "after").eval()
        module.load_state_dict(in_layer_0(weights))
        found = right("projected_attention", (h, mask, weights, H), gelu=gelu)
        torch.testing.assert_close(found, module(h, 0, mask).detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scale", ["before", "power"])
def test_the_order_of_two_products_costs_no_points(scale):
    """In float32 it changes the last digits, which near ties of a softmax would enlarge."""

    def answer(h, mask, weights, H):
        linear = lambda name, x: F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
        z = linear("down", h)
        q, k, v = (
            linear(name, z).unflatten(-1, (H, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        d = q.shape[-1]
        q, power = (q / d**0.5, 1) if scale == "before" else (q, d**-0.5)
        weights_of = (q @ k.transpose(-1, -2) * power + mask).softmax(-1)
        return linear("up", (weights_of @ v).transpose(1, 2).flatten(2))

    one = QUESTIONS["projected_attention"]
    for seed in range(60):
        for case in one.cases(Draw(f"order {seed}")):
            expected = one.right(lambda value, _: value, *case, gelu="none")
            torch.testing.assert_close(answer(*case), expected, atol=1e-5, rtol=1e-5)


def test_a_task_part_equals_the_library():
    for D, S, H, L, state, h, mask in QUESTIONS["task_part"].cases(Draw("parity")):
        state = {name: one.double() for name, one in state.items()}
        h, mask = h.double(), mask.double()
        module = ProjectedAttention(tiny(D, L), S, H).double().eval()
        module.load_state_dict(state)
        count, *_, outputs, grads = right("task_part", (D, S, H, L, state, h, mask), gelu="none")
        assert count == sum(one.numel() for one in module.parameters())
        expected = torch.stack([module(h, layer, mask) for layer in range(L)])
        torch.testing.assert_close(outputs, expected.detach(), atol=1e-5, rtol=1e-5)
        expected.square().sum().backward()
        named = dict(module.named_parameters())
        own = torch.cat([named[name].grad.flatten() for name in state])
        torch.testing.assert_close(grads, own, atol=1e-9, rtol=1e-9)


def test_the_encoder_of_the_solution_equals_the_library():
    """The layers of BERT as the experiment hands them over, with the PALs of one task."""
    with seeded(0):  # with other weights, the PALs may change less than the last line asks for
        encoder = add_pals(BertModel(tiny(12, L=2, H=3)), ["sst"], 6, 2, init="normal").eval()
    part = encoder.pals.part("sst")
    ids = torch.tensor([[2, 7, 9, 4], [2, 5, 0, 0]])
    attention_mask = (ids > 0).long()
    with torch.no_grad():
        expected = encoder(ids, attention_mask, task="sst").last_hidden_state
        h = encoder.embeddings(ids, torch.zeros_like(ids))
        layers = [_four_functions(one) for one in encoder.encoder.layer]
        mask = encoder.additive_mask(attention_mask, h)
        ts = lambda h, mask, i: part(h, i, mask)
        found = solution("pal_encoder")(h, mask, layers, ts)
        plain = solution("pal_encoder")(h, mask, layers, lambda h, mask, i: 0 * h)
        encoder.pals = None
        without = encoder(ids, attention_mask).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain, without, atol=1e-5, rtol=1e-5)
    assert (found - plain).abs().max() > 1e-4


def _four_functions(layer):
    class Four:
        norm_1, norm_2 = layer.attention.output.LayerNorm, layer.output.LayerNorm

        def attend(self, h, mask):
            return layer.attention.output.dense(layer.attention.self(h, mask))

        def feed_forward(self, a):
            return layer.output.dense(layer.intermediate(a))

    assert isinstance(layer, BertLayer)
    return Four()


def test_the_budget_gives_the_sizes_of_the_paper():
    base = (768, 12, 8, 12)
    count = 14_558_688  # eight tasks with S = 204 in BERT-base
    assert right("largest_size", (*base, count)) == 204
    assert right("largest_size", (*base, count - 1)) == 192
    assert right("largest_size", (*base, 15_000_000)) == 204
    assert right("largest_size", (*base, 1000)) == 0


@pytest.mark.parametrize("skip", ["none", "residual"])
def test_the_fold_equals_the_sequential_module_and_query_and_key_have_no_gradient(skip):
    for weights, W, b in QUESTIONS["fold_sequential"].cases(Draw("parity")):
        weights, W, b = {key: one.double() for key, one in weights.items()}, W.double(), b.double()
        S, D = weights["down.weight"].shape
        module = SequentialAttention(tiny(D), S, 1).double().eval()
        module.projected.load_state_dict(in_layer_0(weights))
        x = torch.randn(7, 1, D, generator=torch.Generator().manual_seed(0)).double()
        vectors = module.transform_output(x, None, None) + x * (skip == "residual")
        logits = vectors[:, 0] @ W.T + b
        weight, bias = right("fold_sequential", (weights, W, b), skip=skip)
        torch.testing.assert_close(x[:, 0] @ weight.T + bias, logits)
        logits.square().sum().backward()
        own = module.projected.attention[0]
        query, key, value = (one.weight.grad.abs().max() for one in (own.query, own.key, own.value))
        assert max(query, key) < 1e-8 < 1 < value


def test_the_probabilities_equal_the_sampler_and_a_common_factor_cancels():
    sizes = {"sst": 80, "quora": 640, "sts": 10}
    sampler = TaskSampler("annealed", sizes=sizes, epochs=5)
    for epoch in range(1, 6):
        found, _ = right("task_order", (sizes, epoch, 5, [0.5]), last="fifth")
        assert found == pytest.approx(sampler.probabilities(epoch))
        larger = {task: 25 * N for task, N in sizes.items()}
        assert right("task_order", (larger, epoch, 5, [0.5]), last="fifth")[0] == pytest.approx(
            found
        )
    p, order = right("task_order", ({"a": 1, "b": 3}, 1, 1, [0, 0.24, 0.25, 0.9]), last="half")
    assert p == {"a": 0.25, "b": 0.75} and order == [0, 0, 1, 1]


def test_losses_by_hand():
    D, zero = 2, torch.zeros
    u, v = torch.tensor([[1.0, -2]]), torch.tensor([[3.0, 2]])
    labels = torch.tensor([4]), torch.tensor([1]), torch.tensor([2.5])
    case = (u, v, *labels, zero(5, D), zero(2, 4 * D), zero(7))
    x, _, _, _, *losses, gradients = right("heads", case, features="four")
    assert x.tolist() == [[1, -2, 3, 2, 2, 4, 3, -4]]
    assert [float(one) for one in losses] == pytest.approx([math.log(5), math.log(2), 6.25])
    # By the biases: softmax minus label, sigmoid minus label, and twice the difference.
    biases = [0.2, 0.2, 0.2, 0.2, -0.8, -0.5, -5]
    assert gradients[-7:].tolist() == pytest.approx(biases)


def test_a_training_epoch_by_hand():
    """One step on a, with the gradient 2 (y / 2 - 1) x / 2 of (y / 2 - 1)^2, clipped to norm 1."""
    settings = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    batches = {"a": torch.tensor([[2.0]]), "b": torch.tensor([[1.0]])}
    case = (torch.tensor([1.0]), torch.tensor([[1.0], [7.0]]), batches, [["a"]], settings)
    # y = 1 * 2 + 1 * 2 * 2 = 6; the loss is 4; the gradients are 2 * 2 and 2 * 4.
    losses, shared, own, used = right("train_epoch", case, clip="global")
    assert losses == [4.0] and used == [1, 0]
    norm = math.hypot(4, 8)
    assert shared.tolist() == pytest.approx([1 - 0.1 * 4 / norm], abs=1e-5)
    assert own.flatten().tolist() == pytest.approx([1 - 0.1 * 8 / norm, 7], abs=1e-5)
    _, shared, own, _ = right("train_epoch", case, clip="each")
    assert [*shared.tolist(), *own.flatten().tolist()] == pytest.approx([0.9, 0.9, 7], abs=1e-5)


def test_the_files_of_the_solution_pass_the_check_and_the_board_agrees(tmp_path):
    assert {task: cs224n.HEADERS[task] for task in HEADERS} == HEADERS
    generator = torch.Generator().manual_seed(0)
    texts, labels = {}, {}
    for task in HEADERS:
        dev = load_task(task).dev
        shape = (len(dev), 5) if task == "sst" else (len(dev),)
        ids = [str(one) for one in dev.ids]
        scores = torch.randn(shape, generator=generator)
        texts[task] = solution("prediction_file")(task, ids, scores)
        labels[task] = dict(zip(ids, map(float, dev.labels)))
        name = cs224n.prediction_file(task, "dev")
        if task == "sts":
            scores = torch.tensor([round(one, 3) for one in scores.tolist()])
        else:
            path = tmp_path / "theirs" / name
            values = scores if task == "sst" else torch.stack([0 * scores, scores], dim=1)
            cs224n.write_predictions(path, task, ids, values)
            assert path.read_text() == texts[task]
        (tmp_path / "board" / "team").mkdir(parents=True, exist_ok=True)
        (tmp_path / "board" / "team" / name).write_text(texts[task])
    row = next(one for one in rank(tmp_path / "board", "mini") if one.team == "team")
    scores = solution("score_files")(texts, labels)
    assert [round(float(one), 3) for one in scores] == [row.sst, row.quora, row.sts, row.overall]
    *_, r, overall, _ = right("score_files", (texts, labels))
    assert (r, overall) == pytest.approx(tuple(map(float, scores[2:])))
    assert overall == pytest.approx(course_score.overall_score(*map(float, scores[:3])))
    assert not np.isnan(r)
