# %% [markdown]
# # 08 Ranking and pre-training
#
# Which of several sentences answers a question? MT-DNN trains a ranking for this, with a loss that comes from a model of 2015. **What makes a
# good ranking: the loss, the architecture, or what the encoder has read before?** You compute the ranking loss by hand and compare it with the
# version that the paper prints. Then you write the model of 2015, measure loss against weights in one table, and pre-train in miniature.
#
# | | |
# |---|---|
# | time | 2 hours to read and solve (estimated) · fast: 4 min on two CPU cores · colab: about 15 min on one GPU (estimated) · paper: about 1 h on one GPU (estimated) |
# | memory | 3 GB |
# | read first | [07 One encoder, many tasks](07_mtdnn_san.ipynb) |
# | papers | Liu et al. 2019 (MT-DNN, its first arXiv version), Eqs. 5, 8, 9 · Liu et al. 2015, as the slides of Baldrati and Berti describe it · Devlin et al. 2019 (BERT), section 3.1 |

# %% [markdown]
# ## You will be able to
#
# - compute the ranking loss of a query by hand and in code,
# - compute the lowest loss that a bounded score allows, and compare the gradients of three versions of the loss,
# - turn a text into letter trigrams, and name the information that is lost,
# - write the loss of masked tokens, and train two encoders with it,
# - judge pre-training on held-out text, against a baseline of token frequencies.
#
# ![Above: a question and three candidate sentences. The encoder reads the question packed with each candidate and gives one score each. A
# softmax over the three scores gives the probability of the answer, and the loss is minus its log. Below: a sentence with one word
# replaced by [MASK]. The encoder gives a vector for each position, and the table of word vectors turns the vector at [MASK] into a
# probability for every word.](images/08_ranking.svg)

# %% tags=["parameters"]
profile = "fast"
seed = 0
output_dir = "../runs"
source = None  # a folder with a subfolder for each task; None: what the profile says
reviews = None  # the number of reviews for pre-training; None: what the profile says
seeds = 3  # repetitions of the model of 2015

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

open_notebook("08", profile, output_dir)

# %% tags=["setup", "effect"]
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.answers import folded
from mmlcourse.lessons.profiles import get_profile
from mmlkit.runtime import pick_device, seeded

size, device = get_profile(profile), pick_device()
source, reviews = source or size.source, reviews or (80 if profile == "fast" else 1500)
print(f"mmlkit {mmlkit.__version__}: {size.model} on {device}, data from {source}")

# %% [markdown]
# ## 1 A question and its candidates
#
# QNLI asks whether a sentence answers a question. As a classification, every pair of question and sentence gets its own *yes* or *no*. As a
# ranking, all sentences of one question form a *query*, and exactly one of them is the answer. `rank_queries` groups the rows into queries.

# %% tags=["effect"]
from mmlkit.data import load_task
from mmlkit.heads import rank_queries

qnli = rank_queries(load_task("qnli", source))
shown = np.flatnonzero(qnli.dev.queries == qnli.dev.queries[0])
print("question:", qnli.dev.texts[shown[0]][0])
for row in shown:
    print("  answer  " if qnli.dev.labels[row] else "  other   ", qnli.dev.texts[row][1])
queries = len(np.unique(qnli.dev.queries))
print(f"{queries} dev queries, {len(qnli.dev) / queries:.2f} candidates on average")

# %% [markdown]
# With $\mathrm{Rel}$ the score of one candidate and $A^+$ the answer, the loss is
#
# $$\Pr(A^+ \mid Q) = \frac{\exp(\gamma\, \mathrm{Rel}(Q, A^+))}{\sum_{A'} \exp(\gamma\, \mathrm{Rel}(Q, A'))} \quad (9) \qquad
# L = -\sum_Q \log \Pr(A^+ \mid Q) \quad (8, \text{ with its log})$$
#
# | symbol | name | shape |
# |---|---|---|
# | $Q$, $A'$ | a query; one of its candidates (the sum runs over all of them) | |
# | $N$, $B$ | candidates of a query, candidates of the whole batch | numbers |
# | $\mathrm{Rel}$ | the score of a candidate | `scores [B]` |
# | $A^+$ | the answer | `relevant [B]`, 1 for the answer |
# | | the number of candidates of each query, in order | `groups`, one number for each query |
# | $\gamma$ | a factor; 1 in the paper | `gamma` |
#
# ### By hand
#
# Three candidates have the scores $\ln 4$, $\ln 2$ and $0$, and $\gamma = 1$. The first one is the answer.
#
# **Predict before you run.** What is the probability of the answer, as a fraction?
#
# <details><summary>Answer</summary>
#
# $\tfrac47$, because the three exponentials are 4, 2 and 1. The loss is $\ln \tfrac74 = 0.5596$.
#
# </details>
#
# ### In code
#
# A batch holds several queries, one after another, and their numbers of candidates differ. So the softmax runs over each group, and never over
# the whole batch. The code takes the mean over the queries, where Eq. 8 has their sum.

# %%
from mmlkit.heads import ranking_loss


def by_hand(scores, relevant, groups, gamma=1.0):
    """Eqs. 8 and 9 with the log, as a mean over the queries of a batch."""
    parts = zip((gamma * scores).split(groups), relevant.split(groups))
    return -torch.stack([part.log_softmax(0)[right == 1].sum() for part, right in parts]).mean()


# %% [markdown]
# **Checkpoint.** The library's loss gives the same number on random scores, with $\gamma = 2$.

# %%
torch.manual_seed(seed)
scores, groups = torch.randn(9), [3, 2, 4]
relevant = torch.tensor([0, 0, 1, 1, 0, 0, 1, 0, 0])
ours, theirs = (one(scores, relevant, groups, gamma=2) for one in (by_hand, ranking_loss))
torch.testing.assert_close(ours, theirs)
print(f"by hand {ours:.6f}, library {theirs:.6f}")

# %% [markdown]
# ## 2 The loss as printed
#
# The printed equations differ from these in two places:
#
# | where | printed | the problem | corrected |
# |---|---|---|---|
# | Eq. 5 with 9 | $\mathrm{Rel}$ is a sigmoid, and "we simply set $\gamma$ to 1" | the loss has a *floor*, a lowest value, far above 0 | no sigmoid in training |
# | Eq. 8 | $-\sum \Pr(A^+ \mid Q)$, without a log | badly ranked queries hardly count | $-\sum \log \Pr$: the text says "negative log likelihood", and the slides print the log |
#
# ### The floor
#
# **Predict before you run.** A question has two candidates. They have the best scores that a sigmoid allows: 1 for the answer, 0 for the other.
# How large is the loss at $\gamma = 1$?
#
# <details><summary>Answer</summary>
#
# $\log(1 + 1/e) = 0.3133$, so even a perfect ranking counts as only 73 % sure. With $N$ candidates the floor is $\log(1 + (N-1)\,
# e^{-\gamma})$: 1.4612 with ten candidates, and 0.00005 with two and $\gamma = 10$.
#
# </details>
#
# ### The pull
#
# A floor alone does no harm, because a constant does not change the gradient. The problem is the size of the gradient. Let $w^\top x$ be the
# score before the sigmoid, and let the *margin* $m$ be the answer's $w^\top x$ minus the other's. A softmax reads only differences of scores,
# so $m$ is enough for a loss without a sigmoid. A sigmoid also depends on where the two scores lie, so we split the margin evenly: the answer
# has $+m/2$ and the other candidate has $-m/2$.
#
# The *pull* is $-dL/dm$, the negative gradient of the loss with respect to the margin. A gradient step increases the margin in proportion to
# it. We compare three losses:
#
# - *corrected*: the scores as they are, with the log,
# - *sigmoid*: Eq. 5's sigmoid first, with the log,
# - *literal*: Eqs. 5, 8 and 9 as printed, so the sigmoid first and no log. The code adds 1, so that this loss is positive; the gradient stays
#   the same.


# %%
def three_losses(m, gamma=1.0):
    """Each loss of a query with two candidates at the margins m."""
    bounded = gamma * ((m / 2).sigmoid() - (-m / 2).sigmoid())
    return {
        "corrected": F.softplus(-gamma * m),
        "sigmoid": F.softplus(-bounded),
        "literal": 1 - bounded.sigmoid(),
    }


# %% [markdown]
# **Predict before you run.** A query is ranked badly, $m = -6$. How many times larger is the pull of the corrected loss than that of the literal
# one?
#
# <details><summary>Answer</summary>
#
# 108 times: 0.9975 against 0.0093. The pull of the loss with the sigmoid and the log is 0.0322.
#
# </details>

# %%
margins = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
losses = three_losses(margins)
pulls = {
    name: -torch.autograd.grad(one.sum(), margins, retain_graph=True)[0]
    for name, one in losses.items()
}
curves = {name: one.detach() for name, one in losses.items()}
floor = np.log(1 + 1 / np.e)
plots.loss_and_pull(margins.detach(), curves, pulls, lines={"floor of the sigmoid": floor})
plt.show()

# %%
at = {-6: 20, 0: 80}
pd.DataFrame(
    {f"pull at m = {m}": {k: one[i].item() for k, one in pulls.items()} for m, i in at.items()}
)

# %% [markdown]
# *At m = −6 the corrected loss has a pull of 0.998 (right). The sigmoid lowers it to 0.032, and the literal paper, which also omits the log, to
# 0.009.*
#
# A badly ranked query should have the strongest pull. With the sigmoid its pull is weak, because both sigmoids are flat there. Without the log
# it is even weaker, because the gradient of the literal loss is that of the log loss times $\Pr(A^+ \mid Q)$.
#
# ### What the pull means for training
#
# Take one query at $m = -6$, and let plain gradient descent with learning rate 1 change $m$ itself.
#
# **Predict before you run.** How many steps does each of the three losses need until the answer is ranked first?


# %% tags=["answer"]
def steps_until_right(name):
    """The number of gradient steps until the margin is positive."""
    m, steps = torch.tensor(-6.0, dtype=torch.float64, requires_grad=True), 0
    while m <= 0:
        m.data += -torch.autograd.grad(three_losses(m)[name], m)[0]
        steps += 1
    return steps


with folded("Answer"):
    print(", ".join(f"{name}: {steps_until_right(name)} steps" for name in losses))

# %% [markdown]
# Adam and Adamax rescale the gradients, so a constant factor matters less to them. But within a batch, a badly ranked query keeps a weaker pull
# than a query near $m = 0$. The *order* of the candidates is the same with and without the sigmoid, since a sigmoid is monotone. So the library
# trains without it; `activation="sigmoid"` is there for a literal Eq. 5.
#
# ### Change gamma and the number of candidates
#
# With the log, a larger $\gamma$ lowers the floor and strengthens the pull near $m = 0$. Does it also help queries that are ranked very badly? Move
# the slider, and look for a $\gamma$ whose pull at $m = -8$ exceeds ½. All $N$ candidates but the answer have the score $-m/2$.


# %%
def draw(gamma, N):
    with torch.enable_grad():
        m = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
        bounded = (m / 2).sigmoid() - (-m / 2).sigmoid()
        gaps = {"no sigmoid, gamma = 1": m, f"sigmoid, gamma = {gamma}": gamma * bounded}
        both = {name: (1 + (N - 1) * (-gap).exp()).log() for name, gap in gaps.items()}
        grad = lambda one: -torch.autograd.grad(one.sum(), m, retain_graph=True)[0]
        slopes = {name: grad(one) for name, one in both.items()}
    both, lowest = {k: v.detach() for k, v in both.items()}, np.log1p((N - 1) * np.exp(-gamma))
    line = {f"floor of the sigmoid, {lowest:.2g}": lowest}
    plots.loss_and_pull(m.detach(), both, slopes, lines=line, top=2.5, title=f"N = {N}")


plots.sliders(draw, start={"gamma": 10, "N": 2}, gamma=[1, 2, 3, 5, 10], N=[2, 3, 5, 10])

# %% [markdown]
# *With γ = 10 and two candidates the floor falls to 0.000045, on the axis, and the pull at small negative margins exceeds that of the plain loss.
# But at m = −8 it is 0.18, and no γ of the slider brings it above ½, because both sigmoids are flat there.*
#
# ## 3 The three losses on real questions
#
# Now each of the three losses trains a ranking.
#
# A candidate's score is a linear layer $w$ on the products of MiniLM's two vectors, number by number. The sum of the products is the cosine.
# Here they are standardised first. Only $w$ is trained, on 200 questions, with 200 steps of gradient descent. It starts at zero, or at large
# random weights, chosen so that many questions are ranked badly at first.

# %% tags=["effect"]
from mmlkit.bert import load_pretrained
from mmlkit.heads import sentence_vector
from mmlkit.training import metrics

pretrained, tokenizer = load_pretrained(size.model)
pretrained = pretrained.to(device).eval()


# %% tags=["effect"]
@torch.no_grad()
def vectors(texts, encoder):
    """The encoder's mean vector of each text, with length 1: [N,D]."""
    rows = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(device)
    out = encoder(rows.input_ids, rows.attention_mask, rows.token_type_ids)
    return F.normalize(sentence_vector(out, rows, "mean"), dim=-1).cpu().double()


# %% tags=["effect"]
def first_queries(split, n, encoder=pretrained):
    """The rows of the first n queries of a split, and the products of their two vectors [N,D]."""
    rows = split.take(np.flatnonzero(np.isin(split.queries, np.unique(split.queries)[:n])))
    question, candidate = (vectors(column, encoder) for column in zip(*rows.texts))
    return rows, question * candidate


def accuracy_at_1(rows, scores):
    """The share of queries whose answer has the highest score."""
    return metrics.compute(rows.task, scores.numpy(), rows.labels, rows.queries)["accuracy@1"]


(known, x), (tests, x_dev) = first_queries(qnli.train, 200), first_queries(qnli.dev, 500)
cosine = accuracy_at_1(tests, x_dev.sum(1))
print(f"MiniLM's cosine, without training: accuracy@1 {cosine:.3f} on {len(x_dev)} candidates")

# %% tags=["effect"]
query = torch.as_tensor(np.unique(known.queries, return_inverse=True)[1])
is_answer = torch.as_tensor(known.labels) == 1


def of_answer(scores):
    """Pr(A+ | Q) of every question, from the scores [N] of all candidates."""
    total = torch.zeros(int(query.max()) + 1, dtype=scores.dtype)
    return scores[is_answer].exp() / total.index_add(0, query, scores.exp())[query[is_answer]]


versions = {
    "corrected": lambda scores: -of_answer(scores).log().mean(),
    "sigmoid": lambda scores: -of_answer(scores.sigmoid()).log().mean(),
    "literal": lambda scores: -of_answer(scores.sigmoid()).mean(),
}


# %% tags=["effect"]
def standardised(x, x_dev):
    """Both matrices in standard units of the training rows; constant columns are left out."""
    center, width = x.mean(0), x.std(0)
    return [((one - center) / width)[:, width > 0] for one in (x, x_dev)]


# %% tags=["effect"]
def learn(version, start, x, x_dev):
    """The accuracy@1 on training and dev questions after 200 steps from some weights."""
    w = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        version(x @ w).backward()
        optimizer.step()
    return [accuracy_at_1(*one) for one in ((known, x @ w.detach()), (tests, x_dev @ w.detach()))]


# %% [markdown]
# **Predict before you run.** From the large random weights, do the three losses rank equally many training questions correctly?

# %% tags=["effect"]
x, x_dev = standardised(x, x_dev)
wild = 0.3 * torch.randn(x.shape[1], generator=torch.Generator().manual_seed(seed)).double()
starts = {"zero": 0 * wild, "random": wild}
found = [
    (name, start, *learn(version, w, x, x_dev))
    for name, version in versions.items()
    for start, w in starts.items()
]
trained = pd.DataFrame(found, columns=["loss", "start", "training", "dev"])
trained = trained.pivot(index="loss", columns="start").loc[[*versions]]
apart = trained.loc["corrected"] - trained.loc["literal"]
claim = "training accuracy@1 from random weights, corrected minus literal loss"
effects = {claim: apart["training", "random"]}
measured = {"dev accuracy@1 from zero, corrected minus literal loss": apart["dev", "zero"]}

# %% tags=["answer"]
with folded("Answer"):
    shares = trained["training", "random"]
    print("Yes." if shares.max() - shares.min() < 0.05 else "No.", end=" ")
    print(", ".join(f"{name} {share:.2f}" for name, share in shares.items()))

# %%
named = trained.stack(level=1, future_stack=True)
named.index = [f"{loss}, from {start}" for loss, start in named.index]
shares = {
    "training questions": named["training"].to_dict(),
    "dev questions": named["dev"].to_dict(),
}
right = plots.bars_side_by_side(shares, xlabels=["accuracy@1"] * 2, limit=1.15)[1]
right.axvline(cosine, color="black", linestyle=":", linewidth=1)
plt.show()

# %% [markdown]
# *Accuracy@1 is the share of questions whose answer is ranked first. The dotted line is MiniLM's cosine without any training.*
#
# From the random weights many margins are far below 0. There
# the pull of the bounded losses is weak, so they repair only some of the bad rankings in 200 steps. From zero all margins start at 0, where the
# three pulls differ only by constant factors.
#
# On *dev* questions no layer exceeds the untrained cosine, and from zero the literal loss is ahead of the corrected one. There its pull is 8
# times weaker, which acts like a smaller learning rate, so it fits the 200 training questions less and may overfit less. 200 questions are too
# few to improve the cosine.
#
# ## 4 The model of 2015
#
# MT-DNN has a predecessor with the same name, made for search queries. It ignores the order of words and has no pretrained weights. A text
# becomes counts of *letter trigrams*, $l_1$. All tasks share the layer $l_2 = \tanh(W_1 l_1)$ with 300 units, and each task $t$ has its own layer
# $l_3 = \tanh(W_2^t\, l_2)$ with 128 units. A ranking uses the cosine of the $l_3$ of query and candidate as $\mathrm{Rel}$; a classification
# adds a linear layer to $l_3$.
#
# Every word first gets the mark # at both ends: *cat* becomes `#cat#`. A trigram is a run of three characters.
#
# **Predict before you run.** Which trigrams does *don't* have? And can the model tell *the dog bites the man* from *the man bites the dog*?
#
# <details><summary>Answer</summary>
#
# `#do`, `don`, `on'`, `n't` and `'t#`. The two sentences are equal for this model, because they have the same counts.
#
# </details>

# %%
from mmlcourse.studies import DSSM, build_vocabulary, evaluate_dssm, fit_dssm, trigrams

print({text: dict(trigrams(text)) for text in ("cat", "don't")})
old_data = {"sst2": load_task("sst2", source), "qnli_rank": qnli}
vocabulary = build_vocabulary(row for one in old_data.values() for row in one.train.texts)
old_model = DSSM(vocabulary, old_data)  # a deep structured semantic model
print(f"{len(vocabulary):,} trigrams; {old_model.shared.weight.numel():,} shared parameters")

# %% [markdown]
# Its whole forward pass for a ranking, with a row of $W_1^\top$ for each trigram:


# %%
W_1, W_2 = old_model.shared.weight, old_model.task_layers["qnli_rank"].weight.T
place = {trigram: i for i, trigram in enumerate(vocabulary)}


def relevance(question, candidate):
    """Rel(Q, A) of the model of 2015."""
    l_3 = []
    for text in (question, candidate):
        l_1 = torch.zeros(len(vocabulary))
        for trigram, count in trigrams(text).items():
            if trigram in place:
                l_1[place[trigram]] = count
        l_2 = torch.tanh(l_1 @ W_1)
        l_3.append(torch.tanh(l_2 @ W_2))
    return F.cosine_similarity(*l_3, dim=0)


# %% [markdown]
# **Checkpoint.** The library's class gives the same cosines.

# %%
from mmlcourse.studies import hash_texts

pairs = qnli.dev.texts[:4]
columns = [hash_texts(texts, vocabulary) for texts in zip(*pairs)]
with torch.no_grad():
    theirs = old_model("qnli_rank", columns)[:, 0]
    ours = torch.stack([relevance(*pair) for pair in pairs])
torch.testing.assert_close(ours, theirs)
print("by hand", ours.numpy().round(4), "library", theirs.numpy().round(4))

# %% [markdown]
# A cosine is bounded too, so the library multiplies it by $\gamma = 10$ to lower the floor, and takes the log. We train the model on both tasks,
# with three seeds, with this corrected loss and with the literal one ($\gamma = 1$, no log).


# %%
class LiteralDSSM(DSSM):
    """The model of 2015 with the ranking loss of Eqs. 8 and 9 as printed."""

    def loss(self, task, columns, labels, groups=None):
        if task in self.classifiers:
            return super().loss(task, columns, labels)
        parts = zip(self(task, columns)[:, 0].split(groups), labels.split(groups))
        return -torch.stack([part.softmax(0)[right == 1].sum() for part, right in parts]).mean()


# %%
def old_score(kind, epochs, seed):
    """The accuracy@1 of a model of 2015 on the dev questions after some epochs."""
    with seeded(seed):
        model = kind(vocabulary, old_data)
    if epochs:
        fit_dssm(model, old_data, epochs=epochs, seed=seed)
    return evaluate_dssm(model, qnli.dev)["accuracy@1"]


# %% [markdown]
# The control for MiniLM is the same architecture with *random* weights. Both get the three treatments of section 3: the cosine without
# training, and a layer that is trained from zero with the corrected or the literal loss.

# %%
old_kinds = {"not trained": (DSSM, 0), "corrected": (DSSM, 10), "literal": (LiteralDSSM, 10)}
old = {
    k: np.mean([old_score(*one, seed + i) for i in range(seeds)]) for k, one in old_kinds.items()
}
blank = load_pretrained(size.model, random_init=True, seed=seed)[0].to(device).eval()
(_, y), (_, y_dev) = (first_queries(qnli.train, 200, blank), first_queries(qnli.dev, 500, blank))
control = {"not trained": accuracy_at_1(tests, y_dev.sum(1))}
y, y_dev = standardised(y, y_dev)
zero = torch.zeros(y.shape[1], dtype=y.dtype)
control |= {k: learn(versions[k], zero, y, y_dev)[1] for k in ("corrected", "literal")}
reader = {"not trained": cosine, **trained["dev", "zero"][["corrected", "literal"]]}

# %% [markdown]
# **Predict before you run.** What changes the accuracy on new questions most: the loss (literal or corrected), the architecture (2015 or
# MiniLM's, both without any reading), or the weights (random or pretrained)?

# %% tags=["answer"]
with folded("Answer"):
    names = ("model of 2015", "MiniLM's architecture, random", "MiniLM, pretrained")
    table = pd.DataFrame(dict(zip(names, (old, control, reader)))).T.astype(float)
    print("The weights. In every column, the pretrained ones are at least", end=" ")
    lead = 100 * (table.loc[names[2]] - table.loc[list(names[:2])].max()).min()
    print(f"{lead:.0f} points ahead of both others.")
    plots.bars_side_by_side(table.T.to_dict("dict"), xlabels=["accuracy@1"] * 3, limit=1.1)
    plt.show()

# %% [markdown]
# *Accuracy@1 on the dev questions; guessing reaches 0.5, and one standard error of an accuracy here is 3.6 points.*
#
# The models without reading stay close to guessing, whatever their loss and architecture, and on MiniLM's vectors neither loss improves
# the cosine. So on these questions the weights make the difference. But we cannot say that *plain text* taught them: MiniLM was also trained on
# pairs of sentences, among them 87,599 questions of SQuAD with their answers, which is this very task (QNLI is made from SQuAD). Section 5
# isolates it.
#
# ## 5 Pre-training in miniature
#
# BERT came between the two models. Before it is trained on a task, it reads much plain text and predicts tokens that were masked. The first stage
# of MT-DNN is this pre-training.
#
# ### BERT's rule
#
# The model has to predict 15 % of the tokens. A token is a word, a part of a word, or a mark. Of these 15 %, 80 % become [MASK], 10 % become a
# random token, and 10 % stay as they are. So the encoder cannot tell which of the visible tokens are correct.
#
# **Predict before you run.** A new head knows nothing and gives all 30,522 tokens the same probability. What is its loss for a masked token?
#
# <details><summary>Answer</summary>
#
# $\ln 30{,}522 = 10.3$, whatever the token is. Predicting by frequency is much better, because a few tokens make up a large part of any text.
#
# </details>

# %% tags=["effect"]
from mmlcourse.studies import PretrainingHeads, pretrain, pretraining_batch, split_sentences

texts = {
    split: [text for (text,) in getattr(load_task("cfimdb"), split).texts]
    for split in ("train", "dev")
}  # reviews of several sentences, from the repository
sentences = [one for text in texts["train"][:reviews] for one in split_sentences(text)]
held_out = [one for text in texts["dev"][:12] for one in split_sentences(text)]
held = pretraining_batch(tokenizer, held_out, seed=seed, max_length=64).to(device)
print(len(sentences), "training sentences and", len(held_out), "held-out ones, such as")
print(tokenizer.decode(held.input_ids[0], skip_special_tokens=False).split(" [PAD]")[0])

# %% [markdown]
# ### The loss, written out
#
# Let $h$ be the encoder's vectors at the places that are to be predicted. BERT's head has one layer, and then uses the encoder's own table of
# word vectors $E$: the score of a token is the dot product of its vector with the output of that layer, plus a bias $b$.


# %% tags=["effect"]
def token_losses(encoder, heads, batch):
    """The loss of every masked token, [N]; their mean is the loss of pre-training."""
    asked, head = batch.labels >= 0, heads.predictions
    h = encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids).last_hidden_state
    h = head.transform["LayerNorm"](F.gelu(head.transform["dense"](h[asked])))  # [N,D]
    E, b = encoder.embeddings.word_embeddings.weight, head.bias
    logits = h @ E.T + b  # [N,V]: a score for each of 30,522 tokens
    return F.cross_entropy(logits, batch.labels[asked], reduction="none")


# %% [markdown]
# **Checkpoint.** Two encoders get this loss: the bundled one, and one of the same shape with *random* weights. Both have the same new heads, and
# they will get the same sentences and settings, so a difference comes from the pretrained weights. On the fast profile both have only two
# layers, the lowest ones of MiniLM, to save time. The library's loss gives the same number.

# %% tags=["effect"]
from mmlcourse.studies import pretraining_loss

depth = 2 if profile == "fast" else None
learners = {}
for name, is_random in ((size.model, False), ("random", True)):
    encoder = load_pretrained(size.model, num_layers=depth, random_init=is_random, seed=seed)[0]
    with seeded(seed):
        learners[name] = encoder.to(device).eval(), PretrainingHeads(encoder.config).to(device)
    with torch.no_grad():
        ours, theirs = token_losses(*learners[name], held), pretraining_loss(*learners[name], held)
    torch.testing.assert_close(ours.mean(), theirs.words)
    print(f"{name}: by hand {ours.mean():.4f}, library {theirs.words:.4f}")

# %% [markdown]
# The test is this loss on the held-out sentences. The baseline predicts every token by its frequency in the training sentences, without looking
# at the tokens around it. A small constant is added to each count, for tokens that did not occur.
#
# **Predict before you run.** Which of the two encoders gets below the baseline on held-out tokens?

# %% tags=["effect"]
pace = dict(lr=5e-4, head_lr=1e-2) if profile == "fast" else dict(lr=5e-5, head_lr=1e-3)
options = dict(tokenizer=tokenizer, epochs=2, max_length=64, next_sentence=False, seed=seed)
learning, after = {}, {}
for name, both in learners.items():
    learning[name] = pretrain(*both, sentences, **pace, **options)
    with torch.no_grad():
        after[name] = token_losses(*both, held).cpu()
gain = (after["random"] - after[size.model]).mean().item()
effects["held-out loss of a masked token, random minus pretrained weights"] = gain

# %%
read = tokenizer(" ".join(sentences), add_special_tokens=False, truncation=False, verbose=False)
counts = torch.bincount(torch.tensor(read["input_ids"]), minlength=len(tokenizer)) + 0.1
after["by frequency"] = -(counts / counts.sum()).log()[held.labels[held.labels >= 0].cpu()]

# %% tags=["answer"]
with folded("Answer"):
    gaps = {name: after["by frequency"] - after[name] for name in learners}  # token by token
    clear = [name for name, gap in gaps.items() if gap.mean() > 2 * gap.std() / len(gap) ** 0.5]
    print("By more than two standard errors:", ", ".join(clear) or "neither of them")
    print(pd.Series({name: one.mean().item() for name, one in after.items()}).round(2).to_string())

# %%
plots.pretraining(learning, {name: one.mean().item() for name, one in after.items()})
plt.show()


# %% tags=["setup"]
@torch.no_grad()
def best_words(name, n=3):
    """The n most probable tokens at each masked place of the held-out sentences."""
    model, heads = learners[name]
    out = model.eval()(held.input_ids, held.attention_mask, held.token_type_ids)
    head = heads.eval().predictions
    h = head.transform["LayerNorm"](F.gelu(head.transform["dense"](out.last_hidden_state[is_mask])))
    best = (h @ model.embeddings.word_embeddings.weight.T + head.bias).topk(n).indices
    return [" ".join(tokenizer.convert_ids_to_tokens(one.tolist())) for one in best]


# %% tags=["setup"]
is_mask = held.input_ids == tokenizer.mask_token_id
where = is_mask.nonzero()[::7][:6]  # six places, evenly chosen
chosen = [int(((is_mask.nonzero() == one).all(1)).nonzero()) for one in where]

# %%
words = {"hidden": tokenizer.convert_ids_to_tokens(held.labels[is_mask].tolist())}
words |= {f"{name}: three best": best_words(name) for name in learners}
pd.DataFrame(words).iloc[chosen].style.hide()

# %% [markdown]
# *Six hidden words of held-out reviews, and the three best words of each encoder. The random one only knows which tokens are frequent.*
#
# *In the first figure, in the stored run: the loss on training tokens (lines, with one standard error of a mean over eight batches), and on held-out tokens after the
# last step (stars). The second epoch begins at step 34. The dotted line is the frequency baseline on the same held-out tokens. Only the encoder with pretrained weights gets below
# it.*
#
# The two encoders differ only in their initial weights, so the gap is the effect of all pretrained weights, including the table of word vectors.
#
# ## 6 The answer
#
# We repeated sections 3 and 5 with five other seeds:

# %%
from mmlcourse.studies import tell_effects

tell_effects("08")

# %% [markdown]
# The loss decides how well the *training* questions are learned: from random weights, the corrected loss ranks far more of them correctly in every
# seed. On *new* questions it makes no clear difference in our table, and the weights make a large one. And reading plain text is part of it: with
# pretrained weights, the loss of a masked token is lower in every seed.
#
# ## Exercises
#
# ### Exercise 1: another gamma
#
# ● ● ○ · 15 minutes
#
# Change the experiment of section 3: give the loss with the sigmoid and the log a factor $\gamma = 10$, as the model of 2015 has. From the same
# random weights, do you expect more or fewer training questions to be ranked correctly than with $\gamma = 1$? And on the dev questions? Decide
# first, and then complete the line.

# %%
with_gamma = ...  # a function of the scores, like those in `versions`

if with_gamma is not ...:
    print("training, dev:", [round(score, 2) for score in learn(with_gamma, wild, x, x_dev)])

# %% [markdown]
# <details><summary>Hint</summary>
#
# `versions["sigmoid"]` passes `scores.sigmoid()` to `of_answer`. Eq. 9 multiplies every score by $\gamma$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# with_gamma = lambda scores: -of_answer(10 * scores.sigmoid()).log().mean()
# ```
#
# In the stored run, 0.82 of the training questions and 0.64 of the dev questions are ranked correctly, against 0.71 and 0.61 with $\gamma = 1$. So
# $\gamma = 10$ repairs a part of the damage. Far below 0 the sigmoids stay flat for every $\gamma$.
#
# </details>

# %% [markdown]
# ### Exercise 2: the floor of a bounded score
#
# ● ○ ○ · 10 minutes
#
# A score lies between `low` and `high`, such as a cosine between −1 and 1. Give the lowest possible ranking loss of a query with
# `N` candidates.


# %%
def my_floor(N, gamma, low, high):
    """Return the lowest possible loss of one query."""
    ...


_ = checks.check_ranking_floor(my_floor)

# %% [markdown]
# <details><summary>Hint</summary>
#
# At best the answer has `high` and all $N - 1$ others have `low`. Divide numerator and denominator of Eq. 9 by $e^{\gamma \cdot
# high}$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# return np.log(1 + (N - 1) * np.exp(-gamma * (high - low)))
# ```
#
# For a cosine with two candidates and $\gamma = 1$ this is 0.1269; with $\gamma = 10$ it is 2e-9.
#
# </details>

# %% [markdown]
# ### Exercise 3: the mean reciprocal rank
#
# ● ● ○ · 15 minutes
#
# Accuracy@1 counts only first places. The *mean reciprocal rank* gives 1 for the first place, 1/2 for the second, 1/3 for the
# third. Write it for a batch of queries. There are no ties.


# %%
def my_reciprocal_rank(scores, relevant, groups):
    """Return the mean of 1/rank of the answers; the arguments are those of by_hand."""
    ...


_ = checks.check_reciprocal_rank(my_reciprocal_rank)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The rank of an answer is 1 plus the number of candidates of its own query with a higher score. `scores.split(groups)` gives one
# tensor per query.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# parts = zip(scores.split(groups), relevant.split(groups))
# return sum(1 / (1 + (part > part[right == 1]).sum()) for part, right in parts) / len(groups)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 4: the pull by hand
#
# ● ● ● · 20 minutes
#
# Derive the pull $-dL/dm$ of the loss with Eq. 5's sigmoid and the log, for two candidates at $\pm m/2$ and any $\gamma$. Use
# `math`, not autograd.


# %%
def my_pull(m, gamma):
    """Return -dL/dm as a number."""
    ...


_ = checks.check_loss_pull(my_pull)

# %% [markdown]
# <details><summary>Hint</summary>
#
# $\sigma(m/2) - \sigma(-m/2) = \tanh(m/4)$, so $L = \log(1 + e^{-\gamma \tanh(m/4)})$. The derivative of $\tanh(m/4)$ is
# $(1 - \tanh^2(m/4))/4$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import math
# t = math.tanh(m / 4)
# return gamma * (1 - t * t) / 4 / (1 + math.exp(gamma * t))
# ```
#
# At $m = 0$ and $\gamma = 1$ it is $\tfrac14 \cdot \tfrac12 = 0.125$. For large $|m|$ the factor $1 - t^2$ goes to 0, whatever
# $\gamma$ is.
#
# </details>
#
# ## If it goes wrong
#
# - *"... queries cannot be ranked"*: the rows were cut with `limit=`, which splits queries, or each question has one candidate.
#   Load the whole set, or classify.
# - *The ranking loss stays above 0.3133*: the head has `activation="sigmoid"`, with $\gamma = 1$ and two candidates. This is
#   its floor.
# - *The loss on tokens starts above 10*: a new head guesses among 30,522 tokens, and $\ln 30522 = 10.3$. It should fall within a
#   few steps.
#
# ## Takeaways
#
# - **What an encoder has read makes the ranking: MiniLM's cosine answers 82 % of our questions without any training here, while the model of 2015 and
#   MiniLM's architecture with random weights stay close to guessing, with either loss. But MiniLM has read SQuAD's questions with their answers.**
# - The ranking loss is a softmax over the candidates of one query. At γ = 1, badly ranked queries hardly count with a sigmoid or without the log:
#   at $m = -6$ the pull of the literal equations is about a hundred times weaker.
# - A larger γ repairs most of the sigmoid's damage, except at very negative margins. It does not repair the missing log.
# - After the same few steps on plain text, an encoder with pretrained weights predicts held-out tokens better than their frequencies do, and one
#   with random weights does not.
#
# ## References
#
# Liu, He, Chen and Gao (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding* (first arXiv version). Liu et
# al. (2015), *Representation Learning Using Multi-Task Deep Neural Networks for Semantic Classification and Information Retrieval*.
# Baldrati and Berti, *Multi-Task Deep Neural Networks for Natural Language Understanding* (slides). Devlin et al. (2019), *BERT*.
# Wang et al. (2020), *MiniLM: Deep Self-Attention Distillation*. Wang et al. (2019), GLUE.
#
# Before: [07 One encoder, many tasks](07_mtdnn_san.ipynb). Next: [09 A new task with few labels](09_domain_adaptation.ipynb).
