"""The configuration of an encoder with a multiverse head, which AutoConfig reads."""

import importlib

from transformers import AutoConfig, PreTrainedConfig

__all__ = ["MultiverseConfig", "label_names"]


class MultiverseConfig(PreTrainedConfig):
    """The configuration of an encoder with a multiverse head, written and read by transformers.

    Args:
        encoder: the encoder's configuration, a dict.
        head: the keywords of MultiverseHead, a dict.
        **others: see transformers.PreTrainedConfig.
    """

    model_type = "mmlkit_multiverse"

    def __init__(self, encoder=None, head=None, **others):
        # The Auto classes read a configuration before they look up its model. Until now nobody
        # needed the models of transformers, whose import takes a second or two.
        importlib.import_module("mmlkit.huggingface.model")
        self.encoder, self.head = encoder or {}, head or {}
        super().__init__(**others)


def label_names(names):
    """Return the names of labels as transformers' configurations hold them.

    Args:
        names: the labels, in the order of their indices.

    Returns:
        A dict with id2label and label2id.
    """
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: i for i, name in enumerate(names)},
    }


AutoConfig.register(MultiverseConfig.model_type, MultiverseConfig, exist_ok=True)
