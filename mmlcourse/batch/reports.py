"""The report of `mmlkit report`: every cell of every experiment, as Markdown and as HTML.

It has a table, a figure, and a sentence on each claim for every experiment. Names and texts in
results are escaped: they may come from somebody else.
"""

import base64
import html
import json
from pathlib import Path

from mmlcourse.batch.experiments import file_name
from mmlcourse.batch.recorded import experiments_in, recorded_experiments
from mmlcourse.batch.results import finite, used
from mmlcourse.batch.scores import CELL, NUMBERS, compare_claim, comparison, rounded
from mmlcourse.batch.verdicts import COLUMNS, difference, told, verdict
from mmlcourse.shipped import shipped_folder
from mmlcourse.text import count, markdown_list, markdown_table, markdown_text, signed
from mmlkit.files import write_file

__all__ = ["write_report"]

_FACTS = ("device", "hardware", "torch", "mmlkit")
_SETTINGS = ("model", "precision", "pairs", "epochs", "batch_size", "lr", "head_lr")


def write_report(folders, out, experiment=None):
    """Write report.md, report.html and their figures.

    Args:
        folders: a list of folders with results.
        out: the folder to write into.
        experiment: an Experiment that is not one of the repository's, see `experiments_in`.

    Returns:
        The path of report.html.
    """
    import pandas as pd

    out, blocks = Path(out), [_text("h1", "Results")]
    for number, one in enumerate(experiments_in(folders, experiment)):
        plan, frame = one.experiment, one.frame
        own = _recorded(one)
        facts = _facts(one.results) + (_unlike(one, own) if own else "")
        blocks += [_text("h2", f"{plan.title} ({one.size})"), _text("p", facts)]
        blocks += [_text("p", plan.about), _text("h3", "Claims, on these runs")]
        verdicts = pd.DataFrame([verdict(one, *pair) for pair in one.compared], columns=COLUMNS)
        verdicts = verdicts.drop(columns="experiment")
        if own:
            verdicts["recorded"] = [_recorded_claim(own, one, claim) for claim, _ in one.compared]
        blocks += [_table(verdicts)] * bool(one.compared)
        blocks += [_list(told(one)), _text("p", _VERDICTS)]
        if len(frame):
            cells, said = comparison(plan, frame), _NOTE
            table = rounded(cells)
            if own:
                beside, more = _beside(one, own)
                table, said = table.join(beside, [*beside.index.names]).fillna(""), said + more
            table = table.rename(columns={"ours": "these runs"})
            blocks += [_text("h3", "All cells"), _text("p", said), _table(table)]
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
        causes = [json.loads(path.read_text(encoding="utf-8")) for path in failed]
        blocks += [_text("h2", "Failed runs")]
        blocks += [_list([f"{one['name']}: {one['cause']}" for one in causes])]
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


def _table(table):
    return markdown_table(table), table.to_html(index=False, na_rep="", border=0)


def _found(result, *keys):
    """Return values of a result, its settings or its versions."""
    found = {**result["versions"], **result["settings"], **result}
    return [found.get(key, "missing") for key in keys]


def _facts(results):
    minutes, memory = finite(results, "minutes"), finite(results, "peak_memory_mb")
    kinds, commits = set(), {str(result.get("commit") or "unknown") for result in results}
    for result in results:
        kinds.add("{} ({}), torch {}, mmlkit {}".format(*_found(result, *_FACTS)))
    values = {key: {str(*_found(result, key)) for result in results} for key in _SETTINGS}
    values = {key: found for key, found in values.items() if found != {"missing"}}
    said = ", ".join(f"{key} {' or '.join(sorted(found))}" for key, found in values.items())
    resumed = sum(bool(result.get("resumed")) for result in results)
    last = f" (of {count(resumed, 'resumed run')}, since the last start)" * bool(resumed)
    return (
        f"{count(len(results), 'run')}, {sum(minutes) / 60:.1f} hours of computing{last}, at most "
        f"{max(memory, default='missing')} MB each, on {'; '.join(sorted(kinds))}; "
        f"commit {', '.join(sorted(commits))}. Settings: {said}."
        f"{_rows(results, 'rows', 'Training rows')}{_rows(results, 'scored_rows', 'Scored rows')}"
    )


def _rows(results, key, title):
    """Return a sentence with the number of rows of each set."""
    found = {}
    for result in results:
        (rows,) = _found(result, key)
        if rows != "missing":
            one = {result["parameters"].get("task"): rows} if isinstance(rows, int) else rows
            found |= {f"{name} {number}": None for name, number in one.items()}
    return f" {title}: {', '.join(found)}." if found else ""


def _recorded(one):
    """Return the repository's runs of the same size and edition of the mini data, or None.

    There are none where the repository has none, and where the runs are the repository's.
    """
    plan, started = one.experiment, {result.get("started") for result in one.results}
    folder = shipped_folder("results")
    for own in recorded_experiments([folder / f"{plan.name}-{plan.profile}"]) if folder else ():
        ours = {result["started"] for result in own.results} == started
        if not ours and (own.edition, own.given) == (one.edition, ""):
            return own
    return None


def _unlike(one, own):
    """Return a sentence on what differs from recorded runs of the same cells, the seed aside."""
    cell = lambda run: [run["parameters"].get(key) for key in own.experiment.grid if key != "seed"]
    theirs, differ = {str(cell(run)): run for run in own.results}, {}
    for run in one.results:
        if (there := theirs.get(str(cell(run)))) is None:
            continue
        keys = {*run["parameters"], *there["parameters"]}
        keys |= {*run["settings"]} & {*there["settings"]} - {"cpu_minutes"}
        for key in sorted(keys - {"seed"}):
            here, recorded = used(run, key), used(there, key)
            if here != recorded:
                differ[f"{key} {here} (recorded {recorded})"] = None
    return f" Unlike the recorded runs of the same cells: {', '.join(differ)}." if differ else ""


def _beside(one, own):
    """Return the cells of recorded runs by their place, and sentences on them."""
    table = rounded(comparison(own.experiment, own.frame))
    names = {"ours": "recorded", "sd": "recorded sd", "seeds": "recorded seeds"}
    keys = [key for key in table if key not in (*NUMBERS, "seeds")]
    same = [key for key in one.frame if key != "value"]
    both = one.frame.merge(own.frame, on=same, suffixes=("", "_recorded"))
    both = both[both["metric"] != "improvement"]
    apart = 100 * (both["value"] - both["value_recorded"]).abs()
    kinds = {"{} of mmlkit {}".format(*_found(run, "precision", "mmlkit")) for run in own.results}
    said = f" Recorded are the repository's own runs, in results/ ({'; '.join(sorted(kinds))})."
    if len(apart):
        place = both.loc[apart.idxmax(), same]
        said += f" Of {count(len(apart), 'score')} that both have with the same seed, the largest "
        said += f"difference is {apart.max():.1f} points "
        said += f"({', '.join(f'{key} {value}' for key, value in place.items())})."
    return table.rename(columns=names).set_index(keys)[[*names.values()]], said


def _recorded_claim(own, one, claim):
    """Return what recorded runs of the same tasks have for a claim, and those of the same seeds."""
    frame = own.frame
    if "task" in frame:
        frame = frame[frame["task"].isin({*one.frame["task"]})]
    named = "experiment" in {*claim["first"], *claim["second"]}
    found = None if named else compare_claim(claim, frame)
    if found is None:
        return ""
    said = f"{difference(found)}, {count(found.pairs, 'seed')}"
    same = compare_claim(claim, frame[frame["seed"].isin({*one.frame["seed"]})])
    return said + (f"; with the same seeds {signed(same.difference)}" if same else "")


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


_VERDICTS = (
    "With fewer than six seeds every claim is undecided. The difference of a claim is first minus "
    "second, over all sets and splits that it names. Scored rows: chose the epoch (dev rows of the "
    "set trained on), other sets (their train and dev rows chose nothing), held out (the half of "
    "dev that chose no epoch). results/REPORT.md of the repository says more."
)
_NOTE = (
    "Scores are in points of 100. An improvement is in percent: for each other set the accuracy "
    "over that of the baseline, minus one, and the mean of them. Where a set is its own task, the "
    "model was trained on its train rows, and its dev rows chose the epoch (other dev rows, where "
    "a claim says held out). Published numbers come from other models and data unless the size is "
    "paper, so compare its rows, and not published with these runs. Recomputed is a printed mean "
    "or gain, computed again from the paper's other numbers. sd is over seeds."
)
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mmlkit: results</title>
<style>body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto}img{max-width:100%}
th,td{padding:.15rem .7rem;text-align:left;border-bottom:1px solid #ddd}</style>"""
