"""A leaderboard of prediction files in the format of the CS224N project.

Where the labels are public, as those of data/mini, the board is for practice: anybody can copy the
labels. For grades a teacher gives a source whose labels nobody else has.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mmlcourse.grading.reports import PAGE_START, csv_text, html_table, safe_cells
from mmlcourse.studies.course_score import (
    TASKS,
    constant_accuracies,
    overall_score,
    task_score,
)
from mmlcourse.studies.cs224n import find_predictions, plain, read_predictions
from mmlkit.data.loading import load_task
from mmlkit.files import write_file

__all__ = ["HEADER", "Row", "rank", "write_board"]


class Row(NamedTuple):
    """Hold one line of the board.

    Attributes:
        place: from 1; equal scores share a place. A baseline and a faulty team have none, "".
        team: the name of the folder.
        sst: the accuracy, to three decimals, or "" where the file is missing or faulty.
        quora: the accuracy.
        sts: Pearson's correlation.
        overall: the course's score.
        date: the last change of the files, in UTC.
        note: "baseline", or the first fault.
    """

    place: int | str
    team: str
    sst: float | str
    quora: float | str
    sts: float | str
    overall: float | str
    date: str
    note: str


HEADER = list(Row._fields)


def rank(folder, source, split="dev"):
    """Return the board of all teams, with the baseline of constant predictions among them.

    Two scores that are equal to three decimals are a tie.

    Args:
        folder: a folder with one folder per team, which has the prediction files in it or in its
            predictions/.
        source: "mini", or the folder with the labelled files of sst, quora and sts.
        split: "dev" or "test".

    Returns:
        A list of Row, the best first.

    Raises:
        FileNotFoundError: there is no team.
        ValueError: a task has no labelled file.
    """
    teams = sorted(path for path in Path(folder).glob("[!.]*") if path.is_dir())
    teams = [path for path in teams if path.name != "__MACOSX"]  # of a zip file
    if not teams:
        raise FileNotFoundError(f"{folder} has no folders. Give a folder with one per team.")
    truth = {name: _truth(name, source, split) for name in TASKS[None]}
    rows = [_team(path, truth, split) for path in teams] + [_baseline(truth)]
    rows.sort(key=lambda row: (-(row.overall if row.overall != "" else -1), row.date, row.team))
    scores = [row.overall for row in rows if not row.note]
    place = lambda row: "" if row.note else 1 + sum(one > row.overall for one in scores)
    return [row._replace(place=place(row)) for row in rows]


def _truth(name, source, split):
    """Return the labelled Split of a task."""
    rows = getattr(load_task(name, source), split, None)
    if rows is None or rows.labels is None:
        raise ValueError(f"{source} has no labelled {split} file of {name} to compare with.")
    return rows


def _team(folder, truth, split):
    """Return the row of a team; its place comes later."""
    scores, note, dates = {}, "", []
    for name, rows in truth.items():
        path = find_predictions(folder, name, split)
        try:
            # perhaps to another team's file, or to the labels
            if path.is_symlink() or (path.parent != folder and path.parent.is_symlink()):
                raise ValueError(f"{path.name} is a link, expected a file")
            dates.append(path.stat().st_mtime)
            answers, problems = read_predictions(path, name, rows)
            if problems:
                raise ValueError(str(problems[0]))
            given = [answers[plain(one)] for one in rows.ids]
            scores[name] = task_score(rows.task, given, rows.labels)
        except (OSError, ValueError) as error:
            missing = f"{path.name} is missing" if isinstance(error, OSError) else str(error)
            scores[name], note = "", note or missing
    date = f"{datetime.fromtimestamp(max(dates), UTC):%Y-%m-%d %H:%M}" if dates else ""
    overall = "" if note else round(overall_score(*scores.values()), 3)
    shown = [one if one == "" else round(one, 3) for one in scores.values()]
    return Row("", folder.name, *shown, overall, date, note)


def _baseline(truth):
    """Return the row of always predicting the most frequent label, and one constant score."""
    scores = [
        max(constant_accuracies(rows).values()) if rows.task.labels else 0.0
        for rows in truth.values()
    ]
    shown = [round(one, 3) for one in (*scores, overall_score(*scores))]
    return Row("", "most frequent label", *shown, "", "baseline")


def write_board(rows, path):
    """Write the board as .csv and .html.

    Args:
        rows: a list of Row.
        path: the files' path without ending.

    Returns:
        The path of the .html file.
    """
    rows = [HEADER, *rows]
    page = f"{PAGE_START.format(title='Leaderboard')}<h1>Leaderboard</h1>\n{html_table(rows)}\n"
    for ending, content in ((".csv", csv_text(map(safe_cells, rows))), (".html", page)):
        write_file(f"{path}{ending}", content)
    return Path(f"{path}.html")
