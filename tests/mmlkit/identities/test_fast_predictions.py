"""Predictions of two batches at a time, with packed weights, give the numbers of a plain model."""

import threading

import numpy as np
import pytest
import torch
from ranked import make_ranked
from torch.nn import functional as F

from mmlkit.bert import attention
from mmlkit.bert.model import BertEmbeddings, BertLayer
from mmlkit.data.batching import collate, encode, plan
from mmlkit.heads.linear import LinearHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import autocast, seeded
from mmlkit.training import fast
from mmlkit.training.evaluation import predict_scores, score_encoded
from mmlkit.training.features import with_cache
from mmlkit.training.model import MultitaskModel

from .test_halves import PALS, WHOLE
from .test_halving import HEADS

BF16 = 0.02  # between bf16 scores of the tiny models, whose products round at other places


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(fast, "_free_cpus", lambda: 2)  # even where the tests have one
    monkeypatch.setattr(fast, "PACKED_FROM", 0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_case(make_model, make_toy):
    """Return a function that builds a tiny model and its encoded training rows."""

    def make(name="sst", pals=None):
        task = "quora" if name == "pair" else name
        bare = make_model("sst")
        if pals:
            add_pals(bare.encoder, [task], kind=pals, init="normal")
        with seeded(7):
            model = MultitaskModel(bare.encoder, {task: HEADS[name](0.3)}, bare.tokenizer)
        data = make_ranked() if task == "qnli_rank" else make_toy(task)
        return model, encode(model.tokenizer, data.train, pairs=model.heads[task].pairs)

    return make


@pytest.fixture
def watched(monkeypatch):
    """Return a list with (thread, torch's threads, rows) of each pass of an encoder."""
    seen, forward = [], BertEmbeddings.forward

    def watch(module, input_ids, token_type_ids):
        seen.append((threading.current_thread().name, torch.get_num_threads(), len(input_ids)))
        return forward(module, input_ids, token_type_ids)

    monkeypatch.setattr(BertEmbeddings, "forward", watch)
    return seen


def plain_scores(model, encoded, batch_size, precision):
    """Return the scores of one batch after the other, by a plain PyTorch loop."""
    scores = [None] * len(encoded.input_ids)
    with torch.no_grad(), autocast(precision, torch.device("cpu"))[0]:
        for rows in plan(encoded.lengths, batch_size):
            for i, one in zip(rows, model.eval()(collate(encoded, rows)).float().numpy()):
                scores[i] = one
    return np.stack(scores)


CASES = [(name, None) for name in HEADS] + [("sst", kind) for kind in PALS]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "pals"), CASES)
def test_scores_are_those_of_a_plain_loop(make_case, watched, name, pals, precision):
    model, encoded = make_case(name, pals)
    tolerance = dict(atol=1e-6, rtol=1e-5) if precision == "fp32" else dict(atol=BF16, rtol=BF16)
    for batch_size in (len(encoded.input_ids), 4):
        expected = plain_scores(model, encoded, batch_size, precision)
        watched.clear()
        found = score_encoded(model, encoded, batch_size=batch_size, precision=precision)
        np.testing.assert_allclose(found, expected, **tolerance)
        assert np.ptp(found, axis=0).max() > 1e-3
        half = -(-batch_size // 2)
        assert {n for _, n, _ in watched} == {1}
        assert "MainThread" not in {name for name, _, _ in watched}
        assert max(rows for _, _, rows in watched) <= half
    assert torch.get_num_threads() == 2


def test_a_prediction_repeats_bit_for_bit(make_case):
    model, encoded = make_case()
    once, again = (score_encoded(model, encoded, batch_size=4) for _ in range(2))
    assert np.array_equal(once, again)


def test_one_row_has_both_threads(make_case, watched):
    model, _ = make_case()
    predict_scores(model, ["good"], task="sst", precision="fp32")
    assert watched == [("MainThread", 2, 1)]


class OwnHead(LinearHead):
    """A head of a user; nobody knows whether two threads may call it."""


ONE_AT_A_TIME = {
    **{name: change for name, change in WHOLE.items() if name != "another module"},
    "a hook of the head": lambda model: model.heads["sst"].register_forward_hook(lambda *_: None),
    "a head of one's own": lambda model: model.heads.update({"sst": OwnHead(32, 5)}),
}


@pytest.mark.parametrize("name", ONE_AT_A_TIME)
def test_one_batch_at_a_time(make_case, watched, name):
    model, encoded = make_case()
    ONE_AT_A_TIME[name](model)
    threads = torch.get_num_threads()
    score_encoded(model, encoded, batch_size=9, precision="fp32")
    assert watched == [
        ("MainThread", threads, 9),
        ("MainThread", threads, 9),
        ("MainThread", threads, 2),
    ]


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
    assert torch.get_num_threads() == 2 and all(module.training for module in model.modules())
    assert np.isfinite(score_encoded(model, encoded, batch_size=6, precision="fp32")).all()


def test_batches_that_do_not_fit_are_divided(make_case, monkeypatch, watched):
    model, encoded = make_case()
    expected = score_encoded(model, encoded, batch_size=20, precision="fp32")
    forward = BertLayer.forward

    def limited(layer, hidden_states, *inputs, **options):
        if len(hidden_states) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(layer, hidden_states, *inputs, **options)

    monkeypatch.setattr(BertLayer, "forward", limited)
    watched.clear()
    found = score_encoded(model, encoded, batch_size=20, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert max(rows for _, _, rows in watched) == 10 and min(rows for _, _, rows in watched) == 2


def test_features_of_a_frozen_encoder_are_kept_by_both_threads(make_case, watched):
    model, encoded = make_case()
    model.freeze_encoder()
    expected = score_encoded(model, encoded, batch_size=4, precision="fp32")
    cached = with_cache(encoded)
    for passes in (10, 0):
        watched.clear()
        found = score_encoded(model, cached, batch_size=4, precision="fp32")
        assert np.array_equal(found, expected) and len(watched) == passes
    assert cached.features.known.all()


# Packed weights.


def packed_calls(monkeypatch):
    """Return a list to which each packed product adds the dtype of its result."""
    calls, product = [], fast._linear

    def counted(*arguments):
        calls.append(product(*arguments).dtype)
        return product(*arguments)

    monkeypatch.setattr(fast, "_linear", counted)
    return calls


@pytest.mark.skipif(not fast._packing_is_exact(torch.float32), reason="oneDNN is not available")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_are_packed_for_many_tokens(make_case, monkeypatch, precision):
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    if not fast._packing_is_exact(dtype):
        pytest.skip(f"this processor has no packed product in {precision}")
    model, encoded = make_case()
    calls = packed_calls(monkeypatch)
    monkeypatch.setattr(fast, "PACKED_FROM", sum(encoded.lengths) + 1)
    score_encoded(model, encoded, batch_size=4, precision=precision)
    assert calls == []
    monkeypatch.setattr(fast, "PACKED_FROM", sum(encoded.lengths))
    score_encoded(model, encoded, batch_size=4, precision=precision)  # 10 batches of 2 rows
    assert calls == 10 * 2 * 6 * [dtype]  # two layers with six products each
    assert not any("forward" in vars(module) for module in model.modules())


def test_a_prediction_packs_the_weights_that_the_model_has_then(make_case):
    model, encoded = make_case()
    before = score_encoded(model, encoded, batch_size=4, precision="fp32")
    with torch.no_grad():
        for layer in model.encoder.encoder.layer:
            layer.output.dense.weight.mul_(1.5)
    after = score_encoded(model, encoded, batch_size=4, precision="fp32")
    np.testing.assert_allclose(after, plain_scores(model, encoded, 4, "fp32"), atol=1e-6)
    assert np.abs(after - before).max() > 1e-3


def without_bias(layer):
    layer.attention.self.value = torch.nn.Linear(32, 32, bias=False)
    layer.intermediate.dense = torch.nn.Linear(32, 64, bias=False)


def halved(layer):
    class Half(torch.nn.Module):
        def forward(self, weight):
            return weight / 2

    Half.__module__ = "torch.nn.example"  # a part that is known
    torch.nn.utils.parametrize.register_parametrization(layer.intermediate.dense, "weight", Half())


@pytest.mark.parametrize("replace", [without_bias, halved])
def test_other_products_stay_as_they_are(make_case, monkeypatch, replace):
    model, encoded = make_case()
    with seeded(5):
        replace(model.encoder.encoder.layer[0])
    calls = packed_calls(monkeypatch)
    found = score_encoded(model, encoded, batch_size=4, precision="fp32")
    np.testing.assert_allclose(found, plain_scores(model, encoded, 4, "fp32"), atol=1e-6)
    assert 0 < len(calls) < 10 * 2 * 6 or not fast._packing_is_exact(torch.float32)


@pytest.mark.parametrize("case", ["another torch", "inexact products", "a model in float64"])
def test_weights_stay_as_they_are(make_case, monkeypatch, case):
    model, encoded = make_case()
    calls = packed_calls(monkeypatch)
    if case == "a model in float64":
        model.double()
    else:
        fast._packing_is_exact.cache_clear()
        rounded = lambda *inputs: F.gelu(F.linear(inputs[3], torch.ones(24, 32), inputs[1]))
        missing = lambda *inputs: torch.ops.mkldnn.there_is_no_such_operator(*inputs)
        monkeypatch.setattr(fast, "_linear", missing if case == "another torch" else rounded)
    try:
        found = score_encoded(model, encoded, batch_size=4, precision="fp32")
    finally:
        fast._packing_is_exact.cache_clear()
    assert calls == []
    np.testing.assert_allclose(found, plain_scores(model, encoded, 4, "fp32"), atol=1e-6)


# Attention without gradients.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [5, 6, 16, 23, 31, 47])
def test_keys_in_whole_vectors_change_nothing(monkeypatch, tokens, masked, dtype):
    """A row of padding alone keeps the mean of all values, and gets nothing from the new keys."""
    generator = torch.Generator().manual_seed(tokens)
    query, key, value = (
        torch.randn(3, 4, tokens, 8, generator=generator).to(dtype) for _ in range(3)
    )
    mask = None
    if masked:
        mask = torch.zeros(3, 1, 1, tokens, dtype=dtype)
        mask[1, ..., tokens // 2 :] = mask[2] = torch.finfo(dtype).min
    monkeypatch.setattr(attention, "_has_avx512", lambda: False)
    expected = attention._fused(query[:, :, :2], key, value, mask, 0.0)
    monkeypatch.setattr(attention, "_has_avx512", lambda: True)
    seen, appended = [], attention._whole_vectors

    def watch(*inputs):
        seen.append(appended(*inputs))
        return seen[-1]

    monkeypatch.setattr(attention, "_whole_vectors", watch)
    found = attention._fused(query[:, :, :2], key, value, mask, 0.0)
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    assert [one[0].shape[2] for one in seen] == ([-(-tokens // 16) * 16] if tokens % 16 > 5 else [])
    assert all(one[2].shape[-1] == one[0].shape[2] for one in seen)


def test_one_cast_gives_the_numbers_of_three(make_case, monkeypatch):
    model, encoded = make_case()
    batch = collate(encoded, range(6))
    scores = []
    for cast in (attention._in_autocast_dtype, lambda x: x):
        monkeypatch.setattr(attention, "_in_autocast_dtype", cast)
        with torch.no_grad(), autocast("bf16", torch.device("cpu"))[0]:
            scores.append(model.eval()(batch))
    assert torch.equal(*scores)
    x = torch.ones(2, dtype=torch.float64)
    with autocast("bf16", torch.device("cpu"))[0]:
        assert attention._in_autocast_dtype(x) is x
