"""mmlkit: the fine-tuning methods that stand on BERT, in a library thin enough to read beside its notebooks.

The names below are the ones courses and notebooks rely on. Each is imported on first use, so that `mmlkit --help` does not
wait for torch; notebooks import from the subpackage (`from mmlkit.bert import BertModel`).
"""

import importlib
import os

# Before torch starts: by default its threads spin while they wait for each other, which costs a busy machine up to 2.5
# times. A value that the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

_HOME = {
    "data": "Task get_task list_tasks load_task",
    "bert": "BertConfig BertModel load_pretrained save_pretrained",
    "heads": "LinearHead PairHead MultiverseHead multiverse_loss HeadPruner build_head SANHead",
    "pals": "ProjectedAttention add_pals",
    "training": "AdamW MultitaskModel TaskSampler evaluate fit load_model make_optimizer predict save_model train_step",
    "studies": "cross_dataset_table performance_profile published relative_improvement",
    "profiles": "get_profile",
}
_HOME = {name: home for home, names in _HOME.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"mmlkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mmlkit' has no attribute {name!r}; it has {', '.join(__all__)}.")


def __dir__():
    return [*globals(), *__all__]
