"""One update on one batch. Notebook 02 writes it by hand; `fit` is the loop around it.

Where memory runs out, the batch is processed in halves, quarters and so on, with the gradient of
the whole. The idea is from the slides that reproduce MT-DNN; there each part counts as much as the
whole batch, here in proportion to its examples.
"""

import contextlib
import math
import warnings

import torch

from mmlkit.heads.linear import Loss
from mmlkit.runtime import autocast, random_state, set_random_state
from mmlkit.training.distributed import ALONE
from mmlkit.training.evaluation import unless_out_of_memory
from mmlkit.training.fast import cpu_shortcuts, fast_matmul, one_of_two_threads, rows_in_use

__all__ = ["check_finite", "checks_at_once", "train_step"]

# A scaler starts at 2^16. Below this scale 28 steps in a row have failed, and halving does not
# help.
SMALLEST_SCALE = 2.0**-11


def train_step(
    model,
    batch,
    optimizer,
    *,
    micro_batch_size=None,
    clip=1.0,
    precision="auto",
    scaler=None,
    group=ALONE,
):
    """Make one update on one batch.

    Where memory runs out, the gradient so far is discarded and the size halved, with the same
    random numbers as if that size had been asked for. A warning and `Loss.micro_batch_size` name
    the size that fitted. CPU shortcuts act inside (see training/fast.py); the word table has no
    gradient afterwards.

    On a GPU with a fused optimizer no value is read, so that the host need not wait. A step that is
    not finite then changes no weight and raises no error; `check_finite` raises it later.

    Args:
        model: a MultitaskModel.
        batch: a Batch on the model's device.
        optimizer: any torch optimizer over the model's parameters whose step needs no closure.
        micro_batch_size: examples (rows, or whole queries of a ranking task) per forward pass; all
            by default. The gradient is that of the whole batch, and a head's penalty counts once.
        clip: the largest global gradient norm, or None.
        precision: see `runtime.autocast`. fp16 needs a scaler; "auto" is fp32 where fp16 would need
            one and none is given.
        scaler: a torch.amp.GradScaler. It skips a step whose gradient overflows and halves its
            scale; the Loss of such a step may be infinite.
        group: the processes that train together. The batch is then this one's `Group.share`.

    Returns:
        The Loss of the batch, of all shares together, penalty included.

    Raises:
        ValueError: micro_batch_size is below one, or fp16 has no scaler.
        FloatingPointError: the loss or a gradient is not finite; no weight has moved. With a scaler
            this is raised once its scale has been halved 28 times.
        OutOfMemoryError: a single example does not fit (torch.OutOfMemoryError, from a private
            function).
    """
    if micro_batch_size is not None and micro_batch_size < 1:
        raise ValueError(
            f"micro_batch_size is {micro_batch_size}, expected at least 1, or None for the whole "
            "batch."
        )
    if scaler is None and autocast(precision, model.device)[1]:
        if precision != "auto":
            raise ValueError(
                "precision 'fp16' needs a scaler, because small gradients would become 0: pass "
                "scaler=torch.amp.GradScaler(), or precision='auto'."
            )
        precision = "fp32"
    wanted = size = int(min(micro_batch_size or len(batch), len(batch)))
    random = random_state(model.device)
    while True:
        # None, not zero: parameters of other tasks then stay bit-identical. Of the whole model,
        # because the optimizer may hold a part of it.
        optimizer.zero_grad(set_to_none=True)
        model.zero_grad(set_to_none=True)
        shortcuts = cpu_shortcuts(model.encoder, shared=group.size > 1)
        with fast_matmul(model.device), shortcuts as meanwhile:
            penalty = meanwhile(model.head(batch.task).penalty)
            loss = unless_out_of_memory(
                lambda size=size: _backward(model, batch, size, precision, scaler)
            )
            if loss is not None:
                group.sum([loss.total, loss.per_head, *(p.grad for p in model.parameters())])
                loss = _with_penalty(loss, penalty(), scaler)
                loss = _update(loss, model, batch, optimizer, clip, scaler)
                break
        size = _half(size, batch)
        set_random_state(random, model.device)
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
        share = batch.weight * len(part) / len(batch)
        with autocast(precision, model.device)[0]:
            loss = model.loss(part)
        _scaled(loss.total * share, scaler).backward()
        total = total + loss.total.detach() * share
        if loss.per_head is not None:
            per_head = loss.per_head * share + (0 if per_head is None else per_head)
    return Loss(total, per_head)


def _with_penalty(loss, penalty, scaler):
    if penalty is None:
        return loss
    _scaled(penalty, scaler).backward()
    return loss._replace(total=loss.total + penalty.detach())


def _update(loss, model, batch, optimizer, clip, scaler):
    """Clip the gradient and step; return the Loss with the gradient's norm."""
    held = {id(one) for params in optimizer.param_groups for one in params["params"]}
    trained = [one for one in model.parameters() if one.grad is not None and id(one) in held]
    if scaler is not None and trained:
        scaler.unscale_(optimizer)
    norm = loss.total.new_zeros(())  # on the device, also where the optimizer holds another head
    at_once = checks_at_once(model.device, optimizer)
    with rows_in_use(trained) as clipped:
        if trained:
            norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in clipped])
        # A factor of 1 takes a fiftieth of a step. Where the norm is not read, torch decides.
        if clip is not None and not (at_once and norm + 1e-6 <= clip):
            # A norm of 0 clips nothing; one that is not finite would give NaN.
            with one_of_two_threads(model.device):
                torch.nn.utils.clip_grads_with_norm_(clipped, clip, norm.nan_to_num(0.0, 0.0, 0.0))
    loss = loss._replace(gradient_norm=norm)
    head = model.head(batch.task)
    unmoved = getattr(head, "dropped_heads_unmoved", contextlib.nullcontext)
    with unmoved(), one_of_two_threads(model.device):
        if scaler is not None:  # it skips a step whose gradient is not finite
            if trained:
                scaler.step(optimizer)
                scaler.update()
        elif not at_once:  # torch's fused optimizers skip a step where found_inf is 1
            optimizer.found_inf = 1.0 - (loss.total.isfinite() & norm.isfinite()).float()
            optimizer.step()
            del optimizer.found_inf
        else:
            check_finite(loss, batch.task.name)
            optimizer.step()
    if scaler is not None and at_once:
        check_finite(loss, batch.task.name, scaler)
    return loss


def checks_at_once(device, optimizer):
    """Decide whether `train_step` reads the loss and the gradient's norm to check them.

    On a GPU, a fused optimizer makes this unnecessary: it skips a step that is not finite. The
    fused optimizers for MPS are not known to do so.

    Args:
        device: the model's device.
        optimizer: any torch optimizer.

    Returns:
        True on a CPU, on MPS, and for an optimizer that is not fused.
    """
    fused = all(group.get("fused") for group in optimizer.param_groups)
    return device.type in ("cpu", "mps") or not fused


def check_finite(loss, task, scaler=None):
    """Check that a training step has not diverged. This reads the loss, and so waits for a GPU.

    Args:
        loss: the Loss that `train_step` returned.
        task: the name of the task.
        scaler: the scaler of the step. Its scale may still fall, unless it is too small already.

    Raises:
        FloatingPointError: the loss or the gradient is not finite.
    """
    total, norm = loss.total.item(), loss.gradient_norm.item()
    if math.isfinite(total) and math.isfinite(norm):
        return
    if scaler is not None and scaler.get_scale() >= SMALLEST_SCALE:  # this waits for a GPU
        return
    if not math.isfinite(total):
        raise FloatingPointError(f"the loss of task {task!r} is {total}")
    raise FloatingPointError(f"the gradient of task {task!r} is {norm}, its loss {total:.4g}")


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
