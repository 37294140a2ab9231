"""The style of all figures: labelled axes, colours for the colour-blind, shapes for grey prints.

Every figure draws into the axes that it is given, or into a new figure, and returns the axes. A
series has one colour, line and marker; a method of the papers has the same ones in every figure.
"""

import contextlib
import io

import numpy as np

from mmlcourse.studies.methods import METHODS

__all__ = [
    "COLOURS",
    "DOTTED",
    "LINES",
    "MARKERS",
    "OUTSIDE",
    "error_bars",
    "heat_map",
    "integer_ticks",
    "line_and_band",
    "looks",
    "panel",
    "panels",
    "picture",
    "style",
]

# Okabe and Ito (2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
DOTTED = dict(color="black", linestyle=":", linewidth=1)  # a level to compare with
OUTSIDE = dict(loc="center left", bbox_to_anchor=(1, 0.5))  # a legend at the right of its axes

RC = {
    "figure.dpi": 96,
    "figure.figsize": (6, 3.6),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "image.cmap": "cividis",
}


@contextlib.contextmanager
def style():
    """Use the style of the project inside a with statement, and only there.

    Yields:
        None.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context({**RC, "axes.prop_cycle": plt.cycler(color=COLOURS)}):
        yield


@contextlib.contextmanager
def panel(ax=None, *, size=None, **labels):
    """Draw into one axes in the project's style.

    Args:
        ax: matplotlib axes, or None for a new figure.
        size: width and height of a new figure in inches.
        **labels: arguments of `Axes.set`, such as xlabel, ylabel and title.

    Yields:
        The axes.
    """
    with panels(1, 1, size) if ax is None else style() as new:
        ax = new[0, 0] if ax is None else ax
        yield ax
        ax.set(**labels)


@contextlib.contextmanager
def panels(rows, columns, size, **subplots):
    """Draw into the axes of a new figure in the project's style.

    Args:
        rows: of axes.
        columns: of axes.
        size: width and height of the figure in inches.
        **subplots: keywords of `matplotlib.pyplot.subplots`.

    Yields:
        The array of axes, [rows, columns].
    """
    import matplotlib.pyplot as plt

    with style():
        figure, axes = plt.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained", **subplots
        )
        figure.get_layout_engine().set(w_pad=0.12)  # between a colour bar and the next axis
        yield axes


def picture(draw, **options):
    """Return a figure as the bytes of a file, in which no text is a formula.

    Args:
        draw: a function that draws the figure and returns one of its axes.
        **options: keywords of `Figure.savefig`, such as format; by default a PNG.

    Returns:
        The bytes. Those of an SVG have the same ids in every process.
    """
    import matplotlib.pyplot as plt

    texts = {"svg.fonttype": "none", "svg.hashsalt": "mmlkit", "text.parse_math": False}
    image = io.BytesIO()
    with plt.rc_context(texts):  # a name may hold $ or \\
        figure = draw().figure
        figure.savefig(image, **options)
    plt.close(figure)
    return image.getvalue()


def looks(names, places=None):
    """Return colour, line style and marker of each series of a figure.

    Args:
        names: names of the series, in order, or a dict with these keys. Where
            all are methods of `mmlcourse.studies.methods`, each has the look of its place there.
        places: {name: place in the palette}, so that a method keeps its look in several figures;
            or None. Names beyond those of the figure are allowed.

    Returns:
        {name: keyword arguments of `Axes.plot`}.
    """
    names = list(names)
    if places is None:
        known = METHODS if set(names) <= set(METHODS) else names
        places = {name: known.index(name) for name in names}
    keywords = {"color": COLOURS, "linestyle": LINES, "marker": MARKERS}
    return {
        name: {key: found[places[name] % len(found)] for key, found in keywords.items()}
        for name in names
    }


def heat_map(ax, values, rows, columns, bar="", *, ticks=None, texts=None, **image):
    """Draw a table of numbers as colours, with a name for every row and column.

    Args:
        ax: matplotlib axes.
        values: [R, C].
        rows: R names.
        columns: C names.
        bar: label of the colour bar; "" leaves it out.
        ticks: keywords for the names of the columns, such as rotation.
        texts: [R, C], written into the cells ("": nothing); or None.
        **image: keywords of `Axes.imshow`.

    Returns:
        The image.
    """
    drawn = ax.imshow(values, **{"aspect": "auto", **image})
    ax.set_xticks(range(len(columns)), columns, **(ticks or {}))
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(False)
    if bar:
        ax.figure.colorbar(drawn, ax=ax, label=bar)
    for (i, j), text in np.ndenumerate(np.asarray([] if texts is None else texts, dtype=str)):
        if text:
            dark = np.dot(drawn.to_rgba(values[i][j])[:3], (0.299, 0.587, 0.114)) < 0.45
            colour = "white" if dark else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize=9, color=colour)
    return drawn


def line_and_band(ax, x, middle, low, high, look, label):
    """Draw a line and the area between two others.

    Args:
        ax: matplotlib axes.
        x: [N].
        middle: [N], the line.
        low: [N], where the area begins.
        high: [N], where it ends.
        look: keywords of `Axes.plot`.
        label: of the line.
    """
    ax.plot(x, middle, **{"markersize": 4, **look}, label=label)
    ax.fill_between(x, low, high, color=look["color"], alpha=0.17, linewidth=0)


def error_bars(ax, x, accuracies, rows, colour):
    """Draw one standard error of each accuracy over a number of rows.

    Args:
        ax: matplotlib axes.
        x: [N].
        accuracies: [N].
        rows: how many rows were right or wrong.
        colour: of the bars.
    """
    error = (accuracies * (1 - accuracies) / rows) ** 0.5
    ax.errorbar(x, accuracies, error, fmt="none", capsize=3, color=colour)


def integer_ticks(*axes):
    """Restrict the ticks of some axes to integers, as many as fit beside each other.

    Args:
        *axes: such as ax.xaxis.
    """
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator("auto", integer=True))
