"""The questions of assignment 2: orthogonal heads and their pruning (MML v2).

The right answers are written with functions of torch, because a table of mistakes replaces their
parts. The tests compare them with mmlkit.heads, with autograd and with scikit-learn.
"""

import torch
from torch.nn import functional as F

from mmlcourse.grading.questions import other, question, questions_of
from mmlcourse.lessons.checks import check_collapse
from mmlcourse.lessons.checks.compare import plain
from mmlcourse.lessons.checks.cross_dataset import improvement
from mmlcourse.lessons.checks.pruning import head_average

__all__ = ["QUESTIONS"]

# The default edition has the first value of each variant.
LOSS = {"pairs": ("unordered", "ordered"), "similarity": ("dot", "cosine")}
TIES = {"ties": ("higher", "lower")}
GATE = {"gate": ("at_least", "more_than")}
VOTE = {
    "logits": "the softmax of the active heads' mean logits",
    "probabilities": "the mean of the active heads' probabilities",
}


def _mask(draw, M):
    """Draw the mask of M heads: the first is dropped, and half of the others stay active."""
    active = torch.ones(M, dtype=torch.bool)
    active[[0, 1 + draw.size(1, M - 2)]] = False
    return active


# ---- the heads and their task losses ----


def _head_logits_cases(draw):
    """Draw sentence vectors, the heads and their mask; in the last case one head is active."""
    cases = []
    for alone in (False, False, True):
        B, M, C, D = draw.size(2, 3), draw.size(5, 7), draw.size(3, 4), draw.size(4, 6)
        active = torch.arange(M) == 1 if alone else _mask(draw, M)
        cases.append((draw.normal(B, D), draw.normal(M, C, D), draw.normal(M, C), active))
    return cases


@question(
    "head_logits",
    points=8,
    difficulty=1,
    hours=0.5,
    cases=_head_logits_cases,
    rule=lambda vote: {
        "logits": "x F_j^T + b_j of every active head j, [B, A, C]",
        "probabilities": f"{VOTE[vote]}, [B, C]",
    },
    order=("probabilities", "logits"),
    gradients={0: [0, 1, 2], 1: [0, 1, 2]},
    variants={"vote": tuple(VOTE)},
)
def _head_logits(pick, x, weight, bias, active, vote):
    """Return the logits of the active heads [B, A, C] and the probabilities [B, C]."""
    A = int(active.sum())
    chosen = pick(
        active,
        {
            "dropped heads are used too": torch.ones_like(active),
            "the dropped heads are used, the active ones are not": ~active,
            "the first A heads are used; the mask says which ones": torch.arange(len(active)) < A,
        },
    )
    weight, bias = weight[chosen], bias[chosen]
    biases = pick(bias, {"the biases are missing": 0 * bias})
    plain = torch.einsum("bd,acd->bac", x, weight)
    mixed = plain.flatten(1).view(len(x), -1, len(weight)).transpose(1, 2)
    logits = biases + pick(plain, {"view mixes heads and classes; the classes run fastest": mixed})
    mean, turned = logits.mean(1), other(VOTE, vote)
    votes = {"logits": mean.softmax(-1), "probabilities": logits.softmax(-1).mean(1)}
    probabilities = pick(
        votes[vote],
        {
            f"this is {VOTE[turned]}; this course takes {VOTE[vote]}": votes[turned],
            "the logits are summed, not averaged": logits.sum(1).softmax(-1),
            "the sum is divided by the number of all heads, not of the active ones": (
                logits.sum(1) / len(active)
            ).softmax(-1),
            "these are logits; the softmax is missing": mean,
            "the softmax runs over the sentences": mean.softmax(0),
        },
    )
    return logits, probabilities


def _task_losses_cases(draw):
    """Draw logits of several heads, and labels; one label is 2, which the misprint multiplies."""
    cases = []
    for _ in range(2):
        B, A, C = draw.size(4, 6), draw.size(3, 5), draw.size(3, 4)
        labels = draw.integers(C, B)
        labels[0] = 2
        cases.append((draw.normal(B, A, C), labels))
    return cases


@question(
    "task_losses",
    points=5,
    difficulty=2,
    hours=0.5,
    cases=_task_losses_cases,
    gradients={0: [0]},
    rule={
        "total": "the sum over heads of their mean cross-entropies",
        "losses": "the mean over the sentences of each head's cross-entropy, [A]",
    },
)
def _task_losses(pick, logits, labels):
    """Return the sum of the heads' losses, and the losses [A]."""
    places = labels[:, None, None].expand(-1, logits.shape[1], 1)
    of_label = lambda values: values.gather(-1, places)[..., 0]  # [B, A, C] to [B, A]
    logs = of_label(logits.log_softmax(-1))
    others = labels.repeat(logits.shape[1]).view(logs.shape)[..., None]  # instead of expand
    each = pick(
        -logs,
        {
            "the logits of a sentence meet labels of other sentences; repeat every label A times "
            "in a row": -logits.log_softmax(-1).gather(-1, others)[..., 0],
            "the softmax is taken twice; F.cross_entropy takes logits": -of_label(
                logits.softmax(-1).log_softmax(-1)
            ),
            "this is the logarithm of a logit, as Eq. 3 is printed; take log softmax": -of_label(
                logits.log()
            ),
            "the number of the label is a factor, as Eq. 3 is printed": -logs * labels[:, None],
            "the minus is missing": logs,
            "the logarithm is missing": -logs.exp(),
            "the softmax runs over the heads": -of_label(logits.log_softmax(1)),
        },
    )
    losses = pick(
        each.mean(0),
        {"the losses are summed over the sentences; take their mean": each.sum(0)},
    )
    total = pick(
        losses.sum(),
        {
            "this is the mean over the heads; Eq. 3 takes their sum": losses.mean(),
            "this is the largest loss": losses.max(),
            "this is the loss of the mean logits, not the sum of the heads' losses": (
                F.cross_entropy(logits.mean(1), labels)
            ),
        },
    )
    return total, losses


# ---- the multiverse loss ----


def _heads_cases(draw):
    """Draw the weights of active heads; A, C and D differ."""
    return [
        (draw.normal(draw.size(5, 6), draw.size(3, 4), draw.size(7, 9), scale=0.5),)
        for _ in range(3)
    ]


ONE_HEAD = torch.ones(1, 3, 4)  # the edge: it has no pair


def _similarities(similarity, weight):
    """Return the right heads, and the table with those of the other similarity."""
    unit = F.normalize(weight, dim=-1)
    if similarity == "dot":
        return weight, {"these are cosines; this course takes dot products": unit}
    return unit, {
        "these are dot products; this course takes cosines": weight,
        "cosines divide by both lengths; this divides by the square root of them": weight
        / weight.norm(dim=-1, keepdim=True).sqrt(),
    }


def _loss_rule(pairs, similarity):
    """Return Eq. 4 of an edition in words."""
    which = {"unordered": "r < s", "ordered": "r != s"}[pairs]
    what = {"dot": "<f_r, f_s>", "cosine": "cos(f_r, f_s)"}[similarity]
    return f"the sum of |{what}| over the classes and the pairs of heads with {which}"


@question(
    "multiverse_loss",
    points=9,
    difficulty=2,
    hours=0.75,
    cases=_heads_cases,
    rule=_loss_rule,
    edges=(((ONE_HEAD,), "With one head there is no pair, so the loss is 0."),),
    gradients={0: [0]},
    variants=LOSS,
)
def _multiverse_loss(pick, weight, pairs, similarity):
    """Return the multiverse loss of heads [A, C, D] (MML v2, Eq. 4)."""
    heads = pick(*_similarities(similarity, weight))
    rows = pick(
        heads.transpose(0, 1),
        {
            "the classes of one head are compared, as the first version of the paper prints it; "
            "compare the heads of one class": heads,
            "different classes are compared too": heads.flatten(0, 1)[None],
            "the products are those of the columns": heads.permute(1, 2, 0),
            "the vectors of all labels are joined into one; compare label by label": (
                heads.flatten(1)[None]
            ),
        },
    )
    G = rows @ rows.transpose(1, 2)
    ones, diagonal = torch.ones_like(G[0]), torch.eye(G.shape[1])
    once, twice = ones.triu(1), ones - diagonal
    right, turned = (once, twice) if pairs == "unordered" else (twice, once)
    count = {
        "unordered": "twice; in this course once, r < s",
        "ordered": "only once; in this course twice, r != s",
    }[pairs]
    wrong = {f"every pair is counted {count}": turned, "the diagonal is counted": right + diagonal}
    if pairs == "unordered":
        wrong["the whole matrix is summed: every pair twice, and the diagonal"] = ones
    weights = pick(right, wrong)
    loss = (weights * G.abs()).sum()
    return pick(
        loss,
        {
            "the absolute value is missing": (weights * G).sum(),
            "the absolute value is taken of the sum, not of each product": (weights * G)
            .sum((1, 2))
            .abs()
            .sum(),
            "the products are squared": (weights * G**2).sum(),
            "this is the mean over the pairs": loss / weights.sum(),
            "this is the mean over the classes": loss / len(G),
        },
    )


@question(
    "multiverse_gradient",
    points=13,
    difficulty=3,
    hours=1,
    cases=_heads_cases,
    edges=(((ONE_HEAD,), "With one head there is no pair, so the gradient is 0."),),
    rule=lambda pairs, similarity: f"the gradient of {_loss_rule(pairs, similarity)}",
    variants=LOSS,
    avoid=("torch.autograd", "autograd.grad", "torch.func", "backward"),
)
def _multiverse_gradient(pick, weight, pairs, similarity):
    """Return the gradient of the multiverse loss by the heads, [A, C, D]."""
    lengths = weight.norm(dim=-1, keepdim=True).transpose(0, 1)
    heads = pick(*_similarities(similarity, weight))
    rows = heads.transpose(0, 1)
    off = lambda matrix: matrix * (1 - torch.eye(matrix.shape[-1]))
    G = off(rows @ rows.transpose(1, 2))
    S = G.sign()
    wrong = {
        "each pair moves only one of its heads; take the whole matrix of signs": S.triu(1),
        "the signs are missing: the products themselves stand in the matrix": G,
        "the matrix holds |G|; it holds the signs of G": G.abs(),
        "the signs are missing: the other heads are added, and none is subtracted": off(
            torch.ones_like(G)
        ),
    }
    if similarity == "dot":  # with cosines, the last step removes the diagonal's part
        wrong["the diagonal is not set to zero"] = S + torch.eye(len(weight))
    S = pick(S, wrong)
    factor = {"unordered": 1, "ordered": 2}[pairs]
    times = {"unordered": "once", "ordered": "twice"}[pairs]
    factor = pick(
        factor,
        {
            f"the gradient is half of the right one; a pair occurs {times} in the loss, and moves "
            "both of its heads": factor / 2,
            f"the gradient is twice the right one; a pair occurs {times} in the loss": 2 * factor,
            "the sign of the whole gradient is wrong": -factor,
        },
    )
    gradient = factor * S @ rows
    if similarity == "cosine":
        along = (gradient * rows).sum(-1, keepdim=True) * rows
        gradient = pick(
            (gradient - along) / lengths,
            {
                "the derivative of the length is missing: subtract the part along the head": (
                    gradient / lengths
                ),
                "the division by the length is missing": gradient - along,
            },
        )
    return gradient.transpose(0, 1)


# ---- the moving average ----


def _averages_cases(draw):
    """Draw averages of all heads, losses of the active ones, a step and a momentum."""
    cases = []
    for _ in range(2):
        active = _mask(draw, draw.size(6, 8))
        averages = 0.3 + draw.normal(len(active)).double().abs() / 10
        losses = 0.5 + draw.normal(int(active.sum())).double().abs() / 5
        cases.append((averages, losses, active, draw.size(3, 6), draw.number(0.7, 0.9)))
    return cases


@question(
    "update_averages",
    points=4,
    difficulty=2,
    hours=0.5,
    cases=_averages_cases,
    rule={
        "averages": "gamma a_j + (1 - gamma) L_j for the active heads, and the old a_j for others",
        "corrected": "the new averages / (1 - gamma^t)",
    },
)
def _update_averages(pick, averages, losses, active, t, gamma):
    """Return the new averages [M] and their bias-corrected values [M]."""
    new, corrected = head_average(pick, averages, losses, active, t, gamma)
    few = {"only the active heads are corrected; correct all": corrected.where(active, new)}
    return new, pick(corrected, few)


# ---- MeanShift ----


def _numbers(draw, count, low, high):
    """Draw a float64 tensor of uniform numbers, [count]."""
    return torch.tensor([draw.number(low, high) for _ in range(count)], dtype=torch.float64)


def _mean_shift_cases(draw):
    """Draw values whose windows move four times or more.

    No distance of two values equals the bandwidth, which has more decimals.
    """
    cases = []
    three_moves = lambda value, _: 3 if type(value) is int else value
    while len(cases) < 3:
        values, width = _numbers(draw, draw.size(16, 20), 0.3, 0.9), draw.number(0.07, 0.1)
        case = values, width + 0.000137
        early, places = (_mean_shift.right(pick, *case) for pick in (three_moves, plain))
        if not torch.allclose(early, places, 0, 1e-3):
            cases.append(case)
    return cases


@question(
    "mean_shift",
    points=6,
    difficulty=3,
    hours=1,
    cases=_mean_shift_cases,
    rule="the place where the window of each value stands still",
    avoid=("sklearn",),
)
def _mean_shift(pick, values, bandwidth):
    """Return the resting place of every value's window, [N]."""
    width = pick(
        bandwidth,
        {
            "the window reaches half of the bandwidth to each side": bandwidth / 2,
            "the window reaches twice the bandwidth to each side": 2 * bandwidth,
        },
    )
    moves = pick(
        300,
        {
            "the windows move once; go on until all stand still": 1,
            "the windows move twice; go on until all stand still": 2,
            "the windows do not move": 0,
        },
    )
    how = pick(
        "mean",
        {
            "the values move with the windows; take the mean of the original values": "blurred",
            "the windows move to the median, not to the mean": "median",
            "near values weigh more (a Gaussian kernel); all values in a window count the same": (
                "Gaussian"
            ),
            "a window stays in the middle between its smallest and largest value": "middle",
            "a window contains all smaller values; compare the absolute difference": "one side",
        },
    )
    places = values
    for _ in range(moves):
        before, data = places, places if how == "blurred" else values
        distances = (places[:, None] - data).abs()
        inside = (distances <= width).double()
        if how == "Gaussian":
            inside = (-0.5 * (distances / width) ** 2).exp()
        elif how == "one side":
            inside = (places[:, None] - data <= width).double()
        places = (inside * data).sum(1) / inside.sum(1)
        windows = torch.where(inside > 0, data.expand_as(inside), torch.nan)
        if how == "median":
            places = windows.nanquantile(0.5, dim=1)
        elif how == "middle":
            places = (windows.nanquantile(0, dim=1) + windows.nanquantile(1, dim=1)) / 2
        if torch.equal(places, before):
            break
    ascending = places.sort().values
    return pick(places, {"the places are sorted; keep the order of the values": ascending})


def _merge_cases(draw):
    """Draw values with their resting places.

    The last four values of a case are symmetric: two places hold three values each and lie closer
    than the bandwidth, so the rule for ties decides. The others have small random parts, so that
    none lies in the middle between two centres. In the first two cases it matters that values are
    counted around the places, and not around the values.
    """
    cases = []
    while len(cases) < 6:
        unit, start = draw.number(0.05, 0.15) + 0.000137, draw.number(0.2, 0.4)
        even = start + unit * torch.tensor([0, 0.4, 1, 1.4], dtype=torch.float64)
        values = _numbers(draw, draw.size(24, 26), start + 4 * unit, start + 14 * unit)
        values += 1e-5 * draw.normal(len(values))
        even, bandwidth = even[draw.normal(4).argsort()], 0.65 * unit
        values = torch.cat([values, even])
        case = values, _mean_shift.right(plain, values, bandwidth), bandwidth
        wrong = _centres(case[1].unique(), _counts_of_values(*case), bandwidth, -1)
        found = wrong[(values[:, None] - wrong).abs().argmin(1)]
        if len(cases) > 1 or not torch.equal(found, _merge.right(plain, *case, ties="higher")):
            cases.append(case)
    return cases


def _counts_of_values(values, places, bandwidth):
    """Return for each place the values around a value that rests there, at most: a mistake."""
    near = ((values[:, None] - values).abs() <= bandwidth).sum(1)
    return torch.stack([near[places == one].max() for one in places.unique()])


def _centres(places, counts, bandwidth, sign):
    """Return the places that are kept, those with the largest counts first."""
    kept = []
    for _, place in sorted(zip((-counts).tolist(), (sign * places).tolist())):
        if all(abs(place - centre) > bandwidth for centre in kept):
            kept.append(place)
    return sign * torch.tensor(kept, dtype=torch.float64)


@question(
    "merge",
    points=9,
    difficulty=3,
    hours=1,
    cases=_merge_cases,
    rule=lambda ties: (
        "the nearest centre of every value; of places closer than the bandwidth, that with the "
        f"most values is a centre, and with equal counts the {ties} one"
    ),
    variants=TIES,
    avoid=("sklearn",),
)
def _merge(pick, values, places, bandwidth, ties):
    """Return the centre of every value's cluster, [N]."""
    each = places.unique()
    near = lambda data, width: ((each[:, None] - data).abs() <= width).sum(1)
    right = near(values, bandwidth)
    counts = pick(
        right,
        {
            "the places are taken in ascending order, not by their counts": -each,
            "the places with the fewest values come first": -right,
            "the windows that rest at a place are counted, not the values around it": near(
                places, 1e-9
            ),
            "the places around a place are counted, not the values around it": near(
                places, bandwidth
            ),
            "the values around a value are counted, not those around its place": _counts_of_values(
                values, places, bandwidth
            ),
        },
    )
    order, turned = {"higher": -1, "lower": 1}, other(TIES["ties"], ties)
    sign = pick(
        order[ties], {f"of places with equal counts the {turned} one comes first": order[turned]}
    )
    reach = pick(
        bandwidth,
        {
            "places closer than two bandwidths are merged": 2 * bandwidth,
            "places closer than half of the bandwidth are merged": bandwidth / 2,
            "no places are merged": 1e-9,
        },
    )
    centres = _centres(each, counts, reach, sign)
    distances = (values[:, None] - centres).abs()
    nearest = centres[distances.argmin(1)]
    by_place = centres[(places[:, None] - centres).abs().argmin(1)]
    same = (nearest[:, None] == nearest).double()
    return pick(
        nearest,
        {
            "the centre nearest to a value's resting place is taken, not that nearest to the "
            "value": by_place,
            "these are the resting places of the values' own windows": places,
            "a centre is replaced by the mean of its values": same @ values / same.sum(1),
            "these are numbers of clusters; return the centres": distances.argmin(1).double(),
        },
    )


# ---- the pruning ----


def _prune_case(draw, groups, threshold):
    """Draw one state of the heads: groups (count, level) of active heads, and two dropped ones."""
    near = lambda level: level + draw.number(-0.006, 0.006)
    averages = [near(level) for count, level in groups for _ in range(count)]
    averages += [groups[0][1] - 0.1, groups[0][1] - 0.09]
    active = torch.tensor([True] * (len(averages) - 2) + [False] * 2)
    order = draw.normal(len(averages)).argsort()
    averages = torch.tensor(averages, dtype=torch.float64)
    return averages[order], active[order], draw.number(0.4, 0.55), threshold


def _two_groups(draw, reach):
    """Draw two groups of active heads; the bandwidth is `reach` times their distance.

    The dropped heads lie in the middle, so the standard deviation of all heads is 13 % smaller than
    that of the active ones. With A - 1 it is 10 % larger.
    """
    low = draw.number(0.4, 0.5)
    averages = torch.full((8,), low, dtype=torch.float64) + 1e-4 * draw.integers(4, 8)
    averages[3:6] += 0.1
    averages[6:] += 0.05
    active = torch.arange(8) < 6
    order = draw.normal(8).argsort()
    scale = reach * 0.1 / averages[:6].std(correction=0).item()
    return averages[order], active[order], scale, 3


def _near_groups(draw):
    """Draw heads without clear groups: only MeanShift with merging finds the right mask.

    With no window moved, with no places merged, or with one of the two arguments in the place of
    the other, another mask follows.
    """
    while True:
        averages = _numbers(draw, draw.size(14, 18), 0.4, 0.6)
        averages += 1e-5 * draw.normal(len(averages))
        active, scale = torch.arange(len(averages)) > 1, draw.number(0.3, 0.4)
        chosen = averages[active]
        width = scale * chosen.std(correction=0).item()
        places = _mean_shift.right(plain, chosen, width)
        pairs = ((chosen, places), (chosen, chosen), (places, chosen))
        centres = [_merge.right(plain, *pair, width, ties="higher") for pair in pairs]
        lower = _merge.right(plain, chosen, places, width, ties="lower")
        masks = [one == one.min() for one in (centres[0], lower, *centres[1:], places)]
        masks += [chosen <= chosen.min() + width]
        if torch.equal(*masks[:2]) and not any(torch.equal(masks[0], one) for one in masks[2:]):
            return averages, active, scale, 3


EQUAL = "heads with equal averages are dropped; compare the averages with each other"


def _prune_cases(draw):
    """Draw more heads than the threshold, as many, fewer, and heads with equal averages.

    The standard deviation of the equal averages is not 0, but about 1e-17.
    """
    low = draw.number(0.4, 0.5)
    few = [(3, low), (draw.size(3, 5), low + 0.1)]
    count = sum(one for one, _ in few)
    many = [(draw.size(6, 7), low), (8, low + 0.06), (4, low + 0.2)]
    six = draw.normal(8).argsort() < 6
    equal = torch.full((8,), 0.1, dtype=torch.float64)
    for _ in range(100):  # about every third number will do
        equal[six] = draw.number(0.4, 0.5)
        if equal[six].std(correction=0):
            break
    return [
        _prune_case(draw, many, draw.size(4, 5)),
        _prune_case(draw, many, draw.size(9, 12)),
        _prune_case(draw, few, count),
        _prune_case(draw, few, count + 2),
        (equal, six, draw.number(0.4, 0.55), 3),
        _two_groups(draw, 0.95),
        _two_groups(draw, 1.05),
        *(_near_groups(draw) for _ in range(3)),
    ]


def _run_prune(student, averages, active, scale, threshold):
    """Return the student's mask as numbers."""
    return student(averages, active, scale, threshold).long()


@question(
    "prune",
    points=9,
    difficulty=2,
    hours=0.75,
    cases=_prune_cases,
    driver=_run_prune,
    rule=lambda gate: (
        f"the mask of the lowest cluster of active heads, if {gate.replace('_', ' ')} `threshold` "
        "heads are active; else the old mask"
    ),
    variants=GATE,
    avoid=("sklearn",),
    uses=("mean_shift", "merge"),
)
def _prune(pick, averages, active, scale, threshold, gate):
    """Return the new mask [M] as 0 and 1; no case depends on the rule for ties."""
    taken = pick(active, {"dropped heads are clustered too": torch.ones_like(active)})
    chosen, count = averages[taken], int(active.sum())
    many = {"at_least": count >= threshold, "more_than": count > threshold}
    turned = other(GATE["gate"], gate)
    words = {name: name.replace("_", " ") for name in many}
    gone = torch.zeros_like(active)
    deviation = float(chosen.std(correction=0))
    bandwidth = pick(
        scale * deviation,
        {
            "the bandwidth is `scale` itself; multiply it by the standard deviation": scale,
            "the bandwidth is the standard deviation; multiply it by `scale`": deviation,
            "the standard deviation divides by A - 1; use correction=0": scale
            * float(chosen.std()),
            "the standard deviation is that of all heads; take the active ones": scale
            * float(averages.std(correction=0)),
        },
    )
    equal = pick(taken, {EQUAL: gone})
    if chosen.min() == chosen.max():
        return equal.long()
    places = _mean_shift.right(plain, chosen, bandwidth)
    centres = _merge.right(plain, chosen, places, bandwidth, ties="higher")
    size = torch.stack([(centres == one).sum() for one in centres])
    keep = pick(
        centres == centres.min(),
        {
            "the highest cluster is kept; a low loss is good": centres == centres.max(),
            "the largest cluster is kept": centres == centres[size.argmax()],
            "the heads at or below the lowest centre are kept; keep its whole cluster": (
                chosen <= centres.min()
            ),
            "only the best head is kept": chosen == chosen.min(),
        },
    )
    new = gone.clone()
    new[taken] = keep
    return pick(
        new if many[gate] else active,
        {
            f"heads are dropped where {words[turned]} `threshold` are active; this course asks for "
            f"{words[gate]}": new if many[turned] else active,
            "the threshold is not used, or dropped heads count for it": new,
            "the threshold is compared with the number of heads left; compare it with the number "
            "before": new if int(new.sum()) >= threshold else active,
        },
    ).long()


# ---- the collapse and the comparison ----


def _collapse_cases(draw):
    """Draw the heads, their mask and sentence vectors, in two dtypes."""
    cases = []
    for dtype in (torch.float32, torch.float64):
        M, C, D = draw.size(5, 7), draw.size(2, 4), draw.size(4, 6)
        heads = draw.normal(M, C, D).to(dtype), draw.normal(M, C).to(dtype), _mask(draw, M)
        cases.append((*heads, draw.normal(3, D).to(dtype)))
    return cases


def _run_collapse(student, weight, bias, active, x):
    """Return the weight and the bias of the student's layer, and its logits."""
    layer = student(weight, bias, active)
    return layer.weight.detach(), layer.bias.detach(), layer(x).detach()


@question(
    "collapse",
    points=3,
    difficulty=1,
    hours=0.25,
    cases=_collapse_cases,
    driver=_run_collapse,
    rule={
        "weight": "the mean of the active heads' weights, [C, D]",
        "bias": "the mean of the active heads' biases, [C]",
        "logits": "those of a torch.nn.Linear with this weight and bias",
    },
)
def _collapse(pick, weight, bias, active, x):
    """Return the weight [C, D] and the bias [C] of the one layer, and its logits [3, C]."""
    weight, bias = check_collapse.right(pick, weight, bias, active)
    return weight, bias, x @ weight.T + bias


def _improvements_cases(draw):
    """Draw accuracies in percent of models (rows) on sets (columns), and each model's own set."""
    cases = []
    for _ in range(2):
        R, S = draw.size(3, 4), draw.size(4, 5)
        baseline, ours = (_numbers(draw, R * S, 45, 95).view(R, S) for _ in range(2))
        cases.append((ours, baseline, draw.integers(S, R)))
    return cases


@question(
    "improvements",
    points=4,
    difficulty=2,
    hours=0.5,
    cases=_improvements_cases,
    rule="the mean of ours / baseline over the other sets, minus 1, in percent",
)
def _improvements(pick, ours, baseline, own):
    """Return the relative improvement of every model in percent, [R]."""
    models = zip(ours.tolist(), baseline.tolist(), own.tolist())
    of_sets = lambda row: dict(enumerate(row))
    rows = [improvement(pick, of_sets(a), of_sets(b), one) for a, b, one in models]
    return torch.tensor(rows)


QUESTIONS = questions_of(vars())
