"""Run a function in several processes that are copies of this one and train together."""

import multiprocessing
import os
import pickle
import signal
import traceback

import torch
from torch import distributed


def in_processes(function, folder, number=2):
    """Return what the function returns in each process, by rank; the first error is raised.

    Args:
        function: called without arguments, after the processes have joined.
        folder: an empty place, for the file by which they meet.
        number: how many processes.
    """
    context = multiprocessing.get_context("fork")
    results, children = context.SimpleQueue(), []
    for rank in range(number):
        child = context.Process(target=_child, args=(function, folder, rank, number, results))
        child.start()
        children.append(child)
    found = {}
    try:
        while len(found) < number:
            rank, value, error = results.get()
            assert error is None, f"process {rank}: {error}"
            found[rank] = pickle.loads(value)
    finally:
        for child in children:
            child.kill()
            child.join()
    return [found[rank] for rank in range(number)]


def _child(function, folder, rank, number, results):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(number))
    torch.set_num_threads(1)  # a copy has none of the threads of OpenMP
    try:
        store = f"file://{folder}/store"
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=number)
        # As bytes: torch would send tensors by memory that ends with this process.
        results.put((rank, pickle.dumps(function()), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
