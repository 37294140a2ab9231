"""Multi-head self-attention (Vaswani et al. 2017, Eq. 1 and section 3.2.2).

Notebook 01 builds it by hand on three tokens. Letters: B batch, T tokens, Q queries (the tokens
that are computed), D hidden size, H attention heads.
"""

from torch import nn
from torch.nn import functional as F

__all__ = ["BertSelfAttention"]


class BertSelfAttention(nn.Module):
    """Compute softmax(Q K^T / sqrt(D/H) + mask) V in H heads of D/H features each.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def split_heads(self, x):
        """Return the features of every head.

        Args:
            x: queries, keys or values, [B, T, D].

        Returns:
            The same numbers as [B, H, T, D/H].
        """
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def probabilities(self, hidden_states, mask=None, num_queries=None):
        """Return the attention weights, before dropout.

        Args:
            hidden_states: token vectors, [B, T, D].
            mask: added to the scores, broadcastable to [B, 1, 1, T].
            num_queries: Q; only the first Q tokens are queries. By default all T.

        Returns:
            Weights [B, H, Q, T]; every row sums to 1.
        """
        query = self.split_heads(self.query(hidden_states[:, :num_queries]))
        key = self.split_heads(self.key(hidden_states))
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        scores = scores if mask is None else scores + mask
        return scores.softmax(-1)

    def forward(self, hidden_states, mask=None, num_queries=None):
        """Return the attended vectors of the first Q tokens; they attend to all T.

        Args:
            hidden_states: token vectors, [B, T, D].
            mask: added to the scores, broadcastable to [B, 1, 1, T].
            num_queries: Q, by default T.

        Returns:
            Token vectors [B, Q, D], the heads side by side.
        """
        value = self.split_heads(self.value(hidden_states))
        if _is_fused(value):
            query = self.split_heads(self.query(hidden_states[:, :num_queries]))
            key = self.split_heads(self.key(hidden_states))
            dropout = self.dropout.p if self.training else 0.0
            mixed = _fused(query, key, value, mask, dropout)
        else:
            mixed = self.dropout(self.probabilities(hidden_states, mask, num_queries)) @ value
        return mixed.transpose(1, 2).flatten(2)  # [B,H,Q,D/H] to [B,Q,D]


def _is_fused(value):
    """Return whether torch's fused kernel is used; on a CPU it has no dropout."""
    return not value.is_cpu


def _fused(query, key, value, mask, dropout):
    """Return the attended values [B, H, Q, D/H] of torch's fused kernel.

    On a GPU it wants D/H to be a multiple of 8, or it writes the products out in fp32. PALs of
    204 features in 12 heads have 17. Zeros change no product.
    """
    size = value.shape[-1]
    if size % 8:
        query, key, value = (F.pad(x, (0, -size % 8)) for x in (query, key, value))
    attended = F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=size**-0.5)
    return attended[..., :size]
