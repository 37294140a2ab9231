"""Recorded pruning runs are consistent: heads never return, survivors are the lowest cluster."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import sem, t

from mmlcourse.batch import recorded, scores
from mmlcourse.batch.experiments import load_experiment
from mmlcourse.batch.results import load_results
from mmlcourse.batch.scores import long_frame
from mmlcourse.studies import (
    paired_bootstrap,
    recorded_cadence,
    recorded_protocol,
    recorded_staircases,
)
from mmlcourse.studies.comparisons import Comparison, matched, outcome
from mmlcourse.text import signed, signed_interval
from mmlkit.training import TaskSampler

pytestmark = pytest.mark.slow  # recorded results seldom change

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "results"
recorded_experiments = cache(lambda: recorded.recorded_experiments([RESULTS]))  # takes seconds
MNLI_ALONE = {"eight": "", "mnli": "-long", "short": "-mnli"}  # experiments of family F
OTHERS = "real-transfer (fast"  # the title of family B, whose control has a longer name
RUNS = sorted(RESULTS.glob("pruning_*.json"))


def told(compared):
    """Return a difference with its interval, as the guide has them."""
    return f"{signed(compared.difference)} ({signed_interval(compared.low, compared.high)})"


def own_scores(name, method):
    """Dev scores times 100 of family A or B: a row for each of six seeds, a column for each set."""
    (one,) = [one for one in recorded_experiments() if one.experiment.name == name]
    rows = one.frame.query("method == @method and on == task and split == 'dev' and seed < 6")
    first = {"cola": "matthews", "stsb": "pearson"}
    metric = rows["task"].map(lambda task: first.get(task, "accuracy"))
    return 100 * rows[rows["metric"] == metric].pivot(index="seed", columns="task", values="value")


def test_runs_are_recorded():
    assert {"pruning_mrpc", "pruning_rte"} <= {path.stem for path in RUNS}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_recorded_run_is_consistent(path):
    run = json.loads(path.read_text(encoding="utf-8"))
    assert (
        run["source"] == "folder"
        and run["steps"] >= 300
        and run["parameters"]["weight_of_orthogonality"] == 0.005
    )
    assert (
        run["device"]
        and run["versions"]["torch"]
        and run["minutes"] > 0
        and all(np.isfinite(row["train_loss"]) for row in run["history"])
    )
    active, momentum = set(range(run["num_heads"])), run["parameters"]["momentum"]
    assert momentum == 0.99 and [event["step"] for event in run["events"]] == sorted(
        {event["step"] for event in run["events"]}
    )
    for event in run["events"]:
        assert set(event["head_ids"]) == active and len(event["averages"]) == len(active)
        lowest = int(np.argmin(event["centroids"]))
        survivors = {
            head for head, label in zip(event["head_ids"], event["labels"]) if label == lowest
        }
        assert set(event["kept"]) == (survivors if event["dropped"] else active)
        nearest = np.abs(np.subtract.outer(event["averages"], event["centroids"])).argmin(1)
        assert nearest.tolist() == event["labels"]
        active -= set(event["dropped"])
    assert len(active) == run["heads_at_end"] == len(run["final_averages"])


def test_the_paper_settings_prune_on_a_real_set():
    """At least one run with the settings of the paper drops heads.

    The settings are lambda 0.005, momentum 0.99 and the default bandwidth of scikit-learn.
    """
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in RUNS]
    assert any(
        event["dropped"]
        for run in runs
        if run["task"] in ("mrpc", "rte")
        for event in run["events"]
    )
    assert all(run["parameters"]["bandwidth"] is None for run in runs)


def test_every_result_is_strict_json():
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    for path in sorted(RESULTS.rglob("*.json")):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_the_runs_of_the_protocol_are_read_from_the_first_folder(tmp_path):
    folder = RESULTS / "archive" / "mml-tables-fast-mini2"
    found = recorded_protocol(folder)
    assert set(found["method"]) == {"bert", "mml"} and set(found["seed"]) == set(range(6))
    assert set(found["edition"]) == {2} and found["accuracy"].between(0, 1).all()
    runs = found.groupby(["method", "trained_on", "seed"])
    assert len(runs) == 2 * 7 * 6 and set(runs.size()) == {8, 6}  # inference and similarity
    pruned = found[found["method"] == "mml"]
    assert (pruned["first_check"] == pruned["steps"] // 5).all()
    assert found.loc[found["method"] == "bert", "first_check"].isna().all()
    assert recorded_protocol(tmp_path / "none").empty
    present = recorded_protocol()
    assert set(present["edition"]) == {3} and len(present) == 2 * len(found)  # with controls
    controls = {"mv-m", "bert-ensemble"}
    assert set(present["method"]) == {"bert", "mml"} | controls
    assert set(present["seed"]) == set(range(6))


def test_the_gains_at_the_last_epoch_are_those_in_the_text_of_real_stars():
    """Without a choice of the epoch on dev labels the gains are smaller; text and runs agree."""
    last = {}
    for path in (RESULTS / "real-stars-fast").glob("*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["scores"]:  # not a run that only trains the encoder
            key = run["parameters"]["start"], run["parameters"]["share"]
            last.setdefault(key, []).append(run["history"][-1]["accuracy"])
    gains = [
        100 * (np.mean(last["mt-dnn", share]) - np.mean(last["bert", share]))
        for share in (0.0012, 0.0047, 0.0187)
    ]
    assert all(len(values) == 6 for values in last.values()) and len(last) == 6
    said = "{:.1f}, {:.1f} and {:.1f} points".format(*gains)
    assert said in (ROOT / "experiments" / "real-stars.toml").read_text(encoding="utf-8")
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"with 10, 40 and 160 labels are {said.replace(' points', '.')}" in measured


def test_the_sentences_on_a_new_domain_equal_the_runs():
    """At the best and at the last epoch; with two labels of SciTail only the choice gains."""
    best, last = {}, {}
    for path in (RESULTS / "real-adaptation-fast").glob("*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["scores"]:
            given = run["parameters"]
            key = given["start"], given["task"], given["share"], given["seed"]
            best[key] = 100 * run["scores"][0]["value"]
            last[key] = 100 * run["history"][-1]["accuracy"]
    sets, shares = ("snli", "scitail"), (0.001, 0.01, 0.1)
    assert len(best) == 2 * 6 * len(sets) * len(shares)

    def gain(scores, sets=sets, shares=shares):
        sides = [
            [
                np.mean([scores[start, on, one, seed] for on in sets for one in shares])
                for seed in range(6)
            ]
            for start in ("mt-dnn", "bert")
        ]
        return paired_bootstrap(*sides)

    def in_words(found):
        return f"{found.difference:.1f} ({signed(found.low)} to {signed(found.high)})"

    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    whole, at_last = gain(best), gain(last)
    assert f"gains {in_words(whole).replace(' (', ' points (')}" in measured
    two = gain(last, ["scitail"], [0.001]).difference
    said = f"the gain is {in_words(at_last)}, and with 2 labels of SciTail it is {two:.1f}."
    assert f"At the last epoch {said}" in measured
    ends = [[gain(x, [on]).difference for x in (last, best)] for on in sets]
    said = "in the mean of SNLI ({:.0f} to {:.0f}) and SciTail ({:.0f} to {:.0f})"
    assert said.format(*ends[0], *ends[1]) in measured
    lesson = (ROOT / "notebooks" / "src" / "09_domain_adaptation.py").read_text(encoding="utf-8")
    lesson = " ".join(lesson.replace("\n#", " ").split())
    chosen = gain(best, ["scitail"], [0.001]).difference
    said = (
        f"with 2 SciTail labels the gain is {two:.1f} points at the last epoch, and {chosen:.1f} at"
    )
    assert said in lesson
    plan = " ".join((ROOT / "experiments" / "PLAN.md").read_text(encoding="utf-8").split())
    assert f"is {chosen:.1f} points at the best epoch, and {two:.1f} at the last one." in plan
    assert f"both sets the gain at the last epoch is {at_last.difference:.1f}." in plan
    about = " ".join(load_experiment("real-adaptation").about.split())
    assert f"the gain over all shares is {at_last.difference:.1f} points, and with two" in about
    assert about.endswith(f"of SciTail it is {two:.1f}.")


def test_the_texts_on_mnli_alone_equal_the_runs():
    """Family F: with as many updates, MNLI alone gives what eight sets give on SNLI alone."""
    ran = {name: read_runs(f"real-adaptation{end}-fast")[0] for name, end in MNLI_ALONE.items()}
    updates = {
        name: {run["history"][-1]["step"] for run in runs if not run["scores"]}
        for name, runs in ran.items()
    }
    assert updates == {"eight": {1008}, "mnli": {1008}, "short": {126}}
    kept = {
        name: {
            run["parameters"]["seed"]: max(row["step"] for row in run["history"] if row["best"])
            for run in runs
            if not run["scores"]
        }
        for name, runs in ran.items()
    }
    assert kept["mnli"] == {0: 315, 1: 819, 2: 882, 3: 504, 4: 252, 5: 945}  # PLAN, the guide
    assert set(kept["eight"].values()) == {1008} and set(kept["short"].values()) == {126}
    rows = [
        (
            name if run["parameters"]["start"] == "mt-dnn" else "plain",
            *(run["parameters"][key] for key in ("task", "seed")),
            100 * run["scores"][0]["value"],
            100 * run["history"][-1]["accuracy"],
        )
        for name, runs in ran.items()
        for run in runs
        if run["scores"]
    ]
    frame = pd.DataFrame(rows, columns=["start", "task", "seed", "best", "last"])
    assert set(frame.groupby(["start", "task", "seed"]).size()) == {3}  # shares

    def minus(first, second, at, task=("snli", "scitail")):
        means = frame[frame["task"].isin(task)].groupby(["start", "seed"])[at].mean()
        return paired_bootstrap(means[first], means[second])

    def points(found, unit=""):
        return told(found)[1:].replace(" (", f"{unit} (", 1)

    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    alone, more = minus("mnli", "plain", "best"), minus("eight", "mnli", "best")
    said = f"After MNLI alone the gain is {points(alone, ' points')}, and eight sets have"
    assert f"{said} {points(more, ' more')}." in measured
    last = minus("mnli", "plain", "last"), minus("eight", "mnli", "last")
    said = f"At the last epoch these are {points(last[0])} and {points(last[1])}."
    assert said in measured
    snli, scitail = (minus("eight", "mnli", "best", [on]) for on in ("snli", "scitail"))
    said = (
        f"eight sets minus MNLI alone are {told(snli)}, no difference of interest, and on SciTail"
    )
    assert f"{said} {told(scitail)};" in measured
    assert outcome(snli, of_interest=3.0) == "no difference of interest"
    snli_last, scitail_last = (minus("eight", "mnli", "last", [on]) for on in ("snli", "scitail"))
    assert outcome(snli_last, of_interest=3.0) == "no difference of interest"
    said = f"{told(snli_last)} on SNLI, no difference of interest, and {told(scitail_last)} on"
    assert said in measured
    both = [minus("mnli", "plain", at, ["scitail"]) for at in ("best", "last")]
    said = f"{told(both[0])} on SciTail at the best epoch, and {told(both[1])} at the last."
    assert f"MNLI alone gains {said}" in measured
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = f"{told(both[0])} at the best epoch, and {told(both[1])} at the last, and eight sets"
    assert f"on SciTail it gives {said} {told(scitail)} more at the best." in readme
    gain, interval = told(snli).split(" ", 1)
    assert f"of it on SNLI (eight sets minus MNLI: {gain}, {interval.strip('()')});" in readme
    short = minus("short", "plain", "best")
    said = f"126 updates on MNLI alone gains {points(short, ' points')}. The long run minus this is"
    sides = [told(minus("mnli", "short", "best", [on])) for on in ("snli", "scitail")]
    said = f"{said} {told(minus('mnli', 'short', 'best'))}: {sides[0]} on SNLI, and on SciTail"
    assert f"{said} undecided, {sides[1]}." in measured
    long_kept = frame[frame["seed"].isin([1, 2, 5]) & (frame["task"] == "scitail")]
    means = long_kept.groupby("start")["best"].mean()
    said = f"the difference is as large, {signed(means['eight'] - means['mnli'])}."
    assert f"the three seeds of 819 to 945 updates {said}" in measured
    ends = minus("short", "plain", "last").difference
    assert f"the gain after MNLI alone with 126 updates is {ends:.1f} points" in measured
    shares = {  # "all of it on SNLI, and a third to two fifths on SciTail"
        (on, at): minus("mnli", "plain", at, [on]).difference
        / minus("eight", "plain", at, [on]).difference
        for on in ("snli", "scitail")
        for at in ("best", "last")
    }
    assert min(shares["snli", at] for at in ("best", "last")) > 0.98
    assert 0.32 < shares["scitail", "last"] < shares["scitail", "best"] < 0.42
    lesson = (ROOT / "notebooks" / "src" / "09_domain_adaptation.py").read_text(encoding="utf-8")
    gain = both[1]
    said = f"a third, {gain.difference:.1f} points ({gain.low:.1f} to {gain.high:.1f})."
    assert said in " ".join(lesson.replace("\n#", " ").split())


def test_the_dev_rows_of_qnli_are_those_of_its_standard_error():
    """Every recorded accuracy is a whole number of right answers in 1,094 rows."""
    runs = [one for one in recorded_staircases(RESULTS) if one.task == "qnli"]
    right = np.array([value for one in runs for _, value in one.dev]) * 1094
    assert len(runs) == 6 and np.allclose(right, right.round(), atol=1e-6)
    assert {round(one.majority * 1094, 6) for one in runs} == {550}


def read_runs(name):
    """Return the results of a folder, and {(system, seed): {(set, metric): dev score}}."""
    results = [json.loads(path.read_text()) for path in sorted((RESULTS / name).glob("*.json"))]
    scores = {}
    for one in results:
        given = one["parameters"]
        key = given.get("system", given.get("start", given.get("method"))), given["seed"]
        found = {(x["on"], x["metric"]): x["value"] for x in one["scores"] if x["split"] == "dev"}
        scores.setdefault(key, {}).update(found)
    return results, scores


def test_recorded_scores_are_the_first_metrics_in_percent(monkeypatch):
    known = recorded_experiments()
    monkeypatch.setattr(recorded, "recorded_experiments", lambda: known)
    found = recorded.recorded_scores("together-or-alone", "real-company")
    joint = found[found["system"] == "together"]
    metrics = {"rte": "accuracy", "mrpc": "accuracy", "stsb": "pearson", "cola": "matthews"}
    assert dict(zip(joint["on"], joint["metric"])).items() >= metrics.items()
    assert len(joint) == 6 * 6 and set(found["experiment"]) == {"together-or-alone", "real-company"}
    rte = joint[joint["on"] == "rte"].set_index("seed")["value"]
    _, scores = read_runs("together-or-alone-fast")
    assert rte[3] == 100 * scores["together", 3]["rte", "accuracy"]


def test_the_sentences_on_five_tasks_equal_the_runs():
    """Over four sets: -0.1 (-0.6 to +0.4). RTE at the last epoch: +8.4. MRPC's pairs in STS-B."""
    results, scores = read_runs("together-or-alone-fast")
    sets = {"rte": "accuracy", "mrpc": "accuracy", "cola": "matthews", "stsb": "pearson"}
    sets["sst2"] = "accuracy"

    def gain_without(name):
        cells = [cell for cell in sets.items() if cell[0] != name]
        means = {key: 100 * np.mean([found[one] for one in cells]) for key, found in scores.items()}
        kinds = ("together", "alone")
        return paired_bootstrap(*([means[kind, seed] for seed in range(6)] for kind in kinds))

    found, mrpc = gain_without("rte"), gain_without("mrpc")
    said = f"{found.difference:.1f} points ({found.low:+.1f} to {found.high:+.1f})"
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"Over the other four sets the difference is {said}" in measured
    pairs = "STS-B's training file holds 48 of MRPC's 408 dev pairs"
    assert f"{pairs}; without MRPC the gain is {told(mrpc)[1:]}." in measured
    assert pairs in load_experiment("together-or-alone").about
    alone = np.mean([100 * scores["alone", seed]["rte", "accuracy"] for seed in range(6)])
    steps = {
        system: max(row["step"] for row in one["history"] if row["task"] == "rte")
        for one in results
        for system in [one["parameters"]["system"]]
    }
    assert f"gets {steps['together'] / steps['alone']:.1f} times as many updates" in measured
    assert f"({alone:.1f} and 52.7 %)" in measured and round(100 * 146 / 277, 1) == 52.7
    about = load_experiment("together-or-alone").about
    assert f"accuracy of {alone:.1f} %" in about and "class 52.7 %" in about
    last = {}
    for one in results:
        rows = [row["accuracy"] for row in one["history"] if row["task"] == "rte"]
        last.setdefault(one["parameters"]["system"], []).append(100 * rows[-1])
    assert f"RTE is {np.mean(last['together']) - np.mean(last['alone']):+.1f} points" in about


def test_the_relative_improvement_of_mml_equals_the_runs():
    results = load_results([RESULTS / "mml-tables-fast"])["mml-tables", "fast", "3"]
    frame = long_frame(load_experiment("mml-tables"), results)
    part = frame[(frame["metric"] == "improvement") & (frame["split"] == "dev")]
    gains = part[part["method"] == "mml"].groupby("seed")["value"].mean()
    found = paired_bootstrap(gains, gains * 0)
    said = f"MML changes the accuracy of BERT by {found.difference:.1f} % of it ({found.low:.1f} to"
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"{said} {found.high:+.1f})" in measured and found.high < 3.4 == round(3.4, 1)


def test_the_texts_on_other_real_sets_equal_the_runs():
    """Family B: the planned mean over cells, and with equal weight for the training sets."""
    one = next(one for one in recorded_experiments() if one.experiment.name == "real-transfer")
    found = {claim["says"]: found for claim, found in one.compared}
    planned = found["MML does better than BERT on real sets that it was not trained on"]
    assert outcome(planned) == "worse" and planned.pairs == 6
    frame = one.frame[one.frame["on"] != one.frame["task"]]
    cells = 100 * frame.pivot_table("value", ["seed", "task", "on", "split"], "method")
    assert cells.groupby("seed").size().tolist() == 6 * [40]
    means = cells.groupby(["seed", "task"]).mean().groupby("seed").mean()
    equal = paired_bootstrap(means["mml"], means["bert"])
    assert outcome(equal) == "undecided"
    inference = frame["task"].isin(["mnli", "qnli", "snli", "scitail"])
    parts = {"dev": frame["split"] == "dev", "inference": inference, "similarity": ~inference}
    two = (frame["task"] == "qnli") & (frame["on"] == "snli")
    parts["without"] = ~two
    for name, rows in parts.items():
        part = 100 * frame[rows].pivot_table("value", "seed", "method")
        found[name] = paired_bootstrap(part["mml"], part["bert"])
    assert two.sum() == 2 * 2 * 6  # splits, methods and seeds
    assert (planned.low, planned.high) == pytest.approx((-1.307, -0.160), abs=1e-3)
    said = {
        name: f"{signed(x.difference)} ({signed(x.low)} to {signed(x.high)})"
        for name, x in {**found, "equal": equal}.items()
    }
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"{signed(planned.difference)} points over 40 cells (a training set," in measured
    cells_of = frame.groupby("task").apply(lambda rows: len(rows[["on", "split"]].value_counts()))
    of_inference = cells_of[["mnli", "qnli", "snli", "scitail"]].sum()
    assert f"{of_inference} of the 40 cells are of inference sets" in measured
    assert cells_of.sum() == 40
    where = "the two cells of SNLI after QNLI, where MML loses most,"
    assert f"Without {where} it is {said['without']}." in measured
    assert f"with the interval {signed(planned.low)} to {signed(planned.high)}." in measured
    own = found["MML does better than BERT on the real set that it was trained on"]
    six = f"it is {signed(own.difference)} ({signed(own.low)} to {signed(own.high)})"
    sides = own_scores("real-transfer", "mml"), own_scores("real-transfer", "bert")
    five = paired_bootstrap(*(side.drop(columns="mnli").mean(axis=1) for side in sides))
    lost = (sides[1] - sides[0])["mnli"].mean()
    assert (
        f"On MNLI it loses {lost:.1f}; without MNLI the mean of five sets is {told(five)}."
        in measured
    )
    assert f"On dev splits alone it is {said['dev']}." in measured
    assert f"next item, with 2,000 training rows each, {six}, and with 1e-4 for both" in measured
    assert f"for the six training sets, MML minus BERT is {said['equal']}." in measured
    assert f"After inference sets MML is worse, {said['inference']}, and after" in measured
    assert f"after similarity sets it is {said['similarity']}" in measured
    about = one.experiment.about
    assert f"alone, MML minus BERT is {said['dev'].replace(' ', ' points ', 1)}" in about
    assert f"it is {said['inference']}" in about and f"sets {said['similarity']}" in about
    assert f"six training sets it is {said['equal']}" in about
    assert f"after QNLI, MML minus BERT is {said['without'].replace(' ', ' points ', 1)}" in about
    dev = frame[frame["split"] == "dev"].pivot_table("value", ["task", "on"], "method") * 100
    after = dev.loc["qnli", "snli"]
    assert (dev["mml"] - dev["bert"]).idxmin() == ("qnli", "snli") and after.max() < 66
    lesson = (ROOT / "notebooks" / "src" / "05_cross_dataset.py").read_text(encoding="utf-8")
    said = " ".join(lesson.replace("\n#", " ").split())
    assert f"{after['mml']:.1f} % against {after['bert']:.1f} %" in said
    left = [run["heads_left"] for run in one.results if run["parameters"]["method"] == "mml"]
    assert np.mean(np.array(left) == 1) == 0.5 and "In half of these runs of MML" in said


def test_the_heads_that_ten_checks_leave_are_those_in_the_text():
    runs, _ = read_runs("real-multiverse-fast")
    runs = [run for run in runs if run["parameters"]["method"] == "mml"]
    left = {}
    for run in runs:
        left.setdefault(run["parameters"]["task"], []).append(run["heads_left"])
    assert {run["parameters"]["checks"] for run in runs} == {10} and len(left) == 4
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    here, over = np.median(left["rte"] + left["mrpc"]), np.median(sum(left.values(), []))
    said = f"the median is {here:g} heads on RTE and MRPC, and {over:g} over four sets"
    assert f"ten checks were planned: {said}" in measured


def test_the_gains_of_mml_on_its_own_set_equal_the_runs():
    mml, bert, pruned = (own_scores("real-multiverse", one) for one in ("mml", "bert", "mv-m"))
    gains = [told(paired_bootstrap(mml[on], bert[on])) for on in ("rte", "cola", "mrpc", "stsb")]
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"| MML at 1e-4, BERT at 2e-4 | {' | '.join(gains)} |" in measured
    sides = pruned, bert, own_scores("real-same-rate", "mv-m")
    spread = [f"{side['stsb'].min():.1f} to {side['stsb'].max():.1f}" for side in sides]
    said = "seed on STS-B: {}, where BERT has {}. MV-m at 1e-4 has {}."
    assert said.format(*spread) in load_experiment("real-multiverse").about


def test_the_methods_of_family_a_in_the_text_equal_their_claims():
    """All methods at 1e-4 against BERT, and MV-m at two learning rates."""
    compared = {
        claim["says"]: found
        for one in recorded_experiments()
        if one.experiment.name in ("real-multiverse", "real-same-rate")
        for claim, found in one.compared
    }
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    pruned = compared["Heads without pruning (MV-m) do better than BERT, both at 2e-4, in-domain"]
    assert f"Minus BERT, both at 2e-4, it has {told(pruned)}." in measured
    level = compared["MML does better than an ensemble of heads without orthogonality in-domain"]
    assert f"MML minus the ensemble is {told(level)}, and" in measured
    at_one = {
        name: told(compared[f"{says} at the same learning rate, in-domain"])
        for name, says in {
            "ensemble": "Heads without orthogonality (BERT-Ensemble) do better than BERT",
            "mv-m": "Heads without pruning (MV-m) do better than BERT",
            "pruning": "MML does better than its heads without pruning (MV-m)",
            "mv-5": "Five orthogonal heads (MV-5) do better than BERT",
            "drop": "One head with more dropout does better than BERT",
        }.items()
    }
    mean = compared[
        "MML does better than BERT at the same learning rate, mean of four sets in-domain"
    ]
    said = f"minus BERT, MML has {told(mean)}, heads without orthogonality (BERT-Ensemble) "
    said += f"{at_one['ensemble']}, and orthogonal heads without pruning (MV-m) {at_one['mv-m']}."
    assert f"is shown to be better than BERT over the four sets: {said}" in measured
    chosen = compared["MML does better than BERT, mean of four sets in-domain"]
    assert f"CoLA and STS-B, MML minus BERT is then {told(chosen)}." in measured
    assert f"and MML minus MV-m {at_one['pruning']}." in measured
    said = f"five orthogonal heads (MV-5) have {at_one['mv-5']}, and one head with 30 % dropout"
    assert f"{said} has {at_one['drop']}." in measured
    rate = compared["BERT does better at 1e-4 than at 2e-4, mean of four sets in-domain"]
    said = f"BERT at 1e-4 has {told(rate)[1:].replace(' (', ' points more than at 2e-4 (')}."
    assert said in measured
    rate = compared["Heads without pruning (MV-m) do better at 1e-4 than at 2e-4, in-domain"]
    gain, low, high = (f"{value:.1f}" for value in rate[:3])
    assert f"is {gain} points worse than at 1e-4 (-{high} to -{low})" in measured


def test_what_depends_on_single_rows_and_on_precision_in_family_a_is_said():
    """One row of RTE more for MV-m, or less for MML, with any one of three seeds."""
    bert, mml = own_scores("real-same-rate", "bert"), own_scores("real-multiverse", "mml")
    sides = {"worse": (own_scores("real-same-rate", "mv-m"), 1)}
    sides["no difference of interest"] = (mml, -1)
    for verdict, (own, rows) in sides.items():
        opened = []
        for seed in range(6):
            other = own.copy()
            other.loc[seed, "rte"] += rows * 100 / 277
            found = paired_bootstrap(other.mean(axis=1), bert.mean(axis=1))
            opened.append(outcome(found, of_interest=1))
        assert sorted(opened) == sorted(3 * [verdict] + 3 * ["undecided"])
    assert paired_bootstrap(mml.mean(axis=1), bert.mean(axis=1)).low == pytest.approx(
        -0.998, abs=5e-4
    )
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert "one more error on RTE with one of three seeds would leave it undecided" in measured
    rate = paired_bootstrap(bert["stsb"], own_scores("real-multiverse", "bert")["stsb"])
    assert f"On STS-B the difference is {told(rate)}." in measured


def test_the_verdicts_that_another_interval_leaves_open_are_said(monkeypatch):
    """Student's t in place of the bootstrap."""

    def student(first, second, *, level):
        gains = np.subtract(*matched(first, second))
        half = t.ppf((1 + level) / 2, len(gains) - 1) * sem(gains) if len(gains) > 1 else np.inf
        return Comparison(gains.mean(), gains.mean() - half, gains.mean() + half, level, len(gains))

    def verdicts(known):
        pairs = [(one, *pair) for one in known for pair in one.compared]
        return {(x.title, claim["says"]): x.outcome(found) for x, claim, found in pairs}

    before = verdicts(recorded_experiments())
    monkeypatch.setattr(scores, "paired_bootstrap", student)
    after = verdicts(recorded.recorded_experiments([RESULTS]))
    opened = [title for (title, says), word in before.items() if word != after[title, says]]
    names = [
        *2 * ["real-adaptation-long"],
        "real-company",
        "real-multiverse",
        *3 * ["real-same-rate"],
        "real-transfer-same-rate",
    ]
    assert opened == [f"{name} (fast)" for name in names]
    report = (RESULTS / "REPORT.md").read_text(encoding="utf-8")
    assert "With Student's t, eight verdicts become undecided: eight sets minus MNLI" in report
    six = sum(x.pairs == 6 for one in recorded_experiments() for _, x in one.compared)
    measured = (ROOT / "docs/guide/measured.md").read_text(encoding="utf-8")
    said = f"the {six} intervals of claims about five probably"
    assert round(0.065 * six) == 5 and said in report and said in measured


def test_the_primary_claims_in_the_findings_have_their_differences():
    found = {
        claim["says"]: told(compared)
        for one in recorded_experiments()
        for claim, compared in one.compared
    }
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    few = found["An encoder that has learned SST-2 does better on five-way SST with few labels"]
    assert f"On five-way SST, the gain after SST-2 is {few[1:]};" in measured
    head = found["The answer module does better than a linear head, mean of three sets"]
    assert f"answer module (SAN) minus a linear head is {head}, in the mean" in measured
    checks = found["One check in a run does better than thirty (rare pruning keeps accuracy)"]
    assert f"one check minus thirty is {checks}." in measured
    five = found["Learning five tasks together does better on average than each alone"]
    assert f"The mean gain is {five[1:].replace(' (', ' points (')}." in measured
    order = found["Annealed sampling does better than sequential training"]
    gain, interval = order[1:].split(" ", 1)
    said = f"Annealed sampling is {gain} points better than sequential training {interval}"
    assert said in measured


def test_the_texts_on_one_learning_rate_equal_the_runs():
    """BERT at MML's rate: the control of family A."""
    one = next(one for one in recorded_experiments() if one.experiment.name == "real-same-rate")
    given = pd.DataFrame([run["parameters"] for run in one.results])
    assert set(given["lr"]) == {1e-4} and len(given) == 2 * 4 * 6
    assert (given.groupby(["method", "task"])["seed"].nunique() == 6).all()
    found = {claim["says"]: found for claim, found in one.compared}
    mean = found["MML does better than BERT at the same learning rate, mean of four sets in-domain"]
    assert outcome(mean) == "undecided" and mean.pairs == 6
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    each = [
        found[f"MML does better than BERT at the same learning rate on {task}, in-domain"]
        for task in ("RTE", "CoLA", "MRPC", "STS-B")
    ]
    gains = [told(x) for x in each]
    row = "| MML and BERT at 1e-4 (BERT in fp32, except on STS-B)"
    assert f"{row} | {' | '.join(gains)} |" in measured
    assert [one.low < 0 < one.high for one in each] == [True, True, False, False]
    found_of = {}
    for run in one.results + read_runs("real-multiverse-fast")[0]:
        key = (run["experiment"], run["parameters"]["method"], run["parameters"]["task"])
        found_of.setdefault(key, set()).add(run["settings"]["precision"])
    other = {key for key, precisions in found_of.items() if precisions != {"bf16"}}
    assert other == {("real-same-rate", "bert", task) for task in ("rte", "mrpc", "cola")}
    said = "On RTE, MRPC and CoLA, BERT at 1e-4 ran in fp32 and all other runs in bf16"
    assert said in measured
    sides = {
        task: outcome(
            found[f"MML does better than BERT at the same learning rate on {task}, in-domain"]
        )
        for task in ("RTE", "MRPC", "CoLA", "STS-B")
    }
    assert [task for task, word in sides.items() if word == "worse"] == ["MRPC", "STS-B"]
    assert "better" not in sides.values()


def test_the_texts_on_held_out_rows_in_domain_equal_the_runs():
    """Family A at one learning rate and in one precision: the guide and README."""
    one = next(one for one in recorded_experiments() if one.experiment.name == "real-held-out")
    assert len(one.results) == 3 * 4 * 6 and one.held_out
    assert {(x["settings"]["precision"], x["parameters"]["lr"]) for x in one.results} == {
        ("bf16", 1e-4)
    }
    assert [one.outcome(found) for _, found in one.compared] == ["undecided"] * 3
    mean, ensemble, minus = (told(found) for _, found in one.compared)
    pages = ("docs/guide/measured.md", "README.md")
    texts = [" ".join((ROOT / page).read_text(encoding="utf-8").split()) for page in pages]
    measured, readme = texts
    assert f"the other is scored) give {mean}, undecided." in measured
    said = f"BERT-Ensemble minus BERT is {ensemble} there, and MML minus BERT-Ensemble {minus},"
    assert f"{said} both undecided." in measured
    assert f"On held-out rows, in one precision, it is undecided, {mean}." in readme
    scores = recorded.recorded_scores("real-held-out")
    by_seed = scores.pivot_table("value", ["task", "seed"], "method")
    sets = ["rte", "cola", "mrpc", "stsb"]
    gains = [told(paired_bootstrap(*by_seed.loc[task][["mml", "bert"]].T.values)) for task in sets]
    row = f"| MML and BERT at 1e-4 in bf16, on held-out rows | {' | '.join(gains)} |"
    assert all(row in text for text in texts)
    rows = {x["parameters"]["task"]: x["settings"]["scored_rows"] for x in one.results}
    said = "are {} of RTE, {} of CoLA, {} of MRPC and {} of STS-B"
    assert said.format(*(rows[task] for task in sets)) in measured
    assert (by_seed.loc["stsb", "mml"] < by_seed.loc["stsb", "bert"]).all()


def test_the_texts_on_other_real_sets_at_one_learning_rate_equal_the_runs():
    """BERT at MML's rate: the control of family B."""
    one = next(
        one for one in recorded_experiments() if one.experiment.name == "real-transfer-same-rate"
    )
    assert {run["parameters"]["lr"] for run in one.results} == {1e-4} and len(one.results) == 36
    others = next(found for claim, found in one.compared if claim.get("control_of"))
    assert outcome(others) == "undecided" and others.pairs == 6 and others.difference < 0
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    said = f"{signed(others.difference)} ({signed(others.low)} to {signed(others.high)})"
    assert f"With 1e-4 for both it is {said}." in measured
    (own,) = [
        x for claim, x in one.compared if claim["says"].endswith("set that it was trained on")
    ]
    assert f"and with 1e-4 for both {told(own)}." in measured
    (mml,) = [one for one in recorded_experiments() if one.title.startswith(OTHERS)]
    rows = pd.concat([mml.frame[mml.frame["method"] == "mml"], one.frame])
    rows = rows[(rows["on"] != rows["task"]) & (rows["metric"] == "accuracy")]
    similar = rows["task"].isin(["qqp", "stsb_star"])
    words = []
    for part in (rows[~similar], rows[similar]):
        means = 100 * part.pivot_table("value", "seed", "method")
        group = paired_bootstrap(means["mml"], means["bert"])
        words.append(f"{signed(group.difference)} ({signed(group.low)} to {signed(group.high)})")
    assert f"With 1e-4 for both they are {words[0]} and {words[1]}." in measured


def test_the_texts_on_the_control_of_rte_equal_the_runs():
    """RTE alone with as many updates as five sets have, between RTE alone and RTE with others."""
    one = next(one for one in recorded_experiments() if one.experiment.name == "real-company")
    found = {claim["says"]: found for claim, found in one.compared}
    others = found["RTE gains from the other sets, not only from more updates"]
    updates = found["RTE alone gains from as many updates as the five sets have"]
    assert others.pairs == updates.pairs == 6 and outcome(updates) == "better"
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    said = f"{others.difference:.1f} more ({signed_interval(others.low, others.high)})"
    assert f"updates on RTE alone gains {updates.difference:.1f} points, and" in measured
    assert said in measured
    together, longer = (
        {
            run["parameters"]["seed"]: x["value"]
            for run in read_runs(name)[0]
            for x in run["scores"]
            if (run["parameters"]["system"], x["on"], x["metric"]) == (system, "rte", "accuracy")
        }
        for name, system in (
            ("together-or-alone-fast", "together"),
            ("real-company-fast", "alone-longer"),
        )
    )
    opened = [
        outcome(paired_bootstrap({**together, seed: together[seed] - 1 / 277}, longer))
        for seed in range(6)
    ]
    assert sorted(opened) == 3 * ["better"] + 3 * ["undecided"]
    said = "one more error of the joint model, with any one of three of the six seeds, would leave"
    assert said in measured
    runs, _ = read_runs("real-company-fast")
    last = [
        100 * run["history"][-1]["accuracy"]
        for run in runs
        if run["parameters"]["system"] == "alone-longer"
    ]
    assert len(last) == 6 and {row["epoch"] for row in runs[0]["history"]} == {*range(1, 36)}
    joint = [
        100 * row["accuracy"]
        for run in read_runs("together-or-alone-fast")[0]
        for row in run["history"][-5:]
        if run["parameters"]["system"] == "together" and row["task"] == "rte"
    ]
    assert len(joint) == 6
    about = load_experiment("real-company").about
    assert f"difference is {np.mean(joint) - np.mean(last):+.1f} points" in about


def test_the_minutes_of_the_plan_equal_the_runs():
    """The mean of the runs that were not resumed, in the last column of the matrix."""
    plan = (ROOT / "experiments" / "PLAN.md").read_text(encoding="utf-8")
    matrix = plan.split("## The matrix")[1].split("\nCommands")[0]
    rows = re.findall(r"^\| (real-[a-z-]+) \|.*\| ([\d.]+) \|$", matrix, re.M)
    assert len(rows) == 10
    for name, printed in rows:
        runs, _ = read_runs(f"{name}-fast")
        mean = np.mean([run["minutes"] for run in runs if not run["resumed"]])
        assert printed == f"{mean:.{len(printed.partition('.')[2])}f}", name


def test_the_runs_in_the_table_of_the_plan_are_those_recorded():
    plan = (ROOT / "experiments" / "PLAN.md").read_text(encoding="utf-8")
    table = plan.split("### What has run")[1].split("\n### ")[0]
    rows = re.findall(r"^\| (real-[a-z-]+)(?: \(added\))? \| ([^|]*) \|", table, re.M)
    files = {name: len([*(RESULTS / f"{name}-fast").glob("*.json")]) for name, _ in rows}
    assert {path.stem for path in (ROOT / "experiments").glob("real-*.toml")} == {*files}
    said = {name: sum(map(int, re.findall(r"\b\d+\b", text))) for name, text in rows}
    assert said == files


def test_repeated_runs_have_the_same_scores():
    """Equal on the same kind of processor and the same versions, and nearly so elsewhere."""
    record = json.loads((RESULTS / "repeated_runs.json").read_text(encoding="utf-8"))
    same = []
    for one in record["runs"]:
        first = json.loads((RESULTS / one["repeats"]).read_text(encoding="utf-8"))
        again = one["result"]
        assert first["parameters"] == again["parameters"]
        pairs = list(zip(first["scores"], again["scores"], strict=True))
        assert all({**x, "value": 0} == {**y, "value": 0} for x, y in pairs)
        away = max(abs(x["value"] - y["value"]) for x, y in pairs)
        like = [(run["hardware"], run["versions"]) for run in (first, again)]
        same.append(like[0] == like[1])
        assert away == 0 if same[-1] else away < 0.004
    assert sorted(same) == [False, True] and "0.004" in record["what"]


def test_the_texts_on_the_number_of_checks_equal_the_runs():
    """Thirty checks against one, over both sets: the interval of the text includes zero."""
    runs = recorded_cadence()
    assert list(runs.groupby(["checks", "task"]).size()) == 6 * [6]
    left = [np.median(part) for _, part in runs.groupby("checks")["heads_left"]]
    one, five, thirty = (f"{value + 1e-9:.0f}" for value in left)
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"the kept epoch has {one}, {five} or {thirty} of 384 heads in the median" in measured
    means = runs.groupby(["checks", "seed"])["accuracy"].mean().mul(100)
    found = paired_bootstrap(means[30], means[1])
    text = (ROOT / "notebooks" / "src" / "04_pruning_heads.py").read_text(encoding="utf-8")
    said = " ".join(text.replace("\n#", " ").split())
    thirty = f"thirty checks are {found.difference:.1f} points better than one"
    assert f"undecided: {thirty} ({found.low:+.1f} to {found.high:+.1f})" in said
    assert found.low < 0


def test_the_texts_on_chance_splits_equal_the_measurement():
    record = json.loads((RESULTS / "meanshift_rules.json").read_text(encoding="utf-8"))
    rows = {(row["rule"], row["heads"]): 100 * row["share_split"] for row in record["rows"]}
    default, wider = ([rows[rule, n] for n in (384, 45)] for rule in ("auto:0.3", "std:1.5"))
    about = load_experiment("real-staircase").about
    said = f"splits {default[0]:.0f} % of 1,000 random normal samples of 384 values, and"
    assert f"{said} {default[1]:.1f} % of those of 45" in about
    assert "splits {:.0f} and {:.0f} %".format(*wider) in about
    assert {row["draws"] for row in record["rows"]} == {1000}
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    assert f"splits {default[0]:.0f} % of random normal samples of 384 values" in measured
    left = {}
    for run in read_runs("real-staircase-fast")[0]:
        left.setdefault(run["parameters"]["bandwidth"], []).append(run["heads_left"])
    assert np.median(left["auto:0.3"]) == 1 and left["std:1.5"] == [384] * 3


def test_the_batches_of_sts_in_family_g_are_those_of_the_sampler():
    sizes, found = {"sst": 16, "quora": 63, "sts": 11}, {}  # batches of 500, 2,000 and 350 rows
    for kind in ("annealed", "sequential", "proportional"):
        for seed in range(6):
            order = TaskSampler(kind, sizes=sizes, epochs=5, steps_per_epoch=90, seed=seed)
            tasks = [task for epoch in range(1, 6) for task in order.order(epoch)]
            found.setdefault(kind, []).append(tasks.count("sts"))
    least, most = min(found["annealed"]), max(found["annealed"])
    (alone,) = set(found["sequential"])
    mixed = f"{min(found['proportional'])} to {max(found['proportional'])}"
    said = f"gives STS {alone} batches, annealed sampling {least} to {most}"
    said += f", proportional sampling {mixed}"
    assert said in load_experiment("real-sampling").about
    lesson = (ROOT / "notebooks" / "src" / "10_annealed_sampling.py").read_text(encoding="utf-8")
    words = " ".join(lesson.replace("\n#", " ").split())
    assert f"({mixed} batches of STS instead of {alone})" in words
    plan = " ".join((ROOT / "experiments" / "PLAN.md").read_text(encoding="utf-8").split())
    assert f"gives STS {mixed} batches, {np.mean(found['proportional']):.1f} in the mean." in plan
    (one,) = [one for one in recorded_experiments() if one.experiment.name == "real-sampling"]
    gains = {claim["says"]: compared for claim, compared in one.compared}
    order = gains["Proportional sampling does better than sequential training"]
    shares = gains["Annealed sampling does better than proportional sampling"]
    said = f"proportional sampling {order.difference:.1f} points."
    assert outcome(order) == "better" and said in words
    assert max(-shares.low, shares.high) < 1 and "whole interval lies within one point" in words
    assert outcome(shares) == "undecided"
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    gained = {
        name: f"{found.difference:.1f} ({signed_interval(found.low, found.high)})"
        for name, found in {"order": order, "shares": shares}.items()
    }
    assert f"shares of sequential training, gains {gained['order']}." in measured
    said = "annealing adds to that is no difference of interest in the overall score"
    assert f"{said}, +{gained['shares']};" in measured
    part = one.frame[one.frame["seed"] < 6]
    means = 100 * part.pivot_table("value", ["on", "metric", "seed"], "system")
    sts = means.loc["sts", "pearson"].mean() / 6  # half of a correlation, a third of the score
    gain = gains["Annealed sampling does better than sequential training"].difference
    assert f"Annealed sampling is {gain:.1f} points better than sequential" in measured
    part = sts["annealed"] - sts["sequential"]
    said = f"Of the {gain:.1f} points by which annealed sampling is better than sequential training"
    assert f"{said}, STS gives {part:.1f}, with" in measured
    quora = means.loc["quora", "accuracy"]
    on_quora = paired_bootstrap(quora["pals-parallel"], quora["annealed"])
    lost = -on_quora.difference
    pals = gains["Parallel PALs do better than annealed sampling alone"]
    said = f"parallel PALs have {told(pals)}, but are worse on Quora, {told(on_quora)}."
    assert said in measured
    advice = one.experiment.claims[1]["advice"]["undecided"]
    assert advice.endswith(f"On Quora they are {lost:.1f} points worse.")
    overall = means.loc["overall", "overall"]
    flaw, repair = (
        paired_bootstrap(overall[f"pals-{name}"], overall["annealed"])
        for name in ("sequential", "repaired")
    )
    for found in (flaw, repair):
        assert f"have {told(found)}." in measured
    lesson = (ROOT / "notebooks" / "src" / "11_pals.py").read_text(encoding="utf-8")
    gain = gains["The corrected sequential PALs do better than the report's"].difference
    lesson = " ".join(lesson.replace("\n#", " ").split())
    assert f"wins {gain:.1f} points back" in lesson
    said = f"({pals.difference:.1f} points, {pals.low:.1f} to {pals.high:+.1f}). On Quora they lose"
    said += f" {-on_quora.difference:.1f} ({on_quora.low:.1f} to {on_quora.high:.1f})"
    assert said.replace("-", "−") in lesson
    sst = means.loc["sst", "accuracy"].mean()["pals-sequential"]
    assert f"On SST the sequential form scores {sst:.0f} %" in lesson
    for run in read_runs("real-sampling-fast")[0]:
        given = run["settings"]
        assert (given["epochs"], given["steps_per_epoch"], given["batch_size"]) == (5, 90, 32)
        assert {task: -(-rows // 32) for task, rows in given["rows"].items()} == sizes


def test_the_texts_on_all_parts_together_equal_the_runs():
    """The capstone, on held-out rows: the guide, README and notebook 12."""
    scores = recorded.recorded_scores("real-capstone").set_index(["on", "system", "seed"])
    scores = scores["value"].sort_index()
    pairs = {
        "together": ("overall", "everything", "nothing"),
        "heads": ("overall", "everything", "one-head"),
        "heads on sst": ("sst", "everything", "one-head"),
        "without heads": ("overall", "one-head", "nothing"),
        "pals": ("overall", "everything", "no-pals"),
        "pals on sts": ("sts", "everything", "no-pals"),
        "annealed": ("overall", "everything", "merged"),
        "annealed on sts": ("sts", "everything", "merged"),
        "order": ("overall", "nothing", "nothing-in-blocks"),
    }
    gains = {
        name: paired_bootstrap(scores[on, first], scores[on, second])
        for name, (on, first, second) in pairs.items()
    }
    assert {found.pairs for found in gains.values()} == {6}
    in_guide = {name: told(found) for name, found in gains.items()}
    pages = ("docs/guide/measured.md", "README.md", "notebooks/src/12_putting_it_together.py")
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in pages]
    measured, readme, lesson = (" ".join(text.replace("\n#", " ").split()) for text in texts)
    assert f"minus a plain shared encoder, are {in_guide['together']}." in measured
    said = f"are {in_guide['heads']}, on SST {in_guide['heads on sst']}."
    assert f"minus one, beside both, all at one learning rate, {said}" in measured
    assert f"minus the plain encoder, are {in_guide['without heads']}, with" in measured
    assert f"undecided, {in_guide['pals']}, but on STS {in_guide['pals on sts']}." in measured
    said = f"are {in_guide['annealed']}, undecided, and on STS {in_guide['annealed on sts']}."
    assert f"Annealed minus merged batches {said}" in measured
    assert f"one task after the other, is undecided, too: {in_guide['order']}." in measured
    assert f"is undecided, too: {in_guide['order'].replace('-', '−')} over" in lesson
    assert f"together are undecided, {in_guide['together']};" in readme
    assert f"without the heads {in_guide['without heads']}, compared after" in readme

    def in_lesson(name):
        gain, rest = told(gains[name]).replace("-", "−").split(" ", 1)
        return f"{gain.strip('+−')}", rest

    for name, said in {
        "heads": "**The many heads cost {}",
        "without heads": "them gain {}",
    }.items():
        gain, interval = in_lesson(name)
        assert said.format(gain) in lesson and interval in lesson
    assert f"{in_guide['heads on sst'].replace('-', '−')}." in lesson
    for name in ("pals", "annealed"):
        gain, interval = in_guide[name].replace("-", "−").split(" ", 1)
        assert f"({gain}, {interval.strip('()')})" in lesson
    assert "on sts they gain {} {}".format(*in_lesson("pals on sts")) in lesson
    signs = {name: np.sign(scores[on, a] - scores[on, b]) for name, (on, a, b) in pairs.items()}
    assert (signs["heads"] == -1).all() and (signs["without heads"] == 1).all()
    runs, _ = read_runs("real-capstone-fast")
    left = [x["heads_left"]["sst"] for x in runs if x["parameters"]["system"] == "everything"]
    said = f"{min(left)} to {max(left)}"
    assert f"({said} are left)" in measured and f"pruning (to {said} heads of sst)" in lesson


def test_pooled_and_controlled_differences_of_the_guide_equal_the_runs():
    """MML on ten sets, five tasks with the longer RTE, annealing on STS, MML's heads."""
    measured = " ".join((ROOT / "docs/guide/measured.md").read_text(encoding="utf-8").split())
    of, left, rates = {}, [], ("real-same-rate", "real-transfer-same-rate")
    for name in ("real-multiverse", "real-transfer", *rates):
        for run in read_runs(f"{name}-fast")[0]:
            given = run["parameters"]
            own = [s for s in run["scores"] if (s["on"], s["split"]) == (given["task"], "dev")]
            key = (given["method"], given["task"], given["seed"], name in rates)
            of[key] = 100 * own[0]["value"]
            left += [run["heads_left"]] if given["method"] == "mml" else []
    assert f"Of the {len(left)} MML models" in measured and len(left) == 60
    assert f"{sum(heads <= 2 for heads in left)} keep one or two of 384" in measured
    sets = sorted({task for method, task, *_ in of if method == "mml"})

    def ten(method, one_rate):
        return [np.mean([of[method, t, s, one_rate] for t in sets]) for s in range(6)]

    mml, chosen, equal = ten("mml", False), ten("bert", False), ten("bert", True)
    both = [told(paired_bootstrap(mml, bert)) for bert in (chosen, equal)]
    said = "over all ten the difference is {}, and with one rate {}".format(*both)
    assert len(sets) == 10 and said in measured
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = "Over all ten it is {} at the chosen rates, and with one rate {}.".format(*both)
    assert said in readme
    names = ("together-or-alone", "real-company", "real-sampling")
    scores = recorded.recorded_scores(*names).query("seed < 6")
    scores = scores.set_index(["on", "system", "seed"])["value"].sort_index()
    five = ["rte", "mrpc", "stsb", "cola", "sst2"]
    alone = {on: "alone-longer" if on == "rte" else "alone" for on in five}
    sides = [dict.fromkeys(five, "together"), alone]
    gain = paired_bootstrap(*(sum(scores[on, of[on]] for on in five) / 5 for of in sides))
    assert f"mean gain of the five sets is {told(gain)}" in measured
    last = {
        (run["parameters"]["system"], row["task"], run["parameters"]["seed"]): 100
        * row[{"cola": "matthews", "stsb": "pearson"}.get(row["task"], "accuracy")]
        for name in names[:2]
        for run in read_runs(f"{name}-fast")[0]
        for row in run["history"]  # later epochs replace earlier ones
    }
    sides = [[np.mean([last[of[on], on, s] for on in five]) for s in range(6)] for of in sides]
    rte = [[last[one, "rte", s] for s in range(6)] for one in ("together", "alone-longer")]
    more = told(paired_bootstrap(*rte))[1:].replace(" (", " more than the long run (")
    said = f"the mean gain is {told(paired_bootstrap(*sides))}, and for RTE the other sets give"
    assert f"At the last epochs, {said} {more}." in measured
    sts = paired_bootstrap(scores["sts", "annealed"], scores["sts", "proportional"])
    assert f"on STS, which gets more batches, it is {told(sts)}" in measured


def test_no_recorded_cadence_gives_an_empty_table(tmp_path):
    found = recorded_cadence(tmp_path)
    assert len(found) == 0 and "heads_left" in found


def test_the_levels_of_guessing_in_the_texts_equal_the_runs():
    _, few = read_runs("mtdnn-dev-fast")
    assert [round(few["st-dnn", 0][name, "accuracy"], 3) for name in ("mnli", "rte")] == [
        0.333,
        0.502,
    ]
    stars, _ = read_runs("real-stars-fast")
    ten = [
        score["value"]
        for one in stars
        if one["parameters"].get("start") == "bert" and one["parameters"]["share"] == 0.0012
        for score in one["scores"]
        if (score["split"], score["metric"]) == ("dev", "accuracy")
    ]
    assert (
        len(ten) == 6
        and f"MiniLM has {100 * np.mean(ten):.1f} %" in load_experiment("real-stars").about
    )
    domain, _ = read_runs("domain-adaptation-fast")
    rows = {
        (one["parameters"]["task"], *one["rows"].values())
        for one in domain
        if one["parameters"].get("share") == 0.01
    }
    assert rows == {("snli", 14), ("scitail", 7)}


def test_the_price_on_real_sets_in_notebook_05_equals_the_runs():
    """BERT on the dev rows of four sets: its own model minus the models of the other sets."""
    one = next(one for one in recorded_experiments() if one.experiment.name == "real-transfer")
    rows = one.frame.query("method == 'bert' and split == 'dev' and metric == 'accuracy'")
    rows = rows[rows["on"].isin(["qnli", "scitail", "qqp", "stsb_star"])]
    own = rows["task"] == rows["on"]
    sides = [
        100 * part.groupby(["seed", "on"])["value"].mean().groupby("seed").mean()
        for part in (rows[own], rows[~own])
    ]
    found = paired_bootstrap(*sides)
    lesson = (ROOT / "notebooks" / "src" / "05_cross_dataset.py").read_text(encoding="utf-8")
    said = f"{found.difference:.1f} points ({found.low:.1f} to {found.high:.1f}) on four real sets"
    assert said in " ".join(lesson.replace("\n#", " ").split())
