"""The time until mmlkit is ready: imports after torch's, and `mmlkit --help`.

Every round starts processes of its own, so that nothing is imported already. One process times the
import of torch, then that of mmlkit. The difference of two processes would be less than its noise.
"""

import subprocess
import sys
from pathlib import Path

from timing import alternate, seconds, spread

import mmlkit
from mmlkit.runtime import pick_device

__all__ = ["start_record", "time_start"]

# The names are those of the first example of docs/guide/own-data.md. They import what the
# library is made of.
_IMPORTS = """
from time import perf_counter as now
started = now()
import torch
torch_ready = now()
import mmlkit
mmlkit_ready = now()
from mmlkit import LinearHead, MultitaskModel, evaluate, fit, load_pretrained, load_task, predict
print(torch_ready - started, mmlkit_ready - torch_ready, now() - torch_ready)
"""


def time_start(rounds):
    """Time the imports and the help text.

    Args:
        rounds: rounds of the alternation.

    Returns:
        A record.
    """
    cpu, folder = pick_device("cpu"), Path(mmlkit.__file__).parents[1]

    def run(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)

    turns = {
        "imports": lambda i: [float(text) for text in run("-c", _IMPORTS).stdout.split()],
        "help": lambda i: seconds(lambda: run("-m", "mmlcourse", "--help"), cpu),
    }
    alternate(turns, 1, "start")  # does not count: it brings the files into memory
    return start_record(alternate(turns, rounds, "start"))


def start_record(found):
    """Collect the seconds of all rounds.

    Args:
        found: for each round a dict: "imports", the seconds for torch, for mmlkit after it, and for
            mmlkit and its names; and "help", the seconds of `mmlkit --help`.

    Returns:
        A record: every round, and the median, lowest and highest of each.
    """
    names = ("torch_s", "import_adds_s", "names_add_s", "help_s")
    rounds = [dict(zip(names, [*one["imports"], one["help"]])) for one in found]
    return {
        "comparison": "start",
        **{name: spread(one[name] for one in rounds) for name in names},
        "rounds": [{name: round(value, 4) for name, value in one.items()} for one in rounds],
    }
