"""Corpus metrics: always over the whole split, never averaged over batches.

scikit-learn and scipy compute them; this module only chooses and names them.
"""

import warnings

import numpy as np

__all__ = ["compute", "predicted_labels"]


def predicted_labels(scores):
    """The label index of each row: the largest of its C scores. scores: [N,C]. Returns [N] integers."""
    return np.asarray(scores).argmax(axis=1)


def compute(task, scores, labels, queries=None):
    """The task's metrics as a dict of floats.

    task: a Task. scores: [N,C] logits or probabilities (regression and ranking: [N,1] or [N] scores). labels: [N].
    queries: [N], which query each row is a candidate of, for a ranking task; its metrics are means over queries, and equal scores
    count as the mean over the orders they could stand in: one score for all gives 1/candidates, not 1.
    A correlation with constant scores or labels is undefined and comes back as nan.
    Raises ValueError when the number of scores and labels differ, none is there, a score is not a number, or a query has not
    exactly one answer.
    """
    scores, labels = np.asarray(scores, dtype=float), np.asarray(labels)
    if len(scores) != len(labels) or len(labels) == 0:
        raise ValueError(f"{task.name}: {len(scores)} rows of scores for {len(labels)} labels; expected one each, at least one.")
    if not np.isfinite(scores).all():
        raise ValueError(f"{task.name}: some scores are not finite numbers; the model has diverged. Try a smaller lr.")
    if task.kind == "ranking":
        predictions = _places(task, scores.reshape(len(scores), -1)[:, 0], labels, queries)
    else:
        predictions = scores.reshape(len(scores), -1)[:, 0] if task.kind == "regression" else predicted_labels(scores)
    return {name: float(_METRICS[name](labels, predictions)) for name in task.metrics}


def _accuracy(labels, predictions):
    return np.mean(labels == predictions)


def _macro_f1(labels, predictions):
    from sklearn.metrics import f1_score

    return f1_score(labels, predictions, average="macro", zero_division=0)


def _f1(labels, predictions):
    """Of the second label: paraphrase, duplicate."""
    from sklearn.metrics import f1_score

    return f1_score(labels, predictions, pos_label=1, zero_division=0)


def _matthews(labels, predictions):
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(labels, predictions)


def _correlation(function, labels, predictions):
    if len(labels) < 2:
        return float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # a constant input: nan says it
        return function(labels, predictions).statistic


def _pearson(labels, predictions):
    from scipy.stats import pearsonr

    return _correlation(pearsonr, labels, predictions)


def _spearman(labels, predictions):
    from scipy.stats import spearmanr

    return _correlation(spearmanr, labels, predictions)


def _places(task, scores, labels, queries):
    """[Q,2]: how many candidates score above each query's answer, and how many as high, the answer included."""
    if queries is None or len(queries) != len(scores):
        raise ValueError(f"{task.name}: queries is {None if queries is None else len(queries)}, expected the query of each of the {len(scores)} "
                         "rows; rank_queries makes data that has them.")
    numbers, place = np.unique(queries, return_inverse=True)
    answers = np.bincount(place, weights=labels)
    if (answers != 1).any():
        raise ValueError(f"{task.name}: query {numbers[answers != 1][0]} has {answers[answers != 1][0]:.0f} answers among its candidates, expected "
                         "exactly 1; rank_queries drops such queries.")
    best = np.empty(len(numbers))
    best[place[labels == 1]] = scores[labels == 1]
    return np.stack([np.bincount(place, weights=compared) for compared in (scores > best[place], scores == best[place])], axis=1)


def _accuracy_at_1(labels, places):
    return np.mean((places[:, 0] == 0) / places[:, 1])


def _mrr(labels, places):
    """Mean reciprocal rank: of the mean over the ranks that a tied answer could take."""
    return np.mean([np.mean(1 / np.arange(above + 1, above + tied + 1)) for above, tied in places])


_METRICS = {"accuracy": _accuracy, "macro_f1": _macro_f1, "f1": _f1, "matthews": _matthews,
            "pearson": _pearson, "spearman": _spearman, "accuracy@1": _accuracy_at_1, "mrr": _mrr}
