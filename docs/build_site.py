"""Builds the documentation site, without a network and without torch.

    python docs/build_site.py            into build/site/html

It collects the pages into build/site/source, in the layout of the repository, and runs Sphinx there
with warnings as errors. KaTeX's style sheet and fonts come from build/site/node_modules, where
`make site` has npm put them.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from pages import SITE, gallery, notebook_page, reference, rewrite_links

ROOT = Path(__file__).resolve().parents[1]
TEXTS = (
    "docs/index.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "assignments/README.md",
    "data/README.md",
    "data/mini/README.md",
    "experiments/PLAN.md",
    "results/REPORT.md",
    "results/verdicts.svg",
)


def pages():
    """Return the paths of all files that become a page or a picture of one."""
    return {
        *TEXTS,
        *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/guide/*.md")),
        *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("notebooks/[0-9]*.ipynb")),
        *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("notebooks/images/*")),
    }


def collect(source):
    """Write the pages into the folder `source`; a page that has not changed keeps its time."""
    found, written = pages(), reference(ROOT)
    kept = {source / SITE.get(page, page) for page in {*found, *written}}
    for path in source.rglob("*.*"):
        if path.is_file() and path not in kept:
            path.unlink()  # its file has another name now
    for page in sorted({*found, *written}):
        content = written[page].encode() if page in written else (ROOT / page).read_bytes()
        if page == "docs/index.md":
            content = gallery(content.decode(), ROOT).encode()
        if page.endswith(".md") and page not in written:
            content = rewrite_links(content.decode(), page, found, ROOT).encode()
        elif page.endswith(".ipynb"):
            notebook = notebook_page(json.loads(content), page, found, ROOT)
            content = json.dumps(notebook, ensure_ascii=False).encode()
        target = source / SITE.get(page, page)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)


def copy_katex(modules, static):
    """Copy the style sheet and the fonts of KaTeX that browsers of today read."""
    dist = modules / "katex" / "dist"
    if not dist.is_dir():
        raise SystemExit(f"There is no KaTeX in {modules}. `make site` installs it.")
    (static / "katex" / "fonts").mkdir(parents=True, exist_ok=True)
    shutil.copy(dist / "katex.min.css", static / "katex")
    for font in dist.glob("fonts/*.woff2"):
        shutil.copy(font, static / "katex" / "fonts")


def main(arguments=None):
    """Build the site and return the exit code of Sphinx."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--modules", type=Path, default=ROOT / "build" / "site" / "node_modules")
    options = parser.parse_args(arguments)
    source, static = options.out / "source", options.out / "static"
    collect(source)
    copy_katex(options.modules, static)
    os.environ["MMLKIT_SITE"] = str(options.out.resolve())
    from sphinx.cmd.build import main as sphinx

    strict = ["-W", "--keep-going", "-n", "-q"]
    folders = [options.out / name for name in ("doctrees", "source", "html")]
    return sphinx([*strict, "-c", str(ROOT / "docs"), "-d", *map(str, folders)])


if __name__ == "__main__":
    sys.exit(main())
