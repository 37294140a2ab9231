"""The functions that turn the repository's files into pages of the site."""

import html
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT)]

import build_site  # noqa: E402
from pages import (  # noqa: E402
    RELEASE,
    REPOSITORY,
    api_fields,
    caption,
    gallery,
    notebook_page,
    reference,
    repair_html,
    rewrite_links,
)

import mmlkit  # noqa: E402

PAGES = {"README.md", "data/README.md", "notebooks/01_minbert.ipynb", "notebooks/images/a.svg"}


@pytest.mark.parametrize(
    "page, link, expected",
    [
        ("notebooks/02_finetuning.ipynb", "01_minbert.ipynb", "01_minbert.ipynb"),
        ("notebooks/02_finetuning.ipynb", "../data/README.md#rules", "../data/README.md#rules"),
        ("notebooks/02_finetuning.ipynb", "../results", f"{REPOSITORY}/tree/main/results"),
        ("README.md", "results/speed.json", f"{REPOSITORY}/blob/main/results/speed.json"),
        ("data/README.md", "measure.py", f"{REPOSITORY}/blob/main/data/measure.py"),
        ("docs/index.md", "../README.md", "README.md"),
        ("docs/index.md", "../notebooks/01_minbert.ipynb#a", "notebooks/01_minbert.ipynb#a"),
        ("README.md", "#the-library", "#the-library"),
        ("README.md", "https://example.org/README.md", "https://example.org/README.md"),
        ("README.md", "no/such/file.md", "no/such/file.md"),  # Sphinx reports it
    ],
)
def test_a_link_points_at_a_page_or_at_the_code_host(page, link, expected):
    text = f"Read [this and\nthat]({link}) first."
    assert rewrite_links(text, page, PAGES, ROOT) == text.replace(link, expected)


def test_a_picture_from_another_server_becomes_its_alt_text():
    badge = "[![Open in Colab](https://example.org/badge.svg)](https://example.org/x)"
    text = f"{badge} ![A\nmap](images/a.svg)"
    expected = "[Open in Colab](https://example.org/x) ![A map](images/a.svg)"
    assert rewrite_links(text, "notebooks/01_minbert.ipynb", PAGES, ROOT) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("*At $\\alpha = \\sqrt{2}$, `sts` has\n5 %.*\n\nB.", "At alpha = sqrt 2, sts has 5 %."),
        ("*No system leads.* So this run cannot rank them.", "No system leads."),
        ("*The price of STS-B\\* is zero.*", "The price of STS-B* is zero."),
        ("*What the figure shows:* three arrows, see [01](01.ipynb).", "three arrows, see 01."),
        ("**Predict before you run.** Which one?", ""),
        ("The next cell trains.", ""),
        ("", ""),
    ],
)
def test_the_caption_is_the_italic_beginning(text, expected):
    assert caption(text) == expected


def code(**metadata):
    return {"cell_type": "code", "metadata": metadata, "source": "draw()", "outputs": []}


def text(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def test_a_figure_gets_the_alt_text_of_its_cell_or_caption_or_section():
    cells = [
        text(["# 01 minBERT\n", "\n## 2 `Two` heads"]),
        code(),
        text("*Two arrows.*"),
        code(mmlkit={"alt": "Three arrows"}),
        text("*Not this.*"),
        code(mystnb={"image": {"alt": "Four arrows", "width": "50%"}}),
        code(tags=["answer"], jupyter={"outputs_hidden": True}),
        code(tags=["setup"], jupyter={"source_hidden": True}),
    ]
    cells = notebook_page({"cells": cells}, "notebooks/01_minbert.ipynb", PAGES, ROOT)["cells"]
    images = [cell["metadata"]["mystnb"]["image"] for cell in cells if cell["cell_type"] == "code"]
    assert [image["alt"] for image in images] == [
        "Two arrows.",
        "Three arrows",
        "Four arrows",
        *2 * ["Figure in the section 2 Two heads"],
    ]
    assert images[2]["width"] == "50%"
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    assert tags[-2:] == [["answer", "hide-output"], ["setup", "hide-input"]]
    assert not any(tags[:-2])


def test_a_figure_with_frames_gets_sliders(tmp_path):
    record = {"sliders": {"a": ["1", "2"], "b": ["x", "y", "<z>"]}, "start": 4}
    record |= {"titles": list("uvwxyz"), "frames": list("UVWXYZ")}
    (tmp_path / "docs" / "frames").mkdir(parents=True)
    (tmp_path / "docs" / "frames" / "01_1.json").write_text(json.dumps(record))
    cell = code()
    metadata = {"mmlkit": {"frames": "01_1"}}
    cell["outputs"] = [{"data": {"image/png": "Y"}, "metadata": metadata}, {"text": "Y"}]
    notebook_page({"cells": [cell, text('*Two "arrows".*')]}, "notebooks/01.ipynb", {}, tmp_path)
    assert list(cell["outputs"][0]["data"]) == ["text/html"]
    page = cell["outputs"][0]["data"]["text/html"]
    assert '<img src="data:image/png;base64,Y" alt="Two &quot;arrows&quot;.">' in page
    sliders = '<label>{} <input type="range" max="{}" value="1" autocomplete="off"></label>'
    assert page.index(sliders.format("a", 1)) < page.index(sliders.format("b", 2))
    state = json.loads(html.unescape(page.split('data-state="')[1].split('"')[0]))
    assert state == {**record, "alt": 'Two "arrows".'} and "<z>" not in page


def test_a_figure_of_a_folded_answer_gets_the_alt_text_of_its_cell():
    cell, image = code(), '<img alt="{}" src="data:image/png;base64,QQ==">'
    page = "<details>\n<summary>Answer</summary>\n" + image + "</details>"
    cell["outputs"] = [{"data": {"text/html": [page.format("Answer")]}, "output_type": "x"}]
    notebook_page({"cells": [cell, text('*Two "arrows".*')]}, "notebooks/01.ipynb", {}, ROOT)
    assert cell["outputs"][0]["data"]["text/html"] == page.format("Two &quot;arrows&quot;.")


def test_the_cells_before_the_first_idea_become_one_folded_cell():
    version = {"output_type": "stream", "text": "mmlkit 1.2"}
    first, second = code(tags=["parameters"]), code(tags=["bootstrap"]) | {"outputs": [version]}
    page = {"cells": [text("# 01"), first, second, text("## 1 An idea"), code()]}
    cells = notebook_page(page, "notebooks/01_minbert.ipynb", PAGES, ROOT)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "markdown", "code"]
    assert cells[1]["source"] == "draw()\n\ndraw()" and cells[1]["outputs"] == [version]
    assert cells[1]["metadata"]["tags"] == ["hide-input"] and not cells[3]["metadata"].get("tags")


def test_the_first_page_has_a_card_for_every_notebook_and_a_slider():
    page = gallery((ROOT / "docs" / "index.md").read_text(encoding="utf-8"), ROOT)
    cards = re.findall(r"images/(\d\d)_\w+\.svg\)\n\n  \*\*\[(\d\d) .+\]\(.+/(\d\d)_.+ipynb", page)
    assert cards == [(f"{n:02}",) * 3 for n in range(13)]
    times = re.findall(r"\?\n\n  \*[\d½]+ (?:minutes|hours?) to read.* · .*min to run\*", page)
    assert len(times) == 13 and page.count('<figure class="sliders"') == 1


def test_the_reference_has_the_names_that_mmlkit_and_its_packages_offer():
    pages = reference(ROOT)
    names = mmlkit.__all__
    assert all(f"**[{name}](" in pages["api/index.md"] for name in names)
    assert pages["api/index.md"].count("**[") == len(names) > 20
    assert "## collate\n\n`from mmlkit.data import collate`" in pages["api/data.md"]
    assert "{autodoc2-object} mmlkit.heads.linear.PairHead" in pages["api/heads.md"]
    assert "## PruningCallback\n\n`from mmlkit.huggingface" in pages["api/huggingface.md"]


@pytest.mark.parametrize(
    "kind, link", [("text/html", '<a href="{}">01</a>'), ("text/markdown", "[01]({})")]
)
def test_links_of_an_output_point_at_pages(kind, link):
    cell = code()
    text = link.format("01_minbert.ipynb") + link.format("99_none.ipynb")
    cell["outputs"] = [{"data": {kind: [text]}}, {"text": "01_minbert.ipynb"}]
    notebook_page({"cells": [cell]}, "notebooks/02_finetuning.ipynb", PAGES, ROOT)
    expected = text.replace("01_minbert.ipynb", "01_minbert.html")
    assert cell["outputs"][0]["data"][kind] == expected


def test_an_empty_header_cell_becomes_a_data_cell_and_an_empty_head_goes():
    corner = '<thead>\n<tr><th></th>\n<th class="head"><p>seeds</p></th></tr>\n</thead>'
    assert repair_html(corner) == corner.replace("<th></th>", "<td></td>")
    empty = (
        '<thead>\n<tr class="row-odd"><th class="head"></th>\n'
        '<th class="head"><p></p></th>\n</tr>\n</thead><tbody><tr><td>time</td></tr></tbody>'
    )
    assert repair_html(empty) == "<tbody><tr><td>time</td></tr></tbody>"


def test_the_caption_of_a_list_of_pages_gets_a_level():
    caption = '<p class="caption" role="heading"><span>Notebooks</span></p>'
    assert 'role="heading" aria-level="2"><span>Notebooks' in repair_html(caption)


def test_what_opens_a_folded_output_has_its_visible_name():
    folded = '<summary aria-label="Toggle hidden content">\n<p>Show code cell output</p></summary>'
    assert repair_html(folded) == "<summary>\n<p>Show code cell output</p></summary>"


def test_google_sections_become_field_lists():
    docstring = """Measure a head.

It costs one product: [A, D].

Args:
    weight: the weights [M, C, D]. The term is
        sum of all.
    **options: passed on.
    kind, seed: see `add`. Or see, as here: there.

Returns:
    A scalar; 0 for
    a single head.

Raises:
    ValueError: an unknown word.

Example::

    measure(torch.eye(2))
"""
    assert api_fields(docstring).split("\n\n") == [
        "Measure a head.",
        "It costs one product: [A, D].",
        "\n:param weight: the weights [M, C, D]. The term is\n    sum of all.\n"
        ":param **options: passed on.\n:param kind,seed: see `add`. Or see, as here: there.",
        "\n:returns: A scalar; 0 for\n    a single head.",
        "\n:raises ValueError: an unknown word.",
        "\n**Example**",
        "```python\nmeasure(torch.eye(2))\n```",
        "",
    ]


def test_every_notebook_and_drawing_is_collected(tmp_path):
    build_site.collect(tmp_path)
    notebooks = sorted(path.name for path in ROOT.glob("notebooks/[0-9]*.ipynb"))
    assert sorted(path.name for path in tmp_path.glob("notebooks/*.ipynb")) == notebooks
    assert len(notebooks) == 13 and (tmp_path / "index.md").exists()
    page = json.loads((tmp_path / "notebooks" / notebooks[3]).read_text())
    assert all("alt" in c["metadata"]["mystnb"]["image"] for c in page["cells"] if "outputs" in c)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    (tmp_path / "notebooks" / "13_removed.ipynb").write_text("{}")
    build_site.collect(tmp_path)  # what has not changed is not read again by Sphinx
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}


def test_address_and_release_are_those_of_the_package():
    text = (Path(build_site.ROOT) / "mmlkit" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{RELEASE}"' in text
    assert f'REPOSITORY = "{REPOSITORY.removeprefix("https://github.com/")}"' in text
