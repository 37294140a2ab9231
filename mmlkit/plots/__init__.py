"""Figures in one style, and sliders that redraw them.

    basics      the style, and the figures of notebooks 00 to 05 and 08
    multitask   the figures of notebooks 06 to 09
    claims      the closing figure of notebook 10
    widgets     sliders: a static figure everywhere, a moving one in a live front end

All notebooks use it. Numbers are computed elsewhere: a function here only draws what it is given.
"""

from mmlkit.plots.basics import (
    COLOURS,
    MARKERS,
    attention,
    bars,
    confusion_matrix,
    figure2,
    head_counts,
    head_similarity,
    improvements,
    learning_curves,
    profile,
    pruning_event,
    sampling,
    spread,
    style,
)
from mmlkit.plots.claims import axis_limit, forest
from mmlkit.plots.multitask import forgetting, learning_curve, parameters_against_score, reasoning
from mmlkit.plots.widgets import sliders

__all__ = ["COLOURS", "MARKERS", "style", "attention", "confusion_matrix", "learning_curves",
           "bars", "spread", "head_similarity", "pruning_event", "head_counts", "figure2",
           "improvements", "profile", "sampling", "forgetting", "learning_curve",
           "parameters_against_score", "reasoning", "axis_limit", "forest", "sliders"]
