"""Prints the measured table of data/README.md: sizes, groups, balance, lengths, duplicates, cues.

    python data/measure.py              all tasks
    python data/measure.py rte mnli     some

Shallow cues are logistic regressions fitted on train and scored on dev: a bag of words and TF-IDF
of the whole input, TF-IDF of the first or of the second text alone, and three numbers that say how
much the two texts overlap. In mrpc and rte the last one is measured on the crossed tier. The
neutral AUC tells how well the first text alone separates neutral rows from the others.
"""

import argparse
import re
import warnings
from collections import Counter
from itertools import combinations

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
    from sklearn.feature_extraction.text import CountVectorizer

    def numbered(text):  # the second "the" is another word, so that a product counts shared words
        counts = Counter(words(text)).items()
        return [f"{word} {i}" for word, count in counts for i in range(count)]

    texts = [[" ".join(row) for row in split.texts] for split in (train, dev)]
    vectorizer = CountVectorizer(analyzer=numbered).fit(texts[0] + texts[1])
    train_words, dev_words = map(vectorizer.transform, texts)
    shared = (dev_words @ train_words.T).toarray()  # [dev rows, train rows]
    longest = np.maximum(dev_words.sum(1), train_words.sum(1).T)
    candidates = np.argwhere(shared >= 0.75 * np.asarray(longest))
    near = {i for i, j in candidates if edit_distance(texts[1][i], texts[0][j]) < limit}
    return sorted(near)


def shared_texts(a, b):
    """Texts (any sentence of a pair) that stand in both splits."""
    return {text for row in a.texts for text in row} & {text for row in b.texts for text in row}


def _joined(split, columns):
    """The words of these columns of the texts, each word with the number of its column."""
    return [
        " ".join(f"{word}_{c}" for c in columns for word in words(row[c])) for row in split.texts
    ]


def shallow(train, dev, columns, kind="tfidf"):
    """Dev accuracy of a logistic regression on the words of these columns of the texts."""
    model = _words_model(kind)
    return model.fit(_joined(train, columns), train.labels).score(_joined(dev, columns), dev.labels)


def _words_model(kind):
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if kind == "bag":
        vectorizer = CountVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), binary=True)
    else:
        vectorizer = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    weight = {"bag": 0.3, "tfidf": 10}[kind]
    return make_pipeline(vectorizer, LogisticRegression(C=weight, max_iter=2000))


def neutral_auc(train, dev):
    """Area under the ROC curve on dev, neutral against the rest, from the first text alone."""
    from sklearn.metrics import roc_auc_score

    neutral = train.task.labels.index("neutral")
    model = _words_model("tfidf").fit(_joined(train, [0]), train.labels == neutral)
    return roc_auc_score(dev.labels == neutral, model.predict_proba(_joined(dev, [0]))[:, 1])


def of_tier(split, tier):
    """The rows of one tier; all rows where the task has no tiers."""
    tiers = split.columns.get("tier")
    return split.take([i for i, one in enumerate(tiers) if one == tier]) if tiers else split


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
    splits = (data.train, data.dev, data.test, *data.more.values())
    row = {
        "task": name,
        "train": len(data.train),
        "dev": len(data.dev),
        "test": len(data.test),
        "groups": " / ".join(str(len(set(split.columns["group"]))) for split in splits[:3]),
        "words": f"{np.mean(lengths):.0f} ({min(lengths)} to {max(lengths)})",
        "duplicates": sum(times - 1 for split in splits for times in Counter(split.texts).values()),
        "shared": sum(len(shared_texts(a, b)) for a, b in combinations(splits, 2)),
        "near": len(near_duplicates(data.train, data.dev)),
    }
    if data.task.kind != "classification":
        scores = np.histogram(data.train.labels, bins=5, range=(0, 5))[0].tolist()
        return {**row, "scores per unit": scores}
    both = range(len(data.task.text_columns))
    row["majority"] = max(Counter(data.dev.labels.tolist()).values()) / len(data.dev)
    row["bag of words"] = shallow(data.train, data.dev, both, "bag")
    row["TF-IDF"] = shallow(data.train, data.dev, both)
    if data.task.is_pair:
        row["first only"] = shallow(data.train, data.dev, [0])
        row["second only"] = shallow(data.train, data.dev, [1])
        row["overlap"] = overlap(of_tier(data.train, "crossed"), of_tier(data.dev, "crossed"))
    if "neutral" in data.task.labels and len(data.task.labels) == 3:
        row["neutral AUC"] = neutral_auc(data.train, data.dev)
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
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="TASK", help="a task's name; by default all")
    main(parser.parse_args().names)
