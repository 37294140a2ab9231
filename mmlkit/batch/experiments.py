"""Experiments: a notebook and a grid of its parameters, in one small TOML file of experiments/."""

import contextlib
import difflib
import itertools
import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from mmlkit.batch.notebooks import find_notebooks, notebook_parameters, parse_parameters
from mmlkit.profiles import get_profile

__all__ = ["Experiment", "find_experiment", "known_experiments", "load_experiment", "parse_grid"]

_REPOSITORY = Path(__file__).resolve().parents[2]


# What the value of each key must be; `_fits` reads these words.
_SIZE = {
    "limit": "number above 0",
    "minutes": "number above 0",
    "gpu_minutes": "number above 0",
    "threads": "whole number above 0",
    "memory": "whole number above 0",
    "grid": "table of lists",
    "set": "table",
}
_FILE = {
    "title": "text",
    "notebook": "text",
    "grid": "table of lists",
    "set": "table",
    "published": "table",
    "claims": "list of tables",
    **dict.fromkeys(("fast", "colab", "paper"), "table"),
}
_PUBLISHED = {
    "tables": "list of pairs of texts",
    "row": "text",
    "column": "text",
    "scale": "number above 0",
    "improvement_over": "text",
    "headline": "text",
    "names": "table of lists of texts",
}
_CLAIM = {
    "says": "text",
    "first": "table",
    "second": "table",
    "on": "text",
    "metric": "text",
    "at_least": "number",
}


@dataclass(frozen=True)
class Experiment:
    """One experiment in one size.

    Attributes:
        name: the name of its file.
        title: one line on what it measures.
        profile: the size: fast, colab or paper.
        notebook: the path of the notebook that one run executes.
        grid: {parameter: its values}.
        runs: {name of a run: parameters of its notebook}, in the order of the grid.
        file: the path of its file.
        limit: minutes after which a run is stopped.
        minutes: minutes that a run takes on one CPU core, about; None: not known.
        gpu_minutes: {name of a run: minutes that it takes on one GPU, about, or None}.
        threads: CPU threads of a run.
        memory: MB that a run asks of a cluster.
        published: which printed cells its scores stand beside.
        claims: what the papers claim of them.
    """

    name: str
    title: str
    profile: str
    notebook: Path
    grid: dict
    runs: dict = field(repr=False)
    file: Path | None = None
    limit: float = 60
    minutes: float | None = None
    gpu_minutes: dict = field(default_factory=dict, repr=False)
    threads: int = 1
    memory: int = 4000
    published: dict = field(default_factory=dict, repr=False)
    claims: list = field(default_factory=list, repr=False)


def known_experiments():
    """Return {name: file} of the experiments in experiments/, here or beside the package."""
    folders = (_REPOSITORY / "experiments", Path.cwd() / "experiments")
    paths = [path for folder in folders for path in sorted(folder.glob("*.toml"))]
    return {path.stem: path.resolve() for path in paths}


def find_experiment(name):
    """Return the file of an experiment.

    Args:
        name: the path of a .toml file, or a name of `known_experiments`.

    Returns:
        An absolute path.

    Raises:
        FileNotFoundError: there is no such file; the message names the known ones.
    """
    if str(name).endswith(".toml") and Path(name).is_file():
        return Path(name).resolve()
    known = known_experiments()
    if name not in known:
        raise FileNotFoundError(
            f"There is no experiment {str(name)!r}.{_suggestion(str(name), known)} Known: "
            f"{', '.join(known) or 'none (run it from a checkout of the repository)'}, "
            "or the path of a .toml file."
        )
    return known[name]


def _suggestion(key, known):
    near = difflib.get_close_matches(key, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def load_experiment(name, profile="fast", grid=None):
    """Read and check an experiment in one size.

    Args:
        name: as in `find_experiment`.
        profile: fast, colab or paper.
        grid: {parameter: list of values} that replace those of the file.

    Returns:
        An Experiment.

    Raises:
        ValueError: the file is not TOML, a key is unknown or has a wrong value, the size is
            missing, the notebook lies outside its folder, or lacks a parameter.
    """
    path = find_experiment(name)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from error
    profile = get_profile(profile).name
    _check(path, content)
    if profile not in content:
        sizes = [key for key in ("fast", "colab", "paper") if key in content]
        raise ValueError(f"{path} has no size {profile!r}; it has {sizes}.")
    size = {"grid": {}, "set": {}, "gpu_minutes": None, **content[profile]}
    grid = {**content["grid"], **size.pop("grid"), **(grid or {})}
    given = {**content.get("set", {}), **size.pop("set"), "profile": profile}
    cost = size.pop("gpu_minutes")
    special = [(key, part.pop(key)) for part in (content, size) for key in grid if key in part]
    runs, costs = {}, {}
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values))
        own = [table.get(str(point[key]), {}) for key, table in special]
        parameters = {key: value for part in (given, *own, point) for key, value in part.items()}
        run = re.sub(r"[^\w.-]+|^[.-]", "_", "-".join(map(str, values)))
        costs[run] = parameters.pop("gpu_minutes", cost)
        runs[run] = parameters
    total = math.prod(map(len, grid.values()))
    if not total or len({run.lower() for run in runs}) != total:
        raise ValueError(
            f"{path}: the grid {grid} gives {len(runs)} runs of different names; every parameter "
            "needs at least one value, each once."
        )
    notebook = _notebook(path, content["notebook"])
    known = dict.fromkeys(notebook_parameters(notebook), "value of JSON")
    for run, parameters in runs.items():
        _check_table(f"{path}: a run of {notebook.name}", parameters, known)
        _check_table(f"{path}: run {run},", {"gpu_minutes": costs[run] or 1}, _SIZE)
    more = {key: content[key] for key in ("published", "claims") if key in content}
    named = {"name": path.stem, "title": content["title"], "file": path, "notebook": notebook}
    return Experiment(
        **named, profile=profile, grid=grid, runs=runs, gpu_minutes=costs, **size, **more
    )


def _check(path, content):
    """Check every key and value of an experiment file."""
    grid = content.get("grid", {})
    parts = dict.fromkeys(grid, "table of tables") if _fits(grid, "table") else {}
    _check_table(f"{path}: the file", content, _FILE | parts, ("title", "notebook", "grid"))
    sizes = {f"[{key}]": content[key] for key in ("fast", "colab", "paper") if key in content}
    for where, size in sizes.items():
        _check_table(f"{path}: {where}", size, _SIZE | parts)
    values = {
        key: {
            str(value)
            for part in (content, *sizes.values())
            for value in part.get("grid", {}).get(key, ())
        }
        for key in grid
    }
    for where, part in {"the file": content, **sizes}.items():
        for key in {*parts} & {*part}:
            _check_table(f"{path}: {where}, {key},", part[key], dict.fromkeys(values[key], "table"))
    published, fields = content.get("published", {}), dict.fromkeys([*grid, "on"], "value of JSON")
    _check_table(f"{path}: [published]", published, _PUBLISHED)
    for key in ("row", "column"):
        used = dict.fromkeys(re.findall(r"{(.*?)}", published.get(key, "")), "")
        _check_table(f"{path}: [published] {key}", used, fields)
    for claim in content.get("claims", []):
        _check_table(f"{path}: [[claims]]", claim, _CLAIM, ("says", "first", "second"))
        for side in ("first", "second"):
            _check_table(f"{path}: [[claims]] {side}", claim[side], fields)


def _check_table(where, table, kinds, needed=()):
    """Raise ValueError for an unknown key, a value of another kind, or a missing key."""
    for key, value in table.items():
        if key not in kinds:
            raise ValueError(
                f"{where} has {key!r}, which is unknown.{_suggestion(key, kinds)} "
                f"Known: {', '.join(kinds)}."
            )
        if not _fits(value, kinds[key]):
            raise ValueError(f"{where} {key} is {value!r}, expected a {kinds[key]}.")
    for key in needed:
        if key not in table:
            raise ValueError(f"{where} has no {key!r}; it needs {', '.join(needed)}.")


def _fits(value, kind):
    """Return whether a value is, for example, a "table of lists of texts"."""
    outer, _, inner = kind.partition(" of ")
    outer, items = outer.removesuffix("s"), ()
    if outer in ("list", "pair"):
        good, items = (
            isinstance(value, list) and len(value) in (2, len(value) * (outer == "list")),
            value,
        )
    elif outer == "table":
        good = isinstance(value, dict)
        items = value.values() if good else ()
    elif outer == "text":
        good = isinstance(value, str) and value.isprintable() and value != ""
    elif outer == "value":
        with contextlib.suppress(TypeError, ValueError):
            return bool(json.dumps(value, allow_nan=False))
        return False
    else:
        good = type(value) in ((int,) if "whole" in outer else (int, float)) and math.isfinite(
            value
        )
        good = good and (value > 0 or "above" not in outer)
    return good and all(_fits(one, inner) for one in items if inner)


def _notebook(path, name):
    """Return the notebook that a file names: in the file's own folder, or in notebooks/."""
    notebook = (path.parent / name).resolve()
    if not notebook.is_file():
        notebook = find_notebooks([name])[0].resolve()
    allowed = (path.parent, _REPOSITORY / "notebooks", Path.cwd() / "notebooks")
    if not any(notebook.is_relative_to(folder.resolve()) for folder in allowed):
        raise ValueError(
            f"{path}: the notebook {name!r} is outside the folder of the file ({notebook}), and a "
            "notebook runs any code. Expected a notebook in that folder, or a number such as "
            "'04'; copy it there if you trust it."
        )
    return notebook


def parse_grid(assignments):
    """Turn ["method=bert,mml", "seed=0,1"] into {"method": ["bert", "mml"], "seed": [0, 1]}.

    Args:
        assignments: a list of texts NAME=A,B.

    Returns:
        {name: list of values}.

    Raises:
        ValueError: an assignment is not of this form.
    """
    grid = {}
    for assignment in assignments:
        name, equals, values = assignment.partition("=")
        if not equals or not values:
            raise ValueError(f"--grid {assignment!r} is not of the form NAME=A,B.")
        parsed = [parse_parameters([f"{name}={value}"]) for value in values.split(",")]
        grid[name] = [one[name] for one in parsed]
    return grid
