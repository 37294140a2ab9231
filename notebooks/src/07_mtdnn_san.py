# %% [markdown]
# # 07 One encoder, many tasks
#
# MT-DNN trains one BERT on several tasks at once, with a small output layer for each task. **Do tasks help each other if they share one encoder?**
# You rebuild MT-DNN in two halves. Sections 2 to 4 and 6 take apart its largest output layer, the answer module, and ask what it adds. Sections 5, 7
# and 8 write the joint training as a loop, and compare it with training each task alone.
#
# | | |
# |---|---|
# | time | 2 hours to read and solve (estimated) · fast: 5 min on two CPU cores · colab: about 30 min on one GPU (estimated) · paper: many hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [02 Fine-tuning](02_finetuning.ipynb) |
# | papers | Liu et al. 2019 (MT-DNN, its first arXiv version), section 3, Algorithm 1, Table 3 · Liu et al. 2018 (SAN) |

# %% [markdown]
# ## You will be able to
#
# - name MT-DNN's four outputs and their losses,
# - follow the answer module step by step, on paper and in code,
# - correct three misprints of the paper,
# - say how Algorithm 1 treats a small task, and which parameters a step leaves unchanged,
# - judge from repeated runs whether joint training improves the scores.
#
# ![Above: one encoder, shared by all tasks, and four outputs: softmax, sigmoid, answer module, and relevance score. Below, the answer
# module: the first state is a summary of the hypothesis. Each state attends to the premise and gives an answer, and a GRU makes the
# next state. The answers are averaged.](images/07_mtdnn.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with a subfolder for each task; None: what the profile says
epochs = None  # None: what the profile says

# %% tags=["bootstrap"]
# @title Set-up: installs this release where the library is missing, as on Colab
try:
    import mmlkit
except ImportError:
    home = "https://github.com/mmlkit/mmlkit"
    release = f"mmlkit[notebooks,minilm] @ {home}/archive/refs/tags/v0.2.0.zip"
    get_ipython().run_line_magic("pip", f'install -q "{release}"')
    import mmlkit
from mmlcourse import open_notebook

open_notebook("07", profile, output_dir)

# %% tags=["setup"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlcourse import published
from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.answers import folded
from mmlcourse.lessons.profiles import get_profile
from mmlkit.runtime import pick_device, seeded

size, device = get_profile(profile), pick_device()
source, epochs = source or size.source, epochs or {"fast": 2, "colab": 3}.get(profile, 5)
print(f"mmlkit {mmlkit.__version__}: {size.model} on {device}, data from {source}")

# %% [markdown]
# ## 1 One encoder, four outputs
#
# Fine-tuning gives every task a BERT of its own. MT-DNN (*multi-task deep neural network*) shares one encoder, and only a small output, the *head*,
# belongs to one task. The paper claims that tasks help each other, and that small tasks gain most. Four kinds of tasks need four kinds of heads
# (numbers: the paper's equations):
#
# | kind | output | loss | here |
# |---|---|---|---|
# | one text | $\mathrm{softmax}(W^\top x)$ (1) | cross-entropy (6) | SST-2: is a film review positive? |
# | similarity of two texts | $g(w^\top x)$, $g$ a sigmoid (2) | squared error (7) | STS-B: a score from 0 to 5 |
# | relation of two texts | the answer module (3, 4) | cross-entropy (6) | SNLI: does one sentence follow from the other? |
# | ranking | $g(w^\top x)$ for each candidate (5) | $-\log$ softmax over candidates (8, 9) | QNLI: which sentence answers the question? |
#
# Two texts are *packed* into one input, and $x$ is one vector of this input: that of [CLS] in the paper, and on the fast profile the mean over
# tokens, because MiniLM was trained so. SNLI replaces the paper's MNLI, because its texts are shorter. The ranking is the subject of [notebook
# 08](08_ranking_pretraining.ipynb).

# %%
import copy

from mmlkit.bert import load_pretrained
from mmlkit.data import load_task
from mmlkit.heads import LinearHead, RankingHead, SANHead, rank_queries
from mmlkit.training import MultitaskModel


# %%
tasks = {name: load_task(name, source) for name in ("sst2", "stsb", "snli")}
tasks["qnli_rank"] = rank_queries(load_task("qnli", source))  # a question becomes one query
pretrained, tokenizer = load_pretrained(size.model)
D = pretrained.config.hidden_size


# %%
def new_head(task):
    """What MT-DNN puts on top of the encoder for this kind of task."""
    if task.kind == "ranking":
        return RankingHead(D, pooling=size.pooling)
    if task.kind == "regression":
        return LinearHead(D, 1, pooling=size.pooling, activation="sigmoid")
    return SANHead(D, 3) if task.is_pair else LinearHead(D, task.num_labels, pooling=size.pooling)


# %%
def new_model(names):
    """A copy of the pretrained encoder and a fresh head for each task."""
    with seeded(seed, device):
        heads = {name: new_head(tasks[name].task) for name in names}
    return MultitaskModel(copy.deepcopy(pretrained), heads, tokenizer).to(device).eval()


# %%
four_heads = new_model(tasks).heads.items()
rows = [
    (name, type(head).__name__, sum(p.numel() for p in head.parameters()), len(tasks[name].train))
    for name, head in four_heads
]
columns = ["task", "head", "parameters of its own", "training rows"]
pd.DataFrame(rows, columns=columns).set_index("task")

# %% [markdown]
# Three of the heads are a single linear layer. The answer module, the *stochastic answer network* (SAN) of 2018, has about a tenth as many
# parameters as all the layers of MiniLM.
#
# ## 2 The answer module on five words
#
# *Premise*: a cat sleeps here. *Hypothesis*: an animal rests. Does the second follow from the first? Each word gets two numbers, one for the
# *animal* and one for the *activity*:
#
# | | cat | sleeps | here | | animal | rests |
# |---|---|---|---|---|---|---|
# | animal | 2 | 0 | 0 | | 1 | 0 |
# | activity | 0 | 2 | 0 | | 0 | 1 |
#
# The module keeps a *state* $s$. The first state is a summary of the hypothesis, $s_0 = \sum_j \alpha_j M^h_j$ with
# $\alpha = \mathrm{softmax}_j(w_1 \cdot M^h_j)$. Take $w_1 = (\ln 3, 0)$. Then *animal* weighs three times as much as *rests*, and
# $s_0 = (\tfrac34, \tfrac14)$.
#
# Now the state looks at the premise. The weight $\beta_j$ of a word is proportional to $\exp(M^p_j \cdot W_2 s_0)$. Take $W_2 = \ln 4$ times the
# identity. Then each increase of $M^p_j \cdot s_0$ by 1 multiplies the weight of a word by 4.
#
# **Predict before you run.** In which ratio do *cat*, *sleeps* and *here* share the attention?
#
# <details><summary>Answer</summary>
#
# As 8 : 2 : 1. The products $M^p_j \cdot s_0$ are $1\tfrac12$, $\tfrac12$ and $0$, and $4^{3/2} = 8$, $4^{1/2} = 2$, $4^0 = 1$. So the module
# reads the weighted sum $x_0 = \sum_j \beta_j M^p_j = (\tfrac{16}{11}, \tfrac{4}{11})$, which is mostly *cat*.
#
# </details>
#
# Next the state changes: $s_1 = \mathrm{GRU}(x_0, s_0)$. A GRU mixes the old state with a new part, and its gates set the share of each. In this
# toy both gates are half open, and the new part is the $\tanh$ of $x$ with its two numbers *swapped*:
#
# $$s_1 = \tfrac12\, s_0 + \tfrac12 \tanh(x_{0,\text{activity}},\, x_{0,\text{animal}})$$
#
# At each step a classifier reads four vectors, $[s_k; x_k; |s_k - x_k|; s_k \cdot x_k]$. The last one is the elementwise product. In this toy,
# agreement $s \cdot x$ counts for *follows*, and distance $|s - x|$ counts for *does not follow*.

# %%
exact = dict(dtype=torch.float64)
M_p, M_h = torch.tensor([[2, 0], [0, 2], [0, 0]], **exact), torch.eye(2, **exact)
toy_s = (M_h @ torch.tensor([np.log(3), 0], **exact)).softmax(0) @ M_h
swap, toy_W_3 = torch.nn.GRUCell(2, 2, **exact), torch.zeros(2, 8, **exact)
for parameter in swap.parameters():
    torch.nn.init.zeros_(parameter)  # both gates: sigmoid(0) = 1/2
swap.weight_ih.data[4:] = torch.tensor([[0, 1], [1, 0]], **exact)  # the new part swaps
toy_W_3[0, 6:], toy_W_3[1, 4:6] = 1, 1  # follows: s·x; does not follow: |s - x|


# %%
@torch.no_grad()
def toy(K, base=4):
    """The weights beta [K,3] and the answers P [K,2] of K steps on the five words."""
    s, betas, P = toy_s, [], []
    for k in range(K):
        s = swap(x, s) if k > 0 else s
        betas.append((M_p @ (np.log(base) * s)).softmax(0))
        x = betas[-1] @ M_p
        P.append((toy_W_3 @ torch.cat([s, x, (s - x).abs(), s * x])).softmax(0))
    return torch.stack(betas), torch.stack(P)


# %% [markdown]
# **Predict before you run.** After step 0 has read mostly *cat*, which word gets the most attention in step 1?
#
# <details><summary>Answer</summary>
#
# *sleeps*, with the weight 0.467; *cat* gets 0.437. The swap has written *cat*'s large number into the state's second place, which asks for the
# activity.
#
# </details>

# %%
words, answers_of_toy = ["cat", "sleeps", "here"], ["follows", "does not"]
title = "five words, three steps"
plots.reasoning(toy(3)[0], words, toy(3)[1], answers_of_toy, title=title, values=True)
plt.show()

# %% [markdown]
# *Step 0 puts 0.73 of the attention on "cat". Steps 1 and 2 divide it almost equally between "cat" and "sleeps". All three steps favour
# "follows", and its mean is 0.61 (horizontal line).*
#
# This is the idea of the module: attend to the premise, change the state, and attend again. The final answer is the mean over the steps. We chose
# the weights by hand so that step 1 prefers another word. Section 6 tests whether a *trained* module does so.
#
# In training, each answer is left out of the mean with probability $p$, except one random answer (*prediction dropout*, section 4). The grey band
# of the next figure is the mean ± one standard deviation of the answer for "follows", over 4,000 random choices of kept steps.

# %%
from mmlkit.heads import kept_steps


def draw(K, p, base):
    betas, P = toy(K, base)
    with seeded(seed):
        kept = kept_steps(4000, K, p).double()
    mean = kept @ P[:, 0] / kept.sum(1)  # of the kept answers, 4,000 times
    left, right = plots.reasoning(betas, words, P, answers_of_toy, values=True)
    left.figure.suptitle(f"K = {K}, p = {p}, base {base}: {mean.mean():.3f} ± {mean.std():.3f}")
    left.images[0].set_clim(0, 1)
    left.set(ylim=(7.5, -0.5), facecolor="0.92")  # grey: steps that this K does not have
    right.axhspan(mean.mean() - mean.std(), mean.mean() + mean.std(), color="grey", alpha=0.3)
    right.set(xlim=(-0.3, 7.3))


# %%
start = {"K": 5, "p": 0.5, "base": 4}
plots.sliders(draw, start=start, K=[1, 2, 3, 5, 8], p=[0, 0.25, 0.5], base=[1, 4, 16])

# %% [markdown]
# *With five steps and dropout 0.5 the answer in training varies by about ± 0.02. The sliders change K, p and the base in $W_2$ (now ln 4): base 1
# gives equal attention, and p = 0 removes the band.*
#
# ## 3 The equations
#
# $$s_0 = \sum_j \alpha_j M^h_j,\quad \alpha = \mathrm{softmax}_j(w_1^\top M^h_j) \qquad
# x_k = \sum_j \beta_j M^p_j,\quad \beta = \mathrm{softmax}_j(M^p_j \cdot W_2\, s_k)$$
# $$P_k = \mathrm{softmax}\big(W_3 [s_k; x_k; |s_k - x_k|; s_k \cdot x_k]\big)\quad (3) \qquad s_{k+1} = \mathrm{GRU}(x_k, s_k) \qquad
# P = \frac1K \sum_{k=0}^{K-1} P_k\quad (4)$$
#
# | symbol | name | shape |
# |---|---|---|
# | $B$, $T$, $D$, $C$, $K$ | pairs, tokens, size of a vector, labels, steps (5 in the paper) | numbers |
# | $M$ | the encoder's vectors of the packed pair: [CLS] premise [SEP] hypothesis [SEP] | `M [B,T,D]` |
# | $M^p$, $M^h$ | the vectors of segment 0 (with [CLS] and the first [SEP]); those of segment 1 | masks `premise`, `hypothesis` `[B,T]` |
# | $\alpha$, $\beta$ | weights over the hypothesis; over the premise, new in each step | `[B,T]`, `[B,K,T]` |
# | $s_k$, $x_k$ | the state; the weighted sum over the premise | `[B,D]` |
# | $w_1$, $W_2$, $W_3$ | layers; the paper prints no biases, the library has them | $D \to 1$, $D \to D$, $4D \to C$ |
#
# A gated recurrent unit (GRU) updates a state $s$ with an input $x$. With biases left out, $\sigma$ the sigmoid and $\odot$ the elementwise
# product:
#
# $$r = \sigma(W_r x + U_r s) \qquad z = \sigma(W_z x + U_z s) \qquad n = \tanh\big(W_n x + r \odot (U_n s)\big) \qquad
# \mathrm{GRU}(x, s) = (1 - z) \odot n + z \odot s$$
#
# The *update gate* $z$ decides how much of the old state stays, and the *reset gate* $r$ how much of it enters the new part $n$. In the toy all
# six matrices are zero except $W_n$, which swaps the two numbers: so $r = z = \tfrac12$ and $n = \tanh(\mathrm{swap}(x))$.
#
# ### Three misprints
#
# | where | printed | the problem | corrected |
# |---|---|---|---|
# | section 3 | $x_k$ is computed from $s_{k-1}$ | $P_0$ needs an $x_0$, which is undefined | from $s_k$, as in the authors' code |
# | Eq. 2 with 7 | a sigmoid between 0 and 1, squared error to a score up to 5 | most scores are out of reach | labels divided by 5 |
# | section 4.5 | 0.1 % of SNLI is "23 samples" | that is 0.1 % of SciTail; of SNLI it is 549 | Table 5 has it right |
#
# ## 4 Build it
#
# We take two real pairs from the encoder, in double precision. All layers come from a library head with newly drawn, larger weights, so that the
# attention weights differ clearly.

# %%
from mmlkit.data import collate, encode


def rows_of(name, split, rows):
    """One batch of some rows of a task."""
    chosen = getattr(tasks[name], split).take(rows)
    return collate(encode(tokenizer, chosen, max_length=size.max_length), range(len(rows)))


# %%
pairs = rows_of("snli", "dev", [0, 1])
token, segment = pairs.attention_mask.bool(), pairs.token_type_ids
premise, hypothesis = token & (segment == 0), token & (segment == 1)
inputs = (one.to(device) for one in (pairs.input_ids, pairs.attention_mask, segment))
with torch.no_grad():
    M = new_model(["snli"]).encoder(*inputs).last_hidden_state.cpu().double()
print("M", list(M.shape), *tokenizer.convert_ids_to_tokens(pairs.input_ids[0]))


# %%
def attend(scores, mask):
    """Softmax over the tokens of the mask, exactly 0 elsewhere; both [B,T]."""
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


# %%
torch.manual_seed(seed)
K, san = 5, SANHead(D, 3, num_steps=5).double().eval()
for parameter in san.parameters():
    torch.nn.init.normal_(parameter, std=0.1)
w_1, W_2, cell, W_3 = san.summary, san.attention, san.cell, san.dense
alpha = attend(w_1(M)[:, :, 0], hypothesis)
s_0 = torch.einsum("bt,btd->bd", alpha, M)
print("alpha", list(alpha.shape), "sums to", alpha.sum(-1).tolist(), " s_0", list(s_0.shape))


# %%
def look(s):
    """The weights beta [B,T] and the sum x [B,D] of a state s [B,D]."""
    beta = attend(torch.einsum("btd,bd->bt", M, W_2(s)), premise)
    return beta, torch.einsum("bt,btd->bd", beta, M)


# %%
@torch.no_grad()
def answer_module(s, K):
    """Eqs. 3 and 4 from s = s_0: every step's answer [B,K,C] and weights [B,K,T]."""
    P, betas = [], []
    for k in range(K):
        s = cell(x, s) if k > 0 else s
        beta, x = look(s)
        P.append(W_3(torch.cat([s, x, (s - x).abs(), s * x], -1)).softmax(-1))
        betas.append(beta)
    return torch.stack(P, 1), torch.stack(betas, 1)


# %% [markdown]
# **Predict before you run.** How many GRU steps do $K = 5$ answers need?
#
# <details><summary>Answer</summary>
#
# Four, because the first answer uses $s_0$, which is made without the GRU.
#
# </details>
#
# **Checkpoint.** The library's head with the same layers gives the same numbers.

# %%
P_k, steps_beta = answer_module(s_0, K)
with torch.no_grad():
    library, inside = san(M, premise, hypothesis), san.steps(M, premise, hypothesis)
torch.testing.assert_close(library, P_k.mean(1))
torch.testing.assert_close(inside.premise_weights, steps_beta)
print("P_k", list(P_k.shape), " beta", list(steps_beta.shape), " P", list(library.shape))
print(f"largest difference to the library {(library - P_k.mean(1)).abs().max():.0e}")

# %% [markdown]
# From here on we import it.
#
# ### Prediction dropout
#
# In training some answers are dropped *before* the mean ("stochastic prediction dropout"), so that the model does not rely on one step. In the
# authors' code, one randomly drawn step of every example always stays. Each other step stays with probability $1 - p$, and a kept answer gets the
# weight $1/(1-p)$.
#
# **Predict before you run.** With $K = 5$ and $p = 0.1$, how many answers are kept on average? And what does the factor $1/(1-p)$ change?
#
# <details><summary>Answer</summary>
#
# $1 + 4 \cdot 0.9 = 4.6$ answers. The factor changes nothing: it is the same for all kept steps, and cross-entropy needs probabilities that sum to
# 1, so the result is rescaled and the factor cancels. What remains is the mean of the kept answers.
#
# </details>
#
# The probabilities are averaged first, and the log comes after. Outside training, all answers count.
#
# ## 5 Algorithm 1
#
# MT-DNN's training is a short loop: cut every task into minibatches, merge them into one list, shuffle it, and make one step for each minibatch,
# with the loss of its own task.

# %%
from mmlkit.data import plan_examples
from mmlkit.training import make_optimizer


def algorithm_1(model, data, optimizer, epochs, batch_size):
    """Train on {task: Split}; yield the task and the loss of each step."""
    encoded = {name: encode(tokenizer, one, max_length=64) for name, one in data.items()}
    for epoch in range(1, epochs + 1):
        cut = dict(seed=seed, epoch=epoch)
        merged = [(t, rows) for t in data for rows in plan_examples(encoded[t], batch_size, **cut)]
        for i in np.random.default_rng([seed, epoch]).permutation(len(merged)):
            task, rows = merged[i]
            loss = model.loss(collate(encoded[task], rows).to(device)).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield task, loss.item()


# %%
few = {name: tasks[name].train.take(range(n)) for name, n in (("sst2", 32), ("snli", 64))}
model = new_model(few).train()
optimizer = make_optimizer(model, "adamax", lr=2e-4, head_lr=2e-3)
for task, loss in algorithm_1(model, few, optimizer, epochs=2, batch_size=16):
    print(f"{task} {loss:.3f}", end="   ")

# %% [markdown]
# **Checkpoint.** The library's sampler for this order is called `"merged"`, and `fit` makes such a step for each of its entries.

# %%
from mmlkit.training import TaskSampler

sampler = TaskSampler("merged", sizes={"A": 4, "B": 2, "C": 1}, epochs=3, seed=seed)
for epoch in (1, 2, 3):
    by_hand = np.random.default_rng([seed, epoch]).permutation([*"AAAABBC"])
    assert list(by_hand) == list(sampler.order(epoch))
    print(f"epoch {epoch}:", *by_hand)

# %% [markdown]
# Every minibatch comes once per epoch, so the size of a task sets its number of steps.
#
# **Predict before you run.** GLUE is a public collection of nine tasks, with about 950,000 training rows in total. All are trained with minibatches
# of 32. RTE has 2,500 rows. What is its share of the steps?

# %% tags=["setup"]
GLUE = ["CoLA", "SST-2", "MNLI", "RTE", "WNLI", "QQP", "MRPC", "STS-B", "QNLI"]
paper = published.tables("mt_dnn")
table1 = paper[(paper["table"] == "Table 1") & (paper["metric"] == "examples")]
examples = table1.pivot(index="row", columns="split", values="printed").loc[GLUE]
steps = np.ceil(examples["train"] / 32)
share = (100 * steps / steps.sum()).sort_values(ascending=False)

# %% tags=["answer"]
with folded("Answer"):
    print(f"{share['RTE']:.2f} %, one step in {steps.sum() / steps['RTE']:.0f}.")
    plots.bars(share.to_dict(), xlabel="share of the steps, %", title="Algorithm 1 on GLUE")
    plt.show()

# %% [markdown]
# MNLI and QQP take about four fifths of all steps. Trained alone, RTE would get equally many steps of its own. So any gain must come from the other
# tasks' updates, *or simply from more updates of the encoder*. Section 8 separates the two.
#
# ### What a step leaves untouched
#
# A minibatch of SST-2 gives no gradient to the head of SNLI. That head should stay the same to the last bit, although its optimizer state still
# holds momentum from an earlier step.
#
# **Predict before you run.** After the loop above, we make one more step of SST-2. How many of the ten tensors of the answer module move?

# %% tags=["answer"]
before = {key: value.clone() for key, value in model.state_dict().items()}
[*algorithm_1(model, {"sst2": few["sst2"].take(range(16))}, optimizer, 1, batch_size=16)]
moved = {key: not torch.equal(one, before[key]) for key, one in model.state_dict().items()}
part = [key.split(".")[1] if key.startswith("heads") else "encoder" for key in moved]
with folded("Answer"):
    count = pd.Series([*moved.values()]).groupby(part).agg(tensors="count", moved="sum")
    print(f"{count.moved['snli']} of {count.tensors['snli']}.")
    print(count.to_string())

# %% [markdown]
# In the encoder, only the two tensors of the pooler stay the same, because heads with mean pooling do not use it. The head of SNLI stays still only
# because `zero_grad` sets gradients to None. If they were zero instead, an optimizer with momentum would keep moving the head.
#
# ## 6 What the answer module looks at
#
# Attention is informative only in a module that has learned its task. So we train the answer module on all 1,440 rows of the mini SNLI.

# %%
from dataclasses import replace

from mmlkit.training import fit


# %%
snli = tasks["snli"]
if profile != "fast":
    snli = replace(snli, train=snli.train.take(range(20_000)), dev=snli.dev.take(range(1_000)))
rates = dict(lr=1.5e-4, head_lr=1.5e-3) if profile == "fast" else dict(lr=5e-5, head_lr=5e-5)
kept = size.checkpoints(output_dir, "07-san")  # for a run after a disconnect
pace = dict(epochs=epochs, batch_size=32, max_length=size.max_length, seed=seed)
trained = new_model(["snli"])
history = fit(trained, {"snli": snli}, **rates, **pace, precision=size.precision, **kept)
accuracy = history.loc[history["best"], "accuracy"].item()
majority = np.bincount(snli.dev.labels).max() / len(snli.dev)
print(f"dev accuracy {accuracy:.3f}; the majority class reaches {majority:.3f}")
assert not size.effects or accuracy > majority + 0.1, "not learned: its attention is noise"

# %%
encoded = encode(tokenizer, snli.dev, max_length=size.max_length)
dev = collate(encoded, range(len(snli.dev))).to(device)


# %%
@torch.no_grad()
def look_inside(model):
    """The weights beta [B,K,T], the answers P_k [B,K,C] and the mask [B,T] on the dev rows."""
    out = model.eval().encoder(dev.input_ids, dev.attention_mask, dev.token_type_ids)
    inputs = model.head(snli.task).inputs(out, dev)
    found = model.head(snli.task).steps(*inputs)
    return found.premise_weights.cpu(), found.probabilities.cpu(), inputs[1].cpu()


betas, answers, of_premise = look_inside(trained)
fresh = look_inside(new_model(["snli"]))[0]  # the same module before any training

# %% [markdown]
# We call *moved* half the sum of the absolute changes of the weights since step 0: 0 if nothing moved, 1 if everything did. The reference is the
# same module before training.
#
# **Predict before you run.** Does the attention of the trained module move further than that of the untrained one?

# %% tags=["answer"]
moved_by = {
    name: (one - one[:, :1]).abs().sum(-1) / 2  # [B,K]
    for name, one in (("trained", betas), ("untrained", fresh))
}
with folded("Answer"):
    gap = (moved_by["trained"] - moved_by["untrained"])[:, -1]  # paired, row by row
    last = {name: one[:, -1].mean().item() for name, one in moved_by.items()}
    print("Yes," if gap.mean() > 0 else "No,", end=" ")
    print(f"it moves {last['trained']:.3f}, the untrained one {last['untrained']:.3f}.")
    print(f"The gap is {gap.mean():.3f} ± {gap.std() / len(gap) ** 0.5:.3f} (standard error).")

# %%
ids = dev.input_ids.cpu()
marks = {".": tokenizer.convert_tokens_to_ids(".")}
marks |= {"[CLS]": tokenizer.cls_token_id, "[SEP]": tokenizer.sep_token_id}
on = {mark: (betas * (ids == own)[:, None]).sum(-1) for mark, own in marks.items()}  # [B,K]
special = sum(on.values())
right = (answers.argmax(-1) == dev.labels.cpu()[:, None]).double()
of_steps = {
    "accuracy of this step": right.mean(0),
    "moved since step 0": moved_by["trained"].mean(0),
    "moved, untrained": moved_by["untrained"].mean(0),
    **{f"on {mark}": one.mean(0) for mark, one in on.items()},
}
pd.DataFrame({name: one.numpy() for name, one in of_steps.items()}).round(3).rename_axis("step k")

# %% [markdown]
# An untrained module moves further than the trained one, so movement alone is no sign of reasoning. Training concentrates the attention on few
# tokens, and then a small change of the state moves little. The last three columns count where it is: the full stop and [SEP] get
# about a fifth each, so with [CLS] half of the attention is on no word. No later step is more accurate than the first one.
#
# We show rows whose attention is *typical*: their weight on these three marks, and their movement, are near the average.

# %% tags=["setup"]
numbers = torch.stack([special[:, 0], special[:, -1], moved_by["trained"][:, -1]], 1)
distance = ((numbers - numbers.mean(0)) / numbers.std(0)).norm(dim=1)
typical = distance.argsort()[:6].tolist()


def draw_row(row):
    here, pair = of_premise[row], snli.dev[row]
    names = tokenizer.convert_ids_to_tokens(dev.input_ids[row].cpu()[here])
    axes = plots.reasoning(betas[row][:, here], names, answers[row], snli.task.labels)
    axes[0].images[0].set_clim(0, betas[typical].max().item())  # one colour scale for all rows
    axes[0].figure.suptitle(f"row {row}: {pair['hypothesis']} ({pair['label']})", fontsize=10)


# %%
plots.sliders(draw_row, start={"row": typical[0]}, row=sorted(typical))

# %% [markdown]
# *The row nearest to the average: its attention in every step (left), and its five answers (right). The full stop and [SEP] get the largest
# weights, in every step. The slider chooses one of six typical rows: is it different there?*
#
# ## 7 The published table
#
# Table 3 of the paper compares three systems on the dev sets of GLUE, with one run per cell. BERT is fine-tuned for each task. ST-DNN trains each
# task alone with MT-DNN's heads. MT-DNN is one model for all tasks. Where the score is an accuracy, the number of dev rows gives a standard error
# of the difference between two systems.
#
# **Predict before you run.** On which of the six tasks with accuracy is MT-DNN ahead of BERT by more than two such errors?

# %% tags=["setup"]
TASKS = ["MNLI-m", "QQP", "MRPC", "RTE", "QNLI", "SST-2"]
table3 = paper[paper["table"] == "Table 3"].drop_duplicates(["row", "column"])
table3 = table3.pivot(index="column", columns="row", values="printed").loc[TASKS]
bert, single, multi = (table3[name] for name in ("BERT-base", "ST-DNN", "MT-DNN"))
dev_rows = examples["dev"].rename({"MNLI": "MNLI-m"})[TASKS]
dev_rows["MNLI-m"] /= 2  # MNLI has two dev sets
gains = pd.DataFrame({"BERT": bert, "ST-DNN over BERT": single - bert})
gains["MT-DNN over ST-DNN"], gains["MT-DNN over BERT"] = multi - single, multi - bert
gains["standard error"] = np.sqrt(2 * bert * (100 - bert) / dev_rows)

# %% tags=["answer"]
with folded("Answer"):
    ahead = gains["MT-DNN over BERT"] > 2 * gains["standard error"]
    print("On", ", ".join(ahead[ahead].index))
    display(gains.round(1).astype(object).fillna(""))

# %% [markdown]
# - RTE gains most, 14.1 points, and only with joint training. The answer module alone changes RTE by −0.4, a tenth of a standard error.
# - QNLI gains mostly with ST-DNN, which *ranks* the candidates, so it knows that exactly one is right.
# - The gains that should justify the answer module are those of ST-DNN over BERT on MNLI, QQP and MRPC, 0.2 to 2.1 points. Only the 0.6 on QQP
#   exceeds two standard errors. In our own runs with six seeds (`real-answer`) we see no gain over a linear head: −0.7 points, with an
#   interval from −1.7 to +0.4.
#
# ## 8 The answer: together or alone, with six seeds
#
# Joint training needs longer runs than a notebook has, so this comparison is recorded (`mmlkit reproduce together-or-alone`). The data are RTE
# (inference), MRPC (paraphrases), STS-B and CoLA (grammar) from GLUE, and 4,000 rows of SST-2. Every run has three epochs. Every seed has one
# encoder *together*, trained by Algorithm 1, and five *alone*. Both sides have the same pretrained weights and heads.
#
# **Predict before you run.** Which of the five tasks gains most from joint training? Does any task lose?

# %% tags=["answer"]
from mmlcourse.batch import recorded_claims

with folded("Answer"):
    title = "together minus alone: mean over six seeds and its 95 % interval"
    plots.forest(recorded_claims("together-or-alone"), title=title)
    plt.show()

# %% [markdown]
# <details><summary>What this says</summary>
#
# RTE is the only task whose gain is clear, 7 points. It explains the gain of the average, because a fifth of 7 points is 1.4. STS-B loses 0.6
# points, in every seed, and the intervals of the other three tasks include zero. (Points are percent of accuracy, for CoLA of Matthews' correlation
# and for STS-B of Pearson's $r$.)
#
# </details>
#
# RTE alone stays near guessing, but the shared encoder gets more than ten times as many updates. The control (`real-company`) is RTE alone with as
# many updates as the joint model has:

# %%
from mmlcourse.batch import recorded_scores

runs = recorded_scores("together-or-alone").pivot(index=["on", "seed"], columns="system")["value"]
company = recorded_scores("real-company").query("on == 'rte'").set_index("seed")["value"]
three = pd.DataFrame({"alone": runs.loc["rte", "alone"], "alone, as many updates": company})
three["together"] = runs.loc["rte", "together"]
three.agg(["mean", "std"]).round(1)

# %% [markdown]
# *With as many updates as the joint model, RTE alone already gains 4.8 points. The other tasks add 2.3, and the interval of this part (+0.1 to +4.8)
# nearly reaches zero. RTE alone keeps the best of 35 epochs on these dev rows, which favours it.*
#
# ## Exercises
#
# ### Exercise 1: one step of the answer module
#
# ● ● ○ · 15 minutes
#
# Write a step $k \geq 1$ for one pair: the new state, the attention over the premise, and the answer. `gru(x, s)` is given.


# %%
def my_step(s, x, M, gru, W_2, W_3):
    """s, x [D]: of the step before; M [T,D]; W_2 [D,D]; W_3 [C,4D]. Returns the answer P [C]."""
    ...


_ = checks.check_answer_step(my_step)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The new state comes first. Attention and answer then read the *new* state and the *new* sum.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# s = gru(x, s)
# x = (M @ (W_2 @ s)).softmax(0) @ M
# return (W_3 @ torch.cat([s, x, (s - x).abs(), s * x])).softmax(0)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 2: the size of the answer module
#
# ● ● ○ · 15 minutes
#
# Count the parameters of the answer module, with all biases, for vectors of size `D` and `C` labels. PyTorch's GRU has three
# matrices for $x$, three for $s$, and a bias for each of the six.


# %%
def my_size(D, C):
    """Return the number of parameters of w_1, W_2, the GRU and W_3."""
    ...


_ = checks.check_san_parameters(my_size)

# %% [markdown]
# <details><summary>Hint</summary>
#
# A linear layer from $a$ to $b$ numbers has $ab + b$ parameters. The number of steps does not matter, since all steps share the
# layers.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return (D + 1) + (D * D + D) + 6 * (D * D + D) + (4 * D * C + C)
# ```
#
# For BERT-base, `my_size(768, 3)` is 4,144,132: about 4 % of the encoder, and most of it is the GRU.
#
# </details>

# %% [markdown]
# ### Exercise 3: how many answers are kept?
#
# ● ● ○ · 15 minutes
#
# Prediction dropout keeps one of $K$ answers for sure, and each other one with probability $1 - p$. Give the probabilities that
# exactly 1, 2, ..., $K$ answers are kept.


# %%
def my_kept(K, p):
    """Return a list of K probabilities."""
    ...


_ = checks.check_kept_answers(my_kept)

# %% [markdown]
# <details><summary>Hint</summary>
#
# If $j$ answers are kept, $j - 1$ of the other $K - 1$ are kept. The binomial distribution counts them; `math.comb` helps.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import comb
# return [comb(K - 1, j - 1) * (1 - p) ** (j - 1) * p ** (K - j) for j in range(1, K + 1)]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 4: one step instead of five
#
# ● ● ○ · 15 minutes
#
# Change the experiment of section 6: train an answer module with a single step, $K = 1$, on the same rows. It never uses its GRU. Do you expect its
# dev accuracy to be lower than that of five steps, higher, or within 3 points (about one standard error over 480 rows)? Decide first, and then
# complete the line.

# %%
one_step = ...  # an answer module with K = 1

if one_step is not ...:
    model = MultitaskModel(copy.deepcopy(pretrained), {"snli": one_step}, tokenizer).to(device)
    own = size.checkpoints(output_dir, "07-one-step")
    one = fit(model, {"snli": snli}, **rates, **pace, precision=size.precision, **own)
    print(f"K = 1: {one.loc[one['best'], 'accuracy'].item():.3f}, K = 5: {accuracy:.3f}")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Section 4 makes a `SANHead` with `num_steps=5`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# one_step = SANHead(D, 3, num_steps=1)
# ```
#
# In section 6 the first of the five answers is about as accurate as the later ones, so we expect no clear difference. A single run cannot show
# one below 3 points; six seeds on real sets did not show that the whole module gains over a linear head.
#
# </details>
#
# ## If it goes wrong
#
# - *"task ... has single texts, but its SANHead needs pairs"*: the answer module needs a premise and a hypothesis. Give such a task a
#   `LinearHead`.
# - *"not learned: its attention is noise"* in section 6: a few steps at a high learning rate leave the loss at $\ln 3 = 1.099$. Use more epochs.
#
# ## Takeaways
#
# - **Do tasks help each other? Over six seeds, the small inference task RTE gains 7 points from joint training, and no other of five tasks gains
#   clearly. More than half of RTE's gain is also reached by RTE alone with as many updates.**
# - MT-DNN is one shared encoder with a small head for each kind of task. Algorithm 1 merges and shuffles the minibatches of all tasks, so a task
#   counts by its size. A head that is not in a step must have *no* gradient, which differs from a zero gradient.
# - The answer module attends to the premise $K$ times and averages $K$ answers. After training, its attention moves less from step to step than
#   before (0.08 against 0.27 in the stored run). Half of it lies on the full stop, [CLS] and [SEP].
# - On real sets with six seeds, we see no gain of the answer module over a linear head.
#
# ## References
#
# Liu, He, Chen and Gao (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding* (first arXiv version). Liu, Duh
# and Gao (2018), *Stochastic Answer Networks for Natural Language Inference*. Baldrati and Berti, *Multi-Task Deep Neural Networks
# for Natural Language Understanding* (slides). Wang et al. (2020), *MiniLM: Deep Self-Attention Distillation*. Cho et al. (2014),
# on the GRU. Bowman et al. (2015), SNLI. Wang et al. (2019), GLUE.
#
# Before: [06 Reading published tables](06_published_tables.ipynb). Next: [08 Ranking and
# pre-training](08_ranking_pretraining.ipynb).
