"""Batches with faults: killed processes, failing runs, damaged results, two in one folder."""

import inspect
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mmlcourse.batch import runs
from mmlcourse.batch.batches import reproduce, unfinished
from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.processes import file_lock
from mmlcourse.batch.runs import changes, execute_run, gpu_names, read_result, record
from mmlcourse.cli.main import main
from mmlkit.training import resume

psutil = pytest.importorskip("psutil")
pytest.importorskip("snakemake", reason="pip install 'mmlkit[batch]'")
pytestmark = [pytest.mark.notebook, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[3]
PARAMETERS = "profile = 'fast'\nitem = 0\nlog = ''\nresult_file = None\ncheckpoint_dir = None"
SCORE = {"on": "toy", "split": "dev", "metric": "accuracy", "value": 0.5}
FOUND = {"scores": [SCORE], "device": "cpu"}
START = f"import json, os, pathlib, signal, time\nfound = {FOUND!r}"
WRITE = "_ = pathlib.Path(result_file).write_text(json.dumps(found))"


@pytest.fixture
def toy(tmp_path):
    """Return a function that writes an experiment, whose runs execute `code`."""
    import nbformat

    def make(code, items, more=""):
        first = nbformat.v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
        codes = "\n".join([START, textwrap.dedent(code), WRITE])
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(
            cells=[first, nbformat.v4.new_code_cell(codes)], metadata={"kernelspec": kernel}
        )
        nbformat.write(notebook, tmp_path / "toy.ipynb")
        path = tmp_path / "toy.toml"
        path.write_text(
            f'title = "Toy"\nnotebook = "toy.ipynb"\n[grid]\nitem = {items}\n{more}\n[fast]\n'
            f'[fast.set]\nlog = "{tmp_path / "log"}"\n'
        )
        return path

    return make


@pytest.fixture
def executed(monkeypatch):
    """Execute no notebook: write its result at once; return what was executed."""
    calls = []

    def execute(notebook, output, parameters, environment, **options):
        calls.append({**parameters, "files": sorted(os.listdir(output.parent))})
        status = parameters.get("item") == 9
        output.write_text("executed")
        if not status:
            Path(parameters["result_file"]).write_text(json.dumps(FOUND))
        else:
            Path(parameters["checkpoint_dir"]).mkdir(exist_ok=True)
        return 3.0, int(status), "ValueError: on purpose" * status

    monkeypatch.setattr(runs, "execute_notebook", execute)
    return calls


def write_result(out, experiment, run, **changed):
    """Write an invented result of a run, as its plan has it but for `changed`."""
    plan = {"parameters": {**experiment.runs[run], **changed}, "name": run, "profile": "fast"}
    found = {"experiment": experiment.name, "scores": [SCORE], **plan}
    found["notebook_hash"] = runs._hash(experiment.notebook.read_bytes())
    (out / "results").mkdir(parents=True, exist_ok=True)
    (out / "results" / f"{run}.json").write_text(json.dumps(found))


def result_files(out):
    """Return {run: (time, inode, content) of its result file}; a rewritten file differs."""
    return {
        path.stem: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in (out / "results").glob("*.json")
    }


STEPS = """
    if item:
        place = pathlib.Path(checkpoint_dir)
        place.mkdir(parents=True, exist_ok=True)
        done = len(list(place.iterdir()))
        with open(log, 'a') as file:
            file.write(f'{done}')
        (place / str(done)).touch()
        while not done:
            time.sleep(1)
"""


def test_a_killed_batch_continues_where_it_stopped(toy, tmp_path, capfd):
    """The first run has finished and the second has a checkpoint when SIGKILL comes."""
    toml, out = toy(STEPS, [0, 1]), tmp_path / "out"
    line = [sys.executable, "-m", "mmlcourse", "reproduce", toml, "--out", out, "--cores", "2"]
    batch = subprocess.Popen(
        list(map(str, line)),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    began = time.monotonic()
    while not (list(out.glob("work/1/checkpoint-*/0")) and result_files(out)):
        assert batch.poll() is None and time.monotonic() - began < 300
        time.sleep(0.2)
    family = psutil.Process(batch.pid).children(recursive=True)
    batch.kill()  # Snakemake, papermill and the kernel end themselves
    batch.wait()
    assert not psutil.wait_procs(family, timeout=60)[1] and len(family) >= 3
    before = result_files(out)
    assert set(before) == {"0"}
    experiment = load_experiment(toml)
    assert reproduce(experiment, out) == []
    lines = capfd.readouterr().out.splitlines()
    assert lines[1] == "1 of 2 runs to do. Of these, 1 has a checkpoint." and lines[-2] == "1 done"
    assert lines[-1].startswith("1 of 1 run done, ") and lines[-1].endswith(" 0 left")
    after = result_files(out)
    assert after["0"] == before["0"] and (tmp_path / "log").read_text() == "01"
    result = read_result(out / "results" / "1.json")
    assert result["resumed"] and result["scores"] == [SCORE] and result["parameters"]["item"] == 1
    assert not list(out.rglob("*.tmp")) and not list((out / "work").glob("[!.]*"))
    assert sorted(path.stem for path in (out / "notebooks").iterdir()) == ["0", "1"]


FAILURES = """
    if item == 1: open('/no/such/folder/train.csv')
    if item == 2: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_failures_have_causes_and_keep_old_results(toy, tmp_path, capfd):
    """Run 3 has a result of another plan. It fails when it is repeated, and its result stays."""
    out, experiment = tmp_path / "out", load_experiment(toy(FAILURES, [0, 1, 2, 3]))
    for run in ("0", "3"):
        write_result(out, experiment, run)
    write_result(out, experiment, "3", item=8)
    toml = toy(FAILURES + "    if item == 3: raise MemoryError('12 TB')\n", [0, 1, 2, 3])
    experiment, before = load_experiment(toml), result_files(out)
    write_result(out, experiment, "0")
    assert reproduce(experiment, out, cores=2, again=True) == ["1", "2", "3"]
    said = capfd.readouterr()
    lines = said.out.splitlines()
    assert f"1 failed, see {out / 'failed' / '1.json'}" in lines
    assert "Building DAG" not in said.out + said.err
    assert "Building DAG" in (out / "snakemake.log").read_text()
    causes = dict(line.split(" failed: ") for line in lines if " failed: " in line)
    assert causes["1"] == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder/train.csv'"
    )
    assert causes["2"].startswith("its process was killed without a message")
    assert causes["3"].startswith("out of memory (MemoryError: 12 TB).")
    assert "Finished with another item, toy.ipynb: 3; they are executed again." in lines
    kept = json.loads((out / "failed" / "1.json").read_text())
    assert "open('/no/such/folder/train.csv')" in kept["traceback"]
    assert result_files(out)["3"][1:] == before["3"][1:] and not (out / "replaced").exists()


def test_a_dry_run_changes_nothing_and_a_repeated_run_keeps_the_old_result(toy, tmp_path, capfd):
    """The encoder of run 1 is made first, and that of the finished run 0 is not made again."""
    before = '[before]\nrun = "enc"\nwhen = { item = 1 }\nset = { item = 7 }\n'
    toml, out = toy("", [0, 1], before), tmp_path / "out"
    experiment = load_experiment(toml)
    write_result(out, experiment, "0", item=5)
    old = result_files(out)
    options = [str(toml), "--out", str(out), "--cores", "2"]
    assert main(["reproduce", *options, "--rerun-changed", "--dry-run"]) == 0
    said = capfd.readouterr().out
    assert "3 of 3 runs to do" in said and "This was a dry-run" in said
    assert result_files(out) == old and not (out / "replaced").exists()
    with pytest.raises(ValueError, match="Snakemake ended with status 2"):
        reproduce(experiment, out, options=["--no-such-option"])
    assert main(["reproduce", *options, "--rerun-changed"]) == 0
    now = result_files(out)
    assert set(now) == {"0", "1", "enc"} and now["0"] != old["0"]
    assert now["enc"][0] < now["1"][0]
    (replaced,) = (out / "replaced").iterdir()
    assert replaced.read_bytes() == old["0"][2]
    assert (out / "report" / "report.html").is_file()
    (out / "results" / "enc.json").unlink()
    capfd.readouterr()
    assert main(["reproduce", *options, "--dry-run"]) == 0
    assert "1 of 3 runs to do" in capfd.readouterr().out
    assert result_files(out).keys() == {"0", "1"}


@pytest.mark.parametrize("folder", [None, "", "nowhere"])
def test_a_variable_that_names_no_folder_stops_a_batch_before_its_runs(
    tmp_path, monkeypatch, folder
):
    monkeypatch.delenv("MMLKIT_REALDATA", raising=False)
    if folder is not None:
        monkeypatch.setenv("MMLKIT_REALDATA", folder and str(tmp_path / folder))
    with pytest.raises(FileNotFoundError, match="The variable MMLKIT_REALDATA is .*reproducing.md"):
        reproduce(load_experiment("real-stars"), tmp_path / "batch")
    assert not (tmp_path / "batch").exists()


def test_a_run_uses_no_encoder_of_another_plan(toy, tmp_path):
    before = '[before]\nrun = "enc"\nwhen = { item = 1 }\nset = { item = 7 }\n'
    experiment, out = load_experiment(toy("", [0, 1], before)), tmp_path / "out"
    write_result(out, experiment, "enc", item=3)
    with pytest.raises(ValueError, match="need enc, .* with another item. --rerun-changed"):
        reproduce(experiment, out)
    assert result_files(out).keys() == {"enc"} and not (out / "work").exists()


def test_a_second_batch_is_refused_and_names_the_first(toy, tmp_path):
    out = tmp_path / "out"
    with file_lock(out / ".lock") as lock:
        lock.write("process 7 on host")
        lock.flush()
        with pytest.raises(OSError, match="is used by another batch: process 7 on host. Wait"):
            reproduce(load_experiment(toy("", [0])), out)
    assert not (out / "results").exists()


def test_a_lock_is_released_when_its_process_ends(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom mmlcourse.batch.processes import file_lock\n"
        "with file_lock(Path(sys.argv[1])):\n print('held', flush=True)\n sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert holder.stdout.readline() == "held\n"
    with file_lock(tmp_path / "lock", wait=False) as lock:
        assert lock is None
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with file_lock(tmp_path / "lock", wait=False) as lock:
        assert lock is not None


# ---- one run, without a kernel ----


def test_a_run_writes_one_result(toy, tmp_path, executed):
    """In an earlier version, the start of run 1 deleted the scores of run 1.5."""
    experiment, out = load_experiment(toy("", [1.5, 1])), tmp_path / "out"
    other = out / "work" / "1.5" / "found.json"
    other.parent.mkdir(parents=True)
    other.write_text("kept")
    assert unfinished(experiment, out) == ["1.5", "1"]
    assert execute_run(experiment, out, "1") is None and unfinished(experiment, out) == ["1.5"]
    assert other.read_text() == "kept"
    result = read_result(out / "results" / "1.json")
    assert result["experiment"] == "toy" and result["name"] == "1" and result["minutes"] == 0.05
    assert result["scores"] == [SCORE] and not result["resumed"]
    assert execute_run(experiment, out, "1") is None and len(executed) == 1
    assert not (out / "work" / "1").exists()
    assert changes(result, experiment, "1") == []
    experiment.runs["1"].update(item=1.0)
    assert changes(result, experiment, "1") == []
    experiment.runs["1"].update(item=4, lr=1)
    assert changes(result, experiment, "1") == ["item", "lr"]
    result["parameters"]["lr"] = True  # which Python takes for 1
    assert changes(result, experiment, "1") == ["item", "lr"]


def test_a_checkpoint_of_other_code_is_not_used(toy, tmp_path, executed, monkeypatch):
    """The run that left it would fail for ever."""
    experiment, out = load_experiment(toy("", [9])), tmp_path / "out"
    for code in ("one", "one", "other"):
        monkeypatch.setattr(runs, "_code", lambda code=code: code)
        assert execute_run(experiment, out, "9") == "ValueError: on purpose"
    first, second, third = ([f for f in one["files"] if "checkpoint" in f] for one in executed)
    assert not first and len(second) == 1 and not third
    assert json.loads((out / "failed" / "9.json").read_text())["cause"] == "ValueError: on purpose"
    experiment.runs["9"].update(item=4)  # another plan, which succeeds
    assert execute_run(experiment, out, "9") is None
    assert not read_result(out / "results" / "9.json")["resumed"]


def test_a_checkpoint_of_other_data_fails_only_once(toy, tmp_path, monkeypatch):
    """`fit` refuses it, in every try that would find it."""
    experiment, out, found = load_experiment(toy("", [0])), tmp_path / "out", []

    def execute(notebook, output, parameters, environment, **options):
        place = Path(parameters["checkpoint_dir"])
        found.append(place.is_dir())
        place.mkdir(exist_ok=True)
        return 3.0, 1, f"ValueError: {place} belongs to another run, which differs in: data."

    monkeypatch.setattr(runs, "execute_notebook", execute)
    assert "belongs to another run, which" in inspect.getsource(resume), "fit says it otherwise"
    assert "belongs to another run" in execute_run(experiment, out, "0")
    execute_run(experiment, out, "0")
    assert found == [False, False]


HUGE = '{"experiment": "toy", "scores": [{"value": 1' + "0" * 400 + "}]}"


@pytest.mark.parametrize("damaged", ["", "[1]", '{"experiment": "toy", "scores": [3]}', HUGE])
def test_a_damaged_result_is_made_again(toy, tmp_path, executed, monkeypatch, damaged):
    """A power loss can leave an empty file."""
    from mmlcourse.batch import batches

    experiment, out = load_experiment(toy("", [0])), tmp_path / "out"
    write_result(out, experiment, "0")
    (out / "results" / "0.json").write_text(damaged)

    def snakemake(experiment, folder, cores, repeated, options, verbose):
        return [execute_run(experiment, folder, run, again=True) for run in repeated][0]

    monkeypatch.setattr(batches, "_run_snakemake", snakemake)
    assert reproduce(experiment, out) == [] and len(executed) == 1
    assert read_result(out / "results" / "0.json")["scores"] == [SCORE]


def test_two_runs_have_two_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with runs._one_gpu(tmp_path) as one, runs._one_gpu(tmp_path) as other:
        names = [each["CUDA_VISIBLE_DEVICES"] for each in (one, other)]
    assert names == ["3", "5"]


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


def test_the_record_of_a_notebook(tmp_path):
    scores, path = [{**SCORE, "value": math.nan}], tmp_path / "deep" / "x.json"
    found = record(path, scores=scores, history=[{"pearson": math.nan, "rows": (1, math.inf)}])
    assert found["peak_memory_mb"] > 50 and found["versions"]["torch"]
    written = json.loads(path.read_text(), parse_constant=pytest.fail)  # valid for R and jq
    assert written == found and written["history"] == [{"pearson": None, "rows": [1, None]}]
    path.write_text(json.dumps({**written, "experiment": "toy", "parameters": {}}))
    assert math.isnan(read_result(path)["scores"][0]["value"])
    with pytest.raises(ValueError, match="expected on, split, metric and value"):
        record(None, scores=[{"on": "rte", "value": 1}])
