"""Relevance ranking: the answer of a query should score highest (MT-DNN, section 3, Eqs. 5, 8, 9).

Notebook 08 uses it. Letters: B batch (the candidates of all its queries), D hidden size, Q queries,
N candidates.
"""

import dataclasses
import warnings

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from mmlkit.data.loading import TaskData
from mmlkit.data.tasks import ranking_task
from mmlkit.heads.linear import LinearHead, Loss, at_least_fp32, sentence_vector

__all__ = ["RankingHead", "rank_queries", "ranking_loss"]


def rank_queries(data, *, positive="entailment"):
    """Turn question-answer rows into a ranking task: rows with the same first text form a query.

    A query needs one answer and at least one other candidate. Other queries are dropped, and a
    warning counts them. The new task has the old name with "_rank" behind it.

    Args:
        data: a TaskData such as load_task("qnli"), which is not changed. Load it without `limit`,
            which would tear queries apart.
        positive: the label of the answer.

    Returns:
        A TaskData whose splits have queries, and whose label 1 is the answer.

    Raises:
        ValueError: the task is no two-way classification of pairs, or a split has no usable query
            (both raised in functions that this one calls).

    Example::

        data = rank_queries(load_task("qnli"))
        model = MultitaskModel(encoder, {"qnli_rank": RankingHead(384)})
    """
    task = ranking_task(data.task, positive)
    splits = {name: _ranked(split, task) for name, split in data.splits.items()}
    main = {name: splits.pop(name, None) for name in ("train", "dev", "test")}
    return TaskData(task, **main, source=data.source, more=splits)


def _ranked(split, task):
    numbers = {}
    queries = [numbers.setdefault(text[0], len(numbers)) for text in split.texts]
    queries = np.array(queries, dtype=np.int64)
    if split.labels is None:
        return dataclasses.replace(split, task=task, queries=queries)
    # By name: the answer becomes label 1, whatever its index was.
    labels = (split.labels == split.task.labels.index(task.labels[1])).astype(np.int64)
    answers, candidates = np.bincount(queries, weights=labels), np.bincount(queries)
    faults = {
        "no answer": answers == 0,
        "several answers": answers > 1,
        "nothing to choose from": (answers == 1) & (candidates == 1),
    }
    bad = np.logical_or.reduce(list(faults.values()))
    if bad.any():
        counts = ", ".join(f"{fault.sum()} with {name}" for name, fault in faults.items())
        found = f"{bad.sum()} of {len(numbers)} queries cannot be ranked ({counts})"
        text = (
            f"{task.name} {split.name}: {found}. A query needs rows with the same first text, one "
            f"of them labelled {task.labels[1]!r}; load the whole set, without limit."
        )
        if bad.all():
            raise ValueError(text)
        warnings.warn(f"{text} These queries were dropped.", stacklevel=3)
    ranked = dataclasses.replace(split, task=task, labels=labels, queries=queries)
    return ranked.take(np.flatnonzero(~bad[queries]))


def ranking_loss(scores, relevant, groups, *, gamma=1.0):
    """Average -log softmax(gamma * score) of the answer over queries (Eqs. 8 and 9).

    The paper's print leaves the logarithm out.

    Args:
        scores: [B].
        relevant: [B], 1 for the answer and 0 for other candidates.
        groups: the number of candidates of each query, in order.
        gamma: the factor on the scores.

    Returns:
        A scalar. NaN where a query has no answer, or several.
    """

    def per_query(values, blank):
        parts = values.split(list(groups))
        return pad_sequence(parts, batch_first=True, padding_value=blank)  # [Q, N]

    scaled = gamma * at_least_fp32(scores)
    losses = per_query(scaled, -torch.inf).logsumexp(1) - per_query(scaled * relevant, 0).sum(1)
    return losses.masked_fill(per_query(relevant, 0).sum(1) != 1, torch.nan).mean()


class RankingHead(LinearHead):
    """One linear score per candidate, Rel = w dropout(x) + b (MT-DNN, Eq. 5).

    A sigmoid bounds the loss from below: with two candidates and gamma 1 it never falls under
    log(1 + 1/e) = 0.3133.

    Args:
        hidden_size: D.
        activation: None, or the "sigmoid" of Eq. 5.
        gamma: of Eq. 9; 1 in the paper.
        dropout: see `LinearHead`.
        pooling: see `sentence_vector`.
    """

    def __init__(self, hidden_size, *, activation=None, gamma=1.0, dropout=0.1, pooling="pooler"):
        super().__init__(hidden_size, 1, dropout=dropout, pooling=pooling, activation=activation)
        self.gamma = gamma

    def inputs(self, out, batch):
        """Select the sentence vector from the encoder's output.

        Args:
            out: the encoder's output.
            batch: the Batch that was encoded.

        Returns:
            (sentence vectors [B, D],).
        """
        return (sentence_vector(out, batch, self.pooling),)

    def loss(self, inputs, batch):
        """Compute `ranking_loss` of a batch.

        Args:
            inputs: what `inputs` returned.
            batch: the Batch, with labels [B] and groups.

        Returns:
            A Loss.
        """
        scores = self(*inputs)[:, 0]
        return Loss(ranking_loss(scores, batch.labels, batch.groups, gamma=self.gamma))

    def to_config(self):
        """Return the keywords that build this head again."""
        config = {**super().to_config(), "gamma": self.gamma}
        del config["num_labels"]
        return config
