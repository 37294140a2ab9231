"""The figures of heads show the numbers they are given: circles and crosses, staircases, triangles."""

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mmlkit import plots
from mmlkit.pruning import PruningEvent

FIRST = PruningEvent(10, [0, 1, 2, 3, 4], [0.5, 0.9, 0.52, 0.7, 0.48], 0.1, [0.5, 0.7, 0.9], [0, 2, 0, 1, 0], [0, 2, 4], [1, 3])
SECOND = PruningEvent(20, [0, 2, 4], [0.4, 0.45, 0.5], 0.1, [0.45], [0, 0, 0], [0, 2, 4], [], "one cluster")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("form", [lambda event: event, vars])
def test_survivors_and_eliminated_differ_in_shape_and_place(form):
    ax = plots.pruning_event(form(FIRST))
    kept, dropped, *centroids = ax.lines
    assert (kept.get_marker(), dropped.get_marker()) == ("o", "x")
    assert kept.get_xydata().tolist() == [[0, 0.5], [2, 0.52], [4, 0.48]] and dropped.get_xydata().tolist() == [[1, 0.9], [3, 0.7]]
    assert [line.get_ydata()[0] for line in centroids] == [0.5, 0.7, 0.9]
    assert ax.get_title(loc="left") == "step 10: 3 clusters" and "index" in ax.get_xlabel() and "loss" in ax.get_ylabel()


def test_head_counts_go_down_at_the_events():
    ax = plots.head_counts({"rte": (5, [FIRST, SECOND]), "cola": (4, [])}, last_step=30)
    stairs = [line.get_xydata().tolist() for line in ax.lines if line.get_marker() in ("None", None)]
    assert stairs == [[[0, 5], [10, 3], [20, 3], [30, 3]], [[0, 4], [30, 4]]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rte: 3", "cola: 4"]


def test_figure_2_has_four_panels_and_needs_a_pruning():
    fig = plots.figure2([FIRST, SECOND], 5, last_step=30)
    a, b, c, d = fig.axes
    assert "step 10" in a.get_title(loc="left") and "step 10" in b.get_title(loc="left")
    assert d.lines[0].get_ydata().tolist() == [0.4, 0.45, 0.5] and "3 heads" in d.get_title(loc="left")
    assert c.lines[0].get_xydata().tolist()[-1] == [30, 3]
    with pytest.raises(ValueError, match="none of the 1 events dropped a head"):
        plots.figure2([SECOND], 5)


def test_similarity_tables_hold_each_pair_once():
    weight = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [3.0, 0.0]], [[0.0, -5.0], [0.0, 1.0]]])      # 3 heads, 2 classes
    axes = plots.head_similarity(weight, ["no", "yes"])
    first = axes[0].images[0].get_array()
    assert first.mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    np.testing.assert_allclose(first.compressed(), [0.5**0.5, 0.0, 0.5**0.5], atol=1e-6)        # |cos| of pairs 1-2, 1-3, 2-3
    np.testing.assert_allclose(axes[1].images[0].get_array().compressed(), [0.0, 1.0, 0.0], atol=1e-6)
    dots = plots.head_similarity(weight, similarity="dot", limit=10)[0].images[0]
    np.testing.assert_allclose(dots.get_array().compressed(), [1.0, 0.0, 5.0])
    assert dots.get_clim() == (0, 10) and axes[0].get_title(loc="left") == "no: mean 0.471"
