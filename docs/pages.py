"""How a text of the repository becomes a page of the site.

These functions take text and return text. They need neither Sphinx nor torch, so their tests always
run. A *page* is a path in the repository, such as "notebooks/01_minbert.ipynb"; SITE says where a
page lies in the source folder of the site, if that is another path.
"""

import ast
import html
import json
import posixpath
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "notebooks"))
from stamp import constants

__all__ = [
    "RELEASE",
    "REPOSITORY",
    "api_fields",
    "gallery",
    "notebook_page",
    "reference",
    "repair_html",
    "rewrite_links",
    "sliders",
]

ADDRESS, RELEASE = constants()
REPOSITORY = f"https://github.com/{ADDRESS}"
BRANCH = "main"
SITE = {"docs/index.md": "index.md"}

PACKAGES = ("data", "bert", "heads", "pals", "training", "huggingface")  # of the reference
SET_UP = "Set-up: parameters and imports"

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Examples?):{1,2}\n", re.M)
FIELDS = {"Args": "param", "Attributes": "ivar", "Raises": "raises"}
EMPTY_HEADER = re.compile(r"<th\b([^>]*)>\s*(?:<p>\s*</p>)?\s*</th>")
EMPTY_HEAD = re.compile(r"<thead>\s*<tr[^>]*>(?:\s*<td\b[^>]*></td>)+\s*</tr>\s*</thead>")


def rewrite_links(text, page, pages, root):
    """Point the links of a Markdown text at pages of the site, or else at the code host.

    An image from another server becomes its alt text, so that a page requests nothing from outside.

    Args:
        text: Markdown.
        page: where the text lies in the repository.
        pages: the files of the repository that the site has.
        root: the folder of the repository.

    Returns:
        The text. A link whose target does not exist is left as it is, and Sphinx reports it.
    """
    folder, here = posixpath.dirname(page), posixpath.dirname(SITE.get(page, page))

    def target(match):
        path, hash_, fragment = match[1].partition("#")
        path = posixpath.normpath(posixpath.join(folder, path))
        if ":" in match[1] or match[1].startswith("#") or not (root / path).exists():
            return match[0]
        if path in pages:
            path = posixpath.relpath(SITE.get(path, path), here or ".")
        else:
            path = f"{REPOSITORY}/{'tree' if (root / path).is_dir() else 'blob'}/{BRANCH}/{path}"
        return f"]({path}{hash_}{fragment})"

    text = re.sub(r"!\[([^\]]*)\]\(https?:[^)]*\)", r"\1", text)
    # MyST drops the line breaks of an alt text, and the words would run together.
    text = re.sub(r"!\[[^\]]*\]\(", lambda found: " ".join(found[0].split()), text)
    return re.sub(r"\]\(([^()\s]+)\)", target, text)


def gallery(text, root):
    """Turn the first page's list of notebooks into cards, and the name of a record into sliders.

    A card has the title of its notebook, its drawing, and its minutes, which stand in the notebook.

    Args:
        text: Markdown, with lines `- [03](../notebooks/03_name.ipynb) Question?` and a comment
            `<!-- sliders: 03_name_1 -->` above its caption.
        root: the folder of the repository.

    Returns:
        Markdown.
    """

    def card(match):
        link, question = match[1], match[2]
        path = (root / "docs" / link).resolve()
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        title = re.search(r"^# (.+)", first)[1]
        minutes = re.search(r"\| time \| (.+?)(?: \(.+?\))? · fast: (.+?) on ", first)
        (drawing,) = (root / "notebooks" / "images").glob(f"{path.stem[:2]}_*.svg")
        image = f"![The drawing of notebook {title}.](../notebooks/images/{drawing.name})"
        return (
            f"- {image}\n\n  **[{title}]({link})**\n\n  {question}\n\n"
            f"  *{minutes[1]} · {minutes[2]} to run*\n"
        )

    def figure(match):
        record = (root / "docs" / "frames" / f"{match[1]}.json").read_text(encoding="utf-8")
        return sliders(json.loads(record), caption(text[match.end() :].strip()))

    text = re.sub(r"<!-- sliders: (\w+) -->", figure, text)
    return re.sub(r"^- \[\d\d\]\((\S+\.ipynb)\) (.+)$", card, text, flags=re.M)


def reference(root):
    """Return the pages of the reference: every name that mmlkit and its packages offer.

    Args:
        root: the folder of the repository.

    Returns:
        {page: Markdown}, a page for each package and the list of all.
    """
    trees = {}
    for package in PACKAGES:
        path = root / "mmlkit" / package
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        trees[package] = ast.parse(path.read_text(encoding="utf-8"))
    code = (root / "mmlkit" / "__init__.py").read_text(encoding="utf-8")
    top = set(re.search(r"_NAMES = \{(.*?)\}", code, re.S)[1].replace('"', " ").split())
    pages = {}
    lines = [
        "# Reference of the library",
        "",
        "These are the public names. Those in bold can be imported from `mmlkit` itself.",
        "",
        "| package | names |",
        "|---|---|",
    ]
    for package, tree in trees.items():
        links, parts = [], [f"# mmlkit.{package}", ast.get_docstring(tree).splitlines()[0]]
        for home, name in sorted(_offered(tree, f"mmlkit.{package}"), key=lambda pair: pair[1]):
            link = f"[{name}]({package}.md#{name.lower()})"
            links.append(f"**{link}**" if name in top else link)
            place = "mmlkit" if name in top else f"mmlkit.{package}"
            parts += [f"## {name}", f"`from {place} import {name}`"]
            parts += [f"```{{autodoc2-object}} {home}.{name}\n```"]
        pages[f"api/{package}.md"] = "\n\n".join(parts) + "\n"
        lines.append(f"| [mmlkit.{package}]({package}.md) | {', '.join(links)} |")
    names = "\n".join(PACKAGES)
    lines += ["", f"```{{toctree}}\n:hidden:\n\n{names}\n```", ""]
    return {"api/index.md": "\n".join(lines), **pages}


def _offered(tree, package):
    """Return (module, name) of what a package imports from its modules, or of a file's __all__."""
    found = [
        (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith(f"{package}.")
        for alias in node.names
    ]
    own = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    listed = [value for value in own if isinstance(value, ast.List)]
    return found or [(package, name) for name in ast.literal_eval(listed[0])]


def notebook_page(notebook, page, pages, root):
    """Prepare a notebook for the site, in place: links, alt texts, folded answers and set-up.

    Args:
        notebook: the parsed JSON of the notebook.
        page: where the notebook lies in the repository.
        pages: the files of the repository that the site has.
        root: the folder of the repository.

    Returns:
        The notebook.
    """
    _fold_set_up(notebook["cells"])
    cells, heading = notebook["cells"], ""
    for cell, following in zip(cells, [*cells[1:], {"cell_type": None}]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cell["source"] = rewrite_links(source, page, pages, root)
            heading = (re.findall(r"^#+ (.+)$", source, re.M) or [heading])[-1]
        elif cell["cell_type"] == "code":
            metadata = cell["metadata"]
            after = "".join(following["source"]) if following["cell_type"] == "markdown" else ""
            alt = metadata.get("mmlkit", {}).get("alt") or caption(after)
            image = metadata.setdefault("mystnb", {}).setdefault("image", {})
            alt = image.setdefault("alt", alt or f"Figure in the section {plain(heading)}")
            for output in cell["outputs"]:
                _link_to_pages(output.get("data", {}), page, pages)
                _describe_folded(output.get("data", {}), alt)
                if name := output.get("metadata", {}).get("mmlkit", {}).get("frames"):
                    frames = (root / "docs" / "frames" / f"{name}.json").read_text(encoding="utf-8")
                    output["data"] = {"text/html": sliders(json.loads(frames), alt)}
            for part, tag in (("outputs_hidden", "hide-output"), ("source_hidden", "hide-input")):
                if metadata.get("jupyter", {}).get(part):
                    metadata.setdefault("tags", []).append(tag)
    return notebook


def _fold_set_up(cells):
    """Join, in place, the code cells before the first idea; the site folds them to one line."""
    kinds = [cell["cell_type"] for cell in cells]
    first = kinds.index("code")
    if "parameters" not in cells[first]["metadata"].get("tags", []):
        return
    last = kinds.index("markdown", first)
    cell = cells[first]
    cell["source"] = "\n\n".join("".join(one["source"]) for one in cells[first:last])
    cell["outputs"] = [output for one in cells[first:last] for output in one["outputs"]]
    cell["metadata"] = {"tags": ["hide-input"], "mystnb": {"code_prompt_show": SET_UP}}
    cells[first + 1 : last] = []


def sliders(record, alt):
    """Return a figure whose sliders need no kernel; static/site.js shows the frame of each state.

    Args:
        record: the content of a file of docs/frames, see notebooks/frames.py.
        alt: the alt text of the frame at the start.

    Returns:
        HTML. Without scripts it is the frame at the start, and the sliders are hidden.
    """
    state, rest, controls = dict(record, alt=alt), record["start"], []
    for name, values in reversed(record["sliders"].items()):
        rest, value = divmod(rest, len(values))
        controls.append(
            f'<label>{html.escape(name)} <input type="range" max="{len(values) - 1}" '
            f'value="{value}" autocomplete="off"></label> <span></span>'
        )
    return (
        f'<figure class="sliders" data-state="{html.escape(json.dumps(state))}">'
        f'<img src="data:image/png;base64,{record["frames"][record["start"]]}" '
        f'alt="{html.escape(alt)}"><div hidden>{"".join(reversed(controls))}</div></figure>'
    )


def _link_to_pages(data, page, pages):
    """Point the links of an output, in place, from notebooks to their pages.

    MyST-NB takes a link in an output as it is, in Markdown too.
    """
    folder = posixpath.dirname(page)

    def target(match):
        known = posixpath.normpath(posixpath.join(folder, match[2] + ".ipynb")) in pages
        return f"{match[1]}{match[2]}.html" if known else match[0]

    for kind in {"text/html", "text/markdown"} & set(data):
        link = r"""(href="|\]\()([^":()\s]+)\.ipynb(?=[")])"""
        data[kind] = re.sub(link, target, "".join(data[kind]))


def _describe_folded(data, alt):
    """Give the figures of a folded answer, in place, the alt text of their cell."""
    if "<details>" in (folded := "".join(data.get("text/html", ""))):
        tag = f'<img alt="{html.escape(alt)}"'
        data["text/html"] = re.sub(r'<img alt="[^"]*"(?= src="data:)', lambda _: tag, folded)


def caption(text):
    """Return the caption that a Markdown text begins with, as plain text.

    A caption is a paragraph that begins in italics. The rest of its paragraph is left out.
    """
    found = re.match(r"\*(?!\*)((?:\\.|[^*\\]|\*\*)+)\*", text.split("\n\n")[0].strip())
    if found and found[1].endswith(":"):  # "*What the figure shows:* three arrows"
        return plain(text.split("\n\n")[0].strip()[found.end() :])
    return plain(found[1]) if found else ""


def plain(text):
    """Return Markdown as plain text, for the alt text of an image."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\\([a-zA-Z]+)({?)", lambda found: found[1] + " " * len(found[2]), text)
    text = re.sub(r"(?<!\\)[*`$]|[{}]", "", text)  # \* is a star
    return " ".join(text.replace("\\", "").split())


def repair_html(body):
    """Make a page readable by a screen reader: headers of tables, and the level of headings.

    A screen reader announces a header cell for every cell beneath it. Pandas and Markdown leave the
    corner of a table empty, so it becomes a data cell. A Markdown table cannot do without a head; a
    head without text goes. Sphinx gives the caption of a list of pages no level. MyST-NB gives what
    opens a folded output another name than the visible one, by which a voice control calls it.
    """
    body = body.replace('<summary aria-label="Toggle hidden content">', "<summary>")
    body = EMPTY_HEAD.sub("", EMPTY_HEADER.sub(r"<td\1></td>", body))
    return body.replace(
        'class="caption" role="heading">', 'class="caption" role="heading" aria-level="2">'
    )


def api_fields(docstring):
    """Turn the Google sections of a docstring into the field lists that Sphinx reads.

    Args:
        docstring: Markdown with the sections Args, Attributes, Raises, Returns, Yields, Example.

    Returns:
        Markdown with `:param x: ...`, `:raises ValueError: ...` and so on.
    """
    first, *parts = SECTION.split(docstring)
    found = [first]
    for name, text in zip(parts[::2], parts[1::2]):
        body = re.match(r"(?:[ ]+.*\n?|\s*\n)*", text)[0]
        rest = text[len(body) :]
        block = re.sub(r"^    ", "", body, flags=re.M).strip()
        if name in FIELDS:
            block = _entries(FIELDS[name], block)
        elif name.startswith("Example"):
            block = f"**Example**\n\n```python\n{block}\n```"
        else:
            block = f":{name.lower()}: " + block.replace("\n", "\n    ")
        found.append(f"\n{block}\n\n{rest}")
    return "".join(found)


def _entries(role, block):
    """Turn each `name: text` at the beginning of a line into `:role name: text`."""
    # Sphinx would read the first of two words as a type, so a list of names has no spaces.
    return re.sub(
        r"^(\*{0,2}\w[\w., *]*):(?=\s)",
        lambda found: f":{role} {found[1].replace(' ', '')}:",
        block,
        flags=re.M,
    )
