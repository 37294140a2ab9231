"""The report of `mmlkit report`: every cell of every experiment, as Markdown and as HTML.

It has a table, a figure, and a sentence on each claim for every experiment. Names and texts in
results are escaped: they may come from somebody else.
"""

import base64
import html
import json
from pathlib import Path

from mmlcourse.batch.experiments import file_name
from mmlcourse.batch.results import changed_since, experiments_in, finite
from mmlcourse.batch.scores import CELL, NUMBERS, comparison, rounded
from mmlcourse.text import count, markdown_list, markdown_table, markdown_text
from mmlkit.files import write_file

__all__ = ["write_report"]

_FACTS = ("device", "hardware", "torch", "mmlkit")


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
            blocks += [_text("h3", "Claims, on these runs"), _list(said)]
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
    return markdown_list(lines), f"<ul>{items}</ul>"


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
    from mmlcourse.lessons.plots.basics import spread
    from mmlcourse.lessons.plots.common import picture

    dev = table[table["split"] == "dev"]
    metric = "improvement" if "improvement" in set(dev["metric"]) else dev["metric"].iloc[0]
    part = dev[dev["metric"] == metric]
    keys = [key for key in table if key not in (*CELL, *NUMBERS, "seeds")]
    draw = lambda: spread(
        part["ours"],
        part["sd"],
        [" ".join(map(str, row)) for row in part[keys].to_numpy()],
        part["on"],
        published=part["recomputed"].fillna(part["published"]),
        xlabel=f"dev {metric}{', %' if metric == 'improvement' else ' times 100'}",
    )
    return picture(draw), (
        f"dev {metric} of every run, mean over seeds with its standard deviation, and the "
        "published number as a cross; the table has the numbers"
    )


_NOTE = (
    "Scores are in points of 100, improvements in percent. Published numbers come from other "
    "models and data unless the size is paper, so compare the rows of a column, not the columns. "
    "Recomputed is the correct value of a printed number, where other printed numbers give it. sd "
    "is over seeds. The difference of a claim is first minus second; results/REPORT.md of the "
    "repository says what its verdicts mean."
)
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mmlkit: results</title>
<style>body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto}img{max-width:100%}
th,td{padding:.15rem .7rem;text-align:left;border-bottom:1px solid #ddd}</style>"""
