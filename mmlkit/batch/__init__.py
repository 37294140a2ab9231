"""Notebooks run headless, experiments made of many runs, and the report on what they found.

    processes     a process that is watched, and stopped when it makes no progress
    notebooks     one notebook, or several at a time, through papermill
    experiments   a notebook times a grid of parameters, in one small file
    runs          one run of an experiment and its result
    batches       all runs of an experiment, through Snakemake
    reports       tables and figures of the results

Notebooks 05 to 10 read recorded results through it. Nothing here knows a model.
"""

import importlib

# Each name is imported on first use, so that `mmlkit run` does not wait for torch.
_HOME = {
    "notebooks": "run_notebook run_notebooks",
    "experiments": "Experiment find_experiment known_experiments load_experiment",
    "runs": "held read_result record",
    "batches": "reproduce",
    "reports": "comparison headline judge load_results long_frame weigh write_readme write_report",
}
_HOME = {name: home for home, names in _HOME.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"mmlkit.batch.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mmlkit.batch' has no attribute {name!r}; it has {', '.join(__all__)}.")
