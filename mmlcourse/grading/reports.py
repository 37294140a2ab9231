"""What the teacher and the student read: one table, one page per student, Gradescope's file.

Names, messages and texts come from students, so a cell never is a formula and a page never has
their HTML.
"""

import csv
import html
import io
import json
import zipfile
from pathlib import Path

from mmlcourse.text import no_formula, printable
from mmlkit.files import atomic_write, write_file

__all__ = [
    "csv_text",
    "gradescope_results",
    "html_table",
    "page",
    "safe_cells",
    "write_feedback",
    "write_reports",
]

PAGE_START = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 sans-serif;max-width:50rem;margin:2rem auto}}
th,td{{padding:.15rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid #ddd}}
pre{{white-space:pre-wrap}}</style>"""


COLUMNS = ["student", "question", "points", "of", "message", "by", "comment"]
OPEN = ("", None)  # points that a teacher has to give
BY_TEACHER = ["points", "message", "comment"]  # the cells that a teacher changes


def write_reports(results, out):
    """Write points.csv and one page per student.

    A cell of points.csv that the teacher has changed stays as it is, and so does a row of a student
    who is not in `results`. A copy of what the grader wrote is in graded/points.csv; a cell that
    differs from it is the teacher's. Points of the teacher are marked so in the column `by`.

    Args:
        results: a list of results of `grade_notebook`.
        out: the folder.

    Returns:
        (points.csv as a DataFrame with the index student and question, sentences about points that
        changed, or that the teacher and the grader see differently).

    Raises:
        ValueError: points.csv was saved in another form (from a private function).
    """
    import pandas as pd

    out = Path(out)
    rows = []
    for result in results:
        for one in result["questions"]:
            points = "" if one["points"] is None else f"{one['points']:g}"
            row = [result["student"], one["name"], points, one["of"], one["message"], "", ""]
            rows += [safe_cells(row)] if one["of"] else []  # else it is left out of the course
    new = pd.DataFrame(rows, columns=COLUMNS).set_index(COLUMNS[:2])
    copy, table = out / "graded" / "points.csv", out / "points.csv"
    old, now = _points(copy), _points(table)
    merged, told = _merge(new, old, now)
    for path, lines, left in ((table, merged, now), (copy, new, old)):  # a kill loses none
        lines = pd.concat([lines, left[~left.index.isin(new.index)]])
        write_file(path, lines.to_csv(lineterminator="\n"))
        merged = lines if path == table else merged
    cells = iter(merged.to_dict("records"))  # in the order of the results
    for result in results:
        marked = [{**one, **next(cells)} for one in result["questions"] if one["of"]]
        text = page({**result, "questions": marked})
        write_file(out / "pages" / f"{result['student']}.html", text)
    return merged, told


def _merge(new, old, now):
    """Return the table of the grader with the cells that a teacher changed, and what to tell."""
    before, merged = old.reindex(new.index).fillna(new), now.reindex(new.index).fillna(new)
    changed = merged[BY_TEACHER] != before[BY_TEACHER]
    changed[~new.index.isin(now.index)] = False  # a row that the teacher deleted
    changed["points"] |= merged["by"] == "teacher"
    merged["of"] = new["of"]
    merged[BY_TEACHER] = new[BY_TEACHER].where(~changed, merged[BY_TEACHER])
    merged["by"] = changed["points"].map({True: "teacher", False: "grader"})
    told = []
    columns = merged["points"], new["points"], before["points"], changed["points"]
    for (student, question), mine, judged, earlier, kept in zip(merged.index, *columns):
        if kept and judged not in ("", mine):
            told.append(f"{student} {question}: yours stays, {mine}; the grader's is {judged}.")
        elif not kept and judged != earlier:
            told.append(f"{student} {question}: {earlier} becomes {judged}.")
    return merged, told


def csv_text(rows):
    """Return a table as csv.

    Args:
        rows: lists of cells, which are written as they are; see `safe_cells`.

    Returns:
        A text.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def safe_cells(row):
    """Return the cells of a row as texts, of which none is a spreadsheet's formula.

    Args:
        row: a list of values.

    Returns:
        A list of texts.
    """
    return [no_formula(printable(str(cell)).replace("\n", " ")) for cell in row]


def html_table(rows):
    """Return a table as HTML.

    Args:
        rows: lists of cells, the header first.

    Returns:
        A text.
    """
    kinds = ["th", *["td"] * len(rows[1:])]
    lines = [
        "".join(f"<{kind}>{_text(cell)}</{kind}>" for cell in row) for kind, row in zip(kinds, rows)
    ]
    return "\n".join(["<table>", *(f"<tr>{line}</tr>" for line in lines), "</table>"])


def _points(path):
    """Return a points.csv as a DataFrame with the index student and question."""
    import pandas as pd

    empty = pd.DataFrame(columns=COLUMNS, dtype=str)
    found = empty
    if path.is_file():  # spreadsheets write a mark first
        found = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    if [*found.columns[:3]] != COLUMNS[:3]:
        raise ValueError(
            f"{path} begins with {', '.join(found.columns)[:80]}, expected {', '.join(COLUMNS)}. "
            "Save it as csv with commas, or move it away: it was not changed."
        )
    for row in found[~found.points.str.fullmatch(r"(\d+(\.\d+)?)?")].itertuples():
        raise ValueError(
            f"{path}: {row.student} {row.question} has {row.points!r}, expected a number of points."
        )
    return found.reindex(columns=COLUMNS, fill_value="").set_index(COLUMNS[:2])


def page(result):
    """Return the page of one student.

    Args:
        result: a result of `grade_notebook`; a question may have a comment of the teacher.

    Returns:
        HTML.
    """
    title = f"{result['assignment']}: {result['student']}"
    lines = [PAGE_START.format(title=_text(title)), f"<h1>{_text(title)}</h1>"]
    asked, rows = result["questions"], [("question", "points", "message", "comment")]
    for one in asked:
        points = f"{'...' if one['points'] in OPEN else one['points']} of {one['of']}"
        rows.append((one["name"], points, one["message"], one.get("comment", "")))
    got = sum(float(one["points"] or 0) for one in asked)
    of = sum(int(one["of"]) for one in asked)
    left = sum(int(one["of"]) for one in asked if one["points"] in OPEN)
    open_ = f" Not marked yet: {left} points." if left else ""
    lines.append(f"<p>{got:g} of {of - left} points.{open_}</p>")
    lines.append(html_table(rows))
    for one in result["questions"]:
        if one["text"]:
            lines += [f"<h2>{_text(one['name'])}</h2>", f"<pre>{_text(one['text'])}</pre>"]
    if result["notes"]:
        notes = "".join(f"<li>{_text(note)}</li>" for note in result["notes"])
        lines.append(f"<h2>Notes of the grader</h2><ul>{notes}</ul>")
    lines.append(f"<p>Sandbox: {_text(result['sandbox'])}.</p>")
    return "\n".join(lines) + "\n"


def write_feedback(results, out):
    """Pack the pages for the learning platform: Canvas and Moodle take them back in one archive.

    Canvas takes a file back under the name with which it gave it out, and shows it under the name
    that it had first. So there the page is the text cell of a notebook.

    Args:
        results: a list of results of `grade_files`, whose pages are written.
        out: the folder.

    Returns:
        The path of the archive.
    """
    with atomic_write(Path(out) / "feedback.zip") as path, zipfile.ZipFile(path, "w") as file:
        for result in results:
            text = (Path(out) / "pages" / f"{result['student']}.html").read_text(encoding="utf-8")
            name = result["back"] or f"{result['student']}.ipynb"
            if name == result["back"] and "/" not in name:
                cell = {"cell_type": "markdown", "id": "page", "metadata": {}, "source": text}
                whole = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
                file.writestr(name, json.dumps(whole))
            else:
                file.writestr(str(Path(name).with_suffix(".html")), text)
    return Path(out) / "feedback.zip"


def gradescope_results(result):
    """Return the content of Gradescope's results.json.

    Args:
        result: a result of `grade_notebook`.

    Returns:
        A text in JSON. A question that the teacher reads is left out.
    """
    tests = [
        {
            "name": one["name"],
            "score": one["points"],
            "max_score": one["of"],
            "output": printable(one["message"]),
            "visibility": "visible",
        }
        for one in result["questions"]
        if one["points"] is not None
    ]
    notes = "\n".join([*result["notes"], f"Sandbox: {result['sandbox']}."])
    return json.dumps({"tests": tests, "output": printable(notes)}, indent=1)


def _text(text):
    return html.escape(printable(str(text)))
