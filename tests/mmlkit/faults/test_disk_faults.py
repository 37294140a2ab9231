"""A full disk: what was there stays, and nothing half-written has a final name.

A limit on the size of files stands for the disk.
"""

import contextlib

import pytest
import torch
from safetensors import SafetensorError

from mmlcourse.batch.runs import record
from mmlcourse.cli.main import main
from mmlkit.training.checkpoints import load_checkpoint, load_latest, save_checkpoint
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.saving import load_model, save_model

resource = pytest.importorskip("resource", reason="Windows has no limits on file sizes")
REASON = "No space left on device|File too large|I/O error"


@pytest.fixture
def disk(tmp_path):
    """Return a folder and a function that lets no large file be written in a `with` block."""

    @contextlib.contextmanager
    def limited():
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    (tmp_path / "disk").mkdir()
    return tmp_path / "disk", limited


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_checkpoint(disk):
    folder, full = disk
    path = folder / "run" / "last.safetensors"
    save_checkpoint(path, {"step": 1, "weights": torch.zeros(1000)})
    before = names(folder)
    with full(), pytest.raises(OSError, match=REASON):
        save_checkpoint(path, {"step": 2, "weights": torch.zeros(100_000)})
    assert names(folder) == before and load_checkpoint(path)["step"] == 1
    save_checkpoint(path, {"step": 2, "weights": torch.zeros(1000)})  # there is space again
    assert load_latest(path)["step"] == 2


def test_training_ends_with_the_path_and_goes_on_when_there_is_space(disk, make_model, make_toy):
    folder, full = disk
    settings = dict(epochs=3, lr=1e-3, batch_size=5, checkpoint_dir=folder)
    whole = fit(make_model("sst"), make_toy("sst"), **{**settings, "checkpoint_dir": None})
    with full(), pytest.raises(OSError, match=REASON):
        fit(make_model("sst"), make_toy("sst"), **settings)
    assert names(folder) == []
    history = fit(make_model("sst"), make_toy("sst"), resume=True, **settings)
    assert history["train_loss"].tolist() == whole["train_loss"].tolist()


def test_a_model(disk, make_model, make_toy):
    folder, full = disk
    old, new, data = make_model("sst", seed=0), make_model("sst", seed=1), make_toy("sst")
    save_model(old, folder / "model")
    before = names(folder)
    with full(), pytest.raises((OSError, SafetensorError), match=REASON):
        save_model(new, folder / "model")
    assert names(folder) == before
    again = load_model(folder / "model")
    assert (predict_scores(again, data) == predict_scores(old, data)).all()


def test_a_result(disk):
    folder, full = disk
    path, score = folder / "one.json", dict(on="a", split="dev", metric="accuracy", value=0.5)
    record(path, scores=[score])
    old = path.read_bytes()
    with full(), pytest.raises(OSError, match=rf"({REASON}).*one.json"):
        record(path, scores=[score], history=["x" * 5000])
    assert path.read_bytes() == old and names(folder) == ["one.json"]


def test_predictions_on_the_command_line(disk, tmp_path, make_model, capsys):
    folder, full = disk
    save_model(make_model("sst"), tmp_path / "model")
    text = "the film was good " * 500
    with full():
        status = main(
            ["predict", "--model", str(tmp_path / "model"), "--out", f"{folder}/out.csv", text]
        )
    said = capsys.readouterr().err
    assert status == 2 and "Traceback" not in said, said
    assert f"{folder}/out.csv" in said, said
    assert names(folder) == []
