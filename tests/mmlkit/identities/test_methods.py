"""The six methods agree as the papers state, in real training runs with equal seeds."""

import json

import numpy as np
import pytest
import torch

from mmlcourse.studies.methods import METHODS, build_head
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.saving import load_model, save_model


def train(make_model, data, method, hooks=(), **options):
    """Train the tiny encoder with a method for three epochs; return (model, history, hooks)."""
    model, name = make_model(data.task.name), data.task.name
    with seeded(1):
        model.heads[name], found = build_head(
            method,
            32,
            data.task.num_labels,
            num_heads=options.pop("num_heads", 12),
            dropout=0.0,
            **options,
        )
    history = fit(model, data, epochs=3, lr=3e-3, batch_size=5, hooks=[*found, *hooks])
    return model, history, found


def same(a, b):
    """Return whether two runs have equal weights and an equal history."""
    (first, one, _), (second, two, _) = a, b
    states = first.state_dict(), second.state_dict()
    return all(torch.equal(states[0][key], states[1][key]) for key in states[0]) and one.drop(
        columns="seconds"
    ).equals(two.drop(columns="seconds"))


@pytest.mark.parametrize("task", ["sst"])
def test_mml_without_pruning_equals_mv_m(make_model, make_toy, task):
    data = make_toy(task)
    assert same(train(make_model, data, "mml", every=10**9), train(make_model, data, "mv-m"))
    assert same(train(make_model, data, "mv-m"), train(make_model, data, "mv-12"))


@pytest.mark.parametrize("task", ["sts"])
def test_mv_m_without_orthogonality_equals_bert_ensemble(make_model, make_toy, task):
    data = make_toy(task)
    ensemble = train(make_model, data, "bert-ensemble")
    assert same(train(make_model, data, "mv-m", orthogonality_weight=0.0), ensemble)
    assert not same(train(make_model, data, "mv-m"), ensemble)


def test_one_head_equals_bert(make_model, make_toy):
    data = make_toy("sst")
    one, plain = train(make_model, data, "mv-1")[0], make_model("sst")
    assert same(train(make_model, data, "mv-1"), train(make_model, data, "bert"))
    with seeded(1):
        start = MultiverseHead(32, 5, num_heads=1)
    plain.heads["sst"] = LinearHead(32, 5, dropout=0.0)
    with torch.no_grad():
        plain.heads["sst"].dense.weight.copy_(start.weight[0])
    fit(plain, data, epochs=3, lr=3e-3, batch_size=5)
    torch.testing.assert_close(
        one.heads["sst"].weight[0], plain.heads["sst"].dense.weight, atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("task", ["sst", "sts"])
def test_a_pruned_model_predicts_like_its_saved_and_collapsed_copies(
    make_model, make_toy, tmp_path, task
):
    data = make_toy(task)
    model, _, (pruner,) = train(make_model, data, "mml", every=3, bandwidth="std:0.3")
    assert pruner.events and pruner.events[0].dropped
    before = predict_scores(model, data)
    save_model(model, tmp_path / "model")
    assert (predict_scores(load_model(tmp_path / "model"), data) == before).all()
    collapsed = model.collapse()
    assert isinstance(collapsed.heads[task], LinearHead) and isinstance(
        model.heads[task], MultiverseHead
    )
    scores = predict_scores(collapsed, data)
    relative = np.abs(scores - before).max() / np.abs(before).max()
    assert 0 <= relative < 1e-6
    save_model(collapsed, tmp_path / "plain")
    assert (predict_scores(load_model(tmp_path / "plain"), data) == scores).all()
    described = json.loads((tmp_path / "plain" / "mmlkit.json").read_text(encoding="utf-8"))[
        "heads"
    ][task]
    assert described == {
        "type": "LinearHead",
        **LinearHead(32, data.task.num_labels, dropout=0.0).to_config(),
    }


def test_several_tasks_prune_separately_and_resume_exactly(make_model, make_toy, tmp_path):
    data = {name: make_toy(name) for name in ("sst", "quora")}

    class Stop:
        def after_step(self, event):
            if event.step == 20:
                raise KeyboardInterrupt

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    def run(stop=(), **options):
        model = make_model("sst", "quora")
        with seeded(2):
            model.heads["sst"] = MultiverseHead(32, 5, num_heads=8, dropout=0.0)
            model.heads["quora"] = MultiverseHead(32, 2, num_heads=8, dropout=0.0)
        pruners = [HeadPruner(head, every=4, bandwidth="std:0.3") for head in model.heads.values()]
        fit(model, data, epochs=4, lr=3e-3, batch_size=5, hooks=[*pruners, *stop], **options)
        return model, pruners

    whole, pruners = run([type("Quiet", (Stop,), {"after_step": lambda self, event: None})()])
    with pytest.raises(KeyboardInterrupt):
        run([Stop()], checkpoint_dir=tmp_path)
    resumed, again = run(
        [type("Quiet", (Stop,), {"after_step": lambda self, event: None})()],
        checkpoint_dir=tmp_path,
        resume=True,
    )
    assert all(
        torch.equal(a, b)
        for a, b in zip(whole.state_dict().values(), resumed.state_dict().values())
    )
    assert [pruner.events for pruner in pruners] == [pruner.events for pruner in again] and all(
        pruner.events for pruner in pruners
    )
    assert [event.step for event in pruners[0].events] == sorted(
        {event.step for event in pruners[0].events}
    )


def test_micro_batches_count_the_penalty_once(make_model, make_toy):
    data, ends = make_toy("sst"), []
    for size in (None, 2):
        model = make_model("sst")
        with seeded(1):
            model.heads["sst"] = MultiverseHead(
                32, 5, num_heads=6, dropout=0.0, orthogonality_weight=0.5
            )
        fit(
            model,
            data,
            epochs=1,
            lr=1e-3,
            batch_size=10,
            micro_batch_size=size,
            optimizer=torch.optim.SGD(model.parameters(), lr=1e-2),
        )
        ends.append(model.heads["sst"].weight.detach())
    torch.testing.assert_close(*ends, atol=1e-6, rtol=1e-4)


def test_build_head_for_every_method():
    built = {method: build_head(method, 16, 2) for method in METHODS}
    assert {method: head.num_heads for method, (head, _) in built.items()} == {
        "bert": 1,
        "mml": 16,
        "mv-5": 5,
        "mv-m": 16,
        "bert-drop": 1,
        "bert-ensemble": 16,
    }
    assert [method for method, (_, hooks) in built.items() if hooks] == ["mml"]
    assert (
        built["bert-drop"][0].dropout.p == 0.3
        and built["bert-ensemble"][0].orthogonality_weight == 0
    )
    with pytest.raises(KeyError, match="mv-0"):
        build_head("mv-0", 16, 2)
    with pytest.raises(ValueError, match="method 'mv-5' never prunes"):
        build_head("mv-5", 16, 2, every=10)
