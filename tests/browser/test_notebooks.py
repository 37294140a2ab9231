"""Every committed notebook with widgets runs in JupyterLab, and each of its widgets moves.

`make test-browser` runs these tests, which take as long as the notebooks. They have the mark
`browser`, so other commands skip them. `make test-browser MOVES=10` moves each widget ten times.
"""

import ast
import os
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 25  # minutes for all cells of a notebook; it only stops endless computations

MOVES = int(os.environ.get("MOVES", "1"))  # how often each widget moves there and back


def widget_calls(path):
    """Return {index of the cell: [(function, names of its controls)]} of a notebook."""
    found = {}
    for index, cell in enumerate(nbformat.read(path, as_version=4).cells):
        nodes = ast.walk(ast.parse(cell.source)) if cell.cell_type == "code" else ()
        for node in nodes:
            if isinstance(node, ast.Call):
                function = ast.unparse(node.func).removeprefix("plots.")
                names = [keyword.arg for keyword in node.keywords]
                if function in OPTIONS:
                    names = [name for name in names if name not in OPTIONS[function]]
                    found.setdefault(index, []).append((function, names))
    return found


OPTIONS = {"sliders": ("start", "show"), "text_boxes": ("button",)}
NOTEBOOKS = {path.stem: path for path in sorted(ROOT.glob("notebooks/[0-9][0-9]_*.ipynb"))}
CALLS = {name: calls for name, path in NOTEBOOKS.items() if (calls := widget_calls(path))}


def test_the_notebooks_with_widgets():
    counts = {name: sum(map(len, calls.values())) for name, calls in CALLS.items()}
    assert counts.keys() == NOTEBOOKS.keys() and sum(counts.values()) == 23


@pytest.mark.browser
@pytest.mark.timeout(60 * (LIMIT + 15))
@pytest.mark.parametrize("name", CALLS)
def test_every_widget_of_the_notebook_moves(name, open_notebook):
    notebook = open_notebook(name)
    notebook.run_all(limit=60 * LIMIT)
    for index, calls in CALLS[name].items():
        ((function, names),) = calls
        widgets = notebook.widgets(index)
        if function == "sliders":
            assert widgets.names() == names
            for control in names * MOVES:
                text = widgets.text_box(control).count() == 1
                change = write_there_and_back if text else move_there_and_back
                change(widgets, control, f"{name}, cell {index}, {control}")
        else:
            press_the_button(widgets, f"{name}, cell {index}")
    notebook.close()
    assert notebook.problems == []


def move_there_and_back(widgets, control, where):
    """Move a slider by one value and back. The first figure must return."""
    first, value, step = widgets.output(), widgets.value(control), widgets.possible_step(control)
    there, back = (lambda: widgets.step(control, step)), (lambda: widgets.step(control, -step))
    second = widgets.output_after(there, before=first, what=f"{where} from {value}")
    third = widgets.output_after(back, before=second, what=f"{where} back to {value}")
    assert widgets.value(control) == value
    assert third == first, f"{where}: the figure at {value} differs after a move there and back"


def write_there_and_back(widgets, control, where):
    """Write another sentence into a text box, and the first one: the first figure must return."""
    first, text = widgets.output(), widgets.text_box(control).input_value()
    other = lambda: widgets.write(control, "A dull and far too long film.")
    second = widgets.output_after(other, before=first, what=f"{where}, another sentence")
    again = lambda: widgets.write(control, text)
    assert widgets.output_after(again, before=second, what=f"{where}, the first one") == first


def press_the_button(widgets, where):
    """Write another sentence in every text box, and press the button. Each text has one result."""
    button, results = widgets.root.get_by_role("button"), [""]
    for move in range(MOVES):
        text = ("A dull and far too long film.", "A sharp and funny film.")[move % 2]
        for box in widgets.root.locator("input").all():
            box.fill(text)
        pressed = f"{where}, button, press {move + 1}"
        results.append(widgets.output_after(button.click, before=results[-1], what=pressed))
    assert results[3:] == results[1:-2]
