"""Data-parallel training: every process has the model and trains it on its share of each batch.

`fit` does this by itself in a script that torchrun starts, and in a function that accelerate starts
from a notebook in which nothing has used the GPU yet::

    import os
    from accelerate import notebook_launcher

    def train():
        encoder, tokenizer = load_pretrained("minilm")
        model = MultitaskModel(encoder, {"sst": LinearHead(384, 5)})
        fit(model, load_task("sst"), checkpoint_dir="runs/sst")
        if int(os.environ.get("RANK", 0)) == 0:
            save_model(model, "sst-model")

    notebook_launcher(train, num_processes=2)

Without a GPU, the function must first call torch.set_num_threads(1): a copy of a process has none
of its threads. The gradients of the shares are added, so that all processes make the update of the
whole batch.
"""

import atexit
import dataclasses
import os
from dataclasses import dataclass

import torch
from torch import distributed

from mmlkit.runtime import pick_device

__all__ = ["ALONE", "Group", "join"]


@dataclass(frozen=True)
class Group:
    """The processes that train together. With one process, no method changes anything.

    Args:
        rank: the number of this process, from 0.
        size: the number of processes.
    """

    rank: int = 0
    size: int = 1

    def share(self, batch):
        """Take this process's share of a batch: every `size`-th example.

        A batch is sorted by length or nearly so. The shares therefore have similar lengths.

        Args:
            batch: a Batch, the same one in all processes.

        Returns:
            A Batch. Its weight is the share of the examples. A process for which none is left
            gets an example with weight 0, so that its parameters have gradients too.
        """
        if self.size == 1:
            return batch
        examples = range(self.rank, len(batch), self.size)
        weight = batch.weight * len(examples) / len(batch)
        return dataclasses.replace(batch.take(examples or [0]), weight=weight)

    def sum(self, tensors):
        """Add each tensor over the processes, in place and with one message per dtype.

        Args:
            tensors: tensors [...] of the same shapes in all processes; None is left out.
        """
        if self.size == 1:
            return
        groups = {}
        for tensor in tensors:
            if tensor is not None:
                groups.setdefault(tensor.dtype, []).append(tensor)
        for same in groups.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in same])
            distributed.all_reduce(flat)
            for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same])):
                tensor.copy_(part.view_as(tensor))

    def gather(self, value):
        """Wait for all processes, and return the values that they passed, ordered by rank.

        Args:
            value: plain values, or arrays on the CPU.

        Returns:
            A list with an item per process.
        """
        found = [value] * self.size
        if self.size > 1:
            distributed.all_gather_object(found, value)
        return found

    def send_weights(self, model):
        """Give the parameters and buffers of the first process to all others.

        Args:
            model: a module of the same architecture in all processes.
        """
        if self.size == 1:
            return
        state = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
        for value in state.values():
            distributed.broadcast(value, 0)
        model.load_state_dict(state)  # a multiverse head then reads its mask again


ALONE = Group()


def join(device=None):
    """Join the other processes that torchrun or accelerate started, if there are any.

    Args:
        device: see `runtime.place`. With several processes, None is this process's own GPU (the one
            with the number LOCAL_RANK), or the CPU where there is no CUDA GPU.

    Returns:
        (the `Group`, the device).
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        if int(os.environ.get("WORLD_SIZE", 1)) < 2:
            return ALONE, device
        if torch.cuda.is_available():
            torch.cuda.set_device(pick_device())
        distributed.init_process_group()  # gloo for tensors on a CPU, NCCL for those on a GPU
        atexit.register(distributed.destroy_process_group)
    own = pick_device() if torch.cuda.is_available() else "cpu"  # gloo does not know MPS
    return Group(distributed.get_rank(), distributed.get_world_size()), device or own
