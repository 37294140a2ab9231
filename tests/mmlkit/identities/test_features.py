"""A frozen encoder reads each row once, and training equals the run that encodes it each time."""

import pandas as pd
import pytest
import torch
from ranked import make_ranked

from mmlkit.bert.model import BertModel
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.training import loop
from mmlkit.training.loop import fit
from mmlkit.training.sampling import TaskSampler

HEADS = {  # dropout on the input: its draws must be those of the run without a cache
    "mean": ("sst", lambda: LinearHead(32, 5, dropout=0.5, pooling="mean")),
    "pooler": ("sst", lambda: LinearHead(32, 5, dropout=0.5, pooling="pooler")),
    "separate": ("quora", lambda: PairHead(32, 2, dropout=0.5)),
    "multiverse": ("quora", lambda: MultiverseHead(32, 2, num_heads=6, dropout=0.5)),
    "ranking": ("qnli_rank", lambda: RankingHead(32, activation="sigmoid", dropout=0.5)),
    "SAN": ("quora", lambda: SANHead(32, 2, dropout=0.5)),
    "sigmoid": ("sts", lambda: LinearHead(32, 1, dropout=0.5, activation="sigmoid")),
}
TRAIN, DEV = 20, 10  # rows of the toy data


@pytest.fixture
def encoded_rows(monkeypatch):
    """Return a list to which every call of the encoder adds its number of rows."""
    rows, forward = [], BertModel.forward

    def count(encoder, input_ids, *arguments, **options):
        rows.append(len(input_ids))
        return forward(encoder, input_ids, *arguments, **options)

    monkeypatch.setattr(BertModel, "forward", count)
    return rows


@pytest.fixture
def train(make_model, make_toy):
    """Return a function that trains the head of a frozen encoder; it returns (weights, history)."""

    def run(kind, **options):
        task, make_head = HEADS[kind]
        model = make_model("sst", dropout=0.1)
        torch.manual_seed(0)
        model.heads = torch.nn.ModuleDict({task: make_head()})
        data = make_ranked() if task == "qnli_rank" else make_toy(task, TRAIN, DEV)
        settings = dict(epochs=3, lr=1e-2, batch_size=4, freeze_encoder=True, precision="fp32")
        history = fit(model, {task: data}, **{**settings, **options})
        return model.state_dict(), history.drop(columns="seconds")

    return run


@pytest.mark.parametrize("options", [{}, dict(micro_batch_size=3), dict(precision="bf16")])
@pytest.mark.parametrize("kind", ["pooler", "multiverse", "separate", "ranking"])
def test_each_row_is_encoded_once(train, encoded_rows, monkeypatch, kind, options):
    """The run equals one that encodes every batch, within the rounding of other padding."""
    weights, history = train(kind, **options)
    rows = sum(encoded_rows)
    monkeypatch.setattr(loop, "encode_once", lambda model, encoded, **_: encoded)
    del encoded_rows[:]
    plain_weights, plain_history = train(kind, **options)
    first = 2 if kind == "separate" else 1  # the first rows of train and dev are tried
    assert sum(encoded_rows) == 3 * (rows - 2 * first)
    assert history["train_loss"].nunique() == 3  # the runs learn something
    atol = 0.02 if "precision" in options else 1e-6
    pd.testing.assert_frame_equal(history, plain_history, atol=atol, rtol=0)
    for key, value in weights.items():
        torch.testing.assert_close(value, plain_weights[key], atol=atol, rtol=0)


@pytest.mark.parametrize("kind", ["SAN", "sigmoid"])
def test_other_inputs_are_computed_each_time(train, encoded_rows, kind):
    train(kind)
    assert sum(encoded_rows) == 2 + 3 * (TRAIN + DEV)


def test_a_run_of_fewer_rows_than_the_split_encodes_only_those(train, encoded_rows):
    sampler = TaskSampler("uniform", sizes={"sst": 5}, epochs=2, steps_per_epoch=2)
    train("mean", epochs=2, sampler=sampler)
    assert sum(encoded_rows) == 2 * 2 * 4 + 1 + DEV


def test_an_encoder_that_trains_is_never_kept(make_model, make_toy, encoded_rows):
    """Neither without freezing, nor with PALs that stay trainable; a frozen model is kept."""
    options = dict(epochs=2, lr=1e-3, batch_size=5)
    fit(make_model("sst"), make_toy("sst", TRAIN, DEV), **options)
    assert sum(encoded_rows) == 2 * (TRAIN + DEV)
    model = make_model("sst")
    add_pals(model.encoder, ["sst"], size=12, num_heads=2, stay_trainable=True)
    fit(model.freeze_encoder(), make_toy("sst", TRAIN, DEV), **options)
    assert sum(encoded_rows) == 4 * (TRAIN + DEV)
    fit(make_model("sst").freeze_encoder(), make_toy("sst", TRAIN, DEV), **options)
    assert sum(encoded_rows) == 5 * (TRAIN + DEV) + 2
