"""Figures in one style: labelled axes, colours that everyone can tell apart, shapes that survive a grey print.

Every function draws into `ax` (a new figure when left out) and returns the axes.
"""

import contextlib

import numpy as np

__all__ = ["COLOURS", "MARKERS", "style", "attention", "confusion_matrix", "learning_curves", "bars"]

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
