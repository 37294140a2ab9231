"""Measure the cosine of the untrained MiniLM on real pairs with a score, and on mini pairs.

    MMLKIT_REALDATA=FOLDER python benchmarks/untrained_cosine.py

It is the baseline of the recorded runs on the course's STS file (FOLDER/cs224n) and on STS-B
(FOLDER/stsb), and of the prices in notebook 05. Nothing is trained, so there is no seed. On a mini
set, 200 training rows choose the limit of the cosine.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

from mmlcourse.machine import describe
from mmlcourse.studies.course_score import untrained_scores
from mmlcourse.studies.cross_dataset import cosine_answers, two_way
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task
from mmlkit.files import write_file
from mmlkit.training.metrics import compute

PLACES = {"sts": "cs224n", "stsb": "."}  # a task, and its folder below MMLKIT_REALDATA
MINI = ("rte", "qnli", "qqp", "mrpc", "stsb_star")  # the mini sets with two labels


def measure(folder):
    """Return {task: metrics and the number of dev rows}."""
    (encoder, tokenizer), found = load_pretrained("minilm", device="cpu"), {}
    for name, place in PLACES.items():
        dev = load_task(name, Path(folder, place)).dev
        scores = untrained_scores(encoder.eval(), tokenizer, {name: dev})[name]
        found[name] = {**compute(dev.task, scores, dev.labels), "rows": len(dev)}
    for name in MINI:
        known, dev = load_task(name, "mini", limit=200, seed=0).train, load_task(name, "mini").dev
        yes = two_way(np.eye(2)[dev.labels], dev.task.labels)
        right = cosine_answers(known, dev) == yes
        found[name] = {"accuracy": float(right.mean()), "rows": len(dev)}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="results/untrained_cosine.json", type=Path)
    options = parser.parse_args()
    if not os.environ.get("MMLKIT_REALDATA"):
        sys.exit("Set MMLKIT_REALDATA to a folder with stsb/ and cs224n/.")
    scores = measure(os.environ["MMLKIT_REALDATA"])
    said = ", ".join(f"{name} {scores[name]['pearson']:.3f}" for name in PLACES)
    what = f"The untrained MiniLM's cosine: Pearson's r on real dev rows ({said}); accuracy on mini"
    record = {"what": what, "scores": scores, **describe("cpu")}
    write_file(options.out, json.dumps(record, indent=1) + "\n")
    for name, scores in record["scores"].items():
        print(f"{name}: {scores}")
