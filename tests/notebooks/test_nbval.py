"""nbval executes the committed notebooks 00 and 01, and compares the outputs that they mark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.notebook
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["00_start_here", "01_minbert"])
def test_marked_outputs_equal_the_committed_ones(name):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    marked = path.read_text(encoding="utf-8").count("# NBVAL_CHECK_OUTPUT")
    limits = ["--nbval-cell-timeout=1200", "--nbval-kernel-startup-timeout=600", "--timeout=1800"]
    # This test's own pytest passes nothing on.
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax", *limits, path],
        cwd=ROOT,
        env={"OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and marked >= 1, run.stdout[-5000:]
