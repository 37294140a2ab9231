"""An answer is one folded part of HTML in a notebook, and plain text elsewhere."""

import pytest

from mmlcourse.lessons.answers import folded

CELL = """
from IPython.display import display
from mmlcourse.lessons.answers import folded
with folded():
    print("3 < 4")
    display({"image/png": "iVBORw0K\\n", "text/plain": "<Figure>"}, raw=True)
    display({"text/html": "<table></table>", "text/plain": "a"}, raw=True)
"""


def test_prints_tables_and_figures_are_folded_into_one_output():
    shells = pytest.importorskip("IPython.core.interactiveshell")
    from IPython.utils.capture import capture_output

    shell = shells.InteractiveShell.instance()
    try:
        with capture_output() as kept:
            shell.run_cell(CELL).raise_error()
    finally:
        shells.InteractiveShell.clear_instance()
    assert kept.stdout == ""
    (data,) = [one.data for one in kept.outputs]
    image = '<img alt="Answer" src="data:image/png;base64,iVBORw0K">'
    page = f"<details>\n<summary>Answer</summary>\n<pre>3 &lt; 4\n</pre>\n{image}\n<table></table>"
    assert data == {"text/html": f"{page}\n</details>", "text/plain": "3 < 4\n"}


def test_a_plain_python_only_prints(capsys):
    with folded():
        print("3 < 4")
    assert capsys.readouterr().out == "3 < 4\n"
