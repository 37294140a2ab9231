"""Results, overviews and reports: numbers by hand on invented runs, and untrusted result files."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mmlcourse.batch import overviews
from mmlcourse.batch.experiments import Experiment, load_experiment
from mmlcourse.batch.recorded import Recorded, experiments_in, newest, recorded_experiments
from mmlcourse.batch.reports import write_report
from mmlcourse.batch.results import load_results
from mmlcourse.batch.scores import (
    best_values,
    common_seeds,
    compare_claim,
    comparison,
    headline,
    incomplete,
    long_frame,
)
from mmlcourse.batch.verdicts import _spread, write_evidence, write_readme
from mmlcourse.cli import machine
from mmlcourse.studies.comparisons import outcome
from mmlcourse.text import error_text, markdown_text, signed_interval

ROOT = Path(__file__).resolve().parents[3]
SETS = ["rte", "mnli", "qnli", "snli"]


def result(method, seed, accuracies, task="rte"):
    """Return an invented run of mml-tables.

    The accuracies are those on dev of four sets; those on train are higher by 0.1.
    """
    scores = [
        dict(on=on, split=split, metric="accuracy", value=value + (0.1 if split == "train" else 0))
        for on, value in zip(SETS, accuracies)
        for split in ("train", "dev")
    ]
    return {
        "experiment": "mml-tables",
        "profile": "fast",
        "name": f"{method}-{task}-{seed}",
        "parameters": {"method": method, "task": task, "seed": seed},
        "scores": scores,
        "sources": {},
        "minutes": 1.5,
        "device": "cpu",
        "hardware": "x",
        "versions": {"torch": "2", "mmlkit": "0"},
        "peak_memory_mb": 100,
        "commit": "abc",
    }


RESULTS = [
    result("bert", 0, [0.7, 0.5, 0.4, 0.5]),
    result("mml", 0, [0.7, 0.6, 0.5, 0.5]),
    result("bert", 1, [0.8, 0.5, 0.5, 0.5]),
    result("mml", 1, [0.6, 0.5, 0.6, 0.4]),
]


@pytest.fixture
def experiment():
    return load_experiment("mml-tables")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results").mkdir()
    for one in RESULTS:
        (tmp_path / "results" / f"{one['name']}.json").write_text(json.dumps(one))
    (tmp_path / "results" / "other.json").write_text('{"rows": []}')
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "mml-mnli-0.json").write_text(
        json.dumps({"name": "mml-mnli-0", "cause": "out of memory <at 3 GB>", "parameters": {}})
    )
    return tmp_path


def evidence(folder):
    """Return the texts of REPORT.md and DETAILS.md that are written from the runs of a folder."""
    report = folder / "out" / "REPORT.md"
    report.parent.mkdir(exist_ok=True)
    report.write_text("# The evidence\n\nA note.\n\n## Verdicts\nof other runs")
    write_evidence([folder], report)
    pages = (report, report.with_name("DETAILS.md"))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_the_improvement_of_each_seed_by_hand(experiment):
    frame = long_frame(experiment, RESULTS)
    found = frame[(frame["on"] == "improvement") & (frame["split"] == "dev")]
    by_hand = {
        0: 100 * ((0.6 / 0.5 + 0.5 / 0.4 + 0.5 / 0.5) / 3 - 1),
        1: 100 * ((0.5 / 0.5 + 0.6 / 0.5 + 0.4 / 0.5) / 3 - 1),
    }
    assert dict(zip(found["seed"], found["value"])) == pytest.approx(by_hand) and set(
        found["method"]
    ) == {"mml"}


def test_every_cell_has_its_published_value(experiment):
    table = comparison(experiment, long_frame(experiment, RESULTS)).set_index(
        ["method", "on", "split"]
    )
    ours = table.loc["mml", "rte", "dev"]
    assert (
        ours["ours"] == pytest.approx(65)
        and ours["sd"] == pytest.approx(100 * np.std([0.7, 0.6], ddof=1))
        and ours["seeds"] == 2
    )
    assert ours["published"] == 80.14 and np.isnan(ours["recomputed"])
    better = table.loc["mml", "improvement", "dev"]
    assert (better["published"], round(better["recomputed"], 2)) == (9.51, 9.53) and better[
        "ours"
    ] == pytest.approx((15 + 0) / 2)


def test_the_headline_averages_tasks_before_seeds(experiment):
    more = [
        *RESULTS,
        result("bert", 0, [0.5] * 4, "mnli"),
        result("mml", 0, [0.5, 0.5, 0.5, 0.8], "mnli"),
    ]
    found = headline(experiment, long_frame(experiment, more)).iloc[0]
    assert found["ours"] == pytest.approx(np.mean([(15 + 20) / 2, 0])) and found["seeds"] == 2
    assert found["published"] == pytest.approx(
        (9.51 + 2.87) / 2, abs=3
    )  # the mean of two printed cells


def test_the_chosen_learning_rates_by_hand(tmp_path):
    """The highest mean over sets is chosen, the lower rate for a tie, and only with all runs."""
    rates = {"bert": {5e-5: 0.50, 1e-4: 0.60, 2e-4: 0.60}, "mml": {5e-5: 0.90, 1e-4: 0.10}}
    runs = []
    for method, found in rates.items():
        for lr, accuracy in found.items():
            for task, more in (("rte", 0.1), ("mrpc", -0.1)):
                run = result(method, 100, [accuracy + more], task)
                run["parameters"]["lr"], run["name"] = lr, f"{method}-{lr}-{task}"
                runs.append({**run, "experiment": "real-rates"})
    experiment = load_experiment("real-rates")
    frame = long_frame(experiment, runs)
    assert best_values(experiment, frame) == {"bert": (1e-4, pytest.approx(0.6))}
    table = headline(experiment, frame).set_index("method: dev accuracy times 100")
    assert table.loc["bert, lr 0.0002", "ours"] == pytest.approx(60)
    assert table.loc["mml, lr 5e-05", "ours"] == pytest.approx(90) and len(table) == 5
    for run in runs:
        (tmp_path / f"{run['name']}.json").write_text(json.dumps(run))
    text = evidence(tmp_path)
    assert "- With method bert, lr 0.0001 has the highest mean (60.00)." in text
    assert "With method mml, lr" not in text


def test_the_headline_has_the_seeds_that_all_systems_have(experiment):
    """Seed 2 of mml alone would raise its mean, but it has no partner in a claim."""
    more = [result("mml", 2, [0.9] * 4), result("mv-m", 0, [0.6] * 4), result("bert", 2, [0.5] * 4)]
    frame = long_frame(experiment, [*RESULTS, *more])
    assert common_seeds(experiment, frame) == {0}
    table = headline(experiment, frame).set_index("method: dev improvement, %")
    assert table["seeds"].tolist() == [1, 1] and table.loc["mml", "ours"] == pytest.approx(15)
    disjoint = frame[~((frame["method"] != "mv-m") & (frame["seed"] == 0))]
    assert common_seeds(experiment, disjoint) == {0, 1, 2}


def test_a_method_with_fewer_tasks_has_no_headline(experiment):
    """With mv-m on MNLI alone, its mean would be that of another task."""
    on_mnli = [result("mv-m", 0, [0.9] * 4, "mnli")]
    both = [result(method, 0, [0.5] * 4, "mnli") for method in ("bert", "mml")]
    table = "method: dev improvement, %"
    for runs, missing in (([*RESULTS, *both, *on_mnli], {"mv-m"}), ([*RESULTS, *both], set())):
        frame = long_frame(experiment, runs)
        part = frame[(frame["metric"] == "improvement") & (frame["split"] == "dev")]
        assert incomplete(experiment, part) == missing
        assert headline(experiment, frame)[table].tolist() == ["mml"]
    alone = long_frame(experiment, [*on_mnli, result("mml", 0, [0.9] * 4)])
    assert incomplete(experiment, alone) == set()  # neither has what the other has


def test_a_method_with_too_few_seeds_does_not_cut_those_of_the_others(experiment):
    """BERT and MML have six seeds, mv-m has one, and its mean would be that of another seed."""
    runs = [result(method, seed, [0.5] * 4) for method in ("bert", "mml") for seed in range(6)]
    frame = long_frame(experiment, [*runs, result("mv-m", 0, [0.9] * 4)])
    part = frame[(frame["metric"] == "improvement") & (frame["split"] == "dev")]
    assert incomplete(experiment, part) == {"mv-m"}
    assert headline(experiment, frame)[["method: dev improvement, %", "seeds"]].values.tolist() == [
        ["mml", 6]
    ]


def test_the_headline_of_an_incomplete_batch_compares_the_same_tasks(experiment):
    """BERT has RTE and QNLI, MML has RTE and SNLI, which is harder."""
    runs = [result("bert", 0, [0.5] * 4), result("mml", 0, [0.6] * 4)]
    runs += [result("bert", 0, [0.9] * 4, "qnli"), result("mml", 0, [0.1] * 4, "snli")]
    experiment = replace(experiment, published={"headline": "accuracy"})
    found = headline(experiment, long_frame(experiment, runs))
    assert dict(zip(found.iloc[:, 0], found["ours"])) == pytest.approx({"bert": 50, "mml": 60})
    assert len(headline(experiment, long_frame(experiment, runs[1:3]))) == 0


def run_of(name, method, task, seed, own, other=0.9):
    """Return an invented run of family A or of its control."""
    one = {**result(method, seed, [], task), "experiment": name}
    scores = [dict(on=task, split="dev", metric="accuracy", value=own)]
    scores.append(dict(on="scitail", split="dev", metric="accuracy", value=other))
    return {**one, "parameters": {**one["parameters"], "lr": 1e-4}, "scores": scores}


@pytest.mark.parametrize(
    ("on", "name", "expected"),
    [("own", "task trained on", {"bert": 50, "mml": 60}), ("others", "other sets", {"bert": 90})],
)
def test_the_headline_is_that_of_the_own_set_or_of_others(on, name, expected):
    """Only BERT has a score on another set here."""
    experiment = replace(load_experiment("real-transfer"), published={"headline_on": on})
    runs = [run_of("real-transfer", "bert", "qqp", seed, 0.5) for seed in range(2)]
    runs += [run_of("real-transfer", "mml", "qqp", seed, 0.6) for seed in range(2)]
    runs = [
        {**one, "scores": one["scores"][: 2 - (one["parameters"]["method"] == "mml")]}
        for one in runs
    ]
    table = headline(experiment, long_frame(experiment, runs))
    column = f"method: dev score of {'the ' * (on == 'own')}{name} times 100"
    assert dict(zip(table[column], table["ours"])) == pytest.approx(expected)


def test_a_score_without_a_number_does_not_change_the_other_side(experiment):
    """BERT has no number on one set: it is left out of the short table, or loses the seed."""
    runs = [result(method, seed, [0.5] * 4) for method in ("bert", "mml") for seed in range(3)]
    for score in runs[0]["scores"]:
        score["value"] = math.nan if score["on"] == "snli" else score["value"]
    for score in runs[3]["scores"]:
        score["value"] += 0.1
    frame = long_frame(experiment, runs)
    better = frame[(frame["metric"] == "improvement") & (frame["split"] == "dev")]
    assert better.set_index("seed")["value"].isna().to_dict() == {0: True, 1: False, 2: False}
    found = headline(experiment, frame).iloc[0]
    assert found["seeds"] == 2 and found["ours"] == pytest.approx(0)
    accuracies = headline(replace(experiment, published={"headline": "accuracy"}), frame)
    assert accuracies.iloc[:, 0].tolist() == ["mml"]  # not BERT's mean over three easier sets


def test_claims_by_hand(experiment):
    claim = {
        "says": "MML is better",
        "first": {"method": "mml"},
        "second": {"method": "bert"},
        "on": "others",
    }
    frame = long_frame(experiment, RESULTS)
    found = compare_claim(claim, frame)
    assert found.difference == pytest.approx(10 / 3) and (found.level, found.pairs) == (0.95, 2)
    assert outcome(found) == "undecided"
    assert compare_claim({**claim, "on": "own"}, frame).difference == pytest.approx(-10)
    assert compare_claim({**claim, "on": "qnli"}, frame).difference == pytest.approx(10)
    seven = [
        result(method, seed, [0.7, value + seed / 100, value, value])
        for seed in range(7)
        for method, value in (("bert", 0.5), ("mml", 0.6))
    ]
    frame_of_seven = long_frame(experiment, seven)
    better = compare_claim(claim, frame_of_seven)
    assert outcome(better) == "better" and better.difference == pytest.approx(10)
    swapped = {**claim, "first": claim["second"], "second": claim["first"]}
    worse = compare_claim(swapped, frame_of_seven)
    assert outcome(worse) == "worse" and worse.difference == pytest.approx(-10)
    assert compare_claim(claim, frame, level=0.8).level == 0.8
    assert compare_claim({**claim, "second": {"method": "mv-5"}}, frame) is None


def test_a_result_with_a_value_of_another_type_leaves_the_claims(tmp_path):
    """With one text among the shares, the whole column is one of texts."""
    experiment = load_experiment("real-stars")
    claim = experiment.claims[1]
    runs = [
        {
            **result(start, seed, [0.5 + (start == "mt-dnn") / 10], "sst"),
            "parameters": {"start": start, "share": share, "seed": seed},
        }
        for start in ("bert", "mt-dnn")
        for share in (0.0012, 0.0047)
        for seed in range(6)
    ]
    expected = compare_claim(claim, long_frame(experiment, runs))
    assert expected.pairs == 6 and expected.difference == pytest.approx(10)
    more = [{**runs[0], "parameters": {"start": "bert", "share": "all", "seed": 0}}]
    assert compare_claim(claim, long_frame(experiment, runs + more)) == expected


def test_seeds_with_different_sets_are_not_mixed_in_a_claim(experiment):
    """Of three seeds with one training set each, the two with the same set are compared."""
    claim = {"says": "c", "first": {"method": "mml"}, "second": {"method": "bert"}, "on": "others"}
    runs = [("bert", 0.5), ("mml", 0.6)]
    several = [result(name, seed, [value] * 4) for name, value in runs for seed in (0, 1)]
    several += [result("bert", 2, [0.1] * 4, "mnli"), result("mml", 2, [0.9] * 4, "mnli")]
    found = compare_claim(claim, long_frame(experiment, several))
    assert found.pairs == 2 and found.difference == pytest.approx(10)


def test_one_run_more_does_not_take_a_verdict_away(experiment):
    """Six seeds have RTE; one of them has MNLI as well."""
    claim = {"says": "c", "first": {"method": "mml"}, "second": {"method": "bert"}, "on": "own"}
    runs = [
        result(method, seed, [value] * 4)
        for method, value in (("bert", 0.5), ("mml", 0.6))
        for seed in range(6)
    ]
    more = [result(method, 0, [0.1] * 4, "mnli") for method in ("bert", "mml")]
    found = compare_claim(claim, long_frame(experiment, runs + more))
    assert found.pairs == 6 and found.difference == pytest.approx(10)


def test_a_claim_on_the_improvement_is_in_percent(experiment):
    """MML's improvement is 15 % and 0 %, MV-m's 0 % and 0 %; both are in percent already."""
    same = [{**one, "name": f"mv-m-{i}"} for i, one in enumerate(RESULTS[::2])]
    for one in same:
        one["parameters"] = {**one["parameters"], "method": "mv-m"}
    claim = dict(first={"method": "mml"}, second={"method": "mv-m"}, metric="improvement")
    frame = long_frame(experiment, [*RESULTS, *same])
    found = compare_claim({**claim, "on": "improvement"}, frame)
    assert (found.difference, found.pairs) == (pytest.approx(7.5), 2)


@pytest.mark.slow
def test_a_claim_takes_a_side_from_another_experiment_by_hand(tmp_path):
    """The control has one head at MML's rate; MML's runs are those of family A."""
    runs = [
        run_of("real-multiverse", method, task, seed, value + 0.01 * seed)
        for method, value in (("bert", 0.5), ("mml", 0.7))
        for task in ("rte", "cola")
        for seed in range(7)
    ]
    runs += [run_of("real-same-rate", "bert", "rte", seed, 0.66) for seed in range(6)]
    for number, one in enumerate(runs):
        (tmp_path / f"{number}.json").write_text(json.dumps(one))
    (one,) = (one for one in experiments_in([tmp_path]) if one.experiment.name == "real-same-rate")
    by_says = {claim["says"]: found for claim, found in one.claims}
    on_rte = by_says["MML does better than BERT at the same learning rate on RTE, in-domain"]
    assert on_rte.pairs == 6  # the seventh seed and CoLA have no control
    assert on_rte.difference == pytest.approx(100 * (0.7 + 0.025 - 0.66))
    assert by_says["MML does better than BERT at the same learning rate on CoLA, in-domain"] is None
    rates = by_says["BERT does better at 1e-4 than at 2e-4, mean of four sets in-domain"]
    assert rates.difference == pytest.approx(100 * (0.66 - 0.525))
    text = evidence(tmp_path)
    assert (
        "| BERT does better at 1e-4 than at 2e-4, mean of four sets in-domain (rte only) |" in text
    )
    assert "mean of four sets in-domain (rte only): " in text  # the sentence, too
    primary = text.split("## Verdicts")[1].split("\n# ")[0].splitlines()
    first, control = (line for line in primary if line.startswith(("| MML", "| Control")))
    assert "mean of four sets in-domain" in first and primary.index(control) > primary.index(first)
    assert "| Control: MML does better than BERT at the same learning rate, mean" in control
    others = text.split("## Other claims")[1]
    assert "| MML does better than BERT on RTE, in-domain (written after its results) |" in others
    assert "at the same learning rate, mean of four sets" not in others.split("\n##")[0]
    (tmp_path / "no-bert").mkdir()  # the primary claim itself has runs of one side only
    for number, one in enumerate(one for one in runs if one["parameters"]["lr"] == 1e-4):
        if one["experiment"] == "real-same-rate" or one["parameters"]["method"] == "mml":
            (tmp_path / "no-bert" / f"{number}.json").write_text(json.dumps(one))
    text = evidence(tmp_path / "no-bert")
    assert text.split("## Other claims")[0].count("| Control: MML does better than BERT") == 1
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "0.json").write_text(json.dumps(runs[-1]))
    (alone,) = experiments_in([tmp_path / "alone"])
    assert not alone.compared  # without the other experiment there is nothing to compare


@pytest.mark.slow
def test_no_table_mixes_editions_of_the_mini_data(tmp_path):
    """A result of the mini data without an edition belongs to the second edition."""
    for number, (old, new) in enumerate(zip(RESULTS, RESULTS[::-1])):
        for edition, one in ((2, old), (3, new)):
            versions = {**one["versions"], **({"mini_data": 3} if edition == 3 else {})}
            more = {"versions": versions, "settings": {"source": "mini"}}
            (tmp_path / f"{edition}-{number}.json").write_text(json.dumps({**one, **more}))
    found = load_results([tmp_path])
    assert {key: len(runs) for key, runs in found.items()} == {
        ("mml-tables", "fast", "2"): 4,
        ("mml-tables", "fast", "3"): 4,
    }
    assert all("mini_data" not in run["versions"] for run in found["mml-tables", "fast", "2"])
    page = evidence(tmp_path)
    for edition in (2, 3):
        assert f"was not trained on (mini data of edition {edition}, rte only) | undecided" in page
    text = write_report([tmp_path], tmp_path / "report").with_suffix(".md").read_text("utf-8")
    assert "(fast, mini data of edition 2)" in text and "(fast, mini data of edition 3)" in text
    assert {path.name for path in (tmp_path / "report").glob("*.png")} == {
        f"mml-tables-fast-mini{edition}-dev.png" for edition in (2, 3)
    }


@pytest.mark.slow
def test_runs_of_another_data_folder_are_apart(tmp_path):
    """Runs of `--grid source=hub` are no further seeds, whatever their seeds are.

    The experiment's own batch stays one: its file gives RTE two epochs, and names none for MNLI.
    """
    plan = load_experiment("mml-tables", grid={"seed": [0, 1]}).runs
    own = [
        result(method, seed, [0.5] * 4, task)
        for method in ("bert", "mml")
        for seed in (0, 1)
        for task in ("rte", "mnli")
    ]
    assert plan["bert-rte-0"]["epochs"] == 2 and "epochs" not in plan["bert-mnli-0"]
    own = [{**one, "parameters": plan[one["name"]]} for one in own]
    more = [result(method, 7, [0.5] * 4) for method in ("bert", "mml")]
    hub = {**plan["bert-rte-0"], "source": "hub"}
    more = [{**one, "parameters": {**hub, **one["parameters"]}} for one in more]
    for one in (*own, *more):
        (tmp_path / f"{one['name']}.json").write_text(json.dumps(one))
    ours, hub = sorted(experiments_in([tmp_path]), key=lambda one: -len(one.results))
    assert (ours.given, len(ours.results)) == ("", 8)
    assert (hub.title, len(hub.results)) == ("mml-tables (fast, source hub)", 2)
    assert ours.claims[0][1].pairs == 2 and hub.claims[0][1].pairs == 1
    (tmp_path / "mml-rte-7.json").unlink()  # that batch is not finished
    hub = min(experiments_in([tmp_path]), key=lambda one: len(one.results))
    assert (hub.given, len(hub.results), hub.claims[0][1]) == ("source hub", 1, None)
    (tmp_path / "mml-rte-0.json").unlink()
    (tmp_path / "mml-rte-1.json").unlink()
    (tmp_path / "mml-rte-7.json").write_text(json.dumps(more[1]))
    parts = {one.given: len(one.results) for one in experiments_in([tmp_path])}
    assert parts == {"": 6, "source hub": 2}, "MML on RTE has one kind of run alone"
    page = evidence(tmp_path)
    assert "not trained on (mnli only) |" in page  # of RTE, MML has no run left
    assert "not trained on (source hub, rte only) |" in page
    assert "- No runs with task: qnli, " in page
    text = write_report([tmp_path], tmp_path / "report").with_suffix(".md").read_text("utf-8")
    assert "methods on sets they were not trained on (fast, source hub)" in text
    assert len(list((tmp_path / "report").glob("*.png"))) == 2


def test_runs_with_other_parameters_than_the_plan_are_named(tmp_path):
    """Otherwise a method with two epochs could stand beside one with thirty."""
    experiment = load_experiment("mml-tables")
    for number, one in enumerate(RESULTS[:2]):
        planned = experiment.runs.get(one["name"], one["parameters"])
        run = {**one, "parameters": {**planned, "epochs": 99} if number else planned}
        (tmp_path / f"{number}.json").write_text(json.dumps(run))
    told = "1 run had another epochs than the experiment's file has now."
    assert told in evidence(tmp_path)
    assert told in write_report([tmp_path], tmp_path / "out").read_text().replace("&#x27;", "'")


def test_a_run_that_hides_another_is_named(folder, tmp_path):
    other = {**RESULTS[0], "parameters": {**RESULTS[0]["parameters"], "epochs": 9}}
    (tmp_path / "second").mkdir()
    for one in (other, RESULTS[1]):  # the second is the same run again
        (tmp_path / "second" / f"{one['name']}.json").write_text(json.dumps(one))
    with pytest.warns(UserWarning, match="another run of the name 'bert-rte-0'") as warned:
        found = load_results([folder / "results", tmp_path / "second"])
    assert len(warned) == 1 and len(found["mml-tables", "fast", None]) == 4


def test_an_earlier_edition_of_the_data_advises_nothing():
    other, paper = (SimpleNamespace(name=n, profile=p) for n, p in (("y", "fast"), ("x", "paper")))
    one = Recorded("2", SimpleNamespace(name="x", profile="fast"), [], None)
    third, tenth = replace(one, edition="3"), replace(one, edition="10")
    rest = [replace(one, experiment=other), replace(one, experiment=paper)]
    rest += [replace(one, edition=None)]
    rest += [replace(one, given="lr 0.1")]
    assert newest([one, third, *rest]) == [third, *rest]
    assert newest([tenth, third, one]) == [tenth] and newest([one]) == [one]


@pytest.mark.parametrize(
    ("gain", "seeds", "expected"),
    [(0.1, 7, "better"), (-0.1, 7, "not better"), (0.1, 5, None)],
)
def test_the_advice_follows_from_the_outcome(gain, seeds, expected):
    """Every seed has the same gain. Five pairs are too few for any advice."""
    words = {word: f"Advice if {word}." for word in ("better", "not better", "undecided")}
    claim = {"says": "c", "first": {"method": "mml"}, "second": {"method": "bert"}, "on": "mnli"}
    results = [
        result(method, seed, [0.7, value, 0.5, 0.5])
        for seed in range(seeds)
        for method, value in (("bert", 0.5), ("mml", 0.5 + gain))
    ]
    experiment = Experiment(
        name="x",
        title="x",
        profile="fast",
        notebook=Path("x"),
        grid={"method": ["bert", "mml"], "task": ["rte"], "seed": list(range(seeds))},
        runs={},
    )
    frame = long_frame(experiment, results)
    claims = [{**claim, "advice": words}, {**claim, "says": "no advice"}]
    recorded = Recorded(None, replace(experiment, claims=claims), results, frame)
    assert overviews.advice([recorded]) == ([words[expected]] if expected else [])
    for least, needed in ((5.0, expected), (20.0, "not better")):  # the difference is 10 points
        asks = replace(experiment, of_interest=least, claims=[{**claim, "advice": words}])
        more = Recorded(None, asks, results, frame)
        assert overviews.advice([more]) == ([words[needed]] if seeds > 5 else [])


@pytest.mark.parametrize(
    ("low", "printed"), [(0.019, "+0.02"), (-0.0031, "-0.003"), (0.12, "+0.1"), (0.0, "0.0")]
)
def test_the_end_of_an_interval_shows_on_which_side_of_zero_it_lies(low, printed):
    assert signed_interval(low, 4.8) == f"{printed} to +4.8"


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_report_is_complete(folder):
    page = write_report([folder], folder / "report")
    parser = Page()
    parser.feed(page.read_text(encoding="utf-8"))
    assert set(parser.open) <= {"html"}
    images = [attributes for tag, attributes in parser.seen if tag == "img"]
    assert (
        len(images) == 1
        and images[0]["alt"]
        and images[0]["src"].startswith("data:image/png;base64,")
    )
    assert (
        "mml-mnli-0: out of memory <at 3 GB>" in parser.text
        and "80.14" in parser.text
        and "4 runs, 0.1 hours" in parser.text
    )
    text = (folder / "report" / "report.md").read_text(encoding="utf-8")
    assert (
        "| mml | rte | improvement | dev | improvement | 9.51 | 9.53 | 7.50 |" in text
        and "](mml-tables-fast-dev.png)" in text
    )
    assert (folder / "report" / "mml-tables-fast-dev.png").read_bytes().startswith(b"\x89PNG")


def test_a_precision_that_was_left_open_is_the_one_that_was_used(tmp_path):
    """So a run with the same one, but asked for, is no other kind of run."""
    for seed, asked in enumerate((None, "bf16")):
        one = result("bert", seed, [0.5] * 4)
        one["parameters"]["precision"] = asked
        (tmp_path / f"{seed}.json").write_text(
            json.dumps(one | {"settings": {"precision": "bf16"}})
        )
    (both,) = experiments_in([tmp_path])
    assert (both.given, len(both.results)) == ("", 2)
    (tmp_path / "0.json").write_text(
        json.dumps(result("bert", 0, [0.5] * 4) | {"settings": {"precision": "fp32"}})
    )
    assert {one.given for one in experiments_in([tmp_path])} == {"", "precision bf16"}


def test_the_recorded_runs_stand_beside_ones_own(tmp_path):
    """Of a part of the grid, on the same edition of the data; the cells are means of six seeds."""
    files = sorted((ROOT / "results" / "mml-tables-fast").glob("bert-rte-?.json"))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    dev = [
        score["value"]
        for run in runs
        for score in run["scores"]
        if (score["on"], score["split"]) == ("qnli", "dev")
    ]
    (tmp_path / "own.json").write_text(json.dumps({**runs[2], "started": "today", "commit": None}))
    text = write_report([tmp_path], tmp_path / "out").with_suffix(".md").read_text("utf-8")
    mean, sd = 100 * np.mean(dev), 100 * np.std(dev, ddof=1)
    ours = f"| 52.84 | {100 * dev[2]:.2f} |  | 1 | {mean:.2f} | {sd:.2f} | 6 |"
    assert len(dev) == 6 and f"| bert | rte | qnli | dev | accuracy {ours}" in text
    assert "the repository's own runs, in results/ (bf16 of mmlkit 0.1.0). Of 8 scores" in text
    assert "the largest difference is 0.0 points" in text
    assert "Settings: model minilm, precision bf16, pairs separate, epochs 2" in text
    assert "commit unknown" in text
    assert "No runs with task: mnli, qnli" in text
    assert "Training rows: rte 1360, mnli 1224, qnli 1020, snli 1440." in text
    assert "Unlike" not in text
    changed = runs[2]["parameters"] | {"max_train_rows": 320}, runs[2]["settings"] | {"lr": 2e-4}
    changed = dict(zip(("parameters", "settings"), changed), started="today")
    (tmp_path / "own.json").write_text(json.dumps(runs[2] | changed))
    text = write_report([tmp_path], tmp_path / "out").with_suffix(".md").read_text("utf-8")
    unlike = "lr 0.0002 (recorded 0.0001), max_train_rows 320 (recorded None)."
    assert f"Unlike the recorded runs of the same cells: {unlike}" in text.replace("\\_", "_")
    (tmp_path / "own.json").write_text(json.dumps(runs[2]))
    again = write_report([files[0].parent], tmp_path / "out").with_suffix(".md")
    assert "| recorded |" not in again.read_text("utf-8")


def test_the_readme_is_written_between_its_marks(folder):
    readme = folder / "README.md"
    readme.write_text("before\n<!-- report -->\nWHAT WAS THERE\n<!-- /report -->\nafter\n")
    write_readme([folder], readme)
    text = readme.read_text(encoding="utf-8")
    assert (
        text.startswith("before\n<!-- report -->\n**MML v2")
        and text.endswith("\n<!-- /report -->\nafter\n")
        and "WHAT WAS THERE" not in text
    )
    assert "| mml | 9.51 | 9.53 | 7.50 | 10.61 | 2 |" in text
    write_readme([folder], readme)
    assert readme.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_the_evidence_is_one_page_and_one_figure(folder):
    text, page = evidence(folder), folder / "out" / "REPORT.md"
    assert text.startswith("# The evidence\n\nA note.\n\n## Verdicts\n\n| claim")
    assert "of other runs" not in text
    assert list_files(folder / "out") == ["DETAILS.md", "REPORT.md", "verdicts.svg"]
    kinds = ["Other claims with six seeds or more", "Claims with fewer seeds, which are undecided"]
    headings = ["The evidence", "Verdicts", "All claims and experiments", *kinds]
    assert re.findall(r"^#+ (.*)", text, re.M) == [*headings, "Experiments", "Runs"]
    first, other = [line for line in text.splitlines() if line.startswith("| MML")]
    assert "| +3.3 (no interval) | 2 | other sets | mml-tables | On our mini data" in first
    assert text.index(other) > text.index("## Claims with fewer seeds")
    assert "**MML v2, Tables 2 to 5: methods on sets they were not trained on** (fast" in text
    assert "| mml | 9.51 | 9.53 | 7.50 | 10.61 | 2 |" in text
    assert "| mml-tables (fast) | 4 | 2 | 0.1 | cpu |" in text
    figure = (folder / "out" / "verdicts.svg").read_text(encoding="utf-8")
    assert figure.count("MML does better") == 2
    before = page.read_bytes(), figure
    write_evidence([folder], page)
    assert before == (page.read_bytes(), (folder / "out" / "verdicts.svg").read_text("utf-8"))


def test_the_evidence_shows_what_is_worse_and_how_many_heads_stay(tmp_path):
    """BERT is better by ten points with each of seven seeds. 3, 5, 7, ... heads stay."""
    for seed in range(7):
        for method, value in (("bert", 0.6), ("mml", 0.5)):
            one = result(method, seed, [0.7, value, value, value])
            left = {"events": [{"step": 1}], "heads_left": 3 + 2 * seed} if method == "mml" else {}
            if left:  # one head has no similarity
                rows = [(1, 9, 0.04), (2, 4, 0.1 * seed), (3, 1, None)]
                left["head_similarity"] = [dict(zip(("step", "heads", "cosine"), x)) for x in rows]
            (tmp_path / f"{one['name']}.json").write_text(json.dumps(one | left))
    text = evidence(tmp_path)
    assert "not trained on (rte only) | worse | -10.0 (-10.0 to -10.0) | 7 | other sets |" in text
    for left, found in (("bert-rte-6", "other sets"), ("", "held out")):  # one run, then none
        for path in tmp_path.glob("*.json"):
            settings = {"held_out": path.stem != left}
            path.write_text(json.dumps({**json.loads(path.read_text()), "settings": settings}))
        assert f"| worse | -10.0 (-10.0 to -10.0) | 7 | {found} |" in evidence(tmp_path)
    assert "- Heads in the chosen epoch, with method mml: 9 in the median (3 to 15)." in text
    similar = "with method mml: 0.040 at the first step, 0.300 at the last one with several heads"
    assert f"- Mean \\|cosine\\| between heads, {similar} (medians over runs)." in text
    assert _spread([9, 1, 8, 2, 7, 3, 6, 4, 5]) == "5 in the median (quartiles 3 and 7, 1 to 9)"


def test_the_overviews_of_recorded_runs(folder):
    """Four runs of 1.5 minutes; the mean difference of the two seeds by hand."""
    (one,) = recorded = recorded_experiments([folder])
    assert one.title == "mml-tables (fast)" and len(one.results) == 4
    table = overviews.runs_table(recorded)
    assert table.loc["mml-tables (fast)"].tolist() == [4, "2", 0.1, "cpu"]
    ((title, claim, found, least),) = [
        row for row in overviews.claim_rows(recorded) if "sets it was not" in row[1]
    ]
    sides = [np.mean([[0.6, 0.5, 0.5], [0.5, 0.6, 0.4]]), np.mean([[0.5, 0.4, 0.5], [0.5] * 3])]
    assert found.difference == pytest.approx(100 * (sides[0] - sides[1])) and least == 1
    assert title == one.title


def test_claims_that_figures_draw_have_a_topic_and_an_interval(monkeypatch, folder):
    """Two seeds give no interval, so a figure has no line for these claims."""
    few = recorded_experiments([folder])
    monkeypatch.setattr(overviews, "recorded_experiments", lambda: few)
    assert overviews.recorded_claims() == []
    monkeypatch.undo()
    main = overviews.recorded_claims(primary=True)
    topics = {"Many orthogonal heads", "Many tasks in one encoder", "A new task with few labels"}
    assert {topic for topic, *_ in main} >= topics and all(row[2].pairs >= 6 for row in main)
    pals = [one for one in overviews.recorded_claims("real-sampling") if "PALs" in one[1]]
    assert len(pals) == 2 and all(topic == "Sampling and PALs" for topic, *_ in pals)
    pair = {"PALs minus none": ("pals-parallel", "annealed")}
    (same,) = overviews.recorded_differences("real-sampling", pair, "PALs")
    assert same == ("PALs", "PALs minus none", *pals[0][2:]) and pals[0][1].startswith("Parallel")
    (sst,) = overviews.recorded_differences("real-sampling", pair, "PALs", "sst", "accuracy")
    assert sst[2].pairs == same[2].pairs and sst[2] != same[2]


# ---- untrusted results ----

UNSAFE_TEXT = (
    "<script>alert(1)</script> [x](javascript:y) ![i](http://z/i.png) a|b \\[c](d) `e` "
    "<!-- /report -->\n# big\x1b[2J"
)
ESCAPED_TEXT = (
    "&lt;script&gt;alert(1)&lt;/script&gt; \\[x](javascript:y) !\\[i](http://z/i.png) a\\|b "
    "\\\\\\[c](d) `e` &lt;!-- /report --&gt; # big "
    "\\[2J"
)


def write_results(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    for one in RESULTS:
        (folder / f"{one['name']}.json").write_text(json.dumps({**one, **changes}))


def list_files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_markdown_in_results_is_escaped(tmp_path):
    scores = [{**score, "on": UNSAFE_TEXT} for score in RESULTS[0]["scores"]]
    write_results(tmp_path / "results", experiment="own words", hardware=UNSAFE_TEXT, scores=scores)
    (tmp_path / "results" / "failed").mkdir()
    (tmp_path / "results" / "failed" / "one.json").write_text(
        json.dumps({"name": "one", "cause": UNSAFE_TEXT})
    )
    page = write_report([tmp_path / "results"], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert (
        text.count(ESCAPED_TEXT) >= 3
        and "<" not in text
        and "\x1b" not in text
        and "](own_words-fast-dev.png)" in text
    )
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in rows}
    assert len(rows) > 3 and len(cells) == 1
    parser = Page()
    parser.feed(page.read_text(encoding="utf-8"))
    assert not {tag for tag, _ in parser.seen} & {"script", "a"}
    readme = tmp_path / "README.md"
    readme.write_text("<!-- report -->\n<!-- /report -->\nafter\n")
    for _ in range(2):
        write_readme([tmp_path / "results"], readme)
    assert readme.read_text(encoding="utf-8").count("-->") == 2 and readme.read_text(
        encoding="utf-8"
    ).endswith("-->\nafter\n")


def test_markdown_text_by_hand():
    assert markdown_text(UNSAFE_TEXT) == ESCAPED_TEXT
    plain = "lr 1e-4 of mnli_matched (5 %), f1 > 0.5"
    assert markdown_text(plain) == plain.replace(">", "&gt;")
    assert markdown_text("of `real-rates`, `a b`") == r"of `real-rates`, \`a b\`"


def test_a_missing_package_is_named_with_the_command_that_knows_it():
    error = ModuleNotFoundError("No module named 'snakemake'", name="snakemake")
    said = "No module named 'snakemake'. `mmlkit doctor` says what to install."
    assert error_text(error) == said and "snakemake" in machine._PACKAGES


@pytest.mark.parametrize("changes", [{"experiment": "../../x"}, {"profile": "/etc"}])
def test_a_result_cannot_write_outside_its_report(tmp_path, changes):
    write_results(tmp_path / "results", **changes)
    write_report([tmp_path / "results"], tmp_path / "report")
    names = list_files(tmp_path / "report")
    assert len(names) == 3 and names[1:] == ["report.html", "report.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "results"]


def test_a_result_cannot_load_an_experiment_of_the_current_folder(tmp_path, monkeypatch):
    """The name "own.toml" must not load a file of the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('title = "READ"\nnotebook = "01"\n[fast]\n')
    write_results(tmp_path / "results", experiment="own.toml")
    page = write_report([tmp_path / "results"], tmp_path / "report").read_text(encoding="utf-8")
    assert "own.toml (fast)" in page


@pytest.mark.parametrize("changes", ["{", {"scores": [3]}, {"parameters": [1]}])
def test_a_damaged_result_is_named_and_left_out(folder, changes):
    text = changes if changes == "{" else json.dumps({**RESULTS[0], "name": "x", **changes})
    (folder / "results" / "damaged.json").write_text(text)
    with pytest.warns(UserWarning, match="damaged.json is not the result of a run.*leaves it out"):
        (one,) = experiments_in([folder])
    assert len(one.results) == 4
    with pytest.raises(FileNotFoundError, match="no finished run below"):
        experiments_in([folder / "failed"])
