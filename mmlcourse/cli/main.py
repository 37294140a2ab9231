"""The commands of the command line `mmlkit`.

Nothing heavy is imported before a command needs it, so `mmlkit --help` answers at once.
"""

import csv
import os
import sys
from pathlib import Path

from mmlcourse.cli.arguments import parse
from mmlcourse.cli.machine import bench, doctor
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
        it; 130 after Ctrl-C.
    """
    options = parse(arguments)
    try:
        status = _COMMANDS[options.command](options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        continues = options.command in ("reproduce", "grade")
        print(f"Interrupted.{' The same command continues.' * continues}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough: write no more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MMLKIT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"mmlkit {options.command}: {error_text(error)}", file=sys.stderr)
        return 2 if is_mistake(error) else 1


def _run(options):
    from mmlcourse.batch import notebooks

    if not options.notebooks:
        print(notebooks.list_notebooks())
        print("Run one: mmlkit run 00. Run all: mmlkit run all --profile fast.", file=sys.stderr)
        return 0
    found, out = notebooks.find_notebooks(options.notebooks), Path(options.out)
    assigned = notebooks.parse_assignments(options.parameter)
    parameters = {name: notebooks.parse_value(value) for name, value in assigned.items()}
    if options.profile is not None:
        parameters["profile"] = options.profile
    jobs = min(options.jobs or notebooks.default_jobs(), len(found))
    total = count(len(found), "notebook")
    if options.dry_run:
        for path, given in zip(found, notebooks.check_runs(found, out, parameters)):
            print(f"{path.stem}: {', '.join(f'{key}={value!r}' for key, value in given.items())}")
        print(f"{total} would run, {jobs} at a time, into {out.resolve()}")
        return 0
    found.sort(key=notebooks.stated_minutes, reverse=True)  # so that no core waits for a long one
    failed = notebooks.run_notebooks(
        found, out, parameters, jobs=jobs, stall=options.stall, limit=options.limit
    )
    if failed:
        names = ", ".join(path.stem for path in failed)
        print(f"{len(failed)} of {total} failed: {names}", file=sys.stderr)
        return 1
    print(f"{total} ran. Look into {out.resolve()}: open them with jupyter lab {options.out}")
    return 0


def _reproduce(options):
    from mmlcourse.batch.experiments import known_experiments, load_experiment, parse_grid
    from mmlcourse.batch.processes import without_iri_grammar

    without_iri_grammar()
    if options.experiment is None:
        for name in known_experiments():
            print(f"{name:<28}{printable(load_experiment(name).title)}")
        print("Name one of them: mmlkit reproduce mml-tables.", file=sys.stderr)
        return 2
    from mmlcourse.batch.batches import is_dry_run, reproduce
    from mmlcourse.batch.reports import write_report
    from mmlcourse.machine import usable_cores

    grid = parse_grid(options.grid)
    if options.seeds:
        grid["seed"] = list(range(options.seeds))
    experiment = load_experiment(options.experiment, options.profile, grid)
    folder = Path(options.out or f"runs/{experiment.name}-{experiment.profile}")
    again, cores = options.rerun_changed, options.cores or usable_cores()
    how = dict(cores=cores, again=again, verbose=options.verbose, options=options.more)
    left = reproduce(experiment, folder, **how)
    if len(left) < len(experiment.runs):
        whole = load_experiment(options.experiment, options.profile)  # a part is told as a part
        print(f"The report: {write_report([folder], folder / 'report', whole).resolve()}")
    return 1 if left and not is_dry_run(options.more) else 0


def _report(options):
    from mmlcourse.batch.processes import without_iri_grammar
    from mmlcourse.batch.reports import write_report
    from mmlcourse.batch.verdicts import write_evidence, write_readme

    without_iri_grammar()
    first = Path(options.folders[0])
    page = write_report(options.folders, options.out or first / "report")
    print(f"The report: {page.resolve()}")
    if options.readme:
        print(f"{write_evidence(options.folders, first / 'REPORT.md')} is up to date")
        print(f"{write_readme(options.folders)} is up to date")
    return 0


def _predict(options):
    if bool(options.texts) == bool(options.file):
        raise ValueError('expected either texts or --file, such as: "A quiet triumph."')
    out = options.out and Path(options.out)
    if options.file and out and out.exists() and out.samefile(options.file):
        raise ValueError(f"--out is {out}, whose other columns would be lost; name another file.")
    model = _load(options.model, "00")
    if options.task is None and len(model.heads) > 1:
        raise ValueError(f"the model has several tasks, {list(model.heads)}: name one with --task.")
    task = model.known_task(options.task or next(iter(model.heads)))
    from mmlkit.training.evaluation import predict_scores, probabilities

    ids, texts = _texts(options, task)
    scores, head = predict_scores(model, texts, task=task), model.head(task)
    if task.kind == "classification":
        header = ["label", *(f"p({name})" for name in task.labels)]
        shares = probabilities(scores, head)
        values = [[task.labels[row.argmax()], *(f"{p:.4f}" for p in row)] for row in shares]
    else:
        header, values = ["score"], [[f"{score:.4f}"] for score in scores[:, 0]]
    rows = [[*row, *value] for row, value in zip(texts, values)]
    header = [*task.text_columns, *header]
    if ids:
        header, rows = ["id", *header], [[str(one), *row] for one, row in zip(ids, rows)]
    _write(header, rows, options.out)
    return 0


def _texts(options, task):
    """Return the ids of --file where it has them, and its texts or those of the command line."""
    from mmlkit.data.files import read_rows
    from mmlkit.data.loading import IDS, make_split

    number = len(task.text_columns)
    if not options.file:
        if len(options.texts) % number:
            raise ValueError(f"{task.name!r} reads pairs, expected an even number of texts.")
        return [], list(zip(*(options.texts[start::number] for start in range(number))))
    rows = read_rows(options.file, task)
    split = make_split(task, rows, place=Path(options.file), labels=False)
    return split.ids if {*IDS} & {*map(str.lower, rows)} else [], split.texts


def _load(folder, notebook):
    """Return the model of a folder, on a GPU where there is one; check it before torch starts."""
    from mmlkit.files import check_model_folder

    check_model_folder(folder, f"`mmlkit run {notebook}` writes one into runs/.")
    from mmlkit.training.saving import load_model

    return load_model(folder)


def _submit(options):
    model = _load(options.model, "12")
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
    from mmlcourse.grading import course, grader, grades, reports, roster
    from mmlcourse.grading.sandbox import find_sandbox
    from mmlkit.files import write_file

    students = roster.read_roster(options.roster) if options.roster else None
    files, report = roster.find_submissions(options.folder, students)
    if options.gradescope and len(files) > 1:
        raise ValueError(f"--gradescope needs one notebook, {options.folder} has {len(files)}.")
    sandbox, answers = find_sandbox(), options.answers and Path(options.answers)
    print(f"Sandbox: {sandbox}")
    print(f"Edition: {answers or 'the public one; a course has its own, see --answers'}")
    results = grader.grade_files(
        files,
        options.assignment,
        options.out,
        edition=grader.load_edition(answers),
        jobs=options.jobs,
        sandbox=sandbox,
        tell=lambda text: print(printable(text), flush=True),
    )
    if options.gradescope:
        write_file(options.gradescope, reports.gradescope_results(results[0]))
    results = grader.stored_results(options.out)  # those of another folder too
    if students is not None:
        results = [one for one in results if one["student"] in {*students.login}]
    points, told = reports.write_reports(results, options.out)
    report += [(one["student"], "note", note) for one in results for note in one["notes"]]
    report += grades.compare_class(results, answers, options.assignment)
    if students is not None:
        file = answers and answers / "course.toml"
        rules = course.load_course(file) if file and file.is_file() else None
        report += grades.write_grades(points, students, options.assignment, rules, options.out)
    told += [f"{student or 'nobody'}: {kind}: {what}" for student, kind, what in report]
    print(printable("\n".join(told)))
    _write(["student", "kind", "what the grader saw"], report, Path(options.out) / "report.csv")
    reports.write_feedback(results, options.out)
    print(f"{count(len(files), 'notebook')}: {options.out}")
    return 0


def _leaderboard(options):
    from mmlcourse.grading import leaderboard

    rows = leaderboard.rank(options.folder, options.source, options.split)
    _write(leaderboard.HEADER, [[str(cell) for cell in row] for row in rows], None)
    if options.out:
        print(f"written: {leaderboard.write_board(rows, options.out)}")
    return 0


def _write(header, rows, out):
    """Print a table, or write it as a .csv, without what a terminal or spreadsheet executes."""
    from mmlkit.files import atomic_write

    rows = [header, *rows]
    if not out:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerows([[printable(cell) for cell in row] for row in rows])
        return
    with atomic_write(out) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([[no_formula(cell) for cell in row] for row in rows])
    print(f"{count(len(rows) - 1, 'row')} written to {out}")


_COMMANDS = {
    "doctor": doctor,
    "run": _run,
    "reproduce": _reproduce,
    "report": _report,
    "bench": bench,
    "predict": _predict,
    "submit": _submit,
    "grade": _grade,
    "leaderboard": _leaderboard,
}
