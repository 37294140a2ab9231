"""Tables and figures of all finished runs: `mmlkit report`.

Each experiment has a table with published, recomputed and our own numbers, a figure, and a sentence
on each claim of the paper. A field that a result lacks is shown as missing.
"""

import base64
import html
import io
import itertools
import json
import math
import re
from pathlib import Path
from urllib.parse import quote

from mmlkit.batch.experiments import Experiment, known_experiments, load_experiment
from mmlkit.batch.runs import is_finite, read_result
from mmlkit.messages import count, markdown_table, markdown_text
from mmlkit.runtime import atomic_write
from mmlkit.studies.comparisons import outcome_sentence, paired_bootstrap
from mmlkit.studies.published import tables

__all__ = [
    "compare_claim",
    "comparison",
    "headline",
    "judge",
    "load_results",
    "long_frame",
    "write_readme",
    "write_report",
]

_CELL = ["on", "split", "metric"]
_NUMBERS = ["published", "recomputed", "ours", "sd"]
_PLACE = (("row", ""), ("column", "{on}"))
_FACTS = ("device", "hardware", "torch", "mmlkit")


def load_results(folders):
    """Read the results of all runs below some folders.

    Other JSON files are skipped.

    Args:
        folders: a list of folders.

    Returns:
        {(experiment, profile): list of results}, in the order of their files' names.

    Raises:
        FileNotFoundError: a folder is missing, or there is no result.
        ValueError: an experiment or profile is not a plain name.
    """
    found = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder} is not a folder. `mmlkit reproduce NAME` writes its results into "
                "runs/NAME-fast/results."
            )
        for path in sorted(folder.rglob("*.json")):
            if path.parent.name == "replaced":
                continue
            try:
                result = read_result(path)
            except ValueError:
                continue
            for key in ("experiment", "profile"):
                name = result.get(key)
                text = name if isinstance(name, str) and name.isprintable() else ""
                if not re.fullmatch(r"[^./\\:][^/\\:]*", text):
                    raise ValueError(
                        f"{path}: {key} is {str(name)[:80]!r}, expected a plain name such as "
                        "'mml-tables', without / \\ or : in it, since files are named after it. "
                        "Correct or remove the file, and do not trust where it came from."
                    )
            runs = found.setdefault((result["experiment"], result["profile"]), {})
            runs[str(result["name"])] = result
    if not found:
        raise FileNotFoundError(
            f"There is no finished run below {', '.join(map(str, folders))}. "
            "`mmlkit reproduce mml-tables` makes some."
        )
    return {key: list(runs.values()) for key, runs in found.items()}


def long_frame(experiment, results):
    """Return one row for each score.

    Where the experiment names a baseline, the relative improvement over it is among the scores:
    the mean ratio of the accuracies on the other sets, minus one, in percent, for each seed.

    Args:
        experiment: the Experiment.
        results: a list of results of `load_results`.

    Returns:
        A DataFrame with the parameters of the grid, seed, on, split, metric, value.
    """
    import pandas as pd

    keys = [*dict.fromkeys([*experiment.grid, "seed"])]
    order = {run: number for number, run in enumerate(experiment.runs)}
    rows = []
    for result in sorted(results, key=lambda one: order.get(str(one["name"]), len(order))):
        given = {**dict.fromkeys(keys, "missing"), "seed": 0, **result["parameters"]}
        rows += [{**{key: given[key] for key in keys}, **score} for score in result["scores"]]
    frame = pd.DataFrame(rows, columns=[*keys, *_CELL, "value"])
    for key in [*keys, *_CELL]:
        kinds = set(map(type, frame[key].tolist()))
        if kinds not in ({str}, {int}, {float}, {bool}) or frame[key].isna().any():
            frame[key] = frame[key].map(str)
    first, baseline = keys[0], experiment.published.get("improvement_over")
    same = [key for key in (*keys, *_CELL) if key != first]
    base = frame[frame[first] == baseline]
    both = frame[frame[first] != baseline].merge(base, on=same, suffixes=("", "_base"))
    both = both[both["on"] != both.get("task")]
    if both.empty:
        return frame
    both["value"] = 100 * (both["value"] / both["value_base"] - 1)
    better = both.groupby([*keys, "split"], sort=False)["value"].mean().reset_index()
    better = better.assign(on="improvement", metric="improvement")
    return pd.concat([frame, better], ignore_index=True)


def comparison(experiment, frame):
    """Return one row for each cell of the table.

    Args:
        experiment: the Experiment.
        frame: a DataFrame of `long_frame`.

    Returns:
        A DataFrame with published, recomputed, ours (the mean over seeds), sd and seeds; NaN where
        there is no number.
    """
    import pandas as pd

    published = experiment.published
    names, printed = published.get("names", {}), {}
    for source, table in published.get("tables", []):
        cells = tables(source)
        for row in cells[cells["table"] == table].itertuples():
            key = (row.row, row.column, row.split, row.metric)
            printed.setdefault(key, (row.printed, row.recomputed))
    keys = [key for key in experiment.grid if key != "seed"]
    columns = [*keys, *_CELL]
    rows = []
    for cell, part in frame.groupby(columns, sort=False)["value"]:
        cell = dict(zip(columns, cell))
        factor = 1 if cell["metric"] == "improvement" else published.get("scale", 1)
        found = (math.nan, math.nan)
        options = {key: names.get(str(cell[key]), [str(cell[key])]) for key in (*keys, "on")}
        for values in itertools.product(*options.values()):
            words = dict(zip(options, values))
            place = [published.get(*key).format(**words) for key in _PLACE]
            found = printed.get((*place, cell["split"], cell["metric"]), found)
        ours = {"ours": factor * part.mean(), "sd": factor * part.std(), "seeds": len(part)}
        rows.append({**cell, "published": found[0], "recomputed": found[1], **ours})
    return pd.DataFrame(rows)


def headline(experiment, frame):
    """Return the short table: one row for each value of the experiment's first parameter.

    Args:
        experiment: the Experiment.
        frame: a DataFrame of `long_frame`.

    Returns:
        A DataFrame with published, recomputed, ours, sd and seeds. ours and sd are over seeds;
        everything else is averaged.
    """
    by, metric = next(iter(experiment.grid)), experiment.published.get("headline")
    part = frame[
        (frame["metric"] == (metric or frame["metric"].iloc[0])) & (frame["split"] == "dev")
    ]
    metric = metric or frame["metric"].iloc[0]
    if part.empty:
        return part
    scale = 1 if metric == "improvement" else experiment.published.get("scale", 1)
    means = scale * part.groupby([by, "seed"], sort=False)["value"].mean()
    ours = means.groupby(by, sort=False).agg(ours="mean", sd="std", seeds="count")
    printed = (
        comparison(experiment, part).groupby(by, sort=False)[["published", "recomputed"]].mean()
    )
    unit = ", %" if metric == "improvement" else ""
    return printed.join(ours).rename_axis(f"{by}: dev {metric}{unit}").reset_index()


def judge(claim, frame, scale=1):
    """Return one sentence on a claim, with the numbers of `compare_claim`.

    Args:
        claim: as in `compare_claim`; at_least is the difference that it asks for.
        frame: as in `compare_claim`.
        scale: as in `compare_claim`.

    Returns:
        A sentence.
    """
    found = compare_claim(claim, frame, scale)
    if found is None:
        return f"{claim['says']}: cannot be told, there are no runs of both sides."
    return outcome_sentence(found, claim["says"], at_least=claim.get("at_least", 0.0))


def compare_claim(claim, frame, scale=1, level=0.95):
    """Compare the two sides of a claim over the same seeds, tasks and sets.

    Args:
        claim: a dict of says, first, second (values of the grid), metric, and on: "others" (sets
            not trained on), "own" (dev of the task trained on), a set, or missing for all of dev.
        frame: a DataFrame of `long_frame`.
        scale: 100 for percentage points.
        level: the level of the interval.

    Returns:
        A Comparison of the mean difference, or None without runs of both sides.
    """
    on, metric, sides = claim.get("on"), claim.get("metric"), []
    for side in (claim["first"], claim["second"]):
        part = frame[(frame[list(side)] == list(side.values())).all(axis=1)]
        part = part[part["metric"] == metric if metric else part["metric"] != "improvement"]
        if on == "others":
            part = part[part["on"] != part["task"]]
        else:
            target = part["task"] if on == "own" else part["on"] if on is None else on
            part = part[(part["on"] == target) & (part["split"] == "dev")]
        sides.append(part.drop(columns=list(side)))
    keys = [key for key in sides[0] if key != "value" and key in sides[1]]
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_second")).dropna()
    if both.empty:
        return None
    seeds = both.groupby("seed")[["value", "value_second"]]
    means = scale * seeds.mean()[seeds.size() == seeds.size().max()]  # seeds with all of their runs
    return paired_bootstrap(means["value"], means["value_second"], level=level)


# ---- putting it together ----


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
    for (name, profile), results in load_results(folders).items():
        experiment = _experiment(name, profile, results)
        frame = long_frame(experiment, results)
        blocks += [_text("h2", f"{experiment.title} ({profile})"), _text("p", _facts(results))]
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
            figures[f"{name}-{profile}-dev.png"] = image
            code = base64.b64encode(image).decode()
            blocks.append(
                (
                    f"![{markdown_text(alt)}]({quote(f'{name}-{profile}-dev.png')})",
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
    keys = [key for key in table if key not in (*_CELL, *_NUMBERS, "seeds")]
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


def write_readme(folders, readme="README.md"):
    """Write the results table between the marks <!-- report --> and <!-- /report --> of a README.

    Args:
        folders: a list of folders with results.
        readme: the file.

    Returns:
        The path of the file.

    Raises:
        ValueError: the marks are missing.
    """
    blocks = []
    for (name, profile), results in load_results(folders).items():
        experiment = _experiment(name, profile, results)
        frame = long_frame(experiment, results)
        runs = count(len(results), "run")
        blocks.append(f"**{markdown_text(experiment.title)}** ({profile}, {runs})")
        blocks.append(_items(_judged(experiment, frame))[0])
        table = headline(experiment, frame)
        blocks.append(markdown_table(_rounded(table)) if len(table) else "")
    path = Path(readme)
    text, found = re.subn(
        r"(<!-- report -->\n).*?(\n?<!-- /report -->)",
        lambda match: match[1] + "\n\n".join(filter(None, blocks)) + match[2],
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if not found:
        raise ValueError(
            f"{path} has no place for the results: put <!-- report --> and <!-- /report --> on "
            "lines of their own where they belong."
        )
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


_NOTE = (
    "Published numbers come from other models and data unless the size is paper, so compare the "
    "rows of a column, not the columns. Recomputed is the correct value of a printed number, where "
    "other printed numbers give it. sd is over seeds."
)
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mmlkit: results</title>
<style>body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto}img{max-width:100%}
th,td{padding:.15rem .7rem;text-align:left;border-bottom:1px solid #ddd}</style>"""
