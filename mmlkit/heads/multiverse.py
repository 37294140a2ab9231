"""The maximal multiverse loss (Malkiel and Wolf 2021): many orthogonal classifier heads on one encoder.

Notebook 03 builds it by hand. Letters: B batch, M heads, A active heads, C labels, D hidden size.
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.heads.linear import READS, Loss, check_one_score, pair_vector, sentence_vector

__all__ = ["MultiverseHead", "multiverse_loss"]

SHAPES = {      # what is summed over pairs of heads, and its derivative; the paper's is the first, the others are extensions
    "abs": (lambda g, eps: g.abs(), lambda g, eps: g.sign()),
    "smooth": (lambda g, eps: (g * g + eps * eps).sqrt() - eps, lambda g, eps: g / (g * g + eps * eps).sqrt()),
    "square": (lambda g, eps: g * g, lambda g, eps: 2 * g),
}


class _PairSum(torch.autograd.Function):
    """sum over classes and pairs r < s of shape(<f_r, f_s>), with its own gradient.

    Per class G = F F^T holds all dot products at once; the gradient is shape'(G) F with the full symmetric matrix and a zero
    diagonal, no factor 1/2. Both are formed in the forward pass, class by class, so only one [A,A] matrix lives at a time.
    It has a first derivative only.
    """

    @staticmethod
    def forward(ctx, weight, shape, eps):
        value, derivative = SHAPES[shape]
        total, gradient = weight.new_zeros(()), torch.empty_like(weight)
        with torch.autocast(weight.device.type, enabled=False):
            for k in range(weight.shape[1]):
                rows = weight[:, k]                                     # [A,D]: this class's row of every head
                gram = (rows @ rows.T).fill_diagonal_(0)                # [A,A]
                total += value(gram, eps).sum() / 2
                gradient[:, k] = derivative(gram, eps) @ rows           # 0 where two heads are orthogonal already
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():     # create_graph=True
            raise RuntimeError("the multiverse loss has a first derivative only, written by hand, and a second one was asked for. "
                               "Leave out create_graph=True, or compute the loss with autograd.")
        gradient, = ctx.saved_tensors
        return grad_output * gradient, None, None


def multiverse_loss(weight, active=None, *, similarity="dot", shape="abs", eps=1e-3):
    """How far the active heads are from orthogonal: sum over classes of sum_{r<s} |<f_r, f_s>| (MML v2, Eq. 4).

    weight: [M,C,D], any floating dtype; half precision is computed in fp32. active: bool [M], all by default.
    similarity: "dot" as in the paper, or "cosine" (an extension: shrinking the weights then gains nothing).
    shape: "abs" as in the paper; "smooth" (sqrt(x^2 + eps^2) - eps) and "square" are extensions whose gradient fades near
    orthogonality instead of jumping. Returns a scalar; 0 for a single head. Cost: two products [A,D] x [D,A] per class.
    The result can be differentiated once; a second derivative (`create_graph=True`) raises RuntimeError.
    Raises ValueError for another number of dimensions, a mask of the wrong length, or an unknown similarity or shape.

    Example::

        multiverse_loss(torch.eye(2)[:, None])      # two orthogonal heads of one class: 0
    """
    if weight.dim() != 3:
        raise ValueError(f"weight has shape {list(weight.shape)}, expected [heads, labels, hidden_size].")
    if shape not in SHAPES or similarity not in ("dot", "cosine"):
        raise ValueError(f"shape {shape!r} must be one of {list(SHAPES)}, similarity {similarity!r} 'dot' or 'cosine'.")
    if active is not None:
        if active.dtype != torch.bool or active.shape != weight.shape[:1]:
            raise ValueError(f"active is {active.dtype} of shape {list(active.shape)}, expected bool of [{weight.shape[0]}].")
        weight = weight[active]
    weight = weight if weight.dtype == torch.float64 else weight.float()
    if similarity == "cosine":
        weight = F.normalize(weight, dim=-1)
    return _PairSum.apply(weight, shape, eps)


class MultiverseHead(nn.Module):
    """M linear heads on one vector, averaged (MML v2, Eqs. 2 and 5).

    hidden_size: D. num_labels: C (two for a binary task, one for regression). num_heads: M; the paper takes M = D.
    dropout: on the vector, one mask for all heads. weight_of_orthogonality: the paper's lambda. reads: see `sentence_vector`.
    reduction: the task loss is the "sum" over active heads, as printed, or their "mean". A mean over A heads with lambda
    equals a sum with A * lambda: at M = 1024 the orthogonality then outweighs the data 77 to 1.
    pairs: "packed" as in the paper, or "separate" (an extension): the heads then read the 4D features of `pair_vector`.
    Raises ValueError for sizes below one or unknown words.
    """

    def __init__(self, hidden_size, num_labels, *, num_heads, dropout=0.1, weight_of_orthogonality=0.005, reads="pooler",
                 reduction="sum", similarity="dot", pairs="packed"):
        super().__init__()
        if min(hidden_size, num_labels, num_heads) < 1:
            raise ValueError(f"hidden_size {hidden_size}, num_labels {num_labels} and num_heads {num_heads} must be at least 1.")
        if reads not in READS or reduction not in ("sum", "mean") or similarity not in ("dot", "cosine"):
            raise ValueError(f"reads {reads!r} must be one of {list(READS)}, reduction {reduction!r} 'sum' or 'mean', "
                             f"similarity {similarity!r} 'dot' or 'cosine'.")
        if pairs not in ("packed", "separate"):
            raise ValueError(f"pairs is {pairs!r}, expected 'packed' or 'separate'.")
        self.pairs, width = pairs, hidden_size if pairs == "packed" else 4 * hidden_size
        self.hidden_size, self.num_labels, self.reads = hidden_size, num_labels, reads
        self.weight_of_orthogonality, self.reduction, self.similarity = weight_of_orthogonality, reduction, similarity
        self.needs_tokens = reads == "mean"
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(num_heads, num_labels, width))
        self.bias = nn.Parameter(torch.zeros(num_heads, num_labels))
        self.register_buffer("active", torch.ones(num_heads, dtype=torch.bool))
        nn.init.normal_(self.weight, std=0.02)      # the paper says "randomly from scratch"; this is BERT's

    @property
    def num_heads(self):
        """M, pruned heads included."""
        return len(self.active)

    def inputs(self, out, batch):
        """What this head reads of the encoder's output."""
        return (sentence_vector(out, batch, self.reads),)

    def forward(self, *x):
        """x [B,D] to [B,C], Eq. 5: the mean of the active heads' logits. It is linear, so the heads are averaged first."""
        return F.linear(self.dropout(self._vector(x)), *self._mean())

    def all_logits(self, *x):
        """Logits of every active head, before Eq. 5 averages them.

        x: [B,D], or two of them where pairs are separate. Returns [B,A,C], heads in index order.
        Raises ValueError when the last size of x is not hidden_size.
        """
        weight, bias = self._rows()
        logits = F.linear(self.dropout(self._vector(x)), weight.flatten(0, 1), bias.flatten())      # one product for all heads
        return logits.unflatten(-1, bias.shape)

    def loss(self, inputs, batch):
        """Each active head's own loss, summed (Eq. 3, with the log of the softmax that the print leaves out)."""
        logits = self.all_logits(*inputs).float()
        if batch.task.kind == "regression":
            check_one_score(logits)
            each = (logits[:, :, 0] - batch.labels[:, None]) ** 2       # positive: Eq. 3's minus belongs to the log alone
        else:
            each = F.cross_entropy(logits.transpose(1, 2), batch.labels[:, None].expand(logits.shape[:2]), reduction="none")
        per_head = each.mean(0)                                         # [A]
        return Loss(per_head.sum() if self.reduction == "sum" else per_head.mean(), per_head.detach())

    def penalty(self):
        """lambda times the orthogonality of the active heads; None where there is nothing to add."""
        if not self.weight_of_orthogonality or self.active.sum() < 2:
            return None
        return self.weight_of_orthogonality * multiverse_loss(self.weight, self.active, similarity=self.similarity)

    def set_active(self, active):
        """Keeps only these heads; a head that was dropped never comes back.

        active: bool [M]. Raises ValueError when no head would be left, or a dropped one would revive.
        """
        active = torch.as_tensor(active, dtype=torch.bool, device=self.active.device)
        if active.shape != self.active.shape or not active.any() or (active & ~self.active).any():
            raise ValueError(f"a mask of {int(active.sum())} of {active.numel()} heads was given; expected {self.num_heads} entries, "
                             "at least one head, and none that was dropped before.")
        self.active.copy_(active)

    @contextlib.contextmanager
    def dropped_heads_unmoved(self):
        """Keep the parameters of dropped heads bit for bit, whatever the optimizer does inside.

        Weight decay and momentum would go on moving them. `train_step` does this; in a loop of your own write::

            with head.dropped_heads_unmoved():
                optimizer.step()
        """
        dropped = ~self.active
        kept = [(parameter, parameter.detach()[dropped]) for parameter in (self.weight, self.bias)]
        yield
        with torch.no_grad():
            for parameter, rows in kept:
                parameter[dropped] = rows

    def collapse(self):
        """One nn.Linear(D, C) with the same output as Eq. 5: the mean of linear heads is a linear head, so inference costs nothing."""
        linear = nn.Linear(self.weight.shape[-1], self.num_labels, device=self.weight.device, dtype=self.weight.dtype)
        with torch.no_grad():
            for ours, mean in zip((linear.weight, linear.bias), self._mean()):
                ours.copy_(mean)
        return linear

    def spec(self):
        """What `load_model` needs to build this head again."""
        return {"type": "multiverse", "hidden_size": self.hidden_size, "num_labels": self.num_labels, "num_heads": self.num_heads,
                "dropout": self.dropout.p, "weight_of_orthogonality": self.weight_of_orthogonality, "reads": self.reads,
                "reduction": self.reduction, "similarity": self.similarity, "pairs": self.pairs}

    def _rows(self):
        weight, bias = self.weight[self.active], self.bias[self.active]
        if not len(weight):
            raise ValueError(f"none of the {self.num_heads} heads is active; change the mask with set_active, which keeps at least one.")
        return weight, bias

    def _mean(self):
        return [rows.mean(0) for rows in self._rows()]

    def _vector(self, x):
        wanted = 1 if self.pairs == "packed" else 2
        if len(x) != wanted or any(part.shape[-1] != self.hidden_size for part in x):
            raise ValueError(f"x has shape {', '.join(str(list(part.shape)) for part in x)}, expected {'two times ' * (wanted - 1)}"
                             f"[batch, {self.hidden_size}]: one vector per {'row' if wanted == 1 else 'sentence'}.")
        return x[0] if wanted == 1 else pair_vector(*x)
