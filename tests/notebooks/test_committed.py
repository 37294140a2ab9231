"""The committed notebooks are up to date, complete and within the limits of CONTRIBUTING.md."""

import ast
import hashlib
import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_every_source_has_its_notebook():
    masters = sorted(path.stem for path in (ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.py"))
    assert [path.stem for path in NOTEBOOKS] == masters
    assert len(masters) >= 3
    assert [name[:2] for name in masters] == [f"{i:02d}" for i in range(len(masters))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_belong_to_the_current_source(path):
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]["mmlkit"]
    master = (ROOT / "notebooks" / metadata["master"]).read_text(encoding="utf-8")
    assert metadata["sha256"] == hashlib.sha256(master.encode()).hexdigest(), (
        f"stale: python notebooks/build.py {path.stem[:2]}"
    )
    assert metadata["profile"] == "fast"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_table_leaves_out_its_middle(path):
    """pandas writes "..." where a table has more rows than its option allows."""
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    tables = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert not [table[:200] for table in tables if re.search(r"<t[hd]>\.\.\.</t[hd]>", table)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_ran_once_in_order_without_errors(path):
    cells = [cell for cell in code_cells(path) if "".join(cell["source"]).strip()]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [
        output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_limits_of_length_and_size(path):
    text = path.read_text(encoding="utf-8")
    code = ["".join(cell["source"]) for cell in code_cells(path)]
    lengths = [sum(bool(line.strip()) for line in cell.split("\n")) for cell in code]
    assert not [cell for cell, length in zip(code, lengths) if length > 15]
    assert statistics.median(lengths) <= 8
    assert not [line for cell in code for line in cell.split("\n") if len(line) > 100]
    assert len(text) <= 400_000
    assert "widgets" not in json.loads(text)["metadata"] and "widget-view" not in text
    assert not re.search(r"(/work/|/root/|/home/|/tmp/)", text), "the path of a machine"


def sentences(text):
    """Return the sentences of a markdown text, without code, formulas, tables and addresses."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<[^>]+>", " ", text, flags=re.S)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "x", text)
    lines = ["" if line.lstrip().startswith(("|", "#")) else line for line in text.split("\n")]
    text = re.sub(r"^\s*(?:[-*●]|\d+\.)\s", "\n", "\n".join(lines), flags=re.M)
    blocks = re.split(r"\n\s*\n", text)
    return [one for block in blocks for one in re.split(r"(?<=[.!?:;])[*\"”)]*\s+", block)]


def test_sentences_are_counted():
    text = "One `x = 1` two. *Three* $a. b$ four:\n\n- five\n- six\n| a | b |\n\n[Seven](a.b). 8"
    found = [len(one.split()) for one in sentences(text) if one.strip()]
    assert found == [3, 3, 1, 1, 1, 1]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_sentence_has_more_than_30_words(path):
    found = [one for cell in markdown_cells(path) for one in sentences(cell)]
    assert not [one for one in found if len(one.split()) > 30]


LONG_CODE = {"01"}  # it writes the whole encoder


def length(path):
    """Return the words of prose and the lines of code of a notebook, exercises included."""
    text = "\n\n".join(markdown_cells(path))
    code = ["".join(cell["source"]) for cell in code_cells(path)]
    code += re.findall(r"```python\n(.*?)```", text, re.S)
    text = re.sub(r"```.*?```|\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)]*\)|<[^>]+>", " ", text, flags=re.S)
    lines = [line for one in code for line in one.split("\n") if line.strip()]
    lines = [line for line in lines if not line.startswith("# @title")]  # of the build
    return len([one for one in text.split() if re.search(r"\w", one)]), len(lines)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_at_most_2800_words_and_330_lines_of_code(path):
    words, lines = length(path)
    assert words <= 2800 and (lines <= 330 or path.stem[:2] in LONG_CODE), (words, lines)


def stray_stars(text):
    """Return the lines of a markdown text that show a star which should be emphasis."""
    import mistune  # of nbconvert

    text = re.sub(r"```.*?```|\$\$.*?\$\$|\$[^$\n]*\$|\\\*", "x", text, flags=re.S)
    shown = re.sub(r"<code>.*?</code>|<[^>]+>", "", mistune.html(text), flags=re.S)
    return [line for line in shown.split("\n") if "*" in line]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_star_of_emphasis_is_shown(path):
    """A star between a letter and a comma opens nothing, and is printed."""
    assert stray_stars("*a* b*, c*") and not stray_stars("*a `b*` c* STS-B\\*, $x*$")
    assert not [line for cell in markdown_cells(path) for line in stray_stars(cell)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_prediction_is_answered(path):
    """Before the next question: a folded text, or a cell whose source and output are folded."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    asked = [i for i, text in enumerate(texts) if "Predict before you run" in text]
    assert not [i for i, text in enumerate(texts) if "**Predict" in text and i not in asked]
    for i, end in zip(asked, [*asked[1:], len(cells)]):
        assert texts[i].count("Predict before you run") == 1
        answers = [c for c in cells[i:end] if "answer" in c["metadata"].get("tags", [])]
        told = "<summary>Answer</summary>" in "".join(texts[i:end])
        assert told or answers, texts[i]
        for cell in answers:
            assert cell["metadata"]["jupyter"]["source_hidden"] and cell["outputs"]
            assert cell["metadata"]["cellView"] == "form" and cell["source"][0][:8] == "# @title"
            for output in cell["outputs"]:
                assert "".join(output["data"]["text/html"]).startswith("<details>")


NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


def numbers(text):
    """Return the numbers in a text, as floats without sign."""
    return {float(one.replace(",", "")) for one in NUMBER.findall(text)}


def printed(cell):
    """Return the text of a cell's outputs, without the code of pictures."""
    parts = [one for output in cell.get("outputs", []) for one in texts_of(output)]
    return re.sub(r"base64,[\w+/=]+", "", "\n".join(parts))


def texts_of(output):
    """Return the printed text of an output and its forms as text."""
    data = output.get("data", {})
    found = [output.get("text", ""), *(data.get(f"text/{kind}", "") for kind in ("plain", "html"))]
    return ["".join(one) for one in found]


def given_away(question, between, answer):
    """Return the numbers of an answer that visible cells before it state.

    Args:
        question: the text of its cell.
        between: the visible code cells between the two.
        answer: its text.

    Returns:
        The numbers above 1 that an assertion or a title holds, and those of at least three digits
        that a cell prints.
    """
    new = numbers(answer) - numbers(question)
    seen = set()
    for cell in between:
        source = re.sub(r"^[%!].*", "", "".join(cell["source"]), flags=re.M)
        nodes = list(ast.walk(ast.parse(source)))
        said = [ast.unparse(node) for node in nodes if isinstance(node, ast.Assert)]
        said += [
            ast.unparse(node.value)
            for node in nodes
            if isinstance(node, ast.keyword) and node.arg == "title"
        ]
        seen |= {one for one in numbers(" ".join(said)) if one > 1}
        seen |= {one for one in numbers(printed(cell)) if len(f"{one:g}".strip("0.")) > 2}
    return new & seen


def test_an_answer_that_is_given_away_is_found():
    cell = dict(source=["assert mixed == [21.0, 3]\n", "plot(title='all 36')"], outputs=[])
    loud = dict(source=["1 + 1"], outputs=[dict(text=["0.314 and 12"])])
    assert given_away("Which of 36?", [cell, loud], "21, 36, 12 and 0.314") == {21, 0.314}
    assert given_away("Which?", [loud], "12 and 21") == set()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_visible_cell_gives_an_answer_away(path):
    question, between = None, []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if "Predict before you run" in source:
            question, between = source, []
        hidden = cell["metadata"].get("jupyter", {}).get("source_hidden")
        if question and ("folded(" in source or "<summary>Answer</summary>" in source):
            answer = printed(cell) + source.partition("<summary>Answer</summary>")[2]
            asked = question.partition("<summary>Answer</summary>")[0]
            assert not given_away(asked, between, answer), source
            question = None
        elif question and cell["cell_type"] == "code" and not hidden:
            between.append(cell)


EXACT = re.compile(  # parts of Markdown that are no prose
    r"```.*?```|\$\$.*?\$\$|`[^`]*`|\$[^$\n]*\$|^\|[^\n]*$|\]\([^)]*\)"
    r"|^## References.*|sections? [\d.]+",
    re.M | re.S,
)
# Numbers of papers, of texts or of arithmetic in the sentence itself, which no cell computes.
STATED = {
    "00": {"0.39", "36.2", "50.6", "63.5"},  # of notebook 02's papers; means in the figure
    "03": {"0.643", "0.003", "0.08"},  # of data/README.md; in the figure; a run of ours
    "04": {"1,024", "4,369", "85,000", "52.7"},
    "05": {"2,000", "2,934", "5.6", "7.63", "15.5", "16.0"},  # the last two: in the figure
    "06": {"0.36", "1,024", "1.05", "2,490", "2.5", "10.4", "69.305", "69.315"}
    | {"1.06", "69.51", "76.57", "0.1", "5.1", "4.2"},  # of a slider; of exercises 2 and 3
    # of the paper and of the toy's sliders; of experiments/together-or-alone.toml and its control;
    # numbers of figures; of exercises 3 and 4
    "07": {"2,500", "950,000", "550,000", "0.003", "0.023", "0.635", "0.700"}
    | {"8.4", "3.8", "0.6", "0.7", "1.4", "4.8", "2.3", "0.2", "0.1", "2.6", "1.7", "0.588"}
    | {"2,184", "2,205"},
    "08": {"0.000045", "0.18", "0.61", "0.64", "0.9975", "0.0322", "0.0093"}  # of figures
    | {"87,599", "7.8", "2.3"},  # of SQuAD; of an exercise
    # of the papers, of an exercise, and of experiments/real-*.toml, see test_recorded.py
    "09": {"83.7", "1,300", "3,400", "1,101", "5.7", "6.4"},
    "10": {"3.91", "0.548", "0.561", "0.565", "0.576", "0.751", "0.764"}  # of the toy; an exercise
    | {"83.8"},  # of experiments/real-sampling.toml
    "11": {"0.664", "0.651", "0.555", "0.013", "0.512", "0.520"}  # of the report
    | {"23.8", "28.4", "56.7", "0.656", "1.2"},  # millions that a cell counts; of an exercise
    # of 1,500 trials, see `paired_bootstrap`; of a slider and an exercise; in the figure
    "12": {"6.5", "1.7", "1.75"}
    # of section 5, see test_recorded.py
    | {"0.1", "1.6", "1.9", "2.4", "2.9", "3.6", "3.8", "5.3", "5.6", "8.9"},
}


def unknown_numbers(cells):
    """Return the numbers with decimals or thousands in the prose that no cell states.

    A number is known if code, an output, a table or a formula holds one that rounds to it, also as
    a share where the text has percent or points.
    """
    prose, known = "", set()
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            known |= numbers(source) | numbers(printed(cell))
            continue
        known |= numbers(" ".join(EXACT.findall(source)))
        prose += EXACT.sub("", source) + "\n"
    found = []
    for one in NUMBER.findall(prose):
        digits = len(one.partition(".")[2]) if "e" not in one else 0
        near = (abs(float(one.replace(",", "")) - k * share) for k in known for share in (1, 100))
        if re.search(r"[.,]", one) and min(near, default=1) > 0.5 * 10**-digits + 1e-9:
            found.append(one)
    return found


def test_a_number_that_no_cell_states_is_found():
    code = dict(cell_type="code", source=["a = 1234"], outputs=[dict(text=["0.0761"])])
    text = dict(cell_type="markdown", source=["7.6 points, 0.08 and 1,234 of $2.5$; 0.07 and 2.5"])
    assert unknown_numbers([code, text]) == ["0.07"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_numbers_of_the_prose_are_those_of_the_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = set(unknown_numbers(cells)) - STATED.get(path.stem[:2], set())
    assert not found, found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_stands_below_its_cell(path):
    """Without plt.show() a figure can appear below a later cell."""
    for cell in code_cells(path):
        source = "".join(cell["source"])
        top = at_top_level(source)
        shown = len(re.findall(r"\b(?:plt\.show|sliders|text_boxes)\(", top))
        images = sum("image/png" in output.get("data", {}) for output in cell["outputs"])
        assert images <= shown or (shown and "for " in top), source


def at_top_level(source):
    """Return a cell without the bodies of its functions and classes."""
    nodes = ast.parse(re.sub(r"^[%!].*", "", source, flags=re.M)).body
    definitions = (ast.FunctionDef, ast.ClassDef)
    return "\n".join(ast.unparse(node) for node in nodes if not isinstance(node, definitions))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_parameters_are_plain_literals(path):
    tagged = [cell for cell in code_cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse("".join(tagged[0]["source"])).body
    }
    assert (
        values["profile"] == "fast" and {"seed", "output_dir"} <= set(values) and len(values) <= 6
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_and_images_exist(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in target]
    assert targets and all((path.parent / target).is_file() for target in targets), targets


def markdown_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_hints_and_solutions_are_rendered_as_markdown(path):
    """The line of </summary> ends there, and the next line is blank.

    Otherwise the text is shown literally, with its backticks.
    """
    lines = "\n".join(markdown_cells(path)).split("\n")
    folds = [i for i, line in enumerate(lines) if "</summary>" in line]
    assert len(folds) >= 4
    assert not [
        lines[i] for i in folds if not lines[i].endswith("</summary>") or lines[i + 1].strip()
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_has_a_heading(path):
    """Every exercise is in the table of contents and separate from the solution before it."""
    cells = markdown_cells(path)
    text = "\n".join(cells)
    numbers = [int(number) for number in re.findall(r"^### Exercise (\d+): \w", text, flags=re.M)]
    assert 3 <= len(numbers) <= 4 and numbers == list(range(1, len(numbers) + 1))
    assert text.count("<summary>Solution</summary>") == len(numbers)
    assert len(re.findall(r"^● [●○] [●○] · \d+ minutes", text, flags=re.M)) == len(numbers)
    later = [cell for cell in cells if re.search(r"^### Exercise ([2-9]|1\d)", cell, flags=re.M)]
    assert len(later) == len(numbers) - 1
    assert all(cell.startswith("### Exercise") for cell in later)


IMPORTED = sorted([*NOTEBOOKS, *(ROOT / "experiments").glob("*.ipynb")])


def imported_packages(path):
    """Return the packages that a notebook imports, in the order of the lines."""
    code = ["".join(cell["source"]) for cell in code_cells(path)]
    lines = [line for cell in code for line in cell.split("\n") if not line.startswith("%")]
    nodes = [
        node
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    found = []
    for node in sorted(nodes, key=lambda node: node.lineno):
        modules = (
            [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module]
        )
        found += [module.split(".")[0] for module in modules]
    return found


@pytest.mark.parametrize("path", IMPORTED, ids=lambda path: path.stem)
def test_mmlkit_is_imported_before_libraries_with_threads(path):
    """mmlkit sets the wait policy of threads, which torch reads once, at import."""
    heavy = {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "transformers"}
    order = imported_packages(path)
    before = order[: order.index("mmlkit")]
    assert not heavy & set(before), f"imported before mmlkit: {before}"


def test_the_number_of_notebooks_with_checked_imports():
    assert len(IMPORTED) == len(NOTEBOOKS) + 3
