"""Notebooks run headless: each in a process of its own, and several at a time.

papermill executes them. It writes its output also when a cell fails, so a finished notebook is one
that was renamed to its final name. A run without progress is stopped, see `processes`.
"""

import ast
import contextlib
import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from mmlcourse.batch.processes import STALLED, run_watched
from mmlcourse.machine import usable_cores
from mmlcourse.shipped import shipped_folder

__all__ = ["find_notebooks", "list_notebooks", "run_notebook", "run_notebooks", "stated_minutes"]


def find_notebooks(wanted):
    """Return the paths of notebooks, in the order given.

    Args:
        wanted: a list of numbers ("02"), names ("02_finetuning"), paths, or "all".

    Returns:
        A list of paths, each once.

    Raises:
        FileNotFoundError: there is no such notebook.
    """
    known = sorted(shipped_folder("notebooks").glob("[0-9][0-9]_*.ipynb"))
    found = {}
    for name in wanted:
        if name.endswith(".ipynb") and Path(name).is_file():
            matches = [Path(name)]
        else:
            names = {name, f"0{name}", name.removesuffix(".ipynb")}
            matches = [path for path in known if {"all", path.stem, path.stem[:2]} & names]
        if not matches:
            raise FileNotFoundError(
                f"There is no notebook {name!r}. Known: all, "
                f"{', '.join(path.stem for path in known)}, or the path of an .ipynb file."
            )
        for path in matches:
            found.setdefault(path.resolve(), path)
    return list(found.values())


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
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if "worksheets" in content:
            raise ValueError(
                f"{path} is a notebook of format 3. Convert it: jupyter nbconvert --to notebook "
                f"--inplace '{path}'."
            )
        found = []
        for cell in content["cells"]:
            if kind in (cell["cell_type"], *(cell["metadata"].get("tags") or ())):
                found.append("".join(cell["source"]))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a notebook: {error!r}. Save or copy it again.") from error
    return "\n".join(found)


def stated_minutes(path):
    """Return the minutes of the profile fast that a notebook's first table states.

    Args:
        path: the notebook.

    Returns:
        An integer; 0 where it states none.
    """
    stated = re.search(r"fast: (\d+) min", notebook_text(path, "markdown"))
    return int(stated[1]) if stated else 0


def notebook_parameters(path):
    """Return the names that a notebook's cell tagged "parameters" assigns.

    Args:
        path: the notebook.

    Returns:
        A list of names.

    Raises:
        ValueError: the cell is not Python.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    text = re.sub("^%%.*", "", notebook_text(path, "parameters"), flags=re.M)
    try:
        nodes = ast.walk(ast.parse(TransformerManager().transform_cell(text)))
    except SyntaxError as error:
        raise ValueError(f"{path}, cell tagged parameters: {error}.") from error
    nodes = [node for node in nodes if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [one for node in nodes for one in getattr(node, "targets", None) or [node.target]]
    names = [one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    return [one.id for one in names if isinstance(one.ctx, ast.Store)]


def list_notebooks():
    """Return one text with the name, first heading and parameters of every notebook."""
    known = find_notebooks(["all"])
    width = max(len(path.stem) for path in known)
    lines = []
    for path in known:
        title = re.search(r"^# (.*)", notebook_text(path, "markdown"), re.M)[1]
        lines.append(f"{path.stem:<{width}}  {title}")
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
    try:
        return _JSON[text] if text in _JSON else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_assignments(assignments):
    """Turn ["epochs=1", "source=data"] into {"epochs": "1", "source": "data"}.

    Args:
        assignments: a list of texts.

    Returns:
        {name: text}.

    Raises:
        ValueError: an assignment is not of the form NAME=VALUE.
    """
    found = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if not name or not value:
            raise ValueError(f"{assignment!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def resolve_parameters(path, out, parameters):
    """Return the parameters of one notebook, with absolute folders.

    Args:
        path: the notebook.
        out: the folder for the results; output_dir is set to it unless it is given.
        parameters: {name: value}, each value through `resolve`.

    Returns:
        {name: value}.

    Raises:
        ValueError: the notebook does not have one of the parameters.
    """
    known = notebook_parameters(path)
    if unknown := [name for name in parameters if name not in known]:
        raise ValueError(
            f"{path.name} has no parameter {', '.join(unknown)}: its cells tagged parameters "
            f"assign {known}."
        )
    found = {"output_dir": str(out), **parameters}
    return {name: resolve(name, value) for name, value in found.items() if name in known}


def resolve(name, value):
    """Return the value of a parameter, a folder or file as an absolute path.

    A notebook runs in its own folder, so a folder named from the current folder is made absolute.
    A text is a folder or a file in three cases: it starts with /, ./, ../ or ~; it contains a / and
    exists; or its parameter is output_dir. Other values stay, such as the hub id google/bert_x.

    Args:
        name: the parameter.
        value: its value.

    Returns:
        The value.
    """
    if not isinstance(value, str):
        return value
    explicit = re.match(r"~|\.\.?(/|$)", value) or Path(value).is_absolute()
    is_path = explicit or name == "output_dir" or ("/" in value and Path(value).exists())
    return str(Path(value).expanduser().resolve()) if is_path else value


# ---- running ----


def default_jobs():
    """Return how many notebooks run at a time: one for each CPU core, or one on a GPU."""
    from mmlkit.runtime import pick_device

    return usable_cores() if pick_device().type == "cpu" else 1


def check_runs(paths, out, parameters):
    """Return the parameters of notebooks that are executed into one folder.

    Args:
        paths: the notebooks.
        out: the folder for the executed notebooks.
        parameters: {name: value}, for each of them.

    Returns:
        A list of the results of `resolve_parameters`.

    Raises:
        ValueError: a notebook would be written over another one, or lacks a parameter.
    """
    places = {Path(out, path.name).resolve() for path in paths}
    if len(places) < len(paths) or places & {path.resolve() for path in paths}:
        raise ValueError(
            f"a notebook would be written over another one in {out}; run notebooks of the same "
            "name alone, into a folder of their own: --out NAME."
        )
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
        **options: stall and limit, as in `run_watched`.

    Returns:
        The paths of the notebooks that failed.
    """
    check_runs(paths, out, parameters)
    stop, pool = threading.Event(), ThreadPoolExecutor(jobs)
    if jobs > 1:
        options["threads"] = max(1, usable_cores() // jobs)
    options["stop"] = stop.is_set
    try:
        done = list(pool.map(lambda path: run_notebook(path, out, parameters, **options), paths))
    finally:  # also after Ctrl-C: running notebooks are stopped, waiting ones do not start
        stop.set()
        pool.shutdown(cancel_futures=True)
    return [path for path, success in zip(paths, done) if not success]


# Papermill, which ends with the process that started it; its kernel then ends by itself. Otherwise
# both would go on after a SIGKILL.
_PAPERMILL = """import json, sys
from mmlcourse.batch.processes import end_with_parent, without_iri_grammar
end_with_parent(int(sys.argv[1]))
without_iri_grammar()
import papermill
papermill.execute_notebook(**json.loads(sys.argv[2]))
"""


def execute_notebook(path, output, parameters, environment, **options):
    """Execute one notebook through papermill, in the notebook's own folder.

    Args:
        path: the notebook.
        output: the path of the executed notebook, written after every cell.
        parameters: {name: value}.
        environment: environment variables beside those of this process.
        **options: stall, limit, stop and changed, as in `run_watched`.

    Returns:
        (seconds, status, text), as `run_watched`.
    """
    # Papermill fills in parameters in braces, also in the names of files.
    names = [re.sub("([{}])", r"\1\1", str(one.absolute())) for one in (path, output)]
    fixed = {"kernel_name": "python3", "language": "python", "progress_bar": False}
    given = dict(zip(("input_path", "output_path"), names), cwd=str(path.parent), **fixed)
    given |= {"parameters": parameters, "start_timeout": 600}
    command = [sys.executable, "-c", _PAPERMILL, str(os.getpid()), json.dumps(given)]
    environment = {**os.environ, "MMLKIT_HEADLESS": "1", **environment}
    return run_watched(command, environment, output, **options)


def run_notebook(path, out, parameters, *, threads=None, stall=5, **options):
    """Execute one notebook into a folder, under its own name.

    A run is stopped when for `stall` minutes it has used no CPU time and no cell has started,
    printed or ended. A stopped run is tried once more, because a kernel can miss a wake-up. The
    part of a failed notebook that was executed is kept as NAME.failed.ipynb.

    Args:
        path: the notebook.
        out: the folder for the executed notebook, made when it is missing.
        parameters: {name: value}; see `resolve_parameters`.
        threads: OMP_NUM_THREADS of the kernel, unless the user has set it; None: torch chooses.
        stall: minutes without progress after which it is stopped.
        **options: limit and stop, as in `run_watched`.

    Returns:
        Whether the notebook succeeded.
    """
    path, out = Path(path), Path(out)
    parameters = resolve_parameters(path, out, parameters)
    out.mkdir(parents=True, exist_ok=True)
    names = (f".{path.stem}.{os.getpid()}", path.stem, f"{path.stem}.failed")
    temporary, done, failed = (out / f"{name}.ipynb" for name in names)
    chosen = threads and "OMP_NUM_THREADS" not in os.environ
    environment = {"OMP_NUM_THREADS": str(threads)} if chosen else {}
    for again in ("; it is tried once more", ""):
        _print(f"{path.stem} started")
        with _cell_bar(path, temporary) as changed:
            seconds, status, told = execute_notebook(
                path, temporary, parameters, environment, stall=stall, changed=changed, **options
            )
        if status == 0:
            os.replace(temporary, done)
            failed.unlink(missing_ok=True)
            _print(f"{path.stem} done in {seconds:.0f} s")
            return True
        again = again if status == STALLED else ""
        _print(f"{path.stem} failed after {seconds:.0f} s{again}\n{told}")
        if not again:
            break
    if temporary.is_file():
        os.replace(temporary, failed)
        _print(f"The executed part of {path.stem} is in {failed}")
    return False


@contextlib.contextmanager
def _cell_bar(path, saved):
    """Show in a terminal how many cells of a notebook were executed.

    Yields a function that counts them again in the file that papermill saves.
    """
    layout = "{desc}: {n_fmt} of {total_fmt} cells, {elapsed}"
    with tqdm(total=0, desc=path.stem, bar_format=layout, leave=False, disable=None) as bar:

        def count_cells():
            with contextlib.suppress(ValueError, OSError):  # papermill is still writing it
                cells = json.loads(saved.read_text(encoding="utf-8"))["cells"]
                states = [cell["metadata"].get("papermill", {}).get("status") for cell in cells]
                bar.n, bar.total = states.count("completed"), len(cells)
                bar.refresh()

        yield count_cells


def _print(text):
    """Print above the bars, in one piece, so that the lines of two runs do not mix."""
    tqdm.write(text.rstrip("\n"))
    sys.stdout.flush()
