"""Known-wrong answers of assignment 3: a change of the solution, and the message that names it.

{question: [(old text, new text, part of the message)]}. The old text stands once in the cell.
"""

FILL_H = ".masked_fill(~hypothesis, -math.inf).softmax(dim=1)"
FILL_P = ".masked_fill(~premise, -math.inf).softmax(dim=1)"
SUM = "(beta[:, :, None] * M).sum(dim=1)"
PAIR = "[s, x, (s - x).abs(), s * x]"
MEAN = "(P * kept[:, :, None]).sum(dim=1) / kept.sum(dim=1, keepdim=True)"
LOSS = "-mean[rows, y].log().mean()"
CANDIDATES = "    log = (gamma * scores).log_softmax(dim=1)"
CLIP = "    clip_gradients(list(model.parameters()), limit)\n"

WRONG = {
    "summary": [
        ("return alpha, s_0", "return alpha, s_0.detach()", "result 2 has no gradient"),
        (
            "return alpha, s_0",
            "M[~hypothesis] = 0\n    return alpha, s_0",
            "it changes its argument M",
        ),
        (FILL_H, ".softmax(dim=1)", "tokens outside the hypothesis get attention"),
        (FILL_H, ".masked_fill(~hypothesis, 0).softmax(dim=1)", "the hypothesis are 0, not very"),
        (FILL_H, ".softmax(dim=1) * hypothesis", "the mask comes after the softmax"),
        ("softmax(dim=1)", "softmax(dim=0)", "the softmax runs over the pairs (dim=0)"),
        ("~hypothesis", "hypothesis", "the mask is inverted"),
        ("M @ w", "M @ w / math.sqrt(len(w))", "the scores are divided by sqrt(D)"),
        (
            "* M).sum(dim=1)",
            "* M).sum(dim=1) / hypothesis.sum(1, keepdim=True)",
            "the sum is divided",
        ),
    ],
    "look": [
        ("return beta, x", "return beta.detach(), x", "result 1 has no gradient by s, M, W"),
        ("return beta, x", "return beta, x.tolist()", "result 2 is a list; it must be a tensor"),
        ("s @ W.T", "s @ W", "W is transposed"),
        ("s @ W.T", "s", "W is missing"),
        ("s @ W.T", "s @ W.T / math.sqrt(len(W))", "the scores are divided by sqrt(D)"),
        (FILL_P, ".softmax(dim=1)", "tokens outside the premise get attention"),
        ("~premise", "premise", "only tokens outside the premise count"),
        (FILL_P, FILL_P.replace("dim=1", "dim=0"), "the softmax runs over the pairs (dim=0)"),
        (SUM, "(beta[:, :, None] * (M @ W.T)).sum(dim=1)", "x is the sum of W M_j"),
        (SUM, "M[torch.arange(len(M)), beta.argmax(1)]", "the token with the largest weight"),
        (SUM, "(beta[:, :, None] * M).mean(dim=1)", "The right answer is the sum of beta_j M_j"),
    ],
    "gru": [
        ("z * s + (1 - z) * n", "(1 - z) * s + z * n", "z weighs the new part n; in this course"),
        ('r * (s @ U["n"].T)', '(r * s) @ U["n"].T', "r multiplies s, before the matrix U_n; in"),
        ('r * (s @ U["n"].T)', 's @ U["n"].T', "r is not used"),
        ('x @ W["n"].T + r * (s', '(r * x) @ W["n"].T + (s', "r multiplies x; it multiplies s"),
        (
            "    W, U, b =",
            "    x, s = s, x\n    W, U, b =",
            "x and s are exchanged",
        ),
        (
            "return z * s + (1 - z) * n",
            "return r * s + (1 - r) * n",
            "The right answer is the GRU in which",
        ),
        ("torch.tanh(x", "(x", "tanh is missing"),
        ("torch.tanh(x", "torch.sigmoid(x", "the new part needs tanh"),
        ("return z * s + (1 - z) * n", "return n", "this is the new part n alone"),
        (
            "{gate: weights",
            '{gate: weights[f"{part}_{gate}"].T if part in "WU" else weights',
            "W x for rows x is x @ W.T",
        ),
    ],
    "answers": [
        (
            "s = gru(x, s)",
            "s = gru(x.detach(), s)",
            "the gradient of the result by s_0 is not that of the right answer; do not use detach",
        ),
        (
            "        x = look(s)\n",
            "        x = look(s)\n        s = gru(x, s)\n",
            "The right answer is softmax(W [s; x;",
        ),
        ("s = gru(x, s)", "gru(x, s)", "the state never changes"),
        ("s = gru(x, s)", "s = gru(s, x)", "the arguments of gru are exchanged"),
        (PAIR, "[x, s, (x - s).abs(), x * s]", "the features are [x; s;"),
        ("(s - x).abs()", "s - x", "|s - x| lacks its absolute value"),
        ("s * x]", "s + x]", "the last feature is s + x"),
        (".softmax(dim=1)", "", "the softmax is missing"),
        (".softmax(dim=1)", ".log_softmax(dim=1)", "these are logarithms of probabilities"),
        (" + b)", ")", "the bias b is missing"),
        (
            "    P = []\n    for _ in range(K):\n        x = look(s)\n",
            "    P, x = [], look(s)\n    for _ in range(K):\n",
            "the state never looks again",
        ),
    ],
    "answer_loss": [
        ("    kept[rows, sure] = True\n", "", "the sure step is not kept"),
        ("u >= p", "u < p", "steps with u < p are kept"),
        ("kept[rows, sure]", "kept[:, sure[0]]", "all pairs keep the sure step of the first"),
        (MEAN, "P.mean(dim=1)", "dropped steps are counted"),
        (
            MEAN,
            "(P * kept[:, :, None]).mean(dim=1)",
            "the sum is divided by K, not by the number of kept steps",
        ),
        (
            MEAN,
            "(P * kept[:, :, None]).mean(dim=1) / (1 - p)",
            "the weight 1/(1-p), and the result is not renormalised",
        ),
        (
            LOSS,
            "-((P[rows, :, y].log() * kept).sum(1) / kept.sum(1)).mean()",
            "this is the mean of the steps' losses",
        ),
        (LOSS, "-mean[rows, y].log().sum()", "this is the sum over the pairs"),
        (LOSS, "mean[rows, y].log().mean()", "the minus is missing"),
        (LOSS, "-mean[rows, y].mean()", "the log is missing"),
        (LOSS, "-mean[rows, y].mean().log()", "the mean over the pairs comes before the log"),
        (LOSS, "F.cross_entropy(mean, y)", "F.cross_entropy takes logits"),
        ("kept[rows, sure]", "kept[:, sure]", "every pair keeps the sure steps of all pairs"),
    ],
    "similarity_loss": [
        ("y / highest", "y", "the labels are not divided by highest"),
        ("y / highest", "y / 5", "5 stands in the code; use the argument highest"),
        ("(g - y / highest)", "(highest * g - y)", "the error has the unit of the labels"),
        ("torch.sigmoid(x @ w[0] + b)", "x @ w[0] + b", "the sigmoid is missing"),
        ("x @ w[0] + b", "x @ w.T + b", "broadcast to [B, B]"),
        (".square().mean()", ".square().sum()", "this is the sum over the pairs"),
        (".square().mean()", ".abs().mean()", "this is the absolute error"),
        (".square().mean()", ".square().mean().sqrt()", "this is the square root of the loss"),
    ],
    "ranking_loss": [
        (
            "(gamma * scores).log_softmax(dim=1)",
            "(gamma * (scores + scores.detach()) / 2).log_softmax(dim=1)",
            "the gradient of loss by scores is not that of the right answer; do not use detach",
        ),
        ("    scores = scores.masked_fill(~real, -math.inf)\n", "", "padded candidates take part"),
        ("-math.inf", "0", "padded candidates take part with the score 0"),
        ("gamma * scores", "scores", "gamma is missing"),
        ("gamma * scores", "scores / gamma", "the scores are divided by gamma"),
        (CANDIDATES, CANDIDATES.replace("scores)", "scores.sigmoid())"), "a sigmoid comes first"),
        (".log_softmax(dim=1)", ".softmax(dim=1)", "the log is missing, as in the printed Eq. 8"),
        (".log_softmax(dim=1)", ".log_softmax(dim=0)", "the softmax runs over the queries"),
        (
            "len(log)), answer].mean()",
            "len(log)), answer].sum()",
            "this is the sum over the queries",
        ),
        (".float().mean()", ".float().sum()", "this is a number of queries; divide by Q"),
    ],
    "merge": [
        ("start + batch_size]", "start + batch_size + 1]", "expected numbers of shape [27, 5]"),
        (
            "mixed = shuffle(numbers)",
            "examples[task] = mixed = shuffle(numbers)",
            "its argument ex",
        ),
        ("mixed = shuffle(numbers)", "mixed = numbers", "the examples of a task are not shuffled"),
        ("return shuffle(batches)", "return batches", "the merged batches are not shuffled"),
        (
            "return shuffle(batches)",
            "return shuffle([one for one in batches if len(one[1]) == batch_size])",
            "an incomplete batch is dropped; in this course it is kept",
        ),
        (
            "mixed = shuffle(numbers)",
            "mixed = shuffle(numbers)\n        mixed = mixed + mixed[: -len(mixed) % batch_size]",
            "an incomplete batch is filled with examples from the start",
        ),
        (
            "in examples.items()",
            "in shuffle(list(examples.items()))",
            "The right answer is the shuffled list",
        ),
        (
            "    return shuffle(batches)",
            "    groups = [[one for one in batches if one[0] == task] for task in examples]\n"
            "    return sum(shuffle(groups), [])",
            "only the order of the tasks is shuffled",
        ),
        (
            "    return shuffle(batches)",
            "    groups = [[one for one in batches if one[0] == task] for task in examples]\n"
            "    return sum(map(shuffle, groups), [])",
            "the batches are shuffled within each task",
        ),
    ],
    "clip": [
        (
            "math.sqrt(sum(g.square().sum().item() for g in gradients))",
            "sum(g.square().sum().item() for g in gradients)",
            "the square root is missing",
        ),
        (
            "math.sqrt(sum(g.square().sum().item() for g in gradients))",
            "sum(g.norm().item() for g in gradients)",
            "this is the sum of the tensors' norms",
        ),
        (
            "g.mul_(limit / norm)",
            "g.mul_(limit / g.norm().clamp(min=limit))",
            "every tensor is clipped by its own norm",
        ),
        ("    if norm > limit:\n", "    if norm > 0:\n", "a norm below the limit is raised to it"),
        ("g.mul_(limit / norm)", "g.clamp_(-limit, limit)", "the entries are clipped one by one"),
        ("g.mul_(limit / norm)", "g = g * limit / norm", "the gradients are not changed"),
        ("    return norm\n", "    return min(norm, limit)\n", "this is the norm after clipping"),
        (" if theta.grad is not None]", "]", "it stopped with AttributeError"),
        (
            "    gradients = ",
            "    for theta in parameters:\n"
            "        theta.grad = torch.zeros_like(theta) if theta.grad is None else theta.grad\n"
            "    gradients = ",
            "a gradient of None became a tensor",
        ),
        (
            "math.sqrt(sum(g.square().sum().item() for g in gradients))",
            "torch.cat([g.flatten() for g in gradients]).norm().item()",
            "torch.cat(): expected a non-empty list",
        ),
    ],
    "update": [
        ("set_to_none=True", "set_to_none=False", "the other heads have gradients of zero"),
        ("    optimizer.zero_grad(set_to_none=True)\n", "", "the gradients of earlier batches"),
        (CLIP, "", "the gradients are not clipped between backward and the step"),
        (
            f"{CLIP}    optimizer.step()\n",
            f"    optimizer.step()\n{CLIP}",
            "the gradients are not clipped between backward and the step",
        ),
        (CLIP, CLIP.replace("model", "model.heads"), "only the gradients of the head are clipped"),
        (
            CLIP,
            "    for one in model.parameters():\n        clip_gradients([one], limit)\n",
            "every tensor is clipped by its own norm",
        ),
        ("    model.train()\n", "", "the model is not in training mode"),
        ("    optimizer.step()\n", "", "no weight moves"),
        (
            "return loss.item()",
            "return model.loss(task, batch).item()",
            "the loss is computed again after the update",
        ),
    ],
}
