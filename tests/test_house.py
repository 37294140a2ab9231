"""Rules for the modules: one import order, light imports, and no unsafe or noisy code."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import write_tiny_bert

import mmlkit

ROOT = Path(mmlkit.__file__).resolve().parents[1]
PACKAGES = ("mmlkit", "mmlcourse")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path):
    """mmlkit/heads/linear.py gives "mmlkit.heads.linear", and an __init__.py its package's name."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


NAMES = {name_of(path): path for path in MODULES if path.name != "__main__.py"}
TREES = {name: tree(path) for name, path in NAMES.items()}
# A file or subpackage may import only from the entries before it, and both __init__.py of packages.
ORDER = [
    f"{package}.{name}"
    for package, names in {
        "mmlkit": "runtime files hub data bert heads pals training huggingface",
        "mmlcourse": "text machine shipped studies lessons batch grading cli",
    }.items()
    for name in names.split()
]
MAY_PRINT = (  # modules that print for a user
    "mmlcourse.cli.main",
    "mmlcourse.cli.machine",
    "mmlcourse.lessons.opening",
    "mmlcourse.shipped",
    "mmlcourse.lessons.plots.widgets",
    "mmlcourse.studies.lessons",
    "mmlcourse.lessons.checks.compare",
    "mmlcourse.batch.notebooks",
    "mmlcourse.batch.batches",
    "mmlcourse.grading.assignment",
)
HEAVY = (
    *("datasets", "papermill", "snakemake", "seaborn", "matplotlib", "ipywidgets", "mmlcourse"),
    *("transformers", "sklearn", "scipy", "pandas"),
)


def imports_of(source, modules):
    """Yield (line, module) of every import from the packages, such as "mmlkit.data.tasks".

    Imports inside functions are included.
    """
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide from the reader where a name comes from"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name in modules else node.module for name in inner]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name.split(".")[0] in PACKAGES)


def place(name):
    """Return the entry of ORDER for a module; the packages themselves have none."""
    return ".".join(name.split(".")[:2])


def order_violations(name, source, modules):
    """Return a sentence for every import that breaks the order of the subpackages."""
    here = place(name)
    before = ["mmlkit", *ORDER[: ORDER.index(here) + 1]] if here in ORDER else ["mmlkit"]
    before += ["mmlcourse"] if name.startswith("mmlcourse") else []
    return [
        f"{name} line {line} imports {found}, which comes later; {here} may import from: "
        f"{', '.join(before)}."
        for line, found in imports_of(source, modules)
        if place(found) not in before
    ]


def cycle(graph):
    """Return the modules of one import cycle, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        found = next(filter(None, map(visit, graph.get(name, ()))), None)
        done.add(path.pop())
        return found

    return next(filter(None, map(visit, graph)), None)


def test_there_are_modules_to_check():
    assert len(NAMES) >= 45 and len(ORDER) == len(set(ORDER)) <= 18
    assert {place(name) for name in NAMES} == {*ORDER, *PACKAGES}, (
        "a file or subpackage without a place in ORDER"
    )


@pytest.mark.parametrize(
    "source, expected_line",
    [
        ("import mmlkit.training.loop", 1),
        ("from mmlkit import training", 1),
        ("def f():\n    from mmlkit.training.loop import fit", 2),
        ("import mmlcourse", 1),
        ("from mmlkit import runtime, bert", None),
        ("from mmlkit.heads.linear import Loss", None),
    ],
)
def test_imports_against_the_order_are_found(source, expected_line):
    found = order_violations("mmlkit.heads.multiverse", ast.parse(source), {*NAMES, *ORDER})
    assert len(found) == (expected_line is not None)
    if expected_line:
        assert f"mmlkit.heads.multiverse line {expected_line} imports" in found[0]


def test_imports_follow_the_order():
    """So mmlkit never imports mmlcourse."""
    every = {*NAMES, *ORDER}
    found = [one for name in NAMES for one in order_violations(name, TREES[name], every)]
    assert not found, "\n".join(found)


def test_there_is_no_import_cycle():
    assert cycle({"a": ["b", "c"], "b": ["c"], "c": ["d"], "d": ["b"]}) == ["b", "c", "d", "b"]
    assert cycle({"a": ["b"], "b": []}) is None
    graph = {
        name: [
            found
            for _, found in imports_of(source, {*NAMES, *ORDER})
            if found in NAMES and found != name
        ]
        for name, source in TREES.items()
    }
    assert sum(map(len, graph.values())) > 60 and cycle(graph) is None, cycle(graph)


def test_subpackages_describe_their_purpose():
    """Each states its purpose, its modules, the notebook that builds it, and what is elsewhere."""
    for name, path in NAMES.items():
        if path.name == "__init__.py" and name not in PACKAGES:
            text = ast.get_docstring(TREES[name])
            modules = [one.stem for one in path.parent.glob("[a-z]*.py")]
            modules += [one.parent.name for one in path.parent.glob("*/__init__.py")]
            assert sorted(re.findall(r"^    (\w+) +\S", text, re.M)) == sorted(modules), name
            elsewhere = r"do(es)? not belong here|nothing from here|Nothing here|only draws"
            assert re.search(r"[Nn]otebook", text) and re.search(elsewhere, text), name


def own_lines(function):
    """Return the number of lines of a function without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_and_lines_fit_a_screen():
    long = [
        f"{name} line {node.lineno}: {node.name} has {own_lines(node)} lines, expected at most 60"
        for name, source in TREES.items()
        for node in ast.walk(source)
        if isinstance(node, ast.FunctionDef) and own_lines(node) > 60
    ]
    for name, path in NAMES.items():
        lines = enumerate(path.read_text(encoding="utf-8").split("\n"), start=1)
        long += [f"{name} line {i}: over 100 columns" for i, line in lines if len(line) > 100]
    assert not long, "\n".join(long)


def test_modules_are_safe_and_quiet():
    found = [f"{name}: {fault}" for name in NAMES for fault in faults(name, TREES[name])]
    assert not found, "\n".join(found)


def faults(name, source):
    """Return the forbidden constructs of a library module.

    These are assert, print, pickle, and torch.load without weights_only=True.
    """
    found = []
    for node in ast.walk(source):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Assert):
            found.append(f"line {line}: assert vanishes under python -O; raise an error.")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" and name not in MAY_PRINT:
                found.append(f"line {line}: print() in a library module; return the value.")
            if called == "torch.load" and "weights_only=True" not in ast.unparse(node):
                found.append(f"line {line}: torch.load without weights_only=True runs code.")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            text = ast.unparse(node)
            if re.match(r"(import|from) (pickle|cPickle|dill|joblib|cloudpickle|shelve)\b", text):
                found.append(f"line {line}: {text} runs code from a file.")
            if re.match(r"from torch import .*\bload\b", text):
                found.append(f"line {line}: write torch.load(..., weights_only=True) in full.")
    return found


@pytest.mark.parametrize(
    "source, count",
    [
        ("assert x", 1),
        ("print(x)", 1),
        ("import pickle", 1),
        ("from pickle import load", 1),
        ("torch.load(f)", 1),
        ("from torch import load", 1),
        ("torch.load(f, map_location='cpu', weights_only=True)", 0),
        ("json.load(f)\nx.print()", 0),
    ],
)
def test_faults_are_found(source, count):
    assert len(faults("heads", ast.parse(source))) == count


def test_every_name_in_all_exists():
    for name, source in TREES.items():
        assert ast.get_docstring(source), f"{name} has no docstring"
        module = importlib.import_module(name)
        public = getattr(module, "__all__", [])
        assert len({*public}) == len(public) and all(hasattr(module, one) for one in public), name
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        mmlkit.no_such_name  # noqa: B018


def run_python(code, **environment):
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


# Of all public names, only `export_classifier` imports transformers, to write its format.
USE_ALL = (
    "import mmlkit\nfor name in set(mmlkit.__all__) - {'export_classifier'}: getattr(mmlkit, "
    "name)\n"
)


@pytest.mark.slow
def test_the_package_works_without_the_heavy_libraries():
    """So `import mmlkit` takes little more time than `import torch`."""
    run_python(f"import sys\nfor name in {HEAVY}: sys.modules[name] = None\n{USE_ALL}")


@pytest.mark.parametrize("policy, expected", [("", "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_the_package_sets_the_wait_policy_of_threads_before_torch(policy, expected):
    """torch reads it once, when it starts. What the user has set stays."""
    code = "import os, sys\nif not os.environ['OMP_WAIT_POLICY']: del os.environ['OMP_WAIT_POLICY']"
    code += "\nimport mmlkit\nprint(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    assert run_python(code, OMP_WAIT_POLICY=policy) == f"{expected} False\n"


def test_the_processes_of_a_run_import_neither_torch_nor_a_grammar(tmp_path):
    """Each would take a second or two in every run of a batch."""
    code = (
        "import sys\nfrom mmlcourse.batch.processes import without_iri_grammar\n"
        "without_iri_grammar()\nfrom papermill.cli import papermill\n"
        "from mmlcourse.batch import experiments, runs\nexperiments.load_experiment('mml-tables')\n"
        f"runs.write_json({str(tmp_path / 'one.json')!r}, [1])\n"
        "print(*(name for name in ('jsonschema', 'lark', 'torch') if name in sys.modules))"
    )
    assert run_python(code).strip() == "jsonschema"
    assert (tmp_path / "one.json").read_text() == "[1]\n"


@pytest.mark.slow
def test_a_loaded_model_predicts_without_a_compiler_or_the_models_of_transformers(tmp_path):
    """Their imports take as long as all others together."""
    folder = write_tiny_bert(tmp_path / "tiny")
    code = (
        "import sys\nfrom mmlkit import LinearHead, MultitaskModel, load_pretrained, predict\n"
        f"encoder, _ = load_pretrained({str(folder)!r})\n"
        "model = MultitaskModel(encoder, {'rte': LinearHead(encoder.config.hidden_size, 2)})\n"
        "print(len(predict(model, [('a', 'b')], task='rte')), "
        "*(name for name in ('transformers.modeling_utils', 'torch._dynamo') if name in "
        "sys.modules))"
    )
    assert run_python(code).strip() == "1"


def test_help_does_not_wait_for_torch():
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['numpy'] = None\nfrom mmlcourse.cli.main "
        "import main\nmain(['--help'])\n"
    )
    assert "usage: mmlkit" in run_python(code)
