"""Equal results by different ways: micro-batches, resumed runs, other batch sizes, equal seeds."""

import contextlib
import dataclasses
import functools
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mmlkit import runtime
from mmlkit.data.batching import collate, encode
from mmlkit.data.loading import TaskData
from mmlkit.heads.linear import LinearHead, Loss
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.pals.task_parts import add_pals
from mmlkit.training import loop as training
from mmlkit.training.checkpoints import flatten, load_checkpoint, save_checkpoint, unflatten
from mmlkit.training.evaluation import evaluate, predict_scores, probabilities
from mmlkit.training.fast import fast_matmul
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.step import check_finite, train_step

CPU = torch.device("cpu")
TASKS = ("sst", "sts", "quora")
QUICK = dict(epochs=1, lr=1e-3, batch_size=5)


@pytest.fixture
def make_batch(tiny_tokenizer, make_toy):
    """Return a function (task, rows) that builds a padded batch of these toy rows."""

    def make(task, rows=range(10)):
        batch = collate(encode(tiny_tokenizer, make_toy(task).train), list(rows))
        assert batch.attention_mask.min() == 0  # the rows differ in length
        return batch

    return make


def weights(model):
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def assert_close_weights(a, b, atol):
    for key, value in a.items():
        torch.testing.assert_close(
            value, b[key], atol=atol, rtol=0, msg=lambda text, key=key: f"{key}: {text}"
        )


def assert_equal_weights(a, b, start=""):
    kept = [key for key in a if key.startswith(start)]
    assert kept and set(a) == set(b)
    for key in kept:
        assert torch.equal(a[key], b[key]), key


def any_changed(before, after, start=""):
    """Return whether any weight with this prefix changed."""
    return any(not torch.equal(before[key], after[key]) for key in before if key.startswith(start))


# ---- one step ----


class PenalisedHead(LinearHead):
    """A linear head with several losses and a penalty that does not depend on the data."""

    def loss(self, inputs, batch):
        loss = super().loss(inputs, batch).total
        return Loss(loss, torch.stack([loss, 2 * loss]).detach())

    def penalty(self):
        return 0.3 * self.dense.weight.square().sum()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [1, 3, 4, 10, 99])
def test_micro_batches_equal_the_whole_batch(make_model, make_batch, task, size):
    found = {}
    for micro in (None, size):
        model = make_model(task).train()
        loss = train_step(
            model,
            make_batch(task),
            torch.optim.SGD(model.parameters(), lr=0.1),
            micro_batch_size=micro,
        )
        found[micro] = (
            loss.total,
            weights(model),
            {name: parameter.grad for name, parameter in model.named_parameters()},
        )
    (loss, after, gradients), (micro_loss, micro_after, micro_gradients) = found.values()
    torch.testing.assert_close(loss, micro_loss, atol=1e-6, rtol=0)
    assert_close_weights(after, micro_after, 1e-6)
    assert_close_weights(
        {key: value for key, value in gradients.items() if value is not None}, micro_gradients, 1e-6
    )
    assert any_changed(weights(make_model(task)), after, "encoder.embeddings.word") and any_changed(
        weights(make_model(task)), after, "heads"
    )


def test_a_penalty_counts_once_for_any_number_of_micro_batches(make_model, make_batch):
    after, losses = [], []
    for micro in (None, 3):
        model = make_model("sst").train()
        head = PenalisedHead(32, 5, dropout=0.0)
        head.load_state_dict(model.heads["sst"].state_dict())
        model.heads["sst"] = head
        with torch.no_grad():
            data, penalty = model.loss(make_batch("sst")).total, head.penalty()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses.append(
            train_step(model, make_batch("sst"), optimizer, micro_batch_size=micro, clip=None)
        )
        after.append(weights(model))
        torch.testing.assert_close(losses[-1].total, data + penalty, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            losses[-1].per_head, torch.stack([data, 2 * data]), atol=1e-5, rtol=0
        )
    assert penalty > 0.001
    assert_close_weights(*after, 1e-6)


@pytest.mark.parametrize("clip", [None, 1.0, 0.01])
def test_the_reused_gradient_agrees_with_a_plain_loop(make_model, make_batch, clip):
    batches = [
        make_batch("sst", rows) for rows in ([0, 1, 2, 3], [4, 5, 6, 7, 8], [9, 10], [0, 1, 2, 3])
    ]
    ours, plain = make_model("sst").train(), make_model("sst").train()
    start = weights(ours)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-3)
    for batch in batches:
        train_step(ours, batch, optimizer, clip=clip)

    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    with fast_matmul(CPU):
        for batch in batches:
            optimizer.zero_grad()
            plain.loss(batch).total.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(plain.parameters(), clip)
            optimizer.step()
    assert any_changed(start, weights(ours), "encoder.embeddings.word")
    assert_close_weights(weights(ours), weights(plain), 1e-6)


def test_the_reused_gradient_is_zero_after_the_step(make_model, make_batch):
    model = make_model("sst").train()
    table = model.encoder.embeddings.word_embeddings.weight
    train_step(model, make_batch("sst"), torch.optim.SGD(model.parameters(), lr=0.1))
    assert (
        table.grad is None
        and (table.reused_gradient == 0).all()
        and table.reused_gradient.shape == table.shape
    )


def test_a_loss_of_nan_does_not_affect_the_next_step(make_model, make_batch):
    model, fresh = make_model("sst").train(), make_model("sst").train()
    good = weights(model)
    with torch.no_grad():
        model.heads["sst"].dense.bias.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="the loss of task 'sst' is nan"):
        train_step(model, make_batch("sst"), torch.optim.SGD(model.parameters(), lr=0.1))
    model.load_state_dict(good)
    for one in (model, fresh):
        train_step(one, make_batch("sst"), torch.optim.SGD(one.parameters(), lr=0.1))
    assert_equal_weights(weights(model), weights(fresh))


class NanGradientHead(LinearHead):
    """A head whose loss, the square root of zero, is finite but has a gradient of NaN."""

    def loss(self, inputs, batch):
        return Loss((0 * self(*inputs)).square().sum().sqrt())


@pytest.mark.parametrize("clip", [1.0, None])
def test_a_gradient_of_nan_changes_no_weight(make_model, make_batch, clip):
    model, fresh = make_model("sst").train(), make_model("sst").train()
    good, head = weights(model), model.heads["sst"]
    model.heads["sst"] = NanGradientHead(32, 5, dropout=0.0)
    model.heads["sst"].load_state_dict(head.state_dict())
    with pytest.raises(FloatingPointError, match="the gradient of task 'sst' is nan, its loss 0"):
        train_step(model, make_batch("sst"), torch.optim.SGD(model.parameters(), lr=0.1), clip=clip)
    assert_equal_weights(good, weights(model))
    model.heads["sst"] = head
    for one in (model, fresh):
        train_step(one, make_batch("sst"), torch.optim.SGD(one.parameters(), lr=0.1), clip=clip)
    assert_equal_weights(weights(model), weights(fresh))


# ---- as on a GPU: the losses are read later ----


@pytest.fixture
def read_later(monkeypatch):
    """Let a CPU with a fused optimizer train as a GPU does, and read losses every third step."""
    for module in ("step", "loop"):
        monkeypatch.setattr(f"mmlkit.training.{module}.checks_at_once", lambda *_: False)
    monkeypatch.setattr(training, "READ_EVERY", 3)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_unread_step_that_is_not_finite_changes_nothing(
    make_model, make_batch, read_later, value
):
    """Neither the loss nor the gradient may be infinite or NaN. The moments do not change either.

    A finite step afterwards is what it would have been.
    """
    model, fresh = make_model("sst").train(), make_model("sst").train()
    optimizers = [make_optimizer(one, lr=1e-3) for one in (model, fresh)]
    for one, optimizer in zip((model, fresh), optimizers):
        train_step(one, make_batch("sst"), optimizer)
    before, head = weights(model), model.heads["sst"]
    model.heads["sst"] = NanGradientHead(32, 5, dropout=0.0)
    loss = train_step(model, make_batch("sst"), optimizers[0])
    assert loss.total == 0 and loss.gradient_norm.isnan()
    with pytest.raises(FloatingPointError, match="the gradient of task 'sst' is nan, its loss 0"):
        check_finite(loss, "sst")
    model.heads["sst"] = head
    with torch.no_grad():
        head.dense.bias.fill_(value)
    loss = train_step(model, make_batch("sst"), optimizers[0])
    with pytest.raises(FloatingPointError, match="the loss of task 'sst' is (nan|inf)"):
        check_finite(loss, "sst")
    with torch.no_grad():
        head.dense.bias.copy_(before["heads.sst.dense.bias"])
    assert_equal_weights(before, weights(model))
    for one, optimizer in zip((model, fresh), optimizers):
        train_step(one, make_batch("sst"), optimizer)
    assert_equal_weights(weights(fresh), weights(model))


def test_a_run_whose_losses_are_read_later_is_the_same(make_model, make_toy, request):
    """Two epochs of seven steps; the last reading of an epoch has one step."""
    runs = []
    for name in (None, "read_later"):
        if name:
            request.getfixturevalue(name)
        model, watch = make_model("sst", dropout=0.1), LossRecorder()
        history = fit(
            model, make_toy("sst"), epochs=2, lr=1e-3, batch_size=3, hooks=[watch], clip=0.5
        )
        runs.append((weights(model), watch.losses, history.drop(columns="seconds")))
    assert_equal_weights(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1] and len(runs[0][1]) == 14
    pd.testing.assert_frame_equal(runs[0][2], runs[1][2])


def test_a_diverged_run_stops_when_its_losses_are_read(make_model, make_toy, read_later, tmp_path):
    """The error names the first step that was not finite, and the weights that are left."""

    class SetInfinite(LossRecorder):
        def after_step(self, event):
            self.losses.append(event.step)
            if event.step == 5:
                with torch.no_grad():
                    event.model.heads["sst"].dense.bias.fill_(math.inf)

    watch, path = SetInfinite(), tmp_path / "last.safetensors"
    message = (
        r"Training stopped at step 6: the loss of task 'sst' is nan\. The weights are those after "
        rf"step 7; this step itself changed none\. .*{path}\. Try a smaller lr"
    )
    with pytest.raises(FloatingPointError, match=message):
        fit(
            make_model("sst"),
            make_toy("sst"),
            epochs=3,
            batch_size=5,
            hooks=[watch],
            checkpoint_dir=tmp_path,
        )
    assert watch.losses == [1, 2, 3, 4, 5, 6] and load_checkpoint(path)["epoch"] == 1


@pytest.mark.parametrize("name", ["adamw", "adamax", "handout"])
def test_the_head_of_another_task_stays_bit_identical(make_model, make_batch, name):
    model = make_model("sst", "sts").train()
    optimizer = make_optimizer(model, name, lr=1e-2, weight_decay=0.1)
    train_step(model, make_batch("sts"), optimizer)
    before = weights(model)
    for _ in range(3):
        train_step(model, make_batch("sst"), optimizer)
    assert_equal_weights(before, weights(model), "heads.sts")
    assert any_changed(before, weights(model), "heads.sst") and any_changed(
        before, weights(model), "encoder"
    )
    assert all(parameter.grad is None for parameter in model.heads["sts"].parameters())


@pytest.mark.parametrize("name", ["adamw", "adamax", "handout"])
def test_a_task_without_a_step_has_no_optimizer_state(make_model, make_batch, name):
    model = make_model("sst", "sts").train()
    optimizer = make_optimizer(model, name, lr=1e-2)
    train_step(model, make_batch("sst"), optimizer)
    assert not any(parameter in optimizer.state for parameter in model.heads["sts"].parameters())
    assert all(parameter in optimizer.state for parameter in model.heads["sst"].parameters())


def test_a_clipped_gradient_has_the_given_norm(make_model, make_batch):
    model = make_model("sst").train()
    before = weights(model)
    train_step(model, make_batch("sst"), torch.optim.SGD(model.parameters(), lr=1.0), clip=0.01)
    after = weights(model)
    # With SGD at learning rate 1, the step equals the gradient.
    norm = math.sqrt(
        sum((after[key] - before[key]).double().square().sum().item() for key in before)
    )
    assert norm == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("share", "clips"), [(0.5, True), (1.0, True), (1.01, False)])
def test_only_a_gradient_above_the_limit_is_multiplied(
    make_model, make_batch, monkeypatch, share, clips
):
    """On a GPU the norm is not read, and every gradient is multiplied. The weights are the same."""
    clip_grads, calls = torch.nn.utils.clip_grads_with_norm_, []

    def watched(*inputs):
        calls.append(inputs)
        return clip_grads(*inputs)

    monkeypatch.setattr(torch.nn.utils, "clip_grads_with_norm_", watched)

    def trained(clip):
        model = make_model("sst").train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        loss = train_step(model, make_batch("sst"), optimizer, clip=clip)
        return loss.gradient_norm.item(), weights(model)

    limit = share * trained(None)[0]
    read = trained(limit)[1]
    assert len(calls) == clips
    monkeypatch.setattr("mmlkit.training.step.checks_at_once", lambda *_: False)
    assert_equal_weights(read, trained(limit)[1])
    assert len(calls) == clips + 1


# ---- a frozen encoder ----


def test_a_frozen_encoder_stays_bit_identical(make_model, make_toy):
    model = make_model("sst", dropout=0.1)
    before = weights(model)
    fit(model, make_toy("sst"), freeze_encoder=True, **QUICK)
    assert_equal_weights(before, weights(model), "encoder")
    assert any_changed(before, weights(model), "heads")
    assert all(
        parameter.grad is None and parameter.requires_grad
        for parameter in model.encoder.parameters()
    )


def test_a_frozen_encoder_has_no_dropout_and_stays_frozen(make_model, make_toy):
    """fit unfreezes neither a model of freeze_encoder nor parameters that were frozen by hand."""
    model = make_model("sst", dropout=0.5).freeze_encoder().train()
    assert model.heads.training and not any(module.training for module in model.encoder.modules())
    before = weights(model)
    fit(model, make_toy("sst"), **QUICK)
    assert_equal_weights(before, weights(model), "encoder")
    assert any_changed(before, weights(model), "heads") and not any(
        one.requires_grad for one in model.encoder.parameters()
    )
    model.freeze_encoder(False)
    fit(model, make_toy("sst"), **QUICK)
    assert any_changed(before, weights(model), "encoder")


@pytest.mark.parametrize("frozen", [False, True])
def test_parameters_frozen_by_hand_stay_frozen(make_model, make_toy, frozen):
    model = make_model("sst")
    model.encoder.embeddings.requires_grad_(False)
    before = weights(model)
    fit(model, make_toy("sst"), freeze_encoder=frozen, **QUICK)
    assert_equal_weights(before, weights(model), "encoder.embeddings")
    assert any_changed(before, weights(model), "encoder.encoder") == (not frozen)
    required = {name: one.requires_grad for name, one in model.named_parameters()}
    assert (
        required == {name: not name.startswith("encoder.embeddings") for name in required}
        and not model.frozen
    )


def test_frozen_pals_stay_frozen_too(make_model, make_toy):
    model = make_model("sst")
    add_pals(model.encoder, ["sst"], size=12, num_heads=2, stay_trainable=True)
    model.encoder.pals.requires_grad_(False)
    before = weights(model)
    fit(model, make_toy("sst"), freeze_encoder=True, **QUICK)
    assert_equal_weights(before, weights(model), "encoder")
    assert not any(parameter.requires_grad for parameter in model.encoder.pals.parameters())


# ---- fp16 with a gradient scaler ----


class OverflowingHead(LinearHead):
    """The logits of its first call are infinite, as they can be in fp16."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (math.inf if self.calls == 1 else 1.0)


def make_overflowing_model(make_model):
    model = make_model("sst").train()
    model.heads["sst"] = OverflowingHead(32, 5, dropout=0.0)
    return model


def test_the_scaler_skips_a_step_whose_loss_overflows(make_model, make_batch):
    model, batch = make_overflowing_model(make_model), make_batch("sst")
    scaler, optimizer = (
        torch.amp.GradScaler("cpu", init_scale=2.0**16),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )
    before = weights(model)
    loss = train_step(model, batch, optimizer, scaler=scaler)
    assert not math.isfinite(loss.total) and scaler.get_scale() == 2.0**15
    assert_equal_weights(before, weights(model))
    assert math.isfinite(train_step(model, batch, optimizer, scaler=scaler).total) and any_changed(
        before, weights(model), "heads"
    )
    with pytest.raises(FloatingPointError, match="the loss of task 'sst' is nan"):
        train_step(
            make_overflowing_model(make_model), batch, optimizer
        )  # without a scaler the overflow is an error at once


def test_a_constantly_falling_scale_ends_in_an_error(make_model, make_batch):
    model, steps = make_model("sst").train(), 0
    with torch.no_grad():
        model.heads["sst"].dense.weight.fill_(math.nan)
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(FloatingPointError, match="the loss of task 'sst' is nan"):
        for _ in range(40):
            train_step(model, make_batch("sst"), optimizer, scaler=scaler)
            steps += 1
    assert steps == 27  # 27 halvings bring 2^16 below 2^-10 for the first time


def test_hooks_are_not_called_for_a_skipped_step(make_model, make_toy, monkeypatch):
    model, watch = make_overflowing_model(make_model), LossRecorder()
    scaler = torch.amp.GradScaler("cpu")
    step = lambda *arguments, **options: train_step(*arguments, **{**options, "scaler": scaler})
    monkeypatch.setattr(training, "train_step", step)
    history = fit(model, make_toy("sst"), hooks=[watch], **QUICK)
    assert len(watch.losses) == 3 and all(
        map(math.isfinite, watch.losses)
    )  # one of 4 steps was skipped
    assert history["train_loss"][0] == pytest.approx(sum(watch.losses) / 3)


@pytest.mark.parametrize("name", ["adamw", "adamax", "handout"])
@pytest.mark.parametrize("micro", [None, 3])
def test_a_scaled_step_equals_a_step_without_a_scaler(make_model, make_batch, name, micro):
    """Scaling by a power of two and back is exact. Clipping sees the gradient without the scale."""
    found = []
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)):
        model = make_model("sst", "sts").train()
        model.heads["sst"] = penalised = PenalisedHead(32, 5, dropout=0.0)
        penalised.load_state_dict(make_model("sst").heads["sst"].state_dict())
        optimizer, losses = make_optimizer(model, name, lr=1e-2), []
        for task in ("sst", "sts", "sst", "sst"):
            loss = train_step(
                model,
                make_batch(task),
                optimizer,
                micro_batch_size=micro,
                clip=0.1,
                scaler=scaler,
            )
            losses.append((loss.total.item(), loss.gradient_norm.item()))
        found.append((weights(model), losses))
    assert_equal_weights(found[0][0], found[1][0])
    assert found[0][1] == found[1][1] and scaler.get_scale() == 2.0**12  # it grew twice


@pytest.fixture
def fp16_on_a_cpu(monkeypatch):
    """Let a CPU compute in fp16 with a scaler, as a GPU such as a T4 does."""
    monkeypatch.setattr(runtime, "FP16_DEVICES", ("cpu",))


@pytest.mark.parametrize("later", [False, True])
def test_fp16_follows_fp32(make_model, make_toy, request, fp16_on_a_cpu, later):
    """The same weights within fp16's error, whether losses are read at once or later."""
    if later:
        request.getfixturevalue("read_later")
    found = {}
    for precision in ("fp32", "fp16"):
        model, watch = make_model("sst", initializer_range=0.05), LossRecorder()
        options = dict(epochs=2, lr=1e-3, batch_size=5, precision=precision)
        history = fit(model, make_toy("sst"), hooks=[watch], **options)
        found[precision] = weights(model), watch.losses, history["train_loss"].tolist()
    (one, losses, means), (other, other_losses, other_means) = found.values()
    assert len(losses) == 8 and losses != other_losses
    assert other_losses == pytest.approx(losses, abs=2e-2)
    assert other_means == pytest.approx(means, abs=2e-2)
    assert_close_weights(one, other, 8 * 2e-3)  # AdamW moves a weight by about 1e-3 in a step


def test_fp16_without_a_scaler_is_refused(make_model, make_batch, fp16_on_a_cpu):
    model = make_model("sst")
    optimizer = make_optimizer(model, lr=1e-3)
    with pytest.raises(ValueError, match="precision 'fp16' needs a scaler"):
        train_step(model, make_batch("sst"), optimizer, precision="fp16")


@pytest.mark.parametrize(("loss", "norm"), [(1.0, math.nan), (math.inf, 1.0)])
def test_a_scale_that_fell_below_the_limit_ends_the_run(loss, norm):
    """A loss may stay finite while every gradient is NaN."""
    found = Loss(torch.tensor(loss), gradient_norm=torch.tensor(norm))
    check_finite(found, "sst", torch.amp.GradScaler("cpu", init_scale=2.0**-11))
    with pytest.raises(FloatingPointError, match="the (loss|gradient) of task 'sst' is (nan|inf)"):
        check_finite(found, "sst", torch.amp.GradScaler("cpu", init_scale=2.0**-12))


def test_a_run_in_bf16_continues_in_fp16(make_model, make_toy, tmp_path, monkeypatch):
    """As on Colab, where one machine has an A100 and the next one a T4."""
    settings = dict(epochs=2, lr=1e-3, batch_size=5, checkpoint_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model("sst"), make_toy("sst"), hooks=[LossRecorder(stop_at=5)], **settings)
    monkeypatch.setattr(runtime, "FP16_DEVICES", ("cpu",))
    monkeypatch.setattr(runtime, "fastest_precision", lambda device: "fp16")
    watch = LossRecorder()
    history = fit(make_model("sst"), make_toy("sst"), hooks=[watch], resume=True, **settings)
    assert history["epoch"].tolist() == [1, 2] and len(watch.losses) == 8


class SteepHead(LinearHead):
    """Its gradient overflows in fp16 at the first scale of 2^16."""

    def loss(self, inputs, batch):
        return Loss(50 * super().loss(inputs, batch).total)


def test_a_resumed_fp16_run_equals_the_uninterrupted_run(
    make_model, make_toy, tmp_path, fp16_on_a_cpu
):
    """Steps are skipped until the scale is small enough; the checkpoint holds the scale."""
    options = dict(epochs=3, lr=1e-3, batch_size=5, precision="fp16")

    def train(name, seed=0, stop_at=None, resume=False):
        model, watch = make_model("sst", seed=seed), LossRecorder(stop_at)
        model.heads["sst"] = SteepHead(32, 5, dropout=0.0)
        model.heads["sst"].load_state_dict(make_model("sst", seed=seed).heads["sst"].state_dict())
        with pytest.raises(KeyboardInterrupt) if stop_at else contextlib.nullcontext():
            folder = tmp_path / name
            fit(
                model,
                make_toy("sst"),
                hooks=[watch],
                checkpoint_dir=folder,
                resume=resume,
                **options,
            )
        return weights(model), watch.losses, load_checkpoint(folder / "last.safetensors")["scaler"]

    whole = train("whole")
    assert 2.0**4 < whole[2]["scale"] < 2.0**16
    assert train("killed", stop_at=6)[2]["scale"] == whole[2]["scale"]
    resumed = train("killed", seed=9, resume=True)
    assert resumed[1:] == whole[1:] and len(whole[1]) == 12
    assert_equal_weights(whole[0], resumed[0])


def test_the_scale_grows_across_a_resumed_run(
    make_model, make_toy, tmp_path, fp16_on_a_cpu, monkeypatch
):
    """The steps since the last growth are in the checkpoint: 12 steps double the scale twice."""
    scaler = functools.partial(torch.amp.GradScaler, init_scale=2.0**4, growth_interval=5)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    options = dict(epochs=3, lr=1e-3, batch_size=5, precision="fp16", checkpoint_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model("sst"), make_toy("sst"), hooks=[LossRecorder(stop_at=6)], **options)
    then = load_checkpoint(tmp_path / "last.safetensors")["scaler"]
    fit(make_model("sst"), make_toy("sst"), hooks=[LossRecorder()], resume=True, **options)
    now = load_checkpoint(tmp_path / "last.safetensors")["scaler"]
    found = [(state["scale"], state["_growth_tracker"]) for state in (then, now)]
    assert found == [(2.0**4, 4), (2.0**6, 2)]


@pytest.mark.parametrize("micro", [1, 3])
def test_fp16_micro_batches_equal_the_whole_batch(make_model, make_batch, fp16_on_a_cpu, micro):
    """The gradient differs by the rounding of fp16; a penalty counts once under the scale, too."""
    found = []
    for size in (None, micro):
        model = make_model("sst", initializer_range=0.05).train()
        model.heads["sst"] = penalised = PenalisedHead(32, 5, dropout=0.0)
        penalised.load_state_dict(make_model("sst").heads["sst"].state_dict())
        before = weights(model)
        options = dict(micro_batch_size=size, precision="fp16", clip=None)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        loss = train_step(model, make_batch("sst"), optimizer, scaler=scaler, **options)
        found.append(({key: before[key] - new for key, new in weights(model).items()}, loss))
    (whole, loss), (parts, other) = found
    assert other.total.item() == pytest.approx(loss.total.item(), abs=1e-3)
    assert max(step.abs().max() for step in whole.values()) > 0.03
    assert_close_weights(whole, parts, 1e-4)


# ---- killed and resumed runs ----


class LossRecorder:
    """Record the loss of each step; raise KeyboardInterrupt at one step, like a killed process."""

    def __init__(self, stop_at=None):
        self.losses, self.stop_at = [], stop_at

    def after_step(self, event):
        if event.step == self.stop_at:
            raise KeyboardInterrupt
        self.losses.append(event.loss.total.item())

    def state_dict(self):
        return {"losses": self.losses}

    def load_state_dict(self, state):
        self.losses = list(state["losses"])


def tasks_and_settings(kind):
    """Return the tasks and the settings of fit for one kind of run."""
    settings = dict(epochs=4, lr=1e-3, head_lr=1e-2, batch_size=4, seed=3)
    if kind == "annealed":
        sampler = TaskSampler(
            "annealed", sizes={"sst": 5, "sts": 3, "quora": 9}, epochs=4, steps_per_epoch=7, seed=3
        )
        return TASKS, dict(settings, sampler=sampler)
    more = {
        "finetune": {},
        "frozen": dict(freeze_encoder=True),
        "micro": dict(micro_batch_size=3),
        "bf16": dict(precision="bf16"),
        "handout": dict(optimizer="handout"),
        "adamax": dict(optimizer="adamax"),
    }
    return ("sst",), dict(settings, **more[kind])


@pytest.mark.parametrize(
    "kind", ["finetune", "annealed", "handout", "adamax", "frozen", "micro", "bf16"]
)
def test_a_killed_and_resumed_run_equals_the_uninterrupted_run(
    make_model, make_toy, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(training._Run, "finished_state", training._Run.state)  # all is compared
    tasks, settings = tasks_and_settings(kind)
    data = {task: make_toy(task) for task in tasks}
    whole, watch = make_model(*tasks, dropout=0.2), LossRecorder()
    history = fit(whole, data, hooks=[watch], checkpoint_dir=tmp_path / "whole", **settings)
    per_epoch = len(watch.losses) // 4

    killed = make_model(*tasks, dropout=0.2)
    with pytest.raises(KeyboardInterrupt):
        fit(
            killed,
            data,
            hooks=[LossRecorder(stop_at=2 * per_epoch + 2)],
            checkpoint_dir=tmp_path / "killed",
            **settings,
        )
    assert load_checkpoint(tmp_path / "killed" / "last.safetensors")["epoch"] == 2

    resumed, again = (
        make_model(*tasks, dropout=0.2, seed=99),
        LossRecorder(),
    )  # other initial weights, so all values come from the file
    resumed_history = fit(
        resumed, data, hooks=[again], checkpoint_dir=tmp_path / "killed", resume=True, **settings
    )
    assert again.losses == watch.losses and len(watch.losses) == 4 * per_epoch
    pd.testing.assert_frame_equal(
        resumed_history.drop(columns="seconds"), history.drop(columns="seconds"), check_exact=True
    )
    assert_equal_weights(weights(whole), weights(resumed))
    states = [load_checkpoint(tmp_path / name / "last.safetensors") for name in ("whole", "killed")]
    (tensors, plain), (other_tensors, other_plain) = map(flatten, states)
    # The last and the best weights, and the moments of the optimizer.
    assert_equal_weights(tensors, other_tensors)
    assert any(name.startswith("optimizer/") or "/optimizer/" in name for name in tensors)
    for one in (plain, other_plain):
        for row in one["history"]:
            del row["seconds"]
    assert plain == other_plain


def test_hooks_may_come_from_an_iterator(make_model, make_toy):
    watch = LossRecorder()
    fit(make_model("sst"), make_toy("sst"), hooks=(one for one in [watch]), **QUICK)
    assert len(watch.losses) == 4


@pytest.mark.parametrize("task, kind", [("sst", np.int32), ("sst", np.int16), ("sts", np.int16)])
def test_other_types_of_whole_labels_train_as_int64(make_model, make_toy, task, kind):
    data, runs = make_toy(task), []
    own = data.train.labels.dtype
    for one in (own, kind):
        train = dataclasses.replace(data.train, labels=data.train.labels.astype(one))
        runs.append(make_model(task))
        fit(runs[-1], dataclasses.replace(data, train=train), **QUICK)
    assert_equal_weights(*map(weights, runs))


def test_resume_without_a_checkpoint_starts_a_new_run(make_model, make_toy, tmp_path):
    one, other = make_model("sst"), make_model("sst")
    fit(one, make_toy("sst"), **QUICK)
    fit(other, make_toy("sst"), checkpoint_dir=tmp_path, resume=True, **QUICK)
    assert_equal_weights(weights(one), weights(other))
    files = [tmp_path / name for name in ("last.safetensors", "previous.safetensors")]
    assert sorted(tmp_path.iterdir()) == files
    for path in files:  # of a finished run: one copy of the weights, and nothing else
        found, _ = flatten(load_checkpoint(path))
        assert_equal_weights({name.split("/")[-1]: found[name] for name in found}, weights(one))


def test_resuming_a_finished_run_takes_no_step(make_model, make_toy, tmp_path):
    one, other, watch = make_model("sst"), make_model("sst", seed=5), LossRecorder()
    history = fit(one, make_toy("sst"), checkpoint_dir=tmp_path, hooks=[LossRecorder()], **QUICK)
    again = fit(
        other, make_toy("sst"), checkpoint_dir=tmp_path, hooks=[watch], resume=True, **QUICK
    )
    pd.testing.assert_frame_equal(history, again)
    assert_equal_weights(weights(one), weights(other))
    assert len(watch.losses) == 4  # these losses come from the file


CHANGED = {
    "epochs": 3,
    "lr": 1e-4,
    "head_lr": 0.5,
    "batch_size": 4,
    "warmup": 0.5,
    "freeze_encoder": True,
    "seed": 7,
    "optimizer": "handout",
    "clip": 0.5,
    "max_length": 6,
    "precision": "bf16",
    "sampler": TaskSampler("sequential", sizes={"sst": 4}, epochs=2),
}


@pytest.fixture
def stopped_run(make_model, make_toy, tmp_path):
    settings = dict(QUICK, epochs=2, checkpoint_dir=tmp_path)
    fit(make_model("sst"), make_toy("sst"), **settings)
    return settings


@pytest.mark.filterwarnings("ignore:.* longer than")
@pytest.mark.parametrize("name", CHANGED)
def test_resume_with_another_setting_is_refused_by_name(make_model, make_toy, stopped_run, name):
    message = (
        rf"last.safetensors belongs to another run; different are \(then, now\): {{.*'{name}': \("
    )
    with pytest.raises(ValueError, match=message):
        fit(make_model("sst"), make_toy("sst"), **{**stopped_run, name: CHANGED[name]}, resume=True)


@pytest.mark.parametrize(
    "change", [dict(seed=5), dict(sizes={"sst": 2, "sts": 1})], ids=["seed", "sizes"]
)
def test_resume_with_another_sampler_of_the_same_kind_is_refused(
    make_model, make_toy, tmp_path, change
):
    plan = dict(sizes={"sst": 1, "sts": 1}, epochs=1, steps_per_epoch=4)
    for one, other in ((plan, False), ({**plan, **change}, True)):
        settings = dict(
            QUICK, checkpoint_dir=tmp_path, sampler=TaskSampler("proportional", **one), resume=other
        )
        data, model = {task: make_toy(task) for task in ("sst", "sts")}, make_model("sst", "sts")
        if other:
            with pytest.raises(ValueError, match="belongs to another run; different are .*sampler"):
                fit(model, data, **settings)
        else:
            fit(model, data, **settings)


def test_resume_with_tasks_in_another_order_is_refused(make_model, make_toy, tmp_path):
    """Their order decides which task comes when, and which moments belong to which head."""
    for names, other in ((("sst", "sts"), False), (("sts", "sst"), True)):
        data, settings = {name: make_toy(name) for name in names}, dict(QUICK, resume=other)
        refused = pytest.raises(ValueError, match="different are .*'sampler'.*'heads'")
        with refused if other else contextlib.nullcontext():
            fit(make_model(*names), data, checkpoint_dir=tmp_path, **settings)


@pytest.mark.parametrize("changed", [dict(every=3), dict(min_active=4), dict(bandwidth=0.1)])
def test_resume_with_another_pruner_is_refused(make_model, make_toy, tmp_path, changed):
    """Otherwise a finished run would return the events of the old settings."""

    def train(resume, **settings):
        model = make_model("sst")
        model.heads["sst"] = head = MultiverseHead(32, 5, num_heads=8)
        pruner = HeadPruner(head, **{"every": 2, "threshold": 1, **settings})
        settings = dict(QUICK, hooks=[pruner], resume=resume, checkpoint_dir=tmp_path)
        fit(model, make_toy("sst"), **settings)
        return [event.step for event in pruner.events]

    assert train(False) == train(True) == [2, 4]
    with pytest.raises(ValueError, match="belongs to another run; different are .*'hooks'"):
        train(True, **changed)
    with pytest.warns(UserWarning, match="This run starts again and replaces it"):
        assert train("auto", **changed) == ([3] if "every" in changed else [2, 4])


def test_resume_with_another_optimizer_object_is_refused(make_model, make_toy, tmp_path):
    settings = dict(epochs=1, batch_size=5, checkpoint_dir=tmp_path)
    for lr, resume in ((0.1, False), (0.1, True), (0.01, True)):
        model = make_model("sst")
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        refused = pytest.raises(ValueError, match="different are .*'groups of parameters'")
        with refused if lr == 0.01 else contextlib.nullcontext():
            fit(model, make_toy("sst"), optimizer=optimizer, resume=resume, **settings)


def test_an_optimizer_object_has_its_own_rates_before_and_after(make_model, make_toy):
    """A changed rate counts in the next call; an error in a step changes nothing."""
    model, data = make_model("sst"), make_toy("sst")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    class Rates(LossRecorder):
        def after_step(self, event):
            super().after_step(event)
            found.append(event.optimizer.param_groups[0]["lr"])

    for lr in (0.1, 0.01):
        found = []
        optimizer.param_groups[0]["lr"] = lr
        fit(model, data, epochs=1, batch_size=5, optimizer=optimizer, warmup=0.0, hooks=[Rates()])
        assert found == pytest.approx([lr, 0.75 * lr, 0.5 * lr, 0.25 * lr])
        assert optimizer.param_groups[0]["lr"] == lr
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, batch_size=5, optimizer=optimizer, hooks=[LossRecorder(stop_at=2)])
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_resume_with_other_trained_parameters_is_refused(make_model, make_toy, tmp_path):
    settings = dict(QUICK, checkpoint_dir=tmp_path)
    fit(make_model("sst"), make_toy("sst"), **settings)
    model = make_model("sst")
    model.encoder.embeddings.requires_grad_(False)
    with pytest.raises(ValueError, match="belongs to another run; different are .*'trained'"):
        fit(model, make_toy("sst"), resume=True, **settings)


def test_a_hook_may_add_a_group_of_parameters(make_model, make_toy):
    """Gradual unfreezing does this. The new group follows the schedule from its own rate."""

    class Unfreeze(LossRecorder):
        def after_step(self, event):
            super().after_step(event)
            rates.append(event.optimizer.param_groups[-1]["lr"])
            if event.step == 2:
                event.optimizer.add_param_group({"params": list(layer.parameters()), "lr": 0.2})

    model, rates = make_model("sst"), []
    layer, before = model.encoder.encoder.layer[1], weights(model)
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.1)
    settings = dict(epochs=1, batch_size=5, optimizer=optimizer, hooks=[Unfreeze()])
    fit(model, make_toy("sst"), **settings)
    assert rates == pytest.approx([0.1, 0.075, 0.1, 0.05])  # of four steps; from the third: its own
    assert [params["lr"] for params in optimizer.param_groups] == [0.1, 0.2]
    after = weights(model)
    moved = [key for key in before if ".layer." in key and not torch.equal(before[key], after[key])]
    assert {key.split(".")[3] for key in moved} == {"1"}


def test_a_run_with_a_group_that_a_hook_added_cannot_be_resumed(make_model, make_toy, tmp_path):
    class Unfreeze(LossRecorder):
        def after_step(self, event):
            if event.step == 2:
                event.optimizer.add_param_group({"params": list(layer.parameters()), "lr": 0.2})
            super().after_step(event)

    for resume in (False, True):
        model = make_model("sst")
        layer = model.encoder.encoder.layer[1]
        optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.1)
        settings = dict(epochs=2, batch_size=5, optimizer=optimizer, checkpoint_dir=tmp_path)
        refused = pytest.raises(ValueError, match="has 2 groups of parameters, and the optimizer")
        with refused if resume else pytest.raises(KeyboardInterrupt):
            hooks = [Unfreeze(stop_at=None if resume else 3)]
            fit(model, make_toy("sst"), hooks=hooks, resume=resume, save_steps=1, **settings)


def test_checkpoints_in_the_home_folder_are_found_again(
    make_model, make_toy, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    settings = dict(QUICK, checkpoint_dir="~/run")
    fit(make_model("sst"), make_toy("sst"), **settings)
    with pytest.raises(ValueError, match="different are .*'seed'"):  # it is found
        fit(make_model("sst"), make_toy("sst"), resume=True, seed=5, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert {path.name for path in (tmp_path / "home" / "run").iterdir()} == {
        "last.safetensors",
        "previous.safetensors",
    }


def test_an_optimizer_of_another_head_changes_nothing(make_model, make_batch):
    model, batch = make_model("sst", "sts"), make_batch("sst")
    before, optimizer = weights(model), torch.optim.SGD(model.heads["sts"].parameters(), lr=0.1)
    assert train_step(model, batch, optimizer).gradient_norm.item() == 0
    assert_equal_weights(before, weights(model))


def test_numbers_of_numpy_are_settings_like_any_other(make_model, make_toy, tmp_path):
    model, plain = make_model("sst"), make_model("sst")
    numbers = dict(epochs=np.int64(2), batch_size=np.int64(5), lr=np.float64(1e-3))
    numbers |= dict(seed=np.int64(1), freeze_encoder=np.bool_(False), checkpoint_dir=tmp_path)
    numbers |= dict(max_length=np.int64(128), micro_batch_size=np.int64(5))
    fit(model, make_toy("sst"), **numbers)
    assert type(model.max_length) is int
    fit(plain, make_toy("sst"), epochs=2, batch_size=5, lr=1e-3, seed=1)
    assert_equal_weights(weights(model), weights(plain))
    again = dict(epochs=2, batch_size=5, lr=1e-3, seed=1, checkpoint_dir=tmp_path, resume=True)
    again |= dict(max_length=128)
    assert len(fit(make_model("sst"), make_toy("sst"), **again)) == 2


def test_prediction_restores_the_mode_of_each_module(make_model, make_toy):
    """An encoder in eval mode in a new model stays there: its dropout would be on otherwise."""
    model = make_model("sst", dropout=0.5)
    model.train()
    model.encoder.eval()
    before = {name: module.training for name, module in model.named_modules()}
    assert len(set(before.values())) == 2
    evaluate(model, make_toy("sst"))
    assert {name: module.training for name, module in model.named_modules()} == before


def test_a_collapsed_model_has_the_frozen_encoder_in_eval_mode(make_model):
    model = make_model("sst", dropout=0.5).freeze_encoder().train()
    assert not model.encoder.training
    collapsed = model.collapse()
    assert collapsed.training and not model.encoder.training


def test_only_a_copy_to_a_gpu_may_be_unfinished(make_batch):
    """A copy from a GPU would be read before it is done."""

    class Part:
        def to(self, device, non_blocking):
            found.append(non_blocking)

    found = []
    batch = dataclasses.replace(make_batch("sst"), features=Part())
    batch.to("cpu")
    assert found == [False]


def test_parameters_that_the_optimizer_lacks_do_not_count_in_the_norm(make_model, make_batch):
    """Their gradients would grow from step to step, and clip those of the others."""
    model, batch = make_model("sst"), make_batch("sst")
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    options = dict(clip=None)  # the gradients are compared as they are
    norms = [train_step(model, batch, optimizer, **options).gradient_norm.item() for _ in range(3)]
    head = torch.cat([one.grad.flatten() for one in model.heads.parameters()]).norm().item()
    assert norms == pytest.approx([head] * 3, rel=1e-6)


def test_resume_with_other_rows_is_refused(make_model, make_toy, stopped_run):
    with pytest.raises(ValueError, match=r"'rows': \(\{'sst': 20\}, \{'sst': 19\}\)"):
        fit(make_model("sst"), make_toy("sst", rows=19), resume=True, **stopped_run)


@pytest.mark.parametrize(
    "changed", [dict(num_heads=4), dict(gelu=True), dict(kind="sequential_fixed")]
)
def test_resume_with_other_pals_is_refused(make_model, make_toy, tmp_path, changed):
    """The sizes and names of these modules are the same, so that the weights would fit."""

    def train(resume, **options):
        model = make_model("sst", num_hidden_layers=1)
        add_pals(model.encoder, ["sst"], **{"size": 8, "num_heads": 2, **options})
        fit(model, make_toy("sst"), resume=resume, checkpoint_dir=tmp_path, **QUICK)

    train(False)
    train(True)
    with pytest.raises(ValueError, match="belongs to another run; different are .*'pals'"):
        train(True, **changed)
    with pytest.warns(UserWarning, match="'pals': .*This run starts again and replaces it"):
        train("auto", **changed)


@pytest.mark.parametrize(
    "changed",
    [
        dict(metrics=("macro_f1",)),
        dict(labels=("e", "d", "c", "b", "a")),
    ],
)
def test_resume_with_another_task_of_the_same_name_is_refused(
    make_model, make_toy, stopped_run, changed
):
    """Otherwise the best epoch would be chosen among epochs of different metrics."""
    data = make_toy("sst")
    task = dataclasses.replace(data.task, **changed)
    train, dev = (dataclasses.replace(one, task=task) for one in (data.train, data.dev))
    other = TaskData(task, train, dev)
    with pytest.raises(ValueError, match="belongs to another run; different are .*'tasks'"):
        fit(make_model("sst"), other, resume=True, **stopped_run)
    # The metrics are those of the data's task; splits with other labels are refused before.
    told = "another run; different are .*'tasks'" if "metrics" in changed else "split was made with"
    with pytest.raises(ValueError, match=told):
        fit(make_model("sst"), dataclasses.replace(data, task=task), resume=True, **stopped_run)
    with pytest.warns(UserWarning, match="'tasks': .*This run starts again and replaces it"):
        fit(make_model("sst"), other, resume="auto", **stopped_run)


def test_a_checkpoint_from_before_tasks_and_pals_were_compared_is_resumed(
    make_model, make_toy, stopped_run
):
    path = stopped_run["checkpoint_dir"] / "last.safetensors"
    state = load_checkpoint(path)
    for name in ("pals", "tasks"):
        del state["settings"][name]
    save_checkpoint(path, state)
    history = fit(make_model("sst"), make_toy("sst"), resume=True, **stopped_run)
    assert history["epoch"].tolist() == [1, 2]


def test_auto_continues_the_same_run_and_starts_another_one_again(
    make_model, make_toy, stopped_run
):
    def steps(**changed):
        watch, settings = LossRecorder(), {**stopped_run, **changed}
        fit(make_model("sst"), make_toy("sst"), hooks=[watch], resume="auto", **settings)
        return len(watch.losses)

    with pytest.warns(UserWarning, match="'hooks': "):
        steps()  # the same run, but for its hooks
    with pytest.warns(UserWarning, match=r"'lr': .*This run starts again and replaces it"):
        whole = steps(lr=1e-4)
    assert whole == 2 * 4
    assert steps(lr=1e-4) == whole  # a finished run: these losses come from the file
    with pytest.warns(UserWarning, match="'lr': "):
        steps(lr=1e-5)


def test_auto_needs_no_folder(make_model, make_toy):
    one, other = make_model("sst"), make_model("sst")
    fit(one, make_toy("sst"), **QUICK)
    fit(other, make_toy("sst"), resume="auto", **QUICK)
    assert_equal_weights(weights(one), weights(other))


# ---- seeds, and the state after fit ----


def losses_of(model, data, **settings):
    watch = LossRecorder()
    fit(model, data, hooks=[watch], **settings)
    return watch.losses


def test_the_same_seed_gives_the_same_run_and_another_seed_another(make_model, make_toy):
    data, runs = {task: make_toy(task) for task in TASKS}, []
    for seed, disturb in ((1, 0), (1, 5), (2, 0)):
        torch.manual_seed(disturb)  # earlier random numbers have no effect
        np.random.seed(disturb)
        model = make_model(*TASKS, dropout=0.1)
        runs.append((losses_of(model, data, seed=seed, **QUICK), weights(model)))
    assert runs[0][0] == runs[1][0] and runs[0][0] != runs[2][0]
    assert_equal_weights(runs[0][1], runs[1][1])


def test_dropout_depends_only_on_the_step(make_model, make_toy):
    """Each step has its own seed, so a hook that draws random numbers has no effect."""

    class DrawsRandomNumbers(LossRecorder):
        def after_step(self, event):
            super().after_step(event)
            torch.randn(event.step)

    plain, drawing = LossRecorder(), DrawsRandomNumbers()
    for watch in (plain, drawing):
        fit(make_model("sst", dropout=0.3), make_toy("sst"), hooks=[watch], **QUICK)
    assert plain.losses == drawing.losses


def test_every_pass_visits_each_row_once_and_in_another_order(make_model, make_toy, monkeypatch):
    orders = {}
    for seed in (0, 1):
        visited = {"sst": [], "sts": []}

        def record(model, batch, *args, visited=visited, **settings):
            visited[batch.task.name] += [batch.rows]
            return train_step(model, batch, *args, **settings)

        monkeypatch.setattr(training, "train_step", record)
        data = {"sst": make_toy("sst", rows=11), "sts": make_toy("sts", rows=7)}
        fit(make_model("sst", "sts"), data, epochs=3, batch_size=4, seed=seed)
        passes = [visited["sst"][i : i + 3] for i in (0, 3, 6)]
        assert len(visited["sst"]) == 9 and len(visited["sts"]) == 6
        assert all(sorted(row for rows in one for row in rows) == list(range(11)) for one in passes)
        assert len(set(map(tuple, passes))) == 3
        orders[seed] = passes
    assert orders[0] != orders[1]


def test_fit_restores_the_weights_of_the_best_epoch(make_model, make_toy):
    """A hook makes the prediction for the only dev row correct in epochs 2 and 3.

    In epochs 1 and 4 it makes the prediction wrong.
    """
    ends = {}

    class SetBias(LossRecorder):
        def after_step(self, event):
            if event.step % 4 == 0:
                epoch = event.step // 4
                with torch.no_grad():
                    event.model.heads["sst"].dense.bias[3] = 100.0 if epoch in (2, 3) else -100.0
                ends[epoch] = weights(event.model)

    model = make_model("sst")
    history = fit(
        model, make_toy("sst", dev=1, shift=3), epochs=4, lr=1e-3, batch_size=5, hooks=[SetBias()]
    )
    assert history["accuracy"].tolist() == [0, 1, 1, 0] and history["best"].tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert_equal_weights(ends[2], weights(model))
    assert any_changed(ends[2], ends[3]) and not model.training


def test_the_first_of_equal_epochs_is_the_best(make_model, make_toy):
    history = fit(
        make_model("sst", "quora"),
        {task: make_toy(task) for task in ("sst", "quora")},
        epochs=3,
        lr=0.0,
        head_lr=0.0,
    )
    assert history["accuracy"].groupby(history["task"]).nunique().tolist() == [1, 1]
    assert history["best"].tolist() == [True, True, False, False, False, False]


def test_the_best_epoch_has_the_highest_mean_of_first_metrics(make_model, make_toy):
    data = {
        task: make_toy(task, shift=shift) for task, shift in (("sst", 0), ("quora", 1), ("sts", 0))
    }
    history = fit(make_model(*data), data, epochs=4, lr=2e-3, batch_size=5, seed=1)
    first = history["pearson"].fillna(history["accuracy"]).groupby(history["epoch"]).mean()
    assert (
        set(history.loc[history["best"], "epoch"]) == {first.idxmax()}
        and history["best"].sum() == 3
    )


@pytest.mark.parametrize("fails", [False, True])
def test_fit_restores_the_random_state_and_the_matmul_precision_of_torch(
    make_model, make_toy, fails
):
    torch.manual_seed(4)
    before, precision = torch.get_rng_state(), torch.get_float32_matmul_precision()
    model = make_model("sst", dropout=0.1)
    try:
        fit(model, make_toy("sst"), hooks=[LossRecorder(stop_at=2 if fails else None)], **QUICK)
    except KeyboardInterrupt:
        assert fails
    assert (
        torch.equal(torch.get_rng_state(), before)
        and torch.get_float32_matmul_precision() == precision == "highest"
    )


def test_the_error_for_a_loss_of_nan_names_step_and_checkpoint(make_model, make_toy, tmp_path):
    class SetNan(LossRecorder):
        def after_step(self, event):
            super().after_step(event)
            if event.step == 6:
                with torch.no_grad():
                    event.model.heads["sst"].dense.bias.fill_(math.nan)

    watch = SetNan()
    path = tmp_path / "last.safetensors"
    message = (
        rf"Training stopped at step 7: the loss of task 'sst' is nan\. .*{path}\. Try a smaller lr"
    )
    with pytest.raises(FloatingPointError, match=message):
        fit(
            make_model("sst"),
            make_toy("sst"),
            epochs=3,
            lr=1e-3,
            batch_size=5,
            hooks=[watch],
            checkpoint_dir=tmp_path,
        )
    state = load_checkpoint(path)
    assert (state["epoch"], state["step"], len(watch.losses)) == (1, 4, 6)
    assert all(value.isfinite().all() for value in state["model"].values())


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("pooling", ["pooler", "cls", "mean"])
def test_a_toy_data_set_is_learned(make_model, make_toy, task, pooling):
    model, data = make_model(task, pooling=pooling), make_toy(task, rows=90, dev=30)
    history = fit(model, data, epochs=10, lr=5e-3, batch_size=6)
    assert history["train_loss"].iloc[-1] < 0.4 * history["train_loss"].iloc[0]
    assert history[data.task.metrics[0]].max() > 0.8
    assert evaluate(model, data) == pytest.approx(
        {name: history.loc[history["best"], name].item() for name in data.task.metrics}
    )


def test_hooks_are_called_at_every_step(make_model, make_toy):
    events, seen = [], []

    class Log(LossRecorder):
        def after_step(self, event):
            events.append(event)
            seen.append(weights(event.model))

    model = make_model(*TASKS)
    sampler = TaskSampler("annealed", sizes=dict.fromkeys(TASKS, 4), epochs=2, steps_per_epoch=6)
    optimizer = make_optimizer(model, lr=1e-3)
    start = weights(model)
    data = {task: make_toy(task) for task in TASKS}
    fit(
        model,
        data,
        epochs=2,
        sampler=sampler,
        optimizer=optimizer,
        batch_size=5,
        hooks=[Log(), LossRecorder()],
    )
    order = sampler.order(1) + sampler.order(2)
    assert len(set(order)) == 3
    assert [(event.step, event.task, event.task_step) for event in events] == [
        (i + 1, task, order[: i + 1].count(task)) for i, task in enumerate(order)
    ]
    assert all(
        event.model is model and event.optimizer is optimizer and isinstance(event.loss, Loss)
        for event in events
    )
    for before, after in zip([start, *seen], seen):  # the hook runs after the update
        assert any_changed(before, after)


def test_the_learning_rates_rise_and_fall(make_model, make_toy):
    rates = []

    class Log(LossRecorder):
        def after_step(self, event):
            rates.append(tuple(sorted({group["lr"] for group in event.optimizer.param_groups})))

    fit(
        make_model("sst"),
        make_toy("sst"),
        epochs=2,
        lr=1.0,
        head_lr=4.0,
        batch_size=4,
        warmup=0.2,
        hooks=[Log()],
        clip=1e-9,
    )
    shares = [0.5, 1, 1, *(i / 8 for i in range(7, 0, -1))]  # 10 steps, 2 of them warmup
    assert np.allclose(rates, [(share, 4 * share) for share in shares])


def test_the_history_has_a_row_per_epoch_and_task(make_model, make_toy):
    data = {task: make_toy(task) for task in ("sst", "sts")}
    watch = LossRecorder()
    history = fit(
        make_model("sst", "sts"), data, epochs=2, batch_size=20, hooks=[watch]
    )  # one batch of each task per epoch
    assert history["epoch"].tolist() == [1, 1, 2, 2] and history["step"].tolist() == [2, 2, 4, 4]
    assert history["task"].tolist() == ["sst", "sts"] * 2
    assert sorted(history["train_loss"]) == pytest.approx(sorted(watch.losses))
    assert {"train_loss", "accuracy", "macro_f1", "pearson", "spearman", "seconds", "best"} < set(
        history.columns
    )


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            dict(precision="fp16"),
            "precision 'fp16' needs a CUDA GPU, this device is 'cpu'. Use 'bf16' or 'fp32'",
        ),
        (
            dict(precision="fp8"),
            r"precision 'fp8' is not one of \['auto', 'fp32', 'bf16', 'fp16'\]",
        ),
        (
            dict(sampler=TaskSampler("uniform", sizes={"sst": 4}, epochs=2)),
            r"The sampler is for 2 epochs of \['sst'\]",
        ),
        (
            dict(sampler=TaskSampler("uniform", sizes={"sst": 4, "sts": 4}, epochs=3)),
            r"The sampler is for 3 epochs of \['sst', 'sts'\]",
        ),
    ],
)
def test_invalid_settings_are_refused_before_any_step(make_model, make_toy, settings, message):
    model = make_model("sst")
    before = weights(model)
    with pytest.raises(ValueError, match=message):
        fit(model, make_toy("sst"), **settings)
    assert_equal_weights(before, weights(model))


def test_data_that_does_not_fit_the_model_is_refused(make_model, make_toy):
    with pytest.raises(
        ValueError, match=r"This model has no head for task 'sts'; it has \['sst'\]"
    ):
        fit(make_model("sst"), make_toy("sts"))
    with pytest.raises(ValueError, match="data is empty"):
        fit(make_model("sst"), {})
    model = make_model("sst")
    model = MultitaskModel(model.encoder, {"sst": LinearHead(32, 3)}, model.tokenizer)
    with pytest.raises(ValueError, match="Its head has 3 outputs"):
        fit(model, make_toy("sst"))


# ---- prediction ----


@pytest.mark.parametrize("training", [True, False])
def test_an_interrupt_restores_the_training_mode(make_model, make_toy, monkeypatch, training):
    model = make_model("sst").train(training)

    def interrupted(*_):
        assert not model.training
        raise KeyboardInterrupt

    monkeypatch.setattr(model.heads["sst"], "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict_scores(model, make_toy("sst"))
    assert model.training == model.encoder.training == training


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("pooling", ["pooler", "mean"])
def test_scores_are_in_row_order_for_any_batch_size(make_model, make_toy, task, pooling):
    model, split = make_model(task, pooling=pooling), make_toy(task).train
    one_by_one = np.concatenate([predict_scores(model, split.take([i])) for i in range(len(split))])
    assert one_by_one.shape == (20, model.heads[task].num_labels) and one_by_one.dtype == np.float32
    for size in (1, 3, 7, 20, 64):
        np.testing.assert_allclose(
            predict_scores(model, split, batch_size=size), one_by_one, atol=1e-5, rtol=0
        )
    assert (
        np.diff(np.sort(one_by_one[:, 0])).max() > 1e-3
        and len({len(text[0]) for text in split.texts}) > 5
    )


@pytest.mark.parametrize("task", TASKS)
def test_evaluate_does_not_depend_on_the_batch_size(make_model, make_toy, task):
    model, data = make_model(task), make_toy(task, dev=11)
    found = [evaluate(model, data, batch_size=size) for size in (1, 4, 11, 64)]
    assert tuple(found[0]) == data.task.metrics
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-5)
    assert (
        evaluate(model, data.dev) == evaluate(model, data) != evaluate(model, data, split="train")
    )


@pytest.mark.parametrize("task", TASKS)
def test_plain_texts_are_predicted_like_a_split(make_model, make_toy, task):
    model, data = make_model(task, dropout=0.5).train(), make_toy(task)
    texts = [text[0] if len(text) == 1 else text for text in data.dev.texts]
    np.testing.assert_array_equal(
        predict_scores(model, texts, task=task), predict_scores(model, data.dev)
    )
    np.testing.assert_array_equal(predict_scores(model, data), predict_scores(model, data.dev))
    assert model.training and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_no_gradient_stays_after_fit(make_model, make_toy):
    """Their size is that of the weights."""
    model = make_model("sst")
    fit(model, make_toy("sst"), epochs=1, device="cpu")
    assert all(parameter.grad is None for parameter in model.parameters())


class _Casts(TorchDispatchMode):
    """Count the casts of each tensor, by its address."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default:
            self.counts[args[0].data_ptr()] += 1
        return function(*args, **(kwargs or {}))


def test_predictions_cast_each_weight_once(make_model, make_toy):
    """In inference mode autocast would cast it for every batch."""
    model, casts = make_model("sst"), _Casts()
    with casts:
        predict_scores(model, make_toy("sst").dev, batch_size=2, precision="bf16")
    weight = model.encoder.encoder.layer[0].intermediate.dense.weight
    assert casts.counts[weight.data_ptr()] == 1


def test_probabilities_by_hand():
    found = probabilities(
        np.array([[0.0, math.log(3)], [5.0, 5.0]], dtype=np.float32), LinearHead(8, 2)
    )
    np.testing.assert_allclose(found, [[0.25, 0.75], [0.5, 0.5]], atol=1e-6)


# ---- checkpoints ----

STATE = {
    "epoch": 2,
    "score": -math.inf,
    "none": None,
    "name": "@ no tensor",
    "flag": True,
    "empty": {},
    "list": [],
    "weights": {
        "a.b": torch.arange(6.0).reshape(2, 3),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "count": torch.tensor(3),
    },
    "optimizer": {
        "state": {0: {"step": torch.tensor(1.0), "n": 4}, 3: {"step": torch.tensor(2.0)}},
        "groups": [{"params": [0, 3]}],
    },
    "pair": [torch.zeros(1), [1, torch.ones(1)]],
}


def assert_equal_states(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal_states(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_equal_states(one, other)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    else:
        assert a == b


def test_a_loaded_checkpoint_equals_the_saved_state(tmp_path):
    tensors, plain = flatten(STATE)
    assert set(tensors) == {
        "/weights/a.b",
        "/weights/half",
        "/weights/count",
        "/optimizer/state/0/step",
        "/optimizer/state/3/step",
        "/pair/0",
        "/pair/1/1",
    }
    assert_equal_states(unflatten(tensors, plain), STATE)
    save_checkpoint(tmp_path / "new" / "state.safetensors", STATE)
    assert_equal_states(load_checkpoint(tmp_path / "new" / "state.safetensors"), STATE)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["state.safetensors"]


def test_tuples_are_loaded_as_lists_and_a_tensor_may_occur_twice(tmp_path):
    shared = torch.ones(2)
    save_checkpoint(tmp_path / "a", {"betas": (0.9, 0.999), "one": shared, "two": shared})
    assert_equal_states(
        load_checkpoint(tmp_path / "a"), {"betas": [0.9, 0.999], "one": shared, "two": shared}
    )


def test_a_checkpoint_is_written_completely_or_not_at_all(tmp_path):
    save_checkpoint(tmp_path / "a", {"x": torch.ones(1)})
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "a", {"x": torch.zeros(1), "bad": object()})
    with pytest.raises(TypeError, match="expected int or str"):
        save_checkpoint(tmp_path / "a", {"x": {1: 2, "b": 3}})
    assert load_checkpoint(tmp_path / "a")["x"] == 1 and [
        path.name for path in tmp_path.iterdir()
    ] == ["a"]


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "other", "plain"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, STATE)
    if damage == "other":  # a file of weights is not a checkpoint
        safetensors.torch.save_file({"x": torch.ones(1)}, path)
    elif damage == "plain":
        safetensors.torch.save_file({"x": torch.ones(1)}, path, metadata={"plain": "{"})
    else:
        path.write_bytes(
            {"cut": path.read_bytes()[:-5], "text": b"not a checkpoint at all", "empty": b""}[
                damage
            ]
        )
    message = (
        r"last.safetensors is not a readable checkpoint \(.*\). Delete it to start the run again"
    )
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path)


def test_fit_refuses_a_damaged_checkpoint_and_changes_no_weight(make_model, make_toy, tmp_path):
    (tmp_path / "last.safetensors").write_bytes(b"damaged")
    model = make_model("sst")
    before = weights(model)
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        fit(model, make_toy("sst"), checkpoint_dir=tmp_path, resume=True, **QUICK)
    assert_equal_weights(before, weights(model))


@pytest.mark.parametrize("optimizer", ["handout", "adamw", "adamax"])
def test_fit_with_one_batch_per_epoch_equals_a_plain_loop(
    make_model, make_toy, tiny_tokenizer, optimizer
):
    data, model, by_hand = make_toy("sst", rows=6), make_model("sst"), make_model("sst").train()
    losses = losses_of(
        model, data, epochs=3, lr=1e-3, head_lr=1e-2, batch_size=6, warmup=0.0, optimizer=optimizer
    )
    batch, expected = collate(encode(tiny_tokenizer, data.train), range(6)), []
    optimizer = make_optimizer(by_hand, optimizer, lr=1e-3, head_lr=1e-2)
    for epoch in range(3):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * (3 - epoch) / 3
        optimizer.zero_grad()
        loss = by_hand.loss(batch).total
        loss.backward()
        torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, abs=1e-4) and losses[0] - losses[2] > 0.01
