"""The checks of notebook 11 accept the solution and name each known mistake."""

import pytest
import torch

from mmlcourse.lessons.checks import (
    check_corrected_form,
    check_equal_size,
    check_pal_parameters,
    check_zero_start,
)
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.pals.task_parts import add_pals


def count_solution(
    projections=lambda D, S, L: 2 * D * S + D + S,
    attention_maps=lambda D, S, L: 3 * L * (S * S + S),
    num_tasks=lambda T: T,
):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda D, S, L, T: num_tasks(T) * (projections(D, S, L) + attention_maps(D, S, L))


COUNTS = [
    (lambda *_: "many", "expected one number, found 'many'."),
    (lambda *_: True, "expected one number, found True."),
    (count_solution(projections=lambda D, S, L: 2 * D * S), "V^E and V^D have no biases."),
    (
        count_solution(projections=lambda D, S, L: L * (2 * D * S + D + S)),
        "V^E and V^D are counted in every layer.",
    ),
    (count_solution(projections=lambda D, S, L: D * S + S), "V^D is missing."),
    (
        count_solution(projections=lambda D, S, L: 2 * D * S + 2 * S),
        "the bias of V^D has S numbers, not D.",
    ),
    (
        count_solution(projections=lambda D, S, L: 2 * D * S + 2 * D),
        "the bias of V^E has D numbers, not S.",
    ),
    (count_solution(projections=lambda D, S, L: 0), "V^E and V^D are missing."),
    (
        count_solution(attention_maps=lambda D, S, L: 3 * L * S * S),
        "query, key and value have no biases.",
    ),
    (
        count_solution(attention_maps=lambda D, S, L: 4 * L * (S * S + S)),
        "an output projection is counted; attention has three maps.",
    ),
    (
        count_solution(attention_maps=lambda D, S, L: 3 * (S * S + S)),
        "query, key and value are counted once, not in each layer.",
    ),
    (
        count_solution(attention_maps=lambda D, S, L: L * (S * S + S)),
        "attention has one map, not three.",
    ),
    (
        count_solution(attention_maps=lambda D, S, L: 3 * L * (D * D + D)),
        "attention is D wide, not S.",
    ),
    (count_solution(attention_maps=lambda D, S, L: 0), "query, key and value are missing."),
    (count_solution(num_tasks=lambda T: 1), "this is one task; every task has its own."),
    (
        count_solution(lambda D, S, L: 2 * D * S, lambda D, S, L: 3 * L * S * S),
        "V^E and V^D have no biases, and query, key and value have no biases.",
    ),
    (count_solution(num_tasks=lambda T: T + 1), "for (10, 4, 3, 2) it returns 822, expected 548."),
]


def test_pal_parameters_worked_by_hand(capsys):
    """With D = 10, S = 4 and L = 3, V^E and V^D have 10*4 + 4 + 4*10 + 10 = 94 parameters.

    Three maps of 4*4 + 4 parameters in 3 layers have 180, so one task has 274. On BERT-base one
    task has 1,819,836.
    """
    assert (
        count_solution()(10, 4, 3, 2) == 2 * (94 + 180) == 548
        and count_solution()(768, 204, 12, 1) == 1_819_836
    )
    with torch.device("meta"):
        encoder = add_pals(
            BertModel(BertConfig.tiny(hidden_size=10, num_attention_heads=2, num_hidden_layers=3)),
            ["sst", "sts"],
            4,
            2,
        )
    assert sum(parameter.numel() for parameter in encoder.pals.parameters()) == 548
    assert (
        check_pal_parameters(count_solution())
        and capsys.readouterr().out == "PAL parameters: right.\n"
    )
    assert check_pal_parameters(lambda *sizes: float(count_solution()(*sizes)))


def layer(h, MH, FFN, TS, LN):
    a = LN(h + MH(h))
    return LN(a + FFN(a) + TS(h))


def test_the_projected_layer_equals_the_library():
    """An encoder layer with a PAL equals the solution, computed with the parts of that layer."""
    torch.manual_seed(0)
    encoder = add_pals(
        BertModel(BertConfig.tiny(num_hidden_layers=1)), ["sst"], 12, 3, init="normal"
    ).eval()
    part, (bert,), x = encoder.pals.part("sst"), encoder.encoder.layer, torch.randn(1, 3, 32)
    halves = iter((bert.attention.output, bert.output))  # each half has its own LayerNorm

    def LN(summed):
        return next(halves).LayerNorm(summed)

    found = layer(
        x,
        lambda h: bert.attention.output.dense(bert.attention.self(h)),
        lambda a: bert.output.dense(bert.intermediate(a)),
        lambda h: part(h, 0),
        LN,
    )
    torch.testing.assert_close(found, bert(x, None, **part.layer_inputs(0, x, None, None)))
    assert (found - bert(x)).abs().max() > 1e-4


def equal_size(D, L, width, maps=3, cost=None, sign=-1, to=lambda S: 12 * int(S // 12)):
    """Return the solution. Each further argument replaces one of its parts."""
    a, b = maps * L, 2 * D + 1 + maps * L
    c = D - (L * (2 * D * width + width + D) if cost is None else cost)
    return to((sign * b + (b * b - 4 * a * c) ** 0.5) / (2 * a))


SIZES = [
    (lambda *_: "S", "expected one number, found 'S'."),
    (lambda D, L, w: equal_size(D, L, w, to=float), "this is not rounded to a multiple of 12."),
    (lambda D, L, w: equal_size(D, L, w, sign=1), "the sign before the linear term is wrong."),
    (
        lambda D, L, w: equal_size(D, L, w, cost=2 * D * w + w + D),
        "the low-rank layers are counted once, not in each layer.",
    ),
    (
        lambda D, L, w: equal_size(D, L, w, cost=L * (D * w + w)),
        "the low-rank layers have a single matrix.",
    ),
    (lambda D, L, w: equal_size(D, L, w, maps=1), "three maps are one here."),
    (lambda *_: 204, "for (768, 12, 50) it returns 204, expected"),
]


def test_the_authors_chose_equal_sizes(capsys):
    """For BERT-base and the width 100 the size is 204, as in the paper."""
    assert equal_size(768, 12, 100) == 204
    assert check_equal_size(equal_size) and capsys.readouterr().out == "equal size: right.\n"


def corrected(h, V_E, W_q, W_k, W_v, V_D):
    z = h @ V_E
    return h + attention(z, W_q, W_k) @ (z @ W_v) @ V_D


def attention(z, W_q, W_k):
    return (z @ W_q @ (z @ W_k).T / z.shape[1] ** 0.5).softmax(-1)


FORMS = [
    (lambda h, *_: h[0], "expected numbers of shape"),
    (lambda h, *rest: corrected(h, *rest) - h, "the residual is missing."),
    (lambda h, E, q, k, v, D: corrected(h, E, k, q, v, D), "query and key are swapped."),
    (lambda h, E, q, k, v, D: h + h @ E @ v @ D, "each token attends only to itself."),
    (lambda h, E, q, k, v, D: h + attention(h @ E, q, k) @ (h @ E) @ D, "W_v is missing."),
    (
        lambda h, E, q, k, v, D: corrected(h, E, 2**0.5 * q, k, v, D),
        "the scores are not divided.",
    ),
    (
        lambda h, E, q, k, v, D: corrected(h, E, 2**-0.5 * q, k, v, D),
        "the root is that of D, not of S.",
    ),
    (
        lambda h, *rest: torch.cat([(corrected(h, *rest) - h)[:1], h[1:]]),
        "the result replaces [CLS] alone.",
    ),
]


def test_the_corrected_form_is_the_librarys(capsys):
    """The library's form with one head, the same weights and no biases."""
    torch.manual_seed(0)
    config = BertConfig.tiny()
    model = add_pals(BertModel(config), ["a"], 12, 1, kind="sequential_fixed", init="normal")
    part = model.pals.part("a").eval()
    for name, parameter in part.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    h, own = torch.randn(1, 5, config.hidden_size), part.projected
    maps = [own.down, own.attention[0].query, own.attention[0].key, own.attention[0].value, own.up]
    found = corrected(h[0], *(one.weight.T for one in maps))
    torch.testing.assert_close(found, part.transform_output(h, None, None)[0])
    assert check_corrected_form(corrected)
    assert capsys.readouterr().out == "corrected form: right.\n"


def start_solution(total=lambda z, error: error.T @ z, slope=lambda gelu: 0.5 if gelu else 1.0):
    """Return the solution. Each argument replaces one of its parts."""
    return lambda z, error, gelu: slope(gelu) * total(z, error)


STARTS = [
    (lambda z, error, gelu: z.T @ error, "expected numbers of shape"),
    (
        start_solution(lambda z, error: error.T @ z / len(z)),
        "the products are averaged over the tokens; the gradient is their sum.",
    ),
    (
        start_solution(lambda z, error: error[:1].T @ z[:1]),
        "only the first token is counted.",
    ),
    (
        start_solution(lambda z, error: 0 * error.T @ z),
        "the gradient is zero; that holds for the other matrices, not for V^D.",
    ),
    (
        start_solution(lambda z, error: torch.outer(error.sum(0), z.sum(0))),
        "z is summed before it is multiplied.",
    ),
    (start_solution(slope=lambda gelu: 1.0), "the slope of GELU at 0 is 1/2, not 1."),
    (start_solution(slope=lambda gelu: float(not gelu)), "the slope of GELU at 0 is 1/2, not 0."),
    (start_solution(slope=lambda gelu: 0.5), "the factor 1/2 belongs to GELU alone."),
]


@pytest.mark.parametrize("gelu", [False, True])
def test_the_zero_start_equals_autograd(gelu, capsys):
    torch.manual_seed(0)
    z, error, up = torch.randn(5, 4), torch.randn(5, 6), torch.zeros(6, 4, requires_grad=True)
    out = torch.nn.functional.gelu(z @ up.T) if gelu else z @ up.T
    (out * error).sum().backward()
    torch.testing.assert_close(start_solution()(z, error, gelu), up.grad)
    assert check_zero_start(start_solution())
    assert capsys.readouterr().out == "zero start: right.\n"


@pytest.mark.parametrize(
    "check, name, function, message",
    [
        *((check_pal_parameters, "PAL parameters", *case) for case in COUNTS),
        *((check_equal_size, "equal size", *case) for case in SIZES),
        *((check_corrected_form, "corrected form", *case) for case in FORMS),
        *((check_zero_start, "zero start", *case) for case in STARTS),
    ],
)
def test_mistakes_are_named(check, name, function, message, capsys):
    assert check(function) is False
    assert (out := capsys.readouterr().out).startswith(f"{name}: not yet: {message}"), out
