"""Every question: the solution is right, the stub has nothing, known mistakes are named."""

import ast
import functools
import itertools
import json

import numpy as np
import pytest
from common import NAMES, code, code_questions, judge, namespace, student_object, wrong

from mmlcourse.grading import grader, runner
from mmlcourse.grading.assignment import Assignment
from mmlcourse.grading.grader import replay
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import Draw, Edition, load_questions
from mmlcourse.grading.runner import encode
from mmlcourse.lessons.checks.compare import KnownMistake, WrongAnswer, read

SEEDS = (0, 1, 2, 3)  # together they choose every value of every variant
CODE = [pytest.param(name, one, id=one.name) for name in NAMES for one in code_questions(name)]
CHANGES = [
    pytest.param(name, one, *change, id=f"{one.name}-{number}")
    for name in NAMES
    for one in code_questions(name)
    for number, change in enumerate(wrong(name)[one.name])
]


def test_there_are_questions_and_wrong_answers():
    assert len(NAMES) >= 1 and len(CODE) >= 12 and len(CHANGES) >= 70
    for name in NAMES:
        table = wrong(name)
        assert set(table) == {one.name for one in code_questions(name)}
        assert all(len(changes) >= 4 for changes in table.values())
        questions = code_questions(name)
        chosen = [Edition(seed).variants(questions) for seed in SEEDS]
        for key, values in {key: one for q in questions for key, one in q.variants.items()}.items():
            assert {one[key] for one in chosen} == set(values), f"SEEDS leave out a {key}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name, one", CODE)
def test_the_solution_is_right_in_every_edition(name, one, seed):
    judge(one, name, student_object(one, name, "solution", seed), seed)
    wanted = one.object
    for text in code(name, "solution", seed):
        for node in ast.parse(text).body:
            if getattr(node, "name", "") == wanted:
                one.refuse(node)


@pytest.mark.parametrize("name, one", CODE)
def test_the_stub_has_nothing(name, one):
    """A function that is given with faults is wrong in every edition, and its faults differ."""
    if not one.faulty:
        with pytest.raises(WrongAnswer, match="it returns nothing so far"):
            judge(one, name, student_object(one, name, "student"))
        return
    said = set()
    for seed in SEEDS:
        with pytest.raises(KnownMistake) as caught:
            judge(one, name, student_object(one, name, "student", seed), seed)
        said.add(str(caught.value))
    assert len(said) > 1


def test_a_function_that_is_given_with_faults_earns_no_part_of_its_points(capsys):
    check = Assignment("a1", seed=5, partial=0.5)
    given = student_object(check.questions["evaluate"], "a1_minbert", "student")
    assert not check("evaluate", given)
    assert "predictions: the model is in training mode" in capsys.readouterr().out
    assert check.shares["evaluate"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name, one, old, new, message", CHANGES)
def test_a_known_mistake_is_named(name, one, old, new, message):
    student = student_object(one, name, "solution", 0, (old, new))
    with pytest.raises(WrongAnswer) as caught:
        judge(one, name, student)
    assert message and message in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name, one", CODE)
def test_every_entry_of_a_table_changes_the_answer(name, one):
    """Nothing in a table equals the right answer or another entry, on any edition's cases."""
    for seed in SEEDS if one.variants else SEEDS[:2]:
        edition = Edition(seed)
        variants = edition.variants(load_questions(name)[1].values())
        answer = functools.partial(one.right, **{key: variants[key] for key in one.variants})
        cases, messages = edition.cases(one), []
        answer(lambda value, table: messages.extend(table) or value, *cases[0])  # noqa: B023
        assert len(messages) >= 4
        outputs = {
            message: [
                numbers(answer(lambda value, table: table.get(message, value), *case))  # noqa: B023
                for case in cases
            ]
            for message in ["right", *messages]
        }
        for first, second in itertools.combinations(outputs, 2):
            assert not all(map(close, outputs[first], outputs[second])), (seed, first, second)


def numbers(answer):
    """Return the outputs of a right answer as arrays."""
    parts = answer if isinstance(answer, tuple) else [answer]
    return [read(one, one) for one in parts]


def close(first, second):
    pairs = zip(first, second)
    return all(a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-5, True) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name, one", CODE)
def test_memorised_answers_of_another_edition_are_worth_nothing(name, one):
    """Neither the answers in their order nor a table from arguments to answers helps."""
    here, there = Edition(11), Edition(12)
    variants = here.variants(load_questions(name)[1].values())
    known = {
        key: value
        for key, value in there.variants(load_questions(name)[1].values()).items()
        if key in one.variants
    }
    answers = [one.right(lambda value, _: value, *case, **known) for case in there.cases(one)]
    recorded = {"records": [{"value": encode(one)} for one in answers]}
    with pytest.raises(WrongAnswer):
        one.compare(replay(recorded), here.cases(one), variants)
    seen = [str(encode(list(case))) for case in there.cases(one)]
    public = [str(encode(list(case))) for case in one.cases(Draw(f"{here.public_seed} {one.name}"))]
    assert not {*seen, *public} & {str(encode(list(case))) for case in here.cases(one)}


def test_the_public_check_prints_one_line(capsys):
    check = Assignment("a1", seed=5)
    one = check.questions["layer_norm"]
    assert check("layer_norm", student_object(one, "a1_minbert", "solution"))
    assert capsys.readouterr().out == "3 layer_norm: right.\n"
    assert not check.done("layer_norm", "train")
    assert capsys.readouterr().out == "Skipped: first answer 10 train (train_epoch).\n"
    check.summary()
    assert capsys.readouterr().out.endswith(
        "   3 of 70  points for code, on public cases\n     and 30 points for the written parts\n"
    )
    with pytest.raises(ValueError, match="assignment 'b1' is unknown; expected one of"):
        Assignment("b1", seed=5)


def test_a_split_is_a_function_of_the_seed():
    train, dev = Assignment("a1", seed=5).split(50, dev=20)
    assert sorted(train + dev) == list(range(50)) and len(dev) == 20
    assert (train, dev) == Assignment("a1", seed=5).split(50, dev=20)
    assert dev != Assignment("a1", seed=6).split(50, dev=20)[1]


def test_the_grader_sees_what_the_values_do_not_show():
    """A function with right values that changes an argument, or whose result has no gradient."""
    _, questions = load_questions("a2")
    right = namespace("a2_multiverse", "solution", 0)
    edition = Edition(0)

    def judged(name, student):
        one = questions[name]
        job = {"object": name, "driver": None, "changes": False}
        job["gradients"] = json.loads(json.dumps(one.gradients))
        job["cases"] = [runner.encode(list(case)) for case in edition.cases(one)]
        job["cases"] += [runner.encode(list(case)) for case, _ in one.edges]
        document = json.loads(json.dumps({"records": runner._answers(job, {name: student})}))
        return grader._judge(one, document, edition, questions, Program([], []))[0]

    def changing(ours, baseline, own):
        return right["improvements"](ours, baseline, own) + 0 * ours.fill_(1)[:, 0]

    def lost(weight):
        return right["multiverse_loss"](weight).detach()

    def half(weight):
        return (right["multiverse_loss"](weight) + lost(weight)) / 2

    assert judged("improvements", right["improvements"]) == "right"
    assert judged("multiverse_loss", right["multiverse_loss"]) == "right"
    changed = "not yet: it changes its argument ours; change a copy of it."
    assert judged("improvements", changing) == changed
    assert "the result has no gradient by weight" in judged("multiverse_loss", lost)
    assert "the gradient of the result by weight is not that" in judged("multiverse_loss", half)


def test_an_entry_without_effect_needs_no_gradient():
    """A softmax over the keys is the same without the bias of the keys."""
    one = load_questions("a4")[1]["projected_attention"]
    old = '+ weights[f"{name}.bias"]'
    change = (old, '+ (0 if name == "key" else weights[f"{name}.bias"])')
    judge(one, "a4_pals", student_object(one, "a4_pals", "solution", 0, change))


def test_results_without_gradients_are_not_right():
    """A submission may write the line of its results itself."""
    _, questions = load_questions("a2")
    one, edition = questions["multiverse_loss"], Edition(0)
    cases = edition.cases(one) + [case for case, _ in one.edges]
    solution = namespace("a2_multiverse", "solution", 0)["multiverse_loss"]
    document = {"records": [{"value": encode(solution(*case))} for case in cases]}
    found = grader._judge(one, document, edition, questions, Program([], []))[0]
    assert found == "not yet: its gradients are missing."
