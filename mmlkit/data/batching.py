"""From texts to batches: encode once, plan by length, collate to the batch's own longest row.

Plans are pure functions of (lengths, batch_size, seed, epoch), so that nothing about order needs to be saved.
"""

import dataclasses
import itertools
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from mmlkit.data.tasks import Task
from mmlkit.messages import count

__all__ = ["Encoded", "Batch", "encode", "plan", "plan_examples", "collate"]

POOL = 50       # batches that are sorted together: 97 % of a batch is then real tokens, against 45 % in random order


@dataclass(frozen=True)
class Encoded:
    """A split as token ids. `truncated` counts the rows that were cut to max_length."""

    task: Task
    input_ids: list             # one list of ids per row
    token_type_ids: list
    labels: np.ndarray | None
    truncated: int
    second: "Encoded | None" = None     # the second sentences, where pairs are encoded apart
    queries: np.ndarray | None = None   # which query each row is a candidate of, where they are ranked

    def __len__(self):
        """Examples, what batch_size counts: rows, or queries where their candidates are ranked."""
        return len(self.input_ids) if self.queries is None else len(np.unique(self.queries))

    @property
    def lengths(self):
        """Tokens of each row, as an array; of the longer sentence where pairs are encoded apart."""
        own = np.array([len(ids) for ids in self.input_ids])
        return own if self.second is None else np.maximum(own, self.second.lengths)


@dataclass(frozen=True)
class Batch:
    """Some rows of one task, ready for the model. Shapes: [B,T]; labels [B].

    Its length counts examples: rows, or whole queries where their candidates are ranked.
    """

    task: Task
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    labels: torch.Tensor | None
    rows: tuple
    second: "Batch | None" = None       # the second sentences, where pairs are encoded apart
    groups: tuple | None = None         # ranking: how many candidates each query has, one query's rows after another's

    def __len__(self):
        return len(self.rows if self.groups is None else self.groups)

    def to(self, device):
        """The batch on another device."""
        moved = {field.name: getattr(self, field.name).to(device, non_blocking=True) for field in dataclasses.fields(self)
                 if isinstance(getattr(self, field.name), torch.Tensor)}
        return dataclasses.replace(self, **moved, second=None if self.second is None else self.second.to(device))

    def split(self, size):
        """The batch in micro-batches of at most `size` examples, in order; a query's candidates stay together."""
        seconds = None if self.second is None else self.second.split(size)
        ends = list(itertools.accumulate(self.groups or [1] * len(self), initial=0))
        for start in range(0, len(self), size):
            rows = slice(ends[start], ends[min(start + size, len(self))])
            part = {field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)
                    if field.name not in ("task", "second", "groups") and getattr(self, field.name) is not None}
            yield dataclasses.replace(self, **part, second=None if seconds is None else next(seconds),
                                      groups=None if self.groups is None else self.groups[start:start + size])


def encode(tokenizer, split, *, max_length=512, pairs="packed"):
    """Token ids of a whole split.

    pairs: "packed" as [CLS] a [SEP] b [SEP] with segment ids 0 and 1, or "separate", each sentence by itself (CS224N's starter
    code). Rows longer than max_length tokens are cut (the longer sentence of a packed pair first), counted, and told once.
    Raises ValueError for other words.
    """
    if pairs not in ("packed", "separate"):
        raise ValueError(f"pairs is {pairs!r}, expected 'packed' or 'separate'.")
    if pairs == "separate" and split.task.is_pair:
        first, second = (encode(tokenizer, dataclasses.replace(split, texts=[(row[i],) for row in split.texts]), max_length=max_length)
                         for i in (0, 1))
        return dataclasses.replace(first, second=second, truncated=first.truncated + second.truncated)
    texts = [list(column) for column in zip(*split.texts)]
    coded = tokenizer(*texts, truncation="longest_first", max_length=max_length, padding=False, return_attention_mask=False,
                      return_token_type_ids=True)
    truncated = sum(bool(encoding.overflowing) for encoding in coded.encodings)
    if truncated:
        rows = count(len(split), "row")
        are, were = ("are", "were") if truncated > 1 else ("is", "was")
        warnings.warn(f"{split.task.name} {split.name}: {truncated} of {rows} {are} longer than {max_length} "
                      f"tokens and {were} cut there.", stacklevel=2)
    return Encoded(split.task, coded["input_ids"], coded["token_type_ids"], split.labels, truncated, queries=split.queries)


def plan(lengths, batch_size, *, seed=None, epoch=0):
    """Lists of row numbers, one list a batch, rows of similar length together.

    With a seed: shuffled, sorted by length within pools of 50 batches, and the batches shuffled again; a pure function
    of its arguments. Without: sorted by length, for prediction.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1.")
    lengths = np.asarray(lengths)
    if seed is None:
        order = np.argsort(-lengths, kind="stable")      # longest first: too little memory shows at once
        return [order[i:i + batch_size].tolist() for i in range(0, len(order), batch_size)]
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), POOL * batch_size):
        pool = order[start:start + POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i:i + batch_size].tolist() for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in generator.permutation(len(batches))]


def plan_examples(encoded, batch_size, *, seed, epoch):
    """As `plan`, for an Encoded: lists of row numbers, batch_size examples each. Where candidates are ranked, queries stay whole.

    A query counts as one example, however many candidates it has, because it is one term of the loss's mean; where that is too
    much for the memory, micro-batches split between queries. Queries of similar longest candidates come together.
    """
    if encoded.queries is None:
        return plan(encoded.lengths, batch_size, seed=seed, epoch=epoch)
    lengths, counts = encoded.lengths, np.unique(encoded.queries, return_counts=True)[1]
    rows = np.split(np.argsort(encoded.queries, kind="stable"), np.cumsum(counts)[:-1])
    longest = [lengths[candidates].max() for candidates in rows]
    return [[int(i) for query in batch for i in rows[query]] for batch in plan(longest, batch_size, seed=seed, epoch=epoch)]


def collate(encoded, rows):
    """The Batch of these rows, padded to its own longest (not to a multiple of 8: that costs 12 % on a CPU)."""
    second = None if encoded.second is None else collate(encoded.second, rows)
    longest = max(len(encoded.input_ids[i]) for i in rows)
    input_ids = np.zeros((len(rows), longest), dtype=np.int64)      # 0 is BERT's [PAD]; masked either way
    attention_mask, token_type_ids = np.zeros_like(input_ids), np.zeros_like(input_ids)
    for j, i in enumerate(rows):
        ids = encoded.input_ids[i]
        input_ids[j, :len(ids)], attention_mask[j, :len(ids)] = ids, 1
        token_type_ids[j, :len(ids)] = encoded.token_type_ids[i]
    labels = None if encoded.labels is None else torch.as_tensor(encoded.labels[list(rows)])
    groups = None
    if encoded.queries is not None:
        groups = tuple(len(list(same)) for _, same in itertools.groupby(encoded.queries[list(rows)]))
    return Batch(encoded.task, torch.from_numpy(input_ids), torch.from_numpy(attention_mask), torch.from_numpy(token_type_ids),
                 labels, tuple(rows), second, groups)
