"""Runs a process until it ends or makes no progress, and then ends it together with everything it started.

Progress, not time: on a busy machine a run may be as slow as it likes. `mmlkit run` uses it for notebooks.
"""

import contextlib
import subprocess
import tempfile
import time

__all__ = ["STALLED", "STOPPED", "run_watched"]

STALLED, STOPPED = "stalled", "stopped"     # in place of the exit status of a process that was killed

# The share of one core below which a process counts as waiting. A kernel that waits uses 0.1 %; one that computes at the
# lowest priority, beside a busy process on the same core, gets 1.5 %.
_WORKING = 0.005


def run_watched(command, environment, saved, *, stall, limit=None, stop=None):
    """Run a command to its end, or until there is a reason to stop it and everything it started.

    It makes progress when its process tree uses CPU time, or when the file `saved` is written.

    Args:
        command: the program and its arguments, a list.
        environment: its environment variables, a dict.
        saved: the path of a file that the program writes as it goes on.
        stall: minutes without progress after which it is stopped.
        limit: minutes that it may take in all; None: any time.
        stop: a threading.Event; when it is set, the run is stopped.

    Returns:
        (seconds, status, text): the exit status and what it printed; or STALLED or STOPPED, and the reason.

    Raises:
        ModuleNotFoundError: psutil is missing.
    """
    try:
        import psutil  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("mmlkit run needs psutil, which is not installed: pip install 'mmlkit[notebooks]'.") from error
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=environment)
        tree = _Tree(process.pid)
        try:
            status, reason = _watch(process, tree, saved, stall, limit, stop)
        finally:
            tree.kill()
            process.wait()
        printed.seek(0)
        return time.monotonic() - started, status, reason or printed.read()


def _watch(process, tree, saved, stall, limit, stop):
    """Wait for the process. Return (exit status, None) when it ended by itself, else (STALLED or STOPPED, the reason)."""
    pause = min(1, 6 * stall)
    left, quiet, used, stamp = 60 * limit if limit else float("inf"), 0, 0, None
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(pause), None
        if stop is not None and stop.is_set():
            return STOPPED, "It was interrupted."
        # Only the time waited for here counts: a laptop that slept, or Ctrl-Z, is no standstill.
        left, quiet, used = left - pause, quiet + pause, used + tree.cpu_seconds()
        now = saved.stat().st_mtime_ns if saved.is_file() else None     # papermill writes it with each cell, and with output
        if left <= 0:
            return STOPPED, f"It took more than {limit:g} minutes, the limit that was set (--limit)."
        if now != stamp or used >= _WORKING * 60 * stall:
            quiet, used, stamp = 0, 0, now
        elif quiet >= 60 * stall:
            return STALLED, (f"It made no progress for {stall:g} minutes: no CPU time used, no cell started or ended. It was "
                              "stopped. If a cell only waits, such as for a slow download, give it more minutes: --stall 30.")


class _Tree:
    """A process and all that it started. A kernel has a session of its own, so a signal to the group would miss it."""

    def __init__(self, pid):
        import psutil

        self.gone, self.wait = psutil.Error, psutil.wait_procs
        self.seconds = {psutil.Process(pid): 0.0}
        self.root = next(iter(self.seconds))

    def cpu_seconds(self):
        """Return the CPU time that the processes have used since the last call."""
        used = 0.0
        for one in self._look():
            try:
                now = sum(one.cpu_times())      # with that of its ended children, and on Linux the wait for the disk
            except self.gone:
                continue
            used += max(0.0, now - self.seconds[one])
            self.seconds[one] = now
        return used

    def kill(self):
        """End whatever of it is still alive, also after the first process has ended."""
        for one in self._look():
            with contextlib.suppress(self.gone):
                one.kill()
        self.wait(self.seconds, timeout=10)

    def _look(self):
        with contextlib.suppress(self.gone):
            for child in self.root.children(recursive=True):
                self.seconds.setdefault(child, 0.0)
        return list(self.seconds)
