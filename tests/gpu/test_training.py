"""On a GPU, training in half precision, micro-batches, resumed runs, waits of the host, memory."""

import contextlib

import pandas as pd
import pytest
import torch
from pretended import Tokenizer, make_data, make_heads

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.batching import Batch, collate, encode, plan_examples
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import autocast
from mmlkit.training import graphs, loop
from mmlkit.training.graphs import StepGraphs
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.step import train_step
from tests.mmlkit.identities.test_training import LossRecorder, assert_close_weights, weights

pytestmark = pytest.mark.gpu
PRECISIONS = ("fp32", "bf16", "fp16")


def new_scaler(device, precision):
    return torch.amp.GradScaler(device.type) if precision == "fp16" else None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_follows_fp32(device, make_model, make_toy, precision):
    found = []
    for one in ("fp32", precision):
        model, watch = make_model("sst", initializer_range=0.05), LossRecorder()
        options = dict(epochs=2, lr=1e-3, batch_size=5, precision=one, device=device)
        fit(model, make_toy("sst"), hooks=[watch], **options)
        found.append((weights(model), watch.losses))
    (exact, losses), (rounded, other) = found
    assert len(losses) == 8 and losses != other
    assert other == pytest.approx(losses, abs=3e-2)
    assert_close_weights(exact, rounded, 8 * 2e-3)  # AdamW moves a weight by about 1e-3 in a step


@pytest.mark.parametrize("precision, atol", zip(PRECISIONS, (1e-5, 2e-3, 5e-4)))
def test_micro_batches_have_the_gradient_of_the_whole_batch(
    device, exact_products, make_model, make_toy, precision, atol
):
    found = []
    for size in (None, 3):
        model = make_model("sst", initializer_range=0.05).to(device).train()
        batch = collate(encode(model.tokenizer, make_toy("sst").train), range(10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        options = dict(precision=precision, scaler=new_scaler(device, precision), clip=None)
        train_step(model, batch, optimizer, micro_batch_size=size, **options)
        found.append(weights(model))
    assert_close_weights(*found, atol)


@pytest.fixture
def recorder(device, monkeypatch):
    """Let a CPU that stands in for a GPU run a recorded update again."""
    if device.type != "cuda":
        monkeypatch.setattr(graphs, "capture_cuda", lambda update, pool: (update, pool))


@pytest.mark.filterwarnings("error:Updates run without CUDA graphs")
@pytest.mark.parametrize(("precision", "rel"), [("fp32", 1e-5), ("bf16", 2e-2), ("fp16", 2e-2)])
def test_recorded_updates_equal_those_without_a_graph(
    device, exact_products, make_model, make_toy, recorder, precision, rel
):
    """52 updates with dropout, rates that change, and every shape of batch."""
    found = []
    for recorded in (False, True):
        model, watch = make_model("sst", dropout=0.1), LossRecorder()
        options = dict(epochs=13, lr=1e-3, batch_size=5, precision=precision, device=device)
        fit(model, make_toy("sst"), hooks=[watch], graphs=recorded, **options)
        found.append((watch.losses, weights(model)))
    (losses, eager), (again, other) = found
    assert len(losses) == 52 and again == pytest.approx(losses, rel=rel)
    assert_close_weights(eager, other, 1e-4 if precision == "fp32" else 2e-2)


@pytest.mark.filterwarnings("error:Updates run without CUDA graphs")
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_resumed_run_equals_the_uninterrupted_run(
    device, make_model, make_toy, tmp_path, recorder, precision, recorded
):
    """Up to rounding, because a GPU adds in no fixed order."""
    options = dict(epochs=3, lr=1e-3, batch_size=5, precision=precision, device=device)
    options["graphs"] = recorded

    def train(name, stop_at=None, **more):
        model, watch = make_model("sst", dropout=0.1), LossRecorder(stop_at)
        with pytest.raises(KeyboardInterrupt) if stop_at else contextlib.nullcontext():
            options["checkpoint_dir"] = tmp_path / name
            fit(model, make_toy("sst"), hooks=[watch], **options, **more)
        return weights(model), watch.losses

    whole = train("whole")
    train("killed", stop_at=6)
    resumed = train("killed", resume=True)
    assert len(whole[1]) == 12 and resumed[1] == pytest.approx(whole[1], abs=1e-3)
    assert_close_weights(whole[0], resumed[0], 2e-3)


def test_a_frozen_encoder_reads_each_row_once(device, exact_products, make_model, make_toy):
    histories = []
    for encode_rows in (loop.encode_once, lambda model, encoded, **_: encoded):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "encode_once", encode_rows)
            options = dict(epochs=3, lr=1e-2, batch_size=4, freeze_encoder=True, device=device)
            history = fit(make_model("sst"), make_toy("sst"), precision="fp32", **options)
            histories.append(history.drop(columns="seconds"))
    pd.testing.assert_frame_equal(*histories, atol=1e-4, rtol=0)


@contextlib.contextmanager
def waiting_is_an_error(device):
    """Let torch raise an error where the host waits for a GPU."""
    set_mode = torch.cuda.set_sync_debug_mode if device.type == "cuda" else lambda _: None
    set_mode("error")
    try:
        yield
    finally:
        set_mode("default")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("task", make_heads())
def test_no_step_waits_for_the_gpu(device, recorder, task, precision):
    """From the padded batch to the update; the first step sets things up and may wait, and so may
    the recording of the third one."""
    encoder, head, tokenizer = BertModel(BertConfig.tiny()), make_heads()[task], Tokenizer()
    model = MultitaskModel(encoder, {task: head}, tokenizer).to(device).train()
    optimizer = make_optimizer(model, lr=1e-3)
    encoded = encode(tokenizer, make_data(task).train, pairs=head.pairs)
    scaler = new_scaler(device, precision)
    rows = plan_examples(encoded, len(encoded), seed=0, epoch=0)[0]
    before, steps, recorded = weights(model), [], StepGraphs()
    options = dict(precision=precision, scaler=scaler, graphs=recorded)
    for number in range(5):
        free = number in (0, 2)
        with contextlib.nullcontext() if free else waiting_is_an_error(device):
            batch = collate(encoded, rows).to(device)
            steps.append(train_step(model, batch, optimizer, **options))
    assert len(recorded.graphs) == 1
    assert all(step.total.isfinite() and step.gradient_norm > 0 for step in steps)
    assert any(not torch.equal(before[key], value) for key, value in weights(model).items())


def random_batch(device, config, rows, tokens):
    ids = torch.randint(5, config.vocab_size, (rows, tokens))
    parts = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    parts |= dict(token_type_ids=torch.zeros_like(ids), labels=torch.arange(rows) % 5)
    return Batch(get_task("sst"), **parts, rows=tuple(range(rows))).to(device)


def peak(device, step):
    """Return the largest memory of two steps in MB; 0 where the device is no GPU."""
    if device.type != "cuda":
        step(), step()
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step(), step()
    return round(torch.cuda.max_memory_allocated() / 2**20)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_peak_memory_is_no_higher_than_that_of_transformers(device, record, precision):
    """BERT-base, 32 rows of 128 tokens, AdamW: the same step in both libraries."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertForSequenceClassification

    gpu = device.type == "cuda"
    config = BertConfig.base() if gpu else BertConfig.tiny()
    batch = random_batch(device, config, 32, 128 if gpu else 16)

    def ours():
        model = MultitaskModel(BertModel(config), {"sst": LinearHead(config.hidden_size, 5)})
        optimizer = make_optimizer(model.to(device).train(), lr=1e-5)
        options = dict(precision=precision, scaler=new_scaler(device, precision))
        return peak(device, lambda: train_step(model, batch, optimizer, **options))

    def theirs():
        settings = {**vars(config), "num_labels": 5}
        model = BertForSequenceClassification(TheirConfig(**settings)).to(device).train()
        optimizer = make_optimizer(model, lr=1e-5)
        scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        inputs = {name: getattr(batch, name) for name in ("input_ids", "attention_mask", "labels")}

        def step():
            optimizer.zero_grad(set_to_none=True)
            with autocast(precision, device)[0]:
                loss = model(**inputs, token_type_ids=batch.token_type_ids).loss
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return peak(device, step)

    found = {"mmlkit": ours(), "transformers": theirs()}
    what = "peak memory in MB of a training step, BERT-base, 32 rows of 128 tokens, AdamW"
    record(f"gpu_memory_{precision}", what=what, precision=precision, **found)
    assert found["mmlkit"] <= 1.02 * found["transformers"]


def test_a_batch_that_does_not_fit_is_halved(device):
    """The GPU may use less memory than the whole batch needs; the loss is that of the whole."""
    if device.type != "cuda":
        pytest.skip("the memory of a CPU is not limited")
    config = BertConfig.base()
    batch = random_batch(device, config, 64, 128)
    torch.manual_seed(0)
    model = MultitaskModel(BertModel(config), {"sst": LinearHead(768, 5)}).to(device).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.0), []
    step = lambda: losses.append(train_step(model, batch, optimizer, precision="fp32"))
    need, total = peak(device, step), torch.cuda.get_device_properties(device).total_memory
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    fixed = torch.cuda.memory_allocated() / 2**20
    torch.cuda.set_per_process_memory_fraction((fixed + 0.7 * (need - fixed)) * 2**20 / total)
    try:
        with pytest.warns(UserWarning, match="64 rows at a time did not fit into memory"):
            step()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    whole, parts = losses[0], losses[-1]
    assert parts.micro_batch_size < 64
    assert parts.total.item() == pytest.approx(whole.total.item(), rel=1e-3)
    assert parts.gradient_norm.item() == pytest.approx(whole.gradient_norm.item(), rel=0.01)
