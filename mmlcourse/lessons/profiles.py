"""The three sizes of a run: `fast`, `colab` and `paper`, chosen by one word in every notebook.

They are frozen records with a reason beside each value. A notebook passes their fields on.
"""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROFILES", "Profile", "get_profile"]


@dataclass(frozen=True)
class Profile:
    """One size of a run.

    Args:
        name: "fast", "colab" or "paper".
        model: for `load_pretrained`.
        source: for `load_task`.
        batch_size: rows of a batch.
        max_length: the largest number of tokens of a row.
        epochs: passes over the training rows.
        lr: the learning rate of the encoder.
        head_lr: the learning rate of the heads.
        frozen_lr: the learning rate of the heads where the encoder is frozen.
        precision: see `mmlkit.runtime.autocast`.
        pooling: how a head pools the tokens: "mean", "cls" or "pooler".
        limit: the largest number of rows of a split, or None.
        review_batch_size: rows of a batch of CFIMDB, whose texts are long.
        long_runs: whether a training run is long enough for checkpoints.
        effects: whether the notebooks assert their effects, such as a rise in accuracy.
    """

    name: str
    model: str
    source: str
    batch_size: int
    max_length: int
    epochs: int
    lr: float
    head_lr: float
    frozen_lr: float
    precision: str
    pooling: str
    limit: int | None = None
    review_batch_size: int = 8  # CFIMDB has few rows (value of the CS224N handout)
    long_runs: bool = True
    effects: bool = False

    def checkpoints(self, output_dir, run):
        """Return the arguments with which `fit` continues after a disconnect.

        Args:
            output_dir: the folder for the results of a notebook.
            run: a name for the run; every run of every notebook has a name of its own.

        Returns:
            A dict with `checkpoint_dir` and `resume`, or an empty one where `long_runs` is False.

        Example::

            fit(model, data, **size.checkpoints(output_dir, "02-frozen"))
        """
        folder = Path(output_dir) / "checkpoints" / run
        return {"checkpoint_dir": folder, "resume": "auto"} if self.long_runs else {}


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="fast",
            model="minilm",  # installed with the library, no network
            source="mini",  # part of the repository
            batch_size=32,
            max_length=160,  # the longest mini review; on two cores cost grows with length
            epochs=3,  # later epochs gain little on 800 rows
            lr=1e-4,  # MiniLM is small and learns at five times BERT-base's rate
            head_lr=1e-3,  # the head starts from random values
            frozen_lr=5e-3,  # only the head trains, on 384 features
            precision="auto",  # bf16 where the CPU multiplies it in hardware
            pooling="mean",  # the pooling MiniLM was trained with
            long_runs=False,  # a run takes seconds or a few minutes
            effects=True,  # they were measured on this profile
        ),
        Profile(
            name="colab",
            model="bert-base-uncased",
            source="hub",
            batch_size=32,  # fits the 16 GB of a T4 at 128 tokens
            max_length=128,
            epochs=3,
            lr=2e-5,
            head_lr=1e-4,
            frozen_lr=1e-3,
            precision="auto",  # fp16 on a T4, bf16 on newer cards
            pooling="pooler",  # BERT's own pooling
        ),
        Profile(
            name="paper",
            model="bert-base-uncased",
            source="hub",
            batch_size=64,  # CS224N handout: SST 64
            max_length=512,
            epochs=10,  # CS224N handout
            lr=1e-5,  # handout, fine-tuning
            head_lr=1e-5,
            frozen_lr=1e-3,  # handout, last-linear-layer
            precision="fp32",
            pooling="pooler",
        ),
    )
}


def get_profile(name):
    """Return a profile.

    Args:
        name: "fast", "colab" or "paper".

    Returns:
        The `Profile`.

    Raises:
        ValueError: there is no profile of that name.
    """
    if name not in PROFILES:
        raise ValueError(f"{name!r} is not a profile. Known profiles: {', '.join(PROFILES)}.")
    return PROFILES[name]
