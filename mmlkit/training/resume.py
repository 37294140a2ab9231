"""Where a run of `fit` resumes: what its checkpoint holds, and whether it is of the same run.

`checkpoints` writes and reads the file. Notebook 02 resumes a run.
"""

import itertools
import time
import warnings

import numpy as np
import torch

from mmlkit.runtime import fastest_precision
from mmlkit.training.checkpoints import fingerprint, load_latest, save_checkpoint

__all__ = ["resume_run", "run_settings", "save_run"]

SAVED = ("epoch", "step", "task_steps", "micro", "seconds")
SAVED += ("history", "best_score", "best", "settings")


def save_run(run, finished=False):
    """Write a checkpoint. Both files of a finished run hold the best weights alone.

    Args:
        run: the state of a call of `fit`.
        finished: whether its last epoch has ended.
    """
    run.saved = time.monotonic()
    if run.path is None or run.group.rank > 0:
        return
    state = {name: getattr(run, name) for name in SAVED}
    state["seconds"] += time.perf_counter() - run.started
    state["losses"] = {name: torch.stack(losses) for name, losses in run.losses.items()}
    state["hooks"] = [hook.state_dict() for hook in run.hooks]
    state["scaler"] = run.scaler.state_dict() if run.scaler else {}
    if not finished:
        state |= dict(model=run.model.state_dict(), optimizer=run.optimizer.state_dict())
    for _ in range(2 if finished else 1):
        save_checkpoint(run.path, state)


def resume_run(run, wanted, settings):
    """Continue from the checkpoint, if one is wanted and there, and it is of the same run.

    Args:
        run: the state of a call of `fit` before its first step.
        wanted: True, False or "auto", see `fit`.
        settings: a function that returns `run_settings`.

    Raises:
        ValueError: the checkpoint belongs to another run, or another process has other settings.
    """
    if run.path is None and run.group.size == 1:
        return
    run.settings = settings()
    state = load_latest(run.path) if wanted and run.path else None
    if state and (changed := _changed(state["settings"], run.settings)):
        found = f"{run.path} belongs to another run, which differs in: {changed}."
        if wanted != "auto":
            raise ValueError(
                f"{found} Use the same settings and data, another checkpoint_dir, or resume=False."
            )
        warnings.warn(f"{found} This run starts again and replaces it.", stacklevel=3)
    elif state:
        _load(run, state)
    elif run.path and run.path.is_file():
        warnings.warn(
            f"{run.path} is the checkpoint of an earlier run, which this run replaces. Pass "
            "resume=True to continue it, or name another folder.",
            stacklevel=3,
        )
    precision = fastest_precision(run.model.device)
    own = {**run.settings, "the fastest precision": precision, "finished steps": run.step}
    for other in run.group.gather(own):
        if changed := _changed(other, own):
            raise ValueError(
                f"Two processes differ in: {changed}. Every process must call fit with the "
                "same data and settings, and see the same checkpoint_dir."
            )


def _load(run, state):
    """Set everything that `save_run` has written."""
    for name in SAVED:
        setattr(run, name, state[name])
    device = run.model.device
    run.losses = {name: list(one.to(device)) for name, one in state["losses"].items()}
    for hook, saved in zip(run.hooks, state["hooks"]):
        hook.load_state_dict(saved)
    if "model" in state:  # a finished run needs `best` alone
        run.model.load_state_dict(state["model"])
        moments = state["optimizer"]["state"]  # whose keys are numbers
        state["optimizer"]["state"] = {int(i): one for i, one in moments.items()}
        run.optimizer.load_state_dict(state["optimizer"])
    if run.scaler and state["scaler"]:  # empty where the device before needed no scaler
        run.scaler.load_state_dict(state["scaler"])


def run_settings(run, sampler, data, train, dev, numbers):
    """Return a text for everything that decides the result of a run.

    Args:
        run: the state of a call of `fit`.
        sampler: its TaskSampler.
        data: {task name: TaskData}.
        train: {task name: Encoded}.
        dev: {task name: Encoded}.
        numbers: a dict of its other settings.

    Returns:
        A dict of texts. A checkpoint continues a run only if all of them are the same.
    """
    model, optimizer = run.model, run.optimizer
    names = {id(one): name for name, one in model.named_parameters()}
    groups = [
        {**params, "params": [names[id(one)] for one in params["params"] if one.requires_grad]}
        for params in optimizer.param_groups
    ]
    pals = getattr(model.encoder, "pals", None)
    heads = [
        [name, type(head), getattr(head, "to_config", dict)()] for name, head in model.heads.items()
    ]
    encoder = [model.encoder, model.encoder.config, getattr(pals, "config", None)]
    rows = {
        name: [one.task, *map(_content, (train[name], dev[name]))] for name, one in data.items()
    }
    return {
        **{name: str(value) for name, value in numbers.items()},
        "max_length": str(model.max_length),
        "optimizer": fingerprint(type(optimizer), groups),
        "hooks": fingerprint([getattr(hook, "to_config", dict)() for hook in run.hooks]),
        "sampler": fingerprint(vars(sampler)),
        "model": fingerprint(*encoder, heads),
        "data": fingerprint(rows),
    }


def _content(encoded):
    """Return a text for the tokens and labels of a split."""
    parts = [one for one in (encoded, encoded.second) if one is not None]
    ids = [np.fromiter(itertools.chain.from_iterable(one.input_ids), np.int64) for one in parts]
    values = (*ids, *(one.lengths for one in parts), encoded.labels, encoded.queries)
    return fingerprint(*(b"" if one is None else np.asarray(one).tobytes() for one in values))


def _changed(then, now):
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
