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
    left, right = plots_multitask.reasoning(
        WEIGHTS, ["a", "cat", "sleeps"], ANSWERS, ["no", "yes"], title="row 3"
    )
    np.testing.assert_array_equal(left.images[0].get_array(), WEIGHTS)
    assert left.images[0].get_clim() == (0, 0.7) and left.get_title(loc="left") == "row 3"
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


def test_reasoning_of_one_step():
    left, right = plots_multitask.reasoning(
        WEIGHTS[:1], ["a", "b", "c"], ANSWERS[:1], ["no", "yes"]
    )
    assert left.images[0].get_array().shape == (1, 3) and len(right.get_xticks()) == 1


@pytest.mark.parametrize(
    "weights, tokens, answers, labels",
    [
        (WEIGHTS, ["a", "b"], ANSWERS, ["no", "yes"]),
        (WEIGHTS, ["a", "b", "c"], ANSWERS[:1], ["no", "yes"]),
        (WEIGHTS, ["a", "b", "c"], ANSWERS, ["no"]),
    ],
)
def test_sizes_that_do_not_match_are_refused(weights, tokens, answers, labels):
    with pytest.raises(
        ValueError,
        match=rf"expected \[K, {len(tokens)}\] for these tokens and \[K, {len(labels)}\]",
    ):
        plots_multitask.reasoning(weights, tokens, answers, labels)


def test_forgetting_has_a_panel_per_schedule_and_a_mark_per_step():
    history = pd.DataFrame({"step": [0, 2, 4], "sst": [0.2, 0.5, 0.4], "sts": [0.1, 0.0, 0.6]})
    axes = plots_multitask.forgetting(
        {
            "one_by_one": (history, ["sst", "sst", "sts", "sts"]),
            "mixed": (history, ["sts", "sst", "sst", "sts"]),
        }
    )
    assert axes.shape == (2, 2) and [ax.get_title(loc="left") for ax in axes[0]] == [
        "one by one",
        "mixed",
    ]
    lines = axes[0][0].lines
    assert [line.get_xydata().tolist() for line in lines] == [
        [[0, 0.2], [2, 0.5], [4, 0.4]],
        [[0, 0.1], [2, 0.0], [4, 0.6]],
    ]
    assert (
        len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 2
    )  # distinguishable without colour
    strokes = [list(row.get_positions()) for row in axes[1][1].collections]
    assert strokes == [[2, 3], [1, 4]] and [
        row.get_lineoffset() for row in axes[1][1].collections
    ] == [0, 1]
    assert [tick.get_text() for tick in axes[1][0].get_yticklabels()] == ["sst", "sts"] and axes[1][
        0
    ].get_xlabel() == "step"
    assert [text.get_text() for text in axes[0][1].get_legend().get_texts()] == ["sst", "sts"]


def test_forgetting_leaves_out_what_was_not_measured_and_draws_errors_and_baselines():
    """An accuracy of 0.5 on 100 rows has a standard error of 0.05, one of 0.2 of 0.04."""
    history = pd.DataFrame({"step": [1, 2], "sst": [0.5, 0.2], "qqp": [np.nan, 0.5]})
    options = dict(baselines={"sst": 0.25, "qqp": 0.5}, rows={"sst": 100, "qqp": 100})
    axes = plots_multitask.forgetting({"merged": (history, ["sst", "qqp"])}, **options)
    data = [line.get_xydata().tolist() for line in axes[0][0].lines if line.get_marker() in "os"]
    assert data == [[[1, 0.5], [2, 0.2]], [[2, 0.5]]]
    dotted = [line for line in axes[0][0].lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [0.25, 0.5]
    bars = [bar for part in axes[0][0].collections for bar in part.get_segments()]
    np.testing.assert_allclose(
        [bar[:, 1] for bar in bars], [[0.45, 0.55], [0.16, 0.24], [0.45, 0.55]]
    )


def test_parameters_lie_on_a_logarithmic_axis():
    ax = plots_multitask.parameters_against_score(
        {"heads": 2_000, "PAL": 240_000}, {"heads": 0.5, "PAL": 0.6}, {"PAL": 0.1}, title="live"
    )
    points = [container.lines[0].get_xydata().tolist() for container in ax.containers]
    assert points == [[[2_000, 0.5]], [[240_000, 0.6]]] and ax.get_xscale() == "log"
    assert [len(container.lines[2]) for container in ax.containers] == [
        0,
        1,
    ]  # error bars only for known errors
    assert ax.containers[1].lines[2][0].get_segments()[0].tolist() == [
        [240_000, 0.5],
        [240_000, 0.7],
    ]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "heads",
        "PAL",
    ] and ax.get_title(loc="left") == "live"


def test_a_learning_curve_shows_means_and_spread_over_a_logarithmic_axis():
    scores = {"plain": {0.1: [0.5, 0.7], 1.0: [0.8]}, "multi-task": {1.0: [0.9], 0.1: [0.6, 0.6]}}
    ax = plots_multitask.learning_curve(scores, lines={"guessing": 0.5}, title="SciTail")
    plain, multi = ax.containers
    assert plain.lines[0].get_ydata().tolist() == pytest.approx([0.6, 0.8]) and multi.lines[
        0
    ].get_ydata().tolist() == [0.6, 0.9]  # sorted by the share of the labels
    assert [segment[:, 1].tolist() for segment in plain.lines[2][0].get_segments()] == [
        pytest.approx([0.6 - 0.02**0.5, 0.6 + 0.02**0.5]),
        [0.8, 0.8],
    ]
    assert ax.get_xscale() == "log" and [label.get_text() for label in ax.get_xticklabels()] == [
        "10 %",
        "100 %",
    ]
    assert plain.lines[0].get_xdata()[0] < 0.1 < multi.lines[0].get_xdata()[0] < 0.11
    assert (
        plain.lines[0].get_marker() != multi.lines[0].get_marker()
        and plain.lines[0].get_linestyle() != multi.lines[0].get_linestyle()
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "guessing",
        "plain",
        "multi-task",
    ]
    assert [line.get_ydata()[0] for line in ax.lines if line.get_label() == "guessing"] == [0.5]
    assert ax.get_title(loc="left") == "SciTail" and ax.get_xlabel() == "share of the labels"


def test_a_learning_curve_uses_the_given_axes_and_refuses_invalid_scores():
    _, ax = plt.subplots()
    assert plots_multitask.learning_curve({"plain": {0.01: [0.5]}}, ax=ax) is ax
    for scores in ({}, {"plain": {0.0: [0.5]}}, {"plain": {0.1: []}}):
        with pytest.raises(
            ValueError, match="expected some, all above 0, with at least one accuracy"
        ):
            plots_multitask.learning_curve(scores)


def test_empty_scores_give_empty_axes_without_a_warning(recwarn):
    ax = plots_multitask.parameters_against_score({}, {}, title="ours: no recorded runs")
    assert ax.get_legend() is None and not list(recwarn)


def test_nine_systems_have_nine_different_markers():
    ax = plots_multitask.parameters_against_score(
        {str(i): 10 + i for i in range(9)}, {str(i): 0.5 for i in range(9)}
    )
    marks = {
        (line.get_marker(), line.get_markerfacecolor())
        for line in (container.lines[0] for container in ax.containers)
    }
    assert len(marks) == 9


def test_a_system_keeps_its_colour_in_several_figures():
    places, one = {"a": 2, "b": 0, "c": 9}, dict.fromkeys("abc", 1.0)
    ax = plots_multitask.parameters_against_score(one, one, places=places, ylabel="score")
    marks = {mark.get_label(): mark.lines[0] for mark in ax.containers}
    lines = plots_multitask.accuracy_by_step({"a": {1: [0.5], 2: [0.6]}}, places=places).lines
    assert marks["a"].get_color() == lines[0].get_color() == plots_multitask.COLOURS[2]
    assert marks["b"].get_color() == plots_multitask.COLOURS[0] and ax.get_ylabel() == "score"
    assert marks["c"].get_markerfacecolor() == "white" != marks["a"].get_markerfacecolor()


def test_scores_may_be_a_column_of_a_table():
    """The parameters and scores may be columns of a table, as in notebook 11."""
    table = pd.DataFrame({"own": [10.0, 1000.0], "overall": [0.4, 0.5]}, index=["PALs", "low-rank"])
    ax = plots_multitask.parameters_against_score(table["own"], table["overall"], {"PALs": 0.01})
    marks = [
        line
        for line in ax.get_lines()
        if len(line.get_xdata()) == 1 and line.get_marker() not in "_|"
    ]
    assert {(one.get_xdata()[0], one.get_ydata()[0]) for one in marks} >= {
        (10.0, 0.4),
        (1000.0, 0.5),
    }
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["PALs", "low-rank"]


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
    """The window of two batches, 1 and 3, has the mean 2 and the standard error 1."""
    curve = pd.DataFrame({"step": [1, 2, 3], "words": [1.0, 3, 5], "next_sentence": [0.5] * 3})
    left, right = plots_multitask.pretraining({"small": curve}, (7, 0.7), window=2)
    assert left.lines[0].get_ydata()[1:].tolist() == [2, 4]
    band = left.collections[0].get_paths()[0].vertices
    assert {(2.0, 1.0), (2.0, 3.0)} <= {tuple(point) for point in band.tolist()}
    assert left.lines[1].get_ydata()[0] == 7 and right.lines[1].get_ydata()[0] == 0.7
    assert left.get_title() == "masked tokens" or left.get_title(loc="left") == "masked tokens"
    names = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in (left, right)]
    assert names == [["small", "by frequency"], ["small", "guessing"]]


def test_marks_of_nearly_equal_numbers_are_drawn_side_by_side():
    """100, 110 and 120 get places around their geometric mean, in the order of the systems."""
    numbers = {"a": 120, "b": 10, "c": 100, "d": 110}
    ax = plots_multitask.parameters_against_score(numbers, dict.fromkeys(numbers, 0.5))
    x = {one.get_label(): one.lines[0].get_xdata()[0] for one in ax.containers}
    middle = (100 * 110 * 120) ** (1 / 3)
    assert x["b"] == 10 and x["c"] == pytest.approx(middle)
    assert x["a"] == pytest.approx(middle / 1.14) and x["d"] == pytest.approx(middle * 1.14)


def test_accuracy_by_step_shows_the_mean_and_one_standard_deviation():
    runs = {"linear": {50: [0.2, 0.4], 100: [0.5, 0.5]}, "sequential": {50: [0.1], 100: [0.3]}}
    ax = plots_multitask.accuracy_by_step(runs, lines={"majority class": 0.25}, title="sst")
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
