"""The exact format of the course's files, and the checks of a submission."""

import math
import re

import numpy as np
import pytest

from mmlcourse.cli.main import main
from mmlcourse.studies import cs224n as course
from mmlcourse.studies import overall_score
from mmlkit.data.loading import load_task
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.saving import save_model

FILES = [
    f"{name}-{split}-output.csv" for name in ("sst", "para", "sts") for split in ("dev", "test")
]


def test_course_files_are_read_again(make_toy, tmp_path):
    data = {task: make_toy(task) for task in ("sst", "quora", "sts")}
    folder = course.write_course_files(data, tmp_path / "course", limit=2)
    for task, one in data.items():
        again = load_task(task, folder)
        assert again.train.texts == one.train.texts and again.dev.texts == one.dev.texts
        np.testing.assert_allclose(again.dev.labels, one.dev.labels)
        assert len(again.test) == 2 and again.dev.ids == [f"{task}{row}" for row in one.dev.ids]


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


@pytest.mark.parametrize(
    ("task", "ids", "scores", "message"),
    [  # the largest of one column would be label 0 in every row
        ("quora", "ab", [[0.9], [0.1]], "scores has 1 column, expected 2"),
        ("sts", "a", [[1.0, 2.0, 3.0]], "scores has 3 columns, expected 1"),
        ("sts", "ab", [[1.0]], "zip"),
        ("sts", "a", [math.nan], "some scores are not finite numbers"),
    ],
)
def test_invalid_predictions_are_refused(tmp_path, task, ids, scores, message):
    with pytest.raises(ValueError, match=message):
        course.write_predictions(tmp_path / "out.csv", task, ids, scores)
    assert not list(tmp_path.iterdir())


def test_names():
    names = ("sst", "quora", "sts")
    found = [course.prediction_file(name, split) for name in names for split in ("dev", "test")]
    assert found == FILES
    assert course.prediction_file("cfimdb", "test", "finetune") == "finetune-cfimdb-test-out.csv"
    assert course.prediction_file("sst", "dev", "pretrain") == "pretrain-sst-dev-out.csv"


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
    with pytest.warns(UserWarning, match="quora-dev.csv: rows without a label: 1"):
        scores = course.write_submission(model, source, tmp_path / "out")
    return model, scores, tmp_path / "out"


def test_a_submission_is_complete(submission, source):
    model, scores, folder = submission
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert course.check_submission(folder, source) == []

    def rows(file):
        header, *lines = (folder / file).read_text().splitlines()
        return header, [tuple(line.split(" , ")) for line in lines]

    header, found = rows("para-dev-output.csv")
    assert header == "id \t Predicted_Is_Paraphrase "
    assert [one for one, _ in found] == ["orade0", "orade1"]
    assert [one for one, _ in rows("sts-test-output.csv")[1]] == ["stste0", "stste1", "stste2"]
    texts = [("good",), ("bad film .",), ("the plot",)]
    answers = predict_scores(model, texts, task="sst").argmax(1)
    assert [value for _, value in rows("sst-test-output.csv")[1]] == [f"{one} " for one in answers]
    assert list(scores) == ["sst accuracy", "quora accuracy", "sts pearson", "overall"]
    assert scores["sst accuracy"] == pytest.approx(np.mean(answers == [3, 1, 2]))
    assert scores["overall"] == overall_score(*list(scores.values())[:3])


def test_the_single_task_part(make_model, source, tmp_path):
    out = tmp_path / "out"
    for option in ("pretrain", "finetune"):
        scores = course.write_submission(make_model("sst"), source, out, option=option)
        assert list(scores) == ["sst accuracy"]
        course.write_submission(make_model("cfimdb"), source, out, option=option)
        assert course.check_submission(out, source, option=option) == []
    assert len(list(out.iterdir())) == 8
    assert {problem.file for problem in course.check_submission(out, source)} == set(FILES)


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
        "sts-test-output.csv: found no such file, expected the test predictions of sts"
    ]


def replace_first(old, new):
    return lambda text: text.replace(old, new, 1)


LINE = "'id , value ', with a space at the end"


def last(value):
    return lambda text: f"{text.rsplit(' , ', 1)[0]} , {value} \n"


@pytest.mark.parametrize(
    ("file", "change", "row", "found", "expected"),
    [
        ("sst-dev", replace_first("id \t", "id,"), 1, "'id, Pred.* '", r"'id \\t Pred.* '"),
        ("sst-test", replace_first("sstte1 , ", "sstte1,"), 3, "'sstte1,. '", LINE),
        ("sst-test", lambda text: text.replace(" \n", "\n"), 2, "'sstte0 , .'", LINE),
        ("sst-test", lambda text: text.replace("\n", "\r\n"), 4, r"'sstte2 , . \\r'", LINE),
        ("sst-dev", lambda text: text[:-1], 4, "'.*' without a line end", "a line end .*"),
        ("sst-dev", lambda text: "", 1, "'' without a line end", "a line end after every line"),
        ("sst-dev", last("5"), 4, "'5'", "one of 0, 1, 2, 3, 4"),
        ("para-dev", last("2"), 3, "'2'", "one of 0, 1, 0.0, 1.0, .*"),
        ("sts-dev", last("nan"), 4, "'nan'", "a finite number"),
        ("sts-dev", last("high"), 4, "'high'", "a finite number"),
        (
            "sts-dev",
            replace_first("sde1", "sde0"),
            3,
            "id 'stsde0' again, .* row 2",
            "every id o.*",
        ),
        ("sts-dev", replace_first("sde1", "sde0"), None, "no row for id 'stsde1'", "all the 3 .*"),
        ("sts-dev", replace_first("stsde1", "other"), 3, "id 'other'", "one of the 3 ids .*"),
        ("para-test", replace_first("orate0", "ORATE0"), 2, "id 'ORATE0'", "one of the 3 ids .*"),
    ],
)
def test_every_fault_is_reported_with_its_position(
    submission, source, file, change, row, found, expected
):
    path = submission[2] / f"{file}-output.csv"
    path.write_bytes(change(path.read_text(encoding="utf-8")).encode())
    problems = course.check_submission(path.parent, source)
    assert {problem.file for problem in problems} == {path.name}
    said = [(one.found, one.expected) for one in problems if one.row == row]
    assert any(re.fullmatch(found, a) and re.fullmatch(expected, b) for a, b in said), problems


def test_many_problems_are_counted(submission, source):
    """30 lines and 3 ids."""
    (submission[2] / "sst-dev-output.csv").write_text("x\n" * 30)
    problems = course.check_submission(submission[2], source)
    assert len(problems) == 11
    assert str(problems[-1]) == "sst-dev-output.csv: found 23 more problems, expected none"


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
    assert main([*arguments, "--option", "finetune", "--out", "single"]) == 1
    assert "finetune-cfimdb-dev-out.csv: found no such file" in capsys.readouterr().err
