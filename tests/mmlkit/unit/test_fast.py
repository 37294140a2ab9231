"""The CPU shortcuts give the numbers of plain PyTorch and act only inside a training step."""

import math

import pytest
import torch
from torch.nn import functional as F

from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, Loss
from mmlkit.runtime import seeded
from mmlkit.training import fast
from mmlkit.training.fast import SMALLEST, _dropout, clear_gradients, cpu_shortcuts
from mmlkit.training.step import train_step

OPTIMIZERS = {"AdamW": 1e-3, "Adamax": 1e-3, "SGD": 0.1, "RMSprop": 1e-3}


def batches_of(model, data, size=5, count=4):
    encoded = encode(model.tokenizer, data.train)
    return [collate(encoded, range(i * size, (i + 1) * size)) for i in range(count)]


# Custom training loops.


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_trains_the_encoder_in_a_plain_loop(make_model, make_toy, name):
    """As usual, the gradient of the last step still exists during the next forward pass."""
    model, losses = make_model("sst").train(), []
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=OPTIMIZERS[name])
    for batch in 6 * batches_of(model, make_toy("sst")):
        loss = model.loss(batch).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-4:]) < 0.95 * sum(losses[:4])
    assert not model.encoder.embeddings.word_embeddings.weight.grad.is_sparse
    still = [key for key, value in model.named_parameters() if torch.equal(value, before[key])]
    assert all("key.bias" in key for key in still), still  # softmax ignores a bias of the keys


def test_a_loop_may_mix_plain_steps_and_train_step(make_model, make_toy):
    """A plain step, a train_step and a plain step again do not influence each other."""
    model, plain = make_model("sst").train(), make_model("sst").train()
    data = batches_of(model, make_toy("sst"))
    for one, shortcut in ((model, 1), (plain, None)):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        for i, batch in enumerate(data):
            if i == shortcut:
                train_step(one, batch, optimizer, clip=None)
            else:
                optimizer.zero_grad()
                one.loss(batch).total.backward()
                optimizer.step()
    for value, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(value, expected, atol=1e-6, rtol=0)


# The shortcuts begin and end with the step.


def test_outside_of_a_step_the_encoder_is_plain(make_model, make_toy):
    """Also after an error. The memory of the word table's gradient is used again."""
    model = make_model("sst", dropout=0.3).train()
    table, modules = model.encoder.embeddings.word_embeddings, list(model.encoder.modules())
    batch = batches_of(model, make_toy("sst"))[0]
    clear_gradients(model)
    with cpu_shortcuts(model):  # 3 dropouts in each of 2 layers and 1 before the layers
        assert table.sparse and sum("forward" in vars(module) for module in modules) == 7
    train_step(model, batch, torch.optim.SGD(model.parameters(), lr=0.1))
    place = table.weight.grad.data_ptr()
    clear_gradients(model)
    with pytest.raises(ZeroDivisionError), cpu_shortcuts(model):
        assert table.weight.grad.data_ptr() == place and not table.weight.grad.any()
        raise ZeroDivisionError
    assert not table.sparse and not any("forward" in vars(module) for module in modules)
    with seeded(3):
        loss = model.loss(batch).total
    with seeded(3):
        assert torch.equal(model.loss(batch).total, loss)
    model.double()
    step = train_step(model, batch, torch.optim.SGD(model.parameters(), lr=0.1))
    assert step.total.isfinite() and table.weight.grad.dtype == torch.float64


class TiedHead(LinearHead):
    """A head with rows of the word embeddings as weights, like label words or a tied decoder."""

    def forward(self, x):
        return F.linear(x, self.table[0].weight[10:15])

    def loss(self, inputs, batch):
        return Loss(F.cross_entropy(self(*inputs), batch.labels))


def test_a_head_that_uses_the_word_embeddings_does_not_affect_later_steps(make_model, make_toy):
    """Its gradient is dense. Rows outside the batch must not enter the next steps."""

    def tied():
        model = make_model("sst").train()
        with seeded(1):
            model.heads["sst"] = TiedHead(32, 5, dropout=0.0)
        model.heads["sst"].table = [
            model.encoder.embeddings.word_embeddings
        ]  # in a list, so it is not registered as a parameter of the head
        return model

    ours, plain = tied(), tied()
    for model in (ours, plain):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches_of(model, make_toy("sst")):
            if model is ours:
                train_step(model, batch, optimizer, clip=None)
            else:
                optimizer.zero_grad()
                model.loss(batch).total.backward()
                optimizer.step()
    for (key, value), expected in zip(ours.named_parameters(), plain.named_parameters()):
        torch.testing.assert_close(
            value, expected[1], atol=1e-6, rtol=0, msg=lambda text, key=key: f"{key}: {text}"
        )


# dropout


def dropout_of_ones(p, shape, seed=0):
    with seeded(seed):
        return _dropout(p, torch.ones(shape))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_dropout_zeroes_a_share_of_p(p):
    zeros = dropout_of_ones(p, (333, 333)).flatten() == 0
    for part in (
        zeros,
        zeros[0::4],
        zeros[1::4],
        zeros[2::4],
        zeros[3::4],
    ):  # four elements share one random number
        assert abs(part.float().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / len(part))
    both_zero = (zeros[:-1] & zeros[1:]).float().mean().item()  # neighbours are independent
    assert abs(both_zero - p * p) < 5 * math.sqrt(p * p * (1 - p * p) / len(zeros)) * 2


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5])
def test_dropout_scales_the_kept_values(p):
    kept = dropout_of_ones(p, (40, 41))
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).item()}


def test_a_dropout_of_everything_is_left_to_torch(make_model, make_toy):
    model = make_model("sst", dropout=1.0).train()
    loss = train_step(
        model, batches_of(model, make_toy("sst"))[0], torch.optim.SGD(model.parameters())
    )
    assert loss.total.isfinite() and loss.gradient_norm.isfinite()


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5,), (3, 5, 7), (0,), (2, 0)])
def test_dropout_takes_any_size(shape):
    found = dropout_of_ones(0.5, shape)
    assert found.shape == shape and set(found.flatten().tolist()) <= {0.0, 2.0}


def test_the_gradient_of_dropout_equals_its_mask():
    x = torch.randn(7, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with seeded(4):
        out = _dropout(0.2, x)
    out.sum().backward()
    assert torch.equal(x.grad, dropout_of_ones(0.2, (7, 9), seed=4))
    assert torch.equal(out, x.detach() * x.grad)
    assert 0 < (x.grad == 0).sum() < 63


# halves


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)  # of a test; the others have one
    yield
    torch.set_num_threads(1)


def gradients_of_a_step(model, batch):
    with seeded(5):
        loss = train_step(model, batch, torch.optim.SGD(model.parameters(), lr=0.0), clip=None)
    return loss.total, {name: one.grad for name, one in model.named_parameters()}


@pytest.mark.parametrize("pooling", ["mean", "pooler"])
def test_two_halves_have_the_loss_and_gradients_of_the_batch(
    make_model, make_toy, monkeypatch, two_threads, pooling
):
    """What no head reads, such as the pooler, has no gradient in either way."""
    model = make_model("sst", pooling=pooling).train()
    batch = batches_of(model, make_toy("sst", rows=40), size=33, count=1)[0]
    assert batch.input_ids.numel() >= SMALLEST
    model.zero_grad()
    plain = model.loss(batch).total
    plain.backward()
    expected = {name: one.grad for name, one in model.named_parameters()}
    calls = []
    both = fast._both
    monkeypatch.setattr(fast, "_both", lambda function: calls.append(1) or both(function))
    total, found = gradients_of_a_step(model, batch)
    assert len(calls) == 2 and torch.get_num_threads() == 2  # once forward, once backward
    torch.testing.assert_close((total, found), (plain.detach(), expected), atol=1e-6, rtol=1e-5)
    assert (found["encoder.pooler.dense.weight"] is None) == (pooling == "mean")


def test_two_halves_repeat_bit_for_bit(make_model, make_toy, two_threads):
    """With dropout: each half has random numbers of its own."""
    model = make_model("sst", dropout=0.3).train()
    batch = batches_of(model, make_toy("sst", rows=40), size=33, count=1)[0]
    first, second = (
        {name: one.clone() for name, one in gradients_of_a_step(model, batch)[1].items()}
        for _ in range(2)
    )
    assert all(torch.equal(one, second[name]) for name, one in first.items())


def test_halves_leave_what_nobody_reads_or_watches(make_model, make_toy, two_threads):
    """Only the pooler trains, and no head reads it; then a hook sees whole batches."""
    model = make_model("sst", pooling="mean").train()
    batch = batches_of(model, make_toy("sst", rows=40), size=33, count=1)[0]
    model.encoder.requires_grad_(False)
    model.encoder.pooler.requires_grad_(True)
    assert gradients_of_a_step(model, batch)[1]["encoder.pooler.dense.weight"] is None
    model.encoder.requires_grad_(True)
    seen = []
    handle = model.encoder.pooler.register_forward_hook(lambda *_: seen.append(len(_[2])))
    gradients_of_a_step(model, batch)
    handle.remove()
    assert seen == [33]
