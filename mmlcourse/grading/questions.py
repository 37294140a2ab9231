"""What a question is, and the cases of an edition.

A question is data: its points, the right answer with tables of known mistakes, and a function that
draws cases. The same right answer serves the student's check, on public cases, and the grader, on
hidden cases. An edition of a course is one number, from which sizes, values and variants follow.
"""

import copy
import dataclasses
import functools
import hashlib
import importlib
import inspect
import pkgutil
import random
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from mmlcourse.grading.names import names_in
from mmlcourse.grading.runner import watched
from mmlcourse.lessons.checks.compare import compare, read, require

__all__ = [
    "PLACEHOLDER",
    "Draw",
    "Edition",
    "Question",
    "load_questions",
    "other",
    "question",
    "questions_of",
    "with_points",
]

PLACEHOLDER = "*Write here.*"  # behind **Answer to NAME:** in a student's notebook


class Draw:
    """Draw the values of a case from a seed.

    Args:
        seed: any text.
    """

    def __init__(self, seed):
        digest = hashlib.sha256(str(seed).encode()).digest()
        self.random = np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def size(self, low, high):
        """Draw a whole number.

        Args:
            low: the smallest value.
            high: the largest value.

        Returns:
            The number.
        """
        return int(self.random.integers(low, high + 1))

    def number(self, low, high):
        """Draw a number with three decimals.

        Args:
            low: the smallest value.
            high: the largest value.

        Returns:
            The number.
        """
        return round(float(self.random.uniform(low, high)), 3)

    def normal(self, *shape, scale=1.0):
        """Draw a tensor of normal numbers with three decimals.

        Args:
            *shape: the sizes.
            scale: the standard deviation.

        Returns:
            A float32 tensor, [*shape].
        """
        return torch.tensor(self.random.normal(0, scale, shape).round(3), dtype=torch.float32)

    def maps(self, shapes, scale=1.0):
        """Draw the parameters of linear maps.

        Args:
            shapes: {name: (size of the input, size of the output)}.
            scale: the standard deviation of the weights.

        Returns:
            {name.weight: [out, in], name.bias: [out]}.
        """
        found = {}
        for name, (source, target) in shapes.items():
            found[f"{name}.weight"] = scale * self.normal(target, source)
            found[f"{name}.bias"] = self.normal(target)
        return found

    def integers(self, high, *shape):
        """Draw a tensor of whole numbers from 0 to high - 1.

        Args:
            high: the number of values.
            *shape: the sizes.

        Returns:
            An int64 tensor, [*shape].
        """
        return torch.tensor(self.random.integers(0, high, shape))


@dataclasses.dataclass(frozen=True)
class Question:
    """Describe one question.

    Attributes:
        name: its name, also the first words of the verdict.
        points: for a right answer; a wrong one has none.
        difficulty: 1, 2 or 3.
        hours: the expected time.
        right: `right(pick, *case, **variants)`, see `compare`; None for a question that a teacher
            reads.
        rule: the right answer in words, see `compare`. A function of the variants may give it.
        cases: `cases(draw)` returns a list of tuples of arguments.
        object: the name of the student's function or class; by default that of the question.
        driver: `driver(student, *case)` returns the value that is compared. It runs in the
            student's process. Its source is sent there, and finds torch alone.
        edges: pairs (arguments, sentence), see `compare`.
        order: see `compare`.
        variants: {name: values}; an edition asks for one value of each, the default edition for
            the first. A name means the same in all questions of an assignment.
        gradients: {number of an output: numbers of the student's arguments}, by which autograd has
            to find the output's gradients, the same as those of the right answer. The right answer
            has the same arguments and outputs in these places.
        changes: whether the student's function may change its arguments.
        avoid: names that would do the exercise; an answer that uses one is worth nothing.
        uses: names of questions whose functions an answer may call; a message about a wrong answer
            mentions those that are not right.
        seconds: the limit of CPU time for all cases.
        faulty: whether the notebook gives the function with faults to correct. A named mistake
            then has no part of the points, because the given function has it.
        number: its place in the assignment, from 1.
    """

    name: str
    points: int
    difficulty: int
    hours: float
    right: Callable | None = None
    rule: str | dict | Callable = ""
    cases: Callable | None = None
    object: str = ""
    driver: Callable | None = None
    edges: tuple = ()
    order: tuple | None = None
    variants: dict = dataclasses.field(default_factory=dict)
    gradients: dict = dataclasses.field(default_factory=dict)
    changes: bool = False
    avoid: tuple = ()
    uses: tuple = ()
    seconds: float = 10
    faulty: bool = False
    number: int = 0

    @property
    def label(self):
        """Return how a notebook names the question, such as "2 look (attend)"."""
        function = f" ({self.object})" if self.object not in ("", self.name) else ""
        return f"{self.number} {self.name}{function}"

    def compare(self, function, cases, variants=None, notes=(), **more):
        """Compare a function, or recorded results, with the right answer.

        Args:
            function: takes a case and returns the value.
            cases: a list of tuples of arguments.
            variants: {name: value}, by default those of the default edition.
            notes: what `watched` noted in each case: {"faults": texts, "gradients": vectors}.
            **more: keywords of `compare`.

        Raises:
            WrongAnswer: the results differ from the right ones.
        """
        first = {name: values[0] for name, values in self.variants.items()}
        wanted = {name: (variants or {}).get(name, value) for name, value in first.items()}
        right = functools.partial(self.right, **wanted)
        rule = self.rule(**wanted) if callable(self.rule) else self.rule
        compare(function, right, cases, rule, self.edges, self.order, **more)
        faults = [str(fault) for note in notes for fault in note.get("faults", ())]
        require(not faults, "".join(faults[:1]))
        if self.gradients:
            self._compare_gradients(right, cases, notes, rule)

    def _compare_gradients(self, right, cases, notes, rule):
        """Refuse gradients that are not those of the right answer: a part of it was detached."""
        places = [
            (output, place) for output, numbers in self.gradients.items() for place in numbers
        ]
        arguments, outputs = [*inspect.signature(self.right).parameters][1:], [*rule]
        for case, note in zip(cases, notes):
            targets = []
            answer = functools.partial(right, lambda value, table: value)
            watched(answer, self.gradients, True, targets)(*copy.deepcopy(case))
            given, targets = note.get("gradients", ()), targets[0]["gradients"]
            require(len(given) == len(targets), "its gradients are missing.")
            for (output, place), found, target in zip(places, given, targets):
                name = outputs[output] if isinstance(rule, dict) else "the result"
                close = 1e-3 * max(1, float(target.abs().max()))
                require(
                    np.allclose(read(found, target), target, 1e-3, close),
                    f"the gradient of {name} by {arguments[place]} is not that of the right answer;"
                    " do not use detach, item, numpy or no_grad.",
                )

    def refuse(self, tree):
        """Refuse an answer that uses a name of `avoid`.

        Args:
            tree: the syntax tree of the student's function or class.

        Raises:
            WrongAnswer: it uses such a name.
        """
        named = names_in(tree) & {*self.avoid}
        ends = {one for one in named for other in named if other.endswith(f".{one}")}
        found = ", ".join(sorted(named - ends))
        require(not found, f"it uses {found}, which does the exercise; write this part yourself.")

    def advise(self, message, right):
        """Add to a message that a used function is wrong itself.

        Args:
            message: the message about a wrong answer.
            right: the names of the questions with a right answer.

        Returns:
            The message.
        """
        wrong = ", ".join(use for use in self.uses if use not in right)
        if not wrong or "it returns nothing so far" in message:
            return message
        first = f"If it calls your answer to {wrong}: first run that check until it is right."
        return f"{first} Else: {message}"

    def call(self, student, notes):
        """Return the function of a case that calls the student's function or class.

        Args:
            student: the function or class.
            notes: a list, to which `watched` appends.

        Returns:
            A function.
        """
        student = watched(student, self.gradients, self.changes, notes)
        return functools.partial(self.driver, student) if self.driver else student

    def driver_source(self):
        """Return the source of the driver, or None."""
        return self.driver and textwrap.dedent(inspect.getsource(self.driver))


def question(name, **fields):
    """Turn a right answer into a question.

    Args:
        name: the name of the question.
        **fields: the other fields of `Question`.

    Returns:
        A decorator for the right answer.

    Example::

        @question("scale", points=2, difficulty=1, hours=0.2, rule="x / sqrt(d)",
                  cases=lambda draw: [(draw.normal(3), 4)])
        def scale(pick, x, d):
            return x / pick(d**0.5, {"x is divided by d": d})
    """
    return lambda right: Question(name, right=right, **{"object": name, **fields})


def questions_of(names):
    """Return the questions of an assignment in their order, with those that a teacher reads.

    Args:
        names: the names of a module, {name: value}.

    Returns:
        A tuple of Question.
    """
    found = [one for one in names.values() if isinstance(one, Question)] + [*READ]
    return tuple(dataclasses.replace(one, number=n) for n, one in enumerate(found, start=1))


def other(values, value):
    """Return the other one of the two values of a variant.

    Args:
        values: both.
        value: that of the edition.

    Returns:
        The other value.
    """
    return next(one for one in values if one != value)


READ = (
    Question("written", points=10, difficulty=2, hours=1),
    Question("extension", points=20, difficulty=3, hours=4),
)


def load_questions(assignment):
    """Return the questions of an assignment.

    Args:
        assignment: a module of mmlcourse.grading such as "a1_minbert", or its start, "a1".

    Returns:
        (full name, {name: Question}).

    Raises:
        ValueError: there is no such assignment.
    """
    package = importlib.import_module("mmlcourse.grading")
    known = [one.name for one in pkgutil.iter_modules(package.__path__) if one.name[1:2].isdigit()]
    found = [name for name in known if name == assignment or name.startswith(f"{assignment}_")]
    if len(found) != 1:
        raise ValueError(f"assignment {assignment!r} is unknown; expected one of {known}.")
    module = importlib.import_module(f"mmlcourse.grading.{found[0]}")
    return found[0], {one.name: one for one in module.QUESTIONS}


def with_points(questions, points):
    """Return questions with other points.

    Args:
        questions: {name: Question}.
        points: {name: points} of some of them.

    Returns:
        {name: Question}.
    """
    return {
        name: dataclasses.replace(one, points=points.get(name, one.points))
        for name, one in questions.items()
    }


class Edition(NamedTuple):
    """Hold what an edition of the course follows from; edition.json has the same fields.

    Attributes:
        seed: the secret number. 0 is the default edition, which is public.
        points: {full name of an assignment: {question: points}}, where they differ from usual;
            0: left out of the course.
        partial: the share of the points for a mistake that the grader names.
        version: the version of mmlkit on which the edition was made.
    """

    seed: int
    points: dict = {}
    partial: float = 0
    version: str = ""

    def questions(self, assignment):
        """Return the questions of an assignment with the points of this edition.

        Args:
            assignment: see `load_questions`.

        Returns:
            (full name, {name: Question}).
        """
        name, questions = load_questions(assignment)
        return name, with_points(questions, self.points.get(name, {}))

    @property
    def public_seed(self):
        """Return the seed of the public cases. It gives a secret seed of few digits away."""
        return int(hashlib.sha256(f"public {self.seed}".encode()).hexdigest()[:8], 16)

    def variants(self, questions):
        """Choose a value for every variant.

        Args:
            questions: a list of Question.

        Returns:
            {name: value}.
        """
        known = {}
        for one in questions:
            known |= one.variants
        if self.seed == 0:
            return {name: values[0] for name, values in known.items()}
        choose = lambda name: random.Random(f"{self.seed} {name}").choice
        return {name: choose(name)(values) for name, values in sorted(known.items())}

    def cases(self, one):
        """Draw the hidden cases of a question.

        Args:
            one: a Question.

        Returns:
            A list of tuples of arguments.
        """
        return one.cases(Draw(f"hidden {self.seed} {one.name}"))
