"""Figures in one style, and sliders that redraw them.

    common       the style: colours, markers and lines of series and methods
    basics       attention, errors, curves and bars, of notebooks 00 to 02
    encoder      vectors, curves and tables of heads, of notebook 01
    multiverse   orthogonality, pruning and comparisons of methods, of notebooks 03 to 06
    multitask    several tasks in one encoder, of notebooks 07 to 11
    adaptation   the luck of the draw, of notebook 09
    claims       the closing figure of notebook 12
    widgets      sliders and text boxes, with a static result where there is no live front end

All notebooks use it. Numbers are computed elsewhere: a function here only draws what it is given.
"""

from mmlcourse.lessons.plots.adaptation import label_draws, paired_draws
from mmlcourse.lessons.plots.basics import (
    attention,
    bars,
    bars_side_by_side,
    confusion_matrix,
    learning_curves,
    spread,
)
from mmlcourse.lessons.plots.claims import axis_limit, forest
from mmlcourse.lessons.plots.common import COLOURS, LINES, MARKERS, style
from mmlcourse.lessons.plots.encoder import (
    bands,
    function_and_error,
    head_tables,
    moved_vectors,
    similarities,
)
from mmlcourse.lessons.plots.multitask import (
    accuracy_by_step,
    forgetting,
    learning_curve,
    loss_and_pull,
    parameters_against_score,
    pretraining,
    reasoning,
    sampling,
)
from mmlcourse.lessons.plots.multiverse import (
    drift,
    head_counts,
    head_paths,
    head_similarity,
    improvement_grid,
    improvement_panels,
    improvements,
    profile,
    pruning_event,
    prunings,
    singular_values,
    staircases,
    trade_off,
)
from mmlcourse.lessons.plots.widgets import sliders, text_boxes
