"""The command line: `mmlkit doctor`, `mmlkit run`, `mmlkit reproduce`, `mmlkit report`, `mmlkit bench`, `mmlkit predict`,
`mmlkit submit`.

Nothing heavy is imported before a command needs it, so `mmlkit --help` answers at once.
"""

import argparse
import contextlib
import csv
import os
import re
import sys
from pathlib import Path

from mmlkit import __version__
from mmlkit.folders import check_model_folder
from mmlkit.messages import count, error_text, no_formula, printable

__all__ = ["main"]


def main(arguments=None):
    """Run one command; return the exit status.

    A mistake of the user's is one message, not a traceback: errors of the kinds that mmlkit raises
    on purpose, and those of files and memory, are told by their message. An error of any other kind
    is a fault of mmlkit, and the message says so. MMLKIT_DEBUG=1 shows the traceback of both.
    """
    options = _parse(arguments)
    try:
        status = _COMMANDS[options.command](options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:      # the reader, such as head, has seen enough: write no more
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MMLKIT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"mmlkit {options.command}: {error_text(error)}", file=sys.stderr)
        return 1


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="mmlkit", description="Fine-tuning methods on BERT: notebooks, runs, predictions.")
    parser.add_argument("--version", action="version", version=f"mmlkit {__version__}")
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
    reproduce.add_argument("experiment", nargs="?",
                           help="a name in experiments/, such as mml-tables, or a .toml file; "
                                "none: a list")
    reproduce.add_argument("--profile", default="fast", help="fast, colab or paper (default: fast)")
    reproduce.add_argument("--grid", action="append", default=[], metavar="NAME=A,B", help="other values for a parameter of the grid")
    reproduce.add_argument("--seeds", type=_at_least(1), metavar="N",
                           help="short for --grid seed=0,1,...,N-1")
    reproduce.add_argument("--cores", type=_at_least(1), metavar="N",
                           help="runs at a time (default: one for each CPU core)")
    reproduce.add_argument("--out", help="where everything lands (default: runs/NAME-PROFILE)")
    reproduce.add_argument("--rerun-changed", action="store_true", help="make finished runs again whose sources or parameters changed")
    report = commands.add_parser("report", help="tables and figures of finished runs, as Markdown and HTML")
    report.add_argument("folders", nargs="*", default=["results"], help="folders with results (default: results)")
    report.add_argument("--out", help="where report.md and report.html go (default: the first folder's report/)")
    report.add_argument("--readme", action="store_true", help="write the results table into README.md too")
    bench = commands.add_parser("bench", help="how fast this machine trains and predicts, in tokens per second")
    bench.add_argument("--model", default="minilm", help="minilm, a hub id or a folder (default: minilm)")
    bench.add_argument("--steps", type=_at_least(1), default=12, metavar="N",
                       help="timed steps for each precision (default: 12)")
    predict = commands.add_parser("predict", help="labels and probabilities for texts")
    predict.add_argument("texts", nargs="*", help="texts; for a task on pairs, two after each other")
    predict.add_argument("--model", help="a folder of save_model, such as runs/first-model of "
                                         "notebook 00")
    predict.add_argument("--task", help="which of the model's tasks; needed when it has several")
    predict.add_argument("--file", help="a .csv, .tsv, .jsonl or .parquet file with the task's text columns")
    predict.add_argument("--out", help="write a .csv here instead of the screen")
    submit = commands.add_parser("submit", help="the CS224N project's prediction files: written, then checked")
    submit.add_argument("--model", help="a folder of save_model, such as runs/together of "
                                        "notebook 10")
    submit.add_argument("--source", required=True, help="the folder with the course's data, such as ids-sst-dev.csv")
    submit.add_argument("--out", default="predictions", help="where the files go (default: predictions)")
    submit.add_argument("--option", choices=("pretrain", "finetune"), help="the single-task part, sst and cfimdb, with this option in the names")
    options, options.more = parser.parse_known_args(arguments)
    if options.more and options.command != "reproduce":
        parser.error(f"unrecognized arguments: {' '.join(options.more)}")
    return options


def _at_least(least):
    """The type of an option that is a whole number."""
    def number(text):
        if not re.fullmatch(r"[+-]?\d{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)
    return number


def _machine(options):
    from mmlkit.cli import machine

    if options.command == "doctor":
        return machine.doctor()
    return machine.bench(options.model, options.steps)


def _run(options):
    from mmlkit.batch.notebooks import default_jobs, describe_run, find_notebooks, list_notebooks, parse_parameters, run_notebooks

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
    if options.experiment is None:
        return _list_experiments()
    from mmlkit.batch.batches import reproduce
    from mmlkit.batch.experiments import load_experiment, parse_grid
    from mmlkit.batch.reports import write_report

    grid = parse_grid([*options.grid, *([f"seed={','.join(map(str, range(options.seeds)))}"] if options.seeds else [])])
    experiment = load_experiment(options.experiment, options.profile, grid)
    folder = Path(options.out or f"runs/{experiment.name}-{experiment.profile}")
    again, cores = options.rerun_changed, options.cores or os.cpu_count()
    left = reproduce(experiment, folder, cores=cores, again=again, options=options.more)
    if len(left) < len(experiment.runs):
        print(f"The report: {write_report([folder], folder / 'report').resolve()}")
    return 1 if left else 0


def _list_experiments():
    import tomllib

    from mmlkit.batch.experiments import known_experiments

    for name, path in known_experiments().items():
        with contextlib.suppress(ValueError):       # what is not TOML is told when it is asked for
            title = tomllib.loads(path.read_text(encoding="utf-8")).get("title", "")
            print(f"{name:<20}{printable(str(title))}")
    print("Name one of them: mmlkit reproduce mml-tables. Add --profile colab or paper for the "
          "larger sizes.", file=sys.stderr)
    return 1


def _report(options):
    from mmlkit.batch.reports import write_readme, write_report

    print(f"The report: {write_report(options.folders, Path(options.out or Path(options.folders[0]) / 'report')).resolve()}")
    if options.readme:
        print(f"{write_readme(options.folders)} is up to date")
    return 0


def _predict(options):
    if bool(options.texts) == bool(options.file):
        raise ValueError("give either texts or --file.")
    model = _load(options, "00", "runs/first-model")
    from mmlkit.data.tasks import get_task
    from mmlkit.training.evaluation import answers

    if options.task is None and len(model.heads) > 1:
        raise ValueError(f"{options.model} has several tasks, {list(model.heads)}; say which with --task.")
    task = get_task(options.task or next(iter(model.heads)))
    model.head(task)        # says so when the model has no such head
    data = _read_texts(options, task)
    header, values = answers(model, data)
    rows = [[*texts, *row] for texts, row in zip(data.texts, values)]
    _write([*task.text_columns, *header], rows, options.out)
    return 0


def _load(options, notebook, example):
    """The model of --model, on the GPU where there is one; without it, a word before torch starts."""
    make = (f"Notebook {notebook} makes one: `mmlkit run {notebook}` writes {example}, "
            f"then add --model {example}.")
    if options.model is None:
        raise ValueError("no model was named: expected --model and a folder written by save_model. "
                         f"{make}")
    check_model_folder(options.model, make)
    from mmlkit.runtime import pick_device
    from mmlkit.training.model import load_model

    return load_model(options.model).to(pick_device())


def _read_texts(options, task):
    """The texts of the command line or of --file, as a Split."""
    from mmlkit.data.files import read_rows
    from mmlkit.data.loading import make_split

    columns, texts = task.text_columns, options.texts
    if options.file:
        place, rows = read_rows(options.file)
        labels = ("label", *task.aliases.get("label", ()))      # not needed here, whatever they are
        rows = [(number, {key: value for key, value in row.items() if key not in labels})
                for number, row in rows]
        return make_split(task, rows, place=place)
    if len(texts) % len(columns):
        raise ValueError(f"task {task.name!r} reads pairs {list(columns)}, but "
                         f"{count(len(texts), 'text')} came. Give an even number of texts.")
    rows = [(i, dict(zip(columns, texts[i:i + len(columns)])))
            for i in range(0, len(texts), len(columns))]
    return make_split(task, rows, place="the command line", name="texts")


def _submit(options):
    model = _load(options, "10", "runs/together")
    from mmlkit.studies.cs224n import check_submission, write_submission

    scores = write_submission(model, options.source, options.out, option=options.option)
    for name, score in scores.items():
        print(f"dev {name:<16}{score:.3f}")
    problems = check_submission(options.out, options.source, option=options.option)
    for problem in problems:
        print(printable(str(problem)), file=sys.stderr)
    if problems:
        print(f"{count(len(problems), 'problem')} in {options.out}")
        return 1
    print(f"All files are in {options.out}, with every id once.")
    return 0


def _write(header, rows, out):
    from mmlkit.runtime import replacing

    if out is None:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerows([[printable(cell) for cell in row] for row in (header, *rows)])
        return
    with replacing(out) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        cells = [[no_formula(cell) for cell in row] for row in (header, *rows)]
        csv.writer(file, lineterminator="\n").writerows(cells)
    print(f"{count(len(rows), 'row')} written to {out}")


_COMMANDS = {"doctor": _machine, "run": _run, "reproduce": _reproduce, "report": _report,
             "bench": _machine, "predict": _predict, "submit": _submit}
