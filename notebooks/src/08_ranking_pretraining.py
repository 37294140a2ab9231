# %% [markdown]
# # 08 Ranking and pre-training
#
# Which of several sentences answers a question? MT-DNN learns this with a ranking loss. You compute the loss by hand, plot the
# version that the paper prints, and see why badly ranked questions hardly count in it. Then you train the earlier model of 2015,
# and try the pre-training that came between the two.
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
# - mask tokens as BERT does, and train two encoders to predict them,
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

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

# %%
from torch.nn import functional as F

from mmlcourse.lessons import checks, plots
from mmlcourse.lessons.plots import sliders
from mmlcourse.lessons.profiles import get_profile
from mmlcourse.machine import describe
from mmlkit.runtime import pick_device

size, device, about = get_profile(profile), pick_device(), describe()
source = source or size.source
reviews = reviews or (80 if profile == "fast" else 1500)
print(f"mmlkit {mmlkit.__version__}, torch {about['versions']['torch']} on {about['device']}")
print(f"weights {size.model}, data from {source}, {reviews} reviews for pre-training")

# %% [markdown]
# ## 1 A question and its candidates
#
# QNLI asks whether a sentence answers a question. As a classification, every pair of question and sentence gets its own *yes* or
# *no*. As a ranking, all sentences of one question form a *query*, and exactly one of them is the answer. `rank_queries` groups the
# rows into queries.

# %%
from mmlkit.data import load_task
from mmlkit.heads import rank_queries

qnli = rank_queries(load_task("qnli", source))
first = np.flatnonzero(qnli.dev.queries == qnli.dev.queries[0])
print("question:", qnli.dev.texts[first[0]][0])
for row in first:
    print("  answer  " if qnli.dev.labels[row] else "  other   ", qnli.dev.texts[row][1])
per_query = len(qnli.dev) / len(np.unique(qnli.dev.queries))
print(f"{len(np.unique(qnli.dev.queries))} dev queries, {per_query:.2f} candidates on average")

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

# %% tags=["answer"] jupyter={"outputs_hidden": true}
scores = torch.tensor([4.0, 2.0, 1.0]).log()
chances = scores.softmax(0)
loss = -chances[0].log()
print(f"Answer: {7 * chances[0]:.0f}/7, since the three exponentials are 4, 2 and 1.")
print(f"The loss is ln(7/4) = {loss:.4f}.")

# %% [markdown]
# ### In code
#
# A batch holds several queries, one after another, and their numbers of candidates differ. So the softmax runs over each group, and
# never over the whole batch. The code takes the mean over the queries, and Eq. 8 has their sum.

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
# **Predict before you run.** A question has two candidates. They have the best scores that a sigmoid allows: 1 for the answer, 0
# for the other. How large is the loss at $\gamma = 1$?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
floor = -torch.tensor([1.0, 0.0]).softmax(0)[0].log()
ten, sharp = np.log(1 + 9 / np.e), np.log(1 + np.exp(-10))
print(f"Answer: {floor:.4f}. A perfect ranking counts as {(-floor).exp():.0%} sure.")
print(f"With 10 candidates it is {ten:.4f}; with two and gamma = 10 it is {sharp:.5f}.")
found = ranking_loss(torch.tensor([90.0, -90.0]).sigmoid(), torch.tensor([1, 0]), (2,))
torch.testing.assert_close(found, floor)

# %% [markdown]
# With two candidates the loss cannot fall below $\log(1 + 1/e) = 0.3133$. With $N$ candidates the floor is
# $\log(1 + (N-1)\, e^{-\gamma})$.
#
# ### The pull
#
# A floor alone does no harm, because a constant does not change the gradient. The problem is the size of the gradient. Let $w^\top
# x$ be the score before the sigmoid, and let the *margin* $m$ be the answer's $w^\top x$ minus the other's. A softmax reads only
# differences of scores, so $m$ is enough for a loss without a sigmoid. A sigmoid also depends on where the two scores lie. We split
# the margin evenly: the answer has $+m/2$ and the other candidate has $-m/2$.
#
# The *pull* is $-dL/dm$, the negative gradient of the loss with respect to the margin. A gradient step increases the margin in
# proportion to it. We compare three losses:
#
# - the scores as they are, with the log,
# - Eq. 5's sigmoid first, with the log,
# - the literal paper: Eqs. 5, 8 and 9, so the sigmoid first and no log. The code adds 1, so that this loss is positive; the
#   gradient stays the same.
#
# **Predict before you run.** A query is ranked badly, $m = -6$. How many times larger is the pull of the first loss than that of
# the literal one?


# %% tags=["answer"] jupyter={"outputs_hidden": true}
def three_losses(m, gamma=1.0):
    """Each loss of a query with two candidates at the margins m."""
    bounded = gamma * ((m / 2).sigmoid() - (-m / 2).sigmoid())
    return {
        "scores as they are, −log": F.softplus(-gamma * m),
        "Eq. 5's sigmoid, −log": F.softplus(-bounded),
        "literal Eqs. 5, 8, 9, plus 1": 1 - bounded.sigmoid(),
    }


m = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
losses = three_losses(m)
pulls = [-torch.autograd.grad(one.sum(), m, retain_graph=True)[0] for one in losses.values()]
pulls = dict(zip(losses, pulls))
plain, bounded, literal = (pull[20].item() for pull in pulls.values())
print(f"Answer: {plain / literal:.0f} times; {plain:.4f} against {literal:.4f} at m = {m[20]:.0f}.")

# %%
losses = {name: one.detach() for name, one in losses.items()}
plots.loss_and_pull(
    m.detach(), losses, pulls, lines={f"floor of Eq. 5's sigmoid, {floor:.4f}": floor.item()}
)
plt.show()
at_zero = [round(pull[80].item(), 4) for pull in pulls.values()]
print("pulls at m = 0:", at_zero, " at m = -6:", [round(p, 4) for p in (plain, bounded, literal)])
assert at_zero[2] == 0.0625 and round(literal, 4) == 0.0093 and literal < bounded < 0.1 < plain

# %% [markdown]
# *At m = −6 the loss without a sigmoid has a pull of 0.998 (right). The sigmoid lowers it to 0.032, and the literal paper, which
# also omits the log, to 0.009. The literal loss plus 1 changes only between 0.72 and 0.28 (left). The dotted line is the floor of
# the second loss.*
#
# A badly ranked query should have the strongest pull. With the sigmoid its pull is weak, because both sigmoids are flat there.
# Without the log the pull is even weaker, at every margin: the gradient of the literal loss is that of the log loss times $\Pr(A^+
# \mid Q)$, which is below 1.
#
# ### What the pull means for training
#
# Take one query at $m = -6$, and let plain gradient descent with learning rate 1 change $m$ itself.
#
# **Predict before you run.** How many steps does each of the three losses need until the answer is ranked first?


# %% tags=["answer"] jupyter={"outputs_hidden": true}
def steps_until_right(name, m=-6.0):
    """The number of gradient steps until the margin is positive."""
    m, steps = torch.tensor(m, dtype=torch.float64, requires_grad=True), 0
    while m <= 0:
        m.data += -torch.autograd.grad(three_losses(m)[name], m)[0]
        steps += 1
    return steps


steps = [steps_until_right(name) for name in losses]
print(f"Answer: {steps[0]}, {steps[1]} and {steps[2]} steps.")
assert 10 * steps[0] < steps[1] and 2 * steps[1] < steps[2]

# %% [markdown]
# This toy changes $m$ directly, with plain gradient descent. Adam and Adamax rescale the gradients, so a constant factor matters
# less to them. But a badly ranked query still counts less than a query near $m = 0$ in the same batch.
#
# The *order* of the candidates is the same with and without the sigmoid, since a sigmoid is monotone. So the library trains without
# it. `activation="sigmoid"` is there for a literal Eq. 5.
#
# ### Change gamma and the number of candidates
#
# With the log, a larger $\gamma$ repairs much of the damage: it lowers the floor and strengthens the pull near $m = 0$. Far from 0 the
# sigmoids are still flat, so the pull goes to 0 there for every $\gamma$. The next figure has $N$ candidates; all but the answer have the
# score $-m/2$.


# %%
def draw(gamma, N):
    with torch.enable_grad():
        x = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
        bounded = (x / 2).sigmoid() - (-x / 2).sigmoid()
        curves = {"no sigmoid, gamma = 1": x, f"sigmoid, gamma = {gamma}": gamma * bounded}
        curves = {name: (1 + (N - 1) * (-gap).exp()).log() for name, gap in curves.items()}
        graph = dict(retain_graph=True)
        pulls = {k: -torch.autograd.grad(one.sum(), x, **graph)[0] for k, one in curves.items()}
    losses, lowest = {k: v.detach() for k, v in curves.items()}, np.log1p((N - 1) * np.exp(-gamma))
    lines = {f"floor of the sigmoid's loss, {lowest:.2g}": lowest}
    plots.loss_and_pull(x.detach(), losses, pulls, lines=lines, top=2.5, title=f"N = {N}")


sliders(draw, start={"gamma": 10, "N": 2}, gamma=[1, 2, 3, 5, 10], N=[2, 3, 5, 10])

# %% [markdown]
# *With γ = 10 and two candidates the floor falls to 0.000045, and the pull at small negative margins exceeds that of the plain loss.
# Below about m = −4 it is weaker, and at m = −8 it is 0.18. The sliders change γ and N.*
#
# ## 3 The model of 2015
#
# MT-DNN has a predecessor with the same name, made for search queries. It ignores the order of words and has no pretrained weights.
# A text becomes counts of *letter trigrams* ($l_1$). The layer $l_2 = \tanh(W_1 l_1)$ with 300 units is shared. Each task $t$ has
# its own layer $l_3 = \tanh(W_2^t\, l_2)$ with 128 units. A classification adds a linear layer to $l_3$. A ranking uses the cosine
# of the $l_3$ of query and candidate. The library's class is `DSSM` (deep structured semantic model). A cosine is bounded too, so
# the library sets $\gamma = 10$ to lower the floor.
#
# Every word first gets the mark # at both ends: *cat* becomes `#cat#`. A trigram is a run of three characters.
#
# **Predict before you run.** Which trigrams does *don't* have? And can the model tell *the dog bites the man* from *the man bites
# the dog*?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlcourse.studies import DSSM, build_vocabulary, fit_dssm, trigrams


def runs_of_three(word):
    """All runs of three characters of the word between its marks."""
    return [f"#{word}#"[i : i + 3] for i in range(len(word))]


for word in ("cat", "don't"):
    assert dict(trigrams(word)) == {one: runs_of_three(word).count(one) for one in trigrams(word)}
same = trigrams("the dog bites the man") == trigrams("the man bites the dog")
print(
    f"Answer: {' '.join(runs_of_three(word))}. The two sentences are {'equal' if same else 'not'}."
)

# %%
old_data = {"sst2": load_task("sst2", source), "qnli_rank": qnli}
vocabulary = build_vocabulary(row for one in old_data.values() for row in one.train.texts)
model = DSSM(vocabulary, old_data)
own = model.task_layers["sst2"].weight.numel()
print(f"{len(vocabulary):,} trigrams; {model.shared.weight.numel():,} shared parameters")
print(f"{own:,} for each task; with the 50,000 trigrams of 2015 it would share {50_000 * 300:,}")

# %% [markdown]
# ### Does it learn our tasks?
#
# We train it on both tasks, with three seeds. The baseline for the ranking is not only guessing. MiniLM can also rank the
# candidates *without any training here*, by the cosine of question and candidate. The table calls this *untrained*.
#
# **Predict before you run.** The candidates of a question in the mini QNLI share about equally many words with it. Will the model
# of 2015 rank better than chance?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlkit.runtime import seeded


def old_scores(seed):
    """The dev scores of the 2015 model after ten epochs."""
    with seeded(seed):
        model = DSSM(vocabulary, old_data)
    last = fit_dssm(model, old_data, epochs=10, seed=seed).groupby("task").last()
    return {"sst2": last.loc["sst2", "accuracy"], "qnli_rank": last.loc["qnli_rank", "accuracy@1"]}


old = pd.DataFrame([old_scores(seed + i) for i in range(seeds)])
chance = qnli.dev.labels.mean()
gap, error = (
    old["qnli_rank"].mean() - chance,
    np.sqrt(chance * (1 - chance) / qnli.dev.labels.sum()),
)
verdict = "yes" if gap > 2 * error else "no, not by two standard errors"
print(f"Answer: {verdict} ({old['qnli_rank'].mean():.3f} against {chance:.3f} ± {error:.3f}).")

# %%
from mmlkit.bert import load_pretrained
from mmlkit.heads import sentence_vector
from mmlkit.training import metrics

pretrained, tokenizer = load_pretrained(size.model)
pretrained = pretrained.to(device).eval()


@torch.no_grad()
def vectors(texts):
    """The mean of the untrained encoder's vectors for each text."""
    rows = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").to(device)
    out = pretrained(rows.input_ids, rows.attention_mask, rows.token_type_ids)
    return sentence_vector(out, rows, "mean")


# %%
few = qnli.dev.take(np.arange(min(len(qnli.dev), 1000)))
if len(few) < len(qnli.dev):  # then the last query may be cut
    few = few.take(np.flatnonzero(few.queries != few.queries[-1]))
pair = [vectors(column) for column in zip(*few.texts)]  # of the questions, of the candidates
cosines = F.cosine_similarity(*pair).cpu().numpy()
untrained = metrics.compute(few.task, cosines, few.labels, few.queries)
majority = np.bincount(old_data["sst2"].dev.labels).max() / len(old_data["sst2"].dev)
spread = [f"{one.mean():.3f} ± {one.std():.3f}" for one in (old["sst2"], old["qnli_rank"])]
table = {"guessing": [f"{majority:.3f}", f"{chance:.3f}"], "2015, three seeds": spread}
table["MiniLM's cosine, untrained"] = ["", f"{untrained['accuracy@1']:.3f}"]
pd.DataFrame(table, index=["sst2, accuracy", "qnli_rank, accuracy@1"])

# %% [markdown]
# The table gives the mean ± standard deviation over seeds. *Accuracy@1* is the share of questions whose answer is ranked first. The model
# of 2015 learns a little on both tasks. On the ranking it is right in 58.5 % of the questions, and guessing in 50 %. The printed error
# treats questions as independent, but they share sentences. The mini QNLI was written so that shared words do not reveal the answer.
#
# MiniLM is right in 82 % of the questions without any training on them. Its vectors were learned from other texts. But this is more
# than pre-training: the bundled MiniLM was also trained on many sentence pairs, so that similar sentences get a high cosine. The
# table does not separate the two. It is one recent encoder against one old model.
#
# ### The three losses on real questions
#
# Now each of the three losses of section 2 trains a ranking. A candidate's score is a linear layer $w$ on the products of MiniLM's two
# vectors, elementwise. The sum of the products is the cosine. Here the products are standardised by their mean and standard deviation
# first. Only $w$ is trained, on 200 questions. It starts at zero, or at large random weights, from which many questions are ranked badly.


# %%
def products(pair):
    """The vectors of two texts, each of length 1, multiplied number by number: [N,D]."""
    return (F.normalize(pair[0], dim=-1) * F.normalize(pair[1], dim=-1)).cpu().double()


# %%
numbers = np.unique(qnli.train.queries)[:200]
known = qnli.train.take(np.flatnonzero(np.isin(qnli.train.queries, numbers)))
x, x_dev = products([vectors(column) for column in zip(*known.texts)]), products(pair)
center, width = x.mean(0), x.std(0)
varied = width > 0  # some numbers of MiniLM's vectors are the same for all texts
x, x_dev = (((one - center) / width)[:, varied] for one in (x, x_dev))

# %%
query = torch.as_tensor(np.searchsorted(numbers, known.queries))
right = torch.as_tensor(known.labels) == 1


def of_answer(scores):
    """Pr(A+ | Q) of every question, from the scores [N] of all candidates."""
    total = torch.zeros(len(numbers), dtype=scores.dtype).index_add(0, query, scores.exp())
    return scores[right].exp() / total[query[right]]


# %%
versions = {
    "scores as they are, −log": lambda scores: -of_answer(scores).log().mean(),
    "Eq. 5's sigmoid, −log": lambda scores: -of_answer(scores.sigmoid()).log().mean(),
    "literal Eqs. 5, 8, 9": lambda scores: -of_answer(scores.sigmoid()).mean(),
}
torch.testing.assert_close(of_answer(x[:, 0] * 0).sum(), sum(1 / torch.bincount(query).double()))


# %%
def learn(loss, start, optimizer, lr):
    """The accuracy@1 on training and dev questions after 200 steps on all training questions."""
    w = start.clone().requires_grad_()
    steps = optimizer([w], lr=lr)
    for _ in range(200):
        steps.zero_grad()
        loss(x @ w).backward()
        steps.step()
    return [
        metrics.compute(one.task, (inputs @ w).detach().numpy(), one.labels, one.queries)
        for one, inputs in ((known, x), (few, x_dev))
    ]


# %% [markdown]
# **Predict before you run.** From the large random weights, plain gradient descent makes 200 steps. Do the three losses rank
# equally many training questions correctly?

# %%
wild = 0.3 * torch.randn(x.shape[1], generator=torch.Generator().manual_seed(seed)).double()
ways = {"gradient descent": (torch.optim.SGD, 0.05), "Adam": (torch.optim.Adam, 0.01)}
found = {
    (start, way): {name: learn(loss, w, *ways[way]) for name, loss in versions.items()}
    for start, w in {"zero": 0 * wild, "random": wild}.items()
    for way in ways
}

# %% tags=["answer"] jupyter={"outputs_hidden": true}
parts = found["random", "gradient descent"].items()
shares = {name: train["accuracy@1"] for name, (train, dev) in parts}
same = "yes" if max(shares.values()) - min(shares.values()) < 0.05 else "no"
print(f"Answer: {same}.", ", ".join(f"{name}: {share:.2f}" for name, share in shares.items()))

# %%
table = pd.DataFrame(found).map(lambda of: " / ".join(f"{one['accuracy@1']:.2f}" for one in of))
best = max(dev["accuracy@1"] for each in found.values() for _, dev in each.values())
print(f"the best dev score is {best:.2f}; the untrained cosine has {untrained['accuracy@1']:.2f}")
table.rename_axis(columns=["initialisation", "training / dev"])

# %% [markdown]
# Each cell has the accuracy@1 on training and on dev questions. From zero all margins are 0, and there the pulls differ by constant factors
# only. From the random weights many margins are far below 0, where the pull of the bounded losses is weak. Adam rescales the gradient, so
# it can hide part of the difference. This is one seed and one random initialisation, chosen large on purpose.
#
# On dev questions no layer exceeds the untrained cosine: 0.80 at best against 0.82, with a standard error of about 0.03. From zero,
# gradient descent with the literal loss has this 0.80, and with the corrected loss 0.70. There its pull is 8 times weaker, like a smaller
# learning rate. It fits the 200 training questions less (0.88 against 1.00) and may overfit less for this reason.
#
# ## 4 Pre-training in miniature
#
# BERT came between the two models. It is an encoder that is trained on a large amount of plain text before it is trained on a task. The
# first stage of MT-DNN is this pre-training, and its authors use BERT's released weights. The two objectives can be tried on a small scale:
# predict masked tokens, and decide whether one sentence follows another. In half of the pairs the second sentence is from another text.
#
# ### BERT's rule for masked tokens
#
# The model has to predict 15 % of the tokens. A token is a word, a part of a word, or a mark. Of these 15 %, 80 % become [MASK], 10
# % become a random token, and 10 % stay as they are. So the encoder cannot tell which of the visible tokens are correct.
#
# **Predict before you run.** Of 1,000 tokens, how many does [MASK] replace?

# %% tags=["answer"] jupyter={"outputs_hidden": true}
from mmlcourse.studies import mask_tokens

texts = {
    split: [text for (text,) in getattr(load_task("cfimdb"), split).texts]
    for split in ("train", "dev")
}  # reviews of several sentences, from the repository
joined = " ".join(texts["train"])
coded = tokenizer(joined, add_special_tokens=False, truncation=False, verbose=False)
ids = torch.tensor(coded["input_ids"])[None]
masked, labels = mask_tokens(ids, tokenizer, seed=seed)
asked, hidden = (labels >= 0).float().mean(), (masked == tokenizer.mask_token_id).float().mean()
print(f"Answer: {1000 * hidden:.0f}, since {asked:.1%} of {ids.numel():,} tokens are asked for.")

# %%
print(tokenizer.decode(ids[0, :30]))
print(tokenizer.decode(masked[0, :30]))

# %% [markdown]
# ### Two encoders
#
# BERT's head for tokens is one layer, followed by the encoder's own table of vectors. The score of a token is the dot product of its vector
# with the output of that layer. The bundled MiniLM has no such head, because it was trained to imitate a larger model, and then to compare
# sentences. So its head is initialised at random, and the library says so.
#
# This part is a demonstration of the mechanics, with one seed. Two encoders are trained on the same reviews: the bundled one, and
# one of the same shape with *random* weights. Both get the same new heads, the same batches and the same settings. So a difference
# comes from the pretrained weights. On the fast profile both have only two layers, the lowest ones of MiniLM, to save time.

# %%
import warnings

from mmlcourse.studies import PretrainingHeads, load_pretraining_heads

depth = 2 if profile == "fast" else None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    lower = load_pretrained(size.model, num_layers=depth)[0]
    bundled = lower.to(device), load_pretraining_heads(size.model, seed=seed).to(device)
blank = load_pretrained(size.model, num_layers=depth, random_init=True, seed=seed)[0]
with seeded(seed):
    random = blank.to(device), PretrainingHeads(blank.config).to(device)
learners = {size.model: bundled, "random": random}
fresh = [str(one.message) for one in caught if "cls." in str(one.message)]
print(*fresh or [f"{size.model} has heads of its own"])

# %% [markdown]
# The test is the loss on held-out reviews. The baseline predicts every token by its frequency, without the tokens around it. It counts the
# tokens of the reviews that the encoders read. A constant is added to each count, for tokens that did not occur. The best of three
# constants on the held-out tokens is used, which favours the baseline. For the second objective the baseline is guessing, $\ln 2$.
#
# **Predict before you run.** Which of the two encoders gets below the baseline on held-out tokens? And does either learn which
# sentence follows?

# %%
from mmlcourse.studies import next_sentence_pairs, pretrain, pretraining_batch, pretraining_loss

pairs = next_sentence_pairs(texts["dev"][:12], seed=seed)
held = pretraining_batch(tokenizer, pairs, seed=seed).to(device)
options = dict(tokenizer=tokenizer, seed=seed, max_length=64)
pace = dict(lr=5e-4, head_lr=1e-2) if fresh else dict(lr=5e-5)  # trained heads need small steps


@torch.no_grad()
def tested(encoder, heads):
    """The loss of every masked held-out token [N], and the loss on the next sentence."""
    out = encoder.eval()(held.input_ids, held.attention_mask, held.token_type_ids)
    masked, table = held.labels >= 0, encoder.embeddings.word_embeddings.weight
    logits = heads.eval().predictions(out.last_hidden_state[masked], table)
    tokens = F.cross_entropy(logits.float(), held.labels[masked], reduction="none").cpu()
    return tokens, pretraining_loss(encoder, heads, held).next_sentence.item()


before = tested(*bundled)


# %%
def by_frequency(texts):
    """The loss of every masked held-out token [N], by the frequency of tokens in some texts."""
    read = tokenizer(" ".join(texts), add_special_tokens=False, truncation=False, verbose=False)
    counts = torch.bincount(torch.tensor(read["input_ids"]), minlength=len(tokenizer)).double()
    asked = held.labels[held.labels >= 0].cpu()
    options = [-((counts + add) / (counts + add).sum()).log()[asked] for add in (0.01, 0.1, 1)]
    return min(options, key=lambda one: one.mean())


# %%
train = texts["train"][:reviews]
baseline = by_frequency(train)

# %%
curves = {}
for name, one in learners.items():
    curves[name] = pretrain(*one, train, epochs=2, **pace, **options)
after = {name: tested(*one) for name, one in learners.items()}


# %%
def error(values):
    """One standard error of a mean over tokens."""
    return (values.std() / len(values) ** 0.5).item()


# %% tags=["answer"] jupyter={"outputs_hidden": true}
gaps = {name: baseline - tokens for name, (tokens, _) in after.items()}  # paired, token by token
words = [name for name, gap in gaps.items() if gap.mean() > 2 * error(gap)]
follows = [name for name, (_, loss) in after.items() if loss < np.log(2) - 0.02]
words, follows = (", ".join(one) or "neither" for one in (words, follows))
print(f"Answer: on held-out tokens {words}; on the next sentence {follows}.")

# %%
found = {f"{size.model}, before": before, **{f"{name}, after": one for name, one in after.items()}}
found["by frequency, the same reviews"] = baseline, np.log(2)
found["by frequency, all reviews"] = by_frequency(texts["train"]), np.log(2)
for curve in curves.values():
    start, end = curve["words"].iloc[0], curve["words"].tail(8).mean()
    assert not size.effects or end < start - 1 or start < 5, "only a trained head may stay"

# %%
rows = {name: (one.mean().item(), error(one), second) for name, (one, second) in found.items()}
columns = ["masked tokens", "one standard error", "next sentence"]
pd.DataFrame(rows, index=columns).T.round(3)

# %%
gap = after["random"][0] - after[size.model][0]  # paired: the same tokens
print(f"Pretrained weights lower the loss of a token by {gap.mean():.3f} ± {error(gap):.3f}.")

# %%
guesses = baseline.mean().item(), np.log(2)
plots.pretraining(curves, guesses)
plt.show()

# %% [markdown]
# *On masked tokens the training loss falls to 5.1 for MiniLM and 6.5 for random weights, both below the dotted line, the baseline on
# held-out tokens (left). On
# the next sentence both end near guessing (right). The bands show one standard error of a mean over eight batches.*
#
# The curves are losses on training tokens. In the table, on held-out tokens, the random encoder stays above the baseline.
# The table also shows the frequencies in *all* training reviews, which are a harder baseline than those of the reviews that were
# read.
#
# The two encoders differ only in their initial weights. So the printed gap is the effect of all pretrained weights, including
# the table of word vectors, in this run. Its standard error covers the choice of the held-out tokens. It treats them as
# independent, and it does not cover the seed.
#
# ### Filled gaps

# %%
from mmlcourse.studies import fill_mask

gaps = [
    "The film was _.",
    "The music is _, and so is the acting.",
    "The _ of this film is its end.",
]
gaps = [text.replace("_", tokenizer.mask_token) for text in gaps]
filled = {
    name: [" ".join(word for word, _ in fill_mask(*one, tokenizer, text)) for text in gaps]
    for name, one in learners.items()
}
pd.DataFrame(filled, index=gaps)

# %% [markdown]
# The random encoder gives the same five frequent tokens for every gap. It hardly uses the context. MiniLM's tokens change with the gap.
# For the third gap all five are nouns, and several fit. For the first gap none fits.
#
# A released BERT has its own trained head, and it was trained on billions of words. Neither encoder learns the second objective in these
# few steps. One reason may be that the label of a pair is one bit, and a pair has many masked tokens.
#
# MT-DNN does not keep the head for tokens. It keeps the encoder, which all its tasks share and train further.
#
# ## Exercises
#
# ### Exercise 1: the floor of a bounded score
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
# ### Exercise 2: the mean reciprocal rank
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
# ### Exercise 3: masked tokens
#
# ● ● ○ · 15 minutes
#
# Write BERT's rule. `drawn` says which tokens are to be predicted. `u` has a random number from 0 to 1 for each place, and `others`
# has a random token. Below 0.8 a drawn token becomes `mask`; from 0.8 to 0.9 it becomes the other token; from 0.9 it stays.


# %%
def my_masked_words(ids, drawn, u, others, mask):
    """Return what the encoder reads, and the labels (-100 where nothing is asked), both [T]."""
    ...


_ = checks.check_masked_words(my_masked_words)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `torch.where(condition, a, b)` chooses place by place. A drawn token that stays still has a label.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# masked = torch.where(drawn & (u < 0.9), others, ids)
# masked[drawn & (u < 0.8)] = mask
# return masked, torch.where(drawn, ids, -100)
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
# - The ranking loss is a softmax over the candidates of one query. At γ = 1, badly ranked queries hardly count with a sigmoid or
#   without the log. A larger γ repairs most of the first, except far below 0, and none of the second.
# - A bounded score gives the loss a floor and weakens its gradient. At $m = -6$ the pull of the literal equations is about a
#   hundred times weaker.
# - The model of 2015 counts letter trigrams and ranks 58.5 % of the mini questions correctly. The cosine of MiniLM, without
#   training here, ranks 82 %.
# - On held-out tokens MiniLM's weights give a loss of 5.9, and random weights 7.4. Token frequencies have 7.1 (one seed). Neither encoder
#   learns the next sentence.
#
# ## References
#
# Liu, He, Chen and Gao (2019), *Multi-Task Deep Neural Networks for Natural Language Understanding* (first arXiv version). Liu et
# al. (2015), *Representation Learning Using Multi-Task Deep Neural Networks for Semantic Classification and Information Retrieval*.
# Baldrati and Berti, *Multi-Task Deep Neural Networks for Natural Language Understanding* (slides). Devlin et al. (2019), *BERT*.
# Wang et al. (2020), *MiniLM: Deep Self-Attention Distillation*. Wang et al. (2019), GLUE.
#
# Before: [07 One encoder, many tasks](07_mtdnn_san.ipynb). Next: [09 A new task with few labels](09_domain_adaptation.ipynb).
