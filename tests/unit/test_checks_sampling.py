"""The checks of notebook 08 accept the solution and name each known mistake."""

import numpy as np
import pytest

from mmlkit.checks import check_annealing, check_forgetting
from mmlkit.training.sampling import TaskSampler


def stub(*arguments): ...


def raises(*arguments):
    raise TypeError("a draft")


def falls(e, E):
    return 1 - 0.8 * (e - 1) / (E - 1)


def annealing(
    alpha=falls,
    raised=lambda N, alpha: N**alpha,
    divided=lambda raised: sum(raised.values()),
    alone=lambda E: E == 1,
):
    """The solution with one part replaced."""

    def function(sizes, epoch, epochs):
        power = 1.0 if alone(epochs) else alpha(epoch, epochs)
        weights = {task: raised(N, power) for task, N in sizes.items()}
        return {task: weight / divided(weights) for task, weight in weights.items()}

    return function


def raised_last(sizes, epoch, epochs):
    return {task: (N / sum(sizes.values())) ** falls(epoch, epochs) for task, N in sizes.items()}


def nothing_alone(sizes, epoch, epochs):
    with np.errstate(all="ignore"):
        return annealing(
            lambda e, E: 1 - 0.8 * np.float64(e - 1) / np.float64(E - 1), alone=lambda E: False
        )(sizes, epoch, epochs)


ANNEALINGS = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (
        lambda *_: [0.5, 0.3, 0.2],
        "expected a dict with a number for each of quora, sst, sts, found [0.5, 0.3, 0.2].",
    ),
    (
        lambda *_: {"sst": 1.0},
        "expected a dict with a number for each of quora, sst, sts, found {'sst': 1.0}.",
    ),
    (lambda *_: 0.5, "expected a dict with a number for each of quora, sst, sts, found 0.5."),
    (
        annealing(lambda e, E: 1 - 0.8 * e / (E - 1)),
        "epochs count from 1, so alpha is not 1 in the first.",
    ),
    (annealing(lambda e, E: 1 - 0.8 * (e - 1) / E), "alpha is not 0.2 in the last epoch."),
    (annealing(lambda e, E: 1 - 0.8 * e / E), "alpha is not 1 in the first epoch."),
    (annealing(lambda e, E: 1 - (e - 1) / (E - 1)), "alpha falls to 0, not to 0.2."),
    (annealing(lambda e, E: 1 - 0.2 * (e - 1) / (E - 1)), "alpha ends at 0.8, not at 0.2."),
    (annealing(lambda e, E: 0.2 + 0.8 * (e - 1) / (E - 1)), "alpha rises."),
    (
        annealing(lambda e, E: 1.0),
        "alpha has no effect; it is an exponent, as a factor it would cancel.",
    ),
    (
        annealing(raised=lambda N, alpha: N * alpha),
        "alpha has no effect; it is an exponent, as a factor it would cancel.",
    ),
    (annealing(divided=lambda weights: 1), "the sum over tasks is not 1."),
    (raised_last, "N is divided by the sum before it is raised to alpha."),
    (annealing(divided=lambda weights: sum(weights.values()) / 100), "this is in percent."),
    (
        annealing(lambda e, E: 1 - (e - 1) / (E - 1), divided=lambda weights: 1),
        "alpha falls to 0, not to 0.2, and the sum over tasks is not 1.",
    ),
    (
        annealing(alone=lambda E: False),
        (
            "it stopped with ZeroDivisionError: float division by zero. With one epoch alone E "
            "- 1 is 0; take alpha = 1."
        ),
    ),
    (
        nothing_alone,
        (
            "for ({'quora': 1600, 'sst': 400, 'sts': 100}, 1, 1) it returns [nan, nan, nan], "
            "expected [0.761905, 0.190476, 0.047619]. With one epoch alone E - 1 is 0; take "
            "alpha = 1."
        ),
    ),
    (
        annealing(lambda e, E: 0.5),
        (
            "for ({'quora': 1600, 'sst': 400, 'sts': 100}, 1, 5) it returns [0.571429, "
            "0.285714, 0.142857], expected [0.761905, 0.190476, 0.047619]."
        ),
    ),
]


def test_annealing_worked_by_hand(capsys):
    """Sizes 16 : 4 : 1; alpha 1, 0.6 and 0.2 in epochs 1, 3 and 5 of 5.

    16^0.6 = 5.278, 4^0.6 = 2.297; 16^0.2 = 1.741, 4^0.2 = 1.320.
    """
    sizes = {"quora": 1600, "sst": 400, "sts": 100}
    assert list(annealing()(sizes, 1, 5).values()) == pytest.approx([16 / 21, 4 / 21, 1 / 21])
    assert list(annealing()(sizes, 3, 5).values()) == pytest.approx(
        [5.278 / 8.575, 2.297 / 8.575, 1 / 8.575], abs=1e-4
    )
    assert annealing()(sizes, 5, 5) == pytest.approx(
        TaskSampler("annealed", sizes=sizes, epochs=5).probabilities(5)
    )
    assert check_annealing(annealing()) and capsys.readouterr().out == "annealing: right.\n"
    assert check_annealing(
        lambda sizes, epoch, epochs: TaskSampler(
            "annealed", sizes=sizes, epochs=epochs
        ).probabilities(epoch)
    )


def forgetting(history):
    return history[:-1].max(axis=0) - history[-1]


FORGETTINGS = [
    (stub, "it returns nothing so far."),
    (raises, "it stopped with TypeError: a draft."),
    (lambda history: "much", "expected numbers of shape [3], found 'much'."),
    (lambda history: forgetting(history.T), "expected numbers of shape [3], found shape [4]."),
    (lambda history: forgetting(history).mean(), "expected numbers of shape [3], found shape []."),
    (lambda history: history.max(axis=0) - history[-1], "the last row is among those compared."),
    (lambda history: -forgetting(history), "the sign is wrong; a loss is positive."),
    (
        lambda history: history[-1] - history.max(axis=0),
        "the last row is among those compared, and the sign is wrong; a loss is positive.",
    ),
    (lambda history: history[0] - history[-1], "this is the first row minus the last."),
    (lambda history: history[-2] - history[-1], "only the row before the last is compared."),
    (
        lambda history: history[:-1].mean(axis=0) - history[-1],
        "this is the mean of the earlier rows, not the best.",
    ),
    (lambda history: history[:-1].max() - history[-1], "one best is used for all tasks."),
    (lambda history: 1 - history[-1] / history[:-1].max(axis=0), "this is a share of the best."),
    (
        lambda history: forgetting(history) + 1,
        "it returns [1.2, 1.1, 0.61], expected [0.2, 0.1, -0.39].",
    ),
]


def test_forgetting_worked_by_hand(capsys):
    """Best before the last 0.6, 0.8, 0.21; last 0.4, 0.7, 0.6."""
    history = np.array(
        [[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]]
    )
    assert forgetting(history) == pytest.approx([0.2, 0.1, -0.39])
    assert check_forgetting(forgetting) and capsys.readouterr().out == "forgetting: right.\n"
    assert check_forgetting(lambda history: list(forgetting(history)))


@pytest.mark.parametrize(
    "check, name, function, said",
    [
        *((check_annealing, "annealing", *case) for case in ANNEALINGS),
        *((check_forgetting, "forgetting", *case) for case in FORGETTINGS),
    ],
)
def test_mistakes_are_named(check, name, function, said, capsys):
    assert check(function) is False
    assert (out := capsys.readouterr().out).startswith(f"{name}: not yet: {said}"), out


def test_the_reader_cannot_pass_by_changing_the_arguments():
    def emptied(sizes, epoch, epochs):
        sizes.clear()
        return {"quora": 0, "sst": 0, "sts": 0}

    def filled(history):
        history.fill(0)
        return history[0]

    assert check_annealing(emptied) is False and check_forgetting(filled) is False
