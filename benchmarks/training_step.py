"""Compare the training step of mmlkit (fp32 and bf16) with the Trainer of transformers (fp32).

    python benchmarks/training_step.py --source FOLDER_OF_CS224N_FILES

Both run in one process, and the Trainer has its defaults. Rounds alternate: some steps of the
Trainer with random batches, then as many steps of mmlkit. The rows, the initial weights and the
batch size are the same. A round gives real tokens (no padding) per second, end to end, without the
first steps. The result is the median over rounds of ours / theirs.

Timings on a machine vary, so read the ratio, not the seconds. In fp32 the ratio depends on the
processor: it is higher where oneDNN's products are faster than torch's default (AVX-512 on Zen 5).
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings

from mmlkit.bert.pretrained import load_pretrained, save_pretrained
from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import atomic_write, describe
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.step import train_step

WARM_UP = 2


def trainer_speed(folder, encoded, batch_size, steps, seed):
    """Return the real tokens per second of the Trainer."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )
    from transformers.data import DataCollatorWithPadding

    ticks, tokens = [], []
    tokenizer = AutoTokenizer.from_pretrained(folder)
    padded = DataCollatorWithPadding(tokenizer)

    def collator(rows):
        batch = padded(rows)
        tokens.append(int(batch["attention_mask"].sum()))
        return batch

    class Clock(TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            ticks.append(time.perf_counter())

    rows = [
        dict(input_ids=ids, attention_mask=[1] * len(ids), token_type_ids=types, labels=int(label))
        for ids, types, label in zip(encoded.input_ids, encoded.token_type_ids, encoded.labels)
    ]
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=encoded.task.num_labels
    )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch,
            per_device_train_batch_size=batch_size,
            max_steps=steps,
            learning_rate=1e-4,
            seed=seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Trainer(
            model,
            arguments,
            train_dataset=rows,
            data_collator=collator,
            processing_class=tokenizer,
            callbacks=[Clock()],
        ).train()
    return sum(tokens[WARM_UP + 1 :]) / (
        ticks[-1] - ticks[WARM_UP]
    )  # from the end of a step to the end of the last step, including collation


def mmlkit_speed(encoder, encoded, batch_size, steps, seed, pooling, precision):
    """Return the real tokens per second of our steps, including collation."""
    model = MultitaskModel(
        encoder,
        {
            encoded.task.name: LinearHead(
                encoder.config.hidden_size, encoded.task.num_labels, pooling=pooling
            )
        },
    ).train()
    optimizer, tokens = make_optimizer(model, lr=1e-4), 0
    for i, rows in enumerate(plan(encoded.lengths, batch_size, seed=seed)[:steps]):
        if i == WARM_UP + 1:
            start, tokens = time.perf_counter(), 0
        batch = collate(encoded, rows)
        train_step(model, batch, optimizer, precision=precision).total.item()
        tokens += int(batch.attention_mask.sum())
    return tokens / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default="mini", help="folder with the CS224N files, or 'mini'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=23)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--pooling", default="pooler", choices=["pooler", "cls", "mean"])
    parser.add_argument("--out", help="write the figures to this .json file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    encoder, tokenizer = load_pretrained("minilm", device="cpu")
    train = load_task("sst", options.source).train
    encoded = encode(tokenizer, train, max_length=512)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(encoder, tokenizer, folder)
        for seed in range(options.rounds):
            a = trainer_speed(folder, encoded, options.batch_size, options.steps, seed)
            b, c = (
                mmlkit_speed(
                    load_pretrained("minilm", device="cpu")[0],
                    encoded,
                    options.batch_size,
                    options.steps,
                    seed,
                    options.pooling,
                    precision,
                )
                for precision in ("fp32", "bf16")
            )
            rounds.append(
                {
                    "trainer": round(a),
                    "mmlkit": round(b),
                    "mmlkit_bf16": round(c),
                    "ratio": round(b / a, 3),
                    "ratio_bf16": round(c / a, 3),
                }
            )
            print(rounds[-1], flush=True)
    found = {
        "what": "real tokens per second of a training step, SST-5, minilm, batch 32",
        "rows": len(train),
        "pooling": options.pooling,
        "ratio": statistics.median(r["ratio"] for r in rounds),
        "ratio_bf16": statistics.median(r["ratio_bf16"] for r in rounds),
        "rounds": rounds,
        **describe(),
    }
    print(
        f"mmlkit fp32 / Trainer fp32: {found['ratio']:.2f}; bf16: {found['ratio_bf16']:.2f} "
        f"(medians of {len(rounds)} rounds)"
    )
    if options.out:
        with atomic_write(options.out) as temporary:
            temporary.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
