"""The effects that the lessons show are recorded for their present code, and are real."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import jupytext
import numpy as np
import pandas as pd
import pytest

from mmlcourse.lessons.contents import COURSE, course_table
from mmlcourse.studies import (
    Recorder,
    effects_by_seed,
    lessons,
    recorded_baselines,
    recorded_effects,
)

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "results" / "lessons").glob("*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_record_belongs_to_the_cells_of_the_notebook(path):
    """Otherwise: python benchmarks/lesson_effects.py NUMBER."""
    record = json.loads(path.read_text())
    master = ROOT / "notebooks" / "src" / f"{record['notebook']}.py"
    cells = [cell for cell in jupytext.read(master).cells if cell.cell_type == "code"]
    kept = {"parameters", "effect"}
    code = [cell.source for cell in cells if kept & set(cell.metadata.get("tags", []))]
    assert record["cells"] == hashlib.sha256("\n\n".join(code).encode()).hexdigest()[:16]
    assert [one["seed"] for one in record["runs"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_effects_are_large_and_have_the_right_sign(path):
    found = recorded_effects(path.stem, path.parent)
    assert (found.positive >= 4).all() and (found["mean"] >= 3 * found.standard_error).all(), found


def test_recorded_effects(tmp_path):
    """The values 1, 2, 3 and -1, 1, 3: means 2 and 1, standard errors 1 and 2 over root 3."""
    runs = [dict(seed=i, effects=dict(a=i, b=2 * i - 3)) for i in (1, 2, 3)]
    (tmp_path / "03.json").write_text(json.dumps({"runs": runs}))
    found = recorded_effects("03", tmp_path)
    assert found["mean"].to_dict() == {"a": 2, "b": 1}
    np.testing.assert_allclose(found.standard_error, [1 / 3**0.5, 2 / 3**0.5])
    assert found.positive.to_dict() == {"a": 3, "b": 2} and set(found.seeds) == {3}
    assert recorded_effects("04", tmp_path).empty
    assert recorded_effects("03", tmp_path, kind="measured").empty
    runs[1]["measured"], runs[2]["measured"] = dict(c=-4), dict(c=2)
    (tmp_path / "03.json").write_text(json.dumps({"runs": runs}))
    measured = recorded_effects("03", tmp_path, kind="measured")
    np.testing.assert_allclose(measured.loc["c"].tolist(), [-1, 3, 1, 2])


def test_effects_are_told_with_two_digits_of_their_error(monkeypatch, capsys):
    found = pd.DataFrame(
        [[0.18375, 0.0561, 5, 5], [3.0, 0.0, 2, 5]], index=["lost", "more lost"]
    ).set_axis(["mean", "standard_error", "positive", "seeds"], axis=1)
    monkeypatch.setattr(lessons, "recorded_effects", lambda number, kind: found)
    lessons.tell_effects("10", scale=100, unit="points")
    told = "lost: +18.4 ± 5.6 points (5 of 5 other seeds above zero)\n"
    more = "more lost: +300.00 ± 0.00 points (2 of 5 other seeds above zero)\n"
    assert capsys.readouterr().out == told + more
    lessons.tell_effects("10", scale=100, unit="points", about="more")
    assert capsys.readouterr().out == more


def test_the_run_of_the_notebook_stands_before_the_recorded_ones():
    claims = json.loads(RECORDS[0].read_text())["runs"][0]["effects"]
    found = effects_by_seed(RECORDS[0].stem, dict.fromkeys(claims, 7.0))
    assert len(found) == 6 and found.iloc[0].tolist() == [7.0] * len(claims)
    assert found.iloc[1].to_dict() == claims


def test_recorded_baselines(tmp_path):
    """The values 0.6 and 0.8 have the mean 0.7 and the standard deviation 0.1414."""
    runs = [dict(task="sst", mode="pretrain", seed=i, accuracy=0.6 + 0.2 * i) for i in (0, 1)]
    runs += [dict(task="stsb", mode="cosine", seed=0, pearson=0.5)]
    path = tmp_path / "mini_baselines.json"
    path.write_text(json.dumps({"runs": runs}))
    found = recorded_baselines(path)
    assert found.loc[("sst", "frozen"), ["metric", "seeds"]].tolist() == ["accuracy", 2]
    np.testing.assert_allclose(
        found.loc[("sst", "frozen"), ["mean", "sd"]].tolist(), [0.7, 0.02**0.5]
    )
    assert found.loc[("stsb", "fine-tuned cosine"), "mean"] == 0.5
    assert recorded_baselines(tmp_path / "none.json").empty


def test_the_list_of_the_lessons_names_every_notebook():
    """The numbers run from 00 to 12, and no notebook is missing."""
    stems = [one[0] for one in COURSE]
    assert [stem[:2] for stem in stems] == [f"{i:02d}" for i in range(13)]
    found = {path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    assert found <= set(stems), found - set(stems)


def test_the_list_says_what_runs_on_a_machine():
    machine = dict(cores=1, memory_gb=3.5, gpu=None, gpu_gb=0)
    rows = [row.split(" | ") for row in course_table(machine).splitlines()[2:]]
    assert len(rows) == 13 and rows[2][0] == "| [02 Fine-tuning](02_finetuning.ipynb)"
    assert rows[2][2:] == ["4", "yes", "needs a GPU |"]
    assert rows[1][4] == "yes |" and rows[12][3] == "needs 4 GB of memory"
    large = dict(cores=16, memory_gb=64, gpu="A", gpu_gb=80)
    assert [row.split(" | ")[2:] for row in course_table(large).splitlines()[4:5]] == [
        ["4", "yes", "yes |"]
    ]
    small = course_table({**large, "gpu_gb": 8}).splitlines()[4]
    assert "the GPU has less than 14 GB" in small


def test_the_list_has_the_titles_of_the_notebooks():
    for stem, title, *_ in COURSE:
        first = (ROOT / "notebooks" / "src" / f"{stem}.py").read_text().splitlines()[1]
        assert first == f"# # {stem[:2]} {title}"


def test_a_recorder_keeps_some_updates_and_continues():
    event = lambda step: SimpleNamespace(step=step)
    first, second = (Recorder(lambda event: [event.step**2], every=2) for _ in range(2))
    for step in (1, 2, 3, 4):
        first.after_step(event(step))
    second.load_state_dict(first.state_dict())
    second.after_step(event(6))
    assert second.rows == [[2, 4.0], [4, 16.0], [6, 36.0]]


def test_measured_numbers_by_seed_have_the_names_that_are_asked_for():
    name = "random encoder"
    found = effects_by_seed("00", {name: 1.0}, kind="measured")
    assert list(found) == [name] and len(found) == 6 and found[name][0] == 1
