"""The figures show the values that they are given: markers, steps, triangles and tables."""

import functools
import threading
import time

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mmlcourse.lessons import plots
from mmlcourse.lessons.plots.common import looks
from mmlcourse.studies import LANDMARKS, Staircase
from mmlcourse.studies.methods import METHODS
from mmlkit.heads.pruning import PruningEvent
from mmlkit.training.sampling import TaskSampler

FIRST = PruningEvent(
    10,
    [0, 1, 2, 3, 4],
    [0.5, 0.9, 0.52, 0.7, 0.48],
    0.1,
    [0.5, 0.7, 0.9],
    [0, 2, 0, 1, 0],
    [0, 2, 4],
    [1, 3],
)
SECOND = PruningEvent(
    20, [0, 2, 4], [0.4, 0.45, 0.5], 0.1, [0.45], [0, 0, 0], [0, 2, 4], [], "one cluster"
)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_staircases_are_shares_with_the_landmarks_of_the_paper():
    dev = [(10, 0.6), (20, 0.8)]
    run = Staircase(
        "rte", "rte", 5, 40, "auto:0.3", [vars(FIRST), vars(SECOND)], "accuracy", dev, 146 / 277
    )
    top, bottom = plots.staircases([run], LANDMARKS)
    stairs, _, stars = top.lines
    assert stairs.get_xydata().tolist() == [[0, 1], [0.25, 0.6], [0.5, 0.6], [1, 0.6]]
    np.testing.assert_allclose(stars.get_xydata()[1], [85_000 / 98_220, 23 / 1024])
    np.testing.assert_allclose(bottom.lines[0].get_xdata(), [0.25, 0.5])
    np.testing.assert_allclose(bottom.lines[0].get_ydata(), [0.0729, 0.2729], atol=1e-4)
    assert [text.get_text() for text in top.get_legend().get_texts()] == [
        "auto:0.3",
        "the paper's run",
    ]
    runs = [run, run, run._replace(bandwidth="std:1.5")]  # two seeds of one kind, and another kind
    first, second, other = plots.staircases(runs, LANDMARKS)[1].lines[:3]
    assert first.get_color() == second.get_color() != other.get_color()
    assert first.get_linestyle() == other.get_linestyle() != second.get_linestyle()


def test_two_threads_draw_one_after_the_other(monkeypatch):
    """JupyterLab may handle the first two moves of a slider at the same time."""
    monkeypatch.setattr("mmlcourse.lessons.plots.widgets.is_interactive", lambda: False)
    drawing, most, threads = [], [], []

    def draw(name):
        drawing.append(name)
        most.append(len(drawing))
        assert not plt.isinteractive()  # else the end of another message shows half of the figure
        time.sleep(0.05)
        drawing.remove(name)

    with plt.ion():
        for name in "abc":
            run = functools.partial(plots.sliders, draw, name=[name])
            threads.append(threading.Thread(target=run))
            threads[-1].start()
        for thread in threads:
            thread.join()
        assert most == [1, 1, 1] and plt.isinteractive()


def test_similarities_of_two_methods_share_a_square():
    first = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, -5.0]])
    second = torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    ax = plots.head_similarity([first, second], ["no", "yes"])
    found = ax.images[0].get_array()
    assert found.mask.tolist() == np.eye(3, dtype=bool).tolist()
    pairs = [found[0, 1], found[0, 2], found[1, 2], found[1, 0], found[2, 0], found[2, 1]]
    np.testing.assert_allclose(pairs, [0.5**0.5, 0, 0.5**0.5, 0, 1, 0], atol=1e-6)  # |cos|
    assert ax.get_title(loc="left") == "above: no, mean 0.471\nbelow: yes, mean 0.333"
    assert ax.images[0].get_clim() == (0, 1)


def test_drift_draws_the_mean_the_spread_and_the_random_level():
    path = [(0, 0.04, 0.01, 0.08), (5, 0.3, 0.1, 0.6)]
    ax = plots.drift({"bert-ensemble": path, "mv-m": path[:1]}, 0.041)
    first, second, level = ax.lines
    assert first.get_xydata().tolist() == [[0, 0.04], [5, 0.3]] and len(second.get_xdata()) == 1
    assert first.get_color() == looks(["bert-ensemble"])["bert-ensemble"]["color"]
    assert list(level.get_ydata()) == [0.041, 0.041] and level.get_label() == "random: 0.041"
    band = ax.collections[0].get_paths()[0].vertices
    assert {(5, 0.1), (5, 0.6)} <= {tuple(point) for point in band.tolist()}


def test_heads_are_drawn_from_the_start_to_the_end():
    path = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]]])
    points = torch.tensor([[1.0, 1.0], [-1.0, -2.0]])
    (alone,) = plots.head_paths({"a": path})
    starts, way = alone.lines[0], alone.lines[1]
    assert starts.get_xydata().tolist() == [[0, 0], [1, 0]]
    assert way.get_xydata().tolist() == [[1, 0], [2, 0]] and alone.get_xlabel() == "first weight"
    first, second = plots.head_paths({"a": path, "b": path}, points, torch.tensor([1.0, -1.0]))
    assert [line.get_xydata().tolist() for line in first.lines[:2]] == [[[1, 1]], [[-1, -2]]]
    assert second.get_title(loc="left") == "b" and second.get_xlabel() == "first coordinate"


def test_seeds_are_dots_and_their_mean_has_a_standard_error():
    """Of 1, 2 and 3 the mean is 2 and the standard error 1 over root 3."""
    ax = plots.seeds(pd.DataFrame({"a": [1.0, 2, 3], "b": [0.0, 0, 3]}), xlabel="points")
    dots = [line.get_xdata().tolist() for line in ax.lines if line.get_marker() == "o"]
    assert dots == [[1, 2, 3], [1], [0, 0, 3], [0]]  # a ring marks the first
    (bar, *_) = ax.collections[0].get_segments()
    np.testing.assert_allclose(bar[:, 0], [2 - 3**-0.5, 2 + 3**-0.5])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["one seed", "this run", "mean, standard error"]
    ax = plots.seeds(pd.DataFrame({"a": [1.0, 2, 3]}), xlabel="points", bars=True)
    assert ax.patches[0].get_width() == 2 and ax.texts[0].get_text() == "2.0 ± 0.6"
    ax = plots.seeds(pd.DataFrame({"a": [2.0, 2], "b": [1.0, np.nan]}), xlabel="%", bars=True)
    assert [text.get_text() for text in ax.texts] == ["2.0", "1.0"]  # no error, so no dots
    assert [line for line in ax.lines if line.get_marker() == "o"] == []


def test_the_trade_off_keeps_its_axes_when_another_lambda_is_chosen():
    paths = {0: [(0.04, 0.7), (0.9, 0.4)], 0.5: [(0.04, 0.7), (0.01, 0.69)]}
    first, second = (plots.trade_off(paths, lam) for lam in paths)
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    np.testing.assert_allclose(second.lines[-1].get_xydata(), paths[0.5])
    assert {text.get_text() for text in first.texts} == {"λ = 0", "λ = 0.5", "start"}


def test_improvements_are_written_into_the_cells_and_zero_is_white():
    percent = pd.DataFrame(
        [[np.nan, -4.0], [1.26, 0.0]], index=["mml-rte", "mml-mnli"], columns=["rte", "mnli"]
    )
    ax = plots.improvements(percent, marked=percent < 0, label="%")
    image = ax.images[0]
    assert {(*text.get_position(), text.get_text()) for text in ax.texts} == {
        (1, 0, "-4.0"),
        (0, 1, "+1.3"),
        (1, 1, "+0.0"),
    }
    assert image.get_clim() == (-4, 4) and image.get_array().mask.tolist() == [
        [True, False],
        [False, False],
    ]
    white, below, above = (image.to_rgba(value) for value in (0.0, -4.0, 4.0))
    assert min(white) > 0.99 and below[0] > below[2] and above[2] > above[0]  # orange, blue
    assert [patch.get_center().tolist() for patch in ax.patches] == [[1, 0]]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        "mml-rte",
        "mml-mnli",
    ] and ax.get_xticklabels()[1].get_text() == "mnli"
    assert plots.improvements(percent, limit=10, digits=2).images[0].get_clim() == (-10, 10)
    assert [len(plots.improvements(percent, label=label).figure.axes) for label in ("%", "")] == [
        2,
        1,
    ]  # with and without a colour bar
    assert not list(plots.improvements(percent * np.nan).texts)


def test_a_grid_of_improvements_shares_its_colours():
    small = pd.DataFrame([[1.0, -2.0]], index=["mml"], columns=["rte", "qqp"])
    large = pd.DataFrame([[8.0]], index=["mml"], columns=["qqp"])
    marked = {"a": small < 0, "b": large < 0}
    axes = plots.improvement_grid({"a": small, "b": large}, marked=marked, ylabel="trained on")
    assert axes.shape == (1, 2) and {ax.images[0].get_clim() for ax in axes.flat} == {(-8, 8)}
    assert [len(ax.patches) for ax in axes.flat] == [1, 0]
    assert [ax.get_ylabel() for ax in axes.flat] == ["trained on", ""]
    assert len(axes[0][0].figure.axes) == 3  # one colour bar, at the right


def test_improvement_panels_have_a_mean_at_the_end_of_each_row():
    keys = ["split", "trained_on", "evaluated_on"]
    places = [(split, *pair) for split in ("train", "dev") for pair in (("a", "b"), ("b", "a"))]
    places += [(split, *pair) for split in ("train", "dev") for pair in (("c", "d"), ("d", "c"))]
    cells = pd.Series(np.arange(8.0), pd.MultiIndex.from_tuples(places, names=keys))
    axes = plots.improvement_panels(cells, {"one": ("a", "b"), "two": ("c", "d")}, title="all")
    assert [ax.get_title(loc="left") for ax in axes.flat] == [
        "one, train split",
        "two, train split",
        "one, dev split",
        "two, dev split",
    ]
    assert [text.get_text() for text in axes[1][0].texts] == ["+2.0", "+2.0", "+3.0", "+3.0"]
    assert [tick.get_text() for tick in axes[0][1].get_xticklabels()] == ["c", "d", "mean"]


def test_numbers_can_be_read_on_every_colour():
    """The text is white on dark cells and black elsewhere, with a WCAG 2 contrast above 3 to 1."""
    ax = plots.improvements(pd.DataFrame([np.linspace(-5, 5, 21)]))

    def luminance(colour):
        parts = np.array(matplotlib.colors.to_rgb(colour))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ (0.2126, 0.7152, 0.0722)

    for text, value in zip(ax.texts, np.linspace(-5, 5, 21)):
        cell = ax.images[0].to_rgba(value)[:3]
        low, high = sorted(map(luminance, (cell, text.get_color())))
        assert (high + 0.05) / (low + 0.05) > 3, (value, text.get_color())


def test_a_profile_is_a_step_function_for_each_method():
    shares = pd.DataFrame(
        {"bert": [0.0, 0.5, 1.0], "mml": [1.0, 1.0, 1.0]},
        index=pd.Index([1.0, 1.1, 1.5], name="tau"),
    )
    ax = plots.profile(shares)
    assert [line.get_xydata().tolist() for line in ax.lines] == [
        [[1.0, 0.0], [1.1, 0.5], [1.5, 1.0]],
        [[1.0, 1.0], [1.1, 1.0], [1.5, 1.0]],
    ]
    assert {line.get_drawstyle() for line in ax.lines} == {"steps-post"}
    looks = {(line.get_linestyle(), line.get_marker(), line.get_color()) for line in ax.lines}
    assert (
        len(looks) == 2 and len({look[0] for look in looks}) == 2
    )  # distinguishable without colour
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["bert", "mml"]
    assert (
        "τ" in ax.get_xlabel()
        and ax.get_ylabel() == "share of experiments"
        and ax.get_ylim()[0] == 0
    )


def test_sampling_shows_the_probabilities_and_the_draws():
    sizes = {"large": 32, "small": 1}
    sampler = TaskSampler("annealed", sizes=sizes, epochs=5, steps_per_epoch=40, seed=3)
    left, right = plots.sampling(sampler, steps=30)
    assert [line.get_label() for line in left.lines] == ["large", "small"]
    for line, first, last in zip(left.lines, (32 / 33, 1 / 33), (2 / 3, 1 / 3)):
        assert list(line.get_xdata()) == [1, 2, 3, 4, 5]
        assert [line.get_ydata()[i] for i in (0, -1)] == pytest.approx([first, last])
    image = right.images[0]
    tasks = [["large", "small"][i] for i in image.get_array().ravel()]
    assert tasks == [task for epoch in range(1, 6) for task in sampler.order(epoch)[:30]]
    for i, line in enumerate(left.lines):
        assert matplotlib.colors.to_rgba(line.get_color()) == image.cmap(image.norm(i))


def test_a_method_looks_the_same_in_every_figure():
    """The style of a method does not depend on the other methods in the figure.

    Series that are not methods get their style from their position.
    """
    every, two = looks(METHODS), looks(["mv-m", "mml"])
    assert two == {name: every[name] for name in ("mv-m", "mml")}
    assert len({str(look) for look in every.values()}) == len(METHODS) == 6
    other = looks(["mml", "ours"])
    assert [look["color"] for look in other.values()] == list(plots.COLOURS[:2])
    shares = pd.DataFrame({"mv-m": [0.5, 1.0], "mml": [0.2, 1.0]}, index=[1.0, 2.0])
    assert plots.profile(shares).lines[1].get_color() == every["mml"]["color"]


def test_a_run_at_work_has_its_losses_heads_and_strokes():
    rows = [[1, 0, 0.7, 4], [2, 1, 2.0, 4], [3, 0, 0.5, 3]]
    top, middle, below = plots.at_work(rows, tasks=["quora", "sts"])
    assert [line.get_xydata().tolist() for line in top.lines] == [[[1, 0.7], [3, 0.5]], [[2, 2]]]
    assert [line.get_ydata().tolist() for line in middle.lines] == [[4, 4, 3]]
    assert [list(one.get_positions()) for one in below.collections] == [[1, 3], [2]]


def test_bar_charts_side_by_side_have_one_axis_and_the_first_row_on_top():
    charts = {"steps": {"sst": 0.25, "sts": 0.75}, "pull": {"sst": 0.5, "sts": 0.5}}
    axes = plots.bars_side_by_side(charts, xlabels=["share a", "share b"], limit=1.1)
    assert [ax.get_title(loc="left") for ax in axes] == ["steps", "pull"]
    assert [ax.get_xlabel() for ax in axes] == ["share a", "share b"]
    assert [ax.get_xlim() for ax in axes] == [(0, 1.1)] * 2
    assert [bar.get_width() for bar in axes[0].patches] == [0.25, 0.75]
    top, bottom = (bar.get_y() for bar in axes[0].patches)
    assert axes[0].transData.transform([0, top])[1] > axes[0].transData.transform([0, bottom])[1]


def test_what_runs_reach_stands_against_their_time():
    """Of 1, 2 and 3 the mean is 2 and the standard error 1 over root 3."""
    reached = pd.DataFrame({"a": [1.0, 2, 3], "b": [4.0, 6, np.nan]})
    ax = plots.against_time(reached, [10, 20], ylabel="points")
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["a", "b"]
    assert [text.get_text() for text in ax.texts] == ["2.0 ± 0.6", "5.0 ± 1.0"]
    dots = [line for line in ax.lines if line.get_alpha() == 0.3]
    found = [line.get_xydata().tolist() for line in dots]
    assert found == [[[10, 1], [10, 2], [10, 3]], [[20, 4], [20, 6]]]


def test_learning_curves_show_the_error_of_the_rows():
    """An accuracy of 0.8 on 100 rows has a standard error of 0.04; the best epoch alone has it."""
    history = pd.DataFrame({"step": [10, 20], "accuracy": [0.5, 0.8], "best": [False, True]})
    losses = [*range(10, 0, -1), *[0] * 10]
    left, ax = plots.learning_curves({"one": (history, losses)}, rows=100)
    found = left.lines[0].get_xydata()
    np.testing.assert_allclose(found[[0, -1]], [[10, 5.5], [20, 0]], atol=1e-12)
    (segment,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(segment[:, 1], [0.76, 0.84])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one"]
