"""The committed notebooks are fresh, whole and within the bounds that CONTRIBUTING.md sets."""

import ast
import hashlib
import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_every_master_has_its_notebook():
    masters = sorted(path.stem for path in (ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.py"))
    assert [path.stem for path in NOTEBOOKS] == masters
    assert len(masters) >= 3
    assert [name[:2] for name in masters] == [f"{i:02d}" for i in range(len(masters))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_of_this_master(path):
    about = json.loads(path.read_text(encoding="utf-8"))["metadata"]["mmlkit"]
    master = (ROOT / "notebooks" / about["master"]).read_text(encoding="utf-8")
    assert about["sha256"] == hashlib.sha256(master.encode()).hexdigest(), f"stale: python notebooks/build.py {path.stem[:2]}"
    assert about["profile"] == "fast"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_one_clean_run_from_top_to_bottom(path):
    cells = [cell for cell in code_cells(path) if "".join(cell["source"]).strip()]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_bounds(path):
    text = path.read_text(encoding="utf-8")
    lengths = ["".join(cell["source"]).count("\n") + 1 for cell in code_cells(path)]
    assert max(lengths) <= 30 and statistics.median(lengths) <= 8
    assert len(text) <= 300_000
    assert "widgets" not in json.loads(text)["metadata"] and "widget-view" not in text
    assert not re.search(r'(/work/|/root/|/home/|/tmp/)', text), "the path of a machine"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_parameters_are_plain_literals(path):
    tagged = [cell for cell in code_cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse("".join(tagged[0]["source"])).body}
    assert values["profile"] == "fast" and {"seed", "output_dir"} <= set(values) and len(values) <= 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_and_images_exist(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in target]
    assert targets and all((path.parent / target).is_file() for target in targets), targets
