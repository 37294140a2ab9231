"""Two processes train like one: losses, prunings, metrics, checkpoints, and errors."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from ranked import make_ranked

from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.heads.ranking import RankingHead
from mmlkit.runtime import seeded
from mmlkit.training import loop as training_loop
from mmlkit.training.distributed import (
    ALONE,
    Group,
    _on_cpu,
    _results,
    is_first_process,
    join,
    launch,
)
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel

QUICK = dict(lr=1e-4, head_lr=1e-3, batch_size=8, device="cpu", precision="fp32")
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or torch.cuda.is_available(),
    reason="launch copies this process, in which other tests may have used the GPU",
)


class Recorder:
    """A hook that keeps the loss of every step."""

    def __init__(self):
        self.losses = []

    def after_step(self, event):
        self.losses.append(event.loss.total.item())

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
        return model, {"sst": make_toy("sst", 101), "quora": make_toy("quora", 100)}, []

    def multiverse():
        model = make_model("sst")
        with seeded(0):
            head = MultiverseHead(32, 5, num_heads=8, dropout=0.0, reduction="mean")
            head.weight.data.mul_(3)
        model.heads["sst"] = head
        return (
            model,
            {"sst": make_toy("sst", 200)},
            [HeadPruner(head, every=10, threshold=2, bandwidth="std:1")],
        )

    def ranking():
        model, data = make_model("sst"), make_ranked(203)
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


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("kind, steps", [("linear", 52), ("multiverse", 50), ("ranking", 52)])
def test_two_processes_give_the_losses_of_one(run, kind, steps):
    """The last batches have 5, 4 and 3 examples, so that the shares have different sizes."""
    one, two = run(kind), launch(lambda: run(kind), processes=2)
    assert_same_run(one, two, steps)
    kept = [[event.kept for event in found["events"]] for found in (one, two)]
    assert kept[0] == kept[1]
    if kind == "multiverse":  # several prunings, each of some heads
        assert 8 > len(kept[0][0]) > len(kept[0][-1])


@needs_fork
def test_three_processes_share_a_batch_of_two_and_one_of_one(run):
    """Of 101 rows in batches of 3, the last has 2 rows; of 100, it has 1."""
    settings = dict(batch_size=3, epochs=1)
    one = run("linear", **settings)
    three = launch(lambda: run("linear", micro_batch_size=1, **settings), processes=3)
    assert_same_run(one, three, 68)


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


def in_every_process(function):
    """Return the results of a function in two processes, by rank."""

    def gathered():
        result = function()
        return join("cpu")[0].gather(result)

    return launch(gathered, processes=2)


@needs_fork
def test_heads_that_start_differently_become_equal(make_model, make_toy):
    """The head's mask is sent too, and the head notices it."""

    def train():
        model = make_model("sst")
        torch.manual_seed(join("cpu")[0].rank)
        model.heads["sst"] = head = MultiverseHead(32, 5, num_heads=4, dropout=0.0)
        if is_first_process():
            head.set_active([True, False, True, True])
        assert len(head.active_indices) == (3 if is_first_process() else 4)
        before = head.weight.detach().clone()
        fit(model, make_toy("sst"), **QUICK, epochs=1)
        return before, head.weight.detach(), head.active_indices.tolist()

    (start, after, active), (other_start, other_after, other_active) = in_every_process(train)
    assert not torch.equal(start, other_start)
    assert torch.equal(after, other_after) and not torch.equal(start, after)
    assert active == other_active == [0, 2, 3]


@needs_fork
@pytest.mark.parametrize(
    ("different", "named"),
    [("data", "the order of data"), ("heads", "the order of heads"), ("rows", "data")],
)
def test_processes_with_other_data_are_refused(make_model, make_toy, different, named):
    """A set of tasks has another order in each process. Without a checkpoint, rows count too."""

    def train():
        names, turned = ("sst", "sts"), ("sts", "sst")
        here = different if not is_first_process() else None
        data = {name: make_toy(name, seed=int(here == "rows")) for name in names}
        data = {name: data[name] for name in (turned if here == "data" else names)}
        model = make_model(*(turned if here == "heads" else names))
        with pytest.raises(ValueError, match="in process 0 but .* in process 1") as refused:
            fit(model, data, **QUICK, epochs=1)
        return str(refused.value).split(" is ")[0]

    assert set(in_every_process(train)) == {named}


@needs_fork
def test_the_folder_may_be_given_to_the_first_process_alone(make_model, make_toy, tmp_path):
    def train():
        folder = tmp_path if is_first_process() else None
        return fit(make_model("sst"), make_toy("sst"), **QUICK, epochs=1, checkpoint_dir=folder)

    first, second = in_every_process(train)
    assert len(first) == len(second) == 1 and (tmp_path / "last.safetensors").is_file()


@needs_fork
def test_dropout_differs_between_the_processes_and_not_in_the_first(make_model, make_toy):
    """The numbers drawn after a step tell the seeds, because both shares have the same shape."""

    class Draw(Recorder):
        def after_step(self, event):
            self.losses.append(torch.rand(1).item())

    def train(rows):
        draw, data = Draw(), make_toy("sst", rows)
        settings = {**QUICK, "batch_size": rows}
        fit(make_model("sst"), data, **settings, epochs=1, hooks=[draw])
        return draw.losses[0]

    first, second = in_every_process(lambda: train(16))
    assert first != second and first == train(8)


@needs_fork
def test_every_process_has_the_scores_of_the_whole_split(make_model, make_toy):
    from mmlkit.training.evaluation import evaluate, score_encoded

    model, data = make_model("sts"), make_toy("sts", dev=23)
    encoded = encode(model.tokenizer, data.dev)

    def scores():
        group = join("cpu")[0]
        if group.first:  # outside of fit, one process evaluates by itself
            evaluate(model, data, device="cpu")
        return [score_encoded(model, encoded, batch_size=size, group=group) for size in (5, 99)]

    alone = [score_encoded(model, encoded, batch_size=size) for size in (5, 99)]
    for found in in_every_process(scores):  # of one batch of 99, the second process has none
        assert all(map(np.array_equal, found, alone))


class Stop(Recorder):
    """Ends the second process in the second epoch."""

    def after_step(self, event):
        super().after_step(event)
        if event.step == 30 and not is_first_process():
            raise RuntimeError("the second process has stopped")


@needs_fork
@pytest.mark.slow
def test_any_number_of_processes_resumes_a_checkpoint(run, tmp_path):
    whole, folders = run("linear"), [tmp_path / name for name in ("one", "two")]
    with pytest.raises(RuntimeError, match="Process 1 of 2 failed, and all were ended") as error:
        launch(lambda: run("linear", recorder=Stop(), checkpoint_dir=folders[0]))
    assert str(error.value).count("RuntimeError: the second process has stopped") == 1
    shutil.copytree(*folders)
    for folder, start in zip(folders, (lambda function: function(), launch)):
        found = start(lambda folder=folder: run("linear", checkpoint_dir=folder, resume=True))
        assert_same_run(whole, found, 52)  # the losses of epoch 1 come from the checkpoint


@needs_fork
def test_the_first_process_writes_the_checkpoint(make_model, make_toy, tmp_path, monkeypatch):
    from mmlkit.training import checkpoints

    save = checkpoints.save_checkpoint

    def recorded(path, state):
        save(path, state)
        (tmp_path / f"epoch {state['epoch']} by {os.environ['RANK']}").touch()

    def train():
        fit(make_model("sst"), make_toy("sst"), **QUICK, epochs=2, checkpoint_dir=tmp_path / "run")
        return (tmp_path / "epoch 2 by 0").exists()  # the others wait for the last checkpoint

    monkeypatch.setattr(checkpoints, "save_checkpoint", recorded)
    assert in_every_process(train) == [True, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *["epoch 1 by 0", "epoch 2 by 0", "run"]
    ]


@needs_fork
def test_memory_that_runs_out_in_one_process_changes_no_loss(run, monkeypatch):
    loss = MultitaskModel.loss

    def forgetful(self, batch):
        if not is_first_process() and len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss(self, batch)

    one = run("linear", epochs=1)
    monkeypatch.setattr(MultitaskModel, "loss", forgetful)
    assert_same_run(one, launch(lambda: run("linear", epochs=1)), 26)


@needs_fork
def test_a_loss_of_nan_in_one_share_stops_every_process(make_model, make_toy, monkeypatch):
    loss = MultitaskModel.loss

    def diverging(self, batch):
        found = loss(self, batch)
        return found if 7 not in batch.rows else found._replace(total=found.total * torch.nan)

    def train():
        model = make_model("sst")
        before = model.heads["sst"].dense.bias.detach().clone()
        with pytest.raises(FloatingPointError) as error:
            fit(model, make_toy("sst", 8), **QUICK, epochs=1)
        return str(error.value), torch.equal(before, model.heads["sst"].dense.bias)

    monkeypatch.setattr(MultitaskModel, "loss", diverging)
    messages, unmoved = zip(*in_every_process(train))
    assert "stopped at step 1: the loss of task 'sst' is nan" in messages[0]
    assert messages[0] == messages[1] and all(unmoved)


@needs_fork
def test_processes_with_other_settings_are_refused(make_model, make_toy):
    def train():
        rank = join("cpu")[0].rank
        with pytest.raises(ValueError) as error:
            fit(make_model("sst"), make_toy("sst"), **QUICK, epochs=1, seed=rank)
        return str(error.value)

    messages = in_every_process(train)
    assert messages[0] == messages[1]
    assert messages[0].startswith("seed is 0 in process 0 but 1 in process 1. Every process must")


@needs_fork
def test_gpus_of_which_one_needs_a_scaler_are_refused(make_model, make_toy, monkeypatch):
    """Beside an A100, a T4 would add gradients that are multiplied by its scale."""

    def train():
        rank = join("cpu")[0].rank
        monkeypatch.setattr(training_loop, "fastest_precision", lambda _: ("bf16", "fp16")[rank])
        with pytest.raises(ValueError) as error:
            fit(make_model("sst"), make_toy("sst"), **QUICK | {"precision": "auto"}, epochs=1)
        return str(error.value)

    messages = in_every_process(train)
    assert messages[0] == messages[1]
    assert messages[0].startswith("precision is 'bf16' in process 0 but 'fp16' in process 1.")


@needs_fork
def test_the_first_process_warns(make_model, make_toy):
    def train():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(make_model("sst"), make_toy("sst"), **QUICK, epochs=1, max_length=4)
        return [str(warning.message).split(":")[0] for warning in caught]

    assert in_every_process(train) == [["sst train", "sst dev"], []]


@needs_fork
def test_launch_returns_the_result_of_the_first_process(make_model):
    """A plain copy of a process with two threads would hang in its backward pass."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    large = torch.ones(400, 400, requires_grad=True)
    (large @ large).sum().backward()  # starts OpenMP's threads in this process

    def add(model, number):
        (large @ large).sum().backward()
        with torch.no_grad():
            model.heads["sst"].dense.bias += number
        return model, is_first_process(), os.environ["RANK"], torch.get_num_threads()

    model = make_model("sst")
    try:
        found, first, rank, threads = launch(add, model, 2.5)
    finally:
        torch.set_num_threads(before)
    assert found.heads["sst"].dense.bias.tolist() == [2.5] * 5 and (first, rank) == (True, "0")
    assert model.heads["sst"].dense.bias.tolist() == [0.0] * 5 and threads == 1
    assert "RANK" not in os.environ and is_first_process()


@needs_fork
def test_a_result_leaves_the_gpu_before_it_is_sent(monkeypatch):
    """The memory of a GPU that a process has used ends with the process."""
    moved = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: moved.append(x.item()) or x)
    monkeypatch.setattr(torch.nn.Module, "cpu", lambda module: moved.append("model") or module)
    table = [1.0, None]
    result = (torch.nn.Linear(1, 1), {"loss": [torch.tensor(2), torch.tensor(3)]}, table, "text")
    sent = _on_cpu(result)
    assert moved == ["model", 2, 3] and sent == result and sent[2] == table


def test_a_process_that_is_killed_ends_the_others():
    def killed():
        if not is_first_process():
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.barrier()

    with pytest.raises(RuntimeError, match="Process 1 of 2 failed.*\n.*ended from outside"):
        launch(killed)


def test_a_killed_process_is_named_before_the_errors_that_it_causes():
    (ours, theirs), (killed, end) = multiprocessing.Pipe(), multiprocessing.Pipe()
    theirs.send((None, "Connection reset by peer"))
    timer = threading.Timer(0.2, end.close)  # its end is noticed later
    timer.start()
    with pytest.raises(RuntimeError, match="Process 1 of 2 failed.*\n.*ended from outside"):
        _results([ours, killed])
    timer.join()


@needs_fork
def test_a_result_that_cannot_be_sent_is_an_error():
    with pytest.raises(RuntimeError, match="Process 0 of 2 failed(.|\n)*(P|p)ickl"):
        launch(lambda: lambda: None)


def test_launch_explains_when_it_cannot_fork(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA has been used in it.*Restart.*torchrun"):
        launch(print)
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(RuntimeError, match="this system cannot do.*torchrun"):
        launch(print)
    with pytest.raises(ValueError, match="processes is 0"):
        launch(print, processes=0)


def test_a_process_takes_the_gpu_with_its_number(monkeypatch):
    """No group is made, because the error comes first."""
    taken = []
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="Process 1 of this machine has no GPU.*there are 1"):
        join()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 5)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA has been used in it.*Restart.*torchrun"):
        join()
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)
    own = (Group(5, 8), torch.device("cuda:1"))
    assert join() == own and join("cuda") == own and taken == [1, 1]
    assert join("cpu") == (Group(5, 8), "cpu") and join("cuda:0")[1] == "cuda:0"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert join()[1] == "cpu" and join("cuda")[1] == "cuda" and taken == [1, 1]


def test_one_process_has_no_group(monkeypatch):
    assert join("cpu") == (ALONE, "cpu") and join() == (ALONE, None)
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    assert join() == (ALONE, None) and not torch.distributed.is_initialized()


SCRIPT = """
import json, sys, torch
from mmlkit import LinearHead, MultitaskModel, evaluate, fit, is_first_process, load_pretrained
from mmlkit import load_task

torch.manual_seed(0)
encoder, tokenizer = load_pretrained(sys.argv[1], device="cpu")
model = MultitaskModel(encoder, {"sst": LinearHead(32, 5, dropout=0.0)})
data = load_task("sst", source="mini", limit=60)
settings = {"device": "cpu", "precision": "fp32", "max_length": 5}
history = fit(model, data, epochs=2, lr=1e-2, batch_size=16, freeze_encoder=True, **settings)
if is_first_process():
    found = evaluate(model, data, **settings)
    print(json.dumps([*history.train_loss, *history.accuracy, found["accuracy"]]))
"""


@pytest.mark.slow
def test_a_plain_script_under_torchrun(model_folder, tmp_path, capsys, monkeypatch):
    """The script only calls `fit`. One process prints, warns and evaluates by itself."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    root = str(Path(__file__).resolve().parents[3])
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *command, str(script), str(model_folder)],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("were truncated") == 3  # train and dev in fit, dev in evaluate
    monkeypatch.setattr(sys, "argv", [str(script), str(model_folder)])
    with warnings.catch_warnings(), seeded(0):
        warnings.simplefilter("ignore")
        exec(compile(SCRIPT, "one process", "exec"), {})
    one, two = json.loads(capsys.readouterr().out), json.loads(done.stdout)
    assert len(one) == 5 and one[1] < one[0] - 0.01
    np.testing.assert_allclose(two, one, atol=1e-6, rtol=0)


CELLS = (
    """
import torch
from mmlkit import LinearHead, MultitaskModel, evaluate, fit, launch, load_pretrained, load_task
torch.set_num_threads(2)
encoder, tokenizer = load_pretrained("FOLDER", device="cpu")
model = MultitaskModel(encoder, {"sst": LinearHead(32, 5)})
data = load_task("sst", source="mini", limit=40)
fit(model, data, epochs=1, device="cpu")
""",
    """
def train():
    history = fit(model, data, epochs=2, device="cpu")
    return model, history.accuracy.tolist()
trained, accuracy = launch(train)
print(evaluate(trained, data, device="cpu")["accuracy"] == max(accuracy))
""",
)


@needs_fork
@pytest.mark.slow
def test_a_notebook_launches_a_function_that_it_defines(model_folder):
    """It has trained by itself before, with two threads."""
    import nbclient
    import nbformat

    cells = [cell.replace("FOLDER", str(model_folder)) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    root = str(Path(__file__).resolve().parents[3])
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(env={**os.environ, "PYTHONPATH": root})
    assert notebook.cells[1].outputs[0].text.strip() == "True"
