"""A download that is cut off, stalls, is damaged or finds no space, and the return of the network.

One process tries twice: under the fault, and after it. The hub is a local server.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hub_stub import serve
from tiny import write_tiny_bert

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow
# An attempt starts when a line arrives, which has the largest size of a file.
CHILD = """
import json, resource, sys, time
from mmlkit.hub import download_model

for line in sys.stdin:
    if size := int(line):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    started, found = time.perf_counter(), {}
    try:
        found["folder"] = download_model("org/tiny-bert")
    except OSError as error:
        found["message"] = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, 2 * [resource.RLIM_INFINITY])
    print(json.dumps({**found, "seconds": time.perf_counter() - started}), flush=True)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write_tiny_bert(folder / "models" / "org" / "tiny-bert")
    return folder


@contextmanager
def client(endpoint, home):
    """Yield a function (size=0) that makes one attempt in a process with this hub and cache."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    kept = {key: value for key, value in kept.items() if not key.upper().endswith("_PROXY")}
    names = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    names |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(command, env={**kept, **names}, text=True, **pipes)

    def attempt(size=0):
        process.stdin.write(f"{size}\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    with process:
        try:
            yield attempt
        finally:
            process.stdin.close()


def weights(home):
    """Return the files of the cache that have the final name of weights."""
    return [path for path in Path(home).rglob("*.safetensors") if path.exists()]


def check_refused(found, *parts):
    message = found["message"]
    for part in ("Model 'org/tiny-bert' could not be loaded", "Three solutions", *parts):
        assert part in message, message
    assert found["seconds"] < 60  # 10 on a quiet machine; the client tries six times


def check_loaded(found, served):
    source = served / "models" / "org" / "tiny-bert" / "model.safetensors"
    assert Path(found["folder"], "model.safetensors").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("drop", "the hub says: "),
        ("stall", "the hub says: "),
        ("damage", "The download was damaged and is removed; load it again"),
    ],
)
def test_a_broken_download_leaves_no_weights_and_is_made_again(served, tmp_path, fault, part):
    faults = [fault]
    with serve(served, faults=faults) as endpoint, client(endpoint, tmp_path) as attempt:
        check_refused(attempt(), part)
        assert not weights(tmp_path)
        faults.clear()
        check_loaded(attempt(), served)


def test_a_full_disk_is_named_and_leaves_no_weights(served, tmp_path):
    with serve(served) as endpoint, client(endpoint, tmp_path) as attempt:
        found = attempt(size=20_000)
        check_refused(found, "could not be written: File too large. Free some space", str(tmp_path))
        assert not weights(tmp_path)
        check_loaded(attempt(), served)


def test_the_return_of_the_network_is_noticed(served, tmp_path):
    with socket.socket() as probe, ExitStack() as later:
        probe.bind(("127.0.0.1", 0))  # without listen: the connection is refused
        port = probe.getsockname()[1]
        with client(f"http://127.0.0.1:{port}", tmp_path) as attempt:
            found = attempt()
            check_refused(found, "the hub cannot be reached and the local cache does not hold it")
            probe.close()
            later.enter_context(serve(served, port=port))
            check_loaded(attempt(), served)


def test_a_cache_that_cannot_be_written_is_named(served, tmp_path):
    (tmp_path / "file").write_text("mine")
    with serve(served) as endpoint, client(endpoint, tmp_path / "file" / "home") as attempt:
        check_refused(attempt(), str(tmp_path / "file"), "HF_HOME names the cache")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_cache_is_named(served, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    with serve(served) as endpoint, client(endpoint, home) as attempt:
        check_refused(attempt(), str(home), "You may not do this here", "HF_HOME names the cache")
