"""Tests of ranking: grouping rows into queries, batches of whole queries, the loss and its
minimum, metrics with ties, and training.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from ranked import make_ranked

from mmlkit.data.batching import Encoded, collate, encode, plan_examples
from mmlkit.data.loading import TaskData, load_task, make_split
from mmlkit.data.tasks import get_task, list_tasks, ranking_task
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.ranking import RankingHead, rank_queries, ranking_loss
from mmlkit.runtime import seeded
from mmlkit.training.evaluation import evaluate, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.metrics import compute
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import save_model

RANK = get_task("qnli_rank")
YES, NO = "entailment", "not_entailment"


def rows(*triples, name="train"):
    """Return a qnli Split of (question, sentence, label) rows."""
    return make_split(
        "qnli",
        [
            dict(question=q, sentence=s, **({} if label is None else {"label": label}))
            for q, s, label in triples
        ],
        name=name,
    )


# grouping

GOOD = (
    ("who", "a", NO),
    ("what", "b", YES),
    ("who", "c", YES),
    ("what", "d", NO),
    ("who", "e", NO),
)


def test_rows_of_a_question_are_one_query():
    data = TaskData(
        get_task("qnli"),
        rows(*GOOD),
        rows(*GOOD[:4], name="dev"),
        rows(("who", "a", None), ("who", "b", None), name="test"),
        source="here",
        more={"dev2": rows(*GOOD, name="dev2")},
    )
    ranked = rank_queries(data)
    assert ranked.train.queries.tolist() == [0, 1, 0, 1, 0] and ranked.train.labels.tolist() == [
        0,
        1,
        1,
        0,
        0,
    ]
    assert ranked.train.texts == data.train.texts and ranked.train.ids == data.train.ids
    assert [ranked.train[i]["label"] for i in (0, 1)] == [NO, YES]
    assert (
        ranked.dev.queries.tolist() == [0, 1, 0, 1]
        and ranked.test.queries.tolist() == [0, 0]
        and ranked.test.labels is None
    )
    assert ranked.more["dev2"].queries.tolist() == [0, 1, 0, 1, 0] and ranked.source == "here"
    assert all(one.task == RANK for one in (ranked, ranked.train, ranked.dev, ranked.test))
    assert (
        data.train.queries is None
        and data.train.labels.tolist() == [1, 0, 0, 1, 1]
        and data.task.kind == "classification"
    )


def test_queries_that_cannot_be_ranked_are_dropped_and_counted():
    bad = (
        ("none", "a", NO),
        ("none", "b", NO),
        ("two", "c", YES),
        ("two", "d", YES),
        ("two", "e", NO),
        ("alone", "f", YES),
        ("no", "g", NO),
    )
    data = TaskData(get_task("qnli"), rows(*bad[:3], *GOOD, *bad[3:]), rows(*GOOD, name="dev"))
    with pytest.warns(
        UserWarning,
        match=(
            r"qnli_rank train: 4 of 6 queries cannot be ranked \(2 with no answer, 1 with several "
            r"answers, "
            r"1 with nothing to choose from\).* These queries were dropped"
        ),
    ) as told:
        ranked = rank_queries(data)
    assert len(told) == 1
    assert [text[0] for text in ranked.train.texts] == ["who", "what", "who", "what", "who"]
    assert len(set(ranked.train.queries)) == 2 and ranked.train.labels.tolist() == [0, 1, 1, 0, 0]
    with pytest.raises(
        ValueError,
        match="qnli_rank dev: 4 of 4 queries cannot be ranked .* load the whole set, without limit",
    ):
        rank_queries(dataclasses.replace(data, train=data.dev, dev=rows(*bad, name="dev")))


def test_the_mini_set_and_its_binary_task():
    binary = load_task("qnli")
    ranked = rank_queries(binary)
    for split, other, queries in ((ranked.train, binary.train, 510), (ranked.dev, binary.dev, 192)):
        assert (
            np.bincount(split.queries).tolist() == [2] * queries and split.labels.sum() == queries
        )
        assert (split.labels == (other.labels == 0)).all() and split.texts == other.texts
    assert binary.task == get_task("qnli") and binary.task.kind == "classification"
    assert (
        ranked.task == RANK == ranking_task("qnli")
        and RANK.labels == (NO, YES)
        and (RANK.num_labels, RANK.metrics) == (1, ("accuracy@1", "mrr"))
    )
    assert "qnli_rank" not in list_tasks()
    with pytest.raises(ValueError, match="'qnli_rank' ranks rows of another task"):
        load_task("qnli_rank")


@pytest.mark.parametrize(
    "name, positive",
    [("sst2", "positive"), ("mnli", "entailment"), ("stsb", "entailment"), ("qnli", "yes")],
)
def test_tasks_that_cannot_be_ranked(name, positive):
    with pytest.raises(
        ValueError,
        match=(
            f"task {name!r} cannot be ranked by {positive!r}; expected a classification of "
            "pairs with two labels"
        ),
    ):
        ranking_task(name, positive)


def test_the_other_label_may_be_the_answer():
    task = ranking_task("mrpc", "not_equivalent")
    assert (task.name, task.labels) == ("mrpc_rank", ("equivalent", "not_equivalent"))


# batches


def encoded(queries, lengths):
    """Return an Encoded with rows of these lengths; the first row of each query is its answer."""
    seen, labels = set(), []
    for query in queries:
        labels.append(int(query not in seen))
        seen.add(query)
    ids = [[2, *[5 + i] * (length - 2), 3] for i, length in enumerate(lengths)]
    return Encoded(
        RANK, ids, [[0] * len(row) for row in ids], np.array(labels), 0, queries=np.array(queries)
    )


def test_a_plan_keeps_queries_whole():
    one = encoded([7, 3, 7, 7, 3, 9, 9, 4, 4, 4], [5, 9, 4, 3, 4, 8, 3, 4, 4, 4])
    assert len(one) == 4
    orders = set()
    for seed, epoch in itertools.product(range(3), range(3)):
        planned = plan_examples(one, 2, seed=seed, epoch=epoch)
        assert len(planned) == 2 and {frozenset(part) for part in planned} == {
            frozenset({1, 4, 5, 6}),
            frozenset({0, 2, 3, 7, 8, 9}),
        }
        orders.add(str(planned))
        for part in planned:
            batch = collate(one, part)
            assert (
                len(batch) == 2
                and sum(batch.groups) == len(batch.rows)
                and sorted(batch.groups) in ([2, 2], [3, 3])
            )
    assert len(orders) > 1
    plain = dataclasses.replace(one, queries=None)
    assert (
        len(plain) == 10
        and len(plan_examples(plain, 2, seed=0, epoch=0)) == 5
        and collate(plain, [0, 1]).groups is None
    )


def test_a_batch_splits_between_queries():
    one = encoded([0, 0, 1, 1, 1, 1, 2, 2, 2], [3, 4, 5, 3, 3, 3, 4, 4, 4])
    batch = collate(one, [6, 7, 8, 0, 1, 2, 3, 4, 5])
    assert batch.groups == (3, 2, 4) and len(batch) == 3
    for size, expected in (
        (1, [[6, 7, 8], [0, 1], [2, 3, 4, 5]]),
        (2, [[6, 7, 8, 0, 1], [2, 3, 4, 5]]),
        (3, [[6, 7, 8, 0, 1, 2, 3, 4, 5]]),
    ):
        parts = list(batch.split(size))
        assert [list(part.rows) for part in parts] == expected
        assert [len(part) for part in parts] == [
            min(size, 3 - start) for start in range(0, 3, size)
        ]
        for part in parts:
            assert (
                part.input_ids.shape == (len(part.rows), 5)
                and part.labels.sum() == len(part)
                and sum(part.groups) == len(part.rows)
            )
            assert part.input_ids.tolist() == [
                batch.input_ids[batch.rows.index(row)].tolist() for row in part.rows
            ]


def test_encoding_keeps_the_queries(make_model):
    data = make_ranked()
    one = encode(make_model("quora").tokenizer, data.train)
    assert one.queries is data.train.queries and len(one) == 8 < len(one.input_ids) == len(
        data.train
    )


# loss


def test_the_loss_by_hand():
    """The answer of the first query has the scores (1, 0), that of the second (0, 0, 2)."""
    scores, relevant = (
        torch.tensor([1.0, 0.0, 0.0, 0.0, 2.0], requires_grad=True),
        torch.tensor([1, 0, 0, 0, 1]),
    )
    loss = ranking_loss(scores, relevant, (2, 3))
    assert loss.item() == pytest.approx(
        (math.log(1 + math.exp(-1)) + math.log(1 + 2 * math.exp(-2))) / 2, abs=1e-6
    )
    p, q = math.e / (1 + math.e), math.e**2 / (2 + math.e**2)
    loss.backward()
    assert scores.grad.tolist() == pytest.approx(
        [(p - 1) / 2, (1 - p) / 2, (1 - q) / 4, (1 - q) / 4, (q - 1) / 2]
    )
    assert ranking_loss(scores, relevant, (2, 3), gamma=2.0).item() == pytest.approx(
        (math.log(1 + math.exp(-2)) + math.log(1 + 2 * math.exp(-4))) / 2, abs=1e-6
    )
    assert ranking_loss(torch.tensor([3.0]), torch.tensor([1]), (1,)).item() == 0
    assert (
        ranking_loss(torch.tensor([0.0, 200.0, -200.0]), torch.tensor([1, 0, 0]), (3,)).item()
        == 200
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_loss_equals_a_loop_over_queries(dtype):
    torch.manual_seed(0)
    groups, scores = (4, 1, 2, 7), torch.randn(14, dtype=dtype)
    relevant = torch.zeros(14, dtype=torch.int64)
    relevant[torch.tensor([2, 4, 5, 13])] = 1
    loops = [
        -(g * scores.double()[a:b]).softmax(0)[relevant[a:b] == 1].log()
        for a, b in ((0, 4), (4, 5), (5, 7), (7, 14))
        for g in [1.7]
    ]
    found = ranking_loss(scores, relevant, groups, gamma=1.7)
    torch.testing.assert_close(
        found.double(),
        torch.cat(loops).mean(),
        atol=1e-12 if dtype == torch.float64 else 1e-6,
        rtol=0,
    )


@pytest.mark.parametrize("relevant", [[0, 0, 1], [1, 1, 1]])
def test_a_query_without_one_answer_makes_the_loss_nan(relevant):
    """`train_step` refuses such a loss; counting the answers would make a GPU wait."""
    assert ranking_loss(torch.zeros(3), torch.tensor(relevant), (2, 1)).isnan()


class TwoCandidates:
    """A batch of one query with two candidates; the first is the answer."""

    task, labels, groups = RANK, torch.tensor([1, 0]), (2,)


@pytest.mark.parametrize("activation, floor", [("sigmoid", 0.3133), (None, 0.0)])
def test_the_minimum_of_the_loss_with_a_sigmoid(activation, floor):
    """With the sigmoid of Eq. 5 and gamma = 1 the best softmax of two candidates is e / (e + 1)."""
    head, losses = RankingHead(1, activation=activation, dropout=0.0), []
    with torch.no_grad():
        head.dense.weight.fill_(1.0)
    for x in (0.0, 1.0, 10.0, 1000.0):
        losses.append(head.loss((torch.tensor([[x], [-x]]),), TwoCandidates).total.item())
    assert losses[0] == pytest.approx(math.log(2)) and losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(floor, abs=5e-5)
    sharper = RankingHead(1, activation=activation, gamma=5.0, dropout=0.0)
    sharper.load_state_dict(head.state_dict())
    assert sharper.loss(
        (torch.tensor([[1000.0], [-1000.0]]),), TwoCandidates
    ).total.item() == pytest.approx(math.log(1 + math.exp(-5)) * (floor > 0), abs=1e-6)


def test_scores_are_linear_or_pass_through_a_sigmoid():
    torch.manual_seed(0)
    x, plain, squashed = (
        torch.randn(4, 6),
        RankingHead(6).eval(),
        RankingHead(6, activation="sigmoid").eval(),
    )
    squashed.load_state_dict(plain.state_dict())
    torch.testing.assert_close(plain(x), x @ plain.dense.weight.T + plain.dense.bias)
    torch.testing.assert_close(squashed(x), 1 / (1 + (-plain(x)).exp()))


# metrics


def test_metrics_by_hand():
    """Three queries have 2, 3 and 4 candidates in mixed order; their answers rank 1, 3 and 2."""
    queries = np.array([5, 2, 9, 2, 5, 9, 2, 9, 9])
    scores = np.array([0.9, 0.3, 0.8, 0.2, 0.1, 0.9, 0.1, -3.0, 0.7])
    labels = np.array([1, 0, 1, 0, 0, 0, 1, 0, 0])
    found = compute(RANK, scores[:, None], labels, queries)
    assert found == pytest.approx({"accuracy@1": 1 / 3, "mrr": (1 + 1 / 3 + 1 / 2) / 3}) and list(
        found
    ) == list(RANK.metrics)
    assert compute(RANK, scores, labels, queries) == found


def test_metrics_with_ties_by_hand():
    """Ties count as the mean over all orders of the tied candidates.

    In the first query one candidate is higher and one is tied with the answer: rank 2 or 3. Equal
    scores for all candidates give the expected value of random guessing.
    """
    found = compute(RANK, np.array([1.0, 2.0, 1.0, 0.0]), np.array([1, 0, 0, 0]), np.zeros(4))
    assert found == pytest.approx({"accuracy@1": 0, "mrr": (1 / 2 + 1 / 3) / 2})
    found = compute(RANK, np.array([2.0, 2.0, 1.0]), np.array([1, 0, 0]), np.zeros(3))
    assert found == pytest.approx({"accuracy@1": 1 / 2, "mrr": 3 / 4})
    found = compute(RANK, np.zeros(6), np.array([0, 1, 0, 0, 0, 1]), np.array([0, 0, 1, 1, 1, 1]))
    assert found == pytest.approx(
        {"accuracy@1": (1 / 2 + 1 / 4) / 2, "mrr": (3 / 4 + (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4) / 2}
    )


@pytest.mark.parametrize(
    "queries, labels, message",
    [
        ([4, 8], [1, 0], "query 8 has 0 answers among its candidates, expected exactly 1"),
        ([4, 4], [1, 1], "query 4 has 2 answers"),
    ],
)
def test_queries_that_cannot_be_measured(queries, labels, message):
    with pytest.raises(ValueError, match=message):
        compute(RANK, np.zeros(2), np.array(labels), queries)


# training runs


@pytest.fixture
def make_ranking_model(make_model):
    """Return a function that builds a tiny model with a RankingHead; it takes its options."""

    def make(**options):
        model = make_model("quora")
        with seeded(5):
            return MultitaskModel(
                model.encoder,
                {"qnli_rank": RankingHead(32, dropout=0.0, **options)},
                model.tokenizer,
            )

    return make


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"activation": "sigmoid", "gamma": 5.0}])
def test_a_toy_data_set_is_learned(make_ranking_model, options):
    model, data = make_ranking_model(**options), make_ranked(queries=45, dev=15)
    before = evaluate(model, data)
    history = fit(model, data, epochs=8, lr=5e-3, batch_size=4)
    assert history["step"].iloc[-1] == 8 * math.ceil(45 / 4)  # a batch holds four queries
    assert (
        before["accuracy@1"] < 0.8
        and history["accuracy@1"].max() > 0.9
        and history["train_loss"].iloc[-1] < 0.5 * history["train_loss"].iloc[0]
    )
    found = evaluate(model, data)
    assert found == pytest.approx(
        {name: history.loc[history["best"], name].item() for name in RANK.metrics}
    )
    assert (
        found == pytest.approx(evaluate(model, data, batch_size=3))
        and found["mrr"] >= found["accuracy@1"]
    )
    by_hand = []
    scores = predict_scores(model, data)[:, 0]
    for query in set(data.dev.queries):
        mine = data.dev.queries == query
        by_hand.append(data.dev.labels[mine][scores[mine].argmax()])
    assert found["accuracy@1"] == pytest.approx(np.mean(by_hand))


def test_the_command_line_gives_scores(make_ranking_model, tmp_path, capsys):
    from mmlcourse.cli.main import main

    model = make_ranking_model()
    save_model(model, tmp_path)
    assert main(["predict", "--model", str(tmp_path), "what", "the film", "what", "it"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = predict_scores(model, [("what", "the film"), ("what", "it")], task="qnli_rank")[:, 0]
    assert lines[0] == ["question", "sentence", "score"] and [
        float(line[2]) for line in lines[1:]
    ] == pytest.approx(expected, abs=1e-4)


def test_heads_for_another_kind_of_task_are_refused(make_ranking_model, make_model, make_toy):
    data, model = make_ranked(), make_model("quora")
    for head in (LinearHead(32, 1), MultiverseHead(32, 1, num_heads=2)):
        model.heads["qnli_rank"] = head
        with pytest.raises((IndexError, ValueError)):
            fit(model, data)
    model.heads["quora"] = RankingHead(32)
    with pytest.raises(ValueError, match="Its head has 1 outputs"):
        predict_scores(model, make_toy("quora"))


def test_rows_without_queries_are_not_measured(make_ranking_model):
    data = make_ranked()
    with pytest.raises(ValueError):
        evaluate(
            make_ranking_model(),
            dataclasses.replace(data, dev=dataclasses.replace(data.dev, queries=None)),
        )
