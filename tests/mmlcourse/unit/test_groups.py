"""Intervals over groups of rows, against values worked out by hand."""

import math

import numpy as np
import pytest

from mmlcourse.studies.groups import bootstrap_interval, group_error
from mmlkit.data.tasks import get_task


def scores_for(predictions, num_labels):
    """Return scores [N,C] whose maximum is at the wanted label. The other scores are random."""
    scores = -np.random.default_rng(0).random((len(predictions), num_labels))
    scores[np.arange(len(predictions)), predictions] = 0.5
    return scores


def test_the_interval_resamples_whole_groups():
    """Ten copies of a row form one group, so the interval equals that without copies."""
    task = get_task("sst2")
    right = np.random.default_rng(1).random(40) < 0.7
    scores, labels = scores_for(right.astype(int), 2), np.ones(40, int)
    alone = bootstrap_interval(task, scores, labels, np.arange(40))
    copies = bootstrap_interval(
        task, scores.repeat(10, axis=0), labels.repeat(10), np.arange(40).repeat(10)
    )
    assert copies == alone
    low, high = bootstrap_interval(task, scores.repeat(10, 0), labels.repeat(10), range(400))[
        "accuracy"
    ]
    wide = alone["accuracy"][1] - alone["accuracy"][0]
    assert high - low == pytest.approx(wide / math.sqrt(10), rel=0.15)
    error = math.sqrt(right.mean() * (1 - right.mean()) / 40)
    assert wide == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_the_interval_of_two_groups_by_hand():
    """The accuracy is 0, 0.5 and 1 with the probabilities 1/4, 1/2 and 1/4."""
    task, scores = get_task("sst2"), scores_for([1, 1, 1, 1], 2)
    found = bootstrap_interval(task, scores, [1, 1, 0, 0], ["a", "a", "b", "b"])
    assert found["accuracy"] == (0.0, 1.0)
    found = bootstrap_interval(task, scores, [1, 1, 0, 0], ["a", "a", "b", "b"], level=0.4)
    assert found["accuracy"] == (0.5, 0.5)
    narrow = bootstrap_interval(task, scores, [1, 1, 1, 1], [1, 2, 3, 4])
    assert narrow["accuracy"] == (1.0, 1.0)


def test_the_error_of_groups_by_hand():
    """Two groups lie 1 above and 1 below the mean in sum: sqrt(2 / 1 * (1 + 1)) / 4."""
    assert group_error([1, 1, 0, 0], ["a", "a", "b", "b"]) == pytest.approx(0.5)
