"""The checks of notebook 03: the loss, its turning part, free directions; and the collapse."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_collapse",
    "check_free_directions",
    "check_multiverse_loss",
    "check_turning",
]

_EQ_5 = "the mean over the active heads, dim 0 (Eq. 5)"


def _rows(*shape):
    """Numbers in no order, of a shape."""
    return torch.arange(float(math.prod(shape))).square().cos().view(shape)


@exercise(
    "multiverse loss",
    [(_rows(4, 3, 5),), (_rows(5, 2, 3) - 0.3,)],
    "half of the sum of |F_k F_k^T| over all classes k, without the diagonals",
)
def check_multiverse_loss(pick, F):
    """Check Eq. 4 (MML v2) with all heads active.

    Args:
        pick: the choice between a right value and known mistakes.
        F: the weights of the heads, [M, C, D].

    Returns:
        The sum over classes and pairs of heads of the absolute dot products.
    """
    rows = pick(F.transpose(0, 1), {"the classes of one head are compared": F})
    G = rows @ rows.mT
    size = pick(G.abs(), {"the absolute value is missing": G})
    own = size.diagonal(dim1=1, dim2=2).sum()
    pairs = size.sum() - pick(own, {"the diagonal, |f|^2, is counted": 0 * own})
    return pick(pairs / 2, {"every pair is counted twice": pairs})


@exercise(
    "turning",
    [(_rows(4, 3),), (_rows(3, 5) + 1,)],
    "(g - <g, n> n) / |f|, where n = f / |f| and g is the sum of the signed other n",
)
def check_turning(pick, F):
    """Check the gradient of the sum of |cos| over all pairs of heads of one class.

    Args:
        pick: the choice between a right value and known mistakes.
        F: the weight vectors of the heads, [M, D].

    Returns:
        The gradient, [M, D].
    """
    length = F.norm(dim=1, keepdim=True)
    n = F / length
    G = n @ n.T
    signs = pick(
        G.sign(),
        {
            "the cosines are used, not their signs": G,
            "the sign is missing, so all heads are added": torch.ones_like(G),
        },
    ).fill_diagonal_(0)
    g = signs @ pick(n, {"the other heads are not normalised": F})
    along = (g * n).sum(1, keepdim=True) * n
    g = g - pick(along, {"the part along f is left in": 0 * n})
    g = pick(g / length, {"the division by |f| is missing": g})
    return pick(g, {"the gradient is doubled": 2 * g, "this goes downhill": -g})


@exercise(
    "free directions",
    [
        (_rows(3, 6),),
        (torch.eye(4, 7),),
        (_rows(2, 5)[[0, 1, 0]],),
        (torch.tensor([[1.0], [-1.0], [3.0]]) * torch.eye(1, 6),),
    ],
    "D minus the rank of the differences f_r - f_1",
)
def check_free_directions(pick, F):
    """Check the number of directions in which x may vary while all heads agree.

    Args:
        pick: the choice between a right value and known mistakes.
        F: the weights of the heads of one class, [M, D].

    Returns:
        The dimension of the space of all x with <f_r, x> equal for all heads r.
    """
    M, D = F.shape
    rank = int(torch.linalg.matrix_rank(F[1:] - F[0]))
    of_heads = int(torch.linalg.matrix_rank(F))
    return pick(
        D - rank,
        {
            "this is the rank of the differences; x has the other directions": rank,
            "this is D minus the rank of the heads: there every logit is 0": D - of_heads,
            "this is the rank of the heads": of_heads,
            "this is D - M + 1, which holds only for independent heads": D - M + 1,
            "this is D - M": D - M,
        },
    )


@exercise(
    "collapse",
    [
        (
            torch.arange(24.0).sin().view(4, 2, 3),
            torch.arange(8.0).cos().view(4, 2),
            torch.tensor([True, False, True, True]),
        )
    ],
    {"weight": _EQ_5, "bias": _EQ_5},
)
def check_collapse(pick, weight, bias, active):
    """Check the collapse of the active heads into one linear layer (MML v2, Eq. 5).

    Args:
        pick: the choice between a right value and known mistakes.
        weight: the weights of the heads, [M, C, D].
        bias: their biases, [M, C].
        active: bool, [M].

    Returns:
        The weight [C, D] and the bias [C], or a `torch.nn.Linear`.
    """

    def merged(values):
        chosen = pick(values[active], {"inactive heads are counted": values})
        total = chosen.sum(0)
        return pick(
            total / len(chosen),
            {
                "this is the sum": total,
                "the sum is divided by the number of all heads": total / len(active),
                "inactive heads are in the sum": values.sum(0) / active.sum(),
                "these are zeros": 0 * total,
                "this is the first head alone": values[0],
            },
        )

    return merged(weight), merged(bias)
