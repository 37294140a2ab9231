"""Export: one task's classifier in a format of transformers."""

import copy
import dataclasses
from pathlib import Path

import torch

from mmlkit.files import replace_folder
from mmlkit.heads.linear import LinearHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.runtime import seeded

__all__ = ["export_classifier"]


def export_classifier(model, task, folder):
    """Write one task's classifier for transformers' pipeline("text-classification", folder).

    Multiverse heads are collapsed (MML v2, Eq. 5). A head with pooling="pooler" becomes
    transformers' BertForSequenceClassification and needs nothing of mmlkit. Any other becomes a
    MultiverseForSequenceClassification with one head, which opens after `import
    mmlkit.huggingface`. The folder is written aside and renamed.

    Args:
        model: a MultitaskModel.
        task: a Task, or the name of one of `model.tasks` or of mmlkit's own.
        folder: the path of the folder.

    Raises:
        ValueError: transformers has no form for this head or encoder: a SAN or ranking head, a pair
            that is encoded separately, a sigmoid, or PALs; or the folder holds a model of
            `save_model`.

    Example::

        export_classifier(model, "rte", "rte-classifier")
        pipeline("text-classification", "rte-classifier")({"text": premise, "text_pair":
        hypothesis})
    """
    if str(folder) and Path(str(folder), "mmlkit.json").expanduser().is_file():
        raise ValueError(
            f"{folder} holds a model of save_model (mmlkit.json), which an export would damage. "
            "Name another folder."
        )
    task = model.known_task(task)
    head = getattr(model.head(task), "_orig_mod", model.head(task))  # of torch.compile
    pals = getattr(model.encoder, "pals", None) is not None
    # A class of the user's own may compute anything, so it is not taken for its base class.
    known = type(head) in (LinearHead, MultiverseHead) and head.pairs == "packed"
    activation = getattr(head, "activation", None)
    if not known or activation or pals:
        raise ValueError(
            f"task {task.name!r} has a {type(head).__name__}"
            f"{f' with activation={activation!r}' if activation else ''}"
            f"{f' with pairs={head.pairs!r}' if head.pairs != 'packed' else ''}"
            f"{' on an encoder with PALs' if pals else ''}; expected a LinearHead or "
            "MultiverseHead on packed input, without activation and PALs. Use save_model instead."
        )
    with seeded(0):  # the first values of the layers, which are replaced, draw random numbers
        if type(head) is MultiverseHead:
            head = model.collapse().head(task)
        exported = _exported(model, task, head)
    with replace_folder(folder) as new:
        exported.save_pretrained(new)
        tokenizer = copy.deepcopy(model.tokenizer)
        tokenizer.model_max_length = model.cut()  # pipeline(..., truncation=True) cuts there
        tokenizer.save_pretrained(new)


def _exported(model, task, head):
    """Return transformers' model with the weights of the encoder and of a LinearHead."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    from mmlkit.huggingface.config import label_names
    from mmlkit.huggingface.model import MultiverseForSequenceClassification

    config = BertConfig(**dataclasses.asdict(model.encoder.config), num_labels=task.num_labels)
    labels = {"num_labels": 1, "problem_type": "regression"}  # pipeline then applies no sigmoid
    if task.kind == "classification":
        labels = label_names(task.labels)
    weight, bias = head.dense.weight.detach(), head.dense.bias.detach()
    encoder = getattr(model.encoder, "_orig_mod", model.encoder)  # of torch.compile
    encoder = {key: value.detach() for key, value in encoder.state_dict().items()}
    if head.pooling == "pooler":
        config.update({**labels, "classifier_dropout": head.dropout.p})
        exported = BertForSequenceClassification(config)
        state = {f"bert.{key}": value for key, value in encoder.items()}
        exported.load_state_dict({**state, "classifier.weight": weight, "classifier.bias": bias})
        return exported
    twin = BertModel(config)
    twin.load_state_dict(encoder)
    exported = MultiverseForSequenceClassification.on(
        twin, task.num_labels, num_heads=1, pooling=head.pooling, dropout=head.dropout.p
    )
    exported.config.update(labels)
    exported.head.load_state_dict(
        {"weight": weight[None], "bias": bias[None], "active": torch.tensor([True])}
    )
    return exported
