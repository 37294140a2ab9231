"""mmlkit: the fine-tuning methods that stand on BERT, in a library thin enough to read beside its notebooks.

The names below are the ones courses and notebooks rely on. Each is imported on first use, so that `mmlkit --help` does not
wait for torch; notebooks import from the module itself (`from mmlkit.bert import BertModel`) to say which file to open.
"""

import importlib
import os

# Before torch starts: by default its threads spin while they wait for each other, which costs a busy machine up to 2.5
# times. A value that the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

_HOME = {
    "BertConfig": "bert", "BertModel": "bert", "load_pretrained": "pretrained", "save_pretrained": "pretrained", "AdamW": "optimizers",
    "get_profile": "profiles", "get_task": "tasks", "list_tasks": "tasks", "load_task": "data",
    "LinearHead": "heads", "PairHead": "heads", "MultiverseHead": "multiverse", "multiverse_loss": "multiverse", "HeadPruner": "pruning", "build_head": "methods", "SANHead": "san",
    "ProjectedAttention": "pals", "add_pals": "pals",
    "MultitaskModel": "multitask", "load_model": "multitask", "save_model": "multitask",
    "cross_dataset_table": "protocol", "relative_improvement": "protocol", "performance_profile": "protocol",
    "TaskSampler": "sampling", "predict": "evaluation", "evaluate": "evaluation", "fit": "training", "train_step": "steps",
}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"mmlkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mmlkit' has no attribute {name!r}; it has {', '.join(__all__)}.")


def __dir__():
    return [*globals(), *__all__]
