"""Texts for output, with escapes for everything that a terminal, spreadsheet or browser executes.

The names and texts come from files of other people.
"""

import contextlib
import html
import re

__all__ = ["count", "error_text", "markdown_table", "markdown_text", "no_formula", "printable"]


def count(number, noun):
    """Return a number with its noun, such as "1 row" or "2 rows".

    Args:
        number: a whole number.
        noun: the noun in the singular.

    Returns:
        The text.
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def printable(text):
    r"""Write the control codes of a text as escapes such as \x1b, which a terminal only shows.

    Args:
        text: any text.

    Returns:
        The text; tabs and newlines stay.
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda code: f"\\x{ord(code[0]):02x}", text)


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
    """Write a text for Markdown, on one line, without HTML, links, code or table cells.

    Args:
        text: any text.

    Returns:
        The escaped text.
    """
    text = html.escape("".join(c if c.isprintable() else " " for c in text), quote=False)
    return re.sub(r"([\\|\[`])", r"\\\1", text)


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


def error_text(error):
    """Return the text of an error for the command line.

    Args:
        error: an exception.

    Returns:
        The message alone for the kinds that mmlkit raises on purpose, and for files and memory. For
        any other kind: that the error is unexpected, and how to see its traceback.
    """
    kind, text = type(error).__name__, str(error).strip()
    brief = f"{kind}: {text.splitlines()[0][:300]}" if text else kind
    said = isinstance(error, RuntimeError) and re.search("(out of|enough|allocate) memory", text)
    if isinstance(error, MemoryError) or said:
        return (
            f"out of memory ({brief}). Close other programs, or take fewer texts or a smaller "
            "model."
        )
    if isinstance(error, RecursionError):
        return f"a file is nested too deeply to be read ({brief}). Check the files that you named."
    expected = isinstance(error, (ValueError, OSError, ImportError, FloatingPointError))
    if text and (expected or kind == "SafetensorError"):
        return printable(text)
    return printable(
        f"unexpected {brief}\nThis is a fault of mmlkit rather than yours. The same "
        "command with MMLKIT_DEBUG=1 before it shows where; please report that as an "
        "issue of the repository."
    )
