"""BERT's encoder (Devlin et al. 2019), under the parameter names of transformers' BertModel.

Notebook 01 builds it by hand. Letters: B batch, T tokens, D hidden size, H attention heads.
"""

import dataclasses
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["BertConfig", "BertModel", "BertOutput", "BertLayer", "BertSelfAttention"]


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


class Dropout(nn.Module):
    """Zeroes each number with probability p and scales the rest by 1/(1-p); p is exact to 1/65536.

    On a CPU torch draws one random number per element, alone a tenth of a training step; here one draw serves four.
    """

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-2**63, None)      # 64 random bits each
        keep = draws.view(torch.int16)[:x.numel()] >= round(self.p * 65536) - 32768
        return x * keep.view(x.shape).to(x.dtype).mul_(1 / (1 - self.p))

    def extra_repr(self):
        return f"p={self.p}"


class BertEmbeddings(nn.Module):
    """Word + position + segment vectors, normalised."""

    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, token_type_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        table = self.word_embeddings
        # With a gradient buffer at hand (train_step lends one on a CPU), add only the rows in use to it.
        words = F.embedding(input_ids, table.weight, table.padding_idx, sparse=table.weight.grad is not None)
        summed = (words + self.token_type_embeddings(token_type_ids)
                  + self.position_embeddings(positions))
        return self.dropout(self.LayerNorm(summed))


class BertSelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(D/H) + mask) V, heads side by side (Vaswani et al. 2017, Eq. 1)."""

    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = Dropout(config.attention_probs_dropout_prob)

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


class AddNorm(nn.Module):
    """LayerNorm(residual + dropout(W x + b)): the end of both halves of a layer (post-LN)."""

    def __init__(self, in_features, config):
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x, residual, beside=None):
        summed = self.dropout(self.dense(x)) + residual
        return self.LayerNorm(summed if beside is None else summed + beside)


class BertAttention(nn.Module):
    """Self-attention and its add-and-norm; `self` is the name that checkpoints use."""

    def __init__(self, config):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = AddNorm(config.hidden_size, config)

    def forward(self, hidden_states, mask=None, num_queries=None):
        return self.output(self.self(hidden_states, mask, num_queries), hidden_states[:, :num_queries])


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

    def forward(self, hidden_states, mask=None, beside=None, num_queries=None):
        """hidden_states [B,T,D] to [B,Q,D].

        mask: added to the attention scores, broadcastable to [B,1,1,T]. beside: [B,Q,D], added before the last
        LayerNorm. num_queries: compute only the first so many tokens; they still attend to all T.
        """
        attended = self.attention(hidden_states, mask, num_queries)
        return self.output(self.intermediate(attended), attended, beside)


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
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, *, first_token_only=False):
        """input_ids, attention_mask (1 token, 0 padding) and token_type_ids (segment 0 or 1): all [B,T] integers.

        first_token_only: let the last layer compute [CLS] alone, the same numbers for less work when the head reads
        nothing else; last_hidden_state is then [B,1,D]. Raises ValueError when T exceeds the position table.
        """
        if input_ids.dim() != 2 or input_ids.shape[1] > self.config.max_position_embeddings:
            raise ValueError(f"input_ids have shape {list(input_ids.shape)}, expected [batch, tokens] with at most "
                             f"{self.config.max_position_embeddings} tokens. Truncate when you tokenize (max_length=).")
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        hidden_states = self.embeddings(input_ids, token_type_ids)
        mask = None if attention_mask is None else self.additive_mask(attention_mask, hidden_states)
        last = len(self.encoder.layer) - 1
        for i, layer in enumerate(self.encoder.layer):
            hidden_states = layer(hidden_states, mask, num_queries=1 if first_token_only and i == last else None)
        return BertOutput(hidden_states, self.pooler(hidden_states))

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
