"""What each task is: its kind, the columns of its files, its labels by name, its metrics, and where the data lies.

Facts only. Labels stand in the order of the hub's data set, but files are always matched by label *name*: the orders of
MNLI and RTE differ between the hub, MT-DNN and PALs.
"""

import difflib
from dataclasses import dataclass, field, replace

__all__ = ["Task", "get_task", "list_tasks", "ranking_task"]


@dataclass(frozen=True)
class Task:
    """One task. Notebooks and `load_task` read it; nothing writes it."""

    name: str
    kind: str                               # "classification" | "regression" | "ranking"
    text_columns: tuple[str, ...]           # one sentence, or the two of a pair
    labels: tuple[str, ...]                 # names, in order; () for regression
    metrics: tuple[str, ...]                # the first one selects the best epoch
    score_range: tuple[float, float] | None = None      # regression: lowest and highest score, as printed in the files
    hub: tuple[str, str | None] | None = None           # parquet-backed id and configuration
    hub_splits: dict = field(default_factory=dict)      # ours -> the hub's, where the names differ
    aliases: dict = field(default_factory=dict)         # our column (or "label") -> its names in other releases
    label_aliases: dict = field(default_factory=dict)   # label as found -> our name
    files: dict = field(default_factory=dict)           # split -> file name in the CS224N release
    mini: str | None = None                             # the folder in data/mini/, where it is another task's
    headerless: tuple[str, ...] = ()                    # column names of a .tsv release that has no header line
    integers_in_tsv: bool = False                       # GLUE's .tsv has integer labels, in the order of `labels`

    @property
    def num_labels(self):
        """Outputs of a head: one per label, or one score."""
        return len(self.labels) if self.kind == "classification" else 1

    @property
    def is_pair(self):
        """Whether the input is two texts."""
        return len(self.text_columns) == 2


_NLI = ("entailment", "neutral", "contradiction")
_SENTENCE = {"sentence": ("text",)}
_PAIR = {"sentence1": ("#1 String", "premise"), "sentence2": ("#2 String", "hypothesis")}
_PREMISE = {"premise": ("sentence1",), "hypothesis": ("sentence2",), "label": ("gold_label",)}
_VALIDATION = {"train": "train", "dev": "validation", "test": "test"}
_FIVE = ("very negative", "negative", "neutral", "positive", "very positive")


def _files(stem):
    return {"train": f"{stem}-train.csv", "dev": f"{stem}-dev.csv", "test": f"{stem}-test-student.csv"}


_TASKS = {task.name: task for task in (
    # CS224N default project
    Task("sst", "classification", ("sentence",), _FIVE, ("accuracy", "macro_f1"), hub=("SetFit/sst5", None),
         hub_splits=_VALIDATION, aliases={"sentence": ("text",), "label": ("sentiment", "label_text")}, files=_files("ids-sst")),
    Task("cfimdb", "classification", ("sentence",), ("negative", "positive"), ("accuracy", "macro_f1"),
         aliases={"sentence": ("text", "Text"), "label": ("sentiment", "Sentiment")}, files=_files("ids-cfimdb")),
    Task("quora", "classification", ("sentence1", "sentence2"), ("not_duplicate", "duplicate"), ("accuracy", "f1"),
         hub=("nyu-mll/glue", "qqp"), hub_splits=_VALIDATION,
         aliases={"sentence1": ("question1",), "sentence2": ("question2",), "label": ("is_duplicate",)},
         files=_files("quora"), mini="qqp"),
    Task("sts", "regression", ("sentence1", "sentence2"), (), ("pearson", "spearman"), score_range=(0.0, 5.0),
         hub=("nyu-mll/glue", "stsb"), hub_splits=_VALIDATION, aliases={"label": ("similarity", "score")}, files=_files("sts"), mini="stsb"),
    # GLUE
    Task("cola", "classification", ("sentence",), ("unacceptable", "acceptable"), ("matthews", "accuracy"),
         hub=("nyu-mll/glue", "cola"), hub_splits=_VALIDATION, aliases=_SENTENCE, headerless=("source", "label", "mark", "sentence"),
         integers_in_tsv=True),
    Task("sst2", "classification", ("sentence",), ("negative", "positive"), ("accuracy",),
         hub=("nyu-mll/glue", "sst2"), hub_splits=_VALIDATION, aliases=_SENTENCE, integers_in_tsv=True),
    Task("mrpc", "classification", ("sentence1", "sentence2"), ("not_equivalent", "equivalent"), ("accuracy", "f1"),
         hub=("nyu-mll/glue", "mrpc"), hub_splits=_VALIDATION, aliases={**_PAIR, "label": ("Quality",)},
         integers_in_tsv=True),
    Task("qqp", "classification", ("question1", "question2"), ("not_duplicate", "duplicate"), ("accuracy", "f1"),
         hub=("nyu-mll/glue", "qqp"), hub_splits=_VALIDATION,
         aliases={"question1": ("sentence1",), "question2": ("sentence2",), "label": ("is_duplicate",)}, integers_in_tsv=True),
    Task("stsb", "regression", ("sentence1", "sentence2"), (), ("pearson", "spearman"), score_range=(0.0, 5.0),
         hub=("nyu-mll/glue", "stsb"), hub_splits=_VALIDATION, aliases={"label": ("score", "similarity")}),
    Task("mnli", "classification", ("premise", "hypothesis"), _NLI, ("accuracy",), hub=("nyu-mll/glue", "mnli"),
         hub_splits={"train": "train", "dev": "validation_matched", "dev_mismatched": "validation_mismatched", "test": "test_matched"},
         aliases=_PREMISE),
    Task("qnli", "classification", ("question", "sentence"), ("entailment", "not_entailment"), ("accuracy",),
         hub=("nyu-mll/glue", "qnli"), hub_splits=_VALIDATION),
    Task("rte", "classification", ("sentence1", "sentence2"), ("entailment", "not_entailment"), ("accuracy",),
         hub=("nyu-mll/glue", "rte"), hub_splits=_VALIDATION, aliases=_PAIR),
    Task("wnli", "classification", ("sentence1", "sentence2"), ("not_entailment", "entailment"), ("accuracy",),
         hub=("nyu-mll/glue", "wnli"), hub_splits=_VALIDATION, aliases=_PAIR, integers_in_tsv=True),
    # domain adaptation and cross-dataset evaluation
    Task("snli", "classification", ("premise", "hypothesis"), _NLI, ("accuracy",), hub=("stanfordnlp/snli", None),
         hub_splits=_VALIDATION, aliases=_PREMISE),
    Task("scitail", "classification", ("premise", "hypothesis"), ("entails", "neutral"), ("accuracy",),
         hub=("allenai/scitail", "tsv_format"), hub_splits=_VALIDATION, aliases=_PREMISE,
         label_aliases={"entailment": "entails"}, headerless=("premise", "hypothesis", "label")),
    # STS-B*: scores 0 to 2 (both included) are not similar, 4 to 5 similar, those between are dropped (MML v2, section 4.2)
    Task("stsb_star", "classification", ("sentence1", "sentence2"), ("not_similar", "similar"), ("accuracy",),
         hub=("nyu-mll/glue", "stsb"), hub_splits=_VALIDATION, aliases={"label": ("score", "similarity")},
         score_range=(0.0, 5.0), mini="stsb"),
)}


def get_task(name):
    """The definition of a task, by name. Raises ValueError with the nearest known names."""
    if isinstance(name, Task):
        return name
    known = {**_TASKS, **_RANKED}
    if name not in known:
        near = difflib.get_close_matches(str(name), _TASKS, n=3, cutoff=0.4)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"{name!r} is not a task.{hint} Known tasks: {', '.join(_TASKS)}.")
    return known[name]


def list_tasks():
    """The names of all tasks that `load_task` reads."""
    return list(_TASKS)


def ranking_task(task, positive="entailment"):
    """The task of choosing among the rows of a query, made of a two-way classification of pairs: "qnli_rank" of "qnli".

    The first text is the query, the second a candidate. positive: the label of the answer; it stands second.
    Raises ValueError for any other kind of task or an unknown label.
    """
    task = get_task(task)
    if task.kind != "classification" or not task.is_pair or len(task.labels) != 2 or positive not in task.labels:
        raise ValueError(f"task {task.name!r} ({task.kind}, texts {list(task.text_columns)}, labels {list(task.labels)}) cannot be ranked by "
                         f"{positive!r}; expected a classification of pairs with two labels, one of them the answer's: positive=...")
    others = tuple(label for label in task.labels if label != positive)
    return replace(task, name=f"{task.name}_rank", kind="ranking", labels=(*others, positive), metrics=("accuracy@1", "mrr"))


_RANKED = {"qnli_rank": ranking_task(_TASKS["qnli"])}     # rows by `ranking.rank_queries`
