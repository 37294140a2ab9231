"""The memory of fine-tuning on a GPU, by a formula: weights, gradients, optimizer, activations.

Notebook 02 names these four parts; `fit` also keeps the weights of the best epoch. Letters: B
batch, T tokens, D hidden size, L layers, A attention heads, P parameters. A layer keeps some
tensors [B, T, D] and some [B, A, T, T] for the backward pass. The bytes per entry are counted from
`mmlkit.bert`, with attention written as two matrix products; the fused kernel of a GPU needs less.
The idea is that of Korthikanti et al. 2022, Eq. 1.
"""

__all__ = ["encoder_parameters", "training_memory"]

_VECTORS = {"fp32": 84, "bf16": 54, "fp16": 54}  # bytes for each entry of [B, T, D], in a layer
_MAPS = {"fp32": 13, "bf16": 9, "fp16": 9}  # and of [B, A, T, T]
_CASTS = {"fp32": 0, "bf16": 2, "fp16": 2}  # autocast keeps a copy of the weights in 16 bits


def encoder_parameters(config):
    """Return the number of parameters of an encoder with its pooler.

    Args:
        config: a BertConfig.

    Returns:
        A whole number; 109,482,240 for BERT-base.
    """
    D, F = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    attention, feed_forward, norms = 4 * (D * D + D), 2 * D * F + F + D, 4 * D
    layers = config.num_hidden_layers * (attention + feed_forward + norms)
    return (rows + 2) * D + layers + D * D + D


def training_memory(config, batch_size, length, *, precision="fp16", kept_models=0):
    """Estimate the memory of a training step of `fit` with AdamW.

    Args:
        config: a BertConfig.
        batch_size: B, rows of a batch.
        length: T, tokens of a row, padding included.
        precision: "fp32", "bf16" or "fp16", see `mmlkit.runtime.autocast`.
        kept_models: other trained models that stay on the GPU for a comparison.

    Returns:
        A dict of gigabytes (10^9 bytes): weights, gradients, optimizer (two moments), best (the
        weights of the best epoch), activations, kept, and their total. CUDA itself takes about half
        a gigabyte more.
    """
    parameters = encoder_parameters(config)
    vectors = batch_size * length * config.hidden_size
    maps = batch_size * config.num_attention_heads * length**2
    layer = _VECTORS[precision] * vectors + _MAPS[precision] * maps
    found = {
        "weights": (4 + _CASTS[precision]) * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "best": 4 * parameters,
        "activations": config.num_hidden_layers * layer + 13 * vectors,  # 13: the embeddings
        "kept": kept_models * 4 * parameters,
    }
    found["total"] = sum(found.values())
    return {name: value / 1e9 for name, value in found.items()}
