"""The device of the tests that need a GPU, and the file of their measurements."""

import json
import os
from pathlib import Path

import pytest
import torch

from mmlcourse.machine import describe
from mmlkit import runtime
from mmlkit.files import write_file

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(os.environ.get("MMLKIT_GPU_RECORDS", ROOT / "results"))


@pytest.fixture(scope="session")
def device():
    """Return the GPU. MMLKIT_GPU_TESTS_DEVICE=cpu runs the bodies of the tests on a CPU instead."""
    name = os.environ.get("MMLKIT_GPU_TESTS_DEVICE", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA GPU; MMLKIT_GPU_TESTS_DEVICE=cpu tries these tests on a CPU")
    return torch.device(name)


@pytest.fixture(autouse=True)
def half_precision(device, monkeypatch):
    """Let a CPU that stands in for a GPU compute in fp16, too."""
    monkeypatch.setattr(runtime, "FP16_DEVICES", ("cuda", device.type))


@pytest.fixture
def exact_products(monkeypatch):
    """Leave TF32 off, as it is by default, in our training step and predictions, too."""
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)


@pytest.fixture
def record(device, tmp_path):
    """Return a function that writes measurements to results/; those of a CPU are not kept."""

    def write(name, **values):
        folder = RESULTS if device.type == "cuda" else tmp_path
        text = json.dumps({**values, **describe(device)}, indent=2, allow_nan=False)
        write_file(folder / f"{name}.json", text + "\n")

    return write
