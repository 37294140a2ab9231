"""A notebook is stopped when it makes no progress, not because it is slow; several run at once.

The limits are a few seconds, and every test also passes on a busy machine. A run that must not be
stopped shows progress (processor time or completed cells) much more often than its limit requires.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmlcourse.batch.notebooks import resolve_parameters, run_notebook, run_notebooks
from mmlcourse.cli.main import main

psutil = pytest.importorskip("psutil")
ROOT = Path(__file__).resolve().parents[2]
SECOND = 1 / 60
pytestmark = [pytest.mark.notebook, pytest.mark.timeout(600)]
FOREVER = 36000  # seconds; no test waits this long


def tiny_notebook(path, *codes):
    """Write a notebook with a parameters cell and the given cells."""
    import nbformat

    first = nbformat.v4.new_code_cell(
        "value = 1\noutput_dir = '.'", metadata={"tags": ["parameters"]}
    )
    cells = [
        nbformat.v4.new_markdown_cell("# A tiny one"),
        first,
        *map(nbformat.v4.new_code_cell, codes),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def alive(pids):
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


# The kernel waits on a lock and ignores signals, and so does a child process in its own session.
DEADLOCK = f"""
import os, signal, subprocess, sys, threading
for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(deaf, signal.SIG_IGN)
sleeps = "import time; time.sleep({FOREVER})"
child = subprocess.Popen([sys.executable, "-c", sleeps], start_new_session=True)
with open("pids", "a") as file:
    print(os.getpid(), child.pid, os.getppid(), file=file)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def test_a_hanging_notebook_is_stopped_with_its_child_processes(tmp_path, capfd):
    path = tiny_notebook(tmp_path / "99_hangs.ipynb", "print('before')", DEADLOCK)
    assert not run_notebook(path, tmp_path / "out", {}, stall=4 * SECOND, attempts=1)
    assert "It made no progress for 0.0666667 minutes" in capfd.readouterr().out
    assert not alive(map(int, (tmp_path / "pids").read_text().split()))
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["99_hangs.failed.ipynb"]
    assert "before" in (tmp_path / "out" / "99_hangs.failed.ipynb").read_text()


def test_a_hanging_run_is_repeated_once(tmp_path, capfd):
    code = (
        f"import pathlib, time\nonce = pathlib.Path('once')\nif not once.exists():\n    "
        f"once.touch()\n    time.sleep({FOREVER})"
    )
    path = tiny_notebook(tmp_path / "99_once.ipynb", code)
    assert run_notebook(path, tmp_path / "out", {}, stall=4 * SECOND)
    assert "it is tried once more" in capfd.readouterr().out
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["99_once.ipynb"]


def test_a_limit_also_stops_a_computing_notebook(tmp_path, capfd):
    path = tiny_notebook(tmp_path / "99_endless.ipynb", "while True: sum(range(100_000))")
    assert not run_notebook(path, tmp_path / "out", {}, stall=60 * SECOND, limit=8 * SECOND)
    told = capfd.readouterr().out
    assert (
        "It took longer than its limit of 0.133333 minutes." in told and told.count("started") == 1
    )


# Each of the two notebooks waits for the other, so both must run at the same time.
WAIT_FOR_OTHER = """
import json, os, pathlib, time
pathlib.Path("{own}").touch()
while not pathlib.Path("{other}").exists():
    time.sleep(0.1)
threads = os.environ.get("OMP_NUM_THREADS"), os.environ["OMP_WAIT_POLICY"]
pathlib.Path("{own}.json").write_text(json.dumps(threads))
"""


def mutually_waiting_notebooks(folder):
    return [
        tiny_notebook(
            folder / f"{number}_meets.ipynb", WAIT_FOR_OTHER.format(own=number, other=other)
        )
        for number, other in (("98", "99"), ("99", "98"))
    ]


def test_two_run_at_a_time_with_a_share_of_the_cores(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("mmlcourse.batch.notebooks.usable_cores", lambda: 7)
    paths = mutually_waiting_notebooks(tmp_path)
    options = dict(jobs=2, stall=60 * SECOND, attempts=1)
    assert run_notebooks(paths, tmp_path / "out", {}, **options) == []
    found = [json.loads((tmp_path / f"{number}.json").read_text()) for number in ("98", "99")]
    assert found == [["3", "PASSIVE"]] * 2
    lines = capfd.readouterr().out.splitlines()
    assert {*lines[:2]} == {"98_meets started", "99_meets started"}


def test_ctrl_c_stops_all_kernels_and_starts_no_other(tmp_path):
    code = f"import os, time\nopen(f'{{os.getpid()}}.pid', 'w').close()\ntime.sleep({FOREVER})"
    for number in ("98", "99"):
        tiny_notebook(tmp_path / f"{number}_waits.ipynb", code)
    start = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)      # "
        "a job in the background ignores it\n"
        "from mmlcourse.cli.main import main\nsys.exit(main(['run', *sys.argv[1:], '--jobs', '2']))"
    )
    command = [sys.executable, "-c", start, "98_waits.ipynb", "99_waits.ipynb"]
    run = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE
    )
    began = time.monotonic()
    while len(pids := [int(path.stem) for path in tmp_path.glob("*.pid")]) < 2:
        assert run.poll() is None and time.monotonic() - began < 300
        time.sleep(0.2)
    run.send_signal(signal.SIGINT)  # only to mmlkit, which must stop the other processes itself
    run.communicate(timeout=300)
    assert run.returncode != 0 and not alive(pids) and len(list(tmp_path.glob("*.pid"))) == 2


# ---- parameters and dry runs ----


def test_folders_become_absolute_and_other_names_stay(tmp_path, monkeypatch):
    path = tiny_notebook(tmp_path / "99_paths.ipynb", "1")
    (tmp_path / "data" / "mini").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def resolved_value(value):
        return resolve_parameters(path, "runs", {"value": value})["value"]

    for value in ("google/bert_x", "no/such/folder", "mini", "data", "a: b/c", 3, None, ["./x"]):
        assert resolved_value(value) == value
    for value, place in {
        "data/mini": "data/mini",
        "./new": "new",
        "../up": "../up",
        "~/own": "home/own",
        ".": ".",
        str(tmp_path / "data"): "data",
    }.items():
        assert resolved_value(value) == str((tmp_path / place).resolve())
    assert resolve_parameters(path, "runs", {}) == {"output_dir": str(tmp_path / "runs")}
    assert resolve_parameters(path, "runs", {"output_dir": "else/where"}) == {
        "output_dir": str(tmp_path / "else" / "where")
    }


def test_run_without_a_name_lists_the_notebooks(capsys):
    for arguments in (["run"], ["run", "--list"], ["run", "02", "--list"]):
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 2 * len(list((ROOT / "notebooks").glob("[0-9]*.ipynb"))) >= 22
        assert lines[4].split(maxsplit=1) == ["02_finetuning", "02 Fine-tuning"]
        assert lines[5].split(maxsplit=1) == [
            "parameters:",
            "profile, seed, output_dir, source, epochs",
        ]


def test_a_dry_run_lists_the_notebooks_and_runs_none(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("mmlcourse.batch.notebooks.usable_cores", lambda: 4)
    tiny_notebook(tmp_path / "98_a.ipynb", "1"), tiny_notebook(tmp_path / "99_b.ipynb", "1")
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "run",
                "98_a.ipynb",
                "99_b.ipynb",
                "-p",
                "value=google/bert_x",
                "--dry-run",
                "--jobs",
                "8",
            ]
        )
        == 0
    )
    out = tmp_path / "runs"
    assert capsys.readouterr().out.splitlines() == [
        f"98_a: output_dir={str(out)!r}, value='google/bert_x'",
        f"99_b: output_dir={str(out)!r}, value='google/bert_x'",
        f"2 notebooks would run, 2 at a time with 2 threads each, into {out}",
    ]
    assert main(["run", "98_a.ipynb", "--dry-run"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1] == f"1 notebook would run, 1 at a time, into {out}"
    )
    assert not out.exists()


def test_the_last_line_counts_the_runs(tmp_path, monkeypatch, capsys):
    tiny_notebook(tmp_path / "98_good.ipynb", "1")
    tiny_notebook(tmp_path / "99_bad.ipynb", "raise RuntimeError('on purpose')")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "98_good.ipynb", "99_bad.ipynb", "--jobs", "2"]) == 1
    said = capsys.readouterr()
    assert said.err == "1 of 2 notebooks failed: 99_bad\n"
    assert "RuntimeError: on purpose" in said.out


def test_a_killed_run_leaves_no_process_behind(tmp_path):
    """A run that receives SIGKILL cannot clean up; papermill and the kernel end themselves."""
    computes = (
        "import os\nwith open('pids', 'w') as file:\n    print(os.getpid(), os.getppid(), "
        "file=file)\n"
    )
    notebook = tiny_notebook(tmp_path / "busy.ipynb", f"{computes}while True:\n    pass")
    code = (
        f"from mmlcourse.batch.notebooks import run_notebook; run_notebook({str(notebook)!r}, "
        f"{str(tmp_path / 'out')!r}, {{}})"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    started = time.monotonic()
    while not (tmp_path / "pids").is_file() or not (tmp_path / "pids").read_text().strip():
        assert run.poll() is None and time.monotonic() - started < 300
        time.sleep(0.2)
    children = [psutil.Process(int(pid)) for pid in (tmp_path / "pids").read_text().split()]
    assert children[1].ppid() == run.pid
    run.kill()
    run.wait()
    gone, left = psutil.wait_procs(children, timeout=120)
    for process in left:
        process.kill()
    assert not left
