"""The check of notebook 01's exercise."""

import torch

from mmlkit.checks.compare import exercise

__all__ = ["RULE", "check_attention"]

RULE = (
    "softmax(Q K^T / sqrt(d) + M) V, where M is 0 for a token and -1e9 for a padded key, "
    "with the softmax over keys (dim=-1)"
)


@exercise(
    "attention",
    [(*(torch.arange(60.0) ** 2).sin().view(3, 5, 4) * 2, torch.tensor([1, 1, 1, 1, 0]))],
    RULE,
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
    scores, large = query @ key.T / scale, -1e9 * torch.ones(len(mask), len(mask))
    only = lambda shown: scores.where(shown, large)
    masked, factor = pick(
        (only(mask != 0), 1),
        {
            "padding gets attention; mask it before the softmax": (scores, 1),
            "the mask is inverted; it hides the tokens": (only(mask == 0), 1),
            "the mask itself is added; it is 1 and 0, so turn it into M": (scores + mask, 1),
            "the scores are multiplied by the mask; a score of 0 is not small": (scores * mask, 1),
            "padded queries are masked, not padded keys": (only(mask[:, None] != 0), 1),
            "the mask comes after the softmax, so the weights do not sum to 1": (scores, mask),
        },
    )
    dim = pick(-1, {"the softmax runs over the queries": 0})
    return (masked.softmax(dim) * factor) @ value
