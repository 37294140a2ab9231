"""The checks of notebook 12's exercises: the overall score, a number of heads, a sign test."""

import math

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_heads", "check_overall", "check_sign_test"]


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
    "number of heads",
    [(0.2, 0.5, 4), (0.5, 0.25, 384), (0.3, 0.6, 10)],
    "p times the root of the heads is equal for both tasks",
)
def check_heads(pick, p, p_other, heads_other):
    """Check how many heads make the steps of two tasks equally long on the encoder.

    Args:
        pick: the choice between a right value and known mistakes.
        p: the probability of the task.
        p_other: the probability of the other task.
        heads_other: the number of heads of the other task.

    Returns:
        The number of heads of the task, not rounded.
    """
    ratio = pick(p_other / p, {"the ratio of the probabilities is inverted": p / p_other})
    squared = pick(
        ratio**2,
        {
            "equal gradients grow with the heads, random ones with their root": ratio,
            "the root is taken, where a square is needed": ratio**0.5,
            "the ratio appears twice, and its powers are added": 2 * ratio,
        },
    )
    return pick(
        heads_other * squared,
        {
            "the heads of the other task are missing": squared,
            "the heads of the other task stand in the denominator": squared / heads_other,
            "only the length is computed; solve for the heads": p_other * heads_other**0.5,
            "the root of the other task's heads is left": heads_other**0.5 * squared,
            "this is the number of heads to add": heads_other * squared - heads_other,
        },
    )


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
