"""Figures that compare methods, of notebooks 05 and 06: improvements and performance profiles."""

import numpy as np

from mmlcourse.lessons.plots.common import COLOURS, heat_map, looks, panel, panels

__all__ = ["improvement_grid", "improvement_panels", "improvements", "profile"]


def improvements(
    percent,
    *,
    limit=None,
    marked=None,
    digits=1,
    label="improvement, %",
    title="",
    ax=None,
):
    """Draw a table of improvements: orange below zero, white at zero, blue above.

    Args:
        percent: DataFrame, NaN where there is no number, as on a diagonal.
        limit: where the colours end on either side; by default the largest number. Figures to be
            compared need the same.
        marked: DataFrame of booleans, or None; these cells get a frame.
        digits: decimals of the numbers.
        label: of the colour bar; "" leaves it out.
        title: of the figure.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    values = percent.to_numpy(dtype=float)
    limit = limit or np.nanmax(np.abs(values), initial=1e-9)
    frames = np.zeros_like(values) if marked is None else marked.to_numpy()
    texts = np.where(np.isfinite(values), np.char.mod(f"%+.{digits}f", values), "")
    ends = [COLOURS[1], "white", COLOURS[0]]
    colours = LinearSegmentedColormap.from_list("", ends, N=21).with_extremes(bad="0.88")
    with panel(
        ax, size=(0.72 * values.shape[1] + 2.6, 0.34 * len(values) + 1.2), title=title
    ) as ax:
        heat_map(
            ax,
            np.ma.masked_invalid(values),
            percent.index,
            percent.columns,
            label,
            cmap=colours,
            vmin=-limit,
            vmax=limit,
            texts=texts,
        )
        for i, j in zip(*np.nonzero(frames)):
            ax.add_patch(Rectangle((j - 0.47, i - 0.46), 0.94, 0.92, fill=False, linewidth=1.6))
    return ax


def improvement_grid(tables, *, marked=None, limit=None, digits=1, xlabel="", ylabel="", title=""):
    """Draw tables of improvements, two in a row and in the same colours.

    Args:
        tables: {title: DataFrame}, see `improvements`.
        marked: {title: DataFrame of booleans}, or None; see `improvements`.
        limit: where the colours end on either side; by default the largest number of all tables.
        digits: decimals of the numbers.
        xlabel: what the columns are.
        ylabel: what the rows are.
        title: of the figure.

    Returns:
        The array of axes, [rows, 2].
    """
    frames, rows = list(tables.values()), len(tables) // 2
    limit = limit or max(np.nanmax(np.abs(one.to_numpy(float)), initial=1e-9) for one in frames)
    widths = [frames[0].shape[1] + 1, frames[1].shape[1] + 1]
    height = sum(0.34 * len(one) + 1.1 for one in frames[::2])
    with panels(rows, 2, (0.66 * sum(widths) + 2.4, height), width_ratios=widths) as axes:
        for i, (name, one) in enumerate(tables.items()):
            ax, label = axes.flat[i], "improvement, %" if i % 2 else ""
            frame = marked[name] if marked else None
            improvements(
                one, limit=limit, marked=frame, digits=digits, label=label, title=name, ax=ax
            )
            ax.set(xlabel=xlabel, ylabel="" if i % 2 else ylabel)
        axes[0][0].figure.suptitle(title, fontsize=11)
    return axes


def improvement_panels(cells, categories, *, title=""):
    """Draw the improvements of one method as in MML v2, Tables 2 and 3, with means at the right.

    Args:
        cells: Series of `cell_improvements`, indexed by split, trained_on and evaluated_on.
        categories: {name: data sets}.
        title: of the figure.

    Returns:
        The array of axes: a row per split, a column per category.
    """
    tables = {}
    for split in ("train", "dev"):
        for name, sets in categories.items():
            table = cells[split].unstack().reindex(index=list(sets), columns=list(sets))
            tables[f"{name}, {split} split"] = table.assign(mean=table.mean(axis=1))
    return improvement_grid(tables, xlabel="evaluated on", ylabel="trained on", title=title)


def profile(shares, *, xlabel="factor τ on the lowest error", title="", ax=None):
    """Draw a performance profile as steps (MML v2, Fig. 3).

    Args:
        shares: DataFrame of `performance_profile`, taus x methods.
        xlabel: what tau is.
        title: of the figure.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    with panel(
        ax,
        size=(6.4, 3.8),
        xlabel=xlabel,
        ylabel="share of experiments",
        ylim=(0, 1.03),
        title=title,
    ) as ax:
        for i, (name, one) in enumerate(looks(shares).items()):
            every = (i, max(1, len(shares) // 8))  # other markers than the neighbour's
            x, y = shares.index, shares[name]
            ax.step(x, y, where="post", markersize=5, markevery=every, **one, label=name)
        ax.legend(loc="lower right")
    return ax
