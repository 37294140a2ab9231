"""Show where the time of a training step and of a prediction goes, on one thread of a CPU.

    python benchmarks/step_profile.py --source FOLDER --out results/step_profile.json

The table has the share of self time of each operation of torch. It says how much is left to gain:
the products `mm`, `addmm` and `bmm` run at the speed of the machine, and any implementation needs
them. The profiler itself adds some time to small operations.
"""

import argparse
import json
import warnings

import torch
from torch.profiler import ProfilerActivity, profile

from mmlkit.bench.steps import draw_batches, make_step
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import encode
from mmlkit.data.loading import load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import atomic_write, describe
from mmlkit.training.evaluation import score_encoded
from mmlkit.training.model import MultitaskModel

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")


def shares(work):
    """Return the share of self time of each operation, in percent and in descending order."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    rows = [row for row in found.key_averages() if row.self_cpu_time_total > 0]
    total = sum(row.self_cpu_time_total for row in rows)
    found = {row.key: round(100 * row.self_cpu_time_total / total, 2) for row in rows}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:25])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default="mini", help="folder with the CS224N files, or 'mini'")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--out", help="write the shares to this .json file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    encoder, tokenizer = load_pretrained("minilm", device="cpu")
    data = load_task("sst", options.source)
    model = MultitaskModel(encoder, {"sst": LinearHead(384, 5, pooling="pooler")})
    train, dev = (encode(tokenizer, split, max_length=512) for split in (data.train, data.dev))
    batches = draw_batches(train, 32, options.steps + 3, 0)
    step = make_step(model, train, options.precision)
    for rows in batches[:3]:
        step(rows)
    found = {
        "training step": shares(lambda: [step(rows) for rows in batches[3:]]),
        "prediction": shares(
            lambda: score_encoded(model, dev, batch_size=32, precision=options.precision)
        ),
    }
    for name, part in found.items():
        products = sum(part.get(key, 0) for key in PRODUCTS)
        print(f"{name}, {options.precision}: {products:.0f} % of the time in matrix products")
        for key, share in part.items():
            print(f"  {share:6.2f} %  {key}")
    if options.out:
        content = {"what": __doc__.splitlines()[0], "precision": options.precision, **found}
        with atomic_write(options.out) as temporary:
            temporary.write_text(json.dumps({**content, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
