"""Repeat the live experiment of a lesson with other seeds, and record its effects.

    python benchmarks/lesson_effects.py 03                    seeds 1 to 5
    python benchmarks/lesson_effects.py 03 --seeds 1 2 3

The experiment is the notebook's own code: the cell of parameters, the cell that imports the
library, and the cells with the tag `effect`. These cells leave a dict `effects`, {claim: number};
the claim says that the number is above zero. They may leave a dict `measured`, {name: number},
which claims nothing. A seed that is recorded already, for the same cells,
is not repeated. The committed notebook has seed 0. As there, `precision="auto"` is fp32.
`mmlcourse.studies.recorded_effects` reads the records.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "notebooks"))

from build import IN_FP32  # noqa: E402

LAST = """import json as _json
print('EFFECTS', _json.dumps({"effects": effects, "measured": globals().get("measured", {})}))"""


def experiment(master):
    """Return the cells of a master that make its effects, and their hash.

    The cell with the tag `bootstrap` is one of them, because it imports the library. It does not
    count in the hash, so a release or another address leaves the records valid.
    """
    import jupytext

    cells = [cell for cell in jupytext.read(master).cells if cell.cell_type == "code"]
    tagged = [(set(cell.metadata.get("tags", [])), cell.source) for cell in cells]
    found = [source for tags, source in tagged if tags & {"parameters", "bootstrap", "effect"}]
    counted = [source for tags, source in tagged if tags & {"parameters", "effect"}]
    return found, hashlib.sha256("\n\n".join(counted).encode()).hexdigest()[:16]


def run(cells, seed):
    """Execute the cells in a kernel of their own; return their two dicts and the minutes."""
    import nbclient
    import nbformat

    first, *others = cells
    texts = (IN_FP32, first, f"seed = {seed}", *others, LAST)
    code = [nbformat.v4.new_code_cell(text) for text in texts]
    notebook = nbformat.v4.new_notebook(cells=code)
    resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    start = time.perf_counter()
    nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources=resources
    ).execute()
    minutes = (time.perf_counter() - start) / 60
    printed = "".join(one.get("text", "") for one in notebook.cells[-1].outputs)
    return json.loads(printed.split("EFFECTS", 1)[1]), round(minutes, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", help="of the notebook, such as 03")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    options = parser.parse_args()
    masters = sorted((ROOT / "notebooks" / "src").glob(f"{options.number}_*.py"))
    if len(masters) != 1:
        sys.exit(f"No notebook has the number {options.number}.")
    from mmlcourse.machine import describe
    from mmlkit.files import write_file

    cells, digest = experiment(masters[0])
    place = ROOT / "results" / "lessons" / f"{options.number}.json"
    known = json.loads(place.read_text()) if place.is_file() else {}
    runs = known["runs"] if known.get("cells") == digest else []
    for seed in options.seeds:
        if any(one["seed"] == seed for one in runs):
            continue
        found, minutes = run(cells, seed)
        print(f"seed {seed}, {minutes} minutes: {found}", flush=True)
        found = {name: values for name, values in found.items() if values}
        runs = sorted([*runs, dict(seed=seed, minutes=minutes, **found)], key=seed_of)
        threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count()
        found = {**describe(), "notebook": masters[0].stem, "cells": digest, "threads": threads}
        write_file(place, json.dumps({**found, "runs": runs}, indent=1) + "\n")


def seed_of(one):
    return one["seed"]


if __name__ == "__main__":
    main()
