"""Access to the Hugging Face hub: a short probe, then the hub's own client, then a clear error.

Without a network the client retries for 23 to 93 seconds; the probe answers in two. Nothing falls
back silently. Notebook 00 shows whether the hub can be reached.
"""

import contextlib
import hashlib
import os
import re
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from mmlkit.messages import DISK_ERRORS, file_error

__all__ = ["download_model", "load_hub_dataset", "reachable"]

SOLUTIONS = (
    "Three solutions: (1) name a folder that holds it; (2) use load_pretrained('minilm') and "
    "load_task(..., source='mini'), which need no network; (3) go online, or set HF_HOME to a "
    "cache that holds it."
)


def reachable(endpoint=None, seconds=2.0):
    """Return whether the hub accepts a TCP connection now. The answer is never stored.

    Args:
        endpoint: an address, by default HF_ENDPOINT or the public hub.
        seconds: time limit.

    Returns:
        True or False.
    """
    address = urlsplit(endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = 443 if address.scheme == "https" else 80
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):  # then the host need not resolve
        address, port = urlsplit(proxy if "//" in proxy else f"//{proxy}"), 80
    answered = []

    def probe():
        with contextlib.suppress(OSError):
            place = address.hostname, address.port or port
            socket.create_connection(place, timeout=seconds).close()
            answered.append(True)

    # A thread, because the time limit of a socket does not hold for the look-up of a name.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answered)


def download_model(repo_id):
    """Return the local folder with a model of the hub: configuration, weights and tokenizer.

    Args:
        repo_id: "bert-base-uncased" or "organisation/name".

    Returns:
        The folder's name.

    Raises:
        OSError: the model cannot be loaded; the message names three solutions.
    """
    from huggingface_hub import snapshot_download

    online = _online()
    files = ["config.json", "*.safetensors*", "vocab.txt", "tokenizer*"]
    files += ["special_tokens_map.json", "added_tokens.json"]
    started = time.time()
    try:
        folder = snapshot_download(repo_id, allow_patterns=files, local_files_only=not online)
        if online and not any(Path(folder).glob("*.safetensors")):
            folder = snapshot_download(repo_id, allow_patterns=[*files, "pytorch_model.bin"])
        for path in Path(folder).glob("*.safetensors") if online else ():
            _check_download(path, started)
        return folder
    except Exception as error:
        raise OSError(_problem(f"Model {repo_id!r}", online, error)) from error


def _check_download(path, started):
    """Compare a new file of weights with its checksum, which is its name in the hub's cache."""
    blob = path.resolve()
    if blob.stat().st_mtime < started - 60 or not re.fullmatch("[0-9a-f]{64}", blob.name):
        return
    with blob.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != blob.name:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise OSError(
            f"{path.name} has the checksum {found}, expected {blob.name}. The download was damaged "
            "and is removed; load it again"
        )


def load_hub_dataset(repo_id, config=None):
    """Return a parquet-backed data set of the hub.

    `datasets` keeps the files, and their rows in its own format, in HF_HOME. A later call asks the
    hub for the revision only, and without the hub takes what is kept.

    Args:
        repo_id: "organisation/name".
        config: the name of a configuration.

    Returns:
        A datasets.DatasetDict.

    Raises:
        ImportError: the package datasets is missing.
        OSError: the data cannot be loaded; the message names three solutions.
    """
    from huggingface_hub import constants

    online = _online()
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            "Data from the hub needs the package 'datasets': pip install datasets. "
            "Local files (source=FOLDER) and the mini data need no other package."
        ) from error
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        if not online:  # both are read at call time; the old values return below
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        # Since version 4 `datasets` runs no loading scripts; before, it must be told not to.
        safe = {"trust_remote_code": False} if int(datasets.__version__.split(".")[0]) < 4 else {}
        return datasets.load_dataset(repo_id, config, **safe)
    except Exception as error:
        name = f"Data set {repo_id!r}" + (f", configuration {config!r}" if config else "")
        raise OSError(_problem(name, online, error)) from error
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _online():
    """Return whether the client may use the network: not forbidden by the user, and reachable."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and reachable()


def _problem(name, online, error):
    from huggingface_hub import constants

    reason = "the hub cannot be reached and the local cache does not hold it"
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        place = error.filename or constants.HF_HOME
        reason = f"{file_error(place, error, 'written')} HF_HOME names the cache"
    elif online:
        reason = f"the hub says: {error or type(error).__name__}"
    return f"{name} could not be loaded: {reason}.\n{SOLUTIONS}"
