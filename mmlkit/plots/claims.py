"""The closing figure of notebook 10, in the style of `plots`: every claim as a difference with its interval, on one axis."""

import math

from mmlkit.plots.basics import COLOURS, style
from mmlkit.studies.cross_dataset import outcome

__all__ = ["axis_limit", "forest"]

# What `outcome` says: the mark, whether it is filled, and its colour; shape and filling tell it in grey.
_MARKS = {"holds": ("o", True, COLOURS[0]), "does not hold": ("s", True, COLOURS[1]), "cannot be told": ("D", False, COLOURS[6])}


def forest(claims, *, limit=None, xlabel="difference, first minus second, in points", title="", ax=None):
    """One line for each claim: a mark at the difference, its interval, and a line at zero; groups have their name above them.

    claims: a list of (group, name, Comparison), or with a fourth, the claim's at_least. Circle, square or open diamond say what
    `outcome` says. limit: where the axis ends on either side; by default every difference is inside, every interval that tells
    something, and of the others what is not several times as far out. An interval that goes on beyond the axis ends in an arrow. At
    the right stand the numbers: difference, interval, pairs of runs.
    Raises ValueError when there is nothing to draw.
    """
    import matplotlib.pyplot as plt

    claims = [(*claim, 0.0)[:4] for claim in claims]
    if not claims:
        raise ValueError("there are no claims to draw; expected at least one (group, name, Comparison).")
    places, heads, y = [], {}, -1
    for group, *_ in claims:
        if group not in heads:
            y += 1.4 if heads else 1
            heads[group] = y
        y += 1
        places.append(y)
    limit = limit or axis_limit([comparison for _, _, comparison, _ in claims])
    with style():
        ax = plt.subplots(figsize=(9.5, 0.3 * (y + 1) + 1.3), layout="constrained")[1] if ax is None else ax
        ax.axvline(0, color="black", linewidth=1)
        for place, (_, _, comparison, at_least) in zip(places, claims):
            _line(ax, place, comparison, outcome(comparison, at_least=at_least), limit)
        ax.set_yticks([*heads.values(), *places], [*heads, *(f"{name}  ".replace("\n", "  \n") for _, name, *_ in claims)], fontsize=9)
        for label in ax.get_yticklabels()[:len(heads)]:
            label.set_fontweight("bold")
        ax.tick_params(axis="y", length=0)
        ax.set(xlabel=xlabel, xlim=(-limit, limit), ylim=(y + 0.6, -0.7))
        ax.set_title(title, pad=24)         # above the legend
        ax.grid(False, axis="y")
        told = {outcome(comparison, at_least=at_least) for _, _, comparison, at_least in claims}
        handles = [ax.plot([], [], mark, color=colour, fillstyle="full" if full else "none", label=word)[0]
                   for word, (mark, full, colour) in _MARKS.items() if word in told]
        ax.legend(handles=handles, fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
    return ax


def axis_limit(comparisons):
    """Where the axis ends: beyond every difference and every interval that tells something; of the others, up to four times as far out."""
    told = [one for one in comparisons if outcome(one) != "cannot be told"]
    least = max([abs(one.difference) for one in comparisons] + [max(abs(one.low), abs(one.high)) for one in told])
    ends = [abs(end) for one in comparisons for end in (one.low, one.high) if abs(end) <= (4 * least or math.inf) and math.isfinite(end)]
    return 1.08 * max([least, *ends]) or 1.0


def _line(ax, y, comparison, word, limit):
    """One claim: interval, arrows where it goes on, mark, and the numbers in words."""
    mark, full, colour = _MARKS[word]
    low, high = max(comparison.low, -limit), min(comparison.high, limit)
    if low < high:
        ax.plot([low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
    for end, outside, arrow in ((low, comparison.low < -limit, "<"), (high, comparison.high > limit, ">")):
        ax.plot([end], [y], arrow if outside else "|", color=colour, markersize=6, clip_on=False)
    ax.plot([comparison.difference], [y], mark, color=colour, markersize=6, fillstyle="full" if full else "none", markerfacecolor=None if full else "white")
    ends = "no interval" if math.isinf(comparison.low) else f"{comparison.low:+.1f} to {comparison.high:+.1f}"
    ax.annotate(f"{comparison.difference:+.1f}  ({ends}; {comparison.pairs})", (1, y), xycoords=("axes fraction", "data"), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=8, annotation_clip=False)
