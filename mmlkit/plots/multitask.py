"""Figures of notebooks 06 to 09, in the style of `plots`: the answer module's steps, and one encoder with several tasks.

Every function draws into the axes it is given, or into a new figure, and returns them.
"""

import numpy as np

from mmlkit.plots.basics import COLOURS, LINES, MARKERS, style

__all__ = ["forgetting", "learning_curve", "parameters_against_score", "reasoning"]


def reasoning(weights, tokens, probabilities, labels, *, title="", axes=None):
    """The steps of a SANHead on one row, in two panels: its attention over the premise, and its answers.

    weights: beta [K,T], a row per step. tokens: the T tokens' names. probabilities: P_k [K,C]. labels: the C names.
    axes: the two panels. Their mean, the answer, stands as a line without marks in the right one. Returns the axes.
    Raises ValueError when the numbers of steps, tokens or labels do not go together.
    """
    import matplotlib.pyplot as plt

    weights, probabilities = np.asarray(weights), np.asarray(probabilities)
    if weights.shape != (len(probabilities), len(tokens)) or probabilities.shape[1:] != (len(labels),):
        raise ValueError(f"weights have shape {list(weights.shape)} and probabilities {list(probabilities.shape)}; expected [K, {len(tokens)}] for these "
                         f"tokens and [K, {len(labels)}] for these labels.")
    steps = range(len(weights))
    with style():
        if axes is None:
            width = min(0.34 * len(tokens) + 1.4, 8)
            axes = plt.subplots(1, 2, figsize=(width + 3.4, 3.4), width_ratios=(width, 3.4), layout="constrained")[1]
        left, right = axes
        image = left.imshow(weights, vmin=0, vmax=max(weights.max(), 1e-9), aspect="auto", interpolation="nearest")
        left.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right", fontsize=8)
        left.set_yticks(steps)
        left.set(xlabel="token of the premise", ylabel="step k", title=title)
        left.grid(False)
        left.figure.colorbar(image, ax=left, label="weight β")
        for c, label in enumerate(labels):
            look = dict(color=COLOURS[c % len(COLOURS)], linestyle=LINES[c % len(LINES)])
            right.plot(steps, probabilities[:, c], marker=MARKERS[c % len(MARKERS)], label=f"{label}: {probabilities[:, c].mean():.2f}", **look)
            right.axhline(probabilities[:, c].mean(), linewidth=1, alpha=0.5, **look)
        right.set(xlabel="step k", ylabel="probability", xticks=steps, ylim=(0, 1), title="answers, and their mean")
        right.legend(fontsize=8)
    return axes


def forgetting(runs, *, ylabel="dev accuracy, or Pearson's r", axes=None):
    """Each task's score while the others train: a panel for each schedule, and beneath it a row per task with a stroke for each of its steps.

    runs: {schedule: (history, order)}; history: a DataFrame with `step` and a column per task; order: the task of every step, from step 1.
    axes: array [2, schedules]. Returns it.
    """
    import matplotlib.pyplot as plt

    with style():
        if axes is None:
            axes = plt.subplots(2, len(runs), figsize=(3.3 * len(runs) + 1.2, 4), height_ratios=(4, 1), sharex=True, sharey="row",
                                squeeze=False, layout="constrained")[1]
        for (above, below), (schedule, (history, order)) in zip(np.asarray(axes).T, runs.items()):
            tasks = [column for column in history if column != "step"]
            for i, task in enumerate(tasks):
                above.plot(history["step"], history[task], LINES[i % len(LINES)], marker=MARKERS[i % len(MARKERS)], markersize=4,
                           color=COLOURS[i % len(COLOURS)], label=task)
            steps = [[step for step, name in enumerate(order, start=1) if name == task] for task in tasks]
            below.eventplot(steps, lineoffsets=list(range(len(tasks))), linelengths=0.8, linewidths=1, colors=list(COLOURS[:len(tasks)]))
            below.set_yticks(range(len(tasks)), tasks)
            below.set(xlabel="step", ylim=(len(tasks) - 0.4, -0.6))
            below.grid(False)
            above.set_title(schedule.replace("_", " "))
        axes[0][0].set_ylabel(ylabel)
        axes[1][0].set_ylabel("trained")
        axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
    return axes


def parameters_against_score(parameters, scores, errors=None, *, xlabel="parameters of one task's own", ylabel="overall score", title="", ax=None):
    """A mark for each system: how many parameters belong to one task alone (logarithmic axis), and what it scores.

    parameters, scores: {system: number}. errors: {system: one standard error}, where it is known.
    """
    import matplotlib.pyplot as plt

    with style():
        ax = plt.subplots(figsize=(6.6, 3.8), layout="constrained")[1] if ax is None else ax
        for i, (name, score) in enumerate(scores.items()):
            ax.errorbar(parameters[name], score, yerr=(errors or {}).get(name), fmt=MARKERS[i % len(MARKERS)], capsize=3, markersize=7,
                        color=COLOURS[i % len(COLOURS)], markerfacecolor="white" if i >= len(MARKERS) else None, label=name)
        ax.set_xscale("log")
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
        ax.margins(x=0.12)
        if len(scores):
            ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    return ax


def learning_curve(scores, *, lines=None, xlabel="share of the labels", ylabel="dev accuracy", title="", ax=None):
    """Accuracy against the share of labels (logarithmic axis): a line through the means of each start, with one standard deviation over draws.

    scores: {start: {share: accuracies of its draws}}; where there is one draw, there is no bar. lines: {name: accuracy}, horizontal ones.
    Raises ValueError for a share that is not above 0, or one without any draw.
    """
    import matplotlib.pyplot as plt

    shares = sorted({share for curve in scores.values() for share in curve})
    if not shares or shares[0] <= 0 or not all(len(draws) for curve in scores.values() for draws in curve.values()):
        raise ValueError(f"scores has the shares {shares}; expected some, all above 0, with at least one accuracy for each of {list(scores)}.")
    with style():
        ax = plt.subplots(figsize=(5.4, 3.6), layout="constrained")[1] if ax is None else ax
        for i, (name, curve) in enumerate(scores.items()):
            x = np.array(sorted(curve)) * 1.05 ** (i - (len(scores) - 1) / 2)       # side by side, so that no bar hides another
            draws = [np.asarray(curve[share], dtype=float) for share in sorted(curve)]
            sds = [one.std(ddof=1) if len(one) > 1 else 0 for one in draws]
            ax.errorbar(x, [one.mean() for one in draws], yerr=sds, fmt=LINES[i % len(LINES)] + MARKERS[i % len(MARKERS)], markersize=5, capsize=3,
                        color=COLOURS[i % len(COLOURS)], label=name)
        for (name, height), line in zip((lines or {}).items(), (":", (0, (1, 3)), (0, (6, 4)))):
            ax.axhline(height, color="black", linewidth=1, linestyle=line, label=name)
        ax.set_xscale("log")
        ax.set_xticks(shares, [f"{100 * share:.3g} %" for share in shares])
        ax.minorticks_off()
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
        ax.legend(fontsize=8)
    return ax
