"""The effects that the lessons show, recorded over other seeds.

`benchmarks/lesson_effects.py` repeats the live experiment of a notebook and writes the records.
"""

import json
from pathlib import Path

__all__ = ["recorded_baselines", "recorded_effects"]


def recorded_effects(number, folder="../results/lessons"):
    """Return what the live experiment of a notebook showed with other seeds than its own.

    Args:
        number: of the notebook, such as "03".
        folder: the folder of the records.

    Returns:
        A DataFrame with a row for each claim and the columns `mean`, `standard_error`, `positive`
        (in how many runs the effect was above zero) and `seeds`. It has no rows where nothing is
        recorded.
    """
    import pandas as pd

    columns = ["mean", "standard_error", "positive", "seeds"]
    path = Path(folder) / f"{number}.json"
    if not path.is_file():
        return pd.DataFrame(columns=columns)
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    values = pd.DataFrame([one["effects"] for one in runs])
    parts = [values.mean(), values.sem(), (values > 0).sum(), values.count()]
    return pd.concat(parts, axis=1, keys=columns)


NAMES = {
    "pretrain": "frozen",
    "finetune": "fine-tuned",
    "separate": "fine-tuned, bi-encoder",
    "untrained_cosine": "untrained cosine",
    "cosine": "fine-tuned cosine",
}


def recorded_baselines(path="../results/mini_baselines.json"):
    """Return the recorded dev scores of MiniLM on the mini tasks (benchmarks/mini_baselines.py).

    Args:
        path: the file of the record.

    Returns:
        A DataFrame with a row for each (task, training), and the columns `metric` (the task's
        first), `mean`, `sd` and `seeds`. It has no rows where the file does not exist.
    """
    import pandas as pd

    from mmlkit.data import get_task

    columns = ["metric", "mean", "sd", "seeds"]
    if not Path(path).is_file():
        return pd.DataFrame(columns=columns)
    rows = []
    for one in json.loads(Path(path).read_text(encoding="utf-8"))["runs"]:
        metric = get_task(one["task"]).metrics[0]
        rows.append((one["task"], NAMES.get(one["mode"], one["mode"]), metric, one[metric]))
    runs = pd.DataFrame(rows, columns=["task", "training", "metric", "value"])
    found = runs.groupby(["task", "training"], sort=False).agg(
        metric=("metric", "first"),
        mean=("value", "mean"),
        sd=("value", "std"),
        seeds=("value", "count"),
    )
    return found
