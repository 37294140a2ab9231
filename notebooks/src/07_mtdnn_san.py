# %% [markdown]
# # 07 One encoder, many tasks
#
# MT-DNN changes two things about fine-tuned BERT: all tasks share one encoder, and pairs of texts get a larger output layer, the answer module.
# **Does sharing an encoder help a task, and does the answer module help?** Part A rebuilds the answer module and asks what it adds. Part B
# writes joint training as a loop, and compares it with training each task alone.
#
# | | |
# |---|---|
# | time | 2 hours to read and solve (estimated) · fast: 3 min on two CPU cores |
# | larger profiles | colab: about 30 min on one GPU (estimated) · paper: many hours on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [02 Fine-tuning](02_finetuning.ipynb) |
# | papers | Liu et al. 2019 (MT-DNN, its first arXiv version), section 3, Algorithm 1, Table 3 · Liu et al. 2018 (SAN) |

# %% [markdown]
# ## You will be able to
#
# - write a step of the answer module, and say what a trained one looks at,
# - say how Algorithm 1 treats a small task,
# - split the gain of joint training into more updates and other tasks.
#
# ![Above: a shared encoder with four outputs. Below, the answer module: the hypothesis gives the first state; each state attends to the
# premise and gives an answer, and a GRU makes the next state. The answers are averaged.](images/07_mtdnn.svg)

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
# | one text | $\mathrm{softmax}(W^\top c)$ (1) | cross-entropy (6) | SST-2: is a film review positive? |
# | similarity of two texts | $g(w^\top c)$, $g$ a sigmoid (2) | squared error (7) | STS-B: a score from 0 to 5 (labels divided by 5) |
# | relation of two texts | the answer module (3, 4) | cross-entropy (6) | SNLI: does one sentence follow from the other? |
# | ranking | $g(w^\top c)$ for each candidate (5) | $-\log$ softmax over candidates (8, 9) | QNLI: which sentence answers the question? |
#
# Two texts are *packed* into one input, and $c$ is one vector of this input: that of [CLS] in the paper, and on the fast profile the mean over
# tokens, because MiniLM was trained with that mean. MiniLM, the encoder of all runs here, was also trained on pairs of SNLI, MultiNLI, Quora and SQuAD.
# So SNLI, QNLI (with SQuAD's texts) and RTE (inference, too) are less new to it than to BERT. SNLI replaces the paper's MNLI, because its texts are shorter. The ranking is the subject of
# [notebook 08](08_ranking_pretraining.ipynb).
#
# The folded cell has `new_model(names)`, a copy of the pretrained encoder with a fresh head for each task.

# %% tags=["setup"]
import copy

from mmlkit.bert import load_pretrained
from mmlkit.data import collate, encode, load_task
from mmlkit.heads import LinearHead, RankingHead, SANHead, kept_steps, rank_queries
from mmlkit.training import MultitaskModel

tasks = {name: load_task(name, source) for name in ("sst2", "stsb", "snli")}
tasks["qnli_rank"] = rank_queries(load_task("qnli", source))  # a question becomes one query
pretrained, tokenizer = load_pretrained(size.model)
D = pretrained.config.hidden_size


# %% tags=["setup"]
def new_head(task, num_steps):
    """What MT-DNN puts on top of the encoder for this kind of task."""
    if task.kind == "ranking":
        return RankingHead(D, pooling=size.pooling)
    if task.kind == "regression":
        return LinearHead(D, 1, pooling=size.pooling, activation="sigmoid")
    if task.is_pair:
        return SANHead(D, 3, num_steps=num_steps)
    return LinearHead(D, task.num_labels, pooling=size.pooling)


def new_model(names, num_steps=5):
    """A copy of the pretrained encoder and a fresh head for each task; K = num_steps."""
    with seeded(seed, device):
        heads = {name: new_head(tasks[name].task, num_steps) for name in names}
    return MultitaskModel(copy.deepcopy(pretrained), heads, tokenizer).to(device).eval()


# %%
rows = {}
for name, head in new_model(tasks).heads.items():
    own = sum(weights.numel() for weights in head.parameters())
    rows[name] = type(head).__name__, f"{own:,}", f"{len(tasks[name].train):,}"
pd.DataFrame(rows, index=["head", "parameters of its own", "training rows"]).T.rename_axis("task")

# %% [markdown]
# Three of the heads are a single linear layer. The answer module, the *stochastic answer network* (SAN) of 2018, has about a tenth as many
# parameters as all layers of MiniLM.

# %% [markdown]
# ## 2 What the paper reports
#
# Table 3 of the paper compares three systems on the dev sets of GLUE, with one run per cell. ST-DNN trains each task alone with MT-DNN's heads,
# so its gain over BERT is that of the heads. MT-DNN is one model for all tasks, so its gain over ST-DNN is that of sharing. The
# standard error of a difference follows from the number of dev rows alone; it leaves out the seeds.
#
# **Predict before you run.** On which of the six tasks with accuracy is MT-DNN ahead of BERT by more than two such errors?

# %% tags=["setup"]
paper = published.tables("mt_dnn")
table1 = paper[(paper["table"] == "Table 1") & (paper["metric"] == "examples")]
examples = table1.pivot(index="row", columns="split", values="printed").rename_axis(None)
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
    print("On", *gains.index[gains["MT-DNN over BERT"] > 2 * gains["standard error"]])
    display(gains.rename_axis(None).round(1).astype(object).fillna(""))

# %% [markdown]
# <details><summary>What this says about the two questions</summary>
#
# - *Sharing.* RTE gains most, and only with joint training. The heads alone change it by −0.4, with a standard error of 4.1.
# - *The answer module* is the head of MNLI, QQP, MRPC and RTE. ST-DNN's gain exceeds two standard errors only on QQP, with 0.6.
# - QNLI gains mostly with ST-DNN, which *ranks* the candidates.
#
# </details>

# %% [markdown]
# # Part A: does the answer module help?
#
# ## 3 Five words
#
# *Premise*: a cat sleeps here. *Hypothesis*: an animal rests. Does the second follow from the first? Each word gets two numbers, one for the
# *animal* and one for the *activity*:
#
# | | cat | sleeps | here | | animal | rests |
# |---|---|---|---|---|---|---|
# | animal | 2 | 0 | 0 | | 1 | 0 |
# | activity | 0 | 2 | 0 | | 0 | 1 |
#
# We write $M^p_j$ and $M^h_j$ for the vectors of word $j$ of premise and hypothesis. The module keeps a *state* $s$. The first state is a
# summary of the hypothesis, $s_0 = \sum_j \alpha_j M^h_j$ with $\alpha = \mathrm{softmax}_j(w_1 \cdot M^h_j)$. Take $w_1 = (\ln 3, 0)$. Then *animal* weighs three times as much as *rests*, and
# $s_0 = (\tfrac34, \tfrac14)$.
#
# The weight $\beta_j$ of a word of the premise is proportional to $\exp(M^p_j \cdot W_2 s_0)$. Take $W_2 = \ln 4$ times the
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

# %% [markdown]
# Next the state changes: $s_1 = \mathrm{GRU}(x_0, s_0)$. A GRU mixes the old state with a new part, and its gates set the share of each. In this
# toy both gates are half open, and the new part is the $\tanh$ of $x$ with its two numbers *swapped*:
#
# $$s_1 = \tfrac12\, s_0 + \tfrac12 \tanh(x_{0,\text{activity}},\, x_{0,\text{animal}})$$
#
# At each step a classifier reads four vectors, $[s_k; x_k; |s_k - x_k|; s_k \cdot x_k]$. The last one is the elementwise product. In this toy,
# agreement $s \cdot x$ counts for *follows*, and distance $|s - x|$ counts for *does not follow*.

# %%
exact = dict(dtype=torch.float64)
toy_p, toy_h = torch.tensor([[2, 0], [0, 2], [0, 0]], **exact), torch.eye(2, **exact)
toy_s = (toy_h @ torch.tensor([np.log(3), 0], **exact)).softmax(0) @ toy_h
toy_W_3 = torch.zeros(2, 8, **exact)
toy_W_3[0, 6:], toy_W_3[1, 4:6] = 1, 1  # follows: s·x; does not follow: |s - x|


# %%
def toy(K, base=4):
    """The weights beta [K,3] and the answers P [K,2] of K steps on the five words."""
    s, betas, P = toy_s, [], []
    for _ in range(K):
        beta = (toy_p @ (np.log(base) * s)).softmax(0)
        x = beta @ toy_p
        P.append((toy_W_3 @ torch.cat([s, x, (s - x).abs(), s * x])).softmax(0))
        betas.append(beta)
        s = 0.5 * s + 0.5 * torch.tanh(x.flip(0))  # for the next step
    return torch.stack(betas), torch.stack(P)


# %% [markdown]
# **Predict before you run.** After step 0 has read mostly *cat*, which word gets the most attention in step 1? And does the module decide for
# *follows*?

# %% tags=["answer"]
words, answers_of_toy = ["cat", "sleeps", "here"], ["follows", "does not"]
with folded("Answer"):
    print("The new state is about (0.55, 0.57), so step 1 prefers 'sleeps' to 'cat' by 0.03.")
    print("Step 2 is nearly even. All steps favour 'follows', and so does their mean.")
    plots.reasoning(toy(3)[0], words, toy(3)[1], answers_of_toy, values=True)
    plt.show()

# %% [markdown]
# So the module attends, changes its state, and attends again. We chose the weights by hand so that step 1 prefers
# another word, by a little. Section 6 tests whether a *trained* module does so.

# %% [markdown]
# ### Prediction dropout
#
# In training some answers are dropped before the mean, so that the model does not rely on one step. One random step
# always stays, and each other one stays with probability $1 - p$. The grey band is the mean ± one standard deviation of the answer
# for *follows*, over 4,000 random choices of kept steps. The slider's *base* is the 4 of $W_2 = \ln 4$.
#
# **Predict before you run.** At $p = 0.5$, is the band wider for $K = 2$ or $K = 5$? Which base makes the module read *sleeps* most in step 1?


# %% tags=["setup"]
def draw(K, p, base):
    betas, P = toy(K, base)
    with seeded(seed):
        kept = kept_steps(4000, K, p).double()
    mean = kept @ P[:, 0] / kept.sum(1)  # of the kept answers, 4,000 times
    left, right = plots.reasoning(betas, words, P, answers_of_toy, values=True)
    told = f"answer for 'follows' in training: {mean.mean():.3f} ± {mean.std():.3f}"
    left.figure.suptitle(f"K = {K}, p = {p}, base {base}; {told}", fontsize=11)
    left.images[0].set_clim(0, 1)
    left.set(ylim=(4.5, -0.5), facecolor="0.92")  # grey: steps that this K does not have
    right.axhspan(mean.mean() - mean.std(), mean.mean() + mean.std(), color="grey", alpha=0.3)
    right.set(xlim=(-0.3, 4.3))


# %%
K, p, base = [1, 2, 3, 4, 5], [0, 0.25, 0.5], [1, 4, 16]
plots.sliders(draw, start={"K": 5, "p": 0.5, "base": 4}, K=K, p=p, base=base)

# %% [markdown]
# <details><summary>Answer</summary>
#
# For $K = 2$ it is ± 0.003, because the two answers are nearly equal, and for $K = 5$ ± 0.023. With base 16, *sleeps* gets 0.700 in step 1, and
# *cat* 0.635 in step 2, so the module reads them in turn.
#
# </details>

# %% [markdown]
# ## 4 The equations
#
# $$s_0 = \sum_j \alpha_j M^h_j,\quad \alpha = \mathrm{softmax}_j(w_1^\top M^h_j) \qquad
# x_k = \sum_j \beta_j M^p_j,\quad \beta = \mathrm{softmax}_j(M^p_j \cdot W_2\, s_k)$$
# $$P_k = \mathrm{softmax}\big(W_3 [s_k; x_k; |s_k - x_k|; s_k \cdot x_k]\big)\quad (3) \qquad s_{k+1} = \mathrm{GRU}(x_k, s_k) \qquad
# P = \frac1K \sum_{k=0}^{K-1} P_k\quad (4)$$
#
# | symbol | name | shape |
# |---|---|---|
# | $T$, $D$, $C$, $K$ | tokens, size of a vector, labels, steps (5 in the paper) | numbers |
# | $M$ | the encoder's vectors of the packed pair: [CLS] premise [SEP] hypothesis [SEP] | `[T,D]` |
# | $M^p$, $M^h$ | the vectors of segment 0 (with [CLS] and the first [SEP]); those of segment 1 | `[T_p,D]`, `[T_h,D]` |
# | $\alpha$, $\beta$ | weights over the hypothesis; over the premise, new in each step | `[T_h]`, `[T_p]` |
# | $s_k$, $x_k$ | the state; the weighted sum over the premise | `[D]` |
# | $w_1$, $W_2$, $W_3$ | layers; the paper prints no biases, the library has them | $D \to 1$, $D \to D$, $4D \to C$ |
#
# ### The GRU
#
# A gated recurrent unit (GRU) updates a state $s$ with an input $x$. With biases left out, $\sigma$ the sigmoid and $\odot$ the elementwise
# product:
#
# $$r = \sigma(W_r x + U_r s) \qquad z = \sigma(W_z x + U_z s) \qquad n = \tanh\big(W_n x + r \odot (U_n s)\big) \qquad
# \mathrm{GRU}(x, s) = (1 - z) \odot n + z \odot s$$
#
# The *update gate* $z$ decides how much of the old state stays, and the *reset gate* $r$ how much of it enters the new part $n$. In the toy all
# six matrices are zero except $W_n$, which swaps the two numbers.
#
# <details><summary>Two misprints of the paper</summary>
#
# | where | printed | the problem | corrected |
# |---|---|---|---|
# | section 3 | $x_k$ is computed from $s_{k-1}$ | $P_0$ needs an $x_0$, which is undefined | from $s_k$, as in the authors' code |
# | Eq. 2 with 7 | a sigmoid between 0 and 1, squared error to a score up to 5 | most scores are out of reach | labels divided by 5 |
#
# </details>

# %% [markdown]
# ## 5 Build it
#
# ### Exercise 1: one step of the answer module
#
# ● ● ○ · 15 minutes
#
# Write a step $k \geq 1$ for one pair: the new state, the weighted sum over the premise, and the answer. `gru(x, s)` is given.


# %%
def my_step(s, x, M, gru, W_2, W_3):
    """s, x [D]: of the step before; M [T,D]; W_2 [D,D]; W_3 [C,4D]. Returns the new s, x and P."""
    ...


step_right = checks.check_answer_step(my_step)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The new state comes first. Attention and answer then read the *new* state and the *new* sum.
#
# </details>
#
# <details><summary>Solution</summary>
#
# It is the folded cell below.
#
# </details>
#
# The notebook uses your step if the check accepts it, and otherwise the folded cell below. We try it on a real pair. The layers
# are those of a library head, with larger random weights.


# %% tags=["solution"]
def solved_step(s, x, M, gru, W_2, W_3):
    s = gru(x, s)
    x = (M @ (W_2 @ s)).softmax(0) @ M
    return s, x, (W_3 @ torch.cat([s, x, (s - x).abs(), s * x])).softmax(0)


step = my_step if step_right else solved_step

# %%
chosen = tasks["snli"].dev.take([0])
pair = collate(encode(tokenizer, chosen, max_length=size.max_length), [0]).to(device)
segment = pair.token_type_ids
with torch.no_grad():
    out = new_model(["snli"]).encoder(pair.input_ids, pair.attention_mask, segment)
M, second = out.last_hidden_state[0].cpu().double(), segment[0].cpu().bool()
premise, hypothesis = M[~second], M[second]
print("M", list(M.shape), *tokenizer.convert_ids_to_tokens(pair.input_ids[0]))

# %%
torch.manual_seed(seed)
san = SANHead(D, 3, num_steps=5).double().eval()
for weights in san.parameters():
    torch.nn.init.normal_(weights, std=0.1 if weights.dim() > 1 else 0)  # biases: 0

# %%
w_1, W_2, W_3, gru = san.summary.weight[0], san.attention.weight, san.dense.weight, san.cell


@torch.no_grad()
def answer_module(premise, hypothesis, K):
    """Eqs. 3 and 4: the answers P [K,C]."""
    s, x, answers = (hypothesis @ w_1).softmax(0) @ hypothesis, None, []  # s_0
    for k in range(K):
        change = gru if k > 0 else lambda x, s: s  # step 0 reads s_0 as it is
        s, x, P = step(s, x, premise, change, W_2, W_3)
        answers.append(P)
    return torch.stack(answers)


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
ours = answer_module(premise, hypothesis, 5).mean(0)
with torch.no_grad():
    library = san(M[None], ~second[None], second[None])[0]
torch.testing.assert_close(library, ours)
print("P", library.numpy().round(4), f" largest difference {(library - ours).abs().max():.0e}")

# %% [markdown]
# ## 6 What does the answer module add?
#
# Its later steps can help only if they read something new. We train the module on all 1,440 rows of the mini SNLI, in one short run.

# %% tags=["setup"]
from dataclasses import replace

from mmlkit.training import fit

snli = tasks["snli"]
if profile != "fast":
    snli = replace(snli, train=snli.train.take(range(20_000)), dev=snli.dev.take(range(1_000)))
rates = dict(lr=1.5e-4, head_lr=1.5e-3) if profile == "fast" else dict(lr=5e-5, head_lr=5e-5)
pace = dict(epochs=epochs, batch_size=32, max_length=size.max_length, seed=seed)
pace["precision"] = size.precision


# %%
def train(model, name):
    """Train a model on SNLI; returns its best dev accuracy."""
    kept = size.checkpoints(output_dir, f"07-{name}")  # for a run after a disconnect
    history = fit(model, {"snli": snli}, **rates, **pace, **kept)
    return history.loc[history["best"], "accuracy"].item()


# %%
trained = new_model(["snli"])
accuracy = train(trained, "san")
majority = np.bincount(snli.dev.labels).max() / len(snli.dev)
print(f"dev accuracy {accuracy:.3f}; the majority class reaches {majority:.3f}")

# %%
every = range(len(snli.dev))
dev = collate(encode(tokenizer, snli.dev, max_length=size.max_length), every).to(device)


@torch.no_grad()
def look_inside(model):
    """The weights beta [B,K,T], the answers P_k [B,K,C] and the mask [B,T] on the dev rows."""
    out = model.eval().encoder(dev.input_ids, dev.attention_mask, dev.token_type_ids)
    inputs = model.head(snli.task).inputs(out, dev)
    found = model.head(snli.task).steps(*inputs)
    return found.premise_weights.cpu(), found.probabilities.cpu(), inputs[1].cpu()


# %%
betas, answers, of_premise = look_inside(trained)
untrained = look_inside(new_model(["snli"]))[0]  # the same module before any training


def moved_since_0(betas):
    """The weight that goes to other tokens than in step 0, between 0 and 1 [B,K]."""
    return (betas - betas[:, :1]).abs().sum(-1) / 2


def effective(betas):
    """exp(entropy): as many tokens with equal weights would be as spread out [B,K]."""
    return torch.special.entr(betas).sum(-1).exp()


# %% [markdown]
# **Predict before you run.** From step 0 to step 4, does the trained module move more of its attention to other tokens than the untrained one? And
# are its later answers more accurate than its first?

# %% tags=["setup"]
from mmlcourse.studies import group_error, paired_bootstrap

ids, both = dev.input_ids.cpu(), {"trained": betas, "untrained": untrained}
dot = tokenizer.convert_tokens_to_ids(".")
marks = torch.isin(ids, torch.tensor([dot, tokenizer.cls_token_id, tokenizer.sep_token_id]))
on_marks = lambda betas: (betas * marks[:, None]).sum(-1)  # [B,K]
measures = {"moved": moved_since_0, "effective tokens": effective, "on . [CLS] [SEP]": on_marks}
means = {(name, of): f(one).mean(0) for name, f in measures.items() for of, one in both.items()}
of_steps = pd.DataFrame({name: one.double().numpy() for name, one in means.items()})
hit = (answers.argmax(-1) == dev.labels.cpu()[:, None]).double()
of_steps.insert(0, ("accuracy", "trained"), hit.mean(0).numpy())
groups = snli.dev.columns.get("group", np.arange(len(snli.dev)))
given = np.array(snli.task.labels)[answers.mean(1).argmax(-1)]
of_rows = pd.DataFrame({name: f(betas)[:, -1].double() for name, f in measures.items()})
later = (hit[:, -1] - hit[:, 0]).numpy()  # correct in the last step minus in the first

# %% tags=["answer"]
with folded("Answer"):
    gap = (moved_since_0(betas) - moved_since_0(untrained))[:, -1].numpy()  # paired, row by row
    print("Yes:" if gap.mean() > 0 else "No:", f"moved {gap.mean():+.3f} ±", end=" ")
    print(f"{group_error(gap, groups):.3f}, trained minus untrained")
    more = (hit.mean(0)[1:] > hit.mean(0)[0]).sum().item() or "No"
    print(f"{more} later steps are more accurate than the first. Last minus first:", end=" ")
    print(f"{later.mean():+.3f} ± {group_error(later, groups):.3f}")
    with plots.common.panel(size=(5, 2.6), xlabel="step k", ylabel="weight moved") as ax:
        of_steps["moved"].plot(ax=ax, style=["o-", "s--"])
    plt.show()
    display(of_rows.groupby(given).mean().round(2).rename_axis("trained, step 4, by answer"))
with folded("All steps"):
    print(f"accuracy of the mean of the five answers: {accuracy:.3f}")
    display(of_steps.round(3).rename_axis("step k"))

# %% [markdown]
# <details><summary>What this says</summary>
#
# Movement alone is no sign of reasoning: the untrained attention moves because it flattens, to 16.8 of 18 tokens. The trained one has two forms.
# Where the module answers *entailment*, nearly all of it lies on the full stop, [CLS] and [SEP], and elsewhere it is nearly equal on all
# tokens. So the mean over all rows, less than half, describes hardly any row. No later step, and not the mean of all five, is more accurate than the
# first.
#
# </details>
#
# The next figure has two typical rows for each answer of the module. Look for one in which a later step prefers another token.

# %% tags=["setup"]
assert not size.effects or accuracy > majority + 0.1, "not learned: its attention is noise"
near = (of_rows - of_rows.groupby(given).transform("mean")) / of_rows.std()
near = near.pow(2).sum(axis=1).groupby(given).nsmallest(2)
typical = near.index.get_level_values(-1).tolist()


def draw_row(row):
    here, texts = of_premise[row], snli.dev[row]
    names = tokenizer.convert_ids_to_tokens(ids[row][here])
    axes = plots.reasoning(betas[row][:, here], names, answers[row], snli.task.labels)
    most = betas[row][:, here].argmax(-1)
    axes[0].plot(most, range(len(most)), "o", color="white", markeredgecolor="black")
    told = f"hypothesis: {texts['hypothesis']} (right: {texts['label']}; answer: {given[row]})"
    axes[0].figure.suptitle(told, fontsize=10)


# %%
plots.sliders(draw_row, start={"row": typical[2]}, row=sorted(typical))

# %% [markdown]
# *A dot marks the largest weight of a step. Each row has a colour scale of its own. The title has the right label and the module's answer.*

# %% tags=["answer"]
with folded("Answer"):
    for row in sorted(typical):
        (weight, then), leading = betas[row, [0, -1]].max(-1)
        first, last = tokenizer.convert_ids_to_tokens(ids[row][leading])
        print(f"row {row}: {first!r} in step 0 ({weight:.2f}), {last!r} in step 4 ({then:.2f})")
    print("In the stored run, another token leads only where all weights are nearly equal.")

# %% [markdown]
# ### The recorded answer
#
# The mini data are too few to compare heads, so this is recorded on real sets (the study `real-answer` of
# `results/REPORT.md`): RTE and SciTail (inference) and MRPC (paraphrases), each alone for three epochs, with six seeds. For both heads, a
# part of the scored dev rows also chose the epoch.
#
# **Predict before you run.** By how many points is the answer module better or worse than a linear head?

# %% tags=["setup"]
from mmlcourse.batch import recorded_scores


def forest_of(pairs, title):
    """Draw first minus second, {name: (scores by seed, scores by seed)}, with 95 % intervals."""
    rows = [(title, name, paired_bootstrap(*both), 1.0) for name, both in pairs.items()]
    plots.forest(rows, title="mean over six seeds and its 95 % interval")
    plt.show()


def by_seed(study, system):
    """{set: scores by seed} of one system of a recorded study."""
    scores = recorded_scores(study).query(f"{system[0]} == '{system[1]}'")
    return {on: one.set_index("seed")["value"] for on, one in scores.groupby("on")}


# %% tags=["answer"]
with folded("Answer"):
    linear, module = (by_seed("real-answer", ("answer", one)) for one in ("linear", "san"))
    names = {"average": "mean of the three", "rte": "RTE", "mrpc": "MRPC", "scitail": "SciTail"}
    pairs_of = {label: (module[on], linear[on]) for on, label in names.items()}
    forest_of(pairs_of, "answer module minus linear head")
    print("We see no gain: the interval of the mean includes zero.")

# %% [markdown]
# ---
#
# *Unfold the answer first.*
#
# **The answer to part A.** We see no gain of the answer module over a linear head: in the mean −0.7 points (−1.7 to +0.4). RTE
# says little here, because its means are within 4 points of the majority class.
#
# # Part B: does sharing the encoder help?
#
# ## 7 Algorithm 1
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
optimizer = make_optimizer(model, "adamax", lr=2e-4, head_lr=2e-3)  # the paper's, at larger rates
for task, loss in algorithm_1(model, few, optimizer, epochs=2, batch_size=16):
    print(f"{task} {loss:.2f}", end="  ")

# %% [markdown]
# SNLI has twice as many minibatches as SST-2, so it gets two of three steps.
#
# In the library, `fit` does this with `TaskSampler("merged", ...)`. The size of a task sets its number of steps.
#
# **Predict before you run.** GLUE, a public collection of nine tasks, has about 950,000 training rows, and RTE about 2,500 of them. All tasks have
# minibatches of 32. What is RTE's share of the steps?

# %% tags=["setup"]
steps = np.ceil(examples["train"].drop(["SNLI", "SciTail"]) / 32)  # those of GLUE
share = (100 * steps / steps.sum()).sort_values(ascending=False)

# %% tags=["answer"]
with folded("Answer"):
    print(f"{share['RTE']:.2f} %, one step in {steps.sum() / steps['RTE']:.0f}.")
    print(f"MNLI and QQP take {share['MNLI'] + share['QQP']:.0f} % of all steps.")
    display(share.round(2).rename("share of the steps, %").to_frame().T)

# %% [markdown]
# Trained alone for as many epochs, RTE would make just as many steps with its own loss. So any gain must come from the other tasks'
# updates, *or simply from more updates of the encoder*. Section 8 separates the two.
#
# ### What a step leaves untouched
#
# A minibatch of SST-2 gives no gradient to the head of SNLI, but its optimizer state still holds momentum. We make one more step of SST-2.

# %%
before = {key: value.clone() for key, value in model.state_dict().items()}
[*algorithm_1(model, {"sst2": few["sst2"].take(range(16))}, optimizer, 1, batch_size=16)]
changed = {key: not torch.equal(one, before[key]) for key, one in model.state_dict().items()}

# %% [markdown]
# **Predict before you run.** How many of the ten tensors of the answer module change? How many of the encoder's 103 stay the same?

# %% tags=["answer"]
part = [key.split(".")[1] if key.startswith("heads") else "encoder" for key in changed]
with folded("Answer"):
    count = pd.Series([*changed.values()]).groupby(part).agg(tensors="count", changed="sum")
    print(f"{count.changed['snli']} of {count.tensors['snli']} in the answer module change.")
    print(f"{(count.tensors - count.changed)['encoder']} of the encoder stay the same:", end=" ")
    print("those of the pooler, which heads with mean pooling do not use.")

# %% [markdown]
# The head of SNLI stays still only because `zero_grad` sets gradients to None. Exercise 2 tries zero gradients.
#
# ## 8 The answer: together or alone, with six seeds
#
# This comparison is recorded (`mmlkit reproduce together-or-alone`). The data are RTE (about 2,000 rows), MRPC, STS-B and CoLA (grammar)
# from GLUE, and 4,000 rows of SST-2. Every seed has one encoder *together*, trained by Algorithm 1, and five *alone*, all
# for three epochs with the same heads. Two facts matter:
#
# - *Alone* keeps the best epoch of each set, *together* one epoch for all five. This favours *alone*.
# - STS-B's training file holds 48 of MRPC's 408 dev pairs, which only the joint model sees. So a gain on MRPC would not be clean.
#
# **Predict before you run.** Which of the five tasks gains most from joint training? Does any lose?

# %% tags=["answer"]
with folded("Answer"):
    alone, together = (by_seed("together-or-alone", ("system", s)) for s in ("alone", "together"))
    names = {"average": "mean of the five", "rte": "RTE", "mrpc": "MRPC"}
    names |= {"stsb": "STS-B", "cola": "CoLA", "sst2": "SST-2"}
    pairs_of = {label: (together[on], alone[on]) for on, label in names.items()}
    forest_of(pairs_of, "together minus alone")
    lost = (alone["stsb"] - together["stsb"]).mean()
    print(f"RTE, by {(together['rte'] - alone['rte']).mean():.0f} points. STS-B loses {lost:.1f}.")
    print("Points: percent of accuracy, of Matthews' correlation (CoLA), of Pearson's r (STS-B).")

# %% [markdown]
# <details><summary>What this says</summary>
#
# RTE is the only task whose gain is clear, and it explains the gain of the mean: a fifth of 7 points is 1.4. STS-B loses 0.6 points, in
# every seed, but less than one. The other three intervals include zero.
#
# </details>
#
# ### The control: as many updates
#
# In a joint run the encoder gets 2,184 updates, and with RTE alone 189. The control (the study `real-company`) is RTE alone for 35 epochs, 2,205
# updates. It keeps the best of 35 epochs on these dev rows, which favours it.
#
# **Predict before you run.** How much of RTE's gain does the control reach with updates alone: a third, two thirds, or all?

# %% tags=["setup"]
control = by_seed("real-company", ("system", "alone-longer"))["rte"]
three = {"alone,\n189 updates": alone["rte"], "alone,\n2,205 updates": control}
three = pd.DataFrame(three | {"together,\n2,184 updates": together["rte"]})


def draw_control():
    with plots.common.panel(size=(6.8, 3.6), ylabel="dev accuracy on RTE, %") as ax:
        ax.plot(three.T, "o-", color="0.6", markersize=4, label=["one seed", *5 * "_"])
        ax.plot(three.mean(), "D-", color=plots.common.COLOURS[1], markersize=8, label="mean")
        ax.axhline(52.7, **plots.common.DOTTED, label="majority class, 52.7")
        ax.legend(**plots.common.OUTSIDE)
    plt.show()


# %% tags=["answer"]
with folded("Answer"):
    print("About two thirds.")
    parts = {"more updates": (control, alone["rte"]), "other tasks": (together["rte"], control)}
    for name, pair_of in parts.items():
        found = paired_bootstrap(*pair_of)
        print(f"{name}: {found.difference:+.1f} points ({found.low:+.1f} to {found.high:+.1f})")
    apart = map("{:+.1f}".format, sorted(together["rte"] - control))
    print("other tasks, seed by seed:", *apart)
    draw_control()

# %% [markdown]
# ---
#
# *Unfold the answer first.*
#
# **The answer.** Sharing the encoder gives the small inference task RTE 7 points, and no other of the five tasks gains clearly. But RTE alone,
# which is near its majority class after three epochs, gains 4.8 points from as many updates. The other tasks add 2.3, which
# is at the edge of what six seeds can show: two of the six differences are below 0.5, one of them negative. The control repeats RTE's rows 35
# times. Updates on new rows might give more, so 2.3 is not a pure effect of the other tasks.
#
# At the last epoch, which nobody chose, the gain is 8.4 points, and the part of the other tasks 3.8.
#
# ## Exercises

# %% [markdown]
# ### Exercise 2: zero is not None
#
# ● ● ○ · 15 minutes
#
# Take a new model and optimizer as in section 7, and make a step with 16 rows of SNLI, then one with 16 rows of SST-2. Call
# `optimizer.zero_grad(set_to_none)` before each `backward`. *Predict first*: with `set_to_none=False`, how many of the ten tensors of SNLI's
# head does the second step change: 0, 5, or 10?


# %%
def changed_by_sst2(set_to_none):
    """Return how many tensors of model.heads["snli"] the step of SST-2 changes."""
    ...


found = changed_by_sst2(True), changed_by_sst2(False)
print("not yet" if None in found else f"None: {found[0]}, zero: {found[1]}")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `algorithm_1` has the four lines of a step. Compare copies of the head's parameters with `torch.equal`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# model = new_model(few).train()
# optimizer = make_optimizer(model, "adamax", lr=2e-4, head_lr=2e-3)
# head = model.heads["snli"]
# for task in ("snli", "sst2"):
#     rows = encode(tokenizer, few[task].take(range(16)), max_length=64)
#     before = [one.detach().clone() for one in head.parameters()]
#     loss = model.loss(collate(rows, range(16)).to(device)).total
#     optimizer.zero_grad(set_to_none)
#     loss.backward()
#     optimizer.step()
# return sum(not torch.equal(*both) for both in zip(before, head.parameters()))
# ```
#
# Our run printed 0 for None and 10 for zero. With a zero gradient the optimizer still makes a step, and momentum from the first step moves the head. Where the gradient is None, it skips the tensor.
#
# </details>

# %% [markdown]
# ### Exercise 3: split a gain
#
# ● ● ○ · 10 minutes
#
# Split a gain into *more updates* and *other tasks*, each with the standard error of its paired differences. The arguments are
# lists with a score for each seed.


# %%
def my_parts(alone, longer, together):
    """Return (mean, error) of more updates, and (mean, error) of other tasks."""
    ...


_ = checks.check_gain_parts(my_parts)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `longer` belongs to both differences. The error of a mean over $n$ differences is their standard deviation (`ddof=1`) divided by $\sqrt n$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# alone, longer, together = (np.array(one, float) for one in (alone, longer, together))
# parts = longer - alone, together - longer
# return [(one.mean(), one.std(ddof=1) / len(one) ** 0.5) for one in parts]
# ```
#
# `my_parts(alone["rte"], control, together["rte"])` gives 4.8 ± 0.7 and 2.3 ± 1.0. With six seeds, Student's 95 % interval reaches 2.6 standard
# errors to each side: −0.2 to +4.8. The bootstrap of section 8 gave +0.1 to +4.8. A conclusion that depends on the method needs more seeds.
#
# </details>

# %% [markdown]
# ### Exercise 4: one step instead of five
#
# ● ○ ○ · 10 minutes
#
# Change the experiment of section 6: train an answer module with a single step, $K = 1$, on the same rows. Do you expect its dev accuracy to be
# lower, higher, or within 6 points? (6 is about two standard errors over 480 rows.) Decide first. To see more than one run,
# restart with `seed = 1` and 2.

# %%
one_step = ...  # a model with K = 1

if one_step is not ...:
    print(f"K = 1: {train(one_step, 'one-step'):.3f}, K = 5: {accuracy:.3f}")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `new_model` has an argument for $K$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# one_step = new_model(["snli"], num_steps=1)
# ```
#
# One run: 0.588, and 0.560 with five steps. It cannot show a difference below 6 points.
#
# </details>

# %% [markdown]
# ## If it goes wrong
#
# - *"task ... has single texts, but its SANHead needs pairs"*: give such a task a `LinearHead`.
# - *"not learned: its attention is noise"* in section 6: use more epochs.
#
# ## Takeaways
#
# - Does sharing an encoder help? The small inference task **RTE gains 7 points** (MiniLM, three epochs, six seeds), but 4.8 of them come with as
#   many updates on RTE alone. STS-B loses 0.6, and three other tasks are undecided.
# - Does the answer module help? On three sets it is **undecided**: −0.7 points (−1.7 to +0.4) against a linear head.
# - Algorithm 1 merges and shuffles the minibatches of all tasks, so a task counts by its size. A head that is not in a step must have *no*
#   gradient, which differs from a zero gradient.
# - The answer module attends to the premise $K$ times and averages $K$ answers. In one short run, no later answer was more accurate than
#   the first.
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
