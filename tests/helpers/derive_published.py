"""Derive the published numbers from the tables as printed, and write published.csv.

The printed cells are in `mmlcourse/studies/tables/*.md`, a readable file per document. Some numbers
follow from others: the improvements of MML's Tables 2 to 5, averages, GLUE scores, overall scores,
counts of examples. This script recomputes these numbers. It notes where the printed and the
recomputed number differ.

    python tests/helpers/derive_published.py

`tests/mmlcourse/unit/test_published.py` compares the committed file with what `derive` returns.
"""

import functools
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

SOURCES = ("mml_v2", "mml_v1", "mt_dnn", "mt_bert", "cs224n")
FOLDER = Path(__file__).resolve().parents[2] / "mmlcourse" / "studies" / "tables"
KEY = ["source", "table", "row", "column", "split", "metric"]
TASKS = {
    "Average": 8,
    "Score": 9,
}  # number of GLUE tasks in the mean; the diagnostic set AX does not count


def derive():
    """Return all printed numbers as a DataFrame, one per row, in the order of the documents.

    Returns:
        The columns source, table, row, column, split, metric, printed, recomputed, note and
        arithmetic. `arithmetic` is empty except for numbers that cannot be right.
    """
    rows = []
    for source in SOURCES:
        cells, notes = read(source)
        derived = recompute(source)
        for cell in cells:
            again = derived.get(cell.key)
            remarks = [
                difference(cell, again) if again else "",
                *(text for applies, text in notes if applies(cell)),
            ]
            rows.append(
                (
                    source,
                    *cell.key,
                    cell.number[0],
                    again.number[0] if again else math.nan,
                    "; ".join(filter(None, remarks)),
                    arithmetic(cell, again) if again else "",
                )
            )
    return pd.DataFrame(rows, columns=[*KEY, "printed", "recomputed", "note", "arithmetic"])


# ---- reading: a number is [value, lowest, highest]; formulas propagate the rounding ----


class Cell(NamedTuple):
    """One printed number and its position in a table."""

    table: str
    row: str
    column: str
    split: str
    metric: str
    text: str

    @property
    def key(self):
        """The position, without the text."""
        return self[:5]

    @property
    def number(self):
        """The value and its bounds, as in `interval`."""
        return interval(self.text)


class Derived(NamedTuple):
    """A recomputed number [3], its formula in words, and a remark."""

    number: np.ndarray
    words: str
    remark: str = ""


def interval(text):
    """Return [3]: a printed value, and the lowest and highest number that rounds to it."""
    digits = text.strip("~+%k").replace(",", "")
    times = 1000 if text.endswith("k") else 1
    unit = times * 10.0 ** -len(digits.partition(".")[2])
    low, high = (unit / 2, unit) if not digits.startswith("-") else (unit, unit / 2)
    loose = 5 if text.startswith("~") else 1  # "about": half of the digit before the last
    value = float(digits) * times
    return np.array([value, value - loose * low, value + loose * high])


@functools.cache
def read(source):
    """Return the cells of one file in order, and its notes as (function of a cell, text)."""
    cells, notes, table, header = [], [], None, None
    for line in (FOLDER / f"{source}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            table, header = line[3:].strip(), None
        elif line.startswith("- "):
            notes.append(note(table, *(part.strip() for part in line[2:].split("|", 3))))
        elif line.startswith("|") and not set(line) <= set("|-"):
            first, *texts = (part.strip() for part in line.split("|")[1:-1])
            if header is None:
                header = texts
            elif first.startswith("**"):
                split, metrics = first.strip("*").replace("-", ""), texts
            else:
                for column, metric, text in zip(header, metrics, texts, strict=True):
                    cells += split_cell(table, first, column, split, metric, text)
    return tuple(cells), tuple(notes)


def split_cell(table, row, column, split, metric, text):
    """Return the numbers of one cell: "86.7/85.9" has two columns, splits or metrics."""
    if text == "-" or metric == "text":
        return []
    task, _, second = column.partition("/")
    columns = [task, f"{task.rpartition('-')[0]}-{second}"] if second else [column]
    splits, metrics, parts = split.split("/"), metric.split("/"), text.split("/")
    if len(parts) == 1:  # one number for both MNLI columns, or for all splits
        columns = [task.removesuffix("-m") if second else column]
        splits = ["" if len(splits) > 1 else split]
    names = [(a, b, c) for a in columns for b in splits for c in metrics]
    if len(parts) != len(names):
        raise ValueError(
            f"{table}, {row}, {column}: {text!r} has {len(parts)} numbers, "
            f"expected one for each of {names}."
        )
    return [Cell(table, row, *name, part) for name, part in zip(names, parts) if part != "-"]


def note(table, row, column, split, text):
    """Return (function of a cell, text) of one note."""

    def applies(cell):
        pairs = (
            (cell.row, [row]),
            (cell.column, [column]),
            (cell.split, split.replace("-", "").split("/")),
        )
        return cell.table == table and all(
            wanted == ["all"] or found in wanted for found, wanted in pairs
        )

    return applies, text


# ---- recomputing ----


@functools.cache
def recompute(source):
    """Return {cell key: Derived} for every cell that follows from others."""
    cells = read(source)[0]
    grid, derived = {cell.key: cell for cell in cells}, {}
    for cell in cells:  # the text comes last in each file, after the tables that it cites
        again = None
        if cell.metric == "overall" and cell.row != "best, abstract":
            again = overall(cell, cells)
        elif cell.table == "text":
            again = stated_in_text(cell, cells, grid, derived)
        elif cell.metric == "improvement":
            again = improvement(cell, grid)
        elif cell.column in TASKS:
            again = average(cell, cells, twice=source == "mml_v1")
        elif cell.metric == "examples" and cell.column.endswith((" 0.1%", " 1%", " 10%")):
            corpus, part = cell.column.split()
            again = share(part, grid[cell._replace(column=f"{corpus} 100%").key])
        if again:
            derived[cell.key] = again
    return derived


def mean_ratio(ours, base):
    """Return the percentage by which ours is above base: the mean of ratios, as in MML."""
    value, low, high = zip(*((a.number / b.number[[0, 2, 1]]) for a, b in zip(ours, base)))
    ratios = ", ".join(f"{a.text}/{b.text}" for a, b in zip(ours, base))
    words = f"mean of {ratios}, minus 1" if len(ours) > 1 else f"{ratios} - 1"
    return Derived(100 * (np.mean([value, low, high], axis=1) - 1), words)


def improvement(cell, grid):
    """Return a model's gain over BERT on the other sets, or in a footer all gains on one set."""
    table = cell.table
    sets = list(dict.fromkeys(key[2] for key in grid if key[0] == table and key[4] == "accuracy"))
    if cell.column == "improvement":
        method, own = next(
            (cell.row.removesuffix(f"-{name}"), name)
            for name in sets
            if cell.row.endswith(f"-{name}")
        )
        places = [(own, name) for name in sets if name != own]
    else:
        method = cell.row.removesuffix(" impr.")
        places = [(name, cell.column) for name in sets if name != cell.column]
    ours, base = (
        [grid[table, f"{model}-{own}", name, cell.split, "accuracy"] for own, name in places]
        for model in (method, "BERT")
    )
    return mean_ratio(ours, base)


def average(cell, cells, twice):
    """Return the mean over tasks or, with `twice`, over columns, which counts MNLI twice."""
    tasks = {}
    for one in cells:
        if same_row(one, cell) and one.column not in (cell.column, "AX"):
            tasks.setdefault(re.sub("-mm?$", "", one.column), []).append(one)
    if len(tasks) < TASKS[cell.column]:
        return None
    once, each = list(tasks.values()), [[one] for group in tasks.values() for one in group]
    groups, other, how = (each, once, "once") if twice else (once, each, "twice")
    words = ", ".join(
        group[0].text if len(group) == 1 else f"({' + '.join(one.text for one in group)})/2"
        for group in groups
    )
    remark = ""
    if cell.column == "Average" and len(once) < len(each):
        remark = f"with MNLI counted {how}: {mean_of_means(other)[0]:.2f}"
    return Derived(mean_of_means(groups), f"mean of {words}", remark)


def same_row(one, other):
    """Return whether two cells are in the same row of a table, for the same split."""
    return (one.table, one.row, one.split) == (other.table, other.row, other.split)


def mean_of_means(groups):
    """Return [3]: the mean over groups of the mean over each group's cells."""
    return np.mean([np.mean([one.number for one in group], axis=0) for group in groups], axis=0)


def overall(cell, cells):
    """Return the course's score: the mean of two accuracies and (r + 1)/2; nan counts as r = 0."""
    parts = [one for one in cells if same_row(one, cell) and one != cell]
    if len(parts) != 3:
        return None
    (first, second, third), (a, b, r) = zip(
        *((np.nan_to_num(part.number), part.text.replace("nan", "0")) for part in parts)
    )
    return Derived((first + second + (third + 1) / 2) / 3, f"({a} + {b} + ({r} + 1)/2)/3")


def share(part, whole):
    """Return a percentage of a cell."""
    return Derived(float(part.strip("%")) / 100 * whole.number, f"{part} of {whole.text}")


def stated_in_text(cell, cells, grid, derived):
    """Return a number that only the running text gives, where the tables determine it."""
    about, _, method = cell.row.partition(", ")
    if about == "SNLI":
        return share("0.1%", grid["Table 5", "training size", "SNLI 100%", "train", "examples"])
    if about == "best":
        best = max(
            (one for one in cells if one[0] == "Table 1" and one.metric == "overall"),
            key=lambda one: one.number[0],
        )
        return Derived(best.number, f"{best.row} in Table 1")
    if about == "MML-MRPC over BERT-MRPC on QQP":
        return mean_ratio(
            *(
                [grid["Table 3", row, "QQP", cell.split, "accuracy"]]
                for row in ("MML-MRPC", "BERT-MRPC")
            )
        )
    if about == "mean of the active heads":
        heads = [one for one in cells if one[0] == "Table 1" and one.metric == "heads"]
        return Derived(
            mean_of_means([[one] for one in heads]),
            f"mean of {', '.join(one.text for one in heads)}",
        )
    if about == "MML-MRPC":
        parts = [
            again.number
            for key, again in derived.items()
            if key[:3] == ("Table 3", about, "improvement")
        ]
    else:  # "mean over the seven sets, METHOD"; the only remaining statement
        parts = [
            again.number
            for (table, row, column, split, _), again in derived.items()
            if method
            and split == "train"
            and column == "improvement"
            and table in ("Table 4", "Table 5")
            and row.replace("BERT-D-", "BERT-Drop-").startswith(f"{method}-")
        ]
    if not parts:
        return None
    return Derived(
        np.mean(parts, axis=0), f"mean of {', '.join(f'{part[0]:+.2f}' for part in parts)}"
    )


# ---- comparing ----


def is_misprint(cell, again):
    """Return whether no rounding or truncation of entries and result gives the printed number."""
    (_, least, most), (_, low, high) = cell.number, again.number
    return bool(least > high + 1e-9 or most < low - 1e-9)


def arithmetic(cell, again):
    """Return the formula of a misprint in words, "" for any other cell."""
    if not is_misprint(cell, again):
        return ""
    return f"{again.words} = {formatted(again.number[0], cell)}, printed {cell.text}"


def difference(cell, again):
    """Return a note, or only the remark if the rounded or truncated result is as printed."""
    value, decimals = again.number[0], decimals_of(cell)
    cut = math.trunc(value * 10**decimals) / 10**decimals
    if min(abs(cell.number[0] - round(value, decimals)), abs(cell.number[0] - cut)) < 1e-9:
        return again.remark
    why = (
        "the text says about"
        if cell.text.startswith("~")
        else "rounding of the entries can explain it"
    )
    if is_misprint(cell, again):
        why = "of the other sign" if cell.number[0] * value < 0 else "cannot be right"
    return "; ".join(
        filter(None, (f"the entries give {formatted(value, cell)}: {why}", again.remark))
    )


def decimals_of(cell):
    """Return the number of printed decimals."""
    return len(cell.text.strip("~+%").partition(".")[2])


def formatted(value, cell):
    """Return a recomputed value with one decimal more than its cell, or as a percentage."""
    return (
        f"{value:+.2f}%" if cell.metric == "improvement" else f"{value:,.{decimals_of(cell) + 1}f}"
    )


if __name__ == "__main__":
    derive().to_csv(FOLDER / "published.csv", index=False, lineterminator="\n")
