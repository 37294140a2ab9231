"""Measure the cost of the multiverse head: loops, a pruning check, memory.

    python benchmarks/multiverse.py --out results/multiverse_cost.json

The compared versions alternate in one process, and the result is the median of their ratios.
Timings on a machine vary, so read the ratios, not the seconds. Memory is the peak of a separate
process for each number of heads, minus the memory before the loss. What the head adds to a training
step is in `mmlkit bench`.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import warnings

import torch
from heads import time_pruning_check
from sentences import multiverse_sentence
from timing import seconds
from torch import nn
from torch.nn import functional as F

from mmlcourse.machine import describe
from mmlkit.files import write_file
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss

HEADS, LABELS, SIZE, BATCH = 384, 3, 384, 32
CPU = torch.device("cpu")


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
        seconds(run_loops, CPU) / statistics.median(seconds(run_stacked, CPU) for _ in range(20))
        for _ in range(rounds)
    ]
    return {
        "heads": HEADS,
        "labels": LABELS,
        "size": SIZE,
        "times_faster": round(statistics.median(ratios)),
        "loss_difference": difference,
    }


def peak_of(num_heads):
    """Return the MB that the loss and its gradient need in addition to the weights.

    This function runs in a separate process.
    """
    weight = torch.randn(num_heads, 2, 1024).mul_(0.02).requires_grad_()
    multiverse_loss(weight[:8]).backward()  # load what torch needs on first use
    weight.grad = None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    multiverse_loss(weight).backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def memory():
    """Return the MB added by the loss at several numbers of heads.

    Each row also has the expected size of the parts, and the size with broadcast pairs.
    """
    size, labels, rows = 1024, 2, []  # as in `peak_of`
    for count in (256, 512, 1024, 2048, 4096):
        call = [sys.executable, __file__, "--peak", str(count)]
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
    parser.add_argument("--out", help="write the figures to this .json file")
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.peak:
        print(peak_of(options.peak))
        return
    torch.manual_seed(0)
    found = {
        "what": "cost of the multiverse head",
        "memory": memory(),
        "pruning_check_s": {
            name: shape["median"] for name, shape in time_pruning_check(5)["seconds"].items()
        },
        "loops": loops(3),
    }
    found["found"] = multiverse_sentence(found)
    print(found["pruning_check_s"], found["loops"], flush=True)
    if options.out:
        write_file(options.out, json.dumps({**found, **describe()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
