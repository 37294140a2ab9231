"""Predict a whole split and measure it: scores in row order, metrics once over the corpus."""

import numpy as np
import torch

from mmlkit.data.batching import collate, encode, plan
from mmlkit.data.loading import Split, TaskData
from mmlkit.data.tasks import get_task
from mmlkit.messages import count
from mmlkit.runtime import autocast, fast_matmul
from mmlkit.training import metrics

__all__ = ["answers", "predict", "predict_encoded", "evaluate", "probabilities",
           "unless_out_of_memory"]

SAID = ("not enough memory", "can't allocate memory")       # by torch's CPU allocator, in a plain RuntimeError


def predict(model, data, *, task=None, batch_size=64, max_length=512, precision="fp32"):
    """Scores [N,C] in row order, as a numpy array.

    data: a Split, a TaskData (its dev split), or a list of texts (or pairs of texts) together with task=.
    Raises ValueError when texts come without a task, or one of them is empty.

    Example::

        predict(model, ["A quiet triumph."], task="sst").argmax(1)
    """
    split = _as_split(data, task)
    limit = getattr(getattr(model.encoder, "config", None), "max_position_embeddings", max_length)
    encoded = encode(model.tokenizer, split, max_length=min(max_length, limit), pairs=model.head(split.task).pairs)
    return predict_encoded(model, encoded, batch_size=batch_size, precision=precision)


@torch.inference_mode()
def predict_encoded(model, encoded, *, batch_size=64, precision="fp32"):
    """As `predict`, for a split that is encoded already; the model's mode is put back afterwards.

    Where memory runs out, batches are halved. Raises torch.OutOfMemoryError when a single row does not fit.
    """
    was_training, device = model.training, model.device
    model.eval()
    try:
        with fast_matmul(device), autocast(precision, device)[0]:
            return _scores(model, encoded, device, batch_size)
    finally:
        model.train(was_training)


def _scores(model, encoded, device, batch_size):
    scores, waiting = None, plan(encoded.lengths, batch_size)[::-1]
    while waiting:
        rows = waiting.pop()
        batch_scores = unless_out_of_memory(lambda rows=rows: model(collate(encoded, rows).to(device)).float().cpu().numpy())
        if batch_scores is None:
            if len(rows) == 1:
                raise torch.OutOfMemoryError(f"one row of task {encoded.task.name!r} ({encoded.lengths[rows[0]]} tokens) does not fit into "
                                             "memory by itself. Use a smaller max_length, a smaller encoder, or precision='bf16'.")
            waiting = [half for rows in [*waiting, rows] for half in (rows[len(rows) // 2:], rows[:len(rows) // 2]) if half]
            continue
        if scores is None:
            scores = np.empty((len(encoded.input_ids), batch_scores.shape[1]), dtype=np.float32)
        scores[rows] = batch_scores
    return scores


def unless_out_of_memory(function):
    """function(), or None where memory ran out, on a GPU or in torch's CPU allocator; every other error passes through."""
    try:
        return function()
    except RuntimeError as error:       # torch.OutOfMemoryError is one
        if not isinstance(error, torch.OutOfMemoryError) and not any(said in str(error) for said in SAID):
            raise
    torch.cuda.empty_cache()            # here, where the error no longer holds on to the tensors; nothing happens without a GPU
    return None


def probabilities(scores, head):
    """Return the probabilities [N,C] of the labels, from scores [N,C] of `predict`.

    Args:
        scores: what `predict` gave.
        head: the head that gave them, such as model.heads["sst"]. Logits go through a softmax; the scores of a head that
            `gives_probabilities` (SANHead) are probabilities already and come back as they are.
    """
    if getattr(head, "gives_probabilities", False):
        return np.asarray(scores)
    return torch.as_tensor(scores).softmax(-1).numpy()


def evaluate(model, data, *, split="dev", batch_size=64, max_length=512, precision="fp32"):
    """The task's own metrics over a whole split, as a dict.

    data: a TaskData, of which `split` is taken, or a Split. Raises ValueError when the split has no labels.
    """
    if isinstance(data, TaskData):
        found = data.split(split)
        if found is None:
            raise ValueError(f"{data.task.name} from {data.source!r} has no split {split!r}.")
        data = found
    if data.labels is None:
        raise ValueError(f"{data.task.name} {data.name} has no labels: there is nothing to compare predictions with.")
    scores = predict(model, data, batch_size=batch_size, max_length=max_length, precision=precision)
    return metrics.compute(data.task, scores, data.labels, data.queries)


def answers(model, split):
    """Return what a model says of a split as a table of texts: (names of columns, rows of cells).

    Raises:
        ValueError: the head has another number of outputs than the task, or a score is not finite.
    """
    task, head = split.task, model.head(split.task)
    if head.num_labels != task.num_labels:
        wanted = f"{task.num_labels} ({', '.join(task.labels) or 'one score'})"
        raise ValueError(f"the head of task {task.name!r} has {count(head.num_labels, 'output')}, "
                         f"expected {wanted}. It was trained with other labels under this name; "
                         "train it again.")
    scores = predict(model, split)
    if wrong := int((~np.isfinite(scores)).any(1).sum()):
        raise ValueError(f"the scores of {wrong} of {count(len(scores), 'row')} are not finite "
                         "numbers: the model has diverged. Train it again with a smaller learning "
                         "rate.")
    if task.kind != "classification":
        return ["score"], [[f"{score:.4f}"] for score in scores[:, 0]]
    shares = probabilities(scores, head)
    rows = [[task.labels[row.argmax()], *[f"{p:.4f}" for p in row]] for row in shares]
    return ["label", *[f"p({name})" for name in task.labels]], rows


def _as_split(data, task):
    if isinstance(data, TaskData):
        return data.dev
    if isinstance(data, Split):
        return data
    if task is None:
        raise ValueError("predict was given plain texts but no task; pass task='sst' or another of list_tasks().")
    task = get_task(task)
    texts = [(row,) if isinstance(row, str) else tuple(row) for row in data]
    if not texts:
        raise ValueError(f"predict was given no text; expected a list of texts for task {task.name!r}.")
    for i, row in enumerate(texts):
        if len(row) != len(task.text_columns) or not all(isinstance(text, str) and text.strip() for text in row):
            raise ValueError(f"text {i} is {row!r}; task {task.name!r} expects {len(task.text_columns)} non-empty "
                             f"text{'s' if task.is_pair else ''}: {list(task.text_columns)}.")
    return Split(task, texts, None, list(range(len(texts))), "texts")
