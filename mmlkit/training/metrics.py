"""Metrics over a whole split, never averaged over batches; scikit-learn and scipy compute them."""

import warnings

import numpy as np

from mmlkit.messages import check_number

__all__ = [
    "METRICS",
    "bootstrap_interval",
    "check_metrics",
    "compute",
    "group_accuracy",
    "predicted_labels",
]


def check_metrics(task):
    """Check that the metrics of a task are known, and for its kind.

    Args:
        task: a Task.

    Raises:
        ValueError: a metric is unknown, is for another kind, or needs another number of labels.
    """
    for name in task.metrics:
        found = f"Task {task.name!r} has the metric {name!r}"
        if name not in METRICS:
            raise ValueError(f"{found}, expected some of {list(METRICS)}.")
        kinds = KINDS.get(name, (task.kind,))  # a metric of one's own fits
        if task.kind not in kinds:
            fits = [one for one, theirs in KINDS.items() if task.kind in theirs]
            raise ValueError(
                f"{found} of {' and '.join(kinds)} tasks, but is a {task.kind}. Use some of {fits}."
            )
        if name == "f1" and len(task.labels) != 2:
            raise ValueError(
                f"{found}, which needs two labels; it has {len(task.labels)}. Use 'macro_f1'."
            )


def predicted_labels(scores):
    """Return the index of the largest score of each row.

    Args:
        scores: [N, C].

    Returns:
        Label indices [N].
    """
    return np.asarray(scores).argmax(axis=1)


def compute(task, scores, labels, queries=None):
    """Compute the metrics of a task.

    A correlation with constant scores or labels is undefined and returned as nan. The metrics of a
    ranking task are means over queries. Equal scores count as the mean over their possible orders:
    one score for all candidates gives 1/candidates, not 1.

    Args:
        task: a Task.
        scores: [N, C] logits or probabilities; [N, 1] or [N] for regression and ranking.
        labels: [N].
        queries: [N], the query of each row of a ranking task.

    Returns:
        {metric: value}.

    Raises:
        ValueError: the numbers of scores and labels differ, there is none, labels has another
            shape, a score is not finite, or a query has not exactly one answer.
    """
    scores, labels = np.asarray(scores, dtype=float), np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(
            f"{task.name}: labels have shape {list(labels.shape)}, expected [{len(scores)}]; use "
            "labels.reshape(-1)."
        )
    if len(scores) != len(labels) or len(labels) == 0:
        raise ValueError(
            f"{task.name}: {len(scores)} rows of scores for {len(labels)} labels; expected one "
            "each, at least one."
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            f"{task.name}: some scores are not finite numbers; the model has diverged. Try a "
            "smaller lr."
        )
    if task.kind == "classification":
        predictions = predicted_labels(scores)
    else:
        predictions = scores.reshape(len(scores), -1)[:, 0]
    if task.kind == "ranking":
        predictions = _places(task, predictions, labels, queries)
    return {name: float(METRICS[name](labels, predictions)) for name in task.metrics}


def bootstrap_interval(task, scores, labels, groups, *, level=0.95, draws=1000, seed=0):
    """Compute an interval of each metric by drawing whole groups of rows with replacement.

    Rows of one group, such as the pairs of one premise, are not independent items. An interval from
    single rows would be too narrow (the cluster bootstrap; Field and Welsh, 2007).

    Args:
        task: a Task of classification or regression.
        scores: see `compute`.
        labels: see `compute`.
        groups: [N], the group of each row, such as `split.columns["group"]` of the mini data.
        level: the level of the interval.
        draws: how many samples of groups are drawn.
        seed: the seed of the draws.

    Returns:
        {metric: (low, high)}. Samples in which a metric is undefined are left out.

    Raises:
        ValueError: the numbers of groups and labels differ, or a number is wrong; see `compute`.

    Example::

        bootstrap_interval(data.task, predict_scores(model, data), data.dev.labels,
                           data.dev.columns["group"])      # {'accuracy': (0.61, 0.72), ...}
    """
    check_number("draws", draws, 1, whole=True)
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, expected a number between 0 and 1, such as 0.95.")
    scores, labels = np.asarray(scores, dtype=float), np.asarray(labels)
    compute(task, scores, labels)
    members = _rows_of_groups(groups, labels)
    generator, found = np.random.default_rng(seed), []
    for drawn in generator.integers(len(members), size=(draws, len(members))):
        rows = np.concatenate([members[i] for i in drawn])
        found.append(compute(task, scores[rows], labels[rows]))
    tails = [(1 - level) / 2, (1 + level) / 2]
    return {
        name: tuple(map(float, np.nanquantile([one[name] for one in found], tails)))
        for name in task.metrics
    }


def group_accuracy(scores, labels, groups):
    """Compute the share of groups in which every row is predicted correctly.

    Args:
        scores: [N, C] logits or probabilities.
        labels: label indices [N].
        groups: [N], the group of each row.

    Returns:
        A number from 0 to 1.

    Raises:
        ValueError: the numbers of groups and labels differ (from a private function).
    """
    right = predicted_labels(scores) == np.asarray(labels)
    return float(np.mean([right[rows].all() for rows in _rows_of_groups(groups, labels)]))


def _rows_of_groups(groups, labels):
    if len(groups) != len(labels):
        raise ValueError(f"{len(groups)} groups for {len(labels)} labels; expected one each.")
    _, place = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    return [np.flatnonzero(place == i) for i in range(place.max() + 1)]


def _accuracy(labels, predictions):
    return np.mean(labels == predictions)


def _sklearn(name, **options):
    def metric(labels, predictions):
        import sklearn.metrics

        return getattr(sklearn.metrics, name)(labels, predictions, **options)

    return metric


def _correlation(name):
    def metric(labels, predictions):
        import scipy.stats

        if len(labels) < 2:
            return float("nan")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a constant input: nan says so
            return getattr(scipy.stats, name)(labels, predictions).statistic

    return metric


def _places(task, scores, labels, queries):
    """Count each query's candidates above and level with the answer (itself too), [Q, 2]."""
    if queries is None or len(queries) != len(scores):
        raise ValueError(
            f"{task.name}: queries is {None if queries is None else len(queries)}, expected the "
            f"query of each of the {len(scores)} rows; rank_queries makes data that has them."
        )
    numbers, place = np.unique(queries, return_inverse=True)
    answers = np.bincount(place, weights=labels)
    if (answers != 1).any():
        raise ValueError(
            f"{task.name}: query {numbers[answers != 1][0]} has {answers[answers != 1][0]:.0f} "
            "answers among its candidates, expected exactly 1; rank_queries drops such queries."
        )
    best = np.empty(len(numbers))
    best[place[labels == 1]] = scores[labels == 1]
    return np.stack(
        [
            np.bincount(place, weights=compared)
            for compared in (scores > best[place], scores == best[place])
        ],
        axis=1,
    )


def _accuracy_at_1(labels, places):
    return np.mean((places[:, 0] == 0) / places[:, 1])


def _mrr(labels, places):
    """Mean reciprocal rank, averaged over the ranks that a tied answer could have."""
    return np.mean([np.mean(1 / np.arange(above + 1, above + tied + 1)) for above, tied in places])


METRICS = {
    "accuracy": _accuracy,
    "macro_f1": _sklearn("f1_score", average="macro", zero_division=0),
    "f1": _sklearn(
        "f1_score", pos_label=1, zero_division=0
    ),  # of the second label: paraphrase, duplicate
    "matthews": _sklearn("matthews_corrcoef"),
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
    "accuracy@1": _accuracy_at_1,
    "mrr": _mrr,
}
# The kinds of task that a metric is for. A correlation suits labels that have an order, too.
KINDS = {
    **dict.fromkeys(("accuracy", "macro_f1", "f1", "matthews"), ("classification",)),
    **dict.fromkeys(("pearson", "spearman"), ("regression", "classification")),
    **dict.fromkeys(("accuracy@1", "mrr"), ("ranking",)),
}
