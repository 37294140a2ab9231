"""The two halves of a batch, each in a thread, give the numbers of the whole batch."""

import copy
import threading

import numpy as np
import pytest
import torch
from ranked import make_ranked

from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import seeded
from mmlkit.training import fast
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.step import train_step

HEADS = {
    "sst": lambda p: LinearHead(32, 5, dropout=p, pooling="mean"),
    "sts": lambda p: MultiverseHead(32, 1, num_heads=3, dropout=p, orthogonality_weight=0.5),
    "quora": lambda p: SANHead(32, 2, dropout=p, prediction_dropout=p),
    "qnli_rank": lambda p: RankingHead(32, dropout=p),
    "pair": lambda p: PairHead(32, 2, dropout=p),
}
PALS = ("pal", "low_rank", "houlsby", "sequential", "sequential_fixed")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """Give torch two threads, and let the smallest batch be processed in halves."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(fast, "SMALLEST", 0)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.fixture
def make_case(make_model, make_toy):
    """Return a function (name, dropout) that builds a tiny model in train mode and its batches."""

    def make(name, dropout=0.3, pals=None):
        task = "quora" if name == "pair" else name
        bare = make_model("sst", dropout=dropout)
        if pals:
            add_pals(bare.encoder, [task], kind=pals, init="normal")
        with seeded(7):
            model = MultitaskModel(bare.encoder, {task: HEADS[name](dropout)}, bare.tokenizer)
        data = make_ranked() if task == "qnli_rank" else make_toy(task)
        encoded = encode(model.tokenizer, data.train, pairs=model.heads[task].pairs)
        if encoded.queries is None:
            parts = range(9), range(9, 18)
        else:  # whole queries, their candidates side by side
            order = np.argsort(encoded.queries, kind="stable")
            parts = (order[encoded.queries[order] % 2 == odd].tolist() for odd in (0, 1))
        return model.train(), [collate(encoded, rows) for rows in parts]

    return make


def threads_of(model, work):
    """Return the rows that the first layer sees in each thread while `work` runs."""
    layer, seen = model.encoder.encoder.layer[0], []
    forward = layer.forward

    def watched(hidden_states, *inputs, **options):
        seen.append((threading.current_thread() is threading.main_thread(), len(hidden_states)))
        return forward(hidden_states, *inputs, **options)

    layer.forward = watched
    try:
        work()
    finally:
        del layer.forward
    return sorted(seen)


def trained(model, batches, **options):
    """Train a copy of the model; return the losses and the weights."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with seeded(3):
        losses = [
            train_step(model, batch, optimizer, clip=None, precision="fp32", **options)
            for batch in batches
        ]
    return [loss.total.item() for loss in losses], model.state_dict()


def without_halves(monkeypatch):
    monkeypatch.setattr(fast, "SMALLEST", 10**12)


def assert_equal_training(found, expected, exact=False):
    tolerance = 0 if exact else 1e-5
    assert found[0] == (expected[0] if exact else pytest.approx(expected[0], abs=tolerance))
    for key, value in expected[1].items():
        torch.testing.assert_close(
            found[1][key], value, atol=tolerance, rtol=0, msg=lambda text, key=key: f"{key}: {text}"
        )


CASES = [(name, None) for name in HEADS] + [("sst", kind) for kind in PALS]


@pytest.mark.parametrize(("name", "pals"), CASES)
@pytest.mark.parametrize("size", [None, 4])
def test_training_equals_that_of_the_whole_batch(make_case, monkeypatch, name, pals, size):
    """With dropout, which is drawn as for the whole batch; micro-batches are halved too."""
    model, batches = make_case(name, pals=pals)
    found = trained(model, batches, micro_batch_size=size)
    without_halves(monkeypatch)
    expected = trained(model, batches, micro_batch_size=size)
    assert_equal_training(found, expected)
    assert any(not torch.equal(value, model.state_dict()[key]) for key, value in found[1].items())


def test_training_repeats_bit_for_bit(make_case):
    model, batches = make_case("pair")
    first = trained(model, 5 * batches)
    assert_equal_training(trained(model, 5 * batches), first, exact=True)


def test_each_thread_has_half_of_the_rows(make_case, monkeypatch):
    model, batches = make_case("sst")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lambda: train_step(model, batches[0], optimizer)
    assert threads_of(model, step) == [(False, 4), (False, 5)]
    monkeypatch.setattr(fast, "SMALLEST", batches[0].input_ids.numel())
    assert len(threads_of(model, step)) == 2
    monkeypatch.setattr(fast, "SMALLEST", batches[0].input_ids.numel() + 1)
    assert threads_of(model, step) == [(True, 9)]
    assert "forward" not in vars(model.encoder)


def test_one_thread_or_a_hook_leaves_the_batch_whole(make_case):
    model, batches = make_case("sst")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lambda: train_step(model, batches[0], optimizer)
    for watch in (
        lambda: model.encoder.pooler.register_forward_hook(lambda *_: None),
        lambda: model.encoder.pooler.register_forward_pre_hook(lambda *_: None),
        lambda: model.encoder.pooler.register_full_backward_hook(lambda *_: None),
        lambda: model.encoder.pooler.dense.bias.register_hook(lambda gradient: None),
    ):
        hook = watch()
        assert threads_of(model, step) == [(True, 9)]
        hook.remove()
    assert len(threads_of(model, step)) == 2
    torch.set_num_threads(1)
    assert threads_of(model, step) == [(True, 9)]
    torch.set_num_threads(2)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_an_error_in_one_half_ends_the_step(make_case, which):
    model, batches = make_case("sst")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    layer = model.encoder.encoder.layer[1]
    forward = layer.forward

    def failing(hidden_states, *inputs, **options):
        if len(hidden_states) == 5 and which == "forward":
            raise ZeroDivisionError("in the second half")
        output = forward(hidden_states, *inputs, **options)
        if len(hidden_states) == 5:
            output.register_hook(lambda gradient: 1 / 0)
        return output

    layer.forward = failing
    with pytest.raises(ZeroDivisionError):
        train_step(model, batches[0], optimizer)
    del layer.forward
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert "forward" not in vars(model.encoder)
    assert torch.isfinite(train_step(model, batches[0], optimizer).total)


def test_a_frozen_part_has_no_gradient(make_case, monkeypatch):
    model, batches = make_case("sst")
    model.encoder.embeddings.requires_grad_(False)
    model.encoder.encoder.layer[0].requires_grad_(False)
    found = trained(model, batches)
    without_halves(monkeypatch)
    assert_equal_training(found, trained(model, batches))
    for part in (model.encoder.embeddings, model.encoder.encoder.layer[0]):
        assert all(parameter.grad is None for parameter in part.parameters())


def test_bf16_is_used_in_both_threads(make_case, monkeypatch):
    model, batches = make_case("sst", dropout=0.0)
    layer, dtypes = model.encoder.encoder.layer[0].intermediate, []
    forward = layer.forward
    layer.forward = lambda x: [forward(x), dtypes.append(forward(x).dtype)][0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_step(model, batches[0], optimizer, precision="bf16")
    assert dtypes == 2 * [torch.bfloat16]


def test_predictions_are_those_of_the_whole_batch(make_case, make_toy, monkeypatch):
    model, _ = make_case("sst")
    found = []
    work = lambda: found.append(predict_scores(model, make_toy("sst").train, precision="fp32"))
    assert threads_of(model, work) == [(False, 10), (False, 10)]
    without_halves(monkeypatch)
    assert threads_of(model, work) == [(True, 20)]
    np.testing.assert_allclose(*found, atol=1e-6)
    assert np.ptp(found[0], axis=0).min() > 1e-3


class Interrupt:
    """A hook that stops a run after a step."""

    def __init__(self, step=None):
        self.step = step

    def after_step(self, event):
        if event.step == self.step:
            raise KeyboardInterrupt

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_resumed_run_equals_the_uninterrupted_run(make_model, make_toy, tmp_path):
    models = [make_model("sst", dropout=0.1) for _ in range(3)]
    settings = dict(epochs=3, lr=3e-3, batch_size=5, precision="fp32", save_steps=2)
    whole = fit(models[0], make_toy("sst"), checkpoint_dir=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        fit(
            models[1],
            make_toy("sst"),
            hooks=[Interrupt(6)],
            checkpoint_dir=tmp_path / "stopped",
            **settings,
        )
    settings |= {"hooks": [Interrupt()], "resume": True}
    resumed = fit(models[2], make_toy("sst"), checkpoint_dir=tmp_path / "stopped", **settings)
    assert resumed.drop(columns="seconds").equals(whole.drop(columns="seconds"))
    for key, value in models[0].state_dict().items():
        assert torch.equal(value, models[2].state_dict()[key]), key
