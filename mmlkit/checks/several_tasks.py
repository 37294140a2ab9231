"""Feedback for the exercises on several tasks (notebooks 08 and 09), in the manner of `checks`: one line, True or False, never an error."""

import itertools

import numpy as np
import torch
from torch.nn import functional as F

from mmlkit.checks.multiverse import _answer, _verdict

__all__ = ["check_annealing", "check_forgetting", "check_pal_parameters", "check_projected_layer"]


def check_annealing(function):
    """function(sizes, epoch, epochs): {task: N}, the epoch counted from 1, and how many there are; returns {task: probability}."""
    sizes, answers = {"quora": 1600, "sst": 400, "sts": 100}, []
    places = [(1, 5), (3, 5), (5, 5)]
    for epoch, epochs in places:
        answer, problem = _shares(function, sizes, epoch, epochs)
        if problem:
            return _verdict("annealing", problem)
        answers.append(answer)
    problem = _annealing_problem(answers, places, np.array(list(sizes.values()), dtype=float))
    if problem is None:
        answer, problem = _shares(function, sizes, 1, 1)
        if problem is not None or not np.allclose(answer, np.array([16, 4, 1]) / 21):
            problem = "with one epoch alone E - 1 is 0; take alpha = 1 there."
    return _verdict("annealing", problem)


def _shares(function, sizes, epoch, epochs):
    """(the probabilities as an array in the order of sizes, problem)."""
    answer, problem = _answer(function, dict(sizes), epoch, epochs)
    if problem is None:
        try:
            return np.array([float(answer[task]) for task in sizes]), None
        except (TypeError, ValueError, KeyError, IndexError):
            problem = f"expected a dict with a probability for each of {', '.join(sizes)}, found {answer!r}."
    return None, problem


def _annealing_problem(answers, places, N):
    alphas = [(None, lambda e, E: 1 - 0.8 * (e - 1) / (E - 1)),
              ("epochs count from 1, so alpha is 1 in the first: e - 1.", lambda e, E: 1 - 0.8 * e / (E - 1)),
              ("the last epoch should have alpha 0.2: divide by E - 1.", lambda e, E: 1 - 0.8 * (e - 1) / E),
              ("the first epoch should have alpha 1 and the last 0.2: (e - 1) / (E - 1).", lambda e, E: 1 - 0.8 * e / E),
              ("alpha falls to 0.2, not to 0.", lambda e, E: 1 - (e - 1) / (E - 1)),
              ("alpha ends at 0.2; 0.8 is what it loses.", lambda e, E: 1 - 0.2 * (e - 1) / (E - 1)),
              ("alpha falls from 1 to 0.2; here it rises.", lambda e, E: 0.2 + 0.8 * (e - 1) / (E - 1)),
              ("every epoch has the shares of alpha = 1. Alpha is an exponent, N ** alpha; as a factor it would cancel.", lambda e, E: 1.0)]
    forms = [(None, lambda N, alpha: N**alpha / (N**alpha).sum()),
             ("divide by the sum over tasks, so that the probabilities add up to 1.", lambda N, alpha: N**alpha),
             ("raise first, then divide by the sum; else the probabilities do not add up to 1.", lambda N, alpha: (N / N.sum())**alpha),
             ("probabilities are shares, not per cent.", lambda N, alpha: 100 * N**alpha / (N**alpha).sum())]
    for (one, alpha), (two, form) in itertools.product(alphas, forms):
        if all(np.allclose(answer, form(N, alpha(*place)), rtol=1e-4) for answer, place in zip(answers, places)):
            return " And ".join(filter(None, (one, two))) or None
    return "the probabilities differ from N ** alpha / sum of N ** alpha with alpha = 1 - 0.8 (e - 1) / (E - 1)."


def check_forgetting(function):
    """function(history): [M,T], a row per measurement, a column per task; returns [T], the best before the last row minus the last."""
    history = np.array([[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]])
    answer, problem = _answer(function, history.copy())
    if problem is None:
        try:
            answer = np.asarray(answer, dtype=float)
        except (TypeError, ValueError):
            answer, problem = None, f"expected a number for each of the 3 tasks, found {answer!r}."
    if problem is None and answer.shape != (3,):
        problem = f"expected a number for each of the 3 tasks (columns), found shape {list(answer.shape)}."
    if problem is None:
        before, last = history[:-1], history[-1]
        known = [(before.max(0) - last, None),
                 (history.max(0) - last, "the last measurement is among those compared; leave it out, so that a task that still "
                 "improves has a negative number."), (last - before.max(0), "the sign is turned: what was lost is positive."),
                 (last - history.max(0), "the sign is turned, and the last measurement is among those compared."),
                 (before[0] - last, "that is the first measurement minus the last; take the best before the last."),
                 (before[-1] - last, "that is the loss since the measurement before; take the best of all earlier ones."),
                 (before.mean(0) - last, "that is the mean of the earlier ones; take the best."),
                 (before.max() - last, "one best for all tasks; each column has its own."),
                 (1 - last / before.max(0), "that is a share of the best; take the difference.")]
        problem = next((said for value, said in known if np.allclose(answer, value)),
                       "the numbers differ from the best of the earlier rows minus the last row.")
    return _verdict("forgetting", problem)


def check_pal_parameters(function):
    """function(D, S, L, T): hidden size, projected size, layers, tasks; returns how many parameters the PALs of all tasks have."""
    sizes, answers = ((768, 204, 12, 8), (10, 4, 3, 2)), []
    for case in sizes:
        answer, problem = _answer(function, *case)
        if problem is None and (isinstance(answer, bool) or not isinstance(answer, (int, float, np.integer, np.floating))):
            problem = f"expected one number, found {answer!r}."
        if problem:
            return _verdict("PAL parameters", problem)
        answers.append(answer)
    ends = [(None, lambda D, S, L: D * S + S + S * D + D), ("V^E and V^D have biases: S and D numbers.", lambda D, S, L: 2 * D * S),
            ("V^E and V^D are one pair for all layers.", lambda D, S, L: L * (2 * D * S + S + D)),
            ("V^D is missing: there are two projections.", lambda D, S, L: D * S + S),
            ("a bias has as many numbers as its output: S for V^E, D for V^D.", lambda D, S, L: 2 * D * S + 2 * S),
            ("a bias has as many numbers as its output: S for V^E, D for V^D.", lambda D, S, L: 2 * D * S + 2 * D),
            ("V^E and V^D are missing.", lambda D, S, L: 0)]
    middles = [(None, lambda D, S, L: 3 * L * (S * S + S)), ("query, key and value have biases.", lambda D, S, L: 3 * L * S * S),
               ("g has no output projection: three maps, not four.", lambda D, S, L: 4 * L * (S * S + S)),
               ("each layer has a query, key and value of its own.", lambda D, S, L: 3 * (S * S + S)),
               ("attention has three maps: query, key and value.", lambda D, S, L: L * (S * S + S)),
               ("inside, attention is S wide, not D.", lambda D, S, L: 3 * L * (D * D + D)),
               ("query, key and value are missing.", lambda D, S, L: 0)]
    counts = [(None, lambda T: T), ("that is one task; every task has its own.", lambda T: 1)]
    for (one, end), (two, middle), (three, times) in itertools.product(ends, middles, counts):
        if all(answer == times(T) * (end(D, S, L) + middle(D, S, L)) for answer, (D, S, L, T) in zip(answers, sizes)):
            return _verdict("PAL parameters", " And ".join(filter(None, (one, two, three))) or None)
    return _verdict("PAL parameters", f"for D = 10, S = 4, L = 3, T = 2 it gives {answers[1]:,}, expected 548; count V^E and V^D once, and three maps "
                                      "in every layer.")


def check_projected_layer(function):
    """function(h, MH, FFN, TS, LN): h [T,D] and four functions [T,D] to [T,D]; returns the layer's output [T,D]."""
    draw = torch.Generator().manual_seed(0)
    h, first, second, third = (torch.randn(*shape, generator=draw) for shape in ((3, 4), (3, 3), (4, 4), (4, 4)))

    def MH(x):
        return first.softmax(-1) @ x

    def FFN(x):
        return torch.tanh(x @ second)

    def TS(x):
        return first.T.softmax(-1) @ x @ third

    def LN(x):
        return F.layer_norm(x, x.shape[-1:])

    answer, problem = _answer(function, h.clone(), MH, FFN, TS, LN)
    if problem is None and getattr(answer, "shape", None) != (3, 4):
        problem = f"expected a tensor of shape [3, 4], found {list(getattr(answer, 'shape', [])) or type(answer).__name__}."
    if problem is None:
        a = LN(h + MH(h))
        ends = [(a, None), (h, "the second residual is a, not h; the report's formula drops a."), (0 * h, "the second residual is missing: add a.")]
        beside = [(TS(h), None), (TS(a), "TS reads the layer's input h, not a."), (0 * h, "TS is missing."),
                  (TS(LN(a + FFN(a))), "TS reads the layer's input h, not its output.")]
        known = [(LN(end + FFN(a) + added), " And ".join(filter(None, (one, two))) or None) for (end, one),
                 (added, two) in itertools.product(ends, beside)]
        early = LN(h + MH(h) + TS(h))
        known += [(LN(a + FFN(a)) + TS(h), "TS comes in before the last LayerNorm, not after it."),
                  (a + FFN(a) + TS(h), "the last LayerNorm is missing."),
                  (LN(early + FFN(early)), "TS belongs to the second half of the layer: a is BERT's own."),
                  (LN(h + FFN(h) + TS(h)), "attention is missing: a = LN(h + MH(h))."),
                  (LN(a + FFN(h) + TS(h)), "the feed-forward network reads a, not h."),
                  (LN(a + FFN(a + TS(h))), "TS stands beside the feed-forward network, not before it.")]
        problem = next((said for value, said in known if torch.allclose(answer, value, atol=1e-5)),
                       "the numbers differ from LN(a + FFN(a) + TS(h)) with a = LN(h + MH(h)).")
    return _verdict("projected layer", problem)
