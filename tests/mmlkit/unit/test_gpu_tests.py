"""The tests that need a GPU run on a CPU, too, so that the first GPU meets no broken test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


def run_gpu_tests(*arguments, **environment):
    command = [sys.executable, "-m", "pytest", "-m", "gpu and not notebook", "-rs", *arguments]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider", ROOT / "tests" / "gpu"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    clean.pop("MMLKIT_GPU_TESTS_DEVICE", None)
    run = subprocess.run(
        command, env={**clean, **environment}, cwd=ROOT, capture_output=True, text=True
    )
    return run.returncode, run.stdout


def test_the_bodies_pass_on_a_cpu():
    status, output = run_gpu_tests(MMLKIT_GPU_TESTS_DEVICE="cpu")
    assert status == 0, output
    assert output.count("SKIPPED") == 1 and "the memory of a CPU is not limited" in output


def test_without_a_gpu_each_test_says_why_it_is_skipped():
    status, output = run_gpu_tests(CUDA_VISIBLE_DEVICES="")
    assert status == 0, output
    reasons = re.findall(r"SKIPPED \[\d+\] \S+ (.*)", output)
    assert reasons and all(reason.startswith("no CUDA GPU; MMLKIT_") for reason in reasons)
