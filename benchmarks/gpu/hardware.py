"""What the card is, and does at most: matrix products, copies, and the start of a kernel."""

import torch
from gpu.common import Program
from roofline import copy_rate
from timing import clock, matmul_peak

from mmlcourse.machine import capacity, describe


def launch_cost(device, number):
    """Return the microseconds between two starts of a small kernel, without a CUDA graph."""
    x = torch.ones(8, device=device)
    for _ in range(20):
        x.add_(1)
    started = clock(device)
    for _ in range(number):
        x.add_(1)
    return round(1e6 * (clock(device) - started) / number, 2)


def main():
    program = Program(__doc__)
    device = program.device
    program.record("machine", {**describe(device), **capacity(), "cuda": torch.version.cuda})
    program.record("launch_us", launch_cost(device, 200 if program.dry else 3000))
    for name in ("fp32",) if program.dry else ("bf16", "fp16", "fp32"):
        program.record(f"products_{name}_gflops", round(matmul_peak(name, device), 1))
    program.record("copies_gbs", round(copy_rate(device), 1))


if __name__ == "__main__":
    main()
