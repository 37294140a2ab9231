"""The closing figure of notebook 12: every claim as a difference with its interval, on one axis."""

import math

from mmlcourse.lessons.plots.common import COLOURS, panel
from mmlcourse.studies.comparisons import has_interval, outcome
from mmlcourse.text import signed, signed_interval

__all__ = ["axis_limit", "forest"]

# What `outcome` says: marker, filling and colour. Marker and filling show it in grey too.
_MARKS = {
    "better": ("o", "full", COLOURS[0]),
    "worse": ("s", "full", COLOURS[1]),
    "no difference of interest": ("D", "full", COLOURS[2]),
    "undecided": ("D", "none", COLOURS[6]),
}


def forest(claims, *, limit=None, xlabel="difference, first minus second, in points", title=""):
    """Draw a line for each claim, with a marker at the difference and its interval.

    Claims stand below the name of their group. Circle, square, full and open diamond show what
    `outcome` says. An interval that goes on beyond the axis ends in an arrow, and a difference
    beyond it is one. With too few pairs for its level, a difference has no interval
    (`has_interval`). The numbers at the right are difference, interval and pairs of runs.

    Args:
        claims: a list of (group, name, Comparison), or (group, name, Comparison, of_interest).
        limit: where the axis ends on either side; by default `axis_limit`.
        xlabel: what the differences are.
        title: of the figure.

    Returns:
        The axes.
    """
    claims = [(*claim, 0.0)[:4] for claim in claims]
    groups = list(dict.fromkeys(group for group, *_ in claims))
    claims.sort(key=lambda claim: groups.index(claim[0]))
    places, heads, y = [], {}, -1
    for group, name, *_ in claims:
        if group not in heads:
            y += 1.4 if heads else 1
            heads[group] = y
        half = 0.2 * name.count("\n")  # above and below a name of several lines
        places.append(y + 1 + half)
        y += 1 + 2 * half
    words = [outcome(comparison, of_interest=least) for _, _, comparison, least in claims]
    limit = limit or axis_limit([comparison for _, _, comparison, _ in claims])
    with panel(
        size=(9.5, 0.3 * (y + 1) + 1.3), xlabel=xlabel, xlim=(-limit, limit), ylim=(y + 0.6, -0.7)
    ) as ax:
        ax.axvline(0, color="black", linewidth=1)
        for place, (_, _, comparison, _), word in zip(places, claims, words):
            _draw_claim(ax, place, comparison, word, limit)
        names = [f"{name}  ".replace("\n", "  \n") for _, name, *_ in claims]
        ax.set_yticks([*heads.values(), *places], [*heads, *names], fontsize=9)
        for label in ax.get_yticklabels()[: len(heads)]:
            label.set_fontweight("bold")
        ax.tick_params(axis="y", length=0)
        ax.set_title(title, pad=24)  # above the legend
        ax.grid(False, axis="y")
        handles = [
            ax.plot([], [], marker, color=colour, fillstyle=filling, label=word)[0]
            for word, (marker, filling, colour) in _MARKS.items()
            if word in words
        ]
        place = dict(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
        ax.legend(handles=handles, ncols=4, **place)
    return ax


def axis_limit(comparisons):
    """Return where the axis of `forest` ends on either side.

    It includes every difference that has an interval (where there is none: every difference), and
    every interval with a definite outcome. Other intervals are included up to four times as far
    out. A single pair of runs may be far away, and would hide all intervals.

    Args:
        comparisons: a list of Comparison.

    Returns:
        The limit, a positive number.
    """
    told = [one for one in comparisons if outcome(one) != "undecided"]
    known = [one for one in comparisons if has_interval(one)]
    inner = [one.difference for one in known or comparisons]
    least = max(map(abs, inner + [end for one in told for end in one[1:3]]))
    ends = [abs(end) for one in known for end in one[1:3]]
    return 1.08 * max(end for end in [least, *ends] if end <= (4 * least or math.inf)) or 1.0


def _draw_claim(ax, y, comparison, word, limit):
    marker, filling, colour = _MARKS[word]
    difference, low, high, _, pairs = comparison
    told = has_interval(comparison)
    inside = [max(low, -limit), min(high, limit)]
    ends = zip(inside, (low < -limit, high > limit), "<>") if told else ()
    if told and inside[0] < inside[1]:
        ax.plot(inside, [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
    for end, goes_on, arrow in ends:
        ax.plot([end], [y], arrow if goes_on else "|", color=colour, markersize=6, clip_on=False)
    place = min(max(difference, -limit), limit)
    marker = marker if place == difference else "<" if difference < 0 else ">"
    ax.plot([place], [y], marker, color=colour, markersize=6, fillstyle=filling, clip_on=False)
    interval = signed_interval(low, high) if told else "no interval"
    ax.annotate(
        f"{signed(difference)}  ({interval}; {pairs})",
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        annotation_clip=False,
    )
