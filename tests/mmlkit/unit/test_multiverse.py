"""The multiverse head and loss: pairs by hand, the double loop, gradients and masks."""

import copy
import itertools
import pickle
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead, multiverse_loss


def double_loop(weight, active, shape=torch.abs):
    """Return Eq. 4, computed as printed."""
    ids = active.nonzero().flatten().tolist()
    pairs = [
        shape(weight[r, k] @ weight[s, k])
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
    assert multiverse_loss(weight, shape="square").item() == 9 + 64
    assert multiverse_loss(weight, shape="smooth", eps=4.0).item() == pytest.approx(
        0 + (5 - 4) + (80**0.5 - 4)
    )


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


@pytest.mark.parametrize(
    "options", [{}, {"similarity": "cosine"}, {"shape": "smooth"}, {"shape": "square"}]
)
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


def without_active_heads(head):
    """Return the head with its mask cleared directly, without set_active."""
    head.active.zero_()
    return head


def test_a_dropped_head_stays_dropped(head):
    for mask in ([True] * 6, [False] * 6, [True] * 5):
        with pytest.raises(
            ValueError,
            match="expected 6 entries, at least one head, and none that was dropped before",
        ):
            head.set_active(mask)
    head.set_active([False, False, True, False, False, False])
    assert head.active.tolist() == [False, False, True, False, False, False]


def change_in_place(head):
    head.active[2] = False


def load_a_state(head):
    head.load_state_dict({**head.state_dict(), "active": torch.arange(6) % 5 == 0})


def assign_a_state(head):
    head.load_state_dict({**head.state_dict(), "active": torch.arange(6) % 5 == 0}, assign=True)


def keep_the_last(head):
    head.set_active([False] * 5 + [True])


@pytest.mark.parametrize(
    "change", [change_in_place, load_a_state, assign_a_state, keep_the_last, copy.deepcopy]
)
def test_the_indices_follow_every_change_of_the_mask(head, change):
    """The indices are kept between steps, and a copy of the head has its own."""
    x = torch.randn(5, 8)
    assert head.active_indices.tolist() == [0, 2, 3, 5]
    changed = change(head) or head
    changed.active[0] = False
    expected = changed.active.nonzero()[:, 0]
    assert torch.equal(changed.active_indices, expected) and 0 not in expected
    assert changed.all_logits(x).shape[1] == len(expected)
    if changed is not head:
        assert head.active_indices.tolist() == [0, 2, 3, 5]


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda head: pickle.loads(pickle.dumps(head))], ids=["copy", "pickle"]
)
def test_a_copy_reads_its_own_mask(copied):
    """`fit` prunes the mask and loads that of the best epoch; a copied mask counts changes anew."""
    head, x = MultiverseHead(8, 2, num_heads=4).eval(), torch.randn(3, 8)
    best = {key: value.clone() for key, value in head.state_dict().items()}
    head.set_active([True, True, False, False])
    head(x)
    head.load_state_dict(best)
    other = copied(head)
    assert other.active_indices.tolist() == head.active_indices.tolist() == [0, 1, 2, 3]
    assert torch.equal(other(x), head(x))


@pytest.mark.parametrize("inside", [False, True])
def test_a_head_that_predicted_first_can_be_trained(inside):
    """Tensors of inference mode cannot take part in a backward pass, nor can their changes be seen.

    The mask itself may come from there.
    """
    with torch.inference_mode(inside):
        head = MultiverseHead(8, 2, num_heads=3)
    with torch.inference_mode():
        head(torch.zeros(4, 8))
    if inside:
        with torch.inference_mode():
            head.active[1] = False
        assert head.active_indices.tolist() == [0, 2]
    else:
        head.all_logits(torch.ones(4, 8)).sum().backward()
        assert (head.weight.grad != 0).any()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MultiverseHead(8, 0, num_heads=3), "num_labels is 0"),
        (lambda: MultiverseHead(8, 2, num_heads=0), "num_heads is 0, expected a whole number"),
        (lambda: MultiverseHead(8, 2, num_heads=2, pooling="max"), "pooling 'max' is not one of"),
        (
            lambda: MultiverseHead(8, 2, num_heads=2)(torch.zeros(3, 9)),
            r"x has shape \[3, 9\], expected \[batch, 8\]",
        ),
        (lambda: multiverse_loss(torch.zeros(3, 4)), r"expected \[heads, labels, hidden_size\]"),
        (
            lambda: multiverse_loss(torch.zeros(3, 1, 4), torch.ones(2, dtype=torch.bool)),
            r"expected bool of \[3\]",
        ),
        (
            lambda: without_active_heads(MultiverseHead(8, 2, num_heads=2))(torch.zeros(3, 8)),
            "none of the 2 heads is active",
        ),
        (
            lambda: without_active_heads(MultiverseHead(8, 2, num_heads=2)).all_logits(
                torch.zeros(3, 8)
            ),
            "none of the 2 heads is active",
        ),
        (
            lambda: MultiverseHead(8, 2, num_heads=3).loss(
                (torch.zeros(4, 8),), SimpleNamespace(task=get_task("stsb"), labels=torch.zeros(4))
            ),
            "this head gives 2 scores per row, a regression task has one; make the head with "
            "num_labels=1",
        ),
        (
            lambda: LinearHead(8, 2).loss(
                (torch.zeros(4, 8),), SimpleNamespace(task=get_task("stsb"), labels=torch.zeros(4))
            ),
            "this head gives 2",
        ),
        (
            lambda: multiverse_loss(torch.zeros(3, 1, 4), shape="cube"),
            "shape 'cube' must be one of",
        ),
    ],
)
def test_wrong_use(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_scale_at_the_papers_size():
    """With 1,024 heads of 2 labels, initialised like BERT's weights, lambda times the loss is about
    7.5 % of the summed task loss at initialisation.
    """
    torch.manual_seed(0)
    head = MultiverseHead(1024, 2, num_heads=1024)
    assert multiverse_loss(head.weight.detach()).item() == pytest.approx(10_699, rel=0.01)
    assert head.penalty().item() / (1024 * 0.6931) == pytest.approx(0.075, abs=0.002)
    assert sum(p.numel() for p in head.parameters()) == 2_099_200


@pytest.mark.parametrize("shape", ["abs", "smooth", "square"])
def test_a_second_derivative_is_refused(shape):
    """The gradient is written by hand. A second derivative would be wrong, so it is an error."""
    weight = torch.randn(4, 2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="the multiverse loss has a first derivative only"):
        torch.autograd.grad(multiverse_loss(weight, shape=shape), weight, create_graph=True)


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
