"""All comparisons in one record, and the table that `mmlkit bench` prints and the README shows."""

from pathlib import Path

from mmlkit.bench.heads import compare_heads, time_pruning_check
from mmlkit.bench.predictions import compare_predictions
from mmlkit.bench.start import time_start
from mmlkit.bench.steps import compare_steps
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task
from mmlkit.heads.linear import LinearHead
from mmlkit.runtime import describe, fastest_precision, pick_device, seeded
from mmlkit.support.messages import count
from mmlkit.training.model import MultitaskModel

__all__ = ["measure_speed", "speed_sentences", "speed_table"]

PARTS = ("step", "predict", "heads", "start")
TASKS = {"sst": "SST-5", "quora": "Quora pairs"}


def measure_speed(
    model="minilm", source="mini", *, parts=PARTS, precisions=None, quick=False, **size
):
    """Make all comparisons.

    Args:
        model: a model for `load_pretrained`.
        source: "mini", or the folder with the CS224N course's files, see `load_task`.
        parts: which comparisons, some of "step", "predict", "heads" and "start".
        precisions: such as ["fp32", "bf16"]; None for fp32 and the fastest one of the device.
        quick: fewer and shorter rounds.
        **size: other values for rounds, for the steps and warm_up of a round, and for the rows to
            predict.

    Returns:
        A record for results/speed.json: the comparisons with all rounds, and this machine.

    Raises:
        FileNotFoundError: the source has no such files (from `load_task`).
    """
    device = pick_device()
    size = {**_size(device, quick), **size}
    precisions = precisions or list(dict.fromkeys(["fp32", fastest_precision(device)]))
    rounds, rows = size["rounds"], size["rows"]
    times = {name: size[name] for name in ("rounds", "steps", "warm_up")}
    data = {}
    if {"step", "predict"} & set(parts):  # before any comparison: a missing file is found at once
        data = {name: load_task(name, source) for name in TASKS}
    found = []
    with seeded(0, device):
        for one in data.values():
            classifier = _classifier(model, one.task)
            if "predict" in parts:  # before the steps change the weights
                found += compare_predictions(classifier, one, precisions, rounds=rounds, rows=rows)
            if "step" in parts:
                found += compare_steps(classifier, one, precisions, **times)
        if "heads" in parts:
            encoder, mnli = load_pretrained(model)[0], load_task("mnli")
            times["steps"] *= 3  # the heads add less than the steps of a round differ
            found += [compare_heads(encoder, mnli, precision, **times) for precision in precisions]
            found.append(time_pruning_check(rounds))
    if "start" in parts:
        found.append(time_start(rounds))
    return {
        "what": "speed of mmlkit and of transformers, in alternating rounds of one process",
        "model": Path(model).name,  # of a folder no more than its name
        "source": "mini" if source == "mini" else "folder",
        **size,
        "comparisons": found,
        **describe(device),
    }


def _size(device, quick):
    rounds, steps, warm_up, rows = (3, 3, 1, 128) if quick else (7, 8, 2, 1024)
    times = 12 if device.type == "cuda" else 1  # a step takes milliseconds there
    steps, warm_up, rows = times * steps, times * warm_up, times * rows
    return {"rounds": rounds, "steps": steps, "warm_up": warm_up, "rows": rows}


def _classifier(model, task):
    encoder, tokenizer = load_pretrained(model)
    head = LinearHead(encoder.config.hidden_size, task.num_labels, pooling="pooler")
    return MultitaskModel(encoder, {task.name: head}, tokenizer)


# {name of a row: (comparison, key, how a value is written)}
_ROWS = {
    "training step, over Trainer as shipped (fp32)": ("step", "over_shipped", "{:.2f}"),
    "training step, over Trainer with its best flags": ("step", "over_best", "{:.2f}"),
    "training step, share of the matmul peak": ("step", "share_of_peak", "{:.0%}"),
    "training step, tokens a second": ("step", "tokens_a_second", "{:,.0f}"),
    "predict_proba, over pipeline as shipped": ("predict", "predict_over_pipeline", "{:.2f}"),
    "predict_proba, over pipeline, tuned": ("predict", "predict_over_tuned", "{:.2f}"),
    "evaluate, over pipeline as shipped": ("predict", "evaluate_over_pipeline", "{:.2f}"),
    "evaluate, over pipeline, tuned": ("predict", "evaluate_over_tuned", "{:.2f}"),
    "predict_proba, share of the matmul peak": ("predict", "share_of_peak", "{:.0%}"),
    "predict_proba, tokens a second": ("predict", "tokens_a_second", "{:,.0f}"),
}


def speed_table(record):
    """Make the table of the comparisons with transformers.

    Args:
        record: a record of `measure_speed`.

    Returns:
        A pandas DataFrame of texts, medians with the lowest and the highest round. It is empty
        where only heads and start were measured.
    """
    import pandas as pd

    cells = {}
    for one in record["comparisons"]:
        for row, (comparison, key, form) in _ROWS.items():
            if one["comparison"] == comparison:
                column = f"{TASKS[one['task']]}, {one['precision']}"
                cells.setdefault(row, {})[column] = _interval(one[key], form)
    table = pd.DataFrame.from_dict(cells, orient="index").reindex(
        [row for row in _ROWS if row in cells]
    )
    return table.fillna("").rename_axis("speed").reset_index()


def speed_sentences(record):
    """State the machine of a record, the cost of many heads, and the time of a start.

    Args:
        record: a record of `measure_speed`.

    Returns:
        A list of sentences.
    """
    versions = record["versions"]
    data = "the mini data" if record["source"] == "mini" else "the course's files"
    sentences = [
        f"{record['hardware']}, {count(record['threads'], 'thread')}, torch {versions['torch']}, "
        f"transformers {versions['transformers']}, {data}: median of "
        f"{count(record['rounds'], 'round')} (lowest to highest)."
    ]
    for one in record["comparisons"]:
        if one["comparison"] == "heads":
            sentences.append(
                f"{one['heads']} heads instead of one add "
                f"{_interval(one['added_percent'], '{:.1f}')} % to a training step in "
                f"{one['precision']}."
            )
        elif one["comparison"] == "pruning check":
            slowest = max(one["seconds"].values(), key=lambda shape: shape["median"])
            sentences.append(
                f"A pruning check of {one['heads']:,} heads takes {_interval(slowest, '{:.2f}')} s."
            )
        elif one["comparison"] == "start":
            ready, adds, names, text = (
                _interval(one[name], "{:.3f}")
                for name in ("torch_s", "import_adds_s", "names_add_s", "help_s")
            )
            sentences.append(
                f"The import of torch takes {ready} s. That of mmlkit adds {adds} s, with the "
                f"names of the first example {names} s. The command mmlkit --help takes {text} s."
            )
    return sentences


def _interval(values, form):
    median, lowest, highest = (
        form.format(values[name]) for name in ("median", "lowest", "highest")
    )
    return f"{median} ({lowest} to {highest})"
