"""The README gives the numbers of results/ and names only existing files and commands."""

import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["README.md", "data/README.md"])
@pytest.mark.parametrize("task", ["sst", "cfimdb"])
def test_accuracies_equal_the_results(place, task):
    runs = json.loads((ROOT / "results" / "mini_baselines.json").read_text())["runs"]
    text = (ROOT / place).read_text(encoding="utf-8")
    for mode in ("pretrain", "finetune"):
        values = [run["accuracy"] for run in runs if (run["task"], run["mode"]) == (task, mode)]
        assert len(values) == 3
        assert f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" in text


def test_the_cost_of_many_heads_equals_the_results():
    found = json.loads((ROOT / "results" / "multiverse_cost.json").read_text())
    assert (
        f"{found['loops']['times_faster']:,} times as fast" in README
        and found["loops"]["loss_difference"] < 1e-3
    )


def test_the_counts_of_heads_equal_the_results():
    for task, name in {"mrpc": "MRPC", "rte": "RTE", "cola": "CoLA"}.items():
        run = json.loads((ROOT / "results" / f"pruning_{task}.json").read_text())
        left = f"{run['heads_at_end']} of {run['num_heads']} heads"
        assert f"| {name} | {run['steps']} | {left} | {run['heads_kept']} |" in README
        assert len(run["events"]) == 5


@pytest.mark.parametrize(
    "place", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md"]
)
def test_link_targets_exist(place):
    text = (ROOT / place).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in target]
    assert all((ROOT / place).parent.joinpath(target).exists() for target in targets), targets


def test_the_library_example_runs(capsys):
    """The example runs unchanged, on the first rows and for one epoch."""
    code = re.search(r"## The library\n\n```python\n(.*?)```", README, re.S)[1]
    assert len(code.strip().splitlines()) <= 8
    assert code.count('source="mini")') == code.count("epochs=3") == 1
    code = code.replace('source="mini")', 'source="mini", limit=60)').replace(
        "epochs=3", "epochs=1"
    )
    found = {}
    exec(compile(code, "README", "exec"), found)
    assert len(found["history"]) == 1 and found["history"].train_loss[0] < 1.7
    output = capsys.readouterr().out
    assert "'accuracy'" in output and any(name in output for name in found["data"].task.labels)


def test_the_custom_training_loop_trains():
    """The twelve lines run unchanged, on the first rows of the mini data."""
    import torch

    code = re.search(r"### A training loop of your own\n.*?```python\n(.*?)```", README, re.S)[1]
    assert (
        sum(bool(line.strip()) for line in code.splitlines()) == 12
        and code.count('load_task("sst")') == 1
    )
    found = {}
    torch.manual_seed(0)
    exec(
        compile(code.replace('load_task("sst")', 'load_task("sst", limit=160)'), "README", "exec"),
        found,
    )
    with torch.no_grad():
        loss = found["model"].eval().loss(found["collate"](found["rows"], range(160))).total
    assert loss < 1.56  # five steps; it starts at log(5) = 1.61


def test_the_examples_of_custom_data_and_export_work(tmp_path, monkeypatch, capsys):
    """Both examples run in one namespace. The export gives the probabilities of the model."""
    from transformers import pipeline

    own, export = (
        re.search(rf"### {title}\n.*?```python\n(.*?)```", README, re.S)[1]
        for title in ("Your own data", "Export to transformers")
    )
    rows = [
        f'"{word} number {i}",{label}\n'
        for i in range(12)
        for word, label in (("prize", "yes"), ("meeting", "no"))
    ]
    (tmp_path / "spam-data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "spam-data" / f"{split}.csv").write_text(
            "message,label\n" + "".join(rows), encoding="utf-8"
        )
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(compile(own, "README", "exec"), found)
    exec(compile(export, "README", "exec"), found)
    assert "accuracy" in capsys.readouterr().out
    texts = ["You have won a prize!", "The meeting is at nine."]
    ours = found["predict_proba"](found["model"], texts, task=found["task"], precision="fp32")
    for text, row in zip(texts, ours):
        scores = pipeline("text-classification", "spam-classifier", top_k=None)([text])[0]
        assert {one["label"]: one["score"] for one in scores} == pytest.approx(
            dict(zip(("no", "yes"), row)), abs=1e-5
        )


def test_every_named_makefile_target_exists():
    verbs = set(re.findall(r"`?make ([a-z-]+)`?", README + (ROOT / "CONTRIBUTING.md").read_text()))
    makefile = (ROOT / "Makefile").read_text()
    assert {"walkthrough", "test"} <= verbs and all(
        re.search(rf"^{verb}:", makefile, re.M) for verb in verbs - {"something"}
    )


def test_every_script_that_the_makefile_runs_exists():
    scripts = re.findall(r"python (\S+\.py)", (ROOT / "Makefile").read_text())
    assert len(scripts) >= 3 and all((ROOT / script).is_file() for script in scripts), scripts


def test_the_tables_equal_the_results(tmp_path):
    """`mmlkit report --readme` writes both tables. They are never edited by hand."""
    from mmlcourse.batch.evidence import write_readme

    copy = tmp_path / "README.md"
    copy.write_text(README, encoding="utf-8")
    write_readme([ROOT / "results"], copy)
    assert copy.read_text(encoding="utf-8") == README, "stale: mmlkit report results --readme"
    table = re.search(r"<!-- claims -->\n(.*?)\n<!-- /claims -->", README, re.S)[1]
    assert "MML does better than BERT on sets it was not trained on" in table
    report = (ROOT / "results" / "REPORT.md").read_text(encoding="utf-8")
    assert "| published | recomputed | ours | sd | seeds |" in report
    speed = re.search(r"<!-- speed -->\n(.*?)\n<!-- /speed -->", README, re.S)[1]
    assert "the course's files: median of" in speed and speed.count("Trainer") == 2
    found = {
        (one["comparison"], one.get("task"))
        for file in (ROOT / "results").glob("speed*.json")
        for one in json.loads(file.read_text(encoding="utf-8"))["comparisons"]
    }
    assert found >= {(kind, task) for kind in ("step", "predict") for task in ("sst", "quora")}


def test_the_report_equals_the_results(tmp_path):
    from mmlcourse.batch.evidence import write_evidence

    text = write_evidence([ROOT / "results"], tmp_path).read_text(encoding="utf-8")
    found = (ROOT / "results" / "REPORT.md").read_text(encoding="utf-8")
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
    alt = re.search(r"!\[([^\]]+)\]\(notebooks/images/fig2\.svg\)", README)[1]
    assert len(alt.split()) > 20


def test_the_shares_of_the_products_are_those_of_the_profiles():
    files = ("step_profile", "prediction_profile")
    profiles = [
        one
        for file in files
        for one in json.loads((ROOT / f"results/{file}.json").read_text("utf-8"))["profiles"]
    ]
    step, step_bf16, prediction = (
        round(one["products_percent"]) for one in profiles if one != profiles[-1]
    )
    assert [one["part"] for one in profiles] == 2 * ["training step"] + 2 * ["prediction"]
    said = " ".join(README.split())
    assert f"products take {step} % of a training step in fp32 and {step_bf16} % in bf16" in said
    of_peak = [round(one["products_percent_of_peak"]) for one in profiles]
    assert f"they run at {of_peak[0]} and {of_peak[1]} % of the peak" in said
    rate = of_peak[2]
    assert f"take {prediction} % of a prediction in fp32, at {rate} % of the peak" in said


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


def test_the_first_part_has_at_most_100_lines():
    first, reference = README.split("\n# Reference\n")
    assert len(first.splitlines()) <= 100 and "## The library" in reference
    record = json.loads((ROOT / "results" / "speed.json").read_text(encoding="utf-8"))
    steps = [one for one in record["comparisons"] if one["comparison"] == "step"]
    shipped, best = (
        sorted(f"{one[key]['median']:.1f}" for one in steps)
        for key in ("over_shipped", "over_best")
    )
    said = " ".join(first.split())
    assert f"a step in fp32 is {shipped[0]} to {shipped[1]} times as fast" in said
    assert f"in bf16 {shipped[2]} to {shipped[3]} times." in said
    assert [
        one["precision"] for one in sorted(steps, key=lambda s: s["over_shipped"]["median"])
    ] == [*("fp32", "fp32", "bf16", "bf16")]
    assert f"It is {best[0]} to {best[-1]} times as fast" in said
    hardware = record["hardware"]
    record = json.loads((ROOT / "results" / "speed_predictions.json").read_text(encoding="utf-8"))
    assert record["hardware"] == hardware and "On the same cores, a prediction" in said
    over = sorted(one["predict_over_pipeline"]["median"] for one in record["comparisons"])
    assert f"a prediction is {over[0]:.1f} to {over[-1]:.1f} times as fast" in said
    assert "AMD EPYC" in record["hardware"] and "On two cores of an AMD EPYC" in said
