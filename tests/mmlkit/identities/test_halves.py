"""The two halves of a batch, each in a thread, give the numbers of the whole batch."""

import copy
import os
import threading

import numpy as np
import pytest
import torch
from ranked import make_ranked

from mmlkit.bert.model import BertEmbeddings, BertIntermediate, BertLayer
from mmlkit.data.batching import collate, encode
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import seeded
from mmlkit.training import fast
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.step import train_step

from .test_halving import HEADS
from .test_training import LossRecorder

PALS = ("pal", "low_rank", "houlsby", "sequential", "sequential_fixed")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """Give torch two threads, and let the smallest batch be processed in halves."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(fast, "SMALLEST", 0)
    monkeypatch.setattr(fast, "_free_cpus", lambda: 2)  # even where the tests have one
    yield
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


@pytest.fixture
def threads_of(monkeypatch):
    """Return a function: it calls `work`, and returns (in the main thread?, rows) of each pass."""

    def watch(work):
        seen, forward = [], BertEmbeddings.forward

        def watched(module, input_ids, token_type_ids):
            main = threading.current_thread() is threading.main_thread()
            seen.append((main, len(input_ids)))
            return forward(module, input_ids, token_type_ids)

        with monkeypatch.context() as patch:
            patch.setattr(BertEmbeddings, "forward", watched)
            work()
        return sorted(seen)

    return watch


def trained(model, batches, precision="fp32", **options):
    """Train a copy of the model; return (losses, weights, the copy)."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"clip": None, "precision": precision, **options}
    with seeded(3):
        losses = [train_step(model, batch, optimizer, **options) for batch in batches]
    return [loss.total.item() for loss in losses], model.state_dict(), model


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
@pytest.mark.parametrize("size", [None, 5])
def test_training_equals_that_of_the_whole_batch(
    make_case, threads_of, monkeypatch, name, pals, size
):
    """With dropout, which is drawn as for the whole batch; micro-batches are halved too."""
    model, batches = make_case(name, pals=pals)
    found = []
    work = lambda: found.append(trained(model, batches, micro_batch_size=size))
    assert not any(main for main, _ in threads_of(work))
    without_halves(monkeypatch)
    assert all(main for main, _ in threads_of(work))
    assert_equal_training(*found)
    assert any(
        not torch.equal(value, model.state_dict()[key]) for key, value in found[0][1].items()
    )


def test_two_parameters_may_share_a_gradient():
    """The sums of the halves are written in place, and autograd gives both the same tensor."""
    a, b = (torch.zeros(1, 2, requires_grad=True) for _ in range(2))
    x, rows = torch.ones(2, 2), (slice(0, 1), slice(1, 2))

    halves = fast._Halves(encoder=None)
    halves.run = lambda function, *_: [function(0), function(1)]

    def encode_half(half):
        return (3 * (x[rows[half]] + a + b),)

    (found,) = fast._EncodeInHalves.apply(halves, encode_half, rows, a, b)
    found.sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [[6.0, 6.0]]


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_free_thread_computes_the_penalty_once(make_case, monkeypatch, threads, size):
    model, batches = make_case("sts")
    penalty, seen = MultiverseHead.penalty, []

    def watched(head):
        main = threading.current_thread() is threading.main_thread()
        seen.append((main, torch.get_num_threads()))
        return penalty(head)

    monkeypatch.setattr(MultiverseHead, "penalty", watched)
    torch.set_num_threads(threads)
    train_step(model, batches[0], torch.optim.SGD(model.parameters(), 0.1), micro_batch_size=size)
    assert seen == [(True, 1) if threads == 1 else (False, threads // 2)]
    assert torch.get_num_threads() == threads


def test_an_error_of_the_penalty_reaches_the_caller(make_case, monkeypatch):
    model, batches = make_case("sts")
    monkeypatch.setattr(MultiverseHead, "penalty", lambda head: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_step(model, batches[0], torch.optim.SGD(model.parameters(), 0.1))


@pytest.mark.parametrize(("threads", "of_optimizer"), [(1, 1), (2, 1), (4, 4)])
def test_the_optimizer_uses_one_of_two_threads(make_case, threads, of_optimizer):
    model, batches = make_case("sst")
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
    optimizer.register_step_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    torch.set_num_threads(threads)
    train_step(model, batches[0], optimizer)
    assert (seen, torch.get_num_threads()) == ([of_optimizer], threads)
    optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_step(model, batches[0], optimizer)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "pals"), [("pair", None), ("quora", "pal")])
def test_training_repeats_bit_for_bit(make_case, name, pals, precision, threads):
    torch.set_num_threads(threads)
    model, batches = make_case(name, pals=pals)
    first = trained(model, 5 * batches, precision)
    for _ in range(3):
        assert_equal_training(trained(model, 5 * batches, precision), first, exact=True)
    assert torch.get_num_threads() == threads


def test_bf16_is_used_in_both_threads(make_case, monkeypatch):
    model, batches = make_case("sst", dropout=0.0)
    dtypes, forward = [], BertIntermediate.forward

    def watched(module, x):
        dtypes.append(forward(module, x).dtype)
        return forward(module, x)

    with monkeypatch.context() as patch:
        patch.setattr(BertIntermediate, "forward", watched)
        found = trained(model, batches[:1], "bf16")
    assert dtypes == 4 * [torch.bfloat16]  # two layers, two halves
    without_halves(monkeypatch)
    assert found[0] == pytest.approx(trained(model, batches[:1], "bf16")[0], abs=1e-2)
    assert found[0] != trained(model, batches[:1], "fp32")[0]


def test_each_thread_has_half_of_the_rows(make_case, threads_of, monkeypatch):
    model, batches = make_case("sst")
    step, tokens = lambda: trained(model, batches[:1]), batches[0].input_ids.numel()
    assert threads_of(step) == [(False, 4), (False, 5)]
    monkeypatch.setattr(fast, "SMALLEST", tokens)
    assert threads_of(step) == [(False, 4), (False, 5)]
    monkeypatch.setattr(fast, "SMALLEST", tokens + 1)
    assert threads_of(step) == [(True, 9)]
    assert "forward" not in vars(model.encoder)


def test_masks_may_be_keywords(make_case, threads_of):
    model, (batch, _) = make_case("sst", dropout=0.0)
    masks = {"attention_mask": batch.attention_mask, "token_type_ids": batch.token_type_ids}
    expected, found = model.encoder(batch.input_ids, **masks).pooler_output, []
    with fast.in_halves(model.encoder):
        work = lambda: found.append(model.encoder(batch.input_ids, **masks).pooler_output)
        assert threads_of(work) == [(False, 4), (False, 5)]
    torch.testing.assert_close(found[0], expected, atol=1e-6, rtol=0)


WHOLE = {
    "a hook": lambda model: model.encoder.pooler.register_forward_hook(lambda *_: None),
    "a hook before": lambda model: model.encoder.pooler.register_forward_pre_hook(lambda *_: None),
    "a hook of gradients": lambda model: model.encoder.pooler.register_full_backward_hook(
        lambda *_: None
    ),
    "a hook of a parameter": lambda model: model.encoder.pooler.dense.bias.register_hook(
        lambda gradient: None
    ),
    "another module": lambda model: setattr(
        model.encoder.embeddings, "dropout", torch.nn.AlphaDropout(0.1)
    ),
    "another forward": lambda model: setattr(
        model.encoder.pooler, "forward", model.encoder.pooler.forward
    ),
    "one thread": lambda model: torch.set_num_threads(1),
    "three threads": lambda model: torch.set_num_threads(3),
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_batch_stays_whole(make_case, threads_of, name):
    model, (batch, _) = make_case("sst")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    WHOLE[name](model)
    assert threads_of(lambda: train_step(model, batch, optimizer)) == [(True, 9)]


def test_the_batch_stays_whole_where_threads_share_one_cpu(make_case, threads_of, monkeypatch):
    model, batches = make_case("sst")
    monkeypatch.setattr(fast, "_free_cpus", lambda: 1)
    assert threads_of(lambda: trained(model, batches[:1])) == [(True, 9)]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no thread")
def test_a_bound_thread_has_one_cpu(monkeypatch):
    monkeypatch.undo()
    before = os.sched_getaffinity(0)
    assert fast._free_cpus() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert fast._free_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_an_error_in_one_half_ends_the_step(make_case, monkeypatch, which):
    model, batches = make_case("sst")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    forward = BertLayer.forward

    def failing(layer, hidden_states, *inputs, **options):
        if len(hidden_states) == 5 and which == "forward":
            raise ZeroDivisionError("in the second half")
        output = forward(layer, hidden_states, *inputs, **options)
        if len(hidden_states) == 5:
            output.register_hook(lambda gradient: 1 / 0)
        return output

    with monkeypatch.context() as patch:
        patch.setattr(BertLayer, "forward", failing)
        with pytest.raises(ZeroDivisionError):
            train_step(model, batches[0], optimizer)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert "forward" not in vars(model.encoder) and torch.get_num_threads() == 2
    assert torch.isfinite(train_step(model, batches[0], optimizer).total)


def test_a_batch_that_does_not_fit_is_divided(make_case, monkeypatch):
    """The second try has the dropout of a first one with that size."""
    model, batches = make_case("sst")
    expected = trained(model, batches, micro_batch_size=5)
    forward = BertLayer.forward

    def limited(layer, hidden_states, *inputs, **options):
        if len(hidden_states) > 3:  # half of 5 rows fits, half of 9 does not
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(layer, hidden_states, *inputs, **options)

    monkeypatch.setattr(BertLayer, "forward", limited)
    with pytest.warns(UserWarning, match="did not fit into memory"):
        found = trained(model, batches)
    assert_equal_training(found, expected, exact=True)


FROZEN = {
    "the embeddings and a layer": ("embeddings.", "encoder.layer.0."),
    "all but the pooler, which the head does not read": ("embeddings.", "encoder."),
}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_part_has_no_gradient(make_case, monkeypatch, name):
    model, batches = make_case("sst")
    for key, parameter in model.encoder.named_parameters():
        parameter.requires_grad_(not key.startswith(FROZEN[name]))
    found = trained(model, batches)
    without_halves(monkeypatch)
    expected = trained(model, batches)
    assert_equal_training(found, expected)
    for run in (found, expected):
        gradients = {key: p.grad for key, p in run[2].encoder.named_parameters()}
        assert all(gradients[key] is None for key in gradients if key.startswith(FROZEN[name]))
    assert found[0][0] != found[0][1]


def test_the_modules_of_another_task_have_no_gradient(make_model, make_toy):
    bare = make_model("sst", "sts")
    add_pals(bare.encoder, ["sst", "sts"])
    encoded = encode(bare.tokenizer, make_toy("sst").train)
    found = trained(bare.train(), [collate(encoded, range(9))])[2].encoder
    missing = {key for key, p in found.named_parameters() if p.grad is None}
    table = "embeddings.word_embeddings.weight"  # train_step leaves it without one
    other = {key for key, _ in found.named_parameters() if ".sts." in key}
    assert missing == other | {table} and other


def test_a_resumed_run_equals_the_uninterrupted_run(make_model, make_toy, tmp_path):
    models = [make_model("sst", dropout=0.1) for _ in range(3)]
    settings = dict(epochs=3, lr=3e-3, batch_size=5, precision="fp32", save_steps=2)
    whole = fit(models[0], make_toy("sst"), checkpoint_dir=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        fit(
            models[1],
            make_toy("sst"),
            hooks=[LossRecorder(7)],  # after a checkpoint in the second epoch
            checkpoint_dir=tmp_path / "stopped",
            **settings,
        )
    settings |= {"hooks": [LossRecorder()], "resume": True}
    resumed = fit(models[2], make_toy("sst"), checkpoint_dir=tmp_path / "stopped", **settings)
    assert resumed.drop(columns="seconds").equals(whole.drop(columns="seconds"))
    for key, value in models[0].state_dict().items():
        assert torch.equal(value, models[2].state_dict()[key]), key
