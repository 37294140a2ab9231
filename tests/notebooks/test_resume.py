"""A notebook that is run again after a disconnect continues its long cells."""

import ast
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import jupytext
import pytest

from mmlcourse.lessons.profiles import get_profile
from mmlkit.data import load_task

ROOT = Path(__file__).resolve().parents[2]
MASTERS = sorted((ROOT / "notebooks" / "src").glob("*.py"))
ROWS = 96  # of each split
# Each run of these notebooks takes seconds on a GPU, or its loop is written by hand.
SHORT = {"00", "01", "09", "10"}

# The cells of the experiment in a script. A run counts the steps that it makes.
SCRIPT = """
import mmlkit.training.loop as loop
import mmlkit.data as data
load_all, steps, train_step = data.load_task, [], loop.train_step
data.load_task = lambda *a, **options: load_all(*a, **{{**options, "limit": {rows}}})
loop.train_step = lambda *a, **options: (steps.append(1), train_step(*a, **options))[1]
{cells}
print("RESULT", len(steps), effects, history_values)
"""
LONG = """
import dataclasses
size = dataclasses.replace(size, long_runs=True)
"""


def code_cells(path):
    return [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_every_long_run_has_a_checkpoint_of_its_own(path):
    """A call of `fit` in a cell comes with a name that begins with the number."""
    number = path.stem[:2]
    for cell in code_cells(path):
        code = re.sub("#.*", "", cell.source)
        runs = len(re.findall(r"(?<![\w.])fit\(", code))
        kept = re.findall(r"size\.checkpoints\(output_dir, (.+)", code)
        assert number in SHORT or runs == len(kept), code
        named = re.findall(r'"(\d\d)-', code) if kept else []
        assert named == [number] * len(kept)


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_hooks_of_long_runs_have_a_state(path):
    """Checkpoints keep the state of every hook, and `fit` refuses a hook without one."""
    tree = ast.parse("\n".join(cell.source for cell in code_cells(path)))
    for one in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = {node.name for node in one.body if isinstance(node, ast.FunctionDef)}
        if "after_step" in methods:
            assert {"state_dict", "load_state_dict"} <= methods, one.name


@pytest.mark.notebook
@pytest.mark.timeout(1800)
def test_a_killed_notebook_continues_when_it_is_run_again(tmp_path):
    master = next(path for path in MASTERS if path.stem.startswith("02"))
    cells = []
    for cell in code_cells(master):
        if {"parameters", "bootstrap", "effect"} & set(cell.metadata.get("tags", [])):
            cells.append(cell.source)
            cells += [LONG] if "size, device = " in cell.source else []
    values = "history_values = tuned_history.drop(columns='seconds').values.tolist()"
    script = tmp_path / "cells.py"
    script.write_text(SCRIPT.format(rows=ROWS, cells="\n".join([*cells, values])))

    def start(folder):
        settings = f"output_dir = {str(tmp_path / folder)!r}\nepochs = 2\n"
        text = script.read_text().replace(cells[0], f"{cells[0]}\n{settings}")
        one = tmp_path / f"{folder}.py"
        one.write_text(text)
        return subprocess.Popen(
            [sys.executable, one], cwd=master.parents[1], stdout=subprocess.PIPE, text=True
        )

    def result(process):
        said, _ = process.communicate()
        assert process.returncode == 0, said
        steps, found = said.split("RESULT ")[1].split(" ", 1)
        return int(steps), found

    all_steps, expected = result(start("whole"))
    killed, wanted = start("again"), tmp_path / "again" / "checkpoints" / "02-tuned"
    while not (wanted / "last.safetensors").is_file():  # after the first of two epochs
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    steps, found = result(start("again"))
    assert found == expected
    epoch = math.ceil(len(load_task("sst", limit=ROWS).train) / get_profile("fast").batch_size)
    # Two epochs of the frozen run and one of the tuned run are not repeated.
    assert 0 < steps <= all_steps - 3 * epoch
