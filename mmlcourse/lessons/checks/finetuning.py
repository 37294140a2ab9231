"""The checks of notebook 02's exercises: AdamW, a training step and a paired error.

Questions of assignment 1 share the tables of AdamW.
"""

import numpy as np
import torch

from mmlcourse.lessons.checks.compare import exercise
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data import Batch, get_task
from mmlkit.heads import LinearHead
from mmlkit.runtime import seeded
from mmlkit.training import MultitaskModel

__all__ = [
    "PAIRED",
    "adamw_parts",
    "check_adamw_step",
    "check_paired_error",
    "check_training_step",
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


def _train(step, updates):
    """The losses of some updates of a small model, and the weights of its head after them."""
    with seeded(0):
        model = MultitaskModel(BertModel(BertConfig.tiny()), {"sst": LinearHead(32, 5)}).eval()
        ids, ones = torch.randint(5, 50, (8, 6)), torch.ones(8, 6, dtype=torch.long)
    batch = Batch(get_task("sst"), ids, ones, 0 * ones, ids[:, 0] % 2, tuple(range(8)))
    with seeded(1):  # so long that a gradient is clipped
        torch.nn.init.normal_(next(model.heads.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = [step(model, batch, optimizer) for _ in range(updates)]
    parts = [one.detach().flatten() for one in model.heads.parameters()]
    return None if None in losses else [*map(float, losses), *torch.cat(parts).tolist()]


@exercise(
    "training step",
    [(3,)],
    "zero_grad, encoder, head, cross_entropy, backward, clip_grad_norm_, optimizer.step, and "
    "the loss as the result",
    driver=_train,
)
def check_training_step(pick, updates):
    """Check a training step on a small model.

    Args:
        pick: the choice between a right value and known mistakes.
        updates: their number.

    Returns:
        The losses, and the weights of the head after the last update.
    """
    zeroed = pick(True, {"the gradients of the last step are not set to zero": False})
    norm = pick(1.0, {"the gradient is not clipped, or only after the step": float("inf")})
    moves = pick(True, {"no weight moves: optimizer.step() or backward() is missing": False})
    reduction = pick("mean", {"the losses of the rows are added; take their mean": "sum"})

    def step(model, batch, optimizer):
        if zeroed:
            optimizer.zero_grad()
        out = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        head = model.head(batch.task)
        logits = head(*head.inputs(out, batch))
        loss = torch.nn.functional.cross_entropy(logits, batch.labels, reduction=reduction)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        if moves:
            optimizer.step()
        return loss.item()

    return _train(step, updates)


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
