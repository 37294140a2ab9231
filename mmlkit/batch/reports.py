"""What all finished runs say, put together: `mmlkit report`.

For each experiment a table with published, recomputed and our own numbers in columns of their own, a figure, and one sentence
for each claim of the paper: it holds, it does not, or these runs cannot tell.
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

from mmlkit import messages as words
from mmlkit.batch.experiments import Experiment, known_experiments, load_experiment
from mmlkit.batch.runs import check_names, read_result
from mmlkit.messages import markdown_table, markdown_text
from mmlkit.runtime import atomic_write
from mmlkit.studies.comparisons import outcome_sentence, paired_bootstrap
from mmlkit.studies.cross_dataset import improvements
from mmlkit.studies.published import tables

__all__ = ["comparison", "headline", "judge", "load_results", "long_frame", "weigh", "write_readme", "write_report"]

_CELL = ["on", "split", "metric"]


def load_results(folders):
    """{(experiment, profile): its results}, of all runs below these folders, in the order of their names.

    Other JSON files are passed over. Raises FileNotFoundError when a folder is missing or holds no
    run at all, ValueError as `check_names`.
    """
    found = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder. `mmlkit reproduce NAME` writes its results into runs/NAME-fast/results.")
        for path in sorted(folder.rglob("*.json")):
            if path.parent.name not in ("failed", "planned"):
                try:
                    result = read_result(path)
                except ValueError:
                    continue
                check_names(result, path)
                found.setdefault((result["experiment"], result["profile"]), {})[result["name"]] = result
    if not found:
        raise FileNotFoundError(f"There is no finished run below {', '.join(map(str, folders))}. `mmlkit reproduce mml-tables` makes some.")
    return {key: list(runs.values()) for key, runs in found.items()}


def long_frame(experiment, results):
    """One row per score: the parameters of the grid, on, split, metric, value.

    Where the experiment names a baseline, the papers' improvement over it, in percent, is among the scores, for each seed.
    """
    import pandas as pd

    keys, order = dict.fromkeys([*experiment.grid, "seed"]), {name: i for i, name in enumerate(experiment.runs)}
    results = sorted(results, key=lambda result: order.get(result["name"], len(order)))
    point = lambda given: {key: str(given[key]) if isinstance(given.get(key), list) else given.get(key, 0) for key in keys}
    frame = pd.DataFrame([{**point(result["parameters"]), **score} for result in results for score in result["scores"]])
    baseline = experiment.published.get("improvement_over")
    if baseline is None or baseline not in set(frame["method"]):
        return frame
    table = frame.rename(columns={"task": "trained_on", "on": "evaluated_on", "value": "accuracy"})
    complete = table.groupby(["seed", "trained_on"])["method"].transform(lambda methods: baseline in set(methods))
    parts = [improvements(part, baseline).assign(seed=seed) for (seed, _), part in table[complete].groupby(["seed", "trained_on"], sort=False) if part["method"].nunique() > 1]
    better = pd.concat([pd.DataFrame(), *parts]).rename(columns={"trained_on": "task", "improvement": "value"})
    return pd.concat([frame, better.assign(on="improvement", metric="improvement")], ignore_index=True) if len(better) else frame


def comparison(experiment, frame):
    """One row per cell: published, recomputed, ours (mean over seeds), sd, seeds. NaN where there is no number."""
    import pandas as pd

    keys, scale = [key for key in experiment.grid if key != "seed"], experiment.published.get("scale", 1)
    printed = _printed(experiment.published)
    rows = []
    for cell, part in frame.groupby([*keys, *_CELL], sort=False):
        cell = dict(zip([*keys, *_CELL], cell))
        factor = 1 if cell["metric"] == "improvement" else scale
        published, recomputed = next((printed[name] for name in _names(experiment.published, cell, keys) if name in printed), (math.nan, math.nan))
        rows.append({**cell, "published": published, "recomputed": recomputed, "ours": factor * part["value"].mean(),
                     "sd": factor * part["value"].std(ddof=1), "seeds": len(part)})
    return pd.DataFrame(rows)


def headline(experiment, frame):
    """The short table: one row per value of the experiment's first parameter, everything else averaged; ours as mean and sd over seeds."""
    by, metric = next(iter(experiment.grid)), experiment.published.get("headline", frame["metric"].iloc[0])
    part = frame[(frame["metric"] == metric) & (frame["split"] == "dev")]
    ours = part.groupby([by, "seed"], sort=False)["value"].mean().groupby(by, sort=False).agg(ours="mean", sd="std", seeds="count").reset_index()
    scale = 1 if metric == "improvement" else experiment.published.get("scale", 1)
    cells = comparison(experiment, part)
    printed = cells.groupby(by, sort=False)[["published", "recomputed"]].mean().reset_index()
    table = printed.merge(ours.assign(ours=scale * ours["ours"], sd=scale * ours["sd"]), on=by)
    return table.rename(columns={by: f"{by}: dev {metric}{', %' if metric == 'improvement' else ''}"})


def _printed(published):
    cells = {}
    for source, table in published.get("tables", []):
        frame = tables(source)
        for row in frame[frame["table"] == table].itertuples():
            cells.setdefault((row.row, row.column, row.split, row.metric), (row.printed, row.recomputed))
    return cells


def _names(published, cell, keys):
    """Under which names the print may have this cell."""
    names = published.get("names", {})
    for values in itertools.product(*(names.get(str(cell[key]), [str(cell[key])]) for key in (*keys, "on"))):
        words = dict(zip((*keys, "on"), values))
        yield published.get("row", "").format(**words), published.get("column", "{on}").format(**words), cell["split"], cell["metric"]


def judge(claim, frame, scale=1):
    """One sentence on one claim, with the numbers that `weigh` finds; arguments as there. at_least of the claim: see `outcome_sentence`."""
    found = weigh(claim, frame, scale)
    if found is None:
        return f"{claim['says']}: cannot be told, there are no runs of both sides."
    return outcome_sentence(found, claim["says"], at_least=claim.get("at_least", 0.0))


def weigh(claim, frame, scale=1, level=0.95):
    """The mean difference of a claim's two sides over the same seeds, tasks and sets, a protocol.Comparison; None without runs of both.

    claim: a dict of says, first, second (values of the grid), and on: "others" (sets not trained on), "own" (dev of the task
    trained on) or the name of a set; every dev score when left out. metric. scale: 100 for points of percent. level: of the interval.
    """
    sides = []
    for side in ("first", "second"):
        part = frame[(frame[list(claim[side])] == list(claim[side].values())).all(axis=1)]
        sides.append(part.drop(columns=list(claim[side])))
    on = claim.get("on")
    wanted = {"others": lambda part: part["on"] != part["task"], "own": lambda part: (part["on"] == part["task"]) & (part["split"] == "dev"),
              None: lambda part: part["split"] == "dev"}.get(on, lambda part: (part["on"] == on) & (part["split"] == "dev"))
    metric = claim.get("metric")
    sides = [part[wanted(part) & (part["metric"] == metric if metric else part["metric"] != "improvement")] for part in sides]
    keys = [key for key in sides[0] if key != "value" and key in sides[1]]
    both = sides[0].merge(sides[1], on=keys, suffixes=("", "_second"))
    if both.empty:
        return None
    whole = both.groupby("seed").size() == both.groupby("seed").size().max()        # seeds with all of their runs
    means = both.groupby("seed")[["value", "value_second"]].mean()[whole]
    return paired_bootstrap(scale * means["value"], scale * means["value_second"], level=level)


def _judged(experiment, frame):
    return [judge(claim, frame, experiment.published.get("scale", 1)) for claim in experiment.claims]


# ---- putting it together ----

def write_report(folders, out):
    """Writes report.md, report.html and its figures into `out`; returns the path of report.html. Raises as `load_results`."""
    sections = [_section(_experiment(*key, results), results, folders) for key, results in load_results(folders).items()]
    out = Path(out)
    text, page = ["# What the runs say", ""], [_HEAD, "<h1>What the runs say</h1>"]
    for name, blocks in sections:
        for kind, content in blocks:
            if kind == "figure":
                path = out / f"{name}-{content['name']}.png"
                with atomic_write(path) as temporary:
                    temporary.write_bytes(content["png"])
                text += [f"![{markdown_text(content['alt'])}]({quote(path.name)})", ""]
                page.append(f'<img alt="{html.escape(content["alt"], quote=True)}" src="data:image/png;base64,{base64.b64encode(content["png"]).decode()}">')
            elif kind == "table":
                text += [markdown_table(content), ""]
                page.append(content.to_html(index=False, escape=True, na_rep="", border=0))
            elif kind == "list":
                text += [*(f"- {markdown_text(line)}" for line in content), ""]
                page.append("<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in content) + "</ul>")
            else:
                mark = f"{'#' * int(kind[1:])} " if kind != "p" else ""
                text += [f"{mark}{markdown_text(content)}", ""]
                page.append(f"<{kind}>{html.escape(content)}</{kind}>")
    for name, lines in (("report.md", text), ("report.html", page)):
        with atomic_write(out / name) as temporary:
            temporary.write_text("\n".join(lines).strip() + "\n", encoding="utf-8")
    return out / "report.html"


def _experiment(name, profile, results):
    """The experiment of that name; of one whose file is elsewhere, what the results tell: the parameters that differ."""
    known = known_experiments()     # by name: a stranger's result must not make us read other files
    if name in known and profile in ("fast", "colab", "paper"):
        return load_experiment(known[name], profile)
    runs = {result["name"]: result["parameters"] for result in results}
    values = {key: [parameters.get(key) for parameters in runs.values()]
              for parameters in runs.values() for key in parameters}
    grid = {key: some for key, some in values.items() if any(value != some[0] for value in some)}
    grid = grid or {"profile": [profile]}
    return Experiment(name, name, profile, Path(name), grid, runs, 0, None, {}, 1, 0, {}, [])


def _section(experiment, results, folders):
    """(name, blocks) of one experiment in one size."""
    frame = long_frame(experiment, results)
    blocks = [("h2", f"{experiment.title} ({experiment.profile})"), ("p", _facts(results))]
    blocks.append(("p", "Published numbers are of other models and data than ours unless the size is called paper: compare how the rows stand to each "
                   "other, not the columns. Recomputed is what a printed number should have been, where others give it. sd is over seeds."))
    if experiment.claims:
        blocks += [("h3", "What the paper claims, on these runs"), ("list", _judged(experiment, frame))]
    if len(frame):
        table = comparison(experiment, frame)
        blocks += [("h3", "Figure"), ("figure", _figure(table)), ("h3", "Every cell"), ("table", _rounded(table))]
    failed = [json.loads(path.read_text(encoding="utf-8")) for folder in folders for path in sorted(Path(folder).rglob("failed/*.json"))]
    if failed:
        blocks += [("h3", "Failed runs"), ("list", [f"{one['name']}: {one['cause']}" for one in failed])]
    return f"{experiment.name}-{experiment.profile}", blocks


def _facts(results):
    minutes = sum(result["minutes"] for result in results)
    kinds = {f"{result['device']} ({result['hardware']}), torch {result['versions']['torch']}, mmlkit {result['versions']['mmlkit']}" for result in results}
    memory = max(result["peak_memory_mb"] or 0 for result in results)
    commits = sorted({str(result["commit"]) for result in results})
    return (f"{len(results)} run{'s' * (len(results) > 1)}, {minutes / 60:.1f} hours of computing, at most {memory:,} MB each, on {'; '.join(sorted(kinds))}; "
            f"commit {', '.join(commits)}.")


def _figure(table):
    from matplotlib import pyplot as plt

    from mmlkit.plots import basics as plots

    metric = "improvement" if "improvement" in set(table["metric"]) else table["metric"].iloc[0]
    part = table[(table["metric"] == metric) & (table["split"] == "dev")]
    keys = [key for key in table if key not in (*_CELL, "published", "recomputed", "ours", "sd", "seeds")]
    ax = plots.spread(part["ours"], part["sd"], [" ".join(map(str, row)) for row in part[keys].to_numpy()], part["on"],
                      published=part["recomputed"].fillna(part["published"]), xlabel=f"dev {metric}{', %' if metric == 'improvement' else ''}")
    image = io.BytesIO()
    ax.figure.savefig(image, format="png")
    plt.close(ax.figure)
    return {"name": "dev", "png": image.getvalue(),
            "alt": f"dev {metric} of every run, mean over seeds with its standard deviation, and the published number as a cross; the table below has the numbers"}


def _rounded(table):
    places = 2 if table["ours"].abs().max() > 1.5 else 3
    out = table.copy()
    for column in ("published", "recomputed", "ours", "sd"):
        out[column] = [f"{value:.{places}f}" if math.isfinite(value) else "" for value in table[column]]
    return out.loc[:, [column for column in out if column != "recomputed" or any(out[column])]]


def write_readme(folders, readme="README.md"):
    """Puts the results table between the marks <!-- report --> and <!-- /report --> of a README; returns its path.

    Raises ValueError when the marks are not there.
    """
    lines = []
    for (name, profile), results in load_results(folders).items():
        experiment = _experiment(name, profile, results)
        frame = long_frame(experiment, results)
        title, runs = markdown_text(experiment.title), words.count(len(results), "run")
        claims = [f"- {markdown_text(line)}" for line in _judged(experiment, frame)]
        lines += [f"**{title}** ({profile}, {runs})", "", *claims, ""]
        lines += [markdown_table(_rounded(headline(experiment, frame))), ""]
    path = Path(readme)
    text, count = re.subn(r"(<!-- report -->\n).*?(\n?<!-- /report -->)", lambda match: match[1] + "\n".join(lines).strip() + match[2],
                          path.read_text(encoding="utf-8"), flags=re.DOTALL)
    if not count:
        raise ValueError(f"{path} has no place for the results: put <!-- report --> and <!-- /report --> on lines of their own where they belong.")
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>mmlkit: what the runs say</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.15rem .7rem;text-align:left;border-bottom:1px solid #ddd}td{font-variant-numeric:tabular-nums}img{max-width:100%}</style>"""
