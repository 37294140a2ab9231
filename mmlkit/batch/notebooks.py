"""Runs notebooks headless: each in a process of its own, several at a time, and stopped when they make no progress.

papermill does the running, and this module adds what it lacks. papermill writes its output also when a cell fails, so a
finished run is one that was renamed into place. A run is watched and not timed: on a busy machine a run may take any time,
as long as it uses the processor or its cells end.
"""

import ast
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mmlkit.batch.processes import STALLED, run_watched

__all__ = ["default_jobs", "describe_run", "find_notebooks", "list_notebooks", "notebook_parameters", "notebook_title",
           "parse_parameters", "resolve_parameters", "run_notebook", "run_notebooks"]


# ---- what there is ----

def _known():
    """Return the notebooks folder, or None, and the paths of its notebooks in reading order."""
    places = [Path.cwd() / "notebooks", Path(__file__).resolve().parents[2] / "notebooks"]
    folder = next((place for place in places if place.is_dir()), None)
    return folder, sorted(folder.glob("[0-9][0-9]_*.ipynb")) if folder else []


def find_notebooks(wanted):
    """Return the paths of notebooks given as "02", "02_finetuning", a path, or "all", in the order given.

    Raises:
        FileNotFoundError: there is no such notebook, or no notebooks folder here or beside the package.
    """
    folder, known = _known()
    found = []
    for name in wanted:
        if name == "all":
            matches = known
        elif name.endswith(".ipynb"):
            matches = [Path(name)] if Path(name).is_file() else []
        else:
            matches = [path for path in known if path.stem == name or path.stem.split("_")[0] == name.zfill(2)]
        if not matches:
            names = ", ".join(path.stem for path in known) or "none"
            raise FileNotFoundError(f"There is no notebook {name!r}. Known: {names}"
                                    f"{'' if folder else ' (run it from a checkout of the repository)'}.")
        found += [path for path in matches if path not in found]
    return found


def _cells(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))["cells"]


def notebook_parameters(path):
    """Return the names assigned in the notebook's cell tagged "parameters"."""
    tagged = [cell for cell in _cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    code = "".join("".join(cell["source"]) for cell in tagged)
    return [target.id for node in ast.parse(code).body if isinstance(node, ast.Assign) for target in node.targets]


def notebook_title(path):
    """Return the notebook's first heading, or its file name when it has none."""
    lines = [line for cell in _cells(path) if cell["cell_type"] == "markdown"
             for line in "".join(cell["source"]).splitlines()]
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("# ")), Path(path).stem)


def list_notebooks():
    """Return one text with a line for each notebook: file name, title, and below it the parameters."""
    known = find_notebooks(["all"])
    width = max(len(path.stem) for path in known)
    return "\n".join(f"{path.stem:<{width}}  {notebook_title(path)}\n"
                     f"{'':<{width}}  parameters: {', '.join(notebook_parameters(path))}" for path in known)


# ---- parameters ----

def parse_parameters(assignments):
    """Turn ["epochs=1", "source=data"] into {"epochs": 1, "source": "data"}; a value that is no Python literal is text.

    Raises:
        ValueError: an assignment is not of the form NAME=VALUE.
    """
    parameters = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"parameter {assignment!r} is not of the form NAME=VALUE.")
        try:
            parameters[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parameters[name] = value
    return parameters


def resolve_parameters(path, out, parameters):
    """Return the parameters that one notebook is run with: folders absolute, and output_dir set to `out` unless given.

    A notebook runs in its own folder, so a folder that is named from the current folder is made absolute. A text value is
    a folder or a file in three cases: it starts with /, ./, ../ or ~; it contains a / and exists, seen from the current
    folder; or its parameter is called output_dir. Every other value stays as it is, such as the hub id google/bert_x.

    Args:
        path: the notebook.
        out: the folder for the results.
        parameters: {name: value}.

    Raises:
        ValueError: the notebook does not have one of the parameters.
    """
    known = notebook_parameters(path)
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise ValueError(f"{path.name} has no parameter {', '.join(map(repr, unknown))}. It has {', '.join(known)}.")
    parameters = {"output_dir": str(Path(out).resolve()), **parameters}
    return {name: _as_path(name, value) for name, value in parameters.items() if name in known}


def _as_path(name, value):
    if not isinstance(value, str):
        return value
    text = value.replace("\\", "/") if os.name == "nt" else value
    explicit = text.startswith(("./", "../", "~")) or text in (".", "..") or Path(value).is_absolute()
    if explicit or name == "output_dir" or ("/" in text and Path(value).exists()):
        return str(Path(value).expanduser().resolve())
    return value


# ---- running ----

def _cores():
    try:
        return len(os.sched_getaffinity(0))     # those that this process may use
    except AttributeError:                      # macOS, Windows
        return os.cpu_count() or 1


def default_jobs():
    """Return how many notebooks run at a time: one for each CPU core, or one where a GPU is used."""
    from mmlkit.runtime import pick_device

    return _cores() if pick_device().type == "cpu" else 1


def _threads(jobs):
    """Return the threads of each of several jobs; None for a single one, where torch chooses."""
    return max(1, _cores() // jobs) if jobs > 1 else None


def describe_run(paths, out, parameters, jobs):
    """Return one text that says what `run_notebooks` would do with these arguments."""
    lines = []
    for path in paths:
        given = resolve_parameters(path, out, parameters)
        lines.append(f"{path.stem}: {', '.join(f'{name}={value!r}' for name, value in given.items())}")
    threads = os.environ.get("OMP_NUM_THREADS") or _threads(jobs)
    return "\n".join([*lines, f"{len(paths)} notebook{'s' if len(paths) > 1 else ''} would run, {jobs} at a time"
                      + (f" with {threads} thread{'s' if str(threads) != '1' else ''} each" if threads else "")
                      + f", into {Path(out).resolve()}"])


def run_notebooks(paths, out, parameters, *, jobs=1, **options):
    """Execute notebooks into the folder `out`, `jobs` of them at a time.

    With several jobs each has its share of the CPU cores, OMP_NUM_THREADS = cores // jobs, unless the user has set that
    variable. Parameters are checked for all notebooks before the first one starts.

    Args:
        paths: the notebooks; they are started in this order.
        out: the folder for the executed notebooks.
        parameters: {name: value}, for each of them.
        jobs: how many run at a time.
        **options: stall, limit and attempts, as in `run_notebook`.

    Returns:
        The paths of the notebooks that failed.

    Raises:
        ValueError: one of the notebooks does not have one of the parameters.
    """
    for path in paths:
        resolve_parameters(path, out, parameters)
    options["threads"] = _threads(jobs)
    options["stop"] = stop = threading.Event()
    pool = ThreadPoolExecutor(jobs)
    try:
        good = list(pool.map(lambda path: run_notebook(path, out, parameters, **options), paths))
    finally:        # after Ctrl-C too: what runs is stopped, and what waits is not started
        stop.set()
        pool.shutdown(cancel_futures=True)
    return [path for path, well in zip(paths, good) if not well]


def run_notebook(path, out, parameters, *, stall=5, limit=None, attempts=2, threads=None, stop=None):
    """Execute one notebook into the folder `out`, under its own name. Return whether it succeeded.

    A run is stopped when for `stall` minutes it has used no CPU time and no cell has started, printed or ended. It may be
    as slow as it likes. A stopped run is tried once more: kernels now and then lose a wake-up. The whole process tree is
    killed. What ran of a failed notebook is kept as NAME.failed.ipynb.

    Args:
        path: the notebook.
        out: the folder for the executed notebook, made when it is missing.
        parameters: {name: value}; see `resolve_parameters`.
        stall: minutes without progress after which a run is stopped. A cell that only waits, for a slow download or in
            time.sleep, must not wait longer.
        limit: minutes that a run may take in all; None: any time.
        attempts: how often a run without progress is started.
        threads: OMP_NUM_THREADS of the kernel, unless the variable is set; None: what torch chooses.
        stop: a threading.Event; when it is set, the run is stopped.

    Raises:
        ValueError: the notebook does not have one of the parameters.
    """
    path, out = Path(path), Path(out)
    parameters = resolve_parameters(path, out, parameters)
    out.mkdir(parents=True, exist_ok=True)
    names = (f".{path.stem}.{os.getpid()}", path.stem, f"{path.stem}.failed")
    temporary, done, failed = (out / f"{name}.ipynb" for name in names)
    command = [sys.executable, "-m", "papermill", str(path), str(temporary), "-k", "python3",
               "--cwd", str(path.parent), "--start-timeout", "600", "--no-progress-bar", "--log-level", "ERROR", "-y", json.dumps(parameters)]
    environment = {**os.environ, "MMLKIT_HEADLESS": "1"}
    if threads:
        environment.setdefault("OMP_NUM_THREADS", str(threads))
    for attempt in range(1, attempts + 1):
        _say(f"{path.stem} started")
        took, status, told = run_watched(command, environment, temporary, stall=stall, limit=limit, stop=stop)
        if status == 0:
            os.replace(temporary, done)
            failed.unlink(missing_ok=True)
            _say(f"{path.stem} done in {took:.0f} s")
            return True
        again = status == STALLED and attempt < attempts
        _say(f"{path.stem} failed after {took:.0f} s{'; it is tried once more' if again else ''}\n{told}")
        if not again:
            break
    if temporary.is_file():
        os.replace(temporary, failed)
        _say(f"What ran of {path.stem} is in {failed}")
    return False


def _say(text):
    """Print in one piece, so that the lines of two runs do not mix."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()
