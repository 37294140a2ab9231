"""The multi-task network of 2015, MT-DNN's forerunner: letter trigrams and one shared layer.

Liu et al. (2015), as in the slides that reproduce MT-DNN: a historical baseline without word order
or pretrained weights that trains in seconds. l1 counts each trigram; l2 = tanh(W1 l1) is shared;
l3 = tanh(W2^t l2) belongs to task t. There are no biases, as printed. Notebook 08 uses this module.
Letters: B batch, V trigrams, C labels.
"""

import itertools
import re
from collections import Counter, defaultdict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.data.tasks import get_task
from mmlkit.heads.ranking import ranking_loss
from mmlkit.training import metrics

__all__ = [
    "DSSM",
    "build_vocabulary",
    "evaluate_dssm",
    "fit_dssm",
    "hash_texts",
    "trigrams",
]

WORDS = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # with an apostrophe inside: don't


def trigrams(text):
    """Return how often each letter trigram occurs in a text.

    Words are runs of letters and digits in lower case, with # at both ends. Punctuation is ignored.

    Args:
        text: a string.

    Returns:
        A Counter.

    Example::

        trigrams("cat")  # #cat# has #ca, cat and at#, one each
    """
    return Counter(
        f"#{word}#"[i : i + 3] for word in WORDS.findall(text.lower()) for i in range(len(word))
    )


def build_vocabulary(texts):
    """Return the sorted tuple of all trigrams in some texts.

    Args:
        texts: strings, or rows of strings such as data.train.texts.

    Returns:
        The vocabulary, a tuple of trigrams.
    """
    rows = ([row] if isinstance(row, str) else row for row in texts)
    return tuple(sorted(set().union(*(trigrams(text) for row in rows for text in row))))


def hash_texts(texts, vocabulary):
    """Return texts in the form that a DSSM takes: l1 without its zeros.

    Args:
        texts: strings.
        vocabulary: the tuple of `build_vocabulary`.

    Returns:
        One list per text, with a trigram's place in the vocabulary as often as it occurs. Trigrams
        outside the vocabulary are left out.
    """
    place = {trigram: i for i, trigram in enumerate(vocabulary)}
    return [[place[one] for one in trigrams(text).elements() if one in place] for text in texts]


class DSSM(nn.Module):
    """A network that classifies single texts and ranks the candidates of a query.

    A classification takes a softmax, because a row has one label. The paper has a sigmoid for each
    class, because a search query may have several topics.

    All tasks share one layer. A ranking takes the softmax over gamma * cosine of query and
    candidate. The slides print no gamma. A cosine is between -1 and 1, so with two candidates and
    gamma = 1 the loss cannot fall below log(1 + exp(-2)) = 0.1269; with 10 the bound is 2e-9.

    Args:
        vocabulary: the tuple of `build_vocabulary`.
        tasks: names or Tasks.
        hidden_size: size of l2.
        task_size: size of l3.
        gamma: the factor of a ranking's cosine.

    Raises:
        ValueError: a task is neither a classification of single texts nor a ranking.

    Example::

        data = {"sst2": load_task("sst2"), "qnli_rank": rank_queries(load_task("qnli"))}
        vocabulary = build_vocabulary(row for one in data.values() for row in one.train.texts)
        fit_dssm(DSSM(vocabulary, data), data)
    """

    def __init__(self, vocabulary, tasks, *, hidden_size=300, task_size=128, gamma=10.0):
        super().__init__()
        self.vocabulary, self.gamma = tuple(vocabulary), gamma
        self.tasks = {task.name: task for task in map(get_task, tasks)}
        self.shared = nn.EmbeddingBag(len(self.vocabulary), hidden_size, mode="sum")  # W1^T
        self.task_layers = nn.ModuleDict()  # W2^t
        self.classifiers = nn.ModuleDict()
        for name, task in self.tasks.items():
            self.task_layers[name] = nn.Linear(hidden_size, task_size, bias=False)
            if task.kind == "classification" and not task.is_pair:
                self.classifiers[name] = nn.Linear(task_size, task.num_labels, bias=False)
            elif task.kind != "ranking":
                raise ValueError(
                    f"task {name!r} is a {task.kind} of {len(task.text_columns)} texts; expected "
                    "single texts to classify, or a ranking (mmlkit.heads.ranking.rank_queries)."
                )
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def vectors(self, task, ids):
        """Return l3 of some texts.

        Args:
            task: its name.
            ids: a list per text, as `hash_texts` returns them.

        Returns:
            [B, task_size].
        """
        device = self.shared.weight.device
        starts = torch.tensor([0, *itertools.accumulate(map(len, ids))][:-1], device=device)
        flat = torch.tensor([*itertools.chain(*ids)], dtype=torch.int64, device=device)
        l2 = torch.tanh(self.shared(flat, starts))  # sum of the rows of W1: W1 l1 without its zeros
        return torch.tanh(self.task_layers[task](l2))

    def forward(self, task, columns):
        """Return the scores of rows.

        Args:
            task: its name.
            columns: one list of ids per text column of the task.

        Returns:
            Logits [B, C], or the cosine of query and candidate [B, 1] for a ranking.
        """
        vectors = [self.vectors(task, ids) for ids in columns]
        if task in self.classifiers:
            return self.classifiers[task](vectors[0])
        return F.cosine_similarity(*vectors)[:, None]

    def loss(self, task, columns, labels, groups=None):
        """Return the mean loss over rows, or over queries for a ranking.

        Args:
            task: its name.
            columns: one list of ids per text column of the task.
            labels: [B].
            groups: the number of candidates of each query; see `ranking_loss`.

        Returns:
            A scalar.
        """
        scores = self(task, columns)
        if task in self.classifiers:
            return F.cross_entropy(scores, labels)
        return ranking_loss(scores[:, 0], labels, groups, gamma=self.gamma)


def fit_dssm(model, data, *, epochs=10, lr=0.05, batch_size=32, seed=0):
    """Train a DSSM by plain gradient descent, with one task's batch per step.

    Gradients are clipped to a global norm of 1. Each epoch visits every batch of every task once,
    in an order that depends on (seed, epoch) alone. The model keeps the weights of the last epoch.

    Args:
        model: a DSSM.
        data: {task name: TaskData}.
        epochs: at least 1.
        lr: the learning rate.
        batch_size: rows, or whole queries.
        seed: of the order.

    Returns:
        A DataFrame with a row per epoch and task: epoch, task, train_loss and dev metrics.
    """
    import pandas as pd

    columns = {name: _hash_columns(model, one.train) for name, one in data.items()}
    optimizer, history = torch.optim.SGD(model.parameters(), lr=lr), []
    for epoch in range(1, epochs + 1):
        losses = defaultdict(list)
        generator = np.random.default_rng([seed, epoch])
        steps = [
            (name, batch)
            for name, one in data.items()
            for batch in _batches(one.train, batch_size, generator)
        ]
        for i in generator.permutation(len(steps)):
            name, batch = steps[i]
            rows = np.concatenate(batch)
            labels = torch.as_tensor(data[name].train.labels[rows]).long()
            labels = labels.to(model.shared.weight.device)
            chosen = [[column[row] for row in rows] for column in columns[name]]
            loss = model.loss(name, chosen, labels, [len(candidates) for candidates in batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses[name].append(loss.item())
        for name, one in data.items():
            found = {"epoch": epoch, "task": name, "train_loss": np.mean(losses[name])}
            history.append({**found, **evaluate_dssm(model, one.dev)})
    return pd.DataFrame(history)


@torch.inference_mode()
def evaluate_dssm(model, split):
    """Return the task's metrics over a whole split.

    Args:
        model: a DSSM.
        split: a Split with labels.

    Returns:
        {metric: value}.
    """
    scores = model(split.task.name, _hash_columns(model, split)).cpu().numpy()
    return metrics.compute(split.task, scores, split.labels, split.queries)


def _hash_columns(model, split):
    """The lists of `hash_texts` for each text column of a split."""
    return [hash_texts(column, model.vocabulary) for column in zip(*split.texts)]


def _batches(split, batch_size, generator):
    """Shuffled lists of examples; an example is the row numbers of one query, or one row."""
    queries = np.arange(len(split)) if split.queries is None else split.queries
    ends = np.cumsum(np.unique(queries, return_counts=True)[1])
    examples = np.split(np.argsort(queries, kind="stable"), ends[:-1])
    order = generator.permutation(len(examples))
    return [
        [examples[i] for i in order[start : start + batch_size]]
        for start in range(0, len(order), batch_size)
    ]
