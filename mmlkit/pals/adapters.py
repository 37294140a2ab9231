"""What a task may have for itself inside a shared encoder, and the two ways to which projected attention is compared.

Low-rank layers (Stickland and Murray 2019, section 3.2) and adapters (Houlsby et al. 2019, section 2.1). Letters: B batch,
T tokens, Q queries (the tokens that are computed), D hidden size, S the small size in the middle.
"""

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["Bottleneck", "HoulsbyAdapters", "LowRankLayers", "TaskPart"]


class TaskPart(Protocol):
    """What one task has for itself; no base class, any nn.Module with these. Its last matrices are called `up`.

    The encoder asks it twice: before every layer what to hand to it, and after the last layer for what to put out.
    """

    whole_sequence: bool    # True: at_end reads every token of the last layer, so none of them may be left out

    def at_layer(self, layer, hidden_states, mask, num_queries) -> dict: ...        # keywords of BertLayer: beside, or inside
    def at_end(self, hidden_states, mask, num_queries) -> torch.Tensor: ...


class Bottleneck(nn.Module):
    """up(gelu(down(x))), or x + up(gelu(down(x))) with `skip`: from D numbers to S and back."""

    def __init__(self, hidden_size, size, *, skip=False):
        super().__init__()
        self.down, self.up = nn.Linear(hidden_size, size), nn.Linear(size, hidden_size)
        self.skip = skip

    def forward(self, x):
        added = self.up(F.gelu(self.down(x)))
        return x + added if self.skip else added


class LowRankLayers(nn.Module):
    """TS(h) = V^D gelu(V^E h) beside every layer, with V^D and V^E of its own in each: no token sees another.

    config: the encoder's. size: S, in the paper 100, which costs as much as projected attention at 204.
    """

    whole_sequence = False

    def __init__(self, config, size=100):
        super().__init__()
        self.layers = nn.ModuleList(Bottleneck(config.hidden_size, size) for _ in range(config.num_hidden_layers))

    def at_layer(self, layer, hidden_states, mask, num_queries):
        """What the layer adds before its last LayerNorm, [B,Q,D]."""
        return {"beside": self.layers[layer](hidden_states[:, :num_queries])}

    def at_end(self, hidden_states, mask, num_queries):
        """Nothing more."""
        return hidden_states


class HoulsbyAdapters(nn.Module):
    """Two bottlenecks with a skip in every layer, each on what a half of the layer is about to add to its residual.

    config: the encoder's. size: S. The code of Stickland and Murray moves the second one: there it reads what the feed-forward
    network reads, and stands beside it. The numbers of parameters are the same.
    """

    whole_sequence = False

    def __init__(self, config, size=50):
        super().__init__()
        self.attention, self.output = (nn.ModuleList(Bottleneck(config.hidden_size, size, skip=True)
                                                     for _ in range(config.num_hidden_layers)) for _ in range(2))

    def at_layer(self, layer, hidden_states, mask, num_queries):
        """What the layer applies inside its two halves."""
        return {"inside": (self.attention[layer], self.output[layer])}

    def at_end(self, hidden_states, mask, num_queries):
        """Nothing more."""
        return hidden_states
