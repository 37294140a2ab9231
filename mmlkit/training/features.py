"""A frozen encoder's features, computed once for each row; `fit(freeze_encoder=True)` uses them.

A frozen encoder has no dropout, so that a row has the same features in every epoch. Notebook 00
trains a head in this way.
"""

import dataclasses

import torch

from mmlkit.data.batching import collate
from mmlkit.training.evaluation import in_eval_mode, score_encoded

__all__ = ["encode_once"]


def encode_once(model, encoded, **options):
    """Return an encoded split with the vectors that its head reads of a frozen encoder.

    A head that reads all tokens (SANHead) or other values (a sigmoid's score_range) is not served.
    The vectors differ from those of a training batch by rounding only, because a row is padded to
    another length there. For MNLI and BERT-base they need 1.2 GB.

    Args:
        model: a MultitaskModel with a frozen encoder.
        encoded: an Encoded.
        **options: batch_size, precision and group of `score_encoded`.

    Returns:
        The Encoded, with features [N,P,D] for the P sentences of a row where its head reads one
        vector of each.
    """

    def vectors(batch):
        return torch.stack(model.inputs(batch), 1)

    with in_eval_mode(model), torch.no_grad():
        inputs = model.inputs(collate(encoded, [0]).to(model.device))
    if any(getattr(one, "ndim", 0) != 2 for one in inputs):
        return encoded
    found = score_encoded(model, encoded, compute=vectors, **options)
    return dataclasses.replace(encoded, features=torch.from_numpy(found))
