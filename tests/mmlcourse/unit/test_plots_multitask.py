"""The figures of notebooks 07 to 11 show the values that they are given."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mmlcourse.lessons.plots import multitask as plots_multitask

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
ANSWERS = np.array([[0.6, 0.4], [0.2, 0.8]])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_reasoning_shows_attention_weights_probabilities_and_their_mean():
    left, right = plots_multitask.reasoning(WEIGHTS, ["a", "cat", "sleeps"], ANSWERS, ["no", "yes"])
    np.testing.assert_array_equal(left.images[0].get_array(), WEIGHTS)
    assert left.images[0].get_clim() == (0, 0.7)
    assert [label.get_text() for label in left.get_xticklabels()] == ["a", "cat", "sleeps"] and len(
        left.get_yticks()
    ) == 2
    no, mean_no, yes, mean_yes = right.lines
    assert no.get_ydata().tolist() == [0.6, 0.2] and yes.get_ydata().tolist() == [0.4, 0.8]
    assert mean_no.get_ydata()[0] == pytest.approx(0.4) and mean_yes.get_ydata()[
        0
    ] == pytest.approx(0.6)
    assert no.get_marker() != yes.get_marker() and no.get_linestyle() != yes.get_linestyle()
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["no: 0.40", "yes: 0.60"]
    assert left.get_ylabel() == "step k" and right.get_ylabel() == "probability"
    assert "mean over the steps" in right.get_legend().get_title().get_text()


def test_reasoning_prints_the_weights_where_asked():
    left, _ = plots_multitask.reasoning(WEIGHTS, ["a", "b", "c"], ANSWERS, ["no", "yes"])
    assert not left.texts
    left, _ = plots_multitask.reasoning(
        WEIGHTS, ["a", "b", "c"], ANSWERS, ["no", "yes"], values=True
    )
    printed = {one.get_position(): one.get_text() for one in left.texts}
    assert len(printed) == 6 and printed[0, 0] == "0.500" and printed[2, 1] == "0.700"


@pytest.mark.parametrize("tokens", [1, 3, 5])
def test_a_printed_weight_fits_into_its_cell(tokens):
    weights = np.full((2, tokens), 1 / tokens)
    words = [str(i) for i in range(tokens)]
    left, _ = plots_multitask.reasoning(weights, words, ANSWERS, ["no", "yes"], values=True)
    left.figure.canvas.draw()
    cell = left.get_window_extent().width / tokens
    widest = max(one.get_window_extent().width for one in left.texts)
    assert 0 < widest < 0.9 * cell


def test_forgetting_shows_scores_errors_baselines_and_a_mark_per_step():
    """An accuracy of 0.5 on 100 rows has a standard error of 0.05, one of 0.2 of 0.04."""
    history = pd.DataFrame({"step": [1, 2], "sst": [0.5, 0.2], "qqp": [np.nan, 0.5]})
    runs = {"one_by_one": (history, ["sst", "qqp"]), "mixed": (history, ["qqp", "sst"])}
    options = dict(baselines={"sst": 0.25, "qqp": 0.5}, rows={"sst": 100, "qqp": 100})
    axes = plots_multitask.forgetting(runs, ylabel="dev accuracy", **options)
    assert axes.shape == (2, 2)
    assert [ax.get_title(loc="left") for ax in axes[0]] == ["one by one", "mixed"]
    above = axes[0][0]
    data = [line.get_xydata().tolist() for line in above.lines if line.get_marker() in "os"]
    assert data == [[[1, 0.5], [2, 0.2]], [[2, 0.5]]]
    dotted = [line for line in above.lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [0.25, 0.5]
    bars = [bar[:, 1] for part in above.collections for bar in part.get_segments()]
    np.testing.assert_allclose(bars, [[0.45, 0.55], [0.16, 0.24], [0.45, 0.55]])
    strokes = [list(row.get_positions()) for row in axes[1][1].collections]
    assert strokes == [[2], [1]] and axes[1][0].get_xlabel() == "step"
    assert [tick.get_text() for tick in axes[1][0].get_yticklabels()] == ["sst", "qqp"]


def test_a_learning_curve_shows_means_and_spread_over_a_logarithmic_axis():
    scores = {"plain": {10: [0.5, 0.7], 1000: [0.8]}, "multi": {1000: [0.9], 10: [0.6, 0.6]}}
    ax = plots_multitask.learning_curve(scores, lines={"guessing": 0.5}, title="SciTail")
    plain, multi = ax.containers
    assert plain.lines[0].get_ydata().tolist() == pytest.approx([0.6, 0.8])
    assert multi.lines[0].get_ydata().tolist() == pytest.approx([0.6, 0.9])
    bar, none = (one[:, 1].tolist() for one in plain.lines[2][0].get_segments())
    assert bar == pytest.approx([0.6 - 0.02**0.5, 0.6 + 0.02**0.5]) and none == [0.8, 0.8]
    assert not multi.has_yerr  # no bar in the legend either
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10", "1,000"]
    assert ax.get_xscale() == "log" and ax.get_xlabel() == "labels"
    assert plain.lines[0].get_xdata()[0] < 10 < multi.lines[0].get_xdata()[0] < 11
    assert [line.get_ydata()[0] for line in ax.lines if line.get_label() == "guessing"] == [0.5]


def test_loss_and_pull_have_the_same_look_and_fixed_axes():
    m = np.linspace(-2, 2, 5)
    losses, pulls = {"a": 1 - m, "b": m}, {"a": m**0, "b": -(m**0)}
    left, right = plots_multitask.loss_and_pull(m, losses, pulls, lines={"floor": 0.3}, top=2)
    assert [line.get_ydata().tolist() for line in left.lines[:2]] == [
        [3, 2, 1, 0, -1],
        [-2, -1, 0, 1, 2],
    ]
    assert [line.get_ydata()[0] for line in right.lines] == [1, -1]
    assert left.lines[2].get_ydata()[0] == 0.3 and left.lines[2].get_label() == "floor"
    for one, other in zip(left.lines, right.lines):
        assert one.get_color() == other.get_color() and one.get_marker() == other.get_marker()
    assert left.get_ylim() == (-0.05, 4) and right.get_ylim() == (-0.06, 2)


def test_pretraining_shows_means_over_a_window_and_their_error():
    """The first two batches, 1 and 3, have the mean 2 and the standard error 1."""
    curve = pd.DataFrame({"step": [1, 2], "words": [1.0, 3]})
    ax = plots_multitask.pretraining({"small": curve}, {"small": 5, "by frequency": 7})
    assert ax.lines[0].get_ydata()[1:].tolist() == [2]
    band = ax.collections[0].get_paths()[0].vertices
    assert {(2.0, 1.0), (2.0, 3.0)} <= {tuple(point) for point in band.tolist()}
    assert [line.get_ydata()[0] for line in ax.lines[1:]] == [5, 7]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["small", "small, held out", "by frequency, held out"]


def test_accuracy_by_step_shows_the_mean_and_one_standard_deviation():
    runs = {"linear": {50: [0.2, 0.4], 100: [0.5, 0.5]}, "sequential": {50: [0.1], 100: [0.3]}}
    places, lines = {"linear": 0, "sequential": 1}, {"majority class": 0.25}
    ax = plots_multitask.accuracy_by_step(runs, lines=lines, places=places, title="sst")
    linear, sequential, line = ax.lines
    assert (
        linear.get_xdata().tolist() == [50, 100] and linear.get_marker() != sequential.get_marker()
    )
    assert linear.get_ydata().tolist() == pytest.approx([0.3, 0.5])
    assert sequential.get_ydata().tolist() == [0.1, 0.3] and set(line.get_ydata()) == {0.25}
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(0.5)
    assert band[:, 1].min() == pytest.approx(0.3 - 0.02**0.5)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["linear", "sequential", "majority class"]
