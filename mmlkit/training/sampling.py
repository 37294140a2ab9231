"""The order of tasks in multi-task training.

Annealed sampling is from Stickland and Murray (2019, section 4.1); "merged" is Algorithm 1 of
MT-DNN.
"""

import difflib

import numpy as np

from mmlkit.messages import check_number

__all__ = ["TaskSampler"]

EXPONENTS = {
    "proportional": lambda e, epochs: 1.0,
    "sqrt": lambda e, epochs: 0.5,
    "uniform": lambda e, epochs: 0.0,
    "annealed": lambda e, epochs: 1.0 if epochs == 1 else 1 - 0.8 * (e - 1) / (epochs - 1),
}
FIXED = ("round_robin", "sequential", "merged")


class TaskSampler:
    """Chooses the task of every step, as a pure function of (seed, epoch).

    Args:
        kind: "proportional" (p ~ N), "sqrt" (N^0.5), "uniform", "annealed" (N^alpha, with alpha
            from 1 in epoch 1 down to 0.2 in the last), "round_robin" (in turn), "sequential" (one
            task after another) or "merged" (every batch once, shuffled).
        sizes: {task: N}, whole numbers, best those of batches. Where steps_per_epoch is given, only
            their ratios matter (except for "merged" and "sequential").
        epochs: E of the annealing; a single epoch has alpha 1.
        steps_per_epoch: draws per epoch; the sum of sizes by default, so with numbers of rows one
            step for each row.
        seed: of the draws.

    Raises:
        ValueError: the kind is unknown, or a number is below one.

    Example::

        TaskSampler("sqrt", sizes={"rte": 100, "qnli": 400}).probabilities(1)    # rte 1/3, qnli 2/3
    """

    def __init__(self, kind, *, sizes, epochs=1, steps_per_epoch=None, seed=0):
        known = [*EXPONENTS, *FIXED]
        if kind not in known:
            near = difflib.get_close_matches(str(kind), known, n=1)
            raise ValueError(
                f"{kind!r} is not a sampler.{f' Did you mean {near[0]!r}?' if near else ''} Known: "
                f"{', '.join(known)}."
            )
        if not isinstance(sizes, dict) or not sizes:
            raise ValueError(
                f"sizes is {sizes!r:.80}, expected a dict of at least one task, such as "
                "{'sst': 100}."
            )
        for task, size in sizes.items():
            check_number(f"sizes[{task!r}]", size, 1, whole=True)
        check_number("epochs", epochs, 1, whole=True)
        check_number("steps_per_epoch", steps_per_epoch, 1, whole=True, optional=True)
        check_number("seed", seed, 0, whole=True)
        self.kind, self.epochs, self.seed = kind, epochs, seed
        self.sizes = {
            task: int(size) for task, size in sizes.items()
        }  # plain integers, for checkpoints
        self.steps_per_epoch = int(steps_per_epoch or sum(self.sizes.values()))

    def probabilities(self, epoch):
        """Compute each task's probability in an epoch, or its share of the steps of a fixed order.

        Args:
            epoch: counted from 1.

        Returns:
            {task: probability}.

        Raises:
            ValueError: the epoch is not one of 1 to epochs.
        """
        if epoch not in range(1, self.epochs + 1):
            raise ValueError(
                f"epoch {epoch} is not one of 1 to {self.epochs}; epochs count from 1."
            )
        exponent = (
            0.0
            if self.kind == "round_robin"
            else EXPONENTS.get(self.kind, EXPONENTS["proportional"])(epoch, self.epochs)
        )
        largest = max(self.sizes.values())  # large sizes then cannot overflow
        weights = {task: (size / largest) ** exponent for task, size in self.sizes.items()}
        return {task: weight / sum(weights.values()) for task, weight in weights.items()}

    def order(self, epoch):
        """List the task of every step of an epoch.

        Args:
            epoch: counted from 1.

        Returns:
            Task names, one per step.
        """
        shares, steps, tasks = self.probabilities(epoch), self.steps_per_epoch, list(self.sizes)
        if self.kind == "round_robin":
            return [tasks[((epoch - 1) * steps + i) % len(tasks)] for i in range(steps)]
        generator = np.random.default_rng([self.seed, epoch])
        if self.kind in EXPONENTS:
            return [
                tasks[i] for i in generator.choice(len(tasks), size=steps, p=list(shares.values()))
            ]
        ends = np.round(np.cumsum(list(shares.values())) * steps).astype(int)
        blocks = [
            task for task, start, end in zip(tasks, [0, *ends], ends) for _ in range(end - start)
        ]
        return (
            blocks
            if self.kind == "sequential"
            else [blocks[i] for i in generator.permutation(steps)]
        )
