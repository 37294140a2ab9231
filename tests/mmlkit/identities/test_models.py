"""Properties of every head; a saved and loaded model gives the same predictions."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from ranked import make_ranked

import mmlkit
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import collate, encode
from mmlkit.data.loading import TaskData, make_split
from mmlkit.data.tasks import Task, get_task, task_from_config
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import evaluate, predict, predict_proba, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.saving import HEADS as KINDS
from mmlkit.training.saving import load_model, save_model
from mmlkit.training.step import train_step

# name: (task, function from a dropout probability to its head)
HEADS = {
    "linear": ("sst", lambda p: LinearHead(32, 5, dropout=p)),
    "linear mean": ("sts", lambda p: LinearHead(32, 1, dropout=p, pooling="mean")),
    "sigmoid": ("sts", lambda p: LinearHead(32, 1, dropout=p, activation="sigmoid")),
    "pair": ("quora", lambda p: PairHead(32, 2, dropout=p)),
    "multiverse": ("sst", lambda p: MultiverseHead(32, 5, num_heads=4, dropout=p)),
    "multiverse pair": (
        "sts",
        lambda p: MultiverseHead(32, 1, num_heads=4, dropout=p, pooling="mean", pairs="separate"),
    ),
    "san": ("quora", lambda p: SANHead(32, 2, dropout=p, prediction_dropout=p)),
    "san, one step": (
        "quora",
        lambda p: SANHead(32, 2, num_steps=1, dropout=p, prediction_dropout=p),
    ),
    "ranking": ("qnli_rank", lambda p: RankingHead(32, dropout=p)),
    "ranking sigmoid": (
        "qnli_rank",
        lambda p: RankingHead(32, dropout=p, activation="sigmoid", gamma=3.0, pooling="mean"),
    ),
}

UNUSED = {"san, one step": ("cell.",)}  # one step does not update the state
# Constant shifts cancel in a softmax: the gradient is a rounding error, and may be exactly 0.
FLAT = {"san": ("summary.bias",), "san, one step": ("summary.bias",), "ranking": ("dense.bias",)}


@pytest.fixture
def make_case(make_model, make_toy):
    """Return a function (name, dropout) that builds a model, its data and the encoded data.

    The model is tiny and has this head and a second one.
    """

    def make(name, dropout=0.0):
        task, head = HEADS[name]
        bare = make_model("sst", dropout=dropout)
        with seeded(7):
            heads = {task: head(dropout), "cola": LinearHead(32, 2)}
            with torch.no_grad():  # large weights, so that rows and steps differ
                for parameter in heads[task].parameters():
                    parameter.normal_(std=0.3)
        data = make_ranked() if task == "qnli_rank" else make_toy(task)
        model = MultitaskModel(bare.encoder, heads, bare.tokenizer)
        return model, data, encode(model.tokenizer, data.train, pairs=model.heads[task].pairs)

    return make


def batch_of(encoded, size=6):
    """Return a padded batch of `size` examples; the candidates of a query are adjacent."""
    rows = (
        range(size)
        if encoded.queries is None
        else [int(row) for query in range(size) for row in np.flatnonzero(encoded.queries == query)]
    )
    batch = collate(encoded, rows)
    assert len(batch) == size and batch.attention_mask.min() == 0
    return batch


def test_every_type_of_head_is_tested():
    assert {type(make(0.0)) for _, make in HEADS.values()} == set(KINDS)
    assert len(HEADS) == 10 and all(
        make(0.0).penalty() is None for name, (_, make) in HEADS.items() if "multiverse" not in name
    )


@pytest.mark.parametrize("name", HEADS)
def test_shapes(make_case, name):
    model, data, encoded = make_case(name, dropout=0.2)
    batch = batch_of(encoded)
    for mode in (True, False):
        scores, loss = model.train(mode)(batch), model.loss(batch)
        assert scores.shape == (len(batch.rows), data.task.num_labels) and scores.std() > 1e-3
        assert (
            loss.total.shape == () and loss.total.dtype == torch.float32 and loss.total.isfinite()
        )
        assert (loss.per_head is None) == ("multiverse" not in name)


@pytest.mark.parametrize("name", HEADS)
def test_padding_changes_nothing(make_case, name):
    model, _, encoded = make_case(name)
    batch = batch_of(encoded)
    with torch.no_grad():
        scores = model.eval()(batch)
        alone = torch.cat([model(collate(encoded, [row])) for row in batch.rows])
    torch.testing.assert_close(scores, alone, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", HEADS)
def test_micro_batches_equal_the_whole_batch(make_case, name):
    found = []
    for micro in (None, 4):
        model, _, encoded = make_case(name)
        loss = train_step(
            model.double().train(),
            batch_of(encoded),
            torch.optim.SGD(model.parameters(), lr=0.0),
            micro_batch_size=micro,
            clip=None,
        )
        found.append(
            (
                loss.total,
                {
                    key: value.grad
                    for key, value in model.named_parameters()
                    if value.grad is not None
                },
            )
        )
    (whole, gradients), (parts, others) = found
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-6)
    assert set(gradients) == set(others)
    largest = max(value.abs().max().item() for value in gradients.values())
    for key, value in gradients.items():
        torch.testing.assert_close(
            others[key],
            value,
            atol=1e-7 * largest,
            rtol=1e-6,
            msg=lambda text, key=key: f"{key}: {text}",
        )


@pytest.mark.parametrize("name", HEADS)
def test_the_gradient_reaches_the_encoder_and_this_head_only(make_case, name):
    """The other task's head and the unused parameters have no gradient."""
    model, data, encoded = make_case(name)
    model.loss(batch_of(encoded)).total.backward()
    unused, flat = UNUSED.get(name, ()), FLAT.get(name, ())
    head = dict(model.heads[data.task.name].named_parameters())
    for key, parameter in head.items():
        if unused and key.startswith(unused):
            assert parameter.grad is None, key
        elif key in flat:
            assert parameter.grad.abs().max() < 1e-6, key
        else:
            assert parameter.grad.abs().max() > 1e-5, key
    assert all(parameter.grad is None for parameter in model.heads["cola"].parameters())
    uses_pooler = getattr(model.heads[data.task.name], "pooling", None) == "pooler"
    for key, parameter in model.encoder.named_parameters():
        reached = parameter.grad is not None and parameter.grad.abs().max() > 0
        assert reached == (uses_pooler or "pooler" not in key), key


@pytest.mark.parametrize(
    ("name", "optimizer"), [*((name, "adamax") for name in HEADS), ("multiverse", "adamw")]
)
def test_steps_of_other_tasks_do_not_change_this_head(make_case, make_toy, name, optimizer):
    """A step of this task comes first, so that the optimizer has moments.

    During steps of another task the head stays bit-identical; afterwards it changes again.
    """
    model, data, encoded = make_case(name)
    optimizer = make_optimizer(model.train(), optimizer, lr=1e-2, weight_decay=0.1)
    other = collate(encode(model.tokenizer, make_toy("sst").train.take([0, 2])), [0, 1])
    mine, other = (
        batch_of(encoded),
        dataclasses.replace(other, task=get_task("cola"), labels=other.labels.clamp(max=1)),
    )

    def head():
        return {
            key: value.clone() for key, value in model.heads[data.task.name].state_dict().items()
        }

    start = head()
    train_step(model, mine, optimizer)
    first, cola = head(), model.heads["cola"].dense.weight.clone()
    for _ in range(3):
        train_step(model, other, optimizer)
    assert all(torch.equal(first[key], value) for key, value in head().items())
    assert not torch.equal(model.heads["cola"].dense.weight, cola)
    train_step(model, mine, optimizer)
    last = head()
    for before, after in ((start, first), (first, last)):
        still = {key for key in before if torch.equal(before[key], after[key])}
        may_stay = (*UNUSED.get(name, ()), *FLAT.get(name, ()), "active")
        assert still <= {key for key in before if key.startswith(may_stay)}


@pytest.mark.slow
def test_heads_of_all_kinds_train_in_one_model(make_model, make_toy, tmp_path):
    """The loss of every task falls, and the saved model gives the same predictions.

    The model combines multiverse, SAN, ranking and similarity heads.
    """
    bare = make_model("sst")
    with seeded(3):
        heads = {
            "sst": MultiverseHead(32, 5, num_heads=8, dropout=0.0),
            "quora": SANHead(32, 2),
            "qnli_rank": RankingHead(32, dropout=0.0),
            "sts": LinearHead(32, 1, dropout=0.0, activation="sigmoid"),
        }
    model = MultitaskModel(bare.encoder, heads, bare.tokenizer)
    data = {
        name: make_ranked(queries=20) if name == "qnli_rank" else make_toy(name, rows=40)
        for name in heads
    }
    history = fit(model, data, epochs=6, lr=5e-3, batch_size=5, optimizer="adamw")
    assert history["step"].iloc[-1] == 6 * (8 + 8 + 4 + 8)
    for name, losses in history.groupby("task")["train_loss"]:
        assert losses.iloc[-1] < 0.8 * losses.iloc[0], name
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    for one in data.values():
        np.testing.assert_array_equal(predict_scores(again, one), predict_scores(model, one))


@pytest.mark.parametrize("name", HEADS)
def test_every_head_is_saved_and_loaded(make_case, tmp_path, name):
    model, data, _ = make_case(name, dropout=0.25)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    task = data.task.name
    before, after = (
        [
            {
                key: value
                for key, value in vars(part).items()
                if isinstance(value, (int, float, str, tuple)) and key != "training"
            }
            for part in one.heads[task].modules()
        ]
        for one in (model, again)
    )
    assert (
        before == after
        and again.heads[task].to_config() == model.heads[task].to_config()
        and "0.25" in str(before)
    )
    assert type(again.heads[task]) is type(model.heads[task])
    scores = predict_scores(model, data)
    np.testing.assert_array_equal(predict_scores(again, data), scores)
    assert scores.std() > 1e-3 and load_pretrained(tmp_path)[0].config == model.encoder.config


@pytest.mark.parametrize("pooling", ["pooler", "cls", "mean"])
def test_a_saved_model_predicts_the_same(make_model, make_toy, tmp_path, pooling):
    model = make_model("sst", "quora", "sts", pooling=pooling, dropout=0.2).train()
    save_model(model, tmp_path / "a", metadata={"seed": 3})
    again = load_model(tmp_path / "a")
    assert not again.training and list(again.heads) == ["sst", "quora", "sts"]
    assert again.encoder.config == model.encoder.config
    for task in model.heads:
        assert again.heads[task].to_config() == model.heads[task].to_config()
        split = make_toy(task).dev
        scores = predict_scores(model, split)
        np.testing.assert_array_equal(predict_scores(again, split), scores)
        assert scores.std() > 1e-3
    assert json.loads((tmp_path / "a" / "mmlkit.json").read_text())["metadata"] == {"seed": 3}


def spam(labels=("no", "yes")):
    """Return a toy task of one's own, with its rows, as TaskData."""
    task = Task("spam", ("message",), labels, metrics=("f1", "accuracy"))
    rows = [{"message": f"film {i}", "label": ("no", "yes")[i % 2]} for i in range(8)]
    parts = [make_split(task, rows, name=name) for name in ("train", "dev")]
    return TaskData(task, *parts)


def test_a_saved_model_knows_the_tasks_that_it_was_trained_on(make_model, make_toy, tmp_path):
    """A name is enough to predict for a task of one's own; mmlkit's own task comes back itself."""
    model = make_model("sst", "sts")
    model.heads["spam"] = MultiverseHead(32, 2, num_heads=4)
    assert model.tasks == {} and predict(model, ["a film"], task="sst").shape == (1,)
    data = {"spam": spam(), "sts": make_toy("sts")}
    fit(model, data, epochs=1, lr=1e-3)
    save_model(model.collapse(), tmp_path / "a")
    again = load_model(tmp_path / "a")
    assert again.tasks == {"spam": spam().task, "sts": get_task("sts")}
    assert again.tasks["sts"] is get_task("sts")  # with all names in files
    shares = predict_proba(model, ["a film"], task="spam")
    np.testing.assert_allclose(predict_proba(again, ["a film"], task="spam"), shares, atol=1e-6)
    assert predict(again, ["a film"], task="spam") == np.array(["no", "yes"])[shares.argmax(1)]
    mmlkit.export_classifier(again, "spam", tmp_path / "b")
    labels = json.loads((tmp_path / "b" / "config.json").read_text())["id2label"]
    assert labels == {"0": "no", "1": "yes"}


def test_labels_in_another_order_are_refused(make_model, tmp_path):
    """They would give each row the other label, without a message."""
    model, other = make_model("sst"), spam(("Yes", "No"))
    model.heads["spam"] = LinearHead(32, 2)
    fit(model, spam(), epochs=1, lr=1e-3)
    message = (
        "has the labels .'Yes', 'No'. .* outputs. The head was trained with .'no', 'yes'., in this"
    )
    for refused in (
        lambda: evaluate(model, other),
        lambda: predict(model, ["a film"], task=other.task),
        lambda: fit(model, other, epochs=1, lr=1e-3),
        lambda: mmlkit.export_classifier(model, other.task, tmp_path / "exported"),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
    with pytest.raises(ValueError, match="has the labels .'yes', 'ja'."):
        predict(model, ["a film"], task=dataclasses.replace(other.task, labels=("yes", "ja")))
    renamed = dataclasses.replace(other.task, labels=("nein", "ja"))
    assert predict(model, ["a film"], task=renamed)[0] in renamed.labels
    model.heads["spam"] = LinearHead(32, 2)
    assert model.tasks == {}  # the head is another one
    fit(model, other, epochs=1, lr=1e-3)
    assert model.tasks["spam"].labels == ("Yes", "No")


def test_a_model_is_saved_after_its_head_was_replaced(make_model, tmp_path):
    """The task of the old head is forgotten: it does not fit the new one."""
    model = make_model("sst")
    model.heads["spam"] = LinearHead(32, 2)
    model.set_task(spam().task)
    model.heads["spam"] = LinearHead(32, 3)
    save_model(model, tmp_path)
    assert load_model(tmp_path).tasks == {}
    with pytest.raises(ValueError, match="Its head has 3 outputs"):
        model.set_task(spam().task)
    with pytest.raises(ValueError, match="no head for task 'qnli_rank'"):
        model.set_task(get_task("qnli_rank"))


def test_a_copied_model_has_its_tasks(make_model):
    model = make_model("sst")
    model.set_task(get_task("sst"))
    twin = copy.deepcopy(model)
    assert twin.tasks == model.tasks == {"sst": get_task("sst")}
    twin.heads["sst"] = LinearHead(32, 5)
    assert twin.tasks == {} != model.tasks


@pytest.mark.parametrize("name", ["sst", "sts", "scitail", "qnli_rank"])
def test_a_task_of_mmlkit_comes_back_from_json(name):
    task = get_task(name)
    assert task_from_config(json.loads(json.dumps(task.to_config()))) == task
    short = task_from_config({"name": "mine", "text_columns": ["text"], "labels": ["a", "b"]})
    assert short == Task("mine", ("text",), ("a", "b"))


def test_a_model_may_be_saved_over_another_one(make_model, make_toy, tmp_path):
    model = make_model("sst")
    save_model(make_model("sst", "sts", seed=4), tmp_path)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_array_equal(
        predict_scores(again, make_toy("sst").dev), predict_scores(model, make_toy("sst").dev)
    )
    assert list(again.heads) == ["sst"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "heads.safetensors",
        "mmlkit.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_encoder_alone_opens_with_transformers(make_model, tmp_path):
    import transformers

    model = make_model("sst").eval()
    save_model(model, tmp_path)
    ids = torch.tensor([[2, 7, 9, 3]])
    with torch.no_grad():
        theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()(ids).pooler_output
        torch.testing.assert_close(model.encoder(ids).pooler_output, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "missing, message",
    [
        (
            "mmlkit.json",
            "holds no trained model: mmlkit.json is missing. Expected a folder written by "
            "save_model",
        ),
        ("config.json", "config.json"),
        ("model.safetensors", "model.safetensors"),
        ("tokenizer.json", "has no tokenizer: expected tokenizer.json or vocab.txt"),
        ("heads.safetensors", "heads.safetensors"),
    ],
)
def test_a_missing_file_is_named(make_model, tmp_path, missing, message):
    save_model(make_model("sst"), tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        load_model(tmp_path)


def test_a_head_of_unknown_type_is_refused(make_model, tmp_path):
    save_model(make_model("sst"), tmp_path)
    path = tmp_path / "mmlkit.json"
    path.write_text(path.read_text().replace('"LinearHead"', '"CubicHead"'))
    with pytest.raises(
        ValueError,
        match=r"mmlkit.json .*: head type 'CubicHead' is not one of \['LinearHead'",
    ):
        load_model(tmp_path)


def test_a_model_needs_a_head_for_the_task(make_model, make_toy):
    model = make_model("sst")
    with pytest.raises(
        ValueError, match=r"This model has no head for task 'sts'; it has \['sst'\]"
    ):
        predict_scores(model, make_toy("sts").dev)
