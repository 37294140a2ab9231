"""Tests of pre-training: masking, next-sentence pairs, the loss, and short training runs."""

import math

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from mmlcourse.studies import pretraining
from mmlcourse.studies.pretraining import (
    PretrainingHeads,
    fill_mask,
    mask_tokens,
    next_sentence_pairs,
    pretrain,
    pretraining_batch,
    pretraining_loss,
    split_sentences,
)
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.loading import load_task
from mmlkit.runtime import seeded

# The special tokens of the tokenizer fixture; its words have the ids 5 to 14.
PAD, UNK, CLS, SEP, MASK = range(5)


# masking


def masked(tokenizer, rows=400, words=60, seed=0):
    """Mask rows of [CLS] words [SEP] with one [UNK] each; every third row is half as long."""
    ids = torch.full((rows, words + 2), PAD)
    generator = torch.Generator().manual_seed(99)
    for row in range(rows):
        length = words if row % 3 else words // 2
        drawn = torch.randint(5, 15, (length,), generator=generator).tolist()
        ids[row, : length + 2] = torch.tensor([CLS, *drawn, SEP])
        ids[row, 1 + row % 20] = UNK
    before = ids.clone()
    hidden, labels = mask_tokens(ids, tokenizer, seed=seed)
    assert torch.equal(ids, before)
    return ids, hidden, labels


def test_the_number_of_drawn_words_and_their_replacements(tokenizer):
    """Of 59 words 9 are drawn, of 29 words 4."""
    ids, hidden, labels = masked(tokenizer)
    drawn, words = labels != -100, ids >= 5
    assert drawn.sum(1).tolist() == [round(0.15 * count) for count in words.sum(1).tolist()]
    assert torch.equal(labels[drawn], ids[drawn]) and not (drawn & ~words).any()
    assert torch.equal(hidden[~drawn], ids[~drawn])
    n = int(drawn.sum())
    as_mask, same = drawn & (hidden == MASK), drawn & (hidden == ids)
    others = drawn & ~as_mask & ~same
    # One tenth of the random replacements equal the original word.
    for found, expected in ((as_mask, 0.8), (same, 0.1 + 0.1 / 10), (others, 0.1 * 9 / 10)):
        room = 4 * math.sqrt(expected * (1 - expected) / n)
        assert n > 2500 and abs(found.sum() / n - expected) < room
    counts = np.bincount(hidden[others])
    assert counts[:5].sum() == 0 and len(counts) == 15
    assert abs(counts[5:] - counts.sum() / 10).max() < 4 * math.sqrt(counts.sum() / 10)


def test_masking_is_a_function_of_its_seed(tokenizer):
    state = torch.get_rng_state()
    one, same, other = (masked(tokenizer, rows=9, seed=seed)[1:] for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same)) and not torch.equal(one[1], other[1])
    assert torch.equal(torch.get_rng_state(), state)


def test_short_rows(tokenizer):
    """The only word of a row is always drawn; a row without words gets no labels."""
    rows = [[CLS, 7, SEP, PAD, PAD], [CLS, SEP, PAD, PAD, PAD], [CLS, UNK, MASK, SEP, PAD]]
    ids = torch.tensor(rows)
    for seed in range(5):
        hidden, labels = mask_tokens(ids, tokenizer, seed=seed)
        assert (labels != -100).sum(1).tolist() == [1, 0, 0] and labels[0, 1] == 7
        assert torch.equal(hidden[1:], ids[1:])


# sentences


@pytest.mark.parametrize(
    "text, expected",
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (' He said "no." Then he left.\nIt. ', ['He said "no."', "Then he left.", "It."]),
        (
            "It cost 3.50, e.g. here. 20 came. “Why?”",
            ["It cost 3.50, e.g. here.", "20 came.", "“Why?”"],
        ),
        ("no end", ["no end"]),
    ],
)
def test_sentences(text, expected):
    assert split_sentences(text) == expected


DOCUMENTS = ("A one. A two. A three. A four.", "B one. B two. B three.", "C one.", "D one. D two.")


def test_half_of_the_neighbours_are_exchanged():
    """Of six pairs. Text C has one sentence, so it never supplies a replacement."""
    texts = [split_sentences(text) for text in DOCUMENTS]
    own = [pair for sentences in texts for pair in zip(sentences, sentences[1:])]
    found_with, exchanged = set(), set()
    for seed in range(40):
        pairs = next_sentence_pairs(DOCUMENTS, seed=seed)
        assert pairs == next_sentence_pairs(DOCUMENTS, seed=seed)
        assert [first for first, *_ in pairs] == [first for first, _ in own]
        assert sorted(label for *_, label in pairs) == [0, 0, 0, 1, 1, 1]
        for (first, second, label), true in zip(pairs, own):
            assert second == true[1] if label == 0 else second[0] != first[0]
        exchanged |= {first for first, _, label in pairs if label}
        found_with |= {second for _, second, label in pairs if label}
    assert exchanged == {first for first, _ in own}
    assert found_with == {one for sentences in texts if len(sentences) > 1 for one in sentences}


def test_the_mini_reviews_give_pairs():
    texts = [text for (text,) in load_task("cfimdb").train.texts]
    pairs = next_sentence_pairs(texts, seed=0)
    assert len(pairs) > 1000 and sum(label for *_, label in pairs) == len(pairs) // 2
    for first, second, label in pairs[::9]:  # some reviews come in pairs that share sentences
        assert any(f"{first} {second}" in text for text in texts) == (label == 0)


def test_texts_without_neighbours_are_refused():
    with pytest.raises(ValueError, match="1 of 3 texts have several sentences, expected at least"):
        next_sentence_pairs(["One.", "One. Two.", "Three."])


# batches and loss


def test_a_batch_of_pairs(tokenizer):
    rows = [("the cat sat .", "a dog", 1), ("the dog", "a mat .", 0)]
    batch = pretraining_batch(tokenizer, rows, seed=0)
    ids = torch.where(batch.labels == -100, batch.input_ids, batch.labels)
    pair, other = [CLS, 5, 7, 10, 13, SEP, 6, 8, SEP], [CLS, 5, 8, SEP, 6, 12, 13, SEP, PAD]
    assert ids.tolist() == [pair, other]
    assert batch.token_type_ids.tolist() == [[0] * 6 + [1] * 3, [0] * 4 + [1] * 4 + [0]]
    assert batch.attention_mask.tolist() == [[1] * 9, [1] * 8 + [0]]
    assert batch.next_sentence.tolist() == [1, 0]
    assert (batch.labels != -100).sum(1).tolist() == [1, 1]
    alone = pretraining_batch(tokenizer, ["the cat sat .", "a dog"], seed=0, max_length=4)
    assert alone.input_ids.shape == (2, 4) and alone.to("cpu").next_sentence is None


def test_the_loss_by_hand():
    """With zero weights only the biases matter.

    All words score 0, except one with log 3. The next-sentence head has a bias of log 4.
    """
    config = BertConfig.tiny(vocab_size=6)
    encoder, heads = BertModel(config).eval(), PretrainingHeads(config)
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight.zero_()
        heads.predictions.bias[4] = math.log(3)
        heads.seq_relationship.weight.zero_()
        heads.seq_relationship.bias[1] = math.log(4)
    ids = torch.tensor([[1, 2, 3], [1, 2, 0]])
    batch = BatchEncoding(
        {
            "input_ids": ids,
            "attention_mask": (ids > 0).long(),
            "token_type_ids": torch.zeros_like(ids),
            "labels": torch.tensor([[-100, 4, 5], [-100, 4, -100]]),
            "next_sentence": torch.tensor([1, 0]),
        }
    )
    loss = pretraining_loss(encoder, heads, batch)
    assert loss.words.item() == pytest.approx((2 * math.log(8 / 3) + math.log(8)) / 3)
    assert loss.next_sentence.item() == pytest.approx((math.log(5 / 4) + math.log(5)) / 2)
    assert loss.total.item() == pytest.approx(loss.words.item() + loss.next_sentence.item())


# runs

TEXTS = (
    "The cat sat on the mat. A dog sat on a cat.",
    "The dogs sat. Not a cat.",
    "A mat. The cat sat on the mat.",
    "The dog sat on the mat. A cat sat.",
)


@pytest.fixture
def make_encoder_and_heads(tokenizer):
    """Return a function that builds a tiny encoder and its heads; it takes sizes of BertConfig."""

    def make(**sizes):
        with seeded(0):
            config = BertConfig.tiny(vocab_size=15, **sizes)
            encoder, heads = BertModel(config), PretrainingHeads(config)
        encoder.tokenizer = tokenizer
        return encoder, heads

    return make


@pytest.mark.parametrize("next_sentence", [True, False])
def test_the_loss_falls(make_encoder_and_heads, next_sentence):
    """Before training all 15 words are about equally likely."""
    encoder, heads = make_encoder_and_heads(initializer_range=0.1)
    before = {name: value.clone() for name, value in heads.state_dict().items()}
    options = dict(epochs=40, lr=1e-2, batch_size=3, next_sentence=next_sentence)
    history = pretrain(encoder, heads, TEXTS, **options)
    assert history["step"].tolist() == list(range(1, 81))
    assert history["epoch"].tolist() == [1 + i // 2 for i in range(80)]
    assert history["words"][0] == pytest.approx(math.log(15), abs=0.5)
    assert history["words"].tail(10).mean() < 0.7 * history["words"].head(5).mean()
    assert history["next_sentence"].isna().all() != next_sentence
    assert np.allclose(history["loss"], history["words"] + history["next_sentence"].fillna(0))
    assert not encoder.training and not heads.training
    after = heads.state_dict()
    moved = {name for name in before if not torch.equal(after[name], before[name])}
    assert moved == {name for name in before if next_sentence or name.startswith("predictions.")}


def test_a_run_is_a_function_of_its_seed_and_draws_anew_each_epoch(make_encoder_and_heads):
    """With almost no learning only masks, neighbours and dropout change the loss."""
    state, options = torch.get_rng_state(), dict(epochs=2, batch_size=99, lr=1e-9)
    one, same, other = (
        pretrain(*make_encoder_and_heads(), TEXTS, seed=seed, **options)["loss"].tolist()
        for seed in (3, 3, 4)
    )
    assert one == same != other and one[0] != pytest.approx(one[1], abs=1e-4)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def recorded_steps(make_encoder_and_heads, monkeypatch):
    """Return a function (texts, **options) that records each step: token ids, rates, norm."""

    def run(texts, **options):
        batches, rates, norms = [], [], []

        def watched(encoder, heads, batch):
            before = torch.where(batch.labels == -100, batch.input_ids, batch.labels)
            rows = zip(before, batch.attention_mask.bool())
            batches.append(sorted(tuple(row[mask].tolist()) for row, mask in rows))
            return pretraining_loss(encoder, heads, batch)

        def step(optimizer):
            rates.append(sorted({round(group["lr"], 9) for group in optimizer.param_groups}))
            weights = [one for group in optimizer.param_groups for one in group["params"]]
            gradients = [one.grad.flatten() for one in weights if one.grad is not None]
            norms.append(torch.cat(gradients).norm().item())

        with monkeypatch.context() as patch:
            patch.setattr(pretraining, "pretraining_loss", watched)
            patch.setattr(torch.optim.AdamW, "step", step)
            pretrain(*make_encoder_and_heads(initializer_range=0.2), texts, **options)
        return batches, rates, norms

    return run


def test_the_learning_rates_rise_and_fall_and_gradients_are_clipped(recorded_steps):
    """The ten steps include five of warmup, from 1/5 to 5/5 of the peak; then the rate falls.

    The heads have their own peak.
    """
    options = dict(epochs=5, batch_size=3, lr=1e-3, head_lr=1e-2, warmup=0.5)
    _, rates, norms = recorded_steps(TEXTS, **options)
    shares = [0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]
    assert np.allclose(rates, [[1e-3 * share, 1e-2 * share] for share in shares])
    assert norms == pytest.approx([1.0] * 10, abs=1e-4)  # more than 1.5 without clipping


def test_each_epoch_has_every_text_once_in_another_order_and_cut(recorded_steps):
    """The limit of BertConfig.tiny() is 64 tokens."""
    texts = ["cat " * 99, "dog", "mat", "sat", "not", "the", "a", "on"]
    batches, *_ = recorded_steps(texts, epochs=2, batch_size=4, next_sentence=False)
    words = sorted([(CLS, i, SEP) for i in (5, 6, 8, 10, 11, 12, 14)] + [(CLS, *[7] * 62, SEP)])
    assert sorted(batches[0] + batches[1]) == sorted(batches[2] + batches[3]) == words
    assert batches[:2] != batches[2:]


def test_a_batch_without_a_known_word_has_no_loss_of_words(make_encoder_and_heads):
    texts = ["Xyz! Zyx!", "Yzx! Xzy!"]  # [UNK] [UNK] [UNK] [UNK] each
    history = pretrain(*make_encoder_and_heads(), texts, epochs=1)
    assert history["words"].tolist() == [0.0] and np.isfinite(history["loss"]).all()


def test_filling_a_mask_restores_the_mode_of_each_module(make_encoder_and_heads, tokenizer):
    encoder, heads = make_encoder_and_heads()
    encoder.train().embeddings.eval()
    one, other = (fill_mask(encoder, heads, tokenizer, "the [MASK] sat", top=15) for _ in range(2))
    assert one == other and sum(share for _, share in one) == pytest.approx(1, abs=1e-5)
    assert encoder.training and not encoder.embeddings.training
