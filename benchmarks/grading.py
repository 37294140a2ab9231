"""Grade many submissions of assignment 1, of every kind, and print how long it took.

    python benchmarks/grading.py --count 100 --jobs 2 --out ../graded

Of ten submissions three are right, four have one known mistake, one has stubs, and two are
hostile. They come from an edition with a seed of its own. The folder gets `submissions`, `answers`
and `grading`. A second call with the same folder grades what the first one left, so measure with an
empty folder, on a machine that does nothing else. `--make` makes the submissions only.
"""

import argparse
import csv
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "assignments"))

from common import cells, course, wrong  # noqa: E402
from hostile import ENDS, FORGES, HONEST, PATCHES_JSON, READS, RESOURCES  # noqa: E402

from mmlcourse.grading.questions import Edition, load_questions  # noqa: E402

NAME, EDITION = "a1_minbert", Edition(20271)
KINDS = (
    "right",
    "wrong",
    "hostile",
    "right",
    "wrong",
    "stub",
    "wrong",
    "hostile",
    "right",
    "wrong",
)
WHOLE = sum(one.points for one in load_questions(NAME)[1].values() if one.right)
LIMITS = {"right": (WHOLE, WHOLE), "wrong": (0, WHOLE - 1), "stub": (0, 0), "hostile": (0, 4)}


def mistakes():
    """Yield the cells of submissions with one known mistake each, for ever."""
    whole = cells(NAME, "solution", EDITION.seed)
    _, questions = load_questions(NAME)
    for question, changes in itertools.cycle(sorted(wrong(NAME).items())):
        wanted = questions[question].object
        heads = (f"def {wanted}(", f"class {wanted}(")
        for old, new, _ in changes:
            fits = lambda text, old=old, heads=heads: (
                text.count(old) == 1 and any(head in text for head in heads)
            )
            if any(fits(text) for _, text in whole):
                yield [
                    (kind, text.replace(old, new) if fits(text) else text) for kind, text in whole
                ]


def hostile(answers):
    """Yield the cells of hostile submissions, for ever."""
    reads = READS.replace("SECRET", str(answers)).replace("REPOSITORY", str(ROOT))
    for source in itertools.cycle((ENDS, FORGES, PATCHES_JSON, reads, RESOURCES)):
        yield [("code", HONEST), ("code", source)]


def make(out, count):
    """Write the answers of the edition and the submissions."""
    folder, answers = out / "submissions", (out / "answers").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    course().write_answers(answers, EDITION)
    sources = {
        "right": itertools.repeat(cells(NAME, "solution", EDITION.seed)),
        "stub": itertools.repeat(cells(NAME, "student", EDITION.seed)),
        "wrong": mistakes(),
        "hostile": hostile(answers),
    }
    for number, kind in zip(range(count), itertools.cycle(KINDS)):
        text = course().notebook(next(sources[kind]))
        (folder / f"{number:03}_{kind}.ipynb").write_text(text, encoding="utf-8")


def grade(out, jobs):
    """Grade the submissions with the command line; return the seconds and the points."""
    command = [sys.executable, "-m", "mmlcourse", "grade", str(out / "submissions")]
    command += ["--assignment", NAME, "--answers", str(out / "answers")]
    command += ["--out", str(out / "grading"), "--jobs", str(jobs)]
    start = time.monotonic()
    subprocess.run(command, check=True)
    seconds = time.monotonic() - start
    points = {}
    with open(out / "grading" / "points.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            points[row["student"]] = points.get(row["student"], 0) + int(row["points"] or 0)
    return seconds, points


def main():
    """Make the submissions, grade them, and print the minutes and what is unexpected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--make", action="store_true", help="make the submissions only")
    options = parser.parse_args()
    make(options.out, options.count)
    if options.make:
        return 0
    seconds, points = grade(options.out, options.jobs)
    bad = {}
    for student, found in points.items():
        low, high = LIMITS[student.partition("_")[2]]
        if not low <= found <= high:
            bad[student] = found
    print(f"{len(points)} submissions, {options.jobs} at a time: {seconds / 60:.1f} minutes")
    print(f"unexpected points: {json.dumps(bad) if bad else 'none'}")
    return bool(bad) or len(points) != options.count


if __name__ == "__main__":
    sys.exit(main())
