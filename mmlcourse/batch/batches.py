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

_REFUSED = 2  # the status of Snakemake where it refused its options and started no run


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
    """Return whether Snakemake's options ask to execute nothing.

    Args:
        options: a list of texts.

    Returns:
        True or False.
    """
    return not {"-n", "-np", "--dry-run", "--dryrun", "--summary"}.isdisjoint(options)


def estimate(experiment, runs, cores):
    """Return a sentence on the work ahead, from the times in the experiment's file.

    Args:
        experiment: the Experiment.
        runs: the names of the runs to do.
        cores: how many CPU cores there are for them.

    Returns:
        A sentence.
    """
    gpu = sum(experiment.gpu_minutes.get(run) or 0 for run in runs) / 60
    cpu = len(runs) * (experiment.minutes or 0) / min(cores, len(runs) or 1)
    ahead = f"; about {cpu:.3g} minutes on {count(cores, 'idle CPU core')}" if cpu else ""
    ahead = f"; about {gpu:.3g} GPU hours (an estimate, not measured on a GPU)" if gpu else ahead
    return f"{len(runs)} of {count(len(experiment.runs), 'run')} to do{ahead}."


def reproduce(experiment, folder, *, cores=1, again=False, verbose=False, options=()):
    """Execute the runs of an experiment that have no result, and say how many have ended.

    A result whose parameters or notebook differ from the plan is reported and kept. A damaged one
    is made again.

    Args:
        experiment: the Experiment.
        folder: the folder of the batch. Results are written to results/, executed notebooks to
            notebooks/, the causes of failures to failed/.
        cores: CPU cores for the runs.
        again: whether to execute the runs of different results again; the old ones are kept in
            replaced/.
        verbose: whether Snakemake's own messages are printed; otherwise snakemake.log has them.
        options: more options for Snakemake, such as ["--executor", "slurm"].

    Returns:
        The names of the runs that have no result, a list.

    Raises:
        OSError: another batch uses the folder, or a variable in `source` names no folder (from
            private functions).
        ValueError: Snakemake ended without a run that failed; its own messages say why. Or a run
            to do needs the result of another plan (from a private function).
    """
    import snakemake  # noqa: F401  (so that a missing one is named before anything is written)

    folder = Path(folder).resolve()
    if not is_dry_run(options):
        _require_data(experiment)
    with _batch_lock(folder):
        repeated = _repeated(experiment, folder, again)
        todo = repeated + unfinished(experiment, folder)
        begun = sum(any((folder / "work" / run).glob("checkpoint-*")) for run in todo)
        more = f" Of these, {begun} {'has' if begun == 1 else 'have'} a checkpoint." * bool(begun)
        print(f"{experiment.title}\n{estimate(experiment, todo, cores)}{more}", flush=True)
        status = todo and _run_snakemake(experiment, folder, cores, repeated, options, verbose)
        left = unfinished(experiment, folder)
        for run in set(experiment.runs) - {*left, *repeated}:  # killed after it wrote its result
            shutil.rmtree(folder / "work" / run, ignore_errors=True)
    causes = {run: _cause(folder, run) for run in todo if (folder / "work" / run).is_dir()}
    if status == _REFUSED or (status and (is_dry_run(options) or not causes)):
        place = "its messages above or in snakemake.log say why."
        raise ValueError(f"Snakemake ended with status {status}; {place}")
    for run, cause in causes.items() if status else ():
        print(f"{run} failed: {cause}")
    return [run for run in experiment.runs if run in left or (status and run in causes)]


def _require_data(experiment):
    """Refuse to start, because each run would fail by itself, twice, after its kernel's start."""
    named = re.findall(r"\$(\w+)", str([one.get("source") for one in experiment.runs.values()]))
    for name in dict.fromkeys(named):
        if not os.path.isdir(os.environ.get(name, "")):
            raise FileNotFoundError(
                f"The variable {name} is {os.environ.get(name)!r}, expected a folder with the data "
                f"sets, as docs/guide/reproducing.md describes it: export {name}=/path/to/the/sets"
            )


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
        lock.write(f"process {os.getpid()} on {platform.node()}, started {time.asctime()}")
        lock.flush()
        yield


def _repeated(experiment, folder, again):
    """Return the runs whose results are damaged or, with `again`, differ from the plan."""
    damaged, different = [], {}
    for run in experiment.runs:
        result = folder / "results" / f"{run}.json"
        if not result.is_file():
            continue
        try:
            names = changes(read_result(result), experiment, run)
        except (ValueError, TypeError):  # damaged, or no result at all
            damaged.append(run)
            continue
        if names:
            different[run] = names
    if different:
        names = ", ".join(sorted({name for names in different.values() for name in names}))
        action = "they are executed again" if again else "--rerun-changed executes them again"
        print(f"Finished with another {names}: {', '.join(different)}; {action}.")
    needed = {experiment.needs.get(run) for run in damaged + unfinished(experiment, folder)}
    for run in (needed & different.keys()) if not again else ():
        if names := set(different[run]) - {experiment.notebook.name}:
            raise ValueError(
                f"Runs to do need {run}, which was finished with another {', '.join(names)}. "
                "--rerun-changed executes it again; --out names another folder."
            )
    return damaged + list(different) * again


def _cause(folder, run):
    path = folder / "failed" / f"{run}.json"
    return json.loads(path.read_text(encoding="utf-8"))["cause"] if path.is_file() else KILLED


def _run_snakemake(experiment, folder, cores, repeated, options, verbose):
    """Run Snakemake, with everything it starts, to its end; return its exit status."""
    gpus, memory = len(gpu_names()), psutil.virtual_memory().total // 2**20
    remote = any(option.startswith(("-e", "--executor")) for option in options)
    config = {
        "experiment": str(experiment.file),
        "profile": experiment.profile,
        "grid": experiment.grid,
        "gpu": int(gpus > 0 or any(experiment.gpu_minutes.values())),
        "again": repeated,
    }
    write_json(folder / "config.json", config)
    shutil.rmtree(folder / ".snakemake" / "log", ignore_errors=True)
    limits = f"--resources mem_mb={max(memory, experiment.memory)} gpu={max(gpus, 1)} --cores"
    fixed = "--keep-going --nolock --ignore-incomplete --keep-incomplete"
    fixed += " --rerun-triggers mtime --quiet host"
    command = [
        *(sys.executable, "-W", "ignore", "-m", "mmlcourse.batch.batches", str(os.getpid())),
        *("--snakefile", str(Path(__file__).with_name("Snakefile"))),
        *("--directory", str(folder), "--configfile", str(folder / "config.json")),
        *(["--forcerun", *(f"results/{run}.json" for run in repeated)] if repeated else ()),
        *(*fixed.split(), *("--jobs" if remote else limits).split(), str(cores), *options),
    ]
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    log = folder / "snakemake.log"
    log.unlink(missing_ok=True)
    quiet = not verbose and not is_dry_run(options)
    with open(log, "wb") if quiet else contextlib.nullcontext() as file:
        told = {"stdout": file, "stderr": file}  # None: as this process
        process = psutil.Popen(command, env=environment, start_new_session=True, **told)
    try:
        return _follow(process, folder, repeated + unfinished(experiment, folder))
    except KeyboardInterrupt:
        if remote:  # Snakemake cancels its jobs on the cluster
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(60)
        raise
    finally:
        end_tree(process)


def _follow(process, folder, runs):
    """Print a line when runs have started or ended, until Snakemake ends; return its status."""
    paths = [folder / part / f"{run}.json" for part in ("results", "failed") for run in runs]
    times = {path: _time(path) for path in paths}
    began, done, told, status = time.monotonic(), [], False, None
    while status is None:
        with contextlib.suppress(psutil.TimeoutExpired):
            status = process.wait(1)
        new = [path for path in paths if path.stem not in done and _time(path) > times[path]]
        times |= {path: _time(path) for path in new}
        for path in new:
            failed = path.parent.name == "failed"
            done += [path.stem] * (not failed)
            print(f"{path.stem} {f'failed, see {path}' if failed else 'done'}")
        running = len(_running(process) - set(done))
        if new or (running and not told):
            told, share = True, (len(done) + running / 2) / len(runs)  # what runs counts as half
            ahead = (time.monotonic() - began) / 60 * (1 / share - 1) if done else 0
            ahead = f"; about {max(1, round(ahead))} min" if ahead else ""
            left = f"{running} running, {len(runs) - len(done) - running} left{ahead}"
            print(f"{len(done)} of {count(len(runs), 'run')} done, {left}", flush=True)
    return status


def _time(path):
    """Return when a file was written, in nanoseconds, or 0 where there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _running(process):
    """Return the names of the runs that are executed on this machine, a set."""
    found = set()
    with contextlib.suppress(psutil.Error):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "mmlcourse.batch.runs" in (words := child.cmdline()):
                    found.add(words[-2])
    return found


if __name__ == "__main__":  # Snakemake, in a process that ends with `mmlkit reproduce`
    without_iri_grammar()
    from snakemake.cli import main

    end_with_parent(int(sys.argv.pop(1)))
    main()
