"""The memory of fine-tuning on a GPU, by a formula: weights, gradients, optimizer, activations.

    python benchmarks/memory.py

Notebook 02 names these four parts. The weights of the best epoch are on the host. Letters: B batch,
T tokens, D hidden size, L layers, A attention heads, P parameters; M multiverse heads, C labels. A
layer keeps some tensors [B, T, D] and some [B, A, T, T] for the backward pass. The bytes per entry
are counted from `mmlkit.bert`, with attention written as two matrix products; the fused kernel,
which `mmlkit` takes on a GPU, keeps no [B, A, T, T]. The idea is that of Korthikanti et al. 2022,
Eq. 1.
"""

from mmlkit.bert.model import BertConfig

__all__ = ["encoder_parameters", "orthogonality_memory", "training_memory"]

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


def orthogonality_memory(heads, labels, size):
    """Return the memory of the orthogonality term, in bytes.

    The classes take turns, so that there is one matrix of products [M, M], and a second one of
    their absolute values or signs. The gradient [M, C, D] is kept, and doubled in the backward
    pass. The term comes after the activations are gone.

    Args:
        heads: M.
        labels: C.
        size: D.

    Returns:
        A whole number.
    """
    return 4 * (2 * heads * heads + 2 * heads * labels * size)


def training_memory(
    config, batch_size, length, *, precision="fp16", kept_models=0, heads=1, labels=5, fused=False
):
    """Estimate the memory of a training step of `fit` with AdamW.

    Args:
        config: a BertConfig.
        batch_size: B, rows of a batch.
        length: T, tokens of a row, padding included.
        precision: "fp32", "bf16" or "fp16", see `mmlkit.runtime.autocast`.
        kept_models: other trained models that stay on the GPU for a comparison.
        heads: M, multiverse heads; 1 for one linear head.
        labels: C.
        fused: whether attention is torch's fused kernel.

    Returns:
        A dict of gigabytes (10^9 bytes): weights, gradients, optimizer (two moments), activations,
        orthogonality, kept, and their total, in which only the larger one of activations and
        orthogonality counts. CUDA itself takes about half a gigabyte more.
    """
    parameters = encoder_parameters(config) + heads * labels * (config.hidden_size + 1)
    vectors = batch_size * length * config.hidden_size
    maps = 0 if fused else batch_size * config.num_attention_heads * length**2
    layer = _VECTORS[precision] * vectors + _MAPS[precision] * maps
    fixed = {
        "weights": (4 + _CASTS[precision]) * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "kept": kept_models * 4 * parameters,
    }
    turns = {
        "activations": config.num_hidden_layers * layer + 13 * vectors,  # 13: the embeddings
        "orthogonality": heads > 1 and orthogonality_memory(heads, labels, config.hidden_size),
    }
    total = sum(fixed.values()) + max(turns.values())
    return {name: value / 1e9 for name, value in {**fixed, **turns, "total": total}.items()}


def main():
    """Print the memory of BERT-base with one head and hundreds of heads, on rows of 512 tokens."""
    print("BERT-base, 512 tokens, fp16, 5 labels; GB by the formula, nothing is measured")
    for rows in (8, 16, 32):
        for heads in (1, 384, 1024):
            size = dict(heads=heads, fused=True)
            found = training_memory(BertConfig.base(), rows, 512, **size)
            parts = ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value)
            print(f"{rows:2} rows, {heads:4} heads: {parts}")


if __name__ == "__main__":
    main()
