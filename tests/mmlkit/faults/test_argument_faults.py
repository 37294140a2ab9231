"""Wrong arguments of `fit`, `evaluate` and `predict` are named."""

import math

import numpy as np
import pytest
import torch

from mmlkit.heads.linear import LinearHead
from mmlkit.training.evaluation import evaluate, predict, predict_proba
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel


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
        (["a film", " "], r"text 1 is \(' ',\)"),
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


def test_the_labels_of_a_batch_have_the_types_of_torch(make_model, make_toy):
    import dataclasses

    import torch

    from mmlkit.data.batching import collate, encode

    model, data = make_model("sts"), make_toy("sts")
    assert data.dev.labels.dtype.kind == "f"
    wide = dataclasses.replace(data.dev, labels=data.dev.labels.astype(np.float64))
    assert collate(encode(model.tokenizer, wide), [0, 1]).labels.dtype == torch.float32
