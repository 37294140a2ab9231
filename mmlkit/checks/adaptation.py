"""Feedback for the exercises of notebook 07: a share of every label, a draw that misses one, and how many labels are needed.

As in `checks`: one line is printed, True or False comes back, and a wrong answer never stops the notebook.
"""

import itertools
import math

import numpy as np

from mmlkit.checks.multiverse import _answer, _verdict

__all__ = ["check_share", "check_missed_label", "check_labels_needed"]

_LABELS = (np.arange(3000) % 5 < 2).astype(int)         # 1,800 rows of label 0 and 1,200 of label 1, mixed
_COUNTS = {0.001: (1, 1), 0.01: (18, 12), 0.1: (180, 120), 1.0: (1800, 1200)}


def check_share(function):
    """function(labels, share, seed): labels [N], the share wanted, a number; returns row numbers with that share of every label, nested."""
    found = {}
    for (share, counts), seed in itertools.product(_COUNTS.items(), (0, 1)):
        answer, problem = _answer(function, _LABELS.copy(), share, seed)
        if problem := problem or _rows_problem(answer, share, counts):
            return _verdict("share", problem)
        found[share, seed] = set(np.asarray(answer).tolist())
    for small, large in itertools.pairwise(_COUNTS):
        if not found[small, 0] <= found[large, 0]:
            again, _ = _answer(function, _LABELS.copy(), small, 0)
            if again is None or set(np.asarray(again).tolist()) != found[small, 0]:
                return _verdict("share", "the same seed gives other rows when asked again; make a generator from the seed, inside.")
            return _verdict("share", f"the rows of {small:.1%} are not among those of {large:.0%}: put the rows into one order per seed, and take its beginning.")
    return _verdict("share", _draw_problem(function, found))


def _rows_problem(answer, share, counts):
    """What is wrong with the row numbers of one share."""
    given, wanted = answer, f"{share:.1%} of 1,800 and 1,200 rows are {1800 * share:g} and {1200 * share:g}"
    try:
        answer = np.asarray(answer)
    except (TypeError, ValueError, RuntimeError):
        return f"expected row numbers such as [5, 2, 11], found {given!r}."
    if answer.shape == _LABELS.shape and answer.dtype == bool:
        return "that is a mask; return the numbers of the rows."
    if answer.ndim != 1 or (len(answer) and answer.dtype.kind not in "iu"):
        return f"expected row numbers such as [5, 2, 11], found {given!r}." if answer.ndim == 0 else \
            f"expected row numbers such as [5, 2, 11], found shape {list(answer.shape)} of {answer.dtype}."
    if len(answer) and (answer.min() < 0 or answer.max() >= len(_LABELS)):
        return f"row numbers go from 0 to {len(_LABELS) - 1:,}, found {answer.min():,} to {answer.max():,}."
    if len(set(answer.tolist())) < len(answer):
        return "some row is drawn twice; draw without putting back."
    drawn = tuple(int((_LABELS[answer.astype(int)] == label).sum()) for label in (0, 1))
    if drawn == counts:
        return None
    if drawn in ((2, 1), (2, 2)):
        return f"{wanted}, cut off 1 and 1, as the paper cuts; yours are {drawn[0]} and {drawn[1]}."
    if drawn[0] == drawn[1] > 1:
        return f"both labels have {drawn[0]} rows; {wanted}: each label keeps its share."
    if sum(drawn) == int(share * len(_LABELS)):
        return f"{sum(drawn)} rows, but {drawn[0]} and {drawn[1]} of the two labels; {wanted}: draw within each label."
    return f"{wanted}, cut off {counts[0]} and {counts[1]}; found {drawn[0]} and {drawn[1]}."


def _draw_problem(function, found):
    """What is wrong with draws that have the right sizes and are nested."""
    rows = sorted(found[0.01, 0])
    if all(set(np.flatnonzero(label == _LABELS)[:count].tolist()) <= found[0.01, 0] for label, count in enumerate(_COUNTS[0.01])):
        return f"the first rows of each label are taken ({rows[0]}, {rows[1]}, {rows[2]}, ...); files are often sorted, so put them in a random order first."
    if found[0.01, 0] == found[0.01, 1]:
        return "every seed gives the same rows."
    answer, problem = _answer(function, _LABELS.copy(), 0.0005, 0)
    if problem is None and np.shape(answer) != (2,):
        problem = f"0.05 % of 1,800 or 1,200 rows is less than one; take one of each label, found {np.size(answer)} rows in all."
    return problem


def check_missed_label(function):
    """function(a, b, n): rows of one label, rows of the other, rows drawn; returns the chance that the draw lacks one of the labels."""
    cases, answers = [(3, 3, 2), (5, 3, 2), (6, 2, 3), (4, 4, 5)], []
    for case in cases:
        answer, problem = _answer(function, *case)
        if problem is None:
            try:
                answers.append(float(answer))
            except (TypeError, ValueError):
                problem = f"expected one number, found {answer!r}."
        if problem:
            return _verdict("missed label", problem)
    ways = [(lambda part, whole, n: math.comb(part, n) / math.comb(whole, n), None),
            (lambda part, whole, n: (part / whole)**n, "that is with every row put back after it was drawn; a row cannot be drawn twice.")]
    labels = [(lambda p, q: p + q, None), (lambda p, q: p, "that counts draws of the first label alone; those of the second miss one too."),
              (lambda p, q: q, "that counts draws of the second label alone; those of the first miss one too."),
              (lambda p, q: p * q, "the two cases exclude each other, so their chances are added, not multiplied.")]
    ends = [(lambda p: p, None), (lambda p: 1 - p, "that is the chance that both labels are there."), (lambda p: 100 * p, "that is in percent; give the chance itself.")]
    known = [(way, label, end, [said for said in (one, two, three) if said])
             for (way, one), (label, two), (end, three) in itertools.product(ways, labels, ends)]
    for way, label, end, said in sorted(known, key=lambda one: len(one[3])):
        if all(math.isclose(found, end(label(way(a, a + b, n), way(b, a + b, n))), abs_tol=1e-9) for found, (a, b, n) in zip(answers, cases)):
            return _verdict("missed label", " And ".join(said) or None)
    return _verdict("missed label", f"for (3, 3, 2) it gives {answers[0]:g}: of 15 pairs of rows, 3 are of the first label alone and 3 of the second.")


def check_labels_needed(function):
    """function(rows, accuracies, wanted): two rising lists and an accuracy; returns at how many rows it is reached, inf if at none."""
    rows, accuracies = [23, 235, 2359, 23596], [51.2, 82.2, 90.5, 94.3]
    found = {}
    for wanted in (88.3, 60.0, 82.2, 95.7, 40.0):
        answer, problem = _answer(function, list(rows), list(accuracies), wanted)
        if problem is None:
            try:
                found[wanted] = float(answer)
            except (TypeError, ValueError):
                problem = f"for {wanted} it gives {answer!r}, expected one number."
        if problem:
            return _verdict("labels needed", problem)
    return _verdict("labels needed", _needed_problem(found, rows, accuracies))


def _needed_problem(found, rows, accuracies):
    inside, logs = (88.3, 60.0, 82.2), np.log10(rows)
    said = [({wanted: 10**np.interp(wanted, accuracies, logs) for wanted in inside}, None),
            ({wanted: np.interp(wanted, accuracies, rows) for wanted in inside}, "the line runs straight in the rows; take it straight in their logarithm."),
            ({wanted: np.interp(wanted, accuracies, logs) for wanted in inside}, "that is the logarithm of the rows; raise 10 to it."),
            ({wanted: np.interp(wanted, accuracies, np.log(rows)) for wanted in inside}, "that is the logarithm of the rows; raise e to it."),
            ({wanted: rows[np.searchsorted(accuracies, wanted)] for wanted in inside}, "that is the next size in the list; go along the line between two sizes."),
            ({wanted: rows[np.searchsorted(accuracies, wanted, 'right') - 1] for wanted in inside}, "that is the size before; go along the line between two sizes.")]
    fitting = [problem for values, problem in said if all(math.isclose(found[wanted], value, rel_tol=1e-6) for wanted, value in values.items())]
    if not fitting:
        at = 10**np.interp(88.3, accuracies, logs)
        return f"for an accuracy of 88.3 it gives {found[88.3]:,.0f} rows; the line in log10(rows) reaches it at {at:,.0f}."
    problem = fitting[0]
    if problem is None and not math.isinf(found[95.7]):
        problem = f"95.7 is reached at no size in the list, so the answer is math.inf; found {found[95.7]:,.0f}."
    if problem is None and found[95.7] < 0:
        problem = "what is never reached needs +inf rows, not -inf."
    if problem is None and not math.isclose(found[40.0], rows[0]):
        problem = f"40 is reached with the smallest size already, so the answer is {rows[0]}; found {found[40.0]:,.3g}."
    return problem
