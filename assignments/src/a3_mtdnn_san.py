# %% [raw]
# # ASSIGNMENT CONFIG
# init_cell: false
# check_all_cell: false
# export_cell: false
# solutions_pdf: false

# %% [markdown]
# # Assignment 3: one encoder for several tasks
#
# You write the parts of MT-DNN (multi-task deep neural network): the answer module SAN (stochastic answer network), the
# losses of three kinds of tasks, and the training of all tasks together. Then you train three tasks together and alone,
# and you compare the results.
#
# | | |
# |---|---|
# | Work | about {hours} hours, {points} points |
# | Hand in | {deadline} |
# | Hardware | a CPU is enough; the experiment in part 4 takes three to five minutes on two cores |
# | Read before | notebooks 07 (One encoder, many tasks) and 08 (Ranking and pre-training, sections 1 and 2) of mmlkit |
# | Papers | Liu et al. 2019 (MT-DNN), sections 3 and 4; Liu et al. 2018 (SAN) |
#
# {rules}
#
# | questions | allowed | not allowed |
# |---|---|---|
# | all | numpy, torch and your own functions; `softmax`, `log_softmax`, `logsumexp`, `masked_fill`, `F.linear` | mmlkit, transformers |
# | 1 to 7 | what autograd can follow, because the check compares gradients | numpy, `detach` |
# | 3 | | `nn.GRUCell`, `nn.GRU` |
# | 5 | `F.nll_loss` | |
# | 6 | | `F.mse_loss`, `nn.MSELoss` |
# | 7 | `F.nll_loss`; a Python number as the accuracy | `F.cross_entropy`, `nn.CrossEntropyLoss` |
# | 9 | changed gradients of the arguments | `torch.nn.utils.clip_grad_norm_` and its relatives |
# | 10 | a changed model and optimizer; `torch.nn.utils.clip_grad_norm_` | |
#
# **What differs from the paper.** The fourth kind of task, the classification of one sentence, is left out. For
# similarity and ranking the paper packs two texts into one input and reads the vector of [CLS], and part 4 encodes
# each text by itself and compares the means of their token vectors. The paper cuts the rows into batches once, and
# question 8 does it in every epoch. Equation numbers are those of the first arXiv version of the paper, as later
# versions differ.
#
# Letters: B pairs in a batch, T tokens, D width of a vector, C labels, K steps, Q queries, N candidates of a query.
# A product $a \cdot b$ of two vectors is their inner product.

# %%
{setup}

# %%
import math

import torch
from torch import nn
from torch.nn import functional as F

# %% [markdown]
# # Part 1: the answer module
#
# The answer module decides how a second text, the *hypothesis*, relates to a first text, the *premise*. The vectors
# of both texts stand in one sequence, so each pair has T vectors $M_1, \dots, M_T$ of width D. Two masks tell which tokens
# belong to which text; [CLS] and [SEP] belong to a text too. Padding belongs to neither.
#
# The module keeps a *state* $s$, a vector of width D. The first state $s_0$ is a summary of the hypothesis (question 1).
# In every step the state looks at the premise (question 2). What it sees, and the state itself, give an answer, and a
# GRU makes the next state (questions 3 and 4).

# %% [raw]
# # BEGIN QUESTION
# name: summary

# %% [markdown]
# ## Question 1: the first state
#
# {facts}
#
# IF scale=plain
# $$\alpha = \text{softmax}_j(w \cdot M_j) \qquad s_0 = \sum_j \alpha_j M_j$$
# END IF
# IF scale=scaled
# In this course the scores are divided by $\sqrt{D}$, which the paper does not do:
#
# $$\alpha = \text{softmax}_j\left(\frac{w \cdot M_j}{\sqrt{D}}\right) \qquad s_0 = \sum_j \alpha_j M_j$$
# END IF
#
# Softmax and sum run over the tokens $j$ of the hypothesis. All other tokens have the weight 0, and the weights of a pair
# sum to 1.
#
# `M` has the shape [B, T, D]. `hypothesis` [B, T] is a bool tensor with True for a token of the hypothesis; every pair
# has at least one such token. `w` has the shape [D]. Return `(alpha, s_0)` with the shapes [B, T] and [B, D].

# %% [raw]
# # BEGIN SOLUTION

# %%
def summarise(M, hypothesis, w):
    """Return (alpha [B, T], s_0 [B, D])."""
    # BEGIN SOLUTION
    scores = M @ w
    # IF scale=scaled
    scores = scores / math.sqrt(len(w))
    # END IF
    alpha = scores.masked_fill(~hypothesis, -math.inf).softmax(dim=1)
    s_0 = (alpha[:, :, None] * M).sum(dim=1)
    return alpha, s_0
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("summary", summarise)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: look

# %% [markdown]
# ## Question 2: a look at the premise
#
# {facts}
#
# IF scale=plain
# $$\beta = \text{softmax}_j(M_j \cdot W s) \qquad x = \sum_j \beta_j M_j$$
# END IF
# IF scale=scaled
# $$\beta = \text{softmax}_j\left(\frac{M_j \cdot W s}{\sqrt{D}}\right) \qquad x = \sum_j \beta_j M_j$$
# END IF
#
# Softmax and sum run over the tokens $j$ of the premise, and all other tokens have the weight 0. Every pair has a state
# of its own.
#
# `s` has the shape [B, D], `M` [B, T, D] and `W` [D, D]. Here $W s$ is the matrix times the vector of one pair.
# `premise` [B, T] is a bool tensor with True for a token of the premise; every pair has at least one such token. Return
# `(beta, x)` with the shapes [B, T] and [B, D].

# %% [raw]
# # BEGIN SOLUTION

# %%
def attend(s, M, premise, W):
    """Return (beta [B, T], x [B, D])."""
    # BEGIN SOLUTION
    scores = torch.einsum("btd,bd->bt", M, s @ W.T)
    # IF scale=scaled
    scores = scores / math.sqrt(len(W))
    # END IF
    beta = scores.masked_fill(~premise, -math.inf).softmax(dim=1)
    x = (beta[:, :, None] * M).sum(dim=1)
    return beta, x
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("look", attend)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: gru

# %% [markdown]
# ## Question 3: a GRU
#
# {facts}
#
# GRU stands for gated recurrent unit. It makes a new state $s'$ from an input $x$ and the old state $s$. The entries of
# the gates $r$ and $z$ lie between 0 and 1, $\sigma$ is the sigmoid, and $\odot$ multiplies two vectors entry by entry.
# The formulas are for one pair: $W_r x$ is the matrix times the vector of that pair.
#
# $$r = \sigma(W_r x + U_r s + b_r) \qquad z = \sigma(W_z x + U_z s + b_z)$$
#
# Several forms of the GRU are in use, which differ in the next two formulas. In this course they are:
#
# IF reset_gate=after
# $$n = \tanh(W_n x + r \odot (U_n s) + b_n)$$
# END IF
# IF reset_gate=before
# $$n = \tanh(W_n x + U_n (r \odot s) + b_n)$$
# END IF
# IF update=keep
# $$s' = z \odot s + (1 - z) \odot n$$
# END IF
# IF update=take
# $$s' = (1 - z) \odot s + z \odot n$$
# END IF
#
# `x` and `s` have the shape [B, D]. `weights` is a dict with the keys `"W_r"`, `"U_r"`, `"W_z"`, `"U_z"`, `"W_n"`,
# `"U_n"` (each [D, D]), `"b_r"`, `"b_z"` and `"b_n"` (each [D]). Return the new states, [B, D].

# %% [raw]
# # BEGIN SOLUTION

# %%
def gru(x, s, weights):
    """Return the new state, [B, D]."""
    # BEGIN SOLUTION
    W, U, b = ({gate: weights[f"{part}_{gate}"] for gate in "rzn"} for part in "WUb")
    r = torch.sigmoid(x @ W["r"].T + s @ U["r"].T + b["r"])
    z = torch.sigmoid(x @ W["z"].T + s @ U["z"].T + b["z"])
    # IF reset_gate=after
    n = torch.tanh(x @ W["n"].T + r * (s @ U["n"].T) + b["n"])
    # END IF
    # IF reset_gate=before
    n = torch.tanh(x @ W["n"].T + (r * s) @ U["n"].T + b["n"])
    # END IF
    # IF update=keep
    return z * s + (1 - z) * n
    # END IF
    # IF update=take
    return (1 - z) * s + z * n
    # END IF
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("gru", gru)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: answers

# %% [markdown]
# ## Question 4: the answers of all steps
#
# {facts}
#
# Step $k = 0, \dots, K-1$ has the state $s_k$. It looks at the premise, it answers, and then the GRU makes the next
# state:
#
# $$x_k = \text{look}(s_k) \qquad P_k = \text{softmax}(W f_k + b) \qquad s_{k+1} = \text{gru}(x_k, s_k)$$
#
# The paper prints $x_k$ as a function of $s_{k-1}$, which leaves $x_0$ undefined. Here it is a function of $s_k$. The
# features $f_k$ are four vectors side by side, in this order, where $|\cdot|$ takes the absolute value entry by entry:
#
# IF order=state
# $$f_k = [\,s_k;\; x_k;\; |s_k - x_k|;\; s_k \odot x_k\,]$$
# END IF
# IF order=seen
# $$f_k = [\,x_k;\; s_k;\; |x_k - s_k|;\; x_k \odot s_k\,]$$
# END IF
#
# `s` [B, D] is the first state. `look` and `gru` are *functions* that you get as arguments: `look(s)` returns x [B, D],
# and `gru(x, s)` returns the next state [B, D]. Call these, and not your functions of the questions before: the check
# passes other, simple functions. In part 4, `look` calls your `attend`, and `gru` calls your `gru`. `W` has the shape
# [C, 4D] and is not the `W` of question 2. `b` has [C], and `K` is a whole number, at least 1. The softmax runs over the
# labels. The last state $s_K$ is not needed. Return the probabilities of all steps, [B, K, C].

# %% [raw]
# # BEGIN SOLUTION

# %%
def answer_steps(s, look, gru, W, b, K):
    """Return the probabilities of all steps, [B, K, C]."""
    # BEGIN SOLUTION
    P = []
    for _ in range(K):
        x = look(s)
        # IF order=state
        features = torch.cat([s, x, (s - x).abs(), s * x], dim=1)
        # END IF
        # IF order=seen
        features = torch.cat([x, s, (x - s).abs(), x * s], dim=1)
        # END IF
        P.append((features @ W.T + b).softmax(dim=1))
        s = gru(x, s)
    return torch.stack(P, dim=1)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("answers", answer_steps)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 2: three losses

# %% [raw]
# # BEGIN QUESTION
# name: answer_loss

# %% [markdown]
# ## Question 5: the loss of the answer module, with prediction dropout
#
# {facts}
#
# The answer of the module is the mean of its steps' probabilities. In training, some steps are dropped before the mean,
# so that no step can rely on the others. Random numbers decide which steps are dropped. They are arguments here, so
# that your result is determined:
#
# - Step $k$ of pair $i$ is dropped if `u[i, k] < p`. Each `u[i, k]` is drawn between 0 and 1, and `p` is a number.
# - Step `sure[i]` of pair $i$ is kept in any case, so that at least one step is left.
#
# The loss of a pair is $-\log \bar P[y]$. Here $\bar P$ is the mean of $P_k$ over the *kept* steps of that pair, and
# $y$ is its right label. The loss of the batch is the mean over its pairs.
#
# `P` has the shape [B, K, C] and `u` has [B, K]. `y` and `sure` are tensors of whole numbers, [B]. Return `(kept,
# loss)`: `kept` is a bool tensor [B, K] with True for a kept step, and `loss` is a scalar tensor.

# %% [raw]
# # BEGIN SOLUTION

# %%
def answer_loss(P, y, u, sure, p):
    """Return (kept [B, K], loss)."""
    # BEGIN SOLUTION
    rows = torch.arange(len(P))
    kept = u >= p
    kept[rows, sure] = True
    mean = (P * kept[:, :, None]).sum(dim=1) / kept.sum(dim=1, keepdim=True)
    return kept, -mean[rows, y].log().mean()
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("answer_loss", answer_loss)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: similarity_loss

# %% [markdown]
# ## Question 6: the loss of a similarity
#
# {facts}
#
# How similar are two sentences? The label is a number from 0 to `highest`. (STS-B has 5; the check has
# other values.) The model reads one vector $x$
# per pair, and a sigmoid keeps its output between 0 and 1: $g = \sigma(w \cdot x + b)$ (Eq. 2 in the first version of the
# MT-DNN paper, without the bias). Eq. 7 of the paper is a squared error, but the paper does not say how $g$ and the label
# come to the same unit. In this course:
#
# IF unit=fraction
# $$L = \frac{1}{B} \sum_i \left(g_i - \frac{y_i}{\text{highest}}\right)^2$$
# END IF
# IF unit=score
# $$L = \frac{1}{B} \sum_i \left(\text{highest} \cdot g_i - y_i\right)^2$$
# END IF
#
# The sum runs over the B pairs. `x` has the shape [B, D] and `y` has [B]. `w` [1, D] and `b` [1] are the weight and the
# bias of an `nn.Linear(D, 1)`. Return a scalar tensor.

# %% [raw]
# # BEGIN SOLUTION

# %%
def similarity_loss(x, y, w, b, highest):
    """Return the mean squared error, a scalar."""
    # BEGIN SOLUTION
    g = torch.sigmoid(x @ w[0] + b)
    # IF unit=fraction
    return (g - y / highest).square().mean()
    # END IF
    # IF unit=score
    return (highest * g - y).square().mean()
    # END IF
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("similarity_loss", similarity_loss)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: ranking_loss

# %% [markdown]
# ## Question 7: the loss of a ranking
#
# {facts}
#
# A query has several candidates, and one of them is its answer. The model gives each candidate a score $e_j$. With a
# factor $\gamma$, the loss of a query is
#
# $$-\log \frac{\exp(\gamma\, e_{\text{answer}})}{\sum_j \exp(\gamma\, e_j)}$$
#
# and the loss of the batch is the mean over its queries. (Eq. 8 of the paper lacks the log. The sigmoid of its Eq. 5 is
# left out here. With it, the loss could not come close to 0.)
#
# Queries have different numbers of candidates, so rows are padded to N candidates, at any place of the row. `scores` has the shape [Q, N]. `real`
# [Q, N] is a bool tensor, False for padding. A padded place takes part in nothing, whatever its score. The check pads
# with finite numbers, and some of them are the highest of their row. `answer` [Q] holds the place of the answer in its
# row, a whole number; this place is never padding. `gamma` is a positive number.
#
# Return `(accuracy, loss)`: `accuracy` is the share of queries whose answer has the highest score. It is a Python number
# or a scalar tensor, from 0 to 1. `loss` is a scalar tensor. The check has no ties for the highest score.

# %% [raw]
# # BEGIN SOLUTION

# %%
def ranking_loss(scores, real, answer, gamma):
    """Return (accuracy, loss)."""
    # BEGIN SOLUTION
    scores = scores.masked_fill(~real, -math.inf)
    accuracy = (scores.argmax(dim=1) == answer).float().mean().item()
    log = (gamma * scores).log_softmax(dim=1)
    return accuracy, -log[torch.arange(len(log)), answer].mean()
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("ranking_loss", ranking_loss)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 3: training on several tasks

# %% [raw]
# # BEGIN QUESTION
# name: merge

# %% [markdown]
# ## Question 8: the batches of an epoch
#
# {facts}
#
# Algorithm 1 of the paper makes the batches of an epoch. Write it in this form:
#
# 1. For each task, shuffle its examples and cut them into batches of `batch_size` examples, from the first to the last.
# 2. Put the batches of all tasks into one list, in the order of the tasks in `examples`.
# 3. Shuffle that list. A batch holds examples of one task alone.
#
# IF last=keep
# If the examples of a task cannot be divided evenly, its last batch has fewer examples. This batch is *kept*.
# END IF
# IF last=drop
# If the examples of a task cannot be divided evenly, its last batch would have fewer examples. This batch is *dropped*.
# END IF
#
# `examples` is a dict from the name of a task to a list of the numbers of its examples. `shuffle` is a function that you
# get as an argument: `shuffle(items)` returns a new list with the elements of the list `items` in another order, and does
# not change `items`. Use no other source of randomness. `shuffle` may have a state, so its calls have a fixed order: one
# for each task, in the order of the dict, and then one for the list of all batches. Return a list with one tuple (name of
# the task, list of numbers) per batch, and leave `examples` as it is.

# %% [raw]
# # BEGIN SOLUTION

# %%
def merge_batches(examples, batch_size, shuffle):
    """Return a list of (task, numbers of examples)."""
    # BEGIN SOLUTION
    batches = []
    for task, numbers in examples.items():
        mixed = shuffle(numbers)
        for start in range(0, len(mixed), batch_size):
            batches.append((task, mixed[start : start + batch_size]))
    # IF last=drop
    batches = [(task, part) for task, part in batches if len(part) == batch_size]
    # END IF
    return shuffle(batches)
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("merge", merge_batches)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: clip

# %% [markdown]
# ## Question 9: clipping by the global norm
#
# {facts}
#
# All gradients together are one long vector. Its length is the *global norm*: the square root of the sum of the squares
# of all entries of all gradients. If this norm is larger than `limit`, every gradient is multiplied by the same factor,
# so that the global norm becomes `limit`. Otherwise the gradients stay as they are.
#
# `parameters` is a list of tensors of different shapes. The gradient of a parameter `theta` is the tensor `theta.grad`.
# Change this tensor itself, for example with `mul_`. The check also accepts a new tensor in `theta.grad`. The gradient may be None, and then the parameter counts for nothing
# and stays without a gradient. If all gradients are None, the norm is 0. Return the global norm from *before* clipping,
# as a number or a scalar tensor.

# %% [raw]
# # BEGIN SOLUTION

# %%
def clip_gradients(parameters, limit):
    """Clip the gradients in place; return the global norm from before."""
    # BEGIN SOLUTION
    gradients = [theta.grad for theta in parameters if theta.grad is not None]
    norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
    if norm > limit:
        for g in gradients:
            g.mul_(limit / norm)
    return norm
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("clip", clip_gradients)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [raw]
# # BEGIN QUESTION
# name: update

# %% [markdown]
# ## Question 10: one update
#
# {facts}
#
# Write one update on one batch of one task. The model has a shared encoder and a head for each task.
# Use only its methods `train`, `loss` and `parameters`: the check has another model than part 4. `model.loss(task, batch)` returns the loss of a batch as a scalar tensor. It uses the encoder and the head of that task.
#
# Set the model to training mode, compute the loss and its gradients, clip the gradients of *all* parameters of the
# model by their global norm to `limit`, and call `optimizer.step()`. Return the loss as a number.
#
# The encoder and the head of `task` must move. The heads of the other tasks must not change at all, although the
# optimizer may have momentum and weight decay, and although they had gradients in earlier updates. Hint: an optimizer
# skips a parameter whose `grad` is None. `zero_grad()` sets it to None, and `zero_grad(set_to_none=False)` sets it to 0.
#
# `list(model.parameters())` is the list of all parameters. You may call your `clip_gradients` or, in this question,
# `torch.nn.utils.clip_grad_norm_`.

# %% [raw]
# # BEGIN SOLUTION

# %%
def multitask_step(model, task, batch, optimizer, limit):
    """Make one update; return the loss, a number."""
    # BEGIN SOLUTION
    model.train()
    optimizer.zero_grad(set_to_none=True)
    loss = model.loss(task, batch)
    loss.backward()
    clip_gradients(list(model.parameters()), limit)
    optimizer.step()
    return loss.item()
    # END SOLUTION

# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %%
assert check("update", multitask_step)

# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION

# %% [markdown]
# # Part 4: together or alone?
#
# Your functions now train a real encoder on three small tasks. MiniLM is a small BERT. Our version was also trained to
# compare sentences.
#
# This part needs all ten questions. If one is missing, ask your teacher for a table of results, and answer question 11
# with it.
#
# | task | question | measured on dev | a random guess |
# |---|---|---|---|
# | snli | does the hypothesis follow from the premise, contradict it, or neither? | accuracy | 0.33 |
# | stsb | how similar are two sentences, from 0 to 5? | Pearson's correlation | 0 |
# | qnli_rank | which of two sentences answers the question? | accuracy | 0.50 |
#
# The first cell draws the examples of your course and encodes all rows. An example of qnli_rank is a query with its two
# candidates, which are two rows. A batch of 16 examples therefore has 32 rows in qnli_rank, and 16 in the other tasks.
# `make_batch(task, part, examples)` makes a batch, and `part` is `"train"` or `"dev"`. MT-DNN packs the two texts of a row
# into one input. Here each text is encoded by itself, because MiniLM was trained so and learns faster in this way:
# `batch` has the first texts and `batch.second` the second ones.

# %%
# Experiment: the grader skips this cell.
from mmlkit import load_pretrained, load_task
from mmlkit.data import collate, encode
from mmlkit.heads import rank_queries

sizes = {"snli": 720, "stsb": 240, "qnli_rank": 128}  # examples to learn from
dev_sizes = {"snli": 400, "stsb": 160, "qnli_rank": 160}
encoder, tokenizer = load_pretrained("minilm", device="cpu")
encoded = {}
for task in sizes:
    data = rank_queries(load_task("qnli")) if task == "qnli_rank" else load_task(task)
    for part in ("train", "dev"):
        encoded[task, part] = encode(tokenizer, data.splits[part], pairs="separate")
draw = lambda task, part, n: check.split(len(encoded[task, part]), dev=n)[1]
train_examples = {task: draw(task, "train", n) for task, n in sizes.items()}
dev_examples = {task: draw(task, "dev", n) for task, n in dev_sizes.items()}

# %%
# Experiment: the grader skips this cell.
def make_batch(task, part, examples):
    rows = encoded[task, part]
    if task == "qnli_rank":  # the rows of a query's two candidates
        queries = sorted(set(rows.queries))
        examples = [row for i in examples for row in (rows.queries == queries[i]).nonzero()[0]]
    return collate(rows, examples)


def hidden_states(encoder, batch):
    return encoder(batch.input_ids, batch.attention_mask).last_hidden_state


def mean_vector(encoder, batch):
    token = batch.attention_mask[:, :, None]
    return (hidden_states(encoder, batch) * token).sum(1) / token.sum(1)

# %% [markdown]
# The next cell is the head of snli, made of your functions. The two cells after it are the whole model. In stsb and
# qnli_rank, the means u and v of a text's token vectors give |u - v| and u * v, and one linear layer reads both. The
# answer module has K = 5 steps, and its prediction dropout has p = 0.1. The embeddings and the lower three of MiniLM's six
# layers are not trained, which saves time.

# %%
# Experiment: the grader skips this cell.
class SAN(nn.Module):
    def __init__(self, D, C, K=5):
        super().__init__()
        small = lambda *shape: nn.Parameter(0.02 * torch.randn(*shape))
        self.w, self.W, self.out, self.b, self.K = small(D), small(D, D), small(C, 4 * D), small(C), K
        shapes = {"W": (D, D), "U": (D, D), "b": (D,)}
        self.cell = nn.ParameterDict({f"{part}_{gate}": small(*shapes[part]) for part in "WUb" for gate in "rzn"})

    def forward(self, M, premise, hypothesis):
        s_0 = summarise(M, hypothesis, self.w)[1]
        look = lambda s: attend(s, M, premise, self.W)[1]
        return answer_steps(s_0, look, lambda x, s: gru(x, s, self.cell), self.out, self.b, self.K)

# %%
# Experiment: the grader skips this cell.
def output(model, task, batch):
    if task != "snli":
        u, v = (mean_vector(model.encoder, one) for one in (batch, batch.second))
        return torch.cat([(u - v).abs(), u * v], dim=1)  # x [B, 2 D]
    M = torch.cat([hidden_states(model.encoder, one) for one in (batch, batch.second)], dim=1)
    first, second = batch.attention_mask.bool(), batch.second.attention_mask.bool()
    premise = torch.cat([first, torch.zeros_like(second)], dim=1)
    hypothesis = torch.cat([torch.zeros_like(first), second], dim=1)
    return model.heads[task](M, premise, hypothesis)  # P [B, K, C]


def rank(scores, labels):
    scores = scores.view(-1, 2)  # one row per query; label 1 is its answer
    return ranking_loss(scores, torch.ones_like(scores) > 0, labels.view(-1, 2).argmax(1), 1.0)

# %%
# Experiment: the grader skips this cell.
class Model(nn.Module):
    def __init__(self, encoder, D=384, K=5):
        super().__init__()
        self.encoder = encoder
        nn.ModuleList([encoder.embeddings, *encoder.encoder.layer[:3]]).requires_grad_(False)
        self.heads = nn.ModuleDict({"snli": SAN(D, 3, K), **{t: nn.Linear(2 * D, 1) for t in ("stsb", "qnli_rank")}})

    def loss(self, task, batch):
        out, head, y = output(self, task, batch), self.heads[task], batch.labels
        if task == "stsb":
            return similarity_loss(out, y, head.weight, head.bias, 5.0)
        if task == "qnli_rank":
            return rank(head(out)[:, 0], y)[1]
        sure = torch.randint(out.shape[1], out.shape[:1])
        return answer_loss(out, y, torch.rand(out.shape[:2]), sure, 0.1)[1]

# %% [markdown]
# `score` measures predictions, and `measure` applies it to a trained model. The sigmoid in `measure` belongs to stsb; it
# does not change a ranking. `untrained` needs no training: its prediction for two texts is the cosine of their mean
# vectors from the pretrained encoder.

# %%
# Experiment: the grader skips this cell.
def score(task, predicted, labels):
    if task == "stsb":
        return torch.corrcoef(torch.stack([predicted, labels]))[0, 1].item()
    if task == "qnli_rank":
        return rank(predicted, labels)[0]
    return (predicted.argmax(1) == labels).float().mean().item()


@torch.no_grad()
def measure(model, task):
    batch, head = make_batch(task, "dev", dev_examples[task]), model.heads[task]
    out = output(model.eval(), task, batch)
    return score(task, out.mean(1) if task == "snli" else head(out)[:, 0].sigmoid(), batch.labels)

# %%
# Experiment: the grader skips this cell.
@torch.no_grad()
def untrained(task):
    batch = make_batch(task, "dev", dev_examples[task])
    u, v = (mean_vector(encoder.eval(), one) for one in (batch, batch.second))
    return score(task, F.cosine_similarity(u, v), batch.labels)

# %% [markdown]
# `experiment` trains a model on the tasks in `names`. The last cell trains all tasks together, and then each task alone.
# The pretrained weights, the first parameters of the heads, the examples, the batch size and the number of epochs are the
# same.

# %%
# Experiment: the grader skips this cell.
import random


def experiment(names, epochs=3, seed=0, K=5):
    torch.manual_seed(seed)
    model, mixer = Model(load_pretrained("minilm", device="cpu")[0], K=K), random.Random(seed)
    shuffle = lambda items: mixer.sample(items, len(items))
    groups = [{"params": model.encoder.parameters(), "lr": 1e-4}, {"params": model.heads.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups)
    for epoch in range(epochs):
        losses = {name: [] for name in names}
        for task, examples in merge_batches({name: train_examples[name] for name in names}, 16, shuffle):
            losses[task].append(multitask_step(model, task, make_batch(task, "train", examples), optimizer, 1.0))
        print(f"epoch {epoch + 1}:", *(f"{task} loss {sum(one) / len(one):.3f}" for task, one in losses.items()))
    return {name: measure(model, name) for name in names}

# %%
# Experiment: the grader skips this cell.
names = [name for name, one in check.questions.items() if one.right]
if check.done(*names):
    together = experiment(list(sizes))
    results = {task: {"alone": experiment([task])[task], "together": together[task]} for task in sizes}
    for task in ("stsb", "qnli_rank"):
        results[task]["untrained"] = untrained(task)
    for task, one in results.items():
        print(f"{task}:", *(f"{name} {value:.3f}" for name, value in one.items()))

# %% [raw]
# # BEGIN QUESTION
# name: written
# manual: true

# %% [markdown]
# ## Question 11: what do the numbers say?
#
# {facts}
#
# Write at most 250 words, in full sentences, with your calculations. Formulas and tables do not count as words.
#
# 1. Estimate the standard error of one result. For an accuracy $a$ on $n$ examples it is $\sqrt{a(1-a)/n}$; for a
#    correlation $r$ it is about $(1-r^2)/\sqrt{n-1}$. Here $n$ is 400 in snli and 160 in stsb and qnli_rank, where it
#    counts queries. The difference of two results has about the standard error $\sqrt{SE_1^2 + SE_2^2}$. A difference
#    of more than two of these counts as larger than chance. For which tasks is the difference between alone and
#    together that large? This calculation leaves out the chance of the seed, and that both results come from the same
#    examples.
# 2. Compare each result with a random guess. For snli, use the share of the most frequent dev label too; the labels are
#    `make_batch("snli", "dev", dev_examples["snli"]).labels`. For stsb and qnli_rank, use the untrained encoder too. Where
#    the untrained encoder is better, name a possible reason.
# 3. How many updates did the encoder get in the run together, and how many alone, for each task? Suppose that a difference is larger than
#    chance, and somebody says: "It shows what the other tasks teach." Which second explanation is there, and which run would separate the
#    two?
# 4. Eq. 5 of the paper passes each score through a sigmoid before the loss of question 7, with $\gamma = 1$. Compute the
#    lowest value that the loss of a query with four candidates can then approach. Above which $\gamma$ is this value below
#    0.01?

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to written:** With n = 400 the standard error of an accuracy is at most 0.025, and with n = 160 at most
# 0.040. The standard error of a difference is about $\sqrt 2$ times as large, less where both models err on the same
# examples. A difference of two accuracies below about 0.07 in snli and 0.11 in qnli_rank is therefore within chance;
# other seeds add to it. A random guess has 0.33, 0 and 0.50, and the most frequent label of snli a little more than
# 0.33. Where the untrained encoder is better, one reason is the training of MiniLM: it learned from a billion pairs
# to compare texts by their cosine, and the new linear layer begins at random and sees few examples. In 3 epochs the
# encoder gets 204 updates together, and 135, 45 and 24 alone. More updates are the second explanation. A run alone
# with 204 updates separates the two. The sigmoid keeps scores between 0 and 1. With four candidates the loss
# therefore stays above $\log(1 + 3 e^{-\gamma})$, which is 0.7437 for $\gamma = 1$. It is below 0.01 for $\gamma$
# above $\log(3 / (e^{0.01} - 1)) = 5.70$.

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
# Change *one* thing in the experiment and find out what it does. For example:
#
# - the number of steps K;
# - the probability p of prediction dropout;
# - the order of the tasks (one after another instead of shuffled);
# - another form of the GRU;
# - a fourth task.
#
# In one of our runs snli reached 0.46 together with the other tasks, and alone it stayed at the share of its most frequent
# label. With a frozen encoder, 1,440 examples and three epochs it reached 0.55 alone, so freeze the encoder first if you
# change its head. Your own idea is welcome.
#
# Begin every cell of question 12 with `# Experiment: the grader skips this cell.` Give a changed function a new name, such
# as `gru_changed`. Otherwise it may take the place of the function that is graded.
#
# The argument `seed` of `experiment` changes the first parameters of the heads, the order of the batches and the dropout,
# but not the examples. The runs of part 4 take three to five minutes per seed on two cores.
#
# Report in this order, on at most one page:
#
# 1. the question;
# 2. your prediction before the run;
# 3. what you changed and what you kept;
# 4. a table with the mean and the standard deviation over at least three seeds;
# 5. the answer;
# 6. a result that would change it.
#
# A result that contradicts your prediction is worth the same points. Add your code in cells below.

# %% [raw]
# # BEGIN SOLUTION

# %% [markdown]
# **Answer to extension:** One possible report compares K = 1, 5 and 10 steps of the answer module on snli, with three
# seeds each.

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
