"""The questions of assignment 1: minBERT and its training (Devlin et al. 2019, CS224N handout).

A right answer is written with functions of torch, and not with those of mmlkit, because a table of
mistakes replaces its parts. The tests compare it with mmlkit's modules. Where a lesson has the same
exercise, its table serves both.
"""

import torch
from torch.nn import functional as F

from mmlcourse.grading.questions import other, question, questions_of
from mmlcourse.lessons.checks.finetuning import adamw_parts, check_adamw_step
from mmlcourse.lessons.checks.minbert import (
    RULE,
    activation,
    add_norm,
    check_attention,
    layer,
    normalisation,
    self_attention,
)

__all__ = ["QUESTIONS"]

ATTENTION = ("scaled_dot_product_attention", "MultiheadAttention", "TransformerEncoderLayer")
GELU = {"gelu": ("exact", "tanh")}  # the default edition has the first value of each variant
LOOK = {"all": "to all tokens", "back": "to itself and to tokens before it"}


# ---- attention ----


def _attention_cases(draw):
    """Draw sentences with padding at the end, of one width."""
    d = draw.size(3, 8)
    sizes = [(draw.size(4, 7), draw.size(1, 2)) for _ in range(3)]
    return [
        (*(2 * draw.normal(3, T, d)), torch.tensor([1] * (T - padding) + [0] * padding))
        for T, padding in sizes
    ]


@question(
    "attention",
    points=6,
    difficulty=1,
    hours=0.5,
    cases=_attention_cases,
    rule=lambda look: f"{RULE}, where a token looks {LOOK[look]}",
    variants={"look": tuple(LOOK)},
    avoid=ATTENTION,
)
def _attention(pick, query, key, value, mask, look):
    """Return the weighted sums of values, [T, d]."""
    turned, every = other(LOOK, look), torch.ones(len(mask), len(mask))
    seen = {"all": every, "back": every.tril()}
    seen = pick(
        seen[look],
        {f"a token looks {LOOK[turned]}; in this course it looks {LOOK[look]}": seen[turned]},
    )
    return check_attention.right(pick, query, key, value, mask * seen)


def _mask(draw, B, T):
    """Draw an additive mask of moderate size; the first token is shown, the last is hidden."""
    mask = -3.0 * draw.integers(2, B, 1, 1, T)
    mask[..., 0], mask[..., -1] = 0, -3
    return mask


def _self_attention_cases(draw):
    """Draw hidden states and an additive mask of moderate size, so that its place matters.

    All sizes of a case differ, so that none can stand for another.
    """
    cases = []
    for B, H in ((3, 2), (2, 3)):
        T, d = ((5, 4), (4, 5), (6, 4), (6, 5))[draw.size(0, 3)]
        mask = _mask(draw, B, T)
        weights = draw.maps(dict.fromkeys(("query", "key", "value"), (H * d, H * d)))
        cases.append((draw.normal(B, T, H * d), mask, weights, H))
    return cases


_self_attention = question(
    "self_attention",
    points=5,
    difficulty=3,
    hours=1,
    cases=_self_attention_cases,
    rule="the attention of every head, with the heads side by side again",
    avoid=ATTENTION,
    gradients={0: [0, 2]},
)(self_attention)


# ---- the parts of a layer ----


def _layer_norm_cases(draw):
    """Draw vectors, and an eps that is large enough to show its place."""
    D = draw.size(4, 8)
    return [
        (draw.normal(2, D, D), draw.normal(D), draw.normal(D), draw.number(0.1, 0.5))
        for _ in range(2)
    ]


@question(
    "layer_norm",
    points=3,
    difficulty=1,
    hours=0.3,
    cases=_layer_norm_cases,
    rule="g (x - mean) / sqrt(var + eps) + b, over the last dimension",
    avoid=("LayerNorm", "layer_norm"),
    gradients={0: [0, 1, 2]},
)
def _layer_norm(pick, x, g, b, eps):
    """Return LayerNorm (Ba et al. 2016), [..., D]."""
    dim = pick(-1, {"mean and variance run over the tokens, not over the features": -2})
    mean = pick(x.mean(dim, keepdim=True), {"the mean is not subtracted": 0})
    unbiased = pick(False, {"the variance is divided by D - 1; use unbiased=False": True})
    var = x.var(dim, keepdim=True, unbiased=unbiased)
    root = pick(
        (var + eps).sqrt(),
        {
            "eps is added to the root; it belongs inside, to the variance": var.sqrt() + eps,
            "eps is missing": var.sqrt(),
            "the square root is missing": var + eps,
        },
    )
    scale, shift = pick(
        (g, b),
        {"g and b are missing": (1, 0), "b is missing": (g, 0), "g and b are exchanged": (b, g)},
    )
    return scale * (x - mean) / root + shift


def _feed_forward_cases(draw):
    """Draw vectors and the two maps."""
    D, inner = draw.size(3, 6), draw.size(7, 12)
    maps = draw.maps({"wide": (D, inner), "narrow": (inner, D)})
    return [(draw.normal(2, 3, D), *maps.values())]


@question(
    "feed_forward",
    points=4,
    difficulty=1,
    hours=0.2,
    cases=_feed_forward_cases,
    rule=lambda gelu: f"W2 GELU(W1 x + b1) + b2, with the {gelu} GELU",
    variants=GELU,
    gradients={0: [0, 1, 2, 3, 4]},
)
def _feed_forward(pick, x, wide, wide_bias, narrow, narrow_bias, gelu):
    """Return the feed-forward network, [B, T, D]."""
    kind = activation(pick, gelu)
    end = pick(lambda x: x, {"GELU belongs between the maps, not after the second": kind})
    biases = pick(1, {"the biases are missing": 0})
    return end(kind(x @ wide.T + biases * wide_bias) @ narrow.T + biases * narrow_bias)


def _add_norm_cases(draw):
    """Draw x of width I and a residual of width D; the small second case shows eps."""
    width, D = draw.size(5, 9), draw.size(4, 8)
    weight, bias = draw.maps({"": (width, D)}).values()
    return [
        (draw.normal(2, 3, width), draw.normal(2, 3, D) * scale, weight * scale, bias * scale)
        + (draw.normal(D), draw.normal(D))
        for scale in (1, 0.01)
    ]


_add_norm = question(
    "add_norm",
    points=2,
    difficulty=2,
    hours=0.3,
    cases=_add_norm_cases,
    rule="LayerNorm(residual + W x + b)",
    uses=("layer_norm",),
    gradients={0: [0, 1, 2, 3, 4, 5]},
)(add_norm)


# ---- the layer and the embeddings ----

LAYER = {  # the linear maps of the layer, from and to the sizes D and I
    **dict.fromkeys(("query", "key", "value", "attention_dense"), "DD"),
    "wide": "DI",
    "narrow": "ID",
}
NORMS = ["attention_norm", "output_norm"]


def _layer_cases(draw):
    """Draw sizes, the weights of a layer, hidden states and an additive mask."""
    H, d, inner = draw.size(2, 3), draw.size(2, 3), draw.size(7, 11)
    size = {"D": H * d, "I": inner}
    state = draw.maps({name: (size[a], size[b]) for name, (a, b) in LAYER.items()})
    for name in NORMS:
        state |= {f"{name}.weight": 1 + draw.normal(H * d), f"{name}.bias": draw.normal(H * d)}
    B, T = draw.size(2, 3), draw.size(3, 5)
    mask = _mask(draw, B, T)
    return [(H * d, H, inner, state, draw.normal(B, T, H * d), mask)]


def _run_layer(student, D, H, inner, state, h, mask):
    """Return the output of the student's layer and the gradients of h and of the parameters."""
    part = student(D, H, inner)
    part.load_state_dict(state)
    part.double().eval()
    h = h.double().requires_grad_()  # in float32 the gradient would be mostly rounding
    output = part(h, mask.double())
    if output is None:
        return None
    if output.requires_grad:
        output.square().sum().backward()
    parts = dict(part.named_parameters())
    leaves = [h, *(parts[name] for name in state)]
    first, *rest = [one * 0 if one.grad is None else one.grad for one in leaves]
    return output.detach(), first.detach(), torch.cat([one.detach().flatten() for one in rest])


@question(
    "layer",
    points=11,
    difficulty=3,
    hours=1,
    object="BertLayer",
    cases=_layer_cases,
    driver=_run_layer,
    rule={
        "output": "a = LayerNorm(h + W self_attention(h) + b), then LayerNorm(a + feed_forward(a))",
        "gradient of h": "that of the output, through both residuals",
        "gradients of the parameters": "those of the output; without them the layer cannot learn",
    },
    uses=("self_attention", "feed_forward"),
    variants=GELU,
    avoid=ATTENTION,
)
def _layer(pick, D, H, inner, state, h, mask, gelu):
    """Return the output of a BERT layer [B, T, D] and the gradients of its squares."""
    h, mask = h.double().requires_grad_(), mask.double()
    state = {name: one.double().requires_grad_() for name, one in state.items()}
    names = [*LAYER][3:] + NORMS
    output = layer(pick, h, mask, state, names, state, H, gelu)
    return output.detach(), *_layer_gradients(pick, output, h, state)


def _layer_gradients(pick, output, h, state):
    """Return the gradients of h [B, T, D] and of all parameters, side by side."""
    leaves = [h, *state.values()]
    first, *rest = torch.autograd.grad(output.square().sum(), leaves, materialize_grads=True)
    names = [*LAYER, *NORMS]
    lost = pick(
        [],
        {
            "none reaches query, key and value; pass named_parameters(), not state_dict()": (
                names[:3]
            ),
            "none reaches wide and narrow; use the parameters, not state_dict()": names[4:6],
            "none reaches any parameter; remove detach, no_grad or .data": names,
        },
    )
    rest = [0 * one if name.split(".")[0] in lost else one for name, one in zip(state, rest)]
    first = pick(first, {"no gradient reaches h; remove detach, no_grad or .data": 0 * first})
    return first, torch.cat([one.flatten() for one in rest]).detach()


def _embeddings_cases(draw):
    """Draw ids and the three tables; the small values of the second case show eps."""
    D, words, positions = draw.size(4, 7), draw.size(9, 15), draw.size(8, 12)
    cases = []
    for scale in (1, 0.01):
        B, T = draw.size(2, 3), draw.size(4, 7)
        ids = draw.integers(words, B, T), draw.integers(2, B, T)
        tables = draw.normal(words, D), draw.normal(positions, D), draw.normal(2, D)
        cases.append((*ids, *(scale * one for one in tables), draw.normal(D), draw.normal(D)))
    return cases


@question(
    "embeddings",
    points=2,
    difficulty=2,
    hours=0.3,
    cases=_embeddings_cases,
    object="embed",
    rule="LayerNorm(words + positions + segments)",
    uses=("layer_norm",),
)
def _embeddings(pick, input_ids, token_type_ids, words, positions, segments, g, b):
    """Return the vectors that enter the first layer, [B, T, D]."""
    T = input_ids.shape[1]
    word = words[input_ids]
    place = pick(
        positions[:T],
        {
            "the positions are left out": 0 * positions[:T],
            "the positions count from 0, not from 1": positions[1 : T + 1],
            "every token has position 0": positions[:1],
            "the position table is read with the word ids": positions[input_ids % len(positions)],
        },
    )
    segment = pick(
        segments[token_type_ids],
        {
            "the segments are left out": 0 * word,
            "every token is in segment 0": segments[0],
            "the segments are exchanged": segments[1 - token_type_ids],
        },
    )
    norm = normalisation(pick, g, b)
    total = word + place + segment
    return pick(
        norm(total),
        {
            "LayerNorm is missing": total,
            "LayerNorm belongs around the sum, not around the word vectors": norm(word)
            + place
            + segment,
        },
    )


# ---- the optimizer ----


def _adamw_step_cases(draw):
    """Draw one number with its averages in an early step; eps is large enough to show."""
    moments = (0.5, 1.5), (0.2, 0.9), (0.01, 0.1), (0.01, 0.09)
    settings = (0.05, 0.2), (0.7, 0.9), (0.95, 0.99), (0.01, 0.05), (0.1, 0.3)
    numbers = lambda ranges: [draw.number(*one) for one in ranges]
    return [(*numbers(moments), draw.size(2, 4), *numbers(settings)) for _ in range(2)]


_adamw_step = question(
    "adamw_step",
    points=2,
    difficulty=2,
    hours=0.3,
    cases=_adamw_step_cases,
    rule={
        "theta": "that of the formula: first the step with alpha_t, then the weight decay",
        "m": "beta1 m + (1 - beta1) g",
        "v": "beta2 v + (1 - beta2) g^2",
    },
    order=("m", "v", "theta"),
    avoid=("torch.optim", "optim"),
)(check_adamw_step.right)


DECAY = ("after", "before")


def _adamw_cases(draw):
    """Draw two parameters and four steps; the second has no gradient in the first step."""
    sizes = draw.size(2, 4), draw.size(2, 4)
    gradients = [[draw.normal(size) for size in sizes] for _ in range(4)]
    gradients[0][1] = None
    settings = {
        "lr": draw.number(0.05, 0.2),
        "betas": (draw.number(0.7, 0.9), draw.number(0.9, 0.99)),
        "eps": draw.number(0.05, 0.2),
        "weight_decay": draw.number(0.1, 0.5),
    }
    return [([draw.normal(size) for size in sizes], gradients, settings)]


def _run_optimizer(student, weights, gradients, settings):
    """Return all weights after the steps of the student's optimizer."""
    weights = [torch.nn.Parameter(one) for one in weights]
    optimizer = student(weights, **settings)
    before = torch.cat([one.detach() for one in weights])
    for step in gradients:
        for weight, gradient in zip(weights, step):
            weight.grad = gradient
        optimizer.step()
    after = torch.cat([one.detach() for one in weights])
    return None if torch.equal(before, after) and not any(optimizer.state.values()) else after


def _adamw_path(theta, gradients, times, settings, corrections, roots, decay, fresh, power):
    """Return one parameter after all steps, with `decay` = (place, factor of (lr, alpha))."""
    lr, rate, (b1, b2) = settings["lr"], settings["weight_decay"], settings["betas"]
    place, factor = decay
    m = v = torch.zeros_like(theta)
    for g, t in zip(gradients, times):
        if g is None:
            continue
        alpha = lr * corrections(t, b1, b2)
        g = g + rate * theta if place == "gradient" else g
        m, v = (0 * m, 0 * v) if fresh else (m, v)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**power
        shrink = 1 - factor(lr, alpha) * rate
        theta = theta * shrink if place == "before" else theta
        theta = theta - alpha * m / roots(v, t, b2)
        theta = theta * shrink if place == "after" else theta
    return theta


@question(
    "adamw",
    points=12,
    difficulty=3,
    hours=1,
    object="AdamW",
    cases=_adamw_cases,
    driver=_run_optimizer,
    rule=lambda decay: f"AdamW with eps on the uncorrected root and the decay {decay} the step",
    variants={"decay": DECAY},
    avoid=("torch.optim.AdamW", "torch.optim.Adam", "optim.AdamW", "optim.Adam"),
)
def _adamw(pick, weights, gradients, settings, decay):
    """Return the weights of all parameters after AdamW's steps, [N]."""
    turned = other(DECAY, decay)
    zeros = [[0 * w if g is None else g for g, w in zip(row, weights)] for row in gradients]
    gradients = pick(gradients, {"a parameter whose grad is None must not move; skip it": zeros})
    moves = torch.tensor([[g is not None for g in row] for row in gradients]).long()
    times = pick(
        moves.cumsum(0),
        {
            "every parameter counts its own steps, from its first gradient": (
                torch.ones_like(moves).cumsum(0)
            ),
            "all parameters share one step counter; keep t in state": moves.flatten()
            .cumsum(0)
            .view_as(moves),
            "t is 1 in every step; keep it in state": torch.ones_like(moves),
        },
    )
    fresh = pick(False, {"the averages start again at 0 in every step; keep them in state": True})
    power = pick(2, {"g is not squared in v": 1})
    correction, root, factor = adamw_parts(pick, settings["eps"])
    place = pick(
        decay,
        {
            f"decay comes {turned} the step; in this course it comes {decay} the step": turned,
            "weight decay is missing": None,
            "decay is added to the gradient (L2); AdamW decouples it": "gradient",
        },
    )
    paths = zip(weights, zip(*gradients), times.T.tolist())
    parts = correction, root, (place, factor), fresh, power
    moved = [_adamw_path(*path, settings, *parts) for path in paths]
    return pick(
        torch.cat(moved),
        {"no weight moves; change theta in place, with sub_ or mul_": torch.cat(weights)},
    )


# ---- the training loop ----


def _batches_of(draw, D, C, sizes):
    """Draw batches of different sizes, each ((x [B, D],), y [B])."""
    return [((draw.normal(size, D),), draw.integers(C, size)) for size in sizes]


def _train_cases(draw):
    """Draw the weight of a linear classifier, batches and a learning rate."""
    D, C = draw.size(3, 5), draw.size(3, 4)
    sizes = [draw.size(4, 6), draw.size(2, 3), draw.size(4, 6)]
    return [(draw.normal(C, D), _batches_of(draw, D, C, sizes), draw.number(0.2, 0.5))]


SMOOTHING = {"none": "without label smoothing", "tenth": "with label smoothing of 0.1"}


def _run_training(student, weight, batches, lr):
    """Return the losses of the student's loop and the weight at its end.

    The model halves its logits in training mode, as a visible substitute for dropout.
    """

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def forward(self, x):
            return x @ self.weight.T / (2 if self.training else 1)

    model = Model().eval()
    losses = student(model, torch.optim.SGD(model.parameters(), lr=lr), batches)
    losses = [float(torch.as_tensor(one).detach()) for one in losses]
    return losses, model.weight.detach()


@question(
    "train",
    points=8,
    difficulty=2,
    hours=0.4,
    object="train_epoch",
    cases=_train_cases,
    driver=_run_training,
    rule=lambda smoothing: {
        "losses": f"each batch's mean cross-entropy {SMOOTHING[smoothing]}, before its update",
        "weight": "that after one update per batch",
    },
    order=("weight", "losses"),
    variants={"smoothing": tuple(SMOOTHING)},
)
def _train(pick, weight, batches, lr, smoothing):
    """Return the losses, one per batch, and the weight after one epoch, [C, D]."""
    scale = pick(2, {"the model is not set to training mode; call model.train()": 1})
    reduction = pick("mean", {"the loss is the sum over the rows, not their mean": "sum"})
    smooth, turned = {"none": 0.0, "tenth": 0.1}, other(SMOOTHING, smoothing)
    smooth = pick(
        smooth[smoothing],
        {f"this is {SMOOTHING[turned]}; this course is {SMOOTHING[smoothing]}": smooth[turned]},
    )
    update = pick(
        "right",
        {
            "the gradients are not zeroed, so they add up": "add",
            "the weight never moves: the step is missing, or comes between zero_grad and "
            "backward": "none",
            "the step comes before backward and uses the gradient of the batch before": "late",
            "the weight moves once, after all batches; update after every batch": "once",
        },
    )
    losses, total, before = [], 0, 0
    weight = weight.clone()
    for (x,), y in batches:
        weight = weight.detach().requires_grad_()
        logits = x @ weight.T / scale
        loss = F.cross_entropy(logits, y, reduction=reduction, label_smoothing=smooth)
        (g,) = torch.autograd.grad(loss, weight)
        losses.append(loss.item())
        total = total + g
        moved = {"right": g, "add": total, "late": before}.get(update, 0)
        before = g
        weight = (weight - lr * moved).detach()
    return losses, weight - lr * total if update == "once" else weight


SHARES = {"recall": "with that label", "precision": "predicted as that label"}


def _evaluate_cases(draw):
    """Draw classifiers and batches with 3, 5 and all rows right, so that all means differ."""
    cases = []
    for _ in range(2):
        D, C = draw.size(3, 5), draw.size(4, 5)
        batches = _batches_of(draw, D, C, [draw.size(6, 8), draw.size(6, 8), draw.size(2, 3)])
        weight, labelled = draw.normal(C, D), []
        weight[-1] = weight[:-1].mean(0)  # the last label is never found
        for ((x,), y), right in zip(batches, (3, 5, 8)):
            found = (x @ weight.T).argmax(-1)
            labelled.append(((x,), found.where(torch.arange(len(y)) < right, 1 * (found == 0))))
        cases.append((weight, labelled))
    return cases


def _run_evaluation(student, weight, batches):
    """Return the student's outputs, the passes that record gradients, and if later ones would.

    The model turns its logits round in training mode, as a visible substitute for dropout.
    """

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.recorded = torch.nn.Parameter(weight), 0

        def forward(self, x):
            self.recorded += torch.is_grad_enabled()
            return x @ self.weight.T * (-1 if self.training else 1)

    model = Model().train()
    try:
        accuracy, predictions, shares = student(model, batches)
        later = int(torch.is_grad_enabled())
    finally:
        torch.set_grad_enabled(True)
    found = [int(one) for one in predictions], float(accuracy), [float(one) for one in shares]
    return *found, model.recorded, later


@question(
    "evaluate",
    points=6,
    difficulty=2,
    hours=0.5,
    cases=_evaluate_cases,
    driver=_run_evaluation,
    rule=lambda share: {
        "predictions": "the label with the largest logit, in the order of the rows",
        "accuracy": "the share of right rows among all rows",
        "shares": f"for each label, the share of right rows among the rows {SHARES[share]}",
        "passes that record gradients": "none of them",
        "recording after the function": "on (1)",
    },
    variants={"share": tuple(SHARES)},
    faulty=True,
)
def _evaluate(pick, weight, batches, share):
    """Return the predictions, the accuracy, the shares [C], 0 and 1."""
    sign = pick(1, {"the model is in training mode, where dropout acts": -1})
    found = [(sign * x @ weight.T).argmax(-1) for (x,), _ in batches]
    right = [one == y for one, (_, y) in zip(found, batches)]
    rows, found = torch.cat(right).float(), torch.cat(found)
    accuracy = pick(
        rows.mean(),
        {
            "this is the mean of the batches' accuracies; small batches count too much": sum(
                one.float().mean() for one in right
            )
            / len(right),
            "this is the number of right rows; divide by the number of rows": rows.sum(),
            "this is the number of right rows, divided by the number of batches": rows.sum()
            / len(right),
            "the batches are not all as large as the last one": rows.sum()
            / (len(right) * len(right[-1])),
            "this is in percent": 100 * rows.mean(),
            "this is the accuracy of the last batch": right[-1].float().mean(),
            "this is the share of wrong rows": 1 - rows.mean(),
        },
    )
    seen = {"recall": torch.cat([y for _, y in batches]), "precision": found}
    among = {key: one.bincount(minlength=len(weight)) for key, one in seen.items()}
    turned = other(SHARES, share)
    among = pick(
        among[share].clamp(min=1),
        {
            f"these are shares of the rows {SHARES[turned]}": among[turned].clamp(min=1),
            "these are shares of all rows": len(rows),
            "a label without such rows has 0, not nan": among[share],
        },
    )
    recorded = pick(0, {"autograd records every pass; use torch.no_grad()": len(batches)})
    later = pick(
        1,
        {"gradients stay switched off afterwards; use `with torch.no_grad():` around the loop": 0},
    )
    hits = found[rows > 0].bincount(minlength=len(weight))
    return found, accuracy, hits / among, recorded, later


# ---- sentiment ----


POOLING = ("pooler", "mean")


def _classifier_cases(draw):
    """Draw a tiny encoder, ids with padding, and the weights of the last layer."""
    D, words, C = draw.size(4, 6), draw.size(9, 14), draw.size(3, 5)
    T = draw.size(4, 6)
    mask = torch.tensor([[1] * T, [1] * (T - 2) + [0] * 2])
    encoder = draw.normal(words, D), draw.normal(D, D)
    return [(*encoder, draw.integers(words, 2, T), mask, draw.normal(C, D), draw.normal(C))]


def _run_classifier(student, words, pooler, input_ids, attention_mask, weight, bias):
    """Return the student's logits in both modes, and the trainable parameters in both.

    The encoder adds twice the mean of the tokens to each token, as a substitute for attention.
    """
    import types

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.pooler = torch.nn.Parameter(words), torch.nn.Parameter(pooler)

        def forward(self, input_ids, attention_mask=None):
            h, mask = self.words[input_ids], torch.ones_like(input_ids)[..., None]
            mask = mask if attention_mask is None else attention_mask[..., None]
            h = h + 2 * (h * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
            pooled = torch.tanh(h[:, 0] @ self.pooler.T)
            return types.SimpleNamespace(last_hidden_state=h, pooler_output=pooled)

    def make(freeze):
        model = student(Encoder(), words.shape[1], len(weight), dropout=1.0, freeze=freeze)
        model.classifier.load_state_dict({"weight": weight, "bias": bias})
        return model

    logits = make(False).eval()(input_ids, attention_mask)
    if logits is None:
        return None
    trained = make(False).train()(input_ids, attention_mask)
    counts = [
        sum(one.numel() for one in make(freeze).parameters() if one.requires_grad)
        for freeze in (True, False)
    ]
    return logits.detach(), trained.detach(), *counts


@question(
    "classifier",
    points=9,
    difficulty=2,
    hours=0.5,
    object="SentimentClassifier",
    cases=_classifier_cases,
    driver=_run_classifier,
    rule=lambda pooling: {
        "logits": {
            "pooler": "W dropout(pooler_output) + b",
            "mean": "W dropout(mean of the token vectors without padding) + b",
        }[pooling],
        "logits in training with dropout=1": "b alone: nn.Dropout(dropout) sets every feature to 0",
        "trainable with freeze=True": "the parameters of the last layer alone",
        "trainable with freeze=False": "all parameters",
    },
    variants={"pooling": POOLING},
)
def _classifier(pick, words, pooler, input_ids, attention_mask, weight, bias, pooling):
    """Return the logits in both modes [B, C] and two numbers of trainable parameters."""
    h, mask = words[input_ids], attention_mask[..., None]
    seen = pick(mask, {"attention_mask is not passed to the encoder": torch.ones_like(mask)})
    h = h + 2 * (h * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True)
    reads = {
        "pooler": torch.tanh(h[:, 0] @ pooler.T),
        "mean": (h * mask).sum(1) / mask.sum(1),
    }
    turned = other(POOLING, pooling)
    wrong = {
        "the vector of [CLS] is read before the pooler": h[:, 0],
        "padding is part of the mean": h.mean(1),
        "the sum over tokens is not divided by their number": (h * mask).sum(1),
        "the last token is read": h[:, -1],
        f"the {turned} is read; this course asks for the {pooling}": reads[turned],
    }
    logits = pick(reads[pooling], wrong) @ weight.T + bias
    logits = pick(
        logits,
        {
            "these are probabilities; cross-entropy takes logits": logits.softmax(-1),
            "these are logarithms of probabilities; return the logits": logits.log_softmax(-1),
        },
    )
    head, body = weight.numel() + bias.numel(), words.numel() + pooler.numel()
    frozen = pick(
        head,
        {
            "the encoder is not frozen; set requires_grad_(False) on its parameters": head + body,
            "the last layer is frozen too": 0,
            "the encoder is trained and the last layer is frozen": body,
        },
    )
    trained = pick(
        bias.expand_as(logits),
        {
            "dropout is missing": logits,
            "dropout comes after the linear layer; it belongs before it": 0 * logits,
        },
    )
    return logits, trained, frozen, pick(head + body, {"the encoder is frozen in any case": head})


QUESTIONS = questions_of(vars())
