"""Pre-training in miniature: BERT's two objectives (Devlin et al. 2019, section 3.1).

The encoder predicts masked words, and whether a sentence follows another. Parameter names are those
of transformers' BertForPreTraining without "cls.". Notebooks 01 and 08 run it. Letters: B batch,
T tokens, D hidden size, V words.
"""

import re
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.bert.pretrained import read_checkpoint
from mmlkit.data.batching import plan
from mmlkit.runtime import autocast, pick_device, place, seeded
from mmlkit.training.evaluation import in_eval_mode
from mmlkit.training.fast import fast_matmul
from mmlkit.training.optimizers import learning_rate, make_optimizer

__all__ = [
    "PretrainingHeads",
    "PretrainingLoss",
    "fill_mask",
    "load_pretraining_heads",
    "mask_tokens",
    "next_sentence_pairs",
    "pretrain",
    "pretraining_batch",
    "pretraining_loss",
    "split_sentences",
]

IGNORED = -100  # the label of a token that is not predicted, as in torch and transformers
SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["'”’)]))\s+(?=["'“‘(]?[A-Z0-9])""")


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
        D = config.hidden_size
        norm = nn.LayerNorm(D, config.layer_norm_eps)
        self.transform = nn.ModuleDict({"dense": nn.Linear(D, D), "LayerNorm": norm})
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states, table):
        hidden = F.gelu(self.transform["dense"](hidden_states))
        return F.linear(self.transform["LayerNorm"](hidden), table, self.bias)


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


def load_pretraining_heads(name="minilm", *, seed=0):
    """Load the pre-training heads of a checkpoint, in eval mode, for the encoder of the same name.

    A head that the checkpoint lacks is initialised from `seed`, with a warning. The bundled MiniLM
    lacks both, and BertForMaskedLM the second.

    Args:
        name: see `load_pretrained`.
        seed: of the initialisation.

    Returns:
        PretrainingHeads.

    Raises:
        ValueError: the first head has another word table than the encoder.
    """
    config, tensors = read_checkpoint(name)
    with seeded(seed):
        heads = PretrainingHeads(config)
    found = {key[4:]: value for key, value in tensors.items() if key.startswith("cls.")}
    table = found.pop("predictions.decoder.weight", None)
    if table is not None and not torch.equal(table, tensors["embeddings.word_embeddings.weight"]):
        raise ValueError(
            f"{name}: cls.predictions.decoder.weight is not the encoder's word table; choose a "
            "checkpoint that ties the two."
        )
    bias = found.pop("predictions.decoder.bias", None)  # another name of predictions.bias
    if bias is not None:
        found.setdefault("predictions.bias", bias)
    fresh = []
    for part, head in heads.named_children():
        state = {key.removeprefix(f"{part}."): one for key, one in found.items() if part in key}
        if state:
            head.load_state_dict(state)
        else:
            fresh.append(f"cls.{part}")
    if fresh:
        warnings.warn(
            f"{name} has no weights for {' and '.join(fresh)}: they are initialised at "
            "random and need pretrain().",
            stacklevel=2,
        )
    return heads.to(pick_device()).eval()


def mask_tokens(input_ids, tokenizer, *, seed):
    """Mask words as BERT does; a pure function of its arguments.

    15 % of each row's words are drawn, at least one. 80 % of these become [MASK], 10 % a word
    drawn from the vocabulary, and 10 % stay. Special tokens are never drawn, and only [MASK]
    replaces a word.

    Args:
        input_ids: [B, T].
        tokenizer: the encoder's.
        seed: of the draws.

    Returns:
        (masked input_ids [B, T], labels [B, T]: the original word, or -100 where none was drawn).
    """
    generator = torch.Generator().manual_seed(seed)
    special = torch.zeros(len(tokenizer), dtype=torch.bool)
    special[tokenizer.all_special_ids] = True
    words, vocabulary = ~special[input_ids], (~special).nonzero()[:, 0]
    count = (0.15 * words.sum(1)).round().clamp(min=1)
    draws = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    drawn = words & (draws.argsort(1).argsort(1) < count[:, None])  # each row's smallest draws
    fate = torch.rand(input_ids.shape, generator=generator)
    others = vocabulary[torch.randint(len(vocabulary), input_ids.shape, generator=generator)]
    hidden = torch.where(drawn & (fate < 0.9), others, input_ids)
    hidden = hidden.masked_fill(drawn & (fate < 0.8), tokenizer.mask_token_id)
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
        away = generator.integers(1, len(documents))  # any text but its own
        other = documents[(number + away) % len(documents)]
        strangers = [one for one in other if (first, one) not in neighbours]
        strangers = strangers or other  # texts may share passages
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
        The tokenizer's BatchEncoding: input_ids with masks, attention_mask, token_type_ids, labels
        (the original word, or -100 where no word is predicted), all [B, T], and next_sentence [B],
        0 if the second sentence follows the first, 1 if it is from another text; None for texts.
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
    coded["input_ids"], coded["labels"] = mask_tokens(coded["input_ids"], tokenizer, seed=seed)
    coded["next_sentence"] = torch.tensor([row[2] for row in rows]) if pairs else None
    return coded


def pretraining_loss(encoder, heads, batch):
    """Compute the loss of both objectives; only masked words are scored, a seventh of the work.

    Args:
        encoder: a BertModel.
        heads: PretrainingHeads.
        batch: of `pretraining_batch`.

    Returns:
        A PretrainingLoss.
    """
    out = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    masked = batch.labels != IGNORED
    table = encoder.embeddings.word_embeddings.weight
    scores = heads.predictions(out.last_hidden_state[masked], table)  # [masked words, V]
    # The mean over no word would be nan; the sum of no score is 0.
    words = F.cross_entropy(scores.float(), batch.labels[masked]) if len(scores) else scores.sum()
    if batch.next_sentence is None:
        return PretrainingLoss(words, words)
    answers = heads.seq_relationship(out.pooler_output).float()
    follows = F.cross_entropy(answers, batch.next_sentence)
    return PretrainingLoss(words + follows, words, follows)


def pretrain(
    encoder,
    heads,
    texts,
    *,
    tokenizer=None,
    epochs=3,
    lr=1e-4,
    head_lr=None,
    batch_size=16,
    max_length=128,
    warmup=0.1,
    next_sentence=True,
    seed=0,
    device=None,
):
    """Train encoder and heads on plain texts and leave both in eval mode.

    Masks, replaced sentences, order and dropout are drawn anew in each epoch.

    Args:
        encoder: a BertModel. It is moved to `device`, with the heads.
        heads: PretrainingHeads.
        texts: strings of several sentences, or any strings with next_sentence=False.
        tokenizer: the encoder's own by default.
        epochs: passes over the texts.
        lr: peak learning rate of the encoder.
        head_lr: peak learning rate of the heads; lr by default.
        batch_size: rows per batch.
        max_length: tokens to which a row is cut.
        warmup: the share of all steps in which the learning rate rises.
        next_sentence: whether the second objective is trained too.
        seed: of all draws.
        device: see `runtime.place`.

    Returns:
        A DataFrame with a row per step: epoch, step, loss, words, next_sentence.

    Example::

        (encoder, tokenizer), heads = load_pretrained("minilm"), load_pretraining_heads("minilm")
        pretrain(encoder, heads, [text for (text,) in load_task("cfimdb").train.texts])
        fill_mask(encoder, heads, tokenizer, "The film was [MASK].")
    """
    import pandas as pd

    tokenizer = tokenizer or encoder.tokenizer
    both = place(nn.ModuleDict({"encoder": encoder, "heads": heads}), device).train()
    device, history = next(both.parameters()).device, []
    # fp16 needs a scaler, so a GPU that has only fp16 computes in fp32.
    precision = "fp32" if autocast("auto", device)[1] else "auto"
    optimizer = make_optimizer(both, lr=lr, head_lr=head_lr)
    cut = dict(max_length=min(max_length, encoder.config.max_position_embeddings))
    with seeded(seed, device), fast_matmul(device):
        for epoch in range(1, epochs + 1):
            rows = next_sentence_pairs(texts, seed=[seed, epoch]) if next_sentence else texts
            lengths = [len(row[0] + row[1] if next_sentence else row) for row in rows]
            batches = plan(lengths, batch_size, seed=seed, epoch=epoch)
            rate = dict(warmup=int(warmup * epochs * len(batches)), total=epochs * len(batches))
            for numbers in batches:
                step = len(history)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, peak=group["peak"], **rate)
                drawn = int(np.random.default_rng([seed, step]).integers(2**31))
                chosen = [rows[i] for i in numbers]
                batch = pretraining_batch(tokenizer, chosen, seed=drawn, **cut).to(device)
                optimizer.zero_grad()
                with autocast(precision, device)[0]:
                    loss = pretraining_loss(encoder, heads, batch)
                loss.total.backward()
                nn.utils.clip_grad_norm_(both.parameters(), 1.0)
                optimizer.step()
                values = (np.nan if part is None else part.item() for part in loss)
                history.append((epoch, step + 1, *values))
    both.eval()
    return pd.DataFrame(history, columns=["epoch", "step", "loss", "words", "next_sentence"])


@torch.inference_mode()
def fill_mask(encoder, heads, tokenizer, text, *, top=5):
    """List the most probable words for the first [MASK] of a text.

    Args:
        encoder: a BertModel; the mode of each of its modules is restored afterwards.
        heads: PretrainingHeads.
        tokenizer: the encoder's.
        text: a text with a [MASK].
        top: the number of words.

    Returns:
        (word, probability) pairs, the most probable first.

    Raises:
        IndexError: the text has no mask.
    """
    table = encoder.embeddings.word_embeddings.weight
    coded = tokenizer(text, return_tensors="pt").to(table.device)
    gap = coded["input_ids"][0] == tokenizer.mask_token_id
    with in_eval_mode(encoder):
        hidden = encoder(coded["input_ids"], coded["attention_mask"]).last_hidden_state
    # The heads have no dropout, and so no mode.
    scores = heads.predictions(hidden[0, gap], table)[0]  # [V]
    shares, words = scores.float().softmax(-1).topk(top)
    return list(zip(tokenizer.convert_ids_to_tokens(words.tolist()), shares.tolist()))
