"""The checks of notebook 08's exercises: a ranking's pull and rank."""

import math

import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_loss_pull", "check_reciprocal_rank"]


@exercise(
    "reciprocal rank",
    [
        (
            torch.tensor([0.2, 1.5, 0.9, -1.0, 0.3, 2.0, 1.1, 0.5, 0.7]),
            torch.tensor([0, 0, 1, 1, 0, 0, 0, 0, 1]),
            [3, 2, 4],
        )
    ],
    "the mean over queries of 1 / (1 + the number of candidates above the answer)",
)
def check_reciprocal_rank(pick, scores, relevant, groups):
    """Check the mean reciprocal rank of a ranking.

    Args:
        pick: the choice between a right value and known mistakes.
        scores: the scores of all candidates, without ties, [B].
        relevant: 1 for an answer and 0 otherwise, [B].
        groups: the number of candidates of each query.

    Returns:
        The mean reciprocal rank.
    """
    best = scores[relevant == 1]
    parts = scores.split(groups)
    above = torch.stack([(part > one).sum() for part, one in zip(parts, best)])
    below = torch.tensor(groups) - 1 - above  # without ties
    whole = (scores > best[:, None]).sum(1)
    above = pick(
        above,
        {
            "the lowest score has rank 1": below,
            "the ranks run over the whole batch": whole,
        },
    )
    rank = pick(1.0 + above, {"the best rank is 2, not 1": 2.0 + above})
    return pick(
        (1 / rank).mean(),
        {
            "this is the mean rank": rank.mean(),
            "this is 1 over the mean rank": 1 / rank.mean(),
            "this is the share of answers in the first place": (rank == 1).double().mean(),
            "this is the sum over queries": (1 / rank).sum(),
            "the sum is divided by the candidates": (1 / rank).sum() / len(scores),
        },
    )


@exercise(
    "pull of a loss",
    [(0.0, 1.0), (-6.0, 1.0), (2.0, 3.0), (-1.0, 10.0)],
    "gamma sigmoid(-gamma t) (1 - t²) / 4 with t = tanh(m / 4)",
)
def check_loss_pull(pick, m, gamma):
    """Check the pull -dL/dm of the ranking loss with Eq. 5's sigmoid, for two candidates.

    Args:
        pick: the choice between a right value and known mistakes.
        m: the margin; the answer's score before the sigmoid is m/2, the other one's is -m/2.
        gamma: the factor on the scores after the sigmoid.

    Returns:
        The pull.
    """
    t = math.tanh(pick(m / 4, {"the sigmoids read m and -m, not m/2 and -m/2": m / 2}))
    slope = pick(
        (1 - t * t) / 4,
        {
            "the derivative of the sigmoids is missing": 1,
            "only one of the two sigmoids is differentiated": (1 - t * t) / 8,
        },
    )
    factor = pick(gamma, {"the chain rule's gamma is missing": 1})
    q = 1 / (1 + math.exp(-gamma * t))
    outer = pick(
        1 - q,
        {
            "this takes the probability of the answer, not of the other": q,
            "this is the loss without its log, as Eq. 8 is printed": q * (1 - q),
        },
    )
    pull = factor * outer * slope
    return pick(pull, {"this is the derivative, not the pull": -pull})
