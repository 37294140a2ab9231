"""The six methods that the multiverse papers compare, as one switch (MML v2, section 4)."""

import re

from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner

__all__ = ["METHODS", "build_head"]

METHODS = ("bert", "mml", "mv-5", "mv-m", "bert-drop", "bert-ensemble")


def build_head(method, hidden_size, num_labels, *, num_heads=None, weight_of_orthogonality=0.005, dropout=0.1, reads="pooler", pairs="packed", **pruner):
    """(head, hooks) of a method: build_head("mml", 384, 2, every=200) and then fit(..., hooks=hooks).

    method: "bert" (one head), "bert-drop" (one head, 30 % dropout), "bert-ensemble" (m heads, nothing else), "mv-N" (N orthogonal
    heads, never pruned; "mv-m" takes m), "mml" (m orthogonal heads, pruned). num_heads: m, hidden_size by default, as in the
    paper. reads, pairs: see MultiverseHead. pruner: keywords of HeadPruner, for "mml" alone.
    Raises ValueError for an unknown method, or pruner keywords that the method does not use.
    """
    m = num_heads or hidden_size
    shapes = {"bert": (1, 0.0, dropout), "bert-drop": (1, 0.0, 0.3), "bert-ensemble": (m, 0.0, dropout),
              "mv-m": (m, weight_of_orthogonality, dropout), "mml": (m, weight_of_orthogonality, dropout)}
    numbered = re.fullmatch(r"mv-([1-9]\d*)", method)
    if numbered:
        shapes[method] = (int(numbered[1]), weight_of_orthogonality, dropout)
    if method not in shapes:
        raise ValueError(f"{method!r} is not a method. Known: {', '.join(METHODS)}, or mv-N for any number of heads.")
    if pruner and method != "mml":
        raise ValueError(f"method {method!r} never prunes, so {list(pruner)} has no meaning; they belong to 'mml'.")
    heads, orthogonality, drop = shapes[method]
    head = MultiverseHead(hidden_size, num_labels, num_heads=heads, dropout=drop, weight_of_orthogonality=orthogonality, reads=reads, pairs=pairs)
    return head, [HeadPruner(head, **pruner)] if method == "mml" else []
