"""Every notebook runs on a GPU with the profile colab: real sets and BERT-base from the hub."""

import pytest

from mmlcourse.cli.machine import reachable
from tests.notebooks.test_runs import NOTEBOOKS, run_one

LIMIT = 90  # minutes; the text of the notebooks says at most an hour on a T4


@pytest.mark.gpu
@pytest.mark.notebook
@pytest.mark.timeout(60 * (LIMIT + 15))
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_on_the_colab_profile(device, path, tmp_path):
    """On a CPU that stands in for the GPU, the profile is fast."""
    if device.type == "cuda" and not reachable():
        pytest.skip("the profile colab needs the hub, which cannot be reached")
    profile = "colab" if device.type == "cuda" else "fast"
    assert run_one(path, tmp_path, limit=LIMIT, profile=profile)
