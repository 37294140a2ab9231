"""The checks of an assignment that a student calls in the notebook, on public cases."""

from IPython import get_ipython

import mmlkit
from mmlcourse.grading.names import tree_of
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import Draw, load_questions, with_points
from mmlcourse.lessons.checks.compare import KnownMistake, WrongAnswer, verdict

__all__ = ["Assignment"]


class Assignment:
    """Check a student's answers on public cases.

    Args:
        name: such as "a1_minbert".
        seed: the public seed of the edition.
        points: {question: points} of the edition, where they differ from usual.
        partial: the share of the points for a mistake that the check names.
        version: the version of mmlkit for which the notebook was made.
        **variants: the variants of the edition.

    Raises:
        ValueError: the assignment is unknown.

    Example::

        check = Assignment("a1_minbert", seed=1, gelu="exact")
        check("attention", attention)        # prints one line
    """

    def __init__(self, name, seed, points=None, partial=0, version="", **variants):
        self.name, questions = load_questions(name)
        self.questions = with_points(questions, points or {})
        self.seed, self.variants, self.partial, self.shares = seed, variants, partial, {}
        if version not in ("", mmlkit.__version__):
            print(
                f"Your course uses mmlkit {version}, and here is {mmlkit.__version__}: install "
                "it as the README of your course says, or a check may differ from the grader."
            )

    def __call__(self, name, student):
        """Compare a student's function or class with the right answer and print one line.

        Args:
            name: the name of the question.
            student: the function or class.

        Returns:
            True if the answer is right.
        """
        one = self.questions[name]
        cases = one.cases(Draw(f"{self.seed} {name}"))
        right = [other for other, share in self.shares.items() if share == 1]
        self.shares[name] = 1

        def check():
            try:
                notes = []
                one.compare(one.call(student, notes), cases, self.variants, notes)
                one.refuse(tree_of(student))
            except WrongAnswer as error:
                named = isinstance(error, KnownMistake) and not one.faulty
                self.shares[name] = self.partial if named else 0
                raise WrongAnswer(one.advise(str(error), right)) from None

        passed = verdict(one.label, check)
        if passed and (shell := get_ipython()):  # a right answer that loses its points
            cells = shell.history_manager.input_hist_raw[1:]  # In [1] is cell 1
            cells = [{"cell_type": "code", "source": source} for source in cells]
            for sentence in Program(cells, [one.object]).lost(one.object):
                print(f"Repair this before you hand in: {sentence}")
        return passed

    def done(self, *names):
        """Return whether questions are answered, and print those that are not.

        Args:
            *names: names of questions.

        Returns:
            True if the last check of each was right.
        """
        missing = [self.questions[name].label for name in names if self.shares.get(name) != 1]
        if missing:
            print(f"Skipped: first answer {', '.join(missing)}.")
        return not missing

    def split(self, count, dev):
        """Divide row numbers into train and dev, as this edition does.

        Args:
            count: the number of rows.
            dev: the number of rows in dev.

        Returns:
            Two lists of row numbers.
        """
        order = Draw(f"{self.seed} split").random.permutation(count).tolist()
        return order[dev:], order[:dev]

    def summary(self):
        """Print the points of the questions that the public checks can judge."""
        judged, total = [one for one in self.questions.values() if one.right], 0
        for one in judged:
            points = round(one.points * self.shares.get(one.name, 0), 1)
            total += points
            print(f"{points:>4g} of {one.points:<3} {one.label}")
        whole = sum(one.points for one in judged)
        print(f"{total:>4g} of {whole:<3} points for code, on public cases")
        if written := sum(one.points for one in self.questions.values() if not one.right):
            print(f"     and {written} points for the written parts")
