"""Measure the cosine of the untrained MiniLM on real pairs with a similarity score.

    MMLKIT_REALDATA=FOLDER python benchmarks/untrained_cosine.py

It is the baseline of the recorded runs on the course's STS file (FOLDER/cs224n) and on STS-B
(FOLDER/stsb). Nothing is trained, so there is no seed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from mmlcourse.machine import describe
from mmlcourse.studies.course_score import untrained_scores
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task
from mmlkit.files import write_file
from mmlkit.training.metrics import compute

PLACES = {"sts": "cs224n", "stsb": "."}  # a task, and its folder below MMLKIT_REALDATA


def measure(folder):
    """Return {task: metrics and the number of dev rows}."""
    (encoder, tokenizer), found = load_pretrained("minilm", device="cpu"), {}
    for name, place in PLACES.items():
        dev = load_task(name, Path(folder, place)).dev
        scores = untrained_scores(encoder.eval(), tokenizer, {name: dev})[name]
        found[name] = {**compute(dev.task, scores, dev.labels), "rows": len(dev)}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="results/untrained_cosine.json", type=Path)
    options = parser.parse_args()
    if not os.environ.get("MMLKIT_REALDATA"):
        sys.exit("Set MMLKIT_REALDATA to a folder with stsb/ and cs224n/.")
    scores = measure(os.environ["MMLKIT_REALDATA"])
    said = ", ".join(f"{name} {one['pearson']:.3f}" for name, one in scores.items())
    what = f"The cosine of the untrained MiniLM on real dev rows, Pearson's r: {said}."
    record = {"what": what, "scores": scores, **describe("cpu")}
    write_file(options.out, json.dumps(record, indent=1) + "\n")
    for name, scores in record["scores"].items():
        print(f"{name}: {scores}")
