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

from mmlkit.data.batching import collate, encode, plan_examples
from mmlkit.heads.linear import Loss
from mmlkit.runtime import (
    autocast,
    delayed_interrupt,
    fastest_precision,
    is_interactive,
    place,
    seed_generators,
    seeded,
)
from mmlkit.training import metrics
from mmlkit.training.arguments import (
    check_data,
    check_frozen,
    check_model,
    check_parts,
    check_settings,
)
from mmlkit.training.checkpoints import (
    CheckpointWriter,
    fingerprints,
    load_latest,
    plain_values,
    same_run,
)
from mmlkit.training.distributed import join
from mmlkit.training.evaluation import score_encoded
from mmlkit.training.fast import free_buffers
from mmlkit.training.features import precompute, with_cache
from mmlkit.training.optimizers import learning_rate, make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.step import check_finite, checks_at_once, train_step

__all__ = ["Hook", "StepEvent", "fit"]

# Steps between two readings of the losses on a GPU. Each reading waits until the GPU has finished.
READ_EVERY = 50


class StepEvent(NamedTuple):
    """One update, as it is reported to hooks. Steps are counted from 1.

    Attributes:
        step: updates so far, over all tasks.
        task: the name of the task that was updated.
        task_step: updates of this task so far.
        loss: the Loss. fp16's scaler skips an update whose gradient overflows; its loss may be
            finite, and is then reported like any other. On a GPU nothing has read the loss, so that
            it may be infinite there; on a CPU no hook is called where it is infinite.
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
        """Return the state for a checkpoint."""

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
    save_steps=None,
    save_minutes=5,
    resume=False,
    device=None,
):
    """Train a MultitaskModel and leave it with the weights of its best epoch.

    Every parameter that requires a gradient is trained, or those of an optimizer object; nothing is
    ever unfrozen. The best epoch has the highest mean, over tasks, of the first dev metric; the
    first of equal epochs wins.

    Under torchrun, or in a function that `launch` started, every process must call `fit` with the
    same arguments. Each trains on its share of every batch, and all get the same weights and the
    same history as one process with this batch_size, up to rounding. Dropout has other random
    numbers then. The first process writes the checkpoint, from which any number of processes can
    resume.

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
        save_steps: also write a checkpoint after every so many updates.
        save_minutes: also write a checkpoint when so many minutes have passed, where `save_steps`
            is None.
        resume: continue from checkpoint_dir if it holds a state. "auto" does so too, but starts
            again where the state belongs to another run, and needs no checkpoint_dir. Settings and
            data are compared, and what a hook's `to_config` returns. A resumed run equals an
            uninterrupted one bit for bit on a CPU with as many threads. On a GPU it is equal up to
            rounding: the backward pass of fused attention adds in no fixed order.
        device: a GPU where there is one by default; see `runtime.place`.

    Returns:
        A DataFrame with a row per epoch and task: epoch, step, task, train_loss, the dev metrics,
        seconds, best.

    Raises:
        ValueError: settings do not fit together (see training/arguments.py).
        FloatingPointError: the loss or a gradient is not finite (raised while a step is made; on a
            GPU when the losses are read, every 50 steps and after each epoch).
        KeyboardInterrupt: Ctrl-C outside of a live notebook.

    Example::

        history = fit(model, {"sst": load_task("sst")}, epochs=2, lr=1e-4, head_lr=1e-3)
    """
    check_settings(locals())
    check_model(model)
    if not freeze_encoder:
        check_frozen(model)
    data = check_data(model, data)
    saved = checkpoint_dir is not None
    hooks = check_parts(model, optimizer, hooks, saved=saved, freeze_encoder=freeze_encoder)
    if not isinstance(optimizer, str) and (lr is not None or head_lr is not None):
        warnings.warn(
            "lr and head_lr have no effect: an optimizer object has its own.", stacklevel=2
        )
    group, device = join(device)
    # Before the weights, which are sent in this order.
    group.check_equal({"the order of data": [*data], "the order of heads": [*model.heads]})
    group.send_weights(place(model, device))
    model.max_length = model.cut(max_length)
    with group.warnings_once():
        train, dev = (_encoded(model, data, split) for split in ("train", "dev"))
    batches = {name: _stream(one, batch_size, _seed(seed, name)) for name, one in train.items()}
    if sampler is None:
        sizes = {name: math.ceil(len(one) / batch_size) for name, one in train.items()}
        sampler = TaskSampler("merged", sizes=sizes, epochs=epochs, seed=seed)
    if not isinstance(sampler, TaskSampler):
        raise ValueError(
            f"sampler is {sampler!r:.80}, expected a TaskSampler, such as "
            "TaskSampler('annealed', sizes={'sst': 100}, epochs=3)."
        )
    if sampler.epochs != epochs or set(sampler.sizes) != set(data):
        raise ValueError(
            f"The sampler is for {sampler.epochs} epochs of {list(sampler.sizes)}; this run is "
            f"{epochs} epochs of {list(data)}."
        )
    with model.encoder_frozen(freeze_encoder), group.warnings_once():
        if isinstance(optimizer, str):
            rates = {"lr": 2e-5 if lr is None else lr, "head_lr": head_lr}
            optimizer = make_optimizer(model, optimizer, **rates)
        for params in optimizer.param_groups:
            params["peak"] = params["lr"]
        needs_scaler = autocast(precision, model.device)[1]
        scaler = torch.amp.GradScaler(model.device.type) if needs_scaler else None
        folder = None if checkpoint_dir is None else Path(checkpoint_dir).expanduser()
        path = folder and folder / "last.safetensors"
        settings = {
            "epochs": epochs,
            "lr": lr,
            "head_lr": head_lr,
            "batch_size": batch_size,
            "schedule": schedule,
            "warmup": warmup,
            "freeze_encoder": freeze_encoder,
            "seed": seed,
            "clip": clip,
            "precision": precision,
            "max_length": model.max_length,
            "optimizer": f"{type(optimizer).__module__}.{type(optimizer).__name__}",
            "groups of parameters": [
                {key: value for key, value in params.items() if key not in ("params", "lr")}
                for params in optimizer.param_groups
            ],
            "trained": _trained(model, optimizer),
            "hooks": [getattr(hook, "to_config", dict)() for hook in hooks],
            # a list, because the order of its tasks decides which one comes when
            "sampler": [sampler.kind, sampler.seed, [*sampler.sizes.items()]],
            "steps_per_epoch": sampler.steps_per_epoch,
            "tasks": {
                name: [one.task.kind, one.task.labels, one.task.metrics, one.task.score_range]
                for name, one in data.items()
            },
            "rows": {name: len(one.input_ids) for name, one in train.items()},
        }
        if path is not None or group.size > 1:
            settings |= fingerprints(model, train, dev)
        settings = plain_values(settings)
        run = _Run(model, optimizer, scaler, hooks, settings, sampler.steps_per_epoch, path)
        if not resume and path is not None and Path(path).is_file():
            warnings.warn(
                f"{path} is the checkpoint of an earlier run, which this run replaces. Pass "
                "resume=True to continue it, or name another folder.",
                stacklevel=2,
            )
        state = load_latest(path) if resume and path else None
        if state and same_run(path, state["settings"], settings, resume):
            run.load(state)
        own = fastest_precision(model.device) if precision == "auto" else precision
        group.check_equal({**settings, "precision": own, "the number of finished steps": run.step})
        for one in data.values():
            model.set_task(one.task)
        files = CheckpointWriter(path if group.first else None, save_steps, save_minutes)
        total = epochs * sampler.steps_per_epoch
        rate = functools.partial(
            learning_rate, warmup=int(warmup * total), total=total, schedule=schedule
        )
        options = {"clip": clip, "precision": precision, "scaler": scaler, "group": group}

        def step(name):
            for params in optimizer.param_groups:
                # A hook may add a group, which has no peak yet.
                params["lr"] = rate(run.step, peak=params.setdefault("peak", params["lr"]))
            # No thread prefetches: the host reads nothing of a GPU between two steps, so that it
            # pads and sends this batch while the GPU computes earlier steps.
            batch = group.share(batches[name](run.task_steps.get(name, 0))).to(model.device)
            seed_generators(_seed(seed, run.step) + group.rank, model.device)
            size = min(filter(None, (micro_batch_size, run.micro.get(name))), default=None)
            with _error_names_the_step(run.step + 1, path):
                return train_step(model, batch, optimizer, micro_batch_size=size, **options)

        def dev_metrics(name, split):
            sizes = {"batch_size": 2 * batch_size, "precision": precision}
            found, one = score_encoded(model, split, group=group, **sizes), data[name]
            return metrics.compute(one.task, found, one.dev.labels, one.dev.queries)

        with delayed_interrupt() as interrupted, _own_rates_afterwards(optimizer):
            for epoch in range(run.epoch + 1, epochs + 1):
                tasks, title = run.start_epoch(sampler.order(epoch)), f"epoch {epoch}/{epochs}"
                precompute(model, train, sampler, batch_size=batch_size, precision=precision)
                progress = _progress(tasks, title, hidden=not group.first)
                with seeded(seed, model.device), progress:
                    model.train()
                    for name in progress:
                        run.after_step(name, step(name))
                        ended = interrupted.is_set()  # read once: it may be set at any moment
                        if ended or files.due(run.step):
                            files.write(run.state)
                        if ended:
                            return run.stop()
                    run.read_losses()
                run.after_epoch({name: dev_metrics(name, split) for name, split in dev.items()})
                ended = interrupted.is_set() and epoch < epochs
                if epoch < epochs:
                    files.write(run.state)
                if ended:
                    return run.stop()
            for _ in range(2):  # both files of a finished run are small
                files.write(run.finished_state)
            if interrupted.is_set():  # in the last epoch: a script with further runs must end
                return run.stop()
        group.wait()
        return run.finish()


class _Run:
    """The changing state of a run, which a checkpoint holds."""

    SAVED = (
        *("epoch", "step", "task_steps", "micro", "losses", "seconds", "history", "best_score"),
        *("best", "settings"),
    )

    def __init__(self, model, optimizer, scaler, hooks, settings, steps_per_epoch, path):
        self.model, self.optimizer, self.scaler, self.hooks = model, optimizer, scaler, list(hooks)
        self.settings, self.steps_per_epoch = settings, steps_per_epoch
        self.path, self.at_once = path, checks_at_once(model.device, optimizer)
        self.losses, self.unread = {}, []  # of this epoch; (step, task, loss, norm) not yet read
        self.seconds, self.started = 0.0, time.perf_counter()  # of this epoch before `started`
        self.epoch, self.step, self.task_steps = 0, 0, {}  # `epoch` counts finished epochs
        self.micro = {}  # {task: micro-batch size}, where memory ran out
        self.history, self.best_score, self.best = [], -math.inf, None

    def start_epoch(self, tasks):
        """Return the tasks of the steps that are left of an epoch, from those of all its steps."""
        self.started = time.perf_counter()
        self.losses = {name: self.losses.get(name, []) for name in sorted(set(tasks))}
        return tasks[self.step - self.epoch * self.steps_per_epoch :]

    def after_step(self, name, loss):
        self.step += 1
        self.task_steps[name] = self.task_steps.get(name, 0) + 1
        if loss.micro_batch_size is not None:
            self.micro[name] = loss.micro_batch_size
        self.unread.append((self.step, name, loss.total, loss.gradient_norm))
        if self.at_once or len(self.unread) == READ_EVERY:
            self.read_losses()
        if self.at_once and not math.isfinite(self.losses[name][-1]):
            return  # fp16's scaler skipped the step
        event = StepEvent(self.step, name, self.task_steps[name], loss, self.model, self.optimizer)
        for hook in self.hooks:
            hook.after_step(event)

    def read_losses(self):
        """Read the losses of the last steps from the GPU, and stop a run that has diverged."""
        if not self.unread:
            return
        steps, names, totals, norms = zip(*self.unread)
        totals, norms = torch.stack([*totals, *norms]).cpu().reshape(2, -1)  # one transfer
        for step, name, total, norm in zip(steps, names, totals, norms):
            if not self.at_once:  # otherwise train_step has checked them
                with _error_names_the_step(step, self.path, self.step):
                    check_finite(Loss(total, gradient_norm=norm), name, self.scaler)
            self.losses[name].append(total.item())
        self.unread = []

    def after_epoch(self, scores):
        self.epoch += 1
        seconds = round(self.seconds + time.perf_counter() - self.started, 2)
        firsts = [next(iter(values.values())) for values in scores.values()]
        # A correlation of constant predictions is nan, and counts as 0.
        score = sum(0.0 if math.isnan(first) else first for first in firsts) / len(firsts)
        best = score > self.best_score
        if best:
            self.best_score = score
            state = self.model.state_dict()
            self.best = {key: value.detach().clone() for key, value in state.items()}
            for row in self.history:
                row["best"] = False
        for name, values in scores.items():
            finite = [loss for loss in self.losses.get(name, []) if math.isfinite(loss)]
            mean = sum(finite) / len(finite) if finite else math.nan
            row = {
                "epoch": self.epoch,
                "step": self.step,
                "task": name,
                "train_loss": mean,
                **values,
            }
            self.history.append({**row, "seconds": seconds, "best": best})
        self.losses, self.seconds, self.started = {}, 0.0, time.perf_counter()

    def state(self):
        self.read_losses()
        seconds = self.seconds + time.perf_counter() - self.started
        return {
            **{name: getattr(self, name) for name in self.SAVED},
            "seconds": seconds if self.losses else 0.0,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "hooks": [hook.state_dict() for hook in self.hooks],
            "scaler": self.scaler.state_dict() if self.scaler else {},
        }

    def finished_state(self):
        """Return what a finished run needs: the best weights, but no last ones and no moments."""
        return {k: value for k, value in self.state().items() if k not in ("model", "optimizer")}

    def load(self, state):
        groups = len(state["optimizer"]["param_groups"]) if "optimizer" in state else None
        if groups not in (None, len(self.optimizer.param_groups)):
            raise ValueError(
                f"{self.path} has {groups} groups of parameters, and the optimizer has "
                f"{len(self.optimizer.param_groups)}, because a hook has added some. Add them "
                "before fit, or use resume=False."
            )
        for name in self.SAVED:
            setattr(self, name, state[name])
        for hook, saved in zip(self.hooks, state["hooks"]):
            hook.load_state_dict(saved)
        if "model" in state:  # a finished run needs `best` alone
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler and state["scaler"]:  # empty where the device before needed no scaler
            self.scaler.load_state_dict(state["scaler"])

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
        import pandas as pd

        if self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.zero_grad()  # gradients have the size of the weights
        free_buffers(self.model.encoder)
        self.model.eval()
        return pd.DataFrame(self.history)


def _encoded(model, data, split):
    """Return {task name: Encoded} of a split, each with a cache for a frozen encoder's features."""
    options = {"max_length": model.max_length}
    return {
        name: with_cache(
            encode(
                model.tokenizer, getattr(one, split), pairs=model.head(one.task).pairs, **options
            )
        )
        for name, one in data.items()
    }


@contextlib.contextmanager
def _own_rates_afterwards(optimizer):
    """Give an optimizer its own learning rates back, whatever the schedule has set inside."""
    try:
        yield
    finally:
        for params in optimizer.param_groups:
            params["lr"] = params.get("peak", params["lr"])


@contextlib.contextmanager
def _error_names_the_step(step, path, latest=0):
    """Add the step, what is left, and a remedy to a FloatingPointError."""
    try:
        yield
    except FloatingPointError as error:
        kept = ""
        if path is not None and path.is_file():
            kept = f" The latest checkpoint is {path}."
        where = "before this step"
        if latest > step:
            where = f"after step {latest}; this step itself changed none"
        raise FloatingPointError(
            f"Training stopped at step {step}: {error}. The weights are those {where}.{kept} Try a "
            "smaller lr, clip=1.0, or precision='fp32'."
        ) from error


def _stream(encoded, batch_size, seed):
    """Return a function from k to the k-th batch of a task, counted over all its passes."""
    per_pass = math.ceil(len(encoded) / batch_size)

    @functools.lru_cache(maxsize=1)
    def planned(epoch):
        return plan_examples(encoded, batch_size, seed=seed, epoch=epoch)

    return lambda k: collate(encoded, planned(k // per_pass)[k % per_pass])


def _trained(model, optimizer):
    """Return a number for the names of the trained parameters, in the optimizer's order."""
    names = {id(one): name for name, one in model.named_parameters()}
    held = (one for params in optimizer.param_groups for one in params["params"])
    return _seed(*(names.get(id(one)) for one in held if one.requires_grad))


def _seed(*parts):
    return zlib.crc32("/".join(map(str, parts)).encode())


def _progress(steps, text, hidden):
    from tqdm.auto import tqdm

    return tqdm(steps, desc=text, leave=False, disable=hidden or not is_interactive())
