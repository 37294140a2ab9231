"""Reports on finished runs: `mmlkit report`, and with --readme README.md and results/REPORT.md.

The report has a table, a figure, and a sentence on each claim for every experiment, as Markdown and
as HTML. REPORT.md has a verdict on every claim, their figure, advice, and a paragraph for each
experiment. Names and texts in results are escaped: they may come from somebody else.
"""

import base64
import html
import io
import json
import math
import re
import statistics
from pathlib import Path

from mmlcourse.batch.experiments import file_name
from mmlcourse.batch.overviews import advice, claim_rows, runs_table
from mmlcourse.batch.results import (
    changed_since,
    experiments_in,
    finite,
    newest,
    without_runs,
)
from mmlcourse.batch.scores import CELL, best_values, comparison, headline, incomplete, select
from mmlcourse.studies.comparisons import has_interval, outcome
from mmlcourse.text import count, markdown_table, markdown_text, signed, signed_interval
from mmlkit.files import write_file

__all__ = ["fill_marks", "rounded", "write_evidence", "write_readme", "write_report"]

_NUMBERS = ["published", "recomputed", "ours", "sd"]
_FACTS = ("device", "hardware", "torch", "mmlkit")


# ---- mmlkit report ----


def write_report(folders, out, experiment=None):
    """Write report.md, report.html and their figures.

    Args:
        folders: a list of folders with results.
        out: the folder to write into.
        experiment: an Experiment that is not one of the repository's, see `experiments_in`.

    Returns:
        The path of report.html.
    """
    out, blocks = Path(out), [_text("h1", "The results of all runs")]
    for number, one in enumerate(experiments_in(folders, experiment)):
        plan, frame = one.experiment, one.frame
        blocks += [_text("h2", f"{plan.title} ({one.size})"), _text("p", _facts(one.results))]
        blocks += [_text("p", _NOTE), *(_text("p", said) for said in changed_since(one))]
        if one.claims:
            said = [one.sentence(*pair) for pair in one.claims]
            blocks += [_text("h3", "Claims of the paper, on these runs"), _list(said)]
        if len(frame):
            cells = comparison(plan, frame)
            table = rounded(cells)
            blocks += [_text("h3", "All cells")]
            blocks += [(markdown_table(table), table.to_html(index=False, na_rep="", border=0))]
        if "dev" in set(frame["split"]):
            image, alt = _figure(cells)
            data = (f"-mini{one.edition}" if one.edition else "") + f"-{number}" * bool(one.given)
            file = file_name(f"{plan.name}-{plan.profile}{data}-dev.png")
            write_file(out / file, image)
            source = f"data:image/png;base64,{base64.b64encode(image).decode()}"
            shown = f'<img alt="{html.escape(alt)}" src="{source}">'
            blocks.append((f"![{markdown_text(alt)}]({file})", shown))
    failed = [path for folder in folders for path in sorted(Path(folder).rglob("failed/*.json"))]
    if failed:
        told = [json.loads(path.read_text(encoding="utf-8")) for path in failed]
        blocks += [_text("h2", "Failed runs")]
        blocks += [_list([f"{one['name']}: {one['cause']}" for one in told])]
    markdown, pages = zip(*blocks)
    write_file(out / "report.md", "\n\n".join(markdown) + "\n")
    write_file(out / "report.html", "\n".join([_HEAD, *pages]) + "\n")
    return out / "report.html"


def _text(tag, text):
    """Return a heading or a paragraph as Markdown and as HTML."""
    marks = {"h1": "# ", "h2": "## ", "h3": "### ", "p": ""}
    return f"{marks[tag]}{markdown_text(text)}", f"<{tag}>{html.escape(text)}</{tag}>"


def _list(lines):
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return _items(lines), f"<ul>{items}</ul>"


def _items(lines):
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def _facts(results):
    minutes, memory = finite(results, "minutes"), finite(results, "peak_memory_mb")
    kinds, commits = set(), {str(result.get("commit", "missing")) for result in results}
    for result in results:
        found = {**result["versions"], **result}
        device, hardware, torch, own = (found.get(key, "missing") for key in _FACTS)
        kinds.add(f"{device} ({hardware}), torch {torch}, mmlkit {own}")
    return (
        f"{count(len(results), 'run')}, {sum(minutes) / 60:.1f} hours of computing, at most "
        f"{max(memory, default='missing')} MB each, on {'; '.join(sorted(kinds))}; "
        f"commit {', '.join(sorted(commits))}."
    )


def _figure(table):
    """Return the bytes of a PNG and its description."""
    import matplotlib
    from matplotlib import pyplot as plt

    from mmlcourse.lessons.plots import basics as plots

    dev = table[table["split"] == "dev"]
    metric = "improvement" if "improvement" in set(dev["metric"]) else dev["metric"].iloc[0]
    part = dev[dev["metric"] == metric]
    keys = [key for key in table if key not in (*CELL, *_NUMBERS, "seeds")]
    image = io.BytesIO()
    with matplotlib.rc_context({"text.parse_math": False}):  # a name may hold $ or \\
        ax = plots.spread(
            part["ours"],
            part["sd"],
            [" ".join(map(str, row)) for row in part[keys].to_numpy()],
            part["on"],
            published=part["recomputed"].fillna(part["published"]),
            xlabel=f"dev {metric}{', %' if metric == 'improvement' else ''}",
        )
        ax.figure.savefig(image, format="png")
    plt.close(ax.figure)
    return image.getvalue(), (
        f"dev {metric} of every run, mean over seeds with its standard deviation, and the "
        "published number as a cross; the table has the numbers"
    )


def rounded(table):
    """Return a table of `comparison` or `headline` with texts for numbers.

    Args:
        table: the DataFrame.

    Returns:
        A DataFrame with two or three decimals, and without `recomputed` where it is empty.
    """
    places = 2 if table["ours"].abs().max() > 1.5 else 3
    texts = table[_NUMBERS].map(lambda one: f"{one:.{places}f}" if math.isfinite(one) else "")
    table = table.assign(**texts)
    return table if any(table["recomputed"]) else table.drop(columns="recomputed")


_NOTE = (
    "Published numbers come from other models and data unless the size is paper, so compare the "
    "rows of a column, not the columns. Recomputed is the correct value of a printed number, where "
    "other printed numbers give it. sd is over seeds."
)
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mmlkit: results</title>
<style>body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto}img{max-width:100%}
th,td{padding:.15rem .7rem;text-align:left;border-bottom:1px solid #ddd}</style>"""


# ---- mmlkit report --readme ----


_VERDICTS = "## Verdicts"


def write_evidence(folders, report):
    """Write the part of a REPORT.md that follows from results, and verdicts.svg beside it.

    Args:
        folders: a list of folders with results.
        report: the file. Its text before "## Verdicts" stays.

    Returns:
        The path of the file.
    """
    recorded, path = experiments_in(folders), Path(report)
    blocks = [
        *(_VERDICTS, "### Primary claims", _primary(recorded), *_other_verdicts(recorded)),
        "![A line for each claim, with its difference and interval](verdicts.svg)",
        *("## Advice", _items(advice(recorded)), "## Experiments", *_experiments(recorded)),
        *("## Runs", markdown_table(runs_table(recorded).reset_index())),
    ]
    if rows := claim_rows(recorded):
        write_file(path.with_name("verdicts.svg"), _forest(rows))
    head = path.read_text(encoding="utf-8").split(_VERDICTS)[0]
    write_file(path, f"{head}{_joined(blocks)}\n")
    return path


def write_readme(folders, readme="README.md"):
    """Write the tables of a README, see `fill_marks`.

    There are three: the verdicts on primary claims (claims), the advice (advice), and every
    experiment (report). Claims and advice leave out earlier editions of the mini data.

    Args:
        folders: a list of folders with results.
        readme: the file.

    Returns:
        The path of the file.
    """
    recorded = experiments_in(folders)
    parts = {
        "claims": [_primary(recorded)],
        "advice": [_items(advice(recorded))],
        "report": _experiments(recorded),
    }
    return fill_marks(readme, parts)


def fill_marks(readme, parts):
    """Write parts of a Markdown file, each between two marks on lines of their own.

    The marks of a part "claims" are <!-- claims --> and <!-- /claims -->. A part without marks is
    left out.

    Args:
        readme: the file.
        parts: {name: list of paragraphs}.

    Returns:
        The path of the file.
    """
    path = Path(readme)
    marks = rf"(<!-- ({'|'.join(parts)}) -->\n).*?(<!-- /\2 -->)"
    fill = lambda m: f"{m[1]}{_joined(parts[m[2]])}\n{m[3]}"
    write_file(path, re.sub(marks, fill, path.read_text(encoding="utf-8"), flags=re.S))
    return path


def _is_primary(claim):
    return claim.get("primary") or "control_of" in claim


def _primary(recorded):
    """Return a table of the primary claims on the newest data, and a sentence on the others.

    The controls of an experiment follow its primary claims, where it has runs.
    """
    last = newest(recorded)
    order = {one.experiment.name: place for place, one in enumerate(last)}
    rows = [
        (order.get(claim.get("control_of"), place), "control_of" in claim, (one, claim, found))
        for place, one in enumerate(last)
        for claim, found in one.compared
        if _is_primary(claim)
    ]
    lines = [_verdict(*row) for *_, row in sorted(rows, key=lambda row: row[:2])]
    left = without_runs(recorded)
    named = f"\n\nPrimary claims without runs so far: {markdown_text('; '.join(left))}."
    return _table(lines) + named * bool(left)


def _other_verdicts(recorded):
    """Return a table of other claims with an interval, and one of those without, with titles."""
    last, others, few = [*map(id, newest(recorded))], [], []
    for one in recorded:
        for claim, found in one.compared:
            if id(one) not in last or not _is_primary(claim):
                (others if has_interval(found) else few).append(_verdict(one, claim, found))
    return [
        *("### Other claims with six seeds or more", _table(others)),
        *("### Claims with fewer seeds, which cannot be told", _table(few)),
    ]


def _table(lines):
    head = ["| claim | on our runs | difference in points (95 % interval) | seeds |"]
    head.append("|---|---|---|---|")
    return "\n".join(head + lines) if lines else "No such claim has runs of both sides."


def _verdict(one, claim, found):
    """Return a line of the table for a claim of a Recorded and its Comparison."""
    data = ", ".join(filter(None, (one.data, one.given, _part(one, claim), claim.get("late"))))
    says = "Control: " * ("control_of" in claim) + claim["says"] + (data and f" ({data})")
    interval = signed_interval(found.low, found.high) if has_interval(found) else "no interval"
    said = outcome(found, at_least=one.at_least(claim))
    worse = ", it is worse" if said == "does not hold" and found.high < 0 else ""
    difference = f"{signed(found.difference)} ({interval})"
    return f"| {markdown_text(says)} | {said}{worse} | {difference} | {found.pairs} |"


def _part(one, claim):
    """Return which planned tasks have runs of both sides, such as "rte only"; all of them: ""."""
    planned = one.experiment.grid.get("task", [])
    if "task" in {*claim["first"], *claim["second"]}:  # the claim names its tasks
        return ""
    have = [task for task in planned if _seeds(one, claim, task)]
    return f"{', '.join(map(str, have))} only" if 0 < len(have) < len(planned) else ""


def _seeds(one, claim, task):
    """Return the seeds with which both sides of a claim have runs on a task."""
    found = []
    for side in (claim["first"], claim["second"]):
        wanted = {key: value for key, value in side.items() if key != "experiment"}
        found.append({*select(one.frame_of(side), {**wanted, "task": task})["seed"]})
    return found[0] & found[1]


def _experiments(recorded):
    """Return each experiment: what it asks, its claims with runs of both sides, its headline."""
    blocks = []
    for one in recorded:
        size = markdown_text(f"{one.size}, {count(len(one.results), 'run')}")
        blocks.append(f"**{markdown_text(one.experiment.title)}** ({size})")
        told = _sentences(one) + _missing(one) + changed_since(one)
        told += _best(one) + _heads_left(one) + _similarity(one)
        blocks += [markdown_text(one.experiment.about), _items(told)]
        table = headline(one.experiment, one.frame)
        if len(table):
            empty = [name for name in ("published", "sd") if table[name].isna().all()]
            blocks.append(markdown_table(rounded(table).drop(columns=empty)))
    return blocks


def _sentences(one):
    """Return a sentence for each claim with runs of both sides, and the number of the others."""
    found = [one.sentence(*pair) for pair in one.compared]
    left = len(one.claims) - len(found)
    noun, has = ("more claim" if found else "claim"), ("has" if left == 1 else "have")
    return found + [f"{count(left, noun)} {has} no runs of both sides."] * bool(left)


def _missing(one):
    """Return a sentence for each parameter of the grid with planned values that have no run."""
    found = []
    for key, planned in one.experiment.grid.items():
        have = {str(result["parameters"].get(key)) for result in one.results}
        left = [str(value) for value in planned if str(value) not in have]
        if key != "seed" and left:
            found.append(f"Not recorded, with {key}: {', '.join(left)}.")
    scores = one.frame[(one.frame["split"] == "dev") & (one.frame["metric"] != "improvement")]
    if short := incomplete(one.experiment, scores):
        first = next(iter(one.experiment.grid))
        found.append(f"Recorded in part, with {first}: {', '.join(sorted(map(str, short)))}.")
    return found


def _best(one):
    """Return a sentence for each value that an experiment has chosen."""
    first, key = next(iter(one.experiment.grid)), one.experiment.chosen
    return [
        f"With {first} {method}, {key} {value} has the highest mean ({100 * mean:.2f})."
        for method, (value, mean) in best_values(one.experiment, one.frame).items()
    ]


def _by_first(one, value_of):
    """Return the first parameter, and {its value: what `value_of` gives for each of its runs}."""
    first, found = next(iter(one.experiment.grid)), {}
    for result in one.results:
        if (value := value_of(result)) is not None:
            found.setdefault(str(result["parameters"].get(first, "missing")), []).append(value)
    return first, found


def _heads_left(one):
    """Return how many heads the chosen epoch has, for each value of the first parameter."""
    first, left = _by_first(one, lambda run: run.get("heads_left") if run.get("events") else None)
    return [f"Heads in the chosen epoch, with {first} {v}: {_spread(n)}." for v, n in left.items()]


def _similarity(one):
    """Return how similar the heads of a run are, at its first step and last with several heads."""

    def ends(result):
        rows = [row for row in result.get("head_similarity", ()) if row.get("heads") != 1]
        return (rows[0]["cosine"], rows[-1]["cosine"]) if rows else None

    first, found = _by_first(one, ends)
    medians = {value: map(statistics.median, zip(*pairs)) for value, pairs in found.items()}
    return [
        f"Mean |cosine| between heads, with {first} {value}: {start:.3f} at the first step, "
        f"{end:.3f} at the last one with several heads (medians over runs)."
        for value, (start, end) in medians.items()
    ]


def _spread(numbers):
    """Return median, quartiles (of at least eight numbers) and range as a text."""
    quartiles = ""
    if len(numbers) >= 8:
        low, _, high = statistics.quantiles(numbers, n=4, method="inclusive")
        quartiles = f"quartiles {low:g} and {high:g}, "
    extremes = f"{min(numbers)} to {max(numbers)}"
    return f"{statistics.median(numbers):g} in the median ({quartiles}{extremes})"


def _joined(blocks):
    return "\n\n".join(filter(None, blocks))


def _forest(rows):
    """Return the bytes of the SVG with a line for each claim."""
    import textwrap

    import matplotlib
    from matplotlib import pyplot as plt

    from mmlcourse.lessons.plots.claims import forest

    texts = {"svg.fonttype": "none", "svg.hashsalt": "mmlkit", "text.parse_math": False}
    image = io.BytesIO()
    with matplotlib.rc_context(texts):
        ax = forest([(title, textwrap.fill(says, 58), *rest) for title, says, *rest in rows])
        ax.figure.savefig(image, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(ax.figure)
    return image.getvalue()
