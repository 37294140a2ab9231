"""The checks of notebook 07's exercises."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from mmlkit.checks.compare import exercise

__all__ = ["check_answer_loss", "check_premise_attention", "check_ranking_loss"]


@exercise(
    "premise attention",
    [
        (
            torch.tensor([0.9, -0.4, 0.3]),
            (torch.arange(15.0) ** 2).sin().view(5, 3),
            torch.arange(9.0).cos().view(3, 3),
            torch.tensor([True, True, True, False, False]),
        )
    ],
    {
        "beta": "the softmax, over the premise alone, of M_j · (W_2 s)",
        "x": "the sum of beta_j M_j",
    },
)
def check_premise_attention(pick, s, M, W_2, premise):
    """Check one step of attention to the premise (SAN).

    Args:
        pick: the choice between a right value and known mistakes.
        s: the state, [D].
        M: the tokens, [T, D].
        W_2: the weight, [D, D].
        premise: bool, True for a token of the premise, [T].

    Returns:
        The weights beta [T], 0 outside the premise, and the weighted sum x [D].
    """

    def attend(e):
        return e.masked_fill(~premise, -torch.inf).softmax(0)

    e = M @ pick(W_2 @ s, {"W_2 is transposed": W_2.T @ s, "W_2 is missing": s})
    beta = pick(
        attend(e),
        {
            "tokens outside the premise get attention": e.softmax(0),
            "scores outside the premise are 0, not very negative": (e * premise).softmax(0),
            "the mask comes after the softmax, so the weights do not sum to 1": e.softmax(0)
            * premise,
            "the softmax is missing": e * premise,
            "the softmax and the mask are missing": e,
        },
    )
    right = attend(M @ W_2 @ s)
    x = right @ M
    return beta, pick(
        x,
        {
            "this is the token with the largest beta": M[right.argmax()],
            "this is the plain mean of the premise": M[premise].mean(0),
            "the sum is divided by the number of tokens": x / premise.sum(),
            "this is a mean over all tokens": x / len(M),
        },
    )


@exercise(
    "loss of the answer",
    [
        (
            torch.arange(12.0).sin().view(4, 3).softmax(1),
            torch.tensor([True, False, True, True]),
            1,
        )
    ],
    "-log of the mean, over kept steps, of P_k[y]",
)
def check_answer_loss(pick, P, kept, y):
    """Check the loss of one row in training with step dropout (SAN).

    Args:
        pick: the choice between a right value and known mistakes.
        P: the probabilities of the steps, [K, C].
        kept: bool, False for a dropped step, [K].
        y: the right label.

    Returns:
        -log of the mean probability of the right label.
    """
    steps = pick(
        kept,
        {"dropped steps are counted": kept | True, "the mask is inverted": ~kept},
    )
    likeliest = P[kept].mean(0).argmax()
    label = pick(y, {"the likeliest label is taken": likeliest, "labels count from 0": y - 1})
    q = P[steps, label]
    log = pick(
        q.mean().log(),
        {
            "this is the mean of the steps' losses": q.log().mean(),
            "this is the sum of the steps' losses": q.log().sum(),
            "the sum is divided by the number of all steps": (q.sum() / len(P)).log(),
            "the probabilities are summed": q.sum().log(),
            "the log is missing": q.mean(),
        },
    )
    return pick(-log, {"the minus is missing": log})


@exercise(
    "ranking loss",
    [(torch.tensor([1.2, -0.3, 0.4, 2.0, -1.0]), torch.tensor([1, 0, 0, 0, 1]), [2, 3], 1.5)],
    "the mean over queries of -log softmax(gamma * scores) at the relevant candidate",
)
def check_ranking_loss(pick, scores, relevant, groups, gamma):
    """Check the ranking loss of MT-DNN, Eqs. 8 and 9, with the log.

    Args:
        pick: the choice between a right value and known mistakes.
        scores: the scores of all candidates, [B].
        relevant: 1 for an answer and 0 otherwise, [B].
        groups: the number of candidates of each query.
        gamma: the factor of the scores.

    Returns:
        The mean loss over queries.
    """
    factor = pick(gamma, {"gamma is missing": 1, "the scores are divided by gamma": 1 / gamma})
    e = factor * pick(scores, {"a sigmoid comes first": scores.sigmoid()})
    parts = [part.log_softmax(0) for part in e.split(groups)]
    log = pick(torch.cat(parts), {"the softmax runs over the whole batch": e.log_softmax(0)})
    q = log[relevant == 1]
    q = pick(q, {"the log is missing, as in the printed Eq. 8": q.exp()})
    return pick(
        -q.mean(),
        {
            "this is the sum over queries": -q.sum(),
            "the minus is missing": q.mean(),
            "the sum is divided by the candidates": -q.sum() / len(e),
            "the first candidate is taken for the answer": -torch.stack(
                [p[0] for p in parts]
            ).mean(),
            "every candidate is taken for the answer": -log.mean(),
            "each candidate is judged alone": binary_cross_entropy_with_logits(e, relevant.float()),
        },
    )
