"""Pre-training in miniature: BERT's two objectives (Devlin et al. 2019, section 3.1).

The encoder predicts masked words, and whether a sentence follows another. Parameter names are those
of transformers' BertForPreTraining without "cls.". `pretraining_loop` trains them, and notebook 08
runs it. Letters: B batch, T tokens, D hidden size, V words.
"""

import re
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.bert.pretrained import read_checkpoint
from mmlkit.runtime import pick_device, seeded
from mmlkit.training.evaluation import in_eval_mode

__all__ = [
    "PretrainingBatch",
    "PretrainingHeads",
    "PretrainingLoss",
    "fill_mask",
    "load_pretraining_heads",
    "mask_tokens",
    "next_sentence_pairs",
    "pretraining_batch",
    "pretraining_loss",
    "split_sentences",
]

IGNORED = -100  # the label of a token that is not predicted, as in torch and transformers
SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["'”’)]))\s+(?=["'“‘(]?[A-Z0-9])""")


class PretrainingBatch(NamedTuple):
    """Some rows with masked words.

    Attributes:
        input_ids: [B, T].
        attention_mask: [B, T].
        token_type_ids: [B, T].
        labels: [B, T], the original word, or -100 where no word is predicted.
        next_sentence: [B], 0 if the second sentence follows the first, 1 if it is from another
            text.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    labels: torch.Tensor
    next_sentence: torch.Tensor | None = (
        None  # 0: the second sentence follows the first, 1: it is from another text
    )

    def to(self, device):
        """Return the batch on another device.

        Args:
            device: a torch.device.

        Returns:
            A PretrainingBatch.
        """
        return PretrainingBatch(*(None if one is None else one.to(device) for one in self))


class PretrainingLoss(NamedTuple):
    """The loss of one batch.

    Attributes:
        total: the sum of the other two.
        words: the mean over the masked words.
        next_sentence: the mean over the rows.
    """

    total: torch.Tensor
    words: torch.Tensor
    next_sentence: torch.Tensor | None = None


class _WordHead(nn.Module):
    """LayerNorm(gelu(W h + b)) E^T + c: a logit for every word, with the encoder's word table E."""

    def __init__(self, config):
        super().__init__()
        D, eps = config.hidden_size, config.layer_norm_eps
        self.transform = nn.ModuleDict(
            {"dense": nn.Linear(D, D), "LayerNorm": nn.LayerNorm(D, eps)}
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states, table):
        return F.linear(
            self.transform["LayerNorm"](F.gelu(self.transform["dense"](hidden_states))),
            table,
            self.bias,
        )


class PretrainingHeads(nn.Module):
    """The two heads of pre-training: one predicts words, the other whether a sentence follows.

    The last layer of the first head is the encoder's word table, which is passed at each call. It
    is one parameter and receives the gradient of both uses.

    Args:
        config: the encoder's BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.predictions = _WordHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        for layer in (self.predictions.transform["dense"], self.seq_relationship):
            nn.init.normal_(layer.weight, std=config.initializer_range)
            nn.init.zeros_(layer.bias)

    def forward(self, out, table):
        """Compute the logits of both heads.

        Args:
            out: the encoder's output.
            table: the encoder's word table [V, D].

        Returns:
            (logits of words [B, T, V], logits of "follows" and "does not follow" [B, 2]).
        """
        return self.predictions(out.last_hidden_state, table), self.seq_relationship(
            out.pooler_output
        )


def load_pretraining_heads(name="minilm", *, seed=0, device=None):
    """Load the pre-training heads of a checkpoint, in eval mode, for the encoder of the same name.

    A head that the checkpoint lacks is initialised from `seed`, with a warning. The bundled MiniLM
    lacks both, and BertForMaskedLM the second.

    Args:
        name: see `load_pretrained`.
        seed: of the initialisation.
        device: where the heads go, see `load_pretrained`.

    Returns:
        PretrainingHeads.

    Raises:
        ValueError: a head is incomplete, does not fit the configuration, or has another word table
            than the encoder; or device is wrong.
    """
    device = pick_device(device)
    config, tensors = read_checkpoint(name)
    with seeded(seed):
        heads = PretrainingHeads(config)
    found = {
        key.removeprefix("cls."): tensor
        for key, tensor in tensors.items()
        if key.startswith("cls.")
    }
    table = found.pop("predictions.decoder.weight", None)
    if table is not None and not torch.equal(table, tensors["embeddings.word_embeddings.weight"]):
        raise ValueError(
            f"{name}: cls.predictions.decoder.weight is not the encoder's word table; choose a "
            "checkpoint that ties the two."
        )
    if "predictions.decoder.bias" in found:
        found.setdefault(
            "predictions.bias", found.pop("predictions.decoder.bias")
        )  # two names of one thing
    there = {key.split(".")[0] for key in found}
    expected = {
        key: list(value.shape)
        for key, value in heads.state_dict().items()
        if key.split(".")[0] in there
    }
    shapes = {key: list(found[key].shape) if key in found else "missing" for key in expected}
    if shapes != expected:
        wrong = "; ".join(
            f"cls.{key}: {shapes[key]}, expected {expected[key]}"
            for key in expected
            if shapes[key] != expected[key]
        )
        raise ValueError(
            f"{name}: the heads do not fit the configuration. {wrong}. Copy or download the "
            "checkpoint again."
        )
    heads.load_state_dict({key: found[key].float() for key in expected}, strict=False)
    if fresh := [f"cls.{part}" for part, _ in heads.named_children() if part not in there]:
        warnings.warn(
            f"{name} has no weights for {' and '.join(fresh)}: they are initialised at "
            "random and need pretrain().",
            stacklevel=2,
        )
    return heads.to(device).eval()


def mask_tokens(input_ids, tokenizer, *, seed, share=0.15):
    """Mask words as BERT does; a pure function of its arguments.

    A share of each row's words is drawn, at least one. 80 % of these become [MASK], 10 % a word
    drawn from the vocabulary, and 10 % stay. Special tokens are never drawn, and only [MASK]
    replaces a word.

    Args:
        input_ids: [B, T].
        tokenizer: the encoder's.
        seed: of the draws.
        share: of the words, in (0, 1].

    Returns:
        (masked input_ids [B, T], labels [B, T]: the original word, or -100 where none was drawn).

    Raises:
        ValueError: the share is out of range, or the tokenizer has no mask token.
    """
    if not 0 < share <= 1 or tokenizer.mask_token_id is None:
        raise ValueError(
            f"share is {share}, expected above 0 and at most 1; the tokenizer's mask token is "
            f"{tokenizer.mask_token!r}, expected one."
        )
    generator = torch.Generator().manual_seed(seed)
    special = torch.zeros(len(tokenizer), dtype=torch.bool)
    special[tokenizer.all_special_ids] = True
    words, vocabulary = ~special[input_ids], (~special).nonzero()[:, 0]
    count = (share * words.sum(1)).round().clamp(min=1)
    draws = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    drawn = words & (
        draws.argsort(1).argsort(1) < count[:, None]
    )  # the `count` smallest draws of each row
    fate = torch.rand(input_ids.shape, generator=generator)
    others = vocabulary[torch.randint(len(vocabulary), input_ids.shape, generator=generator)]
    hidden = torch.where(drawn & (fate < 0.9), others, input_ids).masked_fill(
        drawn & (fate < 0.8), tokenizer.mask_token_id
    )
    return hidden, input_ids.masked_fill(~drawn, IGNORED)


def split_sentences(text):
    """Split a text after . ! or ? where a space and a capital or a digit follow (after "Dr." too).

    Args:
        text: a text.

    Returns:
        A list of sentences.
    """
    return SENTENCE_END.split(text.strip())


def next_sentence_pairs(texts, *, seed=0):
    """Make sentence pairs of which one half follow each other; a pure function of its arguments.

    All neighbouring sentences form pairs. In a random half of them the second sentence is replaced
    by one of another text.

    Args:
        texts: strings.
        seed: of the draws.

    Returns:
        A list of (sentence, sentence, label), where 0 means "follows" as in transformers.

    Raises:
        ValueError: fewer than two texts have several sentences.
    """
    documents = [sentences for sentences in map(split_sentences, texts) if len(sentences) > 1]
    if len(documents) < 2:
        raise ValueError(
            f"{len(documents)} of {len(texts)} texts have several sentences, expected at least "
            "two; or pretrain(next_sentence=False)."
        )
    generator = np.random.default_rng(seed)
    pairs = [
        (number, first, second, 0)
        for number, sentences in enumerate(documents)
        for first, second in zip(sentences, sentences[1:])
    ]
    neighbours = {pair[1:3] for pair in pairs}
    for i in generator.permutation(len(pairs))[: len(pairs) // 2]:
        number, first = pairs[i][:2]
        other = documents[
            (number + generator.integers(1, len(documents))) % len(documents)
        ]  # any text but its own
        strangers = [
            second for second in other if (first, second) not in neighbours
        ] or other  # texts may share passages
        pairs[i] = number, first, strangers[generator.integers(len(strangers))], 1
    return [pair[1:] for pair in pairs]


def pretraining_batch(tokenizer, rows, *, seed, max_length=128):
    """Tokenize and mask some rows.

    Args:
        tokenizer: the encoder's.
        rows: texts, or triples of `next_sentence_pairs`.
        seed: of the masks.
        max_length: tokens to which a row is cut.

    Returns:
        A PretrainingBatch.
    """
    pairs = not isinstance(rows[0], str)
    columns = list(zip(*rows))[:2] if pairs else [rows]
    coded = tokenizer(
        *map(list, columns),
        truncation=True,
        max_length=max_length,
        padding=True,
        return_token_type_ids=True,
        return_tensors="pt",
    )
    hidden, labels = mask_tokens(coded["input_ids"], tokenizer, seed=seed)
    other = torch.tensor([row[2] for row in rows]) if pairs else None
    return PretrainingBatch(hidden, coded["attention_mask"], coded["token_type_ids"], labels, other)


def pretraining_loss(encoder, heads, batch):
    """Compute the loss of both objectives; only masked words are scored, a seventh of the work.

    Args:
        encoder: a BertModel.
        heads: PretrainingHeads.
        batch: a PretrainingBatch.

    Returns:
        A PretrainingLoss.
    """
    out = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    masked = batch.labels != IGNORED
    scores = heads.predictions(
        out.last_hidden_state[masked], encoder.embeddings.word_embeddings.weight
    )  # [masked words, V]
    # The mean over no word would be nan; the sum of no score is 0.
    words = F.cross_entropy(scores.float(), batch.labels[masked]) if len(scores) else scores.sum()
    if batch.next_sentence is None:
        return PretrainingLoss(words, words)
    follows = F.cross_entropy(
        heads.seq_relationship(out.pooler_output).float(), batch.next_sentence
    )
    return PretrainingLoss(words + follows, words, follows)


@torch.inference_mode()
def fill_mask(encoder, heads, tokenizer, text, *, top=5):
    """List the most probable words for the one [MASK] of a text.

    Args:
        encoder: a BertModel; the mode of each of its modules is restored afterwards.
        heads: PretrainingHeads.
        tokenizer: the encoder's.
        text: a text with one [MASK].
        top: the number of words.

    Returns:
        (word, probability) pairs, the most probable first.

    Raises:
        ValueError: the text has not exactly one mask, or top is below one.
    """
    table = encoder.embeddings.word_embeddings.weight
    coded = tokenizer(text, return_tensors="pt").to(table.device)
    place = coded["input_ids"][0] == tokenizer.mask_token_id
    if place.sum() != 1 or top < 1:
        raise ValueError(
            f"{text!r} has {place.sum()} masks and top is {top}; expected one "
            f"{tokenizer.mask_token} and at least 1."
        )
    with in_eval_mode(encoder):
        hidden = encoder(coded["input_ids"], coded["attention_mask"]).last_hidden_state
    # The heads have no dropout, and so no mode.
    scores = heads.predictions(hidden[0, place], table)[0]  # [V]
    shares, words = scores.float().softmax(-1).topk(min(top, len(scores)))
    return list(zip(tokenizer.convert_ids_to_tokens(words.tolist()), shares.tolist()))
