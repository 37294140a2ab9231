"""The checks of notebook 00's exercises: the majority class, errors of the sign, mean pooling."""

import numpy as np
import torch

from mmlcourse.lessons.checks.compare import exercise

__all__ = ["check_majority", "check_mean_pooling", "check_sign_errors"]


@exercise(
    "majority class",
    [
        (["good", "bad", "bad", "fine"], ["good", "fine", "fine", "bad", "good"]),
        (["no", "no", "yes"], ["yes", "no", "no", "no", "yes", "no", "no", "no"]),
    ],
    "the share of dev labels that equal the most frequent train label",
)
def check_majority(pick, train, dev):
    """Check the accuracy of always predicting the majority class.

    Args:
        pick: the choice between a right value and known mistakes.
        train: the labels of the train split, a list.
        dev: the labels of the dev split, a list.

    Returns:
        The accuracy on the dev split.
    """
    most = lambda labels: max(dict.fromkeys(labels), key=labels.count)
    label, rows = pick(
        (most(train), dev),
        {
            "the most frequent label is that of dev; a model may only see train": (most(dev), dev),
            "this is the share in the train split": (most(train), train),
            "the last label of train is predicted, not the most frequent one": (train[-1], dev),
        },
    )
    share = rows.count(label) / len(rows)
    return pick(
        share,
        {
            "this is guessing at random, 1 / number of labels": 1 / len(set(train)),
            "this is a count; divide by the number of rows": rows.count(label),
            "this is in percent": 100 * share,
            "this is the share of wrong predictions": 1 - share,
        },
    )


_SCORES = np.random.default_rng(5).dirichlet(np.ones(5), 24)
_LABELS = np.random.default_rng(6).integers(5, size=24)


@exercise(
    "sign errors",
    [(_SCORES, _LABELS)],
    "the rows whose label is below 2 and predicted above 2, or the other way round",
)
def check_sign_errors(pick, probabilities, labels):
    """Check which rows are predicted with the opposite sign.

    Args:
        pick: the choice between a right value and known mistakes.
        probabilities: [N, 5], from very negative to very positive.
        labels: the true labels, [N], from 0 to 4.

    Returns:
        The set of these rows' numbers.
    """
    found, labels = np.asarray(probabilities).argmax(1), np.asarray(labels)
    a, b = labels - 2, found - 2
    chosen = pick(
        a * b < 0,
        {
            "all wrong rows are listed; a wrong strength is not a wrong sign": a != b,
            "neutral has no sign; leave rows out whose label or prediction is 2": np.sign(a)
            != np.sign(b),
            "these are the rows with the right sign": a * b > 0,
            "only labels 0 and 4 are compared; 1 and 3 have a sign too": a * b == -4,
            "only positive rows that are predicted negative are listed": (a > 0) & (b < 0),
            "only negative rows that are predicted positive are listed": (a < 0) & (b > 0),
        },
    )
    return set(np.flatnonzero(chosen).tolist())


_H = (torch.arange(20.0) ** 2).sin().view(5, 4)


@exercise(
    "mean pooling",
    [(_H, torch.tensor([1, 1, 1, 0, 0])), (2 * _H, torch.tensor([1, 1, 1, 1, 1]))],
    "the sum of the vectors of real tokens, divided by their number",
)
def check_mean_pooling(pick, h, mask):
    """Check the mean of the token vectors of one text.

    Args:
        pick: the choice between a right value and known mistakes.
        h: token vectors, [T, D].
        mask: 1 for a token and 0 for padding, [T].

    Returns:
        One vector, [D].
    """
    kept = h * mask[:, None]
    return pick(
        kept.sum(0) / mask.sum(),
        {
            "padding is part of the mean; use the mask": h.mean(0),
            "the sum is divided by T, which counts padding": kept.mean(0),
            "the sum is not divided by the number of tokens": kept.sum(0),
            "this is the vector of the first token": h[0],
            "this is the maximum over tokens, not the mean": h[mask.bool()].amax(0),
            "the last row is left out, which may be a token": kept[:-1].sum(0) / mask[:-1].sum(),
            "the mean runs over the features of a token": h[:4].mean(1),
        },
    )
