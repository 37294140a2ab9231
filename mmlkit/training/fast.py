"""The fast path of a matrix product, and three shortcuts of a training step on a CPU.

Elsewhere the encoder is plain PyTorch, so that any loop and any optimizer can train it.
"""

import contextlib
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

from mmlkit.bert.model import BertOutput

__all__ = ["clear_gradients", "cpu_shortcuts", "fast_matmul"]

SMALLEST = 160  # tokens of a batch; fewer are not worth a second thread


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
    """Make a training step on a CPU faster; its numbers are those of a plain step up to rounding.

    Only the rows in use of the word table's gradient are added to the one that `clear_gradients`
    left. Dropout draws one random number for four decisions, torch draws four (a tenth of a step).
    Two threads encode a half of the batch each (a fifth of a step, see `_Halves`).

    Args:
        model: a MultitaskModel.

    Yields:
        Nothing.
    """
    encoder, local = model.encoder, threading.local()
    table = encoder.embeddings.word_embeddings
    if table.weight.device.type != "cpu":
        yield
        return
    table.sparse = table.weight.grad is not None
    own = [one for one in encoder.modules() if "forward" not in vars(one)]  # patched by nobody
    changed = [m for m in own if type(m) is nn.Dropout and 0 < m.p < 1 and m.training]
    for module in changed:
        module.forward = functools.partial(_dropout, module.p, local=local)
    trained = [one for one in encoder.parameters() if one.requires_grad]
    inside = [*encoder.modules()][1:]  # whose hooks would see halves
    hooks = any(one._forward_hooks or one._forward_pre_hooks for one in inside)
    hooks = hooks or any(one._backward_hooks for one in (*inside, *trained))
    if trained and torch.get_num_threads() > 1 and encoder in own and not hooks:
        encoder.forward = functools.partial(_halve, encoder.forward, trained, local)
        changed.append(encoder)
    try:
        yield
    finally:
        table.sparse = False
        for module in changed:
            del module.forward


def _dropout(p, x, local=None):
    """Zero each value with probability p, exact to 1/65536, and scale the others by 1/(1-p)."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=getattr(local, "generator", None))
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
    # Integers, because torch is ten times as slow where the result is of type bool.
    keep = bits.ge_(min(round(p * 65536), 65535) - 32768)
    return x * keep.to(x.dtype).mul_(1 / (1 - p))


def _halve(forward, trained, local, input_ids, attention_mask=None, token_type_ids=None, **options):
    """Encode a batch as two halves, each with random numbers of its own."""
    inputs, middle = (input_ids, attention_mask, token_type_ids), len(input_ids) // 2
    if not middle or input_ids.numel() < SMALLEST or not torch.is_grad_enabled():
        return forward(*inputs, **options)
    rows, seeds = (slice(middle), slice(middle, None)), torch.randint(2**62, (2,)).tolist()
    dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    def encode(half):
        local.generator = torch.Generator().manual_seed(seeds[half])
        with torch.autocast("cpu", dtype, enabled, cache_enabled=False):  # modes of this thread
            return forward(*(x if x is None else x[rows[half]] for x in inputs), **options)

    return BertOutput(*_Halves.apply(encode, rows, *trained))


def _both(function):
    """Return [function(0), function(1)], each computed by a thread with half of torch's threads."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(2, "half", torch.set_num_threads, (threads // 2,)) as pool:
            return list(pool.map(function, (0, 1)))
    finally:
        torch.set_num_threads(threads)


class _Halves(torch.autograd.Function):
    """Run both passes of the encoder in two threads, which wait for each other at the end of each.

    torch's own threads wait for each other after every operation.
    """

    @staticmethod
    def forward(ctx, encode, rows, *trained):
        ctx.set_materialize_grads(False)  # what no head reads gets no gradient
        ctx.trained, ctx.rows, ctx.halves = trained, rows, _both(encode)
        return tuple(torch.cat([one.detach() for one in pair]) for pair in zip(*ctx.halves))

    @staticmethod
    def backward(ctx, *gradients):
        def differentiate(half):
            rows, pairs = ctx.rows[half], zip(ctx.halves[half], gradients)
            read = [(y, g[rows]) for y, g in pairs if g is not None and y.requires_grad]
            if not read:
                return [None] * len(ctx.trained)
            outputs, weights = zip(*read)
            return torch.autograd.grad(outputs, ctx.trained, weights, allow_unused=True)

        sums = (
            one if one is None else one.add_(other) for one, other in zip(*_both(differentiate))
        )
        return None, None, *sums


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
    except OSError:  # macOS and Windows
        return False
