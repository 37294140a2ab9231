"""Data-parallel training: every process has the model and trains it on its share of each batch.

`fit` does this by itself in a script that torchrun starts, and in a function that `launch` starts
from a notebook. The gradients of the shares are added, so that all processes make the update of
the whole batch.
"""

import atexit
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from dataclasses import dataclass
from multiprocessing.connection import wait

import torch
from torch import distributed

__all__ = ["ALONE", "Group", "is_first_process", "join", "launch"]

USED_GPU = (
    "launch copies this process, but CUDA has been used in it and does not work in a copy. Restart "
    "the notebook and call launch before anything uses the GPU; open_notebook and load_pretrained "
    "do, so load the model in the function. Or write the call into a script and start it with "
    "torchrun --nproc-per-node 2 script.py."
)
KILLED = "it was ended from outside; perhaps the machine has too little memory."


@dataclass(frozen=True)
class Group:
    """The processes that train together. With one process, no method changes anything.

    Args:
        rank: the number of this process, from 0.
        size: the number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self):
        """Whether this process is the one that writes files and shows progress."""
        return self.rank == 0

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
        """Return the values that the processes passed, ordered by rank.

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

    def check_equal(self, values):
        """Check that all processes have the same settings; otherwise they would wait for ever.

        Args:
            values: a dict of plain values.

        Raises:
            ValueError: a value differs between two processes.
        """
        found = self.gather(values)
        for name, expected in found[0].items():
            for rank, other in enumerate(found):
                if other.get(name) != expected:
                    raise ValueError(
                        f"{name} is {expected!r} in process 0 but {other.get(name)!r} in process "
                        f"{rank}. Every process must call fit with the same data and settings, "
                        "and see the same checkpoint_dir."
                    )

    def wait(self):
        """Wait until every process is here."""
        if self.size > 1:
            distributed.barrier()

    @contextlib.contextmanager
    def warnings_once(self):
        """Show the warnings of the first process only.

        Yields:
            Nothing.
        """
        with warnings.catch_warnings():
            if not self.first:
                warnings.simplefilter("ignore")
            yield


ALONE = Group()


def join(device=None):
    """Join the other processes that torchrun or `launch` started, if there are any.

    Args:
        device: see `runtime.place`. With several processes, None is "cuda", or "cpu" where there
            is no CUDA GPU; and "cuda" is the GPU with the number LOCAL_RANK.

    Returns:
        (the `Group`, the device).

    Raises:
        ValueError: this machine has fewer GPUs than processes.
        RuntimeError: `launch` has copied a process that had used a GPU (from a private function).
    """
    joined = distributed.is_available() and distributed.is_initialized()
    started = {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys()
    if not joined and not (started and int(os.environ["WORLD_SIZE"]) > 1):
        return ALONE, device
    device = _own_device(device, int(os.environ.get("LOCAL_RANK", 0)))
    if not joined:
        distributed.init_process_group()  # gloo for tensors on a CPU, NCCL for those on a GPU
        atexit.register(distributed.destroy_process_group)
    return Group(distributed.get_rank(), distributed.get_world_size()), device


def _own_device(device, local_rank):
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"  # gloo does not know MPS
    if str(device) != "cuda" or not torch.cuda.is_available():
        return device
    if local_rank >= (count := torch.cuda.device_count()):
        raise ValueError(
            f"Process {local_rank} of this machine has no GPU, because there are {count}. Start "
            "as many processes as there are GPUs, or pass device='cpu'."
        )
    if torch.cuda._is_in_bad_fork():
        raise RuntimeError(USED_GPU)
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def is_first_process():
    """Return whether this process is the one that should write files; True for a single process.

    Example::

        if is_first_process():
            save_model(model, folder)
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return int(os.environ.get("RANK", 0)) == 0


def launch(function, *arguments, processes=2):
    """Run a function in several processes, for example from a notebook.

    The processes are copies of this one (a fork), so the function may be defined in a notebook and
    use everything there. A call of `fit` in it trains data-parallel. Its models are copies too:
    return what you need later.

    Args:
        function: called with the arguments in every process.
        *arguments: any objects.
        processes: how many. They divide the threads of this process among them.

    Returns:
        The result of the function in the first process.

    Raises:
        ValueError: processes is below one.
        RuntimeError: this system cannot fork; this process has used a GPU, and CUDA does not work
            in a copy; or a process failed. All are then ended, and the message has its traceback.

    Example::

        def train():
            return model, fit(model, data, epochs=2)

        model, history = launch(train, processes=2)
    """
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1.")
    if "fork" not in multiprocessing.get_all_start_methods():
        raise RuntimeError(
            "launch copies this process, which this system cannot do. Write the call into a script "
            "and start it with torchrun --nproc-per-node 2 script.py."
        )
    if torch.cuda.is_initialized():
        raise RuntimeError(USED_GPU)
    context, children, pipes = multiprocessing.get_context("fork"), [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(processes):
                pipe, theirs = context.Pipe()
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes}
                job = (theirs, folder, place, function, arguments)
                child = context.Process(target=_child, args=job, daemon=True)
                child.start()
                theirs.close()
                children.append(child)
                pipes.append(pipe)
            return _results(pipes)[0]
        finally:
            for child in children:
                child.kill()
                child.join()


def _child(pipe, folder, place, function, arguments):
    """Run the function in a new thread, because a fork breaks the old threads' OpenMP."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends this
    # A notebook's progress bar does not work in a copy of its kernel.
    os.environ.update({name: str(value) for name, value in place.items()}, MMLKIT_HEADLESS="1")
    threads = max(1, torch.get_num_threads() // place["WORLD_SIZE"])

    def run():
        try:
            torch.set_num_threads(threads)
            distributed.init_process_group(
                init_method=f"file://{folder}/store",
                rank=place["RANK"],
                world_size=place["WORLD_SIZE"],
            )
            result = function(*arguments)
            sys.stdout.flush()
            pipe.send((_on_cpu(result) if place["RANK"] == 0 else None, None))
        except BaseException:
            pipe.send((None, traceback.format_exc()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    # Wait for the parent to end this process: it reads the result's tensors from here, and an
    # early end would be a second error in the other processes.
    multiprocessing.parent_process().join()


def _on_cpu(result):
    """Move models and tensors from the GPU, whose memory ends with this process."""
    if isinstance(result, (torch.nn.Module, torch.Tensor)):
        return result.cpu()
    if type(result) in (list, tuple):
        return type(result)(map(_on_cpu, result))
    return {key: _on_cpu(one) for key, one in result.items()} if type(result) is dict else result


def _results(pipes):
    """Return what each process sent, or raise the failure that came before the others."""
    results, failed = {}, {}
    while waiting := [pipe for pipe in pipes if pipe not in results and pipe not in failed]:
        ready = wait(waiting, 1 if failed else None)
        for pipe in ready:
            try:
                results[pipe], error = pipe.recv()
            except EOFError:
                error = KILLED
            if error is not None:
                failed[pipe] = error
        if failed and not ready:
            break
    if failed:
        # A killed process makes the others fail, and their errors may arrive before its end.
        pipe = next((one for one, error in failed.items() if error == KILLED), next(iter(failed)))
        number = f"{pipes.index(pipe)} of {len(pipes)}"
        raise RuntimeError(f"Process {number} failed, and all were ended:\n{failed[pipe]}")
    return [results[pipe] for pipe in pipes]
