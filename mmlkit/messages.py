"""Text for people: nothing in it is obeyed by a terminal, a spreadsheet or a browser.

Names and texts come from files that others wrote; here they are made harmless before they appear.
"""

import contextlib
import html
import re

__all__ = ["count", "error_text", "markdown_table", "markdown_text", "no_formula", "printable"]


def count(number, noun):
    """Return "1 row" or "2 rows" of 1 or 2 and "row"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def printable(text):
    """Return the text with its control codes spelled out, since a terminal obeys them."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda code: f"\\x{ord(code[0]):02x}", text)


def no_formula(cell):
    """Return the cell, with an apostrophe before a spreadsheet's formula; numbers stay numbers."""
    with contextlib.suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else cell


def markdown_text(text):
    """Return the text for Markdown, on one line, without HTML, links, code or cells of its own."""
    text = html.escape("".join(c if c.isprintable() else " " for c in text), quote=False)
    return re.sub(r"([\\|\[`])", r"\\\1", text)


def markdown_table(frame):
    """Return a DataFrame as a Markdown table, without its index; see `markdown_text`."""
    rows = frame.astype(str).to_numpy().tolist()
    lines = [list(frame.columns), ["---"] * len(frame.columns), *rows]
    cells = [[markdown_text(str(cell)) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def error_text(error):
    """Return what a user reads of an error at the command line.

    The message alone for the kinds that mmlkit raises on purpose, for files and for memory; for any
    other kind, that it is unexpected, and how to see the traceback.
    """
    kind, text = type(error).__name__, str(error).strip()
    brief = f"{kind}: {text.splitlines()[0][:300]}" if text else kind
    said = isinstance(error, RuntimeError) and re.search("(out of|enough|allocate) memory", text)
    if isinstance(error, MemoryError) or said:
        return (f"out of memory ({brief}). Close other programs, or take fewer texts or a smaller "
                "model.")
    if isinstance(error, RecursionError):
        return f"a file is nested too deeply to be read ({brief}). Check the files that you named."
    expected = isinstance(error, (ValueError, OSError, ImportError, FloatingPointError))
    if text and (expected or kind == "SafetensorError"):
        return printable(text)
    return printable(f"unexpected {brief}\nThis is a fault of mmlkit rather than yours. The same "
                     "command with MMLKIT_DEBUG=1 before it shows where; please report that as an "
                     "issue of the repository.")
