"""Equal results by different ways: micro-batches, resumed runs, other batch sizes, equal seeds."""

import contextlib
import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
from together import in_processes

from mmlkit import runtime
from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, Loss
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.pals.task_parts import add_pals
from mmlkit.runtime import seeded
from mmlkit.training import loop as training
from mmlkit.training import resume
from mmlkit.training.checkpoints import load_checkpoint
from mmlkit.training.evaluation import evaluate, predict_scores
from mmlkit.training.fast import fast_matmul
from mmlkit.training.loop import fit
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.step import train_step

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
@pytest.mark.parametrize("size", [3, 99])
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
def test_the_steps_are_those_of_a_plain_loop(make_model, make_batch, clip):
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


# ---- a loss or a gradient that is not finite ----


class BrokenHead(LinearHead):
    """From its third loss on, it has an infinite loss; or a loss of 0 with a gradient of NaN."""

    calls, gradient_alone = 0, False

    def loss(self, inputs, batch):
        self.calls += 1
        loss = super().loss(inputs, batch).total
        if self.calls < 3:
            return Loss(loss)
        return Loss((0 * loss).sqrt() if self.gradient_alone else loss * math.inf)


def with_broken_head(make_model, gradient_alone):
    model = make_model("sst")
    head, model.heads["sst"] = model.heads["sst"], BrokenHead(32, 5, dropout=0.0)
    model.heads["sst"].load_state_dict(head.state_dict())
    model.heads["sst"].gradient_alone = gradient_alone
    return model


@pytest.mark.parametrize("gradient_alone", [False, True])
@pytest.mark.parametrize("name", ["adamw", "handout", "scaler"])
def test_a_step_that_is_not_finite_changes_no_weight(make_model, make_batch, name, gradient_alone):
    """Nor the moments: a finite step afterwards is what it would have been. adamw is fused."""
    model, fresh = with_broken_head(make_model, gradient_alone), make_model("sst")
    scaler = torch.amp.GradScaler("cpu") if name == "scaler" else None
    optimizers = [
        make_optimizer(one.train(), "adamw" if scaler else name, lr=1e-3) for one in (model, fresh)
    ]
    for one, optimizer in zip((model, fresh), optimizers):
        for _ in range(2):
            train_step(one, make_batch("sst"), optimizer)
    before = weights(model)
    loss = train_step(model, make_batch("sst"), optimizers[0], scaler=scaler)
    assert not (loss.total + loss.gradient_norm).isfinite()
    assert_equal_weights(before, weights(model))
    assert scaler is None or scaler.get_scale() == 2.0**15
    model.heads["sst"].calls = 0
    for one, optimizer in zip((model, fresh), optimizers):
        train_step(one, make_batch("sst"), optimizer)
    assert_equal_weights(weights(fresh), weights(model))


@pytest.mark.parametrize("gradient_alone", [False, True])
def test_a_diverged_run_stops(make_model, make_toy, gradient_alone):
    """With the weights of the last finite step, and before any hook sees the loss."""
    watch = LossRecorder()
    with pytest.raises(FloatingPointError, match="stopped at step 3: the loss of task 'sst' or"):
        fit(with_broken_head(make_model, gradient_alone), make_toy("sst"), hooks=[watch], **QUICK)
    assert len(watch.losses) == 2


def test_a_scale_may_fall_but_not_for_ever(make_model, make_toy, fp16_on_a_cpu, monkeypatch):
    """From 2^16 it falls below 2^-11 with the 28th skipped step."""
    model, options = with_broken_head(make_model, False), dict(precision="fp16", batch_size=5)
    with pytest.raises(FloatingPointError, match="stopped at step 30: "):
        fit(model, make_toy("sst"), epochs=20, **options)


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


# ---- a frozen encoder ----


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


def test_a_layer_that_is_unfrozen_afterwards_trains(make_model, make_toy):
    """Everything that requires a gradient is trained, also inside a frozen encoder."""
    model = make_model("sst").freeze_encoder()
    model.encoder.encoder.layer[1].requires_grad_(True)
    before = weights(model)
    fit(model, make_toy("sst"), **QUICK)
    assert any_changed(before, weights(model), "encoder.encoder.layer.1")
    assert_equal_weights(before, weights(model), "encoder.encoder.layer.0")


# ---- fp16 with a gradient scaler ----


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


def test_fp16_without_a_scaler_is_refused(make_model, make_batch, fp16_on_a_cpu):
    model = make_model("sst")
    optimizer = make_optimizer(model, lr=1e-3)
    with pytest.raises(ValueError, match="precision 'fp16' needs a scaler"):
        train_step(model, make_batch("sst"), optimizer, precision="fp16")


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


# Four steps of 10 rows, whose losses every way of training must give.
LOSSES = [1.6155956, 1.7074213, 1.5583457, 1.5850471]


def test_every_way_of_training_gives_the_same_losses(make_model, make_toy, tmp_path):
    """The whole batch, micro-batches, two processes, a killed and resumed run."""
    settings = dict(epochs=2, batch_size=10, clip=None, precision="fp32")

    def train(stop_at=None, **more):
        watch, model = LossRecorder(stop_at), make_model("sst")
        more["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.3)
        with pytest.raises(KeyboardInterrupt) if stop_at else contextlib.nullcontext():
            fit(model, make_toy("sst"), hooks=[watch], device="cpu", **settings, **more)
        return watch.losses

    train(stop_at=4, checkpoint_dir=tmp_path / "run", save_minutes=0)
    ways = {
        "whole": train(),
        "micro-batches": train(micro_batch_size=3),
        "resumed": train(checkpoint_dir=tmp_path / "run", resume=True),
        "two processes": in_processes(train, tmp_path)[1],
    }
    for name, losses in ways.items():
        assert losses == pytest.approx(LOSSES, abs=1e-4), name
    assert ways["resumed"] == ways["whole"]


SETTINGS = dict(epochs=3, lr=1e-3, head_lr=1e-2, batch_size=4, seed=3, save_minutes=0)
KINDS = {
    "several": dict(
        sampler=TaskSampler(
            "annealed", sizes={"sst": 5, "sts": 3, "quora": 9}, epochs=3, steps_per_epoch=7, seed=3
        )
    ),
    "frozen": dict(freeze_encoder=True),
    "bf16": dict(precision="bf16", optimizer="adamax"),
    "fp16": dict(precision="fp16", optimizer="handout", micro_batch_size=3),
}


class SteepHead(LinearHead):
    """Its gradient overflows in fp16 at the first scales, so that steps are skipped."""

    def loss(self, inputs, batch):
        return Loss(50 * super().loss(inputs, batch).total)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_and_resumed_run_equals_the_uninterrupted_run(
    make_model, make_toy, tmp_path, fp16_on_a_cpu, kind
):
    """Bit for bit, with dropout; the kill comes inside of the second epoch."""
    tasks = TASKS if kind == "several" else ("sst",)

    def train(folder, seed=0, stop_at=None, **more):
        model, watch = make_model(*tasks, dropout=0.2, seed=seed), LossRecorder(stop_at)
        if kind == "fp16":
            model.heads["sst"] = SteepHead(32, 5)
            torch.nn.init.zeros_(model.heads["sst"].dense.weight)
        data = {task: make_toy(task) for task in tasks}
        with pytest.raises(KeyboardInterrupt) if stop_at else contextlib.nullcontext():
            history = fit(
                model,
                data,
                hooks=[watch],
                checkpoint_dir=tmp_path / folder,
                **{**SETTINGS, **KINDS[kind], **more},
            )
        state = load_checkpoint(tmp_path / folder / "last.safetensors")
        return None if stop_at else (weights(model), watch.losses, history, state["scaler"])

    whole = train("whole")
    train("killed", stop_at=len(whole[1]) // 3 + 2)
    resumed = train("killed", seed=99, resume=True)  # all values come from the file
    assert resumed[1] == whole[1] and resumed[3] == whole[3]
    assert_equal_weights(whole[0], resumed[0])
    frames = (run[2].drop(columns="seconds") for run in (whole, resumed))
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert kind != "fp16" or whole[3]["scale"] < 2.0**16


def test_a_finished_run_is_read_and_not_repeated(make_model, make_toy, tmp_path):
    """Its two files hold one copy of the weights each, and nothing else."""
    one, other, watch = make_model("sst"), make_model("sst", seed=5), LossRecorder()
    settings = dict(QUICK, checkpoint_dir=tmp_path, resume=True)
    history = fit(one, make_toy("sst"), hooks=[LossRecorder()], **settings)
    again = fit(other, make_toy("sst"), hooks=[watch], **settings)
    pd.testing.assert_frame_equal(history, again)
    assert_equal_weights(weights(one), weights(other))
    assert len(watch.losses) == 4  # these losses come from the file
    files = [tmp_path / name for name in ("last.safetensors", "previous.safetensors")]
    assert sorted(tmp_path.iterdir()) == files
    for path in files:
        state = load_checkpoint(path)
        assert "model" not in state and "optimizer" not in state
        assert_equal_weights(state["best"], weights(one))


def test_one_token_among_thousands_makes_other_data(make_model, make_toy):
    encoded = encode(make_model("sst").tokenizer, make_toy("sst", rows=400).train)
    before = resume._content(encoded)
    encoded.input_ids[200][1] += 1
    assert sum(map(len, encoded.input_ids)) > 2000 and resume._content(encoded) != before


OTHER = {
    "lr": dict(lr=1e-4),
    "seed": dict(seed=7),
    "optimizer": dict(optimizer="handout"),
    "sampler": dict(sampler=TaskSampler("sequential", sizes={"sst": 4})),
    "freeze_encoder": dict(freeze_encoder=True),
    "hooks": dict(hooks=[]),
}
NAMED = {"freeze_encoder": "optimizer", "task": "data", "pals": "model", "pruner": "hooks"}


@pytest.mark.parametrize("name", [*OTHER, "data", "task", "model", "pals", "pruner"])
def test_another_run_is_not_resumed(make_model, make_toy, tmp_path, name):
    """It is refused with the names of what differs; with "auto" it starts again."""

    def train(changed, **options):
        model, data = make_model("sst", num_hidden_layers=1), make_toy("sst")
        with seeded(0):
            model.heads["sst"] = head = MultiverseHead(32, 5, num_heads=8)
            size = dict(size=8, num_heads=4 if changed and name == "pals" else 2)
            add_pals(model.encoder, ["sst"], **size)  # of the same shapes
        pruner = HeadPruner(head, every=3 if changed and name == "pruner" else 2, threshold=1)
        if changed and name == "data":
            data.train.labels[0] = 1 - data.train.labels[0]
        if changed and name == "task":
            data = dataclasses.replace(
                data, task=dataclasses.replace(data.task, metrics=("macro_f1",))
            )
        if changed and name == "model":
            head.pooling = "mean"
        settings = {
            **QUICK,
            "hooks": [pruner],
            **(OTHER.get(name, {}) if changed else {}),
            **options,
        }
        return fit(model, data, checkpoint_dir=tmp_path, **settings)

    train(False)
    train(False, resume=True)
    with pytest.raises(
        ValueError, match=rf"another run, which differs in: .*'{NAMED.get(name, name)}'"
    ):
        train(True, resume=True)
    with pytest.warns(UserWarning, match="This run starts again and replaces it"):
        train(True, resume="auto")
    train(True, resume=True)
    with pytest.warns(UserWarning, match="of an earlier run, which this run replaces"):
        train(True)


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


def test_an_optimizer_of_another_head_changes_nothing(make_model, make_batch):
    model, batch = make_model("sst", "sts"), make_batch("sst")
    before, optimizer = weights(model), torch.optim.SGD(model.heads["sts"].parameters(), lr=0.1)
    assert train_step(model, batch, optimizer).gradient_norm.item() == 0
    assert_equal_weights(before, weights(model))


def test_prediction_restores_the_mode_of_each_module(make_model, make_toy):
    """An encoder in eval mode in a new model stays there: its dropout would be on otherwise."""
    model = make_model("sst", dropout=0.5)
    model.train()
    model.encoder.eval()
    before = {name: module.training for name, module in model.named_modules()}
    assert len(set(before.values())) == 2
    evaluate(model, make_toy("sst"))
    assert {name: module.training for name, module in model.named_modules()} == before


def test_parameters_that_the_optimizer_lacks_do_not_count_in_the_norm(make_model, make_batch):
    """Their gradients would grow from step to step, and clip those of the others."""
    model, batch = make_model("sst"), make_batch("sst")
    optimizer = torch.optim.SGD(model.heads.parameters(), lr=0.0)
    options = dict(clip=None)  # the gradients are compared as they are
    norms = [train_step(model, batch, optimizer, **options).gradient_norm.item() for _ in range(3)]
    head = torch.cat([one.grad.flatten() for one in model.heads.parameters()]).norm().item()
    assert norms == pytest.approx([head] * 3, rel=1e-6)


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


def test_every_pass_visits_each_row_once_and_in_another_order(make_model, make_toy, monkeypatch):
    visited = {"sst": [], "sts": []}

    def record(model, batch, *args, **settings):
        visited[batch.task.name] += [batch.rows]
        return train_step(model, batch, *args, **settings)

    monkeypatch.setattr(training, "train_step", record)
    data = {"sst": make_toy("sst", rows=11), "sts": make_toy("sts", rows=7)}
    fit(make_model("sst", "sts"), data, epochs=3, batch_size=4)
    passes = [visited["sst"][i : i + 3] for i in (0, 3, 6)]
    assert len(visited["sst"]) == 9 and len(visited["sts"]) == 6
    assert all(sorted(row for rows in one for row in rows) == list(range(11)) for one in passes)
    assert len(set(map(tuple, passes))) == 3


def test_fit_leaves_the_best_epoch_and_torch_as_it_was(make_model, make_toy):
    """A hook makes the only dev row right in epochs 2 and 3; the first of equal epochs is best."""
    ends = {}

    class SetBias(LossRecorder):
        def after_step(self, event):
            torch.rand(event.step)  # each step has its own seed, so this changes nothing
            if event.step % 4 == 0:
                epoch = event.step // 4
                with torch.no_grad():
                    event.model.heads["sst"].dense.bias[3] = 100.0 if epoch in (2, 3) else -100.0
                ends[epoch] = weights(event.model)

    model, before = make_model("sst", dropout=0.1), torch.get_rng_state()
    data = make_toy("sst", dev=1, shift=3)
    history = fit(model, data, epochs=4, lr=1e-3, batch_size=5, hooks=[SetBias()])
    assert history["accuracy"].tolist() == [0, 1, 1, 0]
    assert history["best"].tolist() == [False, True, False, False]
    assert_equal_weights(ends[2], weights(model))
    assert any_changed(ends[2], ends[3]) and not model.training
    assert model.tasks == {"sst": data.task}
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_float32_matmul_precision() == "highest"


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


def test_what_does_not_fit_together_is_refused(make_model, make_toy):
    """Each would give a wrong number without an error."""
    model, sst, sts = make_model("sst", "sts"), make_toy("sst"), make_toy("sts")
    before = weights(model)
    turned = dataclasses.replace(sst.task, labels=sst.task.labels[::-1])
    unlabelled = dataclasses.replace(sst, train=dataclasses.replace(sst.train, labels=None))
    pruner = HeadPruner(MultiverseHead(32, 5, num_heads=4), every=2)
    sampler = TaskSampler("uniform", sizes={"sst": 4}, epochs=2)
    cases = [
        ({"sst": sts, "sts": sst}, {}, r"data\['sst'\] is for task 'sts'\. Use"),
        (dataclasses.replace(sst, task=turned), {}, "its train split was made for"),
        (unlabelled, {}, "Task 'sst' has no labels in train"),
        (make_toy("quora"), {}, "no head for task 'quora'"),
        (sst, dict(optimizer=make_optimizer(make_model("sst"), lr=1.0)), "of another model"),
        (sst, dict(hooks=[pruner]), "The head of HeadPruner is not one of this model"),
        (sst, dict(sampler=sampler, epochs=3), "The sampler is for 2 epochs of"),
    ]
    for data, settings, message in cases:
        with pytest.raises(ValueError, match=message):
            fit(model, data, **settings)
    assert_equal_weights(before, weights(model))
    for dtype in (torch.bfloat16, torch.float16):
        with pytest.raises(ValueError, match="weights in torch.b?float16 round"):
            fit(make_model("sst").to(dtype), sst)
    model = make_model("sst")
    model.encoder.bfloat16()
    fit(model, sst, freeze_encoder=True, epochs=1)  # only what is trained must be fp32


# ---- prediction ----


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
    assert evaluate(model, data.dev) == evaluate(model, data) != evaluate(model, data.train)


@pytest.mark.parametrize("task", TASKS)
def test_plain_texts_are_predicted_like_a_split(make_model, make_toy, task):
    model, data = make_model(task, dropout=0.5).train(), make_toy(task)
    texts = [text[0] if len(text) == 1 else text for text in data.dev.texts]
    np.testing.assert_array_equal(
        predict_scores(model, texts, task=task), predict_scores(model, data.dev)
    )
    np.testing.assert_array_equal(predict_scores(model, data), predict_scores(model, data.dev))
    assert model.training and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


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
