"""Pre-training agrees with transformers' BertForPreTraining: heads, scores, losses, gradients."""

import warnings

import pytest
import safetensors.torch
import torch
import transformers

from mmlcourse.studies.pretraining import (
    fill_mask,
    load_pretraining_heads,
    pretraining_batch,
    pretraining_loss,
)
from mmlkit.bert.pretrained import load_pretrained, read_checkpoint
from mmlkit.runtime import seeded

ROWS = [
    ("the film was great .", "it was one plot", 0),
    ("the plot of the film was bad , and plain .", "a", 1),
    ("one story", "it was not good .", 0),
]
SIZES = dict(
    vocab_size=199,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    initializer_range=0.2,
    layer_norm_eps=1e-2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
FRESH = "has no weights for cls.{} they are initialised at random and need pretrain"


@pytest.fixture
def saved(tiny_tokenizer, tmp_path):
    """Return a function (kind) that builds a model of transformers and saves it in a folder.

    All its parameters are random, including the biases.
    """

    def make(kind=transformers.BertForPreTraining):
        with seeded(4):
            model = kind(transformers.BertConfig(**SIZES)).eval()
            for name, parameter in model.named_parameters():
                if name.endswith("bias") or "LayerNorm" in name:
                    torch.nn.init.normal_(
                        parameter, mean=float(name.endswith("LayerNorm.weight")), std=0.2
                    )
        model.save_pretrained(tmp_path / kind.__name__)
        tiny_tokenizer.save_pretrained(tmp_path / kind.__name__)
        return model, tmp_path / kind.__name__

    return make


@pytest.fixture
def change_tensors():
    """Return a function (folder, function) that changes the tensors of a folder.

    The result is a pytorch_model.bin, because its names may differ from those of the model.
    """

    def make(folder, function):
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        function(tensors)
        torch.save(tensors, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()

    return make


def load(folder, *complaints):
    """Return encoder, tokenizer and heads; the warnings must match the expected complaints."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = *load_pretrained(folder), load_pretraining_heads(folder)
    said = [str(one.message) for one in said if issubclass(one.category, UserWarning)]
    assert len(said) == len(complaints) and all(
        part in one for part, one in zip(complaints, said)
    ), said
    return found


def test_scores_losses_and_gradients_agree_with_transformers(saved):
    theirs, folder = saved()
    encoder, tokenizer, heads = load(folder)
    assert not heads.training
    batch = pretraining_batch(tokenizer, ROWS, seed=1)
    told = dict(attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids)
    other = theirs(
        batch.input_ids, **told, labels=batch.labels, next_sentence_label=batch.next_sentence
    )
    out = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    table = encoder.embeddings.word_embeddings.weight
    words = heads.predictions(out.last_hidden_state, table)
    follows = heads.seq_relationship(out.pooler_output)
    real = batch.attention_mask.bool()
    torch.testing.assert_close(words[real], other.prediction_logits[real], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(follows, other.seq_relationship_logits, atol=1e-4, rtol=1e-5)
    assert words.std() > 0.5 and follows.std() > 0.05
    loss = pretraining_loss(encoder, heads, batch)
    torch.testing.assert_close(loss.total, other.loss, atol=1e-5, rtol=1e-5)
    loss.total.backward()
    other.loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    ours = {
        **{f"bert.{name}": one for name, one in encoder.named_parameters()},
        **{f"cls.{name}": one for name, one in heads.named_parameters()},
    }
    assert set(ours) == set(gradients)
    for name, parameter in ours.items():
        torch.testing.assert_close(
            parameter.grad,
            gradients[name],
            atol=1e-5,
            rtol=1e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_fill_mask_agrees_with_transformers(saved):
    theirs, folder = saved()
    encoder, tokenizer, heads = load(folder)
    coded = tokenizer("the [MASK] was great .", return_tensors="pt")
    with torch.no_grad():
        shares, words = theirs(**coded).prediction_logits[0, 2].softmax(-1).topk(4)
    found = fill_mask(encoder, heads, tokenizer, "the [MASK] was great .", top=4)
    assert [word for word, _ in found] == tokenizer.convert_ids_to_tokens(words.tolist())
    assert [share for _, share in found] == pytest.approx(shares.tolist(), abs=1e-5)


def test_a_masked_language_model_has_one_of_two_heads(saved):
    theirs, folder = saved(transformers.BertForMaskedLM)
    _, _, heads = load(folder, "has no pooler", FRESH.format("seq_relationship:"))
    torch.testing.assert_close(
        heads.predictions.transform["dense"].weight, theirs.cls.predictions.transform.dense.weight
    )
    assert torch.equal(heads.predictions.bias, theirs.cls.predictions.bias)
    assert not heads.seq_relationship.bias.any() and heads.seq_relationship.weight.any()


def test_the_bundled_encoder_has_no_heads_and_new_ones_depend_on_the_seed():
    state = torch.get_rng_state()
    with pytest.warns(
        UserWarning, match="minilm " + FRESH.format("predictions and cls.seq_relationship:")
    ):
        one, same, other = (load_pretraining_heads("minilm", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values())
    )
    assert not torch.equal(one.seq_relationship.weight, other.seq_relationship.weight)
    assert one.predictions.transform["dense"].weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_old_names_and_stored_tied_weights_are_read(saved, change_tensors):
    """Files of 2019 use gamma and beta for LayerNorm and another name for the bias of the words.

    They also store the word table a second time.
    """
    theirs, folder = saved()

    def old(tensors):
        for name in [name for name in tensors if "LayerNorm" in name]:
            tensors[
                name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                    "LayerNorm.bias", "LayerNorm.beta"
                )
            ] = tensors.pop(name)
        tensors["cls.predictions.decoder.weight"] = tensors[
            "bert.embeddings.word_embeddings.weight"
        ].clone()
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    change_tensors(folder, old)
    _, _, heads = load(folder)
    for name, value in heads.state_dict().items():
        assert torch.equal(value, theirs.cls.state_dict()[name]), name


def shorten_bias(tensors):
    tensors["cls.predictions.bias"] = tensors["cls.predictions.bias"][:-1]


def remove_bias(tensors):
    tensors.pop("cls.seq_relationship.bias")


def untie_word_table(tensors):
    tensors["cls.predictions.decoder.weight"] = (
        tensors["bert.embeddings.word_embeddings.weight"] + 1
    )


@pytest.mark.parametrize(
    "function, error, message",
    [
        (shorten_bias, RuntimeError, r"size mismatch for bias"),
        (remove_bias, RuntimeError, r"Missing key.*\n?.*bias"),
        (untie_word_table, ValueError, "predictions.decoder.weight is not the encoder's word"),
    ],
)
def test_heads_that_do_not_fit_are_refused(saved, change_tensors, function, error, message):
    _, folder = saved()
    change_tensors(folder, function)
    with pytest.raises(error, match=message):
        load_pretraining_heads(folder)


def test_a_checkpoint_is_read_completely_with_the_names_of_the_encoder(saved):
    theirs, folder = saved()
    config, tensors = read_checkpoint(folder)
    expected = {
        name.removeprefix("bert."): value
        for name, value in theirs.state_dict().items()
        if "decoder" not in name and "position_ids" not in name
    }
    assert config.hidden_size == 32 and {name for name in tensors if "decoder" not in name} == set(
        expected
    )
    assert all(torch.equal(tensors[name], value) for name, value in expected.items())
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="config.json"):
        read_checkpoint(folder)
