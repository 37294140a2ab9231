"""Count the clusters of MeanShift at scikit-learn's default bandwidth in one normal sample.

    python benchmarks/meanshift_splits.py --out results/meanshift_splits.json

Such a sample has one cluster: its heads differ only by chance. The default bandwidth scales with
the sample, so mean and width do not matter. The table has a row for 1024, 200, 45 and 10 heads,
with bin_seeding and without. A row gives the share of draws with two or more clusters and the mean
number of clusters. For the draws that split, it also gives the median share of heads in the lowest
cluster. Many heads without bin_seeding take seconds per draw, so they get fewer draws. Every row
gives its number of draws.
"""

import argparse
import json
import statistics

import numpy as np

from mmlkit.heads.pruning import cluster
from mmlkit.runtime import atomic_write, describe

SIZES = (1024, 200, 45, 10)
FEWER = {(1024, True): 2, (1024, False): 20, (200, False): 5}  # divisor of the number of draws


def splits(heads, draws, bin_seeding, seed):
    """Return one row of the table: the clusters in `draws` samples of a normal distribution."""
    generator = np.random.default_rng(seed)
    counts, kept = [], []
    for _ in range(draws):
        centroids, labels, _ = cluster(generator.normal(size=heads), bin_seeding=bin_seeding)
        counts.append(len(centroids))
        if len(centroids) > 1:
            kept.append(labels.count(0) / heads)
    return {
        "heads": heads,
        "bin_seeding": bin_seeding,
        "draws": draws,
        "share_split": round(sum(count > 1 for count in counts) / draws, 3),
        "mean_clusters": round(statistics.mean(counts), 2),
        "median_share_kept": round(statistics.median(kept), 3) if kept else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--draws",
        type=int,
        default=200,
        help="samples for each row; a part of them where a draw is slow",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the figures to this .json file")
    options = parser.parse_args()
    rows = []
    for bin_seeding in (True, False):
        for heads in SIZES:
            rows.append(
                splits(
                    heads,
                    max(1, options.draws // FEWER.get((heads, bin_seeding), 1)),
                    bin_seeding,
                    options.seed,
                )
            )
            print(rows[-1], flush=True)
    found = {
        "what": "clusters that MeanShift finds in one normal distribution at scikit-learn's "
        "default bandwidth",
        "seed": options.seed,
        "rows": rows,
        **describe("cpu"),
    }
    if options.out:
        with atomic_write(options.out) as temporary:
            temporary.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
