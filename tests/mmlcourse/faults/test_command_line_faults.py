"""Mistakes on the command line: exit code 2, one message, no traceback, and nothing written.

A line of a table has the arguments, and parts of the message: what came, what was expected, or what
to do. The folder `workplace` holds everything that the arguments name.
"""

import json
import shlex
import shutil

import pytest
from tiny import write_vocabulary

from mmlcourse.cli.main import main
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.heads.linear import LinearHead
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import save_model

MODEL = "xpected a folder written by save_model | mmlkit run 00"
PROFILE = "'huge' is not a profile | Known profiles: fast, colab, paper"
NOTEBOOKS = "Known: 00_start_here, 01_minbert"
WHOLE = "is not a whole number of at least 1"
POSITIVE = "is not a number above 0"
PART = "file"
PLAIN = "expected a plain name such as 'mml-tables' | Correct or remove the file"
NO_RUN = "There is no finished run below | `mmlkit reproduce mml-tables` makes some"
NO_NOTEBOOK = "is not a notebook | Expected a file that Jupyter has written; save or copy it again"
GOOD = "reproduce toml/good/e.toml"

MISTAKES = [
    # predict: the model
    ("predict x", "no model was named | a folder written by save_model | mmlkit run 00"),
    ("predict --model nowhere x", f"nowhere holds no trained model | {MODEL}"),
    ("predict --model file x", f"file holds no trained model | {MODEL}"),
    ("predict --model folder x", f"folder holds no trained model | {MODEL}"),
    ("predict --model loop x", f"loop holds no trained model | {MODEL}"),
    ("predict --model broken x", "mmlkit.json is not valid JSON | Copy or download it again"),
    ("predict --model noheads x", "noheads/heads.safetensors"),
    ("predict --model list x", "it holds a list, expected an object | Copy or download it again"),
    ("predict --model '' x", "argument model: found '', expected a value"),
    # predict: the task
    ("predict --model two x", "has several tasks, ['sst', 'sts'] | say which with --task"),
    (
        "predict --model own x",
        "'spam' is a task of your own | predict_proba(load_model(folder), texts, task=task)",
    ),
    ("predict --model two --task nope x", "'nope' is not a task | Known tasks: sst, cfimdb"),
    ("predict --model two --task SST x", "'SST' is not a task | Did you mean 'sst'"),
    ("predict --model two --task '' x", "argument task: found '', expected a value"),
    ("predict --model two --task rte a b", "no head for task 'rte'; it has ['sst', 'sts']"),
    ("predict --model two --task qnli_rank a b", "no head for task 'qnli_rank'; it has"),
    ("predict --model two --task sts a", "reads pairs | 1 text came. Give an even number"),
    ("predict --model two --task sts a b c", "reads pairs | 3 texts came. Give an even number"),
    # predict: the texts
    (
        "predict --model one",
        "expected either texts or --file, nothing was given. For example: mmlkit predict",
    ),
    ("predict --model one x --file ok.csv", "expected either texts or --file, both were given"),
    ("predict --model one a ' '", "rows without a text: 1 of 2 (row 1). Fill them in"),
    # predict: a file of texts
    ("predict --model one --file gone.csv", "gone.csv"),
    ("predict --model one --file ''", "argument file: found '', expected a value"),
    ("predict --model one --file odd.xlsx", "ends in '.xlsx', expected one of"),
    ("predict --model one --file empty.csv", "empty.csv cannot be read: the file is empty"),
    ("predict --model one --file latin.csv", "latin.csv cannot be read | utf-8"),
    ("predict --model one --file columns.csv", "no column 'sentence' | found: ['a', 'b'] | rename"),
    ("predict --model one --file blank.csv", "blank.csv: rows without a text: 1"),
    ("predict --model one --file quote.csv", "lines 2 to | each mark in it is written twice"),
    ("predict --model one --file ragged.csv", "line 3 has 2 columns, expected 1"),
    ("predict --model one --file bad.parquet", "bad.parquet cannot be read"),
    ("predict --model one --file bad.jsonl", "line 1 is no JSON object"),
    # predict: the place of the output
    ("predict --model one x --out folder", "folder | directory"),
    ("predict --model one x --out ''", "argument out: found '', expected a value"),
    ("predict --model one x --out file/a/out.csv", "file/a"),
    (f"predict --model one x --out {'a' * 300}", "a" * 300),
    # options that argparse refuses
    ("", "Start with `mmlkit doctor`, then `mmlkit run 00`"),
    ("predictt x", "'predictt' is not a command. Did you mean `mmlkit predict`?"),
    ("predict --model", "argument --model: expected one argument"),
    ("predict --model one --file", "argument --file: expected one argument"),
    ("predict --model one x --what", "unrecognized arguments: --what"),
    ("doctor x", "unrecognized arguments: x"),
    ("doctor --executor slurm", "unrecognized arguments: --executor slurm"),
    ("reproduce mml-tables real-rates", "found 'real-rates', expected one experiment"),
    ("reproduce mml-tables -p epochs=1", "found 'epochs=1' | --grid NAME=A,B"),
    # submit
    ("submit --model one", "the following arguments are required: --source"),
    ("submit --source folder", "no model was named | mmlkit run 12"),
    ("submit --model nowhere --source folder", "nowhere holds no trained model | mmlkit run 12"),
    ("submit --model one --source nowhere", "nowhere"),
    ("submit --model one --source folder", "no train file for task 'sst'"),
    ("submit --model one --source folder --out file", "file"),
    ("submit --model one --source folder --option x", "invalid choice: 'x' | 'pretrain'"),
    # run
    ("run 77", f"There is no notebook '77' | {NOTEBOOKS}"),
    ("run gone.ipynb", f"There is no notebook 'gone.ipynb' | {NOTEBOOKS}"),
    ("run file", f"There is no notebook 'file' | {NOTEBOOKS}"),
    ("run folder", f"There is no notebook 'folder' | {NOTEBOOKS}"),
    ("run ''", "argument notebooks: found '', expected a value"),
    ("run 00 --profile huge", PROFILE),
    ("run 00 -p epoch=1", "has no parameter 'epoch'. It has profile, seed"),
    ("run 00 -p epochs", "parameter 'epochs' is not of the form NAME=VALUE"),
    ("run 00 -p =1", "parameter '=1' is not of the form NAME=VALUE"),
    ("run 00 -p ''", "argument parameter: found '', expected a value"),
    ("run text.ipynb", f"text.ipynb | {NO_NOTEBOOK}"),
    ("run list.ipynb", f"list.ipynb | {NO_NOTEBOOK}"),
    ("run toy.ipynb --out file", "File exists. A part of the path is a file, expected a folder"),
    ("run toy.ipynb --out file/x", "file/x | A part of the path is a file, expected a folder"),
    ("run toy.ipynb -p nope=1", "toy.ipynb has no parameter 'nope'. It has profile, item"),
    ("run 00 --jobs 0", f"argument --jobs: '0' {WHOLE}"),
    ("run 00 --jobs x", f"argument --jobs: 'x' {WHOLE}"),
    ("run 00 --stall 0", f"argument --stall: '0' {POSITIVE}"),
    ("run 00 --stall x", f"argument --stall: 'x' {POSITIVE}"),
    ("run 00 --limit -1", f"argument --limit: '-1' {POSITIVE}"),
    ("run 00 --limit nan", f"argument --limit: 'nan' {POSITIVE}"),
    # reproduce: the name
    ("reproduce mml-tabels", "There is no experiment 'mml-tabels'. Did you mean 'mml-tables'?"),
    ("reproduce gone.toml", "no experiment 'gone.toml' | Known: | or the path of a .toml file"),
    ("reproduce folder", "no experiment 'folder' | Known: | or the path of a .toml file"),
    ("reproduce ''", "argument experiment: found '', expected a value"),
    # reproduce: the options
    (f"{GOOD} --profile huge", PROFILE),
    (f"{GOOD} --profile paper", "has no size 'paper'; it has ['fast']. Add a table [paper]"),
    (f"{GOOD} --grid item", "--grid 'item' is not of the form NAME=A,B, such as --grid seed=0,1"),
    (f"{GOOD} --grid item=", "--grid 'item=' is not of the form NAME=A,B"),
    (f"{GOOD} --grid =1", "--grid '=1' is not of the form NAME=A,B"),
    (f"{GOOD} --grid itme=1", "has 'itme', which is unknown. Did you mean 'item'? Known: profile"),
    (f"{GOOD} --grid item=1,1", "every parameter needs at least one value, each once"),
    (f"{GOOD} --seeds 2", "has 'seed', which is unknown | Known: profile, item"),
    (f"{GOOD} --seeds 0", f"argument --seeds: '0' {WHOLE}"),
    (f"{GOOD} --seeds two", f"argument --seeds: 'two' {WHOLE}"),
    (f"{GOOD} --cores 0", f"argument --cores: '0' {WHOLE}"),
    (f"{GOOD} --cores -3", f"argument --cores: '-3' {WHOLE}"),
    (f"{GOOD} --cores 1.5", f"argument --cores: '1.5' {WHOLE}"),
    (f"{GOOD} --out file", "File exists. A part of the path is a file, expected a folder"),
    (f"{GOOD} --out file/x", "Not a directory. A part of the path is a file, expected a folder"),
    (f"{GOOD} --out ''", "argument out: found '', expected a value"),
    # report
    ("report nowhere", "nowhere is not a folder. `mmlkit reproduce NAME` writes its results into"),
    ("report file", "file is not a folder. `mmlkit reproduce NAME` writes its results into"),
    ("report folder", NO_RUN),
    ("report ''", "argument folders: found '', expected a value"),
    (f"report {'a' * 300}", "a" * 300),
    ("report json/escape", f"experiment is '../../x' | {PLAIN}"),
    ("report json/absolute", f"profile is '/etc' | {PLAIN}"),
    ("report json/names", f"""experiment is "['a']" | {PLAIN}"""),
    ("report json/no-profile", f"profile is 'None' | {PLAIN}"),
    ("report json/good --out file", PART),
    ("report json/good --out file/x", PART),
    # bench
    ("bench --source nowhere", "'nowhere' is neither a folder nor the word mini"),
    ("bench --rounds 0", f"argument --rounds: '0' {WHOLE}"),
    (f"bench --rounds {'9' * 5000}", WHOLE),
    ("bench --only all", "invalid choice: 'all' | 'step', 'predict', 'heads', 'start'"),
    ("bench --precision fp8", "invalid choice: 'fp8' | 'fp32', 'bf16', 'fp16'"),
    ("bench --steps -5", "unrecognized arguments: --steps -5"),
    ("bench --model ''", "argument model: found '', expected a value"),
    ("bench --model a/b/c --only step", "a/b/c is not a folder. Give the folder that holds config"),
    ("bench --model folder --only step", "has no config.json | Expected a folder that save_pretr"),
    # grade
    ("grade toml/good", "the following arguments are required: --assignment"),
    ("grade nowhere --assignment a1", "nowhere has no .ipynb file. Give the folder of submissions"),
    ("grade file --assignment a1", "file has no .ipynb file. Give the folder of submissions"),
    ("grade folder --assignment a1", "folder has no .ipynb file. Give the folder of submissions"),
    ("grade toml/good --assignment a9", "'a9' is unknown; expected one of ['a1_minbert'"),
    ("grade toml/good --assignment ../a1", "'../a1' is unknown; expected one of ['a1_minbert'"),
    ("grade toml/good --assignment ''", "argument assignment: found '', expected a value"),
    ("grade toml/good --assignment a1 --jobs 0", f"argument --jobs: '0' {WHOLE}"),
    (
        "grade toml/good --assignment a1 --answers nowhere",
        "nowhere/edition.json is missing | `make course` writes the folder of answers",
    ),
    (
        "grade toml/good --assignment a1 --answers answers",
        "answers/edition.json has no seed; expected {'seed': NUMBER}",
    ),
    (
        "grade . --assignment a1 --gradescope g.json",
        "--gradescope needs a folder with one notebook, . has 3. Move the others away",
    ),
    # leaderboard
    ("leaderboard teams", "the following arguments are required: --source"),
    ("leaderboard nowhere --source mini", "nowhere has no folders. Give a folder with one per"),
    ("leaderboard file --source mini", "file has no folders. Give a folder with one per team"),
    ("leaderboard answers --source mini", "answers has no folders. Give a folder with one per"),
    ("leaderboard teams --source nowhere", "nowhere"),
    ("leaderboard teams --source mini --split train", "invalid choice: 'train' | 'dev', 'test'"),
    ("leaderboard teams --source mini --split test", "no labelled test file of sst to compare"),
    ("leaderboard teams --source mini --out file/x", PART),
]

BASE = 'title = "T"\nnotebook = "toy.ipynb"\n[grid]\nitem = [1]\n[fast]\n'
# Experiment files: {name: (the file, its notebook, parts of the message)}.
EXPERIMENTS = {
    "cut": ("a = [", None, "is not valid TOML | correct the file"),
    "nul": ('a = "\0"', None, "is not valid TOML | correct the file"),
    "empty": ("", None, "the file has no 'title'; it needs title, notebook, grid"),
    "title": (BASE.replace('"T"', "3"), None, "title is 3, expected a text"),
    "notebook": (BASE.replace('"toy.ipynb"', "3"), None, "notebook is 3, expected a text"),
    "fast": (
        BASE.replace("[fast]\n", "").replace("[grid]", "fast = 3\n[grid]"),
        None,
        "fast is 3, expected a table",
    ),
    "grid": (
        BASE.replace("[grid]\nitem = [1]", "grid = [1]"),
        None,
        "grid is [1], expected a table of lists",
    ),
    "item": (BASE.replace("[1]", "3"), None, "grid.item is 3, expected a list"),
    "no items": (BASE.replace("[1]", "[]"), None, "every parameter needs at least one value"),
    "same items": (BASE.replace("[1]", "[1, 1]"), None, "needs at least one value, each once"),
    "limit": (BASE + 'limit = "1"\n', None, "fast.limit is '1', expected a number above 0"),
    "limit below": (BASE + "limit = -1\n", None, "fast.limit is -1, expected a number above 0"),
    "limit nan": (BASE + "limit = nan\n", None, "fast.limit is nan, expected a number above 0"),
    "memory": (BASE + "memory = -5\n", None, "fast.memory is -5, expected a whole number above 0"),
    "threads": (BASE + "threads = 0\n", None, "fast.threads is 0, expected a whole number above"),
    "unknown": (BASE + "limits = 3\n", None, "fast has 'limits' | Did you mean 'limit'? Known:"),
    "parameter": (BASE.replace("item", "itme"), None, "'itme' | Did you mean 'item'? Known: prof"),
    "no notebook": (BASE.replace("toy", "gone"), None, f"no notebook 'gone.ipynb' | {NOTEBOOKS}"),
    "outside": (
        BASE.replace("toy", "../../toy"),
        None,
        "is outside the folder of the file | copy it there if you trust it",
    ),
    "list": (BASE, "[1]", NO_NOTEBOOK),
    "text": (BASE, "no JSON", NO_NOTEBOOK),
    "no cells": (BASE, "{}", NO_NOTEBOOK),
    "a number as cell": (BASE, '{"cells": [3]}', NO_NOTEBOOK),
    "a cell without source": (BASE, '{"cells": [{"metadata": {}}]}', NO_NOTEBOOK),
    "nested": (BASE, "[" * 200_000, NO_NOTEBOOK),
    "not Python": (
        BASE,
        json.dumps(
            {
                "cells": [
                    {
                        "cell_type": "code",
                        "source": "profile = (",
                        "metadata": {"tags": ["parameters"]},
                    }
                ]
            }
        ),
        "the cell tagged parameters is not Python | Expected lines such as seed = 0; correct them",
    ),
}
RUN = {
    "experiment": "mml-tables",
    "profile": "fast",
    "name": "bert-rte-0",
    "parameters": {"method": "bert", "task": "rte", "seed": 0},
    "scores": [{"on": "rte", "split": "dev", "metric": "accuracy", "value": 0.75}],
}
# Results that cannot be read: a warning names each, and the report has the others.
DAMAGED = {
    "cut": "{",
    "nested": "[" * 200_000,
    "bytes": "\udcff",
    "no parameters": json.dumps({**RUN, "parameters": [1]}),
    "a number as score": json.dumps({**RUN, "scores": [3]}),
    "no scores": json.dumps({key: value for key, value in RUN.items() if key != "scores"}),
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Return a folder with everything that the tables name."""
    from transformers import BertTokenizerFast

    place = tmp_path_factory.mktemp("workplace")
    tokenizer = BertTokenizerFast(write_vocabulary(place / "vocab.txt"))
    encoder, heads = BertModel(BertConfig.tiny()), {"sst": LinearHead(32, 5)}
    save_model(MultitaskModel(encoder, heads, tokenizer), place / "one")
    heads = {"sst": LinearHead(32, 5), "sts": LinearHead(32, 1)}
    save_model(MultitaskModel(encoder, heads, tokenizer), place / "two")
    save_model(MultitaskModel(encoder, {"spam": LinearHead(32, 2)}, tokenizer), place / "own")
    cell = {
        "cell_type": "code",
        "source": "profile = 'fast'\nitem = 0\nresult_file = None",
        "metadata": {"tags": ["parameters"]},
        "outputs": [],
        "execution_count": None,
    }
    toy = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    files = {
        "file": "x",
        "folder/x": "x",
        "broken/mmlkit.json": "{",
        "noheads/mmlkit.json": "{}",
        "list/mmlkit.json": "[]",
        "ok.csv": "sentence\na good day\n",
        "odd.xlsx": "PK",
        "empty.csv": "",
        "latin.csv": "sentence\nna\xefve\n".encode("latin-1"),
        "columns.csv": "a,b\na,b\n",
        "blank.csv": 'sentence\n""\n',
        "quote.csv": 'sentence\n"a\n',
        "ragged.csv": "sentence\na\na,b\n",
        "bad.parquet": "x" * 100,
        "bad.jsonl": '{"a"',
        "text.ipynb": "no",
        "list.ipynb": "[]",
        "toy.ipynb": toy,
        "answers/edition.json": "{}",
        "teams/team/x": "x",
        "json/good/run.json": json.dumps(RUN),
        "json/escape/run.json": json.dumps({**RUN, "experiment": "../../x"}),
        "json/absolute/run.json": json.dumps({**RUN, "profile": "/etc"}),
        "json/names/run.json": json.dumps({**RUN, "experiment": ["a"]}),
        "json/no-profile/run.json": json.dumps({**RUN, "profile": None}),
        "other/toy.ipynb": toy,
        "toml/good/e.toml": BASE,
        "toml/good/toy.ipynb": toy,
    }
    for name, (text, notebook, _) in EXPERIMENTS.items():
        files |= {f"toml/{name}/e.toml": text, f"toml/{name}/toy.ipynb": notebook or toy}
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, bytes) else content.encode()
        (place / name).write_bytes(content)
    (place / "loop").symlink_to("loop")
    return place


def everything(place):
    """Return {path: (size, time)} of all files and folders."""
    stats = {path: path.lstat() for path in place.rglob("*")}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def refuse(arguments, message, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.delenv("MMLKIT_DEBUG", raising=False)
    before = everything(place)
    try:
        status = main(shlex.split(arguments))
    except SystemExit as ended:  # of argparse
        status = ended.code
    said = capsys.readouterr()
    assert status == 2, said
    for part in message.split(" | "):
        assert part in said.err, said.err
    assert "Traceback" not in said.err and "fault of mmlkit" not in said.err, said.err
    assert ".tmp" not in said.err and "[Errno" not in said.err, said.err
    assert everything(place) == before


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[one[0][:60] for one in MISTAKES])
def test_a_mistake_is_one_message(workplace, capsys, monkeypatch, arguments, message):
    refuse(arguments, message, workplace, capsys, monkeypatch)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_mistake_in_an_experiment_file(workplace, capsys, monkeypatch, name):
    line = f"reproduce 'toml/{name}/e.toml' --out out"
    refuse(line, EXPERIMENTS[name][2], workplace, capsys, monkeypatch)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_result_is_named_and_left_out(workplace, tmp_path, name):
    shutil.copytree(workplace / "json" / "good", tmp_path / "runs")
    path = tmp_path / "runs" / "damaged.json"
    path.write_bytes(DAMAGED[name].encode("utf-8", "surrogateescape"))
    message = r"damaged.json is not the result of a run .*run it again to replace the file\. The re"
    with pytest.warns(UserWarning, match=message):
        assert main(["report", str(tmp_path / "runs")]) == 0


def test_the_tables_are_long_enough():
    assert len(MISTAKES) + len(EXPERIMENTS) + len(DAMAGED) >= 100
