"""Shortcuts for speed, each with its reason.

`cpu_shortcuts` acts inside `train_step` alone: elsewhere the encoder is plain PyTorch, so that any
loop and any optimizer can train it. `fast_matmul` chooses the path of a matrix product. On a CPU
the precision stays that of fp32; the rounding may differ.
"""

import concurrent.futures
import contextlib
import functools
import math
import platform
import threading
from pathlib import Path

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from mmlkit.bert.model import BertModel, BertOutput

__all__ = ["cpu_shortcuts", "fast_matmul", "in_halves"]

SMALLEST = 160  # tokens of a batch; below this, adding two gradients takes longer than it saves


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
    with in_halves(encoder) as halves, _reused_gradient(table, shared):
        with _shared_random_bits(encoder, halves.random_bits):
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
def _shared_random_bits(encoder, random_bits):
    """Draw one random number for four dropout decisions; torch draws four (a tenth of a step)."""
    modules = [
        module
        for module in encoder.modules()
        if type(module) is nn.Dropout and module.p and module.training
    ]
    for module in modules:
        module.forward = functools.partial(_dropout, module.p, random_bits)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _dropout(p, random_bits, x):
    """Zero each value with probability p, exact to 1/65536, and scale the others by 1/(1-p)."""
    keep = random_bits(x) >= round(p * 65536) - 32768
    return x * keep.to(x.dtype).mul_(1 / (1 - p))


def _random_bits(shape):
    """Draw 16 random bits for each value, 64 at a time."""
    size = math.prod(shape)
    draws = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[:size].view(shape)


@contextlib.contextmanager
def in_halves(encoder):
    """Let two threads of a CPU encode half of each batch (an eighth to a quarter of a step).

    torch's own threads wait for each other after every operation, the halves only at the end of a
    pass. The results are those of the whole batch up to rounding, with the same dropout. Nothing
    changes on another device, with one thread, for a small batch, or where hooks watch the encoder.

    Args:
        encoder: a BertModel.

    Yields:
        The `_Halves`.
    """
    halves = _Halves(encoder)
    if not halves.possible():
        yield halves
        return
    encoder.forward = functools.partial(halves.encode, encoder.forward)
    try:
        yield halves
    finally:
        del encoder.forward


class _Halves:
    """Two threads, each with one half of a batch and half of torch's threads.

    Args:
        encoder: a BertModel.
    """

    def __init__(self, encoder):
        self.encoder, self.threads = encoder, torch.get_num_threads()
        self._local = threading.local()  # in a thread: its half, and its calls of random_bits
        self._lock = threading.Lock()
        self.rows, self._drawn = (), {}

    def possible(self):
        """Test for a CPU with threads, and for hooks, which would see two halves."""
        parts = (*self.encoder.modules(), *self.encoder.parameters())
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        hooks = any(getattr(part, kind, None) for part in parts for kind in kinds)
        on_cpu = all(part.device.type == "cpu" for part in self.encoder.parameters())
        return isinstance(self.encoder, BertModel) and self.threads > 1 and on_cpu and not hooks

    def encode(self, forward, input_ids, *inputs, **options):
        """Return what `forward` returns for the whole batch."""
        size = len(input_ids)
        if size < 2 or input_ids.numel() < SMALLEST:
            return forward(input_ids, *inputs, **options)
        self.rows, self._drawn = (slice(0, size // 2), slice(size // 2, size)), {}

        def encode_half(half):
            own = [x if x is None else x[self.rows[half]] for x in (input_ids, *inputs)]
            return forward(*own, **options)

        trained = [p for p in self.encoder.parameters() if p.requires_grad]
        if torch.is_grad_enabled() and trained:
            outputs = _EncodeInHalves.apply(self, encode_half, *trained)
        else:
            outputs = map(torch.cat, zip(*self.run(encode_half)))
        return BertOutput(*outputs)

    def run(self, function):
        """Return [function(0), function(1)], each computed in a thread of its own."""
        dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

        def run_half(half):
            self._local.half, self._local.calls = half, 0
            torch.set_num_threads(self.threads // 2)
            # A new thread has torch's default modes.
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                with torch.autocast("cpu", dtype=dtype, enabled=enabled):
                    return function(half)

        try:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                return list(pool.map(run_half, range(2)))
        finally:
            torch.set_num_threads(self.threads)

    def random_bits(self, x):
        """Return 16 random bits for each value; halves draw them in the order of a whole batch.

        The half that comes first draws for both.
        """
        half = getattr(self._local, "half", None)
        if half is None:
            return _random_bits(x.shape)
        call, self._local.calls = self._local.calls, self._local.calls + 1
        with self._lock:
            if call not in self._drawn:
                self._drawn[call] = _random_bits((self.rows[1].stop, *x.shape[1:]))
                return self._drawn[call][self.rows[half]]
            return self._drawn.pop(call)[self.rows[half]]


class _EncodeInHalves(torch.autograd.Function):
    """Encode two halves; the backward pass computes the gradients of both, and adds them."""

    @staticmethod
    def forward(ctx, halves, encode_half, *parameters):
        """Return the encoder's outputs of all rows."""
        with torch.enable_grad():
            outputs = halves.run(encode_half)
        ctx.run, ctx.rows = halves.run, halves.rows
        ctx.outputs, ctx.parameters = outputs, parameters
        ctx.set_materialize_grads(False)
        return tuple(torch.cat([x.detach() for x in pair]) for pair in zip(*outputs))

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        """Return the gradients of the parameters."""

        def differentiate(half):
            used = [
                (output, gradient[ctx.rows[half]])
                for output, gradient in zip(ctx.outputs[half], gradients)
                if gradient is not None and output.requires_grad
            ]
            outputs, weights = zip(*used)
            return torch.autograd.grad(outputs, ctx.parameters, weights, allow_unused=True)

        both = zip(*ctx.run(differentiate))
        return None, None, *(None if one is None else one + other for one, other in both)


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
