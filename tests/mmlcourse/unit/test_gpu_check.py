"""The check that needs a GPU runs on a CPU in tiny sizes, so that the first GPU meets no broken
program. Its tests and notebooks are left out here: other tests run them."""

import json
import time
from contextlib import suppress

import psutil
import pytest
from gpu import check, common

from mmlkit.bert.model import BertConfig
from mmlkit.data.batching import encode
from mmlkit.runtime import pick_device


def test_a_stage_ends_alone_with_all_that_it_started(tmp_path):
    log = tmp_path / "logs" / "one.log"
    assert check.run_stage(["-c", "print(2)"], log, 60, {}) == "ok" and log.read_text() == "2\n"
    assert check.run_stage(["-c", "raise SystemExit(3)"], log, 60, {}) == "exit status 3"
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']).pid"
    code = f"import subprocess, sys, time; print({child}); time.sleep(99)"
    assert check.run_stage(["-c", code], log, 2, {}) == "stopped after 2 s"
    (found,) = map(int, log.read_text().split())
    end = time.monotonic() + 10  # a kill takes effect a moment later; without it this takes 99 s
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(found).status() != "zombie":  # that is, nobody has waited for it
            assert time.monotonic() < end
            time.sleep(0.02)


def test_what_later_stages_may_use():
    """Thirteen notebooks at once need 13 cores and 26 GB; a stage stops its notebooks itself."""
    machine = {"hardware": {"machine": {"cores": 16, "gpu_gb": 15}}}
    found = check.command("notebooks", machine, False, 130)
    assert found[found.index("--jobs") + 1] == "7" and found[-2:] == ["--limit", "2.00"]
    assert found[3] == "all" and sum(check.LIMITS.values()) <= 480
    assert "1" in check.command("notebooks", {}, False, 130)  # the hardware is not known


def test_outcomes_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "LOGS", tmp_path)
    assert check.outcome("tests") == check.outcome("speed") == {}
    (tmp_path / "notebooks.log").write_text(
        "00_start_here done in 12 s: runs/a\n02_finetuning failed after 9 s: an error\n"
    )
    assert check.outcome("notebooks") == {
        "passed": 1,
        "seconds": {"00_start_here": 12},
        "failed": ["02_finetuning"],
    }
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite><testcase classname="a" name="b"/><testcase classname="a" '
        'name="c"><skipped message="x"/></testcase><testcase classname="a" name="d"><failure '
        'message="2 != 3"/></testcase></testsuite></testsuites>'
    )
    (tmp_path / "gpu_memory_bf16.json").write_text('{"mmlkit": 3}')
    found = check.outcome("tests")
    assert found["gpu_memory_bf16"] == {"mmlkit": 3} and found["failed"] == {"a::d": "2 != 3"}
    assert (found["passed"], found["skipped"]) == (1, 1)
    lines = check.summary({"tests": {"status": "exit status 1", "seconds": 9.6, "found": found}})
    assert lines == ["tests      exit status 1, 10 s", "  1 passed", "  FAILED a::d"]


def test_the_rows_are_as_long_as_those_of_sst():
    config = BertConfig.tiny()
    model = common.classifier(config, pick_device("cpu"))
    lengths = encode(model.tokenizer, common.random_data(config, 2000).train).lengths
    assert lengths.mean() == pytest.approx(25, abs=1) and lengths.max() <= 64


@pytest.mark.slow
def test_the_dry_check(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "LOGS", tmp_path)
    stages = ["hardware", "speed", "memory"]
    failed = check.main(["--dry", "--stages", *stages])
    logs = "".join(one.read_text() for one in tmp_path.glob("*.log"))
    assert not failed, logs[-4000:]
    (record,) = (json.loads(one.read_text()) for one in tmp_path.glob("*-*.json"))
    assert record["dry"] and record["device"] == "cpu" and [*record["stages"]] == stages
    found = record["stages"]["speed"]["found"]
    for size in ("32", "128"):
        assert found[f"step_{size}"]["time_over_roofline"]["median"] > 1
        assert {"over_best", "over_eager"} <= {*found[f"step_{size}"]}
        assert found[f"profile_{size}"]["graph"]["total_ms"] > 0
    peaks = record["stages"]["memory"]["found"].values()
    assert [one["formula_gb"] > 0 for one in peaks] == [True] * 3
