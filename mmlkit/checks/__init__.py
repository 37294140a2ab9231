"""Feedback on the exercises of the notebooks.

    compare         the comparator, the safe call and the printed verdict
    minbert         notebook 01
    finetuning      notebook 02
    multiverse      notebook 03
    pruning         notebook 04
    cross_dataset   notebook 05
    mtdnn           notebook 07
    adaptation      notebook 09
    sampling        notebook 10
    pals            notebook 11
    project         notebook 12

A check takes the student's function, prints one line and returns True or False. It names the
mistake where it is a known one, and it never raises because of a wrong answer. The arguments in
the docstring of a check are those of the student's function.

The rest of the library imports nothing from here.
"""

from mmlkit.checks.adaptation import (
    check_labels_needed,
    check_missed_label,
    check_paired_error,
    check_share,
)
from mmlkit.checks.cross_dataset import check_improvement, check_profile
from mmlkit.checks.finetuning import check_adamw_step, check_learning_rate
from mmlkit.checks.minbert import check_attention
from mmlkit.checks.mtdnn import check_answer_loss, check_premise_attention, check_ranking_loss
from mmlkit.checks.multiverse import check_collapse, check_multiverse_loss
from mmlkit.checks.pals import check_pal_parameters, check_projected_layer
from mmlkit.checks.project import check_overall, check_pull, check_sign_test
from mmlkit.checks.pruning import check_head_average, check_survivors
from mmlkit.checks.sampling import check_annealing, check_forgetting
