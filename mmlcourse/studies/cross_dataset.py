"""Evaluation on data sets that a model was not trained on.

Section 4.2 of MML v2. The train split of another data set is as unknown to a model as its dev
split: 4*3*2 inference and 3*2*2 similarity experiments make 36. Notebook 05 uses this module.
"""

import math

import numpy as np

from mmlcourse.studies.comparisons import matched
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import encode
from mmlkit.data.loading import load_task
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import PairHead
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.features import encode_once
from mmlkit.training.model import MultitaskModel

__all__ = [
    "CATEGORIES",
    "two_way",
    "cosine_answers",
    "cross_dataset_table",
    "relative_improvement",
    "improvements",
    "cell_improvements",
    "hold_out_errors",
    "performance_profile",
]

CATEGORIES = {
    "inference": ("rte", "mnli", "qnli", "snli"),
    "similarity": ("qqp", "mrpc", "stsb_star"),
}
POSITIVE = ("entailment", "entails", "duplicate", "equivalent", "similar")
NEGATIVE = ("neutral", "contradiction", *(f"not_{label}" for label in POSITIVE))
COLUMNS = ["method", "trained_on", "evaluated_on", "split", "accuracy"]


# ---- evaluation ----


def two_way(scores, labels, collapse="argmax", *, as_probabilities=False):
    """Return whether each row is positive: entailment, duplicate, equivalent or similar.

    Labels are recognised by name, never by position. The two rules differ where entailment is the
    most probable label with less than a half. The paper does not say which rule it used.

    Args:
        scores: [N, C], one column per label; logits unless `as_probabilities`.
        labels: the C names, in the order of the columns.
        collapse: "argmax" takes the best label, and then whether it is positive. "sum" adds the
            probabilities of the positive and of the negative labels (neutral + contradiction).
        as_probabilities: whether the scores are probabilities already.

    Returns:
        [N] booleans.

    Raises:
        ValueError: a label or rule is unknown.

    Example::

        two_way([[2.0, 1.0, 0.5]], ("entailment", "neutral", "contradiction"))  # [True]
    """
    from scipy.special import softmax

    scores, positive = np.asarray(scores, dtype=float), _is_positive(labels)
    if collapse not in ("argmax", "sum"):
        raise ValueError(f"collapse is {collapse!r}, expected 'argmax' or 'sum'.")
    if collapse == "argmax":
        return positive[scores.argmax(axis=1)]
    probabilities = scores if as_probabilities else softmax(scores, axis=1)
    return probabilities[:, positive].sum(axis=1) > probabilities[:, ~positive].sum(axis=1)


def _is_positive(labels):
    for label in labels:
        if label not in POSITIVE + NEGATIVE:
            raise ValueError(f"{label!r} is neither positive {POSITIVE} nor negative {NEGATIVE}.")
    return np.isin(labels, POSITIVE)


def cosine_answers(known, split, model="minilm"):
    """Return whether the cosine of two sentences, without training, calls a row positive.

    The threshold has the best balanced accuracy on other rows of the data set.

    Args:
        known: a labelled Split of these other rows; 200 are enough.
        split: the Split that is answered.
        model: for `load_pretrained`; its mean vectors are compared.

    Returns:
        [N] booleans.
    """
    encoder, tokenizer = load_pretrained(model)
    with seeded(0):  # the caller's random numbers stay the same
        head = PairHead(encoder.config.hidden_size, split.task.num_labels)
    untrained = MultitaskModel(encoder, {split.task.name: head}, tokenizer)
    untrained.to(next(encoder.parameters()).device)

    def cosines(rows):
        encoded = encode(tokenizer, rows, max_length=160, pairs="separate")
        u, v = encode_once(untrained, encoded).features.float().unbind(1)
        return (u * v).sum(1).div(u.norm(dim=1) * v.norm(dim=1)).numpy()

    near, yes = cosines(known), _is_positive(known.task.labels)[known.labels]

    def balanced(limit):
        return (near[yes] >= limit).mean() + (near[~yes] < limit).mean()

    return cosines(split) >= max(near, key=balanced)


def cross_dataset_table(
    models,
    data=None,
    *,
    method="model",
    collapse="argmax",
    splits=("train", "dev"),
    categories=CATEGORIES,
    **options,
):
    """Return the accuracy of each model on every data set of its category, its own included.

    Each pair of texts goes through the head of the task that the model was trained on. Where model
    and data set have the same labels, all of them count: the diagonal, and MNLI and SNLI on each
    other, are three-way (the paper does not say). MNLI's dev split is the matched one.

    Args:
        models: {task that the model was trained on: MultitaskModel}.
        data: {task: TaskData} to evaluate on; by default the mini sets. A data set that is left
            out gets no rows.
        method: the value of the column "method". pandas.concat joins the tables of several methods,
            and of several seeds with a column "seed".
        collapse: the rule of `two_way`, used at evaluation only.
        splits: the splits of every data set.
        categories: {name: tasks that are evaluated on each other}; by default the paper's.
        **options: keywords of `predict`, such as batch_size, max_length and precision.

    Returns:
        A DataFrame: method, trained_on, evaluated_on, split, accuracy (from 0 to 1), rows.

    Raises:
        KeyError: a task is in no category.
        ValueError: a split has no labels, or a model does not fit (from `predict_scores`).
    """
    import pandas as pd

    category = {task: sets for sets in categories.values() for task in sets}
    related = {task: category[task] for task in models}
    if data is None:
        data = {name: load_task(name) for name in {*sum(related.values(), ())}}

    def accuracy(trained, split):
        model, labels, names = models[trained], get_task(trained).labels, split.task.labels
        if split.labels is None:  # all rows would be wrong
            raise ValueError(f"the split {split.name!r} of {split.task.name} has no labels.")
        scores = predict_scores(model, split.texts, task=get_task(trained), **options)
        if set(labels) == set(names):  # possibly in another order
            columns = [labels.index(name) for name in names]
            return float(np.mean(scores[:, columns].argmax(axis=1) == split.labels))
        given = getattr(model.heads[trained], "gives_probabilities", False)
        found = two_way(scores, labels, collapse, as_probabilities=given)
        return float(np.mean(found == _is_positive(names)[split.labels]))

    rows = [
        (method, trained, target, part, accuracy(trained, split), len(split))
        for trained, sets in related.items()
        for target in sets
        if target in data
        for part in splits
        for split in [data[target].splits[part]]
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "rows"])


# ---- improvements over a baseline ----


def relative_improvement(acc, baseline, *, truncate=False):
    """Return the improvement over a baseline in percent, 100 * (mean of the ratios - 1).

    Tables 2 to 5 of MML v2 use it. It is neither the ratio of means nor a difference in points.

    Args:
        acc: accuracies, one per hold-out set. Dicts and Series are matched by key, lists by place.
        baseline: the baseline's accuracies, in the same form.
        truncate: whether to cut to two decimals towards zero, as the paper prints.

    Returns:
        The improvement, a float.

    Raises:
        ValueError: the two do not match, are empty, or a number is missing.

    Example::

        relative_improvement([60, 90], [50, 100])  # 5.0, the mean of +20 % and -10 %
    """
    acc, baseline = matched(acc, baseline)
    percent = float(100 * (np.mean(acc / baseline) - 1))
    if truncate:
        return math.trunc(round(percent * 100, 6)) / 100  # rounded first: 0.29 * 100 is 28.999...
    return percent


def hold_out_errors(table, top=1.0):
    """Return the errors of all experiments off the diagonal, as `performance_profile` takes them.

    Args:
        table: as `cross_dataset_table` returns it, with several methods (and seeds).
        top: the accuracy of a perfect model, 1 or 100. An error is top - accuracy.

    Returns:
        A DataFrame, experiments x methods.

    Raises:
        ValueError: a method has an experiment twice (from pandas), or lacks it.
    """
    keys = [*(["seed"] if "seed" in table else []), *COLUMNS[1:4]]
    table = table[table["trained_on"] != table["evaluated_on"]]
    wide = table.pivot(index=keys, columns="method", values="accuracy")
    order = table[keys].drop_duplicates().itertuples(index=False, name=None)
    wide = wide.reindex(index=list(order), columns=table["method"].unique())
    if (missing := wide.isna().any()).any():
        raise ValueError(
            f"{missing.idxmax()!r} lacks some experiments of the other methods; evaluate all "
            "methods on the same sets."
        )
    return top - wide


def improvements(table, *, over="evaluated_on"):
    """Return the last column of MML's tables: each model's mean improvement on the other data sets.

    With over="trained_on" it is the last row: the mean improvement of the other models on each set.

    Args:
        table: as in `hold_out_errors`. Each seed is compared with its own baseline, "bert".
        over: the column over which the mean is taken.

    Returns:
        A DataFrame: seed (where the table has it), trained_on, split, method, improvement in
        percent.

    Raises:
        ValueError: the table is incomplete.
    """
    percents = _percents(table).drop(columns="bert")
    keys = [key for key in percents.index.names if key != over]
    means = percents.groupby(level=keys, sort=False).mean()
    return means.stack().rename("improvement").reset_index()


def _percents(table):
    """The improvement over the method "bert" in every experiment off the diagonal, in percent."""
    accuracies = 1 - hold_out_errors(table)
    return 100 * (accuracies.div(accuracies["bert"], axis=0) - 1)


def cell_improvements(table):
    """Return the improvement over the method "bert" in every cell off the diagonal, in percent.

    Args:
        table: as in `improvements`. A cell with several seeds holds their mean, each seed compared
            with its own baseline.

    Returns:
        A DataFrame with the index split, trained_on, evaluated_on and a column per method.

    Raises:
        ValueError: the table is incomplete.

    Example::

        cell_improvements(table)["mml"]["dev"].unstack()    # trained_on x evaluated_on
    """
    return _percents(table).groupby(level=["split", "trained_on", "evaluated_on"]).mean()


def performance_profile(errors, taus, *, top=None):
    """Return how often a method is within a factor tau of the best (Dolan and Moré, 2002; Fig. 3).

    The caption of Fig. 3 says "less than"; "at most" is used here, since otherwise no method
    would count at tau = 1. All tied methods count.

    Args:
        errors: DataFrame, experiments x methods.
        taus: factors of at least 1.
        top: None counts err <= tau * lowest err, as in the caption. The accuracy of a perfect
            model, 100 for percent or 1 for shares, counts acc >= highest acc / tau, as in the text.

    Returns:
        A DataFrame of shares, taus x methods.

    Raises:
        ValueError: an error is missing or negative.

    Example::

        performance_profile({"a": [10, 20], "b": [12, 10]}, [1, 1.2, 2])
    """
    import pandas as pd

    errors, taus = pd.DataFrame(errors), np.asarray(taus, dtype=float)
    if not (errors >= 0).all(axis=None):  # nan is not
        raise ValueError("errors must be numbers of at least 0, experiments x methods.")
    within = _ratios(errors, top) <= taus[:, None, None] * (1 + 1e-9)  # the last digit
    return pd.DataFrame(within.mean(axis=1), pd.Index(taus, name="tau"), errors.columns)


def _ratios(errors, top):
    """How many times worse than the best method: [experiments, methods]."""
    values = errors.to_numpy(dtype=float)
    more, less = values, values.min(axis=1, keepdims=True)
    if top is not None:
        more, less = top - less, top - values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(more == less, 1.0, more / less)
