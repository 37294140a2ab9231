"""Known-wrong answers of assignment 4: a change of the solution, and the message that names it.

{question: [(old text, new text, part of the message)]}. The old text stands once in the cell.
"""

SCORES = "Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]) + mask"
SPLIT = ".view(B, T, num_heads, S // num_heads).transpose(1, 2)"
SECOND = "layer.norm_2(a + layer.feed_forward(a) + ts(h, mask, i))"
UP = "        nn.init.zeros_(self.up.weight)\n"
ENDS = "2 * hidden_size * S + S + hidden_size"
ALPHA = "1 - 0.8 * (epoch - 1) / (epochs - 1)"
FEATURES = "[u, v, (u - v).abs(), u * v]"
LAYER = "return layer(self.features(u, v))[:, 0]"
BINARY = "F.binary_cross_entropy_with_logits(scores, labels.float())"
USED = "        used[task] += 1\n"
BATCH = "batches[task][used[task] % len(batches[task])]"
CLIP = "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
CLEAR = "        optimizer.zero_grad(set_to_none=True)\n"
IDS = "sorted(one for one, _ in rows) != sorted(truth)"
R = "np.corrcoef(found, truth)[0, 1] if min(np.ptp(found), np.ptp(truth)) > 0 else 0.0"

WRONG = {
    "projected_attention": [
        (
            "scores.softmax(dim=-1)",
            "scores.softmax(dim=-1).detach()",
            "is not that of the right answer; do not use detach",
        ),
        (SCORES, "Q @ K.transpose(-1, -2) + mask", "the scores are not divided by sqrt(d)"),
        ("math.sqrt(Q.shape[-1])", "math.sqrt(S)", "divided by the root of the whole width"),
        (
            "math.sqrt(Q.shape[-1])",
            "math.sqrt(h.shape[-1] / num_heads)",
            "the scores are divided by the root of D / H",
        ),
        (" + mask", "", "the mask is not used"),
        (
            SCORES,
            "(Q @ K.transpose(-1, -2) + mask) / math.sqrt(Q.shape[-1])",
            "the mask is added before the division",
        ),
        ("dim=-1", "dim=-2", "the softmax runs over the queries"),
        (SPLIT, ".view(B, num_heads, T, S // num_heads)", "cut with view(B, H, T, d)"),
        (
            SPLIT,
            ".view(B, T, S // num_heads, num_heads).permute(0, 3, 1, 2)",
            "neighbouring features go to different heads",
        ),
        ("@ V).transpose(1, 2)", "@ V)", "the heads are merged without transposing back"),
        ('"up", mixed', '"up", z', "attention is missing; this is V^D (V^E h)"),
        ('"up", mixed', '"up", z + mixed', "g has a residual; it is attention alone"),
        ('linear("up", mixed)', 'h + linear("up", mixed)', "h is added; the layer does that"),
        ('linear("up", mixed)', 'F.gelu(linear("up", mixed))', "there is a GELU after V^D"),
        ('"up", mixed', '"up", F.gelu(mixed)', "GELU comes before V^D"),
    ],
    "pal_encoder": [
        (
            "ts(h, mask, i)",
            "ts(h.detach(), mask, i)",
            "the gradient of the result by h is not that of the right answer; do not use detach",
        ),
        ("norm_2(a +", "norm_2(h +", "the second residual is h, as in the report's formula"),
        ("norm_2(a +", "norm_2(", "the second residual is missing"),
        ("norm_1(h +", "norm_1(", "the first residual is missing"),
        (" + ts(h, mask, i)", "", "TS is missing"),
        ("ts(h, mask, i)", "ts(a, mask, i)", "TS reads a, not h"),
        ("ts(h, mask, i)", "ts(h, 0 * mask, i)", "the mask is not passed on to ts"),
        ("attend(h, mask)", "attend(h, 0 * mask)", "the mask is not passed on to attend"),
        ("ts(h, mask, i)", "ts(h, mask, 0)", "every layer calls ts with layer number 0"),
        (
            SECOND,
            "layer.norm_2(a + layer.feed_forward(a)) + ts(h, mask, i)",
            "TS is added after the last",
        ),
        ("layer.norm_2", "layer.norm_1", "norm_1 is used twice"),
        (
            f"a = layer.norm_1(h + layer.attend(h, mask))\n        h = {SECOND}",
            "a = layer.norm_1(h + layer.attend(h, mask) + ts(h, mask, i))\n"
            "        h = layer.norm_2(a + layer.feed_forward(a))",
            "TS is added in the first half of the layer",
        ),
        ("enumerate(layers)", "enumerate(layers[::-1])", "the layers are used in reverse order"),
        ("    return h\n", "        return h\n", "only the first layer is used"),
        ("feed_forward(a)", "feed_forward(h)", "network reads h, not a"),
        (
            "    for i, layer",
            "    first = h\n    ts_of = ts\n    ts = lambda _, mask, i: ts_of(first, mask, i)\n"
            "    for i, layer",
            "ts reads the input of the first layer everywhere",
        ),
    ],
    "task_part": [
        (
            '{kind}": x for',
            '{kind}": x.detach() if name == "up" else x for',
            "gradients of the parameters: ",
        ),
        (UP, "", "V^D does not start at 0"),
        (UP, f"{UP}{UP.replace('up', 'down')}", "V^E starts at 0 too"),
        ("normal_(linear.weight, std=0.02)", "zeros_(linear.weight)", "all matrices start at 0"),
        ("                nn.init.zeros_(linear.bias)\n", "", "all biases keep the random start"),
        (
            "                nn.init.normal_(linear.weight, std=0.02)\n",
            "",
            "all matrices but V^D start with another spread",
        ),
        ("std=0.02", "std=0.02**2", "all matrices but V^D start with another spread"),
        ("ModuleDict(one) for", "ModuleDict(own[0]) for", "all layers share query, key and value"),
        ('("query", "key", "value")', '("query", "key", "value", "output")', "output projection"),
        ("self.attention[layer]", "self.attention[0]", "every layer uses the attention of layer 0"),
        ("(h, mask, weights", "(h, 0 * mask, weights", "the mask is not passed on"),
        ("self.num_heads = num_heads", "self.num_heads = 1", "the attention has one head"),
        ("one.named_parameters()", "one.state_dict().items()", "from copies without gradients"),
        (
            "nn.ModuleList(nn.ModuleDict(one) for one in own)",
            "[dict(one) for one in own]",
            "query, key and value are no parameters of the module",
        ),
        (
            "self.attention = nn.ModuleList(nn.ModuleDict(one) for one in own)",
            "self.maps = nn.ModuleList(nn.ModuleDict(one) for one in own)\n"
            "        self.__dict__['attention'] = list(self.maps)",
            "parameters with a name that the table does not have",
        ),
    ],
    "largest_size": [
        (
            f"ends = {ENDS}\n        return num_tasks * (ends + num_layers * 3 * (S * S + S))",
            "return num_tasks * (2 * hidden_size * S + num_layers * 3 * S * S)",
            "the biases are not counted",
        ),
        ("* 3 *", "* 4 *", "an output projection is counted"),
        ("num_layers * 3", "3", "query, key and value are counted once, not in every layer"),
        (f"ends = {ENDS}", f"ends = num_layers * ({ENDS})", "V^E and V^D are counted in every"),
        ("num_tasks * (ends", "(ends", "this is the size for one task"),
        ("<= budget", "< budget", "a size that costs exactly the budget is allowed"),
        ("    return S\n", "    return S + num_heads\n", "the first size above the budget"),
        ("    return S\n", "    return max(S, num_heads)\n", "is too expensive, the answer is 0"),
        (
            "cost(S + num_heads) <= budget:\n        S += num_heads",
            "cost(S + 1) <= budget:\n        S += 1",
            "this is no multiple of num_heads",
        ),
    ],
    "fold_sequential": [
        ('weights["up.weight"] @ weights["value.weight"]', 'weights["up.weight"]', "left out"),
        ('weights["value.weight"]', 'weights["value.weight"].T', "the values is transposed"),
        ('weights["value.weight"]', 'weights["query.weight"]', "the map of the queries stands for"),
        ('value @ weights["down.bias"] + ', "", "the bias of V^E is left out"),
        ('weights["up.weight"] @ weights["value.bias"] + ', "", "the bias of the values is left"),
        (' + weights["up.bias"]', "", "the bias of V^D is left out"),
        (" + head_bias", "", "the bias of the head is left out"),
        ("head_weight @ constant + head_bias", "head_bias", "the biases of TS are left out"),
        (
            "weight = head_weight @ value",
            "weight = head_weight + head_weight @ value",
            "x is added to TS(x); this course replaces x",
        ),
    ],
    "task_order": [
        (ALPHA, "1 - 0.8 * epoch / (epochs - 1)", "alpha is not 1 in the first"),
        (ALPHA, "1 - 0.8 * (epoch - 1) / epochs", "alpha is not 0.2 in the last epoch"),
        (ALPHA, "0.2 + 0.8 * (epoch - 1) / (epochs - 1)", "alpha rises"),
        (ALPHA, "1 - (epoch - 1) / (epochs - 1)", "alpha falls to 0"),
        (ALPHA, "1 - 0.5 * (epoch - 1) / (epochs - 1)", "alpha ends at 0.5, not at 0.2"),
        ("else 1.0", "else 0.2", "with one epoch alone alpha is 1"),
        (" if epochs > 1 else 1.0", "", "it stopped with ZeroDivisionError"),
        ("N**alpha", "N * alpha", "alpha has no effect"),
        ("power / sum(powers.values())", "power", "the sum over the tasks is not 1"),
        (
            "power / sum(powers.values())",
            "(sizes[task] / sum(sizes.values())) ** alpha",
            "N is divided by the sum before the power",
        ),
        (
            '[list(sizes)[i] for i in np.searchsorted(borders, uniform, side="right")]',
            "[next((task for task in p if u < p[task]), list(p)[-1]) for u in uniform]",
            "u is compared with each probability",
        ),
        ('"right"', '"left"', "a number on a border belongs to the task that begins there"),
        (
            '[list(sizes)[i] for i in np.searchsorted(borders, uniform, side="right")]',
            "[max(p, key=p.get)] * len(uniform)",
            "the task with the largest probability is always drawn",
        ),
        (
            '[list(sizes)[i] for i in np.searchsorted(borders, uniform, side="right")]',
            "[list(sizes)[(np.cumsum(list(p.values())) > u).argmax()] for u in uniform]",
            "rounding makes the sum smaller than 1",
        ),
        (
            "borders = np.cumsum(list(p.values()))[:-1]",
            "sizes = sorted(p)\n    borders = np.cumsum([p[task] for task in sizes])[:-1]",
            "the tasks are sorted by name",
        ),
        (
            "borders = np.cumsum(list(p.values()))[:-1]",
            "sizes = sorted(p, key=p.get, reverse=True)\n"
            "    borders = np.cumsum([p[task] for task in sizes])[:-1]",
            "the tasks are sorted by size",
        ),
    ],
    "heads": [
        ("(u - v).abs(), u * v]", "(u - v).abs(), u * v.detach()]", "gradients of the losses: "),
        ("(u - v).abs()", "u - v", "the absolute value of the difference is missing"),
        ("(u - v).abs()", "(u - v) ** 2", "the difference is squared"),
        (FEATURES, "[v, u, (u - v).abs(), u * v]", "u and v are exchanged"),
        (FEATURES, "[u, v, u * v, (u - v).abs()]", "the product stands before the difference"),
        ("self.sst(u)", "self.sst(u).softmax(-1)", "these are probabilities"),
        ('if task == "quora" else self.sts', 'if task else "sts"', "quora is used for sts"),
        (LAYER, LAYER.replace("[:, 0]", ""), "it stopped with ValueError: Target size"),
        (LAYER, LAYER + ".sigmoid()", "the sigmoid is applied; return the logit"),
        ("cross_entropy(scores, labels)", 'cross_entropy(scores, labels, reduction="sum")', "sum"),
        (
            BINARY,
            "F.binary_cross_entropy_with_logits(scores.sigmoid(), labels.float())",
            "the sigmoid is applied twice",
        ),
        (BINARY, "F.mse_loss(scores.sigmoid(), labels.float())", "this is the squared error"),
        (
            BINARY,
            "F.binary_cross_entropy(scores, labels.float())",
            "it stopped with RuntimeError",
        ),
        ("mse_loss(scores, labels)", "mse_loss(scores, labels / 5)", "the label is divided by 5"),
        ("mse_loss(scores, labels)", "l1_loss(scores, labels)", "this is the absolute difference"),
        (
            "mse_loss(scores, labels)",
            "mse_loss(*torch.broadcast_tensors(scores[:, None], labels))",
            "so every score meets every label",
        ),
    ],
    "train_epoch": [
        ("    model.train()\n", "", "the model is not set to training mode"),
        (CLEAR, "", "the gradients are not removed"),
        ("set_to_none=True", "set_to_none=False", "the gradients of other tasks are 0, not None"),
        (
            f"{CLEAR}        loss.backward()\n{CLIP}        optimizer.step()\n",
            f"        loss.backward()\n{CLIP}        optimizer.step()\n{CLEAR}",
            "remove them before a step, not after",
        ),
        (CLIP, "", "the gradients are not clipped"),
        (CLIP, CLIP.replace("norm_", "value_"), "the entries are clipped one by one"),
        (
            CLIP,
            "        for one in model.parameters():\n"
            "            nn.utils.clip_grad_norm_([one], 1.0)\n",
            "every parameter is clipped alone; clip all of them together",
        ),
        ("        optimizer.step()\n", "", "no parameter moves"),
        (USED, "", "used is not changed"),
        (BATCH, "batches[task][0]", "every step uses the first batch of its task"),
        (
            f"for task in order:\n        batch = {BATCH}",
            "for step, task in enumerate(order):\n"
            "        batch = batches[task][step % len(batches[task])]",
            "the place in order chooses the batch",
        ),
        (
            "    losses = []\n",
            "    losses = []\n    used.update(dict.fromkeys(used, 0))\n",
            "used counts the steps of this epoch alone",
        ),
        (" % len(batches[task])", "", "it stopped with IndexError"),
        (
            f"used[task] % len(batches[task])]\n{USED}",
            f"(used[task] + 1) % len(batches[task])]\n{USED}",
            "batches count from 0, not from 1",
        ),
    ],
    "prediction_file": [
        ('{name} "', '{name}"', "the space at the end of the header is missing"),
        ("id \\t ", "id\\t", "the header has no spaces around the tab"),
        ("id \\t ", "id , ", "the header has a comma; only rows have one"),
        ("Similiary", "Similarity", "'Predicted_Similiary' is corrected"),
        ('{value} "', '{value}"', "the space at the end of a row is missing"),
        (" , ", ", ", "the space before the comma is missing"),
        (" , ", " \\t ", "rows have a tab; only the header has one"),
        ("scores > 0", "scores > 0.5", "a logit is compared with 0.5"),
        ("scores > 0", "scores >= 0", "a logit of exactly 0 is not larger than 0"),
        (".float().tolist()", ".int().tolist()", "quora has 1.0 and 0.0, not 1 and 0"),
        ('[f"{one:.3f}" for one in scores.tolist()]', "scores.tolist()", "three digits"),
        ('f"{one:.3f}"', "round(one, 3)", "also where they are 0: 2.500"),
        ("dim=-1).tolist()", "dim=-1).add(1).tolist()", "the labels of sst count from 0"),
        (' + "\\n"', "", "the line end after the last row is missing"),
    ],
    "score_files": [
        (
            "for one, value in rows]",
            "for (_, value), one in zip(rows, truth)]",
            "rows are matched by place",
        ),
        (".mean() for", ".sum() for", "this is the number of right rows"),
        (".mean() for", ".mean() * 100 for", "this is in percent"),
        ("pairs[task][0] == pairs", "pairs[task][0] != pairs", "this is the share of wrong rows"),
        (R, "np.corrcoef(found, truth)[0, 1]", "the correlation of a constant is nan"),
        ("min(np.ptp(found), np.ptp(truth))", "np.ptp(found)", "nan if all labels are equal"),
        (R, R.replace("np.corrcoef", "np.cov"), "this is the covariance"),
        (R, R.replace("[0, 1]", "[0, 1] ** 2"), "this is r squared"),
        ("(r + 1) / 2", "r", "r is not brought from -1..1 to 0..1"),
        ("(r + 1) / 2", "r / 2", "r is halved, but 1 is not added"),
        (" / 3", "", "this is the sum of the tasks"),
        (IDS, "False", "no fault is refused with a ValueError"),
        (IDS, "len(rows) != len(truth)", "only the number of rows is compared"),
        (IDS, "{one for one, _ in rows} != set(truth)", "repeated ids are not refused"),
        (IDS, "set(truth) - {one for one, _ in rows}", "only missing ids are refused"),
    ],
}
