"""Grade a folder of notebooks: run each in a sandbox, and compare its raw values here.

The child process returns values and holds no answers. This process holds the answers and never
executes a student's code. What it has graded it writes at once, so that an interrupted grading
continues where it stopped.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import platform
import queue
import re
import warnings
from pathlib import Path

import numpy as np

from mmlcourse.grading import runner
from mmlcourse.grading.names import names_in
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import PLACEHOLDER, Edition, load_questions
from mmlcourse.grading.sandbox import find_sandbox
from mmlcourse.grading.similar import functions
from mmlcourse.lessons.checks.compare import KnownMistake, WrongAnswer
from mmlkit.files import write_file

__all__ = [
    "answers_in",
    "grade_files",
    "grade_notebook",
    "load_edition",
    "replay",
    "stored_results",
]

REFUSED = ("mmlkit", "mmlcourse", "transformers", "sentence_transformers")
SIZE = 1_000_000  # bytes of the results of a question
LARGEST = 20_000_000  # bytes of a notebook
LOAD_SECONDS = 10  # for one statement of the notebook
BY_HAND = "read by the teacher"


def load_edition(answers=None):
    """Return the edition of a course.

    Args:
        answers: the folder with edition.json that `assignments/course.py` wrote; None: the default
            edition, whose cases are public.

    Returns:
        An Edition.

    Raises:
        FileNotFoundError: the folder has no edition.json.
        ValueError: the file has other keys than those of an Edition.
    """
    if answers is None:
        return Edition(0)
    path = Path(answers) / "edition.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing. Expected the folder `answers` that `make course` wrote."
        )
    try:
        return Edition(**json.loads(path.read_text(encoding="utf-8")))
    except TypeError as error:
        raise ValueError(f"{path} is not as `make course` writes it: {error}.") from error


def grade_files(files, assignment, out, *, edition=None, jobs=2, sandbox=None, tell=None):
    """Grade every notebook that is not graded yet.

    Args:
        files: a list of Submission, one for each student, see `find_submissions`.
        assignment: such as "a1".
        out: the folder for the results, one .json file per student.
        edition: an Edition; by default the public one.
        jobs: notebooks at a time.
        sandbox: a Sandbox; by default the best of this machine.
        tell: a function that is called with a text after every notebook.

    Returns:
        A list of results, see `grade_notebook`, in the order of the files. A result also has
        "back", from its Submission.

    Raises:
        ValueError: `out` holds the grades of another assignment (from a private function).
    """
    name = load_questions(assignment)[0]
    _check_out(out, name)
    if not any(name.encode() in one.path.read_bytes() for one in files):
        warnings.warn(f"no notebook names {name}: was {assignment!r} meant?", stacklevel=2)
    edition, sandbox = edition or Edition(0), sandbox or find_sandbox()
    slots = queue.Queue()
    for slot in range(jobs):
        slots.put(slot)

    def work(file):
        place = Path(out) / "graded" / f"{file.student}.json"
        key = _key(file.path, name, edition)
        before = _stored(place)
        if before and before["key"] == key:
            return before
        slot = slots.get()
        try:
            result = grade_notebook(file.path, assignment, edition, sandbox, slot)
        finally:
            slots.put(slot)
        result |= {"student": file.student, "back": file.back}
        result["key"] = key if result.pop("ended", True) else None  # a broken machine is no answer
        write_file(place, json.dumps(result, indent=1))
        if tell:
            points = sum(one["points"] or 0 for one in result["questions"])
            tell(f"{file.student}: {points} points")
        return result

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(work, files))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _check_out(out, name):
    """Refuse a folder with the grades of another assignment, whose table would be lost."""
    for result in stored_results(out):
        if (other := result.get("assignment", name)) != name:
            raise ValueError(
                f"{out} holds the grades of {other!r}, expected {name!r}: name another with --out."
            )


def stored_results(out):
    """Return the results of all notebooks that were ever graded into a folder.

    Args:
        out: the folder.

    Returns:
        A list of results, see `grade_files`.
    """
    return [one for one in map(_stored, sorted(Path(out).glob("graded/*.json"))) if one]


def _stored(path):
    """Return a stored result, or None where there is none or the file is damaged."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))


def _key(path, name, edition):
    """Return a text that changes with the submission, the questions and the edition."""
    here = Path(__file__).parents[1]  # the checks hold some of the right answers
    folders = here / "grading", here / "lessons" / "checks"
    sources = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    source = b"".join(path.read_bytes() for path in sources)
    content = path.read_bytes() if path.stat().st_size <= LARGEST else b""
    return hashlib.sha256(content + source + f"{name} {edition}".encode()).hexdigest()


def grade_notebook(path, assignment, edition, sandbox, slot=0):
    """Grade one notebook; whatever it holds, this returns a result.

    Args:
        path: the notebook.
        assignment: such as "a1".
        edition: an Edition.
        sandbox: a Sandbox.
        slot: a number that no other running grading has.

    Returns:
        A dict: student, assignment, sandbox, notes (a list of texts) and questions, each with name,
        points (None: read by the teacher), of, message, and the student's text; functions, see
        `functions`; and ended, whether the notebook was loaded, took too long, or has nothing to
        run.
    """
    path = Path(path)
    name, questions = edition.questions(assignment)
    cells, notes = _read(path)
    documents, ended = {}, True
    code = [one for one in questions.values() if one.right]
    notes += _other_edition(cells, name, edition)
    useless = "" if cells else f"{notes[0]}."
    program = Program(cells, {one.object for one in code})
    if cells:
        documents, more, ended = _run(program, code, edition, sandbox, slot)
        notes += program.faults + more
    notes += [] if ended else [_NOT_RUN]
    judged, right = [], []
    for one in questions.values():
        points, message = None, BY_HAND
        if one.right:
            message, share = _judge(one, documents.get(one.name), edition, questions, program)
            points = round(share * one.points, 1)
            right += [one.name] if share == 1 else []
            if share < 1:
                advice = [one.advise(message, right), *program.lost(one.object)]
                message = useless or " ".join(advice)[:900]
        text = "" if one.right else _written(cells, one.name)
        if not one.right and text in ("", PLACEHOLDER):
            message = f"{BY_HAND}; no text was found in its cell"
        judged.append(
            {"name": one.name, "points": points, "of": one.points, "message": message, "text": text}
        )
    notes += _mentions(program, code)
    return {
        "student": path.stem,
        "assignment": name,
        "sandbox": str(sandbox),
        "notes": notes,
        "questions": judged,
        "functions": _functions(program, code),
        "ended": ended,
    }


def answers_in(path, assignment):
    """Return what a notebook has in common with others where it is copied.

    Args:
        path: the notebook.
        assignment: such as "a1".

    Returns:
        A dict with functions and questions, each with name and text, as `grade_notebook` has them.
    """
    questions, cells = load_questions(assignment)[1].values(), _read(path)[0]
    code = [one for one in questions if one.right]
    texts = [{"name": one.name, "text": _written(cells, one.name)} for one in questions]
    program = Program(cells, {one.object for one in code})
    return {"functions": _functions(program, code), "questions": texts}


def _functions(program, code):
    """Return the functions of all answers and of their helpers, see `functions`."""
    found, others = {}, {one.object for one in code}
    for one in code:
        with contextlib.suppress(RecursionError):  # a thousand brackets
            found |= functions(program.answer(one.object, others))
    return found


def _other_edition(cells, name, edition):
    """Return a note where the notebook was made for another edition or assignment."""
    text, ours = "\n".join(cell["source"] for cell in cells), (name, str(edition.public_seed))
    found = re.findall(r"""Assignment\(\s*["'](\w+)["'],\s*seed=(\d+)""", text)
    if not found or ours in found:
        return []
    said = "the notebook is of another edition: {} with seed {}; this course has {} with seed {}"
    return [said.format(*found[0], *ours)]


_NOT_RUN = (
    "nothing was run: this machine failed, or the notebook ended the process while it was loaded; "
    "the next `mmlkit grade` grades it again"
)


def _read(path):
    """Return the cells of a notebook and notes; no cells where it cannot be read."""
    try:
        if path.stat().st_size > LARGEST:
            return [], [f"the file has more than {LARGEST // 1_000_000} MB; clear its outputs"]
        notebook = json.loads(path.read_text(encoding="utf-8-sig"))
        cells = [
            {"cell_type": str(one.get("cell_type")), "source": _source(one)}
            for one in notebook["cells"]
        ]
        return cells, _other_python(notebook) if cells else ["the notebook has no cells"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return [], [f"the file is not a notebook of format 4 ({type(error).__name__})"]


def _other_python(notebook):
    """Return a note where the notebook was run by another Python, whose syntax may differ."""
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        theirs = str(notebook["metadata"]["language_info"]["version"])[:20]
        if theirs.split(".")[:2] != [*platform.python_version_tuple()[:2]]:
            ours = platform.python_version()
            return [f"the notebook was run with Python {theirs}, and the grader runs {ours}"]
    return []


def _source(cell):
    """Return the text of a cell; one without a text counts all the same, for the numbers."""
    return "".join(cell["source"]) if isinstance(cell["source"], (str, list)) else ""


def _run(program, questions, edition, sandbox, slot):
    """Return ({question: document}, notes, whether the notebook was loaded) of the runner."""
    job = {
        "statements": program.job(),
        "refused": REFUSED,
        "load_seconds": LOAD_SECONDS,
        "size": SIZE,
        "questions": [
            {
                "name": one.name,
                "object": one.object,
                "driver": one.driver_source(),
                "driver_name": one.driver and one.driver.__name__,
                "gradients": one.gradients,
                "changes": one.changes,
                "cases": [
                    runner.encode(list(case))
                    for case in edition.cases(one) + [list(case) for case, _ in one.edges]
                ],
                "seconds": one.seconds,
            }
            for one in questions
        ],
    }
    seconds = 60 + runner.PATIENCE * sum(one.seconds for one in questions)
    text, late = sandbox.run(job, seconds, slot)
    documents, notes, loaded = {}, [], late
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError):
            document = json.loads(line) if len(line) <= SIZE else {}
            loaded = loaded or "notes" in document
            notes += [str(one)[:300] for one in list(document.get("notes", ()))[:20]]
            documents.setdefault(document.get("question"), document)
    if late:
        notes.append(f"the notebook took longer than {seconds:g} seconds")
    return documents, notes, loaded


def replay(document):
    """Return a function that answers each call with the next recorded result.

    Args:
        document: a dict with "records", each with "value" or "error".

    Returns:
        A function of any arguments. It raises the recorded error again, under its name.
    """
    records = iter(document["records"])

    def function(*case):
        record = next(records)
        if "error" in record:
            name, text = (str(one) for one in record["error"])
            raise type(name if name.isidentifier() else "Exception", (Exception,), {})(text)
        return runner.decode(record["value"], _array)

    return function


def _array(values, kind):
    """Return an array of what should be numbers, or a text where it is something else."""
    try:
        array = np.asarray(values)
    except ValueError:
        return "a tensor with rows of different lengths"
    return array if array.dtype.kind in "biuf" else "a tensor without numbers"


def _judge(one, document, edition, questions, program):
    """Return "right" or the message about a mistake, and the share of the points."""
    if document is None:
        return "no result came back: the notebook ended the process, or it took too long.", 0
    if "failed" in document:
        return str(document["failed"])[:300], 0
    variants = edition.variants(questions.values())
    try:
        notes = [
            {**record, "gradients": runner.decode(record.get("gradients", []), _array)}
            for record in document["records"]
        ]
        one.refuse(program.answer(one.object, {other.object for other in questions.values()}))
        one.compare(replay(document), edition.cases(one), variants, notes, show=False)
        return "right", 1
    except WrongAnswer as error:
        named = isinstance(error, KnownMistake) and not one.faulty
        named = named and not _of_another_edition(one, document, edition)
        return f"not yet: {error}"[:600], edition.partial if named else 0
    except Exception as error:  # a forged document may hold anything
        return f"the results cannot be read ({type(error).__name__}).", 0


def _of_another_edition(one, document, edition):
    """Return whether results are right under other variants: nobody made a mistake there."""
    cases = edition.cases(one)
    for values in itertools.product(*one.variants.values()):
        with contextlib.suppress(Exception):  # a forged document may hold anything
            one.compare(replay(document), cases, dict(zip(one.variants, values)), show=False)
            return True
    return False


def _written(cells, name):
    """Return the text behind "Answer to NAME:", with the text cells that a student added below."""
    marker = f"**Answer to {name}:**"
    places = [number for number, cell in enumerate(cells) if marker in cell["source"]]
    if not places:
        return ""
    texts = [cells[places[0]]["source"].split(marker, 1)[1]]
    for cell in cells[places[0] + 1 :]:
        title = cell["source"].lstrip().startswith(("# ", "## "))  # of the next question
        if cell["cell_type"] != "markdown" or title or "**Answer to " in cell["source"]:
            break
        texts.append(cell["source"])
    return "\n\n".join(texts).strip()[:20_000]


def _mentions(program, questions):
    """Return a note for every name in the code that would do the exercise around it."""
    avoided = {one.object: {*one.avoid} for one in questions}
    anywhere, found = set().union(*avoided.values()), set()
    for one in program.statements:
        own = avoided.get(getattr(one.node, "name", None), anywhere) | {*REFUSED}
        found |= {f"cell {one.cell} uses {name}; read it" for name in names_in(one.node) & own}
    return sorted(found)
