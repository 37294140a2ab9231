"""Training survives kills at any moment, damaged checkpoints and Ctrl-C."""

import errno
import multiprocessing
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch

from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import delayed_interrupt, seeded
from mmlkit.training import checkpoints, loop, resume
from mmlkit.training.checkpoints import load_checkpoint, load_latest, save_checkpoint
from mmlkit.training.loop import fit
from mmlkit.training.sampling import TaskSampler

KILLS = int(os.environ.get("MMLKIT_KILLS", "4"))
DAMAGES = int(os.environ.get("MMLKIT_DAMAGES", "60"))
STATE = {
    "epoch": 2,
    "score": float("-inf"),
    "none": None,
    "name": "@ no tensor",
    "flag": True,
    "empty": {},
    "list": [],
    "weights": {"a.b": torch.arange(6.0).reshape(2, 3), "half": torch.ones(2).bfloat16()},
    "pair": [torch.zeros(1), [1, {"n": torch.tensor(3), "text": "@tensor"}]],
}
needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


@pytest.fixture(autouse=True)
def python_handles_ctrl_c():
    """Install Python's handler, because a shell starts a job in the background without one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Log:
    """Write the number of each step to a file; wait, so that a kill can hit every moment."""

    def __init__(self, file=None, wait=0.0):
        self.file, self.wait = file, wait

    def after_step(self, event):
        if self.file:
            with self.file.open("a") as file:
                file.write(f"{event.step}\n")
        time.sleep(self.wait)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.fixture
def train(make_model, make_toy):
    """Return a function (hooks, **options) that trains; it returns weights and history.

    Two tasks, of which one has heads that are pruned, and PALs; a checkpoint after every step.
    """

    def run(*hooks, **options):
        tasks = ["sst", "sts"]
        model = make_model(*tasks, dropout=0.2, num_hidden_layers=1)
        with seeded(2):
            model.heads["sst"] = MultiverseHead(32, 5, num_heads=8, dropout=0.0)
            add_pals(model.encoder, tasks, kind="pal", size=12, num_heads=3)
        pruner = HeadPruner(model.heads["sst"], every=2, threshold=1, bandwidth="std:0.3")
        sizes = {"sst": 4, "sts": 2}
        sampler = TaskSampler("annealed", sizes=sizes, epochs=3, steps_per_epoch=6, seed=5)
        settings = dict(epochs=3, lr=1e-3, batch_size=5, sampler=sampler, save_minutes=0)
        data = {task: make_toy(task) for task in tasks}
        history = fit(model, data, hooks=[pruner, *hooks], **settings, **options)
        rows = history.drop(columns="seconds", errors="ignore").to_dict("records")
        return dict(model.state_dict()), rows

    return run


def assert_same_run(one, other):
    assert one[0].keys() == other[0].keys()
    assert all(torch.equal(value, other[0][key]) for key, value in one[0].items())
    pd.testing.assert_frame_equal(pd.DataFrame(one[1]), pd.DataFrame(other[1]), check_exact=True)


@needs_fork
@pytest.mark.slow
def test_kills_at_random_moments_lose_at_most_one_step(train, tmp_path):
    folder, log, chance = tmp_path / "run", tmp_path / "log", random.Random(0)
    expected, end = train(Log()), tmp_path / "end"

    def child():
        weights, history = train(Log(log, wait=0.1), checkpoint_dir=folder, resume=True)
        save_checkpoint(end, {"weights": weights, "history": history})

    kills, seen = 0, []
    while not end.is_file():
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(chance.uniform(0.3, 1.0) if kills < KILLS else None)
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        steps = [int(line) for line in log.read_text().split()] if log.is_file() else []
        new = steps[len(seen) :]
        if seen and new:
            assert max(seen) <= new[0] <= max(seen) + 1
        assert new == [new[0] + i for i in range(len(new))]
        seen = steps
    found = load_checkpoint(end)
    assert_same_run(expected, (found["weights"], found["history"]))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["last.safetensors", "previous.safetensors"]


def test_a_run_resumed_at_any_step_equals_the_whole_run(train, tmp_path):
    """A hook stops at steps in turn, so that places inside an epoch are starts."""

    class Stop(Log):
        def after_step(self, event):
            if event.step == self.wait:
                raise RuntimeError("stopped")

    expected = train(Log())
    for step in (2, 8, 14):
        with pytest.raises(RuntimeError, match="stopped"):
            train(Stop(wait=step), checkpoint_dir=tmp_path, resume=True)
        assert load_checkpoint(tmp_path / "last.safetensors")["step"] == step - 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said of a run without faults
        assert_same_run(expected, train(Log(), checkpoint_dir=tmp_path, resume=True))


# ---- files ----


def assert_equal_states(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal_states(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_equal_states(one, other)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    else:
        assert a == b


def test_a_loaded_checkpoint_equals_the_saved_state(tmp_path):
    path = tmp_path / "new" / "last.safetensors"
    save_checkpoint(path, STATE)
    assert_equal_states(load_checkpoint(path), STATE)
    with safetensors.safe_open(path, framework="pt") as file:
        assert set(file.keys()) == {"weights.a.b", "weights.half", "pair.0", "pair.1.1.n"}
    assert [one.name for one in path.parent.iterdir()] == ["last.safetensors"]
    with pytest.raises(TypeError):
        save_checkpoint(path, {"x": torch.zeros(1), "bad": object()})
    assert load_checkpoint(path)["epoch"] == 2


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path / "last.safetensors", {"step": step})
    kept = {path.stem: load_checkpoint(path)["step"] for path in tmp_path.iterdir()}
    assert kept == {"last": 3, "previous": 2}


def test_no_damaged_checkpoint_is_loaded(tmp_path):
    """Half of the files are truncated, in the others one bit differs; each is named."""
    path, chance = tmp_path / "last.safetensors", random.Random(0)
    for step in (1, 2):
        save_checkpoint(path, {**STATE, "step": step})
    whole = path.read_bytes()
    padding = whole[8:].index(b"}}") + 10  # spaces after the header mean nothing
    size = 8 + int.from_bytes(whole[:8], "little")
    for i in range(DAMAGES):
        if i % 2:
            path.write_bytes(whole[: chance.randrange(len(whole))])
        else:
            place = chance.choice([chance.randrange(len(whole)), chance.randrange(padding)])
            if padding <= place < size:
                continue
            changed = bytearray(whole)
            changed[place] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
        message = r"last.safetensors is not a readable checkpoint \(.*\)\. Delete it to start"
        with pytest.warns(UserWarning, match=rf"{message}.*continues from .*previous.safetensors"):
            assert load_latest(path)["step"] == 1


def test_files_that_are_no_checkpoints(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    assert load_latest(path) is None
    safetensors.torch.save_file({"x": torch.ones(1)}, path)  # a file of weights
    path.with_stem("previous").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"last.safetensors is not .*previous.safetensors is not"):
        load_latest(path)
    monkeypatch.setattr(checkpoints, "VERSION", "2")
    save_checkpoint(path, {"step": 1})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="its format is 2, expected 3"):
        load_checkpoint(path)


def test_a_damaged_checkpoint_changes_no_weight(make_model, make_toy, tmp_path):
    (tmp_path / "last.safetensors").write_bytes(b"damaged")
    model = make_model("sst")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        fit(model, make_toy("sst"), checkpoint_dir=tmp_path, resume=True)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_full_disk_keeps_the_checkpoint_before_it(tmp_path, monkeypatch):
    def full(path, data):
        with open(path, "wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    path = tmp_path / "last.safetensors"
    save_checkpoint(path, {"step": 1})
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1} and len(list(tmp_path.iterdir())) == 1


@needs_fork
def test_what_a_kill_during_the_writing_leaves_is_removed(tmp_path):
    path = tmp_path / "last.safetensors"

    def child():
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # this signal kills at the 500th byte
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        save_checkpoint(path, {"weights": torch.zeros(1000)})

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    left = [path.name for path in tmp_path.iterdir()]
    assert process.exitcode == -signal.SIGXFSZ and len(left) == 1 and left != [path.name]
    save_checkpoint(path, {"step": 1})
    assert list(tmp_path.iterdir()) == [path]


def test_minutes_between_two_checkpoints(make_model, make_toy, tmp_path, monkeypatch):
    """One is written after each epoch of four steps, and in the second epoch one more."""
    clock, steps = [0.0], []
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(resume, "save_checkpoint", lambda path, state: steps.append(state["step"]))

    class Clock(Log):
        def after_step(self, event):
            clock[0] += 300 if event.step == 6 else 1

    settings = dict(epochs=3, batch_size=5, hooks=[Clock()], checkpoint_dir=tmp_path)
    fit(make_model("sst"), make_toy("sst"), **settings)
    assert steps == [4, 6, 8, 12, 12]


# ---- Ctrl-C ----


class Interrupt(Log):
    """Send Ctrl-C to this process at one step."""

    def after_step(self, event):
        if event.step == self.wait:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("step", [2, 6, 9])
def test_ctrl_c_saves_and_returns_what_there_is(train, tmp_path, monkeypatch, step):
    """The run ends after the step, of six in an epoch, and resuming it gives the whole run."""
    expected = train(Log())
    monkeypatch.setattr(loop, "is_interactive", lambda: True)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with pytest.warns(UserWarning, match=rf"interrupted after step {step}\. .*last.safetensors"):
        weights, history = train(Interrupt(wait=step), checkpoint_dir=tmp_path)
    assert len(history) == 2 * ((step - 1) // 6)
    assert load_checkpoint(tmp_path / "last.safetensors")["step"] == step
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same_run(expected, train(Log(), checkpoint_dir=tmp_path, resume=True))


@pytest.mark.parametrize("place", ["papermill", "a terminal"])
def test_ctrl_c_raises_outside_of_a_live_notebook(train, tmp_path, monkeypatch, place):
    """Otherwise a script would go on with an unfinished model."""
    monkeypatch.setattr(loop, "is_interactive", lambda: place == "a terminal")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if place == "papermill":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with pytest.raises(KeyboardInterrupt, match="interrupted after step 2"):
        train(Interrupt(wait=2), checkpoint_dir=tmp_path)
    assert load_checkpoint(tmp_path / "last.safetensors")["step"] == 2


def test_a_second_ctrl_c_ends_at_once():
    with pytest.raises(KeyboardInterrupt), delayed_interrupt() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.is_set()
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_the_last_evaluation_ends_a_script(train, tmp_path, monkeypatch):
    """The run is finished, and the loop over seeds around it must not begin the next one."""
    score, calls = loop.score_encoded, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return score(*arguments, **options)

    monkeypatch.setattr(loop, "score_encoded", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(checkpoint_dir=tmp_path)
    monkeypatch.undo()
    assert len(train(checkpoint_dir=tmp_path, resume=True)[1]) == 6
