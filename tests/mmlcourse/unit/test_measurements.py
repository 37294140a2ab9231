"""The sentences on the single measurements in results/."""

import json
import re
from pathlib import Path

from mmlcourse.batch import measurement_sentences

ROOT = Path(__file__).resolve().parents[3]


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
