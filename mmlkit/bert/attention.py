"""Multi-head self-attention (Vaswani et al. 2017, Eq. 1 and section 3.2.2).

Notebook 01 builds it by hand on three tokens. Letters: B batch, T tokens, Q queries (the tokens
that are computed), D hidden size, H attention heads.
"""

import functools

import torch
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
        if not torch.is_grad_enabled():
            # On a CPU, a softmax in bf16 takes five times as long as one in fp32 (a twentieth of a
            # prediction). In training nothing is gained, because the wider weights are kept.
            wide = torch.promote_types(scores.dtype, torch.float32)
            return scores.softmax(-1, dtype=wide).to(scores.dtype)
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
        if not torch.is_grad_enabled():
            hidden_states = _in_autocast_dtype(hidden_states)
        value = self.split_heads(self.value(hidden_states))
        if _fused_is_faster(value, self.training):
            query = self.split_heads(self.query(hidden_states[:, :num_queries]))
            key = self.split_heads(self.key(hidden_states))
            dropout = self.dropout.p if self.training else 0.0
            mixed = _fused(query, key, value, mask, dropout)
        else:
            mixed = self.dropout(self.probabilities(hidden_states, mask, num_queries)) @ value
        return mixed.transpose(1, 2).flatten(2)  # [B,H,Q,D/H] to [B,Q,D]


def _in_autocast_dtype(x):
    """Cast x once, for autocast would cast it for each of the three products.

    Not in training, where three gradients are added: in bf16, instead of in fp32.
    """
    kind = x.device.type
    cast = x.dtype == torch.float32 and torch.is_autocast_enabled(kind)
    return x.to(torch.get_autocast_dtype(kind)) if cast else x


def _fused(query, key, value, mask, dropout):
    """Return the attended values [B, H, Q, D/H] of torch's fused kernel.

    On a GPU it wants D/H to be a multiple of 8, or it writes the products out in fp32. PALs of
    204 features in 12 heads have 17. Zeros change no product.
    """
    size = value.shape[-1]
    if size % 8:
        query, key, value = (F.pad(x, (0, -size % 8)) for x in (query, key, value))
    if value.is_cpu and value.shape[2] % 16 > 5 and _has_avx512():
        key, value, mask = _whole_vectors(key, value, mask)
    attended = F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=size**-0.5)
    return attended[..., :size]


def _whole_vectors(key, value, mask):
    """Append keys that no query sees, to a multiple of 16.

    The kernel treats 16 keys at once, and the rest of a row one by one: 26 keys take longer than
    32. The weights of the new keys are exactly 0.
    """
    missing = -key.shape[2] % 16
    mask = key.new_zeros(1, 1, 1, key.shape[2]) if mask is None else mask
    key, value = (F.pad(x, (0, 0, 0, missing)) for x in (key, value))
    return key, value, F.pad(mask, (0, missing), value=float("-inf"))


def _fused_is_faster(value, training):
    """Return whether torch's fused kernel beats the matrix products.

    On a CPU it has no dropout. Under `fast_matmul`, and in bf16 without AMX, it takes 2 to 20 times
    as long there; in bf16 with AMX, a fifth to all of the time.
    """
    if not value.is_cpu or training:
        return not value.is_cpu
    if value.dtype == torch.bfloat16:
        return _has_amx()
    return value.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


@functools.cache
def _has_avx512():
    """Return whether torch computes with vectors of 16 numbers."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _has_amx():
    """Return whether the processor multiplies tiles of bf16."""
    return getattr(torch.cpu, "_is_amx_tile_supported", bool)()
