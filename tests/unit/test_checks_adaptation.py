"""The checks of notebook 07's exercises: silent about the solution, and right about each known mistake."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from mmlkit.checks.adaptation import check_labels_needed, check_missed_label, check_share


def stub(*arguments):
    ...


def raises(*arguments):
    raise TypeError("a draft")


# a share of every label

def take(rows, share):
    return rows[:max(1, int(share * len(rows)))]


def share_of(labels, share, seed):
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.concatenate([take(order[labels[order] == label], share) for label in np.unique(labels)])


def drawn(count=lambda rows, share: max(1, int(share * rows)), order=lambda rows, seed: np.random.default_rng(seed).permutation(rows)):
    """The solution with one part replaced."""
    def function(labels, share, seed):
        rows = order(len(labels), seed)
        return np.concatenate([rows[labels[rows] == label][:count(np.sum(labels == label), share)] for label in (0, 1)])
    return function


def apart(labels, share, seed):
    """Right sizes, but every share is a draw of its own."""
    generator = np.random.default_rng([seed, int(share * 1000)])
    return np.concatenate([take(generator.permutation(np.flatnonzero(labels == label)), share) for label in (0, 1)])


def forgetful():
    generator = np.random.default_rng(0)
    return lambda labels, share, seed: share_of(labels, share, generator.integers(10**9))


def twice(labels, share, seed):
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.choice(np.flatnonzero(labels == label), max(1, int(share * np.sum(labels == label)))) for label in (0, 1)])


SHARES = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"), (lambda *_: "text", "expected row numbers such as [5, 2, 11], found 'text'"),
    (lambda labels, share, seed: int(share * len(labels)), "found 3."), (lambda *_: [[1, 2]], "found shape [1, 2]"), (lambda *_: [[1], [2, 3]], "expected row numbers"),
    (lambda labels, share, seed: np.random.default_rng(seed).random(2), "found shape [2] of float64"),
    (lambda labels, share, seed: np.random.default_rng(seed).random(len(labels)) < share, "that is a mask"),
    (lambda *_: [], "0.1% of 1,800 and 1,200 rows are 1.8 and 1.2, cut off 1 and 1; found 0 and 0"),
    (drawn(count=lambda rows, share: max(1, round(share * rows))), "cut off 1 and 1, as the paper cuts; yours are 2 and 1"),
    (drawn(count=lambda rows, share: math.ceil(share * rows)), "cut off 1 and 1, as the paper cuts; yours are 2 and 2"),
    (drawn(count=lambda rows, share: max(1, int(share * 1500))), "both labels have 15 rows; 1.0% of 1,800 and 1,200 rows are 18 and 12"),
    (drawn(count=lambda rows, share: max(1, int(share / 100 * rows))), "cut off 18 and 12; found 1 and 1"),
    (lambda labels, share, seed: take(np.random.default_rng(seed).permutation(len(labels)), share), "of the two labels; 0.1% of"),
    (twice, "drawn twice"), (drawn(order=lambda rows, seed: np.random.default_rng(seed).permutation(rows) - 1), "row numbers go from 0 to 2,999"),
    (lambda *arguments: share_of(*arguments) + 1500, "row numbers go from 0 to 2,999, found"),
    (apart, "the rows of 0.1% are not among those of 1%"), (forgetful(), "the same seed gives other rows"),
    (drawn(order=lambda rows, seed: np.arange(rows)), "the first rows of each label are taken (0, 1, 2, ...)"),
    (drawn(order=lambda rows, seed: np.random.default_rng(0).permutation(rows)), "every seed gives the same rows"),
    (drawn(count=lambda rows, share: int(share * rows)), "less than one; take one of each label, found 0 rows in all"),
]


def test_a_share_worked_by_hand(capsys):
    """Of 6 rows of one label and 4 of the other a half is 3 and 2; a quarter, cut off, is 1 and 1, and they are among those."""
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 0])
    half, quarter = (share_of(labels, share, 0).tolist() for share in (0.5, 0.25))
    assert sorted(labels[half]) == [0, 0, 0, 1, 1] and sorted(labels[quarter]) == [0, 1] and set(quarter) < set(half)
    assert check_share(share_of) and capsys.readouterr().out == "share: right.\n"
    assert check_share(lambda *arguments: sorted(share_of(*arguments).tolist())), "in any order"
    assert check_share(drawn()), "the parts of the wrong ones below are right"


@pytest.mark.parametrize("function, said", SHARES)
def test_mistakes_in_the_share_are_named(function, said, capsys):
    assert check_share(function) is False
    out = capsys.readouterr().out
    assert out.startswith("share: not yet: ") and said in out and out.count("\n") == 1, out


# a draw without one of the labels

def missed(a, b, n):
    return (math.comb(a, n) + math.comb(b, n)) / math.comb(a + b, n)


MISSED = [
    (stub, ["returns nothing"]), (raises, ["stopped with TypeError: a draft"]), (lambda *_: "text", ["expected one number, found 'text'"]),
    (lambda a, b, n: (a / (a + b))**n + (b / (a + b))**n, ["put back"]),
    (lambda a, b, n: math.comb(a, n) / math.comb(a + b, n), ["of the first label alone"]),
    (lambda a, b, n: math.comb(b, n) / math.comb(a + b, n), ["of the second label alone"]),
    (lambda a, b, n: math.comb(a, n) * math.comb(b, n) / math.comb(a + b, n)**2, ["added, not multiplied"]),
    (lambda a, b, n: 1 - missed(a, b, n), ["that both labels are there"]), (lambda a, b, n: 100 * missed(a, b, n), ["in percent"]),
    (lambda a, b, n: 1 - (a / (a + b))**n - (b / (a + b))**n, ["put back", "that both labels are there"]),
    (lambda a, b, n: 100 * (a / (a + b))**n, ["put back", "of the first label alone", "in percent"]),
    (lambda a, b, n: 0.5, ["for (3, 3, 2) it gives 0.5: of 15 pairs"]), (lambda a, b, n: float("nan"), ["it gives nan"]),
]


def test_the_chance_is_that_of_listing_all_draws(capsys):
    """Of 15 pairs out of 3 and 3, 6 are of one label."""
    assert missed(3, 3, 2) == 0.4
    for a, b, n in ((3, 3, 2), (5, 3, 2), (6, 2, 3), (4, 4, 5), (2, 1, 1)):
        draws = [len(set(draw)) < 2 for draw in itertools.combinations([0] * a + [1] * b, n)]
        assert missed(a, b, n) == pytest.approx(np.mean([bool(one) for one in draws]))
    assert check_missed_label(missed) and capsys.readouterr().out == "missed label: right.\n"
    assert check_missed_label(lambda a, b, n: Fraction(math.comb(a, n) + math.comb(b, n), math.comb(a + b, n)))


@pytest.mark.parametrize("function, said", MISSED)
def test_mistakes_in_the_chance_are_named(function, said, capsys):
    assert check_missed_label(function) is False
    out = capsys.readouterr().out
    assert out.startswith("missed label: not yet: ") and all(part in out for part in said), out
    assert out.count(" And ") == len(said) - 1, out


# how many labels a start saves

def needed(rows, accuracies, wanted):
    return math.inf if wanted > accuracies[-1] else 10**np.interp(wanted, accuracies, np.log10(rows))


def within(line=lambda wanted, accuracies, rows: 10**np.interp(wanted, accuracies, np.log10(rows)), above=math.inf, below=None):
    """The solution with one part replaced."""
    def function(rows, accuracies, wanted):
        if wanted > accuracies[-1]:
            return above
        return below if below is not None and wanted < accuracies[0] else line(wanted, accuracies, rows)
    return function


NEEDED = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"), (lambda *_: [1, 2], "for 88.3 it gives [1, 2], expected one number"),
    (within(lambda wanted, accuracies, rows: np.interp(wanted, accuracies, rows)), "straight in the rows"),
    (within(lambda wanted, accuracies, rows: np.interp(wanted, accuracies, np.log10(rows))), "raise 10 to it"),
    (within(lambda wanted, accuracies, rows: np.interp(wanted, accuracies, np.log(rows))), "raise e to it"),
    (within(lambda wanted, accuracies, rows: rows[np.searchsorted(accuracies, wanted)]), "the next size in the list"),
    (within(lambda wanted, accuracies, rows: rows[np.searchsorted(accuracies, wanted, "right") - 1]), "the size before"),
    (within(above=23596), "reached at no size in the list, so the answer is math.inf; found 23,596"),
    (within(above=math.nan), "the answer is math.inf; found nan"), (within(above=-math.inf), "needs +inf rows"),
    (within(below=math.inf), "40 is reached with the smallest size already, so the answer is 23; found inf"),
    (lambda rows, accuracies, wanted: 100.0, "for an accuracy of 88.3 it gives 100 rows; the line in log10(rows) reaches it at 1,280"),
    (lambda rows, accuracies, wanted: math.nan, "it gives nan rows"),
]


def test_labels_needed_worked_by_hand(capsys):
    """Half way from 60 to 80 percent lies half way from 100 to 10,000 rows in the logarithm: at 1,000."""
    assert needed([100, 10_000], [60, 80], 70) == pytest.approx(1000) and needed([100, 10_000], [60, 80], 81) == math.inf
    assert check_labels_needed(needed) and capsys.readouterr().out == "labels needed: right.\n"


@pytest.mark.parametrize("function, said", NEEDED)
def test_mistakes_in_the_labels_needed_are_named(function, said, capsys):
    assert check_labels_needed(function) is False
    out = capsys.readouterr().out
    assert out.startswith("labels needed: not yet: ") and said in out and out.count("\n") == 1, out
