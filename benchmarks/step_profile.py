"""Show where the time of a training step and of a prediction goes, on one thread of a CPU.

    python benchmarks/step_profile.py --source FOLDER --only step --out results/step_profile.json
    python benchmarks/step_profile.py --source FOLDER --only prediction \\
        --out results/prediction_profile.json

For each precision, the table has the share of self time of each operation of torch. It says how
much is left to gain: any implementation needs the products `mm`, `addmm` and `bmm`. Their share of
the peak compares their rate, while they run, with that of one large product. A step without any
other operation would reach this share. The profiler itself adds some time to small operations.
"""

import argparse
import functools
import json
import warnings

import torch
from sentences import profile_sentence
from steps import draw_batches, make_step
from timing import matmul_peak
from torch.profiler import ProfilerActivity, profile

from mmlcourse.machine import describe
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import encode
from mmlkit.data.loading import load_task
from mmlkit.files import write_file
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import fastest_precision, pick_device
from mmlkit.training.evaluation import score_encoded
from mmlkit.training.model import MultitaskModel

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")


def measure(part, precision, work):
    """Return the profile of a function: one row of the record."""
    peak = matmul_peak(precision, pick_device("cpu"))
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found:
        work()
    rows = [row for row in found.key_averages() if row.self_cpu_time_total > 0]
    rows.sort(key=lambda row: -row.self_cpu_time_total)
    products = [row for row in rows if row.key in PRODUCTS]
    busy, total = (sum(row.self_cpu_time_total for row in some) for some in (products, rows))
    rate = sum(row.flops for row in products) / busy / 1e3  # FLOP/us to GFLOP/s
    return {
        "part": part,
        "precision": precision,
        "products_percent": round(100 * busy / total, 1),
        "products_percent_of_peak": round(100 * rate / peak, 1),
        "operations": {
            row.key: round(100 * row.self_cpu_time_total / total, 2) for row in rows[:25]
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default="mini", help="folder with the CS224N files, or 'mini'")
    parser.add_argument("--steps", type=int, default=40)  # new memory slows the first ones
    parser.add_argument("--only", choices=["step", "prediction"], help="by default both")
    parser.add_argument("--out", help="write the shares to this .json file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    encoder, tokenizer = load_pretrained("minilm", device="cpu")
    data = load_task("sst", options.source)
    model = MultitaskModel(encoder, {"sst": LinearHead(384, 5, pooling="pooler")})
    train, dev = (encode(tokenizer, split, max_length=512) for split in (data.train, data.dev))
    batches, found = draw_batches(train, 32, options.steps + 3, 0), []
    for precision in dict.fromkeys(["fp32", fastest_precision("cpu")]):
        step = make_step(model, train, precision)
        parts = {
            "training step": lambda step=step: [step(rows) for rows in batches[3:]],
            "prediction": functools.partial(score_encoded, model, dev, precision=precision),
        }
        for rows in batches[:3]:
            step(rows)
        asked = {part: work for part, work in parts.items() if (options.only or "") in part}
        found += [measure(part, precision, work) for part, work in asked.items()]
    for one in found:
        busy, rate = one["products_percent"], one["products_percent_of_peak"]
        print(f"{one['part']}, {one['precision']}: {busy} % in products, at {rate} % of the peak")
        for key, share in one["operations"].items():
            print(f"  {share:6.2f} %  {key}")
    if options.out:
        content = {"profiles": found, **describe("cpu")}
        said = {"what": __doc__.splitlines()[0], "found": profile_sentence(content)}
        write_file(options.out, json.dumps({**said, **content}, indent=1) + "\n")


if __name__ == "__main__":
    main()
