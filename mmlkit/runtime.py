"""What this machine can do, and the few settings of torch a run needs.

Notebook 00 shows it. Nothing here changes a global setting for good: `seeded` puts back what it found.
"""

import contextlib
import os
import platform
import sys
from pathlib import Path

import torch

__all__ = ["pick_device", "place", "fastest_precision", "autocast", "seeded", "seed_generators", "describe", "peak_memory", "is_interactive", "replacing"]


def pick_device(name=None):
    """The device to run on: `name` if given, else a GPU when there is one, else the CPU.

    Raises ValueError when a GPU is asked for and there is none.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was asked for, but torch {torch.__version__} sees no CUDA GPU. "
                         "Use device='cpu', or install a CUDA build of torch.")
    return device


def autocast(precision, device):
    """A context in which matrix products run in `precision`: "fp32", "bf16", "fp16", or "auto".

    "auto" is bf16 on a GPU or CPU that has it in hardware, fp16 on an older GPU, fp32 on an older CPU.
    Returns (context manager, needs_scaler): only fp16 needs a gradient scaler.
    """
    precision = fastest_precision(device) if precision == "auto" else precision
    dtypes = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    if precision not in dtypes:
        raise ValueError(f"precision {precision!r} is not one of {['auto', *dtypes]}.")
    if precision == "fp16" and device.type != "cuda":
        raise ValueError(f"precision 'fp16' needs a CUDA GPU, this device is {device.type!r}. Use 'bf16' or 'fp32'.")
    if dtypes[precision] is None:
        return contextlib.nullcontext(), False
    return torch.autocast(device.type, dtype=dtypes[precision]), precision == "fp16"


def fastest_precision(device):
    """What "auto" means on a device: "bf16", "fp16" or "fp32"."""
    if device.type == "cuda":       # a T4 emulates bf16 slowly and still says it is supported, so ask for the hardware
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"
    in_hardware = device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return "bf16" if in_hardware else "fp32"


def place(model, device=None):
    """Move a model to the device to run on.

    Args:
        model: a torch module.
        device: None leaves a model on its GPU, and moves a model on the CPU to a GPU where there is
            one. Anything else is a device, such as "cpu".

    Returns:
        The model itself.
    """
    if device is None and next(model.parameters()).device.type != "cpu":
        return model
    return model.to(pick_device(device))


@contextlib.contextmanager
def seeded(seed, device=None):
    """Draw from `seed` inside; afterwards torch's random state is what it was before.

    Args:
        seed: a whole number.
        device: a torch.device whose generator is seeded beside the CPU's. No other device's generator is touched.
    """
    cpu, other = torch.get_rng_state(), _other_generator(device)
    before = None if other is None else other.get_state()
    try:
        seed_generators(seed, device)
        yield
    finally:
        torch.set_rng_state(cpu)
        if other is not None:
            other.set_state(before)


def seed_generators(seed, device=None):
    """Seed the CPU's generator and that of one device, where torch.manual_seed would reseed every GPU of the machine.

    Args:
        seed: a whole number.
        device: a torch.device, or None for the CPU alone.
    """
    torch.default_generator.manual_seed(seed)
    other = _other_generator(device)
    if other is not None:
        other.manual_seed(seed)


def _other_generator(device):
    """The default generator of a GPU, or None for the CPU."""
    if device is None or device.type not in ("cuda", "mps"):
        return None
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    torch.cuda.init()
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def describe(device=None):
    """A dict of plain values that says on what something ran; goes into every file of results/."""
    from importlib.metadata import PackageNotFoundError, version

    import mmlkit

    device = pick_device(device)
    versions = {"python": platform.python_version(), "mmlkit": mmlkit.__version__}
    for package in ("torch", "transformers", "datasets", "scikit-learn", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": device.type, "hardware": hardware, "threads": torch.get_num_threads(), "versions": versions}


def peak_memory():
    """The most memory in MB that this process has used: on the GPU when there is one, else in main memory; None on Windows."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 2**20)
    try:
        import resource
    except ImportError:
        return None
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))


def is_interactive():
    """Whether somebody watches: a terminal, or a notebook in a live front end (not papermill, nbval or CI)."""
    if os.environ.get("MMLKIT_HEADLESS") or os.environ.get("CI"):
        return False
    if "ipykernel" in sys.modules:      # JupyterLab names the session; Colab and VS Code leave these traces
        return bool(os.environ.get("JPY_SESSION_NAME") or os.environ.get("VSCODE_PID") or "google.colab" in sys.modules)
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path beside `path` and renames it to `path` on success, so that no file is ever half-written."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:        # a full disk names no file, and nobody knows the temporary one
        if error.errno is not None and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
