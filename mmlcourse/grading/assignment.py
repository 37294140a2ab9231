"""The checks of an assignment that a student calls in the notebook, on public cases."""

from IPython import get_ipython

from mmlcourse.grading.names import tree_of
from mmlcourse.grading.program import Program
from mmlcourse.grading.questions import Draw, load_questions
from mmlcourse.lessons.checks.compare import WrongAnswer, verdict

__all__ = ["Assignment"]


class Assignment:
    """Check a student's answers on public cases.

    Args:
        name: such as "a1_minbert".
        seed: the public seed of the edition.
        **variants: the variants of the edition.

    Raises:
        ValueError: the assignment is unknown.

    Example::

        check = Assignment("a1_minbert", seed=1, gelu="exact")
        check("attention", attention)        # prints one line
    """

    def __init__(self, name, seed, **variants):
        self.name, self.questions = load_questions(name)
        self.seed, self.variants, self.passed = seed, variants, {}

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
        right = [other for other, passed in self.passed.items() if passed]

        def check():
            try:
                notes = []
                one.compare(one.call(student, notes), cases, self.variants, notes)
                one.refuse(tree_of(student))
            except WrongAnswer as error:
                raise WrongAnswer(one.advise(str(error), right)) from None

        self.passed[name] = verdict(name, check)
        if self.passed[name] and (shell := get_ipython()):  # a right answer that loses its points
            cells = shell.history_manager.input_hist_raw[1:]  # In [1] is cell 1
            cells = [{"cell_type": "code", "source": source} for source in cells]
            for sentence in Program(cells, [one.object]).lost(one.object):
                print(f"Repair this before you hand in: {sentence}")
        return self.passed[name]

    def done(self, *names):
        """Return whether questions are answered, and print those that are not.

        Args:
            *names: names of questions.

        Returns:
            True if the last check of each was right.
        """
        missing = [name for name in names if not self.passed.get(name)]
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
            points = one.points if self.passed.get(one.name) else 0
            total += points
            print(f"{points:>3} of {one.points:<3} {one.name}")
        print(f"{total:>3} of {sum(one.points for one in judged):<3} points for code")
        if written := sum(one.points for one in self.questions.values() if not one.right):
            print(f"    and {written} points for the written parts")
