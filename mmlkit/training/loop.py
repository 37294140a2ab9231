"""The loop around `train_step`; every notebook from 02 on calls `fit`.

Data order, task order, learning rate and dropout are functions of (seed, epoch, step), so that a
run can be resumed.
"""

import contextlib
import functools
import math
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from mmlkit.data.batching import collate, plan_examples
from mmlkit.data.loading import TaskData
from mmlkit.heads.linear import Loss
from mmlkit.heads.pruning import HeadPruner
from mmlkit.runtime import (
    autocast,
    delayed_interrupt,
    is_interactive,
    place,
    seed_generators,
    seeded,
    turn,
)
from mmlkit.training import metrics
from mmlkit.training.distributed import join
from mmlkit.training.evaluation import encode_split, score_encoded
from mmlkit.training.features import encode_once
from mmlkit.training.graphs import StepGraphs, graphs_are_safe
from mmlkit.training.optimizers import learning_rate, make_optimizer
from mmlkit.training.resume import resume_run, run_settings, save_run
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.step import OTHER_MODEL, refuse_half_precision, train_step

__all__ = ["Hook", "StepEvent", "fit"]

# Steps between two looks at the loss of a run on a GPU, each of which waits for it.
LOOK_EVERY = 50
# A scaler starts at 2^16. Below this scale 28 steps in a row have failed, and halving does not
# help.
SMALLEST_SCALE = 2.0**-11


class StepEvent(NamedTuple):
    """One update, as it is reported to hooks. Steps are counted from 1.

    Attributes:
        step: updates so far, over all tasks.
        task: the name of the task that was updated.
        task_step: updates of this task so far.
        loss: the Loss. On a GPU nothing has read it; a step in which it or its gradient_norm is not
            finite has changed no weight.
        model: the MultitaskModel.
        optimizer: the optimizer.
    """

    step: int
    task: str
    task_step: int
    loss: Loss
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer


class Hook(Protocol):
    """An object that `fit` calls after each update, for example to prune or to log."""

    def after_step(self, event: StepEvent) -> None:
        """Act on one update.

        Args:
            event: the update.
        """

    def state_dict(self) -> dict:
        """Return the state for a checkpoint: dicts with texts as keys, lists, tensors, numbers."""

    def load_state_dict(self, state) -> None:
        """Continue from the state of a checkpoint."""


def fit(
    model,
    data,
    *,
    epochs=3,
    lr=None,
    head_lr=None,
    batch_size=32,
    sampler=None,
    optimizer="adamw",
    schedule="linear",
    warmup=0.1,
    clip=1.0,
    precision="auto",
    freeze_encoder=False,
    max_length=None,
    micro_batch_size=None,
    seed=0,
    hooks=(),
    checkpoint_dir=None,
    save_minutes=5,
    resume=False,
    device=None,
    graphs=None,
):
    """Train a MultitaskModel and leave it with the weights of its best epoch.

    Every parameter that requires a gradient is trained, or those of an optimizer object; nothing is
    ever unfrozen. The best epoch has the highest mean, over tasks, of the first dev metric; the
    first of equal epochs wins.

    Under torchrun, or accelerate's notebook_launcher (training/distributed.py), every process must
    call `fit` with the same arguments. Each trains on its share of every batch, and all get the
    same weights and the same history as one process with this batch_size, up to rounding. Dropout
    has other random numbers then. The first process writes the checkpoint, from which any number of
    processes can resume.

    Ctrl-C ends the run after the step, with a checkpoint. In a live notebook `fit` then returns the
    finished epochs and leaves the best of their weights. Anywhere else it raises KeyboardInterrupt,
    so that the program ends and no unfinished run counts as finished.

    Args:
        model: a MultitaskModel. It is moved to `device` and stays there.
        data: {task name: TaskData}, or one TaskData.
        epochs: passes of the sampler.
        lr: peak learning rate of the encoder, 2e-5 by default.
        head_lr: peak learning rate of everything else, lr by default.
        batch_size: rows per batch, or whole queries of a ranking task.
        sampler: a TaskSampler over batches; by default "merged" (every batch once per epoch,
            shuffled).
        optimizer: "adamw", "adamax", "handout", or an optimizer object. Its own learning rates are
            then the peaks of the schedule, and it has them again afterwards.
        schedule: of the learning rate: "linear", "cosine" or "constant"; see `learning_rate`.
        warmup: the share of all steps in which the learning rate rises.
        clip: see `train_step`.
        precision: see `runtime.autocast`.
        freeze_encoder: also freeze the encoder during this call. Where it is frozen as a whole, the
            features of a row are computed once (training/features.py); a hook must not change it.
        max_length: tokens to which a row is cut, by default as `MultitaskModel.cut` says. `predict`
            and `evaluate` use the same value afterwards.
        micro_batch_size: see `train_step`. A size that fitted after memory ran out is kept.
        seed: of the order of rows and tasks and of dropout.
        hooks: objects with the methods of `Hook`.
        checkpoint_dir: the folder for the last two checkpoints. One is written after each epoch.
            The checkpoints of a finished run hold only the best weights.
        save_minutes: also write a checkpoint when so many minutes have passed.
        resume: continue from checkpoint_dir if it holds a state. "auto" does so too, but starts
            again where the state belongs to another run. Settings and data are compared, and what a
            hook's `to_config` returns. A resumed run equals an uninterrupted one bit for bit on a
            CPU with as many threads. On a GPU it is equal up to rounding: the backward pass of
            fused attention adds in no fixed order.
        device: a GPU where there is one by default; see `runtime.place`.
        graphs: replay updates as CUDA graphs (training/graphs.py): None where it is safe, True also
            with heads and hooks of your own, False never.

    Returns:
        A DataFrame with a row per epoch and task: epoch, step, task, train_loss, the dev metrics,
        seconds, best.

    Raises:
        TypeError: data are tables (see `task_data`).
        ValueError: data, head, optimizer, sampler or hook do not fit together, or a checkpoint or
            another process has other settings (from private functions).
        FloatingPointError: the loss or a gradient was not finite in the last step (on a GPU: of 50
            steps), or in one of the epoch (from a private function).
        KeyboardInterrupt: Ctrl-C outside of a live notebook.

    Example::

        history = fit(model, {"sst": load_task("sst")}, epochs=2, lr=1e-4, head_lr=1e-3)
    """
    data = _checked_data(model, data)
    group, device = join(device)
    group.send_weights(place(model, device))
    model.max_length = model.cut(max_length)
    train, dev = (_encoded(model, data, split) for split in ("train", "dev"))
    if sampler is None:
        sizes = {name: math.ceil(len(one) / batch_size) for name, one in train.items()}
        sampler = TaskSampler("merged", sizes=sizes, epochs=epochs, seed=seed)
    with model.encoder_frozen(freeze_encoder):
        optimizer, hooks = _optimizer(model, optimizer, lr, head_lr), list(hooks)
        numbers = dict(epochs=epochs, lr=lr, head_lr=head_lr, batch_size=batch_size, seed=seed)
        numbers |= dict(schedule=schedule, warmup=warmup, clip=clip, precision=precision)
        _check_parts(model, data, optimizer, hooks, sampler, numbers)
        run = _Run(model, optimizer, hooks, group, precision, checkpoint_dir)
        resume_run(run, resume, lambda: run_settings(run, sampler, data, train, dev, numbers))
        for one in data.values():
            model.set_task(one.task)  # for predictions by name, and for save_model
        scoring = dict(batch_size=2 * batch_size, precision=precision, group=group)
        if model.encoder_is_constant and run.epoch < epochs:
            _add_features(model, train, dev, sampler, batch_size, scoring)
        width = dict(multiple=8 if model.device.type == "cuda" else 1, limit=model.max_length)
        batches = {
            name: _stream(one, batch_size, _seed(seed, name), width) for name, one in train.items()
        }
        graphs = graphs_are_safe(model, hooks) if graphs is None else graphs
        options = dict(clip=clip, precision=precision, scaler=run.scaler, group=group)
        options["graphs"] = StepGraphs() if graphs else None
        total = epochs * sampler.steps_per_epoch
        rates = dict(schedule=schedule, warmup=int(warmup * total), total=total)
        with delayed_interrupt() as interrupted, _turn(model, optimizer, seed):
            for epoch in range(run.epoch + 1, epochs + 1):
                model.train()
                tasks = sampler.order(epoch)[run.step - run.epoch * sampler.steps_per_epoch :]
                for name in _progress(tasks, f"epoch {epoch}/{epochs}", group):
                    _set_rates(optimizer, run.step, rates)
                    # No thread prefetches: the host reads nothing of a GPU between two steps, so
                    # that it pads and sends this batch while the GPU computes earlier steps.
                    batch = group.share(batches[name](run.task_steps.get(name, 0)))
                    seed_generators(_seed(seed, run.step) + group.rank, model.device)
                    size = min(filter(None, (micro_batch_size, run.micro.get(name))), default=None)
                    batch, options["micro_batch_size"] = batch.to(model.device), size
                    run.after_step(name, train_step(model, batch, optimizer, **options))
                    stop = interrupted.is_set()  # read once: it may be set at any moment
                    if stop or time.monotonic() - run.saved >= 60 * save_minutes:
                        save_run(run)
                    if stop:
                        return run.stop()
                scores = {name: score_encoded(model, one, **scoring) for name, one in dev.items()}
                run.after_epoch({name: _metrics(data[name], one) for name, one in scores.items()})
                save_run(run, finished=epoch == epochs)
                if interrupted.is_set():  # after the last epoch, too: a script must end
                    return run.stop()
            group.gather(None)  # until the checkpoint is there
            return run.finish()  # still in turn: another thread may predict


class _Run:
    """The changing state of a run, which a checkpoint holds."""

    def __init__(self, model, optimizer, hooks, group, precision, folder):
        self.model, self.optimizer, self.hooks, self.group = model, optimizer, hooks, group
        self.scaler = None
        if autocast(precision, model.device)[1]:
            self.scaler = torch.amp.GradScaler(model.device.type)
        self.path = folder and Path(folder).expanduser() / "last.safetensors"
        self.settings = {}
        self.epoch, self.step, self.task_steps = 0, 0, {}  # `epoch` counts finished epochs
        self.micro = {}  # {task: micro-batch size}, where memory ran out
        self.losses, self.seconds = {}, 0.0  # of this epoch; seconds before `started`
        self.history, self.best_score, self.best = [], -math.inf, None
        self.undefined = False  # whether the user knows of an epoch without any metric
        self.started, self.saved = time.perf_counter(), time.monotonic()

    def after_step(self, name, loss):
        """Count a step, look for divergence, and call the hooks."""
        self.step += 1
        self.task_steps[name] = self.task_steps.get(name, 0) + 1
        if loss.micro_batch_size is not None:
            self.micro[name] = loss.micro_batch_size
        # NaN where the gradient is not finite, too
        self.losses.setdefault(name, []).append(loss.total + 0 * loss.gradient_norm)
        if self.model.device.type == "cpu" or self.step % LOOK_EVERY == 0:
            self.check(name, [self.losses[name][-1].item()])
        event = StepEvent(self.step, name, self.task_steps[name], loss, self.model, self.optimizer)
        for hook in self.hooks:
            hook.after_step(event)

    def check(self, name, losses):
        """Stop a run that has diverged. A scaler skips steps while its scale falls."""
        if all(map(math.isfinite, losses)):
            return
        if self.scaler is not None and self.scaler.get_scale() >= SMALLEST_SCALE:
            return
        raise FloatingPointError(
            f"Training stopped at step {self.step}: the loss of task {name!r} or its gradient is "
            "not finite. Such a step changes no weight. Try a smaller lr, clip=1.0, or "
            "precision='fp32'."
        )

    def after_epoch(self, scores):
        """Add the rows of an epoch to the history, and keep its weights where it is the best."""
        self.epoch += 1
        firsts = [next(iter(values.values())) for values in scores.values()]
        # A correlation of constant predictions is nan, and counts as 0.
        score = sum(0.0 if math.isnan(first) else first for first in firsts) / len(firsts)
        undefined = all(map(math.isnan, firsts))
        if undefined and not self.undefined:
            self.undefined = True
            warnings.warn(
                f"No dev metric is defined, such as {[*next(iter(scores.values()))][0]}, because "
                "labels or predictions are all equal, or there is one row. The last such epoch "
                "counts as the best.",
                stacklevel=3,
            )
        best = score > self.best_score or (undefined and score == self.best_score)
        if best:
            self.best_score = score
            self.best = _copy_of(self.model.state_dict())
            for row in self.history:
                row["best"] = False
        seconds = round(self.seconds + time.perf_counter() - self.started, 2)
        for name, values in scores.items():
            losses = torch.stack(self.losses[name]).cpu().tolist() if name in self.losses else []
            self.check(name, losses)
            finite = [loss for loss in losses if math.isfinite(loss)]
            mean = sum(finite) / len(finite) if finite else math.nan
            row = dict(epoch=self.epoch, step=self.step, task=name, train_loss=mean, **values)
            self.history.append({**row, "seconds": seconds, "best": best})
        self.losses, self.seconds, self.started = {}, 0.0, time.perf_counter()

    def stop(self):
        """End an interrupted run: return what there is in a live notebook, raise elsewhere."""
        kept = (
            f" {self.path} holds its state; fit(..., resume=True) continues." if self.path else ""
        )
        message = f"Training was interrupted after step {self.step}.{kept}"
        if "ipykernel" not in sys.modules or not is_interactive():  # a script must end
            raise KeyboardInterrupt(message)
        warnings.warn(message, stacklevel=3)
        return self.finish()

    def finish(self):
        """Restore the best weights and return the history."""
        import pandas as pd

        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.zero_grad()  # gradients have the size of the weights
        self.model.eval()
        return pd.DataFrame(self.history)


def _copy_of(state):
    """Return a copy of weights in the memory of the host, because that of a GPU is small."""
    return {key: value.detach().to("cpu", copy=True) for key, value in state.items()}


def _checked_data(model, data):
    """Return {task name: TaskData}, if all have labels and fit the names and the heads."""
    for one in data.values() if isinstance(data, dict) else [data]:
        if not isinstance(one, TaskData):
            kind = type(one).__name__
            raise TypeError(f"data is a {kind}; pass task_data(task, train, dev) of it.")
    data = data if isinstance(data, dict) else {data.task.name: data}
    for name, one in data.items():
        model.head(one.task)
        metrics.check_metrics(one.task)
        for part in ("train", "dev"):
            split, compared = getattr(one, part), ("name", "kind", "labels", "score_range")
            if getattr(split, "labels", None) is None:
                raise ValueError(f"Task {name!r} has no labels in {part}; fit needs train and dev.")
            found = {key: getattr(split.task, key) for key in compared}
            other = {key: has for key, has in found.items() if has != getattr(one.task, key)}
            if name != one.task.name or other:
                made = f", and its {part} split was made for a task with {str(other):.300}"
                raise ValueError(
                    f"data[{name!r}] is for task {one.task.name!r}{made if other else ''}. Use the "
                    "task's own name, and load the data with this task."
                )
    return data


def _check_parts(model, data, optimizer, hooks, sampler, numbers):
    """Check that optimizer, hooks, sampler and numbers are for this model and these data."""
    own = {id(one) for one in model.parameters()}
    held = [one for params in optimizer.param_groups for one in params["params"]]
    if any(id(one) not in own for one in held):
        raise ValueError(OTHER_MODEL)
    refuse_half_precision(held)
    rates, clip = [params["peak"] for params in optimizer.param_groups], numbers["clip"]
    if not 0 <= numbers["warmup"] <= 1 or min(rates) < 0 or not (clip is None or clip > 0):
        raise ValueError(
            f"warmup is {numbers['warmup']}, clip {clip}, and the learning rates are {rates}. "
            "Expected a share of all steps (0 to 1), a norm above 0 or None, and no rate below 0."
        )
    if sampler.epochs != numbers["epochs"] or set(sampler.sizes) != set(data):
        raise ValueError(
            f"The sampler is for {sampler.epochs} epochs of {list(sampler.sizes)}; this run is "
            f"{numbers['epochs']} epochs of {list(data)}."
        )
    for hook in hooks:
        head = getattr(hook, "head", None)
        task = next((name for name, one in model.heads.items() if one is head), None)
        if head is not None and task is None:
            raise ValueError(
                f"The head of {type(hook).__name__} is not one of this model. Make the hook with "
                "model.heads[...]."
            )
        if isinstance(hook, HeadPruner):
            epochs = range(1, sampler.epochs + 1)
            updates = sum(sampler.order(epoch).count(task) for epoch in epochs)
            if hook.every > updates:
                said = f"every is {hook.every}, and {task} has {updates} updates."
                warnings.warn(f"HeadPruner never acts: {said}", stacklevel=3)


def _optimizer(model, optimizer, lr, head_lr):
    """Return the optimizer, whose learning rates are the peaks of the schedule."""
    if isinstance(optimizer, str):
        optimizer = make_optimizer(model, optimizer, lr=2e-5 if lr is None else lr, head_lr=head_lr)
    elif lr is not None or head_lr is not None:
        warnings.warn(
            "lr and head_lr have no effect: an optimizer object has its own.", stacklevel=3
        )
    for params in optimizer.param_groups:
        params["peak"] = params["lr"]
    return optimizer


def _set_rates(optimizer, step, rates):
    for params in optimizer.param_groups:  # a hook may add one, which has no peak yet
        peak = params.setdefault("peak", params["lr"])
        params["lr"] = learning_rate(step, peak=peak, **rates)


@contextlib.contextmanager
def _turn(model, optimizer, seed):
    """Take the turn of random numbers and model; restore the optimizer's own rates afterwards."""
    try:
        with seeded(seed, model.device), turn(model):
            yield
    finally:
        for params in optimizer.param_groups:
            params["lr"] = params.get("peak", params["lr"])


def _encoded(model, data, split):
    """Return {task name: Encoded} of a split."""
    return {name: encode_split(model, getattr(one, split)) for name, one in data.items()}


def _add_features(model, train, dev, sampler, batch_size, scoring):
    """Encode the rows of a frozen encoder once, if the run will draw at least as many."""
    order = [name for epoch in range(1, sampler.epochs + 1) for name in sampler.order(epoch)]
    for name, one in train.items():
        if order.count(name) * batch_size >= len(one):
            train[name] = encode_once(model, one, **scoring)
    dev.update({name: encode_once(model, one, **scoring) for name, one in dev.items()})


def _metrics(data, scores):
    return metrics.compute(data.task, scores, data.dev.labels, data.dev.queries)


def _stream(encoded, batch_size, seed, width):
    """Return a function from k to the k-th batch of a task, counted over all its passes."""
    per_pass = math.ceil(len(encoded) / batch_size)

    @functools.lru_cache(maxsize=1)
    def planned(epoch):
        return plan_examples(encoded, batch_size, seed=seed, epoch=epoch)

    return lambda k: collate(encoded, planned(k // per_pass)[k % per_pass], **width)


def _seed(*parts):
    return zlib.crc32("/".join(map(str, parts)).encode())


def _progress(tasks, text, group):
    from tqdm.auto import tqdm

    hidden = group.rank > 0 or not is_interactive()
    return tqdm(tasks, desc=text, leave=False, disable=hidden)
