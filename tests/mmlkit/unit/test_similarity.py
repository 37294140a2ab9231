"""Tests of MT-DNN's similarity (Eq. 2): a sigmoid trained on labels scaled to [0, 1].

The predicted scores have the scale of the task.
"""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmlkit.data.batching import collate, encode
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead
from mmlkit.training.evaluation import evaluate, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.saving import load_model, save_model
from mmlkit.training.step import train_step


@pytest.mark.parametrize("low, high", [(0.0, 5.0), (1.0, 3.0)])
def test_scores_and_loss_by_hand(low, high):
    """With logit = 2 x the sigmoids are 0.5 and 0.8808; the loss scales labels to [0, 1]."""
    head = LinearHead(1, 1, dropout=0.0, activation="sigmoid")
    with torch.no_grad():
        head.dense.weight.fill_(2.0)
    task = dataclasses.replace(get_task("stsb"), score_range=(low, high))
    batch = SimpleNamespace(task=task, labels=torch.tensor([low, low + 0.6 * (high - low)]))
    x = torch.tensor([[0.0], [1.0]])
    inputs = head.inputs(SimpleNamespace(pooler_output=x), batch)
    p = 1 / (1 + np.exp(-2.0))
    assert head(*inputs)[:, 0].tolist() == pytest.approx(
        [low + 0.5 * (high - low), low + p * (high - low)]
    )
    assert head(x)[:, 0].tolist() == pytest.approx(
        [0.5, p]
    )  # without a batch: the sigmoid of Eq. 2
    loss = head.loss(inputs, batch).total
    assert loss.item() == pytest.approx((0.5**2 + (p - 0.6) ** 2) / 2)
    loss.backward()
    assert head.dense.bias.grad.item() == pytest.approx(0.5 * 0.25 + (p - 0.6) * p * (1 - p))


@pytest.mark.slow
def test_a_model_with_a_sigmoid_is_trained_and_saved(make_model, make_toy, tmp_path):
    data, model = make_toy("sts", rows=60, dev=20), make_model("sts")
    model.heads["sts"] = LinearHead(32, 1, dropout=0.0, activation="sigmoid")
    history = fit(model, data, epochs=9, lr=5e-3, head_lr=5e-2, batch_size=6)
    assert (
        history["pearson"].max() > 0.8
        and history["train_loss"].iloc[-1] < 0.4 * history["train_loss"].iloc[0] < 0.1
    )
    scores = predict_scores(model, data)
    assert (
        0 <= scores.min() < 1
        and 4 < scores.max() <= 5
        and np.abs(scores[:, 0] - data.dev.labels).mean() < 1
    )
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_array_equal(predict_scores(again, data), scores)
    assert again.heads["sts"].activation == "sigmoid" and evaluate(again, data) == evaluate(
        model, data
    )


def test_train_step_returns_the_loss_of_scaled_labels(make_model, make_toy):
    model, data = make_model("sts"), make_toy("sts")
    model.heads["sts"] = LinearHead(32, 1, dropout=0.0, activation="sigmoid")
    batch = collate(encode(model.tokenizer, data.train), range(10))
    with torch.no_grad():
        expected = ((model.eval()(batch)[:, 0] - batch.labels) / 5).square().mean()
    loss = train_step(
        model.train(), batch, torch.optim.SGD(model.parameters(), lr=0.1), micro_batch_size=3
    ).total
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=0)


def test_a_sigmoid_requires_a_regression_task(make_model, make_toy):
    model = make_model("quora")
    model.heads["quora"] = LinearHead(32, 1, activation="sigmoid")
    with pytest.raises(ValueError, match="Its head has 1 outputs"):
        predict_scores(model, make_toy("quora"))


def test_a_sigmoid_requires_a_score_range():
    head = LinearHead(1, 1, activation="sigmoid")
    with pytest.raises(TypeError, match="unpack"):
        head(torch.zeros(1, 1), None)
