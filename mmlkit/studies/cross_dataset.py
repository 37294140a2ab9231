"""How models do on sets they were not trained on, and what such tables allow one to say (MML v2, section 4.2; notebook 05).

Nothing is trained here, so another set's train split counts as much as its dev split: 4*3*2 + 3*2*2 = 36 experiments.
"""

import math
from typing import NamedTuple

import numpy as np

from mmlkit.data.loading import load_task
from mmlkit.data.tasks import get_task
from mmlkit.training.evaluation import predict

__all__ = ["CATEGORIES", "two_way", "cross_dataset_table", "relative_improvement", "improvements", "footers", "hold_out_errors",
           "performance_profile", "glue_average", "Comparison", "paired_bootstrap", "outcome", "verdict"]

CATEGORIES = {"inference": ("rte", "mnli", "qnli", "snli"), "similarity": ("qqp", "mrpc", "stsb_star")}
YES = ("entailment", "entails", "duplicate", "equivalent", "similar")
NO = ("not_entailment", "neutral", "contradiction", "not_duplicate", "not_equivalent", "not_similar")
EIGHT = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
COLUMNS = ["method", "trained_on", "evaluated_on", "split", "accuracy"]


def two_way(scores, labels, manner="argmax", *, as_probabilities=False):
    """Whether each row is a yes (entailment, duplicate, equivalent, similar), told by the labels' names, never by their places.

    scores: [N,C], logits unless as_probabilities. labels: the C names, in the order of the columns.
    manner: "argmax" takes the best label, then its side; "sum" adds the probabilities of each side (neutral + contradiction).
    They differ where entailment leads with less than a half; the paper does not say which it took. Returns [N] booleans.
    Raises ValueError for an unknown label or manner, or when columns and labels differ in number.
    """
    from scipy.special import softmax

    scores, sides = np.asarray(scores, dtype=float), _sides(list(labels))
    if scores.ndim != 2 or scores.shape[1] != len(sides):
        raise ValueError(f"scores have shape {list(scores.shape)}, expected [N, {len(sides)}]: one column for each of {list(labels)}.")
    if _known(manner, "manner", ("argmax", "sum")) == "argmax":
        return sides[scores.argmax(axis=1)]
    chances = scores if as_probabilities else softmax(scores, axis=1)
    return chances[:, sides].sum(axis=1) > chances[:, ~sides].sum(axis=1)


def _known(word, name, words):
    if word not in words:
        raise ValueError(f"{name} is {word!r}, expected {' or '.join(map(repr, words))}.")
    return word


def _sides(labels):
    if (unknown := [label for label in labels if label not in YES + NO]) or not labels:
        raise ValueError(f"{unknown[0] if unknown else 'a regression score'!r} is neither a yes {YES} nor a no {NO}.")
    return np.array([label in YES for label in labels])


def cross_dataset_table(models, data=None, *, method="model", collapse="argmax", splits=("train", "dev"), batch_size=64,
                        max_length=512, precision="fp32"):
    """The accuracy of each model on every set of its category, its own included. Trains nothing.

    models: {task it was trained on: MultitaskModel}. data: {task: TaskData} to evaluate on, the mini sets when left out; a
    set that is not in it gets no rows.
    method: what stands in that column; put tables of several methods (and seeds, in a column "seed") together with pandas.concat.
    collapse: the manner of `two_way`, at evaluation only. splits: which ones of every set.
    Pairs go through the head of the task the model was trained on, in the set's own order. Where both have the same labels these
    are kept: the diagonal, and MNLI and SNLI on each other (the paper is silent), are three-way. MNLI's dev is the matched one.
    Returns a DataFrame: method, trained_on, evaluated_on, split, accuracy (a share, 0 to 1), rows.
    Raises ValueError for a task outside the categories, a model without its head, data under a wrong name or without labels.
    """
    import pandas as pd

    if not isinstance(models, dict) or not models:
        raise ValueError("models must be a dict {task it was trained on: MultitaskModel} of at least one, such as {'rte': model}.")
    _known(collapse, "collapse", ("argmax", "sum"))
    related = {task: _category(task, "models") for task in models}
    data = {name: load_task(name) for sets in dict.fromkeys(related.values()) for name in sets} if data is None else data
    known = {(name, part): _split(name, one, part) for name, one in data.items() if _category(name, "data") for part in splits}
    for trained, sets in related.items():       # what is wrong with the last model is told before hours went into the first
        models[trained].head(get_task(trained))
        if not set(sets) & set(data):
            raise ValueError(f"data holds none of {', '.join(sets)}: there is nothing to evaluate the {trained} model on.")
    how = dict(batch_size=batch_size, max_length=max_length, precision=precision)
    rows = [(method, trained, target, part, _accuracy(models[trained], trained, known[target, part], collapse, how), len(known[target, part]))
            for trained, sets in related.items() for target in sets if target in data for part in splits]
    return pd.DataFrame(rows, columns=[*COLUMNS, "rows"])


def _accuracy(model, trained, split, manner, how):
    scores, labels, names = predict(model, split.texts, task=trained, **how), get_task(trained).labels, split.task.labels
    if set(labels) == set(names):       # by name here too: the same labels may stand in another order
        return float(np.mean(scores[:, [labels.index(name) for name in names]].argmax(axis=1) == split.labels))
    given = getattr(model.heads[trained], "gives_probabilities", False)       # SAN's are probabilities already
    return float(np.mean(two_way(scores, labels, manner, as_probabilities=given) == _sides(names)[split.labels]))


def _category(task, where):
    for sets in (sets for sets in CATEGORIES.values() if task in sets):
        return sets
    hint = {"stsb": " Its scores become labels in 'stsb_star'.", "quora": " Quora's pairs are 'qqp' here."}.get(task, "")
    raise ValueError(f"{where} has {task!r}, which is in no category of the protocol.{hint} Known sets: {', '.join(sum(CATEGORIES.values(), ()))}.")


def _split(name, data, part):
    if data.task.name != name:
        raise ValueError(f"data[{name!r}] holds the rows of {data.task.name!r}; give it load_task({name!r}).")
    split = data.split(part)
    if split is None or split.labels is None:
        raise ValueError(f"{name} from {data.source!r} has no split {part!r} with labels; choose other splits, or other data.")
    return split


def relative_improvement(acc, baseline, *, truncate=False):
    """By how many percent accuracies lie above a baseline's: 100 * (mean of the ratios - 1), as in Tables 2 to 5.

    acc, baseline: one value per hold-out set; dicts or Series are matched by key, lists by place. It is neither the ratio of
    means nor a difference in points. truncate: cut to two decimals towards zero, as the paper prints.
    Raises ValueError when the two do not match, are empty, or the baseline is not above zero.
    """
    acc, baseline = _matched(acc, baseline, "accuracies", "baseline")
    if (baseline <= 0).any():
        raise ValueError(f"the baseline holds {baseline.min():g}; a ratio to it needs accuracies above zero.")
    percent = float(100 * (np.mean(acc / baseline) - 1))
    return math.trunc(round(percent * 100, 6)) / 100 if truncate else percent      # rounded first: 0.29 * 100 is 28.999…


def _matched(a, b, first, second):
    if hasattr(a, "keys") != hasattr(b, "keys"):
        raise ValueError(f"{first} and {second} must both be dicts (or Series), or both lists; nothing says which belong together.")
    if hasattr(a, "keys"):      # else by place
        one, two = dict(a.items()), dict(b.items())
        if set(one) != set(two) or len(one) != len(a) or len(two) != len(b):
            raise ValueError(f"{first} have the keys {list(a.keys())}, {second} {list(b.keys())}; both need the same ones, each once.")
        a, b = list(one.values()), [two[key] for key in one]
    a, b = (np.atleast_1d(np.asarray(values, dtype=float)) for values in (a, b))
    if a.ndim != 1 or a.shape != b.shape or not len(a) or not np.isfinite([a, b]).all():
        raise ValueError(f"{first} have shape {list(a.shape)}, {second} {list(b.shape)}; expected as many in both, at least one, none missing.")
    return a, b


def hold_out_errors(table, top=1.0):
    """The errors, top - accuracy, of all experiments off the diagonal: experiments x methods, as `performance_profile` reads them.

    table: of `cross_dataset_table`, several methods (and seeds) put together. Raises ValueError where a method lacks an experiment.
    """
    if missing := [column for column in COLUMNS if column not in table]:
        raise ValueError(f"the table has no column {missing[0]!r} (columns found: {list(table)}); give the frame of cross_dataset_table.")
    keys, table = ["seed"] * ("seed" in table) + COLUMNS[1:4], table[table["trained_on"] != table["evaluated_on"]]
    if (twice := table.duplicated([*keys, "method"])).any():
        raise ValueError(f"the table has two rows for {table.loc[twice, [*keys, 'method']].iloc[0].to_dict()}; tell runs apart by a column 'seed'.")
    wide = table.pivot(index=keys, columns="method", values="accuracy")     # next: rows and columns in the order they came in
    wide = wide.reindex(dict.fromkeys(zip(*(table[key] for key in keys))))[table["method"].unique()]
    for method in wide.columns[wide.isna().any()]:
        raise ValueError(f"{method!r} has no accuracy for {dict(zip(keys, wide.index[wide[method].isna()][0]))}; evaluate all methods on the same sets.")
    return top - wide


def improvements(table, baseline="bert", *, over="evaluated_on"):
    """The papers' last column: each model's mean improvement over the sets it was not trained on, in percent.

    table: as in `hold_out_errors`; each seed is held against its own baseline. Returns (seed,) trained_on, split, method, improvement.
    """
    wide = 1 - hold_out_errors(table)
    if baseline not in wide:
        raise ValueError(f"baseline {baseline!r} is not one of the methods {list(wide)}.")
    keys = [key for key in wide.index.names if key != over]
    found = [(*group, method, relative_improvement(part[method], part[baseline]))
             for group, part in wide.groupby(level=keys, sort=False) for method in wide if method != baseline]
    return type(table)(found, columns=[*keys, "method", "improvement"])


def footers(table, baseline="bert"):
    """The papers' last rows: as `improvements`, but with the mean down each column, so with evaluated_on for trained_on."""
    return improvements(table, baseline, over="trained_on")


def performance_profile(errors, taus, *, reading="error", top=None):
    """The share of experiments in which a method comes within a factor tau of the best (Dolan and Moré, 2002; Fig. 3).

    errors: DataFrame, experiments x methods. taus: at least 1. reading: "error" counts err <= tau * lowest err, the caption (which
    says "less than", but then nobody would count at tau = 1); "accuracy" counts acc >= highest acc / tau, the text's mirror form, and
    needs top, a faultless score: 100 for percent, 1 for shares. Every tied method counts. Returns a DataFrame of shares, taus x methods.
    Raises ValueError for errors that are missing or negative, a tau below 1, or top left out.
    """
    import pandas as pd

    errors, taus = pd.DataFrame(errors), np.atleast_1d(np.asarray(taus, dtype=float))
    values, factors = errors.to_numpy(dtype=float), taus[:, None, None] * (1 + 1e-9)      # the last digit of a product decides nothing
    if not values.size or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("errors must be numbers of at least 0, experiments x methods, none missing; an accuracy becomes one as 100 - accuracy.")
    if not (taus >= 1).all():
        raise ValueError(f"tau {taus[~(taus >= 1)][0]:g} is below 1; it is a factor on the best error.")
    if _known(reading, "reading", ("error", "accuracy")) == "error":
        within = values <= factors * values.min(axis=1, keepdims=True)       # [taus, experiments, methods]
    elif top is None or values.max() > top:
        raise ValueError(f"top is {top}, the largest error {values.max():g}; pass top=100 for errors in percent, top=1 for shares.")
    else:
        within = factors * (top - values) >= (top - values).max(axis=1, keepdims=True)
    return pd.DataFrame(within.mean(axis=1), index=pd.Index(taus, name="tau"), columns=errors.columns)


def glue_average(scores, manner="mml-v2"):
    """One number for a row of GLUE results, in the manner of each paper.

    scores: {task: a number, or a pair: mnli's (matched, mismatched), a task's two metrics}. manner: "mml-v2" averages eight tasks,
    pairs first; "mml-v1" counts every number, so MNLI twice; "glue", the benchmark's and MT-DNN's, is "mml-v2" with wnli, without ax.
    Raises ValueError for an unknown manner, a task too many or too few.
    """
    wanted = (*EIGHT, "wnli") if _known(manner, "manner", ("mml-v2", "mml-v1", "glue")) == "glue" else EIGHT
    if set(scores) != set(wanted):
        raise ValueError(f"{manner} averages {', '.join(wanted)}; missing: {sorted(set(wanted) - set(scores))}, too many: {sorted(set(scores) - set(wanted))}.")
    values = [np.atleast_1d(np.asarray(scores[task], dtype=float)) for task in wanted]
    return float(np.mean(np.concatenate(values) if manner == "mml-v1" else [pair.mean() for pair in values]))


class Comparison(NamedTuple):
    """Two methods over the same seeds: the difference of their means, first minus second, with its interval."""

    difference: float
    low: float
    high: float
    level: float
    pairs: int


def paired_bootstrap(a, b, *, level=0.95, draws=10_000, seed=0):
    """The difference of two means over the same seeds, with an interval: seeds are drawn again, each with both its values.

    a, b: {seed: value} or Series, matched by seed, or lists, matched by place. Bare percentiles are too narrow for a few seeds (with
    6 normal ones a 95 % interval missed the truth in 13 % of 1,500 trials); widened to Student's width (Hesterberg, 2015) it was 6.5 %.
    One pair does not tell its spread: the interval is infinite. Returns a Comparison. Raises ValueError for runs that do not match.
    """
    from scipy.stats import norm, t

    if not 0 < level < 1 or draws < 1:
        raise ValueError(f"level {level} must lie between 0 and 1, draws {draws} be at least 1.")
    differences = np.subtract(*_matched(a, b, "the first method's runs", "the second's"))
    if (n := len(differences)) == 1:
        return Comparison(float(differences[0]), -math.inf, math.inf, level, 1)
    means = differences[np.random.default_rng(seed).integers(n, size=(draws, n))].mean(axis=1)
    tail = norm.cdf(math.sqrt(n / (n - 1)) * t.ppf((1 - level) / 2, n - 1))
    return Comparison(float(differences.mean()), *map(float, np.quantile(means, [tail, 1 - tail])), level, n)


def outcome(comparison, *, at_least=0.0):
    """What a comparison says of the claim that the first method lies above the second, by more than at_least.

    It "holds" when the whole interval lies above at_least, "does not hold" when none of it does, and else "cannot be told"; so too
    with so few pairs n that mere chance puts all on one side more often than 1 - level (2^(1-n): 95 % takes 6).
    """
    above, below = comparison.low > at_least, comparison.high <= at_least
    if comparison.pairs < _pairs_needed(comparison.level) or not (above or below):
        return "cannot be told"
    return "holds" if above else "does not hold"


def verdict(comparison, claim="the first is better", *, at_least=0.0):
    """The `outcome` of a claim as a sentence, with difference, interval and pairs of runs."""
    needed, found = _pairs_needed(comparison.level), outcome(comparison, at_least=at_least)
    low, high = (round(end, 9) + 0.0 for end in (comparison.low, comparison.high))        # no -1e-16
    return (f"{claim}: {found}{' with these runs' if found == 'cannot be told' else ''} (difference {comparison.difference:+.3g}, "
            f"{comparison.level:.0%} interval {low:+.3g} to {high:+.3g}, "
            f"pairs of runs: {comparison.pairs}{f', at least {needed} are needed' if comparison.pairs < needed else ''}).")


def _pairs_needed(level):
    return math.ceil(1 - math.log2(1 - level) - 1e-9)
