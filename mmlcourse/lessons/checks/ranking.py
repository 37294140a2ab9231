"""The check of notebook 08's exercise: the pull of a ranking loss."""

import math

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_loss_pull"]


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
