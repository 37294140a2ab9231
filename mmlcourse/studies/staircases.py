"""Recorded pruning runs: the number of active heads over training, as in Fig. 2 of MML v2.

The paper draws QNLI. `recorded_staircases` returns the recorded runs on QNLI and on smaller sets.
Notebook 04 and the guide draw them.
"""

from pathlib import Path
from typing import NamedTuple

from mmlcourse.shipped import results
from mmlcourse.studies.lessons import read_record

__all__ = [
    "LANDMARKS",
    "MAJORITY",
    "Staircase",
    "recorded_staircases",
    "staircase",
]

# What section 4.1 of the paper says of its run on QNLI. The text gives no step of a pruning. Its
# batches and epochs make 98,220 steps.
LANDMARKS = {"heads": 1024, "left": 23, "step": 85_000, "steps": 98_220, "prunings": 3}

# Of the dev splits of the recorded runs. QNLI's 1,094 rows are cut from its official dev split, the
# others are the official dev splits. A constant prediction has an MCC of 0.
MAJORITY = {"rte": 146 / 277, "mrpc": 279 / 408, "qnli": 550 / 1094, "cola": 0.0}


class Staircase(NamedTuple):
    """One recorded run that pruned heads.

    Attributes:
        name: task, and rule and seed where several runs share the task.
        task: the name of the task.
        num_heads: at the beginning.
        steps: updates of the whole run.
        bandwidth: the rule of MeanShift, such as "auto:0.3".
        events: dicts of the checks, in order. Some records hold every head, others only counts.
        metric: of the dev split.
        dev: (step, value) pairs of this metric, one for each epoch.
        majority: the metric of the most frequent class, or NaN where it is not known.
        rows: rows of the training split.
        best_step: the last update of the best epoch, whose model is kept, or None.
    """

    name: str
    task: str
    num_heads: int
    steps: int
    bandwidth: str
    events: list
    metric: str
    dev: list
    majority: float = float("nan")
    rows: int | None = None
    best_step: int | None = None

    @property
    def counts(self):
        """Every check as (step, heads before, heads after)."""
        return [(one["step"], _before(one), _after(one)) for one in self.events]

    def heads_at(self, step):
        """Return the number of active heads after a step; the best model has those at `best_step`.

        Args:
            step: the number of updates, or None where it is not known.

        Returns:
            The number, or NaN where the step is not known.
        """
        if step is None:
            return float("nan")
        past = [after for at, _, after in self.counts if at <= step]
        return past[-1] if past else self.num_heads


def _before(event):
    return event["active"] if "active" in event else len(event["head_ids"])


def _after(event):
    return event["kept"] if isinstance(event["kept"], int) else len(event["kept"])


def recorded_staircases(folder=None):
    """Return the recorded runs on real data: those on QNLI, as in Fig. 2, and on smaller sets.

    Args:
        folder: the folder of the records; None: results/ (`mmlcourse.shipped.results`). Runs
            of experiments/real-staircase.toml are in real-staircase-PROFILE/, runs of notebook 04
            on real sets in pruning_TASK.json.

    Returns:
        A list of `Staircase`: QNLI first, then by name. It is empty where nothing is recorded.
    """
    folder, found = Path(folder or results()), []
    for pattern in ("real-staircase-*/*.json", "pruning_*.json"):
        runs = map(read_record, folder.glob(pattern))
        found += [staircase(run) for run in runs if run.get("source") != "mini"]
    return sorted(found, key=lambda one: (one.task != "qnli", one.name))


def staircase(run):
    """Read the record of one run.

    Args:
        run: what experiments/cross_dataset.ipynb writes, or an earlier notebook 04, as a dict.

    Returns:
        A `Staircase`.
    """
    given = run["parameters"]
    rule = str(given.get("bandwidth") or "auto:0.3")
    if "settings" in run:  # a run of an experiment
        task, steps = given["task"], run["settings"]["steps"]
        rows = run["settings"].get("rows", {}).get(task)
        name = f"{task}, {rule}, seed {given['seed']}"
    else:
        task, steps, name, rows = run["task"], run["steps"], run["task"], run.get("rows")
    known = ("epoch", "step", "task", "train_loss", "seconds", "best")
    metric = next(key for key in run["history"][0] if key not in known)
    return Staircase(
        name,
        task,
        run["num_heads"],
        steps,
        rule,
        run["events"],
        metric,
        [(row["step"], row[metric]) for row in run["history"]],
        MAJORITY.get(task, float("nan")),
        rows,
        next((row["step"] for row in run["history"] if row.get("best")), None),
    )
