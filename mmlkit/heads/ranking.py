"""Ranking: of all candidates of a query, the answer should score highest (MT-DNN, section 3, "Relevance Ranking", Eqs. 5, 8 and 9).

Notebook 06 uses it. Letters: B batch (candidates of all its queries, one after another), D hidden size, Q queries, N candidates.
"""

import dataclasses
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from mmlkit.data.loading import TaskData
from mmlkit.data.tasks import ranking_task
from mmlkit.heads.linear import READS, Loss, at_least_fp32, sentence_vector

__all__ = ["RankingHead", "rank_queries", "ranking_loss"]


def rank_queries(data, *, positive="entailment"):
    """The ranking task in a TaskData of question-answer rows: rows with the same first text are one query's candidates.

    data: such as load_task("qnli"), which stays as it is; leave out its `limit`, which draws rows and so tears queries apart.
    positive: the label of the answer. A query counts when it has one answer and at least one other candidate; the others are
    dropped with a warning that counts them. The task's name is that of the data with "_rank" behind it.
    Raises ValueError when the task is no two-way classification of pairs, or a split has no query that counts.

    Example::

        data = rank_queries(load_task("qnli"))
        model = MultitaskModel(encoder, {"qnli_rank": RankingHead(384)})
    """
    task = ranking_task(data.task, positive)
    splits = {name: None if split is None else _ranked(split, task)
              for name, split in {"train": data.train, "dev": data.dev, "test": data.test, **data.more}.items()}
    return TaskData(task, **{name: splits.pop(name) for name in ("train", "dev", "test")}, source=data.source, more=splits)


def _ranked(split, task):
    numbers = {}
    queries = np.array([numbers.setdefault(text[0], len(numbers)) for text in split.texts], dtype=np.int64)
    if split.labels is None:
        return dataclasses.replace(split, task=task, queries=queries)
    labels = (split.labels == split.task.labels.index(task.labels[1])).astype(np.int64)      # by name: the answer is label 1
    answers, candidates = np.bincount(queries, weights=labels), np.bincount(queries)
    faults = {"no answer": answers == 0, "several answers": answers > 1, "nothing to choose from": (answers == 1) & (candidates == 1)}
    keep = ~np.logical_or.reduce(list(faults.values()))
    what = (f"{task.name} {split.name}: {(~keep).sum()} of {len(numbers)} queries cannot be ranked "
            f"({', '.join(f'{fault.sum()} with {name}' for name, fault in faults.items() if fault.any())})")
    if not keep.any():
        raise ValueError(f"{what}. A query needs rows with the same first text, one of them labelled {task.labels[1]!r}; load the whole set, without limit.")
    if not keep.all():
        warnings.warn(f"{what}; they were dropped.", stacklevel=3)
    return dataclasses.replace(split, task=task, labels=labels, queries=queries).take(np.flatnonzero(keep[queries]))


def ranking_loss(scores, relevant, groups, *, gamma=1.0):
    """Mean over queries of -log softmax(gamma * score) of the answer, Eqs. 8 and 9 with the log that the paper's print leaves out.

    scores: [B]. relevant: [B], 1 for the answer and 0 for other candidates. groups: how many candidates each query has, in order.
    Raises ValueError unless every query has exactly one answer.
    """
    def per_query(values, blank):
        return pad_sequence(values.split(list(groups)), batch_first=True, padding_value=blank)      # [Q,N]

    found = per_query(relevant, 0).sum(1)
    if (found != 1).any():
        raise ValueError(f"a query has {found[found != 1][0].item()} answers among its candidates, expected exactly 1. Make the data with "
                         "rank_queries, and batches of whole queries as fit does.")
    scaled = gamma * at_least_fp32(scores)
    return (per_query(scaled, -torch.inf).logsumexp(1) - per_query(scaled * relevant, 0).sum(1)).mean()


class RankingHead(nn.Module):
    """Rel = w dropout(x) + b on one vector per candidate (MT-DNN, Eq. 5), trained to set a query's answer apart from the rest.

    hidden_size: D. score_activation: "none", or the "sigmoid" of Eq. 5. gamma: Eq. 9's, 1 in the paper. A sigmoid bounds the loss
    from below: with two candidates and gamma 1 it never falls under log(1 + 1/e) = 0.3133, however right the model is.
    dropout, reads: see `LinearHead`. Raises ValueError for sizes below one, a gamma that is not positive, or unknown words.
    """

    pairs, num_labels, kinds = "packed", 1, ("ranking",)

    def __init__(self, hidden_size, *, score_activation="none", gamma=1.0, dropout=0.1, reads="pooler"):
        super().__init__()
        if hidden_size < 1 or not gamma > 0:
            raise ValueError(f"hidden_size {hidden_size} must be at least 1, gamma {gamma} above 0.")
        if score_activation not in ("none", "sigmoid") or reads not in READS:
            raise ValueError(f"score_activation {score_activation!r} must be 'none' or 'sigmoid', reads {reads!r} one of {list(READS)}.")
        self.score_activation, self.gamma, self.reads, self.needs_tokens = score_activation, gamma, reads, reads == "mean"
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(hidden_size, 1)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def inputs(self, out, batch):
        """What this head reads of the encoder's output."""
        return (sentence_vector(out, batch, self.reads),)

    def forward(self, x):
        """x [B,D] to scores [B,1]; each candidate's score depends on itself alone."""
        scores = self.dense(self.dropout(x))
        return scores if self.score_activation == "none" else at_least_fp32(scores).sigmoid()

    def loss(self, inputs, batch):
        """See `ranking_loss`. Raises ValueError for a batch that does not say which candidates belong together."""
        if batch.groups is None:
            raise ValueError(f"task {batch.task.name!r} has rows without queries; make its data with rank_queries.")
        return Loss(ranking_loss(self(*inputs)[:, 0], batch.labels, batch.groups, gamma=self.gamma))

    def penalty(self):
        """The part that does not depend on data: none."""
        return None

    def spec(self):
        """What `load_model` needs to build this head again."""
        return {"type": "ranking", "hidden_size": self.dense.in_features, "score_activation": self.score_activation, "gamma": self.gamma,
                "dropout": self.dropout.p, "reads": self.reads}
