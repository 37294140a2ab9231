"""The maximal multiverse loss (Malkiel and Wolf 2021): orthogonal classifier heads.

Notebook 03 builds it by hand. Letters: B batch, M heads, A active heads, C labels, D hidden size.
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.heads.linear import (
    Loss,
    check_one_score,
    check_pooling,
    pair_features,
    sentence_vector,
)
from mmlkit.messages import check_number

__all__ = ["MultiverseHead", "multiverse_loss"]

IGNORED = -100  # the label of a row without one, for torch's cross-entropy

# The term that is summed over pairs of heads, and its derivative. The paper's is "abs".
SHAPES = {
    "abs": (lambda g, eps: g.abs(), lambda g, eps: g.sign()),
    "smooth": (
        lambda g, eps: (g * g + eps * eps).sqrt() - eps,
        lambda g, eps: g / (g * g + eps * eps).sqrt(),
    ),
    "square": (lambda g, eps: g * g, lambda g, eps: 2 * g),
}
CHOICES = {
    "reduction": ("sum", "mean"),
    "similarity": ("dot", "cosine"),
    "pairs": ("packed", "separate"),
}


class _PairSum(torch.autograd.Function):
    """The sum over classes and pairs r < s of shape(<f_r, f_s>), with a gradient written by hand.

    Per class, G = F F^T holds all dot products. The gradient is shape'(G) F with the full symmetric
    matrix and a zero diagonal, so no factor 1/2 remains. Both are computed in the forward pass,
    class by class, so that only one [A, A] matrix is in memory. The function has a first derivative
    only.
    """

    @staticmethod
    def forward(ctx, weight, shape, eps):
        value, derivative = SHAPES[shape]
        total, gradient = weight.new_zeros(()), torch.empty_like(weight)
        with torch.autocast(weight.device.type, enabled=False):
            for k in range(weight.shape[1]):
                rows = weight[:, k]  # [A, D]: this class's row of every head
                gram = (rows @ rows.T).fill_diagonal_(0)  # [A, A]
                total += value(gram, eps).sum() / 2
                gradient[:, k] = derivative(gram, eps) @ rows
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx, grad_output):
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "the multiverse loss has a first derivative only, written by hand, and a second "
                "one was asked for. Leave out create_graph=True, or compute the loss with autograd."
            )
        (gradient,) = ctx.saved_tensors
        return grad_output * gradient, None, None


def multiverse_loss(weight, active=None, *, similarity="dot", shape="abs", eps=1e-3):
    """Measure how far the active heads are from orthogonal (MML v2, Eq. 4).

    The loss is the sum over classes of sum_{r<s} |<f_r, f_s>|. It costs two products [A, D] x [D,
    A] per class. It can be differentiated once; `create_graph=True` raises RuntimeError.

    Args:
        weight: the heads' weights [M, C, D]. Half precision is computed in fp32.
        active: bool [M]; all heads by default.
        similarity: "dot" as in the paper, or "cosine" (an extension: smaller weights gain nothing).
        shape: "abs" as in the paper; "smooth", sqrt(x^2 + eps^2) - eps, and "square" are extensions
            whose gradient is continuous at orthogonality.
        eps: the constant of "smooth".

    Returns:
        A scalar; 0 for a single head.

    Raises:
        ValueError: a wrong number of dimensions, a mask of another length, or an unknown word.

    Example::

        multiverse_loss(torch.eye(2)[:, None])      # two orthogonal heads of one class: 0
    """
    if weight.dim() != 3:
        raise ValueError(
            f"weight has shape {list(weight.shape)}, expected [heads, labels, hidden_size]."
        )
    if shape not in SHAPES or similarity not in CHOICES["similarity"]:
        raise ValueError(
            f"shape {shape!r} must be one of {list(SHAPES)}, similarity {similarity!r} 'dot' or "
            "'cosine'."
        )
    if active is not None:
        if active.dtype != torch.bool or active.shape != weight.shape[:1]:
            raise ValueError(
                f"active is {active.dtype} of shape {list(active.shape)}, expected bool of "
                f"[{weight.shape[0]}]."
            )
        weight = weight[active]
    weight = weight if weight.dtype == torch.float64 else weight.float()
    if similarity == "cosine":
        weight = F.normalize(weight, dim=-1)
    return _PairSum.apply(weight, shape, eps)


class MultiverseHead(nn.Module):
    """M linear heads on one sentence vector, averaged (MML v2, Eqs. 2 and 5).

    Args:
        hidden_size: D.
        num_labels: C; two for a binary task, one for a regression.
        num_heads: M; the paper takes M = D.
        dropout: on the input, with one mask for all heads.
        orthogonality_weight: the paper's lambda.
        pooling: see `sentence_vector`.
        reduction: the task loss is the "sum" over active heads, as printed, or their "mean". A mean
            over A heads with lambda equals a sum with A * lambda: at M = 1024 the gradient of the
            orthogonality term is then some forty times that of the task loss.
        similarity: see `multiverse_loss`.
        pairs: "packed" as in the paper, or "separate" (an extension: the heads read
            `pair_features`).

    Raises:
        ValueError: a size is below one, or a word is unknown.

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
        reduction="sum",
        similarity="dot",
        pairs="packed",
    ):
        super().__init__()
        check_pooling(pooling)
        sizes = {"hidden_size": hidden_size, "num_labels": num_labels, "num_heads": num_heads}
        for name, size in sizes.items():
            check_number(name, size, 1, whole=True)
        hidden_size, num_labels, num_heads = map(int, sizes.values())  # also converts numpy numbers
        check_number("dropout", dropout, 0, 1)
        check_number("orthogonality_weight", orthogonality_weight, 0)  # the paper's lambda
        words = {"reduction": reduction, "similarity": similarity, "pairs": pairs}
        for name, word in words.items():
            if word not in CHOICES[name]:
                raise ValueError(f"{name} {word!r} is not one of {list(CHOICES[name])}.")
            setattr(self, name, word)
        self.hidden_size, self.num_labels, self.pooling = hidden_size, num_labels, pooling
        self.orthogonality_weight = float(orthogonality_weight)
        self.needs_tokens = pooling == "mean"
        self.dropout = nn.Dropout(float(dropout))
        width = hidden_size if pairs == "packed" else 4 * hidden_size
        self.weight = nn.Parameter(torch.empty(num_heads, num_labels, width))
        self.bias = nn.Parameter(torch.zeros(num_heads, num_labels))
        self.register_buffer("active", torch.ones(num_heads, dtype=torch.bool))
        self._last_read = (None, None, None)  # see `active_indices`
        nn.init.normal_(self.weight, std=0.02)  # BERT's; the paper says "randomly from scratch"

    def __getstate__(self):
        """Return the state without cached indices: a copied mask counts its changes from zero."""
        return {**self.__dict__, "_last_read": (None, None, None)}

    @property
    def num_heads(self):
        """M, pruned heads included."""
        return len(self.active)

    @property
    def active_indices(self):
        """The indices [A] of the active heads, on the device of the mask.

        To find them, the host waits for a GPU. They are therefore kept until the mask changes.
        """
        mask, version, indices = self._last_read
        # torch counts the changes in place; a tensor of inference mode has no count.
        now = None if self.active.is_inference() else self.active._version
        if mask is not self.active or version is None or version != now:
            with torch.inference_mode(False):  # a later training step uses them too
                indices = self.active.nonzero()[:, 0]
            self._last_read = (self.active, now, indices)
        return indices

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

        Raises:
            ValueError: the last size of x is not hidden_size.
        """
        weight, bias = self._rows()
        x = self.dropout(self._features(x))
        logits = F.linear(x, weight.flatten(0, 1), bias.flatten())  # one product for all heads
        return logits.unflatten(-1, bias.shape)

    def loss(self, inputs, batch):
        """Sum the active heads' own losses (Eq. 3, with the softmax that the print omits).

        Args:
            inputs: what `inputs` returned.
            batch: the Batch, with labels [B].

        Returns:
            A Loss with per_head [A].
        """
        logits = self.all_logits(*inputs).float()
        if batch.task.kind == "regression":
            check_one_score(logits)
            # A positive sign: the minus of Eq. 3 belongs to the logarithm alone.
            each, rows = (logits[:, :, 0] - batch.labels[:, None]) ** 2, len(logits)
        else:
            labels = batch.labels[:, None].expand(logits.shape[:2])
            each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            rows = (batch.labels != IGNORED).sum()  # the losses of other rows are 0
        per_head = each.sum(0) / rows  # [A]
        total = per_head.sum() if self.reduction == "sum" else per_head.mean()
        return Loss(total, per_head.detach())

    def penalty(self):
        """Return lambda times the multiverse loss of the active heads, or None where it is zero."""
        if not self.orthogonality_weight or len(self.active_indices) < 2:
            return None
        loss = multiverse_loss(self._active_rows(self.weight), similarity=self.similarity)
        return self.orthogonality_weight * loss

    def set_active(self, active):
        """Keep only the given heads. A dropped head cannot become active again.

        Args:
            active: bool [M].

        Raises:
            ValueError: no head would remain, a dropped head is set, or the length is not M.
        """
        active = torch.as_tensor(active, device=self.active.device)
        if active.dtype != torch.bool:
            raise ValueError(
                f"active holds {active.dtype}, expected a mask of True and False. For the numbers "
                "of heads: mask = torch.zeros_like(head.active); mask[numbers] = True."
            )
        fits = (
            active.shape == self.active.shape and active.any() and not (active & ~self.active).any()
        )
        if not fits:
            raise ValueError(
                f"a mask of {int(active.sum())} of {active.numel()} heads was given; expected "
                f"{self.num_heads} entries, at least one head, and none that was dropped before."
            )
        self.active.copy_(active)

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
        linear = nn.utils.skip_init(  # which draws no random numbers
            nn.Linear,
            weight.shape[-1],
            self.num_labels,
            device=weight.device,
            dtype=weight.dtype,
        )
        linear.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
        return linear

    def to_config(self):
        """Return the keywords that build this head again."""
        names = "num_labels num_heads orthogonality_weight pooling reduction similarity pairs"
        config = {name: getattr(self, name) for name in names.split()}
        return {"hidden_size": self.hidden_size, "dropout": self.dropout.p, **config}

    def _rows(self):
        if not len(self.active_indices):
            raise ValueError(
                f"none of the {self.num_heads} heads is active; change the mask with set_active, "
                "which keeps at least one."
            )
        return self._active_rows(self.weight), self._active_rows(self.bias)

    def _active_rows(self, parameter):
        """Select the rows of the active heads; all heads need no copy (1 % of a training step)."""
        indices = self.active_indices
        return parameter if len(indices) == self.num_heads else parameter.index_select(0, indices)

    def _mean(self):
        return [rows.mean(0) for rows in self._rows()]

    def _features(self, x):
        wanted = 1 if self.pairs == "packed" else 2
        if len(x) != wanted or any(part.shape[-1] != self.hidden_size for part in x):
            shapes = ", ".join(str(list(part.shape)) for part in x)
            raise ValueError(
                f"x has shape {shapes}, expected {'two times ' * (wanted - 1)}[batch, "
                f"{self.hidden_size}]: one vector per {'row' if wanted == 1 else 'sentence'}."
            )
        return x[0] if wanted == 1 else pair_features(*x).to(self.weight.dtype)
