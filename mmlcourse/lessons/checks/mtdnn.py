"""The checks of notebook 07's exercises: SAN's attention, size and answers."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_attention_moved",
    "check_kept_answers",
    "check_san_parameters",
]


@exercise(
    "moved attention",
    [
        (
            torch.tensor(
                [
                    [0.5, 0.25, 0.15, 0.1],
                    [0.2, 0.3, 0.1, 0.4],
                    [0.05, 0.15, 0.6, 0.2],
                ]
            ),
        )
    ],
    "half the sum, over tokens, of |beta_k - beta_0|, for every step k",
)
def check_attention_moved(pick, beta):
    """Check how much attention has moved since the first step.

    Args:
        pick: the choice between a right value and known mistakes.
        beta: the weights of one row, [K, T]; every step sums to 1.

    Returns:
        The moved share of every step, [K].
    """
    even = torch.full_like(beta[:1], 1 / beta.shape[1])
    start = pick(
        beta[:1],
        {
            "every step is compared with the step before it": torch.cat([beta[:1], beta[:-1]]),
            "every step is compared with even attention": even,
        },
    )
    change = pick(
        (beta - start).abs(),
        {
            "the absolute value is missing": beta - start,
            "the changes are squared": (beta - start).square(),
        },
    )
    total = change.sum(-1)
    return pick(
        total / 2,
        {
            "the half is missing": total,
            "this is the mean over the tokens": change.mean(-1),
            "this is the largest change of a token": change.amax(-1),
        },
    )


@exercise(
    "size of the answer module",
    [(768, 3), (384, 2), (4, 5)],
    "(D + 1) + (D² + D) + (6 D² + 6 D) + (4 D C + C)",
)
def check_san_parameters(pick, D, C):
    """Check the number of parameters of a SAN, biases included.

    Args:
        pick: the choice between a right value and known mistakes.
        D: the size of a vector.
        C: the number of labels.

    Returns:
        A whole number.
    """
    bias = pick(1, {"the biases are missing": 0})
    summary = pick(D + bias, {"the summary w_1 is missing": 0})
    one = D * D + bias * D
    look = pick(one, {"the attention W_2 is missing": 0})
    gru = pick(
        6 * one,
        {
            "the GRU is counted as one matrix": one,
            "the GRU has only its three matrices for x": 3 * one,
            "the GRU has only its two gates": 4 * one,
            "the GRU has one bias for each gate, not two": 6 * D * D + bias * 3 * D,
        },
    )
    width = pick(
        4 * D,
        {"W_3 reads the state alone": D, "W_3 reads two vectors, not four": 2 * D},
    )
    total = summary + look + gru + width * C + bias * C
    return pick(total, {"the parameters are counted once for each of 5 steps": 5 * total})


@exercise(
    "kept answers",
    [(5, 0.1), (4, 0.5), (3, 0.25)],
    "binomial(K - 1, j - 1) (1 - p)^(j - 1) p^(K - j), for j = 1 to K",
    [((3, 0.0), "Without dropout all K answers are kept.")],
)
def check_kept_answers(pick, K, p):
    """Check the distribution of the number of answers that prediction dropout keeps.

    Args:
        pick: the choice between a right value and known mistakes.
        K: the number of steps.
        p: the probability with which an answer is dropped.

    Returns:
        The probabilities that 1, 2, ..., K answers are kept, a list of K numbers.
    """
    sure = pick(1, {"no answer is kept for sure": 0})
    stay = pick(1 - p, {"p and 1 - p are exchanged, or the order is reversed": p})
    open_ = K - sure
    ways = pick(
        [math.comb(open_, j - sure) for j in range(1, K + 1)],
        {"the number of ways to choose the kept answers is missing": [1] * K},
    )
    return [way * stay ** (j - sure) * (1 - stay) ** (K - j) for j, way in enumerate(ways, start=1)]
