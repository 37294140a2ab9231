"""The fast path of a matrix product, and two shortcuts of a training step on a CPU.

Elsewhere the encoder is plain PyTorch, so that any loop and any optimizer can train it.
"""

import contextlib
import functools
import platform
from pathlib import Path

import torch
from torch import nn

__all__ = ["clear_gradients", "cpu_shortcuts", "fast_matmul"]


def clear_gradients(model):
    """Set all gradients to None, but that of the word table on a CPU to zero.

    New memory of its size would take a tenth of a step. None, not zero: parameters of other tasks
    then stay bit-identical. Of the whole model, because the optimizer may hold a part of it.

    Args:
        model: a MultitaskModel.
    """
    weight = model.encoder.embeddings.word_embeddings.weight
    before = weight.grad
    model.zero_grad(set_to_none=True)
    if weight.device.type == "cpu" and weight.requires_grad:
        weight.grad = torch.zeros_like(weight) if before is None else before.zero_()


@contextlib.contextmanager
def cpu_shortcuts(model):
    """Make a training step on a CPU faster; its numbers are those of a plain step.

    Only the rows in use of the word table's gradient are added to the one that `clear_gradients`
    left. Dropout draws one random number for four decisions, torch draws four (a tenth of a step).

    Args:
        model: a MultitaskModel.

    Yields:
        Nothing.
    """
    table = model.encoder.embeddings.word_embeddings
    if table.weight.device.type != "cpu":
        yield
        return
    table.sparse = table.weight.grad is not None
    dropouts = [m for m in model.encoder.modules() if type(m) is nn.Dropout and m.p and m.training]
    for module in dropouts:
        module.forward = functools.partial(_dropout, module.p)
    try:
        yield
    finally:
        table.sparse = False
        for module in dropouts:
            del module.forward


def _dropout(p, x):
    """Zero each value with probability p, exact to 1/65536, and scale the others by 1/(1-p)."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
    # Integers, because torch is ten times as slow where the result is of type bool.
    keep = bits.ge_(min(round(p * 65536), 65535) - 32768)
    return x * keep.to(x.dtype).mul_(1 / (1 - p))


@contextlib.contextmanager
def fast_matmul(device):
    """Choose the fastest matrix product inside: exact fp32 on a CPU, TF32 on a GPU.

    Args:
        device: a torch.device.

    Yields:
        Nothing.
    """
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by torch.backends.fp32_precision; torch lets nobody mix the two ways
        yield
        return
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    own = [getattr(one, "fp32_precision", None) for one in backends]  # from torch 2.9 on
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    elif device.type == "cpu" and not _is_intel() and _medium_is_exact():
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for one, value in zip(backends, own):
            if value is not None:  # else a later global setting of the user would not reach it
                one.fp32_precision = value


@functools.cache
def _medium_is_exact():
    """Test whether matmul precision 'medium' still computes in fp32 on this CPU.

    On AMD it only moves the product to oneDNN, twice as fast and as exact. AMX may round to bf16.
    """
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        error = (a @ b - a.double() @ b.double()).abs().max().item()
    finally:
        torch.set_float32_matmul_precision(before)
    return error < 1e-3  # fp32: about 1e-4; bf16: about 1e-1


@functools.cache
def _is_intel():
    """Test for Intel, where torch's default product (MKL with AVX-512) is the faster one.

    A training step takes 12 % longer with 'medium' there (a Xeon), and two thirds of the time on
    AMD.
    """
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "Intel" in platform.processor()
