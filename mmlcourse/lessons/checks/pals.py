"""The checks of notebook 11's exercises: size, layer, start and corrected form of PALs."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_corrected_form",
    "check_equal_size",
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
    "equal size",
    [(768, 12, 100), (768, 12, 50), (384, 6, 50), (1024, 24, 100)],
    "the positive root of 3L S² + (2D + 1 + 3L) S + D = low-rank cost, rounded down to 12s",
)
def check_equal_size(pick, D, L, width):
    """Check the size for which a PAL costs as much as low-rank layers.

    Args:
        pick: the choice between a right value and known mistakes.
        D: the hidden size.
        L: the number of layers.
        width: the width of the low-rank layers.

    Returns:
        S, a multiple of 12.
    """
    each = 2 * D * width + width + D
    cost = pick(
        L * each,
        {
            "the low-rank layers are counted once, not in each layer": each,
            "the low-rank layers have a single matrix": L * (D * width + width),
        },
    )
    maps = pick(3 * L, {"query, key and value are counted once": 3, "three maps are one here": L})
    half = (2 * D + 1 + maps) / (2 * maps)
    root = (half**2 - (D - cost) / maps) ** 0.5
    S = pick(root - half, {"the sign before the linear term is wrong": root + half})
    whole, up = 12 * int(S // 12), 12 * math.ceil(S / 12)
    return pick(whole, {"this is not rounded to a multiple of 12": S, "this is rounded up": up})


@exercise(
    "corrected form",
    [(_H, _FFN[:, :2], _TS[:2, :2], _TS[2:, 2:], _FFN[:2, 2:], 3 * _TS[:2])],
    "h + softmax(q k^T / sqrt(S)) v V_D, with q, k and v from h V_E",
)
def check_corrected_form(pick, h, V_E, W_q, W_k, W_v, V_D):
    """Check the corrected sequential form, with one head and without biases.

    Args:
        pick: the choice between a right value and known mistakes.
        h: the last hidden states, [T, D].
        V_E: [D, S].
        W_q: [S, S].
        W_k: [S, S].
        W_v: [S, S].
        V_D: [S, D].

    Returns:
        The vectors that the head reads, [T, D].
    """
    z = h @ V_E
    root = pick(
        z.shape[1] ** 0.5,
        {"the scores are not divided": 1.0, "the root is that of D, not of S": h.shape[1] ** 0.5},
    )
    scores = (z @ W_q) @ (z @ W_k).T / root
    scores = pick(
        scores,
        {
            "query and key are swapped": scores.T,
            "each token attends only to itself": torch.eye(len(h)).log(),
        },
    )
    weights = pick(
        scores.softmax(-1),
        {"the softmax runs over the queries": scores.softmax(0), "the softmax is missing": scores},
    )
    added = weights @ pick(z @ W_v, {"W_v is missing": z}) @ V_D
    return pick(
        h + added,
        {"the residual is missing": added, "the result replaces [CLS] alone": _cls(h, added)},
    )


def _cls(h, added):
    return torch.cat([added[:1], h[1:]])


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
