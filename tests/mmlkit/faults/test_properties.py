"""Properties of loaders, label maps, samplers, pruning and checkpoints, on generated input.

Each row of a loader's test is written by csv, json or pyarrow with a known label. It comes back
equal, or the file is refused. `MMLKIT_EXAMPLES=1000` generates 10,000 rows per loader.
"""

import csv
import io
import json
import math
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="pip install hypothesis")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmlkit.data.files import read_rows
from mmlkit.data.loading import load_task, make_split
from mmlkit.data.tasks import Task, get_task, label_key

pytestmark = pytest.mark.slow  # many random inputs for each property

EXAMPLES = int(os.environ.get("MMLKIT_EXAMPLES", "20"))
ROWS = 10  # of a generated file
# The same examples in every run, and no time limit: the tests pass on a busy machine.
CHECKED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
# Everything that a str can hold, with the marks of the formats more often than by chance.
MARKS = st.sampled_from(
    [*"\"',;\t\n\r\\\0 {}[]:#-+=", "\ufeff", "\u200b", "\u2028", "\x85", "\x1e", "\x1c", "\r\n"]
    + ["\ud800", "NA", "null", "label", "sentence", "-1", "nan", "é", "\N{PILE OF POO}"]
)
TEXTS = st.lists(MARKS | st.text(max_size=5), max_size=6).map("".join)
PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), min_size=1, max_size=20)
SCORES = st.floats(0, 5, allow_nan=False).map(lambda one: round(one, 3))


# Texts that no loader may refuse.
VISIBLE = st.tuples(TEXTS, PLAIN, TEXTS).map(
    lambda parts: "a".join(parts).replace("\0", "").replace("\ud800", "")
)


def table(labels, columns=("sentence",)):
    """Return a strategy for the rows of a file. Every text of half of the files is visible."""

    def rows(text):
        row = st.fixed_dictionaries({**dict.fromkeys(columns, text), "label": labels})
        return st.lists(row, min_size=ROWS, max_size=ROWS)

    return rows(VISIBLE) | rows(VISIBLE | PLAIN | TEXTS)


def read(task, name, content, rows, **options):
    """Write a file as train and dev, load it, and compare; return whether it was refused.

    `rows` has the texts and the label of every row as they were before they were written.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for split in ("train", "dev"):
            Path(folder, name.format(split)).write_bytes(content)
        try:
            found = load_task(task, folder, **options).train
        except ValueError as error:
            assert str(Path(folder, name.format("train"))) in str(error) and len(str(error)) < 2000
            return True
    columns = found.task.text_columns
    rows = [row for row in rows if all(row[column].strip() for column in columns)]
    assert found.texts == [tuple(row[column].strip() for column in columns) for row in rows]
    labels = [found[i]["label"] for i in range(len(found))]
    assert labels == pytest.approx([row["label"] for row in rows], abs=1e-6) or labels == [
        row["label"] for row in rows
    ]
    return False


def csv_bytes(rows, delimiter=",", **options):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, **options)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


NAMES = st.sampled_from(get_task("sst2").labels)
COUNTS = {}  # {loader: [files refused, files parsed]}, for the report of a long run


def note(loader, refused):
    counts = COUNTS.setdefault(loader, [0, 0])
    counts[not refused] += 1
    if sum(counts) % 1000 == 0:
        print(f"\n{loader}: {counts[0]} files refused, {counts[1]} parsed, {ROWS} rows each")


@CHECKED
@given(table(NAMES), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_csv(rows, end, mark, all_quoted):
    quoting = csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL
    content = b"\xef\xbb\xbf" * mark + csv_bytes(rows, lineterminator=end, quoting=quoting)
    note("csv", read("sst2", "{}.csv", content, rows))


@CHECKED
@given(table(NAMES))
def test_tsv(rows):
    """A .tsv file has no quoting, so texts with a tab or a line end cannot be written."""
    for row in rows:
        row["sentence"] = "".join(c for c in row["sentence"] if c not in "\t\n\r")
    lines = ["sentence\tlabel", *(f"{row['sentence']}\t{row['label']}" for row in rows)]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    note("tsv", read("sst2", "{}.tsv", content, rows))


@CHECKED
@given(table(NAMES), st.booleans())
def test_jsonl(rows, ascii_only):
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    note("jsonl", read("sst2", "{}.jsonl", content, rows))


@CHECKED
@given(table(NAMES))
def test_parquet(rows):
    import pyarrow
    import pyarrow.parquet

    for row in rows:  # Arrow holds UTF-8
        row["sentence"] = row["sentence"].encode("utf-8", "replace").decode("utf-8")
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), content)
    note("parquet", read("sst2", "{}.parquet", content.getvalue(), rows))


@CHECKED
@given(table(SCORES, ("sentence1", "sentence2")))
def test_the_files_of_cs224n(rows):
    """Tab-separated with csv quoting, an index column, and a score as label."""
    rows = [{"": i, "id": f"{i:05x}", **row} for i, row in enumerate(rows)]
    written = [
        {"similarity" if key == "label" else key: value for key, value in row.items()}
        for row in rows
    ]
    note("CS224N", read("sts", "sts-{}.csv", csv_bytes(written, "\t"), rows))


@CHECKED
@given(table(st.sampled_from(get_task("rte").labels), ("sentence1", "sentence2")))
def test_the_canonical_files_of_mt_dnn(rows):
    """Without a header line and quoting: id, label, first text, second text."""
    for row in rows:
        for column in ("sentence1", "sentence2"):
            row[column] = "".join(c for c in row[column] if c not in "\t\n\r")
    lines = [
        f"{i}\t{row['label']}\t{row['sentence1']}\t{row['sentence2']}" for i, row in enumerate(rows)
    ]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    note("MT-DNN", read("rte", "rte_{}.tsv", content, rows))


@CHECKED
@given(table(st.sampled_from(get_task("cola").labels)))
def test_the_files_of_glue(rows):
    """CoLA has no header line, and integers as labels."""
    order = get_task("cola").labels
    for row in rows:
        row["sentence"] = "".join(c for c in row["sentence"] if c not in "\t\n\r")
    lines = [f"gj04\t{order.index(row['label'])}\t\t{row['sentence']}" for row in rows]
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    note("GLUE", read("cola", "{}.tsv", content, rows))


# ---- files that nobody wrote on purpose ----

PIECES = st.sampled_from(
    [b"sentence,label\n", b"sentence\tlabel\r\n", b"a good day,positive\n", b'"', b"\r", b"\0"]
    + [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", "a,b".encode("utf-16"), b"PAR1", b"\n", b","]
    + [b'{"sentence": "a", "label": "positive"}\n', b"{", b"[1]\n", b"\x1e", b"x" * 200_000]
)


@CHECKED
@given(
    st.lists(PIECES | st.binary(max_size=30), max_size=8).map(b"".join),
    st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet"]),
)
def test_any_bytes_are_parsed_or_refused(content, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"train{ending}")
        path.write_bytes(content)
        try:
            read_rows(path)
        except ValueError as error:
            assert str(path) in str(error)


# ---- labels ----

ANY = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=4)
VALUES = ANY | st.lists(ANY, max_size=2) | st.dictionaries(st.text(max_size=3), ANY, max_size=2)


@CHECKED
@given(VALUES, st.sampled_from(["sst2", "sts", "stsb_star", "rte", "cola"]))
def test_a_label_is_one_of_the_task_or_refused(value, name):
    """Only a label's own name means it, but for case, spaces and hyphens; scores are in range."""
    task = get_task(name)
    known = "a"
    row = {**dict.fromkeys(task.text_columns, known), "label": value}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            split = make_split(task, [row], name="train")
        except ValueError:
            return
    if task.labels and not task.score_range:
        assert label_key(value) == label_key(split[0]["label"])
    elif task.labels:
        assert split.labels[0] == (float(value) >= 4)
    else:
        assert split[0]["label"] == pytest.approx(float(value), rel=1e-6) and 0 <= float(value) <= 5


@CHECKED
@given(st.lists(PLAIN, min_size=2, max_size=6, unique_by=lambda one: label_key(one)), st.randoms())
def test_a_map_of_labels_is_followed(labels, chance):
    """Integers of a file have the names at their places in `labels`, in whatever order."""
    try:
        task = Task("mine", ("text",), tuple(labels))
    except ValueError:
        return
    order = list(task.labels)
    chance.shuffle(order)
    numbers = [chance.randrange(len(order)) for _ in range(5)]
    rows = [{"text": "a", "label": number} for number in numbers]
    try:
        split = make_split(task, rows, labels=tuple(order), name="train")
    except ValueError:
        return
    found = [split[i]["label"] for i in range(len(split))]
    assert found == [order[number] for number in numbers]


# ---- the order of tasks ----


@CHECKED
@given(
    st.sampled_from(
        ["proportional", "sqrt", "uniform", "annealed", "round_robin", "sequential", "merged"]
    ),
    st.dictionaries(PLAIN, st.integers(1, 10**12), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 300),
    st.integers(0, 2**31),
)
def test_the_order_of_tasks(kind, sizes, epochs, steps, seed):
    from mmlkit.training.sampling import TaskSampler

    options = dict(sizes=sizes, epochs=epochs, steps_per_epoch=steps, seed=seed)
    one, other = TaskSampler(kind, **options), TaskSampler(kind, **options)
    for epoch in range(1, epochs + 1):
        shares, order = one.probabilities(epoch), one.order(epoch)
        assert math.isclose(sum(shares.values()), 1, rel_tol=1e-9) and min(shares.values()) >= 0
        assert list(shares) == list(sizes)
        assert len(order) == steps and set(order) <= set(sizes) and order == other.order(epoch)
    if kind in ("sequential", "merged"):  # every batch once, in proportion
        for task, share in shares.items():
            assert abs(order.count(task) - share * steps) < 1 + 1e-6


# ---- pruning ----

LOSSES = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=12)


@CHECKED
@given(LOSSES, st.sampled_from([None, "auto:0.3", "auto:1", "std:1", "std:0.1", 0.5, 1e-9]))
def test_clusters_of_losses(values, bandwidth):
    from mmlkit.heads.clustering import cluster

    centres, labels, width = cluster(values, bandwidth)
    assert centres == sorted(centres) and len(labels) == len(values) and width >= 0
    assert sorted(set(labels)) == list(range(len(centres)))
    lowest = labels[int(np.argmin(values))]
    assert lowest == 0  # the smallest loss belongs to the cluster that is kept


@CHECKED
@given(
    st.lists(st.lists(st.floats(0, 100), min_size=8, max_size=8), min_size=1, max_size=12),
    st.integers(1, 4),
    st.floats(0, 0.99),
    st.integers(1, 8),
)
def test_pruning_keeps_the_best_head_and_never_too_few(steps, every, momentum, min_active):
    from mmlkit.heads.multiverse import MultiverseHead
    from mmlkit.heads.pruning import HeadPruner

    head = MultiverseHead(4, 2, num_heads=8)
    pruner = HeadPruner(head, every, momentum, threshold=2, min_active=min_active)
    for step, losses in enumerate(steps, start=1):
        before = head.active_indices.tolist()
        pruner.observe(np.array([losses[i] for i in before]))
        event = pruner.maybe_prune(step)
        after = head.active_indices.tolist()
        assert set(after) <= set(before) and len(after) >= min_active
        if event and event.dropped:
            assert after == event.kept and sorted(event.kept + event.dropped) == before
            averages = dict(zip(event.head_ids, event.averages))
            assert min(averages, key=averages.get) in after


# ---- checkpoints ----


def tensors():
    import torch

    kinds = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    shapes = st.lists(st.integers(0, 3), max_size=3)
    return st.builds(
        lambda shape, kind, seed: torch.randint(
            0, 2, shape, generator=torch.Generator().manual_seed(seed)
        ).to(kind),
        shapes,
        st.sampled_from(kinds),
        st.integers(0, 1000),
    )


KEYS = TEXTS | st.sampled_from(["a", "b", "a.b", ".", "a.", "@", "@tensors", "0"])
PLAINS = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | KEYS
)
STATES = st.recursive(
    PLAINS | st.deferred(tensors),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=3),
    max_leaves=8,
)


def same(one, other):
    import torch

    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        keys = type(other) is dict and list(one) == list(other)
        return keys and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and type(one) is type(other)


@CHECKED
@given(st.dictionaries(KEYS, STATES, max_size=4))
def test_a_checkpoint_comes_back_equal_or_is_refused(state):
    from mmlkit.training.checkpoints import load_checkpoint, save_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "last.safetensors")
        try:
            save_checkpoint(path, state)
        except (ValueError, TypeError) as error:
            assert str(error) and not list(Path(folder).iterdir())
            return
        assert same(state, load_checkpoint(path))


@CHECKED
@given(st.binary(max_size=400) | st.lists(PIECES, max_size=3).map(b"".join))
def test_any_bytes_are_no_checkpoint(content):
    from mmlkit.training.checkpoints import load_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "last.safetensors")
        path.write_bytes(content)
        with pytest.raises(ValueError, match="last.safetensors is not a readable checkpoint"):
            load_checkpoint(path)
