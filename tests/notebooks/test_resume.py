"""A notebook that is run again after a disconnect continues its long cells."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
from smoke import smoke_cell, write_small_encoder

ROOT = Path(__file__).resolve().parents[2]
MASTERS = sorted((ROOT / "notebooks" / "src").glob("*.py"))
# Each run of these notebooks takes seconds on a GPU, or its loop is written by hand.
SHORT = {"00", "01", "09", "10", "11"}

# The cells of the experiment in a script, which counts the steps and may kill itself before one.
SCRIPT = """
import os, signal, sys
import mmlkit.training.loop as loop
steps, train_step = [], loop.train_step


def counted(*arguments, **options):
    if [str(len(steps))] == sys.argv[1:]:
        os.kill(os.getpid(), signal.SIGKILL)
    steps.append(1)
    return train_step(*arguments, **options)


loop.train_step = counted
{cells}
print("RESULT", len(steps), effects, tuned_run.history.drop(columns="seconds").values.tolist())
"""


def long_notebooks():
    """Return the numbers that the guide names."""
    text = (ROOT / "docs/guide/other-machines.md").read_text(encoding="utf-8")
    named = re.search("the same `output_dir`: (.+) repeat no finished call of `fit`", text)[1]
    spans = re.findall(r"(\d+)(?: to (\d+))?", named)
    return {f"{n:02}" for low, high in spans for n in range(int(low), int(high or low) + 1)}


def code_cells(path):
    return [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_every_long_run_has_a_checkpoint_of_its_own(path):
    """A call of `fit` in a cell comes with a name that begins with the number."""
    number, found = path.stem[:2], 0
    for cell in code_cells(path):
        code = re.sub("#.*", "", cell.source)
        runs = len(re.findall(r"(?<![\w.])fit\(", code))
        kept = re.findall(r"size\.checkpoints\(output_dir, (.+)", code)
        assert number in SHORT or runs == len(kept), code
        named = re.findall(r'"(\d\d)-', code) if kept else []
        assert named == [number] * len(kept)
        found += len(kept)
    assert (found > 0) == (number in long_notebooks())


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_hooks_of_long_runs_have_a_state(path):
    """Checkpoints keep the state of every hook, and `fit` refuses a hook without one."""
    tree = ast.parse("\n".join(cell.source for cell in code_cells(path)))
    for one in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = {node.name for node in one.body if isinstance(node, ast.FunctionDef)}
        if "after_step" in methods:
            assert {"state_dict", "load_state_dict"} <= methods, one.name


@pytest.mark.notebook
def test_a_killed_notebook_continues_when_it_is_run_again(tmp_path):
    master = next(path for path in MASTERS if path.stem.startswith("02"))
    cells = [smoke_cell(write_small_encoder(tmp_path / "encoder"), long_runs=True)]
    for cell in code_cells(master):
        if {"parameters", "bootstrap", "effect"} & set(cell.metadata.get("tags", [])):
            cells.append(cell.source)

    def run(folder, *stop):
        own = [*cells[:2], f"output_dir = {str(tmp_path / folder)!r}", *cells[2:]]
        script = tmp_path / f"{folder}.py"
        script.write_text(SCRIPT.format(cells="\n".join(own)))
        command = [sys.executable, script, *map(str, stop)]
        return subprocess.run(command, cwd=ROOT / "notebooks", stdout=subprocess.PIPE, text=True)

    def result(process):
        assert process.returncode == 0, process.stdout
        steps, found = process.stdout.split("RESULT ")[1].split(" ", 1)
        return int(steps), found

    all_steps, expected = result(run("whole"))
    # The frozen run and the first of two epochs of the tuned run are complete, one of STS is not.
    stop = int(0.6 * all_steps)
    assert run("again", stop).returncode == -signal.SIGKILL
    steps, found = result(run("again"))
    assert found == expected and 0 < steps <= 0.6 * all_steps
