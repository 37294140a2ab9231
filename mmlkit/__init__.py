"""mmlkit: fine-tuning methods for BERT, in a thin library that is read beside its notebooks.

The names below are the ones that courses and notebooks rely on. Each is imported on first use, so
that `mmlkit --help` does not wait for torch. Notebooks import from the subpackage, for example
`from mmlkit.bert import BertModel`. `import mmlkit.huggingface` tells transformers' Auto classes of
the multiverse head.
"""

import importlib
import os

# Before torch starts: by default its waiting threads spin, which slows a busy machine up to 2.5
# times. A value that the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# torch then looks for a GPU without starting CUDA, which would not work in copies of this process.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

__version__ = "0.2.0"
REPOSITORY = "mmlkit/mmlkit"  # owner/name; `make set-repo REPO=owner/name` changes it everywhere
MINI_EDITION = 3  # of data/mini; every result names it

_NAMES = {
    "data": "Task get_task list_tasks load_task task_data",
    "bert": "BertConfig BertModel load_pretrained save_pretrained",
    "heads": "LinearHead PairHead MultiverseHead multiverse_loss HeadPruner SANHead",
    "pals": "ProjectedAttention add_pals",
    "training": "AdamW MultitaskModel TaskSampler evaluate fit load_model "
    "make_optimizer predict predict_proba predict_scores save_model train_step",
    "huggingface": "export_classifier",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"mmlkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mmlkit' has no attribute {name!r}; it has {', '.join(__all__)}.")


def __dir__():
    return [*globals(), *__all__]
