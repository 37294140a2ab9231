"""Fixtures: JupyterLab and Chromium, which all tests of a module share."""

import shutil
from pathlib import Path

import pytest

from . import lab

ROOT = Path(__file__).resolve().parents[2]
READ = ("results", "experiments", "data")  # folders that notebooks read


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder that looks like a checkout: a copy of notebooks/ and links to the others."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in READ:
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    hidden = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=hidden)
    return folder


@pytest.fixture(scope="module")
def open_notebook(checkout, tmp_path_factory):
    """Return a function that opens a notebook of the copied folder in a new page."""
    lacking = lab.missing()
    if lacking:
        pytest.skip(lacking)
    opened = []
    server = lab.jupyter_lab(checkout, tmp_path_factory.mktemp("jupyter"))
    with server as address, lab.chromium() as browser:

        def open_one(name):
            opened.append(lab.Notebook(browser, address(f"notebooks/{name}.ipynb")))
            return opened[-1]

        yield open_one
        for one in opened:
            one.close()
