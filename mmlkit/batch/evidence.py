"""What all recorded runs say, in README.md and results/REPORT.md: `mmlkit report --readme`.

REPORT.md has a verdict on every claim, their figure, advice, and a paragraph for each experiment.
"""

import json
import re
import statistics
from pathlib import Path

from mmlkit.batch.experiments import is_finite
from mmlkit.batch.overviews import advice, claim_rows, experiments_in, newest, runs_table
from mmlkit.batch.reports import rounded
from mmlkit.batch.tables import best_values, headline
from mmlkit.studies.comparisons import outcome
from mmlkit.support.folders import atomic_write
from mmlkit.support.messages import count, markdown_table, markdown_text

__all__ = ["write_evidence", "write_readme"]


def write_evidence(folders, out):
    """Write REPORT.md and verdicts.svg.

    Args:
        folders: a list of folders with results.
        out: the folder to write into.

    Returns:
        The path of REPORT.md.
    """
    recorded, out = experiments_in(folders), Path(out)
    rows = claim_rows(recorded)
    blocks = ["# The evidence", _NOTE, "## Verdicts", _verdicts(recorded)]
    if rows:
        blocks.append("![A line for each claim, with its difference and interval](verdicts.svg)")
        with atomic_write(out / "verdicts.svg") as temporary:
            _draw(rows, temporary)
    else:
        (out / "verdicts.svg").unlink(missing_ok=True)
    blocks += ["## Advice", _items(advice(recorded)), "## Experiments", *_experiments(recorded)]
    blocks += ["## Runs", markdown_table(runs_table(recorded).reset_index())]
    with atomic_write(out / "REPORT.md") as temporary:
        temporary.write_text("\n\n".join(filter(None, blocks)) + "\n", encoding="utf-8")
    return out / "REPORT.md"


def _verdicts(recorded, *, primary_only=False):
    """Return a table with a line for each claim with runs of both sides."""
    lines = ["| claim | on our runs | difference in points (95 % interval) | seeds |"]
    lines.append("|---|---|---|---|")
    for one in recorded:
        data = f"mini data of edition {one.edition}" if one.edition else ""
        data = ", ".join(filter(None, (data, one.given)))
        data = data and f" ({data})"
        for claim, found in one.compared:
            primary = claim.get("primary", False)
            if primary or not primary_only:
                says = claim["says"] + data + " (primary)" * (primary and not primary_only)
                lines.append(_verdict(says, found, one.at_least(claim)))
    return "\n".join(lines) if len(lines) > 2 else "No claim has runs of both sides."


def _verdict(says, found, least):
    mean, low, high = (round(value, 1) + 0.0 for value in found[:3])  # no -0.0
    interval = f"{low:+.1f} to {high:+.1f}" if found.pairs > 1 else "no interval"
    said = outcome(found, at_least=least)
    worse = ", it is worse" if said == "does not hold" and found.high < 0 else ""
    cells = (markdown_text(says), said + worse, f"{mean:+.1f} ({interval})", found.pairs)
    return f"| {' | '.join(map(str, cells))} |"


def _experiments(recorded):
    """Return each experiment: what it asks, its claims with runs of both sides, its headline."""
    blocks = []
    for one in recorded:
        size = markdown_text(f"{one.size}, {count(len(one.results), 'run')}")
        blocks.append(f"**{markdown_text(one.experiment.title)}** ({size})")
        blocks += [markdown_text(one.experiment.about), _items(_about_runs(one))]
        table = headline(one.experiment, one.frame)
        blocks.append(markdown_table(_without_gaps(table)) if len(table) else "")
    return blocks


def _about_runs(one):
    return _sentences(one) + _best(one) + _heads_left(one)


def _best(one):
    """Return a sentence for each value that an experiment has chosen."""
    first, key = next(iter(one.experiment.grid)), one.experiment.chosen
    return [
        f"With {first} {method}, {key} {value} has the highest mean ({100 * mean:.2f})."
        for method, (value, mean) in best_values(one.experiment, one.frame).items()
    ]


def _sentences(one):
    """Return a sentence for each claim with runs of both sides, and the number of the others."""
    found = [one.sentence(*pair) for pair in one.compared]
    left = len(one.claims) - len(found)
    noun, has = ("more claim" if found else "claim"), ("has" if left == 1 else "have")
    return found + [f"{count(left, noun)} {has} no runs of both sides."] * bool(left)


def _heads_left(one):
    """Return how many heads the chosen epoch has, for each value of the first parameter."""
    first, left = next(iter(one.experiment.grid)), {}
    for result in one.results:
        if result.get("events") and is_finite(result.get("heads_left")):
            value = result["parameters"].get(first, "missing")
            left.setdefault(str(value), []).append(result["heads_left"])
    return [
        f"Heads in the chosen epoch, with {first} {value}: {statistics.median(heads):g} in the "
        f"median ({min(heads)} to {max(heads)})."
        for value, heads in left.items()
    ]


def _items(lines):
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def _draw(rows, path):
    import textwrap

    import matplotlib
    from matplotlib import pyplot as plt

    from mmlkit.plots.claims import forest

    texts = {"svg.fonttype": "none", "svg.hashsalt": "mmlkit", "text.parse_math": False}
    with matplotlib.rc_context(texts):
        ax = forest([(title, textwrap.fill(says, 58), *rest) for title, says, *rest in rows])
        ax.figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(ax.figure)


def _without_gaps(table):
    """Return the rounded table without columns that have no number."""
    empty = [name for name in ("published", "sd") if table[name].isna().all()]
    return rounded(table).drop(columns=empty)


def write_readme(folders, readme="README.md"):
    """Write the tables of a README, each between its two marks.

    The results of experiments stand between <!-- report --> and <!-- /report -->. Where a folder
    has speed.json, the table of `mmlkit bench` stands between the marks of speed. Two parts are
    written where the file has their marks: the verdicts on primary claims (claims) and the advice
    (advice). Both leave out earlier editions of the mini data.

    Args:
        folders: a list of folders with results.
        readme: the file.

    Returns:
        The path of the file.

    Raises:
        ValueError: the marks are missing (from a private function).
    """
    recorded = experiments_in(folders)
    path = Path(readme)
    text = _between_marks(path.read_text(encoding="utf-8"), "report", _experiments(recorded), path)
    if "<!-- claims -->" in text:
        claims = _verdicts(newest(recorded), primary_only=True)
        text = _between_marks(text, "claims", [claims], path)
    if "<!-- advice -->" in text:
        text = _between_marks(text, "advice", [_items(advice(recorded))], path)
    for file in filter(Path.is_file, (Path(folder, "speed.json") for folder in folders)):
        text = _between_marks(text, "speed", _speed(file), path)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _speed(file):
    from mmlkit.bench.record import speed_sentences, speed_table  # not needed for a report

    record = json.loads(file.read_text(encoding="utf-8"))
    table = speed_table(record)
    return [_items(speed_sentences(record)), markdown_table(table) if len(table) else ""]


def _between_marks(text, mark, blocks, path):
    content = "\n\n".join(filter(None, blocks))
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


_NOTE = """\
`mmlkit report results --readme` writes this page from the result files. A claim *holds* where the
whole 95 % interval of the difference is above what the claim asks for, which is zero unless it
names a number. It *does not hold* where no part of the interval is above that. It *cannot be told*
in all other cases, and always with fewer than six seeds.

The difference is the mean over seeds, first system minus second, in points of 100. With one seed
there is one pair, which may be the mean of several sets. The intervals are over seeds: they do not
cover the choice of dev rows, and they are not corrected for the number of claims. Scores are of the
best epoch on the dev split, for both sides. A *primary* claim is the main one of its experiment.
`experiments/PLAN.md` says what was planned, and what deviates from the plan. The advice leaves out
runs on an edition of the mini data that a newer one has replaced. The runs judge the
encoders and data that they used, and not the papers' larger models.

In the tables, *published* numbers are printed in the papers, and *recomputed* ones follow from
other numbers that the papers print (notebook 06). Hours count the last attempt of a run that was
resumed."""
