"""The checks of notebooks 08 and 09: silent about the solution, and right about each known mistake."""

import numpy as np
import pytest
import torch

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.checks.several_tasks import check_annealing, check_forgetting, check_pal_parameters, check_projected_layer
from mmlkit.pals.projected import add_pals
from mmlkit.training.sampling import TaskSampler


def stub(*arguments):
    ...


def raises(*arguments):
    raise TypeError("a draft")


def falls(e, E):
    return 1 - 0.8 * (e - 1) / (E - 1)


def annealing(alpha=falls, raised=lambda N, alpha: N**alpha, divided=lambda raised: sum(raised.values()), alone=lambda E: E == 1):
    """The solution with one part replaced."""
    def function(sizes, epoch, epochs):
        power = 1.0 if alone(epochs) else alpha(epoch, epochs)
        weights = {task: raised(N, power) for task, N in sizes.items()}
        return {task: weight / divided(weights) for task, weight in weights.items()}
    return function


def raised_last(sizes, epoch, epochs):
    return {task: (N / sum(sizes.values()))**falls(epoch, epochs) for task, N in sizes.items()}


def nothing_alone(sizes, epoch, epochs):
    with np.errstate(all="ignore"):
        return annealing(lambda e, E: 1 - 0.8 * np.float64(e - 1) / np.float64(E - 1), alone=lambda E: False)(sizes, epoch, epochs)


ANNEALINGS = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"),
    (lambda *_: [0.5, 0.3, 0.2], "a probability for each of quora, sst, sts, found [0.5"),
    (lambda *_: {"sst": 1.0}, "a probability for each of quora"), (lambda *_: 0.5, "a probability for each of quora"),
    (annealing(lambda e, E: 1 - 0.8 * e / (E - 1)), "epochs count from 1"), (annealing(lambda e, E: 1 - 0.8 * (e - 1) / E), "divide by E - 1"),
    (annealing(lambda e, E: 1 - 0.8 * e / E), "the first epoch should have alpha 1 and the last 0.2"),
    (annealing(lambda e, E: 1 - (e - 1) / (E - 1)), "to 0.2, not to 0"),
    (annealing(lambda e, E: 1 - 0.2 * (e - 1) / (E - 1)), "0.8 is what it loses"),
    (annealing(lambda e, E: 0.2 + 0.8 * (e - 1) / (E - 1)), "here it rises"),
    (annealing(lambda e, E: 1.0), "Alpha is an exponent"), (annealing(raised=lambda N, alpha: N * alpha), "as a factor it would cancel"),
    (annealing(divided=lambda weights: 1), "divide by the sum over tasks"), (raised_last, "raise first, then divide"),
    (annealing(divided=lambda weights: sum(weights.values()) / 100), "not per cent"),
    (annealing(lambda e, E: 1 - (e - 1) / (E - 1), divided=lambda weights: 1), "to 0.2, not to 0. And divide by the sum"),
    (annealing(alone=lambda E: False), "with one epoch alone"), (nothing_alone, "with one epoch alone"),
    (annealing(lambda e, E: 0.5), "the probabilities differ")]


def test_annealing_worked_by_hand(capsys):
    """Sizes 16 : 4 : 1; alpha 1, 0.6 and 0.2 in epochs 1, 3 and 5 of 5. 16^0.6 = 5.278, 4^0.6 = 2.297; 16^0.2 = 1.741, 4^0.2 = 1.320."""
    sizes = {"quora": 1600, "sst": 400, "sts": 100}
    assert list(annealing()(sizes, 1, 5).values()) == pytest.approx([16 / 21, 4 / 21, 1 / 21])
    assert list(annealing()(sizes, 3, 5).values()) == pytest.approx([5.278 / 8.575, 2.297 / 8.575, 1 / 8.575], abs=1e-4)
    assert annealing()(sizes, 5, 5) == pytest.approx(TaskSampler("annealed", sizes=sizes, epochs=5).probabilities(5))
    assert check_annealing(annealing()) and capsys.readouterr().out == "annealing: right.\n"
    assert check_annealing(lambda sizes, epoch, epochs: TaskSampler("annealed", sizes=sizes, epochs=epochs).probabilities(epoch))


def forgetting(history):
    return history[:-1].max(axis=0) - history[-1]


FORGETTINGS = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"),
    (lambda history: "much", "a number for each of the 3 tasks, found 'much'"),
    (lambda history: forgetting(history.T), "(columns), found shape [4]"),
    (lambda history: forgetting(history).mean(), "(columns), found shape []"),
    (lambda history: history.max(axis=0) - history[-1], "leave it out"), (lambda history: -forgetting(history), "the sign is turned: what"),
    (lambda history: history[-1] - history.max(axis=0), "the sign is turned, and the last"),
    (lambda history: history[0] - history[-1], "the first measurement minus the last"),
    (lambda history: history[-2] - history[-1], "since the measurement before"),
    (lambda history: history[:-1].mean(axis=0) - history[-1], "the mean of the earlier ones"),
    (lambda history: history[:-1].max() - history[-1], "one best for all tasks"),
    (lambda history: 1 - history[-1] / history[:-1].max(axis=0), "a share of the best"),
    (lambda history: forgetting(history) + 1, "the numbers differ")]


def test_forgetting_worked_by_hand(capsys):
    """Best before the last 0.6, 0.8, 0.21; last 0.4, 0.7, 0.6."""
    history = np.array([[0.20, 0.50, 0.10], [0.60, 0.52, 0.21], [0.55, 0.80, 0.15], [0.40, 0.70, 0.60]])
    assert forgetting(history) == pytest.approx([0.2, 0.1, -0.39])
    assert check_forgetting(forgetting) and capsys.readouterr().out == "forgetting: right.\n"
    assert check_forgetting(lambda history: list(forgetting(history)))


def count(ends=lambda D, S, L: 2 * D * S + D + S, middle=lambda D, S, L: 3 * L * (S * S + S), times=lambda T: T):
    """The solution with one part replaced."""
    return lambda D, S, L, T: times(T) * (ends(D, S, L) + middle(D, S, L))


COUNTS = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"), (lambda *_: "many", "expected one number, found 'many'"),
    (lambda *_: True, "expected one number"),
    (count(ends=lambda D, S, L: 2 * D * S), "V^E and V^D have biases"),
    (count(ends=lambda D, S, L: L * (2 * D * S + D + S)), "one pair for all layers"),
    (count(ends=lambda D, S, L: D * S + S), "V^D is missing"), (count(ends=lambda D, S, L: 2 * D * S + 2 * S), "as many numbers as its output"),
    (count(ends=lambda D, S, L: 2 * D * S + 2 * D), "as many numbers as its output"), (count(ends=lambda D, S, L: 0), "V^E and V^D are missing"),
    (count(middle=lambda D, S, L: 3 * L * S * S), "query, key and value have biases"),
    (count(middle=lambda D, S, L: 4 * L * (S * S + S)), "no output projection"),
    (count(middle=lambda D, S, L: 3 * (S * S + S)), "each layer has a query"),
    (count(middle=lambda D, S, L: L * (S * S + S)), "attention has three maps"),
    (count(middle=lambda D, S, L: 3 * L * (D * D + D)), "S wide, not D"), (count(middle=lambda D, S, L: 0), "query, key and value are missing"),
    (count(times=lambda T: 1), "every task has its own"),
    (count(lambda D, S, L: 2 * D * S, lambda D, S, L: 3 * L * S * S), "V^E and V^D have biases: S and D numbers. And query, key"),
    (count(times=lambda T: T + 1), "it gives 822, expected 548")]


def test_pal_parameters_worked_by_hand(capsys):
    """D = 10, S = 4, L = 3: 10*4 + 4 + 4*10 + 10 = 94, and 3 maps of 4*4 + 4 in 3 layers = 180; 274 a task. Of BERT-base: 1,819,836."""
    assert count()(10, 4, 3, 2) == 2 * (94 + 180) == 548 and count()(768, 204, 12, 1) == 1_819_836
    with torch.device("meta"):
        encoder = add_pals(BertModel(BertConfig.tiny(hidden_size=10, num_attention_heads=2, num_hidden_layers=3)), ["sst", "sts"], 4, 2)
    assert sum(parameter.numel() for parameter in encoder.pals.parameters()) == 548
    assert check_pal_parameters(count()) and capsys.readouterr().out == "PAL parameters: right.\n"
    assert check_pal_parameters(lambda *sizes: float(count()(*sizes)))


def layer(h, MH, FFN, TS, LN):
    a = LN(h + MH(h))
    return LN(a + FFN(a) + TS(h))


def changed(end):
    """A layer that ends otherwise."""
    return lambda h, MH, FFN, TS, LN: end(h, LN(h + MH(h)), FFN, TS, LN)


def early(h, MH, FFN, TS, LN):
    a = LN(h + MH(h) + TS(h))
    return LN(a + FFN(a))


LAYERS = [
    (stub, "returns nothing"), (raises, "stopped with TypeError: a draft"), (lambda *_: 3, "of shape [3, 4], found int"),
    (lambda h, *_: h[0], "found [4]"),
    (changed(lambda h, a, FFN, TS, LN: LN(h + FFN(a) + TS(h))), "the report's formula drops a"),
    (changed(lambda h, a, FFN, TS, LN: LN(FFN(a) + TS(h))), "residual is missing: add a"),
    (changed(lambda h, a, FFN, TS, LN: LN(a + FFN(a) + TS(a))), "the layer's input h, not a"),
    (changed(lambda h, a, FFN, TS, LN: LN(a + FFN(a))), "TS is missing"),
    (changed(lambda h, a, FFN, TS, LN: LN(a + FFN(a) + TS(LN(a + FFN(a))))), "not its output"),
    (changed(lambda h, a, FFN, TS, LN: LN(a + FFN(a)) + TS(h)), "before the last LayerNorm"),
    (changed(lambda h, a, FFN, TS, LN: a + FFN(a) + TS(h)), "the last LayerNorm is missing"), (early, "the second half of the layer"),
    (changed(lambda h, a, FFN, TS, LN: LN(h + FFN(h) + TS(h))), "attention is missing"),
    (changed(lambda h, a, FFN, TS, LN: LN(a + FFN(h) + TS(h))), "network reads a, not h"),
    (changed(lambda h, a, FFN, TS, LN: LN(a + FFN(a + TS(h)))), "beside the feed-forward network"),
    (changed(lambda h, a, FFN, TS, LN: LN(h + FFN(a) + TS(a))), "the report's formula drops a. And TS reads"),
    (changed(lambda h, a, FFN, TS, LN: LN(a)), "the numbers differ")]


def test_the_projected_layer_is_the_librarys(capsys):
    """A layer of the encoder with a PAL, its parts handed to the solution."""
    torch.manual_seed(0)
    encoder = add_pals(BertModel(BertConfig.tiny(num_hidden_layers=1)), ["sst"], 12, 3, init="normal").eval()
    part, (bert,), x = encoder.pals.part("sst"), encoder.encoder.layer, torch.randn(1, 3, 32)
    ends = iter((bert.attention.output, bert.output))       # each half normalises with its own weights

    def LN(summed):
        return next(ends).LayerNorm(summed)
    found = layer(x, lambda h: bert.attention.output.dense(bert.attention.self(h)), lambda a: bert.output.dense(bert.intermediate(a)),
                  lambda h: part(h, 0), LN)
    torch.testing.assert_close(found, bert(x, None, **part.at_layer(0, x, None, None)))
    assert (found - bert(x)).abs().max() > 1e-4
    assert check_projected_layer(layer) and capsys.readouterr().out == "projected layer: right.\n"


@pytest.mark.parametrize("check, name, function, said", [
    *((check_annealing, "annealing", *case) for case in ANNEALINGS), *((check_forgetting, "forgetting", *case) for case in FORGETTINGS),
    *((check_pal_parameters, "PAL parameters", *case) for case in COUNTS), *((check_projected_layer, "projected layer", *case) for case in LAYERS)])
def test_mistakes_are_named(check, name, function, said, capsys):
    assert check(function) is False
    assert (out := capsys.readouterr().out).startswith(f"{name}: not yet: ") and said in out, out


@pytest.mark.parametrize("check, first", [(check_annealing, "clear"), (check_forgetting, "fill"), (check_projected_layer, "zero_")])
def test_the_reader_cannot_pass_by_changing_the_arguments(check, first, capsys):
    def function(values, *rest):
        getattr(values, first)(*([0] if first == "fill" else []))
        return {"quora": 0, "sst": 0, "sts": 0} if first == "clear" else values if first == "zero_" else values[0]
    assert check(function) is False
