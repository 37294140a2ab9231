"""course.toml: what it says, and which mistakes are named."""

import pytest
from common import ROOT

from mmlcourse.grading.course import load_course
from mmlkit import __version__

TEXT = (ROOT / "assignments" / "course.toml").read_text(encoding="utf-8")
GOOD = TEXT.replace("OWNER/NAME", "ann/nlp")


def read(tmp_path, text):
    path = tmp_path / "course.toml"
    path.write_text(text, encoding="utf-8")
    return load_course(path)


def test_the_example_is_a_course_once_it_has_an_address(tmp_path):
    course = read(tmp_path, GOOD.replace("# extension = 0", "extension = 0"))
    assert course.address == f"https://github.com/ann/nlp/archive/refs/tags/v{__version__}.zip"
    assert course.deadlines["a2_multiverse"].isoformat() == "2027-02-22T23:59:00+01:00"
    assert course.points == {"a4_pals": {"extension": 0}}
    assert course.file_name("jdoe", "a1_minbert") == "jdoe_a1.ipynb"
    assert read(tmp_path, GOOD.replace("[points.a4]", "")).points == {}


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("ann/nlp", "OWNER/NAME", "is a placeholder: publish your copy"),
        ("late_days", "latedays", r"unknown keys \['latedays'\]"),
        ("title = ", "# ", r"missing keys \['title'\]"),
        ("late_days = 4", "late_days = '4'", "late_days = '4', expected a int"),
        ("2027-02-08T23:59:00+01:00", "2027-02-08", "deadline of a1_minbert is 2027-02-08, exp"),
        ("2027-02-08", "2027-02-30", "Invalid date"),
        ("a1 = ", "a7 = ", "assignment 'a7' is unknown"),
        ("# extension = 0", "extenion = 0", "has extenion = 0, expected whole points for some"),
        ("{login}_", "", "expected a name such as {login}_{assignment}.ipynb"),
        ("partial = 0", "partial = 50", "partial = 50, expected a number from 0 to 1"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, old, new, message):
    assert GOOD.count(old) >= 1
    with pytest.raises(ValueError, match=message):
        read(tmp_path, GOOD.replace(old, new, 1))
