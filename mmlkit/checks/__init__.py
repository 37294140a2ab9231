"""Feedback on the notebooks' exercises: whether an answer is right and, where possible, which mistake was made.

    multiverse      notebooks 01 to 05
    mtdnn           notebook 06
    adaptation      notebook 07
    several_tasks   notebooks 08 and 09
    project         notebook 10

A check prints one line and returns True or False; it never raises because of a wrong answer. The library itself
imports nothing from here.
"""

from mmlkit.checks.adaptation import check_labels_needed, check_missed_label, check_share
from mmlkit.checks.mtdnn import check_answer_loss, check_premise_attention, check_ranking_loss
from mmlkit.checks.multiverse import (
    check_adamw_step,
    check_attention,
    check_collapse,
    check_head_average,
    check_improvement,
    check_learning_rate,
    check_multiverse_loss,
    check_profile,
    check_survivors,
)
from mmlkit.checks.project import check_overall, check_pull, check_sign_test
from mmlkit.checks.several_tasks import check_annealing, check_forgetting, check_pal_parameters, check_projected_layer

__all__ = ["check_attention", "check_adamw_step", "check_learning_rate", "check_multiverse_loss",
           "check_collapse", "check_head_average", "check_survivors", "check_improvement",
           "check_profile", "check_premise_attention", "check_answer_loss", "check_ranking_loss",
           "check_share", "check_missed_label", "check_labels_needed", "check_annealing",
           "check_forgetting", "check_pal_parameters", "check_projected_layer", "check_overall",
           "check_pull", "check_sign_test"]
