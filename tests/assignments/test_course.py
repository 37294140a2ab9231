"""Course editions: what students get, and what stays with the teacher."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from common import NAMES, ROOT, cells, course

import mmlkit
from mmlcourse.grading.course import load_course
from mmlcourse.grading.grader import load_edition
from mmlcourse.grading.questions import Edition, load_questions


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_student_notebook_is_up_to_date(name):
    committed = (ROOT / "assignments" / "student" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert committed == course().notebook(cells(name, "student")), (
        "run `make course COURSE=` after a change of a master"
    )


MASTER = """
# %% [raw]
# # BEGIN QUESTION
# name: layer_norm

# %% [markdown]
# {facts}
# IF gelu=exact
# exact text
# END IF
# IF gelu=tanh
# tanh text
# END IF

# %% [raw]
# # BEGIN SOLUTION

# %%
def layer_norm(x):
    # BEGIN SOLUTION
    y = "planted solution"
    return y
    # END SOLUTION

# %% [markdown]
# **Answer to layer_norm:** planted text

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("layer_norm", layer_norm)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
"""


def test_planted_markers_stay_with_the_teacher(tmp_path):
    path = tmp_path / "a1_minbert.py"
    path.write_text(MASTER.lstrip())
    edition = Edition(987654321)
    found = course().edition_cells(path, edition)
    student, solution = course().student(found), course().solution(found)
    otter = course().for_otter(found, edition, "a1_minbert")
    assert "planted solution" in str(solution) and "SOLUTION" not in str(solution)
    assert not re.search("planted|SOLUTION|987654321|BEGIN|IF ", str(student))
    assert student[1] == ("code", "def layer_norm(x):\n    ...")
    assert student[2] == ("markdown", "**Answer to layer_norm:** *Write here.*")
    assert student[3] == ("code", '_ = check("layer_norm", layer_norm)')
    assert "3 points" in student[0][1] and ("exact text" in student[0][1]) != (
        "tanh text" in student[0][1]
    )
    hidden = [text for kind, text, *_ in otter if kind == "code" and "hidden: true" in text]
    assert len(hidden) == 1 and "seed='hidden 987654321'" in hidden[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_student_notebook_holds_no_solution(name):
    text = "\n".join(one for _, one in cells(name, "student"))
    assert not re.search(r"BEGIN|END |SOLUTION|PROMPT|hidden: |hidden \d|otter|^IF ", text, re.M)
    codes = [one for kind, one in cells(name, "student") if kind == "code"]
    assert all(len(line) <= 120 for one in codes for line in one.splitlines())
    assert all(len(list(filter(str.strip, one.splitlines()))) <= 15 for one in codes)
    changed = [
        (a, b)
        for (kind, a), (_, b) in zip(cells(name, "student"), cells(name, "solution"))
        if a != b
    ]
    questions = load_questions(name)[1]
    assert len(changed) >= len(questions)
    for stub, whole in changed:
        lost = [line for line in whole.splitlines() if line.strip() and line not in stub]
        given = any(f"def {one.object}(" in stub for one in questions.values() if one.faulty)
        assert (lost and ("..." in stub or given)) or "*Write here.*" in stub


@pytest.mark.slow
def test_editions_differ_and_hide_their_seed(tmp_path):
    one, other = Edition(5), Edition(6)
    texts = {seed: str(cells("a1_minbert", "student", seed)) for seed in (0, 5, 6)}
    assert len(set(texts.values())) == 3
    assert one.public_seed != other.public_seed and "seed=5" not in texts[5]
    course().write_students(tmp_path / "student", one)
    course().write_answers(tmp_path / "answers", one)
    assert json.loads((tmp_path / "answers" / "edition.json").read_text()) == one._asdict()
    assert (tmp_path / "answers").stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(tmp_path / "answers" / "a1_minbert_gradescope.zip") as file:
        names = file.namelist()
        assert {"setup.sh", "run_autograder", "answers/edition.json"} <= set(names)
        assert "mmlcourse/grading/runner.py" in names and "mmlcourse/cli/main.py" in names
        assert file.getinfo("run_autograder").external_attr >> 16 == 0o755
        pins = file.read("setup.sh").decode()
        assert all(f"{one}=={version(one).split('+')[0]}" in pins for one in ("torch", "numpy"))


def test_the_results_of_a_solution_are_written_once(tmp_path, capsys):
    solved, results = tmp_path / "a1_solution.ipynb", tmp_path / "a1_results.txt"
    solved.write_text(course().notebook([("code", "print(6 * 7)"), ("markdown", "text")]))
    course().write_results(tmp_path, "a1")
    assert results.read_text().endswith("\n\n42\n")
    stamp = results.stat().st_mtime_ns
    solved.write_text(course().notebook([("code", "print(6 * 7)"), ("markdown", "other text")]))
    course().write_results(tmp_path, "a1")
    assert results.stat().st_mtime_ns == stamp
    solved.write_text(course().notebook([("code", "1 / 0")]))
    with pytest.raises(SystemExit, match="the solution of a1 stopped"):
        course().write_results(tmp_path, "a1")


@pytest.mark.slow
def test_the_bundle_grades_in_a_folder_as_gradescope_has_it(tmp_path):
    """/autograder holds source, submission and results; setup.sh has run already."""
    course().write_answers(tmp_path / "answers", Edition(5))
    for folder in ("submission", "results"):
        (tmp_path / "autograder" / folder).mkdir(parents=True)
    source = tmp_path / "autograder" / "source"
    shutil.unpack_archive(tmp_path / "answers" / "a3_mtdnn_san_gradescope.zip", source)
    handed_in = tmp_path / "autograder" / "submission" / "ann.ipynb"
    shutil.copy(tmp_path / "answers" / "a3_mtdnn_san_solution.ipynb", handed_in)
    script = shutil.copy(source / "run_autograder", tmp_path / "autograder")
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.run(["bash", script], capture_output=True, text=True, cwd="/", env=here)
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads((tmp_path / "autograder" / "results" / "results.json").read_text())
    assert sum(one["score"] for one in results["tests"]) == 70, results


def refused(capsys, *words):
    """Return the message with which assignments/course.py refuses the words of a command line."""
    with pytest.raises(SystemExit) as ended:
        course().main([*map(str, words)])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_course_needs_an_address_and_a_folder_outside_the_repository(capsys, tmp_path):
    example = ROOT / "assignments" / "course.toml"
    assert "a folder outside the repository" in refused(capsys, example, "--out", ROOT / "course")
    assert "a folder outside the repository" in refused(capsys, example)
    assert "is a placeholder" in refused(capsys, example, "--out", tmp_path / "out")
    text = example.read_text(encoding="utf-8").replace("OWNER/NAME", "ann/nlp")
    old = tmp_path / "course.toml"
    old.write_text(text.replace(f'"{mmlkit.__version__}"', '"0.0.9"'), encoding="utf-8")
    said = refused(capsys, old, "--out", tmp_path / "out")
    assert "version = '0.0.9', and this copy is" in " ".join(said.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_course_is_made_twice_with_the_same_cases(capsys, tmp_path):
    """The second time, a date and points have changed, as in the middle of a term."""
    file, out = tmp_path / "course.toml", tmp_path / "out"
    text = (ROOT / "assignments" / "course.toml").read_text().replace("OWNER/NAME", "ann/nlp")
    words = [str(file), "--out", str(out), "--no-results"]
    file.write_text(text)
    course().main(words)
    kept = re.findall(r"keeps (\d+) of 70", capsys.readouterr().out)
    assert len(kept) == 4 and max(map(int, kept)) <= 35
    first = load_edition(out / "answers")
    assert first.seed >= 1 << 61 and sum(first.points["a1_minbert"].values()) == 100
    notebooks = [path.stem for path in sorted((out / "student").glob("*.ipynb"))]
    assert notebooks == NAMES and "LOGIN_a1.ipynb" in (out / "student" / "README.md").read_text()

    file.write_text(
        text.replace("a4 = 2027", "# a4 = 2027").replace("[points.a4]", "[points.a1]\nevaluate = 0")
    )
    course().main(words)
    second = load_edition(out / "answers")
    assert second.seed == first.seed and list(second.points) == NAMES[:3]
    student = (out / "student" / "a1_minbert.ipynb").read_text()
    assert "left out of this course" in student and r"\"evaluate\": 0" in student
    assert f"archive/refs/tags/v{mmlkit.__version__}.zip" in student and "ann/nlp" in student
    assert load_course(out / "answers" / "course.toml").points == {"a1_minbert": {"evaluate": 0}}


COLAB = ROOT / ".venv-colab" / "bin" / "python"
PYTHONS = [
    pytest.param(sys.executable, id="here"),
    pytest.param(
        str(COLAB),
        id="colab",
        marks=pytest.mark.skipif(
            not COLAB.exists(), reason="no .venv-colab with Colab's versions: make test-colab"
        ),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_student_notebook_runs_with_stubs_from_an_empty_folder(name, python, tmp_path):
    path = ROOT / "assignments" / "student" / f"{name}.ipynb"
    run = subprocess.run(
        [python, "-c", course().RUN, str(path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr[-2000:]
    questions = [one for one in load_questions(name)[1].values() if one.right]
    for one in questions:
        assert f"{one.label}: not yet: " in run.stdout
    assert "right." not in run.stdout and not list(tmp_path.iterdir())
    assert f"   0 of {sum(one.points for one in questions)}" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_otter_grader_accepts_the_master_and_grades_its_solution(name, tmp_path):
    otter = shutil.which("otter")
    if otter is None:
        pytest.skip("otter-grader is not installed: pip install -e '.[grading]'")
    path = tmp_path / f"{name}.ipynb"
    path.write_text(course().notebook(cells(name, "for_otter", 5)), encoding="utf-8")
    command = [otter, "assign", str(path), str(tmp_path / "dist"), "--no-run-tests"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    student = (tmp_path / "dist" / "student" / path.name).read_text()
    assert "hidden 5" not in student and "# BEGIN SOLUTION" not in student
    (bundle,) = (tmp_path / "dist" / "autograder").glob("*.zip")
    path.write_text(course().notebook(cells(name, "solution", 5)), encoding="utf-8")
    command = [otter, "run", "-a", str(bundle), "-o", str(tmp_path), "--no-logo", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-2000:]
    tests = json.loads((tmp_path / "results.json").read_text())["tests"]
    assert sum(one.get("score", 0) for one in tests) == 70, tests
