"""The multi-task network of 2015: trigrams, training steps against numpy, sizes, and learning."""

import math

import numpy as np
import pytest
import torch

from mmlcourse.studies.dssm import (
    DSSM,
    build_vocabulary,
    evaluate_dssm,
    fit_dssm,
    hash_texts,
    trigrams,
)
from mmlkit.data.loading import TaskData, load_task, make_split
from mmlkit.data.tasks import get_task
from mmlkit.heads.ranking import rank_queries
from mmlkit.runtime import seeded

TEXTS = ("the cat sat", "a cat", "the dog, the dog!")
VOCABULARY = ("#a#", "#ca", "#do", "#sa", "#th", "at#", "cat", "dog", "he#", "og#", "sat", "the")


# word hashing


@pytest.mark.parametrize(
    "text, expected",
    [
        ("cat", {"#ca": 1, "cat": 1, "at#": 1}),
        ("a", {"#a#": 1}),
        ("Cat. CAT", {"#ca": 2, "cat": 2, "at#": 2}),
        (
            "the cat sat",
            {"#th": 1, "the": 1, "he#": 1, "#ca": 1, "cat": 1, "at#": 2, "#sa": 1, "sat": 1},
        ),
        (
            "don't 42-x",
            {"#do": 1, "don": 1, "on'": 1, "n't": 1, "'t#": 1, "#42": 1, "42#": 1, "#x#": 1},
        ),
        ("'tis _", {"#ti": 1, "tis": 1, "is#": 1}),
        ("aaaa", {"#aa": 1, "aaa": 2, "aa#": 1}),
        ("... !", {}),
    ],
)
def test_trigrams_by_hand(text, expected):
    assert trigrams(text) == expected


def test_a_vocabulary_is_sorted():
    found = build_vocabulary(TEXTS)
    assert found == VOCABULARY == build_vocabulary([(TEXTS[0], TEXTS[2]), (TEXTS[1],)])
    assert build_vocabulary(["naïve 東京"]) == ("#na", "#東京", "aïv", "naï", "ve#", "ïve", "東京#")


def test_unseen_trigrams_are_left_out():
    """Of "cats", #ca and cat are in the vocabulary, ats and ts# are not. Of "at", only at# is."""
    found = hash_texts(["cats", "the the", "", "at", "xyz"], VOCABULARY)
    assert [sorted(ids) for ids in found] == [[1, 6], [4, 4, 8, 8, 11, 11], [], [5], []]


def test_words_that_collide():
    """Both words have the same eight trigrams: two loops from "ab" to "ab", in different order."""
    one, other = "abcabdab", "abdabcab"
    assert trigrams(one) == trigrams(other) and trigrams(one).total() == 8
    assert trigrams("aaaa") != trigrams("aaaaa")  # the same trigrams with different counts
    model = DSSM(build_vocabulary([one]), ["sst2"])
    first, second = model.vectors("sst2", hash_texts([one, other], model.vocabulary))
    torch.testing.assert_close(first, second)


# sizes


def test_numbers_of_parameters_are_the_published_ones():
    """50,000 trigrams x 300 shared, 300 x 128 per task, and the classes. There are no biases."""
    made_up = [f"{i:05}" for i in range(50_000)]
    with torch.device("meta"):
        model = DSSM(made_up, ["qnli_rank", "sst2"])
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    assert counts == {
        "shared.weight": 15_000_000,
        "task_layers.qnli_rank.weight": 38_400,
        "task_layers.sst2.weight": 38_400,
        "classifiers.sst2.weight": 2 * 128,
    }


# Forward pass, loss and one step, against dense numpy.

RNG = np.random.default_rng(0)


def dense(ids, size):
    return np.array([np.bincount(one, minlength=size) for one in ids], dtype=float).reshape(
        len(ids), size
    )


def toy(task, rows):
    columns = get_task(task).text_columns
    split = make_split(
        task,
        [{**dict(zip(columns, texts)), "label": label} for *texts, label in rows],
        name="train",
    )
    return TaskData(split.task, split, split)


def weights(model, *names):
    state = model.state_dict()
    return [state[name].numpy().astype(float) for name in names]


SENTENCES = (("the cat sat", "positive"), ("a cat", "negative"), ("the dog, the dog!", "negative"))


def test_two_classification_steps_equal_numpy():
    names = ("shared.weight", "task_layers.sst2.weight", "classifiers.sst2.weight")
    with seeded(1):
        model = DSSM(VOCABULARY, ["sst2"], hidden_size=5, task_size=4)
    W1, W2, W3 = weights(model, *names)
    l1, right, losses = dense(hash_texts(TEXTS, VOCABULARY), len(VOCABULARY)), np.eye(2), []
    right = right[[1, 0, 0]]
    assert l1[2].tolist() == [0, 0, 2, 0, 2, 0, 0, 2, 2, 2, 0, 2]
    for _ in range(2):
        l2 = np.tanh(l1 @ W1)
        l3 = np.tanh(l2 @ W2.T)
        p = np.exp(l3 @ W3.T)
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log((p * right).sum(1)).mean())
        d_scores = (p - right) / 3
        d3 = d_scores @ W3 * (1 - l3**2)
        d2 = d3 @ W2 * (1 - l2**2)
        gradients = l1.T @ d2, d3.T @ l2, d_scores.T @ l3
        assert min(np.abs(gradient).max() for gradient in gradients) > 1e-3
        W1, W2, W3 = (W - 0.7 * gradient for W, gradient in zip((W1, W2, W3), gradients))
    history = fit_dssm(model, {"sst2": toy("sst2", SENTENCES)}, epochs=2, lr=0.7, batch_size=3)
    assert history["train_loss"].tolist() == pytest.approx(losses, abs=1e-6)
    for now, expected in zip(weights(model, *names), (W1, W2, W3)):
        np.testing.assert_allclose(now, expected, atol=1e-6)


QUERIES = (
    ("the dog", "a cat sat", "not_entailment"),
    ("the cat", "the cat sat", "entailment"),
    ("the dog", "dog, dog", "entailment"),
    ("the cat", "a dog", "not_entailment"),
    ("the dog", "a dog sat", "not_entailment"),
)


def test_a_ranking_step_equals_numpy():
    """The queries have three and two candidates in mixed order. The gradient is derived by hand."""
    data = rank_queries(toy("qnli", QUERIES))
    with seeded(2):
        model = DSSM(VOCABULARY, ["qnli_rank"], hidden_size=5, task_size=4, gamma=3.0)
    W1, W2 = weights(model, "shared.weight", "task_layers.qnli_rank.weight")
    l1 = [
        dense(hash_texts(column, VOCABULARY), len(VOCABULARY)) for column in list(zip(*QUERIES))[:2]
    ]
    l2 = [np.tanh(x @ W1) for x in l1]
    q, d = (np.tanh(x @ W2.T) for x in l2)
    lengths = [np.linalg.norm(x, axis=1, keepdims=True) for x in (q, d)]
    cosine = (q * d).sum(1, keepdims=True) / lengths[0] / lengths[1]
    right, d_cosine, loss = np.array([0, 1, 1, 0, 0]), np.zeros((5, 1)), 0.0
    for rows in ([0, 2, 4], [1, 3]):
        p = np.exp(3 * cosine[rows, 0])
        p /= p.sum()
        loss -= np.log(p[right[rows] == 1]).item() / 2
        d_cosine[rows, 0] = 3 * (p - right[rows]) / 2
    d_vectors = [
        d_cosine * (other / (lengths[0] * lengths[1]) - cosine * own / length**2)
        for own, other, length in ((q, d, lengths[0]), (d, q, lengths[1]))
    ]
    d3 = [gradient * (1 - own**2) for gradient, own in zip(d_vectors, (q, d))]
    d2 = [gradient @ W2 * (1 - own**2) for gradient, own in zip(d3, l2)]
    history = fit_dssm(model, {"qnli_rank": data}, epochs=1, lr=0.7, batch_size=2)
    assert history["train_loss"].item() == pytest.approx(loss, abs=1e-6)
    now = weights(model, "shared.weight", "task_layers.qnli_rank.weight")
    np.testing.assert_allclose(now[0], W1 - 0.7 * (l1[0].T @ d2[0] + l1[1].T @ d2[1]), atol=1e-6)
    np.testing.assert_allclose(now[1], W2 - 0.7 * (d3[0].T @ l2[0] + d3[1].T @ l2[1]), atol=1e-6)


def test_a_gradient_is_clipped_to_a_global_norm_of_one():
    """A step then has the length of the learning rate, and the direction of the gradient."""
    with seeded(1):
        model = DSSM(VOCABULARY, ["sst2", "qnli_rank"], hidden_size=5, task_size=4)
    with torch.no_grad():
        model.classifiers["sst2"].weight *= 30
    before = torch.cat([value.flatten() for value in model.parameters()])
    data = toy("sst2", SENTENCES)
    columns = [hash_texts(TEXTS, VOCABULARY)]
    model.loss("sst2", columns, torch.tensor([1, 0, 0])).backward()
    gradients = [one.grad if one.grad is not None else one * 0 for one in model.parameters()]
    whole = torch.cat([one.flatten() for one in gradients])
    assert whole.norm() > 1.5
    fit_dssm(model, {"sst2": data}, epochs=1, lr=0.5, batch_size=3)
    moved = torch.cat([value.flatten() for value in model.parameters()]) - before
    torch.testing.assert_close(moved, -0.5 * whole / whole.norm(), atol=1e-6, rtol=1e-4)


class Fixed(DSSM):
    """A model with fixed task vectors: (1, 0) for "a", (0, 2) for "b", (-3, 0) for "c", else 0."""

    TABLE = {0: (1.0, 0.0), 1: (0.0, 2.0), 2: (-3.0, 0.0)}

    def vectors(self, task, ids):
        return torch.tensor([self.TABLE[one[0]] if one else (0.0, 0.0) for one in ids])


def test_the_ranking_loss_by_hand():
    """The cosines are 1, 0 and -1, and 0 for a text without known trigrams.

    Cosines of 1 and -1 give the lower bound of the loss, for gamma 1 and 10.
    """
    model = Fixed(("#a#", "#b#", "#c#"), ["qnli_rank"], gamma=1.0)
    columns = [
        hash_texts(texts, model.vocabulary)
        for texts in (["a"] * 4, ["a", "b", "c", "nothing known"])
    ]
    assert model("qnli_rank", columns).tolist() == [[1.0], [0.0], [-1.0], [0.0]]
    labels = torch.tensor([1, 0, 0, 0])
    loss = model.loss("qnli_rank", columns, labels, (4,)).item()
    assert loss == pytest.approx(math.log(math.e + 2 + 1 / math.e) - 1, abs=1e-6)
    best = [[ids[0], ids[2]] for ids in columns]
    assert model.loss("qnli_rank", best, labels[:2], (2,)).item() == pytest.approx(
        0.126928, abs=1e-6
    )
    model.gamma = 10.0
    assert model.loss("qnli_rank", best, labels[:2], (2,)).item() == pytest.approx(
        math.log1p(math.exp(-20)), abs=1e-7
    )


def test_texts_of_unknown_trigrams_get_zero_gradients():
    model = DSSM(VOCABULARY, ["qnli_rank"], hidden_size=5, task_size=4)
    columns = [hash_texts(texts, VOCABULARY) for texts in (["zzz", "zzz"], ["the cat", "dog"])]
    model.loss("qnli_rank", columns, torch.tensor([1, 0]), (2,)).backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().max() == 0 for p in model.parameters())


def test_a_step_changes_only_its_own_task():
    model = DSSM(VOCABULARY, ["qnli_rank", "sst2"])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit_dssm(model, {"sst2": toy("sst2", SENTENCES[1:2])}, epochs=1)
    moved = {name for name, value in model.state_dict().items() if (value != before[name]).any()}
    assert moved == {"shared.weight", "task_layers.sst2.weight", "classifiers.sst2.weight"}


# whole runs


@pytest.fixture(scope="module")
def mini():
    data = {"sst2": load_task("sst2"), "qnli_rank": rank_queries(load_task("qnli"))}
    return data, build_vocabulary(row for one in data.values() for row in one.train.texts)


def test_toy_ranking_is_learned():
    """The answer shares fewer letters with its question than the other candidate does."""

    def split(numbers):
        candidates = (("this film", "not_entailment"), ("yes", "entailment"))
        rows = [
            dict(question=f"which film {i}", sentence=f"{text} {i}", label=label)
            for i in numbers
            for text, label in candidates
        ]
        return make_split("qnli", rows, name="train")

    data = rank_queries(TaskData(get_task("qnli"), split(range(10, 30)), split(range(40, 60))))
    with seeded(0):
        model = DSSM(build_vocabulary(data.train.texts), [data.task])
    assert evaluate_dssm(model, data.dev)["accuracy@1"] == 0
    history = fit_dssm(model, {"qnli_rank": data}, batch_size=4)
    assert history["accuracy@1"].iloc[-1] == 1 == evaluate_dssm(model, data.dev)["accuracy@1"]


def test_toy_classification_is_learned():
    words = (("good", "positive"), ("bad", "negative"))
    rows = [(f"{word} film {i}", label) for i in range(8) for word, label in words]
    with seeded(0):
        model = DSSM(build_vocabulary(text for text, _ in rows), ["sst2"])
    history = fit_dssm(model, {"sst2": toy("sst2", rows)}, lr=0.2, epochs=10, batch_size=4)
    assert history["accuracy"].iloc[-1] == 1.0


class RecordingDSSM(DSSM):
    """Records the inputs of every step."""

    def loss(self, task, columns, labels, groups=None):
        self.steps.append((task, tuple(groups), tuple(map(tuple, columns[-1]))))
        return super().loss(task, columns, labels, groups)


@pytest.mark.slow
def test_every_batch_of_every_task_is_used_once_per_epoch(mini):
    """960 sentences in batches of 300 are four steps, and 510 questions are two.

    The order of the batches depends on epoch and seed.
    """
    data, vocabulary = mini
    epochs = []
    for seed in (0, 0, 1):
        model = RecordingDSSM(vocabulary, data, hidden_size=1, task_size=1)
        model.steps = []
        fit_dssm(model, data, epochs=2, batch_size=300, seed=seed)
        epochs += [model.steps[:6], model.steps[6:]]
    ranking = [("qnli_rank", 210, 420), ("qnli_rank", 300, 600)]
    for steps in epochs:
        sizes = sorted((task, len(groups), sum(groups)) for task, groups, _ in steps)
        assert sizes == [*ranking, ("sst2", 60, 60), *[("sst2", 300, 300)] * 3]
        for task, one in data.items():
            given = [tuple(ids) for name, _, rows in steps for ids in rows if name == task]
            texts = hash_texts([text[-1] for text in one.train.texts], vocabulary)
            assert sorted(given) == sorted(map(tuple, texts))
    assert epochs[0] == epochs[2] and epochs[1] == epochs[3]
    first, second, *_, other_seed, _ = map(set, epochs)
    assert first != second and first != other_seed  # the batches differ, not only their order
    assert len({tuple(task for task, *_ in steps) for steps in epochs}) > 1  # tasks are shuffled


@pytest.mark.parametrize(
    "task, found", [("stsb", "a regression of 2 texts"), ("rte", "a classification of 2 texts")]
)
def test_a_task_that_the_model_cannot_do_is_refused(task, found):
    with pytest.raises(
        ValueError, match=f"task '{task}' is {found}; expected single texts to clas"
    ):
        DSSM(VOCABULARY, [task])
