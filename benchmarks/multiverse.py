"""What the multiverse head costs: a training step, loops against matrix products, a pruning
check, memory.

    python benchmarks/multiverse.py --out results/multiverse_cost.json

Rivals alternate in one process and the answer is the median of their ratios; machines are noisy, so
read ratios, not seconds. Memory is the peak of a process of its own for each number of heads, less
what it held before the loss was computed.
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
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def training_step(precision, rounds):
    """Median of (step with 384 heads / step with one linear head) on the same batches of MNLI's
    shape, MiniLM, everything moving.
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
        for name in sorted(heads, reverse=i % 2 == 0):  # who goes first alternates
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
    """One update's loss as the equations read: a module per head, and a loop over pairs of
    heads.
    """
    total, pairs = sum(F.cross_entropy(head(x), labels) for head in heads), []
    for k in range(LABELS):
        for s in range(len(heads)):
            for r in range(s):
                pairs.append((heads[r].weight[k] @ heads[s].weight[k]).abs())
    return total + 0.005 * torch.stack(pairs).sum()


def loops(rounds):
    """How many times faster the stacked head is than a module per head and a double loop, forward
    and backward; heads alone.
    """
    x, labels = torch.randn(BATCH, SIZE), torch.randint(0, LABELS, (BATCH,))
    stacked, separate = (
        MultiverseHead(SIZE, LABELS, num_heads=HEADS, dropout=0.0),
        [nn.Linear(SIZE, LABELS) for _ in range(HEADS)],
    )
    with torch.no_grad():
        for j, head in enumerate(separate):
            head.weight.copy_(stacked.weight[j]), head.bias.copy_(stacked.bias[j])

    def ours():
        each = F.cross_entropy(
            stacked.all_logits(x).transpose(1, 2),
            labels[:, None].expand(-1, HEADS),
            reduction="none",
        )
        total = each.mean(0).sum() + stacked.penalty()
        total.backward()
        return total.item()

    def naive():
        total = per_head_loops(x, labels, separate)
        total.backward()
        return total.item()

    difference = abs(ours() - naive())
    ratios = [
        seconds(naive) / statistics.median(seconds(ours) for _ in range(20)) for _ in range(rounds)
    ]
    return {
        "heads": HEADS,
        "labels": LABELS,
        "size": SIZE,
        "times_faster": round(statistics.median(ratios)),
        "loss_difference": difference,
    }


def pruning_check(rounds):
    """Seconds of one clustering of 1,024 averages, for losses of several shapes, scikit-learn's
    own bandwidth.
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
    """Runs in a process of its own: MB that the loss and its gradient add to what the weights
    took.
    """
    weight = torch.randn(num_heads, labels, size).mul_(0.02).requires_grad_()
    multiverse_loss(weight[:8]).backward()  # what torch loads on first use
    weight.grad = None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    multiverse_loss(weight).backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def memory(size=1024, labels=2, counts=(256, 512, 1024, 2048, 4096)):
    """MB added by the loss at several numbers of heads, beside what its parts should take and
    what broadcasting pairs would.
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
