"""Encoding, planning and collating, with expected values written out for a few rows."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from mmlkit.data.batching import Encoded, collate, encode, plan
from mmlkit.data.loading import make_split
from mmlkit.data.tasks import get_task


def encoded_rows(*rows, labels=None):
    """Return an Encoded of sst2 with these lists of ids; every second token has segment 1."""
    return Encoded(
        get_task("sst2"), list(rows), [[i % 2 for i in range(len(row))] for row in rows], labels, 0
    )


def test_encode_one_text(tokenizer):
    """The ids are: [CLS] 2, [SEP] 3, the 5, cats 7 and 9, an unknown word 1."""
    split = make_split(
        "sst2",
        [
            {"sentence": "The cats", "label": "positive"},
            {"sentence": "zebra", "label": "negative"},
        ],
    )
    encoded = encode(tokenizer, split)
    assert encoded.input_ids == [[2, 5, 7, 9, 3], [2, 1, 3]]
    assert encoded.token_type_ids == [[0] * 5, [0] * 3]
    assert encoded.labels.tolist() == [1, 0]
    assert encoded.lengths.tolist() == [5, 3]
    assert encoded.truncated == 0


def test_encode_a_pair(tokenizer):
    split = make_split("rte", [{"sentence1": "the cat", "sentence2": "a dog sat"}], name="test")
    encoded = encode(tokenizer, split)
    assert encoded.input_ids == [[2, 5, 7, 3, 6, 8, 10, 3]]
    assert encoded.token_type_ids == [[0, 0, 0, 0, 1, 1, 1, 1]]
    assert encoded.labels is None


def test_collate_two_rows():
    """torch's cross-entropy takes no int32, and some devices no float64."""
    batch = collate(
        encoded_rows([2, 9, 3], [2, 5, 6, 3], [2, 3], labels=np.array([1, 0, 1], dtype=np.int32)),
        [0, 1],
    )
    assert batch.input_ids.tolist() == [[2, 9, 3, 0], [2, 5, 6, 3]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch.token_type_ids.tolist() == [[0, 1, 0, 0], [0, 1, 0, 1]]
    assert batch.labels.tolist() == [1, 0]
    assert (batch.rows, len(batch), batch.task.name) == ((0, 1), 2, "sst2")
    tensors = (batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.labels)
    assert {tensor.dtype for tensor in tensors} == {torch.int64}


def test_collate_keeps_the_requested_order():
    encoded = encoded_rows([2, 9, 3], [2, 5, 6, 3], [2, 3], labels=np.array([0.5, 2.0, 4.5]))
    batch = collate(encoded, [2, 0])
    assert batch.input_ids.tolist() == [[2, 3, 0], [2, 9, 3]]  # padded to its own longest row
    assert batch.labels.tolist() == [4.5, 0.5]
    assert batch.labels.dtype == torch.float32
    assert collate(encoded_rows([2, 3]), [0]).labels is None


def test_split_into_micro_batches():
    batch = collate(
        encoded_rows([2, 4, 3], [2, 5, 3], [2, 6, 3], labels=np.array([0, 1, 0])), [2, 0, 1]
    )
    parts = list(batch.split(2))
    assert [part.rows for part in parts] == [(2, 0), (1,)]
    assert [part.labels.tolist() for part in parts] == [[0, 0], [1]]
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(batch, name))
    assert [part.labels for part in collate(encoded_rows([2, 3], [2, 3]), [0, 1]).split(1)] == [
        None,
        None,
    ]


def test_to_moves_every_tensor():
    batch = collate(encoded_rows([2, 4, 3], labels=np.array([1])), [0]).to("meta")
    tensors = (batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.labels)
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (batch.rows, batch.task.name) == ((0,), "sst2")


def test_a_cuda_gpu_copies_from_pinned_memory_while_the_host_goes_on(monkeypatch):
    """Tensors of both sentences are pinned first. A CPU needs no copy."""
    calls = []

    def to(tensor, device, non_blocking):
        calls.append(("to", device, non_blocking))
        return tensor

    def pin(tensor):
        calls.append("pin")
        return tensor

    rows = Encoded(get_task("sst"), [[2, 3]], [[0, 0]], np.array([1]), 0)
    batch = collate(dataclasses.replace(rows, second=rows), [0])
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    batch.to("cuda:1")
    assert calls.count("pin") == calls.count(("to", "cuda:1", True)) == 8 and len(calls) == 16
    calls.clear()
    batch.to("cpu")
    assert "pin" not in calls


def test_plan_for_prediction_is_longest_first():
    assert plan([3, 9, 5, 9, 1], 2) == [[1, 3], [2, 0], [4]]


def test_plan_puts_similar_lengths_together():
    """Seven rows fit into one pool, so only the order of the batches is random."""
    planned = plan([7, 1, 5, 3, 2, 6, 4], 3, seed=0)
    assert {frozenset(rows) for rows in planned} == {
        frozenset({1, 4, 3}),
        frozenset({6, 2, 5}),
        frozenset({0}),
    }


@pytest.mark.parametrize("batch_size", [1, 4, 32, 1000])
def test_plan_visits_every_row_once(batch_size):
    lengths = np.random.default_rng(0).integers(3, 60, size=777)
    for planned in (plan(lengths, batch_size), plan(lengths, batch_size, seed=3)):
        assert sorted(row for rows in planned for row in rows) == list(range(777))
        assert len(planned) == -(-777 // batch_size)
        assert max(map(len, planned)) <= batch_size


def test_plan_depends_only_on_seed_and_epoch():
    lengths = np.arange(100) % 17
    same = plan(lengths, 8, seed=1, epoch=2)
    assert same == plan(lengths, 8, seed=1, epoch=2)
    for seed, epoch in ((1, 3), (2, 2), (2, 1)):
        assert same != plan(lengths, 8, seed=seed, epoch=epoch)


def test_plan_leaves_torch_and_numpy_random_states_alone():
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    plan(np.arange(50), 8, seed=1)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


def test_plan_needs_little_padding():
    lengths = np.random.default_rng(0).integers(3, 60, size=3200)
    padded = sum(len(rows) * lengths[rows].max() for rows in plan(lengths, 32, seed=0))
    assert lengths.sum() / padded > 0.95


def test_pairs_encoded_separately(tokenizer):
    """Each sentence has its own [CLS] and [SEP]. The longer one determines the length."""
    split = make_split(
        "rte",
        [
            {"sentence1": "the cat", "sentence2": "a dog sat"},
            {"sentence1": "the cat sat on the mat", "sentence2": "a"},
            {"sentence1": "a", "sentence2": "dog"},
        ],
        name="test",
    )
    encoded = encode(tokenizer, split, pairs="separate")
    assert encoded.input_ids == [
        [2, 5, 7, 3],
        [2, 5, 7, 10, 11, 5, 12, 3],
        [2, 6, 3],
    ] and encoded.second.input_ids == [[2, 6, 8, 10, 3], [2, 6, 3], [2, 8, 3]]
    assert encoded.lengths.tolist() == [5, 8, 3] and encoded.truncated == 0
    batch = collate(encoded, [2, 0])
    assert batch.input_ids.tolist() == [
        [2, 6, 3, 0],
        [2, 5, 7, 3],
    ] and batch.second.input_ids.tolist() == [[2, 8, 3, 0, 0], [2, 6, 8, 10, 3]]
    parts = list(batch.to("cpu").split(1))
    assert [part.rows for part in parts] == [(2,), (0,)] == [part.second.rows for part in parts]
    assert parts[1].second.input_ids.tolist() == [[2, 6, 8, 10, 3]]
    with pytest.warns(UserWarning, match="3 tokens|longer than 4 tokens"):
        assert encode(tokenizer, split, pairs="separate", max_length=4).truncated == 2
    with pytest.raises(ValueError, match="pairs is 'apart', expected 'packed' or 'separate'"):
        encode(tokenizer, split, pairs="apart")


def test_separate_encoding_does_not_change_single_sentences(tokenizer):
    split = make_split("sst2", [{"sentence": "The cats", "label": "positive"}])
    assert encode(tokenizer, split, pairs="separate") == encode(tokenizer, split)


def test_threads_with_different_lengths_do_not_meet(tokenizer):
    """A fast tokenizer keeps the length at which it truncates."""
    from concurrent.futures import ThreadPoolExecutor

    rows = [{"sentence": "the cats " * 20, "label": "positive"} for i in range(20)]
    split = make_split("sst2", rows)

    def lengths(most):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {most: set(encode(tokenizer, split, max_length=most).lengths.tolist())}

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lengths, [8, 30] * 40))
    assert all(one in ({8: {8}}, {30: {30}}) for one in found)


def test_long_rows_are_truncated_and_counted_once(tokenizer):
    """10 tokens leave room for 8 words. Of a pair, the longer text is truncated."""
    rows = [{"sentence": "cat " * words, "label": "positive"} for words in (3, 9, 8, 20)]
    with pytest.warns(UserWarning) as told:
        encoded = encode(tokenizer, make_split("sst2", rows), max_length=10)
    assert [str(warning.message) for warning in told] == [
        "sst2 data: 2 of 4 inputs longer than 10 tokens were truncated."
    ]
    assert encoded.truncated == 2 and encoded.lengths.tolist() == [5, 10, 10, 10]
    assert encoded.input_ids[1] == [2] + [7] * 8 + [3]  # the row still ends in [SEP]
    split = make_split("rte", [{"sentence1": "cat " * 3, "sentence2": "dog " * 9}], name="test")
    with pytest.warns(UserWarning, match="rte test: 1 of 1 inputs longer than 10 tokens"):
        encoded = encode(tokenizer, split, max_length=10)
    assert encoded.input_ids == [[2, 7, 7, 7, 3, 8, 8, 8, 8, 3]]
    assert encoded.token_type_ids == [[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]]
