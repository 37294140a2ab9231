"""One encoder with a head per task; a single task is the plain case.

The batch carries its task, so there are no task numbers and no "current task".
"""

import contextlib
from typing import Protocol

import torch
from torch import nn

from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead, Loss, PairHead
from mmlkit.messages import check_number
from mmlkit.runtime import seeded
from mmlkit.training.arguments import check_outputs

__all__ = ["Head", "MultitaskModel"]


class Head(Protocol):
    """The interface of a head: any nn.Module with these members, without a base class.

    Three further members are optional. `kinds` names the kinds of task that the head is for, by
    default ("classification", "regression"). `gives_probabilities` says that the head's output are
    probabilities. `dropped_heads_unmoved` is a context in which `train_step` calls the optimizer.

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
        heads: {task name: head}. They are moved to the encoder's device.
        tokenizer: the encoder's own by default.
        max_length: tokens to which `fit`, `predict` and `evaluate` cut a row. None means the
            encoder's limit, until `fit` sets it to the value it trained with.

    Raises:
        ValueError: the encoder is no module; heads is empty or holds something else; a head does
            not fit the encoder (from a private function); or max_length is below 3.

    Example::

        encoder, tokenizer = load_pretrained("minilm")
        model = MultitaskModel(encoder, {"sst": LinearHead(384, 5)})
    """

    def __init__(self, encoder, heads, tokenizer=None, max_length=None):
        super().__init__()
        _check_parts(encoder, heads)
        check_number("max_length", max_length, 3, whole=True, optional=True)
        self.encoder = encoder
        try:
            self.heads = nn.ModuleDict(heads).to(next(encoder.parameters()).device)
        except (KeyError, TypeError) as error:  # "a.b", "", "keys", 3
            raise ValueError(
                f"a task has a name that no module can have: {error}. Expected a text such as "
                "'sst'; rename the task."
            ) from error
        # int() also converts numpy numbers, which JSON does not know
        self.max_length = None if max_length is None else int(max_length)
        self._tokenizer = tokenizer
        self._tasks = {}
        self.frozen = False

    @property
    def tokenizer(self):
        """The tokenizer that belongs to the encoder.

        Raises:
            ValueError: no tokenizer is known.
        """
        found = self._tokenizer or getattr(self.encoder, "tokenizer", None)
        if found is None:
            raise ValueError(
                "No tokenizer is known for this encoder: pass MultitaskModel(encoder, heads, "
                "tokenizer=...)."
            )
        return found

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
        config = getattr(self.encoder, "config", None)
        limit = getattr(config, "max_position_embeddings", 512)
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
            if not (frozen and name.startswith("pals.") and self._pals_stay_trainable()):
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
            ValueError: there is none, or the head is for another kind of task.
        """
        if task.name not in self.heads:
            raise ValueError(
                f"This model has no head for task {task.name!r}; it has {list(self.heads)}."
            )
        head = self.heads[task.name]
        kinds, kind = getattr(head, "kinds", ("classification", "regression")), type(head).__name__
        if task.kind not in kinds:
            raise ValueError(
                f"Task {task.name!r} is a {task.kind} task, but its {kind} is for "
                f"{' or '.join(kinds)}; give it another head."
            )
        if head.pairs == "separate" and not task.is_pair:
            raise ValueError(
                f"The {kind} of task {task.name!r} needs two sentences, but this task has one "
                f"text, {task.text_columns[0]!r}; give it a head for one, such as LinearHead."
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
            ValueError: there is no head of this name, or it is for another task (from functions
                that this one calls).
        """
        check_outputs(self.head(task), task)
        self._tasks[task.name] = (self.heads[task.name], task)

    def known_task(self, task):
        """Return a task by its name: one of `tasks`, or mmlkit's own.

        Args:
            task: a name, or a Task, which comes back as it is.

        Returns:
            The Task.

        Raises:
            ValueError: neither has the name (also from `get_task`).
        """
        own = self.tasks.get(task) if isinstance(task, str) else None
        if own is None and isinstance(task, str) and task in self.heads:
            try:
                return get_task(task)
            except ValueError as error:
                raise ValueError(
                    f"the model has a head {task!r}, but does not know its columns and labels. "
                    "Pass the Task itself, or call model.set_task(task) before."
                ) from error
        return own or get_task(task)

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
                (single if head.pairs == "packed" else single.linear).dense = head.collapse()
                head = single
            plain[task] = head
        model = MultitaskModel(self.encoder, plain, self._tokenizer, self.max_length)
        model.frozen = self.frozen
        for task in self.tasks.values():
            model.set_task(task)
        return model.train(self.training)

    @property
    def encoder_is_constant(self):
        """Whether a row has the same output in every epoch: no training and no dropout."""
        return self.frozen and not self._pals_stay_trainable()

    def inputs(self, batch):
        """Encode a batch and select the head's inputs, unless they are known already.

        Args:
            batch: a Batch.

        Returns:
            A tuple, as the head's `inputs` returns it.
        """
        if batch.features is None or not self.encoder_is_constant:
            return self._encode(batch)
        return batch.features.inputs(batch, lambda: self._encode(batch))

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


def _check_parts(encoder, heads):
    """Check what a MultitaskModel is made of."""
    if not isinstance(encoder, nn.Module):
        raise ValueError(
            f"encoder is a {type(encoder).__name__}, expected a BertModel. load_pretrained returns "
            "two things: encoder, tokenizer = load_pretrained('minilm')."
        )
    if not isinstance(heads, (dict, nn.ModuleDict)) or not heads:
        found = f"a {type(heads).__name__}" if heads else "empty"
        raise ValueError(
            f"heads is {found}; give one per task, such as {{'sst': LinearHead(384, 5)}}."
        )
    width = getattr(getattr(encoder, "config", None), "hidden_size", None)
    for task, head in heads.items():
        kind = type(head).__name__
        if not isinstance(head, nn.Module) or not callable(getattr(head, "inputs", None)):
            raise ValueError(
                f"The head of task {task!r} is {head!r:.80}, expected an object such as "
                "LinearHead(384, 5); see model.Head for one of your own."
            )
        if lacks := [name for name in ("pairs", "needs_tokens") if not hasattr(head, name)]:
            raise ValueError(
                f"The {kind} of task {task!r} has no {' and no '.join(lacks)}; see model.Head for "
                "what a head of your own needs, such as pairs = 'packed'."
            )
        own = getattr(head, "to_config", dict)().get("hidden_size", width)
        if width is not None and own != width:
            raise ValueError(
                f"The {kind} of task {task!r} has hidden_size {own}, the encoder {width}. Make it "
                f"with {kind}({width}, ...), or encoder.config.hidden_size."
            )
