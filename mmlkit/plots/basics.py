"""Figures in one style: labelled axes, colours that everyone can tell apart, shapes that survive a grey print.

Every function draws into `ax` (a new figure when left out) and returns the axes.
"""

import contextlib

import numpy as np

__all__ = ["COLOURS", "MARKERS", "style", "attention", "confusion_matrix", "learning_curves", "bars", "spread",
           "head_similarity", "pruning_event", "head_counts", "figure2", "improvements", "profile", "sampling"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")      # Okabe and Ito (2008)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")


@contextlib.contextmanager
def style():
    """Inside: the project's look. Outside nothing changes."""
    import matplotlib.pyplot as plt

    with plt.rc_context({"figure.dpi": 96, "figure.figsize": (6, 3.6), "axes.spines.top": False, "axes.spines.right": False,
                         "axes.prop_cycle": plt.cycler(color=COLOURS), "axes.titlesize": 11, "axes.titlelocation": "left",
                         "axes.grid": True, "grid.alpha": 0.25, "font.size": 10, "legend.frameon": False, "image.cmap": "cividis"}):
        yield


def _axes(ax, **size):
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained", **size)[1] if ax is None else ax


def attention(weights, tokens, *, title="", ax=None):
    """Attention weights [Q,T] of one head as a picture: each row is a token that looks, each column one that is looked at."""
    with style():
        ax = _axes(ax, figsize=(0.45 * len(tokens) + 1.8, 0.4 * len(weights) + 1.4))
        image = ax.imshow(np.asarray(weights), vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right")
        ax.set_yticks(range(len(weights)), tokens[:len(weights)])
        ax.set(xlabel="looked at", ylabel="looking", title=title)
        ax.grid(False)
        ax.figure.colorbar(image, ax=ax, label="attention weight")
    return ax


def confusion_matrix(labels, predictions, names, *, title="", ax=None):
    """Counts of true label (rows) against predicted label (columns); colour is the share of the row."""
    counts = np.zeros((len(names), len(names)), dtype=int)
    np.add.at(counts, (np.asarray(labels), np.asarray(predictions)), 1)
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    with style():
        ax = _axes(ax, figsize=(0.8 * len(names) + 2.4, 0.62 * len(names) + 1.6))
        image = ax.imshow(shares, vmin=0, vmax=1)
        for i, j in np.ndindex(*counts.shape):
            ax.text(j, i, counts[i, j], ha="center", va="center", color="black" if shares[i, j] > 0.55 else "white")
        ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
        ax.set_yticks(range(len(names)), names)
        ax.set(xlabel="predicted", ylabel="true", title=title)
        ax.grid(False)
        ax.figure.colorbar(image, ax=ax, label="share of the true label")
    return ax


def learning_curves(histories, metric="accuracy", *, title="", ax=None):
    """A dev metric against epochs, one line for each of {name: history}; the best epoch is ringed."""
    from matplotlib.ticker import MaxNLocator

    with style():
        ax = _axes(ax)
        for i, (name, history) in enumerate(histories.items()):
            colour = COLOURS[i % len(COLOURS)]
            ax.plot(history["epoch"], history[metric], LINES[i % len(LINES)], marker=MARKERS[i % len(MARKERS)], color=colour, label=name)
            best = history[history["best"]]
            ax.plot(best["epoch"], best[metric], "o", markersize=13, fillstyle="none", color=colour)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="epoch", ylabel=f"dev {metric.replace('_', ' ')}", title=title)
        ax.legend()
    return ax


def bars(values, *, xlabel, title="", ax=None):
    """Horizontal bars for {name: value}, the value written at each end."""
    with style():
        ax = _axes(ax, figsize=(6, 0.45 * len(values) + 1.2))
        drawn = ax.barh(list(values), list(values.values()), color=COLOURS[0])
        ax.bar_label(drawn, fmt="%.2f", padding=3)
        ax.invert_yaxis()
        ax.margins(x=0.12)
        ax.set(xlabel=xlabel, title=title)
        ax.grid(False)
    return ax


def spread(means, sds, rows, groups, *, published=None, xlabel, title="", ax=None):
    """Means with their standard deviations as horizontal bars of error, one line for each row, a mark and colour for each group.

    means, sds: [N], sd may be NaN (one seed). rows, groups: [N] names. published: [N], drawn as crosses, NaN where there is none.
    """
    means, sds, rows, groups = (np.asarray(values) for values in (means, sds, rows, groups))
    places = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    kinds = list(dict.fromkeys(groups))
    with style():
        ax = _axes(ax, figsize=(7, 0.28 * len(places) + 1.6))
        for i, kind in enumerate(kinds):
            here = groups == kind
            y = np.array([places[row] for row in rows[here]]) + (0.5 * (i + 0.5) / len(kinds) - 0.25)
            ax.errorbar(means[here], y, xerr=np.nan_to_num(sds[here].astype(float)), fmt=MARKERS[i % len(MARKERS)], markersize=5, capsize=2,
                        color=COLOURS[i % len(COLOURS)], label=kind if len(kinds) > 1 else "ours")
            if published is not None and np.isfinite(np.asarray(published, dtype=float)[here]).any():
                ax.plot(np.asarray(published, dtype=float)[here], y, "x", color=COLOURS[i % len(COLOURS)], label=f"{kind}, published" if len(kinds) > 1 else "published")
        ax.set_yticks(range(len(places)), places)
        ax.set(xlabel=xlabel, title=title, ylim=(len(places) - 0.4, -0.6))
        if len(kinds) > 1 or published is not None:
            ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def head_similarity(weight, names=None, *, similarity="cosine", limit=1.0, title="", axes=None):
    """The mutual orthogonality tables of MML v2, Fig. 1: for every class, |similarity| of each pair of heads r < s.

    weight: [A,C,D], the active heads' weights. names: of the classes. similarity: "cosine" or "dot". limit: where the colour
    scale ends. axes: one per class. Returns the array of axes.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    rows = weight.detach().float().cpu().transpose(0, 1)                                        # [C,A,D]
    if similarity == "cosine":
        rows = rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    tables = (rows @ rows.transpose(1, 2)).abs().triu(diagonal=1).numpy()                       # [C,A,A], r < s only
    names = names or [f"class {k}" for k in range(len(tables))]
    with style():
        if axes is None:
            axes = plt.subplots(1, len(tables), squeeze=False, layout="constrained", figsize=(2.9 * len(tables) + 0.8, 3))[1][0]
        for ax, table, name in zip(axes, tables, names):
            below = np.tri(len(table), dtype=bool)
            image = ax.imshow(np.ma.masked_array(table, below), vmin=0, vmax=limit, interpolation="nearest")
            mean = table[~below].mean() if len(table) > 1 else 0.0
            ax.set(xlabel="head s", ylabel="head r", title=f"{title}{name}: mean {mean:.3f}")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
            ax.grid(False)
        axes[0].figure.colorbar(image, ax=list(axes), label=f"|{similarity}|")
    return axes


def pruning_event(event, *, title=None, ax=None):
    """One clustering: each active head's average loss, survivors as circles, eliminated heads as crosses, centroids as lines.

    event: a PruningEvent, or a dict of its fields.
    """
    from matplotlib.ticker import MaxNLocator

    event = event if isinstance(event, dict) else vars(event)
    kept = np.isin(event["head_ids"], event["kept"])
    place, averages = np.arange(len(kept)), np.asarray(event["averages"])
    with style():
        ax = _axes(ax)
        ax.plot(place[kept], averages[kept], "o", markersize=4, color=COLOURS[0], label=f"kept: {kept.sum()}")
        if not kept.all():
            ax.plot(place[~kept], averages[~kept], "x", markersize=5, color=COLOURS[1], label=f"dropped: {(~kept).sum()}")
        for i, centroid in enumerate(event["centroids"]):
            ax.axhline(centroid, linestyle=":", linewidth=1, color="black", label="centroids" if i == 0 else None)
        ax.set(xlabel="index among active heads", ylabel="average loss of the head",
               title=f"step {event['step']:,}: {len(event['centroids'])} cluster{'s' if len(event['centroids']) > 1 else ''}" if title is None else title)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        span = max(np.ptp(averages), 1e-3 * np.abs(averages).max(), 1e-9)
        ax.set_ylim(averages.min() - 0.06 * span, averages.max() + 0.22 * span)       # room for the legend
        ax.legend(fontsize=8, loc="upper right", ncols=3)
    return ax


def head_counts(runs, *, last_step=None, title="", ax=None):
    """Active heads against training steps, one staircase for each of {name: (num_heads, events)}; a dot marks every check.

    events: PruningEvents or dicts of their fields, as in `pruner.events`. last_step: where the lines end.
    """
    with style():
        ax = _axes(ax)
        for i, (name, (num_heads, events)) in enumerate(runs.items()):
            events = [event if isinstance(event, dict) else vars(event) for event in events]
            steps = [0, *(event["step"] for event in events)]
            counts = [num_heads, *(len(event["kept"]) for event in events)]
            end = max(last_step or 0, steps[-1])
            colour = COLOURS[i % len(COLOURS)]
            ax.step([*steps, end], [*counts, counts[-1]], where="post", linestyle=LINES[i % len(LINES)], color=colour, label=f"{name}: {counts[-1]}")
            ax.plot(steps[1:], counts[1:], MARKERS[i % len(MARKERS)], markersize=4, color=colour)
        ax.set(xlabel="training step", ylabel="active heads", title=title)
        ax.set_ylim(0, 1.08 * max(num_heads for num_heads, _ in runs.values()))
        ax.legend()
    return ax


def figure2(events, num_heads, *, last_step=None, final=None):
    """MML v2, Fig. 2, from events alone: two clusterings, the number of active heads over time, and the heads that are left.

    events: of one run. Shown are the first and the last clustering that dropped heads. final: averages [A] of the heads at the
    end; by default those of the last event's survivors. Returns the figure. Raises ValueError when no event dropped a head.
    """
    import matplotlib.pyplot as plt

    events = [event if isinstance(event, dict) else vars(event) for event in events]
    pruned = [event for event in events if event["dropped"]]
    if not pruned:
        raise ValueError(f"none of the {len(events)} events dropped a head, so there is nothing to draw; look at pruning_event(events[0]).")
    last = events[-1]
    left = dict(zip(last["head_ids"], last["averages"]))
    final = [left[head] for head in last["kept"]] if final is None else final
    with style():
        fig, ((a, b), (c, d)) = plt.subplots(2, 2, figsize=(9.5, 6), layout="constrained")
        pruning_event(pruned[0], ax=a, title=f"(a) first pruning, step {pruned[0]['step']:,}")
        pruning_event(pruned[-1], ax=b, title=f"(b) last pruning, step {pruned[-1]['step']:,}")
        head_counts({"heads": (num_heads, events)}, last_step=last_step, title="(c) active heads", ax=c)
        d.plot(range(len(final)), final, "o", markersize=4, color=COLOURS[0])
        d.set(xlabel="index among active heads", ylabel="average loss of the head", title=f"(d) what is left: {len(final)} head{'s' if len(final) > 1 else ''}")
    return fig


def improvements(percent, *, limit=None, marked=None, digits=1, label="improvement, %", title="", ax=None):
    """A table of improvements as a picture: orange below zero, white at zero, blue above, the number in every cell.

    percent: DataFrame, NaN where there is no number (a diagonal). limit: where the colours end on either side, else at the largest number;
    pictures to be compared need the same. marked: DataFrame of booleans, cells with a frame. label: of the colour bar; "" leaves it out.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    values = percent.to_numpy(dtype=float)
    limit = limit or max(np.nanmax(np.abs(values), initial=0), 1e-9)
    with style():
        ax = _axes(ax, figsize=(0.72 * values.shape[1] + 2.6, 0.34 * len(values) + 1.2))
        colours = LinearSegmentedColormap.from_list("improvement", [COLOURS[1], "white", COLOURS[0]], N=21).with_extremes(bad="0.88")
        image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=-limit, vmax=limit, aspect="auto")
        for i, j in zip(*np.nonzero(np.isfinite(values))):
            dark = np.dot(image.to_rgba(values[i, j])[:3], (0.299, 0.587, 0.114)) < 0.45
            ax.text(j, i, f"{values[i, j]:+.{digits}f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
        for i, j in zip(*np.nonzero(np.zeros_like(values) if marked is None else marked.to_numpy())):
            ax.add_patch(Rectangle((j - 0.47, i - 0.46), 0.94, 0.92, fill=False, linewidth=1.6))
        ax.set_xticks(range(values.shape[1]), percent.columns)
        ax.set_yticks(range(len(values)), percent.index)
        ax.set_title(title)
        ax.grid(False)
        if label:
            ax.figure.colorbar(image, ax=ax, label=label)
    return ax


def profile(shares, *, xlabel="factor τ on the lowest error", title="", ax=None):
    """A performance profile as steps (MML v2, Fig. 3). shares: DataFrame of `protocol.performance_profile`, taus x methods."""
    with style():
        ax = _axes(ax, figsize=(6.4, 3.8))
        for i, name in enumerate(shares):
            ax.step(shares.index, shares[name], LINES[i % len(LINES)], where="post", marker=MARKERS[i % len(MARKERS)], markersize=5,
                    markevery=(i, max(1, len(shares) // 8)), color=COLOURS[i % len(COLOURS)], label=name)
        ax.set(xlabel=xlabel, ylabel="share of experiments", ylim=(0, 1.03), title=title)
        ax.legend(fontsize=8, loc="lower right")
    return ax


def sampling(sampler, *, steps=120, axes=None):
    """A TaskSampler in two panels: each task's probability against the epoch, and the first `steps` draws, a row for every epoch."""
    from matplotlib.colors import ListedColormap

    tasks, epochs, end = list(sampler.sizes), range(1, sampler.epochs + 1), sampler.epochs + 0.5
    colours = [(*COLOURS, "#999999")[i % 8] for i in range(len(tasks))]       # GLUE has eight tasks
    ticks, last = np.unique(np.linspace(1, sampler.epochs, 7).round()), min(steps, sampler.steps_per_epoch) + 0.5
    with style():
        axes = _axes(axes, ncols=2, figsize=(9.5, 3.2), width_ratios=(2, 3))
        for i, task in enumerate(tasks):
            axes[0].plot(epochs, [sampler.probabilities(epoch)[task] for epoch in epochs], LINES[i % len(LINES)],
                         marker=MARKERS[i % len(MARKERS)], markersize=4, color=colours[i], label=task)
        axes[1].imshow([[tasks.index(task) for task in sampler.order(epoch)[:steps]] for epoch in epochs], cmap=ListedColormap(colours),
                       vmin=0, vmax=max(len(tasks) - 1, 1), aspect="auto", interpolation="nearest", extent=(0.5, last, end, 0.5))
        axes[0].set(xlabel="epoch", ylabel="probability", xticks=ticks, xlim=(0.5, end), ylim=(0, None), title=sampler.kind.replace("_", " "))
        axes[1].set(xlabel="step of the epoch", ylabel="epoch", yticks=ticks, title="tasks drawn")
        axes[1].legend(*axes[0].get_legend_handles_labels(), fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        axes[1].grid(False)
    return axes
