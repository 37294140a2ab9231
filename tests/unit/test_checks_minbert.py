"""The check of notebook 01 accepts the solution and names each known mistake."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from mmlkit.checks import check_attention


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
    (lambda *arguments: attention(*arguments) + 1, "it returns [["),
    (lambda *arguments: attention(*arguments) * torch.nan, "it returns [[nan, "),
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
