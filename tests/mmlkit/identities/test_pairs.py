"""Pairs of separately encoded sentences: the equations by hand, and independence of the rows."""

import numpy as np
import pytest
import torch

from mmlcourse.studies.methods import build_head
from mmlkit.data.batching import collate, encode
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.saving import load_model, save_model
from mmlkit.training.step import train_step


@pytest.fixture
def make_pair_model(make_model):
    """Return a function (tasks, dropout) that builds a tiny model with a PairHead per pair task."""

    def make(*tasks, dropout=0.0):
        model = make_model(*tasks, dropout=dropout)
        for name, labels in (("quora", 2), ("sts", 1)):
            if name in tasks:
                with seeded(3):
                    model.heads[name] = PairHead(32, labels, dropout=dropout)
        return model.eval()

    return make


def test_scores_by_hand(make_pair_model, make_toy):
    model, split = make_pair_model("sts"), make_toy("sts").dev
    head, vectors = model.heads["sts"], []
    for column in (0, 1):
        rows = []
        for texts in split.texts:  # one at a time, without padding
            coded = model.tokenizer(texts[column], return_tensors="pt")
            with torch.no_grad():
                x = (
                    model.encoder(
                        coded["input_ids"], coded["attention_mask"], coded["token_type_ids"]
                    )
                    .last_hidden_state[0]
                    .mean(0)
                )
            rows.append(x / x.norm() * 32**0.5)
        vectors.append(torch.stack(rows))
    u, v = vectors
    weight, bias = head.dense.weight[0], head.dense.bias
    by_hand = (
        u @ weight[:32]
        + v @ weight[32:64]
        + (u - v).abs() @ weight[64:96]
        + (u * v) @ weight[96:]
        + bias
    )
    np.testing.assert_allclose(
        predict_scores(model, split)[:, 0], by_hand.detach().numpy(), atol=2e-5
    )


def test_micro_batches_give_the_gradient_of_the_whole(make_pair_model, make_toy):
    data, ends = make_toy("quora"), []
    for size in (None, 3):
        model = make_pair_model("quora")
        batch = collate(encode(model.tokenizer, data.train, pairs="separate"), list(range(10)))
        loss = train_step(
            model,
            batch,
            torch.optim.SGD(model.parameters(), lr=0.1),
            micro_batch_size=size,
            clip=None,
        )
        ends.append(
            (
                loss.total.item(),
                {name: value.detach().clone() for name, value in model.named_parameters()},
            )
        )
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-5)
    for name, value in ends[0][1].items():
        torch.testing.assert_close(ends[1][1][name], value, atol=1e-6, rtol=1e-4, msg=name)


def test_it_trains_and_saves_with_packed_and_single_tasks(make_pair_model, make_toy, tmp_path):
    model = make_pair_model("sst", "quora", "sts")
    model.heads["sts"] = LinearHead(32, 1, dropout=0.0)
    data = {name: make_toy(name) for name in model.heads}
    history = fit(model, data, epochs=3, lr=3e-3, batch_size=5)
    losses = history[history["task"] == "quora"]["train_loss"].tolist()
    assert losses[-1] < losses[0]
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert [head.pairs for head in again.heads.values()] == ["packed", "separate", "packed"]
    for name in data:
        np.testing.assert_array_equal(
            predict_scores(again, data[name]), predict_scores(model, data[name])
        )


def test_multiverse_heads_on_two_sentences_train_prune_save_and_collapse(
    make_pair_model, make_toy, tmp_path
):
    """A single head equals PairHead.

    Many heads are pruned and saved, and collapse into a PairHead with the same scores.
    """
    data, model = make_toy("quora"), make_pair_model("quora")
    single = model.heads["quora"]
    one = MultiverseHead(32, 2, num_heads=1, dropout=0.0, pooling="mean", pairs="separate")
    with torch.no_grad():
        (
            one.weight.copy_(single.dense.weight[None]),
            one.bias.copy_(single.dense.bias[None]),
        )
    expected = predict_scores(model, data)
    model.heads["quora"] = one
    np.testing.assert_allclose(predict_scores(model, data), expected, atol=1e-6)
    with seeded(0):
        head, hooks = build_head(
            "mml", 32, 2, num_heads=12, pooling="mean", pairs="separate", every=2, bandwidth=1e-4
        )
    assert head.weight.shape == (12, 2, 128)
    model.heads["quora"] = head
    fit(model, data, epochs=2, lr=1e-3, batch_size=5, hooks=hooks)
    assert hooks[0].events and not head.active.all()
    collapsed = model.collapse()
    assert isinstance(collapsed.heads["quora"], PairHead)
    np.testing.assert_allclose(
        predict_scores(collapsed, data), predict_scores(model, data), atol=1e-5
    )
    save_model(model, tmp_path)
    np.testing.assert_array_equal(
        predict_scores(load_model(tmp_path), data), predict_scores(model, data)
    )
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        head(torch.zeros(3, 32))
