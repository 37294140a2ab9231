"""Who handed in what: the roster of a course, and the files of Canvas, Moodle or a plain folder."""

import itertools
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

__all__ = ["Submission", "find_submissions", "read_roster"]

COLUMNS = ("login", "name", "email", "id")
# Canvas: name, perhaps LATE, the person's number, the file's number, the name that the file had.
CANVAS = re.compile(r"([^_]+)_(LATE_)?(\d+)_(\d+)_(.+)")
# Moodle: a folder with the person's full name and a number of this assignment alone.
MOODLE = re.compile(r"(.+)_(\d+)_assignsubmission_\w+")


class Submission(NamedTuple):
    """Hold a file that a student handed in.

    Attributes:
        student: the login, or the name of the file without a roster.
        path: the notebook.
        back: the name under which the learning platform takes a file back, or "".
    """

    student: str
    path: Path
    back: str


def read_roster(path):
    """Read the list of the students.

    Args:
        path: a .csv file with the columns login, name, email and id (that of the learning platform;
            it may be empty). A column such as late_a1 holds days by which a student was late.

    Returns:
        A pandas DataFrame of texts with these columns, a row for each student.

    Raises:
        ValueError: a column is missing, or two students have the same login.
    """
    import pandas as pd

    found = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    found = found.apply(lambda column: column.str.strip())
    if not {*COLUMNS} <= {*found}:
        raise ValueError(f"{path} has the columns {[*found]}, expected {', '.join(COLUMNS)}.")
    if twice := [*found.login[found.login.duplicated()]]:
        raise ValueError(f"{path} has logins twice: {twice}.")
    return found


def find_submissions(folder, roster=None):
    """Return the notebooks of a folder, one for each student.

    Args:
        folder: what Canvas or Moodle exports, unpacked, or a folder of files with logins or names.
        roster: of `read_roster`; None: the name of each file is the student's.

    Returns:
        (a list of Submission, sorted by student; a list of (student or "", kind, sentence) about
        files without a student, students with several files, and files that are no notebooks).

    Raises:
        FileNotFoundError: the folder has no notebook.
        ValueError: a notebook is a link.
    """
    folder, found, told = Path(folder), {}, []
    inside = [
        path
        for path in sorted(folder.rglob("*"))
        if not any(part[0] == "." or part == "__MACOSX" for part in path.relative_to(folder).parts)
    ]
    if links := [path.name for path in inside if path.is_symlink()]:
        raise ValueError(f"{folder} has links, {links[:5]}, expected the notebooks themselves.")
    keys = {} if roster is None else _keys(roster)
    for path in filter(Path.is_file, inside):
        name = path.relative_to(folder).as_posix()
        one, why = _submission(path, name, keys)
        if path.suffix.lower() != ".ipynb":
            told.append((one.student, "no notebook", f"{name} was not graded"))
        elif why:
            told.append(("", "unknown file", f"{name} was not graded: {why}"))
        else:
            found.setdefault(one.student, []).append(one)
            if (canvas := CANVAS.fullmatch(name)) and canvas[2]:
                told.append((one.student, "late", f"{name} says LATE: are its days in the roster?"))
    if not found:
        raise FileNotFoundError(f"{folder} has no .ipynb file of a student.")
    for student, several in found.items():
        several.sort(key=lambda one: (_number(one.back), one.path.stat().st_mtime, one.path))
        if len(several) > 1:
            names = ", ".join(str(one.path.relative_to(folder)) for one in several)
            told.append((student, "several files", f"graded is the last one of {names}"))
    return [found[student][-1] for student in sorted(found)], told


def _submission(path, name, keys):
    """Return the Submission of a file, and why it has no student, or ""."""
    top, _, inside = name.partition("/")
    plain = top if inside else path.stem
    canvas, moodle = CANVAS.fullmatch(name), MOODLE.fullmatch(top) if inside else None
    if not keys:
        return Submission(plain, path, ""), ""
    if canvas:
        found, back = [keys.get(f"#{canvas[3]}"), _people(canvas[1], keys)], name
    elif moodle:  # its number is another one in each assignment, so the name has to decide
        found, back = [_people(moodle[1], keys)], f"{top}/{path.name}"
    else:
        found, back = [_people(plain, keys)], ""
    found = [people for people in found if people]
    people = set.intersection(*found) if found else set()
    if len(people) == 1:
        return Submission(*people, path, back), ""
    named = ", ".join(sorted(set().union(*found)))
    why = f"its name fits several people, {named}" if named else "its name fits nobody"
    return Submission("", path, back), why


def _keys(roster):
    """Return {key: logins}: logins, e-mail addresses, #number, and names with any word first."""
    keys = {}
    for row in roster.itertuples():
        words = _words(row.name)
        names = ["".join(words[start:] + words[:start]) for start in range(len(words))]
        texts = [row.login, row.email, row.email.split("@")[0]]
        for key in (*("".join(_words(text)) for text in texts), *names, f"#{row.id}"):
            keys.setdefault(key, set()).add(row.login)
    return {key: logins for key, logins in keys.items() if key not in ("", "#")}


def _people(text, keys):
    """Return the logins of those whom runs of whole words in a text name, the longest runs."""
    words, spans = _words(text), {}
    for start, end in itertools.combinations(range(len(words) + 1), 2):
        if people := keys.get("".join(words[start:end])):
            spans[start, end] = people
    inside = lambda one: any(a <= one[0] and one[1] <= b for a, b in spans if (a, b) != one)
    return set().union(*(people for one, people in spans.items() if not inside(one)))


def _words(text):
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold())


def _number(name):
    """Return the number that Canvas gave the file: a later one has a larger number."""
    return int(found[4]) if (found := CANVAS.fullmatch(name)) else 0
