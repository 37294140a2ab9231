"""Shortcuts for speed, each with its reason.

`cpu_shortcuts` acts inside `train_step`, `two_at_a_time` and `packed_weights` in predictions.
Elsewhere the encoder is plain PyTorch, so that any loop and any optimizer can train it.
`fast_matmul` chooses the path of a matrix product. On a CPU the precision stays that of fp32; the
rounding may differ.
"""

import collections
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

from mmlkit.bert.model import BertIntermediate, BertModel, BertOutput

__all__ = [
    "cpu_shortcuts",
    "fast_matmul",
    "free_buffers",
    "in_halves",
    "one_of_two_threads",
    "packed_weights",
    "rows_in_use",
    "two_at_a_time",
]

SMALLEST = 160  # tokens of a batch; in training, adding two gradients of fewer takes too long
# Modules that treat each row by itself, and draw random numbers in `_dropout` alone.
KNOWN = (nn.Dropout, nn.Embedding, nn.LayerNorm, nn.Linear, nn.ModuleDict, nn.ModuleList)
PACKED_FROM = 5_000  # tokens; for fewer than 3,000, packing the weights takes longer than it saves
TORCH = "torch.nn."  # in evaluation mode, all its modules treat each row by itself


@contextlib.contextmanager
def cpu_shortcuts(encoder, shared=False):
    """Switch the CPU shortcuts on for one training step; nothing changes on another device.

    Afterwards the gradient of the word table is None, and its weight keeps a buffer of its size for
    the next step. `free_buffers` removes it.

    Args:
        encoder: a BertModel.
        shared: whether other processes add their gradients to this one's.

    Yields:
        The function `_Halves.meanwhile`.
    """
    if encoder.embeddings.word_embeddings.weight.device.type != "cpu":
        yield _Halves(encoder).meanwhile
        return
    table = encoder.embeddings.word_embeddings
    with in_halves(encoder) as halves, _reused_gradient(table, shared):
        with _shared_random_bits(encoder, halves.random_bits):
            yield halves.meanwhile


def free_buffers(encoder):
    """Remove the buffer of `cpu_shortcuts`, which would be saved with a pickled model.

    Args:
        encoder: a BertModel.
    """
    vars(encoder.embeddings.word_embeddings.weight).pop("reused_gradient", None)


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
    weight.grad, table.sparse, buffer.used = buffer, True, used
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
def rows_in_use(parameters):
    """Let the rows of the word table that have a gradient stand for it (a fiftieth of a step).

    All other rows are zero, so the norm and the clipped gradient are the same.

    Args:
        parameters: a list of parameters with gradients.

    Yields:
        The list, where a tensor with the rows stands for the table. At the end, its gradient is
        written into that of the table.
    """
    yielded, tables = list(parameters), []
    for i, parameter in enumerate(parameters):
        used = getattr(parameter.grad, "used", None)  # see `_reused_gradient`
        if used and not any(rows is None for rows in used):
            rows = torch.cat(used).unique()
            yielded[i] = parameter.detach()[rows]
            yielded[i].grad = parameter.grad[rows]
            tables.append((parameter.grad, rows, yielded[i].grad))
    yield yielded
    for gradient, rows, part in tables:
        gradient[rows] = part


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
    # Integers, because torch is ten times as slow where the result is of type bool.
    keep = random_bits(x).ge_(min(round(p * 65536), 65535) - 32768)
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
    if not _fits_two_threads(encoder, encoder):
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
        self._function = self._future = None  # of `meanwhile`

    def meanwhile(self, function):
        """Return a function with the same result, which a thread computes when it is free.

        A thread is free when it has ended its half of the backward pass. Another one then adds the
        gradients, which waits for the memory (a fortieth of a step with 384 heads).
        """
        if self.pool is None:
            return function
        self._function = _in_these_modes(lambda _: function(), self.threads // 2)
        return lambda: self._future.result() if self._future else function()

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

    def run(self, function, meanwhile=None):
        """Return [function(0), function(1)], each computed in a thread of its own.

        The thread that ends first goes on with `meanwhile`.
        """

        def run_half(half):
            self._local.half, self._local.calls = half, 0
            return function(half)

        run_half = _in_these_modes(run_half, self.threads // 2)
        futures = [self.pool.submit(run_half, half) for half in (0, 1)]
        if meanwhile:
            self._future = self.pool.submit(meanwhile, None)
        try:
            return [future.result() for future in futures]
        finally:
            concurrent.futures.wait(futures)  # also after an interrupt
            torch.set_num_threads(self.threads)

    def gradients(self, differentiate):
        """Return the sums of the gradients of both halves, and compute the function of `meanwhile`.

        Nothing else of the step runs beside that function.
        """
        function, self._function = self._function, None
        first, second = map(list, self.run(differentiate, function))
        owners = collections.Counter(one.data_ptr() for one in first if _is_whole(one))
        with one_of_two_threads(torch.device("cpu")):
            for i, one in enumerate(first):  # each pair is freed before the next sum
                if one is not None:
                    alone = _is_whole(one) and owners[one.data_ptr()] == 1
                    first[i] = one.add_(second[i]) if alone else one + second[i]
                second[i] = one = None
        if self._future:
            concurrent.futures.wait([self._future])
        return first

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


@contextlib.contextmanager
def two_at_a_time(model):
    """Predict two batches at once, in two threads of a CPU (about a tenth of a prediction).

    The threads do not wait for each other as those of `in_halves` do, and each batch is padded to
    its own longest row. Nothing changes where `in_halves` changes nothing, or where a head has
    hooks or is from another library.

    Args:
        model: a MultitaskModel.

    Yields:
        (the number of batches at a time, a function like `map`).
    """
    threads = torch.get_num_threads()
    if not _fits_two_threads(model.encoder, model, TORCH):
        yield 1, map
        return
    torch.set_num_threads(threads)  # a small first batch then uses MKL as later ones do
    with concurrent.futures.ThreadPoolExecutor(2) as pool:

        def apply(function, items):
            if len(items) < 2:  # both threads for the only one
                yield from map(function, items)
                return
            futures = [pool.submit(_in_these_modes(function, threads // 2), one) for one in items]
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()  # after an error
                concurrent.futures.wait(futures)
                torch.set_num_threads(threads)

        yield 2, apply


@contextlib.contextmanager
def packed_weights(encoder, tokens, apply=map):
    """Keep the weights of the layers in oneDNN's own order for a prediction of many tokens.

    A product then neither reorders them nor copies the bias, and computes GELU while its result is
    in the cache (a tenth to a fifth of a prediction, on a Xeon). The copy needs as much memory as
    the weights. Values are the same up to rounding.

    Args:
        encoder: a BertModel. Nothing changes for one on another device, with hooks, or with weights
            that are not fp32.
        tokens: how many are to be predicted. Nothing changes below PACKED_FROM.
        apply: the function of `two_at_a_time`, so that two threads pack.

    Yields:
        Nothing.
    """
    if tokens < PACKED_FROM or not _is_plain(encoder, encoder, TORCH):
        yield
        return
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    dense = [
        module
        for module in encoder.encoder.modules()
        if type(module) is nn.Linear and module.bias is not None
    ]
    if any(one.weight.dtype != torch.float32 for one in dense) or not _packing_is_exact(dtype):
        yield
        return
    usual = set(dense)  # a user may have replaced some
    wide = [m for m in encoder.modules() if type(m) is BertIntermediate and m.dense in usual]
    followed = {module.dense: "gelu" for module in wide}

    def pack(module):
        weight, bias = (x.detach().to(dtype) for x in (module.weight, module.bias))
        weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        return functools.partial(_linear, weight, bias, followed.get(module, "none"))

    for module, product in zip(dense, list(apply(pack, dense))):
        module.forward = product
    for module in wide:
        module.forward = module.dense.forward
    try:
        yield
    finally:
        for module in dense + wide:
            del module.forward


def _linear(weight, bias, activation, x):
    """Return the activation of W x + b, computed by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(
        x.to(bias.dtype), weight, bias, activation, [], "none"
    )


@functools.cache
def _packing_is_exact(dtype):
    """Test whether this torch and this CPU have the products, which torch.compile uses."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=generator).to(dtype) for shape in ((9, 32), (24, 32), (24,))
    )
    expected = nn.functional.gelu(nn.functional.linear(x, weight, bias)).float()
    try:
        found = _linear(torch.ops.mkldnn._reorder_linear_weight(weight), bias, "gelu", x).float()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.allclose(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-5)


def _in_these_modes(function, threads):
    """Return the function for another thread, with the modes of this one and so many threads."""
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
    cache = torch.is_autocast_cache_enabled()

    def call(item):
        torch.set_num_threads(threads)
        # A thread has its own modes. A context for autocast would clear the casts of both.
        torch.set_autocast_dtype("cpu", dtype)
        torch.set_autocast_enabled("cpu", enabled)
        torch.set_autocast_cache_enabled(cache)
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            return function(item)

    return call


def _fits_two_threads(encoder, module, *known):
    """Return whether two threads may call a module, which has this encoder, at the same time."""
    even = torch.get_num_threads() % 2 == 0
    return even and _free_cpus() > 1 and _is_plain(encoder, module, *known)


def _is_plain(encoder, module, *known):
    """Return whether a module is on a CPU, without hooks, and its parts are in KNOWN or `known`."""
    if type(encoder) is not BertModel:
        return False
    modules, parameters = list(module.modules()), list(module.parameters())
    known = ("mmlkit.", *known)
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        all(parameter.device.type == "cpu" for parameter in parameters)
        and all(type(m) in KNOWN or type(m).__module__.startswith(known) for m in modules)
        and not any("forward" in vars(m) for m in modules)
        and not any(getattr(x, kind, None) for x in modules + parameters for kind in kinds)
    )


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
        ctx.halves, ctx.rows, ctx.outputs, ctx.parameters = halves, rows, outputs, parameters
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

        return None, None, None, *ctx.halves.gradients(differentiate)


def _is_whole(gradient):
    """Return whether a gradient is all of a dense tensor; a sum may then be written into it.

    New memory for each sum takes a fiftieth of a step.
    """
    dense = gradient is not None and not gradient.is_sparse
    return dense and gradient.untyped_storage().nbytes() == gradient.nbytes


@contextlib.contextmanager
def one_of_two_threads(device):
    """Use one of two threads of a CPU for what waits for the memory (a seventieth of a step).

    These are the sum of gradients, clipping and the optimizer. One thread keeps the memory busy,
    and torch would wake the other one for each parameter. With more threads nothing changes.

    Args:
        device: a torch.device.

    Yields:
        Nothing.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads != 2:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
