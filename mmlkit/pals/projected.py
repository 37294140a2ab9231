"""Projected attention layers, PALs (Stickland and Murray 2019, section 3.1).

A PAL is a small attention of one task, in parallel to every layer of a shared encoder. Notebook 11
builds it by hand. Letters: B batch, T tokens, Q queries (the tokens that are computed), D hidden
size, S projected size.
"""

import dataclasses

from torch import nn
from torch.nn import functional as F

from mmlkit.bert.attention import BertSelfAttention

__all__ = ["ProjectedAttention", "TaskPart"]


class TaskPart(nn.Module):
    """Define how the modules of one task take part in the encoder; by default they change nothing.

    The encoder calls `layer_inputs` before every layer and `transform_output` after the last one.

    Attributes:
        needs_tokens: True when transform_output reads all tokens of the last layer.
    """

    needs_tokens = False

    def layer_inputs(self, layer, hidden_states, mask, num_queries):
        """Return what the task hands to one layer.

        Args:
            layer: number of the layer, from 0.
            hidden_states: input of the layer, [B, T, D].
            mask: added to attention scores, [B, 1, 1, T], or None.
            num_queries: Q, or None for T.

        Returns:
            A dict of keyword arguments of `BertLayer.forward`: task_residual [B, Q, D] or adapters.
        """
        return {}

    def transform_output(self, hidden_states, mask, num_queries):
        """Return the task's version of the last layer's output.

        Args:
            hidden_states: output of the last layer, [B, T, D].
            mask: added to attention scores, [B, 1, 1, T], or None.
            num_queries: Q, or None for T.

        Returns:
            Token vectors [B, Q, D].
        """
        return hidden_states


class ProjectedAttention(TaskPart):
    """Compute TS(h) = V^D g(V^E h) for every layer: h' = LayerNorm(a + FFN(a) + TS(h)).

    Here a = LayerNorm(h + MH(h)), and g is multi-head attention of size S without an output
    projection. All layers share V^E (`down`) and V^D (`up`); query, key and value differ by layer.
    TS is added without dropout.

    Args:
        config: the encoder's BertConfig.
        size: S, a multiple of num_heads.
        num_heads: attention heads of g: 12 in the paper, 6 in its code, with equal numbers of
            parameters.
        gelu: apply a GELU after V^D, as the authors' code does and no formula of the paper.
    """

    def __init__(self, config, size=204, num_heads=12, gelu=False):
        super().__init__()
        small = dataclasses.replace(config, hidden_size=size, num_attention_heads=num_heads)
        self.down = nn.Linear(config.hidden_size, size)
        self.up = nn.Linear(size, config.hidden_size)
        layers = range(config.num_hidden_layers)
        self.attention = nn.ModuleList(BertSelfAttention(small) for _ in layers)
        self.gelu = gelu

    def forward(self, hidden_states, layer=0, mask=None, num_queries=None):
        """Return TS(h) of one layer.

        Args:
            hidden_states: input h of the layer, [B, T, D].
            layer: number of the layer, from 0.
            mask: added to attention scores, [B, 1, 1, T], see `BertModel.additive_mask`.
            num_queries: Q, by default T.

        Returns:
            The task's residual [B, Q, D].
        """
        added = self.up(self.attention[layer](self.down(hidden_states), mask, num_queries))
        return F.gelu(added) if self.gelu else added

    def layer_inputs(self, layer, hidden_states, mask, num_queries):
        """Return TS(h) as the residual of the layer; see `TaskPart`.

        Args:
            layer: number of the layer, from 0.
            hidden_states: input of the layer, [B, T, D].
            mask: added to attention scores, [B, 1, 1, T], or None.
            num_queries: Q, or None for T.

        Returns:
            A dict with task_residual [B, Q, D].
        """
        return {"task_residual": self(hidden_states, layer, mask, num_queries)}
