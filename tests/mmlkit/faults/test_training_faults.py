"""Training survives kills at any moment, damaged checkpoints and Ctrl-C."""

import errno
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.pals.task_parts import add_pals, save_pals
from mmlkit.runtime import delayed_interrupt, seeded
from mmlkit.training import checkpoints, loop
from mmlkit.training.checkpoints import load_checkpoint, load_latest, save_checkpoint
from mmlkit.training.loop import fit
from mmlkit.training.sampling import TaskSampler

KILLS = int(os.environ.get("MMLKIT_KILLS", "20"))
DAMAGES = int(os.environ.get("MMLKIT_DAMAGES", "200"))
TASKS = {"single": ["sst"], "several": ["sst", "quora", "sts"], "pals": ["sst", "sts"]}
SAVE_STEPS = 3
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
    """Return a function (kind, hook, **options) that trains; it returns weights and history."""

    def run(kind, *hooks, **options):
        tasks = TASKS.get(kind, ["sst"])
        model = make_model(*tasks, dropout=0.2)
        sampler = None
        if kind == "pals":
            add_pals(model.encoder, tasks, kind="pal", size=12, num_heads=3)
        if kind == "several":
            sizes = {"sst": 4, "quora": 6, "sts": 2}
            sampler = TaskSampler("annealed", sizes=sizes, epochs=3, steps_per_epoch=8, seed=5)
        if kind == "multiverse":
            with seeded(2):
                model.heads["sst"] = MultiverseHead(32, 5, num_heads=8, dropout=0.0)
            hooks = (HeadPruner(model.heads["sst"], every=4, bandwidth="std:0.3"), *hooks)
        settings = dict(epochs=3, lr=1e-3, batch_size=5, save_steps=SAVE_STEPS, sampler=sampler)
        data = {task: make_toy(task) for task in tasks}
        history = fit(model, data, hooks=hooks, **settings, **options)
        return dict(model.state_dict()), history.drop(columns="seconds", errors="ignore").to_dict(
            "records"
        )

    return run


def assert_same_run(one, other):
    assert one[0].keys() == other[0].keys()
    assert all(torch.equal(value, other[0][key]) for key, value in one[0].items())
    pd.testing.assert_frame_equal(pd.DataFrame(one[1]), pd.DataFrame(other[1]), check_exact=True)


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "several", "pals", "multiverse"])
def test_kills_at_random_moments_lose_at_most_the_steps_since_the_last_checkpoint(
    train, tmp_path, kind
):
    folder, log, chance = tmp_path / "run", tmp_path / "log", random.Random(kind)
    expected = train(kind)

    def child():
        options = dict(checkpoint_dir=folder, resume=True)
        weights, history = train(kind, Log(log, wait=0.05), **options)
        save_checkpoint(end, {"weights": weights, "history": history})

    kills, seen, end = 0, [], tmp_path / "end"
    while kills < KILLS // 4 or not end.is_file():
        if end.is_file():  # a kill of a finished run would prove nothing
            end.unlink()
            log.unlink()
            shutil.rmtree(folder)
            seen = []
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(chance.uniform(0.1, 1.0) if kills < KILLS // 4 else None)
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        steps = [int(line) for line in log.read_text().split()] if log.is_file() else []
        new = steps[len(seen) :]
        if seen and new:
            assert max(seen) - SAVE_STEPS < new[0] <= max(seen) + 1
        assert new == [new[0] + i for i in range(len(new))]
        seen = steps
        if end.is_file():
            found = load_checkpoint(end)
            assert_same_run(expected, (found["weights"], found["history"]))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["last.safetensors", "previous.safetensors"]


@pytest.mark.parametrize("kind", ["single", "several", "pals", "multiverse"])
def test_a_run_resumed_at_any_step_equals_the_whole_run(train, tmp_path, kind):
    """A hook stops at each step in turn, so that every place inside an epoch is a start."""

    class Stop(Log):
        def after_step(self, event):
            if event.step == self.wait:
                raise RuntimeError("stopped")

    expected = train(kind, Log())
    for step in (2, 5, 7, 9, 12):
        folder = tmp_path / str(step)
        with pytest.raises(RuntimeError, match="stopped"):
            train(kind, Stop(wait=step), checkpoint_dir=folder)
        if step > SAVE_STEPS:
            assert load_checkpoint(folder / "last.safetensors")["step"] >= step - SAVE_STEPS
        assert_same_run(expected, train(kind, Log(), checkpoint_dir=folder, resume=True))


def test_no_damaged_checkpoint_is_loaded(train, tmp_path):
    """Half of the files are truncated, in the others one byte differs; each is named."""
    train("single", checkpoint_dir=tmp_path)
    path, chance = tmp_path / "last.safetensors", random.Random(0)
    whole = path.read_bytes()
    step = load_checkpoint(tmp_path / "previous.safetensors")["step"]
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
        with pytest.raises(ValueError, match=message):
            load_checkpoint(path)
        with pytest.warns(UserWarning, match=rf"{message}.*continues from .*previous.safetensors"):
            assert load_latest(path)["step"] == step


def test_both_checkpoints_damaged(tmp_path):
    assert load_latest(tmp_path / "last.safetensors") is None
    for name in ("last", "previous"):
        (tmp_path / f"{name}.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"last.safetensors is not .*previous.safetensors is not"):
        load_latest(tmp_path / "last.safetensors")


def test_the_checkpoint_before_a_damaged_one_continues_the_run(train, tmp_path):
    expected = train("single", checkpoint_dir=tmp_path)
    (tmp_path / "last.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="continues from"):
        assert_same_run(expected, train("single", checkpoint_dir=tmp_path, resume=True))


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path / "last.safetensors", {"step": step})
    kept = {path.stem: load_checkpoint(path)["step"] for path in tmp_path.iterdir()}
    assert kept == {"last": 3, "previous": 2}


def test_a_checkpoint_of_another_format_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    monkeypatch.setattr(checkpoints, "VERSION", "1")
    save_checkpoint(path, {"step": 1})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="its format is 1, expected 2"):
        load_checkpoint(path)


def test_minutes_between_two_checkpoints(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    writer = checkpoints.CheckpointWriter(tmp_path / "last.safetensors", None, 5)
    for now, due in ((299, False), (300, True)):
        clock[0] = now
        assert writer.due(7) == due
    writer.write(lambda: {"step": 7})
    clock[0] = 599
    assert not writer.due(8) and (tmp_path / "last.safetensors").is_file()
    writer = checkpoints.CheckpointWriter(None, 1, 5)
    writer.write(lambda: {"step": 1})
    assert not writer.due(8)


def test_temporary_files_of_dead_processes_are_removed(tmp_path):
    alive = tmp_path / f".last.safetensors.{os.getpid()}.tmp"
    dead = tmp_path / ".last.safetensors.999999999.tmp"
    for path in (alive, dead):
        path.touch()
    checkpoints.CheckpointWriter(tmp_path / "last.safetensors", None, 5)
    assert alive.is_file() and not dead.exists()


def test_a_full_disk_keeps_the_checkpoint_before_it(tmp_path, monkeypatch):
    def full(path, data):
        with open(path, "wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    path = tmp_path / "last.safetensors"
    save_checkpoint(path, {"step": 1})
    monkeypatch.setattr(Path, "write_bytes", full)
    said = "last.safetensors could not be written: No space left.*before it is unchanged"
    with pytest.raises(OSError, match=said):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1} and len(list(tmp_path.iterdir())) == 1


@needs_fork
@pytest.mark.parametrize("save", ["checkpoint", "modules of tasks"])
def test_a_kill_during_the_writing_leaves_one_file_with_the_number_of_its_process(tmp_path, save):
    """The next run removes this file; safetensors' own temporary file has no such name."""
    encoder = add_pals(BertModel(BertConfig.tiny()), tasks=["sst"], size=8, num_heads=2)

    def child():
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # this signal kills at the 500th byte
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        if save == "checkpoint":
            save_checkpoint(tmp_path / "last.safetensors", {"weights": torch.zeros(1000)})
        save_pals(encoder, tmp_path)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    name = "last" if save == "checkpoint" else "pals"
    left = [path.name for path in tmp_path.iterdir()]
    assert process.exitcode == -signal.SIGXFSZ
    assert left == [f".{name}.safetensors.{process.pid}.tmp"]


@pytest.mark.parametrize("name", ["data", "encoder", "heads"])
def test_a_checkpoint_knows_its_data_and_its_model(make_model, make_toy, tmp_path, name):
    settings = dict(epochs=1, batch_size=5, checkpoint_dir=tmp_path)
    fit(make_model("sst"), make_toy("sst"), **settings)
    model, data = make_model("sst", dropout=0.3 if name == "encoder" else 0.0), make_toy("sst")
    if name == "data":
        data.train.labels[0] = 1 - data.train.labels[0]
    if name == "heads":
        model.heads["sst"].pooling = "mean"
    with pytest.raises(ValueError, match=rf"belongs to another run; different are .*'{name}': \("):
        fit(model, data, resume=True, **settings)


class Interrupt(Log):
    """Send Ctrl-C to this process at one step."""

    def after_step(self, event):
        if event.step == self.wait:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("step", [2, 4, 6])
def test_ctrl_c_saves_and_returns_what_there_is(train, tmp_path, monkeypatch, step):
    """An epoch has four steps. The run ends after the step, and resuming it gives the whole run."""
    expected = train("single", Log())
    monkeypatch.setattr(loop, "is_interactive", lambda: True)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with pytest.warns(UserWarning, match=rf"interrupted after step {step}\. .*last.safetensors"):
        weights, history = train("single", Interrupt(wait=step), checkpoint_dir=tmp_path)
    assert len(history) == (step - 1) // 4
    assert load_checkpoint(tmp_path / "last.safetensors")["step"] == step
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same_run(expected, train("single", Log(), checkpoint_dir=tmp_path, resume=True))


@pytest.mark.parametrize("place", ["papermill", "a terminal"])
def test_ctrl_c_raises_outside_of_a_live_notebook(train, tmp_path, monkeypatch, place):
    """Otherwise a script would go on with an unfinished model."""
    monkeypatch.setattr(loop, "is_interactive", lambda: place == "a terminal")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if place == "papermill":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with pytest.raises(KeyboardInterrupt, match="interrupted after step 2"):
        train("single", Interrupt(wait=2), checkpoint_dir=tmp_path)
    assert load_checkpoint(tmp_path / "last.safetensors")["step"] == 2


def test_a_second_ctrl_c_ends_at_once():
    with pytest.raises(KeyboardInterrupt), delayed_interrupt() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.is_set()
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_of_ctrl_c_stays():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with delayed_interrupt() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not asked.is_set()
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_is_said_of_a_run_without_faults(train, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train("single", checkpoint_dir=tmp_path)
        train("single", checkpoint_dir=tmp_path, resume=True)


class InterruptDue:
    """Stands in for `CheckpointWriter.due`: Ctrl-C comes between the two readings of the flag."""

    def __init__(self, due):
        self.due = due

    def __call__(self, step):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return False


def test_ctrl_c_between_two_readings_loses_no_checkpoint(train, tmp_path, monkeypatch):
    """The run ends one step later, with the checkpoint that its message names."""
    monkeypatch.setattr(checkpoints.CheckpointWriter, "due", InterruptDue(None))
    with pytest.raises(KeyboardInterrupt, match="interrupted after step 3"):
        train("single", checkpoint_dir=tmp_path)
    assert load_checkpoint(tmp_path / "last.safetensors")["step"] == 3


def test_ctrl_c_in_the_last_evaluation_ends_a_script(train, tmp_path, monkeypatch):
    """The run is finished, and the loop over seeds around it must not begin the next one."""
    score, calls = loop.score_encoded, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return score(*arguments, **options)

    monkeypatch.setattr(loop, "score_encoded", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train("single", checkpoint_dir=tmp_path)
    monkeypatch.undo()
    history = train("single", checkpoint_dir=tmp_path, resume=True)[1]
    assert len(history) == 3


def test_a_new_run_over_an_old_checkpoint_warns(train, tmp_path):
    train("single", checkpoint_dir=tmp_path)
    with pytest.warns(UserWarning, match="checkpoint of an earlier run, which this run replaces"):
        train("single", checkpoint_dir=tmp_path)


def test_an_optimizer_of_the_heads_needs_no_frozen_encoder(make_model, make_toy):
    model = make_model("sst")
    optimizer = torch.optim.AdamW(model.heads.parameters(), lr=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(model, make_toy("sst"), epochs=1, optimizer=optimizer, freeze_encoder=True)


def test_the_seconds_of_an_epoch_include_the_features(make_model, make_toy, monkeypatch):
    compute = loop.precompute

    def slow(*arguments, **options):
        time.sleep(0.5)
        return compute(*arguments, **options)

    monkeypatch.setattr(loop, "precompute", slow)
    history = fit(make_model("sst"), make_toy("sst"), epochs=1, lr=1e-3, freeze_encoder=True)
    assert history["seconds"].iloc[0] >= 0.5
