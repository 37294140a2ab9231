"""Train and predict on a pretended GPU: shapes and devices are computed there, and no number is.

torch raises an error where two devices meet, and where the host needs a number of the device: there
it would wait for a real GPU. `Copies` raises one where the host waits for a copy to the device.
`python tests/helpers/pretended.py` prints the outcome of every run as JSON: its error (null where
there was none), and the shapes of the tensors that `cpu()` copied to the host. The registration of
the device lasts for the process, so that the tests start another one.
"""

import contextlib
import functools
import json
import types
import warnings
from unittest import mock

import numpy as np
import torch
from ranked import make_ranked
from torch import nn
from torch._subclasses import fake_tensor
from torch.utils import _pytree, backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from mmlkit import runtime
from mmlkit.bert.model import BertConfig, BertModel
from mmlkit.data.batching import collate, encode
from mmlkit.data.loading import TaskData, make_split
from mmlkit.data.tasks import get_task
from mmlkit.heads.linear import LinearHead, PairHead
from mmlkit.heads.multiverse import MultiverseHead
from mmlkit.heads.pruning import HeadPruner
from mmlkit.heads.ranking import RankingHead
from mmlkit.heads.san import SANHead
from mmlkit.pals.task_parts import _KINDS, add_pals
from mmlkit.training import graphs, loop
from mmlkit.training.loop import fit
from mmlkit.training.model import MultitaskModel
from mmlkit.training.optimizers import make_optimizer
from mmlkit.training.step import train_step

DEVICE, AUTOCAST = "pretend", "AutocastPrivateUse1"
# The operations of our models among those that autocast runs in half precision, or in fp32.
CAST_DOWN = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
CAST_UP = ("layer_norm", "softmax.int", "log_softmax.int", "mse_loss", "nll_loss_nd", "logsumexp")


class Coded(dict):
    """The output of a tokenizer of transformers."""

    def __init__(self, encodings, input_ids, token_type_ids):
        super().__init__(input_ids=input_ids, token_type_ids=token_type_ids)
        self.encodings = encodings


class Tokenizer:
    """Give each word the id of its length."""

    cls_token, sep_token = "2", "3"

    def __call__(self, *columns, **options):
        ids, segments = [], []
        for texts in zip(*columns):
            parts = [[len(word) for word in text.split()] + [3] for text in texts]
            ids.append([2, *parts[0], *(token for part in parts[1:] for token in part)])
            rest = sum(len(part) for part in parts[1:])
            segments.append([0] * (1 + len(parts[0])) + [1] * rest)
        rows = [types.SimpleNamespace(overflowing=[])] * len(ids)
        return Coded(rows, ids, segments)

    def convert_ids_to_tokens(self, ids):
        return [str(one) for one in ids]


class Cell(nn.Module):
    """nn.GRUCell, written out: its fused kernel does not run on the pretended device."""

    def __init__(self, size):
        super().__init__()
        self.input, self.hidden = nn.Linear(size, 3 * size), nn.Linear(size, 3 * size)

    def forward(self, x, h):
        r, z, n = self.input(x).chunk(3, 1)
        hidden_r, hidden_z, hidden_n = self.hidden(h).chunk(3, 1)
        z = (z + hidden_z).sigmoid()
        return (1 - z) * (n + (r + hidden_r).sigmoid() * hidden_n).tanh() + z * h


def make_heads():
    """Return a head of each class for tasks of each kind."""
    some = torch.arange(6) % 3 > 0  # two heads are dropped
    heads = {
        "sst": MultiverseHead(32, 5, num_heads=6),
        "sts": LinearHead(32, 1, pooling="mean", activation="sigmoid"),
        "quora": PairHead(32, 2),
        "sst2": LinearHead(32, 2, pooling="cls"),
        "snli": SANHead(32, 3),
        "mrpc": MultiverseHead(32, 2, num_heads=6, pairs="separate"),
        "qnli_rank": RankingHead(32),
    }
    heads["snli"].cell = Cell(32)
    for name in ("sst", "mrpc"):
        heads[name].set_active(some)
        assert len(heads[name].active_indices) == 4  # read here: inside the mode it is an error
    return heads


def make_data(name):
    """Return six rows of a task for training and four for dev."""
    if name == "qnli_rank":
        return make_ranked(queries=4, dev=3)
    task = get_task(name)

    def split(count, part):
        rows = [
            {
                **dict.fromkeys(task.text_columns, "a few words " * (1 + i % 3)),
                "label": task.labels[i % len(task.labels)] if task.labels else float(i % 5),
            }
            for i in range(count)
        ]
        return make_split(task, rows, place=name, name=part)

    return TaskData(task, split(6, "train"), split(4, "dev"), source="made")


def move(model):
    """Give a model parameters and buffers on the pretended device, where `.to` cannot."""

    def empty(value):
        return torch.empty(value.shape, dtype=value.dtype, device=DEVICE)

    for module in model.modules():
        indices = module.active_indices if isinstance(module, MultiverseHead) else None
        for name, value in module._parameters.items():
            if value is not None:
                module._parameters[name] = nn.Parameter(empty(value))
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = empty(value)
        if indices is not None:  # a head reads its mask once after each change
            module._indices = empty(indices)
    return model


class Host(np.ndarray):
    """A copy on the host. It holds ones, because no number was computed."""

    def numpy(self):
        return np.asarray(self)


class Copies(TorchDispatchMode):
    """Refuses copies from the host to the device for which the host waits.

    Such a copy is explicit, or a tensor of the host is the index of a tensor on the device.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found, kwargs = function(*args, **(kwargs or {})), kwargs or {}
        values = _pytree.tree_leaves((args, kwargs, found))
        tensors = [one for one in values if isinstance(one, torch.Tensor) and one.dim()]
        if len({one.device.type for one in tensors}) > 1 and not kwargs.get("non_blocking"):
            shapes = [(one.device.type, list(one.shape)) for one in tensors]
            raise RuntimeError(f"the host waits for a copy to the device: {function}, {shapes}")
        return found


@contextlib.contextmanager
def pretending():
    """Compute no number inside; yield the shapes of the tensors that are copied to the host."""
    copied = []

    def cpu(tensor):
        copied.append(list(tensor.shape))
        return np.ones(tensor.shape).view(Host)

    with (
        mock.patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", 0),  # not even single numbers
        mock.patch.object(torch.Tensor, "cpu", cpu),
        mock.patch.object(loop, "_copy_of", dict),  # an epoch may wait for its weights
        fake_tensor.FakeTensorMode(allow_non_fake_inputs=True),
        Copies(),
    ):
        yield copied


def run(*tasks, kind=None, **options):
    """Train the heads of some tasks in one model with `fit`, which also predicts; return copies."""
    encoder, heads = BertModel(BertConfig.tiny()), make_heads()
    heads = {name: heads[name] for name in tasks or heads}
    if kind is not None:
        size = {} if kind in ("low_rank", "houlsby") else {"size": 12}
        add_pals(encoder, heads, kind=kind, **size)
    data = {name: make_data(name) for name in heads}
    hooks = [HeadPruner(heads[name]) for name in heads if name in ("sst", "mrpc")]
    with pretending() as copied:
        model = move(MultitaskModel(encoder, heads, Tokenizer()))
        for pruner in hooks:
            for name in ("averages", "observed"):
                value = getattr(pruner, name)
                setattr(pruner, name, torch.empty(value.shape, dtype=value.dtype, device=DEVICE))
        fit(model, data, **{"epochs": 1, "batch_size": 6, "hooks": hooks, **options})
    return copied


def recorded():
    """Train with recorded updates, in bf16; the third and fourth epoch replay them."""
    made = []

    def capture(update, pool):
        made.append(update)
        return update, pool

    with mock.patch.object(graphs, "capture_cuda", capture):
        copied = run("sst", "sts", "mrpc", "snli", epochs=4, precision="bf16", graphs=True)
    assert len(made) == 4, made
    return copied


def half_precision(precision):
    """Return the types of the token vectors and of the pooled vectors under autocast."""
    with pretending():
        encoder = move(BertModel(BertConfig.tiny()))
        with runtime.autocast(precision, DEVICE)[0]:
            out = encoder(torch.empty(2, 3, dtype=torch.long, device=DEVICE))
    return [str(out.last_hidden_state.dtype), str(out.pooler_output.dtype)]


def scaled():
    """Train one batch of a task with a gradient scaler; return the copies to the host."""
    head, data = make_heads()["sst"], make_data("sst")
    with pretending() as copied:
        model = move(MultitaskModel(BertModel(BertConfig.tiny()), {"sst": head})).train()
        optimizer, scaler = make_optimizer(model, lr=1e-3), torch.amp.GradScaler(DEVICE)
        batch = collate(encode(Tokenizer(), data.train), range(6)).to(DEVICE)
        train_step(model, batch, optimizer, precision="fp32", scaler=scaler)
    return copied


@contextlib.contextmanager
def fault(change):
    """Put an operation on the loss, which a GPU should not do, into the training step."""
    loss = MultitaskModel.loss

    def changed(model, batch):
        found = loss(model, batch)
        change(found.total)
        return found

    with mock.patch.object(MultitaskModel, "loss", changed):
        yield


RUNS = {
    "every head": run,
    "micro-batches": functools.partial(run, "sst", "quora", micro_batch_size=4),
    "frozen": functools.partial(run, "sst", "quora", freeze_encoder=True, epochs=2),
    "bf16": functools.partial(run, precision="bf16"),
    "fp16": functools.partial(run, precision="fp16"),
    "graphs": recorded,
    "types of bf16": functools.partial(half_precision, "bf16"),
    "types of fp16": functools.partial(half_precision, "fp16"),
    "scaler": scaled,
    **{kind: functools.partial(run, "sst", "sts", kind=kind) for kind in _KINDS},
}
FAULTS = {
    "item": lambda loss: loss.item(),
    "if": lambda loss: bool(loss > 0),
    "mask": lambda loss: loss[None][loss[None] > 0],
    "device": lambda loss: loss[None] * torch.ones(3),
    "copy": lambda loss: torch.ones(3).to(loss.device),
    "index": lambda loss: loss[None][torch.tensor([0])],
    "list": lambda loss: loss[None][[0]],
}


def register():
    """Register the device, with the module that torch.autocast asks for and its casts."""
    backend = types.ModuleType(DEVICE)
    backend.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    backend.is_available = backend.is_initialized = lambda: True
    backend._is_in_bad_fork = lambda: False
    backend.device_count, backend.current_device = lambda: 1, lambda: 0
    backend.manual_seed_all = backend.set_rng_state = lambda *_: None
    backend.get_rng_state = torch.get_rng_state
    backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend)
    libraries = [torch.library.Library(name, "IMPL", AUTOCAST) for name in ("_", "aten")]
    libraries[0].fallback(torch.library.fallthrough_kernel)  # all other operations keep their types
    for names, dtype in ((CAST_DOWN, None), (CAST_UP, torch.float32)):
        for name in names:
            libraries[1].impl(name, functools.partial(cast, name, dtype))
    return libraries  # the registration lasts as long as they do


def cast(name, dtype, *args, **kwargs):
    """Run an operation with its floating tensors in a dtype, by default that of autocast."""
    dtype = dtype or torch.get_autocast_dtype(DEVICE)
    name, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, name), overload or "default")

    def to(one):
        floating = isinstance(one, torch.Tensor) and one.is_floating_point()
        return one.to(dtype) if floating else one

    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, AUTOCAST))
    with torch._C._ExcludeDispatchKeyGuard(key):
        return operation(*_pytree.tree_map(to, args), **_pytree.tree_map(to, kwargs))


def outcome(function):
    """Return a function's result, or the name and the text of its error."""
    try:
        return {"copied": function(), "error": None}
    except Exception as error:
        return {"copied": None, "error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    libraries = register()
    runtime.FP16_DEVICES = (DEVICE,)
    found = {name: outcome(function) for name, function in RUNS.items()}
    for name, change in FAULTS.items():
        with fault(change):
            found[f"fault: {name}"] = outcome(functools.partial(run, "sst2"))
    print(json.dumps(found))
