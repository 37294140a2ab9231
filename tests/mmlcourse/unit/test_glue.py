"""GLUE's submission files: names, headers, labels, exact numbers, and every error."""

import numpy as np
import pytest
import torch

from mmlcourse.studies.glue import TEST_SETS, write_glue_submission
from mmlkit.data.tasks import get_task
from mmlkit.training.evaluation import predict_scores

NAMES = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
HEADERS = {  # the test files of GLUE's release: {file: its columns}
    "CoLA/test": "index\tsentence",
    "SST-2/test": "index\tsentence",
    "MRPC/test": "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B/test": "index\tgenre\tsentence1\tsentence2",
    "QQP/test": "id\tquestion1\tquestion2",
    "MNLI/test_matched": "index\tpromptID\tsentence1\tsentence2",
    "MNLI/test_mismatched": "index\tpromptID\tsentence1\tsentence2",
    "QNLI/test": "index\tquestion\tsentence",
    "RTE/test": "index\tsentence1\tsentence2",
    "diagnostic/diagnostic": "index\tsentence1\tsentence2",
}
TEXTS = (("the film", "good"), ("one plot", "bad"), ("it was very plain", "the story"))
FILES = sorted(TEST_SETS)


@pytest.fixture
def release(tmp_path):
    """Return GLUE's folder with three rows in each test set. Quotation marks are part of a text."""
    for place, header in HEADERS.items():
        columns, path = header.split("\t"), tmp_path / "glue" / f"{place}.tsv"
        texts = [i for i, name in enumerate(columns) if name[-1] in "12e" or "String" in name]
        texts = [i for i in texts if columns[i] != "genre"] or texts
        lines = [header]
        for row, pair in enumerate(TEXTS):
            cells = [str(row) if i == 0 else "x" for i in range(len(columns))]
            for i, text in zip(texts, pair):
                cells[i] = f'"{text}'
            lines.append("\t".join(cells))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "glue"


def rows_of(path):
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    assert header == "index\tprediction"
    indexes, predictions = zip(*(line.split("\t") for line in lines))
    assert indexes == ("0", "1", "2")
    return list(predictions)


def set_constant_scores(model, task, scores):
    """Make the head of a task return these scores for every text."""
    with torch.no_grad():
        model.heads[task].dense.weight.zero_()
        model.heads[task].dense.bias.copy_(torch.tensor(scores))


def test_every_official_file_is_written(make_model, release, tmp_path):
    model = make_model(*NAMES)
    paths = write_glue_submission(model, release, tmp_path / "out", batch_size=2, max_length=32)
    assert sorted(path.name for path in paths) == FILES
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    quoted = [tuple(f'"{text}' for text in pair) for pair in TEXTS]
    for file, (name, _) in TEST_SETS.items():
        task = get_task(name)
        texts = [pair[: len(task.text_columns)] for pair in quoted]
        scores = np.asarray(predict_scores(model, texts, task=name))
        if name == "stsb":
            expected = [f"{min(max(score, 0), 5):.3f}" for score in scores[:, 0]]
        elif name in ("mnli", "qnli", "rte"):
            expected = [task.labels[i] for i in scores.argmax(axis=1)]
        else:
            expected = [str(i) for i in scores.argmax(axis=1)]
        assert rows_of(tmp_path / "out" / file) == expected, file


@pytest.mark.parametrize(
    ("task", "scores", "files", "expected"),
    [
        ("cola", [0.0, 1.0], ["CoLA.tsv"], "1"),  # acceptable
        ("sst2", [1.0, 0.0], ["SST-2.tsv"], "0"),  # negative
        ("mrpc", [0.0, 1.0], ["MRPC.tsv"], "1"),  # equivalent
        ("qqp", [0.0, 1.0], ["QQP.tsv"], "1"),  # duplicate
        ("stsb", [7.3], ["STS-B.tsv"], "5.000"),
        ("stsb", [-0.4], ["STS-B.tsv"], "0.000"),
        ("stsb", [2.34567], ["STS-B.tsv"], "2.346"),
        ("qnli", [0.0, 1.0], ["QNLI.tsv"], "not_entailment"),
        ("rte", [1.0, 0.0], ["RTE.tsv"], "entailment"),
        ("mnli", [0.0, 0.0, 1.0], ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"], "contradiction"),
        ("mnli", [0.0, 1.0, 0.0], ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"], "neutral"),
    ],
)
def test_labels_and_numbers_by_hand(make_model, release, tmp_path, task, scores, files, expected):
    model = make_model(task)
    set_constant_scores(model, task, scores)
    write_glue_submission(model, release, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files
    for file in files:
        lines = "".join(f"{i}\t{expected}\n" for i in range(3))
        assert (tmp_path / "out" / file).read_bytes() == f"index\tprediction\n{lines}".encode()


def test_the_index_of_the_file_is_kept_and_labels_are_ignored(make_model, tmp_path):
    """A subfolder may have our name of the task. Labels in a test file are ignored."""
    (tmp_path / "rte").mkdir()
    text = "idx,sentence1,sentence2,label\n7,the film,good,-1\n5,one plot,bad,entailment\n"
    (tmp_path / "rte" / "test.csv").write_text(text)
    model = make_model("rte")
    set_constant_scores(model, "rte", [1.0, 0.0])
    (path,) = write_glue_submission(model, tmp_path, tmp_path / "out")
    assert path.read_text() == "index\tprediction\n7\tentailment\n5\tentailment\n"


def test_the_diagnostic_set_is_optional(make_model, release, tmp_path):
    (release / "diagnostic" / "diagnostic.tsv").unlink()
    paths = write_glue_submission(make_model("mnli"), release, tmp_path / "out")
    assert [path.name for path in paths] == ["MNLI-m.tsv", "MNLI-mm.tsv"]


def test_the_hub(make_model, tmp_path, monkeypatch):
    """Each test set comes from its own configuration and split."""

    from datasets import Dataset

    requests = []

    def load(repository, config):
        requests.append((repository, config))
        names = ("premise", "hypothesis") if config in ("mnli", "ax") else ("question", "sentence")
        rows = Dataset.from_list(
            [{**dict(zip(names, pair)), "label": -1, "idx": i} for i, pair in enumerate(TEXTS)]
        )
        parts = ("test_matched", "test_mismatched") if config == "mnli" else ("test",)
        return dict.fromkeys(parts, rows)

    monkeypatch.setattr("mmlcourse.studies.glue.load_hub_dataset", load)
    paths = write_glue_submission(make_model("mnli", "qnli"), "hub", tmp_path / "out")
    assert [path.name for path in paths] == ["MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "AX.tsv"]
    assert requests == [("nyu-mll/glue", config) for config in ("mnli", "mnli", "qnli", "ax")]
    assert all(len(rows_of(path)) == 3 for path in paths)


def test_a_missing_test_set_is_reported_before_anything_is_written(make_model, release, tmp_path):
    (release / "MNLI" / "test_mismatched.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="mnli/test_mismatched.tsv"):
        write_glue_submission(make_model("cola", "mnli"), release, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_row_without_text_is_reported_with_its_position(make_model, release, tmp_path):
    path = release / "RTE" / "test.tsv"
    path.write_text(path.read_text().replace('"bad', ""))
    with pytest.raises(ValueError, match=r"RTE/test.tsv: rows without a text: 1 of 3 \(row 3\)"):
        write_glue_submission(make_model("rte"), release, tmp_path / "out")
