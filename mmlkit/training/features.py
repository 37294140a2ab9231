"""A frozen encoder's features, computed once for each row; `fit(freeze_encoder=True)` uses them.

A frozen encoder has no dropout, so that a row has the same features in every epoch. Notebook 00
trains a head in this way.
"""

import dataclasses
import threading

import numpy as np
import torch

from mmlkit.data.batching import collate
from mmlkit.runtime import autocast
from mmlkit.training.evaluation import score_encoded, unless_out_of_memory

__all__ = ["FeatureCache", "precompute", "with_cache"]


# Two threads predict at once (`fast.two_at_a_time`). They write different rows of one tensor.
_ALLOCATION = threading.Lock()


def with_cache(encoded):
    """Return an encoded split with an empty cache. Other models than a frozen one leave it empty.

    Args:
        encoded: an Encoded.

    Returns:
        An Encoded.
    """
    return dataclasses.replace(encoded, features=FeatureCache(len(encoded.input_ids)))


def precompute(model, splits, sampler, *, batch_size, precision):
    """Fill the caches of training splits, if the run will draw at least as many rows as they have.

    Args:
        model: a MultitaskModel. Nothing is done where its encoder is not frozen.
        splits: {task name: Encoded}, from `with_cache`.
        sampler: the TaskSampler of the run.
        batch_size: examples of a training batch.
        precision: see `runtime.autocast`.
    """
    for name, encoded in splits.items() if model.encoder_is_constant else ():
        if encoded.features.known.all():
            continue
        steps = sum(sampler.order(epoch).count(name) for epoch in range(1, sampler.epochs + 1))
        if steps * batch_size < len(encoded):
            continue
        # The first row shows whether the head reads one vector, and of which type.
        with torch.inference_mode(), autocast(precision, model.device)[0]:
            model.inputs(collate(encoded, [0]).to(model.device))
        if encoded.features.known[0]:
            score_encoded(model, encoded, batch_size=2 * batch_size, precision=precision)


class FeatureCache:
    """The head's inputs for the rows of one split, kept on the model's device.

    Kept are inputs of one vector [D] per row, or per sentence where pairs are encoded separately.
    Heads that read all tokens (SANHead) or other values (a sigmoid's score_range) are not served:
    their inputs are computed each time. The vectors differ from those of a training batch by
    rounding only, because a row is padded to another length there.

    Args:
        rows: N, the number of rows of the split.
    """

    def __init__(self, rows):
        self.known = np.zeros(rows, dtype=bool)
        self.vectors = None  # [N,P,D], P sentences per row; 1.2 GB for MNLI and BERT-base

    def inputs(self, batch, compute):
        """Return the inputs of a batch. New ones are kept from predictions alone.

        The order of a prediction's batches never changes, so that a resumed run has the same
        numbers.

        Args:
            batch: a Batch of this split.
            compute: a function without arguments that returns the head's inputs of the batch.

        Returns:
            A tuple of tensors [B, D], or whatever `compute` returned.
        """
        rows = list(batch.rows)
        if self.known[rows].all():
            return self.vectors.index_select(0, _index(rows, self.vectors.device)).unbind(1)
        inputs = compute()
        shapes = {getattr(one, "shape", None) for one in inputs}
        if torch.is_inference_mode_enabled() and shapes == {(len(rows), inputs[0].shape[-1])}:
            self._keep(rows, torch.stack(inputs, 1))
        return inputs

    def _keep(self, rows, found):
        with _ALLOCATION:
            if self.vectors is None:
                size = (len(self.known), *found.shape[1:])
                self.vectors = unless_out_of_memory(lambda: found.new_empty(size))
        if self.vectors is not None and self.vectors.shape[1:] == found.shape[1:]:
            self.vectors.index_copy_(0, _index(rows, found.device), found)
            self.known[rows] = True


def _index(rows, device):
    """Return row numbers on a device, without a wait for a GPU."""
    index = torch.tensor(rows)
    index = index.pin_memory() if device.type == "cuda" else index
    return index.to(device, non_blocking=True)
