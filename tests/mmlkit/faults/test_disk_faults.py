"""A full disk: what was there stays, nothing half-written has a final name, the path is named.

The disk is a small tmpfs where the system lets us mount one, and otherwise a limit on file sizes.
"""

import contextlib
import json
import shutil
import subprocess
import warnings

import pytest
import torch

from mmlcourse.batch.runs import record
from mmlcourse.cli.main import main
from mmlkit.bert.pretrained import save_pretrained
from mmlkit.training.checkpoints import load_checkpoint, load_latest, save_checkpoint
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.saving import load_model, save_model

resource = pytest.importorskip("resource", reason="Windows has no limits on file sizes")
REASON = "could not be written.*(No space left on device|File too large|I/O error)"


@pytest.fixture
def disk(tmp_path):
    """Return a folder and a function that makes its disk full within a `with` block."""
    folder = tmp_path / "disk"
    folder.mkdir()

    @contextlib.contextmanager
    def limited():
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    @contextlib.contextmanager
    def filled():
        rest = folder / "rest"
        with contextlib.suppress(OSError), rest.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        try:
            yield
        finally:
            rest.unlink()

    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        yield folder, limited
        return
    try:
        yield folder, filled
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_checkpoint(disk):
    folder, full = disk
    path = folder / "run" / "last.safetensors"
    save_checkpoint(path, {"step": 1, "weights": torch.zeros(1000)})
    before = names(folder)
    with full(), pytest.raises(OSError, match=rf"last.safetensors {REASON}.*checkpoint before it"):
        save_checkpoint(path, {"step": 2, "weights": torch.zeros(100_000)})
    assert names(folder) == before and load_checkpoint(path)["step"] == 1
    save_checkpoint(path, {"step": 2, "weights": torch.zeros(1000)})  # there is space again
    assert load_latest(path)["step"] == 2


def test_training_ends_with_the_path_and_goes_on_when_there_is_space(disk, make_model, make_toy):
    folder, full = disk
    settings = dict(epochs=3, lr=1e-3, batch_size=5, checkpoint_dir=folder)
    whole = fit(make_model("sst"), make_toy("sst"), **{**settings, "checkpoint_dir": None})
    with full(), pytest.raises(OSError, match=rf"{folder}/last.safetensors {REASON}"):
        fit(make_model("sst"), make_toy("sst"), **settings)
    assert names(folder) == []
    history = fit(make_model("sst"), make_toy("sst"), resume=True, **settings)
    assert history["train_loss"].tolist() == whole["train_loss"].tolist()


@pytest.mark.parametrize("there", [True, False])
def test_a_model(disk, make_model, make_toy, there):
    folder, full = disk
    old, new, data = make_model("sst", seed=0), make_model("sst", seed=1), make_toy("sst")
    if there:
        save_model(old, folder / "model")
    before = names(folder)
    with (
        full(),
        pytest.raises(OSError, match=rf"{folder}/model {REASON}.*Free some space, or save"),
    ):
        save_model(new, folder / "model")
    assert names(folder) == before
    if there:
        again = load_model(folder / "model")
        assert (predict_scores(again, data) == predict_scores(old, data)).all()


def test_an_encoder(disk, make_model):
    folder, full = disk
    model = make_model("sst")
    with full(), pytest.raises(OSError, match=rf"{folder}/encoder {REASON}"):
        save_pretrained(model.encoder, model.tokenizer, folder / "encoder")
    assert names(folder) == []


def test_a_result(disk):
    folder, full = disk
    path, score = folder / "one.json", dict(on="a", split="dev", metric="accuracy", value=0.5)
    record(path, scores=[score])
    old = path.read_bytes()
    with full(), pytest.raises(OSError, match=rf"one.json {REASON}.*Free some space, or choose"):
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
    assert f"{folder}/out.csv could not be written" in said and "Free some space" in said, said
    assert names(folder) == []


def test_a_report(disk, tmp_path, capsys):
    folder, full = disk
    run = {
        "experiment": "mml-tables",
        "profile": "fast",
        "name": "bert-rte-0",
        "parameters": {"method": "bert", "task": "rte", "seed": 0},
        "scores": [{"on": "rte", "split": "dev", "metric": "accuracy", "value": 0.75}],
    }
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").write_text(json.dumps(run))
    with full(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = main(["report", str(tmp_path / "results"), "--out", str(folder / "report")])
    said = capsys.readouterr().err
    assert status == 2 and f"{folder}/report/" in said and "Free some space" in said, said
    assert not [name for name in names(folder) if "." in name]
