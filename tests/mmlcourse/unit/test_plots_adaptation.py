"""The figures of notebook 09 show the values that they are given."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mmlcourse.lessons import plots

POINTS = {
    "plain": [(0, "no"), (7, "no"), (11, "yes")],
    "better": [(1, "no"), (2, "no"), (9, "yes")],
}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_label_draws_shows_rows_and_borders():
    borders = {"plain": [5.5, 9], "better": [5, 5.5]}
    ax = plots.label_draws(POINTS, borders, title="two draws")
    found = [line.get_xdata() for line in ax.lines]
    assert [list(one) for one in found] == [[0, 7], [11], [5.5, 9], [1, 2], [9], [5, 5.5]]
    assert [line.get_fillstyle() for line in ax.lines[:2]] == ["none", "full"]
    colours = {line.get_color() for line in ax.lines[:3]}, ax.lines[3].get_color()
    assert colours == ({plots.COLOURS[0]}, plots.COLOURS[1])
    assert ax.get_title(loc="left") == "two draws"


def test_equal_borders_are_drawn_below_each_other():
    ax = plots.label_draws(POINTS, {"plain": [9, 5, 9, 9], "better": [5]})
    first, second, third, fourth = ax.lines[2].get_ydata()
    assert first == second > third > fourth > ax.get_ylim()[0]


def test_paired_draws_shows_points_ranges_and_fixed_colours():
    accuracies = pd.DataFrame({"plain": [0.3, 0.4], "other": [0.5, 0.7]})
    left, right = plots.paired_draws(
        accuracies, "plain", "other", names=["other", "plain"], majority=0.2, limits=(0, 1)
    )
    points = left.lines[1]
    np.testing.assert_array_equal(points.get_xydata(), [[0.3, 0.5], [0.4, 0.7]])
    assert points.get_color() == plots.COLOURS[0], "the colour of the first name"
    assert left.get_xlim() == left.get_ylim() == right.get_ylim() == (0, 1)
    whiskers = [line.get_ydata().tolist() for line in right.lines[1:3]]
    assert whiskers == [[pytest.approx(0.325), 0.3], [pytest.approx(0.375), 0.4]]
    assert right.lines[1].get_color() == plots.COLOURS[1]
    assert [label.get_text() for label in right.get_xticklabels()] == ["plain", "other"]
    assert right.lines[-1].get_ydata()[0] == 0.2
