"""Feedback for the exercises of notebook 10, in the manner of `checks`: one line, True or False, never an error."""

import itertools
import math

import numpy as np

from mmlkit.checks.multiverse import _answer, _verdict

__all__ = ["check_overall", "check_pull", "check_sign_test"]


def _number(answer):
    """(answer as a float, problem)."""
    if isinstance(answer, bool) or not isinstance(answer, (int, float, np.integer, np.floating)):
        return None, f"expected one number, found {answer!r}."
    return float(answer), None


def check_overall(function):
    """function(sst, quora, sts): two accuracies from 0 to 1 and Pearson's r, or nan for a constant prediction; returns the course's score."""
    cases, answers = ((0.5, 0.75, 0.2), (0.25, 0.625, -0.5), (0.25, 0.625, math.nan)), []
    for case in cases:
        answer, problem = _answer(function, *case)
        if problem is None:
            answer, problem = _number(answer)
        if problem:
            return _verdict("overall score", problem)
        answers.append(answer)
    known = [(None, lambda a, b, r: (a + b + (r + 1) / 2) / 3),
             ("bring r from -1..1 to 0..1 first: (r + 1) / 2.", lambda a, b, r: (a + b + r) / 3),
             ("r is halved but not raised: (r + 1) / 2.", lambda a, b, r: (a + b + r / 2) / 3),
             ("it is (r + 1) / 2, not r + 1.", lambda a, b, r: (a + b + r + 1) / 3),
             ("a negative r counts as it is, not as its absolute value.", lambda a, b, r: (a + b + (abs(r) + 1) / 2) / 3),
             ("a negative r counts as it is; it is not cut off at 0.", lambda a, b, r: (a + b + (max(r, 0) + 1) / 2) / 3),
             ("that is the sum; divide by the number of tasks.", lambda a, b, r: a + b + (r + 1) / 2),
             ("all three tasks count alike.", lambda a, b, r: ((a + b) / 2 + (r + 1) / 2) / 2),
             ("it is a share, not per cent.", lambda a, b, r: 100 * (a + b + (r + 1) / 2) / 3)]
    problem = next((said for said, way in known if np.allclose(answers[:2], [way(*case) for case in cases[:2]], atol=1e-9)),
                   f"for 0.5, 0.75 and r = 0.2 it gives {answers[0]:.4g}, expected {known[0][1](*cases[0]):.4g}.")
    if problem is None and not abs(answers[2] - (0.25 + 0.625 + 0.5) / 3) < 1e-9:
        third = "the whole score is nan" if math.isnan(answers[2]) else f"with r = nan it gives {answers[2]:.4g}"
        problem = f"{third}: a constant prediction has no correlation, and the course counts that as r = 0."
    return _verdict("overall score", problem)


def check_pull(function):
    """function(probabilities, heads): {task: p}, {task: number of heads}, not always in one order; returns {task: share of the pull}."""
    cases = (({"quora": 0.5, "sst": 0.3, "sts": 0.2}, {"quora": 2, "sst": 5, "sts": 1}), ({"a": 0.8, "b": 0.2}, {"b": 16, "a": 1}))
    answers = []
    for p, heads in cases:
        answer, problem = _answer(function, dict(p), dict(heads))
        if problem is None:
            try:
                answers.append([float(answer[task]) for task in p])
            except (TypeError, ValueError, KeyError, IndexError):
                problem = f"expected a dict with a share for each of {', '.join(p)}, found {answer!r}."
        if problem:
            return _verdict("pull", problem)
    pulls = [(None, lambda p, m: p * m), ("the heads are missing: a loss summed over heads pulls as often as there are heads.", lambda p, m: p + 0 * m),
             ("the probabilities are missing.", lambda p, m: m + 0 * p), ("a sum over heads multiplies; here it is divided by them.", lambda p, m: p / m),
             ("multiply probability and heads; here they are added.", lambda p, m: p / p.sum() + m / m.sum()),
             ("gradients of heads that agree add up to their number, not to its root.", lambda p, m: p * m**0.5)]
    forms = [(None, lambda x: x / x.sum()), ("divide by the sum over tasks, so that the shares add up to 1.", lambda x: x),
             ("that is the pull of each task beside the largest; divide by the sum.", lambda x: x / x.max())]
    matched = [("", lambda p, m: [m[task] for task in p]), ("heads are matched by place; take each task's own by name.", lambda p, m: list(m.values()))]
    for (one, pull), (two, form), (three, match) in itertools.product(pulls, forms, matched):
        values = [form(pull(np.array(list(p.values())), np.array(match(p, m), dtype=float))) for p, m in cases]
        if all(np.allclose(answer, value, rtol=1e-6) for answer, value in zip(answers, values)):
            return _verdict("pull", " And ".join(filter(None, (one, two, three))) or None)
    return _verdict("pull", "the shares differ from p times heads, divided by the sum of p times heads over all tasks.")


def check_sign_test(function):
    """function(differences): one per seed, none of them 0; returns how probable it is that as many coins fall at least so much to one side."""
    cases = ((6, 0), (0, 6), (5, 1), (2, 4), (3, 3), (9, 1))       # how many above zero, how many below
    answers = []
    for above, below in cases:
        differences = [0.5 + i for i in range(above)] + [-0.25 - i for i in range(below)]
        answer, problem = _answer(function, differences)
        if problem is None:
            answer, problem = _number(answer)
        if problem:
            return _verdict("sign test", problem)
        answers.append(answer)

    def tail(k, n):
        return sum(math.comb(n, i) for i in range(max(k, 0), n + 1)) / 2**n

    known = [(None, lambda a, b: min(1.0, 2 * tail(max(a, b), a + b))),
             ("both sides count: a coin may fall to either. Take the probability twice.", lambda a, b: tail(max(a, b), a + b)),
             ("that is the chance of so many or more above zero; both sides count.", lambda a, b: tail(a, a + b)),
             ("that is the chance of exactly so many; add those that are further to the side.", lambda a, b: min(1.0, 2 * math.comb(a + b, a) / 2 ** (a + b))),
             ("that is the chance of exactly so many on this side; add those that are further out, and both sides.", lambda a, b: math.comb(a + b, a) / 2 ** (a + b)),
             ("that is the chance of more than so many; as many count too.", lambda a, b: 2 * tail(max(a, b) + 1, a + b)),
             ("a probability is at most 1: with as many above as below, both sides have been counted twice.", lambda a, b: 2 * tail(max(a, b), a + b)),
             ("that is the chance that all fall to one side, whatever fell.", lambda a, b: 2 / 2 ** (a + b)),
             ("that is the confidence; take 1 minus it.", lambda a, b: 1 - min(1.0, 2 * tail(max(a, b), a + b))),
             ("it counts those below zero alone; take the larger side.", lambda a, b: min(1.0, 2 * tail(b, a + b))),
             ("it counts those above zero alone; take the larger side.", lambda a, b: min(1.0, 2 * tail(a, a + b)))]
    problem = next((said for said, way in known if np.allclose(answers, [way(*case) for case in cases], atol=1e-9)),
                   f"for five above zero and one below it gives {answers[2]:.4g}, expected 2 (6 + 1) / 64 = {14 / 64:.4g}.")
    return _verdict("sign test", problem)
