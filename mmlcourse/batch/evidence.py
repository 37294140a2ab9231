"""What all recorded runs say, in README.md and results/REPORT.md: `mmlkit report --readme`.

REPORT.md has a verdict on every claim, their figure, advice, and a paragraph for each experiment.
"""

import json
import re
import statistics
from pathlib import Path

from mmlcourse.batch.experiments import is_finite
from mmlcourse.batch.overviews import advice, claim_rows, runs_table
from mmlcourse.batch.recorded import changed_since, experiments_in, newest, without_runs
from mmlcourse.batch.reports import rounded
from mmlcourse.batch.tables import best_values, headline, select, unfinished
from mmlcourse.studies.comparisons import has_interval, outcome
from mmlcourse.text import count, markdown_table, markdown_text, signed, signed_interval
from mmlkit.files import atomic_write, write_file

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
    blocks = ["# The evidence", _NOTE, *_verdicts(recorded)]
    if rows:
        blocks.append("![A line for each claim, with its difference and interval](verdicts.svg)")
        with atomic_write(out / "verdicts.svg") as temporary:
            _draw(rows, temporary)
    else:
        (out / "verdicts.svg").unlink(missing_ok=True)
    blocks += ["## Advice", _items(advice(recorded)), "## Experiments", *_experiments(recorded)]
    blocks += ["## Runs", markdown_table(runs_table(recorded).reset_index())]
    write_file(out / "REPORT.md", _joined(blocks) + "\n")
    return out / "REPORT.md"


def _verdicts(recorded):
    """Return a table of the primary claims, one of other claims with an interval, and the rest."""
    last, others, few = [*map(id, newest(recorded))], [], []
    for one in recorded:
        for claim, found in one.compared:
            if id(one) not in last or not (claim.get("primary") or claim.get("control_of")):
                (others if has_interval(found) else few).append(_verdict(one, claim, found))
    return [
        *("## Verdicts", "### Primary claims", _primary(recorded)),
        *("### Other claims with six seeds or more", _table(others)),
        *("### Claims with fewer seeds, which cannot be told", _table(few)),
    ]


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
        if claim.get("primary") or claim.get("control_of")
    ]
    lines = [_verdict(*row) for *_, row in sorted(rows, key=lambda row: row[:2])]
    left = without_runs(recorded)
    named = f"\n\nPrimary claims without runs so far: {markdown_text('; '.join(left))}."
    return _table(lines) + named * bool(left)


def _table(lines):
    head = ["| claim | on our runs | difference in points (95 % interval) | seeds |"]
    head.append("|---|---|---|---|")
    return "\n".join(head + lines) if lines else "No such claim has runs of both sides."


def _verdict(one, claim, found):
    """Return a line of the table for a claim of a Recorded and its Comparison."""
    data = f"mini data of edition {one.edition}" if one.edition else ""
    parts = data, one.given, _part(one, claim), claim.get("late")
    data = ", ".join(filter(None, parts))
    says = "Control: " * ("control_of" in claim) + claim["says"] + (data and f" ({data})")
    told = has_interval(found)
    interval = signed_interval(found.low, found.high) if told else "no interval"
    said = outcome(found, at_least=one.at_least(claim))
    worse = ", it is worse" if said == "does not hold" and found.high < 0 else ""
    difference = f"{signed(found.difference)} ({interval})"
    cells = (markdown_text(says), said + worse, difference, found.pairs)
    return f"| {' | '.join(map(str, cells))} |"


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
        blocks.append(markdown_table(_without_gaps(table)) if len(table) else "")
    return blocks


def _missing(one):
    """Return a sentence for each parameter of the grid with planned values that have no run."""
    found = []
    for key, planned in one.experiment.grid.items():
        have = {str(result["parameters"].get(key)) for result in one.results}
        left = [str(value) for value in planned if str(value) not in have]
        if key != "seed" and left:
            found.append(f"Not recorded, with {key}: {', '.join(left)}.")
    scores = one.frame[(one.frame["split"] == "dev") & (one.frame["metric"] != "improvement")]
    if short := unfinished(one.experiment, scores):
        first = next(iter(one.experiment.grid))
        found.append(f"Recorded in part, with {first}: {', '.join(sorted(map(str, short)))}.")
    return found


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
        frame, wanted = one.frame_of(side), {**side, "task": task}
        wanted.pop("experiment", None)
        if frame is None or not wanted.keys() <= {*frame}:
            return set()
        found.append({*select(frame, wanted)["seed"]})
    return found[0] & found[1]


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
    return [f"Heads in the chosen epoch, with {first} {v}: {_spread(n)}." for v, n in left.items()]


def _similarity(one):
    """Return how similar the heads of a run are, at its first step and last with several heads."""
    first, found = next(iter(one.experiment.grid)), {}
    for result in one.results:
        rows = result.get("head_similarity")
        rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        rows = [row.get("cosine") for row in rows if row.get("heads") != 1]
        if rows and all(map(is_finite, rows)):
            ends = rows[0], rows[-1]
            found.setdefault(str(result["parameters"].get(first, "missing")), []).append(ends)
    medians = {value: map(statistics.median, zip(*ends)) for value, ends in found.items()}
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


def _items(lines):
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def _draw(rows, path):
    import textwrap

    import matplotlib
    from matplotlib import pyplot as plt

    from mmlcourse.lessons.plots.claims import forest

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

    Marks such as <!-- claims --> and <!-- /claims --> stand on lines of their own. There are four:
    the verdicts on primary claims (claims), the advice (advice), every experiment (report), and,
    where a folder has files such as speed.json, the tables of `mmlkit bench` (speed). Parts without
    marks are left out. Claims and advice leave out earlier editions of the mini data.

    Args:
        folders: a list of folders with results.
        readme: the file.

    Returns:
        The path of the file.

    Raises:
        ValueError: the file has no such marks.
    """
    recorded, path = experiments_in(folders), Path(readme)
    parts = {
        "claims": lambda: [_primary(recorded)],
        "advice": lambda: [_items(advice(recorded))],
        "report": lambda: _experiments(recorded),
    }
    speeds = [file for folder in folders for file in sorted(Path(folder).glob("speed*.json"))]
    if speeds:
        parts["speed"] = lambda: [part for file in speeds for part in _speed(file)]
    marks = rf"(<!-- ({'|'.join(parts)}) -->\n).*?(<!-- /\2 -->)"
    fill = lambda m: f"{m[1]}{_joined(parts[m[2]]())}\n{m[3]}"
    text, found = re.subn(marks, fill, path.read_text(encoding="utf-8"), flags=re.S)
    if not found:
        raise ValueError(
            f"{path} has no place for the results: put <!-- claims --> and <!-- /claims --> on "
            "lines of their own where they belong."
        )
    write_file(path, text)
    return path


def _speed(file):
    from mmlcourse.batch.speed import speed_sentences, speed_table  # not needed for a report

    record = json.loads(file.read_text(encoding="utf-8"))
    table = speed_table(record)
    return [_items(speed_sentences(record)), markdown_table(table) if len(table) else ""]


_NOTE = """\
`mmlkit report results --readme` writes this page from the result files. A claim *holds* where the
whole 95 % interval of the difference is above what the claim asks for, which is zero unless it
names a number. It *does not hold* where no part of the interval is above that. It *cannot be told*
in all other cases, and always with fewer than six seeds. Then there is no interval either: with
three seeds, the true difference lies outside the observed ones in a quarter of cases.

The difference is the mean over seeds, first system minus second, in points of 100. With one seed
there is one pair, which may be the mean of several sets. The intervals are over seeds: they do not
cover the choice of dev rows, and they are not corrected for the number of claims. With six seeds,
the method misses the truth in about 6.5 % of cases instead of 5 % (normal values, simulated), so
among sixty intervals about four probably miss it. Scores are of the best epoch on the dev
split, for both sides.

A *primary* claim is the main one of its experiment. A *control* belongs to a primary claim. The
control on RTE was planned; the others were added when the results of the primary claim were known.
Claims that were written after some or all of their own results say so. A claim without runs has
not been tested. `experiments/PLAN.md` says what was planned, and what deviates from the plan;
`mml-tables` is not part of it, and `together-or-alone` was recorded before it. The advice leaves
out runs on an edition of the mini data that a newer one has replaced.

The encoder is all-MiniLM-L6-v2, a sentence encoder that was already trained on pairs of SNLI,
MultiNLI, Quora and SQuAD. *BERT* is the papers' name for fine-tuning with one linear head; here it
is this encoder with one linear head. The runs judge this encoder and these data, and not the
papers' larger models. A language model wrote the mini data.

In the tables, *published* numbers are printed in the papers, and *recomputed* ones follow from
other numbers that the papers print (notebook 06). Both are of other encoders and data than ours:
compare only within a column. Hours count the last attempt of a run that was resumed."""
