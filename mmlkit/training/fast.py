"""Shortcuts for speed, each with its reason.

`cpu_shortcuts` acts inside `train_step` alone: elsewhere the encoder is plain PyTorch, so that any
loop and any optimizer can train it. `fast_matmul` chooses the path of a matrix product. On a CPU
the precision stays that of fp32; the rounding may differ.
"""

import contextlib
import functools
import platform
from pathlib import Path

import torch
from torch import nn

__all__ = ["cpu_shortcuts", "fast_matmul"]


@contextlib.contextmanager
def cpu_shortcuts(encoder, shared=False):
    """Switch the CPU shortcuts on for one training step; nothing changes on another device.

    Afterwards the encoder is as before, except that the gradient of the word table is None.

    Args:
        encoder: a BertModel.
        shared: whether other processes add their gradients to this one's.

    Yields:
        Nothing.
    """
    if encoder.embeddings.word_embeddings.weight.device.type != "cpu":
        yield
        return
    table = encoder.embeddings.word_embeddings
    with _reused_gradient(table, shared), _shared_random_bits(encoder):
        yield


@contextlib.contextmanager
def _reused_gradient(table, shared):
    """Add only the rows in use to one zero buffer, instead of a dense gradient (a tenth of a step).

    The values are those of a dense gradient. `sparse` yields the rows. Where another module reads
    the table (a tied decoder), autograd gives a dense gradient, and the whole buffer is cleared
    after the step. So it is where other processes add their rows.
    """
    weight = table.weight
    if not weight.requires_grad or table.sparse:
        yield
        return
    buffer = getattr(weight, "reused_gradient", None)
    same = ("shape", "dtype", "device")
    if buffer is None or any(getattr(buffer, name) != getattr(weight, name) for name in same):
        buffer = weight.reused_gradient = torch.zeros_like(weight)
    used = [None] if shared else []  # per backward pass: the rows it added to, or None for all
    handle = weight.register_hook(
        lambda gradient: used.append(gradient._indices()[0] if gradient.is_sparse else None)
    )
    weight.grad, table.sparse = buffer, True
    try:
        yield
    except BaseException:
        used.append(None)  # an interrupted pass may have added to any row
        raise
    finally:
        handle.remove()
        weight.grad, table.sparse = None, False
        if any(rows is None for rows in used):
            buffer.zero_()
        else:
            for rows in used:
                buffer[rows] = 0


@contextlib.contextmanager
def _shared_random_bits(encoder):
    """Draw one random number for four dropout decisions; torch draws four (a tenth of a step)."""
    modules = [
        module
        for module in encoder.modules()
        if type(module) is nn.Dropout and module.p and module.training
    ]
    for module in modules:
        module.forward = functools.partial(_dropout, module.p)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _dropout(p, x):
    """Zero each value with probability p, exact to 1/65536, and scale the others by 1/(1-p)."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(
        -(2**63), None
    )  # 64 bits each
    keep = draws.view(torch.int16)[: x.numel()] >= round(p * 65536) - 32768
    return x * keep.view(x.shape).to(x.dtype).mul_(1 / (1 - p))


@contextlib.contextmanager
def fast_matmul(device):
    """Choose the fastest matrix product inside: exact fp32 on a CPU, TF32 on a GPU.

    Args:
        device: a torch.device.

    Yields:
        Nothing.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    elif device.type == "cpu" and not _is_intel() and _medium_is_exact():
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


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
