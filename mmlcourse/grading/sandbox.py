"""Where a submission runs: in bubblewrap, or with resource limits alone.

Bubblewrap gives a process no network, a file system of its own with an empty /tmp, and its own
process table. It holds Python, torch and numpy, and no mmlkit. Without bubblewrap the same
process has limits on time, memory, processes and files only. The report names the mode.
"""

import functools
import importlib.metadata
import json
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import psutil

from mmlcourse.batch.processes import end_tree
from mmlcourse.grading import runner

__all__ = ["Sandbox", "find_sandbox", "package_paths"]

FIRST_UID = 61000  # root runs each slot under a user id of its own, because processes are counted
LIMITS = {"AS": 4 << 30, "CPU": 120, "FSIZE": 16 << 20, "NOFILE": 256, "CORE": 0}
PROCESSES = 64
OUTPUT = 32 << 20  # bytes that are read of the output of one submission


@functools.cache
def package_paths():
    """Return the files of torch, of numpy and of everything that they need.

    Returns:
        {name in site-packages: path}.
    """
    found, seen, queue = {}, set(), ["torch", "numpy"]
    while queue:
        name = re.match(r"[\w.-]+", queue.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a requirement of another platform
        queue += [one for one in distribution.requires or () if "extra ==" not in one]
        tops = {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}
        found |= {one: Path(distribution.locate_file(one)) for one in tops}
    return {name: path for name, path in sorted(found.items()) if path.exists()}


class Sandbox:
    """Run the runner on a job, in one of two modes.

    Args:
        mode: "bubblewrap" or "limits alone".
        reason: why the mode is not bubblewrap.
        limits: other values of LIMITS.
    """

    def __init__(self, mode, reason="", limits=None):
        self.mode, self.reason, self.limits = mode, reason, {**LIMITS, **(limits or {})}

    def __str__(self):
        root = ", as root" * (self.mode != "bubblewrap" and self._uid(0) == 0)
        return self.mode + root + f" ({self.reason})" * bool(self.reason)

    def run(self, job, seconds, slot=0):
        """Run a job to its end or its time limit.

        Args:
            job: the job of `runner.run`, without paths and limits.
            seconds: the time limit.
            slot: a number that no other running job has.

        Returns:
            (text that the runner wrote, whether the time was over).
        """
        with tempfile.TemporaryDirectory(prefix="mmlkit-grade-") as folder:
            place = Path(folder)
            place.chmod(0o755)
            shutil.copy(runner.__file__, place / "runner.py")
            inside = Path("/in") if self.mode == "bubblewrap" else place
            job = {
                **job,
                "site": [str(inside / "site")],
                "limits": {**self.limits, "NPROC": PROCESSES + self._running(slot)},
            }
            (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
            for path in place.iterdir():
                path.chmod(0o644)
            line = [_python(), "-I", "-S", "-B", f"{inside}/runner.py", f"{inside}/job.json"]
            start = self._wrapped if self.mode == "bubblewrap" else self._limited
            return self._wait(start(line, place, slot), seconds)

    def _running(self, slot):
        """Return the threads that count against the limit of processes already."""
        uid = self._uid(slot)
        if self.mode == "bubblewrap" or uid != os.geteuid():
            return 0
        threads = psutil.process_iter(["uids", "num_threads"])
        return sum(one.info["num_threads"] or 0 for one in threads if one.info["uids"].real == uid)

    def _uid(self, slot):
        if os.geteuid():
            return os.geteuid()
        if self.mode != "bubblewrap" and not _can_switch():
            return 0
        return FIRST_UID + slot

    def _wrapped(self, line, place, slot):
        """Return the command and the arguments of Popen with bubblewrap."""
        paths = package_paths().items()
        mounts = [["--ro-bind", str(path), f"/in/site/{name}"] for name, path in paths]
        for name in ("runner.py", "job.json"):
            mounts.append(["--ro-bind", str(place / name), f"/in/{name}"])
        command = [*_bubblewrap(), *sum(mounts, []), "--remount-ro", "/", "--chdir", "/tmp"]
        return [*command, *_drop(self._uid(slot)), *line], {}

    def _limited(self, line, place, slot):
        """Return the command and the arguments of Popen with limits alone."""
        (place / "site").mkdir()
        for name, path in package_paths().items():
            (place / "site" / name).symlink_to(path)
        work, uid = place / "work", self._uid(slot)
        work.mkdir()
        more = {"cwd": work}
        if uid != os.geteuid():
            os.chown(work, uid, uid)
            more.update(user=uid, group=uid, extra_groups=[])
        return line, more

    def _wait(self, started, seconds):
        command, more = started
        with tempfile.TemporaryFile() as out:
            home = str(more.get("cwd", "/tmp"))
            process = psutil.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "HOME": home, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
                **more,
            )
            late = False
            try:
                process.wait(seconds)
            except psutil.TimeoutExpired:
                late = True
            finally:
                end_tree(process)
            out.seek(0)
            return out.read(OUTPUT).decode("utf-8", "replace"), late


def find_sandbox(limits=None):
    """Return the best sandbox of this machine.

    Args:
        limits: other values of LIMITS.

    Returns:
        A Sandbox; its `reason` says why it is not bubblewrap.
    """
    if not shutil.which("bwrap"):
        return Sandbox("limits alone", "bubblewrap is not installed", limits)
    uid = FIRST_UID if not os.geteuid() else os.geteuid()
    command = [*_bubblewrap(), *_drop(uid), _python(), "-I", "-S", "-c", ""]
    tried = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["it failed"])[-1][:200]
        return Sandbox("limits alone", f"bubblewrap cannot run here: {reason}", limits)
    return Sandbox("bubblewrap", "", limits)


def _python():
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@functools.cache
def _bubblewrap():
    """Return the options of bubblewrap that every submission has."""
    root = not os.geteuid()
    names = ["net", "pid", "ipc", "uts", "cgroup"] if root else ["all"]
    command = ["bwrap", *(f"--unshare-{name}" for name in names), "--die-with-parent"]
    command += ["--new-session", "--clearenv", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64"):
        command += ["--symlink", f"usr/{name}", f"/{name}"]
    for path in ("/etc/ld.so.cache", "/etc/passwd"):
        command += ["--ro-bind-try", path, path]
    home = Path(sys.base_prefix).resolve()
    if not home.is_relative_to("/usr"):
        for parent in reversed(home.parents[:-1]):  # bubblewrap makes them unreadable for others
            command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", str(home), str(home)]
    command += ["--perms", "0755", "--dir", "/in", "--perms", "0755", "--dir", "/in/site"]
    for path in sorted(_installed(home)):  # packages beside Python itself, mmlkit perhaps
        command += ["--tmpfs", str(path)]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for path in ("/tmp", "/dev/shm"):
        command += ["--perms", "1777", "--size", str(256 << 20), "--tmpfs", path]
    for name, value in (("HOME", "/tmp"), ("PATH", "/usr/bin"), ("OMP_NUM_THREADS", "1")):
        command += ["--setenv", name, value]
    return command


def _installed(home):
    """Return the folders of installed packages that bubblewrap would show."""
    folders = {Path(one) for one in (sysconfig.get_path("purelib"), *site.getsitepackages())}
    for base in {home, Path("/usr"), Path("/usr/local")}:
        folders |= {
            *base.glob("lib/python3*/site-packages"),
            *base.glob("lib/python3*/dist-packages"),
        }
    folders = {one.resolve() for one in folders if one.is_dir()}
    return {one for one in folders if one.is_relative_to(home) or one.is_relative_to("/usr")}


def _drop(uid):
    """Return the command that gives up the rights of root."""
    if os.geteuid():
        return []
    flags = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *flags, "--"]


@functools.cache
def _can_switch():
    """Return whether Python runs under another user id; not where it lies in root's home."""
    try:
        command = [_python(), "-I", "-S", "-c", ""]
        return not subprocess.run(
            command, user=FIRST_UID, group=FIRST_UID, extra_groups=[]
        ).returncode
    except OSError:
        return False
