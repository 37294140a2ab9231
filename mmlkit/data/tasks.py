"""Task definitions: text columns, label names in order, metrics, and the places of the data.

The labels have the order of the hub's data set. Files are matched by label *name*, because the
orders of MNLI and RTE differ between the hub, MT-DNN and PALs.
"""

import difflib
import re
from dataclasses import dataclass, field, replace

__all__ = ["Task", "get_task", "label_key", "list_tasks", "ranking_task", "task_from_config"]

# Column names in other releases.
_ALIASES = {
    "label": (
        "sentiment",
        "Sentiment",
        "gold_label",
        "Quality",
        "is_duplicate",
        "similarity",
        "score",
        "label_text",
    ),
    "sentence": ("text", "Text"),
    "sentence1": ("#1 String", "premise", "question1"),
    "sentence2": ("#2 String", "hypothesis", "question2"),
    "question1": ("sentence1",),
    "question2": ("sentence2",),
    "premise": ("sentence1",),
    "hypothesis": ("sentence2",),
}
_HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


@dataclass(frozen=True)
class Task:
    """One task: a classification of one or two texts, or a regression on them.

    A task of one's own needs a name, its text columns and its labels, or `kind="regression"`.

    Args:
        name: any name without ".".
        text_columns: the column of the text, or the two columns of a pair.
        labels: the label names in order; () for a regression.
        kind: "classification", "regression" or "ranking" (see `ranking_task`).
        metrics: by default ("accuracy",), or ("pearson",) for a regression. The first one selects
            the best epoch. "f1" is that of the second label, such as "duplicate".
        score_range: lowest and highest score of a regression; None for any finite number. STS-B*
            has labels that are made of such scores.
        hub: the id of a data set on the hub, or (id, configuration).
        hub_splits: from "train", "dev" and "test" to the names of the hub's splits.
        aliases: from a text column, or "label", to a tuple of its names in other files; by default
            the names in known releases. A name that is itself a text column is left out.
        label_aliases: from a label in a file to its name in `labels`.
        files: from a split to its file name in the CS224N release.
        mini: the folder in data/mini, where it is the folder of another task.
        canonical: the task's name in MT-DNN's canonical files, where it differs.
        headerless: the columns of a .tsv release that has no header line.
        integers_in_tsv: whether .tsv files have integer labels in the order of `labels`, as GLUE's.

    Raises:
        ValueError: a field has a value that no task can have.

    Example::

        task = Task("mine", text_columns=("text",), labels=("no", "yes"))
        data = load_task(task, source="folder/with/train.csv/and/dev.csv")
    """

    name: str
    text_columns: tuple[str, ...]
    labels: tuple[str, ...] = ()
    kind: str = "classification"
    metrics: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None
    hub: str | tuple[str, str] | None = None
    hub_splits: dict = field(default_factory=_HUB_SPLITS.copy)
    aliases: dict = field(default_factory=_ALIASES.copy)
    label_aliases: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    mini: str | None = None
    canonical: str | None = None
    headerless: tuple[str, ...] = ()
    integers_in_tsv: bool = False

    def __post_init__(self):
        for name in ("text_columns", "labels", "metrics"):
            value = getattr(self, name)
            values = (value,) if isinstance(value, str) else tuple(map(str, value))
            object.__setattr__(self, name, values)
        if self.score_range is not None:  # JSON has no tuples
            object.__setattr__(self, "score_range", tuple(self.score_range))
        regression = self.kind == "regression"
        if not self.metrics:
            object.__setattr__(self, "metrics", ("pearson" if regression else "accuracy",))
        labels = set(map(label_key, self.labels))
        if self.kind not in ("classification", "regression", "ranking"):
            expected = "kind 'classification', 'regression' or 'ranking'"
        elif not 1 <= len(set(self.text_columns) - {"label"}) == len(self.text_columns) <= 2:
            expected = "one text column, or two different ones, other than 'label'"
        elif len(labels) != len(self.labels) or len(labels) == 1 or bool(labels) == regression:
            expected = "two or more different labels, or none and kind='regression'"
        elif labels and self.score_range not in (None, (0, 5)):
            expected = "no score_range beside labels, but for STS-B*, whose scores are 0 to 5"
        else:
            return
        raise ValueError(f"{self.to_config()}: expected {expected}.")

    @property
    def num_labels(self):
        """The number of a head's outputs: one per label, or one score."""
        return len(self.labels) if self.kind == "classification" else 1

    @property
    def is_pair(self):
        """Whether the input is two texts."""
        return len(self.text_columns) == 2

    def names(self, column):
        """Return the names under which a file may have a column.

        Args:
            column: a text column, or "label".

        Returns:
            A tuple of names, the column's own first.
        """
        others = self.aliases.get(column, ())
        return (column, *(one for one in others if one not in self.text_columns))

    def to_config(self):
        """Return what a trained model's folder says of the task, as plain values.

        Names in files, such as `aliases`, belong to data and are left out.
        """
        return {key: getattr(self, key) for key in _CONFIG}


_CONFIG = ("name", "text_columns", "labels", "kind", "metrics", "score_range")


def label_key(label):
    """Return the form in which two label names are compared.

    Args:
        label: a label, as a file or a user writes it.

    Returns:
        The label in lower case, with "_" for spaces and hyphens, and without the ".0" that the
        CS224N course's files have.
    """
    label = re.sub(r"^(-?\d+)\.0*$", r"\1", str(label).strip())
    return label.casefold().replace(" ", "_").replace("-", "_")


def _course(name, columns, labels, *, stem, **options):
    """Return a task of the CS224N default project, with the names of its files."""
    ends = {"train": "train", "dev": "dev", "test": "test-student"}
    files = {split: f"{stem}-{end}.csv" for split, end in ends.items()}
    return Task(name, columns, labels, files=files, **options)


def _glue(name, columns, labels, **options):
    return Task(name, columns, labels, hub=("nyu-mll/glue", name), **options)


_SENTENCE, _PAIR, _PREMISE = ("sentence",), ("sentence1", "sentence2"), ("premise", "hypothesis")
_FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
_POLARITY, _DUPLICATE = ("negative", "positive"), ("not_duplicate", "duplicate")
_NLI, _ENTAILED = ("entailment", "neutral", "contradiction"), ("entailment", "not_entailment")
_F1, _MACRO_F1 = ("accuracy", "f1"), ("accuracy", "macro_f1")
_STSB = {"score_range": (0.0, 5.0), "hub": ("nyu-mll/glue", "stsb")}
_SCORES = {"kind": "regression", "metrics": ("pearson", "spearman"), **_STSB}
_MNLI_SPLITS = {
    "train": "train",
    "dev": "validation_matched",
    "dev_mismatched": "validation_mismatched",
    "test": "test_matched",
}

_DEFINITIONS = (
    # CS224N default project
    _course(  # MT-DNN's files sst_*.tsv are SST-2
        "sst",
        _SENTENCE,
        _FIVE,
        stem="ids-sst",
        metrics=_MACRO_F1,
        hub="SetFit/sst5",
        canonical="sst5",
    ),
    _course("cfimdb", _SENTENCE, _POLARITY, stem="ids-cfimdb", metrics=_MACRO_F1),
    _course(
        "quora",
        _PAIR,
        _DUPLICATE,
        stem="quora",
        metrics=_F1,
        hub=("nyu-mll/glue", "qqp"),
        mini="qqp",
    ),
    _course("sts", _PAIR, (), stem="sts", mini="stsb", **_SCORES),
    # GLUE
    _glue(
        "cola",
        _SENTENCE,
        ("unacceptable", "acceptable"),
        metrics=("matthews", "accuracy"),
        headerless=("source", "label", "mark", "sentence"),
        integers_in_tsv=True,
    ),
    _glue("sst2", _SENTENCE, _POLARITY, canonical="sst", integers_in_tsv=True),
    _glue("mrpc", _PAIR, ("not_equivalent", "equivalent"), metrics=_F1, integers_in_tsv=True),
    _glue("qqp", ("question1", "question2"), _DUPLICATE, metrics=_F1, integers_in_tsv=True),
    Task("stsb", _PAIR, **_SCORES),
    _glue("mnli", _PREMISE, _NLI, hub_splits=_MNLI_SPLITS),
    _glue("qnli", ("question", "sentence"), _ENTAILED),
    _glue("rte", _PAIR, _ENTAILED),
    _glue("wnli", _PAIR, _ENTAILED[::-1], integers_in_tsv=True),
    # domain adaptation and cross-dataset evaluation
    Task("snli", _PREMISE, _NLI, hub="stanfordnlp/snli"),
    Task(
        "scitail",
        _PREMISE,
        ("entails", "neutral"),
        hub=("allenai/scitail", "tsv_format"),
        label_aliases={"entailment": "entails"},
        headerless=(*_PREMISE, "label"),
    ),
    # STS-B* of MML v2, section 4.2: scores 0 to 2 are not similar, 4 to 5 similar; the rows
    # between are dropped. Both ends are included.
    Task("stsb_star", _PAIR, ("not_similar", "similar"), mini="stsb", **_STSB),
)
_TASKS = {task.name: task for task in _DEFINITIONS}


def get_task(name):
    """Return the definition of a task.

    Args:
        name: a name of `list_tasks`, or "qnli_rank", or a `Task`, which comes back as it is.

    Returns:
        The `Task`.

    Raises:
        ValueError: there is no task of that name; the message has the nearest known names.
    """
    if isinstance(name, Task):
        return name
    if name == "qnli_rank":  # its rows come from `mmlkit.heads.ranking.rank_queries`
        return ranking_task("qnli")
    if not isinstance(name, str) or name not in _TASKS:
        near = difflib.get_close_matches(str(name).lower(), _TASKS, n=3, cutoff=0.4)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"{name!r:.80} is not a task.{hint} Known tasks: {', '.join(_TASKS)}. "
            "For another task pass Task(name, text_columns, labels)."
        )
    return _TASKS[name]


def task_from_config(config):
    """Return the task that `Task.to_config` described.

    Args:
        config: a dict, also one that was JSON in between.

    Returns:
        The `Task`. If all values agree, it is mmlkit's own, which also has the columns of files.
    """
    task = Task(**config)
    own = get_task(task.name if task.name in (*_TASKS, "qnli_rank") else task)
    return own if own.to_config() == task.to_config() else task


def list_tasks():
    """Return the names of all tasks that `load_task` reads."""
    return list(_TASKS)


def ranking_task(task, positive="entailment"):
    """Return the task of choosing the answer among the candidates of a query.

    The rows are those of a classification of pairs with two labels. The first text is the query,
    the second text is a candidate.

    Args:
        task: the classification, as a name or a `Task`.
        positive: the label of the answer. It becomes the second label.

    Returns:
        A `Task` of kind "ranking", such as "qnli_rank" of "qnli".

    Raises:
        ValueError: the task is of another kind, or has no such label.
    """
    task = get_task(task)
    fits = task.kind == "classification" and task.is_pair and len(task.labels) == 2
    if not fits or positive not in task.labels:
        raise ValueError(
            f"task {task.name!r} cannot be ranked by {positive!r}; expected a classification of "
            "pairs with two labels, one of them the answer's: positive=..."
        )
    others = tuple(label for label in task.labels if label != positive)
    name, metrics = f"{task.name}_rank", ("accuracy@1", "mrr")
    return replace(task, name=name, kind="ranking", labels=(*others, positive), metrics=metrics)
