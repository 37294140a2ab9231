"""Makes a course from the masters in src/ and its course.toml.

    python assignments/course.py                              the default edition, into student/
    python assignments/course.py course.toml --out ../course  a course with an edition of its own

The second writes ../course/student (for the students), and ../course/answers (for the teacher:
edition.json with the seed of the hidden tests, course.toml, the solutions with the results of their
experiments, masters for otter-grader, and bundles for Gradescope).

The masters have otter-grader's syntax, so `otter assign` accepts them once the variants are
chosen. The student notebook is made here: that takes no kernel and no time, the students need no
otter-grader, and the notebook is the same on every machine.
"""

import argparse
import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import jupytext

import mmlkit
from mmlcourse.grading import bundle
from mmlcourse.grading.course import load_course
from mmlcourse.grading.grader import load_edition
from mmlcourse.grading.questions import PLACEHOLDER, Edition, load_questions

HERE = Path(__file__).resolve().parent
PUBLIC = f"https://github.com/{mmlkit.REPOSITORY}/archive/refs/tags/v{mmlkit.__version__}.zip"

# What every assignment has: {setup} and {rules} of its master, and a cell after each question.
SETUP = """# Setup of the course: the grader skips this cell.
try:
    import mmlkit
except ImportError:  # as on Colab: install the version of the course
    from IPython import get_ipython
    address = "{address}"
    get_ipython().run_line_magic("pip", f'install -q "mmlkit[notebooks,minilm] @ {{address}}"')
from mmlcourse.grading import Assignment

# The edition of your course; do not change it. The questions say what it asks for.
check = Assignment(
{edition}
)"""
RULES = """**How it works.** Replace each `...` by your code, and run the cell below it. It compares your
function with reference values on public cases, and prints one line. The grader uses other values
and other sizes, so do not write sizes into your code: a question that is right here can still lose
its points there. Do not change the arguments of your functions unless the question asks for it.
One filled circle below a title is an easy question, three are a hard one.

**What the grader runs.** It runs the imports, functions, classes and assignments of every cell, and
other lines only where they give a value to a name that an answer needs. So your answers may call
helper functions of your own. It skips a cell whose first line contains `the grader skips this
cell`. Each question has such a cell below its check, for trials like this one:

```python
# Trial: the grader skips this cell.
x = torch.randn(2, 3)
print(x.softmax(dim=-1).sum(dim=-1))
```

Without the first line, the grader would run `x = torch.randn(2, 3)` too. That is harmless here, but
`result = experiment(...)` would take longer than its limit of 10 seconds.

**What you may use.** An answer that uses something of the last column gets 0 points."""
DATE = "%A, %d %B %Y, %H:%M (%Z)"
TRIAL = "# Trial: the grader skips this cell.\n"


# ---- one edition of a master ----


def edition_cells(path, edition, course=None):
    """Returns the cells of a master, (kind, text), with the choices of an edition."""
    name, questions = edition.questions(path.stem)
    variants = edition.variants(questions.values())
    arguments = [f'"{name}"', f"seed={edition.public_seed}"]
    if edition.version:
        arguments += [f'version="{edition.version}"', f"partial={edition.partial:g}"]
    arguments += [f'{key}="{one}"' for key, one in variants.items()]
    if name in edition.points:
        arguments.append(f"points={json.dumps(edition.points[name])}")
    indented = dict(initial_indent="    ", subsequent_indent="    ")
    arguments = textwrap.fill(", ".join(arguments) + ",", 110, **indented)
    values = {
        "setup": SETUP.format(edition=arguments, address=course.address if course else PUBLIC),
        "rules": RULES,
        "hours": f"{sum(one.hours for one in questions.values() if one.points):.0f}",
        "points": str(sum(one.points for one in questions.values())),
        "deadline": "as your teacher asks",
        "file": "Name the file after yourself, as your teacher asks, and upload it.",
    }
    if course:
        file = course.file_name("LOGIN", name)
        values["deadline"] = f"`{file}`, until {course.deadlines[name]:{DATE}}; {course.title}"
        values["file"] = f"Name the file `{file}`, with your login in the place of LOGIN."
    cells = []
    for cell in jupytext.read(path).cells:
        text = choose(cell.source, variants)
        if cell.cell_type == "raw" and (found := re.search(r"# BEGIN QUESTION\nname: (\w+)", text)):
            one = questions[found[1]]
            values["facts"] = facts(one)
            text += f"\npoints: {one.points}"
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", value)
        cells.append((cell.cell_type, text))
    return cells


def choose(text, variants):
    """Keeps the lines between IF name=value and END IF where the edition has that value."""
    kept, condition = [], None
    for line in text.splitlines():
        if found := re.fullmatch(r"\s*(?:# )?IF (\w+)=(\w+)", line):
            condition = variants[found[1]] == found[2]
        elif re.fullmatch(r"\s*(?:# )?END IF", line):
            condition = None
        elif condition is not False:
            kept.append(line)
    return "\n".join(kept)


def facts(one):
    """Returns the line below the title of a question."""
    dots = " ".join("●" * one.difficulty + "○" * (3 - one.difficulty))
    quarters = max(1, round(4 * one.hours))
    whole = "1 hour" if quarters == 4 else f"{quarters / 4:g} hours"
    time = f"{15 * quarters} minutes" if quarters < 4 else whole
    points = f"{one.points} points" if one.points else "left out of this course"
    return f"{dots} · {points} · about {time}"


# ---- the notebooks ----


def notebook(cells):
    """Returns the content of an .ipynb file with one metadata for everybody.

    A cell is (kind, text), or (kind, text, what it prints).
    """
    found = []
    for number, (kind, text, *printed) in enumerate(cells):
        cell = {"cell_type": kind, "id": f"cell-{number:02d}", "metadata": {}}
        if kind == "code":
            stream = {"output_type": "stream", "name": "stdout"}
            cell.update(execution_count=None, outputs=[{**stream, "text": one} for one in printed])
            first = text.split("\n")[0]
            if "the grader skips this cell" in first and not first.startswith("# Setup"):
                cell["metadata"] = {"tags": ["otter_ignore"]}  # otter-grader skips it too
        found.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def without_raw(cells):
    """Yields (region, kind, text); the region is the innermost of QUESTION, SOLUTION, TESTS.

    A cell for trials follows each check.
    """
    regions = []
    for kind, text in cells:
        if kind != "raw":
            yield (regions or [""])[-1], kind, text
            if regions[-1:] == ["TESTS"]:
                yield "", "code", TRIAL
        elif begins := re.match(r"# BEGIN (\w+)", text):
            regions.append(begins[1])
        elif re.match(r"# END \w+", text):
            regions.pop()


def student(cells):
    """Returns the cells of the student notebook: stubs, and the public checks."""
    found = []
    for region, kind, text in without_raw(cells):
        if region == "SOLUTION" and kind == "markdown":
            text = re.match(r"\*\*Answer to \w+:\*\*", text)[0] + f" {PLACEHOLDER}"
        text = re.sub(
            r"^( *)# BEGIN SOLUTION\n.*?# END SOLUTION$", r"\1...", text, flags=re.S | re.M
        )
        text = re.sub(  # a bug hunt: the given function is the prompt
            r"^ *# BEGIN SOLUTION NO PROMPT\n.*?# BEGIN PROMPT\n(.*?)\n *\"\"\" # END PROMPT$",
            r"\1",
            text,
            flags=re.S | re.M,
        )
        found.append((kind, shown(region, text)))
    return found


def solution(cells):
    """Returns the cells of the solution notebook."""
    found = []
    for region, kind, text in without_raw(cells):
        text = re.sub(r'\n *""" # BEGIN PROMPT\n.*?# END PROMPT', "", text, flags=re.S)
        text = re.sub(r"^ *# (BEGIN|END) SOLUTION( NO PROMPT)?\n?", "", text, flags=re.M)
        found.append((kind, shown(region, text)))
    return found


def shown(region, text):
    """A check prints its verdict and never stops the notebook."""
    return re.sub(r"^assert check", "_ = check", text) if region == "TESTS" else text


def for_otter(cells, edition, name, course=None):
    """Returns the cells for `otter assign`, with a hidden test after every public one.

    A test passes if it prints what its cell has printed: the verdict on a right answer.
    """
    questions = load_questions(name)[1]
    variants = edition.variants(questions.values())
    more = ", ".join(f"{key}={one!r}" for key, one in variants.items())
    found, region = [], ""
    for kind, text in cells:
        if kind == "raw":
            region = text.split("\n")[0]
        if region == "# ASSIGNMENT CONFIG":
            home = course.address if course else PUBLIC
            pins = [bundle.pin("torch"), bundle.pin("numpy"), f"mmlkit[minilm] @ {home}"]
            text += "\nrequirements:" + "".join(f'\n- "{one}"' for one in pins)
            region = ""
        test = kind == "code" and region == "# BEGIN TESTS"
        printed = []
        if test:
            call, question = re.match(r"assert check(\(\"(\w+)\", .*\))", text).groups()
            printed = [f"{questions[question].label}: right.\n"]
        found.append((kind, text, *printed))
        if test:
            hidden = f"Assignment({name!r}, seed='hidden {edition.seed}', {more}){call}"
            head = '""" # BEGIN TEST CONFIG\nhidden: true\n""" # END TEST CONFIG\n'
            found.append(("code", f"{head}assert {hidden}", *printed))
    return found


# ---- the folders ----


def masters(course=None):
    """Returns the paths of the masters, those of a course alone."""
    found = sorted((HERE / "src").glob("a[0-9]_*.py"))
    return [path for path in found if course is None or path.stem in course.deadlines]


def write(path, text):
    """Writes a text file."""
    path.write_text(text, encoding="utf-8")


def write_students(folder, edition, course=None):
    """Writes the student notebooks of an edition, and the README of a course."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in masters(course):
        text = notebook(student(edition_cells(path, edition, course)))
        write(folder / f"{path.stem}.ipynb", text)
    if course:
        write(folder / "README.md", students_readme(edition, course))


def students_readme(edition, course):
    """Returns students.md with what the course decides."""
    rows = []
    for path in masters(course):
        questions = edition.questions(path.stem)[1].values()
        points = sum(one.points for one in questions)
        file, date = course.file_name("LOGIN", path.stem), f"{course.deadlines[path.stem]:{DATE}}"
        rows.append(f"| {path.stem}.ipynb | `{file}` | {date} | {points} |")
    days = f"{course.late_days} late day{'s' * (course.late_days != 1)}"
    partial = (
        f" A mistake that the check names leaves {100 * course.partial:g} % of the points."
        if course.partial
        else ""
    )
    text = (HERE / "students.md").read_text(encoding="utf-8")
    values = {**course._asdict(), "table": "\n".join(rows), "days": days, "partial_note": partial}
    values["torch"] = bundle.pin("torch")
    values["example"] = course.file_name("jdoe", path.stem)
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


def write_answers(folder, edition, course=None):
    """Writes the edition, the solutions, the masters for otter-grader and Gradescope's bundles."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "known").mkdir(exist_ok=True)
    write(folder / "edition.json", json.dumps(edition._asdict(), indent=1))
    for path in masters(course):
        cells = edition_cells(path, edition, course)
        files = {"solution": solution(cells), "otter": for_otter(cells, edition, path.stem, course)}
        files |= {"given": student(cells), "known/edition": files["solution"]}
        files["known/public"] = solution(edition_cells(path, Edition(0)))  # the grader compares
        for kind, content in files.items():
            inside, _, end = kind.rpartition("/")
            write(folder / inside / f"{path.stem}_{end}.ipynb", notebook(content))
        bundle.write_bundle(folder / f"{path.stem}_gradescope.zip", path.stem, edition)


RUN = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
"""


def write_results(folder, name):
    """Runs a solution and writes what it prints, once for each edition."""
    solved, results = folder / f"{name}_solution.ipynb", folder / f"{name}_results.txt"
    cells = json.loads(solved.read_text(encoding="utf-8"))["cells"]
    code = str([one["source"] for one in cells if one["cell_type"] == "code"])
    head = f"Printed by {solved.name}, {hashlib.sha256(code.encode()).hexdigest()[:16]}\n\n"
    if results.is_file() and results.read_text("utf-8").startswith(head):
        return
    print(f"The experiment of {name}, two to ten minutes ...", flush=True)
    known = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-c", RUN, str(solved)]
        run = subprocess.run(command, cwd=empty, env=known, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise SystemExit(f"the solution of {name} stopped with the error above")
    write(results, head + run.stdout)


# ---- an edition ----


def edition_of(course, seed):
    """Returns the edition of a course with all its points, which no installed version decides."""
    points = {}
    for path in masters(course):
        name, questions = load_questions(path.stem)
        usual = {key: one.points for key, one in questions.items()}
        points[name] = {**usual, **course.points.get(name, {})}
    return Edition(seed, points, course.partial, course.version)


def draw(course):
    """Draws an edition whose seed nobody can find by trying.

    In each assignment the public solutions keep at most half of the points for code: the variants
    of the other questions differ.
    """
    for _ in range(20_000):
        edition = edition_of(course, secrets.randbits(62) | 1 << 61)
        kept = [kept_by_a_copy(path, edition) for path in masters(course)]
        if all(2 * points <= of for points, of in kept):
            return edition
    raise ValueError(
        "with these points a copy of a public solution keeps more than half of the points for "
        "code. Raise the points of questions with variants, or drop fewer of them."
    )


def kept_by_a_copy(path, edition):
    """Returns the points that a public solution has in an edition at most, and all for code."""
    code = [one for one in edition.questions(path.stem)[1].values() if one.right]
    changed = _changed(path, edition)
    same = [one for one in code if not changed.keys() & one.variants.keys()]
    return sum(one.points for one in same), sum(one.points for one in code)


def _changed(path, edition):
    """Returns the variants of a master in which an edition differs from the public one."""
    questions = load_questions(path.stem)[1].values()
    public = Edition(0).variants(questions)
    return {key: one for key, one in edition.variants(questions).items() if one != public[key]}


def main(words=None):
    """Reads the command line, or a list of words, and writes the folders."""
    parser = argparse.ArgumentParser(description="Makes a course from the masters.")
    parser.add_argument("course", nargs="?", help="course.toml; none: the default edition")
    parser.add_argument("--out", type=Path, help="a folder outside the repository")
    parser.add_argument("--no-results", action="store_true", help="leave the experiments out")
    options = parser.parse_args(words)
    if options.course is None:
        write_students(HERE / "student", Edition(0))
        return print(f"The default edition: {HERE / 'student'}")
    if options.out is None or options.out.resolve().is_relative_to(HERE.parent):
        parser.error("give --out, a folder outside the repository: it will hold the answers")
    answers = options.out / "answers"
    try:
        course = load_course(options.course)
        if course.version != mmlkit.__version__:  # grading goes on after an update, as ever
            raise ValueError(
                f"{options.course}: version = {course.version!r}, and this copy is "
                f"{mmlkit.__version__}: make the course on the tag that students install."
            )
        if (answers / "edition.json").is_file():  # the same cases again, whatever else changes
            edition = edition_of(course, load_edition(answers).seed)
        else:
            edition = draw(course)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    write_students(options.out / "student", edition, course)
    write_answers(answers, edition, course)
    write(answers / "course.toml", Path(options.course).read_text(encoding="utf-8"))
    for path in masters(course):
        points, of = kept_by_a_copy(path, edition)
        changed = ", ".join(f"{key}={one}" for key, one in _changed(path, edition).items())
        print(f"{path.stem}: a copied public solution keeps {points} of {of} points ({changed}).")
        if not options.no_results:
            write_results(answers, path.stem)
    print(f"For the students: {options.out / 'student'}. Keep secret: {answers}")


if __name__ == "__main__":
    main()
