"""Sentences of errors, numbers and plurals. Notebooks do not use it."""

import errno
import math
import numbers

__all__ = [
    "DISK_ERRORS",
    "OTHER_RUN",
    "check_number",
    "count",
    "file_error",
]

OTHER_RUN = "belongs to another run"  # what the message about such a checkpoint says
_ELSEWHERE = "Free some space, or choose another place."
_NOT_ALLOWED = "You may not do this here: choose another place, or change the rights."
# What a user can do about an error of the system, whose own text only names it.
_REMEDIES = {
    errno.ENOSPC: _ELSEWHERE,
    errno.EDQUOT: _ELSEWHERE,
    errno.EFBIG: _ELSEWHERE,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
    errno.ENOTDIR: "A part of the path is a file, expected a folder: name another path.",
    errno.EEXIST: "A part of the path is a file, expected a folder: name another path.",
    errno.EISDIR: "Expected a file: name another path.",
    errno.ENOENT: "Check the path.",
    errno.ELOOP: "A link points to itself: remove it, or name another path.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}

DISK_ERRORS = frozenset(_REMEDIES) - {errno.ENOENT}


def check_number(name, value, least, most=math.inf, *, whole=False, above=False, optional=False):
    """Check that an argument is a number in its range.

    Args:
        name: the argument's name.
        value: what was given.
        least: the smallest number.
        most: the largest number.
        whole: whether it must be a whole number.
        above: whether `least` itself is too small.
        optional: whether None is right too.

    Raises:
        ValueError: the value has another type, is not finite, or is out of its range.
    """
    if value is None and optional:
        return
    kind = numbers.Integral if whole else numbers.Real
    number = isinstance(value, kind) and not isinstance(value, bool)
    low = number and (least < value if above else least <= value)
    if low and value <= most and abs(value) < math.inf:
        return
    limits = f"of at least {least:g}" if most > 2**62 else f"from {least:g} to {most:g}"
    if above:
        limits = f"above {least:g}" + f" and at most {most:g}" * (most < 2**62)
    raise ValueError(
        f"{name} is {value!r:.80}, expected a {'whole ' * whole}number {limits}"
        f"{', or None' * optional}."
    )


def count(number, noun):
    """Return a number with its noun, such as "1 row" or "2 rows".

    Args:
        number: a whole number.
        noun: the noun in the singular.

    Returns:
        The text.
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def file_error(path, error, action):
    """Return an error of the system with the path, the reason and what to do.

    Args:
        path: the file or folder that the user knows.
        error: an OSError.
        action: "written" or "read".

    Returns:
        An OSError of the same class and errno.
    """
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno, "Check the path, or choose another one.")
    found = type(error)(f"{path} could not be {action}: {reason}. {remedy}")
    found.errno = error.errno
    return found
