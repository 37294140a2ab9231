"""The effects that the lessons show, recorded over other seeds.

`benchmarks/lesson_effects.py` repeats the live experiment of a notebook and writes the records.
"""

import json
from pathlib import Path

__all__ = ["recorded_effects"]


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
