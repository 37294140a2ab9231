"""All runs of an experiment: `mmlkit reproduce` lets Snakemake execute the missing ones.

The rules are in the Snakefile beside this module. The output files are the results, so a finished
run is never repeated, and the same command continues after a kill or a power loss.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil

from mmlcourse.batch.processes import end_tree, end_with_parent, file_lock, without_iri_grammar
from mmlcourse.batch.runs import KILLED, changes, gpu_names, read_result, write_json
from mmlcourse.text import count

__all__ = ["estimate", "is_dry_run", "reproduce", "unfinished"]


def unfinished(experiment, folder):
    """Return the names of the runs without a result, in the order of the grid.

    Args:
        experiment: the Experiment.
        folder: the folder of the batch.

    Returns:
        A list of names.
    """
    results = Path(folder) / "results"
    return [run for run in experiment.runs if not (results / f"{run}.json").is_file()]


def is_dry_run(options):
    """Return whether Snakemake's options ask to execute nothing: -n, -nq, --dry-run, --summary.

    Args:
        options: a list of texts.

    Returns:
        True or False.
    """
    shows = "--(dry-?run|(detailed-)?summary|list.*|dag|rulegraph|filegraph|lint|unlock)(=.*)?"
    return any(re.fullmatch(f"{shows}|-[pkFq]*n[npkFq]*", one) for one in options)


def estimate(experiment, runs, cores, at_once=None):
    """Return a sentence on the work ahead, from the times in the experiment's file.

    Args:
        experiment: the Experiment.
        runs: the names of the runs to do.
        cores: how many CPU cores there are for them.
        at_once: how many run at a time, at most; None: one for each core.

    Returns:
        A sentence.
    """
    gpu = sum(experiment.gpu_minutes.get(run) or 0 for run in runs) / 60
    at_once = at_once or cores
    cpu = len(runs) * (experiment.minutes or 0) / min(at_once, len(runs) or 1)
    ahead = f"; about {cpu:.3g} minutes on {count(cores, 'CPU core')}" if cpu else ""
    ahead = f"; about {gpu:.3g} GPU hours (an estimate, not measured on a GPU)" if gpu else ahead
    total = count(len(experiment.runs), "run")
    return f"{len(runs)} of {total} to do, {at_once} at a time{ahead}."


def reproduce(experiment, folder, *, cores=1, again=False, options=()):
    """Execute the runs of an experiment that have no result.

    A result whose parameters or notebook differ from the plan is reported and kept.

    Args:
        experiment: the Experiment.
        folder: the folder of the batch. Results are written to results/, executed notebooks to
            notebooks/, the causes of failures to failed/.
        cores: CPU cores for the runs.
        again: whether to move different results to replaced/ and to execute their runs again.
        options: more options for Snakemake, such as ["--executor", "slurm"].

    Returns:
        The names of the runs that have no result, a list.

    Raises:
        ModuleNotFoundError: Snakemake is not installed.
        OSError: another batch uses the folder (from a private function).
        BrokenPipeError: the reader of a dry run's output, such as `head`, has closed it.
        ValueError: Snakemake refused its options; or a variable of the environment that the runs
            name, such as MMLKIT_REALDATA, is not set (from a private function).
    """
    try:
        import snakemake  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "mmlkit reproduce needs Snakemake: pip install 'mmlkit[batch]'."
        ) from error
    folder = Path(folder).resolve()
    _check_source(experiment, experiment.runs if again else unfinished(experiment, folder))
    with _batch_lock(folder):
        moved = []
        try:
            _check_results(experiment, folder, again, moved)
            todo, at_once = unfinished(experiment, folder), _at_a_time(experiment, cores, options)
            print(f"{experiment.title}\n{estimate(experiment, todo, cores, at_once)}", flush=True)
            status = _run_snakemake(experiment, folder, cores, list(options)) if todo else 0
            todo = unfinished(experiment, folder)
        finally:
            _move_back(folder, moved)
        for run in set(experiment.runs) - set(todo):  # killed after its result was written
            shutil.rmtree(folder / "work" / run, ignore_errors=True)
    ended = f"Snakemake ended with status {status}; its messages above name the reason."
    if status == _PIPE_CLOSED:
        raise BrokenPipeError(ended)
    if status == _REFUSED or (status and is_dry_run(options)):
        raise ValueError(ended)
    causes = {run: cause for run in todo if (cause := _cause(folder, run))} if status else {}
    for run, cause in causes.items():
        print(f"{run} failed: {cause}")
    if status and not causes:
        print(ended)
    return todo


@contextlib.contextmanager
def _batch_lock(folder):
    """Hold the lock of a batch's folder, which names this process; refuse a second batch."""
    with file_lock(folder / ".lock", wait=False) as lock:
        if lock is None:
            first = (folder / ".lock").read_text(encoding="utf-8")
            raise OSError(
                f"{folder} is used by another batch: {first}. Wait until it has ended, stop it, or "
                "choose another folder with --out."
            )
        lock.truncate(0)
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        lock.write(f"process {os.getpid()} on {platform.node()}, started {now}")
        lock.flush()
        yield


def _check_source(experiment, runs):
    """Refuse runs whose source names an unset variable, such as $MMLKIT_REALDATA, or no folder.

    A notebook runs in its own folder, where a relative path would name another one.
    """
    texts = " ".join(str(experiment.runs[run].get("source")) for run in runs)
    for name in re.findall(r"\$\{?([A-Za-z_]\w*)", texts):
        if not (found := os.environ.get(name)):
            raise ValueError(
                f"{name} is not set, and {experiment.file} reads it: export {name}=FOLDER. The "
                "first lines of that file say what the folder holds."
            )
        if not (os.path.isabs(found) and os.path.isdir(found)):
            raise ValueError(
                f"{name} is {found!r}, expected the absolute path of a folder, because a notebook "
                f"runs in a folder of its own: export {name}=/path/to/the/sets."
            )


def _check_results(experiment, folder, again, moved):
    """Report different results; move aside those to be made again, and unreadable ones.

    Each move is added to `moved` as (the result, its new place).
    """
    different, blocked = {}, {}
    for run in experiment.runs:
        result = folder / "results" / f"{run}.json"
        if not result.is_file():
            continue
        try:
            names = changes(read_result(result), experiment, run)
        except ValueError:
            names = None
        if names:
            different[run] = ", ".join(names)
            if {*names} - {experiment.notebook.name}:
                blocked[run] = different[run]
        if names is None or (names and again):
            (folder / "failed" / result.name).unlink(missing_ok=True)  # of an earlier attempt
            place, number = folder / "replaced" / result.name, 1
            while place.exists():
                number += 1
                place = place.with_name(f"{run}-{number}.json")
            place.parent.mkdir(exist_ok=True)
            moved.append((result, place))
            os.replace(result, place)
    waiting = {} if again else {experiment.needs.get(run) for run in unfinished(experiment, folder)}
    for run in blocked.keys() & waiting:
        raise ValueError(
            f"runs to do need {run}, which was finished with another {blocked[run]}. "
            "--rerun-changed executes it again, and --out FOLDER keeps both."
        )
    action = "it is executed again" if again else "--rerun-changed executes it again"
    for run, names in list(different.items())[:3]:
        print(f"{run} was finished with another {names}; {action}.")
    if len(different) > 3:
        print(f"The same is true of {count(len(different) - 3, 'other run')}.")


def _move_back(folder, moved):
    """Move results back whose runs were not begun, such as those of a dry run."""
    for result, place in moved:
        begun = (folder / "failed" / result.name, folder / "work" / result.stem, result)
        if place.exists() and not any(map(os.path.exists, begun)):
            os.replace(place, result)


def _cause(folder, run):
    """Return why a run failed, or None when it was not started."""
    path = folder / "failed" / f"{run}.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))["cause"]
    if not (folder / "work" / run).is_dir():
        return None
    free = shutil.disk_usage(folder).free
    return KILLED if free > 2**20 else f"the disk of {folder} is full ({free:,} bytes are free)."


_REFUSED = 2  # the status of Snakemake where it refused its options and started no run
_PIPE_CLOSED = -getattr(signal, "SIGPIPE", 13)  # where nobody reads the output of a dry run


def _is_remote(options):
    return bool({"-e", "--executor"} & {one.split("=")[0] for one in options})


def _uses_gpu(experiment):
    return bool(gpu_names()) or any(experiment.gpu_minutes.values())


def _at_a_time(experiment, cores, options):
    """Return how many runs Snakemake executes at a time, at most."""
    if _is_remote(options):
        return cores
    gpus = max(len(gpu_names()), 1) if _uses_gpu(experiment) else cores
    fitting = max(_memory(), experiment.memory) // experiment.memory
    return max(1, min(cores // experiment.threads, gpus, fitting))


def _memory():
    """Return the MB of memory of this machine."""
    return psutil.virtual_memory().total // 2**20


def _run_snakemake(experiment, folder, cores, options):
    """Run Snakemake, with everything it starts, to its end; return its exit status."""
    gpus, remote, uses_gpu = len(gpu_names()), _is_remote(options), _uses_gpu(experiment)
    config = {"experiment": str(experiment.file), "profile": experiment.profile}
    write_json(folder / "config.json", {**config, "grid": experiment.grid, "gpu": int(uses_gpu)})
    shutil.rmtree(folder / ".snakemake" / "log", ignore_errors=True)
    limits = f"--resources mem_mb={max(_memory(), experiment.memory)} gpu={max(gpus, 1)} --cores"
    fixed = "--keep-going --nolock --ignore-incomplete --keep-incomplete"
    fixed += " --rerun-triggers mtime --quiet host"
    command = [
        *(sys.executable, "-W", "ignore", "-m", "mmlcourse.batch.batches", str(os.getpid())),
        *("--snakefile", str(Path(__file__).with_name("Snakefile"))),
        *("--directory", str(folder), "--configfile", str(folder / "config.json")),
        *fixed.split(),
        *("--jobs" if remote else limits).split(),
        str(cores),
        *options,
    ]
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = psutil.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        if remote:  # Snakemake cancels its jobs on the cluster
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(60)
        raise
    finally:
        end_tree(process)


if __name__ == "__main__":  # Snakemake, in a process that ends with `mmlkit reproduce`
    without_iri_grammar()
    from snakemake.cli import main

    end_with_parent(int(sys.argv.pop(1)))
    if is_dry_run(sys.argv) and hasattr(signal, "SIGPIPE"):  # as `mmlkit reproduce ... -n | head`
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
