"""MeanShift on one axis has the clusters of scikit-learn's MeanShift."""

import warnings

import numpy as np
import pytest

from mmlkit.heads.clustering import cluster

pytestmark = pytest.mark.slow  # unit/test_pruning.py has small cases

SHAPES = {
    "one normal": lambda random, size: random.normal(0.6, 0.02, size),
    "long tail": lambda random, size: 0.5 + random.gamma(2, 0.02, size),
    "two groups": lambda random, size: random.normal(0.5 + 0.1 * (np.arange(size) % 3 == 0), 0.01),
    # Irrational distances: for a value on the edge of a window, scikit-learn lets rounding decide.
    "equal values": lambda random, size: np.sqrt(random.integers(2, 40, size)),
    "negative": lambda random, size: -random.exponential(3, size),
}


def of_sklearn(values, width, bin_seeding):
    """The centres with members in ascending order, and the number of each value's centre."""
    from sklearn.cluster import MeanShift

    with warnings.catch_warnings():  # as many bins as values
        warnings.filterwarnings("ignore", message="Binning data failed")
        fitted = MeanShift(bandwidth=width, bin_seeding=bin_seeding).fit(values[:, None])
    centres = fitted.cluster_centers_[:, 0]
    used = sorted(set(fitted.labels_), key=lambda label: centres[label])
    return centres[used], [used.index(label) for label in fitted.labels_]


@pytest.mark.parametrize("bin_seeding", [True, False])
@pytest.mark.parametrize("rule", ["auto:0.3", "auto:0.1", "std:0.5", "std:1.3"])
@pytest.mark.parametrize("shape", SHAPES)
def test_clusters_are_those_of_scikit_learn(shape, rule, bin_seeding):
    random, found = np.random.default_rng(3), []
    for size in [5, 12, 20, 45, 60] if bin_seeding else [5, 12, 45]:
        values = SHAPES[shape](random, size)
        centres, labels, width = cluster(values, rule, bin_seeding=bin_seeding)
        if np.ptp(values) <= 1e-6 or width <= 1e-6:
            assert labels == [0] * size  # scikit-learn accepts no bandwidth of zero
            continue
        wanted, theirs = of_sklearn(values, width, bin_seeding)
        assert centres == pytest.approx(wanted.tolist(), abs=1e-9) and labels == theirs
        found.append(len(centres))
    assert max(found) > 1  # at least one of the samples is split


def test_1024_values():
    values = SHAPES["long tail"](np.random.default_rng(0), 1024)
    centres, labels, width = cluster(values)
    wanted, theirs = of_sklearn(values, width, True)
    assert centres == pytest.approx(wanted.tolist(), abs=1e-9) and labels == theirs
    assert len(centres) > 1


def test_a_value_on_the_edge_of_a_window_is_inside():
    # The differences are 0.02 up to rounding, in both directions.
    centres, labels, _ = cluster([0.41, 0.43, 0.83, 0.81], 0.02)
    assert centres == pytest.approx([0.42, 0.82]) and labels == [0, 0, 1, 1]
