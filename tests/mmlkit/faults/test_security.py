"""Untrusted folders and files: none of their code runs, and no file outside the folder is read
or written.
"""

import ast
import io
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import mmlkit
from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.results import load_results
from mmlcourse.batch.runs import changes, read_result
from mmlcourse.cli.main import main
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.heads.linear import LinearHead
from mmlkit.hub import load_hub_dataset
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import save_model

PACKAGE = Path(mmlkit.__file__).resolve().parent
CODE = "import pathlib\npathlib.Path({!r}).write_text('ran')\nclass Evil:\n    pass\n"


def change_json(path, **changes):
    values = {
        key: value
        for key, value in (json.loads(path.read_text()) | changes).items()
        if value is not None
    }
    path.write_text(json.dumps(values))


def add_code(folder, marker):
    """Add code to a folder and refer to it from all entries that transformers might use."""
    for name in ("evil", "evil_config", "tokenization_evil"):
        (folder / f"{name}.py").write_text(CODE.format(str(marker)))
    calls = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    change_json(
        folder / "config.json",
        model_type=None,
        auto_map={**calls, "AutoTokenizer": ["evil.Evil", "evil.Evil"]},
    )
    return {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}


# ---- code in model and data folders ----


@pytest.mark.parametrize("where", ["config", "tokenizer", "class"])
def test_no_code_of_a_model_folder_runs_for_any_input(
    tokenizer, tmp_path, where, monkeypatch, capsys
):
    """In an earlier version, `echo y | mmlkit predict` ran the code of the folder."""
    folder, marker = tmp_path / "model", tmp_path / "marker"
    save_model(
        MultitaskModel(BertModel(BertConfig.tiny()), {"sst": LinearHead(32, 5)}, tokenizer), folder
    )
    places = add_code(folder, marker)
    if where == "config":
        (folder / "tokenizer_config.json").unlink()
    else:
        change_json(
            folder / "tokenizer_config.json",
            auto_map=places,
            tokenizer_class="Evil" if where == "class" else None,
        )
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    status = main(["predict", "--model", str(folder), "a good film"])
    said = capsys.readouterr()
    assert not marker.exists()
    assert "Traceback" not in said.err
    if where == "config":  # a tokenizer.json needs no class, so the rest of the folder loads
        assert status == 0 and said.out.count("\n") == 2
    else:
        assert status == 2 and "the tokenizer cannot be used" in said.err


def test_no_code_of_a_foreign_encoder_runs(model_folder, tmp_path, monkeypatch):
    from mmlkit.huggingface import MultiverseForSequenceClassification

    marker = tmp_path / "marker"
    add_code(model_folder, marker)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ValueError, match="custom code"):
        MultiverseForSequenceClassification.on(str(model_folder), num_labels=2)
    assert not marker.exists()


def test_no_loading_script_of_a_data_folder_runs(tmp_path, monkeypatch):
    """The folder has the same name as the data set on the hub."""
    folder, marker = tmp_path / "nyu-mll" / "glue", tmp_path / "marker"
    folder.mkdir(parents=True)
    (folder / "glue.py").write_text(CODE.format(str(marker)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(OSError, match="nyu-mll/glue"):
        load_hub_dataset("nyu-mll/glue")
    assert not marker.exists()


def calls_that_allow_code(source):
    """Return the lines of from_pretrained and from_config calls that allow code."""
    for node in ast.walk(source):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        makes = name.startswith("Auto") and name.endswith((".from_pretrained", ".from_config"))
        if makes and "trust_remote_code=False" not in map(ast.unparse, node.keywords):
            yield node.lineno


def test_calls_that_allow_code_are_found():
    text = (
        "AutoModel.from_pretrained(x)\nAutoModel.from_pretrained(x, trust_remote_code=False)\n"
        "AutoTokenizer.from_pretrained(x, trust_remote_code=True)\nAutoModel.from_config(x)\n"
        "BertModel.from_pretrained(x)"
    )
    assert list(calls_that_allow_code(ast.parse(text))) == [1, 3, 4]


def test_every_call_refuses_code():
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.glob("**/*.py"))}
    assert sum(text.count("trust_remote_code") for text in texts.values()) >= 3
    found = [
        f"{path.name} line {line}"
        for path, text in texts.items()
        for line in calls_that_allow_code(ast.parse(text))
    ]
    assert not found, found


# ---- files outside the folder ----


def test_links_as_in_the_hubs_cache_load(model_folder, tmp_path):
    """The weight file is a link, snapshots/COMMIT/model.safetensors -> ../../blobs/HASH."""
    tensors = load_file(model_folder / "model.safetensors")
    (model_folder / "model.safetensors").rename(tmp_path / "hash")
    (model_folder / "model.safetensors").symlink_to(tmp_path / "hash")
    encoder, _ = load_pretrained(model_folder)
    assert all(torch.equal(value, tensors[key]) for key, value in encoder.state_dict().items())


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname", ["x"]])
def test_files_named_in_a_result_are_not_opened(tmp_path, monkeypatch, name):
    """Old results have a list of sources; only the result and the notebook may be opened."""
    content = {
        "experiment": "mml-tables",
        "profile": "fast",
        "name": "bert-rte-0",
        "notebook": name,
    }
    content |= {"parameters": {"task": name}, "scores": [], "sources": {str(name): "0"}}
    path = tmp_path / "one.json"
    path.write_text(json.dumps(content))
    experiment, opened = load_experiment("mml-tables"), []
    read = Path.open
    monkeypatch.setattr(
        Path, "open", lambda one, *more, **kind: opened.append(one) or read(one, *more, **kind)
    )
    assert "task" in changes(read_result(path), experiment, "bert-rte-0")
    assert load_results([tmp_path])
    assert set(opened) <= {path, experiment.notebook}
