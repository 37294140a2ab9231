"""Prints the measured table of data/README.md: sizes, balance, lengths, duplicates, and what
shallow cues reach.

    python data/measure.py              all tasks
    python data/measure.py rte mnli     some

Shallow cues are logistic regressions fitted on train and scored on dev: bag of words (of both
sentences), of the second sentence alone, and three numbers that say how much the two sentences
overlap.
"""

import re
import sys
import warnings
from collections import Counter

import numpy as np
import pandas as pd

from mmlkit.data.loading import load_task
from mmlkit.data.tasks import list_tasks

TASKS = [
    name for name in list_tasks() if name not in ("quora", "sts", "stsb_star")
]  # these three read another's files


def words(text):
    """Lower-case words."""
    return re.findall(r"[a-z0-9']+", text.lower())


def edit_distance(a, b):
    """Levenshtein distance over the longer length: 0 for equal texts, 1 for unrelated ones."""
    row = np.arange(len(b) + 1)
    codes = np.array([ord(letter) for letter in b])
    for i, letter in enumerate(a, start=1):
        best = np.minimum(row[:-1] + (codes != ord(letter)), row[1:] + 1)  # replace, delete
        row = np.minimum.accumulate(
            np.concatenate([[i], best]) - np.arange(len(b) + 1)
        ) + np.arange(len(b) + 1)  # insert
    return row[-1] / max(len(a), len(b), 1)


def near_duplicates(train, dev, limit=0.1):
    """Rows of dev within `limit` of a row of train; only rows that share most of their words are
    compared letter by letter.
    """
    bags = [(Counter(words(" ".join(row))), " ".join(row)) for row in train.texts]
    found = []
    for i, row in enumerate(dev.texts):
        text = " ".join(row)
        bag = Counter(words(text))
        for other, other_text in bags:
            if (bag & other).total() >= 0.75 * max(bag.total(), other.total()) and edit_distance(
                text, other_text
            ) < limit:
                found.append(i)
                break
    return found


def shared_texts(a, b):
    """Texts (any sentence of a pair) that stand in both splits."""
    return {text for row in a.texts for text in row} & {text for row in b.texts for text in row}


def shallow(train, dev, columns):
    """Dev accuracy of a bag-of-words logistic regression on these columns of the texts."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    def join(split):
        return [
            " ".join(f"{word}_{c}" for c in columns for word in words(row[c]))
            for row in split.texts
        ]

    model = make_pipeline(
        CountVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), binary=True),
        LogisticRegression(C=0.3, max_iter=2000),
    )
    return model.fit(join(train), train.labels).score(join(dev), dev.labels)


def overlap(train, dev):
    """Dev accuracy from how much the two sentences overlap, and nothing else."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def features(split):
        pairs = [(set(words(a)), set(words(b))) for a, b in split.texts]
        return [(len(a & b) / len(a | b), len(a & b) / len(b), len(b) - len(a)) for a, b in pairs]

    model = make_pipeline(StandardScaler(), LogisticRegression())
    return model.fit(features(train), train.labels).score(features(dev), dev.labels)


def measure(name):
    """One row of the table, as a dict."""
    data = load_task(name)
    lengths = [sum(len(words(text)) for text in row) for row in data.train.texts]
    row = {
        "task": name,
        "train": len(data.train),
        "dev": len(data.dev),
        "test": len(data.test),
        "words": f"{np.mean(lengths):.0f} ({min(lengths)} to {max(lengths)})",
        "duplicates": sum(
            count - 1
            for split in (data.train, data.dev, data.test)
            for count in Counter(split.texts).values()
        ),
        "shared train/dev": len(shared_texts(data.train, data.dev)),
        "near-duplicate dev rows": len(near_duplicates(data.train, data.dev)),
    }
    if data.task.kind == "classification":
        row["majority"] = max(Counter(data.dev.labels.tolist()).values()) / len(data.dev)
        row["bag of words"] = shallow(data.train, data.dev, range(len(data.task.text_columns)))
        if data.task.is_pair:
            row["second only"], row["overlap only"] = (
                shallow(data.train, data.dev, [1]),
                overlap(data.train, data.dev),
            )
    else:
        row["scores per unit"] = np.histogram(data.train.labels, bins=5, range=(0, 5))[0].tolist()
    return row


def main(names):
    """Prints the table of these tasks as Markdown."""
    warnings.simplefilter("ignore")
    table = pd.DataFrame([measure(name) for name in names or TASKS])
    header, *rows = [list(table.columns), *table.values.tolist()]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        cells = [
            ""
            if isinstance(cell, float) and np.isnan(cell)
            else f"{cell:.3f}"
            if isinstance(cell, float)
            else str(cell)
            for cell in row
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
