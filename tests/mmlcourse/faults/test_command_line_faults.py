"""Mistakes on the command line: exit code 2, one message, no traceback, and nothing written.

A line of a table has the arguments, and parts of the message. The folder `workplace` holds
everything that the arguments name.
"""

import json
import shlex

import pytest
from tiny import write_vocabulary

from mmlcourse.cli.main import main
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.heads.linear import LinearHead
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import save_model

MISTAKES = [
    ("", "{doctor,run,reproduce,report | the following arguments are required"),
    ("notebooks", "invalid choice: 'notebooks' | doctor | run"),
    # predict
    ("predict x", "the following arguments are required: --model"),
    ("predict --model nowhere x", "nowhere holds no trained model | save_model | mmlkit run 00"),
    ("predict --model broken x", "mmlkit.json is not valid JSON"),
    ("predict --model two x", "has several tasks, ['sst', 'sts'] | --task"),
    ("predict --model two --task nope x", "nope"),
    ("predict --model two --task rte a b", "no head for task 'rte'"),
    ("predict --model two --task sts a", "'sts' reads pairs, expected an even number of texts"),
    ("predict --model one", "expected either texts or --file"),
    ("predict --model one x --file ok.csv", "expected either texts or --file"),
    ("predict --model one --file columns.csv", "columns.csv | 'sentence'"),
    ("predict --model one --file ok.csv --out ok.csv", "ok.csv, whose other columns would be lost"),
    ("predict --model one x --out folder", "folder"),
    ("predict --model one x --what", "unrecognized arguments: --what"),
    # submit
    ("submit --model one", "the following arguments are required: --source"),
    ("submit --model nowhere --source folder", "nowhere holds no trained model | mmlkit run 12"),
    # run
    ("run 77", "There is no notebook '77'. Known: all, 00_start_here"),
    ("run toy.ipynb --profile huge -p item=1 -p nope=2", "toy.ipynb has no parameter nope"),
    ("run toy.ipynb -p item", "'item' is not of the form NAME=VALUE"),
    ("run text.ipynb", "text.ipynb is not a notebook"),
    ("run 00 --jobs x", "argument --jobs: invalid int value: 'x'"),
    # reproduce
    ("reproduce mml-tabels", "There is no experiment 'mml-tabels'. Known: | or the path of a"),
    ("reproduce e.toml --profile huge", "'huge' is not a profile"),
    ("reproduce e.toml --profile paper", "has no size 'paper'"),
    ("reproduce e.toml --grid item", "'item' is not of the form NAME=VALUE"),
    ("reproduce e.toml --grid itme=1", "has no parameter ['itme']"),
    ("reproduce e.toml --grid item=1,1", "two of the same name"),
    ("reproduce e.toml --seeds 2", "has no parameter ['seed']"),
    # report
    ("report nowhere", "There is no finished run below nowhere"),
    ("report folder", "There is no finished run below folder. `mmlkit reproduce mml-tables`"),
    # grade and leaderboard
    ("grade folder --assignment a1", "folder has no .ipynb file"),
    ("grade . --assignment a9", "'a9' is unknown; expected one of ['a1_minbert'"),
    ("leaderboard folder", "the following arguments are required: --source"),
    ("leaderboard folder --source mini", "folder has no folders"),
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Return a folder with everything that the table names."""
    from transformers import BertTokenizerFast

    place = tmp_path_factory.mktemp("workplace")
    tokenizer = BertTokenizerFast(write_vocabulary(place / "vocab.txt"))
    encoder, heads = BertModel(BertConfig.tiny()), {"sst": LinearHead(32, 5)}
    save_model(MultitaskModel(encoder, heads, tokenizer), place / "one")
    heads = {"sst": LinearHead(32, 5), "sts": LinearHead(32, 1)}
    save_model(MultitaskModel(encoder, heads, tokenizer), place / "two")
    cell = {
        "cell_type": "code",
        "source": "profile = 'fast'\nitem = 0\nresult_file = None",
        "metadata": {"tags": ["parameters"]},
    }
    files = {
        "folder/x": "x",
        "broken/mmlkit.json": "{",
        "ok.csv": "sentence\na good day\n",
        "columns.csv": "a,b\na,b\n",
        "text.ipynb": "no",
        "toy.ipynb": json.dumps({"cells": [cell]}),
        "e.toml": 'title = "T"\nnotebook = "toy.ipynb"\n[grid]\nitem = [1]\n[fast]\n',
    }
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return place


def everything(place):
    """Return {path: (size, time)} of all files and folders."""
    stats = {path: path.lstat() for path in place.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[one[0] for one in MISTAKES])
def test_a_mistake_is_one_message(workplace, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(workplace)
    monkeypatch.delenv("MMLKIT_DEBUG", raising=False)
    before = everything(workplace)
    try:
        status = main(shlex.split(arguments))
    except SystemExit as ended:  # of argparse
        status = ended.code
    said = capsys.readouterr()
    assert status == 2, said
    for part in message.split(" | "):
        assert part in said.err, said.err
    assert "Traceback" not in said.err and "unexpected" not in said.err, said.err
    assert everything(workplace) == before
