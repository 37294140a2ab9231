"""The report on all finished runs, as Markdown and HTML, and its table in README: `mmlkit report`.

Each experiment has a table, a figure, and a sentence on each claim of the paper. A field that a
result lacks is shown as missing.
"""

import base64
import html
import io
import json
import math
import re
from pathlib import Path
from urllib.parse import quote

from mmlkit.batch.experiments import Experiment, known_experiments, load_experiment
from mmlkit.batch.runs import is_finite
from mmlkit.batch.tables import (
    CELL,
    compare_claim,
    comparison,
    headline,
    judge,
    load_results,
    long_frame,
)
from mmlkit.messages import count, markdown_table, markdown_text
from mmlkit.runtime import atomic_write
from mmlkit.studies.comparisons import outcome

__all__ = ["write_readme", "write_report"]

_NUMBERS = ["published", "recomputed", "ours", "sd"]
_FACTS = ("device", "hardware", "torch", "mmlkit")


def write_report(folders, out):
    """Write report.md, report.html and their figures.

    Args:
        folders: a list of folders with results.
        out: the folder to write into.

    Returns:
        The path of report.html.
    """
    out, figures = Path(out), {}
    blocks = [_text("h1", "The results of all runs")]
    for (name, profile, edition), results in load_results(folders).items():
        experiment = _experiment(name, profile, results)
        frame = long_frame(experiment, results)
        size = profile + _data(edition)
        blocks += [_text("h2", f"{experiment.title} ({size})"), _text("p", _facts(results))]
        blocks += [_text("p", _NOTE)]
        if experiment.claims:
            blocks += [
                _text("h3", "Claims of the paper, on these runs"),
                _items(_judged(experiment, frame)),
            ]
        if len(frame):
            table = _rounded(comparison(experiment, frame))
            blocks += [_text("h3", "All cells")]
            blocks += [(markdown_table(table), table.to_html(index=False, na_rep="", border=0))]
        if "dev" in set(frame["split"]):
            image, alt = _figure(comparison(experiment, frame))
            file = f"{name}-{profile}{f'-mini{edition}' if edition else ''}-dev.png"
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
    for name, content in {**figures, **files}.items():
        with atomic_write(out / name) as temporary:
            temporary.write_bytes(content if name in figures else f"{content}\n".encode())
    return out / "report.html"


def _data(edition):
    return f", mini data of edition {edition}" if edition else ""


def _text(tag, text):
    """Return a heading or a paragraph as Markdown and as HTML."""
    marks = {"h1": "# ", "h2": "## ", "h3": "### ", "p": ""}
    return f"{marks[tag]}{markdown_text(text)}", f"<{tag}>{html.escape(text)}</{tag}>"


def _items(lines):
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return "\n".join(f"- {markdown_text(line)}" for line in lines), f"<ul>{items}</ul>"


def _experiment(name, profile, results):
    """Return the experiment of that name, or what the results of an unknown one tell."""
    known = known_experiments()  # by name: a result must not make us read other files
    if name in known and profile in ("fast", "colab", "paper"):
        return load_experiment(known[name], profile)
    runs = {str(result["name"]): result["parameters"] for result in results}
    keys = dict.fromkeys(key for parameters in runs.values() for key in parameters)
    grid = {key: [one.get(key) for one in runs.values()] for key in keys}
    grid = {key: values for key, values in grid.items() if any(one != values[0] for one in values)}
    return Experiment(name, name, profile, Path(name), grid or {"profile": [profile]}, runs)


def _judged(experiment, frame):
    scale = experiment.published.get("scale", 1)
    return [judge(claim, frame, scale) for claim in experiment.claims]


def _failures(folders):
    for path in sorted(path for folder in folders for path in Path(folder).rglob("failed/*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            yield f"{content.get('name', path.stem)}: {content.get('cause', 'missing')}"
        except (ValueError, AttributeError, RecursionError):
            yield f"{path.stem}: missing"


def _facts(results):
    def number(key):
        values = [result.get(key) for result in results]
        return [value for value in values if is_finite(value)]

    kinds, commits = set(), {str(result.get("commit", "missing")) for result in results}
    for result in results:
        versions = result.get("versions")
        found = {**(versions if isinstance(versions, dict) else {}), **result}
        device, hardware, torch, own = (found.get(key, "missing") for key in _FACTS)
        kinds.add(f"{device} ({hardware}), torch {torch}, mmlkit {own}")
    lacking = len(results) - len(number("minutes"))
    return (
        f"{count(len(results), 'run')}, {sum(number('minutes')) / 60:.1f} hours of computing"
        f"{f' (missing in {lacking})' if lacking else ''}, at most "
        f"{max(number('peak_memory_mb'), default='missing')} MB each, on "
        f"{'; '.join(sorted(kinds))}; "
        f"commit {', '.join(sorted(commits))}."
    )


def _figure(table):
    """Return the bytes of a PNG and its description."""
    from matplotlib import pyplot as plt

    from mmlkit.plots import basics as plots

    dev = table[table["split"] == "dev"]
    metric = "improvement" if "improvement" in set(dev["metric"]) else dev["metric"].iloc[0]
    part = dev[dev["metric"] == metric]
    keys = [key for key in table if key not in (*CELL, *_NUMBERS, "seeds")]
    ax = plots.spread(
        part["ours"],
        part["sd"],
        [" ".join(map(str, row)) for row in part[keys].to_numpy()],
        part["on"],
        published=part["recomputed"].fillna(part["published"]),
        xlabel=f"dev {metric}{', %' if metric == 'improvement' else ''}",
    )
    image = io.BytesIO()
    ax.figure.savefig(image, format="png")
    plt.close(ax.figure)
    return image.getvalue(), (
        f"dev {metric} of every run, mean over seeds with its standard deviation, and the "
        "published number as a cross; the table has the numbers"
    )


def _rounded(table):
    places = 2 if table["ours"].abs().max() > 1.5 else 3
    texts = table[_NUMBERS].map(lambda one: f"{one:.{places}f}" if math.isfinite(one) else "")
    table = table.assign(**texts)
    return table if any(table["recomputed"]) else table.drop(columns="recomputed")


def _without_gaps(table):
    """Return the rounded table without columns that have no number."""
    empty = [name for name in ("published", "sd") if table[name].isna().all()]
    return _rounded(table).drop(columns=empty)


def write_readme(folders, readme="README.md"):
    """Write the tables of a README, each between its two marks.

    The results of experiments stand between <!-- report --> and <!-- /report -->. Claims without
    runs of both sides are only counted; the report lists them. Where the file has the marks
    <!-- claims --> and <!-- /claims -->, a table of the other claims stands between them. Where a
    folder holds speed.json of `mmlkit bench`, its table stands between <!-- speed --> and
    <!-- /speed -->.

    Args:
        folders: a list of folders with results.
        readme: the file.

    Returns:
        The path of the file.

    Raises:
        ValueError: the marks are missing (from a private function).
    """
    blocks, rows = [], []
    for (name, profile, edition), results in load_results(folders).items():
        experiment = _experiment(name, profile, results)
        frame = long_frame(experiment, results)
        about = markdown_text(f"{profile}{_data(edition)}, {count(len(results), 'run')}")
        blocks.append(f"**{markdown_text(experiment.title)}** ({about})")
        told = [claim for claim in experiment.claims if compare_claim(claim, frame) is not None]
        scale = experiment.published.get("scale", 1)
        rows += [_claim_row(claim, frame, scale) for claim in told]
        blocks.append(_items(_sentences(experiment, frame, told))[0])
        table = headline(experiment, frame)
        blocks.append(markdown_table(_without_gaps(table)) if len(table) else "")
    path = Path(readme)
    text = _between_marks(path.read_text(encoding="utf-8"), "report", blocks, path)
    if "<!-- claims -->" in text:
        text = _between_marks(text, "claims", [_CLAIMS, "\n".join(rows)], path, "\n")
    for file in filter(Path.is_file, (Path(folder, "speed.json") for folder in folders)):
        text = _between_marks(text, "speed", _speed(file), path)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


_CLAIMS = (
    "| claim | on our runs | difference in points (95 % interval) | pairs |\n|---|---|---|---|"
)


def _sentences(experiment, frame, told):
    """Return a sentence for each claim with runs of both sides, and the number of the others."""
    scale, left = experiment.published.get("scale", 1), len(experiment.claims) - len(told)
    found = [judge(claim, frame, scale) for claim in told]
    more = "more " if told else ""
    return found + [f"{count(left, f'{more}claim')} without runs of both sides."] * bool(left)


def _claim_row(claim, frame, scale):
    one = compare_claim(claim, frame, 100)
    said = outcome(one, at_least=100 / scale * claim.get("at_least", 0.0))
    interval = f"{one.low:+.1f} to {one.high:+.1f}" if one.pairs > 1 else "no interval"
    difference = f"{one.difference:+.1f} ({interval})"
    return f"| {markdown_text(claim['says'])} | {said} | {difference} | {one.pairs} |"


def _speed(file):
    from mmlkit.bench.record import speed_sentences, speed_table  # not needed for a report

    record = json.loads(file.read_text(encoding="utf-8"))
    table = speed_table(record)
    return [_items(speed_sentences(record))[0], markdown_table(table) if len(table) else ""]


def _between_marks(text, mark, blocks, path, between="\n\n"):
    content = between.join(filter(None, blocks))
    text, found = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)",
        lambda match: f"{match[1]}{content}\n{match[2]}",
        text,
        flags=re.DOTALL,
    )
    if not found:
        raise ValueError(
            f"{path} has no place for the results: put <!-- {mark} --> and <!-- /{mark} --> on "
            "lines of their own where they belong."
        )
    return text


_NOTE = (
    "Published numbers come from other models and data unless the size is paper, so compare the "
    "rows of a column, not the columns. Recomputed is the correct value of a printed number, where "
    "other printed numbers give it. sd is over seeds."
)
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mmlkit: results</title>
<style>body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto}img{max-width:100%}
th,td{padding:.15rem .7rem;text-align:left;border-bottom:1px solid #ddd}</style>"""
