"""The maximal multiverse loss (Malkiel and Wolf 2021): orthogonal classifier heads.

Notebook 03 builds it by hand. Letters: B batch, M heads, A active heads, C labels, D hidden size.
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.heads.linear import POOLINGS, Loss, at_least_fp32, pair_features, sentence_vector

__all__ = ["MultiverseHead", "multiverse_loss"]

IGNORED = -100  # the label of a row without one, for torch's cross-entropy
SIMILARITIES = {"dot": lambda rows: rows, "cosine": lambda rows: F.normalize(rows, dim=-1)}


class _PairSum(torch.autograd.Function):
    """The sum over classes and pairs r < s of |<f_r, f_s>|, with a gradient written by hand.

    Per class, G = F F^T holds all dot products. The gradient is sign(G) F with the full symmetric
    matrix and a zero diagonal, so no factor 1/2 remains. Both are computed in the forward pass,
    class by class, so that only one [A, A] matrix is in memory.
    """

    @staticmethod
    def forward(ctx, weight):
        total, gradient = weight.new_zeros(()), torch.empty_like(weight)
        with torch.autocast(weight.device.type, enabled=False):
            for k in range(weight.shape[1]):
                rows = weight[:, k]  # [A, D]: this class's row of every head
                gram = (rows @ rows.T).fill_diagonal_(0)  # [A, A]
                total += gram.abs().sum() / 2
                gradient[:, k] = gram.sign() @ rows
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():  # create_graph=True, whose result would lack this term
            raise RuntimeError("the multiverse loss has a first derivative only.")
        (gradient,) = ctx.saved_tensors
        return grad_output * gradient


def multiverse_loss(weight, active=None, *, similarity="dot"):
    """Measure how far the active heads are from orthogonal (MML v2, Eq. 4).

    The loss is the sum over classes of sum_{r<s} |<f_r, f_s>|. It costs two products [A, D] x [D,
    A] per class, and can be differentiated once.

    Args:
        weight: the heads' weights [M, C, D]. Half precision is computed in fp32.
        active: bool [M]; all heads by default.
        similarity: "dot" as in the paper, or "cosine" (an extension: smaller weights gain nothing).

    Returns:
        A scalar; 0 for a single head.

    Example::

        multiverse_loss(torch.eye(2)[:, None])      # two orthogonal heads of one class: 0
    """
    if active is not None:
        weight = weight[active.bool()]
    return _PairSum.apply(SIMILARITIES[similarity](at_least_fp32(weight)))


class MultiverseHead(nn.Module):
    """M linear heads on one sentence vector, averaged (MML v2, Eqs. 2 and 5).

    Args:
        hidden_size: D.
        num_labels: C; two for a binary task, one for a regression.
        num_heads: M; the paper takes M = D.
        dropout: on the input, with one mask for all heads.
        orthogonality_weight: the paper's lambda.
        pooling: see `sentence_vector`.
        pairs: "packed" as in the paper, or "separate" (an extension: the heads read
            `pair_features`).

    Example::

        head = MultiverseHead(384, 5, num_heads=384)
        head.collapse()             # nn.Linear(384, 5) with the same output
    """

    def __init__(
        self,
        hidden_size,
        num_labels,
        *,
        num_heads,
        dropout=0.1,
        orthogonality_weight=0.005,
        pooling="pooler",
        pairs="packed",
    ):
        super().__init__()
        self.hidden_size, self.pairs = hidden_size, pairs
        self.num_labels = int(num_labels)  # also converts numpy numbers, which JSON does not know
        self.orthogonality_weight = orthogonality_weight  # the paper's lambda
        self.pooling, self.needs_tokens = pooling, POOLINGS[pooling]
        self.dropout = nn.Dropout(dropout)
        width = hidden_size * {"packed": 1, "separate": 4}[pairs]
        self.weight = nn.Parameter(torch.empty(num_heads, self.num_labels, width))
        self.bias = nn.Parameter(torch.zeros(num_heads, self.num_labels))
        self.register_buffer("active", torch.ones(num_heads, dtype=torch.bool))
        self._indices = None  # see `active_indices`
        nn.init.normal_(self.weight, std=0.02)  # BERT's; the paper says "randomly from scratch"

    @property
    def num_heads(self):
        """M, pruned heads included."""
        return len(self.active)

    @property
    def active_indices(self):
        """The indices [A] of the active heads, on the device of the mask.

        To find them, the host waits for a GPU. They are therefore kept until `set_active` or
        `load_state_dict` changes the mask; do not change it in place.
        """
        if self._indices is None or self._indices.device != self.active.device:
            with torch.inference_mode(False):  # a later training step uses them too
                self._indices = self.active.nonzero()[:, 0]
        return self._indices

    def _load_from_state_dict(self, *arguments):
        super()._load_from_state_dict(*arguments)
        self._indices = None

    def inputs(self, out, batch):
        """Select the sentence vector from the encoder's output.

        Args:
            out: the encoder's output.
            batch: the Batch that was encoded.

        Returns:
            (sentence vectors [B, D],).
        """
        return (sentence_vector(out, batch, self.pooling),)

    def forward(self, *x):
        """Average the active heads' logits (Eq. 5); being linear, the heads are averaged first.

        Args:
            *x: sentence vectors [B, D]; two of them where pairs are separate.

        Returns:
            Logits [B, C].
        """
        return F.linear(self.dropout(self._features(x)), *self._mean())

    def all_logits(self, *x):
        """Compute the logits of every active head, before Eq. 5 averages them.

        Args:
            *x: sentence vectors [B, D]; two of them where pairs are separate.

        Returns:
            Logits [B, A, C] of the A active heads, in index order.
        """
        weight, bias = self._rows()
        x = self.dropout(self._features(x))
        logits = F.linear(x, weight.flatten(0, 1), bias.flatten())  # one product for all heads
        return logits.unflatten(-1, bias.shape)

    def loss(self, inputs, batch):
        """Sum the active heads' own losses (Eq. 3, with the softmax that the print omits).

        A mean over A heads would equal this sum with A * lambda: at M = 1024, the gradient of the
        orthogonality term would be some forty times that of the task loss.

        Args:
            inputs: what `inputs` returned.
            batch: the Batch, with labels [B].

        Returns:
            A Loss with per_head [A].
        """
        logits = self.all_logits(*inputs).float()
        if batch.task.kind == "regression":
            # A positive sign: the minus of Eq. 3 belongs to the logarithm alone.
            each, rows = (logits.squeeze(-1) - batch.labels[:, None]) ** 2, len(logits)
        else:
            labels = batch.labels[:, None].expand(logits.shape[:2])
            each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            rows = (batch.labels != IGNORED).sum()  # the losses of other rows are 0
        per_head = each.sum(0) / rows  # [A]
        return Loss(per_head.sum(), per_head.detach())

    def penalty(self):
        """Return lambda times the multiverse loss of the active heads, or None where it is zero."""
        if not self.orthogonality_weight or len(self.active_indices) < 2:
            return None
        return self.orthogonality_weight * multiverse_loss(self._active_rows(self.weight))

    def set_active(self, active):
        """Keep only the given heads. A dropped head cannot become active again.

        Args:
            active: bool [M].

        Raises:
            ValueError: it is no mask of length M, no head would remain, or a dropped head is set.
        """
        active = torch.as_tensor(active, device=self.active.device)
        is_mask = active.dtype == torch.bool and active.shape == self.active.shape
        if not is_mask or not active.any() or (active & ~self.active).any():
            raise ValueError(
                f"active is {active}, expected a mask of {self.num_heads} times True or False, "
                "with at least one head, and none that was dropped before. For the numbers of "
                "heads: mask = torch.zeros_like(head.active); mask[numbers] = True."
            )
        self.active.copy_(active)
        self._indices = None

    @contextlib.contextmanager
    def dropped_heads_unmoved(self):
        """Keep the parameters of dropped heads bit for bit, whatever the optimizer does inside.

        Weight decay and momentum would move them. `train_step` uses this context; a loop of your
        own writes::

            with head.dropped_heads_unmoved():
                optimizer.step()
        """
        if len(self.active_indices) == self.num_heads:
            yield
            return
        saved = [(parameter, parameter.detach().clone()) for parameter in (self.weight, self.bias)]
        yield
        with torch.no_grad():
            for parameter, before in saved:
                active = self.active.view(-1, *[1] * (parameter.dim() - 1))
                parameter.copy_(torch.where(active, parameter, before))

    def collapse(self):
        """Return one linear layer with the output of Eq. 5, so inference costs nothing extra.

        The mean of linear heads is a linear head. The layer is nn.Linear(D, C).
        """
        weight, bias = self._mean()
        linear = nn.utils.skip_init(nn.Linear, *weight.shape[::-1])  # draws no random numbers
        linear.to(weight)
        linear.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
        return linear

    def to_config(self):
        """Return the keywords that build this head again."""
        names = "num_labels num_heads orthogonality_weight pooling pairs"
        config = {name: getattr(self, name) for name in names.split()}
        return {"hidden_size": self.hidden_size, "dropout": self.dropout.p, **config}

    def _rows(self):
        return self._active_rows(self.weight), self._active_rows(self.bias)

    def _active_rows(self, parameter):
        """Select the rows of the active heads; all heads need no copy (1 % of a training step)."""
        indices = self.active_indices
        return parameter if len(indices) == self.num_heads else parameter.index_select(0, indices)

    def _mean(self):
        return [rows.mean(0) for rows in self._rows()]

    def _features(self, x):
        (x,) = (pair_features(*x),) if self.pairs == "separate" else x
        return x.to(self.weight.dtype)  # also of a frozen encoder in bf16
