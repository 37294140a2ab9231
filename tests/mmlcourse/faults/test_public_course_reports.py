"""Inputs of public bug reports on files, notebooks and commands: the right value or a way on."""

import csv
import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from mmlcourse.batch.notebooks import notebook_parameters, run_notebooks
from mmlcourse.cli import main as cli
from mmlcourse.cli.main import main
from mmlcourse.grading.leaderboard import rank
from mmlcourse.studies.cs224n import check_submission, prediction_file, write_predictions
from mmlkit.data.loading import load_task
from mmlkit.training.evaluation import predict
from mmlkit.training.saving import save_model

# ---- CS224N's files of 2024 and later ----


@pytest.fixture
def teams(tmp_path):
    """Return a folder with one team, whose files of dev are right and lie in predictions/."""
    for name in ("sst", "quora", "sts"):
        rows = load_task(name, "mini").dev
        scores = rows.labels if name == "sts" else np.eye(len(rows.task.labels))[rows.labels]
        path = tmp_path / "team" / "predictions" / prediction_file(name, "dev")
        write_predictions(path, name, rows.ids, scores)
    return tmp_path


def team(folder):
    return next(row for row in rank(folder, "mini") if row.team == "team")


def change(folder, file, *replacements):
    path = folder / "team" / "predictions" / file
    text = path.read_text()
    for old, new in replacements:
        text = text.replace(old, new)
    path.write_text(text)


@pytest.mark.parametrize("option", ["full-model", "last-linear-layer"])
def test_options_of_2024(make_model, tmp_path, monkeypatch, capsys, option):
    save_model(make_model("sst", "cfimdb"), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    arguments = ["submit", "--model", "model", "--source", "mini", "--out", "team/predictions"]
    assert main([*arguments, "--option", option]) == 0
    names = [
        f"{option}-{name}-{one}-out.csv" for name in ("cfimdb", "sst") for one in ["dev", "test"]
    ]
    assert sorted(path.name for path in (tmp_path / "team" / "predictions").iterdir()) == names
    assert check_submission("team", "mini", option=option) == []


@pytest.mark.parametrize("yes, no", [("1", "0"), ("1.0", "0.0"), ("8505", "3919")])
@pytest.mark.parametrize("comma", [" , ", ", "])
def test_answers_of_later_years(teams, yes, no, comma):
    """GPT-2's tokens of "yes" and "no", and its starter code's comma without a space before it."""
    change(
        teams,
        "para-dev-output.csv",
        (" , 1.0", f" , {yes}"),
        (" , 0.0", f" , {no}"),
        (" , ", comma),
    )
    assert team(teams)[2:6] == (1.0, 1.0, 1.0, 1.0)
    if comma == " , ":
        files = {one.file for one in check_submission(teams / "team", "mini")}
        assert files == {prediction_file(name, "test") for name in ("sst", "quora", "sts")}


@pytest.mark.parametrize(
    "file, old, new, found",
    [
        ("para", " , 1.0", " , 8506", "'8506', expected one of 0, 1, 0.0, 1.0, 3919, 8505"),
        ("para", " , 1.0", " , 0.7", "'0.7', expected one of 0, 1"),
        ("sst", " , 3 ", " , 5 ", "'5', expected one of 0, 1, 2, 3, 4"),
        ("sst", " , 3 ", " , 2.5 ", "'2.5', expected one of 0"),
        ("sst", " , 3 ", " , positive ", "'positive', expected one of 0"),
        ("sts", " , ", " , about ", "'.* , about .*', expected 'id , value"),
    ],
)
def test_an_unknown_answer_is_named(teams, file, old, new, found):
    """Before, it counted as a wrong label."""
    change(teams, f"{file}-dev-output.csv", (old, new))
    row = team(teams)
    assert row.overall == "" and row.place == ""
    assert re.search(rf"^{file}-dev-output.csv, row \d+: found {found}", row.note)


def test_files_with_other_spaces_a_byte_order_mark_or_windows_lines_are_ranked(teams):
    path = teams / "team" / "predictions" / "sst-dev-output.csv"
    lines = path.read_text().splitlines()
    path.write_bytes(
        ("\ufeff" + "\r\n".join(line.replace(" , ", ",").strip() for line in lines)).encode()
    )
    assert team(teams).sst == 1.0


def test_the_files_of_another_team_are_refused_behind_a_linked_folder(teams):
    (teams / "other").mkdir()
    (teams / "other" / "predictions").symlink_to(teams / "team" / "predictions")
    row = next(row for row in rank(teams, "mini") if row.team == "other")
    assert row.place == "" and "is a link" in row.note


# ---- notebooks ----


def notebook(path, *cells, **more):
    """Write a notebook whose first cell is tagged."""
    cells = [
        {"cell_type": "code", "source": one, "metadata": {}, "outputs": [], "execution_count": None}
        for one in cells
    ]
    cells[0]["metadata"] = {"tags": ["parameters"]}
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4, **more}
    path.write_text(json.dumps(content))
    return path


@pytest.mark.notebook
def test_a_notebook_without_kernel_and_language_runs_with_annotated_parameters(tmp_path):
    first = "%matplotlib inline\nx: int = 1\nfiles = !ls\ny, z = 2, 3"
    check = "assert (x, y, z) == (7, 8, 3), (x, y, z)"
    path = notebook(tmp_path / "own.ipynb", first, check)
    assert run_notebooks([path], tmp_path / "out", {"x": 7, "y": 8}) == []
    assert [one["metadata"] for one in json.loads(path.read_text())["cells"]][1] == {}


@pytest.mark.parametrize(
    "source, names",
    [
        ("x: int = 1", ["x"]),
        ("x, y = 1, 2", ["x", "y"]),
        ("%load_ext autoreload\nx = 1\n!ls", ["x"]),
        ("%%time\nx = 1", ["x"]),
        ("if True:\n    x = 1", ["x"]),
        ("o.a = d['b'] = 1\nx = [i for i in range(3)]", ["x"]),
    ],
)
def test_every_assignment_in_the_tagged_cell_is_a_parameter(tmp_path, source, names):
    assert notebook_parameters(notebook(tmp_path / "own.ipynb", source)) == names


def test_a_cell_that_is_no_python_and_one_without_metadata_are_named(tmp_path):
    path = notebook(tmp_path / "own.ipynb", "x = = 1")
    with pytest.raises(ValueError, match=r"own.ipynb, cell tagged parameters: invalid syntax"):
        notebook_parameters(path)
    cells = [{"cell_type": "code", "source": "x = 1"}]
    with pytest.raises(ValueError, match=r"own.ipynb .*'metadata'"):
        notebook_parameters(notebook(path, "x = 1", cells=cells))
    cells = [{"cell_type": "code", "source": "x = 1", "metadata": {"tags": None}}]
    assert notebook_parameters(notebook(path, "x = 1", cells=cells)) == []


def test_the_advice_for_a_notebook_of_format_3_works(tmp_path):
    cell = {"cell_type": "code", "collapsed": False, "input": ["x = 1"], "language": "python"}
    cell |= {"metadata": {"tags": ["parameters"]}, "outputs": []}
    path = tmp_path / "old.ipynb"
    content = {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0}
    path.write_text(json.dumps({**content, "worksheets": [{"cells": [cell], "metadata": {}}]}))
    with pytest.raises(ValueError, match="format 3.* jupyter nbconvert .*") as error:
        notebook_parameters(path)
    advice = shlex.split(str(error.value).removesuffix(".").partition("jupyter nbconvert ")[2])
    subprocess.run([sys.executable, "-m", "nbconvert", *advice], check=True, capture_output=True)
    assert notebook_parameters(path) == ["x"]


# ---- files with texts ----


ROWS = [("gj04", "1", "", "The cat sleeps."), ("gj04", "0", "*", 'He said "no" the.')]


@pytest.mark.parametrize(
    "task, name, rows",
    [
        ("cola", "dev.tsv", ROWS),
        ("cola", "cola_dev.tsv", ROWS),
        ("cola", "cola_dev.tsv", [("7", "1", "The cat sleeps."), ("8", "0", "Cat the.")]),
        ("scitail", "dev.tsv", [("a", "b", "entails"), ("c", "d", "neutral")]),
        ("scitail", "dev.tsv", [("a", "b", "entails", "x$y"), ("c", "d", "neutral", "z")]),
        ("scitail", "scitail_dev.tsv", [("7", "entails", "a", "b"), ("8", "neutral", "c", "d")]),
        (
            "scitail",
            "dev.tsv",
            [
                ("sentence1", "sentence2", "gold_label"),
                ("a", "b", "entails"),
                ("c", "d", "neutral"),
            ],
        ),
    ],
)
def test_predict_reads_the_rows_of_load_task(make_model, tmp_path, capsys, task, name, rows):
    """In a file without a header, the first row is a row for both."""
    text = "".join("\t".join(row) + "\n" for row in rows)
    for one in (name, name.replace("dev", "train")):
        (tmp_path / one).write_text(text)
    model = make_model(task)
    save_model(model, tmp_path / "model")
    data = load_task(task, tmp_path).dev
    assert len(data) == 2
    given = ["--model", str(tmp_path / "model"), "--task", task]
    assert main(["predict", *given, "--file", str(tmp_path / name)]) == 0
    header, *found = csv.reader(capsys.readouterr().out.splitlines(), delimiter="\t")
    columns = [header.index(column) for column in data.task.text_columns]
    assert [tuple(row[i] for i in columns) for row in found] == data.texts
    assert [row[header.index("label")] for row in found] == predict(model, data).tolist()


def test_a_header_of_unknown_names_is_no_row(make_model, tmp_path, capsys):
    save_model(make_model("cola"), tmp_path / "model")
    (tmp_path / "in.tsv").write_text("a\tb\tc\td\n1\t2\t3\tgood\n")
    given = ["--model", str(tmp_path / "model"), "--file", str(tmp_path / "in.tsv")]
    assert main(["predict", *given]) == 2
    assert (
        "has no column 'sentence' (columns found: ['a', 'b', 'c', 'd'])" in capsys.readouterr().err
    )


@pytest.mark.parametrize("column", ["id", "idx", "index", "test_id", "ID", "Id"])
def test_ids_of_a_file_are_carried_through(make_model, tmp_path, column):
    save_model(make_model("sst"), tmp_path / "model")
    out, file = tmp_path / "out.csv", tmp_path / "in.parquet"
    pd.DataFrame({"sentence": ["good", "bad"], column: [70, 3]}).to_parquet(file)
    given = ["--model", str(tmp_path / "model"), "--file", str(file), "--out", str(out)]
    assert main(["predict", *given]) == 0
    rows = list(csv.reader(out.read_text().splitlines()))
    assert [row[:2] for row in rows] == [["id", "sentence"], ["70", "good"], ["3", "bad"]]


# ---- commands ----


def test_mini_is_a_source_of_a_submission(make_model, tmp_path, monkeypatch, capsys):
    save_model(make_model("sst", "quora", "sts"), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "--model", "model", "--source", "mini"]) == 0
    assert "All files are in predictions" in capsys.readouterr().out
    lines = (tmp_path / "predictions" / "sst-test-output.csv").read_text().splitlines()
    assert [line.split(" , ")[0] for line in lines[1:]] == list(map(str, load_task("sst").test.ids))


@pytest.mark.parametrize("command", ["reproduce", "grade x --assignment a1"])
def test_ctrl_c_says_that_the_same_command_continues(monkeypatch, capsys, command):
    def interrupt(_options):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli._COMMANDS, command.split()[0], interrupt)
    assert main(command.split()) == 130
    assert capsys.readouterr().err == "Interrupted. The same command continues.\n"
