"""The papers' protocols and printed numbers: what is computed from trained models, and what was published.

    cross_dataset   evaluation on data sets that a model was not trained on (MML v2)
    published       every table of the five documents as data
    cs224n          the course project's files and its overall score
    dssm            the multi-task network of 2015, MT-DNN's forerunner

Notebooks 05, 06 and 10 use it. Code that trains the other models does not belong here.
"""

from mmlkit.studies import published
from mmlkit.studies.cross_dataset import (
    CATEGORIES,
    Comparison,
    cross_dataset_table,
    footers,
    glue_average,
    hold_out_errors,
    improvements,
    outcome,
    paired_bootstrap,
    performance_profile,
    relative_improvement,
    two_way,
    verdict,
)
from mmlkit.studies.cs224n import (
    Problem,
    check_submission,
    constant_accuracies,
    overall_score,
    prediction_file,
    write_predictions,
    write_submission,
)
from mmlkit.studies.dssm import (
    DSSM,
    Hashed,
    build_vocabulary,
    collisions,
    evaluate_dssm,
    fit_dssm,
    hash_texts,
    load_vocabulary,
    save_vocabulary,
    trigrams,
)

__all__ = ["CATEGORIES", "two_way", "cross_dataset_table", "relative_improvement", "improvements",
           "footers", "hold_out_errors", "performance_profile", "glue_average", "Comparison",
           "paired_bootstrap", "outcome", "verdict", "published", "Problem", "check_submission",
           "constant_accuracies", "overall_score", "prediction_file", "write_predictions",
           "write_submission", "DSSM", "Hashed", "build_vocabulary", "collisions", "evaluate_dssm",
           "fit_dssm", "hash_texts", "load_vocabulary", "save_vocabulary", "trigrams"]
