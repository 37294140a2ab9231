"""What the grader runs of a notebook, and what it leaves out. Nothing is executed here.

A cell is read as Jupyter reads it, with IPython's own transformer for `%`, `!` and `?`. Of a cell
with a mistake only the statement with the mistake is lost.
"""

import ast
import builtins
import contextlib
import re
import symtable
import sys
from typing import NamedTuple

from IPython.core.inputtransformer2 import TransformerManager

__all__ = ["Program", "Statement"]

DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
RUN = (*IMPORTS, *DEFINES, *ASSIGNS)
SKIPPED = "the grader skips this cell"  # in the first line of a cell
RUN_HERE = ("time", "capture", "prun")  # cell magics that run their cell in the notebook
INSTALLED = {*sys.stdlib_module_names, "torch", "numpy"}
LONGEST = 200_000  # characters of a notebook's code; IPython's transformer may be slow
CONTINUES = re.compile(r"[\s)\]}#]|(else|elif|except|finally)\b|$")  # no statement begins so


class Statement(NamedTuple):
    """Hold a statement of a notebook.

    Attributes:
        cell: the number of its cell, from 1.
        node: the syntax tree.
        source: the statement in Python.
        binds: the names to which it gives a value.
        reads: the names of others that it reads, also in a function that it defines.
    """

    cell: int
    node: ast.stmt
    source: str
    binds: set
    reads: set


class Program:
    """Hold the statements of a notebook that are run.

    These are imports, functions, classes and assignments, and every other statement that gives a
    value to a name which an answer needs, such as a constant under `if`.

    Args:
        cells: dicts with cell_type and source, texts.
        answers: the names of the functions and classes that answer the questions.

    Attributes:
        statements: a list of Statement.
        faults: a sentence about every cell that cannot be read whole.
    """

    def __init__(self, cells, answers):
        self.faults, self._cells, self._left, found = [], cells, {}, []
        short = sum(len(one["source"]) for one in cells if one["cell_type"] == "code") <= LONGEST
        for number, cell in enumerate(cells, start=1):
            nodes, left = _read(cell, short)
            if left:
                self._left[number] = left
            if "has a syntax error" in left:
                self.faults.append(f"cell {number} {left}")
            for node in nodes:
                with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    found.append(_statement(number, node))  # return, or a thousand brackets
        self._known = _bindings(found)
        self._needed = {id(one) for one in self._behind(answers)}
        self.statements = [
            one for one in found if isinstance(one.node, RUN) or id(one) in self._needed
        ]

    def job(self):
        """Return the statements for `runner.run`.

        Returns:
            A list of (number of the cell, source, whether an error in it is worth a note).
        """
        noted = lambda one: not isinstance(one.node, ASSIGNS) or id(one) in self._needed
        return [(one.cell, one.source, noted(one)) for one in self.statements]

    def answer(self, name, others):
        """Return the tree of an answer, with the imports and helpers that it names.

        A name that does the exercise is worth nothing in a helper too, and under another name.

        Args:
            name: of the student's function or class.
            others: names of the answers to all questions, which are judged by themselves.

        Returns:
            A syntax tree.
        """
        nodes = [one.node for one in self._behind([name], others - {name})]
        plain = lambda node: isinstance(node, ast.Import) and not node.names[0].asname
        return ast.Module([node for node in nodes if not plain(node)], [])  # it uses nothing yet

    def lost(self, name):
        """Return what an answer needs and does not find when it is graded.

        Args:
            name: of the student's function or class.

        Returns:
            A list of sentences, which name the cells that may have it.
        """
        found, known = self._behind([name]), {*self._known, *dir(builtins), "get_ipython"}
        read = {name}.union(*(one.reads for one in found))
        missing = [] if "*" in known else sorted(read - known)
        packages = {
            (getattr(node, "module", None) or node.names[0].name).split(".")[0]
            for one in found
            if not isinstance(one.node, ast.Try)  # it goes on without the package
            for node in ast.walk(one.node)
            if isinstance(node, IMPORTS)
        }
        absent = [f"The grader has no package {one}." for one in sorted(packages - INSTALLED)]
        return [
            f"{one} is not defined for the grader{self._places(one)}." for one in missing
        ] + absent

    def _behind(self, names, without=()):
        """Return the statements that give names their values, and those behind them."""
        found, queue, seen = {}, [*names], {*without}
        while queue:
            name = queue.pop()
            for one in () if name in seen else self._known.get(name, ()):
                if id(one) not in found:
                    found[id(one)] = one
                    queue += one.reads
            seen.add(name)
        return [*found.values()]

    def _places(self, name):
        """Return the cells that name something and were not read whole, as a clause."""
        places = [
            f"cell {number} has it and {left}"
            for number, left in self._left.items()
            if re.search(rf"(def|class) +{name}\b|\b{name} *=", self._cells[number - 1]["source"])
        ]
        return "".join(f"; {place}" for place in places[:3])


# ---- reading a cell ----


def _read(cell, short):
    """Return the statements of a cell, imports one name at a time, and what was left out, or ""."""
    lines, kind = cell["source"].splitlines(), cell["cell_type"]
    if kind != "code":
        return [], "is Markdown" if kind == "markdown" else "is no code cell"
    if lines and SKIPPED in lines[0]:
        return [], "is skipped, as its first line says"
    for number, line in enumerate(lines):
        if not (magic := re.match(r"%%(\w+)", line)):
            break
        if magic[1] not in RUN_HERE:
            return [], f"begins with {magic[0]}"
        lines[number] = "pass"
    nodes, left = _statements(lines)
    if left and short:  # Python's own lines may begin with %
        with contextlib.suppress(SyntaxError, RuntimeError):
            lines = TransformerManager().transform_cell("\n".join(lines)).splitlines()
            nodes, left = _statements(lines)
    return [one for node in nodes for one in _single(node)], left


def _statements(lines):
    """Return the statements that can be read, and where the first of the others is, or ""."""
    nodes, left, todo = [], "", [(0, len(lines))]
    for _ in range(20):  # each turn reads a piece, or takes a bad statement out of it
        if not todo:
            return nodes, left
        start, end = todo.pop()
        try:
            nodes += ast.parse("\n".join(lines[start:end])).body
            continue
        except SyntaxError as error:
            opened = re.search(r"on line (\d+)$", error.msg)  # "expected an indented block after"
            line, why = start + int(opened[1] if opened else error.lineno or 1), error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            line, why = start + 1, type(error).__name__
        left = left or f"has a syntax error in line {line} ({why})"
        begins = [i for i in range(start, end) if not CONTINUES.match(lines[i])]
        bad = max([i for i in begins if i < line], default=start)
        todo += [(min([i for i in begins if i > bad], default=end), end), (start, bad)]
    return nodes, left


def _single(node):
    """Return an import as one statement per name, so that a refused one stops no other."""
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    return [node]


# ---- names ----


def _statement(cell, node):
    """Return the Statement of a syntax tree."""
    source, reads = ast.unparse(node), set()
    tables = [symtable.symtable(source, "statement", "exec")]
    symbols = tables[0].get_symbols()
    binds = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    for table in tables:
        tables += table.get_children()
        outer = [s for s in table.get_symbols() if s.is_global() or table.get_type() == "module"]
        reads |= {one.get_name() for one in outer if one.is_referenced()}
    star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    return Statement(cell, node, source, binds | {"*"} if star else binds, reads)


def _bindings(statements):
    """Return {name: the statements that give it the value it has at the end}."""
    known = {}
    for one in statements:
        alone = isinstance(one.node, (*IMPORTS, *DEFINES))  # the older value is forgotten
        for name in one.binds:
            if alone or (isinstance(one.node, ast.Assign) and name not in one.reads):
                known[name] = [one]
            else:
                known.setdefault(name, []).append(one)
        for name in _changed(one.node):
            before = known.setdefault(name, [])
            if not (before and isinstance(before[0].node, IMPORTS)):  # such as plt.show()
                before.append(one)
    return known


def _changed(node):
    """Return the names whose values a statement changes: table[0] = 1, table.append(1)."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            one = one.value.func
        elif isinstance(getattr(one, "ctx", None), (ast.Load, type(None))):
            continue
        inside = None
        while isinstance(one, (ast.Attribute, ast.Subscript)):
            one = inside = one.value
        found.add(getattr(inside, "id", None))
    return found
