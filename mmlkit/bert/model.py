"""BERT's encoder (Devlin et al. 2019), under the parameter names of transformers' BertModel.

Notebook 01 builds it by hand. Letters: B batch, T tokens, Q queries (the tokens that are computed),
D hidden size, H attention heads.
"""

import dataclasses
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from mmlkit.bert.attention import BertSelfAttention

__all__ = ["BertConfig", "BertModel", "BertOutput", "BertLayer"]


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Store the sizes of an encoder; names and defaults are those of transformers' BertConfig.

    The defaults are BERT-base.

    Args:
        vocab_size: number of word pieces.
        hidden_size: D, a multiple of num_attention_heads.
        num_hidden_layers: number of layers.
        num_attention_heads: H.
        intermediate_size: width of the feed-forward network.
        hidden_act: activation of the feed-forward network; only "gelu" is supported.
        hidden_dropout_prob: dropout after the embeddings and after each half of a layer.
        attention_probs_dropout_prob: dropout on the attention weights.
        max_position_embeddings: largest number of tokens in a row.
        type_vocab_size: number of segments.
        initializer_range: standard deviation of the initial weights.
        layer_norm_eps: number added to the variance in LayerNorm.
        pad_token_id: row of the word table that is never trained.

    Raises:
        ValueError: hidden_act is not "gelu".
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0

    def __post_init__(self):
        if self.hidden_act != "gelu":
            raise ValueError(f"hidden_act {self.hidden_act!r} is not supported; expected 'gelu'.")

    @classmethod
    def from_dict(cls, values):
        """Return the configuration in the values of a config.json.

        Args:
            values: a dict; other keys and values of None are ignored.

        Returns:
            A BertConfig.
        """
        names = cls.__dataclass_fields__
        return cls(
            **{key: value for key, value in values.items() if key in names and value is not None}
        )

    @classmethod
    def tiny(cls, **changes):
        """Return a size for tests and toys: 2 layers, D = 32, about 27 thousand parameters.

        Args:
            **changes: fields with other values.

        Returns:
            A BertConfig.
        """
        sizes = dict(
            vocab_size=199,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
        )
        return cls(**{**sizes, **changes})

    @classmethod
    def base(cls):
        """Return BERT-base, 109,482,240 parameters with the pooler."""
        return cls()

    @classmethod
    def large(cls):
        """Return BERT-large, 335,141,888 parameters with the pooler."""
        return cls(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        )


class BertOutput(NamedTuple):
    """Hold the two outputs of the encoder.

    Attributes:
        last_hidden_state: token vectors, [B, T, D]; [B, 1, D] with first_token_only.
        pooler_output: the pooled [CLS] vectors, [B, D].
    """

    last_hidden_state: torch.Tensor
    pooler_output: torch.Tensor


class BertEmbeddings(nn.Module):
    """Add word, position and segment vectors, then normalise.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        D = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, D, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, D)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, D)
        self.LayerNorm = nn.LayerNorm(D, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, token_type_ids):
        """Return the token vectors that enter the first layer.

        Args:
            input_ids: token ids, [B, T].
            token_type_ids: segments, [B, T].

        Returns:
            Token vectors [B, T, D].
        """
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        summed = (
            self.word_embeddings(input_ids)
            + self.token_type_embeddings(token_type_ids)
            + self.position_embeddings(positions)
        )
        return self.dropout(self.LayerNorm(summed))


class AddNorm(nn.Module):
    """Compute LayerNorm(residual + dropout(W x + b)), the end of both halves of a layer.

    Args:
        in_features: F, the width of x.
        config: a BertConfig.
    """

    def __init__(self, in_features, config):
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, residual, task_residual=None, adapter=None):
        """Return the output of one half of a layer.

        Args:
            x: the result of attention or of the wide map, [B, Q, F].
            residual: the input of this half, [B, Q, D].
            task_residual: a second residual, [B, Q, D], added before the normalisation.
            adapter: a function from [B, Q, D] to [B, Q, D]; adapter(y) is added to
                y = dropout(W x + b).

        Returns:
            Token vectors [B, Q, D].
        """
        x = self.dropout(self.dense(x))
        summed = (x if adapter is None else x + adapter(x)) + residual
        return self.LayerNorm(summed if task_residual is None else summed + task_residual)


class BertAttention(nn.Module):
    """Apply self-attention and its AddNorm; checkpoints use the name `self`.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = AddNorm(config.hidden_size, config)

    def forward(self, hidden_states, mask=None, num_queries=None, adapter=None):
        """Return the output of the first half of a layer.

        Args:
            hidden_states: token vectors, [B, T, D].
            mask: added to the attention scores, broadcastable to [B, 1, 1, T].
            num_queries: Q, by default T.
            adapter: see `AddNorm`.

        Returns:
            Token vectors [B, Q, D].
        """
        attended = self.self(hidden_states, mask, num_queries)
        return self.output(attended, hidden_states[:, :num_queries], adapter=adapter)


class BertIntermediate(nn.Module):
    """Apply the first map of the feed-forward network and the exact GELU.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, x):
        """Return GELU(W x + b).

        Args:
            x: token vectors, [B, Q, D].

        Returns:
            Features [B, Q, F] with F = intermediate_size.
        """
        return F.gelu(self.dense(x))


class BertLayer(nn.Module):
    """Compute a = AddNorm(attention(h), h), then h' = AddNorm(feed_forward(a), a).

    The second residual is a, not h.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = AddNorm(config.intermediate_size, config)

    def forward(
        self,
        hidden_states,
        mask=None,
        task_residual=None,
        num_queries=None,
        adapters=(None, None),
    ):
        """Return the token vectors for the next layer.

        Args:
            hidden_states: h, [B, T, D].
            mask: added to the attention scores, broadcastable to [B, 1, 1, T].
            task_residual: [B, Q, D], added before the last LayerNorm (`ProjectedAttention`).
            num_queries: Q, by default T. Only the first Q tokens are computed, attending to all T.
            adapters: one function for each half of the layer, see `AddNorm` (`HoulsbyAdapters`).

        Returns:
            Token vectors h', [B, Q, D].
        """
        attended = self.attention(hidden_states, mask, num_queries, adapters[0])
        return self.output(self.intermediate(attended), attended, task_residual, adapters[1])


class BertEncoder(nn.Module):
    """Hold the layers under the name `encoder.layer`, as checkpoints do.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))


class BertPooler(nn.Module):
    """Compute tanh(W h + b) of the [CLS] vector h.

    Args:
        config: a BertConfig.
    """

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, last_hidden_state):
        """Return one vector per row.

        Args:
            last_hidden_state: token vectors, [B, T, D]; only the first token is read.

        Returns:
            Pooled vectors [B, D].
        """
        return torch.tanh(self.dense(last_hidden_state[:, 0]))


class BertModel(nn.Module):
    """Turn token ids into contextual vectors.

    Args:
        config: a BertConfig.

    Example::

        encoder = BertModel(BertConfig.tiny())
        out = encoder(torch.tensor([[2, 7, 9, 3]]))
        out.last_hidden_state.shape, out.pooler_output.shape      # [1,4,32] and [1,32]
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokenizer = None  # set by load_pretrained, so that predict() can read plain text
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config)
        self.register_module("pals", None)  # set by add_pals: the modules of each task
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()  # as in transformers
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        *,
        first_token_only=False,
        task=None,
    ):
        """Return the last layer's token vectors and the pooled vector.

        Args:
            input_ids: token ids, [B, T].
            attention_mask: 1 for a token, 0 for padding, [B, T]. By default all are tokens.
            token_type_ids: segments 0 or 1, [B, T]. By default all are 0, and in a model of one
                segment.
            first_token_only: let the last layer compute only [CLS], the same numbers for less work.
            task: name of the task, for an encoder with `add_pals`.

        Returns:
            A BertOutput.

        Raises:
            ValueError: input_ids have the wrong shape, or the encoder has no modules for the task.
        """
        if input_ids.dim() != 2 or input_ids.shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"input_ids have shape {list(input_ids.shape)}, expected [batch, tokens] with at "
                f"most {self.config.max_position_embeddings} tokens. Truncate when you tokenize: "
                f"truncation=True, max_length={self.config.max_position_embeddings}."
            )
        if token_type_ids is None or self.config.type_vocab_size == 1:
            token_type_ids = torch.zeros_like(input_ids)
        h = self.embeddings(input_ids, token_type_ids)
        mask = None if attention_mask is None else self.additive_mask(attention_mask, h)
        part, last = self._task_part(task), len(self.encoder.layer) - 1
        only_first = first_token_only and not (part and part.needs_tokens)
        for i, layer in enumerate(self.encoder.layer):
            num_queries = 1 if only_first and i == last else None
            extra = part.layer_inputs(i, h, mask, num_queries) if part else {}
            h = layer(h, mask, num_queries=num_queries, **extra)
        if part:
            h = part.transform_output(h, mask, 1 if first_token_only else None)
        return BertOutput(h, self.pooler(h))

    def _task_part(self, task):
        """Return the modules of a task, or None for an encoder without `add_pals`."""
        if self.pals is not None:
            return self.pals.part(task)
        if task is not None:
            raise ValueError(
                f"task={task!r} was given, but this encoder has no modules for tasks. Call "
                "add_pals or load_pals first, or leave task out."
            )

    @staticmethod
    def additive_mask(attention_mask, hidden_states):
        """Return the mask that is added to attention scores, in the dtype of the attention.

        Half of the dtype's minimum leaves room for any score: no sum overflows to -inf, and a row
        of only padding gives no NaN.

        Args:
            attention_mask: 1 for a token, 0 for padding, [B, T].
            hidden_states: token vectors, [B, T, D]; they set dtype and device.

        Returns:
            Zeros for tokens and large negative numbers for padding, [B, 1, 1, T].
        """
        device, dtype = hidden_states.device.type, hidden_states.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        padding = (attention_mask == 0)[:, None, None, :]
        return padding.to(dtype) * (torch.finfo(dtype).min / 2)
