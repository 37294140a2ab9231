"""A model that was written to a folder and read again predicts the same."""

import json

import numpy as np
import pytest
import torch
import transformers

from mmlkit.evaluation import predict
from mmlkit.multitask import MultitaskModel, load_model, save_model


@pytest.mark.parametrize("reads", ["pooler", "cls", "mean"])
def test_a_saved_model_predicts_the_same(make_model, make_toy, tmp_path, reads):
    model = make_model("sst", "quora", "sts", reads=reads, dropout=0.2).train()
    save_model(model, tmp_path / "a", about={"seed": 3})
    again = load_model(tmp_path / "a")
    assert not again.training and list(again.heads) == ["sst", "quora", "sts"]
    assert again.encoder.config == model.encoder.config
    for task in model.heads:
        assert again.heads[task].spec() == model.heads[task].spec()
        split = make_toy(task).dev
        scores = predict(model, split)
        np.testing.assert_array_equal(predict(again, split), scores)
        assert scores.std() > 1e-3
    assert json.loads((tmp_path / "a" / "mmlkit.json").read_text())["about"] == {"seed": 3}


def test_a_model_may_be_saved_again_over_itself(make_model, make_toy, tmp_path):
    model = make_model("sst")
    save_model(make_model("sst", "sts", seed=4), tmp_path)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    np.testing.assert_array_equal(predict(again, make_toy("sst").dev), predict(model, make_toy("sst").dev))
    assert list(again.heads) == ["sst"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json", "heads.safetensors", "mmlkit.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def test_the_encoder_alone_opens_with_transformers(make_model, tmp_path):
    model = make_model("sst").eval()
    save_model(model, tmp_path)
    ids = torch.tensor([[2, 7, 9, 3]])
    with torch.no_grad():
        theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()(ids).pooler_output
        torch.testing.assert_close(model.encoder(ids).pooler_output, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("missing, message", [
    ("mmlkit.json", "holds no trained model: mmlkit.json is missing. Expected a folder written by save_model"),
    ("config.json", "is not a model: it has no config.json"),
    ("model.safetensors", "has a config.json but no weights"),
    ("tokenizer.json", "has no tokenizer: expected tokenizer.json or vocab.txt"),
    ("heads.safetensors", "heads.safetensors")])
def test_a_missing_file_is_named(make_model, tmp_path, missing, message):
    save_model(make_model("sst"), tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        load_model(tmp_path)


def test_a_head_of_unknown_type_is_refused(make_model, tmp_path):
    save_model(make_model("sst"), tmp_path)
    path = tmp_path / "mmlkit.json"
    path.write_text(path.read_text().replace('"linear"', '"cubic"'))
    with pytest.raises(ValueError, match=r"mmlkit.json: head type 'cubic' of task 'sst' is not one of \['linear'"):
        load_model(tmp_path)


def test_a_model_needs_a_head_and_a_tokenizer(make_model, make_toy):
    model = make_model("sst")
    with pytest.raises(ValueError, match="heads is empty"):
        MultitaskModel(model.encoder, {})
    bare = MultitaskModel(model.encoder, {"sst": model.heads["sst"]})
    with pytest.raises(ValueError, match="No tokenizer is known for this encoder"):
        predict(bare, make_toy("sst").dev)
    with pytest.raises(ValueError, match=r"This model has no head for task 'sts'; it has \['sst'\]"):
        predict(model, make_toy("sts").dev)
