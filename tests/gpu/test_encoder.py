"""On a GPU, the encoder agrees with transformers' in fp32, and predictions agree with the CPU."""

import numpy as np
import pytest
import torch

from mmlcourse.cli.main import main
from mmlkit import load_pretrained, load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.training.evaluation import evaluate, predict_proba
from mmlkit.training.model import MultitaskModel
from tests.mmlkit.parity.test_bert import (
    PAIRS,
    TEXTS,
    assert_same_gradients,
    minilm_folder,
    random_encoder_and_batch,
    to_transformers,
)

pytestmark = pytest.mark.gpu


def on(device, batch):
    return {name: value.to(device) for name, value in batch.items()}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_minilm_agrees_with_transformers(device, exact_products, attention):
    import transformers

    encoder, tokenizer = load_pretrained("minilm", device=device)
    options = dict(attn_implementation=attention)
    theirs = transformers.BertModel.from_pretrained(minilm_folder(), **options).eval().to(device)
    batch = on(device, tokenizer(list(TEXTS), list(PAIRS), padding=True, return_tensors="pt"))
    with torch.no_grad():
        ours, other = encoder.eval()(**batch), theirs(**batch)
    tokens = batch["attention_mask"].bool()
    assert ours.pooler_output.device.type == device.type
    for one, two in (
        (ours.last_hidden_state[tokens], other.last_hidden_state[tokens]),
        (ours.pooler_output, other.pooler_output),
    ):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=0)
    assert_same_gradients(encoder, theirs, batch)


@pytest.mark.parametrize("number", range(4))
def test_gradients_of_random_configurations_agree_with_transformers(device, exact_products, number):
    encoder, batch = random_encoder_and_batch(number)
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    other = to_transformers(encoder, "eager").to(device)
    assert_same_gradients(encoder.to(device).train(), other, on(device, batch))


def test_predictions_agree_with_the_cpu(device, exact_products):
    """Within 1e-4 in fp32, so that the metrics are equal; half precision moves a probability."""
    encoder, tokenizer = load_pretrained("minilm", device="cpu")
    torch.manual_seed(0)
    model = MultitaskModel(encoder, {"sst": LinearHead(384, 5, pooling="mean")}, tokenizer)
    with torch.no_grad():
        model.heads["sst"].dense.weight.mul_(20)  # so that the rows differ
    data = load_task("sst", limit=16)
    expected = predict_proba(model, data, device="cpu")
    metrics = evaluate(model, data, device="cpu")
    assert expected.std(0).min() > 0.02
    found = predict_proba(model, data, precision="fp32", device=device)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert evaluate(model, data, precision="fp32") == metrics
    for precision in ("bf16", "fp16"):
        found = predict_proba(model, data, precision=precision)
        assert 0 < np.abs(found - expected).max() < 0.1


def test_doctor_names_the_gpu(device, capsys):
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert f"device         {device.type} (" in output and "profile colab" in output
