"""One run of a batch: what it is to do, how it is carried out, and what it leaves.

A run is a notebook with its parameters, through papermill, in a process of its own. Its result, one JSON, is renamed into place
last of all; so a result that is there is whole, and a process that was killed has left none.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from mmlkit.batch.notebooks import notebook_parameters
from mmlkit.runtime import atomic_write, describe, peak_memory

__all__ = ["carry_out", "changed_sources", "check_names", "finished", "held", "load_plan",
           "read_result", "record", "write_plan"]

_PACKAGE = Path(__file__).resolve().parents[1]
_NO_SOURCE = ("mmlkit.batch", "mmlkit.mini")        # what a result does not depend on


# ---- what a notebook leaves ----

def record(path, *, scores, **more):
    """Writes what a run found as JSON; the last cell of an experiment's notebook calls it.

    path: the notebook's parameter `result_file`; None (somebody is reading) writes nothing. scores: a list of dicts with on (a task),
    split, metric, value. more: plain values such as history, events, settings. Device, versions and peak memory are added.
    Returns what it wrote, or would have.
    """
    files = sorted(Path(module.__file__) for name, module in list(sys.modules.items())
                   if name.startswith("mmlkit.") and not name.startswith(_NO_SOURCE) and not hasattr(module, "__path__"))
    for score in scores:
        if set(score) != {"on", "split", "metric", "value"}:
            raise ValueError(f"a score has the keys {sorted(score)}, expected on, split, metric, value.")
    found = {"scores": scores, **more, **describe(), "peak_memory_mb": peak_memory(), "sources": {file.relative_to(_PACKAGE).as_posix(): _hash(file) for file in files}}
    if path is not None:
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(_nan_as_null(found), allow_nan=False), encoding="utf-8")
    return found


def _nan_as_null(value):
    """JSON has no word for a number that is none (a correlation of constant predictions); most readers choke on NaN."""
    if isinstance(value, dict):
        return {key: _nan_as_null(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_nan_as_null(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_result(path):
    """One result as a dict; a score that was none is nan again. Raises ValueError when the file is not one."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        found["experiment"], found["parameters"].items()
        for score in found["scores"]:
            score["value"] = math.nan if score["value"] is None else score["value"]
        plain = [re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) for name in found["sources"]]   # of ours
        if not all(plain):
            raise TypeError(f"sources {list(found['sources'])[:8]} are not plain names")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not the result of a run ({type(error).__name__}: {error}).") from error
    return found


def check_names(result, path):
    """Raise ValueError unless a result's experiment and profile are plain names, fit for files."""
    for key in ("experiment", "profile"):
        name = result.get(key)
        text = name if isinstance(name, str) and name.isprintable() else ""
        if not re.fullmatch(r"[^./\\:][^/\\:]*", text):
            raise ValueError(f"{path}: {key} is {str(name)[:80]!r}, expected a plain name such as "
                             "'mml-tables', without / \\ or : in it, since files are named after "
                             "it. Correct or remove the file, and do not trust where it came from.")


def changed_sources(result, notebook, parameters):
    """What differs now from what a result was made with: names of files, and of parameters."""
    files = {**{name: _PACKAGE / name for name in result["sources"]}, notebook.name: notebook}
    then = {**result["sources"], notebook.name: result.get("notebook_hash")}
    changed = [name for name, file in files.items() if not file.is_file() or _hash(file) != then[name]]
    return changed + [key for key in sorted({*parameters, *result["parameters"]}) if parameters.get(key) != result["parameters"].get(key)]


def _hash(file):
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


# ---- one run ----

@contextlib.contextmanager
def held(path, wait=True):
    """Holds a lock on a file; yields whether it was free. The system frees it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError as error:
        raise OSError("batches need the file locks of Linux or macOS; on Windows use WSL.") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def write_plan(experiment, folder, name, *, again=False):
    """Writes planned/NAME.json: everything a process needs to know to carry out this run."""
    plan = {"experiment": experiment.name, "profile": experiment.profile, "notebook": str(experiment.notebook), "parameters": experiment.runs[name],
            "limit": experiment.limit, "again": again, "notebook_hash": _hash(experiment.notebook)}
    with atomic_write(Path(folder) / "planned" / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")


def load_plan(folder, name):
    """What write_plan wrote."""
    return json.loads((Path(folder) / "planned" / f"{name}.json").read_text(encoding="utf-8"))


def carry_out(folder, name):
    """One run of a batch, in this process: papermill under a temporary name; the renamed JSON says that it is finished.

    folder: the batch's, in which planned/NAME.json says what to do. A finished run is left as it is, and one that another process
    is at work on is waited for. Returns whether the run is finished; when not, failed/ holds the cause and the notebook.
    """
    folder = Path(folder)
    plan = load_plan(folder, name)
    with held(folder / "locks" / name):
        if finished(folder, name, plan):
            return True
        place = {kind: folder / kind for kind in ("results", "notebooks", "failed")}
        for path in place.values():
            path.mkdir(exist_ok=True)
        for old in (*place["failed"].glob(f"{name}.*"), *place["notebooks"].glob(f".{name}.*"), *place["results"].glob(f".{name}.*")):
            old.unlink()        # of an attempt that was killed, or failed before
        work, found = place["notebooks"] / f".{name}.ipynb", place["results"] / f".{name}.found"
        started = time.time()
        watch = threading.Timer(60 * plan["limit"], _give_up, (place["failed"], name, plan, work))
        watch.start()
        try:
            with _headless():
                _papermill(plan, work, found, folder)
            result = json.loads(found.read_text(encoding="utf-8")) if found.is_file() else {"scores": [], **describe(), "sources": {}}
        except Exception as error:
            _fail(place["failed"], name, plan, work, error)
            return False
        finally:
            watch.cancel()
        result = {**{key: plan[key] for key in ("experiment", "profile", "parameters", "notebook_hash")}, "name": name,
                  "minutes": round((time.time() - started) / 60, 2), "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
                  "commit": _commit(), **result}
        os.replace(work, place["notebooks"] / f"{name}.ipynb")
        with atomic_write(place["results"] / f"{name}.json") as temporary:
            temporary.write_text(json.dumps(result) + "\n", encoding="utf-8")
        found.unlink(missing_ok=True)
    return True


def finished(folder, name, plan):
    """Whether a run's result is there, and not to be made again because its sources changed."""
    path = Path(folder) / "results" / f"{name}.json"
    return path.is_file() and not (plan["again"] and changed_sources(read_result(path), Path(plan["notebook"]), plan["parameters"]))


def _papermill(plan, work, found, folder):
    import papermill

    extra = {"result_file": str(found.resolve()), "output_dir": str((folder / "outputs").resolve())}
    known = notebook_parameters(plan["notebook"])
    parameters = {**{key: value for key, value in extra.items() if key in known}, **plan["parameters"]}
    papermill.execute_notebook(plan["notebook"], str(work), parameters=parameters, kernel_name="python3", cwd=str(Path(plan["notebook"]).parent),
                               progress_bar=False, log_output=False)


@contextlib.contextmanager
def _headless():
    before, os.environ["MMLKIT_HEADLESS"] = os.environ.get("MMLKIT_HEADLESS"), "1"
    yield
    os.environ.pop("MMLKIT_HEADLESS") if before is None else os.environ.update(MMLKIT_HEADLESS=before)


def _give_up(folder, name, plan, work):
    _fail(folder, name, plan, work, TimeoutError(f"it took more than {plan['limit']:g} minutes, its limit"))
    os._exit(1)     # the kernel sees that its parent is gone, and ends too


def _fail(folder, name, plan, work, error):
    if work.is_file():
        os.replace(work, folder / f"{name}.ipynb")
    lines = getattr(error, "traceback", None) or [line.rstrip() for line in traceback.format_exception(error)]
    told = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))        # IPython's are coloured
    with atomic_write(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps({"name": name, "cause": cause_of(error), "parameters": plan["parameters"], "traceback": told}), encoding="utf-8")


def cause_of(error):
    """One sentence on why a run failed."""
    kind, text = getattr(error, "ename", type(error).__name__), str(getattr(error, "evalue", error)).strip()
    if re.search(r"out of memory|can't allocate memory|not enough memory|MemoryError", f"{kind} {text}", re.IGNORECASE):
        return f"out of memory ({kind}: {text[:200]}). Take a smaller batch_size, fewer runs at a time (--cores), or a machine with more."
    if kind == "DeadKernelError":
        return "its kernel died without a word. Most often the system kills it for lack of memory: take fewer runs at a time (--cores), or a smaller batch_size."
    return f"{kind}: {text[:500]}"


def _commit():
    """The git commit of the checkout this package lies in, with -dirty when files were changed; None outside git."""
    try:
        say = ["git", "-C", str(_PACKAGE), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
        return subprocess.run(say, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    sys.exit(0 if carry_out(*sys.argv[1:3]) else 1)
