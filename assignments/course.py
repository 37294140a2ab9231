"""Makes a course edition from the masters in src/.

    python assignments/course.py                          the default edition, into student/
    python assignments/course.py SEED --out ../course     an edition of your own

The second writes ../course/student (for the students), and ../course/answers (for the teacher:
the seed of the hidden tests, the solutions, masters for otter-grader, and bundles for Gradescope).

The masters have otter-grader's syntax, so `otter assign` accepts them once the variants are
chosen. The student notebook is made here: that takes no kernel and no time, the students need no
otter-grader, and the notebook is the same on every machine.
"""

import argparse
import json
import re
import secrets
from pathlib import Path

import jupytext

from mmlcourse.grading import bundle
from mmlcourse.grading.questions import PLACEHOLDER, Edition, load_questions

HERE = Path(__file__).resolve().parent


# ---- one edition of a master ----


def edition_cells(path, edition):
    """Returns the cells of a master, (kind, text), with the choices of an edition."""
    name, questions = edition.questions(path.stem)
    variants = edition.variants(questions.values())
    arguments = [f'"{name}"', f"seed={edition.public_seed}"]
    if edition.version:
        arguments += [f'version="{edition.version}"', f"partial={edition.partial:g}"]
    values = {
        "edition": ", ".join([*arguments, *(f'{key}="{one}"' for key, one in variants.items())]),
        "hours": f"{sum(one.hours for one in questions.values()):.0f}",
        "points": str(sum(one.points for one in questions.values())),
    }
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
    minutes = round(60 * one.hours)
    time = f"{minutes} minutes" if minutes < 120 else f"{one.hours:g} hours"
    return f"{dots} · {one.points} points · about {time}"


# ---- the notebooks ----


def notebook(cells):
    """Returns the content of an .ipynb file with one metadata for everybody."""
    found = []
    for number, (kind, text) in enumerate(cells):
        cell = {"cell_type": kind, "id": f"cell-{number:02d}", "metadata": {}}
        if kind == "code":
            cell.update(execution_count=None, outputs=[])
        found.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def without_raw(cells):
    """Yields (region, kind, text); the region is the innermost of QUESTION, SOLUTION, TESTS."""
    regions = []
    for kind, text in cells:
        if kind != "raw":
            yield (regions or [""])[-1], kind, text
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
        found.append((kind, shown(region, text)))
    return found


def solution(cells):
    """Returns the cells of the solution notebook."""
    return [
        (kind, re.sub(r"^ *# (BEGIN|END) SOLUTION\n?", "", shown(region, text), flags=re.M))
        for region, kind, text in without_raw(cells)
    ]


def shown(region, text):
    """A check prints its verdict and never stops the notebook."""
    return re.sub(r"^assert check", "_ = check", text) if region == "TESTS" else text


def for_otter(cells, edition, name):
    """Returns the cells for `otter assign`, with a hidden test after every public one."""
    questions = load_questions(name)[1]
    variants = edition.variants(questions.values())
    more = ", ".join(f"{key}={one!r}" for key, one in variants.items())
    found, region = [], ""
    for kind, text in cells:
        if kind == "raw":
            region = text.split("\n")[0]
        found.append((kind, text))
        if kind == "code" and region == "# BEGIN TESTS":
            call = re.match(r"assert check(\(.*\))", text)[1]
            hidden = f"Assignment({name!r}, seed='hidden {edition.seed}', {more}){call}"
            head = '""" # BEGIN TEST CONFIG\nhidden: true\n""" # END TEST CONFIG\n'
            found.append(("code", f"{head}assert {hidden}"))
    return found


# ---- the folders ----


def masters():
    """Returns the paths of the masters."""
    return sorted((HERE / "src").glob("a[0-9]_*.py"))


def write_students(folder, edition):
    """Writes the student notebooks of an edition."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in masters():
        text = notebook(student(edition_cells(path, edition)))
        (folder / f"{path.stem}.ipynb").write_text(text, encoding="utf-8")


def write_answers(folder, edition):
    """Writes the seed, the solutions, the masters for otter-grader and Gradescope's bundles."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "edition.json").write_text(json.dumps(edition._asdict()), encoding="utf-8")
    for path in masters():
        cells = edition_cells(path, edition)
        files = {"solution": solution(cells), "otter": for_otter(cells, edition, path.stem)}
        for kind, content in files.items():
            text = notebook(content)
            (folder / f"{path.stem}_{kind}.ipynb").write_text(text, encoding="utf-8")
        bundle.write_bundle(folder / f"{path.stem}_gradescope.zip", path.stem, edition)


def _secret(text, refuse):
    """Returns the seed of an edition; `new` draws one that nobody can find by trying.

    Each assignment then has at least two variants that the public solutions do not have.
    """
    while text == "new":
        seed = secrets.randbits(62) | 1 << 61
        if all(len(_changed(path, Edition(seed))) >= 2 for path in masters()):
            return seed
    if not re.fullmatch("[1-9][0-9]{17,}", text):
        refuse(
            f"found the seed {text!r}, expected new, or the number of an edition.json that new has "
            "drawn. The public seed in the notebooks would give a short number away."
        )
    return int(text)


def _changed(path, edition):
    """Returns the variants of a master in which an edition differs from the public one."""
    questions = load_questions(path.stem)[1].values()
    public = Edition(0).variants(questions)
    return {key: one for key, one in edition.variants(questions).items() if one != public[key]}


def main(words=None):
    """Reads the command line, or a list of words, and writes the folders."""
    parser = argparse.ArgumentParser(description="Makes a course edition from the masters.")
    parser.add_argument("seed", nargs="?", help="a secret number, or new; none: the default")
    parser.add_argument("--out", type=Path, help="a folder outside the repository")
    options = parser.parse_args(words)
    if options.seed is None:
        write_students(HERE / "student", Edition(0))
        return print(f"The default edition: {HERE / 'student'}")
    if options.out is None or options.out.resolve().is_relative_to(HERE.parent):
        parser.error("give --out, a folder outside the repository: it will hold the answers")
    known = options.out / "answers" / "edition.json"
    found = json.loads(known.read_text("utf-8"))["seed"] if known.is_file() else None
    if found is not None and options.seed != str(found):
        parser.error(
            f"{options.out} holds an edition with another seed, whose answers would be lost. Make "
            f"it again with SEED={found}, or choose another folder."
        )
    edition = Edition(_secret(options.seed, parser.error) if found is None else found)
    write_students(options.out / "student", edition)
    write_answers(options.out / "answers", edition)
    print(f"For the students: {options.out / 'student'}. Keep secret: {options.out / 'answers'}")
    for path in masters():
        changed = ", ".join(f"{key}={one}" for key, one in _changed(path, edition).items())
        print(f"{path.stem} differs from the public edition in {changed or 'nothing'}.")


if __name__ == "__main__":
    main()
