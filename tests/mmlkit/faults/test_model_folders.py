"""Saving a model is atomic, and every damaged folder gives a clear error."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file, save_file

import mmlkit
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.data.tasks import get_task
from mmlkit.files import replace_folder
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import seeded
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import load_model, save_model


@pytest.fixture
def make_multitask_model(tokenizer):
    """Return a function (seed, pals=True) that builds a tiny model with three heads."""

    def made(seed, pals=True):
        with seeded(seed):
            encoder = BertModel(BertConfig.tiny())
            heads = {
                "sst": LinearHead(32, 5),
                "sts": PairHead(32, 1),
                "quora": MultiverseHead(32, 2, num_heads=4),
            }
            if pals:
                add_pals(encoder, list(heads), size=8, num_heads=2)
        return MultitaskModel(encoder, heads, tokenizer)

    return made


def assert_loads_as(folder, model):
    """Check that the folder loads without warnings and equals the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load_model(folder)
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert [head.to_config() for head in again.heads.values()] == [
        head.to_config() for head in model.heads.values()
    ]


def equal_models(folder, *models):
    state = load_model(folder).state_dict()
    return [
        all(torch.equal(state[key], value) for key, value in model.state_dict().items())
        for model in models
    ]


# ---- a full disk ----


@pytest.mark.parametrize("step", range(4))
def test_a_full_disk_leaves_the_old_model(make_multitask_model, tmp_path, monkeypatch, step):
    """The steps that fail: the encoder's weights, the heads' weights, the two renames."""
    folder, old, new = tmp_path / "model", make_multitask_model(0), make_multitask_model(1)
    save_model(old, folder)
    (folder / "notes.txt").write_text("mine")
    done = []

    def guard(write):
        def guarded(*arguments, **options):
            done.append(write)
            if len(done) == step + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*arguments, **options)

        return guarded

    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old folder may have another name, and is found
        patched.setattr(safetensors.torch, "save_file", guard(safetensors.torch.save_file))
        patched.setattr(os, "rename", guard(os.rename))
        with pytest.raises(OSError, match="No space left on device"):
            save_model(new, folder)
        assert equal_models(folder, old, new) == [True, False]
    save_model(new, folder)
    assert_loads_as(folder, new)
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_first_save_that_fails_leaves_no_model(make_multitask_model, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save_model(make_multitask_model(0), tmp_path / "model")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "notes.txt"]
    with pytest.raises(FileNotFoundError, match="holds no trained model: mmlkit.json is missing"):
        load_model(tmp_path / "model")


# ---- a killed save ----


def save_forever(folder, *models):
    while True:
        for model in models:
            save_model(model, folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that uses torch")
def test_a_killed_save_leaves_the_old_or_the_new_model(make_multitask_model, tmp_path):
    a, b, folder = make_multitask_model(0), make_multitask_model(1), tmp_path / "runs" / "model"
    save_model(a, folder)
    (folder / "notes.txt").write_text("mine")
    found = []
    for i in range(4):
        saver = multiprocessing.get_context("fork").Process(
            target=save_forever, args=(folder, b, a)
        )
        saver.start()
        time.sleep(0.1 + 0.11 * i)
        os.kill(saver.pid, signal.SIGKILL)
        saver.join()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(equal_models(folder, a, b))
    assert all(sum(one) == 1 for one in found), found
    save_model(a, folder)
    assert_loads_as(folder, a)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_save_killed_between_its_moves_is_found_and_repaired(make_multitask_model, tmp_path):
    old, new = make_multitask_model(0), make_multitask_model(1)
    save_model(old, tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")
    with pytest.warns(
        UserWarning,
        match="model is missing: a save was killed in its last step",
    ):
        assert equal_models(tmp_path / "model", old, new) == [True, False]
    with pytest.warns(UserWarning, match="is missing: a save was killed"):
        load_pretrained(tmp_path / "model")
    save_model(new, tmp_path / "model")
    assert_loads_as(tmp_path / "model", new)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_may_have_the_name_of_the_bundled_encoder(
    make_multitask_model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    save_model(make_multitask_model(0), "minilm")
    assert_loads_as("minilm", make_multitask_model(0))


def test_a_tilde_is_the_home_folder(make_multitask_model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    save_model(make_multitask_model(0), "~/model")
    assert_loads_as("~/model", make_multitask_model(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


# ---- preserved and removed files ----


def test_files_of_the_user_are_kept_and_files_of_the_old_model_removed(
    make_multitask_model, tmp_path, monkeypatch
):
    folder = tmp_path / "model"
    save_model(make_multitask_model(0), folder)
    stale = [
        "pytorch_model.bin",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "vocab.txt",
        "added_tokens.json",
    ]
    for name in stale:
        (folder / name).write_text("{}")
    (folder / "last.safetensors").write_text("checkpoint")
    (folder / "logs" / "deep").mkdir(parents=True)
    (folder / "logs" / "deep" / "a.txt").write_text("log")
    (folder / "link").symlink_to("logs")
    monkeypatch.chdir(folder / "logs")  # a process may have the folder as working directory
    plain = make_multitask_model(1, pals=False)
    save_model(plain, "..")
    assert_loads_as(folder, plain)
    assert Path.cwd() == folder / "logs" and Path("deep/a.txt").read_text() == "log"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert found >= {"last.safetensors", "logs/deep/a.txt", "link"} and not found & {
        *stale,
        "pals.json",
        "pals.safetensors",
    }
    assert (folder / "link").is_symlink() and (
        folder / "last.safetensors"
    ).read_text() == "checkpoint"


def test_the_target_of_a_linked_folder_is_replaced(make_multitask_model, tmp_path):
    old, new = make_multitask_model(0), make_multitask_model(1)
    save_model(old, tmp_path / "disk" / "model")
    (tmp_path / "model").symlink_to(tmp_path / "disk" / "model")
    save_model(new, tmp_path / "model")
    assert (tmp_path / "model").is_symlink()
    assert_loads_as(tmp_path / "disk" / "model", new)


def test_saving_an_encoder_does_not_remove_the_heads(make_multitask_model, tmp_path):
    model = make_multitask_model(0)
    save_model(model, tmp_path / "model")
    with pytest.raises(
        ValueError,
        match="holds a model with heads .*Name another folder, or use save_model",
    ):
        save_pretrained(make_multitask_model(1).encoder, model.tokenizer, tmp_path / "model")
    assert_loads_as(tmp_path / "model", model)


def test_values_unknown_to_json_are_refused_before_writing(make_multitask_model, tmp_path):
    model = make_multitask_model(0)
    save_model(model, tmp_path / "model", metadata={"loss": float("nan")})
    metadata = {"accuracy": np.float32(1)}
    with pytest.raises(TypeError, match="float32 is not JSON serializable"):
        save_model(make_multitask_model(1), tmp_path / "model", metadata=metadata)
    assert_loads_as(tmp_path / "model", model)


SPOILS = {
    "encoder": lambda model: model.encoder.pooler.dense.bias,
    "head": lambda model: model.heads["quora"].weight,
    "pals": lambda model: next(model.encoder.pals.parameters()),
}


@pytest.mark.parametrize("part", [*SPOILS, "tokenizer"])
def test_a_model_that_nobody_could_open_does_not_replace_another(
    make_multitask_model, tmp_path, part
):
    old, new, encoder_folder = make_multitask_model(0), make_multitask_model(1), tmp_path / "bare"
    save_model(old, tmp_path / "model")
    save_pretrained(old.encoder, old.tokenizer, encoder_folder)
    if part == "tokenizer":
        new.tokenizer = None
    else:
        SPOILS[part](new).data.view(-1)[3] = torch.inf
    with pytest.raises(ValueError, match="could not be opened again"):
        save_model(new, tmp_path / "model")
    assert_loads_as(tmp_path / "model", old)
    if part in ("encoder", "tokenizer"):
        with pytest.raises(ValueError, match="could not be opened again"):
            save_pretrained(new.encoder, new.tokenizer, encoder_folder)
    if part in ("encoder", "head"):
        new.encoder.pals = None
        with pytest.raises(ValueError, match="could not be opened again"):
            mmlkit.export_classifier(new, "quora", encoder_folder)
    found = load_pretrained(encoder_folder)[0].state_dict()
    assert all(torch.equal(value, old.encoder.state_dict()[key]) for key, value in found.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "model"]


def test_another_error_while_writing_changes_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text("old")
    with pytest.raises(KeyError):
        with replace_folder(tmp_path / "a") as new:
            (new / "config.json").write_text("new")
            raise KeyError("x")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "config.json"] and (
        tmp_path / "a" / "config.json"
    ).read_text() == "old"


# ---- damaged folders ----


def change_head(**changes):
    """Return a function that changes the config of the sst head; "REMOVE" deletes a key."""

    def change(folder):
        described = json.loads((folder / "mmlkit.json").read_text())
        head = described["heads"]["sst"] | changes
        described["heads"]["sst"] = {key: value for key, value in head.items() if value != "REMOVE"}
        (folder / "mmlkit.json").write_text(json.dumps(described))

    return change


def change_task(**changes):
    """Return a function that adds the sst task to mmlkit.json, with changes."""
    task = get_task("sst").to_config() | changes
    return change_metadata(tasks={"sst": {k: v for k, v in task.items() if v != "REMOVE"}})


def change_metadata(**changes):
    def change(folder):
        values = json.loads((folder / "mmlkit.json").read_text()) | changes
        (folder / "mmlkit.json").write_text(
            json.dumps({key: value for key, value in values.items() if value != "REMOVE"})
        )

    return change


def change_config(**changes):
    def change(folder):
        (folder / "config.json").write_text(
            json.dumps(json.loads((folder / "config.json").read_text()) | changes)
        )

    return change


def write_content(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def truncate(name, left):
    return lambda folder: os.truncate(folder / name, left)


def change_tensors(name, change):
    def write(folder):
        save_file(
            change({key: value.clone() for key, value in load_file(folder / name).items()}),
            folder / name,
        )

    return write


HEADS, METADATA = "heads.safetensors", "mmlkit.json"
DAMAGES = {  # name: (function of a folder, the file that the message names, a part of the message)
    "mmlkit.json is empty": (write_content(METADATA, b""), METADATA, "JSON"),
    "mmlkit.json is cut": (truncate(METADATA, 40), METADATA, "JSON"),
    "mmlkit.json is a list": (write_content(METADATA, b"[]"), METADATA, "list"),
    "no heads": (change_metadata(heads="REMOVE"), METADATA, "heads"),
    "a head is a text": (change_metadata(heads={"sst": "LinearHead"}), METADATA, ""),
    "pals is missing": (change_metadata(pals="REMOVE"), METADATA, "pals"),
    "pals of a model without": (change_metadata(pals=True), "pals.json", ""),
    "a head without a task": (change_metadata(heads={}), METADATA, "is not expected"),
    "an unknown type": (change_head(type="cubic"), METADATA, "head type 'cubic' is not one of"),
    "another type": (change_head(type="SANHead"), METADATA, "unexpected keyword argument"),
    "no size": (change_head(hidden_size="REMOVE"), METADATA, "hidden_size"),
    "num_labels is huge": (change_head(num_labels=10**30), METADATA, ""),
    "fewer labels than weights": (change_head(num_labels=3), METADATA, "in the file, [3, 32] by"),
    "pooling is unknown": (change_head(pooling="max"), METADATA, "'max'"),
    "tasks is a list": (change_metadata(tasks=["sst"]), METADATA, ""),
    "a task without labels": (change_task(labels="REMOVE"), METADATA, "labels"),
    "two labels for five outputs": (change_task(labels=["a", "b"]), METADATA, "has 5 outputs"),
    "a task of another name": (change_task(name="rte"), METADATA, "no head for task 'rte'"),
    "heads.safetensors is empty": (write_content(HEADS, b""), HEADS, ""),
    "heads.safetensors is cut": (truncate(HEADS, 300), HEADS, ""),
    "heads.safetensors has a giant header": (write_content(HEADS, b"\xff" * 16), HEADS, ""),
    "a head's weight is missing": (
        change_tensors(HEADS, lambda t: {k: v for k, v in t.items() if k != "sst.dense.bias"}),
        HEADS,
        "sst.dense.bias",
    ),
    "a head of which a weight is not finite": (
        change_tensors(HEADS, lambda t: t | {"sst.dense.bias": torch.full((5,), torch.nan)}),
        HEADS,
        "sst.dense.bias: some numbers are not finite",
    ),
    "an unknown weight": (
        change_tensors(HEADS, lambda t: t | {"rte.dense.bias": torch.ones(2)}),
        HEADS,
        "rte.dense.bias",
    ),
    "the encoder of another model": (change_config(hidden_size=64), "config.json", ""),
    "layers that the file does not hold": (change_config(num_hidden_layers=9), "", "is missing"),
    "model.safetensors is cut": (truncate("model.safetensors", 999), "model.safetensors", ""),
    "tokenizer.json is cut": (truncate("tokenizer.json", 200), "", "tokenizer"),
}


@pytest.fixture(scope="module")
def intact_folder(tmp_path_factory):
    """Return an intact model folder to copy; its tokenizer is loaded once."""
    from tiny import write_vocabulary
    from transformers import BertTokenizerFast

    folder = tmp_path_factory.mktemp("sound")
    with seeded(0):
        heads = {"sst": LinearHead(32, 5), "quora": MultiverseHead(32, 2, num_heads=4)}
        model = MultitaskModel(
            BertModel(BertConfig.tiny()),
            heads,
            BertTokenizerFast(write_vocabulary(folder / "vocab.txt")),
        )
    save_model(model, folder / "model")
    assert_loads_as(folder / "model", model)
    return folder / "model"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_named(intact_folder, tmp_path, name):
    damage, file, message = DAMAGES[name]
    folder = Path(shutil.copytree(intact_folder, tmp_path / "model"))
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_model(folder)
    told = str(caught.value)
    assert str(folder) in told and file in told and message in told and len(told) < 1200, told


def test_damaged_pals_are_refused(make_multitask_model, tmp_path):
    save_model(make_multitask_model(0), tmp_path)
    for change, message in (
        (lambda t: {key: tensor * torch.nan for key, tensor in t.items()}, "are not finite"),
        (lambda t: dict(list(t.items())[1:]), "is missing"),
    ):
        change_tensors("pals.safetensors", change)(tmp_path)
        with pytest.raises(ValueError, match=f"pals.safetensors does not fit .*{message}"):
            load_model(tmp_path)


@pytest.mark.slow
def test_a_compiled_encoder_or_head_is_saved_as_what_it_is(make_multitask_model, tmp_path):
    model = make_multitask_model(0, pals=False)
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    model.encoder = torch.compile(model.encoder)
    model.heads["sst"] = torch.compile(model.heads["sst"])
    before = torch.get_rng_state()
    save_model(model, tmp_path / "m")
    assert torch.equal(before, torch.get_rng_state())
    found = load_model(tmp_path / "m", device="cpu").state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
