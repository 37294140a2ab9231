"""Tests of AdamW, Adamax, the learning-rate schedule and the parameter groups.

The expected values come from the formulas, computed by hand or with numpy.
"""

import math

import numpy as np
import pytest
import torch

from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.training.loop import fit
from mmlkit.training.optimizers import Adamax, AdamW, learning_rate, make_optimizer


def value_after_steps(optimizer_class, theta, gradients, **settings):
    """Return the value of one parameter after one optimizer step per gradient."""
    parameter = torch.nn.Parameter(torch.tensor([theta], dtype=torch.float64))
    optimizer = optimizer_class([parameter], **settings)
    for g in gradients:
        parameter.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
    return parameter.item()


def test_one_step_by_hand():
    # theta = 1, g = 0.5, lr = 0.1: m = 0.05, v = 0.00025, alpha = 0.1 sqrt(0.001) / 0.1
    m, v = 0.1 * 0.5, 0.001 * 0.25
    updated = 1 - 0.03162277660168379 * m / (v**0.5 + 1e-6)
    assert updated == pytest.approx(0.9000063242, abs=1e-9)
    assert value_after_steps(AdamW, 1.0, [0.5], lr=0.1) == pytest.approx(updated, abs=1e-12)
    # The decay comes last, on the updated parameter: 0.9000063 * (1 - 0.1 * 0.01).
    assert value_after_steps(AdamW, 1.0, [0.5], lr=0.1, weight_decay=0.01) == pytest.approx(
        0.8991063179, abs=1e-9
    )


def test_two_steps_by_hand():
    # g = 0.5, then g = -1: m = 0.9 * 0.05 - 0.1, v = 0.999 * 0.00025 + 0.001,
    # alpha = 0.1 sqrt(1 - 0.998001) / (1 - 0.81)
    first = 1 - 0.03162277660168379 * 0.05 / (0.00025**0.5 + 1e-6)
    second = first - 0.1 * 0.001999**0.5 / 0.19 * -0.055 / (0.00124975**0.5 + 1e-6)
    assert value_after_steps(AdamW, 1.0, [0.5, -1.0], lr=0.1) == pytest.approx(second, abs=1e-12)


def test_eps_is_added_to_the_uncorrected_root():
    # With eps = 1 the step is 0.0316228 * 0.05 / (0.0158114 + 1). If eps were added to the
    # corrected root, the step would be 0.1 * 0.5 / (0.5 + 1) = 0.0333.
    assert 1 - value_after_steps(AdamW, 1.0, [0.5], lr=0.1, eps=1.0) == pytest.approx(
        0.0015565276, abs=1e-9
    )


def test_without_bias_correction_the_step_size_is_lr():
    # alpha is 0.1 instead of 0.0316, so the step is 0.3162 instead of 0.1.
    updated = value_after_steps(AdamW, 1.0, [0.5], lr=0.1, correct_bias=False)
    assert updated == pytest.approx(1 - 0.1 * 0.05 / (0.00025**0.5 + 1e-6), abs=1e-12)


def test_defaults_equal_the_handout():
    group = AdamW([torch.nn.Parameter(torch.zeros(1))]).param_groups[0]
    assert {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "correct_bias")} == {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-6,
        "weight_decay": 0.0,
        "correct_bias": True,
    }


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.7)])
def test_without_eps_and_decay_it_equals_torch(betas):
    gradients = np.random.default_rng(0).normal(size=30).tolist()
    settings = dict(lr=0.01, betas=betas, eps=0.0, weight_decay=0.0)
    ours, torch_value = (
        value_after_steps(kind, 2.0, gradients, **settings) for kind in (AdamW, torch.optim.AdamW)
    )
    assert ours == pytest.approx(torch_value, abs=1e-12) and abs(ours - 2) > 1e-3


def test_differences_from_torch():
    # AdamW decays after the step, (1 - d)(theta - s); torch decays before it, (1 - d) theta - s.
    # The difference is d s, with d = lr * weight_decay and s = lr.
    ours, torch_value = (
        value_after_steps(kind, 1.0, [0.5], lr=0.1, eps=0.0, weight_decay=0.2)
        for kind in (AdamW, torch.optim.AdamW)
    )
    assert ours - torch_value == pytest.approx(0.02 * 0.1, abs=1e-12)
    # AdamW's eps equals torch's eps divided by sqrt(1 - b2^t), here with t = 1.
    ours = value_after_steps(AdamW, 1.0, [0.5], lr=0.1, eps=1e-3)
    larger, same = (
        value_after_steps(torch.optim.AdamW, 1.0, [0.5], lr=0.1, eps=eps, weight_decay=0.0)
        for eps in (1e-3 / 0.001**0.5, 1e-3)
    )
    assert ours == pytest.approx(larger, abs=1e-12) and abs(ours - same) > 1e-3


def test_a_thousand_steps_of_the_handout():
    """The model Linear(3, 2) fits (x0 + x1, -x2) with the squared error, as in the handout."""
    generator = np.random.default_rng(0)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2, bias=False)
    optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    start = model.weight.detach().numpy().astype(float)
    theta, m, v = start.copy(), np.zeros((2, 3)), np.zeros((2, 3))
    for t in range(1, 1001):
        x = generator.uniform(size=3)
        y = np.array([x[0] + x[1], -x[2]])

        optimizer.zero_grad()
        loss = (
            (torch.tensor(y, dtype=torch.float32) - model(torch.tensor(x, dtype=torch.float32)))
            .square()
            .sum()
        )
        loss.backward()
        optimizer.step()

        g = 2 * np.outer(theta @ x - y, x)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        alpha = 1e-3 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        theta = theta - alpha * m / (np.sqrt(v) + 1e-6)
        theta = theta - 1e-3 * 1e-4 * theta
    np.testing.assert_allclose(model.weight.detach().numpy(), theta, atol=1e-6, rtol=1e-4)
    assert np.abs(theta - start).max() > 0.1


def test_a_parameter_without_gradient_does_not_change():
    still, moving = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = AdamW([still, moving], lr=0.1, weight_decay=0.1)
    moving.grad = torch.ones(2)
    optimizer.step()
    assert (
        torch.equal(still, torch.ones(2))
        and (moving < 1).all()
        and set(optimizer.state) == {moving}
    )


def test_a_closure_is_called_with_gradients_on():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = AdamW([parameter], lr=0.1)

    def closure():
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1 and parameter.item() < 1


# learning-rate schedule


def test_learning_rate_by_hand():
    rates = [learning_rate(step, peak=2.0, warmup=4, total=10) for step in range(11)]
    assert rates == pytest.approx([0.5, 1, 1.5, 2, 2, 5 / 3, 4 / 3, 1, 2 / 3, 1 / 3, 0])


def test_learning_rate_at_the_edges():
    assert learning_rate(0, peak=3.0, warmup=0, total=5) == 3.0
    assert learning_rate(4, peak=3.0, warmup=0, total=5) == pytest.approx(0.6)
    assert learning_rate(99, peak=3.0, warmup=2, total=5) == 0.0
    assert [learning_rate(step, peak=3.0, warmup=3, total=3) for step in range(4)] == [
        1.0,
        2.0,
        3.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("cosine", [0.5, 1.0, 1.0, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
    ],
)
def test_schedules(schedule, expected):
    found = [
        learning_rate(step, peak=1.0, warmup=2, total=6, schedule=schedule) for step in range(6)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_cosine_equals_transformers():
    from transformers import get_cosine_schedule_with_warmup

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, theirs = get_cosine_schedule_with_warmup(optimizer, 0, 10), []
    for _ in range(10):
        theirs.append(optimizer.param_groups[0]["lr"])
        optimizer.step(), scheduler.step()
    ours = [
        learning_rate(step, peak=1.0, warmup=0, total=10, schedule="cosine") for step in range(10)
    ]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


# parameter groups


def rates_and_decay(model, optimizer):
    """Return {name: (peak learning rate, decay)}; every parameter is in exactly one group."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = [
        (names[parameter], (group["peak"], group["weight_decay"]))
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert len(dict(found)) == len(found) and all(
        group["lr"] == group["peak"] for group in optimizer.param_groups
    )
    return dict(found)


@pytest.mark.parametrize("head_lr", [None, 0.5])
def test_rates_and_decay_of_every_parameter(make_model, head_lr):
    model = make_model("sst", "sts")
    found = rates_and_decay(
        model, make_optimizer(model, lr=0.1, head_lr=head_lr, weight_decay=0.03)
    )
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, (lr, decay) in found.items():
        assert lr == (0.1 if name.startswith("encoder.") or head_lr is None else 0.5), name
        assert decay == (0.0 if name.endswith("bias") or "LayerNorm" in name else 0.03), name
    assert (
        found["heads.sts.dense.weight"][1]
        == found["encoder.embeddings.word_embeddings.weight"][1]
        == 0.03
    )


def test_each_head_may_have_a_rate_of_its_own(make_model):
    model = make_model("sst", "sts")
    found = rates_and_decay(model, make_optimizer(model, lr=0.1, head_lr={"sst": 0.5}))
    rates = {name: lr for name, (lr, _) in found.items()}
    assert rates["heads.sst.dense.weight"] == rates["heads.sst.dense.bias"] == 0.5
    assert {lr for name, lr in rates.items() if "heads.sst" not in name} == {0.1}


def test_a_rate_for_a_task_without_a_head_is_refused(make_model):
    with pytest.raises(ValueError, match=r"head_lr names \['SST'\], .* heads for \['sst', 'sts'\]"):
        make_optimizer(make_model("sst", "sts"), lr=0.1, head_lr={"SST": 0.5, "sts": 0.5})


def test_the_biases_of_a_multiverse_head_do_not_decay(make_model):
    """The biases of a MultiverseHead form a table [M, C], but they must not decay.

    LinearHead treats its bias in the same way.
    """
    model = make_model("sst")
    model.heads["sst"] = MultiverseHead(8, 5, num_heads=3)
    found = rates_and_decay(model, make_optimizer(model, lr=0.1, weight_decay=0.03))
    assert (found["heads.sst.weight"][1], found["heads.sst.bias"][1]) == (0.03, 0.0)


def test_a_frozen_encoder_is_left_out(make_model):
    model = make_model("sst").freeze_encoder()
    assert set(rates_and_decay(model, make_optimizer(model, lr=0.1))) == {
        "heads.sst.dense.weight",
        "heads.sst.dense.bias",
    }


@pytest.mark.parametrize(
    "name, kind", [("adamw", torch.optim.AdamW), ("adamax", Adamax), ("handout", AdamW)]
)
def test_optimizers_by_name(make_model, name, kind):
    model = make_model("sst")
    optimizer = make_optimizer(model, name, lr=0.1)
    assert type(optimizer) is kind
    before = model.heads["sst"].dense.bias.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    after = model.heads["sst"].dense.bias.detach()
    torch.testing.assert_close(
        before - 0.1, after, atol=1e-4, rtol=0
    )  # the first step of all three optimizers is lr * sign(g)


def adamax_by_hand(theta, gradients, *, lr, decay, b1=0.9, b2=0.999, eps=1e-8):
    """Return theta after the Adamax updates of MT-DNN.

    The decay is applied first, separately from the gradient. The first moment is bias-corrected;
    the maximum needs no correction.
    """
    m, u = torch.zeros_like(theta), torch.zeros_like(theta)
    for t, g in enumerate(gradients, start=1):
        theta = theta - lr * decay * theta
        m, u = b1 * m + (1 - b1) * g, torch.maximum(b2 * u, g.abs() + eps)
        theta = theta - lr / (1 - b1**t) * m / u
    return theta


@pytest.mark.parametrize("decay", [0.0, 0.01, 0.3])
def test_adamax_decouples_its_weight_decay(decay):
    generator = torch.Generator().manual_seed(0)
    start, gradients = (
        torch.randn(6, 4, generator=generator),
        torch.randn(12, 6, 4, generator=generator),
    )
    gradients[:, 3] = 0  # a row that occurs in no batch
    theta = torch.nn.Parameter(start.clone())
    optimizer = Adamax([theta], lr=0.05, weight_decay=decay)
    for g in gradients:
        theta.grad = g.clone()
        optimizer.step()
    expected = adamax_by_hand(start, gradients, lr=0.05, decay=decay)
    torch.testing.assert_close(theta.detach(), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(
        theta[3].detach(), start[3] * (1 - 0.05 * decay) ** 12, atol=1e-6, rtol=0
    )
    assert optimizer.param_groups[0]["weight_decay"] == decay


def test_rows_of_unused_tokens_decay_by_lr_times_weight_decay(make_model, make_toy):
    """The rows of unused tokens shrink by lr * weight_decay at each step.

    torch.optim.Adamax adds the L2 penalty to the gradient. There, each such row changes by about
    lr at each step, for any decay.
    """
    model = make_model("sst")
    table = model.encoder.embeddings.word_embeddings.weight
    idle = table.detach()[150:].clone()  # the toy vocabulary has fewer than 150 tokens
    fit(model, make_toy("sst"), epochs=1, lr=1e-2, batch_size=5, optimizer="adamax", warmup=0.0)
    # 4 steps; the learning rate falls from 1e-2 towards 0: the product of 1 - lr * 0.01
    expected = math.prod(1 - 1e-2 * (1 - step / 4) * 0.01 for step in range(4))
    torch.testing.assert_close(table.detach()[150:], idle * expected, atol=1e-6, rtol=0)


def test_a_parameter_without_a_gradient_does_not_decay():
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = Adamax(parameters, lr=0.1, weight_decay=0.5)
    parameters[0].grad = torch.ones(2)

    def closure():
        assert torch.is_grad_enabled()
        return torch.tensor(3.0)

    assert optimizer.step(closure) == 3.0
    assert parameters[1].tolist() == [1.0, 1.0] and parameters[0].tolist() == pytest.approx(
        [0.95 - 0.1] * 2
    )


def test_an_unknown_optimizer_is_refused(make_model):
    with pytest.raises(
        ValueError, match=r"optimizer 'adam' is not one of \['adamw', 'adamax', 'handout'\]"
    ):
        make_optimizer(make_model("sst"), "adam", lr=0.1)
