"""Experiments: a notebook and a grid of its parameters, in one small TOML file of experiments/."""

import itertools
import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from mmlcourse.batch.notebooks import (
    find_notebooks,
    notebook_parameters,
    parse_assignments,
    parse_value,
    resolve,
)
from mmlcourse.lessons.profiles import PROFILES, get_profile
from mmlcourse.shipped import shipped_folder

__all__ = ["Experiment", "find_experiment", "known_experiments", "load_experiment", "parse_grid"]

_COPIED = ("title", "topic", "about", "chosen", "published", "claims", "of_interest")
_SCHEMA = Path(__file__).with_name("experiment.schema.json")


@dataclass(frozen=True)
class Experiment:
    """One experiment in one size.

    Attributes:
        name: the name of its file.
        title: one line on what it measures.
        topic: two or three words that a figure of many experiments has above its claims.
        about: what it asks, in a few sentences.
        profile: the size: fast, colab or paper.
        notebook: the path of the notebook that one run executes.
        grid: {parameter: its values}.
        runs: {name of a run: parameters of its notebook}; runs that others need come first, then
            the grid in its order.
        file: the path of its file.
        limit: minutes after which a run is stopped.
        minutes: minutes that a run takes on one CPU core, about; None: not known.
        gpu_minutes: {name of a run: minutes that it takes on one GPU, about, or None}.
        needs: {name of a run: name of the run that is executed before it}.
        threads: CPU threads of a run.
        memory: MB that a run asks of a cluster.
        chosen: the parameter of the grid that the experiment chooses for each value of the first.
        published: which printed cells its scores stand beside.
        claims: what the papers claim of them.
        of_interest: the smallest difference of interest between two sides of a claim, in points.
    """

    name: str
    title: str
    profile: str
    notebook: Path
    grid: dict
    runs: dict
    topic: str = ""
    about: str = ""
    file: Path | None = None
    limit: float = 60
    minutes: float | None = None
    gpu_minutes: dict = field(default_factory=dict)
    needs: dict = field(default_factory=dict)
    threads: int = 1
    memory: int = 4000
    chosen: str | None = None
    published: dict = field(default_factory=dict)
    claims: list = field(default_factory=list)
    of_interest: float = 1.0


def known_experiments():
    """Return {name: file} of the experiments in experiments/."""
    paths = sorted(shipped_folder("experiments").glob("*.toml"))
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
    known = known_experiments()
    if name not in known and not Path(name).is_file():
        raise FileNotFoundError(
            f"There is no experiment {str(name)!r}. Known: {', '.join(known)}, or the path of a "
            ".toml file."
        )
    return known.get(name) or Path(name).resolve()


def load_experiment(name, profile="fast", grid=None):
    """Read and check an experiment in one size.

    Args:
        name: as in `find_experiment`.
        profile: fast, colab or paper.
        grid: {parameter: list of values} that replace those of the file.

    Returns:
        An Experiment.

    Raises:
        ValueError: the file is not TOML or does not fit the schema, the size is missing, two runs
            have the same name, the notebook lies outside its folder, or lacks a parameter.
    """
    path, profile = find_experiment(name), get_profile(profile).name
    content = _read(path)
    if profile not in content:
        found = [key for key in PROFILES if key in content]
        raise ValueError(f"{path} has no size {profile!r}; choose one of {found} with --profile.")
    size = content[profile]
    grid = content["grid"] | size.pop("grid", {}) | (grid or {})
    special = [(key, part.pop(key)) for part in (content, size) for key in grid if key in part]
    given = content.get("set", {}) | size.pop("set", {}) | {"profile": profile}
    cost, points = size.pop("gpu_minutes", None), list(_points(grid))
    runs = {}
    for run, point in points:
        own = [table.get(str(point[key]), {}) for key, table in special]
        runs[run] = {key: value for part in (given, *own, point) for key, value in part.items()}
    first, needs = _runs_before(path, content, grid, given)
    names = {run.lower() for run in (*runs, *first)}  # some systems ignore the case
    if not runs or len(names) < len(points) + len(first):
        raise ValueError(f"{path}: the grid {grid} gives no run, or two of the same name.")
    costs = {run: parameters.pop("gpu_minutes", cost) for run, parameters in runs.items()}
    notebook = _notebook(path, content["notebook"])
    known = notebook_parameters(notebook)
    used = {key for parameters in (*first.values(), *runs.values()) for key in parameters}
    if unknown := sorted(used.difference(known)):
        raise ValueError(f"{path}: {notebook.name} has no parameter {unknown}; it has {known}.")
    return Experiment(
        name=path.stem,
        profile=profile,
        notebook=notebook,
        grid=grid,
        runs=first | runs,
        file=path,
        gpu_minutes=dict.fromkeys(first, cost) | costs,
        needs=needs,
        **size,
        **{key: content[key] for key in _COPIED if key in content},
    )


def _read(path):
    """Return the content of an experiment's file, checked by experiment.schema.json."""
    import jsonschema  # takes a second, see `processes.without_iri_grammar`

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from error
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    if error := jsonschema.exceptions.best_match(validator.iter_errors(content)):
        raise ValueError(f"{path}: {error.json_path.removeprefix('$.')}: {error.message}")
    # Tables such as [fast.task] are named after the grid: a mistyped one would set nothing.
    parts, values = [content, *(content[key] for key in PROFILES if key in content)], {}
    for part in parts:
        for key, found in part.get("grid", {}).items():
            values.setdefault(key, set()).update(map(str, found))
    known = {*schema["properties"], *schema["$defs"]["size"]["properties"]}
    for key, table in ((key, part[key]) for part in parts for key in part.keys() - known):
        if wrong := table.keys() - values.get(key, set()):
            raise ValueError(f"{path}: the grid has no {key} {', '.join(wrong)}.")
    return content


def _points(grid):
    """Yield the name of each run of the grid, and its values as a dict."""
    for values in itertools.product(*grid.values()):
        yield file_name("-".join(map(str, values))), dict(zip(grid, values))


def _runs_before(path, content, grid, given):
    """Return the runs that others need, as {name: parameters}, and {run: the one it needs}."""
    before, first, needs = content.get("before"), {}, {}
    for run, point in _points(grid) if before else ():
        if not before["when"].items() <= point.items():
            continue
        named = {*re.findall(r"{(.*?)}", before["run"]), *grid.keys() - content["grid"].keys()}
        needs[run] = file_name(before["run"].format(**point))
        plan = {**given, **{key: point[key] for key in grid if key in named}, **before["set"]}
        if first.setdefault(needs[run], plan) != plan:
            raise ValueError(
                f"{path}: two runs {needs[run]!r} have different parameters; [before] run needs "
                f"more names in braces than {before['run']!r} has."
            )
    return first, needs


def file_name(text):
    """Return a text as a file name that leaves its folder on no system.

    Args:
        text: any text.

    Returns:
        The text with _ in place of other characters than letters, digits, dots and dashes.
    """
    return re.sub(r"[^\w.-]+|^[.-]", "_", text)


def _notebook(path, name):
    """Return the notebook that a file names: in the file's own folder, experiments/ or notebooks/.

    A notebook runs any code, so one elsewhere is refused: the file may come from somebody else.
    """
    folders = (path.parent, shipped_folder("experiments"), shipped_folder("notebooks"))
    here = [folder / name for folder in folders[:2] if (folder / name).is_file()]
    notebook = (here or find_notebooks([name]))[0].resolve()
    if not any(notebook.is_relative_to(folder.resolve()) for folder in folders):
        raise ValueError(
            f"{path}: the notebook {name!r} is outside the folder of the file ({notebook}). Copy "
            "it there if you trust it."
        )
    return notebook


_RESERVED = ("profile", "result_file", "checkpoint_dir", "output_dir")


def parse_grid(assignments):
    """Turn ["method=bert,mml", "seed=0,1"] into {"method": ["bert", "mml"], "seed": [0, 1]}.

    Args:
        assignments: a list of texts NAME=A,B.

    Returns:
        {name: list of values}.

    Raises:
        ValueError: an assignment is not of this form, or the batch itself sets the parameter.
    """
    grid = {}
    for name, values in parse_assignments(assignments).items():
        if name in _RESERVED:
            raise ValueError(f"--grid {name}: the batch sets it, see --profile and --out.")
        grid[name] = [resolve(name, parse_value(value)) for value in values.split(",")]
    return grid
