"""Tests of pre-training: masking, next-sentence pairs, the loss, and short training runs."""

import contextlib
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import mmlcourse.studies.pretraining_loop
from mmlcourse.studies.pretraining import (
    PretrainingBatch,
    PretrainingHeads,
    fill_mask,
    mask_tokens,
    next_sentence_pairs,
    pretraining_batch,
    pretraining_loss,
    split_sentences,
)
from mmlcourse.studies.pretraining_loop import pretrain
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.loading import load_task
from mmlkit.runtime import seeded

# The special tokens of the tokenizer fixture; its words have the ids 5 to 14.
PAD, UNK, CLS, SEP, MASK = range(5)


# masking


def masked(tokenizer, rows=400, words=60, seed=0, **options):
    """Build rows of [CLS] words [SEP] with one [UNK] each and mask them.

    Every third row is half as long and padded.

    Returns:
        The token ids [rows, words + 2], the masked ids and the labels.
    """
    ids = torch.full((rows, words + 2), PAD)
    generator = torch.Generator().manual_seed(99)
    for row in range(rows):
        length = words if row % 3 else words // 2
        ids[row, : length + 2] = torch.tensor(
            [CLS, *torch.randint(5, 15, (length,), generator=generator).tolist(), SEP]
        )
        ids[row, 1 + row % 20] = UNK
    before = ids.clone()
    hidden, labels = mask_tokens(ids, tokenizer, seed=seed, **options)
    assert torch.equal(ids, before)
    return ids, hidden, labels


@pytest.mark.parametrize("share", [0.15, 0.5])
def test_the_number_of_drawn_words_and_their_replacements(tokenizer, share):
    ids, hidden, labels = masked(tokenizer, share=share)
    drawn, words = labels != -100, ids >= 5
    assert drawn.sum(1).tolist() == [
        round(share * count) for count in words.sum(1).tolist()
    ]  # 59 words: 9 or 30; 29 words: 4 or 14
    assert torch.equal(labels[drawn], ids[drawn]) and not (drawn & ~words).any()
    assert torch.equal(hidden[~drawn], ids[~drawn])
    n = int(drawn.sum())
    as_mask, same = hidden == MASK, hidden == ids
    others = hidden[drawn & ~as_mask & ~same]
    for found, expected in (
        (as_mask, 0.8),
        (drawn & same, 0.1 + 0.1 / 10),
        (drawn & ~as_mask & ~same, 0.1 * 9 / 10),
    ):
        assert abs((found & drawn).sum() / n - expected) < 4 * math.sqrt(
            expected * (1 - expected) / n
        )  # one tenth of the random replacements equal the original word
    assert n > 2500 and others.min() == 5 and others.max() == 14
    assert abs(np.bincount(others)[5:] - len(others) / 10).max() < 4 * math.sqrt(len(others) / 10)


def test_every_word_of_a_row_may_be_drawn(tokenizer):
    ids = torch.tensor([[CLS, *range(5, 15), SEP]]).repeat(2000, 1)
    _, labels = mask_tokens(ids, tokenizer, seed=3)
    counts = (labels != -100).sum(0)
    assert (
        counts[[0, -1]].tolist() == [0, 0] and counts.sum() == 2000 * 2
    )  # 15 % of ten words is 1.5, rounded to two
    assert abs(counts[1:-1] - 400).max() < 4 * math.sqrt(400 * 0.8)


def test_masking_is_a_function_of_its_seed(tokenizer):
    state = torch.get_rng_state()
    one, same, other = (masked(tokenizer, rows=9, seed=seed)[1:] for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same)) and not torch.equal(one[1], other[1])
    assert torch.equal(torch.get_rng_state(), state)


def test_short_rows(tokenizer):
    """The only word of a row is always drawn; a row without words gets no labels.

    With share=1.0 all words are drawn.
    """
    ids = torch.tensor(
        [
            [CLS, 7, SEP, PAD, PAD],
            [CLS, SEP, PAD, PAD, PAD],
            [CLS, UNK, MASK, SEP, PAD],
            [CLS, 5, 6, 7, SEP],
        ]
    )
    for seed in range(5):
        hidden, labels = mask_tokens(ids, tokenizer, seed=seed)
        assert (
            (labels != -100).sum(1).tolist() == [1, 0, 0, 1]
            and labels[0, 1] == 7
            and torch.equal(hidden[1:3], ids[1:3])
        )
    assert mask_tokens(ids, tokenizer, seed=0, share=1.0)[1].tolist()[3] == [-100, 5, 6, 7, -100]


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_a_share_out_of_range_is_refused(tokenizer, share):
    with pytest.raises(
        ValueError,
        match=(
            f"share is {share}, expected above 0 and at most 1; the tokenizer's mask token is "
            "'\\[MASK\\]'"
        ),
    ):
        mask_tokens(torch.tensor([[7]]), tokenizer, seed=0, share=share)


# sentences


@pytest.mark.parametrize(
    "text, expected",
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            ' He said "no." Then he left.\nIt rained. ',
            ['He said "no."', "Then he left.", "It rained."],
        ),
        (
            "It cost 3.50 pounds, e.g. here. 20 came. “Why?” Nobody knew",
            ["It cost 3.50 pounds, e.g. here.", "20 came.", "“Why?”", "Nobody knew"],
        ),
        ("no end", ["no end"]),
    ],
)
def test_sentences(text, expected):
    assert split_sentences(text) == expected


DOCUMENTS = ("A one. A two. A three. A four.", "B one. B two. B three.", "C one.", "D one. D two.")


def test_half_of_the_neighbours_are_exchanged():
    """The texts have six pairs of neighbours.

    Text C has one sentence, so it never supplies a replacement.
    """
    own = [
        (a, b)
        for text in DOCUMENTS
        for a, b in zip(split_sentences(text), split_sentences(text)[1:])
    ]
    found_with, exchanged = set(), set()
    for seed in range(40):
        pairs = next_sentence_pairs(DOCUMENTS, seed=seed)
        assert pairs == next_sentence_pairs(DOCUMENTS, seed=seed)
        assert [first for first, *_ in pairs] == [first for first, _ in own] and sorted(
            label for *_, label in pairs
        ) == [0, 0, 0, 1, 1, 1]
        for (first, second, label), true in zip(pairs, own):
            assert second == true[1] if label == 0 else second[0] != first[0]
        exchanged |= {first for first, _, label in pairs if label}
        found_with |= {second for _, second, label in pairs if label}
    assert exchanged == {first for first, _ in own}
    assert found_with == {
        sentence for text in DOCUMENTS if text[0] != "C" for sentence in split_sentences(text)
    }


def test_the_mini_reviews_give_pairs():
    texts = [text for (text,) in load_task("cfimdb").train.texts]
    pairs = next_sentence_pairs(texts, seed=0)
    assert len(pairs) > 1000 and sum(label for *_, label in pairs) == len(pairs) // 2
    for first, second, label in pairs:  # some reviews come in pairs that share sentences
        assert any(f"{first} {second}" in text for text in texts) == (label == 0)


def test_texts_without_neighbours_are_refused():
    with pytest.raises(
        ValueError,
        match=(
            "1 of 3 texts have several sentences, expected at least two; or "
            "pretrain\\(next_sentence=False\\)"
        ),
    ):
        next_sentence_pairs(["One.", "One. Two.", "Three."])


# batches and loss


def test_a_batch_of_pairs(tokenizer):
    batch = pretraining_batch(
        tokenizer, [("the cat sat .", "a dog", 1), ("the dog", "a mat .", 0)], seed=0
    )
    ids = torch.where(batch.labels == -100, batch.input_ids, batch.labels)
    assert ids.tolist() == [
        [CLS, 5, 7, 10, 13, SEP, 6, 8, SEP],
        [CLS, 5, 8, SEP, 6, 12, 13, SEP, PAD],
    ]
    assert batch.token_type_ids.tolist() == [[0] * 6 + [1] * 3, [0] * 4 + [1] * 4 + [0]]
    assert batch.attention_mask.tolist() == [
        [1] * 9,
        [1] * 8 + [0],
    ] and batch.next_sentence.tolist() == [1, 0]
    assert (batch.labels != -100).sum(1).tolist() == [1, 1]
    alone = pretraining_batch(tokenizer, ["the cat sat .", "a dog"], seed=0, max_length=4)
    assert (
        alone.next_sentence is None
        and alone.input_ids.shape == (2, 4)
        and alone.to("cpu").next_sentence is None
    )


def test_the_loss_by_hand():
    """With zero weights only the biases matter.

    All words score 0, except one with log 3. The next-sentence head has a bias of log 4.
    """
    encoder, heads = (
        BertModel(BertConfig.tiny(vocab_size=6)).eval(),
        PretrainingHeads(BertConfig.tiny(vocab_size=6)),
    )
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight.zero_()
        heads.predictions.bias[4] = math.log(3)
        heads.seq_relationship.weight.zero_()
        heads.seq_relationship.bias[1] = math.log(4)
    ids = torch.tensor([[1, 2, 3], [1, 2, 0]])
    labels = torch.tensor([[-100, 4, 5], [-100, 4, -100]])
    batch = PretrainingBatch(
        ids, (ids > 0).long(), torch.zeros_like(ids), labels, torch.tensor([1, 0])
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
    encoder, heads = make_encoder_and_heads(initializer_range=0.1)
    before = {name: value.clone() for name, value in heads.state_dict().items()}
    history = pretrain(
        encoder, heads, TEXTS, epochs=40, lr=1e-2, batch_size=3, next_sentence=next_sentence
    )
    assert (
        len(history) == 40 * 2
        and history["step"].tolist() == list(range(1, 81))
        and history["epoch"].tolist() == [1 + i // 2 for i in range(80)]
    )
    assert history["words"][0] == pytest.approx(
        math.log(15), abs=0.5
    )  # before training all words are about equally likely
    assert history["words"].tail(10).mean() < 0.7 * history["words"].head(5).mean()
    assert history["next_sentence"].isna().all() != next_sentence
    assert np.allclose(history["loss"], history["words"] + history["next_sentence"].fillna(0))
    assert not encoder.training and not heads.training
    moved = {
        name for name, value in heads.state_dict().items() if not torch.equal(value, before[name])
    }
    assert moved == (
        set(before)
        if next_sentence
        else {name for name in before if name.startswith("predictions.")}
    )


@pytest.mark.slow
def test_a_masked_word_is_filled_in(make_encoder_and_heads, tokenizer):
    """The run memorises two sentences, in which the other words determine the masked word."""
    encoder, heads = make_encoder_and_heads(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1
    )
    pretrain(
        encoder,
        heads,
        ["the cat sat on the mat .", "a dog sat not ."],
        epochs=200,
        lr=1e-2,
        batch_size=2,
        next_sentence=False,
    )
    for text, word in (
        ("the [MASK] sat on the mat .", "cat"),
        ("the cat sat on the [MASK] .", "mat"),
        ("a [MASK] sat not .", "dog"),
    ):
        found = fill_mask(encoder, heads, tokenizer, text, top=3)
        assert found[0][0] == word and found[0][1] > 0.5 and len(found) == 3
    assert sum(
        share for _, share in fill_mask(encoder, heads, tokenizer, text, top=99)
    ) == pytest.approx(1, abs=1e-5)


def test_a_run_is_a_function_of_its_seed_and_draws_anew_each_epoch(make_encoder_and_heads):
    state, losses = torch.get_rng_state(), []
    for seed in (3, 3, 4):
        losses.append(
            pretrain(*make_encoder_and_heads(), TEXTS, epochs=2, batch_size=99, lr=1e-9, seed=seed)[
                "loss"
            ].tolist()
        )
    assert losses[0] == losses[1] != losses[2]
    assert losses[0][0] != pytest.approx(
        losses[0][1], abs=1e-4
    )  # almost no learning: only masks, neighbours and dropout differ
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_that_began_on_a_gpu_without_bf16_goes_on_elsewhere(
    make_encoder_and_heads, tmp_path, monkeypatch
):
    """There "auto" needs a scaler, and the run takes fp32; its settings still say "auto"."""
    options = {"epochs": 2, "batch_size": 99, "checkpoint_dir": tmp_path, "resume": True}
    with monkeypatch.context() as patch:
        needs_scaler = lambda precision, device: (contextlib.nullcontext(), precision == "auto")
        patch.setattr(mmlcourse.studies.pretraining_loop, "autocast", needs_scaler)
        first = pretrain(*make_encoder_and_heads(), TEXTS, **options)
    pd.testing.assert_frame_equal(pretrain(*make_encoder_and_heads(), TEXTS, **options), first)


@pytest.fixture
def recorded_steps(make_encoder_and_heads, monkeypatch):
    """Return a function (texts, **options) that records the input of each training step.

    Each step is a tuple: token ids before masking, masked token ids, learning rates.
    """

    def run(texts, **options):
        steps = []

        def watch(encoder, heads, batch, optimizer, precision):
            before = torch.where(batch.labels == -100, batch.input_ids, batch.labels)
            rows = [
                tuple(row[mask.bool()].tolist()) for row, mask in zip(before, batch.attention_mask)
            ]
            steps.append(
                (
                    sorted(rows),
                    batch.input_ids.tolist(),
                    sorted({round(group["lr"], 9) for group in optimizer.param_groups}),
                )
            )
            return update(encoder, heads, batch, optimizer, precision)

        with monkeypatch.context() as patch:
            patch.setattr(mmlcourse.studies.pretraining_loop, "_update", watch)
            pretrain(*make_encoder_and_heads(), texts, **options)
        return steps

    update = mmlcourse.studies.pretraining_loop._update
    return run


def test_the_learning_rates_rise_and_fall(recorded_steps):
    """The ten steps include five of warmup, from 1/5 to 5/5 of the peak; then the rate falls.

    The heads have their own peak.
    """
    steps = recorded_steps(TEXTS, epochs=5, batch_size=3, lr=1e-3, head_lr=1e-2, warmup=0.5)
    shares = [0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]
    assert np.allclose(
        [rates for *_, rates in steps], [[1e-3 * share, 1e-2 * share] for share in shares]
    )


def test_masks_and_neighbours_are_drawn_anew_each_epoch(recorded_steps):
    """Every text or pair occurs once per epoch.

    Without next-sentence pairs the texts stay the same and only the masks change. With pairs, the
    exchanged sentences change too.
    """
    (one, ids, _), (other, other_ids, _) = recorded_steps(
        TEXTS, epochs=2, batch_size=99, next_sentence=False
    )
    assert one == other and len(one) == 4 and sorted(map(str, ids)) != sorted(map(str, other_ids))
    (one, *_), (other, *_) = recorded_steps(TEXTS, epochs=2, batch_size=99)
    assert one != other and len(one) == len(other) == 4


def test_masks_depend_on_the_seed(recorded_steps):
    """The four texts are equal, so their order has no effect."""
    runs = [
        recorded_steps(
            ["the cat sat on the mat"] * 4, epochs=1, batch_size=4, next_sentence=False, seed=seed
        )[0][1]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_batches_depend_on_the_seed(recorded_steps):
    texts = ["cat", "dog", "mat", "sat", "not", "the", "a", "on"]
    runs = [
        [
            rows
            for rows, *_ in recorded_steps(
                texts, epochs=2, batch_size=4, next_sentence=False, seed=seed
            )
        ]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2] and runs[0][:2] != runs[0][2:]
    assert (
        sorted(runs[0][0] + runs[0][1])
        == sorted(runs[0][2] + runs[0][3])
        == sorted([(CLS, i, SEP) for i in (5, 6, 7, 8, 10, 11, 12, 14)])
    )


def test_long_texts_are_truncated_to_the_limit_of_the_encoder(recorded_steps):
    """The limit of BertConfig.tiny() is 64 tokens."""
    steps = recorded_steps(["the cat " * 99, "a dog"], epochs=1, next_sentence=False)
    assert [len(row) for row in steps[0][0]] == [64, 4]


def test_a_step_resets_and_clips_the_gradient(make_encoder_and_heads, tokenizer):
    encoder, heads = make_encoder_and_heads(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2
    )
    parameters = [*encoder.parameters(), *heads.parameters()]
    optimizer, expected = torch.optim.SGD(parameters, lr=0.0), []
    batches = [
        pretraining_batch(tokenizer, next_sentence_pairs(TEXTS, seed=seed), seed=seed)
        for seed in (0, 1)
    ]
    for batch in batches:
        optimizer.zero_grad()
        pretraining_loss(encoder, heads, batch).total.backward()
        norm = torch.linalg.vector_norm(
            torch.cat([parameter.grad.flatten() for parameter in parameters])
        )
        expected.append([parameter.grad / norm for parameter in parameters])
        assert norm > 1.5
    for batch, gradients in zip(batches, expected):
        mmlcourse.studies.pretraining_loop._update(encoder, heads, batch, optimizer, "fp32")
        for parameter, gradient in zip(parameters, gradients):
            torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=0)


# errors


def test_wrong_arguments_are_refused(make_encoder_and_heads, tokenizer):
    encoder, heads = make_encoder_and_heads()
    for texts, options, message in (
        ([], {}, "texts must be texts with words in them; there is none"),
        (["a", " "], {}, "texts must be texts with words in them; ' ' is among them"),
        (["a", 3], {}, "texts must be texts with words in them; 3 is among them"),
        ("a text", {}, "texts is 'a text', expected a list of texts"),
        (None, {}, "texts is None, expected a list of texts"),
        (TEXTS, {"epochs": 0}, "epochs is 0, expected a whole number of at least 1"),
        (TEXTS, {"batch_size": 0}, "batch_size is 0, expected a whole number of at least 1"),
        (TEXTS, {"lr": -1}, "lr is -1, expected a number of at least 0"),
        (TEXTS, {"warmup": 100}, "warmup is 100, expected a number from 0 to 1"),
        (TEXTS, {"max_length": 1}, "max_length is 1, expected a whole number of at least 3"),
        (TEXTS, {"seed": -1}, "seed is -1, expected a whole number of at least 0"),
        (TEXTS, {"resume": True}, "resume=True needs a checkpoint_dir"),
        (TEXTS, {"checkpoint_dir": __file__}, "test_pretraining.py' is not a folder"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrain(encoder, heads, texts, **options)
    for other in (None, PretrainingHeads(BertConfig.tiny(hidden_size=64))):
        with pytest.raises(ValueError, match=r"expected PretrainingHeads\(encoder.config\), for"):
            pretrain(encoder, other, TEXTS)
    encoder.tokenizer = None
    with pytest.raises(
        ValueError, match="no tokenizer is known for this encoder: pass tokenizer=."
    ):
        pretrain(encoder, heads, TEXTS)
    assert len(pretrain(encoder, heads, TEXTS, tokenizer=tokenizer, epochs=1)) == 1
    for text, top, found in (
        ("the cat", 5, "has 0 masks"),
        ("[MASK] [MASK]", 5, "has 2 masks"),
        ("a [MASK]", 0, "has 1 masks and top is 0"),
    ):
        with pytest.raises(ValueError, match=rf"{found}.*expected one \[MASK\] and at least 1"):
            fill_mask(encoder, heads, tokenizer, text, top=top)


def test_a_loss_of_nan_changes_no_weight(make_encoder_and_heads):
    encoder, heads = make_encoder_and_heads()
    with torch.no_grad():
        heads.predictions.bias.fill_(math.nan)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    with pytest.raises(
        FloatingPointError,
        match=(
            "the loss is nan, its gradient nan; the weights are those before this step. Try a "
            "smaller lr"
        ),
    ):
        pretrain(encoder, heads, TEXTS)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_batch_without_a_known_word_has_no_loss_of_words(make_encoder_and_heads, next_sentence):
    encoder, heads = make_encoder_and_heads()
    texts = ["Xyz! Zyx!", "Yzx! Xzy!"]  # [UNK] [UNK] [UNK] [UNK] each
    history = pretrain(encoder, heads, texts, epochs=1, next_sentence=next_sentence)
    assert history["words"].tolist() == [0.0] and np.isfinite(history["loss"]).all()


def test_an_infinite_gradient_changes_no_weight(make_encoder_and_heads):
    encoder, heads = make_encoder_and_heads()
    heads.seq_relationship.weight.register_hook(lambda gradient: gradient * math.inf)
    before = {
        name: value.clone()
        for name, value in [*encoder.state_dict().items(), *heads.state_dict().items()]
    }
    with pytest.raises(
        FloatingPointError,
        match=r"the loss is \d\.\d+, its gradient (inf|nan); the weights are those before",
    ):
        pretrain(encoder, heads, TEXTS)
    assert all(
        torch.equal(value, before[name])
        for name, value in [*encoder.state_dict().items(), *heads.state_dict().items()]
    )


def test_filling_a_mask_restores_the_training_modes(make_encoder_and_heads, tokenizer):
    encoder, heads = make_encoder_and_heads()
    encoder.train(), heads.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = (fill_mask(encoder, heads, tokenizer, "the [MASK]") for _ in range(2))
    assert one == other and encoder.training and not heads.training


def test_filling_a_mask_restores_the_mode_of_each_module(make_encoder_and_heads, tokenizer):
    encoder, heads = make_encoder_and_heads()
    encoder.train().embeddings.eval()
    fill_mask(encoder, heads, tokenizer, "the [MASK] sat", top=1)
    assert encoder.training and not encoder.embeddings.training
