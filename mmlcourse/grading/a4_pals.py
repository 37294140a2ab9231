"""The questions of assignment 4: PALs, annealed sampling and a multi-task model.

Sources: Stickland and Murray 2019; the CS224N report on multi-task BERT with PALs. Letters: B
sentences, T tokens, D hidden size, S projected size, H heads, L layers, C labels.
"""

import functools

import numpy as np
import torch
from torch.nn import functional as F

from mmlcourse.grading.a1_minbert import ATTENTION
from mmlcourse.grading.questions import other, question, questions_of
from mmlcourse.lessons.checks.compare import plain
from mmlcourse.lessons.checks.minbert import activation, self_attention
from mmlcourse.lessons.checks.pals import check_pal_parameters, projected_layer
from mmlcourse.lessons.checks.project import check_overall

__all__ = ["QUESTIONS"]

GELU = {"gelu": ("none", "after")}  # the default edition has the first value


# ---- the projected attention ----


def _pal_maps(draw, D, S):
    """Draw the five linear maps of a projected attention.

    With larger weights a softmax would have near ties, and the order of two products would show.
    """
    own = dict.fromkeys(("query", "key", "value"), (S, S))
    return draw.maps({"down": (D, S), **own, "up": (S, D)}, 0.5)


def _projected_attention_cases(draw):
    """Draw hidden states and an additive mask of moderate size, so that its place matters."""
    H, d = draw.size(2, 3), draw.size(2, 3)
    S, cases = H * d, []
    for _ in range(2):
        B, T, D = draw.size(2, 3), draw.size(3, 5), S + draw.size(2, 4)
        mask = -3.0 * draw.integers(2, B, 1, 1, T)
        cases.append((draw.normal(B, T, D), mask, _pal_maps(draw, D, S), H))
    return cases


@question(
    "projected_attention",
    points=12,
    difficulty=3,
    hours=1,
    cases=_projected_attention_cases,
    rule=lambda gelu: {
        "none": "V^D g(V^E h), with g the attention of H heads of width S / H",
        "after": "GELU(V^D g(V^E h)), with g the attention of H heads of width S / H",
    }[gelu],
    variants=GELU,
    avoid=ATTENTION,
    gradients={0: [0, 2]},
)
def _projected_attention(pick, h, mask, weights, num_heads, gelu):
    """Return TS(h), [B, T, D]."""
    linear = lambda name, x: x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    z = linear("down", h)
    root = (z.shape[-1] / h.shape[-1]) ** 0.5
    scale = pick(1, {"the scores are divided by the root of D / H; attention is S wide": root})
    own = {key: one * (scale if key.startswith("query") else 1) for key, one in weights.items()}
    mixed = self_attention(pick, z, mask, own, num_heads)
    mixed = pick(
        mixed,
        {
            "attention is missing; this is V^D (V^E h)": z,
            "g has a residual; it is attention alone": z + mixed,
        },
    )
    up = lambda x: linear("up", x)
    after = activation(pick) if gelu == "after" else F.gelu
    ends = {"none": up, "after": lambda x: after(up(x))}
    wrong = {"GELU comes before V^D": lambda x: up(F.gelu(x))}
    if gelu == "none":
        wrong["there is a GELU after V^D; this course has none"] = ends["after"]
    added = pick(ends[gelu], wrong)(mixed)
    return pick(added, {"h is added; the layer does that, TS(h) does not": h + added})


# ---- its place in the encoder ----


def _pal_encoder_cases(draw):
    """Draw hidden states, a mask, and the numbers from which the driver makes layers."""
    D, L = draw.size(3, 5), draw.size(2, 3)
    cases = []
    for _ in range(2):
        B, T = draw.size(2, 3), draw.size(3, 5)
        mask = -3.0 * draw.integers(2, B, 1, 1, T)
        cases.append((draw.normal(B, T, D), mask, draw.normal(L, 3, D, D), draw.normal(L, 4, D)))
    return cases


def _run_pal_encoder(student, h, mask, matrices, vectors):
    """Build small layers and a task's function, and return the student's result."""
    import types

    def attention(x, mask, matrix):
        scores = x @ matrix @ x.transpose(-1, -2) + mask[:, 0]
        return scores.softmax(-1) @ x @ matrix

    def make(matrix, vector):
        norm = torch.nn.functional.layer_norm
        return types.SimpleNamespace(
            attend=lambda x, mask: attention(x, mask, matrix[0]),
            norm_1=lambda x: norm(x, x.shape[-1:], vector[0], vector[1]),
            feed_forward=lambda x: torch.tanh(x @ matrix[1]),
            norm_2=lambda x: norm(x, x.shape[-1:], vector[2], vector[3]),
        )

    layers = [make(matrix, vector) for matrix, vector in zip(matrices, vectors)]
    return student(h, mask, layers, lambda x, mask, i: attention(x, mask, matrices[i, 2]))


@question(
    "pal_encoder",
    points=5,
    difficulty=2,
    hours=0.7,
    cases=_pal_encoder_cases,
    driver=_run_pal_encoder,
    rule="a = norm_1(h + attend(h)), then norm_2(a + feed_forward(a) + ts(h)), in every layer",
    gradients={0: [0]},
)
def _pal_encoder(pick, h, mask, matrices, vectors):
    """Return the output of the last layer, [B, T, D]."""

    def encode(h, mask, layers, ts):
        first = h
        layers = pick(
            layers,
            {
                "the layers are used in reverse order": layers[::-1],
                "only the first layer is used": layers[:1],
            },
        )
        blind = pick(mask, {"the mask is not passed on to attend": 0 * mask})
        own = pick(mask, {"the mask is not passed on to ts": 0 * mask})
        same = pick(False, {"every layer calls ts with layer number 0": True})
        old = pick(False, {"ts reads the input of the first layer everywhere": True})
        norms = pick(
            ("norm_1", "norm_2"),
            {
                "norm_1 and norm_2 are exchanged": ("norm_2", "norm_1"),
                "norm_1 is used twice": ("norm_1", "norm_1"),
            },
        )
        for i, one in enumerate(layers):
            attend = functools.partial(one.attend, mask=blind)
            task = lambda x, i=i: ts(first if old else x, own, 0 if same else i)
            ends = (getattr(one, name) for name in norms)
            h = projected_layer(pick, h, attend, one.feed_forward, task, *ends)
        return h

    return _run_pal_encoder(encode, h, mask, matrices, vectors)


# ---- the parameters of one task ----


def _task_part_cases(draw):
    """Draw sizes, hidden states with a mask, and all weights of a task."""
    cases = []
    for _ in range(2):
        H, L = draw.size(2, 3), draw.size(2, 3)
        S, D = 4 * H, 4 * H + draw.size(2, 6)
        own = [f"attention.{i}.{name}" for i in range(L) for name in ("query", "key", "value")]
        state = draw.maps({"down": (D, S), "up": (S, D), **dict.fromkeys(own, (S, S))}, 0.5)
        B, T = draw.size(2, 3), draw.size(3, 5)
        mask = -3.0 * draw.integers(2, B, 1, 1, T)
        cases.append((D, S, H, L, state, draw.normal(B, T, D), mask))
    return cases


def _run_task_part(student, D, S, H, L, state, h, mask):
    """Return what a new part is like, and its outputs with the weights of `state`."""
    torch.manual_seed(0)
    part = student(D, S, H, L)
    if part(h, mask, 0) is None:
        return None
    named = dict(part.named_parameters())
    matrices = {name: one for name, one in named.items() if one.dim() > 1}
    biases = {name: one for name, one in named.items() if one.dim() == 1}
    with torch.no_grad():
        others = [float(one.std()) for name, one in matrices.items() if not name.startswith("up")]
        found = (
            sum(one.numel() for one in named.values()),
            sum(not one.any() for one in matrices.values()),
            sum(not 0.01 < one < 0.03 for one in others),
            sum(bool(one.any()) for one in biases.values()),
            sum(name not in state for name in named),
        )
        for name, one in named.items():
            if name in state and state[name].shape == one.shape:
                one.copy_(state[name])
    outputs = torch.stack([part(h, mask, layer) for layer in range(L)])
    if outputs.requires_grad:
        outputs.square().sum().backward()
    grads = [named[name].grad if name in named else None for name in state]
    pairs = zip(grads, state.values())
    parts = [torch.zeros_like(old) if one is None else one for one, old in pairs]
    return *found, outputs.detach(), torch.cat([one.flatten() for one in parts])


@question(
    "task_part",
    points=9,
    difficulty=2,
    hours=0.8,
    object="TaskPart",
    cases=_task_part_cases,
    driver=_run_task_part,
    rule={
        "number of parameters": "that of V^E and V^D once, and of three S x S maps in every layer",
        "matrices that start at 0": "one, that of V^D",
        "other matrices without the spread 0.02": "none of them",
        "biases that do not start at 0": "none of them",
        "parameters with a name that the table does not have": "none of them",
        "outputs of all layers": "projected_attention with V^E, V^D and the maps of the layer",
        "gradients of the parameters": "those of the outputs' squares",
    },
    variants=GELU,
    uses=("projected_attention",),
)
def _task_part(pick, D, S, H, L, state, h, mask, gelu):
    """Return five numbers about a new part, its outputs [L, B, T, D], and all gradients."""
    ends, maps = 2 * D * S + D + S, 3 * (S * S + S)
    count = pick(
        ends + L * maps,
        {
            "V^E and V^D exist in every layer; all layers share one pair": L * (ends + maps),
            "all layers share query, key and value; every layer has its own": ends + maps,
            "the linear maps have no biases": 2 * D * S + 3 * L * S * S,
            "query, key and value are no parameters of the module; put them into an "
            "nn.ModuleList of nn.ModuleDicts": ends,
            "g has an output projection; it has three maps": ends + L * maps * 4 // 3,
        },
    )
    zero = pick(
        1,
        {
            "V^D does not start at 0": 0,
            "V^E starts at 0 too, so no gradient ever reaches either": 2,
            "all matrices start at 0; only V^D does": 2 + 3 * L,
        },
    )
    spread = pick(
        0,
        {
            "all matrices but V^D start with another spread; it is N(0, 0.02^2)": 1 + 3 * L,
            "V^E starts with another spread; it is N(0, 0.02^2)": 1,
            "query, key and value start with another spread; it is N(0, 0.02^2)": 3 * L,
        },
    )
    biases = pick(
        0,
        {
            "all biases keep the random start of torch; they start at 0": 2 + 3 * L,
            "the bias of V^D does not start at 0": 1,
            "all biases but that of V^D keep the random start of torch": 1 + 3 * L,
        },
    )
    number = pick(lambda i: i, {"every layer uses the attention of layer 0": lambda i: 0})
    seen = pick(mask, {"the mask is not passed on": 0 * mask})
    heads = pick(H, {"the attention has one head; pass num_heads on": 1})
    outputs, state = [], {name: one.clone().requires_grad_() for name, one in state.items()}
    for i in range(L):
        own = {
            key.removeprefix(f"attention.{number(i)}."): one
            for key, one in state.items()
            if key.startswith(("down", "up", f"attention.{number(i)}."))
        }
        outputs.append(_projected_attention.right(plain, h, seen, own, heads, gelu=gelu))
    outputs, leaves = torch.stack(outputs), [*state.values()]
    grads = torch.autograd.grad(outputs.square().sum(), leaves, materialize_grads=True)
    grads = torch.cat([one.flatten() for one in grads])
    copies = (
        "the output is computed from copies without gradients (state_dict, detach or data), so no "
        "parameter can learn"
    )
    return count, zero, spread, biases, 0, outputs.detach(), pick(grads, {copies: 0 * grads})


# ---- what a task may cost ----


_count = functools.partial(check_pal_parameters.right, plain)  # of D, S, L and T


def _largest_size_cases(draw):
    """Draw budgets that a size just meets or just misses, and some between two sizes."""
    cases = []
    for extra in (0, -1, 0, -1, None, None, None):
        D, L, T, H = draw.size(40, 90), draw.size(2, 6), draw.size(2, 8), draw.size(1, 4)
        S = H * draw.size(6, 12)
        low, high = (_count(D, one, L, T) for one in (S, S + H))
        budget = draw.size(low, high - 1) if extra is None else low + extra
        cases.append((D, L, T, H, budget))
    D, L, T = draw.size(40, 90), draw.size(2, 6), draw.size(2, 8)
    few = draw.size(T, _count(D, 2, L, T) - 1), draw.size(1, T)
    return [*cases, *((D, L, T, 2, budget) for budget in few)]


@question(
    "largest_size",
    points=4,
    difficulty=2,
    hours=0.5,
    cases=_largest_size_cases,
    rule="the largest multiple of num_heads whose parameters fit the budget, or 0",
)
def _largest_size(pick, hidden_size, num_layers, num_tasks, num_heads, budget):
    """Return the largest projected size within a budget."""
    D, L, T = hidden_size, num_layers, num_tasks
    bias = pick(1, {"the biases are not counted": 0})
    output = pick(3, {"an output projection is counted; attention has three maps": 4})
    tasks = pick(T, {"this is the size for one task; every task has its own": 1})
    ends = pick(1, {"V^E and V^D are counted in every layer": L})
    layers = pick(L, {"query, key and value are counted once, not in every layer": 1})
    step = pick(num_heads, {"this is no multiple of num_heads": 1})
    equal = pick(0, {"a size that costs exactly the budget is allowed": 1})
    S = 0

    def cost(S):
        maps = output * layers * (S * S + bias * S)
        return tasks * (ends * (2 * D * S + bias * (S + D)) + maps)

    while cost(S + step) + equal <= budget:
        S += step
    return pick(
        S,
        {
            "this is the first size above the budget": S + step,
            "where even S = num_heads is too expensive, the answer is 0": max(S, num_heads),
        },
    )


# ---- sequential attention ----


def _fold_sequential_cases(draw):
    """Draw the maps of a projected attention and of a linear head."""
    cases = []
    for _ in range(2):
        S, C = draw.size(3, 4), draw.size(2, 5)
        D = S + draw.size(2, 4)
        cases.append((_pal_maps(draw, D, S), draw.normal(C, D), draw.normal(C)))
    return cases


@question(
    "fold_sequential",
    points=8,
    difficulty=3,
    hours=0.75,
    cases=_fold_sequential_cases,
    rule=lambda skip: {
        "weight": "W V^D W_v V^E" if skip == "none" else "W (I + V^D W_v V^E)",
        "bias": "b + W (V^D (W_v b_E + b_v) + b_D)",
    },
    variants={"skip": ("none", "residual")},
)
def _fold_sequential(pick, weights, head_weight, head_bias, skip):
    """Return the weight [C, D] and the bias [C] of the equivalent linear head."""
    matrix = lambda name: weights[f"{name}.weight"]
    vector = lambda name: weights[f"{name}.bias"]
    value, own = pick(
        (matrix("value"), vector("value")),
        {
            "the map of the values is left out": (torch.eye(len(matrix("value"))), 0),
            "the map of the queries stands for that of the values": (
                matrix("query"),
                vector("query"),
            ),
            "the map of the values is transposed": (matrix("value").T, vector("value")),
        },
    )
    inner = pick(
        vector("down"), {"the bias of V^E is left out; W_v acts on it": 0 * vector("down")}
    )
    own = pick(own, {"the bias of the values is left out": 0})
    outer = pick(vector("up"), {"the bias of V^D is left out": 0})
    constant = matrix("up") @ (value @ inner + own) + outer
    product = matrix("up") @ value @ matrix("down")
    plain, added = head_weight @ product, head_weight @ (torch.eye(len(product)) + product)
    if skip == "none":
        weight = pick(plain, {"x is added to TS(x); this course replaces x by TS(x)": added})
    else:
        weight = pick(added, {"x is not added to TS(x)": plain})
    last = pick(head_bias, {"the bias of the head is left out": 0 * head_bias})
    folded = pick(
        last + head_weight @ constant,
        {"the biases of TS are left out; this is the head's bias": last},
    )
    return weight, folded


# ---- the order of the tasks ----

LAST = {"fifth": 0.2, "half": 0.5}  # alpha in the last epoch


def _task_order_cases(draw):
    """Draw sizes and numbers from 0 to 1.

    Two tasks of one size put a number on a border. The sum of ten times 0.1 is below 1, so the
    largest number below 1 lies above it.
    """
    E, cases = draw.size(4, 8), []
    for epoch, epochs in ((draw.size(2, E - 1), E), (E, E), (1, 1)):
        sizes = {"sst": draw.size(60, 99), "quora": draw.size(10, 30), "sts": draw.size(300, 900)}
        uniform = [draw.number(0, 0.999) for _ in range(30)]
        cases.append((sizes, epoch, epochs, uniform))
    equal = {"sts": draw.size(50, 500)}
    equal["sst"] = equal["sts"]
    cases.append((equal, 2, E, [0.5, 0.0, draw.number(0.1, 0.4), draw.number(0.6, 0.9)]))
    ten = dict.fromkeys((f"task {i}" for i in range(10)), draw.size(50, 500))
    return [*cases, (ten, 1, 1, [draw.number(0.91, 0.99), float(np.nextafter(1, 0))])]


def _run_task_order(student, sizes, epoch, epochs, uniform):
    """Return the probabilities, and the drawn tasks as numbers in the order of `sizes`."""
    probabilities, order = student(sizes, epoch, epochs, uniform)
    return probabilities, [list(sizes).index(name) for name in order]


@question(
    "task_order",
    points=8,
    difficulty=2,
    hours=0.7,
    cases=_task_order_cases,
    driver=_run_task_order,
    rule=lambda last: {
        "probabilities": "N^alpha / sum of N^alpha, with alpha = 1 - "
        f"{1 - LAST[last]:g} (e - 1) / (E - 1)",
        "order": "for each u the first task, in the order of sizes, whose cumulative probability "
        "is larger than u",
    },
    variants={"last": tuple(LAST)},
)
def _task_order(pick, sizes, epoch, epochs, uniform, last):
    """Return {task: probability} and the number of the task that each u draws."""
    fall, turned = 1 - LAST[last], 1 - LAST[other(LAST, last)]
    passed, steps = epoch - 1, max(epochs - 1, 1)
    alpha = pick(
        1 - fall * passed / steps,
        {
            "epochs count from 1, so alpha is not 1 in the first": 1 - fall * epoch / steps,
            f"alpha is not {1 - fall:g} in the last epoch; divide by E - 1": 1
            - fall * passed / epochs,
            f"alpha ends at {1 - turned:g}, not at {1 - fall:g}": 1 - turned * passed / steps,
            "alpha falls to 0": 1 - passed / steps,
            "alpha rises": 1 - fall + fall * passed / steps,
        },
    )
    single = pick(1.0, {f"with one epoch alone alpha is 1, not {1 - fall:g}": 1 - fall})
    alpha = alpha if epochs > 1 else single
    N = np.array([*sizes.values()], dtype=float)
    power = pick(
        N**alpha,
        {"alpha has no effect: it is always 1, or N is multiplied by it; alpha is an exponent": N},
    )
    share = power / power.sum()
    shown = pick(
        share,
        {
            "the sum over the tasks is not 1": power,
            "N is divided by the sum before the power": (N / N.sum()) ** alpha,
        },
    )
    names = pick(
        list(range(len(N))),
        {
            "the tasks are sorted by size; keep the order of sizes": list(
                (-N).argsort(kind="stable")
            ),
            "the tasks are sorted by name; keep the order of sizes": [
                list(sizes).index(name) for name in sorted(sizes)
            ],
            "the tasks stand in reverse order": list(range(len(N)))[::-1],
        },
    )
    ends = pick(
        share[names].cumsum(),
        {"u is compared with each probability; add up those of the tasks before": share[names]},
    )
    ends[-1] = pick(
        1.0, {"rounding makes the sum smaller than 1; the last task owns the rest": ends[-1]}
    )
    below = pick(
        np.less, {"a number on a border belongs to the task that begins there": np.less_equal}
    )
    order = pick(
        [names[int(below(u, ends).argmax())] for u in uniform],
        {
            "the task with the largest probability is always drawn": [int(share.argmax())]
            * len(uniform)
        },
    )
    return dict(zip(sizes, shown)), order


# ---- heads and losses ----

F_SIZES = {"four": 4, "three": 3}


def _heads_cases(draw):
    """Draw vectors of both sentences, labels of each task, and the weights of the heads."""
    D, cases = draw.size(4, 6), []
    for B in (draw.size(4, 6), draw.size(4, 6), 1):  # one row has scores [1], and not []
        labels = draw.integers(5, B), draw.integers(2, B), 2.5 + draw.normal(B)
        vectors = draw.normal(B, D), draw.normal(B, D)
        cases.append((*vectors, *labels, draw.normal(5, D), draw.normal(2, 4 * D), draw.normal(7)))
    return cases


def _run_heads(student, u, v, sentiment, paraphrase, similarity, own, pair, biases):
    """Return the features, the scores of the three tasks, their losses, and all gradients."""
    heads, u, v = student(u.shape[1]), u.clone().requires_grad_(), v.clone().requires_grad_()
    width = heads.quora.weight.shape[1]
    state = {"sst.weight": own, "quora.weight": pair[:1, :width], "sts.weight": pair[1:, :width]}
    state |= {"sst.bias": biases[:5], "quora.bias": biases[5:6], "sts.bias": biases[6:]}
    heads.load_state_dict(state)
    labels = {"sst": sentiment, "quora": paraphrase, "sts": similarity}
    features = heads.features(u, v)
    if features is None:
        return None
    found = [heads.scores(task, u, None if task == "sst" else v) for task in labels]
    losses = [heads.loss(task, one, labels[task]) for task, one in zip(labels, found)]
    for one in losses:
        if isinstance(one, torch.Tensor) and one.requires_grad:
            one.sum().backward(retain_graph=True)
    named = dict(heads.named_parameters())
    leaves = [u, v, *(named[name] for name in state)]
    grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in leaves]
    plain = [one if one is None else one.detach() for one in (features, *found, *losses)]
    return *plain, torch.cat([one.flatten() for one in grads])


@question(
    "heads",
    points=7,
    difficulty=2,
    hours=0.7,
    object="Heads",
    cases=_heads_cases,
    driver=_run_heads,
    rule=lambda features: {
        "features": {"four": "[u, v, |u - v|, u * v]", "three": "[u, v, |u - v|]"}[features],
        "sst scores": "the linear layer on u, [B, 5]",
        "quora scores": "the linear layer on the features, [B]",
        "sts scores": "the linear layer on the features, [B]",
        "sst loss": "the mean cross-entropy",
        "quora loss": "the mean binary cross-entropy of the logits",
        "sts loss": "the mean squared difference of score and label",
        "gradients of the losses": "those of u, v and the parameters",
    },
    variants={"features": tuple(F_SIZES)},
)
def _heads(pick, u, v, sentiment, paraphrase, label, own, pair, biases, features):
    """Return the features [B, 3D or 4D], three scores, three losses and gradients side by side."""
    width = F_SIZES[features] * u.shape[1]
    leaves = [one.clone().requires_grad_() for one in (u, v, own, pair[:, :width], biases)]
    u, v, own, pair, biases = leaves
    gap = pick(
        (u - v).abs(),
        {
            "the absolute value of the difference is missing": u - v,
            "the difference is squared, its absolute value is asked for": (u - v) ** 2,
            "u and v are added where their difference belongs": u + v,
        },
    )
    first, second = pick((u, v), {"u and v are exchanged": (v, u)})
    parts = [first, second, gap, u * v][: F_SIZES[features]]
    if features == "four":
        parts = pick(parts, {"the product stands before the difference": [*parts[:2], u * v, gap]})
    x = torch.cat(parts, dim=-1)
    linear = lambda row: x @ pair[row] + biases[5 + row]
    logits = u @ own.T + biases[:5]
    logits = pick(logits, {"these are probabilities; the loss takes logits": logits.softmax(-1)})
    quora, sts = linear(0), linear(1)
    quora = pick(quora, {"the sigmoid is applied; return the logit": quora.sigmoid()})
    sts = pick(
        sts,
        {
            "the sigmoid is applied; return the number itself": sts.sigmoid(),
            "the head of quora is used for sts": linear(0),
        },
    )
    losses = _head_losses(pick, logits, quora, sts, sentiment, paraphrase.float(), label)
    grads = torch.autograd.grad(sum(losses), leaves, materialize_grads=True)
    grads = torch.cat([one.flatten() for one in grads])
    lost = "no gradient reaches u, v and the parameters; do not use item, detach or no_grad"
    grads = pick(grads, {lost: 0 * grads})
    return *(one.detach() for one in (x, logits, quora, sts, *losses)), grads


def _head_losses(pick, logits, quora, sts, sentiment, paraphrase, label):
    """Return the losses of sst, quora and sts."""
    reduce = pick(torch.mean, {"this is the sum over the rows, not their mean": torch.sum})
    square = pick(
        (sts - label) ** 2,
        {
            "the label is divided by 5": (sts - label / 5) ** 2,
            "this is the absolute difference, not its square": (sts - label).abs(),
            "[B, 1] and [B] broadcast to [B, B], so every score meets every label": (
                sts[:, None] - label
            )
            ** 2,
        },
    )
    binary = functools.partial(F.binary_cross_entropy_with_logits, reduction="none")
    cross = pick(
        binary(quora, paraphrase),
        {
            "the sigmoid is applied twice": binary(quora.sigmoid(), paraphrase),
            "this is the squared error": (quora.sigmoid() - paraphrase) ** 2,
            "the labels are exchanged": binary(quora, 1 - paraphrase),
        },
    )
    each = F.cross_entropy(logits, sentiment, reduction="none"), cross, square
    return [reduce(one) for one in each]


# ---- prediction files ----

HEADERS = {  # of the starter code of the CS224N project, misspelling included
    "sst": "Predicted_Sentiment",
    "quora": "Predicted_Is_Paraphrase",
    "sts": "Predicted_Similiary",
}


def _ids(draw, count):
    """Draw different ids of letters and digits."""
    return [f"{one:05x}" for one in draw.random.choice(16**5, count, replace=False)]


def _prediction_file_cases(draw):
    """Draw ids and scores; some logits of quora lie between 0 and 0.5, and one is 0."""
    N = draw.size(5, 6)
    logits = draw.normal(N)
    logits[:3] = torch.tensor([draw.number(0.1, 0.4), draw.number(0.1, 0.4), 0])
    similarity = 1.5 + draw.normal(N)
    similarity[1] = draw.size(2, 9) / 2  # its last digits are zeros
    return [(_ids(draw, N), draw.normal(N, 5), logits, similarity)]


def _run_prediction_file(student, ids, sentiment, logits, similarity):
    """Return the headers and the rows of three files, as the codes of their characters."""
    scores = {"sst": sentiment, "quora": logits, "sts": similarity}
    files = [student(task, ids, one) for task, one in scores.items()]
    parts = [one.partition("\n") for one in files]
    codes = lambda text, size: [ord(one) for one in text[:size].ljust(size, "\0")]
    headers = [codes(head, 40) for head, _, _ in parts]
    return headers, [codes(end + rows, 160) for _, end, rows in parts]


@question(
    "prediction_file",
    points=3,
    difficulty=1,
    hours=0.5,
    cases=_prediction_file_cases,
    driver=_run_prediction_file,
    rule={
        "headers": "'id \\t NAME ' with NAME as printed in the table",
        "rows": "'id , value ' with a space at the end, and one line end after every line. "
        "(Numbers in this message are codes of characters: 32 is a space, 9 a tab, 10 a line end)",
    },
)
def _prediction_file(pick, ids, *scores):
    """Return the headers [3, 40] and the rows [3, 160], as the codes of characters."""
    start, end = pick(
        ("id \t ", " "),
        {
            "the space at the end of the header is missing": ("id \t ", ""),
            "the header has no spaces around the tab": ("id\t", " "),
            "the header has a comma; only rows have one": ("id , ", " "),
        },
    )
    names = pick(
        HEADERS,
        {
            "'Predicted_Similiary' is corrected; the grader expects the misprint": {
                **HEADERS,
                "sts": "Predicted_Similarity",
            }
        },
    )
    comma, stop = pick(
        (" , ", " "),
        {
            "the space at the end of a row is missing": (" , ", ""),
            "the space before the comma is missing": (", ", " "),
            "rows have a tab; only the header has one": (" \t ", " "),
        },
    )
    yes = pick(
        lambda one: one > 0,
        {
            "a logit is compared with 0.5; its sigmoid is 0.5 at 0": lambda one: one > 0.5,
            "a logit of exactly 0 is not larger than 0": lambda one: one >= 0,
        },
    )
    whole = pick("{:.1f}", {"quora has 1.0 and 0.0, not 1 and 0": "{:.0f}"})
    digits = pick(
        lambda one: f"{one:.3f}",
        {
            "sts has three digits after the point": str,
            "sts has three digits after the point, also where they are 0: 2.500": lambda one: str(
                round(one, 3)
            ),
        },
    )
    first = pick(0, {"the labels of sst count from 0": 1})
    last = pick("\n", {"the line end after the last row is missing": ""})
    values = {
        "sst": lambda one: str(int(one.argmax()) + first),
        "quora": lambda one: whole.format(float(yes(one))),
        "sts": lambda one: digits(float(one)),
    }

    def write(task, ids, scores):
        rows = [f"{one}{comma}{values[task](x)}{stop}" for one, x in zip(ids, scores)]
        return "\n".join([f"{start}{names[task]}{end}", *rows]) + last

    return _run_prediction_file(write, ids, *scores)


# ---- the score of the files ----


def _score_files_cases(draw):
    """Draw files in another order than the labels; predictions or labels may be constant."""
    cases = []
    for constant in (None, "guess", "truth"):
        texts, labels = {}, {}
        for name in HEADERS:
            ids = _ids(draw, draw.size(7, 9))
            truth = draw.integers({"sst": 5, "quora": 2, "sts": 6}[name], len(ids)).tolist()
            guess = [one if draw.size(0, 2) else 1 - (one > 0) for one in truth]
            if name == "sts":
                noise = draw.normal(len(ids)).tolist()
                guess = [round(b - a, 3) for a, b in zip(truth, noise)]  # r is negative
                truth[:2] = 0, 5
                guess = [2.5] * len(ids) if constant == "guess" else guess
                truth = [2.5] * len(ids) if constant == "truth" else truth
            values = [float(one) if name == "quora" else one for one in guess]
            labels[name] = dict(zip(ids, map(float, truth)))
            rows = [f"{ids[i]} , {values[i]} \n" for i in draw.random.permutation(len(ids))]
            texts[name] = "".join([f"id \t {HEADERS[name]} \n", *rows])
        cases.append((texts, labels))
    return cases


def _run_score_files(student, texts, labels):
    """Return the four scores, and which of four faults the student's function refuses."""
    scores = student(texts, labels)
    head, *rows = texts["sst"].splitlines()
    one, value = rows[0].split(" , ")
    faults = {
        "a missing row": rows[1:],
        "a repeated row": [*rows, rows[-1]],
        "an unknown id": [*rows, f"zzz , {value}"],
        "another id": [f"zzz , {value}", *rows[1:]],
    }
    refused = []
    for fault in faults.values():
        try:
            student({**texts, "sst": "\n".join([head, *fault]) + "\n"}, labels)
            refused.append(0)
        except ValueError:
            refused.append(1)
        except Exception:  # a KeyError tells a team nothing about its file
            refused.append(0)
    return *scores, refused


@question(
    "score_files",
    points=5,
    difficulty=2,
    hours=0.8,
    cases=_score_files_cases,
    driver=_run_score_files,
    rule={
        "sst": "the share of right rows",
        "quora": "the share of right rows",
        "r": "Pearson's correlation, or 0 if all predictions or all labels are equal",
        "overall": "the mean of sst, quora and (r + 1) / 2",
        "refused faults": "a ValueError for a missing, a repeated, an unknown and a replaced id",
    },
)
def _score_files(pick, texts, labels):
    """Return two accuracies, r, the overall score, and a list of four refusals."""
    rows = {
        name: [line.split(" , ") for line in text.splitlines()[1:]] for name, text in texts.items()
    }
    by_id = lambda name: [float(dict(rows[name])[one]) for one in labels[name]]
    by_place = lambda name: [float(value) for _, value in rows[name]]
    values = pick(by_id, {"rows are matched by place; match them by id": by_place})
    truth = {name: np.array([*one.values()]) for name, one in labels.items()}
    guess = {name: np.array(values(name)) for name in labels}
    right = {name: guess[name] == truth[name] for name in ("sst", "quora")}
    share = pick(
        lambda one: one.mean(),
        {
            "this is the number of right rows": lambda one: one.sum(),
            "this is the share of wrong rows": lambda one: 1 - one.mean(),
            "this is in percent; it is from 0 to 1": lambda one: 100 * one.mean(),
        },
    )
    sst, quora = share(right["sst"]), share(right["quora"])
    flat, level = not np.ptp(guess["sts"]), not np.ptp(truth["sts"])
    empty = pick(
        0.0,
        {
            "the correlation of a constant is nan; it counts as 0": np.nan,
            "r is nan if all labels are equal; it counts as 0": 0.0 if flat else np.nan,
        },
    )
    r = empty if flat or level else np.corrcoef(guess["sts"], truth["sts"])[0, 1]
    covariance = np.cov(guess["sts"], truth["sts"])[0, 1]
    r = pick(
        r,
        {
            "this is the covariance; divide by both standard deviations": covariance,
            "this is r squared": r * r,
            "this is the share of equal scores": (guess["sts"] == truth["sts"]).mean(),
        },
    )
    overall = check_overall.right(pick, sst, quora, r)
    refused = pick(
        [1, 1, 1, 1],
        {
            "no fault is refused with a ValueError": [0, 0, 0, 0],
            "only the number of rows is compared; compare the ids": [1, 1, 1, 0],
            "only missing ids are refused with a ValueError": [1, 0, 0, 1],
            "repeated ids are not refused with a ValueError": [1, 0, 1, 1],
            "unknown ids are not refused with a ValueError": [1, 1, 0, 1],
            "missing ids are not refused with a ValueError": [0, 1, 1, 1],
        },
    )
    return sst, quora, r, overall, refused


# ---- training ----

CLIP = {"clip": ("global", "each")}


def _train_epoch_cases(draw):
    """Draw a small model, batches, the orders of two epochs and the settings of the optimizer."""
    D = draw.size(2, 4)
    batches = {"sst": draw.normal(3, D), "quora": draw.normal(5, D), "sts": draw.normal(2, D)}
    names = list(batches)
    cycle = [*names, "sts", "sts", "sst", "quora", "sst", "sst"]
    orders = [[cycle[i] for i in draw.random.permutation(len(cycle))] for _ in range(2)]
    settings = {"lr": draw.number(0.1, 0.2), "momentum": 0.9, "weight_decay": 0.1}
    return [(draw.normal(D), draw.normal(3, D), batches, orders, settings)]


def _run_train_epoch(student, shared, own, batches, orders, settings):
    """Return losses, the shared and the own parameters, and the number of steps of each task.

    The model halves its output in training mode, as a visible substitute for dropout. Its
    parameters start with old gradients.
    """

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = torch.nn.Parameter(shared.clone())
            self.own = torch.nn.ParameterDict(dict(zip(batches, own.clone())))

        def loss(self, task, x):
            y = (self.shared * x).sum() + (self.own[task] * x).sum() * 2
            return (y / (2 if self.training else 1) - 1) ** 2

    model, used = Model().eval(), dict.fromkeys(batches, 0)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    lists = {task: list(one) for task, one in batches.items()}
    found = [student(model, optimizer, lists, order, used) for order in orders]
    losses = [float(torch.as_tensor(one).detach()) for losses in found for one in losses]
    parts = [model.own[task].detach() for task in batches]
    return losses, model.shared.detach(), torch.stack(parts), [used[task] for task in batches]


@question(
    "train_epoch",
    changes=True,  # it counts the steps in a dict
    points=9,
    difficulty=3,
    hours=0.8,
    cases=_train_epoch_cases,
    driver=_run_train_epoch,
    rule=lambda clip: {
        "losses": "the loss of every step, before its update",
        "shared parameters": "those after one clipped update for every name of order",
        "own parameters": "those after the clipped updates in the steps of their task alone",
        "used": "the number of steps of every task so far",
    },
    order=("used", "own parameters", "shared parameters", "losses"),
    variants=CLIP,
)
def _train_epoch(pick, *case, clip):
    """Return losses [N], the shared parameters [D], the own ones [3, D] and three counts."""
    turned = other(CLIP["clip"], clip)
    mode = pick(True, {"the model is not set to training mode; call model.train()": False})
    none = pick(
        True,
        {
            "the gradients are not removed before the next step": None,
            "old gradients are in the first step; remove them before a step, not after": "after",
            "the gradients of other tasks are 0, not None, so momentum and decay move their "
            "parameters": False,
        },
    )
    clipped = pick(
        clip,
        {
            {
                "each": "every parameter is clipped alone; clip all of them together",
                "global": "all parameters are clipped together; clip each of them alone",
            }[turned]: turned,
            "the gradients are not clipped": None,
            "the entries are clipped one by one; scale a whole tensor": "entries",
        },
    )
    moves = pick(True, {"no parameter moves: backward or the step is missing": False})
    batch = pick(
        lambda used, task, step: used[task],
        {
            "every step uses the first batch of its task": lambda used, task, step: 0,
            "batches count from 0, not from 1": lambda used, task, step: used[task] + 1,
            "the place in order chooses the batch; each task counts its own steps": (
                lambda used, task, step: step
            ),
        },
    )
    counts = pick(
        "all",
        {
            "used is not changed, so every epoch begins with the first batches again": None,
            "used counts the steps of this epoch alone": "epoch",
        },
    )

    train = functools.partial(_epoch, mode, none, clipped, moves, batch, counts)
    return _run_train_epoch(train, *case)


def _epoch(mode, none, clipped, moves, batch, counts, model, optimizer, batches, order, used):
    """Train for one epoch, with the choices of `_train_epoch`, and return the losses."""
    model.train(mode)
    own = dict.fromkeys(used, 0) if counts == "epoch" else dict(used)
    parameters, losses = list(model.parameters()), []
    for step, task in enumerate(order):
        one = batches[task][batch(own, task, step) % len(batches[task])]
        own[task] += 1
        loss = model.loss(task, one)
        if none in (True, False):
            optimizer.zero_grad(set_to_none=none)
        loss.backward()
        if clipped == "entries":
            torch.nn.utils.clip_grad_value_(parameters, 1.0)
        for group in {"each": parameters, "global": [parameters]}.get(clipped, ()):
            torch.nn.utils.clip_grad_norm_(group, 1.0)
        if moves:
            optimizer.step()
        if none == "after":
            optimizer.zero_grad()
        losses.append(loss.item())
    if counts:
        used.update(own)
    return losses


QUESTIONS = questions_of(vars())
