"""Experiments: a notebook, times a grid of parameters, in one small file of the folder experiments/.

`runs.py` carries out one run, `batches.py` all of them, `reports.py` reads what they found.
"""

import difflib
import itertools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from mmlkit.batch.notebooks import find_notebooks, notebook_parameters, parse_parameters
from mmlkit.profiles import get_profile

__all__ = ["Experiment", "find_experiment", "known_experiments", "load_experiment", "parse_grid"]

_PACKAGE = Path(__file__).resolve().parents[1]
_SIZE = {"limit": 60, "minutes": None, "gpu_minutes": None, "threads": 1, "memory": 4000, "grid": {}, "set": {}}


@dataclass(frozen=True)
class Experiment:
    """One experiment in one size. `runs` is {name: parameters of the notebook}, in the order of the grid."""

    name: str
    title: str
    profile: str
    notebook: Path
    grid: dict                                  # parameter: its values
    runs: dict = field(repr=False)
    limit: float                                # minutes after which a run is stopped
    minutes: float | None                       # what a run takes, about, on one CPU core
    gpu_minutes: dict = field(repr=False)       # run: what it takes, about, on one GPU
    threads: int
    memory: int                                 # MB that a run asks of a cluster
    published: dict = field(repr=False)         # which printed cells its scores stand beside
    claims: list = field(repr=False)            # what the papers claim of them


def known_experiments():
    """Return {name: file} of the experiments in experiments/, here or beside the package."""
    folders = (_PACKAGE.parent / "experiments", Path.cwd() / "experiments")
    paths = [path for folder in folders for path in sorted(folder.glob("*.toml"))]
    return {path.stem: path.resolve() for path in paths}


def find_experiment(name):
    """The file of an experiment: a path, or a name in experiments/, here or beside the package.

    Raises FileNotFoundError naming the known ones.
    """
    if str(name).endswith(".toml") and Path(name).is_file():
        return Path(name).resolve()
    known = known_experiments()
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        raise FileNotFoundError(f"There is no experiment {str(name)!r}.{f' Did you mean {near[0]!r}?' if near else ''} Known: "
                                f"{', '.join(known) or 'none (run it from a checkout of the repository)'}, or the path of a .toml file.")
    return known[name]


def load_experiment(name, profile="fast", grid=None):
    """Reads an experiment in one size.

    grid: {parameter: values} that replace the file's. Raises ValueError for a file that is not TOML, an unknown key, a size the file
    does not have, a notebook outside its folder, or a parameter that its notebook does not have.
    """
    path = find_experiment(name)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from error
    _known(path, "the file", content, {"title", "notebook", "grid", "set", "published", "claims", "fast", "colab", "paper", *content.get("grid", {})},
           {"title", "notebook", "grid"})
    if get_profile(profile).name not in content:
        raise ValueError(f"{path} has no size {profile!r}; it has {[size for size in ('fast', 'colab', 'paper') if size in content]}.")
    size = content[profile]
    _known(path, f"[{profile}]", size, {*_SIZE, *content["grid"]})
    size = {**_SIZE, **size}
    grid = {**content["grid"], **size["grid"], **(grid or {})}
    notebook = _notebook(path, content["notebook"])
    given = {**content.get("set", {}), **size["set"], "profile": profile}
    runs, costs = {}, {}
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values))
        special = [part[key][str(value)] for part in (content, size) for key, value in point.items() if str(value) in part.get(key, {})]
        parameters = {key: value for part in (given, *special, point) for key, value in part.items()}
        cost = parameters.pop("gpu_minutes", size["gpu_minutes"])
        run = re.sub(r"[^\w.-]+", "_", "-".join(map(str, values)))
        runs[run], costs[run] = parameters, cost
    if not runs or len(runs) != len(list(itertools.product(*grid.values()))):
        raise ValueError(f"{path}: the grid {grid} gives {len(runs)} runs of different names; every parameter needs at least one value, each once.")
    known = notebook_parameters(notebook)
    for key in sorted({key for parameters in runs.values() for key in parameters} - set(known)):
        raise ValueError(f"{path} sets {key!r}, which {notebook.name} does not have; it has {', '.join(known)}.")
    return Experiment(path.stem, content["title"], profile, notebook, grid, runs, size["limit"], size["minutes"], costs, size["threads"],
                      size["memory"], content.get("published", {}), content.get("claims", []))


def _notebook(path, name):
    """The notebook that a file names: in the file's own folder, or one of the repository's."""
    notebook = (path.parent / str(name)).resolve()
    if not notebook.is_file():
        notebook = find_notebooks([str(name)])[0].resolve()
    allowed = (path.parent, _PACKAGE.parent / "notebooks", Path.cwd() / "notebooks")
    if not any(notebook.is_relative_to(folder.resolve()) for folder in allowed):
        raise ValueError(f"{path}: the notebook {name!r} is outside the folder of the file "
                         f"({notebook}), and a notebook runs any code. Expected a notebook in that "
                         "folder, or a number such as '04'; copy it there if you trust it.")
    return notebook


def parse_grid(assignments):
    """["method=bert,mml", "seed=0,1"] to {"method": ["bert", "mml"], "seed": [0, 1]}."""
    grid = {}
    for assignment in assignments:
        name, equals, values = assignment.partition("=")
        if not equals or not values:
            raise ValueError(f"--grid {assignment!r} is not of the form NAME=A,B.")
        grid[name] = [parse_parameters([f"{name}={value}"])[name] for value in values.split(",")]
    return grid


def _known(path, where, table, known, needed=()):
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ValueError(f"{path}: {where} has {key!r}, which means nothing.{f' Did you mean {near[0]!r}?' if near else ''} Known: {', '.join(sorted(known))}.")
    for key in needed:
        if key not in table:
            raise ValueError(f"{path}: {where} has no {key!r}; an experiment needs {', '.join(sorted(needed))}.")
