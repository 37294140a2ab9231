"""Recorded runs that the lessons read: effects over other seeds, and runs of the protocol.

`benchmarks/lesson_effects.py` repeats the live experiment of a notebook and writes the records.
"""

import json
from pathlib import Path

__all__ = ["recorded_effects", "recorded_protocol"]


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


def recorded_protocol(folders):
    """Return the accuracies of the recorded runs of the cross-dataset protocol.

    Args:
        folders: folders of JSON files that `mmlkit reproduce mml-tables` wrote, in the order of
            preference. The first one that exists is read.

    Returns:
        A DataFrame with a row per score: method, seed, trained_on, evaluated_on, split, accuracy,
        heads_left, first_check (the step of the first pruning check, or None), steps, edition (of
        the mini data). It has no rows where no folder exists.
    """
    import pandas as pd

    folder = next((place for place in map(Path, folders) if place.is_dir()), None)
    files = sorted(folder.glob("*.json")) if folder else []
    rows = []
    for run in (json.loads(file.read_text(encoding="utf-8")) for file in files):
        given, checks = run["parameters"], run.get("events") or [{}]
        about = dict(
            method=given["method"],
            seed=given["seed"],
            trained_on=given["task"],
            heads_left=run["heads_left"],
            first_check=checks[0].get("step"),
            steps=run["history"][-1]["step"],
            edition=run["versions"].get("mini_data", 2),
        )
        for score in run["scores"]:
            place = dict(evaluated_on=score["on"], split=score["split"], accuracy=score["value"])
            rows.append({**about, **place})
    columns = ["method", "seed", "trained_on", "evaluated_on", "split", "accuracy"]
    return pd.DataFrame(rows, columns=[*columns, "heads_left", "first_check", "steps", "edition"])
