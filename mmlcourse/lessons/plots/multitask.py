"""Figures of notebooks 07 to 11: several tasks in one encoder, and the answer module's steps."""

import numpy as np

from mmlcourse.lessons.plots.common import (
    DOTTED,
    OUTSIDE,
    error_bars,
    heat_map,
    line_and_band,
    looks,
    panel,
    panels,
)

__all__ = [
    "accuracy_by_step",
    "at_work",
    "forgetting",
    "learning_curve",
    "loss_and_pull",
    "pretraining",
    "reasoning",
    "sampling",
]


def reasoning(weights, tokens, probabilities, labels, *, values=False):
    """Draw the steps of a SANHead on one row: attention over the premise, and the answers.

    Args:
        weights: beta, [K, T], a row per step.
        tokens: the T tokens.
        probabilities: P_k, [K, C]. A line without markers shows their mean, the final answer.
        labels: the C names.
        values: whether every weight is printed in its cell.

    Returns:
        The two axes.
    """
    weights, probabilities = np.asarray(weights), np.asarray(probabilities)
    column = 0.7 if values else 0.34  # inches; a printed weight needs the wider one
    texts = np.char.mod("%.3f", weights) if values else None
    steps, width = range(len(weights)), min(column * len(tokens) + 1.4, 8)
    with panels(1, 2, (width + 3.4, 3.4), width_ratios=(width, 3.4)) as (axes,):
        left, right = axes
        look = dict(vmin=0, interpolation="nearest", texts=texts)
        heat_map(
            left,
            weights,
            steps,
            tokens,
            "" if values else "weight β",  # printed weights need no colour bar
            ticks=dict(rotation=60, ha="right", fontsize=8),
            **look,
        )
        left.set(xlabel="token of the premise", ylabel="step k")
        for answers, (label, one) in zip(probabilities.T, looks(labels).items()):
            right.plot(steps, answers, label=f"{label}: {answers.mean():.2f}", **one)
            right.axhline(answers.mean(), linewidth=1, alpha=0.5, **{**one, "marker": None})
        right.set(xlabel="step k", ylabel="probability", title="answers, and their mean")
        right.set(xticks=steps, ylim=(0, 1))
        right.legend(title="thin line: mean over the steps", **OUTSIDE)
    return axes


def forgetting(runs, *, ylabel, baselines, rows):
    """Draw the score of each task while the others are trained.

    There is a panel for each schedule, and below it a row per task with a stroke for each of its
    steps.

    Args:
        runs: {schedule: (history, order)}. history is a DataFrame with `step` and a column per
            task; order has the task of every step, from step 1. A score that was not measured
            is nan.
        ylabel: what the scores are.
        baselines: {task: accuracy of the majority class}, drawn as dotted lines.
        rows: {task: number of dev rows}. Bars show one standard error of an accuracy.

    Returns:
        The array of axes, [2, schedules].
    """
    size, shared = (3.3 * len(runs) + 1.2, 4), dict(sharex=True, sharey="row")
    with panels(2, len(runs), size, height_ratios=(4, 1), **shared) as axes:
        for (above, below), (schedule, (history, order)) in zip(axes.T, runs.items()):
            tasks = [column for column in history if column != "step"]
            order = np.asarray(order)
            for i, (task, one) in enumerate(looks(tasks).items()):
                measured, colour = history[["step", task]].dropna(), one["color"]
                above.plot(measured["step"], measured[task], **one, markersize=4, label=task)
                error_bars(above, measured["step"], measured[task], rows[task], colour)
                above.axhline(baselines[task], linestyle=":", linewidth=1, color=colour)
                at = np.flatnonzero(order == task) + 1
                below.eventplot(at, lineoffsets=i, linelengths=0.8, linewidths=1, colors=colour)
            below.set_yticks(range(len(tasks)), tasks)
            below.set(xlabel="step", ylim=(len(tasks) - 0.4, -0.6))
            below.grid(False)
            above.set_title(schedule.replace("_", " "))
        axes[0][0].set_ylabel(ylabel)
        axes[1][0].set_ylabel("trained")
        axes[0][-1].legend(**OUTSIDE)
    return axes


def at_work(rows, *, tasks):
    """Draw a run with everything: the loss per head, the active heads, and the tasks of the steps.

    Args:
        rows: lists of the step, the number of its task, the loss per head, and the active heads of
            the first tasks.
        tasks: the names of all tasks.

    Returns:
        The three axes.
    """
    size, shared = (7.4, 5), dict(sharex=True, height_ratios=(3, 3, 1))
    with panels(3, 1, size, **shared) as ((top,), (middle,), (below,)):
        steps, _, _, *heads = zip(*rows)
        for counts, one in zip(heads, looks(tasks).values()):
            middle.step(steps, counts, where="post", **{**one, "marker": None})
        for i, (task, one) in enumerate(looks(tasks).items()):
            own = [(step, loss) for step, number, loss, *_ in rows if number == i]
            top.plot(*zip(*own), one["marker"], color=one["color"], markersize=3, label=task)
            marks = dict(linelengths=0.8, linewidths=1, colors=one["color"])
            below.eventplot([step for step, _ in own], lineoffsets=i, **marks)
        top.set(ylabel="loss per head", ylim=(0, None))
        middle.set(ylabel="active heads", ylim=(0, None))
        below.set(xlabel="step", ylabel="trained", ylim=(len(tasks) - 0.4, -0.6))
        below.set_yticks(range(len(tasks)), tasks)
        below.grid(False)
        top.legend(**OUTSIDE)
    return top, middle, below


def sampling(sampler, *, steps):
    """Draw a TaskSampler: each task's probability by epoch, and the first draws of every epoch.

    Args:
        sampler: a TaskSampler.
        steps: the number of draws.

    Returns:
        The two axes.
    """
    from matplotlib.colors import ListedColormap

    tasks, epochs, end = list(sampler.sizes), range(1, sampler.epochs + 1), sampler.epochs + 0.5
    colours = [one["color"] for one in looks(tasks).values()]
    ticks = np.unique(np.linspace(1, sampler.epochs, 7).round())
    drawn = [[tasks.index(task) for task in sampler.order(epoch)[:steps]] for epoch in epochs]
    last = min(steps, sampler.steps_per_epoch) + 0.5
    with panels(1, 2, (9.5, 3.2), width_ratios=(2, 3)) as (axes,):
        left, right = axes
        for task, one in looks(tasks).items():
            shares = [sampler.probabilities(epoch)[task] for epoch in epochs]
            left.plot(epochs, shares, **one, markersize=4, label=task)
        left.set(xlabel="epoch", ylabel="probability", title=sampler.kind.replace("_", " "))
        left.set(xticks=ticks, xlim=(0.5, end), ylim=(0, None))
        right.imshow(
            drawn,
            cmap=ListedColormap(colours),
            vmin=0,
            vmax=max(len(tasks) - 1, 1),
            aspect="auto",
            interpolation="nearest",
            extent=(0.5, last, end, 0.5),
        )
        right.set(xlabel="step of the epoch", ylabel="epoch", yticks=ticks, title="tasks drawn")
        right.legend(*left.get_legend_handles_labels(), **OUTSIDE)
        right.grid(False)
    return axes


def accuracy_by_step(runs, *, lines, places, title=""):
    """Draw accuracy against training steps: the mean over seeds, and a band of one sd.

    Args:
        runs: {name: {step: accuracies of its seeds}}.
        lines: {name: accuracy} of horizontal lines.
        places: {name: place in the palette}; see `looks`.
        title: of the figure.

    Returns:
        The axes.
    """
    with panel(size=(6.6, 3.6), xlabel="training step", ylabel="dev accuracy", title=title) as ax:
        for name, one in looks(runs, places).items():
            mean, sd = _mean_and_sd(runs[name])
            line_and_band(ax, mean.index, mean, mean - sd, mean + sd, one, name)
        for name, y in lines.items():
            ax.axhline(y, **DOTTED, label=name)
        ax.legend(**OUTSIDE)
    return ax


def _mean_and_sd(curve):
    """Two Series over the sorted keys of {key: numbers}; a single number has the deviation 0."""
    import pandas as pd

    groups = pd.Series(curve).explode().astype(float).groupby(level=0)
    return groups.mean(), groups.std().fillna(0)


def learning_curve(scores, *, lines=None, title="", ax=None):
    """Draw accuracy against the number of labels, on a logarithmic axis, with standard deviations.

    Args:
        scores: {name: {labels: accuracies of its draws}}. A single draw has no error bar.
        lines: {name: accuracy} of horizontal lines, or None.
        title: of the figure.
        ax: matplotlib axes, or None for a new figure.

    Returns:
        The axes.
    """
    numbers = sorted({number for curve in scores.values() for number in curve})
    with panel(ax, size=(5.4, 3.6), xlabel="labels", ylabel="dev accuracy", title=title) as ax:
        for i, (name, one) in enumerate(looks(scores).items()):
            mean, sd = _mean_and_sd(scores[name])
            x = mean.index * 1.05 ** (i - (len(scores) - 1) / 2)  # no bar hides another
            ax.errorbar(
                x, mean, yerr=sd if sd.any() else None, **one, markersize=5, capsize=3, label=name
            )
        for (name, y), line in zip((lines or {}).items(), (":", (0, (1, 3)), (0, (6, 4)))):
            ax.axhline(y, color="black", linewidth=1, linestyle=line, label=name)
        ax.set_xscale("log")
        ax.set_xticks(numbers, [f"{number:,.0f}" for number in numbers])
        ax.minorticks_off()
        ax.legend()
    return ax


def loss_and_pull(margins, losses, pulls, *, lines, top=1.05, title=""):
    """Draw losses of one query, and how hard they pull, against the margin of the answer.

    Args:
        margins: m, [N].
        losses: {name: loss, [N]}.
        pulls: {name: -dL/dm, [N]}, with the same names.
        lines: {name: height} of horizontal lines in the left panel.
        top: the upper end of the right panel.
        title: of the left panel.

    Returns:
        The two axes.
    """
    with panels(1, 2, (10.5, 3.2)) as (axes,):
        left, right = axes
        for name, one in looks(losses).items():
            one = dict(**one, markevery=20, markersize=4, label=name)
            left.plot(margins, losses[name], **one)
            right.plot(margins, pulls[name], **one)
        for name, y in lines.items():
            left.axhline(y, **DOTTED, label=name)
        left.set(xlabel="margin m", ylabel="loss of a query", ylim=(-0.05, 4), title=title)
        right.set(xlabel="margin m", ylabel="pull, −dL/dm", ylim=(-0.03 * top, top))
        right.legend(*left.get_legend_handles_labels(), **OUTSIDE)
    return axes


def pretraining(curves, held_out):
    """Draw the loss of masked tokens against the steps, and the losses on held-out tokens.

    The line is the mean over a window of eight batches, its band one standard error of that mean.

    Args:
        curves: {name: DataFrame of `pretrain`}.
        held_out: {name: loss}, a star at the end for each curve, and a dotted line for others.

    Returns:
        The axes.
    """
    with panel(size=(7, 3.4), xlabel="training step", ylabel="loss of a masked token") as ax:
        for name, one in looks(curves).items():
            rolling, steps = curves[name]["words"].rolling(8, min_periods=2), curves[name]["step"]
            mean, error = rolling.mean(), rolling.std() / rolling.count() ** 0.5
            look = dict(one, markevery=12)
            line_and_band(ax, steps, mean, mean - error, mean + error, look, name)
            star = dict(color=one["color"], markersize=13, markeredgecolor="black", linestyle="")
            place = steps.iloc[-1] + 1
            ax.plot(place, held_out[name], "*", **star, label=f"{name}, held out")
        for name in [one for one in held_out if one not in curves]:
            ax.axhline(held_out[name], **DOTTED, label=f"{name}, held out")
        ax.legend(**OUTSIDE)
    return ax
