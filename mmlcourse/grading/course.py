"""A course as its teacher writes it down: one file, course.toml, with dates, points and rules."""

import datetime
import tomllib
from pathlib import Path
from typing import NamedTuple

from mmlcourse.grading.questions import load_questions

__all__ = ["Course", "load_course"]


class Course(NamedTuple):
    """Hold what course.toml says; assignments/course.toml explains every line.

    Attributes:
        title: the name of the course.
        term: such as "spring 2027".
        contact: whom a student asks.
        address: what pip installs; `load_course` has put the version in.
        version: the version of mmlkit on which the course was made.
        files: the pattern of a file name, with {login} and {assignment}, such as a1.
        late_days: days without a price that each student has for the whole term.
        late_percent: the price of each further day, in percent of an assignment's points.
        partial: the share of a question's points for a mistake that the grader names.
        deadlines: {full name of an assignment: datetime with its offset}, in the order of the file.
        points: {full name of an assignment: {question: points}}, where they differ from usual.
            A question with 0 points is left out of the course.
    """

    title: str
    term: str
    contact: str
    address: str
    version: str
    files: str
    late_days: int
    late_percent: float
    partial: float
    deadlines: dict
    points: dict

    def file_name(self, login, assignment):
        """Return the name that a student's file should have.

        Args:
            login: the student's login.
            assignment: such as "a1_minbert".

        Returns:
            A text such as "ann_a1.ipynb".
        """
        return self.files.format(login=login, assignment=assignment.split("_")[0])


def load_course(path):
    """Read course.toml.

    Args:
        path: the file; `make course` leaves a copy of it in the folder of the answers.

    Returns:
        A Course.

    Raises:
        ValueError: a key is missing, unknown or of another kind, an assignment, a question, a date
            or a number is wrong, or the address is a placeholder.
    """
    found = {"points": {}, **tomllib.loads(Path(path).read_text(encoding="utf-8"))}
    kinds = Course.__annotations__
    wrong = {"unknown": found.keys() - kinds.keys(), "missing": kinds.keys() - found.keys()}
    for fault, keys in wrong.items():
        _require(not keys, path, f"{fault} keys {sorted(keys)}; expected {', '.join(kinds)}")
    for key, kind in kinds.items():
        fits = isinstance(found[key], (int, float) if kind is float else kind)
        _require(fits, path, f"{key} = {found[key]!r}, expected a {kind.__name__}")
    for key in ("deadlines", "points"):
        found[key] = {load_questions(name)[0]: one for name, one in found[key].items()}
    for name, date in found["deadlines"].items():
        dated = isinstance(date, datetime.datetime) and date.tzinfo
        said = "expected a date, time and offset such as 2027-02-08T23:59:00+01:00"
        _require(dated, path, f"the deadline of {name} is {date}, {said}")
    for name, table in found["points"].items():
        questions = load_questions(name)[1]
        for one, points in table.items():
            fits = one in questions and type(points) is int and points >= 0
            said = f"expected whole points for some of {', '.join(questions)}"
            _require(fits, path, f"[points.{name}] has {one} = {points!r}, {said}")
    _check_values(found, path)
    found["address"] = found["address"].format(version=found["version"])
    return Course(**found)


def _check_values(found, path):
    """Refuse values that would hand out a course that cannot be installed or handed in."""
    address = found["address"]
    placeholder = "OWNER/NAME" in address or "mmlkit/mmlkit" in address
    said = "is a placeholder: publish your copy of mmlkit, and write the address of its tag"
    _require(not placeholder, path, f"address = {address!r} {said}")
    fits = "{login}" in found["files"] and found["files"].endswith(".ipynb")
    said = "expected a name such as {login}_{assignment}.ipynb"
    _require(fits, path, f"files = {found['files']!r}, {said}")
    for key, most in (("partial", 1), ("late_percent", 100), ("late_days", 366)):
        fits = 0 <= found[key] <= most
        _require(fits, path, f"{key} = {found[key]}, expected a number from 0 to {most}")


def _require(condition, path, message):
    """Refuse the file unless a condition holds."""
    if not condition:
        raise ValueError(f"{path}: {message}.")
