"""The hub as it should be, as it fails, and as it is not there: every case in a fresh process against a server of our own."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hub_stub import serve

ROOT = Path(__file__).resolve().parents[2]
# The child imports everything first, so that only the call is timed; HF_ENDPOINT and HF_HOME are read at import.
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
        outcome.update(error=type(error).__name__, is_os_error=isinstance(error, OSError), message=str(error))
    print("OUTCOME", json.dumps({**outcome, "seconds": time.perf_counter() - start}), flush=True)
"""
NAMES = {"rte": ("entailment", "not_entailment"), "reversed": ("not_entailment", "entailment")}
SPLITS = {"train": ("entailment", "not_entailment", "entailment"), "validation": ("not_entailment", "entailment"), "test": (None,)}


def run_child(jobs, endpoint, home):
    """One outcome per job, from a process of its own whose hub is `endpoint` and whose cache is `home`."""
    clean = {key: value for key, value in os.environ.items() if not key.upper().endswith("_PROXY") and not key.startswith("HF_")}
    env = {**clean, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1",
           "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", CHILD, json.dumps(jobs)], env=env, capture_output=True, text=True, timeout=300)
    outcomes = [json.loads(line.removeprefix("OUTCOME ")) for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert done.returncode == 0, done.stderr
    return outcomes


def write_glue(folder):
    """A data set repository as the hub has it today: README.md with YAML, one parquet file per split and configuration."""
    configs, infos = [], []
    for config, names in NAMES.items():
        for split, labels in SPLITS.items():
            table = pyarrow.table({"sentence1": [f"{split} {i} one" for i in range(len(labels))],
                                   "sentence2": [f"{split} {i} two" for i in range(len(labels))],
                                   "label": pyarrow.array([-1 if name is None else names.index(name) for name in labels], pyarrow.int64()),
                                   "idx": pyarrow.array([10 + i for i in range(len(labels))], pyarrow.int32())})
            (folder / config).mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(table, folder / config / f"{split}-00000-of-00001.parquet")
        configs.append({"config_name": config, "data_files": [{"split": split, "path": f"{config}/{split}-*"} for split in SPLITS]})
        features = [{"name": "sentence1", "dtype": "string"}, {"name": "sentence2", "dtype": "string"},
                    {"name": "label", "dtype": {"class_label": {"names": {str(i): name for i, name in enumerate(names)}}}},
                    {"name": "idx", "dtype": "int32"}]
        infos.append({"config_name": config, "features": features,
                      "splits": [{"name": split, "num_examples": len(labels)} for split, labels in SPLITS.items()]})
    header = json.dumps({"configs": configs, "dataset_info": infos})        # JSON is YAML too
    (folder / "README.md").write_text(f"---\n{header}\n---\n# glue\n", encoding="utf-8")


@pytest.fixture(scope="module")
def closed_endpoint():
    """An address on this machine where nobody listens: the connection is refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def module_tmp(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture
def hub_folder(module_tmp, model_folder):
    """What the stub serves: org/tiny-bert and nyu-mll/glue, written once."""
    folder = module_tmp / "served"
    if not folder.exists():
        shutil.copytree(model_folder, folder / "models" / "org" / "tiny-bert")
        write_glue(folder / "datasets" / "nyu-mll" / "glue")
    return folder


@pytest.fixture
def online(module_tmp, hub_folder, memory={}):
    """The outcomes of one process with a working hub."""
    if not memory:
        jobs = {"model": ["model", "org/tiny-bert", str(module_tmp / "downloaded.pt")], "rte": ["task", "rte"],
                "reversed": ["task", "rte", ["nyu-mll/glue", "reversed"]],
                "no model": ["model", "org/no-such-model"], "no task": ["task", "rte", ["org/no-such-data", None]]}
        with serve(hub_folder) as endpoint:
            memory.update(zip(jobs, run_child(list(jobs.values()), endpoint, module_tmp / "home"), strict=True))
    return memory
