"""On a busy machine, OpenMP threads wait passively, unless the user has set OMP_WAIT_POLICY.

The variable must be set before torch starts, so each test uses a separate process.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
POLICIES = [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")]
pytestmark = pytest.mark.parametrize(
    ("user_policy", "expected"), POLICIES, ids=["unset", "set by the user"]
)


def environment(user_policy):
    """Return this process's environment with OMP_WAIT_POLICY as the user has set it."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")
    }
    return {
        **clean,
        "PYTHONPATH": str(ROOT),
        **({"OMP_WAIT_POLICY": user_policy} if user_policy else {}),
    }


def run(command, user_policy, **options):
    process = subprocess.run(
        command, env=environment(user_policy), capture_output=True, text=True, **options
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_the_package_sets_the_policy_before_torch(user_policy, expected):
    code = "import sys, mmlkit, os; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    assert run([sys.executable, "-c", code], user_policy) == f"{expected} False\n"


@pytest.mark.slow
def test_torch_reads_the_policy(user_policy, expected):
    """GNU OpenMP prints how often a waiting thread polls before it sleeps: 0 or 3e10 times."""
    code = "import os; os.environ['OMP_DISPLAY_ENV'] = 'verbose'; import mmlkit.bert"
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment(user_policy), capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    found = re.findall(r"GOMP_SPINCOUNT\s*=\s*'(\w+)'", process.stderr)
    if not found:
        pytest.skip("this OpenMP does not say how long its threads spin")
    assert set(found) == {{"PASSIVE": "0", "ACTIVE": "30000000000"}[expected]}


@pytest.mark.slow
def test_torch_still_works_if_imported_first(user_policy, expected):
    code = (
        "import torch, mmlkit, os; from mmlkit.bert.model import BertModel; "
        "print(os.environ['OMP_WAIT_POLICY'], int(torch.ones(3).sum()))"
    )
    assert run([sys.executable, "-c", code], user_policy) == f"{expected} 3\n"


@pytest.mark.slow
def test_the_tests_run_with_the_policy(user_policy, expected, tmp_path):
    for name in ("conftest.py", "tiny.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / name)
    code = (
        f"import os\n\n\ndef test_it():\n    assert os.environ['OMP_WAIT_POLICY'] == {expected!r}\n"
    )
    (tmp_path / "test_asks.py").write_text(code)
    assert "1 passed" in run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_asks.py"],
        user_policy,
        cwd=tmp_path,
    )
    loaded = [
        node.names[0].name if isinstance(node, ast.Import) else node.module
        for node in ast.parse((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert loaded.index("mmlkit") < loaded.index("numpy") < loaded.index("torch")


def test_make_passes_the_policy_on(user_policy, expected, tmp_path):
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    (tmp_path / "ask.mk").write_text(
        f"include {ROOT / 'Makefile'}\nask:\n\t@echo $$OMP_WAIT_POLICY\n"
    )
    assert (
        run(["make", "--no-print-directory", "-f", "ask.mk", "ask"], user_policy, cwd=tmp_path)
        == f"{expected}\n"
    )


def test_continuous_integration_passes_the_policy_on(user_policy, expected, tmp_path):
    """Run the CI script with replacements for make and timeout, and check its counts."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name, text in {
        "timeout": 'shift\nexec "$@"',
        "make": 'echo "$OMP_WAIT_POLICY"\necho "3 passed, 1 skipped in 2.0s"\necho "= 2 '
        'passed in 1s ="\necho "a test that printed 7 passed"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = environment(user_policy)
    process = subprocess.run(
        ["bash", ".ci/run"],
        cwd=tmp_path,
        env={**env, "PATH": f"{tmp_path}{os.pathsep}{env['PATH']}"},
        capture_output=True,
        text=True,
    )
    lines = process.stdout.splitlines()
    assert process.returncode == 0 and expected in lines and lines[-1] == "5 passed, 0 failed", (
        process.stdout + process.stderr
    )


def test_every_notebook_imports_the_package_before_torch(user_policy, expected):
    masters = sorted((ROOT / "notebooks" / "src").glob("[0-9]*.py"))
    assert len(masters) >= 11
    for master in masters:
        imports = re.findall(r"^ *(?:import|from) (\w+)", master.read_text(encoding="utf-8"), re.M)
        assert imports[0] == "mmlkit", master.name


@pytest.mark.notebook
def test_a_kernel_of_mmlkit_run_has_the_policy(user_policy, expected, tmp_path):
    import nbformat

    cells = [
        nbformat.v4.new_code_cell("output_dir = '.'", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(
            "import os; open('told', 'w').write(os.environ['OMP_WAIT_POLICY'])"
        ),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}),
        tmp_path / "asks.ipynb",
    )
    run([sys.executable, "-m", "mmlcourse", "run", "asks.ipynb"], user_policy, cwd=tmp_path)
    assert (tmp_path / "told").read_text() == expected


@pytest.mark.notebook
def test_a_run_of_a_batch_has_the_policy(user_policy, expected, tmp_path):
    pytest.importorskip("snakemake", reason="pip install 'mmlkit[batch]'")
    import nbformat

    cells = [
        nbformat.v4.new_code_cell(
            "profile = 'fast'\nitem = 0\nresult_file = None", metadata={"tags": ["parameters"]}
        ),
        nbformat.v4.new_code_cell(
            "import json, os, "
            "pathlib\npathlib.Path('told').write_text(os.environ['OMP_WAIT_POLICY'])\n"
            "pathlib.Path(result_file).write_text(json.dumps({'scores': [], 'sources': {}}))"
        ),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}),
        tmp_path / "asks.ipynb",
    )
    (tmp_path / "asks.toml").write_text(
        'title = "It asks"\nnotebook = "asks.ipynb"\n[grid]\nitem = [0]\n[fast]\nlimit = 60\n'
    )
    command = [
        sys.executable,
        "-m",
        "mmlkit",
        "reproduce",
        "asks.toml",
        "--out",
        "out",
        "--cores",
        "1",
    ]
    subprocess.run(
        command, env=environment(user_policy), cwd=tmp_path, capture_output=True, text=True
    )
    assert (tmp_path / "told").read_text() == expected
    assert (
        json.loads((tmp_path / "out" / "results" / "0.json").read_text())["parameters"]["item"] == 0
    )
