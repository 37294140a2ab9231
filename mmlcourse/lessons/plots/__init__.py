"""Figures in one style, and sliders that redraw them.

    common       the style: colours, markers and lines of series and methods
    basics       attention, errors, curves and bars, of notebooks 00 to 02
    encoder      vectors, curves and tables of heads, of notebook 01
    multiverse   many heads: orthogonality and pruning, of notebooks 03 and 04
    comparisons  tables of improvements and performance profiles, of notebooks 05 and 06
    multitask    several tasks in one encoder, of notebooks 07 to 11
    adaptation   the luck of the draw, of notebook 09
    claims       the closing figure of notebook 12
    widgets      sliders and text boxes, with a static result where there is no live front end

All notebooks use it. Numbers are computed elsewhere: a function here only draws what it is given.
"""

# ruff: noqa: F403
from mmlcourse.lessons.plots.adaptation import *
from mmlcourse.lessons.plots.basics import *
from mmlcourse.lessons.plots.claims import *
from mmlcourse.lessons.plots.common import COLOURS, LINES, MARKERS, OUTSIDE, style
from mmlcourse.lessons.plots.comparisons import *
from mmlcourse.lessons.plots.encoder import *
from mmlcourse.lessons.plots.multitask import *
from mmlcourse.lessons.plots.multiverse import *
from mmlcourse.lessons.plots.widgets import *
