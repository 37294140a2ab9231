"""Shortcuts for speed, each with its reason.

`cpu_shortcuts` acts inside `train_step`, and `in_halves` in predictions too. Elsewhere the encoder
is plain PyTorch, so that any loop and any optimizer can train it. `fast_matmul` chooses the path of
a matrix product. On a CPU the precision stays that of fp32; the rounding may differ.
"""

import concurrent.futures
import contextlib
import functools
import math
import os
import platform
import threading
from pathlib import Path

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from mmlkit.bert.model import BertModel, BertOutput

__all__ = ["cpu_shortcuts", "fast_matmul", "in_halves"]

SMALLEST = 160  # tokens of a batch; in training, adding two gradients of fewer takes too long
# Modules that treat each row by itself, and draw random numbers in `_dropout` alone.
KNOWN = (nn.Dropout, nn.Embedding, nn.LayerNorm, nn.Linear, nn.ModuleDict, nn.ModuleList)


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
    after the step. The same is done where other processes add their rows.
    """
    weight = table.weight
    if not weight.requires_grad or table.sparse:
        yield
        return
    buffer = getattr(weight, "reused_gradient", None)
    same = ("shape", "dtype", "device")
    if buffer is None or any(getattr(buffer, name) != getattr(weight, name) for name in same):
        buffer = weight.reused_gradient = torch.zeros_like(weight)
    used = [None] if shared else []  # for each gradient: the rows it adds to, or None for all
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
    keep = random_bits(x) >= min(round(p * 65536), 65535) - 32768
    return x * keep.to(x.dtype).mul_(1 / (1 - p))


def _random_bits(shape):
    """Draw 16 random bits for each value, 64 at a time."""
    size = math.prod(shape)
    draws = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[:size].view(shape)


@contextlib.contextmanager
def in_halves(encoder):
    """Encode each batch as two halves, in two threads of a CPU (an eighth to a quarter of a step).

    torch's own threads wait for each other after every operation, the halves only at the end of a
    pass. Values and gradients are those of the whole batch up to rounding, with the same dropout. A
    run repeats bit for bit with the same number of threads. One backward pass is possible, and a
    profiler sees little of the halves: set one thread to profile. Both passes belong inside.

    Nothing changes on another device, for a small batch, with one thread or an odd number, or where
    the encoder has hooks or modules of other libraries.

    Args:
        encoder: a BertModel.

    Yields:
        The `_Halves`.
    """
    halves = _Halves(encoder)
    if not halves.possible():
        yield halves
        return
    torch.set_num_threads(halves.threads)  # a small first batch then uses MKL as later ones do
    encoder.forward = functools.partial(halves.encode, encoder.forward)
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as halves.pool:
            yield halves
    finally:
        del encoder.forward


class _Halves:
    """Two threads, each with one half of a batch and half of torch's threads.

    Args:
        encoder: a BertModel.
    """

    def __init__(self, encoder):
        self.encoder, self.threads, self.pool = encoder, torch.get_num_threads(), None
        self._local = threading.local()  # in a thread: its half, and its calls of random_bits
        self._lock = threading.Lock()
        self._rows, self._drawn = (), {}

    def possible(self):
        """Return whether the encoder may be called in halves, see `in_halves`."""
        if type(self.encoder) is not BertModel or self.threads % 2:
            return False
        modules, parameters = list(self.encoder.modules()), list(self.encoder.parameters())
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        return (
            all(parameter.device.type == "cpu" for parameter in parameters)
            and _free_cpus() > 1
            and all(type(m) in KNOWN or type(m).__module__.startswith("mmlkit.") for m in modules)
            and not any("forward" in vars(module) for module in modules)
            and not any(getattr(x, kind, None) for x in modules + parameters for kind in kinds)
        )

    def encode(self, forward, input_ids, attention_mask=None, token_type_ids=None, **options):
        """Return what `forward` returns for the whole batch."""
        inputs, size = (input_ids, attention_mask, token_type_ids), len(input_ids)
        if size < 2 or input_ids.numel() < SMALLEST:
            return forward(*inputs, **options)
        rows = slice(0, size // 2), slice(size // 2, size)
        self._rows, self._drawn = rows, {}

        def encode_half(half):
            return forward(*(x if x is None else x[rows[half]] for x in inputs), **options)

        trained = [p for p in self.encoder.parameters() if p.requires_grad]
        if torch.is_grad_enabled() and trained:
            outputs = _EncodeInHalves.apply(self, encode_half, rows, *trained)
        else:
            outputs = map(torch.cat, zip(*self.run(encode_half)))
        return BertOutput(*outputs)

    def run(self, function):
        """Return [function(0), function(1)], each computed in a thread of its own."""
        inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
        cache = torch.is_autocast_cache_enabled()

        def run_half(half):
            self._local.half, self._local.calls = half, 0
            torch.set_num_threads(self.threads // 2)
            # A thread has its own modes. A context for autocast would clear the casts of both.
            torch.set_autocast_dtype("cpu", dtype)
            torch.set_autocast_enabled("cpu", enabled)
            torch.set_autocast_cache_enabled(cache)
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                return function(half)

        futures = [self.pool.submit(run_half, half) for half in (0, 1)]
        try:
            return [future.result() for future in futures]
        finally:
            concurrent.futures.wait(futures)  # also after an interrupt
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
                self._drawn[call] = _random_bits((self._rows[1].stop, *x.shape[1:]))
                return self._drawn[call][self._rows[half]]
            return self._drawn.pop(call)[self._rows[half]]


def _free_cpus():
    """Return the number of CPUs that a new thread may use; OMP_PROC_BIND may leave one."""
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known else os.cpu_count()


class _EncodeInHalves(torch.autograd.Function):
    """Encode two halves; the backward pass computes the gradients of both, and adds them."""

    @staticmethod
    def forward(ctx, halves, encode_half, rows, *parameters):
        """Return the encoder's outputs of all rows."""
        with torch.enable_grad():
            outputs = halves.run(encode_half)
        ctx.run, ctx.rows, ctx.outputs, ctx.parameters = halves.run, rows, outputs, parameters
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
            if not used:
                return len(ctx.parameters) * [None]
            outputs, weights = zip(*used)
            return torch.autograd.grad(outputs, ctx.parameters, weights, allow_unused=True)

        first, second = map(list, ctx.run(differentiate))
        for i, one in enumerate(first):  # each pair is freed before the next sum
            first[i] = None if one is None else one + second[i]
            second[i] = one = None
        return None, None, None, *first


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
