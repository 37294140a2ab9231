"""Tests of projected attention layers and the alternatives: sizes, formulas and errors."""

import json
import math

import pytest
import torch
from torch.nn import functional as F

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.pals.projected import ProjectedAttention
from mmlkit.pals.task_parts import add_pals, load_pals, save_pals
from mmlkit.runtime import seeded

SMALL = {
    "pal": dict(size=12, num_heads=3),
    "low_rank": dict(size=5),
    "houlsby": dict(size=5),
    "sequential": dict(size=12, num_heads=3),
    "sequential_fixed": dict(size=12, num_heads=3),
}
BERT_BASE = 109_482_240
GLUE = ["cola", "mrpc", "mnli", "rte", "stsb", "sst2", "qqp", "qnli"]


def tiny(kind="pal", tasks=("sst", "quora"), **options):
    """Return a tiny encoder with modules of this kind and large random weights and biases.

    The large weights make the effect of every module visible in the output.
    """
    with seeded(3):
        encoder = BertModel(BertConfig.tiny(initializer_range=0.3, num_hidden_layers=3)).eval()
        add_pals(encoder, list(tasks), kind=kind, **{**SMALL[kind], "init": "normal", **options})
        for name, parameter in encoder.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.3)
    return encoder


@pytest.mark.parametrize(
    ("kind", "options", "per_task", "eight"),
    [
        ("pal", {}, 1_819_836, 1.133),
        ("pal", {"num_heads": 6}, 1_819_836, 1.133),
        ("low_rank", {}, 1_853_616, 1.135),
        ("houlsby", {}, 1_862_832, 1.136),
        ("sequential", {}, 439_776, 1.032),
        ("sequential_fixed", {}, 439_776, 1.032),
    ],
)
def test_counts_of_bert_base(kind, options, per_task, eight):
    with torch.device("meta"):
        encoder = add_pals(BertModel(BertConfig.base()), GLUE, kind=kind, **options)
    counts = [
        sum(parameter.numel() for parameter in encoder.pals.part(task).parameters())
        for task in GLUE
    ]
    assert counts == [per_task] * 8
    total = sum(parameter.numel() for parameter in encoder.parameters())
    assert total == BERT_BASE + 8 * per_task and round(total / BERT_BASE, 3) == eight


def test_counts_of_three_tasks_and_without_biases():
    with torch.device("meta"):
        encoder = add_pals(BertModel(BertConfig.base()), ["sst", "quora", "sts"], 204, 12)
    assert sum(parameter.numel() for parameter in encoder.pals.parameters()) == 5_459_508
    assert (
        sum(
            parameter.numel()
            for parameter in encoder.pals.part("sts").parameters()
            if parameter.dim() == 2
        )
        == 1_811_520
    )


def attention(w, name, x, mask, heads):
    """Return softmax(q k / sqrt(size)) v, computed for one head, row and query at a time.

    Args:
        w: The state dict.
        name: The prefix of the query, key and value layers in it.
        x: Rows of vectors, [B, T, D].
        mask: Booleans, [B, T]; False for padding.
        heads: The number of attention heads.
    """
    rows = []
    for x_row, seen in zip(x, mask):
        q, k, v = (
            x_row @ w[f"{name}.{part}.weight"].T + w[f"{name}.{part}.bias"]
            for part in ("query", "key", "value")
        )
        size, mixed = q.shape[1] // heads, torch.zeros_like(q)
        for j in range(heads):
            part = slice(j * size, (j + 1) * size)
            for t in range(len(q)):
                weights = torch.tensor(
                    [
                        math.exp(q[t, part] @ k[u, part] / math.sqrt(size)) if seen[u] else 0.0
                        for u in range(len(k))
                    ]
                )
                mixed[t, part] = (weights / weights.sum()) @ v[:, part]
        rows.append(mixed)
    return torch.stack(rows)


def encoder_by_formula(encoder, ids, mask, task, kind, heads=3, gelu=False):
    """Return the encoder's outputs, computed by the published formulas from the state dict."""
    w, config = encoder.state_dict(), encoder.config

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, x):
        return F.layer_norm(
            x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], config.layer_norm_eps
        )

    def bottleneck(name, x):
        return linear(f"{name}.up", F.gelu(linear(f"{name}.down", x)))

    def projected(name, layer, x, seen):
        found = linear(
            f"{name}.up",
            attention(w, f"{name}.attention.{layer}", linear(f"{name}.down", x), seen, heads),
        )
        return F.gelu(found) if gelu else found

    own, seen = f"pals.parts.{task}", mask.bool()
    h = norm(
        "embeddings.LayerNorm",
        w["embeddings.word_embeddings.weight"][ids]
        + w["embeddings.token_type_embeddings.weight"][0]
        + w["embeddings.position_embeddings.weight"][: ids.shape[1]],
    )
    for i in range(config.num_hidden_layers):
        layer = f"encoder.layer.{i}"
        mh = linear(
            f"{layer}.attention.output.dense",
            attention(w, f"{layer}.attention.self", h, seen, config.num_attention_heads),
        )
        mh = mh + bottleneck(f"{own}.attention.{i}", mh) if kind == "houlsby" else mh
        a = norm(f"{layer}.attention.output.LayerNorm", h + mh)
        ffn = linear(f"{layer}.output.dense", F.gelu(linear(f"{layer}.intermediate.dense", a)))
        ffn = ffn + bottleneck(f"{own}.output.{i}", ffn) if kind == "houlsby" else ffn
        residuals = {
            "pal": lambda i=i, h=h: projected(own, i, h, seen),
            "low_rank": lambda i=i, h=h: bottleneck(f"{own}.layers.{i}", h),
        }
        h = norm(
            f"{layer}.output.LayerNorm", a + ffn + (residuals[kind]() if kind in residuals else 0.0)
        )
    if kind == "sequential":
        h = torch.cat([projected(f"{own}.projected", 0, h[:, :1], seen[:, :1]), h[:, 1:]], 1)
    if kind == "sequential_fixed":
        h = h + projected(f"{own}.projected", 0, h, seen)
    return h, torch.tanh(linear("pooler.dense", h[:, 0]))


@pytest.mark.parametrize(
    ("kind", "gelu"), [*((kind, False) for kind in SMALL), ("pal", True), ("sequential", True)]
)
@pytest.mark.parametrize("training", [False, True])
def test_the_encoder_computes_the_published_formula(kind, gelu, training):
    encoder = tiny(kind, **({"gelu": True} if gelu else {}))
    for module in encoder.modules():
        module.p = 0.0  # no dropout
    encoder.train(training)
    ids, mask = (
        torch.tensor([[2, 7, 9, 3, 0], [2, 5, 6, 8, 3]]),
        torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
    )
    with torch.no_grad():
        out = encoder(ids, mask, task="quora")
        hidden, pooled = encoder_by_formula(encoder, ids, mask, "quora", kind, gelu=gelu)
        plain, _ = encoder_by_formula(encoder, ids, mask, "quora", "none")
    real = mask.bool()
    torch.testing.assert_close(out.last_hidden_state[real], hidden[real], atol=2e-5, rtol=0)
    torch.testing.assert_close(out.pooler_output, pooled, atol=2e-5, rtol=0)
    assert (hidden - plain)[:, 0].abs().mean() > 0.05  # the modules of the task change the output


def test_projected_attention_by_hand():
    """D = 2, S = 1, one head, and all keys are equal.

    V^E takes the first feature, the value doubles it, and V^D writes it into both features.
    """
    own = ProjectedAttention(
        BertConfig.tiny(hidden_size=2, num_attention_heads=1, attention_probs_dropout_prob=0.0),
        size=1,
        num_heads=1,
    )
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.zero_()
        own.down.weight.copy_(torch.tensor([[1.0, 0.0]]))
        own.attention[1].value.weight.fill_(2.0)
        own.up.weight.copy_(torch.tensor([[1.0], [10.0]]))
        own.up.bias.copy_(torch.tensor([0.5, 0.0]))
        h = torch.tensor([[[1.0, 7.0], [3.0, 7.0], [8.0, 7.0]]])
        mask = torch.tensor([[0.0, 0.0, -1e9]])[:, None, None]
        assert own(h, 1).tolist() == [[[8.5, 80.0]] * 3]  # the mean of 2, 6 and 16
        assert own(h, 1, mask).tolist() == [[[4.5, 40.0]] * 3]  # the mean of 2 and 6, not padding
        assert own(h, 1, mask, 1).tolist() == [[[4.5, 40.0]]]
        assert own(h, 0).tolist() == [[[0.5, 0.0]] * 3]  # the other layer has its own value weights


@pytest.mark.parametrize("training", [False, True])
def test_sequential_is_affine_and_its_queries_and_keys_have_no_gradient(training):
    """With one key the attention weight is always 1, so the scores have no effect.

    The report applies this form to the [CLS] vector.
    """
    part = tiny("sequential").pals.part("sst").train(training)
    for module in part.modules():
        module.p = 0.0
    x, y = torch.randn(2, 4, 1, 32, generator=torch.Generator().manual_seed(0))
    w = part.projected.attention[0].value
    composed = part.projected.up.weight @ w.weight @ part.projected.down.weight
    constant = part.projected.up(w(part.projected.down(torch.zeros(32))))
    torch.testing.assert_close(
        part.transform_output(x, None, None), x @ composed.T + constant, atol=1e-5, rtol=1e-5
    )
    middle = part.transform_output(0.3 * x + 0.7 * y, None, None)
    torch.testing.assert_close(
        middle,
        0.3 * part.transform_output(x, None, None) + 0.7 * part.transform_output(y, None, None),
        atol=1e-5,
        rtol=1e-5,
    )
    assert torch.linalg.matrix_rank(composed) == 12
    part.transform_output(x, None, None).square().sum().backward()
    largest = {
        name: parameter.grad.abs().max().item() for name, parameter in part.named_parameters()
    }
    # Some fused kernels return rounding errors of about one millionth where the gradient is 0.
    for name, value in largest.items():
        assert (value > 1e-4 * max(largest.values())) == (
            ".query." not in name and ".key." not in name
        ), (name, value)


def test_sequential_fixed_is_not_affine_and_its_queries_and_keys_have_gradients():
    part = tiny("sequential_fixed").pals.part("sst")
    x, y = torch.randn(2, 4, 3, 32, generator=torch.Generator().manual_seed(0))
    middle, ends = (
        part.transform_output((x + y) / 2, None, None),
        (part.transform_output(x, None, None) + part.transform_output(y, None, None)) / 2,
    )
    assert (middle - ends).abs().max() > 0.1
    part.transform_output(x, None, None).square().sum().backward()
    assert all(
        parameter.grad.any()
        for name, parameter in part.named_parameters()
        if not name.endswith("key.bias")
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"kind": "lora"}, KeyError),
        ({"init": "ones"}, KeyError),
        ({"kind": "houlsby", "num_heads": 12}, TypeError),
        ({"kind": "low_rank", "gelu": True}, TypeError),
    ],
)
def test_an_unknown_word_or_argument_is_an_error(arguments, error):
    encoder = BertModel(BertConfig.tiny())
    with pytest.raises(error):
        add_pals(encoder, **{"tasks": ["sst"], **arguments})
    assert encoder.pals is None


def test_the_task_must_match_the_encoder():
    encoder, ids = tiny(tasks=["sst", "quora"]), torch.tensor([[2, 7, 3]])
    for task in (None, "sts"):
        with pytest.raises(
            ValueError,
            match=rf"task is {task!r}, but this encoder has modules for \['sst', 'quora'\]",
        ):
            encoder(ids, task=task)
    with pytest.raises(
        ValueError, match=r"already has modules for \['sst', 'quora'\]; set encoder.pals = None"
    ):
        add_pals(encoder, ["sts"], size=12)
    encoder.pals = None
    assert encoder(ids).pooler_output.shape == (1, 32)
    with pytest.raises(
        ValueError,
        match=r"task='sst' was given, but this encoder has no modules for tasks. Call add_pals",
    ):
        encoder(ids, task="sst")


def test_the_initialisation_depends_on_the_seed():
    one, same, other = (tiny(seed=seed).pals.part("quora").down.weight for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)
    encoder = tiny()
    assert not torch.equal(
        encoder.pals.part("sst").down.weight, encoder.pals.part("quora").down.weight
    )
    assert (
        not encoder.pals.training and add_pals(BertModel(BertConfig.tiny()), ["sst"]).pals.training
    )
    assert encoder.pals.part("sst").down.weight.std().item() == pytest.approx(0.3, rel=0.15)


@pytest.fixture
def saved(tmp_path):
    save_pals(tiny(), tmp_path)
    return tmp_path


def test_the_saved_configuration_is_complete(tmp_path):
    """Default sizes are saved too, so a folder keeps its meaning when the defaults change."""
    save_pals(add_pals(BertModel(BertConfig.tiny()), ["sst"]), tmp_path)
    assert json.loads((tmp_path / "pals.json").read_text(encoding="utf-8")) == {
        "kind": "pal",
        "tasks": ["sst"],
        "options": {"size": 204, "num_heads": 12, "gelu": False},
        "stay_trainable": False,
    }


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            lambda folder: (folder / "pals.json").unlink(),
            FileNotFoundError,
            "pals.json",
        ),
        (
            lambda folder: (folder / "pals.safetensors").unlink(),
            FileNotFoundError,
            "pals.safetensors",
        ),
        (
            lambda folder: (folder / "pals.json").write_text("{"),
            ValueError,
            "pals.json is not valid JSON",
        ),
        (
            lambda folder: (folder / "pals.safetensors").write_bytes(b"short"),
            ValueError,
            "pals.safetensors",
        ),
        (
            lambda folder: change_config(folder, options={"size": 24, "num_heads": 3}),
            ValueError,
            r"quora.attention.0.key.weight: \[12, 12\] in the file, \[24, 24\] by pals.json",
        ),
        *[
            (
                lambda folder, changes=changes: change_config(folder, **changes),
                ValueError,
                "pals.safetensors does not fit pals.json",
            )
            for changes in (
                {"kind": "lora"},
                {"width": 3},
                {"tasks": 1},
                {"options": {"rank": 3}},
                {"options": {"size": 24, "num_heads": 0}},
            )
        ],
    ],
)
def test_damaged_files_are_named_in_the_error(saved, damage, error, message):
    damage(saved)
    encoder = BertModel(BertConfig.tiny(num_hidden_layers=3))
    with pytest.raises(error, match=f"(?s){message}"):
        load_pals(encoder, saved)
    assert encoder.pals is None


def change_config(folder, **values):
    metadata = json.loads((folder / "pals.json").read_text(encoding="utf-8"))
    (folder / "pals.json").write_text(json.dumps({**metadata, **values}), encoding="utf-8")


def test_pals_of_an_encoder_with_more_layers_are_refused(saved):
    encoder = BertModel(BertConfig.tiny(num_hidden_layers=1))
    with pytest.raises(ValueError, match="pals.safetensors does not fit pals.json and this enc"):
        load_pals(encoder, saved)
    assert encoder.pals is None
