"""Grading a folder: what comes out, and what hostile submissions do not reach."""

import ast
import csv
import dataclasses
import json
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest
from common import ROOT, code, course
from hostile import ENDS, FORGES, HONEST, PATCHES_JSON, READS, RESOURCES

from mmlcourse.cli.main import main
from mmlcourse.grading import grader, runner
from mmlcourse.grading.grader import grade_files, grade_notebook, load_edition
from mmlcourse.grading.names import names_in
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import Edition, load_questions
from mmlcourse.grading.reports import gradescope_results, page, write_feedback, write_reports
from mmlcourse.grading.roster import find_submissions
from mmlcourse.grading.sandbox import Sandbox, find_sandbox, package_paths

NAMES = ("attention", "layer_norm", "feed_forward", "add_norm", "train", "evaluate")
EDITION = Edition(41)
LIMITS = {"AS": 3 << 30, "CPU": 30, "FSIZE": 1 << 20}
SOLUTION = "\n".join(
    one for one in code("a1_minbert", "solution", EDITION.seed) if "BertLayer" not in one
)
POINTS = {name: load_questions("a1")[1][name].points for name in NAMES}
STUBS = code("a1_minbert", "student", EDITION.seed)
LAYER_NORM, WHOLE = POINTS["layer_norm"], sum(POINTS.values())

SANDBOX = find_sandbox(LIMITS)
slow = pytest.mark.slow
needs_bubblewrap = pytest.mark.skipif(
    SANDBOX.mode != "bubblewrap", reason=f"no bubblewrap here: {SANDBOX.reason}"
)


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    """Grade six questions with short time limits."""
    name, questions = load_questions("a1")
    few = {
        one.name: dataclasses.replace(one, seconds=4)
        for one in questions.values()
        if one.name in NAMES or not one.right
    }
    for module in (grader, sys.modules[Edition.__module__]):
        monkeypatch.setattr(module, "load_questions", lambda _: (name, few))
    monkeypatch.setattr(grader, "LOAD_SECONDS", 3)


def write(path, *sources, markdown=()):
    cells = [{"cell_type": "code", "metadata": {}, "source": one} for one in sources]
    cells += [{"cell_type": "markdown", "metadata": {}, "source": one} for one in markdown]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}))
    return path


def write_edition(folder):
    folder.mkdir(parents=True)
    (folder / "edition.json").write_text(json.dumps(EDITION._asdict()))


def program(*sources, answers=("f",)):
    return Program([{"cell_type": "code", "source": one} for one in sources], answers)


def points(result):
    return {one["name"]: one["points"] for one in result["questions"]}


def messages(result):
    return {one["name"]: one["message"] for one in result["questions"]}


# ---- results ----


@slow
def test_a_folder_is_graded_and_continues(tmp_path, monkeypatch):
    folder, out, told = tmp_path / "in", tmp_path / "out", []
    folder.mkdir()
    answer = "**Answer to written:** <script>alert(1)</script>"
    write(folder / "ann.ipynb", SOLUTION, "check.summary()", markdown=[answer])
    write(folder / "=bob.ipynb", *STUBS)
    (folder / "cyd.ipynb").write_text("[" * 100_000)
    results = grade_files(
        find_submissions(folder)[0], "a1", out, edition=EDITION, sandbox=SANDBOX, tell=told.append
    )
    bob, ann, cyd = results
    assert [one["student"] for one in results] == ["=bob", "ann", "cyd"] and len(told) == 3
    by_hand = {"written": None, "extension": None}
    assert points(ann) == {**POINTS, **by_hand}
    for result in (bob, cyd):
        assert set(points(result).values()) == {0, None}
    assert messages(bob)["layer_norm"] == "not yet: it returns nothing so far."
    assert cyd["notes"] == ["the file is not a notebook of format 4 (RecursionError)"]
    assert ann["notes"] == [] and ann["sandbox"] == str(SANDBOX)

    write_reports(results, out)
    rows = list(csv.reader((out / "points.csv").read_text().splitlines()))
    assert rows[0] == ["student", "question", "points", "of", "message", "by", "comment"]
    assert len(rows) == 1 + 3 * 8 and rows[1][0] == "'=bob"
    assert ["ann", "train", "8", "8", "right", "grader", ""] in rows
    text = (out / "pages" / "ann.html").read_text()
    assert (
        "&lt;script&gt;" in text
        and "<script>" not in text
        and f"{WHOLE} of {WHOLE} points. Not marked yet: 30 points." in text
    )
    tests = json.loads(gradescope_results(ann))["tests"]
    assert sum(one["score"] for one in tests) == WHOLE and len(tests) == 6

    calls = []
    grade = grader.grade_notebook
    monkeypatch.setattr(
        grader, "grade_notebook", lambda path, *more: calls.append(path) or grade(path, *more)
    )
    (out / "graded" / "cyd.json").write_text('{"key": "half a fi')
    assert (
        grade_files(find_submissions(folder)[0], "a1", out, edition=EDITION, sandbox=SANDBOX)
        == results
    )
    assert [path.stem for path in calls] == ["cyd"]


def test_an_interrupted_grading_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """Ctrl-C in the third notebook: those before it are not graded again."""
    folder, calls = tmp_path / "in", []
    folder.mkdir()
    for name in "abcd":
        write(folder / f"{name}.ipynb", "x = 1")

    def grade(path, *more):
        calls.append(path.stem)
        if calls == ["a", "b", "c"]:
            raise KeyboardInterrupt
        return {"student": path.stem, "questions": [{"points": len(calls)}]}

    monkeypatch.setattr(grader, "grade_notebook", grade)
    again = lambda: grade_files(
        find_submissions(folder)[0], "a1", tmp_path / "out", sandbox=SANDBOX, jobs=1
    )
    with pytest.raises(KeyboardInterrupt):
        again()
    results = again()
    assert [calls.count(name) for name in "abcd"] == [1, 1, 2, 1]
    assert [one["student"] for one in results] == ["a", "b", "c", "d"]
    assert [one["questions"][0]["points"] for one in results[:2]] == [1, 2]
    write(folder / "b.ipynb", "x = 2")
    assert again()[1]["questions"] == [{"points": len(calls)}] and calls[-1] == "b"


@slow
def test_the_command_line_grades_and_says_what_it_did(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "ann.ipynb", SOLUTION)
    write_edition(tmp_path / "answers")
    options = ["--assignment", "a1", "--answers", str(tmp_path / "answers")]
    options += ["--out", str(tmp_path / "out"), "--gradescope", str(tmp_path / "results.json")]
    assert main(["grade", str(folder), *options]) == 0
    out = capsys.readouterr().out
    assert "Sandbox: " in out and f"ann: {WHOLE} points\n" in out and "1 notebook: " in out
    assert f"Edition: {tmp_path / 'answers'}\n" in out
    assert json.loads((tmp_path / "results.json").read_text())["tests"][0]["name"] == "attention"
    assert main(["grade", str(tmp_path / "out"), *options]) == 2
    assert "has no .ipynb file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n".join(json.dumps(one) for one in (1, "x", None, [], {"question": []}, {"notes": 3})),
        json.dumps({"question": "layer_norm", "records": "right"}),
        json.dumps({"question": "layer_norm", "records": [{"value": {"tensor": [[1], [1, 2]]}}]}),
        json.dumps({"question": "layer_norm", "records": [{"value": {"dict": [[[], 1]]}}]}),
        json.dumps({"question": "layer_norm", "records": [{"error": ["SystemExit", "0"]}] * 2}),
        json.dumps({"question": "layer_norm", "points": 4, "message": "right"}),
        '{"question": "layer_norm", "records": [{"value": ' + "[" * 50_000,
        '{"question": "layer_norm", "records": [{"value": 1' + "0" * 6000 + "}]}",
    ],
)
def test_forged_documents_earn_nothing_and_stop_nothing(text, tmp_path):
    class Forged:
        def run(self, *arguments):
            return text, False

    result = grade_notebook(write(tmp_path / "a.ipynb", "x = 1"), "a1", EDITION, Forged())
    assert set(points(result).values()) == {0, None}
    assert page({**result, "notes": ["<b>"]}).count("<b>") == 0


def test_a_failure_of_the_machine_is_not_kept_as_a_grade(tmp_path):
    """The runner's first line says that the notebook was loaded. Without it nothing ran."""
    folder, runs = tmp_path / "in", []
    folder.mkdir()
    write(folder / "ann.ipynb", "x = 1")

    class Machine:
        def run(self, *arguments):
            runs.append(arguments)
            return ("" if len(runs) == 1 else '{"notes": []}\n'), False

    for _ in range(3):
        with pytest.warns(UserWarning, match="names a1_minbert: was 'a1' meant"):
            results = grade_files(
                find_submissions(folder)[0],
                "a1",
                tmp_path / "o",
                edition=EDITION,
                sandbox=Machine(),
            )
        assert set(points(results[0]).values()) == {0, None}
        assert any("nothing was run" in note for note in results[0]["notes"]) == (len(runs) == 1)
    assert len(runs) == 2, "the third time the second result was read"


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"%PDF-1.7 \xff", "the file is not a notebook of format 4 (UnicodeDecodeError)."),
        (b"[]", "the file is not a notebook of format 4 (TypeError)."),
        (b'\xef\xbb\xbf{"cells": []}', "the notebook has no cells."),
        (b" " * (grader.LARGEST + 1), "clear its outputs."),
    ],
)
def test_the_message_says_why_a_file_was_not_read(content, reason, tmp_path):
    (tmp_path / "a.ipynb").write_bytes(content)
    result = grade_notebook(tmp_path / "a.ipynb", "a1", EDITION, None)
    told = {one["message"] for one in result["questions"] if one["points"] == 0}
    assert len(told) == 1 and told.pop().endswith(reason)


def test_half_a_character_stops_no_report(tmp_path):
    """JSON can hold half an emoji, and a name on a disk any bytes; no text file can."""
    result = grade_notebook(write(tmp_path / "a.ipynb", "x = 1"), "a1", EDITION, Silent())
    result["student"] = "M\udcfcller"
    result["questions"][0]["message"] = "ValueError: \ud800"
    result["questions"][-1]["text"] = "\ud83d"
    assert "M\\udcfcller" in page(result) and "\\ud800" in page(result)
    page(result).encode("utf-8")
    result["student"] = "a"
    write_reports([result], tmp_path)
    assert "\\ud800" in (tmp_path / "points.csv").read_text(encoding="utf-8")


class Silent:
    def run(self, *arguments):
        return "", False


@pytest.mark.parametrize(
    "line",
    ["x = a" + ".b" * 400, f"x = ({'+'.join('1' * 400)}).real", f"x = (0x{'f' * 5000}).real"],
)
def test_a_strange_line_stops_no_grading(line, tmp_path):
    notebook = write(tmp_path / "a.ipynb", line, "y = F.scaled_dot_product_attention")
    result = grade_notebook(notebook, "a1", EDITION, Silent())
    assert "cell 2 uses scaled_dot_product_attention; read it" in result["notes"]


def test_a_line_of_python_may_begin_with_a_percent_sign():
    source = "def f(a, b):\n    return (\n        a\n        % b\n    )"
    names = {}
    for _, text, _ in program(source, "%matplotlib inline\nx = 1").job():
        exec(text, names)
    assert names["f"](7, 4) == 3 and names["x"] == 1


def test_the_notes_say_which_cells_failed(monkeypatch):
    """The package is on the student's machine, and the grader has only torch and numpy."""
    monkeypatch.setitem(sys.modules, "submission", None)
    sources = [
        "from no_such.part import bar",
        "def first(x)\n    return x",
        "x = y",
        "def second(): 1",
    ]
    names = runner._load(program(*sources).job(), 3, notes := [])
    assert "second" in names and "first" not in names
    assert notes == ["cell 1 stopped with ModuleNotFoundError: No module named 'no_such'"]
    assert program(*sources).faults == ["cell 2 has a syntax error in line 1 (expected ':')"]


@pytest.mark.slow
def test_a_cell_without_a_text_costs_no_points(tmp_path):
    """It keeps its number, which the notes name."""
    path = write(tmp_path / "a.ipynb", None, HONEST, "def f(:", 3)
    result = grade_notebook(path, "a1", EDITION, SANDBOX)
    assert points(result)["layer_norm"] == LAYER_NORM
    assert result["notes"] == ["cell 3 has a syntax error in line 1 (invalid syntax)"]


def test_an_edition_without_a_seed_names_its_file(tmp_path):
    (tmp_path / "edition.json").write_text('{"sead": 3}')
    with pytest.raises(ValueError, match="edition.json is not as `make course` writes it"):
        load_edition(tmp_path)
    with pytest.raises(FileNotFoundError, match="Expected the folder `answers`"):
        load_edition(tmp_path / "student")


def test_the_text_of_an_answer_goes_on_in_the_cells_below(tmp_path):
    def read(*sources):
        cells = [{"cell_type": "markdown", "source": text} for text in sources]
        (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
        result = grade_notebook(tmp_path / "a.ipynb", "a1", EDITION, Silent())
        (found,) = [one for one in result["questions"] if one["name"] == "written"]
        return found["text"], found["message"]

    marked, after = "**Answer to written:** one", "## Question 14: a project"
    assert read(marked, "two", "### three", after, "four") == (
        "one\n\ntwo\n\n### three",
        grader.BY_HAND,
    )
    assert read(marked, "**Answer to extension:** two")[0] == "one"
    for source in ("one", "**Answer to written:** *Write here.*"):
        assert "no text was found" in read(source)[1]


def test_the_sandbox_has_the_packages_of_torch_and_shows_no_installation_of_ours():
    """A checkout, an installed wheel and packages beside Python itself all hold the answers."""
    names = set(package_paths())
    assert {"torch", "numpy", "sympy"} <= names
    assert not {name for name in names if name.startswith(("mml", "transformers"))}
    command, _ = Sandbox("bubblewrap")._wrapped([], Path("/in"), 0)
    options = list(zip(command, command[1:]))
    shown = [Path(path) for option, path in options if option == "--ro-bind"]
    hidden = [Path(path) for option, path in options if option == "--tmpfs"]
    beside = Path(sysconfig.get_path("stdlib")).resolve() / "site-packages"
    places = [ROOT, Path(sysconfig.get_path("purelib")), *[beside] * beside.is_dir()]
    inside = lambda place, folders: any(place.is_relative_to(one) for one in folders)
    for place in places:
        assert inside(place, hidden) or not inside(place / "mmlcourse", shown)
        assert not [path for path in shown if path.is_relative_to(place / "mmlcourse")]


# ---- hostile submissions ----


@slow
@needs_bubblewrap
def test_hostile_submissions_earn_nothing_and_stop_nobody(tmp_path):
    folder, secret = tmp_path / "in", tmp_path / "secret"
    folder.mkdir()
    write_edition(secret / "answers")
    site = os.path.dirname(os.path.dirname(pytest.__file__))
    reads = READS.replace("SECRET", str(secret)).replace("SITE", site)
    reads = reads.replace("REPOSITORY", str(course().HERE.parent))
    hostile = {
        "ends": ENDS,
        "forges": FORGES,
        "json": PATCHES_JSON,
        "reads": reads,
        "resources": RESOURCES,
    }
    for name, source in hostile.items():
        write(folder / f"{name}.ipynb", HONEST, source)
    write(folder / "zoe.ipynb", HONEST)
    started = time.time()
    results = grade_files(
        find_submissions(folder)[0], "a1", tmp_path / "out", edition=EDITION, sandbox=SANDBOX
    )
    found = {one["student"]: one for one in results}
    assert len(found) == 6
    for name, result in found.items():
        earned = {key: one for key, one in points(result).items() if one}
        allowed = (
            [{"layer_norm": LAYER_NORM}, {}] if name == "json" else [{"layer_norm": LAYER_NORM}]
        )
        assert earned in allowed, f"{name}: {result}"

    said = messages(found["resources"])
    assert said["attention"] == "it took longer than 12 seconds"
    assert "it stopped with RuntimeError" in said["train"]
    clock, cpu = "it took longer than 12 seconds", "it took longer than 4 seconds of CPU time"
    assert said["add_norm"] in (clock, cpu)  # the fork bomb
    assert "the results take more than 1000 kB" in said["feed_forward"]
    assert "no result came back" in said["evaluate"]

    said, notes = messages(found["reads"]), found["reads"]["notes"]
    assert "/in/job.json" in said["attention"] or "/in/site" in said["attention"]
    for text in ("seed", "written", "root:", "edition.json"):
        assert text not in said["attention"]
    assert "OSError" in said["add_norm"] or "Network is unreachable" in said["add_norm"]
    assert "mmlcourse is not available" in said["feed_forward"]
    assert "transformers is not available" in said["evaluate"]
    assert "No module named 'mmlcourse'" in said["train"]
    assert any("uses mmlcourse; read it" in note for note in notes)
    assert load_edition(secret / "answers") == EDITION and not (secret / "written").exists()
    assert not os.path.exists("/tmp/evil")

    import psutil

    left = [
        one
        for one in psutil.process_iter(["create_time", "cmdline"])
        if one.info["create_time"] > started and "while True: pass" in (one.info["cmdline"] or [])
    ]
    assert not left


@slow
def test_limits_alone_stop_what_takes_too_much(tmp_path):
    sandbox = Sandbox("limits alone", "for the test", LIMITS)
    source = RESOURCES.replace("os.fork()", "break").replace("subprocess.Popen", "print")
    source = source.replace("time.sleep(0.1)", "pass")
    result = grade_notebook(write(tmp_path / "a.ipynb", HONEST, source), "a1", EDITION, sandbox)
    said = messages(result)
    assert points(result)["layer_norm"] == LAYER_NORM
    assert said["attention"] == "it took longer than 4 seconds of CPU time"
    assert "it stopped with RuntimeError" in said["train"]
    assert result["sandbox"] == str(sandbox) and "(for the test)" in str(sandbox)


def test_a_limit_is_never_above_the_one_that_holds():
    folder = os.path.dirname(runner.__file__)
    code = f"import resource, sys; sys.path.append({folder!r}); import runner; "
    code += "kind = resource.RLIMIT_CPU; "
    code += "runner._limit('CPU', 3, 4); print(resource.getrlimit(kind)); "
    code += "runner._limit('CPU', 10, 11); print(resource.getrlimit(kind))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split("\n")[:2] == ["(3, 4)", "(4, 4)"], run.stderr


def result_of(student, points, back="", **more):
    row = {"name": "written", "points": None, "of": 10, "message": "read by the teacher"}
    code = {**row, "name": "attention", "points": points, "of": 4, "message": "not yet"}
    questions = [{**one, "text": ""} for one in (code, row)]
    result = {"student": student, "assignment": "a1_minbert", "questions": questions}
    return {**result, "notes": [], "sandbox": "x", "functions": {}, "back": back, **more}


def page_of(folder, student):
    return (folder / "pages" / f"{student}.html").read_text(encoding="utf-8")


def test_the_teachers_points_stay(tmp_path):
    """What a teacher changed stays in further gradings; the others follow the grader."""
    table = tmp_path / "points.csv"
    write_reports([result_of("ann", 0)], tmp_path)
    head = table.read_text().splitlines()[0]
    lines = 'ann,attention,2,4,not yet,grader,"- good\nsee me"\nann,written,8,10,sic,grader,\n'
    table.write_text(f"\ufeff{head}\n{lines}", encoding="utf-8")
    kept = lines.replace("grader", "teacher")
    for _ in range(3):
        points, told = write_reports([result_of("ann", 0), result_of("bob", 0)], tmp_path)
        found = table.read_text(encoding="utf-8")
        assert kept in found and "bob,written,,10,read by the teacher,grader,\n" in found
        assert told == ["ann attention: yours stays, 2; the grader's is 0."]
        assert "<td>2 of 4</td><td>not yet</td><td>- good\nsee me" in page_of(tmp_path, "ann")
    for late in (["bob"], ["bob"], ["ann", "bob"]):  # a folder of late work does not have ann
        write_reports([result_of(name, 0) for name in late], tmp_path)
        found = table.read_text(encoding="utf-8")
        assert kept in found and found.count("\n") == 6 and found.startswith("student,")
    for judged in (2, 4):  # the question is corrected, and at one time both agree
        _, told = write_reports([result_of("ann", judged), result_of("bob", 4)], tmp_path)
        assert kept in table.read_text(encoding="utf-8")
    assert told == ["ann attention: yours stays, 2; the grader's is 4."]
    points, told = write_reports([result_of("bob", 1)], tmp_path)
    assert told == ["bob attention: 4 becomes 1."] and points.points["bob", "attention"] == "1"
    table.write_text(table.read_text().replace("ann,attention,2,", "zoe,attention,2,"))
    points, told = write_reports([result_of("ann", 3)], tmp_path)  # her row was deleted
    assert points.points["ann", "attention"] == "3" and points.by["ann", "attention"] == "grader"
    table.write_text(table.read_text().replace("ann,attention,3,4", "ann,attention,2,4"))
    table.write_text(table.read_text().replace("ann,attention,2,4", "ann,attention,two,4"))
    with pytest.raises(ValueError, match="ann attention has 'two', expected a number"):
        write_reports([result_of("ann", 0)], tmp_path)
    table.write_text("student;question;points\nann;written;8\n")
    with pytest.raises(ValueError, match="Save it as csv with commas"):
        write_reports([result_of("ann", 0)], tmp_path)
    assert table.read_text().endswith("ann;written;8\n")


def test_points_survive_a_lost_folder_of_the_grader(tmp_path):
    write_reports([result_of("ann", 0)], tmp_path)
    table = tmp_path / "points.csv"
    table.write_text(table.read_text().replace("written,,", "written,8,"))
    (tmp_path / "graded" / "points.csv").unlink()
    assert write_reports([result_of("ann", 0)], tmp_path)[0].points["ann", "written"] == "8"


def test_the_archive_has_the_names_that_canvas_and_moodle_take_back(tmp_path):
    canvas, moodle = "leeann_101_9001_a1.ipynb", "Bob Ray_77_assignsubmission_file/a1.ipynb"
    results = [result_of("ann", 4, canvas), result_of("bob", 4, moodle), result_of("cyd", 4)]
    write_reports(results, tmp_path)
    with zipfile.ZipFile(write_feedback(results, tmp_path)) as file:
        expected = [canvas, "Bob Ray_77_assignsubmission_file/a1.html", "cyd.html"]
        assert file.namelist() == expected
        assert file.read("cyd.html").decode() == page_of(tmp_path, "cyd")
        cells = json.loads(file.read(canvas))["cells"]
        assert [one["source"] for one in cells] == [page_of(tmp_path, "ann")]


def test_nothing_is_left_out_silently(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match="has no .ipynb file"):
        find_submissions(folder)
    (folder / "dora.py").write_text("x = 1")
    write(folder / "emil.IPYNB", "x = 1")
    files, told = find_submissions(folder)
    assert [one.student for one in files] == ["emil"]
    assert told == [("dora", "no notebook", "dora.py was not graded")]
    (out / "graded").mkdir(parents=True)
    (out / "graded" / "ann.json").write_text('{"assignment": "a2_multiverse"}')
    with pytest.raises(ValueError, match="holds the grades of 'a2_multiverse'"):
        grade_files(files, "a1", out, edition=EDITION, sandbox=Silent())


ELSEWHERE = {
    "another name": "from torch.nn.functional import layer_norm as g\n\ndef f(x):\n    return g(x)",
    "a helper": "def g(x):\n    return F.layer_norm(x)\n\n\ndef f(x):\n    return g(x)",
    "a value": "f = lambda x: F.layer_norm(x)",
    "another question": "def other(x):\n    F.layer_norm(x)\n\ndef f(x):\n    return other(x)",
    "nothing": "import torch.nn.functional as F\n\n\ndef f(x):\n    return F.softmax(x)",
}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from torch import autograd as ag", "torch.autograd"),
        ("from torch.optim import AdamW as Base", "torch.optim.AdamW"),
        ("import torch\ncell = torch.nn.GRU(2, 2)", "nn.GRU"),
        ("from torch.nn import GRU as cell", "nn.GRU"),
    ],
)
def test_a_name_is_found_under_another_one(source, name):
    assert name in names_in(ast.parse(source))
    assert name not in names_in(ast.parse("import torch\ntorch.nn.Linear(2, 2)"))


def test_a_name_of_many_words_stays_small():
    found = names_in(ast.parse(f"import {'.'.join(['a'] * 5_000)}"))
    assert len(found) == 20 and max(map(len, found)) == 39


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_name_that_does_the_exercise_is_found_where_the_answer_leads(where):
    found = names_in(program(ELSEWHERE[where]).answer("f", {"f", "other"}))
    assert ("layer_norm" in found) == (where not in ("another question", "nothing"))
