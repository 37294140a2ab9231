"""The built site: no warning, no outside request, readable on a phone and by a screen reader.

`make test-site` runs everything here. Without Sphinx, node or Chromium the tests say what is
missing, and are skipped.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "build" / "site" / "node_modules"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("notebooks/[0-9]*.ipynb"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def python_with_sphinx():
    """Return this interpreter, or the one of `make site`, or None."""
    if all(map(importlib.util.find_spec, ("myst_nb", "autodoc2", "furo"))):
        return sys.executable
    other = ROOT / ".venv-docs" / "bin" / "python"
    return str(other) if other.exists() else None


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the site in an empty folder; returns the folder of its pages and what Sphinx said."""
    python = python_with_sphinx()
    if not python or not shutil.which("node") or not (MODULES / "katex").is_dir():
        pytest.skip("Sphinx, node or KaTeX is missing: `make test-site` installs all but node")
    out = tmp_path_factory.mktemp("site")
    command = [python, "docs/build_site.py", "--out", str(out), "--modules", str(MODULES)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return out / "html", run


@pytest.fixture(scope="module")
def pages(built):
    """Return the tags of every page, {path: [(tag, attributes)]}."""
    html, _ = built

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attributes):
            self.found.append((tag, dict(attributes)))

    def tags(path):
        parser = Tags()
        parser.found = []
        parser.feed(path.read_text(encoding="utf-8"))
        return parser.found

    return {path: tags(path) for path in sorted(html.rglob("*.html"))}


def test_the_site_is_built_without_a_warning(built):
    _, run = built
    assert run.returncode == 0 and "WARNING" not in run.stderr, run.stderr[-3000:]


def test_every_notebook_and_package_has_a_page(built):
    html, _ = built
    assert sorted(path.stem for path in html.glob("notebooks/*.html")) == NOTEBOOKS
    assert len(NOTEBOOKS) == 13
    packages = {path.stem for path in html.glob("api/**/*.html")}
    assert packages == {"index", "data", "bert", "heads", "pals", "training", "huggingface"}


def test_the_first_page_links_every_notebook_and_the_set_up_is_folded(built):
    html, _ = built
    index = (html / "index.html").read_text(encoding="utf-8")
    gallery = index.split('class="gallery')[1]
    assert [name for name in NOTEBOOKS if f'href="notebooks/{name}.html"' not in gallery] == []
    assert 'class="doors' in index and 'class="sliders"' in index
    for name in NOTEBOOKS:
        page = (html / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert page.count("Set-up: parameters and imports") == 1, name


def test_formulas_are_rendered(built):
    html, _ = built
    page = (html / "notebooks" / "03_multiverse_loss.html").read_text(encoding="utf-8")
    assert page.count('class="katex"') > 50 and "$\\lambda$" not in page
    assert not [path for path in html.rglob("*.html") if "katex-error" in path.read_text()]


def test_sections_of_docstrings_are_fields(built):
    html, _ = built
    page = (html / "api" / "heads.html").read_text(encoding="utf-8")
    assert "Parameters" in page and "Raises" in page and "Args:" not in page


def test_no_page_requests_anything_from_outside(pages):
    loaded = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}
    outside = [
        (path.name, tag, attributes.get(loaded[tag]))
        for path, tags in pages.items()
        for tag, attributes in tags
        if tag in loaded and re.match("(https?:)?//", attributes.get(loaded[tag]) or "")
    ]
    html = next(path.parent for path in pages if path.name == "search.html")
    styles = "".join(path.read_text(encoding="utf-8") for path in html.rglob("*.css"))
    assert outside == [] and not re.findall(r"(?:url\(|@import)\s*[\"']?https?:[^)]*", styles)


def test_every_picture_has_an_alt_text(pages):
    images = [a for tags in pages.values() for tag, a in tags if tag == "img"]
    alts = [a.get("alt", "") for a in images if a.get("class") != "toggler"]  # Sphinx's "-"
    bad = [alt for alt in alts if len(alt) < 10 or re.search(r"\.(png|svg)$|_build", alt)]
    assert bad == [] and len(alts) > 60


def test_no_header_of_a_table_is_empty(built):
    html, _ = built
    empty = re.compile(r"<th\b[^>]*>(\s|<p>|</p>)*</th>")
    tables = {path.name: path.read_text() for path in html.rglob("*.html")}
    assert [name for name, text in tables.items() if empty.search(text)] == []
    assert sum(text.count("<th") for text in tables.values()) > 500


def test_links_inside_the_site_have_a_target(pages):
    ids = {
        path.resolve(): {value for _, a in tags for value in (a.get("id"), a.get("name")) if value}
        for path, tags in pages.items()
    }
    missing = []
    for path, tags in pages.items():
        for href in (a.get("href") or "" for tag, a in tags if tag == "a"):
            file, _, fragment = unquote(href).partition("#")
            target = (path.parent / file).resolve() if file else path.resolve()
            if not re.match("[a-z]+:", href) and (
                not target.exists() or (fragment and fragment not in ids.get(target, {fragment}))
            ):
                missing.append((path.name, href))
    assert missing == []


@pytest.fixture(scope="module")
def browser(built):
    """Return a Chromium that Playwright drives."""
    if not importlib.util.find_spec("playwright") or not CHROMIUM:
        pytest.skip("Playwright or Chromium is missing: `make test-site`, apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


def test_no_page_is_wider_than_a_phone_or_logs_an_error(browser, built):
    html, _ = built
    page = browser.new_page(viewport={"width": 390, "height": 844})
    errors, wide, requests = [], [], set()
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.add(request.url.partition(":")[0]))
    for path in sorted(html.rglob("*.html")):
        page.goto(path.as_uri(), timeout=300_000)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide.append((path.name, width))
    page.close()
    assert wide == [] and errors == [] and requests <= {"file", "data"}


def test_drawings_can_be_read_on_a_phone(browser, built):
    """They keep their size, and the keyboard reaches the region that scrolls."""
    html, _ = built
    page = browser.new_page(viewport={"width": 390, "height": 844})
    size = "img => [img.width, img.parentNode.clientWidth, img.parentNode.tabIndex]"
    for name in NOTEBOOKS:
        page.goto((html / "notebooks" / f"{name}.html").as_uri(), timeout=300_000)
        drawings = page.query_selector_all("article p > img[src$='.svg']")
        assert drawings, name
        for drawing in drawings:
            drawn, seen, tab_index = drawing.evaluate(size)
            assert drawn >= 700 and seen <= 390 and tab_index == 0, name
    page.close()


def test_sliders_move_without_a_kernel(browser, built):
    """The keyboard moves every slider: its picture, alt text and announced value change."""
    html, _ = built
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(300_000)

    def state(picture, sliders):
        picture.evaluate("picture => picture.decode()")
        values = [slider.get_attribute("aria-valuetext") for slider in sliders]
        return picture.get_attribute("src"), picture.get_attribute("alt"), values

    moved = 0
    for path in [html / "index.html", *sorted(html.glob("notebooks/*.html"))]:
        page.goto(path.as_uri())
        for figure in page.query_selector_all("figure.sliders"):
            parts = figure.query_selector("img"), figure.query_selector_all("input")
            first, seen = state(*parts), parts[0].screenshot()
            for i, slider in enumerate(parts[1]):
                start = slider.input_value()
                slider.press("Home" if start == slider.get_attribute("max") else "End")
                source, alt, values = state(*parts)
                assert source != first[0] and alt != first[1], (path.stem, alt)
                assert parts[0].screenshot() != seen
                assert [j for j, value in enumerate(values) if value != first[2][j]] == [i]
                assert all(f"= {value}" in alt for value in values)
                slider.fill(start)
                assert state(*parts) == first
                moved += 1
    page.close()
    records = [json.loads(path.read_text()) for path in (ROOT / "docs" / "frames").iterdir()]
    assert moved == 1 + sum(len(record["sliders"]) for record in records)  # one is on both pages


def test_sliders_show_their_start_without_scripts(browser, built):
    html, _ = built
    page = browser.new_page(java_script_enabled=False)
    page.goto((html / "notebooks" / "06_published_tables.html").as_uri(), timeout=300_000)
    assert page.is_visible("figure.sliders img") and not page.is_visible("figure.sliders input")
    page.close()


def test_search_gives_results_without_a_server(browser, built):
    html, _ = built
    page = browser.new_page()
    errors = []
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.goto((html / "search.html").as_uri() + "?q=MeanShift", timeout=300_000)
    page.wait_for_selector("#search-results li a", timeout=300_000)
    found = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    page.close()
    assert any("04_pruning_heads" in href for href in found) and errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, built, scheme):
    html, _ = built
    axe = MODULES / "axe-core" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core is missing: `make test-site` installs it")
    page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 844})
    page.set_default_timeout(300_000)
    api = ["api/index", "api/heads"]
    names = ["index", "README", "data/README", *api, *(f"notebooks/{name}" for name in NOTEBOOKS)]
    names = names if scheme == "light" else names[:6]  # dark differs in colours only
    found = []
    for name in names:
        page.goto((html / f"{name}.html").as_uri(), timeout=300_000)
        page.add_script_tag(path=axe)
        result = page.evaluate("axe.run('article', {preload: false})")
        for one in result["violations"]:
            if one["impact"] in ("serious", "critical"):
                found += [(name, one["id"], node["target"]) for node in one["nodes"]]
    page.close()
    assert found == []
