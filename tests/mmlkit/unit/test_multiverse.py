"""The multiverse head and loss: pairs by hand, the double loop, gradients and masks."""

import copy
import itertools
import pickle

import pytest
import torch
from torch.nn import functional as F

from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss


def double_loop(weight, active):
    """Return Eq. 4, computed as printed."""
    ids = active.nonzero().flatten().tolist()
    pairs = [
        (weight[r, k] @ weight[s, k]).abs()
        for k in range(weight.shape[1])
        for r, s in itertools.combinations(ids, 2)
    ]
    return sum(pairs, start=weight.new_zeros(()))


def test_by_hand():
    weight = torch.tensor(
        [[[1.0, 0.0]], [[0.0, 2.0]], [[3.0, -4.0]]]
    )  # <1,2> = 0, <1,3> = 3, <2,3> = -8
    assert multiverse_loss(weight).item() == 11
    assert multiverse_loss(weight, torch.tensor([True, True, False])).item() == 0
    assert multiverse_loss(weight, similarity="cosine").item() == pytest.approx(0.6 + 0.8)


@pytest.mark.parametrize(
    "heads, labels, width, seed", [(2, 1, 3, 0), (7, 3, 5, 1), (24, 2, 16, 2), (5, 4, 2, 3)]
)
@pytest.mark.parametrize("dtype, atol", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_gram_form_equals_the_double_loop(heads, labels, width, seed, dtype, atol):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(heads, labels, width, generator=generator, dtype=dtype, requires_grad=True)
    active = torch.rand(heads, generator=generator) > 0.3
    ours, theirs = multiverse_loss(weight, active), double_loop(weight, active)
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-6)
    if active.sum() > 1:
        gradients = [torch.autograd.grad(loss, weight)[0] for loss in (ours, theirs)]
        torch.testing.assert_close(*gradients, atol=atol, rtol=1e-6)
        assert (gradients[0][~active] == 0).all()


@pytest.mark.parametrize("options", [{}, {"similarity": "cosine"}])
def test_gradient_by_central_differences(options):
    weight = torch.randn(
        5, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(
        lambda w: multiverse_loss(w, **options), (weight,), eps=1e-7, atol=1e-5
    )


def test_the_gradient_is_the_full_sign_matrix_times_the_rows():
    weight = torch.randn(6, 1, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    multiverse_loss(weight).backward()
    sign = (weight[:, 0] @ weight[:, 0].T).sign().fill_diagonal_(0)
    torch.testing.assert_close(weight.grad[:, 0], sign @ weight[:, 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype):
    weight = torch.full(
        (40, 1, 64), 30.0, dtype=dtype, requires_grad=True
    )  # one dot product is 57,600, their sum 45 million
    loss = multiverse_loss(weight)
    loss.backward()
    assert loss.dtype == torch.float32 and loss.item() == 780 * 57600 and weight.grad.dtype == dtype


def test_one_head_has_no_penalty():
    assert multiverse_loss(torch.ones(1, 3, 4)).item() == 0
    assert MultiverseHead(4, 3, num_heads=1).penalty() is None
    assert MultiverseHead(4, 3, num_heads=5, orthogonality_weight=0).penalty() is None


@pytest.fixture
def head():
    torch.manual_seed(0)
    head = MultiverseHead(8, 3, num_heads=6, dropout=0.0)
    with torch.no_grad():
        head.bias.normal_()
    head.set_active([True, False, True, True, False, True])
    return head


def test_the_mean_of_active_heads_and_its_collapse(head):
    x = torch.randn(5, 8)
    each = torch.stack([F.linear(x, head.weight[j], head.bias[j]) for j in (0, 2, 3, 5)], dim=1)
    torch.testing.assert_close(head.all_logits(x), each)
    torch.testing.assert_close(head(x), each.mean(1))
    torch.testing.assert_close(head.collapse()(x), head(x), rtol=1e-6, atol=1e-6)
    assert sum(p.numel() for p in head.collapse().parameters()) == 8 * 3 + 3


def test_inactive_heads_get_no_gradient(head):
    (head.all_logits(torch.randn(5, 8)).square().sum() + head.penalty()).backward()
    for parameter in (head.weight, head.bias):
        assert (parameter.grad[~head.active] == 0).all() and (
            parameter.grad[head.active] != 0
        ).any()


def test_a_dropped_head_stays_dropped(head):
    for wrong in ([True] * 6, [False] * 6, [True] * 5, [0, 2, 3, 5, 0, 2]):
        with pytest.raises(ValueError, match="expected a mask of 6 times True or False"):
            head.set_active(wrong)
    head.set_active([False, False, True, False, False, False])
    assert head.active.tolist() == [False, False, True, False, False, False]


def load_a_state(head):
    head.load_state_dict({**head.state_dict(), "active": torch.arange(6) % 5 == 0})


def assign_a_state(head):
    head.load_state_dict({**head.state_dict(), "active": torch.arange(6) % 5 == 0}, assign=True)


def keep_the_last(head):
    head.set_active([False] * 5 + [True])


@pytest.mark.parametrize("change", [load_a_state, assign_a_state, keep_the_last])
def test_the_indices_follow_every_change_of_the_mask(head, change):
    """The indices are kept between steps."""
    assert head.active_indices.tolist() == [0, 2, 3, 5]
    change(head)
    expected = head.active.nonzero()[:, 0]
    assert torch.equal(head.active_indices, expected) and len(expected) < 4
    assert head.all_logits(torch.randn(5, 8)).shape[1] == len(expected)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda head: pickle.loads(pickle.dumps(head))], ids=["copy", "pickle"]
)
def test_a_copy_has_its_own_mask(head, copied):
    other, x = copied(head), torch.randn(3, 8)
    assert torch.equal(other(x), head(x))
    other.set_active([True] + [False] * 5)
    assert (other.active_indices.tolist(), head.active_indices.tolist()) == ([0], [0, 2, 3, 5])


def test_a_head_that_predicted_first_can_be_trained():
    """Tensors of inference mode cannot take part in a backward pass."""
    head = MultiverseHead(8, 2, num_heads=3)
    head.set_active([True, False, True])
    with torch.inference_mode():
        head(torch.zeros(4, 8))
    head.all_logits(torch.ones(4, 8)).sum().backward()
    assert (head.weight.grad[0] != 0).any()


def test_a_packed_head_takes_one_vector_per_row():
    with pytest.raises(ValueError, match="too many values"):
        MultiverseHead(8, 2, num_heads=2)(torch.zeros(3, 8), torch.zeros(3, 8))


def test_scale_at_the_papers_size():
    """With 1,024 heads of 2 labels, initialised like BERT's weights, lambda times the loss is about
    7.5 % of the summed task loss at initialisation.
    """
    torch.manual_seed(0)
    head = MultiverseHead(1024, 2, num_heads=1024)
    assert multiverse_loss(head.weight.detach()).item() == pytest.approx(10_699, rel=0.01)
    assert head.penalty().item() / (1024 * 0.6931) == pytest.approx(0.075, abs=0.002)
    assert sum(p.numel() for p in head.parameters()) == 2_099_200


def test_a_second_derivative_is_refused():
    """The gradient is written by hand. A second derivative would be wrong, so it is an error."""
    weight = torch.randn(4, 2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="the multiverse loss has a first derivative only"):
        torch.autograd.grad(multiverse_loss(weight), weight, create_graph=True)


def test_dropped_heads_stay_dropped_in_a_custom_loop():
    head = MultiverseHead(8, 2, num_heads=5, dropout=0.0)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.1, weight_decay=0.5)
    for step in range(4):
        if step == 2:
            head.set_active([True, False, True, True, False])
            kept = head.weight.detach().clone(), head.bias.detach().clone()
        optimizer.zero_grad()
        head(torch.ones(3, 8)).square().sum().backward()
        with head.dropped_heads_unmoved():
            optimizer.step()
    for parameter, before in zip((head.weight, head.bias), kept):
        assert torch.equal(parameter[[1, 4]], before[[1, 4]]) and not torch.equal(
            parameter[[0, 2, 3]], before[[0, 2, 3]]
        )
