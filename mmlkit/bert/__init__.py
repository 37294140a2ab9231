"""BERT's encoder under the parameter names of transformers, and its pretrained weights.

    attention    multi-head self-attention
    model        embeddings, layers, pooler: BertModel and its BertConfig
    pretrained   weights from the bundled MiniLM, the hub or a folder, and back

Notebook 01 builds it by hand. Heads, tasks and shortcuts for speed do not belong here.
"""

from mmlkit.bert.attention import BertSelfAttention
from mmlkit.bert.model import BertConfig, BertLayer, BertModel, BertOutput
from mmlkit.bert.pretrained import (
    load_pretrained,
    read_checkpoint,
    save_pretrained,
    write_pretrained,
)
