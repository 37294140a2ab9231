"""Batches with faults: killed processes, failing runs, two batches in one folder, and Slurm."""

import contextlib
import json
import math
import os
import random
import re
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from mmlcourse.batch import runs
from mmlcourse.batch.batches import reproduce, unfinished
from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.processes import file_lock
from mmlcourse.batch.reports import write_report
from mmlcourse.batch.runs import changes, execute_run, gpu_names, read_result, record

psutil = pytest.importorskip("psutil")
pytest.importorskip("snakemake", reason="pip install 'mmlkit[batch]'")
pytestmark = [pytest.mark.notebook, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MMLKIT_HEADLESS": "1"}
PARAMETERS = "profile = 'fast'\nitem = 0\nlog = ''\nresult_file = None\ncheckpoint_dir = None"
START = """
import json, os, pathlib, signal, time
with open(log, 'a') as file:
    file.write(f'{item} {time.time()}\\n')
"""
SCORE = {"on": "toy", "split": "dev", "metric": "accuracy", "value": 0.5}
FOUND = {
    "scores": [SCORE],
    "device": "cpu",
    "hardware": "none",
    "peak_memory_mb": 1,
    "versions": {"torch": "0", "mmlkit": "0"},
}
KILLS = int(os.environ.get("MMLKIT_KILLS", "20"))
KILLED = (
    "its process was killed without a message. Most often the system does that for lack of memory"
)


@pytest.fixture
def toy(tmp_path):
    """Return a function that writes an experiment; each run logs its start and executes `code`."""
    import nbformat

    def make(code, items, limit=20):  # minutes; long enough that no successful run is stopped
        first = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
        write = f"_ = pathlib.Path(result_file).write_text(json.dumps({FOUND!r}))"
        codes = [START, textwrap.dedent(code), write]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(
            cells=[first, *map(nbformat.v4.new_code_cell, codes)], metadata={"kernelspec": kernel}
        )
        nbformat.write(notebook, tmp_path / "toy.ipynb")
        path = tmp_path / "toy.toml"
        path.write_text(
            f'title = "Toy"\nnotebook = "toy.ipynb"\n[grid]\nitem = {items}\n[fast]\n'
            f'limit = {limit}\n[fast.set]\nlog = "{tmp_path / "log"}"\n'
        )
        return path

    return make


def command(toml, out, *more):
    options = [str(toml), "--out", str(out), "--cores", "2", *more]
    return [sys.executable, "-W", "ignore", "-m", "mmlcourse", "reproduce", *options]


def start(toml, out, **options):
    return subprocess.Popen(command(toml, out), env=ENVIRONMENT, text=True, **options)


def starts(tmp_path):
    """Return {item: [start time of each of its runs]}."""
    found = {}
    log = tmp_path / "log"
    for line in log.read_text().splitlines() if log.is_file() else ():
        item, when = line.split()
        found.setdefault(item, []).append(float(when))
    return found


def wait_for(condition, seconds=300):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.2)


def result_files(out):
    """Return {run: (time, inode, content) of its result file}; a rewritten file differs."""
    found = {
        path.stem: (path.stat(), path.read_bytes()) for path in (out / "results").glob("*.json")
    }
    return {run: (stat.st_mtime, stat.st_ino, text) for run, (stat, text) in found.items()}


def test_kills_neither_lose_nor_repeat_a_finished_run(toy, tmp_path):
    """The test sends SIGKILL at random moments, to the whole batch or to its first process only."""
    toml, out = toy("time.sleep(0.2)", list(range(16))), tmp_path / "out"
    chance, seen = random.Random(0), {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for i in range(KILLS):
        batch = start(toml, out, start_new_session=True, **quiet)
        try:
            batch.wait(chance.uniform(3, 8))
        except subprocess.TimeoutExpired:
            first = psutil.Process(batch.pid)
            snakemake, family = first.children(), first.children(recursive=True)
            for process in [batch, *(family if i % 3 else [])]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            batch.wait()
            # Snakemake ends half a second after the first process. Until then it still gives each
            # result of a run that ends the present time, which is no second run.
            assert not psutil.wait_procs(snakemake, timeout=60)[1]
        now = result_files(out)
        kept = {run: now.get(run) for run in seen}
        assert kept == seen, f"kill {i} lost or changed a finished run"
        seen = now
    last = subprocess.run(command(toml, out), capture_output=True, text=True, env=ENVIRONMENT)
    assert last.returncode == 0, last.stdout + last.stderr
    final = result_files(out)
    assert set(final) == {str(item) for item in range(16)}
    assert all(final[run] == seen[run] for run in seen)
    for item, began in starts(tmp_path).items():
        assert max(began) < final[item][0], f"run {item} was begun again after it had finished"
    # No files accumulate.
    assert not list(out.rglob("*.tmp")) and not list((out / "work").glob("[!.]*"))
    assert sorted(path.stem for path in (out / "notebooks").glob("*.ipynb")) == sorted(final)
    assert len(list((out / ".snakemake" / "log").iterdir())) == 1


FAILURES = """
    if item == 1: raise MemoryError('numpy wanted 12 TB')
    if item == 2: open('/no/such/folder/train.csv')
    if item == 3: os.kill(os.getpid(), signal.SIGKILL)
    if item == 5 and not pathlib.Path(log + '.once').exists():
        pathlib.Path(log + '.once').touch()
        raise RuntimeError('only the first time')
    if item == 6: os.kill(os.getppid(), signal.SIGKILL)
    if item == 7:
        import psutil
        psutil.Process().parent().parent().kill()
        time.sleep(3600)
"""


def test_every_failure_is_reported_with_its_cause_and_the_others_finish(toy, tmp_path, capfd):
    """The kernel, papermill and the run's own process are killed in turn (items 3, 6 and 7)."""
    items, out = [0, 1, 2, 3, 5, 6, 7], tmp_path / "out"
    assert reproduce(load_experiment(toy(FAILURES, items)), out, cores=2) == [
        "1",
        "2",
        "3",
        "6",
        "7",
    ]
    lines = capfd.readouterr().out.splitlines()
    causes = dict(line.split(" failed: ") for line in lines if " failed: " in line)
    assert causes["1"] == (
        "out of memory (MemoryError: numpy wanted 12 TB). Take a smaller batch_size, fewer "
        "runs at a "
        "time (--cores), or a machine with more memory."
    )
    assert causes["2"] == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder/train.csv'"
    )
    assert all(causes[run].startswith(KILLED) for run in "367") and len(causes) == 5
    kept = json.loads((out / "failed" / "2.json").read_text())
    assert (
        "open('/no/such/folder/train.csv')" in kept["traceback"] and "\x1b" not in kept["traceback"]
    )
    assert kept["parameters"]["item"] == 2 and kept["cause"] == causes["2"]
    assert "/no/such/folder" in (out / "failed" / "2.ipynb").read_text()
    twice = {item: 2 - (item in "0") for item in "0123567"}
    assert {item: len(began) for item, began in starts(tmp_path).items()} == twice

    before = result_files(out)
    toml = toy("", list(range(8)))  # the corrected notebook; finished runs stay as they are
    assert reproduce(load_experiment(toml), out, cores=2) == []
    assert not list((out / "failed").iterdir())
    after = result_files(out)
    assert {run: after[run] for run in before} == before
    told = "0 was finished with another toy.ipynb; --rerun-changed executes it again."
    assert told in capfd.readouterr().out
    reproduce(load_experiment(toml, grid={"item": [0, 1]}), out, cores=2, again=True)
    again = result_files(out)
    assert again["0"] != after["0"] and again["1"] == after["1"] and again["5"] == after["5"]
    assert (out / "replaced" / "0.json").read_bytes() == before["0"][2]


def test_an_unset_variable_is_named_before_any_run(tmp_path, monkeypatch):
    monkeypatch.delenv("MMLKIT_REALDATA", raising=False)
    with pytest.raises(ValueError, match="MMLKIT_REALDATA is not set, and .*real-rates.toml"):
        reproduce(load_experiment("real-rates"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("found", ["sets", "/no/such/folder"])
def test_a_variable_that_is_no_absolute_folder_is_refused(tmp_path, monkeypatch, found):
    """A notebook runs in its own folder, where a relative path names another one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("MMLKIT_REALDATA", found)
    with pytest.raises(ValueError, match=f"MMLKIT_REALDATA is '{found}', expected the abs"):
        reproduce(load_experiment("real-rates"), tmp_path / "out")


def test_a_run_past_its_time_limit_is_stopped_and_restarted_once(toy, tmp_path, capfd):
    experiment, out = load_experiment(toy("time.sleep(36000)", [0], limit=0.05)), tmp_path / "out"
    assert reproduce(experiment, out, cores=1) == ["0"]
    said = capfd.readouterr()
    assert "0 failed: It took longer than its limit of 0.05 minutes." in said.out
    assert said.err.count("Trying to restart job") == 1


def test_a_second_batch_is_refused_and_names_the_first(toy, tmp_path):
    toml, out = toy("time.sleep(3600)", [0]), tmp_path / "out"
    first = start(toml, out, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: starts(tmp_path))
    second = subprocess.run(command(toml, out), capture_output=True, text=True, env=ENVIRONMENT)
    assert second.returncode == 2 and second.stdout == ""
    told = (
        rf"mmlkit reproduce: {out} is used by another batch: process {first.pid} on \S+, started "
    )
    assert re.match(told + r"[-\d]+ [:\d]+\. Wait until it has ended, stop it, or", second.stderr)
    family = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    wait_for(lambda: not any(one.is_running() for one in family), 30)
    toy("", [0])  # the lock of a killed batch is released
    third = subprocess.run(command(toml, out), capture_output=True, text=True, env=ENVIRONMENT)
    assert third.returncode == 0, third.stdout + third.stderr


def test_an_interrupt_of_the_first_process_ends_all_processes(toy, tmp_path):
    toml, out = toy("time.sleep(3600)", [0, 1, 2]), tmp_path / "out"
    code = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mmlcourse.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    line = [sys.executable, "-c", code, *command(toml, out)[5:]]
    batch = subprocess.Popen(
        line, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: len(starts(tmp_path)) == 2)
    family = psutil.Process(batch.pid).children(recursive=True)
    batch.send_signal(signal.SIGINT)  # to the first process only
    said = batch.communicate(timeout=60)[1]
    assert batch.returncode == 130 and said.endswith("Interrupted.\n")
    wait_for(lambda: not any(one.is_running() for one in family), 30)
    assert len(family) >= 7 and len(starts(tmp_path)) == 2 and not (out / "failed").exists()


def test_a_terminal_that_is_closed_ends_a_batch_as_ctrl_c_does(toy, tmp_path):
    """SIGHUP comes when a changed result has been moved away; it is moved back."""
    toml, out = toy("", [0]), tmp_path / "out"
    assert reproduce(load_experiment(toml), out) == []
    before, toml = result_files(out), toy("print(1)", [0])
    code = (
        "import os, signal, sys\nfrom mmlcourse.batch import batches\n"
        "batches._run_snakemake = lambda *_: os.kill(os.getpid(), signal.SIGHUP)\n"
        "from mmlcourse.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    line = [sys.executable, "-c", code, *command(toml, out, "--rerun-changed")[5:]]
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGHUP and done.stderr == "Interrupted.\n"
    assert result_files(out) == before and not list((out / "replaced").iterdir())


BEFORE = '[before]\nrun = "enc"\nwhen = { item = 1 }\nset = { item = 9 }\n'


def test_a_finished_run_stays_where_its_encoder_is_made_again(toy, tmp_path):
    toml, out = toy("", [0, 1]), tmp_path / "out"
    toml.write_text(toml.read_text().replace("[fast]\n", f"{BEFORE}[fast]\n"))
    assert reproduce(load_experiment(toml), out) == []
    before = result_files(out)
    (out / "results" / "enc.json").unlink()
    assert reproduce(load_experiment(toml), out) == []
    after = result_files(out)
    assert {after[run] == before[run] for run in "01"} == {True} and "enc" in after
    assert len(starts(tmp_path)["9"]) == 2 and len(starts(tmp_path)["1"]) == 1
    # A run to do must not use an encoder that was trained in another way.
    encoder = out / "results" / "enc.json"
    encoder.write_text(encoder.read_text().replace('"item": 9', '"item": 8'))
    (out / "results" / "1.json").unlink()
    with pytest.raises(ValueError, match="runs to do need enc, .* with another item. --rerun-"):
        reproduce(load_experiment(toml), out)
    assert len(starts(tmp_path)["1"]) == 1


RESULT_THEN_KILLED = """
place = pathlib.Path(result_file).parents[2] / "results" / f"{item}.json"
place.write_text(json.dumps({"experiment": "toy", "profile": "fast", "name": "0", "scores": []}))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_result_of_a_run_that_is_killed_afterwards_stays(toy, tmp_path):
    """Snakemake would remove the output of a failed job, and run it again."""
    toml, out = toy(RESULT_THEN_KILLED, [0]), tmp_path / "out"
    assert reproduce(load_experiment(toml), out) == []
    assert len(starts(tmp_path)["0"]) == 1 and b'"scores": []' in result_files(out)["0"][2]


KILLED_TWICE = """
place = pathlib.Path(checkpoint_dir)
place.mkdir(parents=True, exist_ok=True)
done = sorted(int(one.name) for one in place.iterdir())
for step in range(len(done), 4):
    with open(f'{log}.{item}', 'a') as file:
        file.write(f'{step}')
    (place / str(step)).touch()
    if step == 1 + int(pathlib.Path(log + '.second').exists()):
        pathlib.Path(log + '.second').touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_continues_after_its_last_checkpoint(toy, tmp_path):
    """The run is killed after steps 1 and 2; it uses the checkpoint with its own parameters."""
    toml, out = toy(KILLED_TWICE, [0]), tmp_path / "out"
    assert reproduce(load_experiment(toml), out) == ["0"]
    assert (tmp_path / "log.0").read_text() == "012"
    (tmp_path / "log.second").unlink()
    assert len(list((out / "work" / "0").glob("checkpoint-*"))) == 1
    assert reproduce(load_experiment(toml), out) == []
    assert (tmp_path / "log.0").read_text() == "0123" and not (out / "work" / "0").exists()


def test_a_killed_run_starts_again_with_other_code(toy, tmp_path, monkeypatch):
    """A checkpoint of an earlier mmlkit may not fit: the run that left it would fail for ever."""
    toml, out = toy(KILLED_TWICE, [0]), tmp_path / "out"
    experiment = load_experiment(toml)
    assert "killed" in execute_run(experiment, out, "0")
    assert (tmp_path / "log.0").read_text() == "01"
    monkeypatch.setattr(runs, "_code", lambda: "of another version")
    assert "killed" in execute_run(experiment, out, "0")
    assert (tmp_path / "log.0").read_text() == "01012"  # it would be 012 with the same code


def test_a_run_whose_data_have_changed_starts_again(toy, tmp_path):
    """The checkpoint is refused with the message of `fit`; the next attempt has none."""
    out = tmp_path / "out"
    refused = "if place.exists():\n    raise ValueError('it belongs to another run; ...')\n"
    text = KILLED_TWICE.replace("place.mkdir", f"{refused}place.mkdir")
    experiment = load_experiment(toy(text, [0]))
    assert "killed" in execute_run(experiment, out, "0")
    assert "belongs to another run" in execute_run(experiment, out, "0")
    (tmp_path / "log.second").unlink()
    assert "killed" in execute_run(experiment, out, "0")
    assert (tmp_path / "log.0").read_text() == "0101"


def test_the_hash_of_the_code_sees_every_file_but_hidden_ones(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text("x = 1")
    before = runs._code(tmp_path)
    (tmp_path / "a" / ".#one.py").symlink_to("nowhere")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "one.py").write_text("x = 3")
    assert runs._code(tmp_path) == before
    (tmp_path / "a" / "one.py").write_text("x = 2")
    assert runs._code(tmp_path) != before and len(runs._code()) == 16


def test_runs_with_similar_names_share_no_file(toy, tmp_path):
    """In an earlier version, the start of run 1 deleted the scores of run 1.5."""
    experiment, out = load_experiment(toy("", [1.5, 1])), tmp_path / "out"
    (out / "work" / "1.5").mkdir(parents=True)
    (out / "failed").mkdir()
    places = [out / "work" / "1.5" / "found.json", out / "failed" / "1.5.json"]
    for place in places:
        place.write_text("kept")
    assert execute_run(experiment, out, "1") is None
    assert [place.read_text() for place in places] == ["kept", "kept"]
    assert unfinished(experiment, out) == ["1.5"]


def test_a_run_with_an_unreadable_result_is_repeated(toy, tmp_path):
    """A power loss can leave an empty file."""
    toml, out = toy("", [0]), tmp_path / "out"
    (out / "results").mkdir(parents=True)
    (out / "results" / "0.json").write_text("")
    assert reproduce(load_experiment(toml), out) == []
    assert read_result(out / "results" / "0.json")["scores"][0]["value"] == 0.5


def test_the_folder_of_a_run_killed_after_its_result_is_removed(toy, tmp_path):
    experiment, out = load_experiment(toy("", [0])), tmp_path / "out"
    assert reproduce(experiment, out) == []
    (out / "work" / "0" / "checkpoint-0").mkdir(parents=True)
    assert reproduce(experiment, out) == [] and not (out / "work" / "0").exists()


WRITE_ENVIRONMENT = """
names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
pathlib.Path(f"{log}.{item}.json").write_text(json.dumps([os.environ.get(name) for name in names]))
while not all(pathlib.Path(f"{log}.{one}.json").exists() for one in (0, 1)):
    time.sleep(0.1)
"""


@pytest.mark.parametrize("gpus", ["", "3,5"], ids=["CPU", "two GPUs"])
def test_each_run_has_a_gpu_of_its_own_and_one_thread(toy, tmp_path, monkeypatch, gpus):
    """Each run waits for the other, so both run at the same time."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    assert gpu_names() == gpus.split(",") * bool(gpus)
    assert (
        reproduce(load_experiment(toy(WRITE_ENVIRONMENT, [0, 1])), tmp_path / "out", cores=2) == []
    )
    told = [json.loads((tmp_path / f"log.{item}.json").read_text()) for item in (0, 1)]
    assert sorted(told) == ([["3", "1"], ["5", "1"]] if gpus else [["", "1"]] * 2)


def test_what_is_no_gpu_has_no_name(tmp_path, monkeypatch):
    """-1 hides all GPUs; nvidia-smi without a GPU prints a sentence and fails."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpu_names() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpu_names() == []
    program.write_text("#!/bin/sh\necho 0\necho 1\n")
    assert gpu_names() == ["0", "1"]


def test_a_wrong_option_of_snakemake_is_no_failure_of_a_run(toy, tmp_path, capfd):
    experiment, out = load_experiment(toy("raise ValueError('once')", [0])), tmp_path / "out"
    assert reproduce(experiment, out) == ["0"]
    assert "0 failed: ValueError: once" in capfd.readouterr().out
    with pytest.raises(ValueError, match="Snakemake ended with status 2"):
        reproduce(experiment, out, options=["--no-such-option"])
    assert "failed" not in capfd.readouterr().out


def test_the_snakefile_runs_by_itself(toy, tmp_path):
    """The command is that of the first comment in the Snakefile, adapted to this experiment."""
    toml, out, place = toy("", [0, 1]), tmp_path / "out", ROOT / "mmlkit" / "batch" / "Snakefile"
    comment = re.findall(r"^#(.*)$", place.read_text(), re.M)
    line = re.search(r"snakemake (--snakefile.*?--keep-incomplete)", " ".join(comment))[1]
    words = line.replace("\\", " ").replace("mml-tables profile", f"{toml} profile")
    words = words.replace("mmlcourse/batch/Snakefile", str(place)).replace(
        "runs/mml-tables-fast", str(out)
    )
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *words.split()],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(result_files(out)) == ["0", "1"] and not list((out / "work").glob("[!.]*"))
    assert reproduce(load_experiment(toml), out) == [] and len(starts(tmp_path)["0"]) == 1


def test_a_wrong_option_of_snakemake_is_not_reported_as_a_killed_run(toy, tmp_path, capfd):
    experiment, out = load_experiment(toy("", [0])), tmp_path / "out"
    message = "Snakemake ended with status 2; its messages above name the reason."
    with pytest.raises(ValueError, match=message):
        reproduce(experiment, out, options=["--no-such-option"])
    said = capfd.readouterr()
    assert "unrecognized arguments: --no-such-option" in said.err and "killed" not in said.out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGPIPE")
def test_a_dry_run_may_be_piped_into_head(toy, tmp_path):
    """Snakemake lists more than a pipe holds; nobody reads it after the first line."""
    toml = toy("", list(range(400)))
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    listing = command(toml, tmp_path / "out", "--dry-run")
    with subprocess.Popen(listing, env=ENVIRONMENT, **options) as batch:
        assert "400 of 400 runs to do" in batch.stdout.readline() + batch.stdout.readline()
        batch.stdout.close()
        assert batch.stderr.read() == ""
    assert batch.returncode == 141  # as a shell says of a command that SIGPIPE ended


SBATCH = """#!{python}
# Plays sbatch: starts the job at once in the background, and writes down how it ended.
import os, re, subprocess, sys
from pathlib import Path
place = Path(os.environ["STANDIN"])
text = sys.argv[1:]
name = os.getpid()              # two at once are two jobs
(place / f"{{name}}.call").write_text(" ".join(text))
wrapped = next((part.removeprefix("--wrap=") for part in text if part.startswith("--wrap=")), None)
if wrapped is None:
    wrapped = text[text.index("--wrap") + 1] if "--wrap" in text else sys.stdin.read()
(place / f"{{name}}.sh").write_text(wrapped)
env = {{**os.environ, "SLURM_JOB_ID": str(name)}}
job = "sh {{0}}.sh > {{0}}.out 2>&1; echo $? > {{0}}.part; mv {{0}}.part {{0}}.end"
job = job.format(place / str(name))
subprocess.Popen(job, shell=True, env=env, start_new_session=True)
print(name)
"""
SACCT = """#!{python}
# Plays sacct and squeue: the state of every job.
import os
from pathlib import Path
for path in Path(os.environ["STANDIN"]).glob("*.call"):
    end = path.with_suffix(".end")
    ended = end.read_text().strip() if end.exists() else None
    state = {{None: "RUNNING", "0": "COMPLETED"}}.get(ended, "FAILED")
    print(f"{{path.stem}}|{{state}}")
"""

SRUN = (
    '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; '
    'done\nexec "$@"\n'
)  # skip the options of srun, then run the command of the job


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Put replacements of the Slurm commands on the PATH; return the folder of submitted jobs."""
    place, tools = tmp_path / "slurm", tmp_path / "bin"
    place.mkdir(), tools.mkdir()
    for name, text in {
        "sbatch": SBATCH,
        "sacct": SACCT,
        "squeue": SACCT,
        "srun": SRUN,
        "sinfo": "#!/bin/sh\n",
        "scancel": "#!/bin/sh\n",
        "scontrol": "#!/bin/sh\n",
        "sacctmgr": "#!/bin/sh\n",
        "sshare": "#!/bin/sh\n",
    }.items():
        (tools / name).write_text(
            text.format(python=sys.executable) if "{python}" in text else text
        )
        (tools / name).chmod((tools / name).stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(place))
    return place


SLURM = [
    "--executor",
    "slurm",
    "--default-resources",
    "slurm_account=course",
    "slurm_partition=short",
    "--latency-wait",
    "10",
    "--slurm-init-seconds-before-status-checks",
    "1",
    "--seconds-between-status-checks",
    "1",
]


def test_a_dry_run_on_slurm_submits_nothing(toy, tmp_path, cluster, capfd):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    experiment, out = load_experiment(toy("", [0, 1])), tmp_path / "out"
    assert reproduce(experiment, out, cores=2, options=[*SLURM, "--dry-run"]) == ["0", "1"]
    said = capfd.readouterr().out
    assert "Job 1: 0" in said and "This was a dry-run" in said and "failed" not in said
    assert not list(cluster.iterdir())


def test_results_stay_where_nothing_is_executed(toy, tmp_path, recwarn):
    """A changed result is moved away when its run is repeated, and not by a dry run."""
    toml, out = toy("", [0]), tmp_path / "out"
    assert reproduce(load_experiment(toml), out) == []
    write_report([out], tmp_path / "report")
    assert not [one for one in recwarn if "is not the result of a run" in str(one.message)]
    before = result_files(out)
    toml = toy("print(1)", [0, 1])  # another notebook; the second run is not finished
    (out / "replaced").mkdir()
    (out / "replaced" / "0.json").write_text("of an earlier change")
    cases = (["--dry-run"], 0), (["-np"], 0), (["--dry-run", "--no-such-option"], 2)
    cases += (["-n", "--set-resources", "bad"], 2), (["--set-resources", "bad"], 1)
    for options, status in cases:
        done = subprocess.run(
            command(toml, out, "--rerun-changed", *options), capture_output=True, env=ENVIRONMENT
        )
        assert result_files(out) == before and done.returncode == status, (options, done.stderr)
        (archived,) = (out / "replaced").iterdir()
        assert archived.read_text() == "of an earlier change"
    assert b"2 of 2 runs to do" in done.stdout
    (out / "results" / "0.json").write_text("{")  # damaged
    before = result_files(out)
    assert reproduce(load_experiment(toml), out, options=["--dry-run"]) == ["0", "1"]
    assert result_files(out) == before


def test_a_batch_runs_on_slurm(toy, tmp_path, cluster):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    experiment, out = load_experiment(toy("", [0, 1])), tmp_path / "out"
    assert reproduce(experiment, out, cores=2, options=SLURM) == []
    calls = [path.read_text() for path in cluster.glob("*.call")]
    assert len(calls) == 2 and all("course" in call for call in calls)
    assert all("--mem 4000" in call and "-t 25" in call for call in calls)


def test_a_folder_name_may_have_braces_and_spaces(toy, tmp_path):
    """Snakemake replaces names in braces, but not in the name of a folder."""
    experiment, out = load_experiment(toy("", [0])), tmp_path / "a {run} 'b'"
    assert reproduce(experiment, out) == [] and set(result_files(out)) == {"0"}


# ---- without Snakemake ----


def test_a_file_in_place_of_the_folder_is_named(toy, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "out"))):
        reproduce(load_experiment(toy("", [0])), tmp_path / "out")
    assert not starts(tmp_path) and (tmp_path / "out").read_text() == ""


def test_a_notebook_without_a_record_gives_a_result_without_scores(toy, tmp_path):
    experiment, out = load_experiment(toy("result_file = os.devnull", [0])), tmp_path / "out"
    assert execute_run(experiment, out, "0") is None
    result = read_result(out / "results" / "0.json")
    assert result["scores"] == [] and "peak_memory_mb" not in result and result["minutes"] >= 0
    text = write_report([out], out / "report").with_suffix(".md").read_text(encoding="utf-8")
    assert "1 run, 0.0 hours of computing, at most missing MB each" in text


def test_a_lock_is_released_when_its_process_ends(tmp_path):
    code = (
        f"import time\nfrom pathlib import Path\nfrom mmlcourse.batch.processes import file_lock\n"
        f"with file_lock(Path({str(tmp_path / 'lock')!r})):\n print('held', flush=True)\n"
        " time.sleep(60)"
    )
    line = [sys.executable, "-c", code]
    holder = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert holder.stdout.readline() == "held\n"
    with file_lock(tmp_path / "lock", wait=False) as lock:
        assert lock is None
    holder.kill()
    holder.wait()
    with file_lock(tmp_path / "lock", wait=False) as lock:
        assert lock is not None


def test_a_single_run(toy, tmp_path):
    experiment, out = load_experiment(toy("", [3])), tmp_path / "out"
    assert unfinished(experiment, out) == ["3"]
    started = time.time()
    assert execute_run(experiment, out, "3") is None and unfinished(experiment, out) == []
    result = read_result(out / "results" / "3.json")
    assert result["experiment"] == "toy" and result["parameters"]["item"] == 3
    assert result["scores"] == [SCORE] and result["name"] == "3"
    assert 0 < result["minutes"] <= (time.time() - started) / 60 + 0.01
    assert execute_run(experiment, out, "3") is None and len(starts(tmp_path)["3"]) == 1
    assert not (out / "work" / "3").exists()
    assert changes(result, experiment, "3") == []
    experiment.runs["3"].update(item=3.0)
    assert changes(result, experiment, "3") == []
    experiment.runs["3"].update(item=4, lr=1)
    assert changes(result, experiment, "3") == ["item", "lr"]
    result["parameters"]["lr"] = True  # which Python takes for 1
    assert changes(result, experiment, "3") == ["item", "lr"]


def test_the_record_of_a_notebook(tmp_path):
    scores = [dict(on="rte", split="dev", metric="accuracy", value=0.5)]
    assert record(None, scores=scores)["scores"] == scores
    path = tmp_path / "deep" / "x.json"
    found = record(path, scores=scores, heads_left=3)
    assert json.loads(path.read_text()) == found and found["heads_left"] == 3
    assert found["peak_memory_mb"] > 50 and found["versions"]["torch"]
    scores[0]["value"] = math.nan
    record(
        path,
        scores=scores,
        history=[{"pearson": math.nan, "rows": (1, math.inf)}],
    )
    whole = {**json.loads(path.read_text()), "experiment": "toy", "parameters": {}}
    path.write_text(json.dumps(whole))  # as a run of a batch completes it
    text = path.read_text()  # valid for R, jq and browsers
    assert "NaN" not in text and json.loads(text)["history"] == [
        {"pearson": None, "rows": [1, None]}
    ]
    assert np.isnan(read_result(path)["scores"][0]["value"])
    with pytest.raises(ValueError, match="expected on, split, metric, value"):
        record(None, scores=[dict(on="rte", value=1)])
    path.write_text('{"a": 1}')
    with pytest.raises(ValueError, match="x.json is not the result of a run"):
        read_result(path)


def test_a_record_leaves_the_names_of_the_batch_alone():
    with pytest.raises(ValueError, match="minutes, name is written by the batch"):
        record(None, scores=[], name="my-model", minutes=0)
