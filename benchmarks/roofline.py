"""The least time of a training step: its matrix products, and then the bytes that it moves.

    python benchmarks/roofline.py

A step on short sentences is small, so that the memory of a GPU limits it as much as its products.
Both rates are measured on the machine. The count leaves out attention scores and the head.
"""

import torch
from memory import encoder_parameters
from timing import linear_parameters, matmul_peak, seconds

from mmlkit.bert.model import BertConfig
from mmlkit.runtime import fastest_precision, pick_device

__all__ = ["copy_rate", "roofline", "step_cost"]

ACTIVATIONS = 60  # times an activation [N, D] of a layer is written or read in a step


def step_cost(config, tokens, *, precision="bf16", parameters=None):
    """Count the FLOP and the bytes that a training step with fused AdamW cannot avoid.

    For each weight of a linear map these are 6 bytes for its copy in half precision, two readings,
    and 8 for the gradient, which is written and read for its norm. AdamW moves 28 bytes for each
    parameter. The gradient of the word table is dense: 8 bytes for each entry.

    Args:
        config: a BertConfig.
        tokens: N, real tokens of a batch.
        precision: of the products, "fp32", "bf16" or "fp16".
        parameters: of the whole model; by default the encoder's.

    Returns:
        A dict: flop, bytes.
    """
    linear, D = linear_parameters(config), config.hidden_size
    width, cast = (4, 0) if precision == "fp32" else (2, 6)
    fixed = (
        (cast + 2 * width + 8) * linear
        + 28 * (parameters or encoder_parameters(config))
        + 8 * config.vocab_size * D
    )
    moved = ACTIVATIONS * D * width * config.num_hidden_layers * tokens
    return {"flop": 6 * linear * tokens, "bytes": fixed + moved}


def roofline(cost, peak, copied):
    """Return the least time of a step.

    Args:
        cost: what `step_cost` returned.
        peak: the rate of matrix products in GFLOP/s, see `matmul_peak`.
        copied: the rate of copies in GB/s, see `copy_rate`.

    Returns:
        A dict of milliseconds: products, bytes, and total, their sum; and products_share, the
        share of the products.
    """
    products, moved = cost["flop"] / peak / 1e6, cost["bytes"] / copied / 1e6
    total = products + moved
    return {
        "products": products,
        "bytes": moved,
        "total": total,
        "products_share": products / total,
    }


def copy_rate(device):
    """Measure the rate of a large copy inside the memory of a device.

    Args:
        device: a torch.device.

    Returns:
        Bytes read and written, in GB/s, of the fastest of ten copies.
    """
    source = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    target = torch.empty_like(source)
    target.copy_(source)  # not timed: the first copy touches the memory
    fastest = min(seconds(lambda: target.copy_(source), device) for _ in range(10))
    return 2 * source.nbytes / fastest / 1e9


def main():
    """Print the roofline of BERT-base on this machine, for batches of mean-25-token rows."""
    device = pick_device()
    precision = fastest_precision(device)
    peak, copied = matmul_peak(precision, device), copy_rate(device)
    print(f"{precision}: products {peak:,.0f} GFLOP/s, copies {copied:,.0f} GB/s")
    for rows in (32, 64, 128, 256):
        cost = step_cost(BertConfig.base(), 25 * rows, precision=precision)
        found = roofline(cost, peak, copied)
        print(
            f"{rows} rows: products {found['products']:.2f} + bytes {found['bytes']:.2f} = "
            f"{found['total']:.2f} ms, {found['products_share']:.0%} in products"
        )


if __name__ == "__main__":
    main()
