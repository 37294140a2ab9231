"""Feedback on the exercises of the notebooks.

    compare         the comparator, the safe call and the printed verdict
    start           notebook 00
    minbert         notebook 01, and assignment 1
    finetuning      notebook 02
    multiverse      notebook 03
    pruning         notebook 04
    cross_dataset   notebook 05
    published       notebook 06
    mtdnn           notebook 07
    ranking         notebook 08
    adaptation      notebook 09
    sampling        notebook 10
    pals            notebook 11
    project         notebook 12

A check takes the student's function or class, prints one line and returns True or False. It names
the mistake where it is a known one, and it never raises because of a wrong answer. The arguments in
the docstring of a check are those of the student's function.

Notebooks and `mmlcourse.grading` import from here. Training and models do not belong here.
"""

# ruff: noqa: F403
from mmlcourse.lessons.checks.adaptation import *
from mmlcourse.lessons.checks.cross_dataset import *
from mmlcourse.lessons.checks.finetuning import *
from mmlcourse.lessons.checks.minbert import *
from mmlcourse.lessons.checks.mtdnn import *
from mmlcourse.lessons.checks.multiverse import *
from mmlcourse.lessons.checks.pals import *
from mmlcourse.lessons.checks.project import *
from mmlcourse.lessons.checks.pruning import *
from mmlcourse.lessons.checks.published import *
from mmlcourse.lessons.checks.ranking import *
from mmlcourse.lessons.checks.sampling import *
from mmlcourse.lessons.checks.start import *
