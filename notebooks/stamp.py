"""Writes the repository's address and the release into every file that names them.

    python notebooks/stamp.py                      what mmlkit/__init__.py says
    python notebooks/stamp.py --repo owner/name    another address first (make set-repo)

REPOSITORY and __version__ in mmlkit/__init__.py are the only places where both are decided. Every
master receives the cell with the tag `bootstrap`, which installs the release. A built notebook
receives the changed cells and keeps its outputs. Badges and the line of git clone would be dead
links while the address is the placeholder, so they appear only with another one.
"""

import argparse
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONSTANTS = "mmlkit/__init__.py"
FILES = (  # these name the address outside the notebooks
    "README.md",
    "CONTRIBUTING.md",
    "CITATION.cff",
    "pyproject.toml",
    "environment.yml",
    ".devcontainer/devcontainer.json",
    "assignments/course.toml",
)
PLACEHOLDER = "mmlkit/mmlkit"
SITES = r"(github\.com/|colab\.research\.google\.com/github/|mybinder\.org/v2/gh/)"
BADGE = (
    "[![Open in Colab](images/colab.svg)]"
    "(https://colab.research.google.com/github/{repo}/blob/v{version}/notebooks/{stem}.ipynb)"
)
BINDER = (
    "[![Open in Binder](notebooks/images/binder.svg)](https://mybinder.org/v2/gh/{repo}/v{version}"
    "?urlpath=lab/tree/notebooks/00_start_here.ipynb)"
)
CLONE = "git clone https://github.com/{repo} mmlkit && cd mmlkit\n"
COPY = "Open a terminal in your copy of this folder:\n\n"
BOOTSTRAP = """# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/{repo}"
    release = f"mmlkit[notebooks,minilm] @ {{home}}/archive/refs/tags/v{version}.zip"
    get_ipython().run_line_magic("pip", f'install -q "{{release}}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("{number}", profile, output_dir)
"""


def constants(root=ROOT):
    """Returns (owner/name, version)."""
    text = (Path(root) / CONSTANTS).read_text(encoding="utf-8")
    return tuple(
        re.search(rf'^{name} = "(.+?)"', text, re.M)[1] for name in ("REPOSITORY", "__version__")
    )


def stamp_text(text, old, repo, version):
    """Replaces an address, and the release in it, in any text."""
    end = r"(?![\w-])"
    text = re.sub(SITES + re.escape(old) + end, rf"\g<1>{repo}", text)
    tag = r"((?:/blob|/tree|/archive/refs/tags)?/)v\d+(?:\.\d+)+"
    text = re.sub(SITES + re.escape(repo) + tag, rf"\g<1>{repo}\g<2>v{version}", text)
    return re.sub(r'(?m)^(version(?:: | = "))[\d.]+', rf"\g<1>{version}", text)


def stamp_readme(text, repo, version):
    """Writes the badges and the clone line of README, or how to start from a copy without them."""
    text = re.sub(r"(?m)^(\[!\[Open in|git clone ).*\n", "", text.replace(COPY, ""))
    text = re.sub(r" \[!\[Open in Colab\][^|]*", " ", text)
    before, start, after = text.partition("```sh\n")
    if repo == PLACEHOLDER:
        return before + COPY + start + after
    place = dict(repo=repo, version=version)
    badge = BADGE.replace("(images", "(notebooks/images")
    first = f"{badge.format(stem='00_start_here', **place)}\n{BINDER.format(**place)}\n"
    before = before.replace("\n\n", f"\n\n{first}", 1)
    after = re.sub(
        r"(?m)^(\| \[\d\d .*?\]\(notebooks/(\w+)\.ipynb\)) \|",
        lambda row: f"{row[1]} {badge.format(stem=row[2], **place)} |",
        after,
    )
    return before + start + CLONE.format(**place) + after


def stamp_master(text, stem, repo, version):
    """Writes the badge below the title of a master, and its cell with the tag `bootstrap`."""
    place = dict(repo=repo, version=version, stem=stem, number=stem[:2])
    badge = "" if repo == PLACEHOLDER else f"# {BADGE.format(**place)}\n#\n"
    text = re.sub(r"^# \[!\[Open in Colab\].*\n#\n", "", text, flags=re.M)
    text, titles = re.subn(
        r"\A(# %% \[markdown\]\n# # .*\n#\n)",
        lambda match: match[1] + badge,
        text,
    )
    text, cells = re.subn(
        r'(?ms)^(# %% tags=\["bootstrap"\]\n).*?(?=^\n# %%)',
        lambda match: match[1] + BOOTSTRAP.format(**place),
        text,
    )
    if (titles, cells) != (1, 1):
        raise SystemExit(
            f"{stem}.py: found {titles} titles at its beginning and {cells} cells with the tag "
            '"bootstrap", expected one of each. Write `# %% tags=["bootstrap"]` after the cell of '
            "parameters."
        )
    return text


def refresh(master, built):
    """Copies the text and the bootstrap cell of a master into its built notebook.

    Outputs stay. Only Markdown cells and the cell with the tag `bootstrap` may differ, so the
    outputs still belong to the code.

    Args:
        master: the path of the percent-format master.
        built: the path of its built notebook.

    Raises:
        ValueError: other code differs, and the notebook must run again.
    """
    import jupytext
    import nbformat
    from build import KEPT, master_hash, numbered

    new, old = numbered(jupytext.read(master)), nbformat.read(built, as_version=4)
    if old.metadata["mmlkit"]["sha256"] == master_hash(master):
        return
    known = [cell for cell in old.cells if cell.cell_type == "code" and not _is_bootstrap(cell)]
    codes = [cell for cell in new.cells if cell.cell_type == "code"]
    kept = [cell for cell in codes if not _is_bootstrap(cell)]
    differing = [new for new, old in zip(kept, known) if new.source != old.source]
    if differing or len(kept) != len(known):
        which = differing[0].source if differing else f"{len(kept)} cells, not {len(known)}"
        raise ValueError(
            f"{master.name}: its code differs from {built.name} ({which[:60]!r}). Run "
            f"python notebooks/build.py {master.stem[:2]}"
        )
    for cell, before in zip(kept, known):
        cell.outputs = before.outputs
    for count, cell in enumerate(codes, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = count
    for cell in new.cells:
        own = {key: value for key, value in cell.metadata.items() if key in KEPT}
        cell.metadata = {"tags": [], **own}  # as a run leaves it
    new.metadata = old.metadata
    new.metadata["mmlkit"]["sha256"] = master_hash(master)
    temporary = built.with_suffix(".tmp")
    nbformat.write(new, temporary)
    os.replace(temporary, built)


def _is_bootstrap(cell):
    return "bootstrap" in cell.metadata.get("tags", [])


def write_changed(path, text):
    """Writes a file if its text has changed; returns whether it has."""
    if path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8", newline="\n")
    print(f"stamped: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    return True


def main(arguments=None):
    """Stamps the repository."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", metavar="OWNER/NAME", help="the new address")
    options = parser.parse_args(arguments)
    old, version = constants()
    repo = options.repo or old
    if not re.fullmatch(r"[\w-]+/[\w.-]+", repo):
        parser.error(f"{repo!r} is not of the form owner/name, such as mmlkit/mmlkit.")
    source = (ROOT / CONSTANTS).read_text(encoding="utf-8")
    source = source.replace(f'REPOSITORY = "{old}"', f'REPOSITORY = "{repo}"')
    write_changed(ROOT / CONSTANTS, source)
    for path in (ROOT / name for name in FILES):
        text = stamp_text(path.read_text(encoding="utf-8"), old, repo, version)
        write_changed(path, stamp_readme(text, repo, version) if path.name == "README.md" else text)
    stale = []
    for path in sorted((HERE / "src").glob("[0-9][0-9]_*.py")):
        before = path.read_text(encoding="utf-8")
        write_changed(path, stamp_master(before, path.stem, repo, version))
        try:
            refresh(path, HERE / f"{path.stem}.ipynb")
        except ValueError as error:
            stale.append(str(error))
    return "\n".join(stale)  # printed, with exit status 1, where it is not empty


if __name__ == "__main__":
    sys.exit(main() or 0)
