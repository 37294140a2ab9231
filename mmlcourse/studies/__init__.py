"""The papers' protocols and printed numbers, and the files that graders and servers expect.

    cross_dataset   evaluation on data sets that a model was not trained on (MML v2)
    comparisons     differences over the same seeds, with intervals
    published       every table of the five documents as data
    course_score    the score of the course project CS224N
    cs224n          the files of that project
    glue            GLUE's average, and the files of a submission
    dssm            the multi-task network of 2015, MT-DNN's forerunner
    staircases      recorded runs that prune heads, for Fig. 2 (MML v2)
    held_out        two halves of a dev split: one chooses the epoch, one is scored
    groups          intervals over groups of rows that are not independent
    methods         the six methods of the papers as heads
    pretraining     BERT's two pre-training objectives, and the loop that trains them
    lessons         what the lessons read from results/: effects and recorded runs

Notebooks 00 and 02 to 12 use it. Training of the other models does not belong here.
"""

# ruff: noqa: F403
from mmlcourse.studies import published
from mmlcourse.studies.comparisons import *
from mmlcourse.studies.course_score import *
from mmlcourse.studies.cross_dataset import *
from mmlcourse.studies.cs224n import (
    Problem,
    check_submission,
    prediction_file,
    write_course_files,
    write_predictions,
    write_submission,
)
from mmlcourse.studies.dssm import *
from mmlcourse.studies.glue import *
from mmlcourse.studies.groups import *
from mmlcourse.studies.held_out import *
from mmlcourse.studies.lessons import *
from mmlcourse.studies.methods import *
from mmlcourse.studies.pretraining import *
from mmlcourse.studies.staircases import *
