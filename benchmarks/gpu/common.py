"""What the programs of the check share: their options, BERT-base with random weights, random rows.

Rows have the lengths of SST: 25 tokens on average. Nothing is downloaded.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.loading import TaskData, make_split
from mmlkit.data.tasks import get_task
from mmlkit.files import write_file
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import pick_device, seeded
from mmlkit.training import graphs
from mmlkit.training.model import MultitaskModel

__all__ = ["Program", "classifier", "random_data"]


class Program:
    """A program of the check: its options, its device, and the record that it writes.

    Args:
        text: what `--help` says.

    Attributes:
        dry: whether to run in tiny sizes on a CPU, where an update is run again, not replayed.
        device: the torch.device.
        config: BERT-base, or a tiny BertConfig.
    """

    def __init__(self, text):
        parser = argparse.ArgumentParser(description=text)
        parser.add_argument("--dry", action="store_true", help="tiny sizes on a CPU")
        parser.add_argument("--out", type=Path, help="the .json file of the record")
        options = parser.parse_args()
        self.dry, self.out, self.found = options.dry, options.out, {}
        self.device = pick_device("cpu" if self.dry else "cuda")
        self.config = BertConfig.tiny(max_position_embeddings=512) if self.dry else BertConfig()
        self._started = time.perf_counter()
        if self.dry:
            graphs.capture_cuda = lambda update, pool: (update, pool)

    def record(self, name, values):
        """Print values and add them to the record, which is written at once.

        Args:
            name: their key.
            values: plain values.
        """
        self.found[name] = values
        print(f"[{time.perf_counter() - self._started:.1f} s] {name}: {values}", flush=True)
        if self.out:
            write_file(self.out, json.dumps(self.found, indent=1) + "\n")


def classifier(config, device):
    """Make an encoder with random weights, a head for SST, and a tokenizer of made-up words.

    Args:
        config: a BertConfig.
        device: a torch.device.

    Returns:
        A MultitaskModel. Its encoder has the tokenizer, too.
    """
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"w{i}" for i in range(config.vocab_size - len(words))]
    with tempfile.TemporaryDirectory() as folder, seeded(0, device), device:
        Path(folder, "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        tokenizer = BertTokenizerFast(str(Path(folder, "vocab.txt")))
        encoder = BertModel(config)
        head = LinearHead(config.hidden_size, 5, pooling="pooler")
    encoder.tokenizer = tokenizer
    return MultitaskModel(encoder, {"sst": head}, tokenizer).to(device)


def random_data(config, number):
    """Make rows for SST whose words are drawn as those of a language are: few are frequent.

    Args:
        config: a BertConfig.
        number: of rows for training.

    Returns:
        A TaskData.
    """
    task, generator = get_task("sst"), np.random.default_rng(0)

    def text():
        length = int(np.clip(generator.gamma(4.4, 5.25), 2, 62))  # tokens but [CLS] and [SEP]
        numbers = np.minimum(generator.zipf(1.3, length), config.vocab_size - 6)
        return " ".join(f"w{i}" for i in numbers)

    def split(count, name):
        rows = [
            {task.text_columns[0]: text(), "label": task.labels[i % len(task.labels)]}
            for i in range(count)
        ]
        return make_split(task, rows, name=name)

    return TaskData(task, split(number, "train"), split(8, "dev"))
