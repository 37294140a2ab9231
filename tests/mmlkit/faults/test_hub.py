"""Access to the hub when it works, fails or cannot be reached.

A local server replaces the hub. Every case runs in a fresh process.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
from hub_stub import serve
from safetensors.torch import load_file
from tiny import write_tiny_bert

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow
# The child process imports everything first, so that only the call is timed. HF_ENDPOINT and
# HF_HOME are read at import.
CHILD = """
import dataclasses, json, socket, sys, time
import datasets, huggingface_hub, torch, transformers
from mmlkit import get_task, load_pretrained, load_task

def slow_names(*_, **__):
    time.sleep(20)
    raise socket.gaierror(-3, "Temporary failure in name resolution")

def model(name, save_to=None):
    encoder, tokenizer = load_pretrained(name)
    if save_to:
        torch.save(encoder.state_dict(), save_to)
    return tokenizer("the cats sat on a mat")["input_ids"]

def task(name, hub=None):
    task = dataclasses.replace(get_task(name), hub=tuple(hub)) if hub else name
    data = load_task(task, "hub")
    splits = {"train": data.train, "dev": data.dev, "test": data.test}
    return {key: [split[i] for i in range(len(split))] for key, split in splits.items() if split}

for what, *arguments in json.loads(sys.argv[1]):
    if what == "slow_names":
        socket.getaddrinfo = slow_names
        continue
    start, outcome = time.perf_counter(), {}
    try:
        outcome["value"] = {"model": model, "task": task}[what](*arguments)
    except Exception as error:
        outcome.update(error=type(error).__name__, message=str(error))
        outcome["is_os_error"] = isinstance(error, OSError)
    print("OUTCOME", json.dumps({**outcome, "seconds": time.perf_counter() - start}), flush=True)
"""
NAMES = {"rte": ("entailment", "not_entailment"), "reversed": ("not_entailment", "entailment")}
SPLITS = {
    "train": ("entailment", "not_entailment", "entailment"),
    "validation": ("not_entailment", "entailment"),
    "test": (None,),
}


def run_child(jobs, endpoint, home):
    """Run the jobs in a new process with this hub and this cache; return one outcome per job."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.upper().endswith("_PROXY") and not key.startswith("HF_")
    }
    env = {
        **clean,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(jobs)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    outcomes = [
        json.loads(line.removeprefix("OUTCOME "))
        for line in done.stdout.splitlines()
        if line.startswith("OUTCOME ")
    ]
    assert done.returncode == 0, done.stderr
    return outcomes


def write_glue(folder):
    """Write a data set in the hub's layout: README.md and a parquet file for each split."""
    configs, infos = [], []
    for config, names in NAMES.items():
        for split, labels in SPLITS.items():
            table = pyarrow.table(
                {
                    "sentence1": [f"{split} {i} one" for i in range(len(labels))],
                    "sentence2": [f"{split} {i} two" for i in range(len(labels))],
                    "label": pyarrow.array(
                        [-1 if name is None else names.index(name) for name in labels]
                    ),
                    "idx": pyarrow.array([10 + i for i in range(len(labels))], pyarrow.int32()),
                }
            )
            (folder / config).mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(table, folder / config / f"{split}-00000-of-00001.parquet")
        configs.append(
            {
                "config_name": config,
                "data_files": [{"split": split, "path": f"{config}/{split}-*"} for split in SPLITS],
            }
        )
        features = [
            {"name": "sentence1", "dtype": "string"},
            {"name": "sentence2", "dtype": "string"},
            {
                "name": "label",
                "dtype": {"class_label": {"names": {str(i): name for i, name in enumerate(names)}}},
            },
            {"name": "idx", "dtype": "int32"},
        ]
        infos.append(
            {
                "config_name": config,
                "features": features,
                "splits": [
                    {"name": split, "num_examples": len(labels)} for split, labels in SPLITS.items()
                ],
            }
        )
    header = json.dumps({"configs": configs, "dataset_info": infos})  # JSON is valid YAML
    (folder / "README.md").write_text(f"---\n{header}\n---\n# glue\n", encoding="utf-8")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return the folder that the server offers: a model, and a data set in two configurations."""
    folder = tmp_path_factory.mktemp("served")
    write_tiny_bert(folder / "models" / "org" / "tiny-bert")
    write_glue(folder / "datasets" / "nyu-mll" / "glue")
    (folder / "models" / "org" / "words-only").mkdir()
    (folder / "models" / "org" / "words-only" / "vocab.txt").write_text("[PAD]\n")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return the cache folder that `online` fills and `offline` uses."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def online(served, home):
    """Return the outcomes of one process with a working hub, by job."""
    jobs = {
        "model": ["model", "org/tiny-bert", str(home / "downloaded.pt")],
        "rte": ["task", "rte"],
        "reversed": ["task", "rte", ["nyu-mll/glue", "reversed"]],
        "no model": ["model", "org/no-such-model"],
        "no data": ["task", "rte", ["org/no-such-data", None]],
        "words only": ["model", "org/words-only"],
    }
    with serve(served) as endpoint:
        return dict(zip(jobs, run_child(list(jobs.values()), endpoint, home), strict=True))


@pytest.fixture(scope="module")
def offline(online, home):
    """Return the outcomes of a later process whose hub refuses connections, with the same cache."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
    jobs = {
        "no model": ["model", "bert-base-uncased"],
        "no data": ["task", "rte", ["org/other", None]],
        "cached model": ["model", "org/tiny-bert"],
        "cached data": ["task", "rte"],
    }
    return dict(zip(jobs, run_child(list(jobs.values()), endpoint, home), strict=True))


def assert_three_solutions(outcome, name):
    assert outcome.get("is_os_error"), outcome
    assert name in outcome["message"]
    for part in (
        "could not be loaded",
        "Three solutions",
        "folder",
        "load_pretrained('minilm')",
        "source='mini'",
        "go online",
    ):
        assert part in outcome["message"]


def test_model_from_the_hub_equals_the_model_on_disk(online, served, home):
    assert online["model"]["value"] == [
        2,
        5,
        7,
        9,
        10,
        11,
        6,
        12,
        3,
    ]  # [CLS] the cat ##s sat on a mat [SEP]
    on_disk = load_file(served / "models/org/tiny-bert/model.safetensors")
    loaded = torch.load(home / "downloaded.pt", weights_only=True)
    assert loaded.keys() == on_disk.keys()
    assert all(torch.equal(loaded[key], on_disk[key]) for key in on_disk)


@pytest.mark.parametrize("order", NAMES)
def test_hub_labels_are_matched_by_name_in_any_order(online, order):
    splits = online[order]["value"]
    assert {split: [row["label"] for row in rows] for split, rows in splits.items()} == {
        "train": ["entailment", "not_entailment", "entailment"],
        "dev": ["not_entailment", "entailment"],
        "test": [None],
    }
    assert splits["dev"][1] == {
        "sentence1": "validation 1 one",
        "sentence2": "validation 1 two",
        "label": "entailment",
        "id": 11,
    }


def test_errors_on_missing_repositories_name_the_solutions(online):
    assert_three_solutions(online["no model"], "'org/no-such-model'")
    assert_three_solutions(online["no data"], "'org/no-such-data'")
    assert "the hub says" in online["no model"]["message"]


def test_repository_without_a_model(online):
    assert online["words only"].get("error") == "FileNotFoundError", online["words only"]
    assert "is not a model: it has no config.json" in online["words only"]["message"]


def test_refused_connection_fails_fast(offline):
    assert_three_solutions(offline["no model"], "'bert-base-uncased'")
    assert_three_solutions(offline["no data"], "'org/other'")
    assert (
        "cannot be reached" in offline["no model"]["message"]
        and "cannot be reached" in offline["no data"]["message"]
    )
    assert max(offline[name]["seconds"] for name in ("no model", "no data")) < 15


def test_cached_model_and_data_load_without_the_hub(offline, online):
    assert offline["cached model"].get("value") == online["model"]["value"], offline["cached model"]
    assert offline["cached data"].get("value") == online["rte"]["value"], offline["cached data"]


def test_a_second_load_downloads_and_converts_nothing(served, tmp_path):
    """The client asks for the revision only; later the data load with the hub switched off."""
    outcomes, requests, written = [], [], []
    with serve(served, requests) as endpoint:
        for _ in range(2):
            del requests[:]
            outcomes += run_child([["task", "rte"]], endpoint, tmp_path)
            downloads = [
                path for method, path in requests if method == "GET" and "/resolve/" in path
            ]
            files = tmp_path.rglob("*.arrow")
            written.append((downloads, {path: path.stat().st_mtime_ns for path in files}))
    outcomes += run_child([["task", "rte"]], endpoint, tmp_path)
    assert [outcome["value"] for outcome in outcomes] == 3 * [outcomes[0]["value"]]
    assert len(written[0][0]) == 1 + len(SPLITS)  # README.md and a file per split
    assert len(written[0][1]) == len(SPLITS)
    assert requests and written[1] == ([], written[0][1])


@pytest.mark.parametrize("before", [[], [["slow_names"]]], ids=["at once", "after 20 s"])
def test_name_that_does_not_resolve_fails_fast(before, tmp_path):
    """A firewall may drop DNS requests; getaddrinfo then ignores the timeout of a socket."""
    jobs = [*before, ["model", "bert-base-uncased"], ["task", "rte"]]
    outcomes = run_child(jobs, "http://hub.invalid", tmp_path)
    assert len(outcomes) == 2
    assert_three_solutions(outcomes[0], "'bert-base-uncased'")
    assert_three_solutions(outcomes[1], "'nyu-mll/glue'")
    assert (
        max(outcome["seconds"] for outcome in outcomes) < 15
    )  # less than the 20 s of the firewall; a busy machine needs 5 s
