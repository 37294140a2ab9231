"""Rounds that alternate between variants, ratios with their spread, and the peak of a machine.

Timings on a machine vary with its other work, so a comparison is a median of ratios: the variants
take turns in one process, and each ratio is made of values of one round.
"""

import statistics
import time

import torch

__all__ = ["alternate", "clock", "linear_parameters", "matmul_peak", "seconds", "spread"]


def clock(device):
    """Read the clock once the device has finished its work.

    Args:
        device: a torch.device.

    Returns:
        Seconds; only differences have a meaning.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


def seconds(function, device):
    """Time one call.

    Args:
        function: called without arguments.
        device: the torch.device that it works on.

    Returns:
        Seconds.
    """
    started = clock(device)
    function()
    return clock(device) - started


def alternate(variants, rounds, text=""):
    """Let variants take turns: each runs once a round, and every second round is in reverse order.

    Args:
        variants: {name: function}. A function gets the number of the round and returns its value.
        rounds: how many times each variant runs.
        text: what the progress bar in a terminal says.

    Returns:
        A list with {name: value} for each round.
    """
    from tqdm.auto import tqdm

    names, found = list(variants), []
    for i in tqdm(range(rounds), desc=text, leave=False, disable=None):  # None: only in a terminal
        values = {name: variants[name](i) for name in names[:: -1 if i % 2 else 1]}
        found.append({name: values[name] for name in names})
    return found


def spread(values):
    """Return the median of some values, the lowest and the highest.

    Args:
        values: numbers, one for each round.

    Returns:
        A dict with "median", "lowest" and "highest", rounded to four digits.
    """
    values = list(values)
    found = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def linear_parameters(config):
    """Count the weights of the linear maps in an encoder's layers.

    A token costs 2 FLOP for each of them in a forward pass, and 6 in a training step. Attention
    scores, biases, the word table and the pooler are left out.

    Args:
        config: a BertConfig.

    Returns:
        A whole number.
    """
    D, wide = config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * (4 * D * D + 2 * D * wide)


def matmul_peak(precision, device):
    """Measure the rate of a large matrix product.

    In fp32 this is the faster one of torch's paths: the default and oneDNN on a CPU, fp32 and TF32
    on a GPU. A path of the CPU that rounds to bf16 does not count.

    Args:
        precision: "fp32", "bf16" or "fp16".
        device: a torch.device.

    Returns:
        The rate in GFLOP/s of the fastest of ten products, which depends least on other work of the
        machine.
    """
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    size, faster = (8192, "high") if device.type == "cuda" else (1024, "medium")
    generator = torch.Generator(device).manual_seed(0)
    a, b = (
        torch.randn(shape, generator=generator, device=device).to(dtype)
        for shape in ((2 * size, size), (size, size))
    )
    before, rates, exact = torch.get_float32_matmul_precision(), [], None
    try:
        for path in ("highest", faster) if precision == "fp32" else ("highest",):
            torch.set_float32_matmul_precision(path)
            product = a @ b  # not timed: the first product prepares the path
            exact = product if exact is None else exact
            if device.type == "cpu" and (product - exact).abs().max() > 1e-2:
                continue  # fp32 differs by 1e-4, bf16 by 1e-1
            fastest = min(seconds(lambda: a @ b, device) for _ in range(10))
            rates.append(4 * size**3 / fastest / 1e9)  # 2 (2 size) size size
    finally:
        torch.set_float32_matmul_precision(before)
    return max(rates)
