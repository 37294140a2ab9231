"""Facts about this machine, for the records and for advice. Notebooks 00 to 12 print them."""

import contextlib
import os
import platform
import re
import sys
from pathlib import Path

__all__ = ["COLAB_GB", "capacity", "describe", "peak_memory", "usable_cores"]

COLAB_GB = 14  # GPU memory for the profile colab; a T4 shows 14.7


def describe(device=None):
    """Return device, hardware, threads and versions of this process.

    Args:
        device: see `pick_device`.

    Returns:
        A dict of plain values, which every file of results/ holds. "hardware" is the model of the
        GPU, or that of the processor and its vector instructions, such as "AMD EPYC, AVX2".
    """
    from importlib.metadata import PackageNotFoundError, version

    import torch

    import mmlkit
    from mmlkit.runtime import pick_device

    device = pick_device(device)
    versions = {"python": platform.python_version(), "mmlkit": mmlkit.__version__}
    versions["mini_data"] = mmlkit.MINI_EDITION
    for package in ("torch", "transformers", "datasets", "scikit-learn", "numpy"):
        versions[package] = None
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    gpu = device.type == "cuda" and torch.cuda.get_device_name(device)
    return {
        "device": device.type,
        "hardware": gpu or f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "versions": versions,
    }


def _processor():
    """Return the model name of the processor; `platform` knows only "x86_64" on Linux."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^model name\s*:(.*\S)", text, re.M):
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()


def usable_cores():
    """Return how many CPU cores this process may use."""
    known = hasattr(os, "sched_getaffinity")  # on Linux
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def capacity():
    """Return what this machine has: processor cores, main memory and GPU.

    Returns:
        A dict: cores (those that this process may use), memory_gb, gpu (its name, or None)
        and gpu_gb (0 without one).
    """
    import psutil
    import torch

    memory = round(psutil.virtual_memory().total / 2**30, 1)
    gpu, gpu_gb = None, 0
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_name()
        gpu_gb = round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1)
    return {"cores": usable_cores(), "memory_gb": memory, "gpu": gpu, "gpu_gb": gpu_gb}


def peak_memory():
    """Return the largest memory that this process has used, in MB; None on Windows.

    It is GPU memory where the process has used a GPU, else main memory.
    """
    import torch

    devices = range(torch.cuda.device_count())
    if used := max(map(torch.cuda.max_memory_allocated, devices), default=0):
        return round(used / 2**20)
    try:
        import resource
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(used / (2**20 if sys.platform == "darwin" else 2**10))
