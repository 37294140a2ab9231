"""Tables of all finished runs, and the comparison of a claim's two sides over seeds.

Published, recomputed and our own numbers stand in separate columns.
"""

import itertools
import json
import math
import re
import warnings
from collections import defaultdict
from pathlib import Path

from mmlcourse.batch.experiments import is_finite
from mmlcourse.batch.runs import read_result
from mmlcourse.studies.comparisons import paired_bootstrap, pairs_needed
from mmlcourse.studies.published import tables

__all__ = [
    "CELL",
    "best_values",
    "common_seeds",
    "compare_claim",
    "comparison",
    "finite",
    "headline",
    "load_results",
    "long_frame",
    "select",
    "unfinished",
]

CELL = ["on", "split", "metric"]
_PLACE = (("row", ""), ("column", "{on}"))


def load_results(folders):
    """Read the results of all runs below some folders.

    Other JSON files are skipped. A warning names a result that cannot be read.

    Args:
        folders: a list of folders.

    Returns:
        {(experiment, profile, edition): list of results}, in the order of their files' names. The
        edition is that of the mini data, and None for other data.

    Raises:
        FileNotFoundError: a folder is missing, or there is no result.
        ValueError: an experiment or profile is not a plain name.
    """
    found = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder} is not a folder. `mmlkit reproduce NAME` writes its results into "
                "runs/NAME-fast/results."
            )
        for path in sorted(folder.rglob("*.json")):
            if path.parent.name == "replaced" or not path.is_file():
                continue
            try:
                result = read_result(path)
            except (OSError, ValueError) as error:
                if type(error.__cause__) is not LookupError:  # that one is no result at all
                    warnings.warn(f"{error} The report leaves it out.", stacklevel=2)
                continue
            edition = _edition(result)
            _check_name(path, "experiment", result.get("experiment"))
            _check_name(path, "profile", result.get("profile"))
            _check_name(path, "versions.mini_data", edition or "none")
            key = (result["experiment"], result["profile"], edition)
            runs, name = found.setdefault(key, {}), str(result["name"])
            if name in runs and _measured(runs[name]) != _measured(result):
                warnings.warn(
                    f"{path} is another run of the name {name!r} in {key[0]}; the report has this "
                    "one alone. Make a report of each folder to have both.",
                    stacklevel=2,
                )
            runs[name] = result
    if not found:
        raise FileNotFoundError(
            f"There is no finished run below {', '.join(map(str, folders))}. "
            "`mmlkit reproduce mml-tables` makes some."
        )
    return {key: list(runs.values()) for key, runs in found.items()}


def _check_name(path, key, name):
    text = name if isinstance(name, str) and name.isprintable() else ""
    if not re.fullmatch(r"[^./\\:][^/\\:]*", text):
        raise ValueError(
            f"{path}: {key} is {str(name)[:80]!r}, expected a plain name such as 'mml-tables', "
            "without / \\ or : in it, since files are named after it. Correct or remove the file, "
            "and do not trust where it came from."
        )


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
    return [value for value in (result.get(key) for result in results) if is_finite(value)]


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
        kinds = set(map(type, frame[key].tolist()))
        if kinds not in ({str}, {int}, {float}, {bool}) or frame[key].isna().any():
            frame[key] = frame[key].map(str)
    first, baseline = keys[0], experiment.published.get("improvement_over")
    same = [*keys[1:], *CELL]
    base = frame[frame[first] == baseline]
    both = frame[frame[first] != baseline].merge(base, on=same, suffixes=("", "_base"))
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
            place = [published.get(*key).format_map(defaultdict(str, words)) for key in _PLACE]
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
    if part.empty:
        return part
    part = part[~part[by].isin(unfinished(experiment, part))]
    part = part[part["seed"].isin(common_seeds(experiment, part))]
    if experiment.chosen is None:  # otherwise the values of that parameter have rows of their own
        part = _common_cells(part, by)
    if part.empty:
        return part
    if (key := experiment.chosen) in part:
        part = part.assign(**{by: [f"{a}, {key} {b}" for a, b in zip(part[by], part[key])]})
    scale = 1 if metric == "improvement" else 100
    means = scale * part.groupby([by, "seed"], sort=False)["value"].mean()
    ours = means.groupby(by, sort=False).agg(ours="mean", sd="std", seeds="count")
    printed = (
        comparison(experiment, part).groupby(by, sort=False)[["published", "recomputed"]].mean()
    )
    printed *= scale / (1 if metric == "improvement" else published.get("scale", 1))
    unit = ", %" if metric == "improvement" else " times 100"
    return printed.join(ours).rename_axis(f"{by}: dev {metric}{unit}").reset_index()


def _common_cells(frame, by):
    """Keep the scores that every value of `by` has with every seed, where there are several.

    In the middle of a batch, one method may have runs of easy tasks and another of hard ones.
    """
    if frame[by].nunique() < 2:
        return frame
    keys = [key for key in frame if key not in (by, "seed", "value")]
    runs = [
        set(part[keys].itertuples(index=False, name=None))
        for _, part in frame.groupby([by, "seed"])
    ]
    shared = set.intersection(*runs)
    return frame[[row in shared for row in frame[keys].itertuples(index=False, name=None)]]


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
    keys = [key for key in frame if key not in (by, "seed", "value")]
    if experiment.chosen in keys or not keys:
        return set()
    cells, everything = {}, defaultdict(set)
    for (value, seed), part in frame.groupby([by, "seed"]):
        cells[value, seed] = set(part[keys].itertuples(index=False, name=None))
        everything[seed] |= cells[value, seed]
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
    used = {*claim["first"], *claim["second"], *(("task",) if on in ("own", "others") else ())}
    if not used <= {*frame}:  # the grid of another size
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
        if part.empty:
            return None
        sides.append(part.drop(columns=list(side)))
    keys = [key for key in sides[0] if key != "value" and key in sides[1]]
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_second")).dropna()
    if both.empty:
        return None
    means = scale * _of_equal_sets(both, keys, level).groupby("seed")[_VALUES].mean()
    return paired_bootstrap(*(means[name] for name in _VALUES), level=level)


_VALUES = ["value", "value_second"]


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
