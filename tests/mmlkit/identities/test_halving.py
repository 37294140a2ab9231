"""Micro-batches are halved when memory runs out.

The gradient stays that of the whole batch, and a failed attempt leaves no state behind.
"""

import contextlib
import warnings

import numpy as np
import pytest
import torch
from ranked import make_ranked

from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.runtime import seeded
from mmlkit.training import loop as training
from mmlkit.training.evaluation import predict_scores, unless_out_of_memory
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.step import train_step

HEADS = {
    "sst": lambda p: LinearHead(32, 5, dropout=p, pooling="mean"),
    "sts": lambda p: MultiverseHead(32, 1, num_heads=3, dropout=p, orthogonality_weight=0.5),
    "quora": lambda p: SANHead(32, 2, dropout=p, prediction_dropout=p),
    "qnli_rank": lambda p: RankingHead(32, dropout=p),
    "pair": lambda p: PairHead(32, 2, dropout=p),
}
CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 400 bytes."
)
WINDOWS = (
    "[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried "
    "to allocate 400 bytes."
)


def gpu_error():
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class LimitedMemory:
    """Simulate memory for a number of rows, in the forward or the backward pass.

    The attribute `seen` lists the rows of each attempt.
    """

    def __init__(self, model, rows, where="forward", error=gpu_error, calls=None):
        self.rows, self.where, self.error, self.seen, self.calls = rows, where, error, [], calls
        self.hook = model.encoder.embeddings.LayerNorm.register_forward_hook(self)

    def __call__(self, module, inputs, output):
        self.seen.append(len(output))
        if len(output) > self.rows or (self.calls is not None and len(self.seen) == self.calls):
            if self.where == "forward":
                raise self.error()
            output.register_hook(self.fail)  # late in the backward pass, after most gradients

    def fail(self, gradient):
        raise self.error()


@pytest.fixture
def make_case(make_model, make_toy):
    """Return a function (name, dropout) that builds a model, its data and a batch.

    The model is tiny, in train mode and in float64. The batch has 8 examples.
    """

    def make(name, dropout=0.0):
        task = "quora" if name == "pair" else name
        bare = make_model("sst", dropout=dropout)
        with seeded(7):
            model = (
                MultitaskModel(bare.encoder, {task: HEADS[name](dropout)}, bare.tokenizer)
                .double()
                .train()
            )
        data = make_ranked() if task == "qnli_rank" else make_toy(task)
        encoded = encode(model.tokenizer, data.train, pairs=model.heads[task].pairs)
        rows = range(8) if encoded.queries is None else np.argsort(encoded.queries, kind="stable")
        return model, data, collate(encoded, [int(row) for row in rows])

    return make


def gradient_of_step(model, batch, **options):
    """Call train_step with learning rate 1 and no clipping; return the loss and the gradient."""
    before = state(model)
    loss = train_step(
        model, batch, torch.optim.SGD(model.parameters(), lr=1.0), clip=None, **options
    )
    return loss, torch.cat(
        [
            (before[key] - value).flatten()
            for key, value in state(model).items()
            if value.is_floating_point()
        ]
    )


def state(model):
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def warns_of_halving(expected=True):
    return (
        pytest.warns(UserWarning, match="did not fit into memory")
        if expected
        else contextlib.nullcontext()
    )


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("room, where", [(12, "forward"), (4, "backward")])
def test_the_gradient_is_that_of_the_whole_batch(make_case, name, room, where):
    model, _, batch = make_case(name)
    whole, gradient = gradient_of_step(model, batch)
    model, _, batch = make_case(name)
    memory, little = LimitedMemory(model, room, where), len(batch.rows) > room
    with warns_of_halving(little):
        loss, parts = gradient_of_step(model, batch)
    assert (gradient - parts).norm() < 1e-6 * gradient.norm() and gradient.norm() > 1e-2
    torch.testing.assert_close(loss.total, whole.total, atol=1e-6, rtol=1e-6)
    assert (loss.per_head is None) == (whole.per_head is None) == (name != "sts")
    if name == "sts":
        torch.testing.assert_close(loss.per_head, whole.per_head, atol=1e-6, rtol=1e-6)
    assert memory.seen[0] == len(batch.rows) and max(memory.seen[-2:]) <= room
    smaller = {("qnli_rank", 12): 4, ("qnli_rank", 4): 1}.get(
        (name, room), 4
    )  # 8 queries have 23 candidates; two of these queries have 3 and 4
    assert whole.micro_batch_size is None and loss.micro_batch_size == (smaller if little else None)


@pytest.mark.parametrize(
    "error", [gpu_error, lambda: RuntimeError(CPU), lambda: RuntimeError(WINDOWS)]
)
def test_a_failure_after_successful_micro_batches_leaves_no_gradient(make_case, error):
    """Rows 3 to 5 fail after rows 0 to 2 have added their gradient."""
    model, _, batch = make_case("sst")
    _, gradient = gradient_of_step(model, batch)
    model, _, batch = make_case("sst")
    memory = LimitedMemory(model, 99, "backward", error, calls=2)
    with pytest.warns(
        UserWarning,
        match=(
            "task 'sst': 3 rows at a time did not fit into memory, 2 did; the gradient is that "
            "of all 8 either way"
        ),
    ):
        loss, parts = gradient_of_step(model, batch, micro_batch_size=3)
    assert memory.seen == [3, 3, 2, 2, 2, 2] and loss.micro_batch_size == 2
    assert (gradient - parts).norm() < 1e-6 * gradient.norm()


@pytest.mark.parametrize("name", ["quora", "qnli_rank"])
def test_dropout_is_equal_for_a_halved_and_a_given_size(make_case, name):
    found = []
    for is_halved in (True, False):
        model, _, batch = make_case(name, dropout=0.3)
        torch.manual_seed(5)
        if is_halved:
            LimitedMemory(model, 12 if name == "qnli_rank" else 4, "backward")
        with warns_of_halving(is_halved):
            loss, gradient = gradient_of_step(
                model, batch, micro_batch_size=None if is_halved else found[0][0].micro_batch_size
            )
        found.append((loss, gradient, torch.get_rng_state()))
    (one, gradient, state), (other, other_gradient, state_too) = found
    assert one.micro_batch_size == 4 and other.micro_batch_size is None
    assert (
        one.total == other.total
        and torch.equal(gradient, other_gradient)
        and torch.equal(state, state_too)
    )


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "sst",
            r"one of the rows of task 'sst' \(\d+ tokens with its padding\) does not fit into "
            "memory by itself. Use a smaller max_length",
        ),
        ("qnli_rank", "one of the queries of task 'qnli_rank'"),
    ],
)
def test_too_little_memory_for_one_example_is_an_error(make_case, name, message):
    model, data, batch = make_case(name)
    before = state(model)
    memory = LimitedMemory(model, 1 if name == "qnli_rank" else 0)
    with pytest.raises(torch.OutOfMemoryError, match=message):
        gradient_of_step(model, batch)
    assert all(torch.equal(value, before[key]) for key, value in state(model).items())
    assert len(memory.seen) == 4
    with pytest.raises(torch.OutOfMemoryError, match=message):
        fit(model, data, epochs=1, batch_size=8)


@pytest.mark.parametrize(
    "message",
    [
        "The size of tensor a (3) must match the size of tensor b (4)",
        "CUDA error: device-side assert triggered",
        "",
    ],
)
def test_other_errors_are_raised_unchanged(make_case, message):
    model, data, batch = make_case("sst")
    memory = LimitedMemory(model, 4, error=lambda: RuntimeError(message))
    with pytest.raises(RuntimeError) as raised:
        gradient_of_step(model, batch)
    assert (
        str(raised.value) == message and type(raised.value) is RuntimeError and memory.seen == [8]
    )
    with pytest.raises(RuntimeError):
        predict_scores(model, data)
    with pytest.raises(KeyError):
        unless_out_of_memory(lambda: {}["x"])


def test_a_penalty_that_does_not_fit_does_not_cause_halving(make_case):
    """The penalty has the same size for one row and for all rows."""
    model, _, batch = make_case("sts")

    def penalty():
        raise gpu_error()

    model.heads["sts"].penalty = penalty
    memory = LimitedMemory(model, 99)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        gradient_of_step(model, batch)
    assert memory.seen == [8]


# ---- within fit ----


def run(make_case, names, room=None, hooks=(), **options):
    cases = [make_case(name) for name in names]
    model = MultitaskModel(
        cases[0][0].encoder,
        {name: case[0].heads[name] for name, case in zip(names, cases)},
        cases[0][0].tokenizer,
    )
    memory = None if room is None else LimitedMemory(model, room)
    settings = dict(epochs=2, lr=1e-3, batch_size=10, optimizer="adamw")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        history = fit(
            model,
            {name: case[1] for name, case in zip(names, cases)},
            hooks=hooks,
            **{**settings, **options},
        )
    return (
        model,
        memory,
        history,
        [str(one.message) for one in told if "fit into memory" in str(one.message)],
    )


def test_the_successful_size_is_kept(make_case):
    """There are 20 rows in batches of 10 and memory for 4 rows.

    The step fails at 10 and at 5 rows, then continues with 3; there is one warning. The evaluation
    halves its batches separately.
    """
    whole, _, history, told = run(make_case, ["sst"])
    assert not told
    model, memory, other, told = run(make_case, ["sst"], room=4)
    assert told == [
        "task 'sst': 10 rows at a time did not fit into memory, 3 did; the gradient is that of all "
        "10 either way."
    ]
    epoch, scoring = [3, 3, 3, 1] * 2, [10, 5, 3, 3, 3, 1]
    assert memory.seen == [10, 5, *epoch, *scoring, *epoch, *scoring]
    np.testing.assert_allclose(other["train_loss"], history["train_loss"], atol=1e-4)
    for key, value in state(whole).items():
        torch.testing.assert_close(state(model)[key], value, atol=2e-4, rtol=0)


def test_each_task_keeps_its_own_size(make_case, monkeypatch):
    """Queries with four candidates need more memory than single rows.

    The single rows keep batches of eight.
    """
    asked = {"sst": [], "qnli_rank": []}

    def record(model, batch, *others, micro_batch_size, **settings):
        asked[batch.task.name].append(micro_batch_size)
        return train_step(model, batch, *others, micro_batch_size=micro_batch_size, **settings)

    monkeypatch.setattr(training, "train_step", record)
    _, _, _, told = run(make_case, ["sst", "qnli_rank"], room=8, batch_size=8)
    assert (
        asked == {"sst": [None] * 6, "qnli_rank": [None, 2]}
        and len(told) == 1
        and "8 queries at a time" in told[0]
    )
    _, _, _, told = run(make_case, ["qnli_rank"], room=8, batch_size=8, micro_batch_size=1)
    assert asked["qnli_rank"][2:] == [1, 1] and not told


def test_a_resumed_run_continues_with_its_size(make_case, tmp_path):
    class Stop:
        def __init__(self, at):
            self.at = at

        def after_step(self, event):
            if event.step == self.at:
                raise KeyboardInterrupt

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    whole = run(make_case, ["sst"], room=4, hooks=[Stop(99)])[0]
    with pytest.raises(KeyboardInterrupt):
        run(make_case, ["sst"], room=4, hooks=[Stop(3)], checkpoint_dir=tmp_path)
    model, memory, _, told = run(
        make_case, ["sst"], room=99, hooks=[Stop(99)], checkpoint_dir=tmp_path, resume=True
    )
    assert not told and memory.seen[:4] == [3, 3, 3, 1]
    assert all(torch.equal(value, state(whole)[key]) for key, value in state(model).items())


# ---- prediction ----


@pytest.mark.parametrize("name", ["sts", "qnli_rank"])
def test_scores_do_not_depend_on_the_memory(make_case, name):
    model, data, _ = make_case(name)
    expected = predict_scores(model, data)
    for room in (7, 1):
        memory = LimitedMemory(model, room)
        np.testing.assert_allclose(predict_scores(model, data), expected, atol=1e-5)
        assert memory.seen[0] > room >= memory.seen[-1]
        memory.hook.remove()
    LimitedMemory(model, 0)
    with pytest.raises(
        torch.OutOfMemoryError,
        match=(
            r"one row of task '.*' \(\d+ tokens\) does not fit into memory by itself. Use a "
            r"smaller max_length"
        ),
    ):
        predict_scores(model, data)
