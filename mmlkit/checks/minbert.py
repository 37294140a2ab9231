"""The check of notebook 01's exercise."""

import torch

from mmlkit.checks.compare import exercise

__all__ = ["check_attention"]


@exercise(
    "attention",
    [(*(torch.arange(60.0) ** 2).sin().view(3, 5, 4) * 2, torch.tensor([1, 1, 1, 1, 0]))],
    "softmax(Q K^T / sqrt(d) + mask) V, with the softmax over keys (dim=-1)",
)
def check_attention(pick, query, key, value, mask):
    """Check the attention of one head.

    Args:
        pick: the choice between a right value and known mistakes.
        query: queries, [T, d].
        key: keys, [T, d].
        value: values, [T, d].
        mask: 1 for a token and 0 for padding, [T].

    Returns:
        The weighted sums of values, [T, d].
    """
    d = query.shape[-1]
    scale = pick(
        d**0.5,
        {
            f"the scores are not divided by sqrt(d); here d = {d}": 1,
            "the scores are divided by d, not by sqrt(d)": d,
        },
    )
    hidden = pick(mask == 0, {"padding gets attention; mask it before the softmax": mask < 0})
    dim = pick(-1, {"the softmax runs over the queries": 0})
    return (query @ key.T / scale).masked_fill(hidden, -1e9).softmax(dim) @ value
