"""All recorded runs at a glance: a table of each experiment, its claims, and single measurements.

Notebook 12 shows them. The report of `mmlkit report` has every cell; these tables are short.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mmlkit.batch.experiments import Experiment, known_experiments, load_experiment
from mmlkit.batch.runs import changed_parameters
from mmlkit.batch.tables import (
    CELL,
    common_seeds,
    compare_claim,
    finite,
    headline,
    load_results,
    long_frame,
)
from mmlkit.studies.comparisons import has_interval, outcome, outcome_sentence
from mmlkit.support.messages import count
from mmlkit.support.shipped import results as recorded_path

__all__ = [
    "Recorded",
    "advice",
    "changed_since",
    "claim_rows",
    "claim_sentences",
    "experiments_in",
    "headlines",
    "measurement_sentences",
    "newest",
    "recorded_experiments",
    "runs_table",
    "without_runs",
]


class Recorded(NamedTuple):
    """An experiment and its runs.

    Attributes:
        edition: of the mini data that the runs have read, or None.
        experiment: the Experiment.
        results: a list of results of `load_results`.
        frame: a DataFrame of `long_frame`.
        claims: a list of (claim, Comparison in points of 100); None without runs of both sides.
        given: the parameters outside the grid in which its runs differ from others of the same
            grid point, as a text.
        others: {name: frame} of the other experiments, for claims that name one.
    """

    edition: str | None
    experiment: Experiment
    results: list
    frame: object
    claims: list
    given: str = ""
    others: dict = {}

    @property
    def size(self):
        """The profile, the edition of the mini data, and `given`."""
        data = f"mini data of edition {self.edition}" if self.edition else ""
        return ", ".join(filter(None, (self.experiment.profile, data, self.given)))

    @property
    def title(self):
        """The experiment's name and the size."""
        return f"{self.experiment.name} ({self.size})"

    @property
    def compared(self):
        """The claims with runs of both sides."""
        return [(claim, found) for claim, found in self.claims if found is not None]

    def frame_of(self, side):
        """Return the scores that one side of a claim is about.

        Args:
            side: the `first` or `second` of a claim; its `experiment` may name another one.

        Returns:
            A DataFrame of `long_frame`, or None where that experiment has no runs.
        """
        return self.others.get(side["experiment"]) if "experiment" in side else self.frame

    def compare(self, claim, level=0.95):
        """Compare the two sides of a claim, in points of 100.

        Args:
            claim: of the experiment.
            level: the level of the interval.

        Returns:
            A Comparison, or None without runs of both sides.
        """
        sides = [claim["first"], claim["second"]]
        if not any("experiment" in side for side in sides):
            return compare_claim(claim, self.frame, 100, level)
        import pandas as pd

        sides = [{"experiment": "", **side} for side in sides]
        frames = {"": self.frame, **self.others}
        named = dict.fromkeys(side["experiment"] for side in sides)
        parts = [frames[name].assign(experiment=name) for name in named if name in frames]
        both = pd.concat(parts, ignore_index=True, join="inner")
        return compare_claim(claim | dict(zip(("first", "second"), sides)), both, 100, level)

    def at_least(self, claim):
        """Return the difference that a claim asks for.

        Args:
            claim: of the experiment.

        Returns:
            Points of 100.
        """
        points = 100 / self.experiment.published.get("scale", 1)
        factor = 1 if claim.get("metric") == "improvement" else points
        return factor * claim.get("at_least", 0.0)

    def sentence(self, claim, found):
        """Return what the runs say of a claim.

        Args:
            claim: of the experiment.
            found: its Comparison, or None.

        Returns:
            A sentence.
        """
        if found is None:
            return f"{claim['says']}: cannot be told, there are no runs of both sides."
        return outcome_sentence(found, claim["says"], at_least=self.at_least(claim))


def experiments_in(folders, experiment=None):
    """Return every experiment that has runs below some folders.

    Args:
        folders: a list of folders.
        experiment: an Experiment that is not one of the repository's; its runs have its name.

    Returns:
        A list of Recorded. Runs that differ in a parameter outside the grid, such as those of
        `--grid source=hub`, are apart. An experiment that the repository does not have is
        described by what its results tell.

    Raises:
        FileNotFoundError: a folder is missing, or there is no result.
        ValueError: an experiment or profile is not a plain name.
    """
    found, frames = [], {}
    for (name, profile, edition), results in load_results(folders).items():
        own = experiment is not None and (experiment.name, experiment.profile) == (name, profile)
        known = experiment if own else _experiment(name, profile, results)
        for given, part in _apart(known, results).items():
            frame = long_frame(known, part)
            others = frames.setdefault((profile, edition), {})
            if not given:
                others[name] = frame
            found.append(Recorded(edition, known, part, frame, [], given, others))
    return [one._replace(claims=_compared(one)) for one in found]


def _compared(one):
    return [(claim, one.compare(claim)) for claim in one.experiment.claims]


def _apart(experiment, results):
    """Return {text: results}; the text names the parameters that tell runs of a grid point apart.

    A value that the experiment's file plans for the grid point is not named.
    """
    points, differ, parts = {}, set(), {}
    for result in results:
        given = result["parameters"]
        first = points.setdefault(_point(experiment, given), given)
        differ |= {key for key in {*first, *given} if first.get(key) != given.get(key)}
    planned = {_point(experiment, given): given for given in experiment.runs.values()}
    named = sorted(differ.difference(experiment.grid, ["seed"]))
    for result in results:
        given = result["parameters"]
        plan = planned.get(_point(experiment, given), {})
        others = [f"{key} {given.get(key)}" for key in named if given.get(key) != plan.get(key)]
        parts.setdefault(", ".join(others), []).append(result)
    return parts


def _point(experiment, given):
    """Return the place of a run in the grid, whatever its seed, as a text."""
    return json.dumps([given.get(key) for key in sorted(experiment.grid) if key != "seed"])


def _experiment(name, profile, results):
    """Return the experiment of that name, or what the results of an unknown one tell."""
    known = known_experiments()  # by name: a result must not make us read other files
    if name in known and profile in ("fast", "colab", "paper"):
        try:
            return load_experiment(known[name], profile)
        except ValueError as error:
            if type(error.__cause__) is not LookupError:  # that one: the file has no such size
                raise
    runs = {str(result["name"]): result["parameters"] for result in results}
    keys = dict.fromkeys(key for parameters in runs.values() for key in parameters)
    keys = [key for key in keys if key not in (*CELL, "value")]
    grid = {key: [one.get(key) for one in runs.values()] for key in keys}
    grid = {key: values for key, values in grid.items() if any(one != values[0] for one in values)}
    return Experiment(name, name, profile, Path(name), grid or {"profile": [profile]}, runs)


def changed_since(one):
    """Return a sentence for each parameter in which runs differ from what the file plans now.

    Args:
        one: a Recorded.

    Returns:
        A list of sentences.
    """
    found, plans = Counter(), one.experiment.runs
    for result in one.results:
        if (plan := plans.get(str(result["name"]))) is not None:
            found.update(changed_parameters(result["parameters"], plan))
    return [
        f"{count(number, 'run')} had another {name} than the experiment's file has now."
        for name, number in found.items()
    ]


def recorded_experiments(folders=None):
    """Return the experiments of `experiments_in`, and an empty list where there is no run.

    Args:
        folders: a list of folders; None: results/, see `mmlkit.support.shipped.results`.

    Returns:
        A list of Recorded.
    """
    try:
        return experiments_in(folders or [recorded_path()])
    except FileNotFoundError:
        return []


def newest(recorded):
    """Leave out runs on an edition of the mini data that has runs of a newer edition beside it.

    Args:
        recorded: a list of Recorded.

    Returns:
        A list of Recorded in the same order.
    """
    place = lambda one: (one.experiment.name, one.experiment.profile, one.given)
    number = lambda one: re.fullmatch("[0-9]{1,9}", one.edition or "") and int(one.edition)
    last = dict(sorted((place(one), number(one)) for one in recorded if number(one) is not None))
    return [one for one in recorded if number(one) in (None, last.get(place(one)))]


def without_runs(recorded):
    """Return the primary claims of known experiments that have no runs of both sides.

    Args:
        recorded: a list of Recorded.

    Returns:
        A list of texts, each a claim and its experiment.
    """
    told = {(one.experiment.name, claim["says"]) for one in recorded for claim, _ in one.compared}
    return [
        f"{claim['says']} ({name})"
        for name in known_experiments()
        for claim in _experiment(name, "fast", []).claims
        if claim.get("primary") and (name, claim["says"]) not in told
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
        (
            one.title,
            len(one.results),
            len(common_seeds(one.experiment, one.frame)),
            round(sum(finite(one.results, "minutes")) / 60, 1),
            ", ".join(sorted({str(run.get("device", "missing")) for run in one.results})),
        )
        for one in recorded
    ]
    columns = ["experiment", "runs", "seeds", "hours", "device"]
    return pd.DataFrame(rows, columns=columns).set_index("experiment")


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
    rows = []
    for one in recorded:
        for claim, found in one.compared:
            if found.level != level:
                found = one.compare(claim, level)
            rows.append((one.title, claim["says"], found, one.at_least(claim)))
    return rows


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
        found[file.stem] = _SENTENCES.get(kind, _what)(record)
    return found


def _what(record):
    return record.get("what", "No description.")


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
    parts = [f"{row['share_split']:.0%} ({row['heads']} heads)" for row in record["rows"][:3]]
    return f"A sample of one normal distribution is split in {', '.join(parts)} of the draws."


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
