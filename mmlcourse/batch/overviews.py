"""All recorded runs at a glance: how much was run, the claims, and what they advise.

Notebooks 10 to 12 draw the claims. The report of `mmlkit report` has every cell.
"""

import textwrap

from mmlcourse.batch.recorded import newest, recorded_experiments
from mmlcourse.batch.results import finite
from mmlcourse.batch.scores import first_parameter
from mmlcourse.studies.comparisons import has_interval

__all__ = [
    "advice",
    "claim_rows",
    "is_primary",
    "recorded_claims",
    "recorded_differences",
    "runs_table",
]


def runs_table(recorded):
    """Return how much was run: a row for each experiment.

    Args:
        recorded: a list of Recorded.

    Returns:
        A DataFrame with runs, seeds (of a system: fewest to most), hours and device.
    """
    import pandas as pd

    rows = [
        {
            "experiment": one.title,
            "runs": len(one.results),
            "seeds": _seeds(one),
            "hours": round(sum(finite(one.results, "minutes")) / 60, 1),
            "device": ", ".join(sorted({str(run.get("device", "missing")) for run in one.results})),
        }
        for one in recorded
    ]
    return pd.DataFrame(rows).set_index("experiment")


def _seeds(one):
    numbers = one.frame.groupby(first_parameter(one.experiment))["seed"].nunique()
    return " to ".join(map(str, sorted({numbers.min(), numbers.max()})))


def is_primary(claim):
    """Tell whether a claim is the main one of its experiment, or a control of a main one.

    Args:
        claim: of an experiment.

    Returns:
        True or False.
    """
    return bool(claim.get("primary")) or "control_of" in claim


def claim_rows(recorded):
    """Compare both sides of every claim, in points of 100.

    Args:
        recorded: a list of Recorded.

    Returns:
        A list of (title, claim, Comparison, of_interest). Claims without runs of both sides are
        left out.
    """
    return [
        (one.title, one.says(claim), found, one.experiment.of_interest)
        for one in recorded
        for claim, found in one.compared
    ]


def recorded_claims(*experiments, primary=False):
    """Return the claims that our recorded runs can judge, in words that `plots.forest` draws.

    Args:
        experiments: their names; none: all experiments.
        primary: whether only primary claims (`is_primary`) are returned.

    Returns:
        A list of (topic of the experiment, claim in lines of 58 letters, Comparison, of_interest).
        Earlier editions of the mini data, and claims with too few seeds for an interval, are left
        out.
    """
    return [
        (
            one.experiment.topic,
            textwrap.fill(one.says(claim), 58),
            found,
            one.experiment.of_interest,
        )
        for one in newest(recorded_experiments())
        if one.experiment.name in (experiments or [one.experiment.name])
        for claim, found in one.compared
        if has_interval(found) and (is_primary(claim) or not primary)
    ]


def recorded_differences(experiment, pairs, group, on="overall", metric=None):
    """Compare systems over an experiment's recorded runs, in words that `plots.forest` draws.

    Args:
        experiment: its name; `system` is a key of its grid.
        pairs: {name of the row: (first system, second system)}.
        group: the name of the group.
        on: a task, or "overall".
        metric: of the task; None: all of its metrics.

    Returns:
        A list of (group, name, Comparison, of_interest).
    """
    (one,) = [one for one in newest(recorded_experiments()) if one.experiment.name == experiment]
    same = {"on": on} | ({"metric": metric} if metric else {})
    sides = {name: [{"system": side} for side in pair] for name, pair in pairs.items()}
    return [
        (
            group,
            name,
            one.compare(same | dict(zip(("first", "second"), pair))),
            one.experiment.of_interest,
        )
        for name, pair in sides.items()
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
