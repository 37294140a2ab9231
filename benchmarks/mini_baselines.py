"""What the bundled MiniLM reaches on every mini task in the fast budget, over seeds: the table of
the datasheet.

    python benchmarks/mini_baselines.py --tasks rte mnli --seeds 0 1 2

Every task is fine-tuned with the fast profile's settings; the two review tasks also with the
encoder frozen, and the tasks on pairs also with the two sentences encoded apart. Models are
evaluated on their task's sisters too. Writes results/mini_baselines.json after every run, replacing
runs of the same task, mode and seed.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task
from mmlkit.data.tasks import get_task, list_tasks
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.profiles import get_profile
from mmlkit.runtime import atomic_write, describe, fastest_precision, pick_device
from mmlkit.studies.cross_dataset import two_way
from mmlkit.training.evaluation import evaluate, predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel

MODES = {
    "pretrain": "frozen encoder",
    "finetune": "fine-tuned",
    "separate": "fine-tuned, pairs apart",
}
FROZEN_TOO = ("sst", "cfimdb")
SMALL = {
    "cfimdb": 8,
    "wnli": 8,
    "rte": 16,
    "mrpc": 16,
}  # batch sizes of the smallest sets: enough updates
EPOCHS = {"wnli": 6, "cola": 5, "rte": 4, "mrpc": 4, "scitail": 4, "mnli": 4, "snli": 4}
SISTERS = (
    {"rte", "qnli", "mnli", "snli", "scitail"},
    {"qqp", "mrpc", "stsb_star"},
)  # read as two labels: yes, or not


def modes_of(task):
    """The ways in which a task is trained."""
    return [
        mode
        for mode, wanted in {
            "pretrain": task.name in FROZEN_TOO,
            "finetune": True,
            "separate": task.is_pair,
        }.items()
        if wanted
    ]


def run(task, mode, seed):
    """One training; returns a record of plain values."""
    size = get_profile("fast")
    encoder, _ = load_pretrained(size.model)
    data = load_task(task)
    torch.manual_seed(seed)
    kind = PairHead if mode == "separate" else LinearHead
    model = MultitaskModel(
        encoder,
        {task: kind(encoder.config.hidden_size, data.task.num_labels, pooling=size.pooling)},
    )
    rates = (
        {"lr": size.frozen_lr} if mode == "pretrain" else {"lr": size.lr, "head_lr": size.head_lr}
    )
    settings = dict(
        epochs=EPOCHS.get(task, size.epochs),
        batch_size=SMALL.get(task, size.batch_size),
        max_length=size.max_length,
        precision=fastest_precision(pick_device()),
        **rates,
    )
    started = time.perf_counter()
    history = fit(model, data, freeze_encoder=mode == "pretrain", seed=seed, **settings)
    minutes = (time.perf_counter() - started) / 60
    best = history[history["best"]].iloc[0]
    record = {
        "task": task,
        "mode": mode,
        "seed": seed,
        "model": size.model,
        "best_epoch": int(best["epoch"]),
        "minutes": round(minutes, 2),
        "settings": settings,
        **evaluate(model, data, max_length=size.max_length),
    }
    for group in SISTERS:
        if task in group:
            record["sisters"] = {
                other: on_sister(model, data.task, load_task(other)) for other in sorted(group)
            }
    return record


def on_sister(model, task, data):
    """Accuracy on a sister's dev split when every label is read as yes or not."""
    said = two_way(
        predict_scores(
            model, data.dev.texts, task=task.name, max_length=get_profile("fast").max_length
        ),
        task.labels,
    )
    true = two_way(np.eye(data.task.num_labels)[data.dev.labels], data.task.labels)
    return float(np.mean(said == true))


def table(runs):
    """The runs as Markdown: a row per task, the first metric as mean ± standard deviation over
    seeds.
    """
    frame = pd.DataFrame(runs)
    lines = [f"| task | metric | {' | '.join(MODES.values())} |", "|---" * (len(MODES) + 2) + "|"]
    for task, rows in frame.groupby("task", sort=False):
        metric, cells = get_task(task).metrics[0], []
        for mode in MODES:
            values = rows.loc[rows["mode"] == mode, metric]
            cells.append(
                f"{values.mean():.3f} ± {values.std():.3f}"
                if len(values) > 1
                else f"{values.mean():.3f}, one seed"
                if len(values)
                else ""
            )
        lines.append(f"| {task} | {metric} | {' | '.join(cells)} |")
    return "\n".join(lines)


def sisters(runs, mode="separate"):
    """What it costs to come from a sister set: rows trained on, columns evaluated on, two-way dev
    accuracy, means over seeds.
    """
    frame = pd.DataFrame(
        [
            {"trained on": one["task"], "evaluated on": other, "accuracy": value}
            for one in runs
            if one["mode"] == mode
            for other, value in one.get("sisters", {}).items()
        ]
    )
    lines = []
    for group in SISTERS:
        names = sorted(group)
        part = frame[frame["evaluated on"].isin(names)].pivot_table(
            index="trained on", columns="evaluated on", values="accuracy"
        )[names]
        own = {name: part.loc[name, name] for name in part.index}
        lost = [
            own[other] - part.loc[one, other] for one in part.index for other in own if one != other
        ]
        lines += [f"| trained on | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        lines += [
            f"| {one} | {' | '.join(f'{part.loc[one, other]:.3f}' for other in names)} |"
            for one in part.index
        ]
        lines += ["", f"A sister costs {100 * np.mean(lost):.1f} points on average.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=[name for name in list_tasks() if name not in ("quora", "sts")],
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--modes", nargs="+", choices=list(MODES), help="by default those that the task has"
    )
    parser.add_argument("--out", default="results/mini_baselines.json")
    parser.add_argument(
        "--table", action="store_true", help="train nothing; print the recorded runs as a table"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = Path(options.out)
    runs = json.loads(path.read_text())["runs"] if path.is_file() else []
    if options.table:
        print(table(runs), sisters(runs), sep="\n\n")
        return
    for seed in options.seeds:
        for task in options.tasks:
            for mode in options.modes or modes_of(get_task(task)):
                record = run(task, mode, seed)
                print(
                    {
                        key: value
                        for key, value in record.items()
                        if key not in ("settings", "model")
                    },
                    flush=True,
                )
                runs = [
                    old
                    for old in runs
                    if (old["task"], old["mode"], old["seed"]) != (task, mode, seed)
                ] + [record]
                with atomic_write(path) as temporary:
                    temporary.write_text(
                        json.dumps(
                            {
                                "what": "minilm on the mini tasks, fast profile, dev split",
                                **describe(),
                                "runs": runs,
                            },
                            indent=1,
                        )
                        + "\n"
                    )


if __name__ == "__main__":
    main()
