"""Tests of the task definitions (labels, metrics, hub names) and of the three profiles."""

import dataclasses

import pytest
import torch

from mmlcourse.lessons.profiles import get_profile
from mmlkit.data.tasks import Task, get_task, list_tasks
from mmlkit.runtime import autocast

COURSE = ("sst", "cfimdb", "quora", "sts")
GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")
OTHERS = ("snli", "scitail", "stsb_star")


def test_labels_from_scores_are_those_of_stsb_star_alone():
    """Its thresholds, 2 and 4, would give every row of another scale the same label."""
    with pytest.raises(ValueError, match="no score_range beside labels"):
        Task("mine", ("text",), ("low", "high"), score_range=(0, 1))


def test_all_tasks_are_listed():
    assert sorted(list_tasks()) == sorted(COURSE + GLUE + OTHERS)
    assert [get_task(name).name for name in list_tasks()] == list_tasks()


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("sst", ("very negative", "negative", "neutral", "positive", "very positive")),
        ("cfimdb", ("negative", "positive")),
        ("sst2", ("negative", "positive")),
        ("quora", ("not_duplicate", "duplicate")),
        ("qqp", ("not_duplicate", "duplicate")),
        ("mrpc", ("not_equivalent", "equivalent")),
        ("cola", ("unacceptable", "acceptable")),
        ("mnli", ("entailment", "neutral", "contradiction")),
        ("snli", ("entailment", "neutral", "contradiction")),
        ("rte", ("entailment", "not_entailment")),
        ("qnli", ("entailment", "not_entailment")),
        (
            "wnli",
            ("not_entailment", "entailment"),
        ),  # the hub really uses the reverse order for WNLI
        ("scitail", ("entails", "neutral")),
        ("stsb_star", ("not_similar", "similar")),
        ("sts", ()),
        ("stsb", ()),
    ],
)
def test_label_order_equals_the_hub(name, labels):
    assert get_task(name).labels == labels
    assert get_task(name).num_labels == (len(labels) or 1)


@pytest.mark.parametrize("name", list_tasks())
def test_definition_is_consistent(name):
    task = get_task(name)
    assert get_task(task) is task
    assert task.kind == ("classification" if task.labels else "regression")
    assert len(task.text_columns) == 1 + task.is_pair
    assert task.metrics[0] == {"cola": "matthews", "sts": "pearson", "stsb": "pearson"}.get(
        name, "accuracy"
    )
    assert (task.score_range == (0.0, 5.0)) == (name in ("sts", "stsb", "stsb_star"))
    columns = (*task.text_columns, "label")
    aliases = [alias for column in columns for alias in task.aliases.get(column, ())]
    assert len({*columns, *aliases}) == len(columns) + len(aliases)  # no name refers to two columns
    assert set(task.label_aliases.values()) <= set(task.labels)
    assert (task.hub is None) == (name == "cfimdb")
    assert task.hub is None or {"train", "dev"} <= set(task.hub_splits)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.kind = "regression"


def test_a_new_task_has_defaults():
    task = Task("mine", text_columns="text", labels=["no", "yes"])
    assert (task.text_columns, task.labels, task.metrics) == (
        ("text",),
        ("no", "yes"),
        ("accuracy",),
    )
    assert (task.kind, task.num_labels, task.is_pair) == ("classification", 2, False)
    score = Task("score", ("first", "second"), kind="regression")
    assert (score.labels, score.metrics, score.num_labels, score.is_pair) == (
        (),
        ("pearson",),
        1,
        True,
    )
    assert Task("mine", ("text",), (0, 1), metrics=("f1",)).labels == ("0", "1")
    assert task == dataclasses.replace(task) and get_task(task) is task


@pytest.mark.parametrize(
    ("name", "configuration"),
    [*((name, name) for name in GLUE), ("quora", "qqp"), ("sts", "stsb"), ("stsb_star", "stsb")],
)
def test_glue_configurations(name, configuration):
    assert get_task(name).hub == ("nyu-mll/glue", configuration)


def test_mnli_uses_the_matched_split_for_dev():
    assert get_task("mnli").hub_splits["dev"] == "validation_matched"


@pytest.mark.parametrize("name", ["fast", "colab", "paper"])
def test_profile(name):
    profile = get_profile(name)
    assert profile.name == name
    assert profile.source in ("mini", "hub") and profile.pooling in ("mean", "pooler")
    assert min(profile.batch_size, profile.max_length, profile.epochs) >= 1
    assert profile.max_length <= 512
    assert 0 < profile.lr <= profile.head_lr
    assert profile.limit is None or profile.limit >= 1
    if profile.precision != "fp16":
        autocast(profile.precision, torch.device("cpu"))  # raises an error for an unknown precision
    with pytest.raises(dataclasses.FrozenInstanceError):
        profile.lr = 1.0


def test_fast_profile_needs_no_network():
    profile = get_profile("fast")
    assert (profile.model, profile.source, profile.precision) == ("minilm", "mini", "auto")
