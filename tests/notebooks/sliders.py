"""Add cells to a copy of a notebook that move every slider and draw every picture once more."""

import re
from pathlib import Path

import nbformat

READ = ("results", "experiments", "data")  # folders next to notebooks/ that notebooks read

# Both cells use only names with an underscore, so that no slider reads one of these names.
RECORD = '''
import IPython as _IPython
import matplotlib.pyplot as _pyplot
import numpy as _numpy
from mmlcourse.lessons import plots as _plots

_recorded, _sliders, _show = [], _plots.sliders, _pyplot.show
_cells = [("", [])]  # the code of each cell that has begun, and the pictures that it showed


def _pixels():
    """The pictures of all open figures, as arrays."""
    figures = [_pyplot.figure(number) for number in _pyplot.get_fignums()]
    for figure in figures:
        figure.canvas.draw()
    return [_numpy.asarray(figure.canvas.buffer_rgba()).copy() for figure in figures]


def _keep_and_show(*args, **keywords):
    _cells[-1][1].extend(_pixels())
    _show(*args, **keywords)


def _record(draw, *, start=None, show=True, **choices):
    """Draw the static figure, and keep what the sliders can do."""
    choices = {n: [v] if isinstance(v, str) else list(v) for n, v in choices.items()}
    at_start = {**{name: values[0] for name, values in choices.items()}, **(start or {})}
    before = len(_cells[-1][1])
    _sliders(draw, show=show, **({"start": start} if start else {}), **choices)
    _recorded.append((draw, at_start, choices, _cells[-1][1][before:]))


_pyplot.show = _keep_and_show
_IPython.get_ipython().events.register(
    "pre_run_cell", lambda cell: _cells.append((cell.raw_cell, []))
)


_plots.sliders = _record
'''

MOVE = '''
def _limits_after(draw, chosen, where, first=()):
    """The limits of all axes after one move; the pictures equal `first`, where it is given."""
    _pyplot.close("all")
    try:
        draw(**chosen)
        again = _pixels()  # a second drawing may move the parts of a figure
        limits = [(*ax.get_xlim(), *ax.get_ylim()) for ax in _pyplot.gcf().axes]
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    if first:
        _compare(first, again, where)
    _pyplot.close("all")
    return limits


def _compare(first, again, where):
    """At most one pixel in a thousand differs."""
    same = [one.shape for one in first] == [one.shape for one in again]
    same = same and all((one != two).mean() < 1e-3 for one, two in zip(first, again))
    assert same, f"{where}: another picture than at first; a name has got another meaning"


def _draw_all_again():
    """Each cell that shows pictures, but no slider, shows the same ones after the last cell."""
    found = [(code, first) for code, first in _cells if first and "sliders(" not in code]
    for code, first in found:
        again = []
        _pyplot.show = lambda: (again.extend(_pixels()), _pyplot.close("all"))
        where = "NOTEBOOK, the cell " + code[:60]
        try:
            exec(code, globals())
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        _compare(first, again, where)
    print(len(found), "cells with pictures")


def _move_all():
    """Every slider to its first and last value, the others at their start."""
    assert len(_recorded) == SLIDERS, f"NOTEBOOK: {len(_recorded)} sliders, expected SLIDERS"
    moves = 0
    for draw, at_start, choices, first in _recorded:
        where = f"NOTEBOOK, {draw.__name__} at the start {at_start}"
        before = _limits_after(draw, at_start, where, first)
        for name, values in choices.items():
            numbers = [value for value in values if isinstance(value, (int, float))]
            assert numbers == sorted(numbers), f"NOTEBOOK, slider {name}: {values} are not sorted"
            for value in (values[0], values[-1]):
                where = f"NOTEBOOK, slider {name} at {value!r}"
                after = _limits_after(draw, {**at_start, name: value}, where)
                same = name in MAY_RESCALE or after == before
                assert same, f"{where}: axes {before} became {after}"
                moves += 1
    print(moves, "moves of", len(_recorded), "sliders")


_move_all()
_draw_all_again()
'''

MAY_RESCALE = {"07_mtdnn_san": ["row"]}  # the axis shows the tokens of that row


def count_sliders(path):
    """Return the number of calls of `sliders` in a notebook."""
    return len(re.findall(r'"(?:plots\.)?sliders\(', Path(path).read_text(encoding="utf-8")))


def with_slider_moves(source, target, first="", replaced=()):
    """Write a copy of a notebook whose last cell moves every slider to its first and last value.

    The last cell raises AssertionError with notebook, slider and value in four cases: a figure
    cannot be drawn, its axes differ from those of the start, the numbers are not sorted, or a
    picture is not the first one, because a later cell has given a name another meaning.

    Args:
        source: A notebook of notebooks/.
        target: The path of the copy, PARENT/FOLDER/NAME. A notebook runs in its folder and reads
            the folders next to it, so links to these folders are created in PARENT.
        first: code that the copy runs first.
        replaced: {text in one code cell: its replacement}.

    Returns:
        The number of sliders in the notebook.
    """
    source, target = Path(source).resolve(), Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in READ:
        link = target.parent.parent / folder
        if not link.exists():
            link.symlink_to(source.parents[1] / folder, target_is_directory=True)
    sliders = count_sliders(source)
    notebook = nbformat.read(source, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in dict(replaced).items():
        (cell,) = (cell for cell in code if old in cell.source)
        cell.source = cell.source.replace(old, new)
    add_slider_moves(notebook, source.stem, sliders)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    nbformat.write(notebook, target)
    return sliders


def add_slider_moves(notebook, name, sliders):
    """Return the notebook with one additional cell at the start and one at the end."""
    move = MOVE.replace("NOTEBOOK", name).replace("SLIDERS", str(sliders))
    move = move.replace("MAY_RESCALE", repr(MAY_RESCALE.get(name, [])))
    first, last = (nbformat.v4.new_code_cell(code.strip()) for code in (RECORD, move))
    notebook.cells = [first, *notebook.cells, last]
    return notebook
