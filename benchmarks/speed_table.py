"""The tables of recorded speeds: `mmlkit bench` prints them, and this script writes the guide's.

python benchmarks/speed_table.py
"""

import json
from pathlib import Path

from mmlcourse.batch.verdicts import fill_marks
from mmlcourse.text import count, markdown_list, markdown_table

ROOT = Path(__file__).resolve().parents[1]
TASKS = {"sst": "SST-5", "quora": "Quora pairs"}

# {name of a row: (comparison, key, how a value is written)}
_ROWS = {
    "training step, over Trainer as shipped (fp32)": ("step", "over_shipped", "{:.2f}"),
    "training step, over Trainer with its best flags": ("step", "over_best", "{:.2f}"),
    "training step, its time over the roofline": ("step", "time_over_roofline", "{:.2f}"),
    "training step, share of the matmul peak": ("step", "share_of_peak", "{:.0%}"),
    "training step, tokens a second": ("step", "tokens_a_second", "{:,.0f}"),
    "predict_proba, over pipeline as shipped": ("predict", "predict_over_pipeline", "{:.2f}"),
    "predict_proba, over pipeline, tuned": ("predict", "predict_over_tuned", "{:.2f}"),
    "evaluate, over pipeline as shipped": ("predict", "evaluate_over_pipeline", "{:.2f}"),
    "evaluate, over pipeline, tuned": ("predict", "evaluate_over_tuned", "{:.2f}"),
    "predict_proba, share of the matmul peak": ("predict", "share_of_peak", "{:.0%}"),
    "predict_proba, tokens a second": ("predict", "tokens_a_second", "{:,.0f}"),
}


def speed_table(record):
    """Make the table of the comparisons with transformers.

    Args:
        record: a record of `measure_speed`.

    Returns:
        A pandas DataFrame of texts, medians with the lowest and the highest round. It is empty
        where only heads and start were measured.
    """
    import pandas as pd

    cells = {}
    for row, (comparison, key, form) in _ROWS.items():
        for one in record["comparisons"]:
            if one["comparison"] != comparison or key not in one:  # an earlier record has fewer
                continue
            column = f"{TASKS[one['task']]}, {one['precision']}"
            cells.setdefault(row, {})[column] = _interval(one[key], form)
    table = pd.DataFrame.from_dict(cells, orient="index")
    return table.fillna("").rename_axis("speed").reset_index()


def speed_sentences(record):
    """State the machine of a record, the cost of many heads, and the time of a start.

    Args:
        record: a record of `measure_speed`.

    Returns:
        A list of sentences.
    """
    versions = record["versions"]
    data = "the mini data" if record["source"] == "mini" else "the course's files"
    sentences = [
        f"{record['hardware']}, {count(record['threads'], 'thread')}, torch {versions['torch']}, "
        f"transformers {versions['transformers']}, {data}: median of "
        f"{count(record['rounds'], 'round')} (lowest to highest)."
    ]
    for one in record["comparisons"]:
        if one["comparison"] == "heads":
            sentences.append(
                f"{one['heads']} heads instead of one add "
                f"{_interval(one['added_percent'], '{:.1f}')} % to a training step in "
                f"{one['precision']}."
            )
        elif one["comparison"] == "pruning check":
            slowest = max(one["seconds"].values(), key=lambda shape: shape["median"])
            sentences.append(
                f"A pruning check of {one['heads']:,} heads takes {_interval(slowest, '{:.2f}')} s."
            )
        elif one["comparison"] == "start":
            names = ("torch_s", "import_adds_s", "names_add_s", "help_s")
            ready, adds, names, text = (_interval(one[name], "{:.3f}") for name in names)
            sentences.append(
                f"The import of torch takes {ready} s. That of mmlkit adds {adds} s, with the "
                f"names of the first example {names} s. The command mmlkit --help takes {text} s."
            )
    return sentences


def _interval(values, form):
    median, lowest, highest = (
        form.format(values[name]) for name in ("median", "lowest", "highest")
    )
    return f"{median} ({lowest} to {highest})"


def main(page=ROOT / "docs/guide/measured.md"):
    """Write the tables of results/speed*.json between the marks <!-- speed --> of a page."""
    parts = []
    for file in sorted((ROOT / "results").glob("speed*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        parts.append(markdown_list(speed_sentences(record)))
        parts.append(markdown_table(speed_table(record)))
    fill_marks(page, {"speed": parts})


if __name__ == "__main__":
    main()
