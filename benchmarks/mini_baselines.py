"""Train the bundled MiniLM on every mini task over several seeds, for the table of the datasheet.

    python benchmarks/mini_baselines.py --tasks rte mnli --seeds 0 1 2

Every task is fine-tuned with the settings of the fast profile. The two review tasks are also
trained with a frozen encoder. Tasks on pairs are also trained with separately encoded sentences
(bi-encoder).

A record holds the metrics on dev, an interval from resampling whole groups, and the accuracy of
each tier. The script writes results/mini_baselines.json after every run and replaces runs of the
same task, mode and seed.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import pandas as pd
import torch
from sentences import mini_sentence
from torch import nn
from torch.nn import functional as F

from mmlcourse.lessons.profiles import get_profile
from mmlcourse.machine import describe
from mmlcourse.studies.groups import bootstrap_interval
from mmlkit.bert.pretrained import load_pretrained
from mmlkit.data.loading import load_task
from mmlkit.data.tasks import get_task, list_tasks
from mmlkit.files import write_file
from mmlkit.heads.linear import LinearHead, Loss, PairHead, sentence_vector
from mmlkit.runtime import fastest_precision, pick_device
from mmlkit.training.evaluation import predict_scores
from mmlkit.training.loop import fit
from mmlkit.training.metrics import compute
from mmlkit.training.model import MultitaskModel

MODES = {
    "pretrain": "frozen encoder",
    "finetune": "fine-tuned",
    "separate": "fine-tuned, bi-encoder",
    "untrained_cosine": "cosine of the untrained encoder",
    "cosine": "cosine, fine-tuned",
}
FROZEN_TOO = ("sst", "cfimdb")
# Batch sizes for enough updates.
SMALL = {"cfimdb": 8, "wnli": 8, "rte": 16, "mrpc": 16, "mnli": 16, "sst2": 16}
EPOCHS = {"sst2": 5, "wnli": 6, "rte": 5, "mrpc": 4, "scitail": 4, "mnli": 4, "snli": 4}


WHAT = "minilm on the mini tasks, fast profile, dev split"


def modes_of(task):
    """Return the modes in which a task is trained."""
    cosine = task.name == "stsb"
    wanted = (task.name in FROZEN_TOO, True, task.is_pair, cosine, cosine)
    return [mode for mode, one in zip(MODES, wanted) if one]


def run(task, mode, seed):
    """Train once and return a record of plain values."""
    size = get_profile("fast")
    encoder, _ = load_pretrained(size.model)
    data = load_task(task)
    torch.manual_seed(seed)
    kind = PairHead if mode == "separate" else LinearHead
    if "cosine" in mode:
        head = CosineHead()
    else:
        head = kind(encoder.config.hidden_size, data.task.num_labels, pooling=size.pooling)
    model = MultitaskModel(encoder, {task: head})
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
    best = {"epoch": 0}
    if mode != "untrained_cosine":
        history = fit(model, data, freeze_encoder=mode == "pretrain", seed=seed, **settings)
        best = history[history["best"]].iloc[0]
    minutes = (time.perf_counter() - started) / 60
    return {
        "task": task,
        "mode": mode,
        "seed": seed,
        "model": size.model,
        "best_epoch": int(best["epoch"]),
        "minutes": round(minutes, 2),
        "settings": settings,
        **on_dev(model, data),
    }


def on_dev(model, data):
    """Return the metrics on dev, their intervals over groups, and the accuracy of each tier."""
    scores, labels, columns = predict_scores(model, data), data.dev.labels, data.dev.columns
    found = compute(data.task, scores, labels)
    found["interval"] = bootstrap_interval(data.task, scores, labels, columns["group"])
    right = pd.Series(scores.argmax(1) == labels)
    if data.task.labels:
        found["group_accuracy"] = float(right.groupby(columns["group"]).all().mean())
    if "tier" in columns:
        found["tiers"] = right.groupby(columns["tier"]).mean().to_dict()
    return found


class CosineHead(nn.Module):
    """The cosine of two sentence vectors, scaled to the task's scores (Reimers and Gurevych 2019).

    It has no weights, so its scores before training depend only on the pretrained encoder.
    """

    pairs, kinds, needs_tokens, num_labels = "separate", ("regression",), True, 1

    def inputs(self, out, batch):
        return (sentence_vector(out, batch, "mean"),)

    def forward(self, u, v):
        low, high = 0.0, 5.0  # range of the STS-B scores
        return low + (high - low) * F.cosine_similarity(u.float(), v.float())[:, None]

    def loss(self, inputs, batch):
        return Loss(F.mse_loss(self(*inputs)[:, 0], batch.labels) / 25)

    def penalty(self):
        return None

    def to_config(self):
        return {}


def mean_and_sd(values):
    """Return the mean of some runs with their standard deviation, as text."""
    if len(values) < 2:
        return f"{values.mean():.3f}, one seed" if len(values) else ""
    return f"{values.mean():.3f} ± {values.std():.3f}"


def table(runs):
    """Return the runs as Markdown, with a row per task and a column per mode that has runs.

    A cell is the mean ± standard deviation of the first metric over seeds.
    """
    frame = pd.DataFrame(runs)
    modes = [mode for mode in MODES if mode in {*frame["mode"]}]
    names = " | ".join(MODES[mode] for mode in modes)
    lines = [f"| task | metric | {names} |", "|---" * (len(modes) + 2) + "|"]
    for task, rows in frame.groupby("task", sort=False):
        metric = get_task(task).metrics[0]
        cells = [mean_and_sd(rows.loc[rows["mode"] == mode, metric]) for mode in modes]
        lines.append(f"| {task} | {metric} | {' | '.join(cells)} |")
        if "tiers" in rows and rows["tiers"].notna().all():
            tiers = rows.join(pd.DataFrame(rows["tiers"].tolist(), rows.index))
            for tier in ("plain", "crossed"):
                cells = [mean_and_sd(tiers.loc[tiers["mode"] == mode, tier]) for mode in modes]
                lines.append(f"| {task}, {tier} tier | {metric} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = [name for name in list_tasks() if name not in ("quora", "sts")]
    parser.add_argument("--tasks", nargs="+", default=tasks)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--modes", nargs="+", choices=list(MODES), help="default: the task's own")
    parser.add_argument("--out", default="results/mini_baselines.json")
    parser.add_argument("--table", action="store_true", help="only print the recorded runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = Path(options.out)
    runs = json.loads(path.read_text())["runs"] if path.is_file() else []
    if options.table:
        print(table(runs))
        return
    for seed in options.seeds:
        for task in options.tasks:
            for mode in options.modes or modes_of(get_task(task)):
                record, place = run(task, mode, seed), (task, mode, seed)
                print(record, flush=True)
                runs = [one for one in runs if (one["task"], one["mode"], one["seed"]) != place]
                runs.append(record)
                said = {"what": WHAT, "found": mini_sentence(WHAT, runs)}
                found = {**said, **describe(), "runs": runs}
                write_file(path, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
