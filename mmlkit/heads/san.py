"""The stochastic answer network: a head that reads a pair of sentences several times before it answers (MT-DNN, section 3).

Notebook 06 builds it by hand. Letters: B batch, T tokens, D hidden size, C labels, K reasoning steps.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.heads.linear import Loss, at_least_fp32

__all__ = ["SANHead", "SANSteps", "kept_steps", "mean_of_steps"]


class SANSteps(NamedTuple):
    """What a SANHead looked at and answered, step by step; see `SANHead.steps`."""

    hypothesis_weights: torch.Tensor    # alpha [B,T], the first summary of the hypothesis
    premise_weights: torch.Tensor       # beta [B,K,T]
    probabilities: torch.Tensor         # P_k [B,K,C]


def kept_steps(rows, steps, p, device=None):
    """Which steps' answers count in a training step, bool [rows, steps]: one drawn for sure, each other with probability 1 - p."""
    kept = torch.rand(rows, steps, device=device) >= p
    return kept.scatter(1, torch.randint(steps, (rows, 1), device=device), True)


def mean_of_steps(logits, kept=None):
    """log of the mean over steps of softmax(logits), as log probabilities; no probability is computed that could round to 0.

    logits: [B,K,C]. kept: bool [B,K], the steps that count, at least one a row; all of them by default. Returns [B,C].
    The printed weight 1/(1-p) of a kept step is the same for all of them and cancels, because what is returned sums to one.
    """
    kept = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device) if kept is None else kept
    log = logits.log_softmax(-1).masked_fill(~kept[:, :, None], -torch.inf)
    return log.logsumexp(1) - kept.sum(1, keepdim=True).to(log.dtype).log()


class SANHead(nn.Module):
    """K answers from a premise that is attended to anew each time, averaged (MT-DNN, section 3, "Pairwise Text Classification").

    s_0 = sum_j alpha_j M^h_j, alpha = softmax(w1 M^h);  x_k = sum_j beta_j M^p_j, beta = softmax((W2 s_k + b) M^p)
    P_k = softmax(W3 [s_k; x_k; |s_k - x_k|; s_k * x_k]);  s_(k+1) = GRU(x_k, s_k), k = 0 to K - 1;  P = mean of the P_k

    The paper prints x_k as a function of s_(k-1), which leaves x_0 undefined; here, as in the authors' code, it is one of s_k.
    hidden_size: D. num_labels: C. num_steps: K. dropout: on what each layer reads; M^h and M^p lose the same features at all
    positions. MT-DNN takes 0.1, and 0.3 for MNLI. prediction_dropout: see `kept_steps`; it acts while training alone.
    Raises ValueError for sizes that leave nothing to learn, or a dropout outside [0, 1).
    """

    pairs, needs_tokens = "packed", True
    kinds, gives_probabilities = ("classification",), True

    def __init__(self, hidden_size, num_labels, *, num_steps=5, dropout=0.1, prediction_dropout=0.1):
        super().__init__()
        if hidden_size < 1 or num_labels < 2 or num_steps < 1:
            raise ValueError(f"hidden_size {hidden_size} and num_steps {num_steps} must be at least 1, num_labels {num_labels} at "
                             "least 2; for a regression task take a LinearHead.")
        if not (0 <= dropout < 1 and 0 <= prediction_dropout < 1):
            raise ValueError(f"dropout {dropout} and prediction_dropout {prediction_dropout} must be at least 0 and below 1.")
        self.hidden_size, self.num_labels, self.num_steps, self.prediction_dropout = hidden_size, num_labels, num_steps, prediction_dropout
        self.dropout = nn.Dropout(dropout)
        self.summary = nn.Linear(hidden_size, 1)                # w1; its bias cancels in the softmax
        self.attention = nn.Linear(hidden_size, hidden_size)    # W2
        self.cell = nn.GRUCell(hidden_size, hidden_size)
        self.dense = nn.Linear(4 * hidden_size, num_labels)     # W3
        for layer in (self.summary, self.attention, self.dense):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def inputs(self, out, batch):
        """Every token's vector, and where premise ([CLS], the first text, [SEP]) and hypothesis (the second, [SEP]) stand.

        Raises ValueError for a task on single texts.
        """
        if not batch.task.is_pair:
            raise ValueError(f"task {batch.task.name!r} reads single texts, a SANHead a premise and a hypothesis; give it a LinearHead.")
        tokens, second = batch.attention_mask.bool(), batch.token_type_ids.bool()
        return out.last_hidden_state, tokens & ~second, tokens & second

    def forward(self, hidden_states, premise_mask, hypothesis_mask):
        """Probabilities [B,C]: the mean over steps, over those kept while training.

        hidden_states: [B,T,D]. premise_mask, hypothesis_mask: [B,T], True for a token. A mask without a token gives a zero vector.
        Raises ValueError when the shapes do not belong together.
        """
        return self._log_probabilities(hidden_states, premise_mask, hypothesis_mask).exp()

    def steps(self, hidden_states, premise_mask, hypothesis_mask):
        """The SANSteps behind `forward`, for a look inside; call eval() before, or dropout acts here too."""
        alpha, betas, logits = self._reason(hidden_states, premise_mask, hypothesis_mask)
        return SANSteps(alpha, betas, logits.softmax(-1))

    def loss(self, inputs, batch):
        """-log of the averaged probability of the right label, Eq. 6."""
        return Loss(F.nll_loss(self._log_probabilities(*inputs), batch.labels))

    def penalty(self):
        """The part that does not depend on data: none."""
        return None

    def spec(self):
        """What `load_model` needs to build this head again."""
        return {"type": "san", "hidden_size": self.hidden_size, "num_labels": self.num_labels, "num_steps": self.num_steps,
                "dropout": self.dropout.p, "prediction_dropout": self.prediction_dropout}

    def _log_probabilities(self, *inputs):
        logits = self._reason(*inputs)[2]
        kept = None
        if self.training and self.prediction_dropout:
            kept = kept_steps(*logits.shape[:2], self.prediction_dropout, logits.device)
        return mean_of_steps(logits, kept)

    def _reason(self, M, premise, hypothesis):
        """(alpha [B,T], beta [B,K,T], logits [B,K,C]) of vectors M [B,T,D]; in fp32 at least, also under autocast."""
        if M.shape[-1] != self.hidden_size or premise.shape != M.shape[:2] or hypothesis.shape != M.shape[:2]:
            raise ValueError(f"hidden_states have shape {list(M.shape)}, the masks {list(premise.shape)} and {list(hypothesis.shape)}; "
                             f"expected [batch, tokens, {self.hidden_size}] and twice [batch, tokens].")
        with torch.autocast(M.device.type, enabled=False):
            M, betas, logits = at_least_fp32(M), [], []
            seen = M * self.dropout(torch.ones_like(M[:, :1]))                      # one draw per row and feature
            alpha = _attend(self.summary(seen)[:, :, 0], hypothesis.bool())         # [B,T]
            s, x = _weighted(alpha, M), None                                        # [B,D]
            for _ in range(self.num_steps):
                if x is not None:
                    s = self.cell(x, self.dropout(s))
                scores = seen @ self.attention(self.dropout(s))[:, :, None]         # [B,T,1]
                betas.append(_attend(scores[:, :, 0], premise.bool()))
                x = _weighted(betas[-1], M)                                         # [B,D]
                logits.append(self.dense(self.dropout(torch.cat([s, x, (s - x).abs(), s * x], -1))))
            return alpha, torch.stack(betas, 1), torch.stack(logits, 1)


def _attend(scores, mask):
    """softmax over the tokens of each row [B,T]; exactly 0 elsewhere, and everywhere in a row without tokens, where -inf would give nan."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1) * mask


def _weighted(weights, M):
    """[B,T] weights and [B,T,D] vectors to their sums [B,D]."""
    return (weights[:, None] @ M)[:, 0]
