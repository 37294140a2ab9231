"""What the guide and results/REPORT.md say about recorded runs: `mmlkit report --readme`.

REPORT.md has the primary claims. DETAILS.md beside it has all others, their figure, and a paragraph
for each experiment.
"""

import re
import statistics
from pathlib import Path

from mmlcourse.batch.overviews import advice, claim_rows, is_primary, runs_table
from mmlcourse.batch.recorded import changed_since, experiments_in, newest, without_runs
from mmlcourse.batch.scores import best_values, headline, incomplete, rounded
from mmlcourse.studies.comparisons import has_interval
from mmlcourse.text import (
    count,
    markdown_list,
    markdown_table,
    markdown_text,
    signed,
    signed_interval,
)
from mmlkit.files import write_file

__all__ = [
    "COLUMNS",
    "difference",
    "fill_marks",
    "told",
    "verdict",
    "write_evidence",
    "write_readme",
]

COLUMNS = ["claim", "verdict", "difference in points (95 % interval)", "seeds", "scored rows"]
COLUMNS += ["experiment"]
_VERDICTS = "## Verdicts"


def write_evidence(folders, report):
    """Write the part of a REPORT.md that follows from results, and DETAILS.md beside it.

    Args:
        folders: a list of folders with results.
        report: the file. Its text before "## Verdicts" stays.

    Returns:
        The path of the file.
    """
    recorded, path = experiments_in(folders), Path(report)
    details = [
        "# All claims and experiments",
        f"{path.name} has the primary claims, and says how to read the tables. Below each "
        "experiment, published is the mean of the printed cells that our runs have, too.",
        *_other_verdicts(recorded),
        "![A line for each claim, with its difference and interval](verdicts.svg)",
        *("## Experiments", *_experiments(recorded)),
        *("## Runs", markdown_table(runs_table(recorded).reset_index())),
    ]
    if rows := claim_rows(recorded):
        write_file(path.with_name("verdicts.svg"), _forest(rows))
    head = path.read_text(encoding="utf-8").split(_VERDICTS)[0]
    write_file(path, f"{head}{_VERDICTS}\n\n{_primary(recorded, sentences=True)}\n")
    write_file(path.with_name("DETAILS.md"), f"{_joined(details)}\n")
    return path


def write_readme(folders, readme="docs/guide/measured.md"):
    """Write the tables of a page, see `fill_marks`.

    There are three: the verdicts on primary claims (claims), the advice (advice), and every
    experiment (report). Claims and advice leave out earlier editions of the mini data.

    Args:
        folders: a list of folders with results.
        readme: the page.

    Returns:
        Its path.
    """
    recorded = experiments_in(folders)
    parts = {
        "claims": [_primary(recorded)],
        "advice": [markdown_list(advice(recorded))],
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


def _primary(recorded, sentences=False):
    """Return a table of the primary claims on the newest data, and a sentence on the others.

    The controls of an experiment follow its primary claims, where it has runs. With `sentences`,
    the table has what each outcome advises, too.
    """
    last = newest(recorded)
    order = {one.experiment.name: place for place, one in enumerate(last)}
    rows = [
        (order.get(claim.get("control_of"), place), "control_of" in claim, (one, claim, found))
        for place, one in enumerate(last)
        for claim, found in one.compared
        if is_primary(claim)
    ]
    rows = [row for *_, row in sorted(rows, key=lambda row: row[:2])]
    said = [f" {markdown_text(one.advice(claim, found))} |" for one, claim, found in rows]
    lines = [_verdict(*row) + word * sentences for row, word in zip(rows, said)]
    left = without_runs(recorded)
    named = f"\n\nPlanned claims without runs so far: {markdown_text('; '.join(left))}."
    return _table(lines, sentences) + named * bool(left)


def _other_verdicts(recorded):
    """Return a table of other claims with an interval, and one of those without, with titles."""
    last, others, few = [*map(id, newest(recorded))], [], []
    for one in recorded:
        for claim, found in one.compared:
            if id(one) not in last or not is_primary(claim):
                (others if has_interval(found) else few).append(_verdict(one, claim, found))
    return [
        *("## Other claims with six seeds or more", _table(others)),
        *("## Claims with fewer seeds, which are undecided", _table(few)),
    ]


def _table(lines, sentences=False):
    names = COLUMNS + ["in one sentence"] * sentences
    head = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    return "\n".join(head + lines) if lines else "No such claim has runs of both sides."


def _verdict(one, claim, found):
    """Return a line of the table for a claim of a Recorded and its Comparison."""
    says, *cells = map(str, verdict(one, claim, found))
    return f"| {' | '.join([markdown_text(says), *cells])} |"


def verdict(one, claim, found):
    """Return the cells of a claim, one for each of `COLUMNS`.

    Args:
        one: a Recorded.
        claim: of its experiment.
        found: its Comparison.

    Returns:
        A list.
    """
    data = ", ".join(filter(None, (one.data, one.given, one.part(claim), claim.get("late"))))
    says = "Control: " * ("control_of" in claim) + claim["says"] + (data and f" ({data})")
    held_out = one.held_out and "experiment" not in {*claim["first"], *claim["second"]}
    rows = "other sets" if claim.get("on") == "others" else "chose the epoch"
    rows = "held out" if held_out else rows
    name = one.experiment.name
    return [says, one.outcome(found), difference(found), found.pairs, rows, name]


def difference(found):
    """Return a difference with its interval, such as "-0.7 (-2.1 to +0.8)".

    Args:
        found: a Comparison.

    Returns:
        A text.
    """
    interval = signed_interval(found.low, found.high) if has_interval(found) else "no interval"
    return f"{signed(found.difference)} ({interval})"


def _experiments(recorded):
    """Return each experiment: what it asks, its claims with runs of both sides, its headline."""
    blocks = []
    for one in recorded:
        size = markdown_text(f"{one.size}, {count(len(one.results), 'run')}")
        blocks.append(f"**{markdown_text(one.experiment.title)}** ({size})")
        said = [one.sentence(*pair) for pair in one.compared] + told(one)
        blocks += [markdown_text(one.experiment.about), markdown_list(said)]
        table = headline(one.experiment, one.frame)
        if len(table):
            empty = [name for name in ("published", "sd") if table[name].isna().all()]
            blocks.append(markdown_table(rounded(table).drop(columns=empty)))
    return blocks


def told(one):
    """Return what runs tell beside their claims: what is missing, changed, chosen or pruned.

    Args:
        one: a Recorded.

    Returns:
        A list of sentences.
    """
    left = len(one.claims) - len(one.compared)
    noun, has = ("more claim" if one.compared else "claim"), ("has" if left == 1 else "have")
    found = [f"{count(left, noun)} {has} no runs of both sides."] * bool(left)
    found += _missing(one) + changed_since(one) + _best(one)
    return found + _heads_left(one) + _similarity(one)


def _missing(one):
    """Return a sentence for each parameter of the grid with planned values that have no run."""
    found = []
    for key, planned in one.experiment.grid.items():
        have = {str(result["parameters"].get(key)) for result in one.results}
        left = [str(value) for value in planned if str(value) not in have]
        if key != "seed" and left:
            found.append(f"No runs with {key}: {', '.join(left)}.")
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
    pruned = [run for run in one.results if run.get("events")]
    first_heads = sorted({run["num_heads"] for run in pruned if "num_heads" in run})
    of = f" (of {' or '.join(map(str, first_heads))})" * bool(first_heads)
    said = "Heads in the chosen epoch{}, with {} {}: {}."
    return [said.format(of, first, value, _spread(heads)) for value, heads in left.items()]


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

    from mmlcourse.lessons.plots.claims import forest
    from mmlcourse.lessons.plots.common import picture

    lines = [(title, textwrap.fill(says, 58), *rest) for title, says, *rest in rows]
    draw = lambda: forest(lines)
    return picture(draw, format="svg", metadata={"Date": None}, facecolor="white")
