"""The masters and their solutions, for the tests of assignments."""

import functools
import importlib
import importlib.util
from pathlib import Path

from mmlcourse.grading.questions import Edition, load_questions

ROOT = Path(__file__).resolve().parents[2]
NAMES = [path.stem for path in sorted((ROOT / "assignments" / "src").glob("a[0-9]_*.py"))]


@functools.cache
def course():
    """Return the module assignments/course.py."""
    spec = importlib.util.spec_from_file_location("course", ROOT / "assignments" / "course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def cells(name, kind, seed=0):
    """Return the cells of a master, as student, solution or for_otter, in an edition."""
    edition = Edition(seed)
    found = course().edition_cells(ROOT / "assignments" / "src" / f"{name}.py", edition)
    if kind == "for_otter":
        return course().for_otter(found, edition, name)
    return getattr(course(), kind)(found)


def code(name, kind, seed=0):
    """Return the code cells that the grader executes."""
    found = [text for kind, text in cells(name, kind, seed) if kind == "code"]
    return [text for text in found if "the grader skips" not in text and "check(" not in text]


@functools.cache
def namespace(name, kind, seed=0):
    """Return the names that a notebook defines."""
    names = {"__name__": "submission"}
    for text in code(name, kind, seed):
        exec(text, names)
    return names


def student_object(one, name, kind, seed=0, change=None):
    """Return the student's function or class; change is (old, new) in its cell."""
    wanted, names = one.object, dict(namespace(name, kind, seed))
    if change:
        found = [text for text in code(name, kind, seed) if change[0] in text]
        found = [text for text in found if f"def {wanted}(" in text or f"class {wanted}(" in text]
        assert len(found) == 1 and found[0].count(change[0]) == 1, change[0]
        exec(found[0].replace(*change), names)
    return names[wanted]


def judge(one, name, student, seed=0):
    """Compare an object with the hidden cases of an edition."""
    edition = Edition(seed)
    variants = edition.variants(load_questions(name)[1].values())
    notes = []
    one.compare(one.call(student, notes), edition.cases(one), variants, notes)


def code_questions(name):
    """Return the questions with code."""
    return [one for one in load_questions(name)[1].values() if one.right]


def wrong(name):
    """Return the table of known-wrong answers, of tests/assignments/wrong_a1.py and so on."""
    return importlib.import_module(f"wrong_{name.split('_')[0]}").WRONG
