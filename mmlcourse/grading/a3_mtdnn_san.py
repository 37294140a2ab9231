"""The questions of assignment 3: MT-DNN, its answer module SAN, and its training.

The sources are Liu et al. 2019 (MT-DNN, section 3) and Liu et al. 2018 (SAN). A right answer is
written with functions of torch, and not with those of mmlkit, because a table of mistakes replaces
its parts. The tests compare it with mmlkit's modules. Letters: B pairs, T tokens, D width, C
labels, K steps, Q queries, N candidates.
"""

import itertools

import torch

from mmlcourse.grading.questions import other, question, questions_of
from mmlcourse.lessons.checks.compare import plain

__all__ = ["QUESTIONS"]


# ---- the answer module ----


def _memory(draw):
    """Draw tokens M [B, T, D] and a mask [B, T] with both values in every row and column."""
    B, T, D = draw.random.choice([3, 4, 5, 6, 7], 3, replace=False).tolist()
    place = torch.arange(B)[:, None] + torch.arange(T) + draw.size(0, 2)
    return draw.normal(B, T, D), place % 3 > 0


def _weights(pick, scores, mask, text):
    """Return the softmax of scores [B, T] over the tokens of a mask [B, T], or a mistake."""
    right = scores.masked_fill(~mask, -torch.inf)
    return pick(
        right.softmax(1),
        {
            f"tokens outside the {text} get attention": scores.softmax(1),
            f"scores outside the {text} are 0, not very negative": (scores * mask).softmax(1),
            "the mask comes after the softmax, so the weights do not sum to 1": scores.softmax(1)
            * mask,
            "the softmax runs over the pairs (dim=0), not over the tokens of a pair": right.softmax(
                0
            ),
            f"the mask is inverted, so only tokens outside the {text} count": scores.masked_fill(
                mask, -torch.inf
            ).softmax(1),
            "the softmax is missing": scores * mask,
        },
    )


def _sum(pick, weights, M, mask, text):
    """Return the sum of the tokens M [B, T, D] with weights [B, T], or a mistake."""
    right, share = torch.einsum("bt,btd->bd", weights, M), mask[..., None].float()
    count = share.sum(1)
    return pick(
        right,
        {
            f"this is the plain mean of the {text}": (M * share).sum(1) / count,
            "this is the token with the largest weight": M[range(len(M)), weights.argmax(1)],
            f"the sum is divided by the number of tokens of the {text}": right / count,
        },
    )


SCALE = {"plain": "have no factor", "scaled": "are divided by sqrt(D)"}


def _scaled(pick, scores, D, scale):
    """Return the scores as an edition has them, or as the other one has them."""
    found, turned = {"plain": scores, "scaled": scores / D**0.5}, other(SCALE, scale)
    return pick(
        found[scale],
        {f"the scores {SCALE[turned]}; in this course they {SCALE[scale]}": found[turned]},
    )


@question(
    "summary",
    points=6,
    difficulty=1,
    hours=0.4,
    object="summarise",
    cases=lambda draw: [
        (M, mask, 2 * draw.normal(M.shape[2])) for M, mask in (_memory(draw), _memory(draw))
    ],
    gradients={0: [0, 2], 1: [0, 2]},
    rule=lambda scale: {
        "alpha": f"the softmax of w · M_j, 0 outside the hypothesis; the scores {SCALE[scale]}",
        "s_0": "the sum of alpha_j M_j",
    },
    variants={"scale": tuple(SCALE)},
)
def _summary(pick, M, hypothesis, w, scale):
    """Return the weights alpha [B, T] and the first state s_0 [B, D]."""
    scores = _scaled(pick, M @ w, len(w), scale)
    alpha = _weights(pick, scores, hypothesis, "hypothesis")
    right = _weights(plain, _scaled(plain, M @ w, len(w), scale), hypothesis, "hypothesis")
    return alpha, _sum(pick, right, M, hypothesis, "hypothesis")


def _look_cases(draw):
    """Draw states, tokens, a mask and a matrix."""
    cases = []
    for M, mask in (_memory(draw), _memory(draw)):
        D = M.shape[2]
        cases.append((draw.normal(len(M), D), M, mask, draw.normal(D, D)))
    return cases


@question(
    "look",
    points=8,
    difficulty=2,
    hours=0.6,
    object="attend",
    cases=_look_cases,
    gradients={0: [0, 1, 3], 1: [0, 1, 3]},
    rule=lambda scale: {
        "beta": f"the softmax of M_j · (W s), 0 outside the premise; the scores {SCALE[scale]}",
        "x": "the sum of beta_j M_j",
    },
    variants={"scale": tuple(SCALE)},
)
def _look(pick, s, M, premise, W, scale):
    """Return the weights beta [B, T] and the sum x [B, D]."""
    state = s @ W.T
    state = pick(
        state,
        {
            "W is transposed; W s is s @ W.T for rows s": s @ W,
            "W is missing": s,
            "W is applied twice": state @ W.T,
            "all pairs use the state of the first pair": state[:1].expand_as(s),
        },
    )
    D = M.shape[2]
    scores = _scaled(pick, torch.einsum("btd,bd->bt", M, state), D, scale)
    beta = _weights(pick, scores, premise, "premise")
    clean = _scaled(plain, torch.einsum("btd,bd->bt", M, s @ W.T), D, scale)
    right = _weights(plain, clean, premise, "premise")
    memory = pick(M, {"x is the sum of W M_j; it is the sum of the tokens M_j": M @ W.T})
    return beta, _sum(pick, right, memory, premise, "premise")


def _gru_cases(draw):
    """Draw the input, the state and the nine parameters of a cell, in two sizes."""
    cases = []
    for B, D in (draw.random.choice([2, 3, 4, 5], 2, replace=False).tolist() for _ in range(2)):
        shapes = {"W": (D, D), "U": (D, D), "b": (D,)}
        names = {f"{part}_{gate}": shape for gate in "rzn" for part, shape in shapes.items()}
        weights = {name: draw.normal(*shape) for name, shape in names.items()}
        cases.append((draw.normal(B, D), draw.normal(B, D), weights))
    return cases


RESET = {
    "after": "r multiplies U_n s, after the matrix",
    "before": "r multiplies s, before the matrix U_n",
}
UPDATE = {"keep": "z weighs the old state s", "take": "z weighs the new part n"}


@question(
    "gru",
    points=10,
    difficulty=2,
    hours=0.4,
    cases=_gru_cases,
    gradients={0: [0, 1, 2]},
    rule=lambda reset_gate, update: f"the GRU in which {RESET[reset_gate]}, and {UPDATE[update]}",
    variants={"reset_gate": tuple(RESET), "update": tuple(UPDATE)},
    avoid=("GRUCell", "nn.GRU", "gru_cell"),
)
def _gru(pick, x, s, weights, reset_gate, update):
    """Return the new state [B, D] (Cho et al. 2014)."""
    x, s = pick((x, s), {"x and s are exchanged": (s, x)})
    W, U, b = ({gate: weights[f"{part}_{gate}"] for gate in "rzn"} for part in "WUb")
    turn = pick(torch.t, {"this is x @ W; W x for rows x is x @ W.T": lambda one: one})
    b = pick(b, {"the biases are missing": dict.fromkeys("rzn", 0)})
    r, z = (x @ turn(W[gate]) + s @ turn(U[gate]) + b[gate] for gate in "rz")
    squash = pick(torch.sigmoid, {"the gates need a sigmoid, not tanh": torch.tanh})
    r, z = pick((squash(r), squash(z)), {"r and z are exchanged": (squash(z), squash(r))})
    new, old = x @ turn(W["n"]) + b["n"], s @ turn(U["n"])
    other_reset, other_update = other(RESET, reset_gate), other(UPDATE, update)
    parts = {"after": r * old, "before": (r * s) @ turn(U["n"])}
    n = new + pick(
        parts[reset_gate],
        {
            f"{RESET[other_reset]}; in this course {RESET[reset_gate]}": parts[other_reset],
            "r is not used": old,
            "r multiplies x; it multiplies s": (r * x - x) @ turn(W["n"]) + old,
            "U_n s is missing": 0 * old,
        },
    )
    n = pick(n.tanh(), {"tanh is missing": n, "the new part needs tanh": n.sigmoid()})
    mixed = {"keep": z * s + (1 - z) * n, "take": (1 - z) * s + z * n}
    return pick(
        mixed[update],
        {
            f"{UPDATE[other_update]}; in this course {UPDATE[update]}": mixed[other_update],
            "this is the new part n alone": n,
        },
    )


def _answers_cases(draw):
    """Draw a first state, the matrices of `look` and `gru`, and the last layer, in two sizes."""
    cases = []
    for K in (4, 5):
        B, D, C = draw.size(2, 3), draw.size(3, 5), draw.size(3, 4)
        layer = draw.normal(C, 4 * D), draw.normal(C)
        cases.append((draw.normal(B, D), *draw.normal(2, D, D), *layer, K))
    return cases


def _run_answers(student, s_0, A, G, W, b, K):
    """Return the student's answers with a `look` and a `gru` that are simple functions."""
    look = lambda s: torch.tanh(s @ A)
    gru = lambda x, s: torch.sin(x @ G) + s / 2
    return student(s_0, look, gru, W, b, K)


ORDER = {"state": "[s; x; |s - x|; s * x]", "seen": "[x; s; |x - s|; x * s]"}


@question(
    "answers",
    points=14,
    difficulty=3,
    hours=1,
    object="answer_steps",
    cases=_answers_cases,
    driver=_run_answers,
    gradients={0: [0, 3, 4]},
    rule=lambda order: f"softmax(W {ORDER[order]} + b) with x = look(s), then s = gru(x, s)",
    variants={"order": tuple(ORDER)},
)
def _answers(pick, s_0, A, G, W, b, K, order):
    """Return the probabilities of all steps, [B, K, C]."""
    look, gru = lambda s: torch.tanh(s @ A), lambda x, s: torch.sin(x @ G) + s / 2
    path = pick(
        "right",
        {
            "the GRU comes before the answer, so x_k meets s_(k+1)": "late state",
            "x_k comes from the state before, s_(k-1)": "late look",
            "the state never changes; s = gru(x, s)": "still",
            "the state never looks again; x_k = look(s_k) in every step": "blind",
            "the arguments of gru are exchanged; call gru(x, s)": "exchanged",
        },
    )
    turned = other(ORDER, order)
    ends = pick(
        order,
        {
            f"the features are {ORDER[turned]}; in this course they are {ORDER[order]}": turned,
            "|s - x| lacks its absolute value": "signed",
            "the last feature is s + x, not s * x": "added",
        },
    )
    logits = []
    for s, x in itertools.islice(_states(look, gru, s_0, path), K):
        pair = [x, s] if (order == "seen") != (ends == turned) else [s, x]
        gap, product = pair[0] - pair[1], s + x if ends == "added" else s * x
        features = torch.cat([*pair, gap if ends == "signed" else gap.abs(), product], 1)
        logits.append(features @ W.T)
    logits = torch.stack(logits, 1) + pick(b, {"the bias b is missing": 0 * b})
    return pick(
        logits.softmax(2),
        {
            "the softmax is missing": logits,
            "these are logarithms of probabilities": logits.log_softmax(2),
            "the softmax runs over the steps, not over the labels": logits.softmax(1),
            "the softmax runs over the pairs, not over the labels": logits.softmax(0),
        },
    )


def _states(look, gru, s, path):
    """Yield the pairs (s, x) that are answered, each [B, D]; path names a mistake."""
    before, x = s, look(s)
    while True:
        x = x if path == "blind" else look(before if path == "late look" else s)
        after = {"still": s, "exchanged": gru(s, x)}.get(path, gru(x, s))
        yield (after if path == "late state" else s), x
        before, s = s, after


def _answer_loss_cases(draw):
    """Draw answers and numbers; two pairs keep their sure step alone, and one keeps all.

    One number equals p. Two pairs have the same sure step, so the steps are no permutation of the
    pairs. In the first case there are more pairs than steps, in the second one fewer.
    """
    cases = []
    for B, K in ((draw.size(6, 7), draw.size(3, 5)), (4, draw.size(5, 6))):
        C, p = draw.size(3, 4), draw.size(20, 28) / 64  # exact in float32
        u = draw.integers(1000, B, K) / 1000
        u[0], u[1], u[2] = u[0] * p, p + u[1] * (1 - p), u[2] * p
        sure = (torch.arange(B) + draw.size(0, K - 1)) % K
        sure[3] = sure[2]
        u[3, (sure[3] + 1) % K] = p
        cases.append(((2 * draw.normal(B, K, C)).softmax(2), draw.integers(C, B), u, sure, p))
    return cases


def _run_answer_loss(student, P, y, u, sure, p):
    """Return the steps that the student keeps, as numbers, and the loss."""
    kept, loss = student(P, y, u, sure, p)
    return kept.float(), loss


@question(
    "answer_loss",
    points=6,
    difficulty=2,
    hours=0.7,
    cases=_answer_loss_cases,
    driver=_run_answer_loss,
    gradients={1: [0]},
    rule={
        "kept": "u >= p, and the sure step of every pair",
        "loss": "the mean over pairs of -log(mean of P_k[y] over the kept steps)",
    },
)
def _answer_loss(pick, P, y, u, sure, p):
    """Return the kept steps [B, K] and the loss."""
    steps = torch.arange(P.shape[1])
    own, drawn = steps == sure[:, None], u >= p
    right = drawn | own
    kept = pick(
        right,
        {
            "the sure step is not kept": drawn,
            "only the sure step is kept": own,
            "steps with u < p are kept; they are dropped": ~drawn | own,
            "all pairs keep the sure step of the first pair": drawn | (steps == sure[0]),
            "every pair keeps the sure steps of all pairs": drawn | own.any(0),
            "steps with u < 1 - p are kept; keep those with u >= p": (u < 1 - p) | own,
        },
    )
    q, count = P.gather(2, y[:, None, None].expand(-1, len(steps), 1))[..., 0], right.sum(1)
    total = (q * right).sum(1)
    mean = (P * right[..., None]).sum(1) / count[:, None]
    terms = pick(
        (total / count).log(),
        {
            "this is the mean of the steps' losses; the mean comes before the log": (
                q.log() * right
            ).sum(1)
            / count,
            "the sum is divided by K, not by the number of kept steps": (total / len(steps)).log(),
            "kept steps have the weight 1/(1-p), and the result is not renormalised": (
                total / (1 - p) / len(steps)
            ).log(),
            "dropped steps are counted": q.mean(1).log(),
            "the probabilities are summed; take their mean": total.log(),
            "the log is missing": total / count,
            "the mean over the pairs comes before the log": (total / count)
            .mean()
            .log()
            .expand(len(P)),
            "the softmax of probabilities is taken; F.cross_entropy takes logits": mean.log_softmax(
                1
            ).gather(1, y[:, None])[:, 0],
        },
    )
    terms = pick(-terms, {"the minus is missing": terms})
    return kept.float(), pick(terms.mean(), {"this is the sum over the pairs": terms.sum()})


# ---- the other losses ----


def _similarity_cases(draw):
    """Draw vectors, labels from 0 to a highest one that is not 5, and the last layer."""
    cases = []
    for B, D in (draw.random.choice([3, 4, 5, 6], 2, replace=False).tolist() for _ in range(2)):
        highest = draw.size(7, 9)
        y = draw.integers(10 * highest + 1, B) / 10
        cases.append((draw.normal(B, D), y, draw.normal(1, D), draw.normal(1), float(highest)))
    return cases


UNITS = {
    "fraction": "mean((g - y / highest)^2), with the sigmoid g",
    "score": "mean((highest * g - y)^2), with the sigmoid g",
}


@question(
    "similarity_loss",
    points=6,
    difficulty=1,
    hours=0.4,
    cases=_similarity_cases,
    gradients={0: [0, 2, 3]},
    rule=lambda unit: UNITS[unit],
    variants={"unit": tuple(UNITS)},
    avoid=("mse_loss", "MSELoss"),
)
def _similarity_loss(pick, x, y, w, b, highest, unit):
    """Return the squared error of MT-DNN's Eqs. 2 and 7."""
    g = (x @ w.T + b)[:, 0]
    g = pick(g.sigmoid(), {"the sigmoid is missing": g, "tanh replaces the sigmoid": g.tanh()})
    five = "5 stands in the code; use the argument highest"
    fraction, score = (1, y / highest), (highest, y)
    tables = {
        "fraction": {
            "the labels are not divided by highest": (1, y),
            five: (1, y / 5),
            "the error has the unit of the labels; in this course it is a fraction of highest": (
                score
            ),
        },
        "score": {
            "the sigmoid is not multiplied by highest": (1, y),
            five: (5, y),
            "the error is a fraction of highest; in this course it has the labels' unit": fraction,
        },
    }
    factor, y = pick(fraction if unit == "fraction" else score, tables[unit])
    error = factor * g - y
    table = factor * g[:, None] - y
    square = error.square()
    return pick(
        square.mean(),
        {
            "[B, 1] and [B] broadcast to [B, B]; give both the shape [B]": table.square().mean(),
            "this is the sum over the pairs": square.sum(),
            "this is the absolute error": error.abs().mean(),
            "this is the square root of the loss": square.mean().sqrt(),
        },
    )


def _ranking_case(draw, Q, N):
    """Draw queries: some answers are ranked second or later, and one padded score is the highest.

    Padding stands anywhere in a row.
    """
    scores, real = draw.normal(Q, N), torch.arange(N) < N - torch.arange(Q)[:, None] % 3
    ranked = scores.masked_fill(~real, -torch.inf).argsort(1, descending=True)
    place = torch.tensor([0, 2, 0, 1, 2, 0, 0])[:Q]  # a place among the real candidates
    answer = ranked[torch.arange(Q), place]
    scores[~real] = scores.min() - 1
    scores[2, N - 1] = scores.max() + 1
    order = torch.tensor(draw.random.permutation(N))
    return scores[:, order], real[:, order], order.argsort()[answer], draw.number(1.5, 3)


@question(
    "ranking_loss",
    points=5,
    difficulty=2,
    hours=0.6,
    cases=lambda draw: [_ranking_case(draw, 7, 4), _ranking_case(draw, 6, 5)],
    gradients={1: [0]},
    rule={
        "accuracy": "the share of queries whose answer scores highest among the real candidates",
        "loss": "the mean over queries of -log softmax(gamma * scores) at the answer, where the "
        "softmax runs over the real candidates",
    },
    order=("loss", "accuracy"),
    avoid=("cross_entropy", "CrossEntropyLoss"),
)
def _ranking_loss(pick, scores, real, answer, gamma):
    """Return the accuracy and the loss of MT-DNN's Eqs. 8 and 9, with the log."""
    rows = range(len(scores))
    e = pick(scores, {"a sigmoid comes first, as in Eq. 5; leave it out": scores.sigmoid()})
    e = e * pick(gamma, {"gamma is missing": 1, "the scores are divided by gamma": 1 / gamma})
    low = e.masked_fill(~real, -torch.inf)
    log = pick(
        low.log_softmax(1),
        {
            "padded candidates take part": e.log_softmax(1),
            "padded candidates take part with the score 0": (e * real).log_softmax(1),
            "the softmax runs over the queries, not over the candidates": low.log_softmax(0),
        },
    )
    chosen = pick(answer, {"the first candidate is taken for the answer": 0 * answer})
    terms = log[rows, chosen]
    terms = pick(terms, {"the log is missing, as in the printed Eq. 8": terms.exp()})
    terms = pick(-terms, {"the minus is missing": terms})
    loss = pick(terms.mean(), {"this is the sum over the queries": terms.sum()})
    right = lambda one: (one.argmax(1) == answer).float()
    hits = right(scores.masked_fill(~real, -torch.inf))
    accuracy = pick(
        hits.mean(),
        {
            "a padded candidate can be ranked first": right(scores).mean(),
            "this is a number of queries; divide by Q": hits.sum(),
            "this is the share of wrong queries": 1 - hits.mean(),
            "this is the mean probability of the answer": low.softmax(1)[rows, answer].mean(),
        },
    )
    return accuracy, loss


# ---- training ----


def _batches_cases(draw):
    """Draw three tasks, two of which leave an incomplete batch, and keys for shuffling."""
    cases = []
    for size in draw.random.permutation([3, 4]).tolist():
        counts = {"snli": 3 * size + 1, "stsb": size + draw.size(1, 2), "qnli": 2 * size}
        starts = draw.integers(50, 3).tolist()
        rows = {task: list(range(a, a + n)) for a, (task, n) in zip(starts, counts.items())}
        cases.append((rows, size, draw.normal(3 * size + 1).tolist()))
    return cases


def _run_batches(student, rows, size, keys):
    """Return the student's batches as a table: task, rows, and -1 where there is nothing."""

    def shuffle(items):
        return [items[i] for i in sorted(range(len(items)), key=lambda i: keys[i])]

    names, empty = list(rows), [-1] * (size + 1)
    table = [[names.index(task), *numbers] for task, numbers in student(rows, size, shuffle)]
    table += [[]] * (sum(map(len, rows.values())) - len(table))
    return [line + empty[len(line) :] for line in table]


LAST = {"keep": "is kept", "drop": "is dropped"}


@question(
    "merge",
    points=8,
    difficulty=2,
    hours=0.6,
    object="merge_batches",
    cases=_batches_cases,
    driver=_run_batches,
    rule=lambda last: (
        "the shuffled list of the batches of all tasks; each task's examples "
        f"are shuffled and cut, and an incomplete batch {LAST[last]}"
    ),
    variants={"last": tuple(LAST)},
)
def _merge(pick, rows, size, keys, last):
    """Return the table of batches that `_run_batches` makes, [R, size + 1]."""

    def merge(rows, size, shuffle):
        inner = pick(shuffle, {"the examples of a task are not shuffled before they are cut": list})
        turned, tasks = other(LAST, last), []
        kept = pick(
            last,
            {
                f"an incomplete batch {LAST[turned]}; in this course it {LAST[last]}": turned,
                "an incomplete batch is filled with examples from the start": "fill",
            },
        )
        for task, numbers in rows.items():
            numbers = inner(numbers)
            rest = -len(numbers) % size
            numbers = numbers + numbers[: rest if kept == "fill" else 0]
            cut = [numbers[i : i + size] for i in range(0, len(numbers), size)]
            tasks.append([(task, one) for one in cut if kept != "drop" or len(one) == size])
        flat = lambda lists: list(itertools.chain(*lists))
        turns = [one for turn in itertools.zip_longest(*tasks) for one in turn if one]
        return pick(
            shuffle(flat(tasks)),
            {
                "the merged batches are not shuffled": flat(tasks),
                "only the order of the tasks is shuffled": flat(shuffle(tasks)),
                "the batches are shuffled within each task, before they are merged": flat(
                    map(shuffle, tasks)
                ),
                "the tasks take turns": turns,
            },
        )

    return _run_batches(merge, rows, size, keys)


def _clip_cases(draw):
    """Draw gradients above and below the limit; one parameter has none, and then all."""
    D = draw.size(3, 5)
    cases = []
    for share in (draw.number(0.2, 0.4), draw.number(1.5, 2.5)):
        gradients = [draw.normal(D, D), None, draw.normal(D), 3 * draw.normal(2, D)]
        norm = torch.cat([one.flatten() for one in gradients if one is not None]).norm()
        cases.append((gradients, round(share * norm.item(), 3)))
    return [*cases, ([None] * 2, draw.number(1, 3))]


def _run_clipping(student, gradients, limit):
    """Return the norm, all gradients afterwards (zeros for None), and how many are None."""
    given = [torch.zeros(2) if one is None else one for one in gradients]
    parameters = [torch.nn.Parameter(torch.ones_like(one)) for one in given]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = None if gradient is None else gradient.clone()
    norm = student(parameters, limit)
    left = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    none = sum(one.grad is None for one in parameters)
    return float(norm), torch.cat([one.flatten() for one in left]), none


@question(
    "clip",
    points=3,
    difficulty=2,
    hours=0.4,
    object="clip_gradients",
    cases=_clip_cases,
    driver=_run_clipping,
    rule={
        "norm": "the root of the sum of all squares of all gradients, before clipping",
        "gradients": "the old ones times limit / norm, where the norm is above the limit",
        "gradients that are None": "as many as before",
    },
    avoid=("clip_grad_norm_", "get_total_norm", "clip_grads_with_norm_", "clip_grad_value_"),
)
def _clip(pick, gradients, limit):
    """Return the global norm, the clipped gradients [N], and the number of those that are None."""
    parts = [torch.zeros(2) if one is None else one.flatten() for one in gradients]
    whole, norms = torch.cat(parts), torch.stack([one.norm() for one in parts])
    norm = whole.norm()
    found = pick(
        norm,
        {
            "the square root is missing": norm**2,
            "this is the sum of the tensors' norms": norms.sum(),
            "this is the largest norm of a tensor": norms.max(),
            "this is the norm after clipping": norm.clamp(max=limit),
        },
    )
    scaled = whole * (limit / norm).clamp(max=1)
    own = [one * (limit / length).clamp(max=1) for one, length in zip(parts, norms)]
    clipped = pick(
        scaled,
        {
            "every tensor is clipped by its own norm; one factor holds for all": torch.cat(own),
            "a norm below the limit is raised to it; leave it": whole
            * limit
            / norm.clamp(min=1e-9),
            "the entries are clipped one by one": whole.clamp(-limit, limit),
            "the gradients are not changed; change them in place": whole,
            "the limit is missing from the factor": whole / norm.clamp(min=1),
        },
    )
    none = sum(one is None for one in gradients)
    return found, clipped, pick(none, {"a gradient of None became a tensor; leave it None": 0})


def _update_cases(draw):
    """Draw a small model of two tasks and three batches; the last is of the first task.

    In the second case all norms are below the limit.
    """
    cases = []
    for limit, lr in ((draw.number(0.3, 0.6), 0.3), (1000.0, 0.03)):
        D, B = draw.size(3, 4), draw.size(4, 6)
        heads = {"A": draw.normal(1, D), "B": draw.normal(1, D)}
        batches = [[task, draw.normal(B, D), draw.normal(B)] for task in "ABA"]
        settings = {"lr": lr * draw.number(0.7, 1.3), "momentum": 0.9, "weight_decay": 0.1}
        cases.append((draw.normal(D, D), heads, batches, settings, limit))
    return cases


def _run_updates(student, encoder, heads, batches, settings, limit):
    """Return the heads, the encoder and the losses after updates on all batches.

    The model doubles its loss in training mode, as a visible substitute for dropout.
    """

    def layer(weight):
        linear = torch.nn.Linear(*weight.shape[::-1], bias=False)
        linear.weight.data = weight.clone()
        return linear

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = layer(encoder)
            self.heads = torch.nn.ModuleDict({key: layer(one) for key, one in heads.items()})

        def loss(self, task, batch):
            x, y = batch
            h = torch.tanh(self.encoder(x))
            found = self.heads[task](h)[:, 0]
            return (found - y).square().mean() * (2 if self.training else 1)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    losses = []
    for task, *batch in batches:
        losses.append(student(model.eval(), task, batch, optimizer, limit))
    found = torch.cat([model.heads[task].weight.detach() for task in heads])
    return (
        found,
        model.encoder.weight.detach(),
        [float(torch.as_tensor(one).detach()) for one in losses],
    )


CLIPS = {
    "the gradients are not clipped between backward and the step": "never",
    "every tensor is clipped by its own norm": "each",
    "only the gradients of the head are clipped": "head",
    "only the gradients of the encoder are clipped": "encoder",
}
ZEROS = {
    "the other heads have gradients of zero, so momentum and weight decay move them; their "
    "gradients must be None": "zeros",
    "the gradients of earlier batches are still there": "kept",
}


@question(
    "update",
    points=4,
    difficulty=3,
    hours=0.7,
    object="multitask_step",
    cases=_update_cases,
    driver=_run_updates,
    uses=("clip",),
    rule={
        "heads": "the head of the batch's task moves, and no other",
        "encoder": "that after the clipped gradient of each batch",
        "losses": "the loss of each batch, before its update",
    },
)
def _update(pick, encoder, heads, batches, settings, limit):
    """Return the heads, the encoder and the losses after all updates."""
    zero = pick("none", ZEROS)
    when = pick("right", CLIPS)
    moves = pick(True, {"no weight moves: the step is missing, or has no gradients": False})
    train = pick(True, {"the model is not in training mode; call model.train()": False})
    again = pick(False, {"the loss is computed again after the update": True})

    def step(model, task, batch, optimizer, limit):
        model.train(train)
        if zero != "kept":
            optimizer.zero_grad(set_to_none=zero == "none")
        loss = model.loss(task, batch)
        loss.backward()
        _clip_some(model, task, when, limit)
        if moves:
            optimizer.step()
        return model.loss(task, batch) if again else loss

    return _run_updates(step, encoder, heads, batches, settings, limit)


def _clip_some(model, task, when, limit):
    """Clip the gradients of the parts that `when` names."""
    whole = list(model.parameters())
    groups = {
        "right": [whole],
        "head": [[model.heads[task].weight]],
        "encoder": [[model.encoder.weight]],
        "each": whole,
    }
    for group in groups.get(when, []):
        torch.nn.utils.clip_grad_norm_(group, limit)


QUESTIONS = questions_of(vars())
