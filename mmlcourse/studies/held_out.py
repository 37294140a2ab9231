"""Two halves of a dev split: one chooses the epoch, the other one is scored."""

from hashlib import sha256

__all__ = ["dev_halves"]


def dev_halves(split):
    """Divide the rows of a split in two by a hash of their texts.

    The halves do not depend on a seed, on the order of rows or on other rows, and copies of a row
    fall into the same half. Case, signs and the order of the two texts do not count.

    Args:
        split: a Split.

    Returns:
        (the half that chooses, the half that is scored), two Splits in the order of the rows.
    """
    halves = [], []
    for row, texts in enumerate(split.texts):
        letters = sorted("".join(filter(str.isalnum, text.lower())) for text in texts)
        halves[sha256("\n".join(letters).encode()).digest()[0] % 2].append(row)
    return tuple(map(split.take, halves))
