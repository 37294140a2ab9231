"""Runs notebooks headless: each in a process of its own, with a time limit, written whole or kept apart as failed.

papermill does the running; this adds what it lacks. It writes its output also when a cell fails, so a finished run is one
that was renamed into place.
"""

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["find_notebooks", "notebook_parameters", "parse_parameters", "run_notebook"]


def find_notebooks(wanted):
    """The paths of notebooks given as "02", "02_finetuning", a path, or "all", in reading order.

    Raises FileNotFoundError when there is no such notebook, or no notebooks folder here or beside the package.
    """
    places = [Path.cwd() / "notebooks", Path(__file__).resolve().parent.parent / "notebooks"]
    folder = next((place for place in places if place.is_dir()), None)
    known = sorted(folder.glob("[0-9][0-9]_*.ipynb")) if folder else []
    found = []
    for name in wanted:
        if name == "all":
            matches = known
        elif name.endswith(".ipynb"):
            matches = [Path(name)] if Path(name).is_file() else []
        else:
            matches = [path for path in known if path.stem == name or path.stem.split("_")[0] == name.zfill(2)]
        if not matches:
            raise FileNotFoundError(f"There is no notebook {name!r}. Known: {', '.join(path.stem for path in known) or 'none'}"
                                    f"{'' if folder else ' (run it from a checkout of the repository)'}.")
        found += [path for path in matches if path not in found]
    return found


def notebook_parameters(path):
    """The names assigned in the notebook's cell tagged "parameters"."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    code = "".join("".join(cell["source"]) for cell in tagged)
    return [target.id for node in ast.parse(code).body if isinstance(node, ast.Assign) for target in node.targets]


def parse_parameters(assignments):
    """["epochs=1", "source=data"] to {"epochs": 1, "source": "data"}; a value that is no Python literal is text."""
    parameters = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"parameter {assignment!r} is not of the form NAME=VALUE.")
        try:
            parameters[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parameters[name] = value
    return parameters


def run_notebook(path, out, parameters, *, minutes=60, attempts=2):
    """Executes one notebook into `out`, under its own name; returns whether it succeeded.

    A relative folder among the parameters is taken from here, since the notebook runs in its own folder. A run that stands
    still until the limit is tried once more: kernels now and then lose a wake-up. A failed one is kept as NAME.failed.ipynb.
    Raises ValueError for a parameter that the notebook does not have.
    """
    known = notebook_parameters(path)
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise ValueError(f"{path.name} has no parameter {', '.join(map(repr, unknown))}. It has {', '.join(known)}.")
    out.mkdir(parents=True, exist_ok=True)
    temporary, done, failed = (out / f"{name}.ipynb" for name in (f".{path.stem}.{os.getpid()}", path.stem, f"{path.stem}.failed"))
    parameters = {name: str(Path(value).resolve()) if isinstance(value, str) and ("/" in value or "\\" in value) else value
                  for name, value in {"output_dir": str(out.resolve()), **parameters}.items() if name in known}
    command = [sys.executable, "-m", "papermill", str(path), str(temporary), "-k", "python3", "--cwd", str(path.parent), "--no-progress-bar",
               "--log-level", "ERROR", "-y", json.dumps(parameters)]
    for attempt in range(1, attempts + 1):
        started = time.monotonic()
        print(f"{path.stem} ...", end=" ", flush=True)
        try:
            run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * minutes,
                                 env={**os.environ, "MMLKIT_HEADLESS": "1"})
        except subprocess.TimeoutExpired:
            print(f"stood still for {minutes:g} minutes{', trying once more' if attempt < attempts else ''}", flush=True)
            continue
        if run.returncode == 0:
            os.replace(temporary, done)
            failed.unlink(missing_ok=True)
            print(f"done in {time.monotonic() - started:.0f} s", flush=True)
            return True
        print(f"failed after {time.monotonic() - started:.0f} s\n{run.stdout[-3000:]}", flush=True)
        break
    if temporary.is_file():
        os.replace(temporary, failed)
        print(f"What ran so far is in {failed}", flush=True)
    return False
