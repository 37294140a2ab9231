"""All recorded runs at a glance: a table of each experiment, its claims, and single measurements.

Notebook 12 shows them. The report of `mmlkit report` has every cell; these tables are short.
"""

import json
from pathlib import Path

from mmlcourse.batch.results import finite, newest
from mmlcourse.batch.scores import common_seeds, headline
from mmlcourse.shipped import results as recorded_path
from mmlcourse.studies.comparisons import has_interval, outcome
from mmlcourse.text import count

__all__ = [
    "advice",
    "claim_rows",
    "claim_sentences",
    "headlines",
    "measurement_sentences",
    "runs_table",
]


def runs_table(recorded):
    """Return how much was run: a row for each experiment.

    Args:
        recorded: a list of Recorded.

    Returns:
        A DataFrame with runs, seeds (those that all systems have), hours and device.
    """
    import pandas as pd

    rows = [
        {
            "experiment": one.title,
            "runs": len(one.results),
            "seeds": len(common_seeds(one.experiment, one.frame)),
            "hours": round(sum(finite(one.results, "minutes")) / 60, 1),
            "device": ", ".join(sorted({str(run.get("device", "missing")) for run in one.results})),
        }
        for one in recorded
    ]
    return pd.DataFrame(rows).set_index("experiment")


def headlines(recorded):
    """Return the headline of each experiment: published, and ours with its spread over seeds.

    Args:
        recorded: a list of Recorded.

    Returns:
        A DataFrame of texts with published, ours, sd, seeds and number (what is counted).
    """
    import pandas as pd

    tables = []
    for one in recorded:
        table = headline(one.experiment, one.frame)
        if table.empty:
            continue
        by = table.columns[0]
        words = table[["published", "ours", "sd"]].map("{:.2f}".format)
        words = words.replace("nan", "").assign(seeds=table["seeds"], number=by.split(": ")[1])
        tables.append(words.set_index(pd.MultiIndex.from_product([[one.title], table[by]])))
    return pd.concat([pd.DataFrame(), *tables])


def claim_sentences(recorded):
    """Judge the claims of each experiment that has runs of both sides.

    Args:
        recorded: a list of Recorded.

    Returns:
        {title: list of sentences}. An experiment without such a claim is left out.
    """
    found = {one.title: [one.sentence(*pair) for pair in one.compared] for one in recorded}
    return {title: said for title, said in found.items() if said}


def claim_rows(recorded, level=0.95):
    """Compare both sides of every claim, in points of 100; `plots.forest` draws the rows.

    Args:
        recorded: a list of Recorded.
        level: the level of the intervals.

    Returns:
        A list of (title, claim, Comparison, at_least). Claims without runs of both sides are left
        out.
    """
    return [
        (
            one.title,
            claim["says"],
            found if found.level == level else one.compare(claim, level),
            one.at_least(claim),
        )
        for one in recorded
        for claim, found in one.compared
    ]


def advice(recorded):
    """Return what the claims of some experiments advise, by their outcomes on our runs.

    Args:
        recorded: a list of Recorded.

    Returns:
        A list of sentences, from the `advice` of the experiments' files. Claims with too few pairs
        of runs advise nothing, and neither do runs that differ from the others (`given`) or that
        read an earlier edition of the data (`newest`).
    """
    return [
        claim["advice"][outcome(found, at_least=one.at_least(claim))]
        for one in newest(recorded)
        for claim, found in one.compared
        if "advice" in claim and not one.given and has_interval(found)
    ]


# ---- single measurements ----


def measurement_sentences(folder=None):
    """State what each single measurement found.

    Args:
        folder: with the JSON files of the measurements; None: results/.

    Returns:
        {name of the file: sentence}. A file of another kind is described by its `what`.
    """
    found = {}
    for file in sorted(Path(folder or recorded_path()).glob("*.json")):
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
