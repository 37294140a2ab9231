"""What stands on top of the encoder: a linear head for classification or regression, and the loss every head shares.

Notebook 02 trains it. Letters: B batch, T tokens, D hidden size, C labels.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["Loss", "LinearHead", "PairHead", "at_least_fp32", "check_one_score", "data_loss", "pair_vector", "sentence_vector"]

READS = ("pooler", "cls", "mean")


class Loss(NamedTuple):
    """The loss of one batch; what `train_step` returns includes the heads' penalties in `total`."""

    total: torch.Tensor                     # scalar, mean over the batch's rows
    per_head: torch.Tensor | None = None    # [A], detached: one loss per active head
    micro_batch_size: int | None = None     # how many examples went at a time, where `train_step` had to halve them


def sentence_vector(out, batch, reads):
    """One vector per row, [B,D].

    reads: "pooler" (tanh layer on [CLS], BERT's own), "cls" (the last [CLS] vector itself) or "mean" (over real tokens).
    """
    if reads == "pooler":
        return out.pooler_output
    if reads == "cls":
        return out.last_hidden_state[:, 0]
    mask = batch.attention_mask[:, :, None].to(out.last_hidden_state.dtype)
    return (out.last_hidden_state * mask).sum(1) / mask.sum(1).clamp(min=1)


def at_least_fp32(x):
    """x, half precision brought up to fp32; float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def pair_vector(u, v):
    """[u; v; |u - v|; u * v], [B,4D], of two sentences encoded apart; u and v [B,D] are first brought to length sqrt(D)."""
    u, v = (F.normalize(at_least_fp32(x), dim=-1) * x.shape[-1]**0.5 for x in (u, v))
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def data_loss(scores, batch):
    """Mean cross-entropy [B,C] or, for a regression task, mean squared error [B,1]; always in fp32.

    Raises ValueError for a regression task with more than one score per row.
    """
    if batch.task.kind == "regression":
        check_one_score(scores)
        return F.mse_loss(scores.float()[:, 0], batch.labels)
    return F.cross_entropy(scores.float(), batch.labels)


def check_one_score(scores):
    """Raises ValueError unless the last size of a regression head's output is 1: the others would silently learn nothing."""
    if scores.shape[-1] != 1:
        raise ValueError(f"a regression task has one score per row, this head gives {scores.shape[-1]}; make it with num_labels=1.")


class LinearHead(nn.Module):
    """logits = W dropout(x) + b on one vector per row (CS224N handout; BERT, section 4.1).

    hidden_size: D. num_labels: C, or 1 for regression. reads: see `sentence_vector`. dropout: MT-DNN takes 0.1, and 0.05 for CoLA.
    activation: "sigmoid" for a similarity as in MT-DNN, Eq. 2. Its output lies in (0, 1), so the loss is taken on labels scaled by
    the task's score_range (STS-B: divided by 5, which the paper does not print); scores of a model are on the task's own scale.
    Raises ValueError for sizes below one, an unknown `reads` or `activation`, or a sigmoid with several outputs.
    """

    pairs = "packed"

    def __init__(self, hidden_size, num_labels, *, dropout=0.1, reads="pooler", activation=None):
        super().__init__()
        if hidden_size < 1 or num_labels < 1:
            raise ValueError(f"hidden_size {hidden_size} and num_labels {num_labels} must be at least 1.")
        if reads not in READS:
            raise ValueError(f"reads {reads!r} is not one of {list(READS)}.")
        if activation not in (None, "sigmoid") or (activation and num_labels != 1):
            raise ValueError(f"activation {activation!r} with num_labels {num_labels}; expected None, or 'sigmoid' with the one score of a regression.")
        self.num_labels, self.reads, self.activation = num_labels, reads, activation
        self.kinds = ("regression",) if activation else ("classification", "regression")
        self.needs_tokens = reads == "mean"
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(hidden_size, num_labels)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def inputs(self, out, batch):
        """What this head reads of the encoder's output, and for a sigmoid the range of the task's scores."""
        x = sentence_vector(out, batch, self.reads)
        return (x,) if self.activation is None else (x, batch.task.score_range)

    def forward(self, x, score_range=(0.0, 1.0)):
        """x [B,D] to scores [B,C]; a sigmoid's fill the score_range."""
        scores = self.dense(self.dropout(x))
        if self.activation is None:
            return scores
        low, high = score_range
        return low + (high - low) * at_least_fp32(scores).sigmoid()

    def loss(self, inputs, batch):
        """The part of the loss that depends on data."""
        loss = data_loss(self(*inputs), batch)
        if self.activation is None:
            return Loss(loss)
        low, high = batch.task.score_range
        return Loss(loss / (high - low)**2)     # the squared error of sigmoid and label, both between 0 and 1

    def penalty(self):
        """The part that does not: none."""
        return None

    def spec(self):
        """What `load_model` needs to build this head again."""
        return {"type": "linear", "hidden_size": self.dense.in_features, "num_labels": self.num_labels,
                "dropout": self.dropout.p, "reads": self.reads, "activation": self.activation}


class PairHead(nn.Module):
    """logits = W dropout([u; v; |u - v|; u * v]) + b on two sentences that were encoded apart (Reimers and Gurevych 2019, section 3).

    CS224N's starter code encodes pairs so. hidden_size: D. num_labels: C, or 1 for regression. reads: see `sentence_vector`.
    Raises ValueError for sizes below one or an unknown `reads`.
    """

    pairs = "separate"

    def __init__(self, hidden_size, num_labels, *, dropout=0.1, reads="mean"):
        super().__init__()
        self.linear = LinearHead(4 * hidden_size, num_labels, dropout=dropout, reads=reads)
        self.hidden_size, self.num_labels, self.reads, self.needs_tokens = hidden_size, num_labels, reads, self.linear.needs_tokens

    def inputs(self, out, batch):
        """What this head reads of the encoder's output for one of the sentences."""
        return (sentence_vector(out, batch, self.reads),)

    def forward(self, u, v):
        """u, v [B,D] to scores [B,C]."""
        return self.linear(pair_vector(u, v))

    def loss(self, inputs, batch):
        """The part of the loss that depends on data."""
        return Loss(data_loss(self(*inputs), batch))

    def penalty(self):
        """The part that does not: none."""
        return None

    def spec(self):
        """What `load_model` needs to build this head again."""
        return {"type": "pair", "hidden_size": self.hidden_size, "num_labels": self.num_labels,
                "dropout": self.linear.dropout.p, "reads": self.reads}
