"""Tests of seeds, precision, device choice and atomic writing."""

import contextlib
import inspect
import os

import pytest
import torch

from mmlkit import files, runtime
from mmlkit.runtime import seed_generators, seeded
from mmlkit.training import fast


class Generator:
    """A replacement for the random generator of one GPU."""

    def __init__(self):
        self.state, self.seeds = "before", []

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state

    def manual_seed(self, seed):
        self.state = seed
        self.seeds.append(seed)


@pytest.fixture
def gpus(monkeypatch):
    """Simulate two GPUs, with the second as current device; seeding all devices is an error."""
    generators = (Generator(), Generator())
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(
        torch.cuda, "manual_seed_all", lambda seed: pytest.fail(f"every GPU was seeded with {seed}")
    )
    monkeypatch.setattr(
        torch,
        "manual_seed",
        lambda seed: pytest.fail(f"torch.manual_seed({seed}) seeds every device"),
    )
    return generators


@pytest.mark.parametrize(
    ("device", "seeded_gpu"), [(None, None), ("cpu", None), ("cuda", 1), ("cuda:0", 0)]
)
@pytest.mark.parametrize("fails", [False, True])
def test_only_the_named_device_is_seeded_and_restored(gpus, device, seeded_gpu, fails):
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        with seeded(7, None if device is None else torch.device(device)):
            drawn = torch.rand(3)
            assert [gpu.state for gpu in gpus] == [
                7 if i == seeded_gpu else "before" for i in range(2)
            ]
            if fails:
                raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before) and [gpu.state for gpu in gpus] == [
        "before",
        "before",
    ]
    with seeded(7):
        assert torch.equal(torch.rand(3), drawn)


def test_the_seed_of_a_step_applies_only_to_its_device(gpus):
    with seeded(0):
        seed_generators(11, torch.device("cuda:1"))
        assert torch.equal(
            torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(11))
        )
    assert [gpu.seeds for gpu in gpus] == [[], [11]]


def test_the_generator_of_mps_is_restored(monkeypatch):
    generator = Generator()
    monkeypatch.setattr(torch.mps, "_get_default_mps_generator", lambda: generator)
    with runtime.seeded(5, torch.device("mps")):
        assert generator.state == 5
    assert generator.state == "before"


@pytest.mark.parametrize(
    ("capability", "precision"),
    [((7, 0), "fp16"), ((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")],
)
def test_auto_precision_of_a_gpu(monkeypatch, capability, precision):
    """A T4 (7.5) only emulates bf16, so it uses fp16 and a scaler; an A100 (8.0) uses bf16."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype: (kind, dtype))
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    for device in ("cuda", torch.device("cuda:1")):
        assert runtime.fastest_precision(device) == precision
        assert runtime.autocast("auto", device) == (("cuda", dtype), precision == "fp16")


@pytest.mark.parametrize(
    ("avx512", "amx", "precision"), [(0, 0, "fp32"), (1, 0, "bf16"), (0, 1, "bf16")]
)
def test_auto_precision_of_a_cpu(monkeypatch, avx512, amx, precision):
    fastest = inspect.unwrap(
        runtime.fastest_precision
    )  # conftest.py replaces this function on a CPU
    monkeypatch.setattr(runtime, "fastest_precision", fastest)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx512), raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(amx), raising=False)
    assert (
        runtime.fastest_precision("cpu") == precision and runtime.fastest_precision("mps") == "fp32"
    )
    context, needs_scaler = runtime.autocast("auto", "cpu")
    with context:
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert (
        product.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        and not needs_scaler
    )


def test_fp16_without_a_scaler_is_refused():
    with pytest.raises(ValueError, match="precision 'fp16' needs a CUDA GPU, not 'cpu'"):
        runtime.autocast("fp16", "cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "found"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_default_device_is_a_gpu_if_available(monkeypatch, cuda, mps, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert runtime.pick_device() == torch.device(found)
    assert runtime.pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("size", "rank", "found"), [(1, 0, None), (4, 1, 1), (4, 3, 1)])
def test_each_process_of_torchrun_has_a_gpu_of_its_own(monkeypatch, size, rank, found):
    """With more processes than GPUs, `fit` says so; loading a model does not fail before."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", str(size))
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    assert runtime.pick_device().index == found


def test_a_file_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "one.json"
    with files.atomic_write(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), files.atomic_write(path) as temporary:
        temporary.write_text("second, and half of it")
        raise ZeroDivisionError
    assert path.read_text() == "first" and [one.name for one in path.parent.iterdir()] == [
        "one.json"
    ]
    with pytest.raises(OSError, match="No space left") as caught, files.atomic_write(path):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(path) and caught.value.errno == 28


def test_a_pipe_stays_a_pipe(tmp_path):
    """Otherwise /dev/null would become a plain file for everybody."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_file(tmp_path / "pipe", "seen")
    assert os.read(reader, 10) == b"seen" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


@pytest.mark.parametrize(
    ("intel", "exact", "inside"),
    [(False, True, "medium"), (True, True, "highest"), (False, False, "highest")],
)
def test_matrix_products_use_the_fastest_exact_precision(monkeypatch, intel, exact, inside):
    monkeypatch.setattr(fast, "_is_intel", lambda: intel)
    monkeypatch.setattr(fast, "_medium_is_exact", lambda: exact)
    before = torch.get_float32_matmul_precision()
    with fast.fast_matmul(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == before


def test_a_new_head_follows_the_model_to_its_device():
    """The meta device stands for a GPU: a device other than the CPU."""
    parts = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta")])
    assert {one.device.type for one in runtime.place(parts).parameters()} == {"meta"}
    parts = torch.nn.ModuleList([torch.nn.Linear(2, 2, device="meta"), torch.nn.Linear(2, 2)])
    assert {one.device.type for one in runtime.place(parts).parameters()} == {"meta"}


def test_what_the_user_chose_for_tf32_stays():
    """torch 2.9 has a second way to choose, and raises where the two are mixed."""
    own = torch.backends.cuda.matmul
    before = getattr(own, "fp32_precision", None)  # "none", or "ieee" after the older setting
    if before is None:
        pytest.skip("this torch has the older setting alone")
    with fast.fast_matmul(torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == "high"
    assert own.fp32_precision == before
    try:
        torch.backends.fp32_precision = own.fp32_precision = "tf32"
        with pytest.raises(RuntimeError):
            torch.get_float32_matmul_precision()
        with fast.fast_matmul(torch.device("cuda")):
            assert own.fp32_precision == "tf32"
        assert own.fp32_precision == "tf32"
    finally:
        torch.backends.fp32_precision, own.fp32_precision = "none", before
    assert torch.get_float32_matmul_precision() == "highest"
