"""What the grader runs of a notebook: cells are read as Jupyter reads them, and little is lost."""

import json
import platform
import sys
from types import SimpleNamespace

import pytest
from common import code, code_questions, judge

from mmlcourse.grading import assignment, grader, runner
from mmlcourse.grading.assignment import Assignment
from mmlcourse.grading.grader import grade_notebook
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import Edition
from mmlcourse.grading.sandbox import find_sandbox

A1 = code("a1_minbert", "solution")
NORM = next(text for text in A1 if "def layer_norm(" in text)


def program(*cells, answers=("f",)):
    """A Program of code cells; a pair is (type, text)."""
    pairs = [("code", one) if isinstance(one, str) else one for one in cells]
    return Program([{"cell_type": kind, "source": text} for kind, text in pairs], answers)


def names_of(one):
    """Execute what the grader runs."""
    return runner._load(one.job(), 5, [])


@pytest.fixture(autouse=True)
def no_submission(monkeypatch):
    monkeypatch.setitem(sys.modules, "submission", None)


# A right submission with lines that only IPython knows; FIRST is the cell before, NORM an answer.
VARIANTS = {
    "a shell line under if": "IN_COLAB = False\nif IN_COLAB:\n    !pip install -q einops\n" + NORM,
    "a shell line that gives a value": "files = !ls\n" + NORM,
    "a magic that gives a value": "t = %timeit -o -n1 -r1 pass\n" + NORM,
    "help behind a name": "torch.nn.functional.gelu?\n" + NORM + "\nlayer_norm??\n",
    "help before a name": "?torch\n" + NORM,
    "line magics": "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n" + NORM,
    "a cell that is timed": "%%time\n" + NORM,
    "a cell whose output is caught": "%%capture out\n%%time\n" + NORM,
    "a magic in a function": NORM + "\ndef look(x):\n    %timeit layer_norm(x)\n    !ls {x}\n",
    "shell lines that go on": "!pip install -q \\\n    einops\n%env A=1\n%cd -q ..\n" + NORM,
    "prompts and indentation": "\n".join(f"    {line}" for line in NORM.splitlines()),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_right_answer_is_found_beside_the_syntax_of_ipython(variant):
    one = program(*(VARIANTS[variant] if text == NORM else text for text in A1))
    assert one.faults == []
    names = names_of(one)
    for question in code_questions("a1_minbert")[:3]:
        judge(question, "a1_minbert", names[question.object])


@pytest.mark.slow
def test_a_submission_with_all_of_them_gets_full_points(tmp_path):
    cells = [*A1, *(f"{text}\n" for text in VARIANTS.values())]
    cells = [{"cell_type": "code", "metadata": {}, "source": one} for one in cells]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    result = grade_notebook(tmp_path / "a.ipynb", "a1", Edition(0), find_sandbox())
    assert result["notes"] == []
    assert all(one["points"] in (one["of"], None) for one in result["questions"])


def test_only_the_bad_statement_of_a_cell_is_lost():
    text = "def g(x):\n    return x\ndef bad(x)\n    return x\n\ny = (1,\nz = 2\nfor i in z:\n"
    one = program(text + "@staticmethod\ndef f(x):\n    return g(x) + z\n", "broken(((")
    assert names_of(one)["f"](1) == 3
    assert one.faults == [
        "cell 1 has a syntax error in line 3 (expected ':')",
        "cell 2 has a syntax error in line 1 ('(' was never closed)",
    ]


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (["if True:\n    S = 3", "def f(): return S"], 3),
        (["if True:\n    S = 3\n    def f(): return S"], 3),
        (["try:\n    import no_such\nexcept ImportError:\n    S = 4", "f = lambda: S"], 4),
        (["T = {}\nfor i in range(3):\n    T[i] = i", "def f(): return sum(T.values())"], 3),
        (["T = [1]\nT.append(2)", "def f(): return len(T)"], 2),
        (["import math\nwith open('/dev/null') as file:\n    S = 5", "def f(): return S"], 5),
        (["class A: pass", "A.size = 6\nsize = 7", "def f(): return A.size"], 6),
        (["S = 'google.colab' in str(get_ipython())", "def f(): return S"], False),
        (["def f(): return 0", "if True:\n    f = lambda: 8"], 8),
    ],
)
def test_a_statement_runs_that_an_answer_needs(cells, value):
    assert names_of(program(*cells))["f"]() == value


def test_what_no_answer_needs_does_not_run():
    """Training and drawing would take the time of the answers."""
    cells = ["import torch\nfor i in range(3):\n    x = 1\nprint(x)\ntorch.manual_seed(0)", "f(1)"]
    one = program(*cells, "def f(x): return torch.ones(x)")
    assert [source for _, source, _ in one.job()] == [
        "import torch",
        "def f(x):\n    return torch.ones(x)",
    ]


LOST = {
    "S is not defined for the grader; cell 2 has it and is Markdown.": ("markdown", "S = 3"),
    "S is not defined for the grader; cell 2 has it and is no code cell.": ("raw", "S = 3"),
    "S is not defined for the grader; cell 2 has it and begins with %%bash.": "%%bash\nS=3",
    "S is not defined for the grader; cell 2 has it and is skipped, as its first line says.": (
        "# the grader skips this cell\nS = 3"
    ),
    "S is not defined for the grader; cell 2 has it and has a syntax error in line 1 ('(' was "
    "never closed).": "S = (3",
    "S is not defined for the grader.": "exec('S' + '= 3')",
    "The grader has no package einops.": "from einops import rearrange as S",
}


@pytest.mark.parametrize("sentence", LOST)
def test_a_lost_name_is_named_with_its_cell(sentence):
    assert program("def f(x):\n    return [x + S for x in x]", LOST[sentence]).lost("f") == [
        sentence
    ]


def test_a_cell_that_only_calls_an_answer_is_not_blamed():
    one = program("# the grader skips this cell\nf(1)", "def f(x)\n    return x", "y = 1")
    left = "has a syntax error in line 1 (expected ':')"
    assert one.lost("f") == [f"f is not defined for the grader; cell 2 has it and {left}."]


def test_nothing_is_said_where_nothing_is_lost():
    cells = [
        "from math import *\nimport torch.nn.functional as F",
        "try:\n    import einops\nexcept",
    ]
    one = program(
        *cells, "class f(dict):\n    def __init__(self, x):\n        self.x = pi + print(x)"
    )
    assert one.lost("f") == []


def test_the_page_names_what_was_left_out(tmp_path):
    class Undefined:
        def run(self, job, *more):
            records = [{"error": ["NameError", "layer_norm is not defined"]}]
            return json.dumps({"question": "layer_norm", "records": records}), False

    cells = [{"cell_type": "markdown", "source": "def layer_norm(x): 1"}]
    about = {"language_info": {"version": "3.99.1"}}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "metadata": about}))
    result = grade_notebook(tmp_path / "a.ipynb", "a1", Edition(0), Undefined())
    (said,) = [one["message"] for one in result["questions"] if one["name"] == "layer_norm"]
    assert said.endswith("layer_norm is not defined for the grader; cell 1 has it and is Markdown.")
    assert "the notebook was run with Python 3.99.1, and the grader runs 3." in result["notes"][0]
    about["language_info"]["version"] = platform.python_version()
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "metadata": about}))
    notes = grade_notebook(tmp_path / "a.ipynb", "a1", Edition(0), Undefined())["notes"]
    assert not any("Python" in note for note in notes)


def test_the_students_check_warns_before_the_notebook_is_handed_in(monkeypatch, capsys):
    """In the notebook the name is there, because a cell defined it that the grader skips."""
    sources = ["", "# the grader skips this cell\neps = 1e-5", "import torch", NORM + "\n    eps"]
    history = SimpleNamespace(input_hist_raw=sources)
    monkeypatch.setattr(assignment, "get_ipython", lambda: SimpleNamespace(history_manager=history))
    names = names_of(program(*A1))
    check = Assignment("a1_minbert", seed=1)
    assert check("layer_norm", names["layer_norm"])
    assert capsys.readouterr().out == "3 layer_norm: right.\n"
    sources[3] = "def layer_norm(x, gain, bias, eps):\n    return scale(x)"
    assert check("layer_norm", names["layer_norm"])
    assert capsys.readouterr().out.splitlines() == [
        "3 layer_norm: right.",
        "Repair this before you hand in: scale is not defined for the grader.",
    ]


def test_a_large_notebook_of_magics_is_read_in_time(monkeypatch):
    """IPython's transformer reads the whole cell once more for every line that it changes."""
    calls = []
    monkeypatch.setattr(
        grader.Program.__init__.__globals__["TransformerManager"],
        "transform_cell",
        lambda self, text: calls.append(text) or text,
    )
    program("%pwd\n" * 50_000)
    assert calls == []
    program("%pwd\n" * 50)
    assert len(calls) == 1
