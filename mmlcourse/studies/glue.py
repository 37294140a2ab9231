"""GLUE's average scores, and the prediction files of its server, https://gluebenchmark.com.

A file has a header `index`, tab, `prediction`, and then a row per example. The server takes all
files in one zip archive. It asks for WNLI.tsv too, which is not written here. Notebook 07 shows the
tasks.
"""

from pathlib import Path

import numpy as np

from mmlkit.data.files import read_rows
from mmlkit.data.loading import make_split
from mmlkit.data.tasks import get_task
from mmlkit.files import write_file
from mmlkit.hub import load_hub_dataset
from mmlkit.training.evaluation import predict_scores

__all__ = ["glue_average", "write_glue_submission"]

TEST_SETS = {  # the task whose head answers, and the name of the test set
    "CoLA.tsv": ("cola", "test"),
    "SST-2.tsv": ("sst2", "test"),
    "MRPC.tsv": ("mrpc", "test"),
    "STS-B.tsv": ("stsb", "test"),
    "QQP.tsv": ("qqp", "test"),
    "MNLI-m.tsv": ("mnli", "test_matched"),
    "MNLI-mm.tsv": ("mnli", "test_mismatched"),
    "QNLI.tsv": ("qnli", "test"),
    "RTE.tsv": ("rte", "test"),
    "AX.tsv": ("mnli", "diagnostic"),
}


def glue_average(scores, convention="mml-v2"):
    """Return the average of a row of GLUE results by the convention of one paper.

    Args:
        scores: {task: a number, or a pair}. MNLI's pair is (matched, mismatched); other pairs are
            the two metrics of a task.
        convention: "mml-v2" averages eight tasks, and each pair first. "mml-v1" averages all
            numbers, so that MNLI counts twice. "glue", of the benchmark and MT-DNN, is "mml-v2"
            with wnli as a ninth task. The diagnostic set ax is in none.

    Returns:
        The average, a float.

    Raises:
        KeyError: the convention is unknown.
        ValueError: a task is missing or unexpected.
    """
    tasks = {name for name, _ in TEST_SETS.values()}
    wanted = {"mml-v2": tasks, "mml-v1": tasks, "glue": tasks | {"wnli"}}[convention]
    if set(scores) != wanted:
        raise ValueError(f"{convention} averages {sorted(wanted)}, not {sorted(scores)}.")
    values = [np.atleast_1d(np.asarray(one, dtype=float)) for one in scores.values()]
    every = np.concatenate(values) if convention == "mml-v1" else [one.mean() for one in values]
    return float(np.mean(every))


def write_glue_submission(model, source, folder, **keywords):
    """Write GLUE's prediction file for every test set that the model has a head for.

    CoLA, SST-2, MRPC and QQP get 0 or 1; MNLI, QNLI, RTE and AX get the names of labels. STS-B
    gets scores from 0 to 5 with three decimals. All test sets are read before the first prediction.
    A file appears whole or not at all.

    Args:
        model: a MultitaskModel with heads named cola, sst2, mrpc, stsb, qqp, mnli, qnli or rte. The
            head of mnli writes MNLI-m, MNLI-mm and AX.
        source: "hub", or the folder of GLUE's release, with a subfolder per task: CoLA/test.tsv,
            MNLI/test_matched.tsv. AX is left out where there is no diagnostic/diagnostic.tsv.
        folder: where the files are written.
        **keywords: keywords of `predict`, such as batch_size and max_length.

    Returns:
        The paths of the files, a list.

    Raises:
        ValueError: a head does not fit its task, or a score is not finite (from `predict_scores`).
        FileNotFoundError: a test set is missing.

    Example::

        write_glue_submission(model, "glue_data", "submission", max_length=128)
    """
    wanted = {file: name for file, (name, _) in TEST_SETS.items() if name in model.heads}
    test_sets = {file: _read_test_set(file, source) for file in wanted}
    paths, folder = [], Path(folder).expanduser()
    for file, (split, indexes) in ((file, found) for file, found in test_sets.items() if found):
        scores = predict_scores(model, split, **keywords)
        lines = [f"{i}\t{one}\n" for i, one in zip(indexes, _answers(split.task, scores))]
        paths.append(folder / file)
        write_file(paths[-1], "".join(["index\tprediction\n", *lines]))
    return paths


def _answers(task, scores):
    if task.kind == "regression":
        return [f"{score:.3f}" for score in scores[:, 0].clip(*task.score_range)]
    labels = task.labels if "entailment" in task.labels else range(task.num_labels)
    return [labels[i] for i in scores.argmax(axis=1)]


def _read_test_set(file, source):
    """A Split without labels, and the indexes of its rows; None for an AX that is not there."""
    name, stem = TEST_SETS[file]
    task = get_task(name)
    if source == "hub":
        config, part = ("ax", "test") if stem == "diagnostic" else (name, stem)
        place = f"{task.hub[0]}/{config}/{part}"
        rows = load_hub_dataset(task.hub[0], config)[part].to_pandas()
    else:
        places = ("diagnostic", "ax") if stem == "diagnostic" else (name,)
        paths = [
            path
            for path in sorted(Path(source).expanduser().glob(f"*/{stem}.*"))
            if path.parent.name.lower().replace("-", "") in places
        ]
        if not paths and stem == "diagnostic":
            return None
        place = paths[0] if paths else Path(source, name, f"{stem}.tsv")  # read_rows says: missing
        rows = read_rows(place, task)
    index = next((column for column in ("index", "idx") if column in rows), None)
    indexes = list(range(len(rows))) if index is None else rows[index].tolist()
    return make_split(task, rows, place=place, name="test", labels=False), indexes
