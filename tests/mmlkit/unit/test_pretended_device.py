"""Training and prediction on a pretended GPU: no device mismatch, and no wait of the host.

See tests/helpers/pretended.py. The real kernels, their numbers and their speed need a GPU.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[2] / "helpers" / "pretended.py"
READS = {  # the tensors that one epoch copies to the host: scores and losses of each task
    **dict.fromkeys(
        ("every head", "bf16", "fp16"),
        [[4, 5], [4, 1], [4, 2], [4, 2], [4, 3], [4, 2], [9, 1], *7 * [[1]]],
    ),
    "micro-batches": [[4, 5], [4, 2], [1], [1]],
    # First the features of all rows; a pair has two sentences.
    "frozen": [
        *([6, 1, 32], [6, 2, 32], [4, 1, 32], [4, 2, 32]),
        *2 * [[4, 5], [4, 2], [1], [1]],
    ],
    "scaler": [],
    "graphs": 4 * [[4, 5], [4, 1], [4, 2], [4, 3], [1], [1], [1], [1]],  # four epochs
    **dict.fromkeys(
        ("pal", "low_rank", "houlsby", "sequential", "sequential_fixed"),
        [[4, 5], [4, 1], [1], [1]],
    ),
}


@pytest.fixture(scope="module")
def outcomes():
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", READS)
def test_the_host_reads_losses_and_scores_once_and_nothing_else(outcomes, name):
    """The pruner does not read the losses of the heads either, outside its check."""
    assert outcomes[name] == {"copied": READS[name], "error": None}


@pytest.mark.parametrize("name, dtype", [("bf16", "torch.bfloat16"), ("fp16", "torch.float16")])
def test_autocast_computes_products_in_half_precision_and_layer_norm_in_fp32(outcomes, name, dtype):
    assert outcomes[f"types of {name}"] == {"copied": ["torch.float32", dtype], "error": None}


@pytest.mark.parametrize(
    "name, error",
    [
        ("item", "DataDependentOutputException"),
        ("if", "DataDependentOutputException"),
        ("mask", "DynamicOutputShapeException"),
        ("device", "FakeTensorDeviceMismatchError"),
        ("copy", "RuntimeError: the host waits for a copy to the device: aten._to_copy"),
        ("index", "RuntimeError: the host waits for a copy to the device: aten.index"),
        ("list", "NotImplementedError"),
    ],
)
def test_a_fault_in_the_training_step_is_found(outcomes, name, error):
    assert outcomes[f"fault: {name}"]["error"].startswith(error)
