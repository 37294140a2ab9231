"""The sentences on the single measurements in results/."""

import json
import re
from pathlib import Path

import sentences

ROOT = Path(__file__).resolve().parents[3]


def measurement_sentences():
    """Return {name of a file in results/: what it found}, where it says so."""
    paths = (ROOT / "results").glob("*.json")
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    return {name: record["found"] for name, record in records.items() if "found" in record}


def test_the_recorded_measurements_have_sentences():
    found = measurement_sentences()
    assert (
        found["speed"].startswith("Training steps per second") and "sst in fp32" in found["speed"]
    )
    assert found["meanshift_splits"].count(" heads") == 3
    assert "At 384 heads" in found["meanshift_rules"]
    assert "42.1% with auto:0.3" in found["meanshift_rules"]
    assert "1.0% with std:1.5" in found["meanshift_rules"]
    assert re.search(r"^384 heads at once are 1,\d{3} times as fast", found["multiverse_cost"])
    assert "runs of 13 tasks, seeds [0, 1, 2]" in found["mini_baselines"]
    assert "% of a training step in bf16, at" in found["step_profile"]
    assert "% of a prediction in fp32, at" in found["prediction_profile"]
    said = found["speed_predictions"]
    record = json.loads((ROOT / "results" / "speed_predictions.json").read_text(encoding="utf-8"))
    first = record["comparisons"][0]["predict_over_pipeline"]["median"]
    assert said.startswith(f"Predictions per second, relative to the pipeline: {first:.2f} times")
    assert said.endswith(" times on quora in bf16.") and said.count(" times on ") == 4


def test_a_sentence_follows_from_the_numbers_of_its_record():
    made = {
        "meanshift": lambda record: sentences.meanshift_sentence(record["rows"]),
        "mini": lambda record: sentences.mini_sentence(record["what"], record["runs"]),
        "multiverse": sentences.multiverse_sentence,
        "prediction": sentences.profile_sentence,
        "speed": lambda record: sentences.speed_sentence(record["comparisons"]),
        "step": sentences.profile_sentence,
    }
    for name, sentence in measurement_sentences().items():
        if (kind := name.split("_")[0]) in made:
            path = ROOT / "results" / f"{name}.json"
            assert sentence == made[kind](json.loads(path.read_text(encoding="utf-8"))), name
