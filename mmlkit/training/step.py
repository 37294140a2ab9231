"""One update on one batch. Notebook 02 writes it by hand; `fit` is the loop around it.

Where memory runs out, the batch is processed in halves, quarters and so on, with the gradient of
the whole. The idea is from the slides that reproduce MT-DNN; there each part counts as much as the
whole batch, here in proportion to its examples.
"""

import contextlib
import warnings

import torch

from mmlkit.heads.linear import Loss
from mmlkit.runtime import autocast
from mmlkit.training.evaluation import unless_out_of_memory
from mmlkit.training.fast import cpu_shortcuts, fast_matmul

__all__ = ["train_step"]

# A scaler starts at 2^16. Below this scale 26 steps in a row have failed, and halving does not
# help.
SMALLEST_SCALE = 2.0**-10


def train_step(
    model, batch, optimizer, *, micro_batch_size=None, clip=1.0, precision="auto", scaler=None
):
    """Make one update on one batch.

    Where memory runs out, the gradient so far is discarded and the size halved, with the same
    random numbers as if that size had been asked for. A warning and `Loss.micro_batch_size` name
    the size that fitted. CPU shortcuts act inside (see training/fast.py); the word table has no
    gradient afterwards.

    Args:
        model: a MultitaskModel.
        batch: a Batch on the model's device.
        optimizer: any torch optimizer over the model's parameters.
        micro_batch_size: examples (rows, or whole queries of a ranking task) per forward pass; all
            by default. The gradient is that of the whole batch, and a head's penalty counts once.
        clip: the largest global gradient norm, or None.
        precision: see `runtime.autocast`. fp16 needs a scaler; "auto" is fp32 where fp16 would need
            one and none is given.
        scaler: a torch.amp.GradScaler. It skips a step whose gradient overflows and halves its
            scale; the Loss of such a step may be infinite.

    Returns:
        The Loss of the batch, penalty included.

    Raises:
        ValueError: micro_batch_size is below one.
        FloatingPointError: the loss or a gradient is not finite; no weight has moved. With a scaler
            this is raised once its scale has been halved 26 times.
        OutOfMemoryError: a single example does not fit (torch.OutOfMemoryError, from a private
            function).
    """
    if micro_batch_size is not None and micro_batch_size < 1:
        raise ValueError(
            f"micro_batch_size is {micro_batch_size}, expected at least 1, or None for the whole "
            "batch."
        )
    if precision == "auto" and scaler is None and autocast(precision, model.device)[1]:
        precision = "fp32"
    wanted = size = min(micro_batch_size or len(batch), len(batch))
    random = _random_state(model.device)
    while True:
        # None, not zero: parameters of other tasks then stay bit-identical.
        optimizer.zero_grad(set_to_none=True)
        with fast_matmul(model.device), cpu_shortcuts(model.encoder):
            loss = unless_out_of_memory(
                lambda size=size: _backward(model, batch, size, precision, scaler)
            )
            if loss is not None:
                loss = _with_penalty(loss, model, batch, scaler)
                _update(loss, model, batch, optimizer, clip, scaler)
                break
        size = _half(size, batch)
        _set_random_state(model.device, random)
    if size == wanted:
        return loss
    warnings.warn(
        f"task {batch.task.name!r}: {wanted} {_unit(batch)} at a time did not fit into memory, "
        f"{size} did; the gradient is that of all {len(batch)} either way.",
        stacklevel=2,
    )
    return loss._replace(micro_batch_size=size)


def _backward(model, batch, size, precision, scaler):
    """Add the gradient of the data loss, `size` examples at a time, and return the Loss."""
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
    trained = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in trained])
    if torch.isfinite(norm):
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(trained, clip, norm)
    elif scaler is None:  # a scaler skips such a step; clipping would make every gradient NaN
        raise FloatingPointError(
            f"the gradient of task {task!r} is {norm.item()}, its loss {total.item():.4g}"
        )
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
        raise torch.OutOfMemoryError(
            f"one of the {_unit(batch)} of task {batch.task.name!r} ({batch.input_ids.shape[1]} "
            "tokens with its padding) does not fit into memory by itself, and no weight has moved. "
            "Use a smaller max_length, a smaller encoder, precision='bf16', or freeze_encoder=True."
        )
    return (size + 1) // 2


def _unit(batch):
    return "rows" if batch.groups is None else "queries"


def _random_state(device):
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), cuda


def _set_random_state(device, state):
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
