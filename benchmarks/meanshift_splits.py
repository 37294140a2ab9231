"""Count the clusters of MeanShift at scikit-learn's default bandwidth in one normal sample.

    python benchmarks/meanshift_splits.py --out results/meanshift_splits.json
    python benchmarks/meanshift_splits.py --rules --out results/meanshift_rules.json

Such a sample has one cluster: its heads differ only by chance. The default bandwidth scales with
the sample, so mean and width do not matter. The table has a row for 1024, 200, 45 and 10 heads,
with bin_seeding and without. A row gives the share of draws with two or more clusters and the mean
number of clusters. For the draws that split, it also gives the median share of heads in the lowest
cluster. With --rules the table compares rules for the bandwidth instead.
"""

import argparse
import json
import statistics

import numpy as np
from sentences import meanshift_sentence

from mmlcourse.machine import describe
from mmlkit.files import write_file
from mmlkit.heads.clustering import cluster

SIZES = (1024, 200, 45, 10)
RULES = ("auto:0.3", "auto:0.1", "std:0.5", "std:1.0", "std:1.2", "std:1.3", "std:1.5")
# Below 2 / q heads, "auto:q" has one neighbour and the bandwidth 0. The sizes on both sides of this
# step are listed.
RULE_SIZES = (384, 200, 100, 60, 45, 20, 19, 10, 7, 6, 5)


def splits(heads, draws, bin_seeding, seed, rule=None):
    """Return one row of the table: the clusters in `draws` samples of a normal distribution."""
    generator = np.random.default_rng(seed)
    counts, kept = [], []
    for _ in range(draws):
        centroids, labels, _ = cluster(generator.normal(size=heads), rule, bin_seeding=bin_seeding)
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


def compare_rules(draws, seed):
    """Return the rows of all rules, with the same samples for every rule."""
    rows = []
    for rule in RULES:
        for heads in RULE_SIZES:
            rows.append({"rule": rule, **splits(heads, draws, True, seed, rule)})
            print(rows[-1], flush=True)
    return rows


def compare_seeding(draws, seed):
    """Return the rows of scikit-learn's default bandwidth, with bin_seeding and without."""
    rows = []
    for bin_seeding in (True, False):
        for heads in SIZES:
            rows.append(splits(heads, draws, bin_seeding, seed))
            print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="samples for each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the figures to this .json file")
    parser.add_argument("--rules", action="store_true", help="compare rules for the bandwidth")
    options = parser.parse_args()
    rows = (compare_rules if options.rules else compare_seeding)(options.draws, options.seed)
    found = {
        "what": "clusters that MeanShift finds in one normal distribution at "
        + ("several bandwidths" if options.rules else "scikit-learn's default bandwidth"),
        "found": meanshift_sentence(rows),
        "seed": options.seed,
        "rows": rows,
        **describe("cpu"),
    }
    if options.out:
        write_file(options.out, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
