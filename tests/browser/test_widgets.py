"""Every kind of widget of the library moves in JupyterLab.

One small notebook is opened and run once. `make test-browser` also opens the real notebooks.
"""

import nbformat
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FIGURES = """
import matplotlib.pyplot as plt
from mmlcourse.lessons import plots

def draw(**chosen):
    plt.figure(figsize=(4, 1))
    plt.title(" ".join(f"{name} {value}" for name, value in chosen.items()))

sentences = ["A slow film with a strong end.", "A strong film with a slow end."]
choices = dict(layer=range(1, 6), kind=["bert", "mml"], text=sentences)
plots.sliders(draw, start={"layer": 2}, **choices, word="one")
"""
TEXTS = """
plots.text_boxes(lambda first, second: print(second, first), first="b", second="a")
"""


def write(folder, name, *codes):
    """Write a notebook of code cells."""
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in codes]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, folder / "notebooks" / f"{name}.ipynb")


@pytest.fixture(scope="module")
def opened(checkout, open_notebook):
    """Return the small notebook after all its cells have run."""
    write(checkout, "widgets", FIGURES, TEXTS)
    notebook = open_notebook("widgets")
    notebook.run_all(limit=600)
    return notebook


@pytest.fixture
def figure(opened):
    """Return the widgets of the figure; afterwards the page must have reported no problem."""
    yield opened.widgets(0)
    assert opened.problems == []


def test_the_widgets_have_their_names_and_start_values(figure):
    assert figure.names() == ["layer", "kind", "text", "word"]
    values = [figure.value(name) for name in ["layer", "kind", "text"]]
    assert values == ["2", "bert", "A slow film with a strong end."]


@pytest.mark.parametrize("name", ["layer", "kind", "text"])
def test_the_keyboard_moves_a_widget_and_the_figure_follows(figure, name):
    before, value = figure.output(), figure.value(name)
    assert before.startswith("data:image/png;base64,")
    step = figure.possible_step(name)
    there, back = (lambda: figure.step(name, step)), (lambda: figure.step(name, -step))
    after = figure.output_after(there, before=before, what="there")
    assert figure.value(name) != value
    again = figure.output_after(back, before=after, what="back")
    assert again == before and figure.value(name) == value


def test_a_text_beside_sliders_redraws_the_figure(figure):
    before = figure.output()
    two = figure.output_after(lambda: figure.write("word", "two"), before=before, what="two")
    one = figure.output_after(lambda: figure.write("word", "one"), before=two, what="one")
    assert one == before and figure.text_box("layer").count() == 0


def test_the_mouse_moves_a_slider_and_only_the_last_value_is_drawn(figure):
    before, kind = figure.output(), figure.value("kind")
    ends = []
    for share in (1.0, 0.0, 0.25):
        drag = lambda share=share: figure.drag("layer", share)
        before = figure.output_after(drag, before=before, what=f"drag to {share}")
        ends.append(figure.value("layer"))
    assert ends == ["5", "1", "2"] and figure.value("kind") == kind


def test_the_mouse_chooses_from_a_menu(figure):
    before = figure.output()
    menu = figure.control("text").locator("select")
    for index in (1, 0):
        choose = lambda index=index: menu.select_option(index=index)
        before = figure.output_after(choose, before=before, what=f"choice {index}")
    assert figure.value("text") == "A slow film with a strong end."


def test_text_boxes_show_a_result_after_the_button(opened):
    boxes = opened.widgets(1)
    assert boxes.names() == ["first", "second"]
    boxes.control("first").locator("input").fill("Lisbon")
    button = boxes.root.get_by_role("button", name="Predict")
    assert boxes.output_after(button.click, before="", what="button") == "a Lisbon"
    assert opened.problems == []
