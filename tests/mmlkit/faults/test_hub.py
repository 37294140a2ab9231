"""Access to the hub and without it. A local server replaces the hub, for two fresh processes."""

import json
import os
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
# HF_ENDPOINT and HF_HOME are read at import.
CHILD = """
import dataclasses, json, sys
import torch
from mmlkit import get_task, load_pretrained, load_task

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
    outcome = {}
    try:
        outcome["value"] = {"model": model, "task": task}[what](*arguments)
    except Exception as error:
        outcome.update(error=type(error).__name__, message=str(error))
    print("OUTCOME", json.dumps(outcome), flush=True)
"""
NAMES = {"rte": ("entailment", "not_entailment"), "reversed": ("not_entailment", "entailment")}
SPLITS = {
    "train": ("entailment", "not_entailment", "entailment"),
    "validation": ("not_entailment", "entailment"),
    "test": (None,),
}


def run_child(jobs, endpoint, home, **more):
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
        **more,
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
    }
    with serve(served) as endpoint:
        return dict(zip(jobs, run_child(list(jobs.values()), endpoint, home), strict=True))


@pytest.fixture(scope="module")
def offline(online, home):
    """Return the outcomes of a later process that stays offline, with the same cache."""
    jobs = {
        "no model": ["model", "bert-base-uncased"],
        "no data": ["task", "rte", ["org/other", None]],
        "cached model": ["model", "org/tiny-bert"],
        "cached data": ["task", "rte"],
    }
    endpoint = "http://hub.invalid"
    outcomes = run_child(list(jobs.values()), endpoint, home, HF_HUB_OFFLINE="1")
    return dict(zip(jobs, outcomes, strict=True))


def test_model_from_the_hub_equals_the_model_on_disk(online, served, home):
    """The ids are: [CLS] the cat ##s sat on a mat [SEP]."""
    assert online["model"].get("value") == [2, 5, 7, 9, 10, 11, 6, 12, 3], online["model"]
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


def test_an_error_offers_what_needs_no_network(online, offline):
    for outcome in (online["no model"], online["no data"], offline["no model"], offline["no data"]):
        assert outcome["error"] == "OSError", outcome
        for part in ("could not be loaded", "load_pretrained('minilm')", "source='mini'"):
            assert part in outcome["message"]
    assert "'org/no-such-model'" in online["no model"]["message"]
    assert "'org/other'" in offline["no data"]["message"]


def test_cached_model_and_data_load_without_the_hub(offline, online):
    assert offline["cached model"].get("value") == online["model"]["value"], offline["cached model"]
    assert offline["cached data"].get("value") == online["rte"]["value"], offline["cached data"]
