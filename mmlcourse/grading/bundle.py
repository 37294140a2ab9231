"""The zip file that Gradescope takes: setup.sh, run_autograder, the grader and the edition.

Gradescope runs it as root in a container of its own, where bubblewrap is usually refused. There a
submission has limits alone, under another user id, and setup.sh closes the folder with the answers
for that user. The versions are those of the machine on which the course was made.
"""

import importlib.metadata
import io
import json
import zipfile
from pathlib import Path

import mmlkit
from mmlkit.files import write_file

__all__ = ["pin", "write_bundle"]

SETUP = """#!/bin/bash
set -e
apt-get update && apt-get install -y python3 python3-pip bubblewrap
pip3 install --break-system-packages {torch} --index-url https://download.pytorch.org/whl/cpu
pip3 install --break-system-packages {others}
chmod -R go-rwx /autograder/source
"""
RUN = """#!/bin/bash
cd "$(dirname "$0")"  # /autograder
chmod -R go-rwx source results
PYTHONPATH=source OMP_NUM_THREADS=1 python3 -m mmlcourse grade submission --assignment {name} \\
    --answers source/answers --out results/grading --gradescope results/results.json
"""


def pin(package):
    """Return what pip installs for the version of a package that is here.

    Args:
        package: its name.

    Returns:
        A text such as "torch==2.13.0".
    """
    return f"{package}=={importlib.metadata.version(package).split('+')[0]}"


def write_bundle(path, name, edition):
    """Write the bundle of an assignment.

    Args:
        path: the .zip file.
        name: the assignment, such as "a1_minbert".
        edition: an Edition.
    """
    others = " ".join(map(pin, ("numpy", "psutil", "ipython")))
    setup = SETUP.format(torch=pin("torch"), others=others)
    content, root = io.BytesIO(), Path(mmlkit.__file__).resolve().parents[1]
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for script, text in (("setup.sh", setup), ("run_autograder", RUN.format(name=name))):
            info = zipfile.ZipInfo(script)
            info.external_attr = 0o755 << 16
            file.writestr(info, text)
        file.writestr("answers/edition.json", json.dumps(edition._asdict()))
        for package in ("mmlkit", "mmlcourse"):
            for source in sorted((root / package).rglob("*.py")):
                file.write(source, source.relative_to(root).as_posix())
    write_file(path, content.getvalue())
