"""BERT's encoder (Devlin et al. 2019), under the parameter names of transformers' BertModel.

Notebook 01 builds it by hand. Letters: B batch, T tokens, D hidden size, H attention heads.
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
    """Sizes of an encoder; field names and defaults are those of transformers' BertConfig (BERT-base).

    Raises ValueError when hidden_size is not a multiple of num_attention_heads or a size is below one.
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
        for name in ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size",
                     "max_position_embeddings", "type_vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected a probability of at least 0 and below 1.")
        if self.num_hidden_layers < 0:
            raise ValueError(f"num_hidden_layers is {self.num_hidden_layers}, expected 0 or more.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                             f"{self.num_attention_heads}: every head gets hidden_size / num_attention_heads features.")
        if self.hidden_act != "gelu":
            raise ValueError(f"hidden_act {self.hidden_act!r} is not supported: this encoder has BERT's exact 'gelu'.")

    @classmethod
    def from_dict(cls, values):
        """From the dict of a config.json; keys that are no sizes of an encoder are left aside."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in names and value is not None})

    @classmethod
    def tiny(cls, **changes):
        """A size for tests and toys: 2 layers, 32 wide, about 40 thousand parameters."""
        sizes = dict(vocab_size=199, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                     max_position_embeddings=64)
        return cls(**{**sizes, **changes})

    @classmethod
    def base(cls):
        """BERT-base, 109,482,240 parameters with the pooler."""
        return cls()

    @classmethod
    def large(cls):
        """BERT-large, 335,141,888 parameters with the pooler."""
        return cls(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)


class BertOutput(NamedTuple):
    """What the encoder returns: every token's last vector, and the pooled [CLS] vector."""

    last_hidden_state: torch.Tensor     # [B,T,D], or [B,1,D] when only the first token was asked for
    pooler_output: torch.Tensor         # [B,D]


class BertEmbeddings(nn.Module):
    """Word + position + segment vectors, normalised."""

    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, token_type_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        summed = (self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
                  + self.position_embeddings(positions))
        return self.dropout(self.LayerNorm(summed))


class AddNorm(nn.Module):
    """LayerNorm(residual + dropout(W x + b)): the end of both halves of a layer (post-LN)."""

    def __init__(self, in_features, config):
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, residual, beside=None, inside=None):
        x = self.dropout(self.dense(x))
        summed = (x if inside is None else inside(x)) + residual
        return self.LayerNorm(summed if beside is None else summed + beside)


class BertAttention(nn.Module):
    """Self-attention and its add-and-norm; `self` is the name that checkpoints use."""

    def __init__(self, config):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = AddNorm(config.hidden_size, config)

    def forward(self, hidden_states, mask=None, num_queries=None, inside=None):
        return self.output(self.self(hidden_states, mask, num_queries), hidden_states[:, :num_queries], inside=inside)


class BertIntermediate(nn.Module):
    """The widening half of the feed-forward network, with exact GELU."""

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, x):
        return F.gelu(self.dense(x))


class BertLayer(nn.Module):
    """a = AddNorm(attention(h), h); h' = AddNorm(ffn(a), a): the second residual is a, not h."""

    def __init__(self, config):
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = AddNorm(config.intermediate_size, config)

    def forward(self, hidden_states, mask=None, beside=None, num_queries=None, inside=(None, None)):
        """hidden_states [B,T,D] to [B,Q,D].

        mask: added to the attention scores, broadcastable to [B,1,1,T]. beside: [B,Q,D], added before the last
        LayerNorm. num_queries: compute only the first so many tokens; they still attend to all T. inside: two functions
        [B,Q,D] to [B,Q,D], applied to what each half of the layer is about to add to its residual (Houlsby's adapters).
        """
        attended = self.attention(hidden_states, mask, num_queries, inside[0])
        return self.output(self.intermediate(attended), attended, beside, inside[1])


class BertEncoder(nn.Module):
    """The stack of layers; a class of its own only because checkpoints name it `encoder.layer`."""

    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))


class BertPooler(nn.Module):
    """tanh(W h_[CLS] + b)."""

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, last_hidden_state):
        return torch.tanh(self.dense(last_hidden_state[:, 0]))


class BertModel(nn.Module):
    """Token ids in, contextual vectors out.

    Example::

        encoder = BertModel(BertConfig.tiny())
        out = encoder(torch.tensor([[2, 7, 9, 3]]))
        out.last_hidden_state.shape, out.pooler_output.shape      # [1,4,32] and [1,32]
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokenizer = None       # set by load_pretrained, so that predict() can read plain text
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config)
        self.register_module("pals", None)      # set by add_pals: what each task has for itself
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, *, first_token_only=False, task=None):
        """input_ids, attention_mask (1 token, 0 padding) and token_type_ids (segment 0 or 1): all [B,T] integers.

        first_token_only: let the last layer compute [CLS] alone, the same numbers for less work when the head reads
        nothing else; last_hidden_state is then [B,1,D]. task: whose projected attention to use, where `add_pals` put some.
        Raises ValueError when T exceeds the position table, or when the task does not go with the encoder's PALs.
        """
        if input_ids.dim() != 2 or input_ids.shape[1] > self.config.max_position_embeddings:
            raise ValueError(f"input_ids have shape {list(input_ids.shape)}, expected [batch, tokens] with at most "
                             f"{self.config.max_position_embeddings} tokens. Truncate when you tokenize (max_length=).")
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        hidden_states = self.embeddings(input_ids, token_type_ids)
        mask = None if attention_mask is None else self.additive_mask(attention_mask, hidden_states)
        part, last = self._part_of(task), len(self.encoder.layer) - 1
        for i, layer in enumerate(self.encoder.layer):
            queries = 1 if first_token_only and i == last and not getattr(part, "whole_sequence", False) else None
            added = {} if part is None else part.at_layer(i, hidden_states, mask, queries)
            hidden_states = layer(hidden_states, mask, num_queries=queries, **added)
        if part is not None:
            hidden_states = part.at_end(hidden_states, mask, 1 if first_token_only else None)
        return BertOutput(hidden_states, self.pooler(hidden_states))

    def _part_of(self, task):
        """What belongs to this task alone, or None where the encoder has no such parts."""
        if self.pals is None and task is not None:
            raise ValueError(f"task={task!r} was given, but this encoder has nothing of a task's own. Call add_pals(encoder, "
                             "tasks=[...]) or load_pals(encoder, folder) first, or leave task out.")
        return None if self.pals is None else self.pals.part(task)

    @staticmethod
    def additive_mask(attention_mask, hidden_states):
        """[B,T] of ones and zeros to [B,1,1,T] of zeros and large negative numbers, in the dtype attention runs in.

        Half of the dtype's minimum: adding a score cannot overflow to -inf, so a row of only padding gives no NaN.
        """
        device_type = hidden_states.device.type
        autocast = torch.is_autocast_enabled(device_type)
        dtype = torch.get_autocast_dtype(device_type) if autocast else hidden_states.dtype
        mask = torch.zeros(attention_mask.shape, dtype=dtype, device=attention_mask.device)
        return mask.masked_fill_(attention_mask == 0, torch.finfo(dtype).min / 2)[:, None, None, :]
