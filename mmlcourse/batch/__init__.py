"""Notebooks run headless, experiments made of many runs, and the report on their results.

    processes     a process that is watched and stopped, and file locks
    notebooks     one notebook, or several at a time, through papermill
    experiments   a notebook and a grid of its parameters, in one small file
    runs          one run of an experiment and its result
    batches       all runs of an experiment, through Snakemake
    scores        tables of the scores of an experiment's runs, and what they say about a claim
    results       the files of recorded runs
    recorded      experiments with their recorded runs and claims
    overviews     short tables of them, and sentences on their claims
    verdicts      what the guide and results/REPORT.md say about them
    reports       the report of `mmlkit report`: every cell, with figures

The rules for Snakemake are in Snakefile, those for an experiment's file in
experiment.schema.json. Notebooks 07 and 09 to 12 read recorded results with them. Code that
depends on a model does not belong here.
"""

import importlib

# Each name is imported on first use, so that `mmlkit run` does not wait for torch.
_MODULES = {
    "runs": "record",
    "recorded": "recorded_experiments recorded_scores",
    "overviews": "advice claim_rows is_primary recorded_claims recorded_differences runs_table",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"mmlcourse.batch.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'mmlcourse.batch' has no attribute {name!r}; it has {__all__}.")
