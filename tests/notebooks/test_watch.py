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
    assert not run_notebook(path, tmp_path / "out", {}, stall=4 * SECOND)
    told = capfd.readouterr().out
    assert (
        told.count("99_hangs started\n") == 2
        and told.count("It made no progress for 0.0666667 minutes") == 2
    )
    assert (
        told.count("; it is tried once more\n") == 1 and "needs more minutes: --stall 30." in told
    )
    lines = (tmp_path / "pids").read_text().splitlines()
    pids = [int(pid) for line in lines for pid in line.split()]
    assert len(pids) in (3, 6) and not alive(
        pids
    )  # a very slow start may be stopped before the second line is written
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["99_hangs.failed.ipynb"]
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


# The notebook has the lowest priority and no output. It is paused half of the time, for six times
# the limit.
SLOW = """
import os, subprocess, sys, time
os.nice(19)
code = '''import os, signal, sys, time
for _ in range(9):
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(1)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(1)'''
helper = subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
began = time.monotonic()
while time.monotonic() - began < 18:
    sum(range(100_000))
helper.wait()
"""


def test_a_slow_notebook_is_not_stopped(tmp_path, capfd):
    path = tiny_notebook(tmp_path / "99_slow.ipynb", SLOW)
    assert run_notebook(path, tmp_path / "out", {}, stall=3 * SECOND, attempts=1), (
        capfd.readouterr().out
    )


def test_completed_cells_count_as_progress_without_cpu_time(tmp_path, capfd):
    path = tiny_notebook(
        tmp_path / "99_waits.ipynb", *["import time; time.sleep(4); print('next')"] * 4
    )
    assert run_notebook(path, tmp_path / "out", {}, stall=12 * SECOND, attempts=1), (
        capfd.readouterr().out
    )


def test_a_limit_also_stops_a_computing_notebook(tmp_path, capfd):
    path = tiny_notebook(tmp_path / "99_endless.ipynb", "while True: sum(range(100_000))")
    assert not run_notebook(path, tmp_path / "out", {}, stall=60 * SECOND, limit=8 * SECOND)
    told = capfd.readouterr().out
    assert (
        "It took longer than its limit of 0.133333 minutes." in told and told.count("started") == 1
    )


def test_remaining_processes_of_a_notebook_are_stopped(tmp_path):
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; "
        f"time.sleep({FOREVER})'], start_new_session=True)\n"
        "with open('pids', 'w') as file:\n    print(os.getpid(), child.pid, "
        "file=file)\ntime.sleep(4)"
    )
    assert run_notebook(tiny_notebook(tmp_path / "99_leaves.ipynb", code), tmp_path / "out", {})
    assert not alive(map(int, (tmp_path / "pids").read_text().split()))


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


@pytest.mark.parametrize(
    ("own", "threads"), [(None, "3"), ("5", "5")], ids=["share", "the user's own"]
)
def test_two_run_at_a_time_with_a_share_of_the_cores(own, threads, tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if own:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    monkeypatch.setattr("mmlcourse.batch.notebooks.usable_cores", lambda: 7)
    assert (
        run_notebooks(
            mutually_waiting_notebooks(tmp_path),
            tmp_path / "out",
            {},
            jobs=2,
            stall=60 * SECOND,
            attempts=1,
        )
        == []
    )
    assert [
        json.loads((tmp_path / f"{number}.json").read_text())[0] for number in ("98", "99")
    ] == [threads] * 2
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line.split(" in ")[0] for line in lines) == [
        f"{n}_meets {what}" for n in ("98", "99") for what in ("done", "started")
    ]
    assert {lines[0], lines[1]} == {"98_meets started", "99_meets started"}


def test_with_one_job_the_first_notebook_waits_forever(tmp_path):
    """The first notebook waits forever; the second one finds the file of the first."""
    failed = run_notebooks(
        mutually_waiting_notebooks(tmp_path),
        tmp_path / "out",
        {},
        jobs=1,
        stall=30 * SECOND,
        limit=6 * SECOND,
    )
    assert failed and failed[0].stem == "98_meets"


def test_an_unknown_parameter_is_refused_before_the_first_run(tmp_path, capfd):
    paths = mutually_waiting_notebooks(tmp_path)
    other = tiny_notebook(tmp_path / "97_other.ipynb", "1")
    other.write_text(other.read_text().replace("value = 1", "worth = 1"))
    with pytest.raises(
        ValueError, match="97_other.ipynb has no parameter 'value'. It has worth, output_dir"
    ):
        run_notebooks([*paths, other], tmp_path / "out", {"value": 2}, jobs=2)
    assert not (tmp_path / "out").exists() and capfd.readouterr().out == ""


def test_ctrl_c_stops_all_kernels_and_starts_no_other(tmp_path):
    code = f"import os, time\nopen(f'{{os.getpid()}}.pid', 'w').close()\ntime.sleep({FOREVER})"
    for number in ("97", "98", "99"):
        tiny_notebook(tmp_path / f"{number}_waits.ipynb", code)
    start = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)      # "
        "a job in the background ignores it\n"
        "from mmlcourse.cli.main import main\nsys.exit(main(['run', *sys.argv[1:], '--jobs', '2']))"
    )
    command = [sys.executable, "-c", start, "97_waits.ipynb", "98_waits.ipynb", "99_waits.ipynb"]
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
    (
        tiny_notebook(tmp_path / "98_good.ipynb", "1"),
        tiny_notebook(tmp_path / "99_bad.ipynb", "raise RuntimeError('on purpose')"),
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", "98_good.ipynb"]) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith(f"1 notebook ran. Look into {tmp_path / 'runs'}")
    )
    assert main(["run", "98_good.ipynb", "99_bad.ipynb", "--jobs", "2"]) == 1
    said = capsys.readouterr()
    assert (
        said.err == "1 of 2 notebooks failed: 99_bad\n"
        and said.out.count("RuntimeError: on purpose") >= 1
    )


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--jobs", "whole number of at least 1"),
        ("--stall", "number above 0"),
        ("--limit", "number above 0"),
    ],
)
@pytest.mark.parametrize("value", ["0", "-1", "nan", "x"])
def test_limits_out_of_range_are_refused(option, kind, value, capsys):
    with pytest.raises(SystemExit):
        main(["run", "00", option, value])
    assert f"argument {option}: {value!r} is not a {kind}\n" in capsys.readouterr().err


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
