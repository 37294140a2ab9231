"""The leaderboard: ties, dates, baseline, faults, and no formulas or HTML from team names."""

import csv
import os

import numpy as np
import pytest

from mmlcourse.cli.main import main
from mmlcourse.grading.leaderboard import rank, write_board
from mmlcourse.studies.course_score import overall_score, task_score
from mmlcourse.studies.cs224n import prediction_file, read_predictions, write_predictions
from mmlkit.data.loading import load_task, make_split

TASKS = ("sst", "quora", "sts")


def write_team(folder, wrong_rows=0, when=0):
    """Write predictions that are right but for the first rows of sst."""
    for name in TASKS:
        rows = load_task(name, "mini").dev
        scores = rows.labels.astype(float)[:, None]
        if name != "sts":
            labels = rows.labels.copy()
            if name == "sst":
                labels[:wrong_rows] = (labels[:wrong_rows] + 1) % 5
            scores = np.eye(len(rows.task.labels))[labels]
        path = folder / prediction_file(name, "dev")
        write_predictions(path, name, rows.ids, scores)
        os.utime(path, (when, when))


@pytest.fixture
def teams(tmp_path):
    for name, wrong_rows, when in (("=b", 2, 120), ("a", 0, 60), ("c<d>", 2, 0), ("e", 40, 0)):
        (tmp_path / name).mkdir()
        write_team(tmp_path / name, wrong_rows, when)
    (tmp_path / "f").mkdir()
    for name in (".ipynb_checkpoints", "__MACOSX"):  # no teams
        (tmp_path / name).mkdir()
    return tmp_path


def test_ties_share_a_place_and_faults_have_none(teams):
    rows = rank(teams, "mini")
    count = len(load_task("sst", "mini").dev)
    assert [(row.place, row.team) for row in rows] == [
        (1, "a"), (2, "c<d>"), (2, "=b"), (4, "e"), ("", "most frequent label"), ("", "f"),
    ]  # fmt: skip
    assert rows[0][2:6] == (1.0, 1.0, 1.0, 1.0) and rows[0].date == "1970-01-01 00:01"
    assert rows[1].sst == round(1 - 2 / count, 3)
    assert rows[1].overall == round(overall_score(1 - 2 / count, 1, 1), 3)
    assert rows[4].note == "baseline" and rows[4].sts == 0.0 and 0.2 <= rows[4].sst < 0.4
    assert rows[5].note == "sst-dev-output.csv is missing" and rows[5].overall == ""


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("\n2 , ", "\n999999 , ", "row 2: found id '999999'"),
        ("\n2 , ", "\n3 , ", "row 3: found id '3' again"),
        ("id \t Predicted_Sentiment", "id,label", "expected 'id \\t Predicted_Sentiment '"),
        ("\n2 , ", "\n2 , x", "row 2: found 'x"),
    ],
)
def test_a_fault_is_told_and_earns_no_place(teams, old, new, message):
    path = teams / "a" / "sst-dev-output.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    row = next(row for row in rank(teams, "mini") if row.team == "a")
    assert row.place == "" and row.overall == "" and row.sst == ""
    assert message in row.note


def test_ids_and_labels_are_read_as_the_starter_code_does(tmp_path):
    """It reads ids in small letters. Where all labels are equal, a correlation counts as 0."""
    path = tmp_path / prediction_file("sts", "dev")
    rows = [{"id": one, "sentence1": "a", "sentence2": "b", "label": 1.0} for one in ("R12", "x")]
    split = make_split("sts", rows)
    path.write_text("id \t Predicted_Similiary\nx , 2.0\nr12 , 1.0\n")
    found, problems = read_predictions(path, "sts", split)
    assert found == {"x": 2.0, "r12": 1.0} and not problems
    assert task_score(split.task, [1.0, 2.0], split.labels) == 0.0


def test_a_score_that_is_no_number_is_a_fault(teams):
    """It has no correlation, and would rank as a constant."""
    path = teams / "a" / "sts-dev-output.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], f"{lines[-1].partition(' , ')[0]} , nan "]) + "\n")
    row = next(row for row in rank(teams, "mini") if row.team == "a")
    assert row.place == "" and row.sts == "" and "nan" in row.note


def test_the_board_is_written_and_printed_without_formulas_or_html(teams, tmp_path, capsys):
    page = write_board(rank(teams, "mini"), tmp_path / "board")
    rows = list(csv.reader((tmp_path / "board.csv").read_text().splitlines()))
    assert rows[3][1] == "'=b" and rows[0][:2] == ["place", "team"] and len(rows) == 7
    assert "c&lt;d&gt;" in page.read_text() and "c<d>" not in page.read_text()
    assert "<title>Leaderboard</title>" in page.read_text()
    assert page.read_text().count("<tr>") == 7 and page.read_text().count("<th>") == len(rows[0])
    assert main(["leaderboard", str(teams), "--source", "mini"]) == 0
    assert "1\ta\t1.0\t1.0\t1.0\t1.0" in capsys.readouterr().out
    (tmp_path / "none").mkdir()
    assert main(["leaderboard", str(tmp_path / "none"), "--source", "mini"]) == 2
    assert "Give a folder with one per team" in capsys.readouterr().err
