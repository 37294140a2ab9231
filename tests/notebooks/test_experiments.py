"""The notebooks of `mmlkit reproduce` run on a few rows, for every kind of system.

Each run saves all scores that the published table has.
"""

import json
import math
from pathlib import Path

import pytest

from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.runs import execute_run, failure_cause, read_result
from mmlcourse.batch.tables import comparison, long_frame

SMALL = {"max_train_rows": [24], "epochs": [1], "batch_size": [8]}
COURSE = {**SMALL, "steps_per_epoch": [4], "seed": [0]}
REAL = {**SMALL, "source": ["mini"], "seed": [0]}  # the experiments of PLAN.md on other data
RUNS = [
    (
        "mml-tables",
        {**SMALL, "method": ["mml"], "task": ["stsb_star"]},
        {("qqp", "train"), ("mrpc", "dev"), ("stsb_star", "dev")},
    ),
    (
        "cs224n-table1",
        {**COURSE, "system": ["pretrain-baseline"]},
        {("sst", "dev"), ("quora", "dev"), ("sts", "dev"), ("overall", "dev")},
    ),
    ("cs224n-table1", {**COURSE, "system": ["sequential-1e-5"]}, {("overall", "dev")}),
    ("cs224n-table1", {**COURSE, "system": ["parallel-1e-5"]}, {("overall", "dev")}),
    (
        "mtdnn-dev",
        {**SMALL, "system": ["st-dnn"], "tasks": [["rte", "cola", "stsb"]]},
        {("rte", "dev"), ("cola", "dev"), ("stsb", "dev"), ("average", "dev")},
    ),
    (
        "mtdnn-dev",
        {**SMALL, "system": ["mt-dnn"], "tasks": [["rte", "mnli"]]},
        {("rte", "dev"), ("mnli", "dev")},
    ),
    (
        "domain-adaptation",
        {
            **SMALL,
            "start": ["mt-dnn"],
            "task": ["scitail"],
            "share": [0.1],
            "multitask": [["rte", "sst2"]],
            "multitask_epochs": [1],
        },
        {("scitail", "dev")},
    ),
    (
        "real-multiverse",
        {**REAL, "method": ["mml"], "task": ["rte"], "max_other_rows": [12]},
        {("rte", "dev"), ("scitail", "train"), ("qnli", "dev")},
    ),
    ("real-rates", {**REAL, "method": ["bert"], "lr": [1e-4], "task": ["mrpc"]}, {("mrpc", "dev")}),
    ("real-answer", {**REAL, "answer": ["san"]}, {("rte", "dev"), ("scitail", "dev")}),
    (
        "real-sampling",
        {**REAL, "system": ["pals-low-rank"], "max_scored_rows": [20], "steps_per_epoch": [3]},
        {("quora", "dev"), ("overall", "dev")},
    ),
]


@pytest.mark.notebook
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "grid", "wanted"), RUNS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_one_run_saves_the_scores_of_the_table(name, grid, wanted, tmp_path):
    experiment = load_experiment(name, grid=grid)
    *before, run = experiment.runs
    assert before == list(experiment.needs.values())
    for one in (*before, run):
        assert execute_run(experiment, tmp_path, one) is None
    result = read_result(tmp_path / "results" / f"{run}.json")
    assert wanted <= {(score["on"], score["split"]) for score in result["scores"]}
    assert all(
        -1 <= score["value"] <= 1 or math.isnan(score["value"]) for score in result["scores"]
    )
    assert len(result["history"]) >= 1 and result["peak_memory_mb"] > 100
    table = comparison(experiment, long_frame(experiment, [result]))
    printed = table[table["published"].notna()]
    has_table = bool(experiment.published.get("tables"))
    assert (len(printed) >= 1) == has_table, f"scores of {name} beside printed ones: {len(printed)}"
    if name == "domain-adaptation":
        assert len(
            list((tmp_path / "outputs").glob("mt-dnn-fast-0/model.safetensors"))
        ) == 1 and result["rows"] == {"scitail": 2}
        encoder = read_result(tmp_path / "results" / f"{before[0]}.json")
        assert encoder["rows"] == {"rte": 24, "sst2": 24} and encoder["scores"] == []


@pytest.mark.notebook
def test_the_error_for_a_missing_encoder_names_the_run_that_creates_it(tmp_path):
    experiment = load_experiment(
        "domain-adaptation", grid={"start": ["mt-dnn"], "task": ["scitail"], "share": [0.1]}
    )
    cause = execute_run(experiment, tmp_path, "mt-dnn-scitail-0.1-0")
    assert cause.startswith("FileNotFoundError") and cause.endswith(
        "run this notebook with task='multitask' and seed=0 first."
    )


@pytest.mark.notebook
def test_an_encoder_of_other_settings_is_refused(tmp_path):
    folder = tmp_path / "outputs" / "mt-dnn-fast-0"
    folder.mkdir(parents=True)
    (folder / "learned.json").write_text(json.dumps({"epochs": 7, "model": "minilm"}))
    experiment = load_experiment(
        "domain-adaptation", grid={"start": ["mt-dnn"], "task": ["scitail"], "share": [0.1]}
    )
    cause = execute_run(experiment, tmp_path, "mt-dnn-scitail-0.1-0")
    assert cause.startswith("ValueError") and "epochs 7 instead of 2" in cause
    assert "model" not in cause and "run this notebook with task='multitask'" in cause


@pytest.mark.notebook
@pytest.mark.timeout(1800)
def test_a_result_names_the_variable_of_the_data_folder(tmp_path, monkeypatch):
    """The experiment has separate numbers of rows per task and fewer dev rows during training.

    Its result contains no path of this machine.
    """
    folder = Path(__file__).resolve().parents[2] / "data" / "mini"
    monkeypatch.setenv("MMLKIT_REALDATA", str(folder))
    grid = {
        "system": ["together"],
        "seed": [0],
        "tasks": [["rte", "sst2"]],
        "max_train_rows": [{"rte": 24, "sst2": 16}],
        "max_dev_rows": [8],
        "epochs": [1],
        "batch_size": [8],
    }
    experiment = load_experiment("together-or-alone", grid=grid)
    (run,) = experiment.runs
    assert execute_run(experiment, tmp_path, run) is None
    text = (tmp_path / "results" / f"{run}.json").read_text()
    result = read_result(tmp_path / "results" / f"{run}.json")
    assert result["settings"]["source"] == "$MMLKIT_REALDATA" and str(folder) not in text
    assert (
        result["settings"]["rows"] == {"rte": 24, "sst2": 16}
        and result["settings"]["cpu_minutes"] > 0
    )
    by_eighths = [8 * one["accuracy"] for one in result["history"]]
    assert all(
        value == pytest.approx(round(value)) for value in by_eighths
    )  # there are 8 dev rows during training


def test_failure_causes():
    assert failure_cause("x\nMemoryError: x").startswith("out of memory (MemoryError: x)")
    told = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"
    assert failure_cause(told).startswith(f"out of memory ({told})")
    assert (
        failure_cause("  at line 3\nValueError: no such data\nrows 3") == "ValueError: no such data"
    )
    assert failure_cause("").startswith("its process was killed without a message.")
    dead = "nbclient.exceptions.DeadKernelError: Kernel died"
    assert failure_cause(dead) == failure_cause("")
