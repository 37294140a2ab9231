"""Two processes train like one: losses, prunings, metrics, checkpoints, and errors."""

import json
import os
import shutil
import socket

import numpy as np
import pytest
import torch
from ranked import make_ranked
from together import in_processes

from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.heads.ranking import RankingHead
from mmlkit.runtime import seeded
from mmlkit.training import resume
from mmlkit.training.distributed import ALONE, Group, join
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel

QUICK = dict(lr=1e-4, head_lr=1e-3, batch_size=8, device="cpu", precision="fp32")
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or torch.cuda.is_available(),
    reason="a copy of this process, in which other tests may have used the GPU, cannot use it",
)


def rank():
    return int(os.environ.get("RANK", 0))


class Recorder:
    """A hook that keeps the loss of every step, per head."""

    def __init__(self):
        self.losses = []

    def after_step(self, event):
        heads = 1 if event.loss.per_head is None else len(event.loss.per_head)
        self.losses.append(event.loss.total.item() / heads)

    def state_dict(self):
        return {"losses": list(self.losses)}

    def load_state_dict(self, state):
        self.losses = list(state["losses"])


@pytest.fixture
def run(make_model, make_toy):
    """Return a function that trains one of the kinds of run and returns what two runs compare."""

    def linear():
        model = make_model("sst", "quora")
        with seeded(0):
            model.heads["quora"] = PairHead(32, 2, dropout=0.0)
        return model, {"sst": make_toy("sst", 43), "quora": make_toy("quora", 42)}, []

    def multiverse():
        model = make_model("sst")
        with seeded(0):
            head = MultiverseHead(32, 5, num_heads=8, dropout=0.0)
            head.weight.data.mul_(3)
        model.heads["sst"] = head
        return (
            model,
            {"sst": make_toy("sst", 100)},
            [HeadPruner(head, every=5, threshold=2, bandwidth="std:1")],
        )

    def ranking():
        model, data = make_model("sst"), make_ranked(83)
        with seeded(0):
            head = RankingHead(32, dropout=0.0)
        return MultitaskModel(model.encoder, {data.task.name: head}, model.tokenizer), data, []

    kinds = {"linear": linear, "multiverse": multiverse, "ranking": ranking}

    def train(kind, recorder=None, **settings):
        (model, data, hooks), recorder = kinds[kind](), recorder or Recorder()
        history = fit(model, data, hooks=[recorder, *hooks], **{**QUICK, "epochs": 2, **settings})
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        return {
            "losses": np.array(recorder.losses),
            "history": history.drop(columns="seconds"),
            "weights": weights,
            "events": [event for hook in hooks for event in hook.events],
        }

    return train


def assert_same_run(one, two, steps):
    assert len(one["losses"]) == len(two["losses"]) == steps
    np.testing.assert_allclose(two["losses"], one["losses"], atol=1e-6, rtol=0)
    assert np.ptp(one["losses"]) > 0.1  # the run did change the model
    assert list(one["history"].columns) == list(two["history"].columns)
    for name in one["history"]:
        values = [run["history"][name].to_numpy() for run in (one, two)]
        if values[0].dtype == float:
            np.testing.assert_allclose(*values, atol=1e-6, rtol=0, err_msg=name)
        else:
            assert values[0].tolist() == values[1].tolist(), name


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("kind, steps", [("linear", 24), ("multiverse", 26), ("ranking", 22)])
def test_two_processes_give_the_losses_of_one(run, tmp_path, kind, steps):
    """The last batches have 3, 2 and 4 examples, so that the shares have different sizes."""
    one, other = run(kind), in_processes(lambda: run(kind), tmp_path)
    for two in other:
        assert_same_run(one, two, steps)
        assert all(
            torch.equal(value, other[0]["weights"][k]) for k, value in two["weights"].items()
        )
    kept = [[event.kept for event in found["events"]] for found in (one, *other)]
    assert kept[0] == kept[1] == kept[2]
    if kind == "multiverse":
        assert len(kept[0][0]) < 8


@pytest.mark.slow
@needs_fork
def test_three_processes_share_batches_of_two_and_of_one(run, tmp_path):
    """Of 43 rows in batches of 3, the last has 1 row; the micro-batches have one row, too."""
    settings = dict(batch_size=3, epochs=1)
    three = lambda: run("linear", micro_batch_size=1, **settings)
    assert_same_run(run("linear", **settings), in_processes(three, tmp_path, 3)[2], 29)


def test_the_shares_of_a_batch_by_hand(tiny_tokenizer, make_toy):
    encoded = encode(tiny_tokenizer, make_toy("quora").train, pairs="separate")
    batch = collate(encoded, [3, 1, 4, 15, 9])
    one, two, three = (Group(rank, 3).share(batch) for rank in range(3))
    assert [part.rows for part in (one, two, three)] == [(3, 15), (1, 9), (4,)]
    assert [part.weight for part in (one, two, three)] == [0.4, 0.4, 0.2]
    assert torch.equal(two.second.input_ids, batch.second.input_ids[[1, 4]])
    assert torch.equal(two.labels, batch.labels[[1, 4]])
    idle = Group(5, 6).share(batch)
    assert idle.rows == (3,) and idle.weight == 0.0
    assert ALONE.share(batch) is batch and batch.weight == 1.0


def test_the_share_of_a_ranking_batch_has_whole_queries(tiny_tokenizer):
    encoded = encode(tiny_tokenizer, make_ranked(6).train)
    rows = np.argsort(encoded.queries, kind="stable")  # 2, 3, 4, 2, 3, 4 candidates
    batch = collate(encoded, rows.tolist())
    one, two = (Group(rank, 2).share(batch) for rank in range(2))
    assert sorted(batch.groups) == [2, 2, 3, 3, 4, 4]
    assert one.groups == batch.groups[::2] and two.groups == batch.groups[1::2]
    for part in (one, two):
        queries = encoded.queries[list(part.rows)]
        assert np.isin(encoded.queries, queries).sum() == len(part.rows)
        assert part.labels.sum() == 3 and part.weight == 0.5


@needs_fork
def test_weights_and_masks_of_the_first_process_are_sent(make_model, make_toy, tmp_path):
    def train():
        model = make_model("sst")
        torch.manual_seed(rank())
        model.heads["sst"] = head = MultiverseHead(32, 5, num_heads=4, dropout=0.0)
        if rank() == 0:
            head.set_active([True, False, True, True])
        assert len(head.active_indices) == (4 if rank() else 3)
        before = head.weight.detach().clone()
        fit(model, make_toy("sst"), **QUICK, epochs=1)
        return before, head.weight.detach(), head.active_indices.tolist()

    (start, after, active), (other_start, other_after, other_active) = in_processes(train, tmp_path)
    assert not torch.equal(start, other_start)
    assert torch.equal(after, other_after) and not torch.equal(start, after)
    assert active == other_active == [0, 2, 3]


@needs_fork
@pytest.mark.parametrize("different", ["data", "sampler", "seed", "precision"])
def test_processes_that_differ_are_refused(make_model, make_toy, tmp_path, monkeypatch, different):
    """Otherwise they would add gradients of other rows, or wait for ever."""

    def train():
        names = ("sst", "sts")[:: -1 if rank() and different == "sampler" else 1]
        data = {n: make_toy(n, seed=int(rank() and different == "data")) for n in names}
        seed = rank() if different == "seed" else 0
        if different == "precision":  # beside an A100, a T4 would scale its gradients
            fastest = ("bf16", "fp16")[rank()]
            monkeypatch.setattr(resume, "fastest_precision", lambda _: fastest)
        with pytest.raises(ValueError, match="Two processes differ in: ") as refused:
            fit(make_model("sst", "sts"), data, **QUICK, epochs=1, seed=seed)
        return str(refused.value)

    assert all(different in message for message in in_processes(train, tmp_path))


@needs_fork
def test_dropout_differs_between_the_processes(make_model, make_toy, tmp_path):
    """The numbers drawn after a step tell the seeds, because both shares have the same shape."""

    class Draw(Recorder):
        def after_step(self, event):
            self.losses.append(torch.rand(1).item())

    def train(rows):
        draw, data = Draw(), make_toy("sst", rows)
        fit(make_model("sst"), data, **{**QUICK, "batch_size": rows}, epochs=1, hooks=[draw])
        return draw.losses[0]

    first, second = in_processes(lambda: train(16), tmp_path)
    assert first != second and first == train(8)


@needs_fork
def test_every_process_has_the_scores_of_the_whole_split(make_model, make_toy, tmp_path):
    from mmlkit.training.evaluation import evaluate, score_encoded

    model, data = make_model("sts"), make_toy("sts", dev=23)
    encoded = encode(model.tokenizer, data.dev)

    def scores():
        group = join("cpu")[0]
        if group.rank == 0:  # outside of fit, one process evaluates by itself
            evaluate(model, data, device="cpu")
        return [score_encoded(model, encoded, batch_size=size, group=group) for size in (5, 99)]

    alone = [score_encoded(model, encoded, batch_size=size) for size in (5, 99)]
    for found in in_processes(scores, tmp_path):  # of one batch of 99, the second has none
        assert all(map(np.array_equal, found, alone))


@pytest.mark.slow
@needs_fork
def test_any_number_of_processes_resumes_a_checkpoint(run, tmp_path):
    """The first process writes it. The losses of epoch 1 come from it afterwards."""

    class Stop(Recorder):
        def after_step(self, event):
            super().after_step(event)
            if event.step == 14:
                raise ZeroDivisionError

    def stopped():
        with pytest.raises(ZeroDivisionError):
            run("linear", recorder=Stop(), checkpoint_dir=folders[0])

    whole, folders = run("linear"), [tmp_path / name for name in ("one", "two")]
    in_processes(stopped, tmp_path)
    shutil.copytree(*folders)
    (tmp_path / "store").unlink(missing_ok=True)
    resumed = lambda folder: run("linear", checkpoint_dir=folder, resume=True)
    assert_same_run(whole, resumed(folders[0]), 24)
    assert_same_run(whole, in_processes(lambda: resumed(folders[1]), tmp_path)[0], 24)


@pytest.mark.slow
@needs_fork
def test_memory_that_runs_out_in_one_process_changes_no_loss(run, tmp_path, monkeypatch):
    loss = MultitaskModel.loss

    def forgetful(self, batch):
        if rank() and len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(self, batch)

    one = run("linear", epochs=1)
    monkeypatch.setattr(MultitaskModel, "loss", forgetful)
    assert_same_run(one, in_processes(lambda: run("linear", epochs=1), tmp_path)[0], 12)


@needs_fork
def test_a_loss_of_nan_in_one_share_stops_every_process(
    make_model, make_toy, tmp_path, monkeypatch
):
    loss = MultitaskModel.loss

    def diverging(self, batch):
        found = loss(self, batch)
        return found if 7 not in batch.rows else found._replace(total=found.total * torch.nan)

    def train():
        model = make_model("sst")
        before = model.heads["sst"].dense.bias.detach().clone()
        with pytest.raises(FloatingPointError, match="stopped at step 1: the loss of task 'sst'"):
            fit(model, make_toy("sst", 8), **QUICK, epochs=1)
        return torch.equal(before, model.heads["sst"].dense.bias)

    monkeypatch.setattr(MultitaskModel, "loss", diverging)
    assert in_processes(train, tmp_path) == [True, True]


@pytest.mark.slow
@needs_fork
def test_a_notebook_starts_processes_with_accelerate(run, tmp_path):
    """As the docstring of the module says."""
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(True)  # a Trainer of another test has one

    def train():
        torch.set_num_threads(1)  # a copy has none of the threads of OpenMP
        losses = run("linear", epochs=1)["losses"].tolist()
        (tmp_path / f"{rank()}.json").write_text(json.dumps(losses))

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    accelerate.notebook_launcher(train, num_processes=2, use_port=str(port))
    found = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2)]
    assert found[0] == found[1] == pytest.approx(run("linear", epochs=1)["losses"], abs=1e-6)
