"""The parts of `make test-colab`: what pip would replace, and what a reader would miss."""

import colab


def test_only_colabs_own_packages_count_as_replaced():
    names = colab.pinned("numpy==2.1.3\nhuggingface_hub==1.27.0\npytest\n# torch==1\n")
    assert names == {"numpy", "huggingface-hub"}
    packages = (("mmlkit", "0.1.0"), ("papermill", "2.7"), ("huggingface_hub", "2.0"))
    report = {"install": [{"metadata": dict(name=n, version=v)} for n, v in packages]}
    assert colab.replaced(report, names) == ["huggingface-hub 2.0"]
    report["install"].append({"metadata": dict(name="torch", version="3.0")})
    assert colab.replaced(report, names) == ["huggingface-hub 2.0", "torch 3.0"]


def test_a_reader_misses_the_drawing_and_recorded_results():
    html = {"text/html": ['<img alt="x" src="data:image/svg+xml;base64,aa">']}
    drawn = {"outputs": [{"output_type": "display_data", "data": html}]}
    lines = "ok\nNot found: results/speed.json. Nothing.\nNot found: results/none.json. Nothing.\n"
    printed = {"outputs": [{"output_type": "stream", "text": [lines]}]}
    assert colab.problems({"cells": [drawn, {"cell_type": "markdown"}]}) == []
    assert colab.problems({"cells": [drawn, printed]}) == ["results/speed.json is not shown."]
    assert colab.problems({"cells": []}) == ["The drawing is not shown."]
