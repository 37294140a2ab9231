"""The options of every command of `mmlkit`, and the parser."""

import argparse
import contextlib
import difflib
import math
import os
import re
import sys
from pathlib import Path

from mmlkit import __version__

__all__ = ["parse"]


def parse(arguments):
    """Parse the command line.

    Args:
        arguments: a list of texts; None: those of the process.

    Returns:
        The options. `command` is the command, `more` what another program reads.

    Raises:
        SystemExit: the arguments are help, the version, or a mistake. The message names a command.
    """
    words = sys.argv[1:] if arguments is None else [*arguments]
    about = "Fine-tuning methods on BERT: notebooks, runs, predictions."
    parser = argparse.ArgumentParser(prog="mmlkit", description=about)
    parser.add_argument("--version", action="version", version=f"mmlkit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (about, arguments_of) in _ARGUMENTS.items():
        # benchmarks/speed.py has the options of bench, and its help
        command = commands.add_parser(name, help=about, add_help=name != "bench")
        for flags, more in arguments_of:
            command.add_argument(*flags.split(), **more)
    commands.choices["reproduce"].epilog = _EPILOG
    if not words:
        parser.print_help()
        parser.exit(2, _FIRST)
    if not words[0].startswith("-") and words[0] not in commands.choices:
        parser.error(_other_command(words[0], commands.choices))
    options, options.more = parser.parse_known_args(words)
    if options.command == "bench":
        return options
    if options.more and options.command != "reproduce":
        parser.error(f"unrecognized arguments: {' '.join(options.more)}")
    # The rest goes to Snakemake. After an option that takes no value there, a word has no meaning.
    for before, word in zip(["", *options.more], options.more):
        if not word.startswith("-") and before in ("", "-p", "--parameter", "--keep-going"):
            parser.error(
                f"found {word!r}, expected one experiment; --grid NAME=A,B sets a parameter of it"
            )
    for name, value in vars(options).items():  # an empty variable of the shell, for example
        if name != "texts" and "" in (value if isinstance(value, list) else [value]):
            parser.error(f"argument {name}: found '', expected a value; leave it out or name one")
    for name in vars(options).keys() & _PATHS:  # no shell expands the ~ of --out=~/runs
        value = getattr(options, name)
        if value is not None:
            many = isinstance(value, list)
            paths = [os.path.expanduser(one) for one in (value if many else [value])]
            setattr(options, name, paths if many else paths[0])
    return options


_PATHS = {"out", "folder", "folders", "file", "answers", "gradescope", "model", "source"}


_FIRST = (
    "\nStart with `mmlkit doctor`, then `mmlkit run 00`, or read with `jupyter lab notebooks`.\n"
)
_INSTEAD = {
    "check": "mmlkit doctor",
    "help": "mmlkit --help",
    "install": "make install",
    "jupyter": "jupyter lab notebooks",
    "lab": "jupyter lab notebooks",
    "list": "mmlkit run",
    "notebook": "mmlkit run",
    "notebooks": "mmlkit run",
    "start": "mmlkit run 00",
    "test": "make test",
    "train": "mmlkit run 02",
    "version": "mmlkit --version",
    "walkthrough": "mmlkit run all --profile fast",
}


def _other_command(word, known):
    """Return what to type for a word that is no command."""
    near = difflib.get_close_matches(word, known, n=1)
    instead = f"mmlkit {near[0]}" if near else _INSTEAD.get(word.lower())
    if re.fullmatch(r"\d\d?(_\w+)?(\.ipynb)?", word):
        instead = f"mmlkit run {word}"
    hint = f" Did you mean `{instead}`?" if instead else " `mmlkit --help` says what each one does."
    return f"{word!r} is not a command.{hint} Commands: {', '.join(known)}."


def _whole_number(text):
    if not re.fullmatch(r"[+-]?\d{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _number(text):
    with contextlib.suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def _source(text):
    if text != "mini" and not Path(text).expanduser().is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a folder nor the word mini")
    return text


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
            (
                "--limit",
                _minutes("stop a notebook after this time (default: never)", default=math.inf),
            ),
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
            ("--readme", _flag("write README.md's tables and REPORT.md of the first folder too")),
        ],
    ),
    "bench": ("the speed of this machine, and of transformers beside it (needs a checkout)", []),
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
            (
                "--out",
                _text("write a .csv here; a cell that could be a formula gets a ' in front"),
            ),
        ],
    ),
    "submit": (
        "the CS224N project's prediction files: written, then checked",
        [
            ("--model", _text("a folder of save_model, such as runs/together of notebook 12")),
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
    "grade": (
        "grade a folder of assignments, and continue where it stopped",
        [
            ("folder", _text("a folder of .ipynb files, one per student; the file has the name")),
            ("--assignment", {"required": True, "help": "such as a1"}),
            ("--answers", _text("the edition's folder of answers (default: the public edition)")),
            (
                "--out",
                _text("folder for the results (default: grading)", default="grading"),
            ),
            ("--jobs", _count("notebooks at a time (default: 2)", default=2)),
            ("--gradescope", _text("write Gradescope's results.json of the only notebook here")),
        ],
    ),
    "leaderboard": (
        "a table of prediction files, one folder per team",
        [
            ("folder", _text("a folder with one folder of prediction files per team")),
            ("--source", {"required": True, "help": "mini, or the folder with the labelled files"}),
            ("--split", {"choices": ("dev", "test"), "default": "dev", "help": "default: dev"}),
            ("--out", _text("write the table as .csv and .html with this name, such as board")),
        ],
    ),
}
