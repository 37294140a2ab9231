"""The multi-task network of 2015, MT-DNN's forerunner: words as letter trigrams, one shared layer, a small layer for each task.

Liu et al. (2015), as the slides that reproduce MT-DNN sketch it: the historical baseline, without word order or pretrained weights,
trained in seconds. l1: how often each trigram occurs; l2 = tanh(W1 l1), shared; l3 = tanh(W2^t l2), of task t. No biases, as printed.
Notebook 06 uses it. Letters: B batch, V trigrams, C labels.
"""

import itertools
import json
import math
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.data.loading import TaskData
from mmlkit.data.tasks import get_task
from mmlkit.heads.ranking import ranking_loss
from mmlkit.runtime import replacing
from mmlkit.training import metrics

__all__ = ["DSSM", "Hashed", "build_vocabulary", "collisions", "evaluate_dssm", "fit_dssm", "hash_texts", "load_vocabulary",
           "save_vocabulary", "trigrams"]

WORDS = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")      # letters and digits, with an apostrophe inside: don't
AT_A_TIME = 4096        # rows that are scored together


def trigrams(text):
    """How often each letter trigram occurs in a text, as a Counter: "cat" is #cat#, so #ca, cat and at#, one each.

    Words are runs of letters and digits in lower case, each marked by # at both ends; punctuation is left out.
    """
    return Counter(marked[i:i + 3] for word in WORDS.findall(text.lower()) for marked in [f"#{word}#"] for i in range(len(word)))


def build_vocabulary(texts):
    """The sorted tuple of all trigrams in some texts, such as build_vocabulary(data.train.texts).

    texts: strings, or rows of strings. Raises ValueError when there is no trigram in them.
    """
    rows = ([row] if isinstance(row, str) else row for row in texts)
    found = {trigram for text in itertools.chain.from_iterable(rows) for trigram in trigrams(text)}
    if not found:
        raise ValueError("texts hold no word, so there is no trigram; give the training texts, such as data.train.texts.")
    return tuple(sorted(found))


def save_vocabulary(vocabulary, path):
    """Writes a vocabulary as a JSON list; the file appears whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(list(vocabulary), ensure_ascii=False) + "\n", encoding="utf-8")


def load_vocabulary(path):
    """The tuple that `save_vocabulary` wrote. Raises ValueError for a file that holds anything else."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}. Write it again with save_vocabulary.") from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found) or found != sorted(set(found)):
        raise ValueError(f"{path} is no vocabulary: expected a JSON list of trigrams, sorted, none twice. Write it again with save_vocabulary.")
    return tuple(found)


def collisions(words):
    """Tuples of words that hashing cannot tell apart, because their trigrams are the same and as many."""
    alike = defaultdict(list)
    for word in dict.fromkeys(words):
        alike[frozenset(trigrams(word).items())].append(word)
    return [tuple(group) for group in alike.values() if len(group) > 1]


class Hashed(NamedTuple):
    """Texts as numbers of trigrams: l1 without its zeros."""

    ids: list       # one list per text: a trigram's place in the vocabulary, as often as it occurs
    seen: int       # trigrams that are in the vocabulary, counted over all texts
    unseen: int     # those that are not: they are left out


def hash_texts(texts, vocabulary):
    """The Hashed form of some strings. Trigrams outside the vocabulary are left out and counted."""
    place = {trigram: i for i, trigram in enumerate(vocabulary)}
    counts = [trigrams(text) for text in texts]
    ids = [[place[trigram] for trigram in one.elements() if trigram in place] for one in counts]
    seen = sum(map(len, ids))
    return Hashed(ids, seen, sum(one.total() for one in counts) - seen)


class DSSM(nn.Module):
    """Classifies single texts and ranks the candidates of a query, all tasks on one shared layer.

    vocabulary: see `build_vocabulary`. tasks: names or Tasks. hidden_size, task_size: of l2 and l3.
    outputs: of a classification. "sigmoid" is the model's own, one yes or no per class, since a search query may be about several
    things at once; "softmax", the default here, lets the classes compete, because a row of our tasks has exactly one label.
    gamma: a ranking's softmax is over gamma times the cosine of the l3 of query and candidate. The slides print none. A cosine ends at
    1 and -1, so with two candidates and gamma 1 the loss never falls under log(1 + exp(-2)) = 0.1269; with 10 that floor is 2e-9.
    Raises ValueError for sizes below one, a gamma that is not positive, an unknown `outputs`, or a task that is neither kind.

    Example::

        data = {"sst2": load_task("sst2"), "qnli_rank": rank_queries(load_task("qnli"))}
        model = DSSM(build_vocabulary(row for one in data.values() for row in one.train.texts), data)
        fit_dssm(model, data)
    """

    def __init__(self, vocabulary, tasks, *, hidden_size=300, task_size=128, gamma=10.0, outputs="softmax"):
        super().__init__()
        if min(len(vocabulary), hidden_size, task_size) < 1 or not gamma > 0:
            raise ValueError(f"vocabulary has {len(vocabulary)} trigrams; it, hidden_size {hidden_size} and task_size {task_size} must be at least 1, "
                             f"gamma {gamma} above 0.")
        if outputs not in ("softmax", "sigmoid"):
            raise ValueError(f"outputs {outputs!r} is not 'softmax' or 'sigmoid'.")
        self.vocabulary, self.gamma, self.outputs = tuple(vocabulary), gamma, outputs
        self.tasks = {task.name: task for task in map(get_task, tasks)}
        for task in self.tasks.values():
            if task.kind != "ranking" and (task.kind != "classification" or task.is_pair):
                raise ValueError(f"task {task.name!r} is a {task.kind} of {len(task.text_columns)} texts; this model classifies single texts and "
                                 "ranks candidates. Choose a task such as sst2, or see mmlkit.heads.ranking.rank_queries.")
        self.shared = nn.EmbeddingBag(len(self.vocabulary), hidden_size, mode="sum", sparse=True)        # W1, transposed
        self.own = nn.ModuleDict({name: nn.Linear(hidden_size, task_size, bias=False) for name in self.tasks})      # W2^t
        self.classes = nn.ModuleDict({name: nn.Linear(task_size, task.num_labels, bias=False)
                                      for name, task in self.tasks.items() if task.kind == "classification"})
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def vectors(self, task, ids):
        """l3 of some texts of a task, [B,task_size]. task: its name. ids: as in `Hashed`."""
        device = self.shared.weight.device
        starts = torch.tensor([0, *itertools.accumulate(map(len, ids))][:-1], device=device)
        flat = torch.tensor([i for one in ids for i in one], dtype=torch.int64, device=device)
        l2 = torch.tanh(self.shared(flat, starts))      # the rows of W1 that occur, summed: W1 l1 without its zeros
        return torch.tanh(self.own[task](l2))

    def forward(self, task, columns):
        """Scores of rows: logits [B,C], or for a ranking the cosine of query and candidate, [B,1].

        columns: one list of ids per text column of the task.
        """
        if task in self.classes:
            return self.classes[task](self.vectors(task, columns[0]))
        query, candidate = (self.vectors(task, ids) for ids in columns)
        return F.cosine_similarity(query, candidate)[:, None]

    def loss(self, task, columns, labels, groups=None):
        """The mean loss over rows, or over queries, where `groups` tells how many candidates each has; see `ranking_loss`."""
        scores = self(task, columns)
        if task not in self.classes:
            return ranking_loss(scores[:, 0], labels, groups, gamma=self.gamma)
        if self.outputs == "softmax":
            return F.cross_entropy(scores, labels)
        yes = F.one_hot(labels, scores.shape[1]).to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, yes, reduction="sum") / len(scores)


def fit_dssm(model, data, *, epochs=10, lr=0.05, batch_size=32, clip=1.0, seed=0):
    """Trains a DSSM by plain gradient descent, one task's batch per step, and leaves it with the weights of the last epoch.

    data: {task name: TaskData}, or one TaskData. batch_size: rows, or whole queries. In each epoch every batch of every task comes
    once, shuffled: an order that depends on (seed, epoch) alone. clip: largest global gradient norm, or None.
    Returns a DataFrame with a row per epoch and task: epoch, task, train_loss, the dev metrics, seconds.
    Raises ValueError for settings below one or a task the model does not have; FloatingPointError, before any weight moves, when the
    loss or a gradient is not a finite number.
    """
    import pandas as pd

    data = {data.task.name: data} if isinstance(data, TaskData) else dict(data)
    if epochs < 1 or batch_size < 1 or not data:
        raise ValueError(f"epochs {epochs}, batch_size {batch_size} and the number of tasks, {len(data)}, must be at least 1.")
    columns = {name: [hashed.ids for hashed in _columns(model, one.train)] for name, one in data.items()}
    optimizer, history = torch.optim.SGD(model.parameters(), lr=lr), []
    for epoch in range(1, epochs + 1):
        started, losses, generator = time.perf_counter(), defaultdict(list), np.random.default_rng([seed, epoch])
        steps = [(name, batch) for name, one in data.items() for batch in _batches(one.train, batch_size, generator)]
        for i in generator.permutation(len(steps)):
            name, batch = steps[i]
            rows, groups = np.concatenate(batch), [len(candidates) for candidates in batch]
            labels = torch.as_tensor(data[name].train.labels[rows], device=model.shared.weight.device)
            loss = model.loss(name, [[ids[row] for row in rows] for ids in columns[name]], labels, groups)
            optimizer.zero_grad()
            loss.backward()
            norm = _clip([parameter.grad for parameter in model.parameters() if parameter.grad is not None], clip)
            if not (loss.isfinite() and norm.isfinite()):
                raise FloatingPointError(f"the loss of task {name!r} is {loss.item()}, its gradient {norm.item()} in epoch {epoch}. The weights are "
                                         f"those before this step; try a smaller lr than {lr}.")
            optimizer.step()
            losses[name].append(loss.item())
        seconds = round(time.perf_counter() - started, 2)
        history += [{"epoch": epoch, "task": name, "train_loss": sum(losses[name]) / len(losses[name]), **evaluate_dssm(model, one), "seconds": seconds}
                    for name, one in data.items()]
    return pd.DataFrame(history)


@torch.inference_mode()
def evaluate_dssm(model, data, *, split="dev"):
    """The task's own metrics over a whole split, and `unseen`, the share of its trigrams that the vocabulary does not have.

    data: a TaskData, of which `split` is taken. Raises ValueError for a split without labels or a task the model does not have.
    """
    found = data.split(split)
    if found is None or found.labels is None:
        raise ValueError(f"{data.task.name} from {data.source!r} has no split {split!r} with labels.")
    hashed = _columns(model, found)
    parts = [model(found.task.name, [one.ids[start:start + AT_A_TIME] for one in hashed]) for start in range(0, len(found), AT_A_TIME)]
    unseen = sum(one.unseen for one in hashed)
    return {**metrics.compute(found.task, torch.cat(parts).cpu().numpy(), found.labels, found.queries),
            "unseen": unseen / max(unseen + sum(one.seen for one in hashed), 1)}


def _clip(gradients, most):
    """Scales gradients down to a global norm of `most`, if any, and returns the norm before: clip_grad_norm_ cannot read sparse ones."""
    dense = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in dense]))
    if norm > (math.inf if most is None else most):
        for gradient in gradients:
            gradient.mul_(most / norm)
    return norm


def _columns(model, split):
    """A Hashed per text column of a split of one of the model's tasks."""
    task = split.task.name
    if task not in model.tasks:
        raise ValueError(f"This model has no task {task!r}; it has {list(model.tasks)}.")
    return [hash_texts(column, model.vocabulary) for column in zip(*split.texts)]


def _batches(split, batch_size, generator):
    """Lists of examples, shuffled, batch_size each; an example is the row numbers of one query, or one row."""
    examples = list(np.arange(len(split))[:, None])
    if split.queries is not None:
        counts = np.unique(split.queries, return_counts=True)[1]
        examples = np.split(np.argsort(split.queries, kind="stable"), np.cumsum(counts)[:-1])
    order = generator.permutation(len(examples))
    return [[examples[i] for i in order[start:start + batch_size]] for start in range(0, len(order), batch_size)]
