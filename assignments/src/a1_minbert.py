# %% [raw]
# # ASSIGNMENT CONFIG
# init_cell: false
# check_all_cell: false
# export_cell: false
# solutions_pdf: false

# %% [markdown]
# # Assignment 1: minBERT and its training
#
# You write the parts of a BERT encoder and of its training, and you use them to classify the sentiment of sentences.
#
# | | |
# |---|---|
# | Work | about {hours} hours, {points} points |
# | Hand in | {deadline} |
# | Hardware | a CPU is enough; the experiment in part 4 takes two to five minutes on two cores |
# | Read before | notebooks 01 (minBERT) and 02 (Fine-tuning) of mmlkit |
# | Papers | Vaswani et al. 2017, section 3.2; Devlin et al. 2019, section 3; Loshchilov and Hutter 2019 |
#
# {rules}
#
# | questions | allowed | not allowed |
# |---|---|---|
# | all | numpy, torch and your own functions | mmlkit, transformers |
# | 1, 2, 6 | | `F.scaled_dot_product_attention`, `nn.MultiheadAttention`, `nn.TransformerEncoderLayer` |
# | 2 to 6 | what autograd can follow, because the check compares gradients | numpy, `detach` |
# | 3 | | `F.layer_norm`, `nn.LayerNorm`; both are allowed from question 5 on |
# | 8, 9 | `torch.optim.Optimizer` as the base class in question 9 | the optimizers of `torch.optim` |
#
# Letters: B sentences in a batch, T tokens, D hidden size, H heads, d = D / H width of a head, I inner size of the
# feed-forward network, V words in the vocabulary, P positions, C labels. `F` is the module `torch.nn.functional`.

# %%
{setup}

# %%
import math

import torch
from torch import nn
from torch.nn import functional as F

# %% [markdown]
# # Part 1: attention

# %% [raw]
# # BEGIN QUESTION
# name: attention

# %% [markdown]
# ## Question 1: attention of one head
#
# {facts}
#
# $$\text{attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d}} + M\right) V$$
#
# `query`, `key` and `value` have the shape [T, d]. `mask` has the shape [T]: 1 for a token, 0 for padding. No token may
# look at padding, so the score of every padded key becomes very negative before the softmax: $M_{ij}$ is 0 if
# `mask[j]` is 1, and a large negative number such as -1e9 if `mask[j]` is 0. Return [T, d].
# IF look=back
#
# In this course a token looks only at itself and at the tokens before it, as in a decoder: $M_{ij}$ is large and negative
# for $j > i$ too. (Questions 2 and 6 have no such rule.)
# END IF

# %% [raw]
# # BEGIN SOLUTION

# %%
def attention(query, key, value, mask):
    """Return the weighted sums of values, [T, d]."""
    # BEGIN SOLUTION
    scores = query @ key.T / math.sqrt(query.shape[-1])
    # IF look=all
    scores = scores.masked_fill(mask == 0, -1e9)
    # END IF
    # IF look=back
    scores = scores.masked_fill((mask * torch.ones_like(scores).tril()) == 0, -1e9)
    # END IF
    return scores.softmax(dim=-1) @ value
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("attention", attention)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: self_attention

# %% [markdown]
# ## Question 2: self-attention with several heads
#
# {facts}
#
# Three linear maps make queries, keys and values from the hidden states `h` [B, T, D]. Each of the three is cut into H
# heads of width d, [B, H, T, d]. Every head computes the attention of question 1. The heads are put side by side again.
#
# `weights` is a dict with `"query.weight"` [D, D], `"query.bias"` [D], and the same for `key` and `value`. As in
# `nn.Linear`, a map computes $x W^\top + b$. Unlike in question 1, `mask` [B, 1, 1, T] is already $M$, with numbers that
# are 0 or negative: add it as it is to the scaled scores. Return [B, T, D].

# %% [raw]
# # BEGIN SOLUTION

# %%
def self_attention(h, mask, weights, num_heads):
    """Return the outputs of all heads side by side, [B, T, D]."""
    # BEGIN SOLUTION
    B, T, D = h.shape
    heads = []
    for name in ("query", "key", "value"):
        x = h @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        heads.append(x.view(B, T, num_heads, D // num_heads).transpose(1, 2))
    Q, K, V = heads
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]) + mask
    return (scores.softmax(dim=-1) @ V).transpose(1, 2).reshape(B, T, D)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("self_attention", self_attention)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 2: the layer and the embeddings

# %% [raw]
# # BEGIN QUESTION
# name: layer_norm

# %% [markdown]
# ## Question 3: LayerNorm
#
# {facts}
#
# $$\text{LayerNorm}(x) = g \cdot \frac{x - \text{mean}(x)}{\sqrt{\text{var}(x) + \varepsilon}} + b$$
#
# Mean and variance run over the last dimension, and the variance divides by D. `x` has the shape [..., D], `g` and `b`
# have [D], and `eps` is a number. Do not use `F.layer_norm` here.

# %% [raw]
# # BEGIN SOLUTION

# %%
def layer_norm(x, g, b, eps):
    """Return the normalised vectors, [..., D]."""
    # BEGIN SOLUTION
    mean = x.mean(dim=-1, keepdim=True)
    var = x.var(dim=-1, keepdim=True, unbiased=False)
    return g * (x - mean) / torch.sqrt(var + eps) + b
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("layer_norm", layer_norm)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: feed_forward

# %% [markdown]
# ## Question 4: the feed-forward network
#
# {facts}
#
# $$\text{feed\_forward}(x) = W_2\, \text{GELU}(W_1 x + b_1) + b_2$$
#
# IF gelu=exact
# Use the exact GELU, $x\,\Phi(x)$, with the normal distribution function $\Phi$. Do not use its approximation with tanh.
# END IF
# IF gelu=tanh
# Use the approximation of GELU with tanh: $\frac{x}{2}\left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)$.
# END IF
# `wide` is $W_1$ [I, D], `wide_bias` is $b_1$ [I], `narrow` is $W_2$ [D, I] and `narrow_bias` is $b_2$ [D]. You may use
# `F.gelu`.

# %% [raw]
# # BEGIN SOLUTION

# %%
def feed_forward(x, wide, wide_bias, narrow, narrow_bias):
    """Return the output of both maps, [B, T, D]."""
    # BEGIN SOLUTION
    x = x @ wide.T + wide_bias
    # IF gelu=exact
    x = F.gelu(x)
    # END IF
    # IF gelu=tanh
    x = F.gelu(x, approximate="tanh")
    # END IF
    return x @ narrow.T + narrow_bias
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("feed_forward", feed_forward)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: add_norm

# %% [markdown]
# ## Question 5: add and norm
#
# {facts}
#
# Both halves of a layer end in the same way: a linear map, the residual, and LayerNorm around their sum.
#
# $$\text{add\_norm}(x, r) = \text{LayerNorm}(r + W x + b)$$
#
# `x` has the shape [B, T, I], `residual` [B, T, D], `weight` [D, I] and `bias` [D]. (In the first half of a layer, I is
# D.) The parameters of LayerNorm are `g` [D] and `beta` [D], and its $\varepsilon$ is `1e-12`. You may use your
# `layer_norm`, or `F.layer_norm` with `eps=1e-12`; its default is 1e-5.

# %% [raw]
# # BEGIN SOLUTION

# %%
def add_norm(x, residual, weight, bias, g, beta):
    """Return the output of one half of a layer, [B, T, D]."""
    # BEGIN SOLUTION
    y = x @ weight.T + bias
    return layer_norm(residual + y, g, beta, 1e-12)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("add_norm", add_norm)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: layer

# %% [markdown]
# ## Question 6: the layer
#
# {facts}
#
# $$a = \text{LayerNorm}(h + W_a\,\text{attention}(h) + b_a) \qquad h' = \text{LayerNorm}(a + \text{feed\_forward}(a))$$
#
# Here attention is your `self_attention` of question 2, and $W_a$ and $b_a$ are those of `self.attention_dense`. The
# constructor is given; do not rename its parts. Write `forward`. It must work with autograd, because the check also
# compares the gradients of `h` and of the parameters. Use the GELU of question 4. `nn.LayerNorm` is allowed here. The
# dict that `self_attention` expects is `dict(self.named_parameters())`; its further entries do no harm. The check runs the layer in
# float64, so a tensor that you create yourself needs `dtype=h.dtype`.

# %% [raw]
# # BEGIN SOLUTION

# %%
class BertLayer(nn.Module):
    def __init__(self, hidden_size, num_heads, inner_size):
        super().__init__()
        D, self.num_heads = hidden_size, num_heads
        self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.attention_dense, self.attention_norm = nn.Linear(D, D), nn.LayerNorm(D, eps=1e-12)
        self.wide, self.narrow = nn.Linear(D, inner_size), nn.Linear(inner_size, D)
        self.output_norm = nn.LayerNorm(D, eps=1e-12)

    def forward(self, h, mask):
        """Return h' [B, T, D] from h [B, T, D] and the additive mask [B, 1, 1, T]."""
        # BEGIN SOLUTION
        attended = self_attention(h, mask, dict(self.named_parameters()), self.num_heads)
        a = self.attention_norm(h + self.attention_dense(attended))
        w = (self.wide.weight, self.wide.bias, self.narrow.weight, self.narrow.bias)
        return self.output_norm(a + feed_forward(a, *w))
        # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("layer", BertLayer)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: embeddings

# %% [markdown]
# ## Question 7: the embeddings
#
# {facts}
#
# The vector that enters the first layer is the LayerNorm of a sum of three vectors: that of the word, that of the
# position (counted from 0), and that of the segment.
#
# `input_ids` and `token_type_ids` have the shape [B, T]. The tables are `words` [V, D], `positions` [P, D] and
# `segments` [2, D], with P at least T. LayerNorm has `g`, `beta` and $\varepsilon$ = `1e-12`.

# %% [raw]
# # BEGIN SOLUTION

# %%
def embed(input_ids, token_type_ids, words, positions, segments, g, beta):
    """Return the token vectors, [B, T, D]."""
    # BEGIN SOLUTION
    T = input_ids.shape[1]
    summed = words[input_ids] + positions[:T] + segments[token_type_ids]
    return layer_norm(summed, g, beta, 1e-12)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("embeddings", embed)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 3: training

# %% [raw]
# # BEGIN QUESTION
# name: adamw_step

# %% [markdown]
# ## Question 8: one step of AdamW
#
# {facts}
#
# Write one step for one number:
#
# $$m_t = \beta_1 m_{t-1} + (1-\beta_1)\, g \qquad v_t = \beta_2 v_{t-1} + (1-\beta_2)\, g^2 \qquad
# \alpha_t = \alpha \frac{\sqrt{1-\beta_2^t}}{1-\beta_1^t}$$
# $$\theta' = \theta_{t-1} - \alpha_t \frac{m_t}{\sqrt{v_t} + \epsilon} \qquad \theta_t = \theta' - \alpha\,\lambda\,\theta'$$
#
# All arguments are numbers and not tensors, so use `math.sqrt`. `theta` is $\theta_{t-1}$, `m` and `v` are the averages
# after t − 1 steps, `t` counts from 1, `lr` is $\alpha$, and `weight_decay` is $\lambda$. Return the new (theta, m, v).

# %% [raw]
# # BEGIN SOLUTION

# %%
def adamw_step(theta, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    """Return the new (theta, m, v)."""
    # BEGIN SOLUTION
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    alpha = lr * (1 - beta2**t) ** 0.5 / (1 - beta1**t)
    theta = theta - alpha * m / (v**0.5 + eps)
    return theta - lr * weight_decay * theta, m, v
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("adamw_step", adamw_step)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: adamw

# %% [markdown]
# ## Question 9: the optimizer
#
# {facts}
#
# Now AdamW becomes an optimizer of PyTorch. The method `step` is given; write `update`, which changes one parameter.
# `self.param_groups` is a list of dicts with the parameters (`"params"`) and the settings. `self.state[theta]` is a dict
# for what the optimizer has to remember of the parameter `theta`; it is empty at first. Every parameter counts its own
# steps. A parameter whose `grad` is None is left as it is. Here `theta` and `g` are tensors, so use `torch.sqrt` for
# $\sqrt{v_t}$.
#
# IF decay=after
# The formulas are those of question 8: the weight decay comes *after* the step.
# END IF
# IF decay=before
# The formulas are those of question 8, with one difference: the weight decay comes *before* the step. First $\theta$ is
# multiplied by $1 - \alpha\lambda$, then the step is subtracted. ($\epsilon$ stays where question 8 has it.)
# END IF

# %% [raw]
# # BEGIN SOLUTION

# %%
class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for theta in group["params"]:
                if theta.grad is not None:
                    self.update(theta, theta.grad, self.state[theta], **group)

    def update(self, theta, g, state, lr, betas, eps, weight_decay, **rest):
        """Change theta in place, and keep its averages and its step number in state."""
        # BEGIN SOLUTION
        # IF decay=before
        theta.mul_(1 - lr * weight_decay)
        # END IF
        t = state["t"] = state.get("t", 0) + 1
        m = state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
        v = state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * g * g
        alpha = lr * (1 - betas[1]**t) ** 0.5 / (1 - betas[0]**t)
        theta.sub_(alpha * m / (v.sqrt() + eps))
        # IF decay=after
        theta.mul_(1 - lr * weight_decay)
        # END IF
        # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("adamw", AdamW)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: train

# %% [markdown]
# ## Question 10: one epoch of training
#
# {facts}
#
# Write a training loop of your own. `batches` is a list of (inputs, labels): `model(*inputs)` gives logits [B, C], and
# `labels` has the shape [B]. Set the model to training mode. For each batch compute the mean cross-entropy, its gradient,
# and one update. Return a list of floats, one loss (`loss.item()`) per batch.
# IF smoothing=tenth
#
# This course trains with *label smoothing* of 0.1: the right label counts 0.9, and the rest, 0.1, is shared equally by all
# C labels, the right one included. `F.cross_entropy` has an argument for it. The losses that you return have it too.
# END IF

# %% [raw]
# # BEGIN SOLUTION

# %%
def train_epoch(model, optimizer, batches):
    """Return the loss of every batch, a list of numbers."""
    # BEGIN SOLUTION
    model.train()
    losses = []
    for inputs, labels in batches:
        # IF smoothing=none
        loss = F.cross_entropy(model(*inputs), labels)
        # END IF
        # IF smoothing=tenth
        loss = F.cross_entropy(model(*inputs), labels, label_smoothing=0.1)
        # END IF
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("train", train_epoch)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: evaluate

# %% [markdown]
# ## Question 11: a wrong evaluation
#
# {facts}
#
# The function below runs and returns numbers that look possible. Three things in it are wrong. Find and correct them, or
# write the function anew. Its arguments are `model` and `batches` of question 10. It must set the model to evaluation
# mode, and autograd may record nothing inside the function, but it must record again after it. Return three values:
#
# 1. the accuracy over all rows, a number from 0 to 1;
# 2. the predicted labels, a list of whole numbers in the order of the rows;
# IF share=recall
# 3. the *recall* of each of the C labels, a list of numbers: the share of right predictions among the rows that *have*
#    this label. It is 0 where no row has it.
# END IF
# IF share=precision
# 3. the *precision* of each of the C labels, a list of numbers: the share of right predictions among the rows that are
#    *predicted* as this label. It is 0 where no row is.
# END IF
#
# A correction earns its points when all three are right, because the function is given.

# %% [raw]
# # BEGIN SOLUTION

# %%
def evaluate(model, batches):
    """Return (accuracy, predicted labels, a share for each label)."""
    # BEGIN SOLUTION NO PROMPT
    model.eval()
    predictions, labels = [], []
    with torch.no_grad():
        for inputs, y in batches:
            logits = model(*inputs)
            predictions += logits.argmax(dim=-1).tolist()
            labels += y.tolist()
    found, y, C = torch.tensor(predictions), torch.tensor(labels), logits.shape[-1]
    # IF share=recall
    rows = y.bincount(minlength=C)
    # END IF
    # IF share=precision
    rows = found.bincount(minlength=C)
    # END IF
    shares = found[found == y].bincount(minlength=C) / rows.clamp(min=1)
    return (found == y).float().mean().item(), predictions, shares.tolist()
    # END SOLUTION
    """ # BEGIN PROMPT
    # IF share=recall
    predictions, labels, accuracies = [], [], []
    with torch.no_grad():
        for inputs, y in batches:
            logits = model(*inputs)
            predictions += logits.argmax(dim=-1).tolist()
            labels += y.tolist()
            accuracies.append((logits.argmax(dim=-1) == y).float().mean().item())
    found, y, C = torch.tensor(predictions), torch.tensor(labels), logits.shape[-1]
    shares = found[found == y].bincount(minlength=C) / found.bincount(minlength=C).clamp(min=1)
    return sum(accuracies) / len(accuracies), predictions, shares.tolist()
    # END IF
    # IF share=precision
    model.eval()
    torch.set_grad_enabled(False)
    predictions, labels = [], []
    for inputs, y in batches:
        logits = model(*inputs)
        predictions += logits.argmax(dim=-1).tolist()
        labels += y.tolist()
    rows, found, y, C = len(batches) * len(y), torch.tensor(predictions), torch.tensor(labels), logits.shape[-1]
    shares = found[found == y].bincount(minlength=C) / y.bincount(minlength=C).clamp(min=1)
    return (found == y).sum().item() / rows, predictions, shares.tolist()
    # END IF
    """ # END PROMPT

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("evaluate", evaluate)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 4: sentiment

# %% [raw]
# # BEGIN QUESTION
# name: classifier

# %% [markdown]
# ## Question 12: the classifier
#
# {facts}
#
# `encoder(input_ids, attention_mask)` returns an object with `last_hidden_state` [B, T, D] and `pooler_output` [B, D].
# IF pooling=pooler
# The classifier reads `pooler_output`.
# END IF
# IF pooling=mean
# The classifier reads the mean of `last_hidden_state` over the tokens of a sentence. Padding (`attention_mask` 0) is not
# part of the mean.
# END IF
# It applies `self.dropout` and then the linear layer `self.classifier`, which gives the logits [B, C]. Both are given.
#
# Add the freezing at the `...` of the constructor, and write `forward`. With `freeze=True` no parameter of the encoder is
# trained; with `freeze=False` all parameters are trained.

# %% [raw]
# # BEGIN SOLUTION

# %%
class SentimentClassifier(nn.Module):
    def __init__(self, encoder, hidden_size, num_labels, dropout=0.1, freeze=False):
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, num_labels)
        # BEGIN SOLUTION
        encoder.requires_grad_(not freeze)
        # END SOLUTION

    def forward(self, input_ids, attention_mask):
        """Return logits, [B, C]."""
        # BEGIN SOLUTION
        out = self.encoder(input_ids, attention_mask)
        # IF pooling=pooler
        x = out.pooler_output
        # END IF
        # IF pooling=mean
        mask = attention_mask[..., None]
        x = (out.last_hidden_state * mask).sum(1) / mask.sum(1)
        # END IF
        return self.classifier(self.dropout(x))
        # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("classifier", SentimentClassifier)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# ## The experiment: frozen and fine-tuned
#
# Your optimizer, your loop and your classifier now train a real encoder. MiniLM is a small BERT with pretrained weights. The
# data are short sentences about films that were written for mmlkit, with five labels from very negative (0) to very positive (4). Do
# not compare with published numbers of SST-5. The rows of train and dev are drawn for this course.
#
# `length` is the number of tokens to which a sentence is cut. The first cell makes batches; the second trains on the
# first 320 of the train rows and evaluates on 200 dev rows. It takes two to five minutes on two cores.

# %%
# Experiment: the grader skips this cell.
from mmlkit import load_pretrained, load_task

data, (encoder, tokenizer) = load_task("sst").train, load_pretrained("minilm", device="cpu")
train_rows, dev_rows = check.split(len(data), dev=200)


def make_batches(rows, size=32, length=40):
    batches = []
    for i in range(0, len(rows), size):
        part = rows[i : i + size]
        texts = [data.texts[row][0] for row in part]
        ids = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
        batches.append(((ids.input_ids, ids.attention_mask), torch.tensor(data.labels[part])))
    return batches

# %%
# Experiment: the grader skips this cell.
def experiment(freeze, lr, epochs, rows=320, seed=0):
    torch.manual_seed(seed)
    model = SentimentClassifier(load_pretrained("minilm", device="cpu")[0], 384, 5, freeze=freeze)
    optimizer = AdamW([one for one in model.parameters() if one.requires_grad], lr=lr)
    for epoch in range(epochs):
        losses = train_epoch(model, optimizer, make_batches(train_rows[:rows]))
        accuracy, *_ = evaluate(model, make_batches(dev_rows))
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}, dev accuracy {accuracy:.3f}")
    return accuracy


if check.done("adamw", "train", "evaluate", "classifier"):
    results = {"frozen": experiment(True, 1e-2, 4), "fine-tuned": experiment(False, 1e-4, 4)}
    print(results)

# %% [raw]
# # BEGIN QUESTION
# name: written
# manual: true

# %% [markdown]
# ## Question 13: what do the two numbers say?
#
# {facts}
#
# Write at most 200 words, in full sentences:
#
# 1. The baseline always predicts the most frequent label of the 320 training rows. Compute its accuracy on the dev rows,
#    and compare both results with it.
# 2. Compute the standard error of an accuracy on 200 rows. Is the difference between frozen and fine-tuned larger than
#    chance explains? Call it larger if it is more than two standard errors of the difference, $\sqrt{SE_1^2 + SE_2^2}$.
#    This formula treats the two accuracies as independent.
# 3. The comparison changes more than one thing at once. Name these things, and propose a fairer comparison.
#
# Compute the baseline in a cell of your own; begin it with `# Experiment: the grader skips this cell.` The training rows
# are `train_rows[:320]`, and the label of a row is `data.labels[row]`. Where the labels are nearly balanced, the baseline
# can lie below 1/5, the accuracy of guessing.

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to written:** The baseline is the most frequent label of the training rows. An accuracy p on n rows has the
# standard error $\sqrt{p(1-p)/n}$, at most 0.036 here, and a difference of two has at most 0.05. A difference above 0.10
# is therefore larger than chance explains. Both models predict the same rows, so a paired comparison would be sharper.
# The two runs differ in the frozen parameters and in the learning rate. A fairer comparison chooses the learning rate of
# each on other rows, and repeats both with several seeds.

# %% [raw]
# # END SOLUTION

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: extension
# manual: true

# %% [markdown]
# ## Question 14: a small project of your own
#
# {facts}
#
# Change *one* thing in the experiment and find out what it does. For example: the vector that the classifier reads, the
# learning rate with warmup and linear decay, the number of trained layers, or the number of training rows. Your own idea
# is welcome.
#
# Report in this order, on at most one page:
#
# 1. the question;
# 2. your prediction before the run;
# 3. what you changed and what you kept;
# 4. a table with the mean and the spread over at least three seeds;
# 5. the answer;
# 6. a result that would change it.
#
# A result that contradicts your prediction is worth the same points.
#
# Add your code in cells below. The first line of each must be `# Experiment: the grader skips this cell.` Copy what you
# change (`experiment`, `SentimentClassifier`) under another name, and change the copy: the cells above stay as they are.
# The dev rows serve to choose and to report, so say in your answer what you chose on them.

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to extension:** One possible report compares 80, 160 and 320 training rows with three seeds each.

# %% [raw]
# # END SOLUTION

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Hand in
#
# 1. Run the notebook from top to bottom (Runtime, Run all) and read the summary below.
# 2. Download it: on Colab with File, Download, Download .ipynb; in Jupyter it already lies in your folder.
# 3. {file} The grader reads only this file.

# %%
# Summary: the grader skips this cell.
check.summary()
