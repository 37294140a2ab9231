"""One run of a batch: it executes a notebook with parameters and writes one result file.

The result is renamed into place at the very end, so an existing result is complete. A run that was
killed leaves its checkpoint, and the next attempt continues from it, unless the plan of the run or
the code of mmlkit has changed.
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

from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.notebooks import execute_notebook, notebook_parameters
from mmlcourse.batch.processes import end_with_parent, file_lock, without_iri_grammar

__all__ = [
    "changed_parameters",
    "changes",
    "execute_run",
    "failure_cause",
    "gpu_names",
    "is_finite",
    "read_result",
    "record",
    "write_json",
]

KILLED = (
    "its process was killed without a message. Most often the system does that for lack of memory: "
    "take fewer runs at a time (--cores), or a smaller batch_size."
)


def record(path, *, scores, **more):
    """Write the result of a run as JSON; the last cell of an experiment's notebook calls it.

    NaN and infinity are written as null, because JSON has no such numbers.

    Args:
        path: the notebook's parameter result_file; None writes nothing.
        scores: a list of dicts with on (a task), split, metric and value.
        **more: plain values such as history, events and settings. The batch adds its own, such as
            name, parameters and minutes.

    Returns:
        The dict that is written, with device, versions and peak memory.

    Raises:
        ValueError: a score has other keys.
    """
    from mmlcourse.machine import describe, peak_memory

    for score in scores:
        if set(score) != {"on", "split", "metric", "value"}:
            raise ValueError(f"a score is {score}, expected on, split, metric and value.")
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


def is_finite(value):
    """Return whether a value of JSON is a finite number, also as a float.

    Args:
        value: any value.

    Returns:
        True or False.
    """
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def read_result(path):
    """Read the result of one run.

    Args:
        path: a JSON file.

    Returns:
        A dict, or None where the file is JSON of another kind. A score without a number has the
        value nan.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not {"experiment", "scores"} <= found.keys():
            return None
        for score in found["scores"]:
            score["value"] = score["value"] if is_finite(score["value"]) else math.nan
        found["parameters"].items()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the result of a run ({type(error).__name__}: {error}). Run it again to "
            "replace the file."
        ) from error
    return {"name": Path(path).stem, "settings": {}, "versions": {}, **found}


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
        A list of names. 1 and 1.0 are the same value, 1 and true are not.
    """
    kind = lambda value: (value, type(value) is bool)
    return [key for key in sorted({*then, *now}) if kind(then.get(key)) != kind(now.get(key))]


def _hash(content):
    return hashlib.sha256(content).hexdigest()[:16]


def _code():
    """Return the hash of both packages' files, without hidden ones, such as those of an editor."""
    root = Path(__file__).parents[2]
    files = [*(root / "mmlkit").rglob("[!.]*.py"), *(root / "mmlcourse").rglob("[!.]*.py")]
    return _hash(b"".join(path.read_bytes() for path in sorted(files)))


def execute_run(experiment, folder, run, *, again=False):
    """Execute one run in a process of its own, unless its result exists.

    Args:
        experiment: the Experiment.
        folder: the folder of the batch. results/RUN.json and notebooks/RUN.ipynb are written there;
            failed/RUN.json names the cause of a failure; work/RUN holds the checkpoint until then.
        run: the run's name.
        again: whether to move an existing result to replaced/ and write a new one.

    Returns:
        None when the result exists, else the cause of the failure, a sentence.
    """
    folder = Path(folder).resolve()
    work, result = folder / "work" / run, folder / "results" / f"{run}.json"
    failed = folder / "failed" / f"{run}.json"
    plan = {
        "parameters": experiment.runs[run],
        "notebook_hash": _hash(experiment.notebook.read_bytes()),
    }
    with file_lock(work / "lock"), _one_gpu(folder) as gpu:
        if result.is_file() and not again:
            shutil.rmtree(work, ignore_errors=True)  # the lock made it, while another run finished
            return None
        failed.unlink(missing_ok=True)
        started = time.gmtime()
        resumed, seconds, status, told = _execute(experiment, folder, work, plan, gpu)
        if status != 0:
            cause = failure_cause(told if not isinstance(status, int) or status > 0 else "")
            write_json(failed, {"name": run, "cause": cause, **plan, "traceback": told})
            return cause
        found = work / "found.json"
        scores = json.loads(found.read_text(encoding="utf-8")) if found.is_file() else {}
        content = {
            "experiment": experiment.name,
            "profile": experiment.profile,
            "name": run,
            **plan,
            "minutes": round(seconds / 60, 2),  # of the last attempt alone, if it was resumed
            "resumed": resumed,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", started),
            "commit": _commit(),
        }
        notebook = folder / "notebooks" / f"{run}.ipynb"
        notebook.parent.mkdir(exist_ok=True)
        os.replace(work / "executed.ipynb", notebook)
        if result.is_file():
            now = time.strftime("%Y-%m-%dT%H-%M-%S")
            (folder / "replaced").mkdir(exist_ok=True)
            shutil.copy2(result, folder / "replaced" / f"{run}-{now}.json")
        write_json(result, {**content, "scores": [], **scores, **content})
        shutil.rmtree(work, ignore_errors=True)  # another process may wait for the lock
    return None


def _execute(experiment, folder, work, plan, gpu):
    """Execute the notebook of a run; return whether it goes on, and the three of `run_watched`."""
    found, executed = work / "found.json", work / "executed.ipynb"
    found.unlink(missing_ok=True)
    # With another plan or other code, a checkpoint may not fit: the run starts again.
    checkpoint = work / f"checkpoint-{_hash(json.dumps([plan, _code()]).encode())}"
    for old in {*work.glob("checkpoint-*")} - {checkpoint}:
        shutil.rmtree(old, ignore_errors=True)
    resumed = checkpoint.is_dir()
    places = {
        "result_file": found,
        "checkpoint_dir": checkpoint,
        "output_dir": folder / "outputs",
    }
    known = notebook_parameters(experiment.notebook)
    given = {key: str(place) for key, place in places.items() if key in known}
    seconds, status, told = execute_notebook(
        experiment.notebook,
        executed,
        {**given, **plan["parameters"]},
        gpu,
        limit=experiment.limit,
    )
    if status != 0 and "belongs to another run" in told:  # of `fit`, after a change of the data
        shutil.rmtree(checkpoint, ignore_errors=True)
    return resumed, seconds, status, re.sub(r"\x1b\[[0-9;]*m", "", told)  # IPython's colours


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
        return f"out of memory ({cause}). Take a smaller batch_size or fewer runs (--cores)."
    return cause


def _commit():
    """Return the git commit of this checkout, with -dirty when files differ; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


if __name__ == "__main__":
    end_with_parent(os.getppid())
    without_iri_grammar()
    file, profile, grid, run, again = sys.argv[1:]
    experiment = load_experiment(file, profile, json.loads(grid))
    sys.exit(bool(execute_run(experiment, Path.cwd(), run, again=again == "again")))
