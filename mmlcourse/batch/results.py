"""The files of recorded runs, and what one result says."""

import json
import warnings
from pathlib import Path

from mmlcourse.batch.runs import is_finite, read_result

__all__ = ["finite", "load_results", "used"]


def load_results(folders):
    """Read the results of all runs below some folders.

    Other JSON files are skipped. A warning names a result that cannot be read.

    Args:
        folders: a list of folders.

    Returns:
        {(experiment, profile, edition): list of results}, in the order of their files' names. The
        edition is that of the mini data, and None for other data.

    Raises:
        FileNotFoundError: there is no result.
    """
    found = {}
    paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.json"))]
    for path in paths:
        if path.parent.name == "replaced":
            continue
        try:
            result = read_result(path)
        except ValueError as error:
            warnings.warn(f"{error} The report leaves it out.", stacklevel=2)
            continue
        if result is None:
            continue
        key = (str(result["experiment"]), str(result.get("profile")), _edition(result))
        runs, name = found.setdefault(key, {}), str(result["name"])
        if name in runs and _measured(runs[name]) != _measured(result):
            warnings.warn(
                f"{path} is another run of the name {name!r} in {key[0]}; the report has this one "
                "alone. Make a report of each folder to have both.",
                stacklevel=2,
            )
        runs[name] = result
    if not found:
        raise FileNotFoundError(
            f"There is no finished run below {', '.join(map(str, folders))}. `mmlkit reproduce "
            "mml-tables` makes some."
        )
    return {key: list(runs.values()) for key, runs in found.items()}


def _measured(result):
    """Return the parameters and scores as a text; NaN equals NaN in it."""
    return json.dumps([result["parameters"], result["scores"]], sort_keys=True)


def _edition(result):
    """Return the edition of the mini data that a run has read; until the second none is named."""
    mini = result["settings"].get("source") == "mini"
    return str(result["versions"].get("mini_data", 2)) if mini else None


def finite(results, key):
    """Return the finite numbers that results have under a key.

    Args:
        results: a list of results of `load_results`.
        key: such as "minutes".

    Returns:
        A list of numbers.
    """
    return [result[key] for result in results if is_finite(result.get(key))]


def used(result, key):
    """Return a parameter of a run, or what its settings say where it was left open.

    Args:
        result: a result of `load_results`.
        key: the name of a parameter or setting.

    Returns:
        The value, or None.
    """
    given = result["parameters"].get(key)
    return result["settings"].get(key) if given is None else given
