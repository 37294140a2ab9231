"""The checks of notebook 10's exercises: two exponents, and forgetting."""

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_exponent", "check_exponent_for_passes", "check_forgetting"]

_SIZES = {"quora": 1600, "sst": 400, "sts": 100}
_HISTORY = [[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]]


@exercise(
    "exponent",
    [
        *((_SIZES, ratio) for ratio in (16, 4, 2, 1)),
        ({"sts": 100, "sst": 400, "quora": 1600}, 4),
        ({"qnli": 900, "rte": 100}, 3),  # another ratio of the sizes
    ],
    "log(ratio) / log(largest N / smallest N)",
)
def check_exponent(pick, sizes, ratio):
    """Check the exponent that gives the largest task a chosen multiple of the smallest one's draws.

    Args:
        pick: the choice between a right value and known mistakes.
        sizes: {task: number of rows N}.
        ratio: the probability of the largest task divided by that of the smallest.

    Returns:
        The exponent alpha, a float.
    """
    N = np.array([*sizes.values()], dtype=float)
    sizes_apart = pick(
        np.log(N.max() / N.min()),
        {
            "the sizes need a logarithm too": N.max() / N.min(),
            "this takes the largest size alone, not its ratio to the smallest": np.log(N.max()),
            "this takes the sum of the sizes, not the smallest": np.log(N.sum() / N.min()),
            "this takes the first two sizes, not the largest and the smallest": np.log(N[0] / N[1]),
        },
    )
    wanted = pick(np.log(ratio), {"the ratio needs a logarithm too": ratio})
    alpha = pick(
        wanted / sizes_apart, {"the fraction is upside down": sizes_apart / max(wanted, 1e-9)}
    )
    return float(alpha)


@exercise(
    "exponent for passes",
    [*((_SIZES, times) for times in (1, 2, 4, 16)), ({"rte": 100, "qnli": 900}, 3)],
    "1 - log(times) / log(largest N / smallest N)",
)
def check_exponent_for_passes(pick, sizes, times):
    """Check the exponent that shows the smallest set's rows a multiple as often as the largest's.

    Args:
        pick: the choice between a right value and known mistakes.
        sizes: {task: number of rows N}.
        times: the passes over the smallest set divided by those over the largest.

    Returns:
        The exponent alpha, a float.
    """
    N = np.array([*sizes.values()], dtype=float)
    sizes_apart = pick(
        np.log(N.max() / N.min()),
        {
            "the sizes need a logarithm too": N.max() / N.min(),
            "this takes the first two sizes, not the largest and the smallest": np.log(N[0] / N[1]),
        },
    )
    part = pick(np.log(times), {"the factor needs a logarithm too": times}) / sizes_apart
    alpha = {
        "this is the exponent for a ratio of probabilities; passes also divide by N": part,
        "the sign of the logarithm is wrong": 1 + part,
    }
    return float(pick(1 - part, alpha))


@exercise(
    "forgetting",
    [(np.array(_HISTORY),)],
    "for each task (column) the best of the earlier rows minus the last row",
)
def check_forgetting(pick, history):
    """Check the forgetting of every task (Chaudhry et al., 2018).

    Args:
        pick: the choice between a right value and known mistakes.
        history: scores with a row per measurement and a column per task, [M, T].

    Returns:
        The best before the last row minus the last row, [T].
    """
    earlier = pick(history[:-1], {"the last row is among those compared": history})
    best, last = earlier.max(0), history[-1]
    lost = pick(
        best - last,
        {
            "this is the first row minus the last": history[0] - last,
            "only the row before the last is compared": history[-2] - last,
            "this is the mean of the earlier rows, not the best": earlier.mean(0) - last,
            "one best is used for all tasks": best.max() - last,
            "this is a share of the best": 1 - last / best,
        },
    )
    return pick(lost, {"the sign is wrong; a loss is positive": -lost})
