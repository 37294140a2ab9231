"""What a record of a measurement found, in a sentence: its `found`."""

from mmlcourse.text import count


def multiverse_sentence(record):
    """Say how much many heads at once save, and what they add."""
    loops, last = record["loops"], record["memory"]["rows"][-1]
    return (
        f"{loops['heads']} heads at once are {loops['times_faster']:,} times as fast as loops over "
        f"heads and pairs. The loss of {last['heads']:,} heads adds {last['added_mb']:.0f} MB."
    )


def mini_sentence(what, runs):
    """Say how many runs there are."""
    tasks, seeds = ({run[key] for run in runs} for key in ("task", "seed"))
    return f"{what}: {len(runs)} runs of {len(tasks)} tasks, seeds {sorted(seeds)}."


def profile_sentence(record):
    """Say how much of the time are matrix products."""
    parts = [
        f"{one['products_percent']:.0f} % of a {one['part']} in {one['precision']}, at "
        f"{one['products_percent_of_peak']:.0f} % of the peak"
        for one in record["profiles"]
    ]
    return f"Matrix products take {'; '.join(parts)} ({count(record['threads'], 'thread')})."


def meanshift_sentence(rows):
    """Say how often one normal distribution is split."""
    if "rule" in rows[0]:  # several bandwidths, compared at the largest number of heads
        most = max(row["heads"] for row in rows)
        cases = [(f"with {row['rule']}", row) for row in rows if row["heads"] == most]
        place = f"At {most} heads, a"
    else:
        cases = [(f"at {row['heads']} heads", row) for row in rows[:3]]
        place = "With scikit-learn's default bandwidth, a"
    parts = ", ".join(f"{row['share_split']:.1%} {case}" for case, row in cases)
    return f"{place} sample of one normal distribution is split: {parts} of the draws."


def speed_sentence(comparisons):
    """Say how mmlkit compares with transformers."""
    measured = {
        "step": ("over_best", "Training steps per second, relative to the Trainer's best"),
        "predict": ("predict_over_pipeline", "Predictions per second, relative to the pipeline"),
    }
    found = {}
    for one in comparisons:
        if one["comparison"] in measured:
            key, title = measured[one["comparison"]]
            text = f"{one[key]['median']:.2f} times on {one['task']} in {one['precision']}"
            found.setdefault(title, []).append(text)
    return " ".join(f"{title}: {', '.join(parts)}." for title, parts in found.items())
