"""The right answers of assignment 1 equal mmlkit's own modules."""

import copy

import torch
from common import code_questions

from mmlkit.bert.model import BertConfig, BertEmbeddings, BertLayer
from mmlkit.grading.questions import Draw
from mmlkit.training.optimizers import AdamW

QUESTIONS = {one.name: one for one in code_questions("a1_minbert")}
THEIRS = {
    **{name: f"attention.self.{name}" for name in ("query", "key", "value")},
    "attention_dense": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "output_norm": "output.LayerNorm",
}


def right(name, case, **variants):
    return QUESTIONS[name].right(lambda value, _: value, *case, **variants)


def test_the_layer_and_its_parts_equal_the_library():
    for D, H, inner, state, h, mask in QUESTIONS["layer"].cases(Draw("parity")):
        config = BertConfig.tiny(hidden_size=D, num_attention_heads=H, intermediate_size=inner)
        layer = BertLayer(config).double().eval()
        layer.load_state_dict(
            {f"{THEIRS[key.split('.')[0]]}.{key.split('.')[1]}": one for key, one in state.items()}
        )
        h = h.double().requires_grad_()
        expected = layer(h, mask.double())
        expected.square().sum().backward()
        output, gradient = right("layer", (D, H, inner, state, h.detach(), mask), gelu="exact")
        torch.testing.assert_close(output, expected.detach(), atol=1e-10, rtol=1e-8)
        torch.testing.assert_close(gradient, h.grad, atol=1e-8, rtol=1e-6)


def test_the_embeddings_equal_the_library():
    for ids, segments, *tables, g, b in QUESTIONS["embeddings"].cases(Draw("parity")):
        config = BertConfig.tiny(
            vocab_size=len(tables[0]),
            hidden_size=len(g),
            num_attention_heads=1,
            max_position_embeddings=len(tables[1]),
        )
        module = BertEmbeddings(config).eval()
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
        state = {f"{name}.weight": one for name, one in zip(names, tables)}
        module.load_state_dict({**state, "LayerNorm.weight": g, "LayerNorm.bias": b})
        expected = module(ids, segments).detach()
        found = right("embeddings", (ids, segments, *tables, g, b))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_optimizer_equals_the_library_and_one_step_equals_the_other_question():
    (case,) = QUESTIONS["adamw"].cases(Draw("parity"))
    after = right("adamw", case, decay="after")
    expected = QUESTIONS["adamw"].driver(AdamW, *copy.deepcopy(case))
    torch.testing.assert_close(after, expected)
    before = right("adamw", case, decay="before")
    assert (before - expected).abs().max() > 1e-4
    theta, g = torch.tensor([0.5]), torch.tensor([0.3])
    settings = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 0.01, "weight_decay": 0.1}
    one = right("adamw", ([theta], [[g]], settings), decay="after")
    step = right("adamw_step", (0.5, 0.3, 0.0, 0.0, 1, 0.1, 0.9, 0.99, 0.01, 0.1))
    torch.testing.assert_close(one.item(), step[0], atol=1e-6, rtol=1e-6)


def test_an_evaluation_by_hand():
    weight = torch.eye(2)
    batches = [
        ((torch.tensor([[1.0, 0.0], [0.0, 1.0]]),), torch.tensor([0, 0])),
        ((torch.tensor([[0.0, 1.0]]),), torch.tensor([1])),
    ]
    predictions, accuracy, recorded = right("evaluate", (weight, batches))
    assert predictions.tolist() == [0, 1, 1] and recorded == 0
    assert accuracy.item() == torch.tensor(2 / 3).item()
