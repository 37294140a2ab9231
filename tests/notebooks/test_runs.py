"""Every notebook runs through papermill in the smoke size, and its sliders move.

Notebook 02 also runs on the real course files, if these are available.
"""

import json
import os
from pathlib import Path

import pytest
from smoke import smoke_cell, write_small_encoder

from mmlcourse.batch.notebooks import run_notebook

from .sliders import with_slider_moves

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# In the smoke size, these texts of a notebook are replaced.
SMALLER = {
    "02": {"epochs = None": "epochs = 1", "10 * epochs, **": "epochs, **"},
    "05": {"rows, few, pairs = (1020,": "rows, few, pairs = (240,"},
    "07": {"epochs = None": "epochs = 1"},
    "08": {"reviews = None": "reviews = 16", "seeds = 3": "seeds = 1", "DSSM, 10": "DSSM, 2"},
    "10": {"steps = None": "steps = 4"},
    "11": {"updates = 400": "updates = 16"},
    "12": {"epochs = None": "epochs = 1"},
}


def run_one(path, tmp_path, first="", replaced=(), limit=25, **parameters):
    """Run a copy of a notebook into tmp_path/out, and then move all its sliders.

    A notebook without progress is stopped earlier. The limit, in minutes, only stops endless
    computations, so it is long enough for a busy machine.
    """
    copy = tmp_path / "checkout" / "notebooks" / path.name
    with_slider_moves(path, copy, first, replaced)
    return run_notebook(copy, tmp_path / "out", parameters, limit=limit)


@pytest.fixture(scope="module")
def small_encoder(tmp_path_factory):
    return write_small_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.stem)  # nbval runs 00
def test_runs_in_the_smoke_size(path, tmp_path, small_encoder):
    replaced = SMALLER.get(path.stem[:2], {})
    assert run_one(path, tmp_path, smoke_cell(small_encoder), replaced, limit=9)
    assert sorted(p.name for p in (tmp_path / "out").glob("*.ipynb")) == [path.name]


@pytest.mark.notebook
@pytest.mark.timeout(4800)
def test_finetuning_on_the_real_course_files(tmp_path):
    folder = os.environ.get("MMLKIT_REALDATA")
    if not folder or not (Path(folder) / "cs224n").is_dir():
        pytest.skip("MMLKIT_REALDATA does not name a folder with cs224n/")
    path = ROOT / "notebooks" / "02_finetuning.ipynb"
    assert run_notebook(
        path,
        tmp_path,
        {"profile": "fast", "epochs": 1, "source": str(Path(folder) / "cs224n")},
        limit=75,
    )
    metadata = json.loads((tmp_path / "sst-model" / "mmlkit.json").read_text())["metadata"]
    assert metadata["accuracy"] >= 0.45
