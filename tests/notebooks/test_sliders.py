"""Tests of sliders: their start and order, and the faults that moving them detects."""

import base64
import io
import json
import math
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import nbformat
import pytest
from matplotlib import pyplot as plt

from mmlcourse.lessons import plots
from mmlcourse.lessons.plots import widgets
from mmlkit.runtime import seeded

from .sliders import count_sliders, with_slider_moves

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


COUNTS = {
    **dict.fromkeys(["02", "05", "08", "09", "12"], 1),
    **dict.fromkeys(["01", "03", "04", "07", "11"], 2),
    "00": 0,
    **dict.fromkeys(["06", "10"], 3),
}


def test_the_number_of_sliders():
    found = {path.stem[:2]: count_sliders(path) for path in NOTEBOOKS}
    assert found == COUNTS


DRAW = """
import matplotlib.pyplot as plt
from mmlcourse.lessons.plots import sliders
a = b = c = 1

def draw(h, word):
    plt.plot([0, 1], [0, a / a], linewidth=9 * b)
    plt.xlim(0, {limit})

sliders(draw, h={values}, word=["one", "two"])
"""
PLOT = "plt.plot([0, c], linewidth=9)\nplt.ylim(0, 3)\nplt.show()"


@pytest.mark.parametrize(
    ("limit", "values", "after", "problem"),
    [
        ("1", "[1, 2, 3]", "a = 2", None),
        (
            "1",
            "[1, 2, 3]",
            "a = {}",
            "99_small, draw at the start {'h': 1, 'word': 'one'}: TypeError",
        ),
        ("1 + (word == 'two') * a", "[1, 2]", "", "99_small, slider word at 'two': axes"),
        ("1", "[2, 1]", "", "99_small, slider h: [2, 1] are not sorted"),
        ("1 / (3 - h)", "[2, 3]", "", "99_small, slider h at 3: ZeroDivisionError"),
        ("1", "[1, 2]", "b = 2", "99_small, draw at the start {'h': 1, 'word': 'one'}: another"),
        ("1", "[1, 2]", "c = 2", "99_small, the cell plt.plot([0, c]"),
    ],
    ids=["all is well", "a later cell", "axes", "order", "a value", "a name", "a cell"],
)
def test_moving_the_sliders_detects_faults(tmp_path, monkeypatch, limit, values, after, problem):
    monkeypatch.setattr(plots, "sliders", plots.sliders)  # the copy replaces this function
    plt.close("all")  # of a case before
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    cells = [DRAW.replace("{limit}", limit).replace("{values}", values), PLOT, after]
    source, copy = (tmp_path / one / "notebooks" / "99_small.ipynb" for one in ("a", "b"))
    source.parent.mkdir(parents=True)
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=code), source)
    (tmp_path / "a" / "results").mkdir()
    assert with_slider_moves(source, copy) == 1
    assert (tmp_path / "b" / "results").is_dir()
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell.instance()
    try:
        *before, last = (cell.source for cell in nbformat.read(copy, as_version=4).cells)
        for code in before:
            shell.run_cell(code, store_history=True).raise_error()
        with pytest.raises(AssertionError, match=re.escape(problem)) if problem else nullcontext():
            shell.run_cell(last).raise_error()
    finally:
        shells.InteractiveShell.clear_instance()


# ---- frames, for the site ----


def pixels(png, ground=None):
    """Return the colours of a base64 PNG, over another picture where it is transparent."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA")
    return (Image.alpha_composite(ground, image) if ground else image), image.size


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_slider_has_its_frames(path):
    outputs = [
        o for cell in nbformat.read(path, as_version=4).cells for o in cell.get("outputs", [])
    ]
    shown = {
        output.metadata["mmlkit"]["frames"]: output.data["image/png"].strip()
        for output in outputs
        if "mmlkit" in output.get("metadata", {})
    }
    files = sorted((ROOT / "docs" / "frames").glob(f"{path.stem}_*.json"))
    assert sorted(shown) == [file.stem for file in files]
    assert len(files) == COUNTS[path.stem[:2]], f"python notebooks/build.py {path.stem[:2]}"
    for file in files:
        record = json.loads(file.read_text(encoding="utf-8"))
        states = math.prod(map(len, record["sliders"].values()))
        assert len(record["frames"]) == len(record["titles"]) == states <= 80
        assert record["frames"][record["start"]] == shown[file.stem], "not of this notebook"
        start, size = pixels(shown[file.stem])
        drawn = [pixels(frame, start) for frame in record["frames"]]
        assert all(other == size for _, other in drawn)
        assert len({image.tobytes() for image, _ in drawn}) > 1, "all states look the same"


def test_all_frames_together_are_small_and_belong_to_a_notebook():
    files = [*(ROOT / "docs" / "frames").iterdir()]
    sizes = [file.stat().st_size for file in files]
    assert sum(sizes) < 3e6 and max(sizes) < 1e6
    assert {file.stem.rpartition("_")[0] for file in files} <= {path.stem for path in NOTEBOOKS}


@pytest.fixture
def frames(monkeypatch):
    """Return the module notebooks/frames.py, with the functions that it replaces put back later."""
    import matplotlib.pyplot as plt

    plt.close("all")  # a figure that another test left open would be a frame
    monkeypatch.setattr(plots, "sliders", plots.sliders)
    monkeypatch.setattr(widgets, "is_interactive", lambda: False)
    monkeypatch.setattr(sys, "path", [str(ROOT / "notebooks"), *sys.path])
    return pytest.importorskip("frames")


@pytest.mark.slow
def test_a_frame_is_drawn_for_every_state(frames, tmp_path, monkeypatch, capsys):
    import torch

    shown, numbers = [], []
    display = pytest.importorskip("IPython").display
    monkeypatch.setattr(display, "display", lambda data, **more: shown.append((data, more)))

    def draw(size, text, colour):
        numbers.append(torch.rand(1).item())
        _, ax = plt.subplots(figsize=(1 + size, 2))
        ax.plot([0, size], color=colour)
        ax.set(ylim=(0, 3), title=f"size {size}")

    def record(name, start):
        frames.write_frames(tmp_path, name)
        plots.sliders(draw, start=start, size=range(1, 4), text="abc", colour=["red", "blue"])
        return json.loads((tmp_path / f"{name}_1.json").read_text())

    with seeded(1):
        found, after = record("small", {"size": 2, "colour": "red"}), torch.rand(1).item()
    with seeded(1):  # the other states draw no number of the notebook
        assert [numbers[0], after] == [torch.rand(1).item() for _ in range(2)]
    assert found["sliders"] == {"size": ["1", "2", "3"], "colour": ["red", "blue"]}
    assert found["titles"] == ["size 1", "size 1", "size 2", "size 2", "size 3", "size 3"]
    assert found["start"] == 2 and "Without a running kernel" in capsys.readouterr().out
    ((data, more),) = shown
    assert data["image/png"] == found["frames"][2] and data["text/plain"].startswith("<Figure")
    assert more == {"raw": True, "metadata": {"mmlkit": {"frames": "small_1"}}}
    ground, size = pixels(found["frames"][2])
    for frame, colour in zip(found["frames"], 3 * [(255, 0, 0, 255), (0, 0, 255, 255)]):
        image, other = pixels(frame, ground)
        colours = {one for _, one in image.getcolors(1 << 16)}
        assert other == size and colours & {(255, 0, 0, 255), (0, 0, 255, 255)} == {colour}
    monkeypatch.setattr(plots, "sliders", widgets.sliders)
    assert record("again", {"size": 2}) == found


def test_a_frame_covers_the_neighbours_of_a_difference(frames):
    """Otherwise the edges of the picture below it are visible where a browser resizes both."""
    from PIL import Image

    base = Image.new("RGB", (20, 20), "white")
    image = base.copy()
    image.putpixel((10, 10), (255, 0, 0))
    frame, _ = pixels(frames.overlay(image, base))
    assert frame.getchannel("A").getbbox() == (6, 6, 15, 15)
    assert frame.getpixel((6, 6)) == (255,) * 4 and frame.getpixel((10, 10)) == (255, 0, 0, 255)


def test_frames_are_few_and_only_of_what_is_drawn(frames, tmp_path):
    frames.write_frames(tmp_path, "small")
    plots.sliders(lambda **chosen: None, a=[1, 2])
    plots.sliders(lambda **chosen: 1 / 0, show=False, a=[1, 2])
    assert not [*tmp_path.iterdir()]
    with pytest.raises(ValueError, match="small_3: the sliders have 90 states, expected at most"):
        plots.sliders(lambda **chosen: plt.figure(), a=range(9), b=range(10))
    plt.close("all")


# ---- sliders itself ----


@pytest.fixture
def interactive_widgets(monkeypatch):
    """Simulate an interactive session; return a list with the widgets of each `interact` call."""
    ipywidgets, shown = pytest.importorskip("ipywidgets"), []

    def interact(function, **controls):
        function(**{name: control.value for name, control in controls.items()})
        for control in controls.values():
            control.observe(
                lambda change: function(**{name: one.value for name, one in controls.items()}),
                "value",
            )
        shown.append(controls)

    monkeypatch.setattr(widgets, "is_interactive", lambda: True)
    monkeypatch.setattr(ipywidgets, "interact", interact)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    return shown


SENTENCE = "Set in Lisbon, it follows two brothers through one summer."


def test_sliders_keep_the_order_and_the_given_start(interactive_widgets):
    drawn = []
    plots.sliders(
        lambda **chosen: drawn.append(chosen),
        start={"S": 204},
        S=[12, 204, 768],
        kind=["proportional", "annealed"],
    )
    (controls,) = interactive_widgets
    assert drawn == [{"S": 204, "kind": "proportional"}]
    assert list(controls["S"].options) == [12, 204, 768] and controls["S"].value == 204
    assert list(controls["kind"].options) == ["proportional", "annealed"]
    controls["S"].value = 12
    controls["kind"].value = "annealed"
    assert drawn[1:] == [{"S": 12, "kind": "proportional"}, {"S": 12, "kind": "annealed"}]


def test_values_are_not_truncated(interactive_widgets):
    from ipywidgets import Dropdown, SelectionSlider

    plots.sliders(
        lambda **chosen: None, kind=["annealed", "proportional"], sentence=["Short.", SENTENCE]
    )
    (controls,) = interactive_widgets
    # A slider of the default width, 300 pixels, has only 72 pixels for the value.
    assert isinstance(controls["kind"], SelectionSlider)
    assert controls["kind"].layout.width == "32em"
    # A sentence does not fit on a slider: its value ends after 148 pixels.
    assert isinstance(controls["sentence"], Dropdown)
    assert controls["sentence"].layout.width == "max-content"
    assert all(one.style.description_width == "initial" for one in controls.values())


def test_a_text_gets_a_text_box(interactive_widgets, monkeypatch, capsys):
    drawn = []
    plots.sliders(lambda **chosen: drawn.append(chosen), sentence=SENTENCE, head=[0, 1])
    (controls,) = interactive_widgets
    assert list(controls) == ["sentence", "head"] and controls["sentence"].value == SENTENCE
    assert not controls["sentence"].continuous_update and not capsys.readouterr().out
    controls["sentence"].value = "Mine."
    assert drawn[1:] == [{"sentence": "Mine.", "head": 0}]
    monkeypatch.setattr(widgets, "is_interactive", lambda: False)
    plots.sliders(lambda **chosen: drawn.append(chosen), sentence="Yours.", head=[0, 1])
    assert drawn[2:] == [{"sentence": "Yours.", "head": 0}]
    said = "Without a running kernel: sentence = 'Yours.'\n"
    assert capsys.readouterr().out == said


def test_the_static_figure_shows_the_start(monkeypatch):
    monkeypatch.setattr(widgets, "is_interactive", lambda: False)
    drawn = []
    plots.sliders(
        lambda **chosen: drawn.append(chosen), start={"S": 24}, S=range(12, 37, 12), T=[1, 2]
    )
    assert drawn == [{"S": 24, "T": 1}]
    plots.sliders(lambda **chosen: drawn.append(chosen), show=False, S=[1])
    assert len(drawn) == 1


# ---- text boxes ----


def test_text_boxes_show_the_result_of_the_given_texts(monkeypatch, capsys):
    monkeypatch.setattr(widgets, "is_interactive", lambda: False)
    shown = []
    plots.text_boxes(lambda **texts: shown.append(texts), first="a", second="b")
    assert shown == [{"first": "a", "second": "b"}]
    said = "Without a running kernel: first = 'a', second = 'b'\n"
    assert said in capsys.readouterr().out


def test_text_boxes_wait_for_the_button(monkeypatch):
    ipywidgets, shown, calls = pytest.importorskip("ipywidgets"), [], []

    class Manual:
        def options(self, **named):
            calls.append(named)
            return lambda function, **boxes: calls.append((function, boxes))

    monkeypatch.setattr(widgets, "is_interactive", lambda: True)
    monkeypatch.setattr(ipywidgets, "interact_manual", Manual())
    plots.text_boxes(lambda **texts: shown.append(texts), first="a")
    named, (function, boxes) = calls
    assert named == {"manual_name": "Predict"} and shown == [{"first": "a"}]
    assert boxes["first"].value == "a" and boxes["first"].description == "first"
    function(first="new")
    assert shown[1:] == [{"first": "new"}]
