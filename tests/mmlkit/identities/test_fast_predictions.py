"""Predictions of a whole split give the numbers of a plain PyTorch loop."""

import numpy as np
import pytest
import torch
from ranked import make_ranked

from mmlkit.bert.model import BertLayer
from mmlkit.data.batching import collate, encode, plan
from mmlkit.runtime import autocast, seeded
from mmlkit.training.evaluation import score_encoded
from mmlkit.training.model import MultitaskModel

from .test_halving import HEADS

BF16 = 0.02  # between bf16 scores of the tiny models, whose products round at other places


@pytest.fixture
def make_case(make_model, make_toy):
    """Return a function that builds a tiny model and its encoded training rows."""

    def make(name="sst"):
        task = "quora" if name == "pair" else name
        bare = make_model("sst")
        with seeded(7):
            model = MultitaskModel(bare.encoder, {task: HEADS[name](0.3)}, bare.tokenizer)
        data = make_ranked() if task == "qnli_rank" else make_toy(task)
        return model, encode(model.tokenizer, data.train, pairs=model.heads[task].pairs)

    return make


def plain_scores(model, encoded, batch_size, precision):
    """Return the scores of one batch after the other, by a plain PyTorch loop."""
    scores = [None] * len(encoded.input_ids)
    with torch.no_grad(), autocast(precision, torch.device("cpu"))[0]:
        for rows in plan(encoded.lengths, batch_size):
            for i, one in zip(rows, model.eval()(collate(encoded, rows)).float().numpy()):
                scores[i] = one
    return np.stack(scores)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", HEADS)
def test_scores_are_those_of_a_plain_loop(make_case, name, precision):
    model, encoded = make_case(name)
    expected = plain_scores(model, encoded, 4, precision)
    found = score_encoded(model, encoded, batch_size=4, precision=precision)
    tolerance = 1e-6 if precision == "fp32" else BF16
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)
    assert np.ptp(found, axis=0).max() > 1e-3


def test_a_prediction_repeats_bit_for_bit(make_case):
    model, encoded = make_case()
    once, again = (score_encoded(model, encoded, batch_size=4) for _ in range(2))
    assert np.array_equal(once, again)


def test_an_error_in_one_batch_ends_the_prediction(make_case, monkeypatch):
    model, encoded = make_case()
    forward = BertLayer.forward

    def failing(layer, hidden_states, *inputs, **options):
        if len(hidden_states) == 2:
            raise ZeroDivisionError("in the last batch")
        return forward(layer, hidden_states, *inputs, **options)

    with monkeypatch.context() as patch:
        patch.setattr(BertLayer, "forward", failing)
        with pytest.raises(ZeroDivisionError):
            score_encoded(model.train(), encoded, batch_size=6, precision="fp32")
    assert all(module.training for module in model.modules())
    assert np.isfinite(score_encoded(model, encoded, batch_size=6, precision="fp32")).all()


def test_batches_that_do_not_fit_are_divided(make_case, monkeypatch):
    model, encoded = make_case()
    expected = score_encoded(model, encoded, batch_size=20, precision="fp32")
    forward = BertLayer.forward

    def limited(layer, hidden_states, *inputs, **options):
        if len(hidden_states) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(layer, hidden_states, *inputs, **options)

    monkeypatch.setattr(BertLayer, "forward", limited)
    found = score_encoded(model, encoded, batch_size=20, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-6)
