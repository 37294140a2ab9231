"""The checks of notebook 01's exercises: attention, the parts of a layer, and positions.

Questions of assignments share their tables of mistakes. Three exercises are classes. Their
parameters have the names of `mmlkit.bert`, so that the check loads the same weights into the
student's module and computes the right answer from them.
"""

import torch
from torch.nn import functional as F

from mmlcourse.lessons.checks.compare import exercise, plain
from mmlkit.bert.model import AddNorm, BertConfig, BertEmbeddings, BertLayer
from mmlkit.runtime import seeded

__all__ = [
    "RULE",
    "activation",
    "add_norm",
    "check_add_norm",
    "check_attention",
    "check_layer",
    "check_order_free",
    "check_self_attention",
    "layer",
    "normalisation",
    "self_attention",
]

RULE = (
    "softmax(Q K^T / sqrt(d) + M) V, where M is 0 for a token and -1e9 for a padded key, "
    "with the softmax over keys (dim=-1)"
)


@exercise(
    "attention",
    [(*(torch.arange(60.0) ** 2).sin().view(3, 5, 4) * 2, torch.tensor([1, 1, 1, 1, 0]))],
    RULE,
)
def check_attention(pick, query, key, value, mask):
    """Check the attention of one head.

    Args:
        pick: the choice between a right value and known mistakes.
        query: queries, [T, d].
        key: keys, [T, d].
        value: values, [T, d].
        mask: 1 for a token and 0 for padding, [T].

    Returns:
        The weighted sums of values, [T, d].
    """
    d = query.shape[-1]
    scale = pick(
        d**0.5,
        {
            f"the scores are not divided by sqrt(d); here d = {d}": 1,
            "the scores are divided by d, not by sqrt(d)": d,
        },
    )
    scores, large = query @ key.T / scale, -1e9 * torch.ones(len(mask), len(mask))
    only = lambda shown: scores.where(shown, large)
    masked, factor = pick(
        (only(mask != 0), 1),
        {
            "padding gets attention; mask it before the softmax": (scores, 1),
            "the mask is inverted; it hides the tokens": (only(mask == 0), 1),
            "the mask itself is added; it is 1 and 0, so turn it into M": (scores + mask, 1),
            "the scores are multiplied by the mask; a score of 0 is not small": (scores * mask, 1),
            "padded queries are masked, not padded keys": (only(mask.expand_as(scores).T != 0), 1),
            "the mask comes after the softmax, so the weights do not sum to 1": (scores, mask),
        },
    )
    dim = pick(-1, {"the softmax runs over the queries": 0})
    return (masked.softmax(dim) * factor) @ value


# ---- the classes ----

_CONFIG = BertConfig.tiny(hidden_size=6, num_attention_heads=2, intermediate_size=9, vocab_size=11)
_H = (torch.arange(60.0) ** 2).sin().view(2, 5, 6)  # hidden states of two rows of five tokens
_M = -3.0 * torch.tensor([[0, 0, 0, 0, 1], [0, 1, 0, 1, 1]])[:, None, None]
_X = (torch.arange(90.0) ** 2).cos().view(2, 5, 9)
_IDS, _SEGMENTS = torch.tensor([[2, 7, 7, 5, 3, 9]]), torch.tensor([[0, 0, 0, 1, 1, 1]])


def _weights(build, scale=1.0):
    """Return fixed weights for every parameter of a module of mmlkit.bert."""
    with seeded(0):  # shapes alone; the random state stays
        shapes = {name: one.shape for name, one in build().state_dict().items()}
    draw = torch.Generator().manual_seed(5)
    return {name: scale * torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def _call_module(student, sizes, weights, *inputs):
    """Build the student's module, load the weights and call it."""
    with seeded(0):  # the reader's own random numbers stay the same
        module = student(*sizes)
    module.load_state_dict(weights)
    return module.eval()(*inputs)


def _call_embedding(student, weights, input_ids, token_type_ids):
    """Call the student's function with embeddings that hold the weights."""
    with seeded(0):
        part = BertEmbeddings(_CONFIG)
    part.load_state_dict(weights)
    return student(part.eval(), input_ids, token_type_ids)


def _part(weights, name):
    """Return the weights of one part under their own names."""
    return {
        key.removeprefix(f"{name}."): one for key, one in weights.items() if key.startswith(name)
    }


_NAMES = (
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
    "attention.output.LayerNorm",
    "output.LayerNorm",
)
_LAYER = _weights(lambda: BertLayer(_CONFIG))


@exercise(
    "self-attention",
    [((_CONFIG,), _part(_LAYER, "attention.self"), _H, _M)],
    "softmax(Q K^T / sqrt(d) + M) V in every head, with the heads side by side again",
    driver=_call_module,
)
def check_self_attention(pick, sizes, weights, h, M):
    """Check a module of multi-head self-attention.

    Args:
        pick: the choice between a right value and known mistakes.
        sizes: the arguments of the class, (config,).
        weights: those of the three linear maps.
        h: hidden states, [B, T, D].
        M: the additive mask, [B, 1, 1, T].

    Returns:
        The heads side by side, [B, T, D].
    """
    return self_attention(pick, h, M, weights, sizes[0].num_attention_heads)


def self_attention(pick, h, mask, weights, num_heads):
    """Return multi-head self-attention without its last linear map (Vaswani et al. 2017).

    Args:
        pick: the choice between a right value and known mistakes.
        h: hidden states, [B, T, D].
        mask: the additive mask, [B, 1, 1, T].
        weights: those of the linear maps query, key and value.
        num_heads: the number of heads.

    Returns:
        The heads side by side, [B, T, D].
    """
    B, T, D = h.shape
    swap = lambda x: x.transpose(1, 2)
    right = lambda x: swap(x.reshape(B, T, num_heads, -1))
    split, merge = pick(
        (right, swap),
        {
            "the heads are cut with view(B, H, T, d), which mixes tokens; use view(B, T, H, d), "
            "then transpose(1, 2)": (lambda x: x.reshape(B, num_heads, T, -1), swap),
            "the heads are merged without transposing back": (right, lambda x: x),
            "the heads are not split; this is a single head": (lambda x: x[:, None], swap),
            "neighbouring features go to different heads; use view(B, T, H, d)": (
                lambda x: x.reshape(B, T, -1, num_heads).permute(0, 3, 1, 2),
                swap,
            ),
        },
    )
    turn, bias = pick(
        (torch.t, 1),
        {
            "the weight is not transposed; a linear map is x W^T + b": (lambda W: W, 1),
            "the biases are missing": (torch.t, 0),
        },
    )
    Q, K, V = (
        split(h @ turn(weights[f"{name}.weight"]) + bias * weights[f"{name}.bias"])
        for name in ("query", "key", "value")
    )
    scores = pick(Q @ K.transpose(-1, -2), {"query and key are exchanged": K @ Q.transpose(-1, -2)})
    root = Q.shape[-1] ** 0.5
    scaled = scores / root
    masked = pick(
        scaled + mask,
        {
            "the scores are not divided by sqrt(d)": scores + mask,
            "the scores are divided by the root of the whole width; d is that of one head": (
                scores / D**0.5 + mask
            ),
            "the mask is added before the division": (scores + mask) / root,
            "the mask is not used": scaled,
            "the mask is subtracted; it is negative already": scaled - mask,
            "the mask is M already; add it, without (1 - mask)": scaled + (1 - mask) * -1e9,
            "the mask is M already; add it, without masked_fill": scaled.masked_fill(
                mask < 0, -1e9
            ),
            "M is 0 for a token; masked_fill(M == 0) hides the tokens": scaled.masked_fill(
                mask == 0, -1e9
            ),
        },
    )
    dim = pick(-1, {"the softmax runs over the queries": -2, "the softmax runs over the heads": 1})
    values = pick(V, {"the keys are mixed, not the values": K, "h is mixed, not V": split(h)})
    return merge(masked.softmax(dim) @ values).reshape(B, T, D)


_ADD_NORM = _weights(lambda: AddNorm(9, _CONFIG))
_SMALL = _weights(lambda: AddNorm(9, _CONFIG), scale=0.01)


@exercise(
    "add and norm",
    [((9, _CONFIG), _ADD_NORM, _X, _H), ((9, _CONFIG), _SMALL, _X, _H / 100)],
    "LayerNorm(residual + W x + b), with the module's own LayerNorm",
    driver=_call_module,
)
def check_add_norm(pick, sizes, weights, x, residual):
    """Check a module that ends both halves of a layer.

    Args:
        pick: the choice between a right value and known mistakes.
        sizes: the arguments of the class, (width of x, config).
        weights: those of the linear map and of LayerNorm.
        x: the result of attention or of the wide map, [B, T, F].
        residual: the input of this half of the layer, [B, T, D].

    Returns:
        Token vectors [B, T, D].
    """
    return add_norm(pick, x, residual, *weights.values())


def normalisation(pick, g, b):
    """Return BERT's LayerNorm as a function, with its eps of 1e-12.

    Args:
        pick: the choice between a right value and known mistakes.
        g: the weight, [D].
        b: the bias, [D].

    Returns:
        A function from [..., D] to [..., D].
    """
    eps = pick(1e-12, {"eps is 1e-5, torch's default; BERT's is 1e-12": 1e-5})
    g, b = pick((g, b), {"the weight and bias of LayerNorm are not used": (None, None)})
    return lambda x: F.layer_norm(x, x.shape[-1:], g, b, eps)


def add_norm(pick, x, residual, weight, bias, g, b):
    """Return the end of both halves of a BERT layer.

    Args:
        pick: the choice between a right value and known mistakes.
        x: the result of attention or of the wide map, [B, T, F].
        residual: the input of this half of the layer, [B, T, D].
        weight: of the linear map, [D, F].
        bias: of the linear map, [D].
        g: the weight of LayerNorm, [D].
        b: its bias, [D].

    Returns:
        Token vectors [B, T, D].
    """
    norm = normalisation(pick, g, b)
    y = x @ weight.T + pick(bias, {"the bias of the linear map is missing": 0})
    return pick(
        norm(residual + y),
        {
            "the residual is missing": norm(y),
            "the residual is subtracted": norm(y - residual),
            "LayerNorm comes before the sum; it belongs around the sum": residual + norm(y),
            "LayerNorm is missing": residual + y,
            "the residual is added again after LayerNorm": residual + norm(residual + y),
            "the residual is normalised before the sum": norm(norm(residual) + y),
        },
    )


def activation(pick, gelu="exact"):
    """Return GELU, or a mistake in its place.

    Args:
        pick: the choice between a right value and known mistakes.
        gelu: "exact", or "tanh" for the approximation.

    Returns:
        A function from [...] to [...].
    """
    exact, tanh = F.gelu, lambda x: F.gelu(x, approximate="tanh")
    table = {
        "exact": (exact, {"this is GELU's approximation with tanh; use the exact one": tanh}),
        "tanh": (tanh, {"this is the exact GELU; use the approximation with tanh": exact}),
    }
    right, other = table[gelu]
    return pick(
        right,
        {
            **other,
            "this is ReLU": F.relu,
            "this is GELU's approximation with a sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
            "GELU is missing": lambda x: x,
        },
    )


@exercise(
    "layer",
    [((_CONFIG,), _LAYER, _H, _M)],
    "a = add_norm(attention(h), h), then add_norm(GELU(W1 a + b1), a)",
    driver=_call_module,
)
def check_layer(pick, sizes, weights, h, M):
    """Check a module of a whole BERT layer.

    Args:
        pick: the choice between a right value and known mistakes.
        sizes: the arguments of the class, (config,).
        weights: those of all its parts.
        h: hidden states, [B, T, D].
        M: the additive mask, [B, 1, 1, T].

    Returns:
        Token vectors [B, T, D].
    """
    own, heads = _part(weights, "attention.self"), sizes[0].num_attention_heads
    return layer(pick, h, M, weights, _NAMES, own, heads)


def layer(pick, h, mask, weights, names, own, num_heads, gelu="exact"):
    """Return the output of a BERT layer.

    Args:
        pick: the choice between a right value and known mistakes.
        h: hidden states, [B, T, D].
        mask: the additive mask, [B, 1, 1, T].
        weights: those of all linear maps and LayerNorms, by name.
        names: of the map after the attention, of the wide and the narrow one, and of the two norms.
        own: the weights of query, key and value.
        num_heads: the number of heads.
        gelu: as in `activation`.

    Returns:
        Token vectors [B, T, D].
    """
    pairs = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
    dense, wide, narrow = (lambda x, pair=pair: F.linear(x, *pair) for pair in pairs[:3])
    first, last = (normalisation(plain, *pair) for pair in pairs[3:])
    seen = pick(mask, {"the mask is not passed to the attention": 0 * mask})
    attended = self_attention(plain, h, seen, own, num_heads)
    x = pick(dense(attended), {"the linear map after the attention is not applied": attended})
    a = pick(
        first(x + h),
        {
            "the residual of the first half is missing; it is h": first(x),
            "the LayerNorm of the first half is missing": x + h,
            "LayerNorm comes before the first sum": first(x) + h,
            "the two LayerNorms are exchanged": last(x + h),
        },
    )
    source = pick(
        a, {"the feed-forward network reads h, not a": h, "it reads attention, not a": attended}
    )
    y = narrow(activation(pick, gelu)(wide(source)))
    return pick(
        last(y + a),
        {
            "the second residual is h; it is a, from the middle of the layer": last(y + h),
            "the second residual is missing; it is a": last(y),
            "the second residual is h + a; it is a alone": last(y + h + a),
            "the LayerNorm of the second half is missing": y + a,
            "the first LayerNorm is used twice": first(y + a),
        },
    )


@exercise(
    "without order",
    [(_weights(lambda: BertEmbeddings(_CONFIG)), _IDS, _SEGMENTS)],
    "LayerNorm(word vectors + segment vectors)",
    driver=_call_embedding,
)
def check_order_free(pick, weights, input_ids, token_type_ids):
    """Check an embedding that leaves the positions out.

    Args:
        pick: the choice between a right value and known mistakes.
        weights: those of the embeddings.
        input_ids: word pieces, [B, T].
        token_type_ids: segments, [B, T].

    Returns:
        Token vectors [B, T, D].
    """
    rows = lambda name, numbers: weights[f"{name}_embeddings.weight"][numbers]
    segments = pick(
        rows("token_type", token_type_ids),
        {
            "the segment vectors are missing": 0,
            "every token has segment 0; use token_type_ids": rows("token_type", 0 * token_type_ids),
        },
    )
    places = rows("position", torch.arange(input_ids.shape[1]))
    positions = pick(
        0,
        {
            "the position vectors are still added": places,
            "every token has position 0; add no position at all": rows("position", 0 * input_ids),
        },
    )
    summed = rows("word", input_ids) + segments + positions
    norm = normalisation(plain, *_part(weights, "LayerNorm").values())
    return pick(norm(summed), {"LayerNorm is missing": summed})
