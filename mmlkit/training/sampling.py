"""The order of tasks in multi-task training.

Annealed sampling is from Stickland and Murray (2019, section 4.1); "merged" is Algorithm 1 of
MT-DNN.
"""

import numpy as np

__all__ = ["TaskSampler"]

EXPONENTS = {
    "proportional": lambda e, epochs: 1.0,
    "sqrt": lambda e, epochs: 0.5,
    "uniform": lambda e, epochs: 0.0,
    "annealed": lambda e, epochs: 1.0 if epochs == 1 else 1 - 0.8 * (e - 1) / (epochs - 1),
}
# The orders without draws of tasks, and the exponent of each task's share of the steps.
FIXED = {"round_robin": 0.0, "sequential": 1.0, "merged": 1.0}


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
        ValueError: the kind is unknown.

    Example::

        TaskSampler("sqrt", sizes={"rte": 100, "qnli": 400}).probabilities(1)    # rte 1/3, qnli 2/3
    """

    def __init__(self, kind, *, sizes, epochs=1, steps_per_epoch=None, seed=0):
        if kind not in (*EXPONENTS, *FIXED):
            raise ValueError(f"sampler {kind!r} is not one of {[*EXPONENTS, *FIXED]}.")
        self.kind, self.epochs, self.seed = kind, epochs, seed
        self.sizes = {task: int(size) for task, size in sizes.items()}  # not of numpy: checkpoints
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
        if not 1 <= epoch <= self.epochs:
            raise ValueError(
                f"epoch {epoch} is not one of 1 to {self.epochs}; epochs count from 1."
            )
        fixed = self.kind in FIXED
        exponent = FIXED[self.kind] if fixed else EXPONENTS[self.kind](epoch, self.epochs)
        largest = max(self.sizes.values())
        weights = {task: (size / largest) ** exponent for task, size in self.sizes.items()}
        return {task: weight / sum(weights.values()) for task, weight in weights.items()}

    def order(self, epoch):
        """List the task of every step of an epoch.

        Args:
            epoch: counted from 1.

        Returns:
            Task names, one per step.
        """
        tasks, shares = list(self.sizes), list(self.probabilities(epoch).values())
        steps = self.steps_per_epoch
        if self.kind == "round_robin":
            return [tasks[((epoch - 1) * steps + i) % len(tasks)] for i in range(steps)]
        generator = np.random.default_rng([self.seed, epoch])
        if self.kind in EXPONENTS:
            return [tasks[i] for i in generator.choice(len(tasks), size=steps, p=shares)]
        ends = np.round(np.cumsum(shares) * steps).astype(int)
        blocks = np.repeat(tasks, np.diff(ends, prepend=0)).tolist()
        if self.kind == "sequential":
            return blocks
        return [blocks[i] for i in generator.permutation(steps)]
