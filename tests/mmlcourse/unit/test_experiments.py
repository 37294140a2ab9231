"""Experiment files: the grid, the settings of a size or a value, and errors in the files."""

import re
from pathlib import Path

import pytest

from mmlcourse.batch.batches import _at_a_time, estimate
from mmlcourse.batch.experiments import find_experiment, load_experiment, parse_grid

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
    assert (
        list(colab.runs) == ["rte-0", "rte-1", "mnli-0", "mnli-1"]
        and colab.runs["mnli-1"]["epochs"] == 3
    )
    assert colab.gpu_minutes == {"rte-0": 30, "rte-1": 30, "mnli-0": 90, "mnli-1": 90}
    other = load_experiment(write(WHOLE), grid=parse_grid(["task=rte", "seed=0,1,2", "epochs=1"]))
    assert (
        list(other.runs) == ["rte-0-1", "rte-1-1", "rte-2-1"]
        and other.runs["rte-2-1"]["epochs"] == 1
    )


@pytest.mark.parametrize("key", ["limit", "title", "minutes"])
def test_a_key_of_the_file_is_no_parameter(write, key):
    with pytest.raises(ValueError, match=f"a run of one.ipynb has '{key}', which is unknown"):
        load_experiment(write(WHOLE), grid=parse_grid([f"{key}=1"]))


def test_a_whole_number_in_a_grid_of_floats_names_the_same_run(write):
    text = HEAD + "[grid]\nepochs = [0.5, 1.0]\nseed = [0, 1]\n[fast]\n"
    experiment = load_experiment(write(text), grid=parse_grid(["epochs=1", "seed=2"]))
    assert experiment.runs == {"1.0-2": {"profile": "fast", "epochs": 1.0, "seed": 2}}
    assert type(experiment.runs["1.0-2"]["epochs"]) is float


def test_a_gpu_takes_one_run_at_a_time(write, monkeypatch):
    experiment = load_experiment(write(WHOLE))
    monkeypatch.setattr("mmlcourse.batch.batches.gpu_names", list)
    monkeypatch.setattr("mmlcourse.batch.batches._memory", lambda: 100_000)
    assert _at_a_time(experiment, 16, []) == 16
    assert "2 of 2 runs to do, 1 at a time" in estimate(experiment, experiment.runs, 16, 1)
    monkeypatch.setattr("mmlcourse.batch.batches._memory", lambda: 15_000)  # each asks 4,000
    assert _at_a_time(experiment, 16, []) == 3
    monkeypatch.setattr("mmlcourse.batch.batches.gpu_names", lambda: ["0", "1"])
    assert _at_a_time(experiment, 16, []) == 2
    assert _at_a_time(experiment, 16, ["--executor=slurm"]) == 16
    monkeypatch.setattr("mmlcourse.batch.batches.gpu_names", list)
    assert _at_a_time(load_experiment(write(WHOLE), "colab"), 16, []) == 1


def test_the_estimate(write):
    fast, colab = load_experiment(write(WHOLE)), load_experiment(write(WHOLE), "colab")
    assert (
        estimate(fast, list(fast.runs), 2)
        == "2 of 2 runs to do, 2 at a time; about 2 minutes on 2 CPU cores."
    )
    one = load_experiment(write(WHOLE), grid=parse_grid(["task=rte"]))
    assert (
        estimate(one, list(one.runs), 1)
        == "1 of 1 run to do, 1 at a time; about 2 minutes on 1 CPU core."
    )
    assert estimate(colab, ["rte-0", "mnli-0"], 1) == (
        "2 of 4 runs to do, 1 at a time; about 2 GPU hours (an estimate, not measured on a GPU)."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "is not valid TOML"),
        (HEAD, "the file has no 'grid'; it needs title, notebook, grid"),
        (
            HEAD + "gird = 1\n[grid]\nseed = [0]\n[fast]\n",
            "the file has 'gird', which is unknown. Did you mean 'grid'?",
        ),
        (
            HEAD + "[grid]\nseed = [0]\n[fast]\nlimits = 3\n",
            r"fast has 'limits', which is unknown. Did you mean 'limit'?",
        ),
        (HEAD + "[grid]\nseed = [0]\n[colab]\n", r"has no size 'fast'; it has \['colab'\]"),
        (
            HEAD + "[grid]\nsede = [0]\n[fast]\n",
            "a run of one.ipynb has 'sede', which is unknown. Did you mean 'seed'[?] Known: "
            "profile, task, seed, epochs, result_file.",
        ),
        (
            HEAD + "[grid]\nseed = [0, 0]\n[fast]\n",
            "every parameter needs at least one value, each once",
        ),
        (
            HEAD + "[grid]\nseed = []\n[fast]\n",
            "every parameter needs at least one value, each once",
        ),
        (
            HEAD + "[grid]\nvalue = [1]\n[fast]\n",
            "grid is 'value', expected a name other than on, split, metric, value, published",
        ),
        (
            HEAD + f"[grid]\nseed = [0]\n[fast]\nlimit = 1{'0' * 400}\n",
            "fast.limit is 10*, expected a number above 0",
        ),
        (
            HEAD + "[grid]\nseed = [0]\n[before]\nrun = 'a{'\nwhen = {}\nset = {}\n[fast]\n",
            "before.run is 'a{', expected a text with names of the grid in braces",
        ),
        ('title = "T"\nnotebook = "77"\n[grid]\nseed = [0]\n[fast]\n', "There is no notebook '77'"),
    ],
)
def test_mistakes_in_a_file(write, text, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_experiment(write(text))


GRID = "[grid]\nseed = [0]\ntask = ['rte']\n"
FAST = HEAD + GRID + "[fast]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "title = 3\nnotebook = 'one.ipynb'\n" + GRID + "[fast]\n",
            "title is 3, expected a text.",
        ),
        (
            "title = ''\nnotebook = 'one.ipynb'\n" + GRID + "[fast]\n",
            "title is '', expected a text.",
        ),
        (
            "title = 'T'\nnotebook = 3\n" + GRID + "[fast]\n",
            "notebook is 3, expected a text.",
        ),
        (HEAD + "grid = [1]\n[fast]\n", r"grid is \[1\], expected a table of lists."),
        (
            HEAD + "[grid]\nseed = 3\n[fast]\n",
            "grid.seed is 3, expected a list.",
        ),
        (HEAD + "fast = 3\n" + GRID, "fast is 3, expected a table."),
        (FAST + "limit = '1'\n", r"fast.limit is '1', expected a number above 0."),
        (FAST + "limit = -5\n", r"fast.limit is -5, expected a number above 0."),
        (FAST + "limit = nan\n", r"fast.limit is nan, expected a number above 0."),
        (FAST + "minutes = true\n", r"fast.minutes is True, expected a number above 0."),
        (FAST + "memory = -5\n", r"fast.memory is -5, expected a whole number above 0."),
        (FAST + "threads = 0\n", r"fast.threads is 0, expected a whole number above 0."),
        (FAST + "threads = 1.5\n", r"fast.threads is 1.5, expected a whole number above 0."),
        (
            HEAD + GRID + "[fast]\n[colab]\nmemory = 0\n",
            r"colab.memory is 0, expected a whole number above 0.",
        ),
        (
            FAST + "[fast.task]\nrte = 3\n",
            r"fast.task.rte is 3, expected a table.",
        ),
        (
            FAST + "[fast.task]\nrtee = {}\n",
            r"fast.task has 'rtee', which is unknown. Did you mean 'rte'?",
        ),
        (
            FAST + "[published]\nscale = 0\n",
            r"published.scale is 0, expected a number above 0.",
        ),
        (
            FAST + "[published]\ntables = [['mml_v2']]\n",
            r"published.tables.0 is .*, expected a pair of texts.",
        ),
        (
            FAST + "[published]\nrow = '{method}'\n",
            r"published.row has 'method', which is unknown. .*Known: seed, task, on.",
        ),
        (
            HEAD + "chosen = 'sed'\n" + GRID + "[fast]\n",
            r"chosen has 'sed', which is unknown. Did you mean 'seed'\? Known: seed, task.",
        ),
        (
            FAST + "[[claims]]\nsays = 'x'\n",
            r"claims.0 has no 'first'; it needs says, first, second.",
        ),
        (
            FAST + "[[claims]]\nsays = 'x'\nfirst = {tsk = 1}\nsecond = {}\n",
            r"claims.0.first has 'tsk', which is unknown.",
        ),
        (
            "title = 'x'\nnotebook = 'cross_dataset.ipynb'\n[grid]\nseed = [0, 1]\n[fast]\n"
            "[[claims]]\nsays = 'x'\nfirst = {seed = 0}\nsecond = {seed = 1}\non = 'own'\n",
            "claims.0.on is 'own', which needs `task` in .grid.. Name the set instead",
        ),
        (
            FAST + "[[claims]]\nsays = 'x'\nfirst = {experiment = 'mml'}\nsecond = {}\n",
            "claims.0.first.experiment is 'mml', but the folder has no mml.toml.",
        ),
        (
            "title = 'x'\nnotebook = 'cross_dataset.ipynb'\n[grid]\nseed = [0, 1]\n[fast]\n"
            "[published]\nheadline_on = 'own'\n",
            "published.headline_on needs `task` in .grid.",
        ),
        (
            HEAD + GRID + "[before]\nrun = 'a'\nwhen = {experiment = 'x'}\nset = {}\n[fast]\n",
            "before.when has 'experiment', which is unknown.",
        ),
        (FAST + "[fast.set]\nepochs = nan\n", "epochs is nan, expected a value of JSON."),
        (FAST + "[fast.set]\nepochs = 2026-01-01\n", "epochs is .*, expected a value of JSON."),
        (
            FAST + "[fast.task]\nrte = { gpu_minutes = 'x' }\n",
            "fast.task.rte.gpu_minutes is 'x', expected a number above 0.",
        ),
        (
            HEAD + "[grid]\nseed = [0]\n[before]\nrun = 'a-{sed}'\nwhen = {}\nset = {}\n[fast]\n",
            "before.run has 'sed', which is unknown. Did you mean 'seed'?",
        ),
        (
            HEAD + GRID + "[before]\nrun = 'a'\n[fast]\n",
            "before has no 'when'; it needs run, when, set.",
        ),
        (
            HEAD + GRID + "[before]\nrun = '0-rte'\nwhen = {}\nset = {}\n[fast]\n",
            "every parameter needs at least one value, each once",
        ),
        (
            HEAD + "[grid]\ntask = ['A', 'a']\n[fast]\n",
            "every parameter needs at least one value, each once",
        ),
    ],
)
def test_each_wrong_value_is_named_with_its_file_and_key(write, text, message):
    """The last case has two names that differ only in capitals: one file on some systems."""
    with pytest.raises(ValueError, match=f"one.toml: .*{message}"):
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


def test_a_word_that_the_grid_does_not_have_is_refused(write):
    """A word of the file's grid is known, also where the size has fewer. Numbers are free."""
    file = write(HEAD + "[grid]\ntask = ['rte', 'mnli']\nseed = [0]\n[fast.grid]\ntask = ['rte']\n")
    assert list(load_experiment(file, grid={"task": ["mnli"], "seed": [7]}).runs) == ["mnli-7"]
    message = "--grid task: found 'mnl', expected one of rte, mnli. Did you mean 'mnli'?"
    with pytest.raises(ValueError, match=re.escape(message)):
        load_experiment(file, grid={"task": ["mnl"]})


def test_bandwidths_that_no_grid_lists_may_be_tried():
    runs = load_experiment("real-staircase", grid={"bandwidth": ["std:2", 0.4], "seed": [0]}).runs
    assert [one["bandwidth"] for one in runs.values()] == ["std:2", 0.4]


def test_run_names_are_safe_file_names(write):
    grid = "[grid]\nseed = [0]\ntask = ['a b', '../c', 'x/y', '.d', '-e', '1', '1.5']\n"
    runs = load_experiment(write(HEAD + grid + "[fast]\n")).runs
    assert list(runs) == ["0-a_b", "0-.._c", "0-x_y", "0-.d", "0--e", "0-1", "0-1.5"]
    runs = load_experiment(write(HEAD + "[grid]\ntask = ['../c', '.d', '-e']\n[fast]\n")).runs
    assert list(runs) == ["_._c", "_d", "_e"]


def test_a_walkthrough_notebook_can_be_run(write):
    experiment = load_experiment(
        write('title = "T"\nnotebook = "04"\n[grid]\ntask = ["sst2", "mrpc"]\n[fast]\n')
    )
    assert experiment.notebook.name == "04_pruning_heads.ipynb" and list(experiment.runs) == [
        "sst2",
        "mrpc",
    ]


def test_a_notebook_outside_the_folder_does_not_run(write, tmp_path):
    """A notebook can run any code, so it must be in the folder of its file or the repository."""
    inside = tmp_path / "inner"
    inside.mkdir()
    grid = "[grid]\nseed = [0]\n[fast]\n"
    for name in ("../one.ipynb", str(tmp_path / "one.ipynb"), "link.ipynb"):
        write("")
        (inside / "two.toml").write_text(f'title = "T"\nnotebook = "{name}"\n{grid}')
        if name == "link.ipynb":
            (inside / name).symlink_to(tmp_path / "one.ipynb")
        with pytest.raises(
            ValueError,
            match="two.toml: the notebook .* is outside the folder of the file .*copy it "
            "there if you trust it",
        ):
            load_experiment(inside / "two.toml")
    (inside / "deeper").mkdir()
    (tmp_path / "one.ipynb").rename(inside / "deeper" / "one.ipynb")
    (inside / "two.toml").write_text(f'title = "T"\nnotebook = "deeper/one.ipynb"\n{grid}')
    assert (
        load_experiment(inside / "two.toml").notebook == (inside / "deeper" / "one.ipynb").resolve()
    )


def test_misspelled_names():
    with pytest.raises(
        FileNotFoundError, match="no experiment 'mml-table'. Did you mean 'mml-tables'?"
    ):
        find_experiment("mml-table")
    with pytest.raises(ValueError, match="'paper2' is not a profile"):
        load_experiment("mml-tables", "paper2")
    with pytest.raises(ValueError, match="--grid 'seed' is not of the form NAME=A,B"):
        parse_grid(["seed"])
    with pytest.raises(ValueError, match="--grid profile: the batch sets it. Use --profile."):
        parse_grid(["profile=colab"])
    assert parse_grid(["elsewhere=false,true", "source=./sets"]) == {
        "elsewhere": [False, True],
        "source": [str(Path.cwd() / "sets")],
    }
    assert parse_grid(["seed=0,1", "task=rte", "lr=1e-4"]) == {
        "seed": [0, 1],
        "task": ["rte"],
        "lr": [1e-4],
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("profile", ["fast", "colab", "paper"])
def test_our_experiments_are_complete(name, profile):
    """Our files have three sizes, estimates, and names that occur in the published tables."""
    from mmlcourse.studies.published import tables

    experiment = load_experiment(name, profile)
    assert experiment.runs and experiment.claims and experiment.limit > 0
    assert all(experiment.gpu_minutes.values()) if profile != "fast" else experiment.minutes
    for source, table in experiment.published["tables"]:
        frame = tables(source)
        assert (frame["table"] == table).any(), (source, table)
    for claim in experiment.claims:
        for side in ("first", "second"):
            assert claim[side] and all(
                value in load_experiment(name, "paper").grid[key]
                for key, value in claim[side].items()
            ), claim


def test_the_fast_sizes_are_small():
    """With one seed and two methods, mml-tables has 14 runs of about two minutes on one core."""
    experiment = load_experiment("mml-tables")
    assert len(experiment.runs) == 14 and experiment.minutes * len(experiment.runs) / 2 < 20


@pytest.mark.parametrize("content", ["[]", '{"cells": 3}', "{", ""])
def test_a_file_that_is_no_notebook_is_named(write, tmp_path, content):
    file = write(FAST)
    (tmp_path / "one.ipynb").write_text(content)
    with pytest.raises(ValueError, match="one.ipynb is not a notebook"):
        load_experiment(file)
