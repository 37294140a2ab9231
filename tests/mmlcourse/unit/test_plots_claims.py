"""The forest plot of claims shows the values that it is given: differences and intervals."""

import math

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mmlcourse.lessons.plots.claims import forest
from mmlcourse.studies.comparisons import Comparison, outcome, outcome_sentence, paired_bootstrap

UP, DOWN, OPEN = (
    Comparison(2.0, 1.0, 3.0, 0.95, 6),
    Comparison(-1.5, -2.5, -0.5, 0.95, 8),
    Comparison(0.4, -19.0, 19.8, 0.95, 6),
)
FEW, ONE = Comparison(1.0, 0.5, 1.5, 0.95, 3), Comparison(-0.5, -math.inf, math.inf, 0.95, 1)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize(
    "comparison, word",
    [
        (UP, "better"),
        (DOWN, "worse"),
        (OPEN, "undecided"),
        (FEW, "undecided"),
        (ONE, "undecided"),
    ],
)
def test_the_outcome_agrees_with_the_outcome_sentence(comparison, word):
    assert outcome(comparison) == word and outcome_sentence(comparison, "it works").startswith(
        f"it works: {word}"
    )
    assert outcome(UP, of_interest=3.0) == "no difference of interest"


def test_scores_that_differ_by_rounding_alone_are_equal():
    first, second = [0.1 + 0.2] * 6, [0.3] * 6
    assert first[0] > second[0]
    assert outcome(paired_bootstrap(first, second)) == "no difference of interest"
    assert outcome(paired_bootstrap(second, first)) == "no difference of interest"
    assert outcome(paired_bootstrap([x + 1e-6 for x in first], second)) == "better"


def marks_and_intervals(ax):
    """Return the marks {y: (marker, x)} and the intervals {y: [low, high]}, without end marks."""
    marks = {
        line.get_ydata()[0]: (line.get_marker(), line.get_xdata()[0])
        for line in ax.lines
        if line.get_marker() in "osD" and len(line.get_xdata()) == 1
    }
    intervals = {
        line.get_ydata()[0]: list(line.get_xdata())
        for line in ax.lines
        if len(line.get_xdata()) == 2 and line.get_ydata()[0] == line.get_ydata()[1]
    }
    return marks, intervals


def test_marks_intervals_groups_and_the_line_at_zero():
    ax = forest(
        [
            ("MML", "better", UP),
            ("MML", "worse", DOWN),
            ("PALs", "unclear", OPEN),
            ("PALs", "one run", ONE),
        ],
        title="all",
    )
    names = [label.get_text().strip() for label in ax.get_yticklabels()]
    assert names == ["MML", "PALs", "better", "worse", "unclear", "one run"]
    places = dict(zip(names, ax.get_yticks()))
    marks, intervals = marks_and_intervals(ax)
    assert {name: marks[places[name]] for name in names[2:]} == {
        "better": ("o", 2.0),
        "worse": ("s", -1.5),
        "unclear": ("D", 0.4),
        "one run": ("D", -0.5),
    }
    assert intervals[places["better"]] == [1.0, 3.0] and intervals[places["worse"]] == [-2.5, -0.5]
    limit = ax.get_xlim()[1]
    assert (
        ax.get_xlim() == (-limit, limit)
        and 3.0 < limit < 19.0
        and intervals[places["unclear"]] == [-limit, limit]
        and places["one run"] not in intervals
    )
    assert (
        ax.lines[0].get_xdata() == [0, 0]
        and places["MML"] < places["better"] < places["worse"] < places["PALs"] < places["unclear"]
    )
    assert (
        ax.get_ylim()[0] > max(places.values()) > min(places.values()) > ax.get_ylim()[1]
    )  # the first claim is at the top
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "better",
        "worse",
        "undecided",
    ]


def test_claims_stand_below_their_group_in_any_order():
    ax = forest([("A", "one", UP), ("B", "two", DOWN), ("A", "three", OPEN)])
    names = [label.get_text().strip() for label in ax.get_yticklabels()]
    places = dict(zip(names, ax.get_yticks()))
    assert sorted(names, key=places.get) == ["A", "one", "three", "B", "two"]
    assert marks_and_intervals(ax)[0][places["two"]] == ("s", -1.5)


def test_an_interval_beyond_the_axis_ends_in_an_arrow_and_is_written_in_full():
    small = Comparison(-0.04, -1.0, 0.96, 0.95, 6)
    claims = [("a", "open", OPEN), ("a", "one", ONE), ("a", "up", UP), ("a", "few", FEW)]
    ax = forest([*claims, ("a", "small", small)], limit=4)
    ends = [
        (line.get_marker(), line.get_xdata()[0])
        for line in ax.lines
        if line.get_marker() in "<>|" and len(line.get_xdata()) == 1
    ]
    assert ends == [("<", -4), (">", 4), ("|", 1.0), ("|", 3.0), ("|", -1.0), ("|", 0.96)]
    assert [text.get_text() for text in ax.texts] == [
        "+0.4  (-19.0 to +19.8; 6)",
        "-0.5  (no interval; 1)",
        "+2.0  (+1.0 to +3.0; 6)",
        "+1.0  (no interval; 3)",
        "0.0  (-1.0 to +1.0; 6)",
    ]


def test_a_name_of_two_lines_has_more_room():
    names = ("one", "two\nlines", "two\nmore", "last")
    places = sorted(forest([("a", name, UP) for name in names]).get_yticks())
    assert [round(b - a, 2) for a, b in zip(places, places[1:])] == [1.0, 1.2, 1.4, 1.2]


def test_the_limits_of_the_axis():
    """The axis contains all definite intervals.

    An indefinite interval is included only if it lies within four times their range.
    """
    wide = Comparison(-0.2, -5.0, 4.0, 0.95, 6)
    assert (
        5 < forest([("a", "up", UP), ("a", "wide", wide)]).get_xlim()[1] < 6
    )  # 5 is less than 4 times 3
    assert 3 < forest([("a", "up", UP), ("a", "open", OPEN)]).get_xlim()[1] < 4
    assert 1 < forest([("a", "few", FEW)]).get_xlim()[1] < 1.5


def test_every_difference_is_inside_the_axis():
    for claims in (
        [OPEN],
        [ONE],
        [UP, ONE],
        [Comparison(0.0, -1.0, 1.0, 0.95, 6)],
        [Comparison(0.0, 0.0, 0.0, 0.95, 6)],
    ):
        ax = forest([("a", str(i), one) for i, one in enumerate(claims)])
        assert all(abs(one.difference) < ax.get_xlim()[1] for one in claims)


def test_the_smallest_difference_of_interest_changes_the_marker():
    marks = marks_and_intervals(forest([("a", "of interest", UP, 3.0), ("a", "at all", UP)]))[0]
    assert [mark for mark, _ in marks.values()] == ["D", "o"]


def test_one_run_that_is_far_away_does_not_hide_the_intervals():
    """Its mark is an arrow at the edge, and the text beside it has the number."""
    far = Comparison(-18.5, -math.inf, math.inf, 0.95, 1)
    ax = forest([("A", "near", UP), ("A", "far", far)])
    limit = ax.get_xlim()[1]
    assert 3.0 < limit < 6.0
    arrows = [line for line in ax.lines if line.get_marker() == "<"]
    assert [list(line.get_xdata()) for line in arrows] == [[-limit]]
    assert any(text.get_text().startswith("-18.5") for text in ax.texts)
