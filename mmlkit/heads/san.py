"""The stochastic answer network: a head for pairs that reasons in steps (MT-DNN).

Notebook 07 builds it by hand. Letters: B batch, T tokens, D hidden size, C labels, K reasoning
steps.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.heads.linear import Loss, at_least_fp32, init_linear

__all__ = ["SANHead", "SANSteps", "kept_steps", "mean_of_steps"]


class SANSteps(NamedTuple):
    """Attention weights and answers of a SANHead, step by step.

    Attributes:
        hypothesis_weights: alpha [B, T], of the first summary of the hypothesis.
        premise_weights: beta [B, K, T].
        probabilities: P_k [B, K, C].
    """

    hypothesis_weights: torch.Tensor
    premise_weights: torch.Tensor
    probabilities: torch.Tensor


def kept_steps(rows, steps, p, device=None):
    """Draw the steps whose answers count in a training step.

    One step of each row is always kept, each other one with probability 1 - p.

    Args:
        rows: B.
        steps: K.
        p: the probability of dropping a step.
        device: the device of the result.

    Returns:
        A mask [B, K], bool.
    """
    kept = torch.rand(rows, steps, device=device) >= p
    return kept.scatter(1, torch.randint(steps, (rows, 1), device=device), True)


def mean_of_steps(logits, kept=None):
    """Average the steps' probabilities, in log space, so that none can round to zero.

    The printed weight 1/(1-p) of a kept step is the same for all steps, and cancels because the
    result sums to one.

    Args:
        logits: [B, K, C].
        kept: bool [B, K], the steps that count, at least one per row; all of them by default.

    Returns:
        Log probabilities [B, C].
    """
    if kept is None:
        kept = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
    log = at_least_fp32(logits).log_softmax(-1).masked_fill(~kept[:, :, None], -torch.inf)
    return log.logsumexp(1) - kept.sum(1, keepdim=True).to(log.dtype).log()


class SANHead(nn.Module):
    """K answers, each after another attention to the premise, averaged (MT-DNN, section 3).

    s_0 = sum_j alpha_j M^h_j with alpha = softmax(w1 M^h), and for k = 0 to K - 1::

        x_k = sum_j beta_j M^p_j with beta = softmax((W2 s_k + b) M^p)
        P_k = softmax(W3 [s_k; x_k; |s_k - x_k|; s_k * x_k])
        s_(k+1) = GRU(x_k, s_k)

    The answer is the mean of the P_k. The paper prints x_k as a function of s_(k-1), which leaves
    x_0 undefined; here, as in the authors' code, it is a function of s_k.

    Args:
        hidden_size: D.
        num_labels: C.
        num_steps: K.
        dropout: on the input of each layer; M^h and M^p lose the same features at all positions.
            MT-DNN takes 0.1, and 0.3 for MNLI.
        prediction_dropout: see `kept_steps`; it acts in training only.
    """

    pairs, needs_pairs, needs_tokens, gives_probabilities = "packed", True, True, True

    def __init__(
        self, hidden_size, num_labels, *, num_steps=5, dropout=0.1, prediction_dropout=0.1
    ):
        super().__init__()
        self.hidden_size, self.num_steps = hidden_size, num_steps
        self.num_labels = int(num_labels)  # also converts numpy numbers, which JSON does not know
        self.prediction_dropout, self.dropout = prediction_dropout, nn.Dropout(dropout)
        self.summary = nn.Linear(hidden_size, 1)  # w1; its bias cancels in the softmax
        self.attention = nn.Linear(hidden_size, hidden_size)  # W2
        self.cell = nn.GRUCell(hidden_size, hidden_size)
        self.dense = nn.Linear(4 * hidden_size, self.num_labels)  # W3
        init_linear(self.summary, self.attention, self.dense)

    def inputs(self, out, batch):
        """Select the hidden states, and the masks of premise and hypothesis.

        Args:
            out: the encoder's output.
            batch: the Batch that was encoded.

        Returns:
            (hidden states [B, T, D], premise mask [B, T], hypothesis mask [B, T]). The premise is
            [CLS], the first text and [SEP]; the hypothesis is the second text and [SEP].
        """
        tokens, second = batch.attention_mask.bool(), batch.token_type_ids.bool()
        return out.last_hidden_state, tokens & ~second, tokens & second

    def forward(self, hidden_states, premise_mask, hypothesis_mask):
        """Compute the mean of the steps' probabilities; in training, of the kept steps.

        Args:
            hidden_states: [B, T, D].
            premise_mask: [B, T], True for a token. A mask without tokens gives a zero vector.
            hypothesis_mask: [B, T], True for a token.

        Returns:
            Probabilities [B, C].
        """
        return self._log_probabilities(hidden_states, premise_mask, hypothesis_mask).exp()

    def steps(self, hidden_states, premise_mask, hypothesis_mask):
        """Return the attention weights and answers behind `forward`; call eval() first.

        Args:
            hidden_states: [B, T, D].
            premise_mask: [B, T], True for a token.
            hypothesis_mask: [B, T], True for a token.

        Returns:
            SANSteps.
        """
        alpha, betas, logits = self._reason(hidden_states, premise_mask, hypothesis_mask)
        return SANSteps(alpha, betas, at_least_fp32(logits).softmax(-1))

    def loss(self, inputs, batch):
        """Compute the negative log of the averaged probability of the right label (Eq. 6).

        Args:
            inputs: what `inputs` returned.
            batch: the Batch, with labels [B].

        Returns:
            A Loss.
        """
        return Loss(F.nll_loss(self._log_probabilities(*inputs), batch.labels))

    def penalty(self):
        """Return the penalty term. A SAN head has none, so this is always None."""
        return None

    def to_config(self):
        """Return the keywords that build this head again."""
        names = "hidden_size num_labels num_steps prediction_dropout"
        return {"dropout": self.dropout.p} | {name: getattr(self, name) for name in names.split()}

    def _log_probabilities(self, *inputs):
        logits = self._reason(*inputs)[2]
        kept = None
        if self.training and self.prediction_dropout:
            kept = kept_steps(*logits.shape[:2], self.prediction_dropout, logits.device)
        return mean_of_steps(logits, kept)

    def _reason(self, M, premise, hypothesis):
        """Alpha [B, T], beta [B, K, T], logits [B, K, C] of M [B, T, D], in the weights' dtype."""
        with torch.autocast(M.device.type, enabled=False):
            M, betas, logits = M.to(self.attention.weight.dtype), [], []
            seen = M * self.dropout(torch.ones_like(M[:, :1]))  # one draw per row and feature
            alpha = _attend(self.summary(seen)[:, :, 0], hypothesis.bool())  # [B, T]
            s = _weighted(alpha, M)  # [B, D]
            for k in range(self.num_steps):
                if k:
                    s = self.cell(x, self.dropout(s))  # noqa: F821  (x of the step before)
                scores = seen @ self.attention(self.dropout(s))[:, :, None]  # [B, T, 1]
                betas.append(_attend(scores[:, :, 0], premise.bool()))
                x = _weighted(betas[-1], M)  # [B, D]
                features = torch.cat([s, x, (s - x).abs(), s * x], -1)  # [B, 4D]
                logits.append(self.dense(self.dropout(features)))
            return alpha, torch.stack(betas, 1), torch.stack(logits, 1)


def _attend(scores, mask):
    """Softmax over the tokens of each row [B, T]; 0 elsewhere."""
    # The smallest finite number: -inf would give nan in a row without tokens.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


def _weighted(weights, M):
    """Weights [B, T] and vectors [B, T, D] to their sums [B, D]."""
    return (weights[:, None] @ M)[:, 0]
