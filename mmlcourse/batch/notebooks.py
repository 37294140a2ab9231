"""Notebooks run headless: each in a process of its own, and several at a time.

papermill executes them. It writes its output also when a cell fails, so a finished notebook is one
that was renamed to its final name. A run without progress is stopped, see `processes`.
"""

import ast
import difflib
import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from mmlcourse.batch.processes import STALLED, run_watched
from mmlcourse.shipped import shipped_folder
from mmlcourse.text import count

__all__ = ["find_notebooks", "list_notebooks", "run_notebook", "run_notebooks", "usable_cores"]


def find_notebooks(wanted):
    """Return the paths of notebooks, in the order given.

    Args:
        wanted: a list of numbers ("02"), names ("02_finetuning"), paths, or "all".

    Returns:
        A list of paths, each once.

    Raises:
        FileNotFoundError: there is no such notebook, or no folder of notebooks.
    """
    here = Path.cwd() / "notebooks"
    lessons = "[0-9][0-9]_*.ipynb"  # a project may have a folder notebooks/ of its own
    folder = here if any(here.glob(lessons)) else shipped_folder("notebooks")
    known = sorted(folder.glob(lessons)) if folder else []
    found = {}
    for name in wanted:
        if name.endswith(".ipynb") and Path(name).is_file():
            matches = [Path(name)]
        else:
            names = (name, name.zfill(2), name.removesuffix(".ipynb"))
            matches = [path for path in known if {"all", path.stem, path.stem[:2]} & {*names}]
        if not matches:
            raise FileNotFoundError(
                f"There is no notebook {name!r}.{_suggestion(name, known)} Known: "
                f"{', '.join(path.stem for path in known) or 'none'}"
                f"{'' if folder else ' (run it from a checkout of the repository)'}."
            )
        for path in matches:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _suggestion(name, known):
    if name in ("fast", "colab", "paper"):
        return f" Did you mean --profile {name}?"
    names = {name: path.stem for path in known for name in (path.stem[3:], path.stem)}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""


def notebook_text(path, kind):
    """Return the text of some cells of a notebook.

    Args:
        path: the notebook.
        kind: the type or a tag of these cells, such as "markdown" or "parameters".

    Returns:
        A text.

    Raises:
        ValueError: the file is not a notebook.
    """
    try:
        cells = [
            ("".join(cell["source"]), {cell["cell_type"], *cell["metadata"].get("tags", ())})
            for cell in json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a notebook ({type(error).__name__}: {error}). Expected a file that "
            "Jupyter has written; save or copy it again."
        ) from error
    return "\n".join(text for text, kinds in cells if kind in kinds)


def notebook_parameters(path):
    """Return the names that a notebook's cell tagged "parameters" assigns.

    Args:
        path: the notebook.

    Returns:
        A list of names.

    Raises:
        ValueError: the cell is not Python.
    """
    code = notebook_text(path, "parameters")
    try:
        nodes = ast.parse(code).body
    except (SyntaxError, ValueError) as error:  # the second: NUL
        raise ValueError(
            f"{path}: the cell tagged parameters is not Python ({error}). Expected lines such as "
            "seed = 0; correct them in Jupyter."
        ) from error
    assignments = [node for node in nodes if isinstance(node, ast.Assign)]
    targets = [target for node in assignments for target in node.targets]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def list_notebooks():
    """Return one text with the name, first heading and parameters of every notebook."""
    known = find_notebooks(["all"])
    width = max(len(path.stem) for path in known)
    lines = []
    for path in known:
        titles = re.findall(r"^# (.*)", notebook_text(path, "markdown"), re.M)
        lines.append(f"{path.stem:<{width}}  {(titles or [path.stem])[0]}")
        lines.append(f"{'':<{width}}  parameters: {', '.join(notebook_parameters(path))}")
    return "\n".join(lines)


# ---- parameters ----


_JSON = {"true": True, "false": False, "null": None}


def parse_value(text):
    """Return the value of a Python literal such as 1e-4, or of JSON's true, false and null.

    Any other text stays a text.

    Args:
        text: a text.

    Returns:
        The value.
    """
    if text in _JSON:
        return _JSON[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def parse_parameters(assignments):
    """Turn ["epochs=1", "source=data"] into {"epochs": 1, "source": "data"}.

    Args:
        assignments: a list of texts.

    Returns:
        {name: value}, see `parse_value`.

    Raises:
        ValueError: an assignment is not of the form NAME=VALUE.
    """
    parameters = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"parameter {assignment!r} is not of the form NAME=VALUE.")
        parameters[name] = parse_value(value)
    return parameters


def resolve_parameters(path, out, parameters):
    """Return the parameters of one notebook, with absolute folders.

    A notebook runs in its own folder, so a folder named from the current folder is made absolute.
    A text is a folder or a file in three cases: it starts with /, ./, ../ or ~; it contains a / and
    exists; or its parameter is output_dir. Other values stay, such as the hub id google/bert_x.

    Args:
        path: the notebook.
        out: the folder for the results; output_dir is set to it unless it is given.
        parameters: {name: value}.

    Returns:
        {name: value}.

    Raises:
        ValueError: the notebook does not have one of the parameters.
    """
    known = notebook_parameters(path)
    if unknown := [name for name in parameters if name not in known]:
        raise ValueError(
            f"{path.name} has no parameter {', '.join(map(repr, unknown))}. "
            f"It has {', '.join(known)}."
        )
    found = {"output_dir": str(out), **parameters}
    return {name: resolve(name, value) for name, value in found.items() if name in known}


def resolve(name, value):
    """Return the value of a parameter, a folder or file as an absolute path.

    Args:
        name: the parameter.
        value: its value; see `resolve_parameters`.

    Returns:
        The value.
    """
    if not isinstance(value, str):
        return value
    first, *rest = value.replace(os.sep, "/").split("/")
    explicit = first in (".", "..") or value.startswith("~") or Path(value).is_absolute()
    is_path = explicit or name == "output_dir" or (rest and Path(value).exists())
    return str(Path(value).expanduser().resolve()) if is_path else value


# ---- running ----


def usable_cores():
    """Return how many CPU cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def default_jobs():
    """Return how many notebooks run at a time: one for each CPU core, or one on a GPU."""
    from mmlkit.runtime import pick_device

    return usable_cores() if pick_device().type == "cpu" else 1


def _threads(jobs):
    """Return OMP_NUM_THREADS of each of several jobs; None where torch chooses."""
    share = max(1, usable_cores() // jobs) if jobs > 1 else None
    return os.environ.get("OMP_NUM_THREADS") or share


def describe_run(paths, out, parameters, jobs):
    """Return one text that says what `run_notebooks` would do.

    Args:
        paths: as in `run_notebooks`.
        out: as in `run_notebooks`.
        parameters: as in `run_notebooks`.
        jobs: as in `run_notebooks`.

    Returns:
        A text with a line for each notebook.
    """
    lines = []
    for path, given in zip(paths, map(dict.items, _check_runs(paths, out, parameters))):
        lines.append(f"{path.stem}: {', '.join(f'{name}={value!r}' for name, value in given)}")
    threads = _threads(jobs)
    each = f" with {count(int(threads), 'thread')} each" if threads else ""
    last = f"{count(len(paths), 'notebook')} would run, {jobs} at a time{each}"
    return "\n".join([*lines, f"{last}, into {Path(out).resolve()}"])


def _check_runs(paths, out, parameters):
    """Return the parameters of each notebook; raise ValueError where one would be overwritten."""
    names = [path.stem for path in paths]
    for path in paths:
        done = Path(out, path.name).resolve()
        if names.count(path.stem) > 1:
            reason = f"{names.count(path.stem)} notebooks have the name {path.name}"
        elif done == path.resolve():
            reason = f"the result of {path} would be written over it"
        else:
            continue
        raise ValueError(f"{reason}; run it alone, into another folder: --out NAME.")
    return [resolve_parameters(path, out, parameters) for path in paths]


def run_notebooks(paths, out, parameters, *, jobs=1, **options):
    """Execute notebooks into one folder, several at a time.

    With several jobs each has its share of the CPU cores, unless the user has set OMP_NUM_THREADS.
    Parameters are checked for all notebooks before the first one starts.

    Args:
        paths: the notebooks, in the order in which they are started.
        out: the folder for the executed notebooks.
        parameters: {name: value}, for each of them.
        jobs: how many run at a time.
        **options: stall, limit and attempts, as in `run_notebook`.

    Returns:
        The paths of the notebooks that failed.

    Raises:
        ValueError: two notebooks have the same name, one would be written over itself, or one lacks
            a parameter.
    """
    _check_runs(paths, out, parameters)
    stop, pool = threading.Event(), ThreadPoolExecutor(jobs)
    options |= {"threads": _threads(jobs), "stop": stop.is_set}
    try:
        done = list(pool.map(lambda path: run_notebook(path, out, parameters, **options), paths))
    finally:  # also after Ctrl-C: running notebooks are stopped, waiting ones do not start
        stop.set()
        pool.shutdown(cancel_futures=True)
    return [path for path, success in zip(paths, done) if not success]


# Papermill, which ends with the process that started it; its kernel then ends by itself. Otherwise
# both would go on after a SIGKILL.
_PAPERMILL = """import sys
from mmlcourse.batch.processes import end_with_parent, without_iri_grammar
end_with_parent(int(sys.argv.pop(1)))
without_iri_grammar()
from papermill.cli import papermill
papermill(prog_name="papermill")
"""
_OPTIONS = "-k python3 --start-timeout 600 --no-progress-bar --log-level ERROR"


def execute_notebook(path, output, parameters, environment, **options):
    """Execute one notebook through papermill, in the notebook's own folder.

    Args:
        path: the notebook.
        output: the path of the executed notebook, written after every cell.
        parameters: {name: value}.
        environment: environment variables beside those of this process.
        **options: stall, limit and stop, as in `run_watched`.

    Returns:
        (seconds, status, text), as `run_watched`.
    """
    # Papermill fills in parameters in braces, also in the names of files.
    names = [re.sub("([{}])", r"\1\1", str(one.absolute())) for one in (path, output)]
    command = [sys.executable, "-c", _PAPERMILL, str(os.getpid()), *names, *_OPTIONS.split()]
    # Not JSON, which is YAML but for some numbers: papermill reads 5e-05 as a text.
    command += ["--cwd", str(path.parent), "-y", yaml.safe_dump(parameters, sort_keys=False)]
    environment = {**os.environ, "MMLKIT_HEADLESS": "1", **environment}
    return run_watched(command, environment, output, **options)


def run_notebook(path, out, parameters, *, attempts=2, threads=None, **options):
    """Execute one notebook into a folder, under its own name.

    A run is stopped when for `stall` minutes it has used no CPU time and no cell has started,
    printed or ended. A stopped run is tried once more, because a kernel can miss a wake-up. The
    part of a failed notebook that was executed is kept as NAME.failed.ipynb.

    Args:
        path: the notebook.
        out: the folder for the executed notebook, made when it is missing.
        parameters: {name: value}; see `resolve_parameters`.
        attempts: how often a run without progress is started.
        threads: OMP_NUM_THREADS of the kernel; None: what torch chooses.
        **options: stall (5 minutes when it is not given), limit and stop, as in `run_watched`.

    Returns:
        Whether the notebook succeeded.
    """
    path, out = Path(path), Path(out)
    parameters = resolve_parameters(path, out, parameters)
    out.mkdir(parents=True, exist_ok=True)
    names = (f".{path.stem}.{os.getpid()}", path.stem, f"{path.stem}.failed")
    temporary, done, failed = (out / f"{name}.ipynb" for name in names)
    environment, options = (
        {"OMP_NUM_THREADS": str(threads)} if threads else {},
        {"stall": 5} | options,
    )
    for left in reversed(range(attempts)):
        _print(f"{path.stem} started")
        seconds, status, told = execute_notebook(
            path, temporary, parameters, environment, **options
        )
        if status == 0:
            os.replace(temporary, done)
            failed.unlink(missing_ok=True)
            _print(f"{path.stem} done in {seconds:.0f} s")
            return True
        again = left and status == STALLED
        more = "; it is tried once more" if again else ""
        _print(f"{path.stem} failed after {seconds:.0f} s{more}\n{told}")
        if not again:
            break
    if temporary.is_file():
        os.replace(temporary, failed)
        _print(f"The executed part of {path.stem} is in {failed}")
    return False


def _print(text):
    """Print in one piece, so that the lines of two runs do not mix."""
    print(text.rstrip("\n") + "\n", end="", flush=True)
