"""Known-wrong answers of assignment 2: a change of the solution, and the message that names it.

{question: [(old text, new text, part of the message)]}. The old text stands once in the cell.
"""

ANSWER = "logits.mean(dim=1).softmax(dim=-1)"
HEADS = 'torch.einsum("bd,acd->bac", x, weight[active]) + bias[active]'
RETURN = "return losses.sum(), losses"
CROSS = 'F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(dim=0)'
GRAM = "return G.triu(diagonal=1).sum()"
SIGNS = "(rows @ rows.transpose(1, 2)).sign() * (1 - torch.eye(len(weight)))"
MOVE = "averages[active] = gamma * averages[active] + (1 - gamma) * losses"
BIAS = "averages / (1 - gamma**t)"
MOVED = "moved = (inside * values).sum(dim=1) / inside.sum(dim=1)"
NEAREST = "return centres[abs(values[:, None] - centres).argmin(dim=1)]"
ORDER = "sorted(zip(counts, places.tolist()), reverse=True)"
LAYER = '"weight": weight[active].mean(dim=0), "bias": bias[active].mean(dim=0)'
PLACES = "mean_shift(chosen, bandwidth)"  # without the centres

WRONG = {
    "head_logits": [
        (
            "logits.mean(dim=1).softmax",
            "(logits + logits[:, :1].detach() - logits[:, :1]).mean(dim=1).softmax",
            "the gradient of probabilities by x is not that of the right answer; do not use detach",
        ),
        (ANSWER, "logits.softmax(dim=-1).mean(dim=1)", "the mean of the active heads' prob"),
        (ANSWER, "logits.sum(dim=1).softmax(dim=-1)", "the logits are summed, not averaged"),
        (
            ANSWER,
            "(logits.sum(dim=1) / len(active)).softmax(dim=-1)",
            "divided by the number of all heads",
        ),
        (ANSWER, "logits.mean(dim=1)", "these are logits; the softmax is missing"),
        (ANSWER, "logits.mean(dim=1).softmax(dim=0)", "the softmax runs over the sentences"),
        (" + bias[active]", "", "the biases are missing"),
        (
            HEADS,
            'torch.einsum("bd,acd->bac", x, weight) + bias',
            "dropped heads are used too",
        ),
        (
            'torch.einsum("bd,acd->bac", x, weight[active])',
            "(x @ weight[active].flatten(0, 1).T).view(len(x), weight.shape[1], -1)"
            ".transpose(1, 2)",
            "view mixes heads and classes",
        ),
    ],
    "task_losses": [
        (RETURN, "return losses.mean(), losses", "this is the mean over the heads"),
        (".mean(dim=0)", ".sum(dim=0)", "the losses are summed over the sentences"),
        (
            CROSS,
            "-logits.log().transpose(1, 2).gather(1, labels[:, None])[:, 0].mean(dim=0)",
            "this is the logarithm of a logit, as Eq. 3 is printed",
        ),
        (
            CROSS,
            "-logits.softmax(dim=-1).transpose(1, 2).gather(1, labels[:, None])[:, 0].mean(dim=0)",
            "the logarithm is missing",
        ),
        (
            'reduction="none").mean',
            'reduction="none").mul(labels).mean',
            "the number of the label is a factor",
        ),
        (
            RETURN,
            "return F.cross_entropy(logits.mean(dim=1), labels[:, 0]), losses",
            "this is the loss of the mean logits",
        ),
        (RETURN, "return losses.sum().item(), losses", "result 1 is a float; it must be a tensor"),
        (RETURN, "return -losses.sum(), -losses", "the minus is missing"),
        (
            CROSS,
            "F.cross_entropy(logits.flatten(0, 1), labels[:, 0].repeat(logits.shape[1]),"
            ' reduction="none").view(len(logits), -1).mean(dim=0)',
            "meet labels of other sentences",
        ),
        (
            CROSS,
            CROSS.replace("logits.", "logits.softmax(dim=-1)."),
            "the softmax is taken twice; F.cross_entropy takes logits",
        ),
    ],
    "multiverse_loss": [
        (
            "(rows @ rows.transpose(1, 2))",
            "(rows @ rows.transpose(1, 2).detach())",
            "the gradient of the result by weight is not that of the right answer",
        ),
        (GRAM, "return G.triu(diagonal=0).sum()", "the diagonal is counted"),
        (GRAM, "return (G * (1 - torch.eye(len(weight)))).sum()", "every pair is counted twice"),
        (GRAM, "return G.sum()", "the whole matrix is summed: every pair twice, and the diagonal"),
        (
            "rows = weight.transpose(0, 1)",
            "rows = weight.flatten(1)[None]",
            "the vectors of all labels are joined into one",
        ),
        (".transpose(1, 2)).abs()", ".transpose(1, 2))", "the absolute value is missing"),
        (".abs()", "**2", "the products are squared"),
        (GRAM, "return G.triu(diagonal=1).sum() / len(G)", "this is the mean over the classes"),
        (
            "rows = weight.transpose(0, 1)",
            "rows = weight",
            "the classes of one head are compared, as the first version",
        ),
        (
            "rows = weight.transpose(0, 1)",
            "rows = weight.flatten(0, 1)[None]",
            "different classes are compared too",
        ),
        (
            "rows = weight.transpose(0, 1)",
            "rows = F.normalize(weight.transpose(0, 1), dim=-1)",
            "these are cosines; this course takes dot products",
        ),
        (
            GRAM,
            "return G.triu(diagonal=1).sum() * len(weight) / (len(weight) - 1)"
            " * (len(weight) - 1) / len(weight)",
            "With one head there is no pair, so the loss is 0",
        ),
    ],
    "multiverse_gradient": [
        ("signs @ rows", "signs @ rows / 2", "the gradient is half of the right one"),
        ("signs @ rows", "2 * signs @ rows", "the gradient is twice the right one"),
        (" * (1 - torch.eye(len(weight)))", "", "the diagonal is not set to zero"),
        (SIGNS, f"({SIGNS}).triu()", "each pair moves only one of its heads"),
        (".sign()", "", "the signs are missing"),
        (".sign()", ".abs()", "the matrix holds |G|"),
        (".sign()", ".sign().abs()", "the other heads are added, and none is subtracted"),
        ("signs @ rows", "-signs @ rows", "the sign of the whole gradient is wrong"),
    ],
    "update_averages": [
        (
            MOVE,
            "averages[active] = (1 - gamma) * averages[active] + gamma * losses",
            "gamma stands at the new loss, as Algorithm 1 is printed",
        ),
        ("* losses", "* losses.sum()", "every head gets the sum of the losses, as Algorithm 1"),
        ("* losses", "* losses.mean()", "every head gets the mean of the losses"),
        (BIAS, "averages", "the correction is missing"),
        (BIAS, "averages / (1 - gamma ** (t - 1))", "the correction is one update behind"),
        (BIAS, "averages / (1 - gamma ** (t + 1))", "the correction is one update ahead"),
        (
            BIAS,
            "torch.where(active, averages / (1 - gamma**t), averages)",
            "only the active heads are corrected; correct all",
        ),
        ("    averages = averages.clone()\n", "", "it changes its argument averages"),
        (
            f"return averages, {BIAS}",
            f"averages = {BIAS}\n    return averages, averages",
            "this is the corrected average",
        ),
        (MOVE, f"averages[~active] *= gamma\n    {MOVE}", "the averages of the dropped heads"),
        (
            MOVE,
            "A = len(losses)\n    averages[:A] = gamma * averages[:A] + (1 - gamma) * losses",
            "The right answer is gamma a_j + (1 - gamma) L_j",
        ),
    ],
    "mean_shift": [
        ("range(300)", "range(1)", "the windows move once"),
        ("<= bandwidth", "<= bandwidth / 2", "half of the bandwidth to each side"),
        ("<= bandwidth", "<= 2 * bandwidth", "twice the bandwidth to each side"),
        (
            f"inside = (abs(places[:, None] - values) <= bandwidth).double()\n        {MOVED}",
            "inside = (abs(places[:, None] - places) <= bandwidth).double()\n"
            "        moved = (inside * places).sum(dim=1) / inside.sum(dim=1)",
            "the values move with the windows",
        ),
        (
            MOVED,
            "moved = torch.stack([values[row > 0].quantile(0.5) for row in inside])",
            "the windows move to the median",
        ),
        (
            "(abs(places[:, None] - values) <= bandwidth).double()",
            "(-(((places[:, None] - values) / bandwidth) ** 2) / 2).exp()",
            "near values weigh more (a Gaussian kernel)",
        ),
        ("        places = moved\n", "", "the windows do not move"),
        ("    return places\n", "    return places.sort().values\n", "the places are sorted"),
        (
            "abs(places[:, None] - values) <= bandwidth",
            "places[:, None] - values <= bandwidth",
            "a window contains all smaller values",
        ),
    ],
    "merge": [
        (
            "(places[:, None] - values) <=",
            "(values[:, None] - values) <=",
            "the values around a",
        ),
        (
            ORDER,
            "sorted(zip(counts, places.tolist()), key=lambda pair: pair[1])",
            "the places are taken in ascending order, not by their counts",
        ),
        (
            "(abs(places[:, None] - values) <= bandwidth).sum(dim=1)",
            "(abs(places[:, None] - places) < 1e-9).sum(dim=1)",
            "the windows that rest at a place are counted",
        ),
        (
            "(abs(places[:, None] - values) <= bandwidth).sum(dim=1)",
            "(abs(places[:, None] - places) <= bandwidth).sum(dim=1)",
            "the places around a place are counted",
        ),
        (ORDER, "sorted(zip(counts, places.tolist()))", "with the fewest values come first"),
        (
            ORDER,
            "sorted(zip(counts, places.tolist()), key=lambda pair: (-pair[0], pair[1]))",
            "of places with equal counts the lower one comes first",
        ),
        ("> bandwidth for", "> 2 * bandwidth for", "places closer than two bandwidths are merged"),
        ("> bandwidth for", "> bandwidth / 2 for", "closer than half of the bandwidth are merged"),
        (
            NEAREST,
            NEAREST.replace("values", "places"),
            "the centre nearest to a value's resting place is taken",
        ),
        (NEAREST, "return places", "these are the resting places of the values' own windows"),
        (NEAREST, NEAREST.replace("centres[", "")[:-1], "these are numbers of clusters"),
    ],
    "prune": [
        (
            "mean_shift(chosen, bandwidth)",
            "chosen",
            "The right answer is the mask",
        ),
        ("merge(chosen, mean_shift(chosen, bandwidth), bandwidth)", PLACES, "at ["),
        ("centres == centres.min()", "chosen <= chosen.min() + bandwidth", "at ["),
        ("centres.min()", "centres.max()", "the highest cluster is kept; a low loss is good"),
        (
            "stays = active.clone()\n    stays[active] =",
            "stays = active\n    stays[active.clone()] =",
            "it changes its argument active",
        ),
        (
            "centres == centres.min()",
            "chosen <= centres.min()",
            "the heads at or below the lowest centre are kept",
        ),
        ("centres == centres.min()", "chosen == chosen.min()", "only the best head is kept"),
        (
            "len(chosen) < threshold",
            "len(chosen) <= threshold",
            "heads are dropped where more than `threshold` are active; this course asks for at",
        ),
        ("len(chosen) < threshold", "len(active) < threshold", "dropped heads count for it"),
        (
            "scale * chosen.std(correction=0).item()",
            "scale",
            "the bandwidth is `scale` itself",
        ),
        ("std(correction=0)", "std()", "the standard deviation divides by A - 1"),
        (
            "scale * chosen.std",
            "scale * averages.std",
            "the standard deviation is that of all heads",
        ),
        (
            " or chosen.min() == chosen.max():\n        return active\n",
            ":\n        return active\n    if chosen.min() == chosen.max():\n"
            "        return torch.zeros_like(active)\n",
            "heads with equal averages are dropped",
        ),
        (
            "    return stays\n",
            "    return stays if stays.sum() >= threshold else active\n",
            "the threshold is compared with the number of heads left",
        ),
        (
            "    chosen = averages[active]\n",
            "    active = torch.ones_like(active)\n    chosen = averages[active]\n",
            "The right answer is the mask of the lowest cluster of active heads",
        ),
    ],
    "collapse": [
        (LAYER, LAYER.replace("mean", "sum"), "this is the sum"),
        (LAYER, LAYER.replace("[active]", ""), "inactive heads are counted"),
        (
            LAYER,
            LAYER.replace(".mean(dim=0)", ".sum(dim=0) / len(active)"),
            "the sum is divided by the number of all heads",
        ),
        (LAYER, LAYER.replace("[active].mean(dim=0)", "[0]"), "this is the first head alone"),
    ],
    "improvements": [
        ("ours / baseline", "ours.div_(baseline)", "it changes its argument ours"),
        (" - ratios[torch.arange(len(own)), own]", "", "the set's own ratio is in the sum"),
        (
            "total = ratios.sum(dim=1) - ratios[torch.arange(len(own)), own]",
            "total = ratios.mean(dim=1) * (ratios.shape[1] - 1)",
            "the set it was trained on is counted",
        ),
        ("(ratios.shape[1] - 1)", "ratios.shape[1]", "divided by the number of all sets"),
        ("ours / baseline", "baseline / ours", "the ratio is upside down"),
        ("return 100 * (", "return (", "this is a share, not percent"),
        ("- 1) - 1)", "- 1))", "1 is not subtracted"),
        (
            "(total / (ratios.shape[1] - 1) - 1)",
            "total / (ratios.shape[1] - 1) - 1",
            "1 is subtracted after the factor 100",
        ),
        (
            "    return",
            "    own = F.one_hot(own, ours.shape[1])\n"
            "    means = [((1 - own) * one).sum(dim=1) for one in (ours, baseline)]\n"
            "    return 100 * (means[0] / means[1] - 1)\n    return",
            "this is the ratio of the means",
        ),
    ],
}
