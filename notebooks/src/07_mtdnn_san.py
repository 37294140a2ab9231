# %% [markdown]
# # 07 One encoder, many tasks
#
# MT-DNN trains one BERT on several tasks at once, with a small output layer for each task. You compute the largest of these
# outputs, the answer module, on five words. You rebuild it, train it, and inspect its attention. Then you compare joint training
# with training each task alone.
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
rows = None  # at most so many training examples of each task; None: what the profile says
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

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from mmlcourse import published
from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.plots import sliders
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.machine import describe
from mmlkit.runtime import fastest_precision, pick_device

# %%
size, device, machine = get_profile(profile), pick_device(), describe()
source = source or size.source
epochs = epochs or {"fast": 2, "colab": 3}.get(profile, 5)  # the paper: at most 5
paper_rates = dict(lr=5e-5, head_lr=5e-5, batch_size=32, optimizer="adamax")
fast_rates = dict(lr=2e-4, head_lr=5e-3, batch_size=16, optimizer="adamw")
rates = fast_rates if profile == "fast" else paper_rates
precision = fastest_precision(device) if size.precision == "auto" else size.precision
settings = dict(max_length=size.max_length, precision=precision, seed=seed)
print(f"mmlkit {mmlkit.__version__}, torch {machine['versions']['torch']} on {machine['device']}")
print(f"weights {size.model} in {precision}, data from {source}, {epochs} epochs")

# %% [markdown]
# ## 1 One encoder, four outputs
#
# Fine-tuning gives every task a BERT of its own. MT-DNN (*multi-task deep neural network*) shares one encoder between all tasks.
# Only a small output, the *head*, belongs to one task. The paper claims that tasks help each other, that small tasks gain most, and
# that the shared vectors transfer to new tasks. Four kinds of tasks need four kinds of heads (numbers: the paper's equations):
#
# | kind | output | loss | here |
# |---|---|---|---|
# | one text | $\mathrm{softmax}(W^\top x)$ (1) | cross-entropy (6) | SST-2: is a film review positive? |
# | similarity of two texts | $g(w^\top x)$, $g$ a sigmoid (2) | squared error (7) | STS-B: a score from 0 to 5 |
# | relation of two texts | the answer module (3, 4) | cross-entropy (6) | SNLI: does one sentence follow from the other? |
# | ranking | $g(w^\top x)$ for each candidate (5) | $-\log$ softmax over candidates (8, 9) | QNLI: which sentence answers the question? |
#
# Two texts are *packed* into one input, as in a cross-encoder. $x$ is one vector of this input. (The drawing calls the encoder's
# output $l_2$; section 3 calls it $M$.) In the paper $x$ is the vector of [CLS]. On the fast profile it is the mean over tokens,
# because the bundled MiniLM was trained with mean pooling. SNLI replaces the paper's MNLI, because its texts are shorter. The
# ranking is the subject of [notebook 08](08_ranking_pretraining.ipynb); here it is one task among four.

# %%
from dataclasses import replace

from mmlkit.data import load_task
from mmlkit.heads import rank_queries


def some(split, n):
    """At most n examples of a split, drawn from the seed; a query keeps all its candidates."""
    examples = np.arange(len(split)) if split.queries is None else split.queries
    drawn = np.random.default_rng(seed).permutation(np.unique(examples))[:n]
    return split.take(np.flatnonzero(np.isin(examples, drawn)))


# %%
whole = {name: load_task(name, source) for name in ("sst2", "stsb", "snli")}
whole["qnli_rank"] = rank_queries(load_task("qnli", source))  # a question becomes one query

# %%
few = {"sst2": 48, "stsb": 48, "snli": 48, "qnli_rank": 18}
if profile != "fast":
    few = dict.fromkeys(whole, 20_000 if profile == "colab" else 10**9)
tests = 50 if profile == "fast" else 10**9
data = {
    name: replace(one, train=some(one.train, rows or few[name]), dev=some(one.dev, tests))
    for name, one in whole.items()
}
# %%
examples = {name: " | ".join(one.train.texts[0]) for name, one in data.items()}
counts = {name: (one.task.kind, len(one.train), len(one.dev)) for name, one in data.items()}
table = pd.DataFrame(counts, index=["kind", "training rows", "dev rows"]).T
table.assign(example=pd.Series(examples).str.slice(0, 70) + " …")

# %% [markdown]
# A row of the ranking is one candidate; each question of the mini QNLI has two. Every model below starts from the same pretrained
# encoder, and a task's head starts from the same parameters in every model. Section 6 compares *together* with *alone* and names
# the two differences that remain.

# %%
import copy

from mmlkit.bert import load_pretrained
from mmlkit.heads import LinearHead, RankingHead, SANHead, kept_steps, mean_of_steps
from mmlkit.runtime import seeded
from mmlkit.training import MultitaskModel

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
    heads = {}
    for name in names:
        with seeded(seed, device):
            heads[name] = new_head(whole[name].task)
    return MultitaskModel(copy.deepcopy(pretrained), heads, tokenizer).to(device).eval()


# %%
model = new_model(data)
sizes = {
    name: (type(head).__name__, sum(p.numel() for p in head.parameters()))
    for name, head in model.heads.items()
}
pd.DataFrame(sizes, index=["head", "parameters of its own"]).T

# %% [markdown]
# Three of the heads are a single linear layer. The answer module is much larger: on MiniLM it has about a tenth as many parameters
# as all the layers of the encoder. It is the *stochastic answer network* (SAN) of 2018.
#
# ## 2 The answer module on five words
#
# *Premise*: a cat sleeps here. *Hypothesis*: an animal rests. Does the second follow from the first? Each word gets two numbers,
# one for the *animal* and one for the *activity*:
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
# Now the state looks at the premise. The weight $\beta_j$ of a word is proportional to $\exp(M^p_j \cdot W_2 s_0)$. Take $W_2 = \ln
# 4$ times the identity. Then each increase of $M^p_j \cdot s_0$ by 1 multiplies the weight of a word by 4.
#
# **Predict before you run.** In which ratio do *cat*, *sleeps* and *here* share the attention?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
exact = dict(dtype=torch.float64)
M_p, M_h = torch.tensor([[2, 0], [0, 2], [0, 0]], **exact), torch.eye(2, **exact)
w_1, W_2 = torch.tensor([np.log(3), 0], **exact), np.log(4) * torch.eye(2, **exact)
s_0 = (M_h @ w_1).softmax(0) @ M_h
beta = (M_p @ (W_2 @ s_0)).softmax(0)
x_0 = beta @ M_p
parts = " : ".join(f"{11 * one:.0f}" for one in beta)
print(f"Answer: cat, sleeps and here share it as {parts}. s_0 is {s_0.tolist()}.")
assert torch.allclose(11 * beta, torch.tensor([8, 2, 1], **exact))

# %% [markdown]
# The products $M^p_j \cdot s_0$ are $1\tfrac12$, $\tfrac12$ and $0$, and $4^{3/2} = 8$, $4^{1/2} = 2$, $4^0 = 1$. The module reads
# the weighted sum $x_0 = \sum_j \beta_j M^p_j = (\tfrac{16}{11}, \tfrac{4}{11})$, which is mostly *cat*.
#
# Next the state changes: $s_1 = \mathrm{GRU}(x_0, s_0)$. A GRU mixes the old state with a new part, and its gates set the share of
# each. In this toy both gates are half open, and the new part is the $\tanh$ of $x$ with its two numbers *swapped*:
#
# $$s_1 = \tfrac12\, s_0 + \tfrac12 \tanh(x_{0,\text{activity}},\, x_{0,\text{animal}})$$
#
# At each step a classifier reads four vectors, $[s_k; x_k; |s_k - x_k|; s_k \cdot x_k]$. The last one is the elementwise product.
# In this toy, agreement $s \cdot x$ counts for *follows*, and distance $|s - x|$ counts for *does not follow*.

# %%
cell, W_3 = torch.nn.GRUCell(2, 2, **exact), torch.zeros(2, 8, **exact)
for parameter in cell.parameters():
    torch.nn.init.zeros_(parameter)  # both gates: sigmoid(0) = 1/2
cell.weight_ih.data[4:] = torch.tensor([[0, 1], [1, 0]], **exact)  # the new part swaps
W_3[0, 6:], W_3[1, 4:6] = 1, 1  # follows: s·x; does not follow: |s - x|


# %%
@torch.no_grad()
def toy(K, s=s_0, W_2=W_2, cell=cell, W_3=W_3):  # bound here: section 4 uses these names again
    """The weights beta [K,3] and the answers P [K,2] of K steps on the five words."""
    x, betas, answers = None, [], []
    for k in range(K):
        s = cell(x, s) if k > 0 else s
        betas.append((M_p @ (W_2 @ s)).softmax(0))
        x = betas[-1] @ M_p
        answers.append((W_3 @ torch.cat([s, x, (s - x).abs(), s * x])).softmax(0))
    return torch.stack(betas), torch.stack(answers)


# %% [markdown]
# **Predict before you run.** After step 0 has read mostly *cat*, which word gets the most attention in step 1?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
words, labels = ["cat", "sleeps", "here"], ["follows", "does not"]
betas, answers = toy(3)
most, weight = words[betas[1].argmax()], betas[1].max()
print(f"Answer: {most} with the weight {weight:.3f}; cat has {betas[1, 0]:.3f}.")
assert torch.allclose(cell(x_0, s_0), 0.5 * s_0 + 0.5 * x_0.flip(0).tanh())
assert most == "sleeps" and words[betas[0].argmax()] == "cat"

# %%
plots.reasoning(betas, words, answers, labels, title="five words, three steps", values=True)
plt.show()

# %% [markdown]
# *Step 0 puts 0.73 of the attention on "cat". Steps 1 and 2 divide it almost equally between "cat" and "sleeps"; in step 1 "sleeps"
# is slightly ahead. All three steps favour "follows", and its mean is 0.61 (horizontal line).*
#
# This is the idea of the module: attend to the premise, change the state, and attend again. The final answer is the mean over the
# steps. We chose the weights by hand so that step 1 prefers another word than step 0. Nothing in the equations forces a *trained*
# module to do so; section 7 tests it.
#
# ### Change the number of steps, and drop answers
#
# In training, each answer is left out of the mean with probability $p$, except one random answer (*prediction dropout*, section 4). The next
# figure shows the toy with $K$
# steps. The grey band is the mean ± one standard deviation of the training answer for "follows", over 4,000 random choices of kept
# steps.


# %%
def draw(K, p, base):
    betas, answers = toy(K, W_2=np.log(base) * torch.eye(2, **exact))
    with seeded(seed):
        kept = kept_steps(4000, K, p).double()
    drawn = kept @ answers[:, 0] / kept.sum(1)  # the mean of the kept answers, 4,000 times
    title = (
        f"K = {K}, p = {p}, base {base}: training answers {drawn.mean():.3f} ± {drawn.std():.3f}"
    )
    left, right = plots.reasoning(betas, words, answers, labels, values=True)
    left.figure.suptitle(title, fontsize=11)
    left.images[0].set_clim(0, 1)
    left.set(ylim=(7.5, -0.5))
    low, high = drawn.mean() - drawn.std(), drawn.mean() + drawn.std()
    right.axhspan(low, high, color="grey", alpha=0.3)
    right.set(xlim=(-0.3, 7.3))


# %%
start = {"K": 5, "p": 0.5, "base": 4}
sliders(draw, start=start, K=[1, 2, 3, 5, 8], p=[0, 0.25, 0.5], base=[1, 4, 16])

# %% [markdown]
# *With five steps and dropout 0.5 the training answer varies by about ± 0.02. The sliders change K, p and the base in $W_2$ (now ln 4):
# base 1 gives equal attention, and p = 0 removes the band.*
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
# ### The GRU
#
# A gated recurrent unit (GRU) updates a state $s$ with an input $x$. With biases left out, $\sigma$ the sigmoid and $\odot$ the
# elementwise product:
#
# $$r = \sigma(W_r x + U_r s) \qquad z = \sigma(W_z x + U_z s) \qquad n = \tanh\big(W_n x + r \odot (U_n s)\big) \qquad
# \mathrm{GRU}(x, s) = (1 - z) \odot n + z \odot s$$
#
# The *update gate* $z$ decides, for each number of the state, how much of the old value stays. The *reset gate* $r$ decides how
# much of the old state enters the new part $n$. All six matrices are learned, and the same GRU serves every step. In the toy all of
# them are zero except $W_n$, which swaps the two numbers: so $r = z = \tfrac12$ and $n = \tanh(\mathrm{swap}(x))$.
#
# ### Three misprints
#
# | where | printed | the problem | corrected |
# |---|---|---|---|
# | section 3 | $x_k$ is computed from $s_{k-1}$ | $P_0$ needs an $x_0$, which is undefined | from $s_k$, as in the authors' code |
# | Eq. 2 with 7 | a sigmoid between 0 and 1, squared error to a score up to 5 | most scores are out of reach | labels divided by 5 |
# | section 4.5 | 0.1 % of SNLI is "23 samples" | that is 0.1 % of SciTail; of SNLI it is 549 | Table 5 has it right |
#
# The code behind the slides of Baldrati and Berti differs at the first one: it runs the GRU first and pairs $s_{k+1}$ with $x_k$.
# This is another network. The ranking equations 5, 8 and 9 have misprints as well; notebook 08 plots them.
#
# **A score with a ceiling.** Eq. 2 bounds the similarity by 1, and the labels of STS-B go up to 5. Suppose that the labels are not
# rescaled.
#
# **Predict before you run.** Can the best possible model of this kind beat a model that always predicts the mean label?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
y = torch.as_tensor(whole["stsb"].train.labels)
at_best = (y - y.clamp(0, 1)).square().mean()  # every label up to 1, and 1 for all the others
constant = y.var(correction=0)
verdict = "no" if at_best > constant else "yes"
print(
    f"Answer: {verdict}. Its squared error is at least {at_best:.2f}; the mean has {constant:.2f}."
)
assert at_best > constant

# %% [markdown]
# So the labels must be divided by 5. `LinearHead(..., activation="sigmoid")` does this: it trains on labels between 0 and 1 and
# returns scores on the scale of the task.
#
# ## 4 Build it
#
# We take two real pairs from the encoder, in double precision. All layers come from a library head with newly drawn, larger
# weights, so that the attention weights differ clearly.

# %%
from mmlkit.data import collate, encode, plan_examples


def batch_of(name, examples, split="train"):
    """One batch of so many examples of a task."""
    chosen = some(getattr(data[name], split), examples)
    encoded = encode(tokenizer, chosen, max_length=size.max_length)
    return collate(encoded, plan_examples(encoded, examples, seed=seed, epoch=0)[0]).to(device)


batch = batch_of("snli", 2, "dev")
with torch.no_grad():
    M = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids).last_hidden_state
M, batch = M.cpu().double(), batch.to(torch.device("cpu"))  # GPUs are slow in double precision
print("M", list(M.shape))

# %%
token, segment = batch.attention_mask.bool(), batch.token_type_ids
premise, hypothesis = token & (segment == 0), token & (segment == 1)
names = np.array(tokenizer.convert_ids_to_tokens(batch.input_ids[0]))
print("premise:   ", *names[premise[0]], "\nhypothesis:", *names[hypothesis[0]])


def attend(scores, mask):
    """Softmax over the tokens of the mask, exactly 0 elsewhere; both [B,T]."""
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


# %%
torch.manual_seed(seed)
K, head = 5, SANHead(D, 3, num_steps=5).double().eval()
for parameter in head.parameters():
    torch.nn.init.normal_(parameter, std=0.1)
w_1, W_2, cell, W_3 = head.summary, head.attention, head.cell, head.dense
alpha = attend(w_1(M)[:, :, 0], hypothesis)
s_0 = torch.einsum("bt,btd->bd", alpha, M)
print("alpha", list(alpha.shape), "sums to", alpha.sum(-1).tolist(), " s_0", list(s_0.shape))


# %%
def look(s):
    """The weights beta [B,T] and the sum x [B,D] of a state s [B,D]."""
    beta = attend(torch.einsum("btd,bd->bt", M, W_2(s)), premise)
    return beta, torch.einsum("bt,btd->bd", beta, M)


beta, x_0 = look(s_0)
outside = beta[~premise].sum()
print("beta", list(beta.shape), " x_0", list(x_0.shape), f" outside the premise {outside:.0f}")


# %%
@torch.no_grad()
def answer_module(s, K):
    """Eqs. 3 and 4 from s = s_0: every step's answer [B,K,C] and weights [B,K,T]."""
    P, betas, x = [], [], None
    for k in range(K):
        s = cell(x, s) if k > 0 else s
        beta, x = look(s)
        P.append(W_3(torch.cat([s, x, (s - x).abs(), s * x], -1)).softmax(-1))
        betas.append(beta)
    return torch.stack(P, 1), torch.stack(betas, 1)


# %% [markdown]
# **Predict before you run.** How many GRU steps do $K = 5$ answers need?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
calls = []
counter = cell.register_forward_hook(lambda *_: calls.append(1))
P_k, betas = answer_module(s_0, K)
counter.remove()
P = P_k.mean(1)
print(f"Answer: {len(calls)}. The first of the {K} answers needs none.")
print("P_k", list(P_k.shape), " betas", list(betas.shape), " P", P.numpy().round(3).tolist())

# %% [markdown]
# **Checkpoint.** The library's head with the same layers gives the same numbers.

# %%
with torch.no_grad():
    library, inside = head(M, premise, hypothesis), head.steps(M, premise, hypothesis)
torch.testing.assert_close(library, P)
torch.testing.assert_close(inside.premise_weights, betas)
torch.testing.assert_close(inside.probabilities, P_k)
with torch.device("meta"):  # shapes without memory
    wide = sum(p.numel() for p in SANHead(768, 3).parameters())
print(f"largest difference {(library - P).abs().max():.0e}")
print(f"parameters on BERT-base: {wide:,}; a linear head has {3 * 769:,}")

# %% [markdown]
# From here on we import it.
#
# ### Prediction dropout
#
# In training some answers are dropped *before* the mean ("stochastic prediction dropout"), so that the model does not rely on one
# step. In the authors' code, one randomly drawn step of every example always stays. Each other step stays with probability $1 - p$.
# A kept answer gets the weight $1/(1-p)$.
#
# **Predict before you run.** With $K = 5$ and $p = 0.1$, how many answers are kept on average? And what does the factor $1/(1-p)$
# change?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
p, kept = 0.1, torch.tensor([True, False, True, True, True])
printed = (kept[:, None] * P_k[0] / (1 - p)).mean(0)  # weighted, and averaged over all K
of_kept = P_k[0][kept].mean(0)
change = (printed / printed.sum() - of_kept).abs().max()
drawn = kept_steps(100_000, K, p).sum(1).double()
print(f"Answer: {drawn.mean():.2f} answers, and never fewer than {drawn.min():.0f}.")
print(f"After rescaling to a sum of 1, the factor changes the result by {change:.0e}.")
torch.testing.assert_close(mean_of_steps(P_k[:1].log(), kept[None])[0], of_kept.log())
assert abs(drawn.mean() - (1 + (K - 1) * (1 - p))) < 0.02

# %% [markdown]
# The average is $1 + 4 \cdot 0.9 = 4.6$. The factor is the same for all kept steps. Cross-entropy needs probabilities that sum to
# 1, so the result is rescaled. Then the factor cancels, and the result is the mean of the kept answers. Without the step that
# always stays, the mean would sometimes be $0/0$.
#
# The probabilities are averaged first, and the log comes after. The mean of the steps' own losses is a different loss: it is never
# smaller, because $-\log$ is convex (Jensen's inequality). At $p = 0$, and outside training, all answers count.
#
# ## 5 Algorithm 1
#
# Cut every task into minibatches, merge them into one list, and shuffle it. Then make one step for each minibatch, with the loss of
# its own task. The library's sampler for this is called `"merged"`:

# %%
from mmlkit.training import TaskSampler

merged = [task for task, count in {"A": 4, "B": 2, "C": 1}.items() for _ in range(count)]
by_hand = np.random.default_rng([seed, 1]).permutation(merged)  # 1 is the number of the epoch
print("by hand:", *by_hand)
sampler = TaskSampler("merged", sizes={"A": 4, "B": 2, "C": 1}, epochs=3, seed=seed)
for epoch in (1, 2, 3):
    print(f"epoch {epoch}:", *sampler.order(epoch))
    assert sorted(sampler.order(epoch)) == merged  # every minibatch once
assert list(by_hand) == list(sampler.order(1))

# %% [markdown]
# Every minibatch comes once per epoch, so the size of a task sets its number of steps.
#
# **Predict before you run.** The paper's Table 1 lists nine GLUE tasks. Suppose that all are trained with minibatches of 32. RTE
# has 2,500 rows. What is its share of the steps?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
GLUE = ["CoLA", "SST-2", "MNLI", "RTE", "WNLI", "QQP", "MRPC", "STS-B", "QNLI"]
paper = published.tables("mt_dnn")
table1 = paper[(paper["table"] == "Table 1") & (paper["metric"] == "examples")]
examples = table1.pivot(index="row", columns="split", values="printed").loc[GLUE]
steps = np.ceil(examples["train"] / 32)
share = (100 * steps / steps.sum()).sort_values(ascending=False)
large, name = share.iloc[:3].sum(), ", ".join(share.index[:3])
print(f"Answer: {share['RTE']:.2f} %, one step in {steps.sum() / steps['RTE']:.0f}.")
print(f"An epoch has {steps.sum():,.0f} steps; {large:.0f} % of them belong to {name}.")

# %%
plots.bars(share.to_dict(), xlabel="share of the steps, %", title="Algorithm 1 on GLUE")
plt.show()

# %% [markdown]
# *MNLI and QQP take about four fifths of all steps. The five smallest tasks together take about 2 %.*
#
# Alone, RTE has the same number of steps. So a gain from joint training must come from the steps of other tasks. MNLI has the most steps
# and asks the same kind of question.
#
# ### What a step leaves untouched
#
# A minibatch of SST-2 gives no gradient to the head of SNLI. That head should stay the same to the last bit, although its optimizer
# state still holds momentum from an earlier step.
#
# **Predict before you run.** We make one step of SNLI and then one of SST-2. How many tensors of the answer module move in the
# second step?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlkit.training import fit, make_optimizer, train_step

model = new_model(["snli", "sst2"]).train()
optimizer = make_optimizer(model, rates["optimizer"], lr=rates["lr"], head_lr=rates["head_lr"])
train_step(model, batch_of("snli", 8), optimizer)  # now SNLI's head has momentum
before = {key: value.clone() for key, value in model.state_dict().items()}
train_step(model, batch_of("sst2", 8), optimizer)
moved = {key: not torch.equal(one, before[key]) for key, one in model.state_dict().items()}
part = [key.split(".")[1] if key.startswith("heads") else "encoder" for key in moved]
moved = pd.Series([*moved.values()]).groupby(part).agg(tensors="count", moved="sum")
print(f"Answer: {moved.moved['snli']} of {moved.tensors['snli']}.", moved.to_dict("index"))
assert moved.moved["snli"] == 0 and moved.moved["sst2"] == moved.tensors["sst2"]

# %% [markdown]
# In the encoder, only the two tensors of the pooler stay the same, because heads with mean pooling do not use it. The unchanged
# head depends on one argument, `set_to_none`. A gradient of *zero* differs from *no* gradient for an optimizer with momentum:

# %%
for none in (True, False):
    theta, path = torch.nn.Parameter(torch.tensor([1.0])), []
    optimizer, theta.grad = torch.optim.Adamax([theta], lr=0.1), torch.tensor([1.0])
    for _ in range(4):  # one step of its own task, then three of other tasks
        optimizer.step()
        optimizer.zero_grad(set_to_none=none)
        path.append(round(theta.item(), 4))
    print("no gradient:  " if none else "zero gradient:", path)

# %% [markdown]
# With zeros, a head keeps moving along its last direction while other tasks train. Weight decay would shrink it as well. Older code
# does that; `train_step` does not.
#
# ## 6 Together or alone?
#
# ### A demonstration of the mechanics
#
# We train all four tasks with one encoder, and then each task with an encoder of its own. Both sides have the same pretrained weights, the
# same initial heads and the same batches. One seed, so few training rows and 50 dev examples of each task cannot show which side is better.
# The recorded runs below have more rows and six seeds.


# %%
def learn(names):
    """Train a fresh model on these tasks; return its history."""
    chosen = {name: data[name] for name in names}
    kept = size.checkpoints(output_dir, "07-" + "-".join(names))  # for a run after a disconnect
    return fit(new_model(names), chosen, epochs=epochs, **rates, **settings, **kept)


together = learn(list(data))
alone = {name: learn([name]) for name in data}
# %%
losses = {
    (name, side): one.loc[one["task"] == name, "train_loss"].round(3).to_list()
    for name in data
    for side, one in (("together", together), ("alone", alone[name]))
}
pd.Series(losses).unstack()

# %% [markdown]
# The table shows the training loss of each epoch. Next come the dev scores, with two baselines: guessing, and the cosine of the
# *untrained* encoder, which is MiniLM without any training here. The last column is one standard error. (`accuracy@1`: the answer
# ranks first.)

# %%
from torch.nn.functional import cosine_similarity

from mmlkit.heads import sentence_vector
from mmlkit.training import metrics


@torch.no_grad()
def untrained_cosine(split):
    """The first metric of the split's task, with the untrained encoder's cosine as the score."""
    encoder, cosines = copy.deepcopy(pretrained).to(device).eval(), []
    for start in range(0, len(split), 64):
        both, options = [], dict(padding=True, truncation=True, return_tensors="pt")
        for texts in zip(*split.texts[start : start + 64]):
            rows = tokenizer(list(texts), **options).to(device)
            out = encoder(rows.input_ids, rows.attention_mask, rows.token_type_ids)
            both.append(sentence_vector(out, rows, "mean"))
        cosines = np.append(cosines, cosine_similarity(*both).cpu())
    return metrics.compute(split.task, cosines, split.labels, split.queries)[split.task.metrics[0]]


# %%
def guessing(one):
    """The score of the majority class, of a constant score, or of a random candidate."""
    if one.task.kind == "classification":
        return np.bincount(one.dev.labels).max() / len(one.dev)
    return 0.0 if one.task.kind == "regression" else one.dev.labels.mean()


def score(history, name):
    """The dev score of the epoch whose weights were kept, by the task's first metric."""
    metric = data[name].task.metrics[0]
    return history.loc[(history["task"] == name) & history["best"], metric].item()


# %%
rows_of = {name: (one.task.metrics[0], guessing(one)) for name, one in data.items()}
result = pd.DataFrame(rows_of, index=["metric", "guessing"]).T
scored = ("stsb", "qnli_rank")
result["untrained cosine"] = pd.Series({name: untrained_cosine(data[name].dev) for name in scored})
result["alone"] = pd.Series({name: score(alone[name], name) for name in data})
result["together"] = pd.Series({name: score(together, name) for name in data})
r, n = result["alone"], pd.Series({name: one.dev.labels.size for name, one in data.items()})
n["qnli_rank"] = len(np.unique(data["qnli_rank"].dev.queries))
squared = np.where(result["metric"] == "pearson", (1 - r**2) ** 2, r * (1 - r))
result["one standard error"] = np.sqrt(squared / n)
result.round(3).astype(object).fillna("")

# %%
from pathlib import Path

from mmlkit.files import atomic_write

two = 2 * np.sqrt(2) * result["one standard error"]  # two errors of a difference
far = [name for name in data if abs(result["together"] - result["alone"])[name] > two[name]]
best = result[["alone", "together"]].max(axis=1)
print("Together and alone differ by more than two standard errors on:", ", ".join(far) or "no task")
for name, cosine in result.loc[list(scored), "untrained cosine"].items():
    print(f"{name}: the better trained head {best[name]:.3f}, the untrained cosine {cosine:.3f}")
with atomic_write(Path(output_dir) / "together_or_alone.csv") as temporary:
    result.to_csv(temporary)
assert np.isfinite(together["train_loss"]).all()

# %% [markdown]
# On SST-2 and SNLI, compare the trained scores with guessing in standard errors: 48 training rows are too few for a clear lead.
#
# Where the trained heads stay below the untrained cosine, a likely reason is the input. MiniLM was trained to compare two texts that are
# encoded *separately* (a bi-encoder), so its cosine is already good. MT-DNN packs the two texts, and its linear head must learn the
# comparison from a few rows. With all 5,749 rows of GLUE's STS-B the packed model does not exceed it (0.869 against 0.870, recorded
# below).
#
# The comparison has two limits. The shared encoder gets the updates of all
# tasks, several times as many as an encoder alone. And `fit` keeps the epoch with the best *mean* score, while a task alone keeps
# its own best epoch.
#
# ### Five real sets, six seeds
#
# The same comparison was recorded in longer runs with `mmlkit reproduce together-or-alone`. The data are RTE (inference), MRPC
# (paraphrases), STS-B and CoLA (grammar) from GLUE (four fifths of the training rows of RTE and MRPC), and 4,000 rows of SST-2. Every run
# has three epochs. Every seed has one encoder `together`, and five `alone`.

# %%
from mmlcourse.batch import recorded_experiments


def recorded(name):
    """The dev scores of an experiment's recorded runs in percent, by each task's first metric."""
    frames = [one.frame for one in recorded_experiments() if one.experiment.name == name]
    found = pd.concat([pd.DataFrame(columns=["system", "seed", "on", "value"]), *frames])
    found = found.drop_duplicates(["system", "seed", "on"])  # the first metric
    return found.assign(value=100 * found["value"].astype(float))


# %%
runs = recorded("together-or-alone").pivot_table("value", ["on", "seed"], "system")
runs["difference"] = runs["together"] - runs["alone"]

# %%
from mmlcourse.studies import recorded_cosine
from mmlcourse.studies.staircases import MAJORITY

SETS = ["rte", "mrpc", "stsb", "cola", "sst2"]  # a constant prediction has a correlation of 0
guesses = pd.Series({**MAJORITY, "stsb": 0, "sst2": 444 / 872}) * 100  # class by dev rows of GLUE
four = runs.loc[SETS[1:]].groupby("seed").mean()
runs = pd.concat([runs, pd.concat({"average without rte": four}, names=["on"])]).sort_index()
order = [*SETS, "average", "average without rte"]


# %%
def spread(values):
    """Mean ± standard deviation over seeds."""
    return f"{values.mean():.1f} ± {values.std():.1f}"


shown = runs.groupby("on").agg(spread).reindex(order)
shown.insert(0, "guessing", guesses.round(1))
cosine = pd.Series({"stsb": 100 * recorded_cosine("stsb")})
shown.insert(1, "untrained cosine", cosine.round(1))
shown["seeds ahead"] = (runs["difference"] > 0).groupby("on").sum()
shown.astype(object).fillna("")

# %%
from mmlcourse.studies import outcome_sentence, paired_bootstrap

claims = {
    "average": "Five tasks that learn together do better on average than alone",
    "average without rte": "Without RTE, the other four do better on average together",
    "rte": "RTE, the smallest task, does better together",
    "stsb": "STS-B does better together",
}
for on, claim in claims.items():
    print(
        outcome_sentence(paired_bootstrap(runs.loc[on, "together"], runs.loc[on, "alone"]), claim)
    )
p, dev_rows = runs.loc["rte", "alone"].mean() / 100, 277
of_rows = 100 * np.sqrt(2 * p * (1 - p) / dev_rows)
print(f"RTE: one standard error from the choice of its {dev_rows} dev rows, {of_rows:.1f} points")

# %%
change = runs["difference"].groupby("on").agg(["mean", "sem"]).loc[order]
label = "together minus alone, points: mean and one standard error of 6 seeds"
ax = plots.spread(change["mean"], change["sem"], change.index, ["ours"] * len(order), xlabel=label)
ax.axvline(0, color="black", linewidth=1)
plt.show()

# %% [markdown]
# *RTE is the only task with a gain that is clear over the seeds, 7 points. STS-B loses 0.6 points, in every seed, and is not above the
# untrained cosine. MRPC, SST-2 and CoLA stay within about two standard errors of zero.*
# MRPC's gain may be too high: the joint model sees 48 of its 408 dev pairs in STS-B.
#
# RTE alone explains the gain of the average: a fifth of 7 points is 1.4.
#
# Scores are percent of accuracy, of Matthews' correlation for CoLA, and of Pearson's $r$ for STS-B. A difference is taken between two runs
# with the same seed. The printed interval ([notebook 05](05_cross_dataset.ipynb)) covers the seeds. Over the choice of dev rows, RTE's 7
# points are 1.7 standard errors.
#
# Alone, RTE is near guessing after three epochs of 1,992 rows. The shared
# encoder had more than ten times as many updates. The recorded control, `real-company`, is RTE alone with as many updates:

# %%
for one in (one for one in recorded_experiments() if one.experiment.name == "real-company"):
    print("\n".join(one.sentence(*pair) for pair in one.compared))

# %% [markdown]
# *RTE alone gains 4.8 points from as many updates. It keeps the best of 35 epochs on these dev rows, which favours it. The other sets add
# 2.3, and the interval nearly reaches zero.*
#
# ## 7 What the answer module looks at
#
# Attention is informative only in a module that has learned its task. So we train the answer module on all 1,440 rows of the mini
# SNLI, and we test it on all 480 dev rows.

# %%
snli = whole["snli"]
if profile != "fast":
    snli = replace(snli, train=some(snli.train, 20_000), dev=some(snli.dev, 1_000))
pace = dict(epochs=2, lr=1.5e-4, head_lr=1.5e-3, batch_size=32) if profile == "fast" else {}
san = new_model(["snli"])
kept = size.checkpoints(output_dir, "07-san")
history = fit(san, {"snli": snli}, **(pace or dict(rates, epochs=epochs)), **settings, **kept)
accuracy, guess = history.loc[history["best"], "accuracy"].item(), guessing(snli)
error = np.sqrt(guess * (1 - guess) / len(snli.dev))
print(f"dev accuracy {accuracy:.3f}; the majority class has {guess:.3f} ± {error:.3f}")
learned = accuracy > guess + 4 * error
if not learned:
    print("The module has NOT LEARNED its task, so its attention below is noise.")
assert not size.effects or learned

# %%
from mmlkit.training.fast import fast_matmul

task = snli.task
encoded = encode(tokenizer, snli.dev, max_length=size.max_length)
batch = collate(encoded, range(len(snli.dev))).to(device)


@torch.no_grad()
def read(encoder):
    """The encoder's output on the dev rows."""
    with fast_matmul(device):
        return encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)


@torch.no_grad()
def look_inside(head, out):
    """The weights beta [B,K,T], the answers P_k [B,K,C] and the mask [B,T] on the dev rows."""
    inputs = head.inputs(out, batch)
    found = head.steps(*inputs)
    return found.premise_weights.cpu(), found.probabilities.cpu(), inputs[1].cpu()


# %%
betas, answers, premise = look_inside(san.eval().head(task), read(san.encoder))
before, fresh = read(new_model(["snli"]).encoder), []  # the same module before any training
for draw_of in range(5):  # five draws of its parameters; the first one was trained
    with seeded(seed + draw_of, device):
        untrained_head = new_head(task).to(device).eval()
    fresh.append(look_inside(untrained_head, before)[0])

# %% [markdown]
# ### Are five answers better than one?
#
# **Predict before you run.** Is the mean of the five answers more often right than each single step?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
gold = batch.labels.cpu()
of_steps = (answers.argmax(-1) == gold[:, None]).double()  # [B,K]
of_mean = (answers.mean(1).argmax(-1) == gold).double()
gap = of_mean[:, None] - of_steps  # paired, row by row
mean, errors = gap.mean(0), gap.std(0) / len(gap) ** 0.5
clear = (mean > 2 * errors).sum().item()
each = " ".join(f"{one:.3f}" for one in of_steps.mean(0))
verdict = "yes" if clear == K else "no"
print(f"Answer: {verdict}. It is ahead of {clear} of {K} steps by more than two standard errors.")
print(f"mean answer {of_mean.mean():.3f}; single steps {each}")
changed = (answers[:, 0].argmax(-1) != answers[:, -1].argmax(-1)).double().mean()
print(f"From the first step to the last, {changed:.1%} of the rows change their label.")

# %% [markdown]
# A gain from the average would show as a clear lead over every step. This is one seed.
#
# The control for the whole module is a linear head. The recorded runs of `real-answer` have both, on three real sets with six seeds.

# %%
for one in (one for one in recorded_experiments() if one.experiment.name == "real-answer"):
    first = one.frame.drop_duplicates(["answer", "seed", "on"])  # the first metric
    by_head = 100 * first.pivot_table("value", ["on", "seed"], "answer")
    heads = by_head.assign(difference=by_head["san"] - by_head["linear"])
    display(heads.groupby("on").agg(spread).reindex(["rte", "mrpc", "scitail", "average"]))
    print(one.sentence(*one.claims[0]))

# %% [markdown]
# *Both heads are near guessing on RTE (52.7). The interval of the mean has zero in it.*
#
# ### Does the attention move?
#
# We call *moved* half the sum of the absolute changes of the weights since step 0. It is 0 if nothing moved and 1 if everything
# did. The reference is the same module before training. *Distance from even* is the same measure, taken from equal weights.
#
# **Predict before you run.** Does the attention of the trained module move further than that of the untrained one?


# %% tags=["answer"] jupyter={"outputs_hidden": true}
def moved_since(start, one):
    """Half the summed change of attention, for every row and step: [B,K]."""
    return (one - start).abs().sum(-1) / 2


trained, *others = (moved_since(one[:, :1], one) for one in (betas, *fresh))
untrained = others[0]
gap = trained[:, -1] - untrained[:, -1]  # paired, row by row
mean, error = gap.mean(), gap.std() / len(gap) ** 0.5
last = [one[:, -1].mean().item() for one in (trained, *others)]
verdict = "yes" if mean > 2 * error else "no"
print(f"Answer: {verdict}, {last[0]:.3f} against {last[1]:.3f}; gap {mean:.3f} ± {error:.3f}.")
print(f"Five untrained modules move {min(last[1:]):.3f} to {max(last[1:]):.3f}.")

# %%
even = (premise / premise.sum(-1, keepdim=True))[:, None]
special_tokens = torch.isin(batch.input_ids.cpu(), torch.tensor(tokenizer.all_special_ids))
special = (betas * special_tokens[:, None]).sum(-1)  # [B,K]
columns = {
    "accuracy": of_steps.mean(0),
    "moved since step 0": trained.mean(0),
    "moved, untrained": untrained.mean(0),
    "distance from even": moved_since(even, betas).mean(0),
    "on [CLS] and [SEP]": special.mean(0),
}
pd.DataFrame({name: one.numpy() for name, one in columns.items()}).round(3).rename_axis("step k")

# %% [markdown]
# An untrained module moves, too, and further. So movement alone is no sign of reasoning. The printed error of the
# gap is too small, because two rows share each premise.
#
# We show rows whose attention is *typical*: their weight on [CLS] and [SEP], and their movement, are near the average.


# %%
profile_of = torch.stack([special[:, 0], special[:, -1], trained[:, -1]], 1)
away = ((profile_of - profile_of.mean(0)) / profile_of.std(0)).norm(dim=1)
typical = away.argsort()[:6].tolist()


def draw_row(row):
    """Every step on one dev row."""
    here = premise[row]
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[row].cpu()[here])
    weights, probabilities = betas[row][:, here], answers[row]
    axes = plots.reasoning(weights, tokens, probabilities, task.labels, title=f"row {row}")
    axes[0].images[0].set_clim(0, betas[typical].max().item())  # one colour scale for all rows
    one = snli.dev[row]
    axes[0].figure.suptitle(f"{one['hypothesis']} ({one['label']})", fontsize=10)


sliders(draw_row, start={"row": typical[0]}, row=sorted(typical))

# %% [markdown]
# *The row nearest to the average: its attention in every step (left), and its five answers (right). The slider chooses one of six typical
# rows.*
#
# ## 8 The published table
#
# Table 3 of the paper compares three systems on the dev sets of GLUE. BERT is fine-tuned for each task. ST-DNN trains each task
# alone with MT-DNN's heads. MT-DNN is one model for all tasks, without fine-tuning for each. The
# columns *ours* are MiniLM on our mini sets, with one seed (`mmlkit reproduce mtdnn-dev`).

# %%
TASKS = ["MNLI-m", "QQP", "MRPC", "RTE", "QNLI", "SST-2", "CoLA", "STS-B"]
table3 = paper[paper["table"] == "Table 3"].drop_duplicates(["row", "column"])
table3 = table3.pivot(index="column", columns="row", values="printed").loc[TASKS]
table3 = table3[["BERT-base", "ST-DNN", "MT-DNN"]].rename(columns={"BERT-base": "BERT"})
ours = recorded("mtdnn-dev")
if len(ours):
    keys = dict(zip(["mnli", "qqp", "mrpc", "rte", "qnli", "sst2", "cola", "stsb"], TASKS))
    ours = ours.assign(on=ours["on"].map(keys)).pivot_table("value", "on", "system")
    majority = pd.Series(0.0, TASKS)  # the correlations of a constant prediction are 0
    for name in [*keys][:6]:
        of_labels = np.bincount(load_task(name, "mini").dev.labels)
        majority[keys[name]] = 100 * of_labels.max() / of_labels.sum()
    table3 = table3.join(ours.assign(guessing=majority).add_prefix("ours: "))
table3.round(1).astype(object).fillna("").rename_axis(None).rename_axis(None, axis=1)

# %% [markdown]
# The paper prints no ST-DNN score for SST-2, CoLA and STS-B. The table has one run per cell and no spread. For tasks whose score is
# an accuracy, the number of dev rows gives a standard error of the difference between two systems.
#
# **Predict before you run.** On which of the six tasks with accuracy is MT-DNN ahead of BERT by more than two such errors?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
on = TASKS[:6]
n = examples["dev"].rename({"MNLI": "MNLI-m"})[on].replace({20000: 10000})  # the matched half
bert, st, mt = (table3.loc[on, system] for system in ("BERT", "ST-DNN", "MT-DNN"))
gains = pd.DataFrame({"dev rows": n, "ST-DNN over BERT": st - bert, "MT-DNN over ST-DNN": mt - st})
gains["MT-DNN over BERT"] = mt - bert
gains["standard error"] = np.sqrt(2 * bert * (100 - bert) / n)
clear = gains[gains["MT-DNN over BERT"] > 2 * gains["standard error"]]["MT-DNN over BERT"]
print("Answer:", f"{', '.join(f'{task} {gain:+.1f}' for task, gain in clear.items())}.")

# %%
gains.round(1).astype(object).fillna("")

# %% [markdown]
# The error treats the systems as independent, so on the same rows this test is cautious.
#
# - RTE gains most, and only with joint training. The answer module alone changes RTE by −0.4, a tenth of a standard error.
# - QNLI gains mostly with ST-DNN. But ST-DNN *ranks* the candidates, and BERT classifies each one. A ranker knows that exactly one is
#   right. This form ended with QNLI v1 in 2019 (slides).
# - The gains that should justify the answer module are those of ST-DNN over BERT on MNLI, QQP and MRPC. They are 0.2 to 2.1 points,
#   and only the 0.6 on QQP exceeds two standard errors.
#
# **Ours.** With few rows st-dnn is near guessing on MNLI, RTE, MRPC and QNLI, and bert on RTE. Learned together, all four are above
# guessing. On the last three tasks bert and st-dnn are the same model. The untrained cosine has 79.8 on STS-B ([notebook
# 02](02_finetuning.ipynb)), 78.6 on QQP and 69.5 on QNLI ([notebook 05](05_cross_dataset.ipynb)). Only the fine-tuned MT-DNN reaches it on
# STS-B and QNLI, and no system on QQP.
#
# ## Exercises
#
# ### Exercise 1: moved attention
#
# ● ○ ○ · 10 minutes
#
# Section 7 measures how far the attention has moved. Write this measure for one row: `beta [K,T]` holds the weights of every step.


# %%
def my_moved(beta):
    """Return, for each step, half the summed absolute change of the weights since step 0: [K]."""
    ...


_ = checks.check_attention_moved(my_moved)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `beta[0]` has the shape [T], and `beta - beta[0]` subtracts it from every row. Sum over the tokens, the last axis.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return (beta - beta[0]).abs().sum(-1) / 2
# ```
#
# The half makes it a share: what one token gains, another one loses.
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
# ### Exercise 4: the error of a paired difference
#
# ● ● ○ · 15 minutes
#
# Section 6 compares runs with the same seed. Compute the mean difference *together minus alone* and its standard error. Then apply
# your function to the columns `alone` and `together` of `runs.loc["rte"]`.


# %%
def my_difference(alone, together):
    """Return the mean difference and its standard error; both arguments have shape [n]."""
    ...


_ = checks.check_paired_difference(my_difference)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the differences first. Their standard deviation divides by $n - 1$; the standard error divides that by $\sqrt n$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# difference = together - alone
# return difference.mean(), difference.std() / len(difference) ** 0.5
# ```
#
# `.std()` of torch and of pandas divides by $n - 1$; that of numpy divides by $n$ unless `ddof=1`. For RTE the results are about
# 7.0 and 0.8 points.
#
# </details>
#
# ## If it goes wrong
#
# - *"task ... has single texts, but its SANHead needs pairs"*: the answer module needs a premise and a hypothesis. Give such a
#   task a `LinearHead`.
# - *"The module has NOT LEARNED its task"* in section 7: a few steps at a high learning rate leave the loss at $\ln 3 = 1.099$. Use more
#   rows or more epochs.
# - *One task does not learn while the others do*: look at its share of the steps. A small task is rarely seen with merged
#   minibatches.
#
# ## Takeaways
#
# - MT-DNN is one shared encoder with a small head for each kind of task. The answer module attends to the premise $K$ times and
#   averages $K$ answers.
# - On the mini SNLI a trained answer module beats guessing clearly. Whether the mean of its five answers is better than a single one
#   differs between runs. On real sets, no gain over a linear head can be told.
# - Merged minibatches weigh tasks by their size. A head that is not in a step must have *no* gradient, which differs from a zero
#   gradient.
# - In six recorded seeds RTE gains 7 points from joint training, and STS-B loses 0.6. More than half of RTE's gain comes
#   with as many updates on RTE alone.
# - With few rows, the packed similarity and ranking heads must be compared with the cosine of the untrained encoder.
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
