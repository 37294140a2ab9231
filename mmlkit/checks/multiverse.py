"""Feedback for the exercises: says whether an answer is right and, where it can, which mistake was made.

A check never raises because of a wrong answer: it prints one line and returns True or False, so a notebook runs through.
"""

import itertools
import math

import numpy as np
import torch

__all__ = ["check_attention", "check_adamw_step", "check_learning_rate", "check_multiverse_loss", "check_collapse",
           "check_head_average", "check_survivors", "check_improvement", "check_profile"]


def _verdict(name, problem):
    print(f"{name}: {'not yet: ' + problem if problem else 'right.'}")
    return problem is None


def _answer(function, *arguments, **keywords):
    """(answer, problem) of calling a student's function."""
    try:
        answer = function(*arguments, **keywords)
    except Exception as error:      # whatever a first draft raises is feedback, not a failure of the notebook
        return None, f"it stopped with {type(error).__name__}: {error}"
    return answer, "it returns nothing so far." if answer is None or answer is ... else None


def check_attention(function):
    """function(query, key, value, mask): query, key, value [T,d], mask [T] of 1 (token) and 0 (padding); returns [T,d]."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(5, 4, generator=generator) * 2 for _ in range(3))
    mask = torch.tensor([1, 1, 1, 1, 0])
    answer, problem = _answer(function, query, key, value, mask)
    if problem is None:
        problem = _attention_problem(answer, query, key, value, mask)
    return _verdict("attention", problem)


def _attention_problem(answer, query, key, value, mask):
    def attend(scale, masked, axis):
        scores = query @ key.T / scale
        scores = scores.masked_fill(mask == 0, -1e9) if masked else scores
        return scores.softmax(axis) @ value

    if getattr(answer, "shape", None) != (5, 4):
        return f"expected a tensor of shape [5, 4], found {list(getattr(answer, 'shape', [])) or type(answer).__name__}."
    known = [((2, True, -1), None),
             ((1, True, -1), "the scores are not divided by sqrt(d); here d = 4."),
             ((4, True, -1), "the scores are divided by d, not by sqrt(d)."),
             ((2, False, -1), "padding still gets attention; give masked scores a very negative number before the softmax."),
             ((1, False, -1), "the scores are not divided by sqrt(d), and padding still gets attention."),
             ((2, True, 0), "the softmax runs over the tokens that look; it must run over those that are looked at (dim=-1).")]
    for (scale, masked, axis), problem in known:
        if torch.allclose(answer, attend(scale, masked, axis), atol=1e-5):
            return problem
    return "the numbers differ from softmax(Q K^T / sqrt(d) + mask) V; compare with the cell above, step by step."


def check_adamw_step(function):
    """function(theta, g, m, v, t, lr, beta1, beta2, eps, weight_decay): floats; returns the new (theta, m, v)."""
    theta, g, m, v, t = 0.5, 0.3, 0.02, 0.004, 2
    lr, beta1, beta2, eps, decay = 0.1, 0.9, 0.99, 0.01, 0.1
    answer, problem = _answer(function, theta, g, m, v, t, lr, beta1, beta2, eps, decay)
    if problem is None:
        new_m, new_v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        alpha = lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t)
        moved = theta - alpha * new_m / (new_v**0.5 + eps)
        known = [(moved - lr * decay * moved, None),
                 (moved, "weight decay is missing: after the step, theta = theta - lr * weight_decay * theta."),
                 (moved - lr * decay * theta, "decay acts on the theta from before the step; the handout decays after it."),
                 (theta - lr * new_m / (new_v**0.5 + eps) * 1.0 - lr * decay * (theta - lr * new_m / (new_v**0.5 + eps)),
                  "the bias correction sqrt(1 - beta2^t) / (1 - beta1^t) of the step size is missing."),
                 ((theta - alpha * new_m / (new_v + eps) ** 0.5) * (1 - lr * decay), "eps belongs outside the square root.")]
        problem = "theta differs from the handout's formula; compare line by line."
        if not (isinstance(answer, tuple) and len(answer) == 3):
            problem = f"expected three numbers (theta, m, v), found {answer!r}."
        elif abs(answer[1] - new_m) > 1e-9 or abs(answer[2] - new_v) > 1e-9:
            problem = "m or v is off: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2."
        else:
            problem = next((said for value, said in known if abs(answer[0] - value) < 1e-9), problem)
    return _verdict("AdamW", problem)


def check_learning_rate(function):
    """function(step, peak, warmup, total): linear up over warmup steps, then linear down to 0 at total; step counts from 0."""
    from mmlkit.training.optimizers import learning_rate

    for step in (0, 4, 9, 10, 11, 55, 99):
        answer, problem = _answer(function, step, 2.0, 10, 100)
        if problem is None:
            wanted = learning_rate(step, peak=2.0, warmup=10, total=100)
            if not isinstance(answer, (int, float)) or abs(answer - wanted) > 1e-9:
                problem = f"at step {step} (peak 2.0, warmup 10, total 100) it gives {answer!r}, expected {wanted:.4g}."
        if problem:
            return _verdict("learning rate", problem)
    return _verdict("learning rate", None)


def check_multiverse_loss(function):
    """function(F): one class's weights [M,D], a row per head; returns the sum over pairs r < s of |<f_r, f_s>|."""
    F = torch.tensor([[1.0, 2.0, -0.5], [0.3, -1.2, 0.8], [-0.7, 0.4, 1.1], [0.9, 0.2, -1.6]])
    answer, problem = _answer(function, F.clone())
    if problem is None:
        problem = _multiverse_problem(answer, F)
    return _verdict("multiverse loss", problem)


def _multiverse_problem(answer, F):
    try:
        answer = torch.as_tensor(answer).detach().float()
    except (TypeError, ValueError, RuntimeError):
        return f"expected one number, found {answer!r}."
    if answer.numel() != 1:
        return f"expected one number, found shape {list(answer.shape)}; sum over the pairs."
    products = [(None, F @ F.T), ("the products are those of the columns of F; heads are its rows, so take F F^T.", F.T @ F)]
    values = [(None, torch.abs), ("products of opposite sign cancel; take the absolute value of each.", lambda G: G),
              ("the products are squared; Eq. 4 takes absolute values.", torch.square)]
    diagonal, twice = "the diagonal is counted; a head need not be orthogonal to itself.", "every pair is counted twice; take r < s."
    pairs = [(None, lambda G: G.triu(1)), (diagonal, torch.triu), (diagonal, lambda G: G / 2),
             (twice, lambda G: G - G.diag().diag()), (f"{twice} And {diagonal}", lambda G: G)]
    known = []
    for (one, G), (two, value), (three, chosen) in itertools.product(products, values, pairs):
        said = [problem for problem in (one, two, three) if problem]
        known.append((chosen(value(G)).sum(), len(said), " And ".join(said) or None))
    upper = (F @ F.T).triu(1)
    known += [(upper.abs().sum() / 6, 1, "it is the mean over pairs; Eq. 4 sums."),
              (upper.sum().abs(), 1, "the absolute value is taken of the sum; take it of each product, before summing.")]
    for value, _, problem in sorted(known, key=lambda one: one[1]):
        if torch.allclose(answer.reshape(()), value, rtol=1e-4):
            return problem
    return "the number differs from the sum over r < s of |<f_r, f_s>|; compare with the double loop."


def check_collapse(function):
    """function(weight, bias, active): [M,C,D], [M,C] and bool [M]; returns the one head's (weight [C,D], bias [C])."""
    weight, bias = torch.linspace(-1, 2, 24).square().view(4, 2, 3), torch.linspace(1, 2, 8).square().view(4, 2)
    active = torch.tensor([True, False, True, True])
    answer, problem = _answer(function, weight.clone(), bias.clone(), active.clone())
    if problem is None:
        answer = (answer.weight, answer.bias) if isinstance(answer, torch.nn.Linear) else answer
        if isinstance(answer, torch.Tensor) and answer.shape == (2, 3):
            problem = "the bias is forgotten; return (weight, bias)."
        elif not (isinstance(answer, (tuple, list)) and len(answer) == 2 and all(isinstance(one, torch.Tensor) for one in answer)):
            problem = f"expected two tensors (weight, bias), found {answer!r}."
        elif answer[0].shape != (2, 3) or answer[1].shape != (2,):
            problem = f"expected shapes [2, 3] and [2], found {list(answer[0].shape)} and {list(answer[1].shape)}; the mean runs over heads, dim 0."
        else:
            problem = _collapse_problem("weight", answer[0], weight, active) or _collapse_problem("bias", answer[1], bias, active)
    return _verdict("collapse", problem)


def _collapse_problem(name, answer, values, active):
    inactive = f"{name}: heads that are no longer active are counted."
    known = [(values[active].mean(0), None), (values.mean(0), inactive), (values.sum(0) / active.sum(), inactive),
             (values[active].sum(0), f"{name}: that is the sum; Eq. 5 takes the mean."), (values.sum(0), f"{inactive} And it is a sum, not a mean."),
             (values[active].sum(0) / len(active), f"{name}: divide by the number of active heads, not by all."),
             (torch.zeros_like(values[0]), f"the {name} is forgotten."), (values[0], f"{name}: that is the first head alone.")]
    return next((problem for value, problem in known if torch.allclose(answer, value, atol=1e-5)), f"{name}: it differs from the active heads' mean.")


def check_head_average(function):
    """function(a, losses, t, gamma): a [A] after t - 1 updates, losses [A]; returns (the new a, the same freed of the zero start)."""
    a, losses, t, gamma = torch.tensor([0.05, 0.08, 0.06]), torch.tensor([0.5, 0.9, 0.7]), 2, 0.9
    answer, problem = _answer(function, a.clone(), losses.clone(), t, gamma)
    if problem is None:
        problem = _head_average_problem(answer, a, losses, t, gamma)
    return _verdict("head average", problem)


def _head_average_problem(answer, a, losses, t, gamma):
    try:
        raw, freed = (torch.as_tensor(value, dtype=torch.float32) for value in answer)
    except (TypeError, ValueError, RuntimeError):
        return f"expected two tensors (a, a freed of the zero start), found {answer!r}."
    if raw.shape != a.shape or freed.shape != a.shape:
        return f"expected two tensors of shape {list(a.shape)}, found {list(raw.shape)} and {list(freed.shape)}."
    wanted, bias = gamma * a + (1 - gamma) * losses, 1 - gamma**t
    swapped, whole = "the momentum is on the wrong side; 0.9 of the old average stays, 0.1 of the new loss comes in.", \
        "every head got the model's loss; each head averages its own."
    known = [(wanted, None), (wanted / bias, "a itself is divided by 1 - gamma^t; keep a as it is, and divide only what is read."),
             ((1 - gamma) * a + gamma * losses, swapped)]
    for of_model in (losses.sum(), losses.mean()):
        known += [(gamma * a + (1 - gamma) * of_model, whole), ((1 - gamma) * a + gamma * of_model, f"{whole} And {swapped}")]
    problem = next((said for value, said in known if torch.allclose(raw, value, atol=1e-6)), "a differs from gamma a + (1 - gamma) losses.")
    if problem is None:
        known = [(wanted / bias, None), (wanted, "the second is not corrected: divide by 1 - gamma^t."),
                 (wanted / (1 - gamma ** (t - 1)), "the correction is one update behind: t counts this one too."),
                 (wanted * bias, "the correction divides by 1 - gamma^t; it does not multiply.")]
        problem = next((said for value, said in known if torch.allclose(freed, value, atol=1e-6)), "the second should be a / (1 - gamma^t).")
    return problem


def check_survivors(function):
    """function(averages, labels, centroids): a list of floats, each head's cluster, each cluster's centre; returns the heads kept."""
    centroids, labels = [0.60, 0.52, 0.40, 0.71], [1, 2, 0, 1, 2, 3, 1, 0, 2, 1]
    averages = [0.50, 0.38, 0.59, 0.51, 0.395, 0.71, 0.53, 0.61, 0.425, 0.54]
    answer, problem = _answer(function, list(averages), list(labels), list(centroids))
    if problem is None:
        problem = _survivors_problem(answer)
    if problem is None:
        answer, problem = _answer(function, [0.5, 0.6], [0, 0], [0.55])
        if problem is None and _heads(answer) != [0, 1]:
            problem = f"with one cluster nobody is dropped, yet of two heads it keeps {answer!r}."
    return _verdict("survivors", problem)


def _heads(answer):
    values = answer.tolist() if hasattr(answer, "tolist") else answer
    is_indices = isinstance(values, (list, tuple, set)) and not any(isinstance(value, bool) for value in values)
    return sorted(values) if is_indices else None


def _survivors_problem(answer):
    kept = _heads(answer)
    if kept is None:
        return f"expected a list of head numbers such as [0, 3], found {answer!r}."
    known = {(1, 4, 8): None, (5,): "it keeps the highest cluster; a low loss is good.",
             (0, 3, 6, 9): "it keeps the largest cluster; the lowest is wanted, however small.",
             (2, 7): "it keeps cluster 0; clusters come in no order here, so look for the smallest centroid.",
             (): "no head is kept: an average is hardly ever equal to a centroid. Ask for the head's label.",
             (1, 4): "it keeps heads whose value lies at or below the centroid; the rest of that cluster belongs to it too. Ask for the label.",
             (1,): "it keeps the one best head; all heads of the lowest cluster stay."}
    return known.get(tuple(kept), f"it keeps {kept}; keep the heads whose label is that of the smallest centroid.")


def check_improvement(function):
    """function(ours, baseline, own): two dicts {set: accuracy} and the set trained on; returns percent, cut to two decimals."""
    cases = [({"rte": 99.0, "mnli": 66.0, "qnli": 52.7, "snli": 81.3}, {"rte": 90.0, "mnli": 60.0, "qnli": 51.0, "snli": 70.0}, "rte"),
             ({"qqp": 79.1, "mrpc": 69.0, "stsb_star": 49.3}, {"stsb_star": 50.0, "mrpc": 70.0, "qqp": 80.0}, "mrpc")]
    for ours, baseline, own in cases:
        answer, problem = _answer(function, dict(ours), dict(baseline), own)
        if problem := problem or _improvement_problem(answer, ours, baseline, own):
            break
    return _verdict("improvement", problem)


def _improvement_problem(answer, ours, baseline, own):
    if not isinstance(answer, (int, float)):
        return f"expected one number, found {answer!r}."
    kept = [name for name in ours if name != own]
    wanted = 100 * (np.mean([ours[name] / baseline[name] for name in kept]) - 1)
    if abs(answer - math.trunc(100 * wanted) / 100) < 1e-9:
        return None
    formulas = [(lambda a, b: 100 * (np.mean(a / b) - 1), None), (lambda a, b: np.mean(a / b) - 1, "that is a share; times 100 it is percent."),
                (lambda a, b: 100 * np.mean(a / b), "1 is missing: a ratio of 1 is no improvement."),
                (lambda a, b: 100 * (a.mean() / b.mean() - 1), "that is the ratio of the means; take the mean of the ratios."),
                (lambda a, b: np.mean(a - b), "that is a difference in points; take ratios to the baseline.")]
    by_place = [value for name, value in zip(ours, baseline.values()) if name != own]
    sets = [(kept, [baseline[name] for name in kept], None), (kept, by_place, "values are matched by place; take each set's own baseline."),
            (list(ours), [baseline[name] for name in ours], "the set it was trained on is counted; leave it out.")]
    for (formula, one), (names, below, two) in itertools.product(formulas, sets):
        value = 100 * formula(np.array([ours[name] for name in names]), np.array(below))
        if min(abs(100 * answer - way(value)) for way in (float, round, math.floor, math.trunc)) < 1e-6:
            return " And ".join(filter(None, (one, two))) or "cut the digits after the second off, towards zero; do not round or keep them."
    return f"it gives {answer:g}; the mean of ours / baseline over {', '.join(kept)}, minus 1, is {wanted:.4f} %."


def check_profile(function):
    """function(errors, tau): errors [E,M], a row per experiment and a column per method; returns the share of each method, [M]."""
    errors, taus, answers = np.array([[10.0, 12, 15], [20, 20, 30], [40, 30, 33], [8, 9, 6]]), (1.0, 1.25), []
    for tau in taus:
        answer, problem = _answer(function, errors.copy(), tau)
        if problem := problem or (None if np.shape(answer) == (3,) else f"expected a share for each of the 3 methods, found {answer!r}."):
            return _verdict("profile", problem)
        answers.append(np.asarray(answer, dtype=float))
    best, first = errors.min(axis=1, keepdims=True), np.arange(3) == errors.argmin(axis=1)[:, None]
    known = [(lambda tau: errors <= tau * best, None), (lambda tau: errors < tau * best, "at tau = 1 nobody can lie below the best; let equal count (<=)."),
             (lambda tau: errors <= tau * errors.min(axis=0), "the lowest error is taken down a column; each experiment (row) has its own."),
             (lambda tau: errors <= tau * errors.min(), "one lowest error for all experiments; each experiment (row) has its own."),
             (lambda tau: errors <= tau * errors[:, :1], "errors are held against the first method's; hold them against the lowest of the row."),
             (lambda tau: errors <= best + tau - 1, "tau is a factor: tau times the lowest error."),
             (lambda tau: (errors <= tau * best) & (first | (errors > best)), "of two equal best ones both count.")]
    for (inside, said), (times, more) in itertools.product(known, ((1, None), (len(errors), "divide by the number of experiments."))):
        if all(np.allclose(found, inside(tau).mean(axis=0) * times) for found, tau in zip(answers, taus)):
            return _verdict("profile", " And ".join(filter(None, (said, more))) or None)
    return _verdict("profile", "the shares differ; count, for each method, the rows with error <= tau * (lowest error of the row).")
