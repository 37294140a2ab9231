"""Recorded updates: what they share with eager ones, and when they are made.

A recorder stands in for CUDA's graph: it runs the update again at each replay. What a card computes
and how fast it is needs a GPU (tests/gpu).
"""

import types

import pytest
import torch

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.runtime import seeded
from mmlkit.training import graphs as graphs_module
from mmlkit.training.graphs import StepGraphs, graphs_are_safe
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import AdamW, make_optimizer
from mmlkit.training.step import train_step

TASKS = ("sst", "sts", "quora")


@pytest.fixture
def recorded(monkeypatch):
    """Return the list of replays; each capture records an update in place of CUDA's graph."""
    made = []

    def capture(update, pool):
        held = []  # a graph writes each result into the same memory

        def replay():
            made.append(update)
            loss = update()
            held.append(loss)
            for old, new in zip(held[0], loss):
                if torch.is_tensor(new):
                    old.copy_(new)
            return held[0]

        return replay, "pool"

    monkeypatch.setattr(graphs_module, "capture_cuda", capture)
    return made


def make_model(tiny_tokenizer, **options):
    with seeded(1):
        heads = {
            "sst": MultiverseHead(32, 5, num_heads=12, **options),
            "sts": LinearHead(32, 1, pooling="mean"),
            "quora": PairHead(32, 2),
        }
        return MultitaskModel(BertModel(BertConfig.tiny()), heads, tiny_tokenizer)


def test_recorded_updates_are_those_of_the_loop(recorded, tiny_tokenizer, make_toy):
    """Three tasks, rates that fall, dropout, and heads that are pruned in between."""
    data, found = {name: make_toy(name) for name in TASKS}, []
    for graphs in (False, True):
        model = make_model(tiny_tokenizer)
        pruner = HeadPruner(model.heads["sst"], every=7, threshold=2)
        losses = []
        hook = types.SimpleNamespace(
            after_step=lambda event, losses=losses: losses.append(event.loss.total.item()),
            state_dict=dict,
        )
        fit(model, data, epochs=6, lr=1e-3, batch_size=5, hooks=[pruner, hook], graphs=graphs)
        found.append((losses, model.state_dict(), pruner.events))
    (losses, eager, events), (again, weights, same) = found
    assert len(recorded) > len(losses) / 2
    torch.testing.assert_close(torch.tensor(again), torch.tensor(losses), rtol=1e-5, atol=0)
    torch.testing.assert_close(weights, eager, rtol=0, atol=2e-5)
    assert [one.kept for one in same] == [one.kept for one in events]
    assert any(one.dropped for one in events), "the number of active heads has changed"


def steps(model, optimizer, batches, graphs, *, seed=0, **options):
    """Make updates; return the losses."""
    with seeded(seed):
        return [
            train_step(model, one, optimizer, graphs=graphs, **options).total.item()
            for one in batches
        ]


@pytest.fixture
def setting(recorded, tiny_tokenizer, make_toy):
    """A model of one task, its optimizer, graphs, and a function that makes batches."""
    model = make_model(tiny_tokenizer).train()
    encoded = encode(tiny_tokenizer, make_toy("sst").train)
    batch = lambda rows: collate(encoded, rows, multiple=8)
    return model, make_optimizer(model, lr=1e-3), StepGraphs(), batch


def test_a_shape_is_recorded_when_it_comes_for_the_third_time(setting, recorded):
    model, optimizer, graphs, batch = setting
    order = [range(4), range(4), range(3), range(4), range(4)]  # the short one comes once
    steps(model, optimizer, map(batch, order), graphs)
    assert len(graphs.graphs) == 1 and len(recorded) == 2
    assert all(
        params["lr"] == 1e-3 and not params["capturable"] for params in optimizer.param_groups
    )


def test_the_result_of_a_replay_is_its_own(setting):
    """The next graph may use the memory of the one before."""
    model, optimizer, graphs, batch = setting
    made = [train_step(model, batch(range(4)), optimizer, graphs=graphs) for _ in range(5)]
    assert len({one.total.item() for one in made}) == 5
    assert made[-1].per_head.shape == (12,) and made[-1].gradient_norm.item() > 0


CHANGES = {
    "a frozen parameter": lambda model, optimizer: model.encoder.embeddings.requires_grad_(False),
    "weight decay": lambda model, optimizer: optimizer.param_groups[0].update(weight_decay=0.5),
    "no dropout": lambda model, optimizer: model.encoder.eval(),
    "fewer heads": lambda model, optimizer: model.heads["sst"].set_active(torch.arange(12) < 6),
    "another head": lambda model, optimizer: model.heads.update(
        {"sst": MultiverseHead(32, 5, num_heads=12)}
    ),
    "the learning rate": lambda model, optimizer: optimizer.param_groups[0].update(lr=0.1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_host_decides_has_an_effect_after_the_recording(change, setting, recorded):
    """The recorder would run a changed update; a card would not, so there is another graph."""
    model, optimizer, graphs, batch = setting
    steps(model, optimizer, [batch(range(4))] * 3, graphs)
    (key,) = graphs.graphs
    CHANGES[change](model, optimizer)
    steps(model, optimizer, [batch(range(4))] * 3, graphs)
    if change == "the learning rate":
        assert [*graphs.graphs] == [key]
        assert graphs.graphs[key][2][0].item() == pytest.approx(0.1)
    else:
        assert [*graphs.graphs][-1] != key and len(recorded) == 2
        assert (key in graphs.graphs) == (change != "fewer heads"), "its memory is free again"


def test_the_recorded_update_reads_the_rates_and_not_those_of_its_recording(setting, monkeypatch):
    """A graph keeps a number of the host as it was; a tensor is read anew."""
    model, optimizer, graphs, batch = setting
    seen, step = [], torch.optim.AdamW.step

    def noted(self, *more):
        seen.append(self.param_groups[0]["lr"])
        return step(self, *more)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)

    def capture(update, pool):
        update()  # as a card reads it: once
        return update, None

    monkeypatch.setattr(graphs_module, "capture_cuda", capture)
    steps(model, optimizer, [batch(range(4))] * 3, graphs)
    assert seen[:2] == [1e-3, 1e-3] and torch.is_tensor(seen[2])


def test_where_recording_fails_the_update_is_made_without_it(setting, monkeypatch):
    model, optimizer, graphs, batch = setting

    def capture(update, pool):
        raise torch.OutOfMemoryError("no memory is left")

    monkeypatch.setattr(graphs_module, "capture_cuda", capture)
    before = steps(model, optimizer, [batch(range(4))] * 2, graphs)
    with pytest.warns(UserWarning, match="without CUDA graphs: no memory is left") as warned:
        after = steps(model, optimizer, [batch(range(4))] * 3, graphs)
    assert len(warned) == 1 and after[-1] < before[0]


def test_other_optimizers_are_stepped_without_graphs(setting, recorded):
    model, _, graphs, batch = setting
    steps(model, AdamW(model.parameters(), lr=1e-3), [batch(range(4))] * 4, graphs)
    assert recorded == [] and graphs.graphs == {}


class OwnHead(LinearHead):
    """A head of a user, whose code a graph would run once."""


@pytest.mark.parametrize("case", ["safe", "hook", "head", "module hook", "compiled", "cpu"])
def test_fit_records_only_what_it_knows(case, tiny_tokenizer, monkeypatch):
    model, hooks = make_model(tiny_tokenizer), []
    if case != "cpu":
        monkeypatch.setattr(MultitaskModel, "device", torch.device("cuda"))
    if case == "hook":
        hooks = [types.SimpleNamespace(after_step=print)]
    elif case == "head":
        model.heads["sts"] = OwnHead(32, 1)
    elif case == "module hook":
        model.encoder.pooler.register_forward_hook(print)
    elif case == "compiled":
        model.encoder.compile()
    assert graphs_are_safe(model, [HeadPruner(model.heads["sst"]), *hooks]) == (case == "safe")


def test_a_gpu_pads_to_few_lengths(tiny_tokenizer, make_toy):
    encoded = encode(tiny_tokenizer, make_toy("sst").train)
    longest = max(encoded.lengths)
    rows = range(len(make_toy("sst").train))
    assert 4 < longest < 11
    plain, padded = collate(encoded, rows), collate(encoded, rows, multiple=11)
    assert plain.input_ids.shape[1] == longest and padded.input_ids.shape[1] == 11
    assert torch.equal(padded.input_ids[:, :longest], plain.input_ids)
    assert padded.attention_mask[:, longest:].sum() == 0
    assert collate(encoded, rows, multiple=11, limit=longest).input_ids.shape[1] == longest
