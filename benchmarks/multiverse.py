"""Measure the cost of the multiverse head: a training step, loops, a pruning check, memory.

    python benchmarks/multiverse.py --out results/multiverse_cost.json

The compared versions alternate in one process, and the result is the median of their ratios.
Timings on a machine vary, so read the ratios, not the seconds. Memory is the peak of a separate
process for each number of heads, minus the memory before the loss.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss
from mmlkit.heads.pruning import cluster
from mmlkit.runtime import atomic_write, describe
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.step import train_step

HEADS, LABELS, SIZE, BATCH = 384, 3, 384, 32


def seconds(function):
    """Return the wall time of one call in seconds."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def training_step(precision, rounds):
    """Return the median of (step with 384 heads / step with one linear head).

    Both steps train all weights of MiniLM, on the same batches with MNLI's shape.
    """
    heads = {
        "linear": LinearHead(SIZE, LABELS, pooling="cls"),
        "multiverse": MultiverseHead(SIZE, LABELS, num_heads=HEADS, pooling="cls"),
    }
    encoder, tokenizer = load_pretrained("minilm", device="cpu")
    encoded = encode(tokenizer, load_task("mnli").train, max_length=160)
    batches = [
        collate(encoded, rows)
        for rows in plan(encoded.lengths, BATCH, seed=0)
        if len(rows) == BATCH
    ]
    models = {
        name: MultitaskModel(
            load_pretrained("minilm", device="cpu")[0], {"mnli": head}, tokenizer
        ).train()
        for name, head in heads.items()
    }
    optimizers = {name: make_optimizer(model, lr=1e-5) for name, model in models.items()}

    def step(name, i):
        return seconds(
            lambda: train_step(
                models[name], batches[i % len(batches)], optimizers[name], precision=precision
            ).total.item()
        )

    found = {name: [] for name in heads}
    for i in range(rounds + 3):
        for name in sorted(heads, reverse=i % 2 == 0):  # the order alternates
            found[name].append(step(name, i))
    ratios = [a / b for a, b in zip(found["multiverse"][3:], found["linear"][3:])]
    return {
        "precision": precision,
        "linear_ms": round(1e3 * statistics.median(found["linear"][3:]), 1),
        "multiverse_ms": round(1e3 * statistics.median(found["multiverse"][3:]), 1),
        "overhead_percent": round(100 * (statistics.median(ratios) - 1), 2),
        "rounds": rounds,
        "tokens": int(np.mean([b.attention_mask.sum() for b in batches])),
    }


def per_head_loops(x, labels, heads):
    """Return the loss of one update as in the equations, with loops over heads and pairs."""
    total, pairs = sum(F.cross_entropy(head(x), labels) for head in heads), []
    for k in range(LABELS):
        for s in range(len(heads)):
            for r in range(s):
                pairs.append((heads[r].weight[k] @ heads[s].weight[k]).abs())
    return total + 0.005 * torch.stack(pairs).sum()


def loops(rounds):
    """Return the speed-up of the stacked head over one module per head and a double loop.

    Forward and backward pass of the heads alone are timed.
    """
    x, labels = torch.randn(BATCH, SIZE), torch.randint(0, LABELS, (BATCH,))
    stacked, separate = (
        MultiverseHead(SIZE, LABELS, num_heads=HEADS, dropout=0.0),
        [nn.Linear(SIZE, LABELS) for _ in range(HEADS)],
    )
    with torch.no_grad():
        for j, head in enumerate(separate):
            head.weight.copy_(stacked.weight[j]), head.bias.copy_(stacked.bias[j])

    def run_stacked():
        each = F.cross_entropy(
            stacked.all_logits(x).transpose(1, 2),
            labels[:, None].expand(-1, HEADS),
            reduction="none",
        )
        total = each.mean(0).sum() + stacked.penalty()
        total.backward()
        return total.item()

    def run_loops():
        total = per_head_loops(x, labels, separate)
        total.backward()
        return total.item()

    difference = abs(run_stacked() - run_loops())
    ratios = [
        seconds(run_loops) / statistics.median(seconds(run_stacked) for _ in range(20))
        for _ in range(rounds)
    ]
    return {
        "heads": HEADS,
        "labels": LABELS,
        "size": SIZE,
        "times_faster": round(statistics.median(ratios)),
        "loss_difference": difference,
    }


def pruning_check(rounds):
    """Return the seconds of one clustering of 1,024 averages, with scikit-learn's own bandwidth.

    The averages come from distributions of several shapes.
    """
    generator = np.random.default_rng(0)
    shapes = {
        "one normal": lambda: generator.normal(0.6, 0.02, 1024),
        "long tail": lambda: 0.5 + generator.gamma(2, 0.02, 1024),
        "two groups": lambda: np.concatenate(
            [generator.normal(0.5, 0.01, 512), generator.normal(0.6, 0.01, 512)]
        ),
    }
    cluster(generator.normal(size=64))
    return {
        name: round(
            statistics.median(seconds(lambda draw=draw: cluster(draw())) for _ in range(rounds)), 4
        )
        for name, draw in shapes.items()
    }


def peak_of(num_heads, size, labels):
    """Return the MB that the loss and its gradient need in addition to the weights.

    This function runs in a separate process.
    """
    weight = torch.randn(num_heads, labels, size).mul_(0.02).requires_grad_()
    multiverse_loss(weight[:8]).backward()  # load what torch needs on first use
    weight.grad = None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    multiverse_loss(weight).backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def memory(size=1024, labels=2, counts=(256, 512, 1024, 2048, 4096)):
    """Return the MB added by the loss at several numbers of heads.

    Each row also has the expected size of the parts, and the size with broadcast pairs.
    """
    rows = []
    for count in counts:
        call = [sys.executable, __file__, "--peak", str(count), str(size), str(labels)]
        added = float(
            subprocess.run(call, capture_output=True, text=True, check=True, timeout=300).stdout
        )
        rows.append(
            {
                "heads": count,
                "added_mb": round(added, 1),
                "gradients_mb": round(2 * 4 * count * labels * size / 2**20, 1),
                "gram_mb": round(4 * count**2 / 2**20, 1),
                "broadcast_mb": round(4 * count**2 * size / 2**20),
            }
        )
        print(rows[-1], flush=True)
    return {"size": size, "labels": labels, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=40, help="pairs of training steps for each precision"
    )
    parser.add_argument("--out", help="write the figures to this .json file")
    parser.add_argument("--peak", nargs=3, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.peak:
        print(peak_of(*options.peak))
        return
    torch.manual_seed(0)
    found = {
        "what": "cost of the multiverse head",
        "memory": memory(),
        "pruning_check_s": pruning_check(5),
        "loops": loops(3),
    }
    print(found["pruning_check_s"], found["loops"], flush=True)
    found["training_step"] = [
        training_step(precision, options.rounds) for precision in ("fp32", "bf16")
    ]
    print(*found["training_step"], sep="\n")
    if options.out:
        with atomic_write(options.out) as temporary:
            temporary.write_text(json.dumps({**found, **describe()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
