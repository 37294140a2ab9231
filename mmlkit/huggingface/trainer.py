"""Pruning in transformers' Trainer."""

import contextlib

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from mmlkit.heads.pruning import reset_optimizer_state

__all__ = ["PruningCallback"]


class PruningCallback(TrainerCallback, ExportableState):
    """A HeadPruner in the Trainer: it observes every update and prunes when due.

    Its state is in the checkpoint's trainer_state.json, so it is found wherever the Trainer resumes
    from. Leave the Trainer's restore_callback_states_from_checkpoint off, as it is by default: it
    would make a callback without a pruner.

    Args:
        pruner: HeadPruner(model.head, ...).
    """

    def __init__(self, pruner):
        self.pruner, self.seen, self.step = pruner, [], contextlib.ExitStack()

    def state(self):
        """Return the part of trainer_state.json that belongs to the pruner."""
        state = {} if self.pruner is None else self.pruner.state_dict()
        return {
            "args": {},
            "attributes": {
                key: value.tolist() if torch.is_tensor(value) else value
                for key, value in state.items()
            },
        }

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Load the pruner's state if the Trainer resumes.

        Args:
            args: see transformers.TrainerCallback, also for the other methods.
            state: the Trainer's state.
            control: unused.
            model: the model.
            **kwargs: unused.

        Raises:
            ValueError: training runs on several devices, each of which would see other losses and
                keep other heads; the Trainer smooths labels, and so computes the loss itself; the
                pruner's head is not the model's; or the checkpoint has no state of the pruner.
        """
        if args.world_size > 1 or args.n_gpu > 1:
            raise ValueError(
                "pruning follows the losses of one device, but this training runs on "
                f"{max(args.world_size, args.n_gpu)}; set CUDA_VISIBLE_DEVICES to one of them."
            )
        if args.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor is {args.label_smoothing_factor}, with which the Trainer "
                "computes the loss itself, and the model no loss of each head. Leave it at 0."
            )
        if self.pruner is not None and all(one is not self.pruner.head for one in model.modules()):
            raise ValueError(
                "the pruner's head is not part of the model that is trained, so it would be pruned "
                "in place of that model's head. Make the pruner with HeadPruner(model.head, ...)."
            )
        self.model, self.seen = model, []
        model.per_head = None  # of an earlier training
        if state.global_step:
            saved = state.stateful_callbacks.get("PruningCallback")
            if not isinstance(saved, dict) or "sums" not in saved["attributes"]:
                raise ValueError(
                    f"the checkpoint of step {state.global_step} has no state of the pruner in its "
                    "trainer_state.json: it was written without PruningCallback, or by mmlkit 0.1 "
                    "or older. Pruning would start again with heads that are trained already. "
                    "Train from the start, or leave the callback out."
                )
            saved = saved["attributes"]
            self.pruner.load_state_dict(
                {**saved, "sums": torch.tensor(saved["sums"], dtype=torch.float64)}
            )

    def on_substep_end(self, args, state, control, **kwargs):
        """Keep the losses of one micro-batch of gradient accumulation."""
        self.seen.append(self.model.per_head)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        """Save the dropped heads, which weight decay and momentum would move."""
        self.step.enter_context(self.pruner.head.dropped_heads_unmoved())

    def on_optimizer_step(self, args, state, control, **kwargs):
        """Restore the dropped heads."""
        self.step.close()

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        """Observe one update, the mean over its micro-batches, and prune when due.

        Raises:
            ValueError: the model got no labels, and has computed no losses.
        """
        self.seen.append(self.model.per_head)
        if any(one is None for one in self.seen):
            raise ValueError(
                "the model has no loss of each head, because the Trainer kept the labels from it. "
                "Leave out compute_loss_func."
            )
        self.pruner.observe(torch.stack(self.seen).mean(0))
        self.seen = []
        event = self.pruner.maybe_prune(state.global_step)
        if event is not None and event.dropped and optimizer is not None:
            reset_optimizer_state(
                optimizer, (self.pruner.head.weight, self.pruner.head.bias), event.dropped
            )
