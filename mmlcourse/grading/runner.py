"""The process that runs a student's functions: it knows the cases, and no answer.

This file runs alone inside the sandbox, as `python runner.py job.json`, with the standard library,
numpy and torch. It executes statements of a notebook, calls the student's functions on the
cases, and writes raw values, one line of JSON per question. The grader imports `encode` and
`decode` from here, and the student's own check `watched`.
"""

import contextlib
import functools
import importlib.abc
import inspect
import json
import math
import os
import signal
import sys
import time
import types
from unittest import mock

__all__ = ["PATIENCE", "decode", "encode", "run", "watched"]

# A question may take its limit in CPU time, and so many times its limit on a clock: a machine with
# other work is no reason to lose points.
PATIENCE = 3


# ---- values ----


def encode(value):
    """Write a value with plain JSON types.

    Args:
        value: numbers, texts, tensors, arrays, and lists, tuples or dicts of them.

    Returns:
        The value in JSON types. Any other object becomes the text that describes it.
    """
    import numpy as np
    import torch

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        kind = str(value.dtype).removeprefix("torch.")
        return {"tensor": value.tolist(), "dtype": kind}
    if isinstance(value, list):
        return [encode(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(one) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(one)] for key, one in value.items()]}
    return {"object": repr(value)[:200]}


def decode(value, make):
    """Read a value that `encode` wrote.

    Args:
        value: JSON types.
        make: a function of nested lists and the name of a dtype, for what was a tensor [...].

    Returns:
        The value. An object of another type becomes its description.
    """
    if isinstance(value, list):
        return [decode(one, make) for one in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return make(value["tensor"], value.get("dtype"))
    if "dict" in value:
        return {decode(key, make): decode(one, make) for key, one in value["dict"]}
    return tuple(decode(value["tuple"], make)) if "tuple" in value else str(value.get("object"))


# ---- what a right value does not show ----


def watched(student, gradients, changes, notes):
    """Return a student's function that notes changed arguments and the gradients of its results.

    Args:
        student: the function; a class is returned as it is.
        gradients: {number of an output: numbers of the arguments on which it depends}.
        changes: whether the function may change its arguments.
        notes: a list; each call appends {"faults": sentences, "gradients": vectors}, with a vector
            for each pair of an output and an argument, in order.

    Returns:
        A function of the same arguments. Where gradients are asked for, its results have none.
    """
    import torch

    if isinstance(student, type) or not callable(student):
        return student
    named = []
    with contextlib.suppress(TypeError, ValueError):  # objects without a signature
        named = [*inspect.signature(student).parameters]

    def function(*case):
        case, leaves, note = list(case), {}, {"faults": [], "gradients": []}
        names = named if len(named) >= len(case) else [str(i + 1) for i in range(len(case))]
        for place in {place for places in gradients.values() for place in places}:
            leaves[place], case[place] = _with_gradients(case[place], names[place])
        before = list(map(_content, case))
        answer = student(*case)
        if answer is None or answer is ...:
            raise AssertionError("it returns nothing so far")
        notes.append(note)
        for name, old, new in zip(names, before, map(_content, case)):
            if old != new and not changes:
                note["faults"].append(f"it changes its argument {name}; change a copy of it.")
        outputs = answer if isinstance(answer, (tuple, list)) else [answer]
        for number, places in gradients.items():
            if number < len(outputs):
                vectors, fault = _differentiate(outputs[number], [leaves[one] for one in places])
                which = f"result {number + 1}" if len(outputs) > 1 else "the result"
                note["gradients"] += vectors
                note["faults"] += [f"{which} {fault}"] * bool(fault)
        if not gradients:
            return answer
        plain = [one.detach() if isinstance(one, torch.Tensor) else one for one in outputs]
        return tuple(plain) if outputs is answer else plain[0]

    return function


def _with_gradients(value, name):
    """Return {name: leaf} of a tensor or of a dict of tensors, and the argument made of them."""
    whole = value if isinstance(value, dict) else {name: value}
    leaves = {key: one.clone().requires_grad_() for key, one in whole.items()}
    # No leaves, so that a change in place is possible.
    changeable = {key: 1 * leaf for key, leaf in leaves.items()}
    return leaves, changeable if isinstance(value, dict) else changeable[name]


def _content(value):
    """Return a text of the numbers in an argument; models and other objects have none."""
    import numpy as np
    import torch

    plain = isinstance(value, (torch.Tensor, np.ndarray, list, tuple, dict))
    return json.dumps(encode(value)) if plain else ""


def _differentiate(output, arguments):
    """Return the gradients of an output by arguments, and why autograd does not find them, or "".

    Args:
        output: the result of a student's function.
        arguments: dicts of leaves, from `_with_gradients`.

    Returns:
        (a vector for each argument, the sentence). The gradients are those of a sum in which every
        entry of the output has another factor, because a softmax has the sum 1.
    """
    import torch

    advice = "do not use detach, item, numpy or no_grad."
    if not isinstance(output, torch.Tensor):
        return [], f"is a {type(output).__name__}; it must be a tensor that autograd knows."
    pairs = [(name, leaf) for one in arguments for name, leaf in one.items()]
    found = [None] * len(pairs)
    try:
        if output.requires_grad:
            factors = torch.arange(output.numel(), dtype=output.dtype).cos().view(output.shape)
            total, leaves = (factors * output).sum(), [leaf for _, leaf in pairs]
            found = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)
    except RuntimeError as error:  # a tensor that the gradient needs was changed in place
        return [], f"has no gradient ({str(error)[:100]}); {advice}"
    lost, each = [], iter(found)
    for one in arguments:  # an entry of a dict may have no effect, such as the bias of the keys
        unknown = [name for name in one if next(each) is None]
        lost += unknown if len(unknown) == len(one) else []
    if lost and output.any():  # without a pair of heads the loss is 0, and needs no gradient
        return [], f"has no gradient by {', '.join(lost)}; {advice}"
    each = (torch.zeros_like(leaf) if one is None else one for (_, leaf), one in zip(pairs, found))
    return [torch.cat([next(each).flatten() for _ in one]) for one in arguments], ""


# ---- the notebook ----


class _Refuse(importlib.abc.MetaPathFinder):
    """Refuse the import of packages and modules that would do the exercise."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        """Raise ModuleNotFoundError for a refused package."""
        if any(f"{name}.".startswith(f"{one}.") for one in self.names):
            raise ModuleNotFoundError(f"{name} is not available in this assignment", name=name)


def _load(statements, seconds, notes):
    """Execute statements of a notebook, each within a time limit, and return its names."""
    module = sys.modules["submission"] = types.ModuleType("submission")
    module.get_ipython = mock.MagicMock()  # of code that asks where it runs
    for number, source, noted in statements:
        try:
            code = compile(source, f"cell {number}", "exec")
            signal.setitimer(signal.ITIMER_REAL, seconds)
            exec(code, vars(module))
        except BaseException as error:  # SystemExit and the alarm too: the other cells go on
            if noted:  # other statements may use values of skipped cells
                notes.append(f"cell {number} stopped with {_text(error)}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return vars(module)


def _text(error):
    return f"{type(error).__name__}: {str(error)[:200]}"


def _alarm(number, frame):
    raise TimeoutError("it took too long")


# ---- the questions ----


def _answers(question, names):
    """Call the student's function on every case; return a record for each."""
    import torch

    student, records = names.get(question["object"]), []
    if student is None:
        return [{"error": ["NameError", f"{question['object']} is not defined"]}]
    gradients = {int(number): places for number, places in question["gradients"].items()}
    notes = []
    function = student = watched(student, gradients, question["changes"], notes)
    if question["driver"]:
        space = {"torch": torch}
        exec(compile(question["driver"], "driver", "exec"), space)
        function = functools.partial(space[question["driver_name"]], student)

    def tensor(values, kind):
        return torch.tensor(values, dtype=getattr(torch, kind))

    for case in question["cases"]:
        torch.manual_seed(0)
        notes.clear()  # of the case before
        try:
            value = encode(function(*decode(case, tensor)))
            faults = [fault for note in notes for fault in note["faults"]][:1]
            vectors = encode(notes[-1]["gradients"] if notes else [])
            records.append({"value": value, "faults": faults, "gradients": vectors})
        except Exception as error:
            records.append({"error": [type(error).__name__, str(error)[:200]]})
    return records


def _fork(question, names, write, size):
    """Answer one question in a process of its own; return why it failed, or None."""
    child = os.fork()
    if not child:
        try:
            os.setpgid(0, 0)
            most = math.ceil(question["seconds"])
            _limit("CPU", most, most + 1)
            records = _answers(question, names)
            line = json.dumps({"question": question["name"], "records": records})
            if len(line) > size:
                failed = f"the results take more than {size // 1000} kB"
                line = json.dumps({"question": question["name"], "failed": failed})
            write(line)
        finally:
            os._exit(0)
    longest = PATIENCE * question["seconds"]
    end = time.monotonic() + longest
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end_group(child)  # processes that it started
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
                return f"it took longer than {question['seconds']:g} seconds of CPU time"
            return None if status == 0 else "the process was killed: memory or CPU time ran out"
        time.sleep(0.005)
    _end_group(child)
    os.waitpid(child, 0)
    return f"it took longer than {longest:g} seconds"


def _limit(name, *limits):
    """Set the soft and the hard limit of a resource, or what is left of the hard one."""
    import resource  # not on Windows, where students call `watched`

    kind = getattr(resource, f"RLIMIT_{name}")
    most = resource.getrlimit(kind)[1]
    least = [one if most == resource.RLIM_INFINITY else min(one, most) for one in limits]
    resource.setrlimit(kind, tuple(least))


def _end_group(leader):
    with contextlib.suppress(OSError):  # all have ended
        os.killpg(leader, signal.SIGKILL)


def run(job):
    """Run a job: load the notebook, then answer its questions.

    Args:
        job: a dict with statements (of `Program.job`), site (folders for imports), refused
            (packages), limits, load_seconds, size and questions.
    """
    channel = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # what the student prints goes nowhere
        os.dup2(null, number)

    def write(line):
        os.write(channel, b"\n" + line.encode() + b"\n")

    for name, limit in job["limits"].items():
        _limit(name, limit, limit)
    sys.path += job["site"]
    import numpy  # noqa: F401
    import torch
    import torch._dynamo  # else every question that makes an optimizer imports it, for 2 seconds

    torch.set_num_threads(1)
    notes = []
    sys.meta_path.insert(0, _Refuse(job["refused"]))
    signal.signal(signal.SIGALRM, _alarm)
    names = _load(job["statements"], job["load_seconds"], notes)
    write(json.dumps({"notes": notes[:20]}))
    for question in job["questions"]:
        try:
            failed = _fork(question, names, write, job["size"])
        except OSError as error:
            failed = f"no process could be started ({error})"
        if failed:
            write(json.dumps({"question": question["name"], "failed": failed}))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    try:
        run(job)
    finally:
        os._exit(0)  # threads, exit handlers and finalizers of the student do not delay the end
