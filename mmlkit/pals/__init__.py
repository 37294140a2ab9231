"""What a task may have for itself inside a shared encoder: projected attention layers and what they are compared to.

    adapters    low-rank layers and Houlsby's adapters
    projected   projected attention layers (PALs), sequential attention, and `add_pals`

Notebook 09 builds them by hand. Heads on top of the encoder do not belong here.
"""

from mmlkit.pals.adapters import Bottleneck, HoulsbyAdapters, LowRankLayers, TaskPart
from mmlkit.pals.projected import ProjectedAttention, SequentialAttention, TaskParts, add_pals, load_pals, save_pals

__all__ = ["Bottleneck", "HoulsbyAdapters", "LowRankLayers", "TaskPart", "ProjectedAttention",
           "SequentialAttention", "TaskParts", "add_pals", "load_pals", "save_pals"]
