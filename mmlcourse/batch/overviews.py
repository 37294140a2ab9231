"""All recorded runs at a glance: the headline of each experiment, its claims, and what they advise.

Notebook 12 shows them. The report of `mmlkit report` has every cell; these tables are short.
"""

import json

from mmlcourse.batch.results import finite, newest
from mmlcourse.batch.scores import common_seeds, headline
from mmlcourse.shipped import results as recorded_path
from mmlcourse.studies.comparisons import has_interval

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
        A list of (title, claim, Comparison, of_interest). Claims without runs of both sides are
        left out.
    """
    return [
        (
            one.title,
            claim["says"],
            found if found.level == level else one.compare(claim, level),
            one.experiment.of_interest,
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
        one.advice(claim, found)
        for one in newest(recorded)
        for claim, found in one.compared
        if "advice" in claim and not one.given and has_interval(found)
    ]


def measurement_sentences():
    """State what each single measurement in results/ found, such as those of speed.

    Returns:
        {name of the file: sentence}. A record without `found` is described by its `what`.
    """
    paths = sorted(recorded_path().glob("*.json"))
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    return {name: record.get("found") or record["what"] for name, record in records.items()}
