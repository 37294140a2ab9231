"""Behaviour that users of transformers and scikit-learn expect.

Devices, label names, probabilities, export and custom heads.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import mmlkit
from mmlkit import runtime
from mmlkit.bert.model import BertLayer
from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead, Loss, PairHead, data_loss, sentence_vector
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.training.evaluation import evaluate, predict, predict_proba, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import load_model, save_model

TEXTS = ["the awful plot", "a great film", "one very good story ."]


class OwnHead(nn.Module):
    """A user-defined head with two layers."""

    needs_tokens, pairs = False, "packed"

    def __init__(self, hidden_size, num_labels, width=7):
        super().__init__()
        self.hidden_size, self.num_labels, self.width = hidden_size, num_labels, width
        self.layers = nn.Sequential(
            nn.Linear(hidden_size, width), nn.Tanh(), nn.Linear(width, num_labels)
        )

    def inputs(self, out, batch):
        return (sentence_vector(out, batch, "cls"),)

    def forward(self, x):
        return self.layers(x)

    def loss(self, inputs, batch):
        return Loss(data_loss(self(*inputs), batch))

    def penalty(self):
        return None

    def to_config(self):
        return {"hidden_size": self.hidden_size, "num_labels": self.num_labels, "width": self.width}


# ---- predictions ----


def test_one_text_is_one_prediction(make_model):
    """A text is not a list of its characters."""
    model = make_model("sst")
    assert predict(model, "great", task="sst") == predict(model, ["great"], task="sst")


def test_predict_gives_label_names_and_scores_of_a_regression(make_model, make_toy):
    model, names = make_model("sst", "sts"), get_task("sst").labels
    scores = predict_scores(model, TEXTS, task="sst")
    found = predict(model, TEXTS, task="sst")
    assert found.tolist() == [names[i] for i in scores.argmax(1)] and found.shape == (3,)
    similar = predict(model, make_toy("sts").dev)
    np.testing.assert_array_equal(similar, predict_scores(model, make_toy("sts").dev)[:, 0])


def test_no_texts_have_no_predictions(make_model, make_toy):
    """A list that happens to be empty gives an array that fits the others."""
    model = make_model("sst", "sts")
    assert predict(model, [], task="sst").tolist() == predict(model, [], task="sts").tolist() == []
    assert predict_scores(model, [], task="sts").shape == (0, 1)
    assert predict_proba(model, make_toy("sst").dev.take([])).shape == (0, 5)


@pytest.mark.parametrize(
    "kind", [LinearHead, SANHead, lambda D, C: MultiverseHead(D, C, num_heads=3)]
)
def test_probabilities_sum_to_one_whatever_the_head(make_model, make_toy, kind):
    model, split = make_model("quora"), make_toy("quora").dev
    model.heads["quora"] = kind(32, 2)
    found, scores = predict_proba(model, split), predict_scores(model, split)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    by_hand = scores if kind is SANHead else np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(found, by_hand, atol=1e-6)
    assert (
        found.argmax(1) == [split.task.labels.index(name) for name in predict(model, split)]
    ).all()


def test_a_regression_has_no_probabilities(make_model, make_toy):
    with pytest.raises(
        ValueError, match="task 'sts' is a regression task and has no probabilities; use predict"
    ):
        predict_proba(make_model("sts"), make_toy("sts").dev)


def test_evaluation_truncates_rows_like_training(make_model, make_toy, tmp_path):
    """With 4 tokens ([CLS], two words, [SEP]), most rows lose the decisive word."""
    model, data = make_model("sst"), make_toy("sst")
    history = fit(model, data, epochs=1, lr=1e-3, batch_size=10, max_length=4)
    assert model.max_length == 4 and evaluate(model, data)["accuracy"] == history.accuracy[0]
    np.testing.assert_array_equal(
        predict_scores(model, data.dev), predict_scores(model, data.dev, max_length=4)
    )
    assert (
        np.abs(
            predict_scores(model, data.dev) - predict_scores(model, data.dev, max_length=16)
        ).max()
        > 1e-3
    )
    save_model(model, tmp_path)
    assert load_model(tmp_path).max_length == 4


def test_an_error_in_a_batch_leaves_the_modes_of_the_model(make_model, monkeypatch):
    model = make_model("sst").train()
    monkeypatch.setattr(BertLayer, "forward", lambda *inputs, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        predict(model, TEXTS, task="sst")
    assert all(module.training for module in model.modules())


# ---- device and precision ----


def test_every_function_passes_its_device_on(make_model, make_toy, monkeypatch, tmp_path):
    """Each function passes its `device` to `place`, which selects it and moves the model."""
    moved = []

    def record_device(model, device=None):
        moved.append(device)
        return model

    save_model(make_model("sst"), tmp_path)
    for module in ("evaluation", "loop", "saving"):
        monkeypatch.setattr(f"mmlkit.training.{module}.place", record_device)
    model, data = make_model("sst"), make_toy("sst")
    fit(model, data, epochs=1, lr=1e-3, device="cpu")
    predict(model, data.dev), predict_proba(model, data.dev, device="cpu"), evaluate(model, data)
    load_model(tmp_path)
    assert moved == ["cpu", None, "cpu", None, None]


def test_a_model_moves_to_an_available_gpu_and_stays_on_its_device(monkeypatch):
    layer = nn.Linear(2, 2)
    assert runtime.place(layer).weight.device.type == runtime.pick_device().type
    monkeypatch.setattr(runtime, "pick_device", lambda name=None: torch.device(name or "meta"))
    assert runtime.place(nn.Linear(2, 2)).weight.device.type == "meta"
    assert runtime.place(nn.Linear(2, 2), "cpu").weight.device.type == "cpu"
    on_meta = nn.Linear(2, 2, device="meta")
    monkeypatch.setattr(runtime, "pick_device", lambda name=None: 1 / 0)
    assert runtime.place(on_meta) is on_meta


def test_auto_is_the_default_precision(make_model, make_toy, monkeypatch):
    """If bf16 is the fastest precision, `fit` and `predict` use it. The weights stay fp32."""
    model, data = make_model("sst"), make_toy("sst")
    exact = predict_scores(model, data.dev)
    monkeypatch.setattr(runtime, "fastest_precision", lambda device: "bf16")
    rounded = predict_scores(model, data.dev)
    assert 0 < np.abs(rounded - exact).max() < 0.05
    np.testing.assert_array_equal(predict_scores(model, data.dev, precision="fp32"), exact)
    fit(model, data, epochs=1, lr=1e-3)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


# ---- custom heads ----


def test_a_custom_head_trains_saves_and_loads(make_model, make_toy, tmp_path):
    model, data = make_model("sst"), make_toy("sst")
    model.heads["sst"] = OwnHead(32, 5, width=9)
    fit(model, data, epochs=1, lr=1e-3, head_lr=1e-2)
    save_model(model, tmp_path)
    again = load_model(tmp_path, custom_heads=[OwnHead])
    assert again.heads["sst"].width == 9
    np.testing.assert_array_equal(predict_scores(again, data.dev), predict_scores(model, data.dev))
    with pytest.raises(
        ValueError, match=r"head type 'OwnHead' is not one of .*custom_heads=\[...\]"
    ):
        load_model(tmp_path)


# ---- export ----


class MaxHead(LinearHead):
    """A head of one's own that reads something else than its base class."""

    def inputs(self, out, batch):
        return (out.last_hidden_state.amax(1),)


def classifier(make_model, task, head):
    model = make_model(task)
    model.heads[task] = head
    nn.init.normal_(next(head.parameters()), std=0.3)
    return model


@pytest.mark.parametrize(
    ("kind", "pooling"), [("linear", "pooler"), ("linear", "cls"), ("multiverse", "mean")]
)
def test_an_exported_classifier_opens_with_pipeline(make_model, tmp_path, kind, pooling):
    from transformers import AutoModelForSequenceClassification, pipeline

    head = (
        LinearHead(32, 5, pooling=pooling)
        if kind == "linear"
        else MultiverseHead(32, 5, num_heads=4, pooling=pooling)
    )
    model = classifier(make_model, "sst", head)
    mmlkit.export_classifier(model, "sst", tmp_path / "out")
    name = type(AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")).__name__
    assert name == (
        "BertForSequenceClassification"
        if pooling == "pooler"
        else "MultiverseForSequenceClassification"
    )
    rows = pipeline("text-classification", str(tmp_path / "out"), top_k=None)(TEXTS)
    theirs = pd.DataFrame([{one["label"]: one["score"] for one in row} for row in rows])
    ours = predict_proba(model, TEXTS, task="sst")
    np.testing.assert_allclose(theirs[list(get_task("sst").labels)], ours, atol=1e-5)
    assert ours.max(1).min() > 0.22  # the rows differ from 1/5


@pytest.mark.parametrize("pooling", ["pooler", "mean"])
def test_an_exported_regression_gives_scores_without_a_sigmoid(make_model, tmp_path, pooling):
    from transformers import pipeline

    model = classifier(make_model, "sts", LinearHead(32, 1, pooling=pooling))
    with torch.no_grad():
        model.heads["sts"].dense.weight.mul_(0.1)
        model.heads["sts"].dense.bias.fill_(3.0)
    mmlkit.export_classifier(model, "sts", tmp_path)
    pairs = [("a cat sat", "a dog ran"), ("it rains", "the sun shines on us")]
    pipe = pipeline("text-classification", str(tmp_path))
    theirs = [pipe({"text": first, "text_pair": second})["score"] for first, second in pairs]
    ours = predict(model, pairs, task="sts")
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert min(theirs) > 1


def test_an_export_into_the_folder_of_save_model_is_refused(make_model, tmp_path):
    """load_model would find the new encoder and the old heads."""
    model = make_model("sst")
    save_model(model, tmp_path / "model")
    with pytest.raises(ValueError, match="holds a model with heads"):
        mmlkit.export_classifier(model, "sst", tmp_path / "model")
    assert load_model(tmp_path / "model").heads.keys() == {"sst"}


def test_an_export_cuts_rows_where_the_model_did(make_model, tmp_path):
    from transformers import AutoTokenizer

    model = make_model("sst")
    model.max_length = 9
    mmlkit.export_classifier(model, "sst", tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 9
    assert model.tokenizer.model_max_length > 9


def test_a_head_of_two_tasks_is_saved_as_two(make_model, tmp_path):
    model = make_model("sst")
    head = model.heads["sst"]
    save_model(MultitaskModel(model.encoder, {"a": head, "b": head}, model.tokenizer), tmp_path)
    again = load_model(tmp_path).heads
    assert again["a"] is not again["b"]
    assert all(torch.equal(one.dense.weight, head.dense.weight) for one in again.values())


def test_a_pair_task_exports_with_its_label_names(make_model, make_toy, tmp_path):
    from transformers import pipeline

    model, split = classifier(make_model, "quora", LinearHead(32, 2)), make_toy("quora").dev
    mmlkit.export_classifier(model, split.task, tmp_path)
    pipe = pipeline("text-classification", str(tmp_path))
    found = [pipe({"text": first, "text_pair": second})["label"] for first, second in split.texts]
    assert found == predict(model, split).tolist() and set(found) <= set(split.task.labels)


@pytest.mark.parametrize(
    ("task", "make", "message"),
    [
        (
            "quora",
            lambda: SANHead(32, 2),
            "has a SANHead; expected a LinearHead or MultiverseHead",
        ),
        ("quora", lambda: PairHead(32, 2), "has a PairHead; expected"),
        ("sts", lambda: LinearHead(32, 1, activation="sigmoid"), "without activation"),
        ("sst", lambda: MaxHead(32, 5), "has a MaxHead; expected a LinearHead or MultiverseHead"),
    ],
)
def test_heads_without_an_equivalent_in_transformers_are_refused(
    make_model, tmp_path, task, make, message
):
    model = make_model(task)
    model.heads[task] = make()
    with pytest.raises(ValueError, match=message):
        mmlkit.export_classifier(model, task, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_encoder_with_pals_is_refused(make_model, tmp_path):
    model = make_model("sst")
    add_pals(model.encoder, ["sst"], size=8, num_heads=2)
    with pytest.raises(ValueError, match="on an encoder without PALs"):
        mmlkit.export_classifier(model, "sst", tmp_path / "out")


def test_id2label_on_any_encoder(make_model, tmp_path):
    from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

    from mmlkit.huggingface import MultiverseForSequenceClassification

    encoder = BertModel(
        BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    model = MultiverseForSequenceClassification.on(
        encoder, id2label={0: "no", 1: "yes"}, num_heads=3
    )
    assert model.config.num_labels == 2 and model.config.label2id == {"no": 0, "yes": 1}
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert again.config.id2label == {0: "no", 1: "yes"} and again.head.num_heads == 3


# ---- what users tried ----


def test_a_task_that_contradicts_the_data_is_refused(make_model, make_toy):
    model, data = make_model("sst", "quora"), make_toy("sst")
    for call in (evaluate, predict, predict_proba, predict_scores):
        with pytest.raises(ValueError, match="task is 'quora', but data is of task 'sst'"):
            call(model, data, task="quora")
    same = predict_scores(model, data, task="sst")
    assert np.array_equal(same, predict_scores(model, data.dev, task=get_task("sst")))


def test_texts_without_a_task_are_answered_with_the_heads_of_the_model(make_model):
    with pytest.raises(ValueError, match=r"pass task='quora' \(the model has .*'sts'\]"):
        predict(make_model("quora", "sts"), ["a film"])
    model = make_model("sst")
    model.heads["mine"] = LinearHead(32, 2)
    with pytest.raises(ValueError, match="'mine' is not a task"):
        predict(model, ["a film"], task="mine")


@pytest.mark.parametrize(
    "head",
    [
        PairHead(32, 2),
        SANHead(32, 2),
        LinearHead(32, 2),
        MultiverseHead(32, 2, num_heads=3),
        MultiverseHead(32, 2, num_heads=3, pairs="separate"),
    ],
    ids=lambda head: f"{type(head).__name__} {head.pairs}",
)
def test_a_whole_model_in_half_precision_predicts(make_model, head):
    """`model.bfloat16()` is how users of transformers make a model smaller; bf16 has 3 digits."""
    model = make_model("quora")
    model.heads["quora"] = head
    pairs = [("the awful plot", "a film"), ("very good", "very good story .")]
    expected = predict_proba(model, pairs, task="quora")
    mixed = predict_proba(model, pairs, task="quora", precision="bf16")
    found = predict_proba(model.bfloat16(), pairs, task="quora")
    for one in (mixed, found):
        assert 0 < np.abs(one - expected).max() < 0.05


def test_a_split_takes_a_slice(make_toy):
    split = make_toy("sst").train
    part = split[2:5]
    assert part.texts == split.texts[2:5] and part.labels.tolist() == split.labels[2:5].tolist()
    assert split[-1]["id"] == split.ids[-1] and len(split[::4]) == 5


def test_evaluate_computes_the_metrics_of_the_data(make_model, make_toy):
    data = make_toy("quora")
    other = replace(data, task=replace(data.task, metrics=("f1", "matthews")))
    assert set(evaluate(make_model("quora"), other)) == {"f1", "matthews"}


def test_loading_and_exporting_draw_no_random_numbers(make_model, tmp_path):
    model = make_model("sst")
    model.heads["sst"] = MultiverseHead(32, 5, num_heads=3)
    save_model(model, tmp_path / "model")
    for use in (
        lambda: load_model(tmp_path / "model"),
        lambda: mmlkit.export_classifier(model, "sst", tmp_path / "exported"),
        model.collapse,
        model.heads["sst"].collapse,
    ):
        torch.manual_seed(0)
        use()
        after = torch.rand(1)
        torch.manual_seed(0)
        assert torch.equal(after, torch.rand(1))


def test_a_compiled_encoder_is_exported_as_what_it_is(make_model, tmp_path):
    model = make_model("sst")
    expected = predict_proba(model, TEXTS, task="sst")
    model.encoder = torch.compile(model.encoder, backend="eager")
    model.heads["sst"] = torch.compile(model.heads["sst"], backend="eager")
    mmlkit.export_classifier(model, "sst", tmp_path / "exported")
    from transformers import pipeline

    found = pipeline("text-classification", str(tmp_path / "exported"), top_k=None)(TEXTS)
    found = [{one["label"]: one["score"] for one in row} for row in found]
    names = get_task("sst").labels
    np.testing.assert_allclose(
        [[row[name] for name in names] for row in found], expected, atol=1e-5
    )


def test_the_saved_configuration_names_the_type_of_the_weights(make_model, tmp_path):
    from transformers import AutoModel

    model = make_model("sst")
    save_pretrained(model.encoder.bfloat16(), model.tokenizer, tmp_path / "encoder")
    assert (
        next(AutoModel.from_pretrained(tmp_path / "encoder").parameters()).dtype is torch.bfloat16
    )
    encoder, _ = load_pretrained(tmp_path / "encoder")
    assert next(encoder.parameters()).dtype is torch.float32
