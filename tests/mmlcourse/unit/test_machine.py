"""Facts about the machine: its processor and its capacity."""

import os

import pytest
import torch

from mmlcourse import machine


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC 9R14 \nmodel name\t: other\n", "AMD EPYC 9R14"),
        ("processor\t: 0\nCPU part\t: 0xd4f\n", "named elsewhere"),  # as on ARM
        (None, "named elsewhere"),  # no such file, as on macOS and Windows
    ],
)
def test_the_hardware_is_the_model_of_the_processor(monkeypatch, tmp_path, text, found):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / path.removeprefix("/proc/"))
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "named elsewhere")
    instructions = torch.backends.cpu.get_cpu_capability()
    assert machine.describe("cpu")["hardware"] == f"{found}, {instructions}"


def test_the_capacity_of_this_machine():
    found = machine.capacity()
    assert 1 <= found["cores"] <= os.cpu_count() and found["memory_gb"] > 0.5
