"""Every notebook runs through papermill in the smoke size, and its sliders move.

Notebook 02 also runs on the real course files, if these are available.
"""

import json
import os
from functools import partial
from pathlib import Path

import pytest
from smoke import smoke_cell, write_small_encoder

from mmlcourse.batch.notebooks import (
    describe_run,
    find_notebooks,
    notebook_parameters,
    parse_parameters,
    run_notebook,
    run_notebooks,
)

from .sliders import with_slider_moves

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# In the smoke size, these texts of a notebook are replaced.
SMALLER = {
    "02": {"epochs = None": "epochs = 1", '"epochs": 10 * epochs': '"epochs": epochs'},
    "03": {'"epochs": 8': '"epochs": 2'},
    "05": {"rows, few, pairs = (1020,": "rows, few, pairs = (240,"},
    "07": {
        "rows = None": "rows = 64",
        "epochs = None": "epochs = 1",
        "dict(epochs=2": "dict(epochs=1",
    },
    "08": {"reviews = None": "reviews = 16", "seeds = 3": "seeds = 1", "epochs=10": "epochs=2"},
    "10": {"steps = None": "steps = 8", "steps=300": "steps=30"},
    "11": {"steps=400, every=50": "steps=40, every=10", "systems = None": 'systems = ["PALs"]'},
    "12": {"systems = None": 'systems = ["no PALs"]'},
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


def tiny_notebook(path, code):
    """Write a notebook with a parameters cell and one more cell."""
    import nbformat

    cells = [
        nbformat.v4.new_code_cell("value = 1\noutput_dir = '.'", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(code),
    ]
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=cells,
            metadata={
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
            },
        ),
        path,
    )
    return path


@pytest.mark.notebook
def test_a_failing_notebook_has_its_own_name(tmp_path, capfd):
    path = tiny_notebook(
        tmp_path / "99_fails.ipynb", "print('before')\nraise RuntimeError('broken on purpose')"
    )
    assert not run_notebook(path, tmp_path / "out", {"value": 3})
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["99_fails.failed.ipynb"]
    assert "broken on purpose" in capfd.readouterr().out
    assert "before" in (tmp_path / "out" / "99_fails.failed.ipynb").read_text()


@pytest.mark.notebook
def test_values_reach_the_notebook_as_they_are(tmp_path):
    """YAML 1.1 reads 5e-05 as a text, and papermill fills in names in braces."""
    values = [5e-5, 1e-4, 1e22, 3, True, None, "5e-05", "no", "a {value}", "\N{GRINNING FACE}"]
    (tmp_path / "a{b}").mkdir()
    code = f"assert value == {values!r}, value"
    path = tiny_notebook(tmp_path / "a{b}" / "99_value.ipynb", code)
    assert run_notebook(path, tmp_path / "out", {"value": values})


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([("a = 1", ["parameters"]), ("b = c = 2", ["parameters", "x"])], ["a", "b", "c"]),
        ([("a = 1", [])], []),
    ],
)
def test_the_parameters_of_several_cells(tmp_path, cells, found):
    path = tmp_path / "one.ipynb"
    cells = [
        {"cell_type": "code", "source": [code], "metadata": {"tags": tags}} for code, tags in cells
    ]
    path.write_text(json.dumps({"cells": cells}))
    assert notebook_parameters(path) == found
    cells[0]["metadata"]["tags"] = None
    path.write_text(json.dumps({"cells": cells}))
    with pytest.raises(ValueError, match="one.ipynb is not a notebook"):
        notebook_parameters(path)


def test_an_unknown_parameter_is_refused_before_the_run(tmp_path):
    path = tiny_notebook(tmp_path / "99_value.ipynb", "1")
    with pytest.raises(ValueError, match="no parameter 'vlaue'. It has value, output_dir"):
        run_notebook(path, tmp_path / "out", {"vlaue": 3})
    assert not (tmp_path / "out").exists()


def test_parse_parameters():
    assert parse_parameters(["epochs=1", "lr=1e-4", "source=data/x", "flag=True", "name=a=b"]) == {
        "epochs": 1,
        "lr": 1e-4,
        "source": "data/x",
        "flag": True,
        "name": "a=b",
    }
    for text in ("{[]: 1}", "-" * 100_000 + "1"):  # no literals of Python
        assert parse_parameters([f"name={text}"]) == {"name": text}
    with pytest.raises(ValueError, match="'epochs' is not of the form NAME=VALUE"):
        parse_parameters(["epochs"])


def test_find_notebooks():
    assert [path.stem for path in find_notebooks(["2", "00_start_here"])] == [
        "02_finetuning",
        "00_start_here",
    ]
    assert find_notebooks(["all"]) == NOTEBOOKS
    assert notebook_parameters(NOTEBOOKS[2]) == [
        "profile",
        "seed",
        "output_dir",
        "source",
        "epochs",
    ]
    with pytest.raises(FileNotFoundError, match="no notebook '77'. Known: 00_start_here"):
        find_notebooks(["77"])


def test_a_folder_of_other_notebooks_hides_no_lesson(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "mine.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert find_notebooks(["all"]) == NOTEBOOKS


def test_no_notebook_is_written_over_another(tmp_path, monkeypatch):
    for week in ("1", "2"):
        (tmp_path / week).mkdir()
        (tmp_path / week / "hw.ipynb").write_text('{"cells": []}')
    monkeypatch.chdir(tmp_path)
    one, again = Path("1/hw.ipynb"), tmp_path / "1" / "hw.ipynb"
    assert find_notebooks([str(one), str(again)]) == [one]
    for run in (run_notebooks, partial(describe_run, jobs=1)):
        with pytest.raises(ValueError, match="2 notebooks have the name hw.ipynb; run it alone"):
            run([one, Path("2/hw.ipynb")], "runs", {})
        with pytest.raises(ValueError, match="result of 1/hw.ipynb would be written over it"):
            run([one], "1", {})
    assert one.read_text() == '{"cells": []}' and not Path("runs").exists()
