"""The device, its fastest precision, and random seeds.

Notebook 00 shows it. No global setting is changed permanently: `seeded` restores the
random state.
"""

import contextlib
import os
import signal
import sys
import threading
import weakref

import torch

__all__ = [
    "autocast",
    "delayed_interrupt",
    "fastest_precision",
    "is_interactive",
    "pick_device",
    "place",
    "random_state",
    "seed_generators",
    "seeded",
    "set_random_state",
    "turn",
]

_SEEDED = threading.RLock()  # torch's generators are global: runs in threads take turns
_TURNS = weakref.WeakKeyDictionary()  # {module: its lock}; a copy of a module has another
FP16_DEVICES = ("cuda",)  # bf16 is at least as fast elsewhere; tests add the CPU


def pick_device(name=None):
    """Return the device to run on.

    Args:
        name: a device such as "cpu", "cuda:1" or "mps"; None for a GPU where there is one, else
            the CPU. Processes that torchrun started have a GPU each, as far as there are enough.

    Returns:
        A torch.device.
    """
    if name is None:
        mps = torch.backends.mps.is_available()
        name = _own_gpu() if torch.cuda.is_available() else "mps" if mps else "cpu"
    return torch.device(name)


def _own_gpu():
    """Return "cuda", or the GPU of this process where torchrun started several."""
    if int(os.environ.get("WORLD_SIZE", 1)) < 2 or "LOCAL_RANK" not in os.environ:
        return "cuda"
    return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"


def fastest_precision(device):
    """Return the precision that "auto" means on a device.

    Args:
        device: a torch.device or its name.

    Returns:
        "bf16" where the hardware multiplies it (GPUs from Ampere on, CPUs with AVX-512 BF16 or
        AMX), "fp16" on older CUDA GPUs, "fp32" otherwise.
    """
    device = torch.device(device)
    if device.type == "cuda":  # a T4 says that it supports bf16, but emulates it slowly
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    supported = any(getattr(torch.cpu, name, bool)() for name in names)
    return "bf16" if device.type == "cpu" and supported else "fp32"


def place(model, device=None):
    """Move a model to the device to run on.

    Args:
        model: a torch module.
        device: None leaves a model on its GPU, and moves a model on the CPU to a GPU where there is
            one. A part on the CPU, such as a new head, follows the part on a GPU. Anything else is
            a device, such as "cpu".

    Returns:
        The model itself.
    """
    if device is None:
        devices = [parameter.device for parameter in model.parameters()]
        away = [one for one in devices if one.type != "cpu"]
        if len(away) == len(devices):
            return model
        device = away[0] if away else None
    return model.to(pick_device(device))


def autocast(precision, device):
    """Return a context in which matrix products run in a precision.

    Args:
        precision: "fp32", "bf16", "fp16", or "auto" for `fastest_precision`. In `train_step` and
            predictions, products of fp32 use TF32 on a GPU.
        device: a torch.device or its name.

    Returns:
        (context manager, needs_scaler). Only fp16 needs a gradient scaler.

    Raises:
        KeyError: the precision is another word.
        ValueError: the precision is fp16 on a device other than CUDA, or the device is "meta".

    Example::

        context, needs_scaler = autocast("auto", pick_device())
        scaler = torch.amp.GradScaler(enabled=needs_scaler)
        with context:
            loss = model.loss(batch).total
    """
    if torch.device(device).type == "meta":
        raise ValueError("parameters on the device 'meta' have no values: load the weights.")
    precision = fastest_precision(device) if precision == "auto" else precision
    if precision == "fp32":
        return contextlib.nullcontext(), False
    kind, dtype = torch.device(device).type, {"bf16": torch.bfloat16, "fp16": torch.float16}
    if precision == "fp16" and kind not in FP16_DEVICES:  # elsewhere, no scaler is at hand
        raise ValueError(f"precision 'fp16' needs a CUDA GPU, not {kind!r}. Use 'bf16'.")
    return torch.autocast(kind, dtype=dtype[precision]), precision == "fp16"


@contextlib.contextmanager
def seeded(seed, device=None):
    """Draw from a seed inside a with block, and restore the random state afterwards.

    Threads take turns, because the generators belong to all of them.

    Args:
        seed: a whole number.
        device: a torch.device, whose generator is seeded beside the CPU's; None for the CPU alone.

    Yields:
        Nothing.
    """
    with _SEEDED:
        before = random_state(device)
        try:
            seed_generators(seed, device)
            yield
        finally:
            set_random_state(before, device)


def turn(model):
    """Return the lock of a model's encoder, whose mode belongs to all threads.

    `fit` and predictions hold it. It is asked for inside of `seeded`, so that no two runs wait for
    each other.

    Args:
        model: a module.

    Returns:
        A threading.RLock.
    """
    return _TURNS.setdefault(getattr(model, "encoder", model), threading.RLock())


def random_state(device=None):
    """Return the state of the CPU's generator and of one device's, to draw the same numbers again.

    Args:
        device: a torch.device, or None for the CPU alone.

    Returns:
        A list of tensors.
    """
    return [generator.get_state() for generator in _generators(device)]


def set_random_state(states, device=None):
    """Restore what `random_state` returned.

    Args:
        states: a list of tensors.
        device: the same torch.device.
    """
    for generator, state in zip(_generators(device), states):
        generator.set_state(state)


def seed_generators(seed, device=None):
    """Seed the CPU's generator and that of one device; torch.manual_seed would reseed every GPU.

    Args:
        seed: a whole number.
        device: a torch.device, or None for the CPU alone.
    """
    for generator in _generators(device):
        generator.manual_seed(int(seed))  # also converts numpy numbers


def _generators(device):
    """Return the CPU's default generator, and that of a GPU."""
    found, kind = [torch.default_generator], device and device.type
    if kind == "mps":
        found.append(torch.mps._get_default_mps_generator())
    elif kind == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        found.append(torch.cuda.default_generators[index])
    return found


def is_interactive():
    """Return whether a person sees the output: a terminal, or a notebook in a live front end.

    Papermill, nbval and continuous integration are not interactive.
    """
    variable = os.environ.get
    if variable("MMLKIT_HEADLESS") or variable("CI"):
        return False
    if "ipykernel" in sys.modules:  # set by JupyterLab, VS Code and Colab
        live = variable("JPY_SESSION_NAME") or variable("VSCODE_PID")
        return bool(live or "google.colab" in sys.modules)
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def delayed_interrupt():
    """Record Ctrl-C in an event, instead of an error in a computation. A second one raises.

    Only Python's own handler is replaced, and only in the main thread.

    Yields:
        A threading.Event that Ctrl-C sets.
    """
    asked = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or before is not signal.default_int_handler:
        yield asked
        return

    def note(number, frame):
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
