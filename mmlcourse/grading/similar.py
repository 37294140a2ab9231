"""Which notebooks have more in common than chance explains: a table for the teacher, no verdict.

A notebook is a set of units with sizes: its functions, as syntax trees without the names and
constants that a student chooses, or the runs of five words of a text. What most of the class
writes alike, and what the notebook was handed out with, counts for nothing.
"""

import ast
import builtins
import collections
import copy
import hashlib
import itertools
import re

__all__ = ["alike", "functions", "phrases"]

LEAST = {"code": 150, "text": 30}  # nodes of syntax trees, or phrases, that two have in common
SHARE = 0.5  # of the shorter one, without what most of the others write too
SHARE_OF_ALL = 0.8  # with it, because most of a class may have copied
BUILTINS = {*dir(builtins)}
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions(tree):
    """Return the units of the functions in an answer; a function of a stub is none.

    Args:
        tree: the syntax tree of an answer and its helpers.

    Returns:
        {digest: [name, number of nodes]}.
    """
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, DEFINES) and not any(map(_is_stub, ast.walk(node))):
            plain = _Plain(node)
            text = ast.dump(plain.visit(copy.deepcopy(node)))
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            found[digest] = [node.name, plain.size]  # as JSON has it
    return found


def _is_stub(node):
    return isinstance(node, ast.Expr) and getattr(node.value, "value", None) is ...


class _Plain(ast.NodeTransformer):
    """Number the names that a student chooses, and drop constants, docstrings and annotations.

    Names of the library's attributes and of builtins stay.
    """

    def __init__(self, node):
        kept = lambda one: isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
        self.own = {one.attr for one in ast.walk(node) if kept(one)}
        self.numbers, self.size = {}, 0

    def visit(self, node):
        """Return the plain form of a node."""
        self.size += 1
        for field in () if isinstance(node, ast.keyword) else ("id", "name", "attr", "arg"):
            name = getattr(node, field, None)
            chosen = name in self.own if field == "attr" else name not in BUILTINS
            if isinstance(name, str) and chosen:
                setattr(node, field, f"n{self.numbers.setdefault(name, len(self.numbers))}")
        for field in ("annotation", "returns"):
            if hasattr(node, field):
                setattr(node, field, None)
        if isinstance(node, ast.Constant):
            return ast.Constant(type(node.value).__name__)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return None
        return self.generic_visit(node)


def phrases(text):
    """Return the units of a text.

    Args:
        text: any text.

    Returns:
        {five words in a row: (the same, 1)}.
    """
    words = re.findall(r"\w+", text.casefold())
    runs = (" ".join(words[start : start + 5]) for start in range(len(words) - 4))
    return {run: (run, 1) for run in runs}


def alike(students, known, given, kind):
    """Return the pairs that have more in common than chance explains.

    Args:
        students: {student: units}.
        known: {description: units}, such as the public solution.
        given: units of the notebook as it was handed out.
        kind: "code" or "text".

    Returns:
        A list of (student, the other, share of the shorter one's units, names of common units).
    """
    counts, rows = collections.Counter(unit for units in students.values() for unit in units), []
    pairs = [*itertools.combinations(students, 2), *itertools.product(students, known)]
    for one, two in pairs:
        first, second = students[one], students.get(two, known.get(two))
        mine = 1 + (two in students)
        shared = first.keys() & second.keys() - given.keys()
        usual = {unit for unit in shared if counts[unit] - mine > (len(students) - mine) / 2}
        for left, share in ((usual, SHARE), (set(), SHARE_OF_ALL)):
            size = _size(first, first.keys() - shared | left | given.keys())
            least = min(_size(units, left | given.keys()) for units in (first, second))
            if size >= max(LEAST[kind], share * least):
                names = [name for unit, (name, _) in first.items() if unit in shared - left]
                rows.append((one, two, size / least, names))
                break
    return rows


def _size(units, without):
    return sum(size for unit, (_, size) in units.items() if unit not in without)
