"""The checks of notebook 07 accept the solution and name each known mistake."""

import math

import pytest
import torch

from mmlkit.checks import check_answer_loss, check_premise_attention, check_ranking_loss
from mmlkit.heads.ranking import ranking_loss
from mmlkit.heads.san import SANHead, mean_of_steps


def stub(*arguments): ...


def raises(*arguments):
    raise TypeError("a draft")


# Attention over the premise.


def scores_of(s, M, W_2):
    return M @ (W_2 @ s)


def masked(e, premise):
    return e.masked_fill(~premise, -1e9).softmax(0)


def premise_attention(s, M, W_2, premise):
    beta = masked(scores_of(s, M, W_2), premise)
    return beta, beta @ M


def attention_solution(score=scores_of, normalise=masked, combine=lambda beta, M: beta @ M):
    """Return the solution. Each argument replaces one of its parts."""

    def function(s, M, W_2, premise):
        beta = normalise(score(s, M, W_2), premise)
        return beta, combine(beta, M)

    return function


def transposed(s, M, W_2):
    return M @ (W_2.T @ s)


def unmasked(e, premise):
    return e.softmax(0)


ATTENTIONS = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda *_: "text", "expected (beta, x), found 'text'."),
    (
        lambda s, M, W_2, premise: masked(scores_of(s, M, W_2), premise),
        "expected (beta, x), found tensor([0.1272, 0.4094, 0.4634, 0.0000, 0.0000]).",
    ),
    (
        lambda s, M, W_2, premise: premise_attention(s, M, W_2, premise)[::-1],
        "beta: expected numbers of shape [5], found shape [3].",
    ),
    (attention_solution(score=transposed), "beta: W_2 is transposed."),
    (attention_solution(score=lambda s, M, W_2: M @ s), "beta: W_2 is missing."),
    (attention_solution(normalise=unmasked), "beta: tokens outside the premise get attention."),
    (
        attention_solution(score=transposed, normalise=unmasked),
        "beta: W_2 is transposed, and tokens outside the premise get attention.",
    ),
    (
        attention_solution(score=lambda s, M, W_2: M @ s, normalise=unmasked),
        "beta: W_2 is missing, and tokens outside the premise get attention.",
    ),
    (
        attention_solution(normalise=lambda e, premise: (e * premise).softmax(0)),
        "beta: scores outside the premise are 0, not very negative.",
    ),
    (
        attention_solution(normalise=lambda e, premise: e.softmax(0) * premise),
        "beta: the mask comes after the softmax, so the weights do not sum to 1.",
    ),
    (attention_solution(normalise=lambda e, premise: e * premise), "beta: the softmax is missing."),
    (
        attention_solution(normalise=lambda e, premise: e),
        "beta: the softmax and the mask are missing.",
    ),
    (
        attention_solution(normalise=lambda e, premise: masked(e, ~premise)),
        "beta: it returns [0, 0, 0, 0.47",
    ),
    (
        attention_solution(combine=lambda beta, M: M[beta.argmax()]),
        "x: this is the token with the largest beta.",
    ),
    (
        attention_solution(combine=lambda beta, M: M[:3].mean(0)),
        "x: this is the plain mean of the premise.",
    ),
    (
        attention_solution(combine=lambda beta, M: beta @ M / 3),
        "x: the sum is divided by the number of tokens.",
    ),
    (
        attention_solution(combine=lambda beta, M: (beta[:, None] * M).mean(0)),
        "x: this is a mean over all tokens.",
    ),
    (
        attention_solution(combine=lambda beta, M: M[1]),
        "x: it returns [0.41",
    ),
    (
        attention_solution(combine=lambda beta, M: beta @ M * float("nan")),
        "x: it returns [nan, nan, nan], expected [-0.29",
    ),
]


def test_premise_attention_worked_by_hand(capsys):
    """Scores 0 and ln 3 give the weights 1/4 and 3/4. A token outside the premise gets weight 0."""
    M = torch.tensor([[0.0, 4.0], [math.log(3), 0.0], [9.0, 9.0]])
    beta, x = premise_attention(
        torch.tensor([1.0, 0.0]), M, torch.eye(2), torch.tensor([True, True, False])
    )
    assert beta.tolist() == pytest.approx([0.25, 0.75, 0]) and x.tolist() == pytest.approx(
        [0.75 * math.log(3), 1]
    )
    assert (
        check_premise_attention(premise_attention)
        and capsys.readouterr().out == "premise attention: right.\n"
    )
    assert check_premise_attention(
        lambda *arguments: [value.requires_grad_() for value in premise_attention(*arguments)]
    )


def test_premise_attention_equals_the_library(capsys):
    """A SANHead with the same W_2 and one hypothesis token, s_0, gives the same result."""

    def with_the_library(s, M, W_2, premise):
        head = SANHead(3, 2, num_steps=1).eval()
        head.attention.weight.data = W_2
        tokens = torch.cat([M, s[None]])[None]
        only_s = torch.tensor([[False] * len(M) + [True]])
        within = torch.cat([premise, torch.tensor([False])])[None]
        beta = head.steps(tokens, within, only_s).premise_weights[0, 0, :-1]
        return beta, beta @ M

    assert check_premise_attention(with_the_library), capsys.readouterr().out


@pytest.mark.parametrize("function, message", ATTENTIONS)
def test_mistakes_in_premise_attention_are_named(function, message, capsys):
    assert check_premise_attention(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"premise attention: not yet: {message}") and out.count("\n") == 1, out


def test_changing_the_arguments_in_place_does_not_pass():
    def function(s, M, W_2, premise):
        M *= 0
        return premise_attention(s, M, W_2, premise)

    assert not check_premise_attention(function)


# The loss of the averaged answer.


def answer_loss(P, kept, y):
    return -P[kept, y].mean().log()


LOSSES = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda *_: "text", "expected one number, found 'text'."),
    (lambda P, kept, y: -P[kept].mean(0).log(), "expected one number, found shape [3]."),
    (lambda P, kept, y: -P[kept, y].log().mean(), "this is the mean of the steps' losses."),
    (lambda P, kept, y: -P[kept, y].log().sum(), "this is the sum of the steps' losses."),
    (lambda P, kept, y: -P[:, y].mean().log(), "dropped steps are counted."),
    (
        lambda P, kept, y: -P[:, y].log().mean(),
        "dropped steps are counted, and this is the mean of the steps' losses.",
    ),
    (lambda P, kept, y: -P[~kept, y].mean().log(), "the mask is inverted."),
    (
        lambda P, kept, y: -(P[kept, y].sum() / len(P)).log(),
        "the sum is divided by the number of all steps.",
    ),
    (lambda P, kept, y: -P[kept, y].sum().log(), "the probabilities are summed."),
    (lambda P, kept, y: -P[kept].mean(0).max().log(), "the likeliest label is taken."),
    (lambda P, kept, y: -P[kept, y].mean(), "the log is missing."),
    (lambda P, kept, y: P[kept, y].mean().log(), "the minus is missing."),
    (lambda P, kept, y: P[kept, y].mean(), "the log is missing, and the minus is missing."),
    (lambda P, kept, y: answer_loss(P, kept, y) + 1, "it returns 2.1038"),
    (lambda P, kept, y: float("nan"), "it returns nan, expected 1.1038"),
]


def test_the_loss_worked_by_hand(capsys):
    """Of the probabilities 0.5, 0.1 and 0.3 the second is dropped, so the loss is -log 0.4."""
    P = torch.tensor([[0.5, 0.5], [0.1, 0.9], [0.3, 0.7]])
    kept = torch.tensor([True, False, True])
    assert answer_loss(P, kept, 0).item() == pytest.approx(-math.log(0.4))
    assert (
        check_answer_loss(answer_loss) and capsys.readouterr().out == "loss of the answer: right.\n"
    )
    assert check_answer_loss(lambda P, kept, y: answer_loss(P, kept, y).item())
    assert check_answer_loss(
        lambda P, kept, y: -(P * kept[:, None]).sum(0)[y].div(kept.sum()).log()
    )
    assert check_answer_loss(lambda P, kept, y: -mean_of_steps(P.log()[None], kept[None])[0, y]), (
        "the exercise asks for what the library computes"
    )


@pytest.mark.parametrize("function, message", LOSSES)
def test_mistakes_in_the_loss_are_named(function, message, capsys):
    assert check_answer_loss(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"loss of the answer: not yet: {message}") and out.count("\n") == 1, out


# Ranking.


def ranking_solution(scores, relevant, groups, gamma):
    parts = zip((gamma * scores).split(groups), relevant.split(groups))
    return -torch.stack([part.log_softmax(0)[right == 1].sum() for part, right in parts]).mean()


def mean_over_queries(query_loss):
    """Apply a loss to each query's scaled scores and relevance, and average over queries."""
    return lambda scores, relevant, groups, gamma: torch.stack(
        [
            query_loss(part, right)
            for part, right in zip((gamma * scores).split(groups), relevant.split(groups))
        ]
    ).mean()


RANKINGS = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda *_: "text", "expected one number, found 'text'."),
    (lambda scores, relevant, groups, gamma: scores, "expected one number, found shape [5]."),
    (
        mean_over_queries(lambda e, right: -e.softmax(0)[right == 1].sum()),
        "the log is missing, as in the printed Eq. 8.",
    ),
    (
        lambda *a: (
            len(a[2]) * mean_over_queries(lambda e, right: -e.softmax(0)[right == 1].sum())(*a)
        ),
        "the log is missing, as in the printed Eq. 8, and this is the sum over queries.",
    ),
    (
        lambda scores, relevant, groups, gamma: (
            len(groups) * ranking_solution(scores, relevant, groups, gamma)
        ),
        "this is the sum over queries.",
    ),
    (
        lambda scores, relevant, groups, gamma: (
            ranking_solution(scores, relevant, groups, gamma) * 2 / 5
        ),
        "the sum is divided by the candidates.",
    ),
    (lambda *arguments: -ranking_solution(*arguments), "the minus is missing."),
    (
        lambda scores, relevant, groups, gamma: ranking_solution(scores, relevant, groups, 1),
        "gamma is missing.",
    ),
    (
        lambda scores, relevant, groups, gamma: ranking_solution(
            scores / gamma, relevant, groups, 1
        ),
        "the scores are divided by gamma.",
    ),
    (
        lambda scores, relevant, groups, gamma: ranking_solution(
            scores.sigmoid(), relevant, groups, gamma
        ),
        "a sigmoid comes first.",
    ),
    (
        lambda scores, relevant, groups, gamma: ranking_solution(
            scores.sigmoid(), relevant, groups, 1
        ),
        "gamma is missing, and a sigmoid comes first.",
    ),
    (
        lambda scores, relevant, groups, gamma: (
            -(gamma * scores).log_softmax(0)[relevant == 1].mean()
        ),
        "the softmax runs over the whole batch.",
    ),
    (
        lambda scores, relevant, groups, gamma: -(gamma * scores).softmax(0)[relevant == 1].mean(),
        "the softmax runs over the whole batch, and the log is missing, as in the printed Eq. 8.",
    ),
    (
        mean_over_queries(lambda e, right: -e.log_softmax(0)[0]),
        "the first candidate is taken for the answer.",
    ),
    (
        lambda scores, relevant, groups, gamma: (
            -torch.cat([part.log_softmax(0) for part in (gamma * scores).split(groups)]).mean()
        ),
        "every candidate is taken for the answer.",
    ),
    (
        lambda scores, relevant, groups, gamma: (
            torch.nn.functional.binary_cross_entropy_with_logits(gamma * scores, relevant.float())
        ),
        "each candidate is judged alone.",
    ),
    (lambda *arguments: ranking_solution(*arguments) + 1, "it returns 3.3485"),
    (
        lambda *arguments: ranking_solution(*arguments) * float("nan"),
        "it returns nan, expected 2.3485",
    ),
]


def test_the_ranking_worked_by_hand(capsys):
    """The answer has probability 3/4 with scores ln 3 and 0, and 1/3 with three equal scores."""
    scores, relevant = torch.tensor([math.log(3), 0, 5, 5, 5]), torch.tensor([1, 0, 0, 1, 0])
    assert ranking_solution(scores, relevant, [2, 3], 1).item() == pytest.approx(
        (math.log(4 / 3) + math.log(3)) / 2
    )
    assert (
        check_ranking_loss(ranking_solution) and capsys.readouterr().out == "ranking loss: right.\n"
    )
    assert check_ranking_loss(lambda *arguments: ranking_solution(*arguments).item())
    assert check_ranking_loss(
        lambda scores, relevant, groups, gamma: ranking_loss(scores, relevant, groups, gamma=gamma)
    )


@pytest.mark.parametrize("function, message", RANKINGS)
def test_mistakes_in_the_ranking_are_named(function, message, capsys):
    assert check_ranking_loss(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"ranking loss: not yet: {message}") and out.count("\n") == 1, out
