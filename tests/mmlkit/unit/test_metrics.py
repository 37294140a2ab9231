"""Metrics against values worked out by hand, and against scikit-learn and scipy on random data."""

import dataclasses
import math

import numpy as np
import pytest

from mmlkit.data.tasks import get_task, list_tasks
from mmlkit.training.metrics import check_metrics, compute


def scores_for(predictions, num_labels):
    """Return scores [N,C] whose maximum is at the wanted label. The other scores are random."""
    scores = -np.random.default_rng(0).random((len(predictions), num_labels))
    scores[np.arange(len(predictions)), predictions] = 0.5
    return scores


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (
            "cfimdb",
            {"accuracy": 3 / 4, "macro_f1": (2 / 3 + 4 / 5) / 2},
        ),  # F1 of class 0: P 1, R 1/2; of class 1: P 2/3, R 1
        ("quora", {"accuracy": 3 / 4, "f1": 4 / 5}),
        ("cola", {"matthews": 2 / math.sqrt(12), "accuracy": 3 / 4}),
    ],
)  # TP 2, TN 1, FP 1, FN 0: (2*1 - 1*0) / sqrt(3*2*2*1)
def test_classification_by_hand(task, expected):
    assert compute(get_task(task), scores_for([0, 1, 1, 1], 2), [0, 0, 1, 1]) == pytest.approx(
        expected
    )


def test_accuracy_of_five_classes():
    found = compute(get_task("sst"), scores_for([4, 3, 2, 1, 0, 4], 5), [4, 3, 2, 0, 1, 3])
    assert found["accuracy"] == pytest.approx(3 / 6)


@pytest.mark.parametrize(
    ("scores", "pearson", "spearman"),
    [
        ([1, 3, 2, 4], 0.8, 0.8),
        (
            [1, 4, 9, 16],
            25 / math.sqrt(5 * 129),
            1.0,
        ),  # squares: equal ranks, but not on a line
        ([4, 3, 2, 1], -1.0, -1.0),
    ],
)
@pytest.mark.parametrize("column", [False, True], ids=["[N]", "[N,1]"])
def test_correlations_by_hand(scores, pearson, spearman, column):
    scores = np.array(scores, dtype=np.float32)
    found = compute(
        get_task("stsb"),
        scores[:, None] if column else scores,
        np.array([1, 2, 3, 4], dtype=np.float32),
    )
    assert found == pytest.approx({"pearson": pearson, "spearman": spearman})


@pytest.mark.parametrize("name", list_tasks())
def test_every_task_agrees_with_scikit_learn(name):
    """The formulas here state the positive class, the averaging and the correlation explicitly."""
    from scipy import stats
    from sklearn import metrics as sk

    task, generator = get_task(name), np.random.default_rng(1)
    if task.kind == "regression":
        labels = generator.uniform(0, 5, 80)
        scores = labels + generator.normal(size=80)
        guesses = scores
    else:
        labels, guesses = (generator.integers(0, task.num_labels, 80) for _ in range(2))
        scores = scores_for(guesses, task.num_labels)
    oracle = {
        "accuracy": lambda: sk.accuracy_score(labels, guesses),
        "macro_f1": lambda: sk.f1_score(labels, guesses, average="macro"),
        "f1": lambda: sk.f1_score(labels == 1, guesses == 1),
        "matthews": lambda: sk.matthews_corrcoef(labels, guesses),
        "pearson": lambda: np.corrcoef(labels, guesses)[0, 1],
        "spearman": lambda: stats.spearmanr(labels, guesses)[0],
    }
    found = compute(task, scores, labels)
    assert list(found) == list(task.metrics)
    assert found == pytest.approx({metric: oracle[metric]() for metric in task.metrics})
    assert all(type(value) is float for value in found.values())


def test_whole_split_is_not_the_mean_of_batches():
    """F1 is 1 and 0 on the two halves. The whole split has TP 1, FP 1 and FN 1."""
    labels, guesses = np.array([1, 0, 1, 0]), np.array([1, 0, 0, 1])
    task, scores = get_task("quora"), scores_for(guesses, 2)
    halves = [
        compute(task, scores[part], labels[part])["f1"] for part in (slice(0, 2), slice(2, 4))
    ]
    assert halves == [1.0, 0.0]
    assert compute(task, np.tile(scores, (3, 1)), np.tile(labels, 3))["f1"] == pytest.approx(1 / 2)


def test_logits_and_probabilities_agree():
    scores = np.random.default_rng(0).normal(size=(30, 5))
    labels = np.random.default_rng(1).integers(0, 5, 30)
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert compute(get_task("sst"), scores, labels) == compute(
        get_task("sst"), probabilities, labels
    )


@pytest.mark.parametrize(("scores", "labels"), [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [2, 2, 2])])
def test_undefined_correlation_is_nan_without_a_warning(scores, labels, recwarn):
    found = compute(get_task("sts"), np.array(scores, dtype=float), labels)
    assert all(math.isnan(value) for value in found.values())
    assert not recwarn.list


@pytest.mark.parametrize(
    ("task", "metric", "guesses", "labels"),
    [
        ("cola", "matthews", [1, 1, 1, 1], [0, 1, 0, 1]),  # constant prediction: no correlation
        ("quora", "f1", [0, 0, 0, 0], [0, 1, 0, 1]),  # no predicted positive
    ],
)
def test_a_constant_prediction_gives_zero(task, metric, guesses, labels):
    assert compute(get_task(task), scores_for(guesses, 2), labels)[metric] == 0.0
    assert math.isnan(compute(get_task(task), scores_for(guesses, 2), [0, 0, 0, 0])[metric])


def test_f1_is_defined_where_every_row_has_the_second_label():
    found = compute(get_task("quora"), scores_for([1, 1, 1, 0], 2), [1, 1, 1, 1])
    assert found["f1"] == pytest.approx(6 / 7)


@pytest.mark.parametrize("labels", [[0], [[0], [1]]])
def test_labels_of_another_shape_are_refused(labels):
    """numpy would compare each label with every prediction."""
    with pytest.raises(ValueError, match="cfimdb: labels have shape .*, expected .2., one for"):
        compute(get_task("cfimdb"), np.zeros((2, 2)), labels)


@pytest.mark.parametrize(("name", "metric"), [("sst", "F1"), ("sts", "accuracy"), ("sst", "mrr")])
def test_a_metric_of_another_kind_of_task_is_refused(name, metric):
    task = dataclasses.replace(get_task(name), metrics=(metric,))
    with pytest.raises(ValueError, match=f"has the metrics .'{metric}'.; a {task.kind} task may"):
        check_metrics(task)
