"""Files that nobody wrote on purpose: bytes, huge lines, other encodings, bombs and links."""

import json
import os
import random
import sys

import pyarrow
import pyarrow.parquet
import pytest
import torch

from mmlcourse.batch.runs import write_json
from mmlcourse.cli.main import main
from mmlcourse.grading.leaderboard import rank
from mmlcourse.grading.submissions import check_folder
from mmlkit.data import files
from mmlkit.data.files import read_rows
from mmlkit.data.loading import load_task
from mmlkit.training.checkpoints import load_checkpoint, save_checkpoint

GOOD = "sentence,label\na good day,positive\na bad day,negative\n"
needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")


def write(folder, content, name="{}.csv"):
    for split in ("train", "dev"):
        path = folder / name.format(split)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


# ---- bytes, line ends and encodings ----


@pytest.mark.parametrize("ending", files.ENDINGS)
def test_random_bytes_are_refused(tmp_path, ending):
    chance, path = random.Random(ending), tmp_path / f"train{ending}"
    for size in (1, 10, 100, 1000, 100_000):
        path.write_bytes(b"\xff" + chance.randbytes(size))
        with pytest.raises(ValueError, match=f"train{ending}") as error:
            read_rows(path)
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "mixed"])
def test_line_ends(tmp_path, end):
    lines, text = GOOD.splitlines(), GOOD.replace("\n", end)
    if end == "mixed":
        text = f"{lines[0]}\r\n{lines[1]}\r{lines[2]}\n"
    data = load_task("sst2", write(tmp_path, text))
    assert data.train.texts == [("a good day",), ("a bad day",)]
    assert data.train.labels.tolist() == [1, 0]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_a_byte_order_mark_is_no_text(tmp_path, ending):
    text = GOOD.replace(",", "\t") if ending == ".tsv" else GOOD
    if ending == ".jsonl":
        text = '{"sentence": "a good day", "label": "positive"}\n' * 2
    data = load_task("sst2", write(tmp_path, text.encode("utf-8-sig"), "{}" + ending))
    assert data.train.texts[0] == ("a good day",) and data.train.columns == {}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_other_encodings_are_refused(tmp_path, encoding):
    text = GOOD.replace("good", "na\xefve")
    with pytest.raises(ValueError, match="train.csv.*(Save the file as UTF-8|NUL|no column)"):
        load_task("sst2", write(tmp_path, text.encode(encoding)))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_a_huge_line_is_parsed(tmp_path, ending):
    huge = "x" * 3_000_000
    text = {
        ".csv": f"sentence,label\n{huge},positive\n",
        ".tsv": f"sentence\tlabel\n{huge}\tpositive\n",
        ".jsonl": json.dumps({"sentence": huge, "label": "positive"}),
    }[ending]
    write(tmp_path, text, "{}" + ending)
    assert load_task("sst2", tmp_path).train.texts == [(huge,)]


@pytest.mark.parametrize("place", ["sentence\0,label\n", "sentence,label\na,pos\0itive\n"])
def test_nul_in_a_header_or_label_is_refused(tmp_path, place):
    with pytest.raises(ValueError, match="train.csv"):
        load_task("sst2", write(tmp_path, place + "b,negative\n"))


# ---- files that are too large ----


def test_a_parquet_file_with_too_many_rows_is_refused(tmp_path):
    """40 million equal rows are a file of some megabytes; in memory they are gigabytes."""
    rows = 5_000_001
    column = pyarrow.chunked_array([pyarrow.repeat(pyarrow.scalar(1, pyarrow.int8()), rows)])
    table = pyarrow.table({"label": column})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    assert (tmp_path / "train.parquet").stat().st_size < 100_000
    message = r"train.parquet has 5,000,001 rows, expected at most 5,000,000\. Take a part of it"
    with pytest.raises(ValueError, match=message):
        read_rows(tmp_path / "train.parquet")


def test_a_parquet_file_that_unpacks_to_too_many_bytes_is_refused(tmp_path, monkeypatch):
    """A long text that repeats is stored once."""
    table = pyarrow.table({"sentence": ["x" * 10_000] * 5000, "label": ["positive"] * 5000})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    size = (tmp_path / "train.parquet").stat().st_size
    monkeypatch.setattr(files, "LARGEST_BYTES", 20_000_000)
    assert size < 1_000_000
    with pytest.raises(ValueError, match="bytes of uncompressed data, expected at most 20,000,000"):
        read_rows(tmp_path / "train.parquet")
    monkeypatch.setattr(files, "LARGEST_BYTES", 100_000_000)
    assert len(read_rows(tmp_path / "train.parquet")[1]) == 5000


@pytest.mark.parametrize("ending", files.ENDINGS)
def test_a_file_that_does_not_fit_into_memory_is_not_read(tmp_path, ending):
    path = tmp_path / f"train{ending}"
    with path.open("wb") as file:
        file.truncate(3_000_000_000)  # a sparse file takes no space
    message = (
        rf"train{ending} has 3,000,000,000 bytes, expected at most 2,000,000,000\. Take a part"
    )
    with pytest.raises(ValueError, match=message):
        read_rows(path)


def test_a_column_that_is_there_twice_in_a_parquet_file(tmp_path):
    one, other = pyarrow.array(["a"]), pyarrow.array(["b"])
    table = pyarrow.Table.from_arrays([one, other], names=["sentence", "sentence"])
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="has the column 'sentence' 2 times, expected once"):
        read_rows(tmp_path / "train.parquet")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"info": 3}', b'{"info": {"features": 3}}'])
def test_damaged_names_of_classes_in_a_parquet_file(tmp_path, content):
    table = pyarrow.table({"sentence": ["a"]}).replace_schema_metadata({b"huggingface": content})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="train.parquet: its names of classes cannot be read"):
        read_rows(tmp_path / "train.parquet")


# ---- links ----


@needs_links
def test_nothing_is_written_through_a_link(tmp_path):
    """A link at the place of an output is replaced; its target stays."""
    secret = tmp_path / "secret"
    for name in ("one.json", "last.safetensors"):
        (tmp_path / "out").mkdir(exist_ok=True)
        secret.write_text("mine")
        (tmp_path / "out" / name).symlink_to(secret)
    write_json(tmp_path / "out" / "one.json", {"a": 1})
    save_checkpoint(tmp_path / "out" / "last.safetensors", {"weights": torch.ones(2)})
    assert secret.read_text() == "mine"
    assert json.loads((tmp_path / "out" / "one.json").read_text()) == {"a": 1}
    assert load_checkpoint(tmp_path / "out" / "last.safetensors")["weights"].tolist() == [1, 1]


@needs_links
def test_links_of_students_are_refused(tmp_path):
    """A link could name the notebook of another student, or a file of the teacher."""
    (tmp_path / "teacher.ipynb").write_text("{}")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "ann.ipynb").write_text("{}")
    assert len(check_folder(tmp_path / "all", "a1")) == 1
    (tmp_path / "all" / "bob.ipynb").symlink_to(tmp_path / "teacher.ipynb")
    with pytest.raises(
        ValueError, match=r"links to other files, \['bob.ipynb'\].*remove the links"
    ):
        check_folder(tmp_path / "all", "a1")


@needs_links
def test_links_of_teams_do_not_count(tmp_path):
    (tmp_path / "teams" / "cheats").mkdir(parents=True)
    name = "sst-dev-output.csv"
    (tmp_path / name).write_text("id \t Predicted_Sentiment\n")
    (tmp_path / "teams" / "cheats" / name).symlink_to(tmp_path / name)
    row = next(row for row in rank(tmp_path / "teams", "mini") if row.team == "cheats")
    assert row.note == f"{name} is a link, expected a file" and row.overall == ""


@needs_links
def test_a_link_to_itself_is_named(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    assert main(["predict", "--model", os.fspath(tmp_path / "loop"), "x"]) == 2
    assert "loop holds no trained model" in capsys.readouterr().err
