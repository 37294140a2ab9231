"""A class of 30 from its roster to its grades, without running its code; see made_up_class.py."""

import csv
import json

import pytest
from common import cells, course
from made_up_class import NAME, by_hand, faults, hand_in, mark, people, totals

from mmlcourse.cli.main import main
from mmlcourse.grading import sandbox
from mmlcourse.grading.questions import Edition

EDITION = Edition(41)


class Loaded:
    """Run nothing, and say that the notebook was loaded."""

    def run(self, *arguments):
        return '{"notes": []}\n', False


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a class that is graded once."""
    out = tmp_path_factory.mktemp("class")
    answers = out / "answers"
    (answers / "known").mkdir(parents=True)
    (answers / "edition.json").write_text(json.dumps(EDITION._asdict()))
    text = (course().HERE / "course.toml").read_text(encoding="utf-8")
    text = text.replace("OWNER/NAME", "university/mmlkit")
    (answers / "course.toml").write_text(text, encoding="utf-8")
    for seed in (0, EDITION.seed):
        whole = course().notebook(cells(NAME, "solution", seed))
        (answers / "known" / f"{NAME}_{seed}.ipynb").write_text(whole, encoding="utf-8")
    student = cells(NAME, "student", EDITION.seed)
    (answers / f"{NAME}_given.ipynb").write_text(course().notebook(student), encoding="utf-8")
    hand_in(out, student, EDITION)
    return out


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch):
    monkeypatch.setattr(sandbox, "find_sandbox", Loaded)


def grade(folder):
    options = ["--assignment", "a1", "--answers", str(folder / "answers")]
    options += ["--roster", str(folder / "roster.csv"), "--out", str(folder / "grading")]
    assert main(["grade", str(folder / "export"), *options]) == 0


def table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_every_planted_case_is_in_the_report_and_no_honest_student(folder):
    grade(folder)
    assert faults(folder / "grading") == []
    grading = folder / "grading"
    assert not (grading / "canvas.csv").exists() and not (grading / "moodle.csv").exists()
    rows = table(grading / "grades.csv")
    assert rows[0] == [
        "login",
        "name",
        "email",
        "id",
        "code",
        "written",
        "project",
        "late",
        "total",
        "note",
    ]
    assert len(rows) == 31
    missing = [row for row in rows if row[8] == "0"]
    assert [row[9] for row in missing] == ["nothing handed in"] * 2
    assert {row[8] for row in rows[1:] if row not in missing} == {""}


def test_totals_are_those_of_a_hand_calculation_and_stay(folder, capsys):
    student = mark(folder / "grading")
    for _ in range(2):
        grade(folder)
        grading = folder / "grading"
        assert (
            f"{student} layer_norm: yours stays, 1.5; the grader's is 0." in capsys.readouterr().out
        )
        wanted = by_hand(grading, late_days=4, percent=10)
        assert {key: float(one) for key, one in totals(grading).items()} == wanted
        assert sum(wanted.values()) == 28 * 23.5 + 1.5 - 20
        canvas, moodle = table(grading / "canvas.csv"), table(grading / "moodle.csv")
        assert canvas[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", NAME]
        assert canvas[1] == ["    Points Possible", "", "", "", "", "100"]
        assert moodle[0] == ["Username", "Full name", "Email address", NAME]
        for person, one, two in zip(people(), canvas[2:], moodle[1:], strict=True):
            login, name, number = person["login"], person["name"], str(person["id"])
            total = f"{wanted[login]:g}"
            assert one == [name, number, "", login, "", total]
            assert two == [login, name, person["email"], total]
