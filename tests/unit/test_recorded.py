"""Recorded pruning runs are consistent: heads never return, survivors are the lowest cluster."""

import json
from pathlib import Path

import numpy as np
import pytest

from mmlkit.studies import recorded_protocol, recorded_staircases

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
RUNS = sorted(RESULTS.glob("pruning_*.json"))


def test_runs_are_recorded():
    assert {"pruning_mrpc", "pruning_rte"} <= {path.stem for path in RUNS}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_recorded_run_is_consistent(path):
    run = json.loads(path.read_text(encoding="utf-8"))
    assert (
        run["source"] == "folder"
        and run["steps"] >= 300
        and run["parameters"]["weight_of_orthogonality"] == 0.005
    )
    assert (
        run["device"]
        and run["versions"]["torch"]
        and run["minutes"] > 0
        and all(np.isfinite(row["train_loss"]) for row in run["history"])
    )
    active, momentum = set(range(run["num_heads"])), run["parameters"]["momentum"]
    assert momentum == 0.99 and [event["step"] for event in run["events"]] == sorted(
        {event["step"] for event in run["events"]}
    )
    for event in run["events"]:
        assert set(event["head_ids"]) == active and len(event["averages"]) == len(active)
        lowest = int(np.argmin(event["centroids"]))
        survivors = {
            head for head, label in zip(event["head_ids"], event["labels"]) if label == lowest
        }
        assert set(event["kept"]) == (survivors if event["dropped"] else active)
        nearest = np.abs(np.subtract.outer(event["averages"], event["centroids"])).argmin(1)
        assert nearest.tolist() == event["labels"]
        active -= set(event["dropped"])
    assert len(active) == run["heads_at_end"] == len(run["final_averages"])


def test_the_paper_settings_prune_on_a_real_set():
    """At least one run with the settings of the paper drops heads.

    The settings are lambda 0.005, momentum 0.99 and the default bandwidth of scikit-learn.
    """
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in RUNS]
    assert any(
        event["dropped"]
        for run in runs
        if run["task"] in ("mrpc", "rte")
        for event in run["events"]
    )
    assert all(run["parameters"]["bandwidth"] is None for run in runs)


def test_every_result_is_strict_json():
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    for path in sorted(RESULTS.rglob("*.json")):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_runs_of_the_protocol_are_read_from_the_first_folder(tmp_path):
    folder = RESULTS / "archive" / "mml-tables-fast-mini2"
    found = recorded_protocol([tmp_path / "none", folder, tmp_path])
    assert set(found["method"]) == {"bert", "mml"} and set(found["seed"]) == set(range(6))
    assert set(found["edition"]) == {2} and found["accuracy"].between(0, 1).all()
    runs = found.groupby(["method", "trained_on", "seed"])
    assert len(runs) == 2 * 7 * 6 and set(runs.size()) == {8, 6}  # inference and similarity
    pruned = found[found["method"] == "mml"]
    assert (pruned["first_check"] == pruned["steps"] // 5).all()
    assert found.loc[found["method"] == "bert", "first_check"].isna().all()
    assert recorded_protocol([tmp_path / "none"]).empty
    present = recorded_protocol()
    assert set(present["edition"]) == {3} and len(present) == 2 * len(found)  # with controls
    controls = {"mv-m", "bert-ensemble"}
    assert set(present["method"]) == {"bert", "mml"} | controls
    assert set(present["seed"]) == set(range(6))


def test_the_gains_at_the_last_epoch_are_those_in_the_text_of_real_stars():
    """Without a choice of the epoch on dev labels the gains are smaller; text and runs agree."""
    last = {}
    for path in (RESULTS / "real-stars-fast").glob("*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["scores"]:  # not a run that only trains the encoder
            key = run["parameters"]["start"], run["parameters"]["share"]
            last.setdefault(key, []).append(run["history"][-1]["accuracy"])
    gains = [
        100 * (np.mean(last["mt-dnn", share]) - np.mean(last["bert", share]))
        for share in (0.0012, 0.0047, 0.0187)
    ]
    assert all(len(values) == 6 for values in last.values()) and len(last) == 6
    said = "{:.1f}, {:.1f} and {:.1f} points".format(*gains)
    assert said in (ROOT / "experiments" / "real-stars.toml").read_text(encoding="utf-8")
    lesson = (ROOT / "notebooks" / "src" / "09_domain_adaptation.py").read_text(encoding="utf-8")
    assert said.replace(" points", "") in lesson


def test_the_dev_rows_of_qnli_are_those_of_its_standard_error():
    """Every recorded accuracy is a whole number of right answers in 1,094 rows."""
    runs = [one for one in recorded_staircases(RESULTS) if one.task == "qnli"]
    right = np.array([value for one in runs for _, value in one.dev]) * 1094
    assert len(runs) == 6 and np.allclose(right, right.round(), atol=1e-6)
    assert {round(one.majority * 1094, 6) for one in runs} == {550}
    lesson = (ROOT / "notebooks" / "src" / "04_pruning_heads.py").read_text(encoding="utf-8")
    assert '"qnli": 1094' in lesson
