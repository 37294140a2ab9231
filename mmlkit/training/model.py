"""One encoder with a head per task; a single task is the plain case.

The batch carries its task, so there are no task numbers and no "current task".
"""

import contextlib
from typing import Protocol

import torch
from torch import nn

from mmlkit.data.tasks import get_task, label_key
from mmlkit.heads.linear import LinearHead, Loss, PairHead
from mmlkit.runtime import seeded

__all__ = ["Head", "MultitaskModel"]


class Head(Protocol):
    """The interface of a head: any nn.Module with these members, without a base class.

    Three further members are optional. `gives_probabilities` says that the head's output are
    probabilities, and `needs_pairs` that it cannot read single texts. `dropped_heads_unmoved` is a
    context in which `train_step` calls the optimizer.

    Attributes:
        needs_tokens: False if [CLS] alone is read; the last layer is then computed for [CLS] only.
        num_labels: C.
        pairs: "packed" if a pair is one input, or "separate" if its sentences are encoded
            separately.
    """

    needs_tokens: bool
    num_labels: int
    pairs: str

    def inputs(self, out, batch) -> tuple:
        """Select the head's inputs, without parameters or dropout of its own.

        `fit` keeps the inputs of a frozen encoder for later epochs.

        Args:
            out: the encoder's output.
            batch: the Batch that was encoded.
        """

    def forward(self, *inputs) -> torch.Tensor:
        """Compute logits [B, C].

        Args:
            *inputs: what `inputs` returned.
        """

    def loss(self, inputs, batch) -> Loss:
        """Compute the part of the loss that depends on data.

        Args:
            inputs: what `inputs` returned.
            batch: the Batch.
        """

    def penalty(self) -> torch.Tensor | None:
        """Return the part of the loss that depends on the parameters only, or None."""

    def to_config(self) -> dict:
        """Return the keywords that build the head again, as plain values."""


class MultitaskModel(nn.Module):
    """One shared encoder and a head for each task.

    Args:
        encoder: a BertModel.
        heads: {task name: head}. They are moved to the encoder's device, and to its dtype, but not
            to half precision.
        tokenizer: the encoder's own by default.
        max_length: tokens to which `fit`, `predict` and `evaluate` cut a row. None means the
            encoder's limit, until `fit` sets it to the value it trained with.

    Example::

        encoder, tokenizer = load_pretrained("minilm")
        model = MultitaskModel(encoder, {"sst": LinearHead(384, 5)})
    """

    def __init__(self, encoder, heads, tokenizer=None, max_length=None):
        super().__init__()
        self.encoder = encoder
        one = next(encoder.parameters())  # fp32 whatever the default dtype, or double with it
        dtype = torch.promote_types(one.dtype, torch.float32)
        self.heads = nn.ModuleDict(heads).to(one.device, dtype)
        self.tokenizer = tokenizer or getattr(encoder, "tokenizer", None)
        # int() also converts numpy numbers, which JSON does not know
        self.max_length = None if max_length is None else int(max_length)
        self._tasks = {}
        self.frozen = False

    @property
    def device(self):
        """The device of the parameters."""
        return next(self.parameters()).device

    def cut(self, max_length=None):
        """Return the number of tokens to which a row is cut.

        Args:
            max_length: None for the model's own, which is at most the encoder's limit.

        Returns:
            A whole number.
        """
        limit = self.encoder.config.max_position_embeddings
        return int(min(max_length or self.max_length or limit, limit))

    def freeze_encoder(self, frozen=True):
        """Train the heads alone, or everything again. A frozen encoder has no dropout.

        PALs freeze with the encoder, unless they were added with stay_trainable=True.

        Args:
            frozen: False sets requires_grad of the whole encoder.

        Returns:
            The model itself.
        """
        self.frozen = frozen
        for name, parameter in self.encoder.named_parameters():
            if not (frozen and "pals." in name and self._pals_stay_trainable()):
                parameter.requires_grad_(not frozen)
        return self.train(self.training)

    @contextlib.contextmanager
    def encoder_frozen(self, frozen=True):
        """Freeze the encoder inside the context; afterwards requires_grad is as it was.

        Args:
            frozen: False changes nothing.

        Yields:
            Nothing.
        """
        if not frozen:
            yield
            return
        before = self.frozen, [parameter.requires_grad for parameter in self.encoder.parameters()]
        self.freeze_encoder()
        try:
            yield
        finally:
            self.frozen, required = before
            for parameter, value in zip(self.encoder.parameters(), required):
                parameter.requires_grad_(value)
            self.train(self.training)

    def train(self, mode=True):
        """Set the training mode as nn.Module does, but leave a frozen encoder in eval mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
            if self._pals_stay_trainable():
                self.encoder.pals.train(mode)
        return self

    def _pals_stay_trainable(self):
        return getattr(getattr(self.encoder, "pals", None), "stay_trainable", False)

    def head(self, task):
        """Return the head of a task.

        Args:
            task: a Task.

        Returns:
            The head.

        Raises:
            ValueError: there is none; it needs pairs, and the task has single texts; or it was made
                or trained for other labels, or for the same labels in another order, so that each
                row would get a wrong one.
        """
        if task.name not in self.heads:
            raise ValueError(
                f"This model has no head for task {task.name!r}; it has {list(self.heads)}."
            )
        head = self.heads[task.name]
        if not task.is_pair and (head.pairs == "separate" or getattr(head, "needs_pairs", False)):
            raise ValueError(
                f"task {task.name!r} has single texts, but its {type(head).__name__} needs pairs; "
                "give it a LinearHead."
            )
        known = self.tasks.get(task.name)
        moved = known is not None and _have_moved(known.labels, task.labels)
        if head.num_labels != task.num_labels or moved:
            advice = "Make a new head and train it."
            if known is not None:
                advice = (
                    f"The head was trained with {str(known.labels):.200}, in this order: use "
                    f"model.tasks[{task.name!r}], or make a new head and train it."
                )
            raise ValueError(
                f"Task {task.name!r} has the labels {str(task.labels):.200} (none: one score). Its "
                f"head has {head.num_labels} outputs. {advice}"
            )
        return head

    @property
    def tasks(self):
        """The tasks of `set_task`, {name: Task}; a head that was replaced since has none."""
        return {
            name: task
            for name, (head, task) in self._tasks.items()
            if name in self.heads and self.heads[name] is head
        }

    def set_task(self, task):
        """Note the task of a head, whose columns and labels `save_model` keeps with the model.

        `fit` calls it. A training loop of your own may call it, so that a name is enough for
        `predict` later.

        Args:
            task: a Task.

        Raises:
            ValueError: there is no head for it (from `head`).
        """
        self._tasks[task.name] = (self.head(task), task)

    def known_task(self, task):
        """Return a task by its name: one of `tasks`, or mmlkit's own.

        Args:
            task: a name, or a Task, which comes back as it is.

        Returns:
            The Task.

        Raises:
            ValueError: neither has the name (from `get_task`).
        """
        return (isinstance(task, str) and self.tasks.get(task)) or get_task(task)

    def collapse(self):
        """Return the model with collapsed multiverse heads and the same scores (MML v2, Eq. 5).

        A collapsed head is a LinearHead, or a PairHead where pairs are separate.
        """
        plain = {}
        for task, head in self.heads.items():
            if hasattr(head, "collapse"):
                config = {"dropout": head.dropout.p, "pooling": head.pooling}
                make = LinearHead if head.pairs == "packed" else PairHead
                with seeded(0):  # the first values draw random numbers, and are replaced
                    single = make(head.hidden_size, head.num_labels, **config)
                single.dense = head.collapse()
                head = single
            plain[task] = head
        model = MultitaskModel(self.encoder, plain, self.tokenizer, self.max_length)
        model.frozen = self.frozen
        for task in self.tasks.values():
            model.set_task(task)
        return model.train(self.training)

    @property
    def encoder_is_constant(self):
        """Whether a row has the same output in every epoch: frozen, and nothing of it trains."""
        return self.frozen and not any(one.requires_grad for one in self.encoder.parameters())

    def inputs(self, batch):
        """Encode a batch and select the head's inputs, unless they are known already.

        Args:
            batch: a Batch.

        Returns:
            A tuple, as the head's `inputs` returns it.
        """
        if batch.features is None or not self.encoder_is_constant:
            return self._encode(batch)
        return batch.features.unbind(1)

    def _encode(self, batch):
        head = self.head(batch.task)
        options = {"first_token_only": not head.needs_tokens}
        if getattr(self.encoder, "pals", None) is not None:
            options["task"] = batch.task.name
        inputs = ()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.encoder_is_constant):
            for part in (batch, batch.second):  # two, if the sentences are encoded separately
                if part is None:
                    continue
                out = self.encoder(
                    part.input_ids, part.attention_mask, part.token_type_ids, **options
                )
                inputs += head.inputs(out, part)
        return inputs

    def forward(self, batch):
        """Compute the scores of a batch.

        Args:
            batch: a Batch.

        Returns:
            Logits [B, C] (probabilities for a head that `gives_probabilities`).
        """
        return self.head(batch.task)(*self.inputs(batch))

    def loss(self, batch):
        """Compute the part of the loss that depends on data.

        Args:
            batch: a Batch with labels.

        Returns:
            A Loss.
        """
        return self.head(batch.task).loss(self.inputs(batch), batch)


def _have_moved(trained, labels):
    """Return whether a label stands at another place than when the head was trained."""
    if trained == labels:
        return False
    places = {label_key(name): i for i, name in enumerate(labels)}
    return any(places.get(label_key(name), i) != i for i, name in enumerate(trained))
