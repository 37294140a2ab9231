"""The checks of notebook 12's exercises: the overall score, the pull of a task, a sign test."""

import math

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_overall", "check_pull", "check_sign_test"]


@exercise(
    "overall score",
    [(0.5, 0.75, 0.2), (0.25, 0.625, -0.5)],
    "the mean of sst, quora and (r + 1) / 2",
    [((0.25, 0.625, math.nan), "A constant prediction has no correlation and counts as r = 0.")],
)
def check_overall(pick, sst, quora, sts):
    """Check the overall score of the CS224N project.

    Args:
        pick: the choice between a right value and known mistakes.
        sst: an accuracy from 0 to 1.
        quora: an accuracy from 0 to 1.
        sts: Pearson's r, nan for a constant prediction.

    Returns:
        The score.
    """
    r = 0 if math.isnan(sts) else sts
    scaled = pick(
        (r + 1) / 2,
        {
            "r is not brought from -1..1 to 0..1": r,
            "r is halved, but 1 is not added": r / 2,
            "r + 1 is not halved": r + 1,
            "the absolute value of r is taken": (abs(r) + 1) / 2,
            "a negative r is set to 0": (max(r, 0) + 1) / 2,
        },
    )
    total = sst + quora + scaled
    return pick(
        total / 3,
        {
            "this is the sum of the tasks": total,
            "the three tasks have different weights": ((sst + quora) / 2 + scaled) / 2,
            "this is in percent": 100 * total / 3,
        },
    )


@exercise(
    "pull",
    [
        ({"quora": 0.5, "sst": 0.3, "sts": 0.2}, {"quora": 2, "sst": 5, "sts": 1}),
        ({"a": 0.8, "b": 0.2}, {"b": 16, "a": 1}),
    ],
    "p times heads, divided by the sum of p times heads over all tasks",
)
def check_pull(pick, probabilities, heads):
    """Check the share of every task in the update, if the gradients of its heads agree.

    Args:
        pick: the choice between a right value and known mistakes.
        probabilities: {task: probability p}.
        heads: {task: number of heads}, not always in the same order.

    Returns:
        {task: share}.
    """
    matched = pick(
        [heads[task] for task in probabilities],
        {"heads are matched by place, not by name": [*heads.values()]},
    )
    p, m = np.array([*probabilities.values()]), np.array(matched)
    pull = pick(
        p * m,
        {
            "the heads are missing; the loss is summed over them": p,
            "the probabilities are missing": m,
            "p is divided by the heads": p / m,
            "p and heads are added": p / p.sum() + m / m.sum(),
            "gradients that agree grow with the heads, not with their root": p * m**0.5,
        },
    )
    share = pull / pull.sum()
    share = pick(
        share,
        {
            "the shares do not add up to 1": pull,
            "the shares are relative to the largest": pull / pull.max(),
        },
    )
    return dict(zip(probabilities, share))


@exercise(
    "sign test",
    [
        ([0.5] * above + [-0.25] * below,)
        for above, below in ((5, 1), (6, 0), (0, 6), (2, 4), (3, 3), (9, 1))
    ],
    "2 (6 + 1) / 64 for five of six",
)
def check_sign_test(pick, differences):
    """Check the two-sided sign test.

    Args:
        pick: the choice between a right value and known mistakes.
        differences: one number per seed, none of them 0.

    Returns:
        The probability that as many coins fall at least as far to either side.
    """
    n, above = len(differences), sum(one > 0 for one in differences)
    side = pick(
        max(above, n - above),
        {
            "only those above zero are counted": above,
            "only those below zero are counted": n - above,
        },
    )
    exact = math.comb(n, side) / 2**n
    tail = sum(math.comb(n, count) for count in range(side, n + 1)) / 2**n
    p = pick(
        tail,
        {
            "this is for exactly so many; add those further out": exact,
            "this is for more than so many; add so many": tail - exact,
            "this is for all on one side": 1 / 2**n,
        },
    )
    both = min(1, 2 * p)
    return pick(
        both,
        {
            "only one side is counted; a coin may fall to either": p,
            "a probability is at most 1": 2 * p,
            "this is 1 minus the probability": 1 - both,
        },
    )
