# %% [raw]
# # ASSIGNMENT CONFIG
# init_cell: false
# check_all_cell: false
# export_cell: false
# solutions_pdf: false

# %% [markdown]
# # Assignment 4: one encoder, three tasks, and a leaderboard
#
# You write projected attention layers, the sampling of tasks, three heads and a training loop. With them you train one model
# on sentiment, paraphrases and similarity, and you write its predictions into files for a leaderboard.
#
# | | |
# |---|---|
# | Work | about {hours} hours, {points} points |
# | Hand in | {deadline} |
# | Hardware | a CPU is enough; the experiment in part 5 takes about three minutes on two idle cores, up to ten on a busy machine |
# | Read before | notebooks 10 (Annealed sampling), 11 (Projected attention layers) and 12 (Putting it together) of mmlkit |
# | Papers | Stickland and Murray 2019, *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*, ICML, sections 3 and 4.1; Hu and Xiao, *Multitask BERT*, CS224N default project report, Stanford University, section 3 ("the CS224N report" below) |
#
# {rules}
#
# | questions | allowed | not allowed |
# |---|---|---|
# | all | numpy, torch and your own functions | mmlkit, transformers: only the experiment imports them |
# | 1, 2, 3, 7 | what autograd can follow, because the check compares gradients | numpy, `detach` |
# | 1, 3 | | `F.scaled_dot_product_attention`, `nn.MultiheadAttention` |
# | 8 | a changed model, optimizer and `used` | |
#
# Letters: B sentences in a batch, T tokens, D hidden size of the encoder, S projected size, H heads of a projected
# attention, L layers, C labels, N rows, e an epoch, E the number of epochs, s and t tasks. The E and the D in $V^E$ and $V^D$
# are no numbers: they stand for encoder and decoder.
#
# The three tasks have the names of the CS224N project: `sst` (the sentiment of a sentence, five labels from 0 to 4), `quora`
# (is a question a paraphrase of another one, 1 or 0) and `sts` (the similarity of two sentences, a number from 0 to 5).

# %%
{setup}

# %%
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

# %% [markdown]
# # Part 1: projected attention layers

# %% [raw]
# # BEGIN QUESTION
# name: projected_attention

# %% [markdown]
# ## Question 1: projected attention
#
# {facts}
#
# A projected attention layer (PAL) is a small attention that belongs to one task:
#
# IF gelu=none
# $$\text{TS}(h) = V^D\, g(V^E h)$$
# END IF
# IF gelu=after
# $$\text{TS}(h) = \text{GELU}\left(V^D\, g(V^E h)\right)$$
# END IF
#
# 1. $V^E$ is a linear map from D to S features.
# 2. $g$ is self-attention with H heads of width S / H. Queries, keys and values are three linear maps, from S to S features, of
#    $V^E h$. S is a multiple of H. Head k, counted from 0, owns the features k (S / H) to (k + 1) (S / H) - 1 of queries, keys and
#    values. The scores are divided by $\sqrt{S / H}$, then the mask is added, then the softmax runs over the keys. The results
#    of the heads are put side by side in this order. There is no output projection after the heads, no residual and no dropout.
# 3. $V^D$ is a linear map from S back to D features.
# IF gelu=after
# 4. The GELU comes last. It is the exact one, `F.gelu(x)`. The authors' code has it, and their formula has not.
# END IF
#
# `h` has the shape [B, T, D]. `mask` [B, 1, 1, T] is 0 for a token and some negative number for padding. Add the mask to the
# scores without changing it. Its negative number may be close to 0, such as -3. In a test, every token of a sentence can be
# padding. `weights` is a dict of tensors: `"down.weight"` [S, D] and `"down.bias"` [S] belong to $V^E$; `"query.weight"` [S, S]
# and `"query.bias"` [S], and the same for `key` and `value`; `"up.weight"` [D, S] and `"up.bias"` [D] belong to $V^D$. As in
# `nn.Linear`, a map computes $x W^\top + b$. Return TS(h), [B, T, D].

# %% [raw]
# # BEGIN SOLUTION

# %%
def projected_attention(h, mask, weights, num_heads):
    """Return TS(h), [B, T, D]."""
    # BEGIN SOLUTION
    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    z = linear("down", h)
    B, T, S = z.shape
    Q, K, V = (
        linear(name, z).view(B, T, num_heads, S // num_heads).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]) + mask
    mixed = (scores.softmax(dim=-1) @ V).transpose(1, 2).reshape(B, T, S)
    # IF gelu=none
    return linear("up", mixed)
    # END IF
    # IF gelu=after
    return F.gelu(linear("up", mixed))
    # END IF
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("projected_attention", projected_attention)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: pal_encoder

# %% [markdown]
# ## Question 2: the encoder with PALs
#
# {facts}
#
# Every layer of the shared encoder adds TS(h) of the task before its last LayerNorm:
#
# $$a = \text{LN}_1(h + \text{MH}(h)) \qquad\qquad h' = \text{LN}_2(a + \text{FFN}(a) + \text{TS}(h))$$
#
# MH is the layer's multi-head attention and FFN its feed-forward network. Papers print this formula in other ways. With
# TS = 0, the formula above is exactly a BERT layer. Follow it.
#
# `layers` is a list with one object per layer. Its functions take and return tensors [B, T, D]:
#
# | function | formula |
# |---|---|
# | `layer.attend(h, mask)` | MH(h), without the residual |
# | `layer.norm_1(x)` | $\text{LN}_1(x)$ |
# | `layer.feed_forward(a)` | FFN(a), without the residual |
# | `layer.norm_2(x)` | $\text{LN}_2(x)$ |
#
# `ts(h, mask, i)` returns TS(h) of layer i, [B, T, D]. The layers are numbered from 0, in the order of the list. `h` [B, T, D] is the input of the
# first layer, and `mask` is that of question 1. Return the output of the last layer.

# %% [raw]
# # BEGIN SOLUTION

# %%
def pal_encoder(h, mask, layers, ts):
    """Return the output of the last layer, [B, T, D]."""
    # BEGIN SOLUTION
    for i, layer in enumerate(layers):
        a = layer.norm_1(h + layer.attend(h, mask))
        h = layer.norm_2(a + layer.feed_forward(a) + ts(h, mask, i))
    return h
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("pal_encoder", pal_encoder)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: task_part

# %% [markdown]
# ## Question 3: the parameters of one task
#
# {facts}
#
# Write the module that holds all PALs of one task. All layers of the encoder share $V^E$ and $V^D$. Every layer has its own
# query, key and value. All linear maps have biases. Use these names, because the grader loads weights by name:
#
# | name | module |
# |---|---|
# | `self.down` | $V^E$, `nn.Linear` |
# | `self.up` | $V^D$, `nn.Linear` |
# | `self.attention` | an `nn.ModuleList` with one `nn.ModuleDict` per layer, whose keys are `"query"`, `"key"` and `"value"` |
#
# **Initialisation.** All biases start at 0. The weight of $V^D$ starts at 0 too, so a new model computes exactly what the encoder
# without PALs computes (TS(h) = 0). All other weights are drawn from a normal distribution with mean 0 and standard deviation
# 0.02.
#
# `forward(h, mask, layer)` returns TS(h) of the layer with that number, counted from 0. Its arguments and its result are
# those of `ts` in question 2. Use your function of question 1. Build its dict from the parameters themselves
# (`module.weight`, `module.bias`): `state_dict()` returns copies without gradients.

# %% [raw]
# # BEGIN SOLUTION

# %%
class TaskPart(nn.Module):
    def __init__(self, hidden_size, size, num_heads, num_layers):
        """hidden_size is D, size is S, num_heads is H, num_layers is L."""
        super().__init__()
        # BEGIN SOLUTION
        self.num_heads = num_heads
        self.down, self.up = nn.Linear(hidden_size, size), nn.Linear(size, hidden_size)
        names = ("query", "key", "value")
        own = [[(name, nn.Linear(size, size)) for name in names] for _ in range(num_layers)]
        self.attention = nn.ModuleList(nn.ModuleDict(one) for one in own)
        for linear in self.modules():
            if isinstance(linear, nn.Linear):
                nn.init.normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)
        nn.init.zeros_(self.up.weight)
        # END SOLUTION

    def forward(self, h, mask, layer):
        """Return TS(h) of one layer, [B, T, D]."""
        # BEGIN SOLUTION
        maps = {"down": self.down, "up": self.up, **self.attention[layer]}
        weights = {f"{name}.{kind}": x for name, one in maps.items() for kind, x in one.named_parameters()}
        return projected_attention(h, mask, weights, self.num_heads)
        # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("task_part", TaskPart)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: largest_size

# %% [markdown]
# ## Question 4: a budget
#
# {facts}
#
# The PALs of all tasks together may have at most `budget` parameters. Return the largest projected size S that the budget
# allows. S must be a multiple of `num_heads`. Return 0 if even S = `num_heads` is too expensive.
#
# Count the parameters of the modules of question 3: every task has one `TaskPart`. The heads of the tasks and the encoder do
# not count. All arguments are whole numbers. With BERT-base and eight tasks, `largest_size(768, 12, 8, 12, 15_000_000)` is
# 204, the size in the paper.

# %% [raw]
# # BEGIN SOLUTION

# %%
def largest_size(hidden_size, num_layers, num_tasks, num_heads, budget):
    """Return the largest multiple of num_heads within the budget, or 0."""
    # BEGIN SOLUTION
    def cost(S):
        ends = 2 * hidden_size * S + S + hidden_size
        return num_tasks * (ends + num_layers * 3 * (S * S + S))

    S = 0
    while cost(S + num_heads) <= budget:
        S += num_heads
    return S
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("largest_size", largest_size)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 2: attention over one token

# %% [raw]
# # BEGIN QUESTION
# name: fold_sequential

# %% [markdown]
# ## Question 5: the sequential form is one linear head
#
# {facts}
#
# The CS224N report also tries a cheaper form. It applies one projected attention after the last layer, to the vector x of
# [CLS] alone, and a linear head with C outputs reads the result:
#
# IF skip=none
# $$\text{logits} = W\, \text{TS}(x) + b$$
# END IF
# IF skip=residual
# $$\text{logits} = W\, (x + \text{TS}(x)) + b$$
#
# (The report has no residual x here. In this course there is one.)
# END IF
#
# IF gelu=none
# Here T = 1. TS is that of question 1, with all its biases. There is no mask, because there is no padding.
# END IF
# IF gelu=after
# Here T = 1. TS is that of question 1 with all its biases, but without the GELU. There is no mask, because there is no padding.
# END IF
#
# Show that this is one linear head: return a weight [C, D] and a bias [C] so that logits = weight x + bias, for every vector
# x [D].
#
# `weights` is the dict of question 1, `head_weight` is W [C, D] and `head_bias` is b [C]. Hint: first write down the softmax
# of a single score.

# %% [raw]
# # BEGIN SOLUTION

# %%
def fold_sequential(weights, head_weight, head_bias):
    """Return (weight [C, D], bias [C])."""
    # BEGIN SOLUTION
    value = weights["up.weight"] @ weights["value.weight"]
    # IF skip=none
    weight = head_weight @ value @ weights["down.weight"]
    # END IF
    # IF skip=residual
    weight = head_weight + head_weight @ value @ weights["down.weight"]
    # END IF
    constant = value @ weights["down.bias"] + weights["up.weight"] @ weights["value.bias"] + weights["up.bias"]
    return weight, head_weight @ constant + head_bias
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("fold_sequential", fold_sequential)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 3: three tasks

# %% [raw]
# # BEGIN QUESTION
# name: task_order

# %% [markdown]
# ## Question 6: the order of the tasks
#
# {facts}
#
# Every training step belongs to one task. Annealed sampling draws the tasks of an epoch. In epoch e of E, task t with $N_t$
# training rows has the probability
#
# IF last=fifth
# $$p_t = \frac{N_t^{\alpha}}{\sum_s N_s^{\alpha}} \qquad \alpha = 1 - 0.8\, \frac{e - 1}{E - 1}$$
# END IF
# IF last=half
# $$p_t = \frac{N_t^{\alpha}}{\sum_s N_s^{\alpha}} \qquad \alpha = 1 - 0.5\, \frac{e - 1}{E - 1}$$
#
# (The paper has 0.8 where this course has 0.5.)
# END IF
#
# The sum runs over all tasks. The epochs count from 1. For E = 1 the fraction is 0 / 0; take $\alpha = 1$ there.
#
# `uniform` is a list of numbers from 0 to 1, and 1 is excluded. Each of them draws one task. Cut the interval from 0 to 1 into
# pieces in the order of `sizes`: the first task owns the numbers from 0 to $p_1$, the second those from $p_1$ to $p_1 + p_2$,
# and so on. A number on a border belongs to the task that begins there. The last task owns all numbers up to 1, also if
# rounding makes the sum of the probabilities a little smaller than 1.
#
# `sizes` is a dict {task: N}, `epoch` is e and `epochs` is E. Return a tuple: the dict {task: p}, and the list of the drawn
# names, one for each number in `uniform`.

# %% [raw]
# # BEGIN SOLUTION

# %%
def task_order(sizes, epoch, epochs, uniform):
    """Return ({task: probability}, list of task names)."""
    # BEGIN SOLUTION
    # IF last=fifth
    alpha = 1 - 0.8 * (epoch - 1) / (epochs - 1) if epochs > 1 else 1.0
    # END IF
    # IF last=half
    alpha = 1 - 0.5 * (epoch - 1) / (epochs - 1) if epochs > 1 else 1.0
    # END IF
    powers = {task: N**alpha for task, N in sizes.items()}
    p = {task: power / sum(powers.values()) for task, power in powers.items()}
    borders = np.cumsum(list(p.values()))[:-1]
    return p, [list(sizes)[i] for i in np.searchsorted(borders, uniform, side="right")]
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("task_order", task_order)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: heads

# %% [markdown]
# ## Question 7: features, heads and losses
#
# {facts}
#
# The encoder turns every sentence into a vector. `u` [B, D] holds the vectors of the first sentences and `v` [B, D] those of
# the second ones. The heads of `quora` and `sts` read these features, side by side in this order:
#
# IF features=four
# $$[\,u,\; v,\; |u - v|,\; u \odot v\,]$$
#
# $\odot$ multiplies each feature of u by the same feature of v, so `features` returns [B, 4D].
# END IF
# IF features=three
# $$[\,u,\; v,\; |u - v|\,]$$
#
# So `features` returns [B, 3D].
# END IF
#
# | task | `scores(task, u, v)` | `labels` [B] | `loss(task, scores, labels)` |
# |---|---|---|---|
# | `sst` | `self.sst` on u: logits [B, 5]; v is None | whole numbers from 0 to 4, int64 | cross-entropy |
# | `quora` | `self.quora` on the features: logits [B] | whole numbers 0 and 1, int64 | binary cross-entropy of the sigmoid of the logits |
# | `sts` | `self.sts` on the features: numbers [B] | numbers from 0 to 5, float32 | squared difference of score and label |
#
# Mind the shapes: the layers of `quora` and `sts` return [B, 1], and the scores have the shape [B]. Every loss is a mean over
# the rows. The constructor is given; do not rename its parts. You may use the losses of `torch.nn.functional`. Its binary
# cross-entropies take labels as floating-point numbers.

# %% [raw]
# # BEGIN SOLUTION

# %%
class Heads(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        # IF features=four
        width = 4 * hidden_size
        # END IF
        # IF features=three
        width = 3 * hidden_size
        # END IF
        self.sst, self.quora, self.sts = nn.Linear(hidden_size, 5), nn.Linear(width, 1), nn.Linear(width, 1)

    def features(self, u, v):
        """Return the features of the pairs."""
        # BEGIN SOLUTION
        # IF features=four
        return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
        # END IF
        # IF features=three
        return torch.cat([u, v, (u - v).abs()], dim=-1)
        # END IF
        # END SOLUTION

    def scores(self, task, u, v):
        """Return the scores of one task, [B, 5] or [B]."""
        # BEGIN SOLUTION
        if task == "sst":
            return self.sst(u)
        layer = self.quora if task == "quora" else self.sts
        return layer(self.features(u, v))[:, 0]
        # END SOLUTION

    def loss(self, task, scores, labels):
        """Return the mean loss of one task, a scalar tensor."""
        # BEGIN SOLUTION
        if task == "sst":
            return F.cross_entropy(scores, labels)
        if task == "quora":
            return F.binary_cross_entropy_with_logits(scores, labels.float())
        return F.mse_loss(scores, labels)
        # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("heads", Heads)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: train_epoch

# %% [markdown]
# ## Question 8: one epoch of several tasks
#
# {facts}
#
# Train one epoch. `order` is a list of task names, one per step. `batches` is a dict from a task to the list of its batches, and
# `model.loss(task, batch)` returns the loss of a batch, a scalar tensor. For every name in `order`:
#
# 1. Choose the batch. `used` is a dict from a task to the number of its steps so far, in *all* epochs. It has every task as a
#    key, and every number is 0 before the first epoch. A task that made k steps now uses its batch number k, counted from 0.
#    After its last batch, the first one follows again. Then add 1 to `used[task]`, in place, because the next epoch
#    continues there.
# 2. Compute the loss and its gradients. The parameters may hold old gradients when your function starts, so clear them
#    before every step.
# IF clip=global
# 3. Clip the gradient: if the norm of the gradient of all parameters *together* is larger than 1, scale it down to 1.
# END IF
# IF clip=each
# 3. Clip the gradients as Stickland and Murray's code does: scale the gradient of *each* parameter tensor by itself down to norm 1 if
#    it is larger.
# END IF
#    You may use `nn.utils.clip_grad_norm_`.
# 4. Make one update with `optimizer.step()`.
#
# The parameters of the other tasks must not move in this step, not even by momentum or weight decay. An optimizer skips a
# parameter whose `grad` is None.
#
# Set the model to training mode first. Return a list with the loss of every step, as numbers.

# %% [raw]
# # BEGIN SOLUTION

# %%
def train_epoch(model, optimizer, batches, order, used):
    """Return the losses, a list of numbers; count the steps in used."""
    # BEGIN SOLUTION
    model.train()
    losses = []
    for task in order:
        batch = batches[task][used[task] % len(batches[task])]
        used[task] += 1
        loss = model.loss(task, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        # IF clip=global
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # END IF
        # IF clip=each
        for theta in model.parameters():
            nn.utils.clip_grad_norm_([theta], 1.0)
        # END IF
        optimizer.step()
        losses.append(loss.item())
    return losses
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("train_epoch", train_epoch)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 4: prediction files

# %% [raw]
# # BEGIN QUESTION
# name: prediction_file

# %% [markdown]
# ## Question 9: write a prediction file
#
# {facts}
#
# The CS224N project has a format of its own. Return the content of one file as a text. Its first line is the header, then every
# row has one line. In this picture, `→` stands for one tab character and `·` for one space:
#
# ```
# id·→·Predicted_Sentiment·
# e1a2f·,·3·
# 03b9c·,·0·
# ```
#
# Every line ends with a space and then with a line end (`"\n"`), also the last one.
#
# | `task` | word in the header | `scores`, a tensor | value of a row |
# |---|---|---|---|
# | `sst` | `Predicted_Sentiment` | logits [N, 5] | the label with the largest logit, as `3`; of equal logits the first counts |
# | `quora` | `Predicted_Is_Paraphrase` | logits [N] | `1.0` where the logit is larger than 0, otherwise `0.0` |
# | `sts` | `Predicted_Similiary` | numbers [N] | the number in Python's format `.3f`, as `2.500` |
#
# The misprint in the last word belongs to the format. `ids` is a list of N texts, in the order of the rows.

# %% [raw]
# # BEGIN SOLUTION

# %%
def prediction_file(task, ids, scores):
    """Return the content of the file, a text."""
    # BEGIN SOLUTION
    if task == "sst":
        name, values = "Predicted_Sentiment", scores.argmax(dim=-1).tolist()
    elif task == "quora":
        name, values = "Predicted_Is_Paraphrase", (scores > 0).float().tolist()
    else:
        name, values = "Predicted_Similiary", [f"{one:.3f}" for one in scores.tolist()]
    lines = [f"id \t {name} "] + [f"{one} , {value} " for one, value in zip(ids, values)]
    return "\n".join(lines) + "\n"
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("prediction_file", prediction_file)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: score_files

# %% [markdown]
# ## Question 10: the score of the leaderboard
#
# {facts}
#
# Read the three files of a team and compute its score. `texts` is a dict from a task to the content of its file, in the format
# of question 9. `labels` is a dict from a task to a dict {id: label}, where the label is a number. The rows of a file may
# stand in another order than the labels, so match them by id. You may assume that the header and the form of every row are
# right, that every value is a number, and that no id has a comma or a space.
#
# * sst and quora: the accuracy, from 0 to 1. A row is right if its value is equal to its label, as numbers.
# * sts: Pearson's correlation r of predictions and labels. If all predictions of sts are equal, or all its labels, r is not
#   defined; it counts as 0 then. You may use `np.corrcoef`.
# * overall: $\frac{1}{3}\left(\text{sst} + \text{quora} + \frac{r + 1}{2}\right)$
#
# Raise a `ValueError` if the ids of a file are not exactly the ids of its labels, each of them once. A missing, a repeated or
# an unknown id is a fault. Otherwise return the tuple (sst, quora, r, overall).

# %% [raw]
# # BEGIN SOLUTION

# %%
def score_files(texts, labels):
    """Return (sst, quora, r, overall)."""
    # BEGIN SOLUTION
    pairs = {}
    for task, truth in labels.items():
        rows = [line.split(" , ") for line in texts[task].splitlines()[1:]]
        if sorted(one for one, _ in rows) != sorted(truth):
            raise ValueError(f"{task}: the ids are not those of the labels")
        pairs[task] = np.array([[float(value), truth[one]] for one, value in rows]).T
    sst, quora = ((pairs[task][0] == pairs[task][1]).mean() for task in ("sst", "quora"))
    found, truth = pairs["sts"]
    r = np.corrcoef(found, truth)[0, 1] if min(np.ptp(found), np.ptp(truth)) > 0 else 0.0
    return sst, quora, r, (sst + quora + (r + 1) / 2) / 3
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("score_files", score_files)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 5: the whole model
#
# ## The experiment: with and without PALs
#
# Your functions now train one encoder on three tasks, twice. MiniLM is a small BERT with pretrained weights and L = 6
# layers. The team `shared` has no PALs, so all tasks use the same encoder. The team `pals` has your `TaskPart` for every task.
# Both start from the same weights of the encoder and of the heads, and see the same batches in the same order. The random
# dropout of the two teams differs. Each writes the files of one team.
#
# The rows are short texts that were written for mmlkit. The experiment draws from four fifths of the training rows, which are
# chosen for this course. An epoch here is 40 steps of 8 rows, so the three epochs use less than half of these rows, each once.
# In our runs, the accuracy was 0.44 to 0.57 for `sst` and 0.62 to 0.75 for `quora`, and r was 0.3 to 0.6 for `sts`. These numbers
# differ much between seeds. The board compares the files with the labels of the dev rows. These labels are public, so this board is
# for practice.
#
# The first cell makes batches. A batch is a tuple (first sentences, second sentences, labels). The first and the second sentences
# are each a tuple (token ids, mask), both [B, T]. This mask is 1 for a token and 0 for padding. For `sst`, second sentences is
# None. `length` is the number of tokens to which a sentence is cut.

# %%
# Experiment: the grader skips this cell.
from mmlkit import load_pretrained, load_task

data = {task: load_task(task) for task in ("sst", "quora", "sts")}
_, tokenizer = load_pretrained("minilm", device="cpu")


def make_batches(split, size=8, length=32):
    batches = []
    for i in range(0, len(split), size):
        part = split.take(range(i, min(i + size, len(split))))
        sentences = [tokenizer(list(one), padding=True, truncation=True, max_length=length, return_tensors="pt")
                     for one in zip(*part.texts)]
        first, second = [*((one.input_ids, one.attention_mask) for one in sentences), None][:2]
        batches.append((first, second, torch.tensor(part.labels)))
    return batches

# %% [markdown]
# The next cells build the model. `four_functions` gives a layer of mmlkit the form of question 2. A sentence's vector is the mean
# of its token vectors without padding.

# %%
# Experiment: the grader skips this cell.
from types import SimpleNamespace


def four_functions(layer):
    """Return a layer of mmlkit's BERT as the four functions of question 2."""
    first, second = layer.attention.output, layer.output
    return SimpleNamespace(
        attend=lambda h, mask: first.dropout(first.dense(layer.attention.self(h, mask))),
        norm_1=first.LayerNorm,
        feed_forward=lambda a: second.dropout(second.dense(layer.intermediate(a))),
        norm_2=second.LayerNorm,
    )

# %%
# Experiment: the grader skips this cell.
def vectors(encoder, sentences, ts):
    """Return one vector per sentence, [B, D]."""
    ids, mask = sentences
    h = encoder.embeddings(ids, torch.zeros_like(ids))
    layers = [four_functions(one) for one in encoder.encoder.layer]
    h = pal_encoder(h, encoder.additive_mask(mask, h), layers, ts)
    return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

# %%
# Experiment: the grader skips this cell.
class Model(nn.Module):
    def __init__(self, pals, size=96, num_heads=12):
        super().__init__()
        self.encoder, _ = load_pretrained("minilm", device="cpu")
        D, L = self.encoder.config.hidden_size, self.encoder.config.num_hidden_layers
        self.heads = Heads(D)
        self.parts = nn.ModuleDict({task: TaskPart(D, size, num_heads, L) for task in data} if pals else {})

    def scores(self, task, first, second):
        ts = self.parts[task] if self.parts else lambda h, mask, i: 0
        return self.heads.scores(task, *(one and vectors(self.encoder, one, ts) for one in (first, second)))

    def loss(self, task, batch):
        return self.heads.loss(task, self.scores(task, *batch[:2]), batch[2])

# %% [markdown]
# The next cell trains a model and writes the files of its team into the folder `board`.

# %%
# Experiment: the grader skips this cell.
from pathlib import Path

from mmlcourse.studies.cs224n import prediction_file as file_name


@torch.no_grad()
def write_files(model, team):
    model.eval()
    for task, one in data.items():
        scores = torch.cat([model.scores(task, *batch[:2]) for batch in make_batches(one.dev, size=64)])
        path = Path("board") / team / file_name(task, "dev")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(prediction_file(task, [str(row) for row in one.dev.ids], scores).encode())

# %%
# Experiment: the grader skips this cell.
def experiment(team, pals, epochs=3, steps=40, seed=0):
    torch.manual_seed(seed)
    model, uniform, used = Model(pals), np.random.default_rng(seed), dict.fromkeys(data, 0)
    new = [*model.heads.parameters(), *model.parts.parameters()]
    groups = [{"params": model.encoder.parameters(), "lr": 5e-5}, {"params": new, "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    for epoch in range(1, epochs + 1):
        _, order = task_order(sizes, epoch, epochs, uniform.random(steps).tolist())
        losses = train_epoch(model, optimizer, batches, order, used)
        for task in sorted(set(order)):
            own = [loss for loss, name in zip(losses, order) if name == task]
            print(f"{team}, epoch {epoch}, {task}: {len(own)} steps, mean loss {sum(own) / len(own):.2f}")
    write_files(model, team)
    return model

# %%
# Experiment: the grader skips this cell.
if check.done("pal_encoder", "task_part", "task_order", "heads", "train_epoch", "prediction_file"):
    rows = {task: check.split(len(one.train), dev=len(one.train) // 5)[0] for task, one in data.items()}
    sizes = {task: len(one) for task, one in rows.items()}
    batches = {task: make_batches(one.train.take(rows[task])) for task, one in data.items()}
    for team, pals in (("shared", False), ("pals", True)):
        experiment(team, pals)

# %% [markdown]
# Now the board. The command `mmlkit leaderboard board --source mini --out result` makes the same table as a page. The row
# "most frequent label" needs no model. The last lines compare the board with your `score_files`.

# %%
# Experiment: the grader skips this cell.
from mmlcourse.grading.leaderboard import rank

complete = all((Path("board") / team / file_name(task, "dev")).exists() for team in ("shared", "pals") for task in data)
if not complete:
    print("No board yet: the experiment above writes the files of both teams.")
else:
    for row in rank("board", "mini"):
        scores = f"sst {row.sst}, quora {row.quora}, sts {row.sts}, overall {row.overall}"
        print(f"{row.place!s:>2} {row.team:>20}: {scores}")
if complete and check.done("score_files"):
    truth = {task: {str(row): float(label) for row, label in zip(one.dev.ids, one.dev.labels)}
             for task, one in data.items()}
    for team in ("shared", "pals"):
        texts = {task: (Path("board") / team / file_name(task, "dev")).read_text() for task in data}
        print(team, *(round(float(one), 3) for one in score_files(texts, truth)))

# %% [raw]
# # BEGIN QUESTION
# name: written
# manual: true

# %% [markdown]
# ## Question 11: what the sequential form and the board say
#
# {facts}
#
# Write at most 300 words, in full sentences:
#
# 1. A student says that the attention of question 5 will learn if it is only trained longer. Which parameters of TS have a
#    gradient of zero in every step (apart from rounding), and why? Name one change to the model after which most of these parameters learn. Which one still
#    does not?
# 2. Compute the standard error of the sst accuracy of each team on the 160 dev rows, and of the difference of the two as if they
#    were independent. Is the difference of `shared` and `pals` larger than twice its standard error? Both teams predict the same
#    rows: count in the files the rows on which exactly one team is right, and say what this changes.
# 3. The row "most frequent label" of the board predicts one value for all rows of a task. The labels of these dev rows are
#    balanced, so for sst and quora any label gives the same accuracy; for sts it is any constant. Its overall score is well
#    above 0, without a model.
#    Explain each of its three parts. What does this say about a team with an overall score of 0.5?

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to written:** Query and key have a gradient of zero. The softmax of a single score is 1, whatever the score is, so the
# loss does not depend on them. With all tokens as keys, most of them learn. The bias of the keys still does not: it adds the same
# number to all scores of a query, and the softmax does not see it. An accuracy p on n rows has the standard error
# $\sqrt{p(1-p)/n}$, at most 0.040 here. The squares of two independent teams add up, so their difference has at most 0.056. As
# both teams predict the same rows, only the rows on which exactly one team is right matter. In one run of the default edition,
# `shared` alone is right on 31 rows and `pals` alone on 15. The difference of 0.10 is below twice 0.056, so it is not larger
# than chance explains for independent teams. The paired standard error is $\sqrt{31 + 15}/160 = 0.042$, and the difference is
# larger than twice this value: a paired comparison is sharper. The accuracy of a constant is the share of its label, and r = 0
# adds one half to the sum. So an overall score must be compared with this row and not with 0.

# %% [raw]
# # END SOLUTION

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: extension
# manual: true

# %% [markdown]
# ## Question 12: a small project of your own
#
# {facts}
#
# Improve the model, or find out why a change does not help. Change *one* thing. For example:
#
# - the sampling of tasks (in turn, or one task after another);
# - both sentences of a pair in one input;
# - the projected size S;
# - a frozen encoder with PALs alone;
# - a loss for `sts` that uses the cosine of u and v (compare with the cosine of an untrained encoder).
#
# Your own idea is welcome. `experiment` returns the trained model; use it for an evaluation of your own.
#
# The experiment leaves one fifth of the training rows aside: `check.split(n, dev=n // 5)[1]` returns their numbers, where n is
# the number of training rows of the task. Evaluate your settings on these rows, with code of your own, and choose between them
# there. Evaluate on the dev rows once more, at the end, with the final setting over all your seeds.
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
# A result that contradicts your prediction is worth the same points. Add your code in cells below. Start each of these cells
# with the line `# Experiment: the grader skips this cell.` Otherwise the grader would execute an assignment such as
# `result = experiment(...)`.

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to extension:** One possible report compares the projected sizes 24, 96 and 192 with three seeds each.

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
# 4. If your course has a leaderboard, also hand in the folder of your best team with its three files `sst-dev-output.csv`,
#    `para-dev-output.csv` (quora) and `sts-dev-output.csv`. Give the folder the name of your team, not `pals`. On Colab,
#    `!cp -r board/pals TEAM && zip -r TEAM.zip TEAM` makes one file of it, with the name of your team in place of TEAM.

# %%
# Summary: the grader skips this cell.
check.summary()
