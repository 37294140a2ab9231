"""One run of a batch: it executes a notebook with parameters and writes one result file.

The result is renamed into place at the very end, so an existing result is complete. A run that was
killed leaves its checkpoint, and the next attempt continues from it, unless the plan of the run,
the code of mmlkit or the data have changed.
"""

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from mmlcourse.batch.experiments import is_finite, load_experiment
from mmlcourse.batch.notebooks import execute_notebook, notebook_parameters
from mmlcourse.batch.processes import file_lock, without_iri_grammar
from mmlkit.messages import OTHER_RUN

__all__ = [
    "changed_parameters",
    "changes",
    "execute_run",
    "failure_cause",
    "gpu_names",
    "read_result",
    "record",
    "write_json",
]

KILLED = (
    "its process was killed without a message. Most often the system does that for lack of memory: "
    "take fewer runs at a time (--cores), or a smaller batch_size."
)

# What the batch writes into a result beside what the notebook records.
_OWN = {"experiment", "profile", "name", "parameters", "notebook_hash", "minutes", "resumed"}
_OWN |= {"started", "commit"}


def record(path, *, scores, **more):
    """Write the result of a run as JSON; the last cell of an experiment's notebook calls it.

    NaN and infinity are written as null, because JSON has no such numbers.

    Args:
        path: the notebook's parameter result_file; None writes nothing.
        scores: a list of dicts with on (a task), split, metric and value.
        **more: plain values such as history, events and settings.

    Returns:
        The dict that is written, with device, versions and peak memory.

    Raises:
        ValueError: a score has other keys, or `more` has a name that the batch itself writes.
    """
    from mmlcourse.machine import describe, peak_memory

    if taken := sorted(_OWN & more.keys()):
        raise ValueError(f"record: {', '.join(taken)} is written by the batch; use another name.")
    for score in scores:
        if set(score) != {"on", "split", "metric", "value"}:
            raise ValueError(
                f"a score has the keys {sorted(score)}, expected on, split, metric, value."
            )
    found = {"scores": scores, **more, **describe(), "peak_memory_mb": peak_memory()}
    found = json.loads(json.dumps(found), parse_constant=lambda _: None)
    if path is not None:
        write_json(path, found)
    return found


def write_json(path, content):
    """Write a JSON file under a temporary name and rename it.

    Args:
        path: the file.
        content: plain values.
    """
    from mmlkit.files import atomic_write

    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
        file.flush()
        os.fsync(file.fileno())  # after a power failure, the renamed file is not empty


def read_result(path):
    """Read the result of one run.

    Args:
        path: a JSON file.

    Returns:
        A dict. A score without a number has the value nan, and a missing name is that of the file.

    Raises:
        ValueError: the file is not the result of a run.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        named = isinstance(found, dict) and "experiment" in found
        if not named or {"grid", "gpu"} < found.keys() and "scores" not in found:  # a config.json
            other = LookupError("it names no experiment")
            raise other
        found["parameters"].items()
        json.dumps(found, ensure_ascii=False).encode()  # half of a UTF-16 pair cannot be printed
        scores = [
            {"on": "missing", "split": "missing", "metric": "missing", **score}
            for score in found["scores"]
        ]
        for score in scores:
            if not is_finite(score.get("value")):
                score["value"] = math.nan
        for key in ("settings", "versions"):
            found[key] = found[key] if isinstance(found.get(key), dict) else {}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the result of a run ({type(error).__name__}: {error}). Expected a "
            "file that `mmlkit reproduce` wrote; run it again to replace the file."
        ) from error
    return {"name": Path(path).stem, **found, "scores": scores}


def changes(result, experiment, run):
    """Return what differs between a result and the plan of its run.

    Args:
        result: a dict of `read_result`.
        experiment: the Experiment.
        run: the run's name.

    Returns:
        A list of names: parameters, and the notebook's file.
    """
    keys = changed_parameters(result["parameters"], experiment.runs[run])
    same = result.get("notebook_hash") == _hash(experiment.notebook.read_bytes())
    return keys if same else [*keys, experiment.notebook.name]


def changed_parameters(then, now):
    """Return the names of the parameters that differ, sorted.

    Args:
        then: {name: value} of a result.
        now: {name: value} of the plan.

    Returns:
        A list of names.
    """
    return [key for key in sorted({*then, *now}) if not _same(then.get(key), now.get(key))]


def _same(one, other):
    """Return whether two values of a parameter are the same: 1 and 1.0 are, 1 and true are not."""
    return one == other and (type(one) is bool) == (type(other) is bool)


def _hash(content):
    return hashlib.sha256(content).hexdigest()[:16]


def _code(root=Path(__file__).parents[2]):
    """Return the hash of both packages' files, without hidden ones, such as those of an editor."""
    found = (path for package in ("mmlkit", "mmlcourse") for path in (root / package).rglob("*.py"))
    files = sorted(path for path in found if path.is_file())
    names = [str(path.relative_to(root)) for path in files]
    seen = [path for path, name in zip(files, names) if not re.search(r"(^|[/\\])\.", name)]
    return _hash(b"".join(path.read_bytes() for path in seen))


def execute_run(experiment, folder, run, parent=None):
    """Execute one run in a process of its own, unless its result exists.

    Args:
        experiment: the Experiment.
        folder: the folder of the batch. results/RUN.json and notebooks/RUN.ipynb are written there;
            failed/RUN.json names the cause of a failure; work/RUN holds the checkpoint until then.
        run: the run's name.
        parent: the id of a process; when this process has another parent, the run is stopped.

    Returns:
        None when the result exists, else the cause of the failure, a sentence.
    """
    folder = Path(folder).resolve()
    names = "results/{}.json", "notebooks/{}.ipynb", "failed/{}.json", "failed/{}.ipynb"
    result, notebook, failed, failed_notebook = (folder / name.format(run) for name in names)
    work = folder / "work" / run
    with file_lock(work / "lock"), _one_gpu(folder) as gpu:
        if result.is_file():
            shutil.rmtree(work, ignore_errors=True)  # the lock made it, while another run finished
            return None
        plan = {
            "parameters": experiment.runs[run],
            "notebook_hash": _hash(experiment.notebook.read_bytes()),
        }
        found, executed = work / "found.json", work / "executed.ipynb"
        for old in (found, executed, failed, failed_notebook):
            old.unlink(missing_ok=True)
        # With other code, a checkpoint may not fit: the run starts again.
        checkpoint = work / f"checkpoint-{_hash(json.dumps([plan, _code()]).encode())}"
        for old in {*work.glob("checkpoint-*")} - {checkpoint}:
            shutil.rmtree(old, ignore_errors=True)
        more = {
            "result_file": found,
            "checkpoint_dir": checkpoint,
            "output_dir": folder / "outputs",
        }
        known = notebook_parameters(experiment.notebook)
        given = {key: str(value) for key, value in more.items() if key in known}
        started, resumed = time.gmtime(), checkpoint.is_dir()

        def orphaned():
            return parent not in (None, os.getppid())

        seconds, status, told = execute_notebook(
            experiment.notebook,
            executed,
            {**given, **plan["parameters"]},
            gpu,
            limit=experiment.limit,
            stop=orphaned,
        )
        if status != 0:
            killed = isinstance(status, int) and status < 0
            printed = re.sub(r"\x1b\[[0-9;]*m", "", "" if killed else told)  # IPython's colours
            cause = failure_cause(printed)
            if resumed and OTHER_RUN in printed:
                # Its data have changed: the next attempt starts again.
                shutil.rmtree(checkpoint, ignore_errors=True)
            if not orphaned():
                write_json(failed, {"name": run, "cause": cause, **plan, "traceback": printed})
                if executed.is_file():
                    os.replace(executed, failed_notebook)
            return cause
        content = (
            json.loads(found.read_text(encoding="utf-8")) if found.is_file() else {"scores": []}
        )
        notebook.parent.mkdir(exist_ok=True)
        os.replace(executed, notebook)
        named = {"experiment": experiment.name, "profile": experiment.profile, "name": run}
        timed = {
            "minutes": round(seconds / 60, 2),  # of the last attempt alone, if it was resumed
            "resumed": resumed,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", started),
        }
        write_json(result, {**named, **plan, **timed, "commit": _commit(), **content})
        shutil.rmtree(work, ignore_errors=True)  # another process may wait for the lock
    return None


def gpu_names():
    """Return the names of the visible GPUs, as CUDA_VISIBLE_DEVICES has them."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None and shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        asked = subprocess.run(query, capture_output=True, text=True)
        names = "" if asked.returncode else asked.stdout  # otherwise a message, not names
    return [name for name in re.findall(r"[^\s,]+", names or "") if name != "-1"]


@contextlib.contextmanager
def _one_gpu(folder):
    """Yield the CUDA_VISIBLE_DEVICES of a GPU that no other run of the batch uses."""
    names = gpu_names()
    while len(names) > 1:
        for name in names:
            lock = folder / "work" / f".gpu-{platform.node()}-{name}"
            with file_lock(lock, wait=False) as free:
                if free:
                    yield {"CUDA_VISIBLE_DEVICES": name}
                    return
        time.sleep(1)
    yield {}


def failure_cause(printed):
    """Return one sentence on why a run failed.

    Args:
        printed: what papermill printed; empty when it was killed.

    Returns:
        A sentence.
    """
    lines = printed.strip().splitlines()
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit)\b", line)]
    cause = (named or lines or [KILLED])[-1][:500]
    if "DeadKernelError" in cause:
        return KILLED
    if re.search(r"(out of|allocate|enough) memory|MemoryError", cause, re.IGNORECASE):
        return (
            f"out of memory ({cause[:200]}). Take a smaller batch_size, fewer runs at a time "
            "(--cores), or a machine with more memory."
        )
    return cause


def _commit():
    """Return the git commit of this checkout, with -dirty when files differ; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            cwd=Path(__file__).parent,
        )
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    without_iri_grammar()
    file, profile, grid, run = sys.argv[1:]
    experiment = load_experiment(file, profile, json.loads(grid))
    try:
        sys.exit(execute_run(experiment, Path.cwd(), run, parent=os.getppid()) and 1)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        write_json(Path("failed", f"{run}.json"), {"name": run, "cause": cause})
        raise
