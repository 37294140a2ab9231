"""Tests of the cross-dataset protocol: by brute force, by hand, and against MML v2."""

import dataclasses
import itertools
import math

import numpy as np
import pandas as pd
import pytest

from mmlcourse.studies import published
from mmlcourse.studies.comparisons import Comparison, outcome_sentence, paired_bootstrap
from mmlcourse.studies.cross_dataset import (
    cell_improvements,
    cosine_answers,
    cross_dataset_table,
    hold_out_errors,
    improvements,
    performance_profile,
    relative_improvement,
    two_way,
)
from mmlcourse.studies.glue import glue_average
from mmlcourse.studies.held_out import dev_halves
from mmlcourse.studies.lessons import recorded_cosine
from mmlkit.data.loading import TaskData, load_task, make_split
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import PairHead
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.model import MultitaskModel

# ---- collapsing to two classes ----

ORDERS = {
    "mnli, hub": ("entailment", "neutral", "contradiction"),
    "mnli, mt-dnn": ("contradiction", "neutral", "entailment"),
    "mnli, pals": ("contradiction", "entailment", "neutral"),
    "rte, hub": ("entailment", "not_entailment"),
    "rte, mt-dnn and pals": ("not_entailment", "entailment"),
    "scitail, mt-dnn": ("neutral", "entails"),
    "scitail": ("entails", "neutral"),
    "qqp": ("not_duplicate", "duplicate"),
    "mrpc": ("not_equivalent", "equivalent"),
    "stsb_star": ("not_similar", "similar"),
    "stsb_star, turned": ("similar", "not_similar"),
}
POSITIVE = {"entailment", "entails", "duplicate", "equivalent", "similar"}


@pytest.mark.parametrize("collapse", ["argmax", "sum"])
@pytest.mark.parametrize("labels", ORDERS.values(), ids=ORDERS)
def test_collapsing_is_by_name_in_every_order(labels, collapse):
    """The sum rule asks whether the positive labels have more than one half together."""
    rows = np.random.default_rng(0).normal(size=(300, len(labels))).tolist()
    expected = []
    for row in rows:
        positive = [math.exp(score) for score, name in zip(row, labels) if name in POSITIVE]
        more = sum(positive) > sum(map(math.exp, row)) / 2
        best = labels[row.index(max(row))] in POSITIVE
        expected.append(best if collapse == "argmax" else more)
    assert two_way(rows, labels, collapse).tolist() == expected


def test_the_rules_differ_where_entailment_leads_with_less_than_a_half():
    chances, labels = [[0.4, 0.35, 0.25], [0.6, 0.3, 0.1], [0.3, 0.4, 0.3]], ORDERS["mnli, hub"]
    assert two_way(chances, labels).tolist() == [True, True, False]
    assert two_way(chances, labels, "sum", as_probabilities=True).tolist() == [False, True, False]
    assert two_way(np.log(chances), labels, "sum").tolist() == [False, True, False]


def test_an_unknown_label_or_rule_is_refused():
    with pytest.raises(ValueError, match="'negative' is neither positive"):
        two_way([[1, 2]], ("duplicate", "negative"))
    with pytest.raises(ValueError, match="collapse is 'mean', expected 'argmax' or 'sum'"):
        two_way([[1, 2]], ("duplicate", "not_duplicate"), "mean")


# ---- the table of models and data sets ----

LABELS = {
    "rte": [0, 1, 1, 1],
    "qnli": [0, 0, 1, 1],
    "mnli": [0, 1, 1, 2, 2],
    "snli": [0, 0, 1, 2],  # label indices as in get_task(name).labels
    "qqp": [1, 0, 0],
    "mrpc": [1, 1, 1, 0],
    "stsb_star": [5.0, 4.0, 2.0, 0.0, 0.0],
}


@pytest.fixture
def sets():
    """Return {task: TaskData} with the labels of LABELS as dev and the first two as train."""
    made = {}
    for name, labels in LABELS.items():
        columns = get_task(name).text_columns
        rows = [
            {
                columns[0]: "the film " + "abcdefg"[i],
                columns[1]: f"one {'xyzuvwr'[i]} story",
                "label": label,
            }
            for i, label in enumerate(labels)
        ]
        made[name] = TaskData(
            get_task(name),
            make_split(name, rows[:2], labels=get_task(name).labels, name="train"),
            make_split(name, rows, labels=get_task(name).labels, name="dev"),
            source="rows",
        )
    return made


def constant_model(make_model, task, chances):
    """Return a model that gives every row these probabilities."""
    import torch

    model = make_model(task)
    with torch.no_grad():
        model.heads[task].dense.weight.zero_()
        model.heads[task].dense.bias.copy_(torch.tensor(chances).log())
    return model


def accuracies(table, split="dev"):
    return table[table.split == split].set_index("evaluated_on").accuracy.to_dict()


@pytest.mark.parametrize(
    ("task", "chances", "collapse", "expected"),
    [
        # Always neutral: "not entailment" in two-way sets, but only "neutral" in MNLI and SNLI.
        (
            "mnli",
            [0.2, 0.6, 0.2],
            "argmax",
            {"rte": 3 / 4, "mnli": 2 / 5, "qnli": 2 / 4, "snli": 1 / 4},
        ),
        # Always entailment with less than one half: the sum is negative, in two-way sets only.
        (
            "snli",
            [0.4, 0.35, 0.25],
            "argmax",
            {"rte": 1 / 4, "mnli": 1 / 5, "qnli": 2 / 4, "snli": 2 / 4},
        ),
        (
            "snli",
            [0.4, 0.35, 0.25],
            "sum",
            {"rte": 3 / 4, "mnli": 1 / 5, "qnli": 2 / 4, "snli": 2 / 4},
        ),
        # A two-way model on sets with three labels: the gold labels are collapsed.
        ("rte", [0.1, 0.9], "argmax", {"rte": 3 / 4, "mnli": 4 / 5, "qnli": 2 / 4, "snli": 2 / 4}),
        ("qnli", [0.9, 0.1], "sum", {"rte": 1 / 4, "mnli": 1 / 5, "qnli": 2 / 4, "snli": 2 / 4}),
        ("qqp", [0.1, 0.9], "argmax", {"qqp": 1 / 3, "mrpc": 3 / 4, "stsb_star": 2 / 5}),
        ("stsb_star", [0.9, 0.1], "argmax", {"qqp": 2 / 3, "mrpc": 1 / 4, "stsb_star": 3 / 5}),
    ],
)
def test_a_constant_model_by_hand(make_model, sets, task, chances, collapse, expected):
    """Train has the first two rows of dev."""
    model = constant_model(make_model, task, chances)
    table = cross_dataset_table({task: model}, sets, method="constant", collapse=collapse)
    assert accuracies(table) == pytest.approx(expected)
    columns = ["method", "trained_on", "evaluated_on", "split", "accuracy", "rows"]
    assert list(table.columns) == columns and list(accuracies(table)) == list(expected)
    assert set(table.method) == {"constant"} and set(table.trained_on) == {task}
    rows = {(row.evaluated_on, row.split): row.rows for row in table.itertuples()}
    dev, train = {(name, "dev"): len(LABELS[name]) for name in expected}, dict.fromkeys(expected, 2)
    assert rows == {**dev, **{(name, "train"): number for name, number in train.items()}}


def test_splits_and_categories_decide_what_is_evaluated(make_model, sets):
    model = constant_model(make_model, "qqp", [0.1, 0.9])
    table = cross_dataset_table({"qqp": model}, sets, splits=("train",))
    assert accuracies(table, "train") == {"qqp": 1 / 2, "mrpc": 1.0, "stsb_star": 1.0}
    assert set(table.split) == {"train"}
    table = cross_dataset_table({"qqp": model}, sets, categories={"own": ("mrpc", "qqp")})
    assert set(table.evaluated_on) == {"qqp", "mrpc"} and len(table) == 4
    with pytest.raises(KeyError, match="sst"):
        cross_dataset_table({"sst": model}, sets)


def test_a_model_with_several_heads_uses_the_head_of_its_task(make_model, sets):
    """The reference is a loop over rows and label names; one head encodes sentences separately."""
    model = make_model("rte", "mnli", "snli", seed=3)
    apart = MultitaskModel(
        model.encoder, {"mrpc": PairHead(model.encoder.config.hidden_size, 2)}, model.tokenizer
    )
    table = cross_dataset_table({"rte": model, "mnli": model, "snli": model, "mrpc": apart}, sets)
    assert len(table) == 2 * (3 * 4 + 3)
    seen = set()
    for row in table.itertuples():
        split = sets[row.evaluated_on].splits[row.split]
        names, own = get_task(row.trained_on).labels, split.task.labels
        used, right = apart if row.trained_on == "mrpc" else model, []
        for scores, gold in zip(
            predict_scores(used, split.texts, task=row.trained_on), split.labels
        ):
            one, true = names[scores.argmax()], own[gold]
            same = set(names) == set(own)
            right.append(one == true if same else (one in POSITIVE) == (true in POSITIVE))
            seen.add((row.trained_on, one))
        assert row.accuracy == pytest.approx(np.mean(right)), row
    assert len(seen) > 4  # the heads give different answers


def test_softmax_is_not_applied_to_probabilities(make_model, sets, monkeypatch):
    """[0.6, 0.2, 0.2] is positive; its softmax, [0.43, 0.29, 0.29], is not."""
    monkeypatch.setattr(
        "mmlcourse.studies.cross_dataset.predict_scores",
        lambda model, texts, **_: np.tile(np.float32([0.6, 0.2, 0.2]), (len(texts), 1)),
    )
    model = make_model("mnli")
    for gives, expected in ((True, 1 / 4), (False, 3 / 4)):
        model.heads["mnli"].gives_probabilities = gives
        table = cross_dataset_table({"mnli": model}, sets, collapse="sum")
        assert accuracies(table)["rte"] == expected


def test_a_split_without_labels_is_refused(make_model, sets):
    blind = dataclasses.replace(sets["qnli"].dev, labels=None)
    data = {"qnli": dataclasses.replace(sets["qnli"], dev=blind)}
    with pytest.raises(ValueError, match="the split 'dev' of qnli has no labels"):
        cross_dataset_table({"rte": make_model("rte")}, data, splits=("dev",))


def test_the_same_labels_in_another_order_are_matched_by_name(make_model, sets):
    """The data set has SNLI in MT-DNN's label order: contradiction, neutral, entailment."""
    task = dataclasses.replace(get_task("snli"), labels=ORDERS["mnli, mt-dnn"])
    rows = [
        {"premise": "the film", "hypothesis": "one story", "label": label}
        for label in ("entailment", "entailment", "neutral", "contradiction")
    ]
    split = make_split(task, rows, name="dev")
    data = {"snli": TaskData(task, split, split)}
    for chances, expected in (([0.2, 0.6, 0.2], 1), ([0.6, 0.2, 0.2], 2), ([0.1, 0.2, 0.7], 1)):
        model = constant_model(make_model, "mnli", chances)
        assert accuracies(cross_dataset_table({"mnli": model}, data)) == {"snli": expected / 4}


@pytest.mark.parametrize("part", ["train", "dev"])
def test_stsb_star_keeps_its_boundary_values(part):
    rows = getattr(load_task("stsb"), part)
    scores = {texts: round(float(score), 4) for texts, score in zip(rows.texts, rows.labels)}
    split = getattr(load_task("stsb_star"), part)
    found = dict(zip(split.texts, split.labels))
    assert found == {
        texts: int(score >= 4) for texts, score in scores.items() if score <= 2 or score >= 4
    }
    assert {2.0, 4.0} <= {scores[texts] for texts in found} and len(found) < len(scores)


# ---- cells and steps of a profile ----


def long_table(rows):
    columns = ["method", "seed", "trained_on", "evaluated_on", "split", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def test_cell_improvements_worked_by_hand():
    """0.6 against 0.5 is +20 % with seed 0, 0.4 against 0.5 is -20 % and 0.9 against 0.6 +50 %."""
    table = long_table(
        [
            (method, seed, "qqp", other, "dev", value)
            for method, values in {"bert": (0.5, 0.5, 0.6), "mml": (0.6, 0.4, 0.9)}.items()
            for (seed, other), value in zip([(0, "mrpc"), (1, "mrpc"), (0, "stsb_star")], values)
        ]
        + [("mml", 1, "qqp", "stsb_star", "dev", 0.3), ("bert", 1, "qqp", "stsb_star", "dev", 0.2)]
        + [(method, 0, "qqp", "qqp", "dev", 0.9) for method in ("bert", "mml")]
    )
    found = cell_improvements(table)
    assert list(found.index) == [("dev", "qqp", "mrpc"), ("dev", "qqp", "stsb_star")]
    np.testing.assert_allclose(found["mml"], [0, 50], atol=1e-9)
    assert (found["bert"] == 0).all()


# ---- Tables 4 and 5 of MML v2 ----


def test_the_improvements_of_tables_4_and_5():
    """140 in all; a script of its own recomputes them from the printed accuracies."""
    frame = published.cross_dataset().rename(columns={"printed": "accuracy"})
    table = frame.query("metric == 'accuracy'")
    last = frame.query("metric == 'improvement'")
    for place, over in (("trained_on", "evaluated_on"), ("evaluated_on", "trained_on")):
        keys = [place, "split", "method"]
        found = improvements(table, over=over).set_index(keys)["improvement"]
        expected = last.dropna(subset=place).set_index(keys)["recomputed"]
        assert len(found) == len(expected) == 70
        np.testing.assert_allclose(found, expected[found.index], atol=1e-9)
    assert found["qqp", "train", "mml"] == pytest.approx(50 * (68.37 / 65.28 + 74.13 / 73.13 - 2))


GOLDEN = """
1.00  .000  .389  .194  .111  .167  .306
1.02  .194  .639  .306  .222  .333  .333
1.05  .389  .889  .556  .500  .556  .444
1.10  .611  .944  .833  .722  .694  .639
1.20  .833  1.00  .889  .972  .972  .833
1.50  .944  1.00  1.00  1.00  1.00  .944"""


def test_the_profile_of_figure_3():
    golden = pd.DataFrame(
        [[float(value) for value in line.split()] for line in GOLDEN.split("\n")[1:]],
        columns=["tau", "bert", "mml", "mv-5", "mv-m", "bert-drop", "bert-ensemble"],
    ).set_index("tau")
    table = published.cross_dataset().query("metric == 'accuracy'")
    errors = hold_out_errors(table.rename(columns={"printed": "accuracy"}), top=100)
    found = performance_profile(errors, golden.index)
    assert errors.shape == (36, 6)
    pd.testing.assert_frame_equal(found[golden.columns].round(3), golden, check_names=False)
    shares = performance_profile(errors / 100, golden.index)  # a ratio does not depend on the unit
    pd.testing.assert_frame_equal(shares, found)


# ---- improvement ----


def test_improvement_is_the_mean_of_ratios():
    # 60/50 = 1.2 and 90/100 = 0.9 have the mean 1.05; the ratio of the means would be 1.0.
    assert relative_improvement([60, 90], [50, 100]) == pytest.approx(5.0)
    assert relative_improvement({"qnli": 60, "rte": 90}, {"rte": 100, "qnli": 50}) == pytest.approx(
        5.0
    )
    assert relative_improvement(
        pd.Series({"a": 0.6, "b": 0.9}), pd.Series({"b": 1.0, "a": 0.5})
    ) == pytest.approx(5.0)
    assert relative_improvement(0.6, 0.5) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("acc", "printed"),
    [
        (109.989, 9.98),
        (99.649, -0.35),
        (100.29, 0.29),
        (100.01, 0.01),
        (100, 0.0),
        (99.999, 0.0),
        (112.3456, 12.34),
    ],
)
def test_truncation_is_towards_zero(acc, printed):
    assert relative_improvement([acc], [100], truncate=True) == printed


@pytest.mark.parametrize(
    ("acc", "baseline", "message"),
    [
        ([1, 2], [1], r"keys are \[0, 1\] and \[0\]; expected the same keys, each once."),
        ({"rte": 1}, {"mnli": 1}, r"keys are \['rte'\] and \['mnli'\]; expected"),
        (pd.Series([1, 2], index=["a", "a"]), pd.Series([1], index=["a"]), "each once"),
    ],
)
def test_numbers_that_do_not_match_are_refused(acc, baseline, message):
    with pytest.raises(ValueError, match=message):
        relative_improvement(acc, baseline)


def small_table(**more):
    rows = [
        ("bert", "rte", "rte", 0.9),
        ("bert", "rte", "mnli", 0.5),
        ("bert", "rte", "qnli", 0.8),
        ("bert", "mnli", "qnli", 0.4),
        ("mml", "rte", "rte", 0.1),
        ("mml", "rte", "mnli", 0.6),
        ("mml", "rte", "qnli", 0.8),
        ("mml", "mnli", "qnli", 0.5),
    ]
    columns = ["method", "trained_on", "evaluated_on", "accuracy"]
    return pd.DataFrame(rows, columns=columns).assign(split="dev", **more)


def test_columns_and_rows_by_hand():
    """The diagonal does not count: rte (1.2 + 1) / 2, mnli 1.25, column qnli (1 + 1.25) / 2."""
    rows, columns = improvements(small_table()), improvements(small_table(), over="trained_on")
    assert list(rows) == ["trained_on", "split", "method", "improvement"]
    assert dict(zip(rows.trained_on, rows.improvement)) == pytest.approx({"rte": 10, "mnli": 25})
    found = dict(zip(columns.evaluated_on, columns.improvement))
    assert found == pytest.approx({"mnli": 20, "qnli": 12.5}) and set(rows.method) == {"mml"}
    assert hold_out_errors(small_table())["mml"].tolist() == pytest.approx([0.4, 0.2, 0.5])


def test_each_seed_is_compared_with_its_own_baseline():
    second = small_table(seed=2)
    second.loc[second.method == "bert", "accuracy"] /= 2
    found = improvements(pd.concat([small_table(seed=1), second]))
    assert list(found) == ["seed", "trained_on", "split", "method", "improvement"]
    assert dict(zip(zip(found.seed, found.trained_on), found.improvement)) == pytest.approx(
        {(1, "rte"): 10.0, (1, "mnli"): 25.0, (2, "rte"): 120.0, (2, "mnli"): 150.0}
    )


def test_incomplete_tables_are_refused():
    """Otherwise a mean would be over fewer experiments of one method."""
    with pytest.raises(ValueError, match="'mml' lacks some experiments of the other methods"):
        improvements(small_table().drop(index=5))
    with pytest.raises(ValueError, match="duplicate entries"):
        improvements(pd.concat([small_table(), small_table()]))


# ---- profiles ----


def test_profile_by_hand():
    errors = pd.DataFrame(
        {"a": [10, 20, 30, 0], "b": [10, 22, 60, 1], "c": [12, 40, 15, 0]}, index=list("wxyz")
    )
    found = performance_profile(errors, [1, 1.1, 1.2, 2, 100])
    assert found["a"].tolist() == [
        3 / 4,
        3 / 4,
        3 / 4,
        1,
        1,
    ]  # best or equal on w, x and z; on y the errors are 30 and 15
    assert found["b"].tolist() == [
        1 / 4,
        2 / 4,
        2 / 4,
        2 / 4,
        3 / 4,
    ]  # on x, 22 is 1.1 * 20; no factor reaches an error of 0
    assert found["c"].tolist() == [2 / 4, 2 / 4, 3 / 4, 1, 1]
    assert found.index.name == "tau" and found.loc[1].sum() > 1


def test_the_profile_of_accuracies_by_hand():
    errors = pd.DataFrame(
        {"a": [10.0, 20.0], "b": [19.0, 20.0], "c": [55.0, 60.0]}
    )  # accuracies: 90 80, 81 80, 45 40
    found = performance_profile(errors, [1, 1.1, 1.12, 2], top=100)
    assert (
        found["a"].tolist() == [1, 1, 1, 1]
        and found["b"].tolist() == [0.5, 0.5, 1, 1]
        and found["c"].tolist() == [0, 0, 0, 1]
    )
    pd.testing.assert_frame_equal(
        performance_profile(errors / 100, [1, 1.1, 1.12, 2], top=1), found
    )


@pytest.mark.parametrize("top", [None, 100])
def test_profile_against_a_loop(top):
    errors = np.random.default_rng(0).integers(1, 40, (25, 4)).astype(float)
    taus = [1, 1.013, 1.1, 1.37, 3]
    found = performance_profile(errors, taus, top=top)
    for tau, method in itertools.product(taus, range(4)):
        if top is None:
            count = sum(row[method] <= tau * min(row) for row in errors)
        else:
            count = sum((100 - row[method]) * tau >= 100 - min(row) for row in errors)
        assert found.loc[tau, method] == count / 25


def test_a_missing_error_is_refused():
    for missing in (math.nan, -1):
        with pytest.raises(ValueError, match="errors must be numbers of at least 0"):
            performance_profile({"a": [1, missing]}, [1])


# ---- GLUE averages ----


def scores_of_line(line):
    """Return {task: score} for a row of mnli qqp qnli sst2 cola stsb mrpc rte (wnli)."""
    names = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte", "wnli")
    return {
        name: tuple(map(float, cell.split("/"))) if "/" in cell else float(cell)
        for name, cell in zip(names, line.split())
    }


@pytest.mark.parametrize(
    ("line", "collapse", "printed"),
    [
        ("86.6 91.3 92.3 93.2 60.6 90.0 88.0 70.4", "mml-v2", 84.0),
        ("87.0 91.4 92.2 94.0 64.3 91.1 88.0 75.4", "mml-v2", 85.4),
        ("86.2 91.4 92.2 93.2 57.9 90.6 89.7 80.1", "mml-v2", 85.2),
        ("87.0 91.6 93.0 92.9 62.3 90.7 87.5 76.5", "mml-v2", 85.2),
        ("86.6 91.4 92.3 93.2 60.9 90.2 88.0 70.4", "mml-v2", 84.1),
        ("87.2 91.7 93.0 94.0 64.5 91.1 89.0 80.1", "mml-v2", 86.3),
        ("86.7/85.9 89.3 92.7 94.9 60.5 86.5 85.4 70.1", "mml-v2", 83.2),
        ("86.4/85.9 88.9 92.2 94.1 56.9 87.4 86.3 70.6", "mml-v2", 82.8),
        ("87.0/85.9 89.1 92.2 93.8 54.8 86.8 86.1 74.2", "mml-v2", 82.9),
        ("86.6/86.0 89.3 92.8 94.1 56.1 87.9 85.3 74.1", "mml-v2", 83.2),
        ("86.6/86.0 89.2 92.3 94.1 60.1 86.4 86.1 70.4", "mml-v2", 83.1),
        ("87.0/86.0 89.4 92.6 94.6 58.6 88.1 86.7 74.2", "mml-v2", 83.8),
    ],
)
def test_averages_of_mml_v2(line, collapse, printed):
    assert glue_average(scores_of_line(line), collapse) == pytest.approx(printed, abs=0.0501)


@pytest.mark.parametrize(
    ("line", "exact", "printed"),
    [
        ("86.7/85.9 89.3 92.7 94.9 60.5 86.5 85.4 70.1", 752 / 9, 83.55),
        ("87.0/86.0 89.4 92.6 94.6 58.6 88.1 86.7 74.2", 757.2 / 9, 84.13),
    ],
)
def test_averages_of_mml_v1_count_mnli_twice(line, exact, printed):
    assert glue_average(scores_of_line(line), "mml-v1") == pytest.approx(exact)
    assert math.trunc(glue_average(scores_of_line(line), "mml-v1") * 100) / 100 == printed


@pytest.mark.parametrize(
    ("line", "exact", "printed"),
    [
        ("86.7/85.9 72.1/89.3 91.1 94.9 60.5 87.6/86.5 89.3/85.4 70.1 65.1", 80.34, 80.4),
        ("82.8/81.9 70.5/88.4 90.8 92.9 52.8 88.1/87.3 89.0/85.0 70.8 65.1", 78.77, 78.7),
        ("86.7/86.0 72.4/89.6 98.0 95.6 61.5 88.3/87.7 90.0/86.7 75.5 65.1", 82.16, 82.2),
        ("76.4/76.1 64.8/84.7 79.9 90.4 36.0 75.1/73.3 84.9/77.9 56.8 65.1", 70.53, 70.5),
    ],
)
def test_averages_of_mt_dnn(line, exact, printed):
    assert (
        glue_average(scores_of_line(line), "glue") == pytest.approx(exact, abs=0.005)
        and abs(exact - printed) < 0.071
    )


def test_averages_over_other_tasks_are_refused():
    scores = scores_of_line("86.6 91.3 92.3 93.2 60.6 90.0 88.0 70.4")
    for wrong, convention in ((scores, "glue"), ({**scores, "ax": 30}, "mml-v1")):
        with pytest.raises(ValueError, match=f"{convention} averages .*, not .*"):
            glue_average(wrong, convention)


# ---- held-out rows ----


def test_a_row_is_in_one_half_whatever_stands_beside_it():
    """Copies, other capitals and signs, and the other order of a pair stay together."""
    pairs = [(f"Text {i}.", f"its twin {i}") for i in range(200)]
    rows = [dict(sentence1=a, sentence2=b, label=i % 2) for i, (a, b) in enumerate(pairs)]
    split = make_split("rte", rows, labels=get_task("rte").labels)
    chooses, scored = dev_halves(split)
    assert 80 < len(scored) < 120 and not {*chooses.texts} & {*scored.texts}
    assert sorted(chooses.texts + scored.texts) == sorted(split.texts)
    assert scored.texts == [one for one in split.texts if one in {*scored.texts}]
    label = dict(zip(split.texts, split.labels))
    assert [label[one] for one in scored.texts] == scored.labels.tolist()
    copies = [dict(sentence1=b.upper(), sentence2=f"{a}!") for a, b in scored.texts[::-3]]
    halves = dev_halves(make_split("rte", copies, labels=False))
    assert [len(half) for half in halves] == [0, len(copies)]


# ---- intervals and outcomes ----


def test_runs_are_paired_by_seed():
    first, second = {3: 0.9, 1: 0.7, 2: 0.8}, {1: 0.6, 2: 0.7, 3: 0.8}
    found = paired_bootstrap(first, second)
    assert found == pytest.approx(
        (0.1, 0.1, 0.1, 0.95, 3)
    )  # the difference is 0.1 for every seed, although the runs vary
    assert paired_bootstrap([0.9, 0.7, 0.8], [0.6, 0.7, 0.8]).high > 0.1


def test_the_interval_is_seeded_and_agrees_with_students_t():
    differences = np.random.default_rng(5).normal(1.0, 2.0, 40)
    found = paired_bootstrap(differences + 3, np.full(40, 3.0))
    half = 2.0227 * differences.std(ddof=1) / math.sqrt(40)  # t of 39 degrees of freedom at 97.5 %
    assert (found.low, found.high) == pytest.approx(
        (differences.mean() - half, differences.mean() + half), abs=0.05
    )
    assert (
        found
        == paired_bootstrap(differences + 3, np.full(40, 3.0))
        != paired_bootstrap(differences + 3, np.full(40, 3.0), seed=1)
    )
    wide, narrow = (
        paired_bootstrap(differences, np.zeros(40), level=level) for level in (0.99, 0.5)
    )
    assert wide.low < found.low < narrow.low < narrow.high < found.high < wide.high


def test_the_widened_interval_by_hand():
    """The lower end of the 95 % interval for n = 5 is the 0.00095 quantile of the means.

    Student's t is 2.776. Times the square root of 5/4 it is 3.104, which leaves 0.00095 in each
    tail. A mean of 0 has the probability 1/3125 = 0.0003. A mean of 0.2 (four zeros and a one) has
    five times as much; both together have 0.0019. Plain percentiles, or no square root, would give
    a higher end.
    """
    found = paired_bootstrap([0, 1, 3, 7, 20], [0] * 5)
    assert found == pytest.approx(
        (6.2, 0.2, 17.4, 0.95, 5)
    )  # the upper end: four times 20 and once 7


def test_six_pairs_take_every_sample_whatever_the_seed():
    """One difference of six is 1: a mean of at least 5/6 has the probability 31/46,656 = 0.0007.

    A mean of at least 4/6 has (31 + 375)/46,656 = 0.0087, and 0.0024 lie in each tail of the 95 %
    interval, so it ends at 4/6.
    """
    one, zeros = [0, 0, 0, 0, 0, 1], [0] * 6
    found = paired_bootstrap(one, zeros)
    assert found == pytest.approx((1 / 6, 0, 4 / 6, 0.95, 6))
    assert found == paired_bootstrap(one, zeros, seed=1)


def test_intervals_of_one_and_two_pairs():
    assert paired_bootstrap([2.0], [1.5])[:3] == (0.5, -math.inf, math.inf)
    assert paired_bootstrap([1.0, 4.0], [0.0, 0.0])[:3] == (
        2.5,
        1.0,
        4.0,
    )  # the interval ends at the two values


@pytest.mark.parametrize(
    ("low", "high", "pairs", "of_interest", "found"),
    [
        (0.1, 0.5, 6, 0.0, "better"),
        (0.1, 0.5, 5, 0.0, "undecided"),
        (-0.1, 0.5, 20, 0.0, "undecided"),
        (-0.5, -0.1, 6, 0.0, "worse"),
        (-0.5, -0.1, 3, 0.0, "undecided"),
        (0.1, 0.5, 6, 0.5, "no difference of interest"),
        (-0.5, -0.1, 6, 0.5, "no difference of interest"),
        (-0.1, 0.5, 5, 0.5, "undecided"),
        (0.1, 0.5, 6, 0.4, "better"),
        (-0.5, 0.1, 6, 0.4, "undecided"),
        (0.0, 0.0, 6, 0.0, "no difference of interest"),
        (0.0, 0.5, 6, 0.0, "undecided"),
    ],
)
def test_outcomes(low, high, pairs, of_interest, found):
    both = Comparison((low + high) / 2, low, high, 0.95, pairs)
    said = outcome_sentence(both, "MML against BERT", of_interest=of_interest)
    assert said.startswith(f"MML against BERT: {found} (difference ") and (
        "at least 6 are needed" in said
    ) == (pairs < 6)


def test_an_outcome_sentence():
    assert outcome_sentence(Comparison(1.2, 0.4, 2.0, 0.95, 8), "MML against BERT") == (
        "MML against BERT: better (difference +1.2, 95% interval +0.4 to +2, pairs of runs: 8)."
    )
    three = outcome_sentence(Comparison(1.2, 0.4, 2.0, 0.95, 3))
    assert three.endswith(
        "(difference +1.2, no interval, pairs of runs: 3, at least 6 are needed)."
    )
    assert outcome_sentence(Comparison(0.5, -math.inf, math.inf, 0.9, 1)) == (
        "first against second: undecided (difference +0.5, "
        "no interval, pairs of runs: 1, at least 5 are needed)."
    )


def test_runs_with_other_seeds_are_not_compared():
    with pytest.raises(ValueError, match=r"the keys are \[0\] and \[1\]"):
        paired_bootstrap({0: 1.0}, {1: 1.0})


def test_the_cosine_without_training_tells_equal_sentences():
    """The threshold is that of the known rows, whose labels are those of the cosine."""
    texts = [("A dog runs.", "A dog runs."), ("He pays.", "He pays."), ("It rains.", "Sell gold.")]
    rows = [dict(zip(("sentence1", "sentence2"), pair)) for pair in texts]
    labels = ["equivalent", "equivalent", "not_equivalent"]
    known = make_split("mrpc", [{**row, "label": one} for row, one in zip(rows, labels)])
    assert cosine_answers(known, known).tolist() == [True, True, False]


@pytest.mark.slow
def test_the_recorded_cosine_is_that_of_the_mini_data():
    """Otherwise: python benchmarks/untrained_cosine.py. It is a level of notebook 05."""
    data = load_task("stsb_star", "mini")
    known = load_task("stsb_star", "mini", limit=200, seed=0).train
    similar = np.array(data.task.labels)[data.dev.labels] == "similar"
    right = cosine_answers(known, data.dev) == similar
    assert right.mean() == pytest.approx(recorded_cosine("stsb_star"), abs=1 / len(right))
