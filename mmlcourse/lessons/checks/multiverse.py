"""The checks of notebook 03's exercises: a step of the term, free directions, the collapse."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "check_collapse",
    "check_free_directions",
    "check_term_step",
]

_EQ_5 = "the mean over the active heads, dim 0 (Eq. 5)"


def _rows(*shape):
    """Numbers in no order, of a shape."""
    return torch.arange(float(math.prod(shape))).square().cos().view(shape)


@exercise(
    "step of the term",
    [(_rows(4, 3), 0.3, 0.1), (_rows(3, 5) + 1, 0.05, 2.0)],
    "F - lr lambda sign(G) F, where G = F F^T and the diagonal of sign(G) is 0",
)
def check_term_step(pick, F, lam, lr):
    """Check one step of gradient descent on lambda L_mv, for the heads of one class.

    Args:
        pick: the choice between a right value and known mistakes.
        F: the weight vectors of the heads, [M, D].
        lam: the weight of the term.
        lr: the learning rate.

    Returns:
        The heads after the step, [M, D].
    """
    G, apart = F @ F.T, 1 - torch.eye(len(F))
    signs = pick(
        G.sign() * apart,
        {
            "the diagonal of sign(G) is not set to 0": G.sign(),
            "the dot products are used, not their signs": G * apart,
            "the sign is missing, so all heads are added": apart,
            "only the heads after r are counted; each head is in M - 1 pairs": G.sign().triu(1),
            "only the heads before r are counted; each head is in M - 1 pairs": G.sign().tril(-1),
        },
    )
    factor = pick(
        lam,
        {
            "lambda is missing": 1,
            "there is no factor 1/2, as a pair adds a vector to both heads": lam / 2,
            "the gradient is doubled": 2 * lam,
            "the gradient is divided by the number of heads": lam / len(F),
        },
    )
    others = pick(
        F, {"the heads are normalised; L_mv has dot products": F / F.norm(dim=1)[:, None]}
    )
    gradient = factor * signs @ others
    moved = pick(lr, {"the learning rate is missing": 1}) * gradient
    return pick(
        F - moved,
        {
            "the step goes uphill; subtract the gradient": F + moved,
            "this is the gradient, not the heads": gradient,
            "this is the change, not the heads": -moved,
        },
    )


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
