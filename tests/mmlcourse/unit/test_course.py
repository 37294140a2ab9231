"""The course's score for the rows of the report, its exact file format, and the file checks."""

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from mmlcourse.cli.main import main
from mmlcourse.studies import cs224n as course
from mmlcourse.studies.published import tables
from mmlkit.data.loading import load_task, make_split
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.metrics import compute
from mmlkit.training.saving import save_model

REAL = os.environ.get("MMLKIT_REALDATA")
FILES = [
    f"{name}-{split}-output.csv" for name in ("sst", "para", "sts") for split in ("dev", "test")
]


def report():
    """Return the twelve rows of the report, {row: (sst, paraphrase, sts, overall)}, as printed."""
    table = (
        tables("cs224n")
        .query("table == 'Table 1'")
        .pivot(index="row", columns="column", values="printed")
    )
    return {
        row: tuple(values)
        for row, values in zip(
            table.index,
            table[["Sentiment Acc", "Para Acc", "STS Corr", "Avg Dev Acc"]].to_numpy(),
            strict=True,
        )
    }


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


def test_course_files_are_read_again(make_toy, tmp_path):
    data = {task: make_toy(task) for task in ("sst", "quora", "sts")}
    folder = course.write_course_files(data, tmp_path / "course", limit=2)
    for task, one in data.items():
        again = load_task(task, folder)
        assert again.train.texts == one.train.texts and again.dev.texts == one.dev.texts
        np.testing.assert_allclose(again.dev.labels, one.dev.labels)
        assert len(again.test) == 2 and again.dev.ids == [f"{task}{row}" for row in one.dev.ids]


def test_overall_score_of_the_twelve_rows():
    """nan counts as r = 0. The row "Sequential, 1e-5" prints 0.555, but its entries give 0.5543."""
    rows = report()
    assert len(rows) == 12 and sum(math.isnan(row[2]) for row in rows.values()) == 1
    off = {row: course.overall_score(*values[:3]) - values[3] for row, values in rows.items()}
    assert {row for row, difference in off.items() if abs(difference) > 0.0005 + 1e-9} == {
        "Sequential PALs, lr: 1e-5"
    }
    assert off["Sequential PALs, lr: 1e-5"] == pytest.approx(-0.00067, abs=1e-5)
    assert course.overall_score(0.526, 0.761, 0.338) == pytest.approx(
        0.652
    )  # the submission on the test split
    assert (
        course.overall_score(0.262, 0.625, math.nan)
        == course.overall_score(0.262, 0.625, 0.0)
        == pytest.approx(0.462, abs=5e-4)
    )


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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((51.2, 0.7, 0.3), "sst_accuracy is 51.2, expected 0 to 1; divide a percentage by 100"),
        ((0.5, math.nan, 0.3), "paraphrase_accuracy is nan"),
        ((0.5, 0.5, 36.8), "sts_correlation is 36.8, expected -1 to 1; divide a percentage by 100"),
    ],
)
def test_overall_score_refuses_percentages(values, message):
    with pytest.raises(ValueError, match=message):
        course.overall_score(*values)


def test_constant_accuracies_by_hand():
    rows = [
        (i, {"sentence": "a film", "label": label})
        for i, label in enumerate(["neutral", "positive", "positive", "negative"])
    ]
    split = make_split("sst", rows)
    assert course.constant_accuracies(split) == {
        "very negative": 0,
        "negative": 0.25,
        "neutral": 0.25,
        "positive": 0.5,
        "very positive": 0,
    }
    scores = np.tile([0, 0, 0, 1, 0], (4, 1))
    assert (
        compute(split.task, scores, split.labels)["accuracy"]
        == course.constant_accuracies(split)["positive"]
    )
    with pytest.raises(ValueError, match="sst test has no labels to count"):
        course.constant_accuracies(make_split("sst", [(0, {"sentence": "a film"})], name="test"))
    with pytest.raises(ValueError, match="sts dev has no labels to count"):
        course.constant_accuracies(
            make_split("sts", [(0, {"sentence1": "a", "sentence2": "b", "label": 2.0})], name="dev")
        )


@pytest.mark.skipif(
    not REAL, reason="MMLKIT_REALDATA is not set: the course's data is not part of the repository"
)
def test_the_reports_lowest_scores_are_constant_predictions():
    with pytest.warns(UserWarning, match="rows without a label in column 'is_duplicate': 2"):
        sst, quora = (
            course.constant_accuracies(load_task(name, Path(REAL) / "cs224n").dev)
            for name in ("sst", "quora")
        )
    assert (
        sst["positive"] == 279 / 1101
        and sst["negative"] == 289 / 1101
        and quora["not_duplicate"] == 12_627 / 20_212
    )
    constant = {
        "sst": {row for row, values in report().items() if values[0] == round(sst["positive"], 3)},
        "quora": {
            row for row, values in report().items() if values[1] == round(quora["not_duplicate"], 3)
        },
    }
    assert constant["sst"] == {
        "Sequential PALs, lr: 1e-5",
        "Sequential PALs, lr: 1e-6",
        "Sequential PALs, lr: 1e-7",
        "Parallel PALs, lr: 1e-4",
    }
    assert constant["quora"] == {
        "Task Sampling 3k steps, lr: 1e-3",
        "Sequential PALs, lr: 1e-7",
        "Parallel PALs, lr: 1e-4",
    }
    assert report()["Task Sampling 3k steps, lr: 1e-3"][0] == round(sst["negative"], 3)


# The files, byte for byte.


@pytest.mark.parametrize(
    ("task", "scores", "expected"),
    [
        (
            "sst",
            [[0, 0, 0, 2, 1], [9, 0, 0, 0, 0]],
            b"id \t Predicted_Sentiment \nab1 , 3 \ncd2 , 0 \n",
        ),
        ("cfimdb", [[0, 1], [1, 0]], b"id \t Predicted_Sentiment \nab1 , 1 \ncd2 , 0 \n"),
        ("quora", [[0, 1], [1, 0]], b"id \t Predicted_Is_Paraphrase \nab1 , 1.0 \ncd2 , 0.0 \n"),
        ("sts", [[0.25], [-3]], b"id \t Predicted_Similiary \nab1 , 0.25 \ncd2 , -3.0 \n"),
        (
            "sts",
            [0.1, 4.0],
            b"id \t Predicted_Similiary \nab1 , 0.10000000149011612 \ncd2 , 4.0 \n",
        ),
    ],
)
def test_bytes(tmp_path, task, scores, expected):
    """A score is written with the digits of its fp32 value, as in the starter code."""
    course.write_predictions(tmp_path / "out.csv", task, [" AB1", "cd2"], scores)
    assert (tmp_path / "out.csv").read_bytes() == expected


def test_one_column_of_a_classification_is_refused(tmp_path):
    """Its largest value would be label 0 in every row."""
    for scores in ([[0.9], [0.1]], [1, 0]):
        with pytest.raises(ValueError, match="scores has 1 column, expected 2: one for each label"):
            course.write_predictions(tmp_path / "out.csv", "quora", ["a", "b"], scores)
    with pytest.raises(ValueError, match="scores has 3 columns, expected 1"):
        course.write_predictions(tmp_path / "out.csv", "sts", ["a"], [[1.0, 2.0, 3.0]])
    assert not list(tmp_path.iterdir())


def test_a_correlation_of_one_stays_one(make_toy):
    """In fp32, these scores gave 1.00000005, which is no correlation."""
    splits = {task: make_toy(task, dev=6).dev for task in ("sst", "quora", "sts")}
    scores = {
        task: np.eye(max(split.task.num_labels, 1), dtype=np.float32)[split.labels.astype(int) * 0]
        for task, split in splits.items()
    }
    for slope in np.linspace(0.1, 1, 40, dtype=np.float32):
        scores["sts"] = (slope * splits["sts"].labels + 0.3)[:, None].astype(np.float32)
        found = course.score_table({"one": scores}, splits, baseline="one")
        assert found.loc["one", "sts"] <= 1 and found.loc["one", "sts"] == pytest.approx(1)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    course.write_predictions("~/out.csv", "sts", ["a"], [1.0])
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert (tmp_path / "home" / "out.csv").read_text().startswith("id")


def test_names():
    assert [
        course.prediction_file(task, split)
        for task in ("sst", "quora", "sts")
        for split in ("dev", "test")
    ] == FILES
    assert course.prediction_file("cfimdb", "test", "finetune") == "finetune-cfimdb-test-out.csv"
    assert course.prediction_file("sst", "dev", "pretrain") == "pretrain-sst-dev-out.csv"
    for wrong in (
        ("cfimdb", "dev"),
        ("sst", "train"),
        ("quora", "dev", "finetune"),
    ):
        with pytest.raises(ValueError, match="there is no prediction file for task"):
            course.prediction_file(*wrong)


@pytest.mark.parametrize(
    ("task", "ids", "scores", "message"),
    [
        (
            "rte",
            ["a"],
            [[0, 1]],
            r"the course has no task 'rte'; it has \['sst', 'cfimdb', 'quora', 'sts'\]",
        ),
        (
            "sts",
            ["a", "b"],
            [[1.0]],
            "2 ids, 2 of them different, for 1 row of scores; expected one each",
        ),
        ("sts", ["a", "A"], [1.0, 2.0], "2 ids, 1 of them different"),
        ("sts", [" "], [1.0], "expected one each"),
        ("sts", ["a"], [math.nan], "some scores are not finite numbers"),
    ],
)
def test_invalid_predictions_are_refused(tmp_path, task, ids, scores, message):
    with pytest.raises(ValueError, match=message):
        course.write_predictions(tmp_path / "out.csv", task, ids, scores)
    assert not list(tmp_path.iterdir())


# A whole submission.

COLUMNS = {
    "ids-sst": "sentence\tsentiment",
    "ids-cfimdb": "sentence\tsentiment",
    "quora": "sentence1\tsentence2\tis_duplicate",
    "sts": "sentence1\tsentence2\tsimilarity",
}
TEXTS = {
    "ids-sst": ("good\t3", "bad film .\t1", "the plot\t2"),
    "ids-cfimdb": ("good\t1", "bad film .\t0", "the plot\t1"),
    "quora": ("a film\tthe film\t1.0", "a\tgood\t0.0", "one\tplot\t"),
    "sts": ("a film\tthe film\t4.5", "a\tgood\t0.0", "one\tplot\t2.2"),
}


@pytest.fixture
def source(tmp_path):
    """Return the course's folder with three rows per file.

    Quora's last row and the test files have no label.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    for stem, columns in COLUMNS.items():
        for split in ("train", "dev", "test-student"):
            labelled = split != "test-student"
            cells = [
                line if labelled else line.rsplit("\t", 1)[0] for line in (columns, *TEXTS[stem])
            ]
            ids = ["\tid", *(f"{i}\t{stem[-3:]}{split[:2]}{i}" for i in range(len(TEXTS[stem])))]
            rows = [f"{one}\t{text}" for one, text in zip(ids, cells)]
            (folder / f"{stem}-{split}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def submission(make_model, source, tmp_path):
    """Return (a tiny model, its dev scores, the folder of its submission)."""
    model = make_model("sst", "quora", "sts")
    with pytest.warns(
        UserWarning, match="quora-dev.csv: rows without a label in column 'is_duplicate': 1"
    ):
        scores = course.write_submission(model, source, tmp_path / "out")
    return model, scores, tmp_path / "out"


def test_a_submission_is_complete(submission, source):
    model, scores, folder = submission
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert course.check_submission(folder, source) == []
    assert (folder / "para-dev-output.csv").read_text().splitlines()[
        0
    ] == "id \t Predicted_Is_Paraphrase "
    assert [
        line.split(" , ")[0]
        for line in (folder / "para-dev-output.csv").read_text().splitlines()[1:]
    ] == ["orade0", "orade1"]
    assert [
        line.split(" , ")[0]
        for line in (folder / "sts-test-output.csv").read_text().splitlines()[1:]
    ] == ["stste0", "stste1", "stste2"]
    answers = predict_scores(model, [("good",), ("bad film .",), ("the plot",)], task="sst").argmax(
        1
    )
    assert [
        line.split(" , ")[1]
        for line in (folder / "sst-test-output.csv").read_text().splitlines()[1:]
    ] == [f"{answer} " for answer in answers]
    assert list(scores) == ["sst accuracy", "quora accuracy", "sts pearson", "overall"]
    assert scores["sst accuracy"] == pytest.approx(np.mean(answers == [3, 1, 2]))
    assert scores["overall"] == course.overall_score(
        scores["sst accuracy"], scores["quora accuracy"], scores["sts pearson"]
    )


def test_the_single_task_part(make_model, source, tmp_path):
    for option in ("pretrain", "finetune"):
        scores = course.write_submission(make_model("sst"), source, tmp_path / "out", option=option)
        assert list(scores) == ["sst accuracy"]
        course.write_submission(make_model("cfimdb"), source, tmp_path / "out", option=option)
        assert course.check_submission(tmp_path / "out", source, option=option) == []
    assert len(list((tmp_path / "out").iterdir())) == 8
    assert {problem.file for problem in course.check_submission(tmp_path / "out", source)} == set(
        FILES
    )
    with pytest.raises(
        ValueError, match=r"heads for \['rte'\], expected at least one of \('sst', 'quora', 'sts'\)"
    ):
        course.write_submission(make_model("rte"), source, tmp_path / "out")


def test_a_missing_test_file_is_reported(make_model, source, tmp_path):
    (source / "sts-test-student.csv").unlink()
    course.write_submission(make_model("sts"), source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sts-dev-output.csv"]
    messages = [
        str(problem)
        for problem in course.check_submission(tmp_path / "out", source)
        if problem.file.startswith("sts")
    ]
    assert messages == [
        "sts-test-output.csv: found no such file among ['sts-dev-output.csv'], "
        "expected the test predictions of sts"
    ]


def replace_first(old, new):
    return lambda text: text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("file", "change", "row", "found", "expected"),
    [
        (
            "sst-dev-output.csv",
            replace_first("id \t", "id,"),
            1,
            "'id, Predicted_Sentiment '",
            r"'id \\t Predicted_Sentiment '",
        ),
        (
            "sts-dev-output.csv",
            replace_first("Similiary", "Similarity"),
            1,
            r"'id \\t Predicted_Similarity '",
            r"'id \\t Predicted_Similiary '",
        ),
        (
            "sst-test-output.csv",
            replace_first("sstte1 , ", "sstte1,"),
            3,
            "'sstte1,. '",
            "'id , value ', with a space at the end",
        ),
        (
            "sst-test-output.csv",
            lambda text: text.replace(" \n", "\n"),
            2,
            "'sstte0 , .'",
            "'id , value ', with a space at the end",
        ),
        (
            "sst-test-output.csv",
            lambda text: text.replace("\n", "\r\n"),
            4,
            r"'sstte2 , . \\r'",
            "'id , value ', with a space at the end",
        ),
        (
            "sst-dev-output.csv",
            lambda text: text[:-1],
            4,
            "'sstde2 , . ' without a line end",
            "a line end after every line",
        ),
        (
            "sst-dev-output.csv",
            lambda text: "",
            1,
            "'' without a line end",
            "a line end after every line",
        ),
        ("sst-dev-output.csv", lambda text: text[:-3] + "5 \n", 4, "'5'", "one of 0, 1, 2, 3, 4"),
        (
            "sst-dev-output.csv",
            lambda text: text[:-3] + "2.0 \n",
            4,
            "'2.0'",
            "one of 0, 1, 2, 3, 4",
        ),
        ("para-dev-output.csv", lambda text: text[:-5] + "1 \n", 3, "'1'", "one of 0.0, 1.0"),
        (
            "sts-dev-output.csv",
            lambda text: text.rsplit(" , ", 1)[0] + " , nan \n",
            4,
            "'nan'",
            "a finite number",
        ),
        (
            "sts-dev-output.csv",
            lambda text: text.rsplit(" , ", 1)[0] + " , high \n",
            4,
            "'high'",
            "a finite number",
        ),
        (
            "sts-dev-output.csv",
            replace_first("stsde1", "stsde0"),
            3,
            "id 'stsde0' again, already in row 2",
            "every id once",
        ),
        (
            "sts-dev-output.csv",
            lambda text: re.sub("stsde[12]", "stsde0", text),
            4,
            "id 'stsde0' again, already in row 2",
            "every id once",
        ),
        (
            "sts-dev-output.csv",
            replace_first("stsde1", "stsde0"),
            None,
            "no row for id 'stsde1'",
            "all the 3 ids of the dev file",
        ),
        (
            "sts-dev-output.csv",
            replace_first("stsde1", "other"),
            3,
            "id 'other'",
            "one of the 3 ids of the dev file",
        ),
        (
            "para-dev-output.csv",
            lambda text: text + "orade2 , 0.0 \n",
            4,
            "id 'orade2'",
            "one of the 2 ids of the dev file",
        ),
        (
            "para-test-output.csv",
            lambda text: text.replace("orate0", "ORATE0"),
            2,
            "id 'ORATE0'",
            "one of the 3 ids of the test file",
        ),
    ],
)
def test_every_fault_is_reported_with_its_position(
    submission, source, file, change, row, found, expected
):
    folder = submission[2]
    (folder / file).write_bytes(change((folder / file).read_text(encoding="utf-8")).encode())
    problems = course.check_submission(folder, source)
    assert problems and {problem.file for problem in problems} == {file}
    assert [
        problem
        for problem in problems
        if problem.row == row
        and re.fullmatch(found, problem.found)
        and re.fullmatch(expected, problem.expected)
    ], problems


def test_a_file_that_is_not_text(submission, source):
    (submission[2] / "sst-dev-output.csv").write_bytes(b"id \t \xff")
    assert course.check_submission(submission[2], source) == [
        ("sst-dev-output.csv", None, "byte 0xff, not UTF-8", "plain text in UTF-8")
    ]
    with pytest.raises(
        FileNotFoundError,
        match="nowhere is not a folder. Give the one with sst-dev-output.csv in it",
    ):
        course.check_submission("nowhere")


def test_many_problems_are_counted(submission, source):
    (submission[2] / "sst-dev-output.csv").write_text("x\n" * 30)
    problems = course.check_submission(submission[2], source, limit=4)
    assert (
        len(problems) == 5
        and str(problems[-1]) == "sst-dev-output.csv: found 29 more problems, expected none"
    )  # 30 lines and 3 ids


def test_without_the_data_the_known_numbers_of_rows_are_used(tmp_path):
    """A missing row is reported, except in the test file of quora, whose size is unknown."""
    rows = {
        **{
            course.prediction_file(task, split): (task, count)
            for (task, split), count in course.ROWS.items()
            if task != "cfimdb"
        },
        "para-test-output.csv": ("quora", 7),
    }
    columns = {"sst": 5, "quora": 2, "sts": 1}
    for file, (task, count) in rows.items():
        course.write_predictions(
            tmp_path / file, task, range(count), np.zeros((count, columns[task]))
        )
    assert course.check_submission(tmp_path) == []
    for file, (task, count) in rows.items():
        course.write_predictions(
            tmp_path / file, task, range(count - 1), np.zeros((count - 1, columns[task]))
        )
    assert [str(problem) for problem in course.check_submission(tmp_path)] == [
        "sst-dev-output.csv: found 1100 ids, expected 1101",
        "sst-test-output.csv: found 2209 ids, expected 2210",
        "para-dev-output.csv: found 20211 ids, expected 20212",
        "sts-dev-output.csv: found 862 ids, expected 863",
        "sts-test-output.csv: found 1724 ids, expected 1725",
    ]


@pytest.mark.skipif(
    not REAL, reason="MMLKIT_REALDATA is not set: the course's data is not part of the repository"
)
def test_the_numbers_of_rows_equal_the_real_files():
    source = Path(REAL) / "cs224n"
    with pytest.warns(UserWarning, match="rows without a label in column 'is_duplicate': 2"):
        found = {
            (task, split): course._read(task, source, split)
            for task in course.HEADERS
            for split in ("dev", "test")
        }
    assert {key: len(rows) for key, rows in found.items() if rows is not None} == course.ROWS
    assert all(
        rows.labels is None
        for (_, split), rows in found.items()
        if split == "test" and rows is not None
    )


def test_the_command(make_model, source, tmp_path, capsys, monkeypatch):
    save_model(make_model("sst", "quora", "sts"), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    arguments = ["submit", "--model", "model", "--source", str(source)]
    with pytest.warns(UserWarning, match="quora-dev.csv"):
        assert main(arguments) == 0
    output = capsys.readouterr().out
    assert (
        "dev sst accuracy" in output
        and "dev overall" in output
        and "All files are in predictions, with every id once." in output
    )
    assert sorted(path.name for path in (tmp_path / "predictions").iterdir()) == sorted(FILES)
    (source / "quora-test-student.csv").unlink()
    with pytest.warns(UserWarning, match="quora-dev.csv"):
        assert main([*arguments, "--out", "other"]) == 1
    output = capsys.readouterr()
    assert (
        "1 problem in other" in output.out
        and "para-test-output.csv: found no such file" in output.err
    )
    assert main(["submit", "--model", "model", "--source", "nowhere"]) == 2
    assert "nowhere is not a folder" in capsys.readouterr().err
    assert main([*arguments, "--option", "finetune", "--out", "single"]) == 1
    assert "finetune-cfimdb-dev-out.csv: found no such file" in capsys.readouterr().err
