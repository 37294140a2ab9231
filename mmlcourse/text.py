"""Texts for output, with escapes for everything that a terminal, spreadsheet or browser executes.

The names and texts come from files of other people. Notebooks do not use it.
"""

import contextlib
import html
import re

__all__ = [
    "count",
    "error_text",
    "is_mistake",
    "markdown_list",
    "markdown_table",
    "markdown_text",
    "no_formula",
    "printable",
    "signed",
    "signed_interval",
]


def signed(value):
    """Return a number with its sign and one digit after the point; a rounded 0.0 has no sign.

    Args:
        value: a number.

    Returns:
        A text, such as "+1.2" or "0.0".
    """
    text = f"{value:+.1f}"
    return text if float(text) else "0.0"


def signed_interval(low, high):
    """Return an interval in words; an end that rounds to 0.0 has up to four digits.

    A verdict depends on the side of zero on which an end lies.

    Args:
        low: its lower end.
        high: its upper end.

    Returns:
        A text, such as "+0.02 to +4.8".
    """
    return " to ".join(_signed_end(end) for end in (low, high))


def _signed_end(end):
    texts = [f"{end:+.{digits}f}" for digits in (1, 2, 3, 4)]
    return next((text for text in texts if float(text)), "0.0")


def printable(text):
    r"""Write the control codes of a text as escapes such as \x1b, which a terminal only shows.

    Args:
        text: any text. A surrogate, which UTF-8 cannot encode, becomes an escape too.

    Returns:
        The text; tabs and newlines stay.
    """
    codes = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
    return re.sub(
        codes,
        lambda code: ascii(code[0])[1:-1] if code[0] > "\x9f" else f"\\x{ord(code[0]):02x}",
        text,
    )


def no_formula(cell):
    """Put an apostrophe before a spreadsheet's formula.

    Args:
        cell: the text of a cell.

    Returns:
        The text. Numbers stay as they are.
    """
    with contextlib.suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else cell


def markdown_text(text):
    """Write a text for Markdown, on one line, without HTML, links or table cells.

    Args:
        text: any text.

    Returns:
        The escaped text.
    """
    text = html.escape("".join(c if c.isprintable() else " " for c in text), quote=False)
    text = re.sub(r"([\\|\[`])", r"\\\1", text)
    return re.sub(r"\\`([\w.-]+)\\`", r"`\1`", text)  # a name stays code


def markdown_list(lines):
    """Write a list for Markdown.

    Args:
        lines: a list of texts.

    Returns:
        The items as one text, each through `markdown_text`.
    """
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def markdown_table(frame):
    """Write a table for Markdown.

    Args:
        frame: a pandas DataFrame. Its index is left out.

    Returns:
        The lines of the table as one text, every cell through `markdown_text`.
    """
    rows = frame.astype(str).to_numpy().tolist()
    lines = [list(frame.columns), ["---"] * len(frame.columns), *rows]
    cells = [[markdown_text(str(cell)) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def is_mistake(error):
    """Return whether an error is of a kind that mmlkit raises on purpose, with a message.

    Args:
        error: an exception.

    Returns:
        True or False. Files, values, missing packages and diverged training are such kinds.
    """
    kinds = (ValueError, OSError, ImportError, FloatingPointError)
    return isinstance(error, kinds) or type(error).__name__ == "SafetensorError"


def error_text(error):
    """Return the text of an error for the command line.

    Args:
        error: an exception.

    Returns:
        The message alone where `is_mistake`. For any other kind: that the error is unexpected, and
        how to see its traceback.
    """
    if isinstance(error, ModuleNotFoundError):
        return printable(f"{error}. `mmlkit doctor` says what to install.")
    if is_mistake(error):
        return printable(str(error))
    return printable(
        f"unexpected {type(error).__name__}: {error}\nMMLKIT_DEBUG=1 before the same command shows "
        "where. Unless memory ran out, please report it as an issue of the repository."
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
