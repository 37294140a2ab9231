"""What a teacher gets about the whole class: grades.csv, two files to import, and who is alike."""

from pathlib import Path

from mmlcourse.grading.grader import answers_in
from mmlcourse.grading.questions import load_questions
from mmlcourse.grading.reports import csv_text, safe_cells
from mmlcourse.grading.roster import COLUMNS
from mmlcourse.grading.similar import alike, phrases
from mmlkit.files import write_file

__all__ = ["compare_class", "write_grades"]

READ = {"written": "written", "project": "extension"}


def compare_class(results, answers, assignment):
    """Return what of a class is more alike than chance explains.

    Args:
        results: a list of results of `grade_notebook`.
        answers: the folder of the answers; what a student wrote is also compared with the notebooks
            of this assignment in its folder known/. None: only with each other.
        assignment: such as "a1".

    Returns:
        A list of (student, "similar", sentence).
    """
    name = load_questions(assignment)[0]
    find = lambda pattern: sorted(Path(answers).glob(pattern)) if answers else []
    known = {path.name: [answers_in(path, name)] for path in find(f"known/{name}_*.ipynb")}
    given = [answers_in(path, name) for path in find(f"{name}_given.ipynb")]
    students = {one["student"]: [one] for one in results}
    rows = []
    for kind, units in (("code", _code), ("text", _text)):
        of = lambda groups, units=units: {key: units(group) for key, group in groups.items()}
        pairs = alike(of(students), of(known), units(given), kind)
        for student in students:
            mine = sorted((row for row in pairs if student in row[:2]), key=lambda row: -row[2])
            others = [f"{a if b == student else b} ({share:.0%})" for a, b, share, _ in mine]
            if mine:
                what = f": {', '.join(mine[0][3])}" if kind == "code" else ""
                rows.append((student, f"similar {kind}", f"{', '.join(others)}{what}"))
    return rows


def _code(group):
    return {unit: one for result in group for unit, one in result["functions"].items()}


def _text(group):
    texts = (one["text"] for result in group for one in result["questions"])
    return {unit: one for text in texts for unit, one in phrases(text).items()}


def write_grades(points, roster, assignment, course, out):
    """Write grades.csv, a row for each student, and the files that Canvas and Moodle import.

    Args:
        points: points.csv, of `write_reports`.
        roster: of `read_roster`.
        assignment: such as "a1".
        course: a Course, for the price of late days; None: they cost nothing.
        out: the folder.

    Returns:
        A list of (student, kind, sentence) about who handed in nothing, was late, or is not marked.
        While somebody is not marked there is no total for this student, and no file to import.
    """
    import pandas as pd

    name = load_questions(assignment)[0]
    roster = roster.map(lambda text: safe_cells([text])[0])
    grades = roster[list(COLUMNS)].set_index("login")
    table = points.points.unstack().reindex(grades.index)
    whole = points.of.astype(int).groupby(level="question").max().sum()
    marked = table.apply(pd.to_numeric).fillna(0)
    for column, question in READ.items():
        grades[column] = 0
        if question in marked:  # empty until it is marked
            grades[column] = marked.pop(question).mask(table[question].eq(""))
    grades.insert(3, "code", marked.sum(axis=1))
    got = grades[["code", *READ]].sum(axis=1)
    days, paid = _late_days(roster, name, course) if course else (got * 0, got * 0)
    percent = course.late_percent if course else 0
    grades["late"] = -(paid * percent / 100 * whole).clip(upper=got) + 0.0  # no -0
    grades["total"] = (got + grades["late"]).mask(table.eq("").any(axis=1))
    told = []
    for login, row in table.iterrows():
        if row.isna().all():
            told.append((login, "missing", "nothing handed in"))
        elif open_ := [question for question, one in row.items() if one == ""]:
            told.append((login, "not marked", f"no total without {', '.join(open_)}"))
        if days[login]:
            cost = f"{paid[login]:g} not free: {grades.late[login]:g} points"
            told.append((login, "late", f"{days[login]:g} days, {cost}"))
    said = pd.DataFrame(told, columns=["login", "kind", "note"]).groupby("login").note
    grades["note"] = said.agg("; ".join).reindex(grades.index)
    grades.round(2).to_csv(Path(out) / "grades.csv", float_format="%g")
    _write_imports(grades.reset_index(), name, whole, Path(out))
    return told


def _late_days(roster, name, course):
    """Return the days late, and those beyond the free ones.

    Every day of an earlier assignment in course.toml uses up a free day.
    """
    import numpy as np

    columns = [f"late_{one.split('_')[0]}" for one in course.deadlines]
    if unknown := [one for one in roster if one.startswith("late") and one not in columns]:
        raise ValueError(f"the roster has the columns {unknown}; known are {columns}.")
    days = roster.set_index("login").reindex(columns=columns).replace("", "0").fillna("0")
    days, own = np.ceil(days.astype(float)), f"late_{name.split('_')[0]}"
    free = (course.late_days - days.cumsum(axis=1)[own] + days[own]).clip(lower=0)
    return days[own], (days[own] - free).clip(lower=0)


def _write_imports(grades, name, whole, out):
    """Write the files that the gradebooks of Canvas and Moodle import, or remove older ones."""
    if grades.total.isna().any():
        for platform in ("canvas", "moodle"):
            (out / f"{platform}.csv").unlink(missing_ok=True)
        return
    canvas = [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", name],
        ["    Points Possible", "", "", "", "", whole],
    ]
    moodle = [["Username", "Full name", "Email address", name]]
    for one in grades.itertuples():
        canvas.append([one.name, one.id, "", one.login, "", f"{one.total:g}"])
        moodle.append([one.login, one.name, one.email, f"{one.total:g}"])
    write_file(out / "canvas.csv", csv_text(canvas))
    write_file(out / "moodle.csv", csv_text(moodle))
