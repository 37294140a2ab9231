"""The notebooks of `mmlkit reproduce` run on a few rows, for every kind of system.

Each run saves all scores that the published table has.
"""

import json
import math
from pathlib import Path

import pytest
from smoke import write_small_encoder

from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.runs import execute_run, failure_cause, read_result
from mmlcourse.batch.scores import comparison, long_frame

SMALL = {"max_train_rows": [24], "epochs": [1], "batch_size": [8]}
COURSE = {**SMALL, "steps_per_epoch": [4], "seed": [0]}
RUNS = [  # every notebook, and every kind of system
    (
        "mml-tables",
        {**SMALL, "method": ["mml"], "task": ["stsb_star"], "max_other_rows": [12]},
        {("qqp", "train"), ("mrpc", "dev"), ("stsb_star", "dev")},
    ),
    (
        "cs224n-table1",
        {**COURSE, "system": ["sequential-1e-5"]},
        {("sts", "dev"), ("overall", "dev")},
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
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The grid of a tiny encoder."""
    return {"model_name": [str(write_small_encoder(tmp_path_factory.mktemp("encoder")))]}


@pytest.mark.notebook
@pytest.mark.parametrize(("name", "grid", "wanted"), RUNS, ids=[name for name, *_ in RUNS])
def test_one_run_saves_the_scores_of_the_table(name, grid, wanted, small, tmp_path):
    experiment = load_experiment(name, grid={**grid, **small})
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
    assert table["published"].notna().any() == bool(experiment.published.get("tables"))
    if before:
        assert (tmp_path / "outputs" / "mt-dnn-fast-0" / "model.safetensors").is_file()
        assert result["rows"] == {"scitail": 2}
        encoder = read_result(tmp_path / "results" / f"{before[0]}.json")
        assert encoder["rows"] == {"rte": 24, "sst2": 24} and encoder["scores"] == []


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
def test_a_result_names_the_variable_of_the_data_folder(small, tmp_path, monkeypatch):
    """The experiment has separate numbers of rows per task and fewer dev rows during training.

    Its result contains no path of this machine.
    """
    folder = Path(__file__).resolve().parents[2] / "data" / "mini"
    monkeypatch.setenv("MMLKIT_REALDATA", str(folder))
    grid = {
        **SMALL,
        **small,
        "system": ["together"],
        "seed": [0],
        "tasks": [["rte", "sst2"]],
        "max_train_rows": [{"rte": 24, "sst2": 16}],
        "max_dev_rows": [8],
    }
    experiment = load_experiment("together-or-alone", grid=grid)
    (run,) = experiment.runs
    assert execute_run(experiment, tmp_path, run) is None
    text = (tmp_path / "results" / f"{run}.json").read_text()
    result = json.loads(text)
    settings, history = result["settings"], result["history"]
    assert settings["source"] == "$MMLKIT_REALDATA" and str(folder) not in text
    assert settings["rows"] == {"rte": 24, "sst2": 16} and settings["cpu_minutes"] > 0
    eighths = [8 * one["accuracy"] for one in history]  # there are 8 dev rows during training
    assert eighths == pytest.approx([*map(round, eighths)])


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
