"""The check of notebook 01 accepts the solution and names each known mistake."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from mmlkit.checks import check_attention


def attention(query, key, value, mask, divide=lambda d: d**0.5, hidden=-1e9, dim=-1):
    scores = (query @ key.T / divide(query.shape[-1])).masked_fill(mask == 0, hidden)
    return scores.softmax(dim) @ value


def changed(**parts):
    """The solution with some parts replaced."""
    return lambda *arguments: attention(*arguments, **parts)


def unmasked(query, key, value, mask):
    return attention(query, key, value, torch.ones(len(mask)))


PADDING = "padding gets attention; mask it before the softmax"
UNDIVIDED = "the scores are not divided by sqrt(d); here d = 4"
MISTAKES = [
    (lambda *_: ..., "it returns nothing so far."),
    (lambda *_: 1 / 0, "it stopped with ZeroDivisionError: division by zero."),
    (lambda *_: "text", "expected numbers of shape [5, 4], found 'text'."),
    (lambda query, *_: query[0], "expected numbers of shape [5, 4], found shape [4]."),
    (changed(divide=lambda d: 1), f"{UNDIVIDED}."),
    (changed(divide=lambda d: d), "the scores are divided by d, not by sqrt(d)."),
    (unmasked, f"{PADDING}."),
    (
        lambda query, key, value, mask: (query @ key.T).softmax(-1) @ value,
        f"{UNDIVIDED}, and {PADDING}.",
    ),
    (changed(dim=0), "the softmax runs over the queries."),
    (changed(dim=0, divide=lambda d: 1), f"{UNDIVIDED}, and the softmax runs over the queries."),
    (lambda *arguments: attention(*arguments) + 1, "it returns [["),
    (lambda *arguments: attention(*arguments) * torch.nan, "it returns [[nan, "),
]


def test_the_solution_is_accepted(capsys):
    """It equals torch's own attention, and it may come back as a list."""
    query = torch.tensor([[1.0, 2, 0, 1], [0, 1, 1, 3]])
    mask = torch.tensor([1, 0])
    torch.testing.assert_close(
        attention(query, query, query, mask),
        scaled_dot_product_attention(query, query, query, mask.bool()),
    )
    assert check_attention(attention) and capsys.readouterr().out == "attention: right.\n"
    assert check_attention(changed(hidden=-torch.inf))
    assert check_attention(lambda *arguments: attention(*arguments).tolist())


@pytest.mark.parametrize("function, said", MISTAKES)
def test_mistakes_are_named(function, said, capsys):
    assert check_attention(function) is False
    out = capsys.readouterr().out
    assert out.startswith(f"attention: not yet: {said}") and out.count("\n") == 1, out
