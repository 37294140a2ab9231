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

Only `mmlcourse.grading` imports from here. Training and models do not belong here.
"""

from mmlcourse.lessons.checks.adaptation import (
    check_error_of_draws,
    check_labels_needed,
    check_missed_label,
    check_share,
)
from mmlcourse.lessons.checks.cross_dataset import (
    check_group_error,
    check_improvement,
    check_price,
    check_two_way,
)
from mmlcourse.lessons.checks.finetuning import (
    check_adamw_step,
    check_first_step,
    check_learning_rate,
    check_paired_error,
)
from mmlcourse.lessons.checks.minbert import (
    check_add_norm,
    check_attention,
    check_layer,
    check_order_free,
    check_self_attention,
)
from mmlcourse.lessons.checks.mtdnn import (
    check_attention_moved,
    check_kept_answers,
    check_paired_difference,
    check_san_parameters,
)
from mmlcourse.lessons.checks.multiverse import (
    check_collapse,
    check_effective_rank,
    check_free_directions,
    check_mean_cosine,
)
from mmlcourse.lessons.checks.pals import (
    check_constant_answers,
    check_pal_parameters,
    check_projected_layer,
    check_zero_start,
)
from mmlcourse.lessons.checks.project import check_overall, check_pull, check_sign_test
from mmlcourse.lessons.checks.pruning import (
    check_bandwidth,
    check_head_average,
    check_staircase,
    check_survivors,
)
from mmlcourse.lessons.checks.published import check_leave_one_out, check_profile, check_range
from mmlcourse.lessons.checks.ranking import (
    check_loss_pull,
    check_masked_words,
    check_ranking_floor,
    check_reciprocal_rank,
)
from mmlcourse.lessons.checks.sampling import check_exponent, check_forgetting, check_passes
from mmlcourse.lessons.checks.start import check_majority, check_mean_pooling, check_sign_errors
