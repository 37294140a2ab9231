"""The command line, as a person would type it."""

import csv
import subprocess
import sys

import pytest

from mmlkit.bert import BertConfig, BertModel
from mmlkit.cli import main
from mmlkit.heads import LinearHead
from mmlkit.multitask import MultitaskModel, save_model
from mmlkit.multiverse import MultiverseHead


@pytest.fixture
def folder(tmp_path, tokenizer):
    """A tiny untrained model of two tasks, saved."""
    encoder = BertModel(BertConfig.tiny())
    model = MultitaskModel(encoder, {"sst": LinearHead(32, 5), "sts": LinearHead(32, 1)}, tokenizer)
    save_model(model, tmp_path / "two")
    return str(tmp_path / "two")


def test_help_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from mmlkit.cli import main\ntry: main(['--help'])\nexcept SystemExit as e: sys.exit(e.code)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "doctor" in done.stdout and "predict" in done.stdout, done.stderr


def test_doctor_says_what_runs(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "profile fast   will run" in said and "weights        minilm installed" in said


def test_predict_texts(folder, capsys):
    assert main(["predict", "--model", folder, "--task", "sst", "a good film", "a bad film"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["sentence", "label", *[f"p({n})" for n in ("very negative", "negative", "neutral", "positive", "very positive")]]
    assert [line[0] for line in lines[1:]] == ["a good film", "a bad film"]
    assert all(abs(sum(map(float, line[2:])) - 1) < 1e-3 for line in lines[1:])


def test_predict_a_file_of_pairs(folder, tmp_path, capsys):
    (tmp_path / "in.csv").write_text('sentence1,sentence2\n"a good film, really",a film\nbad,good\n', encoding="utf-8")
    assert main(["predict", "--model", folder, "--task", "sts", "--file", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sentence1"] for row in rows] == ["a good film, really", "bad"] and all(float(row["score"]) == float(row["score"]) for row in rows)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "out.csv", "two"]


def test_a_collapsed_model_predicts_like_the_one_it_came_from(tokenizer, tmp_path, capsys):
    model = MultitaskModel(BertModel(BertConfig.tiny()), {"sst": MultiverseHead(32, 5, num_heads=7), "sts": MultiverseHead(32, 1, num_heads=4)}, tokenizer)
    model.eval().heads["sst"].set_active([True, False, True, True, False, False, True])
    save_model(model, tmp_path / "many")
    save_model(model.collapse(), tmp_path / "one")
    said = {}
    for name in ("many", "one"):
        for task, texts in (("sst", ["a good film"]), ("sts", ["a good film", "a film"])):
            assert main(["predict", "--model", str(tmp_path / name), "--task", task, *texts]) == 0
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        said[name] = [float(lines[1][i]) for i in range(2, 7)] + [float(lines[3][2])]
    assert said["many"] == pytest.approx(said["one"], abs=2e-4) and len(said["one"]) == 6
    assert '"multiverse"' not in (tmp_path / "one" / "mmlkit.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments, message", [
    (["predict", "--model", "nowhere", "text"], "nowhere holds no trained model"),
    (["predict", "--model", "FOLDER", "text"], "has several tasks, ['sst', 'sts']; say which with --task"),
    (["predict", "--model", "FOLDER", "--task", "rte", "a", "b"], "no head for task 'rte'"),
    (["predict", "--model", "FOLDER", "--task", "sts", "only one"], "reads pairs"),
    (["predict", "--model", "FOLDER", "--task", "sst"], "give either texts or --file"),
    (["predict", "--model", "FOLDER", "--task", "sst", " "], "expected some text"),
    (["run", "77"], "There is no notebook '77'"),
    (["run", "00", "--profile", "huge"], "'huge' is not a profile. Known profiles: fast, colab, paper"),
    (["run", "00", "-p", "epoch=1"], "has no parameter 'epoch'"),
])
def test_mistakes_are_one_message(folder, capsys, arguments, message):
    assert main([folder if argument == "FOLDER" else argument for argument in arguments]) == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said
