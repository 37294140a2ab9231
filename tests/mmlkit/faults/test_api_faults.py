"""Wrong arguments of the library's other functions; `fit` has a module of its own.

A line of a table has a call, and parts of the message: what came, what was expected, or what to do.
"""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

from mmlcourse.lessons.profiles import get_profile
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.data.loading import TaskData, load_task, make_split
from mmlkit.data.tasks import Task, get_task, ranking_task
from mmlkit.heads.clustering import cluster
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.heads.ranking import RankingHead, rank_queries
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import autocast, pick_device
from mmlkit.training.evaluation import evaluate, predict, predict_proba
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import learning_rate, make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.saving import load_model, save_model

NAN = float("nan")
WHOLE = "expected a whole number of at least 1"
NUMBER = "expected a number of at least 0"
ROW = "expected (row number, dict of the columns) pairs | pass enumerate(rows)"
FOLDER = "expected the name of a folder"
SOURCE = "expected 'mini', 'hub', or a folder's name"
TASK = "is not a task | Known tasks: sst, cfimdb | pass Task(name, text_columns, labels)"
GOOD = {"sentence": "a", "label": "positive"}


def heads(**options):
    return MultiverseHead(32, 5, **{"num_heads": 4, **options})


def sampler(**options):
    return TaskSampler("annealed", **{"sizes": {"sst": 3}, **options})


def pairs(label):
    return make_split("sts", [(0, {"sentence1": "a", "sentence2": "b", "label": label})])


def task(**fields):
    return Task(**{"name": "m", "text_columns": ("t",), "labels": ("a", "b"), **fields})


def with_metrics(data, *metrics):
    changed = dataclasses.replace(data.task, metrics=metrics)
    train, dev = (dataclasses.replace(one, task=changed) for one in (data.train, data.dev))
    return TaskData(changed, train, dev)


def encoder():
    return BertModel(BertConfig.tiny())


DATA = [
    *[(lambda one=one: get_task(one), TASK) for one in (None, 3, "", ["sst"], {"a": 1}, "xyzzy")],
    (lambda: get_task("SST"), "'SST' is not a task | Did you mean 'sst'"),
    *[(lambda one=one: load_task("sst", one), SOURCE) for one in (None, 3, "", ["mini"], True)],
    (lambda: load_task("sst", "Mini"), "Mini is not a folder. source is 'mini', 'hub', or a"),
    (lambda: load_task("qnli_rank"), "ranks rows of another task; use | rank_queries(load_task("),
    *[(lambda one=one: load_task("sst", limit=one), WHOLE) for one in (0, -1, 1.5, "10", True)],
    (lambda: load_task("sst", limit=3, seed="a"), "seed is 'a', expected a whole number"),
    (lambda: load_task("sst", limit=3, seed=-1), "seed is -1, expected a whole number"),
    *[
        (lambda one=one: load_task("sst", labels=one), "expected the names")
        for one in ("negative", 3, ["a"], [], True)
    ],
    (lambda: load_task("sst", labels={"x": 3}), "labels maps 'x' to 3, which is not one of"),
    (lambda: make_split("sst", [GOOD]), ROW),
    (lambda: make_split("sst", ["a", "b"]), ROW),
    (lambda: make_split("sst", "ab"), ROW),
    (lambda: make_split("sst", None), ROW),
    (lambda: make_split("sst", 3), ROW),
    (lambda: make_split("sst", [(0, "a")]), ROW),
    (lambda: make_split("sst", pd.DataFrame([GOOD])), ROW),
    (lambda: make_split("sst", []), "holds no rows. Expected columns ['sentence'] and a label"),
    (lambda: make_split("sst", [(0, {})]), "no column 'sentence' | Expected ['sentence']"),
    (
        lambda: make_split("sst", [(0, GOOD), (1, {"label": "positive"})]),
        "row 1, column 'sentence': found None, expected some text",
    ),
    *[
        (lambda one=one: make_split("sst", [(0, {**GOOD, "label": one})]), "is not one of")
        for one in (["positive"], {"a": 1}, b"positive", True, 1.5)
    ],
    *[
        (lambda one=one: pairs(one), "expected a number from 0 to 5")
        for one in ([1], True, {"x": 1}, "0_1", "\u0664", "1e", "0x1", 10**400, "1,5", b"1")
    ],
    *[
        (lambda name=name, one=one: task(**{name: one}), f"{name} is {one!r}, expected")
        for name, values in {
            "name": (None, 3, "", "a.b", "a/b"),
            "kind": ("tagging", None),
            "text_columns": (None, 3, (), ("a", "b", "c"), ("a", "a"), ("label",), ("",)),
            "labels": (None, 3, (), ("a",), ("a", "a"), ("a", "A ")),
            "metrics": (3, {"f1"}),
            "score_range": (5, (5, 0), (1,), ("a", "b")),
        }.items()
        for one in values
    ],
    (lambda: ranking_task("sst"), "cannot be ranked by 'entailment'; expected a classification"),
    (lambda: ranking_task("qnli", "x"), "cannot be ranked by 'x'; expected a classification"),
    (lambda: rank_queries(load_task("sst")), "cannot be ranked by 'entailment'; expected"),
]
MODELS = [
    *[
        (lambda one=one: load_pretrained("minilm", num_layers=one), "expected 1 to 6, the number")
        for one in (0, 7, 1.5, "2", True, -1)
    ],
    (lambda: load_pretrained("minilm", seed="x"), "seed is 'x', expected a whole number"),
    (lambda: load_pretrained(None), "expected a folder, a hub id, or 'minilm'"),
    (lambda: load_pretrained(""), "expected a folder, a hub id, or 'minilm'"),
    (lambda: load_pretrained("a/b/c"), "a/b/c is not a folder. Give the folder that holds"),
    *[(lambda one=one: pick_device(one), "expected 'cpu', 'cuda'") for one in ("gpu", 3.5, "tpu0")],
    *[(lambda one=one: load_model(one), FOLDER) for one in (None, 3, "")],
    (lambda: load_model("nowhere"), "nowhere holds no trained model | written by save_model"),
    (lambda: load_model(__file__), "holds no trained model | written by save_model"),
    *[(lambda one=one: save_pretrained(encoder(), None, one), FOLDER) for one in (None, 3, "")],
    (lambda: save_model(None, "x"), "model is a NoneType, expected a MultitaskModel"),
    (lambda: save_model(encoder(), "x"), "model is a BertModel, expected a MultitaskModel"),
    *[
        (lambda one=one: MultitaskModel(encoder(), one), "give one per task, such as")
        for one in ({}, None, [], LinearHead(32, 5), [LinearHead(32, 5)])
    ],
    *[
        (lambda one=one: MultitaskModel(encoder(), {"sst": one}), "expected an object such as")
        for one in (None, LinearHead, torch.nn.Linear(32, 5), "linear")
    ],
    *[
        (
            lambda one=one: MultitaskModel(encoder(), {"sst": one}),
            "has hidden_size 384, the encoder 32. Make it with",
        )
        for one in (LinearHead(384, 5), PairHead(384, 2), SANHead(384, 3), RankingHead(384))
    ],
    *[
        (
            lambda one=one: MultitaskModel(encoder(), {one: LinearHead(32, 5)}),
            "a task has a name that no module can have | rename the task",
        )
        for one in ("a.b", "keys", "", 3)
    ],
    (
        lambda: MultitaskModel((encoder(), None), {"sst": LinearHead(32, 5)}),
        "encoder is a tuple, expected a BertModel | encoder, tokenizer = load_pretrained(",
    ),
    (lambda: MultitaskModel(None, {"sst": LinearHead(32, 5)}), "encoder is a NoneType, expected"),
    *[
        (
            lambda one=one: MultitaskModel(encoder(), {"sst": LinearHead(32, 5)}, max_length=one),
            f"max_length is {one!r}, expected a whole number of at least 3, or None",
        )
        for one in (0, -5, 1, 2, 7.5, "64")
    ],
    (lambda: autocast("fp8", "cpu"), "precision 'fp8' is not one of ['auto', 'fp32'"),
    (lambda: autocast("fp16", "cpu"), "needs a CUDA GPU | Use 'bf16' or 'fp32'"),
    *[(lambda one=one: get_profile(one), "Known profiles: fast") for one in ("slow", None, [])],
]
HEADS = [
    *[
        (lambda kind=kind, one=one: kind(one), f"hidden_size is {one!r}, {WHOLE}")
        for kind in (
            lambda size: LinearHead(size, 5),
            lambda size: PairHead(size, 5),
            lambda size: MultiverseHead(size, 5, num_heads=4),
            lambda size: SANHead(size, 3),
            RankingHead,
        )
        for one in ("32", 0, -32, 32.5, True)
    ],
    *[(lambda one=one: LinearHead(32, one), "num_labels is") for one in (0, -1, 2.5, "5", None)],
    *[(lambda one=one: LinearHead(32, 5, dropout=one), "dropout is") for one in (2, -1, "a", NAN)],
    *[(lambda one=one: heads(num_heads=one), "num_heads is") for one in (0, 2.5, "4", None)],
    *[(lambda one=one: heads(dropout=one), "dropout is") for one in (1.5, NAN, "0")],
    *[
        (lambda one=one: heads(orthogonality_weight=one), NUMBER)
        for one in (-1, NAN, math.inf, "1", None)
    ],
    (lambda: heads(similarity="l2"), "similarity 'l2' is not one of ['dot', 'cosine']"),
    (lambda: heads(pairs="both"), "pairs 'both' is not one of"),
    (lambda: heads(reduction="max"), "reduction 'max' is not one of"),
    (lambda: heads(pooling="max"), "pooling 'max' is not one of ['pooler', 'cls', 'mean']"),
    (lambda: LinearHead(32, 5, pooling=None), "pooling None is not one of"),
    (lambda: LinearHead(32, 5, activation="tanh"), "activation 'tanh' | expected None, or 'sigm"),
    (lambda: LinearHead(32, 5, activation="sigmoid"), "with num_labels 5; expected None, or"),
    (lambda: SANHead(32, 1), "num_labels is 1; for a regression task take a LinearHead"),
    (lambda: SANHead(32, 3, num_steps=0), f"num_steps is 0, {WHOLE}"),
    (lambda: SANHead(32, 3, prediction_dropout=1), "prediction_dropout is 1, expected a number"),
    *[(lambda one=one: RankingHead(32, gamma=one), "gamma is") for one in (0, -1, NAN, "1")],
    (lambda: RankingHead(32, score_activation="x"), "score_activation 'x' must be 'none' or"),
    *[
        (lambda one=one: heads().set_active(one), "expected 4 entries, at least one head")
        for one in ([True], [False] * 4)
    ],
    (lambda: heads()(torch.zeros(2, 5)), "x has shape [2, 5], expected [batch, 32]"),
    *[(lambda one=one: HeadPruner(heads(), one), "every is") for one in (0, 1.5, "10", None)],
    *[
        (lambda one=one: HeadPruner(heads(), momentum=one), "momentum is")
        for one in (1, -0.1, NAN, "0")
    ],
    *[
        (lambda one=one: HeadPruner(heads(), bandwidth=one), "bandwidth")
        for one in ("wide", -1, 0, NAN, "auto:2", "std:-1", True)
    ],
    (lambda: HeadPruner(heads(), threshold=0), f"threshold is 0, {WHOLE}"),
    (lambda: HeadPruner(heads(), min_active=0), f"min_active is 0, {WHOLE}"),
    (lambda: HeadPruner(heads(), warmup=-1), "warmup is -1, expected a whole number"),
    (lambda: HeadPruner(heads(), min_gap=-1), f"min_gap is -1, {NUMBER}"),
    (lambda: HeadPruner(heads(), until=0), "until is 0, expected a whole number of at least 1"),
    (lambda: HeadPruner(LinearHead(32, 5)), "head is a LinearHead, expected a MultiverseHead"),
    (lambda: HeadPruner(None), "head is a NoneType, expected a MultiverseHead"),
    (lambda: HeadPruner(heads()).observe(torch.zeros(3)), "[3] losses were given for 4 active"),
    *[(lambda one=one: cluster(one), "expected at least one") for one in ([], [1, NAN], [[1]])],
    *[
        (lambda one=one: add_pals(encoder(), one), "expected a list of different names, such as")
        for one in ("sst", [], ["sst", "sst"], [3], [""])
    ],
    (lambda: add_pals(encoder(), ["sst"], kind="lora"), "kind 'lora' is not one of ['pal'"),
    (lambda: add_pals(encoder(), ["sst"], size=10, num_heads=4), "size 10 is not a multiple of"),
    (lambda: add_pals(add_pals(encoder(), ["sst"]), ["sts"]), "already has modules for ['sst']"),
]
TRAINING = [
    *[
        (lambda one=one: sampler(sizes=one), "sizes is | expected a dict of at least one task")
        for one in ({}, None, [3, 4], "sst")
    ],
    *[
        (lambda one=one: sampler(sizes={"sst": one}), f"sizes['sst'] is {one!r}, {WHOLE}")
        for one in (0, -1, 2.5, "3", NAN, math.inf, True, None)
    ],
    *[(lambda one=one: sampler(epochs=one), f"epochs is {one!r}") for one in (0, 1.5, "2", None)],
    *[(lambda one=one: sampler(seed=one), f"seed is {one!r}") for one in (-1, "x", 0.5, None)],
    *[
        (lambda one=one: sampler(steps_per_epoch=one), "steps_per_epoch is")
        for one in (0, 2.5, "7", math.inf)
    ],
    *[(lambda one=one: sampler().order(one), "epochs count from 1") for one in (0, 2, 1.5, "1")],
    (lambda: TaskSampler("anealed", sizes={"a": 1}), "not a sampler. Did you mean 'annealed'?"),
    (lambda: TaskSampler(None, sizes={"a": 1}), "None is not a sampler | Known: proportional"),
    (lambda: learning_rate(1, peak=1, warmup=0, total=1, schedule="x"), "is not one of ['linear'"),
]
# What `fit`, `evaluate` and the others are given beside their settings.
MODEL = [
    (lambda m, sst, quora: fit(None, sst), "model is a NoneType, expected a MultitaskModel"),
    (lambda m, sst, quora: fit(m.encoder, sst), "model is a BertModel, expected a MultitaskModel"),
    (lambda m, sst, quora: fit(m, quora), "no head for task 'quora'; it has ['sst']"),
    (lambda m, sst, quora: fit(m, sst, hooks=HeadPruner(heads())), "expected a list, such as [pr"),
    (lambda m, sst, quora: fit(m, sst, hooks=None), "hooks is None, expected a list"),
    (lambda m, sst, quora: fit(m, sst, hooks=[HeadPruner]), "is a class, expected an object"),
    (lambda m, sst, quora: fit(m, sst, sampler="annealed"), "expected a TaskSampler, such as"),
    (lambda m, sst, quora: fit(m, sst, sampler=sampler()), "The sampler is for 1 epochs of ['sst"),
    *[
        (
            lambda m, sst, quora, one=one: fit(m, sst, optimizer=one),
            "optimizer is | such as 'adamw'",
        )
        for one in (None, 3, torch.optim.AdamW)
    ],
    (lambda m, sst, quora: fit(m, sst, device="gpu"), "device is 'gpu', expected 'cpu', 'cuda'"),
    (lambda m, sst, quora: fit(m, sst, checkpoint_dir=3), "checkpoint_dir '3' is not a folder"),
    (lambda m, sst, quora: fit(m, sst, freeze_encoder="no"), "'no', expected True or False"),
    (lambda m, sst, quora: fit(m, sst, resume=1), "resume is 1, expected True or False or 'auto'"),
    (lambda m, sst, quora: fit(m, pd.DataFrame()), "data holds a DataFrame; give load_task"),
    (lambda m, sst, quora: fit(m, "sst"), "data holds a str; give load_task('sst')"),
    *[
        (
            lambda m, sst, quora, change=change: fit(m, dataclasses.replace(sst, **change(sst))),
            message,
        )
        for change, message in [
            (
                lambda sst: {"train": sst.train.take([])},
                "train of task 'sst' is 'sst', 0 rows; exp",
            ),
            (lambda sst: {"dev": sst.dev.take([])}, "dev of task 'sst' is 'sst', 0 rows; expected"),
            (lambda sst: {"dev": None}, "dev of task 'sst' is NoneType; expected a Split of 'sst'"),
            (
                lambda sst: {"train": dataclasses.replace(sst.train, task=get_task("rte"))},
                "train of task 'sst' is 'rte', 20 rows; expected a Split of 'sst'",
            ),
            *[
                (
                    lambda sst, to=to: {"train": dataclasses.replace(sst.train, labels=to(sst))},
                    expected,
                )
                for to, expected in [
                    (lambda sst: sst.train.labels + 3, "expected an array of whole numbers from 0"),
                    (
                        lambda sst: -1 - sst.train.labels,
                        "expected an array of whole numbers from 0",
                    ),
                    (lambda sst: sst.train.labels.tolist(), "a list; expected an array of whole"),
                    (lambda sst: sst.train.labels.astype(float), "expected an array of whole"),
                    (lambda sst: sst.train.labels.astype(str), "expected an array of whole"),
                    (
                        lambda sst: sst.train.labels[:, None],
                        "The labels of task 'sst' in train have shape [20, 1], expected [20] | "
                        "labels.reshape(-1)",
                    ),
                    (lambda sst: np.array(3), "in train have shape [], expected [20]"),
                    (lambda sst: None, "Task 'sst' has no labels in train. Add them to the file"),
                ]
            ],
        ]
    ],
    *[
        (lambda m, sst, quora, one=one: evaluate(m, sst, split=one), "it has ['train', 'dev']")
        for one in ("nope", "test", None, "task", "more")
    ],
    *[
        (
            lambda m, sst, quora, to=to: evaluate(
                m, dataclasses.replace(sst.dev, labels=to(sst.dev.labels))
            ),
            message,
        )
        for to, message in [
            (lambda labels: labels - 1, "The labels of task 'sst' in dev are | from 0 to 4"),
            (lambda labels: labels + 3, "The labels of task 'sst' in dev are | from 0 to 4"),
            (lambda labels: labels.astype(str), "The labels of task 'sst' in dev are | from 0 to"),
            (lambda labels: labels[:, None], "in dev have shape [10, 1], expected [10]"),
            (lambda labels: labels[1:], "has 10 texts and 9 labels in dev; expected as many"),
        ]
    ],
    *[
        (
            lambda m, sst, quora, function=function, metric=metric: function(
                m, with_metrics(sst, "accuracy", metric)
            ),
            message,
        )
        for function in (fit, evaluate)
        for metric, message in [
            ("F1", "Task 'sst' has the metric 'F1', expected some of ['accuracy', 'macro_f1'"),
            ("f1", "has the metric 'f1', which needs two labels; it has 5 | Use 'macro_f1'"),
            ("mrr", "has the metric 'mrr' of ranking tasks, but is a classification | ['accuracy'"),
        ]
    ],
    (lambda m, sst, quora: evaluate(m, ["a"]), "data is a list, expected the result of load_task"),
    (lambda m, sst, quora: evaluate(m, {"sst": sst}), "data is a dict, expected the result of"),
    (lambda m, sst, quora: evaluate(m, sst.dev.take([])), "sst dev has no rows; expected at least"),
    (lambda m, sst, quora: evaluate(m, quora), "no head for task 'quora'; it has ['sst']"),
    (lambda m, sst, quora: evaluate(m.encoder, sst), "model is a BertModel, expected a Multitask"),
    (lambda m, sst, quora: predict(m, ["a"]), "no task was given; pass task='sst'"),
    (lambda m, sst, quora: predict(m, ["a"], task="nope"), "'nope' is not a task | Known tasks"),
    (lambda m, sst, quora: predict(m, ["a"], task="rte"), "task 'rte' expects 2 non-empty texts"),
    (lambda m, sst, quora: predict(m, [("a", "b")], task="rte"), "no head for task 'rte'"),
    (lambda m, sst, quora: predict(m, ["\u200b"], task="sst"), "expected some text. Fill it in"),
    (lambda m, sst, quora: predict(m, ["a\0bad"], task="sst"), "has a NUL character. Remove it"),
    (lambda m, sst, quora: predict(m, ["a\ud800"], task="sst"), "has half of a UTF-16 pair"),
    *[
        (
            lambda m, sst, quora, one=one: predict(m, one, task="sst"),
            f"data is a {type(one).__name__}; expected a list of texts | df['text'].tolist()",
        )
        for one in (pd.DataFrame({"text": ["a"]}), {"a": 1}, {"a"})
    ],
    (
        lambda m, sst, quora: predict(m, dataclasses.replace(sst, dev=None)),
        "sst from 'toy' has no dev split; pass another one, such as data.train",
    ),
    (lambda m, sst, quora: predict(m, sst.dev.take([])), "sst dev has no rows; expected at least"),
    (lambda m, sst, quora: predict_proba(m, [("a", "b")], task="sts"), "has no probabilities"),
    (lambda m, sst, quora: make_optimizer(m, "sgd", lr=1), "'sgd' is not one of ['adamw', 'adam"),
    *[
        (lambda m, sst, quora, one=one: make_optimizer(m, lr=one), "lr is | expected a number of")
        for one in (-1, NAN, "1", None)
    ],
    (
        lambda m, sst, quora: make_optimizer(m, lr=1, weight_decay=-1),
        f"weight_decay is -1, {NUMBER}",
    ),
]
TABLES = {"data": DATA, "models": MODELS, "heads": HEADS, "training": TRAINING}
CASES = [
    pytest.param(*case, id=f"{name}-{i}")
    for name, many in TABLES.items()
    for i, case in enumerate(many)
]


def check(error, parts):
    for part in parts.split(" | "):
        assert part in str(error.value), str(error.value)
    assert "/site-packages/" not in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.parametrize(("call", "parts"), CASES)
def test_a_wrong_argument_is_named(call, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        call()
    check(error, parts)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("call", "parts"), MODEL, ids=[f"model-{i}" for i in range(len(MODEL))])
def test_a_wrong_part_of_a_run_is_named(call, parts, make_model, make_toy):
    model = make_model("sst")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError) as error:
        call(model, make_toy("sst"), make_toy("quora"))
    check(error, parts)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_the_labels_of_a_regression_are_finite(make_model, make_toy):
    sts = make_toy("sts")
    labels = np.full(len(sts.train), NAN, np.float32)
    data = TaskData(sts.task, dataclasses.replace(sts.train, labels=labels), sts.dev)
    with pytest.raises(ValueError, match="expected an array of finite numbers"):
        fit(make_model("sts"), data)
    with pytest.raises(ValueError, match="in train are .*expected an array of finite numbers"):
        evaluate(make_model("sts"), data, split="train")


@pytest.mark.parametrize("metric", ["accuracy", "matthews", "mrr"])
def test_a_metric_of_another_kind_than_a_regression_is_named(make_model, make_toy, metric):
    data = with_metrics(make_toy("sts"), metric)
    message = rf"Task 'sts' has the metric '{metric}' of .* but is a regression.*\['pearson'"
    for function in (fit, evaluate):
        with pytest.raises(ValueError, match=message):
            function(make_model("sts"), data)


def test_a_file_in_place_of_a_folder_is_named(make_model, tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(OSError, match="file.* (is a file, expected a folder|could not be)"):
            save_model(make_model("sst"), path)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_the_tables_are_long_enough():
    """Other tables: fit's settings, data files, model folders, and the command line."""
    assert sum(map(len, (*TABLES.values(), MODEL))) >= 230
