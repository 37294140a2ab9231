"""data/mini keeps what its datasheet promises: no leaks between splits, balanced labels, crossed sentences, one licence."""

import importlib.util
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from mmlkit.data import load_task
from mmlkit.files import read_rows
from mmlkit.tasks import list_tasks

DATA = Path(__file__).resolve().parents[1] / "data"
TASKS = [name for name in list_tasks() if name not in ("quora", "sts", "stsb_star")]
CROSSED = ["mrpc", "qqp", "mnli", "snli", "qnli", "rte", "scitail"]
spec = importlib.util.spec_from_file_location("measure", DATA / "measure.py")
measure = importlib.util.module_from_spec(spec)
spec.loader.exec_module(measure)


def test_every_task_is_there():
    assert sorted(path.name for path in (DATA / "mini").iterdir() if path.is_dir()) == sorted(TASKS)
    assert len(TASKS) == 13
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.suffix in (".csv", ".md", ".py")) < 2_000_000


@pytest.mark.parametrize("name", TASKS)
def test_no_duplicates_and_nothing_shared_between_splits(name):
    data = load_task(name)
    splits = [data.train, data.dev, data.test, *data.more.values()]
    for split in splits:
        assert max(Counter(split.texts).values()) == 1
    for i, a in enumerate(splits):
        for b in splits[i + 1:]:
            assert not measure.shared_texts(a, b)


@pytest.mark.parametrize("name", TASKS)
def test_hardly_any_dev_row_is_near_a_train_row(name):
    data = load_task(name)
    assert len(measure.near_duplicates(data.train, data.dev)) < 0.01 * len(data.dev)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "stsb"])
def test_labels_are_balanced(name):
    data = load_task(name)
    for split in (data.train, data.dev):
        shares = np.bincount(split.labels, minlength=data.task.num_labels) / len(split)
        assert shares.max() <= 0.62 and shares.min() >= 0.5 / data.task.num_labels


@pytest.mark.parametrize("name", CROSSED)
def test_the_second_sentence_stands_under_several_labels(name):
    data = load_task(name)
    labels = defaultdict(set)
    for (_, second), label in zip(data.train.texts, data.train.labels):
        labels[second].add(label)
    assert np.mean([len(found) > 1 for found in labels.values()]) == 1


def test_scores_cover_the_whole_range():
    scores = load_task("stsb").train.labels
    assert min(np.histogram(scores, bins=5, range=(0, 5))[0]) > 0.15 * len(scores)


@pytest.mark.parametrize("name", TASKS)
def test_test_labels_lie_apart_and_fit(name):
    data = load_task(name)
    assert data.test.labels is None
    _, rows = read_rows(DATA / "test_labels" / f"{name}.csv")
    assert len(rows) == len(data.test)
    if data.task.labels:
        assert {row["label"] for _, row in rows} == set(data.task.labels)


@pytest.mark.parametrize("name", ["cola", "mnli", "quora", "sts"])
def test_opens_with_datasets(name, tmp_path):
    datasets = pytest.importorskip("datasets")
    ours, theirs = load_task(name), datasets.load_dataset(str(DATA / "mini"), name, cache_dir=str(tmp_path))
    dev = theirs["validation_matched" if name == "mnli" else "validation"]
    assert (len(theirs["train"]), len(dev)) == (len(ours.train), len(ours.dev))
    if ours.task.labels:
        assert dev.features["label"].names == list(ours.task.labels)
    assert np.allclose(dev["label"][:20], ours.dev.labels[:20])


@pytest.mark.parametrize("a, b, distance", [("kitten", "sitting", 3 / 7), ("same", "same", 0.0), ("", "abc", 1.0), ("ab", "ba", 1.0)])
def test_edit_distance_by_hand(a, b, distance):
    assert measure.edit_distance(a, b) == pytest.approx(distance)
