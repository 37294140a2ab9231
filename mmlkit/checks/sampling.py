"""The checks of notebook 10's exercises."""

import numpy as np

from mmlkit.checks.compare import exercise

__all__ = ["check_annealing", "check_forgetting"]

_SIZES = {"quora": 1600, "sst": 400, "sts": 100}
_HISTORY = [[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]]


@exercise(
    "annealing",
    [(_SIZES, epoch, 5) for epoch in (1, 3, 5)],
    "N ** alpha / sum of N ** alpha with alpha = 1 - 0.8 (e - 1) / (E - 1)",
    [((_SIZES, 1, 1), "With one epoch alone E - 1 is 0; take alpha = 1.")],
)
def check_annealing(pick, sizes, epoch, epochs):
    """Check the task probabilities of annealed sampling (PALs, section 4.1).

    Args:
        pick: the choice between a right value and known mistakes.
        sizes: {task: number of rows N}.
        epoch: the epoch e, from 1.
        epochs: the number of epochs E.

    Returns:
        {task: probability}.
    """
    passed, steps = epoch - 1, max(epochs - 1, 1)
    alpha = pick(
        1 - 0.8 * passed / steps,
        {
            "epochs count from 1, so alpha is not 1 in the first": 1 - 0.8 * epoch / steps,
            "alpha is not 0.2 in the last epoch": 1 - 0.8 * passed / epochs,
            "alpha is not 1 in the first epoch": 1 - 0.8 * epoch / epochs,
            "alpha falls to 0, not to 0.2": 1 - passed / steps,
            "alpha ends at 0.8, not at 0.2": 1 - 0.2 * passed / steps,
            "alpha rises": 0.2 + 0.8 * passed / steps,
            "alpha has no effect; it is an exponent, as a factor it would cancel": 1,
        },
    )
    N = np.array([*sizes.values()])
    power = N**alpha
    share = power / power.sum()
    share = pick(
        share,
        {
            "the sum over tasks is not 1": power,
            "N is divided by the sum before it is raised to alpha": (N / N.sum()) ** alpha,
            "this is in percent": 100 * share,
        },
    )
    return dict(zip(sizes, share))


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
