"""The arithmetic of the roofline, counted by hand for BERT-base."""

import pytest
from roofline import roofline, step_cost

from mmlkit.bert.model import BertConfig

BASE = BertConfig.base()
LINEAR = 12 * (4 * 768**2 + 2 * 768 * 3072)  # 84,934,656
H100, A100 = (700e3, 0.85 * 3350), (260e3, 1700)  # GFLOP/s, GB/s


def test_the_count_of_a_step_by_hand():
    """Casts 6, readings 4, gradients 8, AdamW 28, the word table 8; 60 times 12 x [800, 768]."""
    assert step_cost(BASE, 800) == {
        "flop": 6 * LINEAR * 800,
        "bytes": 18 * LINEAR + 28 * 109_482_240 + 8 * 30522 * 768 + 60 * 768 * 2 * 12 * 800,
    }
    fp32 = step_cost(BASE, 800, precision="fp32")["bytes"]
    assert fp32 == 16 * LINEAR + 28 * 109_482_240 + 8 * 30522 * 768 + 60 * 768 * 4 * 12 * 800
    more = step_cost(BASE, 800, parameters=109_482_240 + 5)["bytes"]
    assert more - step_cost(BASE, 800)["bytes"] == 28 * 5


@pytest.mark.parametrize(
    ("tokens", "products", "moved", "total", "share"),
    [
        (800, 0.58, 1.99, 2.6, 0.23),
        (1600, 1.16, 2.30, 3.5, 0.34),
        (3200, 2.33, 2.92, 5.3, 0.44),
        (6400, 4.66, 4.16, 8.8, 0.53),
    ],
)
def test_bert_base_on_an_h100(tokens, products, moved, total, share):
    found = roofline(step_cost(BASE, tokens), *H100)
    assert found["products"] == pytest.approx(products, abs=0.006)
    assert found["bytes"] == pytest.approx(moved, abs=0.006)
    assert found["total"] == pytest.approx(total, abs=0.06)
    assert found["products_share"] == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(
    ("tokens", "total", "share"),
    [(800, 4.9, 0.32), (1600, 7.0, 0.45), (3200, 11.2, 0.56), (6400, 19.5, 0.64)],
)
def test_bert_base_on_an_a100(tokens, total, share):
    found = roofline(step_cost(BASE, tokens), *A100)
    assert found["total"] == pytest.approx(total, abs=0.06)
    assert found["products_share"] == pytest.approx(share, abs=0.006)
