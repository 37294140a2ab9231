"""The comparator reads answers of many types, names the fewest mistakes and prints one line."""

import ast
import inspect
import math
import re
import textwrap
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import jupytext
import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from mmlcourse.lessons import checks
from mmlcourse.lessons.checks.compare import (
    WrongAnswer,
    call,
    compare,
    exercise,
    read,
    require,
    verdict,
)
from mmlkit.heads import cluster

NAMES = sorted(name for name in dir(checks) if name.startswith("check_"))


def area(pick, width, height):
    """Return the area of a frame of thickness 1 around a picture."""
    outer = pick((width + 2) * (height + 2), {"one side is missing": (width + 1) * (height + 1)})
    return outer - pick(width * height, {"the picture is counted": 0, "it is wrong": width})


CASES = [(3, 2), (5, 4)]
RULE = "outer minus inner area"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda w, h: 2 * w + 2 * h + 4, None),
        (lambda w, h: w + h + 1, f"one side is missing. The right answer is {RULE}."),
        (lambda w, h: (w + 2) * (h + 2), f"the picture is counted. The right answer is {RULE}."),
        (
            lambda w, h: (w + 1) * (h + 1),
            f"one side is missing, and the picture is counted. The right answer is {RULE}.",
        ),
        (
            lambda w, h: 14 if w == 3 else 0,
            f"for (5, 4) it returns 0, expected 22. The right answer is {RULE}.",
        ),
    ],
)
def test_the_fewest_mistakes_that_fit_all_cases_are_named(function, message):
    if message is None:
        return compare(function, area, CASES, RULE)
    with pytest.raises(WrongAnswer) as error:
        compare(function, area, CASES, RULE)
    assert str(error.value) == message


def test_a_difference_in_the_middle_of_a_long_answer_is_shown():
    def middle(n):
        return [one + (one == 7) for one in range(n)]

    with pytest.raises(WrongAnswer) as error:
        compare(middle, lambda pick, n: list(range(n)), [(12,)], "0 to n - 1")
    message = "for (12,) at [7] it returns 8, expected 7. The right answer is 0 to n - 1."
    assert str(error.value) == message


def split(pick, values):
    """Return the sum of the values and their number."""
    return sum(values), pick(len(values), {"the last value is not counted": len(values) - 1})


NAMED = {"total": "the sum", "count": "the number"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda values: (sum(values), len(values)), None),
        (lambda values: SimpleNamespace(total=sum(values), count=len(values)), None),
        (lambda values: sum(values), "expected (total, count), found 6."),
        (
            lambda values: (sum(values), 2),
            "count: the last value is not counted. The right answer is the number.",
        ),
        (
            lambda values: (0, 0),
            "total: for ([1, 2, 3],) it returns 0, expected 6. The right answer is the sum.",
        ),
        (
            lambda values: (values, 3),
            "total: expected one number, found shape [3]. The right answer is the sum.",
        ),
    ],
)
def test_named_outputs_are_compared_one_by_one(function, message):
    if message is None:
        return compare(function, split, [([1, 2, 3],)], NAMED)
    with pytest.raises(WrongAnswer) as error:
        compare(function, split, [([1, 2, 3],)], NAMED)
    assert str(error.value) == message


def test_outputs_can_be_compared_in_another_order():
    with pytest.raises(WrongAnswer, match="^count: for"):
        compare(lambda values: (0, 0), split, [([1, 2, 3],)], NAMED, (), ("count", "total"))


@pytest.mark.parametrize(
    ("answer", "like", "values"),
    [
        (3, 1.0, 3),
        (Fraction(1, 4), 1.0, 0.25),
        (torch.tensor([1.0, 2.0], requires_grad=True), np.zeros(2), [1, 2]),
        (torch.tensor([1.0, 2.0], dtype=torch.bfloat16), np.zeros(2), [1, 2]),
        (pd.Series([1, 2], index=[7, 8]), [0, 0], [1, 2]),
        ({"b": 2, "a": torch.tensor(1)}, {"a": 0, "b": 0}, [1, 2]),
        ((3, 1), {5}, [1, 3]),
        (torch.tensor([3, 1]), {5}, [1, 3]),
        ([], {5}, []),
    ],
)
def test_answers_of_many_types_are_read(answer, like, values):
    assert read(answer, like).tolist() == values


@pytest.mark.parametrize(
    ("answer", "like", "message"),
    [
        ("3", 1.0, "expected one number, found '3'."),
        (True, 1.0, "expected one number, found True."),
        ([True, False], [0, 1], "expected numbers of shape [2], found [True, False]."),
        ([[1], [2, 3]], [0, 1], "expected numbers of shape [2], found [[1], [2, 3]]."),
        ([1, 2, 3], [0, 1], "expected numbers of shape [2], found shape [3]."),
        (3, {5}, "expected a list of whole numbers such as [0, 3], found 3."),
        (
            {"a": 1},
            {"a": 0, "b": 0},
            ("expected a dict with a number for each of a, b, found {'a': 1}."),
        ),
    ],
)
def test_unreadable_answers_are_described(answer, like, message):
    with pytest.raises(WrongAnswer) as error:
        read(answer, like)
    assert str(error.value) == message


def test_special_cases_come_last_and_have_their_own_sentence():
    def inverse(pick, x):
        return 0 if x == 0 else pick(1 / x, {"the sign is wrong": -1 / x})

    with pytest.raises(WrongAnswer) as error:
        compare(lambda x: 1 / x, inverse, [(2,)], "1 / x", [((0,), "It is 0 at 0.")])
    assert str(error.value) == (
        "it stopped with ZeroDivisionError: division by zero. It is 0 at 0."
    )
    compare(lambda x: x and 1 / x, inverse, [(2,)], "1 / x", [((0,), "It is 0 at 0.")])


def test_a_verdict_is_one_line(capsys):
    """Long messages and messages of several lines are shortened to one line."""

    def long_message(_):
        require(False, "first\nsecond " + 200 * "word ")

    assert verdict("name", long_message, None) is False
    out = capsys.readouterr().out
    assert out.startswith("name: not yet: first second word") and out.endswith(" word ...\n")
    assert out.count("\n") == 1 and len(out) <= 510
    assert verdict("name", lambda: None) is True and capsys.readouterr().out == "name: right.\n"


def test_a_check_leaves_the_random_numbers_of_the_reader(capsys):
    class Layer(torch.nn.Linear):
        def __init__(self, config):
            super().__init__(config.hidden_size, config.hidden_size)

    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    for check in (checks.check_self_attention, checks.check_layer, checks.check_order_free):
        assert check(Layer) is False
    assert torch.equal(torch.randn(3), expected)


def test_an_error_inside_a_check_is_raised():
    with pytest.raises(KeyError):
        verdict("name", lambda: {}["missing"])


def test_a_call_gets_copies_of_the_arguments():
    values = [1, 2]
    assert call(lambda given: given.append(3) or given, values) == [1, 2, 3] and values == [1, 2]
    for unfinished in (None, ...):
        with pytest.raises(WrongAnswer, match="^it returns nothing so far.$"):
            call(lambda: unfinished)  # noqa: B023


def test_an_exercise_is_a_check_of_one_argument(capsys):
    check = exercise("frame", CASES, RULE)(area)
    assert list(inspect.signature(check).parameters) == ["function", "explain"]
    assert check.__doc__ == area.__doc__ and check.__name__ == "area"
    assert check(lambda w, h: 2 * (w + h + 2)) and capsys.readouterr().out == "frame: right.\n"


def test_the_rule_is_said_to_whom_asks_for_it(capsys):
    check = exercise("frame", CASES, RULE)(area)
    found = "frame: not yet: one side is missing."
    assert check(lambda w, h: w + h + 1) is check(lambda w, h: w + h + 1, explain=True) is False
    assert capsys.readouterr().out == (
        f"{found} Pass explain=True to the check to read the rule.\n"
        f"{found} The right answer is {RULE}.\n"
    )
    assert not check(lambda w, h: None) and not check(lambda w, h: None, explain=True)
    assert capsys.readouterr().out == (
        "frame: not yet: it returns nothing so far.\n"
        f"frame: not yet: it returns nothing so far. The right answer is {RULE}.\n"
    )


def tables_of(function):
    """Return the dicts that a check passes to `pick`, directly or by a name."""
    nodes = list(ast.walk(function))
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    passed = [one.args[1] for one in calls if getattr(one.func, "id", "") == "pick"]
    names = {one.id for one in passed if isinstance(one, ast.Name)}
    values = [
        (target.id, one.value)
        for one in nodes
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    ]
    tables = passed + [value for name, value in values if name in names]
    return [one for one in tables if isinstance(one, ast.Dict)]


def test_messages_of_one_exercise_differ():
    """The comparator selects a wrong value by its message, so no two tables may share a message."""
    for path in Path(checks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("check_"):
                messages = [ast.unparse(key) for one in tables_of(node) for key in one.keys]
                assert len(messages) == len(set(messages)), (path, node.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_mistake_gets_its_own_message_alone(name):
    """A function with exactly one mistake of the tables gets only the message of that mistake."""
    check = getattr(checks, name)
    inner = inspect.getclosurevars(check).nonlocals
    messages = []
    inner["right"](lambda value, table: messages.extend(table) or value, *inner["arguments"][0][0])
    for message in dict.fromkeys(messages):

        def mistaken(*case, message=message):
            return inner["right"](lambda value, table: table.get(message, value), *case)

        with pytest.raises(WrongAnswer) as error:  # as the check does, without its driver
            compare(mistaken, inner["right"], *inner["arguments"])
        said = str(error.value)
        assert f"{message}." in said and f", and {message}" not in said, said
    assert messages


def solutions():
    """Yield the exercises of the notebooks: (check, names of its solution and of those before)."""
    for path in sorted((Path(__file__).parents[3] / "notebooks" / "src").glob("*.py")):
        sources, cells = [], jupytext.read(path).cells
        for i, cell in enumerate(cells):
            if cell.source.startswith("def attention("):  # notebook 01's solutions call it
                sources.append(definition(cell.source, "attention"))
            if found := re.search(r"checks\.(check_\w+)\((\w+)\)", cell.source):
                check, stub = found.groups()
                after = "\n".join(one.source for one in cells[i + 1 : i + 4])
                solution = re.search(r"Solution.*?```python\n(.*?)```", after, re.S)
                solution = solution[1] if solution else folded_solution(cells[i + 2], stub)
                if not re.search(rf"^(def|class) {stub}\b", solution, flags=re.M):
                    head = re.search(rf"^def {stub}\(.*$", cell.source, flags=re.M)[0]
                    solution = head + "\n" + textwrap.indent(solution, "    ")
                sources.append(definition(solution, stub))
                yield check, stub, "\n".join(sources)


def folded_solution(cell, stub):
    """Return the code of a folded cell, whose function or class has a name of its own."""
    assert "solution" in cell.metadata["tags"]
    own = re.search(r"^(?:def|class) (\w+)", cell.source, flags=re.M)[1]
    return cell.source.replace(own, stub)


def definition(source, name):
    """Return the function or class of this name, without the lines that try it."""
    nodes = ast.parse(source).body
    return next(ast.unparse(one) for one in nodes if getattr(one, "name", "") == name)


@pytest.mark.slow
def test_every_check_has_a_solution_in_a_notebook_or_a_question_of_an_assignment():
    questions = Path(checks.__file__).parents[2] / "grading"
    text = "\n".join(path.read_text(encoding="utf-8") for path in questions.glob("*.py"))
    found = [name for name, *_ in solutions()]
    assert len(found) == len(set(found)) and set(found) <= {*NAMES}
    assert not [name for name in {*NAMES} - {*found} if not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize(("check", "stub", "source"), solutions(), ids=lambda text: text[:25])
def test_the_solution_in_the_notebook_is_right(check, stub, source, capsys):
    names = dict(np=np, torch=torch, pd=pd, F=F, nn=torch.nn, math=math, cluster=cluster)
    names |= dict(lr=0.1, beta1=0.9, beta2=0.999, eps=1e-6, decay=0.01)  # of notebook 02
    classes = {"Attention": "MyAttention", "AddNorm": "MyAddNorm"}  # as notebook 01 calls them
    exec(source, names)
    names |= {name: names[mine] for name, mine in classes.items() if mine in names}
    assert getattr(checks, check)(names[stub]) is True
    assert re.fullmatch(r"[\w -]+: right\.\n", capsys.readouterr().out)


@pytest.mark.parametrize("name", NAMES)
def test_no_check_raises(name, capsys):
    """For any returned value, a check prints one line and returns False."""
    for answer in (
        None,
        ...,
        0,
        True,
        "text",
        [],
        {},
        set(),
        object(),
        np.nan,
        [[1], [2, 3]],
        print,
    ):
        assert getattr(checks, name)(lambda *_, answer=answer: answer) is False
        assert capsys.readouterr().out.count("\n") == 1
