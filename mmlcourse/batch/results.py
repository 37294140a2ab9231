"""Recorded runs: their files, their scores, and what they say about the claims of an experiment.

Published, recomputed and our own numbers stand in separate columns. Overviews and reports are made
from these tables.
"""

import itertools
import json
import math
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mmlcourse.batch.experiments import Experiment, known_experiments, load_experiment
from mmlcourse.batch.runs import changed_parameters, is_finite, read_result
from mmlcourse.shipped import results as recorded_path
from mmlcourse.studies.comparisons import outcome_sentence, paired_bootstrap, pairs_needed
from mmlcourse.studies.published import tables
from mmlcourse.text import count

__all__ = [
    "CELL",
    "Recorded",
    "best_values",
    "changed_since",
    "common_seeds",
    "compare_claim",
    "comparison",
    "experiments_in",
    "finite",
    "headline",
    "load_results",
    "long_frame",
    "newest",
    "recorded_experiments",
    "select",
    "unfinished",
    "without_runs",
]

CELL = ["on", "split", "metric"]
_PLACE = (("row", ""), ("column", "{on}"))


# ---- files ----


def load_results(folders):
    """Read the results of all runs below some folders.

    Other JSON files are skipped. A warning names a result that cannot be read.

    Args:
        folders: a list of folders.

    Returns:
        {(experiment, profile, edition): list of results}, in the order of their files' names. The
        edition is that of the mini data, and None for other data.

    Raises:
        FileNotFoundError: there is no result.
    """
    found = {}
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.json"))]
    for path in paths:
        if path.parent.name == "replaced":
            continue
        try:
            result = read_result(path)
        except ValueError as error:
            warnings.warn(f"{error} The report leaves it out.", stacklevel=2)
            continue
        if result is None:
            continue
        key = (str(result["experiment"]), str(result.get("profile")), _edition(result))
        runs, name = found.setdefault(key, {}), str(result["name"])
        if name in runs and _measured(runs[name]) != _measured(result):
            warnings.warn(
                f"{path} is another run of the name {name!r} in {key[0]}; the report has this one "
                "alone. Make a report of each folder to have both.",
                stacklevel=2,
            )
        runs[name] = result
    if not found:
        raise FileNotFoundError(
            f"There is no finished run below {', '.join(map(str, folders))}. `mmlkit reproduce "
            "mml-tables` makes some."
        )
    return {key: list(runs.values()) for key, runs in found.items()}


def _measured(result):
    """Return the parameters and scores as a text; NaN equals NaN in it."""
    return json.dumps([result["parameters"], result["scores"]], sort_keys=True)


def _edition(result):
    """Return the edition of the mini data that a run has read; until the second none is named."""
    mini = result["settings"].get("source") == "mini"
    return str(result["versions"].get("mini_data", 2)) if mini else None


def finite(results, key):
    """Return the finite numbers that results have under a key.

    Args:
        results: a list of results of `load_results`.
        key: such as "minutes".

    Returns:
        A list of numbers.
    """
    return [result[key] for result in results if is_finite(result.get(key))]


# ---- experiments with their runs ----


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
    for given in (result["parameters"] for result in results):
        differ.update(changed_parameters(points.setdefault(point(given), given), given))
    planned = {point(given): given for given in experiment.runs.values()}
    named = sorted(differ.difference(experiment.grid, ["seed"]))
    for result in results:
        given = result["parameters"]
        plan = planned.get(point(given), {})
        others = [f"{key} {given.get(key)}" for key in named if given.get(key) != plan.get(key)]
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
            found.update(changed_parameters(result["parameters"], plan))
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
        for claim in load_experiment(name).claims
        if claim.get("primary") and (name, claim["says"]) not in told
    ]


# ---- tables ----


def long_frame(experiment, results):
    """Return one row for each score.

    Where the experiment names a baseline, the relative improvement over it is among the scores:
    the mean ratio of the accuracies on the other sets, minus one, in percent, for each seed.

    Args:
        experiment: the Experiment.
        results: a list of results of `load_results`.

    Returns:
        A DataFrame with the parameters of the grid, seed, on, split, metric, value.
    """
    import pandas as pd

    keys = [*dict.fromkeys([*experiment.grid, "seed"])]
    order = {run: number for number, run in enumerate(experiment.runs)}
    rows = []
    for result in sorted(results, key=lambda one: order.get(str(one["name"]), len(order))):
        given = {**dict.fromkeys(keys, "missing"), "seed": 0, **result["parameters"]}
        rows += [{**given, **score} for score in result["scores"]]
    frame = pd.DataFrame(rows, columns=[*keys, *CELL, "value"])
    for key in [*keys, *CELL]:
        if {*map(type, frame[key].tolist())} not in ({str}, {int}, {float}, {bool}):
            frame[key] = frame[key].map(str)
    first, baseline = keys[0], experiment.published.get("improvement_over")
    base = frame[frame[first] == baseline]
    both = frame[frame[first] != baseline].merge(
        base, on=[*keys[1:], *CELL], suffixes=("", "_base")
    )
    both = both[both["on"] != both.get("task")]
    if both.empty:
        return frame
    both["value"] = 100 * (both["value"] / both["value_base"] - 1)
    groups = both.groupby([*keys, "split"], sort=False)["value"]
    better = groups.agg(lambda values: values.mean(skipna=False)).reset_index()
    better = better.assign(on="improvement", metric="improvement")
    return pd.concat([frame, better], ignore_index=True)


def comparison(experiment, frame):
    """Return one row for each cell of the table.

    Args:
        experiment: the Experiment.
        frame: a DataFrame of `long_frame`.

    Returns:
        A DataFrame with published, recomputed, ours (the mean over seeds), sd and seeds; NaN where
        there is no number.
    """
    import pandas as pd

    published = experiment.published
    names, printed = published.get("names", {}), {}
    for source, table in published.get("tables", []):
        cells = tables(source)
        for row in cells[cells["table"] == table].itertuples():
            key = (row.row, row.column, row.split, row.metric)
            printed.setdefault(key, (row.printed, row.recomputed))
    keys = [key for key in experiment.grid if key != "seed"]
    columns = [*keys, *CELL]
    rows = []
    for cell, part in frame.groupby(columns, sort=False)["value"]:
        cell = dict(zip(columns, cell))
        factor = 1 if cell["metric"] == "improvement" else published.get("scale", 1)
        found = (math.nan, math.nan)
        options = {key: names.get(str(cell[key]), [str(cell[key])]) for key in (*keys, "on")}
        for values in itertools.product(*options.values()):
            words = dict(zip(options, values))
            place = [published.get(*key).format_map(words) for key in _PLACE]
            found = printed.get((*place, cell["split"], cell["metric"]), found)
        ours = {"ours": factor * part.mean(), "sd": factor * part.std(), "seeds": part.count()}
        rows.append({**cell, "published": found[0], "recomputed": found[1], **ours})
    return pd.DataFrame(rows)


def headline(experiment, frame):
    """Return the short table: one row for each value of the experiment's first parameter.

    Args:
        experiment: the Experiment.
        frame: a DataFrame of `long_frame`.

    Returns:
        A DataFrame with published, recomputed, ours, sd and seeds: scores times 100, improvements
        in percent. ours and sd are over the seeds that all rows have (`common_seeds`), and over the
        tasks and sets that all have; everything else is averaged. A value with runs of fewer tasks
        or sets than the others has no row (`unfinished`). An experiment that chooses a parameter
        has a row for each of its values.
    """
    by = _first(experiment)
    published = experiment.published
    part = frame[frame["split"] == "dev"].dropna(subset="value")
    if "headline_on" in published:
        own = published["headline_on"] == "own"
        metric = "score of the task trained on" if own else "score of other sets"
        part = part[(part["on"] == part["task"]) == own]
    else:
        metric = published.get("headline") or next(iter(frame["metric"]), None)
        part = part[part["metric"] == metric]
    part = part[~part[by].isin(unfinished(experiment, part))]
    part = part[part["seed"].isin(common_seeds(experiment, part))]
    if (key := experiment.chosen) is None:  # otherwise its values have rows of their own
        part = _common_cells(part, by)
    if part.empty:
        return part
    if key in part:
        part = part.assign(**{by: [f"{a}, {key} {b}" for a, b in zip(part[by], part[key])]})
    improved = metric == "improvement"
    scale = 1 if improved else 100
    means = scale * part.groupby([by, "seed"], sort=False)["value"].mean()
    ours = means.groupby(by, sort=False).agg(ours="mean", sd="std", seeds="count")
    cells = comparison(experiment, part).groupby(by, sort=False)
    printed = cells[["published", "recomputed"]].mean()
    printed *= scale / (1 if improved else published.get("scale", 1))
    unit = ", %" if improved else " times 100"
    return printed.join(ours).rename_axis(f"{by}: dev {metric}{unit}").reset_index()


def _cells(frame, by):
    """Return {(value of `by`, seed): the set of its cells, such as tasks and sets}."""
    keys = [key for key in frame if key not in (by, "seed", "value")]
    rows = frame[keys].astype(str).itertuples(index=False, name=None)
    found = defaultdict(set)
    for value, seed, cell in zip(frame[by], frame["seed"], rows):
        found[value, seed].add(cell)
    return found


def _common_cells(frame, by):
    """Keep the scores that every value of `by` has with every seed, where there are several.

    In the middle of a batch, one method may have runs of easy tasks and another of hard ones.
    """
    if frame[by].nunique() < 2:
        return frame
    shared = set.intersection(*_cells(frame, by).values())
    keys = [key for key in frame if key not in (by, "seed", "value")]
    rows = frame[keys].astype(str).itertuples(index=False, name=None)
    return frame[[row in shared for row in rows]]


def unfinished(experiment, frame):
    """Return the values of the first parameter that lack tasks or sets which others have.

    A mean over two easy tasks could be above one over four, and would say nothing.

    Args:
        experiment: the Experiment; one that chooses a parameter is not compared in this way.
        frame: a DataFrame of `long_frame`.

    Returns:
        A set of values. It is empty where every value lacks something that another has.
    """
    by = _first(experiment)
    if experiment.chosen is not None:
        return set()
    cells, everything = _cells(frame, by), defaultdict(set)
    for (_, seed), found in cells.items():
        everything[seed] |= found
    short = {value for (value, seed), found in cells.items() if found != everything[seed]}
    return short if len(short) < frame[by].nunique() else set()


def common_seeds(experiment, frame):
    """Return the seeds that all recorded values of an experiment's first parameter have.

    Means over unequal seeds could contradict the claims, which compare runs of the same seed.

    Args:
        experiment: the Experiment.
        frame: a DataFrame of `long_frame`.

    Returns:
        A set of seeds; where no seed is common to all values, every seed.
    """
    seeds = frame.groupby(_first(experiment))["seed"].agg(set)
    return (set.intersection(*seeds) if len(seeds) else set()) or set(frame["seed"])


def _first(experiment):
    return next(key for key in (*experiment.grid, "on") if key != "seed")


def best_values(experiment, frame):
    """Return which value of `experiment.chosen` has the highest mean dev score; a tie: the lower.

    Args:
        experiment: the Experiment.
        frame: a DataFrame of `long_frame`.

    Returns:
        {value of the first parameter: (the chosen value, its mean score)}, for those with all runs.
    """
    if experiment.chosen is None:
        return {}
    by, key = next(iter(experiment.grid)), experiment.chosen
    part = frame[frame["split"] == "dev"]
    part = part[part["metric"] == next(iter(part["metric"]), None)]
    wanted, found = math.prod(map(len, experiment.grid.values())), {}
    for first, runs in part.groupby(by, sort=False):
        if len(runs) == wanted // len(experiment.grid[by]):
            means = runs.groupby(key)["value"].mean()  # in the order of the values
            found[first] = (means.idxmax(), means.max())
    return found


# ---- claims ----


def select(frame, values):
    """Return the rows of a table of scores with these values.

    Args:
        frame: a DataFrame of `long_frame`, in which a column of several types is one of texts.
        values: {column: value}.

    Returns:
        A DataFrame.
    """
    for column, value in values.items():
        texts = {*map(type, frame[column].tolist())} == {str}
        frame = frame[frame[column] == (str(value) if texts else value)]
    return frame


_VALUES = ["value", "value_second"]


def compare_claim(claim, frame, scale=1, level=0.95):
    """Compare the two sides of a claim over the same seeds, tasks and sets.

    Args:
        claim: a dict of says, first, second (values of the grid), metric, and on: "others" (sets
            not trained on), "own" (dev of the task trained on), a set, or missing for all of dev.
        frame: a DataFrame of `long_frame`.
        scale: 100 for percentage points; an improvement is not scaled.
        level: the level of the interval.

    Returns:
        A Comparison of the mean difference, or None without runs of both sides.
    """
    on, metric, sides = claim.get("on"), claim.get("metric"), []
    if not {*claim["first"], *claim["second"]} <= {*frame}:  # the grid of another size
        return None
    scale = 1 if metric == "improvement" else scale  # that is in percent already
    for side in (claim["first"], claim["second"]):
        part = select(frame, side)
        part = part[part["metric"] == metric if metric else part["metric"] != "improvement"]
        if on == "others":
            part = part[part["on"] != part["task"]]
        else:
            target = part["task"] if on == "own" else part["on"] if on is None else on
            part = part[(part["on"] == target) & (part["split"] == "dev")]
        sides.append(part.drop(columns=list(side)))
    keys = [key for key in sides[0] if key != "value" and key in sides[1]]
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_second")).dropna()
    if both.empty:
        return None
    means = scale * _of_equal_sets(both, keys, level).groupby("seed")[_VALUES].mean()
    return paired_bootstrap(*(means[name] for name in _VALUES), level=level)


def _of_equal_sets(both, keys, level):
    """Keep the seeds that have the same sets, and only these sets.

    Of the sets that seeds have, the largest one is taken that enough seeds for an interval have; if
    there is none, the largest.
    """
    others = [key for key in keys if key != "seed"]
    both = both.assign(cell=[*both[others].astype(str).itertuples(index=False, name=None)])
    cells = both.groupby("seed")["cell"].agg(frozenset)

    def rank(these):
        seeds = sum(one >= these for one in cells)
        return seeds >= pairs_needed(level), len(these), seeds

    most = max(cells, key=rank)
    seeds = [seed for seed, one in cells.items() if one >= most]
    return both[both["cell"].isin(most) & both["seed"].isin(seeds)]
