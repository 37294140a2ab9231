"""The wheel leaves out what notebooks have printed, and packs the results into one archive.

Everything else is in pyproject.toml. `mmlcourse.shipped` opens the archive.
"""

import json
import shutil
import tarfile
import warnings
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# `pip install -e` shows a box about folders named after a package; here these are the package.
warnings.filterwarnings("ignore", "Editable installation")


class SmallWheel(build_py):
    """Files as they are installed: a third of their size in a checkout."""

    def run(self):
        """Copy the packages, then make the copies smaller; a checkout with -e has no copies."""
        super().run()
        if self.editable_mode:
            return
        course = Path(self.build_lib, "mmlcourse")
        for path in (course / "notebooks").glob("*.ipynb"):
            notebook = json.loads(path.read_text(encoding="utf-8"))
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    cell.update(outputs=[], execution_count=None)
            path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1), encoding="utf-8")
        with tarfile.open(course / "results.tar.xz", "w:xz", preset=9) as archive:
            for path in sorted((course / "results").rglob("*.json")):
                archive.add(path, path.relative_to(course))
        shutil.rmtree(course / "results")


setup(cmdclass={"build_py": SmallWheel})
