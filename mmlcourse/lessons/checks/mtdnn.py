"""The checks of notebook 07's exercises: SAN's step, size and answers."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_answer_step",
    "check_kept_answers",
    "check_san_parameters",
]


_M = (torch.arange(12.0) ** 2).sin().view(4, 3)
_W_3 = 2 * (torch.arange(24.0) ** 2).cos().view(2, 12)


def _gru(x, s):
    return s / 2 + x.flip(0).tanh() / 2


@exercise(
    "answer step",
    [(_M[0], _M[1], _M, _gru, 2 * _M[:3], _W_3), (_M[2], _M[3], _M[:2], _gru, _M[1:], _W_3)],
    "s = gru(x, s); x = softmax(M W_2 s) M; softmax(W_3 [s; x; |s - x|; s x])",
)
def check_answer_step(pick, s, x, M, gru, W_2, W_3):
    """Check a step of the answer module after the first one.

    Args:
        pick: the choice between a right value and known mistakes.
        s: the state of the step before, [D].
        x: the weighted sum of the step before, [D].
        M: the vectors of the premise, [T, D].
        gru: a function of x and s.
        W_2: [D, D].
        W_3: [C, 4 D].

    Returns:
        The answer of this step, [C].
    """
    new = pick(
        gru(x, s),
        {"the arguments of the GRU are swapped": gru(s, x), "the state stays the same": s},
    )
    asked = pick(W_2 @ new, {"the attention reads the old state": W_2 @ s, "W_2 is missing": new})
    read = pick((M @ asked).softmax(0) @ M, {"the answer reads the old sum": x})
    parts = [new, read, (new - read).abs(), new * read]
    signed = [new, read, new - read, new * read]
    scores = W_3 @ torch.cat(pick(parts, {"the absolute value is missing": signed}))
    return pick(scores.softmax(0), {"the softmax over the labels is missing": scores})


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
