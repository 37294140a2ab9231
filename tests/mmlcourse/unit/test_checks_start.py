"""The checks of notebook 00 accept the solutions and name each known mistake."""

import numpy as np
import pytest

from mmlcourse.lessons import checks


def majority(train, dev):
    label = max(set(train), key=train.count)
    return dev.count(label) / len(dev)


def sign_errors(probabilities, labels):
    a, b = np.sign(labels - 2), np.sign(probabilities.argmax(1) - 2)
    return [i for i in range(len(a)) if a[i] * b[i] == -1]


def mean_pooling(h, mask):
    return h[mask == 1].mean(0)


def test_the_solutions_are_accepted(capsys):
    assert checks.check_majority(majority) and checks.check_sign_errors(sign_errors)
    assert checks.check_mean_pooling(mean_pooling)
    assert capsys.readouterr().out.count("right.\n") == 3


@pytest.mark.parametrize(
    ("check", "function", "message"),
    [
        ("majority", lambda train, dev: None, "it returns nothing so far."),
        ("majority", lambda train, dev: majority(dev, dev), "the most frequent label is that of"),
        ("majority", lambda train, dev: majority(train, train), "this is the share in the train"),
        ("majority", lambda train, dev: 1 / len(set(train)), "this is guessing at random"),
        ("majority", lambda train, dev: len(dev) * majority(train, dev), "this is a count;"),
        ("majority", lambda train, dev: 1 - majority(train, dev), "this is the share of wrong"),
        ("majority", lambda train, dev: majority(train[-1:], dev), "the last label of train is"),
        ("majority", lambda train, dev: 100 * majority(train, dev), "this is in percent."),
        (
            "sign_errors",
            lambda p, y: np.flatnonzero(p.argmax(1) != y),
            "all wrong rows are listed; a wrong strength is not a wrong sign.",
        ),
        (
            "sign_errors",
            lambda p, y: np.flatnonzero(np.sign(p.argmax(1) - 2) != np.sign(y - 2)),
            "neutral has no sign;",
        ),
        (
            "sign_errors",
            lambda p, y: np.flatnonzero((p.argmax(1) - 2) * (y - 2) > 0),
            "these are the rows with the right sign.",
        ),
        (
            "sign_errors",
            lambda p, y: np.flatnonzero(abs(p.argmax(1) - y) == 4),
            "only labels 0 and 4 are compared;",
        ),
        (
            "sign_errors",
            lambda p, y: np.flatnonzero((y > 2) & (p.argmax(1) < 2)),
            "only positive rows that are predicted negative are listed.",
        ),
        ("mean_pooling", lambda h, mask: h.mean(0), "padding is part of the mean; use the mask."),
        ("mean_pooling", lambda h, mask: (h * mask[:, None]).mean(0), "the sum is divided by T,"),
        ("mean_pooling", lambda h, mask: (h * mask[:, None]).sum(0), "the sum is not divided"),
        ("mean_pooling", lambda h, mask: mean_pooling(h[:-1], mask[:-1]), "the last row is left"),
        ("mean_pooling", lambda h, mask: h[:4].mean(1), "the mean runs over the features of a"),
        ("mean_pooling", lambda h, mask: h[0], "this is the vector of the first token."),
        ("mean_pooling", lambda h, mask: h[mask > 0].amax(0), "this is the maximum over tokens"),
        ("mean_pooling", lambda h, mask: h, "expected numbers of shape [4], found shape [5, 4]."),
    ],
)
def test_mistakes_are_named(check, function, message, capsys):
    assert getattr(checks, f"check_{check}")(function) is False
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and f": not yet: {message}" in out, out
