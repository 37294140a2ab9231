"""Hundreds of runs, carried through: `mmlkit reproduce` writes down what is to be done, lets Snakemake do it, and reads back what happened.

One machine, a Slurm cluster or a cloud differ by one option of Snakemake's. A run that is finished is never repeated, whatever was
killed when: its result is renamed into place, and a lock that ends with its process keeps others off it (runs.py).
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from mmlkit.batch.runs import changed_sources, finished, held, load_plan, read_result, write_plan
from mmlkit.messages import count

__all__ = ["cause", "estimate", "plan_batch", "reproduce", "states"]

_SNAKEFILE = Path(__file__).with_name("batch.smk")


def plan_batch(experiment, folder, *, again=False):
    """Writes what every run is to do into folder/planned/. Returns {run: what changed since it was finished}, where something did.

    again: such runs are to be made again; their results stay until then.
    """
    stale = {}
    for left in (Path(folder) / "planned").glob(".*.tmp"):
        if not _alive(int(left.name.split(".")[-2])):       # of a process that was killed while it wrote
            left.unlink(missing_ok=True)
    for name, parameters in experiment.runs.items():
        write_plan(experiment, folder, name, again=again)
        result = Path(folder) / "results" / f"{name}.json"
        changed = changed_sources(read_result(result), experiment.notebook, parameters) if result.is_file() else []
        stale |= {name: changed} if changed else {}
    return stale


def _alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def states(names, folder):
    """{run: "finished", "running", "failed" or "waiting"}."""
    found = {}
    for name in names:
        with held(Path(folder) / "locks" / name, wait=False) as free:
            running = not free
        failed = (Path(folder) / "failed" / f"{name}.json").is_file()
        done = finished(folder, name, load_plan(folder, name))
        found[name] = "finished" if done else "running" if running else "failed" if failed else "waiting"
    return found


def cause(folder, name):
    """Why a run has failed, in a sentence."""
    path = Path(folder) / "failed" / f"{name}.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))["cause"]
    return "its process was killed without a word. Most often the system does that for lack of memory: take fewer runs at a time (--cores)."


def estimate(experiment, todo, cores):
    """What is ahead, in a sentence: runs, and hours on a CPU or a GPU, as far as the experiment's file says what a run takes."""
    text = f"{len(todo)} of {count(len(experiment.runs), 'run')} to do, {cores} at a time"
    gpu = [experiment.gpu_minutes[name] for name in todo if experiment.gpu_minutes[name]]
    if gpu:
        text += f"; about {sum(gpu) / 60:.3g} GPU hours (an estimate: nothing here was timed on a GPU)"
    elif experiment.minutes:
        text += f"; about {_time(len(todo) * experiment.minutes / min(cores, len(todo) or 1))} on {cores} CPU core{'s' if cores > 1 else ''}"
    return text + "."


def reproduce(experiment, folder, *, cores=1, again=False, options=()):
    """Carries out what is not finished yet of an experiment, and says at the terminal how it goes. Returns {run: state}.

    folder: everything lands there: results/, notebooks/, failed/. cores: runs at a time. again: see `plan_batch`.
    options: for Snakemake, such as ["--executor", "slurm"]. Raises ModuleNotFoundError when Snakemake is not installed.
    """
    folder = Path(folder).resolve()
    stale = plan_batch(experiment, folder, again=again)
    for name, changed in list(stale.items())[:3]:
        print(f"{name} was finished with another {', '.join(changed)}; " + ("it is made again." if again else "--rerun-changed makes it again."))
    if len(stale) > 3:
        print(f"... and so were {len(stale) - 3} more.")
    before = states(experiment.runs, folder)
    todo = [name for name, state in before.items() if state != "finished"]
    print(f"{experiment.title}\n{estimate(experiment, todo, cores)}", flush=True)
    if not todo:
        return before
    if others := sum(state == "running" for state in before.values()):
        print(f"Another batch is at work in {folder}, on {others} of them; nothing is done twice.")
    ended = _engine(experiment, folder, todo, cores, options)
    found = states(experiment.runs, folder)
    if ended is not None:       # not interrupted: what left no word has been killed
        found = {name: "failed" if state == "waiting" else state for name, state in found.items()}
    failed = [name for name, state in found.items() if state == "failed"]
    for name in failed:
        print(f"{name} failed: {cause(folder, name)}")
    if failed and ended and not any((folder / "failed" / f"{name}.json").is_file() for name in failed):
        print(f"Snakemake's own words are in {folder / 'engine.log'}.")
    return found


def _engine(experiment, folder, todo, cores, options):
    """Runs Snakemake in a folder of its own, so that two batches share nothing of it; its exit status, or None when interrupted."""
    try:
        import snakemake  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("mmlkit reproduce needs Snakemake: pip install 'mmlkit[batch]'.") from error
    for old in (folder / ".engine").glob("*"):
        with held(folder / ".engine.lock" / old.name, wait=False) as free:
            if free:
                shutil.rmtree(old, ignore_errors=True)
    place = folder / ".engine" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    place.mkdir(parents=True)
    gpu = {"gpu": 1} if any(experiment.gpu_minutes.values()) else {}
    config = {"runs": todo, "folder": str(folder), "python": sys.executable, "threads": experiment.threads,
              "resources": {"runtime": round(experiment.limit) + 5, "mem_mb": experiment.memory, **gpu}}
    (place / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    elsewhere = any(option.split("=")[0] in ("--executor", "-e") for option in options)
    command = [sys.executable, "-W", "ignore", "-m", "snakemake", "--snakefile", str(_SNAKEFILE), "--directory", str(place),
               "--configfile", str(place / "config.json"), "--keep-going", "--jobs" if elsewhere else "--cores", str(cores),
               *([] if elsewhere else _here(experiment, gpu)), *options]
    with held(folder / ".engine.lock" / place.name), open(folder / "engine.log", "a", encoding="utf-8") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": _pythonpath()})
        try:
            _watch(engine, todo, folder, cores)
        except KeyboardInterrupt:       # Snakemake got it too, and stops its runs
            print("\nInterrupted. What is finished stays; the same command goes on from here.")
            engine.wait()
            return None
    if engine.returncode == 0:
        shutil.rmtree(place, ignore_errors=True)
    return engine.returncode


def _here(experiment, gpu):
    """On this machine: no more runs at a time than memory and GPUs allow."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    limits = [f"mem_mb={max(memory, experiment.memory)}"]
    if gpu:
        import torch

        limits.append(f"gpu={max(torch.cuda.device_count(), 1)}")
    return ["--resources", *limits]


def _pythonpath():
    """So that runs import this package, wherever they start."""
    return os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]))


# ---- the live table ----

def _watch(engine, todo, folder, cores):
    """Says what is done, running, failed, and the time left, until the engine ends: a table that moves, or a line per change."""
    started, since, last, drawn = time.monotonic(), {}, {}, 0
    live = sys.stdout.isatty()
    while True:
        over = engine.poll() is not None
        now = states(todo, folder)
        for name in todo:
            if now[name] == "running":
                since.setdefault(name, time.monotonic())
        lines = [_summary(now, folder, cores, started)]
        if live:
            lines += [f"  {name:<40} {_time((time.monotonic() - since[name]) / 60)}" for name in todo if now[name] == "running"]
            print("\x1b[F\x1b[2K" * drawn + "\n".join(lines), flush=True)
            drawn = len(lines)
        else:
            for name in todo:
                if now[name] != last.get(name, "waiting") and now[name] in ("finished", "failed"):
                    print(f"{name:<40} {now[name]:<10} {lines[0]}", flush=True)
        if over:
            return
        last = now
        time.sleep(0.5 if live else 1)


def _summary(now, folder, cores, started):
    count = Counter(now.values())
    text = f"{count['finished']} of {len(now)} done, {count['running']} running, {count['failed']} failed, {_time((time.monotonic() - started) / 60)}"
    took = [read_result(folder / "results" / f"{name}.json")["minutes"] for name, state in now.items() if state == "finished"]
    left = count["waiting"] + count["running"] / 2
    return text + (f", about {_time(left * statistics.median(took) / cores)} left" if took and left else "")


def _time(minutes):
    return f"{60 * minutes:.0f} s" if minutes < 1.5 else f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
