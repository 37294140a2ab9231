"""Recorded staircases: both forms of a record, and the paper's landmarks."""

import json
import math

import pytest

from mmlcourse.studies import LANDMARKS, recorded_staircases

HISTORY = [
    {"epoch": 1, "step": 4, "task": "qnli", "train_loss": 9.0, "accuracy": 0.6, "best": False},
    {"epoch": 2, "step": 8, "task": "qnli", "train_loss": 8.0, "accuracy": 0.7, "best": True},
]


@pytest.fixture
def results(tmp_path):
    """A folder with one run on a folder of files, and one on the mini data."""
    short = {
        "task": "rte",
        "source": "folder",
        "num_heads": 4,
        "steps": 10,
        "rows": 80,
        "parameters": {"bandwidth": None},
        "history": HISTORY,
        "events": [
            {"step": 3, "head_ids": [0, 1, 2, 3], "centroids": [0.1, 0.2], "kept": [0, 2]},
            {"step": 9, "head_ids": [0, 2], "centroids": [0.1], "kept": [0, 2]},
        ],
    }
    (tmp_path / "pruning_rte.json").write_text(json.dumps(short))
    (tmp_path / "pruning_sst2.json").write_text(json.dumps({**short, "source": "mini"}))
    return tmp_path


def test_a_short_run_is_read_with_its_heads(results):
    (run,) = recorded_staircases(results)
    assert run.counts == [(3, 4, 2), (9, 2, 2)] and run.bandwidth == "auto:0.3"
    assert run.rows == 80
    assert run.dev == [(4, 0.6), (8, 0.7)] and run.metric == "accuracy"
    assert run.majority == pytest.approx(0.527, abs=5e-4)


def test_the_best_model_may_have_more_heads_than_the_end(results):
    """The best epoch ends at step 8: after the check at step 3, and before that at step 9."""
    (run,) = recorded_staircases(results)
    later = dict(run.events[1], kept=[2])  # now the second check drops a head too
    run = run._replace(events=[run.events[0], later])
    assert run.best_step == 8 and run.heads_at(run.best_step) == 2
    assert [run.heads_at(step) for step in (0, 2, 3, 9, run.steps)] == [4, 4, 2, 1, 1]
    assert math.isnan(run.heads_at(None))


def test_runs_on_qnli_come_first(results):
    events = [{"step": 5, "centroids": [0.3, 0.4], "note": "", "active": 384, "kept": 300}]
    found = {"num_heads": 384, "history": HISTORY, "events": events, "settings": {"steps": 9}}
    (results / "real-staircase-fast").mkdir()
    for seed in (1, 0):
        run = {"parameters": {"task": "qnli", "bandwidth": "std:1.5", "seed": seed}, **found}
        (results / "real-staircase-fast" / f"{seed}.json").write_text(json.dumps(run))
    runs = recorded_staircases(results)
    assert [run.name for run in runs] == ["qnli, std:1.5, seed 0", "qnli, std:1.5, seed 1", "rte"]
    assert runs[0].counts == [(5, 384, 300)] and runs[0].steps == 9


def test_nothing_is_recorded(tmp_path):
    assert recorded_staircases(tmp_path) == []


def test_the_landmarks_are_those_of_the_paper():
    """98,220 is 30 epochs of 3,274 batches."""
    assert LANDMARKS["steps"] == 30 * 3274 and LANDMARKS["left"] / LANDMARKS["heads"] < 0.023
