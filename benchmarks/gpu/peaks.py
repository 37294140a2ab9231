"""The peak memory of a training step of BERT-base with hundreds of heads, beside the formula."""

import gc

import torch
from gpu.common import Program, classifier
from memory import training_memory

from mmlkit.data.batching import Batch
from mmlkit.data.tasks import get_task
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.runtime import fastest_precision
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.step import train_step


def measure(program, heads, rows, tokens):
    """Return gigabytes: the peak of two steps on the card, and what the formula says."""
    config, device, precision = program.config, program.device, fastest_precision(program.device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = classifier(config, device)
    if heads > 1:
        head = MultiverseHead(config.hidden_size, 5, num_heads=heads).to(device)
        model.heads["sst"] = head
    model.train()
    optimizer = make_optimizer(model, lr=1e-5)
    scaler = torch.amp.GradScaler(device.type) if precision == "fp16" else None
    ids = torch.randint(5, config.vocab_size, (rows, tokens), device=device)
    parts = dict(attention_mask=torch.ones_like(ids), token_type_ids=torch.zeros_like(ids))
    labels = torch.arange(rows, device=device) % 5
    batch = Batch(get_task("sst"), ids, **parts, labels=labels, rows=tuple(range(rows)))
    for _ in range(2):
        loss = train_step(model, batch, optimizer, precision=precision, scaler=scaler)
    size = dict(precision=precision, heads=heads, fused=device.type == "cuda")
    peak = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    return {
        "peak_gb": peak and round(peak, 3),
        "formula_gb": round(training_memory(config, rows, tokens, **size)["total"], 3),
        "rows_at_a_time": loss.micro_batch_size or rows,
    }


def main():
    program = Program(__doc__)
    rows, tokens = (2, 16) if program.dry else (16, 512)
    for heads in (1, 384, 1024):
        found = measure(program, heads, rows, tokens)
        program.record(f"{rows} rows of {tokens} tokens, {heads} heads", found)


if __name__ == "__main__":
    main()
