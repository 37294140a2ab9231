"""What the lessons read from results/: their effects over other seeds, and recorded runs.

`benchmarks/lesson_effects.py` repeats the live experiment of a notebook and writes its effects.
"""

import json
import math
from pathlib import Path

from mmlcourse.shipped import results

__all__ = [
    "Recorder",
    "effects_by_seed",
    "read_record",
    "recorded_baselines",
    "recorded_cadence",
    "recorded_cosine",
    "recorded_effects",
    "recorded_protocol",
    "tell_effects",
]


class Recorder:
    """A hook of `fit` that keeps numbers of its updates, also in checkpoints.

    Args:
        measure: a function of the StepEvent that returns a list of numbers.
        every: how many updates lie between two records.

    Attributes:
        rows: lists of the update and its numbers.
    """

    def __init__(self, measure, every=1):
        self.measure, self.every, self.rows = measure, every, []

    def after_step(self, event):
        """Keep the numbers of every so many updates.

        Args:
            event: the update, a StepEvent.
        """
        if event.step % self.every == 0:
            self.rows.append([event.step, *map(float, self.measure(event))])

    def state_dict(self):
        return {"rows": self.rows}

    def load_state_dict(self, state):
        self.rows = state["rows"]


def read_record(path):
    """Read one of the files in results/.

    Args:
        path: of a JSON file.

    Returns:
        Its content, a dict. Where there is no file it is {"runs": [], "rows": []}.
    """
    path = Path(path)
    empty = {"runs": [], "rows": []}
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty


def recorded_effects(number, folder=None, kind="effects"):
    """Return what the live experiment of a notebook showed with other seeds than its own.

    Args:
        number: of the notebook, such as "03".
        folder: the folder of the records; None: results/lessons (`mmlcourse.shipped.results`).
        kind: "effects", which claim to be above zero, or "measured", which claim nothing.

    Returns:
        A DataFrame with a row for each name and the columns `mean`, `standard_error`, `positive`
        (in how many runs the effect was above zero) and `seeds`. It has no rows where nothing is
        recorded.
    """
    import pandas as pd

    path = Path(folder or results("lessons")) / f"{number}.json"
    values = pd.DataFrame([one[kind] for one in read_record(path)["runs"] if kind in one])
    parts = [values.mean(), values.sem(), (values > 0).sum(), values.count()]
    return pd.concat(parts, axis=1, keys=["mean", "standard_error", "positive", "seeds"])


def tell_effects(number, kind="effects", scale=1, unit="", about=""):
    """Print a sentence for each `recorded_effects`: the mean, its standard error and the signs.

    Args:
        number: of the notebook, such as "03".
        kind: "effects" or "measured".
        scale: what the numbers are multiplied by; 100 makes points of an accuracy.
        unit: of the scaled numbers, such as "points".
        about: a text that the printed names contain.
    """
    found = recorded_effects(number, kind=kind)
    named = [name for name in found.index if about in name]
    for name, (mean, error, positive, seeds) in found.loc[named].iterrows():
        digits = max(0, 1 - math.floor(math.log10(scale * error))) if error else 2
        told = f"{scale * mean:+.{digits}f} ± {scale * error:.{digits}f} {unit}".strip()
        print(f"{name}: {told} ({positive:.0f} of {seeds:.0f} other seeds above zero)")


def effects_by_seed(number, effects, kind="effects"):
    """Return the effects of a live experiment beside those that are recorded for other seeds.

    Args:
        number: of the notebook, such as "03".
        effects: {claim: number} of the run in the notebook.
        kind: "effects" or "measured"; only the names of `effects` are returned.

    Returns:
        A DataFrame with a row for each run and a column for each claim. The first row is the run
        in the notebook.
    """
    import pandas as pd

    path = Path(results("lessons")) / f"{number}.json"
    runs = [one[kind] for one in read_record(path)["runs"]]
    return pd.DataFrame([effects, *runs], columns=list(effects))


NAMES = {
    "pretrain": "frozen",
    "finetune": "fine-tuned",
    "separate": "fine-tuned, bi-encoder",
    "untrained_cosine": "untrained cosine",
    "cosine": "fine-tuned cosine",
}


def recorded_baselines(path=None):
    """Return the recorded dev scores of MiniLM on the mini tasks (benchmarks/mini_baselines.py).

    Args:
        path: the file of the record; None: results/mini_baselines.json.

    Returns:
        A DataFrame with a row for each (task, training), and the columns `metric` (the task's
        first), `mean`, `sd`, `seeds`, and the list `each` of the values. It has no rows where the
        file does not exist.
    """
    import pandas as pd

    from mmlkit.data import get_task

    rows = []
    for one in read_record(path or results("mini_baselines.json"))["runs"]:
        metric = get_task(one["task"]).metrics[0]
        rows.append((one["task"], NAMES.get(one["mode"], one["mode"]), metric, one[metric]))
    runs = pd.DataFrame(rows, columns=["task", "training", "metric", "value"])
    return runs.groupby(["task", "training"], sort=False).agg(
        metric=("metric", "first"),
        mean=("value", "mean"),
        sd=("value", "std"),
        seeds=("value", "count"),
        each=("value", list),
    )


def recorded_cosine(task):
    """Return how well the cosine of the untrained MiniLM does (benchmarks/untrained_cosine.py).

    Args:
        task: "sts", the course's file, or "stsb"; or a mini set of notebook 05, such as "rte".

    Returns:
        Pearson's r with the dev labels of "sts" or "stsb", and the dev accuracy on a mini set.
        nan where the record does not exist.
    """
    scores = read_record(results("untrained_cosine.json")).get("scores")
    return next(iter(scores[task].values())) if scores else float("nan")


def recorded_protocol(folder=None):
    """Return the accuracies of the recorded runs of the cross-dataset protocol.

    Args:
        folder: of the JSON files of `mmlkit reproduce mml-tables`; None: the one in results/.

    Returns:
        A DataFrame with a row per score: method, seed, trained_on, evaluated_on, split, accuracy,
        heads_left, checks (how many were planned, or None), first_check (the step of the first
        pruning check, or None), steps, edition (of the mini data). It has no rows where the
        folder does not exist.
    """
    import pandas as pd

    rows = []
    for run in map(read_record, sorted(Path(folder or results("mml-tables-fast")).glob("*.json"))):
        given, checks = run["parameters"], run.get("events") or [{}]
        about = dict(
            method=given["method"],
            seed=given["seed"],
            checks=given.get("checks"),
            trained_on=given["task"],
            heads_left=run["heads_left"],
            first_check=checks[0].get("step"),
            steps=run["history"][-1]["step"],
            edition=run["versions"].get("mini_data", 2),
        )
        for score in run["scores"]:
            place = dict(evaluated_on=score["on"], split=score["split"], accuracy=score["value"])
            rows.append({**about, **place})
    columns = "method seed trained_on evaluated_on split accuracy heads_left checks first_check"
    return pd.DataFrame(rows, columns=[*columns.split(), "steps", "edition"])


def recorded_cadence(folder=None):
    """Return the recorded runs with 1, 5 or 30 pruning checks (family C of experiments/PLAN.md).

    Args:
        folder: of the JSON files of `mmlkit reproduce real-cadence`; None: the one in results/.

    Returns:
        A DataFrame with a row for each run: task, checks, seed, heads_left, accuracy (of dev, for
        the epoch that was chosen). It has no rows where the folder does not exist.
    """
    runs = recorded_protocol(folder or results("real-cadence-fast"))
    runs = runs[(runs["evaluated_on"] == runs["trained_on"]) & (runs["split"] == "dev")]
    runs = runs.rename(columns={"trained_on": "task"}).reset_index(drop=True)
    return runs[["task", "checks", "seed", "heads_left", "accuracy"]]
