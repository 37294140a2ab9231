"""Batches under fire: processes are killed at any moment, runs die in every way, two batches share a folder, and a cluster is played."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from mmlkit.batch.batches import cause, plan_batch, reproduce, states
from mmlkit.batch.experiments import load_experiment
from mmlkit.batch.runs import carry_out, changed_sources, held, read_result, record

pytest.importorskip("snakemake", reason="pip install 'mmlkit[batch]'")
pytestmark = [pytest.mark.notebook, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MMLKIT_HEADLESS": "1"}
START = "import json, os, pathlib, signal, time\nwith open(log, 'a') as file:\n    file.write(f'{item} {time.time()}\\n')"
FOUND = {"scores": [{"on": "toy", "split": "dev", "metric": "accuracy", "value": 0.5}], "sources": {}, "device": "cpu", "hardware": "none",
         "versions": {"torch": "0", "mmlkit": "0"}, "peak_memory_mb": 1}


@pytest.fixture
def toy(tmp_path):
    """toy(code, items): an experiment whose runs execute `code` with `item`, and log when they start."""
    import nbformat

    def make(code, items, limit=20):         # minutes: a run that should succeed is never cut off, on a busy machine either
        cells = [nbformat.v4.new_code_cell("profile = 'fast'\nitem = 0\nlog = ''\nresult_file = None", metadata={"tags": ["parameters"]}),
                 nbformat.v4.new_code_cell(START), nbformat.v4.new_code_cell(textwrap.dedent(code)),
                 nbformat.v4.new_code_cell(f"_ = pathlib.Path(result_file).write_text(json.dumps({FOUND!r}))")]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), tmp_path / "toy.ipynb")
        path = tmp_path / "toy.toml"
        path.write_text(f'title = "Toy"\nnotebook = "toy.ipynb"\n[grid]\nitem = {items}\n[fast]\nlimit = {limit}\n[fast.set]\nlog = "{tmp_path / "log"}"\n')
        return path
    return make


def command(toml, out, *more):
    return [sys.executable, "-W", "ignore", "-m", "mmlkit", "reproduce", str(toml), "--out", str(out), "--cores", "2", *more]


def starts(tmp_path):
    """{item: when each of its runs began}."""
    found = {}
    for line in (tmp_path / "log").read_text().splitlines():
        item, when = line.split()
        found.setdefault(item, []).append(float(when))
    return found


def result_files(out):
    return {path.stem: (path.stat().st_mtime, path.stat().st_ino, path.read_bytes()) for path in (out / "results").glob("*.json")}


def test_twenty_kills_lose_no_finished_run_and_repeat_none(toy, tmp_path):
    """SIGKILL at random moments, to the whole batch or to its first process alone; what was finished is never touched again."""
    toml, out, chance, seen = toy("time.sleep(0.2)", list(range(16))), tmp_path / "out", random.Random(0), {}
    for i in range(20):
        batch = subprocess.Popen(command(toml, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True)
        try:
            batch.wait(chance.uniform(2, 8))
        except subprocess.TimeoutExpired:
            os.killpg(batch.pid, signal.SIGKILL) if i % 3 else batch.kill()
            batch.wait()
        now = result_files(out)
        assert {name: now.get(name) for name in seen} == seen, f"kill {i} lost or changed a finished run"
        seen = now
    last = subprocess.run(command(toml, out), capture_output=True, text=True, env=ENVIRONMENT, timeout=1500)
    assert last.returncode == 0, last.stdout + last.stderr
    final = result_files(out)
    assert set(final) == {str(item) for item in range(16)} and all(final[name] == seen[name] for name in seen)
    for item, began in starts(tmp_path).items():
        assert max(began) < final[item][0], f"run {item} was begun again after it had finished"
    assert not list(out.rglob("*.tmp")) and not list((out / "results").glob(".*"))
    assert sorted(path.stem for path in (out / "notebooks").glob("*.ipynb") if not path.name.startswith(".")) == sorted(final)


WAYS = """
    if item == 1: raise MemoryError('numpy wanted 12 TB')
    if item == 2: open('/no/such/folder/train.csv')
    if item == 3: os.kill(os.getpid(), signal.SIGKILL)
    if item == 5 and not pathlib.Path(log + '.once').exists():
        pathlib.Path(log + '.once').touch()
        raise RuntimeError('only the first time')
    if item == 6: os.kill(os.getppid(), signal.SIGKILL)
"""


def test_every_death_is_reported_with_its_cause_and_the_others_finish(toy, tmp_path, capfd):
    experiment, out = load_experiment(toy(WAYS, [0, 1, 2, 3, 5, 6, 7])), tmp_path / "out"
    found = reproduce(experiment, out, cores=2)
    assert found == {"0": "finished", "1": "failed", "2": "failed", "3": "failed", "5": "finished", "6": "failed", "7": "finished"}
    causes = {name: cause(out, name) for name, state in found.items() if state == "failed"}
    assert causes["1"].startswith("out of memory (MemoryError: numpy wanted 12 TB). Take a smaller batch_size")
    assert causes["2"].startswith("FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder/train.csv'")
    assert "kernel died" in causes["3"] and "memory" in causes["3"]
    assert "killed without a word" in causes["6"]
    said = capfd.readouterr().out
    assert all(f"{name} failed: {text}" in said for name, text in causes.items())
    kept = json.loads((out / "failed" / "2.json").read_text())
    assert "open('/no/such/folder/train.csv')" in kept["traceback"] and kept["parameters"]["item"] == 2
    assert "no such folder" in (out / "failed" / "2.ipynb").read_text().replace("/", " ").lower()
    assert {item: len(began) for item, began in starts(tmp_path).items()} == {"0": 1, "1": 2, "2": 2, "3": 2, "5": 2, "6": 2, "7": 1}
    before = result_files(out)
    toml = toy("", list(range(8)))          # mended; the finished runs stay as they are, unless asked for
    again = reproduce(load_experiment(toml), out, cores=2)
    assert set(again.values()) == {"finished"} and not list((out / "failed").iterdir())
    after = result_files(out)
    assert {name: after[name] for name in before} == before
    assert "was finished with another toy.ipynb; --rerun-changed makes it again" in capfd.readouterr().out
    reproduce(load_experiment(toml, grid={"item": [0, 1]}), out, cores=2, again=True)
    changed = result_files(out)
    assert changed["0"] != after["0"] and changed["1"] == after["1"] and changed["7"] == after["7"]


def test_a_run_past_its_limit_is_stopped_and_tried_once_more(toy, tmp_path, capfd):
    """Here the limit is small, and nothing is to succeed."""
    experiment, out = load_experiment(toy("time.sleep(36000)", [0], limit=0.2)), tmp_path / "out"
    assert reproduce(experiment, out, cores=1) == {"0": "failed"}
    assert cause(out, "0") == "TimeoutError: it took more than 0.2 minutes, its limit"
    assert "0 failed: TimeoutError: it took more than 0.2 minutes, its limit" in capfd.readouterr().out
    assert (out / "engine.log").read_text().count("Trying to restart job") == 1


def test_two_batches_on_one_folder_do_each_run_once(toy, tmp_path):
    toml, out = toy("time.sleep(0.2)", list(range(6))), tmp_path / "out"
    both = [subprocess.Popen(command(toml, out), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT) for _ in range(2)]
    said = [batch.communicate(timeout=1500)[0] for batch in both]
    assert [batch.returncode for batch in both] == [0, 0], said
    assert {item: len(began) for item, began in starts(tmp_path).items()} == {str(item): 1 for item in range(6)}


SBATCH = """#!{python}
# Plays sbatch: starts the job at once in the background, and writes down how it ended.
import os, re, subprocess, sys
from pathlib import Path
place = Path(os.environ["STANDIN"])
text = sys.argv[1:]
name = os.getpid()              # two at once are two jobs
(place / f"{{name}}.call").write_text(" ".join(text))
(place / f"{{name}}.name").write_text(re.search(r"--job-name[ =](\\S+)", " ".join(text)).group(1).strip("'"))
wrapped = next((part.removeprefix("--wrap=") for part in text if part.startswith("--wrap=")), None) or (text[text.index("--wrap") + 1] if "--wrap" in text else sys.stdin.read())
(place / f"{{name}}.sh").write_text(wrapped)
env = {{**os.environ, "SLURM_JOB_ID": str(name)}}
subprocess.Popen(f"sh {{place}}/{{name}}.sh > {{place}}/{{name}}.out 2>&1; echo $? > {{place}}/{{name}}.part; mv {{place}}/{{name}}.part {{place}}/{{name}}.end", shell=True, env=env, start_new_session=True)
print(name)
"""
SACCT = """#!{python}
# Plays sacct and squeue: the state of every job.
import os
from pathlib import Path
for path in Path(os.environ["STANDIN"]).glob("*.call"):
    end = path.with_suffix(".end")
    state = "RUNNING" if not end.exists() else "COMPLETED" if end.read_text().strip() == "0" else "FAILED"
    print(f"{{path.stem}}|{{state}}")
"""

SRUN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'       # its own options off, then the job's command


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A stand-in for Slurm's commands on the PATH; the folder with what was submitted."""
    place, tools = tmp_path / "slurm", tmp_path / "bin"
    place.mkdir(), tools.mkdir()
    for name, text in {"sbatch": SBATCH, "sacct": SACCT, "squeue": SACCT, "srun": SRUN, "sinfo": "#!/bin/sh\n", "scancel": "#!/bin/sh\n", "scontrol": "#!/bin/sh\n",
                       "sacctmgr": "#!/bin/sh\n", "sshare": "#!/bin/sh\n"}.items():
        (tools / name).write_text(text.format(python=sys.executable) if "{python}" in text else text)
        (tools / name).chmod((tools / name).stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(place))
    return place


SLURM = ["--executor", "slurm", "--default-resources", "slurm_account=course", "slurm_partition=short", "--latency-wait", "10",
         "--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"]


def test_a_dry_run_on_slurm_submits_nothing(toy, tmp_path, cluster):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    toml, out = toy("", [0, 1]), tmp_path / "out"
    reproduce(load_experiment(toml), out, cores=2, options=[*SLURM, "--dry-run"])
    log = (out / "engine.log").read_text()
    assert "runtime=25" in log and "mem_mb=4000" in log and "slurm_account=course" in log and not list(cluster.iterdir())
    assert states(["0", "1"], out) == {"0": "waiting", "1": "waiting"}


def test_a_batch_goes_through_slurm(toy, tmp_path, cluster):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    toml, out = toy("", [0, 1]), tmp_path / "out"
    found = reproduce(load_experiment(toml), out, cores=2, options=SLURM)
    assert found == {"0": "finished", "1": "finished"}, (out / "engine.log").read_text()[-3000:]
    calls = [path.read_text() for path in cluster.glob("*.call")]
    assert len(calls) == 2 and all("-A 'course'" in call or "--account" in call or "course" in call for call in calls)
    assert all("--mem 4000" in call and "-t 25" in call for call in calls)


# ---- without an engine ----

def test_what_a_killed_process_was_writing_is_removed(toy, tmp_path):
    experiment, out = load_experiment(toy("", [0])), tmp_path / "out"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (out / "planned").mkdir(parents=True)
    dead, alive = (out / "planned" / f".0.json.{process}.tmp" for process in (gone.pid, os.getppid()))
    for path in (dead, alive):
        path.write_text("half")
    plan_batch(experiment, out)
    assert not dead.exists() and alive.read_text() == "half" and (out / "planned" / "0.json").is_file()


def test_a_lock_ends_with_its_process(tmp_path):
    code = f"import sys, time\nfrom pathlib import Path\nfrom mmlkit.batch.runs import held\nwith held(Path({str(tmp_path / 'lock')!r})):\n print('held', flush=True)\n time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert holder.stdout.readline() == "held\n"
    with held(tmp_path / "lock", wait=False) as free:
        assert not free
    holder.kill()
    holder.wait()
    with held(tmp_path / "lock", wait=False) as free:
        assert free


def test_a_run_by_itself(toy, tmp_path):
    experiment, out = load_experiment(toy("", [3])), tmp_path / "out"
    assert plan_batch(experiment, out) == {} and states(["3"], out) == {"3": "waiting"}
    started = time.time()
    assert carry_out(out, "3") and states(["3"], out) == {"3": "finished"}
    result = read_result(out / "results" / "3.json")
    assert result["experiment"] == "toy" and result["parameters"]["item"] == 3 and result["scores"][0]["value"] == 0.5
    assert 0 < result["minutes"] <= (time.time() - started) / 60 + 0.01
    assert carry_out(out, "3") and len(starts(tmp_path)["3"]) == 1
    assert changed_sources(result, experiment.notebook, experiment.runs["3"]) == []
    assert changed_sources(result, experiment.notebook, {**experiment.runs["3"], "item": 4, "lr": 1}) == ["item", "lr"]


def test_what_a_notebook_records(tmp_path):
    scores = [dict(on="rte", split="dev", metric="accuracy", value=0.5)]
    assert record(None, scores=scores)["scores"] == scores
    found = record(tmp_path / "deep" / "x.json", scores=scores, heads_left=3)
    assert json.loads((tmp_path / "deep" / "x.json").read_text()) == found
    assert found["heads_left"] == 3 and found["peak_memory_mb"] > 50 and found["versions"]["torch"] and "runtime.py" in found["sources"]
    nan = float("nan")
    record(tmp_path / "x.json", scores=[dict(scores[0], value=nan)], history=[{"pearson": nan, "rows": (1, nan)}], experiment="toy", parameters={})
    text = (tmp_path / "x.json").read_text()
    assert "NaN" not in text and json.loads(text)["history"] == [{"pearson": None, "rows": [1, None]}]      # what R, jq and browsers can read
    assert np.isnan(read_result(tmp_path / "x.json")["scores"][0]["value"])
    with pytest.raises(ValueError, match="expected on, split, metric, value"):
        record(None, scores=[dict(on="rte", value=1)])
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match="other.json is not the result of a run"):
        read_result(tmp_path / "other.json")
