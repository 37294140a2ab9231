"""Faulty data files: the message names the place, the value found and the solution."""

import dataclasses
import json
import warnings

import pyarrow
import pyarrow.parquet
import pytest

from mmlcourse.lessons.profiles import get_profile
from mmlkit.data.batching import encode
from mmlkit.data.files import read_rows
from mmlkit.data.loading import load_task, make_split
from mmlkit.data.tasks import Task, get_task

GOOD = "sentence,label\na good day,positive\na bad day,negative\n"


@pytest.fixture
def write_files(tmp_path):
    """Return a function that writes a train and a dev file (by default valid sst2 files)."""

    def write_files(train=GOOD, dev=GOOD, ending=".csv", encoding="utf-8"):
        for name, text in (("train", train), ("dev", dev)):
            if text is not None:
                content = text if isinstance(text, bytes) else text.encode(encoding)
                (tmp_path / (name + ending)).write_bytes(content)
        return tmp_path

    return write_files


def assert_refused(match_all, *arguments, error=ValueError, **keywords):
    """Check that load_task raises `error` with every part of match_all in its message."""
    with pytest.raises(error) as caught:
        load_task(*arguments, **keywords)
    for part in match_all:
        assert part in str(caught.value)


def test_the_valid_file_loads(write_files):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_task("sst2", write_files()).train.labels.tolist() == [1, 0]


def test_missing_folder(tmp_path):
    assert_refused(
        ["nowhere is not a folder", "'mini', 'hub', or a folder", "'sst2'"],
        "sst2",
        tmp_path / "nowhere",
        error=FileNotFoundError,
    )


@pytest.mark.parametrize(("split", "files"), [("train", {"train": None}), ("dev", {"dev": None})])
def test_missing_file(write_files, split, files):
    other = {"train": "dev.csv", "dev": "train.csv"}[split]
    assert_refused(
        [
            f"no {split} file for task 'sst2'",
            f"{split}.csv",
            f"{split}.parquet",
            f"found ['{other}']",
        ],
        "sst2",
        write_files(**files),
        error=FileNotFoundError,
    )


def test_missing_course_file_is_named(write_files):
    assert_refused(["'ids-sst-train.csv'"], "sst", write_files(train=None), error=FileNotFoundError)


def test_reading_a_missing_file_or_an_unknown_format(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.csv does not exist"):
        read_rows(tmp_path / "gone.csv")
    (tmp_path / "train.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"ends in '.xlsx', expected one of .*'.parquet'"):
        read_rows(tmp_path / "train.xlsx")


def test_wrong_delimiter(write_files):
    assert_refused(
        ["no column 'sentence'", "columns found: ['sentence;label']", "The header is one column"],
        "sst2",
        write_files(GOOD.replace(",", ";")),
    )


def test_comma_file_named_tsv(write_files):
    assert_refused(
        ["no column 'sentence'", "The header is one column"], "sst2", write_files(ending=".tsv")
    )


@pytest.mark.parametrize(
    ("header", "column"), [("review,label", "sentence"), ("sentence,verdict", "label")]
)
def test_missing_column(write_files, header, column):
    assert_refused(
        [f"train.csv has no column '{column}'", str(header.split(",")), "rename the column"],
        "sst2",
        write_files(GOOD.replace("sentence,label", header)),
    )


def test_missing_second_text_of_a_pair():
    with pytest.raises(
        ValueError,
        match=r"no column 'sentence2' .*Expected \['sentence1', 'sentence2'\] and 'label'",
    ):
        make_split("rte", [(1, {"sentence1": "a", "label": "entailment"})])


@pytest.mark.parametrize("label", ["maybe", "0.5", "inf", "nan", "0-1", "-2"])
def test_label_outside_the_set(write_files, label):
    assert_refused(
        [
            "train.csv, row 3",
            "'label'",
            f"label '{label}' is not one of ['negative', 'positive']",
            "labels={",
        ],
        "sst2",
        write_files(GOOD.replace("day,negative", f"day,{label}")),
    )


def test_labels_mapping_to_an_unknown_name(write_files):
    assert_refused(
        ["maps 'positive' to 'great'", "['negative', 'positive']"],
        "sst2",
        write_files(),
        labels={"positive": "great"},
    )


def test_blank_labels_are_counted_and_dropped(write_files):
    folder = write_files(
        "sentence,label\n"
        + "".join(f"day {i},{'' if i in (1, 3) else 'positive'}\n" for i in range(4))
    )
    with pytest.warns(
        UserWarning,
        match=r"train.csv: rows without a label in column 'label': 2 of 4 \(row 3, 5\); "
        r"they were dropped\.",
    ):
        data = load_task("sst2", folder)
    assert data.train.texts == [("day 0",), ("day 2",)]
    assert data.train.labels.tolist() == [1, 1]


def test_blank_labels_are_refused_on_demand(write_files):
    folder = write_files("sentence,label\na good day,\na bad day,negative\n")
    assert_refused(
        [
            "rows without a label in column 'label': 1 of 2 (row 2). Add the labels, or pass "
            "on_bad_row='drop_unlabelled'."
        ],
        "sst2",
        folder,
        on_bad_row="refuse",
    )


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("on_bad_row", ["drop_unlabelled", "drop", "refuse"])
def test_train_and_dev_without_any_label_are_refused(write_files, split, on_bad_row):
    """Only a test file may have an empty label column."""
    assert_refused(
        [
            f"{split}.csv: rows without a label in column 'label': 2 of 2 (row 2, 3). "
            f"Expected labels in a {split} file."
        ],
        "sst2",
        write_files(**{split: "sentence,label\na good day,\na bad day,\n"}),
        on_bad_row=on_bad_row,
    )


@pytest.mark.parametrize("misuse", ["skip", None, True])
def test_on_bad_row_misuse(misuse):
    assert_refused(
        [f"on_bad_row is {misuse!r}", "expected one of ('drop_unlabelled', 'drop', 'refuse')"],
        "sst",
        on_bad_row=misuse,
    )


@pytest.mark.parametrize("limit", [0, -3])
def test_limit_below_one(limit):
    assert_refused([f"limit is {limit}", "at least 1"], "sst", limit=limit)


@pytest.mark.parametrize("score", ["high", "5.1", "-0.2", "nan", "inf"])
@pytest.mark.parametrize("task", ["stsb", "stsb_star"])
def test_score_that_is_not_a_number_or_out_of_range(write_files, task, score):
    text = f"sentence1,sentence2,score\none,two,4.5\none,two,{score}\n"
    assert_refused(
        ["train.csv, row 3", "'score'", f"found '{score}'", "a number from 0 to 5"],
        task,
        write_files(text, text),
    )


@pytest.mark.parametrize("text", ["", "   ", "\u00a0"])
def test_empty_text(write_files, text):
    assert_refused(
        ["train.csv, row 3", "column 'sentence'", "expected some text"],
        "sst2",
        write_files(GOOD.replace("a bad day", text)),
    )


@pytest.mark.parametrize("text", [None, 7, ["a"]])
def test_text_of_another_type(write_files, text):
    lines = (
        json.dumps({"sentence": "a day", "label": "positive"})
        + "\n"
        + json.dumps({"sentence": text, "label": "negative"})
        + "\n"
    )
    assert_refused(
        ["train.jsonl, row 2", f"found {text!r}"],
        "sst2",
        write_files(lines, lines, ending=".jsonl"),
    )


@pytest.mark.parametrize("byte_order_mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    ("broken", "line"),
    [
        (b"sentence,label\nna\xefve,negative\n", 2),
        (b"sentence,label\n\n\xe9clat,negative\n", 3),
        (b"sentence\xff,label\n", 1),
    ],
)
def test_not_utf8_names_the_line(write_files, byte_order_mark, broken, line):
    assert_refused(
        [f"train.csv, line {line}: not UTF-8", "Save the file as UTF-8"],
        "sst2",
        write_files(byte_order_mark + broken),
    )


def test_not_utf8_in_a_jsonl(write_files):
    lines = b'{"sentence": "a day", "label": 1}\n{"sentence": "na\xefve", "label": 1}\n'
    assert_refused(
        ["train.jsonl, line 2: not UTF-8 (byte 0xef)"],
        "sst2",
        write_files(lines, lines, ending=".jsonl"),
    )


@pytest.mark.parametrize(("row", "found"), [("one,two,negative", 3), ("one", 1)])
def test_wrong_number_of_columns(write_files, row, found):
    assert_refused(
        [
            "train.csv, line 3",
            f"{found} columns, expected 2: ['sentence', 'label']",
            "comma or quote",
        ],
        "sst2",
        write_files(f"sentence,label\na good day,positive\n{row}\n"),
    )


def test_wrong_number_of_columns_of_a_tsv(write_files):
    text = "sentence\tlabel\na\tgood day\tpositive\n"
    assert_refused(
        ["train.tsv, line 2", "3 columns", "tab"], "sst2", write_files(text, text, ending=".tsv")
    )


def test_lines_with_a_wrong_number_of_columns_are_dropped_on_demand(write_files):
    folder = write_files(
        "sentence,label\na good day,positive\none,two,negative\none\na bad day,negative\n"
    )
    assert_refused(
        ["train.csv, line 3: 3 columns, expected 2", "on_bad_row='drop'"],
        "sst2",
        folder,
        on_bad_row="refuse",
    )
    with pytest.warns(
        UserWarning,
        match=r"train.csv: 2 of 4 lines without 2 columns were dropped \(line 3, 4\)",
    ):
        data = load_task("sst2", folder, on_bad_row="drop")
    assert data.train.texts == [("a good day",), ("a bad day",)] and data.train.labels.tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize("line", ["a good day,positive", "sentence,label"])
def test_the_only_line_of_a_file_is_reported_as_the_header(write_files, line):
    assert_refused(
        [
            f"train.csv has one line only, which was read as the header: {line.split(',')}",
            "and at least one row below.",
        ],
        "sst2",
        write_files(train=f"{line}\n"),
    )


def test_unclosed_quote(write_files):
    assert_refused(
        ["train.csv, line"],
        "sst2",
        write_files('sentence,label\n"a good day,positive\na bad day,negative\n'),
    )


@pytest.mark.parametrize("text", ["", "sentence,label\n"])
def test_file_without_rows(write_files, text):
    assert_refused(["train.csv"], "sst2", write_files(text))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [('{"sentence": "a", ', "not valid JSON"), ('["a", 1]', "found a list, expected an object")],
)
def test_broken_jsonl_line(write_files, line, complaint):
    text = '{"sentence": "a day", "label": 1}\n\n' + line + "\n"
    assert_refused(
        ["train.jsonl, line 3", complaint], "sst2", write_files(text, text, ending=".jsonl")
    )


def test_truncated_parquet(tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.table({"sentence": ["a"] * 50, "label": [1] * 50}), tmp_path / "dev.parquet"
    )
    whole = (tmp_path / "dev.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(whole[: len(whole) // 2])
    assert_refused(["train.parquet cannot be read as parquet", "truncated"], "sst2", tmp_path)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("cfimbd", "cfimdb"), ("sst5", "sst"), ("mlni", "mnli"), ("sts-b", "stsb")],
)
def test_unknown_task_with_the_nearest_name(wrong, nearest):
    assert_refused(
        [f"'{wrong}' is not a task", "Did you mean", f"'{nearest}'", "Known tasks: sst, cfimdb"],
        wrong,
    )


def test_unknown_task_without_a_near_name():
    with pytest.raises(ValueError, match=r"^'xyzzy' is not a task\. Known tasks"):
        get_task("xyzzy")


def test_unknown_profile():
    with pytest.raises(ValueError, match="'slow' is not a profile. .*fast, colab, paper"):
        get_profile("slow")


def test_task_without_mini_data_points_to_the_hub():
    made_up = dataclasses.replace(get_task("rte"), name="no_mini")
    assert_refused(
        ["'no_mini' has no mini data", "sst", "source='hub'", "source=FOLDER"],
        made_up,
        error=FileNotFoundError,
    )


def test_task_that_is_not_on_the_hub():
    assert_refused(
        ["'cfimdb' is not on the hub", "source='mini'", "pass a Task with hub="], "cfimdb", "hub"
    )


def test_hub_data_without_a_dev_split(monkeypatch):
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_dict({"sentence": ["a day"], "label": [1]})
    monkeypatch.setattr(
        "mmlkit.data.loading.load_hub_dataset",
        lambda *_: DatasetDict({"train": rows, "extra": rows}),
    )
    assert_refused(
        [
            "nyu-mll/glue has splits ['train', 'extra'], expected ['train', 'validation', 'test']",
            "hub_splits=",
        ],
        "sst2",
        "hub",
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (dict(name="a.b"), "task 'a.b': name is 'a.b', expected no '.' and no '/' in it."),
        (dict(name=""), "task '': name is '', expected no '.' and no '/' in it."),
        (
            dict(kind="tagging"),
            "kind is 'tagging', expected one of ('classification', 'regression', 'ranking')",
        ),
        (dict(text_columns=()), "text_columns is (), expected one column, or a pair's two"),
        (dict(text_columns=("a", "b", "c")), "text_columns is ('a', 'b', 'c'), expected"),
        (dict(text_columns=("a", "a", "b")), "text_columns is ('a', 'a', 'b'), expected"),
        (
            dict(labels=()),
            "labels is (), expected two or more different names in order, or none and "
            "kind='regression'",
        ),
        (dict(labels=("yes",)), "labels is ('yes',), expected two or more"),
        (
            dict(labels=("not so", "Not_so")),
            "labels is ('not so', 'Not_so'), expected two or more different",
        ),
        (dict(kind="regression"), "labels is ('no', 'yes'), expected two or more"),
    ],
)
def test_invalid_fields_of_a_new_task(fields, told):
    with pytest.raises(ValueError) as caught:
        Task(**{"name": "mine", "text_columns": ("text",), "labels": ("no", "yes"), **fields})
    assert told in str(caught.value)


def test_rows_of_a_new_task_are_checked(write_files):
    mine = Task("mine", ("text",), ("no", "yes"))
    text = "text,label\na,yes\nb,maybe\n"
    assert_refused(
        ["train.csv, row 3, column 'label': label 'maybe' is not one of ['no', 'yes']"],
        mine,
        write_files(text, text),
    )
    assert_refused(
        [
            "no column 'text' (columns found: ['sentence', 'label']). "
            "Expected ['text'] and 'label' for task 'mine'"
        ],
        mine,
        write_files(GOOD, GOOD),
    )
    text = "text,label\na,1\n"
    assert_refused(
        [
            "row 2, column 'label': found the integer label '1', and nothing says which of "
            "['no', 'yes'] it is"
        ],
        mine,
        write_files(text, text),
    )
    assert_refused(
        ["labels is ['no'], expected the names ['no', 'yes'], each once"],
        mine,
        write_files(text, text),
        labels=("no",),
    )
    assert_refused(["'mine' has no mini data"], mine, error=FileNotFoundError)
    assert_refused(["'mine' is not on the hub"], mine, "hub")
    score = Task("score", ("text",), kind="regression")
    for bad in ("high", "inf", "nan"):
        text = f"text,label\na,{bad}\n"
        assert_refused(
            [f"row 2, column 'label': found '{bad}', expected a number from -3.4e+38 to 3.4e+38"],
            score,
            write_files(text, text),
        )


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ("0\tmaybe\ta\tb\n", ["rte_train.tsv, row 1, column 'label': label 'maybe' is not one of"]),
        (
            "0\t1\ta\tb\n",
            [
                "rte_train.tsv, row 1",
                "found the integer label '1'",
                "labels=('entailment', 'not_entailment')",
            ],
        ),
        (
            "0\tentailment\ta\tb\n1\tentailment\ta\n",
            [
                "rte_train.tsv, line 2: 3 columns, expected 4: "
                "('id', 'label', 'sentence1', 'sentence2')",
                "tab",
            ],
        ),
        ("0\tentailment\ta\n", ["rte_train.tsv, line 1: 3 columns, expected 4"]),
        (
            "0\tentailment\ta\t \n",
            ["rte_train.tsv, row 1, column 'sentence2': found ' ', expected some text"],
        ),
    ],
)
def test_broken_canonical_files(tmp_path, train, told):
    (tmp_path / "rte_train.tsv").write_text(train)
    (tmp_path / "rte_dev.tsv").write_text(train)
    assert_refused(told, "rte", tmp_path)


def test_missing_canonical_file(tmp_path):
    (tmp_path / "rte_train.tsv").write_text("0\tentailment\ta\tb\n")
    assert_refused(
        [
            "no dev file for task 'rte'. Expected one of ['rte_dev.tsv', 'rte_validation.tsv', "
            "'dev.csv', 'dev.tsv'"
        ],
        "rte",
        tmp_path,
        error=FileNotFoundError,
    )


def test_rows_longer_than_the_limit_are_truncated_and_counted_once(tokenizer):
    """512 tokens leave room for 510 words: the third row just fits, the second is one too long."""
    split = make_split(
        "sst2",
        [
            (i, {"sentence": "cat " * words, "label": "positive"})
            for i, words in enumerate((3, 511, 510, 900))
        ],
    )
    with pytest.warns(UserWarning) as told:
        encoded = encode(tokenizer, split)
    assert [str(warning.message) for warning in told] == [
        "sst2 data: 2 of 4 rows longer than 512 tokens were truncated."
    ]
    assert encoded.truncated == 2
    assert encoded.lengths.tolist() == [5, 512, 512, 512]
    assert encoded.input_ids[1] == [2] + [7] * 510 + [3]  # the row still ends in [SEP]


def test_the_longer_text_of_a_pair_is_truncated(tokenizer):
    split = make_split(
        "rte", [(0, {"sentence1": "cat " * 3, "sentence2": "dog " * 9, "label": "entailment"})]
    )
    with pytest.warns(
        UserWarning, match="rte data: 1 of 1 rows longer than 10 tokens were truncated"
    ):
        encoded = encode(tokenizer, split, max_length=10)
    assert encoded.input_ids == [[2, 7, 7, 7, 3, 8, 8, 8, 8, 3]]
    assert encoded.token_type_ids == [[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]]


def test_no_warning_without_truncation(tokenizer):
    split = make_split("sst2", [(0, {"sentence": "cat", "label": "positive"})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encode(tokenizer, split).truncated == 0


SILENT = [  # files that were read silently, as fewer rows, other labels or invisible texts
    (
        {"train.csv": 'label,sentence\npositive,"a good day\n' + "negative,bad\n" * 50},
        ["train.csv, line 2: a quotation mark is opened and never closed"],
    ),
    (
        {"train.csv": 'sentence,label\nfine,positive\n"a good day,positive\nbad,negative\n'},
        ["train.csv, line 3: a quotation mark is opened and never closed"],
    ),
    (
        {"train.csv": 'sentence,label\n"a day,positive\n"bad" day,negative\nx,negative\n'},
        ["train.csv, line 2: a text that begins with a quotation mark", "ends in line 3"],
    ),
    (
        {"train.csv": 'sentence\tlabel\nx\tpositive\n"Fine" day\tpositive\n'},
        ["train.csv, line 3: a text that begins", "ends in line 3", "no tab follows"],
    ),
    (
        {"train.csv": "sentence,sentence,label\na,b,positive\n"},
        ["train.csv has the column 'sentence' 2 times, expected once"],
    ),
    (
        {"train.csv": "sentence,label,label\na,positive,negative\n"},
        ["train.csv has the column 'label' 2 times, expected once"],
    ),
    (
        {"train.jsonl": '{"sentence": "a", "label": "positive", "label": "negative"}\n'},
        ["train.jsonl, line 1", "a key occurs twice in ['sentence', 'label', 'label']"],
    ),
    (
        {"train.csv": GOOD, "train.tsv": GOOD.replace(",", "\t")},
        ["train.csv and train.tsv, expected one train file. Remove or rename"],
    ),
    (
        {"train.csv": "sentence,label\n\u200b,positive\n"},
        ["row 2", "'\\u200b', expected some text"],
    ),
    (
        {"train.csv": "sentence,label\na\0bad,positive\nx,negative\n"},
        ["row 2, column 'sentence'", "which has a NUL character"],
    ),
    (
        {"train.jsonl": '{"sentence": "a \\ud800 day", "label": "positive"}\n'},
        ["row 1, column 'sentence'", "half of a UTF-16 pair"],
    ),
    (
        {"train.jsonl": '{"sentence": ' + "[" * 200_000 + "]" * 200_000 + "}\n"},
        ["train.jsonl, line 1: nested too deeply"],
    ),
    (
        {"train.jsonl": '{"sentence": "a", "label": ' + "1" * 5000 + "}\n"},
        ["train.jsonl, line 1: not valid JSON", "4300 digits"],
    ),
]


@pytest.mark.parametrize(("files", "parts"), SILENT, ids=lambda value: str(value)[:40])
def test_what_was_once_read_silently_is_refused(tmp_path, files, parts):
    for name, text in {"dev.csv": GOOD, **files}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert_refused(parts, "sst2", tmp_path)


@pytest.mark.parametrize(
    "columns, row, parts",
    [
        (
            ("premise", "question1"),
            {"sentence1": "a", "label": "no"},
            ["the columns 'premise' and 'question1'", "both be read from 'sentence1'", "aliases="],
        ),
        (("premise", "sentence1"), {"sentence1": "a", "label": "no"}, ["no column 'premise'"]),
        (("text", "score"), {"text": "a", "score": "b"}, ["no column 'label'"]),
    ],
)
def test_one_column_of_a_file_is_read_once(columns, row, parts):
    """Other names are those of other files, and never the name of another column of the task."""
    with pytest.raises(ValueError) as caught:
        make_split(Task("mine", columns, ("no", "yes")), [(0, row)], name="train")
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize("names", [["0-of-2"], ["0-of-2", "1-of-3"], ["0-of-3", "2-of-3"]])
def test_a_missing_shard_is_named(write_files, names):
    folder = write_files(train=None)
    table = pyarrow.table({"sentence": ["a good day"], "label": ["positive"]})
    for name in names:
        number, count = name.split("-of-")
        file = folder / f"train-{int(number):05d}-of-{int(count):05d}.parquet"
        pyarrow.parquet.write_table(table, file)
    assert_refused(["expected all", "shards of one release. Download them again"], "sst2", folder)


def test_an_entry_that_is_no_file_is_named(write_files):
    folder = write_files(train=None)
    (folder / "train.csv").mkdir()
    (folder / "train.tsv").symlink_to("train.tsv")
    assert_refused(
        ["'train.csv (a folder)'", "'train.tsv (not a file)'"],
        "sst2",
        folder,
        error=FileNotFoundError,
    )


def test_a_text_may_be_longer_than_the_limit_of_the_csv_module(tmp_path):
    """131,072 characters are the default limit of Python, which said "expected columns"."""
    import csv

    long, before = "word " * 40_000, csv.field_size_limit()
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text(
            f'id,sentence,label\n1,"{long}\nend",positive\n2,short,negative\n'
        )
    data = load_task("sst2", source=tmp_path)
    assert len(data.train.texts[0][0]) > 131_072 and csv.field_size_limit() == before
