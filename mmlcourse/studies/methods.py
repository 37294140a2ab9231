"""The six methods that the multiverse papers compare, as one function (MML v2, section 4)."""

import re

from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner

__all__ = ["METHODS", "build_head"]

METHODS = ("bert", "mml", "mv-5", "mv-m", "bert-drop", "bert-ensemble")


def build_head(
    method,
    hidden_size,
    num_labels,
    *,
    num_heads=None,
    orthogonality_weight=0.005,
    dropout=0.1,
    pooling="pooler",
    pairs="packed",
    **pruning,
):
    """Build the head of a method, and the hook that prunes it.

    Args:
        method: "bert" (one head), "bert-drop" (one head, 30 % dropout), "bert-ensemble" (m heads
            without a penalty), "mv-N" (N orthogonal heads, never pruned; "mv-m" takes m) or "mml"
            (m orthogonal heads, pruned).
        hidden_size: D.
        num_labels: C, or 1 for a regression.
        num_heads: m; hidden_size by default, as in the paper.
        orthogonality_weight: the paper's lambda, for the orthogonal methods.
        dropout: see `MultiverseHead`; "bert-drop" takes its own.
        pooling: see `MultiverseHead`.
        pairs: see `MultiverseHead`.
        **pruning: keywords of `HeadPruner`, for "mml" only.

    Returns:
        (head, hooks). The hooks hold a HeadPruner for "mml" and are empty for the other methods.

    Raises:
        KeyError: the method is unknown.
        ValueError: keywords of HeadPruner were given to another method than "mml".

    Example::

        head, hooks = build_head("mml", 384, 2, every=200)
        fit(MultitaskModel(encoder, {"rte": head}), data, hooks=hooks)
    """
    m = hidden_size if num_heads is None else num_heads
    shapes = {  # heads, orthogonality weight, dropout
        "bert": (1, 0.0, dropout),
        "bert-drop": (1, 0.0, 0.3),
        "bert-ensemble": (m, 0.0, dropout),
        "mv-m": (m, orthogonality_weight, dropout),
        "mml": (m, orthogonality_weight, dropout),
    }
    if numbered := re.fullmatch(r"mv-([1-9]\d*)", method):
        shapes[method] = (int(numbered[1]), orthogonality_weight, dropout)
    if pruning and method != "mml":
        raise ValueError(f"method {method!r} never prunes; {list(pruning)} belong to 'mml'.")
    heads, weight, drop = shapes[method]
    head = MultiverseHead(
        hidden_size,
        num_labels,
        num_heads=heads,
        dropout=drop,
        orthogonality_weight=weight,
        pooling=pooling,
        pairs=pairs,
    )
    return head, [HeadPruner(head, **pruning)] if method == "mml" else []
