"""The command line, called with the arguments that a user types."""

import csv
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

import mmlkit
from mmlcourse.cli import main as cli
from mmlcourse.cli.main import main
from mmlcourse.text import no_formula
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.training.model import MultitaskModel
from mmlkit.training.saving import save_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path, tokenizer):
    """Return the folder of a tiny untrained model with two tasks."""
    encoder = BertModel(BertConfig.tiny())
    model = MultitaskModel(encoder, {"sst": LinearHead(32, 5), "sts": LinearHead(32, 1)}, tokenizer)
    save_model(model, tmp_path / "two")
    return str(tmp_path / "two")


def test_predict_texts(folder, capsys):
    assert main(["predict", "--model", folder, "--task", "sst", "a good film", "a bad film"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [
        "sentence",
        "label",
        *[f"p({n})" for n in ("very negative", "negative", "neutral", "positive", "very positive")],
    ]
    assert [line[0] for line in lines[1:]] == ["a good film", "a bad film"]
    assert all(abs(sum(map(float, line[2:])) - 1) < 1e-3 for line in lines[1:])


def test_predict_a_file_of_pairs(folder, tmp_path, capsys):
    (tmp_path / "in.csv").write_text(
        'sentence1,sentence2\n"a good film, really",a film\nbad,good\n', encoding="utf-8"
    )
    assert (
        main(
            [
                "predict",
                "--model",
                folder,
                "--task",
                "sts",
                "--file",
                str(tmp_path / "in.csv"),
                "--out",
                str(tmp_path / "out.csv"),
            ]
        )
        == 0
    )
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sentence1"] for row in rows] == ["a good film, really", "bad"] and all(
        float(row["score"]) == float(row["score"]) for row in rows
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "out.csv", "two"]


@pytest.mark.parametrize("column", ["label", "sentiment"])
def test_labels_in_a_file_are_ignored(folder, tmp_path, capsys, column):
    """The column may have any of the known label names. Its integers need no known order."""
    (tmp_path / "in.csv").write_text(f"sentence,{column}\na good film,7\n", encoding="utf-8")
    assert (
        main(["predict", "--model", folder, "--task", "sst", "--file", str(tmp_path / "in.csv")])
        == 0
    )
    assert capsys.readouterr().out.splitlines()[1].startswith("a good film\t")


def test_a_collapsed_model_predicts_like_the_original_model(tokenizer, tmp_path, capsys):
    model = MultitaskModel(
        BertModel(BertConfig.tiny()),
        {"sst": MultiverseHead(32, 5, num_heads=7), "sts": MultiverseHead(32, 1, num_heads=4)},
        tokenizer,
    )
    model.eval().heads["sst"].set_active([True, False, True, True, False, False, True])
    save_model(model, tmp_path / "many")
    save_model(model.collapse(), tmp_path / "one")
    output = {}
    for name in ("many", "one"):
        for task, texts in (("sst", ["a good film"]), ("sts", ["a good film", "a film"])):
            assert main(["predict", "--model", str(tmp_path / name), "--task", task, *texts]) == 0
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        output[name] = [float(lines[1][i]) for i in range(2, 7)] + [float(lines[3][2])]
    assert output["many"] == pytest.approx(output["one"], abs=2e-4) and len(output["one"]) == 6
    assert '"multiverse"' not in (tmp_path / "one" / "mmlkit.json").read_text(encoding="utf-8")


def test_predict_for_a_task_of_ones_own(folder, tmp_path, capsys):
    """The model's folder knows the columns and label names of a task that it was trained on."""
    model = mmlkit.load_model(folder)
    model.heads["spam"] = LinearHead(32, 2)
    task = mmlkit.Task("spam", text_columns=("message",), labels=("no", "yes"))
    model.set_task(task)
    save_model(model, tmp_path / "own")
    assert main(["predict", "--model", str(tmp_path / "own"), "--task", "spam", "a prize"]) == 0
    header, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert header == ["message", "label", "p(no)", "p(yes)"]
    shares = mmlkit.predict_proba(model, ["a prize"], task=task)[0]
    assert [float(one) for one in row[2:]] == pytest.approx(shares, abs=1e-4)
    assert row[:2] == ["a prize", task.labels[shares.argmax()]]


def test_a_report_from_the_command_line(tmp_path, capsys):
    run = {
        "experiment": "mml-tables",
        "profile": "fast",
        "name": "bert-rte-0",
        "parameters": {"method": "bert", "task": "rte", "seed": 0},
        "scores": [{"on": "rte", "split": "dev", "metric": "accuracy", "value": 0.75}],
        "sources": {},
        "minutes": 1,
        "device": "cpu",
        "hardware": "x",
        "versions": {"torch": "2", "mmlkit": "0"},
        "peak_memory_mb": 100,
        "commit": "abc",
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["report", str(tmp_path)]) == 0
    page = tmp_path / "report" / "report.html"
    assert capsys.readouterr().out == f"The report: {page}\n" and "75.00" in page.read_text(
        encoding="utf-8"
    )
    assert main(["report", str(tmp_path / "report")]) == 2
    assert "There is no finished run below" in capsys.readouterr().err


# ---- version, missing models, arguments ----


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"mmlkit {mmlkit.__version__}\n"


def test_reproduce_without_a_name_lists_the_experiments(capsys):
    assert main(["reproduce"]) == 2
    output = capsys.readouterr()
    lines = output.out.splitlines()
    files = Path(__file__).resolve().parents[2].glob("experiments/*.toml")
    assert sorted(line.split("  ")[0] for line in lines) == sorted(path.stem for path in files)
    assert any(re.match("mml-tables {2,}MML v2, Tables 2 to 5", line) for line in lines)
    assert len({re.search(" {2,}", line).end() for line in lines}) == 1  # the titles in one column
    assert output.err.startswith("Name one of them: mmlkit reproduce mml-tables.")


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        (True, "profile colab  should run: not tested on a GPU yet"),
        (False, "profile colab  needs the hub and a GPU"),
    ],
)
def test_doctor_reports_a_gpu_as_untested(monkeypatch, capsys, gpu, message):
    from mmlcourse import machine
    from mmlkit import runtime

    def without_datasets(package, version=metadata.version):
        if package == "datasets":
            raise metadata.PackageNotFoundError(package)
        return version(package)

    description = {**machine.describe(), "threads": 1}
    monkeypatch.setattr(machine, "describe", lambda: description)
    monkeypatch.setattr(runtime, "pick_device", lambda: torch.device("cuda" if gpu else "cpu"))
    monkeypatch.setattr(runtime, "fastest_precision", lambda device: "fp16")
    monkeypatch.setattr("mmlcourse.cli.machine.reachable", lambda: True)
    main(["doctor"])
    output = capsys.readouterr().out
    monkeypatch.setattr("importlib.metadata.version", without_datasets)
    assert main(["doctor"]) == 0
    lacks = "profile colab  will not run: see what is missing above" in capsys.readouterr().out
    assert lacks == gpu
    assert (
        message in output
        and "will run, for hours" not in output
        and ", 1 thread, fastest" in output
    )


# ---- errors ----


def test_ctrl_c_prints_one_word(monkeypatch, capsys):
    def interrupt(_options):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli._COMMANDS, "predict", interrupt)
    assert (
        main(["predict", "--model", "m", "x"]) == 130
        and capsys.readouterr().err == "Interrupted.\n"
    )


def test_a_closed_pipe_is_no_error():
    """`mmlkit reproduce | head -1` can close the pipe before anything is written."""
    code = (
        "import sys, time; from mmlcourse.cli.main import main\nsys.stdin.read(); "
        "sys.exit(main(['reproduce']))"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    run.stdout.close()
    run.stdin.close()
    output = run.stderr.read()
    run.stderr.close()
    assert run.wait() == 141 and "Traceback" not in output and "BrokenPipe" not in output


def test_a_full_disk_names_the_file(folder, tmp_path, monkeypatch, capsys):
    def raise_disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv, "writer", raise_disk_full)
    out = str(tmp_path / "out.csv")
    assert main(["predict", "--model", folder, "--task", "sst", "a film", "--out", out]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mmlkit predict: ") and out in said
    assert "No space left on device" in said
    missing = str(tmp_path / "two" / "config.json" / "out.csv")
    assert main(["predict", "--model", folder, "--task", "sst", "a film", "--out", missing]) == 2
    assert ".tmp" not in capsys.readouterr().err


# ---- predictions ----


def test_formulas_and_control_codes_are_harmless(folder, tmp_path, capsys):
    texts = ["=1+2", "+cmd", "-2", "-x", "@sum", "\tx", "a =b", "bad \x1b[31m red\x07"]
    out = tmp_path / "out.csv"
    assert (
        main(["predict", "--model", folder, "--task", "sst", "--out", str(out), "--", *texts]) == 0
    )
    assert capsys.readouterr().out == f"8 rows written to {out}\n"
    with open(out, encoding="utf-8", newline="") as file:
        found = [row["sentence"] for row in csv.DictReader(file)]
    assert found[:5] == ["'=1+2", "'+cmd", "-2", "'-x", "'@sum"] and found[6:] == texts[6:]
    assert not any(text.startswith(("\t", "=", "+", "@")) for text in found)
    assert main(["predict", "--model", folder, "--task", "sst", "--", *texts]) == 0
    output = capsys.readouterr().out
    assert (
        "bad \\x1b[31m red\\x07" in output
        and "\x1b" not in output
        and "\x07" not in output
        and "\n=1+2\t" in output
    )
    assert main(["predict", "--model", folder, "--task", "sst", "a film", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"1 row written to {out}\n"


def test_a_negative_score_stays_a_number():
    assert [no_formula(cell) for cell in ("-0.1234", "+3", "-inf", "1e-5", "-1e", "", "=1")] == [
        "-0.1234",
        "+3",
        "-inf",
        "1e-5",
        "'-1e",
        "",
        "'=1",
    ]


def test_a_head_with_other_labels_is_refused(tokenizer, tmp_path, capsys):
    """Otherwise nine probabilities would appear under five column headings."""
    for task, outputs in (("sst", 9), ("sts", 2)):
        save_model(
            MultitaskModel(
                BertModel(BertConfig.tiny()), {task: LinearHead(32, outputs)}, tokenizer
            ),
            tmp_path / task,
        )
        assert main(["predict", "--model", str(tmp_path / task), "a", "b"]) == 2
        output = capsys.readouterr()
        assert f"Its head has {outputs} outputs" in output.err and not output.out


def test_scores_that_are_not_finite_are_refused(tokenizer, tmp_path, capsys):
    """Weights of nan once gave the label "very negative". Finite weights can also be too large."""
    model = MultitaskModel(BertModel(BertConfig.tiny()), {"sst": LinearHead(32, 5)}, tokenizer)
    with torch.no_grad():
        model.encoder.pooler.dense.bias.fill_(
            100.0
        )  # all features are 1, and their sum is infinite
        model.heads["sst"].dense.weight.fill_(3e38)
    save_model(model, tmp_path / "large")
    assert main(["predict", "--model", str(tmp_path / "large"), "a film"]) == 2
    output = capsys.readouterr()
    assert "are not finite numbers: the model has diverged" in output.err and not output.out


def test_predictions_use_an_available_gpu(folder, monkeypatch, capsys):
    devices = []
    monkeypatch.setattr("mmlkit.runtime.pick_device", lambda name=None: name or "the gpu")
    monkeypatch.setattr("mmlkit.bert.pretrained.pick_device", torch.device)
    monkeypatch.setattr(MultitaskModel, "to", lambda model, device: devices.append(device) or model)
    assert main(["predict", "--model", folder, "--task", "sst", "a film"]) == 0
    assert set(devices) == {"the gpu"}
    devices.clear()
    assert main(["submit", "--model", folder, "--source", "no-such-folder"]) == 2
    assert set(devices) == {"the gpu"} and "no-such-folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("told"), 2, "mmlkit predict: told\n"),
        (OSError(28, "No space left on device", "x"), 2, "No space left on device: 'x'\n"),
        (ValueError("a\x1b[2Jb\r\x9b"), 2, "mmlkit predict: a\\x1b[2Jb\\x0d\\x9b\n"),
        (KeyError("x"), 1, "unexpected KeyError: 'x'\nMMLKIT_DEBUG=1 before"),
    ],
)
def test_an_error_is_one_message(monkeypatch, capsys, error, status, message):
    def fail(_options):
        raise error

    monkeypatch.setitem(cli._COMMANDS, "predict", fail)
    monkeypatch.delenv("MMLKIT_DEBUG", raising=False)
    assert main(["predict", "--model", "x", "y"]) == status
    output = capsys.readouterr()
    assert message in output.err and "Traceback" not in output.err and not output.out
    monkeypatch.setenv("MMLKIT_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["predict", "--model", "x", "y"])


def test_help_and_a_missing_model_need_no_torch(tmp_path):
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from mmlcourse.cli.main import main\nmain(['predict', '--model', 'nothing', 'x'])\n"
        "main(['--help'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "doctor" in done.stdout
    assert "nothing holds no trained model" in done.stderr and "mmlkit run 00" in done.stderr
