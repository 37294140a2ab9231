"""Tests of the published tables: complete, consistent and equal to the recomputed values."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mmlcourse.studies.published import cross_dataset, misprints, tables

SCRIPT = Path(__file__).resolve().parents[2] / "helpers" / "derive_published.py"
spec = importlib.util.spec_from_file_location("derive_published", SCRIPT)
derivation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(derivation)

# The number of values in each table and their sum; an error in one digit changes the sum.
PRINTED = {
    ("mml_v2", "Table 1"): (130, 962850.6),
    ("mml_v2", "Table 2"): (72, 4655.57),
    ("mml_v2", "Table 3"): (42, 3007.74),
    ("mml_v2", "Table 4"): (272, 13990.21),
    ("mml_v2", "Table 5"): (168, 9037.48),
    ("mml_v2", "text"): (13, 85463.27),
    ("mml_v1", "Table 1"): (72, 957977.88),
    ("mml_v1", "Table 2"): (54, 3487.46),
    ("mml_v1", "Table 3"): (42, 3006.58),
    ("mml_v1", "text"): (3, 12.7),
    ("mt_dnn", "Table 1"): (44, 2045430),
    ("mt_dnn", "Table 2"): (84, 959970.7),
    ("mt_dnn", "Table 3"): (32, 2719.1),
    ("mt_dnn", "Table 4"): (11, 1008.8),
    ("mt_dnn", "Table 5"): (24, 637888.7),
    ("mt_dnn", "text"): (1, 23),
    ("mt_bert", "corpora"): (44, 2045430),
    ("mt_bert", "GLUE dev"): (67, 5683.6),
    ("mt_bert", "GLUE test"): (170, 966703.8),
    ("mt_bert", "adaptation"): (32, 638591),
    ("mt_bert", "benchmark"): (22, 2037.5),
    ("cs224n", "Table 1"): (48, 22.77),
    ("cs224n", "text"): (6, 3.435),
    ("cs224n", "corpora"): (6, 440243),
}

# Improvements that do not follow from the entries of their table. Each line has the place (table,
# row, column), then the printed and the correct values, each for train and dev. The correct values
# were computed once with another program. None: this split has no difference.
WRONG_IMPROVEMENTS = {
    ("Table 2", "MML-RTE", "improvement"): ((9.98, 9.51), (9.99, 9.53)),
    ("Table 4", "MML-RTE", "improvement"): ((9.98, 9.51), (9.99, 9.53)),
    ("Table 4", "MV-1024-RTE", "improvement"): ((9.98, 9.51), (9.99, 9.53)),
    ("Table 4", "MV-5-RTE", "improvement"): ((9.75, 9.36), (9.75, 9.38)),
    ("Table 4", "BERT-D-RTE", "improvement"): ((10.4, 9.71), (10.45, 9.73)),
    ("Table 4", "BERT-Ensemble-RTE", "improvement"): ((-1.20, 0.34), (0.40, -0.14)),
    ("Table 4", "BERT-Ensemble-MNLI", "improvement"): ((1.54, 0.54), (0.37, -0.33)),
    ("Table 4", "MV-1024-QNLI", "improvement"): ((-2.64, 0.31), (-1.53, 0.32)),
    ("Table 4", "MV-5-QNLI", "improvement"): ((1.00, 2.73), (1.00, 2.76)),
    ("Table 4", "BERT-D-QNLI", "improvement"): ((-1.93, -2.89), (-1.82, -2.78)),
    ("Table 4", "BERT-Ensemble-QNLI", "improvement"): ((-1.75, -1.02), (0.78, 1.42)),
    ("Table 2", "MML-SNLI", "improvement"): ((0.07, -0.36), (0.07, -0.35)),
    ("Table 4", "MML-SNLI", "improvement"): ((0.07, -0.26), (0.07, -0.35)),
    ("Table 4", "BERT-D-SNLI", "improvement"): ((-1.35, -1.24), (-0.01, -0.26)),
    ("Table 4", "BERT-Ensemble-SNLI", "improvement"): ((-1.23, -1.10), (0.73, 0.67)),
    ("Table 4", "MV-5 impr.", "SNLI"): ((5.40, -0.94), (None, 4.61)),
    ("Table 4", "BERT-Ensemble impr.", "RTE"): ((-1.62, -1.40), (1.10, 1.08)),
    ("Table 4", "BERT-Ensemble impr.", "MNLI"): ((1.64, 0.51), (-0.56, -0.36)),
    ("Table 4", "BERT-Ensemble impr.", "QNLI"): ((-0.52, -0.54), (0.07, 0.36)),
    ("Table 4", "BERT-Ensemble impr.", "SNLI"): ((-1.66, -0.55), (1.67, 0.55)),
    ("Table 5", "MV-1024-QQP", "improvement"): ((-2.16, -3.22), (-1.06, -1.11)),
    ("Table 5", "MV-5-QQP", "improvement"): ((1.58, 0.63), (1.34, 0.36)),
    ("Table 5", "BERT-Drop-QQP", "improvement"): ((-1.76, -2.80), (-1.76, -2.79)),
    ("Table 5", "MV-1024-MRPC", "improvement"): ((3.18, 2.76), (3.18, 2.85)),
    ("Table 5", "MV-1024-STS-B*", "improvement"): ((-2.64, 0.31), (0.57, 1.91)),
    ("Table 5", "BERT-Ensemble-QQP", "improvement"): ((-1.51, -1.18), (1.02, 0.91)),
    ("Table 5", "BERT-Ensemble-MRPC", "improvement"): ((1.58, 1.27), (-1.40, -0.57)),
    ("Table 5", "BERT-Ensemble-STS-B*", "improvement"): ((-1.27, -1.08), (1.18, 1.39)),
    ("Table 5", "MV-1024 impr.", "MRPC"): ((0.97, 0.07), (-0.98, None)),
    ("Table 5", "BERT-Ensemble impr.", "QQP"): ((-0.31, -1.02), (0.29, 0.52)),
    ("Table 5", "BERT-Ensemble impr.", "MRPC"): ((-1.42, -1.28), (0.69, 1.36)),
    ("Table 5", "BERT-Ensemble impr.", "STS-B*"): ((0.21, 0.19), (-0.18, -0.16)),
}


@pytest.fixture(scope="module")
def frame():
    return tables()


def row_at(frame, source, table, row, column, split="dev", metric=None):
    """Return the only row of the frame at this place."""
    found = frame[
        (frame.source == source)
        & (frame.table == table)
        & (frame.row == row)
        & (frame.column == column)
        & (frame.split == split)
    ]
    found = found if metric is None else found[found.metric == metric]
    assert len(found) == 1, f"{len(found)} lines at {source}, {table}, {row}, {column}, {split}"
    return found.iloc[0]


def test_the_frame_is_complete(frame):
    assert list(frame.columns) == [
        "source",
        "table",
        "row",
        "column",
        "split",
        "metric",
        "printed",
        "recomputed",
        "note",
    ]
    parts = {
        key: (len(part), round(part.sum(), 3))
        for key, part in frame.groupby(["source", "table"], sort=False).printed
    }
    assert parts == PRINTED and len(frame) == 1459
    assert not frame.duplicated(["source", "table", "row", "column", "split", "metric"]).any()
    assert frame.printed.isna().sum() == 1  # the report prints this correlation as nan
    assert set(frame.split) == {"", "train", "dev", "test"}
    assert set(frame.metric) == {
        "accuracy",
        "matthews",
        "f1",
        "pearson",
        "spearman",
        "average",
        "score",
        "overall",
        "improvement",
        "examples",
        "labels",
        "heads",
        "percent",
        "steps",
        "count",
        "phrases",
        "ratio",
    }
    whole = {"labels", "heads", "percent", "steps", "count", "phrases", "ratio"}
    assert set(frame[frame.split == ""].metric) == whole | {
        "examples",
        "improvement",
    }  # for corpora, and for train and dev together
    assert frame[["source", "table", "row", "column", "metric"]].ne("").all(axis=None)


def test_one_source(frame):
    one = tables("mt_bert")
    assert set(one.source) == {"mt_bert"} and len(one) == 335
    with pytest.raises(ValueError, match="'mml_v3' is not a source. Known: mml_v2, mml_v1, mt_dnn"):
        tables("mml_v3")


@pytest.mark.parametrize(
    ("place", "printed"),
    [
        (("mml_v2", "Table 1", "MML", "MNLI-mm", "test"), 86.0),
        (("mml_v2", "Table 1", "training size", "MNLI", "train"), 392_000),
        (("mml_v2", "Table 1", "MML heads", "SST-2", ""), 979),
        (("mml_v2", "Table 4", "MV-1024-QNLI", "MNLI", "dev"), 58.6),
        (("mml_v2", "Table 4", "MV-5 impr.", "QNLI", "dev"), 3.08),
        (("mml_v2", "Table 5", "BERT-Drop impr.", "QQP", "dev"), 3.5),
        (("mml_v1", "Table 2", "MML-MNLI", "MNLI", "dev"), 86.62),
        (("mml_v1", "Table 2", "MML-RTE", "improvement", "train"), 9.9),
        (("mt_dnn", "Table 1", "QQP", "examples", "test"), 391_000),
        (("mt_dnn", "Table 1", "STS-B", "labels", ""), 1),
        (("mt_dnn", "Table 2", "MT-DNN", "MRPC", "test", "f1"), 90.0),
        (("mt_dnn", "Table 3", "MT-DNN", "MRPC", "dev", "f1"), 89.2),
        (("mt_dnn", "Table 4", "GPT", "SciTail", "test"), 88.3),
        (("mt_dnn", "Table 5", "BERT", "SNLI 0.1%", "dev"), 52.5),
        (("mt_bert", "GLUE dev", "MT-DNN ours", "QQP", "dev", "accuracy"), 90.2),
        (("mt_bert", "GLUE test", "Human", "STS-B", "test", "spearman"), 92.6),
        (("mt_bert", "adaptation", "MT-DNN ours", "SciTail 0.1%", "dev"), 83.6),
        (("mt_bert", "benchmark", "MT-DNN-large", "SNLI", "test"), 91.6),
        (("cs224n", "Table 1", "Parallel PALs, lr: 1e-5", "STS Corr", "dev"), 0.402),
        (("cs224n", "text", "submitted", "Avg Dev Acc", "test"), 0.652),
    ],
)
def test_some_cells_as_printed(frame, place, printed):
    assert row_at(frame, *place).printed == printed


# ---- the documents against each other ----


def rows_by_place(frame, source, *names):
    part = frame[(frame.source == source) & frame.table.isin(names)]
    return {
        tuple(line[1:5]): line
        for line in part[
            ["table", "row", "column", "split", "metric", "printed", "note"]
        ].itertuples()
    }


def test_tables_2_and_3_are_parts_of_4_and_5(frame):
    for small, large in (("Table 2", "Table 4"), ("Table 3", "Table 5")):
        parts = rows_by_place(frame, "mml_v2", small)
        whole = rows_by_place(frame, "mml_v2", large)
        other = [
            key[1:] for key, line in parts.items() if whole[large, *key[1:]].printed != line.printed
        ]
        assert other == ([("MML-SNLI", "improvement", "dev")] if small == "Table 2" else [])


def test_every_cell_changed_in_the_second_version_has_a_note(frame):
    names = "Table 1", "Table 2", "Table 3"
    first, second = rows_by_place(frame, "mml_v1", *names), rows_by_place(frame, "mml_v2", *names)
    assert set(first) <= set(second)
    changed = {
        key
        for key in first
        if first[key].printed != second[key].printed
        and key[2] != "Average"
        or key[1:3] == ("MV-1024", "Average")
    }
    told = {
        key: line.note.split("the first version prints ")[1]
        for key, line in second.items()
        if "the first version" in line.note
    }
    assert set(told) == changed and len(told) == 11
    assert all(
        float(text.split(",")[0].split(";")[0]) == first[key].printed for key, text in told.items()
    )


@pytest.mark.parametrize(
    ("source", "crossed", "count", "differ"),
    [("mml_v2", ("Table 4", "Table 5"), 30, 7), ("mml_v1", ("Table 2", "Table 3"), 10, 5)],
)
def test_a_diagonal_that_differs_from_table_1_has_a_note(frame, source, crossed, count, differ):
    """Table 1 prints dev accuracies with one decimal, the diagonals with two.

    STS-B is a different task there, and SNLI is absent.
    """
    diagonal = {
        (line.row.replace("BERT-D-", "BERT-Drop-"), key[2]): line
        for key, line in rows_by_place(frame, source, *crossed).items()
        if key[1].endswith(f"-{key[2]}") and key[3] == "dev"
    }
    pairs = [
        (line, diagonal[place])
        for (_, row, column, split), line in rows_by_place(frame, source, "Table 1").items()
        if split == "dev"
        and (place := (f"{row}-{column.removesuffix('-m')}", column.removesuffix("-m"))) in diagonal
    ]
    away = [
        (one, two)
        for one, two in pairs
        if not one.printed - 0.0501 <= two.printed <= one.printed + 0.1001
    ]
    assert (len(pairs), len(away)) == (count, differ)
    assert all(f"has {two.printed} for {two.row}" in one.note for one, two in away)
    assert [one.Index for one, _ in pairs if " has " in one.note.split("; the")[0]] == [
        one.Index for one, _ in away
    ]


def test_the_slides_repeat_the_paper(frame):
    paper, slides = (frame[frame.source == source] for source in ("mt_dnn", "mt_bert"))
    one, two = paper[paper.table == "Table 1"], slides[slides.table == "corpora"]
    assert one.iloc[:, 2:7].values.tolist() == two.iloc[:, 2:7].values.tolist()
    one, two = (
        paper[paper.table == "Table 5"],
        slides[(slides.table == "adaptation") & (slides.row != "MT-DNN ours")],
    )
    assert one.iloc[:, 2:7].values.tolist() == two.iloc[:, 2:7].values.tolist()


@pytest.mark.parametrize("source", derivation.SOURCES)
def test_every_note_applies_to_a_cell(source):
    cells, notes = derivation.read(source)
    assert notes and all(any(applies(cell) for cell in cells) for applies, _ in notes)


# ---- recomputed ----


def test_the_committed_columns_equal_the_derivation(frame):
    """Numbers agree to 1e-12, because the last digit of a mean depends on the processor.

    Texts are equal.
    """
    derived = derivation.derive()
    pd.testing.assert_frame_equal(frame, derived.drop(columns="arithmetic"), rtol=1e-12, atol=0)
    wrong = derived[derived["arithmetic"] != ""].drop(columns="note").reset_index(drop=True)
    pd.testing.assert_frame_equal(misprints(), wrong, rtol=1e-12, atol=0)
    assert tuple(frame["source"].unique()) == derivation.SOURCES


def improvements(frame):
    return frame[
        (frame.source == "mml_v2")
        & frame.table.isin(["Table 4", "Table 5"])
        & (frame.metric == "improvement")
    ]


def test_the_number_of_improvements_that_agree(frame):
    ours = improvements(frame)
    away = (ours.printed - ours.recomputed).abs()
    cut = np.trunc(ours.recomputed * 100) / 100
    assert (
        len(ours),
        (away <= 0.01).sum(),
        (away <= 0.02).sum(),
        np.isclose(ours.printed, cut).sum(),
    ) == (140, 91, 95, 86)
    ensemble = ours[ours.row.str.startswith("BERT-Ensemble")]
    assert len(ensemble) == 28 and (ensemble.printed - ensemble.recomputed).abs().min() > 0.1


def test_improvements_cell_by_cell(frame):
    for (table, row, column), (printed, right) in WRONG_IMPROVEMENTS.items():
        for split, one, two in zip(("train", "dev"), printed, right):
            line = row_at(frame, "mml_v2", table, row, column, split)
            assert line.printed == one and (
                two is None or f"{line.recomputed:.2f}" == f"{two:.2f}"
            ), (table, row, split)


def test_other_improvements_are_truncated_or_rounded_correctly(frame):
    part = frame[
        (frame.source == "mml_v2") & (frame.metric == "improvement") & (frame.table != "text")
    ]
    for line in part.itertuples():
        if (line.table, line.row, line.column) not in WRONG_IMPROVEMENTS:
            cut, rounded = math.trunc(line.recomputed * 100) / 100, round(line.recomputed, 2)
            assert (
                min(abs(line.printed - cut), abs(line.printed - rounded)) < 1e-9
                and "entries" not in line.note
            ), line


@pytest.mark.parametrize(
    ("row", "train", "dev"),
    [
        ("MML-RTE", 9.99, 9.53),
        ("MML-MNLI", 0.22, 0.36),
        ("MML-QNLI", 4.48, 7.64),
        ("MML-QQP", 1.09, 0.25),
        ("MML-MRPC", 4.54, 3.82),
        ("MML-STS-B*", 0.63, 2.50),
    ],
)
def test_the_first_version_has_the_same_entries(frame, row, train, dev):
    table = "Table 2" if row[4:] in ("RTE", "MNLI", "QNLI") else "Table 3"
    for split, right in (("train", train), ("dev", dev)):
        assert row_at(
            frame, "mml_v1", table, row, "improvement", split
        ).recomputed == pytest.approx(right, abs=0.0051)


def test_averages_by_both_conventions(frame):
    second = frame[(frame.source == "mml_v2") & (frame.metric == "average")]
    assert len(second) == 12 and (second.printed - second.recomputed).abs().max() <= 0.05
    for row, one, two in (
        ("BERT", 83.21, 83.56),
        ("MML", 83.84, 84.13),
    ):  # the average with MNLI counted once and twice
        late, early = (
            row_at(frame, source, "Table 1", row, "Average", "test")
            for source in ("mml_v2", "mml_v1")
        )
        assert (round(late.recomputed, 2), late.note) == (
            one,
            f"with MNLI counted twice: {two:.2f}",
        )
        assert (round(early.recomputed, 2), early.note) == (
            two,
            f"with MNLI counted once: {one:.2f}",
        )
        assert early.printed == math.trunc(early.recomputed * 100) / 100
    assert row_at(frame, "mml_v1", "Table 1", "MML", "Average", "dev").recomputed == pytest.approx(
        690.4 / 8
    )
    assert row_at(frame, "mml_v2", "Table 1", "MML", "Average", "dev").recomputed == pytest.approx(
        690.6 / 8
    )


def test_glue_scores(frame):
    scores = frame[frame.metric == "score"]
    known = scores[scores.recomputed.notna()]
    assert len(scores) == 16 and len(known) == 13
    assert (known.printed - known.recomputed).abs().max() < 0.07
    assert (
        round(row_at(frame, "mt_dnn", "Table 2", "BERT-large", "Score", "test").recomputed, 2)
        == 80.34
    )
    assert (
        round(row_at(frame, "mt_bert", "GLUE test", "MT-DNN ours", "Score", "test").recomputed, 2)
        == 78.77
    )
    assert set(scores[scores.recomputed.isna()].row) == {
        "BiLSTM+ELMo+Attn",
        "Singletask Pretrain Transformer",
        "GPT on STILTs",
    }  # the QNLI score is missing


def test_overall_scores_of_the_report(frame):
    overall = frame[
        (frame.source == "cs224n") & (frame.table == "Table 1") & (frame.metric == "overall")
    ]
    assert len(overall) == 12 and (overall.printed - overall.recomputed).abs().max() < 0.001
    assert overall[overall.note != ""].row.tolist() == [
        "Sequential PALs, lr: 1e-5"
    ]  # 0.6335 is printed as 0.633: truncated, or rounded to even
    assert row_at(
        frame, "cs224n", "Table 1", "Sequential PALs, lr: 1e-5", "Avg Dev Acc"
    ).recomputed == pytest.approx(0.554333, abs=1e-6)
    nan = row_at(frame, "cs224n", "Table 1", "Task Sampling 3k steps, lr: 1e-3", "Avg Dev Acc")
    assert nan.recomputed == pytest.approx((0.262 + 0.625 + 0.5) / 3) and nan.printed == 0.462
    assert row_at(
        frame, "cs224n", "text", "submitted", "Avg Dev Acc", "test"
    ).recomputed == pytest.approx(0.652, abs=1e-9)


@pytest.mark.parametrize(
    ("method", "printed", "right"),
    [("MML", 3.0, 3.00), ("BERT-Drop", 1.64, 1.67), ("MV-5", 2.27, 2.24), ("MV-1024", 0.46, 1.24)],
)
def test_means_over_the_seven_sets(frame, method, printed, right):
    line = row_at(frame, "mml_v2", "text", f"mean over the seven sets, {method}", "value", "train")
    assert (line.printed, round(line.recomputed, 2)) == (printed, right)
    column = improvements(frame)
    column = column[
        (column.column == "improvement")
        & (column.split == "train")
        & column.row.str.replace("BERT-D-", "BERT-Drop-").str.startswith(f"{method}-")
    ]
    assert len(column) == 7 and column.recomputed.mean() == pytest.approx(line.recomputed)
    if method != "MML":
        assert line.note.endswith(f"the mean of the printed column is {column.printed.mean():.2f}")


def test_counts_of_examples_and_heads(frame):
    shares = frame[
        (frame.metric == "examples") & frame.column.str.endswith((" 0.1%", " 1%", " 10%"))
    ]
    assert (
        len(shares) == 12
        and (shares.recomputed // 1).tolist() == shares.printed.tolist()
        and shares.note.eq("").all()
    )
    assert (
        row_at(frame, "mml_v2", "text", "mean of the active heads", "value", "").recomputed == 381
    )
    assert (
        row_at(frame, "mt_dnn", "text", "SNLI, 0.1 %", "value", "train").note
        == "the entries give 549.4: cannot be right; this is the count of SciTail"
    )


# ---- misprints ----

EXPLAINED_BY_ROUNDING = {
    ("Table 2", "MML-RTE"),
    ("Table 4", "MML-RTE"),
    ("Table 4", "MV-1024-RTE"),
    ("Table 4", "MV-5-RTE"),
    ("Table 4", "BERT-D-RTE"),
    ("Table 4", "MV-5-QNLI"),
    ("Table 2", "MML-SNLI"),
    ("Table 5", "BERT-Drop-QQP"),
}  # the rounding of the entries explains these differences
CORRECT_SPLITS = {
    ("Table 4", "MV-1024-QNLI", "dev"),
    ("Table 4", "MML-SNLI", "train"),
    ("Table 4", "MV-5 impr.", "train"),
    ("Table 5", "MV-1024-MRPC", "train"),
    ("Table 5", "MV-1024 impr.", "dev"),
}


def test_the_list_of_misprints(frame):
    found = misprints()
    assert list(found.columns) == [*frame.columns[:8], "arithmetic"] and len(found) == 53
    places = {
        tuple(line)
        for line in found[["table", "row", "column", "split"]][
            (found.source == "mml_v2") & (found.table != "text")
        ].values
    }
    assert (
        places
        == {
            (*place, split)
            for place in WRONG_IMPROVEMENTS
            if place[:2] not in EXPLAINED_BY_ROUNDING
            for split in ("train", "dev")
            if (*place[:2], split) not in CORRECT_SPLITS
        }
        and len(places) == 43
    )
    rest = found[(found.source != "mml_v2") | (found.table == "text")]
    assert sorted(rest.groupby(["source", "table"]).size().items()) == [
        (("cs224n", "text"), 1),
        (("mml_v1", "Table 3"), 2),
        (("mml_v1", "text"), 2),
        (("mml_v2", "text"), 4),
        (("mt_dnn", "text"), 1),
    ]
    assert len(found.merge(frame, on=list(frame.columns[:7]))) == 53


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            ("Table 5", "MV-1024-STS-B*", "improvement", "train"),
            "mean of 73.96/73.13, 75.59/75.59, minus 1 = +0.57%, printed -2.64%",
        ),
        (
            ("Table 5", "MV-1024 impr.", "MRPC", "train"),
            "mean of 65.59/66.90, 75.59/75.59, minus 1 = -0.98%, printed +0.97%",
        ),
        (
            ("Table 4", "MV-5 impr.", "SNLI", "dev"),
            "mean of 77.15/69.87, 83.95/83.65, 61.86/60.03, minus 1 = +4.61%, printed -0.94%",
        ),
        (
            ("text", "best, abstract", "Avg Dev Acc", "dev"),
            "Parallel PALs, lr: 1e-5 in Table 1 = 0.6640, printed 0.644",
        ),
        (
            ("text", "MML-MRPC, mean of train and dev", "value", ""),
            "mean of +4.54, +3.82 = +4.18%, printed ~+3.5%",
        ),
        (("text", "SNLI, 0.1 %", "value", "train"), "0.1% of 549,367 = 549.4, printed 23"),
    ],
)
def test_the_arithmetic_in_words(place, words):
    found = misprints()
    assert (
        found[(found[["table", "row", "column", "split"]] == place).all(axis=1)].arithmetic.iloc[0]
        == words
    )


@pytest.mark.parametrize(
    ("text", "value", "least", "most"),
    [
        ("70.39", 70.39, 70.385, 70.40),
        ("58.6", 58.6, 58.55, 58.7),
        ("-0.26%", -0.26, -0.27, -0.255),
        ("+9.9%", 9.9, 9.85, 10.0),
        ("8.5k", 8500, 8450, 8600),
        ("549,367", 549367, 549366.5, 549368),
        ("~+3.5%", 3.5, 3.25, 4.0),
    ],
)
def test_the_interval_of_a_printed_number(text, value, least, most):
    assert derivation.interval(text).tolist() == pytest.approx([value, least, most])


def test_the_cross_dataset_tables_have_the_names_of_mmlkit():
    """Seven training sets, 5 methods x 28 improvements; the cells of one row, as printed."""
    found = cross_dataset()
    assert found.groupby("metric").size().to_dict() == {"accuracy": 300, "improvement": 140}
    assert set(found["method"]) == {"bert", "mml", "mv-m", "mv-5", "bert-drop", "bert-ensemble"}
    row = found.query("method == 'mml' and trained_on == 'qnli' and split == 'dev'")
    printed = row.set_index(row["evaluated_on"].fillna("improvement"))["printed"].to_dict()
    expected = {"rte": 53.79, "mnli": 63.85, "qnli": 92.86, "snli": 63.58, "improvement": 7.63}
    assert printed == expected
    feet = found[found["trained_on"].isna()]
    assert len(feet) == 70 and set(feet["metric"]) == {"improvement"}
    assert found.groupby("method")["wrong"].sum()[["mml", "bert-ensemble"]].tolist() == [1, 28]
