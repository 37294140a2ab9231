"""Which file belongs to which student, and what late days cost."""

import pandas as pd
import pytest

from mmlcourse.grading.course import Course
from mmlcourse.grading.grades import write_grades
from mmlcourse.grading.roster import find_submissions, read_roster

ROSTER = """login,name,email,id
ann,Ann Lee,ann.lee@x.example,101
annika,Annika Jö,annika@x.example,102
bob,Bob Ray,b.ray@x.example,103
bob2,Bob Ray,b2@x.example,104
007,"van Dyk, Carl",carl@x.example,105
"""
FILES = {
    "ann_a1.ipynb": "ann",
    "Annika-a1 (2).ipynb": "annika",
    "leeann_101_9001_a1.ipynb": "ann",
    "leeann_LATE_101_9004_a1-1.ipynb": "ann",
    "raybob_103_9002_x.ipynb": "bob",
    "vandykcarl_999_9003_x.ipynb": "007",
    "Annika Jö_5512_assignsubmission_file/a1.ipynb": "annika",
    "b2@x.example.ipynb": "bob2",
    "joanna_a1.ipynb": "fits nobody",
    "raybob_999_99_x.ipynb": "fits several people, bob, bob2",
    "Bob Ray_77_assignsubmission_file/a.ipynb": "fits several people, bob, bob2",
    "leeann_103_5_z.ipynb": "fits several people, ann, bob",  # number and name disagree
    "ann and bob2.ipynb": "fits several people, ann, bob2",
}


@pytest.fixture
def roster(tmp_path):
    (tmp_path / "roster.csv").write_text(ROSTER, encoding="utf-8")
    return read_roster(tmp_path / "roster.csv")


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_its_student_or_a_reason(name, roster, tmp_path):
    for one in ("bob_a1.ipynb", name):
        path = tmp_path / "export" / one
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found, told = find_submissions(tmp_path / "export", roster)
    student = next((one.student for one in found if one.path == path), None)
    reasons = [sentence for _, kind, sentence in told if kind == "unknown file"]
    if student is None:
        assert reasons == [f"{name} was not graded: its name {FILES[name]}"]
    else:
        assert (student, reasons) == (FILES[name], [])
    assert ("late" in [kind for _, kind, _ in told]) == ("LATE" in name)


def test_the_last_upload_is_graded(roster, tmp_path):
    for name in ("leeann_LATE_101_9004_a1-1.ipynb", "leeann_101_9001_a1.ipynb", "ann.ipynb"):
        (tmp_path / name).write_text("{}")
    (found,), told = find_submissions(tmp_path, roster)
    assert found.path.name == found.back == "leeann_LATE_101_9004_a1-1.ipynb"
    assert [student for student, kind, _ in told if kind == "several files"] == ["ann"]


def test_a_roster_names_each_student_once(tmp_path):
    path = tmp_path / "roster.csv"
    for text, message in ((ROSTER + "ann,A,a,1\n", "twice: ..ann"), ("login,name\n", "expected")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            read_roster(path)


def test_free_days_are_used_up_in_the_order_of_the_term(roster, tmp_path):
    """Two free days, then 10 % of 20 points: by hand, ann pays 1 day, bob 2, annika none."""
    roster = roster.assign(late_a1=["1", "2", "", "", ""], late_a2=["1.5", "", "3.2", "2", ""])
    dates = dict.fromkeys(["a1_minbert", "a2_multiverse"])
    course = Course("", "", "", "", "", "", 2, 10, 0, dates, {})
    index = [(one, name) for one in roster.login[:4] for name in ("merge", "written")]
    index = pd.MultiIndex.from_tuples(index, names=["student", "question"])
    points = pd.DataFrame({"points": "1.5", "of": "10"}, index=index)
    told = write_grades(points, roster, "a2", course, tmp_path)
    grades = pd.read_csv(tmp_path / "grades.csv", dtype={"login": str}).set_index("login")
    assert grades.late.tolist() == [-2, 0, -3, 0, 0]  # never below 0 points: bob has 3
    assert grades.total.tolist() == [1, 3, 0, 3, 0]
    assert ("ann", "late", "2 days, 1 not free: -2 points") in told
    assert ("007", "missing", "nothing handed in") in told
    points.loc[("ann", "written"), "points"] = ""
    write_grades(points, roster, "a2", course, tmp_path)
    grades = pd.read_csv(tmp_path / "grades.csv")
    assert grades.total.isna().tolist() == grades.written.isna().tolist() == [True] + [False] * 4
    assert (grades.written[4], grades.project[0]) == (0, 0)  # nothing handed in, no such question
    assert not (tmp_path / "canvas.csv").exists() and not (tmp_path / "moodle.csv").exists()
    with pytest.raises(ValueError, match="columns .'late a2'."):
        write_grades(points, roster.assign(**{"late a2": "1"}), "a2", course, tmp_path)
