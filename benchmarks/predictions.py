"""Prediction and evaluation of mmlkit against transformers' pipeline, from texts to probabilities.

Both get the same texts, longest first, in batches of the same size and in the same precision, and
both tokenize them. The pipeline runs twice in each round: as shipped, and tuned, which is with our
choice of the matrix product, and on a CPU with explicit attention.
"""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import torch
from steps import quiet_transformers
from timing import alternate, linear_parameters, matmul_peak, seconds, spread

from mmlkit.data.batching import encode
from mmlkit.training.evaluation import evaluate, predict_proba
from mmlkit.training.fast import fast_matmul

__all__ = ["compare_predictions", "prediction_record"]

BATCH_SIZE = 64  # rows


def compare_predictions(model, data, precisions, *, rounds, rows):
    """Compare real tokens a second of `predict_proba` and `evaluate` with those of a pipeline.

    Args:
        model: a MultitaskModel with a LinearHead of pooling "pooler" for the task.
        data: a TaskData whose dev split has labels.
        precisions: such as ["fp32", "bf16"].
        rounds: rounds of the alternation.
        rows: the largest number of rows; they are drawn from the dev split.

    Returns:
        A list with one record for each precision.
    """
    split, tokens = _longest_first(model, data.dev, rows)
    device, variants, differences = model.device, {}, {}
    with quiet_transformers(), tempfile.TemporaryDirectory() as scratch:
        pipelines = _Pipelines(model, data.task, Path(scratch, "classifier"), split)
        for precision in precisions:
            options = dict(batch_size=BATCH_SIZE, precision=precision, device=device)
            calls = {
                "predict": lambda options=options: predict_proba(model, split, **options),
                "evaluate": lambda options=options: evaluate(model, split, **options),
                **pipelines.calls(precision),
            }
            first = {name: call() for name, call in calls.items()}  # not timed: paths are prepared
            theirs = pipelines.probabilities(first["pipeline shipped"])
            differences[precision] = float(np.abs(first["predict"] - theirs).max())
            for name, call in calls.items():
                variants[f"{name} {precision}"] = lambda i, call=call: seconds(call, device)
            variants[f"peak {precision}"] = lambda i, precision=precision: matmul_peak(
                precision, device
            )
        found = alternate(variants, rounds, f"predictions, {data.task.name}")
    about = {
        "task": data.task.name,
        "rows": len(split),
        "tokens": tokens,
        "batch_size": BATCH_SIZE,
        "linear_parameters": linear_parameters(model.encoder.config),
    }
    return [
        prediction_record({**about, "difference": differences[precision]}, precision, found)
        for precision in precisions
    ]


def prediction_record(about, precision, found):
    """Compute the speeds and ratios of one precision.

    Args:
        about: a dict with "linear_parameters", "tokens", and other facts that the record keeps.
        precision: such as "fp32".
        found: for each round a dict: seconds "predict fp32", "evaluate fp32", "pipeline shipped
            fp32" and "pipeline tuned fp32", and "peak fp32" in GFLOP/s.

    Returns:
        A record: every round, and the median, lowest and highest of each ratio.
    """
    tokens, flop = about["tokens"], 2 * about["linear_parameters"]
    rounds = []
    for one in found:
        rounds.append(
            {
                "predict": round(tokens / one[f"predict {precision}"], 1),
                "evaluate": round(tokens / one[f"evaluate {precision}"], 1),
                "pipeline": round(tokens / one[f"pipeline shipped {precision}"], 1),
                "tuned": round(tokens / one[f"pipeline tuned {precision}"], 1),
                "peak_gflops": round(one[f"peak {precision}"], 1),
            }
        )
    peak = max(one["peak_gflops"] for one in rounds)  # other work can only slow it
    return {
        "comparison": "predict",
        "precision": precision,
        **about,
        "tokens_a_second": spread(one["predict"] for one in rounds),
        "predict_over_pipeline": spread(one["predict"] / one["pipeline"] for one in rounds),
        "predict_over_tuned": spread(one["predict"] / one["tuned"] for one in rounds),
        "evaluate_over_pipeline": spread(one["evaluate"] / one["pipeline"] for one in rounds),
        "evaluate_over_tuned": spread(one["evaluate"] / one["tuned"] for one in rounds),
        "share_of_peak": spread(flop * one["predict"] / peak / 1e9 for one in rounds),
        "rounds": rounds,
    }


def _longest_first(model, split, rows):
    """Return at most `rows` rows of a split, longest first, and their number of tokens."""
    drawn = split.take(np.random.default_rng(0).permutation(len(split))[:rows].tolist())
    lengths = encode(model.tokenizer, drawn, max_length=model.cut()).lengths
    order = np.argsort(-lengths, kind="stable")
    return drawn.take(order.tolist()), int(lengths.sum())


class _Pipelines:
    """transformers' pipelines for one task and one list of texts.

    Args:
        model: a MultitaskModel, which is exported.
        task: a Task.
        folder: where to.
        split: the texts.
    """

    def __init__(self, model, task, folder, split):
        from mmlkit.huggingface import export_classifier

        export_classifier(model, task, folder)
        self.task, self.folder, self.device = task, folder, model.device
        self.inputs = [dict(zip(("text", "text_pair"), texts)) for texts in split.texts]
        self.options = {"batch_size": BATCH_SIZE, "truncation": True, "max_length": model.cut()}

    def calls(self, precision):
        """Return {name: function} of the two pipelines."""
        explicit = "eager" if self.device.type == "cpu" else "sdpa"
        return {
            "pipeline shipped": self._call("sdpa", precision, contextlib.nullcontext),
            "pipeline tuned": self._call(explicit, precision, lambda: fast_matmul(self.device)),
        }

    def _call(self, attention, precision, context):
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        classify = pipeline(
            "text-classification",
            AutoModelForSequenceClassification.from_pretrained(
                self.folder, dtype=dtype, attn_implementation=attention, trust_remote_code=False
            ),
            tokenizer=AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False),
            device=self.device,
            top_k=None,
        )

        def call():
            with context():
                return classify(self.inputs, **self.options)

        return call

    def probabilities(self, outputs):
        """Return an array [N, C] in the order of the task's labels."""
        rows = [{one["label"]: one["score"] for one in row} for row in outputs]
        return np.array([[row[label] for label in self.task.labels] for row in rows])
