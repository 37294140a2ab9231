"""Two alternatives to PALs with about as many parameters: low-rank layers, Houlsby's adapters.

Stickland and Murray 2019, section 3.2; Houlsby et al. 2019, section 2.1. Notebook 11 compares them.
Letters: B batch, T tokens, Q queries (the tokens that are computed), D hidden size, S inner size.
"""

from torch import nn
from torch.nn import functional as F

from mmlkit.pals.projected import TaskPart

__all__ = ["Bottleneck", "HoulsbyAdapters", "LowRankLayers"]


class Bottleneck(nn.Module):
    """Compute up(gelu(down(x))): from D features to S and back.

    Args:
        hidden_size: D.
        size: S.
    """

    def __init__(self, hidden_size, size):
        super().__init__()
        self.down, self.up = nn.Linear(hidden_size, size), nn.Linear(size, hidden_size)

    def forward(self, x):
        """Return the transformed vectors.

        Args:
            x: token vectors, [B, Q, D].

        Returns:
            Vectors [B, Q, D].
        """
        return self.up(F.gelu(self.down(x)))


class LowRankLayers(TaskPart):
    """Compute TS(h) = V^D gelu(V^E h) in parallel to every layer; no token sees another one.

    Every layer has its own V^D and V^E.

    Args:
        config: the encoder's BertConfig.
        size: S; 100 has about as many parameters as `ProjectedAttention` with 204.
    """

    def __init__(self, config, size=100):
        super().__init__()
        self.layers = _bottlenecks(config, size)

    def layer_inputs(self, layer, hidden_states, mask, num_queries):
        """Return TS(h) as the residual of the layer; see `TaskPart`.

        Args:
            layer: number of the layer, from 0.
            hidden_states: input of the layer, [B, T, D].
            mask: not used.
            num_queries: Q, or None for T.

        Returns:
            A dict with task_residual [B, Q, D].
        """
        return {"task_residual": self.layers[layer](hidden_states[:, :num_queries])}


class HoulsbyAdapters(TaskPart):
    """Add a bottleneck's result in both halves of every layer, before the residual is added.

    The code of Stickland and Murray moves the second one: it reads the input of the feed-forward
    network and is added in parallel to it. The number of parameters is the same.

    Args:
        config: the encoder's BertConfig.
        size: S.
    """

    def __init__(self, config, size=50):
        super().__init__()
        self.attention = _bottlenecks(config, size)
        self.output = _bottlenecks(config, size)

    def layer_inputs(self, layer, hidden_states, mask, num_queries):
        """Return the adapters of the two halves of the layer; see `TaskPart`.

        Args:
            layer: number of the layer, from 0.
            hidden_states: not used.
            mask: not used.
            num_queries: not used.

        Returns:
            A dict with adapters, two functions from [B, Q, D] to [B, Q, D].
        """
        return {"adapters": (self.attention[layer], self.output[layer])}


def _bottlenecks(config, size):
    layers = range(config.num_hidden_layers)
    return nn.ModuleList(Bottleneck(config.hidden_size, size) for _ in layers)
