"""The checks of notebook 03's exercises."""

import torch

from mmlkit.checks.compare import exercise

__all__ = ["check_collapse", "check_multiverse_loss"]

_EQ_5 = "the mean over the active heads, dim 0 (Eq. 5)"


@exercise(
    "multiverse loss",
    [((torch.arange(12.0) ** 2).cos().view(4, 3),)],
    "the sum of |<f_r, f_s>| over rows r < s of F (Eq. 4)",
)
def check_multiverse_loss(pick, F):
    """Check the multiverse loss of one class (MML v2, Eq. 4).

    Args:
        pick: the choice between a right value and known mistakes.
        F: the weights of the heads, [M, D].

    Returns:
        The sum of |<f_r, f_s>| over the pairs r < s.
    """
    G = pick(F @ F.T, {"the products are those of the columns": F.T @ F})
    ones, diagonal = torch.ones_like(G), torch.eye(len(G))
    weights = ones.triu(1) + pick(0, {"every pair is counted twice": ones.tril(-1)})
    weights = weights + pick(
        0, {"the diagonal is counted": diagonal, "half of the diagonal is counted": diagonal / 2}
    )
    loss, plain = (weights * G.abs()).sum(), (weights * G).sum()
    return pick(
        loss,
        {
            "the absolute value is missing": plain,
            "the absolute value is taken of the sum, not of each product": plain.abs(),
            "the products are squared": (weights * G**2).sum(),
            "this is the mean over pairs": loss / 6,
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
