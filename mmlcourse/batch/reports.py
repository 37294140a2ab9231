"""The report on all finished runs, as Markdown and HTML: `mmlkit report`.

Each experiment has a table, a figure, and a sentence on each claim of the paper. A field that a
result lacks is shown as missing.
"""

import base64
import html
import io
import json
import math
from pathlib import Path
from urllib.parse import quote

from mmlcourse.batch.recorded import changed_since, experiments_in
from mmlcourse.batch.tables import CELL, comparison, finite
from mmlcourse.text import count, markdown_table, markdown_text
from mmlkit.files import write_file

__all__ = ["rounded", "write_report"]

_NUMBERS = ["published", "recomputed", "ours", "sd"]
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
    out, figures = Path(out), {}
    blocks = [_text("h1", "The results of all runs")]
    for number, one in enumerate(experiments_in(folders, experiment)):
        plan, frame = one.experiment, one.frame
        blocks += [_text("h2", f"{plan.title} ({one.size})"), _text("p", _facts(one.results))]
        blocks += [_text("p", _NOTE), *(_text("p", said) for said in changed_since(one))]
        if one.claims:
            said = [one.sentence(*pair) for pair in one.claims]
            blocks += [_text("h3", "Claims of the paper, on these runs"), _items(said)]
        if len(frame):
            table = rounded(comparison(plan, frame))
            blocks += [_text("h3", "All cells")]
            blocks += [(markdown_table(table), table.to_html(index=False, na_rep="", border=0))]
        if "dev" in set(frame["split"]):
            image, alt = _figure(comparison(plan, frame))
            data = (f"-mini{one.edition}" if one.edition else "") + f"-{number}" * bool(one.given)
            file = f"{plan.name}-{plan.profile}{data}-dev.png"
            figures[file] = image
            code = base64.b64encode(image).decode()
            blocks.append(
                (
                    f"![{markdown_text(alt)}]({quote(file)})",
                    f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{code}">',
                )
            )
    if failed := list(_failures(folders)):
        blocks += [_text("h2", "Failed runs"), _items(failed)]
    markdown, pages = zip(*blocks)
    files = {"report.md": "\n\n".join(markdown), "report.html": "\n".join([_HEAD, *pages])}
    files = {name: f"{text}\n" for name, text in files.items()}
    for name, content in {**figures, **files}.items():
        write_file(out / name, content)
    return out / "report.html"


def _text(tag, text):
    """Return a heading or a paragraph as Markdown and as HTML."""
    marks = {"h1": "# ", "h2": "## ", "h3": "### ", "p": ""}
    return f"{marks[tag]}{markdown_text(text)}", f"<{tag}>{html.escape(text)}</{tag}>"


def _items(lines):
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return "\n".join(f"- {markdown_text(line)}" for line in lines), f"<ul>{items}</ul>"


def _failures(folders):
    for path in sorted(path for folder in folders for path in Path(folder).rglob("failed/*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            told = f"{content.get('name', path.stem)}: {content.get('cause', 'missing')}"
            yield told.encode(errors="replace").decode()
        except (ValueError, AttributeError, RecursionError):
            yield f"{path.stem}: missing"


def _facts(results):
    minutes, memory = finite(results, "minutes"), finite(results, "peak_memory_mb")
    kinds, commits = set(), {str(result.get("commit", "missing")) for result in results}
    for result in results:
        found = {**result["versions"], **result}
        device, hardware, torch, own = (found.get(key, "missing") for key in _FACTS)
        kinds.add(f"{device} ({hardware}), torch {torch}, mmlkit {own}")
    lacking = len(results) - len(minutes)
    return (
        f"{count(len(results), 'run')}, {sum(minutes) / 60:.1f} hours of computing"
        f"{f' (missing in {lacking})' if lacking else ''}, at most "
        f"{max(memory, default='missing')} MB each, on "
        f"{'; '.join(sorted(kinds))}; "
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
