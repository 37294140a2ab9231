"""mmlcourse: what the notebooks, assignments and experiments of mmlkit need beside the library.

Each name below is imported on first use, so that `mmlkit --help` does not wait for torch.
"""

import importlib

import mmlkit

_NAMES = {
    "lessons.opening": "open_notebook",
    "lessons.profiles": "get_profile",
    "studies": "build_head cross_dataset_table performance_profile published relative_improvement",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name in _HOME:
        return getattr(importlib.import_module(f"mmlcourse.{_HOME[name]}"), name)
    raise AttributeError(f"module 'mmlcourse' has no attribute {name!r}.")
