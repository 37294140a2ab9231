"""The cost of many heads: a training step with 384 of them, and the check that prunes them.

The shape is MNLI's on MiniLM: 384 heads for a hidden size of 384, and three labels.
"""

import copy
import statistics

import numpy as np
from steps import draw_batches, make_step, record_shapes
from timing import alternate, seconds, spread

from mmlkit.data.batching import encode
from mmlkit.heads.clustering import cluster
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.runtime import pick_device
from mmlkit.training.graphs import StepGraphs
from mmlkit.training.model import MultitaskModel

__all__ = ["compare_heads", "head_record", "time_pruning_check"]

HEADS = 384


def compare_heads(encoder, data, precision, *, rounds, steps, warm_up, batch_size=32, graphs=None):
    """Compare a training step with 384 heads with a step with one head.

    The two models take turns after every step, on the same batches.

    Args:
        encoder: a BertModel with its tokenizer; a copy of it is trained.
        data: a TaskData of a classification task.
        precision: "fp32" or "bf16".
        rounds: rounds of the alternation.
        steps: timed steps of a round.
        warm_up: steps before the first round.
        batch_size: rows of a batch.
        graphs: whether updates are recorded as CUDA graphs. By default on a GPU.

    Returns:
        A record.
    """
    task, size = data.task, encoder.config.hidden_size
    encoded = encode(encoder.tokenizer, data.train, max_length=160)
    heads = {
        "single": LinearHead(size, task.num_labels, pooling="cls"),
        "multiverse": MultiverseHead(size, task.num_labels, num_heads=HEADS, pooling="cls"),
    }
    calls, device = {}, next(encoder.parameters()).device
    graphs = device.type == "cuda" if graphs is None else graphs
    batches = draw_batches(encoded, batch_size, warm_up + rounds * steps, 0)
    for name, head in heads.items():
        model = MultitaskModel(copy.deepcopy(encoder), {task.name: head}, encoder.tokenizer)
        step = make_step(model, encoded, precision, StepGraphs() if graphs else None)
        if graphs:
            record_shapes(step, encoded, batches)
        calls[name] = lambda rows, step=step: seconds(lambda: step(rows), device)
    for rows in batches[:warm_up]:
        for call in calls.values():
            call(rows)
    timed = batches[warm_up:]
    turns = {name: lambda i, call=call: call(timed[i]) for name, call in calls.items()}
    found = alternate(turns, rounds * steps, f"heads, {precision}")
    return head_record(precision, found, steps)


def head_record(precision, found, steps):
    """Compute how much longer a step with many heads takes.

    Args:
        precision: such as "fp32".
        found: for each step a dict of seconds, "single" and "multiverse".
        steps: how many steps make a round.

    Returns:
        A record: for each round the mean milliseconds of a step, and the median over its steps of
        what the heads add, in percent of the step with one head on the same batch; of these the
        median, lowest and highest.
    """
    rounds = []
    for start in range(0, len(found), steps):
        part = found[start : start + steps]
        mean = {
            name: round(1e3 * sum(one[name] for one in part) / len(part), 2)
            for name in ("single", "multiverse")
        }
        added = statistics.median(100 * (one["multiverse"] / one["single"] - 1) for one in part)
        rounds.append({**mean, "added_percent": round(added, 2)})
    return {
        "comparison": "heads",
        "precision": precision,
        "heads": HEADS,
        "steps": steps,
        "added_percent": spread(one["added_percent"] for one in rounds),
        "rounds": rounds,
    }


def time_pruning_check(rounds):
    """Time MeanShift on the averages of many heads, with scikit-learn's own bandwidth.

    Args:
        rounds: rounds of the alternation.

    Returns:
        A record with the seconds for averages of three shapes.
    """
    generator, values, half = np.random.default_rng(0), 1024, 512
    shapes = {
        "one normal": lambda: generator.normal(0.6, 0.02, values),
        "long tail": lambda: 0.5 + generator.gamma(2, 0.02, values),
        "two groups": lambda: np.append(
            generator.normal(0.5, 0.01, half), generator.normal(0.6, 0.01, values - half)
        ),
    }
    cluster(generator.normal(size=64))  # not timed: it imports scikit-learn
    cpu = pick_device("cpu")

    def timed(draw):
        averages = draw()
        return seconds(lambda: cluster(averages), cpu)

    turns = {name: lambda i, draw=draw: timed(draw) for name, draw in shapes.items()}
    found = alternate(turns, rounds, "pruning check")
    return {
        "comparison": "pruning check",
        "heads": values,
        "seconds": {name: spread(one[name] for one in found) for name in shapes},
        "rounds": [{name: round(value, 4) for name, value in one.items()} for one in found],
    }
