"""The checks of notebook 07's exercises: SAN's step, and the two parts of a gain."""

import numpy as np
import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_answer_step",
    "check_gain_parts",
]


_M = (torch.arange(12.0) ** 2).sin().view(4, 3)
_W_3 = 2 * (torch.arange(24.0) ** 2).cos().view(2, 12)


def _gru(x, s):
    return s / 2 + x.flip(0).tanh() / 2


@exercise(
    "answer step",
    [(_M[0], _M[1], _M, _gru, 2 * _M[:3], _W_3), (_M[2], _M[3], _M[:2], _gru, _M[1:], _W_3)],
    {
        "s": "gru(x, s)",
        "x": "softmax(M W_2 s) M, with the new s",
        "P": "softmax(W_3 [s; x; |s - x|; s x]), with the new s and x",
    },
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
        The new state [D], the new sum [D] and the answer [C].
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
    return new, read, pick(scores.softmax(0), {"the softmax over the labels is missing": scores})


@exercise(
    "parts of a gain",
    [([50, 53, 51, 54], [55, 54, 57, 55], [58, 61, 56, 60]), ([1, 2, 4], [5, 5, 9], [5, 9, 9])],
    {
        "updates": "mean and standard error of longer - alone, seed by seed",
        "others": "mean and standard error of together - longer, seed by seed",
    },
)
def check_gain_parts(pick, alone, longer, together):
    """Check the split of a gain in more updates and other tasks, each with its standard error.

    Args:
        pick: the choice between a right value and known mistakes.
        alone: scores of short runs alone, one per seed.
        longer: scores alone, with as many updates as together.
        together: scores with the other tasks.

    Returns:
        (mean, standard error) of each part.
    """
    alone, longer, together = (np.array(one, float) for one in (alone, longer, together))
    second = pick(longer, {"the second part is the difference from the short runs": alone})

    def part(a, b):
        apart = np.sqrt(a.var(ddof=1) + b.var(ddof=1)) / len(a) ** 0.5
        spread = (a - b).std(ddof=1)
        over_n = (a - b).std() / len(a) ** 0.5
        error = pick(
            spread / len(a) ** 0.5,
            {
                "the error is not that of the paired differences": apart,
                "it is the standard deviation, not the error of the mean": spread,
                "the standard deviation divides by n, not by n - 1 (ddof=1)": over_n,
            },
        )
        return [(a - b).mean(), error]

    return part(longer, alone), part(together, second)
