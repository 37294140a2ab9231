"""Feedback for the exercises: says whether an answer is right and, where it can, which mistake was made.

A check never raises because of a wrong answer: it prints one line and returns True or False, so a notebook runs through.
"""

import torch

__all__ = ["check_attention", "check_adamw_step", "check_learning_rate"]


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
    from mmlkit.optimizers import learning_rate

    for step in (0, 4, 9, 10, 11, 55, 99):
        answer, problem = _answer(function, step, 2.0, 10, 100)
        if problem is None:
            wanted = learning_rate(step, peak=2.0, warmup=10, total=100)
            if not isinstance(answer, (int, float)) or abs(answer - wanted) > 1e-9:
                problem = f"at step {step} (peak 2.0, warmup 10, total 100) it gives {answer!r}, expected {wanted:.4g}."
        if problem:
            return _verdict("learning rate", problem)
    return _verdict("learning rate", None)
