"""The command line, as a person would type it."""

import csv
import json
import re
import subprocess
import sys

import pytest

from mmlkit.bert import BertConfig, BertModel
from mmlkit.cli import main
from mmlkit.heads import LinearHead
from mmlkit.multitask import MultitaskModel, save_model
from mmlkit.multiverse import MultiverseHead
from mmlkit.pretrained import save_pretrained


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


def test_bench_times_both_precisions(tmp_path, tokenizer, capsys):
    save_pretrained(BertModel(BertConfig.tiny()), tokenizer, tmp_path / "tiny")
    assert main(["bench", "--model", str(tmp_path / "tiny"), "--steps", "2"]) == 0
    said = capsys.readouterr().out
    speed = re.search(r"train_step fp32 +([\d,]+) tokens a second", said)
    assert int(speed[1].replace(",", "")) > 100 and "batches of 32, median of 2" in said


def test_a_report_from_the_command_line(tmp_path, capsys):
    run = {"experiment": "mml-tables", "profile": "fast", "name": "bert-rte-0", "parameters": {"method": "bert", "task": "rte", "seed": 0},
           "scores": [{"on": "rte", "split": "dev", "metric": "accuracy", "value": 0.75}], "sources": {}, "minutes": 1, "device": "cpu", "hardware": "x",
           "versions": {"torch": "2", "mmlkit": "0"}, "peak_memory_mb": 100, "commit": "abc"}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["report", str(tmp_path)]) == 0
    page = tmp_path / "report" / "report.html"
    assert capsys.readouterr().out == f"The report: {page}\n" and "75.00" in page.read_text(encoding="utf-8")
    assert main(["report", str(tmp_path / "report")]) == 1
    assert "There is no finished run below" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "told"), [
    (["reproduce", "mml-tabels"], "There is no experiment 'mml-tabels'. Did you mean 'mml-tables'?"),
    (["reproduce", "mml-tables", "--profile", "slow"], "'slow' is not a profile"),
    (["reproduce", "mml-tables", "--grid", "seed"], "--grid 'seed' is not of the form NAME=A,B"),
    (["reproduce", "mml-tables", "--grid", "sede=1"], "sets 'sede', which cross_dataset.ipynb does not have")])
def test_mistakes_before_a_batch_begins(typed, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(typed) == 1
    assert told in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_what_only_snakemake_knows_is_refused_elsewhere(capsys):
    with pytest.raises(SystemExit):
        main(["doctor", "--executor", "slurm"])
    assert "unrecognized arguments: --executor slurm" in capsys.readouterr().err
