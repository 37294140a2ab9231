"""The multiverse head for users of transformers: Auto classes, the Trainer, and export.

    config    the configuration, which AutoConfig reads
    model     the multiverse head on any AutoModel
    trainer   the pruning of notebook 04 in transformers' Trainer
    export    one task's classifier for transformers' pipeline

Notebooks 03 and 04 build the head and the pruner by hand; the code of both is in `mmlkit.heads` and
does not belong here. Each name is imported on first use: the models of transformers take seconds.
"""

import importlib

_HOME = {
    "MultiverseConfig": "config",
    "MultiverseForSequenceClassification": "model",
    "PruningCallback": "trainer",
    "export_classifier": "export",
}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"mmlkit.huggingface.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mmlkit.huggingface' has no attribute {name!r}.")


importlib.import_module("mmlkit.huggingface.config")  # tells AutoConfig of it
