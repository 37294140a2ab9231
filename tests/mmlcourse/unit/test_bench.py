"""The arithmetic of the speed records, and that both sides do the same work. Nothing is timed."""

import contextlib
import json
import subprocess
from types import SimpleNamespace

import heads
import numpy as np
import predictions
import pytest
import speed
import start
import steps
import timing
import torch
import transformers
from torch import nn

from mmlcourse.cli.main import main
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.batching import encode, plan
from mmlkit.data.loading import load_task
from mmlkit.runtime import pick_device

CPU = pick_device("cpu")
SHORT = dict(rounds=2, steps=2, warm_up=1, batch_size=4)


def test_linear_parameters_by_hand():
    """A layer has four maps of 32 x 32, and one of 32 x 64 in each direction."""
    assert timing.linear_parameters(BertConfig.tiny()) == 2 * (4 * 1024 + 2 * 2048) == 16384
    minilm = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    assert timing.linear_parameters(minilm) == 10_616_832


def test_linear_parameters_equal_those_of_transformers():
    config = BertConfig.tiny(num_hidden_layers=3)
    sizes = {name: getattr(config, name) for name in config.__dataclass_fields__}
    layers = transformers.BertModel(transformers.BertConfig(**sizes)).encoder
    weights = [one.weight.numel() for one in layers.modules() if isinstance(one, nn.Linear)]
    assert timing.linear_parameters(config) == sum(weights)


def test_variants_alternate_and_every_second_round_is_reversed():
    called = []

    def variant(name):
        return lambda i: called.append(f"{name}{i}") or i + len(name)

    found = timing.alternate({name: variant(name) for name in ("a", "bb", "ccc")}, 3)
    assert called == ["a0", "bb0", "ccc0", "ccc1", "bb1", "a1", "a2", "bb2", "ccc2"]
    assert [list(one.items()) for one in found] == [
        [("a", i + 1), ("bb", i + 2), ("ccc", i + 3)] for i in range(3)
    ]


def test_spread():
    assert timing.spread(iter([4.0, 1.0, 2.00004, 9.0])) == {
        "median": 3.0,
        "lowest": 1.0,
        "highest": 9.0,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_peak_is_the_faster_path(monkeypatch, precision):
    """A product of 2048 x 1024 x 1024 has 4.295 GFLOP. The second path takes half of the time.

    The other products of a path take longer, and do not count.
    """
    paths = []

    def pretended(function, device):
        paths.append(torch.get_float32_matmul_precision())
        times = 1 if paths.count(paths[-1]) == 4 else 3
        return times * (0.5 if paths[-1] == "highest" else 0.25)

    monkeypatch.setattr(timing, "seconds", pretended)
    before = torch.get_float32_matmul_precision()
    peak = timing.matmul_peak(precision, CPU)
    assert torch.get_float32_matmul_precision() == before
    if precision == "bf16":
        assert paths == ["highest"] * 10 and peak == pytest.approx(8.589934592)
    elif "medium" in paths:  # not where this CPU rounds to bf16 on that path
        assert len(paths) == 20 and peak == pytest.approx(17.179869184)


def test_the_record_of_steps_by_hand():
    """One token costs 6 x 1,000 FLOP, so 200 tokens a second are 1.2 MFLOP/s."""
    found = [
        {"shipped": 100.0, "ours bf16": 200.0, "best bf16": 160.0, "peak bf16": 0.1},
        {"shipped": 50.0, "ours bf16": 300.0, "best bf16": 150.0, "peak bf16": 0.1},
        {"shipped": 80.0, "ours bf16": 240.0, "best bf16": 300.0, "peak bf16": 0.2},
    ]
    one = steps.step_record({"task": "sst", "linear_parameters": 1000}, "bf16", found)
    assert one["over_shipped"] == {"median": 3.0, "lowest": 2.0, "highest": 6.0}
    assert one["over_best"] == {"median": 1.25, "lowest": 0.8, "highest": 2.0}
    assert one["share_of_peak"] == {"median": 0.0072, "lowest": 0.006, "highest": 0.009}
    assert one["tokens_a_second"]["median"] == 240 and one["task"] == "sst"
    assert one["rounds"][1] == {"ours": 300, "shipped": 50, "best": 150, "peak_gflops": 0.1}
    assert len(one["rounds"]) == 3 and one["comparison"] == "step" and one["precision"] == "bf16"


def test_the_record_of_predictions_by_hand():
    """One token costs 2 x 1,000 FLOP."""
    names = ("predict", "evaluate", "pipeline shipped", "pipeline tuned", "peak")
    values = [(2.0, 2.5, 4.0, 8.0, 0.1), (1.0, 2.0, 8.0, 4.0, 0.2)]
    found = [{f"{name} fp32": value for name, value in zip(names, row)} for row in values]
    one = predictions.prediction_record({"linear_parameters": 1000, "tokens": 800}, "fp32", found)
    assert one["rounds"] == [
        {"predict": 400, "evaluate": 320, "pipeline": 200, "tuned": 100, "peak_gflops": 0.1},
        {"predict": 800, "evaluate": 400, "pipeline": 100, "tuned": 200, "peak_gflops": 0.2},
    ]
    assert one["predict_over_pipeline"] == {"median": 5.0, "lowest": 2.0, "highest": 8.0}
    assert one["predict_over_tuned"] == {"median": 4.0, "lowest": 4.0, "highest": 4.0}
    assert one["evaluate_over_pipeline"] == {"median": 2.8, "lowest": 1.6, "highest": 4.0}
    assert one["evaluate_over_tuned"] == {"median": 2.6, "lowest": 2.0, "highest": 3.2}
    assert one["share_of_peak"] == {"median": 0.006, "lowest": 0.004, "highest": 0.008}


def test_the_record_of_heads_by_hand():
    """A step that something else made slow moves the mean of its round, not what the heads add."""
    values = [(0.1, 0.1), (0.2, 0.22), (0.3, 0.88), (0.2, 0.2), (0.2, 0.21), (0.4, 0.4)]
    found = [{"single": single, "multiverse": multiverse} for single, multiverse in values]
    one = heads.head_record("fp32", found, 3)
    assert one["rounds"] == [
        {"single": 200, "multiverse": 400, "added_percent": 10},
        {"single": 266.67, "multiverse": 270, "added_percent": 0},
    ]
    assert one["added_percent"] == {"median": 5, "lowest": 0, "highest": 10}


def test_batches_are_full_and_begin_again(make_toy, tiny_tokenizer):
    encoded = encode(tiny_tokenizer, make_toy("sst", rows=11).train)
    batches = steps.draw_batches(encoded, 4, 5, 0)
    assert [len(rows) for rows in batches] == [4] * 5
    assert batches[2:4] == batches[:2] and batches[4] == batches[0]
    assert len({row for rows in batches[:2] for row in rows}) == 8
    with pytest.raises(ValueError, match="task 'sst' has 11 training rows, expected at least 12"):
        steps.draw_batches(encoded, 12, 1, 0)


def test_the_plan_is_as_full_as_the_grouping_of_transformers():
    """The Trainer with its best flags gets our batches, so group_by_length must not do better."""
    from transformers.trainer_pt_utils import LengthGroupedSampler

    generator = np.random.default_rng(0)
    lengths = (5 + generator.gamma(4, 5, 6400)).astype(int)
    order = list(
        LengthGroupedSampler(
            32, lengths=lengths.tolist(), generator=torch.Generator().manual_seed(0)
        )
    )
    grouped = [order[i : i + 32] for i in range(0, len(order), 32)]
    ours, theirs = (
        lengths.sum() / sum(len(rows) * lengths[rows].max() for rows in batches)
        for batches in (plan(lengths, 32, seed=0), grouped)
    )
    assert ours == pytest.approx(theirs, abs=0.005) and 0.95 < ours < 0.99


@pytest.mark.slow
def test_the_trainer_trains_on_our_batches(make_toy, make_model, monkeypatch):
    """As shipped, it has random rows and torch's default path; at its best, our batches."""
    seen, ours, arguments = [], [], []
    our_step, trainer_step = steps.train_step, transformers.Trainer.training_step

    def train_step(model, batch, *args, **options):
        ours.append((options["precision"], batch.input_ids.tolist()))
        return our_step(model, batch, *args, **options)

    def training_step(trainer, model, inputs, *args):
        seen.append((inputs["input_ids"].tolist(), torch.get_float32_matmul_precision()))
        arguments.append(trainer.args)
        return trainer_step(trainer, model, inputs, *args)

    monkeypatch.setattr(steps, "train_step", train_step)
    monkeypatch.setattr(transformers.Trainer, "training_step", training_step)
    monkeypatch.setattr(steps, "matmul_peak", lambda precision, device: 2.0)
    monkeypatch.setattr(steps, "fast_matmul", fast_matmul_of_amd)
    model, data = make_model("sst"), make_toy("sst", rows=24)
    records = steps.compare_steps(model, data, ["fp32", "bf16"], **SHORT)
    assert [one["precision"] for one in records] == ["fp32", "bf16"]
    assert [len(one["rounds"]) for one in records] == [2, 2]
    assert records[0]["linear_parameters"] == 16384 and records[0]["train_rows"] == 24
    # Three steps each: shipped and best twice in the first round, in reverse order in the second.
    batches = [[ids for _, ids in ours[i : i + 3]] for i in range(0, 12, 3)]
    theirs = [[ids for ids, _ in seen[i : i + 3]] for i in range(0, 18, 3)]
    assert batches == [theirs[1], theirs[2], theirs[3], theirs[4]] and batches[0] == batches[1]
    assert theirs[0] != theirs[1] and theirs[5] != theirs[4]
    assert [precision for precision, _ in ours[::3]] == ["fp32", "bf16", "bf16", "fp32"]
    paths = ["highest", *["medium"] * 4, "highest"]
    assert [path for _, path in seen[::3]] == paths
    assert [one.bf16 for one in arguments[::3]] == [False, False, True, True, False, False]
    for one in arguments:
        assert one.max_steps == 3 and one.save_strategy == "no" and one.learning_rate == 1e-4
        assert one.max_grad_norm == 1.0  # as in train_step


@contextlib.contextmanager
def fast_matmul_of_amd(device):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.slow
def test_both_sides_predict_the_same(make_toy, make_model):
    model, data = make_model("quora"), make_toy("quora", dev=40)
    one, two = predictions.compare_predictions(
        model, data, ["fp32", "bf16"], rounds=2, rows=30, batch_size=8
    )
    assert one["difference"] < 1e-5 < two["difference"] < 0.05
    assert one["rows"] == 30 and len(one["rounds"]) == 2 and one["batch_size"] == 8
    split, tokens = predictions._longest_first(model, data.dev, 30)
    lengths = encode(model.tokenizer, split).lengths
    assert (np.diff(lengths) <= 0).all() and lengths.sum() == tokens == one["tokens"]


def test_heads_are_compared_on_copies(make_toy, make_model):
    model = make_model("sst")
    encoder, before = model.encoder, [weight.clone() for weight in model.encoder.parameters()]
    encoder.tokenizer = model.tokenizer
    one = heads.compare_heads(encoder, make_toy("sst", rows=24), "fp32", **SHORT)
    assert one["heads"] == 384 and len(one["rounds"]) == 2
    assert all(torch.equal(a, b) for a, b in zip(before, encoder.parameters()))


def test_the_pruning_check_clusters_1024_averages(monkeypatch):
    seen = []
    monkeypatch.setattr(heads, "cluster", lambda values: seen.append(len(values)))
    one = heads.time_pruning_check(2)
    assert seen == [64] + [1024] * 6 and one["heads"] == 1024
    assert list(one["seconds"]) == ["one normal", "long tail", "two groups"]


def test_the_start_is_measured_in_processes_of_its_own(monkeypatch):
    commands, clock = [], iter(range(100))

    def run(command, **options):
        commands.append(command[1:])
        assert options["check"]
        return SimpleNamespace(stdout="2.0 0.25 0.5\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    one = start.time_start(2)
    assert len(commands) == 6 and commands[1] == ["-m", "mmlcourse", "--help"]
    assert commands[0][0] == "-c" and commands[0][1].index("torch") < commands[0][1].index("mmlkit")
    assert [
        one[name]["median"] for name in ("torch_s", "import_adds_s", "names_add_s", "help_s")
    ] == [
        2.0,
        0.25,
        0.5,
        1.0,
    ]


def test_the_import_script_prints_three_numbers():
    """With an empty module instead of torch and mmlkit, so that nothing is waited for."""
    script = start._IMPORTS.replace("import torch", "").replace("import mmlkit", "")
    script = "\n".join(line for line in script.splitlines() if "LinearHead" not in line)
    done = subprocess.run([start.sys.executable, "-c", script], capture_output=True, text=True)
    assert len([float(text) for text in done.stdout.split()]) == 3, done.stderr


def recorded():
    interval = {"median": 1.256, "lowest": 1.0, "highest": 1500.0}
    one = dict.fromkeys(["over_shipped", "over_best", "share_of_peak", "tokens_a_second"], interval)
    return {
        "source": "mini",
        "rounds": 1,
        "threads": 2,
        "hardware": "A | processor",
        "versions": {"torch": "2.13", "transformers": "5.23"},
        "comparisons": [
            {"comparison": "step", "task": "sst", "precision": "fp32", **one},
            {
                "comparison": "predict",
                "task": "quora",
                "precision": "bf16",
                "predict_over_pipeline": interval,
                "predict_over_tuned": interval,
                "evaluate_over_pipeline": interval,
                "evaluate_over_tuned": interval,
                **one,
            },
            {
                "comparison": "heads",
                "precision": "fp32",
                "heads": 384,
                "added_percent": {"median": 2.44, "lowest": -0.5, "highest": 3.0},
            },
            {
                "comparison": "pruning check",
                "heads": 1024,
                "seconds": {
                    "a": {"median": 0.1, "lowest": 0.1, "highest": 9},
                    "b": {"median": 0.2, "lowest": 0.1, "highest": 0.3},
                },
            },
            start.start_record([{"imports": [2, 0.25, 0.5], "help": 0.125}]),
        ],
    }


def test_the_table():
    table = speed.speed_table(recorded())
    assert list(table) == ["speed", "SST-5, fp32", "Quora pairs, bf16"]
    assert table.loc[0].tolist() == [
        "training step, over Trainer as shipped (fp32)",
        "1.26 (1.00 to 1500.00)",
        "",
    ]
    assert table["SST-5, fp32"][2] == "126% (100% to 150000%)"
    assert table["Quora pairs, bf16"][9] == "1 (1 to 1,500)" and len(table) == 10
    assert (table["Quora pairs, bf16"] == "").sum() == 4
    assert (table["SST-5, fp32"] == "").sum() == 6


def test_the_sentences():
    machine, many, check, ready = speed.speed_sentences(recorded())
    assert machine == (
        "A | processor, 2 threads, torch 2.13, transformers 5.23, the mini data: median of 1 round "
        "(lowest to highest)."
    )
    assert many == ("384 heads instead of one add 2.4 (-0.5 to 3.0) % to a training step in fp32.")
    assert check == "A pruning check of 1,024 heads takes 0.20 (0.10 to 0.30) s."
    assert "That of mmlkit adds 0.250 (0.250 to 0.250) s" in ready and "--help takes 0.125" in ready


def test_a_record_of_heads_alone_has_an_empty_table():
    assert len(speed.speed_table({**recorded(), "comparisons": recorded()["comparisons"][2:]})) == 0


def test_the_readme_gets_the_speed_table(tmp_path, monkeypatch):
    from mmlcourse.batch import evidence

    monkeypatch.setattr(evidence, "experiments_in", lambda folders: [])
    (tmp_path / "speed.json").write_text(json.dumps(recorded()))
    readme = tmp_path / "README.md"
    readme.write_text(
        "a\n<!-- report -->\nold\n<!-- /report -->\n<!-- speed -->\n<!-- /speed -->\nz\n"
    )
    evidence.write_readme([tmp_path], readme)
    text = readme.read_text()
    assert text.startswith(
        "a\n<!-- report -->\n\n<!-- /report -->\n<!-- speed -->\n- A \\| processor,"
    )
    assert "| training step, over Trainer as shipped (fp32) | 1.26 (1.00 to 1500.00) |  |\n" in text
    evidence.write_readme([tmp_path], readme)
    assert readme.read_text() == text
    readme.write_text("<!-- report -->\nold\n<!-- /report -->\n")  # speed has no place here
    evidence.write_readme([tmp_path], readme)
    assert readme.read_text() == "<!-- report -->\n\n<!-- /report -->\n"


def test_a_gpu_makes_more_steps():
    assert speed._size(CPU, True) == {"rounds": 3, "steps": 3, "warm_up": 1, "rows": 128}
    assert (
        speed._size(torch.device("cuda"), False)["steps"] == 12 * speed._size(CPU, False)["steps"]
    )


@pytest.mark.slow
def test_all_comparisons_in_one_record(tmp_path, monkeypatch, tokenizer):
    from mmlkit.bert.pretrained import save_pretrained

    monkeypatch.setattr(
        speed, "load_task", lambda name, source="mini": load_task(name, source, limit=80)
    )
    monkeypatch.setattr(speed, "time_start", lambda rounds: {"comparison": "start"})
    save_pretrained(BertModel(BertConfig.tiny()), tokenizer, tmp_path / "tiny")
    found = speed.measure_speed(
        tmp_path / "tiny", precisions=["fp32"], rounds=1, steps=1, warm_up=1, rows=20
    )
    kinds = [(one["comparison"], one.get("task")) for one in found["comparisons"]]
    assert kinds == [
        *[(kind, task) for task in ("sst", "quora") for kind in ("predict", "step")],
        ("heads", None),
        ("pruning check", None),
        ("start", None),
    ]
    assert found["model"] == "tiny" and str(tmp_path) not in json.dumps(found)
    assert all(one["difference"] < 1e-5 for one in found["comparisons"] if "difference" in one)
    assert json.loads(json.dumps(found)) == found and found["rows"] == 20 and found["threads"]


def test_the_command_prints_a_table_and_writes_all_rounds(tmp_path, monkeypatch, capsys):
    called = []

    def measure(*args, **options):
        called.append((args, options))
        return recorded()

    monkeypatch.setattr("benchmarks.measure_speed", measure)
    monkeypatch.setattr("mmlkit.runtime.fastest_precision", lambda device: "fp32")
    out = tmp_path / "new" / "speed.json"
    given = ["--quick", "--rounds", "5", "--only", "step", "heads", "--source", str(tmp_path)]
    assert main(["bench", *given, "--out", str(out)]) == 0
    expected = {"precisions": None, "quick": True, "parts": ["step", "heads"], "rounds": 5}
    assert called == [(("minilm", str(tmp_path)), expected)]
    output = capsys.readouterr().out
    assert output.startswith("bf16 is left out: this machine does not multiply it.")
    assert "1.26 (1.00 to 1500.00)" in output and f"All rounds are in {out}." in output
    assert json.loads(out.read_text()) == recorded()
    assert main(["bench", "--precision", "bf16"]) == 0
    assert called[1] == (("minilm", "mini"), {"precisions": ["bf16"], "quick": False})
    assert "left out" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "steps"], "argument --only: invalid choice: 'steps' (choose from"),
        (["--only"], "argument --only: expected at least one argument"),
        (["--precision", "fp8"], "argument --precision: invalid choice: 'fp8'"),
        (["--rounds", "0"], "argument --rounds: '0' is not a whole number of at least 1"),
        (["--source", "nowhere"], "argument --source: 'nowhere' is neither a folder nor the word"),
    ],
)
def test_wrong_arguments_end_with_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and "Traceback" not in error
    assert error.splitlines()[-1].startswith(f"mmlkit bench: error: {message}")


def test_a_folder_without_the_files_is_named(tmp_path, capsys):
    """No comparison has begun before both tasks are loaded."""
    assert main(["bench", "--only", "step", "--source", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mmlkit bench: ") and str(tmp_path) in error and "ids-sst" in error
