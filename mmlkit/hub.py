"""Access to the Hugging Face hub: its own clients, which keep what they load in HF_HOME.

Without a network they take what is there; HF_HUB_OFFLINE=1 spares the waiting. No code of a
repository runs.
"""

import contextlib
from pathlib import Path

__all__ = ["download_model", "load_hub_dataset"]


def download_model(repo_id):
    """Return the local folder with a model of the hub: configuration, weights and tokenizer.

    Args:
        repo_id: "bert-base-uncased" or "organisation/name".

    Returns:
        The folder's name.

    Raises:
        OSError: the model cannot be loaded.
    """
    from huggingface_hub import snapshot_download

    files = ["config.json", "*.safetensors*", "vocab.txt", "tokenizer*"]
    files += ["special_tokens_map.json", "added_tokens.json"]
    with _solutions(f"Model {repo_id!r}"):
        folder = snapshot_download(repo_id, allow_patterns=files)
        if not any(Path(folder).glob("*.safetensors")):
            folder = snapshot_download(repo_id, allow_patterns=[*files, "pytorch_model.bin"])
        return folder


def load_hub_dataset(repo_id, config=None):
    """Return a parquet-backed data set of the hub.

    Args:
        repo_id: "organisation/name".
        config: the name of a configuration.

    Returns:
        A datasets.DatasetDict.

    Raises:
        ImportError: the package datasets is missing.
        OSError: the data cannot be loaded.
    """
    import datasets

    with _solutions(f"Data set {repo_id!r}, configuration {config!r},"):
        return datasets.load_dataset(repo_id, config)


@contextlib.contextmanager
def _solutions(name):
    try:
        yield
    except Exception as error:
        raise OSError(
            f"{name} could not be loaded: {error or type(error).__name__}\nSolutions: name a "
            "folder that holds it; use load_pretrained('minilm') and load_task(..., source='mini'),"
            " which need no network; or go online, or set HF_HOME to a cache that holds it."
        ) from error
