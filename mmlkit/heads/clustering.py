"""MeanShift on one axis: clusters of the heads' average losses.

Notebook 04 builds it by hand. scikit-learn's MeanShift searches neighbours in any dimension, one
window at a time, and takes up to a second for 1,024 averages. On a sorted axis, the values inside
a window are consecutive, so a sum over them is the difference of two cumulative sums.
"""

import numbers

import numpy as np

__all__ = ["cluster", "mean_shift", "resolve_bandwidth"]


def cluster(values, bandwidth=None, *, bin_seeding=True):
    """Cluster numbers by MeanShift, with the same result as `sklearn.cluster.MeanShift`.

    Values that are all equal form one cluster. A value on the edge of a window is inside;
    scikit-learn lets rounding decide.

    Args:
        values: [N] finite numbers.
        bandwidth: a number; None or "auto:q" (scikit-learn's estimate at quantile q, 0.3 by
            default); or "std:k" (k standard deviations).
        bin_seeding: see sklearn.cluster.MeanShift.

    Returns:
        (centroids ascending, the centroid's index for each value, the bandwidth that was used).

    Raises:
        ValueError: the bandwidth is unknown (from a function that this one calls).

    Example::

        cluster([0.40, 0.41, 0.60], 0.05)      # ([0.405, 0.6], [0, 0, 1], 0.05)
    """
    values = np.asarray(values, dtype=float)
    width = resolve_bandwidth(values, bandwidth)
    # Below this spread or width the values count as equal: MeanShift needs a width above zero.
    smallest = 1e-6 * max(np.abs(values).max(), 1e-12)
    if np.ptp(values) <= smallest or width <= smallest:
        return [float(values.mean())], [0] * len(values), float(width)
    centres, labels = mean_shift(values, width, bin_seeding)
    return centres.tolist(), labels.tolist(), float(width)


def mean_shift(values, width, bin_seeding=True, most_moves=300):
    """Move windows to the mean of their values, and merge the places where they stop.

    The kernel is flat (Comaniciu and Meer 2002). Of places that are at most `width` apart, the one
    whose window holds the most values stays.

    Args:
        values: [N] finite numbers.
        width: the bandwidth, half the width of a window.
        bin_seeding: start windows at multiples of the bandwidth near the values. Otherwise, and
            where there are as many multiples as values, one starts at each value.
        most_moves: the moves after which a window stops.

    Returns:
        (centres [C] ascending, the centre's index for each value [N]). A centre that is nearest to
        no value is left out.
    """
    ordered = np.sort(values)
    sums = np.append(0.0, np.cumsum(ordered))
    reach = width * (1 + 1e-9)  # a value on the edge of a window is inside, whatever its rounding
    multiples = np.unique(np.round(values / width)) * width
    places = multiples if bin_seeding and len(multiples) < len(values) else ordered
    stopped = []  # (values inside, place)
    for move in range(most_moves + 1):
        first = np.searchsorted(ordered, places - reach, "left")
        inside = np.searchsorted(ordered, places + reach, "right") - first
        places, first, inside = (one[inside > 0] for one in (places, first, inside))
        means = (sums[first + inside] - sums[first]) / inside
        still = (np.abs(means - places) <= 1e-3 * width) | (move == most_moves)
        stopped += zip(inside[still].tolist(), means[still].tolist())
        places = np.unique(means[~still])
        if not len(places):
            break
    centres = []
    for _, place in sorted(set(stopped), reverse=True):
        if all(abs(place - centre) > reach for centre in centres):
            centres.append(place)
    labels = np.abs(values[:, None] - np.sort(centres)).argmin(1)
    used, labels = np.unique(labels, return_inverse=True)
    return np.sort(centres)[used], labels


def resolve_bandwidth(values, bandwidth):
    """Turn a bandwidth of `cluster` into a number.

    Args:
        values: [N], a numpy array.
        bandwidth: see `cluster`.

    Returns:
        A number; 0 where an estimate finds too few or equal values.

    Raises:
        ValueError: the bandwidth is unknown or not positive.
    """
    if isinstance(bandwidth, numbers.Real):
        kind, number = "fixed", bandwidth
    else:
        kind, _, number = (bandwidth or "auto:0.3").partition(":")
    if kind not in ("fixed", "std", "auto") or not float(number) > 0:
        raise ValueError(
            f"bandwidth {bandwidth!r} is not understood; give a positive number, None, 'auto:0.3' "
            "(a quantile) or 'std:1.0'."
        )
    if kind == "auto":
        from sklearn.cluster import estimate_bandwidth

        return float(estimate_bandwidth(values[:, None], quantile=float(number)))
    return float(number) * (1.0 if kind == "fixed" else float(values.std()))
