"""What the bundled MiniLM reaches on every mini task in the fast budget, over seeds: the table of the datasheet.

    python benchmarks/mini_baselines.py --tasks rte mnli --seeds 0 1 2

Every task is fine-tuned with the fast profile's settings; the two review tasks also with the encoder frozen. Models trained on
one inference set are evaluated on its sisters too. Writes results/mini_baselines.json after every run, replacing runs of the
same task, mode and seed.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from mmlkit.data import load_task
from mmlkit.evaluation import evaluate, predict
from mmlkit.heads import LinearHead
from mmlkit.multitask import MultitaskModel
from mmlkit.pretrained import load_pretrained
from mmlkit.profiles import get_profile
from mmlkit.runtime import describe, fastest_precision, pick_device, replacing
from mmlkit.tasks import get_task, list_tasks
from mmlkit.training import fit

FROZEN_TOO = ("sst", "cfimdb")
SMALL = {"cfimdb": 8, "wnli": 8, "rte": 16, "mrpc": 16}      # batch sizes of the smallest sets: enough updates
EPOCHS = {"rte": 6, "mrpc": 6, "wnli": 6, "scitail": 5, "cola": 5}
SISTERS = {"rte", "qnli", "mnli", "snli", "scitail", "wnli"}


def run(task, mode, seed):
    """One training; returns a record of plain values."""
    size = get_profile("fast")
    encoder, _ = load_pretrained(size.model)
    data = load_task(task)
    torch.manual_seed(seed)
    model = MultitaskModel(encoder, {task: LinearHead(encoder.config.hidden_size, data.task.num_labels, reads=size.reads)})
    rates = {"lr": size.frozen_lr} if mode == "pretrain" else {"lr": size.lr, "head_lr": size.head_lr}
    settings = dict(epochs=EPOCHS.get(task, size.epochs), batch_size=SMALL.get(task, size.batch_size), max_length=size.max_length,
                    precision=fastest_precision(pick_device()), **rates)
    started = time.perf_counter()
    history = fit(model, data, mode=mode, seed=seed, **settings)
    minutes = (time.perf_counter() - started) / 60
    best = history[history["best"]].iloc[0]
    record = {"task": task, "mode": mode, "seed": seed, "model": size.model, "best_epoch": int(best["epoch"]), "minutes": round(minutes, 2),
              "settings": settings, **evaluate(model, data, max_length=size.max_length)}
    if task in SISTERS:
        record["sisters"] = {other: two_way(model, data.task, load_task(other)) for other in sorted(SISTERS)}
    return record


def two_way(model, task, data):
    """Accuracy on a sister's dev split when every label is read as entailed or not, by name."""
    texts = data.dev.texts
    scores = predict(model, texts, task=task.name, max_length=get_profile("fast").max_length)
    entailed = [label.startswith("entail") for label in task.labels]
    truth = np.array([data.task.labels[label].startswith("entail") for label in data.dev.labels])
    return float(np.mean(np.array(entailed)[scores.argmax(1)] == truth))


def table(runs):
    """The runs as Markdown: a row per task, the first metric as mean ± standard deviation over seeds."""
    frame = pd.DataFrame(runs)
    lines = ["| task | metric | frozen encoder | fine-tuned | seeds |", "|---|---|---|---|---|"]
    for task, rows in frame.groupby("task", sort=False):
        metric, cells = get_task(task).metrics[0], []
        for mode in ("pretrain", "finetune"):
            values = rows.loc[rows["mode"] == mode, metric]
            cells.append(f"{values.mean():.3f} ± {values.std():.3f}" if len(values) else "")
        lines.append(f"| {task} | {metric} | {' | '.join(cells)} | {rows['seed'].nunique()} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=[name for name in list_tasks() if name not in ("quora", "sts", "stsb_star")])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", default="results/mini_baselines.json")
    parser.add_argument("--table", action="store_true", help="train nothing; print the recorded runs as a table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    path = Path(options.out)
    runs = json.loads(path.read_text())["runs"] if path.is_file() else []
    if options.table:
        print(table(runs))
        return
    for seed in options.seeds:
        for task in options.tasks:
            for mode in ("pretrain", "finetune") if task in FROZEN_TOO else ("finetune",):
                record = run(task, mode, seed)
                print({key: value for key, value in record.items() if key not in ("settings", "model")}, flush=True)
                runs = [old for old in runs if (old["task"], old["mode"], old["seed"]) != (task, mode, seed)] + [record]
                with replacing(path) as temporary:
                    temporary.write_text(json.dumps({"what": "minilm on the mini tasks, fast profile, dev split", **describe(), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
