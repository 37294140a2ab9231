"""From texts to batches: encode a split once, plan batches by length, pad each batch.

A plan is a pure function of (lengths, batch_size, seed, epoch), so a checkpoint need not save the
order of the batches. Notebook 02 builds it. Letters: B rows of a batch, T tokens, N rows.
"""

import dataclasses
import itertools
import threading
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from mmlkit.data.tasks import Task

__all__ = ["Batch", "Encoded", "collate", "encode", "plan", "plan_examples"]

# Batches that are sorted together: 97 % of the tokens are then real, against 45 % in random order.
POOL = 50
# A fast tokenizer keeps the length at which it truncates, so threads of a server take turns.
_TOKENIZER = threading.Lock()


@dataclass(frozen=True)
class Encoded:
    """A split as token ids.

    Its length is the number of examples, which a batch size counts: rows, or queries where
    candidates are ranked.

    Args:
        task: the `Task`.
        input_ids: a list of the token ids of each row, [N][tokens].
        token_type_ids: the segment ids, [N][tokens].
        labels: an array [N], or None.
        truncated: how many rows (of separate pairs: sentences) were truncated.
        second: the second sentences of separately encoded pairs (bi-encoder).
        queries: for a ranking, an array [N]: the query that each row is a candidate of.
        features: a frozen encoder's vectors, [N,P,D], for P sentences of a row; or None.

    Raises:
        ValueError: a label is none of the task.
    """

    task: Task
    input_ids: list
    token_type_ids: list
    labels: np.ndarray | None
    truncated: int
    second: "Encoded | None" = None
    queries: np.ndarray | None = None
    features: torch.Tensor | None = None

    def __post_init__(self):
        labels, C = self.labels, len(self.task.labels)
        if labels is None or not C or labels.dtype.kind not in "iu":
            return
        wrong = sorted({*np.unique(labels).tolist()} - {-100, *range(C)})
        if wrong:  # a GPU would stop the process
            raise ValueError(
                f"task {self.task.name!r}: found the labels {wrong[:8]}, expected 0 to {C - 1}, or "
                "-100 where there is none."
            )

    def __len__(self):
        return len(self.input_ids if self.queries is None else np.unique(self.queries))

    @property
    def lengths(self):
        """Tokens of each row, [N]; of the longer sentence where pairs are encoded separately."""
        own = np.array([len(ids) for ids in self.input_ids])
        return own if self.second is None else np.maximum(own, self.second.lengths)


@dataclass(frozen=True)
class Batch:
    """Rows of one task, padded. Its length is the number of examples, as for `Encoded`.

    Args:
        task: the `Task`.
        input_ids: token ids, [B, T].
        attention_mask: 1 for a token and 0 for padding, [B, T].
        token_type_ids: segment ids, [B, T].
        labels: label indices or scores, [B], or None.
        rows: the B row numbers in the split.
        second: the batch of the second sentences of separately encoded pairs.
        groups: for a ranking, the number of candidates of each query. The candidates of one query
            stand in adjacent rows.
        weight: the factor of its loss; below 1 for one process's share of a batch.
        features: those of the `Encoded` split for these rows, [B,P,D], or None.
    """

    task: Task
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    labels: torch.Tensor | None
    rows: tuple
    second: "Batch | None" = None
    groups: tuple | None = None
    weight: float = 1.0
    features: torch.Tensor | None = None

    def __len__(self):
        return len(self.rows if self.groups is None else self.groups)

    def to(self, device):
        """Copy the batch to a device, to a CUDA GPU by way of pinned memory.

        A copy from pinned memory overlaps with work of the host, which then pads the next batch.

        Args:
            device: a torch.device or its name.

        Returns:
            A `Batch` on that device.
        """
        kind = torch.device(device).type

        def moved(part):
            if isinstance(part, Batch):
                return part.to(device)
            if kind == "cuda" and getattr(part, "is_cpu", False):
                part = part.pin_memory()
            # A copy to the CPU would be read before it is done. One to MPS may read freed memory
            # (pytorch issue 189690).
            return part.to(device, non_blocking=kind not in ("cpu", "mps"))

        parts = {name: moved(part) for name, part in vars(self).items() if hasattr(part, "to")}
        return dataclasses.replace(self, **parts)

    def split(self, size):
        """Split the batch into micro-batches, in order. The candidates of a query stay together.

        Args:
            size: the largest number of examples of a micro-batch.

        Yields:
            `Batch` objects.
        """
        for start in range(0, len(self), size):
            yield self.take(range(start, min(start + size, len(self))))

    def take(self, examples):
        """Take some examples of a batch. The padding stays.

        Args:
            examples: their numbers in the batch; of queries, where candidates are ranked.

        Returns:
            A `Batch` of these examples, in this order.
        """
        ends = list(itertools.accumulate(self.groups or [1] * len(self), initial=0))
        rows = [row for i in examples for row in range(ends[i], ends[i + 1])]
        adjacent = range(rows[0], rows[0] + len(rows))
        # Adjacent rows are a view. The numbers of others have to be copied to a GPU.
        place = slice(adjacent.start, adjacent.stop) if rows == list(adjacent) else rows
        names = ("input_ids", "attention_mask", "token_type_ids", "labels", "features")
        parts = {name: getattr(self, name) for name in names}
        return dataclasses.replace(
            self,
            **{name: part if part is None else part[place] for name, part in parts.items()},
            rows=tuple(self.rows[i] for i in rows),
            second=self.second and self.second.take(examples),
            groups=self.groups and tuple(self.groups[i] for i in examples),
        )


def encode(tokenizer, split, *, max_length=512, pairs="packed"):
    """Tokenize a whole split.

    Rows of more than max_length tokens are truncated, in a pair the longer sentence first. A
    warning counts them.

    Args:
        tokenizer: a fast tokenizer of transformers.
        split: a `Split`.
        max_length: the largest number of tokens of a row.
        pairs: "packed" for a cross-encoder, [CLS] a [SEP] b [SEP] with segment ids 0 and 1; or
            "separate" for a bi-encoder, each sentence by itself, as in CS224N's starter code.

    Returns:
        An `Encoded`.

    Raises:
        ValueError: pairs is another word, or the tokenizer leaves out [CLS] or [SEP].
    """
    if pairs not in ("packed", "separate"):
        raise ValueError(f"pairs is {pairs!r}, expected 'packed' or 'separate'.")

    def tokens(*columns):
        with _TOKENIZER:
            coded = tokenizer(
                *columns,
                truncation="longest_first",
                max_length=max_length,
                return_attention_mask=False,
                return_token_type_ids=True,
            )
        truncated = sum(bool(row.overflowing) for row in coded.encodings)
        ids, segments = coded["input_ids"], coded["token_type_ids"]
        first = tokenizer.convert_ids_to_tokens(ids[0])
        marks = tokenizer.cls_token or "[CLS]", tokenizer.sep_token or "[SEP]"
        if first[0] != marks[0] or first.count(marks[1]) < len(columns):
            raise ValueError(
                f"The tokenizer puts no {marks[0]} before a row, or no {marks[1]} after each text: "
                f"{first[:12]}. Its tokenizer.json lacks BERT's post-processor."
            )
        return Encoded(split.task, ids, segments, split.labels, truncated, queries=split.queries)

    columns, texts = list(map(list, zip(*split.texts))), len(split)
    if pairs == "packed" or not split.task.is_pair:
        encoded = tokens(*columns)
    else:
        encoded, second = map(tokens, columns)
        truncated, texts = encoded.truncated + second.truncated, 2 * texts
        encoded = dataclasses.replace(encoded, second=second, truncated=truncated)
    if encoded.truncated:
        warnings.warn(
            f"{split.task.name} {split.name}: {encoded.truncated} of {texts} inputs longer than "
            f"{max_length} tokens were truncated.",
            stacklevel=2,
        )
    return encoded


def plan(lengths, batch_size, *, seed=None, epoch=0):
    """Distribute rows over batches, so that rows of similar length come together.

    With a seed, the rows are shuffled and sorted by length within pools of 50 batches; then the
    batches are shuffled. Without a seed, all rows are sorted by length, longest first, which is
    for prediction.

    Args:
        lengths: the length of each row, [N].
        batch_size: rows of a batch; the one with the last rows may have fewer.
        seed: a whole number, or None.
        epoch: a whole number; every epoch has another order.

    Returns:
        A list of batches, each a list of row numbers.
    """
    lengths = np.asarray(lengths)
    if seed is None:
        order = np.argsort(-lengths, kind="stable")  # if memory is short, the first batch shows it
    else:
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        pools = np.arange(len(order)) // (POOL * batch_size)
        order = order[np.lexsort((lengths[order], pools))]
    batches = [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
    return batches if seed is None else [batches[i] for i in generator.permutation(len(batches))]


def plan_examples(encoded, batch_size, *, seed, epoch):
    """Distribute examples over batches as `plan` does, and keep the candidates of a query together.

    A query counts as one example, because it is one term of the loss's mean. Where its candidates
    need too much memory, micro-batches split the batch between queries.

    Args:
        encoded: an `Encoded`.
        batch_size: examples of a batch.
        seed: a whole number.
        epoch: a whole number.

    Returns:
        A list of batches, each a list of row numbers.
    """
    if encoded.queries is None:
        return plan(encoded.lengths, batch_size, seed=seed, epoch=epoch)
    counts = np.unique(encoded.queries, return_counts=True)[1]
    rows = np.split(np.argsort(encoded.queries, kind="stable"), np.cumsum(counts)[:-1])
    lengths = encoded.lengths
    longest = [lengths[candidates].max() for candidates in rows]
    batches = plan(longest, batch_size, seed=seed, epoch=epoch)
    return [[int(i) for query in batch for i in rows[query]] for batch in batches]


def collate(encoded, rows, *, multiple=1, limit=512):
    """Pad rows to the longest row among them.

    `fit` pads to a multiple of 8 on a GPU, so that few shapes occur. On a CPU this would cost 12 %
    more time.

    Args:
        encoded: an `Encoded`.
        rows: row numbers.
        multiple: the number of tokens is a multiple of this number, or `limit`.
        limit: the largest number of tokens of a row.

    Returns:
        A `Batch` of these rows, in this order.
    """
    rows = list(rows)
    lengths = np.array([len(encoded.input_ids[i]) for i in rows])
    width = max(lengths.max(), min(-(-lengths.max() // multiple) * multiple, limit))
    mask = np.arange(width) < lengths[:, None]  # [B,T]

    def padded(lists):
        values = np.zeros(mask.shape, dtype=np.int64)  # 0 is [PAD]
        values[mask] = list(itertools.chain(*(lists[i] for i in rows)))
        return torch.from_numpy(values)

    labels = None if encoded.labels is None else torch.as_tensor(encoded.labels[rows])
    if labels is not None:  # torch's cross-entropy takes no int32, and some devices no float64
        labels = labels.float() if labels.is_floating_point() else labels.long()
    groups = None
    if encoded.queries is not None:
        same = itertools.groupby(encoded.queries[rows])
        groups = tuple(len(list(candidates)) for _, candidates in same)
    return Batch(
        encoded.task,
        padded(encoded.input_ids),
        torch.from_numpy(mask).long(),
        padded(encoded.token_type_ids),
        labels,
        tuple(rows),
        encoded.second and collate(encoded.second, rows, multiple=multiple, limit=limit),
        groups,
        features=None if encoded.features is None else encoded.features[rows],
    )
