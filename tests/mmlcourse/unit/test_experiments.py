"""Experiment files: the grid, the settings of a size or a value, and errors in the files."""

import re
from pathlib import Path

import pytest

from mmlcourse.batch.batches import estimate
from mmlcourse.batch.experiments import find_experiment, load_experiment, parse_grid
from mmlcourse.studies.published import tables

NAMES = [
    "cs224n-project",
    "cs224n-table1",
    "domain-adaptation",
    "mml-tables",
    "mtdnn-dev",
    "together-or-alone",
]


@pytest.fixture
def write(tmp_path):
    """Return a function that writes an experiment beside a notebook with five parameters."""
    import nbformat

    cell = nbformat.v4.new_code_cell(
        "profile = 'fast'\ntask = 'rte'\nseed = 0\nepochs = 1\nresult_file = None",
        metadata={"tags": ["parameters"]},
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")

    def make(text):
        path = tmp_path / "one.toml"
        path.write_text(text)
        return str(path)

    return make


HEAD = 'title = "T"\nnotebook = "one.ipynb"\n'
GRID = "[grid]\nseed = [0]\ntask = ['rte']\n"
FAST = HEAD + GRID + "[fast]\n"
WHOLE = (
    HEAD
    + """[grid]
task = ["rte", "mnli"]
seed = [0, 1]
[set]
epochs = 3
[fast]
minutes = 2
[fast.grid]
seed = [7]
[fast.task]
mnli = { epochs = 5 }
[colab]
gpu_minutes = 30
[colab.task]
mnli = { gpu_minutes = 90 }
"""
)


def test_the_grid_and_what_changes_a_run(write):
    fast, colab = load_experiment(write(WHOLE)), load_experiment(write(WHOLE), "colab")
    assert fast.runs == {
        "rte-7": {"epochs": 3, "profile": "fast", "task": "rte", "seed": 7},
        "mnli-7": {"epochs": 5, "profile": "fast", "task": "mnli", "seed": 7},
    }
    assert list(colab.runs) == ["rte-0", "rte-1", "mnli-0", "mnli-1"]
    assert colab.runs["mnli-1"]["epochs"] == 3
    assert colab.gpu_minutes == {"rte-0": 30, "rte-1": 30, "mnli-0": 90, "mnli-1": 90}
    other = load_experiment(write(WHOLE), grid=parse_grid(["task=rte", "seed=0,1,2", "epochs=1"]))
    assert list(other.runs) == ["rte-0-1", "rte-1-1", "rte-2-1"]
    assert other.runs["rte-2-1"]["epochs"] == 1


def test_the_estimate(write):
    fast, colab = load_experiment(write(WHOLE)), load_experiment(write(WHOLE), "colab")
    two = "2 of 2 runs to do; about 2 minutes on 2 idle CPU cores."
    assert estimate(fast, list(fast.runs), 2) == two
    assert estimate(colab, ["rte-0", "mnli-0"], 1) == (
        "2 of 4 runs to do; about 2 GPU hours (an estimate, not measured on a GPU)."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "is not valid TOML"),
        (HEAD, "'grid' is a required property"),
        (HEAD + "[grid]\nseed = [0]\n[colab]\n", r"has no size 'fast'; choose one of \['colab'\]"),
        (HEAD + "[grid]\nsede = [0]\n[fast]\n", r"one.ipynb has no parameter \['sede'\]; it has"),
        (HEAD + "[grid]\nseed = [0, 0]\n[fast]\n", "gives no run, or two of the same name"),
        (HEAD + "[grid]\nseed = []\n[fast]\n", "gives no run, or two of the same name"),
        (HEAD + "[grid]\ntask = ['A', 'a']\n[fast]\n", "two of the same name"),
        (HEAD + "[grid]\nvalue = [1]\n[fast]\n", "grid: 'value' should not be valid under"),
        (FAST + "limits = 3\n", "fast.limits: 3 is not of type 'object'"),
        (FAST + "limit = '1'\n", "fast.limit: '1' is not of type 'number'"),
        (FAST + "[fast.task]\nrtee = {}\n", "the grid has no task rtee"),
        (FAST + "[fast.tsk]\nrte = {}\n", "the grid has no tsk rte"),
        (FAST + "[[claims]]\nsays = 'x'\n", "'first' is a required property"),
        (FAST + "[published]\nrow = '{a.b}'\n", "published.row: '{a.b}' does not match"),
    ],
)
def test_mistakes_in_a_file(write, text, message):
    """A mistyped table would otherwise set nothing."""
    with pytest.raises(ValueError, match=f"one.toml.*{message}"):
        load_experiment(write(text))


BEFORE = (
    HEAD
    + """[grid]
task = ["rte", "mnli"]
seed = [0, 1]
[before]
run = "encoder-{seed}"
when = { task = "mnli" }
set = { task = "all" }
[fast.set]
epochs = 3
"""
)


def test_a_run_that_other_runs_depend_on(write):
    """The run exists once per seed and comes before the grid. Only some runs depend on it."""
    found = load_experiment(write(BEFORE))
    assert list(found.runs) == ["encoder-0", "encoder-1", "rte-0", "rte-1", "mnli-0", "mnli-1"]
    assert found.needs == {"mnli-0": "encoder-0", "mnli-1": "encoder-1"}
    assert found.runs["encoder-1"] == {"epochs": 3, "profile": "fast", "seed": 1, "task": "all"}
    other = load_experiment(write(BEFORE), grid={"epochs": [5], "task": ["mnli"]})
    assert other.runs["encoder-0"]["epochs"] == 5 and len(other.runs) == 4
    with pytest.raises(ValueError, match="two runs 'encoder-0' have different parameters"):
        load_experiment(write(BEFORE), grid={"epochs": [5, 6]})


def test_run_names_are_safe_file_names(write):
    grid = "[grid]\nseed = [0]\ntask = ['a b', '../c', 'x/y', '.d', '-e', '1', '1.5']\n"
    runs = load_experiment(write(HEAD + grid + "[fast]\n")).runs
    assert list(runs) == ["0-a_b", "0-.._c", "0-x_y", "0-.d", "0--e", "0-1", "0-1.5"]
    runs = load_experiment(write(HEAD + "[grid]\ntask = ['../c', '.d', '-e']\n[fast]\n")).runs
    assert list(runs) == ["_._c", "_d", "_e"]


def test_a_notebook_outside_the_folder_does_not_run(write, tmp_path):
    """A notebook can run any code, so it must be in the folder of its file or the repository."""
    inside = tmp_path / "inner"
    inside.mkdir()
    write("")
    (inside / "link.ipynb").symlink_to(tmp_path / "one.ipynb")
    for name in ("../one.ipynb", str(tmp_path / "one.ipynb"), "link.ipynb"):
        (inside / "two.toml").write_text(f'title = "T"\nnotebook = "{name}"\n{GRID}[fast]\n')
        with pytest.raises(ValueError, match="is outside the folder of the file .* if you trust"):
            load_experiment(inside / "two.toml")
    walk = load_experiment(write('title = "T"\nnotebook = "03"\n[grid]\ntask = ["a"]\n[fast]\n'))
    assert walk.notebook.name == "03_multiverse_loss.ipynb"


def test_names_and_grids_of_the_command_line(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no experiment 'mml-table'. Known: .*mml-tables"):
        find_experiment("mml-table")
    for name in ("profile", "result_file"):  # a result would have the name of another size
        with pytest.raises(ValueError, match=f"--grid {name}: the batch sets it"):
            parse_grid([f"{name}=colab"])
    found = parse_grid(["elsewhere=false,true", "source=./sets", "lr=1e-4"])
    sets = str(Path.cwd() / "sets")
    assert found == {"elsewhere": [False, True], "source": [sets], "lr": [1e-4]}
    tried = load_experiment("real-staircase", grid={"bandwidth": ["std:2", 0.4], "seed": [0]})
    assert [one["bandwidth"] for one in tried.runs.values()] == ["std:2", 0.4]


@pytest.mark.parametrize("name", NAMES)
def test_our_experiments_are_complete(name):
    """Our files have three sizes, estimates, and names that occur in the published tables."""
    fast, colab, paper = (load_experiment(name, size) for size in ("fast", "colab", "paper"))
    assert fast.minutes and all(colab.gpu_minutes.values()) and all(paper.gpu_minutes.values())
    for source, table in fast.published["tables"]:
        assert (tables(source)["table"] == table).any(), (source, table)
    for claim in fast.claims:
        for side in (claim["first"], claim["second"]):
            assert side and all(value in paper.grid[key] for key, value in side.items()), claim
    templates = fast.published.get("row", "") + fast.published.get("column", "")
    assert {*re.findall(r"{(\w+)}", templates)} <= {*paper.grid, "on"}
