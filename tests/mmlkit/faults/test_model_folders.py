"""Saving a model is atomic, and every damaged folder gives a clear error."""

import errno
import json
import multiprocessing
import os
import re
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
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

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


def full_disk(monkeypatch, step):
    """Let `step` writes succeed and then simulate a full disk, with the errors of each library."""
    done = [0]

    def guard(write, error):
        def guarded(*arguments, **options):
            done[0] += 1
            if done[0] > step:
                if isinstance(error, SafetensorError):  # a partial file remains
                    arguments[1].write_bytes(b"half")
                raise error
            return write(*arguments, **options)

        return guarded

    no_space = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(
        safetensors.torch,
        "save_file",
        guard(
            safetensors.torch.save_file,
            SafetensorError("I/O error: No space left on device (os error 28)"),
        ),
    )
    from transformers import PreTrainedTokenizerBase

    for owner, name in (
        (Path, "write_text"),
        (Path, "mkdir"),
        (PreTrainedTokenizerBase, "save_pretrained"),
        (os, "rename"),
        (os, "link"),
    ):
        monkeypatch.setattr(owner, name, guard(getattr(owner, name), no_space))
    return done


def count_steps(make_multitask_model, folder, monkeypatch):
    with monkeypatch.context() as patched:
        done = full_disk(patched, 10**9)
        save_model(make_multitask_model(1), folder)
    return done[0]


def test_a_full_disk_leaves_the_old_model_at_every_step(
    make_multitask_model, tmp_path, monkeypatch
):
    folder, old, new = tmp_path / "model", make_multitask_model(0), make_multitask_model(1)
    save_model(old, folder)
    (folder / "notes.txt").write_text("mine")
    steps = count_steps(make_multitask_model, tmp_path / "model", monkeypatch)
    # Writes: folder, encoder, tokenizer, config, heads, two files of PALs, mmlkit.json, notes.txt;
    # then two renames.
    assert steps >= 9
    save_model(old, folder)
    for step in range(steps):
        with monkeypatch.context() as patched:
            full_disk(patched, step)
            with pytest.raises(
                OSError,
                match=rf"{re.escape(str(folder))} could not be written \(.*No space left on device"
                r".*A model that was there before is unchanged. Free some space, or save",
            ):
                save_model(new, folder)
            patched.undo()
        if folder.is_dir():
            assert_loads_as(folder, old)
        else:  # the move back failed too: the old folder has another name and is found
            with pytest.warns(
                UserWarning,
                match="is missing: a save was killed in its last step. The model before it is",
            ):
                assert equal_models(folder, old, new) == [True, False]
        save_model(old, folder)
        assert (folder / "notes.txt").read_text() == "mine"
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
    save_model(new, folder)
    assert_loads_as(folder, new)


def test_a_full_disk_leaves_the_old_encoder(make_multitask_model, tmp_path, monkeypatch):
    folder, old, new = (
        tmp_path / "encoder",
        make_multitask_model(0, pals=False),
        make_multitask_model(1, pals=False),
    )
    save_pretrained(old.encoder, old.tokenizer, folder)
    for step in range(1, 5):
        with monkeypatch.context() as patched:
            full_disk(patched, step)
            with pytest.raises(OSError, match="could not be written"):
                save_pretrained(new.encoder, new.tokenizer, folder)
            patched.undo()
        state = load_pretrained(folder)[0].state_dict()
        assert all(
            torch.equal(state[key], value) for key, value in old.encoder.state_dict().items()
        )
        assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_a_first_save_that_fails_leaves_no_model(make_multitask_model, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with monkeypatch.context() as patched:
        full_disk(patched, 3)
        with pytest.raises(OSError, match="could not be written"):
            save_model(make_multitask_model(0), tmp_path / "model")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "notes.txt"]
    with pytest.raises(FileNotFoundError, match="holds no trained model: mmlkit.json is missing"):
        load_model(tmp_path / "model")


# ---- a killed save ----


def save_forever(folder, *models):
    while True:
        for model in models:
            save_model(model, folder)


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that uses torch")
def test_a_killed_save_leaves_the_old_or_the_new_model(make_multitask_model, tmp_path):
    a, b, folder = make_multitask_model(0), make_multitask_model(1), tmp_path / "runs" / "model"
    save_model(a, folder)
    (folder / "notes.txt").write_text("mine")
    found = []
    for i in range(12):
        saver = multiprocessing.get_context("fork").Process(
            target=save_forever, args=(folder, b, a)
        )
        saver.start()
        time.sleep(0.1 + 0.037 * i)
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
        match="model is missing: a save was killed in its last step.*Rename that folder, or",
    ):
        assert equal_models(tmp_path / "model", old, new) == [True, False]
    with pytest.warns(UserWarning, match="is missing: a save was killed"):
        load_pretrained(tmp_path / "model")
    (tmp_path / ".model.99.new").mkdir()
    os.utime(tmp_path / ".model.99.new", (0, 0))  # remains of a save that was killed long ago
    (tmp_path / ".model.98.new").mkdir()  # possibly an active save
    save_model(new, tmp_path / "model")
    assert_loads_as(tmp_path / "model", new)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.98.new", "model"]


def test_the_folder_of_another_process_with_the_same_id_is_left_alone(
    make_multitask_model, tmp_path, monkeypatch
):
    """In containers process ids repeat, so that it may belong to a save that goes on."""
    make, made = Path.mkdir, []

    def noted(path, *args, **options):
        made.append(path.name)
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", noted)
    left = tmp_path / f".model.{os.getpid()}.new"
    left.mkdir()
    made.clear()
    for _ in range(2):
        save_model(make_multitask_model(0), tmp_path / "model")
    assert left.is_dir()
    new = [name for name in made if name.startswith(f".model.{os.getpid()}.")]
    assert len(set(new)) == 2


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


@pytest.mark.parametrize(
    "value",
    [np.float32(1), np.int64(3), torch.ones(1), np.zeros(2), {1, 2}, {("a", "b"): 1}],
    ids=repr,
)
def test_values_unknown_to_json_are_refused_before_writing(make_multitask_model, tmp_path, value):
    model = make_multitask_model(0)
    save_model(model, tmp_path / "model", metadata={"loss": float("nan")})
    with pytest.raises(
        TypeError,
        match="cannot be written as JSON .*write x.item\\(\\) for a number of numpy or torch",
    ):
        save_model(make_multitask_model(1), tmp_path / "model", metadata={"accuracy": value})
    assert_loads_as(tmp_path / "model", model)
    with pytest.raises(TypeError):
        save_model(model, tmp_path / "other", metadata={"accuracy": value})
    assert not (tmp_path / "other").exists()


def test_another_error_while_writing_changes_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text("old")
    with pytest.raises(KeyError):
        with replace_folder(tmp_path / "a", lambda name: True) as new:
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


def change_tensor(key, function):
    return lambda tensors: tensors | {key: function(tensors[key])}


def change_tokenizer(change):
    """Return a function that changes tokenizer.json."""

    def write(folder):
        values = json.loads((folder / "tokenizer.json").read_text())
        change(values)
        (folder / "tokenizer.json").write_text(json.dumps(values))

    return write


HEADS, MODEL, METADATA, CONFIG = (
    "heads.safetensors",
    "model.safetensors",
    "mmlkit.json",
    "config.json",
)
NAN = float("nan")
DAMAGES = {
    "mmlkit.json is empty": (write_content(METADATA, b""), "mmlkit.json is not valid JSON"),
    "mmlkit.json is no UTF-8": (
        write_content(METADATA, b"\xff\xfe{}"),
        "mmlkit.json is not valid JSON",
    ),
    "mmlkit.json is cut": (truncate(METADATA, 40), "mmlkit.json is not valid JSON"),
    "mmlkit.json is a list": (
        write_content(METADATA, b"[]"),
        "mmlkit.json holds a list, expected an object",
    ),
    "mmlkit.json is nested 200,000 deep": (
        write_content(METADATA, b"[" * 200_000),
        "mmlkit.json is not valid JSON",
    ),
    "mmlkit.json has a number of 5,000 digits": (
        write_content(METADATA, b'{"a": ' + b"9" * 5000 + b"}"),
        "mmlkit.json is not valid JSON",
    ),
    "no heads": (change_metadata(heads="REMOVE"), "mmlkit.json: heads is None"),
    "heads is empty": (change_metadata(heads={}), "mmlkit.json: heads is {}"),
    "heads is a list": (
        change_metadata(heads=["sst"]),
        "mmlkit.json: heads is .'sst'.*expected an object with one head per task",
    ),
    "a head is a text": (
        change_metadata(heads={"sst": "LinearHead"}),
        "head type 'linear' of task|head type .* of task 'sst' is not one of|hidden_size None",
    ),
    "a head is a list": (
        change_metadata(heads={"sst": []}),
        "head type '..' of task 'sst' is not one of",
    ),
    "pals is a number": (
        change_metadata(pals=1),
        "pals is 1; expected an object with one head per task, and true or false",
    ),
    "pals is a text": (change_metadata(pals="no"), "pals is no; expected"),
    "pals of a model without": (change_metadata(pals=True), "pals.json does not exist"),
    "a task with a dot": (
        change_metadata(heads={"a.b": {"type": "LinearHead", "hidden_size": 32, "num_labels": 5}}),
        "asks for 160 weights|no module can have",
    ),
    "a task called keys": (
        lambda folder: (
            change_metadata(
                heads={"keys": {"type": "LinearHead", "hidden_size": 32, "num_labels": 1}}
            )(folder),
            change_tensors(
                HEADS,
                lambda t: {
                    "keys.dense.weight": torch.ones(1, 32),
                    "keys.dense.bias": torch.ones(1),
                },
            )(folder),
        ),
        "a task has a name that no module can have",
    ),
    "tasks is a list": (change_metadata(tasks=["sst"]), "mmlkit.json: tasks is .'sst'., expected"),
    "a task without columns": (
        change_task(text_columns="REMOVE"),
        "mmlkit.json: a task is .*, expected an object with .'name', 'text_columns', 'labels'",
    ),
    "a task without labels": (change_task(labels="REMOVE"), "labels is .., expected two or more"),
    "many labels": (
        change_task(labels=[str(number) for number in range(10**4)]),
        r"mmlkit.json: Task .sst. needs 10000 outputs \(0, 1, .{,200}\), its head has 5. .{,250}$",
    ),
    "a task with more keys": (change_task(hub="a/b"), "a task is .*, expected an object with"),
    "the labels are a text": (
        change_task(labels="negative"),
        "labels of a task is negative, expected a list of texts",
    ),
    "a label is a number": (change_task(labels=[1, 2, 3, 4, 5]), "expected a list of texts"),
    "two labels for five outputs": (
        change_task(labels=["a", "b"]),
        "Task 'sst' needs 2 outputs .a, b., its head has 5",
    ),
    "a task of another name": (change_task(name="rte"), r"tasks\['sst'\] is the task 'rte'"),
    "a task of a head that is not there": (
        change_metadata(tasks={"rte": get_task("rte").to_config()}),
        "This model has no head for task 'rte'",
    ),
    "a kind that does not exist": (change_task(kind="dream"), "kind is 'dream', expected one of"),
    "a range that is a text": (change_task(score_range="05"), "score_range is '05', expected two"),
    "an unknown type": (change_head(type="cubic"), "head type 'cubic' of task 'sst' is not one of"),
    "a type that is a list": (
        change_head(type=["LinearHead"]),
        "head type .* of task 'sst' is not one of",
    ),
    "no type": (change_head(type="REMOVE"), "head type 'None' of task 'sst' is not one of"),
    "another type": (
        change_head(type="SANHead"),
        "cannot be built from .*unexpected keyword argument",
    ),
    "an unknown keyword": (
        change_head(width=3),
        "cannot be built from .*unexpected keyword argument 'width'",
    ),
    "no size": (
        change_head(hidden_size="REMOVE"),
        "has hidden_size None, but the encoder of config.json has 32",
    ),
    "another hidden_size": (
        change_head(hidden_size=64),
        "has hidden_size 64, but the encoder of config.json has 32",
    ),
    "hidden_size is a text": (
        change_head(hidden_size="32"),
        "has hidden_size '32', but the encoder",
    ),
    "num_labels is negative": (
        change_head(num_labels=-5),
        "cannot be built from .*of at least 1",
    ),
    "num_labels is zero": (change_head(num_labels=0), "cannot be built from .*of at least 1"),
    "num_labels is huge": (
        change_head(num_labels=10**8),
        "asks for 3,200,000,000 weights or more, but heads.safetensors holds 165",
    ),
    "num_labels is beyond every machine": (
        change_head(num_labels=10**30),
        "has num_labels '10{30}', expected a finite number or a word",
    ),
    "num_labels is a text": (change_head(num_labels="5"), "cannot be built from"),
    "num_labels is a list": (
        change_head(num_labels=[5]),
        "has num_labels .*expected a finite number or a word",
    ),
    "num_labels is true": (
        change_head(num_labels=True),
        "has num_labels 'True', expected a finite number or a word",
    ),
    "num_labels is a fraction": (change_head(num_labels=5.5), "cannot be built from"),
    "fewer labels than weights": (
        change_head(num_labels=3),
        r"heads.safetensors does not fit mmlkit.json: "
        r"sst.dense.weight: \[5, 32\] in the file, \[3, 32\] by",
    ),
    "dropout is two": (
        change_head(dropout=2.0),
        "cannot be built from .*dropout is 2.0, expected a number from 0 to 1",
    ),
    "dropout is no number": (
        change_head(dropout=NAN),
        "has dropout 'nan', expected a finite number",
    ),
    "dropout is infinite": (
        change_head(dropout=float("inf")),
        "has dropout 'inf', expected a finite number",
    ),
    "dropout is a text": (change_head(dropout="0.1"), "cannot be built from"),
    "pooling is unknown": (
        change_head(pooling="max"),
        "cannot be built from .*pooling 'max' is not one of",
    ),
    "activation is unknown": (
        change_head(activation="tanh"),
        "cannot be built from .*activation 'tanh'",
    ),
    "heads.safetensors is empty": (
        write_content(HEADS, b""),
        "heads.safetensors cannot be read as safetensors",
    ),
    "heads.safetensors is cut": (
        truncate(HEADS, 300),
        "heads.safetensors cannot be read as safetensors",
    ),
    "heads.safetensors has a giant header": (
        write_content(HEADS, b"\xff" * 16),
        "heads.safetensors cannot be read as safetensors",
    ),
    "a head's weight is missing": (
        change_tensors(HEADS, lambda t: {k: v for k, v in t.items() if k != "sst.dense.bias"}),
        "sst.dense.bias is missing",
    ),
    "an unknown weight": (
        change_tensors(HEADS, lambda t: t | {"rte.dense.bias": torch.ones(2)}),
        "rte.dense.bias is not expected by mmlkit.json",
    ),
    "a weight of another shape": (
        change_tensors(HEADS, change_tensor("sst.dense.bias", lambda v: v[:4].clone())),
        r"sst.dense.bias: \[4\] in the file, \[5\] by",
    ),
    "a weight of whole numbers": (
        change_tensors(HEADS, change_tensor("sst.dense.bias", lambda v: v.long())),
        "sst.dense.bias: torch.int64 in the file, expected torch.float32",
    ),
    "a weight that is no number": (
        change_tensors(HEADS, change_tensor("sst.dense.bias", lambda v: v * NAN)),
        "sst.dense.bias: some numbers are not finite",
    ),
    "a mask of numbers": (
        change_tensors(HEADS, change_tensor("quora.active", lambda v: v.float())),
        "quora.active: torch.float32 in the file, expected torch.bool",
    ),
    "no active head": (
        change_tensors(HEADS, change_tensor("quora.active", torch.zeros_like)),
        "quora.active: no head is active",
    ),
    "an encoder that is no number": (
        change_tensors(MODEL, change_tensor("pooler.dense.bias", lambda v: v * NAN)),
        "pooler.dense.bias: some numbers are not finite",
    ),
    "an encoder that is infinite": (
        change_tensors(
            MODEL, change_tensor("embeddings.LayerNorm.bias", lambda v: v + float("inf"))
        ),
        "embeddings.LayerNorm.bias: some numbers",
    ),
    "an encoder of whole numbers": (
        change_tensors(MODEL, change_tensor("pooler.dense.bias", lambda v: v.int())),
        "pooler.dense.bias: torch.int32 in the file, expected",
    ),
    "config.json is nested 200,000 deep": (
        write_content(CONFIG, b'{"a":' * 200_000),
        "config.json is not valid JSON",
    ),
    "hidden_size of the encoder is a text": (
        change_config(hidden_size="32"),
        "config.json describes no encoder: "
        "hidden_size is '32', expected int, at least 1 and below 100,000,000",
    ),
    "hidden_size of the encoder is a list": (
        change_config(hidden_size=[32]),
        "config.json describes no encoder: hidden_size is .32., expected int",
    ),
    "hidden_size of the encoder is true": (
        change_config(hidden_size=True),
        "config.json describes no encoder: hidden_size is True, expected int",
    ),
    "a vocabulary beyond every machine": (
        change_config(vocab_size=10**18),
        "config.json describes no encoder: vocab_size is 1000000000000000000, expected int",
    ),
    "a vocabulary of millions": (
        change_config(vocab_size=10**7),
        r"word_embeddings.weight: \[199, 32\] in the file, \[10000000, 32\] by config.json",
    ),
    "a million layers": (
        change_config(num_hidden_layers=10**6),
        "config.json describes no encoder: "
        "num_hidden_layers is 1000000, expected int, at least 0 and below 101",
    ),
    "layers that the file does not hold": (
        change_config(num_hidden_layers=9),
        "weights do not fit: .* is missing",
    ),
    "a fraction of a layer": (
        change_config(num_hidden_layers=1.5),
        "config.json describes no encoder: num_hidden_layers is 1.5, expected int",
    ),
    "an epsilon that is no number": (
        change_config(layer_norm_eps=NAN),
        "config.json describes no encoder: layer_norm_eps is nan, expected float, at least 0",
    ),
    "a negative epsilon": (
        change_config(layer_norm_eps=-1.0),
        "config.json describes no encoder: layer_norm_eps is -1.0, expected float, at least 0",
    ),
    "padding outside the vocabulary": (
        change_config(pad_token_id=500),
        "config.json describes no encoder: "
        "pad_token_id is 500, expected int, at least 0 and below 199",
    ),
    "an activation that is a number": (
        change_config(hidden_act=3),
        "config.json describes no encoder: hidden_act 3 is not supported; expected 'gelu'",
    ),
    "the encoder of another model": (
        change_config(hidden_size=64),
        r"in the file, .* by config.json",
    ),
    "tokenizer.json is empty": (
        write_content("tokenizer.json", b""),
        "the tokenizer cannot be used",
    ),
    "tokenizer.json is cut": (truncate("tokenizer.json", 200), "the tokenizer cannot be used"),
    "tokenizer.json is a list": (
        write_content("tokenizer.json", b"[]"),
        "the tokenizer cannot be used",
    ),
    "tokenizer_config.json is no JSON": (
        write_content("tokenizer_config.json", b"{"),
        "the tokenizer cannot be used",
    ),
    "a tokenizer without words": (
        change_tokenizer(lambda values: values["model"].update(vocab={})),
        "the tokenizer cannot be used|the tokenizer has",
    ),
    "a word with a number beyond the table": (
        change_tokenizer(lambda values: values["model"]["vocab"].update(cat=5000)),
        "the tokenizer has 5001 entries, the word table 199",
    ),
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


def test_there_are_enough_damages():
    assert len(DAMAGES) >= 65


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_gives_a_clear_error(intact_folder, tmp_path, name):
    damage, message = DAMAGES[name]
    folder = Path(shutil.copytree(intact_folder, tmp_path / "model"))
    damage(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        load_model(folder)
    told = str(caught.value)
    assert str(folder) in told and len(told) < 1200, told
    assert re.search(
        r"Copy|Expected|expected|put matching files|describes no encoder|Save", told
    ), told


def test_pals_of_other_tasks_and_damaged_pals_are_refused(make_multitask_model, tmp_path):
    save_model(make_multitask_model(0), tmp_path)
    pals_config = json.loads((tmp_path / "pals.json").read_text())
    change_tensors("pals.safetensors", change_tensor("sst.down.bias", lambda v: v * NAN))(tmp_path)
    with pytest.raises(
        ValueError,
        match="pals.json and pals.safetensors do not fit each other: "
        ".*sst.down.bias: some numbers are not finite.*Copy",
    ):
        load_model(tmp_path)
    change_tensors(
        "pals.safetensors",
        lambda t: {key: torch.zeros_like(v) for key, v in t.items() if not key.startswith("sts")},
    )(tmp_path)
    (tmp_path / "pals.json").write_text(json.dumps(pals_config | {"tasks": ["sst", "quora"]}))
    with pytest.raises(
        ValueError,
        match="has parts for .'sst', 'quora'., but mmlkit.json has a head for .'sts'. too. Copy",
    ):
        load_model(tmp_path)


CHANGES = {
    "a layer less": lambda m: setattr(m.encoder.encoder, "layer", m.encoder.encoder.layer[:1]),
    "a grown tokenizer": lambda m: m.tokenizer.add_tokens([f"new{i}" for i in range(200)]),
    "a diverged encoder": lambda m: m.encoder.pooler.dense.bias.data.fill_(float("nan")),
    "another head": lambda m: setattr(m.heads["sst"], "dense", torch.nn.Linear(32, 3)),
    "a buffer of one's own": lambda m: m.heads["sst"].register_buffer("mine", torch.ones(1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_could_not_be_opened_does_not_replace_a_good_one(
    make_multitask_model, tmp_path, change
):
    good = make_multitask_model(0, pals=False)
    save_model(good, tmp_path / "m")
    other = make_multitask_model(1, pals=False)
    CHANGES[change](other)
    with pytest.raises(ValueError, match=r"could not be opened again: .* Nothing was written\."):
        save_model(other, tmp_path / "m")
    assert torch.equal(
        load_model(tmp_path / "m").heads["sts"].linear.dense.weight,
        good.heads["sts"].linear.dense.weight,
    )


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
