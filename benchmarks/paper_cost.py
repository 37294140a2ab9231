"""Estimate what the `paper` size of the experiments costs on one GPU, from their FLOP.

    MMLKIT_REALDATA=FOLDER python benchmarks/paper_cost.py

Nothing is run. The tokens of a row are measured on the files of FOLDER, and the rows are those of
the hub's splits. A token costs 2 FLOP for each weight of the encoder's linear maps in a forward
pass, and 6 in a training step; word table, attention scores, padding, heads and PALs are left out.
GPU hours follow from three assumptions that nobody has measured with mmlkit: the rate of matrix
products (RATE), the time to start kernels (LAUNCH), and that the two times never overlap.
"""

import argparse
import json
import math
import os
import sys
from collections import Counter
from pathlib import Path

from timing import linear_parameters

from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.notebooks import notebook_text
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.machine import describe
from mmlcourse.studies import CATEGORIES
from mmlkit.bert import BertConfig
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data import encode, get_task, load_task
from mmlkit.files import write_file
from mmlkit.training import TaskSampler

RATE = {"bf16": 200e12, "fp32": 30e12}  # FLOP a second; an H100's datasheet (SXM) has 989e12, 67e12
LAUNCH = {"train": 2e-3, "read": 7e-4}  # seconds for each layer of a call, to start its kernels
EXPERIMENTS = (
    *("mml-tables", "mtdnn-dev", "domain-adaptation", "cs224n-table1", "cs224n-project"),
    "together-or-alone",
)
ENCODERS = {
    "bert-base-uncased": BertConfig(),
    "bert-large-uncased": BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
}
STAR = 3373 / 5749  # STS-B* leaves out pairs of middle similarity; the share of our file's rows
ROWS = {  # of the hub's splits: train, dev
    "rte": (2490, 277),
    "mrpc": (3668, 408),
    "cola": (8551, 1043),
    "stsb": (5749, 1500),
    "stsb_star": (round(STAR * 5749), round(STAR * 1500)),
    "sst2": (67349, 872),
    "qnli": (104743, 5463),
    "qqp": (363846, 40430),
    "mnli": (392702, 9815),
    "snli": (549367, 9842),
    "scitail": (23596, 1304),
    "sst": (8544, 1101),
}
SAME = {"quora": "qqp", "sts": "stsb"}  # the hub's sets behind the course's names


def measure_tokens(folder):
    """Return {set: {"packed": mean tokens of a training row, "separate": of both sentences}}."""
    tokenizer, found = load_pretrained("minilm", device="cpu")[1], {}  # BERT's own vocabulary
    for name in ROWS:
        place = Path(folder, "cs224n") if name == "sst" else folder
        train = load_task(name, place, labels=get_task(name).labels or None).train
        found[name] = {}
        for pairs in ("packed", "separate") if get_task(name).is_pair else ("packed",):
            coded = encode(tokenizer, train, max_length=512, pairs=pairs)
            parts = [coded, *filter(None, (coded.second,))]
            mean = sum(int(one.lengths.sum()) for one in parts) / len(train)
            found[name][pairs] = round(mean, 2)
    return found


class Work:
    """What one run does, in tokens and batches, for training and for predictions."""

    def __init__(self, tokens, given):
        self.tokens, self.pairs, self.most = tokens, given["pairs"], given["max_train_rows"]
        self.batch_size, self.done = given["batch_size"], Counter()

    def rows(self, name, split):
        """Return the rows of a split, of which training splits may be cut."""
        rows = ROWS[SAME.get(name, name)][("train", "dev").index(split)]
        most = self.most.get(name) if isinstance(self.most, dict) else self.most
        return min(rows, most or rows) if split == "train" else rows

    def add(self, kind, name, rows, batches=None):
        """Add rows of a set. `fit` reads dev in batches of twice the size of training."""
        found = self.tokens[SAME.get(name, name)]
        size = self.batch_size * (2 if kind == "read" else 1)
        calls = 2 if self.pairs == "separate" and "separate" in found else 1  # of the encoder
        self.done[kind, "tokens"] += rows * found.get(self.pairs, found["packed"])
        self.done[kind, "calls"] += calls * (math.ceil(rows / size) if batches is None else batches)

    def cost(self, config, precision):
        """Return the FLOP, and the GPU seconds of the products alone and in all."""
        weights, layers = linear_parameters(config), config.num_hidden_layers
        each = {"train": 6 * weights, "read": 2 * weights}
        flop = sum(each[kind] * self.done[kind, "tokens"] for kind in each)
        launch = sum(LAUNCH[kind] * layers * self.done[kind, "calls"] for kind in each)
        launch += LAUNCH["train"] * self.done["head", "calls"]  # a head alone: one layer
        return flop, flop / RATE[precision], flop / RATE[precision] + launch


def train_alone(work, name, epochs, share=1.0):
    """A run of `fit` on one set: each epoch reads dev once. The scores at the end read it again."""
    work.add("train", name, epochs * max(1, round(share * work.rows(name, "train"))))
    work.add("read", name, (epochs + 1) * work.rows(name, "dev"))


def work_of(given, tokens):
    """Return the Work of one run, from all parameters of its notebook."""
    names, epochs = given.get("tasks"), given["epochs"]
    work = Work(tokens, given)
    if "method" in given and names is None:  # cross_dataset.ipynb
        train_alone(work, given["task"], epochs)
        for sets in CATEGORIES.values():
            for name in sets if given["task"] in sets else ():
                for split in ("train", "dev"):
                    work.add("read", name, work.rows(name, split))
    elif given.get("task") == "multitask":  # adaptation.ipynb, the encoder that others start from
        for name in given["multitask"]:
            train_alone(work, name, given["multitask_epochs"])
    elif "share" in given:
        train_alone(work, given["task"], epochs, given["share"])
    elif given["together"]:  # multitask.ipynb
        sizes = {name: math.ceil(work.rows(name, "train") / work.batch_size) for name in names}
        steps = round(given["steps_factor"] * (given["steps_per_epoch"] or sum(sizes.values())))
        order = TaskSampler(given["sampler"], sizes=sizes, epochs=epochs, steps_per_epoch=steps)
        counts = sum((Counter(order.order(epoch + 1)) for epoch in range(epochs)), Counter())
        for name in names:
            if given["freeze_encoder"]:  # its features are computed once
                work.add("read", name, work.rows(name, "train") + work.rows(name, "dev"))
                work.done["head", "calls"] += counts[name]
            else:
                work.add("train", name, counts[name] * work.batch_size, counts[name])
                work.add("read", name, (epochs + 1) * work.rows(name, "dev"))
    if names and (not given["together"] or given["finetune"]):
        for name in names:
            train_alone(work, name, epochs)
    return work


def estimate(name, tokens):
    """Return the cost of an experiment of the size `paper`: in all, and the minutes of each run."""
    experiment, size = load_experiment(name, "paper"), get_profile("paper")
    defaults = {key: getattr(size, key) for key in ("epochs", "batch_size", "precision")}
    costs, written = {}, {}
    exec(notebook_text(experiment.notebook, "parameters"), written)  # the defaults of the notebook
    for run, parameters in experiment.runs.items():
        given = written | parameters
        given |= {key: given[key] or value for key, value in defaults.items()}
        config = ENCODERS[given["model_name"] or size.model]
        costs[run] = work_of(given, tokens).cost(config, given["precision"])
    flop, products, seconds = (sum(parts) for parts in zip(*costs.values()))
    return {
        "runs": len(costs),
        "exaflop": float(f"{flop / 1e18:.2g}"),
        "hours_of_products": round(products / 3600, 1),
        "gpu_hours": round(seconds / 3600, 1),
        "minutes": {run: round(cost[-1] / 60, 1) for run, cost in costs.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="results/paper_cost.json", type=Path)
    options = parser.parse_args()
    if not os.environ.get("MMLKIT_REALDATA"):
        sys.exit("Set MMLKIT_REALDATA to a folder with the sets of the experiments.")
    tokens = measure_tokens(os.environ["MMLKIT_REALDATA"])
    found = {name: estimate(name, tokens) for name in EXPERIMENTS}
    hours = sum(one["gpu_hours"] for one in found.values())
    what = f"The size paper of {len(found)} experiments: {hours:,.0f} GPU hours, an estimate."
    assumed = {"flop_per_second": RATE, "launch_seconds": LAUNCH}
    record = {"what": what, "assumed": assumed, "rows": ROWS, "tokens": tokens}
    record |= {"experiments": found, **describe("cpu")}
    write_file(options.out, json.dumps(record, indent=1) + "\n")
    for name, one in found.items():
        print(name, {key: value for key, value in one.items() if key != "minutes"})
