"""Figures of many heads, of notebooks 03 and 04: their orthogonality and their pruning."""

import numpy as np

from mmlcourse.lessons.plots.common import (
    COLOURS,
    DOTTED,
    LINES,
    OUTSIDE,
    integer_ticks,
    line_and_band,
    looks,
    panel,
    panels,
)

__all__ = [
    "drift",
    "head_paths",
    "head_similarity",
    "staircases",
    "trade_off",
]


def head_similarity(weights, names):
    """Draw |cosine| of all pairs of heads of one class, for two methods (MML v2, Fig. 1).

    Args:
        weights: the heads of two methods, [A, D] each; the second stands below the diagonal.
        names: of the methods.

    Returns:
        The axes.
    """
    tables = []
    for one in weights:
        n = one.detach().float().cpu()
        n = n / n.norm(dim=-1, keepdim=True)
        tables.append((n @ n.T).abs().numpy())
    above = np.triu(np.ones_like(tables[0], bool), 1)
    means = [f"{name}, mean {table[above].mean():.3f}" for name, table in zip(names, tables)]
    both = np.ma.masked_array(np.where(above, *tables), np.eye(len(above), dtype=bool))
    title = "above: {}\nbelow: {}".format(*means)
    with panel(size=(4.4, 3.7), xlabel="head s", ylabel="head r", title=title) as ax:
        image = ax.imshow(both, vmin=0, vmax=1, interpolation="nearest")
        integer_ticks(ax.xaxis, ax.yaxis)
        ax.grid(False)
        ax.figure.colorbar(image, ax=ax, label="|cosine|")
    return ax


def head_paths(paths, points=None, labels=None):
    """Draw heads with two weights on their way: start dashed, path thin, end as an arrow.

    Args:
        paths: {title: positions [steps + 1, M, 2]}; every title gets a panel with the same limits.
        points: [N, 2] data points behind the heads, or None.
        labels: [N] labels of the points, -1 or 1.

    Returns:
        The array of axes.
    """
    unit = "weight" if points is None else "coordinate"
    with panels(
        1,
        len(paths),
        (3.1 * len(paths) + 0.6, 3.6),
        sharex=True,
        sharey=True,
        subplot_kw=dict(aspect="equal"),
    ) as (axes,):
        for ax, (title, path) in zip(axes, paths.items()):
            for label, marker in ((1, "+"), (-1, "_")) if points is not None else ():
                here = np.asarray(points)[np.asarray(labels) == label]
                ax.plot(*here.T, marker, color="grey", label=f"x, y = {label:+d}")
            for j, one in enumerate(looks(range(path.shape[1])).values()):
                _head_path(ax, np.asarray(path)[:, j], one, f"$f_{j + 1}$", 8 - j % 2 * 16)
            ax.margins(0.12)  # room for the names
            ax.set(xlabel=f"first {unit}", ylabel=f"second {unit}", title=title)
        if points is not None:
            axes[0].legend(loc="lower right")
    return axes


def _head_path(ax, path, look, name, aside):
    colour, end = look["color"], path[-1]
    x, y = end / np.linalg.norm(end)
    place = 8 * x + aside * y, 8 * y - aside * x  # beyond the arrow, beside its line
    ax.plot([0, path[0, 0]], [0, path[0, 1]], "--", color=colour, alpha=0.5)
    ax.plot(*path.T, linewidth=1, color=colour)
    arrow = dict(arrowstyle="->", linewidth=2, linestyle=look["linestyle"], color=colour)
    ax.annotate("", end, (0, 0), arrowprops=arrow)
    ax.annotate(
        name, end, place, textcoords="offset points", color=colour, ha="center", va="center"
    )


def drift(paths, level, *, title=""):
    """Draw the mean |cosine| of pairs of heads over training, with the middle 80 % of the pairs.

    Args:
        paths: {method: rows of (step, mean, 10 % quantile, 90 % quantile)}.
        level: the mean |cosine| of random directions, a dotted line.
        title: of the figure.

    Returns:
        The axes.
    """
    with panel(
        size=(6.4, 3.6),
        xlabel="update",
        ylabel="|cosine| of two heads of a class",
        title=title,
        ylim=(0, 1),
    ) as ax:
        for name, one in looks(paths).items():
            line_and_band(ax, *np.asarray(paths[name]).T, one, name)
        ax.axhline(level, **DOTTED, label=f"random: {level:.3f}")
        ax.legend(loc="upper left")
    return ax


def trade_off(paths, chosen):
    """Draw the ways of runs with several lambda from their common start, and emphasise one.

    Args:
        paths: {lambda: rows of (mean |cosine|, loss per head)}.
        chosen: the lambda of the way that is emphasised.

    Returns:
        The axes.
    """
    points = np.concatenate([np.asarray(path) for path in paths.values()])
    low, high = points.min(0), points.max(0)
    room = 0.2 * (high[1] - low[1])
    limits = dict(xlim=(0.7 * low[0], 1.4), ylim=(low[1] - room, high[1] + room))
    small = dict(textcoords="offset points", fontsize=8)
    with panel(
        size=(6.4, 3.6),
        xlabel="mean |cosine| of two heads (log)",
        ylabel="train loss per head",
        **limits,
    ) as ax:
        for i, (one, path) in enumerate(paths.items()):
            ax.semilogx(*zip(*path), "-", color="grey", linewidth=1, alpha=0.6)
            ax.semilogx(*path[-1], "o", color="black" if one == chosen else "grey")
            ax.annotate(f"λ = {one:g}", path[-1], (-8, 9 if i % 2 else -16), **small)
        ax.semilogx(*zip(*paths[chosen]), ".-", color=COLOURS[1], label=f"λ = {chosen:g}")
        ax.annotate("start", path[0], (0, 6), **small)
        ax.legend(loc="lower left")
    return ax


def staircases(runs, landmarks):
    """Draw the share of active heads of several runs, and the dev metric below it.

    Both panels share the axis of training, from 0 to 1. The dev metric is drawn as its difference
    from the majority class, so that metrics of different tasks have the same zero. Runs of one task
    and bandwidth have one colour, which the legend names; seeds differ in the style of the line.

    Args:
        runs: a list of `mmlcourse.studies.Staircase`.
        landmarks: `mmlcourse.studies.LANDMARKS`, drawn as stars.

    Returns:
        The two axes.
    """
    from matplotlib.ticker import PercentFormatter

    paper = landmarks["left"] / landmarks["heads"], landmarks["step"] / landmarks["steps"]
    lowest = min([paper[0], *(run.counts[-1][2] / run.num_heads for run in runs if run.counts)])
    kinds = [(run.task, run.bandwidth) for run in runs]
    with panels(2, 1, (8.4, 5.4), sharex=True, height_ratios=(3, 2)) as ((top,), (bottom,)):
        for number, (run, kind) in enumerate(zip(runs, kinds)):
            one = dict(looks([*dict.fromkeys(kinds)])[kind])
            one["linestyle"] = LINES[kinds[:number].count(kind) % len(LINES)]
            marker, counts = one.pop("marker"), run.counts
            x = [0, *(step / run.steps for step, _, _ in counts)]
            y = [1, *(after / run.num_heads for _, _, after in counts)]
            label = run.bandwidth if kind not in kinds[:number] else None
            top.step([*x, 1], [*y, y[-1]], where="post", **one, label=label)
            top.plot(x[1:], y[1:], marker, markersize=4, color=one["color"])
            steps, values = zip(*((at / run.steps, v - run.majority) for at, v in run.dev))
            bottom.plot(steps, values, marker=marker, markersize=3, **one)
        label = "the paper's run"
        top.plot([0, paper[1]], [1, paper[0]], "*", markersize=13, color="black", label=label)
        top.set(ylabel="share of active heads", yscale="log", ylim=(lowest / 2, 1.4))
        top.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        bottom.axhline(0, **DOTTED)
        bottom.set(xlabel="share of training", ylabel="accuracy above the\nmajority class")
        top.legend(**OUTSIDE)
    return top, bottom
