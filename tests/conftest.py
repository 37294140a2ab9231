"""Shared fixtures: small tokenizers, a folder with a tiny BERT, and toy data for tiny models."""

import functools
import os
import string

import mmlkit  # noqa: F401     first: it sets OMP_WAIT_POLICY, which torch reads when it starts

# A worker of pytest-xdist has one share of the cores. Processes started by its tests have the same
# share.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# isort: split
import numpy as np
import pytest
import torch
from tiny import write_tiny_bert, write_vocabulary

from mmlcourse.batch.processes import without_iri_grammar
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.loading import TaskData, make_split
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import seeded
from mmlkit.training.model import MultitaskModel

without_iri_grammar()  # nbformat would build it for two seconds, in every worker

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILLERS = ("the", "film", "plot", "of", "one", "very", "story", "and", "it", "was", ".", ",")
KEYS = {
    "sst": ("awful", "bad", "plain", "good", "great"),  # the word that determines a label
    "quora": ("other", "same"),
    "sts": ("zero", "first", "second", "third", "fourth", "fifth"),
}


def pytest_collection_modifyitems(config, items):
    """Mark whole notebooks as slow. `pytest -m "not slow"` leaves them out.

    They come first: with the longest test at the end, one of two workers would wait for it.
    Notebooks in a browser are skipped unless `-m browser` asks for them.
    """
    items.sort(key=lambda item: item.get_closest_marker("notebook") is None)
    unasked = pytest.mark.skip(reason="`make test-browser` runs the notebooks in a browser")
    for item in items:
        in_browser = item.get_closest_marker("browser")
        if in_browser or item.get_closest_marker("notebook"):
            item.add_marker("slow")
        if in_browser and "browser" not in config.option.markexpr:
            item.add_marker(unasked)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Use one thread: with two, tiny tensors take sixty times as long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def fp32_on_a_cpu(monkeypatch):
    """Let precision "auto" mean fp32 on every CPU.

    Otherwise a CPU with bf16 would give other numbers.
    """
    from mmlkit import runtime

    choose = runtime.fastest_precision

    @functools.wraps(choose)
    def fp32(device):
        return "fp32" if torch.device(device).type == "cpu" else choose(device)

    monkeypatch.setattr(runtime, "fastest_precision", fp32)


@pytest.fixture
def tiny_tokenizer():
    """Return a WordPiece tokenizer with the toy words, the letters and their continuations.

    Every test gets a new tokenizer, because encode() changes its state.
    """
    from transformers import BertTokenizerFast

    words = [
        *SPECIAL,
        *FILLERS,
        *(key for keys in KEYS.values() for key in keys),
        *string.ascii_lowercase,
        *("##" + letter for letter in string.ascii_lowercase),
    ]
    words = list(dict.fromkeys(words))
    if len(words) >= 199:
        raise ValueError(f"{len(words)} words do not fit BertConfig.tiny().")
    return BertTokenizerFast(vocab={word: i for i, word in enumerate(words)})


@pytest.fixture(scope="session")
def make_toy():
    """Return a function that makes toy TaskData: make_toy(task, rows, dev, seed, shift).

    One word determines the label of a row. `shift` moves the labels of dev.
    """
    return _make_toy


def _make_toy(name, rows=20, dev=10, seed=0, shift=0):
    task, generator = get_task(name), np.random.default_rng(seed)

    def row(i, move):
        keys = KEYS[name]
        texts = [
            " ".join(generator.choice(FILLERS, size=generator.integers(1, 7)))
            for _ in task.text_columns
        ]
        texts[-1] += " " + keys[i % len(keys)]
        place = (i + move) % len(keys)
        return {
            **dict(zip(task.text_columns, texts)),
            "label": task.labels[place] if task.labels else float(place),
        }

    def split(count, part, move=0):
        return make_split(
            task, [row(i, move) for i in range(count)], place=f"toy {part}", name=part
        )

    return TaskData(task, split(rows, "train"), split(dev, "dev", shift), source="toy")


@pytest.fixture
def make_model(tiny_tokenizer):
    """Return a function that makes a tiny MultitaskModel.

    Its signature is make_model(*tasks, seed, dropout, pooling, **sizes). The initial weights are
    large, so that the scores of the rows differ.
    """

    def make(*tasks, seed=0, dropout=0.0, pooling="pooler", **sizes):
        sizes = {"initializer_range": 0.2, **sizes}
        with seeded(seed):
            encoder = BertModel(
                BertConfig.tiny(
                    hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **sizes
                )
            )
            heads = {
                task: LinearHead(
                    encoder.config.hidden_size,
                    get_task(task).num_labels,
                    dropout=dropout,
                    pooling=pooling,
                )
                for task in tasks
            }
        return MultitaskModel(encoder, heads, tiny_tokenizer)

    return make


@pytest.fixture
def tokenizer(tmp_path_factory):
    """Return the tokenizer of tiny.WORDS, new for each test because encoding changes its state."""
    from transformers import BertTokenizerFast

    return BertTokenizerFast(write_vocabulary(tmp_path_factory.mktemp("vocabulary") / "vocab.txt"))


@pytest.fixture
def model_folder(tmp_path):
    """Return a folder with a tiny BERT, which a test may damage."""
    return write_tiny_bert(tmp_path / "tiny-bert")
