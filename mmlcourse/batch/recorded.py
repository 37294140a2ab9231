"""Each experiment together with its recorded runs and its claims.

Overviews, verdicts and reports are made from them.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mmlcourse.batch.experiments import Experiment, known_experiments, load_experiment
from mmlcourse.batch.results import load_results, used
from mmlcourse.batch.runs import changed_parameters
from mmlcourse.batch.scores import CELL, compare_claim, long_frame, select
from mmlcourse.shipped import results as recorded_path
from mmlcourse.studies.comparisons import outcome, outcome_sentence
from mmlcourse.text import count

__all__ = [
    "Recorded",
    "changed_since",
    "experiments_in",
    "newest",
    "recorded_experiments",
    "recorded_scores",
    "without_runs",
]


@dataclass(eq=False)
class Recorded:
    """An experiment and its runs.

    Attributes:
        edition: of the mini data that the runs have read, or None.
        experiment: the Experiment.
        results: a list of results of `load_results`.
        frame: a DataFrame of `long_frame`.
        given: the parameters outside the grid in which its runs differ from others of the same
            grid point, as a text.
        others: {name: frame} of the other experiments, for claims that name one.
    """

    edition: str | None
    experiment: Experiment
    results: list
    frame: object
    given: str = ""
    others: dict = field(default_factory=dict)

    @cached_property
    def claims(self):
        """A list of (claim, Comparison in points of 100); None without runs of both sides."""
        return [(claim, self.compare(claim)) for claim in self.experiment.claims]

    @property
    def size(self):
        """The profile, the edition of the mini data, and `given`."""
        return ", ".join(filter(None, (self.experiment.profile, self.data, self.given)))

    @property
    def data(self):
        """The mini data and their edition, as a text; empty for other data."""
        return f"mini data of edition {self.edition}" if self.edition else ""

    @property
    def title(self):
        """The experiment's name and the size."""
        return f"{self.experiment.name} ({self.size})"

    @property
    def compared(self):
        """The claims with runs of both sides."""
        return [(claim, found) for claim, found in self.claims if found is not None]

    @property
    def frames(self):
        """The scores by the name of their experiment, that of this one is ""."""
        return {"": self.frame, **self.others}

    def compare(self, claim, level=0.95):
        """Compare the two sides of a claim, in points of 100.

        Args:
            claim: of the experiment.
            level: the level of the interval.

        Returns:
            A Comparison, or None without runs of both sides.
        """
        import pandas as pd

        sides = [{"experiment": "", **claim[side]} for side in ("first", "second")]
        named = {side["experiment"] for side in sides}
        parts = [one.assign(experiment=key) for key, one in self.frames.items() if key in named]
        both = pd.concat(parts, ignore_index=True, join="inner")
        return compare_claim(claim | dict(zip(("first", "second"), sides)), both, level)

    def part(self, claim):
        """Return which planned tasks have runs of both sides.

        Args:
            claim: of the experiment.

        Returns:
            A text, such as "rte only"; "" for all of them, and where the claim names its tasks.
        """
        sides, planned = (claim["first"], claim["second"]), self.experiment.grid.get("task", [])

        def seeds(side, task):
            frame = self.frames[side.get("experiment", "")]
            keys = {key: value for key, value in side.items() if key != "experiment"}
            return {*select(frame, {**keys, "task": task})["seed"]}

        if "task" in {key for side in sides for key in side}:
            return ""
        have = [task for task in planned if set.intersection(*(seeds(x, task) for x in sides))]
        return f"{', '.join(map(str, have))} only" if 0 < len(have) < len(planned) else ""

    def says(self, claim):
        """Return the words of a claim, with the tasks that have runs where others have none.

        Args:
            claim: of the experiment.

        Returns:
            A text.
        """
        part = self.part(claim)
        return claim["says"] + (part and f" ({part})")

    def outcome(self, found):
        """Return the `outcome` of a claim, by the experiment's smallest effect of interest.

        Args:
            found: its Comparison.

        Returns:
            A word.
        """
        return outcome(found, of_interest=self.experiment.of_interest)

    def advice(self, claim, found):
        """Return what the outcome of a claim advises.

        Args:
            claim: of the experiment.
            found: its Comparison.

        Returns:
            A sentence, or "" for a claim without advice.
        """
        texts, word = claim.get("advice", {}), self.outcome(found)
        return texts.get(word) or texts.get("not better" * (word != "undecided"), "")

    @property
    def held_out(self):
        """Whether no row that is scored has chosen an epoch."""
        return all(run["settings"].get("held_out") for run in self.results)

    def sentence(self, claim, found):
        """Return what the runs say of a claim.

        Args:
            claim: of the experiment.
            found: its Comparison, or None.

        Returns:
            A sentence.
        """
        if found is None:
            return f"{claim['says']}: not compared, there are no runs of both sides."
        return outcome_sentence(found, self.says(claim), of_interest=self.experiment.of_interest)


def experiments_in(folders, experiment=None):
    """Return every experiment that has runs below some folders.

    Args:
        folders: a list of folders.
        experiment: an Experiment that is not one of the repository's; its runs have its name.

    Returns:
        A list of Recorded. Runs that differ in a parameter outside the grid, such as those of
        `--grid source=hub`, are apart. An experiment that the repository does not have is
        described by what its results tell.
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
            found.append(Recorded(edition, known, part, frame, given, others))
    return found


def recorded_experiments(folders=None):
    """Return the experiments of `experiments_in`, and an empty list where there is no run.

    Args:
        folders: a list of folders; None: results/, see `mmlcourse.shipped.results`.

    Returns:
        A list of Recorded.
    """
    try:
        return experiments_in(folders or [recorded_path()])
    except FileNotFoundError:
        return []


def recorded_scores(*names):
    """Return the dev scores of recorded experiments: the first metric of each task, in percent.

    Args:
        *names: of experiments.

    Returns:
        A DataFrame of `long_frame` without split, and with the column experiment.
    """
    import pandas as pd

    found = [one for one in newest(recorded_experiments()) if one.experiment.name in names]
    frames = [one.frame.assign(experiment=one.experiment.name) for one in found]
    frame = pd.concat(frames).query("split == 'dev'").drop(columns="split")
    frame = frame.assign(value=100 * frame["value"].astype(float))
    return frame.drop_duplicates([key for key in frame if key not in ("metric", "value")])


def _experiment(name, profile, results):
    """Return the experiment of that name, or what the results of an unknown one tell."""
    known = known_experiments()  # by name: a result must not make us read other files
    if name in known and profile in ("fast", "colab", "paper"):
        return load_experiment(known[name], profile)
    runs = {str(result["name"]): result["parameters"] for result in results}
    keys = dict.fromkeys(key for parameters in runs.values() for key in parameters)
    grid = {key: [one.get(key) for one in runs.values()] for key in keys if key not in CELL}
    grid = {key: values for key, values in grid.items() if any(one != values[0] for one in values)}
    return Experiment(name, name, profile, Path(name), grid or {"profile": [profile]}, runs)


def _apart(experiment, results):
    """Return {text: results}; the text names the parameters that tell runs of a grid point apart.

    A value that the experiment's file plans for the grid point is not named.
    """
    grid = sorted({*experiment.grid} - {"seed"})
    point = lambda given: json.dumps([given.get(key) for key in grid])
    points, differ, parts = {}, set(), {}
    for result in results:
        first = points.setdefault(point(result["parameters"]), result)
        keys = {*first["parameters"], *result["parameters"]}
        sides = [{key: used(one, key) for key in keys} for one in (first, result)]
        differ.update(changed_parameters(*sides))
    planned = {point(given): given for given in experiment.runs.values()}
    named = sorted(differ.difference(experiment.grid, ["seed"]))
    for result in results:
        given = result["parameters"]
        plan = planned.get(point(given), {})
        values = {key: (given.get(key), used(result, key)) for key in named}
        others = [f"{key} {both[0]}" for key, both in values.items() if plan.get(key) not in both]
        parts.setdefault(", ".join(others), []).append(result)
    return parts


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
            changed = changed_parameters(result["parameters"], plan)
            found.update(key for key in changed if used(result, key) != plan.get(key))
    return [
        f"{count(number, 'run')} had another {name} than the experiment's file has now."
        for name, number in found.items()
    ]


def newest(recorded):
    """Leave out runs on an edition of the mini data that has runs of a newer edition beside it.

    Args:
        recorded: a list of Recorded.

    Returns:
        A list of Recorded in the same order.
    """
    place = lambda one: (one.experiment.name, one.experiment.profile, one.given)
    last = dict(sorted((place(one), int(one.edition)) for one in recorded if one.edition))
    return [one for one in recorded if not one.edition or int(one.edition) == last[place(one)]]


def without_runs(recorded):
    """Return the primary claims and controls of known experiments without runs of both sides.

    Args:
        recorded: a list of Recorded.

    Returns:
        A list of texts, each a claim and its experiment.
    """
    told = {(one.experiment.name, claim["says"]) for one in recorded for claim, _ in one.compared}
    return [
        f"{claim['says']} ({name})"
        for name in known_experiments()
        for claim in load_experiment(name).claims
        if {"primary", "control_of"} & {*claim} and (name, claim["says"]) not in told
    ]
