"""Predictions of a whole split in row order, and metrics computed once over the split."""

import contextlib
import threading

import numpy as np
import torch

from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import Split, TaskData, make_split
from mmlkit.messages import count
from mmlkit.runtime import autocast, place
from mmlkit.training import metrics
from mmlkit.training.arguments import (
    check_head,
    check_labels,
    check_model,
    check_same_task,
    check_settings,
)
from mmlkit.training.distributed import ALONE
from mmlkit.training.fast import fast_matmul, packed_weights, two_at_a_time

__all__ = [
    "evaluate",
    "in_eval_mode",
    "predict",
    "predict_proba",
    "predict_scores",
    "prediction_table",
    "probabilities",
    "score_encoded",
    "unless_out_of_memory",
]

# A prediction changes the model's mode, its encoder's `forward` and torch's matrix product, and
# restores them. Two threads of a server take turns, so that neither meets the other's changes.
_TURN = threading.RLock()

# torch raises a plain RuntimeError with one of these texts: its CPU allocator the first two, and
# libraries of CUDA the others.
OUT_OF_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def predict(model, data, **options):
    """Predict the label names of a classification task, or the scores of any other task.

    The model is moved to the device that `predict_scores` describes, and stays there.

    Args:
        model: a MultitaskModel.
        data: see `predict_scores`.
        **options: further arguments of `predict_scores`.

    Returns:
        An array [N] in row order: label names (text), or scores (numbers).

    Example::

        predict(model, ["A quiet triumph."], task="sst")      # array(['positive'])
    """
    split = _as_split(model, data, options.pop("task", None))
    scores = predict_scores(model, split, **options)
    if split.task.kind != "classification":
        return scores[:, 0]
    return np.array(split.task.labels)[scores.argmax(1)]


def predict_proba(model, data, **options):
    """Predict the probabilities of the labels, whatever the head.

    Args:
        model: a MultitaskModel.
        data: see `predict_scores`.
        **options: further arguments of `predict_scores`.

    Returns:
        An array [N, C] in row order; the columns follow task.labels.

    Raises:
        ValueError: the task has no labels, because it is a regression or a ranking.
    """
    split = _as_split(model, data, options.pop("task", None))
    if split.task.kind != "classification":
        raise ValueError(
            f"task {split.task.name!r} is a {split.task.kind} task and has no probabilities; use "
            "predict."
        )
    return probabilities(predict_scores(model, split, **options), model.head(split.task))


def predict_scores(
    model, data, *, task=None, batch_size=64, max_length=None, precision="auto", device=None
):
    """Compute the head's output for every row: logits, or what the head gives instead.

    Args:
        model: a MultitaskModel. It is moved to `device` and stays there; its mode is restored.
        data: a Split, a TaskData (its dev split), or a list of texts or pairs of texts; no table.
        task: the task of texts: a Task, or the name of one of `model.tasks` or of mmlkit's own. A
            Split or TaskData has a task already.
        batch_size: rows per batch. Where memory runs out, batches are halved.
        max_length: tokens to which a row is cut; by default as in training (`MultitaskModel.cut`).
        precision: see `runtime.autocast`.
        device: a GPU where there is one by default; see `runtime.place`.

    Returns:
        Scores [N, C], a numpy array in row order.

    Raises:
        ValueError: texts come without a task or in a table, a text is empty, a TaskData has no
            dev split or another task than `task` (from a private function); the head has another
            number of outputs than the task; or a score is not finite.
        OutOfMemoryError: a single row does not fit (torch.OutOfMemoryError, from `score_encoded`).
    """
    check_settings({"batch_size": batch_size, "max_length": max_length})
    check_model(model)
    split = _as_split(model, data, task)
    if not len(split):
        raise ValueError(f"{split.task.name} {split.name} has no rows; expected at least one.")
    check_head(model, split.task)
    pairs = model.head(split.task).pairs
    encoded = encode(model.tokenizer, split, max_length=model.cut(max_length), pairs=pairs)
    model = place(model, device)
    scores = score_encoded(model, encoded, batch_size=batch_size, precision=precision)
    if wrong := int((~np.isfinite(scores)).any(1).sum()):
        raise ValueError(
            f"the scores of {wrong} of {count(len(scores), 'row')} are not finite numbers: the "
            "model has diverged. Train it again with a smaller learning rate."
        )
    return scores


def score_encoded(model, encoded, *, batch_size=64, precision="auto", group=ALONE):
    """Compute the scores of a split that is encoded already, on the model's device.

    Args:
        model: a MultitaskModel; the mode of each of its modules is restored afterwards.
        encoded: an Encoded split.
        batch_size: rows per batch.
        precision: see `runtime.autocast`.
        group: the processes that share the batches; each gets the scores of all rows.

    Returns:
        Scores [N, C], a numpy array in row order.

    Raises:
        OutOfMemoryError: a single row does not fit (torch.OutOfMemoryError, from a private
            function).
    """
    with _TURN:
        device = model.device
        cast = autocast(precision, device)[0]
        # Autocast casts each trainable weight once, but in inference mode once for every batch.
        casts = not isinstance(cast, contextlib.nullcontext) and not model.encoder_is_constant
        no_gradients = torch.no_grad() if casts else torch.inference_mode()
        with in_eval_mode(model), no_gradients, fast_matmul(device), cast:
            return _scores(model, encoded, device, batch_size, group)


@contextlib.contextmanager
def in_eval_mode(model):
    """Evaluate a model, and restore the mode of each of its modules afterwards.

    Args:
        model: a module.

    Yields:
        The model.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield model.eval()
    finally:
        for module, mode in modes:
            module.training = mode


def _scores(model, encoded, device, batch_size, group):
    def score(rows):
        return unless_out_of_memory(lambda: model(collate(encoded, rows).to(device)).float())

    scores, order, lengths = [], [], np.asarray(encoded.lengths)
    with (
        two_at_a_time(model) as (number, apply),
        packed_weights(model.encoder, lengths.sum(), apply),
    ):
        size = -(-min(batch_size, len(lengths)) // number)
        waiting = plan(lengths, size)[group.rank :: group.size]
        while waiting:
            batches, waiting = waiting, []
            for i, (rows, found) in enumerate(zip(batches, apply(score, batches))):
                if found is None:
                    waiting = _halved(batches[i:], encoded)
                    break
                scores.append(found)
                order += rows
    # One transfer, because each one waits for a GPU. A process of several may have no batch.
    own = torch.cat(scores).cpu().numpy() if scores else None
    parts = [part for part in group.gather((order, own)) if part[0]]
    order, scores = map(np.concatenate, zip(*parts))
    return scores[np.argsort(order)]


def _halved(batches, encoded):
    """Return batches of half the size, where the first one did not fit into memory."""
    if len(batches[0]) == 1:
        raise torch.OutOfMemoryError(
            f"one row of task {encoded.task.name!r} ({encoded.lengths[batches[0][0]]} tokens) does "
            "not fit into memory by itself. Use a smaller max_length, a smaller encoder, or "
            "precision='bf16'."
        )
    halves = ((one[: len(one) // 2], one[len(one) // 2 :]) for one in batches)
    return [half for both in halves for half in both if half]


def unless_out_of_memory(function):
    """Call a function, and catch the error of a GPU or CPU that runs out of memory.

    Args:
        function: called without arguments.

    Returns:
        The function's result, or None where memory ran out. Every other error passes through.
    """
    try:
        return function()
    except RuntimeError as error:  # torch.OutOfMemoryError is a RuntimeError
        known = isinstance(error, torch.OutOfMemoryError)
        if not known and not any(text in str(error) for text in OUT_OF_MEMORY):
            raise
    # Outside of the except clause, where the error no longer references the tensors.
    torch.cuda.empty_cache()
    return None


def probabilities(scores, head):
    """Turn scores of `predict_scores` into probabilities.

    Args:
        scores: [N, C].
        head: the head that computed them, such as model.heads["sst"]. Logits go through a softmax.
            The output of a head that `gives_probabilities`, such as SANHead, is returned unchanged.

    Returns:
        Probabilities [N, C].
    """
    if getattr(head, "gives_probabilities", False):
        return np.asarray(scores)
    return torch.as_tensor(scores).softmax(-1).numpy()


def evaluate(model, data, *, split="dev", **options):
    """Compute the task's own metrics over a whole split.

    Args:
        model: a MultitaskModel.
        data: a TaskData, of which `split` is taken, or a Split.
        split: the name of a split of a TaskData.
        **options: batch_size, max_length, precision and device of `predict_scores`.

    Returns:
        {metric: value}.

    Raises:
        ValueError: the split does not exist, or has no labels or wrong ones; or a metric is not
            for the task (some from functions that this one calls).
    """
    task = getattr(data, "task", None)  # that of a TaskData may have other metrics than its split
    if isinstance(data, TaskData):
        found = data.split(split)
        if found is None:
            raise ValueError(
                f"{data.task.name} from {data.source!r} has no split {split!r}; it has "
                f"{[name for name in ('train', 'dev', 'test', *data.more) if data.split(name)]}."
            )
        check_same_task(task, found, split)
        data = found
    if not isinstance(data, Split):
        raise ValueError(
            f"data is a {type(data).__name__}, expected the result of load_task, or one of its "
            "splits. Texts have no labels: use predict."
        )
    if data.labels is None:
        raise ValueError(
            f"{data.task.name} {data.name} has no labels: there is nothing to compare predictions "
            "with."
        )
    check_labels(task, data, data.name)
    metrics.check_metrics(task)
    scores = predict_scores(model, data, **options)
    return metrics.compute(task, scores, data.labels, data.queries)


def prediction_table(model, split, **options):
    """Return predictions as a table of texts, with a label and probabilities or with a score.

    Args:
        model: a MultitaskModel.
        split: a Split.
        **options: batch_size, max_length, precision and device of `predict_scores`.

    Returns:
        (names of columns, rows of cells).
    """
    task, scores = split.task, predict_scores(model, split, **options)
    if task.kind != "classification":
        return ["score"], [[f"{score:.4f}"] for score in scores[:, 0]]
    shares = probabilities(scores, model.head(task))
    rows = [[task.labels[row.argmax()], *[f"{p:.4f}" for p in row]] for row in shares]
    return ["label", *[f"p({name})" for name in task.labels]], rows


def _as_split(model, data, task):
    if isinstance(data, (TaskData, Split)):
        name = getattr(task, "name", task)
        if name not in (None, data.task.name):
            raise ValueError(
                f"task is {name!r}, but data is of task {data.task.name!r}. Leave task out, or "
                "pass the texts alone: data.texts of a split."
            )
    if isinstance(data, TaskData):
        if data.dev is None:
            raise ValueError(
                f"{data.task.name} from {data.source!r} has no dev split; pass another one, such "
                "as data.train."
            )
        return data.dev
    if isinstance(data, Split):
        return data
    if isinstance(data, (dict, set, frozenset)) or hasattr(data, "columns"):
        # A loop over them gives the names of columns, or no order.
        raise ValueError(
            f"data is a {type(data).__name__}; expected a list of texts. Pass the texts of a table "
            "as df['text'].tolist(), and pairs as list(zip(df['first'], df['second']))."
        )
    if task is None:
        check_model(model)
        raise ValueError(
            f"data is plain texts but no task was given; pass task={next(iter(model.heads))!r} "
            f"(the model has heads for {list(model.heads)})."
        )
    check_model(model)
    task = model.known_task(task)
    if isinstance(data, str) or not hasattr(data, "__iter__"):
        raise ValueError(
            f"data is {data!r:.80}; expected a list of texts, such as ['A good day.']."
        )
    data = list(data)
    if wrong := [row for row in data if not isinstance(row, (str, tuple, list))]:
        raise ValueError(
            f"a text is {wrong[0]!r:.80}; expected a text or a tuple of texts, in the order of "
            f"{list(task.text_columns)}."
        )
    texts = [(row,) if isinstance(row, str) else tuple(row) for row in data]
    if not texts:
        raise ValueError(f"no text was given; expected a list of texts for task {task.name!r}.")
    for i, row in enumerate(texts):
        if len(row) != len(task.text_columns) or not all(
            isinstance(text, str) and text.strip() for text in row
        ):
            raise ValueError(
                f"text {i} is {row!r}; task {task.name!r} expects "
                f"{count(len(task.text_columns), 'non-empty text')}: {list(task.text_columns)}."
            )
    rows = enumerate(dict(zip(task.text_columns, row)) for row in texts)
    return make_split(task, rows, place="texts", name="texts")
