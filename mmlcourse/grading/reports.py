"""What the teacher and the student read: one table, one page per student, Gradescope's file.

Names, messages and texts come from students, so a cell never is a formula and a page never has
their HTML.
"""

import csv
import html
import io
import json
from pathlib import Path

from mmlcourse.text import no_formula, printable
from mmlkit.files import write_file

__all__ = ["csv_text", "gradescope_results", "html_table", "page", "safe_cells", "write_reports"]

PAGE_START = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 sans-serif;max-width:50rem;margin:2rem auto}}
th,td{{padding:.15rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid #ddd}}
pre{{white-space:pre-wrap}}</style>"""


def write_reports(results, out):
    """Write points.csv and one page per student.

    A row of points.csv that the teacher has changed stays as it is, and so does a row of a student
    who is not in `results`. A copy of what the grader wrote is in graded/points.csv; a row that
    differs from it is the teacher's.

    Args:
        results: a list of results of `grade_notebook`.
        out: the folder.

    Returns:
        The path of points.csv.

    Raises:
        ValueError: points.csv was saved in another form (from a private function).
    """
    out = Path(out)
    rows = [["student", "question", "points", "of", "message"]]
    for result in results:
        for one in result["questions"]:
            points = "" if one["points"] is None else one["points"]
            rows.append([result["student"], one["name"], points, one["of"], one["message"]])
        write_file(out / "pages" / f"{result['student']}.html", page(result))
    cells = list(map(safe_cells, rows))
    copy, table = out / "graded" / "points.csv", out / "points.csv"
    before, now = _rows(copy), _rows(table)
    by_hand = {key: row for key, row in now.items() if row != before.get(key)} if before else {}
    kept, here = [by_hand.get(tuple(row[:2]), row) for row in cells], {tuple(r[:2]) for r in cells}
    absent = [[row for key, row in old.items() if key not in here] for old in (now, before)]
    for path, lines in ((table, kept + absent[0]), (copy, cells + absent[1])):  # a kill loses none
        write_file(path, csv_text(lines))
    return table


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


def _rows(path):
    """Return {(student, question): row} of a points.csv, and nothing where there is none."""
    if not path.is_file():
        return {}
    with open(path, encoding="utf-8-sig", newline="") as file:  # spreadsheets write a mark first
        rows = list(csv.reader(file))
    if not rows or rows[0][:2] != ["student", "question"]:
        raise ValueError(
            f"{path} begins with {str(rows[:1])[:80]}, expected student, question, points, of, "
            "message. Save it as csv with commas, or move it away: it was not changed."
        )
    return {tuple(row[:2]): row for row in rows}


def page(result):
    """Return the page of one student.

    Args:
        result: a result of `grade_notebook`.

    Returns:
        HTML.
    """
    title = f"{result['assignment']}: {result['student']}"
    lines = [PAGE_START.format(title=_text(title)), f"<h1>{_text(title)}</h1>"]
    judged = [one for one in result["questions"] if one["points"] is not None]
    got, of = sum(one["points"] for one in judged), sum(one["of"] for one in judged)
    lines.append(f"<p>{got} of {of} points for code. The teacher adds those for texts.</p>")
    rows = [("question", "points", "message")]
    for one in result["questions"]:
        points = f"{'...' if one['points'] is None else one['points']} of {one['of']}"
        rows.append((one["name"], points, one["message"]))
    lines.append(html_table(rows))
    for one in result["questions"]:
        if one["text"]:
            lines += [f"<h2>{_text(one['name'])}</h2>", f"<pre>{_text(one['text'])}</pre>"]
    if result["notes"]:
        notes = "".join(f"<li>{_text(note)}</li>" for note in result["notes"])
        lines.append(f"<h2>Notes of the grader</h2><ul>{notes}</ul>")
    lines.append(f"<p>Sandbox: {_text(result['sandbox'])}.</p>")
    return "\n".join(lines) + "\n"


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
