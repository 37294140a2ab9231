"""Figures of notebooks 03 to 06: orthogonality, pruning, improvements and performance profiles."""

import numpy as np

from mmlkit.messages import count
from mmlkit.plots.common import COLOURS, heat_map, integer_ticks, looks, panel, panels

__all__ = [
    "figure2",
    "head_counts",
    "head_similarity",
    "improvement_grid",
    "improvement_panels",
    "improvements",
    "profile",
    "pruning_event",
]

HEADS = dict(xlabel="index among active heads", ylabel="average loss of the head")


def head_similarity(weight, names=None, *, limit=1.0):
    """Draw the mutual orthogonality of heads for every class (MML v2, Fig. 1).

    Each table has the absolute cosine of every pair of heads r < s.

    Args:
        weight: the weights of the active heads, [A, C, D].
        names: the C classes.
        limit: where the colour scale ends.

    Returns:
        The array of C axes.
    """
    rows = weight.detach().float().cpu().transpose(0, 1)  # [C,A,D]
    rows = rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    tables = (rows @ rows.transpose(1, 2)).abs().numpy()  # [C,A,A]
    with panels(1, len(tables), (2.9 * len(tables) + 0.8, 3)) as (axes,):
        for k, (ax, table) in enumerate(zip(axes, tables)):
            pairs = np.ma.masked_array(table, np.tri(len(table), dtype=bool))  # r < s only
            image = ax.imshow(pairs, vmin=0, vmax=limit, interpolation="nearest")
            mean = pairs.mean() if len(table) > 1 else 0.0
            name = names[k] if names else f"class {k}"
            ax.set(xlabel="head s", ylabel="head r", title=f"{name}: mean {mean:.3f}")
            integer_ticks(ax.xaxis, ax.yaxis)
            ax.grid(False)
        ax.figure.colorbar(image, ax=list(axes), label="|cosine|")
    return axes


def _fields(event):
    return event if isinstance(event, dict) else vars(event)


def pruning_event(event, *, title=None, ax=None):
    """Draw one clustering: the average loss of each active head, and the centroids as lines.

    Circles are the heads that are kept, crosses those that are dropped.

    Args:
        event: a PruningEvent, or a dict of its fields.
        title: of the figure; by default step and number of clusters.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    event = _fields(event)
    kept = np.isin(event["head_ids"], event["kept"])
    place, averages = np.arange(len(kept)), np.asarray(event["averages"])
    if title is None:
        title = f"step {event['step']:,}: {count(len(event['centroids']), 'cluster')}"
    span = max(np.ptp(averages), 1e-3 * np.abs(averages).max(), 1e-9)
    ylim = (averages.min() - 0.06 * span, averages.max() + 0.22 * span)  # room for the legend
    with panel(ax, **HEADS, title=title, ylim=ylim) as ax:
        label = f"kept: {kept.sum()}"
        ax.plot(place[kept], averages[kept], "o", markersize=4, color=COLOURS[0], label=label)
        if not kept.all():
            label = f"dropped: {(~kept).sum()}"
            ax.plot(place[~kept], averages[~kept], "x", markersize=5, color=COLOURS[1], label=label)
        for i, centroid in enumerate(event["centroids"]):
            label = None if i else "centroids"
            ax.axhline(centroid, linestyle=":", linewidth=1, color="black", label=label)
        integer_ticks(ax.xaxis)
        ax.legend(fontsize=8, loc="upper right", ncols=3)
    return ax


def head_counts(runs, *, last_step=None, title="", ax=None):
    """Draw the number of active heads against training steps; a marker shows every check.

    Args:
        runs: {name: (num_heads, events)}, with events as in `pruner.events` or dicts of them.
        last_step: where the lines end.
        title: of the figure.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    ylim = (0, 1.08 * max(num_heads for num_heads, _ in runs.values()))
    with panel(ax, xlabel="training step", ylabel="active heads", title=title, ylim=ylim) as ax:
        for (name, (num_heads, events)), one in zip(runs.items(), looks(runs).values()):
            events, marker = [_fields(event) for event in events], one.pop("marker")
            steps = [0, *(event["step"] for event in events)]
            counts = [num_heads, *(len(event["kept"]) for event in events)]
            ends = [*steps, max(last_step or 0, steps[-1])]
            label = f"{name}: {counts[-1]}"
            ax.step(ends, [*counts, counts[-1]], where="post", **one, label=label)
            ax.plot(steps[1:], counts[1:], marker, markersize=4, color=one["color"])
        ax.legend()
    return ax


def figure2(events, num_heads, *, last_step=None, final=None):
    """Draw Fig. 2 of MML v2: two clusterings, the number of heads, and the heads that remain.

    The clusterings are the first and the last that dropped heads.

    Args:
        events: of one run, as in `pruner.events` or dicts of them.
        num_heads: at the beginning.
        last_step: where the line of the number of heads ends.
        final: averages [A] of the heads at the end; by default those of the last event's survivors.

    Returns:
        The figure.

    Raises:
        ValueError: no event dropped a head.
    """
    events = [_fields(event) for event in events]
    pruned = [event for event in events if event["dropped"]]
    if not pruned:
        raise ValueError(
            f"none of the {len(events)} events dropped a head, so there is nothing to draw; "
            "look at pruning_event(events[0])."
        )
    if final is None:
        left = dict(zip(events[-1]["head_ids"], events[-1]["averages"]))
        final = [left[head] for head in events[-1]["kept"]]
    with panels(2, 2, (9.5, 6)) as ((a, b), (c, d)):
        for ax, event, name in ((a, pruned[0], "(a) first"), (b, pruned[-1], "(b) last")):
            pruning_event(event, ax=ax, title=f"{name} pruning, step {event['step']:,}")
        runs = {"heads": (num_heads, events)}
        head_counts(runs, last_step=last_step, title="(c) active heads", ax=c)
        d.plot(range(len(final)), final, "o", markersize=4, color=COLOURS[0])
        d.set(**HEADS, title=f"(d) what is left: {count(len(final), 'head')}")
    return d.figure


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
    limit = limit or max(np.nanmax(np.abs(values), initial=0), 1e-9)
    frames = np.zeros_like(values) if marked is None else marked.to_numpy()
    ends = [COLOURS[1], "white", COLOURS[0]]
    colours = LinearSegmentedColormap.from_list("", ends, N=21).with_extremes(bad="0.88")
    size = (0.72 * values.shape[1] + 2.6, 0.34 * len(values) + 1.2)
    with panel(ax, size=size, title=title) as ax:
        image = heat_map(
            ax,
            np.ma.masked_invalid(values),
            percent.index,
            percent.columns,
            label,
            cmap=colours,
            vmin=-limit,
            vmax=limit,
            aspect="auto",
        )
        for i, j in zip(*np.nonzero(np.isfinite(values))):
            dark = np.dot(image.to_rgba(values[i, j])[:3], (0.299, 0.587, 0.114)) < 0.45
            text, colour = f"{values[i, j]:+.{digits}f}", "white" if dark else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
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

    Raises:
        ValueError: the number of tables is odd, or there are none.
    """
    if not tables or len(tables) % 2:
        raise ValueError(f"{len(tables)} tables cannot be drawn in rows of two; expected 2, 4, ...")
    frames, rows = list(tables.values()), len(tables) // 2
    limit = limit or max(np.nanmax(np.abs(one.to_numpy(float)), initial=1e-9) for one in frames)
    widths = [frames[0].shape[1] + 1, frames[1].shape[1] + 1]
    height = sum(0.34 * len(one) + 1.1 for one in frames[::2])
    with panels(rows, 2, (0.66 * sum(widths) + 2.4, height), width_ratios=widths) as axes:
        for i, (name, one) in enumerate(tables.items()):
            ax, label = axes.flat[i], "improvement, %" if i % 2 else ""
            frame = marked[name] if marked else None
            options = dict(limit=limit, marked=frame, digits=digits, label=label, title=name)
            improvements(one, **options, ax=ax)
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
    labels = dict(xlabel="evaluated on", ylabel="trained on")
    return improvement_grid(tables, **labels, title=title)


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
    labels = dict(xlabel=xlabel, ylabel="share of experiments", ylim=(0, 1.03), title=title)
    with panel(ax, size=(6.4, 3.8), **labels) as ax:
        for i, (name, one) in enumerate(looks(shares).items()):
            every = (i, max(1, len(shares) // 8))  # other markers than the neighbour's
            x, y = shares.index, shares[name]
            ax.step(x, y, where="post", markersize=5, markevery=every, **one, label=name)
        ax.legend(fontsize=8, loc="lower right")
    return ax
