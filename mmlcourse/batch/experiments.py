"""Experiments: a notebook and a grid of its parameters, in one small TOML file of experiments/."""

import difflib
import itertools
import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from mmlcourse.batch.notebooks import find_notebooks, notebook_parameters, parse_value, resolve
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.shipped import shipped_folder

__all__ = [
    "Experiment",
    "find_experiment",
    "known_experiments",
    "is_finite",
    "load_experiment",
    "parse_grid",
]

_SIZES = ("fast", "colab", "paper")
_COPIED = ("title", "about", "chosen", "published", "claims")


@dataclass(frozen=True)
class Experiment:
    """One experiment in one size.

    Attributes:
        name: the name of its file.
        title: one line on what it measures.
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
    """

    name: str
    title: str
    profile: str
    notebook: Path
    grid: dict
    runs: dict = field(repr=False)
    about: str = ""
    file: Path | None = None
    limit: float = 60
    minutes: float | None = None
    gpu_minutes: dict = field(default_factory=dict, repr=False)
    needs: dict = field(default_factory=dict, repr=False)
    threads: int = 1
    memory: int = 4000
    chosen: str | None = None
    published: dict = field(default_factory=dict, repr=False)
    claims: list = field(default_factory=list, repr=False)


def known_experiments():
    """Return {name: file} of the experiments in experiments/, here or of the library."""
    folders = (shipped_folder("experiments"), Path.cwd() / "experiments")
    paths = [path for folder in folders if folder for path in sorted(folder.glob("*.toml"))]
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
    longer = [name for name in known if key and name.startswith(key)]
    near = difflib.get_close_matches(key, known, n=1) or longer
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
            missing, the notebook lies outside its folder, or lacks a parameter; or `grid` has a
            word that the file's grid does not have.
    """
    path, profile = find_experiment(name), get_profile(profile).name
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f'{path} is not valid TOML: {error}. Expected lines such as title = "..."; correct '
            "the file."
        ) from error
    _check(path, content)
    if profile not in content:
        found = [key for key in _SIZES if key in content]
        raise ValueError(
            f"{path} has no size {profile!r}; it has {found}. Add a table [{profile}], or choose "
            "one of these with --profile."
        ) from LookupError(profile)
    size = content[profile]
    of_size = size.pop("grid", {})
    plan = content["grid"] | of_size
    special = [(key, part.pop(key)) for part in (content, size) for key in plan if key in part]
    given = content.get("set", {}) | size.pop("set", {}) | {"profile": profile}
    _check_words(path, grid or {}, content["grid"], of_size)
    given_grid = {key: _like(values, plan.get(key)) for key, values in (grid or {}).items()}
    cost, grid, runs = size.pop("gpu_minutes", None), plan | given_grid, {}
    for run, point in _points(grid):
        own = [table.get(str(point[key]), {}) for key, table in special]
        runs[run] = {key: value for part in (given, *own, point) for key, value in part.items()}
    first, needs = _runs_before(path, content, grid, given)
    names = {run.lower() for run in (*runs, *first)}
    if not runs or len(names) != math.prod(map(len, grid.values())) + len(first):
        raise ValueError(
            f"{path}: the grid {grid} gives {len(runs)} runs of different names; every parameter "
            "needs at least one value, each once."
        )
    costs = {run: parameters.pop("gpu_minutes", cost) for run, parameters in runs.items()}
    notebook = _notebook(path, content["notebook"])
    known = notebook_parameters(notebook)
    for parameters in (*first.values(), *runs.values()):
        for key in parameters:
            if key not in known:
                raise ValueError(_unknown(f"{path}: a run of {notebook.name}", key, known))
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


def _check_words(path, grid, *plans):
    """Refuse a word that the file's grids do not have, before any run is started.

    Numbers pass, and so do texts with a colon or a slash, such as bandwidths and models.
    """
    for key, values in grid.items():
        known = list(dict.fromkeys(value for plan in plans for value in plan.get(key, ())))
        if not known or not all(isinstance(one, str) for one in known):
            continue
        for value in values:
            if value not in known and isinstance(value, str) and not {":", "/"} & set(value):
                raise ValueError(
                    f"--grid {key}: found {value!r}, expected one of {', '.join(known)}."
                    f"{_suggestion(str(value), known)} A copy of {path} may have more in [grid]."
                )


def _like(values, planned):
    """Return the values of a grid as floats where those of the file are: 1 names the run of 1.0."""
    floats = planned and all(type(one) is float for one in planned)
    return [float(one) if floats and type(one) is int else one for one in values]


def _points(grid):
    """Yield the name of each run of the grid, and its values as a dict."""
    for values in itertools.product(*grid.values()):
        yield _file_name("-".join(map(str, values))), dict(zip(grid, values))


def _runs_before(path, content, grid, given):
    """Return the runs that others need, as {name: parameters}, and {run: the one it needs}."""
    before, first, needs = content.get("before"), {}, {}
    for run, point in _points(grid) if before else ():
        if not before["when"].items() <= point.items():
            continue
        named = {*_fields(before["run"]), *grid.keys() - content["grid"].keys()}
        needs[run] = _file_name(before["run"].format(**point))
        plan = {**given, **{key: point[key] for key in grid if key in named}, **before["set"]}
        if first.setdefault(needs[run], plan) != plan:
            raise ValueError(
                f"{path}: two runs {needs[run]!r} have different parameters; [before] run needs "
                f"more names in braces. It has {before['run']!r}."
            )
    return first, needs


def _file_name(text):
    return re.sub(r"[^\w.-]+|^[.-]", "_", text)


def _fields(text):
    return re.findall(r"{(.*?)}", text)


def _check(path, content):
    """Check every key and value of an experiment file by experiment.schema.json."""
    import jsonschema  # takes a second, see `processes.without_iri_grammar`

    schema = _schema(content)
    known = jsonschema.Draft202012Validator
    kinds = known.TYPE_CHECKER.redefine("number", lambda _, value: is_finite(value))
    validator = jsonschema.validators.extend(known, type_checker=kinds)
    error = next(validator(schema).iter_errors(content), None)
    if error is not None:
        where = f"{path}: {'.'.join(map(str, error.absolute_path)) or 'the file'}"
        raise ValueError(_sentence(where, error))
    fields = schema["$defs"]["side"]["properties"]
    for table, key in (("published", "row"), ("published", "column"), ("before", "run")):
        for name in _fields(content.get(table, {}).get(key, "")):
            if name not in fields:
                raise ValueError(_unknown(f"{path}: {table}.{key}", name, fields))
    if "chosen" in content and content["chosen"] not in content["grid"]:
        raise ValueError(_unknown(f"{path}: chosen", content["chosen"], content["grid"]))
    if "headline_on" in content.get("published", {}) and "task" not in fields:
        raise ValueError(f"{path}: published.headline_on needs `task` in [grid].")
    _check_claims(path, content.get("claims", []), fields)


def _check_claims(path, claims, fields):
    """Check what a claim needs beside its form: the tasks of its grid, the file of another one."""
    for number, claim in enumerate(claims):
        if "task" not in fields and claim.get("on") in ("own", "others"):
            raise ValueError(
                f"{path}: claims.{number}.on is {claim['on']!r}, which needs `task` in [grid]. "
                "Name the set instead, such as on = 'qnli'."
            )
        for side in ("first", "second"):
            other = claim[side].get("experiment")
            if other is not None and not path.with_name(f"{other}.toml").is_file():
                raise ValueError(
                    f"{path}: claims.{number}.{side}.experiment is {other!r}, but the folder has "
                    f"no {other}.toml."
                )


def _schema(content):
    """Return the schema with the names and values of this file's grid."""
    schema = json.loads(Path(__file__).with_name("experiment.schema.json").read_text("utf-8"))
    parts, tables = schema["$defs"], {}
    for part in (content, *map(content.get, _SIZES)):
        grid = part.get("grid") if isinstance(part, dict) else None
        for key, found in grid.items() if isinstance(grid, dict) else ():
            names = map(str, found if isinstance(found, list) else ())
            table = tables.setdefault(key, {**parts["table"], "properties": {}})
            table["properties"] |= dict.fromkeys(names, {"$ref": "#/$defs/run"})
    schema["properties"] |= tables
    parts["size"]["properties"] |= tables
    parts["side"]["properties"] = dict.fromkeys([*tables, "on"], {"$ref": "#/$defs/value"})
    other = {"experiment": {"$ref": "#/$defs/text"}}
    parts["claim_side"]["properties"] = parts["side"]["properties"] | other
    return schema


def _sentence(where, error):
    """Return what is wrong as a sentence; `error` is jsonschema's."""
    known = error.schema.get("properties", {})
    if error.validator == "additionalProperties":
        return _unknown(where, next(key for key in error.instance if key not in known), known)
    if error.validator == "required":
        lacks = next(key for key in error.validator_value if key not in error.instance)
        return f"{where} has no {lacks!r}; it needs {', '.join(error.validator_value)}."
    return f"{where} is {error.instance!r}, expected a {error.schema['description']}."


def is_finite(value):
    """Return whether a value of JSON or TOML is a finite number.

    Args:
        value: any value.

    Returns:
        True or False.
    """
    return type(value) in (int, float) and abs(value) < 1e300


def _unknown(where, key, known):
    known_keys = ", ".join(known)
    return f"{where} has {key!r}, which is unknown.{_suggestion(key, known)} Known: {known_keys}."


def _notebook(path, name):
    """Return the notebook that a file names: in the file's own folder, or in notebooks/."""
    notebook = (path.parent / name).resolve()
    if not notebook.is_file():
        notebook = find_notebooks([name])[0].resolve()
    allowed = (path.parent, shipped_folder("notebooks"), Path.cwd() / "notebooks")
    if not any(notebook.is_relative_to(folder.resolve()) for folder in allowed if folder):
        raise ValueError(
            f"{path}: the notebook {name!r} is outside the folder of the file ({notebook}), and a "
            "notebook runs any code. Expected a notebook in that folder, or a number such as "
            "'04'; copy it there if you trust it."
        )
    return notebook


_RESERVED = {
    "profile": "Use --profile.",
    **dict.fromkeys(("result_file", "checkpoint_dir", "output_dir"), "Use --out."),
}


def parse_grid(assignments):
    """Turn ["method=bert,mml", "seed=0,1"] into {"method": ["bert", "mml"], "seed": [0, 1]}.

    Args:
        assignments: a list of texts NAME=A,B.

    Returns:
        {name: list of values}.

    Raises:
        ValueError: an assignment is not of this form, two have the same name, or the batch itself
            sets the parameter.
    """
    grid = {}
    for assignment in assignments:
        name, _, values = assignment.partition("=")
        if "" in values.split(",") or not name.isidentifier():
            raise ValueError(
                f"--grid {assignment!r} is not of the form NAME=A,B, such as --grid seed=0,1."
            )
        if name in grid:
            raise ValueError(
                f"--grid names {name} twice; expected all of its values together: --grid "
                f"{name}=A,B."
            )
        if name in _RESERVED:
            raise ValueError(f"--grid {name}: the batch sets it. {_RESERVED[name]}")
        grid[name] = [resolve(name, parse_value(value)) for value in values.split(",")]
    return grid
