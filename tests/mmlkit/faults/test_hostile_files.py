"""Files that nobody wrote on purpose: bytes, huge lines, other encodings, bombs and links."""

import json
import os
import random
import sys

import pytest
import torch

from mmlcourse.batch.runs import write_json
from mmlcourse.cli.main import main
from mmlcourse.grading.leaderboard import rank
from mmlcourse.grading.roster import find_submissions
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
    for size in (1, 100, 10_000):
        path.write_bytes(b"\xff" + chance.randbytes(size))
        with pytest.raises(ValueError, match=f"train{ending}"):
            read_rows(path)


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
    assert len(find_submissions(tmp_path / "all")[0]) == 1
    (tmp_path / "all" / "bob.ipynb").symlink_to(tmp_path / "teacher.ipynb")
    with pytest.raises(
        ValueError, match=r"has links, \['bob.ipynb'\], expected the notebooks themselves"
    ):
        find_submissions(tmp_path / "all")


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
