"""Wrong arguments that would otherwise give a wrong number; `fit` has a module of its own.

A line of a table has a call and a part of the message.
"""

import dataclasses

import numpy as np
import pytest
import torch

from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task, make_split
from mmlkit.data.tasks import Task, get_task
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss
from mmlkit.heads.ranking import RankingHead, rank_queries
from mmlkit.heads.san import SANHead
from mmlkit.runtime import autocast
from mmlkit.training.evaluation import evaluate, predict, predict_proba
from mmlkit.training.loop import fit
from mmlkit.training.optimizers import learning_rate, make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.saving import load_model, save_model


def labelled(task, label):
    texts = dict.fromkeys(get_task(task).text_columns, "a")
    return make_split(task, [{**texts, "label": label}])


HEADS = torch.ones(2, 1, 3)
CALLS = [
    (lambda: get_task("SST"), "'SST' is not a task"),
    (lambda: load_task("sst", labels=["a"]), "labels"),
    (lambda: load_task("sst", labels={"x": 3}), "labels"),
    *[
        (lambda one=one: labelled("sst", one), f"found '{one}', expected one of ['very negative'")
        for one in ("good", True, 1.5, 2)
    ],
    *[
        (lambda one=one: labelled("sts", one), f"found '{one}', expected from 0 to 5")
        for one in ("5.1", "1,5", "nan")
    ],
    (lambda: Task("m", ("t",), ("a", "A ")), "labels"),
    (lambda: rank_queries(load_task("sst")), "task 'sst' cannot be ranked by 'entailment'"),
    (lambda: load_pretrained("minilm", num_layers=7), "num_layers is 7, expected 1 to 6"),
    (lambda: load_model("nowhere"), "nowhere"),
    (lambda: autocast("fp8", "cpu"), "fp8"),
    (lambda: LinearHead(32, 5, pooling="max"), "max"),
    (lambda: LinearHead(32, 1, activation="tanh"), "tanh"),
    (lambda: RankingHead(32, activation="none"), "expected None or 'sigmoid'"),
    (lambda: multiverse_loss(HEADS, similarity="l2"), "l2"),
    (lambda: MultiverseHead(32, 5, num_heads=4, pairs="both"), "both"),
    (lambda: learning_rate(1, peak=1, warmup=2, total=3, schedule="x"), "x"),
    (lambda: TaskSampler("anealed", sizes={"a": 1}), "'anealed' is not one of ['proportional'"),
]
# A model with a head for sst, and the data of sst and quora.
RUNS = [
    (lambda m, sst, quora: fit(m, quora), "no head for task 'quora'; it has ['sst']"),
    (lambda m, sst, quora: evaluate(m, quora), "no head for task 'quora'; it has ['sst']"),
    (lambda m, sst, quora: evaluate(m, dataclasses.replace(sst.dev, labels=None)), "no labels"),
    (
        lambda m, sst, quora: evaluate(
            m, dataclasses.replace(sst.dev, labels=sst.dev.labels[:, None])
        ),
        "labels have shape [10, 1], expected [10]",
    ),
    (lambda m, sst, quora: predict(m, ["a"]), "pass task='sst'"),
    (lambda m, sst, quora: predict(m, ["a"], task="nope"), "'nope' is not a task"),
    (lambda m, sst, quora: predict(m, ["a"], task="rte"), "for each of ['sentence1', 'sentence2']"),
    (lambda m, sst, quora: predict(m, ["a", " "], task="sst"), "text 1 is (' ',)"),
    (
        lambda m, sst, quora: predict(m, [("a", "b")], task="sst"),
        "text 0 is ('a', 'b')",
    ),
    (lambda m, sst, quora: predict(m, dataclasses.replace(sst, dev=None)), "has no dev split"),
    (lambda m, sst, quora: predict(m, sst, task="quora"), "data is of task 'sst'"),
    (lambda m, sst, quora: predict_proba(m, [("a", "b")], task="sts"), "no probabilities"),
    (lambda m, sst, quora: make_optimizer(m, "sgd", lr=1), "'sgd' is not one of ['adamw', 'adam"),
    (lambda m, sst, quora: make_optimizer(m, lr=1, head_lr={"rte": 1}), "head_lr names ['rte']"),
]


@pytest.mark.parametrize(("call", "part"), CALLS, ids=map(str, range(len(CALLS))))
def test_a_wrong_argument_is_named(call, part):
    with pytest.raises((ValueError, FileNotFoundError, KeyError)) as error:
        call()
    assert part in str(error.value)


@pytest.mark.parametrize(("call", "part"), RUNS, ids=map(str, range(len(RUNS))))
def test_a_wrong_part_of_a_run_is_named(call, part, make_model, make_toy):
    model = make_model("sst")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError) as error:
        call(model, make_toy("sst"), make_toy("quora"))
    assert part in str(error.value)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("task, outputs", [("sst", 3), ("sst", 9), ("sts", 5)])
def test_a_head_with_other_outputs_than_the_task_is_named(make_model, make_toy, task, outputs):
    model, data = make_model(task), make_toy(task)
    model.heads[task] = LinearHead(32, outputs)
    for function in (fit, evaluate, predict):
        with pytest.raises(ValueError, match=f"Its head has {outputs} outputs"):
            function(model, data)


@pytest.mark.parametrize(
    "head",
    [PairHead(32, 5), SANHead(32, 5), MultiverseHead(32, 5, num_heads=3, pairs="separate")],
    ids=lambda head: type(head).__name__,
)
def test_a_head_for_pairs_refuses_single_texts(make_model, make_toy, head):
    model, data = make_model("sst"), make_toy("sst")
    model.heads["sst"] = head
    message = f"task 'sst' has single texts, but its {type(head).__name__} needs pairs; give it a"
    for function in (fit, evaluate, predict):
        with pytest.raises(ValueError, match=message):
            function(model, data)


@pytest.mark.parametrize("metric", ["F1", "mrr"])
def test_a_metric_of_another_kind_is_named(make_model, make_toy, metric):
    data = make_toy("sst")
    data = dataclasses.replace(data, task=dataclasses.replace(data.task, metrics=(metric,)))
    for function in (fit, evaluate):
        with pytest.raises(ValueError, match=f"has the metrics .'{metric}'.; a classification"):
            function(make_model("sst"), data)


@pytest.mark.parametrize("function", [evaluate, predict, predict_proba])
def test_scores_that_are_not_finite_are_refused(make_model, make_toy, function):
    model = make_model("sst")
    with torch.no_grad():
        model.heads["sst"].dense.weight.fill_(np.nan)
    with pytest.raises(ValueError, match="are not finite numbers: the model has diverged"):
        function(model, make_toy("sst"))


def test_a_file_in_place_of_a_folder_is_named(make_model, tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(OSError, match="file"):
            save_model(make_model("sst"), path)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
