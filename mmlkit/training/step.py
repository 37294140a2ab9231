"""One update on one batch. Notebook 02 writes it by hand; `fit` is the loop around it.

Where memory runs out, the batch is processed in halves, quarters and so on, with the gradient of
the whole. The idea is from the slides that reproduce MT-DNN; there each part counts as much as the
whole batch, here in proportion to its examples.
"""

import contextlib
import functools
import warnings

import torch

from mmlkit.heads.linear import Loss
from mmlkit.runtime import autocast, random_state, set_random_state
from mmlkit.training.distributed import ALONE
from mmlkit.training.evaluation import half_of, unless_out_of_memory
from mmlkit.training.fast import clear_gradients, cpu_shortcuts, fast_matmul

__all__ = ["refuse_half_precision", "train_step"]

OTHER_MODEL = (
    "The optimizer has parameters of another model. Make it from this one's: "
    "make_optimizer(model, lr=...)."
)


def refuse_half_precision(parameters):
    """Refuse weights that most small updates would not change.

    Args:
        parameters: those that are trained.

    Raises:
        ValueError: one that requires a gradient is in half precision.
    """
    for one in parameters:
        if one.requires_grad and one.dtype.itemsize < 4:
            raise ValueError(
                f"weights in {one.dtype} round most small updates away. Train model.float(); "
                "precision='bf16' then computes in half precision; in transformers' Trainer "
                "TrainingArguments(bf16=True)."
            )


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
    graphs=None,
):
    """Make one update on one batch.

    A step whose loss or gradient is not finite changes no weight and raises no error: the Loss
    shows it. With a fused optimizer, such as that of `make_optimizer`, no value is read on the
    host, so that a GPU need not wait.

    Where memory runs out, the gradient so far is discarded and the size halved, with the same
    random numbers as if that size had been asked for. A warning and `Loss.micro_batch_size` name
    the size that fitted.

    Args:
        model: a MultitaskModel.
        batch: a Batch on the model's device.
        optimizer: any torch optimizer over the model's parameters whose step needs no closure.
        micro_batch_size: examples (rows, or whole queries of a ranking task) per forward pass; all
            by default. The gradient is that of the whole batch, and a head's penalty counts once.
        clip: the largest global gradient norm, or None.
        precision: see `runtime.autocast`. fp16 needs a scaler; "auto" is fp32 where fp16 would need
            one and none is given.
        scaler: a torch.amp.GradScaler. It halves its scale where the gradient is not finite.
        group: the processes that train together. The batch is then this one's `Group.share`.
        graphs: a StepGraphs, which replays this update on a CUDA GPU as a whole.

    Returns:
        The Loss of the batch, of all shares together, penalty included.

    Raises:
        ValueError: fp16 has no scaler; or the optimizer holds weights in half precision, or none of
            this model.
        OutOfMemoryError: a single example does not fit, and no weight has moved
            (torch.OutOfMemoryError, from `half_of`).
    """
    if scaler is None and autocast(precision, model.device)[1]:
        if precision != "auto":
            raise ValueError(
                "precision 'fp16' needs a scaler, because small gradients would become 0: pass "
                "scaler=torch.amp.GradScaler(), or precision='auto'."
            )
        precision = "fp32"

    def update(batch, size, guard=unless_out_of_memory):
        clear_gradients(model)
        with fast_matmul(model.device), cpu_shortcuts(model):
            loss = guard(lambda: _backward(model, batch, size, precision, scaler))
            if loss is None:
                return None
            group.sum([loss.total, loss.per_head, *(p.grad for p in model.parameters())])
            loss = _with_penalty(loss, model.head(batch.task), scaler)
            return _update(loss, model, batch, optimizer, clip, scaler)

    wanted = size = min(micro_batch_size or len(batch), len(batch))
    if graphs is not None and group.size == 1:
        whole = functools.partial(update, size=size, guard=lambda backward: backward())
        loss = graphs.run(model, batch, optimizer, (size, clip, precision), whole)
        if loss is not None:
            return loss
    random = random_state(model.device)
    while (loss := update(batch, size)) is None:
        tokens = f"{batch.input_ids.shape[1]} tokens with its padding"
        one = f"one of the {_unit(batch)} of task {batch.task.name!r} ({tokens})"
        size = half_of(size, one)
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


def _with_penalty(loss, head, scaler):
    """Add the gradient of the head's penalty, once for all micro-batches and processes."""
    penalty = head.penalty()
    if penalty is None:
        return loss
    _scaled(penalty, scaler).backward()
    return loss._replace(total=loss.total + penalty.detach())


def _update(loss, model, batch, optimizer, clip, scaler):
    """Clip the gradient and step, if all is finite; return the Loss with the gradient's norm."""
    held = {id(one) for params in optimizer.param_groups for one in params["params"]}
    held = [one for one in model.parameters() if id(one) in held]
    trained = [one for one in held if one.grad is not None]
    refuse_half_precision(trained)
    if not held:
        raise ValueError(OTHER_MODEL)
    if not trained:  # the optimizer holds the head of another task
        return loss._replace(gradient_norm=torch.zeros_like(loss.total))
    if scaler is not None:
        scaler.unscale_(optimizer)
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in trained])
    if clip is not None and not (norm.is_cpu and norm <= clip):  # a GPU would wait for the norm
        torch.nn.utils.clip_grads_with_norm_(trained, clip, norm)
    finite = loss.total.isfinite() & norm.isfinite()
    unmoved = getattr(model.head(batch.task), "dropped_heads_unmoved", contextlib.nullcontext)
    with unmoved():
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        elif all(params.get("fused") for params in optimizer.param_groups):
            optimizer.found_inf = 1.0 - finite.float()  # torch's fused ones skip where it is 1
            optimizer.step()
            del optimizer.found_inf
        elif finite:  # this waits for a GPU
            optimizer.step()
    return loss._replace(gradient_norm=norm)


def _scaled(loss, scaler):
    return loss if scaler is None else scaler.scale(loss)


def _unit(batch):
    return "rows" if batch.groups is None else "queries"
