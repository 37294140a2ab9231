"""Sequential attention: one projected attention on top of the encoder (CS224N report, 3.4.2).

Notebook 11 shows why the report's form cannot learn to attend. Letters: B batch, T tokens,
Q queries (the tokens that are computed), D hidden size, S projected size.
"""

import dataclasses

import torch

from mmlkit.pals.projected import ProjectedAttention, TaskPart

__all__ = ["SequentialAttention"]


class SequentialAttention(TaskPart):
    """Replace the last [CLS] vector x by TS(x), without a residual.

    One vector attends only to itself with weight 1, whatever query and key are, so these two get no
    gradient. What is left is V^D (W_v (V^E x + b) + b') + b'', an affine map of rank S at most. A
    linear head computes the same without it; a head with pooling "pooler" has a tanh in between.

    Args:
        config: the encoder's BertConfig.
        size: S, a multiple of num_heads.
        num_heads: attention heads.
        gelu: see `ProjectedAttention`.
        repaired: attend over all tokens, and add the result to them instead of replacing.
    """

    def __init__(self, config, size=204, num_heads=12, gelu=False, repaired=False):
        super().__init__()
        one_layer = dataclasses.replace(config, num_hidden_layers=1)
        self.projected = ProjectedAttention(one_layer, size, num_heads, gelu)
        self.needs_tokens = repaired

    def transform_output(self, hidden_states, mask, num_queries):
        """Return the vectors that the head reads.

        Args:
            hidden_states: output of the last layer, [B, T, D].
            mask: added to attention scores, [B, 1, 1, T], or None.
            num_queries: Q, or None for T.

        Returns:
            Token vectors [B, Q, D]. In the report's form only the first token changes.
        """
        if self.needs_tokens:
            added = self.projected(hidden_states, 0, mask, num_queries)
            return hidden_states[:, :num_queries] + added
        return torch.cat([self.projected(hidden_states[:, :1]), hidden_states[:, 1:]], dim=1)
