"""The options of every command of `mmlkit`, and the parser."""

import argparse
import math

from mmlkit import __version__

__all__ = ["parse"]


def parse(arguments):
    """Parse the command line.

    Args:
        arguments: a list of texts; None: those of the process.

    Returns:
        The options. `command` is the command, `more` what another program reads: Snakemake, or
        benchmarks/speed.py.
    """
    about = "Fine-tuning methods on BERT: notebooks, runs, predictions."
    parser = argparse.ArgumentParser(prog="mmlkit", description=about)
    parser.add_argument("--version", action="version", version=f"mmlkit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (about, arguments_of) in _ARGUMENTS.items():
        # benchmarks/speed.py has the options of bench, and its help
        command = commands.add_parser(name, help=about, add_help=name != "bench")
        for flags, text, *more in arguments_of:
            command.add_argument(*flags.split(), help=text, **dict(*more))
    commands.choices["reproduce"].epilog = _EPILOG
    options, options.more = parser.parse_known_args(arguments)
    if options.more and options.command not in ("reproduce", "bench"):
        parser.error(f"unrecognized arguments: {' '.join(options.more)}")
    return options


_EPILOG = "Other options go to Snakemake: --executor slurm --default-resources slurm_account=NAME"
_ANY = {"nargs": "*"}
_FLAG = {"action": "store_true"}
_COUNT = {"type": int, "metavar": "N"}
_MINUTES = {"type": float, "metavar": "MINUTES"}
_REQUIRED = {"required": True}
_MANY = {"action": "append", "default": []}

# {command: (help, [(option, help, arguments of add_argument)])}
_ARGUMENTS = {
    "doctor": ("what this machine has, and what will run on it", []),
    "run": (
        "run notebooks headless, through papermill; without a name, list them",
        [
            ("notebooks", "a number (02), a name, or all", _ANY),
            ("--dry-run", "say what would run, and run nothing", _FLAG),
            ("--profile", "fast, colab or paper (default: the notebook's own)"),
            (
                "-p --parameter",
                "set a parameter of the notebook; ./ ../ ~ or / begins a path from here",
                {**_MANY, "metavar": "NAME=VALUE"},
            ),
            ("--out", "folder for the executed notebooks (default: runs)", {"default": "runs"}),
            ("--jobs", "notebooks at a time (default: one for each CPU core; 1 on a GPU)", _COUNT),
            (
                "--stall",
                "stop a notebook after this time without progress: no CPU time used, no cell ended "
                "(default: 5). A cell that only waits needs more",
                {**_MINUTES, "default": 5},
            ),
            (
                "--limit",
                "stop a notebook after this time (default: never)",
                {**_MINUTES, "default": math.inf},
            ),
        ],
    ),
    "reproduce": (
        "execute all runs of an experiment, and continue where it stopped",
        [
            ("experiment", "a name in experiments/ or a .toml file; none: a list", {"nargs": "?"}),
            ("--profile", "fast, colab or paper (default: fast)", {"default": "fast"}),
            (
                "--grid",
                "other values for a parameter of the grid",
                {**_MANY, "metavar": "NAME=A,B"},
            ),
            ("--seeds", "short for --grid seed=0,1,...,N-1", _COUNT),
            ("--cores", "runs at a time (default: one for each CPU core)", _COUNT),
            ("--out", "folder for everything (default: runs/NAME-PROFILE)"),
            ("--rerun-changed", "repeat runs whose notebook or parameters changed", _FLAG),
            ("--verbose", "print Snakemake's messages", _FLAG),
        ],
    ),
    "report": (
        "tables and figures of finished runs, as Markdown and HTML",
        [
            ("folders", "default: results", {**_ANY, "default": ["results"]}),
            ("--out", "folder for the report (default: the first folder's report/)"),
            ("--readme", "write the guide's tables and REPORT.md of the first folder too", _FLAG),
        ],
    ),
    "bench": ("the speed of this machine, and of transformers beside it (needs a checkout)", []),
    "predict": (
        "labels and probabilities for texts",
        [
            ("texts", "texts; for a task on pairs, two after each other", _ANY),
            (
                "--model",
                "a folder of save_model, such as runs/first-model of notebook 00",
                _REQUIRED,
            ),
            ("--task", "which of the model's tasks; needed when it has several"),
            ("--file", "a .csv, .tsv, .jsonl or .parquet file with the task's texts"),
            ("--out", "write a .csv here; a cell that could be a formula gets a ' in front"),
        ],
    ),
    "submit": (
        "the CS224N project's prediction files: written, then checked",
        [
            (
                "--model",
                "a folder of save_model, such as runs/together of notebook 12",
                _REQUIRED,
            ),
            ("--source", "the folder with the course's data, or mini", _REQUIRED),
            ("--out", "folder for the files", {"default": "predictions"}),
            (
                "--option",
                "the single-task part, sst and cfimdb, with this option in the names",
                {"choices": ("pretrain", "finetune", "last-linear-layer", "full-model")},
            ),
        ],
    ),
    "grade": (
        "grade a folder of assignments, and continue where it stopped",
        [
            ("folder", "an unpacked export of Canvas or Moodle, or notebooks named after students"),
            ("--assignment", "such as a1", _REQUIRED),
            (
                "--roster",
                "a .csv file with login, name, email, id; without it there is no grades.csv",
            ),
            ("--answers", "the edition's folder of answers (default: the public edition)"),
            ("--out", "folder for the results (default: grading)", {"default": "grading"}),
            ("--jobs", "notebooks at a time (default: 2)", {**_COUNT, "default": 2}),
            ("--gradescope", "write Gradescope's results.json of the only notebook here"),
        ],
    ),
    "leaderboard": (
        "a table of prediction files, one folder per team",
        [
            ("folder", "a folder with one per team; their files are in it, or in predictions/"),
            ("--source", "mini, or the folder with the labelled files", _REQUIRED),
            ("--split", "default: dev", {"choices": ("dev", "test"), "default": "dev"}),
            ("--out", "write the table as .csv and .html with this name, such as board"),
        ],
    ),
}
