"""The checks of notebook 02's exercises: AdamW and a paired error.

Questions of assignment 1 share the tables of AdamW.
"""

import numpy as np

from mmlcourse.lessons.checks.compare import exercise

__all__ = [
    "PAIRED",
    "adamw_parts",
    "check_adamw_step",
    "check_first_step",
    "check_paired_error",
]


@exercise(
    "AdamW",
    [(0.5, 0.3, 0.02, 0.004, 2, 0.1, 0.9, 0.99, 0.01, 0.1)],
    {
        "theta": "that of the handout's formula",
        "m": "beta1 m + (1 - beta1) g",
        "v": "beta2 v + (1 - beta2) g^2",
    },
    (),
    ("m", "v", "theta"),
)
def check_adamw_step(pick, theta, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    """Check one step of AdamW as the CS224N handout writes it.

    Args:
        pick: the choice between a right value and known mistakes.
        theta: the parameter, a float.
        g: its gradient.
        m: the moving average of the gradient.
        v: the moving average of the squared gradient.
        t: the number of the step, from 1.
        lr: the learning rate.
        beta1: the momentum of m.
        beta2: the momentum of v.
        eps: the small number in the denominator.
        weight_decay: the factor of the decoupled weight decay.

    Returns:
        The new (theta, m, v).
    """
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    correction, root, factor = adamw_parts(pick, eps)
    alpha = lr * correction(t, beta1, beta2)
    moved = theta - alpha * m / root(v, t, beta2)
    decayed = pick(
        moved,
        {
            "weight decay is missing": 0,
            "decay uses theta from before the step; the handout decays after it": theta,
        },
    )
    return moved - factor(lr, alpha) * weight_decay * decayed, m, v


def adamw_parts(pick, eps):
    """Return the three parts of AdamW that often go wrong, as functions.

    Args:
        pick: the choice between a right value and known mistakes.
        eps: the small number in the denominator.

    Returns:
        (correction, root, factor): the bias correction of (t, beta1, beta2), the denominator of
        (v, t, beta2), and what multiplies the weight decay, of (lr, alpha_t).
    """
    both = lambda t, b1, b2: (1 - b2**t) ** 0.5 / (1 - b1**t)
    correction = pick(
        both,
        {
            "the bias correction sqrt(1 - beta2^t) / (1 - beta1^t) is missing": lambda *_: 1,
            "only m is bias-corrected": lambda t, b1, b2: 1 / (1 - b1**t),
            "only v is bias-corrected": lambda t, b1, b2: (1 - b2**t) ** 0.5,
            "the bias correction is upside down": lambda *case: 1 / both(*case),
        },
    )
    root = pick(
        lambda v, t, b2: v**0.5 + eps,
        {
            "the square root of v is missing": lambda v, *_: v + eps,
            "eps belongs outside the square root": lambda v, *_: (v + eps) ** 0.5,
            "eps is added to the bias-corrected root, as torch does": lambda v, t, b2: (
                v**0.5 + eps * (1 - b2**t) ** 0.5
            ),
        },
    )
    factor = pick(
        lambda lr, alpha: lr,
        {
            "decay is not multiplied by the learning rate": lambda lr, alpha: 1,
            "decay is multiplied by alpha_t; it is multiplied by lr": lambda lr, alpha: alpha,
        },
    )
    return correction, root, factor


@exercise(
    "first step",
    [(g, 0.1, 0.999, 1e-6) for g in (1.0, -100.0, 1e-5, -3e-6)],
    "-lr g / (|g| + eps / sqrt(1 - beta2))",
    [((0.0, 0.1, 0.999, 1e-6), "A gradient of 0 moves nothing.")],
)
def check_first_step(pick, g, lr, beta2, eps):
    """Check the first step of the CS224N handout's AdamW, from theta = 0 and without decay.

    Args:
        pick: the choice between a right value and known mistakes.
        g: the gradient.
        lr: the learning rate.
        beta2: the momentum of the squared gradient.
        eps: the small number in the denominator.

    Returns:
        The parameter after the step.
    """
    scale = pick(
        eps / (1 - beta2) ** 0.5,
        {
            "eps is not divided by sqrt(1 - beta2); this is torch's rule": eps,
            "eps is divided by 1 - beta2, without the square root": eps / (1 - beta2),
            "eps is multiplied by sqrt(1 - beta2), not divided by it": eps * (1 - beta2) ** 0.5,
            "eps is missing": 0,
        },
    )
    size = pick(
        abs(g) + scale,
        {
            "the gradient in the denominator has lost its absolute value": g + scale,
            "the step is divided by g squared": g * g + scale,
            "this is the step of gradient descent, which grows with g": 1,
        },
    )
    return pick(
        0.0 - lr * g / size,
        {
            "the step goes uphill; its sign is wrong": lr * g / size,
            "the learning rate is missing": -g / size,
            "the sign of the gradient is lost, so every step goes down": -lr * abs(g) / size,
        },
    )


# Two cases of paired values, for the exercises on standard errors.
PAIRED = [
    (np.array([1.0, 1, 0, 1, 0, 1, 1, 0]), np.array([1.0, 0, 0, 1, 1, 0, 0, 0])),
    (np.array([1.0, 1, 1, 0, 0]), np.array([0.0, 1, 1, 0, 1])),
]


@exercise(
    "paired error",
    PAIRED,
    "the standard deviation of first - second, with N - 1, divided by sqrt(N)",
)
def check_paired_error(pick, first, second):
    """Check the standard error of a difference of two accuracies on the same rows.

    Args:
        pick: the choice between a right value and known mistakes.
        first: 1 where the first model is right and 0 where it is wrong, [N].
        second: the same of the second model, [N].

    Returns:
        The standard error, a float.
    """
    difference, N = first - second, len(first)
    ddof = pick(1, {"the variance is divided by N, not by N - 1": 0})
    apart = first.var(ddof=ddof) + second.var(ddof=ddof)
    spread = pick(
        difference.var(ddof=ddof),
        {
            "the pairs are ignored: the two are treated as independent samples": apart,
            "the mean difference is not subtracted": (difference**2).sum() / (N - ddof),
            "the rows that differ are counted without their sign": abs(difference).var(ddof=ddof),
        },
    )
    rows = pick(
        N,
        {
            "this is the spread of one row; the mean of N rows has a smaller error": 1,
            "the number of rows with a difference is not N": max((difference != 0).sum(), 1),
            "the standard deviation is divided by N, not by its root": N * N,
        },
    )
    error = (spread / rows) ** 0.5
    return pick(
        error,
        {
            "this is the variance, not its root": spread / rows,
            "this is twice the standard error": 2 * error,
            "this is the difference of the accuracies, not its error": difference.mean(),
        },
    )
