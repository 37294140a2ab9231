"""The checks of notebook 10 accept the solution and name each known mistake."""

import numpy as np
import pytest

from mmlkit.checks import check_annealing, check_forgetting
from mmlkit.training.sampling import TaskSampler


def stub(*arguments): ...


def raises(*arguments):
    raise TypeError("a draft")


def linear_alpha(e, E):
    return 1 - 0.8 * (e - 1) / (E - 1)


def annealing_solution(
    alpha=linear_alpha,
    weigh=lambda N, alpha: N**alpha,
    normaliser=lambda weights: sum(weights.values()),
    is_single_epoch=lambda E: E == 1,
):
    """Return the solution. Each argument replaces one of its parts."""

    def function(sizes, epoch, epochs):
        power = 1.0 if is_single_epoch(epochs) else alpha(epoch, epochs)
        weights = {task: weigh(N, power) for task, N in sizes.items()}
        return {task: weight / normaliser(weights) for task, weight in weights.items()}

    return function


def normalises_before_the_power(sizes, epoch, epochs):
    return {
        task: (N / sum(sizes.values())) ** linear_alpha(epoch, epochs) for task, N in sizes.items()
    }


def ignores_a_single_epoch(sizes, epoch, epochs):
    with np.errstate(all="ignore"):
        return annealing_solution(
            lambda e, E: 1 - 0.8 * np.float64(e - 1) / np.float64(E - 1),
            is_single_epoch=lambda E: False,
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
        annealing_solution(lambda e, E: 1 - 0.8 * e / (E - 1)),
        "epochs count from 1, so alpha is not 1 in the first.",
    ),
    (annealing_solution(lambda e, E: 1 - 0.8 * (e - 1) / E), "alpha is not 0.2 in the last epoch."),
    (annealing_solution(lambda e, E: 1 - 0.8 * e / E), "alpha is not 1 in the first epoch."),
    (annealing_solution(lambda e, E: 1 - (e - 1) / (E - 1)), "alpha falls to 0, not to 0.2."),
    (
        annealing_solution(lambda e, E: 1 - 0.2 * (e - 1) / (E - 1)),
        "alpha ends at 0.8, not at 0.2.",
    ),
    (annealing_solution(lambda e, E: 0.2 + 0.8 * (e - 1) / (E - 1)), "alpha rises."),
    (
        annealing_solution(lambda e, E: 1.0),
        "alpha has no effect; it is an exponent, as a factor it would cancel.",
    ),
    (
        annealing_solution(weigh=lambda N, alpha: N * alpha),
        "alpha has no effect; it is an exponent, as a factor it would cancel.",
    ),
    (annealing_solution(normaliser=lambda weights: 1), "the sum over tasks is not 1."),
    (normalises_before_the_power, "N is divided by the sum before it is raised to alpha."),
    (
        annealing_solution(normaliser=lambda weights: sum(weights.values()) / 100),
        "this is in percent.",
    ),
    (
        annealing_solution(lambda e, E: 1 - (e - 1) / (E - 1), normaliser=lambda weights: 1),
        "alpha falls to 0, not to 0.2, and the sum over tasks is not 1.",
    ),
    (
        annealing_solution(is_single_epoch=lambda E: False),
        (
            "it stopped with ZeroDivisionError: float division by zero. With one epoch alone E "
            "- 1 is 0; take alpha = 1."
        ),
    ),
    (
        ignores_a_single_epoch,
        (
            "for ({'quora': 1600, 'sst': 400, 'sts': 100}, 1, 1) it returns [nan, nan, nan], "
            "expected [0.761905, 0.190476, 0.047619]. With one epoch alone E - 1 is 0; take "
            "alpha = 1."
        ),
    ),
    (
        annealing_solution(lambda e, E: 0.5),
        (
            "for ({'quora': 1600, 'sst': 400, 'sts': 100}, 1, 5) it returns [0.571429, "
            "0.285714, 0.142857], expected [0.761905, 0.190476, 0.047619]."
        ),
    ),
]


def test_annealing_worked_by_hand(capsys):
    """The sizes are 16 : 4 : 1; alpha is 1, 0.6 and 0.2 in epochs 1, 3 and 5 of 5.

    16^0.6 = 5.278 and 4^0.6 = 2.297; 16^0.2 = 1.741 and 4^0.2 = 1.320.
    """
    sizes = {"quora": 1600, "sst": 400, "sts": 100}
    assert list(annealing_solution()(sizes, 1, 5).values()) == pytest.approx(
        [16 / 21, 4 / 21, 1 / 21]
    )
    assert list(annealing_solution()(sizes, 3, 5).values()) == pytest.approx(
        [5.278 / 8.575, 2.297 / 8.575, 1 / 8.575], abs=1e-4
    )
    assert annealing_solution()(sizes, 5, 5) == pytest.approx(
        TaskSampler("annealed", sizes=sizes, epochs=5).probabilities(5)
    )
    assert (
        check_annealing(annealing_solution()) and capsys.readouterr().out == "annealing: right.\n"
    )
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
    """The best earlier accuracies are 0.6, 0.8 and 0.21; the last ones are 0.4, 0.7 and 0.6."""
    history = np.array(
        [[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]]
    )
    assert forgetting(history) == pytest.approx([0.2, 0.1, -0.39])
    assert check_forgetting(forgetting) and capsys.readouterr().out == "forgetting: right.\n"
    assert check_forgetting(lambda history: list(forgetting(history)))


@pytest.mark.parametrize(
    "check, name, function, message",
    [
        *((check_annealing, "annealing", *case) for case in ANNEALINGS),
        *((check_forgetting, "forgetting", *case) for case in FORGETTINGS),
    ],
)
def test_mistakes_are_named(check, name, function, message, capsys):
    assert check(function) is False
    assert (out := capsys.readouterr().out).startswith(f"{name}: not yet: {message}"), out


def test_changing_the_arguments_in_place_does_not_pass():
    def clears_sizes(sizes, epoch, epochs):
        sizes.clear()
        return {"quora": 0, "sst": 0, "sts": 0}

    def zeroes_history(history):
        history.fill(0)
        return history[0]

    assert check_annealing(clears_sizes) is False and check_forgetting(zeroes_history) is False
