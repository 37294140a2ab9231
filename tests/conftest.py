"""What several test files share: a tokenizer of a few words, and a folder with a tiny BERT that has it."""

import pytest

from mmlkit.bert import BertConfig, BertModel
from mmlkit.pretrained import save_pretrained
from mmlkit.runtime import seeded

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "dog", "##s", "sat", "on", "mat", ".", "not")


@pytest.fixture
def tokenizer(tmp_path_factory):
    """BERT's own kind, with 15 entries: the number of a word is its place in WORDS. New each time: encode() leaves traces."""
    from transformers import BertTokenizerFast

    vocab = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    vocab.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return BertTokenizerFast(str(vocab))


@pytest.fixture
def model_folder(tmp_path, tokenizer):
    """A folder in the hub's layout: config.json, model.safetensors, vocab.txt, tokenizer.json."""
    with seeded(0):
        encoder = BertModel(BertConfig.tiny())
    folder = tmp_path / "tiny-bert"
    save_pretrained(encoder, tokenizer, folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return folder
