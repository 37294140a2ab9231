"""Add cells to a copy of a notebook that move every slider after all other cells."""

import re
from pathlib import Path

import nbformat

READ = ("results", "experiments", "data")  # folders next to notebooks/ that notebooks read

# Both cells use only names with an underscore, so that no slider reads one of these names.
RECORD = '''
from mmlcourse.lessons import plots as _plots

_recorded, _sliders = [], _plots.sliders


def _record(draw, *, start=None, show=True, **choices):
    """Draw the static figure, and keep what the sliders can do."""
    choices = {n: [v] if isinstance(v, str) else list(v) for n, v in choices.items()}
    at_start = {**{name: values[0] for name, values in choices.items()}, **(start or {})}
    _recorded.append((draw, at_start, choices))
    _sliders(draw, show=show, **({"start": start} if start else {}), **choices)


_plots.sliders = _record
'''

MOVE = '''
def _limits_after(draw, chosen, where):
    """The limits of all axes after one move."""
    import matplotlib.pyplot

    matplotlib.pyplot.close("all")
    try:
        draw(**chosen)
        figure = matplotlib.pyplot.gcf()
        figure.canvas.draw()
        limits = [(*ax.get_xlim(), *ax.get_ylim()) for ax in figure.axes]
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    matplotlib.pyplot.close("all")
    return limits


def _move_all():
    """Every slider to its first and last value, the others at their start."""
    assert len(_recorded) == SLIDERS, f"NOTEBOOK: {len(_recorded)} sliders, expected SLIDERS"
    moves = 0
    for draw, at_start, choices in _recorded:
        before = _limits_after(draw, at_start, f"NOTEBOOK, {draw.__name__} at the start {at_start}")
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
'''

MAY_RESCALE = {"07_mtdnn_san": ["row"]}  # the axis shows the tokens of that row


def count_sliders(path):
    """Return the number of calls of `sliders` in a notebook."""
    return len(re.findall(r'"(?:plots\.)?sliders\(', Path(path).read_text(encoding="utf-8")))


def with_slider_moves(source, target, first="", replaced=()):
    """Write a copy of a notebook whose last cell moves every slider to its first and last value.

    The last cell raises AssertionError with notebook, slider and value in three cases: a figure
    cannot be drawn, its axes differ from those of the start, or the numbers are not sorted.

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
