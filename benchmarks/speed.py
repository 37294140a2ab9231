"""The speed of this machine, and of transformers beside it, in one record and one table.

    python benchmarks/speed.py --quick
    python benchmarks/speed.py --source FOLDER --only step heads start --out results/speed.json

`mmlkit bench` calls it.
"""

import argparse
import json
from pathlib import Path

from heads import compare_heads, time_pruning_check
from predictions import compare_predictions
from sentences import speed_sentence
from speed_table import TASKS, speed_sentences, speed_table
from start import time_start
from steps import classifier, compare_steps

from mmlcourse.machine import describe
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task
from mmlkit.files import write_file
from mmlkit.runtime import fastest_precision, pick_device, seeded

PARTS = ("step", "predict", "heads", "start")


def measure_speed(
    model="minilm", source="mini", *, parts=PARTS, precisions=None, quick=False, **size
):
    """Make all comparisons.

    Args:
        model: a model for `load_pretrained`.
        source: "mini", or the folder with the CS224N course's files, see `load_task`.
        parts: which comparisons, some of "step", "predict", "heads" and "start".
        precisions: such as ["fp32", "bf16"]; None for fp32 and the fastest one of the device.
        quick: fewer and shorter rounds.
        **size: other values for rounds, for the steps and warm_up of a round, and for the rows to
            predict.

    Returns:
        A record for results/speed.json: the comparisons with all rounds, and this machine.

    Raises:
        FileNotFoundError: the source has no such files (from `load_task`).
    """
    device = pick_device()
    size = {**_size(device, quick), **size}
    precisions = precisions or list(dict.fromkeys(["fp32", fastest_precision(device)]))
    rounds, rows = size["rounds"], size["rows"]
    times = {name: size[name] for name in ("rounds", "steps", "warm_up")}
    data = {}
    if {"step", "predict"} & set(parts):  # before any comparison: a missing file is found at once
        data = {name: load_task(name, source) for name in TASKS}
    found = []
    with seeded(0, device):
        for one in data.values():
            ready = classifier(model, one.task)
            if "predict" in parts:  # before the steps change the weights
                found += compare_predictions(ready, one, precisions, rounds=rounds, rows=rows)
            if "step" in parts:
                found += compare_steps(ready, one, precisions, **times)
        if "heads" in parts:
            encoder, mnli = load_pretrained(model)[0], load_task("mnli")
            times["steps"] *= 3  # the heads add less than the steps of a round differ
            found += [compare_heads(encoder, mnli, precision, **times) for precision in precisions]
            found.append(time_pruning_check(rounds))
    if "start" in parts:
        found.append(time_start(rounds))
    return {
        "what": "speed of mmlkit and of transformers, in alternating rounds of one process",
        "model": Path(model).name,  # of a folder no more than its name
        "source": "mini" if source == "mini" else "folder",
        **size,
        "found": speed_sentence(found),
        "comparisons": found,
        **describe(device),
    }


def _size(device, quick):
    rounds, steps, warm_up, rows = (3, 3, 1, 128) if quick else (7, 8, 2, 1024)
    times = 12 if device.type == "cuda" else 1  # a step takes milliseconds there
    steps, warm_up, rows = times * steps, times * warm_up, times * rows
    return {"rounds": rounds, "steps": steps, "warm_up": warm_up, "rows": rows}


def main():
    """Measure, print the table, and write the record."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="few, short rounds: two minutes")
    parser.add_argument("--model", default="minilm", help="minilm, a hub id or a folder")
    parser.add_argument("--source", default="mini", help="the folder of the course's data, or mini")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16", "fp16"))
    parser.add_argument("--rounds", type=int, help="rounds that alternate (7; quick: 3)")
    parser.add_argument("--out", type=Path, help="write all rounds to this .json file")
    options = parser.parse_args()
    record = measure_speed(
        options.model,
        options.source,
        parts=options.only,
        precisions=options.precision,
        quick=options.quick,
        **({"rounds": options.rounds} if options.rounds else {}),
    )
    table = speed_table(record)
    if len(table):
        print(table.to_string(index=False))
    print(*speed_sentences(record), sep="\n")
    if options.out:
        write_file(options.out, json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
