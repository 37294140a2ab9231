"""The formula of the memory: parameters, the tensors that a step keeps, and the profile colab."""

import pytest
import torch
from memory import encoder_parameters, orthogonality_memory, training_memory
from torch.utils._python_dispatch import TorchDispatchMode

from mmlcourse.lessons.profiles import get_profile
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.heads.multiverse import multiverse_loss


@pytest.mark.parametrize("changes", [{}, dict(num_hidden_layers=3, intermediate_size=80)])
def test_the_parameters_are_those_of_the_encoder(changes):
    config = BertConfig.tiny(**changes)
    assert encoder_parameters(config) == sum(p.numel() for p in BertModel(config).parameters())
    assert encoder_parameters(BertConfig.base()) == 109_482_240


def test_the_parts_of_bert_base():
    """4 + 4 + 8 bytes per parameter, and 2 for the copies in 16 bits."""
    found = training_memory(BertConfig.base(), 32, 128)
    assert found["weights"] + found["gradients"] + found["optimizer"] == pytest.approx(1.9707, 1e-4)
    vectors, maps = 32 * 128 * 768, 32 * 12 * 128**2
    expected = 12 * (54 * vectors + 9 * maps) + 13 * vectors
    assert found["activations"] * 1e9 == expected
    assert found["total"] == pytest.approx(sum(found.values()) / 2)


@pytest.mark.parametrize(
    ("heads", "more", "term"),
    [
        (384, 384 * 5 * 769, 4 * (2 * 384**2 + 2 * 384 * 5 * 768)),  # 13 MB
        (1024, 1024 * 5 * 769, 4 * (2 * 1024**2 + 2 * 1024 * 5 * 768)),  # 40 MB
    ],
)
def test_hundreds_of_heads_on_512_tokens_fit_in_16_gb(heads, more, term):
    """18 bytes for each of their parameters; the term is smaller than the activations."""
    sizes = dict(length=512, fused=True)
    found = training_memory(BertConfig.base(), 16, heads=heads, **sizes)
    vectors = 16 * 512 * 768
    activations = 12 * 54 * vectors + 13 * vectors  # no [B, A, T, T]
    assert found["activations"] * 1e9 == activations and found["orthogonality"] * 1e9 == term
    assert found["total"] * 1e9 == pytest.approx(18 * (109_482_240 + more) + activations)
    assert found["total"] + 0.5 < 7  # with 16 rows
    twice = training_memory(BertConfig.base(), 32, heads=heads, **sizes)
    assert twice["total"] + 0.5 < 11
    alone = training_memory(BertConfig.base(), 0, heads=heads, **sizes)
    assert alone["total"] * 1e9 == pytest.approx(18 * (109_482_240 + more) + term)


class Sizes(TorchDispatchMode):
    """Collects the bytes of all results of operations."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        self.found.add(result.untyped_storage().nbytes() if torch.is_tensor(result) else 0)
        return result


def test_the_orthogonality_term_keeps_one_matrix_of_a_class():
    """It keeps its gradient [M, C, D], and no tensor in its forward pass is larger."""
    weight, kept = torch.randn(64, 5, 32, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        with Sizes() as sizes:
            multiverse_loss(weight)
    assert [one.shape for one in kept] == [(64, 5, 32)]
    assert 4 * 64 * 64 in sizes.found and max(sizes.found) == 4 * 64 * 5 * 32
    assert orthogonality_memory(64, 5, 32) == 4 * (2 * 64 * 64 + 2 * 64 * 5 * 32)


@pytest.mark.parametrize("length", [16, 64])
def test_a_training_step_keeps_no_more_than_the_formula_says(length):
    """The tensors that the backward pass keeps, in fp32 and with dropout, counted once each."""
    config = BertConfig.tiny(num_hidden_layers=3, hidden_size=64, intermediate_size=256)
    model, kept = BertModel(config).train(), {}
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # the tensor keeps its address
        return tensor

    ids = torch.randint(5, 199, (8, length))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    measured = sum(size for size, _ in kept.values()) / 1e9
    estimate = training_memory(config, 8, length, precision="fp32")["activations"]
    assert 0.6 * estimate < measured <= estimate, measured / estimate


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_the_profile_colab_needs_less_than_12_gb(precision):
    """Notebook 12 keeps the most models: five systems beside the one that is trained."""
    size = get_profile("colab")
    found = training_memory(
        BertConfig.base(), size.batch_size, size.max_length, precision=precision, kept_models=5
    )
    reviews = training_memory(
        BertConfig.base(), size.review_batch_size, 512, precision=precision, kept_models=1
    )
    assert found["total"] + 0.5 < 12 and reviews["total"] + 0.5 < 12, (found, reviews)
    large = training_memory(BertConfig.large(), 32, 512, precision=precision)
    assert large["total"] > 12  # the formula can say no
