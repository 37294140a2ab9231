"""Self-attention (Vaswani et al. 2017, Eq. 1).

Notebook 01 builds it on three tokens. Letters: B batch, T tokens, Q queries, D hidden size, H attention heads.
"""

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["BertSelfAttention"]


class BertSelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(D/H) + mask) V, heads side by side (Vaswani et al. 2017, Eq. 1)."""

    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def heads(self, x):
        """[B,T,D] to [B,H,T,D/H]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def probabilities(self, hidden_states, mask=None, num_queries=None):
        """Attention weights [B,H,Q,T] of the first `num_queries` tokens (all by default) over all T tokens."""
        query, key = self.heads(self.query(hidden_states[:, :num_queries])), self.heads(self.key(hidden_states))
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        return (scores if mask is None else scores + mask).softmax(-1)

    def forward(self, hidden_states, mask=None, num_queries=None):
        value = self.heads(self.value(hidden_states))
        if _written_out(value, self.training):
            mixed = self.dropout(self.probabilities(hidden_states, mask, num_queries)).to(value.dtype) @ value
        else:
            query, key = self.heads(self.query(hidden_states[:, :num_queries])), self.heads(self.key(hidden_states))
            dropout = self.dropout.p if self.training else 0.0
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2)     # [B,Q,D]


def _written_out(value, training):
    """Whether plain matrix products beat torch's fused attention: on a CPU, in bf16, under fast_matmul (2 to 20 times), or
    while training, where fused attention has no dropout of its own and falls back to the same products."""
    fast = value.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest"
    return value.device.type == "cpu" and (fast or training)
