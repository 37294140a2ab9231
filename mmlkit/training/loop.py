"""The loop around `train_step`; every notebook from 02 on calls `fit`.

Data order, task order, learning rate and the step's dropout are functions of (seed, epoch, step), so a run can be resumed.
"""

import contextlib
import functools
import math
import time
import zlib
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from mmlkit.data.batching import collate, encode, plan_examples
from mmlkit.data.loading import TaskData
from mmlkit.heads.linear import Loss
from mmlkit.runtime import autocast, is_interactive, seed_generators, seeded
from mmlkit.training import metrics
from mmlkit.training.checkpoints import load_checkpoint, save_checkpoint
from mmlkit.training.evaluation import predict_encoded
from mmlkit.training.optimizers import learning_rate, make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.step import train_step

__all__ = ["Hook", "StepEvent", "fit"]


class StepEvent(NamedTuple):
    """What a hook is told after an update. Steps count updates from 1, over all tasks and for this task."""

    step: int
    task: str
    task_step: int
    loss: Loss
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer


class Hook(Protocol):
    """Something that happens after a step: pruning, logging."""

    def after_step(self, event: StepEvent) -> None: ...
    def state_dict(self) -> dict: ...
    def load_state_dict(self, state) -> None: ...


def fit(model, data, *, epochs=3, lr=2e-5, head_lr=None, batch_size=32, sampler=None, optimizer="adamw", warmup=0.1,
        clip=1.0, precision="fp32", mode="finetune", max_length=512, micro_batch_size=None, seed=0, hooks=(),
        checkpoint_dir=None, resume=False):
    """Trains a MultitaskModel and leaves it with the weights of its best epoch.

    data: {task name: TaskData}, or one TaskData. lr, head_lr: peak rates of the encoder and of everything else.
    sampler: a TaskSampler over batches, by default "merged" (every batch of every task once an epoch, shuffled).
    optimizer: "adamw", "adamax", "handout", or an optimizer of your own. warmup: share of all steps, linear up, then linear
    down to 0. precision: "fp32", "bf16", "fp16", "auto". mode: "finetune" trains every parameter
    that requires a gradient; "pretrain" freezes the encoder for this call as well. Nothing is ever unfrozen.
    batch_size: rows, or whole queries of a task that ranks candidates. max_length: tokens a row is cut to. hooks: called after every
    step. micro_batch_size, clip: see `train_step`; where memory runs out, the size that then worked is kept for the task's later steps.
    checkpoint_dir: where the state after each epoch goes; with resume=True a run continues there: on a CPU bit for
    bit, on a GPU up to rounding, because the backward pass of fused attention adds in no fixed order.
    The best epoch has the highest mean, over tasks, of the first dev metric; the first of equals wins.
    Returns a DataFrame with a row per epoch and task: epoch, step, task, train_loss, the dev metrics, seconds, best.
    Raises ValueError for settings that do not fit together, FloatingPointError when the loss is no longer a number.

    Example::

        history = fit(model, {"sst": load_task("sst")}, epochs=2, lr=1e-4, head_lr=1e-3)
    """
    data = {data.task.name: data} if isinstance(data, TaskData) else dict(data)
    _check(model, data, epochs=epochs, batch_size=batch_size, mode=mode)
    limit = min(max_length, model.encoder.config.max_position_embeddings)
    train, dev = ({name: encode(model.tokenizer, getattr(one, split), max_length=limit, pairs=model.head(one.task).pairs)
                   for name, one in data.items()} for split in ("train", "dev"))
    batches = {name: _stream(one, batch_size, _seed(seed, name)) for name, one in train.items()}
    if sampler is None:
        sampler = TaskSampler("merged", sizes={name: math.ceil(len(one) / batch_size) for name, one in train.items()},
                              epochs=epochs, seed=seed)
    if sampler.epochs != epochs or set(sampler.sizes) != set(data):
        raise ValueError(f"The sampler is for {sampler.epochs} epochs of {list(sampler.sizes)}; this run is {epochs} epochs of {list(data)}.")
    with model.encoder_frozen(mode == "pretrain"):
        if isinstance(optimizer, str):
            optimizer = make_optimizer(model, optimizer, lr=lr, head_lr=head_lr)
        scaler = torch.amp.GradScaler(model.device.type) if autocast(precision, model.device)[1] else None
        run = _Run(model, optimizer, scaler, hooks)
        path = None if checkpoint_dir is None else Path(checkpoint_dir) / "last.safetensors"
        settings = dict(epochs=epochs, lr=lr, head_lr=head_lr, batch_size=batch_size, warmup=warmup, mode=mode, seed=seed, clip=clip,
                        precision=precision, max_length=limit, optimizer=f"{type(optimizer).__module__}.{type(optimizer).__name__}",
                        sampler=[sampler.kind, sampler.seed, sampler.sizes], steps_per_epoch=sampler.steps_per_epoch,
                        rows={name: len(one.input_ids) for name, one in train.items()})
        if resume and path is not None and path.is_file():
            run.load(load_checkpoint(path), settings, path)
        total = epochs * sampler.steps_per_epoch
        for epoch in range(run.epoch + 1, epochs + 1):
            started, losses = time.perf_counter(), {name: [] for name in data}
            with seeded(seed, model.device), _progress(sampler.steps_per_epoch, f"epoch {epoch}/{epochs}") as bar:
                model.train()
                for name in sampler.order(epoch):
                    for group in optimizer.param_groups:
                        peak = group.setdefault("peak", group["lr"])
                        group["lr"] = learning_rate(run.step, peak=peak, warmup=int(warmup * total), total=total)
                    batch = batches[name](run.task_steps.get(name, 0)).to(model.device)
                    seed_generators(_seed(seed, run.step), model.device)
                    with _said_with_its_step(run.step + 1, path):
                        size = min(filter(None, (micro_batch_size, run.micro.get(name))), default=None)
                        loss = train_step(model, batch, optimizer, micro_batch_size=size, clip=clip, precision=precision, scaler=scaler)
                    losses[name].append(run.after_step(name, loss))
                    bar.update()
            scores = {name: metrics.compute(one.task, predict_encoded(model, dev[name], batch_size=2 * batch_size, precision=precision),
                                            one.dev.labels, one.dev.queries) for name, one in data.items()}
            run.after_epoch(epoch, losses, scores, time.perf_counter() - started)
            if path is not None:
                save_checkpoint(path, {**run.state(), "settings": settings})
        return run.finish()


class _Run:
    """Everything about a run that changes as it goes; what a checkpoint holds."""

    def __init__(self, model, optimizer, scaler, hooks):
        self.model, self.optimizer, self.scaler, self.hooks = model, optimizer, scaler, list(hooks)
        self.epoch, self.step, self.task_steps = 0, 0, {}
        self.micro = {}     # {task: examples at a time}, where memory ran out
        self.history, self.best_score, self.best = [], -math.inf, None

    def after_step(self, name, loss):
        self.step += 1
        self.task_steps[name] = self.task_steps.get(name, 0) + 1
        if loss.micro_batch_size is not None:
            self.micro[name] = loss.micro_batch_size
        total = loss.total.item()
        if math.isfinite(total):        # not so where the scaler of fp16 skipped the step: no update, nothing to tell
            event = StepEvent(self.step, name, self.task_steps[name], loss, self.model, self.optimizer)
            for hook in self.hooks:
                hook.after_step(event)
        return total

    def after_epoch(self, epoch, losses, scores, seconds):
        self.epoch = epoch
        firsts = [next(iter(values.values())) for values in scores.values()]
        score = sum(0.0 if math.isnan(first) else first for first in firsts) / len(firsts)      # nan: constant predictions
        if score > self.best_score:
            self.best_score = score
            self.best = {key: value.detach().clone() for key, value in self.model.state_dict().items()}
            for row in self.history:
                row["best"] = False
        for name, values in scores.items():
            finite = [loss for loss in losses[name] if math.isfinite(loss)]
            mean = sum(finite) / len(finite) if finite else math.nan
            self.history.append({"epoch": epoch, "step": self.step, "task": name, "train_loss": mean, **values,
                                 "seconds": round(seconds, 2), "best": score == self.best_score and self._first(score)})

    def _first(self, score):
        return not any(row["best"] and row["epoch"] != self.epoch for row in self.history)

    def state(self):
        return {"epoch": self.epoch, "step": self.step, "task_steps": self.task_steps, "micro": self.micro, "history": self.history,
                "best_score": self.best_score, "best": self.best, "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(), "hooks": [hook.state_dict() for hook in self.hooks],
                "scaler": self.scaler.state_dict() if self.scaler else {}}

    def load(self, state, settings, path):
        if state["settings"] != settings:
            changed = {key: (state["settings"].get(key), value) for key, value in settings.items() if state["settings"].get(key) != value}
            raise ValueError(f"{path} belongs to another run; different are (then, now): {changed}. Use the same settings, "
                             "another checkpoint_dir, or resume=False.")
        for name in ("epoch", "step", "task_steps", "history", "best_score", "best"):
            setattr(self, name, state[name])
        self.micro = dict(state.get("micro", {}))      # older files do not have it
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if len(self.hooks) != len(state["hooks"]):
            raise ValueError(f"{path} was written with {len(state['hooks'])} hooks, this run has {len(self.hooks)}. Pass the same hooks.")
        for hook, saved in zip(self.hooks, state["hooks"]):
            hook.load_state_dict(saved)
        if self.scaler:
            self.scaler.load_state_dict(state["scaler"])

    def finish(self):
        import pandas as pd

        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.eval()
        return pd.DataFrame(self.history)


def _check(model, data, *, epochs, batch_size, mode):
    if mode not in ("finetune", "pretrain"):
        raise ValueError(f"mode {mode!r} is not 'finetune' or 'pretrain'.")
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"epochs {epochs} and batch_size {batch_size} must be at least 1.")
    if not data:
        raise ValueError("data is empty; give {'sst': load_task('sst')}.")
    for name, one in data.items():
        head = model.head(one.task)
        if head.num_labels != one.task.num_labels:
            raise ValueError(f"Task {name!r} needs {one.task.num_labels} outputs ({list(one.task.labels) or 'one score'}), "
                             f"its head has {head.num_labels}.")
        if one.train.labels is None or one.dev.labels is None:
            raise ValueError(f"Task {name!r} has no labels in train or dev.")


@contextlib.contextmanager
def _said_with_its_step(step, path):
    """Adds to a FloatingPointError where it happened, what is left, and what to try."""
    try:
        yield
    except FloatingPointError as error:
        kept = f" The state after the last whole epoch is in {path}." if path is not None and path.is_file() else ""
        raise FloatingPointError(f"Training stopped at step {step}: {error}. The weights are those before this step.{kept} "
                                 "Try a smaller lr, clip=1.0, or precision='fp32'.") from error


def _stream(encoded, batch_size, seed):
    """A function that gives the k-th batch of a task, counted over all its passes: the same k always gives the same batch."""
    per_pass = math.ceil(len(encoded) / batch_size)
    planned = functools.lru_cache(maxsize=1)(lambda epoch: plan_examples(encoded, batch_size, seed=seed, epoch=epoch))
    return lambda k: collate(encoded, planned(k // per_pass)[k % per_pass])


def _seed(*parts):
    return zlib.crc32("/".join(map(str, parts)).encode())


def _progress(total, text):
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=text, leave=False, disable=not is_interactive())
