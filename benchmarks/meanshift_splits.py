"""How often MeanShift at scikit-learn's default bandwidth finds several clusters where there is
one: heads that differ by chance alone.

    python benchmarks/meanshift_splits.py --out results/meanshift_splits.json

Every draw is a sample of a standard normal distribution; the default bandwidth scales with the
sample, so mean and width do not matter. For 1024, 200, 45 and 10 heads, with bin_seeding and
without: the share of draws with two or more clusters, the mean number of clusters, and of the draws
that split the median share of heads in the lowest cluster. Many heads without bin_seeding take
seconds a draw, so they get fewer draws; every row says how many.
"""

import argparse
import json
import statistics

import numpy as np

from mmlkit.heads.pruning import cluster
from mmlkit.runtime import atomic_write, describe

SIZES = (1024, 200, 45, 10)
FEWER = {(1024, True): 2, (1024, False): 20, (200, False): 5}  # divides the draws


def splits(heads, draws, bin_seeding, seed):
    """One row of the table: what `cluster` makes of `draws` samples of one normal distribution."""
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
