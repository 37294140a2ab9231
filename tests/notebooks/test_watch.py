"""A notebook is stopped when it makes no progress, not because it is slow; several run at once.

The limits are a few seconds, and every test also passes on a busy machine. A process that must not
be stopped shows progress (processor time or a written file) much more often than its limit asks.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmlcourse.batch import notebooks
from mmlcourse.batch.notebooks import (
    find_notebooks,
    notebook_parameters,
    parse_assignments,
    parse_value,
    resolve_parameters,
    run_notebook,
    run_notebooks,
    stated_minutes,
)
from mmlcourse.batch.processes import STALLED, STOPPED, run_watched
from mmlcourse.cli.main import main

psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
SECOND = 1 / 60
FOREVER = 36000  # seconds; no test waits this long


def tiny_notebook(path, *codes):
    """Write a notebook with a parameters cell and the given cells."""
    import nbformat

    first = nbformat.v4.new_code_cell(
        "value = 1\noutput_dir = '.'", metadata={"tags": ["parameters"]}
    )
    cells = [first, *map(nbformat.v4.new_code_cell, codes)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def watch(tmp_path, code, **limits):
    return run_watched([sys.executable, "-c", code], dict(os.environ), tmp_path / "saved", **limits)


def alive(pids):
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


# The process waits on a lock and ignores signals, and so does a child in its own session.
DEADLOCK = f"""
import os, signal, subprocess, sys, threading
for deaf in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(deaf, signal.SIG_IGN)
sleeps = "import time; time.sleep({FOREVER})"
child = subprocess.Popen([sys.executable, "-c", sleeps], start_new_session=True)
with open("{{pids}}", "w") as file:
    print(os.getpid(), child.pid, file=file)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@pytest.mark.slow
def test_a_hanging_process_is_stopped_with_its_children(tmp_path):
    code = DEADLOCK.replace("{pids}", str(tmp_path / "pids"))
    _, status, told = watch(tmp_path, code, stall=4 * SECOND)
    assert status == STALLED and "no progress for 0.0666667 minutes" in told
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2 and not alive(pids)


@pytest.mark.slow
def test_children_that_a_process_leaves_behind_are_stopped(tmp_path):
    child = f"[sys.executable, '-c', 'import time; time.sleep({FOREVER})']"
    code = f"import subprocess, sys, time\nprint(subprocess.Popen({child}).pid)\ntime.sleep(3)"
    _, status, told = watch(tmp_path, code)
    assert status == 0 and not alive([int(told)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", ["sum(range(1_000_000))", "open('saved', 'w').close()"], ids=["computes", "saves"]
)
def test_a_slow_process_is_not_stopped(tmp_path, monkeypatch, step):
    """It has the lowest priority, and mostly sleeps, for three times the limit."""
    monkeypatch.chdir(tmp_path)
    code = f"import os, time\nos.nice(19)\nfor _ in range(12):\n    {step}\n    time.sleep(0.75)"
    written = []
    limits = dict(stall=3 * SECOND, changed=lambda: written.append(step))
    assert watch(tmp_path, code, **limits)[1] == 0 and bool(written) == ("saved" in step)


def test_cells_are_counted_while_a_notebook_runs(tmp_path, monkeypatch):
    shown, saved = [], tmp_path / "saved.ipynb"

    class Bar(notebooks.tqdm):
        def refresh(self):
            shown.append((self.n, self.total))

    monkeypatch.setattr(notebooks, "tqdm", Bar)
    states = ["completed", "completed", "running", "pending", None]
    cells = [{"metadata": {"papermill": {"status": state}} if state else {}} for state in states]
    with notebooks._cell_bar(Path("02_a.ipynb"), saved) as changed:
        changed()  # nothing is written yet
        saved.write_text(json.dumps({"cells": cells}))
        changed()
        saved.write_text("{")  # half of it is written
        changed()
    assert shown == [(2, 5)]


@pytest.mark.slow
def test_a_limit_also_stops_a_computing_process(tmp_path):
    _, status, told = watch(tmp_path, "while True: pass", limit=2 * SECOND)
    assert status == STOPPED and told == "It took longer than its limit of 0.0333333 minutes."


def test_a_stalled_notebook_is_run_once_more_and_a_failed_one_is_kept(
    tmp_path, monkeypatch, capsys
):
    path, out = tiny_notebook(tmp_path / "99_a.ipynb", "1"), tmp_path / "out"
    statuses, given = [STALLED, 0, STALLED, STALLED, 1], []

    def execute(path, output, parameters, environment, **options):
        given.append((parameters, options["stall"]))
        output.write_text("executed")
        return 1.0, statuses.pop(0), "told"

    monkeypatch.setattr(notebooks, "execute_notebook", execute)
    assert run_notebook(path, out, {"value": 3})
    assert given[0] == ({"output_dir": str(out), "value": 3}, 5)
    assert [one.name for one in out.iterdir()] == ["99_a.ipynb"]
    assert not run_notebook(path, out, {}) and statuses == [1]
    assert not run_notebook(path, out, {}) and not statuses
    assert sorted(one.name for one in out.iterdir()) == ["99_a.failed.ipynb", "99_a.ipynb"]
    said = capsys.readouterr().out
    assert said.count("; it is tried once more\n") == 2 and said.count("99_a started\n") == 5


@pytest.mark.notebook
def test_two_run_at_a_time_and_values_reach_them_as_they_are(tmp_path, monkeypatch, capfd):
    """YAML 1.1 reads 5e-05 as a text, and papermill fills in names in braces.

    Each of the two notebooks waits for the other. One of them fails then.
    """
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("mmlcourse.batch.notebooks.usable_cores", lambda: 7)
    values = [5e-5, 1e-4, 1e22, 3, True, None, "5e-05", "no", "a {value}", "\N{GRINNING FACE}"]
    code = """import os, pathlib, time
pathlib.Path("{own}").touch()
while not pathlib.Path("{other}").exists():
    time.sleep(0.1)
assert value == {values!r} and os.environ["OMP_NUM_THREADS"] == "3", value
if {own} == 99:
    raise RuntimeError("on purpose")
"""
    paths = [
        tiny_notebook(
            tmp_path / "a{b}" / f"{own}_meets.ipynb",
            code.format(own=own, other=other, values=values),
        )
        for own, other in ((98, 99), (99, 98))
    ]
    failed = run_notebooks(paths, tmp_path / "out", {"value": values}, jobs=2)
    assert failed == paths[1:] and "RuntimeError: on purpose" in capfd.readouterr().out
    names = sorted(one.name for one in (tmp_path / "out").iterdir())
    assert names == ["98_meets.ipynb", "99_meets.failed.ipynb"]


@pytest.mark.notebook
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_behind(tmp_path, sent):
    """After SIGKILL, papermill and the kernel end themselves. After Ctrl-C no other one starts."""
    code = "import os\nwith open(f'{os.getpid()}.pid', 'w') as file:\n    print(os.getppid(), "
    code += "file=file)\nwhile True:\n    pass"
    for number in ("98", "99"):
        tiny_notebook(tmp_path / f"{number}_waits.ipynb", code)
    start = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mmlcourse.cli.main import main\nsys.exit(main(['run', *sys.argv[1:], '--jobs', '1']))"
    )
    command = [sys.executable, "-c", start, "98_waits.ipynb", "99_waits.ipynb"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    began = time.monotonic()
    while not (files := [path for path in tmp_path.glob("*.pid") if path.read_text()]):
        assert run.poll() is None and time.monotonic() - began < 300
        time.sleep(0.2)
    children = [psutil.Process(int(pid)) for pid in (files[0].stem, files[0].read_text())]
    run.send_signal(sent)
    said = run.communicate(timeout=300)[1]
    assert run.returncode == (130 if sent == signal.SIGINT else -sent)
    assert said == (b"Interrupted.\n" if sent == signal.SIGINT else b"")
    assert not psutil.wait_procs(children, timeout=120)[1]
    assert len(list(tmp_path.glob("*.pid"))) == 1


# ---- names, parameters and dry runs ----


def test_find_notebooks():
    assert [stated_minutes(path) for path in find_notebooks(["02", "06"])] == [4, 0]
    names = [path.stem for path in find_notebooks(["2", "00_start_here"])]
    assert names == ["02_finetuning", "00_start_here"]
    assert find_notebooks(["all"]) == NOTEBOOKS
    for name in ("77", ""):
        with pytest.raises(FileNotFoundError, match=f"no notebook '{name}'. Known: all, 00_start"):
            find_notebooks([name])


def test_the_parameters_of_a_notebook(tmp_path):
    tagged = [("a = 1", ["parameters"]), ("b = c = 2", ["parameters", "x"]), ("d = 3", [])]
    cells = [
        {"cell_type": "code", "source": code, "metadata": {"tags": tags}} for code, tags in tagged
    ]
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert notebook_parameters(path) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="one.ipynb has no parameter vlaue: its cells tagged"):
        resolve_parameters(path, "out", {"vlaue": 3})
    path.write_text("{")
    with pytest.raises(ValueError, match="one.ipynb is not a notebook"):
        notebook_parameters(path)


def test_values_on_the_command_line():
    found = parse_assignments(["epochs=1", "name=a=b"])
    assert found == {"epochs": "1", "name": "a=b"}
    texts = {"1e-4": 1e-4, "true": True, "null": None, "data/x": "data/x", "[1, 2]": [1, 2]}
    assert {text: parse_value(text) for text in texts} == texts
    for wrong in ("epochs", "=1", "epochs="):
        with pytest.raises(ValueError, match="is not of the form NAME=VALUE"):
            parse_assignments([wrong])


def test_folders_become_absolute_and_other_names_stay(tmp_path, monkeypatch):
    path = tiny_notebook(tmp_path / "99_paths.ipynb", "1")
    (tmp_path / "data" / "mini").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def resolved(value):
        return resolve_parameters(path, "runs", {"value": value})["value"]

    for value in ("google/bert_x", "no/such/folder", "mini", "data", "a: b/c", 3, None, ["./x"]):
        assert resolved(value) == value
    for value, place in {
        "data/mini": "data/mini",
        "./new": "new",
        "../up": "../up",
        "~/own": "home/own",
        ".": ".",
        str(tmp_path / "data"): "data",
    }.items():
        assert resolved(value) == str((tmp_path / place).resolve())
    assert resolve_parameters(path, "runs", {}) == {"output_dir": str(tmp_path / "runs")}


def test_no_notebook_is_written_over_another(tmp_path, monkeypatch):
    paths = [tiny_notebook(tmp_path / week / "hw.ipynb", "1") for week in ("1", "2")]
    monkeypatch.chdir(tmp_path)
    for some, out in ((paths, "runs"), (paths[:1], "1")):
        with pytest.raises(ValueError, match=f"written over another one in {out}; run notebooks"):
            run_notebooks(some, out, {})
    assert not Path("runs").exists()


def test_run_without_a_name_lists_the_notebooks(capsys):
    assert main(["run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(NOTEBOOKS) >= 22
    assert lines[4].split(maxsplit=1) == ["02_finetuning", "02 Fine-tuning"]
    assert lines[5].split(maxsplit=1)[1] == "profile, seed, output_dir, source, epochs"


def test_a_dry_run_lists_the_notebooks_and_runs_none(tmp_path, monkeypatch, capsys):
    tiny_notebook(tmp_path / "98_a.ipynb", "1")
    tiny_notebook(tmp_path / "99_b.ipynb", "1")
    monkeypatch.chdir(tmp_path)
    line = [
        "run",
        "98_a.ipynb",
        "99_b.ipynb",
        "-p",
        "value=google/bert_x",
        "--dry-run",
        "--jobs",
        "8",
    ]
    assert main(line) == 0
    out = tmp_path / "runs"
    assert capsys.readouterr().out.splitlines() == [
        f"98_a: output_dir={str(out)!r}, value='google/bert_x'",
        f"99_b: output_dir={str(out)!r}, value='google/bert_x'",
        f"2 notebooks would run, 2 at a time, into {out}",
    ]
    assert not out.exists()


@pytest.mark.parametrize("failed", [[], ["99_b"]])
def test_the_last_line_counts_the_runs(tmp_path, monkeypatch, capsys, failed):
    tiny_notebook(tmp_path / "98_a.ipynb", "1")
    tiny_notebook(tmp_path / "99_b.ipynb", "1")
    monkeypatch.chdir(tmp_path)
    calls = []

    def run(paths, out, parameters, **options):
        calls.append({"parameters": parameters, **options})
        return [path for path in paths if path.stem in failed]

    monkeypatch.setattr(notebooks, "run_notebooks", run)
    assert main(["run", "98_a.ipynb", "99_b.ipynb", "--jobs", "2"]) == len(failed)
    said = capsys.readouterr()
    assert calls == [{"parameters": {}, "jobs": 2, "stall": 5, "limit": math.inf}]
    if failed:
        assert said.err == "1 of 2 notebooks failed: 99_b\n"
    else:
        assert said.out.startswith(f"2 notebooks ran. Look into {tmp_path / 'runs'}")
