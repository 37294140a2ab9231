"""The checks of notebook 11's exercises: size, layer and start of PALs, and constant answers."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_constant_answers",
    "check_pal_parameters",
    "check_zero_start",
    "projected_layer",
]

_H, _FFN, _TS = (torch.arange(48.0) ** 2).sin().view(3, 4, 4)


@exercise(
    "PAL parameters",
    [(10, 4, 3, 2), (768, 204, 12, 8)],
    "V^E and V^D once and query, key and value in every layer, with biases, for every task",
)
def check_pal_parameters(pick, D, S, L, T):
    """Check the number of parameters of the PALs of all tasks.

    Args:
        pick: the choice between a right value and known mistakes.
        D: the hidden size.
        S: the projected size.
        L: the number of layers.
        T: the number of tasks.

    Returns:
        The number of parameters.
    """
    ends = 2 * D * S + S + D
    ends = pick(
        ends,
        {
            "V^E and V^D have no biases": 2 * D * S,
            "V^E and V^D are counted in every layer": L * ends,
            "V^D is missing": D * S + S,
            "the bias of V^D has S numbers, not D": 2 * (D * S + S),
            "the bias of V^E has D numbers, not S": 2 * (D * S + D),
            "V^E and V^D are missing": 0,
        },
    )
    one = S * S + S
    maps = pick(
        3 * L * one,
        {
            "query, key and value have no biases": 3 * L * S * S,
            "an output projection is counted; attention has three maps": 4 * L * one,
            "query, key and value are counted once, not in each layer": 3 * one,
            "attention has one map, not three": L * one,
            "attention is D wide, not S": 3 * L * (D * D + D),
            "query, key and value are missing": 0,
        },
    )
    return (ends + maps) * pick(T, {"this is one task; every task has its own": 1})


def projected_layer(pick, h, MH, FFN, TS, first, last):
    """Return the output of a BERT layer with a parallel projected attention layer.

    Args:
        pick: the choice between a right value and known mistakes.
        h: the input of the layer, [..., T, D].
        MH: multi-head attention, a function from [..., T, D] to [..., T, D].
        FFN: the feed-forward network, likewise.
        TS: the task-specific function, likewise.
        first: the layer normalisation after the attention, likewise.
        last: that at the end, likewise.

    Returns:
        The output of the layer, [..., T, D].
    """
    mixed = MH(h)
    a = pick(
        first(h + mixed), {"attention is missing": h, "the first residual is missing": first(mixed)}
    )
    early = first(h + mixed + TS(h))
    residual = pick(
        a,
        {
            "the second residual is h, as in the report's formula": h,
            "the second residual is missing": 0 * h,
        },
    )
    task = pick(
        TS(h),
        {
            "TS reads a, not h": TS(a),
            "TS is missing": 0 * h,
            "TS reads the output of the layer, not h": TS(last(a + FFN(a))),
        },
    )
    total = residual + FFN(a) + task
    return pick(
        last(total),
        {
            "TS is added after the last LayerNorm": last(residual + FFN(a)) + task,
            "the last LayerNorm is missing": total,
            "TS is added in the first half of the layer": last(early + FFN(early)),
            "the feed-forward network reads h, not a": last(residual + FFN(h) + task),
            "TS is added before the feed-forward network": last(residual + FFN(a + task)),
        },
    )


@exercise(
    "constant answers",
    [
        (0.253, [139, 289, 229, 279, 165]),
        (0.262, [139, 289, 229, 279, 165]),
        (0.263, [139, 289, 229, 279, 165]),  # 0.2625 is not printed as this
        (0.13, [139, 289, 229, 279, 165]),
        (0.25, [2, 2, 2, 2]),
        (0.5, [1, 1]),
        (0.667, [1, 2]),
    ],
    "every label whose share, rounded to three decimals, is the printed accuracy",
    [((0.512, [139, 289, 229, 279, 165]), "No constant has this accuracy, so the set is empty.")],
)
def check_constant_answers(pick, printed, counts):
    """Check which constant predictions explain a printed accuracy.

    Args:
        pick: the choice between a right value and known mistakes.
        printed: an accuracy with three decimals, from 0 to 1.
        counts: how many rows of the dev set have each label.

    Returns:
        The set of the labels' indices, from 0.
    """
    total = pick(sum(counts), {"a count is divided by the largest count, not by all": max(counts)})
    shares = [round(count / total, 3) for count in counts]
    cut = [math.floor(1000 * count / total) / 1000 for count in counts]
    shares = pick(
        shares,
        {
            "the share is cut off after three decimals, not rounded": cut,
            "the share is rounded to two decimals": [round(one, 2) for one in shares],
            "the share is not rounded": [count / total for count in counts],
        },
    )
    fits = {label for label, share in enumerate(shares) if abs(share - printed) < 1e-9}
    majority = {label for label in fits if counts[label] == max(counts)}
    return pick(
        fits,
        {
            "only the majority class is considered": majority,
            "only the first label that fits is returned": set(sorted(fits)[:1]),
        },
    )


@exercise(
    "zero start",
    [(_H[:3], _FFN[:3, :2], False), (_H[:3], _FFN[:3, :2], True)],
    "the sum over tokens of the products of error and z, and half of it with GELU",
)
def check_zero_start(pick, z, error, gelu):
    """Check the gradient of V^D in the first step, where V^D and its bias are 0.

    Args:
        pick: the choice between a right value and known mistakes.
        z: the output of g, [T, S].
        error: the gradient of the loss with respect to TS(h), [T, D].
        gelu: whether TS(h) = GELU(V^D z) instead of V^D z.

    Returns:
        The gradient of V^D, [D, S].
    """
    total = error.T @ z
    total = pick(
        total,
        {
            "the products are averaged over the tokens; the gradient is their sum": total / len(z),
            "only the first token is counted": error[:1].T @ z[:1],
            "the gradient is zero; that holds for the other matrices, not for V^D": 0 * total,
            "z is summed before it is multiplied": torch.outer(error.sum(0), z.sum(0)),
        },
    )
    slope = pick(
        0.5,
        {
            "the slope of GELU at 0 is 1/2, not 1": 1.0,
            "the slope of GELU at 0 is 1/2, not 0": 0.0,
        },
    )
    return total * pick(slope if gelu else 1.0, {"the factor 1/2 belongs to GELU alone": 0.5})
