"""CUDA graphs of whole updates, one for each shape of a batch.

An update on short sentences starts some 900 kernels. On a fast GPU the host needs longer to start
them than the GPU to run them, so the update is recorded once and then started as a whole. A rarer
shape, such as that of the last batch, is updated without a graph, with the same numbers.
"""

import collections
import dataclasses
import warnings

import torch

from mmlkit.bert.model import BertModel
from mmlkit.heads.linear import Loss
from mmlkit.heads.pruning import HeadPruner

__all__ = ["StepGraphs", "capture_cuda", "graphs_are_safe"]

FIRST = 3  # a shape is recorded when it comes for the third time: its kernels have run by then


def capture_cuda(update, pool):
    """Record the kernels of an update, without running them.

    Args:
        update: a function without arguments that returns a Loss.
        pool: the memory pool of earlier graphs, or None.

    Returns:
        (a function that runs the kernels and returns the same Loss, the pool).
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        loss = update()

    def replay():
        graph.replay()
        return loss

    return replay, graph.pool()


def graphs_are_safe(model, hooks):
    """Return whether `fit` may record updates: no code of the user has to run inside of them.

    Args:
        model: a MultitaskModel on its device.
        hooks: the hooks of `fit`, which run after an update.

    Returns:
        True for an encoder and heads of mmlkit on a CUDA GPU, without hooks in their modules, and
        with no hooks but pruners: others may change what a graph does not read again.
    """
    modules = [*model.modules()]
    return (
        model.device.type == "cuda"
        and type(model.encoder) is BertModel  # not compiled, for example
        and all(type(head).__module__.startswith("mmlkit.") for head in model.heads.values())
        and all(isinstance(hook, HeadPruner) for hook in hooks)
        and not any(
            one._compiled_call_impl
            or one._forward_hooks
            or one._forward_pre_hooks
            or one._backward_hooks
            for one in modules
        )
    )


class StepGraphs:
    """Give `train_step` a graph for each task and shape of its batches.

    The key of a graph is all that the host decides in an update of mmlkit's modules: the shapes,
    encoder, head and optimizer, the active heads, the parameters that train, and the settings of
    optimizer and step. Learning rates and random numbers are read anew. Code of your own inside a
    head runs at the recording only. All graphs share one pool of memory.

    Attributes:
        graphs: {key: a recorded update}. Those of a head are dropped when it is pruned.

    Example::

        graphs = StepGraphs()
        for batch in batches:
            train_step(model, batch, optimizer, graphs=graphs)
    """

    def __init__(self):
        self.graphs, self._seen, self._pool, self._failed = {}, collections.Counter(), None, False

    def run(self, model, batch, optimizer, settings, update):
        """Make an update by a graph, if there is one or the shape has come often enough.

        Args:
            model: a MultitaskModel.
            batch: a Batch on its device.
            optimizer: an optimizer of torch that is fused.
            settings: a tuple of what else the update depends on.
            update: a function from a Batch to the Loss, which reads no value of the GPU.

        Returns:
            The Loss, or None where the update is still to be made.
        """
        key = _key(model, batch, optimizer, settings)
        self._seen[key] += 1
        if self._failed or self._seen[key] < FIRST or not _is_fused(optimizer):
            return None
        if key not in self.graphs:
            for old in [one for one in self.graphs if one[0] == key[0] and one[1] != key[1]]:
                del self.graphs[old]
            try:
                self.graphs[key] = self._record(batch, optimizer, update)
            except RuntimeError as error:  # torch's, also where memory runs out
                self._failed = True
                warnings.warn(f"Updates run without CUDA graphs: {error}", stacklevel=3)
                return None
        replay, held, rates = self.graphs[key]
        _copy(held, batch)
        for rate, params in zip(rates, optimizer.param_groups):
            rate.fill_(params["lr"])
        # The next graph may use the memory of this result.
        return Loss(*(one.clone() if torch.is_tensor(one) else one for one in replay()))

    def _record(self, batch, optimizer, update):
        """Return (replay, the batch and the learning rates whose memory it reads)."""
        held, groups = _held(batch), optimizer.param_groups
        rates = [torch.zeros((), device=batch.input_ids.device) for _ in groups]
        before = [{"lr": params["lr"], "capturable": params["capturable"]} for params in groups]
        try:
            for params, rate in zip(groups, rates):
                params.update(lr=rate, capturable=True)
            replay, self._pool = capture_cuda(lambda: update(held), self._pool)
        finally:
            for params, own in zip(groups, before):
                params.update(own)
        return replay, held, rates


def _is_fused(optimizer):
    """Return whether an optimizer reads its learning rate and its steps on the GPU."""
    groups = optimizer.param_groups
    return all(params.get("fused") and "capturable" in params for params in groups)


def _key(model, batch, optimizer, settings):
    """Return (task, active heads, and all else that the host decides in an update)."""
    parts = [batch] if batch.second is None else [batch, batch.second]
    shapes = [tuple(one.shape) for part in parts for one in _tensors(part).values()]
    head = model.heads[batch.task.name]
    return (
        batch.task.name,
        len(getattr(head, "active_indices", ())),
        (model.encoder, head, optimizer),  # the graph reads and writes the memory of these
        *shapes,
        (batch.groups, batch.weight, settings),
        (model.training, model.encoder.training),
        tuple(one.requires_grad for one in model.parameters()),
        tuple(
            (len(params["params"]), str([params[one] for one in params if one not in _READ_ANEW]))
            for params in optimizer.param_groups
        ),
    )


_READ_ANEW = ("params", "lr", "peak")


def _tensors(batch):
    return {name: one for name, one in vars(batch).items() if torch.is_tensor(one)}


def _held(batch):
    """Return a copy of a batch, in memory that stays."""
    parts = {name: one.clone() for name, one in _tensors(batch).items()}
    return dataclasses.replace(batch, **parts, second=batch.second and _held(batch.second))


def _copy(held, batch):
    for name, one in _tensors(batch).items():
        getattr(held, name).copy_(one)
    if batch.second is not None:
        _copy(held.second, batch.second)
