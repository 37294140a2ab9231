"""The settings of Sphinx, which `python docs/build_site.py` runs on the files that it collects."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ["MMLKIT_SITE"])  # build_site.py sets it
sys.path.insert(0, str(HERE))
from pages import ADDRESS, RELEASE, REPOSITORY, repair_html  # noqa: E402
from sphinxcontrib import katex  # noqa: E402
from stamp import PLACEHOLDER  # noqa: E402

project, author = "mmlkit", "The mmlkit authors"
release = RELEASE
smartquotes = False  # "cls" is a value
html_title = f"mmlkit {release}"
extensions = ["myst_nb", "sphinxcontrib.katex", "autodoc2"]

# The notebooks are shown as they were committed.
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Show the {type}", "Hide the {type}"
myst_enable_extensions = ["amsmath", "attrs_block", "dollarmath", "fieldlist", "html_image"]
myst_heading_anchors = 4

# Node renders the formulas at build time. build_site.py copies their style sheet and fonts.
katex_prerender = True
katex_css_path = "katex/katex.min.css"
katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 120  # seconds, for a busy machine

# The reference comes from the library's source text, so torch is not needed. pages.py lists names.
autodoc2_packages = [
    {"path": os.path.relpath(HERE.parent / "mmlkit", OUT / "source"), "auto_mode": False}
]
autodoc2_render_plugin = "myst"
autodoc2_class_docstring = "merge"
autodoc2_docstring_parser_regexes = [(r".*", "docstrings")]
autodoc2_hidden_objects = ["private", "dunder", "inherited"]
# The site links to no other site's index, and the reference has public names only.
nitpick_ignore_regex = [(r"py:.*", r".*")]

html_theme = "furo"
if ADDRESS != PLACEHOLDER:
    html_theme_options = {"source_view_link": f"{REPOSITORY}/blob/main/{{filename}}"}
html_favicon = "static/icon.svg"
html_static_path = ["static", str(OUT / "static")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = html_show_sourcelink = False
html_show_copyright = False


def finish_page(app, pagename, templatename, context, doctree):
    """Repair the HTML, and link only pages that are a file to the code host."""
    if "body" in context:
        context["body"] = repair_html(context["body"])
    if pagename == "index" or pagename.startswith("api/"):
        context["page_source_suffix"] = ""


def setup(app):
    """Connect the function above."""
    app.connect("html-page-context", finish_page)
