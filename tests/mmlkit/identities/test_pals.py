"""Properties of all kinds of task modules: initialisation, gradients, saving and resuming."""

import copy
import json

import numpy as np
import pytest
import torch

from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.pals.task_parts import add_pals, load_pals, save_pals
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.sampling import TaskSampler
from mmlkit.training.saving import load_model, save_model
from mmlkit.training.step import train_step

KINDS = {
    "pal": dict(size=12, num_heads=3),
    "low_rank": dict(size=5),
    "houlsby": dict(size=5),
    "sequential": dict(size=12, num_heads=3),
    "sequential_fixed": dict(size=12, num_heads=3),
}
RESIDUAL_KINDS = [
    kind for kind in KINDS if kind != "sequential"
]  # kinds with a residual connection
IDS = torch.tensor([[2, 7, 9, 12, 3], [2, 5, 3, 0, 0]])
MASK = (IDS != 0).long()


@pytest.fixture
def make_pals_model(make_model):
    """Return a function (kind, *tasks, ...) that builds make_model's model with PALs."""

    def make(kind, *tasks, init="normal", stay_trainable=False, **options):
        model = make_model(*tasks, **options)
        add_pals(
            model.encoder,
            list(tasks),
            kind=kind,
            init=init,
            stay_trainable=stay_trainable,
            **KINDS[kind],
        )
        return model

    return make


def batch_of(model, data, rows=range(6)):
    name = data.task.name
    return collate(encode(model.tokenizer, data.train, pairs=model.heads[name].pairs), list(rows))


def weights(module):
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def changed_names(before, module):
    """Return the names of the tensors that are no longer bit-identical."""
    return {
        key for key, value in module.state_dict().items() if not torch.equal(before[key], value)
    }


@pytest.mark.parametrize("kind", RESIDUAL_KINDS)
def test_zero_initialisation_leaves_the_output_unchanged(make_model, kind):
    encoder = make_model("sst").eval().encoder
    with torch.no_grad():
        before = encoder(IDS, MASK)
        add_pals(encoder, ["sst"], kind=kind, **KINDS[kind])
        after = encoder(IDS, MASK, task="sst")
    assert torch.equal(after.last_hidden_state, before.last_hidden_state) and torch.equal(
        after.pooler_output, before.pooler_output
    )
    assert all(not part.any() for name, part in encoder.pals.named_parameters() if "up." in name)
    drawn = [
        part
        for name, part in encoder.pals.named_parameters()
        if "up." not in name and part.dim() == 2
    ]
    assert drawn and all(part.std() > 0.1 for part in drawn)


def test_sequential_has_a_random_initialisation_without_a_residual(make_model):
    encoder = add_pals(make_model("sst").encoder, ["sst"], kind="sequential", **KINDS["sequential"])
    assert encoder.pals.part("sst").projected.up.weight.std() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_first_token_only_gives_the_same_vector(make_pals_model, kind):
    encoder = make_pals_model(kind, "sst").eval().encoder
    with torch.no_grad():
        whole, first = (
            encoder(IDS, MASK, task="sst"),
            encoder(IDS, MASK, task="sst", first_token_only=True),
        )
    assert first.last_hidden_state.shape == (2, 1, 32)
    torch.testing.assert_close(
        first.last_hidden_state, whole.last_hidden_state[:, :1], atol=2e-6, rtol=0
    )
    torch.testing.assert_close(first.pooler_output, whole.pooler_output, atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(make_pals_model, kind):
    encoder = make_pals_model(kind, "sst").eval().encoder
    with torch.no_grad():
        both, alone = encoder(IDS, MASK, task="sst"), encoder(IDS[1:, :3], task="sst")
    torch.testing.assert_close(
        both.last_hidden_state[1:, :3], alone.last_hidden_state, atol=2e-6, rtol=0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_modules_of_another_task_do_not_change_the_output(make_pals_model, kind):
    encoder = make_pals_model(kind, "sst", "quora").eval().encoder
    with torch.no_grad():
        before, other = (encoder(IDS, MASK, task=task).pooler_output for task in ("sst", "quora"))
        for parameter in encoder.pals.part("quora").parameters():
            parameter.normal_()
        after, changed = (encoder(IDS, MASK, task=task).pooler_output for task in ("sst", "quora"))
    assert torch.equal(before, after)
    assert (before - other).abs().max() > 0.01 and (changed - other).abs().max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_modules_of_absent_tasks_stay_bit_identical(make_pals_model, make_toy, kind):
    """The task's own steps come first, so that there is momentum in the optimizer."""
    model = make_pals_model(kind, "sst", "quora").train()
    optimizer = make_optimizer(model, "adamw", lr=1e-2, weight_decay=0.1)
    for task in ("quora", "sst", "sst"):
        before = weights(model)
        train_step(model, batch_of(model, make_toy(task)), optimizer)
        changed = changed_names(before, model)
        other = {"sst": "quora", "quora": "sst"}[task]
        assert not {key for key in changed if f".{other}." in f".{key}"}
        own = {key for key in changed if key.startswith(f"encoder.pals.parts.{task}.")}
        assert {key.rsplit(".", 2)[-2] for key in own} >= {"up", "down"}
        assert any(
            key.startswith("encoder.layer", 8) for key in changed
        )  # the shared encoder changes too


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_reaches_every_part_of_the_task(make_pals_model, make_toy, kind):
    model = make_pals_model(kind, "sts").train()
    model.loss(batch_of(model, make_toy("sts"))).total.backward()
    dead = {"sequential": (".query.", ".key.")}.get(
        kind, (".key.bias",)
    )  # the bias of a key cancels in the softmax
    for name, parameter in model.encoder.pals.named_parameters():
        if any(part in name for part in dead):
            assert parameter.grad.abs().max() < 1e-7, name
        else:
            assert parameter.grad.abs().max() > 1e-7, name


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_equal_the_whole_batch(make_pals_model, make_toy, kind):
    found = []
    for micro in (None, 4):
        model = make_pals_model(kind, "quora").double().train()
        train_step(
            model,
            batch_of(model, make_toy("quora")),
            torch.optim.SGD(model.parameters(), lr=0.0),
            micro_batch_size=micro,
            clip=None,
        )
        found.append([parameter.grad for parameter in model.encoder.pals.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_predicts_the_same(make_pals_model, make_toy, tmp_path, kind):
    model = make_pals_model(kind, "sst", "quora", dropout=0.1, stay_trainable=True)
    model.heads["quora"] = PairHead(32, 2)
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert (
        again.encoder.pals.config == model.encoder.pals.config
        and again.encoder.pals.stay_trainable
        and not again.encoder.pals.training
    )
    for task in model.heads:
        scores = predict_scores(model, make_toy(task).dev)
        np.testing.assert_array_equal(predict_scores(again, make_toy(task).dev), scores)
        assert scores.std() > 1e-3
    save_model(again, tmp_path / "twice")
    assert (tmp_path / "twice" / "pals.safetensors").read_bytes() == (
        tmp_path / "pals.safetensors"
    ).read_bytes()
    plain = load_model(tmp_path)
    plain.encoder.pals = None
    save_model(plain, tmp_path)  # saved over the other model, whose PALs must not remain
    assert load_model(tmp_path).encoder.pals is None


@pytest.mark.parametrize("kind", ["pal", "sequential_fixed"])
def test_saving_only_the_parameters_of_the_tasks(make_pals_model, make_model, tmp_path, kind):
    model = make_pals_model(kind, "sst", "quora")
    save_pals(model.encoder, tmp_path / "own")
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [
        "pals.json",
        "pals.safetensors",
    ]
    other = make_model("sst", seed=0)  # the same encoder weights
    assert load_pals(other.encoder, tmp_path / "own") is other.encoder
    with torch.no_grad():
        for task in ("sst", "quora"):
            assert torch.equal(
                other.encoder.eval()(IDS, MASK, task=task).pooler_output,
                model.encoder.eval()(IDS, MASK, task=task).pooler_output,
            )
    add_again = make_pals_model(kind, "sts")
    load_pals(add_again.encoder, tmp_path / "own")  # these replace the previous modules
    assert list(add_again.encoder.pals.parts) == ["sst", "quora"]


def test_the_folder_opens_with_transformers_and_without_pals(make_pals_model, tmp_path):
    import transformers

    model = make_pals_model("pal", "sst", "quora").eval()
    keys = set(
        transformers.BertModel(transformers.BertConfig(**vars(model.encoder.config))).state_dict()
    )
    assert {key for key in model.encoder.state_dict() if not key.startswith("pals.")} == keys
    save_model(model, tmp_path)
    theirs, info = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ours, _ = load_pretrained(tmp_path)
    assert ours.pals is None
    with torch.no_grad():
        torch.testing.assert_close(
            ours(IDS, MASK).pooler_output, theirs.eval()(IDS, MASK).pooler_output, atol=1e-5, rtol=0
        )
    save_pretrained(model.encoder, model.tokenizer, tmp_path / "bare")
    assert not list((tmp_path / "bare").glob("pals*"))


def test_a_missing_file_of_pals_is_an_error(make_pals_model, tmp_path):
    save_model(make_pals_model("pal", "sst"), tmp_path)
    (tmp_path / "pals.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="pals.safetensors"):
        load_model(tmp_path)
    assert json.loads((tmp_path / "mmlkit.json").read_text(encoding="utf-8"))["pals"] is True


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("kind", ["pal", "houlsby"])
def test_a_frozen_encoder(make_pals_model, make_toy, kind, stay):
    """freeze_encoder=True trains only the heads, or also PALs with stay_trainable=True."""
    model = make_pals_model(kind, "sst", stay_trainable=stay, dropout=0.2)
    before = weights(model)
    fit(model, make_toy("sst"), freeze_encoder=True, epochs=1, lr=1e-2, batch_size=5)
    changed = changed_names(before, model)
    assert any(key.startswith("heads.") for key in changed)
    assert any(key.startswith("encoder.pals.") for key in changed) == stay
    assert not any(
        key.startswith("encoder.") and not key.startswith("encoder.pals.") for key in changed
    )
    assert all(
        parameter.requires_grad for parameter in model.parameters()
    )  # the encoder is frozen only during this call
    model.freeze_encoder().train()
    assert model.encoder.pals.training == stay and not model.encoder.encoder.training
    assert all(parameter.requires_grad == stay for parameter in model.encoder.pals.parameters())
    model.freeze_encoder(False)
    assert (
        all(parameter.requires_grad for parameter in model.parameters())
        and model.encoder.encoder.training
    )


def test_pals_have_their_own_learning_rate(make_pals_model, make_toy):
    """All learning rates follow the schedule, each from its own peak."""
    model = make_pals_model("pal", "sst")
    optimizer = make_optimizer(model, lr=1e-5, head_lr=1e-3, pal_lr=1e-4)
    ids = {
        id(parameter): group["peak"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in model.named_parameters():
        assert ids[id(parameter)] == (
            1e-4 if ".pals." in name else 1e-5 if name.startswith("encoder.") else 1e-3
        ), name
    rates = []
    watch = type(
        "Watch",
        (),
        {
            "after_step": lambda self, event: rates.append(
                {g["lr"] / g["peak"] for g in event.optimizer.param_groups}
            ),
            "state_dict": lambda self: {},
            "load_state_dict": lambda self, state: None,
        },
    )()
    fit(
        model,
        make_toy("sst"),
        optimizer=optimizer,
        epochs=1,
        batch_size=5,
        warmup=0.5,
        hooks=[watch],
    )
    assert [pytest.approx(min(rate)) for rate in rates] == [0.5, 1.0, 1.0, 0.5] and all(
        max(rate) - min(rate) < 1e-9 for rate in rates
    )
    assert {
        group["peak"] for group in make_optimizer(model, lr=1e-5, head_lr=1e-3).param_groups
    } == {1e-5, 1e-3}
    assert {group["peak"] for group in make_optimizer(model, lr=1e-5).param_groups} == {1e-5}


def test_a_model_with_pals_collapses_and_copies(make_pals_model, make_toy):
    model = make_pals_model("pal", "sst", "sts")
    with seeded(1):
        model.heads["sst"] = MultiverseHead(32, 5, num_heads=6, dropout=0.0)
    for other in (model.collapse(), copy.deepcopy(model)):
        np.testing.assert_allclose(
            predict_scores(other, make_toy("sst").dev),
            predict_scores(model, make_toy("sst").dev),
            atol=1e-5,
        )


def test_a_head_without_modules_is_refused(make_pals_model, make_toy):
    model = make_pals_model("pal", "sst")
    model.heads["sts"] = LinearHead(32, 1)
    with pytest.raises(
        ValueError, match=r"task is 'sts', but this encoder has modules for \['sst'\]"
    ):
        predict_scores(model, make_toy("sts").dev)


class Stop:
    """Raise KeyboardInterrupt after a number of steps; record the task of each step."""

    def __init__(self, after=None):
        self.after, self.seen = after, []

    def after_step(self, event):
        self.seen.append(event.task)
        if event.step == self.after:
            raise KeyboardInterrupt

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_killed_and_resumed_run_equals_the_whole_run(make_pals_model, make_toy, tmp_path):
    """The second of three epochs stops at its third step; the resumed run repeats this epoch."""
    data = {task: make_toy(task) for task in ("sst", "quora", "sts")}

    def run(watch, **options):
        model = make_pals_model("pal", *data, dropout=0.2)
        sampler = TaskSampler(
            "annealed", sizes={"sst": 9, "quora": 16, "sts": 4}, epochs=3, steps_per_epoch=7, seed=5
        )
        history = fit(
            model,
            data,
            epochs=3,
            batch_size=5,
            sampler=sampler,
            hooks=[watch],
            **options,
            optimizer=make_optimizer(model, lr=1e-3, head_lr=3e-3, pal_lr=5e-3),
        )
        return weights(model), history.drop(columns="seconds")

    whole, killed, rest = Stop(), Stop(after=10), Stop()
    expected, history = run(whole)
    with pytest.raises(KeyboardInterrupt):
        run(killed, checkpoint_dir=tmp_path)
    found, again = run(rest, checkpoint_dir=tmp_path, resume=True)
    assert len(whole.seen) == 21 and set(whole.seen) == set(data)
    assert killed.seen == whole.seen[:10] and rest.seen == whole.seen[7:]
    assert history.equals(again) and found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert any(".pals." in key for key in expected)
