"""Wrong arguments of `fit`, `evaluate` and `predict` are named before anything is changed."""

import math

import numpy as np
import pytest
import torch

from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.pals.task_parts import add_pals
from mmlkit.training.evaluation import evaluate, predict, predict_proba
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer

NAN = float("nan")


class Silent:
    """A hook without a state, which is enough where no checkpoint is written."""

    def after_step(self, event):
        pass


WHOLE = r"expected a whole number of at least 1\."
NUMBER = r"expected a number of at least 0, or None\."
SETTINGS = [
    *[(dict(epochs=value), f"epochs is {value!r}, {WHOLE}") for value in (0, -1, 1.5, "3", True)],
    *[(dict(batch_size=value), f"batch_size is {value!r}, {WHOLE}") for value in (0, 8.0, "8")],
    (dict(batch_size=None), f"batch_size is None, {WHOLE}"),
    *[
        (dict(micro_batch_size=value), r"micro_batch_size is .*of at least 1, or None\.")
        for value in (0, -1, 2.5, "4")
    ],
    *[
        (dict(max_length=value), r"max_length is .*a whole number of at least 3, or None\.")
        for value in (-5, 0, 2, 7.5, "64")
    ],
    *[(dict(lr=value), f"lr is .*{NUMBER}") for value in (-1e-3, NAN, math.inf, "1e-3", True)],
    *[(dict(head_lr=value), f"head_lr is .*{NUMBER}") for value in (-1, NAN, "1")],
    *[(dict(clip=value), r"clip is .*a number above 0, or None\.") for value in (-1, 0, NAN, "1")],
    *[(dict(warmup=v), r"warmup is .*a number from 0 to 1\.") for v in (100, -1, NAN, None, "0")],
    *[(dict(seed=value), r"seed is .*a whole number of at least 0\.") for value in (-1, 0.5, "a")],
    *[(dict(save_steps=value), r"save_steps is .*at least 1, or None\.") for value in (0, 2.5)],
    *[(dict(save_minutes=value), r"save_minutes is .*of at least 0\.") for value in (-1, None)],
    (dict(schedule="step"), r"schedule 'step' is not one of \['linear', 'cosine', 'constant'\]"),
    (dict(optimizer="sgd"), "optimizer 'sgd' is not one of"),
    (dict(precision="fp8"), "precision 'fp8' is not one of"),
    (dict(resume=True), "resume=True needs a checkpoint_dir"),
    (dict(checkpoint_dir=""), "checkpoint_dir '' is not a folder"),
    (dict(checkpoint_dir=__file__), r"test_argument_faults.py' is not a folder"),
    (dict(hooks=[1]), "hook 1 has no method after_step"),
    (dict(hooks=[Silent()], checkpoint_dir="run"), r"hook .* has no method state_dict"),
]


def same(before, model):
    return all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("settings, message", SETTINGS)
def test_a_wrong_setting_is_named_and_changes_nothing(make_model, make_toy, settings, message):
    model = make_model("sst")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        fit(model, make_toy("sst"), **settings)
    assert same(before, model)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda sst, sts: {"sst": sts, "sts": sst}, r"data\['sst'\] holds task 'sts'"),
        (lambda sst, sts: [sst], r"data holds a list; give load_task\('sst'\)"),
        (lambda sst, sts: sst.train, "data holds a Split; give load_task"),
        (lambda sst, sts: None, "data holds a NoneType; give load_task"),
        (lambda sst, sts: {"sst": sst.train}, "data holds a Split; give load_task"),
        (lambda sst, sts: {}, "data is empty"),
    ],
)
def test_data_of_another_form_are_named(make_model, make_toy, change, message):
    with pytest.raises(ValueError, match=message):
        fit(make_model("sst", "sts"), change(make_toy("sst"), make_toy("sts")))


def test_a_split_with_more_labels_than_texts_is_named(make_model, make_toy):
    data = make_toy("sst", rows=20)
    data.train.texts.pop()
    with pytest.raises(ValueError, match="Task 'sst' has 19 texts and 20 labels in train"):
        fit(make_model("sst"), data)


def test_an_optimizer_of_another_model_is_named(make_model, make_toy):
    optimizer = make_optimizer(make_model("sst"), lr=1e-3)
    with pytest.raises(ValueError, match=r"of the optimizer are not of this model"):
        fit(make_model("sst"), make_toy("sst"), optimizer=optimizer)


def test_an_optimizer_that_was_made_while_the_encoder_was_frozen_is_named(make_model, make_toy):
    model = make_model("sst").freeze_encoder()
    optimizer = make_optimizer(model, lr=1e-3)
    model.freeze_encoder(False)
    encoder = len(list(model.encoder.parameters()))
    message = rf"leaves {encoder} of {encoder + 2} trainable parameters as they are, encoder\."
    with pytest.warns(UserWarning, match=message):
        fit(model, make_toy("sst"), optimizer=optimizer, epochs=1)


def test_pals_that_were_added_to_a_frozen_model_are_named(make_model, make_toy):
    """They look trainable, but a frozen encoder passes no gradient to them."""
    model, data = make_model("sst").freeze_encoder(), make_toy("sst")
    add_pals(model.encoder, ["sst"], size=4, num_heads=2)
    number = len(list(model.encoder.pals.parameters()))
    message = f"The encoder is frozen, but {number} parameters of it would .*, pals.* first. Call"
    with pytest.raises(ValueError, match=message):
        fit(model, data, epochs=1)
    fit(model, data, epochs=1, freeze_encoder=True)  # freezes them by itself
    fit(model.freeze_encoder(), data, epochs=1)
    model.freeze_encoder(False)
    fit(model, data, epochs=1)


def test_pals_that_stay_trainable_may_be_added_to_a_frozen_model(make_model, make_toy):
    model = make_model("sst").freeze_encoder()
    pals = add_pals(model.encoder, ["sst"], size=4, num_heads=2, stay_trainable=True).pals
    before = [parameter.detach().clone() for parameter in pals.parameters()]
    fit(model, make_toy("sst"), epochs=1, lr=1e-2)
    assert not all(map(torch.equal, before, pals.parameters()))
    model.encoder.embeddings.requires_grad_(True)
    with pytest.raises(ValueError, match="5 parameters of it would get no gradient"):
        fit(model, make_toy("sst"), epochs=1)


def test_a_pruner_of_another_head_is_named(make_model, make_toy):
    pruner = HeadPruner(MultiverseHead(32, 5, num_heads=4), every=2)
    with pytest.raises(ValueError, match="The head of HeadPruner is not one of this model"):
        fit(make_model("sst"), make_toy("sst"), hooks=[pruner])


@pytest.mark.parametrize("weight", [-1, NAN, math.inf])
def test_a_wrong_weight_of_orthogonality_is_named(weight):
    with pytest.raises(
        ValueError, match=r"orthogonality_weight is .*expected a number of at least"
    ):
        MultiverseHead(32, 5, num_heads=4, orthogonality_weight=weight)


@pytest.mark.parametrize("task, outputs", [("sst", 3), ("sst", 9), ("sts", 5)])
def test_a_head_with_other_outputs_than_the_task_is_named(make_model, make_toy, task, outputs):
    model, data = make_model(task), make_toy(task)
    model = MultitaskModel(model.encoder, {task: LinearHead(32, outputs)}, model.tokenizer)
    for function in (fit, evaluate, predict):
        with pytest.raises(ValueError, match=f"Its head has {outputs} outputs"):
            function(model, data)


@pytest.mark.parametrize(
    "texts, message",
    [
        ("a film", r"text 1 is \(' ',\)"),
        ([""], r"text 0 is \('',\)"),
        ([("a", "b")], r"text 0 is \('a', 'b'\); task 'sst' expects one text"),
    ],
)
def test_texts_of_another_form_are_named(make_model, texts, message):
    with pytest.raises(ValueError, match=message):
        predict(make_model("sst"), texts, task="sst")


@pytest.mark.parametrize("function", [evaluate, predict, predict_proba])
def test_scores_that_are_not_finite_are_named(make_model, make_toy, function):
    model = make_model("sst")
    with torch.no_grad():
        model.heads["sst"].dense.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="are not finite numbers: the model"):
        function(model, make_toy("sst"))


def test_the_warning_of_separate_sentences_counts_sentences(make_model, make_toy):
    from mmlkit.data.batching import encode

    model, data = make_model("quora"), make_toy("quora", dev=2)
    with pytest.warns(UserWarning, match="quora dev: [1-4] of 4 sentences longer than 3 tokens"):
        encode(model.tokenizer, data.dev, max_length=3, pairs="separate")


def test_the_labels_of_a_batch_have_the_types_of_torch(make_model, make_toy):
    import dataclasses

    import torch

    from mmlkit.data.batching import collate, encode

    model, data = make_model("sts"), make_toy("sts")
    assert data.dev.labels.dtype.kind == "f"
    wide = dataclasses.replace(data.dev, labels=data.dev.labels.astype(np.float64))
    assert collate(encode(model.tokenizer, wide), [0, 1]).labels.dtype == torch.float32
