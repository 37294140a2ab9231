"""What each single measurement in results/ found, in a sentence; notebook 12 prints them."""

import json

from mmlcourse.shipped import results as recorded_path
from mmlcourse.text import count

__all__ = ["measurement_sentences"]


def measurement_sentences():
    """State what each single measurement found.

    Returns:
        {name of the file: sentence}. A file of another kind is described by its `what`.
    """
    found = {}
    for file in sorted(recorded_path().glob("*.json")):
        record, kind = json.loads(file.read_text(encoding="utf-8")), file.stem.split("_")[0]
        found[file.stem] = _SENTENCES[kind](record) if kind in _SENTENCES else record["what"]
    return found


def _pruning(record):
    return (
        f"{record['rows']:,} rows, {record['num_heads']} heads: {record['heads_at_end']} left "
        f"after {record['steps']} steps, {record['heads_kept']} in the best epoch."
    )


def _multiverse(record):
    loops, last = record["loops"], record["memory"]["rows"][-1]
    return (
        f"{loops['heads']} heads at once are {loops['times_faster']:,} times as fast as loops over "
        f"heads and pairs. The loss of {last['heads']:,} heads adds {last['added_mb']:.0f} MB."
    )


def _mini(record):
    runs = record["runs"]
    tasks, seeds = ({run[key] for run in runs} for key in ("task", "seed"))
    return f"{record['what']}: {len(runs)} runs of {len(tasks)} tasks, seeds {sorted(seeds)}."


def _profile(record):
    parts = [
        f"{one['products_percent']:.0f} % of a {one['part']} in {one['precision']}, at "
        f"{one['products_percent_of_peak']:.0f} % of the peak"
        for one in record["profiles"]
    ]
    return f"Matrix products take {'; '.join(parts)} ({count(record['threads'], 'thread')})."


def _meanshift(record):
    rows = record["rows"]
    if "rule" in rows[0]:  # several bandwidths, compared at the largest number of heads
        most = max(row["heads"] for row in rows)
        cases = [(f"with {row['rule']}", row) for row in rows if row["heads"] == most]
        place = f"At {most} heads, a"
    else:
        cases = [(f"at {row['heads']} heads", row) for row in rows[:3]]
        place = "With scikit-learn's default bandwidth, a"
    parts = ", ".join(f"{row['share_split']:.1%} {case}" for case, row in cases)
    return f"{place} sample of one normal distribution is split: {parts} of the draws."


def _speed(record):
    measured = {
        "step": ("over_best", "Training steps per second, relative to the Trainer's best"),
        "predict": ("predict_over_pipeline", "Predictions per second, relative to the pipeline"),
    }
    found = {}
    for one in record["comparisons"]:
        if one["comparison"] in measured:
            key, title = measured[one["comparison"]]
            text = f"{one[key]['median']:.2f} times on {one['task']} in {one['precision']}"
            found.setdefault(title, []).append(text)
    return " ".join(f"{title}: {', '.join(parts)}." for title, parts in found.items())


_SENTENCES = {
    "pruning": _pruning,
    "multiverse": _multiverse,
    "mini": _mini,
    "meanshift": _meanshift,
    "speed": _speed,
    "step": _profile,
    "prediction": _profile,
}
