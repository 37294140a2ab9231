"""A training step of mmlkit against transformers' Trainer, on the same rows and weights.

    python benchmarks/steps.py --source FOLDER
    python benchmarks/steps.py --rounds 1 --steps 1

The Trainer runs as shipped (fp32, rows in random order), and with its best flags in the same
precision: batches of similar length, the fastest matrix product, bf16 or fp16, no test of the loss
for NaN, and two workers that load data for a GPU. Its batches are then ours, which are like those
of group_by_length: both sort pools of 50 batches by length. That sampler begins with the longest
batches, so its own order would give a short run others.

On a GPU, ours are updates as `fit` makes them, recorded as CUDA graphs; `eager` are those without.

Adam's update and clipping are the same on both sides. Neither saves, logs or evaluates. On a
machine with several GPUs, let CUDA_VISIBLE_DEVICES name one, because the Trainer takes all.
"""

import argparse
import contextlib
import itertools
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from roofline import copy_rate, roofline, step_cost
from timing import alternate, clock, linear_parameters, matmul_peak, spread

from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import autocast
from mmlkit.training.fast import fast_matmul
from mmlkit.training.graphs import FIRST, StepGraphs
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.step import train_step

__all__ = [
    "classifier",
    "compare_steps",
    "draw_batches",
    "make_step",
    "quiet_transformers",
    "record_shapes",
    "step_record",
]

LEARNING_RATE = 1e-4


def classifier(model, task):
    """Load an encoder with a head as `BertForSequenceClassification` has it.

    Args:
        model: a name for `load_pretrained`.
        task: a Task.

    Returns:
        A MultitaskModel.
    """
    encoder, tokenizer = load_pretrained(model)
    head = LinearHead(encoder.config.hidden_size, task.num_labels, pooling="pooler")
    return MultitaskModel(encoder, {task.name: head}, tokenizer)


def compare_steps(model, data, precisions, *, rounds, steps, warm_up, batch_size=32, graphs=None):
    """Compare real tokens a second of training steps, padding not counted.

    A round draws batches of one epoch, and for the Trainer as shipped random rows. It is timed from
    the end of the last warm-up step to the end of the last step. Tokenization comes before.

    Args:
        model: a MultitaskModel with a LinearHead of pooling "pooler" for the task.
        data: a TaskData.
        precisions: such as ["fp32", "bf16"].
        rounds: rounds of the alternation.
        steps: timed steps of a round.
        warm_up: steps before them, at least 1.
        batch_size: rows of a batch.
        graphs: whether ours are recorded as CUDA graphs. By default on a GPU.

    Returns:
        A list with one record for each precision.

    Raises:
        ValueError: the training split has fewer rows than a batch (from `draw_batches`).
    """
    task, device, config = data.task, model.device, model.encoder.config
    graphs = device.type == "cuda" if graphs is None else graphs
    encoded = encode(model.tokenizer, data.train, max_length=model.cut())
    draws = [draw_batches(encoded, batch_size, warm_up + steps, i) for i in range(rounds)]
    with quiet_transformers(), tempfile.TemporaryDirectory() as scratch:
        folder = _export(model, task, scratch)

        def trainer(precision, best):
            flags = dict(precision=precision, best=best, warm_up=warm_up, device=device)
            return lambda i: _trainer_speed(folder, encoded, draws[i], i, **flags)

        def ours(precision):
            if not graphs:
                return eager(precision)
            step = make_step(model, encoded, precision, StepGraphs())
            record_shapes(step, encoded, itertools.chain(*draws))
            return lambda i: _our_speed(step, encoded, draws[i], warm_up, device)

        def eager(precision):
            def speed(i):
                step = make_step(model, encoded, precision)
                return _our_speed(step, encoded, draws[i], warm_up, device)

            return speed

        variants = {"shipped": trainer("fp32", False), "copies": lambda i: copy_rate(device)}
        for precision in precisions:
            variants |= {
                f"ours {precision}": ours(precision),
                f"best {precision}": trainer(precision, True),
                f"peak {precision}": lambda i, precision=precision: matmul_peak(precision, device),
            }
            if graphs:
                variants[f"eager {precision}"] = eager(precision)
        found = alternate(variants, rounds, f"training steps, {task.name}")
    about = {
        "task": task.name,
        "train_rows": len(data.train),
        "batch_size": batch_size,
        "steps": steps,
        "linear_parameters": linear_parameters(config),
        "tokens_a_step": round(_tokens(encoded, np.ravel(draws)) / np.size(draws) * batch_size, 1),
    }
    size = dict(parameters=sum(one.numel() for one in model.parameters()))
    return [
        step_record(
            about,
            precision,
            found,
            step_cost(config, about["tokens_a_step"], precision=precision, **size),
        )
        for precision in precisions
    ]


def step_record(about, precision, found, cost):
    """Compute the ratios of one precision.

    Args:
        about: a dict with "linear_parameters", "tokens_a_step", and other facts that the record
            keeps.
        precision: such as "fp32".
        found: for each round a dict: tokens a second "shipped", "ours fp32" and "best fp32", and
            where graphs were made "eager fp32"; "peak fp32" in GFLOP/s, and "copies" in GB/s.
        cost: what `step_cost` returned for the tokens of a step.

    Returns:
        A record: every round, and the median, lowest and highest of each ratio.
    """
    flop, tokens = 6 * about["linear_parameters"], about["tokens_a_step"]
    names = {"ours": f"ours {precision}", "shipped": "shipped", "best": f"best {precision}"}
    names |= {"peak_gflops": f"peak {precision}", "copies_gbs": "copies"}
    if f"eager {precision}" in found[0]:
        names["eager"] = f"eager {precision}"
    rounds = [{key: round(one[name], 1) for key, name in names.items()} for one in found]
    # Other work can only slow a rate.
    peak, copies = (max(one[name] for one in rounds) for name in ("peak_gflops", "copies_gbs"))
    least = roofline(cost, peak, copies)["total"] / 1e3
    record = {
        "comparison": "step",
        "precision": precision,
        **about,
        "tokens_a_second": spread(one["ours"] for one in rounds),
        "over_shipped": spread(one["ours"] / one["shipped"] for one in rounds),
        "over_best": spread(one["ours"] / one["best"] for one in rounds),
        "share_of_peak": spread(flop * one["ours"] / peak / 1e9 for one in rounds),
        "roofline_ms": float(f"{1e3 * least:.4g}"),
        "time_over_roofline": spread(tokens / one["ours"] / least for one in rounds),
    }
    if "eager" in names:
        record["over_eager"] = spread(one["ours"] / one["eager"] for one in rounds)
    return {**record, "rounds": rounds}


def draw_batches(encoded, batch_size, number, seed):
    """Draw full batches of similar length from one epoch, again from the start if it is short.

    Args:
        encoded: an Encoded split.
        batch_size: rows of a batch.
        number: how many batches.
        seed: the seed of the epoch.

    Returns:
        A list of batches, each a list of row numbers.

    Raises:
        ValueError: the split has fewer rows than a batch.
    """
    batches = [
        rows for rows in plan(encoded.lengths, batch_size, seed=seed) if len(rows) == batch_size
    ]
    if not batches:
        raise ValueError(
            f"task {encoded.task.name!r} has {len(encoded)} training rows, expected at least "
            f"{batch_size}, one batch. Choose a source with more rows."
        )
    return list(itertools.islice(itertools.cycle(batches), number))


def make_step(model, encoded, precision, graphs=None):
    """Make a function that collates one batch as `fit` does, and updates the model with it.

    Args:
        model: a MultitaskModel.
        encoded: an Encoded split.
        precision: see `runtime.autocast`.
        graphs: a StepGraphs of this step alone, or None.

    Returns:
        A function of row numbers, with an optimizer of its own.
    """
    model.train()
    device, optimizer = model.device, make_optimizer(model, lr=LEARNING_RATE)
    scaler = torch.amp.GradScaler(device.type) if autocast(precision, device)[1] else None
    width = dict(multiple=8 if device.type == "cuda" else 1, limit=model.cut())

    def step(rows):
        batch = collate(encoded, rows, **width).to(device)
        train_step(model, batch, optimizer, precision=precision, scaler=scaler, graphs=graphs)

    return step


def record_shapes(step, encoded, batches):
    """Let each shape of some batches come so often that its update is recorded.

    Args:
        step: a function of `make_step`.
        encoded: its Encoded split.
        batches: lists of row numbers.
    """
    shapes = {(len(rows), -(-encoded.lengths[rows].max() // 8)): rows for rows in batches}
    for rows in FIRST * [*shapes.values()]:
        step(rows)


def _our_speed(step, encoded, batches, warm_up, device):
    for rows in batches[:warm_up]:
        step(rows)
    started = clock(device)
    for rows in batches[warm_up:]:
        step(rows)
    passed = clock(device) - started
    return _tokens(encoded, np.concatenate(batches[warm_up:])) / passed


def _trainer_speed(folder, encoded, batches, seed, *, precision, best, warm_up, device):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer
    from transformers.trainer_callback import PrinterCallback, TrainerCallback

    order, size = np.concatenate(batches), len(batches[0])
    if not best:
        shuffled = np.random.default_rng(seed).permutation(len(encoded))
        order = np.resize(shuffled, len(order))  # it repeats where the rows are too few
    ticks = {}

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step in (warm_up, len(batches)):
                ticks[state.global_step] = clock(device)

    with tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(
            AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=False),
            _arguments(scratch, batches, precision, best, device),
            train_dataset=_trainer_rows(encoded, order),
            processing_class=AutoTokenizer.from_pretrained(folder, trust_remote_code=False),
            callbacks=[Clock()],
        )
        trainer.remove_callback(PrinterCallback)
        with fast_matmul(device) if best else contextlib.nullcontext():
            trainer.train()
    return _tokens(encoded, order[warm_up * size :]) / (ticks[len(batches)] - ticks[warm_up])


def _tokens(encoded, rows):
    return int(encoded.lengths[rows].sum())


def _arguments(folder, batches, precision, best, device):
    from transformers import TrainingArguments

    return TrainingArguments(
        folder,
        per_device_train_batch_size=len(batches[0]),
        max_steps=len(batches),
        learning_rate=LEARNING_RATE,
        train_sampling_strategy="sequential",  # the order was drawn before
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=device.type == "cpu",
        logging_nan_inf_filter=not best,
        dataloader_num_workers=2 if best and device.type == "cuda" else 0,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def _trainer_rows(encoded, order):
    return [
        {
            "input_ids": encoded.input_ids[i],
            "attention_mask": [1] * len(encoded.input_ids[i]),
            "token_type_ids": encoded.token_type_ids[i],
            "labels": int(encoded.labels[i]),
        }
        for i in order
    ]


def _export(model, task, scratch):
    from mmlkit.huggingface import export_classifier

    folder = Path(scratch, "classifier")
    export_classifier(model, task, folder)
    return folder


@contextlib.contextmanager
def quiet_transformers():
    """Silence the warnings and progress bars of transformers inside the context.

    Yields:
        Nothing.
    """
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def main():
    """Compare the steps of MiniLM on SST, and print tokens a second and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default="mini", help="the folder of the course's data, or mini")
    parser.add_argument("--precision", nargs="+", default=["fp32"], help="fp32, bf16 or fp16")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that alternate")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a round")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    options = parser.parse_args()
    data = load_task("sst", options.source)
    size = dict(rounds=options.rounds, steps=options.steps, warm_up=options.warm_up)
    for one in compare_steps(classifier("minilm", data.task), data, options.precision, **size):
        for name in ("tokens_a_second", "over_shipped", "over_best", "time_over_roofline"):
            found = one[name]
            ends = f"({found['lowest']} to {found['highest']})"
            print(f"{one['precision']} {name}: {found['median']} {ends}")


if __name__ == "__main__":
    main()
