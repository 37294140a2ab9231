"""Figures in one style, and sliders that redraw them.

    common       the style: colours, markers and lines of series and methods
    basics       attention, errors, curves and bars, of notebooks 00 to 02
    multiverse   orthogonality, pruning and comparisons of methods, of notebooks 03 to 05
    multitask    several tasks in one encoder, of notebooks 07 to 11
    adaptation   the luck of the draw, of notebook 09
    claims       the closing figure of notebook 12
    widgets      sliders: a static figure everywhere, a moving one in a live front end

All notebooks use it. Numbers are computed elsewhere: a function here only draws what it is given.
"""

from mmlkit.plots.adaptation import label_draws, paired_draws
from mmlkit.plots.basics import attention, bars, confusion_matrix, learning_curves, spread
from mmlkit.plots.claims import axis_limit, forest
from mmlkit.plots.common import COLOURS, LINES, MARKERS, style
from mmlkit.plots.multitask import (
    forgetting,
    learning_curve,
    parameters_against_score,
    reasoning,
    sampling,
)
from mmlkit.plots.multiverse import (
    figure2,
    head_counts,
    head_similarity,
    improvements,
    profile,
    pruning_event,
)
from mmlkit.plots.widgets import sliders
