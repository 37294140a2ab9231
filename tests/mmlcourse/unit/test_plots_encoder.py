"""The figures of notebook 01 show the values that they are given."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mmlcourse.lessons import plots


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_vectors_move_from_hollow_to_filled_markers():
    ax = plots.moved_vectors(["a", "b"], [[0, 1], [2, 0]], [[1, 1], [1, 0.5]])
    ends = [line.get_xydata().tolist() for line in ax.lines]
    assert ends == [[[0, 1]], [[1, 1]], [[2, 0]], [[1, 0.5]]]
    hollow = [line.get_markerfacecolor() == "white" for line in ax.lines]
    assert hollow == [True, False, True, False]
    assert {text.get_text() for text in ax.texts} >= {"a", "b"}


def test_bands_hold_the_middle_80_percent_of_the_draws():
    """The draws 1 and 3 have the mean 2, and the quantiles 1.2 and 2.8."""
    ax = plots.bands(
        [2, 8],
        {"one": [[1, 3], [4, 4]]},
        xlabel="d",
        ylabel="weight",
        reference=("equal", 0.125),
        base=2,
    )
    assert ax.lines[0].get_ydata().tolist() == [2, 4] and ax.get_xscale() == "log"
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    np.testing.assert_allclose([low, high], [1.2, 4])
    assert ax.lines[1].get_ydata()[0] == 0.125
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "equal"]


def test_tables_of_heads_share_one_scale():
    axes = plots.head_tables({"left": np.eye(3), "right": np.zeros((3, 3))})
    assert axes.shape == (1, 2)
    assert [ax.get_title(loc="left") for ax in axes[0]] == [
        "left: at most 1.00",
        "right: at most 0.00",
    ]
    assert all(ax.images[0].get_clim() == (0, 1) for ax in axes[0])


def test_splits_draw_a_table_for_each_head():
    tables = {"a": np.arange(12).reshape(2, 2, 3) % 2, "b": np.zeros((2, 2, 3))}
    axes = plots.splits(tables, ["one", "two"])
    assert axes.shape == (2, 2) and axes[1, 0].get_ylabel() == "b\nrow"
    assert axes[0, 1].images[0].get_array().tolist() == [[0, 1, 0], [1, 0, 1]]


def test_similarities_show_their_numbers():
    ax = plots.similarities([[1, 0.25]], ["a"], ["b", "c"], xlabel="sentence")
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.25"]
    assert [text.get_color() for text in ax.texts] == ["black", "white"]
