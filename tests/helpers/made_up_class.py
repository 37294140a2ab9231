"""Make a class of 30 that hands in a1, grade it as the guide says, and look for what was planted.

    python tests/helpers/made_up_class.py --out ../class

The folder gets course.toml, the course, the roster, an export of notebooks, and grading/. The class
has honest students, copies with renamed variables, public solutions, notebooks of other editions,
and files that are late, doubled, renamed, broken or missing. `--out` has to be empty.
"""

import argparse
import ast
import csv
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "assignments"), str(ROOT / "tests" / "helpers")]

from common import cells, course  # noqa: E402
from honest import honest_cells  # noqa: E402

from mmlcourse.grading.grader import load_edition  # noqa: E402
from mmlcourse.grading.questions import Edition, load_questions  # noqa: E402

NAME = "a1_minbert"
FIRST = "Ada Ben Cleo Dan Eva Finn Gül Hugo Ida Jan Kim Léa Max Nora Omar Pia Quinn Rosa Sam Tom"
LAST = (
    "Abel Brandt Costa Dietz Eriksen Fuchs Gomez van-Holt Ito Jensen Kaya Lopez Meyer Nowak Okoye"
)
# The number of a student, and the kinds of rows that report.csv has to have about this student.
PLANTED = {
    0: ["missing"],
    1: ["missing", "no notebook"],
    2: ["note", "similar code", "similar text"],
    3: ["similar code"],
    4: ["similar code"],
    5: ["note"],
    6: ["note"],
    7: ["similar code", "similar text"],
    8: ["similar code", "similar text"],
    9: ["similar code"],
    10: ["similar code"],
    11: ["similar code"],
    12: ["similar code"],
    13: ["similar code"],
    14: ["note"],
    15: ["several files"],
    16: ["several files"],
    17: ["late"],
    18: ["late"],
    19: ["late"],
}
COPIES = {8: 7, 9: 7, 10: 7, 12: 11, 13: 11}  # five copies, with renamed variables
DAYS = {17: 1, 18: "2.3", 19: 6}  # late


def people():
    """Return the 30 rows of the roster."""
    found = []
    for number in range(30):
        first, last = FIRST.split()[number % 20], LAST.split()[number * 7 % 15].replace("-", " ")
        login = f"{first[:2].lower()}{last.split()[-1].lower()}{number:02}"
        email = f"{login}@university.example"
        row = {"login": login, "name": f"{first} {last}", "email": email, "id": 40_000 + 7 * number}
        found.append({**row, "late_a1": DAYS.get(number, "")})
    return found


def renamed(cells, number):
    """Return cells in which every variable has another name, and the comments are gone."""
    found = []
    for kind, text in cells:
        if kind == "code" and text.startswith(("def ", "class ")):
            tree = ast.parse(text)
            names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
            given = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
            stored = sorted({one.id for one in names if isinstance(one.ctx, ast.Store)} - given)
            for one in names:
                if one.id in stored:
                    one.id = f"my_{number}_{stored.index(one.id)}"
            text = ast.unparse(tree)
        found.append((kind, text))
    return found


def defines(cell):
    """Return whether a cell defines a function or class of an answer."""
    return cell[0] == "code" and cell[1].startswith(("def ", "class "))


def with_texts(cells, other):
    """Return cells with the written answers of another notebook."""
    texts = iter([one for one in other if one[1].startswith("**Answer")])
    return [next(texts) if one[1].startswith("**Answer") else one for one in cells]


def notebooks(student, edition):
    """Return {number: cells} of those who handed in a notebook."""
    variants = lambda one: one.variants(load_questions(NAME)[1].values())
    honest = lambda number: honest_cells(student, number, variants(edition))
    found = {number: honest(number) for number in range(2, 30)}
    public = cells(NAME, "solution")
    found[2] = public
    for number in (3, 4):  # the public functions, in the notebook of the course
        parts = iter([one for one in public if defines(one)])
        pasted = [next(parts) if defines(one) else one for one in student]
        found[number] = renamed(with_texts(pasted, found[number]), number)
    for number, other in ((5, Edition(0)), (6, Edition(77))):
        found[number] = honest_cells(cells(NAME, "student", other.seed), number, variants(other))
    for number, original in COPIES.items():
        copied = found[original] if number == 8 else with_texts(found[original], found[number])
        found[number] = renamed(copied, number)
    found[23] = honest_cells(student, 23, variants(edition), skip=("AdamW.update", "evaluate"))
    found[24] = [(kind, text.replace("1e-12", "1e-5")) for kind, text in found[24]]
    return found


def hand_in(folder, student, edition):
    """Write roster.csv and export/, where Canvas, Moodle and mails have left their files."""
    export, rows, draw = folder / "export", people(), random.Random(5)
    export.mkdir(parents=True)
    with open(folder / "roster.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    texts = {n: course().notebook(one) for n, one in notebooks(student, edition).items()}
    texts[14] = texts[14][:5000]  # the upload stopped
    own = {20: "Untitled7 (final).ipynb", 22: "homework.ipynb", 15: "a1-1.ipynb"}
    for number, row in enumerate(rows):
        name = own.get(number, f"{row['login']}_a1.ipynb")
        words = row["name"].split()
        moodle = export / f"{row['name']}_{draw.randrange(10**6)}_assignsubmission_file"
        late = "_LATE" if number in (17, 18) else ""
        canvas = f"{''.join(words[1:] + words[:1]).lower()}{late}_{row['id']}_{{}}_{{}}"
        if number == 1:
            (export / canvas.format(90_001, "a1.pdf")).write_bytes(b"%PDF-1.7")
        elif number == 21:
            (export / f"{row['name']} final(2).ipynb").write_text(texts[number], "utf-8")
        elif number in (16, 19, 22) or number > 24:
            moodle.mkdir()
            if number == 16:
                first = moodle / "first-try.ipynb"
                first.write_text(course().notebook(student), "utf-8")
                os.utime(first, (1, 1))
            (moodle / name).write_text(texts[number], "utf-8")
        elif number:
            (export / canvas.format(90_000 + number, name)).write_text(texts[number], "utf-8")
        if number == 15:  # an earlier one, with stubs
            stubs = course().notebook(student)
            (export / canvas.format(80_000, "a1.ipynb")).write_text(stubs, "utf-8")
    (export / "solution.ipynb").write_text(texts[29], "utf-8")  # of nobody


def faults(grading):
    """Return sentences about what report.csv lacks, or has of an honest student."""
    with open(grading / "report.csv", encoding="utf-8", newline="") as file:
        rows = [row[:2] for row in csv.reader(file)][1:]
    rows = {(student, kind) for student, kind in rows if kind != "not marked"}
    logins = [row["login"] for row in people()]
    planted = {(logins[number], kind) for number, kinds in PLANTED.items() for kind in kinds}
    planted.add(("", "unknown file"))
    return [f"report.csv lacks {one}" for one in sorted(planted - rows)] + [
        f"report.csv has {one}" for one in sorted(rows - planted)
    ]


def mark(grading):
    """Write points for texts, change one for code, and add a comment, as a teacher does."""
    path = grading / "points.csv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if not row["points"]:
            row["points"] = {"written": "7.5", "extension": "16"}[row["question"]]
    first = next(row for row in rows if row["question"] == "layer_norm")
    first.update(points="1.5", comment="half right")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return first["student"]


def by_hand(grading, late_days, percent):
    """Return {login: total}, calculated without the library from points.csv and the roster."""
    with open(grading / "points.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    whole = sum(int(row["of"]) for row in rows if row["student"] == rows[0]["student"])
    totals = {}
    for person in people():
        got = sum(float(row["points"]) for row in rows if row["student"] == person["login"])
        days = -(-float(person["late_a1"] or 0) // 1)
        price = max(0, days - late_days) * percent / 100 * whole
        totals[person["login"]] = max(0, got - price)
    return totals


def totals(grading):
    """Return {login: total} of grades.csv; "" where there is none."""
    with open(grading / "grades.csv", encoding="utf-8", newline="") as file:
        return {row["login"]: row["total"] for row in csv.DictReader(file)}


def run(*words):
    """Run a command in the repository."""
    print("$", *words)
    subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=True)


def main():
    """Make the class, grade it twice, and print what is missing or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "assignments" / "course.toml").read_text(encoding="utf-8")
    (out / "course.toml").write_text(text.replace("OWNER/NAME", "university/mmlkit"), "utf-8")
    run("assignments/course.py", out / "course.toml", "--out", out / "course", "--no-results")
    given = json.loads((out / "course" / "student" / f"{NAME}.ipynb").read_text("utf-8"))
    student = [(one["cell_type"], "".join(one["source"])) for one in given["cells"]]
    hand_in(out, student, load_edition(out / "course" / "answers"))
    grade = ["-m", "mmlcourse", "grade", out / "export", "--assignment", "a1"]
    grade += ["--answers", out / "course" / "answers", "--roster", out / "roster.csv"]
    grade += ["--out", out / "grading"]
    start = time.monotonic()
    run(*grade)
    minutes = (time.monotonic() - start) / 60
    found = faults(out / "grading")
    mark(out / "grading")
    run(*grade)
    wanted = by_hand(out / "grading", 4, 10)
    found += [
        f"{login} has the total {total}, by hand it is {wanted[login]}"
        for login, total in totals(out / "grading").items()
        if not total or abs(float(total) - wanted[login]) > 0.005
    ]
    print(f"graded in {minutes:.1f} minutes; {len(found)} faults", *found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
