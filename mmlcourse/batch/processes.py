"""The processes of a batch: watched, stopped with everything they started, kept apart by locks.

A process is stopped when it makes no progress. Progress is measured, not time: on a busy machine
it may be as slow as it likes.
"""

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import threading
import time

import psutil

__all__ = [
    "STALLED",
    "STOPPED",
    "end_tree",
    "end_with_parent",
    "file_lock",
    "run_watched",
    "without_iri_grammar",
]

STALLED, STOPPED = "stalled", "stopped"  # take the place of an exit status

# Share of one core below which a process counts as waiting. A waiting kernel uses 0.1 %. A kernel
# that computes at the lowest priority, beside a busy process on the same core, gets 1.5 %.
_WORKING = 0.005


@contextlib.contextmanager
def file_lock(path, wait=True):
    """Hold an exclusive lock on a file; the system releases it when the process ends.

    Args:
        path: the file, a Path; it is created when it is missing.
        wait: whether to wait for another process that holds the lock.

    Yields:
        The open file, or None when another process holds the lock.
    """
    import fcntl  # of Linux and macOS; on Windows, batches need WSL

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file = None
        yield file


def end_with_parent(parent):
    """End this process within a second after another process has ended.

    Args:
        parent: the id of the process that started this one.
    """

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def without_iri_grammar():
    """Keep jsonschema from building a grammar for web addresses when it is imported.

    It takes a second in every process, and papermill, Snakemake and our own schema do not use it.
    """
    sys.modules.setdefault("rfc3987_syntax", None)


def run_watched(
    command, environment, saved, *, stall=math.inf, limit=math.inf, stop=bool, changed=bool
):
    """Run a command to its end, or until there is a reason to stop it.

    It makes progress when its process tree uses CPU time, or when the file `saved` is written.

    Args:
        command: the program and its arguments, a list.
        environment: its environment variables, a dict.
        saved: the path of a file that the program writes as it goes on.
        stall: minutes without progress after which it is stopped.
        limit: minutes that it may take in all.
        stop: a function that returns True when the run is to be stopped.
        changed: a function that is called after `saved` was written.

    Returns:
        (seconds, status, text): the exit status and what was printed; or STALLED or STOPPED, and
        the reason.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        root = psutil.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=environment)
        seconds = {}
        try:
            status, reason = _watch(root, seconds, saved, stall, limit, stop, changed)
        finally:
            end_tree(root, seconds)
        printed.seek(0)
        return time.monotonic() - started, status, reason or printed.read()


def _watch(root, seconds, saved, stall, limit, stop, changed):
    """Return (exit status, None) of a process that ended by itself, else its state and reason."""
    pause = min(1, 6 * stall)
    left, quiet, used, stamp = 60 * limit, 0, 0, None
    while True:
        with contextlib.suppress(psutil.TimeoutExpired):
            return root.wait(pause), None
        if stop():
            return STOPPED, "It was interrupted."
        # Only waiting time counts: a suspended laptop or Ctrl-Z is not a lack of progress.
        left, quiet, used = left - pause, quiet + pause, used + _cpu_seconds(root, seconds)
        now = saved.stat().st_mtime_ns if saved.is_file() else None  # papermill writes it per cell
        if left <= 0:
            return STOPPED, f"It took longer than its limit of {limit:g} minutes."
        if now != stamp:
            changed()
        if now != stamp or used >= _WORKING * 60 * stall:
            quiet, used, stamp = 0, 0, now
        elif quiet >= 60 * stall:
            return STALLED, (
                f"It made no progress for {stall:g} minutes: no CPU time used, no cell started or "
                "ended. It was stopped. A cell that only waits, such as for a slow download, needs "
                "more minutes: --stall 30."
            )


def _cpu_seconds(root, seconds):
    """Return the CPU time of the process tree since the last call; `seconds` holds the totals."""
    used = 0.0
    _find_children(root, seconds)
    for process, before in list(seconds.items()):
        with contextlib.suppress(psutil.Error):
            seconds[process] = sum(process.cpu_times())  # includes children that have ended
            used += max(0.0, seconds[process] - before)
    return used


def _find_children(root, seconds):
    with contextlib.suppress(psutil.Error):
        for process in [root, *root.children(recursive=True)]:
            seconds.setdefault(process, 0.0)


def end_tree(root, seconds=None):
    """Kill a process and everything that it started, also when the process itself has ended.

    A kernel has a session of its own, so a signal to the process group would miss it.

    Args:
        root: a psutil.Popen.
        seconds: a dict whose keys are the processes that were seen before.
    """
    seconds = seconds or {}
    _find_children(root, seconds)
    for process in seconds:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(seconds, timeout=10)
    root.wait()
