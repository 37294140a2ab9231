"""One constant decides the address, and one the release: every file that names them agrees."""

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import jupytext
import nbformat
import pytest

import mmlkit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "notebooks"))
import stamp  # noqa: E402

MASTERS = sorted((ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
HERE = mmlkit.REPOSITORY, mmlkit.__version__
ADDRESSES = stamp.SITES + r"([\w-]+/[\w.-]*\w)"


def test_the_constants_are_read_from_the_package():
    assert stamp.constants() == HERE and re.fullmatch(r"[\w-]+/[\w.-]+", mmlkit.REPOSITORY)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mmlkit.__version__"}


@pytest.mark.parametrize("name", stamp.FILES)
def test_every_file_has_the_address_and_the_release(name):
    """Otherwise: make set-repo."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert stamp.stamp_text(text, HERE[0], *HERE) == text
    found = {address for _, address in re.findall(ADDRESSES, text)}
    own = "OWNER/NAME" if name == "assignments/course.toml" else mmlkit.REPOSITORY
    assert found <= {own}, found


def test_the_readme_has_badges_once_it_has_an_address():
    """Otherwise: make set-repo."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert stamp.stamp_readme(text, *HERE) == text
    without = stamp.stamp_readme(text, stamp.PLACEHOLDER, "1.0")
    assert "Open in" not in without and "git clone" not in without and stamp.COPY in without
    placed = stamp.stamp_readme(without, "ab/c-d.e", "1.2.3")
    badge = r"github/ab/c-d\.e/blob/v1\.2\.3/notebooks/(\d\d_\w+)\.ipynb"
    names = [path.stem for path in MASTERS]
    assert re.findall(badge, placed) == ["00_start_here", *names]
    assert "```sh\ngit clone https://github.com/ab/c-d.e mmlkit" in placed
    assert "binder.svg)](https://mybinder.org/v2/gh/ab/c-d.e/v1.2.3?" in placed
    assert stamp.COPY not in placed and stamp.stamp_readme(placed, stamp.PLACEHOLDER, "") == without
    assert stamp.stamp_readme(placed, "ab/c-d.e", "1.2.3") == placed


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_every_master_is_stamped(path):
    """Otherwise: make set-repo."""
    text = path.read_text(encoding="utf-8")
    assert stamp.stamp_master(text, path.stem, *HERE) == text
    assert {address for _, address in re.findall(ADDRESSES, text)} == {mmlkit.REPOSITORY}
    assert text.index('tags=["parameters"]') < text.index('tags=["bootstrap"]')
    assert "../results" not in text  # shipped.results finds them in an installed wheel too
    assert re.search(r"^# \| time \| (\d+ minutes|[\d½]+ hours?) to read ", text, re.M)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_the_badge_and_the_bootstrap_of_its_master(path):
    """Otherwise: make set-repo."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    place = dict(zip(("repo", "version"), HERE), stem=path.stem, number=path.stem[:2])
    badge = "".join(cells[0]["source"]).split("\n")[2] == stamp.BADGE.format(**place)
    assert badge == (mmlkit.REPOSITORY != stamp.PLACEHOLDER)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert "bootstrap" in code[1]["metadata"]["tags"]
    assert "".join(code[1]["source"]) + "\n" == stamp.BOOTSTRAP.format(**place)


MASTER = """# %% [markdown]
# # 03 A title
#
# Some text.

# %% tags=["parameters"]
profile = "fast"
output_dir = "../runs"

# %% tags=["bootstrap"]
pass

# %%
1 + 1
"""


def test_a_master_receives_the_badge_and_the_bootstrap_once():
    once = stamp.stamp_master(MASTER, "03_title", "ab/c-d.e", "1.2.3")
    assert stamp.stamp_master(once, "03_title", "ab/c-d.e", "1.2.3") == once
    assert once.startswith("# %% [markdown]\n# # 03 A title\n#\n# [![Open in Colab](images/colab")
    assert "github/ab/c-d.e/blob/v1.2.3/notebooks/03_title.ipynb)\n#\n# Some text." in once
    assert 'home = "https://github.com/ab/c-d.e"' in once and "tags/v1.2.3.zip" in once
    assert 'open_notebook("03", profile, output_dir)\n\n# %%\n1 + 1\n' in once
    without = stamp.stamp_master(once, "03_title", stamp.PLACEHOLDER, "2.0")
    assert "colab" not in without and without.startswith("# %% [markdown]\n# # 03 A title\n#\n# So")
    moved = stamp.stamp_master(once, "03_title", "x/y", "2.0")
    assert "ab/c" not in moved and "1.2.3" not in moved and moved.count("x/y") == 2
    with pytest.raises(SystemExit, match='found 1 titles .* and 0 cells with the tag "bootstrap"'):
        stamp.stamp_master(MASTER.replace("bootstrap", "other"), "03_title", "x/y", "1.0")


def test_the_bootstrap_cell_does_not_count_as_an_effect(tmp_path):
    """The release changes and the hash does not; a line of an effect changes it."""
    experiment = runpy.run_path(str(ROOT / "benchmarks" / "lesson_effects.py"))["experiment"]
    master, found = tmp_path / "03_title.py", []
    text = MASTER.replace("# %%\n1 + 1", '# %% tags=["effect"]\neffects = dict(a=1)')
    for version, code in (("1.0", text), ("2.0", text), ("2.0", text.replace("a=1", "a=2"))):
        master.write_text(stamp.stamp_master(code, "03_title", "x/y", version))
        found.append(experiment(master))
    (cells, first), (_, second), (_, third) = found
    assert first == second != third
    assert ["open_notebook" in cell for cell in cells] == [False, True, False]


def test_the_bootstrap_cell_fits_the_limits_of_a_cell():
    code = stamp.BOOTSTRAP.format(repo=f"{'o' * 30}/{'n' * 30}", version="10.10.10", number="12")
    lines = code.splitlines()
    assert len(lines) <= 15 and max(map(len, lines)) <= 100
    compile(code, "bootstrap", "exec")


def test_texts_receive_the_address_and_the_release():
    text = "github.com/a/b/c https://github.com/a/bc mybinder.org/v2/gh/a/b/v0.1.0?x=1 v0.1.0"
    new = "github.com/x/y/c https://github.com/a/bc mybinder.org/v2/gh/x/y/v2.0?x=1 v0.1.0"
    assert stamp.stamp_text(text, "a/b", "x/y", "2.0") == new
    for line in ("version: {}\n", 'version = "{}"\n'):
        assert stamp.stamp_text(line.format("0.1.0"), "a/b", "a/b", "2.0") == line.format("2.0")


@pytest.fixture
def built(tmp_path):
    """Return a stamped master and its built notebook, whose outputs are of this code."""
    import build

    master, target = tmp_path / "03_title.py", tmp_path / "03_title.ipynb"
    master.write_text(stamp.stamp_master(MASTER, "03_title", "a/b", "1.0"))
    notebook = build.numbered(jupytext.read(master))
    result = nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=3)
    result.metadata["mmlkit"] = {"frames": "03_title_1"}
    notebook.cells[-1].outputs = [result]
    notebook.metadata["mmlkit"] = {"sha256": build.master_hash(master), "profile": "fast"}
    nbformat.write(notebook, target)
    return master, target


def test_a_built_notebook_keeps_its_outputs(built):
    """The badge, the bootstrap cell and the text change; the result of 1 + 1 stays."""
    master, target = built
    text = stamp.stamp_master(master.read_text(), "03_title", "x/y", "2.0")
    master.write_text(text.replace("Some text", "Other text"))
    stamp.refresh(master, target)
    content = target.read_text()
    assert "x/y" in content and "a/b" not in content and "Other text" in content
    notebook = nbformat.read(target, as_version=4)
    assert notebook.cells[-1].outputs[0]["data"]["text/plain"] == "2"
    assert notebook.cells[-1].outputs[0]["metadata"]["mmlkit"]["frames"] == "03_title_1"
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2, 3]
    assert notebook.metadata["mmlkit"]["profile"] == "fast"
    stamp.refresh(master, target)
    assert target.read_text() == content


def test_answers_and_set_up_cells_are_folded():
    import build

    codes = ('folded("Runs")', "print()", "1 + 1", "pass")
    tags = (["answer"], ["answer"], ["effect", "setup"], [])
    new = nbformat.v4.new_code_cell
    cells = [new(code, metadata={"tags": one}) for code, one in zip(codes, tags)]
    found = build.numbered(nbformat.v4.new_notebook(cells=cells)).cells
    assert [cell.source.split("\n")[0] for cell in found] == [
        "# @title Runs",
        "print()",
        "# @title Set-up",
        "pass",
    ]
    assert [cell.metadata.get("cellView") for cell in found] == ["form", None, "form", None]
    assert found[0].metadata.jupyter == {"source_hidden": True}


def test_a_built_notebook_with_other_code_is_refused(built):
    master, target = built
    before = target.read_text()
    master.write_text(master.read_text().replace("1 + 1", "1 + 2"))
    with pytest.raises(ValueError, match="its code differs .* python notebooks/build.py 03"):
        stamp.refresh(master, target)
    assert target.read_text() == before


def test_the_wheel_holds_results_experiments_and_notebooks():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    setuptools = setuptools["setuptools"]
    held = {}
    for package, folder in setuptools["package-dir"].items():
        assert package in setuptools["packages"]
        patterns = setuptools["package-data"][package]
        held[folder] = {file for pattern in patterns for file in (ROOT / folder).glob(pattern)}
    code = [
        path.parent for one in ("mmlkit", "mmlcourse") for path in (ROOT / one).rglob("__init__.py")
    ]
    code = {".".join(folder.relative_to(ROOT).parts) for folder in code}
    assert code == {*setuptools["packages"]} - {*setuptools["package-dir"]}
    assert {*(ROOT / "results").rglob("*.json")} <= held["results"]
    assert setuptools["exclude-package-data"] == {"mmlcourse.results": ["archive/**"]}
    assert {*(ROOT / "experiments").glob("*.toml")} <= held["experiments"]
    assert {*NOTEBOOKS, *(ROOT / "notebooks" / "images").glob("[0-9]*.svg")} <= held["notebooks"]


@pytest.mark.slow
def test_a_heat_map_keeps_its_colours(tmp_path):
    """A palette would draw bands in its colour bar; a picture of lines needs few colours."""
    import base64

    import build
    from matplotlib import pyplot as plt
    from PIL import Image

    from mmlcourse.lessons import plots

    def colours(draw):
        with plots.style():
            fig, ax = plt.subplots(figsize=(6, 4))
            draw(fig, ax)
        fig.savefig(tmp_path / "full.png")
        plt.close(fig)
        png = base64.b64encode((tmp_path / "full.png").read_bytes())
        (tmp_path / "small.png").write_bytes(base64.b64decode(build.smaller(png)))
        files = [Image.open(tmp_path / f"{name}.png") for name in ("full", "small")]
        return [len(file.convert("RGB").getcolors(1 << 24)) for file in files]

    def heat_map(fig, ax):
        fig.colorbar(ax.imshow([[0.0, 0.3], [0.6, 1.0]]), ax=ax)

    full, small = colours(heat_map)
    assert full == small > 256
    full, small = colours(lambda fig, ax: [ax.plot([0, 1], [n, 3 * n]) for n in range(6)])
    assert full > 256 >= small
