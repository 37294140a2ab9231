"""Figures of notebook 09: how much a result depends on the rows that are drawn."""

from mmlcourse.lessons.plots.common import DOTTED, integer_ticks, looks, panel, panels

__all__ = ["label_draws", "paired_draws"]


def label_draws(points, borders, *, title=""):
    """Draw a one-dimensional toy: the rows, and the borders of each draw.

    Draws with the same border have their strokes below each other.

    Args:
        points: {initialisation: [(number, label), ...]}, with two labels.
        borders: {initialisation: the border between the labels for each draw}.
        title: of the figure.

    Returns:
        The axes.
    """
    labels = sorted({label for rows in points.values() for _, label in rows})
    with panel(size=(6.5, 2.8), xlabel="output of the encoder", title=title) as ax:
        for i, (name, one) in enumerate(looks(points).items()):
            colour = one["color"]
            for label, mark, fill in zip(labels, "os", ("none", "full")):
                x = [number for number, said in points[name] if said == label]
                text = label if i == 0 else None
                ax.plot(x, [i] * len(x), mark, color=colour, fillstyle=fill, ms=8, label=text)
            own = list(borders[name])  # equal ones stand below each other
            depths = [i - 0.25 - 0.12 * own[:n].count(x) for n, x in enumerate(own)]
            ax.plot(own, depths, "|", color=colour, ms=7)
        ax.set_yticks(range(len(points)), points)
        ax.set_ylim(-0.6, len(points) - 0.3)
        integer_ticks(ax.xaxis)
        ax.legend(loc="upper center", ncols=2)
    return ax


def paired_draws(accuracies, first, second, *, names, majority, limits, title=""):
    """Draw two initialisations against each other, a point per draw, and the range of each one.

    Args:
        accuracies: a DataFrame with a row per draw and a column per initialisation.
        first: the column of the horizontal axis.
        second: the column of the vertical axis.
        names: all initialisations in the order that gives them their colours.
        majority: the accuracy of the majority class.
        limits: the smallest and largest accuracy of the axes.
        title: of the left panel.

    Returns:
        The two axes.
    """
    style = looks(names)
    with panels(1, 2, (9.5, 3.4)) as ((left, right),):
        left.plot(limits, limits, color="black", linewidth=1)
        colour = style[second]["color"]
        left.plot(accuracies[first], accuracies[second], "o", color=colour, alpha=0.6)
        left.set(
            xlabel=f"{first}, dev accuracy",
            ylabel=f"{second}, dev accuracy",
            xlim=limits,
            ylim=limits,
            title=title,
        )
        for place, name in enumerate(accuracies):
            line = dict(color=style[name]["color"])
            box = dict(boxprops=line, medianprops=line, whiskerprops=line, capprops=line)
            right.boxplot(accuracies[name], positions=[place], widths=0.5, whis=(0, 100), **box)
        right.set_xticks(range(accuracies.shape[1]), list(accuracies))
        right.axhline(majority, **DOTTED, label="majority class")
        right.set(ylabel="dev accuracy", ylim=limits, title="range and quartiles of all draws")
        right.legend()
    return left, right
