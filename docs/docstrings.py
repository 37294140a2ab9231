"""The parser of docstrings for autodoc2: Markdown with Google sections."""

from myst_parser.parsers.sphinx_ import MystParser
from pages import api_fields


class Parser(MystParser):
    """Reads a docstring whose sections have become field lists."""

    def parse(self, inputstring, document):
        """Parse a docstring into the document."""
        super().parse(api_fields(inputstring), document)
