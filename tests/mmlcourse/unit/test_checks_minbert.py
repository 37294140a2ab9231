"""The checks of notebook 01 accept the solutions and name each known mistake."""

import functools
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

from mmlcourse.lessons import checks
from mmlcourse.lessons.checks import check_attention
from mmlkit import bert
from mmlkit.bert.model import AddNorm

MASTER = Path(__file__).resolve().parents[3] / "notebooks" / "src" / "01_minbert.py"


def attention(query, key, value, mask, divide=lambda d: d**0.5, masked_score=-1e9, dim=-1):
    scores = (query @ key.T / divide(query.shape[-1])).masked_fill(mask == 0, masked_score)
    return scores.softmax(dim) @ value


def attention_solution(**parts):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda *arguments: attention(*arguments, **parts)


def without_mask(query, key, value, mask):
    return attention(query, key, value, torch.ones(len(mask)))


PADDING = "padding gets attention; mask it before the softmax"
UNDIVIDED = "the scores are not divided by sqrt(d); here d = 4"
MISTAKES = [
    (lambda *_: ..., "it returns nothing so far."),
    (lambda *_: 1 / 0, "it stopped with ZeroDivisionError: division by zero."),
    (lambda *_: "text", "expected numbers of shape [5, 4], found 'text'."),
    (lambda query, *_: query[0], "expected numbers of shape [5, 4], found shape [4]."),
    (attention_solution(divide=lambda d: 1), f"{UNDIVIDED}."),
    (attention_solution(divide=lambda d: d), "the scores are divided by d, not by sqrt(d)."),
    (without_mask, f"{PADDING}."),
    (
        lambda query, key, value, mask: (query @ key.T).softmax(-1) @ value,
        f"{UNDIVIDED}, and {PADDING}.",
    ),
    (attention_solution(dim=0), "the softmax runs over the queries."),
    (
        attention_solution(dim=0, divide=lambda d: 1),
        f"{UNDIVIDED}, and the softmax runs over the queries.",
    ),
    (lambda *arguments: attention(*arguments) + 1, "at [0, 0] it returns "),
    (lambda *arguments: attention(*arguments) * torch.nan, "at [0, 0] it returns nan, "),
]


def test_the_solution_is_accepted(capsys):
    """The solution equals torch's own attention. A list is accepted as well as a tensor."""
    query = torch.tensor([[1.0, 2, 0, 1], [0, 1, 1, 3]])
    mask = torch.tensor([1, 0])
    torch.testing.assert_close(
        attention(query, query, query, mask),
        scaled_dot_product_attention(query, query, query, mask.bool()),
    )
    assert check_attention(attention) and capsys.readouterr().out == "attention: right.\n"
    assert check_attention(attention_solution(masked_score=-torch.inf))
    assert check_attention(lambda *arguments: attention(*arguments).tolist())


@pytest.mark.parametrize("function, message", MISTAKES)
def test_mistakes_are_named(function, message, capsys):
    assert check_attention(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"attention: not yet: {message}") and out.count("\n") == 1, out


# ---- the classes ----


def is_refused(check, answer, message, capsys):
    """Assert that a check refuses an answer, in one line with the message."""
    assert check(answer) is False
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and f": not yet: {message}" in out, out


class Attention(bert.BertSelfAttention):
    """Multi-head self-attention in which each keyword replaces one of its parts."""

    def __init__(self, config, scale=None, mask=torch.add, dim=-1, cut="right", mixed="value"):
        super().__init__(config)
        self.scale, self.mask, self.dim, self.cut, self.mixed = scale, mask, dim, cut, mixed

    def split_heads(self, x):
        B, T, _ = x.shape
        if self.cut == "mixes tokens":
            return x.view(B, self.num_heads, T, -1)
        return x[:, None] if self.cut == "one head" else super().split_heads(x)

    def forward(self, h, M):
        Q, K, V = map(self.split_heads, (self.query(h), self.key(h), getattr(self, self.mixed)(h)))
        scores = Q @ K.transpose(-1, -2) / (self.scale or Q.shape[-1] ** 0.5)
        new = self.mask(scores, M).softmax(self.dim) @ V
        return (new if self.cut == "not merged" else new.transpose(1, 2)).reshape(h.shape)


class OwnAddNorm(AddNorm):
    def __init__(self, in_features, config, rule=lambda norm, x, residual: norm(x + residual)):
        super().__init__(in_features, config)
        self.rule = rule

    def forward(self, x, residual):
        return self.rule(self.LayerNorm, self.dense(x), residual)


def otherwise(kind, **parts):
    return functools.partial(kind, **parts)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (dict(scale=1), "the scores are not divided by sqrt(d)."),
        (dict(scale=6**0.5), "the scores are divided by the root of the whole width;"),
        (dict(mask=lambda s, M: s), "the mask is not used."),
        (dict(mask=torch.sub), "the mask is subtracted; it is negative already."),
        (dict(mask=lambda s, M: s + M / 3**0.5), "the mask is added before the division."),
        (
            dict(mask=lambda s, M: s.masked_fill(M == 0, -1e9)),
            "M is 0 for a token; masked_fill(M == 0) hides the tokens.",
        ),
        (
            dict(mask=lambda s, M: s.masked_fill(M < 0, -1e9)),
            "the mask is M already; add it, without masked_fill.",
        ),
        (dict(dim=-2), "the softmax runs over the queries."),
        (dict(dim=1), "the softmax runs over the heads."),
        (dict(cut="mixes tokens"), "the heads are cut with view(B, H, T, d), which mixes tokens;"),
        (dict(cut="not merged"), "the heads are merged without transposing back."),
        (dict(cut="one head"), "the heads are not split; this is a single head."),
        (dict(mixed="key"), "the keys are mixed, not the values."),
        (
            dict(scale=1, cut="not merged"),
            "the heads are merged without transposing back, and",
        ),
    ],
)
def test_mistakes_of_self_attention_are_named(parts, message, capsys):
    is_refused(checks.check_self_attention, otherwise(Attention, **parts), message, capsys)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda norm, x, residual: norm(x), "the residual is missing."),
        (lambda norm, x, residual: norm(x) + residual, "LayerNorm comes before the sum;"),
        (lambda norm, x, residual: x + residual, "LayerNorm is missing."),
        (lambda norm, x, residual: norm(x + residual) + residual, "the residual is added again"),
        (lambda norm, x, residual: norm(x + norm(residual)), "the residual is normalised before"),
        (
            lambda norm, x, residual: F.layer_norm(x + residual, x.shape[-1:], eps=1e-12),
            "the weight and bias of LayerNorm are not used.",
        ),
        (
            lambda norm, x, residual: F.layer_norm(
                x + residual, x.shape[-1:], norm.weight, norm.bias, 1e-5
            ),
            "eps is 1e-5, torch's default; BERT's is 1e-12.",
        ),
        (lambda norm, x, residual: None, "it returns nothing so far."),
    ],
)
def test_mistakes_of_add_and_norm_are_named(rule, message, capsys):
    is_refused(checks.check_add_norm, otherwise(OwnAddNorm, rule=rule), message, capsys)


class OwnLayer(bert.BertLayer):
    def __init__(self, config, activation=F.gelu, masked=1, residuals=(1, 0, 1), source="a"):
        super().__init__(config)
        self.activation, self.masked, self.source = activation, masked, source
        self.residuals = residuals  # the factor of h in a, then those of h and a in the second one

    def forward(self, h, M):
        attended, (first, *second) = self.attention.self(h, self.masked * M), self.residuals
        a = self.attention.output(attended, first * h)
        read = dict(a=a, h=h, attended=attended)[self.source]
        wide = self.activation(self.intermediate.dense(read))
        return self.output(wide, second[0] * h + second[1] * a)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (dict(residuals=(1, 1, 0)), "the second residual is h; it is a, from the middle"),
        (dict(residuals=(1, 0, 0)), "the second residual is missing; it is a."),
        (dict(residuals=(1, 1, 1)), "the second residual is h + a; it is a alone."),
        (dict(residuals=(0, 0, 1)), "the residual of the first half is missing; it is h."),
        (dict(masked=0), "the mask is not passed to the attention."),
        (dict(source="h"), "the feed-forward network reads h, not a."),
        (dict(source="attended"), "it reads attention, not a."),
        (dict(activation=F.relu), "this is ReLU."),
        (dict(activation=lambda x: x), "GELU is missing."),
        (
            dict(activation=lambda x: F.gelu(x, approximate="tanh")),
            "this is GELU's approximation with tanh; use the exact one.",
        ),
        (
            dict(masked=0, residuals=(1, 1, 0)),
            "the mask is not passed to the attention, and the second residual is h;",
        ),
    ],
)
def test_mistakes_of_the_layer_are_named(parts, message, capsys):
    is_refused(checks.check_layer, otherwise(OwnLayer, **parts), message, capsys)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda part, ids, types: part(ids, types), "the position vectors are still added."),
        (lambda part, ids, types: part.LayerNorm(part.word_embeddings(ids)), "the segment vectors"),
        (
            lambda part, ids, types: part.LayerNorm(
                part.word_embeddings(ids) + part.token_type_embeddings(0 * types)
            ),
            "every token has segment 0; use token_type_ids.",
        ),
        (
            lambda part, ids, types: part.word_embeddings(ids) + part.token_type_embeddings(types),
            "LayerNorm is missing.",
        ),
        (lambda part, ids, types: None, "it returns nothing so far."),
    ],
)
def test_mistakes_of_embeddings_without_order_are_named(function, message, capsys):
    is_refused(checks.check_order_free, function, message, capsys)


def test_other_names_of_parameters_are_refused(capsys):
    """The check loads weights, so it can say which names it expects."""
    own = type("Own", (nn.Module,), {"__init__": lambda self, config: nn.Module.__init__(self)})
    message = "it stopped with RuntimeError: Error(s) in loading state_dict for Own"
    is_refused(checks.check_self_attention, own, message, capsys)


def test_the_modules_of_the_library_are_accepted():
    assert checks.check_self_attention(bert.BertSelfAttention)
    assert checks.check_add_norm(AddNorm) and checks.check_layer(bert.BertLayer)
