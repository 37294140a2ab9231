"""Seeds stay where they were asked for: no other device's generator and no global state is touched."""

import contextlib

import pytest
import torch

from mmlkit import hub, runtime
from mmlkit.runtime import seed_generators, seeded


class Generator:
    """What torch keeps for one GPU."""

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
    """Two pretended GPUs; the current one is the second. Reseeding all of them is an error."""
    generators = (Generator(), Generator())
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail(f"every GPU was seeded with {seed}"))
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail(f"torch.manual_seed({seed}) seeds every device"))
    return generators


@pytest.mark.parametrize(("device", "seeded_gpu"), [(None, None), ("cpu", None), ("cuda", 1), ("cuda:0", 0)])
@pytest.mark.parametrize("fails", [False, True])
def test_only_the_named_device_is_seeded_and_put_back(gpus, device, seeded_gpu, fails):
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        with seeded(7, None if device is None else torch.device(device)):
            drawn = torch.rand(3)
            assert [gpu.state for gpu in gpus] == [7 if i == seeded_gpu else "before" for i in range(2)]
            if fails:
                raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before) and [gpu.state for gpu in gpus] == ["before", "before"]
    with seeded(7):
        assert torch.equal(torch.rand(3), drawn)


def test_a_step_s_seed_reaches_its_own_device_alone(gpus):
    with seeded(0):
        seed_generators(11, torch.device("cuda:1"))
        assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(11)))
    assert [gpu.seeds for gpu in gpus] == [[], [11]]


def test_the_generator_of_mps_is_put_back(monkeypatch):
    generator = Generator()
    monkeypatch.setattr(torch.mps, "_get_default_mps_generator", lambda: generator)
    with runtime.seeded(5, torch.device("mps")):
        assert generator.state == 5
    assert generator.state == "before"


def test_a_network_that_comes_back_is_noticed():
    """The answer of a moment is not kept for the whole process."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert hub.reachable(endpoint)
        port = server.getsockname()[1]
    assert not hub.reachable(endpoint)
    with socket.create_server(("127.0.0.1", port), reuse_port=False):
        assert hub.reachable(endpoint)


@pytest.mark.parametrize(("intel", "exact", "inside"), [(False, True, "medium"), (True, True, "highest"), (False, False, "highest")])
def test_matrix_products_take_the_faster_exact_path(monkeypatch, intel, exact, inside):
    monkeypatch.setattr(runtime, "_is_intel", lambda: intel)
    monkeypatch.setattr(runtime, "_medium_is_exact", lambda: exact)
    before = torch.get_float32_matmul_precision()
    with runtime.fast_matmul(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == before
