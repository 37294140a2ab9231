"""The commands of the command line `mmlkit`.

Nothing heavy is imported before a command needs it, so `mmlkit --help` answers at once.
"""

import contextlib
import csv
import os
import signal
import sys
import threading
from pathlib import Path

from mmlcourse.cli.arguments import parse
from mmlcourse.text import count, error_text, is_mistake, no_formula, printable

__all__ = ["main"]


def main(arguments=None):
    """Run one command.

    A mistake of the user gives one message, not a traceback. Any other error is a fault of mmlkit,
    and the message says so. MMLKIT_DEBUG=1 shows the traceback of both.

    Args:
        arguments: a list of texts; None: those of the command line.

    Returns:
        The exit status: 0; 1 where the work failed; 2 for a mistake of the user, as argparse has
        it; 128 and the number of the signal that ended it.
    """
    if sys.stdout is None:  # the shell has closed it: mmlkit report >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until the end)
    options, ended = parse(arguments), []
    try:
        with _ended_as_by_ctrl_c(ended):
            status = _COMMANDS[options.command](options)
            sys.stdout.flush()
            return status
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 128 + (ended or [signal.SIGINT])[0]
    except BrokenPipeError:  # the reader, such as head, has seen enough: write no more
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MMLKIT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"mmlkit {options.command}: {error_text(error)}", file=sys.stderr)
        return 2 if is_mistake(error) else 1


@contextlib.contextmanager
def _ended_as_by_ctrl_c(ended):
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, so that a batch puts its folder in order.

    They come from schedulers, `timeout` and closed terminals. One that the caller ignores, as
    nohup does, stays ignored.

    Args:
        ended: a list, to which the signal that came is added.

    Yields:
        Nothing.
    """
    before = {}

    def end(number, frame):
        if not ended:  # once: what puts the folder in order must not be interrupted
            ended.append(number)
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for name in {"SIGTERM", "SIGHUP"} & {*dir(signal)}:
            number = getattr(signal, name)
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _machine(options):
    from mmlcourse.cli import machine

    if options.command == "doctor":
        return machine.doctor()
    return machine.bench(options.more)


def _run(options):
    from mmlcourse.batch import notebooks

    if options.list or not options.notebooks:
        print(notebooks.list_notebooks())
        print("Run one: mmlkit run 00. Run all: mmlkit run all --profile fast.", file=sys.stderr)
        return 0
    parameters = notebooks.parse_parameters(options.parameter)
    if options.profile is not None:
        from mmlcourse.lessons.profiles import get_profile

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
    from mmlcourse.batch.batches import is_dry_run, reproduce
    from mmlcourse.batch.experiments import load_experiment, parse_grid
    from mmlcourse.batch.notebooks import usable_cores
    from mmlcourse.batch.processes import without_iri_grammar
    from mmlcourse.batch.reports import write_report

    without_iri_grammar()
    grid = parse_grid(options.grid)
    if options.seeds and "seed" in grid:
        raise ValueError("found --seeds and --grid seed=...; expected one of them.")
    if options.seeds:
        grid["seed"] = list(range(options.seeds))
    experiment = load_experiment(options.experiment, options.profile, grid)
    folder = Path(options.out or f"runs/{experiment.name}-{experiment.profile}")
    again, cores = options.rerun_changed, options.cores or usable_cores()
    left = reproduce(experiment, folder, cores=cores, again=again, options=options.more)
    if len(left) < len(experiment.runs):
        page = write_report([folder], folder / "report", experiment)
        print(f"The report: {page.resolve()}")
    return 1 if left and not is_dry_run(options.more) else 0


def _list_experiments():
    import tomllib

    from mmlcourse.batch.experiments import known_experiments

    known = known_experiments()
    width = max(map(len, known), default=0) + 2
    for name, path in known.items():
        with contextlib.suppress(ValueError):  # load_experiment names the mistake
            title = tomllib.loads(path.read_text(encoding="utf-8")).get("title", "")
            print(f"{name:<{width}}{printable(str(title))}")
    print(
        "Name one of them: mmlkit reproduce mml-tables. Add --profile colab or paper for the "
        "larger sizes.",
        file=sys.stderr,
    )
    return 2


def _report(options):
    from mmlcourse.batch.evidence import write_evidence, write_readme
    from mmlcourse.batch.processes import without_iri_grammar
    from mmlcourse.batch.reports import write_report

    without_iri_grammar()
    out = options.out or Path(options.folders[0], "report")
    print(f"The report: {write_report(options.folders, out).resolve()}")
    if options.readme:
        print(f"{write_evidence(options.folders, options.folders[0])} is up to date")
        print(f"{write_readme(options.folders)} is up to date")
    return 0


def _predict(options):
    if bool(options.texts) == bool(options.file):
        found = "both were given" if options.texts else "nothing was given"
        raise ValueError(
            f"expected either texts or --file, {found}. For example: "
            f'mmlkit predict --model {options.model or "runs/first-model"} "A quiet triumph."'
        )
    _check_out(options.file, options.out)
    model = _load(options, "00", "runs/first-model")
    if options.task is None and len(model.heads) > 1:
        raise ValueError(
            f"{options.model} has several tasks, {list(model.heads)}; say which with --task."
        )
    name = options.task or next(iter(model.heads))
    try:
        task = model.known_task(name)
    except ValueError as error:
        if name not in model.heads:
            raise
        raise ValueError(
            f"{name!r} is a task of your own, and the model's folder has neither its columns nor "
            "its label names. Predict in Python, with predict_proba(load_model(folder), texts, "
            "task=task). Or call model.set_task(task) and save the model again."
        ) from error
    model.head(task)  # says so when the model has no such head
    data = _read_texts(options, task)
    header, values = _prediction_table(model, data)
    rows = [[*texts, *row] for texts, row in zip(data.texts, values)]
    _write([*task.text_columns, *header], rows, options.out)
    return 0


def _prediction_table(model, split):
    """Return (names of columns, rows of cells): a label and probabilities, or a score."""
    from mmlkit.training import predict_scores, probabilities

    task, scores = split.task, predict_scores(model, split)
    if task.kind != "classification":
        return ["score"], [[f"{score:.4f}"] for score in scores[:, 0]]
    shares = probabilities(scores, model.head(task))
    rows = [[task.labels[row.argmax()], *[f"{p:.4f}" for p in row]] for row in shares]
    return ["label", *[f"p({name})" for name in task.labels]], rows


def _check_out(file, out):
    """Refuse to write predictions over the texts, or under the name of another kind of file."""
    if out is None:
        return
    if (ending := Path(out).suffix) in (".tsv", ".json", ".jsonl", ".parquet", ".xlsx"):
        raise ValueError(f"--out ends in {ending}, expected a name that ends in .csv.")
    if file and Path(out).exists() and Path(out).samefile(file):
        raise ValueError(
            f"--out is the file of the texts, {file}, whose other columns would be lost; name "
            "another file."
        )


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
    from mmlkit.files import check_model_folder

    check_model_folder(options.model, make)
    from mmlkit.training.saving import load_model

    return load_model(options.model)


def _read_texts(options, task):
    """Return the texts of the command line or of --file, as a Split."""
    from mmlkit.data.files import read_rows
    from mmlkit.data.loading import make_split

    columns, texts = task.text_columns, options.texts
    if options.file:
        rows = read_rows(options.file)
        rows = rows.drop(columns=[name for name in task.names("label") if name in rows])
        return make_split(task, rows, place=options.file)
    if len(texts) % len(columns):
        raise ValueError(
            f"task {task.name!r} reads pairs {list(columns)}, but "
            f"{count(len(texts), 'text')} came. Give an even number of texts."
        )
    rows = [
        dict(zip(columns, texts[i : i + len(columns)])) for i in range(0, len(texts), len(columns))
    ]
    return make_split(task, rows, place="the command line", name="texts")


def _submit(options):
    model = _load(options, "12", "runs/together")
    from mmlcourse.studies.cs224n import check_submission, write_submission

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


def _grade(options):
    from mmlcourse.grading import reports, submissions
    from mmlcourse.grading.sandbox import find_sandbox
    from mmlkit.files import write_file

    submissions.check_folder(options.folder, options.assignment, only=bool(options.gradescope))
    sandbox = find_sandbox()
    print(f"Sandbox: {sandbox}")
    print(f"Edition: {options.answers or 'the public one; a course has its own, see --answers'}")
    results = submissions.grade_folder(
        options.folder,
        options.assignment,
        options.out,
        edition=submissions.load_edition(options.answers),
        jobs=options.jobs,
        sandbox=sandbox,
        tell=lambda text: print(printable(text), flush=True),
    )
    print(f"{count(len(results), 'notebook')}: {reports.write_reports(results, options.out)}")
    if options.gradescope:
        write_file(options.gradescope, reports.gradescope_results(results[0]))
    return 0


def _leaderboard(options):
    from mmlcourse.grading import leaderboard

    rows = leaderboard.rank(options.folder, options.source, options.split)
    _write(leaderboard.HEADER, [[str(cell) for cell in row] for row in rows], None)
    if options.out:
        print(f"written: {leaderboard.write_board(rows, options.out)}")
    return 0


def _write(header, rows, out):
    from mmlkit.files import atomic_write

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
    "grade": _grade,
    "leaderboard": _leaderboard,
}
