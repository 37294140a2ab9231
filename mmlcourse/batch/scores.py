"""Tables of the scores of an experiment's runs, and what they say about a claim.

Published, recomputed and our own numbers stand in separate columns.
"""

import itertools
import math

from mmlcourse.studies.comparisons import paired_bootstrap, pairs_needed
from mmlcourse.studies.published import tables

__all__ = [
    "CELL",
    "NUMBERS",
    "best_values",
    "common_seeds",
    "compare_claim",
    "comparison",
    "first_parameter",
    "headline",
    "incomplete",
    "long_frame",
    "rounded",
    "select",
]

CELL = ["on", "split", "metric"]
NUMBERS = ["published", "recomputed", "ours", "sd"]
_PLACE = (("row", ""), ("column", "{on}"))


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
        A DataFrame with published, recomputed, ours (the mean over seeds), sd and seeds: scores
        times 100, improvements in percent; NaN where there is no number.
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
        is_score = cell["metric"] != "improvement"
        factor, scale = (100, published.get("scale", 1)) if is_score else (1, 1)
        found = (math.nan, math.nan)
        options = {key: names.get(str(cell[key]), [str(cell[key])]) for key in (*keys, "on")}
        for values in itertools.product(*options.values()):
            words = dict(zip(options, values))
            place = [published.get(*key).format_map(words) for key in _PLACE]
            found = printed.get((*place, cell["split"], cell["metric"]), found)
        ours = {"ours": factor * part.mean(), "sd": factor * part.std(), "seeds": part.count()}
        there = {"published": found[0] * factor / scale, "recomputed": found[1] * factor / scale}
        rows.append({**cell, **there, **ours})
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
        or sets than the others has no row (`incomplete`). An experiment that chooses a parameter
        has a row for each of its values.
    """
    by = first_parameter(experiment)
    published = experiment.published
    part = frame[frame["split"] == "dev"].dropna(subset="value")
    if "headline_on" in published:
        own = published["headline_on"] == "own"
        metric = "score of the task trained on" if own else "score of other sets"
        part = part[(part["on"] == part["task"]) == own]
    else:
        metric = published.get("headline") or next(iter(frame["metric"]), None)
        part = part[part["metric"] == metric]
    part = part[~part[by].isin(incomplete(experiment, part))]
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
    unit = ", %" if improved else " times 100"
    return printed.join(ours).rename_axis(f"{by}: dev {metric}{unit}").reset_index()


def _with_cells(frame, *apart):
    """Add a column with the cell of each score: its values in all columns but `apart`."""
    keys = [key for key in frame if key not in (*apart, "value")]
    return frame.assign(cell=[*frame[keys].astype(str).itertuples(index=False, name=None)])


def _common_cells(frame, by):
    """Keep the scores that every value of `by` has with every seed, where there are several.

    In the middle of a batch, one method may have runs of easy tasks and another of hard ones.
    """
    if frame[by].nunique() < 2:
        return frame
    frame = _with_cells(frame, by, "seed")
    shared = set.intersection(*frame.groupby([by, "seed"])["cell"].agg(set))
    return frame[frame["cell"].isin(shared)]


def incomplete(experiment, frame):
    """Return the values of the first parameter that lack tasks, sets or seeds which others have.

    A mean over two easy tasks could be above one over four, and would say nothing. Fewer than six
    seeds are too few where others have six.

    Args:
        experiment: the Experiment; one that chooses a parameter is not compared in this way.
        frame: a DataFrame of `long_frame`.

    Returns:
        A set of values. It is empty where every value lacks something that another has.
    """
    by = first_parameter(experiment)
    if experiment.chosen is not None:
        return set()
    cells = _with_cells(frame, by, "seed").groupby([by, "seed"])["cell"].agg(set)
    every = cells.groupby("seed").agg(lambda found: set.union(*found))
    short = {value for (value, seed), found in cells.items() if found != every[seed]}
    seeds = frame.groupby(by)["seed"].nunique()
    if (seeds >= pairs_needed(0.95)).any():
        short |= {*seeds.index[seeds < pairs_needed(0.95)]}
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
    seeds = frame.groupby(first_parameter(experiment))["seed"].agg(set)
    return (set.intersection(*seeds) if len(seeds) else set()) or set(frame["seed"])


def first_parameter(experiment):
    """Return the first parameter of a grid but the seed.

    Args:
        experiment: the Experiment.

    Returns:
        Its name; "on" where there is none.
    """
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
    by, key = first_parameter(experiment), experiment.chosen
    part = frame[frame["split"] == "dev"]
    part = part[part["metric"] == next(iter(part["metric"]), None)]
    wanted, found = math.prod(map(len, experiment.grid.values())), {}
    for first, runs in part.groupby(by, sort=False):
        if len(runs) == wanted // len(experiment.grid[by]):
            means = runs.groupby(key)["value"].mean()  # in the order of the values
            found[first] = (means.idxmax(), means.max())
    return found


def rounded(table):
    """Return a table of `comparison` or `headline` with texts for numbers.

    Args:
        table: the DataFrame.

    Returns:
        A DataFrame with two or three decimals, and without `recomputed` where it is empty.
    """
    places = 2 if table["ours"].abs().max() > 1.5 else 3
    texts = table[NUMBERS].map(lambda one: f"{one:.{places}f}" if math.isfinite(one) else "")
    table = table.assign(**texts)
    return table if any(table["recomputed"]) else table.drop(columns="recomputed")


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


def compare_claim(claim, frame, level=0.95):
    """Compare the two sides of a claim over the same seeds, tasks and sets, in points of 100.

    Args:
        claim: a dict of says, first, second (values of the grid), metric, and on: "others" (sets
            not trained on), "own" (dev of the task trained on), a set, or missing for all of dev.
        frame: a DataFrame of `long_frame`.
        level: the level of the interval.

    Returns:
        A Comparison of the mean difference, or None without runs of both sides.
    """
    on, metric, sides = claim.get("on"), claim.get("metric"), []
    if not {*claim["first"], *claim["second"]} <= {*frame}:  # the grid of another size
        return None
    scale = 1 if metric == "improvement" else 100  # that is in percent already
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
    both = _of_equal_sets(both[[*keys, *_VALUES]], level)
    means = scale * both.groupby("seed")[_VALUES].mean()
    return paired_bootstrap(*(means[name] for name in _VALUES), level=level)


def _of_equal_sets(both, level):
    """Keep the seeds that have the same sets, and only these sets.

    Of the sets that seeds have, the largest one is taken that enough seeds for an interval have; if
    there is none, the largest.
    """
    both = _with_cells(both, "seed", "value_second")
    cells = both.groupby("seed")["cell"].agg(frozenset)

    def rank(these):
        seeds = sum(one >= these for one in cells)
        return seeds >= pairs_needed(level), len(these), seeds

    most = max(cells, key=rank)
    seeds = [seed for seed, one in cells.items() if one >= most]
    return both[both["cell"].isin(most) & both["seed"].isin(seeds)]
