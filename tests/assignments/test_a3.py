"""The right answers of assignment 3 equal mmlkit's own modules, torch's, and values by hand."""

import functools
import math

import pytest
import torch
from common import code_questions, judge, namespace

from mmlcourse.grading.questions import Draw
from mmlcourse.lessons.checks.compare import WrongAnswer
from mmlkit.data import Batch, get_task
from mmlkit.heads import LinearHead, SANHead, mean_of_steps, ranking_loss

QUESTIONS = {one.name: one for one in code_questions("a3_mtdnn_san")}


def right(name, case, **variants):
    chosen = {key: values[0] for key, values in QUESTIONS[name].variants.items()} | variants
    return QUESTIONS[name].right(lambda value, _: value, *case, **chosen)


def cases(name):
    return QUESTIONS[name].cases(Draw("parity"))


def cell_with(weights, D):
    """Return torch's GRU cell with the weights of a case; the second bias of n is 0."""
    cell = torch.nn.GRUCell(D, D)
    stacked = lambda part: torch.cat([weights[f"{part}_{gate}"] for gate in "rzn"])
    state = {"weight_ih": stacked("W"), "weight_hh": stacked("U"), "bias_ih": stacked("b")}
    cell.load_state_dict({**state, "bias_hh": torch.zeros(3 * D)})
    return cell


def test_the_gru_equals_torch_and_its_forms_differ():
    for x, s, weights in cases("gru"):
        expected = cell_with(weights, x.shape[1])(x, s).detach()
        forms = [
            right("gru", (x, s, weights), reset_gate=reset, update=update)
            for reset in ("after", "before")
            for update in ("keep", "take")
        ]
        torch.testing.assert_close(forms[0], expected)
        gaps = [(a - b).abs().max() for i, a in enumerate(forms) for b in forms[:i]]
        assert len(gaps) == 6 and min(gaps) > 1e-3


def test_the_parts_of_the_answer_module_equal_the_library():
    """Summary, look, GRU and features are put together as in SANHead, without its biases."""
    M, hypothesis = cases("summary")[0][:2]
    B, T, D = M.shape
    premise, draw = ~hypothesis, Draw("weights")
    w, W, out = draw.normal(D), draw.normal(D, D), draw.normal(3, 4 * D)
    shapes = {"W": (D, D), "U": (D, D), "b": (D,)}
    weights = {f"{part}_{gate}": draw.normal(*shapes[part]) for part in "WUb" for gate in "rzn"}
    head = SANHead(D, 3, num_steps=4).eval()
    head.cell = cell_with(weights, D)
    head.summary.weight.data, head.attention.weight.data, head.dense.weight.data = w[None], W, out
    inside = head.steps(M, premise, hypothesis)
    alpha, s = right("summary", (M, hypothesis, w))
    torch.testing.assert_close(alpha, inside.hypothesis_weights.detach())
    for k in range(4):
        beta, x = right("look", (s, M, premise, W))
        torch.testing.assert_close(beta, inside.premise_weights[:, k].detach(), atol=1e-5, rtol=0)
        P = (torch.cat([s, x, (s - x).abs(), s * x], 1) @ out.T).softmax(1)
        torch.testing.assert_close(P, inside.probabilities[:, k].detach(), atol=1e-5, rtol=0)
        s = right("gru", (x, s, weights), reset_gate="after", update="keep")


@pytest.mark.parametrize("order", ["state", "seen"])
def test_two_answers_by_hand(order):
    """With width 1, look = tanh and gru(x, s) = sin(x) + s / 2, as the driver has them."""
    s, one = torch.tensor([[0.5]]), torch.ones(1, 1)
    W, b = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0] * 4]), torch.tensor([0.1, 0.0])
    found = right("answers", (s, one, one, W, b, 2), order=order)
    state, expected = 0.5, []
    for _ in range(2):
        x = math.tanh(state)
        a, c = (state, x) if order == "state" else (x, state)
        logit = a + 2 * c + 3 * abs(state - x) + 4 * state * x + 0.1
        expected.append(1 / (1 + math.exp(-logit)))
        state = math.sin(x) + state / 2
    torch.testing.assert_close(found[0, :, 0], torch.tensor(expected))


def test_the_answer_loss_equals_the_library():
    for case in cases("answer_loss"):
        P, y, u, sure, p = case
        kept, loss = right("answer_loss", case)
        expected = mean_of_steps(P.log(), kept.bool())
        torch.testing.assert_close(loss, torch.nn.functional.nll_loss(expected, y))
        assert kept[range(len(P)), sure].min() == 1 and kept[0].sum() == 1 and kept[1].min() == 1
        torch.testing.assert_close(  # without dropout all steps count
            right("answer_loss", (P, y, u, sure, 0.0))[1],
            -P.mean(1)[range(len(P)), y].log().mean(),
        )


def test_the_similarity_loss_equals_the_library_and_its_units_differ_by_25():
    for x, y, w, b, highest in cases("similarity_loss"):
        y, highest = 5 * y / highest, 5.0  # the labels of stsb
        head = LinearHead(x.shape[1], 1, dropout=0.0, activation="sigmoid")
        head.dense.load_state_dict({"weight": w, "bias": b})
        nothing = torch.zeros(len(x), 1, dtype=torch.long)
        rows = tuple(range(len(x)))
        batch = Batch(get_task("stsb"), nothing, nothing, nothing, y, rows)
        fraction = right("similarity_loss", (x, y, w, b, highest), unit="fraction")
        expected = head.loss((x, (0.0, highest)), batch).total.detach()
        torch.testing.assert_close(fraction, expected)
        score = right("similarity_loss", (x, y, w, b, highest), unit="score")
        torch.testing.assert_close(score, 25 * expected)


def test_the_ranking_loss_equals_the_library():
    for scores, real, answer, gamma in cases("ranking_loss"):
        relevant = torch.nn.functional.one_hot(answer, scores.shape[1])[real]
        groups = real.sum(1).tolist()
        expected = ranking_loss(scores[real], relevant, groups, gamma=gamma)
        accuracy, loss = right("ranking_loss", (scores, real, answer, gamma))
        torch.testing.assert_close(loss, expected)
        assert accuracy.item() == pytest.approx(1 - 3 / len(scores))  # queries 1, 3 and 4


def test_the_floor_that_the_written_question_asks_for():
    case = torch.tensor([[1.0, 0.0]]), torch.ones(1, 2) > 0, torch.tensor([0])
    assert right("ranking_loss", (*case, 1.0))[1].item() == pytest.approx(0.3133, abs=5e-5)
    assert right("ranking_loss", (*case, 4.61))[1] < 0.01 < right("ranking_loss", (*case, 4.59))[1]


@pytest.mark.parametrize("last, batches", [("keep", [3, 2]), ("drop", [2, 1])])
def test_every_row_is_in_one_batch(last, batches):
    rows = {"A": [5, 6, 7, 8, 9], "B": [1, 2, 3]}
    keys = [0.5, 0.1, 0.9, 0.2, 0.3]
    table = torch.tensor(right("merge", (rows, 2, keys), last=last))
    table = table[table[:, 0] >= 0]
    assert table[:, 0].bincount().tolist() == batches
    found = {task: table[table[:, 0] == i, 1:].flatten() for i, task in enumerate("AB")}
    # The keys put five elements in the order 1, 3, 4, 0, 2 and three in the order 1, 0, 2.
    for task, expected in {"A": [6, 8, 9, 5, 7], "B": [2, 1, 3]}.items():
        kept = expected if last == "keep" else expected[: len(expected) // 2 * 2]
        assert sorted(one for one in found[task].tolist() if one >= 0) == sorted(kept)
    first = {"keep": [1, 3, 4, 0, 2], "drop": [1, 0, 2]}[last]
    merged = [("A", [6, 8]), ("A", [9, 5]), ("A", [7]), ("B", [2, 1]), ("B", [3])]
    merged = merged if last == "keep" else [merged[0], merged[1], merged[3]]
    expected = [merged[i] for i in first]
    lines = [("AB"[line[0]], [one for one in line[1:] if one >= 0]) for line in table.tolist()]
    assert lines == expected


def test_clipping_equals_torch():
    for gradients, limit in cases("clip"):
        parameters = [torch.zeros(2) if one is None else torch.zeros_like(one) for one in gradients]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = None if gradient is None else gradient.clone()
        expected = torch.nn.utils.clip_grad_norm_(parameters, limit)
        norm, clipped, none = right("clip", (gradients, limit))
        assert none == sum(one.grad is None for one in parameters) > 0
        torch.testing.assert_close(norm, expected)
        left = [one if one.grad is None else one.grad for one in parameters]
        flat = torch.cat([one.flatten() for one in left])
        torch.testing.assert_close(clipped, flat, atol=1e-5, rtol=1e-5)


def test_the_head_of_another_task_does_not_move():
    for encoder, heads, batches, settings, limit in cases("update"):
        found, moved, losses = right("update", (encoder, heads, batches[:1], settings, limit))
        assert torch.equal(found[1:], heads["B"]) and not torch.equal(found[:1], heads["A"])
        assert (moved - encoder).abs().min() > 0 and len(losses) == 1
        two = right("update", (encoder, heads, batches[:2], settings, limit))[0]
        assert torch.equal(two[:1], found[:1]), "the first head had momentum, and stays"


def test_right_answers_in_other_styles_are_right():
    solution = namespace("a3_mtdnn_san", "solution")

    def in_python(P, y, u, sure, p):
        B, K = u.shape
        rows = [
            [bool(u[i, k].item() >= p) or k == int(sure[i]) for k in range(K)] for i in range(B)
        ]
        kept = torch.tensor(rows)
        terms = [P[i, kept[i], y[i]].mean().log() for i in range(B)]
        return kept, -sum(terms) / B

    for seed in range(4):
        judge(QUESTIONS["answer_loss"], "a3_mtdnn_san", in_python, seed)
    # A decorator without functools.wraps has no names of arguments.
    judge(QUESTIONS["summary"], "a3_mtdnn_san", lambda *case: solution["summarise"](*case))


def test_detached_weights_of_the_gru_are_found():
    gru = namespace("a3_mtdnn_san", "solution")["gru"]
    detached = lambda x, s, weights: gru(x, s, {key: one.detach() for key, one in weights.items()})
    with pytest.raises(WrongAnswer, match="the result has no gradient by W_r, U_r, b_r"):
        judge(QUESTIONS["gru"], "a3_mtdnn_san", functools.partial(detached))


def test_results_in_the_wrong_order_are_named():
    right = namespace("a3_mtdnn_san", "solution")["answer_loss"]
    with pytest.raises(WrongAnswer, match="kept: expected numbers of shape"):
        judge(QUESTIONS["answer_loss"], "a3_mtdnn_san", lambda *case: right(*case)[::-1])
