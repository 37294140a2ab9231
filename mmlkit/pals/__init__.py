"""The modules that each task has in a shared encoder: projected attention layers and alternatives.

    projected    projected attention layers (PALs), and the interface of all kinds
    sequential   projected attention on top of the encoder
    adapters     low-rank layers and Houlsby's adapters
    task_parts   `add_pals`, `save_pals` and `load_pals`

Notebook 11 builds them by hand. Heads on top of the encoder do not belong here.
"""

from mmlkit.pals.adapters import Bottleneck, HoulsbyAdapters, LowRankLayers
from mmlkit.pals.projected import ProjectedAttention, TaskPart
from mmlkit.pals.sequential import SequentialAttention
from mmlkit.pals.task_parts import TaskParts, add_pals, load_pals, save_pals
