"""Parts of the encoder, by hand. Padding and the attention implementation change no result."""

import contextlib
import math

import pytest
import torch
from torch.nn import functional as F

import mmlkit.bert.attention
from mmlkit.bert import model as bert
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.runtime import seeded

IDS = torch.tensor([[2, 7, 9, 30, 41, 3], [2, 11, 50, 60, 12, 3]])


def tiny(**changes):
    """Return a tiny encoder with large initial weights, so that tokens and heads differ."""
    with seeded(1):
        return BertModel(BertConfig.tiny(initializer_range=0.3, **changes)).eval()


@pytest.fixture(params=[False, True], ids=["fused", "written-out"])
def written_out(request, monkeypatch):
    fused = not request.param
    monkeypatch.setattr(mmlkit.bert.attention, "_is_fused", lambda value: fused)
    return request.param


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


# padding


@pytest.mark.parametrize("pads", [1, 16])
@pytest.mark.parametrize("pad_id", [0, 17], ids=["[PAD]", "any id"])
def test_padding_changes_no_real_token(written_out, pads, pad_id):
    encoder = tiny()
    padded, mask = F.pad(IDS, (0, pads), value=pad_id), F.pad(torch.ones_like(IDS), (0, pads))
    with torch.no_grad():
        plain, longer, unmasked = encoder(IDS), encoder(padded, mask), encoder(padded)
    close(longer.last_hidden_state[:, :6], plain.last_hidden_state)
    close(longer.pooler_output, plain.pooler_output)
    assert (
        unmasked.last_hidden_state[:, :6] - plain.last_hidden_state
    ).abs().max() > 0.01  # without the mask, padding changes the result


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("training", [False, True])
def test_a_row_of_only_padding_gives_no_nan(written_out, precision, training):
    encoder = tiny().train(training)
    mask = torch.tensor([[1] * 6, [0] * 6])
    context = (
        torch.autocast("cpu", dtype=torch.bfloat16)
        if precision == "bf16"
        else contextlib.nullcontext()
    )
    with seeded(0), context:
        out = encoder(IDS, mask)
        alone = encoder(IDS[:1])
    (out.last_hidden_state.float().square().sum() + out.pooler_output.float().sum()).backward()
    assert out.last_hidden_state.isfinite().all() and out.pooler_output.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())
    if not training:
        close(
            out.last_hidden_state[:1].float(),
            alone.last_hidden_state.float(),
            atol=0.1 if precision == "bf16" else 1e-5,
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_additive_mask_is_finite_after_any_score(dtype):
    mask = BertModel.additive_mask(torch.tensor([[1, 0]]), torch.zeros(1, dtype=dtype))
    assert mask.shape == (1, 1, 1, 2) and mask.dtype == dtype and mask[..., 0] == 0
    assert torch.isfinite(mask[..., 1] - torch.finfo(dtype).max / 4) and mask[..., 1] < -30_000


# Computing only the first tokens.


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_first_token_only_equals_the_full_computation(written_out, layers):
    encoder = tiny(num_hidden_layers=layers)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    with torch.no_grad():
        full, first = encoder(IDS, mask), encoder(IDS, mask, first_token_only=True)
    assert full.last_hidden_state.shape == (2, 6, 32) and first.last_hidden_state.shape == (
        2,
        1,
        32,
    )
    close(first.last_hidden_state, full.last_hidden_state[:, :1])
    close(first.pooler_output, full.pooler_output)


@pytest.mark.parametrize("queries", [1, 2, 5, 6])
def test_num_queries_computes_the_first_tokens_alone(written_out, queries):
    layer, hidden = (
        tiny().encoder.layer[0],
        torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0)),
    )
    mask = BertModel.additive_mask(torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]), hidden)
    with torch.no_grad():
        some, whole = layer(hidden, mask, num_queries=queries), layer(hidden, mask)
    assert some.shape == (2, queries, 32)
    close(some, whole[:, :queries])


# attention


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries", [None, 1, 3])
def test_written_out_attention_equals_torch(masked, queries, monkeypatch):
    attention, hidden = (
        tiny().encoder.layer[1].attention.self,
        torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(2)),
    )
    mask = (
        BertModel.additive_mask(torch.tensor([[1, 1, 1, 1, 1, 0], [1, 0, 1, 0, 0, 0]]), hidden)
        if masked
        else None
    )
    found = []
    for written in (True, False):
        monkeypatch.setattr(
            mmlkit.bert.attention,
            "_is_fused",
            lambda value, fused=not written: fused,
        )
        with torch.no_grad():
            found.append(attention(hidden, mask, queries))
    close(*found, atol=2e-6)
    assert found[0].std() > 0.1


def plain_attention(width, heads):
    """Return self-attention whose query, key and value equal its input."""
    module = mmlkit.bert.attention.BertSelfAttention(
        BertConfig.tiny(hidden_size=width, num_attention_heads=heads)
    ).eval()
    with torch.no_grad():
        for linear in (module.query, module.key, module.value):
            linear.weight.copy_(torch.eye(width))
            linear.bias.zero_()
    return module


def test_attention_by_hand(written_out):
    # One head of 4. The token of ones scores 4 / sqrt(4) = 2 with itself and 0 with the zeros.
    hidden = torch.tensor([[[1.0] * 4, [0.0] * 4]])
    with torch.no_grad():
        found = plain_attention(4, 1)(hidden)
    sigmoid = 1 / (1 + math.exp(-2))  # 0.8808: softmax of (2, 0)
    close(found, torch.tensor([[[sigmoid] * 4, [0.5] * 4]]), atol=1e-6)


def test_attention_heads_by_hand(written_out):
    # Two heads with one feature each. Head 0 gets (1, 0), head 1 gets (0, 2). Scores are products.
    hidden = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    with torch.no_grad():
        found = plain_attention(2, 2)(hidden)
    e, e4 = math.e / (math.e + 1), math.exp(4) / (math.exp(4) + 1)
    close(found, torch.tensor([[[e, 1.0], [0.5, 2 * e4]]]), atol=1e-6)


def test_training_attention_on_a_cpu_has_its_own_dropout():
    attention = plain_attention(4, 1).train()
    attention.dropout.p = 0.5
    with seeded(0):
        rows = attention(torch.ones(64, 8, 4)).flatten().unique()
    # Eight equal weights of 1/8, each kept with probability 1/2 and doubled.
    # Their sums are multiples of a quarter, 1 on average.
    assert set((4 * rows).tolist()) <= set(range(9)) and len(rows) > 3


# the layer


def test_no_task_residual_equals_zeros(written_out):
    layer, hidden = tiny().encoder.layer[0], torch.randn(2, 6, 32)
    with torch.no_grad():
        assert torch.equal(layer(hidden), layer(hidden, task_residual=torch.zeros(2, 6, 32)))


def test_a_task_residual_is_added_before_the_last_layer_norm():
    norm = bert.AddNorm(3, BertConfig.tiny(hidden_size=4, layer_norm_eps=1e-9)).eval()
    with torch.no_grad():
        norm.dense.weight.zero_()
        norm.dense.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
        found = norm(
            torch.ones(1, 3), torch.tensor([[0.0, 0, 2, 0]]), torch.tensor([[0.0, 1, 0, 3]])
        )
    # 1, 1, 2, 3: mean 1.75, variance 11/16
    expected = [(x - 1.75) / math.sqrt(11 / 16) for x in (1, 1, 2, 3)]
    close(found, torch.tensor([expected]), atol=1e-6)


def test_an_adapter_acts_before_the_residual_is_added():
    norm = bert.AddNorm(3, BertConfig.tiny(hidden_size=4, layer_norm_eps=1e-9)).eval()
    with torch.no_grad():
        norm.dense.weight.zero_()
        norm.dense.bias.copy_(torch.tensor([1.0, 0, 0, 0]))
        residual = torch.tensor([[0.0, 2, 2, 0]])
        found = norm(torch.ones(1, 3), residual, adapter=lambda x: 3 * x)
    # 4, 2, 2, 0: mean 2, variance 2
    close(found, torch.tensor([[math.sqrt(2), 0.0, 0.0, -math.sqrt(2)]]), atol=1e-6)


@pytest.mark.parametrize("queries", [None, 1])
def test_both_ways_of_attention_agree_in_bf16(monkeypatch, queries):
    """Probabilities below one and values of about one: bf16 has an error of 2^-9 of a value."""
    torch.manual_seed(0)
    attention = mmlkit.bert.attention.BertSelfAttention(BertConfig.tiny()).eval()
    x, mask = torch.randn(3, 21, 32), torch.zeros(3, 1, 1, 21)
    mask[1, ..., 9:] = torch.finfo(torch.bfloat16).min / 2
    with torch.no_grad():
        exact = attention(x, mask, queries)
        for fused in (False, True):
            monkeypatch.setattr(
                mmlkit.bert.attention, "_is_fused", lambda value, fused=fused: fused
            )
            with torch.autocast("cpu", torch.bfloat16):
                close(attention(x, mask, queries).float(), exact, atol=0.01)


@pytest.mark.parametrize("size", [3, 8, 17])
def test_the_fused_kernel_gets_heads_of_a_multiple_of_eight(monkeypatch, size):
    """A GPU would write the products of other heads out in fp32; the padding changes no number."""
    given, fused = [], torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *a, **options: given.append([x.shape[-1] for x in a[:3]]) or fused(*a, **options),
    )
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, size)
    scores = query @ key.transpose(-1, -2) * size**-0.5
    found = mmlkit.bert.attention._fused(query, key, value, None, 0.0)
    close(found, scores.softmax(-1) @ value, atol=1e-6)
    assert given == [[-(-size // 8) * 8] * 3]


def test_gelu_is_the_exact_one():
    inner = bert.BertIntermediate(BertConfig.tiny(hidden_size=4, intermediate_size=4))
    with torch.no_grad():
        inner.dense.weight.copy_(torch.eye(4))
        inner.dense.bias.zero_()
        found = inner(torch.tensor([1.0, -1.0, 0.0, 2.0]))
    # x * Phi(x); the tanh approximation would give 0.841192, 4e-4 off at 2
    close(found, torch.tensor([0.8413447, -0.1586553, 0.0, 1.9544997]), atol=2e-6)


def test_initial_weights_follow_bert():
    with seeded(0):
        encoder = BertModel(BertConfig.tiny(vocab_size=2000, pad_token_id=5))
    table = encoder.embeddings.word_embeddings.weight
    assert abs(table.std().item() / 0.02 - 1) < 0.02 and abs(table.mean().item()) < 3e-4
    for name, parameter in encoder.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "LayerNorm" in name:
            assert (parameter == 1).all(), name
        else:
            assert 0.01 < parameter.std() < 0.03, name


def test_padding_word_gets_no_gradient():
    encoder = tiny(pad_token_id=7)
    encoder(IDS).last_hidden_state.square().sum().backward()
    gradient = encoder.embeddings.word_embeddings.weight.grad
    assert (gradient[7] == 0).all() and (gradient[9] != 0).any() and (gradient[8] == 0).all()


# Errors.


def test_another_activation_is_refused():
    with pytest.raises(ValueError, match="hidden_act 'relu' is not supported; expected 'gelu'"):
        BertConfig.tiny(hidden_act="relu")


def test_a_configuration_ignores_other_keys_of_a_dict():
    values = {
        "hidden_size": 48,
        "model_type": "bert",
        "classifier_dropout": None,
        "pad_token_id": None,
    }
    assert BertConfig.from_dict(values) == BertConfig(hidden_size=48)


@pytest.mark.parametrize("shape", [(1, 65), (64,)])
def test_input_of_the_wrong_size_is_refused(shape):
    with pytest.raises(
        ValueError,
        match=r"input_ids have shape \[.*\], expected \[batch, tokens\] with at most 64 tokens",
    ):
        tiny()(torch.ones(shape, dtype=torch.long))
    assert tiny()(torch.ones(1, 64, dtype=torch.long)).last_hidden_state.shape == (1, 64, 32)
