"""The list of the notebooks, and which of them run on a machine; notebook 00 shows it."""

from mmlcourse.machine import COLAB_GB

__all__ = ["COURSE", "course_table"]

# File, title, subject, minutes (fast, one thread of a busy 2.5 GHz Xeon), and gigabytes of memory.
COURSE = (
    ("00_start_here", "Start here", "this machine, a first classifier", 1, 2),
    ("01_minbert", "minBERT", "the encoder, written by you", 1, 2),
    ("02_finetuning", "Fine-tuning", "AdamW, frozen and fine-tuned encoders", 4, 3),
    ("03_multiverse_loss", "The maximal multiverse loss", "hundreds of orthogonal heads", 2, 3),
    ("04_pruning_heads", "Pruning heads", "MeanShift on the losses of heads", 1, 3),
    ("05_cross_dataset", "On sets it was not trained on", "the cross-dataset protocol", 3, 3),
    ("06_published_tables", "Reading published tables", "misprints, profiles, chance", 1, 3),
    ("07_mtdnn_san", "One encoder, many tasks", "MT-DNN and its answer module, SAN", 3, 3),
    ("08_ranking_pretraining", "Ranking and pre-training", "the 2015 model, hidden words", 4, 3),
    ("09_domain_adaptation", "A new task with few labels", "many draws of few rows", 3, 3),
    ("10_annealed_sampling", "Annealed sampling", "the order of tasks, forgetting", 2, 3),
    ("11_pals", "Projected attention layers", "a small attention for every task", 2, 3),
    ("12_putting_it_together", "Putting it together", "all parts in one model", 3, 4),
)
NO_GPU = ("01_minbert", "06_published_tables")  # their profile colab trains nothing


def course_table(machine):
    """Return the list of the notebooks, and what of it runs on a machine, as a Markdown table.

    Args:
        machine: a dict of `machine.capacity`. The minutes are those of one thread.

    Returns:
        A text with links to the notebooks.
    """
    memory = machine["memory_gb"]
    lines = [
        "| notebook | subject | minutes, `fast` | `fast` runs here | `colab` runs here |",
        "|---|---|---|---|---|",
    ]
    for stem, title, subject, minutes, needed in COURSE:
        fast = "yes" if memory >= needed else f"needs {needed} GB of memory"
        small = f"the GPU has less than {COLAB_GB} GB" if machine["gpu_gb"] else "needs a GPU"
        colab = "yes" if stem in NO_GPU or machine["gpu_gb"] >= COLAB_GB else small
        link = f"[{stem[:2]} {title}]({stem}.ipynb)"
        lines.append(f"| {link} | {subject} | {minutes} | {fast} | {colab} |")
    return "\n".join(lines)
