"""Draw the figure of docs/guide/measured.md: our pruning runs beside Fig. 2 of the MML paper.

    python benchmarks/readme_figure.py

It reads the recorded runs in results/ and writes notebooks/images/fig2.svg. The file names the
hash of the runs, and a test compares it with the records.
"""

import argparse
import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "notebooks" / "images" / "fig2.svg"


def digest(runs):
    """Return a hash of everything in the runs that the figure shows."""
    shown = [[run.name, run.num_heads, run.steps, run.counts, run.dev] for run in runs]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def main():
    """Write the figure."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "mmlkit"}
    from matplotlib import pyplot as plt

    from mmlcourse import studies
    from mmlcourse.lessons import plots
    from mmlkit.files import atomic_write

    runs = studies.recorded_staircases(ROOT / "results")
    plots.staircases(runs, studies.LANDMARKS)
    metadata = {"Date": None, "Description": f"runs {digest(runs)}"}
    with atomic_write(TARGET) as temporary:
        plt.savefig(temporary, format="svg", metadata=metadata, facecolor="white")
    print(f"{TARGET.relative_to(ROOT)}: {', '.join(run.name for run in runs)}")


if __name__ == "__main__":
    main()
