"""The arguments of `fit`, `evaluate` and `predict`, checked before anything is changed.

Numbers out of range, data of another task and parts of another model would train silently.
"""

import math
import os
import warnings
from pathlib import Path

import numpy as np
import torch

from mmlkit.data.loading import Split, TaskData
from mmlkit.data.tasks import label_key
from mmlkit.messages import check_number, count
from mmlkit.training.metrics import check_metrics
from mmlkit.training.optimizers import SCHEDULES

__all__ = [
    "check_data",
    "check_frozen",
    "check_head",
    "check_labels",
    "check_model",
    "check_outputs",
    "check_parts",
    "check_same_task",
    "check_settings",
]

# The name of a setting, whether it is a whole number, its least and its largest value.
RANGES = (
    ("epochs", True, 1, math.inf),
    ("batch_size", True, 1, math.inf),
    ("micro_batch_size", True, 1, math.inf),
    ("max_length", True, 3, math.inf),
    ("seed", True, 0, 2**63 - 1),
    ("save_steps", True, 1, math.inf),
    ("lr", False, 0, math.inf),
    ("head_lr", False, 0, math.inf),
    ("warmup", False, 0, 1),
    ("clip", False, 0, math.inf),
    ("save_minutes", False, 0, math.inf),
)
OPTIONAL = {"micro_batch_size", "max_length", "save_steps", "lr", "head_lr", "clip"}


def check_settings(settings):
    """Check the settings of a run that are plain values.

    Args:
        settings: {name of an argument of `fit`: value}; others than those of RANGES are ignored.

    Raises:
        ValueError: a setting has another type, or is out of its range.
    """
    for name, whole, least, most in RANGES:
        if name in settings:
            options = {"whole": whole, "above": name == "clip", "optional": name in OPTIONAL}
            check_number(name, settings[name], least, most, **options)
    for name, auto in (("freeze_encoder", ""), ("resume", " or 'auto'")):
        value = settings.get(name, False)
        known = isinstance(value, (bool, np.bool_)) or (auto and isinstance(value, str))
        if not known or value not in (True, False, "auto"):
            raise ValueError(f"{name} is {value!r:.80}, expected True or False{auto}.")
    if (schedule := settings.get("schedule", "linear")) not in SCHEDULES:
        raise ValueError(f"schedule {schedule!r} is not one of {list(SCHEDULES)}.")
    folder = settings.get("checkpoint_dir")
    if settings.get("resume", False) not in (False, "auto") and folder is None:
        raise ValueError("resume=True needs a checkpoint_dir, the folder of the run to continue.")
    named = isinstance(folder, (str, os.PathLike)) and str(folder) != ""
    place = Path(folder).expanduser() if named else None
    if folder is not None and not (named and place.exists() == place.is_dir()):
        raise ValueError(
            f"checkpoint_dir {str(folder)!r} is not a folder. Give a folder, which need not exist."
        )


def check_model(model):
    """Check that an object is a MultitaskModel.

    Args:
        model: anything.

    Raises:
        ValueError: it has no encoder or no heads.
    """
    if not (hasattr(model, "encoder") and hasattr(model, "heads")):
        raise ValueError(
            f"model is a {type(model).__name__}, expected a MultitaskModel: "
            "MultitaskModel(encoder, {'sst': LinearHead(384, 5)})."
        )


def check_frozen(model):
    """Check that a frozen encoder holds no parameter that looks trainable.

    Args:
        model: the MultitaskModel.

    Raises:
        ValueError: it holds one, such as that of PALs that were added later.
    """
    trained = () if model.encoder_is_constant else ("pals.",)
    wrong = [
        name
        for name, parameter in model.encoder.named_parameters()
        if model.frozen and parameter.requires_grad and not name.startswith(trained)
    ]
    if wrong:
        raise ValueError(
            f"The encoder is frozen, but {count(len(wrong), 'parameter')} of it would get no "
            f"gradient and have requires_grad=True, {wrong[0]} first. Call model.freeze_encoder() "
            "again to freeze them, or model.freeze_encoder(False) to train everything. PALs that "
            "train on a frozen encoder are added with stay_trainable=True."
        )


def check_outputs(head, task):
    """Check that a head has the outputs of a task.

    Args:
        head: the head.
        task: the Task.

    Raises:
        ValueError: it has another number of outputs.
    """
    if head.num_labels != task.num_labels:
        raise ValueError(
            f"Task {task.name!r} needs {count(task.num_labels, 'output')} "
            f"({', '.join(task.labels)[:200] or 'one score'}), its head has {head.num_labels}. It "
            "was made for other labels under this name; make a new head, and train it."
        )


def check_head(model, task):
    """Check that a task's head has one output for each label, in the task's order.

    Args:
        model: the MultitaskModel.
        task: the Task.

    Raises:
        ValueError: there is no head (from `MultitaskModel.head`); it has another number of outputs
            (from `check_outputs`); or it was trained with a label of the task in another place.
    """
    check_outputs(model.head(task), task)
    trained = model.tasks.get(task.name, task)
    places = [{label_key(name): i for i, name in enumerate(one.labels)} for one in (trained, task)]
    if any(places[1].get(name, i) != i for name, i in places[0].items()):
        raise ValueError(
            f"Task {task.name!r} has the labels {', '.join(task.labels)[:200]}, but the head was "
            f"trained with {', '.join(trained.labels)[:200]}, in this order. Use "
            f"model.tasks[{task.name!r}], or make a new head, and train it."
        )


def check_data(model, data):
    """Return the data of a run by task.

    Args:
        model: the MultitaskModel.
        data: {task name: TaskData}, or one TaskData.

    Returns:
        {task name: TaskData}.

    Raises:
        ValueError: the data have another form, another task than their name says, no labels, or a
            metric that is not for the task (some from functions that this one calls).
    """
    data = {data.task.name: data} if isinstance(data, TaskData) else data
    if not isinstance(data, dict) or not all(isinstance(one, TaskData) for one in data.values()):
        found = data if not isinstance(data, dict) else next(iter(data.values()))
        raise ValueError(
            f"data holds a {type(found).__name__}; give load_task('sst'), or a dict of such, like "
            "{'sst': load_task('sst')}."
        )
    if not data:
        raise ValueError("data is empty; give {'sst': load_task('sst')}.")
    for name, one in data.items():
        if name != one.task.name:
            raise ValueError(
                f"data[{name!r}] holds task {one.task.name!r}. Use the task's own name as key."
            )
        check_head(model, one.task)
        check_metrics(one.task)
        for part in ("train", "dev"):
            _check_split(one.task, getattr(one, part), part)
    return dict(data)


def _check_split(task, split, part):
    """Check a split that `fit` reads."""
    if not isinstance(split, Split) or split.task.name != task.name or not len(split):
        found = (
            f"{split.task.name!r}, {count(len(split), 'row')}" if isinstance(split, Split) else ""
        )
        raise ValueError(
            f"{part} of task {task.name!r} is {found or type(split).__name__}; expected a Split of "
            f"{task.name!r} with at least one row, as load_task makes it."
        )
    check_same_task(task, split, part)
    if split.labels is None:
        raise ValueError(f"Task {task.name!r} has no labels in {part}. Add them to the file.")
    check_labels(task, split, part)


def check_same_task(task, split, part):
    """Check that a split was made for this task: the same labels in the same order, and columns.

    Args:
        task: the Task of the data.
        split: a Split.
        part: the split's name, for the message.

    Raises:
        ValueError: the split's task has other labels, columns or scores, or is of another kind.
    """
    for name in ("kind", "labels", "text_columns", "score_range"):
        ours, theirs = getattr(task, name), getattr(split.task, name)
        if ours != theirs:
            raise ValueError(
                f"The data of task {task.name!r} has {name} {ours!r}, but its {part} split was "
                f"made with {theirs!r}. Load the data again with the task that you mean."
            )


def check_labels(task, split, part):
    """Check the labels of a split.

    Args:
        task: the Task.
        split: a Split with labels.
        part: the split's name, for the message.

    Raises:
        ValueError: there is not one label per row, or one is not a label or score of the task.
    """
    labels = np.asarray(split.labels)
    if labels.ndim != 1:
        raise ValueError(
            f"The labels of task {task.name!r} in {part} have shape {list(labels.shape)}, expected "
            f"[{len(split.texts)}], one per row. Use labels.reshape(-1)."
        )
    if len(labels) != len(split.texts):
        raise ValueError(
            f"Task {task.name!r} has {count(len(split.texts), 'text')} and "
            f"{count(len(labels), 'label')} in {part}; expected as many."
        )
    if task.labels:
        whole = labels.dtype.kind in "iu"
        right = whole and ((labels >= 0) & (labels < len(task.labels))).all()
        expected = f"whole numbers from 0 to {len(task.labels) - 1}"
    else:
        right = labels.dtype.kind in "iuf" and np.isfinite(labels).all()
        expected = "finite numbers"
    if not (right and isinstance(split.labels, np.ndarray)):
        raise ValueError(
            f"The labels of task {task.name!r} in {part} are {labels[:5]!r}, a "
            f"{type(split.labels).__name__}; expected an array of {expected}. make_split makes "
            "them from names, and labels.astype(int) from whole floats."
        )


def check_parts(model, optimizer, hooks, *, saved, freeze_encoder=False):
    """Check that an optimizer and hooks belong to the model.

    Args:
        model: the MultitaskModel.
        optimizer: a name, or an optimizer object. A warning names trainable parameters that an
            object does not have, for example because it was made while they were frozen.
        hooks: objects with the methods of `Hook`.
        saved: whether checkpoints are written, which need the state of every hook.
        freeze_encoder: whether the encoder is not trained, so that no optimizer needs it.

    Returns:
        The hooks as a list, because an iterator gives them once.

    Raises:
        ValueError: an object has parameters of another model, or a step that needs a closure; a
            hook prunes the head of another model, or lacks a method.
    """
    if isinstance(hooks, (str, dict)) or not hasattr(hooks, "__iter__"):
        raise ValueError(f"hooks is {hooks!r:.80}, expected a list, such as [pruner].")
    hooks = list(hooks)
    for hook in hooks:
        if isinstance(hook, type):
            raise ValueError(f"hook {hook!r} is a class, expected an object: {hook.__name__}(...).")
        for method in ("after_step", *(("state_dict", "load_state_dict") if saved else ())):
            if not callable(getattr(hook, method, None)):
                raise ValueError(f"hook {hook!r} has no method {method}; see loop.Hook.")
        head = getattr(hook, "head", None)
        if hasattr(head, "parameters") and not any(head is one for one in model.modules()):
            raise ValueError(
                f"The head of {type(hook).__name__} is not one of this model. Make the hook with "
                "model.heads[...]."
            )
    if isinstance(optimizer, str):
        return hooks
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        raise ValueError(
            f"optimizer is {optimizer!r:.80}, expected a name such as 'adamw', or an optimizer "
            "object: make_optimizer(model, lr=...)."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "optimizer is an LBFGS, which computes the loss several times in a step; expected one "
            "whose step() needs no function, such as make_optimizer(model, lr=...)."
        )
    own = {id(parameter): name for name, parameter in model.named_parameters()}
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if foreign := len(held - own.keys()):
        raise ValueError(
            f"{foreign} of {count(len(held), 'parameter')} of the optimizer are not of this model. "
            "Make the optimizer from this model's parameters."
        )
    needed = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not (freeze_encoder and name.startswith("encoder."))
    ]
    left = [name for name in needed if name not in {own[one] for one in held}]
    if left:
        warnings.warn(
            f"The optimizer leaves {len(left)} of {count(len(needed), 'trainable parameter')} as "
            f"they are, {left[0]} first. Make it after unfreezing, or use freeze_encoder=True.",
            stacklevel=3,
        )
    return hooks
