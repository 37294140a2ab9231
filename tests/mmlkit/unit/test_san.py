"""Tests of the stochastic answer network: its equations, its masks and prediction dropout.

The reference computes the equations with loops, for one row and token at a time.
"""

import math

import numpy as np
import pytest
import torch

from mmlcourse.cli.main import main
from mmlkit.data.batching import collate, encode
from mmlkit.data.loading import make_split
from mmlkit.heads import san as module
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.san import SANHead, kept_steps, mean_of_steps
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import evaluate, predict_scores, probabilities
from mmlkit.training.loop import fit
from mmlkit.training.saving import save_model

D, C, T = 6, 3, 7
PREMISE = torch.tensor(
    [[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0]], dtype=torch.bool
)
HYPOTHESIS = torch.tensor(
    [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 0, 0, 0]], dtype=torch.bool
)
KEPT = [[True, False, False, True, False], [True] * 5, [False, False, True, False, False]]


def make(steps=5, seed=0, **options):
    """Return a float64 head with large random parameters, and three rows of token vectors."""
    torch.manual_seed(seed)
    head = SANHead(
        D, C, num_steps=steps, **{"dropout": 0.0, "prediction_dropout": 0.0, **options}
    ).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(std=0.7)
    return head, torch.randn(3, T, D, dtype=torch.float64, requires_grad=True)


def dot(a, b):
    return sum(a[i] * b[i] for i in range(len(a)))


def softmax(values):
    exps = [value.exp() for value in values]
    return [value / sum(exps) for value in exps]


def linear(layer, x):
    return [dot(row, x) + bias for row, bias in zip(layer.weight, layer.bias)]


def gru(cell, x, h):
    """Compute one step of a GRU (Cho et al., 2014).

    torch stacks the weights of the reset, update and new gates in this order.
    """
    of_x = [dot(row, x) + bias for row, bias in zip(cell.weight_ih, cell.bias_ih)]
    of_h = [dot(row, h) + bias for row, bias in zip(cell.weight_hh, cell.bias_hh)]
    new = []
    for i in range(D):
        r, z = (1 / (1 + (-(of_x[i + gate * D] + of_h[i + gate * D])).exp()) for gate in (0, 1))
        n = torch.tanh(of_x[i + 2 * D] + r * of_h[i + 2 * D])
        new.append((1 - z) * n + z * h[i])
    return new


def reference_steps(head, M, premise, hypothesis):
    """Compute the equations for each row with loops over the real tokens.

    Returns:
        A tuple (alpha, [beta of each step], [P_k of each step]) for each row.
    """
    found = []
    for row in range(len(M)):
        P, H = ([M[row, j] for j in range(T) if mask[row, j]] for mask in (premise, hypothesis))
        alpha = softmax([linear(head.summary, h)[0] for h in H])
        s = [sum(a * h[i] for a, h in zip(alpha, H)) for i in range(D)]
        betas, answers = [], []
        for k in range(head.num_steps):
            y = linear(head.attention, s)
            betas.append(softmax([dot(y, p) for p in P]))
            x = [sum(b * p[i] for b, p in zip(betas[k], P)) for i in range(D)]
            features = [*s, *x, *(abs(a - b) for a, b in zip(s, x)), *(a * b for a, b in zip(s, x))]
            answers.append(softmax(linear(head.dense, features)))
            s = gru(head.cell, x, s)
        found.append((alpha, betas, answers))
    return found


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_equations_step_by_step(steps):
    head, M = make(steps)
    reference = reference_steps(head, M, PREMISE, HYPOTHESIS)
    ours = head.steps(M, PREMISE, HYPOTHESIS)
    scores = head(M, PREMISE, HYPOTHESIS)
    for row, (alpha, betas, answers) in enumerate(reference):
        torch.testing.assert_close(
            ours.hypothesis_weights[row, HYPOTHESIS[row]], torch.stack(alpha), atol=1e-10, rtol=0
        )
        for k in range(steps):
            torch.testing.assert_close(
                ours.premise_weights[row, k, PREMISE[row]],
                torch.stack(betas[k]),
                atol=1e-10,
                rtol=0,
            )
            torch.testing.assert_close(
                ours.probabilities[row, k], torch.stack(answers[k]), atol=1e-10, rtol=0
            )
        mean = torch.stack([sum(answer[c] for answer in answers) / steps for c in range(C)])
        torch.testing.assert_close(scores[row], mean, atol=1e-10, rtol=0)
    assert ours.probabilities.std(0).min() > 1e-3 and (
        steps == 1 or ours.probabilities.std(1).min() > 1e-4
    )


class LabelledBatch:
    """A batch with the labels for the loss."""

    labels = torch.tensor([2, 0, 1])


@pytest.mark.parametrize("steps, p", [(1, 0.0), (1, 0.4), (5, 0.0), (5, 0.4)])
def test_loss_and_gradients_agree_with_the_equations(monkeypatch, steps, p):
    """The loss is -log of the mean over the kept steps of a given dropout mask."""
    kept = [row[:steps] if steps > 1 else [True] for row in KEPT]
    monkeypatch.setattr(
        module, "kept_steps", lambda rows, steps, p, device=None: torch.tensor(kept)
    )
    head, M = make(steps, prediction_dropout=p)
    ours = head.train().loss((M, PREMISE, HYPOTHESIS), LabelledBatch).total
    losses = []
    for row, (_, _, answers) in enumerate(reference_steps(head, M, PREMISE, HYPOTHESIS)):
        counted = [answer for k, answer in enumerate(answers) if p == 0 or kept[row][k]]
        losses.append(
            -(sum(answer[LabelledBatch.labels[row]] for answer in counted) / len(counted)).log()
        )
    reference = sum(losses) / 3
    torch.testing.assert_close(ours, reference, atol=1e-10, rtol=0)
    parameters = [
        M,
        *(
            parameter
            for name, parameter in head.named_parameters()
            if steps > 1 or "cell" not in name
        ),
    ]
    for a, b in zip(
        torch.autograd.grad(ours, parameters), torch.autograd.grad(reference, parameters)
    ):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "labels, width, count",
    [(3, 768, 4_144_132), (2, 768, 4_141_059), (3, 1024, 7_360_516), (2, 1024, 7_356_419)],
)
def test_number_of_parameters(labels, width, count):
    assert sum(parameter.numel() for parameter in SANHead(width, labels).parameters()) == count


def test_masked_positions_get_no_attention_and_have_no_effect():
    head, M = make()
    found, scores = head.steps(M, PREMISE, HYPOTHESIS), head(M, PREMISE, HYPOTHESIS)
    assert (found.hypothesis_weights[~HYPOTHESIS] == 0).all()
    assert (found.premise_weights.transpose(1, 2)[~PREMISE] == 0).all()
    torch.testing.assert_close(found.hypothesis_weights.sum(-1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found.premise_weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))
    padding = ~(PREMISE | HYPOTHESIS)
    other = torch.where(padding[:, :, None], 1e6, M)
    assert torch.equal(head(other, PREMISE, HYPOTHESIS), scores)
    gradient = torch.autograd.grad(scores[:, 0].sum(), M)[0]
    assert (gradient[padding] == 0).all() and (gradient[~padding] != 0).any(-1).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("empty", ["hypothesis", "premise", "both"])
def test_an_empty_text_gives_a_defined_answer(dtype, empty):
    """The memory of a text without tokens is zero.

    Row 2 of the masks has a text with the final [SEP] only, as in batches.
    """
    head, M = make()
    head, M = (
        head.to(torch.promote_types(dtype, torch.float32)),
        M.detach().to(dtype).requires_grad_(),
    )
    premise, hypothesis = PREMISE.clone(), HYPOTHESIS.clone()
    for mask in {"hypothesis": [hypothesis], "premise": [premise], "both": [premise, hypothesis]}[
        empty
    ]:
        mask[1] = False
    scores = head(M, premise, hypothesis)
    gradient = torch.autograd.grad(scores.log().sum(), M)[0]
    assert scores.isfinite().all() and gradient.isfinite().all()
    torch.testing.assert_close(scores.sum(1), torch.ones_like(scores[:, 0]))
    found = head.steps(M, premise, hypothesis)
    assert (found.premise_weights[1] == 0).all() == (empty != "hypothesis") and (
        found.hypothesis_weights[1] == 0
    ).all() == (empty != "premise")
    if (
        empty == "both" and dtype == torch.float64
    ):  # s_0 = x_0 = 0, so P_0 is the softmax of the bias of W3
        torch.testing.assert_close(found.probabilities[1, 0], head.dense.bias.softmax(0))


def test_a_hypothesis_of_one_token_has_the_attention_weight_1():
    head, M = make()
    assert (
        head.steps(M, PREMISE, HYPOTHESIS).hypothesis_weights[2].tolist()
        == HYPOTHESIS[2].double().tolist()
    )


def test_a_batch_of_one_and_a_long_premise():
    head, M = make()
    whole = head(M, PREMISE, HYPOTHESIS)
    for i in range(3):
        alone = head(M[i : i + 1], PREMISE[i : i + 1], HYPOTHESIS[i : i + 1])
        assert alone.shape == (1, C)
        torch.testing.assert_close(alone[0], whole[i], atol=1e-12, rtol=0)
    long = torch.randn(2, 507, D, dtype=torch.float64)
    positions = torch.arange(507).expand(2, 507)
    scores = head(long, positions < 500, positions >= 500)
    assert (
        scores.shape == (2, C)
        and scores.isfinite().all()
        and (scores[0] - scores[1]).abs().max() > 1e-3
    )


def test_the_mean_of_steps_by_hand():
    """The two steps have the probabilities (1/4, 3/4) and (1/2, 1/2)."""
    logits = torch.tensor([[[0.0, math.log(3)], [0.0, 0.0]]]).expand(3, 2, 2)
    kept = torch.tensor([[True, True], [True, False], [False, True]])
    torch.testing.assert_close(
        mean_of_steps(logits, kept).exp(), torch.tensor([[0.375, 0.625], [0.25, 0.75], [0.5, 0.5]])
    )
    torch.testing.assert_close(
        mean_of_steps(logits), mean_of_steps(logits, torch.ones(3, 2, dtype=torch.bool))
    )
    far = torch.tensor(
        [[[0.0, 500.0], [0.0, 400.0]]], requires_grad=True
    )  # these probabilities are 0 in fp32, but the log of their mean is finite
    log = mean_of_steps(far)
    assert log[0, 0].item() == pytest.approx(-400 - math.log(2)) and log[0, 1].item() == 0
    log[0, 0].backward()
    torch.testing.assert_close(far.grad, torch.tensor([[[0.0, 0.0], [1.0, -1.0]]]))


def test_one_step_is_always_kept_and_the_others_with_the_given_probability():
    torch.manual_seed(0)
    for p in (0.1, 0.5, 0.999):
        kept = kept_steps(20_000, 4, p)
        assert kept.any(1).all() and kept.shape == (20_000, 4)
        share = 1 / 4 + 3 / 4 * (
            1 - p
        )  # the guaranteed step, or kept by chance; equal for all steps
        assert kept.double().mean(0).tolist() == pytest.approx([share] * 4, abs=0.015)
    assert kept_steps(50, 3, 0.0).all() and kept_steps(50, 1, 0.9).all()


def test_without_dropout_training_and_evaluation_agree():
    for options, same in (
        (dict(), True),
        (dict(prediction_dropout=0.5), False),
        (dict(dropout=0.5), False),
    ):
        head, M = make(**options)
        losses, scores = [], []
        for mode in (True, False):
            head.train(mode)
            losses.append(head.loss((M, PREMISE, HYPOTHESIS), LabelledBatch).total.item())
            scores.append(head(M, PREMISE, HYPOTHESIS))
        assert (losses[0] == losses[1]) == same and torch.equal(*scores) == same
        torch.testing.assert_close(scores[0].sum(1), torch.ones(3, dtype=torch.float64))


def test_in_training_the_scores_agree_with_the_loss():
    head, M = make(prediction_dropout=0.5)
    torch.manual_seed(3)
    loss = head.train().loss((M, PREMISE, HYPOTHESIS), LabelledBatch).total
    torch.manual_seed(3)
    scores = head(M, PREMISE, HYPOTHESIS)
    assert loss.item() == pytest.approx(-scores[range(3), LabelledBatch.labels].log().mean().item())


def test_dropout_drops_the_same_features_at_all_positions():
    """All positions share one dropout mask, so equal tokens keep equal attention weights."""
    head, M = make(dropout=0.5)
    same = M[:, :1].expand(3, T, D)
    for weights, mask in zip(
        head.train().steps(same, PREMISE, HYPOTHESIS)[:2], (HYPOTHESIS, PREMISE)
    ):
        weights = weights.reshape(3, -1, T)
        even = mask / mask.sum(1, keepdim=True)
        torch.testing.assert_close(weights, even[:, None].expand_as(weights).to(weights.dtype))


def test_masks_may_be_integers():
    head, M = make()
    assert torch.equal(head(M, PREMISE.long(), HYPOTHESIS.long()), head(M, PREMISE, HYPOTHESIS))


def test_softmax_is_not_applied_to_probabilities():
    head, M = make()
    scores = head(M, PREMISE, HYPOTHESIS).detach().numpy()
    assert (probabilities(scores, head) == scores).all()
    assert abs(probabilities(scores, LinearHead(8, scores.shape[1])) - scores).max() > 0.05


def test_premise_and_hypothesis_in_a_batch(make_model):
    """[CLS] and the first [SEP] belong to the premise, the last [SEP] to the hypothesis."""
    model = make_model("quora")
    split = make_split(
        "quora",
        [
            dict(sentence1="the film", sentence2="a plot of", label="duplicate"),
            dict(sentence1="it", sentence2="good", label="not_duplicate"),
        ],
    )
    batch = collate(encode(model.tokenizer, split), [0, 1])
    out = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    M, premise, hypothesis = SANHead(32, 2).inputs(out, batch)
    assert M is out.last_hidden_state and M.shape == (2, 8, 32)
    assert premise.long().tolist() == [[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]]
    assert hypothesis.long().tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]]


def test_a_toy_data_set_is_learned_and_predicted_from_the_command_line(
    make_model, make_toy, tmp_path, capsys, steps=5
):
    data, model = make_toy("quora", rows=60, dev=20), make_model("quora")
    with seeded(4):
        model.heads["quora"] = SANHead(32, 2, num_steps=steps, dropout=0.05, prediction_dropout=0.2)
    history = fit(model, data, epochs=6, lr=5e-3, batch_size=6)
    assert (
        history["accuracy"].max() > 0.9
        and history["train_loss"].iloc[-1] < 0.5 * history["train_loss"].iloc[0]
    )
    assert evaluate(model, data)["accuracy"] == history["accuracy"].max()
    scores = predict_scores(model, data)
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)
    save_model(model, tmp_path)
    assert main(["predict", "--model", str(tmp_path), *data.dev.texts[0]]) == 0
    line = capsys.readouterr().out.splitlines()[1].split("\t")
    assert [float(share) for share in line[3:]] == pytest.approx(scores[0], abs=1e-4) and max(
        scores[0]
    ) > 0.75  # impossible after a second softmax


def test_probabilities_in_half_precision_sum_to_one():
    """The logits are converted before the softmax, as in the other heads."""
    head, M = SANHead(D, C).eval().bfloat16(), torch.randn(3, T, D).bfloat16()
    with torch.no_grad():
        shares = head(M, PREMISE, HYPOTHESIS)
        steps = head.steps(M, PREMISE, HYPOTHESIS).probabilities
    torch.testing.assert_close(shares.sum(1), torch.ones(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(steps.sum(-1), torch.ones(3, 5), atol=1e-6, rtol=0)
