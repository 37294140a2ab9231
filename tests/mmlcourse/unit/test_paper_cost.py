"""The estimate of the size `paper`: its arithmetic, and what PLAN and the experiments say of it."""

import json
import re
import runpy
from pathlib import Path

import pytest

from mmlcourse.batch.experiments import load_experiment

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "paper_cost.py"))
RECORD = json.loads((ROOT / "results" / "paper_cost.json").read_text(encoding="utf-8"))
LAYER = {"bert-base-uncased": 4 * 768**2 + 8 * 768**2, "bert-large-uncased": 12 * 1024**2}
GIVEN = {"pairs": "packed", "batch_size": 32, "epochs": 100, "max_train_rows": None}


def test_the_cost_of_a_run_on_rte_by_hand():
    """BERT-large: 100 epochs of 2,490 rows; dev 101 times, and the four inference sets once."""
    tokens = {name: {"packed": 10.0} for name in SCRIPT["ROWS"]}
    work = SCRIPT["work_of"]({**GIVEN, "method": "bert", "task": "rte"}, tokens)
    flop, products, seconds = work.cost(SCRIPT["ENCODERS"]["bert-large-uncased"], "bf16")
    weights = 24 * LAYER["bert-large-uncased"]
    read = 101 * 277 + 2490 + 277 + 392702 + 9815 + 104743 + 5463 + 549367 + 9842
    assert flop == pytest.approx(10 * weights * (6 * 100 * 2490 + 2 * read))
    assert products == pytest.approx(flop / 200e12)
    batches = -(-100 * 2490 // 32)
    reads = sum(-(-rows // 64) for rows in (101 * 277, 2490, 277, 392702, 9815, 104743, 5463))
    reads += -(-549367 // 64) - (-9842 // 64)
    assert seconds - products == pytest.approx(24 * (2e-3 * batches + 7e-4 * reads))


def test_a_frozen_encoder_reads_each_row_once():
    given = dict(GIVEN, tasks=["sst", "sts"], together=True, sampler="sequential", epochs=10)
    given |= {"steps_factor": 1, "steps_per_epoch": None, "finetune": False}
    tokens = {name: {"packed": 10.0, "separate": 12.0} for name in SCRIPT["ROWS"]}
    frozen, trained = (
        SCRIPT["work_of"]({**given, "freeze_encoder": choice}, tokens).done
        for choice in (True, False)
    )
    assert frozen["read", "tokens"] == 10 * (8544 + 1101 + 5749 + 1500)
    assert frozen["train", "tokens"] == 0 and frozen["head", "calls"] == 10 * (267 + 180)
    assert trained["train", "tokens"] == 10 * 32 * 10 * (267 + 180)


def test_separate_pairs_are_two_calls_of_the_encoder_and_training_rows_may_be_cut():
    tokens = {name: {"packed": 10.0, "separate": 12.0} for name in SCRIPT["ROWS"]}
    tokens["sst2"] = {"packed": 10.0}  # a single text
    for name, rows, calls in (("sts", 5749, 2), ("sst2", 4000, 1)):
        given = dict(GIVEN, tasks=[name], together=False, pairs="separate", epochs=1)
        work = SCRIPT["work_of"]({**given, "max_train_rows": {"sst2": 4000}}, tokens)
        assert work.done["train", "calls"] == calls * -(-rows // 32)
        assert work.done["train", "tokens"] == rows * (12 if calls == 2 else 10)


@pytest.mark.slow
def test_the_record_follows_from_the_experiments_and_the_measured_tokens():
    """Otherwise: python benchmarks/paper_cost.py."""
    for name in SCRIPT["EXPERIMENTS"]:
        assert SCRIPT["estimate"](name, RECORD["tokens"]) == RECORD["experiments"][name], name
    assert RECORD["assumed"]["flop_per_second"] == SCRIPT["RATE"]
    assert RECORD["assumed"]["launch_seconds"] == SCRIPT["LAUNCH"]


@pytest.mark.parametrize("name", SCRIPT["EXPERIMENTS"])
def test_the_minutes_of_an_experiment_are_those_of_the_record(name):
    experiment = load_experiment(name, "paper")
    hours = sum(experiment.gpu_minutes[run] for run in experiment.runs) / 60
    assert hours == pytest.approx(RECORD["experiments"][name]["gpu_hours"], rel=0.03, abs=0.1)


def test_the_table_of_the_plan_equals_the_record():
    plan = (ROOT / "experiments" / "PLAN.md").read_text(encoding="utf-8")
    part = plan.split("## The paper's size")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([a-z0-9-]+) \| BERT-\w+ \| (.*) \|$", part, re.M)
    found = {
        name: [one[key] for key in ("runs", "exaflop", "hours_of_products", "gpu_hours")]
        for name, one in RECORD["experiments"].items()
    }
    assert {name: [float(cell) for cell in cells.split("|")] for name, cells in rows} == found
    runs, _, products, hours = (sum(column) for column in zip(*found.values()))
    assert f"| **all** | | **{runs}** | | **{products:.0f}** | **{hours:.0f}** |" in part
    assert f"{hours:.0f} GPU hours" in RECORD["what"]
    half, twice = (products + factor * (hours - products) for factor in (0.5, 2))
    assert f"take {half:.0f} hours, and with twice that time {twice:.0f}." in part


def test_the_encoders_and_devices_of_the_guide_are_those_of_the_runs():
    runs = [json.loads(path.read_text()) for path in (ROOT / "results").glob("*-fast/*.json")]
    assert {(run["device"], run["settings"]["model"]) for run in runs} == {("cpu", "minilm")}
    pages = [ROOT / f"docs/guide/{name}.md" for name in ("measured", "reproducing")]
    guide = " ".join("\n".join(page.read_text(encoding="utf-8") for page in pages).split())
    assert "All recorded runs are of all-MiniLM-L6-v2 on CPUs" in guide
    hours = sum(one["gpu_hours"] for one in RECORD["experiments"].values())
    assert f"A rough estimate is {hours:.0f} hours of one H100" in guide
