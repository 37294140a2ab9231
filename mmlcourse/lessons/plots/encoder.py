"""Figures of notebook 01: vectors before and after, curves, tables and splits of heads."""

import numpy as np

from mmlcourse.lessons.plots.common import (
    COLOURS,
    MARKERS,
    OUTSIDE,
    heat_map,
    line_and_band,
    looks,
    panel,
    panels,
)

__all__ = [
    "bands",
    "head_tables",
    "moved_vectors",
    "similarities",
    "splits",
]


def moved_vectors(names, before, after, *, title=""):
    """Draw vectors in a plane as arrows, from a hollow marker to a filled one.

    Args:
        names: N names.
        before: [N, 2].
        after: [N, 2].
        title: of the figure.

    Returns:
        The axes.
    """
    with panel(size=(4.6, 2.9), xlabel="first number", ylabel="second number", title=title) as ax:
        for name, old, new, colour, marker in zip(names, before, after, COLOURS, MARKERS):
            look = dict(marker=marker, markersize=9, color=colour)
            arrow = dict(arrowstyle="->", color=colour, shrinkA=6, shrinkB=5)
            ax.plot(*old, markerfacecolor="white", **look)
            ax.annotate("", new, old, arrowprops=arrow)
            ax.plot(*new, **look)
            ax.annotate(name, old, (8, 7), textcoords="offset points", color=colour)
        ax.margins(0.18)
    return ax


def bands(x, series, *, xlabel, ylabel, reference=None, base=None, ylim=None, ax=None):
    """Draw curves of means with the middle 80 % of the draws; one curve alone has no legend.

    Args:
        x: [N].
        series: {name: [N, draws]}, or {name: [N]} for curves without a band.
        xlabel: what x is.
        ylabel: what the series are.
        reference: (name, value) of a dotted horizontal line, or None.
        base: the base of a logarithmic x axis, or None.
        ylim: the ends of the y axis, or None.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    with panel(ax, size=(6.4, 2.6), xlabel=xlabel, ylabel=ylabel) as ax:
        for name, one in looks(series).items():
            values = np.asarray(series[name], float).reshape(len(x), -1)
            ends = np.quantile(values, [0.1, 0.9], axis=1)
            one = one if base else {**one, "marker": ""}
            line_and_band(ax, x, values.mean(1), *ends, one, name)
        if ylim:
            ax.set_ylim(ylim)
        if reference:
            ax.axhline(reference[1], color="grey", linestyle=":", label=reference[0])
        if base:
            ax.set_xscale("log", base=base)
            ax.set_xticks(x, x)
        if reference or len(series) > 1:
            ax.legend(**OUTSIDE)
    return ax


def head_tables(tables, bar="attention weight"):
    """Draw one number per attention head as colours, a panel for each table.

    Args:
        tables: {title: [L, H]}, a row per layer and a column per head, from 0 to 1.
        bar: what the numbers are.

    Returns:
        The array of axes, [1, number of tables], with the largest number in each title.
    """
    with panels(1, len(tables), (4 * len(tables), 2.6), sharey=True) as axes:
        for ax, (title, values) in zip(axes[0], tables.items()):
            layers, heads = map(range, np.shape(values))
            image = heat_map(ax, values, layers, heads, vmin=0, vmax=1)
            ax.set(
                xlabel="head",
                ylabel="layer",
                title=f"{title}: at most {np.asarray(values).max():.2f}",
            )
        axes[0, 0].figure.colorbar(image, ax=axes, label=bar)
    return axes


def similarities(values, rows, columns, *, xlabel, bar="cosine"):
    """Draw a table of numbers from 0 to 1, such as cosines or attention weights.

    Args:
        values: [R, C].
        rows: R names.
        columns: C names.
        xlabel: what the columns are.
        bar: what the numbers are.

    Returns:
        The axes.
    """
    texts = np.char.mod("%.2f", values)
    with panel(size=(4.6, 2.9), xlabel=xlabel) as ax:
        heat_map(ax, values, rows, columns, bar, texts=texts, vmin=0, vmax=1)
    return ax


def splits(tables, heads):
    """Draw which token each number of some heads belongs to: a row of H small tables per split.

    Args:
        tables: {title: numbers of tokens, [H, T, d]}.
        heads: H names.

    Returns:
        The array of axes, [number of tables, H].
    """
    from matplotlib.colors import ListedColormap

    with panels(len(tables), len(heads), (8.4, 1.75 * len(tables)), sharex=True) as axes:
        for row, (title, table) in zip(axes, tables.items()):
            for ax, head, values in zip(row, heads, table):
                ax.imshow(values, cmap=ListedColormap(COLOURS[:5]), vmin=0, vmax=4, aspect="auto")
                ax.set(yticks=range(len(values)), xticks=[], title=head)
                ax.grid(False)
            row[0].set_ylabel(f"{title}\nrow")
        for token in range(5):
            axes[0, -1].plot([], [], "s", color=COLOURS[token], label=f"token {token}")
        axes[0, -1].legend(**OUTSIDE)
    return axes
