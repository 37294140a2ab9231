"""A tokenizer of fifteen words and a folder with a tiny BERT, small enough to check by hand."""

from pathlib import Path

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.bert.pretrained import save_pretrained
from mmlkit.runtime import seeded

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "cat",
    "dog",
    "##s",
    "sat",
    "on",
    "mat",
    ".",
    "not",
)


def write_vocabulary(path):
    """Write vocab.txt with one word per line. The id of a word is its position in WORDS."""
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return str(path)


def write_tiny_bert(folder):
    """Write a folder in the hub's layout: config, model.safetensors, vocab.txt, tokenizer.json."""
    from transformers import BertTokenizerFast

    folder = Path(folder)
    folder.mkdir(parents=True)
    tokenizer = BertTokenizerFast(write_vocabulary(folder / "vocab.txt"))
    with seeded(0):
        encoder = BertModel(BertConfig.tiny())
    save_pretrained(encoder, tokenizer, folder)
    return folder
