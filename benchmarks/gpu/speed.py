"""A training step of BERT-base beside the roofline and transformers' Trainer, and of 384 heads.

The profile of a step says where its time goes: `host_ms` is what the host needs to start it,
`busy_ms` what the kernels take. Padding is what packed rows could save at most.
"""

import torch
from gpu.common import Program, classifier, random_data
from heads import compare_heads
from steps import compare_steps, draw_batches, make_step, record_shapes
from timing import clock
from torch.profiler import ProfilerActivity, profile

from mmlkit.data.batching import collate, encode
from mmlkit.runtime import fastest_precision
from mmlkit.training.graphs import StepGraphs


def profile_step(step, batches, device):
    """Return milliseconds of a step, launches, and the kernels that take longest."""
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    started = clock(device)
    for rows in batches:
        step(rows)
    host, total = clock(torch.device("cpu")) - started, clock(device) - started
    with profile(activities=kinds) as found:
        for rows in batches:
            step(rows)
        clock(device)
    name = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    events, number = found.key_averages(), len(batches)
    kernels = [
        one
        for one in events
        if str(one.device_type).endswith(device.type.upper()) and not one.is_user_annotation
    ]
    kernels.sort(key=lambda one: -getattr(one, name))
    launches = sum(one.count for one in events if "Launch" in one.key)
    return {
        "host_ms": round(1e3 * host / number, 2),
        "total_ms": round(1e3 * total / number, 2),
        "busy_ms": round(sum(getattr(one, name) for one in kernels) / 1e3 / number, 2),
        "launches": round(launches / number),
        "kernels_ms": {
            one.key[:90]: round(getattr(one, name) / 1e3 / number, 3) for one in kernels[:12]
        },
    }


def profiles(program, data, batch_size, precision):
    """Return the profiles of an eager and a recorded step, and the share of padding."""
    model, found = classifier(program.config, program.device), {}
    encoded = encode(model.tokenizer, data.train)
    batches = draw_batches(encoded, batch_size, 2 if program.dry else 12, 0)
    for name, graphs in {"eager": None, "graph": StepGraphs()}.items():
        step = make_step(model, encoded, precision, graphs)
        record_shapes(step, encoded, batches)
        found[name] = profile_step(step, batches, program.device)
    masks = [collate(encoded, rows, multiple=8).attention_mask for rows in batches]
    real, all_of_them = sum(int(one.sum()) for one in masks), sum(one.numel() for one in masks)
    return {**found, "padding_percent": round(100 * (1 - real / all_of_them), 1)}


def main():
    program = Program(__doc__)
    config, device, dry = program.config, program.device, program.dry
    precision = fastest_precision(device)
    data = random_data(config, 300 if dry else 8000)
    for batch_size, steps in {32: 36, 128: 16}.items():
        size = dict(rounds=3, steps=steps, warm_up=4, batch_size=batch_size, graphs=True)
        size |= dict(rounds=1, steps=2, warm_up=1) if dry else {}
        model = classifier(config, device)
        found = compare_heads(model.encoder, data, precision, **size)
        program.record(f"heads_{batch_size}", found)
        found = compare_steps(model, data, [precision], **size)[0]
        program.record(f"step_{batch_size}", found)
        found = profiles(program, data, batch_size, precision)
        program.record(f"profile_{batch_size}", found)


if __name__ == "__main__":
    main()
