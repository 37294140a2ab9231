"""Known-wrong answers of assignment 1: a change of the solution, and the message that names it.

{question: [(old text, new text, part of the message)]}. The old text stands once in the cell.
"""

SCORES = "math.sqrt(query.shape[-1])"
FILL = "scores.masked_fill(mask == 0, -1e9)"
MANY = "Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]) + mask"
SPLIT = ".view(B, T, num_heads, D // num_heads).transpose(1, 2)"
RETURN = "return layer_norm(residual + y, g, beta, 1e-12)"
SUM = "words[input_ids] + positions[:T] + segments[token_type_ids]"
LOOP = "optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n"

WRONG = {
    "attention": [
        (f" / {SCORES}", "", "the scores are not divided by sqrt(d)"),
        (SCORES, "query.shape[-1]", "the scores are divided by d, not by sqrt(d)"),
        ("dim=-1", "dim=0", "the softmax runs over the queries"),
        ("mask == 0", "mask < 0", "padding gets attention"),
        ("return scores.softmax(dim=-1)", "return scores", "The right answer is softmax(Q K^T"),
        ("mask == 0", "mask == 1", "the mask is inverted"),
        (FILL, "scores + mask * -1e9", "the mask is inverted"),
        (FILL, "scores + mask", "the mask itself is added"),
        (FILL, "scores * mask", "the scores are multiplied by the mask"),
        ("mask == 0", "mask[:, None] == 0", "padded queries are masked, not padded keys"),
        (
            f"{FILL}\n    return scores.softmax(dim=-1)",
            "scores\n    return (scores.softmax(dim=-1) * mask)",
            "the mask comes after the softmax",
        ),
        (FILL, "scores + mask", "where M is 0 for a token and -1e9 for a padded key"),
    ],
    "self_attention": [
        (
            "scores.softmax(dim=-1)",
            "scores.softmax(dim=-1).detach()",
            "is not that of the right answer; do not use detach",
        ),
        (MANY, "Q @ K.transpose(-1, -2) + mask", "the scores are not divided by sqrt(d)"),
        ("math.sqrt(Q.shape[-1])", "math.sqrt(D)", "divided by the root of the whole width"),
        (
            MANY,
            "(Q @ K.transpose(-1, -2) + mask) / math.sqrt(Q.shape[-1])",
            "the mask is added before the division",
        ),
        (" + mask", "", "the mask is not used"),
        (" + mask", " - mask", "the mask is subtracted"),
        (" + mask", " + (1 - mask) * -1e9", "add it, without (1 - mask)"),
        (
            MANY,
            f"({MANY[:-7]}).masked_fill(mask == 0, -1e9)",
            "masked_fill(M == 0) hides the tokens",
        ),
        ("dim=-1", "dim=-2", "the softmax runs over the queries"),
        (SPLIT, ".view(B, num_heads, T, D // num_heads)", "cut with view(B, H, T, d)"),
        (
            "(scores.softmax(dim=-1) @ V).transpose(1, 2)",
            "(scores.softmax(dim=-1) @ V)",
            "the heads are merged without transposing back",
        ),
        ('.weight"].T', '.weight"]', "the weight is not transposed"),
        (' + weights[f"{name}.bias"]', "", "the biases are missing"),
        ("Q, K, V = heads", "K, Q, V = heads", "query and key are exchanged"),
    ],
    "layer_norm": [
        (
            "torch.sqrt(var + eps)",
            "torch.sqrt(var + eps).detach()",
            "is not that of the right answer; do not use detach",
        ),
        ("torch.sqrt(var + eps)", "(torch.sqrt(var) + eps)", "eps is added to the root"),
        ("torch.sqrt(var + eps)", "torch.sqrt(var)", "eps is missing"),
        ("torch.sqrt(var + eps)", "(var + eps)", "the square root is missing"),
        ("unbiased=False", "unbiased=True", "the variance is divided by D - 1"),
        ("(x - mean)", "x", "the mean is not subtracted"),
        (" + b", "", "b is missing"),
    ],
    "feed_forward": [
        ("wide.T + wide_bias", "wide.T + wide_bias.detach()", "has no gradient by wide_bias"),
        ("F.gelu(x)", 'F.gelu(x, approximate="tanh")', "approximation with tanh; use the exact"),
        ("F.gelu(x)", "F.relu(x)", "this is ReLU"),
        ("F.gelu(x)", "x * torch.sigmoid(1.702 * x)", "approximation with a sigmoid"),
        ("    x = F.gelu(x)\n", "", "GELU is missing"),
        (
            "return x @ narrow.T + narrow_bias",
            "return F.gelu(x @ narrow.T + narrow_bias)",
            "GELU belongs between the maps",
        ),
    ],
    "add_norm": [
        (
            "residual + y",
            "residual + y.detach() * 0.5 + y * 0.5",
            "is not that of the right answer; do not use detach",
        ),
        (RETURN, "return layer_norm(y, g, beta, 1e-12)", "the residual is missing"),
        (RETURN, "return residual + layer_norm(y, g, beta, 1e-12)", "comes before the sum"),
        (RETURN, "return residual + y", "LayerNorm is missing"),
        ("1e-12", "1e-5", "eps is 1e-5, torch's default"),
        (RETURN, "return F.layer_norm(residual + y, g.shape, g, beta)", "eps is 1e-5"),
        (" + bias", "", "the bias of the linear map is missing"),
        (RETURN, f"{RETURN} + residual", "the residual is added again after LayerNorm"),
    ],
    "layer": [
        ("output_norm(a +", "output_norm(h +", "the second residual is h"),
        ("output_norm(a +", "output_norm(", "the second residual is missing"),
        ("attention_norm(h +", "attention_norm(", "the residual of the first half is missing"),
        ("(h, mask, dict", "(h, 0 * mask, dict", "the mask is not passed"),
        (
            "self.attention_norm(h + self.attention_dense(attended))",
            "h + self.attention_norm(self.attention_dense(attended))",
            "LayerNorm comes before the first sum",
        ),
        (
            "self.attention_dense(attended)",
            "attended",
            "the linear map after the attention",
        ),
        ("self.output_norm(a", "self.attention_norm(a", "the first LayerNorm is used twice"),
        ("self_attention(h,", "self_attention(h.detach(),", "gradient of h"),
        ("dict(self.named_parameters())", "self.state_dict()", "none reaches query, key and value"),
        (
            "w = (self.wide.weight, self.wide.bias, self.narrow.weight, self.narrow.bias)",
            'w = [self.state_dict()[f"{a}.{b}"] for a in ("wide", "narrow") '
            'for b in ("weight", "bias")]',
            "none reaches wide and narrow",
        ),
        (
            "feed_forward(a, *w)",
            "self.narrow(F.relu(self.wide(a)))",
            "this is ReLU",
        ),
        (
            "return self.output_norm(a + feed_forward(a, *w))",
            "return self.output_norm(a + feed_forward(a, *w)).detach()",
            "no gradient reaches h",
        ),
    ],
    "embeddings": [
        (" + positions[:T]", "", "the positions are left out"),
        ("positions[:T]", "positions[1 : T + 1]", "the positions count from 0, not from 1"),
        ("positions[:T]", "positions[0]", "every token has position 0"),
        (" + segments[token_type_ids]", "", "the segments are left out"),
        ("segments[token_type_ids]", "segments[0]", "every token is in segment 0"),
        ("return layer_norm(summed, g, beta, 1e-12)", "return summed", "LayerNorm is missing"),
        ("1e-12", "1e-5", "eps is 1e-5, torch's default"),
    ],
    "adamw_step": [
        (
            "lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t)",
            "lr",
            "the bias correction sqrt(1 - beta2^t) / (1 - beta1^t) is missing",
        ),
        (" * (1 - beta2**t) ** 0.5", "", "only m is bias-corrected"),
        (" / (1 - beta1**t)", "", "only v is bias-corrected"),
        ("(v**0.5 + eps)", "(v + eps) ** 0.5", "eps belongs outside the square root"),
        (
            "(v**0.5 + eps)",
            "(v**0.5 + eps * (1 - beta2**t) ** 0.5)",
            "eps is added to the bias-corrected root, as torch does",
        ),
        (" - lr * weight_decay * theta", "", "weight decay is missing"),
        ("v**0.5 + eps", "v + eps", "the square root of v is missing"),
        ("- lr * weight_decay", "- weight_decay", "decay is not multiplied by the learning rate"),
        ("- lr * weight_decay", "- alpha * weight_decay", "decay is multiplied by alpha_t"),
        ("return theta -", "return 1 + theta -", "it returns "),
        (
            "theta = theta - alpha * m / (v**0.5 + eps)\n    return theta -",
            "return theta - alpha * m / (v**0.5 + eps) -",
            "decay uses theta from before the step",
        ),
    ],
    "adamw": [
        ("lr * (1 - betas[1]**t) ** 0.5 / (1 - betas[0]**t)", "lr", "(1 - beta1^t) is missing"),
        (" * (1 - betas[1]**t) ** 0.5", "", "only m is bias-corrected"),
        ("(v.sqrt() + eps)", "(v + eps).sqrt()", "eps belongs outside the square root"),
        (
            "(v.sqrt() + eps)",
            "(v.sqrt() + eps * (1 - betas[1]**t) ** 0.5)",
            "eps is added to the bias-corrected root",
        ),
        ("        theta.mul_(1 - lr * weight_decay)\n", "", "weight decay is missing"),
        (
            "        theta.mul_(1 - lr * weight_decay)\n",
            "        theta.mul_(1 - weight_decay)\n",
            "decay is not multiplied by the learning rate",
        ),
        (
            "theta.sub_(alpha * m / (v.sqrt() + eps))\n        theta.mul_(1 - lr * weight_decay)",
            "theta.mul_(1 - lr * weight_decay)\n        theta.sub_(alpha * m / (v.sqrt() + eps))",
            "decay comes before the step; in this course it comes after the step",
        ),
        (
            "        t = state",
            "        g = g + weight_decay * theta\n        weight_decay = 0\n        t = state",
            "decay is added to the gradient (L2)",
        ),
        ('state.get("m", 0)', "0", "The right answer is AdamW"),
        ('betas[0] * state.get("m", 0)', "0", "at [0] it returns "),
        ('t = state["t"] = state.get("t", 0) + 1', "t = 1", "t is 1 in every step"),
        (
            't = state["t"] = state.get("t", 0) + 1',
            "t = 1; state = {}",
            "start again at 0 in every",
        ),
        (
            't = state["t"] = state.get("t", 0) + 1',
            't = self.t = getattr(self, "t", 0) + 1',
            "all parameters share one step counter; keep t in state",
        ),
        (
            "        theta.mul_(1 - lr * weight_decay)\n",
            "        theta.mul_(1 - alpha * weight_decay)\n",
            "decay is multiplied by alpha_t",
        ),
        ("* g * g", "* g", "g is not squared in v"),
        ("v.sqrt() + eps", "v + eps", "the square root of v is missing"),
        ("if theta.grad is not None:\n", "if theta.grad is None:\n", "it stopped with TypeError"),
        (
            "theta.sub_(alpha * m / (v.sqrt() + eps))\n        theta.mul_(1 - lr * weight_decay)",
            "theta = (theta - alpha * m / (v.sqrt() + eps)) * (1 - lr * weight_decay)",
            "no weight moves; change theta in place",
        ),
    ],
    "train": [
        ("        optimizer.zero_grad()\n", "", "the gradients are not zeroed"),
        ("        optimizer.step()\n", "", "the weight never moves"),
        (
            LOOP,
            LOOP.replace("loss.backward()", "STEP")
            .replace("optimizer.step()", "loss.backward()")
            .replace("STEP", "optimizer.step()"),
            "the weight never moves",
        ),
        (
            LOOP,
            "optimizer.step()\n        optimizer.zero_grad()\n        loss.backward()\n",
            "the step comes before backward",
        ),
        ("labels)\n        opt", 'labels, reduction="sum")\n        opt', "the sum over the rows"),
        ("    model.train()\n", "", "the model is not set to training mode"),
    ],
    "evaluate": [
        ("    model.eval()\n", "", "the model is in training mode"),
        (
            "torch.no_grad()",
            "torch.enable_grad()",
            "autograd records every pass; use torch.no_grad()",
        ),
        (
            "    with torch.no_grad():\n",
            "    torch.set_grad_enabled(False)\n    if True:\n",
            "gradients stay switched off afterwards",
        ),
        (
            "(found == y).float().mean().item()",
            "(found == y).sum().item() / len(batches)",
            "divided by the number of batches",
        ),
        (
            "(found == y).float().mean().item()",
            "(found == y).sum().item() / (len(batches) * len(logits))",
            "the batches are not all as large as the last one",
        ),
        (
            "(found == y).float().mean().item()",
            "(logits.argmax(-1) == y[-len(logits):]).float().mean().item()",
            "this is the accuracy of the last batch",
        ),
        ("y.bincount", "found.bincount", "shares of the rows predicted as that label"),
        ("/ rows.clamp(min=1)", "/ len(y)", "these are shares of all rows"),
        ("rows.clamp(min=1)", "rows", "has 0, not nan"),
    ],
    "classifier": [
        ("out.pooler_output", "out.last_hidden_state[:, 0]", "[CLS] is read before the pooler"),
        ("out.pooler_output", "out.last_hidden_state.mean(1)", "padding is part of the mean"),
        ("out.pooler_output", "out.last_hidden_state[:, -1]", "the last token is read"),
        (
            "return self.classifier(self.dropout(x))",
            "return self.classifier(self.dropout(x)).softmax(-1)",
            "these are probabilities; cross-entropy takes logits",
        ),
        ("self.classifier(self.dropout(x))", "self.classifier(x)", "dropout is missing"),
        (
            "self.classifier(self.dropout(x))",
            "self.dropout(self.classifier(x))",
            "dropout comes after the linear layer",
        ),
        ("nn.Dropout(dropout)", "nn.Dropout(0.5)", "b alone: nn.Dropout(dropout) sets"),
        (
            "self.encoder(input_ids, attention_mask)",
            "self.encoder(input_ids)",
            "attention_mask is not passed to the encoder",
        ),
        (
            "self.encoder(input_ids, attention_mask)",
            "self.encoder(input_ids, attention_mask * 0 + 1)",
            "attention_mask is not passed to the encoder",
        ),
        ("encoder.requires_grad_(not freeze)", "pass", "the encoder is not frozen"),
        ("requires_grad_(not freeze)", "requires_grad_(False)", "the encoder is frozen in any"),
        (
            "encoder.requires_grad_(not freeze)",
            "self.requires_grad_(not freeze)",
            "the last layer is frozen too",
        ),
    ],
}
