"""Pre-training in miniature: BERT's two objectives, with which the encoders that the other modules load were made.

Devlin et al. (2019), section 3.1: say which word stood under a mask, and whether a sentence follows another. Parameter names are those of
transformers' BertForPreTraining without "cls.". Notebook 06 runs it. Letters: B batch, T tokens, D hidden size, V words.
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
from mmlkit.runtime import fast_matmul, seeded
from mmlkit.training.optimizers import learning_rate, make_optimizer

__all__ = ["PretrainingBatch", "PretrainingHeads", "PretrainingLoss", "fill_mask", "load_pretraining_heads", "mask_tokens", "next_sentence_pairs",
           "pretrain", "pretraining_batch", "pretraining_loss", "split_sentences"]

UNASKED = -100          # the label of a token that is not to be predicted; torch's and transformers' number
SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["'”’)]))\s+(?=["'“‘(]?[A-Z0-9])""")


class PretrainingBatch(NamedTuple):
    """Some rows with words masked. Shapes [B,T], next_sentence [B]."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    labels: torch.Tensor                            # the word that stood there, or -100 where none is asked for
    next_sentence: torch.Tensor | None = None       # 0: the second sentence follows the first, 1: it is from another text

    def to(self, device):
        """The batch on another device."""
        return PretrainingBatch(*(None if one is None else one.to(device) for one in self))


class PretrainingLoss(NamedTuple):
    """The loss of one batch."""

    total: torch.Tensor                             # the sum of the other two
    words: torch.Tensor                             # mean over the words that are asked for
    next_sentence: torch.Tensor | None = None       # mean over the rows


class _WordHead(nn.Module):
    """LayerNorm(gelu(W h + b)) E^T + c: a score for every word, with the word table E of the encoder."""

    def __init__(self, config):
        super().__init__()
        D, eps = config.hidden_size, config.layer_norm_eps
        self.transform = nn.ModuleDict({"dense": nn.Linear(D, D), "LayerNorm": nn.LayerNorm(D, eps)})
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states, table):
        return F.linear(self.transform["LayerNorm"](F.gelu(self.transform["dense"](hidden_states))), table, self.bias)


class PretrainingHeads(nn.Module):
    """What stands on the encoder while it is pre-trained: a head that names words, and one that tells whether a sentence follows.

    config: the encoder's. The first head's last layer is the encoder's word table, handed in at each call: one parameter, which
    therefore gets the gradient of both its uses. Fresh weights are drawn as the encoder's.
    """

    def __init__(self, config):
        super().__init__()
        self.predictions = _WordHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)
        for layer in (self.predictions.transform["dense"], self.seq_relationship):
            nn.init.normal_(layer.weight, std=config.initializer_range)
            nn.init.zeros_(layer.bias)

    def forward(self, out, table):
        """(scores of words [B,T,V], scores of "follows" and "does not" [B,2]). out: the encoder's. table: its word table [V,D]."""
        return self.predictions(out.last_hidden_state, table), self.seq_relationship(out.pooler_output)


def load_pretraining_heads(name="minilm", *, seed=0):
    """The heads of a checkpoint, in eval mode; go with the encoder that load_pretrained gives for the same name.

    name: see `load_pretrained`. A head that the checkpoint does not have (the bundled MiniLM has neither, BertForMaskedLM one) starts
    from fresh weights drawn from `seed`, and a warning says so.
    Raises ValueError for a head that is there in part, does not fit the configuration, or has a word table other than the encoder's.
    """
    config, tensors = read_checkpoint(name)
    with seeded(seed):
        heads = PretrainingHeads(config)
    found = {key.removeprefix("cls."): tensor for key, tensor in tensors.items() if key.startswith("cls.")}
    table = found.pop("predictions.decoder.weight", None)
    if table is not None and not torch.equal(table, tensors["embeddings.word_embeddings.weight"]):
        raise ValueError(f"{name}: cls.predictions.decoder.weight is not the encoder's word table; choose a checkpoint that ties the two.")
    if "predictions.decoder.bias" in found:
        found.setdefault("predictions.bias", found.pop("predictions.decoder.bias"))     # two names of one thing
    there = {key.split(".")[0] for key in found}
    expected = {key: list(value.shape) for key, value in heads.state_dict().items() if key.split(".")[0] in there}
    shapes = {key: list(found[key].shape) if key in found else "missing" for key in expected}
    if shapes != expected:
        wrong = "; ".join(f"cls.{key}: {shapes[key]}, expected {expected[key]}" for key in expected if shapes[key] != expected[key])
        raise ValueError(f"{name}: the heads do not fit the configuration. {wrong}. Copy or download the checkpoint again.")
    heads.load_state_dict({key: found[key].float() for key in expected}, strict=False)
    if fresh := [f"cls.{part}" for part, _ in heads.named_children() if part not in there]:
        warnings.warn(f"{name} has no weights for {' and '.join(fresh)}: they start fresh, and know nothing before pretrain().", stacklevel=2)
    return heads.eval()


def mask_tokens(input_ids, tokenizer, *, seed, share=0.15):
    """(input_ids with words hidden, labels), both [B,T]; a pure function of its arguments.

    Of each row's words a share is drawn, at least one; of these 80 % become [MASK], 10 % a word drawn from the vocabulary, and 10 % stay,
    so that the encoder cannot know which words it will be asked for. labels: the word that stood there, -100 where none was drawn.
    Special tokens ([CLS], [SEP], [PAD], [UNK], [MASK]) are never drawn, nor put in a word's place but for [MASK].
    Raises ValueError for a share outside (0, 1] or a tokenizer without [MASK].
    """
    if not 0 < share <= 1 or tokenizer.mask_token_id is None:
        raise ValueError(f"share is {share}, expected above 0 and at most 1; the tokenizer's mask token is {tokenizer.mask_token!r}, expected one.")
    generator = torch.Generator().manual_seed(seed)
    special = torch.zeros(len(tokenizer), dtype=torch.bool)
    special[tokenizer.all_special_ids] = True
    words, vocabulary = ~special[input_ids], (~special).nonzero()[:, 0]
    count = (share * words.sum(1)).round().clamp(min=1)
    draws = torch.rand(input_ids.shape, generator=generator).masked_fill(~words, 2.0)
    drawn = words & (draws.argsort(1).argsort(1) < count[:, None])      # the `count` smallest draws of each row
    fate = torch.rand(input_ids.shape, generator=generator)
    others = vocabulary[torch.randint(len(vocabulary), input_ids.shape, generator=generator)]
    hidden = torch.where(drawn & (fate < 0.9), others, input_ids).masked_fill(drawn & (fate < 0.8), tokenizer.mask_token_id)
    return hidden, input_ids.masked_fill(~drawn, UNASKED)


def split_sentences(text):
    """The sentences of a text, cut after . ! or ? where a space and a capital or a digit follow (after "Dr." too)."""
    return SENTENCE_END.split(text.strip())


def next_sentence_pairs(texts, *, seed=0):
    """A list of (sentence, sentence, label) for every two neighbours in the texts; a pure function of its arguments.

    Half of the second sentences, drawn, are exchanged for one of another text. Labels as in transformers: 0 follows, 1 does not.
    Raises ValueError when fewer than two texts have several sentences.
    """
    documents = [sentences for sentences in map(split_sentences, texts) if len(sentences) > 1]
    if len(documents) < 2:
        raise ValueError(f"{len(documents)} of {len(texts)} texts have several sentences, expected at least two; or pretrain(next_sentence=False).")
    generator = np.random.default_rng(seed)
    pairs = [(number, first, second, 0) for number, sentences in enumerate(documents) for first, second in zip(sentences, sentences[1:])]
    neighbours = {pair[1:3] for pair in pairs}
    for i in generator.permutation(len(pairs))[:len(pairs) // 2]:
        number, first = pairs[i][:2]
        other = documents[(number + generator.integers(1, len(documents))) % len(documents)]       # any text but its own
        strangers = [second for second in other if (first, second) not in neighbours] or other      # texts may share passages
        pairs[i] = number, first, strangers[generator.integers(len(strangers))], 1
    return [pair[1:] for pair in pairs]


def pretraining_batch(tokenizer, rows, *, seed, max_length=128):
    """The PretrainingBatch of some texts, or of some triples of `next_sentence_pairs`."""
    pairs = not isinstance(rows[0], str)
    columns = list(zip(*rows))[:2] if pairs else [rows]
    coded = tokenizer(*map(list, columns), truncation=True, max_length=max_length, padding=True, return_token_type_ids=True, return_tensors="pt")
    hidden, labels = mask_tokens(coded["input_ids"], tokenizer, seed=seed)
    other = torch.tensor([row[2] for row in rows]) if pairs else None
    return PretrainingBatch(hidden, coded["attention_mask"], coded["token_type_ids"], labels, other)


def pretraining_loss(encoder, heads, batch):
    """The PretrainingLoss of a batch. Only the words that are asked for are scored: a seventh of the work, the same loss."""
    out = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    asked = batch.labels != UNASKED
    scores = heads.predictions(out.last_hidden_state[asked], encoder.embeddings.word_embeddings.weight)      # [words asked for, V]
    words = F.cross_entropy(scores.float(), batch.labels[asked])
    if batch.next_sentence is None:
        return PretrainingLoss(words, words)
    follows = F.cross_entropy(heads.seq_relationship(out.pooler_output).float(), batch.next_sentence)
    return PretrainingLoss(words + follows, words, follows)


def pretrain(encoder, heads, texts, *, tokenizer=None, epochs=3, lr=1e-4, head_lr=None, batch_size=16, max_length=128, warmup=0.1,
             next_sentence=True, seed=0):
    """Trains encoder and heads on plain texts and leaves both in eval mode.

    texts: strings of several sentences each, or any strings with next_sentence=False. tokenizer: the encoder's own when left out.
    lr, head_lr: peak rates of encoder and heads, reached after the share `warmup` of all steps. Masks, exchanged sentences, order and
    dropout are drawn anew in each epoch, from `seed`.
    Returns a DataFrame with a row per step: epoch, step, loss, words, next_sentence. Raises ValueError for settings below one or no
    tokenizer; FloatingPointError, before any weight moves, when the loss or a gradient is not a finite number.

    Example::

        (encoder, tokenizer), heads = load_pretrained("minilm"), load_pretraining_heads("minilm")
        pretrain(encoder, heads, [text for (text,) in load_task("cfimdb").train.texts])
        fill_mask(encoder, heads, tokenizer, "The film was [MASK].")
    """
    import pandas as pd

    tokenizer, texts = tokenizer or encoder.tokenizer, list(texts)
    if tokenizer is None or min(epochs, batch_size, len(texts)) < 1:
        raise ValueError(f"epochs {epochs}, batch_size {batch_size} and the number of texts, {len(texts)}, must be at least 1, and a tokenizer must "
                         f"be known (it is {tokenizer and type(tokenizer).__name__}): pass tokenizer=.")
    device, max_length = encoder.embeddings.word_embeddings.weight.device, min(max_length, encoder.config.max_position_embeddings)
    both = nn.ModuleDict({"encoder": encoder, "heads": heads}).train()
    optimizer, history = make_optimizer(both, lr=lr, head_lr=head_lr), []
    with seeded(seed, device), fast_matmul(device):
        for epoch in range(1, epochs + 1):
            rows = next_sentence_pairs(texts, seed=[seed, epoch]) if next_sentence else texts
            batches = plan([len(row[0] + row[1] if next_sentence else row) for row in rows], batch_size, seed=seed, epoch=epoch)
            for numbers in batches:
                step, total = len(history), epochs * len(batches)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, peak=group["peak"], warmup=int(warmup * total), total=total)
                drawn = int(np.random.default_rng([seed, step]).integers(2**31))
                batch = pretraining_batch(tokenizer, [rows[i] for i in numbers], seed=drawn, max_length=max_length)
                loss = _update(encoder, heads, batch.to(device), optimizer)
                history.append((epoch, step + 1, *(np.nan if part is None else part.item() for part in loss)))
    both.eval()
    return pd.DataFrame(history, columns=["epoch", "step", "loss", "words", "next_sentence"])


def _update(encoder, heads, batch, optimizer):
    optimizer.zero_grad()
    loss = pretraining_loss(encoder, heads, batch)
    loss.total.backward()
    norm = nn.utils.clip_grad_norm_([parameter for group in optimizer.param_groups for parameter in group["params"]], 1.0)
    if not (loss.total.isfinite() and norm.isfinite()):
        raise FloatingPointError(f"the loss is {loss.total.item()}, its gradient {norm.item()}; the weights are those before this step. Try a smaller lr.")
    optimizer.step()
    return loss


@torch.inference_mode()
def fill_mask(encoder, heads, tokenizer, text, *, top=5):
    """The `top` likeliest words in place of the text's one [MASK], as (word, probability), the likeliest first.

    Raises ValueError unless the text has exactly one mask, or for a `top` below one.
    """
    table = encoder.embeddings.word_embeddings.weight
    coded = tokenizer(text, return_tensors="pt").to(table.device)
    place = coded["input_ids"][0] == tokenizer.mask_token_id
    if place.sum() != 1 or top < 1:
        raise ValueError(f"{text!r} has {place.sum()} masks and top is {top}; expected one {tokenizer.mask_token} and at least 1.")
    was_training = encoder.training
    hidden = encoder.eval()(coded["input_ids"], coded["attention_mask"]).last_hidden_state
    encoder.train(was_training)
    scores = heads.predictions(hidden[0, place], table)[0]        # [V]; the heads have no dropout, and so no mode
    shares, words = scores.float().softmax(-1).topk(min(top, len(scores)))
    return list(zip(tokenizer.convert_ids_to_tokens(words.tolist()), shares.tolist()))
