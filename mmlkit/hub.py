"""The one door to the Hugging Face hub: a short probe first, then the hub's own client, then an error that says what to do.

Without a network the clients retry for 23 to 93 seconds; the probe answers in two. Nothing ever falls back silently.
"""

import contextlib
import os
import socket
import threading
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment

__all__ = ["download_model", "load_hub_dataset", "reachable"]

WAYS_OUT = ("Three ways out: (1) name a folder that holds it; (2) use what needs no network: load_pretrained('minilm') "
            "and load_task(..., source='mini'); (3) go online, or set HF_HOME to a cache that holds it.")


def reachable(endpoint=None, seconds=2.0):
    """Whether the hub answers a TCP connection now. A network may come and go, so the answer is never kept.

    endpoint: an address, by default HF_ENDPOINT or the public hub.
    """
    address = urlsplit(endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = address.port or (443 if address.scheme == "https" else 80)
    proxy = os.environ.get(f"{address.scheme}_proxy") or os.environ.get(f"{address.scheme.upper()}_PROXY")
    if proxy and not proxy_bypass_environment(address.hostname or ""):      # behind a proxy the host itself need not resolve
        address = urlsplit(proxy)
        port = address.port or 80
    answered = []

    def probe():
        with contextlib.suppress(OSError):
            socket.create_connection((address.hostname, port), timeout=seconds).close()
            answered.append(True)

    thread = threading.Thread(target=probe, daemon=True)        # looking up a name heeds no time limit of a socket
    thread.start()
    thread.join(seconds)
    return bool(answered)


def _online():
    """Whether the client may try the network: the user did not forbid it, and somebody answers."""
    import huggingface_hub.constants

    return not huggingface_hub.constants.HF_HUB_OFFLINE and reachable()


def download_model(repo_id):
    """The local folder that holds the files of a model on the hub: config, weights, tokenizer.

    repo_id: "bert-base-uncased" or "organisation/name". Raises OSError with three ways out when it cannot be had.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    online = _online()
    files = ["config.json", "*.safetensors", "*.safetensors.index.json", "vocab.txt", "tokenizer*", "special_tokens_map.json"]
    try:
        folder = snapshot_download(repo_id, allow_patterns=files, local_files_only=not online)
        if online and not any(name.endswith(".safetensors") for name in os.listdir(folder)):
            folder = snapshot_download(repo_id, allow_patterns=[*files, "pytorch_model.bin"])
        return folder
    except (OSError, HfHubHTTPError, HFValidationError, ValueError) as error:
        why = f"the hub says: {error}" if online else "the hub cannot be reached and the model is not in the local cache"
        raise OSError(f"Model {repo_id!r} could not be loaded: {why}.\n{WAYS_OUT}") from error


def load_hub_dataset(repo_id, config=None):
    """The `datasets.DatasetDict` of a parquet-backed data set on the hub.

    Raises ImportError when the package `datasets` is missing, OSError with three ways out when the data cannot be had.
    """
    import huggingface_hub.constants

    online = _online()
    try:
        import datasets
    except ImportError as error:
        raise ImportError("Data from the hub needs the package 'datasets': pip install datasets. "
                          "Local files (source=FOLDER) and the mini data need nothing more.") from error
    before = huggingface_hub.constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        if not online:      # both read this at call time; put back below, since a network may come back
            huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        # From version 4 on `datasets` runs no loading scripts; before, it must be told not to.
        safe = {"trust_remote_code": False} if int(datasets.__version__.split(".")[0]) < 4 else {}
        return datasets.load_dataset(repo_id, config, **safe)
    except Exception as error:
        where = f"{repo_id!r}" + (f", configuration {config!r}" if config else "")
        why = f"the client says: {error}" if online else "the hub cannot be reached and the data is not in the local cache"
        raise OSError(f"Data set {where} could not be loaded: {why}.\n{WAYS_OUT}") from error
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
