"""Every table of the five documents as data, and what its numbers should have been.

The cells lie in `tables/*.md`, one readable file per document, written as they are printed. Beside a printed number that
follows from others stands that number worked out again: the improvements of MML's Tables 2 to 5, averages, GLUE scores,
overall scores, counts of examples. Notebook 05 reads these tables as a lesson.

    mml_v2   Maximal multiverse learning, EACL 2021       mt_dnn   Multi-task deep neural networks, first arXiv version
    mml_v1   its first arXiv version                      mt_bert  slides that reproduce it
    cs224n   Multitask BERT with PALs, a course report
"""

import difflib
import functools
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["misprints", "tables"]

_SOURCES = ("mml_v2", "mml_v1", "mt_dnn", "mt_bert", "cs224n")
_FOLDER = Path(__file__).resolve().parent / "tables"
_KEY = ["source", "table", "row", "column", "split", "metric"]
_TASKS = {"Average": 8, "Score": 9}         # GLUE tasks behind the column; the diagnostic set AX is none of them


def tables(source=None):
    """The printed cells as a long DataFrame, one number per line, in the order of the documents.

    source: "mml_v2", "mml_v1", "mt_dnn", "mt_bert" or "cs224n"; None for all five.
    Returns source, table, row, column, split, metric (strings; split is "" where there is none), printed, recomputed
    (float, not rounded, NaN where nothing derives it; a correlation printed as nan is NaN too), note (a string, mostly "").
    MML cuts its improvements after the second decimal, so printed 0.35 agrees with recomputed 0.3582.
    Raises ValueError when source is none of the five.
    """
    import pandas as pd

    if source is not None and source not in _SOURCES:
        near = difflib.get_close_matches(str(source), _SOURCES, n=1, cutoff=0.4)
        raise ValueError(f"{source!r} is not a source.{f' Did you mean {near[0]!r}?' if near else ''} Known: {', '.join(_SOURCES)}.")
    lines = []
    for name, cell, again in _compared(*([source] if source else _SOURCES)):
        remarks = [_difference(cell, again) if again else "", *(text for about, text in _read(name)[1] if about(cell))]
        lines.append((name, *cell.key, cell.number[0], again.number[0] if again else math.nan, "; ".join(filter(None, remarks))))
    return pd.DataFrame(lines, columns=[*_KEY, "printed", "recomputed", "note"])


def misprints():
    """The printed cells that cannot be right, with the arithmetic in words.

    A cell stands here when no rounding or cutting, of the numbers that it follows from and of the result, leads to it:
    a number with two decimals may stand for anything from half a hundredth below it to one above.
    Returns a DataFrame: source, table, row, column, split, metric, printed, recomputed, arithmetic.
    """
    import pandas as pd

    return pd.DataFrame([(name, *cell.key, cell.number[0], again.number[0],
                          f"{again.words} = {_say(again.number[0], cell)}, printed {cell.text}")
                         for name, cell, again in _compared(*_SOURCES) if again and _cannot_be(cell, again)],
                        columns=[*_KEY, "printed", "recomputed", "arithmetic"])


def _compared(*sources):
    """(source, cell, what it should be or None), in the order of the print."""
    for source in sources:
        derived = _derive(source)
        yield from ((source, cell, derived.get(cell.key)) for cell in _read(source)[0])


# ---- reading: a number is [value, least, most], so that rounding is carried through every formula ----

class _Cell(NamedTuple):
    table: str
    row: str
    column: str
    split: str
    metric: str
    text: str

    @property
    def key(self):
        return self[:5]

    @property
    def number(self):
        return _number(self.text)


class _Again(NamedTuple):
    number: np.ndarray      # [3]: value, least, most
    words: str
    remark: str = ""


def _number(text):
    """[3]: the value, and the least and the most that it can stand for, were it rounded or cut to its last digit."""
    digits = text.strip("~+%k").replace(",", "")
    times = 1000 if text.endswith("k") else 1
    unit = times * 10.0 ** -len(digits.partition(".")[2])
    low, high = (unit / 2, unit) if not digits.startswith("-") else (unit, unit / 2)
    loose = 5 if text.startswith("~") else 1        # "about": half of the digit before the last
    value = float(digits) * times
    return np.array([value, value - loose * low, value + loose * high])


@functools.cache
def _read(source):
    """The cells of one file in order, and its notes as (whether it is about a cell, text)."""
    cells, notes, table, header = [], [], None, None
    for line in (_FOLDER / f"{source}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            table, header = line[3:].strip(), None
        elif line.startswith("- "):
            notes.append(_note(table, *(part.strip() for part in line[2:].split("|", 3))))
        elif line.startswith("|") and not set(line) <= set("|-"):
            first, *texts = (part.strip() for part in line.split("|")[1:-1])
            if header is None:
                header = texts
            elif first.startswith("**"):
                split, metrics = first.strip("*").replace("-", ""), texts
            else:
                for column, metric, text in zip(header, metrics, texts, strict=True):
                    cells += _cells(table, first, column, split, metric, text)
    return tuple(cells), tuple(notes)


def _cells(table, row, column, split, metric, text):
    """The numbers of one printed cell: "86.7/85.9" is one for each of two columns, splits or metrics."""
    if text == "-" or metric == "text":
        return []
    task, _, second = column.partition("/")
    columns = [task, f"{task.rpartition('-')[0]}-{second}"] if second else [column]
    splits, metrics, parts = split.split("/"), metric.split("/"), text.split("/")
    if len(parts) == 1:     # one number for both MNLI columns, or for all splits
        columns, splits = [task.removesuffix("-m") if second else column], ["" if len(splits) > 1 else split]
    names = [(a, b, c) for a in columns for b in splits for c in metrics]
    if len(parts) != len(names):
        raise ValueError(f"{table}, {row}, {column}: {text!r} has {len(parts)} numbers, expected one for each of {names}.")
    return [_Cell(table, row, *name, part) for name, part in zip(names, parts) if part != "-"]


def _note(table, row, column, split, text):
    def about(cell):
        pairs = (cell.row, [row]), (cell.column, [column]), (cell.split, split.replace("-", "").split("/"))
        return cell.table == table and all(wanted == ["all"] or found in wanted for found, wanted in pairs)
    return about, text


# ---- working out again ----

@functools.cache
def _derive(source):
    """{cell key: what its number should be}, for every cell that follows from others."""
    cells = _read(source)[0]
    grid, derived = {cell.key: cell for cell in cells}, {}
    for cell in cells:      # the text comes last in each file, when the tables are worked out
        again = None
        if cell.metric == "overall" and cell.row != "best, abstract":
            again = _overall(cell, cells)
        elif cell.table == "text":
            again = _told(cell, cells, grid, derived)
        elif cell.metric == "improvement":
            again = _improvement(cell, grid)
        elif cell.column in _TASKS:
            again = _average(cell, cells, twice=source == "mml_v1")
        elif cell.metric == "examples" and cell.column.endswith((" 0.1%", " 1%", " 10%")):
            corpus, share = cell.column.split()
            again = _share(share, grid[cell._replace(column=f"{corpus} 100%").key])
        if again:
            derived[cell.key] = again
    return derived


def _mean_ratio(ours, base):
    """Per cent by which ours is above base: the mean of the ratios, as MML takes it, not the ratio of the means."""
    value, low, high = zip(*((a.number / b.number[[0, 2, 1]]) for a, b in zip(ours, base)))
    ratios = ", ".join(f"{a.text}/{b.text}" for a, b in zip(ours, base))
    words = f"mean of {ratios}, minus 1" if len(ours) > 1 else f"{ratios} - 1"
    return _Again(100 * (np.mean([value, low, high], axis=1) - 1), words)


def _improvement(cell, grid):
    """A model over BERT on the sets that it was not trained on; in a footer, all such models on one set."""
    sets = list(dict.fromkeys(key[2] for key in grid if key[0] == cell.table and key[4] == "accuracy"))
    if cell.column == "improvement":
        method, own = next((cell.row.removesuffix(f"-{name}"), name) for name in sets if cell.row.endswith(f"-{name}"))
        places = [(own, name) for name in sets if name != own]
    else:
        method, places = cell.row.removesuffix(" impr."), [(name, cell.column) for name in sets if name != cell.column]
    ours, base = ([grid[cell.table, f"{model}-{own}", name, cell.split, "accuracy"] for own, name in places] for model in (method, "BERT"))
    return _mean_ratio(ours, base)


def _average(cell, cells, twice):
    """Mean over tasks, each task the mean of its numbers; or, twice, over columns, so that MNLI counts twice."""
    tasks = {}
    for one in cells:
        if (one.table, one.row, one.split) == (cell.table, cell.row, cell.split) and one.column not in (cell.column, "AX"):
            tasks.setdefault(re.sub("-mm?$", "", one.column), []).append(one)
    if len(tasks) < _TASKS[cell.column]:
        return None
    once, each = list(tasks.values()), [[one] for group in tasks.values() for one in group]
    groups, other, how = (each, once, "once") if twice else (once, each, "twice")
    words = ", ".join(group[0].text if len(group) == 1 else f"({' + '.join(one.text for one in group)})/2" for group in groups)
    remark = f"with MNLI counted {how}: {_mean_of_means(other)[0]:.2f}" if cell.column == "Average" and len(once) < len(each) else ""
    return _Again(_mean_of_means(groups), f"mean of {words}", remark)


def _mean_of_means(groups):
    return np.mean([np.mean([one.number for one in group], axis=0) for group in groups], axis=0)


def _overall(cell, cells):
    """The course's score: mean of two accuracies and of the correlation brought to 0..1; nan counts as no correlation."""
    parts = [one for one in cells if (one.table, one.row, one.split) == (cell.table, cell.row, cell.split) and one != cell]
    if len(parts) != 3:
        return None
    (first, second, third), (a, b, r) = zip(*((np.nan_to_num(part.number), part.text.replace("nan", "0")) for part in parts))
    return _Again((first + second + (third + 1) / 2) / 3, f"({a} + {b} + ({r} + 1)/2)/3")


def _share(share, whole):
    return _Again(float(share.strip("%")) / 100 * whole.number, f"{share} of {whole.text}")


def _told(cell, cells, grid, derived):
    """What only the text says, where the tables allow to check it."""
    about, _, method = cell.row.partition(", ")
    if about == "SNLI":
        return _share("0.1%", grid["Table 5", "training size", "SNLI 100%", "train", "examples"])
    if about == "best":
        best = max((one for one in cells if one[0] == "Table 1" and one.metric == "overall"), key=lambda one: one.number[0])
        return _Again(best.number, f"{best.row} in Table 1")
    if about == "MML-MRPC over BERT-MRPC on QQP":
        return _mean_ratio(*([grid["Table 3", row, "QQP", cell.split, "accuracy"]] for row in ("MML-MRPC", "BERT-MRPC")))
    if about == "mean of the active heads":
        heads = [one for one in cells if one[0] == "Table 1" and one.metric == "heads"]
        return _Again(_mean_of_means([[one] for one in heads]), f"mean of {', '.join(one.text for one in heads)}")
    if about == "MML-MRPC":
        parts = [again.number for key, again in derived.items() if key[:3] == ("Table 3", about, "improvement")]
    else:       # "mean over the seven sets, METHOD"; nothing else in the texts is left
        parts = [again.number for (table, row, column, split, _), again in derived.items() if method and split == "train"
                 and (table, column) in (("Table 4", "improvement"), ("Table 5", "improvement"))
                 and row.replace("BERT-D-", "BERT-Drop-").startswith(f"{method}-")]
    return _Again(np.mean(parts, axis=0), f"mean of {', '.join(f'{part[0]:+.2f}' for part in parts)}") if parts else None


# ---- comparing ----

def _cannot_be(cell, again):
    """Whether what the printed number can stand for and what the formula can give have nothing in common."""
    (_, least, most), (_, low, high) = cell.number, again.number
    return bool(least > high + 1e-9 or most < low - 1e-9)


def _difference(cell, again):
    """A note: nothing when rounding or cutting the result gives the printed digits."""
    value, decimals = again.number[0], _decimals(cell)
    cut = math.trunc(value * 10**decimals) / 10**decimals
    if min(abs(cell.number[0] - round(value, decimals)), abs(cell.number[0] - cut)) < 1e-9:
        return again.remark
    why = "the text says about" if cell.text.startswith("~") else "rounding of the entries can explain it"
    if _cannot_be(cell, again):
        why = "of the other sign" if cell.number[0] * value < 0 else "cannot be right"
    return "; ".join(filter(None, (f"the entries give {_say(value, cell)}: {why}", again.remark)))


def _decimals(cell):
    return len(cell.text.strip("~+%").partition(".")[2])


def _say(value, cell):
    return f"{value:+.2f}%" if cell.metric == "improvement" else f"{value:,.{_decimals(cell) + 1}f}"
