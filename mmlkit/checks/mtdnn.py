"""Feedback for the exercises of notebook 06: a look at the premise, the loss of an averaged answer, and ranking.

As in `checks`: one line is printed, True or False comes back, and a wrong answer never stops the notebook.
"""

import itertools

import torch

from mmlkit.checks.multiverse import _answer, _verdict

__all__ = ["check_premise_attention", "check_answer_loss", "check_ranking_loss"]


def check_premise_attention(function):
    """function(s, M, W_2, premise): s [D], M [T,D], W_2 [D,D], premise bool [T]; returns (beta [T], x [D])."""
    s = torch.tensor([0.9, -0.4, 0.3])
    W_2 = torch.tensor([[0.5, -1.2, 0.3], [0.8, 0.4, -0.6], [-0.2, 0.7, 1.1]])
    M = torch.tensor([[1.0, 0.2, -0.5], [-0.3, 1.4, 0.6], [0.7, -0.8, 1.2], [0.4, 0.9, -1.1], [2.0, 1.0, 0.5]])
    premise = torch.tensor([True, True, True, False, False])
    answer, problem = _answer(function, s.clone(), M.clone(), W_2.clone(), premise.clone())
    if problem is None:
        problem = _premise_problem(answer, s, M, W_2, premise)
    return _verdict("premise attention", problem)


def _premise_problem(answer, s, M, W_2, premise):
    try:
        beta, x = (torch.as_tensor(value, dtype=torch.float32).detach() for value in answer)
    except (TypeError, ValueError, RuntimeError):
        return f"expected two tensors (beta, x), found {answer!r}."
    if beta.shape != premise.shape or x.shape != s.shape:
        return f"expected beta [{len(premise)}] and x [{len(s)}], found {list(beta.shape)} and {list(x.shape)}."
    scores = [(None, M @ (W_2 @ s)), ("W_2 stands the wrong way round: a token's score is M_j · (W_2 s).", M @ (W_2.T @ s)),
              ("W_2 is left out of the scores.", M @ s)]
    weights = [(None, lambda e: e.masked_fill(~premise, -torch.inf).softmax(0)),
               ("tokens outside the premise get attention; give their scores a very negative number before the softmax.", lambda e: e.softmax(0)),
               ("scores outside the premise became 0, and exp(0) is 1; give them a very negative number.", lambda e: (e * premise).softmax(0)),
               ("the mask came after the softmax, so the weights no longer sum to 1.", lambda e: e.softmax(0) * premise),
               ("the softmax is missing.", lambda e: e * premise), ("the softmax is missing, and the mask too.", lambda e: e)]
    known = {}
    for (one, e), (two, way) in itertools.product(scores, weights):
        known[" And ".join(filter(None, (one, two)))] = way(e)
    problem = _nearest(beta, known, "beta differs from the softmax, over the premise, of M_j · (W_2 s).")
    if problem:
        return problem
    means = {"": beta @ M, "x is the one heaviest token; take the sum of all, each times its beta.": M[beta.argmax()],
             "x is the plain mean of the premise; weigh each token with its beta.": M[premise].mean(0),
             "x is divided by the number of tokens; the betas sum to 1 already.": beta @ M / premise.sum(),
             "x is that over all tokens: the weighted sum, no mean.": beta @ M / len(M)}
    return _nearest(x, means, "x differs from the sum of beta_j M_j.")


def _nearest(found, known, otherwise):
    """What is said of the first of {said: value} that agrees: None when it is said ""."""
    for said, value in known.items():
        if found.shape == value.shape and torch.allclose(found, value, atol=1e-5):
            return said or None
    return otherwise


def check_answer_loss(function):
    """function(P, kept, y): P [K,C] the answers of the steps, kept bool [K], y the right label; returns -log of its mean probability."""
    P = torch.tensor([[0.70, 0.20, 0.10], [0.25, 0.60, 0.15], [0.20, 0.30, 0.50], [0.45, 0.05, 0.50]])
    kept, y = torch.tensor([True, False, True, True]), 1
    answer, problem = _answer(function, P.clone(), kept.clone(), y)
    if problem is None:
        problem = _answer_loss_problem(answer, P, kept, y)
    return _verdict("loss of the answer", problem)


def _answer_loss_problem(answer, P, kept, y):
    rows = [(None, kept), ("dropped steps are counted.", torch.ones_like(kept)), ("the mask is upside down: True means kept.", ~kept)]
    labels = [(None, y), ("that is the probability of the likeliest label, not of the right one.", P[kept].mean(0).argmax()),
              ("labels count from 0.", y - 1)]
    ways = [(None, lambda q: -q.mean().log()), ("that is the mean of the steps' losses; first the mean of their probabilities, then one log.", lambda q: -q.log().mean()),
            ("that is the sum of the steps' losses; first the mean of their probabilities, then one log.", lambda q: -q.log().sum()),
            ("divide by the number of kept steps, not of all.", lambda q: -(q.sum() / len(P)).log()), ("the probabilities are summed; take their mean.", lambda q: -q.sum().log()),
            ("the log is missing.", lambda q: -q.mean()), ("the minus is missing.", lambda q: q.mean().log()),
            ("that is the probability; its loss is -log of it.", lambda q: q.mean())]
    known = [(way(P[chosen, label]), [said for said in (one, two, three) if said])
             for (one, chosen), (two, label), (three, way) in itertools.product(rows, labels, ways)]
    return _number_problem(answer, known, "the number differs from -log of the mean, over kept steps, of P_k[y].")


def check_ranking_loss(function):
    """function(scores, relevant, groups, gamma): scores [B], relevant [B] of 1 (answer) and 0, groups: candidates per query; returns the mean over queries."""
    scores, relevant = torch.tensor([1.2, -0.3, 0.4, 2.0, -1.0]), torch.tensor([1, 0, 0, 0, 1])
    groups, gamma = [2, 3], 1.5
    answer, problem = _answer(function, scores.clone(), relevant.clone(), list(groups), gamma)
    if problem is None:
        problem = _ranking_problem(answer, scores, relevant, groups, gamma)
    return _verdict("ranking loss", problem)


def _ranking_problem(answer, scores, relevant, groups, gamma):
    first = [sum(groups[:i]) for i in range(len(groups))]
    known = []
    for (one, values), (two, factor) in itertools.product([(None, scores), ("a sigmoid comes first here; take the scores as they are.", scores.sigmoid())],
                                                          [(None, gamma), ("gamma is left out.", 1), ("the scores are divided by gamma; multiply.", 1 / gamma)]):
        apart = torch.cat([part.log_softmax(0) for part in (factor * values).split(groups)])
        whole, alone = (factor * values).log_softmax(0), torch.nn.functional.logsigmoid(factor * values * (2 * relevant - 1))
        for (three, log), (four, way) in itertools.product(
                [(None, apart), ("the softmax runs over the whole batch; a query's answer competes with its own candidates only.", whole)],
                [(None, lambda q: -q.mean()), ("that is the sum over queries; take the mean.", lambda q: -q.sum()),
                 ("the log is missing, as in Eq. 8's print.", lambda q: -q.exp().mean()), ("the log is missing, and it is a sum.", lambda q: -q.exp().sum()),
                 ("the minus is missing.", lambda q: q.mean()), ("divide by the number of queries, not of candidates.", lambda q: -q.sum() / len(scores))]):
            known.append((way(log[relevant == 1]), [said for said in (one, two, three, four) if said]))
        known += [(-apart[first].mean(), [said for said in (one, two, "the first candidate is taken for the answer; `relevant` says which it is.") if said]),
                  (-apart.mean(), [said for said in (one, two, "every candidate is treated as the answer; only one of a query is.") if said]),
                  (-alone.mean(), [said for said in (one, two, "each candidate is judged by itself; a ranking compares a query's candidates.") if said])]
    return _number_problem(answer, known, "the number differs from the mean over queries of -log softmax(gamma * scores) at the answer.")


def _number_problem(answer, known, otherwise):
    """What is wrong with a number: of [(value, faults)] that agree, the one with the fewest faults."""
    try:
        found = torch.as_tensor(answer).detach().float()
    except (TypeError, ValueError, RuntimeError):
        return f"expected one number, found {answer!r}."
    if found.numel() != 1:
        return f"expected one number, found shape {list(found.shape)}."
    for value, faults in sorted(known, key=lambda one: len(one[1])):
        if torch.allclose(found.reshape(()), value, rtol=1e-4, atol=1e-6):
            return " And ".join(faults) or None
    return otherwise
