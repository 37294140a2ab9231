"""Figures of notebooks 00 to 02 that later ones use too: attention, errors, curves and bars."""

import numpy as np

from mmlcourse.lessons.plots.common import (
    COLOURS,
    DOTTED,
    MARKERS,
    OUTSIDE,
    error_bars,
    heat_map,
    looks,
    panel,
    panels,
)

__all__ = [
    "against_time",
    "attention",
    "bars",
    "bars_side_by_side",
    "learning_curves",
    "seeds",
    "spread",
]


def attention(weights, tokens, *, title=""):
    """Draw the attention weights of one head: a row per query, a column per token.

    Args:
        weights: [Q, T].
        tokens: the T tokens.
        title: of the figure.

    Returns:
        The axes.
    """
    with panel(
        size=(0.33 * len(tokens) + 1.8, 0.3 * len(weights) + 1.4),
        xlabel="looked at",
        ylabel="looking",
        title=title,
    ) as ax:
        heat_map(
            ax,
            weights,
            tokens[: len(weights)],
            tokens,
            "attention weight",
            ticks=dict(rotation=60, ha="right"),
            vmin=0,
            vmax=1,
        )
    return ax


def learning_curves(runs, *, rows):
    """Draw the training loss of every update, and the dev accuracy of every epoch, of some runs.

    Losses are means over ten updates. Updates have a logarithmic axis. A ring marks a best epoch,
    whose accuracy has its standard error.

    Args:
        runs: {name: (DataFrame of `fit`, losses of all updates)}.
        rows: the number of dev rows, for the standard errors.

    Returns:
        The two axes.
    """
    with panels(1, 2, (10, 3.6)) as ((left, right),):
        for (name, (history, losses)), one in zip(runs.items(), looks(runs).values()):
            means = np.convolve(losses, np.full(10, 0.1), "valid")
            left.plot(10 + np.arange(len(means)), means, one["linestyle"], color=one["color"])
            right.plot(history["step"], history["accuracy"], **one, markersize=4, label=name)
            best, ring = history[history["best"]], dict(markersize=13, fillstyle="none")
            error_bars(right, best["step"], best["accuracy"], rows, one["color"])
            right.plot(best["step"], best["accuracy"], "o", **ring, color=one["color"])
        for ax, ylabel in ((left, "training loss"), (right, "dev accuracy")):
            ax.set(xlabel="update (log)", ylabel=ylabel)
            _log_axis(ax, (1, 3))
        right.legend(**OUTSIDE)
    return left, right


def _log_axis(ax, steps):
    from matplotlib.ticker import LogLocator

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=steps))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()


def against_time(values, seconds, *, ylabel):
    """Draw what some runs reached against their time: faint dots are seeds, and bars mean errors.

    Args:
        values: a DataFrame with a column for each kind of run and a row for each seed.
        seconds: the time of each kind.
        ylabel: what the values are.

    Returns:
        The axes.
    """
    with panel(size=(9, 3.4), xlabel="seconds of training (log)", ylabel=ylabel) as ax:
        for (name, time), one in zip(zip(values, seconds), looks(values).values()):
            found, look = values[name].dropna(), dict(color=one["color"], marker=one["marker"])
            ax.plot([time] * len(found), found, linestyle="", alpha=0.3, **look)
            ax.errorbar(time, found.mean(), found.sem(), capsize=4, label=name, **look)
            text, place = f"{found.mean():.1f} ± {found.sem():.1f}", (time, found.mean())
            ax.annotate(text, place, (9, 0), textcoords="offset points", va="center")
        _log_axis(ax, (1, 2, 3, 5))
        ax.margins(x=0.18)
        ax.legend(**OUTSIDE)
    return ax


def bars(values, *, xlabel, title="", ax=None):
    """Draw horizontal bars with their values.

    Args:
        values: {name: value}.
        xlabel: what the values are.
        title: of the figure.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    with panel(ax, size=(6, 0.45 * len(values) + 1.2), xlabel=xlabel, title=title) as ax:
        drawn = ax.barh(list(values), list(values.values()), color=COLOURS[0])
        ax.bar_label(drawn, fmt="%.2f", padding=3)
        ax.invert_yaxis()
        ax.margins(x=0.12)
        ax.grid(False)
    return ax


def bars_side_by_side(charts, *, xlabels, limit):
    """Draw several bar charts with the same rows on the same axis.

    Args:
        charts: {title: {name: value}}, with the same names in each.
        xlabels: what the values of each chart are.
        limit: where every axis ends.

    Returns:
        The array of axes.
    """
    rows = len(next(iter(charts.values())))
    with panels(1, len(charts), (4.5 * len(charts), 0.35 * rows + 1), sharey=True) as (axes,):
        for ax, (title, values), xlabel in zip(axes, charts.items(), xlabels):
            bars(values, xlabel=xlabel, title=title, ax=ax)
            ax.set_xlim(0, limit)
        axes[0].set_ylim(rows - 0.5, -0.5)  # the first row on top, for all
    return axes


def seeds(values, *, xlabel, title="", bars=False):
    """Draw a dot for each seed of each effect, a ring for the first run, and the mean of all.

    Args:
        values: a DataFrame of `effects_by_seed`.
        xlabel: what the values are.
        title: of the figure.
        bars: whether a bar from 0 shows each mean; a row whose values are equal has the bar
            alone, and a row with a single value a paler one.

    Returns:
        The axes. At the right of each row stands its mean, with the standard error.
    """
    rows, ring = len(values.columns), dict(markersize=12, fillstyle="none", color=COLOURS[0])
    with panel(size=(7, 0.7 * rows + 1.5), xlabel=xlabel, title=title) as ax:
        for y, effect in enumerate(values):
            found, error = values[effect], values[effect].sem()
            told = f"{found.mean():.1f}" + (f" ± {error:.1f}" if error > 0 else "")
            side = dict(xytext=(8, 0), textcoords="offset points", va="center")
            ax.annotate(told, (1, y), xycoords=("axes fraction", "data"), **side)
            if bars:
                alpha = 0.15 if found.count() == 1 else 0.35
                ax.barh(y, found.mean(), 0.7, color=COLOURS[5], alpha=alpha)
            if bars and not error > 0:
                continue
            ax.plot(found, [y + 0.15] * len(found), "o", color=COLOURS[0], label="one seed")
            ax.plot(found.iloc[:1], [y + 0.15], "o", **ring, label="this run")
            bar = dict(fmt="D", color=COLOURS[1], capsize=4, label="mean, standard error")
            ax.errorbar(found.mean(), y - 0.15, xerr=error, **bar)
        ax.axvline(0, **DOTTED)
        ax.set_yticks(range(rows), values.columns)
        ax.set_ylim(rows - 0.5, -0.5)
        named = dict(zip(*ax.get_legend_handles_labels()[::-1]))  # each name once
        below = dict(loc="upper left", bbox_to_anchor=(0, -0.5 / (0.7 * rows + 0.2)), ncols=3)
        if named:
            ax.legend(named.values(), named, **below)
    return ax


def spread(means, sds, rows, groups, *, published=None, xlabel, title=""):
    """Draw means with their standard deviations: a line per row, a marker and colour per group.

    Args:
        means: [N].
        sds: [N], NaN for one seed.
        rows: [N] names.
        groups: [N] names.
        published: [N] numbers drawn as crosses, NaN where there is none; or None.
        xlabel: what the means are.
        title: of the figure.

    Returns:
        The axes.
    """
    means, sds, rows, groups = (np.asarray(values) for values in (means, sds, rows, groups))
    printed = np.full(len(means), np.nan) if published is None else np.asarray(published, float)
    places = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    kinds = list(dict.fromkeys(groups))
    single = len(kinds) == 1
    size, ylim = (7, 0.28 * len(places) + 1.6), (len(places) - 0.4, -0.6)
    with panel(size=size, xlabel=xlabel, title=title, ylim=ylim) as ax:
        for i, (kind, one) in enumerate(looks(kinds).items()):
            here, colour = groups == kind, one["color"]
            shift = 0.5 * (i + 0.5) / len(kinds) - 0.25
            y = np.array([places[row] for row in rows[here]]) + shift
            sd = np.nan_to_num(sds[here].astype(float))
            bar = dict(xerr=sd, capsize=2) if sd.any() else {}
            label = "ours" if single else kind
            look = dict(fmt=one["marker"], markersize=5, color=colour)
            if i >= len(MARKERS):  # all are used
                look["markerfacecolor"] = "white"
            ax.errorbar(means[here], y, **bar, **look, label=label)
            if np.isfinite(printed[here]).any():
                label = "published" if single else f"{kind}, published"
                ax.plot(printed[here], y, "x", color="black" if single else colour, label=label)
        ax.set_yticks(range(len(places)), places)
        if not single or published is not None:
            ax.legend(**OUTSIDE)
    return ax
