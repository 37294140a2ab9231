"""The parser and the commands of the command line `mmlkit`.

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
    """Run one command.

    A mistake of the user gives one message, not a traceback. Any other error is a fault of mmlkit,
    and the message says so. MMLKIT_DEBUG=1 shows the traceback of both.

    Args:
        arguments: a list of texts; None: those of the command line.

    Returns:
        The exit status.
    """
    options = _parse(arguments)
    try:
        status = _COMMANDS[options.command](options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough: write no more
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MMLKIT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"mmlkit {options.command}: {error_text(error)}", file=sys.stderr)
        return 1


def _parse(arguments):
    about = "Fine-tuning methods on BERT: notebooks, runs, predictions."
    parser = argparse.ArgumentParser(prog="mmlkit", description=about)
    parser.add_argument("--version", action="version", version=f"mmlkit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (about, arguments_of) in _ARGUMENTS.items():
        command = commands.add_parser(name, help=about)
        for flags, more in arguments_of:
            command.add_argument(*flags.split(), **more)
    commands.choices["reproduce"].epilog = _EPILOG
    options, options.more = parser.parse_known_args(arguments)
    if options.more and options.command != "reproduce":
        parser.error(f"unrecognized arguments: {' '.join(options.more)}")
    return options


def _whole_number(text):
    if not re.fullmatch(r"[+-]?\d{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _number(text):
    with contextlib.suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def _minutes(text, **more):
    return {"type": _number, "metavar": "MINUTES", "help": text, **more}


def _count(text, **more):
    return {"type": _whole_number, "metavar": "N", "help": text, **more}


def _many(metavar, text):
    return {"action": "append", "default": [], "metavar": metavar, "help": text}


def _flag(text):
    return {"action": "store_true", "help": text}


def _text(text, **more):
    return {"help": text, **more}


_EPILOG = "Other options go to Snakemake: --executor slurm --default-resources slurm_account=NAME"

# {command: (help, [(option, arguments of add_argument)])}
_ARGUMENTS = {
    "doctor": ("what this machine has, and what will run on it", []),
    "run": (
        "run notebooks headless, through papermill; without a name, list them",
        [
            ("notebooks", _text("a number (02), a name, or all", nargs="*")),
            (
                "--list",
                _flag("list the notebooks with their parameters"),
            ),
            ("--dry-run", _flag("say what would run, and run nothing")),
            ("--profile", _text("fast, colab or paper (default: the notebook's own)")),
            (
                "-p --parameter",
                _many(
                    "NAME=VALUE",
                    "set a parameter of the notebook. A value is a path from the current folder "
                    "when it starts with ./ ../ ~ or /, when it contains / and exists, or for "
                    "output_dir; any other value is passed on unchanged",
                ),
            ),
            (
                "--out",
                _text("folder for the executed notebooks (default: runs)", default="runs"),
            ),
            (
                "--jobs",
                _count("notebooks at a time (default: one for each CPU core; 1 on a GPU)"),
            ),
            (
                "--stall",
                _minutes(
                    "stop a notebook after this time without progress: no CPU time used, no cell "
                    "ended (default: 5). A cell that only waits needs more",
                    default=5,
                ),
            ),
            ("--limit", _minutes("stop a notebook after this time (default: never)")),
        ],
    ),
    "reproduce": (
        "execute all runs of an experiment, and continue where it stopped",
        [
            (
                "experiment",
                _text("a name in experiments/ or a .toml file; none: a list", nargs="?"),
            ),
            ("--profile", _text("fast, colab or paper (default: fast)", default="fast")),
            ("--grid", _many("NAME=A,B", "other values for a parameter of the grid")),
            ("--seeds", _count("short for --grid seed=0,1,...,N-1")),
            ("--cores", _count("runs at a time (default: one for each CPU core)")),
            ("--out", _text("folder for everything (default: runs/NAME-PROFILE)")),
            (
                "--rerun-changed",
                _flag("repeat runs whose notebook or parameters changed"),
            ),
        ],
    ),
    "report": (
        "tables and figures of finished runs, as Markdown and HTML",
        [
            ("folders", {"nargs": "*", "default": ["results"], "help": "default: results"}),
            ("--out", _text("folder for the report (default: the first folder's report/)")),
            ("--readme", _flag("write the table into README.md too")),
        ],
    ),
    "bench": (
        "how fast this machine trains, in tokens per second",
        [
            ("--model", _text("minilm, a hub id or a folder", default="minilm")),
            ("--steps", _count("timed steps for each precision (default: 12)", default=12)),
        ],
    ),
    "predict": (
        "labels and probabilities for texts",
        [
            ("texts", _text("texts; for a task on pairs, two after each other", nargs="*")),
            (
                "--model",
                _text("a folder of save_model, such as runs/first-model of notebook 00"),
            ),
            ("--task", _text("which of the model's tasks; needed when it has several")),
            ("--file", _text("a .csv, .tsv, .jsonl or .parquet file with the task's texts")),
            ("--out", _text("write a .csv here instead of the screen")),
        ],
    ),
    "submit": (
        "the CS224N project's prediction files: written, then checked",
        [
            ("--model", _text("a folder of save_model, such as runs/together of notebook 10")),
            ("--source", {"required": True, "help": "the folder with the course's data"}),
            ("--out", _text("folder for the files", default="predictions")),
            (
                "--option",
                {
                    "choices": ("pretrain", "finetune"),
                    "help": "the single-task part, sst and cfimdb, with this option in the names",
                },
            ),
        ],
    ),
}


def _machine(options):
    from mmlkit.cli import machine

    if options.command == "doctor":
        return machine.doctor()
    return machine.bench(options.model, options.steps)


def _run(options):
    from mmlkit.batch import notebooks

    if options.list or not options.notebooks:
        print(notebooks.list_notebooks())
        return 0
    parameters = notebooks.parse_parameters(options.parameter)
    if options.profile is not None:
        from mmlkit.profiles import get_profile

        parameters["profile"] = get_profile(options.profile).name
    found, out = notebooks.find_notebooks(options.notebooks), Path(options.out)
    jobs = min(options.jobs or (notebooks.default_jobs() if len(found) > 1 else 1), len(found))
    if options.dry_run:
        print(notebooks.describe_run(found, out, parameters, jobs))
        return 0
    failed = notebooks.run_notebooks(
        found, out, parameters, jobs=jobs, stall=options.stall, limit=options.limit
    )
    total = count(len(found), "notebook")
    if failed:
        names = ", ".join(path.stem for path in failed)
        print(f"{len(failed)} of {total} failed: {names}", file=sys.stderr)
        return 1
    print(f"{total} ran. Look into {out.resolve()}: open them with jupyter lab {options.out}")
    return 0


def _reproduce(options):
    if options.experiment is None:
        return _list_experiments()
    from mmlkit.batch.batches import reproduce
    from mmlkit.batch.experiments import load_experiment, parse_grid
    from mmlkit.batch.reports import write_report

    grid = parse_grid(options.grid)
    if options.seeds:
        grid["seed"] = list(range(options.seeds))
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
        with contextlib.suppress(ValueError):  # load_experiment names the mistake
            title = tomllib.loads(path.read_text(encoding="utf-8")).get("title", "")
            print(f"{name:<20}{printable(str(title))}")
    print(
        "Name one of them: mmlkit reproduce mml-tables. Add --profile colab or paper for the "
        "larger sizes.",
        file=sys.stderr,
    )
    return 1


def _report(options):
    from mmlkit.batch.reports import write_readme, write_report

    out = options.out or Path(options.folders[0], "report")
    print(f"The report: {write_report(options.folders, out).resolve()}")
    if options.readme:
        print(f"{write_readme(options.folders)} is up to date")
    return 0


def _predict(options):
    if bool(options.texts) == bool(options.file):
        raise ValueError("give either texts or --file.")
    model = _load(options, "00", "runs/first-model")
    from mmlkit.data.tasks import get_task
    from mmlkit.training.evaluation import prediction_table

    if options.task is None and len(model.heads) > 1:
        raise ValueError(
            f"{options.model} has several tasks, {list(model.heads)}; say which with --task."
        )
    task = get_task(options.task or next(iter(model.heads)))
    model.head(task)  # says so when the model has no such head
    data = _read_texts(options, task)
    header, values = prediction_table(model, data)
    rows = [[*texts, *row] for texts, row in zip(data.texts, values)]
    _write([*task.text_columns, *header], rows, options.out)
    return 0


def _load(options, notebook, example):
    """Return the model of --model, on a GPU where there is one.

    The folder is checked before torch starts.
    """
    make = (
        f"Notebook {notebook} makes one: `mmlkit run {notebook}` writes {example}, "
        f"then add --model {example}."
    )
    if options.model is None:
        raise ValueError(
            f"no model was named: expected --model and a folder written by save_model. {make}"
        )
    check_model_folder(options.model, make)
    from mmlkit.training.saving import load_model

    return load_model(options.model)


def _read_texts(options, task):
    """Return the texts of the command line or of --file, as a Split."""
    from mmlkit.data.files import read_rows
    from mmlkit.data.loading import make_split

    columns, texts = task.text_columns, options.texts
    if options.file:
        place, rows = read_rows(options.file)
        labels = ("label", *task.aliases.get("label", ()))  # not needed here, whatever they are
        rows = [
            (number, {key: value for key, value in row.items() if key not in labels})
            for number, row in rows
        ]
        return make_split(task, rows, place=place)
    if len(texts) % len(columns):
        raise ValueError(
            f"task {task.name!r} reads pairs {list(columns)}, but "
            f"{count(len(texts), 'text')} came. Give an even number of texts."
        )
    rows = [
        (i, dict(zip(columns, texts[i : i + len(columns)])))
        for i in range(0, len(texts), len(columns))
    ]
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
    from mmlkit.runtime import atomic_write

    if out is None:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerows([[printable(cell) for cell in row] for row in (header, *rows)])
        return
    with atomic_write(out) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        cells = [[no_formula(cell) for cell in row] for row in (header, *rows)]
        csv.writer(file, lineterminator="\n").writerows(cells)
    print(f"{count(len(rows), 'row')} written to {out}")


_COMMANDS = {
    "doctor": _machine,
    "run": _run,
    "reproduce": _reproduce,
    "report": _report,
    "bench": _machine,
    "predict": _predict,
    "submit": _submit,
}
