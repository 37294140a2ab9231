"""Every public function has a scannable docstring: one sentence, Args, Returns and Raises.

The description of a tensor contains its shape, such as [B, D].

`python tests/test_docstrings.py mmlkit/heads` lists the problems in that folder.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    path
    for package in ("mmlkit", "mmlcourse")
    for path in (ROOT / package).rglob("*.py")
    if not path.stem.startswith("__")
)
SECTIONS = (
    "Args",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Example",
    "Examples",
    "Note",
    "References",
)
TENSORS = re.compile(
    r"\b(a tensor|logits|hidden states|token ids|(sentence|encoder|per-head|output) vectors?)\b",
    re.I,
)
OVERRIDES = {  # documented by torch and transformers
    *["extra_repr", "state_dict", "load_state_dict", "train", "step", "zero_grad"],
    *["on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"],
}


def sections(text):
    """Return the first paragraph and a dict from section names to their lines."""
    found, name = {"": []}, ""
    for line in text.splitlines():
        if (head := re.fullmatch(r"(\w+):", line)) and head[1] in SECTIONS:
            name = head[1]
        found.setdefault(name, []).append(line)
    first = "\n".join(found[""]).split("\n\n")[0].strip()
    return first, {key: lines[1:] for key, lines in found.items() if key}


def entries(lines):
    """Return the entries of a section, {name: text}."""
    found = {}
    for line in lines:
        if match := re.match(r"    \*{0,2}([\w., *]+?):(?: (.*))?$", line):
            for name in re.findall(r"[\w.]+", match[1]):
                found[name] = match[2] or ""
            last = match[1]
        elif found and line.strip():
            for name in re.findall(r"[\w.]+", last):
                found[name] += " " + line.strip()
    return found


def own_nodes(function):
    """Yield the nodes of a function without the nodes of nested functions."""
    queue = list(function.body)
    while queue:
        node = queue.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            queue += ast.iter_child_nodes(node)


def parameters(function):
    names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [one.arg for one in names if one.arg not in ("self", "cls")] + [
        one.arg
        for one in (function.args.vararg, function.args.kwarg)
        if one and not one.arg.startswith("_")
    ]


def problems(name, node, outer=None):
    """Return a sentence for each missing part of a function, method or class."""
    text = ast.get_docstring(node)
    if not text:
        return [f"{name} has no docstring"] if node.name not in OVERRIDES else []
    first, parts = sections(text)
    found = []
    if (
        not re.match(r"[A-Z`]", first)
        or not first.endswith(".")
        or "\n" in first
        and len(first.splitlines()) > 3
    ):
        found.append(f"{name}: the first paragraph is not one full sentence: {first[:60]!r}")
    if node.name in OVERRIDES:
        return found
    if isinstance(node, ast.ClassDef):
        init = next(
            (
                one
                for one in node.body
                if isinstance(one, ast.FunctionDef) and one.name == "__init__"
            ),
            None,
        )
        fields = [
            one.target.id
            for one in node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        wanted, bodies = (parameters(init), [init]) if init else (fields, [])
        documented = {**entries(parts.get("Args", [])), **entries(parts.get("Attributes", []))}
    else:
        wanted, bodies, documented = parameters(node), [node], entries(parts.get("Args", []))
        values = [
            one
            for one in own_nodes(node)
            if isinstance(one, ast.Return)
            and one.value is not None
            and not (isinstance(one.value, ast.Constant) and one.value.value is None)
        ]
        yields = any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in own_nodes(node))
        property_like = any(
            ast.unparse(one).split(".")[-1] in ("property", "setter") for one in node.decorator_list
        )
        if (
            (values or yields)
            and wanted
            and not property_like
            and not {"Returns", "Yields"} & set(parts)
        ):
            found.append(f"{name}: no Returns section")
    found += [f"{name}: Args does not name {one}" for one in wanted if one not in documented]
    raised = {
        ast.unparse(one.exc.func)
        for body in bodies
        for one in own_nodes(body)
        if isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call)
    }
    found += [
        f"{name}: Raises does not name {one}"
        for one in sorted(raised)
        if one not in entries(parts.get("Raises", []))
    ]
    texts = {**entries(parts.get("Args", [])), "Returns": " ".join(parts.get("Returns", []))}
    found += [
        f"{name}: {one} speaks of {match[0]} without a shape such as [B, D]"
        for one, section_text in texts.items()
        if (match := TENSORS.search(section_text)) and "[" not in section_text
    ]
    return found


def problems_of(path):
    """Return the problems of one module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            found += problems(node.name, node)
            methods = node.body if isinstance(node, ast.ClassDef) else []
            for one in methods:
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                    found += problems(f"{node.name}.{one.name}", one)
    return found


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: ".".join(path.relative_to(ROOT).with_suffix("").parts)
)
def test_public_functions_are_documented(path):
    assert not (found := problems_of(path)), "\n".join(found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x):\n    return x", ["f has no docstring"]),
        (
            'def f(x):\n    """Return x."""\n    return x',
            ["f: no Returns section", "f: Args does not name x"],
        ),
        (
            'def f(x):\n    """Return x.\n\n    Args:\n        x: a number.\n\n'
            '    Returns:\n        The number.\n    """\n    return x',
            [],
        ),
        (
            'def f(x):\n    """x comes back"""\n',
            [
                "f: the first paragraph is not one full sentence: 'x comes back'",
                "f: Args does not name x",
            ],
        ),
        (
            'def f():\n    """Stop."""\n    raise ValueError("no")',
            ["f: Raises does not name ValueError"],
        ),
        (
            'def f(x):\n    """Use x.\n\n    Args:\n        x: a tensor.\n    """',
            ["f: x speaks of a tensor without a shape such as [B, D]"],
        ),
        (
            'def f(x):\n    """Use x.\n\n    Args:\n        x: a tensor,\n'
            '            [B, D].\n    """',
            [],
        ),
        (
            'class C:\n    """A thing."""\n    def __init__(self, a):\n'
            '        raise TypeError("no")',
            ["C: Args does not name a", "C: Raises does not name TypeError"],
        ),
        ("def _f(x):\n    return x", []),
    ],
)
def test_missing_parts_of_a_docstring_are_found(tmp_path, source, expected):
    path = tmp_path / "one.py"
    path.write_text(source)
    assert problems_of(path) == expected


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        for module in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            print(*(f"{module}: {problem}" for problem in problems_of(module)), sep="\n", end="\n")
