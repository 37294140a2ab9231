"""Everything that only a GPU can show, in eight minutes, on any machine with a CUDA GPU.

    python benchmarks/gpu/check.py                  # or: make gpu-check
    python benchmarks/gpu/check.py --dry            # tiny, on a CPU

Each stage is a process of its own with a time limit, and its failure ends only itself. What a stage
leaves of its time, the later ones may use. The figures go to results/gpu/CARD.json, which
results/gpu/README.md explains; a dry run writes runs/gpu-check/ instead, as do all logs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "runs" / "gpu-check"
# Seconds on a GPU. In a dry run each stage has 300.
LIMITS = {"hardware": 40, "tests": 110, "speed": 150, "memory": 40, "notebooks": 130}
PROGRAMS = {"hardware": "gpu.hardware", "speed": "gpu.speed", "memory": "gpu.peaks"}


def command(stage, found, dry, limit):
    """Return the arguments of Python for a stage.

    Args:
        stage: a key of LIMITS.
        found: {stage: what it found}, of the stages before.
        dry: whether to run in tiny sizes on a CPU.
        limit: seconds of the stage.

    Returns:
        A list of texts.
    """
    if stage in PROGRAMS:
        return ["-m", PROGRAMS[stage], "--out", f"{LOGS / stage}.json", *(["--dry"] if dry else [])]
    if stage == "tests":
        marks = ["-m", "gpu and not notebook", "-p", "no:cacheprovider", "-p", "no:nbval"]
        return ["-m", "pytest", *marks, "-rs", f"--junitxml={LOGS / 'tests.xml'}", "tests/gpu"]
    machine = found.get("hardware", {}).get("machine", {})
    # A notebook on a GPU takes one or two gigabytes of its memory.
    jobs = min(13, machine.get("cores", 1), int(machine.get("gpu_gb", 0) / 2) if not dry else 2)
    which = ["00", "06"] if dry else ["all"]
    options = ["--profile", "fast", "--jobs", max(1, jobs), "--out", LOGS / "notebooks"]
    minutes = max(0.1, limit - 10) / 60  # it stops a notebook itself, and says so
    return ["-m", "mmlcourse", "run", *which, *map(str, options), "--limit", f"{minutes:.2f}"]


def run_stage(arguments, log, limit, environment):
    """Run Python with a time limit, and end it and all that it started.

    Args:
        arguments: of Python.
        log: the file of its output.
        limit: seconds.
        environment: a dict of variables beside those of this process.

    Returns:
        "ok", or why it ended otherwise.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        process = psutil.Popen(
            [sys.executable, "-u", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        try:
            code = process.wait(limit)
            return "ok" if code == 0 else f"exit status {code}"
        except psutil.TimeoutExpired:
            return f"stopped after {limit:.0f} s"
        finally:
            if process.is_running():
                for one in [*process.children(recursive=True), process]:
                    one.kill()
                process.wait()


def outcome(stage):
    """Read what a stage has found, also one that was stopped.

    Args:
        stage: a key of LIMITS.

    Returns:
        A dict of plain values.
    """
    if stage in PROGRAMS:
        path = LOGS / f"{stage}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if stage == "tests":
        records = {one.stem: json.loads(one.read_text()) for one in LOGS.glob("gpu_*.json")}
        return {**junit(LOGS / "tests.xml"), **records}
    text = (LOGS / "notebooks.log").read_text(encoding="utf-8", errors="replace")
    lines = re.findall(r"^(\d\d_\w+) (done in|failed after) (\d+) s", text, re.M)
    done = {name: int(seconds) for name, how, seconds in lines if how == "done in"}
    failed = sorted({name for name, how, _ in lines} - {*done})
    return {"passed": len(done), "seconds": done, "failed": failed}


def junit(path):
    """Count the tests of a run of pytest.

    Args:
        path: its XML file.

    Returns:
        A dict: passed, skipped, and failed, a dict from names to messages. It is empty where there
        is no file.
    """
    if not path.is_file():
        return {}
    found = {"passed": 0, "skipped": 0, "failed": {}}
    for case in xml.parse(path).getroot().iter("testcase"):
        kinds = {child.tag: child.get("message", "") for child in case}
        bad = kinds.get("failure", kinds.get("error"))
        if bad is not None:
            found["failed"][f"{case.get('classname')}::{case.get('name')}"] = bad[:300]
        else:
            found["skipped" if "skipped" in kinds else "passed"] += 1
    return found


def summary(stages):
    """Return the lines of the summary.

    Args:
        stages: {stage: {"status", "seconds", "found"}}.

    Returns:
        A list of texts.
    """
    lines = []
    for stage, one in stages.items():
        found = one["found"]
        lines.append(f"{stage:<10} {one['status']}, {one['seconds']:.0f} s")
        if stage in ("tests", "notebooks"):
            lines.append(f"  {found.get('passed', 0)} passed")
            lines += [f"  FAILED {name}" for name in found.get("failed", ())]
        elif stage == "speed":
            lines += [f"  {name}: {text}" for name, text in map(speed_line, found.items())]
        else:
            lines += [f"  {name}: {value}" for name, value in found.items() if name != "machine"]
    return lines


def speed_line(item):
    """Return the name of a measurement of the stage "speed", and its main figures."""
    name, one = item
    if name.startswith("heads"):
        return name, f"384 heads add {one['added_percent']['median']} % to a step"
    if name.startswith("step"):
        speed = {key: one[key]["median"] for key in one if "over_" in key}
        return name, (
            f"{speed['time_over_roofline']} times the roofline of {one['roofline_ms']} ms; "
            f"{speed['over_best']} times as fast as Trainer with its best flags, "
            f"{speed['over_shipped']} as shipped, {speed['over_eager']} as without graphs"
        )
    times = [
        f"{kind}: host {one[kind]['host_ms']}, all {one[kind]['total_ms']}, kernels "
        f"{one[kind]['busy_ms']} ms, {one[kind]['launches']} launches"
        for kind in ("eager", "graph")
    ]
    return name, "; ".join([*times, f"{one['padding_percent']} % padding"])


def commit():
    """Return the commit of this checkout, with "-dirty" where files differ, or None."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return None


def main(arguments=None):
    """Run the stages, and write the record and the summary after each.

    Args:
        arguments: of the command line.

    Returns:
        Whether a stage has failed.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="tiny sizes on a CPU")
    parser.add_argument("--stages", nargs="+", choices=LIMITS, default=[*LIMITS])
    options = parser.parse_args(arguments)
    cuda = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    if not options.dry and subprocess.run([sys.executable, "-c", cuda]).returncode:
        parser.error("torch sees no CUDA GPU. --dry tries the check on a CPU, in tiny sizes.")
    paths = [ROOT, ROOT / "benchmarks", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "MMLKIT_GPU_RECORDS": str(LOGS)}
    if options.dry:
        environment |= {"MMLKIT_GPU_TESTS_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    for old in [*LOGS.glob("*.json"), *LOGS.glob("*.xml")]:
        old.unlink()
    started, stages, target = time.monotonic(), {}, None
    end = started + sum(LIMITS.values())
    for stage in options.stages:
        later = options.stages[options.stages.index(stage) + 1 :]
        now = time.monotonic()
        limit = 300 if options.dry else end - now - sum(LIMITS[one] for one in later)
        earlier = {name: one["found"] for name, one in stages.items()}
        status = run_stage(
            command(stage, earlier, options.dry, limit), LOGS / f"{stage}.log", limit, environment
        )
        seconds = round(time.monotonic() - now, 1)
        stages[stage] = {"status": status, "seconds": seconds, "found": outcome(stage)}
        print(*summary({stage: stages[stage]}), sep="\n", flush=True)
        target = write(stages, options.dry)
    print(f"{time.monotonic() - started:.0f} s; the figures are in {target}, the logs in {LOGS}")
    return any(one["status"] != "ok" for one in stages.values())


def write(stages, dry):
    """Write the record of a card, and return its path."""
    machine = stages.get("hardware", {"found": {}})["found"].get("machine", {})
    name = re.sub(r"\W+", "-", machine.get("hardware", "unknown").lower()).strip("-")
    what = "make gpu-check: tests, speed and memory of mmlkit on this card"
    record = {"what": what, "dry": dry, "commit": commit(), **machine, "stages": stages}
    target = (LOGS if dry else ROOT / "results" / "gpu") / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return target


if __name__ == "__main__":
    sys.exit(main())
