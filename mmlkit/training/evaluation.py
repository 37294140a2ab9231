"""Predictions of a whole split in row order, and metrics computed once over the split."""

import contextlib

import numpy as np
import torch

from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import Split, TaskData, make_split, text_of
from mmlkit.runtime import autocast, place, turn
from mmlkit.training import metrics
from mmlkit.training.distributed import ALONE
from mmlkit.training.fast import fast_matmul

__all__ = [
    "encode_split",
    "evaluate",
    "half_of",
    "in_eval_mode",
    "predict",
    "predict_proba",
    "predict_scores",
    "probabilities",
    "score_encoded",
    "unless_out_of_memory",
]

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
            Threads take turns with a model, also with a `fit` of it.
        data: a Split, a TaskData (its dev split), a list of texts or pairs of texts, or a table in
            memory with the task's columns (see `task_data`). Labels in a table are not read.
        task: the task of texts: a Task, or the name of one of `model.tasks` or of mmlkit's own. A
            Split or TaskData has a task already.
        batch_size: rows per batch. Where memory runs out, batches are halved.
        max_length: tokens to which a row is cut; by default as in training (`MultitaskModel.cut`).
        precision: see `runtime.autocast`.
        device: a GPU where there is one by default; see `runtime.place`.

    Returns:
        Scores [N, C], a numpy array in row order.

    Raises:
        ValueError: texts come without a task, or not one for each text column; a text is empty; a
            TaskData has no dev split; the head is for other labels (`MultitaskModel.head`); or a
            score is not finite (from `score_encoded`, as is a single row that does not fit into
            memory).
    """
    split = _as_split(model, data, task)
    model.head(split.task)
    if not len(split):
        return np.zeros((0, split.task.num_labels), dtype=np.float32)
    encoded = encode_split(model, split, max_length)
    with turn(model):
        place(model, device)
        return score_encoded(model, encoded, batch_size=batch_size, precision=precision)


def encode_split(model, split, max_length=None):
    """Tokenize a split for a model.

    Args:
        model: a MultitaskModel.
        split: a Split.
        max_length: see `MultitaskModel.cut`.

    Returns:
        An Encoded.

    Raises:
        ValueError: a token id is outside of the word table, where a GPU would stop the process.
    """
    length, pairs = model.cut(max_length), model.head(split.task).pairs
    encoded = encode(model.tokenizer, split, max_length=length, pairs=pairs)
    size = model.encoder.config.vocab_size
    for part in filter(None, (encoded, encoded.second)):
        if (largest := max(map(max, part.input_ids))) >= size:
            raise ValueError(
                f"{split.name}: token id {largest} of "
                f"{model.tokenizer.convert_ids_to_tokens(largest)!r} is outside of the word table, "
                f"which has {size} rows. Take the tokenizer of this encoder, without added tokens."
            )
    return encoded


def score_encoded(model, encoded, *, batch_size=64, precision="auto", group=ALONE, compute=None):
    """Compute the scores of a split that is encoded already, on the model's device.

    Args:
        model: a MultitaskModel; the mode of each of its modules is restored afterwards.
        encoded: an Encoded split.
        batch_size: rows per batch. Where memory runs out, batches are halved.
        precision: see `runtime.autocast`.
        group: the processes that share the batches; each gets the scores of all rows.
        compute: a function of a Batch, by default the model.

    Returns:
        Scores [N, C] (or what `compute` returns for the rows), a numpy array in row order.

    Raises:
        ValueError: a score is not finite.
        OutOfMemoryError: a single row does not fit (torch.OutOfMemoryError, from a private
            function).
    """
    device, batches = model.device, plan(encoded.lengths, batch_size)
    order = [row for rows in batches[group.rank :: group.size] for row in rows]
    scores, done = [], 0
    cast = autocast(precision, device)[0]  # in inference mode it would cast weights in every batch
    with in_eval_mode(model), torch.no_grad(), fast_matmul(device), cast:
        while done < len(order):
            rows = order[done : done + batch_size]
            found = unless_out_of_memory(
                lambda rows=rows: (compute or model)(collate(encoded, rows).to(device)).float()
            )
            if found is None:
                row = f"one row of task {encoded.task.name!r} ({encoded.lengths[rows[0]]} tokens)"
                batch_size = half_of(len(rows), row)
            else:
                scores.append(found)
                done += len(rows)
    # One transfer, because each one waits for a GPU. A process of several may have no batch.
    own = torch.cat(scores).cpu().numpy() if scores else None
    parts = [part for part in group.gather((order, own)) if part[0]]
    order, scores = map(np.concatenate, zip(*parts))
    if not np.isfinite(scores).all():
        raise ValueError(
            f"some scores of task {encoded.task.name!r} are not finite numbers: the model has "
            "diverged, or fp16 overflows. Train it with a smaller lr, or use precision='fp32'."
        )
    return scores[np.argsort(order)]


@contextlib.contextmanager
def in_eval_mode(model):
    """Evaluate a model, and restore the mode of each of its modules afterwards. Threads take turns.

    Args:
        model: a module.

    Yields:
        The model.
    """
    with turn(model):
        modes = [(module, module.training) for module in model.modules()]
        try:
            yield model.eval()
        finally:
            for module, mode in modes:
                module.training = mode


def half_of(size, one):
    """Return half the size of a batch that did not fit into memory.

    Args:
        size: the number of examples.
        one: a text for the message, which says what a single example is.

    Returns:
        A whole number.

    Raises:
        torch.OutOfMemoryError: there was a single example.
    """
    if size == 1:
        raise torch.OutOfMemoryError(
            f"{one} does not fit into memory by itself. Use a smaller max_length, a smaller "
            "encoder, or precision='bf16'; in training also freeze_encoder=True."
        )
    return (size + 1) // 2


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


def evaluate(model, data, **options):
    """Compute the task's own metrics over a whole split.

    Args:
        model: a MultitaskModel.
        data: a Split, such as data.test, or a TaskData (its dev split).
        **options: batch_size, max_length, precision and device of `predict_scores`.

    Returns:
        {metric: value}.

    Raises:
        TypeError: data are texts or a table.
        ValueError: the split has no labels, or a metric is not for the task (from `check_metrics`).
    """
    if not isinstance(data, (Split, TaskData)):
        raise TypeError(
            f"data is a {type(data).__name__}; pass a split, as in task_data(task, train, dev).dev."
        )
    task = data.task  # that of a TaskData may have other metrics than its split
    metrics.check_metrics(task)
    split = _as_split(model, data, options.pop("task", None))
    if split.labels is None:
        raise ValueError(f"{split} has no labels to compare predictions with.")
    scores = predict_scores(model, split, **options)
    return metrics.compute(task, scores, split.labels, split.queries)


def _as_split(model, data, task):
    """Return the split to predict; a list of texts becomes one of its task."""
    loaded, name = isinstance(data, (TaskData, Split)), getattr(task, "name", task)
    if loaded and name is not None and name != data.task.name:
        raise ValueError(
            f"task is {task!r:.80}, but data is of task {data.task.name!r}. Leave task out, or "
            "pass the texts alone: data.texts of a split."
        )
    if isinstance(data, TaskData):
        if data.dev is None:
            raise ValueError(f"{data} has no dev split; pass another one, such as data.train.")
        return data.dev
    if isinstance(data, Split):
        return data
    if task is None:
        raise ValueError(
            f"texts need their task; pass task={next(iter(model.heads))!r} (the model has heads "
            f"for {list(model.heads)})."
        )
    task = model.known_task(task)
    first = next(iter(data), None) if isinstance(data, list) else data
    if isinstance(first, dict) or hasattr(data, "columns") or hasattr(data, "column_names"):
        return make_split(task, data, name="texts", labels=False)  # else its names were the texts
    data = [data] if isinstance(data, str) else data  # else each character would be a text
    single = lambda row: isinstance(row, str) or not hasattr(row, "__iter__")
    rows = [(row,) if single(row) else tuple(row) for row in data]
    texts = [tuple(map(text_of, row)) for row in rows]
    for i, row in enumerate(texts):
        if len(row) != len(task.text_columns) or not all(row):
            raise ValueError(
                f"text {i} is {rows[i]!r:.200}; task {task.name!r} expects one text that is not "
                f"empty for each of {list(task.text_columns)}."
            )
    return Split(task, texts, None, list(range(len(texts))), "texts")
