"""The checks of notebook 11's exercises."""

import torch
from torch.nn.functional import layer_norm

from mmlkit.checks.compare import exercise

__all__ = ["check_pal_parameters", "check_projected_layer"]

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


@exercise(
    "projected layer",
    [
        (
            _H[:3],
            lambda x: _H[:3, :3].softmax(-1) @ x,
            lambda x: (x @ _FFN).tanh(),
            lambda x: _H[1:, 1:].softmax(-1) @ x @ _TS,
            lambda x: layer_norm(x, x.shape[-1:]),
        )
    ],
    "LN(a + FFN(a) + TS(h)) with a = LN(h + MH(h))",
)
def check_projected_layer(pick, h, MH, FFN, TS, LN):
    """Check a BERT layer with a parallel projected attention layer.

    Args:
        pick: the choice between a right value and known mistakes.
        h: the input of the layer, [T, D].
        MH: multi-head attention, a function from [T, D] to [T, D].
        FFN: the feed-forward network, likewise.
        TS: the task-specific function, likewise.
        LN: layer normalisation, likewise.

    Returns:
        The output of the layer, [T, D].
    """
    a = pick(LN(h + MH(h)), {"attention is missing": h})
    early = LN(h + MH(h) + TS(h))
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
            "TS reads the output of the layer, not h": TS(LN(a + FFN(a))),
        },
    )
    total = residual + FFN(a) + task
    return pick(
        LN(total),
        {
            "TS is added after the last LayerNorm": LN(residual + FFN(a)) + task,
            "the last LayerNorm is missing": total,
            "TS is added in the first half of the layer": LN(early + FFN(early)),
            "the feed-forward network reads h, not a": LN(residual + FFN(h) + task),
            "TS is added before the feed-forward network": LN(residual + FFN(a + task)),
        },
    )
