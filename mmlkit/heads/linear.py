"""Linear heads for classification and regression, and the loss that every head shares.

Notebook 02 trains them. Letters: B batch, T tokens, D hidden size, C labels.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

__all__ = [
    "POOLINGS",
    "LinearHead",
    "Loss",
    "PairHead",
    "at_least_fp32",
    "data_loss",
    "init_linear",
    "pair_features",
    "sentence_vector",
]

POOLINGS = {"pooler": False, "cls": False, "mean": True}  # whether a pooling reads all tokens


class Loss(NamedTuple):
    """The loss of one batch.

    Attributes:
        total: scalar, the mean over the batch's rows. `train_step` returns it with the head's
            penalty added.
        per_head: one loss per active head, [A], detached; None for a single head.
        micro_batch_size: the number of examples per micro-batch, where `train_step` had to halve
            it.
        gradient_norm: scalar, the norm of the gradient before clipping, from `train_step`.
    """

    total: torch.Tensor
    per_head: torch.Tensor | None = None
    micro_batch_size: int | None = None
    gradient_norm: torch.Tensor | None = None


def sentence_vector(out, batch, pooling):
    """Return one vector per row of the encoder's output.

    Args:
        out: the encoder's output, with last_hidden_state [B, T, D] and pooler_output [B, D].
        batch: anything with an attention_mask [B, T].
        pooling: "pooler" (BERT's tanh layer on [CLS]), "cls" (the last hidden state of [CLS]) or
            "mean" (over the tokens that are no padding).

    Returns:
        Sentence vectors [B, D].
    """
    if not POOLINGS[pooling]:
        return out.pooler_output if pooling == "pooler" else out.last_hidden_state[:, 0]
    mask = batch.attention_mask[:, :, None].to(out.last_hidden_state.dtype)
    return (out.last_hidden_state * mask).sum(1) / mask.sum(1).clamp(min=1)


def at_least_fp32(x):
    """Convert half precision to fp32; float64 stays.

    Args:
        x: a tensor [...] of any floating dtype.

    Returns:
        The tensor [...] in fp32 or float64.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def pair_features(u, v):
    """Return the features [u; v; |u - v|; u * v] of two sentences that were encoded separately.

    Both vectors are first scaled to length sqrt(D).

    Args:
        u: sentence vectors [B, D] of the first sentences.
        v: sentence vectors [B, D] of the second sentences.

    Returns:
        Features [B, 4D].
    """
    u, v = (F.normalize(at_least_fp32(x), dim=-1) * x.shape[-1] ** 0.5 for x in (u, v))
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def data_loss(scores, batch, weights=None):
    """Return the mean cross-entropy, or the mean squared error of a regression, in fp32.

    Args:
        scores: logits [B, C], or [B, 1] for a regression.
        batch: anything with labels [B] and a task with a kind.
        weights: a factor for the cross-entropy of each label's rows, [C], or None. The divisor
            stays B, so that micro-batches add up to the batch; torch's is the sum of the factors.

    Returns:
        A scalar.
    """
    if batch.task.kind == "regression":
        return F.mse_loss(scores.float().flatten(), batch.labels)
    if weights is None:
        return F.cross_entropy(scores.float(), batch.labels)
    return F.cross_entropy(scores.float(), batch.labels, weights, reduction="none").mean()


def init_linear(*layers):
    """Initialise linear layers as BERT does: weights from N(0, 0.02²), biases zero.

    Args:
        *layers: nn.Linear modules.
    """
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)


class LinearHead(nn.Module):
    """One linear layer, logits = W dropout(x) + b (CS224N handout; BERT, section 4.1).

    Args:
        hidden_size: D.
        num_labels: C, or 1 for a regression.
        dropout: on the input. MT-DNN takes 0.1, and 0.05 for CoLA.
        pooling: see `sentence_vector`.
        activation: None, or "sigmoid" for a similarity as in MT-DNN, Eq. 2. The output then fills
            the task's score_range, and the loss is taken on labels scaled to [0, 1], which the
            paper does not print (STS-B: divided by 5).
        class_weights: a factor for the loss of each label's rows, [C], or None; see `data_loss`.

    Raises:
        ValueError: the activation is another word.

    Example::

        LinearHead(384, 5, pooling="mean")(torch.zeros(2, 384)).shape      # [2, 5]
    """

    pairs = "packed"

    def __init__(
        self,
        hidden_size,
        num_labels,
        *,
        dropout=0.1,
        pooling="pooler",
        activation=None,
        class_weights=None,
    ):
        super().__init__()
        if activation not in (None, "sigmoid"):
            raise ValueError(f"activation is {activation!r}, expected None or 'sigmoid'.")
        self.num_labels = int(num_labels)  # also converts numpy numbers, which JSON does not know
        self.pooling, self.needs_tokens = pooling, POOLINGS[pooling]
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(hidden_size, self.num_labels)
        init_linear(self.dense)
        if class_weights is not None:
            class_weights = torch.as_tensor(class_weights).float()
        self.register_buffer("class_weights", class_weights, persistent=False)

    def inputs(self, out, batch):
        """Select the head's inputs from the encoder's output.

        Args:
            out: the encoder's output.
            batch: the Batch that was encoded.

        Returns:
            (sentence vectors [B, D],), and with a sigmoid the task's score_range as second item.
        """
        x = sentence_vector(out, batch, self.pooling)
        return (x,) if self.activation is None else (x, batch.task.score_range)

    def forward(self, x, score_range=(0.0, 1.0)):
        """Compute the logits, or the scores of a sigmoid.

        Args:
            x: sentence vectors [B, D].
            score_range: (lowest, highest) score of a sigmoid.

        Returns:
            Logits [B, C].
        """
        x = self.dropout(x).to(self.dense.weight.dtype)  # also of a frozen encoder in bf16
        scores = self.dense(x)
        if self.activation is None:
            return scores
        low, high = score_range
        return low + (high - low) * at_least_fp32(scores).sigmoid()

    def loss(self, inputs, batch):
        """Compute the loss of a batch.

        Args:
            inputs: what `inputs` returned; of a `PairHead`, the vectors of both sentences.
            batch: the Batch, with labels [B].

        Returns:
            A Loss.
        """
        loss = data_loss(self(*inputs), batch, self.class_weights)
        if self.activation is None:
            return Loss(loss)
        low, high = batch.task.score_range
        return Loss(loss / (high - low) ** 2)  # the squared error of sigmoid and label in [0, 1]

    def penalty(self):
        """Return the penalty term. A linear head has none, so this is always None."""
        return None

    def to_config(self):
        """Return the keywords that build this head again."""
        config = {
            "hidden_size": self.dense.in_features,
            "num_labels": self.num_labels,
            "dropout": self.dropout.p,
            "pooling": self.pooling,
            "activation": self.activation,
        }
        if self.class_weights is not None:  # a class of one's own may lack this keyword
            config["class_weights"] = self.class_weights.tolist()
        return config


class PairHead(LinearHead):
    """One linear layer on two separately encoded sentences (Reimers and Gurevych 2019).

    logits = W dropout([u; v; |u - v|; u * v]) + b. CS224N's starter code encodes pairs this way.

    Args:
        hidden_size: D.
        num_labels: C, or 1 for a regression.
        dropout: on the features.
        pooling: see `sentence_vector`.
        class_weights: see `LinearHead`.
    """

    pairs = "separate"

    def __init__(self, hidden_size, num_labels, *, dropout=0.1, pooling="mean", class_weights=None):
        super().__init__(
            4 * hidden_size,
            num_labels,
            dropout=dropout,
            pooling=pooling,
            class_weights=class_weights,
        )
        self.hidden_size = hidden_size

    def forward(self, u, v):
        """Compute the logits.

        Args:
            u: sentence vectors [B, D] of the first sentences.
            v: sentence vectors [B, D] of the second sentences.

        Returns:
            Logits [B, C].
        """
        return super().forward(pair_features(u, v))

    def to_config(self):
        """Return the keywords that build this head again."""
        config = {**super().to_config(), "hidden_size": self.hidden_size}
        del config["activation"]
        return config
