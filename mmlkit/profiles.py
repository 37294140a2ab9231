"""The sizes of a reading: `fast`, `colab`, `paper`. The one switch of every notebook.

Frozen records of plain values, a reason beside each. The notebook passes their fields on; no other module reads them.
"""

from dataclasses import dataclass

__all__ = ["Profile", "get_profile"]


@dataclass(frozen=True)
class Profile:
    """One size. `model` and `source` go to load_pretrained and load_task, the rest to fit."""

    name: str
    model: str
    source: str
    batch_size: int
    max_length: int
    epochs: int
    lr: float
    head_lr: float
    frozen_lr: float
    limit: int | None
    precision: str
    reads: str
    review_batch_size: int


_PROFILES = {profile.name: profile for profile in (
    Profile(
        name="fast",
        model="minilm",         # comes with the installation: no network
        source="mini",          # comes with the repository
        batch_size=32,
        max_length=160,         # the longest mini review; on two cores cost grows with length
        epochs=3,               # most of what there is to learn from 800 rows
        lr=1e-4,                # MiniLM is small and learns at five times BERT-base's rate
        head_lr=1e-3,           # the head starts from nothing
        frozen_lr=5e-3,         # only the head moves; 384 features are soon fitted
        limit=None,
        precision="auto",       # bf16 where the processor multiplies it in hardware
        reads="mean",           # the pooling MiniLM was trained with
        review_batch_size=8,    # CFIMDB: few and long rows, so small batches for enough updates (the handout's value)
    ),
    Profile(
        name="colab",
        model="bert-base-uncased",
        source="hub",
        batch_size=32,          # fits a 16 GB T4 at 128 tokens
        max_length=128,
        epochs=3,
        lr=2e-5,
        head_lr=1e-4,
        frozen_lr=1e-3,
        limit=None,
        precision="auto",       # fp16 on a T4, bf16 on newer cards
        reads="pooler",         # BERT's own
        review_batch_size=8,
    ),
    Profile(
        name="paper",
        model="bert-base-uncased",
        source="hub",
        batch_size=64,          # CS224N handout: SST 64
        max_length=512,
        epochs=10,              # CS224N handout
        lr=1e-5,                # handout, fine-tuning
        head_lr=1e-5,
        frozen_lr=1e-3,         # handout, last-linear-layer
        limit=None,
        precision="fp32",
        reads="pooler",
        review_batch_size=8,
    ),
)}


def get_profile(name):
    """The profile of that name. Raises ValueError naming the known ones."""
    if name not in _PROFILES:
        raise ValueError(f"{name!r} is not a profile. Known profiles: {', '.join(_PROFILES)}.")
    return _PROFILES[name]
