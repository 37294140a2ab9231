"""Metrics over a whole split, never averaged over batches; scikit-learn and scipy compute them."""

import warnings

import numpy as np

__all__ = ["METRICS", "check_metrics", "compute"]


def check_metrics(task):
    """Check that the metrics of a task are known for its kind, before a run spends time on it.

    Args:
        task: a Task.

    Raises:
        ValueError: a metric is unknown, or is for another kind of task.
    """
    known = [name for name in METRICS[task.kind] if name != "f1" or len(task.labels) == 2]
    if unknown := [name for name in task.metrics if name not in known]:
        raise ValueError(
            f"task {task.name!r} has the metrics {unknown}; a {task.kind} task may have {known} "
            f"with {len(task.labels)} labels."
        )


def compute(task, scores, labels, queries=None):
    """Compute the metrics of a task.

    A correlation with constant scores or labels is undefined and returned as nan; so is Matthews'
    with constant labels, and F1 where no row has the second label. The metrics of a ranking task
    are means over queries. Equal scores count as the mean over their possible orders: one score for
    all candidates gives 1/candidates, not 1.

    Args:
        task: a Task.
        scores: [N, C] logits or probabilities; [N, 1] or [N] for regression and ranking.
        labels: [N].
        queries: [N], the query of each row of a ranking task.

    Returns:
        {metric: value}.

    Raises:
        ValueError: labels are not one per row of scores, or a query has not exactly one answer.
    """
    scores, labels = np.asarray(scores, dtype=float), np.asarray(labels)
    if labels.shape != scores.shape[:1]:  # numpy would compare each one with all others
        raise ValueError(
            f"{task.name}: labels have shape {list(labels.shape)}, expected [{len(scores)}], one "
            "for each row of scores."
        )
    if task.kind == "classification":
        predictions = scores.argmax(1)
    else:
        predictions = scores.reshape(len(scores), -1)[:, 0]
    if task.kind == "ranking":
        predictions = _places(task, predictions, labels, queries)
    return {name: float(METRICS[task.kind][name](labels, predictions)) for name in task.metrics}


def _accuracy(labels, predictions):
    return np.mean(labels == predictions)


def _sklearn(name, **options):
    def metric(labels, predictions):
        import sklearn.metrics

        return getattr(sklearn.metrics, name)(labels, predictions, **options)

    return metric


def _differ(labels):
    return len(set(labels)) > 1


def _where(defined, metric):
    """Return a metric of labels and predictions that is nan unless `defined(labels)`."""
    return lambda labels, *rest: metric(labels, *rest) if defined(labels) else np.nan


def _correlation(name):
    def metric(labels, predictions):
        import scipy.stats

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a constant input: nan says so
            return getattr(scipy.stats, name)(labels, predictions).statistic

    return _where(_differ, metric)


def _places(task, scores, labels, queries):
    """Count each query's candidates above and level with the answer (itself too), [Q, 2]."""
    numbers, place = np.unique(queries, return_inverse=True)
    answers = np.bincount(place, weights=labels)
    if (answers != 1).any():
        raise ValueError(
            f"{task.name}: query {numbers[answers != 1][0]} has {answers[answers != 1][0]:.0f} "
            "answers among its candidates, expected exactly 1; rank_queries drops such queries."
        )
    best = np.empty(len(numbers))
    best[place[labels == 1]] = scores[labels == 1]
    levels = (scores > best[place], scores == best[place])
    return np.stack([np.bincount(place, weights=level) for level in levels], axis=1)


def _accuracy_at_1(labels, places):
    return np.mean((places[:, 0] == 0) / places[:, 1])


def _mrr(labels, places):
    """Mean reciprocal rank, averaged over the ranks that a tied answer could have."""
    return np.mean([np.mean(1 / np.arange(above + 1, above + tied + 1)) for above, tied in places])


_CORRELATIONS = {"pearson": _correlation("pearsonr"), "spearman": _correlation("spearmanr")}
# By kind of task. A correlation suits labels that have an order, too.
METRICS = {
    "classification": {
        "accuracy": _accuracy,
        "macro_f1": _sklearn("f1_score", average="macro", zero_division=0),
        # of the second label: paraphrase, duplicate
        "f1": _where(np.any, _sklearn("f1_score", zero_division=0)),
        "matthews": _where(_differ, _sklearn("matthews_corrcoef")),
        **_CORRELATIONS,
    },
    "regression": _CORRELATIONS,
    "ranking": {"accuracy@1": _accuracy_at_1, "mrr": _mrr},
}
