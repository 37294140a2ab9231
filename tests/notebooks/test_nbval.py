"""nbval executes a committed notebook on the profile fast, and compares the outputs it marks.

A last cell draws its pictures again.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .sliders import with_slider_moves

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.notebook
def test_marked_outputs_equal_the_committed_ones(tmp_path):
    path = ROOT / "notebooks" / "00_start_here.ipynb"
    assert path.read_text(encoding="utf-8").count("nbval-check-output") >= 1
    copy = tmp_path / "checkout" / "notebooks" / path.name
    with_slider_moves(path, copy)
    limits = ["--nbval-cell-timeout=500", "--nbval-kernel-startup-timeout=300"]
    # This test's own pytest passes nothing on.
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax", *limits, copy],
        cwd=ROOT,
        env={"OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:]
