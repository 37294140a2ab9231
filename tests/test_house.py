"""The rules of the house: one reading order, light imports, and nothing unsafe or noisy."""

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mmlkit

PACKAGE = Path(mmlkit.__file__).resolve().parent
MODULES = sorted(PACKAGE.glob("*.py"))
# Each module may import only from those before it. | separates the groups in which one reads them.
ORDER = """words folders runtime fast hub profiles tasks metrics published | attention bert pretrained optimizers | files data batching
           | heads multiverse pruning methods san ranking adapters pals | multitask sampling | evaluation dssm pretraining checkpoints steps training huggingface
           | protocol course processes notebooks experiments runs batches | plots plots_claims plots_multitask reports explore
           | checks checks_mtdnn checks_adaptation checks_tasks checks_project machine cli""".replace("|", " ").split()
OUTSIDE = ("__init__", "__main__")
MAY_PRINT = ("cli", "checks", "explore", "notebooks", "batches", "machine")       # what talks to somebody at a terminal
HEAVY = ("datasets", "papermill", "seaborn", "ipywidgets", "transformers", "sklearn", "pandas")


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(source, package="mmlkit"):
    """(line, module) of every import from the package, wherever in the file it stands."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == package:
                    yield node.lineno, alias.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".")
            if node.level:
                base = [package, *(part for part in base if part)]
            if base[0] == package:
                for name in [base[1]] if len(base) > 1 else [alias.name for alias in node.names]:
                    yield node.lineno, name


def breaches(stem, source, order=ORDER):
    """A sentence for every import that goes against the reading order."""
    before = order[:order.index(stem)]
    known = {path.stem for path in MODULES} | set(order)
    return [f"mmlkit/{stem}.py line {line} imports {name!r}, which the reader meets later; {stem} may import from: "
            f"{', '.join(before) or 'nothing'}." for line, name in imports_of(source) if name in known and name not in before]


def test_there_are_modules_to_check():
    assert len(MODULES) >= 20 and len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("source, told", [
    ("import mmlkit.training", 1), ("from mmlkit.training import fit", 1), ("from mmlkit import training", 1),
    ("def f():\n    from .training import fit", 2), ("from . import training", 1), ("from mmlkit.heads import Loss", 1),
    ("from mmlkit.runtime import seeded", None), ("from mmlkit import runtime, bert", None), ("import torch", None)])
def test_the_reader_of_imports_sees_what_breaks_the_order(source, told):
    found = breaches("heads", ast.parse(source))
    assert len(found) == (told is not None)
    if told:
        assert f"mmlkit/heads.py line {told} imports" in found[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_imports_go_one_way(path):
    if path.stem in OUTSIDE:
        return
    assert path.stem in ORDER, f"mmlkit/{path.name} has no place in the reading order of tests/test_house.py: give it one."
    found = breaches(path.stem, tree(path))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_are_safe_and_quiet(path):
    assert not (found := faults(path.stem, tree(path))), "\n".join(f"mmlkit/{path.name} {fault}" for fault in found)


def faults(stem, source):
    """What a library module must not hold: assert, print, pickle, and torch.load of more than tensors."""
    found = []
    for node in ast.walk(source):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Assert):
            found.append(f"line {line}: assert vanishes under python -O; raise an error that says what to do.")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and stem not in MAY_PRINT:
            found.append(f"line {line}: print() in a library module; return the value or use logging.")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            if "weights_only=True" not in [ast.unparse(keyword) for keyword in node.keywords]:
                found.append(f"line {line}: torch.load without weights_only=True runs code from the file.")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            bad = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve"} & {name.split(".")[0] for name in names}
            found += [f"line {line}: imports {name}, which runs code from a file." for name in bad]
            if isinstance(node, ast.ImportFrom) and node.module == "torch" and any(alias.name == "load" for alias in node.names):
                found.append(f"line {line}: write torch.load(..., weights_only=True) in full.")
    return found


@pytest.mark.parametrize("source, count", [
    ("assert x", 1), ("print(x)", 1), ("import pickle", 1), ("from pickle import load", 1),
    ("torch.load(f)", 1), ("from torch import load", 1), ("torch.load(f, weights_only=False)", 1),
    ("torch.load(f, map_location='cpu', weights_only=True)", 0), ("json.load(f)\nx.print()", 0)])
def test_the_reader_of_faults_sees_them(source, count):
    assert len(faults("heads", ast.parse(source))) == count


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_module_says_what_it_is_for(path):
    source = tree(path)
    assert ast.get_docstring(source) or path.stem == "__main__"
    if path.stem in OUTSIDE:
        return
    module = importlib.import_module(f"mmlkit.{path.stem}")
    defined = [node.name for node in source.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    public = [name for name in defined if not name.startswith("_")]
    assert set(module.__all__) <= set(dir(module)) and len(module.__all__) == len(set(module.__all__))
    for name in {*public, *module.__all__}:
        one = getattr(module, name)
        explained = (one.__doc__ or "").strip() or not (inspect.isclass(one) or inspect.isfunction(one))
        assert explained, f"mmlkit.{path.stem}.{name} has no docstring"


def test_every_public_name_exists_and_is_explained():
    assert len(mmlkit.__all__) >= 18 and len(set(mmlkit.__all__)) == len(mmlkit.__all__)
    for name in mmlkit.__all__:
        explained = (getattr(mmlkit, name).__doc__ or "").strip()
        assert explained and not explained.startswith(f"{name}("), f"{name} has no docstring, or the one that dataclass writes"
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        mmlkit.no_such_name     # noqa: B018


def run_python(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent,
                         env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)})
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


USE_ALL = "import mmlkit\nfor name in mmlkit.__all__: getattr(mmlkit, name)\n"


def test_the_package_works_without_the_heavy_libraries():
    run_python(f"import sys\nfor name in {HEAVY}: sys.modules[name] = None\n{USE_ALL}")


def test_importing_the_package_imports_nothing_heavy():
    unwanted = (*HEAVY, "scipy", "matplotlib")
    found = run_python(f"import sys\n{USE_ALL}print(*(name for name in {unwanted} if name in sys.modules))")
    assert found.strip() == ""


def test_help_does_not_wait_for_torch():
    code = "import sys\nsys.modules['torch'] = sys.modules['numpy'] = None\nfrom mmlkit.cli import main\nmain(['--help'])\n"
    assert "usage: mmlkit" in run_python(code)
