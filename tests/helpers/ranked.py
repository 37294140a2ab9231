"""Toy questions with different numbers of candidates, for the tests of ranking."""

import numpy as np

from mmlkit.data.loading import TaskData, make_split
from mmlkit.heads.ranking import rank_queries

WORDS = ("the", "film", "plot", "of", "one", "story", "and", "it")


def make_ranked(queries=8, dev=6, seed=0):
    """Return TaskData of qnli_rank with 2 to 4 candidates per question, in random order.

    The answer contains the word "same", the other candidates the word "other".
    """
    generator = np.random.default_rng(seed)

    def split(count, name):
        rows = []
        for query in range(count):
            question = (
                f"{name} {'abcdefghijklmnopqrstuvwxyz'[query % 26] * (1 + query // 26)} "
                + " ".join(generator.choice(WORDS, size=query % 4))
            )
            for place in range(2 + query % 3):
                words = [
                    *generator.choice(WORDS, size=generator.integers(1, 5)),
                    "other" if place else "same",
                ]
                rows.append(
                    {
                        "question": question,
                        "sentence": " ".join(words),
                        "label": "not_entailment" if place else "entailment",
                    }
                )
        order = generator.permutation(len(rows))
        return make_split("qnli", [rows[i] for i in order], place=f"toy {name}", name=name)

    train, dev = split(queries, "train"), split(dev, "dev")
    return rank_queries(TaskData(train.task, train, dev, source="toy"))
