"""A training run agrees with transformers: the losses of 36 updates, without dropout."""

import copy

import pytest
import torch

from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import autocast, fastest_precision, seeded
from mmlkit.training.model import MultitaskModel
from mmlkit.training.step import train_step

from .test_bert import minilm_folder

STEPS = 36
pytestmark = pytest.mark.slow


def our_losses(head, batches, precision):
    encoder, _ = load_pretrained("minilm")
    model = MultitaskModel(encoder, {"sst": copy.deepcopy(head)}).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    options = dict(clip=None, precision=precision)
    return [train_step(model, batch, optimizer, **options).total.item() for batch in batches]


def their_losses(head, batches, precision):
    import transformers

    model = transformers.BertForSequenceClassification.from_pretrained(
        minilm_folder(), num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).train()
    model.classifier.load_state_dict(head.dense.state_dict())
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-4), []
    for batch in batches:
        names = ("input_ids", "attention_mask", "token_type_ids", "labels")
        optimizer.zero_grad(set_to_none=True)
        with autocast(precision, "cpu")[0]:
            loss = model(**{name: getattr(batch, name) for name in names}).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


SLOW_BF16 = pytest.mark.skipif(
    fastest_precision("cpu") != "bf16",
    reason="this processor emulates bf16, a hundred times as slow: 36 updates take over 10 minutes",
)


@pytest.mark.parametrize(
    "precision, tolerance", [("fp32", 1e-6), pytest.param("bf16", 1e-3, marks=SLOW_BF16)]
)
def test_the_losses_of_36_updates_are_those_of_transformers(precision, tolerance):
    """MiniLM on SST-5, with AdamW and 16 rows in a batch."""
    split = load_task("sst", "mini").train
    encoded = encode(load_pretrained("minilm")[1], split)
    batches = [collate(encoded, rows) for rows in plan(encoded.lengths, 16, seed=0)[:STEPS]]
    with seeded(0):
        head = LinearHead(384, 5, dropout=0.0, pooling="pooler")
    ours, theirs = (losses(head, batches, precision) for losses in (our_losses, their_losses))
    assert len(ours) == STEPS and ours[0] - min(ours) > 0.3  # it has learned something
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < tolerance, list(zip(ours, theirs))
