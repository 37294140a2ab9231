"""The comparator behind every exercise: a safe call, tables of known mistakes, a one-line verdict.

An exercise is written as its right answer. Where students go wrong, the right value is picked
from a table that maps the name of a mistake to the wrong value. The comparator evaluates the
answer with up to three mistakes at once, and reports the smallest set of mistakes that fits.
"""

import copy
import functools
import itertools
import textwrap

import numpy as np

__all__ = [
    "KnownMistake",
    "WrongAnswer",
    "call",
    "compare",
    "exercise",
    "plain",
    "read",
    "require",
    "verdict",
]


NOTHING = "it returns nothing so far."


class WrongAnswer(Exception):
    """The message about a wrong answer."""


class KnownMistake(WrongAnswer):
    """The message about an answer whose values follow from mistakes of a table."""


def plain(value, table):
    """Return the right value; this is `pick` without a mistake.

    Args:
        value: the right value.
        table: the mistakes, which are not made.

    Returns:
        The same value.
    """
    return value


def require(condition, message):
    """Raise WrongAnswer unless a condition holds.

    Args:
        condition: any value with a truth value.
        message: the text after "not yet:".

    Raises:
        WrongAnswer: the condition does not hold.
    """
    if not condition:
        raise WrongAnswer(message)


def verdict(name, check, *arguments):
    """Run a check and print its verdict in one line.

    Args:
        name: the first words of the line.
        check: a function that raises WrongAnswer for a wrong answer.
        *arguments: its arguments.

    Returns:
        True if the answer is right.
    """
    found = "right."
    try:
        check(*arguments)
    except WrongAnswer as error:
        found = textwrap.shorten(f"not yet: {error}", 500, placeholder=" ...")
    print(f"{name}: {found}")
    return found == "right."


def exercise(name, *arguments, driver=None):
    """Turn a right answer into the check of an exercise.

    Args:
        name: the first words of the verdict.
        *arguments: the arguments of `compare` from `cases` on.
        driver: `driver(student, *case)` computes the answer with the student's object, such as a
            class. By default the student's object is a function of the case.

    Returns:
        A decorator for the right answer, `right` of `compare`. The decorated function takes the
        student's function, prints a verdict and returns True or False. A verdict says the right
        answer in words only with `explain=True`, because a reader may want the hint first. The
        docstring describes the arguments and the result of the student's function. The attribute
        `right` is the right answer, for questions of assignments that draw other cases.
    """

    def decorate(right):
        @functools.wraps(right)
        def check(function, *, explain=False):
            answer = functools.partial(driver, function) if driver else function

            def comparison():
                try:
                    compare(answer, right, *arguments, explain=explain)
                except WrongAnswer as error:
                    if explain and NOTHING in str(error):  # no rule yet: no value was compared
                        error.args = (f"{error} The right answer is {_in_words(arguments[1])}.",)
                    raise

            return verdict(name, comparison)

        del check.__wrapped__  # The signature is that of the check.
        check.right = right
        return check

    return decorate


def _in_words(rule):
    """Return a rule, or those of several outputs, in one text."""
    named = rule.items() if isinstance(rule, dict) else [("", rule)]
    return "; ".join(f"{name}: {words}".removeprefix(": ") for name, words in named)


def call(function, *arguments):
    """Call a student's function on copies of the arguments.

    Args:
        function: the student's function.
        *arguments: its arguments.

    Returns:
        The answer, neither None nor Ellipsis.

    Raises:
        WrongAnswer: the function raised an error or returned nothing.
    """
    try:
        answer = function(*copy.deepcopy(arguments))
    except Exception as error:  # A draft may raise anything; the notebook has to go on.
        text, kind = str(error).rstrip("."), type(error).__name__
        # A driver says with an assertion that the answer has another form.
        stopped = "" if kind == "AssertionError" and text else f"it stopped with {kind}: "
        raise WrongAnswer(f"{stopped}{text}.") from None
    require(answer is not None and answer is not ..., NOTHING)
    return answer


def read(answer, like):
    """Read an answer as numbers.

    Args:
        answer: any object.
        like: a right answer: a number, list, array, tensor [...], dict of numbers or set of
            whole numbers. The answer to a set may be any collection, in any order.

    Returns:
        A float64 array.

    Raises:
        WrongAnswer: the answer cannot be read as numbers of that kind and shape.
    """
    shape = list(np.shape(like))
    expected = f"numbers of shape {shape}" if shape else "one number"
    if isinstance(like, set):
        expected = "a list of whole numbers such as [0, 3]"
    elif isinstance(like, dict):
        expected = f"a dict with a number for each of {', '.join(like)}"
    try:
        values = answer.tolist() if hasattr(answer, "tolist") else answer
        if isinstance(like, set):
            values = sorted(values)
        elif isinstance(like, dict):
            values = [float(answer[key]) for key in like]
        values = np.asarray(values)
        require(values.dtype.kind in "iufO", "")
        values = values.astype(float)
    except Exception:  # The answer may be any object.
        raise WrongAnswer(f"expected {expected}, found {answer!r}.") from None
    fits = isinstance(like, (set, dict)) or list(values.shape) == shape
    require(fits, f"expected {expected}, found shape {list(values.shape)}.")
    return values


def compare(function, right, cases, rule, edges=(), order=None, show=True, explain=True):
    """Compare a student's function with the right answer and name the mistakes.

    Args:
        function: the student's function.
        right: `right(pick, *case)` computes the right answer. Its argument is the function
            `pick(value, mistakes)`, with `mistakes` a dict from a message to the wrong value.
        cases: tuples of arguments.
        rule: the right answer in words, after "The right answer is". For a tuple of answers it
            is a dict from the name of each answer to its words.
        edges: pairs (arguments, sentence) of special cases, compared after `cases`.
        order: the names in the order of comparison, if it is not that of `rule`.
        show: whether a message may show the right values.
        explain: True for a message with the rule, False for one that says how to ask for it.

    Raises:
        WrongAnswer: the function differs from the right answer; a KnownMistake, where mistakes of
            the tables explain it.
    """
    rules, tables = rule if isinstance(rule, dict) else {"": rule}, {}
    answers = [_named(call(function, *case), rules) for case in cases]

    def collect(value, table):
        tables[tuple(table)] = None  # a table that is used twice counts once
        return value

    right(collect, *cases[0])

    @functools.cache
    def outputs(mistakes, number):
        def pick(value, table):
            return next((table[one] for one in mistakes if one in table), value)

        return _named(right(pick, *cases[number]), rules)

    for name in order or rules:
        try:
            targets = [outputs((), number)[name] for number in range(len(cases))]
            found = [read(answer[name], target) for answer, target in zip(answers, targets)]
            _compare_output(found, targets, lambda *key, name=name: outputs(*key)[name], tables)
            for number, (case, one, target) in enumerate(zip(cases, found, targets), start=1):
                if not _same(one, target):
                    hidden = f"it differs from the right values in hidden case {number}."
                    raise WrongAnswer(_difference(case, one, target) if show else hidden)
        except WrongAnswer as error:
            ask = " Pass explain=True to the check to read the rule."
            sentence = rules[name] and (f" The right answer is {rules[name]}." if explain else ask)
            error.args = (f"{name}: {error}{sentence}".removeprefix(": "),)
            raise
    for case, sentence in edges:
        try:
            compare(function, lambda _, *case: right(plain, *case), [case], "", show=show)
        except WrongAnswer as error:
            raise WrongAnswer(f"{error} {sentence}") from None


def _compare_output(found, targets, output, tables):
    """Name the fewest mistakes, three at most, that lead to the values of all cases.

    Only mistakes that change this output when they are made alone are combined.
    """
    fits = lambda values, mistakes: all(
        _same(one, output(mistakes, number)) for number, one in enumerate(values)
    )
    if fits(found, ()):
        return
    right = [read(target, target) for target in targets]
    tables = [[one for one in table if not fits(right, (one,))] for table in tables]
    for count in (1, 2, 3):
        for some in itertools.combinations(tables[::-1], count):  # the last is next to the output
            for mistakes in itertools.product(*some[::-1]):
                if fits(found, mistakes):
                    raise KnownMistake(", and ".join(mistakes) + ".")


def _named(answer, rules):
    """Return the outputs by name; they may be a tuple or attributes of one object."""
    if len(rules) == 1:
        answer = [answer]
    elif all(hasattr(answer, name) for name in rules):
        answer = [getattr(answer, name) for name in rules]
    fits = isinstance(answer, (tuple, list)) and len(answer) == len(rules)
    require(fits, f"expected ({', '.join(rules)}), found {answer!r}.")
    return dict(zip(rules, answer))


def _same(found, target):
    target = read(target, target)
    return found.shape == target.shape and bool(_close(found, target).all())


def _close(found, target):
    return np.isclose(found, target, 1e-5, 1e-5, equal_nan=True)


def _difference(case, found, target):
    """Describe the first difference, with the arguments where they are short."""
    text, target = str(case), read(target, target)
    bulky = "tensor(" in text or "array(" in text or len(text) > 250
    given = "" if bulky else f"for {text} "
    if found.shape == target.shape and found.ndim:
        place = tuple(np.argwhere(~_close(found, target))[0])
        given += f"at {[*map(int, place)]} "
        found, target = found[place], target[place]
    texts = [", ".join(f"{number:.6g}" for number in one.ravel()) for one in (found, target)]
    texts = [f"[{text}]" if one.ndim else text for one, text in zip((found, target), texts)]
    return f"{given}it returns {texts[0]}, expected {texts[1]}."
