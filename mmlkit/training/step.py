"""One update on one batch. Notebook 02 writes it by hand; `fit` is the loop around it.

Where the batch does not fit into memory it goes in halves, quarters and so on, with the gradient of the whole (an idea of the
slides that reproduce MT-DNN; there each half counted as much as the whole, here as much as its examples).
"""

import contextlib
import warnings

import torch

from mmlkit.heads.linear import Loss
from mmlkit.runtime import autocast, fast_matmul
from mmlkit.training.evaluation import unless_out_of_memory
from mmlkit.training.fast import cpu_shortcuts

__all__ = ["train_step"]

SMALLEST_SCALE = 2.0**-10      # a scaler starts at 2^16: below this, 26 steps in a row have failed, and halving it is no cure


def train_step(model, batch, optimizer, *, micro_batch_size=None, clip=1.0, precision="fp32", scaler=None):
    """One update on one batch; returns the Loss it was taken on.

    micro_batch_size: examples (rows, or whole queries where candidates are ranked) that go through the model at a time, all by
    default; the gradient is the whole batch's either way, and a head's penalty counts once. Where memory runs out, the attempt's
    gradient is thrown away and the size halved, with the same random draws as if it had been asked for; a warning and
    `Loss.micro_batch_size` say what worked. clip: largest global gradient norm, or None. precision: see `runtime.autocast`;
    fp16 needs a torch.amp.GradScaler as `scaler`: a step whose gradient overflows is then skipped and the scale
    halved, and such a step's Loss may be infinite. CPU shortcuts act inside (see fast.py); afterwards the word table has no gradient, whatever the others have.
    Raises ValueError for a micro_batch_size below one; FloatingPointError, before any weight moves, when the loss or a gradient
    is not a finite number, with a scaler only after its scale has been halved 26 times; torch.OutOfMemoryError when a single
    example does not fit.
    """
    if micro_batch_size is not None and micro_batch_size < 1:
        raise ValueError(f"micro_batch_size is {micro_batch_size}, expected at least 1, or None for the whole batch.")
    asked = size = min(micro_batch_size or len(batch), len(batch))
    random = _random_state(model.device)
    while True:
        optimizer.zero_grad(set_to_none=True)       # None, not zero: parameters of other tasks then stay bit-identical
        with fast_matmul(model.device), cpu_shortcuts(model.encoder):
            loss = unless_out_of_memory(lambda size=size: _backward(model, batch, size, precision, scaler))
            if loss is not None:
                loss = _with_penalty(loss, model, batch, scaler)
                _update(loss, model, batch, optimizer, clip, scaler)
                break
        size = _half(size, batch)
        _set_random_state(model.device, random)
    if size == asked:
        return loss
    warnings.warn(f"task {batch.task.name!r}: {asked} {_what(batch)} at a time did not fit into memory, {size} did; the gradient is that of "
                  f"all {len(batch)} either way.", stacklevel=2)
    return loss._replace(micro_batch_size=size)


def _backward(model, batch, size, precision, scaler):
    """Adds the gradient of the part that depends on data, `size` examples at a time; returns its Loss."""
    total, per_head = 0.0, None
    for part in [batch] if size >= len(batch) else batch.split(size):
        share = len(part) / len(batch)
        with autocast(precision, model.device)[0]:
            loss = model.loss(part)
        _scaled(loss.total * share, scaler).backward()
        total = total + loss.total.detach() * share
        if loss.per_head is not None:
            per_head = loss.per_head * share + (0 if per_head is None else per_head)
    return Loss(total, per_head)


def _with_penalty(loss, model, batch, scaler):
    penalty = model.head(batch.task).penalty()
    if penalty is None:
        return loss
    _scaled(penalty, scaler).backward()
    return loss._replace(total=loss.total + penalty.detach())


def _update(loss, model, batch, optimizer, clip, scaler):
    total, task = loss.total, batch.task.name
    if not torch.isfinite(total) and (scaler is None or scaler.get_scale() < SMALLEST_SCALE):
        raise FloatingPointError(f"the loss of task {task!r} is {total.item()}")
    if scaler is not None:
        scaler.unscale_(optimizer)
    gradients = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in gradients])
    if torch.isfinite(norm):
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(gradients, clip, norm)
    elif scaler is None:        # a scaler skips such a step by itself; clipping would make every gradient NaN
        raise FloatingPointError(f"the gradient of task {task!r} is {norm.item()}, its loss {total.item():.4g}")
    head = model.head(batch.task)
    with getattr(head, "dropped_heads_unmoved", contextlib.nullcontext)():
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


def _scaled(loss, scaler):
    return loss if scaler is None else scaler.scale(loss)


def _half(size, batch):
    if size == 1:
        raise torch.OutOfMemoryError(f"one of the {_what(batch)} of task {batch.task.name!r} ({batch.input_ids.shape[1]} tokens with its padding) does "
                                     "not fit into memory by itself, and no weight has moved. Use a smaller max_length, a smaller encoder, "
                                     "precision='bf16', or mode='pretrain'.")
    return (size + 1) // 2


def _what(batch):
    return "rows" if batch.groups is None else "queries"


def _random_state(device):
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(device, state):
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
