"""Faulty data files: the message names the file, the line or row, and what was expected."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from mmlkit.data.loading import load_task, make_split
from mmlkit.data.tasks import Task

GOOD = "sentence,label\na good day,positive\na bad day,negative\n"
MINE = Task("mine", ("text",), ("no", "yes"))
SCORES = "sentence1,sentence2,score\none,two,4.5\none,two,{}\n"

FILES = [  # task, files, parts of the message
    # which file is meant
    ("sst2", {"train.csv": None}, ["no train file for task 'sst2'", "found ['dev.csv']"]),
    ("sst2", {"dev.csv": None}, ["no dev file for task 'sst2'", "found ['train.csv']"]),
    ("sst2", {"train.tsv": GOOD.replace(",", "\t")}, ["train.csv', 'train.tsv'", "one train file"]),
    # columns
    ("sst2", {"train.csv": GOOD.replace(",", ";")}, ["no column 'sentence'", "sentence;label"]),
    ("sst2", {"train.csv": GOOD.replace("sentence", "x")}, ["has no column 'sentence'", "'x'"]),
    ("sst2", {"train.csv": GOOD.replace("label", "x")}, ["has no column 'label'", "rename"]),
    ("sst2", {"train.csv": "sentence,sentence,label\na,b,positive\n"}, ["unclear which column"]),
    ("sst2", {"train.csv": "sentence,label,label\na,positive,negative\n"}, ["unclear which"]),
    # lines
    ("sst2", {"train.csv": GOOD + "one,two,negative\n"}, ["line 4 has 3 columns, expected 2"]),
    ("sst2", {"train.csv": GOOD + "one\n"}, ["line 4 has 1 columns, expected 2"]),
    ("rte", {"rte_train.tsv": "0\tentailment\ta\n"}, ["rte_train.tsv", "line 1 has 3 columns"]),
    ("sst2", {"train.csv": ""}, ["train.csv", "the file is empty"]),
    ("sst2", {"train.csv": "sentence,label\n"}, ["train.csv: none of 0 rows"]),
    # quotation marks: each of these would be read as fewer rows
    ("sst2", {"train.csv": 'label,sentence\npositive,"a day\nnegative,bad\n'}, ["lines 2 to 3"]),
    ("sst2", {"train.csv": 'sentence,label\n"a,positive\n"b" c,negative\n'}, ["lines 2 to 3"]),
    (
        "sst2",
        {"train.csv": 'sentence\tlabel\nx\tpositive\n"A" b\tpositive\n'},
        ["lines 3 to 3"],
    ),
    # labels and scores
    *[
        ("sst2", {"train.csv": GOOD + f"x,{label}\n"}, ["train.csv, row 4", f"found '{label}'"])
        for label in ("maybe", "0.5", "nan", "0-1", "-2", "1")
    ],
    *[
        (task, {"train.csv": SCORES.format(score)}, [f"row 3, column 'score': found '{score}'"])
        for task in ("stsb", "stsb_star")
        for score in ("high", "5.1", "-0.2", "nan", "inf")
    ],
    ("sst2", {"dev.csv": "sentence,label\na day,\nb day,\n"}, ["dev.csv: none of 2 rows"]),
    (MINE, {"train.csv": "text,label\na,yes\nb,maybe\n"}, ["row 3", "expected one of ['no', 'yes"]),
    # bytes
    ("sst2", {"train.csv": b"sentence,label\nna\xefve,negative\n"}, ["train.csv", "utf-8"]),
    ("sst2", {"train.csv": GOOD.encode("utf-16")}, ["train.csv", "utf-8"]),
]


@pytest.mark.parametrize(("task", "files", "parts"), FILES, ids=lambda value: str(value)[:50])
@pytest.mark.filterwarnings("ignore:.*they were dropped")
def test_a_faulty_file_is_refused(tmp_path, task, files, parts):
    if task == "stsb" or task == "stsb_star":
        files = {"dev.csv": SCORES.format(1), **files}
    for name, text in {"train.csv": GOOD, "dev.csv": GOOD, **files}.items():
        if text is not None:
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_task(task, tmp_path)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("line", ['{"sentence": "a", ', "\xef", '{"sentence": "\\ud800"}'])
def test_broken_jsonl_line(tmp_path, line):
    for name in ("train", "dev"):
        good = json.dumps({"sentence": "a day", "label": "positive"})
        (tmp_path / f"{name}.jsonl").write_text(f"{good}\n\n{line}\n")
    with pytest.raises(ValueError, match=r"train.jsonl cannot be read: line 3 is no JSON object"):
        load_task("sst2", tmp_path)


def test_truncated_parquet(tmp_path):
    table = pyarrow.table({"sentence": ["a"] * 50, "label": [1] * 50})
    pyarrow.parquet.write_table(table, tmp_path / "dev.parquet")
    whole = (tmp_path / "dev.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="train.parquet cannot be read"):
        load_task("sst2", tmp_path)


@pytest.mark.parametrize("names", [["0-of-2"], ["0-of-2", "1-of-3"], ["0-of-3", "2-of-3"]])
def test_a_missing_shard_is_named(tmp_path, names):
    table = pyarrow.table({"sentence": ["a good day"], "label": ["positive"]})
    for name in names:
        number, count = map(int, name.split("-of-"))
        path = tmp_path / f"train-{number:05d}-of-{count:05d}.parquet"
        pyarrow.parquet.write_table(table, path)
    with pytest.raises(ValueError, match="or all its shards of one release"):
        load_task("sst2", tmp_path)


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        (("premise", "question1"), "unclear which column is 'question1'"),
        (("premise", "sentence1"), "no column 'premise'"),
    ],
)
def test_one_column_of_a_file_is_read_once(columns, part):
    """Other names are those of other files, and never the name of another column of the task."""
    with pytest.raises(ValueError, match=part):
        make_split(Task("mine", columns, ("no", "yes")), [{"sentence1": "a", "label": "no"}])


def test_a_task_that_is_not_on_the_hub():
    with pytest.raises(ValueError, match="'cfimdb' is not on the hub. Use a folder"):
        load_task("cfimdb", "hub")
