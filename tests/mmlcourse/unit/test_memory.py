"""The formula of the memory: parameters, the tensors that a step keeps, and the profile colab."""

import pytest
import torch
from memory import encoder_parameters, training_memory

from mmlcourse.lessons.profiles import get_profile
from mmlkit.bert.model import BertConfig, BertModel


@pytest.mark.parametrize("changes", [{}, dict(num_hidden_layers=3, intermediate_size=80)])
def test_the_parameters_are_those_of_the_encoder(changes):
    config = BertConfig.tiny(**changes)
    assert encoder_parameters(config) == sum(p.numel() for p in BertModel(config).parameters())
    assert encoder_parameters(BertConfig.base()) == 109_482_240


def test_the_parts_of_bert_base():
    """4 + 4 + 8 bytes per parameter, and 2 for the copies in 16 bits."""
    found = training_memory(BertConfig.base(), 32, 128)
    assert found["weights"] + found["gradients"] + found["optimizer"] == pytest.approx(1.9707, 1e-4)
    assert found["best"] == pytest.approx(0.4379, 1e-3)  # 4 bytes
    vectors, maps = 32 * 128 * 768, 32 * 12 * 128**2
    expected = 12 * (54 * vectors + 9 * maps) + 13 * vectors
    assert found["activations"] * 1e9 == expected
    assert found["total"] == pytest.approx(sum(found.values()) / 2)


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
