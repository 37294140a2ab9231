"""The right answers of assignment 1 equal mmlkit's own modules."""

import ast
import copy
import warnings

import pytest
import torch
from common import code_questions, judge, student_object

from mmlcourse.grading.assignment import Assignment
from mmlcourse.grading.grader import _judge
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import Draw, Edition
from mmlcourse.grading.runner import encode
from mmlcourse.lessons.checks.compare import WrongAnswer
from mmlkit.bert.model import BertConfig, BertEmbeddings, BertLayer
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
        output, gradient, others = right(
            "layer", (D, H, inner, state, h.detach(), mask), gelu="exact"
        )
        torch.testing.assert_close(output, expected.detach(), atol=1e-10, rtol=1e-8)
        torch.testing.assert_close(gradient, h.grad, atol=1e-8, rtol=1e-6)
        found = dict(layer.named_parameters())
        names = [f"{THEIRS[key.split('.')[0]]}.{key.split('.')[1]}" for key in state]
        expected = torch.cat([found[name].grad.flatten() for name in names])
        torch.testing.assert_close(others, expected, atol=1e-8, rtol=1e-6)


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
    found = {
        share: right("evaluate", (weight, batches), share=share)
        for share in ("recall", "precision")
    }
    predictions, accuracy, recall, recorded, later = found["recall"]
    assert predictions.tolist() == [0, 1, 1] and (recorded, later) == (0, 1)
    assert accuracy.item() == torch.tensor(2 / 3).item()
    assert recall.tolist() == [0.5, 1.0] and found["precision"][2].tolist() == [1.0, 0.5]


def test_losses_with_a_gradient_are_read_without_a_warning():
    change = "losses.append(loss.item())", "losses.append(loss)"
    student = student_object(QUESTIONS["train"], "a1_minbert", "solution", 0, change)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge(QUESTIONS["train"], "a1_minbert", student)


def fused(query, key, value, mask):
    """Compute attention with the function that the question forbids."""
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask.bool())


def test_a_function_that_does_the_exercise_is_refused_by_the_check_and_by_the_grader(capsys):
    assert Assignment("a1", seed=5)("attention", fused) is False
    refused = "it uses scaled_dot_product_attention, which does the exercise; write this part yours"
    assert capsys.readouterr().out.startswith(f"1 attention: not yet: {refused}")
    one, edition = QUESTIONS["attention"], Edition(5)
    document = {"records": [{"value": encode(fused(*case))} for case in edition.cases(one)]}
    forbidden = "def attention(q, k, v, m):\n    return F.scaled_dot_product_attention(q, k, v, m)"
    own = "def attention(q, k, v, m):\n    return 'F.scaled_dot_product_attention'"
    helper = forbidden.replace("def attention", "def compare")

    def grade(*sources):
        cells = [{"cell_type": "code", "source": text} for text in sources]
        return _judge(one, document, edition, QUESTIONS, Program(cells, ["attention"]))[0]

    assert grade(own, forbidden).startswith(f"not yet: {refused}")
    assert grade(forbidden, helper, own) == "right"  # the last definition counts


def test_every_avoided_name_is_found_and_torchs_base_class_is_not():
    source = "class AdamW(torch.optim.Optimizer):\n    pass"
    QUESTIONS["adamw"].refuse(ast.parse(source))
    with pytest.raises(WrongAnswer, match="it uses torch.optim.AdamW, which does the exercise"):
        QUESTIONS["adamw"].refuse(ast.parse(source.replace("Optimizer", "AdamW")))


def test_a_wrong_function_of_another_question_is_pointed_to(capsys):
    check = Assignment("a1", seed=5, gelu="exact")
    norm = student_object(QUESTIONS["layer_norm"], "a1_minbert", "solution")
    change = "layer_norm(residual + y, g, beta, 1e-12)", "residual + y"
    add_norm = student_object(QUESTIONS["add_norm"], "a1_minbert", "solution", 0, change)
    assert check("add_norm", add_norm) is False
    first = "If it calls your answer to layer_norm: first run that check until it is right. Else: "
    assert capsys.readouterr().out.startswith(f"5 add_norm: not yet: {first}")
    assert check("layer_norm", norm) and not check("add_norm", add_norm)
    assert "add_norm: not yet: LayerNorm is missing" in capsys.readouterr().out
    assert check("add_norm", lambda *_: None) is False
    assert "add_norm: not yet: it returns nothing so far" in capsys.readouterr().out


def test_an_optimizer_that_does_nothing_is_a_stub_and_one_that_rebinds_is_not(capsys):
    check = Assignment("a1", seed=5, decay="after")
    assert not check("adamw", student_object(QUESTIONS["adamw"], "a1_minbert", "student"))
    assert capsys.readouterr().out == "9 adamw (AdamW): not yet: it returns nothing so far.\n"
    change = "theta.sub_(", "theta = theta - ("
    student = student_object(QUESTIONS["adamw"], "a1_minbert", "solution", 0, change)
    assert not check("adamw", student)
    assert "theta=" not in capsys.readouterr().out
