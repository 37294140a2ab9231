"""The course's score for the rows of the report, of constants, and of several systems."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from mmlcourse.studies import course_score as course
from mmlcourse.studies.published import tables
from mmlkit.data.loading import load_task, make_split

REAL = os.environ.get("MMLKIT_REALDATA")


def report():
    """Return the twelve rows of the report, {row: (sst, paraphrase, sts, overall)}, as printed."""
    table = tables("cs224n").query("table == 'Table 1'")
    table = table.pivot(index="row", columns="column", values="printed")
    columns = ["Sentiment Acc", "Para Acc", "STS Corr", "Avg Dev Acc"]
    return dict(zip(table.index, table[columns].itertuples(index=False, name=None)))


def test_score_table_by_hand(make_toy):
    """One system is right everywhere; the other always says label 0, and its scores are constant.

    Both are drawn on the same rows, so that the difference of a system from itself has no spread.
    """
    splits = {task: make_toy(task, dev=8).dev for task in ("sst", "quora", "sts")}
    right, constant = {}, {}
    for task, split in splits.items():
        C = max(split.task.num_labels, 1)
        right[task] = np.eye(C)[split.labels] if split.task.labels else 2 * split.labels[:, None]
        constant[task] = np.tile(np.eye(C)[0], (len(split), 1))
    found = course.score_table({"right": right, "zero": constant}, splits, baseline="zero")
    zero = [(splits[task].labels == 0).mean() for task in ("sst", "quora")]
    assert found.loc["right", ["sst", "quora", "sts", "overall"]].tolist() == pytest.approx([1] * 4)
    assert found.loc["zero", ["sst", "quora", "sts"]].tolist() == pytest.approx([*zero, 0])
    expected = 1 - (sum(zero) + 0.5) / 3
    assert found.loc["right", "difference"] == pytest.approx(expected)
    assert found.loc["zero", ["difference", "low", "high"]].tolist() == [0, 0, 0]
    assert found.loc["right", "low"] < expected < found.loc["right", "high"]
    assert found.loc["right", "error"] == pytest.approx(0) and found.loc["zero", "error"] > 0


def test_untrained_scores_are_the_majority_class_and_the_cosine(make_model, make_toy):
    model = make_model("sst", "sts")
    splits = {task: make_toy(task, dev=8).dev for task in ("sst", "sts")}
    before = torch.get_rng_state()
    found = course.untrained_scores(model.encoder, model.tokenizer, splits)
    assert torch.equal(torch.get_rng_state(), before)
    best = max(course.constant_accuracies(splits["sst"]).values())
    assert (found["sst"].argmax(1) == splits["sst"].labels).mean() == pytest.approx(best)
    cosines = []
    for texts in splits["sts"].texts:
        ids = [torch.tensor([model.tokenizer(text)["input_ids"]]) for text in texts]
        with torch.no_grad():
            u, v = (model.encoder.eval()(one).last_hidden_state[0].mean(0) for one in ids)
        cosines.append(torch.cosine_similarity(u, v, dim=0).item())
    np.testing.assert_allclose(found["sts"][:, 0], cosines, atol=1e-4)


def test_overall_score_of_the_twelve_rows():
    """nan counts as r = 0. The row "Sequential, 1e-5" prints 0.555, but its entries give 0.5543."""
    rows = report()
    assert len(rows) == 12 and sum(math.isnan(row[2]) for row in rows.values()) == 1
    off = {row: course.overall_score(*values[:3]) - values[3] for row, values in rows.items()}
    wrong = {row: one for row, one in off.items() if abs(one) > 0.0005 + 1e-9}
    assert wrong == {"Sequential PALs, lr: 1e-5": pytest.approx(-0.00067, abs=1e-5)}


@pytest.mark.parametrize(
    ("values", "score"),
    [
        ((1, 1, 1), 1),
        ((0, 0, -1), 0),
        ((0.5, 0.25, 0.0), 1.25 / 3),
        ((0.0, 0.0, math.nan), 0.5 / 3),
    ],
)
def test_overall_score_by_hand(values, score):
    assert course.overall_score(*values) == pytest.approx(score)


@pytest.mark.parametrize("values", [(51.2, 0.7, 0.3), (0.5, math.nan, 0.3), (0.5, 0.5, 36.8)])
def test_overall_score_refuses_percentages(values):
    with pytest.raises(ValueError, match="expected 0 to 1, 0 to 1 and -1 to 1; divide a percent"):
        course.overall_score(*values)


def test_constant_accuracies_by_hand():
    labels = ["neutral", "positive", "positive", "negative"]
    rows = [{"sentence": "a film", "label": label} for label in labels]
    names = ("very negative", "negative", "neutral", "positive", "very positive")
    expected = dict(zip(names, (0, 0.25, 0.25, 0.5, 0)))
    assert course.constant_accuracies(make_split("sst", rows)) == expected


@pytest.mark.skipif(
    not REAL, reason="MMLKIT_REALDATA is not set: the course's data is not part of the repository"
)
def test_the_reports_lowest_scores_are_constant_predictions():
    with pytest.warns(UserWarning, match="rows without a label: 2"):
        sst, quora = (
            course.constant_accuracies(load_task(name, Path(REAL) / "cs224n").dev)
            for name in ("sst", "quora")
        )
    assert (sst["positive"], sst["negative"]) == (279 / 1101, 289 / 1101)
    assert quora["not_duplicate"] == 12_627 / 20_212
    rows = report()
    always = round(sst["positive"], 3), round(quora["not_duplicate"], 3)
    assert {row for row, values in rows.items() if values[0] == always[0]} == {
        "Sequential PALs, lr: 1e-5",
        "Sequential PALs, lr: 1e-6",
        "Sequential PALs, lr: 1e-7",
        "Parallel PALs, lr: 1e-4",
    }
    assert {row for row, values in rows.items() if values[1] == always[1]} == {
        "Task Sampling 3k steps, lr: 1e-3",
        "Sequential PALs, lr: 1e-7",
        "Parallel PALs, lr: 1e-4",
    }
    assert rows["Task Sampling 3k steps, lr: 1e-3"][0] == round(sst["negative"], 3)
