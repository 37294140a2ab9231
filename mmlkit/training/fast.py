"""The shortcuts that make a training step faster on a CPU. They act inside `train_step` alone.

Outside of it the encoder is plain PyTorch, so that any loop and any optimizer can train it. Each shortcut says what it saves.
"""

import contextlib
import functools

import torch
from torch import nn

__all__ = ["cpu_shortcuts"]


@contextlib.contextmanager
def cpu_shortcuts(encoder):
    """Switch the CPU shortcuts on for one training step of an encoder; nothing changes on another device.

    On leaving, the encoder is as it was, but for one thing: the gradient of the word table is None, not the step's.

    Args:
        encoder: a BertModel.
    """
    if encoder.embeddings.word_embeddings.weight.device.type != "cpu":
        yield
        return
    with _reused_gradient(encoder.embeddings.word_embeddings), _shared_random_bits(encoder):
        yield


@contextlib.contextmanager
def _reused_gradient(table):
    """Add only the rows in use to one zero buffer, instead of making a dense gradient of the word table (a tenth of a step).

    The numbers are those of a dense gradient. `sparse` gives the rows; where something else reads the table (a tied decoder),
    autograd hands over a dense gradient, and the whole buffer is cleared after the step.
    """
    weight = table.weight
    if not weight.requires_grad or table.sparse:
        yield
        return
    buffer = getattr(weight, "reused_gradient", None)
    if buffer is None or buffer.shape != weight.shape or buffer.dtype != weight.dtype or buffer.device != weight.device:
        buffer = weight.reused_gradient = torch.zeros_like(weight)
    used = []       # of each backward pass: the rows it added to, or None for all of them
    handle = weight.register_hook(lambda gradient: used.append(gradient._indices()[0] if gradient.is_sparse else None))
    weight.grad, table.sparse = buffer, True
    try:
        yield
    except BaseException:
        used.append(None)       # a pass that broke off may have added to any row
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
    """Draw one random number for four dropout decisions: torch draws one for each, alone a tenth of a step."""
    modules = [module for module in encoder.modules() if type(module) is nn.Dropout and module.p and module.training]
    for module in modules:
        module.forward = functools.partial(_dropout, module.p)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _dropout(p, x):
    """Zero each number with probability p, exact to 1/65536, and scale the rest by 1/(1-p)."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-2**63, None)      # 64 random bits each
    keep = draws.view(torch.int16)[:x.numel()] >= round(p * 65536) - 32768
    return x * keep.view(x.shape).to(x.dtype).mul_(1 / (1 - p))
