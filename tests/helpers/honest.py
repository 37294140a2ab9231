"""Honest answers to a1_minbert that differ as those of real students do, from honest.txt."""

import random
import re
import textwrap
from pathlib import Path

PARTS = re.findall(
    r"^== (.+)\n((?:(?!== ).*\n)*)", Path(__file__).with_suffix(".txt").read_text("utf-8"), re.M
)
PARTS = {name: text.strip("\n") for name, text in PARTS}


def choose(part, draw, **more):
    """Return a part with every choice made and every name chosen."""
    text = PARTS[part]
    for key, value in more.items():
        text = text.replace(f"{{{key}}}", value)
    text = re.sub("«([^«»]*)»", lambda found: draw.choice(found[1].split("|")), text)
    keys = sorted(set(re.findall(r"\$(\w)", text)))
    names = {key: key + draw.choice(["", "_", "1", "2", "_new"]) for key in keys}
    text = re.sub(r"\$(\w)", lambda found: names[found[1]], text)
    return text.replace("¶", "\n").strip("\n")


def honest_cells(cells, seed, variants, skip=()):
    """Return the cells of a student's notebook with the answers and texts of an honest student.

    Args:
        cells: those of the student notebook of a1_minbert, (kind, text).
        seed: any text; another one makes another student.
        variants: those of the edition.
        skip: functions that the student leaves out.

    Returns:
        A list of (kind, text).
    """
    draw = random.Random(f"honest {seed}")
    gelu = ', approximate="tanh"' if variants["gelu"] == "tanh" else ""
    decay = {"before": "", "after": "", variants["decay"]: f"{PARTS['decay']}\n"}
    look = f"{PARTS['look back']}\n" if variants["look"] == "back" else ""
    smooth = ", label_smoothing=0.1" if variants["smoothing"] == "tenth" else ""
    more = {"gelu": gelu, "pool": PARTS[f"pool {variants['pooling']}"], **decay}
    counted = "$y" if variants["share"] == "recall" else "$p"
    more |= {"look": look, "smooth": smooth, "counted": counted}
    numbers = {key: f"{draw.uniform(0.02, 0.6):.3f}" for key in "abcdefgh"}
    found = []
    for kind, text in cells:
        defined = re.match(r"(?:def|class) (\w+)", text)
        if defined and defined[1] == "evaluate":  # given with faults: most write it anew
            text = "\n".join(text.split("\n")[:2]) + "\n    ..."
        for name in PARTS if kind == "code" and defined and "..." in text else ():
            owner, _, method = name.partition(".")
            if owner == defined[1] and name not in skip:
                text = _fill(text, method, choose(name, draw, **more))
        if marker := re.match(r"\*\*Answer to (\w+):\*\*", text):
            answer = choose(marker[1], draw, n=str(draw.choice([3, 4, 5, 8])), **numbers)
            text = f"{marker[0]} {answer}"
        found.append((kind, text))
    return found


def _fill(text, method, lines):
    """Replace the first `...` of a cell, or that of a method, by lines."""
    start = text.index(f"def {method}(") if method not in ("", "freeze") else 0
    place = re.compile(r"^( *)\.\.\.$", re.M).search(text, start)
    return text[: place.start()] + textwrap.indent(lines, place[1]) + text[place.end() :]
