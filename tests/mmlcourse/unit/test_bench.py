"""The arithmetic of the speed records, and their table. Nothing is timed, no benchmark runs."""

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
from torch import nn

from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.runtime import pick_device

CPU = pick_device("cpu")


def test_linear_parameters_by_hand():
    """A layer has four maps of 32 x 32, and one of 32 x 64 in each direction."""
    assert timing.linear_parameters(BertConfig.tiny()) == 2 * (4 * 1024 + 2 * 2048) == 16384
    minilm = BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    assert timing.linear_parameters(minilm) == 10_616_832


def test_linear_parameters_equal_those_of_the_encoder():
    config = BertConfig.tiny(num_hidden_layers=3)
    layers = BertModel(config).encoder.modules()
    weights = [one.weight.numel() for one in layers if isinstance(one, nn.Linear)]
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


def test_the_peak_is_the_faster_path(monkeypatch):
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
    peak = timing.matmul_peak("fp32", CPU)
    assert torch.get_float32_matmul_precision() == before
    if "medium" in paths:  # not where this CPU rounds to bf16 on that path
        assert len(paths) == 20 and peak == pytest.approx(17.179869184)


def test_the_record_of_steps_by_hand():
    """One token costs 6 x 1,000 FLOP, so 200 tokens a second are 1.2 MFLOP/s.

    At the highest rates a step of 30 tokens takes 0.9 ms of products and 9.1 ms of copies.
    """
    rows = [(100.0, 200.0, 160.0, 100.0, 0.1, 1.0), (50.0, 300.0, 150.0, 200.0, 0.1, 2.0)]
    rows += [(80.0, 240.0, 300.0, 240.0, 0.2, 1.0)]
    names = ("shipped", "ours bf16", "best bf16", "eager bf16", "peak bf16", "copies")
    found = [dict(zip(names, row)) for row in rows]
    about = {"task": "sst", "linear_parameters": 1000, "tokens_a_step": 30}
    cost = {"flop": 6 * 1000 * 30, "bytes": 18_200_000}
    one = steps.step_record(about, "bf16", found, cost)
    assert one["roofline_ms"] == 10
    assert one["time_over_roofline"] == {"median": 12.5, "lowest": 10, "highest": 15}
    assert one["over_eager"] == {"median": 1.5, "lowest": 1, "highest": 2}
    assert one["over_shipped"] == {"median": 3.0, "lowest": 2.0, "highest": 6.0}
    assert one["over_best"] == {"median": 1.25, "lowest": 0.8, "highest": 2.0}
    assert one["share_of_peak"] == {"median": 0.0072, "lowest": 0.006, "highest": 0.009}
    assert one["tokens_a_second"]["median"] == 240 and one["task"] == "sst"
    assert one["rounds"][1] == {
        "ours": 300,
        "shipped": 50,
        "best": 150,
        "eager": 200,
        "peak_gflops": 0.1,
        "copies_gbs": 2,
    }
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


def test_batches_are_full_and_begin_again():
    lengths = np.array([9, 3, 4, 4, 7, 2, 5, 8, 6, 3, 3])
    batches = steps.draw_batches(SimpleNamespace(lengths=lengths), 4, 5, 0)
    assert [len(rows) for rows in batches] == [4] * 5
    assert batches[2:4] == batches[:2] and batches[4] == batches[0]
    assert len({row for rows in batches[:2] for row in rows}) == 8


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


def test_a_gpu_makes_more_steps():
    cpu, gpu = (speed._size(torch.device(name), quick=True) for name in ("cpu", "cuda"))
    assert cpu == {"rounds": 3, "steps": 3, "warm_up": 1, "rows": 128}
    assert gpu == {"rounds": 3, "steps": 36, "warm_up": 12, "rows": 1536}
