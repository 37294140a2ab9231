"""The files that come with the library: recorded results, experiments, notebooks and drawings.

In a checkout they are folders beside the package. A wheel holds them inside the package, results in
an archive, so that a notebook that is opened alone shows them too. Notebooks 02 to 12 use it.
"""

import shutil
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["drawing", "results", "shipped_folder"]

_PACKAGE = Path(__file__).resolve().parent


def shipped_folder(name):
    """Return a folder of the repository.

    Args:
        name: "results", "experiments" or "notebooks".

    Returns:
        A pathlib.Path: in the checkout in which the process runs, else in the checkout of the
        library, else in the installed package. None where there is none.
    """
    roots = [Path.cwd(), Path.cwd().parent, _PACKAGE.parent]
    places = [root / name for root in roots if (root / "mmlkit" / "__init__.py").is_file()]
    archive = _PACKAGE / f"{name}.tar.xz"
    if archive.is_file() and not any(place.is_dir() for place in places):
        return Path(_unpacked(archive).name, name)
    return next((place for place in (*places, _PACKAGE / name) if place.is_dir()), None)


@cache
def _unpacked(archive):
    """Return a temporary folder with the files of an archive, removed when the process ends."""
    folder = tempfile.TemporaryDirectory()
    shutil.unpack_archive(archive, folder.name)
    return folder


def results(*names):
    """Return the path of recorded results, and say so where there are none.

    Args:
        *names: files or folders below results/, in the order of preference. The first one that
            exists is taken. No name means the whole folder.

    Returns:
        A pathlib.Path. Where nothing exists, it is the path that was expected, after a printed
        sentence.
    """
    folder, names = shipped_folder("results"), names or (".",)
    found = [folder / name for name in names if folder and (folder / name).exists()]
    if found:
        return found[0]
    expected = Path("results", names[0])
    print(
        f"Not found: {expected.as_posix()}. A release of mmlkit and a clone of its repository "
        "have all recorded results."
    )
    return expected


def drawing(number):
    """Return the drawing at the top of a notebook.

    Args:
        number: of the notebook, such as "03".

    Returns:
        The path of an SVG file.
    """
    return next(shipped_folder("notebooks").glob(f"images/{number}_*.svg"))
