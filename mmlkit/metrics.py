"""Corpus metrics: always over the whole split, never averaged over batches.

scikit-learn and scipy compute them; this module only chooses and names them.
"""

import warnings

import numpy as np

__all__ = ["compute", "predicted_labels"]


def predicted_labels(scores):
    """The label index of each row: the largest of its C scores. scores: [N,C]. Returns [N] integers."""
    return np.asarray(scores).argmax(axis=1)


def compute(task, scores, labels):
    """The task's metrics as a dict of floats.

    task: a Task. scores: [N,C] logits or probabilities (regression: [N,1] or [N] scores). labels: [N].
    A correlation with constant scores or labels is undefined and comes back as nan.
    Raises ValueError when the number of scores and labels differ, none is there, or a score is not a number.
    """
    scores, labels = np.asarray(scores, dtype=float), np.asarray(labels)
    if len(scores) != len(labels) or len(labels) == 0:
        raise ValueError(f"{task.name}: {len(scores)} rows of scores for {len(labels)} labels; expected one each, at least one.")
    if not np.isfinite(scores).all():
        raise ValueError(f"{task.name}: some scores are not finite numbers; the model has diverged. Try a smaller lr.")
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


_METRICS = {"accuracy": _accuracy, "macro_f1": _macro_f1, "f1": _f1, "matthews": _matthews,
            "pearson": _pearson, "spearman": _spearman}
